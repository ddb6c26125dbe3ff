"""What pyLDAvis draws a fit from."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesnmf.priors.values import rows_to_shares
from bayesnmf.results.checks import check_fit
from bayesnmf.results.markers import SMALLEST
from bayesnmf.results.record import FitRecord
from bayesnmf.results.topic_model import to_topic_model
from bayesnmf.types import Array


def to_pyldavis(fit: FitRecord) -> dict[str, Any]:
    """Return the arguments of ``pyLDAvis.prepare`` for a fit of any model: ``pyLDAvis.prepare(**to_pyldavis(fit))``.

    They are those of the topic model of the fit (`to_topic_model`), which the package pyLDAvis (Sievert & Shirley 2014,
    *LDAvis: A Method for Visualizing and Interpreting Topics*) draws. It takes logarithms of shares and of frequencies:
    rows and features without counts are left out, and shares below 10⁻¹² count as 10⁻¹². If its `save_html` meets
    complex numbers, as pyLDAvis 3.4 may where components are alike, ``prepare(..., mds="mmds")`` makes none.

    Parameters
    ----------
    fit : Fit

    Returns
    -------
    dict
        ``topic_term_dists`` (K, m) and ``doc_topic_dists`` (n, K), whose rows sum to 1, ``doc_lengths`` (n,),
        ``vocab``, a list of m names, and ``term_frequency`` (m,), of the n rows and m features with counts; and
        ``sort_topics=False``, ``start_index=0``, so that its topics have the numbers of the components.

    Raises
    ------
    TypeError
        Not a fit.

    See Also
    --------
    to_topic_model : The topic model itself.

    Examples
    --------
    >>> import bayesnmf
    >>> fit = bayesnmf.fit([[3, 0, 1], [0, 0, 4], [5, 0, 0], [0, 0, 0]], rank=2, seed=0)
    >>> given = bayesnmf.to_pyldavis(fit)
    >>> given["vocab"], given["doc_topic_dists"].shape
    (['0', '2'], (3, 2))
    """
    check_fit(fit)
    model, counts = to_topic_model(fit), fit.counts
    rows, features = counts.row_totals > 0, counts.feature_totals > 0
    return {
        "topic_term_dists": _positive(model.components[:, features]),
        "doc_topic_dists": _positive(model.proportions[rows]),
        "doc_lengths": counts.row_totals[rows],
        "vocab": [str(name) for name in fit.feature_names[features]],
        "term_frequency": counts.feature_totals[features],
        "sort_topics": False,
        "start_index": 0,
    }


def _positive(shares: Array) -> Array:
    """Return shares that are all positive; rows sum to 1."""
    raised = np.maximum(shares, SMALLEST)
    return rows_to_shares(raised, raised.sum(axis=-1))
