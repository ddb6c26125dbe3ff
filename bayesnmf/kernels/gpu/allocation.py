"""The allocation step on a GPU: the formulas of `bayesnmf.kernels.cpu.allocation`, laid out for many threads.

Each side's total needs the nonzeros in its own order only: A is a sum along rows, B a sum along columns. So one pass,
`_side_totals`, runs over the counts by row, and again over the counts by column. Each pass computes the means again,
which costs a GPU less than writing to scattered addresses. The nonzeros of a row are cut into segments of equal length.
Their sums are added in a tree, not scattered to one address, so the order of summation is the same in every run.

`bayesnmf.kernels.gpu.segments` cuts them. On an NVIDIA GPU, where Warp is installed, one kernel sums all segments
(`bayesnmf.kernels.gpu.warps`). Otherwise XLA does, in chunks, so that the (segments, length, K) temporaries have
at most `CHUNK` numbers. The sums of segments have shape (S, K), with S below five times the number of rows (columns),
or nnz / 1024 if that is more.

On several devices, each has the counts of some rows, and shares them out by itself. The components go to all devices,
and their totals are added over the devices. Parts of equal numbers of rows are padded
to equal sizes, so that all devices run the same program. The totals of the loadings stay where their rows are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from scipy.sparse import csr_array

from bayesnmf.kernels.cpu.allocation import Sides, Totals
from bayesnmf.kernels.gpu.segments import (
    Room,
    Segments,
    places_of_runs,
    segments,
    smallest_mean,
    sums_of_rows,
)


class Entries(NamedTuple):
    """The nonzero counts, once by row and once by column."""

    by_row: Segments
    by_column: Segments


def place_entries(matrix: csr_array, transposed: csr_array, rank: int, device: Any) -> Entries:
    """Cut counts (n, m), given in both orders, into segments for this rank, and put them on a device.

    They take as much device memory as both matrices. Call this, and use the result, under `jax.enable_x64(True)`.
    """
    return jax.device_put(cut(matrix, transposed, rank, device), device)


def cut(
    matrix: csr_array,
    transposed: csr_array,
    rank: int,
    device: Any,
    rooms: tuple[Room | None, Room | None] = (None, None),
) -> Entries:
    """Cut counts (n, m), given in both orders, into segments for this rank and kind of device; pad both to rooms."""
    lanes = lanes_on(device, rank)
    return Entries(segments(matrix, rank, lanes, rooms[0]), segments(transposed, rank, lanes, rooms[1]))


def lanes_on(device: Any, rank: int) -> int:
    """Return the number of lanes that share a segment: 0, for XLA's sums, without a GPU of NVIDIA or without Warp."""
    of_nvidia = "NVIDIA" in device.device_kind or "cuda" in device.client.platform_version
    if device.platform != "gpu" or not of_nvidia or find_spec("warp") is None:
        return 0
    from bayesnmf.kernels.gpu.warps import lanes_for

    return lanes_for(rank)


def expected_allocations(entries: Entries, loadings: Any, components: Any, *, sides: Sides = "both") -> Totals:
    """Share every count among the components in proportion to loadings_ik · components_kj.

    Parameters
    ----------
    entries : Entries
        Counts, of the dtype of the factors (float64 or float32) or whole numbers.
    loadings, components : array of shape (n, K) and (K, m)
        Positive geometric means.
    sides : {"both", "loadings", "components"}
        Sides to return totals for, with one pass for each; the other totals are empty.

    Returns
    -------
    Totals
        Totals with Σ_k A_ik = Σ_j X_ij and Σ_k B_kj = Σ_i X_ij, even where the mean of an entry underflows. ℓ is a
        float64, and so are the logarithms that are summed.
    """
    U, Vt = loadings, components.T
    A: Any = jnp.zeros((0, U.shape[1]), U.dtype)
    Bt: Any = A
    loglik: Any = None
    if sides != "components":
        A, loglik = _side_totals(entries.by_row, U, Vt)
    if sides != "loadings":
        Bt, same = _side_totals(entries.by_column, Vt, U)
        loglik = same if loglik is None else loglik
    return Totals(A, Bt.T, loglik)


compiled_allocations = jax.jit(expected_allocations, static_argnames="sides")


