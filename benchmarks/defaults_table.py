"""Format the results of `benchmarks.defaults` as Markdown tables."""

from __future__ import annotations

from typing import Any

HEADINGS = {
    "map": "MAP, gamma_poisson, K = 10 (log-likelihood at the best scales)",
    "vi": "VI, gamma_poisson, K = 10 (elbo_augmented)",
    "lda": "LDA, K = 20, α = η = 1/20 (elbo_augmented)",
}
COLUMNS = (
    "data", "best known", "plain call, seeds 0, 1", "gap, % of the gain", "s", "iterations",
    "defaults before: gap, %", "s", "scikit-learn: s", "gap, %", "plain call is there after s",
)  # fmt: skip


def as_table(results: dict[str, Any]) -> str:
    """Return a table for each task; in "gap", 100 % is the gain of the best known value over one component."""
    parts = []
    for task, heading in HEADINGS.items():
        cells = {name.partition(" ")[2]: cell for name, cell in results.items() if name.startswith(f"{task} ")}
        rows = [row(name, cell) for name, cell in cells.items() if "best" in cell]
        if rows:
            lines = [COLUMNS, ("---",) + ("--:",) * (len(COLUMNS) - 1), *rows]
            parts.append(f"### {heading}\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines))
    return "\n\n".join(parts) + "\n"


def row(name: str, cell: dict[str, Any]) -> tuple[str, ...]:
    """Return the entries of one data set."""
    best, one = cell["best"]["value"], cell["one component"]
    n, m, nonzeros = cell["size"]
    runs = {kind: [cell[key] for key in cell if key.startswith(kind)] for kind in ("plain", "before")}

    def listed(kind: str, entry: Any) -> str:
        return ", ".join(entry(run) for run in runs[kind])

    def gap(run: dict[str, Any]) -> str:
        return f"{100 * (best - run['value']) / (best - one):.2f}"

    other = cell.get("scikit-learn")
    rival = ("", "", "")
    if other:
        value = other["value"]
        after = [passed(run["seen"], other["objective"]) for run in runs["plain"]]
        times = ", ".join("–" if s is None else f"{s:.2f} ({other['seconds'] / s:.0f}×)" for s in after)
        rival = (f"{other['seconds']:.1f}", f"{100 * (best - value) / (best - one):.2f}", times)
    return (
        f"{name}, {n:,} × {m:,}, {nonzeros:,} nonzeros",
        f"{best:,.0f} ({cell['best']['by']})",
        listed("plain", lambda run: f"{run['value']:,.0f}"),
        listed("plain", gap),
        listed("plain", lambda run: f"{run['seconds']:.1f}"),
        listed("plain", lambda run: f"{run['iterations']}"),
        listed("before", gap),
        listed("before", lambda run: f"{run['seconds']:.1f}"),
        *rival,
    )


def passed(seen: list[list[float]], value: float) -> float | None:
    """Return the seconds until an objective was reached, or None."""
    return next((seconds for seconds, reached in seen if reached >= value), None)
