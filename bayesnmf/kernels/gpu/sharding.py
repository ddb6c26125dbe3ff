"""The allocation step on several devices: each has the counts of some rows, and shares them out by itself.

The components go to all devices, and their totals are added over the devices. Parts of equal numbers of rows are padded
to equal sizes, so that all devices run the same program. The totals of the loadings stay where their rows are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from scipy.sparse import csr_array

from bayesnmf.kernels.cpu.allocation import Sides, Totals
from bayesnmf.kernels.gpu.allocation import Entries, Room, expected_allocations, segments

BY_ROWS, EVERYWHERE = PartitionSpec("rows"), PartitionSpec()


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Shards:
    """Counts on several devices.

    Attributes
    ----------
    entries : Entries
        Counts of each device, along the first axis of all arrays.
    mesh : Mesh
        The devices.
    """

    entries: Entries
    mesh: Mesh = field(metadata={"static": True})


def mesh_of(devices: Sequence[Any]) -> Mesh:
    """Return devices as one axis, over which rows are shared out."""
    return Mesh(np.array(devices), ("rows",))


def place_shards(matrix: csr_array, rank: int, devices: Sequence[Any]) -> Shards:
    """Share out the rows of counts (n, m) among devices, in order. Call this under `jax.enable_x64(True)`."""
    step = -(-matrix.shape[0] // len(devices))
    parts = [matrix[first : first + step] for first in range(0, step * len(devices), step)]
    most = max(part.nnz for part in parts)
    rooms = Room(step, most), Room(matrix.shape[1], most)
    cut = [Entries(segments(part, rank, rooms[0]), segments(csr_array(part.T), rank, rooms[1])) for part in parts]
    mesh = mesh_of(devices)
    return Shards(jax.device_put(jax.tree.map(lambda *of: np.stack(of), *cut), NamedSharding(mesh, BY_ROWS)), mesh)


def sharded_allocations(shards: Shards, loadings: Any, components: Any, *, sides: Sides = "both") -> Totals:
    """Share every count among the components, as `expected_allocations`, each device its own rows."""
    rows = shards.entries.by_row.rows * shards.mesh.size

    def share_out(entries: Entries, U: Any, V: Any) -> Totals:
        totals = expected_allocations(jax.tree.map(lambda own: own[0], entries), U, V, sides=sides)
        return totals._replace(
            components=jax.lax.psum(totals.components, "rows"), loglik=jax.lax.psum(totals.loglik, "rows")
        )

    found = jax.shard_map(
        share_out,
        mesh=shards.mesh,
        in_specs=(BY_ROWS, BY_ROWS, EVERYWHERE),
        out_specs=Totals(BY_ROWS, EVERYWHERE, EVERYWHERE),  # type: ignore[arg-type]
        check_vma=False,
    )(shards.entries, jnp.pad(loadings, ((0, rows - len(loadings)), (0, 0))), components)
    return found._replace(loadings=found.loadings[: len(loadings)])


compiled_on_shards = jax.jit(sharded_allocations, static_argnames="sides")
