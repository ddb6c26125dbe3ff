"""Which of 79 known signatures does each of 200 simulated tumours need? `assign` beside refits and other programs.

Tumours have 5 to 8 signatures of COSMIC with shares from Dirichlet(2), and 100, 500 or 5,000 mutations, without noise
and with noise of 30 % on the rates. Then each of three signatures has carriers in turn: 30 % of the tumours have 3 to
10 % of their mutations from it, and the area under the curve (AUC) says how well they are told from the others by the
chance of presence, or by the share of a rival. ``python -m benchmarks.assign [--out FOLDER] [--sigprofiler PYTHON]``
prints a table; what an earlier run has kept in the folder is not run again. SigProfilerAssignment runs under its own
Python.

``--cases stuck`` asks whether samples get stuck instead: chains from a refit, from all components with more noise, and
from the worst starts (no component, all in equal parts, the one that explains the counts least, the support of another
tumour) are judged together, as `assign` judges its own (`--rows` tumours of each kind and size, and all of
pcawg_breast_sbs96).

``--cases real`` counts, in real breast cancers, presences (chance above 0.5) of signatures that breast cancers cannot
have: those of other tissues and of treatments. It asks whether a misfit that all tumours share passes for signatures;
``--cases distorted`` asks the same of simulated cohorts of four other tissues, whose spectra differ from the catalogue.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import nnls
from scipy.stats import rankdata

import bayesnmf
from bayesnmf.inference.sampling.presence import Catalogue, draw_chain, judge, mean_loadings
from bayesnmf.priors.checks import check_noise
from bayesnmf.types import NoiseName

DATA = Path(os.environ.get("BAYESNMF_DATA") or Path(__file__).parents[2] / "shared" / "data")
N, SEED, CUT = 200, 1, 0.05
SIZES, NOISES = (100, 500, 5000), (0.0, 0.3)
CARRIED, CARRIERS, LEAST, MOST = ("SBS3", "SBS13", "SBS18"), 0.3, 0.03, 0.1
STUCK_SIZES, KINDS = (100, 1000, 3000, 10_000, 100_000), ("mixed", "flat", "spiky", "one")
STARTS = "refit", "all", "empty", "equal", "worst", "other"
ELSEWHERE = [f"SBS{each}" for each in (
    "7a", "7b", "7c", "7d", "4", "22", "24", "29", "9", "84", "85", "11", "25", "31", "32", "35", "86", "87", "90",
    "42", "10a", "10b", "10c", "10d", "14", "20", "88", "92", "93", "16", "12", "38",
)]  # fmt: skip
BREAST = [f"SBS{each}" for each in ("1", "2", "3", "5", "8", "13", "17a", "17b", "18", "30", "39", "40", "41")]
NATS, EM = 10.0, 3000
TISSUES = {
    "prostate": [f"SBS{each}" for each in ("1", "2", "3", "5", "13", "18", "37", "40", "41", "58")],
    "melanoma": [f"SBS{each}" for each in ("1", "2", "5", "7a", "7b", "7c", "7d", "13", "38", "40")],
    "lung": [f"SBS{each}" for each in ("1", "2", "3", "4", "5", "13", "17a", "17b", "18", "28", "40")],
    "kidney": [f"SBS{each}" for each in ("1", "2", "3", "5", "6", "13", "22", "29", "40", "41")],
}
MOVING: dict[str, dict[str, Any]] = {
    "nb2, no drift": {"noise": "nb2", "drift": None},
    "nb2, learned drift": {"noise": "nb2", "drift": "learned"},
    "nb2 by feature, learned drift": {
        "noise": bayesnmf.NegativeBinomial("quadratic", "feature"), "drift": "learned",
    },
}  # fmt: skip
SIGPROFILER = """
import sys
from SigProfilerAssignment import Analyzer
Analyzer.cosmic_fit(samples=sys.argv[1], output=sys.argv[2], input_type="matrix", context_type="96",
                    signature_database=sys.argv[3], make_plots=False, export_probabilities=False)
