"""The evidence of each mode, and of the modes that no start found, from draws of sequential Monte Carlo."""

from dataclasses import replace

import numpy as np
import pytest
from plain import even_priors
from registry import MODELS_AND_PRIORS, over
from smallfits import quietly
from suites import mostly_long

import bayesnmf
from bayesnmf import BLD, MAP, SMC, VI, Dirichlet, Gamma, Gibbs, NegativeBinomial, Priors, Start
from bayesnmf.priors.pair import movable_components
from bayesnmf.studies.stability import runs as running
from bayesnmf.studies.stability.grouping import found_in, least_cosine
from bayesnmf.studies.stability.mode_evidence import evidence_table, run_from_draws
from bayesnmf.studies.stability.runs import Runs

OF_FEATURE = np.repeat([0, 1, 2], 2)
PRIORS = Priors(Gamma(1, 0.25), Dirichlet(1))
COUNTED = (5, 4, 4)  # rows of each kind


def kinds(*rows):
    """Return two counts for each row in each of the two features of its kind; two components leave a kind alone."""
    return np.where(np.repeat([0, 1, 2], rows)[:, None] == OF_FEATURE, 2, 0)


def modes_of(counts, **more):
    options = VI(priors=PRIORS, start="random")
    return bayesnmf.modes(counts, rank=2, scored=0, seed=1, options=options, **{"starts": 8, **more})


def smc_of(counts, **more):
    options = SMC(priors=PRIORS, **{"particles": 5, "runs": 10, "efficiency": 0.95, **more})
    return bayesnmf.fit(counts, rank=2, method="smc", seed=0, options=options)


@pytest.fixture(scope="module")
def found():
    return modes_of(kinds(*COUNTED))


@pytest.fixture(scope="module")
def fit():
    return smc_of(kinds(*COUNTED))


@pytest.fixture(scope="module")
def evidence(found, fit):
    return found.evidence(fit)


@pytest.fixture(scope="module")
def many():
    """Return a fit with as many draws in each run as there are runs."""
    return smc_of(kinds(*COUNTED), particles=16, runs=16)


def shares_and_errors(mode, run, modes):
    """Return shares of the draws, and their standard errors as ratios of sums over runs."""
    runs = run.max() + 1
    all_draws = np.bincount(run.ravel())
    inside = np.array([np.bincount(run[mode == number], minlength=runs) for number in range(modes)])
    shares = inside.sum(axis=1) / mode.size
    errors = (inside - shares[:, None] * all_draws).std(axis=1, ddof=1) * np.sqrt(runs) / mode.size
    return shares, errors


# --- what is right -----------------------------------------------------------------------------------


@pytest.mark.long
def test_modes_that_are_images_of_each_other_have_the_same_evidence():
    """Three kinds of three rows each: every mode has a third of p(X). A mode with a half would be 5 errors away."""
    counts = kinds(3, 3, 3)
    fit, found = smc_of(counts, particles=16, runs=16), modes_of(counts, starts=12)
    assert len(found.table) == 3
    table = found.evidence(fit).table
    assert fit.status.converged
    assert table["known"].tolist() == [True, True, True, False]
    wanted = fit.diagnostics["log_p"] - np.log(3)
    assert np.all(np.abs(table["log_evidence"] - wanted)[:3] < 2.5 * table["se"][:3])
    assert np.all(table["se"][:3] < 0.25)


@pytest.mark.long
def test_shares_are_those_of_chains_that_change_between_the_modes(found, many):
    """Gibbs sampling knows no weights, runs or evidence; shares of 1/3, or those of the starts, would be found."""
    evidence = found.evidence(many)
    options = Gibbs(priors=PRIORS, start="random", chains=4, draws=80, thin=50, algorithm="marginal")
    chains = bayesnmf.fit(kinds(*COUNTED), rank=2, method="gibbs", seed=1, options=options)
    ends, which = run_from_draws(Runs(found.best.counts, *_of(found), 1, 2), chains, lambda *_: None)
    theirs = np.array([found.assign(each) for each in ends])[which].reshape(4, -1)
    shares, errors = shares_and_errors(evidence.mode, many.statistics["run"].astype(int), 3)
    by_chain = np.array([np.bincount(each, minlength=3) / each.size for each in theirs])
    wanted = by_chain.mean(axis=0)
    assert np.all(np.abs(shares - wanted) < 3 * np.hypot(errors, by_chain.std(axis=0, ddof=1) / 2))
    assert wanted[0] > 0.6
    assert np.all(errors < 0.06)
    np.testing.assert_allclose(evidence.table["share"][:3], shares)


