"""Noise and missing entries of counts on disk: fits are those of counts in memory, iterate by iterate."""

from dataclasses import replace

import anndata
import numpy as np
import pytest
from plain import even_priors
from scipy.sparse import csr_matrix
from suites import mostly_long

import bayesnmf
from bayesnmf import (
    MAP,
    VI,
    Blocks,
    Checkpoint,
    Dirichlet,
    Gamma,
    Gibbs,
    NegativeBinomial,
    Priors,
    Quasi,
    ZeroInflated,
)
from bayesnmf.data.blocks.opening import open_counts
from bayesnmf.data.conversion import as_counts
from bayesnmf.data.mask import GroupMask, Mask
from bayesnmf.inference.blocked import passes
from bayesnmf.inference.checkpoints import slots
from bayesnmf.kernels.cpu.draws import poisson_draws

pytestmark = [
    pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.* did not converge:bayesnmf.ConvergenceWarning"),
]
K, N, M = 3, 83, 40
RNG = np.random.default_rng(4)
DRAWN = bayesnmf.simulate(size=(N, M), rank=K, priors=even_priors(rank=K, total=90), seed=1)
MEANS = DRAWN.loadings @ DRAWN.components
X = RNG.poisson(RNG.gamma(MEANS / 1.5, 1.5))
X[[5, 80]] = 0
X[:, 7] = 0
LOST = RNG.random(X.shape) < 0.15
LOST[11], LOST[:, 9] = True, True  # a row and a feature that nobody has looked at
SCALES = Priors(Gamma(0.5, 0.1), Gamma(0.7, 0.2))
MARGINAL = Gibbs(algorithm="marginal")
TOPICS = Priors(Dirichlet(0.3), Dirichlet(0.4))


@pytest.fixture(scope="module")
def blocks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("noisy")
    anndata.AnnData(csr_matrix(X.astype(np.float32))).write_h5ad(folder / "cells.h5ad")
    found = Blocks(folder / "cells.h5ad", nonzeros=300, scratch=folder / "scratch")
    assert len(passes.shards_of(len(open_counts(found, "float64", None, None, lambda *_: None).blocks))) == 2
    return found


def fitted(counts, model, method, options, **more):
    return bayesnmf.fit(counts, model, K, method, seed=3, options=options, **more)


def same(one, two, tol=1e-12):
    """To a relative tolerance of trace and noise, and of the largest entry of the factors."""
    assert not one.counts.in_memory
    np.testing.assert_allclose(one.trace, two.trace, rtol=tol)
    for name in ("loadings", "components", "scale"):
        found, expected = getattr(one, name), getattr(two, name)
        if expected is not None:
            np.testing.assert_allclose(found, expected, rtol=0, atol=10 * tol * expected.max())
    if hasattr(two.noise, "dispersion"):
        np.testing.assert_allclose(one.noise.dispersion, two.noise.dispersion, rtol=10 * tol)
    assert one.status == two.status
    assert (one.residuals is None) == (two.residuals is None)
    if two.residuals is not None:
        np.testing.assert_allclose(one.residuals, two.residuals, rtol=1e-6)


SMOOTH = Priors(Gamma(1.5, 0.1), Gamma(1.3, 0.5))


def options_of(method, **more):
    kind, more = {"map": MAP, "vi": VI}[method], {**({"algorithm": "em"} if method == "map" else {}), **more}
    return kind(**{"start": "svd", "threads": 1, "tol": 0, "max_iter": 4, **more})


