"""The interface of a family of priors, and what a family may be able to do besides.

Every family is conjugate to the Poisson likelihood of allocated counts: given a total A and an exposure E, the
likelihood is ``x^A exp(−E x)``, and the conditional is a member of the same family. Priors, conditionals and mean
fields are therefore instances of one class. A family with parameters that are drawn, too, is conjugate given these;
its conditionals are then of another family. Algorithms use a family only through the methods of this class.

A family states an ability by inheriting its class, and by the methods that the class asks for. Methods, algorithms and
options that need an ability refuse a family without it, by the ability's description.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from bayesnmf.priors.values import Value, as_array, namespace_of, sum_of_logs
from bayesnmf.types import Array

if TYPE_CHECKING:
    from bayesnmf.kernels.cpu.mean_field import Moments


class Ability(ABC):
    """Base of all abilities.

    Attributes
    ----------
    word : str
        Name of the ability in `Distribution.optional`, and in what methods and algorithms need.
    described : str
        What a family without the ability lacks, for messages.
    """

    word: ClassVar[str]
    described: ClassVar[str]


class MeanField(Ability):
    """Conditionals that are mean fields, for variational inference."""

    word, described = "mean_field", "conditionals with moments and divergences"

    @abstractmethod
    def moments(self, prior: Any, component_axis: int, threads: int | None = None) -> Moments:
        """Return Σ E[x] per component, exp(E log x − shift), the shift and KL(self ‖ prior), for an update.

        The shift is the largest E log x over the components. Without a prior the divergence is NaN.
        """

    @abstractmethod
    def kl(self, prior: Any) -> float:
        """Return KL(self ‖ prior), summed over entries or rows, in nats."""


class Draws(Ability):
    """Draws from a prior or a conditional."""

    word, described = "draws", "conditionals that can be drawn from"

    @abstractmethod
    def draw(self, rng: np.random.Generator, draws: tuple[int, ...] = (), threads: int | None = 1) -> Any:
        """Return independent draws, (*draws, *factor), never exactly 0; they do not depend on `threads`."""

    def draw_rows(self, rng: np.random.Generator, first: int, threads: int | None = 1) -> Any:
        """Return a draw of the rows of a larger factor from row `first` on, by default from a stream of their own."""
        return self.draw(np.random.default_rng([int(rng.integers(2**63)), first]), threads=threads)

    def draw_features(self, rng: np.random.Generator, draws: tuple[int, ...], features: Array) -> Array:
        """Return independent draws of the components at the chosen features, (*draws, K, features).

        Here entries are independent, and parameters have their full size (K, m).
        """
        given: Any = self
        drawn: Array = given.mapped(lambda value: value[:, features]).draw(rng, draws)
        return drawn


class Learned(Ability):
    """Hyperparameters that can be learned."""

    word, described = "learned", "hyperparameters that can be learned"

    def learned(self, q: Any) -> Self:
        """Return the member of the family that maximises E_q log p, with parameters of the shapes of `self`."""
        return self.learned_from(self.statistics(q))

    @abstractmethod
    def statistics(self, q: Any) -> list[Array]:
        """Return the expectations, with a row for each row of q, whose means over rows are enough to learn from."""

    @abstractmethod
    def learned_from(self, statistics: list[Array]) -> Self:
        """Return what `learned` returns, given the statistics, or their means over rows that share all parameters."""


class Gradient(Ability):
    """Gradients of the ELBO."""

    word, described = "gradient", "gradients of the ELBO"

    @abstractmethod
    def gradient(self, best: Self) -> list[Array]:
        """Return the derivatives of the ELBO by the logarithms of q's parameters; `best` is the conditional."""


class Settled(Ability):
    """Rows that a compiled loop can settle."""

    word, described = "settled", "rows that a compiled loop can settle"

    @abstractmethod
    def settled_terms(self, exposure: Array) -> tuple[Array, Array | None]:
        """Return the parameter added to the totals, and the rate of the conditional; None if rows are normalised."""


