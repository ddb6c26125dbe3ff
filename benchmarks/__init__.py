"""Benchmarks: speed compared with other tools (`python -m benchmarks`), and published or calibrated results."""