ONE, BY_ROW, BY_FEATURE = (NegativeBinomial(dispersion=each) for each in (None, "row", "feature"))
RATED, RATED_BY_ROW, RATED_BY_FEATURE = (
    NegativeBinomial("quadratic", dispersion=each) for each in (None, "row", "feature")
)
NOISY = [
    ("poisson", "map", "nb1", {}),
    ("gamma_poisson", "vi", BY_ROW, {}),
    ("dirichlet_gamma", "map", ONE, {"start": "random"}),
    ("gamma_poisson", "vi", BY_FEATURE, {}),
    ("gamma_poisson", "vi", ONE, {"algorithm": "minibatch", "batch_size": 32, "priors": SCALES}),
    ("gamma_poisson", "vi", "quasi", {}),
    ("dirichlet_poisson", "vi", ONE, {"priors": TOPICS}),
    ("gamma_poisson", "vi", BY_FEATURE, {"priors": SCALES, "algorithm": "settled"}),
    ("hierarchical_poisson", "vi", BY_ROW, {"start": "random"}),
    ("poisson", "map", BY_FEATURE, {}),
    ("gamma_poisson", "vi", NegativeBinomial(dispersion=0.7), {"algorithm": "settled"}),
    ("dirichlet_poisson", "vi", Quasi(1.3), {}),
    ("dirichlet_gamma", "map", Quasi(1.3), {}),
    ("gamma_poisson", "vi", Quasi(1.3), {"algorithm": "minibatch", "batch_size": 32}),
    ("gamma_poisson", "vi", NegativeBinomial(dispersion=np.linspace(0.1, 2, N), by="row"), {"extrapolate": True}),
    ("poisson", "map", BY_FEATURE, {"algorithm": "scd", "priors": SMOOTH}),
    ("gamma_poisson", "vi", BY_ROW, {"start": "descent"}),
    ("poisson", "map", "nb1", {"algorithm": "ccd", "priors": SMOOTH}),
    ("dirichlet_poisson", "map", Quasi(1.3), {"algorithm": "scd"}),
    ("gamma_poisson", "vi", BY_FEATURE, {"start": "descent"}),
    ("gamma_poisson", "vi", "quasi", {"start": "descent"}),
    ("gamma_poisson", "vi", RATED_BY_FEATURE, {"priors": SCALES}),
    ("poisson", "map", RATED, {}),
    ("gamma_poisson", "vi", RATED_BY_ROW, {"algorithm": "settled"}),
    ("gamma_poisson", "vi", NegativeBinomial("quadratic", 0.3), {"extrapolate": True}),
    ("dirichlet_gamma", "map", RATED_BY_ROW, {}),
    ("hierarchical_poisson", "vi", RATED, {"learn": ("components",)}),
    ("gamma_poisson", "vi", ZeroInflated(0.2), {"start": "descent"}),
]


def in_blocks(blocks, options):
    """Larger blocks for a start that descends, which reads all of them fifty times more."""
    return replace(blocks, nonzeros=700) if "descent" in options.values() else blocks


@pytest.mark.parametrize(("model", "method", "noise", "options"), mostly_long(NOISY, [*range(6), 15, 16, 21, 22]))
def test_noisy_iterates_are_those_in_memory(blocks, model, method, noise, options):
    """To rounding: 1e-14 of the trace. Exposures of an older dispersion would change the trace in its first digit."""
    own = options_of(method, **options)
    same(*(fitted(counts, model, method, own, noise=noise) for counts in (in_blocks(blocks, options), X)))


MASKED = [
    ("gamma_poisson", "vi", "poisson", {}),
    ("poisson", "map", "poisson", {}),
    ("dirichlet_poisson", "vi", "poisson", {"start": "random"}),
    ("dirichlet_gamma", "map", "poisson", {}),
    ("gamma_poisson", "vi", ONE, {}),
    ("gamma_poisson", "vi", "poisson", {"algorithm": "minibatch", "batch_size": 32, "priors": SCALES}),
    ("gamma_poisson", "vi", ONE, {"algorithm": "settled"}),
    ("dirichlet_poisson", "vi", "poisson", {"algorithm": "settled", "max_iter": 2}),
    ("dirichlet_gamma", "vi", "poisson", {}),
    ("dirichlet_poisson", "map", "poisson", {}),
    ("hierarchical_poisson", "vi", "poisson", {}),
    ("gamma_poisson", "vi", BY_FEATURE, {"priors": SCALES}),
    ("poisson", "map", BY_ROW, {}),
    ("gamma_poisson", "vi", Quasi(1.3), {"priors": SCALES}),
    ("poisson", "map", "poisson", {"algorithm": "scd", "priors": SMOOTH}),
    ("gamma_poisson", "vi", "poisson", {"start": "descent"}),
    ("poisson", "map", BY_ROW, {"algorithm": "ccd", "priors": SMOOTH}),
    ("dirichlet_poisson", "vi", Quasi(1.3), {"start": "descent"}),
    ("gamma_poisson", "vi", RATED_BY_ROW, {}),
    ("poisson", "map", RATED, {}),
]