def _of(found):
    return found.best.model, found.best.rank, found.best.method, found.options


def test_the_parts_add_up_to_the_evidence(fit, evidence):
    table = evidence.table
    assert table["draws"].sum() == fit.trace.size == evidence.mode.size
    assert table["share"].sum() == pytest.approx(1)
    held = table[table["draws"] > 0]
    assert len(held) == 3
    logs = held["at_least"] + np.log(20)
    np.testing.assert_allclose(logs, fit.diagnostics["log_p"] + np.log(held["draws"] / table["draws"].sum()))
    assert np.logaddexp.reduce(logs) == pytest.approx(fit.diagnostics["log_p"], rel=1e-12)
    np.testing.assert_allclose(held["log_evidence"][held["known"]], logs[held["known"]])


def test_the_mode_of_a_draw_is_that_of_a_run_from_it(found, fit, evidence):
    """In draws of three modes in turn, a run that is credited to another draw would be found."""
    loadings = fit.posterior.loadings.reshape(-1, sum(COUNTED), 2)
    components = fit.posterior.components.reshape(-1, 2, 6)
    places = np.arange(0, len(loadings), 2)
    assert len(np.unique(evidence.mode.ravel()[places])) == 3
    ends = [
        bayesnmf.fit(
            found.best.counts, rank=2, options=replace(found.options, start=Start(loadings[at], components[at]))
        )
        for at in places
    ]
    assert [found.assign(end) for end in ends] == evidence.mode.ravel()[places].tolist()


def test_all_draws_in_one_mode_have_the_standard_error_of_the_fit(many):
    """Numbers of draws by run are proportional to the runs' estimates, up to one draw of about 16."""
    line = evidence_table(many, np.zeros(many.trace.shape, int), 1).loc[0]
    assert line["log_evidence"] == many.diagnostics["log_p"]
    assert line["se"] == pytest.approx(many.diagnostics["log_p_se"], rel=0.1)


@quietly
def test_draws_are_assigned_although_they_are_far_from_their_mode():
    """A rule for the cosines of the draws themselves would leave them out."""
    drawn = bayesnmf.simulate("gamma_poisson", (15, 8), 3, priors=even_priors(total=20), seed=1)
    found = bayesnmf.modes(drawn.counts, rank=3, starts=3, scored=0, options=VI(priors=drawn.priors, start="random"))
    options = SMC(priors=found.best.priors, runs=4, particles=3, efficiency=0.9)
    fit = bayesnmf.fit(drawn.counts, rank=3, method="smc", seed=0, options=options)
    assert all(found.assign(each) is None for each in fit.posterior.components.reshape(-1, 3, 8))
    assert (found.evidence(fit).mode >= 0).mean() > 0.9


@quietly
@pytest.mark.long
def test_draws_are_not_in_the_mode_that_is_nearest():
    """A rule for the nearest mode would misplace them."""
    drawn = bayesnmf.simulate("gamma_poisson", (30, 12), 3, totals=20, seed=1)
    options = VI(priors=even_priors(total=20.0), start="random")
    found = bayesnmf.modes(drawn.counts, rank=3, starts=10, scored=0, options=options)
    options = SMC(priors=found.best.priors, runs=8, particles=8, efficiency=0.9)
    fit = bayesnmf.fit(drawn.counts, rank=3, method="smc", seed=0, options=options)
    draws = fit.posterior.components.reshape(-1, 3, 12)
    evidence = found.evidence(fit)
    assert (evidence.mode >= 0).mean() > 0.9
    leaders, movable = [each.components for each in found.fits], movable_components(fit.priors, 3)
    nearest = [np.argmax([_least(each, leader, movable) for leader in leaders]) for each in draws]
    assert np.mean(nearest == evidence.mode.ravel()) < 0.9


def _least(one, other, movable):
    from bayesnmf.studies.stability.grouping import Found

    return least_cosine(Found(one, np.ones(3)), Found(other, np.ones(3)), movable)


# --- modes that no start found ------------------------------------------------------------------------


