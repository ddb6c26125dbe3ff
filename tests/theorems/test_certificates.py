"""`bayesnmf.equivalences`: every row holds on nasty data and on digits, and stops holding where something is wrong."""

import itertools
from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np
import pytest
from bayesnmf.models.augmentation import SharedOut
from plain import plain_vi
from registry import nasty_counts
from scipy import stats
from scipy.sparse import csr_array
from suites import mostly_long

import bayesnmf
from bayesnmf import Effort
from bayesnmf.data.conversion import as_counts
from bayesnmf.datasets import digits
from bayesnmf.inference import sides
from bayesnmf.priors.specification import MODELS
from bayesnmf.text import WIDTH
from bayesnmf.theorems import bounds, explicit, likelihoods, statements, updates
from bayesnmf.theorems.study import FALSE_ALARM, Study, permitted_errors
from bayesnmf.theorems.table import Claim, Equivalences, Worst

NASTY = nasty_counts()
FEW = Effort(draws=10, svi_steps=300, particles=125, entries=400)
MANY = replace(FEW, draws=2000)  # as many as tell the bounds of two programs apart
# Those that compile no program.
COMPILED = (bounds.bounds_of_programs, bounds.stochastic_gradients)
QUICK = [each for each in statements.STATEMENTS if each not in COMPILED]
TINY = np.array([[3, 1, 0], [0, 0, 0], [1, 0, 2]])


def study_of(counts, rank=3, iterations=10, effort=FEW):
    return Study(as_counts(counts, dtype="float64"), rank, iterations, 0, effort)


def rows_of(statements, counts, **settings):
    study = study_of(counts, **settings)
    return list(itertools.chain.from_iterable(statement(study) for statement in statements))


def failing(rows):
    return {row.statement for row in rows if row.holds is False}


# --- everything holds ---------------------------------------------------------------------------------


class Whole(NamedTuple):
    """A run of everything, what it reported, what NumPyro estimated, by model, and the fits by SVI, in order."""

    found: Equivalences
    reports: list
    draws: dict
    svi: list


@pytest.fixture(scope="module")
def whole():
    """Run everything once, on data with empty rows, empty columns and large counts; NumPyro sees one model."""
    reports, draws, svi, plain, fit = [], {}, [], bounds.numpyro_bounds, Study.fit

    def recorded_bounds(fit, _, *arguments, **keywords):  # as many draws as tell the two programs apart
        draws[fit.model] = plain(fit, MANY.draws, *arguments, **keywords)
        return draws[fit.model]

    def recorded_fit(study, counts, model, method, *more):
        found = fit(study, counts, model, method, *more)
        svi.extend([found] if method == "svi" else [])
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Study, "fit", recorded_fit)
        patch.setattr(bounds, "numpyro_bounds", recorded_bounds)
        patch.setattr(bounds, "MODELS", ("gamma_poisson",))
        found = bayesnmf.equivalences(NASTY, 3, iterations=10, effort=FEW, progress=lambda *told: reports.append(told))
    return Whole(found, reports, draws, svi)


def with_svi_of(monkeypatch, runs):
    """Let runs of SVI end where these ended, one after the other."""
    fit, ends = Study.fit, iter(runs)

    def ended(study, counts, model, method, *more):
        return next(ends) if method == "svi" else fit(study, counts, model, method, *more)

    monkeypatch.setattr(Study, "fit", ended)


def judge_svi(monkeypatch, runs):
    """Return the statements about SVI that fail where runs end like this."""
    with_svi_of(monkeypatch, runs)
    return failing(rows_of([bounds.stochastic_gradients], NASTY, effort=replace(FEW, draws=50)))


def test_every_statement_holds_and_says_what_it_needs(whole):
    found = whole.found
    assert found.hold, found
    assert {row.number for row in found.rows} == set(range(1, 13))
    assert [row.number for row in found.rows] == sorted(row.number for row in found.rows)
    assert all(row.note for row in found.rows if row.holds is None)
    assert sum("needs at most 100,000 allocations" in row.note for row in found.rows) == 3
    steps = len(statements.STATEMENTS)
    assert [told[:3] for told in whole.reports] == [("equivalences", done, steps) for done in range(steps + 1)]
    judged = [row for row in found.rows if row.holds is not None]
    assert all(np.isfinite([row.left, row.right, row.difference, row.tolerance]).all() for row in judged)
    assert found.judged == len(judged)


