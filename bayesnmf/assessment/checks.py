"""Checks of the arguments of assessments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from bayesnmf.checks import (
    as_numbers,
    check_choice,
    check_count,
    check_flag,
    check_method,
    check_size,
    places_of,
    shown,
)
from bayesnmf.data.checks import same_counts
from bayesnmf.data.labels import split_labels
from bayesnmf.data.simulation import Simulation
from bayesnmf.fitting.known import catalogue_of, in_order_of
from bayesnmf.options import NUTS, SMC, Gibbs, method_of, methods_with
from bayesnmf.options.rules import Request, ability
from bayesnmf.priors.checks import same_priors
from bayesnmf.priors.specification import MODELS, on_simplex, uniformises
from bayesnmf.priors.unknown import unknown_side
from bayesnmf.results.checks import check_fit, read_groups, warn_of_ungrouped
from bayesnmf.results.record import FitRecord

LARGEST_DRAWS = 2**30  # bytes


def check_leave_one_out(method: str) -> None:
    """Refuse leave-one-out for all methods but samplers."""
    if method_of(method).posterior != "draws":
        listed = " or ".join(f"method={name!r}" for name in methods_with("draws"))
        raise ValueError(
            f"loo needs a fit by {listed}: found {method!r}, whose draws are not draws of the "
            "posterior, so loo would reward intervals that are too narrow; "
            "compare such fits by held-out counts, with bayesnmf.select"
        )


def check_refits(fit: FitRecord) -> None:
    """Refuse fits without an entry each of what `bayesnmf.fit` cannot fit so."""
    if fit.is_projected:
        raise ValueError("refit needs the counts that components were fitted to: found projected rows; leave refit out")
    if MODELS[fit.model].given_totals:
        raise ValueError(
            f"refit needs a model of the totals of rows: {fit.model} is given these, from which an entry that is left "
            "out follows; fit dirichlet_gamma, or leave refit out"
        )
    if fit.sites is not None or unknown_side(fit.priors) is not None or not isinstance(fit.options, Gibbs | NUTS | SMC):
        raise ValueError(
            "refit needs a fit by bayesnmf.fit of a model by its name: found one of a program, or draws from "
            "elsewhere; leave refit out"
        )
    if not fit.counts.rows_held:
        raise ValueError("refit needs counts in memory: found counts on disk; leave refit out")


def check_least_draws(chains: int, draws: int, each: int, together: int, what: str) -> None:
    """Refuse too few draws for `what`, in each chain or in all chains."""
    if draws < each or chains * draws < together:
        raise ValueError(
            f"{what} needs at least {each} draws in each chain and {together} in all: found {chains} × {draws}; "
            "fit with more draws"
        )


def check_ranks(ranks: Any) -> list[int]:
    """Return ranks as a list of distinct whole numbers of at least 1, in increasing order; accept a single number."""
    listed = list(ranks) if isinstance(ranks, Iterable) and not isinstance(ranks, str | bytes) else [ranks]
    found = [check_count(rank, "ranks") for rank in listed]
    if not found or len(set(found)) < len(found):
        raise ValueError(f"ranks must name at least one, and none twice: found {shown(listed)}")
    return sorted(found)


def check_visits(total: float, each: int, most: int) -> None:
    """Refuse a pass over single counts that would take days, given the work for each count."""
    work = max(int(total), 1) * each
    if work > most:
        raise ValueError(
            f"method='tokens' takes every particle of every run through every single count: {total:,.0f} counts times "
            f"rank, particles and runs must be at most {most:.0e}: found {min(work, 10**300):.3g}; give fewer rows, "
            "particles or runs, or use method='tempered'"
        )


def check_enumerable(allocations: float, most: int) -> None:
    """Refuse to enumerate more than `most` allocations."""
    if allocations > most:
        raise ValueError(
            f"method='exact' sums over at most {most:,} allocations: these counts and rank have "
            f"{allocations:.3g}; use method='tempered'"
        )


def check_untempered(method: str, settings: dict[str, Any]) -> None:
    """Refuse settings that only tempered runs have."""
    for name, given in settings.items():
        if given is not None:
            raise ValueError(f"{name} needs method='tempered': found method={method!r}; leave {name} out")


def check_truth(truth: Any, job: Any) -> None:
    """Refuse a simulation that is not an exact draw from the posterior of the counts of a job."""
    if truth is None:
        return
    if not isinstance(truth, Simulation):
        raise TypeError(f"truth must be what bayesnmf.simulate returned: found {type(truth).__name__}")
    faults = {
        "its own counts": same_counts(truth.counts, job.counts) and truth.counts.exposed_like(job.counts),
        f"model={truth.model!r}": truth.model == job.model,
        f"rank={truth.rank}": truth.rank == job.rank,
        "priors=truth.priors": same_priors(truth.priors, job.options.priors),
        "noise=truth.noise": truth.noise == job.noise,
    }
    for needed, met in faults.items():
        if not met:
            raise ValueError(f"truth needs {needed}, since its parameters are a draw from that posterior; give these")


def check_allocation(value: Any) -> np.ndarray:
    """Return an allocation as an array (n, K, m) of nonnegative, finite float64 numbers."""
    array = as_numbers(value, "allocations", "an array of numbers, shape (n, K, m)")
    if array.ndim != 3 or 0 in array.shape:
        raise ValueError(f"allocations must have shape (n, K, m), samples first: found {array.shape}")
    if not np.all(np.isfinite(array)) or np.any(array < 0):
        raise ValueError("allocations must be nonnegative and finite; replace the entries that are not")
    return array


def check_draws_of_bound(draws: Any) -> int:
    """Return the number of draws that estimate a bound: at least 2, so that there is a standard error."""
    number = check_count(draws, "draws", minimum=2)
    check_size(8 * number, LARGEST_DRAWS, "the log-likelihoods of all draws", "ask for fewer draws")
    return number


def check_catalogue(reference: Any, fit: FitRecord) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels and values (r, m) of reference components, with the features in the order of the fit."""
    given = catalogue_of(reference)
    labels = reference.component_labels if isinstance(reference, FitRecord) else split_labels(given).rows
    values = in_order_of(fit.counts, given, "reference", "fit")
    array = np.array(as_numbers(values, "reference", "an array, a frame (components, features) or a fit"), np.float64)
    if array.ndim != 2 or array.shape[1] != len(fit.feature_names) or not len(array):
        raise ValueError(
            f"reference must have shape (r, {len(fit.feature_names)}), one row for each component: found {array.shape}"
        )
    if not np.all(np.isfinite(array)) or np.any(array < 0):
        raise ValueError("reference must be nonnegative and finite; clip it at 0")
    if not array.any(axis=1).all():
        raise ValueError("reference must have a positive entry in every row; drop the rows of zeros")
    return np.arange(len(array)) if labels is None else labels, array


