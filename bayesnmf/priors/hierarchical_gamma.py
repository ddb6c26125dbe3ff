"""The Gamma distribution with a rate that is drawn, too, and shared along an axis.

Its entries are ``x ~ Gamma(a, ξ)`` and each rate is ``ξ ~ Gamma(c, d)``. With S the entries that share a rate::

    ξ | x ~ Gamma(c + Σ_S a, d + Σ_S x)

Given the rates this is a Gamma prior. Conditionals and mean fields of the entries are therefore of the family `Gamma`,
and the rates follow from them: in a mode they are integrated out, in a mean field they have their optimal distribution,
and in a Gibbs sweep they are drawn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import digamma, gammaln, xlogy

from bayesnmf.checks import check_choice, check_instance
from bayesnmf.priors.distribution import Distribution, Draws, Entries, Learned, LogBasis, Program, Response
from bayesnmf.priors.gamma import Gamma
from bayesnmf.priors.values import add_to_total, divide_or_keep, shape_minus_one
from bayesnmf.types import Array

Axis = Literal["row", "feature", "component", "all"]
SUMMED = {"row": (-1,), "feature": (-2,), "all": (-2, -1)}
SUMMED_OF_COMPONENT = {"loadings": (-2,), "components": (-1,)}


@dataclass(frozen=True, eq=False)
class HierarchicalGamma(Distribution, Draws, LogBasis, Program, Entries, Response, Learned):
    """Gamma prior whose rate has a Gamma prior of its own and is shared along an axis.

    One rate for each row of the loadings and each feature of the components is hierarchical Poisson factorisation
    (Gopalan, Hofman & Blei 2015), which scales rows and features of very different totals. One rate for each component
    is automatic relevance: components that the counts do not need shrink towards 0.

    In messages and files, the shape c and rate d of the prior of the rates are `rate_shape` and `rate_rate`. They can
    be learned (`VI(learn=…)`), unless all entries share one rate; if the rates differ no more than chance alone would
    have it, the best c and d are infinite, and learning stops somewhere on the way.

    Parameters
    ----------
    shape : array_like
        Shape a > 0, without unit, broadcastable to (n, K) for loadings or (K, m) for components.
    rate : Gamma
        Prior Gamma(c, d) of the rates. Its parameters are numbers, or arrays that broadcast to the rates: (n, 1) over
        rows, (1, m) over features, (1, K) of loadings and (K, 1) of components over components.
    over : {"row", "feature", "component", "all"}
        What has a rate of its own: each row (of loadings), each feature (of components), each component, or all entries
        together.
    side : {"loadings", "components"}, optional
        Side of the factorisation, which `bayesnmf.Priors` states; without it, that of the loadings.

    Raises
    ------
    TypeError, ValueError
        A rate that is not a Gamma, or another word in `over`.

    See Also
    --------
    Priors, Gamma

    Examples
    --------
    >>> import bayesnmf
    >>> of_rows = bayesnmf.HierarchicalGamma(0.3, bayesnmf.Gamma(1.0, 1.0), "row")
    >>> prior = bayesnmf.Priors(loadings=of_rows)
    """

    shape: ArrayLike
    rate: Gamma
    over: Axis
    side: Literal["loadings", "components"] | None = None

    flat, proper = False, True
    support = "positive"
    counted = "shape"
    with_unit = ("rate_rate",)
    learned_together = ("rate_shape", "rate_rate")
    conditional_family: ClassVar[type[Distribution]] = Gamma

    def __post_init__(self) -> None:
        check_instance(self.rate, Gamma, "rate")
        check_choice(self.over, "over", ("row", "feature", "component", "all"))
        if self.side is not None:
            check_choice(self.side, "side", ("loadings", "components"))

    @property
    def optional(self) -> frozenset[str]:
        """Words of the abilities; nothing can be learned from a single rate."""
        return super().optional - {Learned.word} if self.over == "all" else super().optional

    # --- parameters -----------------------------------------------------------------------------------

    @property
    def parameters(self) -> dict[str, Any]:
        """The shape, and the shape and the rate of the rates, by name."""
        return {"shape": self.shape, "rate_shape": self.rate.shape, "rate_rate": self.rate.rate}

    @property
    def settings(self) -> dict[str, Any]:
        """What has a rate of its own, and the side."""
        return {"over": self.over, "side": self.side}

    @classmethod
    def of_parameters(cls, parameters: dict[str, Any], settings: dict[str, Any]) -> Self:
        """Return the prior with these parameters and settings."""
        return cls(parameters["shape"], Gamma(parameters["rate_shape"], parameters["rate_rate"]), **settings)

    @property
    def sides(self) -> tuple[str, ...]:
        """Sides on which the prior can stand."""
        return {"row": ("loadings",), "feature": ("components",)}.get(self.over, ("loadings", "components"))

    @property
    def _summed(self) -> tuple[int, ...]:
        """Axes of the entries that share a rate."""
        return SUMMED_OF_COMPONENT[self.side or "loadings"] if self.over == "component" else SUMMED[self.over]

    def sizes(self, size: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        """Return the full size of every parameter, for a factor of the given size."""
        shared = tuple(1 if axis - len(size) in self._summed else length for axis, length in enumerate(size))
        return {"shape": size, "rate_shape": shared, "rate_rate": shared}

    @property
    def smallest_shape(self) -> float:
        """Smallest shape; if it is at least 1, the density is bounded and has a mode."""
        return float(np.asarray(self.shape).min())

    # --- the rates, given the entries -----------------------------------------------------------------

    def rates_given(self, mean: Array) -> Gamma:
        """Return the distribution of the rates given the entries, or q of the rates given the means of the entries."""
        return self._rates(np.asarray(mean.sum(axis=self._summed, keepdims=True, dtype=np.float64)), mean.shape[-2:])

    def _rates(self, sums: Array | float, size: tuple[int, ...]) -> Gamma:
        """Return Gamma(c + Σ a, d + sums), with parameters of the size of the rates."""
        return Gamma(self.rate.shape + self._sum(self.shape, size), np.asarray(self.rate.rate, np.float64) + sums)

    def _sum(self, values: ArrayLike, size: tuple[int, ...]) -> Array:
        """Return the sums over the entries that share a rate, of values that broadcast to the factor's size."""
        values = np.asarray(values, np.float64)
        values = values.reshape((1,) * (2 - values.ndim) + values.shape)
        repeated = math.prod(size[axis] for axis in self._summed if values.shape[axis] == 1)
        return values.sum(axis=self._summed, keepdims=True) * repeated

    def _solved_rates(self, peak: Array, exposure: Any) -> Array:
        """Return the rates ξ with ξ = (c + Σ a) / (d + Σ_S peak / (ξ + exposure)), in the type of `peak`.

        Entries and rates are then updated together: this is where updates of both in turn would end.
        """
        from bayesnmf.kernels.cpu.shared_rates import solve_shared_rates

        size = peak.shape
        target = self._sum(self.shape, size) + self.rate.shape
        rows = self._as_rows(peak)
        spent = self._as_rows(np.broadcast_to(exposure, size)) if self.over == "all" else self._turned(exposure)
        target, d = (np.broadcast_to(np.ravel(value), len(rows)) for value in (target, self.rate.rate))
        rates = solve_shared_rates(rows, spent, target, d)
        return rates.reshape(self.sizes(size)["rate_shape"]).astype(peak.dtype)

    def _as_rows(self, values: Array) -> Array:
        """Return values of the factor's size as a matrix in which the entries of each row share a rate."""
        return values.reshape(1, -1) if self.over == "all" else self._turned(values)

    def _turned(self, values: Any) -> Array:
        values = np.atleast_2d(values)
        return values.T if self._summed == (-2,) else values

    # --- conditionals -----------------------------------------------------------------------------------

    def conditional(self, total: Array, exposure: Array, *, reuse: bool = False) -> Gamma:  # type: ignore[override]
        """Return the mean field of the entries, Gamma(shape + total, E ξ + exposure), together with that of the rates.

        With `reuse` the total may be overwritten.
        """
        shape = add_to_total(self.shape, total, reuse)
        rate = np.add(self._solved_rates(shape, exposure), exposure, out=np.empty_like(shape))  # in the order of memory
        return Gamma(shape, rate)

    def mode(
        self, total: Array | float = 0.0, exposure: Array | float = 0.0, previous: Any = None, *, reuse: bool = False
    ) -> Array:
        """Return the mode of the entries given totals, with the rates integrated out."""
        peak = shape_minus_one(self.shape, total, reuse)
        return divide_or_keep(peak, self._solved_rates(peak, exposure) + exposure, previous, 0.0)

    def balance(self, value: Array, total: Array, exposure: Array, less: float = 1.0) -> tuple[Array, Array]:
        """Return f = E[ξ | value] + exposure and g = shape − less, for which value × f = total + g at a mode."""
        return self.rates_given(value).mean() + np.asarray(exposure), np.asarray(self.shape) - less

    def expected_prior(self, q: Any) -> tuple[Gamma, float]:
        """Return the Gamma prior at the expected rates, and what KL(q ‖ this prior) is more than with that Gamma.

        The rates have their optimal q given the q of the entries.
        """
        from bayesnmf.kernels.cpu.shared_rates import sum_ratios

        shape, rate = np.asarray(q.shape), np.asarray(q.rate)
        rate = self._as_rows(np.broadcast_to(rate, shape.shape)) if self.over == "all" else self._turned(rate)
        sums = sum_ratios(self._as_rows(shape), rate).reshape(self.sizes(shape.shape)["rate_shape"])
        rates = self._rates(sums, shape.shape)
        expected, expected_log = rates.mean(), rates.expected_log()
        more = (self._sum(self.shape, shape.shape) * (np.log(expected) - expected_log)).sum()
        return Gamma(self.shape, expected.astype(shape.dtype)), float(more + rates.kl(self.rate))

    def drawn(self, value: Array, rng: np.random.Generator, first: int = 0) -> Gamma:
        """Return the Gamma prior at rates drawn given the entries, of rows from row `first` on."""
        return Gamma(self.shape, self.rates_given(value).draw_rows(rng, first).astype(value.dtype))

    def on_side(self, side: Any) -> HierarchicalGamma:
        """Return the prior for one of the sides, which decides what the rate of a component is summed over."""
        return HierarchicalGamma(self.shape, self.rate, self.over, side)

    def of_new_rows(self, fitted: Array, rng: np.random.Generator | None = None) -> Distribution:
        """Return the prior of new rows: shared rates are expected, or drawn by `rng`, given the fitted rows."""
        if self.over == "row":
            return self
        rates = self.rates_given(fitted)
        return Gamma(self.shape, rates.mean() if rng is None else rates.draw(rng))

    def statistics(self, q: Gamma) -> list[Array]:
        """Return E ξ and E log ξ."""
        rates = self.rates_given(q.mean())
        return [rates.mean(), rates.expected_log()]

    def learned_from(self, statistics: list[Array]) -> HierarchicalGamma:
        """Return the prior with the c and d that maximise E_q log p(ξ); the shape stays as it is."""
        return HierarchicalGamma(self.shape, self.rate.learned_from(statistics), self.over, self.side)

    # --- the NumPyro program ----------------------------------------------------------------------------

    def program_parameters(self, size: tuple[int, int]) -> dict[str, Array]:
        """Return the hyperparameters, with those of the rates in the size of the rates."""
        shared = self.sizes(size)["rate_shape"]
        values = {name: np.asarray(value, np.float64) for name, value in self.parameters.items()}
        return {name: value if name == "shape" else np.broadcast_to(value, shared) for name, value in values.items()}

    def sites_of_shared(self, side: str, value: Array) -> dict[str, Array]:
        """Return the expected rates given the entries, without axes of length 1."""
        return {f"rate_of_{side}": self.rates_given(value).mean().squeeze()}

    def guide_of_shared(self, side: str, q: Any) -> dict[str, Array]:
        """Return the parameters of the best q of the rates given the q of the entries."""
        mean = q.mean()
        rates = self.rates_given(mean).broadcast(self.sizes(mean.shape)["rate_shape"])
        return {f"rate_of_{side}_{name}": np.array(value) for name, value in rates.parameters.items()}

    # --- the distribution of the entries with the rates integrated out -----------------------------------

    def log_density(self, value: Array) -> float:
        """Return the log density of all entries at `value`, in nats, with the rates integrated out."""
        a, rates, own = np.asarray(self.shape, np.float64), self.rates_given(value), self.rate
        repeated = math.prod(value.shape) / a.size
        entries = xlogy(a - 1, value, dtype=np.float64).sum() - gammaln(a).sum() * repeated
        c, d, shape, rate = np.broadcast_arrays(own.shape, own.rate, rates.shape, rates.rate)
        shared = xlogy(c, d) - gammaln(c) + gammaln(shape) - shape * np.log(rate)
        return float(entries + shared.sum())

    def draw(self, rng: np.random.Generator, draws: tuple[int, ...] = (), threads: int | None = 1) -> Array:
        """Return independent draws, (*draws, *factor), never exactly 0: rates first, then the entries given them."""
        size = np.broadcast_shapes((1, 1), np.shape(self.shape))
        rates = self.rate.broadcast(self.sizes(size)["rate_shape"]).draw(rng, draws)
        return Gamma(np.asarray(self.shape), rates).draw(rng, threads=threads)

    def draw_features(self, rng: np.random.Generator, draws: tuple[int, ...], features: Array) -> Array:
        """Return independent draws of the components at the chosen features, (*draws, K, features)."""
        return self.draw(rng, draws)[..., features]

    def mean(self) -> Array:
        """Return the expectation, a d / (c − 1); it is infinite if c is at most 1."""
        c, d = np.asarray(self.rate.shape), np.asarray(self.rate.rate)
        return np.where(c > 1, np.asarray(self.shape) * d / np.where(c > 1, c - 1, 1), np.inf)

    def typical(self) -> Array:
        """Return the expectation at the expected rate, a d / c, which is always finite."""
        return np.asarray(self.shape) * np.asarray(self.rate.rate) / np.asarray(self.rate.shape)

    def variance(self) -> Array:
        """Return the variance; it is infinite if c is at most 2."""
        a, c, d = (np.asarray(each, np.float64) for each in (self.shape, self.rate.shape, self.rate.rate))
        bounded = np.where(c > 2, c, 3.0)
        return np.where(c > 2, d**2 * a * (a + bounded - 1) / ((bounded - 2) * (bounded - 1) ** 2), np.inf)

    def expected_log(self) -> Array:
        """Return the expected logarithm, ψ(a) − ψ(c) + log d."""
        return digamma(np.asarray(self.shape)) - self.rate.expected_log()

    def quantiles(self, at: tuple[Array, Array], levels: Array) -> Array:
        """Return quantiles of the chosen entries, (levels, …): x / d has a beta prime distribution."""
        from scipy.stats import betaprime

        every = np.broadcast_arrays(*(np.asarray(each, np.float64) for each in self.parameters.values()))
        a, c, d = (each[at] for each in every)
        return np.asarray(betaprime.ppf(levels[:, None, None], a, c, scale=d))
