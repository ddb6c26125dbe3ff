"""Variational inference from a stream: blocks of rows that need not fit into memory together.

The noise of a stream: the counts of its blocks as routines for Poisson counts see them, and its dispersion.

A dispersion s that is not given moves with every batch by the fraction ρ of the components' step, along Newton's step
in log s for all rows as they would be if they were like the batch, n / |batch| times its log-likelihood (Robbins &
Monro 1951).
"""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

from bayesnmf.checks import check_count, check_rank, seed_or_new
from bayesnmf.data.batches import check_no_batches
from bayesnmf.data.checks import check_exposed_alike, check_new_exposure
from bayesnmf.data.conversion import as_counts
from bayesnmf.data.counts import Counts
from bayesnmf.data.exposures import with_exposures
from bayesnmf.data.mask import Mask, as_pattern
from bayesnmf.data.missing import is_nan, with_missing, without_missing
from bayesnmf.data.naming import of_features
from bayesnmf.data.powered import working_counts
from bayesnmf.data.suspicions import DataWarning, warn_of_empty_rows
from bayesnmf.fitting.checks import check_has_learned, check_rows_of_stream, check_total
from bayesnmf.fitting.closed_form import batching_of, fit_of_ascent
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.job import Job, check_combination, resolve_priors
from bayesnmf.fitting.known import RANK
from bayesnmf.fitting.problems import point_or_mean_field, start_state
from bayesnmf.fitting.projection import MAX_ITER, TOL
from bayesnmf.inference.ascent.coordinate_ascent import Ascent
from bayesnmf.inference.ascent.minibatch import RunningComponents, step_on_batch
from bayesnmf.inference.ascent.settled_loadings import (
    FINAL_ITER,
    FINAL_TOL,
    even_loadings,
    rows_to_change,
    settle_blocks,
)
from bayesnmf.inference.evidence_of_dispersion import evidence_at
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.side import Side
from bayesnmf.inference.status import Status
from bayesnmf.noise.abilities import Noise
from bayesnmf.options import VI
from bayesnmf.options.checks import check_options
from bayesnmf.options.combinations import STREAM, check_together
from bayesnmf.options.methods import resolve_options
from bayesnmf.options.rules import Request
from bayesnmf.priors import Distribution, Priors
from bayesnmf.priors.checks import check_noise, check_one_prior_for_all_rows
from bayesnmf.priors.specification import MODELS, SPARSE, model_and_rank
from bayesnmf.results.record import LEARNED
from bayesnmf.types import Array, ModelName, NoiseName


class FirstRows:
    """The rows of the first block, to notice if they come again.

    Parameters
    ----------
    stated : bool
        Whether the number of different rows is stated, so that they may.
    """

    def __init__(self, stated: bool) -> None:
        self.stated = stated
        self.left: Array | None = None  # those that have not come again

    def see(self, data: Counts) -> None:
        """Warn once if the rows of the first block come again, in any order and blocks.

        A few rows may be equal by chance, so at least five different rows must all have come again.
        """
        weights = np.random.default_rng(0).standard_normal(data.shape[1])
        rows = np.unique(data.matrix @ weights)  # equal for equal rows
        if self.left is None:
            self.left = rows if len(rows) >= 5 and not self.stated else np.zeros(0)
        elif len(self.left):
            self.left = np.setdiff1d(self.left, rows, assume_unique=True)
            if len(self.left):
                return
            warnings.warn(
                "the rows of the first block have come again: repeated rows count as new ones, so the posterior of "
                "the components becomes too narrow; give bayesnmf.MinibatchVI(total_rows=...), the number of different "
                "rows",
                DataWarning,
                stacklevel=3,
            )


def stacked(blocks: list[Counts]) -> Counts:
    """Return the rows of several blocks with the same features."""
    first = blocks[0]
    exposure = None if first.row_exposure is None else np.concatenate([each.row_exposure for each in blocks])
    names, matrix = np.concatenate([each.row_names for each in blocks]), csr_array(vstack([b.matrix for b in blocks]))
    lost = [csr_array(each.shape) if each.mask is None else each.mask.missing for each in blocks]
    mask = None if all(each.mask is None for each in blocks) else Mask.of(as_pattern(vstack(lost)))
    return replace(first, matrix=matrix, row_names=names, row_exposure=exposure, mask=mask)


