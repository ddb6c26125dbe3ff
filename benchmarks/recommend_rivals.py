"""The rivals of `benchmarks.recommend`, run by the interpreter of their own environment, which has implicit.

    rivals/bin/python -P benchmarks/recommend_rivals.py METHOD COUNTS RESULT RANK

METHOD is als or bpr. COUNTS is an .npz of sparse counts (users, items); RESULT an .npy of the scores of all pairs.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
from implicit.als import AlternatingLeastSquares
from implicit.bpr import BayesianPersonalizedRanking
from scipy.sparse import csr_matrix, load_npz

MODELS: dict[str, Any] = {
    "als": lambda rank: AlternatingLeastSquares(rank, regularization=0.1, random_state=0, num_threads=1),
    "bpr": lambda rank: BayesianPersonalizedRanking(rank, random_state=0, num_threads=1),
}


def main(method: str, counts: str, result: str, rank: str) -> None:
    """Fit, and write the score of every user and item."""
    matrix = csr_matrix(load_npz(counts).astype(np.float32))
    began = time.process_time()
    model = MODELS[method](int(rank))
    model.fit(matrix, show_progress=False)
    seconds = time.process_time() - began
    np.savez(result, scores=model.user_factors @ model.item_factors.T, seconds=seconds)


if __name__ == "__main__":
    main(*sys.argv[1:])
