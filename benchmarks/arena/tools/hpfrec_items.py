"""hpfrec: hierarchical Poisson factorisation by variational inference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.arena.tools import Array, Job, Way

NAME, REQUIREMENTS, VERSION = "hpfrec", ("hpfrec==0.2.14.post1", "pandas"), "hpfrec"


def hpf(job: Job, **settings: Any) -> Mapping[str, Array]:
    """Fit HPF."""
    import pandas as pd
    from hpfrec import HPF

    entries = job.counts.tocoo()
    frame = pd.DataFrame({"UserId": entries.coords[0], "ItemId": entries.coords[1], "Count": entries.data})
    model = HPF(k=job.rank, random_seed=job.seed, verbose=False, reindex=True, keep_all_objs=False,
                ncores=job.threads, **settings)  # fmt: skip
    model.fit(frame)
    found = [np.full((size, job.rank), 1e-12) for size in job.counts.shape]
    found[0][model.user_mapping_] = model.Theta
    found[1][model.item_mapping_] = model.Beta
    return {"loadings": found[0], "components": found[1].T}


WAYS = {"HPF, defaults": Way(("texts", "items"), hpf)}
