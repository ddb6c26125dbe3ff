"""Checkpoints of long fits: what loops have reached, in files that a later call of the same fit goes on from."""
