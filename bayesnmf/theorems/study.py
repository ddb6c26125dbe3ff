"""What every statement is run on: the counts, how much work may go into it, and what the runs leave behind."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from bayesnmf.data.counts import Counts
from bayesnmf.fitting.fit import Fit, fit
from bayesnmf.inference.status import INTERRUPTED, ConvergenceWarning
from bayesnmf.options import MAP, VI, Options
from bayesnmf.results.draws import restrict_rows
from bayesnmf.results.estimates import VariationalPosterior
from bayesnmf.theorems.checks import check_effort

Array = NDArray[Any]
EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much work goes into the statements that need draws, optimisers or particles.

    Attributes
    ----------
    draws : int
        From q for each of NumPyro's estimates of a bound; ten times as many for those of the package.
    svi_steps : int
        Gradient steps of each SVI run, of which a model has three. With too few SVI has not come near, and its row
        says so: it does not hold.
    svi_models : tuple of str
        Models that SVI is run on. Each compiles two programs of its own, most of the time on small counts, so one
        alone by default.
    cells : int
        Most nonzero counts that programs, optimisers and decompositions see: above it, rows drawn at random, and the
        features that these have.
    particles : int
        Of each of 16 runs of sequential Monte Carlo, where the evidence is known exactly.
    """

    draws: int = 200
    svi_steps: int = 1000
    svi_models: tuple[str, ...] = ("gamma_poisson",)
    cells: int = 2000
    particles: int = 500

    def __post_init__(self) -> None:
        check_effort(self)


class Part(NamedTuple):
    """Positions of some rows and features, and what notes say of them."""

    rows: Array
    features: Array
    note: str

    def of(self, counts: Counts) -> Counts:
        """Return these counts alone, with their names."""
        kept = counts.rows(self.rows)
        cut = kept.matrix[:, self.features]
        cut.sort_indices()
        return Counts(cut, kept.row_names, kept.feature_names[self.features])

    def of_fit(self, fit: Fit) -> Fit:
        """Return a variational fit restricted to this part: its own q of these rows and features, not fitted again.

        The restriction of a Dirichlet to some features is that of their shares among themselves.
        """
        chosen = restrict_rows(fit, self.rows)
        q: Any = chosen.posterior
        full = q.components.broadcast(fit.components.shape)
        components = type(full)(**{name: np.array(value[:, self.features]) for name, value in vars(full).items()})
        return replace(
            chosen,
            counts=self.of(fit.counts),
            components=components.mean(),
            estimate=VariationalPosterior(q.loadings, components),
        )


