"""Sentences of a page: models, methods and what their intervals are."""

from __future__ import annotations

from collections.abc import Iterable

MODELS = {
    "poisson": "Poisson factorisation: each count is Poisson distributed, with the product of loadings and components "
    "as its mean; the loadings have a flat prior unless one is given",
    "gamma_poisson": "Gamma–Poisson model: each count is Poisson distributed, with the product of loadings and "
    "components as its mean; loadings have a Gamma prior",
    "dirichlet_poisson": "Dirichlet–Poisson model, which is latent Dirichlet allocation: the counts of a sample are "
    "multinomial, with a mixture of the components as their probabilities",
    "dirichlet_gamma": "Dirichlet–Gamma allocation model: each sample has an expected total, which it divides "
    "among the components",
    "hierarchical_poisson": "hierarchical Poisson factorisation: loadings and components have Gamma priors, with a "
    "rate for each sample and each feature that is estimated, too",
}
METHODS = {
    "map": "maximum a posteriori: the most probable loadings and components, without intervals",
    "vi": "closed-form variational inference: a mean-field approximation of the posterior",
    "svi": "stochastic variational inference: a mean-field approximation of the posterior",
    "gibbs": "Gibbs sampling of the posterior",
    "nuts": "Hamiltonian Monte Carlo sampling of the posterior",
    "smc": "sequential Monte Carlo sampling of the posterior, from the prior on",
    "bld": "best latent decomposition: the most probable allocation of every count to a component, without intervals",
}
INTERVALS = {
    "point": "This is a point estimate. It has no intervals; fit by vi or gibbs for those of a posterior, or make some "
    "with fit.with_intervals('bootstrap').",
    "mean field": "Intervals are central 90 % intervals of a mean-field approximation. They are too narrow, because it "
    "ignores how loadings and components move together.",
    "sampled": "Intervals are central 90 % intervals of draws of the posterior around this one factorisation; "
    "bayesnmf.modes finds others.",
    "linear response": "Intervals are central 90 % intervals of a mean-field approximation whose widths were corrected "
    "by linear response; their location was not.",
    "bootstrap": "Intervals are central 90 % intervals of the estimates of counts that were drawn from this fit and "
    "fitted again. They say how much the estimate varies from counts to counts, with its bias, not where the truth is.",
    "draws": "Intervals are central 90 % intervals of posterior draws. Chains that started from one fit describe the "
    "posterior around this one factorisation; bayesnmf.modes finds others.",
}
BRIEF = {
    "point": "none, since this is a point estimate",
    "mean field": "central 90 % intervals of the mean field, which are too narrow",
    "sampled": "central 90 % intervals of the draws of a short chain from the fit",
    "linear response": "central 90 % intervals of the mean field, with widths corrected by linear response",
    "bootstrap": "central 90 % intervals of a parametric bootstrap",
    "draws": "central 90 % intervals of posterior draws",
}
MARKERS = (
    "Lift: share in the component divided by the share in all counts. Log2 change: against the component in which the "
    "feature is most frequent otherwise, with a 90 % interval. Lfsr: local false sign rate, the probability under the "
    "model that the true change has the other sign."
)
P_VALUES = (
    "Data sets of the same size were drawn from the fitted model. The p-value of a statistic is the probability that a "
    "right model shows one further out; the adjusted p-value, that it shows any of these statistics as far out."
)
MISFITTED = (
    "Components may be missing, or counts may vary more than Poisson numbers do; intervals and shares then hold for "
    "the model, and may not hold for what made the counts."
)
ON_DISK = (
    "The counts of this fit are on disk, and checks by replicated counts read them once for each replicate: "
    "bayesnmf.predictive_checks(fit, 50) makes them."
)
NO_DISTRIBUTION = (
    "Quasi-Poisson noise has no distribution to draw replicated counts from: it is the Poisson likelihood to a power "
    "that follows from how much the counts vary. Fit with noise='nb1', or 'poisson', for these checks."
)
OF_ALL = "Replicated counts are made of all matrices of a fit together, where none of them counts more than others."


def counted(number: int, what: str) -> str:
    """Return a number of things: "1 sample", "2 samples"."""
    return f"{number:,} {what}{'s' if number != 1 else ''}"


def listed(names: Iterable[str], most: int = 8) -> str:
    """Return names as a list in a sentence: "a", "a and b", "a, b and 3 more"."""
    first, rest = (chosen := list(names))[:most], len(chosen) - most
    if rest > 0:
        first = [*first, f"{rest:,} more"]
    return " and ".join([", ".join(first[:-1]), first[-1]] if len(first) > 1 else first)
