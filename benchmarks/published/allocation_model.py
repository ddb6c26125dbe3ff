"""Repeat the experiments of [K], Bayesian NMF as an Allocation Model: table 1 and figure 1.

``python benchmarks/published/allocation_model.py [--out DIR] [--matrices 1000] [--restarts 40] [--seed 0] [--quick]``

Table 1: random matrices from the model. KL-NMF is EM with components on the simplex, S = X φ at its factors; "BLD from
KL-NMF" starts at those factors, "BLD from vi" at a variational fit, and "BLD, 3 random starts" keeps the best of
three. The paper does not define its measure of sparseness; three versions of Hoyer's are printed.

Figure 1: the Swimmer. [K] writes samples in columns: its Dirichlet(0.05) on the columns of W is our η, and its
Dirichlet(10, …, 10, 60) on those of H is our α. A pixel of a part counts 1. Each of `--restarts` random starts is
followed by a MAP fit, and the decomposition with the highest log p(S) is shown.

Measured (seed 0, 1,000 matrices; four minutes on two busy cores), standard errors of the means in brackets::

                         log p(S)       Hoyer of S       published
    KL-NMF               -243.4 (0.4)   0.436 (0.002)    -239.2, 0.45
    BLD from KL-NMF      -228.1 (0.3)   0.486 (0.001)    -229.5, 0.50
    BLD from vi          -224.4 (0.4)   0.490 (0.001)
    BLD, 3 random starts -223.5 (0.3)   0.500 (0.001)

Swimmer: the best of 40 starts has exactly the true parts, all 16 limbs and the torso with cosine 1.00, at log p(S) =
-24,180, where an ascent from the true parts also ends. The result is the same for each of the seeds 0 to 4, although
only one of 24 single starts reached this value, and the next best ended at -24,245. KL-NMF has 16 limbs, each with a
share of the torso, and no torso (cosine 0.35).
"""

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

import bayesnmf
from bayesnmf import BLD, MAP, Dirichlet, Priors, ScaledDirichlet
from bayesnmf.datasets import SWIMMER_IMAGE, swimmer, swimmer_parts
from bayesnmf.fitting.fitted import Fit
from bayesnmf.inference import alignment

Array = NDArray[Any]

SAMPLES, FEATURES, RANK = 10, 8, 2
TABLE_PRIORS = Priors(ScaledDirichlet(1.0, 40.0, 1.0), Dirichlet(1.0))
PUBLISHED = {"KL-NMF": (0.45, -239.2), "BLD from KL-NMF": (0.50, -229.5)}
SWIMMER_PRIORS = Priors(ScaledDirichlet(np.r_[np.full(16, 10.0), 60.0], 100.0, 1.0), Dirichlet(0.05))
SAMPLE, RECOVERED = 99, 0.9


def draw(rng: np.random.Generator) -> Array:
    """Return counts drawn from the model."""
    loadings, components = rng.dirichlet(np.ones(RANK), SAMPLES), rng.dirichlet(np.ones(FEATURES), RANK)
    return rng.poisson(rng.gamma(40.0, 1.0, (SAMPLES, 1)) * (loadings @ components))


def hoyer(values: Array, axis: Any = None) -> Array:
    """Return Hoyer's sparseness: 1 if one entry has all counts, 0 if all are equal; NaN for less than 1e-9 counts."""
    root = np.sqrt(values.size if axis is None else np.prod([values.shape[at] for at in np.atleast_1d(axis)]))
    total = values.sum(axis)
    length = np.sqrt(np.where(total > 1e-9, (values**2).sum(axis), np.nan))
    return (root - total / length) / (root - 1)


SPARSENESS: dict[str, Callable[[Array], float]] = {
    "S": lambda S: float(hoyer(S)),
    "slices": lambda S: float(np.nanmean(hoyer(S, (0, 2)))),  # of each S_:k:, mean over components
    "factors": lambda S: float(np.mean(hoyer(S.sum(axis=2), 1))) / 2 + float(np.nanmean(hoyer(S.sum(axis=0), 1))) / 2,
}


