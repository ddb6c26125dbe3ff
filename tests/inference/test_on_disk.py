"""Fits of counts on disk are those of counts in memory, iterate by iterate."""

import json
import os
from dataclasses import replace
from pathlib import Path

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
from plain import even_priors
from scipy.sparse import csr_matrix
from suites import mostly_long

import bayesnmf
from bayesnmf import MAP, VI, Blocks, Dirichlet, Gamma, Gibbs, HierarchicalGamma, Priors, Start
from bayesnmf.data.blocks.opening import open_counts
from bayesnmf.data.blocks.store import Store
from bayesnmf.inference.blocked import passes as blocked_passes
from bayesnmf.inference.blocked import sides as blocked_sides
from bayesnmf.results.mixing import r_hat_and_ess
from bayesnmf.results.record import AT_THE_END

pytestmark = [
    pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.* did not converge:bayesnmf.ConvergenceWarning"),
]
DRAWN = bayesnmf.simulate(size=(103, 60), rank=4, priors=even_priors(rank=4, total=90), seed=1)
X = DRAWN.counts.matrix.toarray().astype(int)
X[[5, 100]] = 0
X[:, 7] = 0
TOPICS = Priors(Dirichlet(0.3), Dirichlet(0.1))
SPARSE = Priors(Gamma(0.3, 0.1), Dirichlet(0.1))

SCALES = Priors(Gamma(0.5, 0.1), Gamma(0.7, 0.2))
FLAT = Priors(Gamma(1.0, 0.0), Gamma(1.0, 0.0))
SHORT = VI(start="random", max_iter=3, threads=1)
UNEVEN = Priors(Gamma(1.5, np.linspace(0.1, 2, 103)[:, None]), Gamma(np.linspace(1.1, 2, 60), 0.2))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("blocks")


@pytest.fixture(scope="module")
def blocks(folder):
    adata = anndata.AnnData(csr_matrix(X.astype(np.float32)), pd.DataFrame(index=[f"c{i}" for i in range(103)]))
    adata.write_h5ad(folder / "cells.h5ad")
    found = Blocks(folder / "cells.h5ad", nonzeros=700, scratch=folder / "scratch")
    number = len(bayesnmf.fit(found, rank=1, options=VI(max_iter=0, start="random")).counts.blocks)
    assert len(blocked_passes.shards_of(number)) == 2  # so that sums are of several blocks, and of several shards
    return found


@pytest.fixture(scope="module")
def whole(blocks):
    """Return the same counts in one block, for what needs many passes."""
    return replace(blocks, nonzeros=10**6)


def both(blocks, method, model="gamma_poisson", rank=4, seed=3, exposure=None, **options):
    kind = {"map": MAP, "vi": VI}[method]
    settings = {"start": "svd", "threads": 1, **options}
    if method == "map":
        settings = {"algorithm": "em", **settings}
    return [
        bayesnmf.fit(counts, model, rank, method, options=kind(**settings), seed=seed, row_exposure=exposure)
        for counts in (blocks, X)
    ]


def same(one, two, tol=1e-12):
    assert not one.counts.in_memory
    np.testing.assert_allclose(one.trace, two.trace, rtol=tol)
    for name in ("loadings", "components", "scale"):
        found, expected = getattr(one, name), getattr(two, name)
        if expected is not None:
            np.testing.assert_allclose(found, expected, rtol=0, atol=10 * tol * expected.max())
    assert one.status == two.status
    if two.residuals is not None:
        np.testing.assert_allclose(one.residuals, two.residuals, rtol=1e-6)
        # what the last iteration changed is a difference of two objectives, which agree to 1e-12 of their size
        assert one.diagnostics == pytest.approx(two.diagnostics, rel=1e-6, abs=2 * tol)


@pytest.mark.parametrize(
    ("method", "start", "extrapolate"),
    [("map", "svd", True), ("vi", "random", True), ("map", "random", False), ("vi", "svd", False)],
)
def test_iterates_are_those_in_memory(blocks, method, start, extrapolate):
    """To rounding: 1e-14 of the trace after 8 iterations. A block left out or counted twice would change its start."""
    same(*both(blocks, method, start=start, extrapolate=extrapolate, tol=0, max_iter=8))


