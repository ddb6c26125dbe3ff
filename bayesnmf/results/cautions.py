"""Cautions about a fit: no convergence, unmixed chains, idle components, structure, dispersion, rounding."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from bayesnmf.data.several import SeveralCounts, is_weighted, noise_for
from bayesnmf.inference.likelier_noise import likeliest_noise
from bayesnmf.inference.starts.exchanging import find_idle
from bayesnmf.inference.status import BROKEN, INTERRUPTED, ConvergenceWarning, FitWarning
from bayesnmf.noise.abilities import Dispersed, Noise
from bayesnmf.noise.poisson import POISSON
from bayesnmf.noise.words import NOISES
from bayesnmf.options import MAP
from bayesnmf.options.algorithms import ALGORITHMS
from bayesnmf.options.combinations import check_together
from bayesnmf.options.methods import allows_descent
from bayesnmf.options.rules import Request
from bayesnmf.priors.pair import free_components
from bayesnmf.priors.specification import stated_components
from bayesnmf.priors.unknown import unknown_side
from bayesnmf.priors.values import component_sums
from bayesnmf.results.dispersion import in_words, told_dispersion
from bayesnmf.results.mixing import DIFFERENT, ESS_LIMIT, R_HAT_LIMIT, judged_parts, mixing
from bayesnmf.results.record import FitRecord, kept_with_fit
from bayesnmf.results.relabelling import AMBIGUOUS_LIMIT
from bayesnmf.results.relatedness import relatedness
from bayesnmf.results.residuals import told_structure
from bayesnmf.types import Array

# What float32 rounds the objective by, in shares of all counts (1e-7 to 2e-6 for totals of 1e3 to 1e19), and the share
# of the objective from which on this is told.
ROUNDED, TOLD = 2e-6, 1e-4
FALLEN = 1e-5  # fall of an objective, over its size, from which on it is told
# Share of an even share of the counts below which a component is little used, unless it has so much of a sample; the
# share of a sample that is told.
LITTLE, MOST_OF_ROW, USED = 0.1, 0.2, 0.1
# Dispersion from which on it is told, if it is so many standard errors above 1.
DISPERSED, FAR = 1.2, 3.0
APART = 0.15  # modified RV below which two matrices share little


def cure_of(result: FitRecord) -> str:
    """Return advice on the options of a fit that has not converged."""
    options: Any = result.options
    if caution_of_rounding(result):  # more iterations reach no more digits
        return f"use dtype='float64' in bayesnmf.{type(options).__name__}(...)"
    by_kkt = hasattr(options, "kkt_tol")
    if by_kkt and result.status.iterations < options.max_iter:  # at rest, but not at an optimum
        counts = result.counts
        plain = counts.mask is not None or counts.batch is not None or not result.noise.of_poisson
        return cure_of_mode(options, plain)
    if getattr(options, "draws", None) == "auto":
        return _cure_of_chains(result.status.reason)
    change = result.by.cure
    if not result.by.runner:
        return change
    if by_kkt and not options.tol:  # only the KKT residual can end the fit
        change = change.replace("tol", "kkt_tol")
    return f"{change} in bayesnmf.{type(options).__name__}(...)"


def cure_of_mode(options: MAP, plain: bool = False) -> str:
    """Return advice, legal with these options and priors, for a mode that settled before it reached an optimum.

    Counts with missing entries, batches or negative binomial noise are fitted by EM alone (`plain`).
    """
    if options.algorithm == "em" and not plain and _allows_coordinate_descent(options):
        return "use algorithm='scd', extrapolate=True in bayesnmf.MAP(...)"
    rule = "kkt_tol" if options.tol == 0 else "tol"
    return f"use {'' if options.extrapolate else 'extrapolate=True or '}a lower {rule} in bayesnmf.MAP(...)"


def _allows_coordinate_descent(options: MAP) -> bool:
    """Return whether options and priors allow coordinate descent instead of EM."""
    legal = options.basis != "log" and options.schedule != "joint" and options.device == "cpu"
    return legal and allows_descent(options.priors)


def _cure_of_chains(reason: str) -> str:
    """Return advice for chains that ran until they had mixed, or should have."""
    if DIFFERENT in reason:
        return "try another rank, or compare the modes by bayesnmf.modes and give its best fit as start"
    return "raise budget, or give a number of draws, in bayesnmf.Gibbs(...)"


def warn_if_not_converged(result: FitRecord, stacklevel: int) -> None:
    """Issue a `ConvergenceWarning` with a cure, unless the fit has converged or was not asked to."""
    asked = (getattr(result.options, "tol", 1.0), getattr(result.options, "kkt_tol", 0.0))
    if result.status.converged or not (any(asked) or result.status.reason in BROKEN):
        return
    if result.status.reason == INTERRUPTED:
        more = ["start=fit"]
        more += [] if result.priors is result.options.priors else ["priors=fit.priors"]
        more += ["restarts=1"] if getattr(result.options, "restarts", 1) > 1 else []
        message = f"{result.method} was interrupted: this is its last state; continue with {', '.join(more)}"
    else:
        message = f"{result.method} did not converge ({result.status.reason}); {cure_of(result)}"
    warnings.warn(message, ConvergenceWarning, stacklevel=stacklevel)


def mixing_of(fit: FitRecord) -> dict[str, float]:
    """Return the diagnostics of mixing of a fit's chains; {} for a fit without chains.

    They are computed now for files of old versions, which lack them. Draws for new rows by `transform` are not chains.
    """
    if "r_hat_log_joint" not in fit.diagnostics:
        return {}
    if "max_r_hat" in fit.diagnostics:
        return fit.diagnostics
    return mixing(judged_parts(fit.estimate, fit.seed), fit.trace)  # type: ignore[arg-type]


def cautions_of(fit: FitRecord, r_hat: float | None = None, ess: float | None = None) -> list[str]:
    """Return cautions about a fit: no convergence, chains that disagree, divergences, ambiguous draws.

    Chains are judged by the components, the loadings of up to 50 rows and the log joint (`bayesnmf.results.mixing`),
    and by `r_hat` and `ess` of other parameters, if these are worse.
    """
    cautions, chains = [], fit.estimate.kind == "draws" and fit.trace.ndim == 2 and not fit.by.resampled
    if fit.status.reason == INTERRUPTED:
        cautions.append("was interrupted; its numbers describe the state at that point")
    elif fit.status.reason in BROKEN:
        cautions.append(f"cannot be used: {fit.status.reason}")
    elif not fit.status.converged and not chains:
        cautions.append(f"did not converge: {fit.status.reason}; {cure_of(fit)}")
    if chains:
        found = mixing_of(fit)
        r_hat = np.maximum(found.get("max_r_hat", 1.0), 1.0 if r_hat is None else r_hat)
        ess = np.minimum(found.get("min_ess", np.inf), np.inf if ess is None else ess)
        more = cure_of(fit) if getattr(fit.options, "draws", None) == "auto" else ""
        if not r_hat <= R_HAT_LIMIT:  # also if it is NaN, from too few draws
            cautions.append(f"R-hat {r_hat:.2f} > {R_HAT_LIMIT}; {more or fit.by.cure}")
        if not ess >= ESS_LIMIT:
            cautions.append(f"ESS {ess:.0f} < {ESS_LIMIT}; {more or fit.by.cure.replace('warmup and ', '')}")
        if more and not fit.status.converged and (not cautions or DIFFERENT in fit.status.reason):
            cautions.append(f"did not converge: {fit.status.reason}; {more}")
    cautions += [f"{fault}; {cure}" for fault, cure in faults_of_draws(fit)]
    return cautions + ([rounding] if (rounding := caution_of_rounding(fit)) else [])


def faults_of_draws(fit: FitRecord) -> list[tuple[str, str]]:
    """Return what is wrong with draws besides mixing, each with its cure.

    Label switching is harmless, since matching undoes it; only draws that cannot be matched are a fault.
    """
    found = []
    if (share := fit.diagnostics.get("ambiguous_draws", 0)) > AMBIGUOUS_LIMIT:
        found.append(
            (f"in {share:.0%} of the draws two components are too similar to be matched reliably", "lower rank")
        )
    if (divergences := fit.diagnostics.get("divergences", 0)) > 0:
        found.append((f"{divergences:.0f} divergences", "raise target_accept"))
    return found


def caution_of_rounding(fit: FitRecord) -> str:
    """Return a caution about an objective in float32 that rounding has reached; "" if it has not.

    Where counts determine their means to more digits than float32 has, the objective is small beside them. What falls
    although exact steps could only raise it shows rounding, too, of whatever noise, batches or exposures add.
    """
    if getattr(fit.options, "dtype", "float64") == "float64" or fit.estimate.kind == "draws" or not fit.trace.size:
        return ""
    size = abs(float(fit.trace.ravel()[-1]))
    expected, fallen = ROUNDED * fit.counts.total, _fall(fit)
    rounded = max(expected if expected > TOLD * size else 0.0, fallen if fallen > FALLEN * size else 0.0)
    if not rounded > 1.0:  # less than a nat decides nothing
        return ""
    return f"float32 rounds its objective by up to {rounded:.1g} nats, {rounded / size:.1g} of it; use dtype='float64'"


def _fall(fit: FitRecord) -> float:
    """Return the largest fall of an objective that exact steps only raise, in nats; 0 of one that may fall."""
    if fit.by.posterior == "draws" or fit.method == "svi" or fit.trace.ndim != 1:
        return 0.0
    if getattr(fit.options, "algorithm", None) == "minibatch" or not np.isfinite(fit.trace[1:]).all():
        return 0.0
    trace = fit.trace[np.isfinite(fit.trace)]
    return float(np.max(np.maximum.accumulate(trace) - trace, initial=0.0))


def cautions_of_model(fit: FitRecord) -> list[str]:
    """Return cautions about what the model leaves out, noise beyond Poisson, and has too much of, components."""
    return list(_told_of_model(fit))


@kept_with_fit
def _told_of_model(fit: FitRecord) -> tuple[str, ...]:
    if fit.status.reason in BROKEN:
        return ()
    more = caution_of_matrices(fit), caution_of_structure(fit), caution_of_noise(fit)
    return (*_cautions_of_components(fit), *filter(None, more))


def caution_of_structure(fit: FitRecord) -> str:
    """Return a caution about residuals that vary together, with a cure; "" if they do not.

    Of several matrices, `caution_of_matrices` says so of each.
    """
    if isinstance(fit.counts, SeveralCounts) or not (told := told_structure(fit)):
        return ""
    missing = f"{told}: the fit lacks a component, or has not found one"
    return missing if fit.is_of_matrix else f"{missing}; try rank={fit.rank + 1} or more"


def excess_of_noise(fit: FitRecord) -> str:
    """Return how much more the counts vary than the noise of the fit says; "" if they do not.

    Of many entries, about 2e7 are looked at. Means that have not converged say nothing of the counts, nor do new rows,
    or weighted counts of their noise.
    """
    says = fit.noise == POISSON and not (fit.is_projected or is_weighted(fit.counts))
    if fit.status.reason in BROKEN or not (says and fit.counts.total and fit.status.converged):
        return ""
    ratio, error = told_dispersion(fit)
    return f"{in_words(ratio, error)} would" if ratio > DISPERSED and ratio > 1 + FAR * error else ""


def caution_of_matrices(fit: FitRecord) -> str:
    """Return a caution about several matrices, whose rank is too small or that share little; "" if neither is so."""
    if fit.is_projected or not isinstance(fit.counts, SeveralCounts):
        return ""
    told = " and ".join(
        f"rows that are alike in {one!r} are hardly so in {two!r} (modified RV {value:.2f} of 1)"
        for (one, two), value in relatedness(fit.counts).items() if value < APART
    )  # fmt: skip
    if not (lacking := told_structure(fit)):
        little = "they share little, as fit.matrices() shows, and a fit of each alone says nearly as much"
        return f"{told}: {little}" if told else ""
    why = f"; {told}, so that the rank must come near the sum of those that each needs alone" if told else ""
    larger = f"bayesnmf.select(counts, {fit.model!r}, range({fit.rank + 1}, {2 * fit.rank + 1}))"
    return f"components are missing: {lacking}{why}; try rank={fit.rank + 1} or more, and compare ranks by {larger}"


def caution_of_noise(fit: FitRecord) -> str:
    """Return a caution about counts that vary more than the noise of the fit says, with a cure; "" if they do not.

    Of several matrices that lack components, `caution_of_matrices` says so, and noise is not the cure.
    """
    if not (excess := excess_of_noise(fit)) or (isinstance(fit.counts, SeveralCounts) and told_structure(fit)):
        return ""
    told = f"{excess}: components are missing, or intervals are too narrow"
    if fit.is_of_matrix:
        return told
    if noises := noises_for(fit):
        return f"{told}; {_named(noises, fit)} widens them"
    return f"{told}; try rank={fit.rank + 1} or more"


def noises_for(fit: FitRecord) -> list[str]:
    """Return the words of the noises beside Poisson's with which a fit can be made again, the best first."""
    return [word for word, noise in NOISES.items() if noise.cures_excess and _serves(fit, noise)]


