"""Simulated counts with covariates: given effects, and effects drawn from their prior."""

import numpy as np
import pandas as pd
import pytest

import bayesnmf
from bayesnmf import Dirichlet, Gamma, Priors
from bayesnmf.data.covariates.coding import Coding

N = 4000
FRAME = pd.DataFrame({"age": np.linspace(20, 80, N), "arm": ["a", "b"] * (N // 2)})
EFFECTS = np.array([[1.0, 2.0], [0.02, -0.01], [0.5, 0.0]])


def test_loadings_have_the_means_of_the_effects():
    """The regression of simulated loadings on the means of given effects has slope 1, to three errors of 1 %."""
    drawn = bayesnmf.simulate(
        size=(N, 5), rank=2, formula="~ age + arm", covariates=FRAME, effects=EFFECTS, seed=0,
        priors=Priors(Gamma(4.0, 0.1), Dirichlet(1)),
    )  # fmt: skip
    means = np.exp(np.column_stack([np.ones(N), FRAME.age, FRAME.arm == "b"]) @ EFFECTS)
    assert (drawn.loadings / means).mean(axis=0) == pytest.approx(1, abs=0.03)
    assert (drawn.loadings / means).var() == pytest.approx(1 / 4, abs=0.02)


def test_concentrations_follow_given_effects():
    drawn = bayesnmf.simulate(
        "dirichlet_poisson", (N, 5), rank=2, formula="~ age + arm", covariates=FRAME, effects=EFFECTS / 2, seed=0
    )
    alpha = np.exp(np.column_stack([np.ones(N), FRAME.age, FRAME.arm == "b"]) @ EFFECTS / 2)
    off = drawn.loadings - alpha / alpha.sum(axis=1, keepdims=True)
    assert off.mean(axis=0) == pytest.approx(0, abs=0.01)
    assert np.corrcoef(off[:, 0], FRAME.age)[0, 1] == pytest.approx(0, abs=0.05)


def test_effects_are_drawn_without_any():
    one, two = (
        bayesnmf.simulate(size=(30, 5), rank=2, covariates={"x": np.linspace(-1, 1, 30)}, seed=seed).priors.loadings
        for seed in (0, 1)
    )
    assert one.effects.shape == (2, 2)
    assert not np.array_equal(one.effects, two.effects)
    assert Coding.of_text(one.coding).terms == ["Intercept", "x"]


def test_priors_of_a_fit_have_effects_to_draw():
    given = bayesnmf.simulate(size=(30, 5), rank=2, covariates={"x": np.linspace(-1, 1, 30)}, seed=0).priors
    drawn = bayesnmf.simulate(size=(30, 5), rank=2, priors=given, seed=1).priors.loadings
    assert not np.array_equal(drawn.effects, given.loadings.effects)
    assert np.array_equal(drawn.design, given.loadings.design)


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"effects must be finite numbers of shape \(3, 2\)"):
        bayesnmf.simulate(size=(N, 5), rank=2, formula="~ age + arm", covariates=FRAME, effects=EFFECTS[:2])
    with pytest.raises(ValueError, match="effects need covariates"):
        bayesnmf.simulate(size=(N, 5), rank=2, effects=EFFECTS)
