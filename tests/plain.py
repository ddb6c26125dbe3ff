"""Options of plain steps from a random start, and even priors, all named: for statements that no default changes."""

import numpy as np

from bayesnmf import MAP, VI, Priors
from bayesnmf.priors.pair import with_defaults
from bayesnmf.priors.specification import EVEN


def plain_map(**settings):
    """Return options of EM, with `settings` changed."""
    return MAP(**{"start": "random", "algorithm": "em", "extrapolate": False, **settings})


def plain_vi(**settings):
    """Return options of coordinate ascent, with `settings` changed."""
    plain = {"start": "random", "algorithm": "coordinate", "extrapolate": False, "intervals": "mean_field"}
    return VI(**(plain | settings))


def even_priors(counts=None, model="gamma_poisson", rank=3, total=200.0):
    """Return the default priors of points, with shapes and concentrations of 1, for counts or a mean row total."""
    mean = total if counts is None else float(np.sum(np.asarray(counts))) / len(counts)
    return with_defaults(Priors(), model, mean, rank, np.ones(1), EVEN)


PLAIN = {"map": plain_map, "vi": plain_vi}