class Regression(Ability):
    """Modes that coordinate descent can find.

    A family of scaled proportions also has ``with_best_scale(loadings, totals, exposure)``: the value with these
    loadings and the best scale.
    """

    word, described = "regression", "modes that coordinate descent can find"

    @property
    @abstractmethod
    def flat_in_shares(self) -> bool:
        """Whether the density is the same however a row's total is divided among the components."""

    @abstractmethod
    def regression_terms(self, length: int) -> tuple[Array, Array]:
        """Return c − 1 and d of the Gamma(c, d) that coordinate descent uses to find the mode of `length` entries."""


class LogBasis(Ability):
    """The mean as the mode in the log basis."""

    word, described = "log_basis", "the mean as the mode in the log basis"


class Merged(Ability):
    """Sums of features in the same family."""

    word, described = "merged", "sums of features in the same family"


class Marginal(Ability):
    """Allocations whose factors integrate out."""

    word, described = "marginal", "allocations whose factors integrate out"

    @abstractmethod
    def log_marginal(self, total: Array) -> float:
        """Return log ∫ p(x) x^total exp(−x) dx; the factor exp(−x) is left out for rows on the simplex."""

    @abstractmethod
    def urn_terms(self) -> tuple[Array, Array]:
        """Return a and w of the Pólya urn of a row: a token chooses a component with weight (a + its tokens) · w."""

    @abstractmethod
    def log_beside_urn(self, row_totals: Array, rank: int) -> float:
        """Return the log of what `urn_terms` leave out of the probability of the tokens, summed over rows."""


class Entries(Ability):
    """Densities of single entries with allocations summed out."""

    word, described = "entries", "densities of single entries with allocations summed out"


class Program(Ability):
    """A NumPyro program."""

    word, described = "program", "a NumPyro program"

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


class Response(Ability):
    """Linear response."""

    word, described = "response", "linear response"


class Device(Ability):
    """Updates on a GPU."""

    word, described = "device", "updates on a GPU"


class Every(
    MeanField,
    Draws,
    Learned,
    Gradient,
    Settled,
    Regression,
    LogBasis,
    Merged,
    Marginal,
    Entries,
    Program,
    Response,
    Device,
):
    """All abilities."""


OPTIONAL = {each.word: each.described for each in Ability.__subclasses__() if each is not Every}


