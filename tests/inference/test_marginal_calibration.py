"""Calibration of Gibbs sampling with the allocations summed out, and samplers with one fault each.

True values are ranked among the states of a chain that starts from them, 500 counts a row expected. The truth is a draw
of the posterior, so a right sampler needs no time to get there, and the ranks of a right one are uniform even where it
stays near one of several modes. A wrong one leaves for its own distribution during the warm-up. States are taken after
whole sweeps, which draw the components last, and after the loadings alone: draws of the components with the right
exposure repair the scale of the loadings, so after whole sweeps a wrong exposure of the loadings does not show.
"""

import importlib.util
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from arviz_stats.base import array_stats
from suites import mostly_long

import bayesnmf
from bayesnmf import Dirichlet, Gamma, HierarchicalGamma, Priors, ScaledDirichlet
from bayesnmf.fitting.problems import draws_problem
from bayesnmf.inference.problem import State
from bayesnmf.inference.sampling import marginal_gibbs, scales
from bayesnmf.kernels.cpu import entries, orbits
from bayesnmf.priors import ScaledProportions
from bayesnmf.priors.specification import MODELS
from bayesnmf.priors.values import separate_scale
from bayesnmf.studies.calibration.calibrating import QUANTITIES, Points, names_for, rank_among, true_point

SIZE, RANK, TOTAL = (6, 5), 2, 500
L, WARMUP, THIN = 19, 30, 8
FEW, MANY = 20, 60  # simulations


# --- ranks ------------------------------------------------------------------------------------------------


def priors_of(name, shape):
    """Return a model and its priors, all of one shape, with 500 counts a row expected."""
    loadings = Gamma(shape, shape * RANK / TOTAL)
    rates = Gamma(3.0, 2 * TOTAL / (RANK * shape)), Gamma(3.0, 2 / (SIZE[1] * shape))
    return {
        "Gamma × Dirichlet": ("gamma_poisson", Priors(loadings, Dirichlet(shape))),
        "Gamma × Gamma": ("gamma_poisson", Priors(loadings, Gamma(shape, shape * SIZE[1]))),
        "dirichlet_poisson": ("dirichlet_poisson", Priors(Dirichlet(shape), Dirichlet(shape))),
        "dirichlet_gamma": ("dirichlet_gamma", Priors(ScaledDirichlet(shape, 4.0, 4 / TOTAL), Dirichlet(shape))),
        "hierarchical": (
            "hierarchical_poisson",
            Priors(HierarchicalGamma(shape, rates[0], "row"), HierarchicalGamma(shape, rates[1], "feature")),
        ),
    }[name]


def sum_of_loadings(at):
    """Return the sum of all loadings, or of all scales: what an exposure divides."""
    return (at.loadings if at.scale is None else at.scale).reshape(len(at.loadings), -1).sum(axis=1)


def largest_loading(at):
    return at.loadings.max(axis=(1, 2))


def total_mean(at):
    return at.means.sum(axis=(1, 2))


def log_loadings(at):
    """Return the sum of all logarithms of loadings, to which small ones contribute most."""
    return np.log(at.loadings).sum(axis=(1, 2))


def log_components(at):
    return np.log(at.components).sum(axis=(1, 2))


def quantities_of(model, priors):
    """Return the functions to rank by name."""
    chosen = {name: QUANTITIES[name] for name in names_for(model, RANK, priors)}
    own = [largest_loading, log_loadings, log_components]
    own += [] if MODELS[model].given_totals else [sum_of_loadings, total_mean]
    return chosen | {function.__name__: function for function in own}


def ranks_of(name, shape, simulations, seed, factors_of=marginal_gibbs.factors_of):
    """Return the names of quantities and the ranks of their true values, (simulations, quantities)."""
    model, priors = priors_of(name, shape)
    functions, ranks = quantities_of(model, priors), []
    totals = TOTAL if MODELS[model].given_totals else None
    for stream in np.random.SeedSequence(seed).spawn(simulations):
        rng = np.random.default_rng(stream)
        drawn = bayesnmf.simulate(model, SIZE, RANK, priors=priors, totals=totals, seed=int(rng.integers(2**32)))
        true = evaluated(functions, true_point(drawn))[0]
        both = [evaluated(functions, points_of(states, drawn)) for states in chain(drawn, rng, factors_of)]
        ranks.append(np.concatenate([rank_among(true, values, rng) for values in both]))
    return [f"{name} after {last}" for last in ("sweeps", "loadings") for name in functions], np.array(ranks)


def evaluated(functions, points):
    return np.stack([each(points) for each in functions.values()], axis=1)


def chain(drawn, rng, factors_of):
    """Return L states of a chain from the true values after whole sweeps, and L after the loadings are drawn."""
    problem = draws_problem(drawn.counts, drawn.priors, rng)
    value = drawn.loadings if drawn.scale is None else ScaledProportions(drawn.loadings, drawn.scale[:, None])
    start = State(
        problem.loadings_summary.at(problem.loadings_prior, value),
        problem.components_summary.at(problem.components_prior, np.asfortranarray(drawn.components)),
    )
    factors, swept, half_swept = factors_of(problem, start, rng), [], []
    for done in range(1, WARMUP + L * THIN + 1):
        factors.sweep(1)
        if done > WARMUP and (done - WARMUP) % THIN == 0:
            swept.append(arrays_of(*factors.value()))
            draw_loadings(factors)
            half_swept.append(arrays_of(*factors.value()))
    return swept, half_swept


def draw_loadings(factors):
    """Draw the loadings as a sweep does."""
    loadings, _ = factors._terms()
    if factors.shares:
        factors._draw_totals(loadings)
    factors._draw_loadings(loadings, 1)


