"""What goes with what: the table, in the order in which requests are compared with it.

`check_together` refuses by it, `docs/combinations.md` and `bayesnmf fit --help` print it, and
`tests/fitting/test_combinations.py` tries every pair of what it names. A rule is a line here; what a new noise or prior
can do is said by its abilities (`bayesnmf.noise.abilities`, `bayesnmf.priors.distribution`), and what a new method or
algorithm needs by its record, so that these have their lines already.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bayesnmf.noise.abilities import Dispersed
from bayesnmf.noise.poisson import POISSON
from bayesnmf.noise.words import NOISES
from bayesnmf.options.algorithms import algorithms_of, methods_for, serves
from bayesnmf.options.checks import BATCHED, BY_NAME
from bayesnmf.options.methods import METHODS, Method, chooses_basis, has_sparse_prior
from bayesnmf.options.rules import (
    BOUNDED,
    CPU,
    FLAT_SHARES,
    FREE_TOTALS,
    GAMMA_COMPONENTS,
    GPU,
    PRIOR_OF_COMPONENTS,
    PROPER_COMPONENTS,
    PROPER_LOADINGS,
    SIDES,
    SIMPLEX_COMPONENTS,
    UNEXPOSED,
    Need,
    Request,
    Rule,
    Thing,
    ability,
    algorithm_with,
    algorithms,
    algorithms_for,
    alternatives,
    by,
    check_rules,
    given,
    kind_of,
    methods,
    proper,
    setting,
)
from bayesnmf.priors.distribution import OPTIONAL
from bayesnmf.priors.drifting import Drifting
from bayesnmf.priors.specification import PARAMETER, on_simplex, uniformises

MOST_RATES = 100_000_000

# What a request may have


def method_with(able: Callable[[Method], Any]) -> Thing:
    """Return a method of which this is true."""
    return replace(by(*(name for name, each in METHODS.items() if able(each))), has=lambda r: able(METHODS[r.method]))


def noise_with(able: Callable[[Any], Any]) -> Thing:
    """Return a noise beside Poisson's of which this is true."""
    words = [word for word, each in NOISES.items() if each != POISSON and able(each)]
    return Thing(
        "noise={r.noise.word!r}", lambda r: r.noise != POISSON and able(r.noise), title=f"noise={alternatives(words)}"
    )


WEIGHTS = Thing("weights", lambda r: r.matrices is not None and r.matrices.weighted, True)
ON_DISK = Thing("counts on disk", lambda r: not r.counts.rows_held, True)
MISSING = Thing("missing entries", lambda r: r.missing, True)
COVARIATES = Thing("covariates", lambda r: r.loadings.has_effects, True)
DRIFT = Thing("drift", lambda r: isinstance(r.components, Drifting))
DRIFT_LEARNED = Thing("drift='learned'", lambda r: getattr(r.components, "is_learned", False))
BATCH = Thing("batch", lambda r: r.counts.batch is not None)
ROW_EXPOSURE = Thing("row_exposure", lambda r: r.counts.row_exposure is not None)
FEATURE_EXPOSURE = Thing("feature_exposure", lambda r: r.counts.feature_exposure is not None)
NOISE, DISPERSED = noise_with(lambda noise: True), noise_with(lambda noise: isinstance(noise, Dispersed))
RATES, POWERED = noise_with(lambda noise: noise.has_entry_rates), noise_with(lambda noise: not noise.whole)
OF_FEATURES = Thing(
    "noise={r.noise.word!r} per {r.noise.by} and components on the simplex",
    lambda r: uniformises(r.noise, r.components), True, "noise='nb1' per feature and components on the simplex",
)  # fmt: skip
GIVEN_TOTALS = Thing("given totals", lambda r: r.loadings.support == "simplex", True, "model='dirichlet_poisson'")
COLLAPSED = Thing("collapsed Gibbs", lambda r: r.collapsed)
NATURAL = Thing("basis='natural'", lambda r: getattr(r.options, "basis", None) == "natural")
LOG_BASIS = Thing("the mode in the log basis", lambda r: chooses_basis(r.options, "log"))
POSTERIOR = Thing(
    "the posterior of model={r.model!r}", lambda r: not chooses_basis(r.options, "natural"), title="a posterior"
)
WITH_POSTERIOR = method_with(lambda each: each.posterior != "point")
REGRESSION = algorithm_with(lambda each: "regression" in each.needs)
DRAWN_PROPORTIONS = Thing("loadings that are proportions", lambda r: r.method == "gibbs" and r.proportions, True)
STREAM = Thing("a stream", lambda r: r.stream, title="a stream (MinibatchVI)")


