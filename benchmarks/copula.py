"""A Gaussian copula over loadings and components together, fitted from the mean field of a gamma_poisson fit.

An experiment that `benchmarks.location` measures; the package does not have it, since short chains are better.

The model in free entries: t_ik = θ_ik / c_k and b_kj = c_k β_kj, with an auxiliary c_k ~ Gamma(M, 1) that is
independent of θ and β and so leaves their posterior as it is. With c_k = Σ_j b_kj and λ = t b the log joint is

    Σ_ij X_ij log λ_ij − Σ_k c_k [1 + (1 + r) Σ_i t_ik] + (a − 1) Σ log t + (η − 1) Σ log b
    + Σ_k (n a + M − m η) log c_k

up to a constant. A large M holds c_k nearly still, so that the scale is no direction of its own.

Every entry is an increasing function x(z) of one coordinate, and q(z) = N(μ, P⁻¹) over all of them. The precision P
has the shape of an arrow: the K entries of a row of t are tied to each other and to b, but not to other rows. A
natural-gradient step is

    P ← (1 − ρ) P − ρ E_q[∇² f(z)],   v ← γ v + s P⁻¹ E_q[∇ f(z)],   μ ← μ + v,   f(z) = log joint + Σ log x′(z),

with expectations over antithetic draws of q (Khan & Lin 2017). Now and then the functions x(z) are matched anew to the
means and variances of the entries under q.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, solve_triangular

from benchmarks.copula_maps import Curve, Maps

Array = NDArray[Any]
WIDER = 6.0  # times the mean field's variances have the functions x(z) that the fit begins with
LEAST_SHAPE = 3.0  # and no smaller shapes than this
SCALE = 1e4  # M; with 1e6 the log-normal q, whose entries cannot keep so narrow a sum, goes astray
MATCHING = 200  # draws that functions are matched to
LARGEST_STEP = 3.0  # of an entry of v
LEAST_RATE = 1e-6


class Blocks(NamedTuple):
    """A symmetric matrix: blocks of rows (n, K, K), of rows with b (n, K, mK) and of b (mK, mK)."""

    rows: Array
    across: Array
    components: Array

    def scaled(self, by: Array) -> Blocks:
        """Return the blocks with rows and columns multiplied by numbers, one for each coordinate."""
        n, K, _ = self.rows.shape
        t, b = by[: n * K].reshape(n, K), by[n * K :]
        rows, across = self.rows * t[:, :, None] * t[:, None, :], self.across * t[:, :, None] * b
        return Blocks(rows, across, self.components * b[:, None] * b)

    def blended(self, other: Blocks, rate: float) -> Blocks:
        """Return (1 − rate) times these blocks plus rate times others."""
        return Blocks(*((1 - rate) * ours + rate * theirs for ours, theirs in zip(self, other, strict=True)))


class Precision:
    """A precision in blocks with its Cholesky factor; `numpy.linalg.LinAlgError` if it is not positive definite."""

    def __init__(self, blocks: Blocks) -> None:
        self.blocks = blocks
        self.n, self.rank, _ = blocks.rows.shape
        self.of_rows = np.linalg.cholesky(blocks.rows)
        self.across = np.linalg.solve(self.of_rows, blocks.across).reshape(self.n * self.rank, -1)
        left = blocks.components - self.across.T @ self.across
        self.of_components = cholesky(left, lower=True, check_finite=False)

    def solve(self, vector: Array) -> Array:
        """Return P⁻¹ times a vector."""
        cut = self.n * self.rank
        t = np.linalg.solve(self.of_rows, vector[:cut].reshape(self.n, self.rank, 1)).ravel()
        b = cho_solve((self.of_components, True), vector[cut:] - self.across.T @ t, check_finite=False)
        return np.concatenate([self._back((t - self.across @ b)[:, None]).ravel(), b])

    def draws(self, normal: Array) -> Array:
        """Return draws of N(0, P⁻¹) made of draws (S, d) of N(0, I)."""
        cut, root = self.n * self.rank, self.of_components
        b = solve_triangular(root, normal[:, cut:].T, lower=True, trans="T", check_finite=False)
        return np.concatenate([self._back(normal[:, :cut].T - self.across @ b), b]).T

    def _back(self, t: Array) -> Array:
        return np.linalg.solve(self.of_rows.transpose(0, 2, 1), t.reshape(self.n, self.rank, -1)).reshape(t.shape)


@njit(cache=True, fastmath=True)
def _cross_terms(weight: Array, t: Array, b: Array, dt: Array, db: Array) -> Array:
    """Return Σ_s w_ijs t_ils t′_iks b_jks b′_jls as (n, K, m, K); the draws s stand last in all arguments."""
    n, K, S = t.shape
    m = len(b)
    out = np.empty((n, K, m, K))
    for i in range(n):
        for j in range(m):
            for k in range(K):
                for other in range(K):
                    total = 0.0
                    for s in range(S):
                        total += weight[i, j, s] * t[i, other, s] * dt[i, k, s] * b[j, k, s] * db[j, other, s]
                    out[i, k, j, other] = total
    return out


@dataclass(frozen=True, eq=False)
class Joint:
    """The log joint in free entries, t (n, K) and then b (m, K): X, K, a, r, η and M of the formula."""

    counts: Array
    rank: int
    shape: float
    rate: float
    concentration: float
    total: float = SCALE

    @property
    def power(self) -> float:
        """Power of every c_k."""
        n, m = self.counts.shape
        return n * self.shape + self.total - m * self.concentration

    def entries(self, x: Array) -> tuple[Array, Array]:
        """Return t (S, n, K) and b (S, m, K)."""
        n, m = self.counts.shape
        cut = n * self.rank
        return x[:, :cut].reshape(-1, n, self.rank), x[:, cut:].reshape(-1, m, self.rank)

    def factors(self, x: Array) -> tuple[Array, Array]:
        """Return loadings (S, n, K) and components (S, K, m)."""
        t, b = self.entries(x)
        c = b.sum(axis=1, keepdims=True)
        return t * c, np.swapaxes(b / c, 1, 2)

    def log_density(self, x: Array) -> Array:
        """Return the log joint (S,) of entries (S, d), without its constant."""
        t, b = self.entries(x)
        c = b.sum(axis=1)
        fit = np.einsum("nm,snm->s", self.counts, np.log(t @ b.transpose(0, 2, 1)))
        tied = (self.power * np.log(c) - c * (1 + (1 + self.rate) * t.sum(axis=1))).sum(axis=1)
        free = (self.shape - 1) * np.log(t).sum(axis=(1, 2)) + (self.concentration - 1) * np.log(b).sum(axis=(1, 2))
        return np.asarray(fit + tied + free)

    def derivatives(self, curve: Curve) -> tuple[Array, Blocks]:
        """Return the gradient (d,) of f and the blocks of minus its Hessian, in z, both means over draws."""
        t, b = self.entries(curve.x)
        ratio = self.counts / (t @ b.transpose(0, 2, 1))
        c, rate, draws = b.sum(axis=1, keepdims=True), 1 + self.rate, len(t)
        by_t = ratio @ b - rate * c + (self.shape - 1) / t
        by_b = ratio.transpose(0, 2, 1) @ t - rate * t.sum(axis=1, keepdims=True)
        by_b += (self.concentration - 1) / b + self.power / c - 1
        by_x = np.concatenate([by_t.reshape(draws, -1), by_b.reshape(draws, -1)], axis=1)
        gradient = (by_x * curve.first + curve.slope).mean(axis=0)
        return gradient, self._minus_hessian(curve, ratio, by_x * curve.second + curve.bend)

    def _minus_hessian(self, curve: Curve, ratio: Array, bent: Array) -> Blocks:
        (t, b), (dt, db) = self.entries(curve.x), self.entries(curve.first)
        (S, n, K), m = t.shape, b.shape[1]
        weight = ratio / (t @ b.transpose(0, 2, 1))
        on_t, on_b = (each.mean(axis=0) for each in self.entries(bent))
        on_t = (self.shape - 1) * ((dt / t) ** 2).mean(axis=0) - on_t
        on_b = (self.concentration - 1) * ((db / b) ** 2).mean(axis=0) - on_b

        def own(weight: Array, other: Array, slope: Array, diagonal: Array) -> Array:
            squares = (other[:, :, :, None] * other[:, :, None, :]).reshape(S, -1, K * K)
            summed = (weight @ squares).reshape(S, -1, K, K)
            blocks = np.einsum("sikl,sik,sil->ikl", summed, slope, slope) / S
            return blocks + diagonal[:, :, None] * np.eye(K)

        last = [np.ascontiguousarray(np.moveaxis(each, 0, -1)) for each in (weight, t, b, dt, db)]
        across, k = _cross_terms(*last) / S, np.arange(K)
        for each in k:
            left, right = dt[:, :, each], db[:, :, each]
            seen = np.einsum("sn,snm,sm->nm", left, ratio, right, optimize=True)
            across[:, each, :, each] -= (seen - (1 + self.rate) * left.T @ right) / S
        components, j, tied = np.zeros((m, K, m, K)), np.arange(m), db / b.sum(axis=1, keepdims=True)
        components[j, :, j, :] = own(weight.transpose(0, 2, 1), t, db, on_b)
        for each in k:
            components[:, each, :, each] += self.power * tied[:, :, each].T @ tied[:, :, each] / S
        rows = own(weight, b, dt, on_t)
        return Blocks(rows, across.reshape(n, K, m * K), components.reshape(m * K, m * K))


@dataclass(frozen=True)
class Schedule:
    """Steps of a fit.

    Attributes
    ----------
    steps, draws : int
        Number of steps and of draws of q in each.
    rate, momentum : tuple of float
        ρ and γ, in the first half of the steps and later.
    step : float
        s.
    matched : tuple of int
        Steps before which the functions x(z) are matched to q.
    coupled : bool
        Whether q couples the two sides.
    spread : float
        Number that distances of draws from μ are multiplied by; 0 takes derivatives at μ, as Laplace does.
    """

    steps: int = 40
    draws: int = 32
    rate: tuple[float, float] = (0.7, 0.3)
    momentum: tuple[float, float] = (0.7, 0.3)
    step: float = 0.7
    matched: tuple[int, ...] = (3, 6, 9, 12, 16, 20)
    coupled: bool = True
    spread: float = 1.0


@dataclass
class Copula:
    """q: functions x(z), the mean and the precision of z, and v of the last step."""

    maps: Maps
    mean: Array
    precision: Precision
    velocity: Array

    def coordinates(self, normal: Array) -> Array:
        """Return draws of z made of draws of N(0, I)."""
        return self.mean + self.precision.draws(normal)

    def draws(self, number: int, rng: np.random.Generator) -> Array:
        """Return draws (number, d) of the entries."""
        return self.maps.curve(self.coordinates(rng.standard_normal((number, len(self.mean))))).x

    def match(self, rng: np.random.Generator) -> None:
        """Match the functions to the means and variances of the entries; q(z) is carried over by linear regression."""
        z = self.coordinates(rng.standard_normal((MATCHING, len(self.mean))))
        x = self.maps.curve(z).x
        mean = x.mean(axis=0)
        self.maps = Maps.of(self.maps.kind, np.maximum(mean**2 / x.var(axis=0), 0.05), mean)
        new = self.maps.inverse(x)
        slope = ((new - new.mean(axis=0)) * (z - z.mean(axis=0))).mean(axis=0) / z.var(axis=0)
        self.mean, self.velocity = new.mean(axis=0), self.velocity * slope
        self.precision = Precision(self.precision.blocks.scaled(1 / slope))

    def blend(self, blocks: Blocks, rate: float) -> None:
        """Move the precision towards other blocks, less far where it would not be positive definite."""
        while True:
            try:
                self.precision = Precision(self.precision.blocks.blended(blocks, rate))
                return
            except np.linalg.LinAlgError:
                rate /= 2
                if rate < LEAST_RATE:
                    raise


def mean_field(kind: str, joint: Joint, loadings: tuple[Array, Array], concentration: Array) -> Copula:
    """Return the copula that is about a mean field: q(θ) = Gamma(shape, rate), q(β_k) = Dirichlet(concentration)."""
    shapes, rates = (np.broadcast_to(each, (len(joint.counts), joint.rank)) for each in loadings)
    share = concentration / concentration.sum(axis=1, keepdims=True)
    shape = np.concatenate([shapes.ravel(), concentration.T.ravel()])
    mean = np.concatenate([(shapes / rates / joint.total).ravel(), (share * joint.total).T.ravel()])
    wide = np.where(shape > LEAST_SHAPE, np.maximum(shape / WIDER, LEAST_SHAPE), shape)
    (n, K), m = shapes.shape, concentration.shape[1]
    plain = Blocks(np.tile(np.eye(K), (n, 1, 1)), np.zeros((n, K, m * K)), np.eye(m * K))
    precision, (at, still) = Precision(plain.scaled(np.sqrt(shape / wide))), np.zeros((2, len(mean)))
    return Copula(Maps.of(kind, wide, mean), at, precision, still)


def fit_copula(joint: Joint, q: Copula, schedule: Schedule, rng: np.random.Generator) -> Copula:
    """Fit q by natural-gradient steps, in place; its mean ends as that of the last quarter of the steps.

    It raises `numpy.linalg.LinAlgError` if a step is not finite or the precision is no longer positive definite.
    """
    ended = []
    for step in range(schedule.steps):
        late = int(step >= schedule.steps // 2)
        if step in schedule.matched:
            q.match(rng)
        half = rng.standard_normal((schedule.draws // 2, len(q.mean)))
        around = schedule.spread * q.precision.draws(np.concatenate([half, -half]))
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # a step that is not finite is refused
            gradient, blocks = joint.derivatives(q.maps.curve(q.mean + around))
        if not schedule.coupled:
            blocks = blocks._replace(across=np.zeros_like(blocks.across))
        q.blend(blocks, schedule.rate[late])
        moved = schedule.momentum[late] * q.velocity + schedule.step * q.precision.solve(gradient)
        if not np.all(np.isfinite(moved)):
            raise np.linalg.LinAlgError("a step is not finite")
        q.velocity = np.clip(moved, -LARGEST_STEP, LARGEST_STEP)
        q.mean = q.mean + q.velocity
        if step >= 0.75 * schedule.steps - 1:
            ended.append(q.mean)
    q.mean = np.mean(ended, axis=0)
    return q
