"""When chains have run long enough, and when they are in different modes.

Each condition is broken alone, so that one which is not asked for would be found. Chains that mix slowly must not be
called chains in different modes: of 20 pairs of chains with an autocorrelation of 0.99 none is.
"""

import numpy as np
import pytest
from smallfits import fit

from bayesnmf.results.estimates import Draws
from bayesnmf.results.mixing import difference_of_modes, is_settled, shares_of

GOOD = {
    "share_unsettled": 0.01, "r_hat_log_joint": 1.01, "max_r_hat": 1.05, "min_ess": 100, "ess_log_joint": 400,
    "ess_shares": 400,
}  # fmt: skip


def test_chains_have_settled_if_all_is_well():
    assert is_settled(GOOD)


@pytest.mark.parametrize(
    "bad",
    [
        {"share_unsettled": 0.011}, {"r_hat_log_joint": 1.02}, {"max_r_hat": 1.06}, {"min_ess": 99},
        {"ess_log_joint": 399}, {"ess_shares": 399}, {"max_r_hat": np.nan},
    ],
)  # fmt: skip
def test_one_bad_figure_is_enough_to_go_on(bad):
    assert not is_settled(GOOD | bad)


def chains(seed, apart=0.0, correlation=0.0, draws=400):
    """Draws of components (2, draws, 2, 6) about one point, of the second chain `apart` in the second component."""
    rng = np.random.default_rng(seed)
    walk = rng.normal(size=(2, draws, 2, 6))
    for at in range(1, draws):
        walk[:, at] = correlation * walk[:, at - 1] + np.sqrt(1 - correlation**2) * walk[:, at]
    centre = np.array([[5.0, 5, 5, 1, 1, 1], [1.0, 1, 1, 5, 5, 5]])
    components = centre + 0.2 * walk
    components[1, :, 1, 0] += apart
    return components, rng.normal(size=(2, draws))


def test_a_component_that_differs_between_chains_is_named():
    found = difference_of_modes(*chains(0, apart=4.0))
    assert found.startswith("chains are in different modes: R-hat of component 1 is ")


def test_a_log_joint_that_differs_between_chains_is_named():
    components, log_joint = chains(0)
    log_joint[1] += 20
    assert "R-hat of the log joint is " in difference_of_modes(components, log_joint)


def test_chains_that_agree_or_mix_slowly_are_not_called_different():
    assert not any(difference_of_modes(*chains(seed)) for seed in range(5))
    assert not any(difference_of_modes(*chains(seed, correlation=0.99)) for seed in range(20))


def test_one_chain_is_in_one_mode():
    components, log_joint = chains(0, apart=4.0)
    assert difference_of_modes(components[:1], log_joint[:1]) == ""


@pytest.mark.filterwarnings("ignore::bayesnmf.ConvergenceWarning")
@pytest.mark.parametrize("model", ["gamma_poisson", "dirichlet_gamma", "dirichlet_poisson"])
def test_shares_are_those_of_expected_counts(model):
    """The mean draw of a chain without spread is the point, whose expected sizes are known."""
    found = fit(model, "gibbs")
    scale = None if found.scale is None else found.scale[None, None]
    alone = Draws(found.loadings[None, None], found.components[None, None], scale)
    np.testing.assert_allclose(shares_of(found, alone)[0, 0], found.expected_sizes / found.expected_sizes.sum())
