"""Compute means, standard deviations, R-hat and effective sample sizes of all draws, of which only some are kept.

Draws are summed in batches while the chains run. Halves of chains, made of batches, give the split R-hat. The means of
batches give the effective sample size, if the autocorrelation of draws is shorter than a batch. Loadings of counts on
disk are summed, kept and averaged block by block, in files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bayesnmf.data.blocks.counts import BlockedCounts
from bayesnmf.data.blocks.raw import RowsInFile
from bayesnmf.inference import alignment
from bayesnmf.inference.blocked.passes import BlockedLoadings, Pass, pass_over_rows
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.side import Side, empty_side
from bayesnmf.inference.sides import Where
from bayesnmf.priors.values import Value, parts_of, separate_scale
from bayesnmf.types import Array

BATCHES = 20  # per chain; the effective sample size from 4 chains is then accurate to about 16 %
ROUNDING = 1e-14  # sds below this share of the mean are rounding errors of sums over draws that are all equal


class Entries(NamedTuple):
    """One number for each loading (n, K), component entry (K, m) and, if there is a scale, each scale (n,)."""

    loadings: Array
    components: Array
    scale: Array | None = None

    def reordered(self, order: Array) -> Entries:
        """Return the entries with component `order[k]` as component k."""
        return self._replace(loadings=self.loadings[:, order], components=self.components[order])


class Summary(NamedTuple):
    """Mean, standard deviation, R-hat and effective sample size of every entry, over all draws of all chains."""

    mean: Entries
    sd: Entries
    r_hat: Entries
    ess: Entries


def entries_of(loadings: Value, components: Array) -> Entries:
    """Return the entries of one draw."""
    shares, scale = separate_scale(loadings)
    return Entries(shares, components, scale)


class Running:
    """Sums over the draws of one chain.

    Parameters
    ----------
    draws : int
        Expected number of draws; there may be fewer.
    matching : bool
        Whether to match the components of each draw to the mean of earlier draws, since labels may switch.
    among : ndarray of int, optional
        Places of the components that may change places with each other; by default all.
    """

    checkpointed = "counts", "sums", "squares", "first"

    def __init__(self, draws: int, matching: bool, among: Array | None = None) -> None:
        self.length = -(-draws // BATCHES)  # of a batch
        self.matching, self.among = matching, among
        self.counts: list[int] = []
        self.sums: list[tuple[Array, ...]] = []  # one for each batch
        self.squares: tuple[Array, ...] = ()
        self.first: tuple[Array, ...] = ()  # subtracted from all draws, so that squares lose no digits

    def add(self, loadings: Value, components: Array) -> None:
        """Add one draw to the sums."""
        order = self.order_of(components)
        drawn = entries_of(loadings, components)
        drawn = drawn if order is None else drawn.reordered(order)
        values = tuple(value for value in drawn if value is not None)
        if not self.counts:
            self.first = tuple(np.array(value) for value in values)
            self.squares = tuple(np.zeros(value.shape) for value in values)
        if not self.counts or self.counts[-1] == self.length:
            self.counts.append(0)
            self.sums.append(tuple(np.zeros(value.shape) for value in values))
        for value, first, total, squares in zip(values, self.first, self.sums[-1], self.squares, strict=True):
            difference = value - first
            total += difference
            squares += np.square(difference, out=difference)
        self.counts[-1] += 1

    def order_of(self, components: Array) -> Array | None:
        """Return the order of the next draw's components that matches the mean of earlier draws; None to keep it."""
        if not self.matching or not self.counts:
            return None
        return alignment.match_components(components, self._mean_side(1), self.among)

    def mean(self) -> Entries:
        """Return the mean of all draws so far."""
        return Entries(*(self._mean_side(side) for side in range(len(self.first))))

    def _mean_side(self, side: int) -> Array:
        total: Array = sum(batch[side] for batch in self.sums)  # type: ignore[assignment]
        return self.first[side] + total / sum(self.counts)

    def part(self, side: int, order: Any) -> Part:
        """Return the sums of one side, with its entries in the order of an index."""
        given = self.first[side][order], self.squares[side][order], [batch[side][order] for batch in self.sums]
        return Part(self.counts, self.length, *given)


def summarise_chains(chains: Sequence[Running], components: Array) -> Summary:
    """Return the summary of all chains, each in the order of components that best matches the given ones (K, m)."""
    orders, found = orders_of(chains, components), []
    for side, name in enumerate(("loadings", "components", "scale")[: len(chains[0].first)]):
        parts = [chain.part(side, _axis_order(name, order)) for chain, order in zip(chains, orders, strict=True)]
        found.append(summarise_side(parts))
    return Summary(*(Entries(*values) for values in zip(*found, strict=True)))


