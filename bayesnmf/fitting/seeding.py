"""Take features that are named beforehand into the prior of the components, and their names into the fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bayesnmf.data.counts import Counts
from bayesnmf.data.seeds import Seeds
from bayesnmf.fitting.checks import check_takes_seeds
from bayesnmf.priors import Priors
from bayesnmf.priors.pair import replace_sides, with_favoured
from bayesnmf.priors.specification import stated_components
from bayesnmf.results.record import FitRecord


def with_seeds(priors: Priors, seeds: Seeds, counts: Counts, rank: int) -> Priors:
    """Return the priors, which have no None left, with the named features favoured by the first components."""
    prior = stated_components(priors.components)
    check_takes_seeds(prior, list(seeds.sets), rank)
    members = seeds.members(counts.feature_names)
    return replace_sides(priors, components=with_favoured(prior, members, seeds.strength, rank))


def with_names_of_seeds[F: FitRecord](fit: F, seeds: Seeds) -> F:
    """Return the fit with the names of the sets as those of its first components."""
    names = [*seeds.sets, *map(str, range(len(seeds.sets), fit.rank))]
    return replace(fit, component_names=np.array(names, dtype=object))
