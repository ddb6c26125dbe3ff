"""Records that describe the methods; all other code asks these records.

Here, too, options that were left out are chosen, by the values that gave the best results on whole real matrices
(`benchmarks/defaults.md` contains the measurements and the command that repeats them), and misspelt ones explained.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from importlib import import_module
from typing import Any, Literal, cast

from bayesnmf.checks import nearest
from bayesnmf.needs import needed_for
from bayesnmf.noise.abilities import Noise
from bayesnmf.options.algorithms import ALGORITHMS, algorithms_of, serves
from bayesnmf.options.checks import check_options
from bayesnmf.options.classes import BLD, MAP, NUTS, SMC, SVI, VI, Elsewhere, Gibbs
from bayesnmf.options.rules import REGRESSED, Request
from bayesnmf.priors import Priors
from bayesnmf.priors.specification import EVEN, PARAMETER, SPARSE, Shapes, uniformises

Options = MAP | VI | BLD | Gibbs | NUTS | SMC | SVI
Posterior = Literal["point", "mean field", "draws"]


@dataclass(frozen=True)
class Method:
    """Description of a method; a new method is one more entry of `METHODS`.

    Attributes
    ----------
    options : class
        Class of the options.
    runner : str
        "module:function"; "" for fits that were made elsewhere. The function takes a `bayesnmf.fitting.job.Job` and
        returns a `bayesnmf.results.record.FitRecord`; its module is imported when the first fit runs.
    posterior : {"point", "mean field", "draws"}
        Kind of posterior of a fit: none, the closed-form q, or draws.
    objective : str
        Name of the objective in `Fit.trace`, for output.
    cure : str
        Advice on the options of a fit that has not converged.
    preference : int
        Rank of the method as a reference: fits are compared with the fit of the lowest rank.
    estimated : bool
        Whether the trace contains estimates of the objective.
    models : tuple of str or None
        Models that the method can fit; None is all models.
    whole_counts : bool
        Whether the counts must be whole numbers.
    takes_parameter : bool
        Whether the components may be "parameter", without a prior.
    needs : tuple of str
        Words of the abilities that the families of both priors must have (`bayesnmf.priors.distribution`).
    objective_of_rows : str
        Name of the objective of fits of new rows by `transform`, if it is another.
    resampled : bool
        Whether draws are resampled particles, to which diagnostics of chains do not apply.
    proper : bool
        Whether both priors must be proper.
    """

    options: type[Any]
    runner: str
    posterior: Posterior
    objective: str
    cure: str
    preference: int
    estimated: bool = False
    models: tuple[str, ...] | None = None
    whole_counts: bool = False
    takes_parameter: bool = False
    needs: tuple[str, ...] = ()
    objective_of_rows: str = ""
    resampled: bool = False
    proper: bool = False

    @property
    def reached(self) -> str:
        """What a fit that is done has reached: an optimum says nothing about intervals."""
        if self.posterior == "draws":
            return "draws have converged"
        return "converged to an optimum" if self.runner else "taken as it is"

    @property
    def default_shapes(self) -> Shapes:
        """Shapes of default priors: sparse ones predict better, but have no mode, and chains are slow to mix."""
        if self.posterior == "point":
            return EVEN._replace(beside=1.0)  # with less, components that drift have no mode
        return SPARSE if self.posterior == "mean field" else EVEN

    def run(self, job: Any) -> Any:
        """Run a job and return the record of its fit."""
        return self.load(job.method)(job)

    def load(self, name: str) -> Any:
        """Return the function that runs jobs of the method of this name."""
        module, function = self.runner.split(":")
        try:
            found = import_module(module)
        except ModuleNotFoundError:
            with needed_for(f"method={name!r}"):
                raise
        return getattr(found, function)


_CLOSED, _PROGRAMS = "bayesnmf.fitting.closed_form:fit_closed_form", "bayesnmf.fitting.nuts_and_svi"
_MORE_STEPS, _MORE_DRAWS = "raise max_iter or tol", "raise warmup and draws"

METHODS: dict[str, Method] = {
    "map": Method(MAP, _CLOSED, "point", "log joint", _MORE_STEPS, 5, takes_parameter=True),
    "vi": Method(VI, _CLOSED, "mean field", "elbo_augmented", _MORE_STEPS, 3, takes_parameter=True,
                 needs=("mean_field", "draws")),
    "gibbs": Method(Gibbs, "bayesnmf.fitting.gibbs:run_gibbs", "draws", "log joint", _MORE_DRAWS, 1,
                    whole_counts=True, needs=("draws",)),
    "nuts": Method(NUTS, f"{_PROGRAMS}:fit_nuts", "draws", "log joint", _MORE_DRAWS, 0, needs=("program",)),
    "smc": Method(SMC, "bayesnmf.fitting.smc:fit_smc", "draws", "log joint",
                  "raise refinement, particles or efficiency", 2, whole_counts=True, needs=("entries",),
                  resampled=True, proper=True),
    "svi": Method(SVI, f"{_PROGRAMS}:fit_svi", "mean field", "elbo_{bound}, estimated,",
                  "raise max_iter or particles, or lower learning_rate,", 4, estimated=True, takes_parameter=True,
                  needs=("program",)),
    "bld": Method(BLD, "bayesnmf.fitting.decomposition:fit_decomposition", "point", "log p(S)", _MORE_STEPS, 6,
                  models=("dirichlet_gamma",), needs=("marginal",), objective_of_rows="log joint"),
}  # fmt: skip
FOREIGN: dict[str, Method] = {  # what `bayesnmf.from_draws` makes a fit of
    "draws from elsewhere": Method(Elsewhere, "", "draws", "log {bound}", "make more draws where these come from", 2),
    "mean field from elsewhere": Method(Elsewhere, "", "mean field", "log {bound}", "", 4),
    "point from elsewhere": Method(Elsewhere, "", "point", "log {bound}", "", 6),
}


def method_of(name: str) -> Method:
    """Return the record of the method of a fit, which may have been made elsewhere."""
    return METHODS[name] if name in METHODS else FOREIGN[name]


def options_of(method: str, given: Any) -> Any:
    """Return the given options of a method, or its default ones for None."""
    kind = METHODS[method].options
    check_options(options := kind() if given is None else given, method, kind)
    return options


def methods_with(*posteriors: Posterior) -> tuple[str, ...]:
    """Return the names of the methods that give one of these kinds of posterior."""
    return tuple(name for name, method in METHODS.items() if method.posterior in posteriors)


MEANT = {
    "X": "counts", "data": "counts", "adata": "counts",
    "n_components": "rank", "n_topics": "rank", "num_topics": "rank", "k": "rank", "K": "rank",
    "random_state": "seed", "verbose": "progress", "n_jobs": "threads", "alpha": "priors", "eta": "priors",
    "doc_topic_prior": "priors", "topic_word_prior": "priors", "init": "start", "n_init": "restarts",
    "max_iters": "max_iter", "n_iter": "max_iter",
}  # fmt: skip


def explains_names[F: Callable[..., Any]](function: F) -> F:
    """Return the function, which refuses an unknown keyword with the name of the argument or option that is meant."""
    known = inspect.signature(function).parameters

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for name in kwargs:
            if name not in known:
                advice = _advice(name, list(known), str(kwargs.get("method", "vi")))
                raise TypeError(f"{function.__name__} has no argument {name!r}: {advice}")
        return function(*args, **kwargs)

    return cast(F, call)


def _advice(name: str, known: list[str], method: str) -> str:
    meant = MEANT.get(name, name)
    if meant in known:
        return f"give {meant}"
    able = [one for one, each in METHODS.items() if meant in each.options.__dataclass_fields__]
    classes = [METHODS[one].options.__name__ for one in sorted(able, key=lambda one: one != method)]
    if classes:
        return f"it is an option, so give options=bayesnmf.{classes[0]}({meant}=...); {_listed(classes)}"
    options = {each for method in METHODS.values() for each in method.options.__dataclass_fields__}
    if close := nearest(name, [*known, *options]):
        return f"did you mean {close}?" if close in known else f"did you mean {close}? {_advice(close, known, method)}"
    return f"its arguments are {', '.join(known)}"


def _listed(classes: list[str]) -> str:
    if len(classes) == 1:
        return "no other method has it"
    return f"{', '.join(classes[:-1])} and {classes[-1]} have it"


def resolve_options(options: Options, held: bool = True, plain: bool = False) -> Options:
    """Return the options of map or vi with defaults in place of None; their priors must have no None left.

    Where the loadings of all rows are not `held` in memory, which descents need, counts are fitted by EM or coordinate
    ascent from the decomposition alone; those with missing entries, or a noise that coordinate descent does not serve,
    by the same algorithms (`plain`).
    """
    if not isinstance(options, MAP | VI):
        return options
    first = algorithms_of("map" if isinstance(options, MAP) else "vi")[0]
    best = _best_algorithm(options) if held and not plain else first
    chosen: dict[str, Any] = {"algorithm": options.algorithm or best}
    algorithm = ALGORITHMS[chosen["algorithm"]]
    if options.start is None:
        led_up_to = isinstance(options, VI) or has_sparse_prior(options.priors)
        chosen["start"] = "descent" if led_up_to and held else "svd"
    chosen["extrapolate"] = algorithm.extrapolates if options.extrapolate is None else options.extrapolate
    if options.tol is None:
        chosen["tol"] = algorithm.tol
    return replace(options, **chosen)


def allows_regression(noise: Noise, priors: Priors) -> bool:
    """Return whether coordinate descent is right for this noise: it scales rows of proportions to their counts."""
    loadings: Any = priors.loadings
    able = serves("scd", noise)
    proportions = not noise.of_poisson and loadings.support != "positive"
    return able and not proportions and not uniformises(noise, priors.components)


def varied_start(options: Any, held: bool = True) -> str:
    """Return the word of the start that differs from seed to seed: for vi in memory with a descent, as its default."""
    return "random_descent" if held and isinstance(options, VI) else "random"


def has_sparse_prior(priors: Priors) -> bool:
    """Return whether a shape or concentration is below 1, so that each row tends to keep its first components."""
    sides: Any = (priors.loadings, priors.components)
    return any(prior != PARAMETER and prior.smallest_shape < 1 for prior in sides)


def _best_algorithm(options: MAP | VI) -> str:
    """Return the name of the best algorithm that priors, schedule, basis and device allow."""
    if isinstance(options, VI):
        return "coordinate"
    stated_for_em = options.schedule == "joint" or options.basis == "log" or options.device != "cpu"
    return "em" if stated_for_em or not allows_descent(options.priors) else "scd"


def basis_of_mode(options: Any) -> Literal["natural", "log"]:
    """Return the basis in which a method takes the mode: as requested, else natural if the priors allow it."""
    stated = getattr(options, "basis", None)
    return stated or ("log" if has_sparse_prior(options.priors) or options.priors.loadings.has_effects else "natural")


def chooses_basis(options: Any, basis: str) -> bool:
    """Return whether a method has the option `basis`, and takes the mode in this one."""
    return hasattr(options, "basis") and basis_of_mode(options) == basis


def allows_descent(priors: Priors) -> bool:
    """Return whether the modes under these priors can be found by coordinate descent."""
    return all(need.met(Request(priors=priors)) for need in REGRESSED)
