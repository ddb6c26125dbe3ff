"""One short example of every figure in `bayesnmf.plots`, on data that need no download; the site shows them all.

Each example has the name of its plot function, and may say what it draws, as in `signatures_of_indels`. Its docstring
says how to read the figure. Fits are made once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from inspect import isfunction
from typing import Any

import numpy as np

import bayesnmf
from bayesnmf import plots
from bayesnmf.data.mutations import cn48_types, dbs78_types, id83_types

# --- counts and fits of the examples ---------------------------------------------------------------


@cache
def images() -> bayesnmf.Counts:
    """Every sixth of scikit-learn's handwritten digits: 300 images of 64 pixels."""
    return bayesnmf.datasets.digits().rows(range(0, 1797, 6))


@cache
def image_fits() -> dict[str, bayesnmf.Fit]:
    """Eight components of the images, by point estimate and by variational inference."""
    return {method: bayesnmf.fit(images(), rank=8, method=method, seed=0) for method in ("map", "vi")}


@cache
def small() -> bayesnmf.Counts:
    """Counts of 40 samples and 20 features, drawn from the model with three components."""
    sparse = bayesnmf.Priors(bayesnmf.Gamma(1.0, 0.02), bayesnmf.Dirichlet(0.3))
    return bayesnmf.simulate("gamma_poisson", (40, 20), 3, priors=sparse, seed=1).counts


@cache
def few() -> bayesnmf.Counts:
    """Counts of 30 samples and 12 features, few enough for the evidence, of three components."""
    priors = bayesnmf.Priors(bayesnmf.Gamma(0.7, 0.0105), bayesnmf.Dirichlet(0.4))
    return bayesnmf.simulate(size=(30, 12), rank=3, priors=priors, seed=1).counts


@cache
def small_fits() -> dict[str, bayesnmf.Fit]:
    """The same three components by three methods."""
    options = {"map": None, "vi": None, "gibbs": bayesnmf.Gibbs(draws=1000)}
    return {method: bayesnmf.fit(small(), rank=3, method=method, seed=0, options=options[method]) for method in options}


@cache
def mutations(kind: Callable[[], tuple[str, ...]]) -> bayesnmf.Simulation:
    """Mutations of one kind in 50 simulated tumours, of three signatures."""
    peaked = bayesnmf.Priors(bayesnmf.Gamma(1.0, 0.002), bayesnmf.Dirichlet(0.15))
    return bayesnmf.simulate("gamma_poisson", (50, len(kind())), 3, priors=peaked, seed=2)


@cache
def signatures_fit(kind: Callable[[], tuple[str, ...]]) -> bayesnmf.Fit:
    """Three components of these mutations."""
    return bayesnmf.fit(mutations(kind).counts.matrix, rank=3, feature_names=kind(), seed=0)


@cache
def runs() -> bayesnmf.Modes:
    """Eight runs from random starts on the images."""
    return bayesnmf.modes(images(), rank=6, starts=8, seed=0)


# --- one example for each figure -------------------------------------------------------------------


def structure() -> Any:
    """Each vertical bar is one sample, and its colours are the shares of the components in the sample's counts."""
    fit = image_fits()["vi"]
    digit = [name[-2] for name in fit.row_names]
    return plots.structure(fit, digit, max_per_group=15)


def group_shares() -> Any:
    """Each field is the mean share of a component in a group; a component of one group is dark in one row."""
    fit = image_fits()["vi"]
    return plots.group_shares(fit, [name[-2] for name in fit.row_names])


def components() -> Any:
    """Each image is a component, dark where it has most counts; a cosine far below 1 is another component."""
    return plots.components(image_fits(), image_shape=bayesnmf.datasets.DIGITS_IMAGE)


def top_features() -> Any:
    """Bars are shares of features that lead by lift; markers and lines are medians and 90 % intervals of each fit."""
    fits = {method: small_fits()[method] for method in ("vi", "gibbs")}
    return plots.top_features(fits, n=6)


def signatures() -> Any:
    """Each panel is a signature of substitutions, with 90 % intervals, and with the known signature that it matches."""
    fit = bayesnmf.fit(bayesnmf.datasets.mutations(), rank=4, seed=0)
    known = bayesnmf.match(fit, bayesnmf.datasets.mutation_spectra(), least=0.8)
    return plots.signatures(fit, known=known)


def signatures_of_doublets() -> Any:
    """Doublet base substitutions, DBS78: below each bar is the doublet that replaces the one above."""
    return plots.signatures(signatures_fit(dbs78_types))


def signatures_of_indels() -> Any:
    """Insertions and deletions, ID83: numbers above are lengths of the indel, those below of what surrounds it."""
    return plots.signatures(signatures_fit(id83_types))


def signatures_of_copy_numbers() -> Any:
    """Segments, CN48: by whether they are heterozygous, by copy number, and by length."""
    return plots.signatures(signatures_fit(cn48_types))