def learning(side: str) -> Thing:
    """Return that the prior of a side is learned."""
    return Thing(f"learn={side!r}", lambda r: side in getattr(r.options, "learn", ()))


def _unlimited(r: Request) -> bool:
    """Return whether a flat prior of the loadings would leave a posterior without limit, where entries are missing.

    A component that has all of itself in features which some rows miss leaves the loadings of these rows without any
    exposure, so that they add to the volume of the posterior, and to the elbo; under a mean field known ones do not.
    """
    known, posterior = getattr(r.components, "constants", {}).get("known"), METHODS[r.method].posterior
    return (r.hides or r.missing) and posterior != "point" and (
        posterior == "draws" or known is None or len(known) < r.rank
    )  # fmt: skip


def _unseen(lines: str) -> Callable[[Request], bool]:
    """Return whether rows, or features, without an observed entry have a posterior."""
    return lambda r: (
        r.missing and METHODS[r.method].posterior != "point" and not getattr(r.counts.mask, f"seen_{lines}").all()
    )


MISSING_POSTERIOR = Thing("missing entries and a posterior of the loadings", _unlimited, True)
EMPTY_ROW = Thing("a row without an observed entry", _unseen("rows"))
EMPTY_FEATURE = Thing("a feature without an observed entry", _unseen("features"))

# What these may need

FACTORED = ("map", "vi", "gibbs")
GAMMA_LOADINGS = Need(
    "Gamma loadings", lambda r: not r.proportions, lambda r: kind_of(r.loadings), "use model='gamma_poisson'"
)
GAMMA_SIDES = Need(
    "Gamma priors on both sides", lambda r: not r.proportions and not on_simplex(r.components),
    lambda r: f"{kind_of(r.loadings)} and {kind_of(r.components)}",
)  # fmt: skip
FREE_COMPONENTS = Need(
    "a Gamma prior of the components", lambda r: not on_simplex(r.components), lambda r: kind_of(r.components),
    f"give priors={GAMMA_COMPONENTS} in the options, or leave feature_exposure out and divide the components by it "
    "afterwards",
)  # fmt: skip
WITH_SCALE = Need(
    "loadings with a scale", lambda r: not GIVEN_TOTALS.has(r), lambda r: kind_of(r.loadings),
    "use model='gamma_poisson', or noise='nb1'",
)  # fmt: skip
WITHOUT_SCALE = Need(
    "loadings without a scale of their own", lambda r: r.loadings.support != "scaled simplex",
    lambda r: kind_of(r.loadings), "use model='gamma_poisson', or method='gibbs'",
)  # fmt: skip
NOT_FLAT = Need(
    "proper priors", lambda r: not _flat_side(r), lambda r: f"the flat bayesnmf.Gamma(1, 0) in priors.{_flat_side(r)}",
    "give it a rate above 0, put the components on the simplex with bayesnmf.Dirichlet(...), or use method='map' in "
    "the natural basis",
)  # fmt: skip
OWN_RATES = Need(
    "a prior of loadings without rates that rows share", lambda r: getattr(r.loadings, "over", "row") == "row",
    "over={r.loadings.over!r}",
)  # fmt: skip
NO_EFFECTS = Need("loadings without covariates", lambda r: not r.loadings.has_effects, "covariates", "use basis='log'")
UNLEARNED = Need("learn without 'loadings'", lambda r: not learning("loadings").has(r), "{r.options.learn!r}",
                 "leave it out")  # fmt: skip
ALL_DRAWS = Need("all draws", lambda r: not r.thinned, "thinned ones",
                 "ask for fewer draws, or bayesnmf.Gibbs(keep='draws')")  # fmt: skip
