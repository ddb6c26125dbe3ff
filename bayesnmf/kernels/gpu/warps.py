"""The sums of segments as one kernel in NVIDIA Warp: the same source runs on a GPU and, for tests, on a CPU.

A few lanes of a warp work on a segment together. Each lane keeps its share of the K factors of the segment's owner, and
what they receive, in registers. For each count the lanes read one row of the other side, as neighbours in memory, and
add up its mean among themselves. So the counts and the rows are read once, and nothing else is written than the sums.
On a CPU, which has no warps, one lane does all of it.
"""

# Bodies of kernels are in Warp's language, and types of arguments are values.
# mypy: disable-error-code="valid-type, operator, no-untyped-def"

from functools import cache
from typing import Any

import jax.numpy as jnp
import warp as wp

from bayesnmf.kernels.gpu.segments import Segments, smallest_mean

wp.config.log_level = wp.LOG_WARNING  # no lines on the terminal about devices


def lanes_for(rank: int) -> int:
    """Return the number of lanes that share a segment, each with two pieces of four factors, or up to four if K > 64.

    On an H200, 2, 4 and 8 lanes were the fastest for K = 10, 20 and 50, and 8 for K = 100 (73 million counts, float32).
    """
    two_each, four_each = (1 << (-(-rank // (4 * pieces)) - 1).bit_length() for pieces in (2, 4))
    return min(max(min(two_each, 8), four_each, 2), 32)


_LANES = """
#if defined(__CUDA_ARCH__)
    unsigned group = lanes == 32 ? 0xffffffffu : ((1u << lanes) - 1u) << ((threadIdx.x & 31) / lanes * lanes);
    {on_gpu}
#endif
    return value;
"""
_SUM = _LANES.format(
    on_gpu="for (int step = lanes / 2; step > 0; step /= 2) value += __shfl_xor_sync(group, value, step);"
)
_OF = _LANES.format(on_gpu="value = __shfl_sync(group, value, lane, lanes);")


@cache
def _functions(kind: Any) -> tuple[Any, Any]:
    """Return the sum of a number over lanes, and the number of one of them, for a type of numbers."""

    @wp.func_native(_SUM)
    def over_lanes(value: kind, lanes: int) -> kind: ...

    @wp.func_native(_OF)
    def of_lane(value: kind, lane: int, lanes: int) -> kind: ...

    return over_lanes, of_lane


@cache
def kernel_of(lanes: int, slots: int, pieces: int, dtype: str, place: str) -> Any:
    """Return the kernel for a number of lanes to a segment, pieces of four factors in all and to a lane, and types."""
    real, integer = getattr(wp, dtype), getattr(wp, place)
    Four = wp.types.vector(length=4, dtype=real)
    Share = wp.types.matrix(shape=(slots, 4), dtype=real)
    smallest = wp.constant(real(smallest_mean(dtype)))
    over_lanes, real_of_lane = _functions(real)
    _, index_of_lane = _functions(wp.int32)

    @wp.kernel(enable_backward=False, module="unique", module_options={"max_unroll": 8})
    def share_out(
        indices: wp.array(dtype=wp.int32),
        values: wp.array(dtype=real),
        owners: wp.array(dtype=wp.int32),
        starts: wp.array(dtype=integer),
        ends: wp.array(dtype=integer),
        own: wp.array2d(dtype=Four),
        other: wp.array2d(dtype=Four),
        received: wp.array2d(dtype=Four),
        loglik: wp.array2d(dtype=wp.float64),
        lost: wp.array(dtype=wp.int32),
    ):
        thread = wp.tid()
        segment = thread // lanes
        lane = thread % lanes
        owner = owners[segment]
        u = Share()
        total = Share()
        v = Share()
        for slot in range(slots):
            if lane + slot * lanes < pieces:
                u[slot] = own[owner, lane + slot * lanes]
        at = starts[segment]
        end = ends[segment]
        sum_log = wp.float64(0.0)
        any_lost = wp.int32(0)
        while at < end:
            # Each lane reads one count, and takes its logarithm, for all.
            entry = at + integer(lane)
            inside = entry < end
            entry = wp.where(inside, entry, at)
            own_index = indices[entry]
            own_count = wp.where(inside, values[entry], real(0.0))
            own_mean = real(1.0)
            for offset in range(lanes):
                column = index_of_lane(own_index, offset, lanes)
                x = real_of_lane(own_count, offset, lanes)
                mean = real(0.0)
                for slot in range(slots):
                    if lane + slot * lanes < pieces:
                        v[slot] = other[column, lane + slot * lanes]
                        mean += wp.dot(u[slot], v[slot])
                mean = over_lanes(mean, lanes)
                small = mean < smallest
                mean = wp.where(small, real(1.0), mean)
                quotient = wp.where(small, real(0.0), x / mean)
                for slot in range(slots):
                    total[slot] = total[slot] + quotient * v[slot]
                if offset == lane:
                    own_mean = mean
                    if small:
                        any_lost = wp.where(x > real(0.0), 1, any_lost)
            sum_log += wp.float64(own_count) * wp.log(wp.float64(own_mean))
            at += integer(lanes)
        for slot in range(slots):
            if lane + slot * lanes < pieces:
                received[segment, lane + slot * lanes] = wp.cw_mul(u[slot], total[slot])
        loglik[segment, lane] = sum_log
        lost[thread] = any_lost

    return share_out


@cache
def _call_of(lanes: int, slots: int, pieces: int, dtype: str, place: str) -> Any:
    return wp.jax_kernel(kernel_of(lanes, slots, pieces, dtype, place), num_outputs=3)


def sums_of_segments(entries: Segments, own: Any, other: Any) -> tuple[Any, Any, Any]:
    """Return what every segment receives (S, K), ℓ, and whether a mean was too small to divide by."""
    lanes, rank, segments = entries.lanes, own.shape[1], entries.owners.size
    pieces = -(-rank // 4)

    def in_fours(factor: Any) -> Any:
        return jnp.pad(factor, ((0, 0), (0, 4 * pieces - rank))).reshape(-1, pieces, 4)

    received, loglik, lost = _call_of(lanes, -(-pieces // lanes), pieces, own.dtype.name, entries.starts.dtype.name)(
        entries.indices,
        entries.values.astype(own.dtype),
        *(each.reshape(-1) for each in (entries.owners, entries.starts, entries.ends)),
        in_fours(own),
        in_fours(other),
        launch_dims=segments * lanes,
        output_dims={"received": (segments, pieces), "loglik": (segments, lanes), "lost": segments * lanes},
    )
    return received.reshape(segments, -1)[:, :rank], loglik.sum(), lost.any()
