"""Tables of the rows of the arena, in Markdown and as a page that can be sorted."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, median, stdev
from typing import Any, NamedTuple

from scipy.stats import t

from benchmarks.arena.judging import CPU, FIRST, HELD_OUT, MEGABYTES, SECONDS

Row = dict[str, Any]
OURS = {"refit": "bayesnmf: assign"}
PLAIN = "bayesnmf: plain call"
COSTS = (SECONDS, CPU, MEGABYTES)
LEVEL = 0.9


class Gap(NamedTuple):
    """Mean difference of a figure to that of our plain call in the same splits and seeds, and half of its interval."""

    mean: float
    half: float


@dataclass(frozen=True)
class Line:
    """All rows of one way of a tool on one matrix.

    Attributes
    ----------
    name : str
        Tool and way.
    rows : list of dict
        Those with figures.
    gap : Gap or None
        By the figure that decides the task.
    missing : str
        Why there are no rows.
    """

    name: str
    rows: list[Row]
    gap: Gap | None
    missing: str

    def figure(self, name: str) -> float:
        """Return the mean of a figure, the median of a cost; NaN where no row has it."""
        found = [row["figures"][name] for row in self.rows if name in row["figures"]]
        if not found:
            return float("nan")
        return median(found) if name in COSTS else mean(found)


def decisive(task: str) -> str:
    """Return the figure that decides a task."""
    return FIRST.get(task, HELD_OUT)


def ours(task: str) -> str:
    """Return the name of our plain call."""
    return OURS.get(task, PLAIN)


def gap_between(rows: Sequence[Row], others: Sequence[Row], figure: str) -> Gap | None:
    """Return the gap of rows to others in the same splits and seeds; None without a common one."""
    there = {(row["split"], row["seed"]): row["figures"][figure] for row in others if figure in row["figures"]}
    pairs = [(row["figures"].get(figure), there.get((row["split"], row["seed"]))) for row in rows]
    differences = [one - two for one, two in pairs if one is not None and two is not None]
    if not differences:
        return None
    if len(differences) < 2:
        return Gap(differences[0], float("nan"))
    n = len(differences)
    return Gap(mean(differences), float(t.ppf((1 + LEVEL) / 2, n - 1)) * stdev(differences) / n**0.5)


def lines_of(rows: Iterable[Row], task: str) -> list[Line]:
    """Return the lines of one matrix, best first."""
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        by_name.setdefault(f"{row['tool']}: {row['way']}", []).append(row)
    figure = decisive(task)
    good = {name: [row for row in every if "figures" in row] for name, every in by_name.items()}
    plain = good.get(ours(task), [])
    found = [
        Line(
            name,
            good[name],
            gap_between(good[name], plain, figure),
            next((r["missing"] for r in every if "missing" in r), ""),
        )
        for name, every in by_name.items()
    ]
    return sorted(found, key=lambda line: (-line.figure(figure) if line.rows else float("inf"), line.name))


def tables_of(rows: Sequence[Row]) -> dict[tuple[str, str], list[Line]]:
    """Return the lines of every task and matrix."""
    names = sorted({(row["task"], row["matrix"]) for row in rows})
    return {key: lines_of([row for row in rows if (row["task"], row["matrix"]) == key], key[0]) for key in names}


def _shown(name: str, value: float) -> str:
    if value != value:
        return ""
    return f"{value:.4g}" if name in (*COSTS,) else f"{value:.4f}"


def cells_of(lines: list[Line], task: str) -> tuple[list[str], list[list[str]]]:
    """Return the head and the cells of the table of one matrix."""
    names = dict.fromkeys(name for line in lines for row in line.rows for name in row["figures"])
    figures = sorted(names, key=lambda name: (name in COSTS, name != decisive(task)))
    head = ["tool", *figures[:1], "beside our plain call", *figures[1:], "lines", "runs"]
    table = []
    for line in lines:
        if not line.rows:
            table.append([line.name, line.missing, *[""] * (len(head) - 2)])
            continue
        gap = "" if line.gap is None or line.name == ours(task) else f"{line.gap.mean:+.4f} ± {line.gap.half:.4f}"
        shown = [_shown(name, line.figure(name)) for name in figures]
        more = [str(line.rows[0]["lines"]), str(len(line.rows))]
        name = f"{line.name} ({line.rows[0]['version']})"
        table.append([name, *shown[:1], gap.replace(" ± nan", ""), *shown[1:], *more])
    return head, table


class Standing(NamedTuple):
    """Where our plain call stands in a task.

    Attributes
    ----------
    task : str
    matrices : int
    place : int
        Among the best way of each tool, by the mean over matrices.
    ahead : str
        The best other tool.
    gap : float
        Its mean gap over matrices; below 0 where it is behind.
    """

    task: str
    matrices: int
    place: int
    ahead: str
    gap: float


def standings(by_matrix: dict[tuple[str, str], list[Line]]) -> list[Standing]:
    """Return where our plain call stands in each task, among ways of others that ran on all of its matrices."""
    found = []
    for task in dict.fromkeys(task for task, _ in by_matrix):
        tables = [lines for (other, _), lines in by_matrix.items() if other == task]
        gaps: dict[str, list[float]] = {}
        for lines in tables:
            for line in lines:
                if line.gap is not None and not line.name.startswith("bayesnmf"):
                    gaps.setdefault(line.name, []).append(line.gap.mean)
        whole = {name: mean(each) for name, each in gaps.items() if len(each) == len(tables)}
        if whole:
            best = max(whole, key=lambda name: whole[name])
            tools = {name.split(":")[0] for name, gap in whole.items() if gap > 0}
            found.append(Standing(task, len(tables), 1 + len(tools), best, whole[best]))
    return found


def markdown(by_matrix: dict[tuple[str, str], list[Line]], about: str) -> str:
    """Return all tables in Markdown."""
    told = [
        "# The arena: all tables",
        "",
        about,
        "",
        "| task | matrices | place of our plain call | best other tool | its mean gap |",
        "|---|--:|--:|---|--:|",
    ]
    told += [f"| {s.task} | {s.matrices} | {s.place} | {s.ahead} | {s.gap:+.4f} |" for s in standings(by_matrix)]
    for (task, name), lines in by_matrix.items():
        head, table = cells_of(lines, task)
        told += ["", f"## {task}: {name}", "", f"| {' | '.join(head)} |", f"|---|{'--:|' * (len(head) - 1)}"]
        told += [f"| {' | '.join(cells)} |" for cells in table]
    return "\n".join(told) + "\n"


PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>The arena</title>
<style>
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem }
div { overflow-x: auto } table { border-collapse: collapse } th { cursor: pointer; text-align: left }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #8885 } td:not(:first-child) { text-align: right }
</style>
<h1>The arena</h1><p>ABOUT Click a heading to sort. To add a tool, write a file like those in
<code>benchmarks/arena/tools</code>: its README says how.</p>
TABLES
<script>
for (const head of document.querySelectorAll("th")) head.onclick = () => {
  const rows = head.closest("table").tBodies[0], at = head.cellIndex;
  const up = head.dataset.up = head.dataset.up === "1" ? "0" : "1";
  const key = row => {
    const text = row.cells[at].textContent, value = parseFloat(text);
    return isNaN(value) ? text : value;
  };
  [...rows.rows].sort((a, b) => (key(a) > key(b) ? 1 : -1) * (up === "1" ? 1 : -1)).forEach(row => rows.append(row));
};
</script></html>
"""


def page(by_matrix: dict[tuple[str, str], list[Line]], about: str) -> str:
    """Return all tables as a page."""
    parts = []
    for (task, name), lines in by_matrix.items():
        head, table = cells_of(lines, task)
        heads = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
        body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in cells)}</tr>" for cells in table)
        parts.append(f"<h2>{html.escape(task)}: {html.escape(name)}</h2>"
                     f"<div><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>")  # fmt: skip
    return PAGE.replace("ABOUT", html.escape(about)).replace("TABLES", "\n".join(parts))