class StreamNoise:
    """The noise of a stream.

    Parameters
    ----------
    noise : Noise
        Noise as it was asked for.
    model : str

    Attributes
    ----------
    now : Noise
        Noise with the dispersion that has been learned so far.
    learned : bool
        Whether the dispersion is learned.

    Raises
    ------
    ValueError
        A dispersion of each row, or one that a Poisson fit of all rows would have to find.
    """

    def __init__(self, noise: Noise, model: str) -> None:
        self.asked = self.now = noise
        self.model, self.learned = model, not noise.known

    def working(self, data: Counts, priors: Priors) -> Counts:
        """Return the counts of a block as routines for Poisson counts see them."""
        if not self.now.known:
            begun: Any = self.now
            self.now = begun.with_first_dispersion(data.shape)
        totals, components = MODELS[self.model].given_totals, priors.components
        return working_counts(data, self.now, given_totals=totals, learned=self.learned, components=components)

    def learn(self, problem: Problem, state: State, share: float, rate: float, threads: int | None) -> None:
        """Move a dispersion that is learned, given a batch and by how much there are more rows in all."""
        if self.learned:
            counts: Any = problem.counts
            s = evidence_at(problem, state, threads).moved(counts.dispersions, share, rate)
            self.now = counts.with_dispersions(s).noise


# Rows for the start. On four fifths of nips, LDA, K = 20, ten epochs of blocks of 256 rows, the perplexity of withheld
# rows was 2,203 with a start from 256 rows, 2,105 from 512, 2,044 from 1,024, and 2,007 by all rows at once.
FIRST_ROWS = 2048


