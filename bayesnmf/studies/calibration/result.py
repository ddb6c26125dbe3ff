"""The result of a calibration: ranks, their uniformity, and what they show about the posteriors."""

from __future__ import annotations

import json
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesnmf.checks import check_choice, check_fraction
from bayesnmf.needs import needed_for
from bayesnmf.studies.calibration.checks import check_calibration_header, check_suffix
from bayesnmf.types import Array
from bayesnmf.writing import replacing

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr


ALARM, CLEAR = 0.01, 3.0
TAIL = 0.1


@dataclass(frozen=True, eq=False, repr=False)
class Calibration:
    """Ranks of true values among posterior draws, over many simulations.

    Attributes
    ----------
    model, method : str
    size, rank : (n, m), int
        Size and rank of the simulated counts.
    quantities : tuple of str
        Names of the ranked quantities, from `bayesnmf.studies.calibration.quantities.QUANTITIES`.
    ranks : ndarray of int (simulations, quantities)
        Number of draws below the truth, 0 … L.
    draws : int
        Number of draws, L.
    ess : ndarray (quantities,)
        Effective sample size of the L draws, median over the simulations; L for independent draws (vi, svi).
    priors, settings : str
        Priors of the simulations, and options of the fits, as text.
    seed : int
    seconds : float

    See Also
    --------
    calibrate : which makes it.
    plots.calibration : draws it.

    Examples
    --------
    >>> import bayesnmf
    >>> found = bayesnmf.calibrate("gamma_poisson", "vi", simulations=30)
    >>> found.ranks.shape[0]
    30
    """

    model: str
    method: str
    size: tuple[int, int]
    rank: int
    quantities: tuple[str, ...]
    ranks: Array
    draws: int
    ess: Array
    priors: str
    settings: str
    seed: int
    seconds: float

    @property
    def simulations(self) -> int:
        """Number of simulations."""
        return len(self.ranks)

    @property
    def pit(self) -> Array:
        """Ranks as numbers between 0 and 1, (rank + uniform) / (L + 1): (simulations, quantities)."""
        noise = np.random.default_rng([self.seed, self.simulations]).random(self.ranks.shape)
        return (self.ranks + noise) / (self.draws + 1)

    def p_values(self, method: str = "pot_c") -> dict[str, float]:
        """Return the p-values of ArviZ's test of uniformity, by quantity, as `az.plot_ecdf_pit` prints them.

        Small values are as rare as they should be, but those of "pot_c" never exceed 1/2: they need not look uniform.

        Parameters
        ----------
        method : {"pot_c", "prit_c", "piet_c"}
            Name of ArviZ's test.
        """
        check_choice(method, "method", ("pot_c", "prit_c", "piet_c"))
        with needed_for("Calibration.p_values"):
            from arviz_stats.base import array_stats

        found = array_stats.uniformity_test(self.pit.T, axis=-1, method=method)[0]
        return dict(zip(self.quantities, map(float, np.atleast_1d(found)), strict=True))

    @property
    def p_value(self) -> float:
        """One p-value for all quantities: the smallest, times their number (Bonferroni), at most 1."""
        return min(1.0, len(self.quantities) * min(self.p_values().values()))

    def coverage(self, probability: float) -> dict[str, float]:
        """Return the share of simulations whose true value lies in the central interval of this probability."""
        check_fraction(probability, "probability")
        inside = np.abs(2 * self.pit - 1) <= probability
        return dict(zip(self.quantities, map(float, inside.mean(axis=0)), strict=True))

    def table(self) -> pd.DataFrame:
        """Return a table with one row for each quantity: p-value, kind of error, coverage, ESS.

        Columns: `p`; `shift`, the mean of the PIT minus 1/2, which is positive if draws are too low; `outer`, the share
        of ranks in the outer tenths, 0.2 for a correct posterior and more for one that is too narrow; `50 %` and `90
        %`, the coverage of the central intervals; `ess`, that of the draws; `reading`, a description of the error if p
        is below 0.01.
        """
        import pandas as pd

        pit = self.pit
        columns = {
            "p": list(self.p_values().values()),
            "shift": pit.mean(axis=0) - 0.5,
            "outer": self._outer(),
            "50 %": list(self.coverage(0.5).values()),
            "90 %": list(self.coverage(0.9).values()),
            "ess": self.ess,
            "reading": self.readings(),
        }
        return pd.DataFrame(columns, index=pd.Index(self.quantities, name="quantity"))

    def _outer(self) -> Array:
        return (np.abs(2 * self.pit - 1) > 1 - 2 * TAIL).mean(axis=0)

    def readings(self) -> list[str]:
        """Return, for each quantity, what is wrong according to its ranks; an empty text if p is at least 0.01.

        A shift or a share of outer ranks is reported if it is three standard errors away from its value for uniform
        ranks.
        """
        root = np.sqrt(self.simulations)
        shifts = (self.pit.mean(axis=0) - 0.5) * root * np.sqrt(12)
        outers = (self._outer() - 2 * TAIL) * root / np.sqrt(2 * TAIL * (1 - 2 * TAIL))
        readings = []
        for p, shift, outer in zip(self.p_values().values(), shifts, outers, strict=True):
            words = []
            if p < ALARM:
                words += ["too low" if shift > 0 else "too high"] if abs(shift) > CLEAR else []
                words += ["too narrow" if outer > 0 else "too wide"] if abs(outer) > CLEAR else []
                words = words or ["not uniform"]
            readings.append(", ".join(words))
        return readings

    def to_datatree(self) -> xr.DataTree:
        """Convert to a `DataTree` with the PIT in group `prior_sbc`, for `az.plot_ecdf_pit(tree)`, and `ranks`."""
        with needed_for("Calibration.to_datatree"):
            import xarray as xr

        groups = {
            f"/{group}": xr.Dataset(
                {
                    name: (("chain", "draw"), values[None])
                    for name, values in zip(self.quantities, table.T, strict=True)
                },
                {"chain": [0], "draw": np.arange(self.simulations)},
                self._about(),
            )
            for group, table in (("prior_sbc", self.pit), ("ranks", self.ranks))
        }
        return xr.DataTree.from_dict(groups)

    def _about(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "method": self.method,
            "size": list(self.size),
            "rank": self.rank,
            "draws": self.draws,
            "priors": self.priors,
            "settings": self.settings,
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
        }

    def save(self, path: str | Path) -> None:
        """Write the ranks to a CSV file, one line for each simulation, after one line of JSON with the settings."""
        target = check_suffix(path, ".csv")
        about = {**self._about(), "ess": [round(float(size), 1) for size in self.ess]}
        with replacing(target) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
            file.write(f"# {json.dumps(about)}\n{','.join(self.quantities)}\n")
            np.savetxt(file, self.ranks, fmt="%d", delimiter=",")

    @classmethod
    def load(cls, path: str | Path) -> Calibration:
        """Read a file written by `save`.

        Raises
        ------
        FileNotFoundError
            The file does not exist.
        ValueError
            The file is not a saved calibration.
        """
        source = check_suffix(path, ".csv")
        first, _, rest = source.read_text(encoding="utf-8").partition("\n")
        about = check_calibration_header(first, source)
        names, _, numbers = rest.partition("\n")
        about["size"], about["ess"] = tuple(about["size"]), np.array(about["ess"])
        ranks = np.loadtxt(StringIO(numbers), dtype=np.int64, delimiter=",", ndmin=2)
        return cls(quantities=tuple(names.split(",")), ranks=ranks, **about)

    def __repr__(self) -> str:
        n, m = self.size
        table = self.table().to_string(float_format=lambda value: f"{value:.3f}", formatters={"ess": "{:.0f}".format})
        return (
            f"<bayesnmf.Calibration of {self.model} by {self.method}: {self.simulations} simulations of {n} × {m}, "
            f"rank {self.rank}, {self.draws} draws\n  {self.priors}\n"
            f"  {self.settings}; {self.seconds:.0f} s, seed {self.seed}\n"
            f"  p of all quantities together {self.p_value:.3g}\n{table}>"
        )
