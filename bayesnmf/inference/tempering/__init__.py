"""Sequential Monte Carlo from the prior to the posterior, by powers of the likelihood."""
