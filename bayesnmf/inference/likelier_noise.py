"""Under which noise are counts likeliest around given means? What is advised where they vary more than Poisson counts.

Each noise is given its best dispersion at the means of a fit without it, by the steps of Newton's method that learn a
dispersion. Nothing is fitted again, as what differs between noises is how the spread of counts grows with their means.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bayesnmf.data.counts import Counts
from bayesnmf.data.powered import working_counts
from bayesnmf.data.probabilities import log_likelihood
from bayesnmf.inference.evidence_of_dispersion import evidence_at
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.side import Mode, side_of_value
from bayesnmf.noise.abilities import Dispersed
from bayesnmf.priors import Gamma
from bayesnmf.types import Array

ROWS, ENTRIES = 500, 2_000_000  # that are looked at
LEAST = 1e-12  # part of the largest entry of a factor


def likeliest_noise[N: Dispersed](counts: Counts, loadings: Array, components: Array, noises: Sequence[N]) -> N:
    """Return the noise under which whole counts are likeliest, each with one dispersion for all entries.

    Of many rows some are looked at, evenly spread.

    Parameters
    ----------
    counts : Counts
    loadings, components : ndarray of shape (n, K) and (K, m)
        Factors of the means, with all exposures.
    noises : sequence of Dispersed
    """
    n, m = counts.shape
    if len(noises) == 1:
        return noises[0]
    rows = np.arange(n)[:: -(-n // max(min(ROWS, ENTRIES // m), 1))]
    part = counts.rows(rows).with_exposure(None, None).as_type(np.dtype(np.float64))
    given = np.asarray(loadings[rows], np.float64), np.asarray(components, np.float64)
    U, V = (np.maximum(each, LEAST * each.max(initial=LEAST)) for each in given)  # modes may have means of 0

    def height(noise: N) -> float:
        begun = working_counts(part, noise.with_first_dispersion(part.shape), given_totals=False, learned=True)
        problem = Problem(begun, Gamma(1.0, 1.0), Gamma(1.0, 1.0), Mode(), Mode())  # whose priors are not asked
        evidence = evidence_at(problem, State(side_of_value(U, 0.0), side_of_value(V, 0.0)), None)
        best = noise.with_dispersion(float(evidence.best(begun.dispersions)[0]))  # type: ignore[attr-defined]
        return log_likelihood(best, part, U, V, given_totals=False)

    return max(noises, key=height)
