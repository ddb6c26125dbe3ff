"""Thin the draws of fits, with the moments of all draws, and make tables of loadings and components."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bayesnmf.inference.sampling.running_moments import (
    Entries,
    Running,
    RunningOnDisk,
    Summary,
    summarise_chains,
    summarise_chains_on_disk,
)
from bayesnmf.inference.status import INTERRUPTED, Status
from bayesnmf.priors.values import attach_scale
from bayesnmf.results.draws import is_resampled
from bayesnmf.results.estimates import Draws
from bayesnmf.results.intervals import for_intervals
from bayesnmf.results.mixing import drawn_beside, judged_rows, mixing_verdict, r_hat_and_ess, worst_figures
from bayesnmf.results.record import FitRecord
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd


STORED_BYTES = 2_500_000  # default size of thinned draws


def draws_within(fit: FitRecord, most: int) -> int:
    """Return the number of draws of all parameters of a fit that take at most `most` bytes; at least one."""
    scales = 0 if fit.scale is None else len(fit.scale)
    return max(most // (8 * (fit.loadings.size + fit.components.size + scales)), 1)


def thin_fit[F: FitRecord](fit: F, most: int = STORED_BYTES) -> F:
    """Return a fit by gibbs, nuts or smc with evenly thinned draws, and with the moments of all draws in `moments`.

    Parameters
    ----------
    fit : Fit
        Fit by any method; it is returned unchanged if it has no draws or only a few.
    most : int
        Largest size of the draws, in bytes.
    """
    draws = fit.estimate
    if not isinstance(draws, Draws):
        return fit
    number = min(max(draws_within(fit, most) // draws.chains, 1), draws.draws)
    every = -(-draws.draws // number)
    if every == 1:
        return fit
    if fit.moments is None:
        whole = with_moments(fit, [_running_of_chain(draws, chain) for chain in range(draws.chains)], every)
    else:  # the moments of all draws were computed during sampling
        before = fit.diagnostics["kept_every"]
        whole = replace(fit, diagnostics={**fit.diagnostics, "kept_every": before * every})
        whole = replace(whole, statistics=_thinned(fit.statistics, every))
    scale = None if draws.scale is None else draws.scale[:, ::every]
    few = Draws(draws.loadings[:, ::every], draws.components[:, ::every], scale)
    return replace(whole, estimate=few)


def _thinned(statistics: dict[str, Array] | None, every: int) -> dict[str, Array] | None:
    """Return the statistics of every so many draws."""
    return None if statistics is None else {name: values[:, ::every] for name, values in statistics.items()}


def _running_of_chain(draws: Draws, chain: int) -> Running:
    """Return the running moments of one chain with matched draws."""
    running = Running(draws.draws, matching=False)
    for at in range(draws.draws):
        scale = None if draws.scale is None else draws.scale[chain, at]
        running.add(attach_scale(draws.loadings[chain, at], scale), draws.components[chain, at])
    return running


def loadings_table(fit: FitRecord) -> pd.DataFrame:
    """Return a table of the loadings, rows by components, with the scale and standard deviations if there are any."""
    import pandas as pd

    columns = _columns(fit, "loadings", 1)
    if fit.scale is not None:
        columns["scale"] = fit.scale
        if (sd := _sd(fit, "scale")) is not None:
            columns["scale sd"] = sd
    return pd.DataFrame(columns, pd.Index(fit.row_names, name="row"))


def components_table(fit: FitRecord) -> pd.DataFrame:
    """Return a table of the components, features by components, with standard deviations if there are any."""
    import pandas as pd

    columns = _columns(fit, "components", 0)
    return pd.DataFrame(columns, pd.Index(fit.feature_names, name="feature"))


def _columns(fit: FitRecord, side: str, axis: int) -> dict[str, Array]:
    """Return a column for each component, means before standard deviations; components are along `axis`."""
    sd = _sd(fit, side)
    kinds = {"": getattr(fit, side)} if sd is None else {"": getattr(fit, side), " sd": sd}
    titles = [*enumerate(fit.component_titles)]
    return {f"{title}{kind}": part.take(k, axis) for kind, part in kinds.items() for k, title in titles}


def _sd(fit: FitRecord, side: str) -> Array | None:
    """Return posterior sds of the loadings, the components or the scale; None without a posterior."""
    return for_intervals(fit).estimate.sd(fit, side) if fit.moments is None else fit.moments[f"{side}_sd"]


def with_moments[F: FitRecord](fit: F, running: list[Running] | list[RunningOnDisk], every: int) -> F:
    """Return a fit of thinned draws with the means and other moments of all draws of its chains.

    Statistics, which are given of all draws, are thinned as the draws were. Mixing is judged by split R-hat and batch
    means of all draws, not by the kept draws. Resampled draws are no chains:
    they have standard deviations alone. Their status stays as it is, and that of chains that ran until they had mixed,
    which were judged more strictly.
    """
    summarise: Any = summarise_chains_on_disk if isinstance(running[0], RunningOnDisk) else summarise_chains
    found: Summary = summarise(running, fit.components)
    moments = {
        f"{side}_{name}": getattr(value, side)
        for name, value in (("sd", found.sd), ("r_hat", found.r_hat), ("ess", found.ess))
        for side in Entries._fields
        if getattr(value, side) is not None and (name == "sd" or not is_resampled(fit))
    }
    few = replace(fit, **found.mean._asdict(), statistics=_thinned(fit.statistics, every))
    if is_resampled(fit) or getattr(fit.options, "draws", None) == "auto":
        diagnostics = {**fit.diagnostics, "kept_every": float(every)}
        return replace(few, moments=moments, diagnostics=diagnostics)
    rows = judged_rows(len(found.mean.loadings), fit.seed)
    judged = [(found.r_hat.components, found.ess.components), (found.r_hat.loadings[rows], found.ess.loadings[rows])]
    if found.r_hat.scale is not None and found.ess.scale is not None:
        judged.append((found.r_hat.scale[rows], found.ess.scale[rows]))
    judged += [r_hat_and_ess(part) for part in (*drawn_beside(fit.statistics), fit.trace)]
    diagnostics = {**fit.diagnostics, **worst_figures(judged), "kept_every": float(every)}
    mixed, figures = mixing_verdict(diagnostics)
    status = fit.status
    if status.reason != INTERRUPTED:
        status = Status(mixed, f"{fit.trace.size} draws; {figures} (by halves and batches)", fit.trace.size)
    return replace(few, moments=moments, diagnostics=diagnostics, status=status)
