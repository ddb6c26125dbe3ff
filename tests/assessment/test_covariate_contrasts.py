"""Contrasts between levels of covariates: on the log scale of loadings, and of shares by prediction."""

import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest
from plain import plain_vi

import bayesnmf

N = 90
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"age": RNG.uniform(20, 80, N), "arm": RNG.choice(["a", "b", "c"], N)})
EFFECTS = {"a": [0.0, 0.0], "b": [1.0, 0.0], "c": [-1.0, 0.5]}
MEANS = 30 * np.exp((FRAME.age.to_numpy()[:, None] - 50) / 60 + np.array([EFFECTS[arm] for arm in FRAME.arm]))
COUNTS = RNG.poisson(RNG.gamma(4, MEANS / 4) @ np.array([[0.7, 0.3, 0, 0], [0, 0, 0.4, 0.6]]))


@cache
def fitted(formula="~ age + arm"):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bayesnmf.ConvergenceWarning)
        return bayesnmf.fit(COUNTS, rank=2, seed=0, formula=formula, covariates=FRAME, options=plain_vi(max_iter=100))


def test_contrasts_of_a_category():
    fit = fitted()
    table = bayesnmf.group_contrasts(fit, "arm")
    assert table.contrast.unique().tolist() == ["b - a", "c - a"]
    scale = (
        "difference, lfc, lfsr: mean shares of rows with these covariates; effect, effect_lfsr: log scale of loadings"
    )
    assert table.attrs["scale"] == scale
    first = int(np.argmax(fit.components[:, 0]))
    at = table.set_index(["contrast", "component"])
    assert at.effect["b - a", first] == pytest.approx(1.0, abs=0.35)
    assert at.effect["c - a", 1 - first] == pytest.approx(0.5, abs=0.35)
    terms = fit.effects().effect  # without interactions, the effect is that of the term
    assert at.effect["b - a", 0] == pytest.approx(terms[0, "arm[T.b]"], abs=0.02)
    share = 1 / (1 + np.exp(-1.0)) - 0.5
    assert at.difference["b - a", first] == pytest.approx(share, abs=0.1)
    assert (table.difference_low > -1).all()
    assert (table.difference_high < 1).all()
    assert table.groupby("contrast").difference.sum().to_numpy() == pytest.approx(0)


def test_contrasts_with_weights_and_of_a_number():
    fit = fitted("~ age * arm")
    table = bayesnmf.group_contrasts(fit, "arm", {"b - c": {"b": 1, "c": -1}}, interval=0.5)
    first = int(np.argmax(fit.components[:, 0]))
    assert table.effect[first] == pytest.approx(2.0, abs=0.5)
    rise = bayesnmf.group_contrasts(fit, "age", draws=50)
    assert rise.contrast.unique().tolist() == [f"age + {FRAME.age.std(ddof=0):.3g}"]
    assert rise.effect.to_numpy() == pytest.approx(FRAME.age.std(ddof=0) / 60, abs=0.2)


def test_what_is_refused():
    fit = fitted()
    with pytest.raises(ValueError, match=r"groups must be the name of a covariate of the fit, 'age', 'arm', .* 'sex'"):
        bayesnmf.group_contrasts(fit, "sex")
    with pytest.raises(ValueError, match="population=False compares groups of these rows"):
        bayesnmf.group_contrasts(fit, "arm", population=False)
    with pytest.raises(ValueError, match="name it there by itself"):
        bayesnmf.group_contrasts(fitted("~ arm + age:arm"), "arm")
    plain = bayesnmf.fit(COUNTS, rank=2, seed=0, options=plain_vi(tol=1e-3))
    with pytest.raises(ValueError, match="effects are those of a fit with covariates"):
        bayesnmf.group_contrasts(plain, "arm")
