"""The models, each declared by hand as a NumPyro program.

`poisson`, `gamma_poisson`, `dirichlet_poisson`, `dirichlet_gamma` and `hierarchical_poisson` each offer

- ``program``: the model, with the allocations summed out;
- ``guide``: the mean field in the closed-form family, with free parameters;
- ``augmented`` and ``augmented_guide``: the same with explicit allocations;
- ``augmented_bound``: the same with the allocations integrated over their optimal distribution.

Each takes counts, as an array, a sparse matrix or `bayesnmf.Counts`, and rank, loadings and components, whose priors
are those of the library. ``fit.program()`` has all of it for a fit.

Notation and citation keys of all:

- X counts (n, m), θ loadings (n, K), β components (K, m), S allocations (n, m, K); Gamma(shape, rate);
- [GP] Geiger & Park, *On the Connection Between NMF and LDA*;
  [C] Carbonetto, Sarkar, Wang & Stephens, *NMF Algorithms Generally Improve Topic Model Fits*;
  [P] Paisley, *EECS E6720 Lecture 12*;
  [F] Faleiros & Lopes, *On the equivalence between algorithms for NMF and LDA*;
  [K] Kurutmaz, Cemgil, Şimşekli & Yıldırım, *Bayesian NMF as an Allocation Model*.

The densities are defined here independently of the rest of the package, which defines them a second time; a test
compares the two.
"""

import numpyro

# ArviZ 1.3 leaves a numpyro in sys.modules that loads on first use. Importing a submodule before that gives a
# numpyro.distributions without its own submodules. Accessing any attribute loads it completely.
numpyro.__version__  # noqa: B018

from . import dirichlet_gamma, dirichlet_poisson, gamma_poisson, hierarchical_poisson, poisson  # noqa: E402

__all__ = ["dirichlet_gamma", "dirichlet_poisson", "gamma_poisson", "hierarchical_poisson", "poisson"]


def __dir__() -> list[str]:
    return __all__
