"""Loadings whose prior depends on covariates: means, or concentrations, are log-linear in them.

A plain prior, Gamma, Dirichlet or ScaledDirichlet, is that of a row with linear predictor 0. In row i, the mean of a
Gamma, or the concentration of a Dirichlet, is exp(x_i'β_k) times that::

    u_ik ~ Gamma(a_k, r_k exp(−x_i'β_k))          Dirichlet(c_1 exp(x_i'β_1), …, c_K exp(x_i'β_K))

Given the effects β this is a prior of the same family with a parameter for each row. So conditionals and mean fields
are those of the plain family; the effects are learned by map and vi, and drawn by gibbs, beside the sides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from bayesnmf.priors.abilities import Draws, Entries, Learned, LogBasis, Response, Settled
from bayesnmf.priors.dirichlet import Dirichlet
from bayesnmf.priors.distribution import Distribution, words_of
from bayesnmf.priors.effects import (
    SHAPE_SD,
    dirichlet_effects,
    gamma_effects,
    gamma_shapes,
    log_prior_of_effects,
    log_prior_of_shapes,
    predictors,
)
from bayesnmf.priors.gamma import Gamma
from bayesnmf.priors.scaled_dirichlet import ScaledDirichlet
from bayesnmf.priors.values import ScaledProportions
from bayesnmf.types import Array

EFFECTS, SHAPES = "effects", "shapes"  # names of drawn ones among what is drawn beside both sides
INTERCEPT_SD, EFFECT_SD = 3.0, 1.0  # on the log scale; effects are those of one standard deviation of a covariate
PLAIN: dict[str, Any] = {each.__name__: each for each in (Gamma, Dirichlet, ScaledDirichlet)}


def _of_plain(name: str) -> property:
    return property(lambda self: getattr(self.plain, name), doc=f"The `{name}` of the plain prior.")


def _of_given(name: str) -> property:
    return property(lambda self: getattr(self.given, name), doc=f"The `{name}` given the effects.")


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

    def conditional(self, total: Array, exposure: Array, *, reuse: bool = False) -> Any:
        """Return the conditional given the effects."""
        return self.given.conditional(total, exposure, reuse=reuse)

    def near_conditional(self, total: Array, exposure: Array, q: Any, *, whole: bool = False) -> Any:
        """Return q after a step towards the conditional given the effects, under exposures that differ."""
        return self.given.near_conditional(total, exposure, q, whole=whole)

    def mode(self, total: Any, exposure: Any, previous: Any = None, *, reuse: bool = False) -> Any:
        """Return the mode of the conditional given the effects."""
        return self.given.mode(total, exposure, previous, reuse=reuse)

    def balance(self, value: Array, total: Array, exposure: Any, less: float = 1.0) -> tuple[Array, Array]:
        """Return f and g of the prior given the effects."""
        found: tuple[Array, Array] = self.given.balance(value, total, exposure, less)
        return found

    def settled_terms(self, exposure: Array) -> tuple[Array, Array | None]:
        """Return the terms of the prior given the effects."""
        found: tuple[Array, Array | None] = self.given.settled_terms(exposure)
        return found

    def mean(self) -> Any:
        """Return the expectation given the effects."""
        return self.given.mean()

    def variance(self) -> Any:
        """Return the variance given the effects."""
        return self.given.variance()

    def expected_log(self) -> Array:
        """Return the expected logarithm given the effects."""
        return np.asarray(self.given.expected_log())

    def quantiles(self, at: tuple[Array, Array], levels: Array) -> Array:
        """Return quantiles of the chosen entries given the effects."""
        return np.asarray(self.given.quantiles(at, levels))

    def draw(self, rng: np.random.Generator, draws: tuple[int, ...] = (), threads: int | None = 1) -> Any:
        """Return independent draws given the effects."""
        return self.given.draw(rng, draws, threads)

    def draw_rows(self, rng: np.random.Generator, first: int, threads: int | None = 1) -> Any:
        """Return the draw that `draw` of a larger factor has in these rows."""
        return self.given.draw_rows(rng, first, threads)

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
