"""When a point estimate may be called converged: an optimum, to first order, and not only an objective at rest.

EM can all but stop far from an optimum, since an entry near 0 grows by a factor in each update, however much it should
grow. So an objective that has settled is not enough. The rule here asks of the state that is returned:

- one more EM update would multiply no entry by more than 1.01, `least_gradient` ≥ −0.01
  (`bayesnmf.inference.ascent.kkt`);
- the KKT residual is at most 1e-5 of all counts, or a tenth of a count, or the `kkt_tol` that was asked for.

Both are taken in the basis of the fit. The first has no unit, and the second scales with the counts. On seven real
matrices, what an objective settled to 1e-7 leaves is 5e-9 to 6e-6 of all counts; 1e-5 is where about 3e-4 of the gain
over rank 1 is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bayesnmf.inference.status import Status
from bayesnmf.options.defaults import regression_fault

if TYPE_CHECKING:
    from bayesnmf.options import MAP


LEAST_GRADIENT = -0.01
SHARE, COUNTS = 1e-5, 0.1  # of the KKT residual: of all counts, and in counts


def judged(status: Status, diagnostics: dict[str, float], total: float, kkt_tol: float) -> Status:
    """Return the status of a mode, no longer converged where the rule fails; the reason then says how.

    Parameters
    ----------
    status : Status
        Why the ascent stopped.
    diagnostics : dict
        `kkt_residual`, in counts, and `least_gradient`, a pure number, of the state that is returned.
    total : float
        Sum of all counts.
    kkt_tol : float
        The residual that was asked for, in counts.
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


def cure(options: MAP) -> str:
    """Say what brings a mode nearer to an optimum once its objective has settled, as these options and priors allow."""
    if options.algorithm == "em" and _may_descend(options):
        return "use algorithm='scd', extrapolate=True in bayesnmf.MAP(...)"
    rule = "kkt_tol" if options.tol == 0 else "tol"
    return f"use {'' if options.extrapolate else 'extrapolate=True or '}a lower {rule} in bayesnmf.MAP(...)"


def _may_descend(options: MAP) -> bool:
    """Whether coordinate descent is legal in place of EM."""
    legal = options.basis != "log" and options.schedule != "joint" and options.device == "cpu"
    return legal and not regression_fault(options.priors.loadings, options.priors.components)
