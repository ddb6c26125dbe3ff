"""Do factors of batches keep programs from being split by batch, and cell types in them?

    python -m benchmarks.batches [--sets pbmc_facs mcf7 simulated] [--out FOLDER]

pbmc_facs has a simulated batch: in a random half of the cells, 30 % of the genes have factors from 0.5 to 2, evenly
spread in their logarithms. Counts are thinned, in this half by the factor where it is below 1, in the other by 1 over
it elsewhere, so that they stay as Poisson as they were and the ratio of both halves is the factor. mcf7 has batches of
its own: the number after "rep" in the name of the treatment. "simulated" is drawn from the model with three batches.

Both are fitted by vi without and with `batch`. "split" is the share of programs whose mean share of the counts of a
row differs by more than a factor of 1.5 between two batches; "batch seen" the AUC of a logistic regression of the batch
on the shares of programs (of the first batch against the rest; five folds), 0.5 if nothing of it is there. NMI and ARI
are those of k-means on the shares with the labels: `subpop`, treatments, or the largest true program. Of true factors,
on the log scale and less their mean over batches, there are the correlation with estimated ones, and the shares inside
90 % intervals of the mean field and of a chain from the fit, of genes with 50 counts and more.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import csr_array

import bayesnmf
from bayesnmf.datasets import real

Array = NDArray[Any]
RANKS, LEAST, SPLIT, DRAWS = {"pbmc_facs": 10, "mcf7": 6, "simulated": 6}, 50, 1.5, 1000


def with_batch(matrix: Any, seed: int) -> tuple[csr_array, Array, Array]:
    """Return thinned counts, the batch of each cell, and the true ratio of both batches for each gene."""
    rng = np.random.default_rng(seed)
    n, m = matrix.shape
    batch, ratio = rng.permutation(np.arange(n) % 2), np.ones(m)
    changed = rng.permutation(m)[: int(0.3 * m)]
    ratio[changed] = np.exp(rng.uniform(np.log(0.5), np.log(2), len(changed)))
    kept = np.stack([np.minimum(1, 1 / ratio), np.minimum(1, ratio)])
    entries = matrix.tocoo()
    data = rng.binomial(entries.data.astype(np.int64), kept[batch[entries.row], entries.col])
    found = csr_array((data.astype(float), (entries.row, entries.col)), shape=matrix.shape)
    found.eliminate_zeros()
    return found, batch, ratio


def counts_of(name: str) -> tuple[Any, Array, Array, Array | None]:
    """Return counts, batches, labels of rows, and the true factors of batches (B, m), if they are known."""
    if name == "simulated":
        batch = np.random.default_rng(1).integers(0, 3, 800)
        given = {"priors": bayesnmf.Priors(bayesnmf.Gamma(0.3, 2e-4), bayesnmf.Dirichlet(0.2)), "seed": 1}
        drawn = bayesnmf.simulate("gamma_poisson", (800, 500), RANKS[name], batch=bayesnmf.Batch(batch, 20), **given)
        plain = drawn.counts.matrix  # without the shape, which is to be learned
        return plain, batch, drawn.loadings.argmax(axis=1), drawn.batch_factors
    data = real(name)
    if name == "pbmc_facs":
        matrix, batch, ratio = with_batch(data.counts.matrix, 1)
        return matrix, batch, data.rows["subpop"].to_numpy(), np.stack([np.ones(len(ratio)), ratio])
    treatment = data.rows["treatment"].astype(str)
    batch = treatment.str.extract(r"rep(\d+)", expand=False).to_numpy()
    return data.counts.matrix, batch, data.rows["label"].astype(str).to_numpy(), None


def shares_of(fit: Any) -> Array:
    """Return the share of each program in the counts of each row, without factors of batches."""
    shares: Array = fit.loadings * fit.components.sum(axis=1)
    return shares / shares.sum(axis=1, keepdims=True)


def measured(fit: Any, batch: Array, labels: Array, factors: Array | None) -> dict[str, Any]:
    """Return what is in a row of the table."""
    from sklearn.cluster import KMeans
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score, roc_auc_score
    from sklearn.model_selection import cross_val_predict

    shares = shares_of(fit)
    means = np.stack([shares[batch == each].mean(axis=0) for each in np.unique(batch)])
    split = np.mean(means.max(axis=0) > SPLIT * means.min(axis=0))
    first = batch == np.unique(batch)[0]
    logs = np.log(shares + 1e-4)
    chance = cross_val_predict(LogisticRegression(max_iter=2000), logs, first, cv=5, method="predict_proba")[:, 1]
    groups = KMeans(len(np.unique(labels)), n_init=10, random_state=0).fit_predict(np.sqrt(shares))
    found = {
        "split": split,
        "batch seen": roc_auc_score(first, chance),
        "NMI": normalized_mutual_info_score(labels, groups),
        "ARI": adjusted_rand_score(labels, groups),
        "seconds": fit.seconds,
        "iterations": fit.status.iterations,
    }
    if factors is None or fit.batch is None:
        return found
    seen, rng = fit.counts.feature_totals >= LEAST, np.random.default_rng(0)
    of_q = fit.batch.q.mapped(lambda each: each[:, seen]).draw(rng, (DRAWS,))
    chain = fit.with_intervals("sampled").intervals.draws.factors[0][:, :, seen]
    found |= {"shape": fit.batch.shape}
    for name, drawn in (("mean field", of_q), ("chain", chain)):
        found |= {f"{name}: {key}": value for key, value in compared(np.log(drawn), np.log(factors[:, seen])).items()}
    return found


def compared(logs: Array, true: Array) -> dict[str, float]:
    """Return how draws of log factors (draws, B, m) agree with true ones, whatever features or batches share."""
    logs, true = logs - logs.mean(axis=1, keepdims=True), true - true.mean(axis=0)
    logs = logs - np.median(logs.mean(axis=0) - true, axis=1)[:, None]  # which loadings of rows may take
    low, high = np.quantile(logs, (0.05, 0.95), axis=0)
    correlation = np.corrcoef(logs.mean(axis=0).ravel(), true.ravel())[0, 1]
    return {"correlation": correlation, "inside": np.mean((low <= true) & (true <= high))}


def main() -> None:
    """Fit and print, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=list(RANKS))
    parser.add_argument("--out", default="batches", type=Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in options.sets:
        matrix, batch, labels, factors = counts_of(name)
        for used in (False, True):
            started = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fit = bayesnmf.fit(matrix, rank=RANKS[name], seed=0, batch=batch if used else None)
            row = {"counts": name, "batch": "yes" if used else "no", **measured(fit, batch, labels, factors)}
            rows.append(row | {"all seconds": time.perf_counter() - started})
            print(pd.DataFrame(rows).to_string(), flush=True)
    pd.DataFrame(rows).to_csv(options.out / "batches.csv", index=False)


if __name__ == "__main__":
    main()
