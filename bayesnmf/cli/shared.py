"""Options that several commands have."""

from __future__ import annotations

import argparse

from bayesnmf.cli.names import FORMATS, METHODS, MODELS

Group = argparse.ArgumentParser | argparse._ArgumentGroup


def add_counts(command: argparse.ArgumentParser, default: str = "", several: bool = False) -> None:
    """Add the file of counts, and how to read it; a command with a `default` needs no file, others may take several."""
    group = command.add_argument_group("counts")
    given = f" (default: {default})" if default else ""
    given += "; or NAME=FILE for each of several matrices of the same samples" if several else ""
    group.add_argument(
        "file",
        metavar="FILE",
        nargs="?" if default else "+" if several else None,
        help=f"counts, samples in rows: {FORMATS}{given}",
    )
    add_reading(group)


def add_reading(group: Group) -> None:
    """Add how to read a file of counts."""
    group.add_argument("--transpose", action="store_true", help="FILE has features in its rows")
    group.add_argument("--layer", metavar="NAME", help="layer of an .h5ad file (default: counts, or X)")
    group.add_argument("--feature-labels", metavar="COLUMN",
                       help="column of an .h5ad file's var with the names of the features, such as symbol")  # fmt: skip
    group.add_argument("--layout", choices=("long", "wide"),
                       help="how to read a table whose names do not show it")  # fmt: skip


def add_exposures(command: argparse.ArgumentParser) -> None:
    """Add the files of exposures."""
    group = command.add_argument_group("exposures")
    for side in ("row", "feature"):
        group.add_argument(f"--{side}-exposure", metavar="FILE",
                           help=f"table with the name and the exposure of each {side}: .csv, .tsv")  # fmt: skip


def add_model(
    command: argparse.ArgumentParser,
    rank: str | None = "10",
    methods: tuple[str, ...] = METHODS,
    seed: str | None = "0",
) -> Group:
    """Add model, rank, method and seed; return their group."""
    group = command.add_argument_group("model")
    group.add_argument("--model", default="gamma_poisson", help=f"one of {', '.join(MODELS)} (default: %(default)s)")
    default = "10, or that of --fixed-components" if rank is None else rank
    group.add_argument("--rank", default=rank, metavar="K", help=f"number of components (default: {default})")
    group.add_argument("--method", default="vi", help=f"one of {', '.join(methods)} (default: %(default)s)")
    add_seed(group, seed)
    return group


def add_noise(group: Group) -> None:
    """Add the noise and its dispersion."""
    group.add_argument("--noise", default="poisson", metavar="WORD",
                       help="of the counts around their means: poisson; nb1 or nb2, negative binomial with "
                       "linear or quadratic variance; or quasi, for wide intervals (default: %(default)s)")  # fmt: skip
    group.add_argument("--dispersion", metavar="NUMBER or WORD",
                       help="of nb1 and nb2: a number, or row or feature for one of each (learned)")  # fmt: skip


def add_seeds(group: Group) -> None:
    """Add the file of features that are named beforehand."""
    group.add_argument("--seeds", metavar="FILE",
                       help="sets of features that the first components are to have: a .gmt file, with name, "
                       "description and features in each line")  # fmt: skip


def add_covariates(group: Group) -> None:
    """Add the formula and the file of covariates."""
    group.add_argument("--formula", metavar="TEXT",
                       help="what loadings depend on, as '~ age + treatment': columns of --covariates, or of an .h5ad "
                       "file's obs")  # fmt: skip
    group.add_argument("--covariates", metavar="FILE",
                       help="table with the name of each row and its covariates: .csv, .tsv")  # fmt: skip


def add_batch(group: Group) -> None:
    """Add the batches of samples."""
    group.add_argument("--batch", metavar="FILE or COLUMN",
                       help="batch of each sample: a table with name and label, or a column of an .h5ad file's obs; "
                       "features get a factor in each batch")  # fmt: skip


def add_around(group: Group) -> None:
    """Add what stands around the counts: seeds, covariates and batches."""
    add_seeds(group)
    add_covariates(group)
    add_batch(group)


def add_seed(group: Group, default: str | None = "0") -> None:
    """Add the seed, by default that of the function of the command; None draws a new one."""
    told = "a new one, which is printed" if default is None else default
    group.add_argument("--seed", default=default, metavar="N", help=f"seed of all random numbers (default: {told})")


def add_options(group: Group) -> None:
    """Add priors and options of the method."""
    group.add_argument("--prior-loadings", metavar="PRIOR",
                       help="such as 'Gamma(0.3, 1.0)' (shape, rate) or 'Dirichlet(0.1)'")  # fmt: skip
    group.add_argument("--prior-components", metavar="PRIOR",
                       help="such as 'Dirichlet(0.1)', or parameter for none")  # fmt: skip
    group.add_argument("--restarts", metavar="N", help="number of starts, of which the best fit is kept (map, vi, bld)")
    group.add_argument(
        "--start", metavar="START", help="svd, descent, random, random_descent, or the file of a fit to continue"
    )
    group.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", dest="settings",
                       help="any other option of the method, as in Python: max_iter=500, dtype=float32, draws=2000; "
                       "may be repeated")  # fmt: skip


def add_checkpoint(group: argparse._ArgumentGroup) -> None:
    """Add the folder that keeps long work."""
    group.add_argument("--checkpoint", metavar="DIR", help="keep the work here: after a crash, the same call goes on")


def add_printing(command: argparse.ArgumentParser) -> Group:
    """Add what is printed; return its group."""
    group = command.add_argument_group("printing")
    group.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    group.add_argument("--quiet", action="store_true", help="no progress bar on standard error")
    return group
