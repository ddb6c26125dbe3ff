"""The prior of a side that comes from elsewhere: it is not known, or is no prior of this library.

Draws say all that is asked of loadings and components themselves. What asks for their density, their conditional or a
draw given new counts is refused, as this family has none of these abilities (`bayesnmf.results.checks`). Its mode is
that of the likelihood alone, with which replicated counts are fitted as the counts are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from bayesnmf.priors.dirichlet import Dirichlet
from bayesnmf.priors.distribution import Distribution, Support
from bayesnmf.priors.gamma import Gamma
from bayesnmf.priors.scaled_dirichlet import ScaledDirichlet
from bayesnmf.types import Array

UNKNOWN, OF_PROGRAM = "unknown prior", "prior of its own program"
CURES = {
    UNKNOWN: "give model= and priors=bayesnmf.Priors(...) to bayesnmf.from_draws, if you know them",
    OF_PROGRAM: "run the program on those counts, or fit a model of bayesnmf.fit by its name",
}
FLAT: dict[Support, Distribution] = {
    "positive": Gamma(1.0, 0.0),
    "simplex": Dirichlet(1.0),
    "scaled simplex": ScaledDirichlet(1.0, 1.0, 0.0),
}


@dataclass(frozen=True, eq=False)
class Unknown(Distribution):
    """Prior that is not known, of values with a known support.

    Parameters
    ----------
    of : {"positive", "simplex", "scaled simplex"}
        Support of the values.
    told : str
        What a printed fit calls it.
    """

    of: Support = "positive"
    told: str = UNKNOWN

    counted: ClassVar[str] = ""
    flat = True
    proper = False
    smallest_shape = 1.0

    @property
    def support(self) -> Support:  # type: ignore[override]
        """Set of possible values."""
        return self.of

    @property
    def parameters(self) -> dict[str, Any]:
        """No parameters."""
        return {}

    @property
    def settings(self) -> dict[str, Any]:
        """The support, and what it is called."""
        return {"of": self.of, "told": self.told}

    def mode(self, total: Any, exposure: Any, previous: Any = None, *, reuse: bool = False) -> Any:
        """Return the mode of the likelihood."""
        return FLAT[self.of].mode(total, exposure, previous, reuse=reuse)

    def balance(self, value: Array, total: Array, exposure: Any, less: float = 1.0) -> tuple[Array, Array]:
        """Return f and g for which value × f = total + g at a mode of the likelihood."""
        return FLAT[self.of].balance(value, total, exposure, less)

    def log_density(self, value: Any) -> float:
        """Return 0, so that the log joint is the log likelihood."""
        return 0.0

    def conditional(self, total: Array, exposure: Array, *, reuse: bool = False) -> NoReturn:
        """Refuse a conditional."""
        self.check("a conditional")

    def mean(self) -> NoReturn:
        """Refuse a mean."""
        self.check("a mean")

    def variance(self) -> NoReturn:
        """Refuse a variance."""
        self.check("a variance")

    def expected_log(self) -> NoReturn:
        """Refuse a mean of logarithms."""
        self.check("a mean of logarithms")

    def quantiles(self, at: tuple[Array, Array], levels: Array) -> NoReturn:
        """Refuse quantiles."""
        self.check("quantiles")

    def check(self, what: str) -> NoReturn:
        """Refuse what needs a prior of this library."""
        raise ValueError(f"{what} needs priors of this library: found {self.told}; {CURES[self.told]}")


def unknown_side(priors: Any) -> Unknown | None:
    """Return the first prior of a pair that is not known, None if both are."""
    return next((prior for prior in vars(priors).values() if isinstance(prior, Unknown)), None)