def arrays_of(loadings, components):
    """Return copies of loadings, components and scales."""
    shares, scale = separate_scale(loadings)
    return shares.copy(), components.copy(), np.zeros(0) if scale is None else np.ravel(scale).copy()


def points_of(states, drawn):
    loadings, components, scale = (np.stack(each) for each in zip(*states, strict=True))
    given_totals = MODELS[drawn.model].given_totals
    own = scale if drawn.scale is not None else None
    return Points(loadings, components, own, drawn.counts.matrix.toarray(), drawn.priors, given_totals)


def p_value(ranks, seed=0):
    """Return the smallest p-value of uniform ranks times the number of quantities, and its quantity."""
    pit = (ranks + np.random.default_rng(seed).random(ranks.shape)) / (L + 1)
    p = np.atleast_1d(array_stats.uniformity_test(pit.T, axis=-1, method="pot_c")[0])
    return min(1.0, len(p) * p.min()), int(p.argmin())


# --- faults -----------------------------------------------------------------------------------------------


class Fault(NamedTuple):
    """One piece of the code in place of another, and the priors under which it is looked for."""

    module: object
    right: str
    wrong: str
    family: str
    shape: float


GXD, GXG, LDA, DG, HPF = "Gamma × Dirichlet", "Gamma × Gamma", "dirichlet_poisson", "dirichlet_gamma", "hierarchical"
OF_LOADINGS = "self._observed(self.power * self.beta"
OF_COMPONENTS = "self._observed(self.power * self.theta"
EXPOSURES = {
    "of loadings": Fault(marginal_gibbs, OF_LOADINGS, "self._observed(1.05 * self.power * self.beta", GXD, 1.0),
    "of components": Fault(marginal_gibbs, OF_COMPONENTS, "self._observed(1.05 * self.power * self.theta", GXG, 1.0),
}
FAULTS = {  # one of each module; others, and what finds them, are in benchmarks/README.md
    "shapes of components 0.05 too large": Fault(
        marginal_gibbs, "(b, t), (shape, linear)", "(b, t), (shape + 0.05, linear)", GXD, 0.03
    ),
    "row totals without their counts": Fault(
        marginal_gibbs, "keepdims=True) + self.totals", "keepdims=True)", LDA, 1.0
    ),
    "rates drawn given entries of 1": Fault(
        marginal_gibbs,
        "values = np.swapaxes(self.beta / self.features, 1, 2)",
        "values = np.swapaxes(np.ones_like(self.beta), 1, 2)",
        HPF,
        1.0,
    ),
    "scales: shapes of loadings added": Fault(
        scales, "- np.broadcast_to(a, loadings.shape)", "+ np.broadcast_to(a, loadings.shape)", GXG, 1.0
    ),
    "proposal ratio forgotten": Fault(
        entries, "gain += _log_proposal_ratio(u, new, mode, h, shape)", "gain += 0.0", GXD, 1.0
    ),
    "shears: shapes not less 1": Fault(orbits, "parts[0] - 1, parts[1] - 1", "parts[0], parts[1]", GXG, 0.3),
}


def with_fault(fault, folder, monkeypatch):
    """Return what makes the sampler's factors, with a fault; what the module gives to the sampler is replaced."""
    text = Path(fault.module.__file__).read_text(encoding="utf-8")
    assert text.count(fault.right) == 1, f"{fault.right!r} must be in {fault.module.__name__} once"
    path = folder / f"{fault.module.__name__.rpartition('.')[2]}_with_a_fault.py"
    path.write_text(text.replace(fault.right, fault.wrong), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    wrong = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(wrong)
    for name in {"draw_entries", "shear_components", "log_scales_of"} & set(vars(wrong)):
        if getattr(wrong, name) is not getattr(marginal_gibbs, name):
            monkeypatch.setattr(marginal_gibbs, name, getattr(wrong, name))
    return wrong.factors_of if fault.module is marginal_gibbs else marginal_gibbs.factors_of


# --- what the ranks show ----------------------------------------------------------------------------------

ALPHA, RIGHT = 0.01, 1e-3  # a fault is found below the first, which a right sampler is in 1 of 100 seeds


def assert_uniform(family, shape, simulations):
    names, ranks = ranks_of(family, shape, simulations, seed=1)
    p, least = p_value(ranks)
    assert p > RIGHT, names[least]


def test_ranks_are_uniform():
    assert_uniform(GXG, 1.0, FEW)


@pytest.mark.long
@pytest.mark.parametrize(("family", "shape"), [(GXD, 0.03), (GXG, 0.3), (LDA, 1.0), (DG, 0.3), (HPF, 1.0)])
def test_ranks_are_uniform_under_all_families(family, shape):
    assert_uniform(family, shape, MANY)


@pytest.mark.parametrize("name", mostly_long(EXPOSURES, (1,)))
def test_an_exposure_that_is_5_percent_wrong_is_found(name, tmp_path, monkeypatch):
    """Of 20 repetitions, at least 18 find it."""
    fault = EXPOSURES[name]
    _, ranks = ranks_of(fault.family, fault.shape, FEW, 2, with_fault(fault, tmp_path, monkeypatch))
    assert p_value(ranks)[0] < ALPHA


@pytest.mark.long
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(name, tmp_path, monkeypatch):
    fault = FAULTS[name]
    _, ranks = ranks_of(fault.family, fault.shape, MANY, 3, with_fault(fault, tmp_path, monkeypatch))
    assert p_value(ranks)[0] < ALPHA
