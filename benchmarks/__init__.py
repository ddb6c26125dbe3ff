"""Benchmarks: speed against other tools (`python -m benchmarks`), and results that were published or calibrated."""