"""


def catalogue() -> pd.DataFrame:
    """Return the signatures, with sum 1."""
    found = bayesnmf.read_catalogue(DATA / "COSMIC_v3.3.1_SBS_GRCh38.csv")
    return found.div(found.sum(axis=1), axis=0)


def tumours(
    known: pd.DataFrame, size: int, noise: float, carried: str | None = None
) -> tuple[pd.DataFrame, np.ndarray]:
    """Return counts, and the expected number of mutations of each signature (200, K); some may carry one of them."""
    rng = np.random.default_rng([SEED, size, int(noise * 100)])
    share = np.zeros((N, len(known)))
    others = np.flatnonzero(known.index != carried)
    for i in range(N):
        chosen = rng.choice(others, rng.integers(5, 9), replace=False)
        share[i, chosen] = rng.dirichlet(np.full(len(chosen), 2.0))
    if carried is not None:
        part = np.where(rng.random(N) < CARRIERS, rng.uniform(LEAST, MOST, N), 0.0)
        share *= 1 - part[:, None]
        share[:, known.index == carried] = part[:, None]
    rate = size * share @ known.to_numpy()
    if noise:
        rate = rate * rng.gamma(1 / noise**2, noise**2, rate.shape)
    names = [f"tumour{i}" for i in range(N)]
    return pd.DataFrame(rng.poisson(rate), names, known.columns), share * size


def by_assign(counts: pd.DataFrame, known: pd.DataFrame, noise: float) -> dict[str, Any]:
    found = bayesnmf.assign(counts, known, noise="nb2" if noise else "poisson", drift=None)
    return {"exposures": found.exposures, "presence": found.presence, "low": found.low, "high": found.high}


def by_type(drift: Any) -> Callable[..., dict[str, Any]]:
    """Return `assign` with a dispersion of each type, and with this drift."""

    def run(counts: pd.DataFrame, known: pd.DataFrame, noise: float) -> dict[str, Any]:
        given: Any = bayesnmf.NegativeBinomial("quadratic", "feature") if noise else "poisson"
        found = bayesnmf.assign(counts, known, noise=given, drift=drift)
        return {"exposures": found.exposures, "presence": found.presence, "low": found.low, "high": found.high}

    return run


def by_map(counts: pd.DataFrame, known: pd.DataFrame, noise: float) -> dict[str, Any]:
    return {"exposures": bayesnmf.fit(counts, fixed_components=known, method="map", seed=0).loadings}


def by_sparse_map(counts: pd.DataFrame, known: pd.DataFrame, noise: float) -> dict[str, Any]:
    total = float(counts.to_numpy().sum(axis=1).mean())
    priors = bayesnmf.Priors(bayesnmf.Gamma(0.1, 0.1 * len(known) / total), None)
    options = bayesnmf.VI(priors=priors)
    return {"exposures": bayesnmf.fit(counts, fixed_components=known, options=options, seed=0).loadings}


def by_least_squares(counts: pd.DataFrame, known: pd.DataFrame, noise: float) -> dict[str, Any]:
    components = known.to_numpy().T
    return {"exposures": np.array([nnls(components, row)[0] for row in counts.to_numpy(float)])}


def by_sigprofiler(python: str) -> Callable[..., dict[str, Any]]:
    """Return the rival that runs under this Python."""

    def run(counts: pd.DataFrame, known: pd.DataFrame, noise: float) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            there = Path(folder)
            # It takes types by their places, in alphabetical order.
            counts.T.rename_axis("Type").sort_index().to_csv(there / "counts.txt", sep="\t")
            known.T.rename_axis("Type").sort_index().to_csv(there / "known.txt", sep="\t")
            given = [str(there / name) for name in ("counts.txt", "out", "known.txt")]
            subprocess.run([python, "-c", SIGPROFILER, *given], check=True, capture_output=True)
            table = next((there / "out").rglob("Assignment_Solution_Activities.txt"))
            found = pd.read_csv(table, sep="\t", index_col=0)
            return {"exposures": found.reindex(index=counts.index, columns=known.index, fill_value=0).to_numpy(float)}

    return run


def f1(truth: np.ndarray, called: np.ndarray) -> float:
    return float(2 * (truth & called).sum() / (truth.sum() + called.sum()))


def figures_of(found: dict[str, Any], truth: np.ndarray) -> dict[str, Any]:
    """Return what is kept of a run."""
    exposures = found["exposures"]
    share = exposures / np.maximum(exposures.sum(axis=1, keepdims=True), 1e-300)
    large, there = truth / truth.sum(axis=1, keepdims=True) > CUT, truth > 0
    called = found["presence"] > 0.5 if "presence" in found else share > CUT
    kept: dict[str, Any] = {"F1 > 5 %": f1(large, share > CUT), "F1 present": f1(there, called)}
    if "low" in found:
        kept["coverage"] = float(((truth >= found["low"]) & (truth <= found["high"]))[there].mean())
        bins = np.minimum((found["presence"] * 10).astype(int), 9)
        kept["bins"] = [
            [int((bins == b).sum()), float(found["presence"][bins == b].mean()), float(there[bins == b].mean())]
            for b in range(10)
            if (bins == b).any()
        ]
    return kept


def auc_of(found: dict[str, Any], truth: np.ndarray, place: int) -> dict[str, Any]:
    """Return how well carriers of a signature are told from other tumours."""
    exposures = found["exposures"]
    score = (found["presence"] if "presence" in found else exposures / exposures.sum(axis=1, keepdims=True))[:, place]
    there = truth[:, place] > 0
    above = rankdata(score)[there].sum() - there.sum() * (there.sum() + 1) / 2
    return {"AUC": float(above / (there.sum() * (~there).sum()))}


def start_of(word: str, counts: np.ndarray, known: np.ndarray, other: np.ndarray) -> Any:
    """Return loadings to begin a chain with, or the word of a start that chains have."""
    totals = counts.sum(axis=1, keepdims=True).astype(float)
    found = np.zeros((len(counts), len(known)))
    if word == "equal":
        found += totals / len(known)
    elif word == "worst":
        least = (counts @ np.log(known + 1e-30).T).argmin(axis=1)
        found[np.arange(len(counts)), least] = totals[:, 0]
    elif word == "other":
        found = np.roll(other, 1, axis=0)
        found *= totals / np.maximum(found.sum(axis=1, keepdims=True), 1e-9)
    return word if word in ("refit", "all") else found


def mixtures(known: pd.DataFrame, size: int, kind: str, noise: float, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return counts, and the expected number of mutations of each signature, of tumours of one kind."""
    rng = np.random.default_rng([SEED, size, *kind.encode()])
    components, share = known.to_numpy(), np.zeros((rows, len(known)))
    order = np.argsort(-(components * np.log(components + 1e-30)).sum(axis=1))  # by entropy
    third = len(known) // 3
    pool = {"flat": order[-third:], "spiky": order[:third]}.get(kind, order)
    for row in share:
        chosen = rng.choice(pool, 1 if kind == "one" else rng.integers(3, 9), replace=False)
        row[chosen] = rng.dirichlet(np.full(len(chosen), 2.0))
    rate = size * share @ components
    if noise:
        rate = rate * rng.gamma(1 / noise**2, noise**2, rate.shape)
    counts = rng.poisson(rate)
    counts[counts.sum(axis=1) == 0, 0] = 1
    return counts, size * share


