"""The algorithms, one a file: coordinate ascent, Gibbs, NUTS, SVI."""
