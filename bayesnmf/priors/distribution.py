"""The interface of a family of priors.

Every family is conjugate to the Poisson likelihood of allocated counts: given a total A and an exposure E, the
likelihood is ``x^A exp(−E x)``, and the conditional is a member of the same family. Priors, conditionals and mean
fields are therefore instances of one class. A family with parameters that are drawn, too, is conjugate given these;
its conditionals are then of another family. Algorithms use a family only through the methods of this class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from bayesnmf.priors.arrays import namespace_of
from bayesnmf.priors.parameters import Parameters
from bayesnmf.priors.values import Value

if TYPE_CHECKING:
    from bayesnmf.kernels.cpu.mean_field import Moments

Array = NDArray[Any]
Support = Literal["positive", "simplex", "scaled simplex"]


class Distribution(Parameters, ABC):
    """Interface of a family of priors: a frozen dataclass with the parameters as fields, which broadcast.

    Attributes
    ----------
    support : {"positive", "simplex", "scaled simplex"}
        Set of possible values: entries above 0, rows on the simplex, or rows on the simplex times a scale. It decides
        which models can use the family, and for which side.
    counted : str
        Name of the parameter to which a conditional adds the total.
    with_unit : tuple of str
        Names of the parameters whose size depends on the unit of the counts.
    optional : frozenset of str
        Optional parts of the interface that the family has (`bayesnmf.priors.optional`). Options that need others are
        refused.
    may_be_zero : tuple of str
        Names of the parameters that may be 0; all others must be positive.
    learned_together : tuple of str
        Names of the parameters that `learned` estimates together, so that they must have one shape.
    """

    support: ClassVar[Support]
    counted: ClassVar[str]
    with_unit: ClassVar[tuple[str, ...]] = ()
    optional: ClassVar[frozenset[str]] = frozenset()
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    learned_together: ClassVar[tuple[str, ...]] = ()

    # --- methods that every family has ----------------------------------------------------------------

    @property
    @abstractmethod
    def flat(self) -> bool:
        """Whether this is the improper prior with density 1."""

    @property
    @abstractmethod
    def proper(self) -> bool:
        """Whether the density integrates to one."""

    @property
    @abstractmethod
    def smallest_shape(self) -> float:
        """Smallest shape or concentration; if it is at least 1, the density is bounded and has a mode."""

    @abstractmethod
    def conditional(self, total: Array, exposure: Array, *, reuse: bool = False) -> Self:
        """Return the conditional given a total and an exposure.

        Its parameters are matrices of the type of the total. With `reuse` the total may be overwritten.
        """

    @abstractmethod
    def mode(self, total: Any, exposure: Any, previous: Any = None, *, reuse: bool = False) -> Any:
        """Return the mode of the conditional, with the value of `previous` where the mode is not unique."""

    @abstractmethod
    def balance(self, value: Array, total: Array, exposure: Any, less: float = 1.0) -> tuple[Array, Array]:
        """Return f and g for which value × f = total + g at an interior mode.

        `less` is 1 in the natural basis and 0 in the log basis.
        """

    @abstractmethod
    def mean(self) -> Any:
        """Return the expectation."""

    def typical(self) -> Array:
        """Return the expectation, or another typical value if that may be infinite."""
        return np.asarray(self.mean())

    @abstractmethod
    def variance(self) -> Any:
        """Return the variance."""

    @abstractmethod
    def expected_log(self) -> Array:
        """Return the expectation of the logarithm of the matrix."""

    @abstractmethod
    def quantiles(self, at: tuple[Array, Array], levels: Array) -> Array:
        """Return quantiles of the chosen entries, (levels, …); of the proportions if there is a scale."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, draws: tuple[int, ...] = (), threads: int | None = 1) -> Any:
        """Return independent draws, (*draws, *factor), never exactly 0; they do not depend on `threads`."""

    def draw_rows(self, rng: np.random.Generator, first: int, threads: int | None = 1) -> Any:
        """Return a draw of the rows of a larger factor from row `first` on, by default from a stream of their own."""
        return self.draw(np.random.default_rng([int(rng.integers(2**63)), first]), threads=threads)

    @abstractmethod
    def draw_features(self, rng: np.random.Generator, draws: tuple[int, ...], features: Array) -> Array:
        """Return independent draws of the components at the chosen features, (*draws, K, features)."""

    @abstractmethod
    def log_density(self, value: Any) -> float:
        """Return the sum of log densities at a value, in nats."""

    @abstractmethod
    def log_jacobian(self, value: Any) -> float:
        """Return the log Jacobian of the log (softmax) basis at a value, in nats."""

    @abstractmethod
    def value_of(self, parts: list[Array]) -> Value:
        """Return the value made of these positive arrays; rows on the simplex are normalised."""

    # --- methods of a family of conditionals ------------------------------------------------------------

    def moments(self, prior: Self | None, component_axis: int, threads: int | None = None) -> Moments:
        """Return Σ E[x] per component, exp(E log x − shift), the shift and KL(self ‖ prior), for an update.

        The shift is the largest E log x over the components. Without a prior the divergence is NaN.
        """
        raise NotImplementedError

    def kl(self, prior: Self) -> float:
        """Return KL(self ‖ prior), summed over entries or rows, in nats."""
        raise NotImplementedError

    # --- methods of a family with parameters that are drawn, too, and shared by entries ------------------

    @property
    def conditional_family(self) -> type[Distribution]:
        """Family of the conditionals."""
        return type(self)

    @property
    def conditional_names(self) -> tuple[str, ...]:
        """Names of the parameters of a conditional."""
        return tuple(field.name for field in fields(self.conditional_family))  # type: ignore[arg-type]

    def conditional_of(self, parameters: dict[str, Any]) -> Distribution:
        """Return a conditional with these parameters."""
        return self.conditional_family.of_parameters(parameters, {})

    @property
    def sides(self) -> tuple[str, ...]:
        """Sides on which the prior can stand."""
        return ("loadings", "components")

    def on_side(self, side: str) -> Self:
        """Return the prior for one of the sides."""
        return self

    @property
    def of_unknown(self) -> Distribution:
        """The prior of what is not known."""
        return self

    def with_known(self, given: Any) -> Any:
        """Return a given value or distribution with what the prior knows in its place."""
        return given

    def misfit(self, size: tuple[int, ...]) -> str:
        """Return why no factor of this size has the prior, apart from its parameters; "" if one may."""
        return ""

    def impossible(self, rank: int) -> Array:
        """Return the features in which no count is possible, (m,), or none of them, (0,)."""
        return np.zeros(0, bool)

    def averaged(self, q: Any) -> tuple[Distribution, float]:
        """Return a prior p of the family of q, and a number c, for which KL(q ‖ self) is KL(q ‖ p) + c."""
        return self, 0.0

    def drawn(self, value: Array, rng: np.random.Generator, first: int = 0) -> Distribution:
        """Return the prior with its shared parameters drawn given the entries, of rows from row `first` on."""
        return self

    def of_new_rows(self, fitted: Array, rng: np.random.Generator | None = None) -> Distribution:
        """Return the prior of new rows: what rows share is expected, or drawn by `rng`, given the fitted loadings."""
        return self

    def sites_of_value(self, value: Array) -> Array:
        """Return the value of the program's site, given the loadings or components."""
        return value

    def value_of_sites(self, sites: Array) -> Array:
        """Return the loadings or components, given draws of the program's site: the inverse of `sites_of_value`."""
        return sites

    def sites_of_shared(self, side: str, value: Array) -> dict[str, Array]:
        """Return values of the program's sites of shared parameters, given the entries of a side."""
        return {}

    def guide_of_shared(self, side: str, q: Any) -> dict[str, Array]:
        """Return the parameters of the program's guide for shared parameters, given the q of the entries."""
        return {}

    def rates_given(self, mean: Array) -> Any:
        """Return the Gamma distribution of the rates that entries share, given their means; None without such rates."""
        return None

    # --- methods of the parts that `optional` names -----------------------------------------------------

    def learned(self, q: Self) -> Self:
        """Return the member of the family that maximises E_q log p, with parameters of the shapes of `self`."""
        return self.learned_from(self.statistics(q))

    def statistics(self, q: Self) -> list[Array]:
        """Return the expectations, with a row for each row of q, whose means over rows are enough to learn from."""
        raise NotImplementedError

    def learned_from(self, statistics: list[Array]) -> Self:
        """Return what `learned` returns, given the statistics, or their means over rows that share all parameters."""
        raise NotImplementedError

    def gradient(self, best: Self) -> list[Array]:
        """Return the derivatives of the ELBO by the logarithms of q's parameters; `best` is the conditional."""
        raise NotImplementedError

    def settled_terms(self, exposure: Array) -> tuple[Array, Array | None]:
        """Return the parameter added to the totals, and the rate of the conditional; None if rows are normalised."""
        raise NotImplementedError

    @property
    def flat_in_shares(self) -> bool:
        """Whether the density is the same however a row's total is divided among the components."""
        raise NotImplementedError

    def regression_terms(self, length: int) -> tuple[Array, Array]:
        """Return c − 1 and d of the Gamma(c, d) that coordinate descent uses to find the mode of `length` entries."""
        raise NotImplementedError

    def with_best_scale(self, loadings: Array, totals: Array, exposure: Array) -> Value:
        """Return the value with these loadings and, if there is a scale, the best one for totals and exposures."""
        return loadings

    def log_marginal(self, total: Array) -> float:
        """Return log ∫ p(x) x^total exp(−x) dx; the factor exp(−x) is left out for rows on the simplex."""
        raise NotImplementedError

    def urn_terms(self) -> tuple[Array, Array]:
        """Return a and w of the Pólya urn of a row: a token chooses a component with weight (a + its tokens) · w."""
        raise NotImplementedError

    def log_beside_urn(self, row_totals: Array, rank: int) -> float:
        """Return the log of what `urn_terms` leave out of the probability of the tokens, summed over rows."""
        raise NotImplementedError


def plain_moments(q: Any, prior: Any, component_axis: int) -> Moments:
    """Return the moments of a family without a compiled loop for them."""
    from bayesnmf.kernels.cpu.mean_field import Moments

    dtype = q.parameters[q.counted].dtype
    q = q.mapped(lambda value: value.astype(np.float64))
    expected_log = q.expected_log()
    shift = expected_log.max(axis=component_axis, keepdims=True)
    geometric = namespace_of(shift).xp.exp(expected_log - shift).astype(dtype)
    sums = q.mean().sum(axis=1 - component_axis)
    return Moments(sums, geometric, shift, np.nan if prior is None else q.kl(prior))


def log_marginal_of(prior: Any, total: Array) -> float:
    """Return the log ratio of the normalising constants of the prior and of its conditional at exposure 1."""
    conditional = prior.conditional(total, np.ones((1, 1)))
    return prior.log_normaliser(total.shape) - conditional.log_normaliser(total.shape)
