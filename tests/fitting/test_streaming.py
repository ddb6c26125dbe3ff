"""`MinibatchVI`: blocks of rows that need not fit into memory together."""

import pickle
import re
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from plain import even_priors
from scipy.sparse import csr_array
from suites import mostly_long

import bayesnmf
from bayesnmf import VI, Dirichlet, Gamma, MinibatchVI, NegativeBinomial, Priors, Quasi
from bayesnmf.assessment.bounds import state_of_fit
from bayesnmf.estimators.nmf import seed_of
from bayesnmf.inference.ascent.settled_loadings import BLOCK_ROWS
from bayesnmf.inference.evidence_of_dispersion import evidence_at

RANK, M = 3, 40
MODELS = ("gamma_poisson", "dirichlet_poisson", "dirichlet_gamma")
every_model = pytest.mark.parametrize("model", MODELS)


def simulate(n, seed=0):
    rng = np.random.default_rng([seed, n])
    components = np.random.default_rng(0).dirichlet(np.full(M, 0.2), RANK)
    return rng.poisson(rng.gamma(0.5, 60.0, (n, RANK)) @ components).astype(float)


def options(**more):
    return VI(algorithm="minibatch", **{"batch_size": 50, **more})


def learned(counts, model="gamma_poisson", blocks=4, passes=1, **more):
    stream = MinibatchVI(model, RANK, seed=0, options=options(**more), total_rows=len(counts))
    for _ in range(passes):
        for block in np.array_split(counts, blocks):
            stream.partial_fit(block)
    return stream


COUNTS = simulate(400)
COUNTS[7] = 0


# --- what it learns ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "components", "dtype"),
    mostly_long(
        [
            ("gamma_poisson", None, "float64"),
            ("dirichlet_poisson", "parameter", "float32"),
            ("dirichlet_gamma", None, "float64"),
            ("gamma_poisson", Gamma(1.0, 0.5), "float32"),
        ],
        2,
    ),
)
def test_a_stream_comes_close_to_all_rows_at_once(model, components, dtype):
    even = even_priors(COUNTS, model, RANK)
    priors = Priors(even.loadings, components or even.components)
    stream = learned(COUNTS, model, passes=20, start="svd", priors=priors, dtype=dtype)
    best = bayesnmf.fit(
        COUNTS, model, RANK, seed=0, options=VI(priors=stream.priors, start=stream.result(COUNTS), dtype=dtype)
    )
    gap = best.trace[-1] - stream.elbo(COUNTS)
    assert stream.components.dtype == np.dtype(dtype)
    # Steps of 160 batches still make noise; the scale that Gammas share between the sides is slow to settle.
    size = abs(best.trace[-1] + best.counts.log_factorial)
    assert -1e-4 * size < gap < (3e-2 if isinstance(components, Gamma) else 2e-3) * size
    mine, theirs = (each / each.sum(axis=1, keepdims=True) for each in (stream.components, best.components))
    np.testing.assert_allclose(mine, theirs, atol=0.04 * theirs.max())


@every_model
def test_the_bound_of_all_rows_is_that_of_the_fit(model):
    stream = learned(
        COUNTS, model, priors=even_priors(COUNTS, model, RANK)
    )  # sparse ones have several optima for a row
    fit = stream.result(COUNTS)
    assert fit.trace[-1] * (1 + 1e-6) < stream.elbo(COUNTS) <= fit.trace[-1]  # negative; settled less far
    again = bayesnmf.fit(
        COUNTS, model, RANK, seed=0, options=VI(priors=fit.priors, start=fit, max_iter=2, tol=0, threads=1)
    )
    assert again.trace[0] == pytest.approx(fit.trace[-1], rel=1e-10)
    assert fit.status.converged
    half = stream.elbo(COUNTS[::2])  # an estimate from half of the rows
    assert abs(half - fit.trace[-1]) < 0.15 * abs(fit.trace[-1])


