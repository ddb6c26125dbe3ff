"""CPU kernels, compiled by Numba. They take and return arrays, and validate nothing."""
