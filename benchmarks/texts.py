"""Compare topic models of texts at equal processor seconds: `python -m benchmarks.texts --python rivals/bin/python`.

`python -m venv rivals; rivals/bin/pip install tomotopy gensim scikit-learn` makes the environment of the other tools.
The plain call of bayesnmf on one thread says how many processor seconds each tool has; each also has three times as
many. Four fifths of the rows are fitted. Of the withheld fifth, by one judge for all topics (mean-field inference
given the topics and the tool's concentrations of loadings):

- perplexity: half of the words of each text give its loadings, and the other half is predicted;
- labels, where the rows have some: shares of all words of each text; normalised mutual information of the labels with
  the largest share, and with the largest share over its mean; accuracy of a logistic regression on the shares, 5 folds.

Coherence (`bayesnmf.coherence`, ten words, mean of the topics) counts in the fitted rows. Fits are files in `--out`,
which are not made again; `--fit` ends there, so that only fits need a quiet machine. The table is printed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, save_npz
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import normalized_mutual_info_score
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bayesnmf
from bayesnmf import VI, Dirichlet, Priors
from bayesnmf.data.counts import Counts
from benchmarks import data
from benchmarks.plain_calls import judge
from benchmarks.priors import split_rows

RIVALS = ("tomotopy", "gensim", "scikit-learn")
TIMES = (1, 3)
LEARNED: Any = {"learn": ("loadings", "components")}
SCRIPT = Path(__file__).parent / "tools" / "timed_topics.py"
SHARE = 0.2
LABELS = {"newsgroups": "topic"}


def ours(counts: Counts, rank: int, seed: int, out: Path, **options: Any) -> float:
    """Fit by the plain call on one thread, unless it is there; return the processor seconds."""
    if not out.exists():
        began = time.process_time()
        fit = bayesnmf.fit(counts, "dirichlet_poisson", rank, seed=seed, options=VI(threads=1, **options))
        seconds = time.process_time() - began
        prior: Any = fit.priors.loadings
        np.savez(out, topics0=fit.components, concentration0=prior.concentration, seconds0=seconds,
                 steps0=fit.status.iterations, version=bayesnmf.__version__)  # fmt: skip
    return float(np.load(out)["seconds0"])


def make_fits(name: str, rank: int, seed: int, given: Any) -> list[Path]:
    """Make the fits that are missing; return the files."""
    train, _ = split_rows(data.read(name, rank, 0), SHARE, 0)
    start = f"{name}_{rank}_{seed}"
    paths = {tool: given.out / f"{start}_{tool}.npz" for tool in ("bayesnmf", "bayesnmf, learned", *given.tools)}
    seconds = ours(train, rank, seed, paths["bayesnmf"])
    ours(train, rank, seed, paths["bayesnmf, learned"], **LEARNED)
    matrix = given.out / f"{name}_counts.npz"
    if not matrix.exists():
        save_npz(matrix, csr_matrix(train.matrix))
    for tool in given.tools:
        if not paths[tool].exists():
            budgets = [str(seconds * times) for times in TIMES]
            call = [given.python, SCRIPT, tool, matrix, paths[tool], str(rank), str(seed), *budgets]
            subprocess.run(call, check=True)
    return list(paths.values())


def labels_of(name: str) -> Any:
    """Return the labels of the withheld rows, or None."""
    if name not in LABELS:
        return None
    rows = bayesnmf.datasets.real(name).rows[LABELS[name]].to_numpy()
    order = np.random.default_rng(0).permutation(len(rows))  # as in `split_rows`
    return rows[np.sort(order[: max(1, round(SHARE * len(rows)))])]


def agreement(shares: Any, labels: Any) -> dict[str, float]:
    """Return how well shares of topics tell the labels."""
    lift = shares / shares.mean(axis=0)
    logistic = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    found = [normalized_mutual_info_score(labels, each.argmax(axis=1)) for each in (shares, lift)]
    return {"nmi": found[0], "nmi_lift": found[1], "accuracy": float(cross_val_score(logistic, shares, labels).mean())}


def judged(path: Path, train: Counts, test: Counts, labels: Any) -> Iterator[dict[str, Any]]:
    """Yield what the topics of one file are worth, for each number of seconds."""
    found = np.load(path)
    for i in range(sum(each.startswith("topics") for each in found)):
        topics, concentration = np.maximum(found[f"topics{i}"], 1e-300), found[f"concentration{i}"]
        topics = topics / topics.sum(axis=1, keepdims=True)
        priors = Priors(loadings=Dirichlet(np.broadcast_to(concentration, len(topics)).astype(float)))
        options = VI(priors=priors, start="random")
        fit = bayesnmf.fit(test, "dirichlet_poisson", fixed_components=topics, seed=0, options=options)
        whole = replace(fit, components=topics)
        yield {
            "seconds": float(found[f"seconds{i}"]), "steps": int(found[f"steps{i}"]), "version": str(found["version"]),
            "perplexity": float(np.exp(-judge(topics, concentration, train, test))),
            "npmi": float(bayesnmf.coherence(whole, train).mean()),
            "c_v": float(bayesnmf.coherence(whole, train, measure="c_v").mean()),
            **({} if labels is None else agreement(np.asarray(fit.loadings), labels)),
        }  # fmt: skip


def judge_fits(name: str, rank: int, seed: int, paths: list[Path], out: Path) -> list[dict[str, Any]]:
    """Judge the fits that were not judged yet; return all rows."""
    train, test = split_rows(data.read(name, rank, 0), SHARE, 0)
    labels = labels_of(name)
    rows = []
    for path in paths:
        kept = out / f"{path.stem}.json"
        if not kept.exists():
            about = {"data": name, "rank": rank, "seed": seed, "tool": path.stem.split("_", 3)[3]}
            made = [
                about | {"times": t} | row for t, row in zip(TIMES, judged(path, train, test, labels), strict=False)
            ]
            kept.write_text(json.dumps(made), encoding="utf-8")
        rows += json.loads(kept.read_text(encoding="utf-8"))
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Return a table in Markdown."""
    measures = {"perplexity": ",.0f", "npmi": ".3f", "c_v": ".3f", "nmi": ".3f", "nmi_lift": ".3f", "accuracy": ".3f"}
    lines = ["| data, K, seed | tool | s (times) | steps | perplexity | NPMI | C_v | NMI | NMI by lift | accuracy |",
             "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|"]  # fmt: skip
    for row in rows:
        values = [f"{row[each]:{form}}" if each in row else "–" for each, form in measures.items()]
        start = [f"{row['data']}, {row['rank']}, {row['seed']}", f"{row['tool']} {row['version']}"]
        lines.append(
            f"| {' | '.join([*start, f'{row["seconds"]:.0f} ({row["times"]})', str(row['steps']), *values])} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Make and judge what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["nips", "newsgroups"])
    parser.add_argument("--rank", type=int, nargs="+", default=[20])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--tools", nargs="*", default=list(RIVALS), choices=RIVALS)
    parser.add_argument("--python", help="interpreter of the environment of the other tools")
    parser.add_argument("--fit", action="store_true", help="make the fits, and judge none")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    bayesnmf.fit(np.arange(600).reshape(30, 20), "dirichlet_poisson", 3, seed=0)  # loads compiled code
    rows: list[dict[str, Any]] = []
    for name, rank, seed in ((n, r, s) for n in given.data for r in given.rank for s in given.seeds):
        paths = make_fits(name, rank, seed, given)
        if not given.fit:
            rows += judge_fits(name, rank, seed, paths, given.out)
    print(table(rows) if rows else "")


if __name__ == "__main__":
    main()
