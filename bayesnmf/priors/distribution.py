"""What the library asks of a family of priors.

Every family is conjugate to the Poisson likelihood of allocated counts: given a total A and an exposure E, which enter
as ``x^A exp(−E x)``, the conditional is a member of the same family. Priors, conditionals and mean fields are therefore
of one class, and what an algorithm needs of a family is asked of its class alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from bayesnmf.priors.arrays import as_array, namespace
from bayesnmf.priors.values import Value

if TYPE_CHECKING:
    from bayesnmf.kernels.cpu.mean_field import Moments

Array = NDArray[Any]
Support = Literal["positive", "simplex", "scaled simplex"]


class Distribution(ABC):
    """Interface of a family of priors: a frozen dataclass whose fields are the parameters, which broadcast.

    Attributes
    ----------
    support : {"positive", "simplex", "scaled simplex"}
        Where values lie: entries above 0, rows on the simplex, or such rows times a scale. It decides in which models,
        and on which side, the family may stand.
    counted : str
        Name of the parameter to which a conditional adds the total.
    optional : frozenset of str
        The optional parts that the family has, of those in `OPTIONAL`. Options that need another one are refused.
    by_row : tuple of str
        Names of the parameters with one number for each row, (n, 1).
    may_be_zero : tuple of str
        Names of the parameters that may be 0.
    """

    support: ClassVar[Support]
    counted: ClassVar[str]
    optional: ClassVar[frozenset[str]] = frozenset()
    by_row: ClassVar[tuple[str, ...]] = ()
    may_be_zero: ClassVar[tuple[str, ...]] = ()

    # --- what every family states ---------------------------------------------------------------------

    @property
    @abstractmethod
    def flat(self) -> bool:
        """Whether this is the improper prior of density 1."""

    @property
    @abstractmethod
    def proper(self) -> bool:
        """Whether the density integrates to one."""

    @property
    @abstractmethod
    def smallest_shape(self) -> float:
        """The least shape or concentration: at 1 or above, the density is bounded and has a mode."""

    @abstractmethod
    def conditional(self, total: Array, exposure: Array, *, reuse: bool = False) -> Self:
        """Return the conditional given a total and an exposure, its parameters matrices of the type of the total.

        With `reuse` the total may be overwritten.
        """

    @abstractmethod
    def mode(self, total: Any, exposure: Any, previous: Any = None, *, reuse: bool = False) -> Any:
        """Return the mode of the conditional; `previous` is kept where the mode is not unique."""

    @abstractmethod
    def balance(self, value: Array, total: Array, exposure: Any, less: float = 1.0) -> tuple[Array, Array]:
        """Return f and g with value × f = total + g at a mode inside; `less` is 1 in the natural basis, else 0."""

    @abstractmethod
    def mean(self) -> Any:
        """Return the expectation."""

    @abstractmethod
    def variance(self) -> Any:
        """Return the variance."""

    @abstractmethod
    def expected_log(self) -> Array:
        """Return the expectation of the logarithm of the matrix."""

    @abstractmethod
    def quantiles(self, at: tuple[Array, Array], levels: Array) -> Array:
        """Return quantiles of some entries, (levels, …); those of the proportions where there is a scale."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, draws: tuple[int, ...] = (), threads: int | None = 1) -> Any:
        """Return independent draws, (*draws, *factor), never exactly 0, the same on any number of threads."""

    @abstractmethod
    def draw_features(self, rng: np.random.Generator, draws: tuple[int, ...], features: Array) -> Array:
        """Return independent draws of the components' entries for some features, (*draws, K, features)."""

    @abstractmethod
    def log_density(self, value: Any) -> float:
        """Return the sum of log densities at a value, in nats."""

    @abstractmethod
    def log_jacobian(self, value: Any) -> float:
        """Return what the log (softmax) basis adds to a log density."""

    @abstractmethod
    def moments(self, prior: Self | None, component_axis: int, threads: int | None = None) -> Moments:
        """Return what an update needs: Σ E[x] per component, exp(E log x − shift), the shift and KL(self ‖ prior).

        The shift is the largest E log x over the components. Without a prior the divergence is NaN.
        """

    @abstractmethod
    def kl(self, prior: Self) -> float:
        """Return KL(self ‖ prior), summed, in nats."""

    @abstractmethod
    def value_of(self, parts: list[Array]) -> Value:
        """Return the value that consists of these positive arrays, with rows normalised that lie on the simplex."""

    # --- what a family states where `optional` names it -------------------------------------------------

    def learned(self, q: Self) -> Self:
        """Return the member of the family that maximises E_q log p, its parameters of the shapes of this one's."""
        raise NotImplementedError

    def gradient(self, best: Self) -> list[Array]:
        """Return the bound's derivatives by the logarithms of q's parameters, where `best` is the conditional."""
        raise NotImplementedError

    def settled_terms(self, exposure: Array) -> tuple[Array, Array | None]:
        """Return what is added to the totals, and the rate of the conditional; None where its rows are normalised."""
        raise NotImplementedError

    @property
    def flat_in_shares(self) -> bool:
        """Whether the density does not depend on how a row's total is shared out among the components."""
        raise NotImplementedError

    def regression_terms(self, length: int) -> tuple[Array, Array]:
        """Return c − 1 and d of the Gamma(c, d) with which coordinate descent finds the mode of `length` entries."""
        raise NotImplementedError

    def with_best_scale(self, loadings: Array, totals: Array) -> Value:
        """Return the value with these loadings without a scale, whose scale, if it has one, is best for row totals."""
        return loadings

    def log_marginal(self, total: Array) -> float:
        """Return log ∫ p(x) x^total exp(−x) dx; rows on a simplex are without the exponential, a scale has it."""
        raise NotImplementedError

    def urn_terms(self) -> tuple[Array, Array]:
        """Return what a component's tokens are added to, and the weight of each, in the Pólya urn of a row."""
        raise NotImplementedError

    # --- what follows from the parameters ---------------------------------------------------------------

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters by name."""
        return vars(self)

    def mapped(self, function: Callable[[Array], Array]) -> Self:
        """Return the distribution whose parameters are a function of this one's."""
        return type(self)(**{name: function(as_array(value)) for name, value in vars(self).items()})

    def sizes(self, size: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        """Return the full size of every parameter of a factor of the given size."""
        return {name: (size[0], 1) if name in self.by_row else size for name in vars(self)}

    def broadcast(self, size: tuple[int, ...]) -> Self:
        """Return the same distribution with its parameters as arrays of full size (views)."""
        sizes, xp = self.sizes(size), namespace(*vars(self).values()).xp
        return type(self)(**{name: xp.broadcast_to(value, sizes[name]) for name, value in vars(self).items()})

    def reordered(self, order: Array, axis: int) -> Self:
        """Return the distribution with entries `order` along an axis of the components, in parameters that have it."""

        def along(value: Any) -> bool:
            return np.ndim(value) >= -axis and np.shape(value)[axis] == len(order) and len(order) > 1

        named = vars(self).items()
        return type(self)(**{name: np.take(v, order, axis=axis) if along(v) else v for name, v in named})

    def rows(self, rows: Any) -> Self:
        """Return the distribution of some rows; parameters shared by all rows stay as they are."""
        return self.mapped(lambda value: value[rows] if value.ndim == 2 and len(value) > 1 else value)


def plain_moments(q: Any, prior: Any, component_axis: int) -> Moments:
    """Return the moments of a family that has no compiled loop for them."""
    from bayesnmf.kernels.cpu.mean_field import Moments

    dtype = q.parameters[q.counted].dtype
    q = q.mapped(lambda value: value.astype(np.float64))
    expected_log = q.expected_log()
    shift = expected_log.max(axis=component_axis, keepdims=True)
    geometric = namespace(shift).xp.exp(expected_log - shift).astype(dtype)
    sums = q.mean().sum(axis=1 - component_axis)
    return Moments(sums, geometric, shift, np.nan if prior is None else q.kl(prior))


OPTIONAL = {
    "learned": "hyperparameters that can be learned",
    "gradient": "gradients of the bound",
    "settled": "rows that a compiled loop can settle",
    "regression": "modes that coordinate descent can find",
    "log_basis": "the mean as the mode in the log basis",
    "merged": "sums of features in the same family",
    "marginal": "allocations whose factors integrate out",
    "program": "a NumPyro program",
    "device": "updates on a GPU",
}
"""The optional parts of a family, in words for messages."""


def log_marginal_of(prior: Any, total: Array) -> float:
    """Return the ratio of normalising constants, prior over conditional at exposure 1, as a logarithm."""
    conditional = prior.conditional(total, np.ones((1, 1)))
    return prior.log_normaliser(total.shape) - conditional.log_normaliser(total.shape)