WHOLE = Need(
    "whole-number counts", lambda r: r.counts.is_integer, lambda r: _first_fraction(r.counts.matrix),
    "round them, or use noise='quasi'",
)  # fmt: skip
WHOLE_WEIGHTS = Need(
    "whole weights", lambda r: r.counts.is_integer, lambda r: str(r.matrices.weights), "use method='vi'"
)
ONE_MATRIX = Need("counts of one matrix", lambda r: r.matrices is None, "several", "fit one by one")
SEVERAL = Need("counts of several matrices", lambda r: r.noise.groups is not None, "one", "leave it out")
ALL_ENTRIES = Need("all entries", lambda r: not r.missing, "missing ones")
POISSON_NOISE = Need("noise='poisson'", lambda r: r.noise == POISSON, "{r.noise.word!r}", "leave one of them out")
NOT_DISPERSED = Need(
    "noise='poisson' or 'quasi'", lambda r: not DISPERSED.has(r), "{r.noise.word!r}", "leave one of them out"
)
UNCOLLAPSED = Need(
    "bayesnmf.Gibbs(collapsed=False)", lambda r: not r.collapsed, "collapsed=True", "leave collapsed out"
)
ALLOCATIONS = Need(
    "bayesnmf.Gibbs(algorithm='allocations')", lambda r: r.algorithm != "marginal", "{r.algorithm!r}",
    "leave algorithm out",
)  # fmt: skip
MARGINAL = Need(
    "bayesnmf.Gibbs(algorithm='marginal')", lambda r: not r.collapsed and r.algorithm != "allocations",
    lambda r: "collapsed=True" if r.collapsed else repr(r.algorithm), "leave algorithm and collapsed out",
)  # fmt: skip
FITTED = Need(
    "counts that are Poisson, or in clusters, or Poisson given rates of entries (bayesnmf.noise.abilities)",
    lambda r: methods_for(r.noise), "none of these, so that no method fits it", "use noise='nb1' or 'nb2'",
)  # fmt: skip
FITTED_BY = Need(
    lambda r: f"method={alternatives(methods_for(r.noise), 'gibbs')}", lambda r: r.method in methods_for(r.noise),
    "{r.method!r}", "use method='vi', or leave noise out", "a method that fits it",
)  # fmt: skip
ENTRY_RATES = Need(
    f"a rate of every entry, of {MOST_RATES:,} at most in memory",
    lambda r: not r.counts.rows_held or r.counts.shape[0] * r.counts.shape[1] <= MOST_RATES,
    lambda r: _size_of(r.counts),
    "use noise='nb1', fewer rows or features, or bayesnmf.Blocks(file), of which rates are made block by block",
)  # fmt: skip
ONE_DISPERSION = Need(
    "a dispersion of all entries or of each row", lambda r: not r.noise.by_feature, "those of each {r.noise.by}",
    "use dispersion='row', or model='gamma_poisson'",
)  # fmt: skip
BASIS = Need(
    lambda r: f"basis={_basis_of_factors(r)!r} with these priors",
    lambda r: r.options.basis in (None, _basis_of_factors(r)), "{r.options.basis!r}", "leave basis out",
    "the log basis, or the natural one for flat priors",
)  # fmt: skip
START = Need(
    lambda r: f"start={' or '.join(map(repr, _starts(r)))}",
    lambda r: not isinstance(getattr(r.options, "start", None), str) or r.options.start in _starts(r),
    "start={r.options.start!r}", title="a start by a word of map, vi or gibbs",
)  # fmt: skip
MODEL = Need(
    lambda r: _models(r), lambda r: r.model in (METHODS[r.method].models or ()), "{r.model!r}",
    lambda r: f"use {_models(r)}, or method='map'", "a model that it fits",
)  # fmt: skip


def without(name: str) -> Need:
    """Return the need of options without one that a stream has no use for."""
    cure = "leave it out, or use bayesnmf.fit for epochs over rows in memory"
    return Need(f"options without {name}", lambda r: not given(name).has(r), f"{name}={{r.options.{name}!r}}", cure)


def _needs(part: str) -> Callable[[Any], bool]:
    return lambda each: part in each.needs


def _models(r: Request) -> str:
    return f"model={alternatives(METHODS[r.method].models or ())}"


def _starts(r: Request) -> tuple[str, ...]:
    return ("fit", "random") if r.method == "gibbs" else ("svd", "descent", "random", "random_descent")


def _first_fraction(matrix: Any) -> str:
    place = int((matrix.data % 1 != 0).argmax())
    row = int(matrix.indptr.searchsorted(place, side="right")) - 1
    return f"{matrix.data[place]} at row {row}, column {matrix.indices[place]}"


