"""Array functions, nothing else: the allocation step, its sampled twin, likelihoods."""
