"""The kernels for CPUs, compiled by Numba. Arrays in, arrays out; no validation, no objects."""