def _size_of(counts: Any) -> str:
    n, m = counts.shape
    return f"{n:,} × {m:,} = {n * m:,}"


def _flat_side(r: Request) -> str:
    """Return the side with a flat prior that leaves the posterior improper; "" if it is proper."""
    if r.components != PARAMETER and r.components.flat:
        return "components"
    return "loadings" if r.loadings.flat and not on_simplex(r.components) else ""


def _basis_of_factors(r: Request) -> str:
    """Return the basis in which the mode leaves the scale of factors of batches at 1.

    Densities of loadings are largest at small ones, those of their logarithms are not, and rise for ever where flat.
    """
    return "natural" if any(getattr(each, "flat", False) for each in (r.loadings, r.components)) else "log"


def _other_method(r: Request) -> str:
    return "method='map'" if r.method in ("vi", "gibbs") else "method='vi'"


def _plain(r: Request) -> str:
    return f"algorithm={algorithms_of(r.method)[0]!r} in bayesnmf.fit"  # a stream has no other algorithm


def _use_plain(r: Request) -> str:
    return f"use {_plain(r)}" if r.proportions else f"give priors={GAMMA_COMPONENTS} in the options, or use {_plain(r)}"


NO_RATES = Need("a noise without rates of entries", lambda r: not RATES.has(r), "noise={r.noise.word!r}",
                "use noise='nb1'")  # fmt: skip
NO_BATCH = Need("counts without batch", lambda r: not BATCH.has(r), "batches", "leave batch out")
NO_SECOND_START = Need(
    "a noise whose zeros follow from the means, or a given share of zeros",
    lambda r: r.noise.known or not r.noise.hides_means,
    "noise={r.noise.word!r}, whose second start fits the counts above 0 alone, in memory", "use noise='nb2'",
)  # fmt: skip
NOT_OF_ROWS = Need("one dispersion, or one for each feature", lambda r: r.noise.by != "row", "dispersions of rows",
                   "give bayesnmf.NegativeBinomial(dispersion=None)")  # fmt: skip
KNOWN_POWER = Need(
    "a given dispersion", lambda r: r.noise.known or not r.noise.from_first_fit,
    "noise={r.noise.word!r}", "give bayesnmf.Quasi(dispersion=fit.dispersion().excess), or noise='nb1'",
)  # fmt: skip
IN_MEMORY = "read counts into memory: bayesnmf.read_counts reads a file, and adata.to_memory() an AnnData object"
ONE_BY_ONE, BESIDE = "which allocates counts one by one", "as counts are drawn beside the others"
ANY_SCALE = "with which factors would take any scale"
TO_GAMMA = f"give priors={GAMMA_COMPONENTS} in the options"

# The table

