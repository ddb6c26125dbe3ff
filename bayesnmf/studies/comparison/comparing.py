"""`compare`: fit one model by several methods, align the components, score held-out counts, and say what was found."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bayesnmf.cards import CAUTION, Card, Shown
from bayesnmf.checks import (
    check_choice,
    check_count,
    check_flag,
    check_fraction,
    check_instance,
    check_nonnegative,
    check_words,
)
from bayesnmf.data.blocks.opening import open_counts
from bayesnmf.data.conversion import check_integer_counts
from bayesnmf.data.exposures import with_exposures
from bayesnmf.data.missing import with_missing, without_missing
from bayesnmf.data.seeds import Seeds
from bayesnmf.data.splitting import Split, split_counts, undivided
from bayesnmf.fitting.checkpointing import keep_each_fit
from bayesnmf.fitting.fit import fit
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.intervals import with_own_posterior
from bayesnmf.fitting.job import ProgressReport, check_combination, progress_context, resolve_priors
from bayesnmf.fitting.known import given_of, with_given_names
from bayesnmf.fitting.many import uninterrupted
from bayesnmf.inference.status import INTERRUPTED, FitWarning
from bayesnmf.needs import needed_for
from bayesnmf.noise.abilities import Noise, distribution_of
from bayesnmf.noise.poisson import POISSON
from bayesnmf.options import METHODS, NUTS, VI, Gibbs, Options, methods_with
from bayesnmf.options.checkpoint import Checkpoint, as_checkpoint
from bayesnmf.options.checks import check_options, check_options_by_method
from bayesnmf.options.methods import varied_start
from bayesnmf.options.rules import Request
from bayesnmf.places import check_folder
from bayesnmf.priors import Priors
from bayesnmf.priors.checks import check_length_of_dispersion, check_noise, check_one_prior_for_all_rows
from bayesnmf.priors.specification import EVEN, model_and_rank
from bayesnmf.results.checks import check_are_of_counts, check_comparable, check_only_fits
from bayesnmf.results.draws import chains_and_draws, draws_size, is_resampled
from bayesnmf.results.mixing import ESS_LIMIT, R_HAT_LIMIT
from bayesnmf.results.record import LEARNED
from bayesnmf.results.thinning import STORED_BYTES, components_table, draws_within, loadings_table, thin_fit
from bayesnmf.studies.comparison.measures import (
    MEASURES,
    align,
    as_table,
    cautions_of_all,
    cautions_of_evidence,
    cautions_of_missing,
    measure_all,
    reference_of,
)
from bayesnmf.text import or_dash
from bayesnmf.types import MethodName, ModelName, NoiseName
from bayesnmf.writing import write_text

if TYPE_CHECKING:
    import pandas as pd

SAME, NARROW, WIDE = 0.95, 0.85, 0.95  # a cosine of the same component; shares held by an interval of 90 %
HELD_OUT = {"thinned": "held-out counts", "withheld": "new samples"}
OPENINGS = ("of ", "the ", "not ", "other ")  # of sentences that do not begin with the name of a method
SURE = 2  # standard errors by which a method must be behind the best


def finding(table: pd.DataFrame, reference: str) -> list[str]:
    """Return what the table says: of components, of intervals, and of predictions, at most a sentence each."""
    others = table.drop(index=reference)
    told = (
        (_components(others, reference), _starts(table)),
        (_intervals(others, reference), _chains(table)),
        [_predictions(table, kind, what) for kind, what in HELD_OUT.items()],
    )
    joined = [f"{'; '.join(filter(None, parts))}." for parts in told if any(parts)]
    return [each[0].upper() + each[1:] if each.startswith(OPENINGS) else each for each in joined]


def _components(others: pd.DataFrame, reference: str) -> str:
    """Return which methods have found the components of the reference."""
    worst = _column(others, "cosine_min")
    if not len(worst):
        return ""
    same, apart = worst[worst >= SAME], worst[worst < SAME]
    found = ""
    if len(same):
        found = f"{_listed(same)} found the components of {reference} (cosine at least {_cosine(same.min())})"
    least = ", ".join(f"{_cosine(value)} for {name}" for name, value in apart.items())
    lost = f"{_listed(apart)} did not find all components of {reference} (least cosine {least})" if len(apart) else ""
    return "; ".join(filter(None, (found, lost)))


def _intervals(others: pd.DataFrame, reference: str) -> str:
    """Return the share of the draws of the reference inside the intervals of each other method."""
    held, widened = _column(others, "held"), _column(others, "held_response")
    parts = []
    for name, share in held.items():
        verdict = "too narrow" if share < NARROW else "too wide" if share > WIDE else "about right"
        more = f", {widened.loc[str(name)]:.0%} by linear response" if name in widened else ""
        parts.append(f"those of {name} hold {share:.0%}{more} ({verdict})")
    if not parts:
        return ""
    return f"of the draws of {reference}, 90 % intervals should hold 90 %: {', '.join(parts)}"


def _chains(table: pd.DataFrame) -> str:
    """Return whether the chains have mixed."""
    r_hats, sizes = _column(table, "max_r_hat"), _column(table, "min_ess")
    if not len(r_hats):
        return ""
    figures = f"R-hat at most {r_hats.max():.3f}, effective sample size at least {sizes.min():.0f}"
    if r_hats.max() <= R_HAT_LIMIT and sizes.min() >= ESS_LIMIT:
        return f"the chains of {_listed(r_hats)} have mixed ({figures})"
    return f"not all chains have mixed ({figures}), so that what is said of their intervals is provisional"


def _predictions(table: pd.DataFrame, kind: str, what: str) -> str:
    """Return which method predicts held-out counts best, and whether others are as good as far as can be told."""
    behind = _column(table, f"heldout_{kind}_behind").sort_values(kind="stable")
    if len(behind) < 2:
        return ""
    best: Any = behind.index[0]
    se: Any = table[f"heldout_{kind}_behind_se"]
    worse = behind.iloc[1:] > SURE * se[behind.index[1:]]
    alike, worse = behind.iloc[1:][~worse], behind.iloc[1:][worse]
    parts = [f"{_listed(alike)} as good within two standard errors"] if len(alike) else []
    parts += [f"{name} behind by {value:.2g} ± {se[name]:.2g} nats a count" for name, value in worse.items()]
    return f"{best} predicts {what} best ({', '.join(parts)})"


def _starts(table: pd.DataFrame) -> str:
    """Return whether other starts have led to other components."""
    starts = _column(table, "cosine_other_start")
    if not len(starts):
        return ""
    if starts.min() >= SAME:
        return f"other starts led to the same components (cosine at least {_cosine(starts.min())})"
    return (
        f"other starts led to other components (cosine down to {_cosine(starts.min())}), so all this is about one of "
        "several factorisations, which bayesnmf.modes counts"
    )


def _column(table: pd.DataFrame, name: str) -> pd.Series:
    """Return the known values of a measure."""
    import pandas as pd

    found: pd.Series = table[name] if name in table else pd.Series(dtype=float)
    return found[np.isfinite(found.astype(float))]


def _cosine(value: float) -> str:
    """Return a cosine rounded down, so that one below a limit is never shown as the limit."""
    return f"{np.floor(1000 * value) / 1000:.3f}"


def _listed(values: pd.Series) -> str:
    names = [str(name) for name in values.index]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


SHOWN_ROWS = 4
NOTE = "posterior around one mode; chains started from the fit"
NOTE_OF_PARTICLES = "draws of independent runs from the prior, resampled by their estimates of p(X)"
UNKNOWN = "unknown"
TREE, TABLE, REPORT, PAGE = "compare.nc", "table.csv", "report.txt", "report.html"
FIGURES = ("components", "objectives", "agreement", "loadings_intervals")


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Shown):
    """Fits of one model by several methods, and their measures.

    Attributes
    ----------
    fits : dict of str to Fit
        Fits by method, with components in the order of the reference: the first posterior fit, else the first fit.
    table : DataFrame
        One row for each method; `bayesnmf.studies.comparison.measures.MEASURES` explains the columns.
    split : Split
        Training counts and held-out counts.
    cautions : list of str
        Reasons to doubt the numbers.
    draws : {"thinned", "all"}
        Draws that `save` writes, as in `Settings`.
    """

    fits: dict[str, Fit]
    table: pd.DataFrame
    split: Split
    cautions: list[str]
    draws: Literal["thinned", "all"] = "thinned"

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C stopped a method, or prevented one or the runs from other starts."""
        return any("interrupted" in caution for caution in self.cautions)

    def save(self, out: str | Path, image_shape: tuple[int, int] | None = None) -> list[Path]:
        """Write `compare.nc`, `table.csv` and the figures into a folder; return their paths."""
        return write(self, Path(out), image_shape)

    def card(self) -> Card:
        """Return what was found, and the measures that say so: a column for each method."""
        found = finding(self.table, reference := reference_of(self.fits))
        shown = f"in nats; last rows: against {reference}; found.details(), or --verbose, shows more"
        calls = [
            "print(found.details())  # all measures, and how they were made",
            "bayesnmf.plots.components(found.fits)",
        ]
        more = [shown, *(f"{CAUTION}{each}" for each in self.cautions)]
        return Card(self._title(), ["", *self.fits], measured(self, SHORT), more, calls, found)

    def details(self) -> str:
        """Return all measures as text: what was found, a row for each measure, and how it was made."""
        headings, found = ["", *self.fits], finding(self.table, reference_of(self.fits))
        return Card(self._title(), headings, measured(self), notes(self), findings=found).as_text()

    def _title(self) -> str:
        first, (n, m), seen = next(iter(self.fits.values())), self.split.train.shape, self.split.seen
        noise = "" if first.noise == POISSON else f", noise {first.noise.word}"
        aside = "" if seen is None else f", and {seen.shape[0]:,} samples set aside"
        return f"{first.model}, rank {first.rank}{noise}: {n:,} samples × {m:,} features{aside}"


