"""Checks of options together with model, priors and counts."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from bayesnmf.checks import as_numbers, check_words, did_you_mean
from bayesnmf.data.labels import listed, says_place
from bayesnmf.options import Start
from bayesnmf.options.classes import BUDGET
from bayesnmf.options.combinations import check_together
from bayesnmf.options.rules import Request
from bayesnmf.priors import Distribution
from bayesnmf.priors.checks import check_parameter
from bayesnmf.priors.specification import PARAMETER, on_simplex

# The smallest parameter, the largest shape or concentration, and the largest rate. Below the first or above
# the last, sums and ratios over- or underflow. The objective contains a log a of a shape a, with relative
# rounding error 1e-16: above 1e8 the error would hide changes as small as the default tolerance.
RANGE = {"float64": (1e-100, 1e8, 1e100), "float32": (1e-20, 1e8, 1e20)}
RANGE_OF_STARTS = {"float64": (1e-100, 1e100, 1e100), "float32": (1e-15, 1e15, 1e20)}  # so that means are finite too
LARGEST_TOTAL = {"float64": 1e100, "float32": 1e20}  # of counts: that of the parameters of priors


def check_total(counts: Any) -> None:
    """Refuse counts whose total is beyond the range in which objectives are accurate in their type."""
    largest = LARGEST_TOTAL[np.dtype(counts.dtype).name]
    with np.errstate(over="ignore"):
        total = float(counts.total)
    if not total <= largest:
        raise ValueError(
            f"counts must have a total of at most {largest:.1g} in {np.dtype(counts.dtype).name}: found {total:.3g}; "
            "leave out rows or features with counts that cannot be right, or divide all counts by a power of ten"
        )


def check_has_program(request: Request) -> None:
    """Refuse a fit that the NumPyro program of its model does not state: what nuts or svi do not fit."""
    try:
        check_together(request)
    except ValueError as error:
        raise ValueError(f"fit.program() needs what method={request.method!r} needs: {error}") from error


def check_no_budget(options: Any, fewest: int, fixed: int) -> None:
    """Refuse a budget of seconds where draws="auto" is the number `fixed`."""
    if options.budget != BUDGET:
        raise ValueError(
            f"budget needs counts in memory, keep='auto', and {fewest} draws of every chain in 1 GiB; leave it out, "
            f"for draws={fixed}"
        )


def check_learnable(learn: Any, priors: Any) -> None:
    """Refuse to learn hyperparameters that differ between rows."""
    for side in learn:
        _check_groups(side, getattr(priors, side))


def _check_groups(side: str, prior: Any) -> None:
    shapes = {name: np.shape(value) for name, value in prior.learned_parameters.items()}
    together = prior.learned_together
    found = [shapes[name] for name in together]
    if len(set(found)) > 1:
        raise ValueError(
            f"learn estimates {' and '.join(together)} of priors.{side} together, so they must have one size: found "
            f"shapes {' and '.join(map(str, found))}; give both as numbers, or both for each component"
        )
    for name, size in shapes.items():
        if (side == "loadings" and len(size) == 2 and size[0] > 1) or (
            side == "components" and len(size) == 2 and min(size) > 1
        ):
            raise ValueError(
                f"learn needs priors.{side}.{name} to pool over rows or features: found one of shape {size}; give a "
                "number, or one for each component, and no seeds, which make a prior of this shape"
            )


def check_has_learned(rows: int, what: str) -> None:
    """Refuse a request that needs components before the stream has learned from any rows."""
    if rows == 0:
        raise ValueError(
            f"{what} needs a stream that has learned from rows: found none; call stream.partial_fit(counts) first"
        )


def check_rows_of_stream(counts: Any, total: int | None) -> None:
    """Refuse a block with more rows than there are in all."""
    if total is not None and (rows := counts.shape[0]) > total:
        raise ValueError(
            f"total_rows={total} must be the number of different rows of the whole data: found a block of {rows:,}; "
            f"give bayesnmf.MinibatchVI(total_rows=...) of at least {rows}, or leave it out"
        )


def _check_range(value: Any, name: str, limits: tuple[float, float], dtype: str) -> None:
    least, most = limits
    array = np.asarray(value, np.float64)
    outside = (array != 0) & ((array < least) | (array > most))
    if outside.any():
        wider = "use dtype='float64' or " if dtype == "float32" else ""
        raise ValueError(
            f"{name} must be between {least:g} and {most:g} in {dtype}, so that objectives are accurate: "
            f"found {array[outside].flat[0]:g}; {wider}choose a value nearer to 1, or another unit of the counts"
        )


def _check_ranges(given: Any, name: str, dtype: str, ranges: dict[str, tuple[float, float, float]]) -> None:
    least, shape, rate = ranges[dtype]
    for parameter, value in given.parameters.items() if isinstance(given, Distribution) else ():
        limits = (least, rate if parameter in given.with_unit else shape)
        _check_range(value, f"{name}.{parameter}", limits, dtype)
    if isinstance(given, Distribution) and "known" in given.constants:
        _check_range(given.constants["known"], "fixed_components", (least, RANGE_OF_STARTS[dtype][1]), dtype)


def check_ranges(options: Any, dtype: str) -> None:
    """Refuse parameters of priors and given starts for which numbers of this type over- or underflow.

    A start given as a fit is not checked, since its own computation has not over- or underflowed.
    """
    for side in ("loadings", "components"):
        _check_ranges(getattr(options.priors, side), f"priors.{side}", dtype, RANGE)
        if isinstance(getattr(options, "start", None), Start):
            _check_ranges(getattr(options.start, side), f"start.{side}", dtype, RANGE_OF_STARTS)


def check_start_factor(value: Any, name: str, size: tuple[int, int]) -> np.ndarray:
    """Return a given factor as a nonnegative, finite array of the right size."""
    array = as_numbers(value, f"start.{name}", "an array of numbers or a distribution")
    if array.shape != size:
        raise ValueError(f"start.{name} must have shape {size}: found {array.shape}")
    if not np.all(np.isfinite(array)) or np.any(array < 0):
        raise ValueError(f"start.{name} must be nonnegative and finite; clip it at 0")
    return array


def check_on_simplex(array: np.ndarray, name: str, of: str = "start.") -> None:
    """Refuse an array with rows that do not sum to 1, as its prior requires."""
    sums = array.sum(axis=-1)
    if not np.allclose(sums, 1, rtol=0, atol=1e-6):
        worst = int(np.argmax(np.abs(sums - 1)))
        raise ValueError(f"{of}{name} must have rows that sum to 1: row {worst} sums to {sums[worst]:g}; divide by it")


def check_start_distribution(value: Any, prior: Any, name: str, size: tuple[int, int]) -> Any:
    """Return a starting q of full size; refuse a family other than the conditional's, and invalid parameters."""
    if type(value) is not prior.conditional_family:
        raise ValueError(
            f"start.{name} must be a {prior.conditional_family.__name__}, the family of its posterior, or an array: "
            f"found {type(value).__name__}"
        )
    for parameter, given in value.parameters.items():
        check_parameter(given, f"start.{name}.{parameter}", may_be_zero=False)
    try:
        return value.broadcast(size)
    except ValueError as error:
        raise ValueError(f"start.{name} must broadcast to {size}") from error


