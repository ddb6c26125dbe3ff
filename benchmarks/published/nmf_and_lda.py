"""Compare the bound of LDA with the objective of KL-NMF, to which it converges as documents grow.

``python benchmarks/published/nmf_and_lda.py [--out results/published] [--seed 0]``

Faleiros & Lopes, *On the equivalence between algorithms for NMF and LDA*, insert logΓ(x) ≈ x log x − x and
ψ(x) ≈ log x into the variational bound of LDA. With p_i = γ_i / Σ_k γ_ik and corrected signs in equations 10-12, it is

    Σ X log(pβ) + Σ_ik α_k log p_ik + n [logΓ(α_+) − Σ_k logΓ(α_k)]  up to constants of the data,

that is, −KL(X ‖ diag(N) pβ) and a regulariser. The next terms of both series give the difference,

    gap = Σ_i [½ log γ_i+ − ½ Σ_k log γ_ik + ½ (K − 1) log 2π] + O(Σ 1/γ),

where the terms of ψ cancel, since γ − α are the expected allocations. So |gap| / ΣX tends to 0, but |gap| does not: it
grows like ½ (K − 1) Σ_i log N_i. Here documents grow by adding words drawn from the same proportions, from a mean
length of 50 to one of 204,800. (Multiplying the counts of short documents instead would keep their noise, and the best
fit would have some proportions of 0. A γ that stays at α does not count in the limit, so the coefficient would be that
of the components in use.) Every fit starts from the last.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, xlogy

import bayesnmf

DOCUMENTS, WORDS, RANK, LENGTH = 40, 30, 4, 50
CONCENTRATION = 1.0
FACTORS = 2 ** np.arange(13)
LATE = 6  # number of the longest lengths for slopes: these are limits, and the gap changes sign at short lengths

Array = NDArray[np.float64]


class Gap(NamedTuple):
    """ΣX, Σ_i log N_i, bound of LDA, approximation, and the next terms of the series of their difference; in nats."""

    counts: int
    log_totals: float
    bound: float
    approximation: float
    predicted: float

    @property
    def gap(self) -> float:
        """Return the bound minus its approximation."""
        return self.bound - self.approximation


def grow_documents(seed: int, factors: NDArray[np.int64] = FACTORS) -> Iterator[Array]:
    """Draw documents of growing length, at proportions inside the simplex, where the series hold."""
    rng = np.random.default_rng(seed)
    components = rng.dirichlet(np.full(WORDS, 0.3), RANK)
    means = LENGTH * rng.dirichlet(np.full(RANK, 4.0), DOCUMENTS) @ components
    counts = np.zeros((DOCUMENTS, WORDS))
    for added in np.diff(factors, prepend=0):
        counts = counts + rng.poisson(added * means)
        yield counts


def approximate_bound(counts: Array, alpha: Array, gamma: Array, components: Array) -> float:
    """Return the bound of LDA on the Poisson scale, with logΓ(x) ≈ x log x − x and ψ(x) ≈ log x in the terms of γ."""
    proportions = gamma / gamma.sum(axis=1, keepdims=True)
    loglik = xlogy(counts, proportions @ components).sum() - len(counts) - gammaln(counts + 1).sum()
    regulariser = (alpha * np.log(proportions)).sum()
    return float(loglik + regulariser + len(counts) * (gammaln(alpha.sum()) - gammaln(alpha).sum()))


def predict_gap(gamma: Array) -> float:
    """Return the sum of the next terms of the series of logΓ."""
    rank = gamma.shape[1]
    ends = np.log(gamma.sum(axis=1)) - np.log(gamma).sum(axis=1) + (rank - 1) * np.log(2 * np.pi)
    return float(ends.sum() / 2)


def measure(seed: int, factors: NDArray[np.int64] = FACTORS) -> list[Gap]:
    """Fit LDA by variational EM to documents of each length, and compare its bound with the approximation."""
    alpha = np.full(RANK, CONCENTRATION)
    priors = bayesnmf.Priors(bayesnmf.Dirichlet(alpha), "parameter")
    start: bayesnmf.Fit | str = "random"
    found = []
    for counts in grow_documents(seed, factors):
        options = bayesnmf.VI(priors=priors, start=start, tol=1e-11, max_iter=20_000, threads=1)
        start = fit = bayesnmf.fit(counts, "dirichlet_poisson", RANK, "vi", seed=seed, options=options)
        gamma = np.asarray(fit.posterior.loadings.concentration)
        approximation = approximate_bound(counts, alpha, gamma, fit.components)
        log_totals = float(np.log(counts.sum(axis=1)).sum())
        found.append(Gap(int(counts.sum()), log_totals, float(fit.trace[-1]), approximation, predict_gap(gamma)))
    return found


def slope_per_count(gaps: list[Gap]) -> float:
    """Return the slope of log(|gap| / ΣX) against log(mean count of a document), over the longest documents.

    A gap of a + b log N gives the slope −1 + b / (a + b log N), between −1 and 0.
    """
    totals = np.array([gap.counts for gap in gaps[-LATE:]])
    return float(np.polyfit(np.log(totals), np.log(np.abs([gap.gap for gap in gaps[-LATE:]]) / totals), 1)[0])


def coefficient(gaps: list[Gap]) -> float:
    """Return the slope of the gap against Σ_i log N_i, over the longest documents."""
    late = gaps[-LATE:]
    return float(np.polyfit([gap.log_totals for gap in late], [gap.gap for gap in late], 1)[0])


def draw(gaps: list[Gap], path: Path) -> None:
    """Plot the gap per count, with its slope, and the gap itself."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    totals = np.array([gap.counts for gap in gaps])
    lengths, size = totals / DOCUMENTS, np.abs([gap.gap for gap in gaps])
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    slope = slope_per_count(gaps)
    late = slice(-LATE, None)
    level = np.exp(np.mean(np.log(size / totals)[late] - slope * np.log(lengths[late])))
    left.loglog(lengths, size / totals, "o", color="#0072B2", label="LDA bound − approximation")
    left.loglog(lengths[late], level * lengths[late] ** slope, color="0.55", label=f"fitted slope {slope:.3f}")
    left.set(xlabel="mean count of a document", ylabel="|gap| / ΣX (nats per count)")
    right.semilogx(lengths, [gap.gap for gap in gaps], "o", color="#0072B2", label="LDA bound − approximation")
    right.semilogx(lengths, [gap.predicted for gap in gaps], color="0.55", label="next terms of the series")
    right.set(xlabel="mean count of a document", ylabel="gap (nats)",
              title=f"per Σ log N: {coefficient(gaps):.4f}; −(K−1)/2 = {-(RANK - 1) / 2:g}")  # fmt: skip
    for ax in (left, right):
        ax.legend(frameon=False)
        ax.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    """Measure, print the table, draw the figure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/published"), help="folder of the figure")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    gaps = measure(arguments.seed)
    print(f"{DOCUMENTS} documents × {WORDS} words, K = {RANK}, α = {CONCENTRATION:g}")
    print(f"{'mean count':>12} {'bound':>16} {'approximated':>16} {'gap':>10} {'predicted':>10} {'|gap|/ΣX':>10}")
    for gap in gaps:
        mean, per_count = gap.counts / DOCUMENTS, abs(gap.gap) / gap.counts
        print(f"{mean:12,.1f} {gap.bound:16,.2f} {gap.approximation:16,.2f} {gap.gap:10.3f} {gap.predicted:10.3f} "
              f"{per_count:10.2e}")  # fmt: skip
    foreseen = slope_per_count([gap._replace(bound=gap.approximation + gap.predicted) for gap in gaps])
    print(f"slope of log(|gap|/ΣX) against log(mean count) over the last {LATE}: {slope_per_count(gaps):.4f}; "
          f"of the series {foreseen:.4f}; → −1 as log N grows")  # fmt: skip
    print(f"gap per Σ log N over the last {LATE}: {coefficient(gaps):.4f}; −(K−1)/2 = {-(RANK - 1) / 2:g}")
    path = arguments.out / "nmf_and_lda.png"
    draw(gaps, path)
    print(f"figure: {path}")


if __name__ == "__main__":
    main()
