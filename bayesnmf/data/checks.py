"""Checks of counts that are used with a fit, and of arguments of a simulation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bayesnmf.checks import as_numbers, check_choice, check_count, check_positive, is_counted, shown
from bayesnmf.data.conversion import LARGEST_INTEGER
from bayesnmf.data.labels import Order, order_of, same_labels
from bayesnmf.data.suspicions import warn_of_data
from bayesnmf.noise.abilities import Dispersed, Distributed, Noise, distribution_of
from bayesnmf.priors.checks import check_length_of_dispersion
from bayesnmf.text import readable

LIMITS = {"float64": (1e-50, 1e50), "float32": (1e-10, 1e10)}  # of exposures, so that products of two are in range


def check_shape(size: Any, name: str) -> tuple[int, int]:
    """Return a size as two whole numbers of at least 1."""
    try:
        n, m = size
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be (rows, features): found {shown(size)}; give two whole numbers") from error
    return check_count(n, f"{name}[0]"), check_count(m, f"{name}[1]")


def check_totals(totals: Any, n: int, given_totals: bool, by_default: bool, usual: float) -> np.ndarray:
    """Return row totals for a model with given totals, else one mean total for a default prior; None means `usual`.

    Refuse totals together with a prior of the loadings that sets its own scale.
    """
    if totals is None:
        return np.full(n if given_totals else 1, usual)
    if not given_totals:
        if not by_default:
            raise ValueError(
                "totals must not be given together with priors.loadings, which already sets the scale; leave one out"
            )
        return np.array([check_positive(totals, "totals")])
    values = as_numbers(totals, "totals")
    if values.ndim > 1 or values.size not in (1, n):
        raise ValueError(f"totals must be a number or {n} numbers, one for each row: found {shown(totals)}")
    if not np.all((values >= 0) & (values <= LARGEST_INTEGER)) or not np.all(values == np.rint(values)):
        raise ValueError(f"totals must be whole numbers from 0 to 2**53: found {shown(totals)}; round them")
    return np.broadcast_to(values, n)


def check_noise_of_draws(noise: Noise, size: tuple[int, int], given_totals: bool) -> Distributed:
    """Return a noise that counts can be drawn with; refuse one of no known distribution, or of none in closed form."""
    what, law = f"noise={noise.word!r}", distribution_of(noise, "drawn counts")
    if isinstance(noise, Dispersed) and not noise.known:
        raise ValueError(f"{what} needs a known {noise.parameter} to draw counts: give bayesnmf.{noise.example()!r}")
    if given_totals and not law.given_totals:
        raise ValueError(
            f"{what}{f' per {noise.by}' if noise.by_feature else ''} has no closed form where the totals of rows are "
            "given; use bayesnmf.NegativeBinomial('linear') with one dispersion or by='row', or model='gamma_poisson'"
        )
    check_length_of_dispersion(noise, size)
    return law


def check_exposure(values: np.ndarray, argument: str, length: int, dtype: Any) -> np.ndarray:
    """Return a copy of exposures; refuse another length than that of the counts, and values that are not above 0.

    Refuse values that are too small or too large for arithmetic in `dtype`, too.
    """
    side = argument.removesuffix("_exposure")
    if values.shape != (length,):
        raise ValueError(
            f"{argument} must have one number for each {side}, shape ({length},): found shape {values.shape}"
        )
    wrong = np.flatnonzero(~((values > 0) & np.isfinite(values)))
    if len(wrong):
        raise ValueError(
            f"{argument} must be above 0 and finite: found {values[wrong[0]]:g} at position {wrong[0]}; leave a {side} "
            "that was not observed out of the counts"
        )
    least, most = LIMITS[np.dtype(dtype).name]
    wrong = np.flatnonzero((values < least) | (values > most))
    if len(wrong):
        raise ValueError(
            f"{argument} must be between {least:g} and {most:g} in {np.dtype(dtype).name}: found "
            f"{values[wrong[0]]:g}; choose another unit"
        )
    return np.array(values, np.float64)


def check_new_exposure(fitted: Any, new: Any) -> None:
    """Refuse new rows without exposures if the fitted rows have them, and other exposures of the features."""
    if fitted.row_exposure is not None and new.row_exposure is None:
        raise ValueError(
            "row_exposure is missing: loadings of this fit are per unit of exposure; give the exposures of the new rows"
        )
    if new.feature_exposure is not None and not np.array_equal(new.feature_factor, fitted.feature_factor):
        raise ValueError(
            "counts must have the feature exposures of the fit, for which its components are: found others; leave them "
            "out, or fit again with these"
        )


def check_exposed_alike(first: Any, new: Any) -> None:
    """Refuse exposures of the rows of a block if the first block of a stream had none."""
    if first.row_exposure is None and new.row_exposure is not None:
        raise ValueError(
            "row_exposure must be given for all blocks or for none: the first block had none; leave it out, or begin "
            "again with np.ones(rows) for blocks without exposures"
        )


def check_drawable(means: np.ndarray, cure: str) -> None:
    """Refuse to draw counts that may be too large for exact whole numbers."""
    if not np.all(means <= LARGEST_INTEGER):
        raise ValueError(f"counts must have means of at most 2**53 to be drawn: found {np.max(means):g}; {cure}")


def same_counts(one: Any, other: Any) -> bool:
    """Return whether two sets of counts have equal matrices and missing entries; their names may differ."""
    a, b = one.matrix, other.matrix
    if one.mask is not other.mask and (one.mask is None or not one.mask.same_as(other.mask)):
        return False
    return a is b or (a.shape == b.shape and all(
        np.array_equal(getattr(a, part), getattr(b, part)) for part in ("indptr", "indices", "data")
    ))  # fmt: skip


def check_may_have_nan(counts: Any, found: str) -> None:
    """Refuse counts in a form whose NaN is not looked for."""
    if hasattr(counts, "with_mask") or hasattr(counts, "scratch"):
        raise TypeError(
            f"missing='nan' needs an array, a table, a sparse matrix or a file that fits in memory: found {found}; "
            "give the values, or read the file with bayesnmf.read_counts(path, missing='nan')"
        )


def check_missing_word(missing: Any) -> Any:
    """Return None, "nan" or "zeros"; refuse entries, which would be those of one matrix alone."""
    if missing is not None:
        check_choice(missing, "missing", ("nan", "zeros"))
    return missing


def check_entries(values: Any, argument: str, shape: tuple[int, int]) -> Any:
    """Return a choice of entries: an array of booleans, or a sparse matrix as CSR; refuse other values and shapes.

    A sparse matrix of numbers stores the entries that are chosen, zeros too; one of booleans is True at them.
    """
    entries: Any = values
    if hasattr(entries, "tocsr"):
        entries = entries.tocsr(copy=True)
        if entries.dtype == np.bool:
            warn_of_stored_false(entries, argument)
            entries.eliminate_zeros()
    else:
        entries = np.asarray(values)
        if entries.dtype != np.bool:
            raise TypeError(
                f"{argument} must be an array of booleans, or a sparse matrix: found {shown(values)}; give "
                f"{argument}=values == 1 of an array of ones and zeros, or a sparse matrix that stores these entries"
            )
    if entries.shape != shape:
        raise ValueError(
            f"{argument} must have the shape of the counts, {shape}: found {entries.shape}; give it for the same rows "
            "and features, no more and no fewer"
        )
    return entries


def check_not_turned(found: tuple[int, ...], argument: str, shape: tuple[int, int]) -> None:
    """Refuse entries with features in rows."""
    if found != shape and found[::-1] == shape:
        raise ValueError(f"{argument} must have the shape of the counts, {shape}: found {found}; transpose it")


def warn_of_stored_false(entries: Any, argument: str) -> None:
    """Warn of a sparse matrix of booleans that stores False, as one of counts does after astype(bool)."""
    if stored := int(np.count_nonzero(~entries.data)):
        warn_of_data(
            f"{argument} is a sparse matrix of booleans that stores {stored:,} times False, as at counts of 0 after "
            f"astype(bool): these entries are not {argument}; if they are, give the matrix of numbers itself, whose "
            "stored entries count whatever their value"
        )


def check_zeros_in_memory(counts: Any) -> None:
    """Refuse to take all zeros of counts on disk as missing."""
    if not counts.in_memory:
        raise ValueError(
            "missing='zeros' needs counts in memory, as the places of all nonzeros take 12 bytes each, twice as much "
            "as the counts on disk; read the counts with bayesnmf.read_counts"
        )


def check_some_observed(entries: int) -> int:
    """Return the number of observed entries that were chosen; refuse none."""
    if not entries:
        raise ValueError("rows and features must have an observed entry: found only missing ones; choose others")
    return entries


def check_complete(counts: Any, what: str) -> Any:
    """Return the counts; refuse missing entries where all are needed."""
    if counts.mask is not None:
        raise ValueError(
            f"{what} needs counts without missing entries: found {counts.mask.number:,}; leave out rows or features "
            "that have some; fit, transform, expected and intervals of a chain take them"
        )
    return counts


def check_features_in_columns(given: Any, names: np.ndarray, argument: str, of: str) -> None:
    """Refuse labelled components whose rows, and not whose columns, are the features."""
    if same_labels(given.rows, names) and not same_labels(given.columns, names):
        raise ValueError(
            f"{argument} must have the features of the {of} in its columns: found them in its rows; give it "
            "transposed, as in frame.T"
        )


def check_start_names(start: Any, counts: Any) -> None:
    """Refuse a fit as start whose rows or features have other names than those of the counts, or another order."""
    for side in ("row", "feature"):
        names, own = (getattr(each, f"{side}_names") for each in (start, counts))
        if is_counted(names) or len(names) != len(own):  # without names, or refused because of its size
            continue
        if order_of(names, own, Order(f"start's {side}_names", side)) is not None:
            raise ValueError(
                f"start must have its {side}s in the order of the counts: found the same names in another order; "
                f"put the counts in the order of start.{side}_names"
            )


def check_seed_sets(sets: Any) -> dict[str, list[str]]:
    """Return sets of features as lists of text by name; refuse what is no mapping of names to lists of names."""
    cure = "give a dict such as {'T cells': ['CD3D', 'CD3E']}"
    if not isinstance(sets, Mapping):
        raise TypeError(f"seeds must map names of components to lists of features: found {shown(sets)}; {cure}")
    for name, features in sets.items():
        if isinstance(features, str | bytes) or not hasattr(features, "__iter__"):
            raise TypeError(f"seeds[{name!r}] must be a list of features: found {shown(features)}; {cure}")
    found = {readable(name): list(dict.fromkeys(map(readable, features))) for name, features in sets.items()}
    if not found or not all(found.values()) or len(found) < len(sets):
        raise ValueError(f"seeds must have sets with different names and a feature each: found {shown(sets)}; {cure}")
    return found


def check_has_features(found: np.ndarray, names: list[str], unknown: list[str]) -> None:
    """Refuse sets without a feature of the counts."""
    if not found.all():
        lost = names[int(np.argmin(found))]
        raise ValueError(
            f"seeds[{lost!r}] must have a feature of the counts: found none among names such as "
            f"{shown(unknown[:3])}; leave the set out, or give counts with these names (feature_labels of AnnData)"
        )


def check_start_has_seeds(start: Any, seeds: Any) -> None:
    """Refuse a fit as start whose components have other names than the seeds, if there are any, or another order."""
    names = [] if seeds is None else list(seeds.sets)
    found = getattr(start, "component_titles", names)[: len(names)]
    if found != names:
        raise ValueError(
            f"a fit as start must have components with the names of the seeds, {shown(names)}, in this order: found "
            f"{shown(found)}; give a fit with these seeds, or leave start out"
        )


def check_drift(drift: Any) -> Any:
    """Return how many counts a catalogue weighs, "learned", or None if it stays as it is."""
    if drift is None or (isinstance(drift, str) and drift == "learned"):
        return drift
    if isinstance(drift, str | bool):
        raise ValueError(f"drift must be 'learned' or a number: found {drift!r}; use drift='learned'")
    given = as_numbers(drift, "drift")
    if given.ndim:
        raise TypeError(f"drift must be one number for all components: found {shown(drift)}; use drift='learned'")
    found = float(given)
    if found == np.inf:
        return None
    if not found >= 1:
        raise ValueError(
            f"drift must be at least 1, the number of counts that a known component weighs: found {found:g}; use "
            "drift='learned', or leave the component out of the catalogue and give extra=1 to look for it anew"
        )
    return found


def check_assignable(counts: Any, components: Any, noise: Any) -> None:
    """Refuse counts, components or a noise of which the presence of components cannot be sampled."""
    if not counts.in_memory:
        raise ValueError("assign needs counts in memory: found counts on disk; give some rows at a time")
    if not counts.is_integer:
        raise ValueError("assign needs whole numbers: found others; give the counts themselves, not normalised ones")
    if not counts.total:
        raise ValueError("assign needs counts: found zeros only; give samples that have some")
    if counts.row_exposure is not None or counts.feature_exposure is not None:
        raise ValueError("assign knows no exposures of rows or features: multiply the catalogue by them instead")
    if noise.by not in (None, "feature") or not noise.with_supports:
        what = f"a dispersion for each {noise.by}" if noise.with_supports else repr(noise.word)
        raise ValueError(
            f"assign needs noise 'poisson', 'nb1' or 'nb2', with one dispersion or one for each feature: found {what}"
        )
    if (lost := (counts.feature_totals > 0) & ~components.any(axis=0)).any():
        name = counts.feature_names[lost.argmax()]
        raise ValueError(f"catalogue has a component for no count of feature {name!r}; leave the feature out")
