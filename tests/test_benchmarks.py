"""The comparison with other tools: workers, clock, objectives, gaps and tables, on small simulated counts."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import digamma, gammaln

import benchmarks.__main__
from benchmarks import (
    anchors,
    blocks,
    bootstrap,
    chains,
    data,
    draws,
    formulas,
    limit,
    modes,
    objectives,
    priors,
    recommend,
    record,
    record_figure,
    report,
    svd,
    taxa,
    texts,
)
from benchmarks.__main__ import arguments, main, measure, options_of_the_command
from benchmarks.race import Checkpoint, Run, Terms, Worker, grid
from benchmarks.tools import TOOLS

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.long

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
        theta, beta = np.exp(digamma(gamma) - digamma(gamma.sum(axis=1, keepdims=True))), np.exp(log_beta)
        gamma = problem.alpha + theta * ((X / (theta @ beta)) @ beta.T)

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
    chains = 2 if result.task == "gibbs" else 1
    expected = [t for t in TOOLS if t.task == result.task and t.name in CHOSEN]
    assert [(run.chain, run.tool) for run in result.runs] == [(c, t) for c in range(chains) for t in expected]
    for run in result.runs:
        assert not run.missing
        seconds = np.array([c.seconds for c in run.checkpoints])
        assert np.all(np.diff(seconds) > 0)
        assert np.all(np.diff([c.iterations for c in run.checkpoints]) > 0)
        assert seconds[-1] >= 0.2
        assert run.per_iteration * run.checkpoints[-1].iterations < 5 * seconds[-1]
        if result.task == "gibbs":
            # Those of the last round, to which half of the budget is left.
            assert len(run.draws) == run.checkpoints[-1].iterations - run.checkpoints[-2].iterations
            assert all(loglik < 0 and 1 / RANK <= share <= 1 for loglik, share in run.draws)
            continue
        values = np.array([c.value for c in run.checkpoints])
        # All of these are monotone in their own objective; the common formula is that up to float32 and 1e-8.
        assert np.all(np.diff(values) >= -1e-6 * abs(values[0]))


def test_compiled_c_leaves_denormal_numbers_as_they_are() -> None:
    """A library linked with -Ofast takes them for zero, in all that its process computes afterwards."""
    try:
        limit.compiled("float64")
    except limit.NoCompilerError:
        pytest.skip("no C compiler")
    assert np.all(np.full(3, 5e-324) > 0)


def test_gaps_and_tables_agree_with_the_checkpoints(result: report.Result) -> None:
    tables = report.tables(result)
    assert all(len(row) == len(rows[0]) for rows in tables for row in rows)
    assert set(report.record(result)) == {"title", "best", "runs", "limit", "anchors", "sightings"}
    if result.task == "gibbs":
        assert [row[0] for row in tables[0][1:]] == [run.tool.name for run in result.runs if run.chain == 0]
        first, second = (run.draws for run in result.runs)
        assert first[:5] != second[:5]
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


def chains_of_numbers(*levels: float) -> list[Run]:
    """Chains of independent numbers around these levels; of the second functional a tenth as many are independent."""
    rng, runs = np.random.default_rng(0), []
    for chain, level in enumerate(levels):
        numbers = np.stack([rng.normal(level, 1, 1000), np.repeat(rng.normal(level, 1, 100), 10)], axis=1)
        runs.append(Run(TOOLS[0], chain=chain, per_iteration=0.02, draws=[tuple(pair) for pair in numbers.tolist()]))
    return runs


def test_effective_draws_of_independent_numbers() -> None:
    runs = chains_of_numbers(3.0, 3.0)
    sizes = report.effective_draws(runs)
    loglik, share = (sizes[name] for name in report.FUNCTIONALS)
    assert 1500 < loglik["ess"] < 2500  # of 2,000
    assert 120 < share["ess"] < 320  # of 200
    for found in (loglik, share):
        assert found["ess_per_second"] == pytest.approx(found["ess"] / 40)  # 2,000 sweeps of 0.02 s
        assert found["mcse"] == pytest.approx(1 / np.sqrt(found["ess"]), rel=0.15)  # of a standard deviation of 1
        assert found["mean"] == pytest.approx(3, abs=5 * found["mcse"])
    assert report.mixed(sizes)


def test_chains_in_different_modes_have_no_effective_draws() -> None:
    apart = chains_of_numbers(3.0, 9.0)
    assert report.mixed(report.effective_draws(apart[:1]))
    assert not report.mixed(report.effective_draws(apart))
    apart[1].draws = apart[1].draws[: report.FEWEST_DRAWS - 1]
    assert not report.mixed(report.effective_draws(apart))


def test_largest_share_by_hand() -> None:
    counts = csr_array(np.array([[1.0, 2.0], [0.0, 1.0]]))
    loadings = np.array([[0.5, 0.5], [0.9, 0.1]])
    assert formulas.largest_share(counts, loadings) == pytest.approx((3 * 0.5 + 0.9) / 4)
    assert formulas.largest_share(counts, loadings[:, ::-1]) == formulas.largest_share(counts, loadings)


def test_thinned_counts_without_empty_rows_and_features() -> None:
    whole = data.problem(NAME, "lda", RANK, seed=1)
    assert (whole.keep, whole.alpha, whole.eta) == (1.0, 1 / RANK, 1 / RANK)
    variant = data.Variant(keep=0.02, concentrations=(2.0, 0.5))
    thinned = data.problem(NAME, "lda", RANK, 1, variant)
    assert (thinned.keep, thinned.alpha, thinned.eta) == (0.02, 2.0, 0.5)
    assert thinned.counts.total == pytest.approx(0.02 * whole.counts.total, rel=0.3)
    assert (thinned.counts.matrix - whole.counts.matrix).max() <= 0
    filled = data.problem(NAME, "gibbs", RANK, 1, variant).counts
    X = thinned.counts.matrix.toarray()
    np.testing.assert_array_equal(filled.matrix.toarray(), X[X.sum(axis=1) > 0][:, X.sum(axis=0) > 0])
    assert filled.shape < thinned.counts.shape


def test_looks_are_geometric_and_end_at_the_budget() -> None:
    looks = grid(10.0, 2.0, least=1.0)
    np.testing.assert_allclose(looks, [1.25, 2.5, 5, 10])


def test_fasttopics_is_scaled_by_the_c_loop_and_said_of_its_own_data_alone(problem: data.Problem) -> None:
    named = replace(problem, name="pbmc_facs", rank=10)
    twice = {"float64": 2 * anchors.C_LOOP["pbmc_facs", 10]}
    rows = {row.name: row.per_iteration for row in anchors.fasttopics(named, twice, threads=2)}
    assert rows["fastTopics SCD, extrapolated, 2 threads, scaled"] == pytest.approx(2 * 0.54)
    seen = anchors.sightings(named, twice)
    constant = gammaln(dense(problem) + 1).sum()
    assert [row.seconds for row in seen] == pytest.approx([20, 90, 20, 84])
    assert [row.value + constant for row in seen] == pytest.approx([786_977, 813_774, 792_898, 814_640])
    for other in (problem, replace(named, keep=0.5), replace(named, rank=11)):
        assert not anchors.fasttopics(other, twice, threads=2)
        assert not anchors.sightings(other, twice)
    assert not anchors.sightings(named, {})


def test_when_ours_is_where_fasttopics_was(problem: data.Problem) -> None:
    run = Run(next(tool for tool in TOOLS if tool.peer == "ours"))
    run.checkpoints += [Checkpoint(1.0, 1, -90.0, 0.0), Checkpoint(2.0, 2, -80.0, 0.0)]
    seen = [anchors.Sighting("slow", 30.0, -85.0), anchors.Sighting("better", 30.0, -70.0)]
    result = report.Result(problem, "likelihood", 1, 2.0, [run], sightings=seen)
    assert report.table_of_sightings(result)[1:] == [
        ["slow", "30.0", "-85", "2.00 (15×)"],
        ["better", "30.0", "-70", "–"],
    ]


@pytest.mark.skipif(shutil.which("gcc") is None and shutil.which("cc") is None, reason="no C compiler")
def test_the_c_loop_is_timed_as_often_as_asked(problem: data.Problem) -> None:
    loop = anchors.CLoop(problem)
    assert loop.medians() == {}
    for _ in range(3):
        loop.sample()
    loop.seconds["float64"][:] = [(3.0, 9.0), (1.0, 9.0), (2.0, 9.0)]
    assert loop.medians()["float64"] == 2.0
    assert len(loop.seconds["float32"]) == 3
    assert 0 < loop.medians()["float32"] < 1
    assert anchors.CLoop(replace(problem, rank=65)).medians() == {}


def test_a_tool_that_is_not_installed_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from importlib.util import find_spec

    if find_spec("torchnmf"):
        pytest.skip("torchnmf is installed")
    given = ["--data", NAME, "--rank", "2", "--peers", "torchnmf", "--budget", "0.1", "--out", str(tmp_path)]
    assert main(given) == 0
    assert "torchnmf gave no result: No module named 'torch'" in (tmp_path / "table.md").read_text()
    assert (tmp_path / "results.json").exists()
    assert (tmp_path / f"likelihood_{NAME}_2.png").exists()


def test_a_tool_whose_process_has_ended_is_named(tmp_path: Path) -> None:
    worker = Worker(Run(TOOLS[0]), tmp_path, Terms(1.0))  # a folder without a job
    worker.process.wait()
    worker.advance(1.0, None, look=False)
    worker.close()
    assert worker.run.missing == f"ended with an error, see {tmp_path / 'stderr.txt'}"
    assert "job.json" in (tmp_path / "stderr.txt").read_text()


def test_interpreters_must_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments(["--python-for", "enstop=/nowhere/python"])
    assert "PEER=PATH" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--budget", "-1"], "--budget: -1 is not a number above 0"),
        (["--budget", "nan"], "--budget: nan is not a number above 0"),
        (["--rank", "3", "0"], "--rank: 0 is not a whole number of at least 1"),
        (["--threads", "0"], "--threads: 0 is not a whole number of at least 1"),
        (["--seed", "-1"], "--seed: -1 is not a whole number of at least 0"),
        (["--thin", "1.5"], "--thin: 1.5 is not a share"),
        (["--tasks", "lda", "--concentrations", "1", "0"], "--concentrations: 0 is not a number above 0"),
        (["--tasks", "likelihood", "--concentrations", "1", "1"], "--concentrations is for --tasks lda"),
        (["--tasks", "lda", "--chains", "2"], "--chains is for --tasks gibbs"),
    ],
)
def test_options_that_are_refused(given: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments(given)
    assert said in capsys.readouterr().err


def test_every_option_has_a_help_text() -> None:
    actions = options_of_the_command()._actions
    assert len(actions) > 10
    assert [action.dest for action in actions if not action.help] == []


@pytest.mark.parametrize(
    ("module", "options", "lines"),
    [
        (blocks, ["--data", NAME, "--rank", "2", "--repeats", "1", "--processes", "1"], 10),
        (draws, ["--data", NAME, "--rank", "2", "--repeats", "1"], 30),
        (svd, ["--data", NAME, "--rank", "2", "--seeds", "1", "--repeats", "1"], 9),
    ],
)
def test_our_own_code_is_measured_beside_that_of_libraries(module, options, lines, monkeypatch, capsys):
    """Every line of the tables is there, and every number in them is one."""
    monkeypatch.setattr(sys, "argv", ["benchmark", *options])
    monkeypatch.setattr(draws, "DRAWS", 10)
    monkeypatch.setattr(blocks, "LEAST", 0.0)
    module.main()
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) == lines
    assert "nan" not in printed


@pytest.mark.parametrize("blocks_of_rows", [1, 2, 9])
def test_blocks_by_an_executor_are_those_of_in_blocks(blocks_of_rows):
    bounds = np.arange(blocks_of_rows + 1) * 3
    ways = [way(bounds, lambda *block: block, 2) for way in (blocks.in_blocks, blocks.by_executor)]
    assert ways[0] == ways[1]


def test_draws_by_numpy_s_functions_on_our_streams_are_those_of_their_laws():
    """Means within 5 errors, of every law and way."""
    moments = {
        "gamma": lambda a: (a, a),
        "poisson": lambda a: (a, a),
        "binomial": lambda n, p: (n * p, n * p * (1 - p)),
    }
    for name, given in (*draws.GAMMA, *draws.BINOMIAL, *draws.POISSON):
        mean, variance = moments[name](*given)
        for way, draw in enumerate(draws.LAWS[name]):
            found = draws.sum_of(draw, len(given))(draws.begun(way, 3), 20_000, *given) / 20_000
            assert abs(found - mean) < 5 * np.sqrt(variance / 20_000), (name, given, way)


# --- chains ------------------------------------------------------------------------------------------------


def test_seconds_to_the_means_of_a_reference() -> None:
    """Errors of 1.2, 0.4, 0.05, 0.2 and 0.05 sd after 1 to 5 s, with components in another order: 5 s."""
    rng = np.random.default_rng(0)
    right, sd = rng.gamma(1.0, 1.0, (1, 3, 12)), rng.uniform(0.5, 2.0, (3, 12))
    off = np.array([1.2, 0.4, 0.05, 0.2, 0.05])
    wrong = right + off[:, None, None] * sd * rng.choice([-1.0, 1.0], (5, 3, 12))
    done = {"means": wrong[:, [2, 0, 1]], "components": 5, "at": np.arange(1.0, 6.0), "seconds": 5.0}
    reference = {"means": right, "sd": sd}
    np.testing.assert_allclose(chains.errors(done, reference), off, rtol=1e-9)
    assert chains.when_close(done, reference) == "5.0"
    assert chains.when_close({**done, "means": done["means"][:4], "at": done["at"][:4]}, reference) == "> 5"


def test_a_clock_ends_a_run_and_knows_when_steps_were_done() -> None:
    clock = chains.Clock(np.inf)
    clock.steps, clock.seconds = [0, 8, 4, 12], [1.0, 3.0, 2.0, 5.0]  # steps of all four chains together
    np.testing.assert_allclose(clock.at([0, 1, 2, 2.5, 3]), [1, 2, 3, 4, 5])
    with pytest.raises(KeyboardInterrupt):
        chains.Clock(0.0)("gibbs", 1, 10, 0.0)


def test_samplers_keep_when_their_draws_were_made(tmp_path: Path) -> None:
    case = chains.Case(NAME, RANK)
    for sampler in ("marginal", "collapsed"):
        chains.run(case, sampler, 3.0, 1, tmp_path / f"{sampler}.npz")
    done = {sampler: np.load(tmp_path / f"{sampler}.npz") for sampler in ("marginal", "collapsed")}
    for each in done.values():
        assert 0 < each["at"][-1] <= each["seconds"]
        assert np.all(np.diff(each["at"]) >= 0)
        assert each["means"].shape[1:] == (RANK, 110)
    row = chains.row_of(case, "marginal", done["marginal"], {**done["collapsed"], "r_hat": np.array([1.2])})
    assert row["s to 0.1 sd"] == "no reference"
    assert row["reference"].startswith("1.200, ")


def test_modes_prints_a_row_for_each_start_and_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["--data", "80x30:3:4", "--start", "random", "--full", "--plots", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["modes", *given])
    modes.main()
    printed = capsys.readouterr().out
    rows = [line.split(" | ") for line in printed.splitlines() if line.startswith("| 80x30 |")]
    assert [row[2] for row in rows] == ["vi, random"]
    assert all(len(row) == len(modes.HEADINGS) for row in rows)
    assert "gamma_poisson by vi, rank 3" in printed
    assert (tmp_path / "80x30_3_random_modes.png").is_file()


def test_priors_and_starts_are_scored_by_withheld_rows(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["priors", "--data", NAME, "--rank", "2", "--priors", "1,1", "0.3,0.1"])
    priors.main()
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["priors"] for row in rows] == ["1,1", "0.3,0.1"]
    assert all(-np.log(30) - 1 < row["score"] < 0 for row in rows)


def test_scores_against_seconds_go_on_and_have_the_smaller_seconds(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(record, "ENOUGH", 0.0)  # one length each
    monkeypatch.setattr(record_figure, "ROWS", tmp_path / "record.csv")
    monkeypatch.setattr(record_figure, "TITLES", {NAME: NAME})
    tools = ["--tools", "bayesnmf", "scikit-learn"]
    monkeypatch.setattr("sys.argv", ["record", "--data", NAME, "--rank", "2", *tools, "--out", str(tmp_path)])
    record.main()
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["tool"], row["repeat"]) for row in rows] == [(tool, n) for n in (1, 2) for tool in tools[1:]]
    record.main()
    assert capsys.readouterr().out == ""
    record_figure.gather(tmp_path)
    found = record_figure.read()[NAME]
    for tool, (kept,) in found.items():
        mine = [row for row in rows if row["tool"] == tool]
        assert kept == {"length": 1, "score": mine[0]["score"], "seconds": min(row["seconds"] for row in mine)}


def test_bootstraps_are_measured_once(tmp_path, monkeypatch, capsys):
    for name, number in (("ROWS", 20), ("FEATURES", 12), ("RANK", 2)):
        monkeypatch.setattr(bootstrap, name, number)
    given = ["--cases", "poisson", "nb2", "--seeds", "0", "--draws", "8", "--chain", "8", "--keep", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["bootstrap", *given])
    bootstrap.main()
    printed = capsys.readouterr().out
    assert [line.split(" | ")[1] for line in printed.splitlines() if line.startswith("| nb2")] == list(
        bootstrap.ways(8, 8)
    )
    monkeypatch.setattr(bootstrap, "run", None)
    bootstrap.main()
    assert capsys.readouterr().out == printed


def test_a_score_is_passed_by_the_quickest_fit_that_has_it():
    rows = [{"seconds": s, "score": score} for s, score in ((1.0, -3.0), (5.0, -1.0), (4.0, -2.0), (9.0, -2.0))]
    assert [record_figure.passing(rows, score) for score in (-3.0, -2.5, -2.0, -1.5)] == [1.0, 4.0, 4.0, 5.0]
    assert np.isnan(record_figure.passing(rows, -0.5))


def test_topics_of_texts_are_judged_alike(tmp_path, monkeypatch, capsys):
    given = ["--data", "80x30", "--rank", "2", "--tools", "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["texts", *given])
    texts.main()
    printed = capsys.readouterr().out
    rows = [line.split(" | ") for line in printed.splitlines()[2:]]
    assert [row[1].split(" 0.")[0] for row in rows] == ["bayesnmf", "bayesnmf, learned"]
    assert all(1 < float(row[4]) < 30 for row in rows)
    texts.main()  # from the files
    assert capsys.readouterr().out == printed


def test_agreement_of_shares_with_labels_by_hand():
    """Shares that are the labels agree wholly; the lift finds labels that a common topic hides."""
    labels = np.repeat([0, 1, 2], 20)
    shares = np.eye(3)[labels] * 0.3 + 0.05
    shares[:, 0] += 0.5
    found = texts.agreement(shares / shares.sum(axis=1, keepdims=True), labels)
    assert found["nmi"] == 0.0
    assert found["nmi_lift"] == found["accuracy"] == 1.0


def test_the_next_items_are_judged_by_hand():
    """Items that were had do not count, nor do users of whom nothing is held out."""
    train, held = (csr_array(np.array(each, float)) for each in ([[5, 0, 0], [0, 1, 0]], [[0, 0, 2], [0, 0, 0]]))
    assert recommend.judged(np.array([[9.0, 1.0, 2.0], [1.0, 1.0, 1.0]]), train, held) == (1.0, 1.0)
    recall, ndcg = recommend.judged(np.array([[9.0, 3.0, 2.0], [1.0, 1.0, 1.0]]), train, held)
    assert (recall, ndcg) == (1.0, pytest.approx(1 / np.log2(3)))
    counts = recommend.simulated()
    first, second = recommend.split(counts, 1)
    assert abs(first + second - counts).sum() == 0
    assert second.nnz == pytest.approx(recommend.SHARE * counts.nnz, rel=0.05)
    assert counts.shape == (1000, 2000)


def test_rarefied_samples_have_the_reads_of_the_smallest():
    counts = np.random.default_rng(0).poisson([[5.0] * 8, [50.0] * 8])
    found = taxa.rarefied(counts, np.random.default_rng(0))
    assert found.sum(axis=1).tolist() == [counts[0].sum()] * 2
    assert np.all(found <= counts)
