"""Which noise do whole real matrices want?

    python -m benchmarks.noises [--sets pcawg digits mcf7 pbmc_facs scsim_k14 nips newsgroups] [--noises poisson nb1 …]
                                [--ranks …] [--masks 1] [--out FOLDER] [--table] [--advice]

Every matrix is fitted by vi with default settings but for even priors, as `select` does, to the entries outside a mask,
for each rank and noise. Each row of the table has the log-likelihood of the masked entries at the posterior means, in
nats for each of their counts, Pearson's χ² of the same entries over their number, by the variance that the noise says,
and the share of the features whose number of zeros in the observed entries is over three standard deviations off.
Seconds are processor time of a fit. Finished rows are in FOLDER/noises.csv, and a run that was stopped goes on. The
table of the best rank of each noise is printed; --table does only this. --advice fits all counts with Poisson noise
at its best rank, by default options, and prints the noise that is advised there beside the best of the table.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import bayesnmf
from bayesnmf import VI
from bayesnmf.data.conversion import as_counts
from bayesnmf.data.counts import Counts
from bayesnmf.data.mask import Mask
from bayesnmf.inference.likelier_noise import likeliest_noise
from bayesnmf.noise.words import NOISES
from bayesnmf.studies.selection.criterion import Candidate, SelectionPlan
from bayesnmf.studies.selection.masked import make_masks, score_masked
from benchmarks.data import read

Array = NDArray[Any]
HERE = Path(__file__).parent
MODEL = "gamma_poisson"
RANKS = {
    "pcawg": (4, 6, 8, 10, 12), "digits": (6, 8, 10, 12, 15), "mcf7": (4, 8), "pbmc_facs": (4, 7, 10),
    "scsim_k14": (14, 22), "nips": (5, 10, 20), "newsgroups": (10, 20),
}  # fmt: skip
BLOCK, OFF = 4_000_000, 3.0  # entries at once, and standard deviations that are too many


def zeros_off(fit: bayesnmf.Fit, mask: Mask) -> float:
    """Return the share of the features whose zeros among the observed entries are further off than `OFF` deviations."""
    (n, m), matrix = fit.counts.shape, fit.counts.matrix
    loadings, components, features = fit.expected_loadings, fit.exposed_components, np.arange(m)
    expected, variance, found = np.zeros(m), np.zeros(m), np.zeros(m)
    step = max(BLOCK // m, 1)
    for first in range(0, n, step):
        rows = np.arange(first, min(first + step, n))
        means = np.maximum(loadings[rows] @ components, 1e-300)
        empty = np.exp(fit.noise.of_rows(rows).of_features(features).log_pmf(np.zeros_like(means), means))
        seen = ~mask.hidden(slice(first, first + step))
        expected += (empty * seen).sum(axis=0)
        variance += (empty * (1 - empty) * seen).sum(axis=0)
        found += ((matrix[rows].toarray() == 0) & seen).sum(axis=0)
    return float(np.mean(np.abs(found - expected) > OFF * np.sqrt(np.maximum(variance, 1e-9))))


def measured(counts: Any, noise: str, rank: int, number: int) -> dict[str, Any]:
    """Fit the entries outside one mask, and return what the masked entries say."""
    mask = make_masks(counts, number + 1, 0)[number]
    study = SelectionPlan(counts, [Candidate(MODEL, rank)], "vi", VI(), 0, lambda *_: None)
    part, began = counts.with_mask(mask), time.process_time()
    options = study.options_for(study.candidates[0], part)
    fit = bayesnmf.fit(part, MODEL, rank, "vi", seed=number, options=options, noise=noise)
    seconds, scored = time.process_time() - began, score_masked(fit, study, mask)
    dispersion = np.median(getattr(fit.noise, "dispersion", 0.0))
    return {"noise": noise, "rank": rank, "mask": number, "score": scored.logs.sum() / scored.counted.sum(),
            "chi_squared": scored.squares / scored.entries, "zeros_off": zeros_off(fit, mask), "dispersion": dispersion,
            "iterations": fit.status.iterations, "converged": scored.converged,
            "seconds": round(seconds, 2)}  # fmt: skip


def table(rows: pd.DataFrame) -> str:
    """Return the best rank of each noise and matrix as Markdown, and what all of them gain on Poisson noise there."""
    titles = ("counts", "noise", "rank", "nats a count", "χ²", "zeros off", "dispersion", "seconds")
    lines = [f"| {' | '.join(titles)} |", "|---|---|--:|--:|--:|--:|--:|--:|"]
    means = rows.groupby(["counts", "noise", "rank"], sort=False).mean(numeric_only=True).reset_index()
    for (name, noise), part in means.groupby(["counts", "noise"], sort=False):
        best = part.loc[part["score"].idxmax()]
        edge = " (largest)" if best["rank"] == part["rank"].max() else ""
        entries = [name, noise, f"{best['rank']:.0f}{edge}", f"{best['score']:.4f}", f"{best['chi_squared']:.2f}"]
        entries += [f"{best['zeros_off']:.0%}", f"{best['dispersion']:.3g}", f"{best['seconds']:.1f}"]
        lines.append(f"| {' | '.join(entries)} |")
    return "\n".join(lines)


def advice(rows: pd.DataFrame, names: list[str]) -> Iterator[str]:
    """Yield which noise is likeliest around a Poisson fit of each matrix, and the best of the table, with seconds."""
    yield "| counts | rank | advised | best of the table | seconds of the fit | of the advice |"
    yield "|---|--:|---|---|--:|--:|"
    means = rows.groupby(["counts", "noise", "rank"])["score"].mean()
    for name in names:
        rank = means[name, "poisson"].idxmax()
        began = time.process_time()
        fit = bayesnmf.fit(counts_of(name), MODEL, int(rank), seed=0, options=VI(intervals="mean_field"))
        ended = time.process_time()
        factors = fit.expected_loadings, fit.exposed_components
        noise = likeliest_noise(fit.counts, *factors, [NOISES[word] for word in ("nb1", "nb2")])  # type: ignore[type-var]
        took = time.process_time() - ended
        own = means[name].drop(["poisson", "zip"], level=0, errors="ignore")
        yield f"| {name} | {rank} | {noise.word} | {own.idxmax()[0]} | {ended - began:.1f} | {took:.2f} |"


def counts_of(name: str) -> Counts:
    """Return the counts of a matrix by its name here."""
    return as_counts(read("pcawg_breast_sbs96" if name == "pcawg" else name, 1, 0))


def main() -> None:
    """Run what is missing, and print the table."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--sets", nargs="+", default=list(RANKS), choices=list(RANKS))
    words.add_argument("--noises", nargs="+", default=["poisson", "nb1", "nb2"])
    words.add_argument("--ranks", nargs="+", type=int)
    words.add_argument("--masks", type=int, default=1)
    words.add_argument("--out", type=Path, default=HERE / "noise")
    words.add_argument("--table", action="store_true")
    words.add_argument("--advice", action="store_true")
    given = words.parse_args()
    path = given.out / "noises.csv"
    rows = pd.read_csv(path).to_dict("records") if path.exists() else []
    warnings.simplefilter("ignore")
    for name in () if given.table or given.advice else given.sets:
        counts = counts_of(name)
        for number in range(given.masks):
            for rank in given.ranks or RANKS[name]:
                for noise in given.noises:
                    case = {"counts": name, "noise": noise, "rank": rank, "mask": number}
                    if any(all(row[key] == value for key, value in case.items()) for row in rows):
                        continue
                    rows.append({"counts": name, **measured(counts, noise, rank, number)})
                    print(rows[-1], flush=True)
                    pd.DataFrame(rows).to_csv(path, index=False)
    if given.advice:
        for line in advice(pd.DataFrame(rows), given.sets):
            print(line, flush=True)
        return
    print(table(pd.DataFrame(rows)))


if __name__ == "__main__":
    main()
