"""How far `bayesnmf.loo` is from leaving entries out by brute force, before and after `refit`.

    python -m benchmarks.leave_one_out [--entries 6] [--draws 500] [--sets small large]

Counts are the first rows of pcawg_breast_sbs96: 12 rows with their 9 largest features, and 30 rows with all 96. The
`--entries` with the largest k-hat are left out, and as many others with k-hat below 0.7, at random. Brute force is
`bayesnmf.fit(counts, missing=...)` without the entry, from its own start, twice with other seeds; the difference of the
two is its own error. Prints a line for each set, in nats for each entry.
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import logsumexp
from scipy.stats import poisson

import bayesnmf
from bayesnmf.assessment.leave_one_out import BAD_K
from bayesnmf.data.conversion import as_counts
from bayesnmf.inference.status import FitWarning
from benchmarks.data import read

DATA = "pcawg_breast_sbs96"
HEADINGS = (
    "counts", "K", "k-hat", "entries", "by", "mean |error|", "largest", "sum of errors", "two refits differ by",
    "k-hat still above 0.7", "s an entry",
)  # fmt: skip


def without(counts: Any, rank: int, options: Any, place: tuple[int, int], seed: int) -> float:
    """Return log p of an entry by a fit of its own in which it is missing."""
    missing = np.zeros(counts.shape, bool)
    missing[place] = True
    fit = bayesnmf.fit(counts, "gamma_poisson", rank, "gibbs", seed=seed, options=options, missing=missing)
    drawn: Any = fit.posterior
    means = np.einsum("cdk,cdk->cd", drawn.loadings[..., place[0], :], drawn.components[..., place[1]])
    logs = poisson.logpmf(counts[place], means)
    return float(logsumexp(logs) - np.log(logs.size))


def compare(counts: Any, rank: int, draws: int, most: int) -> None:
    """Print the lines of one set of counts."""
    fit = bayesnmf.fit(
        counts, "gamma_poisson", rank, "gibbs", seed=0, options=bayesnmf.Gibbs(chains=4, warmup=500, draws=draws)
    )
    plain = bayesnmf.loo(fit)
    began = time.process_time()
    mended = bayesnmf.loo(fit, refit=most)
    seconds = time.process_time() - began
    fine = plain.pareto_k <= BAD_K
    worst = np.argsort(-plain.pareto_k, kind="stable")[:most]
    others = np.random.default_rng(0).choice(np.flatnonzero(fine), most, replace=False)
    for word, of, chosen in (("above 0.7", ~fine, worst), ("below", fine, others)):
        options, began = replace(fit.options, start="fit"), time.process_time()
        exact = np.array([
            [without(counts, rank, options, divmod(int(each), counts.shape[1]), seed) for seed in (1, 2)]
            for each in chosen
        ])  # fmt: skip
        own, brute = np.abs(exact[:, 0] - exact[:, 1]).mean(), (time.process_time() - began) / 2 / len(chosen)
        for by, found in (("loo", plain), ("loo, refit", mended)):
            gap = found.pointwise["elpd"].to_numpy()[chosen] - exact.mean(axis=1)
            spent = f"{seconds / most:.1f} (brute force {brute:.1f})" if by != "loo" and word != "below" else ""
            left = f"{np.mean(found.pareto_k[chosen] > BAD_K):.0%}"
            cells = [f"{counts.shape[0]} × {counts.shape[1]}", f"{rank}", word, f"{len(chosen)} of {of.sum()}", by]
            cells += [f"{np.abs(gap).mean():.3f}", f"{np.abs(gap).max():.2f}", f"{gap.sum():+.2f}"]
            print(f"| {' | '.join([*cells, f'{own:.3f}', left, spent])} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=6)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--sets", nargs="+", default=["small", "large"])
    given = parser.parse_args()
    warnings.simplefilter("ignore", FitWarning)
    whole = as_counts(read(DATA, 4, 0)).matrix.toarray()
    small = whole[:12][:, np.sort(np.argsort(-whole[:12].sum(axis=0))[:9])]
    print(f"| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}", flush=True)
    for each in given.sets:
        compare(*{"small": (small, 2), "large": (whole[:30], 4)}[each], given.draws, given.entries)


if __name__ == "__main__":
    main()
