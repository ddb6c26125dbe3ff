"""Options of the closed-form methods: map, vi and bld."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from bayesnmf.checks import check_choice
from bayesnmf.options.checks import (
    check_coordinate_ascent,
    check_decomposition,
    check_device,
    check_map_algorithm,
    check_vi_algorithm,
)
from bayesnmf.options.start import Start
from bayesnmf.priors.pair import Priors

if TYPE_CHECKING:
    from bayesnmf.results.record import FitRecord


@dataclass(frozen=True, eq=False, kw_only=True)
class MAP:
    """Point estimate by EM, multiplicative updates or coordinate descent.

    An option that is None is resolved when `fit` is called (`bayesnmf.options.defaults`); `fit.options` has what was
    chosen.

    Attributes
    ----------
    start : Start, Fit, "race", "svd", "descent", "random" or None
        "svd": from a singular value decomposition of the counts (`bayesnmf.inference.starts.from_data`). "descent":
        from there by 50 iterations of coordinate descent on the likelihood alone, for sparse priors. "race": some
        iterations from several of these and from random starts, of which the best goes on
        (`bayesnmf.inference.starts.racing`); then, of three components or more and unless `tol` is 0, two are merged
        and another is split for as long as this raises the objective (`bayesnmf.inference.starts.exchanging`). None is
        "race".
    basis : {"natural", "log"} or None
        Where the mode is taken. "natural" needs every shape and concentration ≥ 1; "log" is the log (softmax)
        basis, whose density includes the Jacobian. None is natural where it can be, else log.
    algorithm : {"em", "scd", "ccd"} or None
        "em": EM, which the multiplicative updates are. "scd", "ccd": sequential or cyclic coordinate descent ([C] alg.
        1), stuck less often than EM; for priors at 1 or above and, if components are on the simplex, loadings whose
        prior is Gamma(1, rate) with one rate for all components, or of concentration 1. None is scd where the priors
        and the other options allow it, else em.
    schedule : {"joint", "alternating"} or None
        One allocation step for both sides, or one for each. None is joint for em; the others alternate.
    sweeps : int or None
        Updates of a side in a row (`bayesnmf.inference.ascent.coordinate_ascent.Schedule`). None is 3 for scd, else 1.
    extrapolate : bool or None
        Go further along each step, as far as this raises the objective (`bayesnmf.inference.ascent.extrapolation`).
        None is True.
    restarts : int
        Starts: that of `start`, and random ones for all others. The fit of highest objective is returned.
    kkt_tol : float
        Also stop when the KKT residual is at most this, in counts; 0 does not stop there.
    order : {"loadings", "components"}
        The side that is updated first.
    max_iter : int
        Most updates of both sides on the way to what is returned; those of starts and exchanges that are left, and on
        the way to a start, come on top.
    tol : float or None
        Stop when the objective changes by less than `tol` times its size; 0 does not stop there. None is 1e-9 for
        coordinate descent, else 1e-7.
    threads : int or None
        Row blocks worked on at once. None is one for each of Numba's threads, or 1 where there is little to do.
    dtype : {"float64", "float32"}
        Of the factors.
    device : {"cpu", "gpu"}
        "gpu": counts and factors lie on JAX's first GPU, with algorithm "em" ("coordinate" under vi) and without
        `threads`. Starts are made on the CPU, and `start` of None is "svd", or "descent" where a prior is below 1.
    """

    priors: Priors = field(default_factory=Priors)
    start: Start | FitRecord | Literal["race", "svd", "descent", "random"] | None = None
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
    device: Literal["cpu", "gpu"] = "cpu"

    def __post_init__(self) -> None:
        check_coordinate_ascent(self)
        if self.basis is not None:
            check_choice(self.basis, "basis", ("natural", "log"))
        check_map_algorithm(self)
        check_device(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class VI:
    """Closed-form mean-field variational inference; variational EM with components="parameter".

    Unless `tol` is 0, which asks for `max_iter` updates as they are, the loadings of every row are settled given the
    components at the end. An option that is None is resolved when `fit` is called; `fit.options` has what was chosen.

    Attributes
    ----------
    algorithm : {"coordinate", "settled", "gradient", "minibatch"} or None
        Coordinate ascent; the same with loadings found afresh, by up to 15 updates, before the components move, where
        this raises the bound (less often stuck if concentrations are small); L-BFGS on the bound with allocations put
        back ([P] path 1); stochastic, from batches of rows (`bayesnmf.inference.ascent.minibatch`): `max_iter` counts
        epochs, `tol` is for the best bound of five, `sweeps` of None settles a batch's loadings. None is "coordinate".
    batch_size, forgetting, delay : number or None
        Under "minibatch": most rows of a batch (None is 256); step t goes the part (t + delay)^−forgetting of the way,
        with forgetting in (0.5, 1] and delay ≥ 0 (None are 0.6 and 1).
    learn : tuple of "loadings", "components"
        Sides whose prior is learned: its parameters maximise the bound, and start at those given; a number stays one
        number, a vector one for each component. Shapes and concentrations that run off stop at 1e5. In float32 the
        bound may then fall by up to about 1e-4 relative.
    tol : float or None
        As in `MAP`. None is 1e-4 under "minibatch", else 1e-7.
    start, schedule, order, sweeps, extrapolate, restarts, max_iter, dtype, threads, device
        As in `MAP`, but for `start` of None, which under "gradient" and "minibatch", too, is "descent" where a prior is
        below 1, else "svd".
    """

    priors: Priors = field(default_factory=Priors)
    start: Start | FitRecord | Literal["race", "svd", "descent", "random"] | None = None
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
    dtype: Literal["float64", "float32"] = "float64"
    threads: int | None = None
    device: Literal["cpu", "gpu"] = "cpu"

    def __post_init__(self) -> None:
        check_coordinate_ascent(self)
        check_vi_algorithm(self)
        check_device(self)
        object.__setattr__(self, "learn", tuple(self.learn))  # a list too, as in a file


@dataclass(frozen=True, eq=False, kw_only=True)
class BLD:
    """Best latent decomposition under dirichlet_gamma: the allocation of greatest log p(S), and the modes given it.

    Attributes
    ----------
    start : Start, Fit, "fit", "map", "vi" or "random"
        "map", "vi": multipliers from a fit of the same model by that method, from a random start. "fit": vi where
        every concentration of the priors is at least 1, else map; they alone decide. A Start or Fit gives its
        loadings and components, a fit by bld its multipliers. A multiplier of 0 stays 0.
    restarts, max_iter, tol, threads
        As in `MAP`; the objective is log p(S), and `tol` is for its change over five updates.
    """

    priors: Priors = field(default_factory=Priors)
    start: Start | FitRecord | Literal["fit", "map", "vi", "random"] = "fit"
    restarts: int = 1
    max_iter: int = 5000
    tol: float = 1e-7
    threads: int | None = None

    def __post_init__(self) -> None:
        check_decomposition(self)
