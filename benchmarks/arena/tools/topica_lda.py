"""topica: LDA by sparse Gibbs sampling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.arena.tools import Array, Job, Way, as_tokens, of_all_rows, of_all_words

NAME, REQUIREMENTS, VERSION = "topica", ("topica==0.62.0",), "topica"


def lda(job: Job, iters: int = 1000, **settings: Any) -> Mapping[str, Array]:
    """Fit LDA."""
    import topica

    documents = [words for words in as_tokens(job.counts) if words]
    model = topica.LDA(job.rank, seed=job.seed, num_threads=job.threads, **settings)
    model.fit(documents, iters=iters, progress=False)
    components = of_all_words(model.topic_word, list(model.vocabulary), job.counts.shape[1])
    return {"loadings": of_all_rows(model.doc_topic, job.counts), "components": components}


WAYS = {
    "LDA, defaults": Way(("texts",), lda),
    "LDA, 200 iterations, β 0.05": Way(("texts",), lda, {"iters": 200, "burn_in": 50, "beta": 0.05}),
}