MODELS_AND_SCHEDULES = [
    ("poisson", "map", {}),
    ("gamma_poisson", "vi", {"schedule": "alternating"}),
    ("gamma_poisson", "vi", {"sweeps": 3}),
    ("dirichlet_poisson", "vi", {"algorithm": "settled"}),
    ("gamma_poisson", "vi", {"start": "descent"}),
    ("gamma_poisson", "vi", {"restarts": 3}),
    ("hierarchical_poisson", "map", {}),
    ("hierarchical_poisson", "vi", {"learn": ("loadings",)}),
    ("gamma_poisson", "vi", {"learn": ("loadings", "components"), "priors": SCALES}),
    ("dirichlet_poisson", "vi", {"learn": ("loadings", "components"), "priors": TOPICS}),
    ("dirichlet_gamma", "vi", {"learn": ("loadings",), "algorithm": "settled", "start": "svd"}),
    ("gamma_poisson", "vi", {"algorithm": "minibatch", "batch_size": 32}),
    ("gamma_poisson", "vi", {"priors": Priors(Gamma(np.linspace(0.5, 2, 103)[:, None] * np.ones((1, 4)), 1.0))}),
    ("gamma_poisson", "vi", {"priors": Priors(components="parameter")}),
    ("gamma_poisson", "map", {"algorithm": "scd", "restarts": 2, "start": "random"}),
    ("gamma_poisson", "map", {"algorithm": "ccd", "priors": UNEVEN}),
    ("dirichlet_gamma", "map", {"algorithm": "scd"}),
    ("dirichlet_gamma", "vi", {}),
    ("dirichlet_poisson", "map", {}),
    ("gamma_poisson", "map", {"priors": SPARSE}),
    ("gamma_poisson", "vi", {"priors": SPARSE}),
    ("gamma_poisson", "vi", {"algorithm": "settled", "priors": SPARSE}),
    ("hierarchical_poisson", "vi", {}),
    ("gamma_poisson", "vi", {"learn": ("loadings",), "priors": SPARSE, "extrapolate": True}),
    ("dirichlet_poisson", "vi", {"learn": ("loadings",), "priors": Priors(Dirichlet(np.full(4, 0.3)))}),
    ("dirichlet_poisson", "vi", {"algorithm": "minibatch", "batch_size": 32, "priors": TOPICS}),
    ("gamma_poisson", "vi", {"priors": Priors(Gamma(1.0, np.linspace(0.5, 2, 103)[:, None]), Gamma(1.0, 1.0))}),
    ("poisson", "map", {"algorithm": "scd"}),
    ("poisson", "map", {"algorithm": "ccd", "extrapolate": False}),
    ("poisson", "map", {"algorithm": "scd", "priors": FLAT}),
    ("dirichlet_poisson", "map", {"algorithm": "scd", "priors": Priors(Dirichlet(1.0), Dirichlet(1.2))}),
    ("dirichlet_poisson", "vi", {}),
    ("dirichlet_gamma", "map", {}),
]


@pytest.mark.parametrize(("model", "method", "options"), mostly_long(MODELS_AND_SCHEDULES, 19))
def test_every_model_and_schedule(blocks, model, method, options):
    exposure = None if model == "dirichlet_poisson" else np.linspace(1, 3, 103)
    if options.get("start") == "descent":  # it reads all blocks fifty times more
        blocks = replace(blocks, nonzeros=1200)
    same(*both(blocks, method, model, exposure=exposure, tol=0, max_iter=4, **{"start": "random", **options}))


def test_single_precision(blocks):
    one, two = both(blocks, "vi", dtype="float32", tol=0, max_iter=5)
    assert one.loadings.dtype == np.float32
    same(one, two, 1e-6)


def test_rows_with_rates_of_their_own_settle_as_in_memory(blocks):
    (one, two), (unsettled, _) = (both(blocks, "vi", "hierarchical_poisson", tol=tol, max_iter=5) for tol in (1e-9, 0))
    np.testing.assert_array_equal(one.trace[:-1], unsettled.trace[:-1])
    assert one.trace[-1] > unsettled.trace[-1] + 1e-3
    same(one, two, 1e-11)