def table(matrices: int, seed: int) -> None:
    """Print table 1 next to the published values."""
    rows: dict[str, list[list[float]]] = {}
    for index in range(matrices):
        counts = draw(np.random.default_rng([seed, index]))
        kl = bayesnmf.fit(counts, "poisson", RANK, "map", seed=index, options=MAP(threads=1))
        fits = {"KL-NMF": kl}
        for name, options in (
            ("BLD from KL-NMF", BLD(priors=TABLE_PRIORS, start=kl, tol=1e-6, threads=1)),
            ("BLD from vi", BLD(priors=TABLE_PRIORS, start="vi", tol=1e-6, threads=1)),
            ("BLD, 3 random starts", BLD(priors=TABLE_PRIORS, start="random", restarts=3, tol=1e-6, threads=1)),
        ):
            fits[name] = bayesnmf.fit(counts, "dirichlet_gamma", RANK, "bld", seed=index, options=options)
        for name, fit in fits.items():
            S = fit.allocations()
            log_p = fits["BLD from KL-NMF"].trace[0] if fit is kl else fit.trace[-1]
            rows.setdefault(name, []).append([log_p, *(measure(S) for measure in SPARSENESS.values())])
    print(f"Table 1: {matrices} matrices, {FEATURES} features × {SAMPLES} samples, K = {RANK}, a = 40, b = 1")
    print(f"{'':22}{'log p(S)':>18}" + "".join(f"{'Hoyer, ' + name:>18}" for name in SPARSENESS) + "   published")
    for name, values in rows.items():
        mean, error = np.mean(values, axis=0), np.std(values, axis=0) / np.sqrt(len(values))
        shown = f"{mean[0]:10.1f} ± {error[0]:.1f}".rjust(18)
        shown += "".join(f"{a:.3f} ± {b:.3f}".rjust(18) for a, b in zip(mean[1:], error[1:], strict=True))
        print(f"{name:22}{shown}   " + ("sparseness {}, log p(S) {}".format(*PUBLISHED.get(name, ("–", "–")))))
    print()


def swimmer_fits(restarts: int, seed: int) -> dict[str, Fit]:
    """Fit the Swimmer by KL-NMF and by BLD."""
    counts = swimmer()
    options = BLD(priors=SWIMMER_PRIORS, start="map", restarts=restarts)
    return {
        "KL-NMF": bayesnmf.fit(counts, "poisson", 17, "map", seed=seed, options=MAP()),
        "BLD": bayesnmf.fit(counts, "dirichlet_gamma", 17, "bld", seed=seed, options=options),
    }


def of_true_parts() -> Fit:
    """Fit from the true parts, to see which log p(S) they reach."""
    parts = swimmer_parts() / swimmer_parts().sum(axis=1, keepdims=True)
    shares = (swimmer().matrix @ swimmer_parts().T) / swimmer().row_totals[:, None]
    start = bayesnmf.Start(shares, np.roll(parts, -1, axis=0))  # the torso has the largest concentration, the last
    start = bayesnmf.Start(np.roll(shares, -1, axis=1), start.components)
    options = BLD(priors=SWIMMER_PRIORS, start=start)
    return bayesnmf.fit(swimmer(), "dirichlet_gamma", 17, "bld", options=options)


def recovered(fit: Fit) -> tuple[Array, Array]:
    """Return the order that matches components to the true parts (torso first), and their cosines."""
    parts = swimmer_parts()
    order = alignment.match_components(fit.components, parts)
    return order, np.diag(alignment.cosine(fit.components[order], parts))


def figure(fit: Fit, path: Path) -> None:
    """Draw the allocations of one sample above the components, both in the order of the true parts."""
    order, cosines = recovered(fit)
    slices = fit.allocations([fit.row_names[SAMPLE]])[0]
    made, axes = plt.subplots(2, 17, figsize=(17, 2.9), layout="constrained")
    for position, k in enumerate(order):
        for row, (values, top) in enumerate(((slices[k], slices.max()), (fit.components[k], None))):
            ax = axes[row, position]
            ax.imshow(values.reshape(SWIMMER_IMAGE), cmap="gray_r", vmin=0, vmax=top)
            ax.set_xticks([])
            ax.set_yticks([])
        axes[1, position].set_xlabel(f"{cosines[position]:.2f}", fontsize=8)
    axes[0, 0].set_ylabel(f"S of sample {SAMPLE + 1}", fontsize=8)
    axes[1, 0].set_ylabel("components", fontsize=8)
    made.savefig(path, dpi=150)
    plt.close(made)


def main(arguments: list[str] | None = None) -> int:
    """Run both experiments."""
    parser = argparse.ArgumentParser(description="Table 1 and figure 1 of [K].")
    parser.add_argument("--out", type=Path, default=Path("results/published"))
    parser.add_argument("--matrices", type=int, default=1000)
    parser.add_argument("--restarts", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="30 matrices, 6 restarts")
    asked = parser.parse_args(arguments)
    if asked.quick:
        asked.matrices, asked.restarts = 30, 6
    asked.out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore", bayesnmf.ConvergenceWarning)
    started = time.perf_counter()
    table(asked.matrices, asked.seed)
    print(f"Figure 1: {swimmer()}, K = 17, a = 100, b = 1, η = 0.05, α = (10, …, 10, 60)")
    for name, fit in (swimmer_fits(asked.restarts, asked.seed) | {"BLD from the true parts": of_true_parts()}).items():
        _, cosines = recovered(fit)
        limbs = int(np.sum(cosines[1:] > RECOVERED))
        log_p = f", log p(S) {fit.trace[-1]:,.0f}" if fit.method == "bld" else ""
        print(f"{name:24} limbs {limbs}/16, torso {cosines[0]:.2f}{log_p}")
        path = asked.out / f"swimmer_{name.lower().replace(' ', '_').replace('-', '_')}.png"
        figure(fit, path)
        print(f"  wrote {path}")
    print(f"{time.perf_counter() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
