"""nmf-rs: the algorithms of R's NMF, of dense matrices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.arena.tools import Array, Job, Way

NAME, REQUIREMENTS, VERSION = "nmf-rs", ("nmf-rs[nndsvd]==0.1.0",), "nmf-rs"


def nmf(job: Job, nndsvd: bool, **settings: Any) -> Mapping[str, Array]:
    """Fit, from its own start or from NNDSVD, which its guide recommends."""
    import nmf_rs

    dense = job.counts.toarray()
    start = dict(zip(("W0", "H0"), nmf_rs.nndsvd_init(dense, job.rank), strict=True)) if nndsvd else {"seed": job.seed}
    found = nmf_rs.nmf(dense, job.rank, num_threads=job.threads, **start, **settings)
    return {"loadings": found.W, "components": found.H}


DENSE, MOST = ("cells", "signatures", "images"), 20_000_000
WAYS = {
    "brunet, defaults": Way(DENSE, nmf, {"nndsvd": False}, most_entries=MOST),
    "brunet, NNDSVD, 100 iterations": Way(DENSE, nmf, {"nndsvd": True, "max_iter": 100}, most_entries=MOST),
    "lee, NNDSVD, 25 iterations": Way(DENSE, nmf, {"nndsvd": True, "method": "lee", "max_iter": 25}, most_entries=MOST),
}