def orders_of(chains: Sequence[Running], components: Array) -> list[Array]:
    """Return the order of the components of each chain that best matches the given ones (K, m)."""
    if not chains[0].matching:
        return [np.arange(len(components)) for _ in chains]
    return [alignment.match_components(chain.mean().components, components, chain.among) for chain in chains]


def _axis_order(name: str, order: Array) -> Any:
    """Return the index that puts the entries of a side in the given order of components."""
    return {"loadings": (slice(None), order), "components": order, "scale": slice(None)}[name]


class Part:
    """Entries of one side of one chain: numbers and sums of draws in its batches, and the squares about a point.

    Parameters
    ----------
    counts : sequence of int
        Number of draws in each batch.
    length : int
        Number of draws in a full batch.
    first, squares : ndarray
        The point, and the sum of squared differences from it.
    sums : list of ndarray
        Sum of the differences from the point in each batch.
    """

    def __init__(self, counts: Sequence[int], length: int, first: Array, squares: Array, sums: list[Array]) -> None:
        self.counts, self.first, self.squares, self.sums = np.array(counts), first, squares, sums
        self.full = self.counts == length

    def halves(self) -> list[tuple[int, Array]]:
        """Return the number of draws and their mean in each half of the batches."""
        middle = (len(self.counts) + 1) // 2
        parts = [(self.counts[:middle], self.sums[:middle]), (self.counts[middle:], self.sums[middle:])]
        return [(int(n.sum()), np.sum(sums, axis=0) / n.sum() + self.first) for n, sums in parts if len(n)]

    def squares_about_halves(self) -> Array:
        """Return the sum of squared differences between draws and the mean of their half."""
        return self.squares - sum(n * np.square(mean - self.first) for n, mean in self.halves())

    def batch_means(self) -> list[Array]:
        """Return the means of the full batches."""
        return [
            total / n + self.first for total, n, full in zip(self.sums, self.counts, self.full, strict=True) if full
        ]


def summarise_side(parts: list[Part]) -> tuple[Array, Array, Array, Array]:
    """Return mean, sd, split R-hat and effective sample size by batch means of one side."""
    halves = [half for part in parts for half in part.halves()]
    draws = sum(n for n, _ in halves)
    mean: Array = np.asarray(sum(n * value for n, value in halves)) / draws
    inner = np.maximum(sum(part.squares_about_halves() for part in parts), 0.0)
    total = inner + sum(n * np.square(value - mean) for n, value in halves)
    variance = total / max(draws - 1, 1)
    batches = [value for part in parts for value in part.batch_means()]
    with np.errstate(invalid="ignore", divide="ignore"):  # constant entries have neither R-hat nor sample size
        within = inner / (draws - len(halves))
        between = np.var([value for _, value in halves], axis=0, ddof=1) if len(halves) > 1 else np.nan
        r_hat = np.sqrt(1 - len(halves) / draws + between / within)
        length = parts[0].counts[0]
        about = np.mean([np.square(value - mean) for value in batches], axis=0) if len(batches) > 1 else np.nan
        ess = np.minimum(draws * variance / (length * about * len(batches) / (len(batches) - 1)), draws)
    constant = variance <= np.square(ROUNDING * mean)
    return (
        mean,
        np.where(constant, 0.0, np.sqrt(variance)),
        np.where(constant, np.nan, r_hat),
        np.where(constant, float(draws), ess),
    )


class DrawsOnDisk:
    """Kept draws of the loadings of some chains, of equal number.

    Parameters
    ----------
    chains : list of list of BlockedLoadings
    counts : BlockedCounts
    """

    def __init__(self, chains: list[list[BlockedLoadings]], counts: BlockedCounts) -> None:
        self.chains, self.counts = chains, counts

    def in_order(self, orders: Array | None) -> tuple[Array, Array | None]:
        """Return loadings (chains, draws, n, K) and scales (chains, draws, n) or None, in files mapped into memory.

        Component k of a draw was component `orders[chain, draw, k]`; None keeps all orders.
        """
        files: list[RowsInFile] = []
        for place, chain in enumerate(self.chains):
            for number, draw in enumerate(chain):
                order = None if orders is None else orders[place, number]
                for block in range(len(self.counts.blocks)):
                    shares, *scale = parts_of(draw.reader.block(block).value)
                    _append(files, [shares if order is None else shares[:, order], *scale], self.counts)
        size = len(self.chains), len(self.chains[0]), self.counts.shape[0]
        loadings, *scale = (file.array().reshape(*size, -1) for file in files)
        return loadings, scale[0][..., 0] if scale else None

    def means(self, values: Array) -> Array:
        """Return the means over chains and draws of values (chains, draws, n) or (chains, draws, n, K)."""
        files: list[RowsInFile] = []
        for rows in self.counts.blocks:
            mean = np.asarray(values[:, :, rows]).mean(axis=(0, 1))
            _append(files, [mean.reshape(len(mean), -1)], self.counts)
        return files[0].array().reshape(values.shape[2:])