def _side_totals(entries: Segments, own: Any, other: Any) -> tuple[Any, Any]:
    """Return the totals (rows, K) of the side whose factor is `own` (rows, K), given `other` (columns, K), and ℓ."""
    partial, loglik, lost = _sums_of_segments(entries, own, other)
    # Branching costs time on the host, so it is done once a pass; few fits need the second pass, which branches by
    # chunk.
    partial, loglik = jax.lax.cond(
        lost,
        lambda: jax.tree.map(jnp.add, (partial, loglik), _over_chunks(_share_out_underflowed, entries, own, other)[:2]),
        lambda: (partial, loglik),
    )
    return sums_of_rows(entries, partial), loglik


def _sums_of_segments(entries: Segments, own: Any, other: Any) -> tuple[Any, Any, Any]:
    if not entries.lanes:
        return _over_chunks(_share_out, entries, own, other)
    from bayesnmf.kernels.gpu.warps import sums_of_segments

    return sums_of_segments(entries, own, other)


def _over_chunks(share_out: Callable[..., Any], entries: Segments, own: Any, other: Any) -> tuple[Any, Any, Any]:
    """Return what every segment receives (S, K), ℓ, and whether a mean underflowed, computed chunk by chunk."""

    def chunk(loglik: Any, segments: Any) -> tuple[Any, Any]:
        owners, starts, ends = segments
        places, inside = places_of_runs(starts, ends, entries.length)
        x = jnp.where(inside, entries.values[places], 0).astype(own.dtype)
        received, sum_log, lost = share_out(x, own[owners], other, entries.indices[places])
        return loglik + sum_log, (received, lost)

    segments = (entries.owners, entries.starts, entries.ends)
    loglik, (received, lost) = jax.lax.scan(chunk, jnp.zeros((), jnp.float64), segments)
    return received.reshape(-1, own.shape[1]), loglik, lost.any()


def _means(u: Any, v: Any) -> tuple[Any, Any]:
    """Return the means (S, L) at factors u (S, K) and v (S, L, K), and a mask of those too small to divide by."""
    # Not a matrix product: by default those are rounded to less than float32 precision.
    mean = (u[:, None, :] * v).sum(axis=-1)
    return mean, mean < smallest_mean(u.dtype)


def _share_out(x: Any, u: Any, other: Any, indices: Any) -> tuple[Any, Any, Any]:
    """Share counts x (S, L) at factors u (S, K), other[indices]; return what u receives, ℓ, and any underflow."""
    v = other[indices]
    mean, small = _means(u, v)
    kept, mean = jnp.where(small, 0, x), jnp.where(small, 1, mean)
    received = u * ((kept / mean)[..., None] * v).sum(axis=1)
    return received, (kept * jnp.log(mean.astype(jnp.float64))).sum(), (small & (x > 0)).any()


def _share_out_underflowed(x: Any, u: Any, other: Any, indices: Any) -> tuple[Any, Any, Any]:
    """Share only the counts whose mean underflowed, computed with logarithms.

    Where no component gives positive mass, factors of 0 count as the smallest normal number.
    """
    smallest = float(jnp.finfo(u.dtype).tiny)
    x = jnp.where(_means(u, other[indices])[1], x, 0)
    lost = (x > 0).any()

    def logs(floor: float) -> Any:
        low, high = (jnp.log(jnp.maximum(factor, floor).astype(jnp.float64)) for factor in (u, other))
        return low[:, None, :] + high[indices]

    def by_logarithms() -> tuple[Any, Any]:
        weight = logs(0.0)
        weight = jnp.where(weight.max(axis=-1, keepdims=True) == -jnp.inf, logs(smallest), weight)
        top = weight.max(axis=-1, keepdims=True)
        weight = jnp.exp(weight - top)
        mass = weight.sum(axis=-1, keepdims=True)
        received = (x[..., None] * weight / mass).sum(axis=1)
        return received.astype(u.dtype), (x * (top + jnp.log(mass))[..., 0]).sum()

    return *jax.lax.cond(lost, by_logarithms, lambda: (jnp.zeros_like(u), jnp.zeros((), jnp.float64))), lost


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
    placed = [cut(part, csr_array(part.T), rank, devices[0], rooms) for part in parts]
    mesh = mesh_of(devices)
    return Shards(jax.device_put(jax.tree.map(lambda *of: np.stack(of), *placed), NamedSharding(mesh, BY_ROWS)), mesh)


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
