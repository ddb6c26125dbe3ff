"""Components of which some are known: fixed rows beside rows with a prior.

Known rows are constants, without prior, update or uncertainty; the others have those of their own family.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bayesnmf.priors.distribution import (
    Distribution,
    Draws,
    Entries,
    Learned,
    LogBasis,
    MeanField,
    Program,
    Response,
    words_of,
)
from bayesnmf.priors.values import joined, others
from bayesnmf.types import Array

if TYPE_CHECKING:
    from bayesnmf.kernels.cpu.mean_field import Moments


def _of_free(name: str) -> property:
    return property(lambda self: getattr(self.free, name), doc=f"The `{name}` of the other components.")


@dataclass(frozen=True, eq=False)
class PartlyKnown(Distribution, MeanField, Draws, Learned, LogBasis, Program, Entries, Response):
    """Prior or posterior of components of which some are known.

    `bayesnmf.fit` makes it from `fixed_components` and the prior of the components.

    Parameters
    ----------
    known : ndarray (r, m)
        Known components.
    free : Distribution
        Prior or posterior of the other components, with parameters broadcastable to (K − r, m).
    at : ndarray (r,)
        Places of the known components among all K.
    """

    known: Array
    free: Distribution
    at: Array

    support = _of_free("support")
    counted = _of_free("counted")
    with_unit = _of_free("with_unit")
    may_be_zero = _of_free("may_be_zero")
    learned_together = _of_free("learned_together")
    flat = _of_free("flat")
    proper = _of_free("proper")
    smallest_shape = _of_free("smallest_shape")
    parameters = _of_free("parameters")
    learned_parameters = _of_free("learned_parameters")
    conditional_names = _of_free("conditional_names")
    sides = ("components",)
    free_prior = property(lambda self: self.free, doc="The prior of the other components.")
    _able = property(lambda self: self.free, doc="The other components, with the abilities asked of them.")

    @property
    def optional(self) -> frozenset[str]:
        """Words of the abilities that the family of the other components has, and that known rows allow."""
        return self.free.optional & words_of(PartlyKnown)

    @property
    def conditional_family(self) -> type[Distribution]:
        """Itself: known rows stay known."""
        return PartlyKnown

    def conditional_of(self, parameters: dict[str, Any]) -> PartlyKnown:
        """Return a conditional with these parameters of the other components."""
        return replace(self, free=self.free.conditional_of(parameters))

    def with_known(self, given: Any) -> Any:
        """Return given components, or a given posterior, with the known rows in place of theirs."""
        if isinstance(given, PartlyKnown) and np.array_equal(given.at, self.at):
            return replace(self, free=given.free)
        rows = given.mean() if isinstance(given, Distribution) else given
        return self._all(self._free(rows, len(rows)))

    def misfit(self, size: tuple[int, ...]) -> str:
        """Return why the known components cannot be among K components of m features."""
        if self.known.shape[1] != size[1]:
            return f"has known components of {self.known.shape[1]} features, for {size[1]} features"
        return f"has {len(self.known)} known components, for rank {size[0]}" if len(self.known) > size[0] else ""

    def impossible(self, rank: int) -> Array:
        """Return the features where all known components are 0, if there are no others."""
        return ~self.known.any(axis=0) if len(self.known) == rank else np.zeros(0, bool)

    @property
    def given_rows(self) -> tuple[Array, Array]:
        """The known components, and their places."""
        return self.known, self.at

    @property
    def constants(self) -> dict[str, Any]:
        """The known components, and their places."""
        return {"known": self.known, "at": self.at}

    @property
    def settings(self) -> dict[str, Any]:
        """Family of the other components, and its settings."""
        return {"free": type(self.free).__name__, **self.free.settings}

    @classmethod
    def of_parameters(cls, parameters: dict[str, Any], settings: dict[str, Any]) -> Self:
        """Return the distribution with these parameters, constants and settings."""
        given, about = dict(parameters), dict(settings)
        families = {family.__name__: family for family in Distribution.__subclasses__()}
        known, at, family = given.pop("known"), given.pop("at"), families[about.pop("free")]
        return cls(known, family.of_parameters(given, about), at)

    def sizes(self, size: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        """Return the full size of every parameter, for all K components."""
        return self.free.sizes((max(size[0] - len(self.known), 0), *size[1:]))

    def reordered(self, order: Array, axis: int) -> PartlyKnown:
        """Return the distribution with its components in the given order."""
        places = np.argsort(order)[self.at]
        free = others(self.at, len(order))
        rank_of = np.argsort(np.argsort(order[others(places, len(order))]))
        return PartlyKnown(self.known, self.free.reordered(rank_of, axis) if len(free) else self.free, places)

    def on_side(self, side: str) -> PartlyKnown:
        """Return the prior with the prior of the other components for this side."""
        return replace(self, free=self.free.on_side(side))

    def _free(self, value: Any, rank: int) -> Any:
        """Return the rows of the other components; a value shared by all components stays as it is."""
        whole = np.ndim(value) >= 2 and np.shape(value)[-2] == rank
        return np.asarray(value)[..., others(self.at, rank), :] if whole else value

    def _all(self, free: Any) -> Array:
        return joined(self.known, free, self.at)

    def _none(self, value: Any) -> bool:
        """Return whether all components are known, given a matrix with a row for each."""
        return np.shape(value)[-2] == len(self.known)

    @property
    def _of_none(self) -> bool:
        """Whether this is a posterior of which all components are known."""
        return np.ndim(self.parameters[self.counted]) == 2 and len(self.parameters[self.counted]) == 0

    # --- conditionals -----------------------------------------------------------------------------------------

    def conditional(self, total: Array, exposure: Array, *, reuse: bool = False) -> PartlyKnown:
        """Return the conditional of the other components given totals and exposures of all."""
        rank = len(total)
        if self._none(total):
            empty = np.ones((0, total.shape[1]), total.dtype)
            return self.conditional_of(dict.fromkeys(self.conditional_names, empty))
        return replace(self, free=self.free.conditional(self._free(total, rank), self._free(exposure, rank)))

    def near_conditional(self, total: Array, exposure: Array, q: Any, *, whole: bool = False) -> PartlyKnown:
        """Return the posterior of the other components after a step, under exposures that differ along the simplex."""
        rank = len(total)
        if self._none(total):
            return self.conditional(total, exposure)
        given = self._free(total, rank), self._free(exposure, rank), q.free
        return replace(self, free=self._able.near_conditional(*given, whole=whole))

    def mode(self, total: Any, exposure: Any, previous: Any = None, *, reuse: bool = False) -> Array:
        """Return the known components, and the mode of the others."""
        rank = len(total)
        if self._none(total):
            return self._all(np.empty((0, total.shape[1]), total.dtype))
        kept = None if previous is None else self._free(previous, rank)
        return self._all(self.free.mode(self._free(total, rank), self._free(exposure, rank), kept))

    def balance(self, value: Array, total: Array, exposure: Any, less: float = 1.0) -> tuple[Array, Array]:
        """Return f and g for which value × f = total + g at a mode; it holds for known components."""
        weight, added, rank = np.zeros(value.shape), -np.asarray(total, np.float64), len(value)
        free = others(self.at, rank)
        if len(free):
            of_free = [self._free(each, rank) for each in (value, total, exposure)]
            weight[free], added[free] = self.free.balance(of_free[0], of_free[1], of_free[2], less)
        return weight, added

    def expected_prior(self, q: Any) -> tuple[PartlyKnown, float]:
        """Return the same with what the prior of the others says."""
        if q._of_none:
            return self, 0.0
        plain, more = self.free.expected_prior(q.free)
        return replace(self, free=plain), more

    def drawn(self, value: Array, rng: np.random.Generator, first: int = 0) -> PartlyKnown:
        """Return the prior with shared parameters of the other components drawn."""
        return replace(self, free=self.free.drawn(self._free(value, len(value)), rng))

    def learned(self, q: Any) -> PartlyKnown:
        """Return the prior with learned parameters of the other components."""
        return self if q._of_none else super().learned(q)

    def statistics(self, q: Any) -> list[Array]:
        """Return those of the other components."""
        return list(self._able.statistics(q.free))

    def learned_from(self, statistics: list[Array]) -> PartlyKnown:
        """Return the prior with learned parameters of the other components."""
        return replace(self, free=self._able.learned_from(statistics))

    # --- the distribution of all components -------------------------------------------------------------------

    def mean(self) -> Array:
        """Return the known components, and the expectations of the others."""
        return self._all(self.free.mean() if not self._of_none else self.parameters[self.counted])

    def variance(self) -> Array:
        """Return 0 for the known components, and the variances of the others."""
        if self._of_none:
            return np.zeros(self.known.shape)
        return joined(np.zeros_like(self.known), self.free.variance(), self.at)

    def expected_log(self) -> Array:
        """Return the logarithms of the known components, and the expectations for the others."""
        with np.errstate(divide="ignore"):
            known = np.log(self.known)
        return known if self._of_none else joined(known, self.free.expected_log(), self.at)

    def quantiles(self, at: tuple[Array, Array], levels: Array) -> Array:
        """Return quantiles of the chosen entries, (levels, …); known ones are their own quantiles."""
        rows, columns = np.broadcast_arrays(*at)
        full = self.known if self._of_none else self.mean()
        out = np.tile(full[rows, columns].astype(np.float64), (len(levels), *[1] * rows.ndim))
        free = others(self.at, len(full))
        unknown = np.isin(rows, free)
        if unknown.any():
            chosen = np.searchsorted(free, rows[unknown])[None], columns[unknown][None]
            out[:, unknown] = self.free.quantiles(chosen, levels)[:, 0]
        return out

    def draw(self, rng: np.random.Generator, draws: tuple[int, ...] = (), threads: int | None = 1) -> Array:
        """Return independent draws, (*draws, K, m), of which the known rows are all the same."""
        known = np.broadcast_to(self.known, (*draws, *self.known.shape))
        if self._of_none:
            return known.copy()
        return self._spread(self._able.draw(rng, draws, threads), known)

    def draw_features(self, rng: np.random.Generator, draws: tuple[int, ...], features: Array) -> Array:
        """Return independent draws of the components at the chosen features, (*draws, K, features)."""
        known = np.broadcast_to(self.known[:, features], (*draws, len(self.known), len(features)))
        return known.copy() if self._of_none else self._spread(self._able.draw_features(rng, draws, features), known)

    def _spread(self, free: Array, known: Array) -> Array:
        out = np.empty((*free.shape[:-2], free.shape[-2] + known.shape[-2], free.shape[-1]), free.dtype)
        out[..., self.at, :], out[..., others(self.at, out.shape[-2]), :] = known, free
        return out if free.ndim > 2 else joined(known, free, self.at)

    def log_density(self, value: Any) -> float:
        """Return the log density of the other components."""
        return 0.0 if self._none(value) else self.free.log_density(self._free(value, len(value)))

    def log_jacobian(self, value: Any) -> float:
        """Return the log Jacobian of the log basis of the other components."""
        return 0.0 if self._none(value) else self.free.log_jacobian(self._free(value, len(value)))

    def kl(self, prior: Any) -> float:
        """Return KL(self ‖ prior) of the other components."""
        return 0.0 if self._of_none else float(self._able.kl(prior.free))

    def moments(self, prior: Any, component_axis: int, threads: int | None = None) -> Moments:
        """Return Σ E[x] per component, exp(E log x − shift), the shift and the divergence of the other components."""
        from bayesnmf.kernels.cpu.mean_field import Moments

        with np.errstate(divide="ignore"):
            log_known = np.log(self.known)
        top = log_known.max(axis=0, keepdims=True)
        if self._of_none:
            shift = np.where(np.isfinite(top), top, 0.0)
            geometric = joined(np.exp(log_known - shift), self.parameters[self.counted], self.at)
            return Moments(self.known.sum(axis=1)[np.argsort(self.at)], geometric, shift, 0.0)
        found = self._able.moments(None if prior is None else prior.free, component_axis, threads)
        shift = np.maximum(found.shift, top)
        free = (found.geometric * np.exp(found.shift - shift)).astype(found.geometric.dtype)
        geometric = joined(np.exp(log_known - shift), free, self.at)
        sums = np.empty(len(geometric))
        sums[self.at], sums[others(self.at, len(geometric))] = self.known.sum(axis=1), found.sums
        return Moments(sums, geometric, shift.astype(found.shift.dtype), found.divergence)

    def value_of(self, parts: list[Array]) -> Array:
        """Return the known components, and the value that the others make of their part."""
        (whole,) = parts
        if self._none(whole):
            return self._all(np.empty((0, whole.shape[1]), whole.dtype))
        return self._all(self.free.value_of([self._free(whole, len(whole))]))

    # --- the NumPyro program ----------------------------------------------------------------------------------

    def program_parameters(self, size: tuple[int, int]) -> dict[str, Array]:
        """Return the hyperparameters of the other components, the known components, and the order of both."""
        free = self.free.program_parameters((size[0] - len(self.known), size[1]))
        order = np.argsort(np.concatenate([self.at, others(self.at, size[0])]))
        return {**free, "known": np.asarray(self.known, np.float64), "order": order}

    def sites_of_value(self, value: Array) -> Array:
        """Return the rows of the other components: the program's site."""
        return np.asarray(self._free(value, np.shape(value)[-2]))

    def value_of_sites(self, sites: Array) -> Array:
        """Return all components, (..., K, m), given the program's site."""
        return self._spread(sites, np.broadcast_to(self.known, (*sites.shape[:-2], *self.known.shape)))

    def sites_of_shared(self, side: str, value: Array) -> dict[str, Array]:
        """Return values of the sites of shared parameters, given all components."""
        return {} if self._none(value) else self._able.sites_of_shared(side, self._free(value, len(value)))

    def guide_of_shared(self, side: str, q: Any) -> dict[str, Array]:
        """Return the parameters of the guide for shared parameters."""
        return {} if q._of_none else self._able.guide_of_shared(side, q.free)
