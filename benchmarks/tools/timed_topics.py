"""Fit a topic model of another tool for given seconds of one processor: run as a script, in the tool's environment.

`python timed_topics.py TOOL COUNTS.npz OUT.npz RANK SEED SECONDS [SECONDS ...]` writes, for each number of seconds, the
topics (K, m), the concentrations of the loadings, the processor seconds that were used, the iterations or passes, and
the peak memory. Every tool has one thread. tomotopy and gensim go on; scikit-learn begins again with as many iterations
as fit into the seconds, by the time of one.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

STEP = 5  # iterations of tomotopy between two looks at the clock
Found = tuple[Any, Any, float, int]


def tomotopy(matrix: Any, rank: int, seed: int, budgets: Sequence[float]) -> Iterator[Found]:
    """Collapsed Gibbs sampling; both concentrations are optimised every 10 iterations, by default."""
    import tomotopy as package

    model = package.LDAModel(k=rank, seed=seed)
    words = np.array([str(j) for j in range(matrix.shape[1])])
    for i in range(matrix.shape[0]):
        here = slice(matrix.indptr[i], matrix.indptr[i + 1])
        model.add_doc(np.repeat(words[matrix.indices[here]], matrix.data[here].astype(int)).tolist())
    spent, done = 0.0, 0
    for budget in budgets:
        while spent < budget:
            began = time.process_time()
            model.train(STEP, workers=1)
            spent, done = spent + time.process_time() - began, done + STEP
        topics = np.full((rank, matrix.shape[1]), 1e-12)
        topics[:, [int(word) for word in model.used_vocabs]] = [model.get_topic_word_dist(k) for k in range(rank)]
        yield topics, np.asarray(model.alpha), spent, done


def gensim(matrix: Any, rank: int, seed: int, budgets: Sequence[float]) -> Iterator[Found]:
    """Online variational inference, pass after pass, with learned concentrations of the loadings."""
    import gensim as package

    corpus = [
        list(zip(matrix.indices[a:b].tolist(), matrix.data[a:b].tolist(), strict=True))
        for a, b in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True)
    ]
    names = {j: str(j) for j in range(matrix.shape[1])}
    model: Any = package.models.LdaModel(
        num_topics=rank, id2word=names, random_state=seed, alpha="auto", eval_every=None, chunksize=2000
    )
    spent, done = 0.0, 0
    for budget in budgets:
        while spent < budget:
            began = time.process_time()
            model.update(corpus, passes=1)
            spent, done = spent + time.process_time() - began, done + 1
        yield model.get_topics(), np.asarray(model.alpha), spent, done


def scikit_learn(matrix: Any, rank: int, seed: int, budgets: Sequence[float]) -> Iterator[Found]:
    """Variational inference of all rows, with concentrations 1 / K."""
    from sklearn.decomposition import LatentDirichletAllocation

    one, spent = 0.0, 0.0
    for budget in (0.0, *budgets):
        iterations = max(1, round(budget / one)) if one else 1
        began = time.process_time()
        model = LatentDirichletAllocation(rank, random_state=seed, max_iter=iterations).fit(matrix)
        spent = time.process_time() - began
        one = spent / iterations
        if budget:
            yield model.components_, np.full(rank, 1 / rank), spent, iterations


TOOLS = {"tomotopy": tomotopy, "gensim": gensim, "scikit-learn": scikit_learn}


def main() -> None:
    """Fit for each number of seconds, and write what was found."""
    from importlib.metadata import version

    from scipy.sparse import csr_array, load_npz

    tool, counts, out, rank, seed = sys.argv[1:6]
    matrix = csr_array(load_npz(counts))
    found = TOOLS[tool](matrix, int(rank), int(seed), [float(each) for each in sys.argv[6:]])
    kept: dict[str, Any] = {"version": version(tool)}
    for i, (topics, concentration, seconds, steps) in enumerate(found):
        kept |= {f"topics{i}": topics, f"concentration{i}": concentration, f"seconds{i}": seconds, f"steps{i}": steps}
    kept["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    np.savez(out, **kept)


if __name__ == "__main__":
    main()
