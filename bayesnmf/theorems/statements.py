"""ELBO certificates: check the identities of the papers on the user's own counts.

`equivalences` is the entry point. Every row of its table contains the values of both sides of one statement, computed
in two different ways: by two routines of the package, by the package and NumPyro, or by a kernel and a formula in SciPy
(`bayesnmf.theorems.explicit`). The statements:

1. a Poisson is a multinomial and its totals; 2. joint updates are PLSA; 3. and 4. two variational algorithms are equal,
and their bounds differ by a constant; 5. the lasso does not sparsify; 6. four likelihoods are equal;
7. multiplicative updates are EM, VI without expectations is EM, and two paths lead to one optimum; 8. topic models;
9. LDA becomes KL-NMF with a regulariser; 10. allocations and the evidence; 11. NumPyro's bounds at the same q;
12. all runs are monotone.

[GP] Geiger & Park, *On the Connection Between NMF and LDA*; [C] Carbonetto, Sarkar, Wang & Stephens, *NMF Algorithms
Generally Improve Topic Model Fits*; [P] Paisley, *EECS E6720 Lecture 12*; [F] Faleiros & Lopes, *On the equivalence
between algorithms for NMF and LDA*; [K] Kurutmaz, Cemgil, Şimşekli & Yıldırım, *Bayesian NMF as an Allocation Model*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bayesnmf.assessment.checks import check_some_counts
from bayesnmf.checks import check_count, check_instance, check_rank
from bayesnmf.data.batches import check_no_batches
from bayesnmf.data.checks import check_complete
from bayesnmf.data.conversion import as_counts
from bayesnmf.fitting.job import ProgressReport, progress_context
from bayesnmf.options.rules import UNEXPOSED, Request
from bayesnmf.theorems import bounds, likelihoods, updates
from bayesnmf.theorems.study import Effort, Study
from bayesnmf.theorems.table import Equivalences, Row

STATEMENTS: tuple[Callable[[Study], Iterator[Row]], ...] = (
    likelihoods.poisson_is_multinomial,
    updates.joint_and_plsa,
    updates.two_bounds,
    updates.lasso,
    likelihoods.four_likelihoods,
    updates.multiplicative_updates,
    updates.without_expectations,
    bounds.two_paths,
    updates.topic_model,
    updates.half_steps,
    updates.pseudo_samples,
    likelihoods.lda_is_kl_nmf,
    bounds.evidence,
    bounds.decomposition,
    bounds.bounds_of_programs,
    bounds.stochastic_gradients,
    bounds.monotone,
)


def equivalences(
    counts: Any,
    rank: int = 5,
    *,
    iterations: int = 20,
    seed: int = 0,
    effort: Effort | None = None,
    progress: ProgressReport | bool | None = None,
) -> Equivalences:
    """Check every identity between the models, algorithms and bounds on these counts.

    Parameters
    ----------
    counts : array, SciPy sparse matrix, pandas DataFrame, AnnData or nested list, (n, m)
        Nonnegative counts, samples in rows. Statements that need whole numbers say so for other counts.
    rank : int
        Number of components, K.
    iterations : int
        Number of updates in each sequence of iterates.
    seed : int
        Seed; the same seed gives the same table.
    effort : Effort, optional
        Numbers of draws, gradient steps and particles, and the number of nonzero counts that they use.
    progress : bool or callable, optional
        Progress report, as for `bayesnmf.fit`.

    Returns
    -------
    Equivalences
        The rows, which print as a table; after Ctrl-C, those of the finished statements.

    Raises
    ------
    TypeError, ValueError
        Invalid arguments; the message names the argument, the rule and the cure.

    See Also
    --------
    Equivalences : what it returns.
    Effort : how much it does.

    Notes
    -----
    On small counts, most of the time is spent on compiling the NumPyro programs of all models. No array of size
    n × m or nonzeros × K is formed.

    Examples
    --------
    >>> import bayesnmf
    >>> fewest = bayesnmf.Effort(draws=20, svi_steps=20, svi_models=(), particles=20)
    >>> bayesnmf.equivalences([[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]], rank=2, iterations=2, effort=fewest).hold
    True
    """
    rank = check_rank(rank)
    iterations = check_count(iterations, "iterations")
    seed = check_count(seed, "seed", minimum=0)
    effort = Effort() if effort is None else effort
    check_instance(effort, Effort, "effort")
    data = check_no_batches(as_counts(counts, dtype="float64"), "equivalences")
    check_complete(data, "equivalences")
    UNEXPOSED.check(Request(counts=data), "equivalences need", cure="give an array or a frame")
    check_some_counts(data)
    rows: list[Row] = []
    interrupted = False
    with progress_context(progress) as report:
        study = Study(data, rank, iterations, seed, effort)
        try:
            for done, statement in enumerate(STATEMENTS):
                report("equivalences", done, len(STATEMENTS), np.nan)
                rows += statement(study)
            report("equivalences", len(STATEMENTS), len(STATEMENTS), np.nan)
        except KeyboardInterrupt:
            interrupted = True
    n, m = data.shape
    title = f"{n:,} samples × {m:,} features, {data.nnz:,} nonzero counts, rank {rank}"
    return Equivalences(tuple(sorted(rows, key=lambda row: row.number)), title, interrupted)
