"""`fit(fixed_components=…, drift=…)`: known components that a Dirichlet prior is around, and that counts move."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import gammaln

import bayesnmf
from bayesnmf import MAP, VI, Gibbs
from bayesnmf.priors.drifting import LEAST_STRENGTH, Drifting

NAMES = ["first", "second", "third"]
SOME = {"map": MAP(max_iter=400), "vi": VI(max_iter=60, tol=0), "gibbs": Gibbs(chains=1, draws=20, warmup=20)}


def made(distance, rows=40, size=3000, m=24):
    """Return counts, known components as a frame, and those that made the counts."""
    rng = np.random.default_rng(4)
    known = rng.dirichlet(np.full(m, 0.4), 3)
    true = known * np.exp(distance * rng.normal(size=m))
    true /= true.sum(axis=1, keepdims=True)
    return rng.poisson(size * rng.dirichlet(np.ones(3), rows) @ true), pd.DataFrame(known, NAMES), true


def fitted(method, drift, distance=0.3, **more):
    counts, known, true = made(distance)
    return bayesnmf.fit(
        counts, method=method, fixed_components=known, drift=drift, seed=0, options=SOME[method], **more
    ), true


@pytest.mark.filterwarnings("ignore::bayesnmf.ConvergenceWarning")
@pytest.mark.parametrize("method", ["map", "vi", "gibbs"])
def test_known_components_move_to_what_made_the_counts_or_stay(method):
    fit, true = fitted(method, 100.0)
    known = made(0.3)[1].to_numpy()
    off = [np.abs(each / each.sum(axis=1, keepdims=True) - true).sum() for each in (known, fit.components)]
    assert off[1] < off[0] / 2
    firm, _ = fitted(method, 1e7)
    np.testing.assert_allclose(firm.components, known, atol=2e-3)
    assert fit.moved.index.tolist() == NAMES
    assert (fit.moved["strength"] == 100.0).all()
    cosine = (known * fit.components).sum(1) / np.linalg.norm(known, axis=1) / np.linalg.norm(fit.components, axis=1)
    np.testing.assert_allclose(fit.moved["cosine"], cosine, rtol=1e-12)
    assert (firm.moved["cosine"] > 0.9999).all()
    assert "known components have moved, least alike is" in " ".join(repr(fit).split())


def test_the_mode_is_the_mean_of_counts_and_catalogue():
    """At a mode in the natural basis, a component is ∝ s w + its allocated counts."""
    fit, _ = fitted("map", 500.0)
    known = made(0.3)[1].to_numpy()
    shared = fit.counts.dense / np.maximum(fit.loadings @ fit.components, 1e-300)
    own = fit.components * (fit.loadings.T @ shared) + 500.0 * known
    np.testing.assert_allclose(fit.components, own / own.sum(axis=1, keepdims=True), atol=2e-4)


def test_a_strength_is_learned_by_vi_alone():
    near, _ = fitted("vi", "learned", 0.0)
    far, _ = fitted("vi", "learned", 0.5)
    assert far.moved["strength"].iloc[0] == pytest.approx(LEAST_STRENGTH, rel=1e-3)
    assert near.moved["strength"].iloc[0] > 3 * LEAST_STRENGTH
    with pytest.raises(ValueError, match=r"drift='learned' needs method='vi': found 'map', .* as drift=5000"):
        fitted("map", "learned")


def test_the_strength_that_is_learned_maximises_the_density():
    rng = np.random.default_rng(0)
    known = rng.dirichlet(np.ones(30), 20)
    prior = Drifting.around(known, bayesnmf.Dirichlet(0.3), "learned", 21, 0.01)
    logs = np.log(np.vstack([np.maximum(rng.gamma(4000.0 * known + 0.01), 1e-300), np.ones((1, 30))]))
    logs -= np.log(np.exp(logs).sum(axis=1, keepdims=True))

    def height(strength):
        c = strength * known + 0.01
        return (gammaln(c.sum(axis=1)) - gammaln(c).sum(axis=1) + (c * logs[:20]).sum(axis=1)).sum()

    found = prior.learned_from([logs])
    assert found.strength == pytest.approx(4000, rel=0.15)
    assert all(height(found.strength) > height(found.strength * (1 + step)) for step in (-0.01, 0.01))
    np.testing.assert_allclose(found.concentration[:20], found.strength * known + 0.01)
    np.testing.assert_allclose(found.concentration[20], 0.3)


def test_new_components_stand_beside_known_ones():
    rng = np.random.default_rng(1)
    counts, known, _ = made(0.1)
    new = rng.dirichlet(np.full(24, 0.2))
    more = rng.poisson(rng.gamma(1.0, 400.0, (40, 1)) * new)
    fit = bayesnmf.fit(counts + more, rank=4, fixed_components=known, drift=2000, seed=0, options=SOME["vi"])
    last = fit.components[3]
    assert last @ new / np.linalg.norm(last) / np.linalg.norm(new) > 0.95
    assert fit.moved.index.tolist() == NAMES
    assert (fit.moved["cosine"] > 0.95).all()


def test_a_file_and_other_orders_and_names_keep_what_has_moved(tmp_path):
    fit, _ = fitted("vi", 300.0)
    fit.save(tmp_path / "fit.nc")
    pd.testing.assert_frame_equal(bayesnmf.load(tmp_path / "fit.nc").moved, fit.moved)
    assert fit.rename({"first": "renamed"}).moved.index.tolist() == ["renamed", *NAMES[1:]]
    prior = fit.priors.components.reordered(np.array([2, 0, 1]), -2)
    np.testing.assert_array_equal(prior.given_rows[0], fit.priors.components.known[[2, 0, 1]])
    assert fitted("vi", None)[0].moved is None
    again = fitted("vi", 300.0, checkpoint=tmp_path / "kept")[0]
    np.testing.assert_array_equal(again.components, fit.components)
    np.testing.assert_array_equal(fitted("vi", 300.0, checkpoint=tmp_path / "kept")[0].components, fit.components)


def test_several_matrices_have_their_own_part():
    counts, known, _ = made(0.3)
    both = {"one": counts[:, :10], "two": counts[:, 10:]}
    names = [f"{name}: {j}" for name, size in (("one", 10), ("two", 14)) for j in range(size)]
    fit = bayesnmf.fit(both, fixed_components=known.set_axis(names, axis=1), drift=300, seed=0, options=SOME["vi"])
    part = fit.matrix("one")
    assert part.moved["cosine"].between(0.5, 1).all()
    assert part.priors.components.known.shape == (3, 10)


def test_a_drift_without_limit_is_a_fit_of_known_components():
    one, two = (fitted("vi", drift)[0] for drift in (None, np.inf))
    np.testing.assert_array_equal(one.loadings, two.loadings)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"drift": 100}, "drift needs fixed_components: found none; give fixed_components=catalogue"),
        ({"drift": 0, "fixed_components": np.full((1, 4), 0.25)}, "drift must be at least 1"),
        ({"drift": np.nan, "fixed_components": np.full((1, 4), 0.25)}, "drift must be at least 1"),
        ({"drift": 9, "fixed_components": np.full((1, 4), 0.25), "seeds": {"a": [0]}}, "without seeds: found seeds"),
        ({"drift": 9, "fixed_components": np.full((1, 4), 0.25), "model": "hierarchical_poisson"},
         "drift needs components with a Dirichlet prior: found HierarchicalGamma; use model='gamma_poisson'"),
    ],
)  # fmt: skip
def test_what_means_nothing_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        bayesnmf.fit(np.ones((3, 4), int), **given)


def test_modes_take_it():
    counts, known, _ = made(0.3)
    found = bayesnmf.modes(
        counts, fixed_components=known, drift=300, starts=2, jobs=1, options=VI(max_iter=30), scored=0
    )
    assert found.best.moved["cosine"].max() < 1
