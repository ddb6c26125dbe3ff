"""Options of each method: one frozen class, which checks every option by its type and what its field says of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from bayesnmf.checks import check_fraction, check_positive
from bayesnmf.options.algorithms import SCHEDULES
from bayesnmf.options.checks import (
    check_draws,
    check_fields,
    check_forgetting,
    check_learn,
    check_own_settings,
    check_threads,
)
from bayesnmf.options.start import FitToStartFrom, Start
from bayesnmf.priors.pair import Priors
from bayesnmf.priors.unknown import unknown_side

INTERVALS = ("auto", "sampled", "response", "mean_field")
MOST_RUNS = 100_000
MOST_REFINEMENT = 10_000
BUDGET = 300.0  # seconds


@dataclass(frozen=True, eq=False, kw_only=True)
class MAP:
    """Options of the point estimate by EM, multiplicative updates or coordinate descent.

    Of the options that are None, `fit.options` contains the choices of algorithm, start, extrapolate, tol and priors
    (`bayesnmf.options.methods`); the others stay None, and follow from these.

    Attributes
    ----------
    priors : Priors
        Priors of both sides.
    start : Start, Fit, "svd", "descent", "random", "random_descent" or None
        State to start from. "random": counts allocated at random. "svd": a singular value decomposition of the counts
        (`bayesnmf.inference.starts.states`). "descent": the same, followed by 30 to 50 iterations of coordinate descent
        on the likelihood alone. "random_descent": "random", followed by the same. None is "descent" for vi, and for map
        if a shape or concentration is below 1; else, and on disk, "svd". Where priors of components favour features, as
        seeds do, each word is a start that has these features.
        At the end of a fit from "svd" or "descent", two components are merged and a third is split as long as this
        raises the objective: components that carry nothing of their own; any, if counts are few (nonzeros and 20 times
        rows and features, times K, up to 400,000).
    basis : {"natural", "log"} or None
        Basis in which the mode is taken. "natural" needs every shape and concentration to be at least 1; "log" is the
        log (softmax) basis, in which the density includes the Jacobian. None is "natural" if the priors allow it, else
        "log".
    algorithm : {"em", "scd", "ccd"} or None
        "em": EM, which equals the multiplicative updates. "scd", "ccd": sequential or cyclic coordinate descent
        ([C] alg. 1), which gets stuck less often than EM. It needs shapes and concentrations of at least 1 and, if
        components are on the simplex, a prior of the loadings that is Gamma(1, rate) with one rate for all components,
        or has concentration 1. None is "scd" if the priors and the other options allow it, else "em".
    schedule : {"joint", "alternating"} or None
        One allocation step for both sides, or one for each side. None is "joint" for "em"; "scd" and "ccd" alternate.
    sweeps : int or None
        Number of consecutive updates of a side (`bayesnmf.inference.ascent.course.Schedule`). None is 3 for "scd", else
        1.
    extrapolate : bool or None
        Whether to extend each step as far as this raises the objective (`bayesnmf.inference.ascent.coordinate_ascent`).
        None is True.
    restarts : int
        Number of starts: `start` itself, then random ones, for vi in memory with a descent if `start` is made from the
        counts. The fit with the highest objective is returned.
    kkt_tol : float
        KKT residual, in counts, at which to stop too; 0 disables this rule.
    order : {"loadings", "components"}
        Side that is updated first.
    max_iter : int
        Largest number of updates of both sides that lead to the result. Updates of rejected exchanges, and those that
        prepare a start, are not counted.
    tol : float or None
        Relative change of the objective below which to stop; 0 disables this rule. None is 1e-9 for coordinate
        descent, else 1e-7.
    threads : int or None
        Number of row blocks processed at once. None is one per Numba thread, or 1 for small problems.
    dtype : {"float64", "float32"}
        Type of the factors. In float32 the objective is rounded by up to about 2e-6 of the total of the counts.
    device : {"cpu", "gpu", "gpus"}
        "gpu" keeps counts and factors on JAX's first GPU, "gpus" on all GPUs, each with the counts of some rows. Both
        need algorithm "em" ("coordinate" under vi) and no `threads`. Counts on disk go there block by block. Starts
        are computed on the CPU.

    Raises
    ------
    TypeError, ValueError
        An option of the wrong type or out of range, or options that exclude each other.

    See Also
    --------
    fit, VI, BLD

    Examples
    --------
    >>> import bayesnmf
    >>> counts = [[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]]
    >>> fit = bayesnmf.fit(counts, rank=2, method="map", seed=0, options=bayesnmf.MAP(algorithm="em"))
    >>> fit.options.algorithm
    'em'
    """

    priors: Priors = field(default_factory=Priors)
    start: Start | FitToStartFrom | Literal["svd", "descent", "random", "random_descent"] | None = None
    basis: Literal["natural", "log"] | None = None
    algorithm: Literal["em", "scd", "ccd"] | None = None
    schedule: Literal["joint", "alternating"] | None = field(default=None, metadata={"words": SCHEDULES})
    order: Literal["loadings", "components"] = "loadings"
    sweeps: int | None = None
    extrapolate: bool | None = None
    restarts: int = 1
    max_iter: int = field(default=5000, metadata={"minimum": 0})
    tol: float | None = None
    kkt_tol: float = 0.0
    dtype: Literal["float64", "float32"] = "float64"
    threads: int | None = field(default=None, metadata={"check": check_threads})
    device: Literal["cpu", "gpu", "gpus"] = "cpu"

    def __post_init__(self) -> None:
        check_fields(self)
        check_own_settings(self, "map")


@dataclass(frozen=True, eq=False, kw_only=True)
class VI:
    """Options of closed-form mean-field variational inference; variational EM with components="parameter".

    After the last update, the loadings of every row are updated until they settle given the components, unless `tol`
    is 0, which asks for exactly `max_iter` updates. Of the options that are None, `fit.options` contains the choices of
    algorithm, start, extrapolate, tol and priors; the others stay None, and follow from these.

    Attributes
    ----------
    priors : Priors
        Priors of both sides.
    algorithm : {"coordinate", "settled", "gradient", "minibatch"} or None
        "coordinate": coordinate ascent. "settled": the same, but up to 15 updates from equal loadings come before each
        update of the components, if this raises the elbo; it gets stuck less often with small concentrations.
        "gradient": L-BFGS on the elbo with the optimal allocations inserted ([P] path 1). "minibatch": stochastic, from
        batches of rows (`bayesnmf.inference.ascent.minibatch`); `max_iter` then counts epochs, `tol` applies to the
        best elbo of five epochs, and `sweeps=None` updates a batch's loadings until they settle. None is "coordinate".
    batch_size : int or None
        Largest number of rows of a batch under "minibatch". None is 256.
    forgetting, delay : float or None
        Step sizes under "minibatch": step t has size (t + delay)^−forgetting, with forgetting in (0.5, 1] and
        delay ≥ 0. None are 0.6 and 1.
    learn : tuple of "loadings", "components"
        Sides with a prior to learn: its parameters maximise the elbo and start at the given values. A parameter given
        as one number stays one number, and a vector keeps one number per component. Shapes and concentrations that
        diverge stop at 1e5. In float32 the elbo may then decrease by up to about 1e-4 of its size.
    tol : float or None
        As in `MAP`. None is 1e-4 under "minibatch", else 1e-7.
    intervals : {"auto", "sampled", "response", "mean_field"}
        Where intervals and probabilities are read from, beside q (`Fit.with_intervals`). "sampled", "response": draws
        that are made at the end of the fit. "mean_field": q itself, whose intervals are too narrow. "auto": the first
        function that asks for intervals samples if this is expected to take at most 5 s, or as long as the fit took, up
        to a minute; otherwise q is read, and what is returned or drawn says so. Loadings, components and trace are the
        same.
    start : Start, Fit, "svd", "descent", "random", "random_descent" or None
        State to start from, as in `MAP`.
    schedule : {"joint", "alternating"} or None
        One allocation step for both sides, or one for each side, as in `MAP`.
    order : {"loadings", "components"}
        Side that is updated first.
    sweeps : int or None
        Number of consecutive updates of a side, as in `MAP`.
    extrapolate : bool or None
        Whether to extend each step as far as this raises the objective, as in `MAP`.
    restarts : int
        Number of starts, of which the fit with the highest objective is returned, as in `MAP`.
    max_iter : int
        Largest number of updates of both sides, as in `MAP`.
    dtype : {"float64", "float32"}
        Type of the factors, as in `MAP`.
    threads : int or None
        Number of row blocks processed at once, as in `MAP`.
    device : {"cpu", "gpu", "gpus"}
        Where counts and factors are, as in `MAP`.

    Raises
    ------
    TypeError, ValueError
        An option of the wrong type or out of range, or options that exclude each other.

    See Also
    --------
    fit, MAP, SVI
    MinibatchVI : for counts that come in batches.

    Examples
    --------
    >>> import bayesnmf
    >>> counts = [[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]]
    >>> fit = bayesnmf.fit(counts, rank=2, seed=0, options=bayesnmf.VI(restarts=3))
    >>> fit.options.restarts
    3
    """

    priors: Priors = field(default_factory=Priors)
    start: Start | FitToStartFrom | Literal["svd", "descent", "random", "random_descent"] | None = None
    algorithm: Literal["coordinate", "settled", "gradient", "minibatch"] | None = None
    batch_size: int | None = None
    forgetting: float | None = field(default=None, metadata={"check": check_forgetting})
    delay: float | None = None
    schedule: Literal["joint", "alternating"] | None = field(default=None, metadata={"words": SCHEDULES})
    order: Literal["loadings", "components"] = "loadings"
    sweeps: int | None = None
    extrapolate: bool | None = None
    learn: tuple[str, ...] = field(default=(), metadata={"check": check_learn})
    restarts: int = 1
    max_iter: int = field(default=5000, metadata={"minimum": 0})
    tol: float | None = None
    intervals: Literal["auto", "sampled", "response", "mean_field"] = "auto"
    dtype: Literal["float64", "float32"] = "float64"
    threads: int | None = field(default=None, metadata={"check": check_threads})
    device: Literal["cpu", "gpu", "gpus"] = "cpu"

    def __post_init__(self) -> None:
        check_fields(self)
        check_own_settings(self, "vi")
        object.__setattr__(self, "learn", tuple(self.learn))  # files store it as a list


@dataclass(frozen=True, eq=False, kw_only=True)
class BLD:
    """Options of the best latent decomposition under dirichlet_gamma.

    The method finds the allocation S with the highest log p(S), and returns the modes given S.

    Attributes
    ----------
    priors : Priors
        Priors of both sides.
    start : Start, Fit, "fit", "map", "vi" or "random"
        Multipliers to start from. "map", "vi": the factors of a fit of the same model by that method from a random
        start. "fit": "vi" if every concentration of the priors is at least 1, else "map". A Start or Fit: its loadings
        and components, or the multipliers of a fit by bld. A multiplier of 0 stays 0.
    restarts : int
        Number of starts, of which the fit with the highest log p(S) is returned.
    max_iter : int
        Largest number of updates, as in `MAP`.
    tol : float
        Relative change of log p(S) over five updates below which to stop; 0 disables this rule.
    threads : int or None
        Number of row blocks processed at once, as in `MAP`.

    Raises
    ------
    TypeError, ValueError
        An option of the wrong type or out of range, or options that exclude each other.

    See Also
    --------
    fit, MAP
    log_p_allocation : what it maximises.

    Examples
    --------
    >>> import bayesnmf
    >>> counts = [[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]]
    >>> fit = bayesnmf.fit(counts, "dirichlet_gamma", rank=2, method="bld", seed=0, options=bayesnmf.BLD(restarts=2))
    >>> fit.method
    'bld'
    """

    priors: Priors = field(default_factory=Priors)
    start: Start | FitToStartFrom | Literal["fit", "map", "vi", "random"] = "fit"
    restarts: int = 1
    max_iter: int = field(default=5000, metadata={"minimum": 0})
    tol: float = 1e-7
    threads: int | None = field(default=None, metadata={"check": check_threads})

    def __post_init__(self) -> None:
        check_fields(self)
        check_own_settings(self, "bld")


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
    draws: int | Literal["auto"] = field(default="auto", metadata={"check": check_draws})
    budget: float = field(default=BUDGET, metadata={"check": check_positive})
    warmup: int = field(default=500, metadata={"minimum": 0})
    thin: int = 1
    threads: int | None = field(default=None, metadata={"check": check_threads})
    collapsed: bool = False
    algorithm: Literal["allocations", "marginal"] | None = None
    keep: Literal["auto", "draws", "moments"] = "auto"

    def __post_init__(self) -> None:
        check_fields(self)
        check_own_settings(self, "gibbs")


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
    dense_mass : bool
        Whether to adapt a whole mass matrix, of all parameters, instead of its diagonal.
    init_strategy : {"uniform", "median", "mean", "sample"} or None
        NumPyro's ``init_to_…``, by which each chain starts in place of `start`. None is `start`.
    chain_method : {"parallel", "sequential"}
        Whether chains run at once, on a thread each, or one after the other.
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
    >>> counts = [[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]]
    >>> options = bayesnmf.NUTS(chains=2, warmup=20, draws=30)
    >>> fit = bayesnmf.fit(counts, rank=1, method="nuts", seed=0, options=options)
    >>> fit.posterior.components.shape
    (2, 30, 1, 3)
    """

    priors: Priors = field(default_factory=Priors)
    start: Start | FitToStartFrom | Literal["fit", "random"] = "fit"
    chains: int = 2
    draws: int = 500
    warmup: int = field(default=300, metadata={"minimum": 0})
    target_accept: float = field(default=0.8, metadata={"check": check_fraction})
    max_tree_depth: int = field(default=8, metadata={"most": 30})
    dense_mass: bool = False
    init_strategy: Literal["uniform", "median", "mean", "sample"] | None = None
    chain_method: Literal["parallel", "sequential"] = "parallel"
    dtype: Literal["float64", "float32"] = "float64"

    def __post_init__(self) -> None:
        check_fields(self)


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
    particles: int = field(default=16, metadata={"minimum": 2})
    runs: int = field(default=8, metadata={"most": MOST_RUNS})
    efficiency: float = field(default=0.95, metadata={"check": check_fraction})
    refinement: int = field(default=32, metadata={"most": MOST_REFINEMENT})
    threads: int | None = field(default=None, metadata={"check": check_threads})

    def __post_init__(self) -> None:
        check_fields(self)

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
    learning_rate: float = field(default=0.01, metadata={"check": check_positive})
    particles: int = 1
    dtype: Literal["float64", "float32"] = "float64"

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class Elsewhere:
    """What is known of a fit that was made elsewhere: its priors, which may be unknown (`bayesnmf.priors.unknown`)."""

    priors: Priors = field(default_factory=Priors)

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def bound(self) -> str:
        """Which density the trace of a fit has, log joint or log likelihood."""
        return "joint" if unknown_side(self.priors) is None else "likelihood"
