"""Tools for AnnData and MuData objects, called as scanpy's: results are written into the object."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesnmf.data.annotated import check_annotated
from bayesnmf.data.blocks.opening import Blocks
from bayesnmf.data.conversion import is_several
from bayesnmf.data.labels import Order, order_of
from bayesnmf.fitting import fit as fitting
from bayesnmf.fitting.fitted import Fit
from bayesnmf.results.annotation import check_key, proportions_of, settings_of
from bayesnmf.results.draws import restrict_rows
from bayesnmf.results.intervals import for_intervals
from bayesnmf.types import MethodName, ModelName


def fit(
    adata: Any,
    model: ModelName | int = "gamma_poisson",
    rank: int | None = None,
    method: MethodName = "vi",
    *,
    key_added: str = "bayesnmf",
    **settings: Any,
) -> Fit:
    """Fit the counts of an AnnData or MuData object, write the result into it, and return the fit.

    Parameters
    ----------
    adata : AnnData, MuData, or Blocks of an AnnData object
        Object with counts in ``layers["counts"]`` or, without this layer, in ``X``; neither is changed. The counts of
        an object with ``backed="r"``, and of `Blocks`, stay on disk. The modalities of a MuData object are several
        matrices (docs/several.md), and each has the results of its own.
    model : str
        Name of the model, as for `bayesnmf.fit`; a whole number here is the rank.
    rank : int, optional
        Number of components, as for `bayesnmf.fit`.
    method : str
        Name of the method, as for `bayesnmf.fit`.
    key_added : str
        Name of the results: ``obsm["X_" + key_added]`` has the share of each component in each cell's counts,
        ``obsm["X_" + key_added + "_sd"]`` its posterior standard deviation, ``varm[key_added]`` the components, and
        ``uns[key_added]`` the settings (`Fit.to_anndata`).
    **settings
        Other arguments of `bayesnmf.fit`, such as layer, feature_labels, options and seed.

    Returns
    -------
    Fit

    Raises
    ------
    TypeError, ValueError
        Not an AnnData object, a name with "/", or what `bayesnmf.fit` refuses.

    See Also
    --------
    bayesnmf.fit, bayesnmf.Fit.to_anndata

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> import bayesnmf
    >>> cells = AnnData(np.array([[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]]))
    >>> fit = bayesnmf.tl.fit(cells, rank=2, seed=0)
    >>> cells.obsm["X_bayesnmf"].shape
    (4, 2)
    """
    target = adata.source if isinstance(adata, Blocks) else adata
    if is_several(target) and hasattr(target, "obsm"):
        check_key(key_added)
        found = fitting.fit(adata, model, rank, method, **settings)
        _write_matrices(found, target, key_added)
        return found
    check_annotated(target, "open a file with anndata.read_h5ad(path, backed='r'), and use bayesnmf.fit for the rest")
    check_key(key_added)
    found = fitting.fit(adata, model, rank, method, **settings)
    found.to_anndata(target, key_added=key_added)
    return found


def _write_matrices(found: Fit, mdata: Any, key: str) -> None:
    """Write shares of components into MuData, and the results of each matrix into its modality."""
    for name in found.counts.matrices.names:  # type: ignore[attr-defined]
        part, target = found.matrix(name), mdata.mod[name]
        rows = order_of(part.row_names, np.array(target.obs_names), Order(f"mdata.mod[{name!r}]"))
        Fit.of(restrict_rows(part, rows)).to_anndata(target, key_added=key)
    places = order_of(found.row_names, np.array(mdata.obs_names), Order("mdata"))
    whole = restrict_rows(for_intervals(found), places)
    mean, sd = proportions_of(whole, 0)
    mdata.obsm[f"X_{key}"] = mean
    if sd is not None:
        mdata.obsm[f"X_{key}_sd"] = sd
    mdata.uns[key] = settings_of(found)
