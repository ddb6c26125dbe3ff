"""The convergence rule of point estimates: optimality to first order, in addition to an objective at rest.

EM can almost stop far from an optimum, since an update multiplies an entry near 0 by a factor, however large the entry
should become. So a settled objective is not enough. The rule requires of the returned state that

- one more EM update would multiply no entry by more than 1.01, that is `least_gradient` ≥ −0.01
  (`bayesnmf.inference.ascent.kkt`);
- the KKT residual is at most 1e-5 of all counts, or a tenth of a count, or the requested `kkt_tol`.

Both are computed in the basis of the fit. The first has no unit, and the second scales with the counts. On seven real
matrices, the residual was 5e-9 to 6e-6 of all counts after the objective had settled to 1e-7; at 1e-5, the objective
lacks about 3e-4 of its gain over rank 1.
"""

from __future__ import annotations

from bayesnmf.inference.status import Status

LEAST_GRADIENT = -0.01
SHARE, COUNTS = 1e-5, 0.1  # limits of the KKT residual: as a share of all counts, and in counts


def checked_status(status: Status, diagnostics: dict[str, float], total: float, kkt_tol: float) -> Status:
    """Return the status of a mode, changed to not converged, with the reason, if the rule fails.

    Parameters
    ----------
    status : Status
        Status with which the ascent stopped.
    diagnostics : dict
        `kkt_residual`, in counts, and `least_gradient`, a pure number, of the returned state.
    total : float
        Sum of all counts.
    kkt_tol : float
        Requested residual, in counts.
    """
    if not status.converged:
        return status
    least, residual = diagnostics["least_gradient"], diagnostics["kkt_residual"]
    limit = max(SHARE * total, COUNTS, kkt_tol)
    if not least >= LEAST_GRADIENT:
        wrong = f"one more EM update would multiply some entry by {1 - least:.3g}"
    elif not residual <= limit:
        wrong = f"the KKT residual is {residual:.3g} counts, above {limit:.3g}"
    else:
        return status
    return status._replace(converged=False, reason=f"{status.reason}, but {wrong}")
