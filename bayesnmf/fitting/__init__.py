"""Fit models: check the arguments, build a job, and run it by the runner of its method."""
