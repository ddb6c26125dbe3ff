"""Loadings whose prior depends on covariates: means, or concentrations, are log-linear in them.

A plain prior, Gamma, Dirichlet or ScaledDirichlet, is that of a row with linear predictor 0. In row i, the mean of a
Gamma, or the concentration of a Dirichlet, is exp(x_i'β_k) times that (Mimno & McCallum, *Topic models conditioned on
arbitrary features with Dirichlet-multinomial regression*, 2008)::

    u_ik ~ Gamma(a_k, r_k exp(−x_i'β_k))          Dirichlet(c_1 exp(x_i'β_1), …, c_K exp(x_i'β_K))

Given the effects β this is a prior of the same family with a parameter for each row. So conditionals and mean fields
are those of the plain family; the effects are learned by map and vi, and drawn by gibbs, beside the sides.

Every effect has a normal prior about 0 with the precision of its term. Effects that maximise E_q log p are found by
Newton's method for Gammas, and by Fisher scoring for Dirichlets; steps are halved until the sum does not fall.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy.special import digamma, gammaln, polygamma

from bayesnmf.priors.dirichlet import Dirichlet
from bayesnmf.priors.distribution import Distribution, Draws, Entries, Learned, LogBasis, Response, Settled, words_of
from bayesnmf.priors.gamma import Gamma
from bayesnmf.priors.scaled_dirichlet import ScaledDirichlet
from bayesnmf.priors.values import ScaledProportions
from bayesnmf.types import Array

MOST_STEPS, MOST_HALVINGS, TOL = 50, 40, 1e-10
LARGEST = 40.0  # of a linear predictor: what is beyond is no size of loadings, and exp of it would overflow
LEAST_SHAPE, MOST_SHAPE = 1e-6, 1e5
SHAPE_SD = 1.0  # of the logarithm of a shape, about that of the given one


def predictors(design: Array, effects: Array) -> Array:
    """Return η, (n, K), within ±`LARGEST`."""
    return np.clip(design @ effects, -LARGEST, LARGEST)


def log_prior_of_effects(effects: Array, precision: Array) -> float:
    """Return Σ log Normal(β; 0, 1 / precision) of effects (p, K), with precisions (p, 1)."""
    constant = np.log(precision / (2 * np.pi)) / 2
    return float((constant - precision * effects**2 / 2).sum())


def log_prior_of_shapes(shape: Array, given: Array) -> float:
    """Return Σ log Normal(log a; log of the given shape, `SHAPE_SD`²), a density in log a."""
    z = np.log(shape / given) / SHAPE_SD
    return float((-(z**2) / 2 - np.log(SHAPE_SD * np.sqrt(2 * np.pi))).sum())


def gamma_effects(start: Array, design: Array, weights: Array, shape: Array, precision: Array) -> Array:
    """Return the effects that maximise Σ_i −a_k η_ik − w_ik exp(−η_ik) + log p(β_k), which is concave.

    Parameters
    ----------
    start : ndarray (p, K)
    design : ndarray (n, p)
    weights : ndarray (n, K)
        Rate r_k times E u_ik.
    shape : ndarray (1, K)
    precision : ndarray (p, 1)
    """

    def height(effects: Array) -> Array:
        eta = predictors(design, effects)
        return (-shape * eta - weights * np.exp(-eta)).sum(axis=0) - (precision * effects**2).sum(axis=0) / 2

    def step(effects: Array) -> Array:
        left = weights * np.exp(-predictors(design, effects))
        slope = design.T @ (left - shape) - precision * effects
        bend = np.einsum("ip,ik,iq->kpq", design, left, design, optimize=True) + np.diagflat(precision)
        return np.linalg.solve(bend, slope.T[:, :, None])[:, :, 0].T

    return climbed(start, height, step)


def dirichlet_effects(start: Array, design: Array, expected_log: Array, base: Array, precision: Array) -> Array:
    """Return effects at a maximum of Σ_i log Dirichlet(x_i; c exp(η_i)) + log p(β), given E log x, (n, K).

    The steps solve with the Fisher information, of all components together, which is positive definite.
    """
    p, rank = start.shape

    def height(effects: Array) -> Array:
        alpha = base * np.exp(predictors(design, effects))
        terms = gammaln(alpha.sum(axis=1)) + (alpha * expected_log - gammaln(alpha)).sum(axis=1)
        return np.atleast_1d(terms.sum() - (precision * effects**2).sum() / 2)

    def step(effects: Array) -> Array:
        alpha = base * np.exp(predictors(design, effects))
        total = alpha.sum(axis=1, keepdims=True)
        slope = design.T @ (alpha * (digamma(total) - digamma(alpha) + expected_log)) - precision * effects
        own = np.einsum("ip,ik,iq->kpq", design, alpha**2 * polygamma(1, alpha), design, optimize=True)
        pulled = (design[:, None, :] * (alpha * np.sqrt(polygamma(1, total)))[:, :, None]).reshape(len(design), -1)
        bend = -(pulled.T @ pulled)
        for k in range(rank):
            at = slice(k * p, (k + 1) * p)
            bend[at, at] += own[k] + np.diagflat(precision)
        return np.linalg.solve(bend, slope.T.ravel()).reshape(rank, p).T

    return climbed(start, height, step)


def climbed(start: Array, height: Callable[[Array], Array], step: Callable[[Array], Array]) -> Array:
    """Return where steps lead from `start`, each halved until no height falls; there is one height, or one a column."""
    here, now = np.asarray(start, np.float64), height(start)
    for _ in range(MOST_STEPS):
        move, length = step(here), np.ones_like(now)
        for _ in range(MOST_HALVINGS):
            there = height(here + length * move)
            falls = ~(there >= now)
            if not falls.any():
                break
            length = np.where(falls, length / 2, length)
        else:
            length, there = np.where(falls, 0.0, length), np.where(falls, now, there)
        here, now = here + length * move, there
        if np.abs(length * move).max() <= TOL * (1 + np.abs(here).max()):
            break
    return here


def gamma_shapes(shape: Array, given: Array, eta: Array, ratio: Array, expected_log: Array) -> Array:
    """Return the shapes a_k, (1, K), that maximise E log p(u | a) + log p(a), by Newton's method in log a.

    Parameters
    ----------
    shape, given : ndarray (1, K)
        Shapes to start from, and those that the prior is about.
    eta : ndarray (n, K)
        Logarithms of the means μ.
    ratio, expected_log : ndarray (n, K)
        E u / μ, and E log u.
    """
    rows = len(eta)
    rest = (expected_log - eta - ratio).sum(axis=0, keepdims=True)

    def height(a: Array) -> Array:
        return rows * (a * np.log(a) - gammaln(a)) + a * rest - (np.log(a / given) / SHAPE_SD) ** 2 / 2

    def step(log_a: Array) -> Array:
        a = np.exp(log_a)
        slope = a * (rows * (np.log(a) + 1 - digamma(a)) + rest)
        bend = slope + a * rows * (1 - a * polygamma(1, a))
        slope, bend = slope - (log_a - np.log(given)) / SHAPE_SD**2, bend - 1 / SHAPE_SD**2
        return np.where(bend < 0, np.clip(-slope / np.minimum(bend, -1e-12), -1, 1), np.sign(slope))

    found = climbed(np.log(shape), lambda log_a: height(np.exp(log_a))[0], step)
    return np.asarray(np.exp(np.clip(found, np.log(LEAST_SHAPE), np.log(MOST_SHAPE))))


EFFECTS, SHAPES = "effects", "shapes"  # names of drawn ones among what is drawn beside both sides
INTERCEPT_SD, EFFECT_SD = 3.0, 1.0  # on the log scale; effects are those of one standard deviation of a covariate
PLAIN: dict[str, Any] = {each.__name__: each for each in (Gamma, Dirichlet, ScaledDirichlet)}


def _of_plain(name: str) -> property:
    return property(lambda self: getattr(self.plain, name), doc=f"The `{name}` of the plain prior.")


def _of_given(name: str) -> property:
    return property(lambda self: getattr(self.given, name), doc=f"The `{name}` given the effects.")


def _by_given(name: str) -> Any:
    def method(self: Any, *arguments: Any, **settings: Any) -> Any:
        return getattr(self.given, name)(*arguments, **settings)

    method.__name__, method.__doc__ = name, f"Return what `{name}` returns given the effects."
    return method


@dataclass(frozen=True, eq=False)
class LogLinear(Distribution, Draws, Learned, LogBasis, Settled, Entries, Response):
    """Prior of loadings that depends on covariates; `bayesnmf.fit` makes it from `formula` and `covariates`.

    Effects are normal about 0 on the log scale. The intercept has standard deviation 3, so that a component may be a
    hundred times larger or smaller than by the plain prior; the others have 1, for one standard deviation of a column
    of the design. Shapes of Gammas are learned, too: log a_k is normal about the given one with standard deviation 1.

    Parameters
    ----------
    plain : Gamma, Dirichlet or ScaledDirichlet
        Prior of a row with linear predictor 0.
    design : ndarray (n, p)
        Design of the rows: ones, and columns with mean 0 and standard deviation 1 over all rows of a fit.
    effects : ndarray (p, K)
        Effects of these columns.
    centre : ndarray (1, K)
        Shapes of Gammas that the prior of shapes is about; any for others.
    rows_in_all : int
        Rows of the whole design: a part of the rows has its share of the log density of the effects.
    coding : str
        What makes a design of covariates, as text (`bayesnmf.data.covariates.Coding`).
    """

    plain: Distribution
    design: Array
    effects: Array
    centre: Array
    rows_in_all: int
    coding: str

    flat, proper, has_effects = False, True, True
    sides = ("loadings",)
    support = _of_plain("support")
    counted = _of_plain("counted")
    exposed = _of_plain("exposed")
    by_row = _of_plain("by_row")
    with_unit = _of_plain("with_unit")
    may_be_zero = _of_plain("may_be_zero")
    learned_together = _of_plain("learned_together")
    parameters = _of_plain("parameters")
    scale = _of_plain("scale")
    smallest_shape = _of_given("smallest_shape")

    @property
    def optional(self) -> frozenset[str]:
        """Words of the abilities that the plain family has, and that effects allow."""
        return (self.plain.optional & words_of(LogLinear)) | (self.plain.optional & {"mean_field", "draws"})

    @property
    def conditional_family(self) -> type[Distribution]:
        """The plain family: conditionals are given the effects."""
        return type(self.plain)

    @property
    def constants(self) -> dict[str, Any]:
        """The design and the effects, and what the prior of shapes is about."""
        return {"design": self.design, "effects": self.effects, "centre": self.centre}

    @property
    def settings(self) -> dict[str, Any]:
        """Plain family, rows of the whole design and its coding."""
        return {"family": type(self.plain).__name__, "rows_in_all": self.rows_in_all, "coding": self.coding}

    @classmethod
    def of_parameters(cls, parameters: dict[str, Any], settings: dict[str, Any]) -> Self:
        """Return the prior with these parameters, constants and settings."""
        given = dict(parameters)
        own = [given.pop(name) for name in ("design", "effects", "centre")]
        plain = PLAIN[settings["family"]].of_parameters(given, {})
        design, effects, centre = own
        return cls(plain, design, effects, centre, int(settings["rows_in_all"]), str(settings["coding"]))

    def with_effects(self, effects: Array, shape: Array | None = None) -> LogLinear:
        """Return the prior with other effects, and with other shapes of the same means."""
        plain = self.plain
        if shape is not None and isinstance(plain, Gamma):
            plain = Gamma(shape, np.asarray(plain.rate) * (shape / np.asarray(plain.shape)))
        return replace(self, plain=plain, effects=effects)

    def drawn_effects(self, rng: np.random.Generator) -> LogLinear:
        """Return the prior with effects, and shapes, drawn from theirs."""
        effects = rng.standard_normal(self.effects.shape) / np.sqrt(self.precision)
        shape = self.centre * np.exp(SHAPE_SD * rng.standard_normal(self.centre.shape))
        return self.with_effects(effects, shape)

    # --- the prior given the effects ----------------------------------------------------------------------

    @cached_property
    def given(self) -> Any:
        """The prior given the effects, with a parameter for each row."""
        times, plain = np.exp(predictors(self.design, self.effects)), self.plain
        if isinstance(plain, Gamma):
            return Gamma(plain.shape, np.asarray(plain.rate) / times)
        parameters = plain.parameters
        return plain.with_parameters({**parameters, "concentration": np.asarray(parameters["concentration"]) * times})

    @property
    def precision(self) -> Array:
        """Prior precisions of the effects, (p, 1)."""
        sd = np.full((len(self.effects), 1), EFFECT_SD)
        sd[0] = INTERCEPT_SD
        return 1 / sd**2

    @property
    def intercepts(self) -> Array:
        """Logarithms of the mean, or of the concentration, at linear predictor 0, (K,)."""
        plain: Any = self.plain
        size = np.asarray(plain.shape) / np.asarray(plain.rate) if isinstance(plain, Gamma) else plain.concentration
        return np.broadcast_to(np.log(size), self.centre.shape)[0]

    @cached_property
    def log_prior(self) -> float:
        """Log density of the effects, and of learned shapes, in these rows' share."""
        found = log_prior_of_effects(self.effects, self.precision)
        if isinstance(self.plain, Gamma):
            found += log_prior_of_shapes(np.broadcast_to(self.plain.shape, self.centre.shape), self.centre)
        return found * len(self.design) / self.rows_in_all

    def rows(self, rows: Any) -> LogLinear:
        """Return the prior of the chosen rows, with their share of the density of the effects."""
        return replace(self, plain=self.plain.rows(rows), design=self.design[rows])

    def reordered(self, order: Array, axis: int) -> LogLinear:
        """Return the prior with its components in the given order."""
        own = self.effects[:, order], self.centre[:, order]
        return replace(self, plain=self.plain.reordered(order, axis), effects=own[0], centre=own[1])

    def misfit(self, size: tuple[int, ...]) -> str:
        """Return why no loadings of this size have the prior; "" if they may."""
        found = len(self.design), self.effects.shape[1]
        return "" if found == size else f"has covariates of {found[0]} rows and effects on {found[1]} components"

    def of_new_rows(self, fitted: Array, rng: np.random.Generator | None = None) -> Distribution:
        """Return the prior of rows with this design, given the effects."""
        given: Distribution = self.given
        return given

    def expected_prior(self, q: Any) -> tuple[Distribution, float]:
        """Return the prior given the effects, and minus their log density."""
        return self.given, -self.log_prior

    # What the prior given the effects says.
    conditional, near_conditional, mode, balance = map(
        _by_given, ("conditional", "near_conditional", "mode", "balance")
    )
    mean, variance, expected_log, quantiles = map(_by_given, ("mean", "variance", "expected_log", "quantiles"))
    settled_terms, draw, draw_rows = map(_by_given, ("settled_terms", "draw", "draw_rows"))

    def log_density(self, value: Any) -> float:
        """Return the log density of the loadings given the effects, and that of the effects."""
        return float(self.given.log_density(value)) + self.log_prior

    def log_jacobian(self, value: Any) -> float:
        """Return the log Jacobian of the log basis of the loadings."""
        return float(self.given.log_jacobian(value))

    def value_of(self, parts: list[Array]) -> Any:
        """Return the value that the plain family makes of these arrays."""
        return self.plain.value_of(parts)

    # --- effects from loadings ----------------------------------------------------------------------------

    def statistics(self, q: Any) -> list[Array]:
        """Return E u and E log u of Gammas, and E log of proportions."""
        found: list[Array] = self.plain.statistics(q)  # type: ignore[attr-defined]
        return found if isinstance(self.plain, Gamma) else found[:1]

    def statistics_of_value(self, value: Any) -> list[Array]:
        """Return the loadings and their logarithms, or the logarithms of proportions."""
        share = value.proportions if isinstance(value, ScaledProportions) else value
        logarithm = np.log(np.maximum(share, np.finfo(np.float64).tiny), dtype=np.float64)
        return [np.asarray(share, np.float64), logarithm] if isinstance(self.plain, Gamma) else [logarithm]

    def scores(self, statistics: list[Array]) -> Array:
        """Return the derivatives of E log p by the linear predictors, (n, K)."""
        given: Any = self.given
        if isinstance(self.plain, Gamma):
            return np.asarray(given.rate * statistics[0] - given.shape)
        alpha = np.asarray(given.concentration, np.float64)
        return np.asarray(alpha * (digamma(alpha.sum(axis=1, keepdims=True)) - digamma(alpha) + statistics[0]))

    def curvature(self, statistics: list[Array]) -> Array:
        """Return minus the second derivatives of E log p by the linear predictors of each row, (n, K, K)."""
        given: Any = self.given
        own, (n, rank) = self.scores(statistics), statistics[0].shape
        if isinstance(self.plain, Gamma):
            own, found = own + given.shape, np.zeros((n, rank, rank))
        else:
            alpha = np.asarray(given.concentration, np.float64)
            own = alpha**2 * polygamma(1, alpha) - own
            found = -polygamma(1, alpha.sum(axis=1))[:, None, None] * alpha[:, :, None] * alpha[:, None, :]
        found[:, *np.diag_indices(rank)] += own
        return found

    @property
    def slope_of_scores(self) -> Array:
        """Derivatives of the scores by Gamma loadings, or by logarithms of proportions, (n, K)."""
        given: Any = self.given
        return np.asarray(given.rate if isinstance(self.plain, Gamma) else given.concentration, np.float64)

    def learned_from(self, statistics: list[Array], shapes: bool = True) -> LogLinear:
        """Return the prior with the effects, and then the shapes, that maximise E_q log p + log p(effects)."""
        plain = self.plain
        if not isinstance(plain, Gamma):
            base = np.asarray(plain.parameters[plain.counted])
            effects = dirichlet_effects(self.effects, self.design, statistics[0], base, self.precision)
            return self.with_effects(effects)
        mean, expected_log = statistics
        shape = np.broadcast_to(np.asarray(plain.shape, np.float64), self.centre.shape)
        effects = gamma_effects(self.effects, self.design, np.asarray(plain.rate) * mean, shape, self.precision)
        if not shapes:
            return self.with_effects(effects)
        log_mean = np.log(shape / np.asarray(plain.rate)) + predictors(self.design, effects)
        ratio = mean * np.exp(-log_mean)
        return self.with_effects(effects, gamma_shapes(shape, self.centre, log_mean, ratio, expected_log))