SHORT = (
    "seconds", "log_evidence", "log_evidence_at_least", "heldout_withheld", "cosine_min", "held", "cosine_other_start",
)  # fmt: skip


def measured(comparison: Comparison, chosen: Collection[str] = tuple(MEASURES)) -> list[list[str]]:
    """Return the rows of the table as text: the heading of a measure, and its value for each method."""
    fits, table, rows = comparison.fits, comparison.table, []
    for name, column in MEASURES.items():
        if name in table and name in chosen:
            entries = [or_dash(value, column.form) for value in table.loc[list(fits), name]]
            if name == "log_evidence":
                pairs = zip(entries, fits.values(), strict=True)
                entries = [UNKNOWN if text == "–" and is_resampled(fit) else text for text, fit in pairs]
            rows.append([column.heading, *entries])
    return rows


def notes(comparison: Comparison) -> list[str]:
    """Return the notes that are needed to read all measures."""
    split = comparison.split
    chains = [name for name, fitted in comparison.fits.items() if _is_chains(fitted) and fitted.by.runner]
    lines = [f"in nats; held-out given row totals; reference of the last rows: {reference_of(comparison.fits)}"]
    lines += [f"{' and '.join(chains)}: {NOTE}"] if chains else []
    lines += [f"{name}: {NOTE_OF_PARTICLES}" for name, fitted in comparison.fits.items() if is_resampled(fitted)]
    if split.keep == 1:
        lines.append("fits as they were given, of all counts: none are held out")
    else:
        lines.append(
            f"{split.train.total:,.0f} counts trained on, {split.thinned.total:,.0f} thinned (each kept with "
            f"probability {split.keep:g})"
        )
    if split.seen is not None and split.withheld is not None:
        lines.append(
            f"{split.seen.shape[0]} new samples: {split.seen.total:,.0f} counts seen, "
            f"{split.withheld.total:,.0f} predicted"
        )
    return [*lines, *(f"{CAUTION}{caution}" for caution in comparison.cautions)]


