"""The noise: how counts are distributed around their expected values.

A noise is held by a fit beside its priors; what speaks of the distribution of the counts asks it. Its `dispersion` is
what the variance has beyond that of Poisson counts, so that 0 is Poisson.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from bayesnmf.checks import check_choice, check_dispersion, check_nonnegative


class _Same:
    """A noise that is the same for all rows and features."""

    def of_rows(self, index: Any) -> Self:
        """Return the noise of some rows."""
        return self

    def of_features(self, index: Any) -> Self:
        """Return the noise of some features, of all if `index` is None."""
        return self


WHOSE = ("row", "feature", "matrix")


@dataclass(frozen=True)
class Poisson(_Same):
    """Poisson noise: the variance of a count is its expected value."""

    word: ClassVar[str] = "poisson"
    known: ClassVar[bool] = True

    def thinned(self, keep: float) -> Self:
        """Return the noise of counts of which every single one is kept with this probability."""
        return self


@dataclass(frozen=True)
class Quasi(_Same):
    """Quasi-Poisson noise: the Poisson likelihood to the power 1 / (1 + dispersion).

    Estimates stay as they are but for the priors, which weigh more. Intervals widen by about √(1 + dispersion), which
    is what they need if counts vary 1 + dispersion times as much as Poisson counts. It is not a distribution of counts:
    nothing can be drawn from it, and models cannot be compared by it.

    Parameters
    ----------
    dispersion : float, optional
        Variance of a count over its expected value, less 1, as ``fit.dispersion().excess``; 0 is Poisson. By default
        that of a Poisson fit that the same call makes first, 0 if counts vary less than Poisson counts.

    Raises
    ------
    TypeError, ValueError
        A dispersion that is no finite number of at least 0.

    See Also
    --------
    bayesnmf.fit : Its argument `noise` takes this object, or the word "quasi".

    Examples
    --------
    >>> import bayesnmf
    >>> fit = bayesnmf.fit([[30, 0, 9], [0, 21, 14]], rank=1, seed=0, noise=bayesnmf.Quasi(dispersion=3))
    >>> fit.noise.power
    0.25
    """

    dispersion: float | None = None
    word: ClassVar[str] = "quasi"
    methods: ClassVar[tuple[str, ...]] = ("map", "vi", "gibbs")

    def __post_init__(self) -> None:
        if self.dispersion is not None:
            object.__setattr__(self, "dispersion", check_nonnegative(self.dispersion, "dispersion"))

    @property
    def known(self) -> bool:
        """Whether the dispersion is known."""
        return self.dispersion is not None

    @property
    def power(self) -> float:
        """Power to which the Poisson likelihood is raised; the dispersion must be known."""
        assert self.dispersion is not None
        return 1.0 / (1.0 + self.dispersion)

    def thinned(self, keep: float) -> Quasi:
        """Return the noise of counts of which every single one is kept with this probability."""
        return self if self.dispersion is None else Quasi(keep * self.dispersion)


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


@dataclass(frozen=True, eq=False)
class NegativeBinomial:
    """Negative binomial noise: counts vary more than Poisson counts of the same expected value λ.

    With linear variance, λ (1 + s), counts come in clusters, as words do that are repeated once they are used; with
    quadratic variance, λ + α λ², the rate of every entry varies by √α of itself. A dispersion that is not given is
    learned with the fit, with a log-normal prior of median 0.3 and factor e² (half of its mass is between 0.08 and
    1.2), so that a row or feature of few counts has one near 0.3.

    Parameters
    ----------
    variance : {"linear", "quadratic"}
        How the variance grows with the expected value.
    dispersion : float, array, "row", "feature" or "matrix", optional
        s or α, at least 0, of all entries; or words that say that each row, each feature or each of several matrices
        has its own. By default one that is learned for all entries, or for each matrix.
    by : {"row", "feature", "matrix"}, optional
        Whose the dispersions of an array are.
    groups : FeatureGroups, optional
        Which features are of which matrix; `bayesnmf.fit` says so.

    Raises
    ------
    TypeError, ValueError
        A dispersion that is no such number or word; an array without `by`.

    See Also
    --------
    bayesnmf.fit : Its argument `noise` takes this object, or the words "nb1" (linear) and "nb2" (quadratic).

    Examples
    --------
    >>> import bayesnmf
    >>> fit = bayesnmf.fit([[30, 0, 9], [0, 21, 14]], rank=1, seed=0, noise=bayesnmf.NegativeBinomial(dispersion=0.5))
    >>> fit.noise
    NegativeBinomial('linear', dispersion=0.5)
    """

    variance: Literal["linear", "quadratic"] = "linear"
    dispersion: Any = None
    by: Literal["row", "feature", "matrix"] | None = None
    groups: FeatureGroups | None = None

    def __post_init__(self) -> None:
        check_choice(self.variance, "variance", ("linear", "quadratic"))
        if self.by is not None:
            check_choice(self.by, "by", WHOSE)
        if isinstance(self.dispersion, str):
            own = check_choice(self.dispersion, "dispersion", WHOSE)
            check_choice(self.by or own, "by", (own,))
            object.__setattr__(self, "by", own)
            object.__setattr__(self, "dispersion", None)
        if self.dispersion is not None:
            object.__setattr__(self, "dispersion", check_dispersion(self.dispersion, self.by))
        if isinstance(self.dispersion, np.ndarray):
            kept = self.dispersion.copy()
            kept.setflags(write=False)
            object.__setattr__(self, "dispersion", kept)

    @property
    def word(self) -> str:
        """Short name."""
        return "nb1" if self.variance == "linear" else "nb2"

    @property
    def known(self) -> bool:
        """Whether the dispersion is known."""
        return self.dispersion is not None

    @property
    def by_feature(self) -> bool:
        """Whether features may have different dispersions."""
        return self.by in ("feature", "matrix")

    def of_lines(self, dispersions: Any) -> Any:
        """Return dispersions as those of rows, of features or of all entries: those of matrices as their features'."""
        return dispersions if self.groups is None else np.asarray(dispersions)[self.groups.codes]

    @property
    def held(self) -> Any:
        """Which of the dispersions are given where others are learned, (dispersions,) or (1,)."""
        return np.zeros(1, bool) if self.groups is None else ~np.isnan(self.groups.given)

    def of_matrix(self, code: int) -> Poisson | NegativeBinomial:
        """Return the noise of one of several matrices."""
        poisson = self.groups is not None and self.groups.given[code] == 0
        return POISSON if poisson else NegativeBinomial(self.variance, float(np.asarray(self.dispersion)[code]))

    def with_dispersion(self, dispersion: Any) -> NegativeBinomial:
        """Return the noise with a known dispersion."""
        return replace(self, dispersion=dispersion)

    def of_rows(self, index: Any) -> NegativeBinomial:
        """Return the noise of some rows."""
        if self.by != "row" or self.dispersion is None:
            return self
        return self.with_dispersion(np.asarray(self.dispersion)[index])

    def of_features(self, index: Any) -> NegativeBinomial:
        """Return the noise of some features, of all if `index` is None."""
        if self.groups is not None and index is not None:
            return replace(self, groups=self.groups._replace(codes=self.groups.codes[index]))
        if self.by != "feature" or self.dispersion is None or index is None:
            return self
        return self.with_dispersion(np.asarray(self.dispersion)[index])

    def thinned(self, keep: float) -> NegativeBinomial:
        """Return the noise of counts of which every single one is kept with this probability."""
        if self.variance == "quadratic" or self.dispersion is None:
            return self
        return self.with_dispersion(keep * np.asarray(self.dispersion)[()])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NegativeBinomial):
            return NotImplemented
        same = (self.variance, self.by, self.known) == (other.variance, other.by, other.known)
        ours, theirs = (np.zeros((2, 0)) if each is None else each for each in (self.groups, other.groups))
        same = same and all(np.array_equal(*each, equal_nan=True) for each in zip(ours, theirs, strict=True))
        return same and (not self.known or np.array_equal(self.dispersion, other.dispersion))

    def __hash__(self) -> int:
        return hash((self.variance, self.by))

    def __repr__(self) -> str:
        if self.dispersion is None:
            own = "" if self.by is None else f", dispersion={self.by!r}"
        elif self.by is None:
            own = f", dispersion={self.dispersion!r}"
        else:
            own = f", dispersion=array of {len(self.dispersion):,}, by={self.by!r}"
        return f"NegativeBinomial({self.variance!r}{own})"


Noise = Poisson | Quasi | NegativeBinomial
DISPERSION = "dispersion"  # name of drawn ones among what is drawn beside both sides
POISSON = Poisson()
NOISES: dict[str, Noise] = {
    noise.word: noise for noise in (POISSON, NegativeBinomial("linear"), NegativeBinomial("quadratic"), Quasi())
}
KINDS: dict[str, type[Noise]] = {kind.__name__: kind for kind in (Poisson, Quasi, NegativeBinomial)}
