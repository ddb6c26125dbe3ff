"""GPU kernels, in JAX. Importing this loads JAX, so it is imported only by fits that run on a GPU."""

from bayesnmf.kernels.gpu.allocation import Cells, expected_allocations, place_cells

__all__ = ["Cells", "expected_allocations", "place_cells"]