def judged(counts: np.ndarray, known: np.ndarray, word: NoiseName, other: np.ndarray, size: int) -> dict[str, Any]:
    """Return how chains from all starts are judged, of all rows; `size` expected mutations, 0 where nobody knows."""
    data, noise = bayesnmf.as_counts(counts), check_noise(word)
    begun, chains = time.process_time(), []
    for number, start in enumerate(STARTS):
        rng = np.random.default_rng([SEED, number])
        first = start_of(start, counts, known, other)
        chains.append(draw_chain(data, Catalogue(known, known[:0]), noise, (60, 100), rng, lambda _: None, first))
    drawn = time.process_time()
    between, below = judge(data, Catalogue(known, known[:0]), noise, chains)
    u = np.vstack([each.loadings.toarray().reshape(-1, *other.shape).sum(axis=2) for each in chains])
    mean, wide, counted = u.mean(axis=0), 3 * u.std(axis=0), counts.sum(axis=1)
    means = mean_loadings(data, noise, known, chains).sum(axis=1) / counted
    return {
        "rows": len(counts), "between > 5": int((between > 5).sum()), "most between": float(between.max()),
        "below > 10": int((below > 10).sum()), "most below": float(below.max()),
        "totals off": float(np.abs(means - 1).max()),
        "counted within 3 sd": float(np.mean(np.abs(counted - mean) < wide)),
        "expected within 3 sd": float(np.mean(np.abs(size - mean) < wide)) if size else float("nan"),
        "cpu s a chain": (drawn - begun) / len(STARTS), "judge": time.process_time() - drawn,
    }  # fmt: skip


