"""What the page of a fit is made of: the fit, what its intervals are read from, and all that is asked of it once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from matplotlib.colors import to_hex

from bayesnmf.assessment.matching import Match
from bayesnmf.assessment.predictive_checks import PredictiveChecks, predictive_checks
from bayesnmf.data.several import is_weighted
from bayesnmf.fitting.fitted import Fit
from bayesnmf.noise.abilities import Distributed
from bayesnmf.pages.words import say
from bayesnmf.plots.style import colours_of_leading, leading
from bayesnmf.results.cautions import excess_of_noise
from bayesnmf.results.intervals import for_intervals
from bayesnmf.results.record import kept_with_fit
from bayesnmf.results.replication import number_to_replicate
from bayesnmf.results.topic_model import to_topic_model
from bayesnmf.studies.selection.selecting import Selection
from bayesnmf.studies.stability.modes import Modes
from bayesnmf.types import Array

REPLICATES = 50


class Given(NamedTuple):
    """What the caller gives beside a fit; `groups` are checked by the page of a fit."""

    groups: Any = None
    image_shape: tuple[int, int] | None = None
    known: Match | None = None
    selection: Selection | None = None
    modes: Modes | None = None


class Read(NamedTuple):
    """A fit as a page reads it.

    `intervals` is the fit with what intervals are read from; `shares` are those of components in rows, `sizes` in all
    expected counts; `lead` has the leading component of each row, and −1 without counts. `checks` are None where there
    can be none, for the reason `unchecked`. `excess` says how much more counts vary than the noise says, if they do.
    """

    fit: Fit
    given: Given
    intervals: Fit
    shares: Array
    sizes: Array
    lead: Array
    colours: list[str]
    checks: PredictiveChecks | None
    unchecked: str
    excess: str = ""


def read(fit: Fit, given: Given) -> Read:
    """Return the fit as a page reads it, after predictive checks."""
    lead = fit.leading_components()["component"].cat.codes.to_numpy(np.intp)
    sizes = fit.expected_sizes / max(fit.expected_sizes.sum(), np.finfo(float).tiny)
    colours = colours_of_leading(fit.rank, leading(fit.expected_sizes, None))  # as in the structure plot
    why = _why_unchecked(fit)
    found = None if why else _checks_of(fit)
    own: Any = list(map(to_hex, colours))
    shares, excess = to_topic_model(fit).proportions, excess_of_noise(fit)
    return Read(fit, given, for_intervals(fit), shares, sizes, lead, own, found, why, excess)


@kept_with_fit
def _checks_of(fit: Any) -> PredictiveChecks:
    """Return predictive checks, which a second page of the fit has again."""
    return predictive_checks(fit, number_to_replicate(fit, REPLICATES), seed=fit.seed)


def _why_unchecked(fit: Fit) -> str:
    """Return why there are no predictive checks, or how to make them; "" if there can be some."""
    if not fit.counts.rows_held:
        return say("checks.on_disk")
    if not isinstance(fit.noise, Distributed):
        return say("checks.no_distribution")
    return say("checks.of_all") if fit.is_of_matrix or is_weighted(fit.counts) else ""
