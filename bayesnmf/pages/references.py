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
        "Intelligence and Neuroscience, 785152. doi:10.1155/2009/785152."
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
        "factorization. Uncertainty in Artificial Intelligence, 326–335. Preprint: arXiv:1311.1704."
    ],
}
METHODS = {
    "map": [
        "P. Carbonetto, A. Sarkar, Z. Wang and M. Stephens (2021). Non-negative matrix factorization algorithms "
        "generally improve topic model fits. arXiv:2105.13440."
    ],
    "nuts": [
        "M. D. Hoffman and A. Gelman (2014). The No-U-Turn sampler. Journal of Machine Learning Research 15, "
        "1593–1623. arXiv:1111.4246."
    ],
    "smc": [
        "P. Del Moral, A. Doucet and A. Jasra (2006). Sequential Monte Carlo samplers. Journal of the Royal "
        "Statistical Society B 68, 411–436. doi:10.1111/j.1467-9868.2006.00553.x."
    ],
    "bld": MODELS["dirichlet_gamma"],
}
SIGNS = (
    "M. Stephens (2017). False discovery rates: a new deal. Biostatistics 18, 275–294. "
    "doi:10.1093/biostatistics/kxw041 (local false sign rates)."
)
CHAINS = (
    "A. Vehtari, A. Gelman, D. Simpson, B. Carpenter and P.-C. Bürkner (2021). Rank-normalization, folding, and "
    "localization: an improved R-hat. Bayesian Analysis 16, 667–718. doi:10.1214/20-BA1221 (R-hat and ESS)."
)
NEIGHBOURS = (
    "L. van der Maaten and G. Hinton (2008). Visualizing data using t-SNE. Journal of Machine Learning Research 9, "
    "2579–2605 (the picture of all samples)."
)


def references_of(model: str, methods: list[str], more: tuple[str, ...] = ()) -> list[str]:
    """Return what to cite for a model and methods, each once."""
    own = (
        f"The bayesnmf developers. bayesnmf {bayesnmf.__version__}: Bayesian matrix factorisation of counts in Python."
    )
    listed = [own, *MODELS[model], *(each for method in methods for each in METHODS.get(method, ())), *more]
    return list(dict.fromkeys(listed))
