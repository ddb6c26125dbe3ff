"""Match the components of a fit to a reference, such as a catalogue of known components."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesnmf.assessment.checks import check_catalogue
from bayesnmf.cards import Card, Shown
from bayesnmf.checks import check_share
from bayesnmf.data.labels import says_place
from bayesnmf.inference.alignment import cosine, normalise_rows
from bayesnmf.results.checks import check_fit
from bayesnmf.results.intervals import for_intervals
from bayesnmf.results.record import FitRecord

if TYPE_CHECKING:
    import pandas as pd

DRAWS, ENDS = 500, (0.05, 0.95)  # most draws, and the levels of an interval


@dataclass(frozen=True, eq=False, repr=False)
class Match(Shown):
    """One-to-one assignment of the components of a fit to those of a reference.

    Attributes
    ----------
    table : DataFrame
        Row for each assigned component of the fit: its number, the label of the reference component, their cosine, and
        the label and cosine of the reference component that is closest to it, assigned or not. If the fit has draws,
        ``low`` and ``high`` are the ends of the 90 % interval of the cosine over them. A draw varies in every feature,
        so that its cosine is mostly below that of the mean.
    unmatched : ndarray
        Numbers of the components of the fit without a reference component.
    leftover : ndarray
        Labels of the reference components without a component of the fit.
    components : ndarray (K, m)
        Components of the fit, by which figures and pages know a match of another one.

    See Also
    --------
    match : which makes it.

    Examples
    --------
    >>> import bayesnmf
    >>> fit = bayesnmf.fit([[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]], rank=2, seed=0)
    >>> bayesnmf.match(fit, fit.components).table.shape[0]
    2
    """

    table: pd.DataFrame
    unmatched: np.ndarray
    leftover: np.ndarray
    components: np.ndarray

    @property
    def names(self) -> dict[int, str]:
        """Labels of the reference by number of the component, as in {0: "SBS2"}: ``fit.rename(found.names)``.

        It is a mapping, not a list: components without a match are not in it. Labels that are numbers are left out, as
        the ``component 2`` of another fit is.
        """
        pairs = zip(self.table["component"].tolist(), self.table["reference"], strict=True)
        return {number: str(label) for number, label in pairs if not says_place(label)}

    def card(self) -> Card:
        """Return what is shown of it: the table, and what is left on both sides."""
        lines = [
            [f"{each:.3f}" if isinstance(each, float) else str(each) for each in row]
            for row in self.table.itertuples(index=False, name=None)
        ]
        notes = [
            f"components without a match: {', '.join(map(str, self.unmatched)) or 'none'}",
            f"{len(self.leftover)} of the reference are left over",
        ]
        title = f"{len(lines)} of {len(self.components)} components matched"
        calls = ["fit.rename(found.names)", "bayesnmf.plots.signatures(fit, known=found)"]
        return Card(title, list(self.table.columns), lines, notes, calls)


def match(fit: FitRecord, reference: Any, *, least: float = 0.0) -> Match:
    """Match the components of a fit one to one to those of a reference, with the largest sum of cosines.

    Parameters
    ----------
    fit : Fit
    reference : array, DataFrame (r, m), Fit or path
        Components with the features of the fit, matched by name if they have names. A frame's index has the labels of
        its components, and so has a file, as `fixed_components` of `bayesnmf.fit` may be one, and a fit with names of
        them; others are numbered from 0.
    least : float
        Smallest cosine of a match, from 0 to 1; components below it stay unmatched.

    Returns
    -------
    Match

    Raises
    ------
    TypeError, ValueError
        A reference with other features, or with values that are negative or not finite.

    See Also
    --------
    bayesnmf.plots.signatures, bayesnmf.report : Take a match as `known`, and print it.
    bayesnmf.assign : Which samples have each of the components of a catalogue, or of a fit.

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
            **_ends(fit, ours, values[theirs]),
            "closest": labels[closest],
            "closest cosine": similarity[ours, closest],
        }
    )
    unmatched = np.setdiff1d(np.arange(fit.rank), ours)
    return Match(table, unmatched, labels[np.setdiff1d(np.arange(len(values)), theirs)], fit.components)


def _ends(fit: FitRecord, ours: np.ndarray, values: np.ndarray) -> dict[str, np.ndarray]:
    """Return the ends of the intervals of the cosines of these components, if the fit has draws."""
    read = fit if fit.intervals is None else for_intervals(fit)
    if read.estimate.kind != "draws" or not len(ours):
        return {}
    drawn = [components[ours] for _, _, components in read.estimate.iterate(read, DRAWS, fit.seed)]
    cosines = (normalise_rows(np.stack(drawn)) * normalise_rows(values)).sum(axis=-1)
    return dict(zip(("low", "high"), np.quantile(cosines, ENDS, axis=0), strict=True))
