"""`bayesnmf assign`: which of many known components each sample has."""

from __future__ import annotations

from argparse import Namespace

from bayesnmf.cli.arguments import noise_of

HELP = "which of many known components each sample has, and how much of each"
DESCRIPTION = (
    "Sample which components of a catalogue, such as that of COSMIC, are present in each sample, and write a line for "
    "each sample and component with the chance that it is present, its exposure in counts, and an interval."
)
EXAMPLES = """  bayesnmf assign tumours.SBS96.all COSMIC_v3.4_SBS_GRCh38.txt --noise nb2 --without-artefacts
  bayesnmf assign counts.csv fit.nc --least 0.5 --out present.tsv --plot present.png
  bayesnmf assign counts.csv fit.nc --checkpoint run --save found.nc
  bayesnmf assign counts.csv known.csv --draws 400 --warmup 200 --json --quiet"""


def run(args: Namespace) -> int:
    """Read, sample, write and print."""
    noise = noise_of(args)

    from bayesnmf.assessment.assignment import assign
    from bayesnmf.cli.reading import how_to_run, read_counts_of, read_entries
    from bayesnmf.cli.writing import about_counts, finish, records_of, save_plot, write_table
    from bayesnmf.fitting.known import read_catalogue

    counts, _ = read_counts_of(args)
    settings = {name: getattr(args, name) for name in ("extra", "drift", "chains", "draws", "warmup", "interval")}
    known = read_catalogue(args.catalogue, only=args.only, artefacts=not args.without_artefacts)
    found = assign(counts, known, noise=noise, missing=read_entries(args), **settings, **how_to_run(args))
    table = found.table(args.least)
    about = {"counts": about_counts(counts), "components": len(found.components), "noise": found.noise,
             "dispersion": found.dispersion.mean(), "table": records_of(table), "cautions": found.cautions}  # fmt: skip
    return finish(args, found, about, {
        "--out": lambda path: write_table(table, path, index=False),
        "--save": found.save,
        "--plot": lambda path: save_plot("presence", found, path),
    })  # fmt: skip
