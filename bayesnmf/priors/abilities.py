"""What a family of priors may be able to do, besides what `Distribution` asks of every family.

A family states an ability by inheriting its class, and by the methods that the class asks for. Methods, algorithms and
options that need an ability refuse a family without it, by the ability's description.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

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
