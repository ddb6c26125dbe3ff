"""`bayesnmf fit`: fit a model to a file of counts."""

from __future__ import annotations

import warnings
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bayesnmf.cli.arguments import TOGETHER, WHICH, check_fit_arguments, check_markers_of_rank, noise_of, options_of

HELP = "fit a model: loadings, components, and their posterior"
DESCRIPTION = (
    "Fit a model to counts, write the fit, and, on request, tables of its loadings, components and marker features. "
    "Progress and warnings go to standard error."
)
EXAMPLES = f"""  bayesnmf fit counts.csv --rank 5
  bayesnmf fit filtered_feature_bc_matrix/ --rank 8 --markers markers.csv --anndata fitted.h5ad
  bayesnmf fit sbs96.tsv --rank 8 --restarts 5 --prior-components 'Dirichlet(0.1)' --components signatures.parquet
  bayesnmf fit sbs96.tsv --fixed-components COSMIC_v3.4_SBS.txt --loadings exposures.csv
  bayesnmf fit cells.h5ad --rank 12 --seeds markers.gmt --markers programs.csv
  bayesnmf fit counts.csv --rank 6 --formula '~ age + treatment' --covariates samples.csv --effects effects.csv
  bayesnmf fit sbs=sbs96.tsv id=id83.tsv --rank 6 --noise sbs=nb2 --weights id=2 --loadings exposures.csv
  bayesnmf fit counts.mtx.gz --transpose --method gibbs --set draws=2000 --json --quiet

{WHICH}

{TOGETHER}"""


def run(args: Namespace) -> int:
    """Fit, write and print."""
    check_fit_arguments(args)
    options, noise = options_of(args, args.method), noise_of(args)

    from bayesnmf.assessment.markers import markers
    from bayesnmf.cli.reading import how_to_run, read_around, read_counts_of, read_entries
    from bayesnmf.cli.writing import INTERRUPTED, about_fit, finish, leading, write_table
    from bayesnmf.fitting.fit import fit
    from bayesnmf.fitting.known import rank_and_known
    from bayesnmf.inference.status import INTERRUPTED as STOPPED
    from bayesnmf.results.thinning import components_table, loadings_table

    counts, _ = read_counts_of(args)
    rank, known = rank_and_known(args.rank, args.fixed_components)
    check_markers_of_rank(args, rank)
    found = fit(counts, args.model, args.rank if known is None else rank, args.method, options=options, noise=noise,
                weights=args.weights, fixed_components=known, drift=args.drift, missing=read_entries(args),
                **read_around(args), **how_to_run(args))  # fmt: skip
    writers: dict[str, Callable[[Path], Any]] = {
        "--out": found.save,
        "--loadings": lambda path: write_table(loadings_table(found), path),
        "--components": lambda path: write_table(components_table(found), path),
        "--markers": lambda path: write_table(markers(found, seed=found.seed), path, index=False),
        "--effects": lambda path: write_table(found.effects().reset_index(), path, index=False),
        "--anndata": lambda path: write_annotated(found, path, args),
    }
    code = finish(args, found, about_fit(found), writers, f"{found!r}\n\n{leading(found)}")
    return INTERRUPTED if found.status.reason == STOPPED else code


def write_annotated(found: Any, path: Path, args: Namespace) -> None:
    """Write the AnnData file that was read, or a new one, with the fit."""
    from bayesnmf.writing import replacing

    read = None
    if str(args.file).lower().endswith(".h5ad") and not args.transpose:
        from anndata import read_h5ad

        read = read_h5ad(args.file)
    with replacing(path) as temporary, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of pandas, when anndata asks for an option
        found.to_anndata(read).write_h5ad(temporary)
