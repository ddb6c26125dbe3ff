"""The data shared by all statements: the counts, the permitted amount of work, and the results of runs."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from scipy import stats

from bayesnmf.assessment.checks import check_draws_of_bound
from bayesnmf.checks import check_count, check_words, make_plain
from bayesnmf.data.counts import Counts
from bayesnmf.fitting.fit import fit
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.job import resolve_priors
from bayesnmf.fitting.many import uninterrupted
from bayesnmf.inference.status import FitWarning
from bayesnmf.options import MAP, METHODS, VI, Options
from bayesnmf.priors.specification import EVEN, check_model
from bayesnmf.results.draws import restrict_rows
from bayesnmf.results.estimates import VariationalPosterior
from bayesnmf.types import Array

EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, kw_only=True)
class Effort:
    """Amount of work for the statements that need draws, optimisers or particles.

    Attributes
    ----------
    draws : int
        Number of draws from q for each of NumPyro's estimates of a bound; the package's own take ten times as many.
    svi_steps : int
        Number of gradient steps of each SVI run, of which a model has three. With too few steps SVI does not come near
        the optimum, and the table reports that its row does not hold.
    svi_models : tuple of str
        Models for SVI. Each compiles two more programs, which takes most of the time on small counts, so the default is
        one model.
    entries : int
        Largest number of nonzero counts for programs, optimisers and decompositions; above it, they use random rows and
        the features of these rows.
    particles : int
        Number of particles in each of 16 runs of sequential Monte Carlo, used if the evidence is known exactly.

    See Also
    --------
    equivalences : takes it.

    Examples
    --------
    >>> import bayesnmf
    >>> bayesnmf.Effort(draws=100, svi_models=()).draws
    100
    """

    draws: int = 200
    svi_steps: int = 1000
    svi_models: tuple[str, ...] = ("gamma_poisson",)
    entries: int = 2000
    particles: int = 500

    def __post_init__(self) -> None:
        make_plain(self)
        check_draws_of_bound(self.draws)  # at least 2, for a standard error
        for name in ("svi_steps", "entries", "particles"):
            check_count(getattr(self, name), name)
        for model in check_words(self.svi_models, "svi_models") if self.svi_models != () else ():
            check_model(model, "svi_models")


class Part(NamedTuple):
    """Positions of some rows and features, and their description in notes."""

    rows: Array
    features: Array
    note: str

    def restrict(self, counts: Counts) -> Counts:
        """Return these counts only, with their names."""
        kept = counts.rows(self.rows)
        cut = kept.matrix[:, self.features]
        cut.sort_indices()
        return Counts(cut, kept.row_names, kept.feature_names[self.features])

    def restrict_fit(self, fit: Fit) -> Fit:
        """Return a variational fit restricted to this part: its own q of these rows and features, without a new fit.

        Restricted to some features, a Dirichlet describes their shares among themselves.
        """
        chosen = restrict_rows(fit, self.rows)
        q: Any = chosen.posterior
        full = q.components.broadcast(fit.components.shape)
        components = type(full)(**{name: np.array(value[:, self.features]) for name, value in vars(full).items()})
        return replace(
            chosen,
            counts=self.restrict(fit.counts),
            components=components.mean(),
            estimate=VariationalPosterior(q.loadings, components),
        )


@dataclass(eq=False)
class Study:
    """One call of `equivalences`.

    Attributes
    ----------
    counts : Counts
        Counts in float64.
    rank, iterations, seed : int
    effort : Effort
    traces : list of (str, ndarray, float)
        Label and objective of every run so far, and the rounding error of each value, in nats.
    optima : dict
        By model, the fit to `small` at which coordinate ascent converged, for the statements that share it.
    """

    counts: Counts
    rank: int
    iterations: int
    seed: int
    effort: Effort
    traces: list[tuple[str, Array, float]] = field(default_factory=list)
    optima: dict[str, Fit] = field(default_factory=dict)

    def rng(self, name: str) -> np.random.Generator:
        """Return a separate random stream for each name."""
        return np.random.default_rng([self.seed, crc32(name.encode())])

    @property
    def mean_total(self) -> float:
        """Mean row total over all rows, at least 1."""
        return max(self.counts.total, 1.0) / self.counts.shape[0]

    @cached_property
    def part(self) -> Part | None:
        """Rows with at most `effort.entries` nonzeros in all, drawn at random, and their features.

        None if these are all counts. There is at least one row, even if it has more nonzeros.
        """
        n, m = self.counts.shape
        if self.counts.nnz <= self.effort.entries:
            return None
        held = np.diff(self.counts.matrix.indptr)
        order = self.rng("rows").permutation(np.flatnonzero(held))
        rows = np.sort(order[: max(int(np.searchsorted(np.cumsum(held[order]), self.effort.entries, side="right")), 1)])
        features = np.flatnonzero(self.counts.rows(rows).feature_totals > 0)
        return Part(rows, features, f"on {len(rows):,} of {n:,} rows, {len(features):,} of {m:,} features")

    @cached_property
    def small(self) -> tuple[Counts, str]:
        """The counts of `part` and their description in notes; all counts if they are few."""
        return (self.counts, "") if self.part is None else (self.part.restrict(self.counts), self.part.note)

    def fit(self, counts: Counts, model: str, method: str, options: Options | None = None, stream: int = 0) -> Fit:
        """Fit one model without progress, and keep its trace for the statement on monotone runs.

        Each stream has separate random numbers. Priors that are left out are even, whatever the defaults are.

        Raises
        ------
        KeyboardInterrupt
            The fit was interrupted; half a fit certifies nothing.
        """
        options = options or METHODS[method].options()
        options = replace(options, priors=resolve_priors(model, counts, self.rank, options.priors, shapes=EVEN))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)  # the result is judged, not how it stopped
            result = uninterrupted(fit(counts, model, self.rank, method, seed=self.seed + stream, options=options))
        if METHODS[method].posterior != "draws" and not METHODS[method].estimated:
            self.traces.append((f"{method} {model}", result.trace, rounding_of_bound(counts, self.rank)))
        return result


def plain_map(**settings: Any) -> MAP:
    """Return options of EM from a random start without extrapolation, for any defaults, with `settings` changed."""
    stated: dict[str, Any] = {"start": "random", "algorithm": "em", "extrapolate": False}
    return MAP(**(stated | settings))


def plain_vi(**settings: Any) -> VI:
    """Return options of coordinate ascent from a random start without extrapolation, with `settings` changed."""
    stated: dict[str, Any] = {"start": "random", "algorithm": "coordinate", "extrapolate": False}
    return VI(**(stated | settings))


def joined_notes(*notes: str) -> str:
    """Join the notes that are not empty."""
    return "; ".join(note for note in notes if note)


# --- tolerances ------------------------------------------------------------------------------------

FALSE_ALARM = 6.3e-5  # chance of an error beyond 4 standard errors of a normal, in either direction


def permitted_errors(draws: int) -> float:
    """Return how many standard errors an estimate may be off: a quantile of Student's t, from the false alarm rate.

    4.0 for a standard error known exactly, 4.2 if it is estimated from 100 draws, 5.4 from 16.
    """
    return float(stats.t.isf(FALSE_ALARM / 2, draws - 1))


def rounding(terms: float, size: float) -> float:
    """Return the rounding error of a sum: 4 √terms ε times the sum of the absolute values of the terms.

    Errors of n roundings, each at most ε/2, stay below λ √n ε/2 except with probability 2n exp(−λ²/2); λ is 8
    (Higham & Mary, *A new approach to probabilistic rounding error analysis*, 2019, theorem 2.4).
    """
    return 4 * np.sqrt(max(terms, 1.0)) * EPS * size


def rounding_of_loglik(counts: Counts, rank: int, rates: Array) -> float:
    """Return the rounding error of Σ [X log λ − log X!] − Σ λ in nats, given the rates (nnz,) at the nonzeros.

    A rate has K rounding errors of its own, which its logarithm passes on unchanged.
    """
    x = counts.matrix.data
    size = np.abs(x * np.log(np.maximum(rates, np.finfo(np.float64).tiny))).sum() + (rank + 4) * x.sum()
    return rounding(counts.nnz, float(size + counts.log_factorial + np.sum(counts.row_totals)))


def rounding_of_bound(counts: Counts, rank: int) -> float:
    """Return the rounding error of an evidence lower bound or log joint, in nats, from its largest possible terms.

    These are X log λ, log X!, logΓ and γ E log at concentrations that sum to the row totals, and for each component to
    its total, plus about 1 for every parameter.
    """
    n, m = counts.shape
    total = counts.total
    of_rows = counts.row_totals + rank + 1
    of_components = total + rank * (m + 1)
    size = counts.log_factorial + (rank + 4) * total + np.sum(of_rows * np.log(of_rows))
    size += of_components * np.log(of_components)
    return rounding(counts.nnz + rank * (n + m), 2 * float(size))


def rounding_of_step(counts: Counts, rank: int) -> float:
    """Return the rounding error between two computations of one update, relative to the entry.

    It comes from (K + 5) operations, and sums of up to n + m positive terms as in `rounding`.
    """
    n, m = counts.shape
    return 2 * (rank + 5 + 4 * np.sqrt(n + m)) * EPS
