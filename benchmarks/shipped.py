"""Write the tables of `bayesnmf.datasets` into the package: `BAYESNMF_DATA=… python -m benchmarks.shipped`.

`cells` is a copy of pbmc_small (.npz and .json in the folder of BAYESNMF_DATA). `mutations` and `texts` are simulated:
spectra, topics and words are invented, and no count is one of a tumour or of a text.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array, load_npz, save_npz

from bayesnmf.data.mutations import sbs96_types

FOLDER = Path(__file__).parents[1] / "bayesnmf" / "data" / "shipped"
COMMON = "about after all also because first have last made many more most new only other some time very year"
TOPICS = {
    "kitchen": "bake boil bowl bread butter cake cheese cook cream dough egg flour garlic herb knife oil onion oven "
    "pan pepper recipe salt sauce soup sugar",
    "garden": "bed bee bloom bulb compost dig flower fruit grass green grow herb leaf plant pot prune rain root rose "
    "seed shade soil spring sun weed",
    "sea": "anchor bay beach boat captain coast crew deck fish harbour island mast net port rain sail sailor salt "
    "sand ship storm sun tide wave wind",
    "music": "band bass beat chord choir concert drum flute guitar key listen melody note orchestra piano play record "
    "rhythm sing song sound stage string tune voice",
}


def spectra(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return four invented spectra of the 96 types, each a rule and some irregularity; each sums to 1."""
    types = [(name[0], name[2:5], name[-1]) for name in sbs96_types()]  # 5' base, change, 3' base
    rules = {
        "deamination": [(change == "C>T") * (20.0 if after == "G" else 0.6) for _, change, after in types],
        "smoke": [(4.0 if before in "CG" else 2.0) if change == "C>A" else 0.15 for before, change, _ in types],
        "editing": [10.0 if before == "T" and change in ("C>T", "C>G") else 0.0 for before, change, _ in types],
        "background": [2.5 if change == "T>C" and before == "A" else 1.0 for before, change, _ in types],
    }  # fmt: skip
    made = {name: (np.array(rule) + 0.02) * np.exp(0.3 * rng.normal(size=96)) for name, rule in rules.items()}
    return {name: each / each.sum() for name, each in made.items()}


def mutations() -> tuple[csr_array, dict]:
    """Return Poisson counts of 60 tumours: all have deamination and background, half smoke, and a third editing."""
    rng = np.random.default_rng(0)
    known = spectra(rng)
    present = rng.random((60, 4)) < [1.0, 0.5, 0.35, 1.0]
    exposures = present * rng.gamma(1.5, [200.0, 600.0, 500.0, 300.0], (60, 4))
    counts = rng.poisson(exposures @ np.array([*known.values()]))
    origin = "simulated: Poisson counts of four invented spectra; no count is one of a tumour"
    rounded = {name: np.round(each, 6).tolist() for name, each in known.items()}
    names = [f"tumour {i + 1:02d}" for i in range(60)]
    return csr_array(counts), {"provenance": origin, "rows": names, "cols": list(sbs96_types()), "spectra": rounded}


def texts() -> tuple[csr_array, dict]:
    """Return the words of 120 texts of one or two of four invented topics, each named by its first topic."""
    rng = np.random.default_rng(1)
    words = sorted({*COMMON.split(), *" ".join(TOPICS.values()).split()})
    topics = np.zeros((len(TOPICS), len(words)))
    for topic, listed in zip(topics, TOPICS.values(), strict=True):
        chosen = [words.index(word) for word in listed.split()]
        topic[chosen] = rng.gamma(1.5, size=len(chosen))
    common = np.array([word in COMMON.split() for word in words]) * rng.gamma(3.0, size=len(words))
    shares = rng.dirichlet(np.full(len(TOPICS), 0.15), 120)
    means = 0.65 * shares @ (topics / topics.sum(axis=1, keepdims=True)) + 0.35 * common / common.sum()
    counts = np.array(
        [rng.multinomial(length, each) for length, each in zip(rng.integers(40, 161, 120), means, strict=True)]
    )
    names = [f"text {i + 1:03d} ({list(TOPICS)[first]})" for i, first in enumerate(shares.argmax(axis=1))]
    origin = "simulated: words of four invented topics, and common words; no count is one of a text"
    used = np.flatnonzero(counts.sum(axis=0))
    return csr_array(counts[:, used]), {"provenance": origin, "rows": names, "cols": [words[place] for place in used]}


def cells() -> tuple[csr_array, dict]:
    """Return pbmc_small with its names and its origin."""
    path = Path(os.environ["BAYESNMF_DATA"]) / "pbmc_small.npz"
    told = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    origin = f"pbmc_small, {told['provenance']['source']}, {told['provenance']['original']}; {LICENSE}"
    return csr_array(load_npz(path)), {"provenance": origin, "rows": told["rows"], "cols": told["cols"]}


LICENSE = "copyright 2021 SeuratObject authors, under the MIT licence"


def main() -> None:
    """Write all tables."""
    FOLDER.mkdir(exist_ok=True)
    for make in (cells, mutations, texts):
        counts, about = make()
        save_npz(FOLDER / f"{make.__name__}.npz", counts.astype(np.uint16))
        text = json.dumps(about, ensure_ascii=False, indent=None)
        (FOLDER / f"{make.__name__}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
