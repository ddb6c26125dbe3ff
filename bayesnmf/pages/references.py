"""What to cite."""

from __future__ import annotations

import bayesnmf

MODELS = {
    "poisson": [
        "P. Carbonetto, A. Sarkar, Z. Wang and M. Stephens (2021). Non-negative matrix factorization algorithms "
        "generally improve topic model fits. arXiv:2105.13440."
    ],
    "gamma_poisson": [
        "A. T. Cemgil (2009). Bayesian inference for nonnegative matrix factorisation models. Computational "
        "Intelligence and Neuroscience, 785152."
    ],
    "dirichlet_poisson": [
        "D. M. Blei, A. Y. Ng and M. I. Jordan (2003). Latent Dirichlet allocation. Journal of Machine Learning "
        "Research 3, 993–1022."
    ],
    "dirichlet_gamma": [
        "M. B. Kurutmaz, A. T. Cemgil, U. Şimşekli and S. Yıldırım. Bayesian non-negative matrix factorization as an "
        "allocation model."
    ],
    "hierarchical_poisson": [
        "P. Gopalan, J. M. Hofman and D. M. Blei (2015). Scalable recommendation with hierarchical Poisson "
        "factorization. Uncertainty in Artificial Intelligence, 326–335."
    ],
}
METHODS = {
    "map": [
        "P. Carbonetto, A. Sarkar, Z. Wang and M. Stephens (2021). Non-negative matrix factorization algorithms "
        "generally improve topic model fits. arXiv:2105.13440."
    ],
    "nuts": [
        "M. D. Hoffman and A. Gelman (2014). The No-U-Turn sampler. Journal of Machine Learning Research 15, 1593–1623."
    ],
    "smc": [
        "P. Del Moral, A. Doucet and A. Jasra (2006). Sequential Monte Carlo samplers. Journal of the Royal "
        "Statistical Society B 68, 411–436."
    ],
    "bld": MODELS["dirichlet_gamma"],
}
SIGNS = "M. Stephens (2017). False discovery rates: a new deal. Biostatistics 18, 275–294 (local false sign rates)."


def references_of(model: str, methods: list[str], more: tuple[str, ...] = ()) -> list[str]:
    """Return what to cite for a model and methods, each once."""
    own = (
        f"The bayesnmf developers. bayesnmf {bayesnmf.__version__}: Bayesian matrix factorisation of counts in Python."
    )
    listed = [own, *MODELS[model], *(each for method in methods for each in METHODS.get(method, ())), *more]
    return list(dict.fromkeys(listed))
