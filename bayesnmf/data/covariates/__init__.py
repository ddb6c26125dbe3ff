"""Covariates of rows: frames of them, formulas, and the design that both make."""
