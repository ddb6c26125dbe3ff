"""A pytest plugin for `tests/robustness.py`: perturbs starts, and records how close comparisons come to tolerances.

``BAYESNMF_PERTURB=1e-13`` multiplies every entry of the matrices that a fit starts from by 1 + 1e-13 z, z standard
normal and the same in every run of the same ``BAYESNMF_PERTURB_SEED``, and then every row by what keeps its sum: many
theorems start from rows of given sums. For the same reason a number that a whole row shares stays as it is.

``BAYESNMF_MARGINS=file.json`` writes, for each comparison by `numpy.testing.assert_allclose`, `numpy.isclose` and
`numpy.allclose` in a test, its largest deviation as a share of its tolerance.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np

from bayesnmf.priors import Dirichlet, Gamma, ScaledDirichlet, ScaledProportions

SIZE = float(os.environ.get("BAYESNMF_PERTURB", 0))
SEED = int(os.environ.get("BAYESNMF_PERTURB_SEED", 0))
MARGINS = os.environ.get("BAYESNMF_MARGINS")
HERE = Path(__file__).parent

shares: dict[str, float] = {}


def perturbed(given):
    """Return a matrix, or the parameters of a distribution, with every entry moved by its own relative step."""
    if isinstance(given, ScaledProportions):
        return ScaledProportions(*map(perturbed, given))
    if isinstance(given, Gamma | Dirichlet | ScaledDirichlet):
        return type(given)(*map(perturbed, vars(given).values()))
    array = np.asarray(given)
    if not np.issubdtype(array.dtype, np.floating) or array.ndim < 2 or array.shape[-1] == 1:
        return given
    exact = array.astype(np.float64)
    moved = exact * (1 + SIZE * np.random.default_rng(SEED).standard_normal(array.shape))
    sums = moved.sum(axis=-1, keepdims=True)
    moved *= np.divide(exact.sum(axis=-1, keepdims=True), sums, out=np.ones_like(sums), where=sums > 0)
    return moved.astype(array.dtype, order="K")


def perturb_starts():
    """Replace what random starts, starts from the data and given starts are made from."""
    from bayesnmf.fitting import problems
    from bayesnmf.inference.starts import states

    def moved(function):
        def changed(*args, **kwargs):
            found = function(*args, **kwargs)
            return tuple(map(perturbed, found)) if isinstance(found, tuple) else perturbed(found)

        return changed

    states.shared_out = moved(states.shared_out)
    states._projected_rows = moved(states._projected_rows)
    states.positive_factors = moved(states.positive_factors)  # the components alone
    problems.given_start = moved(problems.given_start)


def record(actual, desired, rtol, atol):
    """Keep the largest deviation of this comparison, where a test makes it, as a share of its tolerance."""
    frame = sys._getframe(2)
    while frame and not Path(frame.f_code.co_filename).name.startswith(("test_", "contextlib")):
        frame = frame.f_back if Path(frame.f_code.co_filename).parent in (HERE, Path(np.testing.__file__)) else None
    if frame is None:
        return
    with np.errstate(all="ignore"):
        actual, desired = np.asarray(actual, np.float64), np.asarray(desired, np.float64)
        share = np.abs(actual - desired) / (atol + rtol * np.abs(desired))
    share = float(np.max(share[np.isfinite(share)], initial=0.0))
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rsplit(" ", 1)[0]
    key = f"{test}:{frame.f_lineno}"
    shares[key] = max(share, shares.get(key, 0.0))


def record_margins():
    """Wrap NumPy's comparisons."""
    assert_allclose, isclose, allclose = np.testing.assert_allclose, np.isclose, np.allclose

    def asserted(actual, desired, rtol=1e-7, atol=0, *args, **kwargs):
        try:
            record(actual, desired, rtol, atol)
        except (TypeError, ValueError):  # what cannot be compared as numbers, NumPy's own function judges
            shares.setdefault("not recorded", 0.0)
        assert_allclose(actual, desired, rtol, atol, *args, **kwargs)

    def compared(function):
        def changed(a, b, rtol=1e-5, atol=1e-8, *args, **kwargs):
            record(a, b, rtol, atol)
            return function(a, b, rtol, atol, *args, **kwargs)

        return changed

    np.testing.assert_allclose, np.isclose, np.allclose = asserted, compared(isclose), compared(allclose)


def pytest_configure(config):
    """Do what the environment asks for."""
    if SIZE:
        perturb_starts()
    if MARGINS:
        record_margins()


def pytest_unconfigure(config):
    """Write the margins."""
    if MARGINS:
        Path(MARGINS).write_text(json.dumps(shares, indent=0), encoding="utf-8")
