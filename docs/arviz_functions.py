"""Write the tables of docs/arviz_functions.md, of what works on trees of fits: `python docs/arviz_functions.py`.

`CALLS` has one call of every function of arviz-stats and arviz-plots that suits; each is tried on the tree of a fit by
each method of `METHODS`. `OUTSIDE` says why the others do not. `tests/results/test_arviz_functions.py` compares.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import arviz as az
import matplotlib
import matplotlib.pyplot as plt
import numpy as np

import bayesnmf
from bayesnmf import MAP, NUTS, SVI, VI, Dirichlet, Gamma, Gibbs, Priors

PAGE = Path(__file__).with_suffix(".md")
PRIORS = Priors(Gamma(2.0, 0.1), Dirichlet(2.0))
METHODS: dict[str, Any] = {
    "map": MAP(priors=PRIORS),
    "vi": VI(priors=PRIORS, intervals="mean_field"),
    "gibbs": Gibbs(priors=PRIORS, chains=4, draws=100, warmup=100, threads=1),
    "nuts": NUTS(priors=PRIORS, chains=2, draws=100, warmup=100),
    "svi": SVI(priors=PRIORS, max_iter=300),
}
GROUPS = ("log_likelihood", "posterior_predictive", "prior", "prior_predictive", "log_prior")
ONE: dict[str, Any] = {"var_names": ["components"], "coords": {"k": [0], "feature": [0, 1]}}


class Trees:
    """The tree of a fit by a method, `whole`, and the same with one dimension of entries, `flat`."""

    def __init__(self, method: str) -> None:
        counts = bayesnmf.simulate("gamma_poisson", (6, 5), 2, seed=1).counts
        fit = bayesnmf.fit(counts, "gamma_poisson", 2, method, seed=0, options=METHODS[method])
        asked: dict[str, Any] = dict.fromkeys(GROUPS, True) | {"draws": None if fit.estimate.held else 100}
        self.whole, self.flat = (fit.to_datatree(entries=entries, **asked) for entries in (False, True))
        self.fit = fit


def by_name(name: str, **given: Any) -> Callable[[Trees], Any]:
    """Return a call of a function on the whole tree."""
    return lambda trees: getattr(az, name)(trees.whole, **given)


def of_entries(name: str, **given: Any) -> Callable[[Trees], Any]:
    """Return a call of a function on the tree of entries."""
    return lambda trees: getattr(az, name)(trees.flat, **given)


def loo_approximate_posterior(trees: Trees) -> Any:
    """Correct leave-one-out of draws from q by their densities under the posterior and under q."""
    log_p, log_q = densities(trees)
    return az.loo_approximate_posterior(trees.whole, log_p=log_p, log_q=log_q)


def densities(trees: Trees) -> tuple[Any, Any]:
    """Return log p(X, draw) and log q(draw), (chain, draw)."""
    tree, q = trees.whole, trees.fit.posterior
    log_p = tree["log_likelihood"]["counts"].sum(("row", "feature"))
    log_p = log_p + tree["log_prior"]["loadings"] + tree["log_prior"]["components"]
    log_q = log_p.copy()
    for at in np.ndindex(log_q.shape):
        sides = {side: tree["posterior"][side].to_numpy()[at] for side in ("loadings", "components")}
        log_q[at] = sum(getattr(q, side).broadcast(value.shape).log_density(value) for side, value in sides.items())
    return log_p, log_q


def compared(trees: Trees) -> dict[str, Any]:
    """Return two trees by name."""
    return {"one": trees.whole, "other": trees.whole.sel(draw=trees.whole["posterior"]["draw"] >= 10)}


CALLS: dict[str, Callable[[Trees], Any]] = {
    **{name: by_name(name) for name in (
        "summary", "rhat", "ess", "mcse", "diagnose", "mean", "median", "mode", "std", "var", "mad", "iqr", "eti",
        "hdi", "histogram", "kde", "thin", "bfmi", "psense", "psense_summary", "loo",
    )},
    "rhat_nested": lambda trees: az.rhat_nested(trees.whole, superchain_ids=nested(trees)),
    "ci_in_rope": by_name("ci_in_rope", rope=(0.0, 0.1), var_names=["components"]),
    "bayes_factor": lambda trees: az.bayes_factor(single(trees), "components", ref_vals=0.1),
    "compare": lambda trees: az.compare(compared(trees)),
    "loo_i": lambda trees: az.loo_i(0, trees.flat),
    "loo_pit": by_name("loo_pit"),
    "loo_expectations": of_entries("loo_expectations"),
    "loo_influence": of_entries("loo_influence"),
    "loo_metrics": of_entries("loo_metrics"),
    "loo_score": of_entries("loo_score"),
    "loo_subsample": of_entries("loo_subsample", observations=10),
    "loo_approximate_posterior": loo_approximate_posterior,
    "metrics": of_entries("metrics"),
    "kl_divergence": lambda trees: az.kl_divergence(trees.whole, trees.whole, num_samples=50),
    "wasserstein": lambda trees: az.wasserstein(trees.whole, trees.whole, num_samples=50),
    "weight_predictions": lambda trees: az.weight_predictions([trees.whole, trees.whole], weights=[0.3, 0.7]),
    **{name: by_name(name, **ONE) for name in (
        "plot_autocorr", "plot_convergence_dist", "plot_dist", "plot_ess", "plot_ess_evolution", "plot_forest",
        "plot_mcse", "plot_pair", "plot_parallel", "plot_prior_posterior", "plot_psense_dist",
        "plot_psense_quantities", "plot_rank", "plot_rank_dist", "plot_ridge", "plot_trace", "plot_trace_dist",
        "plot_dgof", "plot_dgof_dist",
    )},
    "plot_pair_focus": lambda trees: az.plot_pair_focus(
        trees.whole, "components", focus_var_coords={"k": 0, "feature": 0}, **ONE
    ),
    "plot_bf": lambda trees: az.plot_bf(single(trees), "components", ref_val=0.1),
    "plot_energy": by_name("plot_energy"),
    "plot_khat": lambda trees: az.plot_khat(az.loo(trees.flat, pointwise=True)),
    "plot_compare": lambda trees: az.plot_compare(az.compare(compared(trees))),
    "plot_ppc_dist": of_entries("plot_ppc_dist", num_samples=5),
    **{name: of_entries(name) for name in (
        "plot_ppc_pit", "plot_ppc_rootogram", "plot_ppc_tstat", "plot_ppc_interval", "plot_loo_interval",
        "plot_loo_pit", "plot_ppc_dist_pit",
    )},
}  # fmt: skip
BINARY, NORMAL = "for binary, categorical or ordinal observations", "for the normal errors of a regression"
OUTSIDE = {
    **dict.fromkeys(("plot_loo_pava", "plot_ppc_pava", "plot_ppc_pava_residuals"), BINARY),
    **dict.fromkeys(("bayesian_r2", "loo_r2", "residual_r2"), NORMAL),
    "plot_lm": "for one predictor of a regression; of covariates, `plots.effects`",
    **dict.fromkeys(("generate_survival_curves", "kaplan_meier", "plot_ppc_censored"), "for censored times"),
    "reloo": "fits again by a wrapper of a sampler; `bayesnmf.loo(fit, refit=20)` does so",
    "loo_kfold": "fits again by a wrapper of a sampler; `bayesnmf.select` holds counts out",
    "lfo_cv": "for series in time",
    "loo_moment_match": "needs the density of unconstrained parameters; `bayesnmf.loo(fit, refit=20)` fits again",
    "update_subsample": "adds entries to `loo_subsample`, for which `bayesnmf.loo(fit, most=...)` is at hand",
    **dict.fromkeys(("ecdf", "qds"), "of an array or a data set, `tree.posterior.dataset`"),
    "plot_ecdf_pit": "of `bayesnmf.calibrate(...).to_datatree()`",
    **dict.fromkeys(("add_bands", "add_lines", "combine_plots"), "draws into other figures"),
    **dict.fromkeys(("get_function", "get_log_likelihood", "hexbin", "histogram2d", "kde2d"), "of arrays"),
}  # fmt: skip


ONE_DRAW = "a point is one draw"
WHY = {
    **dict.fromkeys(("bfmi", "plot_energy"), "energies of Hamiltonian Monte Carlo"),
    "loo_approximate_posterior": "corrects draws from q",
    "histogram": "a point has no range",
    "plot_parallel": "one draw is no line",
}


def nested(trees: Trees) -> list[int]:
    """Return superchains of two chains each."""
    return [chain // 2 for chain in range(trees.whole["posterior"].sizes["chain"])]


def single(trees: Trees) -> Any:
    """Return the tree of one entry of the components."""
    return trees.whole.sel(k=0, feature=trees.whole["posterior"]["feature"][0].item())


@cache
def trees_of(method: str) -> Trees:
    """Return the trees of a fit by a method."""
    with warnings.catch_warnings(action="ignore"):
        return Trees(method)


def outcome(name: str, method: str) -> str:
    """Return "" if a function works on the tree of a method, or what it says."""
    with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()):
        try:
            CALLS[name](trees_of(method))
        except Exception as error:  # whatever ArviZ raises is what the page says
            return f"{type(error).__name__}: {error}"
        finally:
            plt.close("all")
    return ""


def table() -> list[str]:
    """Return the lines of the table of functions that suit."""
    lines = [f"| function | {' | '.join(METHODS)} | where not |", "|---" * (len(METHODS) + 2) + "|"]
    for name in sorted(CALLS):
        found = ["no" if outcome(name, method) else "yes" for method in METHODS]
        lines.append(f"| `{name}` | {' | '.join(found)} | {WHY.get(name, ONE_DRAW) if 'no' in found else ''} |")
    return lines


def outside() -> list[str]:
    """Return the lines of the table of the other functions."""
    reasons: dict[str, list[str]] = {}
    for name, reason in OUTSIDE.items():
        reasons.setdefault(reason, []).append(f"`{name}`")
    return ["| function | why not |", "|---|---|", *(f"| {', '.join(n)} | {why} |" for why, n in reasons.items())]


def page() -> str:
    """Return the page with its tables as they should be."""
    text = PAGE.read_text(encoding="utf-8")
    for name, lines in (("functions", table()), ("others", outside())):
        before, _, rest = text.partition(f"<!-- {name} -->\n")
        after = rest.partition(f"<!-- end of {name} -->")[2]
        text = f"{before}<!-- {name} -->\n" + "\n".join(lines) + f"\n<!-- end of {name} -->{after}"
    return text


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    matplotlib.use("agg")
    PAGE.write_text(page(), encoding="utf-8")
