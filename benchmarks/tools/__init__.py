"""The tools to compare: their functions and settings. This module imports none of the tools."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

TASKS = ("likelihood", "lda", "gamma_poisson", "gibbs", "heldout")


@dataclass(frozen=True)
class Tool:
    """One way to fit counts.

    Attributes
    ----------
    name : str
        Name in tables.
    peer : str
        Name for `--peers`.
    task : str
        One of `TASKS`.
    function : str
        Function as module:name below `benchmarks.tools`.
    iteration : str
        Description of one iteration.
    settings : dict
        Settings passed to the function.
    """

    name: str
    peer: str
    task: str
    function: str
    iteration: str
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def dtype(self) -> str:
        """Precision of the factors."""
        return str(self.settings.get("dtype", "float64"))


EM, SCD, MU = "one EM step", "3 sweeps of coordinate descent, both sides", "one multiplicative update of each side"
UPDATE, SWEEP, EVALUATIONS = "one update of both sides", "one sweep", "up to 15 K evaluations for every row"
PASS = "one pass over the documents, to convergence in each"
EXTRAPOLATED: dict[str, Any] = {"extrapolate": True}


def _in(dtype: str) -> list[Tool]:
    """Return the tools that exist in both precisions, in one of them."""
    single, further, descent = {"dtype": dtype}, {"dtype": dtype, **EXTRAPOLATED}, {"algorithm": "scd", **EXTRAPOLATED}
    tools = [
        Tool(f"ours EM {dtype}", "ours", "likelihood", "ours:likelihood", EM, single),
        Tool(f"ours EM, extrapolated {dtype}", "ours", "likelihood", "ours:likelihood", EM, further),
        Tool(f"ours SCD, extrapolated {dtype}", "ours", "likelihood", "ours:likelihood", SCD, {**single, **descent}),
        Tool(f"scikit-learn NMF mu {dtype}", "scikit-learn", "likelihood", "scikit_learn:nmf", MU, single),
    ]
    for task, iteration in (("likelihood", SCD), ("lda", UPDATE)):
        name = f"ours, plain call from its own start {dtype}"
        tools.append(Tool(name, "ours", task, "ours:plain_call", iteration, single))
    for task in ("lda", "gamma_poisson"):
        tools.append(Tool(f"ours VI {dtype}", "ours", task, f"ours:{task}", UPDATE, single))
        tools.append(Tool(f"ours VI, extrapolated {dtype}", "ours", task, f"ours:{task}", UPDATE, further))
    tools.append(Tool(f"ours VI, settled {dtype}", "ours", "lda", "ours:lda", PASS, {**single, "algorithm": "settled"}))
    return tools


SINGLE: dict[str, Any] = {"dtype": "float32"}
OTHERS = [
    Tool("enstop PLSA", "enstop", "likelihood", "enstop_plsa:plsa", EM, SINGLE),
    Tool("torchnmf", "torchnmf", "likelihood", "torch_nmf:nmf", MU, SINGLE),
    Tool("poismf TNCG, no penalty", "poismf", "likelihood", "recommenders:poismf_likelihood", EVALUATIONS, SINGLE),
    Tool("scikit-learn LDA batch", "scikit-learn", "lda", "scikit_learn:lda", PASS),
    Tool("gensim LdaModel batch", "gensim", "lda", "gensim_lda:batch", PASS, SINGLE),
    Tool("ours Gibbs", "ours", "gibbs", "ours:gibbs", SWEEP),
    Tool("ours Gibbs, collapsed", "ours", "gibbs", "ours:collapsed_gibbs", SWEEP),
    Tool("tomotopy LDAModel", "tomotopy", "gibbs", "tomotopy_lda:gibbs", SWEEP),
    Tool("ours VI, extrapolated float32", "ours", "heldout", "ours:lda", UPDATE, {**SINGLE, **EXTRAPOLATED}),
    Tool("ours VI, minibatches float32", "ours", "heldout", "ours:lda_minibatch", PASS, SINGLE),
    Tool("ours Gibbs", "ours", "heldout", "ours:gibbs", SWEEP),
    Tool(
        "ours SCD, extrapolated float32",
        "ours",
        "heldout",
        "ours:likelihood",
        SCD,
        {**SINGLE, **EXTRAPOLATED, "algorithm": "scd"},
    ),
    Tool("tomotopy LDAModel", "tomotopy", "heldout", "tomotopy_lda:gibbs", SWEEP),
    Tool("scikit-learn LDA online", "scikit-learn", "heldout", "scikit_learn:lda_online", PASS),
    Tool("gensim LdaModel online", "gensim", "heldout", "gensim_lda:online", PASS),
    Tool("hpfrec", "hpfrec", "heldout", "recommenders:hpfrec", UPDATE, SINGLE),
    Tool("poismf TNCG, its defaults", "poismf", "heldout", "recommenders:poismf", EVALUATIONS, SINGLE),
]
TOOLS = [*_in("float64"), *_in("float32"), *OTHERS]
PEERS = tuple(dict.fromkeys(tool.peer for tool in TOOLS))

# Tools that are known, but cannot be run here.
LEFT_OUT = {
    "fastTopics": "an R package; its rows, for newsgroups and pbmc_facs, are figures measured elsewhere, scaled",
    "scHPF": "not on PyPI",
    "bigARTM": "no wheel for Python 3.12",
    "salamander, NNLM": "dense: the counts times 8 bytes, filled with zeros",
}
