"""The option `threads`: what it takes, and that few rows are worked on by few threads."""

import numpy as np
import pytest

import bayesnmf
from bayesnmf import BLD, MAP, VI, Gibbs
from bayesnmf.kernels.cpu.threads import row_blocks

COUNTS = np.random.default_rng(0).poisson(3.0, (8, 6))
OPTIONS = {"map": MAP, "vi": VI, "gibbs": Gibbs, "bld": BLD}


@pytest.mark.filterwarnings("ignore:gibbs did not converge")
@pytest.mark.parametrize("method", OPTIONS)
def test_numpy_integers_are_numbers_of_threads(method):
    few = {"start": "random", "chains": 1, "warmup": 2, "draws": 2}
    short = few if method == "gibbs" else {"max_iter": 2, "tol": 0}
    fits = [
        bayesnmf.fit(COUNTS, "dirichlet_gamma", 2, method, seed=0, options=OPTIONS[method](threads=threads, **short))
        for threads in (2, np.int64(2))
    ]
    np.testing.assert_array_equal(fits[0].loadings, fits[1].loadings)


@pytest.mark.parametrize("method", OPTIONS)
@pytest.mark.parametrize("threads", [1025, 2**70, 10**30])
def test_huge_numbers_of_threads_are_refused(method, threads):
    with pytest.raises(ValueError, match="threads must be at most 1,024; give the number of cores"):
        OPTIONS[method](threads=threads)


@pytest.mark.parametrize("blocks", [1, 2, 9, 8 * 1024])
def test_there_are_no_more_blocks_than_rows_and_none_is_empty(blocks):
    for indptr in (np.arange(9) * 6, np.zeros(9, int), np.array([0, 0, 48, 48, 48])):
        bounds = row_blocks(indptr, blocks)
        assert (bounds[0], bounds[-1]) == (0, len(indptr) - 1)
        assert np.all(np.diff(bounds) > 0)
