"""Score plain calls of topic models: `python -m benchmarks.plain_calls --data nips newsgroups --rank 20`.

Each tool fits four fifths of the rows with its own defaults (tomotopy and gensim also with learned concentrations). A
fifth is withheld, the same for all: half of the counts of such a row gives its loadings, by one method for all tools,
mean-field inference given the tool's topics and concentrations; the score is the mean log-probability of the other
half, in nats a count. A line is printed for each tool and length of its run, and added to `plain_calls.jsonl` in
`--out`; what is there already is not run again.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import bayesnmf
from bayesnmf import VI, Dirichlet, Priors
from bayesnmf.assessment.scoring import background, score
from bayesnmf.data.counts import Counts
from bayesnmf.data.splitting import halves_of_rows
from benchmarks import data
from benchmarks.priors import DRAWS, MOST_DRAWS, split_rows

Array = NDArray[Any]
Found = tuple[str, float, Array, Any]  # version and settings, seconds, topics (K, m), concentrations of the loadings
LONGEST = 100.0  # seconds after which a tool that goes on in steps is stopped
STEPS = (50, 100, 200, 500, 1000, 2000)
LEARNED: dict[str, Any] = {"alpha": "auto", "eta": "auto"}


def ours(model: str, counts: Counts, rank: int, **options: Any) -> Iterator[Found]:
    """Fit by `bayesnmf.fit`, without options unless some are given."""
    began = time.perf_counter()
    fit = bayesnmf.fit(counts, model, rank, seed=0, options=VI(**options))
    seconds = time.perf_counter() - began
    prior: Any = fit.priors.loadings
    yield bayesnmf.__version__, seconds, fit.components, prior.concentration if model[0] == "d" else prior.shape


def scikit_learn(counts: Counts, rank: int, **settings: Any) -> Iterator[Found]:
    """Fit scikit-learn's LDA: by default batches of all rows, ten iterations, concentrations 1 / K."""
    import sklearn
    from sklearn.decomposition import LatentDirichletAllocation

    began = time.perf_counter()
    model = LatentDirichletAllocation(rank, random_state=0, **settings).fit(counts.matrix)
    yield sklearn.__version__, time.perf_counter() - began, model.components_, 1 / rank


def gensim(counts: Counts, rank: int, **settings: Any) -> Iterator[Found]:
    """Fit gensim's online LDA."""
    import gensim as package

    corpus = [
        list(zip(row.indices.tolist(), row.data.tolist(), strict=True))
        for row in (counts.matrix[[i]] for i in range(counts.shape[0]))
    ]
    names = {j: str(j) for j in range(counts.shape[1])}
    began = time.perf_counter()
    model = package.models.LdaModel(corpus, num_topics=rank, id2word=names, random_state=0, **settings)
    yield package.__version__, time.perf_counter() - began, model.get_topics(), np.asarray(model.alpha)


def tomotopy(counts: Counts, rank: int, lengths: Sequence[int] = STEPS) -> Iterator[Found]:
    """Fit tomotopy's LDA by collapsed Gibbs sampling, with learned concentrations; it goes on in steps."""
    import tomotopy as package

    model = package.LDAModel(k=rank, seed=0)
    words = np.array([str(j) for j in range(counts.shape[1])])
    for i in np.flatnonzero(counts.row_totals):
        row = counts.matrix[[i]]
        model.add_doc(np.repeat(words[row.indices], row.data.astype(int)).tolist())
    spent, done = 0.0, 0
    for iterations in lengths:
        began = time.perf_counter()
        model.train(iterations - done)
        done, spent = iterations, spent + time.perf_counter() - began
        topics = np.full((rank, counts.shape[1]), 1e-12)
        topics[:, [int(word) for word in model.used_vocabs]] = [model.get_topic_word_dist(k) for k in range(rank)]
        yield f"{package.__version__}, {iterations} iterations", spent, topics, np.asarray(model.alpha)
        if spent > LONGEST:
            return


def hpfrec(counts: Counts, rank: int, **settings: Any) -> Iterator[Found]:
    """Fit hpfrec's hierarchical Poisson factorisation."""
    import hpfrec as package
    import pandas as pd

    entries = counts.matrix.tocoo()
    frame = pd.DataFrame({"UserId": entries.row, "ItemId": entries.col, "Count": entries.data})
    model = package.HPF(k=rank, random_seed=0, verbose=False, reindex=False, keep_all_objs=False, **settings)
    began = time.perf_counter()
    model.fit(frame)
    yield version("hpfrec"), time.perf_counter() - began, np.asarray(model.Beta, np.float64).T, 0.3


TOOLS: dict[str, Callable[[Counts, int], Iterator[Found]]] = {
    "bayesnmf, dirichlet_poisson": partial(ours, "dirichlet_poisson"),
    "bayesnmf, gamma_poisson": partial(ours, "gamma_poisson"),
    "scikit-learn": scikit_learn,
    "gensim": gensim,
    "gensim, 10 passes, learned": partial(gensim, passes=10, **LEARNED),
    "tomotopy, learned": tomotopy,
    "hpfrec": hpfrec,
}


def judge(topics: Array, concentration: Any, train: Counts, test: Counts) -> float:
    """Return the score of topics and concentrations on withheld rows."""
    topics = np.maximum(np.asarray(topics, np.float64), 1e-300)
    topics /= topics.sum(axis=1, keepdims=True)
    seen, held_out = halves_of_rows(test)
    priors = Priors(loadings=Dirichlet(np.broadcast_to(concentration, len(topics)).astype(float)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = VI(priors=priors, start="random")
        fit = bayesnmf.fit(seen, "dirichlet_poisson", fixed_components=topics, seed=0, options=options)
        return score(fit, held_out, background(train), DRAWS, 0, MOST_DRAWS).per_count


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", required=True)
    parser.add_argument("--rank", type=int, nargs="+", default=[20])
    parser.add_argument("--tools", nargs="+", default=list(TOOLS), choices=list(TOOLS))
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    kept = given.out / "plain_calls.jsonl"
    done = [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()] if kept.exists() else []
    known = {(row["data"], row["rank"], row["tool"]) for row in done}
    for name in given.data:
        train, test = split_rows(data.read(name, given.rank[0], 0), 0.2, 0)
        for rank in given.rank:
            for tool in given.tools:
                if (name, rank, tool) in known:
                    continue
                for release, seconds, topics, concentration in TOOLS[tool](train, rank):
                    found = judge(topics, concentration, train, test)
                    row = {"data": name, "rank": rank, "tool": tool, "version": release, "seconds": round(seconds, 2),
                           "score": round(found, 4)}  # fmt: skip
                    print(json.dumps(row), flush=True)
                    with open(kept, "a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
