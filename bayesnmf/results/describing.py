"""A fit as text: what was fitted, how it ended, and cautions about its components."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesnmf.cards import CAUTION, Card
from bayesnmf.data.covariates.coding import Coding
from bayesnmf.data.labels import listed
from bayesnmf.data.several import coordinates_of
from bayesnmf.priors.pair import favoured, free_components
from bayesnmf.priors.specification import stated_components
from bayesnmf.priors.unknown import unknown_side
from bayesnmf.results.cautions import caution_of_rounding, cautions_of_model
from bayesnmf.results.intervals import SOME, fault_of_part, share_unmixed, told_of_intervals, unmixed
from bayesnmf.results.markers import leading_features
from bayesnmf.results.moved import moved_in_words, moved_of
from bayesnmf.results.record import FitRecord
from bayesnmf.text import folded

FEATURES, COMPONENTS = 6, 20  # shown in a card
SUMMARY = "fit.summary(rows=fit.row_names[:3])  # medians and intervals"
BOOTSTRAP = 'fit.with_intervals("bootstrap")  # the fit with intervals'
MARKERS = "bayesnmf.markers(fit)  # what sets each component apart"
CALLS = ("bayesnmf.plots.structure(fit)", 'bayesnmf.report(fit, "fit.html")')


def state_of(fit: FitRecord) -> str:
    """Return what has converged, or that it has not, with the reason: an optimum says nothing about intervals."""
    told = f"{fit.by.reached if fit.status.converged else 'not converged'}: {fit.status.reason}"
    if (found := unmixed(fit)) is None:
        return told
    return f"intervals not mixed in {share_unmixed(found)}, R-hat up to {found.r_hat:.2f}; estimates {told}"


def _is_in_doubt(fit: FitRecord) -> bool:
    """Return whether what is read off a fit may be wrong: it has not converged, or its intervals have not mixed."""
    found = unmixed(fit)
    return not fit.status.converged or (found is not None and found.share_above >= SOME)


def noise_in_words(fit: FitRecord) -> str:
    """Return the noise of a fit, after a comma; "" for Poisson noise."""
    several = coordinates_of(fit.counts)
    found = fit.noise.in_words(None if several is None else several[0])
    return f", {found}" if found else ""


def missing_in_words(fit: FitRecord) -> str:
    """Return the names of matrices, and the numbers of missing entries and of batches, after commas; "" without any."""
    several = coordinates_of(fit.counts)
    missing = "" if several is None else f" of {listed(list(map(str, several[0])))}"
    missing += "" if fit.counts.mask is None else f", {fit.counts.mask.number:,} entries missing"
    return missing + ("" if fit.batch is None else f", {len(fit.batch.names):,} batches")


def described(fit: FitRecord) -> str:
    """Return what `print` shows of a fit; cautions about convergence are in its status."""
    cautions = "".join(f"\ncaution: {each}" for each in _cautions(fit))
    lines = "\n  ".join([title_of(fit), *facts_of(fit)])
    return folded(f"<bayesnmf.Fit {lines}>{cautions}", "    ")


def _cautions(fit: FitRecord) -> list[str]:
    """Return cautions about what the status does not say."""
    return [*filter(None, [caution_of_rounding(fit)]), *cautions_of_model(fit)]


def card_of(fit: FitRecord) -> Card:
    """Return what a notebook shows of a fit: the same, with the size and the leading features of each component."""
    shares = fit.expected_sizes / max(fit.expected_sizes.sum(), np.finfo(float).tiny)
    names = fit.feature_names[leading_features(fit, FEATURES, "distinct")]
    order = np.argsort(-shares, kind="stable")[:COMPONENTS]
    lines = [[fit.component_titles[k], f"{shares[k]:.1%}", ", ".join(map(str, names[k]))] for k in order]
    notes = [f"the {len(order)} largest of {fit.rank} components"] if fit.rank > len(order) else []
    *first, state, intervals = facts_of(fit)
    notes += [*first, f"{CAUTION if _is_in_doubt(fit) else ''}{state}", intervals]
    notes += [f"{CAUTION}{each}" for each in _cautions(fit)]
    return Card(title_of(fit), ["component", "share of counts", "leading features"], lines, notes, _calls(fit))


def _calls(fit: FitRecord) -> list[str]:
    """Return what can be called next: points have no intervals to summarise, and one component has no markers."""
    point = fit.estimate.kind == "point" and fit.intervals is None
    first = [] if point and fault_of_part(fit) else [BOOTSTRAP if point else SUMMARY]
    return [*first, *([MARKERS] if fit.rank > 1 else []), *CALLS]


def title_of(fit: FitRecord) -> str:
    """Return what was fitted to what."""
    n, m = fit.counts.shape
    more = f"{missing_in_words(fit)}{noise_in_words(fit)}"
    more += "" if (unknown := unknown_side(fit.priors)) is None else f", {unknown.told}"
    return f"{fit.model} by {fit.method}, rank {fit.rank}, {n:,} rows × {m:,} features{more}"


def facts_of(fit: FitRecord) -> list[str]:
    """Return what was given beside the counts, if anything, the objective, the state, and what intervals are."""
    unit = fit.objective
    if fit.trace.ndim == 2:
        chains, draws = fit.trace.shape
        every = fit.diagnostics.get("kept_every", 1)
        kept = f", every {every:.0f}th kept" if every > 1 else ""
        made = f"{chains} chains × {draws} draws{kept}"
        if fit.by.resampled:
            made = f"{fit.trace.size} draws from {chains} run{'s' if chains > 1 else ''}"
        objective = f"{made}, mean {unit} {fit.trace.mean():,.1f}"
        if switches := fit.diagnostics.get("label_switches"):
            objective += f"; labels switched {switches:.0f} times within chains, undone by matching"
    else:
        after = f" after {fit.status.iterations} iterations" if fit.by.runner else ""
        objective = f"{unit} {fit.trace[-1]:,.3f}{after}"
    state = f"{state_of(fit)}; {fit.seconds:.2f} s" + (f", seed {fit.seed}" if fit.by.runner else "")
    return [*given_in_words(fit), objective, state, told_of_intervals(fit)]


def given_in_words(fit: FitRecord) -> list[str]:
    """Return a line with what loadings depend on, which components are known, and what seeds favour; [] of neither."""
    loadings: Any = fit.priors.loadings
    told = []
    if loadings.has_effects:
        coding = Coding.of_text(loadings.coding)
        told.append(f"loadings ~ {(coding.formula or ' + '.join(coding.columns)).strip().removeprefix('~').strip()}")
    components = stated_components(fit.priors.components)
    if known := fit.rank - len(free_components(components, fit.rank)):
        told.append(f"{known} of {fit.rank} components known")
    if (moved := moved_of(fit)) is not None:
        told.append(moved_in_words(moved))
    features = np.count_nonzero(favoured(components), axis=1)
    seeded = [f"{number} features of {fit.component_titles[k]}" for k, number in enumerate(features) if number]
    told += [f"seeds: {', '.join(seeded)}"] if seeded else []
    return ["; ".join(told)] if told else []
