"""Compiled functions of arrays: the allocation step, its sampled version, likelihoods."""