def test_both_sides_stand_in_the_table(whole):
    table = whole.found.table
    assert list(table.columns) == [
        "number", "statement", "source", "left", "right", "difference", "tolerance", "holds", "note",
    ]  # fmt: skip
    equal = table[table.holds.notna() & ~table.statement.str.contains("≤")]
    np.testing.assert_allclose(equal.difference, (equal.left - equal.right).abs())
    lesser = table[table.holds.notna() & table.statement.str.contains("≤")]
    np.testing.assert_allclose(lesser.difference, lesser.left - lesser.right)
    assert (table.holds.dropna() == (table.difference <= table.tolerance)[table.holds.notna()]).all()


def test_the_text_is_the_same_in_a_notebook(whole, monkeypatch):
    plain = repr(whole.found)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", lambda *_: pytest.fail("it must be text, not a display"))
    assert repr(whole.found) == plain


def test_particles_follow_the_seed_of_the_study(monkeypatch):
    seen = []

    def kept(*arguments, plain=bounds.log_evidence, **settings):
        if arguments[3] == "tokens":  # the other is exact
            seen.append(settings.get("seed"))
        return plain(*arguments, **settings)

    monkeypatch.setattr(bounds, "log_evidence", kept)
    rows_of([bounds.evidence], TINY, rank=2)
    assert seen == [0], "the seed of `study_of`"


