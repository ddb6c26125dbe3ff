"""The four models, each declared by hand as a NumPyro program.

`poisson`, `gamma_poisson`, `dirichlet_poisson` and `dirichlet_gamma` each offer

- ``program``: the model, with the allocations summed out;
- ``guide``: the mean field of the closed-form family, with free parameters;
- ``augmented`` and ``augmented_guide``: the same with the allocations explicit;
- ``augmented_bound``: the same with the allocations integrated over their best distribution.

The notation and the citation keys of all four:

- X counts (n, m), θ loadings (n, K), β components (K, m), S allocations (n, m, K); Gamma(shape, rate);
- [GP] Geiger & Park, *On the Connection Between NMF and LDA*;
  [C] Carbonetto, Sarkar, Wang & Stephens, *NMF Algorithms Generally Improve Topic Model Fits*;
  [P] Paisley, *EECS E6720 Lecture 12*;
  [F] Faleiros & Lopes, *On the equivalence between algorithms for NMF and LDA*;
  [K] Kurutmaz, Cemgil, Şimşekli & Yıldırım, *Bayesian NMF as an Allocation Model*.

The density is stated here without the rest of the package, which states it a second time; a test compares
the two.
"""

import numpyro

# ArviZ 1.3 leaves a numpyro in sys.modules that loads on first use, and importing a submodule of it before that ends
# in a numpyro.distributions without its own submodules. Touching any attribute loads it whole.
numpyro.__version__  # noqa: B018
