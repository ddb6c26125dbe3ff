"""The problem of a fit, and its state of two sides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from bayesnmf.data.counts import Counts
from bayesnmf.inference.side import Side
from bayesnmf.inference.summaries import Summary
from bayesnmf.priors import Distribution


class State(NamedTuple):
    """Both sides: loadings (n, K) and components (K, m)."""

    loadings: Side
    components: Side


@dataclass(frozen=True)
class Problem:
    """Counts, and the prior and summary of each side.

    With `fixed_components` the components are never updated, as for `transform` of new samples. Without `constant` the
    objective leaves out Σ log X!, which needs a pass over the counts and depends on no parameter. `cells` are the
    counts on a device; the factors are then on the device too.
    """

    counts: Counts
    loadings_prior: Distribution
    components_prior: Distribution
    loadings_summary: Summary
    components_summary: Summary
    fixed_components: bool = False
    constant: bool = True
    cells: Any = None
