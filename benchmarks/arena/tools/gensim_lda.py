"""gensim: LDA by online variational inference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.arena.tools import Array, Job, Way

NAME, REQUIREMENTS, VERSION = "gensim", ("gensim==4.4.0",), "gensim"


def lda(job: Job, **settings: Any) -> Mapping[str, Array]:
    """Fit LdaModel."""
    from gensim.matutils import Sparse2Corpus
    from gensim.models import LdaModel

    corpus = Sparse2Corpus(job.counts, documents_columns=False)
    names = {j: str(j) for j in range(job.counts.shape[1])}
    model = LdaModel(corpus, num_topics=job.rank, id2word=names, random_state=job.seed, **settings)
    return {"loadings": model.inference(corpus)[0], "components": np.asarray(model.get_topics(), np.float64)}


WAYS = {
    "LdaModel, defaults": Way(("texts",), lda),
    "LdaModel, 10 passes, learned": Way(("texts",), lda, {"passes": 10, "alpha": "auto", "eta": "auto"}),
}
