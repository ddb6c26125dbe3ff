"""Whether chains have mixed, and what a reader of a fit must be told before believing it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesnmf.fitting import cure_of
from bayesnmf.inference.coordinate_ascent import INTERRUPTED
from bayesnmf.results import Draws, Fit
from bayesnmf.sampling import AMBIGUOUS_LIMIT, ESS_LIMIT, R_HAT_LIMIT

Array = NDArray[Any]

FEWEST_DRAWS = 4  # of a chain, for ArviZ to judge it


def halves(draws: Array) -> Array:
    """Return chains as they are, a single one (1, draws, …) as its two halves, which must agree."""
    if len(draws) > 1:
        return draws
    return draws[:, : draws.shape[1] // 2 * 2].reshape(2, -1, *draws.shape[2:])


def r_hat_and_ess(draws: Array) -> tuple[Array, Array]:
    """R-hat and bulk effective sample size of draws (chains, draws, …), each (…).

    A single chain has the R-hat of its halves. NaN where chains are too short; R-hat is NaN, and the effective sample
    size the number of draws, where all draws are the same.
    """
    from arviz_stats.base import array_stats

    r_hat, ess = np.full((2, *draws.shape[2:]), np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):  # what is constant has neither
        if halves(draws).shape[1] >= FEWEST_DRAWS:
            r_hat = array_stats.rhat(halves(draws), chain_axis=0, draw_axis=1)
        if draws.shape[1] >= FEWEST_DRAWS:
            ess = array_stats.ess(draws, chain_axis=0, draw_axis=1)
    constant = np.ptp(draws, axis=(0, 1)) == 0
    return np.where(constant, np.nan, r_hat), np.where(constant, float(draws.shape[0] * draws.shape[1]), ess)


def cautions_of(fit: Fit, r_hat: float | None = None, ess: float | None = None) -> list[str]:
    """Say what a reader of a fit must know: no convergence, chains that disagree, divergences, ambiguous draws.

    `r_hat` and `ess` are the worst of the parameters that are looked at; by default those of the log joint.
    """
    cautions, chains = [], isinstance(fit._posterior, Draws)
    if fit.status.reason == INTERRUPTED:
        cautions.append("was interrupted; its numbers are of what it had reached")
    elif not fit.status.converged and not chains:
        cautions.append(f"did not converge: {fit.status.reason}; {cure_of(fit)}")
    if chains:
        of = "" if r_hat is not None else " of the log joint"
        r_hat = fit.diagnostics.get("r_hat_log_joint", 1.0) if r_hat is None else r_hat
        ess = fit.diagnostics.get("ess_log_joint", np.inf) if ess is None else ess
        if not r_hat <= R_HAT_LIMIT:  # NaN of too few draws too
            cautions.append(f"R-hat{of} {r_hat:.2f} > {R_HAT_LIMIT}; raise warmup and draws")
        if not ess >= ESS_LIMIT:
            cautions.append(f"ESS{of} {ess:.0f} < {ESS_LIMIT}; raise draws")
    # Labels that switch are no fault, since matching undoes it; draws that cannot be matched are.
    if (share := fit.diagnostics.get("ambiguous_draws", 0)) > AMBIGUOUS_LIMIT:
        cautions.append(
            f"in {share:.0%} of the draws two components can hardly be told apart, and matching decides which is "
            "which; lower rank"
        )
    if (divergences := fit.diagnostics.get("divergences", 0)) > 0:
        cautions.append(f"{divergences:.0f} divergences; raise target_accept")
    return cautions


def labelled(label: str, caution: str) -> str:
    """Put the label of a fit before a caution."""
    return f"{label} {caution}" if caution.startswith(("was ", "did ")) else f"{label}: {caution}"
