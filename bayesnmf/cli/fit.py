"""`bayesnmf fit`: fit a model to a file of counts."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

from bayesnmf.cli.checks import (
    check_effects_asked,
    check_has_option,
    check_markers_of_rank,
    check_one_file,
    check_outputs,
    check_suffix,
    check_whole,
    files_of,
    parse_noise,
    parse_prior,
    parse_settings,
    parse_weights,
    paths_of,
)
from bayesnmf.cli.codes import INTERRUPTED, SUCCESS
from bayesnmf.cli.names import METHODS, TABLES, WHICH
from bayesnmf.cli.shared import (
    add_batch,
    add_checkpoint,
    add_counts,
    add_covariates,
    add_exposures,
    add_model,
    add_noise,
    add_options,
    add_printing,
    add_seeds,
)

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

{WHICH}"""
PATHS = ("loadings", "components", "markers", "effects")
TABLE_OPTIONS = tuple(f"--{name}" for name in PATHS)


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_counts(command, several=True)
    group = add_model(command, rank=None, seed=None)
    add_options(group)
    group.add_argument("--fixed-components", metavar="FILE",
                       help="known components, the first of all K: a fit, a table with one in each row, or one in each "
                       "column if the rows are mutation types")  # fmt: skip
    add_seeds(group)
    add_covariates(group)
    add_noise(group)
    group.add_argument("--missing", metavar="WORD or FILE",
                       help="missing entries: nan for empty ones and NA, zeros for all without a count, or a table of "
                       "1 at them and 0 elsewhere, "
                       "with the names of FILE")  # fmt: skip
    group.add_argument("--weights", metavar="NAME=NUMBER,...",
                       help="how often the counts of matrices count, others once")  # fmt: skip
    add_batch(group)
    add_exposures(command)
    group = command.add_argument_group("output")
    add_checkpoint(group)
    group.add_argument("--out", default="fit.nc", metavar="PATH",
                       help="the fit: .nc, or .zarr for large ones (default: %(default)s)")  # fmt: skip
    group.add_argument("--loadings", metavar="PATH", help=f"table of the loadings: {TABLES}")
    group.add_argument("--components", metavar="PATH", help=f"table of the components: {TABLES}")
    group.add_argument("--markers", metavar="PATH", help=f"table of what sets each component apart: {TABLES}")
    group.add_argument("--effects", metavar="PATH", help=f"table of the effects of covariates: {TABLES}")
    group.add_argument("--anndata", metavar="PATH", help="the .h5ad FILE, or the counts, with the fit in it: .h5ad")
    add_printing(command)


def run(options: argparse.Namespace) -> int:
    """Fit, write and print."""
    from bayesnmf.checks import check_choice

    method = check_choice(options.method, "--method", METHODS)
    seed = None if options.seed is None else check_whole(options.seed, "--seed", 0)
    asked = None if options.rank is None else check_whole(options.rank, "--rank")
    named = {f"--{name}": getattr(options, name) for name in ("out", *PATHS, "anndata")}
    read = ("fixed_components", "seeds", "covariates", "start", "missing", "batch", "row_exposure", "feature_exposure")
    options.file = files_of(options.file)
    given = (*paths_of(options.file), *(getattr(options, name) for name in read))
    check_one_file(options.file, "--anndata", options.anndata)
    check_one_file(
        options.file, "--missing with a table", None if options.missing in ("nan", "zeros") else options.missing
    )
    outputs = check_outputs(named, TABLE_OPTIONS, given)
    check_suffix(outputs["--out"], "--out", (".nc", ".zarr"))
    if "--anndata" in outputs:
        check_suffix(outputs["--anndata"], "--anndata", (".h5ad",))
    check_markers_of_rank(outputs, asked)
    check_effects_asked("--effects" in outputs, options)
    settings, noise = settings_of_method(options, method), parse_noise(options.noise, options.dispersion)
    weights = parse_weights(options.weights)

    from bayesnmf.cli.reading import read_around, read_counts_of, read_entries
    from bayesnmf.fitting.fit import fit
    from bayesnmf.fitting.known import rank_and_known
    from bayesnmf.inference.status import INTERRUPTED as STOPPED

    counts, _ = read_counts_of(options)
    rank, known = rank_and_known(asked, options.fixed_components)
    check_markers_of_rank(outputs, rank)
    found = fit(counts, options.model, asked if known is None else rank, method, seed=seed, options=settings,
                noise=noise, weights=weights, fixed_components=known,
                missing=read_entries(options.missing, options.transpose), progress=not options.quiet,
                checkpoint=options.checkpoint, **read_around(options))  # fmt: skip
    from bayesnmf.cli.writing import about_fit, finish, leading

    shown = f"{found!r}\n\n{leading(found)}"
    finish(lambda: write(found, outputs, options), shown, about_fit(found), outputs, options.json)
    return INTERRUPTED if found.status.reason == STOPPED else SUCCESS


def settings_of_method(options: argparse.Namespace, method: str) -> Any:
    """Return the options of the method from priors, restarts, start and other settings."""
    from bayesnmf.options import METHODS as RECORDS
    from bayesnmf.priors import Priors

    kind = RECORDS[method].options
    given = parse_settings(options.settings, kind)
    sides = {side: parse_prior(getattr(options, f"prior_{side}"), f"--prior-{side}")
             for side in ("loadings", "components")}  # fmt: skip
    given["priors"] = Priors(**{side: prior for side, prior in sides.items() if prior is not None})
    for name in ("restarts", "start"):
        check_has_option(name, kind, getattr(options, name))
    if options.restarts is not None:
        given["restarts"] = check_whole(options.restarts, "--restarts")
    if options.start is not None:
        given["start"] = _start(options.start)
    return kind(**given)


def _start(text: str) -> Any:
    """Return the word of a start, or the fit in a file."""
    if Path(text).suffix.lower() not in (".nc", ".zarr"):
        return text
    from bayesnmf.fitting.loading import load_fit

    return load_fit(text)


def write(found: Any, outputs: dict[str, Path], options: argparse.Namespace) -> None:
    """Write the fit first, then the tables."""
    from bayesnmf.cli.writing import write_table
    from bayesnmf.results.thinning import components_table, loadings_table

    found.save(outputs["--out"])
    if "--loadings" in outputs:
        write_table(loadings_table(found), outputs["--loadings"])
    if "--components" in outputs:
        write_table(components_table(found), outputs["--components"])
    if "--markers" in outputs:
        from bayesnmf.assessment.markers import markers

        write_table(markers(found, seed=found.seed), outputs["--markers"], index=False)
    if "--effects" in outputs:
        write_table(found.effects().reset_index(), outputs["--effects"], index=False)
    if "--anndata" in outputs:
        _write_annotated(found, outputs["--anndata"], options)


def _write_annotated(found: Any, path: Path, options: argparse.Namespace) -> None:
    """Write the AnnData file that was read, or a new one, with the fit."""
    from bayesnmf.writing import replacing

    given = None
    if str(options.file).lower().endswith(".h5ad") and not options.transpose:
        from anndata import read_h5ad

        given = read_h5ad(options.file)
    with replacing(path) as temporary, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of pandas, when anndata asks for an option
        found.to_anndata(given).write_h5ad(temporary)
