"""Sample which known components are present in each row, with what the rows share: prevalence, shape and dispersion.

Rows are drawn by `bayesnmf.kernels.cpu.presence`. Given which components are present, the chance π_k of each has
the prior Beta(c m, c (1 − m)), whose mean m and weight c are drawn by Metropolis steps with π summed out; so are the
shape a of the loadings, whose shares are Dirichlet(a), and the dispersion.

A chain begins at a refit of each row, or with far too many components and a larger dispersion, which falls. In warm-up
each round begins at the mode of each row's support: draws of all loadings around a mode cannot come back from far away,
where the density is small, but that of their proposals is smaller still. The draws that are kept never begin there.
Where known components may move, odds of presence are low at first and rise in the first half of the warm-up: what all
rows share then moves the components that they surely have, before one that nobody has is present in all for it.

Components that a catalogue lacks, and known ones that may move, are drawn given loadings of which many are 0. The prior
of a component is Dirichlet: flat but for its concentration below 1, or around what is known, with a strength that is
given or learned. Given the loadings u, a component v with the concentrations c has of the counts, or of the clusters
of linear variance, its share y, and

    p(v | y, u) ∝ Π_j v_j^(c_j + y_j − 1) exp(−v_j t_j),        t_j = Σ_i u_i ε_ij,

where the rates ε of entries are 1, or log(1 + s) / s of clusters, those of quadratic variance are drawn, and those of
missing entries are 0. With counts z_j ~ Poisson(v_j (max t − t_j)) that nobody saw, the exponents do not depend on v,
and it is Dirichlet(c + y + z).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.sparse import csc_array, csr_array, vstack
from scipy.special import betaln, expit, gammaln

from bayesnmf.data.counts import Counts
from bayesnmf.inference.checkpoints.slots import next_slot
from bayesnmf.kernels.cpu.clusters import drawn_clusters_of_entries
from bayesnmf.kernels.cpu.presence import (
    LINEAR,
    POISSON,
    QUADRATIC,
    Model,
    draw_presence,
    judge_presence,
    refit_presence,
)
from bayesnmf.kernels.cpu.sampling import sampled_allocations
from bayesnmf.kernels.cpu.threads import one_blas_thread
from bayesnmf.noise.abilities import Dispersed, Noise
from bayesnmf.types import Array

CONCENTRATION = 0.5  # of extra components
MOVED = 0.01  # added to the concentrations of known ones, whose zeros are no certainty
STRENGTH, STRENGTH_SPREAD = 5000.0, 1.0  # median, and standard deviation of the logarithm, of what is learned
LEAST_STRENGTH = 1000.0  # of what is learned: with less, flat spectra have cosines below 0.95 with what they were
LEAST = 1e-290  # of means
LEAST_SPREAD = 1e-6  # of dispersions
EXPECTED = 5.0  # components of a row, before the counts are seen
MOVES = 8  # of all loadings of a row, in a round
AGAIN, WARM = 5, 20  # times as many moves, and rounds of warm-up, of rows that are drawn again
HEATED, FALL, COLD = 30, 0.88, 0.02  # rounds of dispersion that falls from 1, its factor a round, and where it ends
LOWERED = 6.0  # nats that the log odds of presence are below theirs at first, where known components may move
FREE_FROM = 20  # round from which on chances and shape are drawn, which the first supports would lead astray
SHAPE, SHAPE_SPREAD = 1.5, 0.5  # median of the shape, and standard deviation of its logarithm
WEIGHT, WEIGHT_SPREAD = 5.0, 1.5  # of the Beta prior of the chances, in the same way
DISPERSION, DISPERSION_SPREAD = 0.3, 2.0  # as for fits
BETWEEN_FEATURES, FEATURE_STEP = 1.0, 0.4  # sd of the logarithms of dispersions of features, and the width of a step
STEPS, DISPERSION_STEPS = 10, (0.5, 0.1, 0.1)  # of Metropolis; widths of those of the dispersion, the first to travel
FEWEST = 4  # rounds kept, from which on a chain that Ctrl-C ends has a result


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Known components, and where those begin that are looked for beside them.

    Attributes
    ----------
    known : ndarray (K, m)
        Components whose rows sum to 1.
    extra : ndarray (E, m)
        Where extra ones begin.
    moves : bool
        Whether known ones may move.
    strength : float, optional
        How many counts of its own a known component weighs against those of the samples; learned if it is not given.
    """

    known: Array
    extra: Array
    moves: bool = False
    strength: float | None = None

    @property
    def fixed(self) -> Array:
        """The components that stay as they are."""
        return self.known[: 0 if self.moves else None]

    @property
    def origin(self) -> Array:
        """What the priors of drawn components are around; zeros for extra ones."""
        return np.vstack([self.known[: None if self.moves else 0], np.zeros_like(self.extra)])

    @property
    def whole(self) -> Array:
        """All components, where they begin."""
        return np.ascontiguousarray(np.vstack([self.known, self.extra]))


