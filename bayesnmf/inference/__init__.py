"""The algorithms, on arrays and priors: starts, ascent, sampling, and parameters integrated out."""
