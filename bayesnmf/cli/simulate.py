"""`bayesnmf simulate`: counts with a known truth."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

from bayesnmf.cli.arguments import noise_to_draw, priors_of

HELP = "draw counts, and the loadings and components that they were drawn from"
DESCRIPTION = "Draw parameters of a model from their priors, and counts given the parameters: a known truth."
EXAMPLES = """  bayesnmf simulate --rows 200 --features 50 --rank 4 --out counts.csv --components truth.csv
  bayesnmf simulate --model dirichlet_poisson --totals 500 --prior-components 'Dirichlet(0.1)' --out counts.npz"""


def run(args: Namespace) -> int:
    """Simulate, write and print."""
    noise, priors = noise_to_draw(args), priors_of(args)

    import pandas as pd

    from bayesnmf.cli.writing import about_counts, finish, write_table
    from bayesnmf.data.simulation import simulate

    size = args.rows, args.features
    drawn = simulate(args.model, size, args.rank, priors=priors, noise=noise, totals=args.totals, seed=args.seed)
    rows = pd.Index([f"row {i}" for i in range(args.rows)], name="row")
    features = pd.Index([f"feature {j}" for j in range(args.features)], name="feature")
    titles = [f"component {k}" for k in range(drawn.rank)]
    loadings = drawn.loadings if drawn.scale is None else drawn.loadings * drawn.scale[:, None]

    def write_counts(path: Path) -> None:
        if path.suffix == ".npz":
            write_npz(drawn.counts, path, {"rows": [*rows], "cols": [*features]})
        else:
            whole = drawn.counts.matrix.toarray().astype(int)
            write_table(pd.DataFrame(whole, rows, [*features]), path)

    about = {"model": drawn.model, "rank": args.rank, "seed": args.seed, "counts": about_counts(drawn.counts)}
    return finish(args, drawn, about, {
        "--out": write_counts,
        "--loadings": lambda path: write_table(pd.DataFrame(loadings, rows, titles), path),
        "--components": lambda path: write_table(pd.DataFrame(drawn.components.T, features, titles), path),
    })  # fmt: skip


def write_npz(counts: Any, path: Path, names: dict[str, list[str]]) -> None:
    """Write a SciPy sparse matrix, and its names beside it."""
    import json

    from scipy.sparse import save_npz

    from bayesnmf.writing import replacing, write_text

    with replacing(path) as temporary:
        save_npz(temporary, counts.matrix)
    write_text(path.with_suffix(".json"), json.dumps(names))