def find_stuck(rows: int, out: Path) -> None:
    """Judge chains from all starts, of all kinds of tumours, and print a table."""
    known, lines = catalogue(), []
    components = np.ascontiguousarray(known.to_numpy())
    cases: list[tuple[Any, ...]] = [
        (size, kind, noise, word)
        for size, kind, (noise, word) in product(STUCK_SIZES, KINDS, ((0.0, "poisson"), (0.3, "nb2"), (0.0, "nb2")))
    ]
    cases += [(0, "pcawg_breast", None, word) for word in ("poisson", "nb2", "nb1")]
    for size, kind, noise, word in cases:
        path = out / f"stuck_{rows}_{size}_{kind}_{noise}_{word}.json"
        if not path.exists():
            if size:
                counts, other = mixtures(known, size, kind, noise, rows)
            else:
                real = bayesnmf.read_counts(DATA / "pcawg_breast_sbs96.npz")
                place = [list(real.feature_names).index(name) for name in known.columns]
                counts = real.matrix.toarray()[:, place].astype(int)
                rng = np.random.default_rng(SEED)
                other = np.array([np.isin(np.arange(len(known)), rng.choice(len(known), 6, False)) for _ in counts])
            found = judged(counts, components, word, other.astype(float), size)
            path.write_text(json.dumps(found), encoding="utf-8")
        kept = json.loads(path.read_text(encoding="utf-8"))
        lines.append({"mutations": size, "kind": kind, "rates vary": noise, "noise": word, **kept})
        print(lines[-1], flush=True)
    print(pd.DataFrame(lines).round(3).to_string(index=False))


def calls_of(sigprofiler: str | None) -> dict[str, Callable[[pd.DataFrame, pd.DataFrame, int], dict[str, Any]]]:
    """Return calls by name, which return presences (n, K), and more, given counts, the catalogue and a seed."""

    def by_ours(given: dict[str, Any], counts: pd.DataFrame, known: pd.DataFrame, seed: int) -> dict[str, Any]:
        found = bayesnmf.assign(counts, known, seed=seed, **given)
        moved = {} if found.moved is None else {
            "least cosine": float(found.moved["cosine"].min()), "strength": float(found.moved["strength"].iloc[0])
        }  # fmt: skip
        small = [each.split(" of ")[1].split(":")[0] for each in found.cautions if each.startswith("nearly all")]
        more = {"stuck": int(found.judged["stuck"].sum()), "small in all": small, **moved}
        return {"presence": found.presence > 0.5, "more": more}

    def by_rival(rival: Any, cut: float, counts: pd.DataFrame, known: pd.DataFrame, seed: int) -> dict[str, Any]:
        exposures = rival(counts, known, 0.0)["exposures"]
        return {"presence": exposures > cut * exposures.sum(axis=1, keepdims=True), "more": {}}

    found = {name: partial(by_ours, given) for name, given in MOVING.items()}
    found["least squares, above 3 %"] = partial(by_rival, by_least_squares, 0.03)
    if sigprofiler:
        found["SigProfilerAssignment"] = partial(by_rival, by_sigprofiler(sigprofiler), 0.0)
    return found


