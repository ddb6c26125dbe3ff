"""What a noise can do, as classes: what needs an ability asks for it, and never which noise it is.

A noise is held by a fit beside its priors. Its means are those of the counts, with all exposures.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from bayesnmf.noise.checks import check_is_distribution
from bayesnmf.types import Array

if TYPE_CHECKING:
    from bayesnmf.kernels.cpu.dispersed_draws import Noise as CompiledNoise

ENTRIES = 2**18  # entries at a time
LEAST = 1e-10  # dispersion; 0 is Poisson
WHOSE = ("row", "feature", "matrix")
DISPERSION = "dispersion"  # name of drawn ones among what is drawn beside both sides


class FeatureGroups(NamedTuple):
    """Which features share a dispersion, as those of one of several matrices do.

    Attributes
    ----------
    codes : ndarray (m,)
        Number of the dispersion of each feature.
    given : ndarray (dispersions,)
        Dispersions that are given, NaN where they are learned.
    """

    codes: Any
    given: Any


class Noise(ABC):
    """How counts are distributed around their expected values.

    Attributes
    ----------
    word : str
        Short name.
    by : str or None
        Whose the dispersions are, "row", "feature" or "matrix"; None if all entries have the same noise.
    groups : FeatureGroups or None
        Which features are of which matrix.
    of_poisson : bool
        Whether the likelihood is that of Poisson counts, or a power of it.
    whole : bool
        Whether routines for Poisson counts are given whole numbers of counts.
    in_clusters : bool
        Whether counts come in clusters, whose numbers are Poisson.
    has_entry_rates : bool
        Whether counts are Poisson given a rate of each entry.
    combines : bool
        Whether several matrices may each have a noise of this class, or Poisson noise.
    has_program : bool
        Whether the NumPyro programs of models know it.
    cures_excess : bool
        Whether it is advised where counts vary more than the noise of a fit says.
    with_supports : bool
        Whether the kernels that draw which components are present know it (`bayesnmf.assign`).
    hides_means : bool
        Whether zeros may say nothing of their means, so that a fit begins without them, too.
    from_first_fit : bool
        Whether an unknown dispersion is that around a Poisson fit, and stays as it is.
    """

    word: ClassVar[str]
    of_poisson: ClassVar[bool] = False
    whole: ClassVar[bool] = True
    combines: ClassVar[bool] = False
    has_program: ClassVar[bool] = False
    cures_excess: ClassVar[bool] = False
    with_supports: ClassVar[bool] = False
    hides_means: ClassVar[bool] = False
    from_first_fit: ClassVar[bool] = False
    by: Any = None
    groups: FeatureGroups | None = None

    @property
    def known(self) -> bool:
        """Whether nothing of the noise is learned."""
        return True

    @property
    def power(self) -> float:
        """Power to which the Poisson likelihood is raised."""
        return 1.0

    @property
    def in_clusters(self) -> bool:
        """Whether counts come in clusters."""
        return False

    @property
    def has_entry_rates(self) -> bool:
        """Whether entries have rates."""
        return False

    @property
    def by_feature(self) -> bool:
        """Whether features may have different dispersions."""
        return self.by in ("feature", "matrix")

    def of_rows(self, index: Any) -> Self:
        """Return the noise of some rows."""
        return self

    def of_features(self, index: Any) -> Self:
        """Return the noise of some features, of all if `index` is None."""
        return self

    def of_matrix(self, code: int) -> Noise:
        """Return the noise of one of several matrices."""
        return self

    def of_matrices(self, codes: Array, names: tuple[str, ...]) -> Noise:
        """Return the noise of several matrices, whose features have these codes (m,), from one for all of them."""
        return self

    def expected(self, means: Array) -> Array:
        """Return the expected counts at these means (…, n, m), which a noise with more zeros has fewer of."""
        return means

    def factors_of_expected(self, loadings: Array, components: Array) -> tuple[Array, Array]:
        """Return factors whose products are the expected counts, from those of the means, (n, K) and (K, m)."""
        return loadings, components

    @abstractmethod
    def thinned(self, keep: float) -> Noise:
        """Return the noise of counts of which every single one is kept with this probability."""

    def in_full(self) -> str:
        """Return the noise as text, with a digest of what its own text leaves out."""
        return repr(self)

    @abstractmethod
    def in_words(self, matrices: Any = None) -> str:
        """Return what `print` says of it, with the names of several matrices; "" if there is nothing to say."""


class Distributed(Noise):
    """A noise that is a distribution of counts around means."""

    @property
    def given_totals(self) -> bool:
        """Whether counts can be drawn given the totals of rows."""
        return False

    @abstractmethod
    def log_pmf(self, counts: Array, means: Array, places: Any = None, log_factorials: Any = None) -> Array:
        """Return log p of each count given its mean, in nats.

        Parameters
        ----------
        counts : ndarray of shape (n, m) or (entries,)
            Counts of a matrix, or of the entries at some places of it.
        means : ndarray of shape (…, n, m) or (…, entries)
        places : tuple of ndarray, optional
            Rows and features of these entries.
        log_factorials : ndarray, optional
            log x! of the counts, where it is at hand.
        """

    @abstractmethod
    def variances(self, expected: Array) -> Array:
        """Return the variances of counts with these expected values (n, m)."""

    @abstractmethod
    def zeros(self, means: Array) -> Array:
        """Return the probability of a count of 0 at each of the means (n, m)."""

    @abstractmethod
    def draw(self, means: Array, rng: np.random.Generator) -> Array:
        """Draw a count for each of the means (n, m)."""

    def draw_given_totals(self, totals: Array, shares: Array, rng: np.random.Generator) -> Array:
        """Draw counts (n, m) given whole totals (n,) of rows, whose expected shares (n, m) sum to at most 1."""
        raise AssertionError(f"given_totals says that {self.word} noise cannot do this")

    def example(self) -> Distributed:
        """Return a noise of this kind of which all is known, for messages."""
        return self

    def of_program(self) -> dict[str, Any]:
        """Return the arguments that say it to the NumPyro program of a model."""
        return {}

    def compiled(self, size: tuple[int, int]) -> CompiledNoise | None:
        """Return the noise as compiled draws of a matrix of (n, m) counts take it; None if they do not know it."""
        return None

    def log_likelihood(self, counts: Any, loadings: Array, components: Array, given_totals: bool) -> float:
        """Return log p(X | loadings @ components) of the observed entries of counts in memory, in nats.

        Given the totals of rows, it is log p(X | totals) + log Poisson(totals | sums of the means), for means on any
        scale of the rows: so it is that of Poisson counts if the noise is. Here, entry by entry.
        """
        (n, m), found = counts.shape, 0.0
        for first in range(0, n, step := max(ENTRIES // m, 1)):
            rows = slice(first, first + step)
            part, mean = counts.matrix[rows].toarray().astype(np.float64), loadings[rows] @ components
            logs = self.of_rows(rows).log_pmf(part, mean)
            found += float(
                logs.sum() if counts.mask is None else logs[~counts.mask.rows(rows).hidden(slice(None))].sum()
            )
        return found

    @abstractmethod
    def sum_of_squares(self, loadings: Array, components: Array) -> float:
        """Return the sum of the expected squares of counts with means loadings @ components, in O((n + m) K²)."""


def distribution_of(noise: Noise, what: str = "probabilities of counts") -> Distributed:
    """Return a noise that is a distribution of counts; refuse another."""
    check_is_distribution(isinstance(noise, Distributed), noise, what)
    found: Any = noise
    return found


class Dispersed(Distributed):
    """A distribution of counts with a dispersion, which may be learned.

    Attributes
    ----------
    dispersion : float, ndarray or None
        None if it is learned.
    parameter : str
        Name of the parameter that is the dispersion, as the class and messages have it.
    largest : float
        Largest dispersion.
    """

    dispersion: Any
    parameter: ClassVar[str] = "dispersion"
    largest: ClassVar[float] = 1e6
    first: ClassVar[float] = 0.3  # that learning begins with

    @property
    def known(self) -> bool:
        """Whether the dispersion is known."""
        return self.dispersion is not None

    @property
    def held(self) -> Any:
        """Which of the dispersions are given where others are learned, (dispersions,) or (1,)."""
        return np.zeros(1, bool) if self.groups is None else ~np.isnan(self.groups.given)

    @property
    def entry_dispersions(self) -> Array:
        """Dispersions above 0 for the entries of a matrix, (n, 1), (1, m) or (1, 1)."""
        s = np.maximum(np.asarray(self.of_lines(self.dispersion), np.float64), LEAST)
        return s.reshape((-1, 1) if self.by == "row" else (1, -1))

    def with_dispersion(self, dispersion: Any) -> Self:
        """Return the noise with another dispersion."""
        changed: dict[str, Any] = {self.parameter: dispersion}
        return replace(self, **changed)  # type: ignore[type-var]

    def with_first_dispersion(self, size: tuple[int, int]) -> Self:
        """Return the noise with the dispersion that learning begins with, for counts of (n, m)."""
        if self.by is None:
            return self.with_dispersion(self.first)
        if self.groups is not None:
            return self.with_dispersion(np.where(self.held, self.groups.given, self.first))
        return self.with_dispersion(np.full(size[0 if self.by == "row" else 1], self.first))

    def of_lines(self, dispersions: Any) -> Any:
        """Return dispersions as those of rows, of features or of all entries: those of matrices as their features'."""
        return dispersions if self.groups is None else np.asarray(dispersions)[self.groups.codes]

    def of_places(self, shape: tuple[int, ...], places: Any) -> Array:
        """Return the dispersions of a matrix of this shape, or of its entries at these rows and features."""
        s = self.entry_dispersions
        if places is not None:
            s = s[tuple(place if size > 1 else 0 for place, size in zip(places, s.shape, strict=True))]
        return np.broadcast_to(s, shape)

    def of_rows(self, index: Any) -> Self:
        """Return the noise of some rows."""
        if self.by != "row" or self.dispersion is None:
            return self
        return self.with_dispersion(np.asarray(self.dispersion)[index])

    def of_features(self, index: Any) -> Self:
        """Return the noise of some features, of all if `index` is None."""
        if self.groups is not None and index is not None:
            changed: dict[str, Any] = {"groups": self.groups._replace(codes=self.groups.codes[index])}
            return replace(self, **changed)  # type: ignore[type-var]
        if self.by != "feature" or self.dispersion is None or index is None:
            return self
        return self.with_dispersion(np.asarray(self.dispersion)[index])

    def in_full(self) -> str:
        """Return the noise as text, with a digest of an array of dispersions."""
        own = self.dispersion
        return repr(self) if np.ndim(own) == 0 else f"{self!r} {sha256(np.ascontiguousarray(own)).hexdigest()}"

    def same_as(self, other: Dispersed) -> bool:
        """Return whether another noise of the same class has equal dispersions of the same rows or features."""
        same = (self.by, self.known) == (other.by, other.known)
        ours, theirs = (np.zeros((2, 0)) if each is None else each for each in (self.groups, other.groups))
        same = same and all(np.array_equal(*each, equal_nan=True) for each in zip(ours, theirs, strict=True))
        return same and (not self.known or np.array_equal(self.dispersion, other.dispersion))

    def shown_dispersion(self) -> str:
        """Return how its text shows the dispersion, after what comes before it."""
        if self.dispersion is None:
            return "" if self.by is None else f"{self.parameter}={self.by!r}"
        if self.by is None:
            return f"{self.parameter}={self.dispersion!r}"
        return f"{self.parameter}=array of {len(self.dispersion):,}, by={self.by!r}"

    def combined(self, every: list[Noise], codes: Array) -> Noise:
        """Return the noise of several matrices from that of each, of this class or Poisson; features have codes."""
        raise AssertionError(f"combines says that {self.word} noise cannot do this")

    @abstractmethod
    def log_prior(self, s: Array) -> Array:
        """Return the log prior density of the logarithms of dispersions, up to a constant."""

    @abstractmethod
    def derivatives_of_prior(self, s: Array) -> tuple[Array, Array]:
        """Return both derivatives of the log prior by the logarithms of dispersions."""

    @property
    @abstractmethod
    def widest(self) -> float:
        """Standard deviation of the logarithm of a dispersion of which the counts say nothing."""