def file_names() -> list[str]:
    """Return the names of all files that `write` may write, so that they can be checked before the fits."""
    factors = [f"{side}_{method}.csv" for method in METHODS for side in ("loadings", "components")]
    return [
        TREE,
        TABLE,
        REPORT,
        PAGE,
        *factors,
        *(f"{name}.png" for name in (*FIGURES, *(f"chains_{name}" for name in methods_with("draws")))),
    ]


def _is_chains(fitted: Fit) -> bool:
    return fitted.by.posterior == "draws" and not is_resampled(fitted)


def write(comparison: Comparison, out: Path, image_shape: tuple[int, int] | None) -> list[Path]:
    """Write `compare.nc` (`.zarr` above 1 GiB), tables, `report.txt` and the figures; return their paths."""
    from bayesnmf.results.storage import path_by_size, write_tree

    out.mkdir(parents=True, exist_ok=True)
    tree = to_datatree(comparison)
    written = [path_by_size(tree.nbytes, out / TREE), out / TABLE, out / REPORT]
    write_text(written[1], comparison.table.to_csv())  # small files first, in case there is no room for all
    write_text(written[2], comparison.details() + "\n")
    written += write_factors(comparison, out)
    write_tree(tree, written[0])
    return written + figures(comparison, out, image_shape)


