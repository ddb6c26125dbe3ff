"""`compare`: fit one model by several methods, align the components, and score held-out counts."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

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
from bayesnmf.data.checks import check_noise_to_compare
from bayesnmf.data.conversion import check_integer_counts
from bayesnmf.data.exposures import with_exposures
from bayesnmf.data.missing import with_missing, without_missing
from bayesnmf.data.seeds import Seeds
from bayesnmf.data.splitting import split_counts
from bayesnmf.fitting.checkpointing import keep_each_fit
from bayesnmf.fitting.fit import fit
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.intervals import with_own_posterior
from bayesnmf.fitting.job import ProgressReport, check_combination, progress_context, resolve_priors
from bayesnmf.fitting.known import given_of, with_given_names
from bayesnmf.fitting.many import uninterrupted
from bayesnmf.inference.status import INTERRUPTED, FitWarning
from bayesnmf.noise.abilities import Noise
from bayesnmf.options import METHODS, NUTS, VI, Gibbs, Options
from bayesnmf.options.checkpoint import Checkpoint, as_checkpoint
from bayesnmf.options.checks import check_options, check_options_by_method, served_options
from bayesnmf.options.methods import varied_start
from bayesnmf.places import check_folder
from bayesnmf.priors import Priors
from bayesnmf.priors.checks import check_length_of_dispersion, check_noise, check_one_prior_for_all_rows
from bayesnmf.priors.specification import EVEN, model_and_rank
from bayesnmf.results.record import LEARNED
from bayesnmf.results.thinning import thin_fit
from bayesnmf.studies.comparison.measures import (
    align,
    as_table,
    cautions_of_all,
    cautions_of_evidence,
    cautions_of_missing,
    measure_all,
)
from bayesnmf.studies.comparison.report import Comparison
from bayesnmf.types import MethodName, ModelName, NoiseName

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
    progress: ProgressReport | bool = False,
) -> Comparison:
    """Fit one model by several methods and compare the fits under the same conditions.

    Parameters
    ----------
    counts : array, SciPy sparse matrix, pandas DataFrame, AnnData, nested list, path or Blocks, (n, m)
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
    progress : bool or callable
        Progress report, as for `bayesnmf.fit`.

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
    noise = check_noise_to_compare(check_noise(noise))
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
        check_combination(model, method, rank, split.train, settings.of(method))
        served_options(settings.of(method), noise, method, split.train)
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
