"""Gibbs, NUTS and SVI."""
