"""Options of the closed-form methods: map, vi and bld."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from bayesnmf.checks import check_choice
from bayesnmf.options.checks import (
    check_coordinate_ascent,
    check_decomposition,
    check_device,
    check_map_algorithm,
    check_vi_algorithm,
)
from bayesnmf.options.start import FitToStartFrom, Start
from bayesnmf.priors.pair import Priors

INTERVALS = ("auto", "sampled", "response", "mean_field")


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
        (`bayesnmf.inference.starts.states`). "descent": the same, followed by 50 iterations of coordinate descent on
        the likelihood alone. "random_descent": "random", followed by the same. None is "descent" for vi, and for map if
        a shape or concentration is below 1; else, and on disk, "svd". Where priors of components favour features, as
        seeds do, each word is a start that has these features.
        At the end of a fit from "svd" or "descent", two components are merged and a third is split as long as this
        raises the objective: components that carry nothing of their own; any, if counts are few (nonzeros and 20 times
        rows and features, times K, up to 400,000; `bayesnmf.inference.starts.exchanging`).
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
    schedule: Literal["joint", "alternating"] | None = None
    order: Literal["loadings", "components"] = "loadings"
    sweeps: int | None = None
    extrapolate: bool | None = None
    restarts: int = 1
    max_iter: int = 5000
    tol: float | None = None
    kkt_tol: float = 0.0
    dtype: Literal["float64", "float32"] = "float64"
    threads: int | None = None
    device: Literal["cpu", "gpu", "gpus"] = "cpu"

    def __post_init__(self) -> None:
        check_coordinate_ascent(self)
        if self.basis is not None:
            check_choice(self.basis, "basis", ("natural", "log"))
        check_map_algorithm(self)
        check_device(self, "map")


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
    forgetting: float | None = None
    delay: float | None = None
    schedule: Literal["joint", "alternating"] | None = None
    order: Literal["loadings", "components"] = "loadings"
    sweeps: int | None = None
    extrapolate: bool | None = None
    learn: tuple[str, ...] = ()
    restarts: int = 1
    max_iter: int = 5000
    tol: float | None = None
    intervals: Literal["auto", "sampled", "response", "mean_field"] = "auto"
    dtype: Literal["float64", "float32"] = "float64"
    threads: int | None = None
    device: Literal["cpu", "gpu", "gpus"] = "cpu"

    def __post_init__(self) -> None:
        check_coordinate_ascent(self)
        check_vi_algorithm(self)
        check_choice(self.intervals, "intervals", INTERVALS)
        check_device(self, "vi")
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
    max_iter: int = 5000
    tol: float = 1e-7
    threads: int | None = None

    def __post_init__(self) -> None:
        check_decomposition(self)
