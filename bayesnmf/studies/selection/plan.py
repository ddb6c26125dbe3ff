"""What `select` compares, whatever the criterion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bayesnmf.data.counts import Counts
from bayesnmf.data.covariates.design import Covariates
from bayesnmf.data.seeds import Seeds
from bayesnmf.fitting.job import ProgressReport, resolve_priors
from bayesnmf.fitting.known import Beforehand
from bayesnmf.noise.abilities import Noise
from bayesnmf.noise.poisson import POISSON
from bayesnmf.options import Options
from bayesnmf.options.checkpoint import Checkpoint
from bayesnmf.studies.selection.record import Candidate


@dataclass(frozen=True, eq=False)
class SelectionPlan:
    """Settings shared by all fits.

    Attributes
    ----------
    counts : Counts
    candidates : list of Candidate
    method : str
    options : object
    seed : int
    report : callable
    noises : list of Noise
        Noises that every candidate is fitted with.
    seeds : Seeds or None
        What the priors of the first components favour.
    covariates : Covariates or None
        What the loadings of all rows depend on.
    checkpoint : Checkpoint or None
        Folder that keeps what takes long beside fits.
    """

    counts: Counts
    candidates: list[Candidate]
    method: str
    options: Options
    seed: int
    report: ProgressReport
    noises: list[Noise] = field(default_factory=lambda: [POISSON])
    seeds: Seeds | None = None
    covariates: Covariates | None = None
    checkpoint: Checkpoint | None = None

    def options_for(self, candidate: Candidate, counts: Counts) -> Any:
        """Return the options of a candidate's fit to these counts, whose priors have no None left.

        Shapes and concentrations that are left open are 1, for vi too. The sparse ones that `bayesnmf.fit` takes for
        its predictions find fewer of the ranks that made simulated counts (benchmarks/README.md, "Ranks").
        """
        given = Beforehand(seeds=self.seeds, covariates=self.covariates)
        priors = resolve_priors(candidate.model, counts, candidate.rank, self.options.priors, given)
        unread: Any = {"intervals": "mean_field"} if hasattr(self.options, "intervals") else {}  # by every criterion
        return replace(self.options, priors=priors, **unread)

    def score_all[P, C, S](
        self, parts: Iterable[P], number: int, tried: Sequence[C], score: Callable[[P, C, int], S]
    ) -> tuple[list[list[S]], Sequence[C], bool]:
        """Score every candidate by every part of the counts.

        Parameters
        ----------
        parts : iterable
            Splits or masks of the counts.
        number : int
            Number of the parts.
        tried : sequence
            Candidates.
        score : callable
            Function of a part, a candidate and a seed.

        Returns
        -------
        found : list of list
            Scores by part and candidate; after Ctrl-C of the complete parts, or of the unfinished first one.
        scored : sequence
            Candidates that these scores belong to.
        interrupted : bool

        Raises
        ------
        KeyboardInterrupt
            Ctrl-C before the first score.
        """
        found, done, interrupted = list[list[S]](), 0, False
        try:
            for place, part in enumerate(parts):
                found.append([])
                for candidate in tried:
                    self.report("select", done, number * len(tried), np.nan)
                    found[-1].append(score(part, candidate, self.seed + place))
                    done += 1
            self.report("select", done, done, np.nan)
        except KeyboardInterrupt:
            interrupted = True
            if not done:
                raise
        complete = [row for row in found if len(row) == len(tried)] or found[:1]
        return complete, tried[: len(complete[0])], interrupted
