"""Draws from elsewhere: our own come back as the same fit, in every form, and what is wrong is refused by name."""

import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import smallfits
import xarray as xr
from numpyro.infer import MCMC

import bayesnmf
from bayesnmf import Dirichlet, Gamma, Priors, from_draws
from bayesnmf.results.record import SITE

N, M, K = smallfits.N, smallfits.M, smallfits.K
COUNTS = smallfits.COUNTS
pytestmark = smallfits.quietly
LONG, KINDS = ("dirichlet_poisson", "dirichlet_gamma", "hierarchical_poisson"), ("draws", "mean field", "proportions")


def gibbs(model="gamma_poisson"):
    return smallfits.fit(model, "gibbs")


def arrays(model="gamma_poisson"):
    posterior = gibbs(model).posterior
    named = {"theta": posterior.loadings, "beta": posterior.components}
    return named if posterior.scale is None else {**named, "sizes": posterior.scale}


def made(draws, counts=COUNTS, **more):
    return from_draws(counts, draws, **{"loadings": "theta", "components": "beta", **more})


def as_pymc(draws, rows=tuple(COUNTS.index), features=tuple(COUNTS.columns)):
    """A tree as PyMC returns one: dims and coords of the user, deterministics and statistics beside."""
    chains, number = draws["theta"].shape[:2]
    dims = {"theta": ("document", "topic"), "beta": ("topic", "word"), "tau": ("topic",), "mu": ()}
    own = {**draws, "tau": np.ones((chains, number, K)), "mu": np.zeros((chains, number))}
    coords = {"chain": np.arange(chains), "draw": np.arange(number), "document": list(rows), "word": list(features),
              "topic": np.arange(K)}  # fmt: skip
    posterior = xr.Dataset({name: (("chain", "draw", *dims[name]), own[name]) for name in own}, coords)
    statistics = xr.Dataset({"lp": (("chain", "draw"), np.zeros((chains, number)))})
    return xr.DataTree.from_dict({"posterior": posterior, "sample_stats": statistics})


class Ran(MCMC):
    """An MCMC with given samples, as after its run."""

    def __init__(self, draws):
        self.draws = draws

    def get_samples(self, group_by_chain=False):
        assert group_by_chain
        return self.draws


@pytest.mark.parametrize("model", ["gamma_poisson", *(pytest.param(name, marks=pytest.mark.long) for name in LONG)])
def test_our_own_draws_come_back_as_the_fit(model):
    ours = gibbs(model)
    theirs = made(arrays(model), scale="sizes")
    assert theirs.method == "draws from elsewhere"
    assert "unknown prior" in repr(theirs)
    for side in ("loadings", "components", "expected_loadings", "component_labels"):
        np.testing.assert_array_equal(getattr(theirs, side), getattr(ours, side))
    for name in ("max_r_hat", "min_ess", "share_above", "ambiguous_draws"):
        assert theirs.diagnostics[name] == ours.diagnostics[name], name
    pd.testing.assert_frame_equal(bayesnmf.markers(theirs), bayesnmf.markers(ours))
    pd.testing.assert_frame_equal(theirs.summary(), ours.summary())
    levels, at = np.array([0.05, 0.95]), (np.arange(N)[:, None], np.arange(K))
    np.testing.assert_array_equal(theirs.posterior.quantiles("loadings", at, levels),
                                  ours.posterior.quantiles("loadings", at, levels))  # fmt: skip
    known = made(arrays(model), scale="sizes", model=model, priors=ours.priors)
    np.testing.assert_allclose(known.trace, ours.trace, rtol=1e-9)  # the log joint
    np.testing.assert_array_equal(known.transform(COUNTS[:3]), ours.transform(COUNTS[:3]))
    assert known.objective == "log joint"
    assert theirs.objective == "log likelihood"


def test_labels_that_differ_between_chains_are_matched():
    draws = arrays()
    order = np.array([2, 0, 1])
    theta, beta = draws["theta"].copy(), draws["beta"].copy()
    theta[1], beta[1] = theta[1][..., order], beta[1][:, order]
    tau = np.broadcast_to(np.arange(3.0), (2, theta.shape[1], 3)).copy()
    tau[1] = tau[1][:, order]
    mixed = made({"theta": theta, "beta": beta, "tau": tau})
    plain = made(draws)
    np.testing.assert_array_equal(mixed.posterior.loadings, plain.posterior.loadings)
    assert mixed.diagnostics["max_r_hat"] == plain.diagnostics["max_r_hat"]
    np.testing.assert_array_equal(mixed.statistics[f"{SITE}tau"][1], mixed.statistics[f"{SITE}tau"][0])
    assert dict(mixed.to_datatree()["posterior"].sizes)["tau_dim_0"] == 3


