"""Compare fits of one model by several methods."""
