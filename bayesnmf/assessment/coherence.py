"""Coherence of components: do the largest features of a component occur in the same rows?

NPMI of features i and j is log[(p_ij + ε) / (p_i p_j)] / −log(p_ij + ε), where p_i is the share of the rows with
feature i, p_ij that of the rows with both, and ε = 1e-12: 0 if they are independent, 1 if they always occur together,
and toward −1 if they never do. The coherence by "npmi" of a component is the mean over all pairs of its largest
features (Bouma 2009; Aletras & Stevenson 2013). By "c_v" every feature has the vector of its NPMI with all of them,
itself included, and the coherence is the mean cosine of these vectors with their sum (Röder, Both & Hinneburg 2015,
with γ = 1; ε is theirs, too).

They count in windows that slide over a text, of 110 words for C_v and of 10 for NPMI; here every row is one window, as
counts have no order. gensim, told to use windows longer than all texts, has the same values. Shorter windows give
smaller ones: of 5, 10 and 20 topics in 300 news texts of some 160 words, C_v is 0.60, 0.57 and 0.58 in whole texts, and
0.52, 0.48 and 0.47 in windows of 110 words; NPMI is 0.20, 0.17 and 0.17, and 0.02, −0.02 and −0.03 in windows of 10. So
values by rows compare with values by rows alone. Where texts are at hand, their windows can be the rows of `counts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bayesnmf.checks import check_choice, check_count
from bayesnmf.data.checks import check_complete
from bayesnmf.data.conversion import as_counts
from bayesnmf.data.counts import Counts
from bayesnmf.data.naming import in_feature_order
from bayesnmf.results.checks import check_fit
from bayesnmf.results.markers import leading_features
from bayesnmf.results.record import FitRecord
from bayesnmf.types import Array

if TYPE_CHECKING:
    import pandas as pd

MEASURES = ("npmi", "c_v")
SMALL = 1e-12  # ε, which decides what features that never occur together count for


def coherence(fit: FitRecord, counts: Any = None, *, n: int = 10, measure: str = "npmi") -> pd.Series:
    """Return how often the largest features of each component occur in the same rows, from −1 to 1.

    Parameters
    ----------
    fit : Fit
    counts : array, SciPy sparse matrix, pandas DataFrame, AnnData or nested list, (rows, m), optional
        Rows, or windows of texts (Examples), in which occurrences are counted, with the features of the fit; by default
        the rows of the fit. Rows that no fit has seen do not favour components that describe single rows.
    n : int
        Number of largest features of each component, at least 2; all if there are fewer.
    measure : {"npmi", "c_v"}
        Mean NPMI of pairs of features, or C_v: the mean cosine of each feature's vector of NPMI with the sum of these
        vectors. A row is what a sliding window is in the literature; values of windows are smaller.

    Returns
    -------
    Series
        Coherence of each component, by its name. It is NaN if one of the features occurs in no row.

    Raises
    ------
    TypeError, ValueError
        Not a fit, other features, or a number below 2.

    See Also
    --------
    bayesnmf.markers : Features that set a component apart.

    Examples
    --------
    >>> import bayesnmf
    >>> texts = [["cat", "dog", "cat", "fish"], ["dog", "cat", "dog"], ["sun", "rain", "sun", "fish"], ["rain", "sun"]]
    >>> words = ["cat", "dog", "fish", "rain", "sun"]
    >>> counts = [[text.count(word) for word in words] for text in texts]
    >>> fit = bayesnmf.fit(counts, "dirichlet_poisson", 2, feature_names=words, seed=0)
    >>> bayesnmf.coherence(fit, n=2).round(2).tolist()
    [1.0, 1.0]

    In windows of three words, as gensim counts with ``window_size=3``:

    >>> windows = [text[i : i + 3] for text in texts for i in range(max(1, len(text) - 2))]
    >>> rows = [[window.count(word) for word in words] for window in windows]
    >>> bayesnmf.coherence(fit, rows, n=3, measure="c_v").round(2).tolist()
    [0.74, 0.74]
    """
    import pandas as pd

    check_fit(fit)
    check_choice(measure, "measure", MEASURES)
    largest = check_count(n, "n", minimum=2)
    data: Counts = check_complete(fit.counts, "coherence") if counts is None else fit.counts
    if counts is not None:
        data = in_feature_order(as_counts(counts), fit.feature_names)
    order = leading_features(fit, largest, "share")
    together = np.zeros((fit.rank, order.shape[1], order.shape[1]))
    for _, part in data.parts():
        present = (part.matrix > 0).astype(np.float64).tocsc()
        together += np.stack([_together(present[:, features].toarray()) for features in order])
    values = [_coherence_of(npmi(found, data.shape[0]), measure) for found in together]
    return pd.Series(values, index=pd.Index(fit.component_labels, name="component"), name=measure)


def _together(present: Array) -> Array:
    return np.asarray(present.T @ present)


def npmi(together: Array, rows: int) -> Array:
    """Return NPMI of all pairs of features, (n, n), from the numbers of rows in which both are present."""
    together = together / max(rows, 1)
    alone = np.diag(together)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.log((together + SMALL) / np.outer(alone, alone)) / -np.log(together + SMALL)
    found[together == 1] = 1.0  # the limit of features that are always together
    found[alone == 0] = found[:, alone == 0] = np.nan
    return np.asarray(found)


def _coherence_of(pairs: Array, measure: str) -> float:
    if measure == "npmi":
        return float(pairs[np.triu_indices(len(pairs), 1)].mean()) if len(pairs) > 1 else np.nan
    total = pairs.sum(axis=0)
    lengths = np.linalg.norm(pairs, axis=1) * np.linalg.norm(total)
    return float(np.mean(pairs @ total / lengths))
