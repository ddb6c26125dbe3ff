"""The arena: every tool of today on counts that nobody tuned to, by one command, `python -m benchmarks.arena`."""
