"""`bayesnmf assign`: which of many known components each sample has."""

from __future__ import annotations

import argparse
from typing import Any

from bayesnmf.cli.checks import (
    NOISES,
    check_chance,
    check_drift,
    check_noise_of_fit,
    check_outputs,
    check_suffix,
    check_whole,
)
from bayesnmf.cli.codes import INTERRUPTED, SUCCESS
from bayesnmf.cli.names import TABLES
from bayesnmf.cli.shared import add_checkpoint, add_counts, add_printing, add_seed

HELP = "which of many known components each sample has, and how much of each"
DESCRIPTION = (
    "Sample which components of a catalogue, such as that of COSMIC, are present in each sample, and write a line for "
    "each sample and component with the chance that it is present, its exposure in counts, and an interval."
)
EXAMPLES = """  bayesnmf assign tumours.SBS96.all COSMIC_v3.4_SBS_GRCh38.txt --noise nb2 --drift learned
  bayesnmf assign counts.csv fit.nc --least 0.5 --out present.tsv --plot present.png
  bayesnmf assign counts.csv fit.nc --checkpoint run --save found.nc
  bayesnmf assign counts.csv known.csv --draws 400 --warmup 200 --json --quiet"""


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_counts(command)
    command.add_argument("catalogue", metavar="CATALOGUE",
                         help="known components: a fit, a table with one in each row, or one in each column if the "
                         "rows are mutation types")  # fmt: skip
    group = command.add_argument_group("model")
    group.add_argument("--extra", default="0", metavar="N",
                       help="components to look for that CATALOGUE lacks (default: %(default)s)")  # fmt: skip
    group.add_argument("--drift", metavar="NUMBER",
                       help="let known components move towards what all samples show, with a prior that weighs as many "
                       "counts: a number, or learned (they stay)")  # fmt: skip
    group.add_argument("--noise", default="poisson", metavar="WORD",
                       help="of the counts around their means: poisson; nb1 or nb2, negative binomial with linear or "
                       "quadratic variance (default: %(default)s)")  # fmt: skip
    group.add_argument("--dispersion", metavar="NUMBER", help="of nb1 and nb2, or feature for one of each (learned)")
    group.add_argument("--missing", metavar="WORD or FILE",
                       help="missing entries: nan for empty ones and NA, zeros for all without a count, or a table of "
                       "1 at them and 0 elsewhere, "
                       "with the names of FILE")  # fmt: skip
    group = command.add_argument_group("sampling")
    for name, default, what in (("chains", "2", "chains, which are compared"), ("draws", "100", "kept rounds of each"),
                                ("warmup", None, "rounds of each before")):  # fmt: skip
        told = default or "60, or 120 with --drift"
        group.add_argument(f"--{name}", default=default, metavar="N", help=f"{what} (default: {told})")
    group.add_argument("--interval", default="0.9", metavar="P", help="probability of the intervals (default: 0.9)")
    add_seed(group)
    group = command.add_argument_group("output")
    add_checkpoint(group)
    group.add_argument("--out", default="assignment.csv", metavar="PATH",
                       help=f"the table: {TABLES} (default: %(default)s)")  # fmt: skip
    group.add_argument("--least", default="0.05", metavar="P",
                       help="smallest chance of presence that the table lists (default: %(default)s)")  # fmt: skip
    group.add_argument("--save", metavar="PATH", help="all of the result, for bayesnmf.load: .nc or .zarr")
    group.add_argument("--plot", metavar="PATH", help="figure of the chances and exposures: .png, .pdf or .svg")
    add_printing(command)


def run(options: argparse.Namespace) -> int:
    """Read, sample, write and print."""
    rounds: dict[str, Any] = {name: getattr(options, name) for name in ("chains", "draws", "warmup")}
    rounds = {name: given if given is None else check_whole(given, f"--{name}") for name, given in rounds.items()}
    rounds["extra"] = check_whole(options.extra, "--extra", 0)
    rounds["drift"] = check_drift(options.drift)
    seed, interval = check_whole(options.seed, "--seed", 0), check_chance(options.interval, "--interval")
    least = check_chance(options.least, "--least")
    noise = check_noise_of_fit(options.noise, options.dispersion, ("feature",), NOISES)
    read = (options.file, options.catalogue, options.missing)
    named = {"--out": options.out, "--save": options.save, "--plot": options.plot}
    outputs = check_outputs(named, ("--out",), read)
    if "--save" in outputs:
        check_suffix(outputs["--save"], "--save", (".nc", ".zarr"))

    from bayesnmf.assessment.assignment import assign
    from bayesnmf.cli.reading import read_counts_of, read_entries
    from bayesnmf.cli.writing import about_counts, finish, records_of, write_table

    counts, _ = read_counts_of(options)
    missing = read_entries(options.missing, options.transpose)
    found = assign(counts, options.catalogue, noise=noise, missing=missing, interval=interval, seed=seed,
                   checkpoint=options.checkpoint, progress=not options.quiet, **rounds)  # fmt: skip
    table = found.table(least)
    about = {"counts": about_counts(counts), "components": len(found.components), "noise": found.noise,
             "dispersion": found.dispersion.mean(), "table": records_of(table), "cautions": found.cautions}  # fmt: skip

    def write() -> None:
        write_table(table, outputs["--out"], index=False)
        if "--save" in outputs:
            found.save(outputs["--save"])
        if "--plot" in outputs:
            from bayesnmf.plots import presence
            from bayesnmf.plots.style import save_figure

            save_figure(presence(found), outputs["--plot"])

    finish(write, repr(found), about, outputs, options.json)
    return INTERRUPTED if found.interrupted else SUCCESS
