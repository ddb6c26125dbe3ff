"""Tools for AnnData objects, called as scanpy's: results are written into the object."""

from __future__ import annotations

from typing import Any

from bayesnmf.data.annotated import check_annotated
from bayesnmf.data.blocks.opening import Blocks
from bayesnmf.fitting import fit as fitting
from bayesnmf.fitting.fitted import Fit
from bayesnmf.results.annotation import check_key


def fit(
    adata: Any,
    model: str = "gamma_poisson",
    rank: int | None = None,
    method: str = "vi",
    *,
    key_added: str = "bayesnmf",
    **settings: Any,
) -> Fit:
    """Fit the counts of an AnnData object, write the result into it, and return the fit.

    Parameters
    ----------
    adata : AnnData, or Blocks of an AnnData object
        Object with counts in ``layers["counts"]`` or, without this layer, in ``X``; neither is changed. The counts of
        an object with ``backed="r"``, and of `Blocks`, stay on disk.
    model, rank, method
        As for `bayesnmf.fit`.
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
    """
    target = adata.source if isinstance(adata, Blocks) else adata
    check_annotated(target, "open a file with anndata.read_h5ad(path, backed='r'), and use bayesnmf.fit for the rest")
    check_key(key_added)
    found = fitting.fit(adata, model, rank, method, **settings)
    found.to_anndata(target, key_added=key_added)
    return found
