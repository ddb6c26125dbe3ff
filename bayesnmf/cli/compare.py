"""`bayesnmf compare`: one model by several methods, on one page."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

from bayesnmf.cli.arguments import WHICH

HELP = "fit one model by several methods and compare them"
DESCRIPTION = (
    "Fit one model to the same counts by several methods, align the components, score held-out counts, and write a "
    "page, tables, an ArviZ file and figures."
)
EXAMPLES = f"""  bayesnmf compare
  bayesnmf compare counts.csv --rank 5 --methods map,vi,gibbs --out results/ --html results.html

{WHICH}"""


def run(args: Namespace) -> int:
    """Read counts, compare methods, and print and write the results."""
    from bayesnmf.cli.reading import how_to_run, read_counts_of
    from bayesnmf.cli.writing import INTERRUPTED, SUCCESS, about_counts, attempt, records_of, tell
    from bayesnmf.needs import needed_for
    from bayesnmf.places import check_folder, check_plots_can_be_drawn

    counts, image_shape = read_counts_of(args)

    from bayesnmf.pages.report import report_of_files
    from bayesnmf.studies.comparison.comparing import PAGE, TREE, Settings, compare, file_names, write

    out = check_folder(args.out, "--out", file_names())
    check_plots_can_be_drawn()
    page = Path(args.html or out / PAGE)
    with needed_for(f"{TREE} and {PAGE}"):  # now, not after all fits
        import jinja2  # noqa: F401
        import xarray  # noqa: F401

    result = compare(counts, args.model, args.rank, args.methods, seeds=args.seeds, out=out,
                     settings=Settings(draws=args.draws), **how_to_run(args))  # fmt: skip

    def write_all() -> list[Any]:
        written = write(result, out, image_shape)
        return [*written, report_of_files(result, page, written)]

    # Written before printing, which a closed pipe may end; if writing fails, all results are printed.
    written, failure = attempt(write_all)
    about = {"counts": about_counts(counts), "methods": records_of(result.table), "cautions": result.cautions}
    shown = result.details() if args.verbose or failure is not None else repr(result)
    files = {path.name: path for path in written or []}
    if args.verbose or args.json or failure is not None:
        tell(shown, about, files, args.json)
    else:
        print(f"{shown}\nopen {page}")
        print("on your own counts: bayesnmf compare FILE", flush=True)
    if failure is not None:
        raise failure
    return INTERRUPTED if result.interrupted else SUCCESS