def moved() -> Any:
    """Bars are signatures as tumours have them, marks those of the catalogue: what the tumours share has moved them."""
    factors = np.exp(0.3 * np.random.default_rng(0).normal(size=96))
    known = bayesnmf.datasets.mutation_spectra() * factors
    known = known.div(known.sum(axis=1), axis=0)
    counts = bayesnmf.datasets.mutations()
    return plots.moved(bayesnmf.assign(counts, known, drift="learned", draws=20, warmup=40), n=2)


def presence() -> Any:
    """Each column is an image, dark where it surely has the component; dots are exposures in the images that do."""
    return plots.presence(bayesnmf.assign(images().rows(range(100)), image_fits()["vi"]))


def volcano() -> Any:
    """Each point is a feature; those on the right are more frequent here than in the next best component."""
    table = bayesnmf.markers(image_fits()["vi"], n=None)
    return plots.volcano(table, n=3)


def loadings_intervals() -> Any:
    """Each panel is a sample: medians of its loadings, with 90 % intervals, one marker for each fit."""
    fits = {method: small_fits()[method] for method in ("vi", "gibbs")}
    return plots.loadings_intervals(fits, rows=[0, 1, 2])


def loadings_scatter() -> Any:
    """Each point is a sample; on the dashed line, both fits give it the same loading of this component."""
    return plots.loadings_scatter(small_fits(), "vi", "gibbs", interval=0.9)


def posterior_agreement() -> Any:
    """Points on the dashed line agree with the reference; in the lower panels, points below it are too certain."""
    return plots.posterior_agreement(small_fits(), reference="gibbs")


def agreement() -> Any:
    """Each number is the mean cosine of the matched components of two fits: 1 if they are equal up to scale."""
    return plots.agreement(small_fits())


def objectives() -> Any:
    """A line that still rises at its end has not converged; the legend has its last value and its last gain."""
    return plots.objectives(image_fits())


def convergence() -> Any:
    """Lines above are distances to the best of all fits, which ends at 0; lines below are KKT residuals."""
    options = {name: bayesnmf.MAP(algorithm=name, start="random") for name in ("em", "scd")}
    fits = {name: bayesnmf.fit(images(), rank=8, method="map", seed=0, options=options[name]) for name in options}
    return plots.convergence(fits)


def chains() -> Any:
    """Traces on the left should overlap; the ranks of every chain on the right should be flat at the dashed line."""
    return plots.chains(small_fits()["gibbs"], n=2)


def predictive_checks() -> Any:
    """Observed values are black; where they lie outside the coloured replicates, the model does not fit."""
    return plots.predictive_checks(bayesnmf.predictive_checks(small_fits()["gibbs"]))


def selection() -> Any:
    """The ring marks the best rank, the square the smallest rank that is as good within one standard error."""
    return plots.selection(bayesnmf.select(small(), ranks=range(1, 6), splits=2))


def ranks() -> Any:
    """Three criteria: a rank near the ring of each predicts, and its components come back; they need not agree."""
    by = ("masked", "heldout", "stability")
    return plots.ranks([bayesnmf.select(few(), ranks=range(1, 5), criterion=name) for name in by])


def misfit() -> Any:
    """Above the band, fits describe the counts worse than a right model would: here, those of less than 3 components.

    Far below it, they would follow the noise.
    """
    fits = {rank: bayesnmf.fit(small(), rank=rank, seed=0) for rank in (1, 2, 3, 4, 6)}
    return plots.misfit({rank: bayesnmf.predictive_checks(fit) for rank, fit in fits.items()})


def modes() -> Any:
    """Left: how far each run is behind the best. Right: in which runs the components of the best mode come back."""
    return plots.modes(runs())


def consensus() -> Any:
    """Dark squares on the diagonal are components that come back alike in several runs."""
    return plots.consensus(runs().consensus())


def calibration() -> Any:
    """Flat histograms and curves within the band are right intervals; a ∪-shape means intervals that are too narrow."""
    return plots.calibration(bayesnmf.calibrate("gamma_poisson", "vi", simulations=100), bins=10)


def model_graph() -> Any:
    """Circles are random variables, the shaded one is observed; boxes are repeated for rows, features, components."""
    return plots.model_graph("gamma_poisson")


SHARED = (images, image_fits, small, few, small_fits, mutations, signatures_fit, runs)


def figures() -> set[str]:
    """Return the names of all functions of `bayesnmf.plots`."""
    return {name for name in plots.__all__ if callable(getattr(plots, name))}


def figure_of(name: str) -> str:
    """Return the name of the function of an example; what follows "_of_" is what it draws."""
    return name.partition("_of_")[0]


def entries() -> dict[str, Callable[[], Any]]:
    """Return the examples by name, in the order of this file."""
    here = {name: value for name, value in globals().items() if isfunction(value) and figure_of(name) in figures()}
    return dict(sorted(here.items(), key=lambda item: item[1].__code__.co_firstlineno))