@pytest.mark.parametrize("model", mostly_long(MODELS))
def test_results_are_ordinary_fits(model, tmp_path):
    stream = learned(COUNTS, model)
    fit = stream.result(COUNTS)
    np.testing.assert_allclose(stream.transform(COUNTS), fit.loadings)
    np.testing.assert_allclose(fit.transform(COUNTS), fit.loadings, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(fit.components, stream.components)
    fit.save(tmp_path / "fit.nc")
    np.testing.assert_array_equal(bayesnmf.load(tmp_path / "fit.nc").components, fit.components)
    assert type(stream.components_posterior) is Dirichlet


def test_rows_are_settled_block_by_block_as_by_themselves():
    stream = learned(COUNTS)
    many = simulate(BLOCK_ROWS + 50)
    together = stream.transform(many)
    np.testing.assert_allclose(together[-60:], stream.transform(many[-60:]), rtol=1e-9)


def test_without_total_rows_the_posterior_is_that_of_the_rows_seen():
    stream = MinibatchVI("gamma_poisson", RANK, seed=0, options=options())
    for block in np.array_split(COUNTS, 4):
        stream.partial_fit(block)
    assert stream.n_seen == 400
    shares = stream.components_posterior.concentration - 1.0
    # Every count is some component's: the totals are those of 400 rows like the running mean, which is of unequal rows.
    assert shares.sum() == pytest.approx(COUNTS.sum(), rel=0.15)
    fixed = learned(COUNTS)
    np.testing.assert_allclose(fixed.components_posterior.concentration.sum(), shares.sum() + RANK * M, rtol=0.05)


def test_blocks_are_cut_into_batches_in_order():
    one, eight = learned(COUNTS, blocks=1), learned(COUNTS, blocks=1)
    assert one.steps == eight.steps == 8
    one.partial_fit(COUNTS)
    for block in np.array_split(COUNTS, 8):  # the same batches, one by one
        eight.partial_fit(block)
    assert one.steps == eight.steps == 16
    np.testing.assert_allclose(eight.components, one.components, rtol=1e-12)


def test_seeds_reproduce_and_a_pickled_stream_goes_on():
    one, two = learned(COUNTS), learned(COUNTS)
    np.testing.assert_array_equal(one.components, two.components)
    copy = pickle.loads(pickle.dumps(one))
    np.testing.assert_array_equal(copy.partial_fit(COUNTS).components, one.partial_fit(COUNTS).components)
    other = MinibatchVI("gamma_poisson", RANK, seed=1, options=options(start="random"), total_rows=400)
    random = MinibatchVI("gamma_poisson", RANK, seed=0, options=options(start="random"), total_rows=400)
    assert np.abs(other.partial_fit(COUNTS).components - random.partial_fit(COUNTS).components).max() > 1e-3


def test_features_that_come_late_are_learned():
    for components in (None, "parameter"):
        stream = MinibatchVI("gamma_poisson", RANK, seed=0, options=options(priors=Priors(components=components)))
        early = COUNTS.copy()
        early[:, 30:] = 0
        stream.partial_fit(early)
        for _ in range(10):
            stream.partial_fit(COUNTS)
        late = stream.components[:, 30:].sum() / RANK
        assert late == pytest.approx(COUNTS[:, 30:].sum() / COUNTS.sum(), rel=0.4)


def test_empty_rows_and_blocks_are_taken():
    stream = learned(COUNTS)
    stream.partial_fit(np.zeros((5, M)))
    fit = stream.result(np.zeros((2, M)))
    prior = fit.priors.loadings
    np.testing.assert_allclose(fit.loadings, prior.shape / (prior.rate + 1), rtol=1e-12)  # Gamma(shape, rate + 1)
    first = MinibatchVI("gamma_poisson", RANK, seed=0).partial_fit(np.zeros((5, M)))
    assert np.isfinite(first.partial_fit(COUNTS).components).all()


@pytest.mark.filterwarnings("ignore:the rows of the first block have come again")
def test_memory_does_not_grow_with_the_blocks():
    """Peak of arrays over 4 and over 16 blocks; components kept of every block would add a tenth or more."""
    wide = csr_array(np.tile(COUNTS[:100], (1, 50)))
    peaks = []
    for blocks in (4, 16):
        stream = MinibatchVI("dirichlet_poisson", RANK, total_rows=100, seed=0, options=options(threads=1))
        stream.partial_fit(wide)  # what is made once, the start from at most 2,048 rows included
        tracemalloc.start()
        for _ in range(blocks):
            stream.partial_fit(wide)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[0] > 8 * RANK * M * 50  # something was measured: at least the components
    assert peaks[1] <= 1.05 * peaks[0]


def test_the_start_is_computed_again_from_more_rows_until_these_are_enough(monkeypatch):
    """With each doubling of the rows; a start from the first block alone would leave the first of these sizes."""
    from bayesnmf.fitting import streaming

    sizes, real = [], streaming.start_state
    monkeypatch.setattr(streaming, "FIRST_ROWS", 200)
    monkeypatch.setattr(
        streaming,
        "start_state",
        lambda problem, *more: (sizes.append(problem.counts.shape[0]), real(problem, *more))[1],
    )
    stream = MinibatchVI("gamma_poisson", RANK, seed=0, options=options())
    for block in np.array_split(COUNTS, 10):
        stream.partial_fit(block)
    assert sizes == [40, 80, 160, 200]
    assert not stream._early
    sizes.clear()
    learned(COUNTS, blocks=10, start="random")
    assert sizes == [40]


@pytest.mark.filterwarnings("ignore:the rows of the first block have come again")
def test_ctrl_c_keeps_the_batches_that_were_finished(monkeypatch):
    from bayesnmf.fitting import streaming

    stream, real = learned(COUNTS), streaming.step_on_batch
    before = stream.n_seen

    def interrupted(components, part, q, batching, step, threads):
        if step == stream_steps + 3:
            raise KeyboardInterrupt
        return real(components, part, q, batching, step, threads)

    stream_steps = stream.steps
    monkeypatch.setattr(streaming, "step_on_batch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        stream.partial_fit(COUNTS)
    assert (stream.n_seen, stream.steps) == (before + 100, stream_steps + 2)
    assert np.isfinite(stream.elbo(COUNTS))


# --- names and bad input ----------------------------------------------------------------------------


def test_feature_names_are_those_of_the_first_block():
    names = [f"gene {j}" for j in range(M)]
    stream = MinibatchVI("gamma_poisson", RANK, seed=0).partial_fit(pd.DataFrame(COUNTS, columns=names))
    assert list(stream.feature_names) == names
    stream.partial_fit(csr_array(COUNTS + 1))
    assert list(stream.result(pd.DataFrame(COUNTS[:3], columns=names)).feature_names) == names
    others = pd.DataFrame(COUNTS, columns=[f"other {j}" for j in range(M)])
    with pytest.raises(ValueError, match="features of the stream as labels"):
        stream.partial_fit(others)


@pytest.mark.parametrize("block", [COUNTS[:, :-1], -COUNTS, COUNTS * np.nan])
def test_bad_blocks_change_nothing(block):
    stream = learned(COUNTS)
    before = stream.components
    with pytest.raises(ValueError, match="counts must"):
        stream.partial_fit(block)
    np.testing.assert_array_equal(stream.components, before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"options": VI()}, "a stream needs algorithm='minibatch': found None"),
        ({"options": options(max_iter=10)}, "a stream needs options without max_iter"),
        ({"options": options(tol=0.1)}, "a stream needs options without tol"),
        ({"options": options(restarts=2)}, "a stream needs options without restarts"),
        ({"total_rows": 0}, "total_rows must be at least 1"),
        ({"rank": 0}, "rank must be at least 1"),
        ({"model": "lda"}, "model must be one of"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"noise": "quasi"}, "a stream needs a given dispersion: found noise='quasi'"),
        ({"noise": NegativeBinomial(dispersion="row")}, "a stream needs one dispersion, or one for each feature"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        MinibatchVI(**arguments)


def test_options_starts_and_asks_that_make_no_sense_are_refused():
    with pytest.raises(TypeError, match=r"options must be bayesnmf.VI\(...\)"):
        MinibatchVI(options=bayesnmf.MAP())
    given = bayesnmf.Start(COUNTS[:, :RANK], COUNTS[:RANK])
    with pytest.raises(ValueError, match="a stream needs a start by name: found Start"):
        MinibatchVI(options=options(start=given))
    for ask in (
        lambda s: s.components,
        lambda s: s.result(COUNTS),
        lambda s: s.elbo(COUNTS),
        lambda s: s.feature_names,
    ):
        with pytest.raises(ValueError, match=r"call stream.partial_fit\(counts\) first"):
            ask(MinibatchVI())
    by_row = Priors(Gamma(np.ones((400, RANK)), 1.0))
    with pytest.raises(ValueError, match="differs between rows"):
        MinibatchVI(rank=RANK, options=options(priors=by_row)).partial_fit(COUNTS)
    with pytest.raises(ValueError, match="improper"):
        MinibatchVI("poisson", RANK, options=options(priors=Priors(Gamma(1.0, 0.0), Gamma(1.0, 1.0)))).partial_fit(
            COUNTS
        )


def test_rows_that_come_again_are_told_of_once_their_number_is_not_stated():
    """Two passes over blocks count every row twice, unless `total_rows` says how many there are."""
    blocks = [COUNTS[:20], COUNTS[20:40]]
    stream = MinibatchVI("gamma_poisson", RANK, seed=0, options=options())
    for block in blocks:
        stream.partial_fit(block)
    with pytest.warns(
        bayesnmf.DataWarning, match=r"rows of the first block.*give bayesnmf.MinibatchVI\(total_rows=\.\.\.\)"
    ):
        stream.partial_fit(blocks[0][::-1])
    stream.partial_fit(blocks[0])  # told once
    shuffled = MinibatchVI("gamma_poisson", RANK, seed=0, options=options())
    for block in (*blocks, COUNTS[:40][np.r_[5:15, 20:30]]):
        shuffled.partial_fit(block)
    with pytest.warns(bayesnmf.DataWarning, match="rows of the first block have come again"):
        shuffled.partial_fit(COUNTS[:40][np.r_[15:20, :5, 30:40]])
    stated = MinibatchVI("gamma_poisson", RANK, seed=0, options=options(), total_rows=40)
    for block in blocks + blocks:
        stated.partial_fit(block)
    alike = MinibatchVI("gamma_poisson", RANK, seed=0, options=options())
    for _ in range(2):
        alike.partial_fit(COUNTS[[0, 0, 1, 1]])  # so few rows may be alike by chance


def test_a_block_of_more_rows_than_there_are_is_refused():
    stream = MinibatchVI("gamma_poisson", RANK, seed=0, options=options(), total_rows=10)
    with pytest.raises(
        ValueError, match=r"total_rows=10 must be .*: found a block of 20; give .*total_rows=\.\.\.\) of at"
    ):
        stream.partial_fit(COUNTS[:20])
    assert stream.n_seen == 0
    stream.partial_fit(COUNTS[:10])
    assert stream.partial_fit(COUNTS[:10]).n_seen == 20  # the same rows again


# --- noise and missing entries --------------------------------------------------------------------------

S = 2.0
CLUSTERED = np.random.default_rng(1).poisson(np.random.default_rng(2).gamma(np.maximum(COUNTS, 0.05) / S, S))
OBSERVED = np.random.default_rng(3).random(COUNTS.shape) > 0.2
OBSERVED[9], OBSERVED[:50, 5] = False, False  # a row without any entry, and a feature that a block does not have
BOTH_GAMMA = Priors(Gamma(0.5, 0.01), Gamma(0.5, 5.0))


def noisy_stream(noise, model="gamma_poisson", observed=None, passes=10, **more):
    stream = MinibatchVI(model, RANK, seed=0, options=options(**more), total_rows=len(COUNTS), noise=noise)
    for _ in range(passes):
        for rows in np.array_split(np.arange(len(COUNTS)), 4):
            stream.partial_fit(CLUSTERED[rows], observed=None if observed is None else observed[rows])
    return stream


@pytest.mark.parametrize("noise", [NegativeBinomial(dispersion=S), "nb1", Quasi(S)], ids=["given", "learned", "quasi"])
@pytest.mark.parametrize("model", ["gamma_poisson", pytest.param("dirichlet_poisson", marks=pytest.mark.long)])
def test_the_bound_with_noise_is_that_of_the_fit_and_near_its_optimum(model, noise):
    stream = noisy_stream(noise, model, passes=20, priors=even_priors(CLUSTERED, model, RANK), start="svd")
    fit = stream.result(CLUSTERED)
    assert stream.noise == fit.noise
    assert fit.counts.total == CLUSTERED.sum()
    settled = {"priors": fit.priors, "start": fit, "threads": 1, "intervals": "mean_field"}
    again = bayesnmf.fit(CLUSTERED, model, RANK, seed=0, options=VI(max_iter=200, **settled), noise=fit.noise)
    prior = (
        (np.log(fit.noise.dispersion / 0.3) ** 2 / 8) if noise == "nb1" else 0.0
    )  # log-normal: median 0.3, factor e²
    assert again.trace[0] - prior == pytest.approx(fit.trace[-1], rel=1e-9)
    assert stream.elbo(CLUSTERED) == pytest.approx(fit.trace[-1], rel=1e-5)
    size = abs(again.trace[-1] + again.working_counts.log_factorial)
    assert -1e-6 * size < again.trace[-1] - again.trace[0] < 2e-3 * size


@pytest.mark.parametrize("by", [None, pytest.param("feature", marks=pytest.mark.long)])
def test_a_stream_learns_the_dispersion_that_is_best_for_all_rows(by):
    """At its components. A batch of 50 of 400 rows has √8 times the deviation of all; √(ρ/2) = 0.15 of it stays."""
    stream = noisy_stream(NegativeBinomial(dispersion=by), passes=20, priors=BOTH_GAMMA, start="svd")
    fit = stream.result(CLUSTERED)
    problem, state = state_of_fit(fit)
    found = np.atleast_1d(stream.noise.dispersion)
    evidence = evidence_at(problem, state, 1)
    best = evidence.best(found)
    assert found.shape == ((1,) if by is None else (M,))
    off = np.log(found / best)
    assert abs(off.mean()) < 0.02
    assert (np.abs(off) < 3 * 0.15 * np.sqrt(8) * evidence.deviation(best)).all()


@pytest.mark.parametrize("noise", ["poisson", NegativeBinomial(dispersion=S)], ids=["poisson", "nb1"])
def test_blocks_with_missing_entries_come_near_all_rows_at_once(noise):
    stream = noisy_stream(noise, observed=OBSERVED, priors=BOTH_GAMMA, start="svd")
    fit = stream.result(CLUSTERED, observed=OBSERVED)
    settled = {"priors": BOTH_GAMMA, "start": fit, "threads": 1, "intervals": "mean_field"}
    again = bayesnmf.fit(
        CLUSTERED, rank=RANK, seed=0, options=VI(max_iter=500, **settled), noise=noise, observed=OBSERVED
    )
    assert again.trace[0] == pytest.approx(fit.trace[-1], rel=1e-9)
    size = abs(again.trace[-1] + again.counts.log_factorial)
    assert -1e-6 * size < again.trace[-1] - again.trace[0] < 2e-2 * size  # as without: the scale of Gammas is slow
    other = np.where(OBSERVED, CLUSTERED, 10**6)  # what nobody counted says nothing
    np.testing.assert_array_equal(stream.transform(other, observed=OBSERVED), fit.loadings)


def test_entries_may_be_missing_in_later_blocks_alone():
    """As if all blocks had masks: exposures of features are then their own."""
    priors = {"priors": BOTH_GAMMA, "start": "random"}
    blocks = np.array_split(np.arange(len(COUNTS)), 4)
    streams = [MinibatchVI("poisson", RANK, seed=0, options=options(**priors), total_rows=len(COUNTS)) for _ in "ab"]
    for number, rows in enumerate(blocks):
        seen = OBSERVED[rows] if number > 1 else np.ones((len(rows), M), bool)
        streams[0].partial_fit(CLUSTERED[rows], observed=seen)
        block = CLUSTERED[rows].astype(float)
        block[~seen] = np.nan
        streams[1].partial_fit(block, missing="nan")
    np.testing.assert_array_equal(streams[0].components, streams[1].components)
    assert np.shape(streams[0].components_posterior.rate) == (RANK, M)


def test_blocks_that_minibatches_do_not_take_are_refused():
    stream = learned(COUNTS)
    before = stream.components
    with pytest.raises(ValueError, match="missing entries and algorithm='minibatch' need Gamma priors"):
        stream.partial_fit(COUNTS, observed=OBSERVED)
    np.testing.assert_array_equal(stream.components, before)
    with pytest.raises(ValueError, match="noise='nb1' needs whole-number counts"):
        noisy_stream("nb1").partial_fit(CLUSTERED + 0.5)
    with pytest.raises(ValueError, match="found noise='nb2', which needs all rows at once"):
        noisy_stream("nb2")


def test_estimators_stream_noise_and_missing_entries():
    floats = np.where(OBSERVED, CLUSTERED, np.nan)
    given = {"noise": "nb1", "missing": "nan", "random_state": 0}
    found = bayesnmf.BayesNMF(RANK, model="poisson", options=options(priors=BOTH_GAMMA), **given)
    own = options(priors=BOTH_GAMMA)
    stream = MinibatchVI("poisson", RANK, options=own, noise="nb1", seed=seed_of(found))
    for rows in np.array_split(np.arange(len(COUNTS)), 4):
        found.partial_fit(floats[rows])
        stream.partial_fit(CLUSTERED[rows], observed=OBSERVED[rows])
    np.testing.assert_array_equal(found.components_, stream.components)
    assert found.fit_.noise == stream.noise
    assert found.fit_.counts.mask.number == (~OBSERVED[-100:]).sum()


def test_refusals_of_streams_name_what_a_stream_can_give():
    """It has one algorithm: priors are what it can change, or the counts go to `bayesnmf.fit` at once."""
    counts = np.random.default_rng(0).poisson(3, (40, 8))
    mask = np.random.default_rng(1).random(counts.shape) < 0.2
    by_feature = bayesnmf.NegativeBinomial(dispersion="feature")
    for settings, entries in (
        ({}, {"missing": mask}),
        ({"noise": by_feature}, {}),
        ({"feature_exposure": 2 * np.ones(8)}, {}),
    ):
        with pytest.raises(ValueError, match="in the options") as caught:
            bayesnmf.MinibatchVI(rank=2, seed=0, **settings).partial_fit(counts, **entries)
        said = re.search(r"priors=(bayesnmf\.Priors\(components=bayesnmf\.Gamma\(.*?\)\))", str(caught.value))
        options = bayesnmf.VI(algorithm="minibatch", priors=eval(said[1], {"bayesnmf": bayesnmf}))
        stream = bayesnmf.MinibatchVI(rank=2, seed=0, options=options, **settings).partial_fit(counts, **entries)
        assert stream.n_seen == 40
    for model in ("dirichlet_poisson", "dirichlet_gamma"):
        with pytest.raises(ValueError, match=r"use algorithm='coordinate' in bayesnmf\.fit$"):
            bayesnmf.MinibatchVI(model, 2).partial_fit(counts, missing=mask)
    with pytest.raises(ValueError, match=r"use algorithm='coordinate' in bayesnmf\.fit, or another prior"):
        bayesnmf.MinibatchVI("hierarchical_poisson", 2).partial_fit(counts)
