"""`bayesnmf compare`: one model by several methods, on one page."""

from __future__ import annotations

import argparse
from typing import Any

from bayesnmf.cli.checks import check_list, check_outputs, check_suffix, check_whole
from bayesnmf.cli.codes import INTERRUPTED, SUCCESS
from bayesnmf.cli.names import METHODS, MODELS, WHICH
from bayesnmf.cli.shared import add_checkpoint, add_counts, add_printing, add_seed, add_seeds

HELP = "fit one model by several methods and compare them"
DESCRIPTION = (
    "Fit one model to the same counts by several methods, align the components, score held-out counts, and write a "
    "table, an ArviZ file and figures."
)
EXAMPLES = f"""  bayesnmf compare
  bayesnmf compare counts.csv --rank 5 --methods map,vi,gibbs --out results/ --html results.html

{WHICH}"""


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_counts(command, "334 of scikit-learn's digits")
    group = command.add_argument_group("comparison")
    group.add_argument("--model", default="gamma_poisson", help=f"one of {', '.join(MODELS)} (default: %(default)s)")
    group.add_argument("--rank", default="8", metavar="K", help="number of components (default: %(default)s)")
    group.add_argument("--methods", default="map,vi,gibbs,nuts", metavar="LIST",
                       help=f"comma-separated, of {', '.join(METHODS)} (default: %(default)s)")  # fmt: skip
    add_seeds(group)
    add_seed(group)
    group = command.add_argument_group("output")
    add_checkpoint(group)
    group.add_argument("--out", default="results", metavar="DIR", help="folder to write to (default: %(default)s)")
    group.add_argument("--html", metavar="PATH", help="also write one page for a browser")
    group.add_argument("--draws", default="thinned", help="thinned or all: which draws of gibbs and nuts to write "
    "(default: %(default)s, at most 2.5 MB a method)")  # fmt: skip
    add_printing(command).add_argument("--verbose", action="store_true",
                                       help="print all measures, and how they were made")  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Read counts, compare methods, and print and write the results."""
    from bayesnmf.checks import check_choice
    from bayesnmf.cli.reading import read_counts_of
    from bayesnmf.needs import needed_for
    from bayesnmf.places import check_folder, check_plots_can_be_drawn

    check_choice(options.model, "--model", MODELS)
    methods = check_list(options.methods, "--methods", METHODS)
    rank, seed = check_whole(options.rank, "--rank"), check_whole(options.seed, "--seed", 0)
    draws: Any = check_choice(options.draws, "--draws", ("thinned", "all"))
    page = check_outputs({"--html": options.html}, (), (options.file, options.seeds))
    if page:
        check_suffix(page["--html"], "--html", (".html", ".htm"))
    counts, image_shape = read_counts_of(options)

    from bayesnmf.cli.writing import about_counts, attempt, records_of, tell
    from bayesnmf.studies.comparison.report import TREE, file_names, write
    from bayesnmf.studies.comparison.running import Settings, compare

    out = check_folder(options.out, "--out", file_names())
    check_plots_can_be_drawn()
    with needed_for(TREE):
        import xarray  # noqa: F401  now, not after all fits

    settings, progress = Settings(draws=draws), not options.quiet
    result = compare(counts, options.model, rank, methods, seeds=options.seeds, seed=seed, settings=settings, out=out,
                     checkpoint=options.checkpoint, progress=progress)  # fmt: skip

    def write_all() -> list[Any]:
        written = write(result, out, image_shape)
        if page:
            from bayesnmf.pages.report import report

            report(result, page["--html"], image_shape=image_shape)
        return [*written, *page.values()]

    # Written before printing, which a closed pipe may end; if writing fails, all results are printed.
    written, failure = attempt(write_all)
    about = {"counts": about_counts(counts), "methods": records_of(result.table), "cautions": result.cautions}
    shown = result.details() if options.verbose or failure is not None else repr(result)
    tell(shown, about, {path.name: path for path in written or []}, options.json)
    if failure is not None:
        raise failure
    return INTERRUPTED if result.interrupted else SUCCESS