@pytest.mark.parametrize(("model", "method", "noise", "options"), mostly_long(MASKED, [*range(7), 14, 15, 18]))
@pytest.mark.parametrize("most", [False, pytest.param(True, marks=pytest.mark.long)])
def test_masked_iterates_are_those_in_memory(blocks, model, method, noise, options, most):
    """Where few entries are missing, and where few are not, as patterns of either are kept.

    Fifty iterations of a start that descends magnify rounding, and how much depends on the machine: they are allowed
    ten times what another order of the rows changes in memory, 1e-13 to 5e-8 of the loadings. What a wrong mask would
    do is in the first digits.
    """
    missing, own = ~LOST if most else LOST, options_of(method, **options)
    both = in_blocks(blocks, options), X
    on_disk, whole = (fitted(counts, model, method, own, missing=missing, noise=noise) for counts in both)
    tol = 1e-12
    if "descent" in options.values():
        for number in range(3):
            order = np.random.default_rng(number).permutation(N)
            turned = fitted(X[order], model, method, own, missing=missing[order], noise=noise)
            changed = np.abs(turned.loadings - whole.loadings[order]).max() / whole.loadings.max()
            tol = max(tol, float(changed))
    assert tol < 1e-6
    same(on_disk, whole, tol)


def test_totals_are_those_of_observed_entries(blocks):
    """Of every block, too, and of blocks that are not read; also where groups of entries are missing."""
    counts = open_counts(blocks, "float64", None, None, lambda *_: None)
    for mask in (
        Mask.of(csr_matrix(LOST, dtype=float)),
        GroupMask.of_groups(np.arange(N) % 3, np.arange(M) % 3, 3),
    ):
        masked, seen = counts.with_mask(mask), np.where(mask.hidden(slice(0, N)), 0, X)
        np.testing.assert_array_equal(masked.row_totals, seen.sum(axis=1))
        np.testing.assert_array_equal(masked.feature_totals, seen.sum(axis=0))
        assert (masked.total, masked.nnz) == (seen.sum(), np.count_nonzero(seen))
        assert masked.log_factorial == pytest.approx(as_counts(seen).log_factorial, rel=1e-13)
        for part in (masked.block(20, 50), masked.empty_block(20, 50), masked.rows(np.arange(20, 50))):
            np.testing.assert_array_equal(part.row_totals, seen[20:50].sum(axis=1))
            np.testing.assert_array_equal(part.mask.hidden(slice(0, 30)), mask.hidden(slice(20, 50)))
        np.testing.assert_array_equal(masked.block(20, 50).matrix.toarray(), seen[20:50])
        assert counts.total == X.sum()


@pytest.mark.parametrize(
    ("model", "noise", "missing", "priors"),
    mostly_long(
        [
            ("gamma_poisson", ONE, None, SCALES),
            ("dirichlet_poisson", "poisson", LOST, TOPICS),
            ("gamma_poisson", BY_FEATURE, None, None),
            ("dirichlet_poisson", BY_ROW, None, TOPICS),
            ("gamma_poisson", BY_ROW, LOST, SCALES),
            ("dirichlet_gamma", "poisson", LOST, None),
            ("gamma_poisson", "poisson", LOST, None),
            ("gamma_poisson", RATED, None, SCALES),
            ("gamma_poisson", RATED_BY_ROW, LOST, None),
            ("gamma_poisson", RATED_BY_FEATURE, None, SCALES),
            ("dirichlet_gamma", RATED, None, None),
            ("gamma_poisson", "zip", None, SCALES),
        ],
        [0, 1, 2, 7, 8],
    ),
)
def test_noisy_and_masked_chains_are_those_in_memory(blocks, model, noise, missing, priors):
    """Whatever the blocks: clusters, rates, counts of missing entries and exposures belong to rows of the whole."""
    compare_chains(blocks, model, noise, missing, "allocations", priors)


