"""Leave-one-out cross-validation of entries by Pareto-smoothed importance sampling, always reported with k-hat.

Where k-hat is above 0.7, an entry can be left out by a fit of its own, in which it is missing: log p is then the mean
of its probability over the draws of that fit, and k-hat that of this mean. benchmarks/README.md ("Leaving entries out")
has both beside brute force. Moment matching (`az.loo_moment_match`) was tried and is not used. Of the loadings of the
row alone it mends little, as what the entry moves are the components of its feature, too. With these it mends half, and
components on the simplex, which depend on each other, make each of its steps a pass over all counts, as in a chain.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.special import gammaln, logsumexp

from bayesnmf.assessment.checks import check_least_draws, check_leave_one_out, check_refits
from bayesnmf.cards import Card, Shown
from bayesnmf.checks import check_count, check_names
from bayesnmf.data.checks import check_some_observed
from bayesnmf.data.counts import Counts
from bayesnmf.data.mask import Mask, as_pattern
from bayesnmf.data.probabilities import log_likelihood
from bayesnmf.fitting.fit import run_once
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.job import Job, ProgressReport, progress_context
from bayesnmf.fitting.many import fit_side_by_side, number_of_jobs, uninterrupted
from bayesnmf.noise.abilities import Dispersed, distribution_of
from bayesnmf.priors.specification import MODELS
from bayesnmf.results.batches import widened
from bayesnmf.results.cautions import cautions_of
from bayesnmf.results.checks import check_distribution, check_fit
from bayesnmf.results.datatree import GIVEN_TOTALS
from bayesnmf.results.draws import is_resampled, noises_of_draws, restrict_rows, runs_of_draws, share_effective
from bayesnmf.results.estimates import Draws, take_features
from bayesnmf.results.record import LEARNED, effective_loadings
from bayesnmf.text import number
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd

BAD_K = 0.7


@dataclass(frozen=True, eq=False, repr=False)
class LeaveOneOut(Shown):
    """Expected log predictive density of entries, each left out in turn.

    Attributes
    ----------
    elpd, se, p_loo : float
        The sum over all `entries`, in nats, its standard error over entries, and the effective number of parameters.
    sampling_se : float
        Standard error of `elpd` because only some entries were examined; 0 if all were.
    entries : int
        Number of entries in the sum `elpd`.
    pointwise : DataFrame
        One row for each examined entry: row, feature, count, elpd, pareto_k, and whether it was left out by a fit of
        its own, refitted, in which case k-hat is that of the mean over the draws of this fit.
    good_k : float
        The reliability limit of k-hat for this number of draws, as in ArviZ: min(1 − 1/log₁₀ draws, 0.7).
    model, method : str
    notes : list of str

    See Also
    --------
    loo : which makes it.

    Examples
    --------
    >>> import bayesnmf
    >>> counts, options = [[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]], bayesnmf.Gibbs(chains=2, warmup=50, draws=50)
    >>> fit = bayesnmf.fit(counts, rank=1, method="gibbs", seed=0, options=options)
    >>> bayesnmf.loo(fit).pointwise.shape[0]
    12
    """

    elpd: float
    se: float
    p_loo: float
    sampling_se: float
    entries: int
    pointwise: pd.DataFrame
    good_k: float
    model: str
    method: str
    notes: list[str]

    @property
    def pareto_k(self) -> Array:
        """k-hat of every examined entry."""
        return self.pointwise["pareto_k"].to_numpy()

    def worst(self, n: int = 3) -> pd.DataFrame:
        """Return the entries with the largest k-hat, worst first."""
        return self.pointwise.nlargest(n, "pareto_k")

    def card(self) -> Card:
        """Return what is shown of it."""
        k, part = self.pareto_k, f", estimated from {len(self.pointwise):,} of them" if self.sampling_se else ""
        error = f", and ± {number(self.sampling_se)} for the entries not examined" if self.sampling_se else ""
        lines = [
            ["elpd", f"{self.elpd:,.1f} ± {number(self.se)} nats{error}"],
            ["effective parameters, p_loo", f"{self.p_loo:,.1f}"],
            ["largest k-hat", f"{k.max():.2f}"],
            [f"k-hat above {BAD_K:g}", f"{np.mean(k > BAD_K):.2%} of the entries"],
            [f"k-hat above {self.good_k:.2f}, the limit for so many draws", f"{np.mean(k > self.good_k):.2%}"],
        ]
        rows: Any = self.worst().itertuples()
        worst = "; ".join(f"({at.row}, {at.feature}) = {at.count:g}: k-hat {at.pareto_k:.2f}" for at in rows)
        title = f"{self.model} by {self.method}, leave-one-out over {self.entries:,} entries{part}"
        return Card(title, ["quantity", "value"], lines, [f"worst: {worst}", *self.notes], ["found.worst(20)"])


MOST_ENTRIES, BLOCK_BYTES = 10_000, 64 * 2**20
FEWEST_DRAWS = 8
FEWEST_IN_ALL = 25  # a Pareto tail is fitted to the largest fifth of the draws, and needs five


def loo(
    fit: Fit,
    rows: Iterable[Any] | None = None,
    features: Iterable[Any] | None = None,
    *,
    refit: int = 0,
    most: int = MOST_ENTRIES,
    seed: int = 0,
    progress: ProgressReport | bool | None = None,
) -> LeaveOneOut:
    """Estimate how well each entry is predicted from all others, by `az.loo`, with the k-hat of every entry.

    A k-hat above 0.7 means that leaving the entry out changes the posterior too much for a reliable estimate [1]_.
    ``refit=20`` leaves up to 20 of these entries out by a fit of their own, from the mode of this one.
    Whole samples cannot be left out: without its counts, a sample's loadings are unknown, and k-hat is above 0.7 for
    most samples even where it is low for entries. Fits by vi, svi, map or bld are refused: their draws are not draws of
    the posterior, and a q that is too narrow scores too well. Compare models and ranks by held-out counts
    (`bayesnmf.select`), which works for any method.

    Under dirichlet_poisson row totals are given, so the entries of a row are not independent. Each is scored by itself,
    with mean total × loadings × components, as in ``to_datatree(log_likelihood=True)``. An entry that is left out is
    then not entirely unseen: it follows from the row's total and the other entries. Missing entries are not scored.

    Parameters
    ----------
    fit : Fit
        Fit by gibbs, nuts or smc.
    rows, features : iterable of names, optional
        Names of the rows and features whose entries are scored; by default all.
    refit : int
        Largest number of examined entries, those of the largest k-hat above 0.7, that are missing in a fit of their own
        with the same options; each takes about as long as the fit. Not under dirichlet_poisson.
    most : int
        Largest number of entries to examine. If there are more, a random sample of this size corrects a sum over all
        entries at the posterior means (the difference estimator of [2]_), with the additional error `sampling_se`.
    seed : int
        Seed of the random sample of entries.
    progress : bool or callable, optional
        Progress report, as for `bayesnmf.fit`.

    Returns
    -------
    LeaveOneOut
        If all entries are examined, and none is fitted without, equal up to rounding to `az.loo` of the tree with
        their log-likelihoods.

    Raises
    ------
    TypeError, ValueError
        A fit by another method, unknown names, only missing entries, or fewer than 25 draws, or than 8 in a chain of
        gibbs or nuts. With `refit`, given totals, counts on disk, or a fit that `bayesnmf.fit` did not make.

    See Also
    --------
    LeaveOneOut : what it returns.
    select : held-out counts, for any method.

    References
    ----------
    .. [1] A. Vehtari, D. Simpson, A. Gelman, Y. Yao and J. Gabry (2024). Pareto smoothed importance sampling.
       JMLR 25(72).
    .. [2] M. Magnusson, A. Vehtari, J. Jonasson and M. Andersen (2020). Leave-one-out cross-validation for Bayesian
       model comparison in large data. AISTATS.

    Examples
    --------
    >>> import bayesnmf
    >>> counts, options = [[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]], bayesnmf.Gibbs(chains=2, warmup=50, draws=50)
    >>> fit = bayesnmf.fit(counts, rank=1, method="gibbs", seed=0, options=options)
    >>> bayesnmf.loo(fit).entries
    12
    """
    check_fit(fit)
    check_leave_one_out(fit.method)
    check_distribution(fit, "leave-one-out scores")
    asked = check_names(rows, fit.row_names, "rows")
    columns_asked = check_names(features, fit.feature_names, "features")
    most, refit = check_count(most, "most"), check_count(refit, "refit", minimum=0)
    if refit:
        check_refits(fit)
    rng = np.random.default_rng(check_count(seed, "seed", minimum=0))
    posterior: Draws = fit.posterior  # type: ignore[assignment]
    fewest = 1 if is_resampled(fit) else FEWEST_DRAWS
    check_least_draws(posterior.chains, posterior.draws, fewest, FEWEST_IN_ALL, "loo")
    part = restrict_rows(fit, asked)
    entries = _Entries(part, columns_asked)
    total = check_some_observed(entries.number)
    chosen = entries.places(np.arange(total) if total <= most else np.sort(rng.choice(total, most, replace=False)))
    with progress_context(progress) as report:
        scores = _score_entries(entries, chosen, report)
        if refit:
            i, j = np.divmod(chosen, len(entries.features))
            places = i if asked is None else asked[i], j if columns_asked is None else columns_asked[j]
            scores = _leave_out(fit, scores, np.stack(places), refit, seed, report)
    return _result(entries, chosen, scores)


class _Scores(NamedTuple):
    """What the entries that were examined, c of them, have.

    Attributes
    ----------
    elpd, k_hat : ndarray (c,)
        Log density of each entry when it is left out, and k-hat.
    p_loo : float
        Effective number of parameters, summed over the entries.
    good_k : float
        The reliability limit of k-hat.
    refitted : ndarray of bool (c,)
        Whether each was left out by a fit of its own.
    unsettled : int
        Number of these fits that did not converge.
    """

    elpd: Array
    k_hat: Array
    p_loo: float
    good_k: float
    refitted: Array
    unsettled: int = 0


class _Entries:
    """Counts and draws of the candidate entries; entry c is row c // m and feature c % m of the chosen ones."""

    def __init__(self, fit: Fit, features: Array | None) -> None:
        self.fit, self.asked = fit, features
        self.counts: csr_array = take_features(fit.counts.matrix.astype(np.float64), features)
        self.features = take_features(fit.feature_names, features)
        self.noise = distribution_of(fit.noise).of_features(features)
        self.mask = None if fit.counts.mask is None else fit.counts.mask.as_entries
        needed = features if self.mask is None else None  # given totals of observed entries need all features
        self.draws = fit.estimate.take(fit, fit.estimate.held, 0, needed)  # type: ignore[arg-type]
        self.loadings = effective_loadings(fit, self.draws.loadings, self.draws.scale, self.draws.components)
        if self.mask is not None and features is not None:
            self.mask = self.mask.features(features)
            own = (take_features(each, features) for each in (self.draws.components, self.draws.factors))
            self.draws = replace(self.draws, **dict(zip(("components", "factors"), own, strict=True)))
        self.components = fit.counts.exposed_components(self.draws.components, features)

    @property
    def number(self) -> int:
        """Number of observed entries."""
        n, m = self.counts.shape
        return n * m - (0 if self.mask is None else self.mask.number)

    def places(self, numbers: Array) -> Array:
        """Return the entries that are the observed ones with these numbers."""
        return numbers if self.mask is None else self.mask.places_of_observed(numbers)

    def log_likelihood(self, chosen: Array) -> Array:
        """Return log p(count | draw) of some entries, (chains, draws, entries)."""
        i, j = np.divmod(chosen, self.counts.shape[1])
        means = np.zeros((self.draws.chains, self.draws.draws, len(chosen)))
        for k in range(self.fit.rank):
            means += self.loadings[:, :, i, k] * self.components[:, :, k, j]
        if self.draws.factors is not None:
            means *= self.draws.factors[:, :, self.fit.counts.batch.codes[i], j]
        own, noise_at = self._counted(chosen), noises_of_draws(self.fit, means.shape[:2])
        for at in np.ndindex(means.shape[:2]):
            noise = distribution_of(noise_at(at)).of_features(self.asked)  # each draw has its own dispersion
            means[at] = noise.log_pmf(means=means[at], **own)
        return means

    def _counted(self, chosen: Array) -> dict[str, Any]:
        """Return what a noise asks of entries beside their means."""
        counts, places = self.counts_at(chosen), np.divmod(chosen, self.counts.shape[1])
        return {"counts": counts, "places": places, "log_factorials": gammaln(counts + 1)}

    def counts_at(self, chosen: Array) -> Array:
        """Return the counts of some entries."""
        found = self.counts[np.divmod(chosen, self.counts.shape[1])]
        return np.asarray(found.todense() if hasattr(found, "todense") else found).ravel()

    def plug_in(self, chosen: Array) -> tuple[Array, float]:
        """Return log p(count | posterior means) of some entries, and its sum over all entries."""
        i, j = np.divmod(chosen, self.counts.shape[1])
        loadings, components = (side.mean(axis=(0, 1)) for side in (self.loadings, self.components))
        if (drawn := self.draws.factors) is not None:
            loadings, components = widened(self.fit.counts.batch.codes, loadings, components, drawn.mean(axis=(0, 1)))
        means = np.einsum("ck,kc->c", loadings[i], components[:, j])
        whole = Counts(self.counts, self.fit.row_names, self.features, mask=self.mask)
        logs = self.noise.log_pmf(means=means, **self._counted(chosen))
        return logs, log_likelihood(self.noise, whole, loadings, components, given_totals=False)


