"""The comparison with other tools: workers, clock, objectives, gaps and tables, on small simulated counts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import digamma, gammaln

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import benchmarks.__main__  # noqa: E402
from benchmarks import data, formulas, objectives, report  # noqa: E402
from benchmarks.__main__ import arguments, main, measure  # noqa: E402
from benchmarks.race import Checkpoint, Run, grid  # noqa: E402
from benchmarks.tools import TOOLS  # noqa: E402

NAME, RANK = "80x30", 3
CHOSEN = {
    "ours SCD, extrapolated float64", "scikit-learn NMF mu float32", "ours VI float32", "scikit-learn LDA batch",
    "ours Gibbs",
}  # fmt: skip


@pytest.fixture(scope="module")
def problem() -> data.Problem:
    return data.problem(NAME, "heldout", RANK, seed=1)


@pytest.fixture(scope="module", params=["likelihood", "lda", "gibbs"])
def result(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> report.Result:
    """Some of ours and of scikit-learn's for a fifth of a second each."""
    out = tmp_path_factory.mktemp(request.param)
    given = ["--budget", "0.2", "--threads", "1", "--out", str(out)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(benchmarks.__main__, "TOOLS", [tool for tool in TOOLS if tool.name in CHOSEN])
        return measure(NAME, RANK, request.param, arguments(given))


def dense(problem: data.Problem) -> np.ndarray:
    return problem.counts.matrix.toarray()


def test_loglik_does_not_depend_on_scales_and_is_the_poisson_one_at_the_best(problem: data.Problem) -> None:
    X, rng = dense(problem), np.random.default_rng(0)
    loadings, components = rng.uniform(0.5, 1, (80, RANK)), rng.uniform(0.5, 1, (RANK, 30))
    value = objectives.loglik_at_best_scales(problem, loadings, components)
    other = objectives.loglik_at_best_scales(problem, loadings * rng.uniform(1, 9, (80, 1)), 7 * components)
    assert other == pytest.approx(value, rel=1e-12)
    rates = loadings @ components

    def loglik(scale: Any) -> float:
        return float((X * np.log(scale * rates) - scale * rates - gammaln(X + 1)).sum())

    best = (X.sum(axis=1) / rates.sum(axis=1))[:, None]
    assert value == pytest.approx(loglik(best), rel=1e-12)
    assert value > max(loglik(1.01 * best), loglik(0.99 * best))


def test_bound_is_that_of_smoothed_lda_at_the_best_q_of_the_documents(problem: data.Problem) -> None:
    """Against a dense statement of the bound, with q(documents) settled by the naive update."""
    X = dense(problem)
    gamma, nu = problem.start["gamma"], 1 + 3000 * np.random.default_rng(0).dirichlet(np.full(30, 0.3), RANK)
    value = objectives.evaluate(problem, "lda", {"nu": nu})
    log_beta = digamma(nu) - digamma(nu.sum(axis=1, keepdims=True))
    for _ in range(2000):
        log_theta = digamma(gamma) - digamma(gamma.sum(axis=1, keepdims=True))
        weights = np.exp(log_theta[:, :, None] + log_beta)
        gamma = problem.alpha + np.einsum("ij,ikj->ik", X, weights / weights.sum(axis=1, keepdims=True))

    def kl(q: np.ndarray, p: float, expected: np.ndarray) -> float:
        same = gammaln(q.sum(axis=1)) - gammaln(q).sum(axis=1) - gammaln(p * q.shape[1]) + q.shape[1] * gammaln(p)
        return float((same + ((q - p) * expected).sum(axis=1)).sum())

    log_theta = digamma(gamma) - digamma(gamma.sum(axis=1, keepdims=True))
    fit = float((X * np.log(np.exp(log_theta[:, :, None] + log_beta).sum(axis=1)) - gammaln(X + 1)).sum())
    naive = fit - len(X) - kl(gamma, problem.alpha, log_theta) - kl(nu, problem.eta, log_beta)
    assert value == pytest.approx(naive, rel=1e-7)  # the loadings settle to 1e-4, and the bound is flat at its best
    assert value <= naive + 1e-10 * abs(naive)


def test_both_statements_of_the_loglik_for_each_count_agree(problem: data.Problem) -> None:
    loadings, components = problem.start["loadings"], problem.start["components"]
    X, rates = dense(problem), loadings @ components
    expected = float((X * np.log(rates / rates.sum(axis=1, keepdims=True))).sum() / X.sum())
    assert formulas.sparse_loglik_per_count(problem.counts.matrix, loadings, components) == pytest.approx(expected)
    held_out = objectives.evaluate(problem, "heldout", {"loadings": loadings, "components": components})
    Y = problem.held_out.matrix.toarray()  # type: ignore[union-attr]
    plain = float((Y * np.log(rates / rates.sum(axis=1, keepdims=True))).sum() / Y.sum())
    assert held_out == pytest.approx(plain, abs=1e-5)  # a background of 1e-6 is mixed in


def test_start_is_a_fit_of_the_training_counts(problem: data.Problem) -> None:
    assert problem.counts.total + problem.held_out.total == data.read(NAME, RANK, 1).total  # type: ignore[union-attr]
    np.testing.assert_allclose(problem.start["components"].sum(axis=1), 1)
    np.testing.assert_allclose(problem.start["loadings"].sum(axis=1), problem.counts.row_totals)


def test_checkpoints_are_consistent(result: report.Result) -> None:
    assert [run.tool for run in result.runs] == [t for t in TOOLS if t.task == result.task and t.name in CHOSEN]
    for run in result.runs:
        assert not run.missing
        seconds = np.array([c.seconds for c in run.checkpoints])
        assert np.all(np.diff(seconds) > 0)
        assert np.all(np.diff([c.iterations for c in run.checkpoints]) > 0)
        assert seconds[-1] >= 0.2
        assert run.per_iteration * run.checkpoints[-1].iterations < 5 * seconds[-1]
        if result.task == "gibbs":
            assert len(run.draws) == run.checkpoints[-1].iterations
            continue
        values = np.array([c.value for c in run.checkpoints])
        # All of these are monotone in their own objective; the common formula is that up to float32 and 1e-8.
        assert np.all(np.diff(values) >= -1e-6 * abs(values[0]))


def test_gaps_and_tables_agree_with_the_checkpoints(result: report.Result) -> None:
    tables = report.tables(result)
    assert all(len(row) == len(rows[0]) for rows in tables for row in rows)
    assert set(report.record(result)) == {"title", "best", "runs", "limit", "anchors"}
    if result.task == "gibbs":
        assert [row[0] for row in tables[0][1:]] == [run.tool.name for run in result.runs]
        return
    ends = [run.checkpoints[-1].value for run in result.runs]
    assert result.best >= max(ends)
    for run in result.runs:
        times = [report.reached(run, result.best, gap) for gap in (1e-2, 1e-3, 1e-5)]
        known = [each for each in times if np.isfinite(each)]
        assert known == sorted(known)
        final = (result.best - run.checkpoints[-1].value) / abs(result.best)
        assert np.isfinite(report.reached(run, result.best, max(final, 1e-12)))


def test_seconds_to_a_gap_by_hand() -> None:
    run = Run(TOOLS[0])
    for seconds, value in ((1.0, -101.0), (3.0, -100.01), (4.0, -100.0)):
        run.checkpoints.append(Checkpoint(seconds, int(10 * seconds), value, 0.0))
    np.testing.assert_allclose(report.gaps(run, -100.0), [1e-2, 1e-4, 0], atol=1e-15)
    assert report.reached(run, -100.0, 1e-2) == 1.0
    assert report.reached(run, -100.0, 1e-3) == pytest.approx(2.0)  # half way on the logarithmic scale
    assert report.reached(run, -100.0, 1e-3, "iterations") == pytest.approx(20.0)
    assert report.reached(run, -100.0, 1e-6) == 4.0
    assert np.isnan(report.reached(run, -99.0, 1e-6))


def test_effective_draws_of_independent_numbers() -> None:
    run = Run(TOOLS[0], draws=[9.0] * 500 + np.random.default_rng(0).normal(size=500).tolist())
    run.checkpoints.append(Checkpoint(10.0, 1000, float("nan"), 0.0))
    sizes = report.effective_draws(run)
    assert 300 < sizes["ess"] < 900  # of 500; the first half is left out
    assert sizes["ess_per_second"] == pytest.approx(sizes["ess"] / 5)
    assert sizes["r_hat"] < 1.05


def test_looks_are_geometric_and_end_at_the_budget() -> None:
    looks = grid(10.0, 2.0, least=1.0)
    np.testing.assert_allclose(looks, [1.25, 2.5, 5, 10])


def test_a_tool_that_is_not_installed_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from importlib.util import find_spec

    if find_spec("torchnmf"):
        pytest.skip("torchnmf is installed")
    given = ["--data", NAME, "--rank", "2", "--peers", "torchnmf", "--budget", "0.1", "--out", str(tmp_path)]
    assert main(given) == 0
    assert "torchnmf gave no result: No module named 'torch'" in (tmp_path / "table.md").read_text()
    assert (tmp_path / "results.json").exists()
    assert (tmp_path / f"likelihood_{NAME}_2.png").exists()


def test_interpreters_must_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments(["--python-for", "enstop=/nowhere/python"])
    assert "PEER=PATH" in capsys.readouterr().err
