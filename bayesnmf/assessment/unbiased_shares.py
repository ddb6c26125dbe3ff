"""Least-squares estimates of the shares of components in samples, which have no bias at any depth, and no bounds."""

from __future__ import annotations

import numpy as np

from bayesnmf.data.checks import check_complete
from bayesnmf.data.suspicions import warn_of_data
from bayesnmf.priors.values import component_sums, rows_to_shares
from bayesnmf.results.record import FitRecord
from bayesnmf.types import Array

FAR = 3.0  # standard errors of a mean
SMALL = 0.05  # what components that are slightly wrong add


def unbiased_shares(fit: FitRecord, groups: list[str], members: list[Array]) -> Array:
    """Return least-squares estimates of the shares of all samples given the components, (n, K), without bounds."""
    counts = fit.counts
    check_complete(counts, "least squares")
    profiles = rows_to_shares(fit.exposed_components, component_sums(fit.exposed_components)).astype(np.float64)
    seen = counts.feature_totals > 0
    scaled = profiles[:, seen] / counts.feature_totals[seen]
    inverse = np.linalg.pinv(scaled @ profiles[:, seen].T, hermitian=True)
    weights = (inverse @ scaled).T
    found = np.concatenate([np.asarray(part.matrix[:, seen] @ weights, np.float64) for _, part in counts.parts()])
    totals = counts.row_totals[:, None]
    shares = np.divide(found, totals, out=np.full_like(found, np.nan), where=totals > 0)
    _warn_of_shares(shares, groups, members, fit.component_titles)
    return shares


def _warn_of_shares(shares: Array, groups: list[str], members: list[Array], components: list[str]) -> None:
    """Warn if the mean share of a component in a group is outside [0, 1] by more than chance and `SMALL`.

    Single samples often are, by chance alone; the mean of a group only if the components do not describe its samples.
    """
    found = []
    for name, rows in zip(groups, members, strict=True):
        if len(rows) > 1:
            mean = shares[rows].mean(axis=0)
            beyond = np.maximum(-mean, mean - 1) - SMALL
            beyond -= FAR * shares[rows].std(axis=0, ddof=1) / np.sqrt(len(rows))
            found += [(float(beyond[k]), f"{mean[k]:.2f} of {components[k]} in group {name!r}")
                      for k in np.flatnonzero(beyond > 0)]  # fmt: skip
    if found:
        warn_of_data(
            f"mean shares leave [0, 1] in {len(found)} of {shares.shape[1] * len(groups)} pairs of group and component "
            f"({max(found)[1]}): the components do not describe these samples, and differences are cut at 1; fit "
            "these samples too or with more components, or compare them alone, with population=False"
        )