def kept_run(path: Path, call: Callable[..., dict[str, Any]], *given: Any) -> tuple[np.ndarray, dict[str, Any]]:
    """Return presences and more of a call, run now or kept by an earlier run."""
    if not path.exists():
        begun = time.process_time(), time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = call(*given)
        seconds = {"cpu s": time.process_time() - begun[0], "s": time.perf_counter() - begun[1]}
        kept = {"presence": np.flatnonzero(found["presence"]).tolist(), "size": found["presence"].shape}
        path.write_text(json.dumps(kept | {"more": found["more"] | seconds}), encoding="utf-8")
    kept = json.loads(path.read_text(encoding="utf-8"))
    present = np.zeros(kept["size"], bool)
    present.flat[kept["presence"]] = True
    return present, kept["more"]


def ratios(counts: np.ndarray, known: pd.DataFrame, without: tuple[str, ...]) -> np.ndarray:
    """Return in nats how much likelier counts are with some signatures of breast cancers than without them, (n,)."""

    def height(names: list[str]) -> np.ndarray:
        p = known.loc[names].to_numpy()
        u = np.repeat(counts.sum(axis=1, keepdims=True) / len(p), len(p), axis=1)
        for _ in range(EM):
            u = u * ((counts / np.maximum(u @ p, 1e-12)) @ p.T)
        means = np.maximum(u @ p, 1e-300)
        return np.asarray((counts * np.log(means) - means).sum(axis=1))

    return height(BREAST) - height([name for name in BREAST if name not in without])


def find_implausible(out: Path, sigprofiler: str | None) -> None:
    """Count signatures of other tissues and of treatments in breast cancers, and print a table.

    Beside it stands how many tumours are told to have SBS3, and SBS2 or SBS13, of those in which SigProfilerAssignment
    or a likelihood ratio above 10 nats finds them.
    """
    known, lines = catalogue(), []
    real = bayesnmf.read_counts(DATA / "pcawg_breast_sbs96.npz")
    counts = pd.DataFrame(real.dense, real.row_names, real.feature_names)[known.columns].astype(int)
    some = counts.iloc[np.random.default_rng(0).permutation(len(counts))[:40]]
    calls, cases = calls_of(sigprofiler), [(some, 0), (some, 1), (some, 2), (counts, 0)]
    sure = {names: ratios(some.to_numpy(float), known, names) > NATS for names in (("SBS3",), ("SBS2", "SBS13"))}
    runs = {}
    for (rows, seed), (name, call) in product(cases, calls.items()):
        if name in MOVING or (rows is some and not seed):
            path = out / f"real_{name}_{len(rows)}_{seed}.json".replace(" ", "_")
            runs[name, len(rows), seed] = kept_run(path, call, rows, known, seed)
    theirs = runs.get(("SigProfilerAssignment", 40, 0))
    for names, told in sure.items():
        told |= theirs[0][:, known.index.isin(names)].any(axis=1) if theirs else False
    for (name, rows, seed), (found, more) in runs.items():
        present = pd.DataFrame(found, columns=known.index)
        shares = {
            "/".join(names): f"{present[list(names)].any(axis=1)[told].mean():.2f} of {told.sum()}"
            for names, told in sure.items() if rows == len(some)
        }  # fmt: skip
        lines.append({
            "by": name, "tumours": rows, "seed": seed,
            "implausible in 100": 100 * present[ELSEWHERE].to_numpy().sum() / rows,
            "signatures": found.sum() / rows, "SBS1": present["SBS1"].mean(), "all SBS3": present["SBS3"].mean(),
            **shares, **more,
        })  # fmt: skip
        print(lines[-1], flush=True)
    print(pd.DataFrame(lines).round(2).to_string(index=False))


