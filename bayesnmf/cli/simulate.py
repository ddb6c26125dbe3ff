"""`bayesnmf simulate`: counts with a known truth."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bayesnmf.cli.checks import (
    NOISES,
    TABLE_SUFFIXES,
    check_noise_of_simulation,
    check_outputs,
    check_suffix,
    check_whole,
    parse_prior,
)
from bayesnmf.cli.codes import SUCCESS
from bayesnmf.cli.names import MODELS, TABLES
from bayesnmf.cli.shared import add_printing, add_seed

HELP = "draw counts, and the loadings and components that they were drawn from"
DESCRIPTION = "Draw parameters of a model from their priors, and counts given the parameters: a known truth."
EXAMPLES = """  bayesnmf simulate --rows 200 --features 50 --rank 4 --out counts.csv --components truth.csv
  bayesnmf simulate --model dirichlet_poisson --totals 500 --prior-components 'Dirichlet(0.1)' --out counts.npz"""


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    group = command.add_argument_group("model")
    group.add_argument("--model", default="gamma_poisson", help=f"one of {', '.join(MODELS)} (default: %(default)s)")
    group.add_argument("--rows", default="100", metavar="N", help="number of samples (default: %(default)s)")
    group.add_argument("--features", default="50", metavar="M", help="number of features (default: %(default)s)")
    group.add_argument("--rank", default="5", metavar="K", help="number of components (default: %(default)s)")
    group.add_argument("--totals", metavar="N", help="counts of a row, on average (default: 200)")
    for side in ("loadings", "components"):
        group.add_argument(f"--prior-{side}", metavar="PRIOR", help="as for bayesnmf fit")
    group.add_argument("--noise", default="poisson", metavar="WORD",
                       help=f"one of {', '.join(NOISES)} (default: %(default)s)")  # fmt: skip
    group.add_argument("--dispersion", metavar="NUMBER",
                       help="of nb1, variance over mean, less 1; of nb2, variance less mean, over mean²")  # fmt: skip
    add_seed(group)
    group = command.add_argument_group("output")
    group.add_argument("--out", default="counts.npz", metavar="PATH",
                       help=f"the counts: .npz (and names in .json), {TABLES} (default: %(default)s)")  # fmt: skip
    group.add_argument("--loadings", metavar="PATH", help=f"table of the loadings: {TABLES}")
    group.add_argument("--components", metavar="PATH", help=f"table of the components: {TABLES}")
    add_printing(command)


def run(options: argparse.Namespace) -> int:
    """Simulate, write and print."""
    from bayesnmf.checks import check_choice

    check_choice(options.model, "--model", MODELS)
    size = check_whole(options.rows, "--rows"), check_whole(options.features, "--features")
    rank, seed = check_whole(options.rank, "--rank"), check_whole(options.seed, "--seed", 0)
    totals = None if options.totals is None else check_whole(options.totals, "--totals")
    named = {f"--{name}": getattr(options, name) for name in ("out", "loadings", "components")}
    outputs = check_outputs(named, ("--loadings", "--components"), ())
    check_suffix(outputs["--out"], "--out", (".npz", *TABLE_SUFFIXES))
    noise = check_noise_of_simulation(options.noise, options.dispersion)
    sides = {side: parse_prior(getattr(options, f"prior_{side}"), f"--prior-{side}")
             for side in ("loadings", "components")}  # fmt: skip

    from bayesnmf.cli.writing import about_counts, finish
    from bayesnmf.data.simulation import simulate
    from bayesnmf.priors import Priors

    priors = Priors(**{side: prior for side, prior in sides.items() if prior is not None})
    drawn = simulate(options.model, size, rank, priors=priors, noise=noise, totals=totals, seed=seed)
    about = {"model": drawn.model, "rank": rank, "seed": seed, "counts": about_counts(drawn.counts)}
    finish(lambda: write(drawn, outputs), repr(drawn), about, outputs, options.json)
    return SUCCESS


def write(drawn: Any, outputs: dict[str, Path]) -> None:
    """Write the counts and the truth."""
    import numpy as np
    import pandas as pd

    from bayesnmf.cli.writing import write_table

    n, m = drawn.counts.shape
    rows = pd.Index([f"row {i}" for i in range(n)], name="row")
    features = [f"feature {j}" for j in range(m)]
    kinds = [f"component {k}" for k in range(drawn.rank)]
    loadings = drawn.loadings if drawn.scale is None else drawn.loadings * drawn.scale[:, None]
    tables = {
        "--loadings": pd.DataFrame(loadings, rows, kinds),
        "--components": pd.DataFrame(drawn.components.T, pd.Index(features, name="feature"), kinds),
    }
    if outputs["--out"].suffix == ".npz":
        _write_npz(drawn.counts, outputs["--out"], {"rows": [*rows], "cols": features})
    else:
        whole = drawn.counts.matrix.toarray().astype(np.int64)
        write_table(pd.DataFrame(whole, rows, features), outputs["--out"])
    for name in {*tables} & {*outputs}:
        write_table(tables[name], outputs[name])


def _write_npz(counts: Any, path: Path, names: dict[str, list[str]]) -> None:
    import json

    from scipy.sparse import save_npz

    from bayesnmf.writing import replacing, write_text

    with replacing(path) as temporary:
        save_npz(temporary, counts.matrix)
    write_text(path.with_suffix(".json"), json.dumps(names))