def draw_components(
    counts: Array, missing: Array, loadings: Array, components: Array, concentration: Array, variance: int,
    dispersion: Array, rng: np.random.Generator,
) -> None:  # fmt: skip
    """Replace the last components by draws given everything else.

    Parameters
    ----------
    counts : ndarray (n, m)
    missing : ndarray of bool (n or 0, m)
        Which entries are missing; no rows if none is.
    loadings : ndarray (n, K)
    components : ndarray (K, m)
        Components, which are written into.
    concentration : ndarray (E, m)
        Concentrations of the priors of the last ones.
    variance : int
        How the variance grows (`bayesnmf.kernels.cpu.presence`).
    dispersion : ndarray (m,)
    """
    rates, counted = np.ones(counts.shape), counts
    means = np.maximum(loadings @ components, LEAST)
    if variance == QUADRATIC:
        rates = rng.gamma(counts + 1 / dispersion) / (means + 1 / dispersion)
    if variance == LINEAR:
        some = counts > 0
        counted = np.zeros(counts.shape)
        rates *= np.log1p(dispersion) / dispersion
        counted[some] = drawn_clusters_of_entries(counts[some], (means / dispersion)[some], int(rng.integers(2**63)))
    if len(missing):
        rates[missing] = 0.0
    shared = sampled_allocations(csr_array(counted), loadings, components, int(rng.integers(2**63)))
    first = len(components) - len(concentration)
    spent = loadings[:, first:].T @ rates
    unseen = rng.poisson(components[first:] * (spent.max(axis=1, keepdims=True) - spent))
    drawn = np.maximum(rng.gamma(concentration + shared.components[first:] + unseen), LEAST)
    components[first:] = drawn / drawn.sum(axis=1, keepdims=True)


class Drawn(NamedTuple):
    """Draws of one chain: loadings (draws, n K) sparse, shares of moves with presence (n, K), and what rows share.

    These are chances of presence (draws, K), the shape (draws,), the dispersion of each feature, or one (draws, 1), and
    the strength of the catalogue (draws,). Extra components (draws, E, m) are those that are drawn. Rows without counts
    have no loadings, and shares of NaN: they say nothing, and are left out of what rows share. A chain that Ctrl-C
    ended is not `whole`.
    """

    loadings: csr_array
    presence: Array
    prevalence: Array
    shapes: Array
    dispersions: Array
    strength: Array
    extra: Array
    whole: bool = True


@dataclass
class State:
    """What a chain has reached.

    Attributes
    ----------
    loadings : ndarray (n, K)
    components : ndarray (K, m)
        Known components, and extra ones as they were drawn.
    common : ndarray (2,)
        Logit of the mean of the chances' prior, and the logarithm of its weight.
    chances : ndarray (K,)
        Chances of presence.
    shape : float
    dispersion : ndarray (1,) or (m,)
        Dispersion of all entries, or of each feature.
    strength : float
        Strength of the priors of known components that move.
    """

    loadings: Array
    components: Array
    common: Array
    chances: Array
    shape: float
    dispersion: Array
    strength: float


