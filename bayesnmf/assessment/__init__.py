"""Assess fits: bounds, evidence, held-out scores, predictive checks, agreement of methods."""