RULES: tuple[Rule, ...] = (
    Rule(WEIGHTS, methods(*FACTORED), "which needs a distribution", cure="leave weights out"),
    Rule(WEIGHTS & by("gibbs"), WHOLE_WEIGHTS, "which draws whole counts"),
    Rule(WEIGHTS, NOT_DISPERSED, "as counts that count more often have another dispersion"),
    Rule(ON_DISK, methods(*FACTORED), cure=IN_MEMORY),
    Rule(ON_DISK, algorithms(lambda each: each.on_disk), cure=IN_MEMORY),
    Rule(ON_DISK, START, cure=IN_MEMORY),
    Rule(ON_DISK, setting("order", "loadings"), cure=IN_MEMORY),
    Rule(ON_DISK, UNCOLLAPSED, cure=IN_MEMORY),
    Rule(ON_DISK, OWN_RATES, cure=IN_MEMORY),
    Rule(MISSING, methods(*(each for each in METHODS if each != "bld")), ONE_BY_ONE, cure="use method='vi' or 'gibbs'"),
    Rule(MISSING, UNCOLLAPSED, ONE_BY_ONE),
    Rule(MISSING & by("smc"), GAMMA_LOADINGS, BESIDE, cure="use method='nuts' or 'gibbs'"),
    Rule(MISSING, algorithms(lambda each: each.masks), "which needs all entries"),
    Rule(MISSING & REGRESSION, GAMMA_SIDES, "and others are scaled to the totals of rows", cure=_use_plain),
    Rule(
        MISSING & algorithm_with(lambda each: "merged" in each.needs), GAMMA_SIDES,
        "and others receive counts of missing entries", cure=_use_plain,
    ),
    Rule(MISSING, CPU),
    Rule(MISSING_POSTERIOR, PROPER_LOADINGS, "with which it would have no limit"),
    Rule(EMPTY_ROW, PROPER_LOADINGS),
    Rule(EMPTY_FEATURE, PROPER_COMPONENTS),
    Rule(COVARIATES, methods(*FACTORED), "which does not know their effects"),
    Rule(
        COVARIATES & by("map"), GAMMA_LOADINGS, "whose concentrations would grow without bound at the mode",
        cure="use method='vi', or model='gamma_poisson'",
    ),
    Rule(COVARIATES, UNLEARNED, "and effects are learned anyway"),
    Rule(COVARIATES, ALL_DRAWS),
    Rule(ROW_EXPOSURE, FREE_TOTALS, cure=f"leave it out, or {FREE_TOTALS.cure}"),
    Rule(FEATURE_EXPOSURE, FREE_COMPONENTS, "with which the updates have no closed form"),
    Rule(
        method_with(lambda each: not each.takes_parameter), PRIOR_OF_COMPONENTS, "which has no posterior to sample",
        cure="give priors.components, or use method='vi'",
    ),
    Rule(POSTERIOR, NOT_FLAT, "with which it is improper"),
    Rule(method_with(lambda each: each.models), MODEL),
    *(Rule(method_with(_needs(part)), ability(part, _other_method)) for part in OPTIONAL),
    *(Rule(algorithm_with(_needs(part)), ability(part, _plain)) for part in OPTIONAL),
    Rule(GPU, ability("device", "device='cpu'")),
    Rule(COLLAPSED, ability("marginal", "bayesnmf.Gibbs(collapsed=False)")),
    Rule(LOG_BASIS, ability("log_basis", lambda r: "method='vi'" if has_sparse_prior(r.priors) else "basis='natural'")),
    Rule(NATURAL, NO_EFFECTS, "whose loadings and their means would go to 0 together"),
    Rule(NATURAL, BOUNDED, cure="use basis='log'"),
    Rule(REGRESSION, BOUNDED, cure="use algorithm='em', which can use the log basis"),
    Rule(REGRESSION, FLAT_SHARES, "which moves the scale of a component between the sides"),
    Rule(learning("components"), PRIOR_OF_COMPONENTS),
    Rule(DRIFT, CPU),
    Rule(DRIFT_LEARNED, methods("vi"), "which learns no prior", cure="give a number, as drift=5000"),
    *(Rule(learning(side), ability("learned", "bayesnmf.VI(learn=())", (side,))) for side in SIDES),
    *(Rule(learning(side), proper(side)) for side in SIDES),
    *(Rule(method_with(lambda each: each.proper), proper(side)) for side in SIDES),
    Rule(method_with(lambda each: each.whole_counts), WHOLE, cure="round them, or use method='vi'"),
    Rule(method_with(lambda each: "marginal" in each.needs), UNEXPOSED, cure="use method='map' or 'vi'"),
    *(Rule(COLLAPSED, each, cure="use bayesnmf.Gibbs(collapsed=False)") for each in (UNEXPOSED, SIMPLEX_COMPONENTS)),
    Rule(BATCH, methods(*FACTORED), "which has no such factors", cure="leave batch out"),
    Rule(BATCH, FREE_TOTALS, "and factors change them", cure="use model='dirichlet_gamma'"),
    Rule(BATCH, ONE_MATRIX),
    Rule(BATCH, CPU),
    Rule(BATCH, UNCOLLAPSED, "and factors change exposures"),
    Rule(BATCH, algorithms(lambda each: each.rates), "which holds exposures"),
    Rule(BATCH, PRIOR_OF_COMPONENTS, "and factors are free to take what these have"),
    Rule(BATCH & by("map"), BASIS, "whose mode has factors far from 1"),
    *(Rule(BATCH & by("vi", "gibbs"), each, ANY_SCALE) for each in (PROPER_LOADINGS, PROPER_COMPONENTS)),
    Rule(NOISE, FITTED),
    Rule(NOISE, FITTED_BY, "which draws or scores Poisson counts"),
    Rule(Thing("dispersion='matrix'", lambda r: r.noise.by == "matrix"), SEVERAL),
    Rule(NOISE & by("smc"), WITHOUT_SCALE, "which numbers of clusters depend on"),
    Rule(NOISE & by("smc"), ALL_ENTRIES, cure="use method='gibbs'"),
    Rule(NOISE, CPU),
    Rule(POWERED & by("gibbs"), MARGINAL, "which allocates counts one by one, and not parts of them"),
    Rule(POWERED & by("gibbs"), ability("entries", "method='vi'")),
    Rule(NOISE, UNCOLLAPSED, "where single counts must be exchangeable"),
    Rule(NOISE, algorithms_for(lambda name, r: serves(name, r.noise), "an algorithm that fits it")),
    Rule(DISPERSED, WHOLE),
    Rule(DISPERSED & REGRESSION, GAMMA_LOADINGS, cure="leave algorithm out, for 'em'"),
    Rule(DISPERSED, setting("bound", "marginal"), "where counts of components are not Poisson"),
    Rule(RATES & WITH_POSTERIOR, PROPER_LOADINGS, "with which the posterior may not exist"),
    Rule(RATES, WITH_SCALE, "and rates of entries change the totals of rows"),
    Rule(RATES, ENTRY_RATES),
    Rule(RATES & ON_DISK & by("gibbs"), ALLOCATIONS, "as the other holds exposures of all rows", cure=IN_MEMORY),
    Rule(RATES & ON_DISK, NO_BATCH, "whose factors are found with the rates of all entries", cure=IN_MEMORY),
    Rule(RATES & ON_DISK & by("map", "vi"), NO_SECOND_START, cure="give the share, or use method='gibbs'"),
    Rule(
        DISPERSED & GIVEN_TOTALS, methods(*FACTORED, "smc"), "which has no program of it",
        cure="use method='vi' or 'gibbs', or model='gamma_poisson'",
    ),
    Rule(DISPERSED & GIVEN_TOTALS, ALL_ENTRIES, cure="use model='gamma_poisson', or noise='poisson'"),
    Rule(DISPERSED & GIVEN_TOTALS, ONE_DISPERSION, "which have no closed form"),
    Rule(OF_FEATURES & by("gibbs"), GAMMA_LOADINGS, "whose scale draws do not know"),
    Rule(
        OF_FEATURES, methods(*(each for each in METHODS if each != "smc")), "which does not temper them",
        cure=f"{TO_GAMMA}, or use method='gibbs'",
    ),
    Rule(OF_FEATURES, algorithms(lambda each: each.rates), cure=f"{TO_GAMMA}, or leave algorithm out in bayesnmf.fit"),
    Rule(STREAM, BATCHED, cure="use bayesnmf.VI(algorithm='minibatch', ...)"),
    *(Rule(STREAM, without(each), "and each batch takes one step")
      for each in ("max_iter", "tol", "restarts", "intervals")),
    Rule(STREAM, BY_NAME, "whose rows are others", cure="leave it out, or give a word"),
    Rule(STREAM, NO_RATES, "which needs all rows at once"),
    Rule(STREAM, NOT_OF_ROWS, "which do not come again"),
    Rule(STREAM, KNOWN_POWER, "which takes that of a fit of all rows"),
    Rule(MISSING & DRAWN_PROPORTIONS, POISSON_NOISE, BESIDE, cure="use method='vi'"),
    *(Rule(each & DRAWN_PROPORTIONS, ALLOCATIONS, BESIDE) for each in (MISSING, BATCH, RATES)),
)  # fmt: skip


def check_together(request: Request, *things: Thing) -> None:
    """Refuse what cannot be fitted; or by the rules of some things alone."""
    check_rules(request, [rule for rule in RULES if not things or rule.thing in things])


def served_options(request: Request) -> Any:
    """Return the options of a request, whose noise, missing entries and batches may choose a sampler and a basis."""
    options = request.options
    if request.method == "gibbs":
        if request.proportions and any(each.has(request) for each in (MISSING, BATCH, RATES)):
            return replace(options, algorithm="allocations")
        return options if request.noise.whole else replace(options, algorithm="marginal")
    in_batches = request.method == "map" and BATCH.has(request)
    return replace(options, basis=_basis_of_factors(request)) if in_batches else options