def draw_chain(
    counts: Counts, catalogue: Catalogue, noise: Noise, rounds: tuple[int, int], rng: np.random.Generator,
    tell: Callable[[int], None], start: Literal["refit", "all"] | Array = "refit",
) -> Drawn:  # fmt: skip
    """Return draws of a chain, after warm-up; after Ctrl-C those that were kept, if there are enough for a result.

    Inside `bayesnmf.inference.checkpoints.slots.keeping` it goes on from where an earlier call of it was.

    Parameters
    ----------
    catalogue : Catalogue
        Known components, and where extra ones begin.
    rounds : tuple of int
        Rounds of warm-up, and rounds that are kept.
    tell : callable
        Function that hears the number of each round.
    start : {"refit", "all"} or ndarray (n, K)
        Loadings to begin with: those of a refit; random shares of all components, which a large dispersion then lets
        go; or these.
    """
    some = np.flatnonzero(counts.row_totals > 0)
    both, known, extra = catalogue.whole, len(catalogue.fixed), len(catalogue.extra) > 0
    setting, slot = Setting(counts.rows(some), noise, catalogue), next_slot("presence", None)
    loadings = np.zeros((counts.shape[0], len(both)))
    presence = np.full_like(loadings, np.nan)
    presence[some] = 0.0
    first, kept, ended = 0, list[Any](), slot.result()
    begun = slot.snapshot() if ended is None else ended
    if begun is None:
        state = setting.first_state(both, start if isinstance(start, str) else start[some], rng)
    else:
        first, added, presence, reached, rng.bit_generator.state = begun
        state, kept = State(**reached), slot.pieces(added)
    # What extra components are begun from, counts that are left over, is lost in the heat.
    heated = isinstance(start, str) and start == "all" and not extra
    falling = min(HEATED, rounds[0] // 2) if heated else 0  # what is kept has no heat
    scarce = rounds[0] // 2 if catalogue.moves else 0
    waiting = 0 if extra else min(FREE_FROM, rounds[0] // 2)  # extra ones are found by chances, too
    try:
        for number in range(first, sum(rounds)):
            if slot.due():
                slot.save((number, len(kept), presence, vars(state), rng.bit_generator.state))
            heat = FALL ** (number * HEATED / falling) if number < falling else 0.0
            lowered = LOWERED * (1 - number / scarce) if number < scarce else 0.0
            with one_blas_thread():  # threads of products wait busily, in the way of those that draw
                share = setting.step(state, rng, heat, lowered, number < rounds[0], number >= waiting)
            tell(number)
            if number >= rounds[0]:
                presence[some] += share
                loadings[some] = state.loadings
                drawn = csr_array(loadings.reshape(1, -1).astype(np.float32))
                own = state.chances, state.shape, state.dispersion, state.strength, state.components[known:].copy()
                kept.append((drawn.data, drawn.indices, *own))
                slot.add(kept[-1])
    except KeyboardInterrupt:
        if len(kept) < FEWEST:
            raise
    if ended is None and len(kept) == rounds[1]:
        slot.end((sum(rounds), len(kept), presence, vars(state), rng.bit_generator.state))
    presence = presence / len(kept)
    sizes, (data, indices, *shared) = (1, loadings.size), zip(*kept, strict=True)
    rows = [csr_array((*own, [0, len(own[0])]), shape=sizes) for own in zip(data, indices, strict=True)]
    told: list[Any] = [*map(np.array, shared)]
    return Drawn(vstack(rows, format="csr"), presence, *told)._replace(whole=len(kept) == rounds[1])


def draw_again(
    counts: Counts, catalogue: Catalogue, noise: Noise, chain: Drawn, rows: Array, rng: np.random.Generator,
    tell: Callable[[int, int], None],
) -> Drawn:  # fmt: skip
    """Return a chain whose loadings of some rows are drawn again, with more moves, given what all rows share in it.

    `tell` hears the number of rounds that are done, and of all.
    """
    rank = chain.presence.shape[1]
    setting = Setting(counts.rows(rows), noise, catalogue)
    places = (rows[:, None] * rank + np.arange(rank)).ravel()
    loadings = chain.loadings[[-1]].toarray()[0, places].reshape(len(rows), rank).astype(np.float64)
    share, drawn = np.zeros_like(loadings), list[csr_array]()
    draws = len(chain.shapes)
    for number in range(-WARM, draws):
        at = number % draws
        own, components = chain.prevalence[at], np.vstack([catalogue.fixed, chain.extra[at]])
        shared = float(chain.shapes[at]), chain.dispersions[at], float(chain.strength[at])
        state = State(loadings, components, setting.centre, own, *shared)
        model = setting.model(state)
        if number == 0:
            share[:] = 0.0
        seed = int(rng.integers(2**63))
        draw_presence(setting.counts.matrix, model, seed, AGAIN * MOVES, number < 0, loadings, share)
        tell(WARM + number + 1, WARM + draws)
        if number >= 0:
            drawn.append(csr_array(loadings.reshape(1, -1).astype(np.float32)))
    new, presence = vstack(drawn, format="coo"), chain.presence.copy()
    presence[rows] = share / draws
    old = chain.loadings.tocoo()
    left = ~np.isin(old.col // rank, rows)
    data, order = np.concatenate([old.data[left], new.data]), np.concatenate([old.row[left], new.row])
    columns = np.concatenate([old.col[left], places[new.col]])
    return chain._replace(loadings=csr_array((data, (order, columns)), shape=old.shape), presence=presence)


class Setting:
    """What the steps of all chains need beside their states: counts without empty rows, noise and priors."""

    def __init__(self, counts: Counts, noise: Noise, catalogue: Catalogue) -> None:
        self.counts, self.noise, self.catalogue = counts, noise, catalogue
        self.origin, self.moving = catalogue.origin, len(catalogue.origin) - len(catalogue.extra)
        self.floors = np.where(np.arange(len(self.origin)) < self.moving, MOVED, CONCENTRATION)[:, None]
        self.mean = min(EXPECTED / len(catalogue.whole), 0.5)
        self.centre = np.array([np.log(self.mean / (1 - self.mean)), np.log(WEIGHT)])
        given = noise.of_lines(noise.dispersion) if isinstance(noise, Dispersed) else 0.0
        self.learned = given is None
        first = np.asarray(DISPERSION if given is None else given, np.float64).reshape(-1)
        self.dispersion = np.repeat(first, counts.shape[1] // len(first)) if noise.by_feature else first
        self.missing, self.seen = np.zeros((0, counts.shape[1]), bool), np.ones(counts.shape, bool)
        if counts.mask is not None:
            self.missing = counts.mask.missing.toarray() > 0
            self.seen = ~self.missing
        self.values, self.times = np.unique(counts.dense[self.seen], return_counts=True)

    def model(self, state: State, heat: float = 0.0, lowered: float = 0.0) -> Model:
        """Return what the kernels take, with log odds of presence lowered by so much."""
        variance, spreads, factors = self._noise_at(state.dispersion, heat)
        counted = state.components * factors
        exposure = counted.sum(axis=1)[None, :] if variance == LINEAR else np.full((1, len(counted)), factors[0])
        if variance != QUADRATIC and self.counts.mask is not None:
            exposure = np.maximum(exposure - self.counts.mask.sums_by_row(counted.T), 0.0)
        odds = np.log(state.chances) - np.log1p(-state.chances) - lowered
        shapes = np.full(len(odds), state.shape)
        return Model(state.components, self.missing, exposure, shapes, odds, variance, spreads, factors)

    def _noise_at(self, dispersion: Array, heat: float) -> tuple[int, Array, Array]:
        """Return variance, and the dispersion and the factor of the mean of each feature, (m,)."""
        m = self.counts.shape[1]
        if self.noise.has_entry_rates:
            return QUADRATIC, np.maximum(dispersion, max(heat, LEAST_SPREAD)) * np.ones(m), np.zeros(m)
        s = np.maximum(dispersion, heat * max(self.counts.total / np.prod(self.counts.shape), 1.0)) * np.ones(m)
        if s.max() < LEAST_SPREAD or (dispersion.max() == 0.0 and heat < COLD):
            return POISSON, np.zeros(m), np.ones(m)
        s = np.maximum(s, LEAST_SPREAD)
        return LINEAR, s, np.log1p(s) / s

    def first_state(self, components: Array, start: Literal["refit", "all"] | Array, rng: np.random.Generator) -> State:
        """Return where a chain begins, as `draw_chain` says."""
        rank = len(components)
        nothing, chances = np.zeros((0, rank)), np.full(rank, self.mean)
        strength = STRENGTH if self.catalogue.strength is None else self.catalogue.strength
        state = State(nothing, components.copy(), self.centre.copy(), chances, SHAPE, self.dispersion, strength)
        if not isinstance(start, str):
            state.loadings = np.array(start, dtype=np.float64)
        elif start == "refit":
            state.loadings = refit_presence(self.counts.matrix, self.model(state))
        else:
            state.loadings = self.counts.row_totals[:, None] * rng.dirichlet(np.ones(rank), self.counts.shape[0])
        return state

    def step(
        self, state: State, rng: np.random.Generator, heat: float, lowered: float, afresh: bool, free: bool
    ) -> Array:
        """Draw everything once; return the share of the moves in which each component was present.

        `heat` is the least dispersion, `lowered` how far log odds of presence are below theirs, `afresh` says that rows
        begin at the modes of their supports, and `free` that chances, shape and known components that move are drawn.
        """
        share, seed = np.zeros(state.loadings.shape), int(rng.integers(2**63))
        model = self.model(state, heat, lowered)
        draw_presence(self.counts.matrix, model, seed, MOVES, afresh, state.loadings, share)
        if free and len(self.origin):
            concentration = state.strength * self.origin + self.floors
            draw_components(
                self.counts.dense, self.missing, state.loadings, state.components, concentration, model.variance,
                model.dispersion, rng,
            )  # fmt: skip
            if self.moving and self.catalogue.strength is None:
                self._draw_strength(state, rng)
        if free:
            self._draw_chances(state, rng)
            self._draw_shape(state, rng)
        if self.learned:
            self._draw_dispersion(state, rng)
        return share

    def _draw_chances(self, state: State, rng: np.random.Generator) -> None:
        used, n = (state.loadings > 0).sum(axis=0), len(state.loadings)

        def log_density(at: Array) -> float:
            a, b = np.exp(at[1]) * expit(at[0]), np.exp(at[1]) * expit(-at[0])
            far = (at - self.centre) / [1.0, WEIGHT_SPREAD]
            return float((betaln(a + used, b + n - used) - betaln(a, b)).sum() - 0.5 * far @ far)

        state.common = _metropolis(rng, state.common, np.array([0.15, 0.4]), log_density)
        a, b = np.exp(state.common[1]) * expit(state.common[0]), np.exp(state.common[1]) * expit(-state.common[0])
        state.chances = np.clip(rng.beta(a + used, b + n - used), 1e-9, 1 - 1e-9)

    def _draw_shape(self, state: State, rng: np.random.Generator) -> None:
        there = state.loadings > 0
        sizes, totals = there.sum(axis=1), state.loadings.sum(axis=1, keepdims=True)
        logs = float(np.log(np.divide(state.loadings, totals, out=np.ones_like(state.loadings), where=there)).sum())

        def log_density(at: Array) -> float:
            a = np.exp(at[0])
            far = (at[0] - np.log(SHAPE)) / SHAPE_SPREAD
            return float(gammaln(a * sizes).sum() - sizes.sum() * gammaln(a) + a * logs - 0.5 * far**2)

        state.shape = float(np.exp(_metropolis(rng, np.log([state.shape]), np.array([0.15]), log_density)[0]))

    def _draw_strength(self, state: State, rng: np.random.Generator) -> None:
        """Draw the strength given the known components that some row has."""
        used = np.flatnonzero((state.loadings[:, : self.moving] > 0).any(axis=0))
        logs, origin = np.log(state.components[used]), self.origin[used]

        def log_density(at: Array) -> float:
            if at[0] < np.log(LEAST_STRENGTH):
                return -np.inf
            c = np.exp(at[0]) * origin + MOVED
            found = gammaln(c.sum(axis=1)).sum() - gammaln(c).sum() + ((c - 1) * logs).sum()
            return float(found - 0.5 * ((at[0] - np.log(STRENGTH)) / STRENGTH_SPREAD) ** 2)

        at = _metropolis(rng, np.log([state.strength]), np.array([0.1]), log_density, 4)
        state.strength = float(np.exp(at[0]))

    def _draw_dispersion(self, state: State, rng: np.random.Generator) -> None:
        x, means = self.counts.dense, np.maximum(state.loadings @ state.components, LEAST)
        if len(state.dispersion) > 1:
            state.dispersion = self._drawn_of_features(x, means, state.dispersion, rng)
            return
        x, means = x[self.seen], means[self.seen]

        def log_likelihood(d: float) -> float:
            """Return Σ log p(x), up to what does not depend on the dispersion."""
            if self.noise.has_entry_rates:
                of_values = gammaln(self.values + 1 / d) - gammaln(1 / d) + self.values * np.log(d)
                return float(self.times @ of_values - ((x + 1 / d) * np.log1p(d * means)).sum())
            size = means / d
            found = gammaln(x + size) - gammaln(size) - (x + size) * np.log1p(d) + x * np.log(d)
            return float(found.sum())

        def log_density(at: Array) -> float:
            far = (at[0] - np.log(DISPERSION)) / DISPERSION_SPREAD
            return log_likelihood(float(np.exp(at[0]))) - 0.5 * float(far) ** 2

        at = np.log(state.dispersion)
        for width in DISPERSION_STEPS:
            at = _metropolis(rng, at, np.array([width]), log_density, 1)
        state.dispersion = np.exp(at)

    def _drawn_of_features(self, x: Array, means: Array, dispersion: Array, rng: np.random.Generator) -> Array:
        """Return dispersions of features (m,), whose logarithms are normal around a level that is drawn first."""
        here = np.log(dispersion)
        precision = len(here) / BETWEEN_FEATURES**2 + 1 / DISPERSION_SPREAD**2
        mean = (here.sum() / BETWEEN_FEATURES**2 + np.log(DISPERSION) / DISPERSION_SPREAD**2) / precision
        level = mean + rng.normal() / np.sqrt(precision)

        def log_density(at: Array) -> Array:
            d = np.exp(at)
            size = 1 / d if self.noise.has_entry_rates else means / d
            ratio = d * means if self.noise.has_entry_rates else d
            found = gammaln(x + size) - gammaln(size) - size * np.log1p(ratio) + x * (np.log(ratio) - np.log1p(ratio))
            return (found * self.seen).sum(axis=0) - 0.5 * ((at - level) / BETWEEN_FEATURES) ** 2

        now = log_density(here)
        for _ in DISPERSION_STEPS:
            new = here + FEATURE_STEP * rng.normal(size=len(here))
            there = log_density(new)
            taken = np.log(rng.random(len(here))) < there - now
            here, now = np.where(taken, new, here), np.where(taken, there, now)
        return np.asarray(np.exp(here))


def _metropolis(
    rng: np.random.Generator, at: Array, width: Array, log_density: Callable[[Array], float], steps: int = STEPS
) -> Array:
    here = log_density(at)
    for _ in range(steps):
        new = at + width * rng.normal(size=len(at))
        there = log_density(new)
        if np.log(rng.random()) < there - here:
            at, here = new, there
    return at


def mean_loadings(counts: Counts, noise: Noise, components: Array, chains: list[Drawn]) -> Array:
    """Return the means of the loadings over the draws of all chains, (n, K).

    Given the shares, the total of a row of N Poisson counts is Gamma(1 + N, r + Σ ε share), and its mean takes the
    place of what was drawn: so few draws of few counts add up to the counts, too.
    """
    rank, totals = chains[0].presence.shape[1], counts.row_totals[:, None]
    rates = np.ones((1, rank))
    if counts.mask is not None:
        rates = np.maximum(1.0 - counts.mask.sums_by_row(components.T), 0.0)
    rates = rates + 1.0 / np.maximum(totals, 1.0)
    found, draws = np.zeros((len(totals), rank)), 0
    for each in chains:
        for number in range(each.loadings.shape[0]):
            drawn = each.loadings[[number]].toarray().reshape(found.shape).astype(np.float64)
            if noise.of_poisson:
                drawn *= (1.0 + totals) / np.maximum((drawn * rates).sum(axis=1, keepdims=True), 1e-290)
            found += drawn
            draws += 1
    return found / draws


def judge(counts: Counts, catalogue: Catalogue, noise: Noise, chains: list[Drawn]) -> tuple[Array, Array]:
    """Return how far the chains differ in each row, and how far they lie below a refit, (n,), in nats.

    The first is the difference between means over the draws of a chain of the log-likelihood, or between the halves of
    a single chain. The second compares, in the log joint density of counts, presence and the logarithms of the
    exposures, a refit pruned backwards by it with the mode of the support of the best draw of all chains: draws
    themselves lie below their mode by half a nat for each component on average, a refit does not. The density of
    logarithms does not depend on the unit of exposures, and a component that is in doubt, which is known to a third of
    itself, has in it about the odds that it has when its exposure is integrated out. Both are those of the posterior
    means of what rows share, and NaN for rows without counts.
    """
    some = np.flatnonzero(counts.row_totals > 0)
    known, rank = catalogue.fixed, chains[0].presence.shape[1]
    setting = Setting(counts.rows(some), noise, catalogue)
    shape = float(np.mean([each.shapes.mean() for each in chains]))
    dispersion = np.mean([each.dispersions.mean(axis=0) for each in chains], axis=0)
    chances = np.mean([each.prevalence.mean(axis=0) for each in chains], axis=0)
    components = np.vstack([known, np.mean([each.extra.mean(axis=0) for each in chains], axis=0)])
    model = setting.model(State(np.zeros((0, rank)), components, setting.centre, chances, shape, dispersion, STRENGTH))
    matrix, none = setting.counts.matrix, components[None, len(known) :]
    joint = judge_presence(matrix, model, csc_array(refit_presence(matrix, model).reshape(1, -1)), none)[1][0]
    places = (some[:, None] * rank + np.arange(rank)).ravel()
    parts, best = [], []
    for each in chains:
        likelihoods, _, modes = judge_presence(matrix, model, csc_array(each.loadings)[:, places], each.extra)
        parts += np.array_split(likelihoods, 1 if len(chains) > 1 else min(2, len(likelihoods)))
        best.append(modes)
    between, below = np.full((2, counts.shape[0]), np.nan)
    between[some] = np.ptp([each.mean(axis=0) for each in parts], axis=0)
    below[some] = joint - np.max(best, axis=0)
    return between, below


def quantiles_of_stored(values: csc_array, levels: tuple[float, ...]) -> list[Array]:
    """Return quantiles of the stored entries of every column, or NaN for a column without any.

    The entry of rank r of n is the quantile r / (n + 1) (Weibull), so that intervals of few draws hold on average what
    they should.
    """
    sizes = np.diff(values.indptr)
    columns = np.repeat(np.arange(values.shape[1]), sizes)
    ordered = values.data[np.lexsort((values.data, columns))].astype(np.float64)
    some: Array = sizes > 0
    found = []
    for level in levels:
        place = np.clip(level * (sizes[some] + 1) - 1, 0, sizes[some] - 1)
        below = np.floor(place).astype(np.int64)
        above = np.minimum(below + 1, sizes[some] - 1)
        begun, part = values.indptr[:-1][some], place - below
        out = np.full(values.shape[1], np.nan)
        out[some] = ordered[begun + below] * (1 - part) + ordered[begun + above] * part
        found.append(out)
    return found