def test_a_mode_that_no_start_found_is_reported_with_its_share(found, fit, evidence):
    assert evidence.unfound == []
    assert "every draw is in a mode that a start found" in repr(evidence)
    fewer = replace(found, fits=[found.fits[0], found.fits[2]]).evidence(fit)
    np.testing.assert_array_equal(fewer.mode, np.array([0, -1, 1])[evidence.mode])
    for column in ("draws", "runs", "share", "log_evidence", "se"):
        np.testing.assert_equal(fewer.table.loc["none", column], evidence.table.loc[1, column])
    (other,) = fewer.unfound
    assert least_cosine(found_in(other), found_in(found.fits[1]), movable_components(PRIORS, 2)) > 0.95
    assert f"1 mode that no start found: {evidence.table.loc[1, 'share']:.1%} of the evidence" in repr(fewer)


# --- what is not known --------------------------------------------------------------------------------


def test_nothing_is_known_of_a_fit_that_has_not_converged(found, fit, evidence):
    doubtful = replace(fit, status=fit.status._replace(converged=False))
    unknown = found.evidence(doubtful)
    assert not unknown.table["known"].any()
    assert unknown.table[["share", "log_evidence", "se"]].isna().all(axis=None)
    np.testing.assert_array_equal(unknown.table["at_least"], evidence.table["at_least"])
    np.testing.assert_array_equal(unknown.table["draws"], evidence.table["draws"])
    text = repr(unknown)
    assert f"log p(X), of all modes, in nats: unknown, at least {fit.diagnostics['log_p'] - np.log(20):,.1f}" in text
    assert "±" not in text
    assert "%" not in text.split("CAUTION")[0]
    assert text.count("unknown, at least") == 4
    assert "CAUTION did not converge" in text


@pytest.mark.parametrize(("runs", "known"), [(1, False), (6, False), (7, True), (16, True)])
def test_a_mode_that_few_runs_reach_is_unknown(many, runs, known):
    """The sd of equal numbers in r of 16 runs is 1.31 of their mean at r = 6.1."""
    run = np.repeat(np.arange(16.0)[:, None], 16, axis=1)
    even = replace(many, statistics={**many.statistics, "run": run})
    mode = np.where((run < runs) & (np.arange(16) < 4), 1, 0)
    table = evidence_table(even, mode, 2)
    assert table.loc[1, "runs"] == runs
    assert table.loc[1, "known"] == known
    assert np.isfinite(table.loc[1, "at_least"])
    assert table.loc[1, "share"] == pytest.approx(runs * 4 / 256)
    assert table.loc[0, "known"]


@quietly
def test_a_single_run_knows_no_evidence(found):
    evidence = found.evidence(smc_of(kinds(*COUNTED), runs=1, particles=8))
    assert not evidence.table["known"].any()
    assert "nan" not in repr(evidence)


# --- what it works for, and what is refused -----------------------------------------------------------


@quietly
@over(
    [entry for entry in MODELS_AND_PRIORS if entry.proper],
    default=(
        "dirichlet_poisson-asymmetric", "hierarchical_poisson-asymmetric", "partly_known",
    ),
)  # fmt: skip
@pytest.mark.parametrize("method", mostly_long([pytest.param(MAP, id="map"), pytest.param(VI, id="vi")]))
def test_every_proper_model(entry, method):
    counts = np.random.default_rng(0).poisson(4.0, (6, 5))
    counts[2], counts[:, 3] = 0, 0
    priors = entry.priors((6, 5), 2)
    options = method(priors=priors, max_iter=15)
    found = bayesnmf.modes(counts, entry.model, 2, method.__name__.lower(), starts=3, options=options, scored=0)
    options = SMC(priors=priors, runs=2, particles=4, efficiency=0.8)
    evidence = found.evidence(bayesnmf.fit(counts, entry.model, 2, "smc", seed=0, options=options))
    assert evidence.table["draws"].sum() == 8
    assert evidence.table.loc["none", "draws"] == (evidence.mode < 0).sum()
    assert repr(evidence)