@pytest.mark.parametrize(
    ("model", "noise", "missing", "priors"),
    mostly_long(
        [
            ("gamma_poisson", BY_ROW, LOST, SCALES),
            ("dirichlet_gamma", ONE, None, None),
            ("gamma_poisson", Quasi(1.3), LOST, SCALES),
            ("gamma_poisson", BY_FEATURE, None, None),
            ("gamma_poisson", "poisson", ~LOST, SCALES),
            ("dirichlet_poisson", ONE, None, TOPICS),
            ("dirichlet_poisson", Quasi(1.3), None, TOPICS),
        ],
        3,
    ),
)
def test_chains_without_allocations_are_those_in_memory(blocks, model, noise, missing, priors):
    """Clusters are written to another store before each sweep, in the same blocks."""
    compare_chains(blocks, model, noise, missing, "marginal", priors)


def compare_chains(blocks, model, noise, missing, algorithm, priors):
    options = Gibbs(
        start="random", chains=1, warmup=1, draws=4, keep="draws", algorithm=algorithm, priors=priors or Priors()
    )
    given = {"noise": noise, "missing": missing}
    wide = replace(blocks, nonzeros=700)
    one, other, two = (fitted(counts, model, "gibbs", options, **given) for counts in (blocks, wide, X))
    assert len(one.counts.blocks) > len(other.counts.blocks) > 1
    for each in (one, other):
        np.testing.assert_allclose(each.trace, two.trace, rtol=1e-11)
        np.testing.assert_allclose(each.loadings, two.loadings, rtol=1e-9)
        np.testing.assert_allclose(each.components, two.components, rtol=1e-9)
    if two.statistics:
        np.testing.assert_allclose(one.statistics["dispersion"], two.statistics["dispersion"], rtol=1e-9)


def test_counts_of_missing_entries_belong_to_rows():
    means = np.random.default_rng(0).gamma(0.5, 40, (30, 4))
    whole = poisson_draws(means, 7)
    np.testing.assert_array_equal(poisson_draws(means[11:19], 7, first_row=11), whole[11:19])
    many = poisson_draws(np.broadcast_to([0.0, 0.3, 4.0, 60.0], (40_000, 4)), 1)
    np.testing.assert_allclose(many.mean(axis=0), [0, 0.3, 4, 60], atol=0.15)
    np.testing.assert_allclose(many.var(axis=0), [0, 0.3, 4, 60], rtol=0.03)


def killed_at(step, monkeypatch, run):
    """Run a fit that writes a snapshot at every step, and end it at one."""
    left, plain = [step], slots.Slot.due

    def due(slot):
        left[0] -= 1
        if left[0] < 0:
            raise SystemExit
        return plain(slot)

    with monkeypatch.context() as patch:
        patch.setattr(slots.Slot, "due", due)
        with pytest.raises(SystemExit):
            run()


