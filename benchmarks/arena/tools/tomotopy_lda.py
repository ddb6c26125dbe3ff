"""tomotopy: LDA by collapsed Gibbs sampling, which learns concentrations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.arena.tools import Array, Job, Way, as_tokens, of_all_rows, of_all_words

NAME, REQUIREMENTS, VERSION = "tomotopy", ("tomotopy==0.14.0",), "tomotopy"


def lda(job: Job, iterations: int, **settings: Any) -> Mapping[str, Array]:
    """Fit LDAModel."""
    import tomotopy

    model = tomotopy.LDAModel(k=job.rank, seed=job.seed, **settings)
    for words in as_tokens(job.counts):
        if words:
            model.add_doc(words)
    model.train(iterations, workers=job.threads)
    topics = np.array([model.get_topic_word_dist(k) for k in range(job.rank)])
    shares = np.array([document.get_topic_dist() for document in model.docs])
    components = of_all_words(topics, list(model.used_vocabs), job.counts.shape[1])
    return {"loadings": of_all_rows(shares, job.counts), "components": components}


CONCENTRATIONS = {"alpha": 0.1, "eta": 0.05}
WAYS = {
    "LDAModel, 200 iterations": Way(("texts", "cells"), lda, {"iterations": 200}),
    "LDAModel, 200 iterations, 0.1 and 0.05": Way(("texts",), lda, {"iterations": 200, **CONCENTRATIONS}),
    "LDAModel, 1,000 iterations": Way(("texts",), lda, {"iterations": 1000}),
}