def test_default_options_converge_and_settle_every_row(whole):
    fit = bayesnmf.fit(whole, rank=2, seed=0)
    assert (fit.options.start, fit.options.algorithm, fit.status.converged) == ("svd", "coordinate", True)
    memory = bayesnmf.fit(X, rank=2, seed=0, options=VI(start="svd"))
    np.testing.assert_allclose(fit.trace, memory.trace, rtol=1e-12)
    np.testing.assert_allclose(fit.posterior.loadings.shape, memory.posterior.loadings.shape, rtol=1e-6)
    point = bayesnmf.fit(whole, rank=2, method="map", seed=0, options=MAP(max_iter=5))
    assert (point.options.start, point.options.algorithm) == ("svd", "em")
    assert point.diagnostics.keys() == {*AT_THE_END, "kkt_residual", "least_gradient"}


def test_given_starts(blocks):
    short = VI(start="random", max_iter=3, tol=0)
    memory = bayesnmf.fit(X, rank=4, seed=0, options=short)
    for start in (
        memory,
        Start(memory.loadings, memory.components),
        bayesnmf.fit(blocks, rank=4, seed=1, options=short),
    ):
        same(*both(blocks, "vi", start=start, tol=0, max_iter=2))
    same(*both(blocks, "map", start=Start(memory.loadings, memory.components), tol=0, max_iter=2))
    scaled = bayesnmf.fit(X, "dirichlet_gamma", 4, seed=0, options=short)
    for method in ("map", "vi"):
        same(*both(blocks, method, "dirichlet_gamma", start=scaled, tol=0, max_iter=2))


def test_more_components_than_the_rank_of_the_counts(folder):
    """Those beyond are random, and the same."""
    twice = np.repeat(X[:20], 3, axis=0)
    twice[:, 3:] = 0
    anndata.AnnData(csr_matrix(twice.astype(np.float32))).write_h5ad(folder / "few.h5ad")
    options = VI(start="svd", tol=0, max_iter=5, threads=1)
    one = bayesnmf.fit(Blocks(folder / "few.h5ad", 50, folder / "scratch"), rank=6, options=options, seed=2)
    same(one, bayesnmf.fit(twice, rank=6, options=options, seed=2))


def test_layouts_of_blocks_change_no_more_than_rounding(blocks, folder):
    traces = []
    for nonzeros in (500, 2000, 10**8):
        given = Blocks(blocks.source, nonzeros, blocks.scratch)
        traces.append(bayesnmf.fit(given, rank=4, seed=0, options=VI(tol=0, max_iter=4)).trace)
    np.testing.assert_allclose(traces[1:], [traces[0]] * 2, rtol=1e-12)


def test_fits_are_saved_with_the_place_of_their_counts(blocks, tmp_path):
    fit = bayesnmf.fit(blocks, rank=3, seed=0, options=SHORT)
    for name in ("fit.nc", "fit.zarr"):
        fit.save(tmp_path / name)
        loaded = bayesnmf.load(tmp_path / name)
        assert not loaded.counts.in_memory
        np.testing.assert_array_equal(loaded.loadings, fit.loadings)
        np.testing.assert_array_equal(loaded.posterior.loadings.shape, fit.posterior.loadings.shape)
        np.testing.assert_array_equal(loaded.counts.block(0, 103).matrix.toarray(), X)
        np.testing.assert_array_equal(loaded.transform(X[:9]), fit.transform(X[:9]))
    folder = fit.counts.store.folder
    aside = folder.with_name("aside")
    folder.rename(aside)
    try:
        with pytest.raises(ValueError, match=r"the counts of this fit are in the folder .*, which is missing"):
            bayesnmf.load(tmp_path / "fit.nc")
    finally:
        aside.rename(folder)


@pytest.fixture
def stored(tmp_path):
    """Return a fit of counts on disk whose store is in a folder of its own."""
    (tmp_path / "project").mkdir()
    anndata.AnnData(csr_matrix(X.astype(np.float32))).write_h5ad(tmp_path / "project" / "cells.h5ad")
    given = Blocks(tmp_path / "project" / "cells.h5ad", 700, tmp_path / "project" / "scratch")
    return bayesnmf.fit(given, rank=2, seed=0, options=SHORT)


def folder_in(path):
    """Return the folder of counts that a file names."""
    with h5py.File(path) as file:
        return json.loads(file.attrs["settings"])["records"]["/counts.matrix"]["fields"]["folder"]


