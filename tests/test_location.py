"""The measurement of where approximations put a posterior: the q that it fits, and its figures, on small counts."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from benchmarks import location
from benchmarks.copula import Blocks, Joint, Precision, Schedule, fit_copula, mean_field
from benchmarks.copula_maps import KINDS, Maps

pytestmark = pytest.mark.long

N, M, K = 4, 3, 2
SIZE = (N + M) * K


@pytest.fixture
def joint() -> Joint:
    counts = np.random.default_rng(0).poisson(5.0, (N, M)).astype(float)
    return Joint(counts, K, shape=1.3, rate=0.2, concentration=0.8, total=50.0)


def dense(blocks: Blocks) -> np.ndarray:
    """Return the matrix that stands in blocks."""
    out, cut = np.zeros((SIZE, SIZE)), N * K
    for i, block in enumerate(blocks.rows):
        out[i * K : (i + 1) * K, i * K : (i + 1) * K] = block
    out[:cut, cut:] = blocks.across.reshape(cut, -1)
    out[cut:, :cut] = out[:cut, cut:].T
    out[cut:, cut:] = blocks.components
    return out


def test_log_joint_is_that_of_the_model_with_an_independent_gamma(joint: Joint) -> None:
    """Up to a constant; the Jacobian of (θ, β without its last entry, c) by (t, b) is c^(n − m + 1)."""
    x = np.random.default_rng(1).gamma(2.0, size=(5, SIZE))
    _, b = joint.entries(x)
    (loadings, components), c = joint.factors(x), b.sum(axis=1)
    expected = stats.poisson.logpmf(joint.counts, loadings @ components).sum(axis=(1, 2))
    expected += stats.gamma.logpdf(loadings, joint.shape, scale=1 / joint.rate).sum(axis=(1, 2))
    prior = stats.dirichlet(np.full(M, joint.concentration))
    expected += np.array([sum(prior.logpdf(row) for row in each) for each in components])
    expected += stats.gamma.logpdf(c, joint.total).sum(axis=1) + (N - M + 1) * np.log(c).sum(axis=1)
    np.testing.assert_allclose(np.diff(joint.log_density(x)), np.diff(expected), rtol=1e-10)


@pytest.mark.parametrize("kind", list(KINDS))
def test_derivatives_in_the_coordinates_are_finite_differences(joint: Joint, kind: str) -> None:
    maps = Maps.of(kind, np.geomspace(0.5, 90, SIZE), np.full(SIZE, 2.0))
    z = np.random.default_rng(2).standard_normal((3, SIZE))
    gradient, blocks = joint.derivatives(maps.curve(z))

    def objective(z: np.ndarray) -> float:
        curve = maps.curve(z)
        return float((joint.log_density(curve.x) + curve.log_first.sum(axis=1)).mean())

    steps = 1e-5 * np.eye(SIZE)
    slopes = [(objective(z + step) - objective(z - step)) / 2e-5 for step in steps]
    np.testing.assert_allclose(gradient, slopes, atol=1e-6)
    by = [(joint.derivatives(maps.curve(z + s))[0] - joint.derivatives(maps.curve(z - s))[0]) / 2e-5 for s in steps]
    np.testing.assert_allclose(dense(blocks), -np.array(by), atol=1e-6)


@pytest.mark.parametrize("kind", ["gamma", "normal"])
def test_functions_have_their_means_and_shapes(kind: str) -> None:
    """Under a standard normal coordinate, by quadrature; and they are inverted."""
    shape, mean = np.array([0.7, 1.05, 1.2, 4.0, 40.0]), np.array([2.0, 0.1, 3.0, 50.0, 7.0])
    maps, z = Maps.of(kind, shape, mean), np.linspace(-9, 9, 4001)[:, None] * np.ones(5)
    x, weight = maps.curve(z).x, stats.norm.pdf(z) * 18 / 4000
    found = (weight * x).sum(axis=0)
    np.testing.assert_allclose(found, mean, rtol=2e-3)
    np.testing.assert_allclose(found**2 / (weight * (x - found) ** 2).sum(axis=0), shape, rtol=1e-2)
    inner = np.abs(z[:, 0]) < 5
    np.testing.assert_allclose(maps.inverse(x)[inner], z[inner], atol=1e-6)


def test_precision_solves_and_draws_as_its_matrix_does(joint: Joint) -> None:
    rng = np.random.default_rng(3)
    root = rng.standard_normal((SIZE, SIZE)) / 10
    _, blocks = joint.derivatives(Maps.of("log", np.full(SIZE, 9.0), np.full(SIZE, 2.0)).curve(0.1 * root[:2]))
    blocks = blocks._replace(rows=blocks.rows + 40 * np.eye(K), components=blocks.components + 40 * np.eye(M * K))
    matrix, precision = dense(blocks), Precision(blocks)
    vector = rng.standard_normal(SIZE)
    np.testing.assert_allclose(precision.solve(vector), np.linalg.solve(matrix, vector), rtol=1e-9)
    draws = precision.draws(np.eye(SIZE))
    np.testing.assert_allclose(draws.T @ draws, np.linalg.inv(matrix), atol=1e-12)
    by = rng.uniform(0.5, 2.0, SIZE)
    np.testing.assert_allclose(dense(blocks.scaled(by)), matrix * by[:, None] * by, rtol=1e-12)


@pytest.mark.parametrize("kind", list(KINDS))
def test_copula_of_one_component_is_the_exact_posterior(kind: str) -> None:
    """With K = 1 it is conjugate: loadings are Gamma(a + N_i, r + 1), the component is Dirichlet(η + Σ_i X_ij)."""
    rng = np.random.default_rng(4)
    counts = rng.poisson(rng.uniform(40, 200, (12, 1)) * np.array([0.1, 0.2, 0.3, 0.4])).astype(float)
    joint = Joint(counts, 1, shape=1.5, rate=0.1, concentration=2.0, total=400.0)
    shape, nu = 1.5 + counts.sum(axis=1, keepdims=True), 2.0 + counts.sum(axis=0)[None]
    q = mean_field(kind, joint, (2 * shape, np.array(2.5)), nu / 2)  # with other means, and too narrow or wide
    q = fit_copula(joint, q, Schedule(steps=60, draws=64), rng)
    loadings, components = joint.factors(q.draws(40_000, rng))
    total = nu.sum()
    for draws, mean, sd in (
        (loadings, shape / 1.1, np.sqrt(shape) / 1.1),
        (components, nu / total, np.sqrt(nu * (total - nu) / (total + 1)) / total),
    ):
        np.testing.assert_allclose((draws.mean(axis=0) - mean) / sd, 0, atol=0.06)
        np.testing.assert_allclose(draws.std(axis=0) / sd, 1, atol=0.06)


def test_a_judgement_by_hand() -> None:
    """Intervals of N(1, 2²) against N(0, 1) hold Φ(1 + 3.29) − Φ(1 − 3.29); the mean is 1 off, the ratio 2."""
    draws = stats.norm.ppf((np.arange(20_000) + 0.5) / 20_000)[:, None, None]
    found = location.Summary(*(np.full((1, 1), each) for each in (1.0, 2.0, 1 - 2 * 1.645, 1 + 2 * 1.645)))
    mass = stats.norm.cdf(1 + 2 * 1.645) - stats.norm.cdf(1 - 2 * 1.645)
    assert location.judge(found, draws) == pytest.approx((mass, 1.0, 2.0), abs=1e-3)


def test_the_table_has_a_number_for_every_way(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(location, "COPULAS", {"copula": ("normal", Schedule())})
    monkeypatch.setattr(location, "BUDGETS", [(1, 20, 50)])
    file = str(tmp_path / "long.npz")
    given = ["location", "--data", "40x20", "--rank", "2", "--seeds", "1", "--size", "2", "100", "--reference", file]
    printed = []
    for _ in range(2):
        monkeypatch.setattr(sys, "argv", given)
        location.main()
        printed.append(capsys.readouterr().out.splitlines())
    assert printed[0][1] == printed[1][1]  # of the reference, which is read the second time
    for lines in printed:
        assert len(lines) == 5 + 4
        masses = [float(number) for line in lines[5:] for number in line.split("|")[2].split("/")]
        assert 0 < min(masses) < max(masses) < 1
    monkeypatch.setattr(sys, "argv", [*given[:-2], "--shape", "2", "--reference", file])
    with pytest.raises(SystemExit, match="name another file"):
        location.main()