class MinibatchVI:
    """Stochastic variational inference from a stream of rows, in memory that does not grow with the number of rows.

    Between blocks it keeps q of the components, (K, m). The algorithm is that of
    ``fit(..., options=VI(algorithm="minibatch"))``, with one pass over the rows of each call of `partial_fit`.

    Parameters
    ----------
    model, rank
        As for `bayesnmf.fit`.
    total_rows : int, optional
        Number of different rows of the whole data, needed if rows are given more than once. By default the number of
        rows seen so far; a `DataWarning` is issued if the first block is repeated.
    options : VI, optional
        ``VI(algorithm="minibatch", ...)``: priors, batch_size, forgetting, delay, sweeps, dtype, threads, and a word
        as start. Default priors, which depend on the mean row total, are computed from the first
        block. So is the start, and again each time the number of rows has doubled, from up to 2,048 rows, which are
        kept until then; a random one stays. All rows must have the same prior.
    noise : {"poisson", "nb1"}, NegativeBinomial or Quasi
        As for `bayesnmf.fit`: a dispersion of linear variance is given or moves with the components; that of
        quasi-Poisson noise is given.
    feature_exposure : array or Series (m,), optional
        Exposure of each feature, as for `bayesnmf.fit`; its labels are matched with the names of the first block.
    seed : int, optional
        Seed of the start; by default a new one. Steps are not random.

    Attributes
    ----------
    n_seen, steps : int
        Number of rows and of batches so far.
    priors : Priors or None
        Priors with defaults filled in; None before the first block.

    Raises
    ------
    TypeError, ValueError
        Invalid options, or options that do not apply to a stream.

    See Also
    --------
    fit, VI : fits of counts that are there at once, or in a file.

    Examples
    --------
    >>> import bayesnmf
    >>> stream = bayesnmf.MinibatchVI("gamma_poisson", rank=2, seed=0)
    >>> for block in ([[3, 0, 1], [0, 2, 4]], [[5, 1, 0], [0, 3, 6], [2, 0, 1]]):
    ...     stream = stream.partial_fit(block)
    >>> stream.components.shape, stream.n_seen
    ((2, 3), 5)
    >>> stream.transform([[1, 0, 2]]).shape
    (1, 2)
    """

    def __init__(
        self,
        model: ModelName | int = "gamma_poisson",
        rank: int | None = None,
        *,
        total_rows: int | None = None,
        options: VI | None = None,
        noise: NoiseName | Noise = "poisson",
        feature_exposure: Any = None,
        seed: int | None = None,
    ) -> None:
        model, rank = model_and_rank(model, rank, RANK)
        default = VI(algorithm="minibatch")
        options = default if options is None else options
        check_options(options, "vi", VI)
        check_together(Request(model, "vi", None, options, check_noise(noise), stream=True), STREAM)
        self.model, self.rank = model, check_rank(rank)
        self.total_rows = None if total_rows is None else check_count(total_rows, "total_rows")
        self.options, self._noise = options, StreamNoise(check_noise(noise), model)
        self.seed = seed_or_new(seed)
        self.n_seen = self.steps = 0
        self.priors: Priors | None = None
        self.feature_exposure = feature_exposure
        self._first: Counts | None = None  # the first row: names, and which exposures there are
        self._components: RunningComponents | None = None
        self._early: list[Counts] = []  # rows for the next start
        self._started = 0  # number of rows of the newest start
        self._first_rows = FirstRows(total_rows is not None)

    def partial_fit(
        self, counts: Any, *, row_exposure: Any = None, observed: Any = None, missing: Any = None
    ) -> MinibatchVI:
        """Take one step for each batch of a block of rows, (rows, m), in their order, and return the stream.

        A block of more than batch_size rows is cut into batches of equal size. A smaller batch moves the components by
        the same step size with more noise, so give blocks of at least batch_size rows, in random order. After Ctrl-C
        the finished batches have been learned from. `row_exposure`, `observed` and `missing` are those of the block, as
        for `bayesnmf.fit`; all blocks have exposures, or none.

        Raises
        ------
        TypeError, ValueError
            Counts that `fit` would refuse, with features that differ from earlier blocks, or of more than `total_rows`
            rows.
        """
        data = self._checked(counts, row_exposure, observed, missing)
        check_rows_of_stream(data, self.total_rows)
        if self._first is None:
            self._begin(data)
        self._start_from_more_rows(data)
        self._first_rows.see(data)
        assert self._components is not None
        batching = batching_of(self.options)
        for rows in batching.split(np.arange(data.shape[0])):
            part = self._problem(data if len(rows) == data.shape[0] else data.rows(slice(rows[0], rows[-1] + 1)))
            self._components.rows = self.total_rows or self.n_seen + len(rows)
            q = step_on_batch(self._components, part, None, batching, self.steps + 1, self.options.threads)
            if self._noise.learned:
                at = State(part.loadings_summary.of(part.loadings_prior, q), self._components.side())
                share = self._components.rows / len(rows)
                self._noise.learn(part, at, share, batching.rate(self.steps + 1), self.options.threads)
            self.n_seen, self.steps = self.n_seen + len(rows), self.steps + 1
        return self

    @property
    def feature_names(self) -> Array:
        """Names of the features, (m,), from the first block."""
        check_has_learned(self.n_seen, "feature_names")
        assert self._first is not None
        return self._first.feature_names

    @property
    def components(self) -> Array:
        """Posterior mean of the components, (K, m), or their estimate if they have no prior."""
        return np.ascontiguousarray(self._side("components").matrix)

    @property
    def components_posterior(self) -> Distribution | None:
        """The q of the components, with parameters (K, m); None if they have no prior."""
        return self._side("components_posterior").conditional

    @property
    def noise(self) -> Noise:
        """Noise, with the dispersion that has been learned so far."""
        return self._noise.now

    def transform(self, counts: Any, *, row_exposure: Any = None, observed: Any = None, missing: Any = None) -> Array:
        """Return the loadings of rows given the current components, (rows, K), on the scale of `Fit.loadings`."""
        found = self.result(counts, row_exposure=row_exposure, observed=observed, missing=missing)
        warn_of_empty_rows(found.counts)
        return found.loadings

    def result(self, counts: Any, *, row_exposure: Any = None, observed: Any = None, missing: Any = None) -> Fit:
        """Return the fit of the given rows with the current components.

        Every row's loadings settle as in `Fit.transform`, block by block; what else is given is that of these rows.
        The trace is the elbo, in nats, as if these were all rows; the status contains the number of rows that settled.
        """
        started = time.perf_counter()
        check_has_learned(self.n_seen, "result")
        data = self._checked(counts, row_exposure, observed, missing)
        problem, state, bound, rows = self._settled(data, TOL, MAX_ITER)
        reason = f"{rows} of {data.shape[0]} rows settled, components after {self.steps} steps"
        status = Status(rows == data.shape[0], reason, self.steps)
        noise, quiet = self._noise.now, lambda *_: None
        job = Job(data, self.model, self.rank, "vi", self.seed, self._options, quiet, noise, started)
        told = {LEARNED: 1.0} if self._noise.learned else {}
        return Fit.of(fit_of_ascent(job, Ascent(problem, state, [bound], [], status), told))

    def elbo(self, counts: Any, *, row_exposure: Any = None, observed: Any = None, missing: Any = None) -> float:
        """Return an estimate of the elbo of all rows from the given rows, in nats.

        The terms of the given rows are scaled up to `total_rows` rows or, by default, to the rows seen so far. The
        estimate is exact if `counts` are all of these rows. Loadings settle to 1e-4, less than in `result`.
        """
        check_has_learned(self.n_seen, "elbo")
        data = self._checked(counts, row_exposure, observed, missing)
        problem, state, bound, _ = self._settled(data, FINAL_TOL, FINAL_ITER)
        share = (self.total_rows or self.n_seen) / data.shape[0]
        penalty = state.components.penalty + problem.counts.log_prior
        return float(share * (bound - penalty) + penalty)

    def __repr__(self) -> str:
        return f"<bayesnmf.MinibatchVI {self.model}, rank {self.rank}: {self.n_seen:,} rows in {self.steps:,} steps>"

    def _settled(self, data: Counts, tol: float, most: int) -> tuple[Problem, State, float, int]:
        """Settle the loadings of some rows; return their problem, state and elbo, and the number of settled rows."""
        components, problem = self._side("result"), self._problem(data)
        q = rows_to_change(even_loadings(problem, components, self.rank), problem.counts, self.rank)
        bound, rows = settle_blocks(problem, components, q, tol, most, self.options.threads)
        return problem, State(problem.loadings_summary.of(problem.loadings_prior, q), components), bound, rows

    @property
    def _options(self) -> VI:
        """Options with priors and other defaults filled in."""
        assert self.priors is not None
        return resolve_options(replace(self.options, priors=self.priors))  # type: ignore[return-value]

    def _checked(self, counts: Any, row_exposure: Any, observed: Any, missing: Any) -> Counts:
        counts, own = without_missing(counts, missing)
        data = check_no_batches(
            as_counts(counts, dtype=self.options.dtype, missing="nan" if is_nan(missing) else None), "a stream"
        )
        data = with_missing(data, own, observed, missing)
        check_total(data)
        if self._first is None:
            return with_exposures(data, row_exposure, self.feature_exposure)
        data = with_exposures(of_features(data, self._first, of="stream"), row_exposure)
        check_new_exposure(self._first, data)
        check_exposed_alike(self._first, data)
        check_together(self._request(data, self.priors))
        return data.with_exposure(data.row_exposure, self._first.feature_exposure)

    def _request(self, data: Counts, priors: Any) -> Request:
        """Return what a block is fitted with."""
        options = replace(self.options, priors=priors)
        return Request(self.model, "vi", priors, options, self._noise.asked, data, self.rank, stream=True)

    def _begin(self, data: Counts) -> None:
        """Fill in the priors, from the first block."""
        priors = resolve_priors(self.model, data, self.rank, self.options.priors, shapes=SPARSE)
        check_one_prior_for_all_rows(priors.loadings)
        check_combination(self._request(data, priors))
        self.priors = priors
        self._first = data.rows(slice(0, 1))

    def _start_from_more_rows(self, data: Counts) -> None:
        """Compute the start from the first block, and again from all rows so far when their number has doubled."""
        most = min(FIRST_ROWS, self.total_rows or FIRST_ROWS)
        if self._started and (self._started >= most or self._options.start == "random"):
            return
        kept = sum(each.shape[0] for each in self._early)
        self._early.append(data if not kept else data.rows(slice(0, most - kept)))
        if self._started and kept + data.shape[0] < min(2 * self._started, most):
            return
        early = stacked(self._early)
        problem = self._problem(early, fixed=False)
        start = start_state(problem, self._options.start, self.rank, np.random.default_rng(self.seed))
        self._components = RunningComponents(problem, start.components, early.shape[0])
        self._started = early.shape[0]
        if self._started >= most or self._options.start == "random":
            self._early = []

    def _problem(self, data: Counts, fixed: bool = True) -> Problem:
        assert self.priors is not None
        working = self._noise.working(data, self.priors)
        return replace(point_or_mean_field(working, self._options), fixed_components=fixed)

    def _side(self, what: str) -> Side:
        check_has_learned(self.n_seen, what)
        assert self._components is not None
        return self._components.side()