class Parameters:
    """A frozen dataclass of parameters that broadcast to the size of a factor.

    Attributes
    ----------
    exposed : str
        Name of the parameter to which a conditional adds the exposure; "" if there is none, as for rows on the simplex,
        whose exposure is a constant.
    by_row : tuple of str
        Names of the parameters with one number per row, (n, 1).
    """

    exposed: ClassVar[str] = ""
    by_row: ClassVar[tuple[str, ...]] = ()

    @property
    def exposed_parameter(self) -> Any:
        """The parameter to which a conditional adds the exposure; 0 for rows on the simplex."""
        return self.parameters[self.exposed] if self.exposed else 0.0

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    @property
    def settings(self) -> dict[str, Any]:
        """What describes the distribution besides its parameters, by name: words."""
        return {}

    @classmethod
    def of_parameters(cls, parameters: dict[str, Any], settings: dict[str, Any]) -> Self:
        """Return the distribution with these parameters and constants, and these settings."""
        return cls(**parameters, **settings)

    @property
    def constants(self) -> dict[str, Any]:
        """Arrays that describe the distribution besides its parameters, by name."""
        return {}

    def with_parameters(self, parameters: dict[str, Any]) -> Self:
        """Return the same distribution with other parameters."""
        return self.of_parameters({**parameters, **self.constants}, self.settings)

    def mapped(self, function: Callable[[Array], Array]) -> Self:
        """Return the distribution with a function applied to every parameter."""
        return self.with_parameters({name: function(as_array(value)) for name, value in self.parameters.items()})

    def sizes(self, size: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        """Return the full size of every parameter, for a factor of the given size."""
        return {name: (size[0], 1) if name in self.by_row else size for name in self.parameters}

    def program_parameters(self, size: tuple[int, int]) -> dict[str, Array]:
        """Return the hyperparameters for the NumPyro program, for a factor of the given size."""
        values = {name: np.asarray(value, np.float64) for name, value in self.parameters.items()}
        for name in self.by_row:  # (n,) there, not (n, 1)
            values[name] = values[name].ravel() if values[name].size > 1 else values[name].reshape(())
        return values

    def broadcast(self, size: tuple[int, ...]) -> Self:
        """Return the same distribution with its parameters as arrays of full size (views)."""
        sizes, xp = self.sizes(size), namespace_of(*self.parameters.values()).xp
        return self.with_parameters(
            {name: xp.broadcast_to(value, sizes[name]) for name, value in self.parameters.items()}
        )

    def reordered(self, order: Array, axis: int) -> Self:
        """Return the distribution with its components in the given order along `axis`.

        Parameters shared by all components stay as they are.
        """

        def along(value: Any) -> bool:
            return np.ndim(value) >= -axis and np.shape(value)[axis] == len(order) and len(order) > 1

        named = self.parameters.items()
        return self.with_parameters({name: np.take(v, order, axis=axis) if along(v) else v for name, v in named})

    def rows(self, rows: Any) -> Self:
        """Return the distribution of the chosen rows; parameters shared by all rows stay as they are."""
        return self.mapped(lambda value: value[rows] if value.ndim == 2 and len(value) > 1 else value)


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
    may_be_zero : tuple of str
        Names of the parameters that may be 0; all others must be positive.
    learned_together : tuple of str
        Names of the parameters that `learned` estimates together, so that they must have one shape.
    """

    support: ClassVar[Support]
    counted: ClassVar[str]
    with_unit: ClassVar[tuple[str, ...]] = ()
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    learned_together: ClassVar[tuple[str, ...]] = ()

    @property
    def optional(self) -> frozenset[str]:
        """Words of the abilities that the family has; options that need others refuse it.

        Whether it has mean fields and draws is what its conditionals say.
        """
        asked = {MeanField.word, Draws.word}
        return (words_of(type(self)) - asked) | (words_of(self.conditional_family) & asked)

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
    def log_density(self, value: Any) -> float:
        """Return the sum of log densities at a value, in nats."""

    def log_jacobian(self, value: Any) -> float:
        """Return the log Jacobian of the log (softmax) basis at a value, in nats: Σ log value of a matrix."""
        return sum_of_logs(value)

    def value_of(self, parts: list[Array]) -> Value:
        """Return the value made of these positive arrays: the only one, or what the support makes of them."""
        return parts[0]

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
    def has_effects(self) -> bool:
        """Whether the prior depends on covariates of rows, by effects that are learned or drawn beside both sides."""
        return False

    @property
    def free_prior(self) -> Distribution:
        """The prior of what is not known."""
        return self

    @property
    def given_rows(self) -> tuple[Array, Array]:
        """Components that are known beforehand, exactly or as what a prior is around, and their places."""
        return np.zeros((0, 0)), np.zeros(0, np.int64)

    @property
    def learned_parameters(self) -> dict[str, Any]:
        """The parameters that `learned` estimates, by name."""
        return self.parameters

    def with_known(self, given: Any) -> Any:
        """Return a given value or distribution with what the prior knows in its place."""
        return given

    def misfit(self, size: tuple[int, ...]) -> str:
        """Return why no factor of this size has the prior, apart from its parameters; "" if one may."""
        return ""

    def impossible(self, rank: int) -> Array:
        """Return the features in which no count is possible, (m,), or none of them, (0,)."""
        return np.zeros(0, bool)

    def expected_prior(self, q: Any) -> tuple[Distribution, float]:
        """Return a prior p of the family of q, and a number c, for which KL(q ‖ self) is KL(q ‖ p) + c."""
        return self, 0.0

    def drawn(self, value: Array, rng: np.random.Generator, first: int = 0) -> Distribution:
        """Return the prior with its shared parameters drawn given the entries, of rows from row `first` on."""
        return self

    def of_new_rows(self, fitted: Array, rng: np.random.Generator | None = None) -> Distribution:
        """Return the prior of new rows: what rows share is expected, or drawn by `rng`, given the fitted loadings."""
        return self

    def rates_given(self, mean: Array) -> Any:
        """Return the Gamma distribution of the rates that entries share, given their means; None without such rates."""
        return None


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


def words_of(family: type) -> frozenset[str]:
    """Return the words of the abilities that a family states."""
    return frozenset(each.word for each in Ability.__subclasses__() if issubclass(family, each))
