"""Draw whether the chains of Gibbs sampling or Hamiltonian Monte Carlo agree."""

from __future__ import annotations

from typing import Any, NamedTuple, Unpack

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from scipy.stats import rankdata

from bayesnmf.checks import check_count
from bayesnmf.fitting.fitted import Fit
from bayesnmf.plots import style
from bayesnmf.plots.checks import check_has_chains
from bayesnmf.results.checks import check_fit
from bayesnmf.results.estimates import Draws
from bayesnmf.results.mixing import judged_rows, r_hat_and_ess
from bayesnmf.results.record import trace_of_kept
from bayesnmf.types import Array


class Quantity(NamedTuple):
    """One number followed through all chains: its name and its draws (chains, draws)."""

    name: str
    draws: Array


@style.figure("array of Axes", "Axes to draw on, of shape (n + 1, 2).")
def chains(fit: Fit, n: int = 3, **panels: Unpack[style.Panels]) -> Array:
    """Draw traces and rank plots of the log joint and of the `n` entries that mixed worst.

    The entries are those with the smallest bulk effective sample size among the ones by which the status of the fit is
    judged: all components, and the loadings of up to 50 rows. To the right of each trace are histograms of the ranks of
    each chain's draws among the draws of all chains [1]_: if chains sample the same distribution, they are flat, at the
    dashed line. Titles give R-hat and the bulk effective sample size.

    Parameters
    ----------
    fit : Fit
        Fit by gibbs or nuts.
    n : int
        Number of entries below the log joint.

    Returns
    -------
    ndarray of Axes, (n + 1, 2)

    See Also
    --------
    bayesnmf.Gibbs, bayesnmf.NUTS : what makes chains.

    References
    ----------
    .. [1] A. Vehtari, A. Gelman, D. Simpson, B. Carpenter and P.-C. Bürkner (2021). Rank-normalization, folding, and
       localization: an improved R-hat for assessing convergence of MCMC. Bayesian Analysis 16, 667-718.
    """
    check_fit(fit)
    check_has_chains(fit)
    check_count(n, "n", minimum=0)
    posterior: Draws = fit.posterior  # type: ignore[assignment]
    quantities = [Quantity("log joint (nats)", trace_of_kept(fit)), *worst_entries(fit, posterior, n)]
    grid, figure = style.make_panels((len(quantities), 2), (9, 2.1 * len(quantities) + 0.8), **panels)
    colours = chain_colours(len(fit.trace))
    for row, quantity in zip(grid, quantities, strict=True):
        _draw_trace(row[0], quantity, colours)
        _draw_ranks(row[1], quantity, colours)
    for ax, label in zip(grid[-1], ("draw", "rank among the draws of all chains"), strict=True):
        ax.set_xlabel(label)
    if figure is not None:
        worst = "\nlog joint, and the entries with the smallest effective sample size (ESS)" if n else ""
        figure.suptitle(f"Chains of {fit.model} by {fit.method}{worst}", fontsize=11)
    style.share_legend(grid, figure)
    return grid


def chain_colours(number: int) -> list[Any]:
    """Return one colour for each chain, evenly spaced along viridis without its light end."""
    return list(mpl.colormaps["viridis"](np.linspace(0, 0.85, number)))


def worst_entries(fit: Fit, posterior: Draws, n: int) -> list[Quantity]:
    """Return the entries with the smallest effective sample sizes, of those by which the status is judged."""
    if not n:
        return []
    titles = [style.shorten(title, 20) for title in fit.component_titles]
    rows = judged_rows(len(fit.row_names), fit.seed)
    components, loadings = posterior.components, posterior.loadings[:, :, rows]
    sizes = [r_hat_and_ess(side)[1].ravel() for side in (components, loadings)]
    worst = np.argsort(np.nan_to_num(np.concatenate(sizes), nan=np.inf), kind="stable")[:n]
    found = []
    for place in worst:
        if place < len(sizes[0]):
            k, j = divmod(int(place), components.shape[3])
            name = f"share of {style.called(fit.feature_names[j], 'feature', 20)}\nin {titles[k]}"
            found.append(Quantity(name, components[..., k, j]))
        else:
            i, k = divmod(int(place) - len(sizes[0]), loadings.shape[3])
            kind = "loading" if posterior.scale is None else "share"
            name = f"{kind} of {style.called(fit.row_names[rows[i]], 'row', 20)}\non {titles[k]}"
            found.append(Quantity(name, loadings[..., i, k]))
    return found


def rank_counts(draws: Array, bins: int) -> tuple[Array, Array]:
    """Return bin edges, and for each chain the number of its draws (chains, bins) with ranks in each bin."""
    ranks = rankdata(draws, method="average").reshape(draws.shape)
    edges = np.linspace(0.5, draws.size + 0.5, bins + 1)
    return edges, np.stack([np.histogram(chain, edges)[0] for chain in ranks])


def _draw_trace(ax: Axes, quantity: Quantity, colours: list[Any]) -> None:
    steps = np.arange(1, quantity.draws.shape[1] + 1)
    for number, (draws, colour) in enumerate(zip(quantity.draws, colours, strict=True)):
        ax.plot(steps, draws, color=colour, linewidth=0.7, alpha=0.8, label=f"chain {number}")
    r_hat, ess = r_hat_and_ess(quantity.draws)
    title = f"R-hat {r_hat:.3f}, ESS {ess:,.0f} of {quantity.draws.size:,} draws"
    style.dress(ax, title, y=quantity.name, heading=9)


def _draw_ranks(ax: Axes, quantity: Quantity, colours: list[Any]) -> None:
    each = quantity.draws.shape[1]
    bins = int(np.clip(each // 10, 2, 20))
    edges, counts = rank_counts(quantity.draws, bins)
    for heights, colour in zip(counts, colours, strict=True):
        ax.stairs(heights, edges, baseline=None, color=colour, linewidth=1.4)
    ax.axhline(each / bins, color=style.QUIET, linestyle="--", linewidth=1)
    ax.set_ylim(0, max(counts.max(), each / bins) * 1.15)
    style.dress(ax, "ranks of each chain", y="draws in bin", heading=9)
