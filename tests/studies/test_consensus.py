"""Consensus components are those of cNMF: pooled, filtered by density, clustered, and their medians."""

import numpy as np
import pytest
from suites import mostly_long

import bayesnmf
from bayesnmf import BLD, MAP, VI, Gamma, Priors
from bayesnmf.studies.stability.consensus import Pool, form_consensus, local_density, pool_components

RANK, FEATURES, RUNS = 3, 12, 10
COUNTS = bayesnmf.simulate(size=(40, FEATURES), rank=RANK, seed=3).counts
PLANTED = np.kron(np.eye(RANK), np.ones(FEATURES // RANK)) / 4 + 0.01
ALL = np.arange(RANK)
quiet = pytest.mark.filterwarnings("ignore::bayesnmf.inference.status.ConvergenceWarning")


@pytest.fixture(scope="module")
def best():
    return bayesnmf.fit(COUNTS, rank=RANK, seed=0, options=VI(start="random", max_iter=20, tol=0))


def planted_runs(rng, outliers=()):
    """Components of ten runs near the planted ones, each in an order of its own; those of `outliers` are others."""
    runs = PLANTED * rng.uniform(0.9, 1.1, (RUNS, RANK, FEATURES))
    for run, component in outliers:
        runs[run, component] = rng.dirichlet(np.full(FEATURES, 0.2))
    sizes = np.tile([50.0, 20.0, 30.0], (RUNS, 1))
    orders = np.stack([rng.permutation(RANK) for _ in range(RUNS)])
    return np.take_along_axis(runs, orders[..., None], 1), np.take_along_axis(sizes, orders, 1), orders


def test_planted_components_are_recovered_and_planted_outliers_filtered(best):
    outliers = [(2, 0), (5, 1), (7, 2)]
    components, sizes, orders = planted_runs(np.random.default_rng(0), outliers)
    found = form_consensus(best, pool_components(components, sizes, np.arange(RUNS), ALL), RUNS, 0.3, 0.3)
    wrong = {(run, int(place)) for run, k in outliers for place in np.flatnonzero(orders[run] == k)}
    assert set(found.members.index[~found.members["kept"]]) == wrong
    assert found.kept == pytest.approx(27 / 30)
    assert found.clusters["members"].tolist() == [9, 9, 9]
    np.testing.assert_allclose(found.components.sum(axis=1), 1)
    wanted = PLANTED[[0, 2, 1]] / PLANTED.sum(axis=1)[[0, 2, 1], None]  # by falling share of the counts
    np.testing.assert_allclose(found.components, wanted, rtol=0.1)
    assert found.silhouette > 0.9
    for (run, place), line in found.members.iterrows():
        if line["kept"]:
            assert [0, 2, 1][line["cluster"]] == orders[run, place]
        else:
            assert line["cluster"] == -1
            assert np.isnan(line["silhouette"])
    assert "3 outliers" in repr(found)


def test_it_equals_cnmf_written_down_again(best):
    """Kotliar et al. 2019, with loops; clusters by the planted component that is nearest, which k-means must find."""
    components, sizes, _ = planted_runs(np.random.default_rng(1), [(0, 0)])
    found = form_consensus(best, pool_components(components, sizes, np.arange(RUNS), ALL), RUNS, 0.4, 0.3)
    pooled = [components[run, k] / np.sqrt(sum(components[run, k] ** 2)) for run in range(RUNS) for k in range(RANK)]
    neighbours = int(0.3 * RUNS)
    densities = []
    for one in pooled:
        distances = sorted(np.sqrt(sum((one - other) ** 2)) for other in pooled)
        densities.append(sum(distances[: neighbours + 1]) / neighbours)  # cNMF sums over the point itself, too
    np.testing.assert_allclose(found.members["local_density"], densities, atol=1e-7)
    kept = [one for one, density in zip(pooled, densities, strict=True) if density < 0.4]
    nearest = [int(np.argmax(PLANTED @ one)) for one in kept]
    medians = [np.median([one for one, k in zip(kept, nearest, strict=True) if k == c], axis=0) for c in range(RANK)]
    for wanted in medians:
        assert np.abs(found.components - wanted / wanted.sum()).max(axis=1).min() < 1e-12
    silhouettes = []
    for i, one in enumerate(kept):
        mean = [
            np.mean([np.linalg.norm(one - o) for j, o in enumerate(kept) if nearest[j] == c and j != i]) for c in ALL
        ]
        own, other = mean[nearest[i]], min(mean[c] for c in ALL if c != nearest[i])
        silhouettes.append((other - own) / max(own, other))
    assert found.silhouette == pytest.approx(np.mean(silhouettes), abs=1e-6)


def test_the_density_leaves_the_point_itself_out():
    points = np.array([[0.0], [1.0], [1.0], [5.0]])
    distances = np.abs(points - points.T)
    np.testing.assert_allclose(local_density(distances, 1), [1, 0, 0, 4])
    np.testing.assert_allclose(local_density(distances, 2), [1, 0.5, 0.5, 4])


@pytest.fixture(scope="module")
def found():
    return bayesnmf.modes(COUNTS, rank=RANK, starts=6, scored=0, jobs=1, options=VI(start="random", max_iter=100))


def test_the_fit_has_the_consensus_components_and_its_own_loadings(found):
    consensus = found.consensus()
    assert consensus.fit is consensus.fit  # made once
    np.testing.assert_allclose(consensus.fit.components, consensus.components, rtol=1e-9)
    assert consensus.fit.loadings.shape == (40, RANK)
    again = bayesnmf.fit(COUNTS, rank=RANK, seed=5, fixed_components=consensus.components,
                         options=VI(start="random"))  # fmt: skip
    np.testing.assert_allclose(consensus.fit.loadings, again.loadings, rtol=0.02, atol=0.05)
    fitted = consensus.fit.expected_loadings @ consensus.fit.components
    best = found.best.expected_loadings @ found.best.components
    assert np.corrcoef(fitted.ravel(), best.ravel())[0, 1] > 0.99


@quiet
@pytest.mark.parametrize(
    ("model", "method", "priors"),
    mostly_long(
        [
            ("hierarchical_poisson", "vi", Priors()),
            ("dirichlet_poisson", "vi", Priors(components="parameter")),
            ("gamma_poisson", "vi", Priors(components=Gamma(1.0, 1.0))),
            ("poisson", "map", Priors()),
            ("dirichlet_gamma", "bld", Priors()),
        ],
        2,
    ),
)
def test_every_model_has_a_consensus_fit(model, method, priors):
    options = {"map": MAP, "vi": VI, "bld": BLD}[method](priors=priors, max_iter=40)
    runs = bayesnmf.modes(COUNTS, model, RANK, method, starts=4, scored=0, options=options)
    consensus = runs.consensus(density=2.0)
    assert consensus.kept == 1
    shares = consensus.fit.components / consensus.fit.components.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(shares, consensus.components, atol=1e-5)
    if model != "dirichlet_poisson":  # whose totals are given
        fitted = consensus.fit.expected_loadings @ consensus.fit.exposed_components
        assert fitted.sum() == pytest.approx(COUNTS.total, rel=0.1)


@quiet
def test_features_that_all_components_lack_do_not_make_counts_impossible(best):
    unit = np.repeat(PLANTED - 0.01, 2, axis=0)
    unit[:, 0] = 0
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    pool = Pool(unit, np.tile([0, 1], 3), np.repeat(ALL, 2), np.ones(6), np.ones(6))
    consensus = form_consensus(best, pool, 2, 0.5, 0.3)
    assert consensus.components[:, 0].max() == 0
    assert COUNTS.feature_totals[0] > 0
    assert consensus.fit.components[:, 0].min() > 0
    np.testing.assert_allclose(consensus.fit.components, consensus.components, atol=1e-5)


def test_one_component_has_a_consensus_without_silhouette():
    runs = bayesnmf.modes(COUNTS, rank=1, starts=3, scored=0)
    consensus = runs.consensus()
    assert np.isnan(consensus.silhouette)
    assert consensus.clusters["members"].tolist() == [3]
    np.testing.assert_allclose(consensus.components, runs.best.components, rtol=1e-3)
    assert "silhouette –" in repr(consensus)


def test_known_components_stay_in_front():
    known = COUNTS.feature_totals[None] / COUNTS.total
    options = VI(tol=1e-5, threads=1)
    runs = bayesnmf.modes(COUNTS, rank=3, starts=5, scored=0, options=options, fixed_components=known)
    consensus = runs.consensus(density=2.0)
    np.testing.assert_allclose(consensus.components[0], known[0])
    assert consensus.clusters.index.tolist() == [1, 2]
    assert set(consensus.members["cluster"]) == {1, 2}
    assert len(consensus.members) == 10
    np.testing.assert_allclose(consensus.fit.components[0], known[0])


def test_what_cannot_be_a_consensus_is_refused(found):
    with pytest.raises(ValueError, match=r"must keep at least 3 components.*raise density"):
        found.consensus(density=1e-9)
    with pytest.raises(ValueError, match="density must be positive"):
        found.consensus(density=0)
    with pytest.raises(ValueError, match="neighbourhood must be above 0"):
        found.consensus(neighbourhood=0)
    with pytest.raises(ValueError, match="neighbourhood must be at most 1"):
        found.consensus(neighbourhood=2)
    single = bayesnmf.modes(COUNTS, rank=RANK, starts=1, scored=0)
    with pytest.raises(ValueError, match=r"at least two runs: found one; raise starts"):
        single.consensus()
    unequal = VI(priors=Priors(loadings=Gamma(np.array([1.0, 2.0, 3.0]), 0.1)), max_iter=20, tol=0)
    with pytest.raises(ValueError, match="equal priors of all components"):
        bayesnmf.modes(COUNTS, rank=RANK, starts=2, scored=0, options=unequal).consensus()
    with pytest.raises(ValueError, match="all are known here"):
        bayesnmf.modes(COUNTS, rank=RANK, starts=2, scored=0, fixed_components=found.best.components).consensus()