def relative_efficiency(fit: Fit, draws: Draws) -> float:
    """Return the effective sample size of the mean divided by the number of draws, averaged over parameters.

    It is 1 for a single chain or run, in which it is not estimated.
    """
    import arviz as az

    if draws.chains == 1:
        return 1.0
    parts = [part for part in (draws.loadings, draws.components, draws.scale) if part is not None]
    if is_resampled(fit):
        flat, run = [part.reshape(draws.chains * draws.draws, -1) for part in parts], runs_of_draws(fit)
        shares = np.concatenate([share_effective(part, run, draws.chains) for part in flat])
        return float(1.0 / np.nanmean(1.0 / shares))  # means of shares are too large, as few runs give each error
    with np.errstate(invalid="ignore", divide="ignore"):  # constants have no effective sample size
        sizes = np.concatenate([np.ravel(az.ess(part, chain_axis=0, draw_axis=1, method="mean")) for part in parts])
    return float(np.nanmean(sizes) / (draws.chains * draws.draws))


def _score_entries(entries: _Entries, chosen: Array, report: ProgressReport) -> _Scores:
    """Run `az.loo` on blocks of entries."""
    reff = relative_efficiency(entries.fit, entries.draws)
    block = max(1, BLOCK_BYTES // (8 * entries.draws.chains * entries.draws.draws))
    elpd, k_hat, p_loo, good_k = [], [], 0.0, BAD_K
    for start in range(0, len(chosen), block):
        report("loo", start, len(chosen), np.nan)
        found = _smoothed(entries.log_likelihood(chosen[start : start + block]), reff)
        elpd.append(found.elpd_i.to_numpy())
        k_hat.append(found.pareto_k.to_numpy())
        p_loo += float(found.p)
        good_k = float(found.good_k)
    report("loo", len(chosen), len(chosen), np.nan)
    return _Scores(np.concatenate(elpd), np.concatenate(k_hat), p_loo, good_k, np.zeros(len(chosen), bool))


def _smoothed(values: Array, reff: float) -> Any:
    """Return `az.loo` of log-likelihoods, (chains, draws, entries), whose weights are their inverses."""
    import arviz as az
    import xarray as xr

    group = xr.Dataset({"counts": (("chain", "draw", "entry"), values)})
    group = group.assign_coords(chain=np.arange(values.shape[0]), draw=np.arange(values.shape[1]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # warnings about k-hats, which the result shows
        return az.loo(xr.DataTree.from_dict({"/log_likelihood": group}), pointwise=True, reff=reff)


def _leave_out(fit: Fit, scores: _Scores, places: Array, most: int, seed: int, report: ProgressReport) -> _Scores:
    """Return the scores with those of the worst entries, up to `most`, by fits in which they are missing.

    Parameters
    ----------
    places : ndarray of int (2, c)
        Rows and features of the entries in the fit. After Ctrl-C the entries whose fits had ended have new scores.
    """
    bad = np.argsort(-scores.k_hat, kind="stable")[:most]
    bad = bad[scores.k_hat[bad] > BAD_K]
    if not len(bad):
        return scores

    def without(which: int, tick: ProgressReport) -> tuple[float, float, bool]:
        row, feature = (int(each) for each in places[:, bad[which]])
        own = np.random.SeedSequence([seed, row, feature]).generate_state(1)[0]
        return _score_without(fit, row, feature, int(own), tick)

    jobs = number_of_jobs(None, len(bad), fit.options)
    found, _ = fit_side_by_side(without, len(bad), jobs, (report, "loo, without an entry each"))
    elpd, k_hat, refitted, p_loo = scores.elpd.copy(), scores.k_hat.copy(), scores.refitted.copy(), scores.p_loo
    for which, (log_p, k, _) in found.items():
        place = bad[which]
        p_loo += elpd[place] - log_p
        elpd[place], k_hat[place], refitted[place] = log_p, k, True
    unsettled = sum(not settled for *_, settled in found.values())
    return _Scores(elpd, k_hat, p_loo, scores.good_k, refitted, unsettled)


def _score_without(fit: Fit, row: int, feature: int, seed: int, tick: ProgressReport) -> tuple[float, float, bool]:
    """Return log p of an entry and its k-hat by a fit in which the entry is missing, and whether that has converged."""
    counts, noise = fit.counts, fit.noise
    options: Any = fit.options
    entry = csr_array(([1.0], ([row], [feature])), shape=counts.shape)
    missing = entry if counts.mask is None else counts.mask.missing + entry
    if isinstance(noise, Dispersed) and LEARNED in fit.diagnostics:
        noise = noise.with_dispersion(None)
    if hasattr(options, "start"):
        options = replace(options, start=fit)
    without = counts.with_mask(Mask.of(as_pattern(missing)))
    found = uninterrupted(run_once(Job(without, fit.model, fit.rank, fit.method, seed, options, tick, noise)))
    entries = _Entries(restrict_rows(Fit.of(replace(found, counts=counts)), np.array([row])), None)
    values = entries.log_likelihood(np.array([feature]))
    # The mean of p over draws has weights p, of which `az.loo` of −log p tells how heavy their tail is.
    k_hat = _smoothed(-values, relative_efficiency(entries.fit, entries.draws)).pareto_k
    return float(logsumexp(values) - np.log(values.size)), float(k_hat.item()), found.status.converged


def _result(entries: _Entries, chosen: Array, scores: _Scores) -> LeaveOneOut:
    """Return the sums over all entries, from the scores of those chosen."""
    import pandas as pd

    number_of_entries, looked, elpd_i = entries.number, len(chosen), scores.elpd
    elpd, sampling_se = float(elpd_i.sum()), 0.0
    if looked < number_of_entries:
        plug_in, everywhere = entries.plug_in(chosen)
        gap = elpd_i - plug_in
        elpd = everywhere + number_of_entries * float(gap.mean())
        spread = float(gap.std(ddof=1)) if looked > 1 else np.inf
        sampling_se = number_of_entries * spread * np.sqrt((1 - looked / number_of_entries) / looked)
    i, j = np.divmod(chosen, entries.counts.shape[1])
    named = {"row": entries.fit.row_names[i], "feature": entries.features[j], "count": entries.counts_at(chosen)}
    return LeaveOneOut(
        elpd=elpd,
        se=float(np.sqrt(number_of_entries * np.var(elpd_i, ddof=1))) if looked > 1 else np.nan,
        p_loo=scores.p_loo * number_of_entries / looked,
        sampling_se=float(sampling_se),
        entries=number_of_entries,
        pointwise=pd.DataFrame({**named, "elpd": elpd_i, "pareto_k": scores.k_hat, "refitted": scores.refitted}),
        good_k=scores.good_k,
        model=entries.fit.model,
        method=entries.fit.method,
        notes=[*_notes_of_refits(scores), *_notes(entries.fit)],
    )


def _notes(fit: Fit) -> list[str]:
    return [GIVEN_TOTALS] * MODELS[fit.model].given_totals + [f"CAUTION {caution}" for caution in cautions_of(fit)]


def _notes_of_refits(scores: _Scores) -> list[str]:
    """Return what is said of fits without an entry each, if there are any."""
    fits = int(scores.refitted.sum())
    if not fits:
        return []
    told = f"{fits} with k-hat above {BAD_K:g} were left out by a fit each, and have the k-hat of its mean"
    beyond = f"CAUTION {scores.unsettled} of the {fits} fits without an entry did not converge; fit with more draws"
    return [told, *[beyond] * bool(scores.unsettled)]