def test_it_prints_in_120_columns_and_saves(whole, tmp_path):
    found = whole.found
    text = repr(found)
    assert max(map(len, text.splitlines())) <= 120
    assert "[GP] lemma B.1" in text  # rich would take it for markup
    assert f"{found.judged} of {found.judged} judged rows hold" in text
    assert "\x1b" not in text
    found.save(tmp_path / "table.csv")
    lines = (tmp_path / "table.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(found.rows) + 1


def check_rows_of_programs(rows, model):
    """The bounds of the two programs are told apart, or the comparison says little."""
    rows = [row for row in rows if row.statement.startswith(f"{model}: ELBO in closed form")]
    assert [row.statement.split(" of the ")[1] for row in rows] == ["augmented program", "marginal program"]
    gap = rows[1].right - rows[0].right
    assert all(0 < row.tolerance < gap / 4 for row in rows)


def test_numpyro_tells_the_bounds_of_two_programs_apart(whole):
    assert list(whole.draws) == ["gamma_poisson"]
    check_rows_of_programs(whole.found.rows, "gamma_poisson")
    assert bounds.MODELS == MODELS


@pytest.mark.long
def test_numpyro_sees_all_models():
    rows = rows_of([bounds.bounds_of_programs], NASTY, effort=MANY)
    assert not failing(rows), Equivalences(tuple(rows), "all models")
    for model in MODELS:
        check_rows_of_programs(rows, model)


def test_svi_starts_low_and_ends_near(whole):
    found = whole.found
    rows = {row.statement: row for row in found.rows}
    lost = rows["gamma_poisson: coordinate ascent − SVI ≤ a tenth of the rough start's loss"]
    assert lost.right > 1  # nats: the start was rough
    assert 0 < lost.left < lost.right
    assert lost.tolerance < lost.right  # what the steps' noise adds decides nothing
    assert [len(run.trace) for run in whole.svi] == [FEW.svi_steps] * 3


def test_every_statement_holds_on_digits():
    rows = rows_of(QUICK, digits().rows(slice(10)), rank=3)
    assert not failing(rows), Equivalences(tuple(rows), "digits")


def test_a_cut_says_what_it_left_out():
    study = study_of(digits().rows(slice(60)), effort=Effort(entries=500))
    rows, features, note = study.part
    small, said = study.small
    assert small.nnz <= 500
    assert small.shape == (len(rows), len(features))
    assert said == note == f"on {len(rows)} of 60 rows, {len(features)} of 64 features"
    np.testing.assert_array_equal(small.matrix.toarray(), study.counts.matrix.toarray()[np.ix_(rows, features)])
    assert small.total == study.counts.rows(rows).total
    assert any(note in row.note for row in bounds.two_paths(study))


@pytest.mark.parametrize("model", ["gamma_poisson", "dirichlet_gamma"])
def test_a_cut_fit_is_its_own_q_of_what_is_left(model):
    study = study_of(digits().rows(slice(60)), effort=Effort(entries=500))
    whole = study.fit(study.counts, model, "vi", bayesnmf.VI(max_iter=5, tol=0))
    cut = study.part.restrict_fit(whole)
    rows, features, _ = study.part
    for side, at in (("loadings", rows), ("components", np.s_[:, features])):
        name = "shape" if (model, side) == ("gamma_poisson", "loadings") else "concentration"
        full, kept = (getattr(getattr(fit.posterior, side), name) for fit in (whole, cut))
        np.testing.assert_array_equal(full[at], kept)
    np.testing.assert_allclose(cut.components.sum(axis=1), 1)
    assert bayesnmf.elbo_augmented(cut) > bayesnmf.elbo_augmented(whole)


def test_one_row_is_kept_however_long():
    assert len(study_of(NASTY, effort=Effort(entries=1)).part.rows) == 1


ODD = {"one count": [[0, 0, 1], [0, 0, 0]], "one row": [[5.0, 1.0]], "one feature": [[3], [0], [4]]}


@pytest.mark.parametrize(
    ("name", "rank"),
    mostly_long([("one row", 1), ("one count", 2), ("one feature", 1), ("one row", 2), ("one feature", 2)], 2),
)
def test_every_statement_holds_on_odd_shapes(name, rank):
    rows = rows_of(QUICK, ODD[name], rank=rank, iterations=3)
    assert not failing(rows), Equivalences(tuple(rows), "odd")


def test_fractions_skip_what_needs_whole_numbers():
    rows = rows_of(QUICK, NASTY + 0.25 * (NASTY > 0))
    assert not failing(rows)
    assert sum(row.note == "needs whole numbers" for row in rows) == 2 + 3


def test_sparse_counts_and_dense_ones_are_the_same():
    one, other = (rows_of([updates.joint_and_plsa], counts) for counts in (NASTY, csr_array(NASTY)))
    assert one == other


EVIDENCE_OF_TINY = {}


def evidence_of_tiny(counts, model, rank, method, **settings):
    """What `log_evidence` says of the tiny counts: found once for all tests that change what is done with it."""
    if method not in EVIDENCE_OF_TINY:
        EVIDENCE_OF_TINY[method] = bayesnmf.log_evidence(counts, model, rank, method, **settings)
    return EVIDENCE_OF_TINY[method]


def test_tiny_counts_have_the_exact_evidence():
    rows = {row.statement: row for row in rows_of([bounds.evidence], TINY, rank=2)}
    exact = bayesnmf.log_evidence(
        TINY,
        "dirichlet_gamma",
        2,
        "exact",
        priors=bayesnmf.Priors(
            bayesnmf.ScaledDirichlet(bounds.ALPHA, bounds.SHAPE, bounds.SHAPE / TINY.sum(axis=1).mean()),
            bayesnmf.Dirichlet(bounds.ETA),
        ),
    )
    for statement in ("particles estimate log Σ_S p(S)", "elbo_augmented ≤ log Σ_S p(S)"):
        assert rows[statement].right == exact.log_evidence
        assert rows[statement].holds
    gap = rows["elbo_augmented ≤ log Σ_S p(S)"].difference
    assert -5 < gap < -0.01  # nats, of seven counts: bounds of the same thing


def test_one_component_has_one_allocation_however_many_counts():
    """The evidence is exact then, and of the same rows as the bounds that it is held against."""
    rows = rows_of([bounds.evidence], digits().rows(slice(60)), rank=1, effort=replace(FEW, entries=500, particles=10))
    assert not failing(rows)
    assert all(row.holds and row.note.startswith("on ") for row in rows)
    (few,) = (row for row in rows_of([bounds.evidence], 10**6 * np.eye(3), rank=1) if row.holds is None)
    assert few.note == "needs at most 2,000,000 counts in all"


@pytest.mark.long
def test_svi_holds_on_few_counts():
    """Where a climb is short beside the noise of the steps, and optima are many."""
    counts = np.random.default_rng(0).poisson(4.0, (10, 8))
    rows = rows_of([bounds.stochastic_gradients], counts, rank=8, effort=Effort(draws=100))
    assert len(rows) == 4
    assert not failing(rows), Equivalences(tuple(rows), "few")


@pytest.mark.parametrize("apart", [2e-15, 1e-3])
def test_draws_that_do_not_vary_are_judged_by_rounding(monkeypatch, apart):
    """Draws that are all the same hold where they are the bound but for the last bits, and only there."""
    monkeypatch.setattr(bounds, "MODELS", ("dirichlet_poisson",))
    monkeypatch.setattr(
        bounds,
        "numpyro_bounds",
        lambda fit, draws, *_, **__: np.full((draws, 2), bayesnmf.elbo_augmented(fit) - apart),
    )
    rows = rows_of([bounds.bounds_of_programs], [[3], [2], [0], [5]], rank=1)
    assert [row.holds for row in rows] == [apart < 1e-9] * 2
    assert all(0 < row.tolerance < 1e-9 for row in rows)


@pytest.mark.long
@pytest.mark.parametrize("counts", [[[3], [2], [0], [5]], [[4]]], ids=["one feature", "one count"])
def test_a_bound_that_does_not_vary_is_judged_by_rounding(monkeypatch, counts):
    """One component of one feature: every draw of NumPyro's is the bound itself, but for the last bits."""
    monkeypatch.setattr(bounds, "MODELS", ("dirichlet_poisson",))
    rows = rows_of([bounds.bounds_of_programs], counts, rank=1)
    assert not failing(rows), Equivalences(tuple(rows), "one")
    assert all(0 < row.tolerance < 1e-9 for row in rows)


def test_tokens_are_counted_in_slices(monkeypatch):
    """The same sum whatever the size of a slice, and no slice holds more tokens."""
    rng, held = np.random.default_rng(0), []
    counts = as_counts(rng.poisson(2.0, (6, 5)) * rng.integers(1, 40, (6, 5)), dtype="float64")
    point = rng.gamma(1.0, size=(6, 3)), rng.gamma(1.0, size=(3, 5))
    expected = np.sum(counts.matrix.toarray() * np.log(point[0] @ point[1]))
    repeat = np.repeat
    monkeypatch.setattr(np, "repeat", lambda values, times: held.append(int(times.sum())) or repeat(values, times))
    for block in (1, 7, 30, 10**6):
        monkeypatch.setattr(explicit, "BLOCK", block)
        held.clear()
        np.testing.assert_allclose(explicit.token_loglik(counts.matrix, *point), expected, rtol=1e-12)
        assert sum(held) == counts.total
        assert max(held) <= block


# --- a certificate can fail ---------------------------------------------------------------------------


def scaled(function, factor, which=0):
    """Return a function whose result, or one of several, is multiplied."""

    def wrong(*arguments, **keywords):
        found = function(*arguments, **keywords)
        if not isinstance(found, tuple):
            return found * factor
        return tuple(part * factor if at == which else part for at, part in enumerate(found))

    return wrong


STATEMENTS = {
    "lasso θ": ["lasso, τ = 0.5: θ = θ without penalty / (1+τ)"],
    "lasso β": ["lasso: β = β without penalty"],
    "topics L": ["EM of the topic model: L of joint updates, mapped"],
    "topics F": ["EM of the topic model: F of joint updates, mapped"],
    "half": ["each half of an alternating update, mapped, is half a step of EM"],
    "updates": ["EM: θ of multiplicative updates", "EM: β of multiplicative updates"],
    "pseudo": ["MAP: θ of MLE with pseudo-samples", "MAP: β of MLE with pseudo-samples"],
    "constant": ["ELBO Gamma–Poisson − ELBO Dirichlet–Poisson = Σ log NB(Nᵢ) − log Poisson(Nᵢ; 1)"],
    "lemma 1": ["log Poisson(X | θβ) = log Multinomial(X | LF) + Σ log Poisson(Nᵢ; sᵢ)"],
    "allocations": ["log p(X) = log p(S) − log p(S | X) at a drawn S"],
    "multinomial": ["Poisson = multinomial + Σ log Poisson(Nᵢ; 1)"],
    "tokens": ["Poisson = categorical tokens + a constant of the data"],
    "LDA bound": ["LDA bound = truncated bound + truncated terms"],
    "log p(S)": [f"log p(S) of {which}: kernel = formula" for which in ("KL-NMF", "the best decomposition")],
}


def slightly(name, which=0):
    """Return the place of a formula, and the formula a millionth too large."""
    return explicit, name, scaled(getattr(explicit, name), 1 + 1e-6, which)


MUTATIONS = {
    "multiplicative update": (slightly("lee_seung", which=1), ["updates"]),
    "joint update of θ": (slightly("joint_step", which=0), ["lasso θ"]),  # EM of the topic model normalises it
    "joint update of β": (slightly("joint_step", which=1), ["lasso β", "topics F", "half"]),
    "topic model": (slightly("topic_step", which=0), ["topics L", "half"]),
    "constant": ((explicit, "log_negative_binomial", lambda totals, shape, rate: 0.0 * totals), ["constant"]),
    "multinomial": (slightly("multinomial_loglik"), ["lemma 1", "multinomial"]),
    "tokens": (slightly("token_loglik"), ["tokens"]),
    "allocations": (slightly("drawn_allocation", which=1), ["allocations"]),
    "log p(S)": (slightly("log_p_decomposition"), ["log p(S)"]),
    "LDA bound": ((likelihoods, "elbo_augmented", scaled(likelihoods.elbo_augmented, 1 + 1e-6)), ["LDA bound"]),
    "Poisson kernel": (
        (likelihoods, "poisson_loglik", scaled(likelihoods.poisson_loglik, 1 + 1e-6)),
        ["lemma 1", "allocations", "multinomial", "tokens"],
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_it_fails_where_something_is_wrong_and_only_there(monkeypatch, name):
    wrong, expected = MUTATIONS[name]
    monkeypatch.setattr(*wrong)
    statements = [each for each in QUICK if each not in (bounds.two_paths, bounds.evidence)]  # they use none of these
    found = failing(rows_of(statements, NASTY, iterations=5))
    assert found == {each for key in expected for each in STATEMENTS[key]}


def test_a_wrong_exposure_is_found(monkeypatch):
    """Of the components: only those with a Gamma prior, or none, make use of it."""
    monkeypatch.setattr(sides, "exposure_of_components", scaled(sides.exposure_of_components, 1.01))
    statements = [updates.joint_and_plsa, updates.lasso, updates.multiplicative_updates, updates.pseudo_samples]
    found = failing(rows_of(statements, NASTY))
    assert found == {each for key in ("updates", "pseudo") for each in STATEMENTS[key]}


def test_another_q_of_the_loadings_is_found(monkeypatch):
    """Shapes a millionth too large in one of the two variational algorithms."""
    kept = updates.package_route

    def wrong(counts, options, start, rank):
        off = 1e-6 * isinstance(options.priors.loadings, bayesnmf.Gamma)
        for point in kept(counts, options, start, rank):
            yield point._replace(loadings=point.loadings * (1 + off))

    monkeypatch.setattr(updates, "package_route", wrong)
    found = failing(rows_of([updates.two_bounds], NASTY))
    assert found == {"VI: γ of Gamma–Poisson = γ of Dirichlet–Poisson", "VI of Gamma–Poisson: Σₖ γᵢₖ = Σα + Nᵢ"}


def test_bounds_above_the_evidence_are_found(monkeypatch):
    monkeypatch.setattr(bounds, "log_evidence", evidence_of_tiny)
    monkeypatch.setattr(bounds, "elbo_augmented", lambda fit: bayesnmf.elbo_augmented(fit) + 5)
    assert "elbo_augmented ≤ log Σ_S p(S)" in failing(rows_of([bounds.evidence], TINY, rank=2))


@pytest.mark.parametrize("what", ["constant", "another q"])
def test_numpyro_finds_a_wrong_bound(monkeypatch, whole, what):
    """A bound that is too high by twice the tolerance, and that of another q, against the draws of the whole run."""
    statement = "gamma_poisson: ELBO in closed form = ELBO of the augmented program"
    tolerance = next(row.tolerance for row in whole.found.rows if row.statement == statement)

    def wrong(fit):
        if what == "constant":
            return bayesnmf.elbo_augmented(fit) + 2.1 * tolerance
        other = bayesnmf.fit(NASTY, fit.model, 3, "vi", seed=0, options=plain_vi(max_iter=2, tol=0))
        return bayesnmf.elbo_augmented(other)

    monkeypatch.setattr(bounds, "MODELS", ("gamma_poisson",))
    monkeypatch.setattr(bounds, "numpyro_bounds", lambda fit, *_, **__: whole.draws[fit.model])
    assert not failing(rows_of([bounds.bounds_of_programs], NASTY))
    monkeypatch.setattr(bounds, "elbo_augmented", wrong)
    assert statement in failing(rows_of([bounds.bounds_of_programs], NASTY))


def test_a_fall_is_found():
    study = study_of(NASTY)
    study.traces.append(("rises", np.array([-3.0, -2.0, -2.0]), 1e-9))
    assert [row.holds for row in bounds.monotone(study)] == [True]
    study.traces.append(("falls", np.array([-3.0, -1.0, -1.5]), 1e-9))
    (row,) = bounds.monotone(study)
    assert (row.holds, row.left, row.right) == (False, -1.0, -1.5)
    assert "falls" in row.note
    study.traces += [
        ("no number", np.array([-3.0, np.nan, -1.0]), 1e-9),
        ("falls far", np.array([-3.0, -9.0]), 1e-9),
    ]
    (row,) = bounds.monotone(study)
    assert row.holds is False
    assert "no number" in row.note


def test_svi_that_stops_short_is_found(monkeypatch, whole):
    """Two runs that end where they started."""
    study = study_of(NASTY)
    best = bounds.optimum(study, "gamma_poisson")
    start = bounds.roughened(study, best, bounds.ROUGH)
    stay = plain_vi(priors=best.priors, start=start, max_iter=0, tol=0)
    started = study.fit(study.counts, "gamma_poisson", "vi", stay)
    close = "gamma_poisson: coordinate ascent − SVI ≤ a tenth of the rough start's loss"
    assert judge_svi(monkeypatch, [started, started, whole.svi[2]]) == {close}


def test_svi_above_the_optimum_is_found(monkeypatch, whole):
    """A bound that counts too much of where the steps end."""
    assert not judge_svi(monkeypatch, whole.svi)
    kept = bounds.elbo_augmented
    monkeypatch.setattr(bounds, "elbo_augmented", lambda fit: kept(fit) + 5 * (fit.method == "svi"))
    above = "gamma_poisson: SVI on the augmented bound ≤ coordinate ascent from there"
    assert above in judge_svi(monkeypatch, whole.svi)


def test_a_marginal_bound_that_falls_is_found(monkeypatch, whole):
    kept = bounds.elbo_marginal

    def wrong(fit, *arguments):
        found = kept(fit, *arguments)
        return found._replace(mean=found.mean - 5 * (fit.method == "svi"))

    monkeypatch.setattr(bounds, "elbo_marginal", wrong)
    falls = "gamma_poisson: marginal bound at coordinate ascent ≤ where SVI on it ends"
    assert falls in judge_svi(monkeypatch, whole.svi)


def test_particles_that_are_off_are_found(monkeypatch):
    def wrong(*arguments, **settings):
        found = evidence_of_tiny(*arguments, **settings)
        return found._replace(log_evidence=found.log_evidence + 0.2 * (found.method == "tokens"))

    monkeypatch.setattr(bounds, "log_evidence", wrong)
    assert failing(rows_of([bounds.evidence], TINY, rank=2)) == {"particles estimate log Σ_S p(S)"}


def test_particles_too_few_to_tell_are_not_judged():
    counts = [[12, 0], [0, 12], [1, 1]]
    rows = rows_of([bounds.evidence], counts, rank=2, effort=replace(FEW, particles=1))
    (row,) = (row for row in rows if row.statement == "particles estimate log Σ_S p(S)")
    assert row.holds is None
    assert "not judged, as it needs more particles" in row.note


def test_the_width_is_that_of_the_draws():
    """As many false alarms as 4 standard errors of a normal make, however few the draws."""
    assert 2 * stats.norm.sf(4.0) == pytest.approx(FALSE_ALARM, rel=0.01)
    for draws in (2, 4, 16, 400):
        assert 2 * stats.t.sf(permitted_errors(draws), draws - 1) == pytest.approx(FALSE_ALARM)
    assert permitted_errors(10**6) == pytest.approx(4.0, abs=0.01)


def test_not_a_number_never_holds():
    claim = Claim(1, "statement", "source")
    assert claim.equal(np.nan, 1.0, 1.0).holds is False
    assert claim.at_most(np.nan, 1.0, 1.0).holds is False
    worst = Worst()
    worst.compare(np.array([[1.0, np.nan]]), np.array([[1.0, 1.0]]))
    worst.compare(np.array([[1.0, 9.0]]), np.array([[1.0, 1.0]]))
    assert worst.judge(claim, 100.0).holds is False
    assert not Equivalences((claim.equal(1, 2, 0.5), claim.not_computed("why")), "title").hold


# --- draws of allocations -----------------------------------------------------------------------------


def test_counts_of_any_size_are_shared_out():
    """Every draw adds up to its count, exactly, and the density is SciPy's; shares may be 0 and 1."""
    rng = np.random.default_rng(0)
    counts = np.array([0.0, 1.0, 2.0, 35_000.0, 3_000_000.0, 5.0])
    chances = rng.dirichlet(np.full(4, 0.5), 6)
    chances[1], chances[5] = [0, 1, 0, 0], [0.5, 0, 0.5, 0]
    with jax.enable_x64(True):
        split = SharedOut(counts, chances)
        S = np.asarray(split.sample(jax.random.key(0), (500,)))
        found = np.asarray(split.log_prob(S[:3]))
    assert S.shape == (500, 6, 4)
    np.testing.assert_array_equal(S.sum(axis=-1), np.broadcast_to(counts, (500, 6)))
    np.testing.assert_array_equal(S, np.floor(S))
    expected = [
        [stats.multinomial.logpmf(s, int(c), p) for s, c, p in zip(one, counts, chances, strict=True)] for one in S[:3]
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    error = np.sqrt(counts[:, None] * chances * (1 - chances) / 500)
    assert np.all(np.abs(S.mean(axis=0) - counts[:, None] * chances) <= 4.5 * error)  # 24 means


def test_the_table_fits_80_columns_and_cuts_no_number(whole):
    large = replace(whole.found.rows[0], left=-987_654_321_098.76, right=-999_999_999_999.999, difference=-1.2e-117)
    text = repr(replace(whole.found, rows=(large, *whole.found.rows)))
    assert max(map(len, text.splitlines())) <= WIDTH
    words = text.split()
    assert {"-987,654,321,098.760", "-999,999,999,999.999", "-1.2e-117"} <= {*words}
    for row in whole.found.rows:
        assert {*row.statement.split(), *row.source.split(), *row.note.split()} <= {*words}
        assert row.holds is None or {f"{row.difference:.2g}", f"{row.tolerance:.2g}"} <= {*words}


# --- the edges ----------------------------------------------------------------------------------------


def test_ctrl_c_returns_what_there_is(monkeypatch):
    def stop(study):
        raise KeyboardInterrupt

    monkeypatch.setattr(statements, "STATEMENTS", (updates.half_steps, stop, updates.lasso))
    found = bayesnmf.equivalences(NASTY, 3)
    assert found.interrupted
    assert [row.number for row in found.rows] == [8]
    assert "interrupted" in repr(found)


def test_an_interrupted_fit_certifies_nothing(monkeypatch):
    from bayesnmf.inference.ascent import coordinate_ascent

    def stop(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(coordinate_ascent, "next_iterate", stop)
    with pytest.raises(KeyboardInterrupt):
        list(bounds.two_paths(study_of(NASTY)))


def test_ctrl_c_among_the_particles_certifies_nothing(monkeypatch):
    def cut_short(*arguments, **settings):
        found = evidence_of_tiny(*arguments, **settings)
        return found._replace(estimates=found.estimates[:-1])

    monkeypatch.setattr(bounds, "log_evidence", cut_short)
    with pytest.raises(KeyboardInterrupt):
        rows_of([bounds.evidence], TINY, rank=2)


def test_a_table_is_saved_where_there_is_a_folder(tmp_path):
    found = Equivalences((Claim(1, "statement", "source").not_computed("why"),), "title")
    with pytest.raises(ValueError, match=r"path must be in a folder that exists: .*create the folder"):
        found.save(tmp_path / "no" / "table.csv")
    with pytest.raises(ValueError, match=r"path must be a file: .* is a folder"):
        found.save(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"rank": 0}, "rank must be at least 1"),
        ({"iterations": 0}, "iterations must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"counts": [[1, -1]]}, "nonnegative"),
        ({"counts": [[0, 0]]}, "counts must contain at least one count"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(settings, rule):
    with pytest.raises(ValueError, match=rule):
        bayesnmf.equivalences(**{"counts": NASTY, "rank": 2, **settings})


def test_efforts_that_make_no_sense_are_refused():
    with pytest.raises(TypeError, match=r"effort must be bayesnmf\.Effort"):
        bayesnmf.equivalences(NASTY, 2, effort=3)
    with pytest.raises(ValueError, match="draws must be at least 2"):
        Effort(draws=1)
    with pytest.raises(ValueError, match="entries must be at least 1"):
        Effort(entries=0)
    with pytest.raises(ValueError, match=r"svi_models must be one of .*found 'lda'"):
        Effort(svi_models=("lda",))
    assert Effort(svi_models=()).svi_models == ()
