"""Judge whether chains have mixed and run long enough, by rank-normalised R-hat and bulk effective sample size.

Vehtari, Gelman, Simpson, Carpenter & Bürkner 2021, *Rank-normalization, folding, and localization: an improved R-hat*.
The tests compare with ArviZ, which handles the entries one by one and takes five times as long as here, many at once.

Chains have run long enough where both settle; more draws do not help chains in different modes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from threading import Event
from typing import Any

import numba
import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtri

from bayesnmf.inference import alignment
from bayesnmf.inference.side_by_side import side_by_side
from bayesnmf.noise.abilities import DISPERSION
from bayesnmf.priors.log_linear import EFFECTS, SHAPES
from bayesnmf.results.estimates import Draws
from bayesnmf.results.record import effective_loadings
from bayesnmf.types import Array

R_HAT_LIMIT, ESS_LIMIT = 1.05, 100
SETTLED_R_HAT, SETTLED_SHARE, SETTLED_ESS = 1.01, 0.01, 400  # of chains that have run until they have mixed
FEWEST_DRAWS = 4  # smallest number of draws in half a chain that can be judged
JUDGED_ROWS = 50
BLOCK = 2**18  # draws that a thread processes at once, over all their entries
UNJUDGED = {
    "max_r_hat": np.inf,
    "min_ess": 0.0,
    "share_above": 1.0,
    "share_unsettled": 1.0,
    "r_hat_log_joint": np.inf,
    "ess_log_joint": 0.0,
}


def judged_parts(posterior: Draws, seed: int, statistics: Mapping[str, Array] | None = None) -> list[Array]:
    """Return the draws that `mixing` judges: all components, and the loadings, with their scale, of up to 50 rows.

    What is drawn beside both sides is judged too: dispersions, and effects of covariates.

    If there are more rows, `numpy.random.default_rng(seed).choice(n, 50, replace=False)` chooses 50, with the fit's
    seed.
    """
    rows = judged_rows(posterior.loadings.shape[2], seed)
    scale = [] if posterior.scale is None else [posterior.scale[:, :, rows]]
    return [posterior.components, posterior.loadings[:, :, rows], *scale, *drawn_beside(statistics)]


def drawn_beside(statistics: Mapping[str, Array] | None) -> list[Array]:
    """Return drawn dispersions and effects, (chains, draws, …), that are among the statistics of the draws."""
    return [statistics[name] for name in (DISPERSION, EFFECTS, SHAPES) if name in statistics] if statistics else []


def judged_rows(n: int, seed: int) -> Array:
    """Return the positions, among n rows, of the loadings to judge."""
    return np.random.default_rng(seed).choice(n, size=min(n, JUDGED_ROWS), replace=False)


def mixing(parts: Iterable[Array], log_joint: Array, threads: int | None = None) -> dict[str, float]:
    """Return diagnostics of chains from components, loadings and the log joint, which is invariant to relabelling.

    Parameters
    ----------
    parts : iterable of ndarray (chains, draws, …)
        Draws of components and loadings, matched to one order, and of dispersions; numbers of draws may differ.
    log_joint : ndarray (chains, draws)
        Log joint of each draw, in nats.
    threads : int or None
        Number of blocks of entries processed at once; None is one per Numba thread. It does not affect the result.

    Returns
    -------
    dict
        `max_r_hat` and `min_ess`, the worst of all entries and the log joint; `share_above`, the share of entries with
        R-hat above 1.05, and `share_unsettled`, above 1.01; `r_hat_log_joint` and `ess_log_joint`. Entries that never
        change are left out. If chains are too short to be judged, R-hat is infinite and the effective sample size 0.
    """
    given = (*parts, log_joint)
    if min(part.shape[1] for part in given) < 2 * FEWEST_DRAWS:
        return dict(UNJUDGED)
    return worst_figures([r_hat_and_ess(part, threads) for part in given])


def worst_figures(judged: Sequence[tuple[Array, Array]]) -> dict[str, float]:
    """Return the diagnostics of `mixing` from R-hat and effective sample sizes by part; the log joint is the last."""
    r_hats, effective = (np.concatenate([each.ravel() for each in side]) for side in zip(*judged, strict=True))
    if np.isnan(effective).any():  # chains too short; for constant entries it is the number of draws instead
        return dict(UNJUDGED)
    own, varying = (judged[-1][0].item(), judged[-1][1].item()), r_hats[:-1][~np.isnan(r_hats[:-1])]
    return {
        "max_r_hat": float(np.fmax.reduce(r_hats, initial=1.0)),
        "min_ess": float(np.fmin.reduce(effective)),
        "share_above": float(np.mean(varying > R_HAT_LIMIT)) if len(varying) else 0.0,
        "share_unsettled": float(np.mean(varying > SETTLED_R_HAT)) if len(varying) else 0.0,
        "r_hat_log_joint": 1.0 if np.isnan(own[0]) else own[0],  # NaN for a constant log joint
        "ess_log_joint": own[1],
    }


def mixing_verdict(diagnostics: dict[str, float]) -> tuple[bool, str]:
    """Return whether chains have mixed, by the diagnostics of `mixing`, and a text with the figures."""
    r_hat, ess, share = (diagnostics[name] for name in ("max_r_hat", "min_ess", "share_above"))
    above = f" (above {R_HAT_LIMIT} in {share:.1%} of the components and loadings)" if r_hat > R_HAT_LIMIT else ""
    return r_hat <= R_HAT_LIMIT and ess >= ESS_LIMIT, f"R-hat at most {r_hat:.3f}{above}, ESS at least {ess:.0f}"


def r_hat_and_ess(draws: Array, threads: int | None = None) -> tuple[Array, Array]:
    """Return R-hat and bulk effective sample size of draws (chains, draws, …), each of shape (…).

    The R-hat of a single chain compares its halves. Both are NaN if chains are too short. If all draws are equal, R-hat
    is NaN and the effective sample size is the number of draws. Ctrl-C is raised within a block of entries.
    """
    chains, length = draws.shape[:2]
    flat = draws.reshape(chains, length, -1)
    entries = flat.shape[2]
    r_hat, ess = np.full((2, entries), np.nan)
    size = max(BLOCK // (chains * length), 1)

    stop = Event()

    def judge(first: int) -> None:
        if not stop.is_set():
            block = flat[:, :, first : first + size]
            r_hat[first : first + size], ess[first : first + size] = r_hat_and_ess_of_block(np.moveaxis(block, 2, 0))

    if length >= FEWEST_DRAWS and entries:
        tasks = [partial(judge, first) for first in range(0, entries, size)]
        side_by_side(tasks, threads or numba.get_num_threads(), stop)
        if stop.is_set():
            raise KeyboardInterrupt
    return r_hat.reshape(draws.shape[2:]), ess.reshape(draws.shape[2:])


def r_hat_and_ess_of_block(draws: Array) -> tuple[Array, Array]:
    """Return R-hat and effective sample size of entries (entries, chains, draws)."""
    scores, folded = normal_scores(_halves_as_chains(draws))
    ess = _effective_sample_size(scores)
    if draws.shape[1] == 1:
        if draws.shape[2] < 2 * FEWEST_DRAWS:
            return np.full(len(draws), np.nan), ess
        half = draws.shape[2] // 2
        scores, folded = normal_scores(_halves_as_chains(draws[:, 0, : 2 * half].reshape(-1, 2, half)))
    bulk, tails = _r_hat(scores), _r_hat(folded)
    return np.where(tails > bulk, tails, bulk), ess  # tails may be NaN: two values are equally far from their median


def _halves_as_chains(draws: Array) -> Array:
    """Return the halves of chains (entries, chains, draws) as chains, without the middle one of an odd number."""
    half = draws.shape[2] // 2
    return np.concatenate([draws[:, :, :half], draws[:, :, -half:]], axis=1)


def normal_scores(draws: Array) -> tuple[Array, Array]:
    """Return normal quantiles of the ranks of draws, and of their distances from the median, per entry (entries, …).

    Sorted draws contain two sorted runs of distances, which are merged in linear time.
    """
    flat = draws.reshape(len(draws), -1)
    number = flat.shape[1]
    order = np.argsort(flat, axis=1)
    ordered = _take_by_row(flat, order)
    scores = _put_back_by_row(_quantiles(ordered), order)
    middle = (ordered[:, (number - 1) // 2] + ordered[:, number // 2]) / 2
    distances = np.abs(ordered - middle[:, None])
    inner = np.argsort(distances, axis=1, kind="stable")
    folded = _put_back_by_row(_quantiles(_take_by_row(distances, inner)), _take_by_row(order, inner))
    return scores.reshape(draws.shape), folded.reshape(draws.shape)


def _quantiles(ordered: Array) -> Array:
    """Return normal quantiles of the ranks of sorted values, row by row; ties share their average rank."""
    number = ordered.shape[1]
    by_rank = ndtri((np.arange(2 * number - 1) / 2 + 1 - 3 / 8) / (number + 1 / 4))  # half ranks too
    found = np.broadcast_to(by_rank[::2], ordered.shape)
    new = ordered[:, 1:] != ordered[:, :-1]
    tied = np.flatnonzero(~new.all(axis=1))
    if len(tied):
        found = found.copy()
        for row in tied:  # mostly the two draws next to the median, equally far from it
            starts = np.flatnonzero(np.concatenate([[True], new[row]]))
            sizes = np.diff(starts, append=number)
            shared = np.flatnonzero(sizes > 1)
            for start, size in zip(starts[shared], sizes[shared], strict=True):
                found[row, start : start + size] = by_rank[2 * start + size - 1]
    return found


def _take_by_row(values: Array, order: Array) -> Array:
    """Return every row of values in the order that the same row of `order` gives."""
    return np.stack([row.take(places) for row, places in zip(values, order, strict=True)])


def _put_back_by_row(values: Array, order: Array) -> Array:
    """Return every row of values in its original order: the inverse of `_take_by_row`."""
    found = np.empty(values.shape)
    for row, given, places in zip(found, values, order, strict=True):
        row[places] = given
    return found


def _r_hat(draws: Array) -> Array:
    """Return R-hat of entries (entries, chains, draws); NaN for entries that never change."""
    number = draws.shape[2]
    between = draws.mean(axis=2).var(axis=1, ddof=1)
    within = draws.var(axis=2, ddof=1).mean(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(np.ptp(draws, axis=(1, 2)) > 0, np.sqrt(between / within + (number - 1) / number), np.nan)


def _effective_sample_size(draws: Array) -> Array:
    """Return the effective sample size of entries (entries, chains, draws), by Geyer's initial monotone sequence."""
    entries, chains, number = draws.shape
    means = draws.mean(axis=2)
    covariance = _autocovariance(draws - means[:, :, None])
    within = covariance[:, :1] * (number / (number - 1))
    total = covariance[:, :1] + (means.var(axis=1, ddof=1)[:, None] if chains > 1 else 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = 1 - (within - covariance) / total
    correlation[:, 0] = 1.0
    most = max((number - 3) // 2, 0)  # number of pairs of lags after the first pair
    pairs = correlation[:, : 2 * most + 2].reshape(entries, most + 1, 2).sum(axis=2)
    ended = pairs <= 0
    last = np.where(ended.any(axis=1), ended.argmax(axis=1), most)
    before = np.arange(most + 1) < last[:, None]
    time = 2 * np.where(before, np.minimum.accumulate(pairs, axis=1), 0).sum(axis=1) - 1
    rows = np.arange(entries)
    odd_one = correlation[rows, 2 * last]
    time += np.where((odd_one > 0) | (pairs[rows, last] >= 0), odd_one, 0)
    size = chains * number
    found = size / np.maximum(time, 1 / np.log10(size))
    found[np.isnan(pairs).any(axis=1)] = np.nan
    return np.where(np.ptp(draws, axis=(1, 2)) > 0, found, float(size))


def _autocovariance(centred: Array) -> Array:
    """Return the autocovariance at every lag, averaged over chains, of (entries, chains, draws)."""
    number = centred.shape[2]
    length = next_fast_len(2 * number, real=True)
    power = (np.abs(rfft(centred, length, axis=2)) ** 2).mean(axis=1)
    return irfft(power, length, axis=1)[:, :number] / number


# Chains that have each mixed, by their own R-hat and effective sample size, and differ by this R-hat are in different
# modes: means of that many effective draws of one distribution differ by far less.
APART, TOGETHER, KNOWN = 1.5, 1.05, 50
DIFFERENT = "chains are in different modes"


def shares_of(fit: Any, posterior: Draws) -> Array:
    """Return the share of each component in the expected counts of every draw, (chains, draws, K)."""
    sizes = np.empty(posterior.components.shape[:3])
    for chain, (loadings, components) in enumerate(zip(posterior.loadings, posterior.components, strict=True)):
        scale = None if posterior.scale is None else posterior.scale[chain]
        sizes[chain] = effective_loadings(fit, loadings, scale, components).sum(axis=1)
        sizes[chain] *= fit.counts.exposed_components(components).sum(axis=2)
    return sizes / sizes.sum(axis=2, keepdims=True)


def whole_is_settled(shares: Array, log_joint: Array, threads: int | None) -> bool:
    """Return whether log joint and shares have settled, as `is_settled` asks; they take the least time to judge."""
    r_hat, ess = r_hat_and_ess(log_joint, threads)
    return bool(r_hat <= SETTLED_R_HAT and ess >= SETTLED_ESS) and ess_of_shares(shares, threads) >= SETTLED_ESS


def ess_of_shares(shares: Array, threads: int | None) -> float:
    """Return the smallest bulk effective sample size of the shares; 0 for chains too short."""
    return float(np.nan_to_num(r_hat_and_ess(shares, threads)[1]).min())


def figures_of(parts: list[Array], log_joint: Array, shares: Array, threads: int | None) -> dict[str, float]:
    """Return the diagnostics of `mixing`, and the smallest effective sample size of the shares."""
    found = mixing(parts, log_joint, threads)
    return {**found, "ess_shares": ess_of_shares(shares, threads)}


def is_settled(found: dict[str, float]) -> bool:
    """Return whether chains have run long enough: R-hat at most 1.01 in 99 % of the entries, and 1.05 in all.

    The log joint needs R-hat at most 1.01, and it and the shares an effective sample size of 400; entries need 100.
    """
    return (
        found["share_unsettled"] <= SETTLED_SHARE
        and found["r_hat_log_joint"] <= SETTLED_R_HAT
        and found["max_r_hat"] <= R_HAT_LIMIT
        and found["min_ess"] >= ESS_LIMIT
        and min(found["ess_log_joint"], found["ess_shares"]) >= SETTLED_ESS
    )


def in_words(found: dict[str, float]) -> str:
    """Return the figures that `is_settled` judges."""
    return (
        f"R-hat at most {found['max_r_hat']:.3f}, above {SETTLED_R_HAT} in {found['share_unsettled']:.1%} of the "
        f"components and loadings, {found['r_hat_log_joint']:.3f} of the log joint; ESS at least "
        f"{found['min_ess']:.0f}, {found['ess_log_joint']:.0f} of the log joint, at least {found['ess_shares']:.0f} "
        "of the shares"
    )


def difference_of_modes(components: Array, log_joint: Array) -> str:
    """Return a text if chains are in different modes, else "".

    A component is judged as a whole, by its cosine with the mean of the first chain's. Chains that have not yet mixed
    are not told apart: each needs an effective sample size of 50, and halves that agree.

    Parameters
    ----------
    components : ndarray (chains, draws, K, m)
        Components in matched order.
    log_joint : ndarray (chains, draws)
    """
    if len(components) < 2:
        return ""
    first = alignment.normalise_rows(components[0].mean(axis=0))
    cosines = np.einsum("cdkm,km->cdk", alignment.normalise_rows(components), first)
    judged = np.concatenate([cosines, log_joint[:, :, None]], axis=2)
    own = [r_hat_and_ess(chain[None], 1) for chain in judged]
    within, least = np.max([r_hat for r_hat, _ in own], axis=0), np.min([ess for _, ess in own], axis=0)
    between = r_hat_and_ess(judged, 1)[0]
    apart = (between >= APART) & (within <= TOGETHER) & (least >= KNOWN)
    if not apart.any():
        return ""
    worst = int(np.where(apart, between, 0.0).argmax())
    what = "the log joint" if worst == components.shape[2] else f"component {worst}"
    return (
        f"{DIFFERENT}: R-hat of {what} is {between[worst]:.2f} between chains and at most "
        f"{within[worst]:.2f} within one"
    )