class WithRates(Dispersed):
    """A distribution that is Poisson given a rate of each entry.

    Routines for Poisson counts are given expected rates, or drawn ones. Dispersions are of the shape (rows or 1, m or
    1), and so are both kinds of derivatives, which are by the logarithm of the dispersion.
    """

    @property
    def has_entry_rates(self) -> bool:
        """Whether entries have rates."""
        return True

    @abstractmethod
    def expected_rates(self, x: Array, rho: Array, s: Array) -> tuple[Array, float]:
        """Return expected rates (rows, m) at means ρ, and Σ (log p + rate ρ), without x log ρ and log x!.

        Missing entries have counts and means of 0, and add nothing to the sum; their rates are not used.
        """

    def expected_rates_alone(self, x: Array, rho: Array, s: Array) -> Array:
        """Return the same rates, where the sum is not asked for."""
        return self.expected_rates(x, rho, s)[0]

    @abstractmethod
    def drawn_rates(self, x: Array, means: Array, s: Array, seed: int, first: int) -> Array:
        """Draw rates (rows, m) given counts and means, of rows from row `first` on."""

    def sums_of_sizes(self, counts: Any, dispersions: Array) -> Array:
        """Return what log p has without means, for each row or feature, and its derivatives, (lines, 3)."""
        return np.zeros((counts.shape[1 if self.by_feature else 0], 3))

    @abstractmethod
    def log_terms(self, x: Array, rho: Array, s: Array) -> Array:
        """Return what log p of each entry has with means, as far as it depends on the dispersion."""

    @abstractmethod
    def derivatives_of_terms(self, x: Array, rho: Array, s: Array) -> tuple[Array, Array]:
        """Return both derivatives of `log_terms`."""
