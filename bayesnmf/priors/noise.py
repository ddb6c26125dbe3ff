"""The noise: how counts are distributed around their expected values.

A noise is held by a fit beside its priors; what speaks of the distribution of the counts asks it. Its `dispersion` is
what the variance has beyond that of Poisson counts, so that 0 is Poisson.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bayesnmf.checks import check_nonnegative


@dataclass(frozen=True)
class Poisson:
    """Poisson noise: the variance of a count is its expected value."""

    word: ClassVar[str] = "poisson"

    @property
    def power(self) -> float:
        """Power to which the Poisson likelihood is raised."""
        return 1.0


@dataclass(frozen=True)
class Quasi:
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
    def power(self) -> float:
        """Power to which the Poisson likelihood is raised; the dispersion must be known."""
        assert self.dispersion is not None
        return 1.0 / (1.0 + self.dispersion)


Noise = Poisson | Quasi
POISSON = Poisson()
NOISES: dict[str, type[Poisson] | type[Quasi]] = {kind.word: kind for kind in (Poisson, Quasi)}