def has_response(fit: Any) -> bool:
    """Return whether `bayesnmf.linear_response` works for a fit as it is."""
    with_q = fit.method == "vi" and fit.posterior.components is not None and not fit.is_projected and fit.batch is None
    with_q &= fit.counts.mask is None or fit.scale is None
    return with_q and all("response" in prior.optional for prior in vars(fit.priors).values())


def check_response(fit: Any, given_components: bool) -> None:
    """Refuse fits without linear response: other methods, other families, components without a posterior."""
    check_fit(fit)
    check_method(fit.method, ("vi",), "linear response")
    check_flag(given_components, "given_components")
    found = f"noise={fit.noise.word!r}, with rates" * fit.noise.has_entry_rates
    found = found or "factors of batches" * (fit.batch is not None)
    if found := found or "dispersions of features" * uniformises(fit.noise, fit.priors.components):
        raise ValueError(
            f"linear response needs entries whose exposure is known: found {found}; use fit.with_intervals('sampled')"
        )
    ability("response", "method='gibbs'").check(Request(priors=fit.priors), "linear response needs")
    if given_components:
        return
    if fit.posterior.components is None:
        raise ValueError(
            "linear response needs a posterior of the components: found priors.components='parameter'; give the "
            "components a prior, or ask for intervals given the components, with given_components=True"
        )
    if fit.is_projected:
        raise ValueError(
            "linear response of new rows needs given_components=True: these components were held, and are those of "
            "another fit"
        )


def check_strict(strict: bool) -> None:
    """Refuse draws of a linear response that does not exist."""
    if not strict:
        raise ValueError(
            "intervals='response' needs a bound that curves downwards in every direction: found one that does not; use "
            "intervals='sampled'"
        )


def check_response_of_markers(response: Any) -> None:
    """Refuse linear response of components that are held, or not on the simplex."""
    if not on_simplex(response.fit.priors.components):
        raise ValueError(
            "markers of linear response need components on the simplex, since the sums of others move too: found "
            f"{type(response.fit.priors.components).__name__}; fit with priors.components=bayesnmf.Dirichlet(...), or "
            "give markers the fit itself"
        )
    if response.responses.coupled.components is None:
        raise ValueError(
            "markers of linear response need uncertain components: found a response given the components; call "
            "linear_response without given_components"
        )


