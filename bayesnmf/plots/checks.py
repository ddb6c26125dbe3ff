"""Checks of the arguments of figures; every message names the argument, the rule and the cure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from inspect import Signature
from typing import Any

import numpy as np

from bayesnmf.assessment.assignment import Assignment
from bayesnmf.assessment.linear_response import LinearResponse
from bayesnmf.assessment.matching import Match
from bayesnmf.checks import check_choice, check_count, check_method, shown
from bayesnmf.data.checks import same_counts
from bayesnmf.data.mutations import read_types
from bayesnmf.fitting.fitted import Fit
from bayesnmf.options import METHODS, methods_with
from bayesnmf.priors.checks import same_priors
from bayesnmf.results.checks import found_in
from bayesnmf.results.draws import is_resampled
from bayesnmf.results.moved import known_and_moved
from bayesnmf.studies.calibration import Calibration


def check_fits(fits: Any) -> Mapping[str, Fit]:
    """Return the mapping of labels to fits; label a single fit by its method."""
    return _by_label(fits, Fit, "fits", "fit", "put several fits in a dict")


def check_calibrations(results: Any) -> Mapping[str, Calibration]:
    """Return calibrations by label; label a single one by its method."""
    return _by_label(results, Calibration, "results", "calibration", "make one with bayesnmf.calibrate")


def _by_label(given: Any, kind: type, name: str, one: str, cure: str) -> Mapping[str, Any]:
    if isinstance(given, kind):
        return {given.method: given}  # type: ignore[attr-defined]
    if not isinstance(given, Mapping) or not all(isinstance(each, kind) for each in given.values()):
        told = f"{name} must be a {one}, or map labels to {one}s as in {{'vi': {one}}}"
        raise TypeError(f"{told}: found {found_in(given)}; {cure}")
    if not given:
        raise ValueError(f"{name} must not be empty; give at least one {one}, as in {{'vi': {one}}}")
    return given


def check_fits_and_responses(fits: Any) -> tuple[dict[str, Fit], dict[str, Any]]:
    """Return fits by label, and the linear responses among them, which give other quantiles."""
    fits = {"vi": fits} if isinstance(fits, LinearResponse) else fits
    given = fits if isinstance(fits, Mapping) else check_fits(fits)
    responses = {label: each for label, each in given.items() if isinstance(each, LinearResponse)}
    return dict(check_fits({**given, **{label: each.fit for label, each in responses.items()}})), responses


def check_matchable(fits: Mapping[str, Fit]) -> None:
    """Refuse fits whose components cannot be matched one to one, and a single fit."""
    if isinstance(fits, Fit):
        raise TypeError("fits must map labels to fits, as in {'map': one, 'vi': other}: found a single fit")
    fits = check_fits(fits)
    first = next(iter(fits.values()))
    for label, fit in fits.items():
        if fit.components.shape != first.components.shape:
            raise ValueError(
                "fits must have the same rank and features, else their components do not match: "
                f"{label!r} has components of shape {fit.components.shape}, the first {first.components.shape}; "
                "fit with one rank"
            )
        if not np.array_equal(fit.feature_names, first.feature_names):
            raise ValueError(f"fits must have the same features in the same order: those of {label!r} differ")


def check_same_unit(proportions: Mapping[str, bool]) -> None:
    """Refuse to draw proportions and counts on the same axis."""
    if len(set(proportions.values())) > 1:
        mixed = ", ".join(f"{label!r}: {'proportions' if p else 'counts'}" for label, p in proportions.items())
        raise ValueError(f"fits must have loadings in one unit: found {mixed}; draw one figure for each unit")


def check_image_shape(shape: Any, features: int) -> tuple[int, int]:
    """Return the height and width of images that have one pixel for each feature."""
    if len(shape) != 2 or shape[0] * shape[1] != features:
        raise ValueError(f"image_shape must be (height, width) with {features} pixels: found {shape}")
    return int(shape[0]), int(shape[1])


def check_arguments(name: str, taken: Signature, arguments: Sequence[Any], settings: Mapping[str, Any]) -> None:
    """Refuse arguments that a figure does not take, and what is no size of a figure."""
    try:
        taken.bind(*arguments, **settings)
    except TypeError as error:
        raise TypeError(f"plots.{name}: {error}; print(bayesnmf.plots.{name}.__doc__) has all arguments") from None
    size = settings.get("figsize")
    if size is not None and (np.shape(size) != (2,) or not np.all(np.asarray(size) > 0)):
        raise ValueError(f"figsize must be width and height in inches, as in figsize=(9, 4): found {shown(size)}")


def check_axes(found: int, needed: int) -> None:
    """Refuse a number of axes that differs from the number of panels."""
    if found != needed:
        raise ValueError(f"axes must be {needed} axes, one for each panel: found {found}; or leave axes out")


def check_has_chains(fit: Fit) -> None:
    """Refuse fits without chains."""
    if is_resampled(fit):
        raise ValueError(
            f"plots.chains needs chains: found draws by {fit.method!r}, which are resampled particles in no order; see "
            "fit.status for how far its runs agree, or draw the posterior with plots.loadings_intervals"
        )
    if fit.by.posterior != "draws":
        able = tuple(name for name in methods_with("draws") if not METHODS[name].resampled)
        check_method(fit.method, able, "plots.chains")


def check_any_objective(found: int, methods: Iterable[str]) -> None:
    """Refuse to draw objectives if no fit has one."""
    if not found:
        listed = ", ".join(map(repr, methods))
        noisy = "" if "svi" in methods else ", those by 'svi' with plots.objectives(fit)"
        raise ValueError(
            f"fits must have at least one by {listed}, which climb an objective: found none; "
            f"draw fits by 'gibbs' and 'nuts' with bayesnmf.plots.chains(fit){noisy}"
        )


def check_one_problem(fits: Mapping[str, Fit]) -> None:
    """Refuse objectives that are not comparable because of different counts, ranks or priors."""
    label, first = next(iter(fits.items()))
    for other, fit in fits.items():
        alike = (same_counts(fit.counts, first.counts), fit.rank == first.rank, same_priors(fit.priors, first.priors))
        apart = [name for name, same in zip(("counts", "rank", "priors"), alike, strict=True) if not same]
        if apart:
            raise ValueError(
                "fits with one kind of objective must have the same counts, rank and priors, to compare them with one "
                f"best: {other!r} and {label!r} differ in {', '.join(apart)}; draw one figure for each, or "
                "plots.objectives"
            )


def check_best(best: Any, highest: Mapping[str, float], slack: float) -> None:
    """Refuse a best objective below one that a fit has reached, or one for several kinds of objective."""
    if isinstance(best, bool) or not isinstance(best, (int, float, np.number)) or not np.isfinite(best):
        raise TypeError(f"best must be a finite number, in nats: found {best!r}")
    if len(highest) > 1:
        raise ValueError(
            f"best must belong to one kind of objective, but fits have {len(highest)}; draw one figure for each kind"
        )
    (reached,) = highest.values()
    if best < reached - slack:
        raise ValueError(f"best must be at least {reached:,.6f}, which one of the fits has reached: found {best:,.6f}")


def check_no_priors(priors: Any) -> None:
    """Refuse priors together with a fit, which has its own."""
    if priors is not None:
        raise ValueError("priors must be left out if model is a fit, as its own are drawn; or give a model's name")


def check_pair(x: Any, y: Any, fits: Mapping[str, Fit]) -> tuple[str, str]:
    """Return the labels of two fits of the same counts, by default the first two."""
    labels = list(fits)
    if len(labels) < 2:
        raise ValueError(f"fits must be at least two, to compare them: found {labels}")
    x = check_choice(labels[0] if x is None else x, "x", labels)
    y = check_choice(next(label for label in labels if label != x) if y is None else y, "y", labels)
    if not np.array_equal(fits[x].row_names, fits[y].row_names):
        raise ValueError(f"fits must have the same rows in the same order: those of {x!r} and {y!r} differ")
    if not same_counts(fits[x].counts, fits[y].counts):
        raise ValueError(f"fits must have the same counts: those of {x!r} and {y!r} differ; fit the same counts")
    return x, y


def check_others(fits: Mapping[str, Fit], reference: str) -> None:
    """Refuse a reference that has no other fit to be compared with."""
    if len(fits) < 2:
        raise ValueError(f"fits must contain a fit besides the reference {reference!r}; add one, as in {{'vi': fit}}")


def check_selections(given: Any, kind: type) -> list[Any]:
    """Return results of `bayesnmf.select` as a list; refuse anything else, and an empty one."""
    found = [given] if isinstance(given, kind) or not isinstance(given, Iterable) else list(given)
    if not found:
        raise ValueError("selections must not be empty: give at least one result of bayesnmf.select")
    for each in found:
        if not isinstance(each, kind):
            raise TypeError(
                f"selections must be results of bayesnmf.select: found {type(each).__name__}; give a list of them, "
                "as in [bayesnmf.select(counts), bayesnmf.select(counts, criterion='stability')]"
            )
    return found


def check_checks_by_rank(given: Any, kind: type) -> dict[str, dict[int, Any]]:
    """Return predictive checks by label and rank; those of one series have the label ""."""
    series = given if isinstance(given, Mapping) else {}
    if not all(isinstance(each, Mapping) for each in series.values()):
        series = {"": series}
    found = {str(label): dict(each) for label, each in series.items()}
    if not found or not all(found.values()):
        raise ValueError("checks must not be empty: give at least one rank, as in {8: bayesnmf.predictive_checks(fit)}")
    for each in found.values():
        for rank, one in each.items():
            check_count(rank, "the ranks of checks")
            check_result(one, kind, "checks, by rank or by label and rank,", "bayesnmf.predictive_checks")
    return found


def check_result(given: Any, kind: type, argument: str, function: str) -> None:
    """Refuse anything but the result of a function."""
    if not isinstance(given, kind):
        raise TypeError(f"{argument} must be a result of {function}: found {type(given).__name__}; call it first")


def check_any_present(there: np.ndarray, least: float) -> None:
    """Refuse to draw components of which no sample has any."""
    if not there.any():
        raise ValueError(f"least must be a chance that some component has in a sample: found {least}; give a lower one")


def check_markers(table: Any, column: str) -> None:
    """Refuse what is not a table of `bayesnmf.markers`, and one of a point estimate, which has no intervals."""
    if not hasattr(table, "columns") or column not in table.columns:
        raise TypeError(f"table must be a table of bayesnmf.markers: found {shown(table)}; make one from a fit")
    if table[column].isna().all():
        raise ValueError("table must have intervals: found that of a point estimate; use a fit by vi or gibbs")


def check_signatures(feature_names: np.ndarray) -> list[str]:
    """Return the features as mutation types, as COSMIC spells them; refuse others, and incomplete sets."""
    types = read_types(feature_names)
    if types is None or not types.is_complete:
        raise ValueError(
            "the features must be all mutation types of one kind, of SBS96, DBS78, ID83, CN48, SV32 or SBS1536, named "
            f"as in COSMIC (A[C>A]A and so on): found {shown(list(map(str, feature_names[:3])))}; draw other features "
            "with plots.components"
        )
    return types.names


def check_has_moved(found: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return known components, these as they are now, their names, and which ones samples have; refuse others."""
    if not isinstance(found, Assignment | Fit):
        raise TypeError(f"found must be an Assignment or a Fit: found {found_in(found)}; make one with bayesnmf.assign")
    if found.moved is None:
        raise ValueError("found must have known components that may move: found none; call it with drift='learned'")
    if isinstance(found, Fit):
        known, now, names = known_and_moved(found)
        return known, now, names, np.ones(len(known), bool)
    number = len(found.moved)
    used = np.nansum(found.presence[:, :number] > 0.5, axis=0) > 0
    if not used.any():
        raise ValueError("found must have a component that some sample has: found none; see found.moved")
    return np.asarray(found.known), found.components[:number], found.component_names[:number], used


def check_known(known: Any, fit: Fit) -> Any:
    """Return the table of a match of a fit, or None; refuse what is no match, and one of other components."""
    if known is None:
        return None
    check_result(known, Match, "known", "bayesnmf.match")
    if not np.array_equal(known.components, fit.components):
        number = len(known.components)
        found = f"one of {number}" if number != fit.rank else "one of another fit, whose components differ"
        raise ValueError(
            f"known must be a match of the {fit.rank} components that are drawn: found {found}; match this fit, as in "
            "bayesnmf.match(fit, catalogue)"
        )
    return known.table
