"""Print results, write them to files, and return exit codes."""

from __future__ import annotations

import json
import shutil
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesnmf.writing import replacing

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

SUCCESS = 0
DOES_NOT_HOLD = 1
BAD_INPUT = 2
SIGNALLED = 128  # and the number of the signal, as in shells
INTERRUPTED = SIGNALLED + 2
CLOSED_PIPE = SIGNALLED + 13  # SIGPIPE, which is not defined on Windows


def console_of(width: int | None = None) -> Console:
    """Return a console that prints to standard output; a closed pipe raises BrokenPipeError."""
    from rich.console import Console

    class Raising(Console):
        def on_broken_pipe(self) -> None:  # rich would exit with code 1
            raise BrokenPipeError

    return Raising(width=width)


def attempt[Result](write: Callable[[], Result]) -> tuple[Result | None, BaseException | None]:
    """Return the result of a function that writes, or its error: a full disk must not lose the results."""
    try:
        return write(), None
    except (Exception, KeyboardInterrupt) as error:
        return None, error


def write_table(table: pd.DataFrame, path: Path, index: bool = True) -> None:
    """Write a table in the format of the file's suffix: .csv, .tsv, each also with .gz, or .parquet."""
    with replacing(path) as temporary:
        if path.suffix.lower() == ".parquet":
            _write_parquet(table, temporary, index)
            return
        separator = "\t" if ".tsv" in path.suffixes else ","
        packed: Any = "gzip" if path.suffix.lower() == ".gz" else None
        table.to_csv(temporary, sep=separator, index=index, compression=packed, float_format="%.8g")


def _write_parquet(table: pd.DataFrame, path: Path, index: bool) -> None:
    try:
        import pyarrow as _  # noqa: F401
    except ImportError as error:
        raise ImportError("writing .parquet files needs pyarrow: pip install 'bayesnmf[files]'") from error
    if table.index.dtype == object:  # names of several types, which Parquet does not know
        table = table.set_axis(table.index.map(str))
    table.to_parquet(path, index=index)


def tell(shown: str, about: Mapping[str, Any], written: Mapping[str, Path], as_json: bool) -> None:
    """Print a result as text and the files that were written, or both as one JSON object."""
    files = {name.removeprefix("--"): str(path) for name, path in written.items()}
    if as_json:
        print(json.dumps({**about, "written": files}, default=_plain, allow_nan=False))
        return
    print(shown)
    for path in files.values():
        print(f"wrote {path}")
    sys.stdout.flush()


def finish(
    args: Namespace,
    found: Any,
    about: Mapping[str, Any],
    writers: Mapping[str, Callable[[Path], Any]],
    shown: str | None = None,
) -> int:
    """Write the files that are asked for, by the writer of each argument, then print; return the exit code.

    Results are printed even if writing fails, and files written if printing fails.
    """

    def write() -> None:
        for name, path in args.outputs.items():
            writers[name](path)

    _, failure = attempt(write)
    tell(repr(found) if shown is None else shown, about, {} if failure else args.outputs, args.json)
    if failure is not None:
        raise failure
    return INTERRUPTED if getattr(found, "interrupted", False) else SUCCESS


def save_plot(name: str, found: Any, path: Path) -> None:
    """Write a figure of `bayesnmf.plots`."""
    from bayesnmf import plots
    from bayesnmf.plots.style import save_figure

    save_figure(getattr(plots, name)(found), path)


def about_counts(counts: Any) -> dict[str, Any]:
    """Return the size of counts, or of each of several by name."""
    if isinstance(counts, dict):
        return {name: about_counts(each) for name, each in counts.items()}
    n, m = counts.shape
    return {"rows": n, "features": m, "nonzeros": counts.nnz, "total": counts.total}


def about_fit(fit: Any) -> dict[str, Any]:
    """Return what describes a fit, in numbers and strings."""
    from bayesnmf.results.annotation import settings_of
    from bayesnmf.results.cautions import cautions_of, cautions_of_model

    cautions = [*cautions_of(fit), *cautions_of_model(fit)]
    return {**settings_of(fit), "counts": about_counts(fit.counts), "cautions": cautions}


def leading(fit: Any, n: int = 8) -> str:
    """Return the first features of each component as text, one component a line, cut to the width of a terminal."""
    table = fit.top_features(n)
    titles = [str(title) for title in table.columns]
    widest = max(map(len, titles))
    listed = [", ".join(map(str, table.iloc[:, place])) for place in range(len(titles))]
    lines = [f"{title:<{widest}}  {words}" for title, words in zip(titles, listed, strict=True)]
    if not sys.stdout.isatty():
        return "\n".join(lines)
    width = max(shutil.get_terminal_size().columns, 20)
    return "\n".join(line if len(line) <= width else f"{line[: width - 1]}…" for line in lines)


def records_of(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table for JSON, with null for what is unknown."""
    flat = table.reset_index()
    return json.loads(flat.to_json(orient="records"))


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)
