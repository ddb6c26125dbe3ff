"""Draw scores against seconds, and print who passes whom: `python -m benchmarks.record_figure [--out FOLDER]`.

`benchmarks/record.csv` has the rows; with `--out` they are taken anew from the `record.jsonl` of `benchmarks.record`
in that folder. The figure is `docs/images/speed.png`.
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path
from typing import Any

from benchmarks.data import ROOT
from benchmarks.figure import OTHERS, OURS
from benchmarks.report import markdown, number

ROWS = Path(__file__).with_suffix("").with_name("record.csv")
COLUMNS = ("data", "rank", "tool", "version", "length", "seconds", "beside", "score")
TITLES = {
    "newsgroups": "newsgroups, 18,774 × 55,911, K = 20",
    "nips": "nips, 2,483 × 14,036, K = 20",
    "ap_like": "simulated texts, 2,246 × 10,473, K = 20",
    "pbmc_facs": "pbmc_facs, 3,774 × 16,791, K = 10",
    "pcawg_breast_sbs96": "pcawg breast, 192 × 96, K = 10",
}
Row = dict[str, Any]


def gather(folder: Path) -> None:
    """Write one row for each length: the least seconds, what ran beside that fit, and the best score of equal fits.

    hpfrec's fits of one seed differ, since its threads add in any order.
    """
    lines = [json.loads(line) for line in (folder / "record.jsonl").read_text(encoding="utf-8").splitlines()]
    found: dict[tuple[str, str, int], Row] = {}
    for row in sorted(lines, key=lambda row: row["repeat"]):  # the first has the score
        first = found.setdefault((row["data"], row["tool"], row["length"]), row)
        if row["seconds"] < first["seconds"]:
            first |= {key: row[key] for key in ("seconds", "beside")}
        first["score"] = max(first["score"], row.get("score", first["score"]))
    with open(ROWS, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(found.values())


def read() -> dict[str, dict[str, list[Row]]]:
    """Return the rows of each tool, by data and tool."""
    found: dict[str, dict[str, list[Row]]] = {name: {} for name in TITLES}
    with open(ROWS, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            values = {"length": int(row["length"]), **{key: float(row[key]) for key in ("seconds", "score")}}
            found[row["data"]].setdefault(row["tool"], []).append(values)
    return found


def best(rows: list[Row]) -> Row:
    """Return the row with the best score."""
    return max(rows, key=lambda row: row["score"])


def passing(rows: list[Row], score: float) -> float:
    """Return the smallest seconds of a fit that has at least this score; NaN if none has."""
    return min((row["seconds"] for row in rows if row["score"] >= score), default=float("nan"))


def shown(row: Row) -> str:
    """Return a score, and its seconds after an opening bracket."""
    return f"−{-row['score']:.4f} ({number(row['seconds'], 2)}"


def table(found: dict[str, dict[str, list[Row]]]) -> list[list[str]]:
    """Return a row for each data set and rival: final scores, and the seconds to the score of the other.

    Ours is the plain call, the last length; a rival has the best of its lengths.
    """
    rows = [["counts", "tool", "ours (s)", "its best (s, length)", "ours has its best after s", "times sooner",
             "it has ours after s"]]  # fmt: skip
    for name, tools in found.items():
        end = tools["bayesnmf"][-1]
        for tool, lengths in tools.items():
            if tool == "bayesnmf":
                continue
            top = best(lengths)
            after = passing(tools["bayesnmf"], top["score"])
            rows.append([
                TITLES[name], tool, f"{shown(end)})",
                f"{shown(top)}, {top['length']})", number(after, 2),
                number(top["seconds"] / after, 2), number(passing(lengths, end["score"]), 2),
            ])  # fmt: skip
    return rows


def draw(found: dict[str, dict[str, list[Row]]], path: Path) -> None:
    """Draw a panel for each data set; ours is solid, and a dot is its plain call."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.8), layout="constrained")
    *panels, key = figure.subplots(2, 3, sharex=True).flat
    for axes, (name, tools) in zip(panels, found.items(), strict=True):
        colours = iter(OTHERS)
        for tool, rows in tools.items():
            mine = tool == "bayesnmf"
            x, y = [row["seconds"] for row in rows], [row["score"] for row in rows]
            colour = OURS[0] if mine else next(colours)
            axes.plot(x, y, "-" if mine else "--", color=colour, linewidth=2 if mine else 1.4, label=tool)
            if mine:
                axes.plot(x[-1:], y[-1:], "o", color=colour, label="its plain call")
        tops = [best(rows)["score"] for rows in tools.values()]
        span = max(tops) - min(tops)
        axes.set_ylim(min(tops) - 0.8 * span, max(tops) + 0.15 * span)
        axes.set_title(TITLES[name], fontsize=8.5)
        axes.tick_params(labelsize=8, labelbottom=True)
    panels[0].set_xscale("log")
    panels[0].set_xticks(ticks := [0.1, 1, 10, 100], [f"{tick:g}" for tick in ticks])
    figure.supxlabel("seconds of fitting, two cores", fontsize=9)
    figure.supylabel("log-probability of held-out counts, nats a count", fontsize=9)
    key.axis("off")
    key.legend(*panels[0].get_legend_handles_labels(), loc="center", fontsize=9, frameon=False)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Print the table and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.out:
        gather(given.out)
    found = {name: tools for name, tools in read().items() if tools}
    print(markdown(table(found)))
    draw(found, ROOT / "docs" / "images" / "speed.png")


if __name__ == "__main__":
    main()
