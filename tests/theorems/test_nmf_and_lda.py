"""[F], as corrected: the bound of LDA becomes the objective of KL-NMF with a regulariser as documents grow."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from scipy.special import digamma, gammaln, rel_entr, xlogy

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "published" / "nmf_and_lda.py"
FACTORS = 2 ** np.arange(0, 13, 2)


@pytest.fixture(scope="module")
def script():
    """The benchmark, as a module, of fewer and shorter documents and two components, which settle sooner."""
    spec = importlib.util.spec_from_file_location("nmf_and_lda", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.DOCUMENTS, module.WORDS, module.RANK = 20, 12, 2
    return module


@pytest.fixture(scope="module")
def gaps(script):
    return script.measure(0, FACTORS)


@pytest.fixture
def point():
    """Counts, α, γ and components, anywhere."""
    rng = np.random.default_rng(0)
    alpha = rng.uniform(0.5, 2.0, 3)
    return rng.poisson(3, (6, 5)), alpha, alpha + rng.gamma(2.0, 2.0, (6, 3)), rng.dirichlet(np.ones(5), 3)


def test_the_approximation_is_the_bound_with_both_series_cut_off(script, point):
    """The full bound, dense, with stand-ins for logΓ(γ) and ψ(γ)."""
    counts, alpha, gamma, components = point

    def cut(x):
        return x * np.log(x) - x

    def bound(log_gamma, psi):
        expected_log = psi(gamma) - psi(gamma.sum(axis=1, keepdims=True))
        loglik = xlogy(counts, np.exp(expected_log) @ components).sum()
        of_alpha = gammaln(alpha.sum()) - gammaln(alpha).sum()
        of_gamma = log_gamma(gamma).sum() - log_gamma(gamma.sum(axis=1)).sum()
        tilt = ((alpha - gamma) * expected_log).sum()
        return loglik - len(counts) * (1 - of_alpha) - gammaln(counts + 1).sum() + of_gamma + tilt

    # Sums of a hundred terms of order 10: 1e-12 is rounding.
    np.testing.assert_allclose(script.approximate_bound(*point), bound(cut, np.log), rtol=1e-12)
    # And with one more term of each series, whose parts of ψ cancel where γ is α + expected allocations.
    step = bound(lambda x: cut(x) + np.log(2 * np.pi / x) / 2, np.log) - bound(cut, np.log)
    np.testing.assert_allclose(script.predict_gap(gamma), step, rtol=1e-12)
    assert abs(bound(gammaln, digamma) - bound(cut, np.log)) > 1  # the series do matter


def test_the_approximation_is_kl_nmf_and_a_regulariser(script, point):
    """−KL(X ‖ diag(N) pβ) + Σ α log p and a constant of the data: differences between two points agree."""
    counts, alpha, gamma, components = point
    rng = np.random.default_rng(1)
    other = rng.gamma(2.0, 2.0, gamma.shape), rng.dirichlet(np.ones(5), 3)

    def objective(gamma, components):
        p = gamma / gamma.sum(axis=1, keepdims=True)
        means = counts.sum(axis=1, keepdims=True) * (p @ components)
        divergence = rel_entr(counts, means).sum() - counts.sum() + means.sum()
        return -divergence + (alpha * np.log(p)).sum()

    found = script.approximate_bound(counts, alpha, *other) - script.approximate_bound(counts, alpha, gamma, components)
    np.testing.assert_allclose(found, objective(*other) - objective(gamma, components), rtol=1e-11)


def test_what_is_left_is_the_next_term_of_the_series(gaps):
    """The gap is Σ [½ log γ_+ − ½ Σ log γ + ½ (K − 1) log 2π] + O(1/γ): the rest falls like 1/N."""
    rest = np.abs([gap.gap - gap.predicted for gap in gaps[1:]])
    ratios = rest[1:] / rest[:-1]
    # A quarter each time documents are four times as long; proportions that still move change it by a tenth at most.
    assert np.all((ratios > 0.22) & (ratios < 0.28)), ratios
    assert rest[-1] < 0.01


def test_the_gap_per_count_falls_like_log_n_over_n(script, gaps):
    """|gap| = b (log N − c) n gives the local slope −1 + 1 / (log N − c) between two lengths."""
    totals = np.array([gap.counts for gap in gaps])
    size = np.abs([gap.gap for gap in gaps])
    assert np.all(np.diff(size[1:] / totals[1:]) < 0)
    slopes = np.diff(np.log(size / totals)) / np.diff(np.log(totals))
    growth = (script.RANK - 1) / 2 * np.array([gap.log_totals for gap in gaps])
    for at in range(3, len(gaps) - 1):
        offset = size[at] - growth[at]
        foreseen = np.log((growth[at + 1] + offset) / size[at]) / np.log(totals[at + 1] / totals[at]) - 1
        # The remainder 1 / N and the moving proportions, over a gap of some hundred nats.
        assert slopes[at] == pytest.approx(foreseen, abs=0.002)
        assert -1 < slopes[at] < -0.75


def test_the_gap_itself_grows_like_half_k_minus_1_log_n(script, gaps):
    late = gaps[-4:]
    found = np.polyfit([gap.log_totals for gap in late], [gap.gap for gap in late], 1)[0]
    # The proportions of the longest documents move by 1 / sqrt(1600), which moves log p of 40 of them by less than
    # 1 nat in all, over Σ log N that grows by 20 log 64 = 83.
    assert found == pytest.approx(-(script.RANK - 1) / 2, abs=0.01)
