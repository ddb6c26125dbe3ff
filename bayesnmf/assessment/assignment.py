"""Which of many known components does each sample need? Presence is part of the model, and is sampled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.sparse import csc_array, csr_array, vstack
from scipy.stats import trim_mean

import bayesnmf
from bayesnmf.cards import Card, Shown
from bayesnmf.checks import check_count, check_fraction, check_names, check_seed
from bayesnmf.data.batches import check_no_batches
from bayesnmf.data.blocks.opening import open_counts
from bayesnmf.data.checks import check_assignable, check_drift
from bayesnmf.data.counts import Counts
from bayesnmf.data.labels import is_missing, split_labels
from bayesnmf.data.missing import with_missing, without_missing
from bayesnmf.fitting.checkpointing import kept_in, seed_of
from bayesnmf.fitting.checks import check_known_components
from bayesnmf.fitting.fit import fit
from bayesnmf.fitting.job import ProgressReport, progress_context
from bayesnmf.fitting.known import catalogue_of, in_order_of
from bayesnmf.fitting.settings import describe_value, digest_of_counts
from bayesnmf.inference.alignment import match_components
from bayesnmf.inference.checkpoints.slots import keeping
from bayesnmf.inference.likelier_noise import likeliest_noise
from bayesnmf.inference.sampling.presence import (
    Catalogue,
    Drawn,
    draw_again,
    draw_chain,
    judge,
    mean_loadings,
    quantiles_of_stored,
)
from bayesnmf.kernels.cpu.pearson import pearson_sums
from bayesnmf.noise.abilities import Noise
from bayesnmf.noise.negative_binomial import NegativeBinomial
from bayesnmf.noise.poisson import POISSON
from bayesnmf.options import MAP
from bayesnmf.options.checkpoint import Checkpoint, as_checkpoint
from bayesnmf.priors.checks import check_noise
from bayesnmf.priors.specification import PARAMETER
from bayesnmf.results.dispersion import in_words
from bayesnmf.results.mixing import r_hat_and_ess
from bayesnmf.results.moved import caution_of_moved, moved_in_words, table_of_moved
from bayesnmf.results.storage import save
from bayesnmf.text import whole_names
from bayesnmf.types import Array, NoiseName

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 10


@dataclass(frozen=True, eq=False, repr=False)
class Assignment(Shown):
    """Which known components each sample has, and how much of each.

    Attributes
    ----------
    presence : ndarray (n, K)
        Chance that each component is present in each sample; NaN for a sample without counts.
    exposures : ndarray (n, K)
        Posterior means of the exposures, in counts; a draw in which a component is absent has 0, and so have samples
        without counts.
    low, high : ndarray (n, K)
        Interval of each exposure if the component is present; NaN where no draw has it.
    prevalence : DataFrame
        Row for each component: mean, low and high of the share of the samples with counts in which it is present.
    r_hat : ndarray (n, K)
        R-hat of presence over the chains; NaN for chances below 0.05 or above 0.95.
    row_names : ndarray (n,)
    component_names : ndarray (K,)
        Names of the catalogue, or numbers, and of extra components.
    feature_names : ndarray (m,)
    components : ndarray (K, m)
        Components, whose rows sum to 1, with the features in the order of the counts: known ones, and posterior means
        of those that were drawn, extra ones or known ones that move.
    spread : ndarray (K, m)
        Their posterior standard deviations, 0 for known ones that stay.
    dispersion : ndarray (draws,) or (draws, m)
        Draws of the dispersion of negative binomial noise, or of that of each feature; zeros for Poisson noise.
    interval : float
        Probability between low and high.
    draws : csc_array (draws, n K)
        Exposures drawn by all chains, 0 where a component is absent.
    noise : str
    judged : DataFrame
        Row for each sample: ``between_chains``, the largest difference between means of the log-likelihood over the
        draws of chains; ``below_refit``, how far the mode of the best draw's support lies below a pruned refit, in
        their log joint density, both in nats; and whether the sample is ``stuck``: above 5, or above 10 (`assign`).
    cautions : list of str
        Reasons to doubt the result.
    interrupted : bool
        Whether Ctrl-C ended it before all chains had ended.
    moved : DataFrame or None
        Row for each known component, with `drift=`: the cosine between it and its posterior mean, which `components`
        has, and the posterior mean of the strength of all.
    known : ndarray (K, m) or None
        These components as they were given, with rows that sum to 1.

    See Also
    --------
    assign : which makes it.
    load : reads what `save` wrote.
    plots.presence, plots.moved : draw it.

    Examples
    --------
    >>> import bayesnmf
    >>> known = [[0.8, 0.1, 0.1], [0.1, 0.2, 0.7]]
    >>> found = bayesnmf.assign([[30, 5, 4], [2, 4, 16]], known)
    >>> found.presence.shape, found.exposures.shape
    ((2, 2), (2, 2))
    """

    presence: Array
    exposures: Array
    low: Array
    high: Array
    prevalence: pd.DataFrame
    r_hat: Array
    row_names: Array
    component_names: Array
    feature_names: Array
    components: Array
    spread: Array
    dispersion: Array
    interval: float
    draws: csc_array
    noise: str
    judged: pd.DataFrame
    cautions: list[str]
    interrupted: bool
    moved: pd.DataFrame | None = None
    known: Array | None = None

    def save(self, path: str | Path) -> None:
        """Write the result to a NetCDF file (`.nc`) or a Zarr store (`.zarr`), which `bayesnmf.load` reads.

        An older file is replaced only once the new one is complete. It says what `Fit.save` says of paths.
        """
        save(self, path)

    def table(self, least: float = 0.05) -> pd.DataFrame:
        """Return a row for each sample and component whose chance of presence is at least `least`.

        Samples without counts have none.

        Columns: ``sample``, ``component``, ``chance`` of presence, ``exposure`` (mean, in counts), ``share`` of the
        sample, ``if_present`` (mean if it is present), ``low`` and ``high`` of its interval then, and ``r_hat``.
        """
        import pandas as pd

        rows, columns = np.nonzero(self.presence >= least)
        mean = self.exposures[rows, columns]
        totals = np.maximum(self.exposures.sum(axis=1), 1e-300)
        there = np.diff(self.draws.indptr).reshape(self.presence.shape)[rows, columns] / self.draws.shape[0]
        with np.errstate(invalid="ignore", divide="ignore"):
            if_present = mean / there
        return pd.DataFrame(
            {
                "sample": self.row_names[rows],
                "component": self.component_names[columns],
                "chance": self.presence[rows, columns],
                "exposure": mean,
                "share": mean / totals[rows],
                "if_present": if_present,
                "low": self.low[rows, columns],
                "high": self.high[rows, columns],
                "r_hat": self.r_hat[rows, columns],
            }
        )

    def feature_probabilities(self, sample: Any) -> pd.DataFrame:
        """Return the probability that a count of each feature of a sample comes from each component, features by K.

        It is the posterior mean of u_k β_kj / Σ_l u_l β_lj, with components that are drawn at their posterior means. It
        says nothing of features without counts, and is NaN for a sample without any.
        """
        import pandas as pd

        at = check_names([sample], self.row_names, "sample")
        row, rank = 0 if at is None else int(at[0]), len(self.components)
        found, drawn = (
            np.zeros(self.components.shape),
            self.draws[:, row * rank : (row + 1) * rank].toarray().astype(np.float64),
        )
        for u in drawn:
            parts = u[:, None] * self.components
            found += parts / np.maximum(parts.sum(axis=0), 1e-300)
        found[np.isnan(self.presence[row])] = np.nan
        return pd.DataFrame(found.T / len(drawn), index=self.feature_names, columns=self.component_names)

    def card(self) -> Card:
        """Return what is shown of it."""
        n, rank = self.presence.shape
        title = f"{n} samples, {rank} components, {self.noise} noise"
        order = np.argsort(-np.nansum(self.presence, axis=0), kind="stable")[:SHOWN]
        shares = self.exposures.sum(axis=0) / max(self.exposures.sum(), 1e-300)
        lines = [
            [str(self.component_names[k]), f"{(self.presence[:, k] > 0.5).sum()}",
             f"{self.prevalence['mean'].iloc[k]:.0%}", f"{shares[k]:.1%}"] for k in order
        ]  # fmt: skip
        notes = [f"the {len(order)} most frequent of {rank} components"] if rank > len(order) else []
        if silent := int(np.isnan(self.presence).all(axis=1).sum()):
            notes.append(f"nothing is said of {silent} sample{'s' if silent > 1 else ''} without counts")
        if self.moved is not None:
            notes.append(moved_in_words(self.moved))
        notes += [f"CAUTION {caution}" for caution in self.cautions]
        headings = ["component", "present in", "prevalence", "share of counts"]
        calls = ["found.table()  # chance, exposure and interval of each component in each sample"]
        return Card(title, headings, lines, notes, [*calls, "bayesnmf.plots.presence(found)"])


WARM_UP, WARM_UP_OF_MOVED = 60, 120  # rounds, and those in which known components move as well
ROUNDS = 30, 10  # of a chain without extra components: before, and kept
FAR = 1.5  # standard deviations from which counts above their means are looked at
LEAST = 1e-4  # of a feature at the beginning


def first_extra(counts: Counts, known: Array, number: int, noise: Noise, seed: int) -> Array:
    """Return components (number, m) of the counts that known components explain least, which rows sum to 1.

    They are those of a fit by EM to what counts are above the means of a short chain, in entries far above them.
    """
    if not number:
        return known[:0]
    catalogue, rng = Catalogue(known, known[:0]), np.random.default_rng([seed, 0, 0])
    drawn = draw_chain(counts, catalogue, noise, ROUNDS, rng, lambda _: None)
    if not drawn.whole:
        raise KeyboardInterrupt
    means = np.asarray(drawn.loadings.mean(axis=0)).reshape(len(counts.row_totals), -1) @ known
    spread = drawn.dispersions.mean(axis=0)
    above = np.maximum(counts.dense - means, 0.0)
    above[above < FAR * np.sqrt(means * (1.0 + spread * (means if noise.has_entry_rates else 1.0)))] = 0.0
    if counts.mask is not None:
        above[counts.mask.missing.toarray() > 0] = 0.0
    found = fit(np.ceil(above), rank=number, method="map", seed=seed, options=MAP(max_iter=500)).components + LEAST
    return np.asarray(found / found.sum(axis=1, keepdims=True))


def aligned(chains: list[Drawn], number: int) -> list[Drawn]:
    """Return the chains with the last components in the order of the first chain, matched by cosines of their means."""
    if not number:
        return chains
    first = chains[0].extra[:, -number:].mean(axis=0)
    found = chains[:1]
    for each in chains[1:]:
        order, drawn = match_components(each.extra[:, -number:].mean(axis=0), first), each.extra.shape[1]
        n, rank = each.presence.shape
        columns = np.concatenate([np.arange(rank - number), rank - number + order])
        loadings = csr_array(each.loadings[:, (np.arange(n)[:, None] * rank + columns).ravel()])
        found.append(
            each._replace(
                loadings=loadings,
                presence=each.presence[:, columns],
                prevalence=each.prevalence[:, columns],
                extra=each.extra[:, np.concatenate([np.arange(drawn - number), drawn - number + order])],
            )
        )
    return found


DOUBTFUL = 0.05  # chances from here to 1 less it are judged by R-hat
R_HAT, MANY = 1.2, 0.1  # R-hat that is high, and the share of the doubtful chances above it that is cautioned of
BETWEEN, BELOW = 5.0, 10.0  # nats between chains, and below a refit, from which on a row is stuck
NAMED = 5  # stuck rows, or components, that a caution names
FEW, COMMON, SMALL = (
    10,
    0.9,
    0.05,
)  # samples; share of them with a component, and its share of their counts, of a caution
SPREAD, SURE = 1.2, 3.0  # Pearson's χ² over its degrees of freedom, and standard errors above 1, of too much variation
POOLED = 0.1  # expected counts below which entries are pooled
TRIMMED = 0.25  # share of the rows, on either side, that say nothing of the variation of all
ABLE = (NegativeBinomial("linear"), NegativeBinomial("quadratic"))  # noises that are advised


def assign(
    counts: Any,
    catalogue: Any,
    *,
    extra: int = 0,
    drift: float | Literal["learned"] | None = "learned",
    noise: NoiseName | Noise = "poisson",
    missing: Any = None,
    chains: int = 2,
    draws: int = 100,
    warmup: int | None = None,
    interval: float = 0.9,
    seed: int | None = 0,
    checkpoint: str | Path | Checkpoint | None = None,
    progress: ProgressReport | bool | None = None,
) -> Assignment:
    """Find which of many known components each sample has, and how much of each.

    A component is present in a sample or not: its exposure is 0, or has a Gamma prior whose rate belongs to the sample,
    so that shares are Dirichlet. How often each is present, the shape and the dispersion are learned from all samples.
    All is sampled (`bayesnmf.kernels.cpu.presence`) by chains that are compared; Ctrl-C returns those that ended,
    or what the first one has kept.

    The first chain begins at a refit of each sample, the others with random shares of all components and more noise;
    with `extra` or `drift`, all begin at the refit, as what extra components are begun from would be lost in the noise,
    and from far away a component that nobody has may take what all samples share before others have moved there.
    A sample is *stuck* if its log-likelihood, averaged over the draws of a chain, differs by more than 5 nats between
    chains (between the halves of a single one), or if the support of the best draw has a mode of the log density, of
    counts, presence and the logarithms of exposures, more than 10 nats below that of a refit by EM, pruned backwards by
    the same density. Then its exposures are drawn once more, with five times as many moves; if it is stuck even so, a
    caution names it. `Assignment.judged` has both differences.

    Parameters
    ----------
    counts : array, SciPy sparse matrix, DataFrame, AnnData, path or Counts, (n, m)
        Whole numbers with samples in rows.
    catalogue : array, DataFrame (K, m), Fit or path
        Known components. Features with names are matched by name; a file may be as COSMIC offers it.
    extra : int
        Number of components to look for that the catalogue lacks; they are drawn with everything else.
    drift : "learned" or float, optional
        Lets each known component move towards what all samples show, with a Dirichlet prior around it that weighs as
        many counts as this number, at least 1, or as many as are learned, at least 1,000. Spectra of real samples
        differ from any sum of known ones in a way that samples share, which else passes for components that nobody
        has. With None or infinity they stay. `Assignment.moved` says how far each has moved.
    noise : {"poisson", "nb1", "nb2"} or NegativeBinomial
        Noise of the counts; mutations mostly vary as "nb2" says (docs/noise.md). One dispersion for all entries, or
        one for each feature, as ``NegativeBinomial("quadratic", "feature")`` says.
    missing : array or sparse matrix of booleans (n, m), "nan" or "zeros", optional
        Entries where nobody counted, as for `bayesnmf.fit`.
    chains : int
        Number of chains.
    draws : int
        Number of rounds of each chain that are kept; a round has 8 moves of all loadings of a row.
    warmup : int, optional
        Number of rounds of each chain before them: 120, or 60 without `drift`.
    interval : float
        Probability of the intervals.
    seed : int, optional
        Seed of the chains, as for `bayesnmf.fit`.
    checkpoint : str, path or Checkpoint, optional
        Folder that keeps the chains: the same call goes on after a crash to the same numbers (docs/checkpoints.md).
    progress : bool or callable, optional
        Progress report, as for `bayesnmf.fit`.

    Returns
    -------
    Assignment

    Raises
    ------
    TypeError, ValueError
        Invalid counts or components; a noise or counts that cannot be sampled; a checkpoint of another call.

    See Also
    --------
    Assignment.save, load : keep it in a file.
    bayesnmf.fit : With `fixed_components` it estimates exposures of components that are all present.

    Examples
    --------
    >>> import bayesnmf
    >>> known = [[0.9, 0.1, 0.0], [0.0, 0.2, 0.8], [0.1, 0.8, 0.1]]
    >>> found = bayesnmf.assign([[90, 10, 0], [40, 20, 35]], known)
    >>> found.presence[:, :2].round()
    array([[1., 0.],
           [1., 1.]])
    """
    kept = as_checkpoint(checkpoint)
    noise, seed = check_noise(noise), seed_of(check_seed(seed), kept)
    drift = check_drift(drift)
    warmup = (WARM_UP if drift is None else WARM_UP_OF_MOVED) if warmup is None else check_count(warmup, "warmup")
    chains, draws = check_count(chains, "chains"), check_count(draws, "draws")
    extra, interval = check_count(extra, "extra", minimum=0), check_fraction(interval, "interval")
    given = catalogue_of(catalogue)
    with progress_context(progress) as report:
        counts, own = without_missing(counts, missing)
        data = check_no_batches(open_counts(counts, "float64", told=report, missing=missing), "assign")
        data = with_missing(data, own, None, missing)
        known = check_known_components(in_order_of(data, given, "catalogue"), data.shape[1], PARAMETER, "catalogue")
        known = np.ascontiguousarray(known / known.sum(axis=1, keepdims=True))
        check_assignable(data, known, noise)
        rngs = [np.random.default_rng([seed, number]) for number in range(chains)]
        asked = {"extra": extra, "drift": str(drift), "chains": chains, "draws": draws, "warmup": warmup, "seed": seed}
        with _kept(kept, data, known, noise, asked):
            begun = first_extra(data, known, extra, noise, seed)
            whole = Catalogue(known, begun, drift is not None, None if isinstance(drift, str) else drift)
            found = aligned(_drawn(data, whole, noise, (warmup, draws), rngs, report), extra)
            found, judged = _judged(found, data, whole, noise, rngs, report)
    return _gathered(found, judged, data, whole, split_labels(given).rows, noise, interval, chains)


@contextmanager
def _kept(
    checkpoint: Checkpoint | None, data: Counts, known: Array, noise: Noise, asked: dict[str, Any]
) -> Iterator[None]:
    """Keep the chains that run inside the block in the folder of a checkpoint; refuse that of another call."""
    if checkpoint is None:
        yield
        return
    settings = {"counts": digest_of_counts(data), "catalogue": describe_value(known), "noise": noise.in_full()}
    settings |= {name: str(value) for name, value in asked.items()}
    with kept_in(checkpoint, {**settings, "bayesnmf": bayesnmf.__version__}) as keeper, keeping(keeper):
        yield


def _drawn(
    data: Counts, catalogue: Catalogue, noise: Noise, rounds: tuple[int, int], rngs: list[Any], report: Any
) -> list[Drawn]:
    """Return the draws of a chain for each generator; after Ctrl-C those of whole chains, or else of a part of one."""
    found, each = list[Drawn](), sum(rounds)
    for number, rng in enumerate(rngs):

        def tell(done: int, before: int = number * each) -> None:
            report("rounds", before + done + 1, len(rngs) * each, np.nan)

        try:
            far = number and not (len(catalogue.extra) or catalogue.moves)
            start: Literal["all", "refit"] = "all" if far else "refit"
            drawn = draw_chain(data, catalogue, noise, rounds, rng, tell, start)
        except KeyboardInterrupt:
            if not found:
                raise
            break
        if drawn.whole or not found:
            found.append(drawn)
        if not drawn.whole:
            break
    return found


def _judged(
    found: list[Drawn], data: Counts, catalogue: Catalogue, noise: Noise, rngs: list[Any], report: Any
) -> tuple[list[Drawn], pd.DataFrame]:
    """Return chains in which stuck rows were drawn again with more moves, and how each row is judged then."""
    import pandas as pd

    def tell(done: int, rounds: int) -> None:
        report("rounds of stuck rows", done, rounds, np.nan)

    for drawn_again in (False, True):
        between, below = judge(data, catalogue, noise, found)
        stuck = (between > BETWEEN) | (below > BELOW)
        if drawn_again or not stuck.any():
            break
        try:
            rows = np.flatnonzero(stuck)
            pairs = zip(found, rngs[: len(found)], strict=True)
            found = [draw_again(data, catalogue, noise, chain, rows, rng, tell) for chain, rng in pairs]
        except KeyboardInterrupt:
            break
    return found, pd.DataFrame({"between_chains": between, "below_refit": below, "stuck": stuck}, index=data.row_names)


def _names_of_all(given: Iterable[Any], extra: int) -> Array:
    """Return the names of the catalogue and of extra components, which differ from each other.

    Missing names, and numbers that repeat, as of frames one below the other, become the numbers of components.
    """
    own = list(given)
    times = Counter(map(str, own))
    own = [f"component {k}" if is_missing(each) or times[str(each)] > 1 else each for k, each in enumerate(own)]
    new = (name for number in count(1) if (name := f"extra {number}") not in times)
    return whole_names([*own, *islice(new, extra)])


def _gathered(
    found: list[Drawn],
    judged: pd.DataFrame,
    data: Counts,
    catalogue: Catalogue,
    names: Array | None,
    noise: Noise,
    interval: float,
    chains: int,
) -> Assignment:
    """Return the result of the draws of all chains, or of those that ended before Ctrl-C."""
    import pandas as pd

    new, fixed = np.concatenate([each.extra for each in found]), catalogue.fixed
    names = _names_of_all(range(len(catalogue.known)) if names is None else names, len(catalogue.extra))
    spread = np.vstack([np.zeros_like(fixed), new.std(axis=0)])
    known = np.vstack([fixed, new.mean(axis=0)])
    own = slice(len(catalogue.known))
    strength = float(np.concatenate([each.strength for each in found]).mean())
    moved = table_of_moved(catalogue.known, known[own], names[own], strength) if catalogue.moves else None
    drawn = csc_array(vstack([each.loadings for each in found], format="csc"))
    presence = np.mean([each.presence for each in found], axis=0)
    exposures = mean_loadings(data, noise, known, found)
    levels = (0.5 - interval / 2, 0.5 + interval / 2)
    low, high = (each.reshape(presence.shape) for each in quantiles_of_stored(drawn, levels))
    shares = _shares_of_samples(drawn, presence.shape, data.row_totals > 0)
    ends = dict(zip(("low", "high"), np.quantile(shares, levels, axis=0), strict=True))
    prevalence = pd.DataFrame({"mean": shares.mean(axis=0), **ends}, index=names)
    r_hat = _r_hat_of(presence, [each.loadings for each in found])
    dispersion = np.concatenate([each.dispersions for each in found])
    dispersion = dispersion if noise.by_feature else dispersion[:, 0]
    cautions = _cautions(r_hat, judged, data.row_names)
    far = caution_of_moved(moved, np.nansum(presence[:, own] > 0.5, axis=0) > 0)
    cautions += [far] * bool(far)
    cautions += _cautions_of_common(presence, exposures, names, data.row_totals > 0)
    if noise == POISSON:
        cautions += _noise_caution(data, exposures, known, presence, judged["stuck"].to_numpy())
    ended = sum(each.whole for each in found)
    interrupted = ended < chains
    part = "" if ended else f"; these are the first {drawn.shape[0]} draws of one"
    cautions += [f"interrupted: {ended} of {chains} chains ended{part}"] * interrupted
    return Assignment(
        presence, exposures, low, high, prevalence, r_hat, data.row_names, names, data.feature_names, known, spread,
        dispersion, interval, drawn, noise.word, judged, cautions, interrupted, moved,
        catalogue.known if catalogue.moves else None,
    )  # fmt: skip


def _shares_of_samples(drawn: csc_array, size: tuple[int, int], counted: Array) -> Array:
    """Return the share of the samples with counts in which each component is present, in each draw, (draws, K)."""
    present, rank = drawn.tocoo(), size[1]
    places = present.row * rank + present.col % rank
    number = np.bincount(places[present.data > 0], minlength=drawn.shape[0] * rank)
    return np.asarray(number.reshape(-1, rank) / max(int(counted.sum()), 1))


def _r_hat_of(presence: Array, chains: list[csr_array]) -> Array:
    """Return R-hat of presence where it is in doubt, (n, K); infinite where each chain keeps to its own answer."""
    found = np.full(presence.size, np.nan)
    doubtful = np.flatnonzero((presence > DOUBTFUL) & (presence < 1 - DOUBTFUL))
    if len(doubtful):
        there = np.stack([(each[:, doubtful].toarray() > 0).astype(np.float64) for each in chains])
        kept = np.all(there == there[:, :1], axis=(0, 1)) & np.any(there[:, 0] != there[0, 0], axis=0)
        found[doubtful] = np.where(kept, np.inf, r_hat_and_ess(there)[0])
    return found.reshape(presence.shape)


def _cautions(r_hat: Array, judged: pd.DataFrame, rows: Array) -> list[str]:
    found = []
    known = r_hat[~np.isnan(r_hat)]
    if len(known) and (share := np.mean(known > R_HAT)) > MANY:
        found.append(
            f"chains differ in {share:.0%} of the doubtful chances (R-hat above {R_HAT}); raise draws and warmup"
        )
    stuck = rows[judged["stuck"].to_numpy()]
    if len(stuck):
        named = ", ".join(str(each) for each in stuck[:NAMED]) + ", …" * (len(stuck) > NAMED)
        found.append(
            f"{len(stuck)} of {len(rows)} samples are stuck ({named}): chains differ, or a refit explains their counts "
            "better; found.judged says by how much; raise draws and warmup, and trust none of their exposures"
        )
    return found


def _cautions_of_common(presence: Array, exposures: Array, names: Array, counted: Array) -> list[str]:
    """Return which components nearly all samples have a little of: what all spectra share may pass for them."""
    if counted.sum() < FEW:
        return []
    common = (presence[counted] > 0.5).mean(axis=0)
    shares = exposures.sum(axis=0) / max(exposures.sum(), 1e-300)
    told = [k for k in np.argsort(shares, kind="stable") if common[k] >= COMMON and shares[k] < SMALL]
    if not told:
        return []
    listed = ", ".join(
        f"{names[k]} ({common[k]:.0%} of the samples, {shares[k]:.1%} of the counts)" for k in told[:NAMED]
    )
    return [
        f"nearly all samples have a little of {listed}: what their spectra share beside the catalogue may pass for it; "
        "leave it out, and see whether the others take it up"
    ]


def _noise_caution(counts: Counts, exposures: Array, known: Array, presence: Array, stuck: Array) -> list[str]:
    """Return a caution about counts that vary more than Poisson counts in rows that are not stuck.

    Of each row it is Pearson's χ² over the degrees of freedom that the components it has leave; the mean of the middle
    half of the rows is judged, so that a few rows that lack a component decide nothing.
    """
    hidden = None if counts.mask is None else counts.mask.hidden
    squares, _, entries = pearson_sums(counts.matrix, exposures, known, POOLED, hidden, by_column=False)[0].T
    free = entries - np.nan_to_num(presence).sum(axis=1)
    good = np.flatnonzero((free >= 1) & ~stuck & (counts.row_totals > 0))
    if not len(good):
        return []
    ratios, weight = squares[good] / free[good], 1 - 2 * TRIMMED
    ratio = float(trim_mean(ratios, TRIMMED))
    low, high = np.quantile(ratios, (TRIMMED, 1 - TRIMMED))
    error = np.clip(ratios, low, high).std() / weight / np.sqrt(len(good))
    error = max(error, np.sqrt(2 / free[good].sum()))
    if ratio <= SPREAD or ratio <= 1 + SURE * error:
        return []
    noise = likeliest_noise(counts.rows(good), exposures[good], known, ABLE)
    return [
        f"{in_words(ratio, error)} would: exposures are too sure, and some are of noise; use "
        f"bayesnmf.assign(counts, catalogue, noise={noise.word!r})"
    ]