@pytest.mark.parametrize(
    ("method", "options", "given", "step"),
    [
        ("vi", options_of("vi", max_iter=2), {"noise": BY_ROW, "missing": LOST}, 3),
        ("gibbs", Gibbs(start="random", chains=1, warmup=1, draws=3, keep="draws"), {"noise": ONE}, 3),
        ("gibbs", Gibbs(start="random", chains=1, warmup=1, draws=3, keep="draws"), {"noise": RATED}, 3),
        ("vi", options_of("vi", max_iter=2), {"noise": RATED_BY_FEATURE}, 3),
        (
            "gibbs",
            Gibbs(start="random", chains=1, warmup=1, draws=3, keep="draws", algorithm="marginal", priors=SCALES),
            {"noise": BY_ROW, "missing": LOST},
            3,
        ),
        ("map", options_of("map", algorithm="scd", max_iter=2, priors=SMOOTH), {"noise": BY_ROW, "missing": LOST}, 3),
    ],
)
def test_noisy_fits_on_disk_go_on_and_are_saved(blocks, monkeypatch, tmp_path, method, options, given, step):
    """With the bits of a run in one go; the file keeps mask and noise beside the place of the counts."""
    blocks = replace(blocks, nonzeros=700)
    expected = fitted(blocks, "gamma_poisson", method, options, **given)
    often = Checkpoint(tmp_path / "run", seconds=1e-9)
    killed_at(step, monkeypatch, lambda: fitted(blocks, "gamma_poisson", method, options, checkpoint=often, **given))
    found = fitted(blocks, "gamma_poisson", method, options, checkpoint=tmp_path / "run", **given)
    loaded = bayesnmf.load(tmp_path / "run" / "fit.nc")
    for each in (found, loaded):
        for name in ("trace", "loadings", "components"):
            np.testing.assert_array_equal(getattr(each, name), getattr(expected, name))
        np.testing.assert_array_equal(each.noise.dispersion, expected.noise.dispersion)
    np.testing.assert_array_equal(loaded.transform(X[:5]), expected.transform(X[:5]))
    assert not loaded.counts.in_memory
    assert loaded.counts.total == np.where(LOST if "missing" in given else False, 0, X).sum()
    if "missing" in given:
        with pytest.raises(ValueError, match="differs in counts"):
            fitted(blocks, "gamma_poisson", method, options, checkpoint=tmp_path / "run", noise=BY_ROW)


@pytest.mark.long
@pytest.mark.parametrize(
    "given", [{"noise": BY_ROW}, {"noise": RATED}, {"missing": LOST}], ids=["clusters", "rates", "missing"]
)
def test_what_is_asked_of_a_fit_is_that_in_memory(blocks, given):
    one, two = (fitted(counts, "gamma_poisson", "vi", options_of("vi"), **given) for counts in (blocks, X))
    for ask in (
        lambda fit: fit.dispersion().ratio,
        lambda fit: fit.dispersion().features["ratio"].to_numpy(),
        bayesnmf.elbo_augmented,
        lambda fit: bayesnmf.elbo_marginal(fit, 3)[0],
        lambda fit: fit.transform(X[:9]),
        lambda fit: fit.project(blocks if fit is one else X).loadings,
    ):
        np.testing.assert_allclose(ask(one), ask(two), rtol=1e-11)
    if one.noise.has_entry_rates:  # whose chains around a fit need counts in memory
        with pytest.raises(ValueError, match="its counts are on disk, and its entries have rates"):
            one.with_intervals("sampled")
        return
    for lines in ({"features": one.feature_names[3:6]}, {"rows": one.row_names[70:75]}):
        np.testing.assert_allclose(one.expected(**lines).to_numpy(), two.expected(**lines).to_numpy(), rtol=1e-11)


def test_chains_of_an_unknown_share_of_zeros_begin_from_a_fit_on_disk(blocks):
    """By their own start, which a fit of the nonzeros alone, whose places are not held, does not join."""
    sampler = Gibbs(draws=4, warmup=2, chains=1, priors=SCALES)
    few = replace(blocks, nonzeros=1200)
    fit = bayesnmf.fit(few, rank=K, method="gibbs", noise="zip", seed=0, options=sampler)
    assert len(fit.counts.blocks) > 1
    assert fit.options.start == "fit"
    assert 0 < fit.noise.share < 1


@pytest.mark.parametrize(
    ("method", "given", "rule"),
    [
        ("map", {"noise": "zip"}, "noise='zip' and counts on disk and .* need a noise whose zeros follow"),
        ("gibbs", {"noise": "nb2", "options": MARGINAL}, r"need bayesnmf.Gibbs\(algorithm='allocations'\)"),
        ("vi", {"noise": "nb2", "batch": np.arange(N) % 2}, "need counts without batch: found batches, whose factors"),
        (
            "map",
            {"missing": "zeros"},
            "missing='zeros' needs counts in memory, as the places of all nonzeros take 12 bytes",
        ),
    ],
)
def test_what_noise_and_masks_on_disk_do_not_have_is_refused_by_name(blocks, method, given, rule):
    with pytest.raises(ValueError, match=rule):
        fitted(blocks, "gamma_poisson", method, **{"options": None, **given})