def check_known_components(given: Any, m: int, prior: Any, name: str = "fixed_components") -> np.ndarray:
    """Return known components as an array (r, m); refuse values that no component of this prior could have."""
    array = np.array(
        as_numbers(given, name, "an array, a frame, a fit or a file"),
        np.float64,
        order="C",
    )
    if array.ndim != 2 or array.shape[1] != m or not len(array):
        cure = "; transpose it" if array.ndim == 2 and array.shape[0] == m else ""
        raise ValueError(f"{name} must have shape (r, {m}), one row for each component: found {array.shape}{cure}")
    if not np.all(np.isfinite(array)) or np.any(array < 0):
        raise ValueError(f"{name} must be nonnegative and finite; clip it at 0")
    empty = np.flatnonzero(~array.any(axis=1))
    if len(empty):
        raise ValueError(f"{name} must have a positive entry in every row: row {empty[0]} has none; drop it")
    if on_simplex(prior):
        check_on_simplex(array, name, "")
    return array


def check_named_once(labels: Any, argument: str) -> None:
    """Refuse components of which two have one name; numbers of rows may repeat."""
    times = Counter(str(label) for label in ([] if labels is None else labels) if not says_place(label))
    if repeated := [name for name, number in times.items() if number > 1]:
        raise ValueError(
            f"{argument} must have each component once: found {listed(repeated)} {times[repeated[0]]} times; keep one "
            "of each, as frame[~frame.index.duplicated()] does, or give them different names"
        )
    named = {(str(label), isinstance(label, str)) for label in ([] if labels is None else labels)}
    if alike := [name for name, number in Counter(name for name, _ in named).items() if number > 1]:
        raise ValueError(
            f"{argument} must have names that differ as text: found {listed(alike)} as a number and as text; give them "
            "different names, as frame.index = ['first', ...]"
        )


