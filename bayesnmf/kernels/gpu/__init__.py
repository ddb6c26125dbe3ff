"""GPU kernels, in JAX. Importing this loads JAX, so it is imported only by fits that run on a GPU."""

from bayesnmf.kernels.gpu.allocation import Entries, expected_allocations, place_entries

__all__ = ["Entries", "expected_allocations", "place_entries"]
