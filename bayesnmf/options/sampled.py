"""Options of the methods that draw: gibbs, nuts and svi."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from bayesnmf.checks import check_choice, check_count, check_flag, check_fraction, check_positive
from bayesnmf.options.checks import check_sampler, check_settings, check_start, check_threads
from bayesnmf.options.start import Start
from bayesnmf.priors.pair import Priors

if TYPE_CHECKING:
    from bayesnmf.results.record import FitRecord


@dataclass(frozen=True, eq=False, kw_only=True)
class Gibbs:
    """Gibbs sampling: multinomial allocations, then loadings, then components from their conditionals.

    Attributes
    ----------
    start : Start, Fit, "fit" or "random"
        "fit": chains start from independent draws of a closed-form variational fit, around one mode.
        "random": each chain from a random state of its own (dispersed starts).
    chains, draws, warmup : int
        Kept draws and discarded ones, for each chain.
    thin : int
        Sweeps for each kept draw.
    threads : int or None
        Chains run at once, or for a single chain row blocks worked on at once; the draws do not depend on it.
    collapsed : bool
        Draw every single count's component given all the others, loadings and components integrated out, and draw
        these for the kept draws only. Needs Dirichlet components. A sweep costs O(total count · K) and no threads
        share it; it mixes better where counts are small.
    keep : {"auto", "draws", "moments"}
        "draws": every draw, at most 4 GiB (8 bytes · chains · draws · K · (n + m)). "moments": draws thinned evenly to
        at most 512 MiB, and means, standard deviations, R-hat and effective sample sizes of all draws
        (`Fit.moments`), which are summed up while chains run: R-hat is then the split R-hat, the effective sample size
        that of batch means. "auto": "draws" up to 1 GiB; above it "moments", with a warning that says so, and how long
        the run will take. While draws are put together they take up to about three times their size.
    """

    priors: Priors = field(default_factory=Priors)
    start: Start | FitRecord | Literal["fit", "random"] = "fit"
    chains: int = 4
    draws: int = 1000
    warmup: int = 500
    thin: int = 1
    threads: int | None = None
    collapsed: bool = False
    keep: Literal["auto", "draws", "moments"] = "auto"

    def __post_init__(self) -> None:
        check_sampler(self)
        check_choice(self.keep, "keep", ("auto", "draws", "moments"))
        check_count(self.thin, "thin")
        check_threads(self.threads)
        check_flag(self.collapsed, "collapsed")


@dataclass(frozen=True, eq=False, kw_only=True)
class NUTS:
    """Hamiltonian Monte Carlo (NumPyro's NUTS) on the NumPyro program, allocations summed out.

    Attributes
    ----------
    start, chains, draws, warmup
        As for `Gibbs`. There are fewer draws by default, since each costs many gradients.
    target_accept : float
        Mean acceptance the step size is adapted to, in (0, 1).
    max_tree_depth : int
        Most doublings of a trajectory.
    dtype : {"float64", "float32"}
        Of the gradients.
    """

    priors: Priors = field(default_factory=Priors)
    start: Start | FitRecord | Literal["fit", "random"] = "fit"
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
class SVI:
    """Stochastic variational inference (NumPyro's SVI) with the closed-form family as the guide.

    Attributes
    ----------
    start : Start, Fit, "fit" or "random"
        "fit": the closed-form variational fit.
    bound : {"marginal", "augmented"}
        The objective. "marginal" sums the allocations out, which is tighter; "augmented" keeps them, as the bound of
        closed-form vi does.
    max_iter : int
        Gradient steps.
    learning_rate : float
        Of Adam, decaying to a tenth over the run.
    particles : int
        Draws from q for each gradient.
    dtype : {"float64", "float32"}
        Of the gradients.
    """

    priors: Priors = field(default_factory=Priors)
    start: Start | FitRecord | Literal["fit", "random"] = "fit"
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