def distorted(known: pd.DataFrame, tissue: str) -> tuple[pd.DataFrame, np.ndarray]:
    """Return counts, and shares of signatures (40, K), of tumours whose spectra differ from the catalogue together.

    Each type has a factor that all tumours share, log-normal with a standard deviation of 20 %, and entries vary by 10
    % beside it. All have SBS1 and SBS5, and each other signature of the tissue with a chance of 40 %.
    """
    rng = np.random.default_rng([SEED, *tissue.encode()])
    own, share = known.index.isin(TISSUES[tissue]), np.zeros((40, len(known)))
    always = known.index.isin(["SBS1", "SBS5"])
    for row in share:
        chosen = np.flatnonzero(always | (own & (rng.random(len(own)) < 0.4)))
        row[chosen] = rng.dirichlet(np.full(len(chosen), 2.0))
    spectra = known.to_numpy() * np.exp(0.2 * rng.normal(size=known.shape[1]))
    spectra /= spectra.sum(axis=1, keepdims=True)
    rate = np.exp(np.log(4000) + 0.6 * rng.normal(size=(40, 1))) * share @ spectra
    rate *= rng.gamma(100.0, 0.01, rate.shape)
    return pd.DataFrame(rng.poisson(rate), [f"tumour{i}" for i in range(40)], known.columns), share


def find_distorted(out: Path, sigprofiler: str | None) -> None:
    """Count signatures that a tissue does not have, and those found that tumours have, and print a table."""
    known, lines = catalogue(), []
    for tissue, (name, call) in product(TISSUES, calls_of(sigprofiler).items()):
        counts, share = distorted(known, tissue)
        found, more = kept_run(out / f"distorted_{tissue}_{name}.json".replace(" ", "_"), call, counts, known, 0)
        outside = ~known.index.isin(TISSUES[tissue])
        lines.append({
            "tissue": tissue, "by": name, "outside in 100": 100 * found[:, outside].sum() / len(found),
            "signatures": found.sum() / len(found), "of shares above 5 %": found[share > CUT].mean(),
            "F1 present": f1(share > 0, found), **more,
        })  # fmt: skip
        print(lines[-1], flush=True)
    print(pd.DataFrame(lines).round(2).to_string(index=False))


def main() -> None:
    """Run what is missing, and print all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("assign_runs"))
    parser.add_argument("--sigprofiler", metavar="PYTHON")
    parser.add_argument("--cases", choices=("rivals", "stuck", "real", "distorted"), default="rivals")
    parser.add_argument("--rows", type=int, default=N, help="tumours, or those of each kind of stuck ones")
    options = parser.parse_args()
    options.out.mkdir(exist_ok=True)
    if options.cases in ("real", "distorted"):
        find = find_implausible if options.cases == "real" else find_distorted
        find(options.out, options.sigprofiler)
        return
    if options.cases == "stuck":
        find_stuck(options.rows, options.out)
        return
    rivals: dict[str, Any] = {
        "assign": by_assign, "assign, stays": by_type(None), "assign, drifts": by_type("learned"),
        "plain map": by_map, "vi, shape 0.1": by_sparse_map, "least squares": by_least_squares,
    }  # fmt: skip
    if options.sigprofiler:
        rivals["SigProfilerAssignment"] = by_sigprofiler(options.sigprofiler)
    known, lines = catalogue(), []
    for carried, noise, size in product((None, *CARRIED), NOISES, SIZES):
        counts, truth = tumours(known, size, noise, carried)
        counts, truth = counts[: options.rows], truth[: options.rows]
        for name, rival in rivals.items():
            case = f"{name}_{size}_{noise}" if carried is None else f"{name}_{size}_{noise}_{carried}"
            path = options.out / f"{case}{'' if options.rows == N else f'_{options.rows}'}.json".replace(" ", "_")
            if not path.exists():
                begun = time.perf_counter(), time.process_time()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = rival(counts, known, noise)
                seconds = {"s": time.perf_counter() - begun[0], "cpu s": time.process_time() - begun[1]}
                place = None if carried is None else known.index.get_loc(carried)
                kept = figures_of(found, truth) if place is None else auc_of(found, truth, place)
                path.write_text(json.dumps(kept | seconds), encoding="utf-8")
            kept = json.loads(path.read_text(encoding="utf-8"))
            bins = kept.pop("bins", None)
            lines.append({"carried": carried, "noise": noise, "mutations": size, "by": name, **kept})
            print(pd.Series(lines[-1]).to_dict(), bins or "", flush=True)
    print(pd.DataFrame(lines).round(3).to_string(index=False))


if __name__ == "__main__":
    main()
