"""Write a fit into an AnnData object, or make one of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesnmf.checks import check_count, shown
from bayesnmf.data.annotated import check_annotated
from bayesnmf.data.blocks.checks import check_read
from bayesnmf.data.checks import check_complete
from bayesnmf.needs import needed_for
from bayesnmf.results.intervals import for_intervals, source_of_intervals
from bayesnmf.results.record import FitRecord, iterate_draws
from bayesnmf.results.topic_model import topic_model_of
from bayesnmf.types import Array

DRAWS = 200


def to_anndata(fit: FitRecord, adata: Any, key: str, seed: int) -> Any:
    """Write proportions, their standard deviations, components and settings into an AnnData object, and return it."""
    check_count(seed, "seed", minimum=0)
    check_key(key)
    if adata is None:
        check_read(fit.counts, "a new AnnData object contains them")
        check_complete(fit.counts, "a new AnnData object")
    target = _new(fit) if adata is None else _checked(fit, adata)
    read = for_intervals(fit)
    mean, sd = proportions_of(read, seed)
    target.obsm[f"X_{key}"] = mean
    if sd is not None:
        target.obsm[f"X_{key}_sd"] = sd
    elif f"X_{key}_sd" in target.obsm:  # that of another fit
        del target.obsm[f"X_{key}_sd"]
    target.varm[key] = np.ascontiguousarray(fit.components.T)
    target.uns[key] = {**settings_of(fit), "intervals": source_of_intervals(read)}
    return target


def check_key(key: Any) -> None:
    """Refuse what cannot be a name in an AnnData file."""
    if not isinstance(key, str) or not key or "/" in key:
        raise ValueError(f"key_added must be a name without '/': found {shown(key)}; give one such as 'bayesnmf'")


def proportions_of(fit: FitRecord, seed: int) -> tuple[Array, Array | None]:
    """Return the expected share of each component in the counts of each row, (n, K), and its standard deviation.

    They are the mean and the standard deviation over up to 200 posterior draws; a point has no standard deviation. Rows
    whose loadings are all 0 have equal shares.
    """
    total, squares, used = np.zeros(fit.loadings.shape), np.zeros(fit.loadings.shape), 0
    for loadings, components in iterate_draws(fit, DRAWS, seed, shares=True):
        shares = topic_model_of(loadings, components).proportions
        total += shares
        squares += shares**2
        used += 1
    mean = total / used
    if fit.estimate.kind == "point" or used < 2:
        return mean, None
    return mean, np.sqrt(np.maximum(squares / used - mean**2, 0.0) * used / (used - 1))


def settings_of(fit: FitRecord) -> dict[str, Any]:
    """Return what made the fit, in numbers and strings, which every file format keeps."""
    return {
        "model": fit.model,
        "method": fit.method,
        "rank": fit.rank,
        "component_names": np.array(fit.component_titles),
        "seed": fit.seed,
        "priors": repr(fit.priors),
        "options": repr(fit.options),
        "noise": repr(fit.noise),
        "missing_entries": 0 if fit.counts.mask is None else fit.counts.mask.number,
        "objective": float(np.asarray(fit.trace).ravel()[-1]),
        "objective_name": fit.objective,
        "converged": bool(fit.status.converged),
        "reason": fit.status.reason,
        "iterations": int(fit.status.iterations),
        "seconds": float(fit.seconds),
    }


def _new(fit: FitRecord) -> Any:
    import pandas as pd
    from scipy.sparse import csr_matrix

    with needed_for("fit.to_anndata"):
        from anndata import AnnData

    none = pd.Index([], dtype="str")  # anndata warns when it has to convert an empty index
    obs, var = (
        pd.DataFrame(index=[str(each) for each in names], columns=none) for names in (fit.row_names, fit.feature_names)
    )
    return AnnData(csr_matrix(fit.counts.matrix), obs=obs, var=var)


def _checked(fit: FitRecord, adata: Any) -> Any:
    check_annotated(adata, "leave it out for a new one")
    for what, ours, theirs in (
        ("rows", fit.row_names, [adata.obs_names]),
        ("features", fit.feature_names, [adata.var_names, *(adata.var[column] for column in adata.var)]),
    ):
        own = [str(each) for each in ours]
        counted = [str(number) for number in range(len(own))]
        if len(theirs[0]) != len(own):
            raise ValueError(
                f"adata must have the {what} of the fit: found {len(theirs[0])}, and {len(own)} in the fit; give the "
                "object that was fitted"
            )
        if own != counted and not any(_same(own, each) for each in theirs):
            raise ValueError(
                f"adata must have the {what} of the fit in their order: found {list(theirs[0][:3])}, and {own[:3]} in "
                "the fit; give the object that was fitted"
            )
    return adata


def _same(own: list[str], names: Any) -> bool:
    """Return whether names are the same, but for identifiers behind repeated labels, and missing labels."""
    given = [str(each) for each in names]
    return all(
        a == b or a.startswith(f"{b} (") or b in ("nan", "None", "<NA>") for a, b in zip(own, given, strict=True)
    )