@dataclass(eq=False)
class Study:
    """One call of `equivalences`.

    Attributes
    ----------
    counts : Counts
        float64.
    rank, iterations, seed : int
    effort : Effort
    traces : list of (str, ndarray, float)
        Label and objective of every run so far, and the rounding of each value, in nats.
    optima : dict
        By model, the fit of `small` at which coordinate ascent settled, for the statements that share it.
    """

    counts: Counts
    rank: int
    iterations: int
    seed: int
    effort: Effort
    traces: list[tuple[str, Array, float]] = field(default_factory=list)
    optima: dict[str, Fit] = field(default_factory=dict)

    def rng(self, name: str) -> np.random.Generator:
        """Return a stream of its own for each name."""
        return np.random.default_rng([self.seed, crc32(name.encode())])

    @property
    def mean_total(self) -> float:
        """Mean row total, at least 1 over all rows."""
        return max(self.counts.total, 1.0) / self.counts.shape[0]

    @cached_property
    def part(self) -> Part | None:
        """Rows with at most `effort.cells` nonzeros in all, drawn at random, and the features that they have.

        None where that is all of the counts. At least one row, however long it is.
        """
        n, m = self.counts.shape
        if self.counts.nnz <= self.effort.cells:
            return None
        held = np.diff(self.counts.matrix.indptr)
        order = self.rng("rows").permutation(np.flatnonzero(held))
        rows = np.sort(order[: max(int(np.searchsorted(np.cumsum(held[order]), self.effort.cells, side="right")), 1)])
        features = np.flatnonzero(self.counts.rows(rows).feature_totals > 0)
        return Part(rows, features, f"on {len(rows):,} of {n:,} rows, {len(features):,} of {m:,} features")

    @cached_property
    def small(self) -> tuple[Counts, str]:
        """The counts of that part, and what notes say of it; all counts where they are few."""
        return (self.counts, "") if self.part is None else (self.part.of(self.counts), self.part.note)

    def fit(self, counts: Counts, model: str, method: str, options: Options | None = None, stream: int = 0) -> Fit:
        """Fit one model in silence, and keep its trace for the statement on monotone runs.

        Each stream has random numbers of its own.

        Raises
        ------
        KeyboardInterrupt
            The fit was interrupted: half of one certifies nothing.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # what it reached is judged, not how it stopped
            result = fit(counts, model, self.rank, method, seed=self.seed + stream, options=options)
        if result.status.reason == INTERRUPTED:
            raise KeyboardInterrupt
        if method in ("map", "vi", "bld"):
            self.traces.append((f"{method} {model}", result.trace, rounding_of_bound(counts, self.rank)))
        return result


def plain_map(**settings: Any) -> MAP:
    """Return options of EM from a random start without extrapolation, whatever the defaults are, with some changed."""
    stated: dict[str, Any] = {"start": "random", "algorithm": "em", "extrapolate": False}
    return MAP(**(stated | settings))


def plain_vi(**settings: Any) -> VI:
    """Return options of coordinate ascent from a random start without extrapolation, with some changed."""
    stated: dict[str, Any] = {"start": "random", "algorithm": "coordinate", "extrapolate": False}
    return VI(**(stated | settings))


def together(*notes: str) -> str:
    """Join the notes that say something."""
    return "; ".join(note for note in notes if note)


# --- tolerances ------------------------------------------------------------------------------------

FALSE_ALARM = 6.3e-5  # chance that an estimate is as far off as 4 standard errors of a normal, on either side


def wide(draws: int) -> float:
    """How many standard errors an estimate may be off: the quantile of Student's t that a false alarm leaves.

    4.0 for a standard error known exactly, 4.2 where it is that of 100 draws, 5.4 of 16.
    """
    return float(stats.t.isf(FALSE_ALARM / 2, draws - 1))


def rounding(terms: float, size: float) -> float:
    """Rounding error of a sum: 4 √terms ε times the sum of the absolute values of the terms.

    Errors of n roundings, each at most ε/2, stay below λ √n ε/2 except with probability 2n exp(−λ²/2); λ is 8
    (Higham & Mary, *A new approach to probabilistic rounding error analysis*, 2019, theorem 2.4).
    """
    return 4 * np.sqrt(max(terms, 1.0)) * EPS * size


def rounding_of_loglik(counts: Counts, rank: int, rates: Array) -> float:
    """Rounding of Σ [X log λ − log X!] − Σ λ in nats, given the rates (nnz,) at the nonzeros.

    A rate has K roundings of its own, which its logarithm passes on as they are.
    """
    x = counts.matrix.data
    size = np.abs(x * np.log(np.maximum(rates, np.finfo(np.float64).tiny))).sum() + (rank + 4) * x.sum()
    return rounding(counts.nnz, float(size + counts.log_factorial + np.sum(counts.row_totals)))


def rounding_of_bound(counts: Counts, rank: int) -> float:
    """Rounding of an evidence lower bound or log joint, in nats, from the largest terms that it can have.

    These are X log λ, log X!, and logΓ of and γ E log at concentrations that sum to the row totals, and over each
    component to its total, plus about 1 for every parameter.
    """
    n, m = counts.shape
    total = counts.total
    of_rows = counts.row_totals + rank + 1
    of_components = total + rank * (m + 1)
    size = counts.log_factorial + (rank + 4) * total + np.sum(of_rows * np.log(of_rows))
    size += of_components * np.log(of_components)
    return rounding(counts.nnz + rank * (n + m), 2 * float(size))


def rounding_of_step(counts: Counts, rank: int) -> float:
    """Rounding of one update by each of two routes, relative to the entry.

    (K + 5) operations, and sums of up to n + m positive terms as in `rounding`.
    """
    n, m = counts.shape
    return 2 * (rank + 5 + 4 * np.sqrt(n + m)) * EPS
