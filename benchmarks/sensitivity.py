"""Do quantities move as `Fit.sensitivity` says, if the prior or the likelihood is changed and the counts fitted again?

    python -m benchmarks.sensitivity [NAME …] [--draws 4000]

Counts are 60 images of digits, 60 NIPS papers with their 200 most common words, thinned to about 300 words each, and 60
breast cancers thinned to about 300 mutations each (as many as an exome has), each with even priors (shapes of 1) and
sparse ones (0.5 and 0.3). Marginal Gibbs sampling from one mode, 4 chains; fits at powers of 0.8 and 1.25 start there,
so that their components are those of the fit. Gamma(a, b) to the power α is Gamma(α (a − 1) + 1, α b), Dirichlet(η) is
Dirichlet(α (η − 1) + 1); the likelihood to the power c / (1 + d) is that of c times the counts, exposed c times as
much, with ``Quasi(d)``. Quantities are the shares of components, the weights of the five leading features of each, and
the loadings of ten rows.

A flag is confirmed if both refits move the mean by over 0.2 standard deviations, in the direction of the shift. "raw"
are the flags of `az.psense` above 0.05, without regard to their Monte Carlo error; "moved" are the quantities that both
refits move so, and "found" the share of these that is flagged.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd

import bayesnmf
from bayesnmf import Dirichlet, Gamma, Gibbs, Priors, Quasi
from bayesnmf.data.splitting import thin_counts
from bayesnmf.results.sensitivity import CONFLICT, STRONG_PRIOR, THRESHOLD, UNKNOWN

Array = np.ndarray[Any, Any]
ROWS, RANK, MEAN = 60, 4, 300
SHAPES = {"even": (1.0, 1.0), "sparse": (0.5, 0.3)}
POWERS = {0.8: (4, 4), 1.25: (5, 3)}  # times the counts, and the dispersion of Quasi


def thinned(matrix: Any, seed: int = 0) -> Array:
    """Return counts of which each is kept with one probability, so that rows have about 300."""
    counts = bayesnmf.as_counts(matrix)
    return thin_counts(counts, MEAN / counts.row_totals.mean(), np.random.default_rng(seed))[0].matrix.toarray()


def counts_of(name: str) -> Array:
    """Return counts by their name."""
    if name == "digits":
        return bayesnmf.datasets.digits().matrix[:ROWS].toarray()
    if name == "pcawg":
        return thinned(bayesnmf.datasets.real("pcawg_breast_sbs96").counts.matrix[:ROWS].toarray())
    papers = bayesnmf.datasets.real("nips").counts.matrix[:ROWS].toarray()
    return thinned(papers[:, np.argsort(-papers.sum(axis=0))[:200]])


def powered(prior: Any, power: float) -> Any:
    """Return a prior to a power."""
    if isinstance(prior, Gamma):
        return Gamma(power * (prior.shape - 1) + 1, power * prior.rate)
    return Dirichlet(power * (prior.concentration - 1) + 1)


def sampled(counts: Array, priors: Priors, draws: int, start: Any = "fit", power: float = 1.0) -> bayesnmf.Fit:
    """Return a fit of the counts, with their likelihood to a power."""
    options = Gibbs(priors=priors, algorithm="marginal", chains=4, warmup=1000, draws=draws, start=start, threads=1)
    more: dict[str, Any] = {}
    if power != 1:
        times, dispersion = POWERS[power]
        counts, more = times * counts, {"row_exposure": np.full(len(counts), times), "noise": Quasi(dispersion)}
    with warnings.catch_warnings(action="ignore"):
        return bayesnmf.fit(counts, "gamma_poisson", RANK, "gibbs", seed=0, options=options, **more)


def means(fit: bayesnmf.Fit, like: bayesnmf.Fit, table: pd.DataFrame, rows: list[int]) -> Array:
    """Return the means of the quantities of a table of another fit."""
    drawn = fit.posterior
    sizes = drawn.loadings.sum(axis=2) * drawn.components.sum(axis=-1)
    top = np.argsort(-like.components, axis=1, kind="stable")[:, :5]
    parts = [
        (sizes / sizes.sum(axis=-1, keepdims=True)).mean(axis=(0, 1)),
        fit.loadings[rows].ravel(),
        np.take_along_axis(fit.components, top, axis=1).ravel(),
    ]
    found = np.concatenate(parts)
    assert len(found) == len(table)
    return found


def measure(name: str, shapes: str, draws: int) -> list[dict[str, Any]]:
    """Return the rows of the table of one data set with one kind of priors."""
    began, counts = time.process_time(), counts_of(name)
    shape, concentration = SHAPES[shapes]
    priors = Priors(Gamma(shape, shape * RANK / counts.sum(axis=1).mean()), Dirichlet(concentration))
    fit = sampled(counts, priors, draws)
    rows = list(range(0, ROWS, ROWS // 10))
    table = quantities(fit, rows)
    spent = time.process_time()
    base, found = means(fit, fit, table, rows), []
    np.testing.assert_allclose(base, table["mean"], rtol=1e-4)
    for of in ("prior", "likelihood"):
        moved = []
        for power in POWERS:
            own = Priors(*(powered(each, power) for each in (priors.loadings, priors.components)))
            made = (own, draws, fit) if of == "prior" else (priors, draws, fit, power)
            moved.append((means(sampled(counts, *made), fit, table, rows) - base) / table["sd"].to_numpy())
        signs = np.sign(table[f"{of}_shift"].to_numpy())
        confirmed = (-signs * moved[0] > THRESHOLD) & (signs * moved[1] > THRESHOLD)
        shift, error = np.abs(table[f"{of}_shift"]).to_numpy(), table[f"{of}_shift_mcse"].to_numpy()
        flagged, raw = shift - 2 * error >= THRESHOLD, (table[of] >= 0.05).to_numpy()
        both = (moved[0] * moved[1] < 0) & (np.minimum(*np.abs(moved)) > THRESHOLD)
        if of == "prior":
            assert (flagged == table["diagnosis"].isin([CONFLICT, STRONG_PRIOR])).all()
        found.append(
            {
                "data": name, "priors": shapes, "power of": of, "quantities": len(table),
                "R-hat": fit.diagnostics["max_r_hat"], "moved": both.sum(), "flagged": flagged.sum(),
                "confirmed": (flagged & confirmed).sum(), "found": (flagged & both).sum(),
                "not known": (table["diagnosis"] == UNKNOWN).sum() if of == "prior" else np.nan,
                "raw": raw.sum(), "raw confirmed": (raw & confirmed).sum(),
                "predicted, r": np.corrcoef(table[f"{of}_shift"], (moved[1] - moved[0]) / 2)[0, 1],
            }
        )  # fmt: skip
    for each in found:
        each["seconds"] = time.process_time() - began
        each["of it sensitivity"] = spent - began
    return found


def quantities(fit: bayesnmf.Fit, rows: list[int]) -> pd.DataFrame:
    """Return the table of shares, leading features and loadings of some rows."""
    leading, loadings = fit.sensitivity(), fit.sensitivity(rows=rows)
    own = [name for name in leading.index if name.startswith(("share", "components"))]
    of_rows = [name for name in loadings.index if name.startswith("loadings")]
    return pd.concat([leading.loc[own[:RANK]], loadings.loc[of_rows], leading.loc[own[RANK:]]])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=["digits", "nips", "pcawg"])
    parser.add_argument("--draws", type=int, default=4000)
    asked = parser.parse_args()
    found = []
    for name in asked.names:
        for shapes in SHAPES:
            found += measure(name, shapes, asked.draws)
            print(pd.DataFrame(found[-2:]).round(3).to_string(index=False, header=len(found) == 2), flush=True)
    table = pd.DataFrame(found)
    sums = table.groupby("power of", sort=False)[
        ["moved", "flagged", "confirmed", "found", "raw", "raw confirmed"]
    ].sum()
    print(sums.to_string())


if __name__ == "__main__":
    main()
