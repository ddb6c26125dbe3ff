"""Draws of loadings of counts on disk: the kept draws, their means, and running moments, block by block in files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bayesnmf.data.blocks.counts import BlockedCounts
from bayesnmf.data.blocks.raw import RowsInFile
from bayesnmf.inference.blocked.passes import BlockedLoadings, pass_over_rows
from bayesnmf.inference.blocked.tasks import Pass
from bayesnmf.inference.problem import Problem, State
from bayesnmf.inference.sampling.running_moments import Entries, Part, Running, Summary, orders_of, summarise_side
from bayesnmf.inference.side import Side, empty_side
from bayesnmf.inference.sides import Where
from bayesnmf.priors.values import parts_of
from bayesnmf.types import Array


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

    @property
    def memory(self) -> tuple[Any, ...]:
        """What a checkpoint keeps."""
        return self.of_components.memory, self.first, self.batches

    @memory.setter
    def memory(self, kept: tuple[Any, ...]) -> None:
        self.of_components.memory, self.first, self.batches = kept

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
