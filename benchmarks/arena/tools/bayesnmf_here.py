"""bayesnmf, as it is installed beside the arena."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.arena.tools import Array, Job, Way

NAME, REQUIREMENTS, VERSION = "bayesnmf", (), "bayesnmf"


def fit(job: Job, **settings: Any) -> Mapping[str, Array]:
    """Fit by a plain call, or with other arguments."""
    import bayesnmf

    found = bayesnmf.fit(job.counts, rank=job.rank, seed=job.seed, **settings)
    return {"loadings": found.expected_loadings, "components": found.exposed_components}


def learned(job: Job) -> Mapping[str, Array]:
    """Fit with concentrations that are learned."""
    import bayesnmf

    return fit(job, options=bayesnmf.VI(learn=("loadings", "components")))


def consensus(job: Job) -> Mapping[str, Array]:
    """Fit from ten starts, and take the consensus."""
    import bayesnmf

    found = bayesnmf.modes(job.counts, rank=job.rank, starts=10, seed=job.seed).consensus().fit
    return {"loadings": found.expected_loadings, "components": found.exposed_components}


def assign(job: Job, **settings: Any) -> Mapping[str, Array]:
    """Assign known signatures."""
    import bayesnmf

    assert job.catalogue is not None
    found = bayesnmf.assign(job.counts, job.catalogue, seed=job.seed, **settings)
    return {"loadings": found.exposures, "components": job.catalogue, "present": found.presence > 0.5}


FACTORS = ("texts", "cells", "signatures", "images", "items")
WAYS = {
    "plain call": Way(FACTORS, fit),
    "concentrations learned": Way(("texts", "cells", "signatures", "images"), learned),
    "noise='nb1'": Way(("texts", "cells", "images", "items"), fit, {"noise": "nb1"}),
    "noise='nb2'": Way(("signatures",), fit, {"noise": "nb2"}),
    "consensus of ten": Way(("cells",), consensus),
    "assign": Way(("refit",), assign),
    "assign, drift=None": Way(("refit",), assign, {"drift": None}),
}
