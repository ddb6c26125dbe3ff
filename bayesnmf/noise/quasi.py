"""Quasi-Poisson noise: a power of the Poisson likelihood."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from bayesnmf.checks import check_nonnegative
from bayesnmf.noise.abilities import Noise


@dataclass(frozen=True)
class Quasi(Noise):
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
    of_poisson: ClassVar[bool] = True
    whole: ClassVar[bool] = False
    from_first_fit: ClassVar[bool] = True
    cures_excess: ClassVar[bool] = True

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

    def in_words(self, matrices: Any = None) -> str:
        """Return how much counts vary."""
        ratio = 1 + (self.dispersion or 0)
        return f"quasi-Poisson noise: {'no more than Poisson' if ratio == 1 else f'variance {ratio:.3g} × mean'}"
