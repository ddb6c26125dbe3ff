"""Terms that pages use, in plain words: reports print those that occur in them, and the documentation has all."""

from __future__ import annotations

import re

TERMS = {
    "bootstrap": "Counts are drawn from the fit and fitted again, many times; the spread of these estimates is the "
    "interval. It says how much an estimate varies from one set of counts to the next.",
    "catalogue": "A list of components that are known already, such as the mutational signatures of COSMIC.",
    "chain": "One run of a sampler: a sequence of draws, each made from the one before. Several chains that end up in "
    "the same place show that the sampler has found it.",
    "component": "A profile over the features that many samples share: a gene program, a mutational signature, a topic "
    "of texts. A sample is a sum of components.",
    "concentration": "The parameter of a Dirichlet prior. Below 1 it prefers a few large shares and many small ones; "
    "above 1, shares that are alike.",
    "converged": "The algorithm has stopped because its result no longer changes. This says nothing about whether the "
    "model suits the counts.",
    "cosine": "How alike two profiles are, whatever their size: 1 for the same shape, 0 for profiles without a common "
    "feature.",
    "count": "A whole number of events: reads of a gene, mutations of a type, occurrences of a word.",
    "covariate": "Something known about a sample, such as its age or treatment, that its loadings may depend on.",
    "dispersion": "How much counts vary around their expected values, compared with the noise of the model: 1 if they "
    "vary as the model says, 2 if their variance is twice as large.",
    "draw": "One set of possible values of all loadings and components, taken at random from the posterior.",
    "ELBO": "Evidence lower bound: the number that variational inference increases until it no longer changes. Larger "
    "is better, for one model and the same counts.",
    "entry": "One place in the table of counts: a sample and a feature.",
    "ESS": "Effective sample size: how many independent draws the draws of a chain are worth. Intervals need some "
    "hundreds.",
    "expected count": "The count that the model expects in an entry: the sum of loading × component over all "
    "components.",
    "exposure": "How much of a sample was looked at, such as its sequencing depth, where this is given: expected "
    "counts are proportional to it. In work on mutational signatures, the loadings are called exposures.",
    "feature": "What is counted, one column of the table: a gene, a type of mutation, a word.",
    "Gibbs sampling": "A method that draws from the posterior, in turn the loadings and the components. It takes "
    "longest, and its intervals are the most reliable.",
    "held-out score": "How well a fit predicts counts that it has not seen. Larger is better, for the same counts.",
    "interval": "The range that holds a quantity with a probability of 90 %, given the model and the counts, unless "
    "another probability is stated.",
    "lfsr": "Local false sign rate: the probability, under the model, that a difference has the other sign than the "
    "one shown. Below 0.05, the direction is fairly sure.",
    "lift": "The share of a feature in a component divided by its share in all counts. Above 1, the feature is more "
    "frequent in this component than elsewhere.",
    "linear response": "A correction that makes the intervals of a mean field about as wide as they should be.",
    "loading": "How much of a component a sample has: the number of counts that it is expected to get from it, if the "
    "component sums to 1.",
    "log2 change": "By how many doublings a feature is more frequent in a component than in the component where it is "
    "most frequent otherwise: 1 is twice, 2 is four times as frequent.",
    "MAP": "Maximum a posteriori: the most probable loadings and components, given the counts. It is the fastest "
    "method, and has no intervals.",
    "mean field": "The approximation of variational inference: loadings and components vary independently of each "
    "other. Intervals are too narrow, since in truth one can often make up for another.",
    "misfit": "How far the counts lie from their expected values, summed over all entries.",
    "mode": "One of several factorisations that explain the counts about equally well. Fits from different starts may "
    "end in different modes.",
    "negative binomial": "Noise that varies more than that of a Poisson distribution, by an amount that is estimated.",
    "noise": "How counts vary around their expected values. The plain choice is the Poisson distribution, whose "
    "variance is its mean.",
    "optimum": "A set of loadings and components that no small change improves. A better one may exist elsewhere.",
    "Poisson distribution": "The distribution of numbers of independent rare events; its variance equals its mean.",
    "posterior": "What is known about loadings and components once the counts are seen: a probability for every set "
    "of their values.",
    "predictive check": "A comparison of the counts with counts that were simulated from the fitted model. Where the "
    "two differ, the model misses something.",
    "predictive p-value": "The probability that counts simulated from the model lie as far out as those observed. "
    "Small values speak against the model; large ones do not speak for it.",
    "prior": "What is assumed about loadings and components before the counts are seen.",
    "R-hat": "Compares the spread of draws between chains with that within chains. It is near 1 where the chains "
    "agree; above 1.05 they do not, and intervals are provisional.",
    "rank": "The number of components.",
    "replicate": "A set of counts of the same size, simulated from the fitted model.",
    "sample": "What counts were taken of, one row of the table: a biological cell, a tumour, a text.",
    "seed": "The number that random numbers start from. The same seed gives the same result.",
    "share": "A part of a whole, from 0 to 1 or in per cent: of a feature in a component, or of a component in the "
    "expected counts of a sample.",
    "stability": "How often a component comes back when the counts are fitted from other starts or in part. What "
    "comes back rarely should not be interpreted.",
    "variational inference": "A fast method that approximates the posterior by simple distributions. Its estimates "
    "are good; its intervals are too narrow unless they are corrected.",
}  # fmt: skip


def terms_in(text: str) -> dict[str, str]:
    """Return the terms that occur in a text, in singular or plural, with their definitions, in the order of `TERMS`."""
    return {term: told for term, told in TERMS.items() if _pattern_of(term).search(text)}


def _pattern_of(term: str) -> re.Pattern[str]:
    plural = f"{re.escape(term[:-1])}(?:y|ies)" if term.endswith("y") else f"{re.escape(term)}s?"
    return re.compile(rf"(?<![\w-]){plural}(?!\w)", re.IGNORECASE)
