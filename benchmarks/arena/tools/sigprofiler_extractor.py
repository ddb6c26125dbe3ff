"""SigProfilerExtractor: mutational signatures by many runs of NMF, of resampled tumours."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.arena.tools import Array, Job, Way
from benchmarks.arena.tools.sigprofiler_assignment import TYPES

NAME, REQUIREMENTS, VERSION = "SigProfilerExtractor", ("SigProfilerExtractor==1.4.1",), "SigProfilerExtractor"


def extract(job: Job, runs: int) -> Mapping[str, Array]:
    """Fit this number of signatures."""
    import pandas as pd
    from SigProfilerExtractor.sigpro import sigProfilerExtractor

    names = [f"T{i}" for i in range(job.counts.shape[0])]
    with tempfile.TemporaryDirectory() as folder:
        there, rank = Path(folder), job.rank
        frame = pd.DataFrame(job.counts.toarray().T.astype(int), TYPES, names)
        frame.rename_axis("Mutation Types").to_csv(there / "counts.txt", sep="\t")
        sigProfilerExtractor("matrix", str(there / "out"), str(there / "counts.txt"), minimum_signatures=rank,
                             maximum_signatures=rank, nmf_replicates=runs, cpu=job.threads, seeds="random",
                             make_decomposition_plots=False, stop_after_extraction=True)  # fmt: skip
        solution = next((there / "out").rglob(f"SBS96_{rank}_Signatures"))
        read = [pd.read_csv(next(solution.rglob(f"*_{kind}.txt")), sep="\t", index_col=0)
                for kind in ("Activities", "Signatures")]  # fmt: skip
    return {"loadings": read[0].loc[names].to_numpy(np.float64), "components": read[1].loc[TYPES].to_numpy().T}


WAYS = {"10 runs": Way(("signatures",), extract, {"runs": 10}, warm=False)}