FORMS = {
    "mapping": lambda draws: draws,
    "transposed": lambda draws: {name: each.swapaxes(-1, -2) for name, each in draws.items()},
    "NumPyro": Ran,
    "PyMC": as_pymc,
    "posterior alone": lambda draws: as_pymc(draws)["posterior"].to_dataset(),
    "rows in another order": lambda draws: as_pymc(
        {"theta": draws["theta"][:, :, ::-1], "beta": draws["beta"]}, rows=COUNTS.index[::-1]
    ),
    "features in another order": lambda draws: as_pymc(
        {"theta": draws["theta"], "beta": draws["beta"][..., ::-1]}, features=COUNTS.columns[::-1]
    ),
    "axes in another order": lambda draws: as_pymc(draws)["posterior"].to_dataset().transpose(..., "draw", "chain"),
    "our own tree": lambda draws: made(draws).to_datatree(),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_the_same_draws_is_the_same_fit(form):
    plain, found = made(arrays()), made(FORMS[form](arrays()))
    np.testing.assert_array_equal(found.posterior.loadings, plain.posterior.loadings)
    np.testing.assert_array_equal(found.posterior.components, plain.posterior.components)
    assert {**found.diagnostics} == {**plain.diagnostics}
    assert found.sites == {"loadings": "theta", "components": "beta"}
    assert {"theta", "beta"} <= {*found.to_datatree()["posterior"].data_vars}


def test_draws_without_chains_are_one_chain():
    draws = {name: each[0] for name, each in arrays().items()}
    found = made({**draws, "mu": np.zeros(len(draws["theta"]))})
    assert found.posterior.held == (1, 60)
    assert "one chain, whose halves are compared" in found.status.reason
    assert found.statistics[f"{SITE}mu"].shape == (1, 60)


def test_points_and_mean_fields_come_back_too():
    vi = smallfits.fit()
    q = from_draws(COUNTS, (vi.posterior.loadings, vi.posterior.components), model=vi.model, priors=vi.priors)
    assert bayesnmf.elbo_augmented(q) == pytest.approx(bayesnmf.elbo_augmented(vi), rel=1e-12)
    np.testing.assert_array_equal(q.transform(COUNTS[:3]), vi.transform(COUNTS[:3]))
    parameters = vi.posterior.loadings.parameters
    theirs = from_draws(COUNTS, {"loadings": Gamma(parameters["shape"], parameters["rate"]),
                                 "components": Dirichlet(vi.posterior.components.concentration)})  # fmt: skip
    np.testing.assert_array_equal(theirs.loadings, q.loadings)
    np.testing.assert_array_equal(theirs.components, vi.components)
    point = from_draws(COUNTS, (vi.loadings, vi.components))
    np.testing.assert_array_equal(point.components, vi.components)
    assert point.estimate.kind == "point"
    assert theirs.estimate.kind == "mean field"
    given = bayesnmf.simulate("gamma_poisson", (N, M), K, seed=1).counts
    for fit in (point, theirs):
        assert "unknown prior" in repr(fit)
        assert "taken as it is" in repr(fit)
        assert "seed" not in repr(fit)
    assert from_draws(given, (vi.loadings.T, vi.components.T)).loadings.shape == (N, K)


@pytest.mark.parametrize("kind", ["draws", "mean field", "point", "proportions"])
def test_a_fit_from_elsewhere_is_saved_and_loaded(kind, tmp_path):
    fit = of_kind(kind)
    fit.save(tmp_path / "fit.nc")
    again = bayesnmf.load(tmp_path / "fit.nc")
    assert repr(again) == repr(fit)
    assert repr(again.priors) == repr(fit.priors)
    np.testing.assert_array_equal(again.loadings, fit.loadings)
    xr.testing.assert_identical(again.to_datatree(), fit.to_datatree())
    with pytest.raises(ValueError, match="unknown prior"):
        again.transform(COUNTS)


def of_kind(kind):
    vi, draws = smallfits.fit(), arrays()
    if kind == "proportions":
        draws = arrays("dirichlet_poisson")
    return {
        "draws": lambda: made({**draws, "tau": np.ones((2, 60, 3)), "mu": np.ones((2, 60))}),
        "mean field": lambda: from_draws(COUNTS, (vi.posterior.loadings, vi.posterior.components)),
        "point": lambda: from_draws(COUNTS, (vi.loadings, vi.components)),
        "proportions": lambda: made(draws),
    }[kind]()


@pytest.mark.parametrize("kind", ["point", *(pytest.param(name, marks=pytest.mark.long) for name in KINDS)])
def test_what_draws_do_not_say_is_refused_and_the_rest_works(kind, tmp_path):
    fit = of_kind(kind)
    assert fit.model == ("dirichlet_poisson" if kind == "proportions" else "poisson")
    bayesnmf.predictive_checks(fit, draws=20, refits=10)
    bayesnmf.to_topic_model(fit)
    assert len(bayesnmf.markers(fit))
    for what in (lambda: fit.transform(COUNTS), lambda: fit.project(COUNTS), fit.program,
                 lambda: bayesnmf.plots.model_graph(fit)):  # fmt: skip
        with pytest.raises(ValueError, match=r"found unknown prior; give model= and priors=bayesnmf\.Priors\("):
            what()
    with pytest.raises(ValueError, match="an evidence lower bound needs"):
        bayesnmf.elbo_augmented(fit)
    for intervals in ("sampled", "bootstrap"):
        with pytest.raises(ValueError, match=f"the fit is by {fit.method}"):
            fit.with_intervals(intervals)


@pytest.mark.long
@pytest.mark.usefixtures("without_pictures")
@pytest.mark.parametrize("kind", ["draws", "mean field", "point", "proportions"])
def test_a_report_of_a_fit_from_elsewhere(kind, tmp_path):
    fit = of_kind(kind)
    page = bayesnmf.report(fit, tmp_path / "fit.html").read_text(encoding="utf-8")
    assert "from elsewhere" in page
    assert "bayesnmf.from_draws(fit.counts" in page
    assert "flat prior" not in page
    assert "from elsewhere" in bayesnmf.report({"theirs": fit, "again": fit}["theirs"], tmp_path / "b.html").read_text()


def test_large_draws_are_kept_in_float32_or_thinned_and_the_fit_says_so():
    draws = arrays()
    size = 8 * sum(each.size for each in draws.values())
    single = made(draws, limit=size - 1)
    assert single.posterior.loadings.dtype == np.float32
    assert single.posterior.held == (2, 60)
    assert "kept in float32 of 2 × 60" in repr(single)
    thinned = made(draws, limit=size / 8)
    assert thinned.posterior.held == (2, 15)
    assert "every 4th of 2 × 60" in " ".join(repr(thinned).split())
    by_hand = made({name: each[:, ::4] for name, each in draws.items()})
    np.testing.assert_array_equal(thinned.posterior.loadings, by_hand.posterior.loadings.astype(np.float32))
    assert thinned.to_datatree()["posterior"].sizes["draw"] == 15


def test_the_noise_of_the_counts_is_given_with_its_dispersion():
    noise = bayesnmf.NegativeBinomial("quadratic", 0.3)
    found = made(arrays(), noise=noise)
    assert found.noise == noise
    assert found.objective == "log likelihood"
    assert found.trace.mean() != made(arrays()).trace.mean()
    with pytest.raises(ValueError, match="needs its dispersion"):
        made(arrays(), noise="nb2")


def test_exposures_and_missing_entries_are_those_of_the_counts():
    seen = np.random.default_rng(0).random((N, M)) < 0.9
    found = made(arrays(), observed=seen, row_exposure=np.arange(1.0, N + 1))
    assert found.counts.mask.number == (~seen).sum()
    np.testing.assert_allclose(found.expected_loadings, found.loadings * np.arange(1.0, N + 1)[:, None])


def spoilt(name, change):
    draws = {name: each.copy() for name, each in arrays().items()}
    draws[name] = change(draws[name])
    return draws


def with_entry(value):
    def change(values):
        values[0, 1, 2, 0] = value
        return values

    return change


SQUARE = np.random.default_rng(0).dirichlet(np.ones(M), (2, 20, M))
FAULTS = {
    "no such site": (lambda: from_draws(COUNTS, arrays()), "must have a site 'loadings'.*'theta', 'beta'.*loadings="),
    "misspelt": (lambda: made(arrays(), loadings="thetas"), "did you mean 'theta'"),
    "NaN": (lambda: made(spoilt("theta", with_entry(np.nan))), r"theta must be finite: found nan at \(0, 1, 2, 0\)"),
    "negative": (lambda: made(spoilt("beta", with_entry(-1.0))), r"beta must be nonnegative.*np\.exp"),
    "other rows": (lambda: made(spoilt("theta", lambda v: v[:, :, :5])), r"12 × 9 counts: found theta \(2, 60, 5, 3\)"),
    "other rank": (lambda: made(spoilt("beta", lambda v: v[:, :, :2])), "give draws of a fit of these counts"),
    "other draws": (lambda: made(spoilt("beta", lambda v: v[:, :30])), "must have the same chains and draws"),
    "one draw": (lambda: made({k: v[:, :1] for k, v in arrays().items()}), r"2 or more of each.*swapaxes\(0, 1\)"),
    "a single draw": (lambda: made({k: v[:1, :1] for k, v in arrays().items()}), "a point as two matrices"),
    "a vector": (lambda: made({"theta": np.ones(5), "beta": np.ones(3)}), "must be matrices of each draw"),
    "words": (lambda: made(spoilt("beta", lambda v: v.astype(str))), "beta must be an array of numbers"),
    "no draws": (lambda: from_draws(COUNTS, 3), "draws must be a mapping"),
    "not run": (lambda: from_draws(COUNTS, not_run()), "an MCMC that has run"),
    "no posterior": (lambda: from_draws(COUNTS, xr.DataTree()), "must have a group posterior"),
    "other labels": (lambda: made(as_pymc(arrays(), rows=[f"d{i}" for i in range(N)])), "the labels of theta must"),
    "square": (lambda: made({"theta": np.ones((2, 20, N, M)), "beta": SQUARE}), "transposed must be given"),
    "half a mean field": (lambda: from_draws(COUNTS, (Gamma(1, 1), np.ones((K, M)))), "both distributions, or both"),
    "small parameters": (lambda: from_draws(COUNTS, (Gamma(1, 1), Dirichlet(1))), r"must be \(12, K\)"),
    "one prior": (lambda: made(arrays(), priors=Priors(Gamma(1, 1))), "found no components"),
    "model": (lambda: made(arrays(), model="dirichlet_poisson"), "needs loadings and components that sum to 1"),
    "scaled model": (lambda: made(arrays(), model="dirichlet_gamma"), "needs loadings with a scale"),
    "scale": (lambda: made({**arrays(), "sizes": np.ones((2, 60, 5))}, scale="sizes"), "a number for each row"),
    "transposed word": (lambda: made(arrays(), transposed=["theta"]), "transposed must be"),
    "limit": (lambda: made(arrays(), limit=0), "limit must be"),
}  # fmt: skip


def not_run():
    from numpyro.infer import NUTS

    return MCMC(NUTS(lambda: None), num_warmup=1, num_samples=1)


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_is_named_with_a_cure(fault):
    call, message = FAULTS[fault]
    with pytest.raises((TypeError, ValueError), match=message):
        call()


def test_square_sides_need_a_word():
    draws = {"theta": np.ones((2, 20, N, M)), "beta": SQUARE}
    plain = made(draws, transposed=()).posterior.components
    np.testing.assert_array_equal(np.sort(plain, axis=2), np.sort(SQUARE, axis=2))
    turned = made({**draws, "beta": SQUARE.swapaxes(-1, -2)}, transposed=["components"])
    np.testing.assert_array_equal(turned.posterior.components, plain)


def test_a_posterior_from_elsewhere_stands_beside_ours():
    fits = {"gibbs": gibbs(), "theirs": made(arrays())}
    table = bayesnmf.posterior_agreement(fits)
    assert "whether its priors are those of" in str(table)
    assert pickle.loads(pickle.dumps(fits["theirs"])).method == "draws from elsewhere"


@pytest.mark.long
def test_fits_that_are_made_are_compared_as_they_are():
    fits = {"ours": gibbs(), "vi": smallfits.fit(), "theirs": made(arrays())}
    found = bayesnmf.compare(COUNTS, fits=fits)
    assert list(found.fits) == list(fits)
    assert found.table.loc["theirs", "loglik"] == pytest.approx(found.table.loc["ours", "loglik"], rel=1e-12)
    assert found.table.loc["theirs", "cosine_min"] == pytest.approx(1.0)
    assert not [name for name in found.table if name.startswith("heldout")]
    assert "none are held out" in found.details()
    with pytest.raises(ValueError, match="found rank beside them; leave rank out"):
        bayesnmf.compare(COUNTS, rank=3, fits=fits)
    with pytest.raises(ValueError, match="fits must be of the given counts"):
        bayesnmf.compare(COUNTS + 1, fits=fits)


def test_means_that_are_all_but_0_say_nothing_of_structure():
    counts = COUNTS.assign(none=0)
    vi = smallfits.fit()
    components = np.column_stack([vi.components, np.full(K, 1e-310)])  # whose weights, 1 / λ, are infinite
    assert "residuals" not in repr(from_draws(counts, (vi.loadings, components)))


def test_draws_come_back_without_jax():
    code = (
        "import sys, numpy as np, bayesnmf; rng = np.random.default_rng(0);"
        "bayesnmf.from_draws(np.ones((5, 4)), {'loadings': rng.gamma(1, size=(2, 300, 5, 2)),"
        "'components': rng.dirichlet(np.ones(4), (2, 300, 2))}); assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