def to_datatree(comparison: Comparison) -> Any:
    """Return one tree with the table and a branch for each method; draws are thinned unless all are requested."""
    with needed_for("a tree of all fits"):
        import xarray as xr

    branches = {}
    for name, fitted in comparison.fits.items():
        stored = fitted if comparison.draws == "all" else thin_fit(fitted)  # keeps the statistics of all draws
        number = None if fitted.by.posterior != "mean field" else min(draws_within(fitted, STORED_BYTES) // 4 or 1, 250)
        size = draws_size(stored, chains_and_draws(stored, None, number), stored.counts.shape)
        branches[name] = stored.to_datatree(number, limit=max(size, STORED_BYTES))
        if branches[name]["observed_data"].nbytes > STORED_BYTES // 2:  # the files of the fits contain the counts
            del branches[name]["observed_data"]
    table = comparison.table.reset_index().to_xarray().set_coords("method").swap_dims(index="method").drop_vars("index")
    return xr.DataTree.from_dict({"comparison": table, **branches})


def write_factors(comparison: Comparison, out: Path) -> list[Path]:
    """Write `loadings_METHOD.csv` and `components_METHOD.csv` of every method; return their paths."""
    written = []
    for name, fitted in comparison.fits.items():
        for side, table in (("loadings", loadings_table(fitted)), ("components", components_table(fitted))):
            written.append(out / f"{side}_{name}.csv")
            write_text(written[-1], table.to_csv(float_format="%.8g"))
    return written


def figures(comparison: Comparison, out: Path, image_shape: tuple[int, int] | None) -> list[Path]:
    """Write the figures; return their paths."""
    from bayesnmf.plots.style import save_figure

    paths = []
    for name, draw in figures_of(comparison, image_shape).items():
        paths.append(out / f"{name}.png")
        save_figure(draw(), paths[-1])
    return paths


def figures_of(comparison: Comparison, image_shape: tuple[int, int] | None) -> dict[str, Callable[[], Any]]:
    """Return functions that draw components, objectives, agreement, intervals of loadings, and chains, by name."""
    with needed_for("a figure"):
        from bayesnmf import plots

    fits = comparison.fits
    with_posterior = {name: fitted for name, fitted in fits.items() if fitted.estimate.kind != "point"}
    totals = comparison.split.train.row_totals
    rows = comparison.split.train.row_names[np.argsort(-totals, kind="stable")[:SHOWN_ROWS]]
    reference = reference_of(fits)  # the same as in the table
    drawn: dict[str, Callable[[], Any]] = {
        "components": lambda: plots.components(fits, image_shape=image_shape, reference=reference)
    }
    if not all(fitted.by.posterior == "draws" for fitted in fits.values()):
        drawn["objectives"] = lambda: plots.objectives(fits)
    if len(fits) > 1:
        drawn["agreement"] = lambda: plots.agreement(fits)
    if with_posterior:
        among = reference_of(with_posterior)
        drawn["loadings_intervals"] = lambda: plots.loadings_intervals(with_posterior, rows, reference=among)
    for name, fitted in fits.items():
        if _is_chains(fitted):
            drawn[f"chains_{name}"] = lambda name=name: plots.chains(fits[name])  # type: ignore[misc]
    return drawn


# Enough for R-hat ≤ 1.05 and ESS ≥ 100 on the default data; dispersed runs only show where other starts lead.
DEFAULTS: dict[str, Options] = {
    "vi": VI(restarts=5), "gibbs": Gibbs(chains=4, warmup=500, draws=300, thin=10),
    "nuts": NUTS(chains=2, warmup=300, draws=1000),
}  # fmt: skip
RANK = 8
DISPERSED: dict[str, dict[str, Any]] = {
    "gibbs": {"chains": 1, "warmup": 500, "draws": 100, "thin": 1}, "nuts": {"chains": 1, "warmup": 75, "draws": 25},
    "smc": {"runs": 2}, "svi": {"max_iter": 1000},
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Settings:
    """Held-out fractions, and priors and options of the methods.

    Attributes
    ----------
    priors : Priors
        Priors of every method.
    keep : float
        Probability with which a count is in the training counts; the others are predicted.
    withhold : float
        Fraction of samples that are set aside as a whole.
    options : mapping of str to options, optional
        Options of single methods; `priors` replaces their priors.
    dispersed : bool
        Whether to run every method from a random start too, to see if it finds the same components.
    draws : {"thinned", "all"}
        Draws of gibbs, nuts and smc to write to files: by default a few, at most 2.5 MB for each method, together with
        the standard deviations and, of chains, R-hat and effective sample sizes of all draws (`Fit.moments`). The
        returned fits have all.

    See Also
    --------
    compare : takes it.

    Examples
    --------
    >>> import bayesnmf
    >>> bayesnmf.Settings(keep=0.9, options={"gibbs": bayesnmf.Gibbs(draws=500)}).keep
    0.9
    """

    priors: Priors = Priors()  # noqa: RUF009  frozen
    keep: float = 0.8
    withhold: float = 0.1
    options: Mapping[str, Options] | None = None
    dispersed: bool = True
    draws: Literal["thinned", "all"] = "thinned"

    def __post_init__(self) -> None:
        check_instance(self.priors, Priors, "priors")
        check_choice(self.draws, "draws", ("thinned", "all"))
        check_fraction(self.keep, "keep")
        if check_nonnegative(self.withhold, "withhold"):
            check_fraction(self.withhold, "withhold")
        check_flag(self.dispersed, "dispersed")
        check_options_by_method(self.options)
        for method, options in (self.options or {}).items():
            check_choice(method, "options", METHODS)
            check_options(options, method, METHODS[method].options)

    def of(self, method: str) -> Options:
        """Return the options of a method."""
        chosen = (self.options or {}).get(method) or DEFAULTS.get(method) or METHODS[method].options()
        return with_own_posterior(replace(chosen, priors=self.priors))


def compare(
    counts: Any,
    model: ModelName | int = "gamma_poisson",
    rank: int | None = None,
    methods: Sequence[MethodName] = ("map", "vi", "gibbs", "nuts"),
    *,
    seeds: Mapping[str, Sequence[Any]] | Seeds | str | Path | None = None,
    noise: NoiseName | Noise = "poisson",
    seed: int = 0,
    settings: Settings | None = None,
    observed: Any = None,
    missing: Any = None,
    row_exposure: Any = None,
    feature_exposure: Any = None,
    out: str | Path | None = None,
    checkpoint: str | Path | Checkpoint | None = None,
    progress: ProgressReport | bool | None = None,
    fits: Mapping[str, Fit] | None = None,
) -> Comparison:
    """Fit one model by several methods and compare the fits under the same conditions.

    Parameters
    ----------
    counts : array, SciPy sparse matrix, pandas DataFrame, AnnData, nested list, path, paths or Blocks, (n, m)
        Whole-number counts, which are thinned binomially.
    model : str
        Name of the model, as for `bayesnmf.fit`; a whole number here is the rank.
    rank : int, 8 by default
        Number of components, K.
    methods : sequence of {"map", "vi", "svi", "gibbs", "nuts", "smc", "bld"}
        With "smc", the table has the log evidence of the training counts; if its runs disagree, only a lower limit.
    seeds : mapping of names to lists of features, Seeds or path of a .gmt file, optional
        Features that the first components are to have, as for `bayesnmf.fit`.
    noise : {"poisson", "nb1", "nb2"} or NegativeBinomial
        Noise of every fit; bld needs Poisson noise, and smc linear variance. A known dispersion is that of
        `counts`; thinned counts of linear variance have `keep` times as much. Held-out scores are those of the means.
    seed : int
        Seed of the split and of every fit.
    settings : Settings, optional
        Priors, held-out fractions, and options of single methods.
    observed : booleans (n, m), optional
        Where somebody counted, as for `bayesnmf.fit`.
    missing : booleans (n, m), "nan" or "zeros", optional
        Where nobody counted, as for `bayesnmf.fit`.
    row_exposure : array, mapping or Series (n,), optional
        Multiplies the expected counts of each sample, as for `bayesnmf.fit`.
    feature_exposure : array, mapping or Series (m,), optional
        Multiplies the expected counts of each feature, as for `bayesnmf.fit`.
    out : path, optional
        Folder in which each fit is saved as soon as it is done (`fits/METHOD.nc`, or `.zarr` above 1 GiB). A folder
        that cannot be written to is refused before the first fit; later failures to save are reported as cautions.
    checkpoint : str, path or Checkpoint, optional
        Folder that keeps every fit: the same call goes on, and skips fits that had ended.
    progress : bool or callable, optional
        Progress report, as for `bayesnmf.fit`.
    fits : mapping of labels to fits, optional
        Fits of these counts to compare as they are, as ``{"vi": fit, "theirs": bayesnmf.from_draws(...)}``, in place
        of fits by `methods`; no counts are held out.

    Returns
    -------
    Comparison
        The comparison; after Ctrl-C, of the finished methods and of what the running method has done so far.

    See Also
    --------
    Settings : priors and options of the methods.
    posterior_agreement : posteriors of given fits.
    report : writes a comparison as a page.

    Examples
    --------
    >>> import bayesnmf
    >>> counts = bayesnmf.simulate(size=(40, 12), rank=2, seed=0).counts
    >>> found = bayesnmf.compare(counts, rank=2, methods=("map", "vi"))
    >>> list(found.fits)
    ['map', 'vi']
    """
    if fits is not None:
        check_only_fits(
            model=model == "gamma_poisson", rank=rank is None, methods=methods == ("map", "vi", "gibbs", "nuts"),
            seeds=seeds is None, noise=noise == "poisson", settings=settings is None, observed=observed is None,
            missing=missing is None, row_exposure=row_exposure is None, feature_exposure=feature_exposure is None,
            out=out is None, checkpoint=checkpoint is None,
        )  # fmt: skip
        return compare_fits(counts, fits, check_count(seed, "seed", minimum=0), progress)
    noise = distribution_of(check_noise(noise), "comparisons")
    methods = [check_choice(method, "methods", METHODS) for method in check_words(methods, "methods")]
    model, rank = model_and_rank(model, rank, RANK)
    seed, (rank, given) = check_count(seed, "seed", minimum=0), given_of(rank, None, seeds)
    settings = Settings() if settings is None else settings
    check_instance(settings, Settings, "settings")
    counts, own = without_missing(counts, missing)
    data = with_exposures(open_counts(counts, "float64", missing=missing), row_exposure, feature_exposure)
    data = with_missing(data, own, observed, missing)
    check_integer_counts(data, "compare, which thins them", "round them")
    check_length_of_dispersion(noise, data.shape)
    split = split_counts(data, settings.keep, settings.withhold, np.random.default_rng(seed))
    settings = replace(settings, priors=resolve_priors(model, split.train, rank, settings.priors, given, EVEN))
    if settings.withhold:
        check_one_prior_for_all_rows(settings.priors.loadings)
    noise = noise.of_rows(split.rows).thinned(settings.keep)
    for method in methods:  # before the first fit, not after hours of fits
        options = settings.of(method)
        check_combination(Request(model, method, options.priors, options, noise, split.train, rank))
    folder = None if out is None else check_folder(out, "out", [f"fits/{method}.nc" for method in methods])
    with progress_context(progress) as report, warnings.catch_warnings(), keep_each_fit(as_checkpoint(checkpoint)):
        warnings.simplefilter("ignore", FitWarning)  # reported as cautions instead
        fit_by = partial(_named_fit, given.names, split.train, model, rank, noise=noise, progress=report)
        found, unsaved = _fit_all(fit_by, settings, methods, seed, folder)
        fits = align(found)
        remarked: Any = partial(fit_by, progress=lambda label, *more: report(f"{label}, other start", *more))
        others = _from_other_starts(remarked, settings, fits, seed + 1) if _all_done(fits, methods) else {}
        rows, unscored = measure_all(fits, others, split, seed, report)
    of_one_model = {name: row for name, row in rows.items() if LEARNED not in fits[name].diagnostics}
    cautions = cautions_of_all(fits, rows) + cautions_of_evidence(of_one_model)  # bounds hold a learned dispersion
    cautions += cautions_of_missing(methods, fits, others if settings.dispersed else fits)
    cautions += unscored + unsaved
    return Comparison(fits, as_table(rows), split, cautions, settings.draws)


def compare_fits(counts: Any, fits: Mapping[str, Fit], seed: int, progress: ProgressReport | bool | None) -> Comparison:
    """Compare fits of these counts as they are, without held-out counts."""
    check_comparable(fits)
    first = next(iter(fits.values())).counts
    check_are_of_counts(first, open_counts(counts, "float64"))
    split = undivided(first)
    with progress_context(progress) as report, warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        found = align(fits)
        measured, unscored = measure_all(found, {}, split, seed, report)
    return Comparison(found, as_table(measured), split, cautions_of_all(found, measured) + unscored)


def _named_fit(names: Sequence[str | None], *of: Any, **settings: Any) -> Fit:
    """Return a fit whose priors favour seeds, with the names of these."""
    return with_given_names(fit(*of, **settings), names)


def _all_done(fits: Mapping[str, Fit], methods: Sequence[str]) -> bool:
    return len(fits) == len(methods) and all(done.status.reason != INTERRUPTED for done in fits.values())


def _fit_all(
    fit_by: Callable[..., Fit], settings: Settings, methods: Sequence[str], seed: int, out: Path | None
) -> tuple[dict[str, Fit], list[str]]:
    """Fit by every method until one is interrupted; save each fit at once, or list it with the reason if that fails."""
    from bayesnmf.results.storage import save_by_size

    fits, unsaved = dict[str, Fit](), list[str]()
    for method in methods:
        options: Any = settings.of(method)
        if "vi" in fits and getattr(options, "start", None) == "fit":  # that of the table
            options = replace(options, start=fits["vi"])
        try:
            fits[method] = fit_by(method, seed=seed, options=options)
        except KeyboardInterrupt:  # before the method had a result
            if not fits:
                raise
            break
        if out is not None:
            try:
                kept = fits[method] if settings.draws == "all" else thin_fit(fits[method])
                save_by_size(kept, out / "fits" / f"{method}.nc")
            except (OSError, ImportError) as error:
                unsaved.append(f"the fit by {method} could not be saved: {error}")
        if fits[method].status.reason == INTERRUPTED:
            break
    return fits, unsaved


def _from_other_starts(
    fit_by: Callable[..., Fit], settings: Settings, fits: Mapping[str, Fit], seed: int
) -> dict[str, Fit]:
    """Fit by every method again from another random start, until interrupted; MCMC, SMC and SVI with short runs."""
    others = dict[str, Fit]()
    for method in fits if settings.dispersed else ():
        options: Any = settings.of(method)
        start = {"start": varied_start(options)} if hasattr(options, "start") else {}  # smc draws from the prior
        short = start | DISPERSED.get(method, {})
        try:
            others[method] = uninterrupted(fit_by(method, seed=seed, options=replace(options, **short)))
        except KeyboardInterrupt:
            break
    return others
