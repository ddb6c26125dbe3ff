"""The noise of a stream: the counts of its blocks as routines for Poisson counts see them, and its dispersion.

A dispersion s that is not given moves with every batch by the fraction ρ of the components' step, along Newton's step
in log s for all rows as they would be if they were like the batch, n / |batch| times its log-likelihood (Robbins &
Monro 1951).
"""

from __future__ import annotations

from typing import Any

from bayesnmf.data.checks import check_noise_of_stream
from bayesnmf.data.counts import Counts
from bayesnmf.data.powered import working_counts
from bayesnmf.inference.evidence_of_dispersion import evidence_at
from bayesnmf.inference.problem import Problem, State
from bayesnmf.noise.abilities import Noise
from bayesnmf.priors import Priors
from bayesnmf.priors.specification import MODELS


class StreamNoise:
    """The noise of a stream.

    Parameters
    ----------
    noise : Noise
        Noise as it was asked for.
    model : str

    Attributes
    ----------
    now : Noise
        Noise with the dispersion that has been learned so far.
    learned : bool
        Whether the dispersion is learned.

    Raises
    ------
    ValueError
        A dispersion of each row, or one that a Poisson fit of all rows would have to find.
    """

    def __init__(self, noise: Noise, model: str) -> None:
        self.asked = self.now = check_noise_of_stream(noise)
        self.model, self.learned = model, not noise.known

    def working(self, data: Counts, priors: Priors) -> Counts:
        """Return the counts of a block as routines for Poisson counts see them."""
        if not self.now.known:
            begun: Any = self.now
            self.now = begun.with_first_dispersion(data.shape)
        totals, components = MODELS[self.model].given_totals, priors.components
        return working_counts(data, self.now, given_totals=totals, learned=self.learned, components=components)

    def learn(self, problem: Problem, state: State, share: float, rate: float, threads: int | None) -> None:
        """Move a dispersion that is learned, given a batch and by how much there are more rows in all."""
        if self.learned:
            counts: Any = problem.counts
            s = evidence_at(problem, state, threads).moved(counts.dispersions, share, rate)
            self.now = counts.with_dispersions(s).noise
