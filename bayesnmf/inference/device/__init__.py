"""Iterations on a GPU."""