def check_chosen(only: Any, names: Any) -> np.ndarray:
    """Return the places of the components that a list or a Series by name chooses."""
    if hasattr(only, "index") and hasattr(only, "to_numpy"):
        only = only.index[np.asarray(only.to_numpy() > 0, bool)]
    asked, known = check_words(only, "only"), [str(name) for name in names]
    for name in asked:
        if str(name) not in known:
            raise ValueError(
                f"only must name components of the catalogue: it has no {name!r}{did_you_mean(str(name), known)}; "
                f"choose from {listed(known)}"
            )
    return np.array([known.index(str(name)) for name in asked])


def check_room_for_known(known: np.ndarray, rank: int, prior: Any) -> None:
    """Refuse a rank below the number of known components, and others without a prior."""
    if len(known) > rank:
        raise ValueError(
            f"rank must be at least the number of fixed_components, {len(known)}: found {rank}; raise rank or drop rows"
        )
    if len(known) < rank and prior == PARAMETER:
        raise ValueError(
            "priors.components='parameter' needs all components in fixed_components: found "
            f"{len(known)} of {rank}; give the others a prior, such as bayesnmf.Dirichlet(1)"
        )


def check_possible(counts: Any, rank: int, prior: Any) -> None:
    """Refuse counts that known components alone cannot make."""
    impossible = np.zeros(0, bool) if prior == PARAMETER else prior.impossible(rank)
    if not impossible.any():
        return
    entries = counts.matrix.tocoo()
    found = np.flatnonzero(impossible[entries.coords[1]])
    if len(found):
        row, feature = (entries.coords[axis][found[0]] for axis in (0, 1))
        raise ValueError(
            f"fixed_components must have a positive entry wherever there are counts, as rank={rank} leaves no other "
            f"component: row {counts.row_names.tolist()[row]!r} has {entries.data[found[0]]:g} of feature "
            f"{counts.feature_names.tolist()[feature]!r}, where all are 0; add a small number, or raise rank"
        )


def check_drifts(drift: Any, known: Any, seeds: Any) -> None:
    """Refuse a drift without known components, and one beside seeds, which say what components are to have, too."""
    if drift is not None and known is None:
        raise ValueError("drift needs fixed_components: found none; give fixed_components=catalogue, or leave it out")
    if drift is not None and seeds is not None:
        raise ValueError("drift needs components without seeds: found seeds; leave one of them out")


def check_takes_drift(prior: Any) -> None:
    """Refuse components whose prior is no Dirichlet, which known components cannot be the centre of."""
    if type(prior).__name__ != "Dirichlet":
        raise ValueError(
            f"drift needs components with a Dirichlet prior: found {type(prior).__name__}; use model='gamma_poisson', "
            "or leave drift out"
        )


def check_takes_seeds(prior: Any, names: list[str], rank: int) -> None:
    """Refuse components whose prior has no counts to add to, and more sets than components."""
    if type(prior).__name__ not in ("Dirichlet", "Gamma"):
        name = type(prior).__name__
        found = "known ones; leave fixed_components out" if prior.constants else f"{name}; use model='gamma_poisson'"
        raise ValueError(f"seeds need components with a Dirichlet or Gamma prior: found {found}")
    if len(names) > rank:
        raise ValueError(f"rank must be at least the number of seeds, {len(names)}: found {rank}; raise rank")
