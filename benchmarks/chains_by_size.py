"""Which Gibbs sampler is quicker where: allocations drawn, or summed out, on counts of many sizes and sparsities.

    python -m benchmarks.chains_by_size [--data pcawg192 swimmer] [--seconds 6]

Four chains, two at once, from draws of a closed-form fit; a quarter of the sweeps is warm-up, and every draw is kept.
"s to 100": seconds of sweeps, until the harmonic mean of the bulk effective sample sizes of loadings and components (at
most 1,500 of each, chosen at random) is 100, at the measured rate: then the root mean square error of their means is
0.1 posterior sd. Seconds are processor seconds divided by 2. "× sooner" is by this, in brackets by the smallest ESS.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import bayesnmf
from bayesnmf import Dirichlet, Gamma, Gibbs, Priors
from bayesnmf.data.counts import Counts
from bayesnmf.data.splitting import thin_counts
from bayesnmf.datasets import swimmer
from bayesnmf.results.mixing import r_hat_and_ess
from benchmarks import chains
from benchmarks.data import filled, read

Array = NDArray[Any]
CHAINS, JUDGED, MOST = 4, 1500, 6000


@dataclass(frozen=True)
class Sized:
    """Counts of some size, with a rank, one shape for both priors (None for the defaults), and a model."""

    read: Callable[[], Counts]
    rank: int
    shape: float | None = None
    model: str = "gamma_poisson"

    def priors(self, counts: Counts) -> Priors:
        """Return priors with the mean total of the counts."""
        if self.shape is None:
            return Priors()
        rate = self.shape * self.rank * counts.shape[0] / counts.total
        return Priors(Gamma(self.shape, rate), Dirichlet(self.shape))


def some_rows(name: str, rows: int) -> Counts:
    """Return rows of real counts, chosen at random."""
    return chains.Case(name, 5, rows).counts()


def thinned(total: float) -> Counts:
    """Return mutations of 192 breast cancers, thinned to a mean total."""
    counts = read("pcawg_breast_sbs96", 5, 0)
    kept, _ = thin_counts(counts, total * counts.shape[0] / counts.total, np.random.default_rng(0))
    return filled(kept)


def simulated(size: tuple[int, int], rank: int, total: float, shape: float | None = None) -> Counts:
    """Draw counts from gamma_poisson with the default priors, or priors of one shape."""
    if shape is None:
        return bayesnmf.simulate("gamma_poisson", size, rank, totals=total, seed=1).counts
    priors = Priors(Gamma(shape, shape * rank / total), Dirichlet(shape))
    return bayesnmf.simulate("gamma_poisson", size, rank, priors=priors, seed=1).counts


def pcawg() -> Counts:
    """Return all mutations of 192 breast cancers."""
    return read("pcawg_breast_sbs96", 5, 0)


CASES: dict[str, Sized] = {
    "sim6x5_20": Sized(lambda: simulated((6, 5), 2, 20), 2),
    "sim30x12_200": Sized(lambda: simulated((30, 12), 2, 200), 2),
    "sim40x20_100": Sized(lambda: simulated((40, 20), 3, 100), 3),
    "sim100x50_20": Sized(lambda: simulated((100, 50), 5, 20), 5),
    "sim100x50_200": Sized(lambda: simulated((100, 50), 5, 200), 5),
    "sim100x50_2000": Sized(lambda: simulated((100, 50), 5, 2000), 5),
    "sim100x50_50_shape0.3": Sized(lambda: simulated((100, 50), 5, 50, 0.3), 5, 0.3),
    "sim100x50_500_shape0.3": Sized(lambda: simulated((100, 50), 5, 500, 0.3), 5, 0.3),
    "sim100x50_5000_shape0.3": Sized(lambda: simulated((100, 50), 5, 5000, 0.3), 5, 0.3),
    "sim100x50_50_shape0.03": Sized(lambda: simulated((100, 50), 5, 50, 0.03), 5, 0.03),
    "sim100x50_500_shape0.03": Sized(lambda: simulated((100, 50), 5, 500, 0.03), 5, 0.03),
    "sim100x50_5000_shape0.03": Sized(lambda: simulated((100, 50), 5, 5000, 0.03), 5, 0.03),
    "swimmer": Sized(lambda: filled(swimmer()), 8),
    "pbmc_small": Sized(lambda: read("pbmc_small", 6, 0), 6),
    "digits334": Sized(lambda: read("digits", 8, 0).rows(slice(334)), 8),
    "pcawg40": Sized(lambda: some_rows("pcawg_breast_sbs96", 40), 4),
    "pcawg_thin150": Sized(lambda: thinned(150), 5),
    "pcawg_thin1000": Sized(lambda: thinned(1000), 5),
    "pcawg192": Sized(pcawg, 5),
    "pcawg192_shape0.3": Sized(pcawg, 5, 0.3),
    "pcawg192_shape0.03": Sized(pcawg, 5, 0.03),
    "pcawg192_lda": Sized(pcawg, 5, model="dirichlet_poisson"),
    "nips200_shape0.1": Sized(lambda: some_rows("nips", 200), 5, 0.1),
}


def run(case: Sized, counts: Counts, algorithm: Any, sweeps: int) -> tuple[Any, float]:
    """Return the fit, and the processor seconds of its sweeps divided by 2."""
    warmup = sweeps // 4
    given: dict[str, Any] = {"algorithm": algorithm, "draws": sweeps - warmup, "warmup": warmup, "keep": "draws"}
    options = Gibbs(priors=case.priors(counts), chains=CHAINS, threads=2, **given)
    named = chains.Case("", case.rank, model=case.model)
    fit, clock = chains.attempt(named, counts, options, 0, np.inf)
    return fit, clock.seconds[-1] - clock.seconds[0]


def measured(case: Sized, counts: Counts, algorithm: str, seconds: float) -> dict[str, float]:
    """Run for about so many seconds, and return the measures of one sampler."""
    run(case, counts, algorithm, 11)  # compiles
    each = run(case, counts, algorithm, 11)[1] / 11
    sweeps = int(np.clip(seconds / each, 40, MOST))
    fit, taken = run(case, counts, algorithm, sweeps)
    r_hats, sizes = [], []
    rng = np.random.default_rng(0)
    for part in (fit.posterior.loadings, fit.posterior.components):
        flat = part.reshape(*part.shape[:2], -1)
        chosen = rng.choice(flat.shape[2], min(flat.shape[2], JUDGED), replace=False)
        found = r_hat_and_ess(flat[:, :, chosen], 1)
        r_hats.append(found[0])
        sizes.append(found[1])
    ess = np.concatenate(sizes)
    return {
        "ms": 2e3 * taken / (CHAINS * sweeps),
        "to 100": 100 * taken * float(np.mean(1 / ess)),
        "to 100, smallest": 100 * taken / ess.min(),
        "r_hat": float(np.nanmax(np.concatenate(r_hats))),
    }


def main() -> None:
    """Print a row for each case."""
    parser = argparse.ArgumentParser(description="Allocations drawn, or summed out: milliseconds, mixing, seconds.")
    parser.add_argument("--data", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--seconds", type=float, default=6.0)
    given = parser.parse_args()
    print("| counts | n × m, K | counts an entry | counts a nonzero | ms a sweep: allocations | marginal "
          "| s to 100: allocations | marginal | × sooner | largest R-hat: allocations | marginal |")  # fmt: skip
    print("|---|---|" + "--:|" * 9)
    for name in given.data:
        case = CASES[name]
        counts = case.read()
        n, m = counts.shape
        a, b = (measured(case, counts, algorithm, given.seconds) for algorithm in ("allocations", "marginal"))
        sooner = f"{a['to 100'] / b['to 100']:.2f} ({a['to 100, smallest'] / b['to 100, smallest']:.2f})"
        print(
            f"| {name} | {n} × {m}, {case.rank} | {counts.total / (case.rank * (n + m)):.1f} "
            f"| {counts.total / counts.nnz:.1f} | {a['ms']:.2f} | {b['ms']:.2f} | {a['to 100']:.2f} "
            f"| {b['to 100']:.2f} | {sooner} | {a['r_hat']:.2f} | {b['r_hat']:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
