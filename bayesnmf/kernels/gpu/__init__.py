"""The kernels for GPUs, in JAX. Importing this loads JAX, so it is imported only where a fit runs there."""

from bayesnmf.kernels.gpu.allocation import Cells, expected_allocations, place_cells

__all__ = ["Cells", "expected_allocations", "place_cells"]
