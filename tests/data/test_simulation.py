"""Simulated parameters and counts: those of the NumPyro programs, at the sizes and totals asked for."""

import jax
import numpy as np
import pytest
from numpyro.infer import Predictive
from registry import MODELS_AND_PRIORS, over

import bayesnmf
from bayesnmf import Dirichlet, Gamma, Priors, ScaledDirichlet
from bayesnmf.fitting.numpyro_bridge import hyperparameters, load_program

# One with different hyperparameters everywhere for each pair of families, so that none can be mistaken for another.
PROPER = [entry for entry in MODELS_AND_PRIORS if entry.proper and "asymmetric" in entry.id]
SIZE, RANK, DRAWS = (4, 3), 2, 1000


def moments(values):
    """Means and second moments of loadings, components and counts, with their standard errors, all in one line."""
    flat = np.hstack([np.asarray(value).reshape(len(value), -1) for value in values])
    both = np.hstack([flat, np.sqrt(flat)])
    return both.mean(axis=0), both.std(axis=0, ddof=1) / np.sqrt(len(both))


@over(PROPER, default=("dirichlet_poisson-asymmetric",))
def test_draws_are_those_of_the_program(entry):
    """The two statements of the model simulate alike: moments of every entry agree within Monte Carlo error."""
    priors = entry.priors(SIZE, RANK)
    given = entry.model == "dirichlet_poisson"
    totals = np.array([5, 0, 20, 11]) if given else None
    drawn = [
        bayesnmf.simulate(entry.model, SIZE, RANK, priors=priors, totals=totals, seed=seed) for seed in range(DRAWS)
    ]
    sides = ("loadings", "components") if drawn[0].scale is None else ("loadings", "components", "scale")
    counts = np.array([one.counts.matrix.toarray() for one in drawn])
    ours = moments([counts] + [np.array([getattr(one, side) for one in drawn]) for side in sides])
    sizes = {"loadings": (SIZE[0], RANK), "components": (RANK, SIZE[1])}
    arguments = {side: hyperparameters(getattr(priors, side), size) for side, size in sizes.items()}
    with jax.enable_x64(True):
        if given:
            arguments["totals"] = totals.astype(np.float64)
        program = load_program(entry.model).program
        sites = Predictive(program, num_samples=DRAWS)(jax.random.key(0), size=SIZE, rank=RANK, **arguments)
    theirs = moments([np.asarray(sites[side], np.float64) for side in ("counts", *sides)])
    gap, error = np.abs(ours[0] - theirs[0]), np.hypot(ours[1], theirs[1])
    assert np.all(gap <= 5 * error + 1e-12)
    assert np.all(np.isfinite(counts))


@over(PROPER, default=("gamma_poisson-asymmetric", "dirichlet_poisson-asymmetric"))
def test_counts_are_drawn_around_the_product_of_the_factors(entry):
    totals = np.array([5, 0, 20, 11]) if entry.model == "dirichlet_poisson" else None
    given = {"priors": entry.priors(SIZE, RANK), "totals": totals}
    drawn = [bayesnmf.simulate(entry.model, SIZE, RANK, **given, seed=seed) for seed in range(300)]
    gap = sum(one.counts.matrix.toarray() - one.means for one in drawn)
    assert np.all(np.abs(gap) <= 5 * np.sqrt(sum(one.means for one in drawn)))
    for one in drawn[:5]:
        loadings = one.loadings if one.scale is None else one.loadings * np.reshape(one.scale, (-1, 1))
        rates = loadings @ one.components
        np.testing.assert_allclose(one.means, rates if totals is None else rates * totals[:, None], rtol=1e-12)


@pytest.mark.parametrize("model", ["gamma_poisson", "dirichlet_gamma"])
def test_default_priors_are_those_of_a_fit_with_such_totals(model):
    drawn = bayesnmf.simulate(model, (2000, 5), 3, totals=80, seed=1)
    # Totals are Poisson-Gamma around 80 with sd at most hypot(80, 9).
    assert abs(drawn.counts.row_totals.mean() - 80) < 5 * np.hypot(80, 9) / np.sqrt(2000)


def test_given_totals_are_kept():
    totals = np.arange(5)
    drawn = bayesnmf.simulate("dirichlet_poisson", (5, 3), 2, totals=totals)
    np.testing.assert_array_equal(drawn.counts.row_totals, totals)
    np.testing.assert_allclose(drawn.means.sum(axis=1), totals, rtol=1e-12)
    assert bayesnmf.simulate("dirichlet_poisson", (2, 3), 2).counts.row_totals.tolist() == [200, 200]


def test_means_are_what_counts_vary_around():
    drawn = bayesnmf.simulate("dirichlet_gamma", (300, 4), 2, totals=400, seed=2)
    deviations = (drawn.counts.matrix.toarray() - drawn.means) / np.sqrt(drawn.means)
    assert abs(np.mean(deviations**2) - 1) < 5 * np.sqrt(2 / 1200) + 0.02


def test_same_seed_same_draws():
    one, two, other = (bayesnmf.simulate(seed=seed) for seed in (3, 3, 4))
    assert (one.counts.matrix != two.counts.matrix).nnz == 0
    np.testing.assert_array_equal(one.components, two.components)
    assert (one.counts.matrix != other.counts.matrix).nnz > 0
    assert "gamma_poisson, rank 5" in repr(one)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": "poisson"}, "a simulation needs a proper prior of the loadings"),
        ({"model": "lda"}, "model must be"),
        ({"size": 5}, "size must be"),
        ({"size": (0, 5)}, r"size\[0\]"),
        ({"rank": 0}, "rank"),
        ({"seed": -1}, "seed"),
        ({"priors": Priors(components="parameter")}, "a simulation needs a proper prior of the components"),
        ({"priors": Priors(components=Gamma(1.0, 0.0))}, "a simulation needs a proper prior of the components"),
        ({"priors": Priors(Dirichlet(1.0))}, "priors.loadings must be Gamma"),
        ({"priors": Priors(Gamma(1.0, 1.0)), "totals": 3}, "totals must not be given"),
        ({"model": "dirichlet_gamma", "priors": Priors(ScaledDirichlet(1, 1, 1)), "totals": 3}, "totals must not"),
        ({"totals": -1}, "totals"),
        ({"model": "dirichlet_poisson", "totals": [1, 2]}, "totals must be a number or 100 numbers"),
        ({"model": "dirichlet_poisson", "totals": 1.5}, "totals must be whole"),
        ({"model": "dirichlet_poisson", "totals": "many"}, "totals must be a number"),
        ({"size": (10**6, 10**6)}, "the counts"),
    ],
)
def test_nonsense_is_refused(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        bayesnmf.simulate(**arguments)