def check_some(given: Any, names: str) -> None:
    """Refuse to give none of several arguments."""
    if not given:
        raise ValueError(f"give {names}: found neither")


def check_factors_of_rows(frame: Any, contrasts: Any, row_names: np.ndarray) -> dict[str, tuple[np.ndarray, list[str]]]:
    """Return the level of each row and the two levels of each factor, by the name of the factor."""
    if contrasts is not None:
        raise ValueError("contrasts must be left out if groups is a DataFrame of factors, whose contrasts are effects")
    factors: dict[str, tuple[np.ndarray, list[str]]] = {}
    found = split_labels(frame)
    table, without = found.values, np.zeros(len(row_names), bool)
    for name in table.columns:
        labels, levels = read_groups(table[name] if found.rows is not None else table[name].to_numpy(), row_names)
        without |= labels == None  # noqa: E711 (entry by entry)
        if len(levels) != 2:
            raise ValueError(
                f"groups must have factors of two levels: found {shown(levels)} in {name!r}; give one label for each "
                "row instead, and contrasts"
            )
        ordered = hasattr(table[name], "cat")
        factors[str(name)] = labels, levels if ordered else sorted(levels)
    if len(factors) < max(len(table.columns), 1):
        raise ValueError(f"groups must have columns of different names, at least one: found {list(table.columns)}")
    warn_of_ungrouped(int(without.sum()), len(row_names))
    return factors


def check_contrast_weights(contrasts: Any, groups: list[str], text: Any = str) -> dict[str, np.ndarray]:
    """Return the weights of all groups in each contrast; `text` makes the name of a group of what is given."""
    if not isinstance(contrasts, Mapping) or not all(isinstance(each, Mapping) for each in contrasts.values()):
        raise TypeError(
            "contrasts must map names to weights of groups, as in {'b - a': {'b': 1, 'a': -1}}: found "
            f"{shown(contrasts)}"
        )
    if not contrasts:
        raise ValueError(f"groups must be at least two, or contrasts at least one: found {shown(groups)}; name more")
    found = {}
    for name, given in contrasts.items():
        weights = np.zeros(len(groups))
        for group, weight in given.items():
            place = groups.index(check_choice(text(group), f"a group of {name!r}", groups))
            weights[place] = as_numbers(weight, "contrasts")
        if not np.all(np.isfinite(weights)) or not weights.any() or abs(weights.sum()) > 1e-9 * np.abs(weights).sum():
            raise ValueError(
                f"contrasts must have finite weights that sum to 0 and are not all 0: found {shown(dict(given))} in "
                f"{name!r}; subtract what they are compared with"
            )
        found[str(name)] = weights
    return found


def check_weights(
    given: Any, firsts: Iterable[Any], seconds: Iterable[Any], what: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return places and weights of a mapping from pairs, of a first and a second name, to weights."""
    if hasattr(given, "to_dict"):
        given = given.to_dict()
    if not isinstance(given, Mapping):
        raise TypeError(f"{what} must map pairs to weights, as in {{('a', 0): 1.0}}: found {type(given).__name__}")
    places: list[list[int]] = [[], []]
    known = [places_of(np.asarray(each)) for each in (firsts, seconds)]
    for pair in given:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ValueError(f"{what} must map pairs of names to weights: found {shown(pair)}; give a tuple of two")
        for side, name in enumerate(pair):
            found = known[side].get(str(name), [])
            if len(found) != 1:
                raise ValueError(
                    f"{what} must name single rows, components or features of the fit: found {shown(name)} "
                    f"{len(found)} times; choose from fit.row_names, fit.feature_names and 0 … K − 1"
                )
            places[side] += found
    weights = as_numbers([given[pair] for pair in given], what) if len(given) else np.zeros(0)
    if not np.all(np.isfinite(weights)):
        raise ValueError(f"{what} must map pairs to finite weights: found {shown(weights)}")
    return np.array(places[0], int), np.array(places[1], int), weights


def check_some_counts(counts: Any) -> None:
    """Refuse counts that are all zero, for which every statement of `equivalences` would be empty."""
    if counts.nnz == 0:
        raise ValueError("counts must contain at least one count: all are zero; give a matrix that is not empty")
