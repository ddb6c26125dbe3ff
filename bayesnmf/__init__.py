"""Bayesian non-negative matrix factorisation of counts."""