def _serves(fit: FitRecord, noise: Noise) -> bool:
    """Return whether counts can be fitted with a noise by the method, priors and options of a fit."""
    options: Any = fit.options
    if not fit.by.runner or unknown_side(fit.priors):  # made elsewhere, where noises are others' business
        return False
    if "regression" in getattr(ALGORITHMS.get(getattr(options, "algorithm", "")), "needs", ()):
        options = replace(options, algorithm=None)  # a default that noise leaves for EM
    try:
        own = noise_for(noise, fit.counts)
        check_together(Request(fit.model, fit.method, fit.priors, options, own, fit.counts, fit.rank))
    except ValueError:
        return False
    return True


def _named(noises: list[str], fit: FitRecord) -> str:
    """Return noises by name; of several distributions of counts that under which those of a fit are likeliest."""
    able: list[Any] = [NOISES[word] for word in noises if isinstance(NOISES[word], Dispersed)]
    if len(able) < 2:
        return " or ".join(f"noise={word!r}" for word in noises)
    best = likeliest_noise(fit.counts, *fit.mean_factors, able)
    others = " and ".join(repr(each.word) for each in able if each is not best)
    rest = "".join(f" or noise={word!r}" for word in noises if NOISES[word] not in able)
    return f"noise={best.word!r} (likelier than {others} around these means){rest}"


