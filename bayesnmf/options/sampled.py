"""Options of the methods that use random draws: gibbs, nuts and svi."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from bayesnmf.checks import check_choice, check_count, check_flag, check_fraction, check_positive
from bayesnmf.options.algorithms import algorithms_of
from bayesnmf.options.checks import (
    check_budget,
    check_one_sampler,
    check_sampler,
    check_settings,
    check_start,
    check_threads,
)
from bayesnmf.options.start import FitToStartFrom, Start
from bayesnmf.priors.pair import Priors

MOST_RUNS = 100_000
MOST_REFINEMENT = 10_000
BUDGET = 300.0  # seconds


@dataclass(frozen=True, eq=False, kw_only=True)
class Gibbs:
    """Options of Gibbs sampling.

    Attributes
    ----------
    priors : Priors
        Priors of both sides.
    start : Start, Fit, "fit" or "random"
        State to start from. "fit": chains start from independent draws of a closed-form variational fit, around one
        mode. "random": each chain starts from its own random state (dispersed starts).
    chains : int
        Number of chains.
    draws : int or "auto"
        Number of draws to keep, per chain. "auto" samples in blocks until the chains have mixed: after 500, 750, 1,000,
        1,500, … draws, the first quarter is discarded and the others are judged. The run ends when 99 % of the judged
        entries (`bayesnmf.results.mixing`) and the log joint have R-hat ≤ 1.01, all have R-hat ≤ 1.05 and an effective
        sample size of 100, and that of the log joint and of each component's share of the counts is 400; when chains
        are in different modes, which more draws would not mend; at 20,000 draws a chain; or when the budget is spent.
        At most 2,000 draws a chain are kept, every second, fourth, … of more, and 1 GiB in all. "auto" is 1,000 draws
        for counts on disk, with keep="draws" or "moments", and where 250 draws of every chain take more than 1 GiB.
    budget : float
        Seconds for a fit with draws="auto", with its start and what earlier calls with the same checkpoint took; the
        last block is as long as they allow. With a seed, only a run that the budget ends depends on the machine.
    warmup : int
        Number of sweeps to discard before the draws, per chain; a third of the sweeps, if the budget has fewer.
    thin : int
        Number of sweeps per draw.
    threads : int or None
        Number of chains run at once or, for a single chain or counts on disk, of row blocks processed at once. The
        draws do not depend on it.
    collapsed : bool
        Whether to draw the component of every single count given all other counts, with loadings and components
        integrated out; these are then drawn only for the kept draws. This needs Dirichlet components. A sweep costs
        O(total count · K) on one thread, and mixes better if counts are small.
    algorithm : {"allocations", "marginal"} or None
        "allocations" draws multinomial allocations, then loadings, then components from their conditionals. "marginal"
        sums the allocations out and draws one entry at a time, with shears and scales of components between, for
        chains that mix on large counts. None is "marginal" from 16 counts for each of the K (n + m) entries on, where
        it was the quicker one (benchmarks/README.md, "Chains").
    keep : {"auto", "draws", "moments"}
        "draws" keeps every draw, up to 4 GiB (8 bytes · chains · draws · K · (n + m)). "moments" keeps evenly thinned
        draws, up to 512 MiB, and the means, standard deviations, R-hat and effective sample sizes of all draws
        (`Fit.moments`). These are accumulated while the chains run, as the split R-hat and the effective sample size by
        batch means. "auto" is "draws" up to 1 GiB; above it, "moments", with a warning that gives the run time. The
        largest memory use is about three times the size of the kept draws.

    Raises
    ------
    TypeError, ValueError
        An option of the wrong type or out of range.

    See Also
    --------
    fit, NUTS, SMC
    plots.chains : draws the chains.

    Examples
    --------
    >>> import bayesnmf
    >>> options = bayesnmf.Gibbs(chains=2, warmup=50, draws=100)
    >>> counts = [[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]]
    >>> fit = bayesnmf.fit(counts, rank=1, method="gibbs", seed=0, options=options)
    >>> fit.posterior.components.shape
    (2, 100, 1, 3)
    """

    priors: Priors = field(default_factory=Priors)
    start: Start | FitToStartFrom | Literal["fit", "random"] = "fit"
    chains: int = 4
    draws: int | Literal["auto"] = "auto"
    budget: float = BUDGET
    warmup: int = 500
    thin: int = 1
    threads: int | None = None
    collapsed: bool = False
    algorithm: Literal["marginal", "allocations"] | None = None
    keep: Literal["auto", "draws", "moments"] = "auto"

    def __post_init__(self) -> None:
        check_sampler(self)
        check_budget(self.budget, self.draws, BUDGET)
        check_choice(self.keep, "keep", ("auto", "draws", "moments"))
        check_count(self.thin, "thin")
        check_threads(self.threads)
        check_flag(self.collapsed, "collapsed")
        if self.algorithm is not None:
            check_choice(self.algorithm, "algorithm", algorithms_of("gibbs"))
        check_one_sampler(self.collapsed, self.algorithm)


@dataclass(frozen=True, eq=False, kw_only=True)
class NUTS:
    """Options of Hamiltonian Monte Carlo (NumPyro's NUTS) on the NumPyro program, with allocations summed out.

    Attributes
    ----------
    priors : Priors
        Priors of both sides.
    start : Start, Fit, "fit" or "random"
        State to start from, as for `Gibbs`.
    chains : int
        Number of chains.
    draws, warmup : int
        Number of draws to keep and of steps to discard before them, per chain; each costs many gradients.
    target_accept : float
        Mean acceptance probability, in (0, 1), to which the step size is adapted.
    max_tree_depth : int
        Largest number of doublings of a trajectory.
    dtype : {"float64", "float32"}
        Type of the gradients.

    Raises
    ------
    TypeError, ValueError
        An option of the wrong type or out of range.

    See Also
    --------
    fit, Gibbs
    plots.chains : draws the chains.

    Examples
    --------
    >>> import bayesnmf
    >>> bayesnmf.NUTS(chains=4, draws=1000).chains
    4
    """

    priors: Priors = field(default_factory=Priors)
    start: Start | FitToStartFrom | Literal["fit", "random"] = "fit"
    chains: int = 2
    draws: int = 500
    warmup: int = 300
    target_accept: float = 0.8
    max_tree_depth: int = 8
    dtype: Literal["float64", "float32"] = "float64"

    def __post_init__(self) -> None:
        check_sampler(self)
        check_fraction(self.target_accept, "target_accept")
        check_count(self.max_tree_depth, "max_tree_depth", most=30)
        check_choice(self.dtype, "dtype", ("float64", "float32"))


@dataclass(frozen=True, eq=False, kw_only=True)
class SMC:
    """Options of sequential Monte Carlo: independent runs from the prior to the posterior, by powers of the likelihood.

    A run takes particles from the prior through a ladder of powers of the likelihood, weights and resamples them, and
    moves them by marginal Gibbs sampling; it estimates the evidence p(X). Runs may end in other modes: their draws are
    weighted by their estimates. A pilot run sets the ladder, which is refined while the runs disagree. A fit has
    converged if the runs agree and its draws descend from at least 6.25 draws from the prior, by weight. Priors must be
    proper.

    Attributes
    ----------
    priors : Priors
        Priors of both sides.
    particles : int
        Number of particles of each run.
    runs : int
        Number of independent runs. Their spread shows whether evidence and weights are known.
    efficiency : float
        Share of the particles, in (0, 1), that a step of the first ladder leaves effective. Nearer to 1, the ladder has
        more steps, about in proportion to 1 / √(1 − efficiency), and the estimates vary less.
    refinement : int
        Largest number of steps of a refined ladder, as a multiple of those of the first one. While the logs of the
        runs' estimates have a standard deviation above 1 nat, all runs are made again on a finer ladder, unless one
        that brings it to 0.7 is beyond this limit. 1 is for no refinement.
    threads : int or None
        Number of runs at once. The draws do not depend on it.

    Raises
    ------
    TypeError, ValueError
        An option of the wrong type or out of range.

    See Also
    --------
    fit, Gibbs
    log_evidence : the evidence alone, by the same runs.

    Examples
    --------
    >>> import bayesnmf
    >>> bayesnmf.SMC(particles=8, runs=4).chains
    4
    """

    priors: Priors = field(default_factory=Priors)
    particles: int = 16
    runs: int = 8
    efficiency: float = 0.95
    refinement: int = 32
    threads: int | None = None

    def __post_init__(self) -> None:
        check_settings(self)
        check_count(self.particles, "particles", minimum=2)
        check_count(self.runs, "runs", most=MOST_RUNS)
        check_fraction(self.efficiency, "efficiency")
        check_count(self.refinement, "refinement", most=MOST_REFINEMENT)
        check_threads(self.threads)

    @property
    def chains(self) -> int:
        """Number of chains of draws: one for each run."""
        return self.runs

    @property
    def draws(self) -> int:
        """Number of draws of each chain: one for each particle."""
        return self.particles


@dataclass(frozen=True, eq=False, kw_only=True)
class SVI:
    """Options of stochastic variational inference (NumPyro's SVI) with the closed-form family as the guide.

    Attributes
    ----------
    priors : Priors
        Priors of both sides.
    start : Start, Fit, "fit" or "random"
        State to start from. "fit": a closed-form variational fit.
    bound : {"marginal", "augmented"}
        The elbo to maximise. "marginal" sums the allocations out, which is tighter; "augmented" keeps them, as
        closed-form vi does.
    max_iter : int
        Number of gradient steps.
    learning_rate : float
        Initial learning rate of Adam; it decays to a tenth over the run.
    particles : int
        Number of draws from q per gradient.
    dtype : {"float64", "float32"}
        Type of the gradients.

    Raises
    ------
    TypeError, ValueError
        An option of the wrong type or out of range.

    See Also
    --------
    fit, VI

    Examples
    --------
    >>> import bayesnmf
    >>> bayesnmf.SVI(max_iter=500, learning_rate=0.02).bound
    'marginal'
    """

    priors: Priors = field(default_factory=Priors)
    start: Start | FitToStartFrom | Literal["fit", "random"] = "fit"
    bound: Literal["marginal", "augmented"] = "marginal"
    max_iter: int = 2000
    learning_rate: float = 0.01
    particles: int = 1
    dtype: Literal["float64", "float32"] = "float64"

    def __post_init__(self) -> None:
        check_settings(self)
        check_start(self.start, ("fit", "random"))
        check_choice(self.bound, "bound", ("marginal", "augmented"))
        check_count(self.max_iter, "max_iter")
        check_positive(self.learning_rate, "learning_rate")
        check_count(self.particles, "particles")
        check_choice(self.dtype, "dtype", ("float64", "float32"))
