"""An evidence and how it was computed."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

from bayesnmf.checks import check_fraction
from bayesnmf.inference.status import ConvergenceWarning
from bayesnmf.inference.tempering.combining import IN_TWENTY, WIDEST_SPREAD, agree, log_of_mean, spread_of

CURES = {
    "tempered": "raise refinement, particles or efficiency, or read at_least",
    "tokens": "ask for more particles, take method='tempered', or read at_least",
}


class Evidence(NamedTuple):
    """An evidence and how it was computed.

    Attributes
    ----------
    log_evidence : float
        Log p(X) on the Poisson scale, in nats. Unless it is exact, the log of the mean of the runs' estimates of p(X),
        which is unbiased; its log is too low on average.
    se : float
        Standard error of `log_evidence` from the spread of the runs, to first order: std(p̂) / mean(p̂) / √runs. It is
        0 with "exact" and NaN for a single run. It is infinite if unknown: if the standard deviation of the runs' logs
        is above 1, so that one run dominates the mean, or if the estimate is below `bound`.
    method : {"tempered", "tokens", "exact"}
    particles : int
        Number of particles in each run; 0 with "exact".
    estimates : tuple of float
        Log p̂(X) of each finished run, in nats; empty with "exact".
    bound : float
        Lower bound of log p(X), in nats: `elbo_marginal` of a variational fit with the same priors, minus four of its
        standard errors. Minus infinity with "exact".
    rungs : int
        Number of powers of the likelihood with "tempered", else 0.
    upper : float
        With `truth`, log p̂(X) of chains from the true parameters to the prior, in nats: an estimate that is too high on
        average. Infinity otherwise.
    """

    log_evidence: float
    se: float
    method: str
    particles: int
    estimates: tuple[float, ...]
    bound: float
    rungs: int = 0
    upper: float = np.inf

    @property
    def known(self) -> bool:
        """Whether the standard error is known."""
        return bool(np.isfinite(self.se))

    @property
    def spread(self) -> float:
        """Standard deviation of the runs' log estimates, in nats; 0 with "exact", NaN for a single run."""
        return 0.0 if self.method == "exact" else spread_of(np.array(self.estimates))

    @property
    def at_least(self) -> float:
        """Lower limit of log p(X), in nats, with a probability of at least 95 %.

        It is the larger of `bound` and log(p̂/20): an unbiased estimate exceeds 20 p(X) at most once in 20 times.
        """
        return max(self.bound, self.log_evidence - (0.0 if self.method == "exact" else IN_TWENTY))

    @property
    def at_most(self) -> float:
        """Upper limit of log p(X), in nats, with a probability of at least 95 %; infinity without `truth`."""
        return self.log_evidence if self.method == "exact" else self.upper + IN_TWENTY

    def interval(self, probability: float = 0.95) -> tuple[float, float]:
        """Return the ends of a confidence interval of log p(X), in nats, by Student's t for the number of runs.

        If the standard error is unknown, the interval reaches from `at_least` to `at_most` for any probability.
        """
        probability = check_fraction(probability, "probability")
        if not self.known:
            return self.at_least, self.at_most
        if self.method == "exact":
            return self.log_evidence, self.log_evidence
        reach = float(student.ppf((1 + probability) / 2, len(self.estimates) - 1)) * self.se
        return self.log_evidence - reach, self.log_evidence + reach

    def __repr__(self) -> str:
        if self.method == "exact":
            return f"<bayesnmf.Evidence: log p(X) {self.log_evidence:,.3f} nats, exact>"
        runs = f"{len(self.estimates)} run{'s' if len(self.estimates) > 1 else ''} of {self.particles:,} particles"
        above = f", at most {self.at_most:,.3f}" if np.isfinite(self.at_most) else ""
        if not self.known:
            spread = "" if np.isnan(self.spread) else f" with a spread of {self.spread:.1f} nats"
            return f"<bayesnmf.Evidence: log p(X) unknown, at least {self.at_least:,.3f}{above} nats; {runs}{spread}>"
        low, high = self.interval()
        ends = f"95 % from {low:,.3f} to {high:,.3f}{above}"
        return f"<bayesnmf.Evidence: log p(X) {self.log_evidence:,.3f} ± {self.se:.3f} nats, {ends}; {runs}>"


def average(
    method: str, estimates: list[float], particles: int, bound: float, rungs: int = 0, upper: float = np.inf
) -> Evidence:
    """Average the runs; warn if they do not determine the error of their mean."""
    logs = np.array(estimates)
    mean, error = log_of_mean(logs)
    if reason := _why_unknown(logs, mean, bound):
        warnings.warn(
            f"{reason}; the estimate is too low and its error is unknown; {CURES[method]}",
            ConvergenceWarning,
            stacklevel=4,
        )
        error = np.inf
    return Evidence(mean, error, method, particles, tuple(estimates), bound, rungs, upper)


def _why_unknown(logs: np.ndarray, mean: float, bound: float) -> str:
    """Return why the runs do not determine the error of their mean; an empty text if they do."""
    spread = spread_of(logs)
    if len(logs) > 1 and not agree(logs):  # the mean is then close to the luckiest run
        return f"the runs' log estimates have a standard deviation of {spread:.1f} nats, above {WIDEST_SPREAD:g}"
    if mean < bound:
        return f"the log estimate, {mean:,.1f} nats, is below the bound of a variational fit, {bound:,.1f}"
    return ""