def _cautions_of_components(fit: FitRecord) -> list[str]:
    """Return a caution about components that carry nothing of their own, or that hardly any sample has a part of."""
    if idle := caution_of_idle(fit):
        return [idle]
    if fit.is_projected:
        return [what] if (what := faint_components(fit)) else []
    return [f"{what}; a lower rank may do" for what in (faint_components(fit), little_used_components(fit)) if what]


def faint_components(fit: FitRecord) -> str:
    """Return which components explain less than one count of every sample; "" if none does."""
    most = fit.expected_loadings.max(axis=0, initial=0.0) * component_sums(fit.exposed_components)
    empty = [title for title, counts in zip(fit.component_titles, most, strict=True) if counts < 1]
    if not empty:
        return ""
    return f"{', '.join(empty)} {'explains' if len(empty) == 1 else 'explain'} less than one count of every sample"


def little_used_components(fit: FitRecord) -> str:
    """Return which components have little of the counts, and not much in any sample; "" if none has.

    That is less than a tenth of an even share of all counts, and less than a fifth of every sample: what is most of a
    few samples is small, too, but something of its own. Known components are as they were asked for.
    """
    sizes, told = fit.expected_sizes, []
    if not sizes.sum() > 0 or fit.rank == 1:
        return ""
    prior = stated_components(fit.priors.components)
    small = np.flatnonzero(sizes < LITTLE * sizes.sum() / fit.rank)
    sums, rows = component_sums(fit.exposed_components), fit.expected_loadings
    totals = rows @ sums
    for k in np.intersect1d(small, free_components(prior, fit.rank)):
        counts = rows[:, k] * sums[k]
        shares = np.divide(counts, totals, out=np.zeros_like(totals), where=totals > 0)
        if counts.max(initial=0.0) >= 1 and shares.max() < MOST_OF_ROW:  # below one count it is faint
            used = f"{np.count_nonzero(shares > USED):,} of {len(shares):,} samples"
            told.append(
                f"{fit.component_titles[k]} has {sizes[k] / sizes.sum():.2%} of the counts: over {USED:.0%} in {used}, "
                f"{shares.max():.0%} at most"
            )
    return "; ".join(told)


