"""Decide whether chains have run long enough, and whether more draws would help: not in different modes."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesnmf.inference import alignment
from bayesnmf.results.estimates import Draws
from bayesnmf.results.mixing import (
    ESS_LIMIT,
    R_HAT_LIMIT,
    SETTLED_ESS,
    SETTLED_R_HAT,
    SETTLED_SHARE,
    mixing,
    r_hat_and_ess,
)
from bayesnmf.results.record import effective_loadings
from bayesnmf.types import Array

# Chains that have each mixed, by their own R-hat and effective sample size, and differ by this R-hat are in different
# modes: means of that many effective draws of one distribution differ by far less.
APART, TOGETHER, KNOWN = 1.5, 1.05, 50
DIFFERENT = "chains are in different modes"


def shares_of(fit: Any, posterior: Draws) -> Array:
    """Return the share of each component in the expected counts of every draw, (chains, draws, K)."""
    sizes = np.empty(posterior.components.shape[:3])
    for chain, (loadings, components) in enumerate(zip(posterior.loadings, posterior.components, strict=True)):
        scale = None if posterior.scale is None else posterior.scale[chain]
        sizes[chain] = effective_loadings(fit, loadings, scale, components).sum(axis=1)
        sizes[chain] *= fit.counts.exposed_components(components).sum(axis=2)
    return sizes / sizes.sum(axis=2, keepdims=True)


def whole_is_settled(shares: Array, log_joint: Array, threads: int | None) -> bool:
    """Return whether log joint and shares have settled, as `is_settled` asks; they take the least time to judge."""
    r_hat, ess = r_hat_and_ess(log_joint, threads)
    return bool(r_hat <= SETTLED_R_HAT and ess >= SETTLED_ESS) and ess_of_shares(shares, threads) >= SETTLED_ESS


def ess_of_shares(shares: Array, threads: int | None) -> float:
    """Return the smallest bulk effective sample size of the shares; 0 for chains too short."""
    return float(np.nan_to_num(r_hat_and_ess(shares, threads)[1]).min())


def figures_of(parts: list[Array], log_joint: Array, shares: Array, threads: int | None) -> dict[str, float]:
    """Return the diagnostics of `mixing`, and the smallest effective sample size of the shares."""
    found = mixing(parts, log_joint, threads)
    return {**found, "ess_shares": ess_of_shares(shares, threads)}


def is_settled(found: dict[str, float]) -> bool:
    """Return whether chains have run long enough: R-hat at most 1.01 in 99 % of the entries, and 1.05 in all.

    The log joint needs R-hat at most 1.01, and it and the shares an effective sample size of 400; entries need 100.
    """
    return (
        found["share_unsettled"] <= SETTLED_SHARE
        and found["r_hat_log_joint"] <= SETTLED_R_HAT
        and found["max_r_hat"] <= R_HAT_LIMIT
        and found["min_ess"] >= ESS_LIMIT
        and min(found["ess_log_joint"], found["ess_shares"]) >= SETTLED_ESS
    )


def in_words(found: dict[str, float]) -> str:
    """Return the figures that `is_settled` judges."""
    return (
        f"R-hat at most {found['max_r_hat']:.3f}, above {SETTLED_R_HAT} in {found['share_unsettled']:.1%} of the "
        f"components and loadings, {found['r_hat_log_joint']:.3f} of the log joint; ESS at least "
        f"{found['min_ess']:.0f}, {found['ess_log_joint']:.0f} of the log joint, at least {found['ess_shares']:.0f} "
        "of the shares"
    )


def difference_of_modes(components: Array, log_joint: Array) -> str:
    """Return a text if chains are in different modes, else "".

    A component is judged as a whole, by its cosine with the mean of the first chain's. Chains that have not yet mixed
    are not told apart: each needs an effective sample size of 50, and halves that agree.

    Parameters
    ----------
    components : ndarray (chains, draws, K, m)
        Components in matched order.
    log_joint : ndarray (chains, draws)
    """
    if len(components) < 2:
        return ""
    first = alignment.normalise_rows(components[0].mean(axis=0))
    cosines = np.einsum("cdkm,km->cdk", alignment.normalise_rows(components), first)
    judged = np.concatenate([cosines, log_joint[:, :, None]], axis=2)
    own = [r_hat_and_ess(chain[None], 1) for chain in judged]
    within, least = np.max([r_hat for r_hat, _ in own], axis=0), np.min([ess for _, ess in own], axis=0)
    between = r_hat_and_ess(judged, 1)[0]
    apart = (between >= APART) & (within <= TOGETHER) & (least >= KNOWN)
    if not apart.any():
        return ""
    worst = int(np.where(apart, between, 0.0).argmax())
    what = "the log joint" if worst == components.shape[2] else f"component {worst}"
    return (
        f"{DIFFERENT}: R-hat of {what} is {between[worst]:.2f} between chains and at most "
        f"{within[worst]:.2f} within one"
    )