def _append(files: list[RowsInFile], arrays: Sequence[Array], counts: BlockedCounts) -> None:
    """Append a block to each file; the first block makes the files."""
    if not files:
        files.extend(RowsInFile(counts.scratch, each.shape[1], np.float64) for each in arrays)
    for file, rows in zip(files, arrays, strict=True):
        file.append(rows)


class RunningOnDisk:
    """Sums over the draws of one chain (`Running`), with those of the loadings in files.

    The sum of a batch and the squares of all draws so far are the columns of one file for each block of rows.

    Parameters
    ----------
    problem : Problem
        Problem of the counts.
    of_components : Running
        Sums of the components, which also choose the order of the components in each draw.
    """

    checkpointed = "of_components", "first", "batches"

    def __init__(self, problem: Problem, of_components: Running) -> None:
        self.problem, self.of_components = problem, of_components
        self.matching, self.among = of_components.matching, of_components.among
        self.first: BlockedLoadings | None = None
        self.batches: list[BlockedLoadings] = []

    def add(self, loadings: BlockedLoadings, components: Array) -> None:
        """Add one draw to the sums."""
        order = self.of_components.order_of(components)
        counts, length = self.of_components.counts, self.of_components.length
        begins = not counts or counts[-1] == length
        self.of_components.add(np.empty((0, len(components))), components)
        if self.first is None:
            self.first = loadings
        first, before = self.first.reader, self.batches[-1].reader if self.batches else None

        def work(_: Problem, here: State, at: Where) -> tuple[Side, None, float]:
            difference = _columns(here.loadings, order)
            difference -= _columns(first.block(at.number), None)
            squares, sums = np.zeros_like(difference), np.zeros_like(difference)
            if before is not None:
                squares, earlier = np.split(before.block(at.number).matrix, 2, axis=1)
                sums = sums if begins else earlier
            both = np.hstack([squares + np.square(difference), sums + difference])
            return Side(both, both, None, 0.0), None, 0.0

        _, found = pass_over_rows(self.problem, State(loadings, empty_side()), work, Pass(reads=False))
        self.batches[len(self.batches) - (not begins) :] = [found]

    def parts(self, block: int, order: Array) -> list[Part]:
        """Return the sums of the loadings and, if there is one, of the scale of a block of rows."""
        assert self.first is not None
        rank = len(order)
        first = _columns(self.first.reader.block(block), None)
        found = [np.split(batch.reader.block(block).matrix, 2, axis=1) for batch in self.batches]
        places: list[Any] = [order] if first.shape[1] == rank else [order, [rank]]
        return [
            Part(
                self.of_components.counts,
                self.of_components.length,
                first[:, at],
                found[-1][0][:, at],
                [sums[:, at] for _, sums in found],
            )
            for at in places
        ]


def _columns(side: Side, order: Array | None) -> Array:
    """Return the loadings in an order of components, and the scale if there is one, as columns."""
    shares, *scale = parts_of(side.value)
    return np.hstack([shares if order is None else shares[:, order], *scale])


def summarise_chains_on_disk(chains: Sequence[RunningOnDisk], components: Array) -> Summary:
    """Return the summary of all chains (`summarise_chains`), with those of the rows in files mapped into memory."""
    given = [chain.of_components for chain in chains]
    orders, counts = orders_of(given, components), chains[0].problem.counts
    of_components = summarise_side([chain.part(1, order) for chain, order in zip(given, orders, strict=True)])
    whole: Any = counts
    files: list[list[RowsInFile]] = []
    for block in range(len(whole.blocks)):
        parts = [chain.parts(block, order) for chain, order in zip(chains, orders, strict=True)]
        for side, of_side in enumerate(zip(*parts, strict=True)):
            if len(files) == side:
                files.append([])
            _append(files[side], summarise_side(list(of_side)), whole)
    loadings, *scale = ([file.array() for file in of_side] for of_side in files)
    scales = [each[:, 0] for each in scale[0]] if scale else [None] * len(loadings)
    return Summary(*(Entries(*values) for values in zip(loadings, of_components, scales, strict=True)))