def idle_components(fit: FitRecord) -> Array:
    """Return the components of a fit that carry nothing of their own, in order.

    `bayesnmf.inference.starts.exchanging` says more. Those of a projection are given, so none is idle.
    """
    if fit.is_projected or not fit.counts.total:
        return np.empty(0, np.intp)
    return find_idle(fit.components, fit.expected_sizes, stated_components(fit.priors.components))


def caution_of_idle(fit: FitRecord) -> str:
    """Return a caution about components that carry nothing of their own; "" if there are none."""
    if not len(idle := idle_components(fit)):
        return ""
    listed = ", ".join(str(fit.component_labels[k]) for k in idle)
    carry = "carries nothing of its own" if len(idle) == 1 else "carry nothing of their own"
    return (
        f"{len(idle)} of {fit.rank} components {carry} ({listed}): fit rank {fit.rank - len(idle)}, or a sparser prior"
    )


def warn_of[F: FitRecord](fit: F, stacklevel: int) -> F:
    """Return a fit; warn if it has not converged, of rounding, or of components that carry nothing in a fit at rest."""
    warn_if_not_converged(fit, stacklevel + 1)
    if rounding := caution_of_rounding(fit):
        warnings.warn(rounding, FitWarning, stacklevel=stacklevel)
    if fit.status.converged and fit.estimate.kind != "draws" and (caution := caution_of_idle(fit)):
        warnings.warn(caution, FitWarning, stacklevel=stacklevel)
    return fit


def with_label(label: str, caution: str) -> str:
    """Return a caution with the label of its fit in front."""
    return f"{label} {caution}" if caution.startswith(("was ", "did ")) else f"{label}: {caution}"
