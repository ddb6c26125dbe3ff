"""SigProfilerAssignment: known signatures of each tumour, chosen by adding and removing."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.arena.tools import Array, Job, Way

NAME, REQUIREMENTS, VERSION = "SigProfilerAssignment", ("SigProfilerAssignment==1.1.5",), "SigProfilerAssignment"
TYPES = [f"{five}[{one}>{two}]{three}" for one, others in (("C", "AGT"), ("T", "ACG")) for two in others
         for five in "ACGT" for three in "ACGT"]  # fmt: skip


def cosmic_fit(job: Job) -> Mapping[str, Array]:
    """Fit by `Analyzer.cosmic_fit` with the catalogue that is given."""
    import pandas as pd
    from SigProfilerAssignment import Analyzer

    assert job.catalogue is not None
    types = sorted(TYPES)  # it takes types by their places, in alphabetical order
    known = pd.DataFrame(job.catalogue.T, TYPES, [f"S{k}" for k in range(len(job.catalogue))]).loc[types]
    names = [f"T{i}" for i in range(job.counts.shape[0])]
    counts = pd.DataFrame(job.counts.toarray().T.astype(int), TYPES, names).loc[types]
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder)
        for name, frame in (("counts.txt", counts), ("known.txt", known)):
            frame.rename_axis("Type").to_csv(there / name, sep="\t")
        Analyzer.cosmic_fit(samples=str(there / "counts.txt"), output=str(there / "out"), input_type="matrix",
                            context_type="96", signature_database=str(there / "known.txt"), make_plots=False,
                            export_probabilities=False)  # fmt: skip
        table = next((there / "out").rglob("Assignment_Solution_Activities.txt"))
        found = pd.read_csv(table, sep="\t", index_col=0)
    loadings = found.reindex(index=names, columns=known.columns, fill_value=0).to_numpy(float)
    return {"loadings": loadings, "components": job.catalogue, "present": loadings > 0}


def least_squares(job: Job, least: float) -> Mapping[str, Array]:
    """Fit by non-negative least squares; signatures of more than this share are present."""
    from scipy.optimize import nnls

    assert job.catalogue is not None
    loadings = np.array([nnls(job.catalogue.T, row)[0] for row in job.counts.toarray()])
    share = loadings / np.maximum(loadings.sum(axis=1, keepdims=True), 1e-300)
    return {"loadings": loadings, "components": job.catalogue, "present": share > least}


WAYS = {
    "cosmic_fit, defaults": Way(("refit",), cosmic_fit, warm=False),
    "(SciPy) non-negative least squares, > 3 %": Way(("refit",), least_squares, {"least": 0.03}),
}