def test_a_saved_fit_names_its_counts_from_where_it_lies(stored, tmp_path, monkeypatch):
    """From its own folder, or from the home of the user; so both can be moved, and another user can read it."""
    project, name = tmp_path / "project", stored.counts.store.folder.name
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home of somebody")
    stored.save(project / "fit.nc")
    assert folder_in(project / "fit.nc") == f"scratch/{name}"
    moved = project.rename(tmp_path / "moved")
    assert bayesnmf.load(moved / "fit.nc").counts.store.folder == moved / "scratch" / name
    (moved / "fits").mkdir()
    vars(stored.counts.matrix)["store"] = Store.open(moved / "scratch" / name)
    stored.save(moved / "fits" / "fit.nc")
    assert folder_in(moved / "fits" / "fit.nc") == f"../scratch/{name}"
    monkeypatch.setattr(Path, "home", lambda: moved / "scratch")
    stored.save(moved / "fits" / "fit.nc")
    assert folder_in(moved / "fits" / "fit.nc") == f"~/{name}"
    monkeypatch.setenv("HOME", str(moved / "scratch"))
    assert bayesnmf.load(moved / "fits" / "fit.nc").counts.total == X.sum()


def test_counts_of_a_saved_fit_are_found_by_what_they_are(stored, tmp_path, monkeypatch):
    """Beside the file, in the user's cache, or in a store that was written again under another name; others are not."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = stored.counts.store.folder
    (tmp_path / "fits").mkdir()
    stored.save(tmp_path / "fits" / "fit.nc")
    other = bayesnmf.fit(
        Blocks(csr_matrix_file(tmp_path, X + 1), scratch=tmp_path / "fits"), rank=2, seed=0, options=SHORT
    )
    cache = tmp_path / "cache" / "bayesnmf"
    for place in (folder.with_name("counts-again"), tmp_path / "fits" / "counts-x", cache / "counts-y"):
        place.parent.mkdir(parents=True, exist_ok=True)
        folder = folder.rename(place)
        loaded = bayesnmf.load(tmp_path / "fits" / "fit.nc")
        assert loaded.counts.store.folder == place
        np.testing.assert_array_equal(loaded.loadings, stored.loadings)
    folder.rename(tmp_path / "lost")
    with pytest.raises(ValueError, match=r"which is missing; move their folder there or beside.*bayesnmf\.Blocks"):
        bayesnmf.load(tmp_path / "fits" / "fit.nc")
    other.counts.store.folder.rename(stored.counts.store.folder)
    with pytest.raises(ValueError, match=r"are not those that the fit was made from; move"):
        bayesnmf.load(tmp_path / "fits" / "fit.nc")


def csr_matrix_file(folder, values):
    path = folder / "other.h5ad"
    anndata.AnnData(csr_matrix(values.astype(np.float32))).write_h5ad(path)
    return path


@pytest.mark.parametrize("nonzeros", [60, 10**6])
def test_counts_by_features_are_the_transposed_counts(blocks, nonzeros):
    found = open_counts(replace(blocks, nonzeros=nonzeros), "float64").by_feature()
    parts = [found.read(block, np.float64) for block in range(len(found.blocks))]
    np.testing.assert_array_equal(np.vstack([part.toarray() for part in parts]), X.T)
    assert all(part.has_canonical_format for part in parts)
    assert (len(parts) > 20) == (nonzeros < 100)


def test_no_file_is_left(blocks):
    def rows():
        return [each for each in blocks.scratch.iterdir() if each.name.startswith("rows-")]

    fit = bayesnmf.fit(blocks, rank=3, seed=0, options=SHORT)
    assert not rows()  # the loadings are in nameless files now
    assert np.isfinite(fit.loadings).all()


def test_a_full_disk_is_named_and_nothing_is_left(blocks, monkeypatch):
    written = []

    def full(file, view):
        written.append(0)
        if len(written) > 20:
            raise OSError(28, os.strerror(28))
        return file.write(view)

    monkeypatch.setattr(blocked_sides, "write_all", full)
    with pytest.raises(OSError, match=r"cannot write loadings to scratch, .*No space left on device; free some space"):
        bayesnmf.fit(blocks, rank=3, seed=0)
    assert not [each for each in blocks.scratch.iterdir() if each.name.startswith("rows-")]


def test_ctrl_c_returns_the_last_state(blocks, monkeypatch):
    plain, passes = blocked_passes.run_pass, []

    def stop(*given):
        passes.append(0)
        if len(passes) == 15:
            raise KeyboardInterrupt
        return plain(*given)

    monkeypatch.setattr("bayesnmf.inference.blocked.passes.run_pass", stop)
    with pytest.warns(bayesnmf.ConvergenceWarning, match="was interrupted: this is its last state"):
        fit = bayesnmf.fit(blocks, rank=3, seed=0)
    assert fit.status.reason == "interrupted"
    assert np.isfinite(fit.loadings).all()


def test_a_store_that_changes_between_passes_is_refused(folder, monkeypatch):
    anndata.AnnData(csr_matrix(X.astype(np.float32))).write_h5ad(folder / "other.h5ad")
    given = Blocks(folder / "other.h5ad", 900, folder / "scratch")
    store = bayesnmf.fit(given, rank=2, options=VI(max_iter=1)).counts.store
    plain, passes = blocked_passes.run_pass, []

    def change(*arguments):
        passes.append(0)
        if len(passes) == 10:
            os.utime(store.folder / "indices.npy")
        return plain(*arguments)

    monkeypatch.setattr("bayesnmf.inference.blocked.passes.run_pass", change)
    with pytest.raises(ValueError, match=r"indices\.npy was changed, damaged or removed after it was written"):
        bayesnmf.fit(given, rank=2)


CHAINS = {"chains": 2, "warmup": 1, "draws": 10, "algorithm": "allocations"}
RATES = Priors(HierarchicalGamma(0.5, Gamma(2.0, 1.0), "row"), Gamma(0.7, 0.2))


@pytest.mark.parametrize(
    ("model", "priors", "keep", "nonzeros"),
    mostly_long(
        [
            ("gamma_poisson", SCALES, "moments", 1500),
            ("dirichlet_poisson", TOPICS, "draws", 1500),
            ("dirichlet_gamma", None, "moments", 1500),
            ("hierarchical_poisson", RATES, "draws", 700),
            ("gamma_poisson", SPARSE, "draws", 700),
        ],
        4,
    ),
)
def test_chains_are_those_in_memory(blocks, folder, model, priors, keep, nonzeros):
    """Whatever the blocks, but for the rounding of sums: a random number of a block would be seen."""
    options = Gibbs(start="random", keep=keep, priors=priors or Priors(), **CHAINS)
    rows = np.random.default_rng(0).gamma(9.0, 1 / 9, len(X)) if priors is SCALES else None
    given = Blocks(folder / "cells.h5ad", nonzeros=nonzeros, scratch=folder / "scratch")
    one, two = (
        bayesnmf.fit(counts, model, 4, "gibbs", options=options, seed=2, row_exposure=rows) for counts in (given, X)
    )
    assert not one.counts.in_memory
    same_chains(one, two)
    assert (one.moments is None) == (keep == "draws")


@pytest.mark.parametrize(
    ("model", "priors"),
    mostly_long(
        [
            ("gamma_poisson", None),
            ("hierarchical_poisson", RATES),
            ("dirichlet_gamma", None),
            ("dirichlet_poisson", None),
        ],
        2,
    ),
)
def test_chains_of_the_marginal_sampler_are_those_in_memory(blocks, folder, model, priors):
    """Entries of rows and of features are drawn block by block: with streams of their places, and sums carried on."""
    options = Gibbs(start="random", keep="draws", priors=priors or Priors(), **CHAINS | {"algorithm": "marginal"})
    given = Blocks(folder / "cells.h5ad", nonzeros=700, scratch=folder / "scratch")
    one, two = (bayesnmf.fit(counts, model, 4, "gibbs", options=options, seed=2) for counts in (given, X))
    same_chains(one, two)


def same_chains(one, two, rtol=1e-11):
    for name in ("loadings", "components", "scale"):
        for ours, theirs in ((one, two), (one.estimate, two.estimate)):
            if getattr(theirs, name) is not None:
                np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=rtol)
    np.testing.assert_allclose(one.trace, two.trace, rtol=1e-13)
    for name, values in (one.moments or {}).items():
        np.testing.assert_allclose(values, two.moments[name], rtol=1e4 * rtol)  # R-hat ranks draws
    # R-hat ranks distances from the median, two of which differ by rounding alone: each fit has that of its own trace.
    own = {"r_hat_log_joint": float(r_hat_and_ess(one.trace)[0])}
    assert one.diagnostics == pytest.approx(
        {**two.diagnostics, **own}, rel=0.03, abs=0.01
    )  # of 440 entries, by ranks of ten draws


@pytest.mark.parametrize("of_q", [True, False])
def test_chains_from_given_starts_are_those_in_memory(blocks, tmp_path, of_q):
    start = bayesnmf.fit(X, rank=4, seed=0, options=VI(start="random", max_iter=1))
    start = start if of_q else Start(start.loadings, start.components)
    options = Gibbs(start=start, **CHAINS)
    one, two = (bayesnmf.fit(counts, rank=4, method="gibbs", options=options, seed=2) for counts in (blocks, X))
    same_chains(one, two)
    if of_q:
        one.save(tmp_path / "chains.zarr")
        same_chains(bayesnmf.load(tmp_path / "chains.zarr"), one, rtol=0)


def test_chains_start_from_a_fit_on_disk(whole):
    """By default. The fit is that in memory except for rounding, and a chain that starts there soon shows it."""
    short = Gibbs(chains=1, warmup=0, draws=1)
    one, two = (
        bayesnmf.fit(counts, rank=2, method="gibbs", seed=2, options=options)
        for counts, options in (
            (whole, short),
            (X, replace(short, start=on_disk_start(whole), algorithm="allocations")),
        )
    )
    np.testing.assert_allclose(one.trace, two.trace, rtol=1e-9)


def on_disk_start(blocks):
    priors = even_priors(X, rank=2)  # the default of samplers
    found = bayesnmf.fit(blocks, rank=2, seed=2, options=VI(priors=priors, max_iter=500))
    return bayesnmf.fit(X, rank=2, seed=2, options=VI(priors=priors, start=found, max_iter=0))


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        (
            {"method": "nuts"},
            "counts on disk need method='map', 'vi' or 'gibbs': found 'nuts'; read counts into memory",
        ),
        (
            {"method": "gibbs", "model": "dirichlet_poisson", "options": Gibbs(collapsed=True)},
            "need bayesnmf.Gibbs\\(collapsed=False\\): found collapsed=True",
        ),
        (
            {"method": "gibbs", "options": Gibbs(start=Start(np.ones((9, 9)), np.ones((9, 9))), keep="moments")},
            r"start.loadings must have shape \(103, 3\)",
        ),
        ({"options": VI(order="components")}, "need order='loadings'"),
        ({"options": VI(algorithm="gradient")}, "found 'gradient'"),
        (
            {
                "model": "hierarchical_poisson",
                "options": VI(priors=Priors(HierarchicalGamma(1.0, Gamma(1.0, 1.0), "component"))),
            },
            "need a prior of loadings without rates that rows share.*found over='component'",
        ),
    ],
)
def test_what_needs_counts_in_memory_is_refused_by_name(blocks, settings, rule):
    with pytest.raises(ValueError, match=rule):
        bayesnmf.fit(blocks, rank=3, **settings)


def test_no_room_for_the_loadings(blocks, monkeypatch):
    from bayesnmf.data.blocks import checks

    monkeypatch.setattr(checks.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    with pytest.raises(ValueError, match=r"scratch needs 0\.0 GB for what a fit of rank 3 writes"):
        bayesnmf.fit(blocks, rank=3)


def test_a_damaged_bit_of_loadings_on_disk_is_found(tmp_path):
    """Wherever it is: in a header, in the numbers, in the padding, in the checksum; and what is cut off."""
    rng = np.random.default_rng(0)
    given, path = [rng.random((5, 3)), rng.random((5, 1))], tmp_path / "0.rows"
    blocked_sides.write_rows(path, given)
    for ours, theirs in zip(blocked_sides.read_rows(path, (3, 1)), given, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    content = path.read_bytes()
    for at in range(0, len(content), 3):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1 << int(rng.integers(8))]) + content[at + 1 :])
        with pytest.raises(OSError, match=r"0\.rows was changed, damaged or cut off"):
            blocked_sides.read_rows(path, (3, 1))
    path.write_bytes(content[:-1])
    with pytest.raises(OSError, match="cut off"):
        blocked_sides.read_rows(path, (3, 1))


def test_a_damaged_bit_of_counts_by_features_is_found(blocks):
    found = open_counts(blocks, "float64").by_feature()
    path = found.folder / "0.rows"
    content = bytearray(path.read_bytes())
    content[3] ^= 0x40
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"0\.rows was changed"):
        found.read(0, np.float64)
