"""Match the components of a fit to a reference, such as a catalogue of known components."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesnmf.assessment.checks import check_catalogue
from bayesnmf.checks import check_share
from bayesnmf.inference.alignment import cosine
from bayesnmf.results.checks import check_fit
from bayesnmf.results.record import FitRecord

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Match:
    """One-to-one assignment of the components of a fit to those of a reference.

    Attributes
    ----------
    table : DataFrame
        Row for each assigned component of the fit: its number, the label of the reference component, their cosine, and
        the label and cosine of the reference component that is closest to it, assigned or not.
    unmatched : ndarray
        Numbers of the components of the fit without a reference component.
    leftover : ndarray
        Labels of the reference components without a component of the fit.
    """

    table: pd.DataFrame
    unmatched: np.ndarray
    leftover: np.ndarray

    def __str__(self) -> str:
        """Return the table as text, and what is left on both sides."""
        left = f"components without a match: {', '.join(map(str, self.unmatched)) or 'none'}"
        return f"{self.table.to_string(index=False)}\n{left}\n{len(self.leftover)} of the reference are left over"


def match(fit: FitRecord, reference: Any, *, least: float = 0.0) -> Match:
    """Match the components of a fit one to one to those of a reference, with the largest sum of cosines.

    Parameters
    ----------
    fit : Fit
    reference : array, DataFrame (r, m), Fit or path
        Components with the features of the fit, matched by name if they have names. A frame's index has the labels of
        its components, and so has a file, as `fixed_components` of `bayesnmf.fit` may be one; components of an array or
        a fit are numbered from 0.
    least : float
        Smallest cosine of a match, from 0 to 1; components below it stay unmatched.

    Returns
    -------
    Match

    Raises
    ------
    TypeError, ValueError
        A reference with other features, or with values that are negative or not finite.

    Examples
    --------
    >>> import bayesnmf
    >>> fit = bayesnmf.fit([[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]], rank=2, seed=0)
    >>> bayesnmf.match(fit, fit.components[::-1]).table["reference"].tolist()
    [1, 0]
    """
    import pandas as pd
    from scipy.optimize import linear_sum_assignment

    check_fit(fit)
    check_share(least, "least")
    labels, values = check_catalogue(reference, fit)
    similarity = cosine(fit.components, values)
    ours, theirs = linear_sum_assignment(similarity, maximize=True)
    kept = similarity[ours, theirs] >= least
    ours, theirs = ours[kept], theirs[kept]
    closest = similarity[ours].argmax(axis=1)
    table = pd.DataFrame(
        {
            "component": ours,
            "reference": labels[theirs],
            "cosine": similarity[ours, theirs],
            "closest": labels[closest],
            "closest cosine": similarity[ours, closest],
        }
    )
    unmatched = np.setdiff1d(np.arange(fit.rank), ours)
    return Match(table, unmatched, labels[np.setdiff1d(np.arange(len(values)), theirs)])