@quietly
def test_best_decompositions_restarts_and_exposures():
    counts = np.random.default_rng(0).poisson(4.0, (6, 5))
    few = SMC(runs=2, particles=2, efficiency=0.6)
    found = bayesnmf.modes(counts, "dirichlet_gamma", 2, "bld", starts=2, options=BLD(max_iter=10), scored=0)
    fit = bayesnmf.fit(counts, "dirichlet_gamma", 2, "smc", seed=0, options=replace(few, priors=found.best.priors))
    assert found.evidence(fit).method == "bld"
    exposure = np.linspace(0.5, 2, 6)
    options = VI(restarts=2, dtype="float32", max_iter=10)
    found = bayesnmf.modes(counts, rank=2, starts=2, options=options, scored=0, row_exposure=exposure)
    more = {"rank": 2, "method": "smc", "seed": 0, "options": replace(few, priors=found.best.priors)}
    assert found.evidence(bayesnmf.fit(counts, row_exposure=exposure, **more)).table["draws"].sum() == 4
    with pytest.raises(ValueError, match="fit must be of the counts and exposures of the modes"):
        found.evidence(bayesnmf.fit(counts, **more))


def test_the_result_does_not_depend_on_the_number_of_jobs_or_on_files(found, fit, evidence, tmp_path):
    fit.save(tmp_path / "fit.nc")
    again = found.evidence(bayesnmf.load(tmp_path / "fit.nc"), jobs=1)
    assert again.table.equals(evidence.table)
    np.testing.assert_array_equal(again.mode, evidence.mode)


def test_progress_and_ctrl_c(found, fit, evidence, monkeypatch):
    seen = []
    found.evidence(fit, progress=lambda *each: seen.append(each))
    distinct = len(np.unique(fit.posterior.components.reshape(evidence.mode.size, -1), axis=0))
    assert [each[:3] for each in seen] == [("runs from draws", done + 1, distinct) for done in range(distinct)]

    def stop(*_, **__):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        found.evidence(fit, progress=stop)
    monkeypatch.setattr(running, "fit", stop)
    with pytest.raises(KeyboardInterrupt):
        found.evidence(fit)


@quietly
def test_other_fits_are_refused(found):
    counts, few = kinds(*COUNTED), SMC(priors=PRIORS, runs=2, particles=2, efficiency=0.5)

    def other(counts=counts, model="gamma_poisson", rank=2, method="smc", options=few):
        return bayesnmf.fit(counts, model, rank, method, seed=0, options=options)

    with pytest.raises(TypeError, match=r"fit must be a result of bayesnmf\.fit"):
        found.evidence(None)
    with pytest.raises(ValueError, match=r"fit must be by method='smc'.*found 'vi'"):
        found.evidence(found.best)
    for message, fit in {
        "fit must have the model of the modes, 'gamma_poisson': found 'dirichlet": other(
            model="dirichlet_poisson", options=replace(few, priors=Priors())
        ),
        "fit must have the rank of the modes, 2: found 3": other(rank=3),
        "fit must be of the counts and exposures of the modes": other(counts=counts + 1),
        r"found another priors\.loadings; give options=bayesnmf.SMC\(priors=found\.best\.priors\)": other(
            options=replace(few, priors=Priors(Gamma(1, 0.3), Dirichlet(1)))
        ),
        "found another priors.components": other(options=replace(few, priors=Priors(Gamma(1, 0.25), Dirichlet(2)))),
    }.items():
        with pytest.raises(ValueError, match=message):
            found.evidence(fit)
    with pytest.raises(ValueError, match="jobs must be at least 1"):
        found.evidence(other(), jobs=0)
    learned = bayesnmf.modes(counts, rank=2, starts=2, options=VI(learn=("loadings",), max_iter=5), scored=0)
    with pytest.raises(ValueError, match=r"needs one prior for all of them: found options\.learn"):
        learned.evidence(other())


@quietly
def test_modes_with_noise_share_out_the_evidence_of_this_noise():
    counts, noise = kinds(*COUNTED), NegativeBinomial(dispersion=0.2)
    options = VI(priors=PRIORS, start="random")
    found = bayesnmf.modes(counts, rank=2, scored=0, starts=6, seed=1, options=options, noise=noise)
    smc = SMC(priors=PRIORS, particles=4, runs=4, efficiency=0.8)
    fit = bayesnmf.fit(counts, rank=2, method="smc", seed=0, options=smc, noise=noise)
    evidence = found.evidence(fit)
    assert evidence.table["draws"].sum() == fit.posterior.chains * fit.posterior.draws
    assert {each.noise for each in [*found.fits, *evidence.unfound]} == {noise}
    plain = bayesnmf.fit(counts, rank=2, method="smc", seed=0, options=smc)
    with pytest.raises(ValueError, match="must have the noise of the modes"):
        found.evidence(plain)
