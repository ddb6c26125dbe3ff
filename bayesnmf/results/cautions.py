"""Whether chains have mixed, and what a reader of a fit must be told before believing it."""

from __future__ import annotations

import numpy as np

from bayesnmf.inference.ascent.optimality import cure_of_mode
from bayesnmf.inference.status import INTERRUPTED
from bayesnmf.options import MAP, METHODS
from bayesnmf.results.label_switching import AMBIGUOUS_LIMIT
from bayesnmf.results.mixing import ESS_LIMIT, R_HAT_LIMIT, judged_parts, mixing
from bayesnmf.results.record import FitRecord


def cure_of(result: FitRecord) -> str:
    """Say what to change in the options of a fit that has not converged."""
    options = result.options
    if isinstance(options, MAP) and result.status.iterations < options.max_iter:  # at rest, but at no optimum
        return cure_of_mode(options)
    change = METHODS[result.method].cure
    if isinstance(options, MAP) and not options.tol:  # it is the KKT residual that ends the fit
        change = change.replace("tol", "kkt_tol")
    return f"{change} in bayesnmf.{type(options).__name__}(...)"


def mixing_of(fit: FitRecord) -> dict[str, float]:
    """Return what was found of the mixing of a fit's chains when it was made; {} of what is not chains.

    A fit saved before all parameters were judged is judged now. Draws of new rows by `transform` are no chains.
    """
    if "r_hat_log_joint" not in fit.diagnostics:
        return {}
    if "max_r_hat" in fit.diagnostics:
        return fit.diagnostics
    return mixing(judged_parts(fit.estimate, fit.seed), fit.trace)  # type: ignore[arg-type]


def cautions_of(fit: FitRecord, r_hat: float | None = None, ess: float | None = None) -> list[str]:
    """Say what a reader of a fit must know: no convergence, chains that disagree, divergences, ambiguous draws.

    Chains are judged by the components, the loadings of up to 50 rows and the log joint (`bayesnmf.results.mixing`),
    and by `r_hat` and `ess`, where these, of other parameters that are looked at, are worse.
    """
    cautions, chains = [], fit.estimate.kind == "draws"
    if fit.status.reason == INTERRUPTED:
        cautions.append("was interrupted; its numbers are of what it had reached")
    elif not fit.status.converged and not chains:
        cautions.append(f"did not converge: {fit.status.reason}; {cure_of(fit)}")
    if chains:
        found = mixing_of(fit)
        r_hat = np.maximum(found.get("max_r_hat", 1.0), 1.0 if r_hat is None else r_hat)
        ess = np.minimum(found.get("min_ess", np.inf), np.inf if ess is None else ess)
        if not r_hat <= R_HAT_LIMIT:  # NaN of too few draws too
            cautions.append(f"R-hat {r_hat:.2f} > {R_HAT_LIMIT}; raise warmup and draws")
        if not ess >= ESS_LIMIT:
            cautions.append(f"ESS {ess:.0f} < {ESS_LIMIT}; raise draws")
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
