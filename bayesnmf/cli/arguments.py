"""The arguments of the command line: a record for each, and what their text is read as.

To add an argument, add a record to `ARGUMENTS` that names the commands that take it; `run` of these commands finds its
value by its name. This file imports what computes only when it reads a text, so that --help is fast.
"""

from __future__ import annotations

import ast
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_args

from bayesnmf.checks import check_choice, check_count, check_nonnegative, check_share, parse_int, shown
from bayesnmf.places import check_file_to_write, check_plots_can_be_drawn
from bayesnmf.types import CriterionWord, MethodWord, ModelWord

MODELS: tuple[str, ...] = get_args(ModelWord)
METHODS: tuple[str, ...] = get_args(MethodWord)
WHICH = """which model and method:
  --model gamma_poisson, unless you want shares of each sample given its total,
  as topic models do (dirichlet_poisson, or dirichlet_gamma with totals that
  vary), or samples and features differ widely in scale (hierarchical_poisson).
  poisson has a flat prior of the loadings, as NMF does.
  --method vi: components with intervals, in seconds to minutes. map: the same
  without intervals. gibbs: chains, where intervals must be right and counts are
  not too many; nuts checks them on small counts. smc: the evidence of small
  counts. svi and bld: for comparison with other programs."""
TOGETHER = """what goes with what (more: docs/combinations.md):
  batch: method=map, vi or gibbs; a model of the totals of rows; counts of one
    matrix
  covariates: method=map, vi or gibbs
  missing entries: method=map, vi, gibbs, nuts, smc or svi
  counts on disk: method=map, vi or gibbs
  weights: method=map, vi or gibbs; noise=poisson or quasi
  row_exposure: a model of the totals of rows
  feature_exposure: a Gamma prior of the components
  noise=nb1: method=map, vi, gibbs, nuts, svi or smc
  noise=nb2: method=map, vi, gibbs, nuts or svi
  noise=quasi: method=map, vi or gibbs
  noise=zip: method=map, vi or gibbs"""
FORMATS = (
    "counts, samples in rows: .npz .mtx[.gz] .csv[.gz] .tsv[.gz] .txt[.gz] .all .dat .data .tab .parquet .h5ad .h5, "
    "tables of salmon, RSEM, mothur and PLINK, or a folder of 10x Genomics"
)
TABLES = ".csv[.gz], .tsv[.gz] or .parquet"
TABLE_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")
FIT_SUFFIXES = (".nc", ".zarr")
PAGE_SUFFIXES = (".html", ".htm")
FAMILIES = ("Gamma", "Dirichlet", "ScaledDirichlet", "HierarchicalGamma")
DRAWN_NOISES = ("poisson", "nb1", "nb2")  # that counts can be drawn with, and compared by
MOST_RANKS = 1000
LEAST_COSINE = 0.8  # of a match with known components
OWN_ARGUMENTS = {"priors": "--prior-loadings and --prior-components", "start": "--start", "restarts": "--restarts"}


# --- what a text is read as ---------------------------------------------------------------------------


Read = Callable[[Any, str], Any]  # takes the text and the name of the argument; returns the value, or refuses the text


def as_text(text: Any, name: str) -> Any:
    """Return the text itself."""
    return text


def whole(minimum: int = 1) -> Read:
    """Return what reads a whole number of at least `minimum`."""
    return lambda text, name: check_count(parse_int(text, name), name, minimum=minimum)


def number(rule: str, example: str, check: Callable[[float, str], Any], words: Sequence[str] = ()) -> Read:
    """Return what reads one of some words, or a number that a check of the library accepts."""

    def read(text: str, name: str) -> Any:
        try:
            return text if text in words else check(float(text), name)
        except ValueError as error:
            raise ValueError(f"{name} must be {rule}: found {shown(text)}; write such as {example}") from error

    return read


def drift(value: float, name: str) -> Any:
    """Return how many counts a catalogue weighs."""
    from bayesnmf.data.checks import check_drift

    return check_drift(value)


DRIFT = number("learned, or a number of at least 1", "learned", drift, ("learned",))


def word_of(choices: Iterable[str]) -> Read:
    """Return what reads one of some words."""
    return lambda text, name: check_choice(text, name, choices)


def model(text: str, name: str) -> str:
    """Return the name of a model."""
    from bayesnmf.priors.specification import check_model

    return check_model(text, name)


def criterion(text: str, name: str) -> str:
    """Return the word of a criterion, which may have been added."""
    from bayesnmf.studies.selection.selecting import CRITERIA

    return check_choice(text, name, CRITERIA)


def noise_word(text: str, name: str) -> str:
    """Return the word of a noise of the library."""
    from bayesnmf.noise.words import NOISES, OTHERS

    return check_choice(text, name, NOISES, OTHERS)


def listed(read: Read) -> Read:
    """Return what reads a list with commas between its values."""
    return lambda text, name: [read(each.strip(), name) for each in text.split(",")]


def by_name(words: Sequence[str], name: str) -> dict[str, str]:
    """Return what is given as NAME=VALUE."""
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.strip().partition("=")
        if not (key and equals and value) or key in found:
            raise ValueError(
                f"{name} must be one, or NAME={name.strip('-').upper()} for each of several matrices, with names that "
                f"differ: found {shown(word)}"
            )
        found[key] = value
    return found


def files(words: Sequence[str], name: str) -> str | dict[str, str]:
    """Return one FILE, or those of several matrices by name, given as NAME=FILE; a file may have a name with =."""
    if len(words) == 1 and ("=" not in words[0] or Path(words[0]).exists()):
        return words[0]
    return by_name(words, name)


def noises(text: str, name: str) -> str | dict[str, str]:
    """Return the word of the noise, or that of each of several matrices, given as NAME=WORD."""
    if "=" not in text:
        return noise_word(text, name)
    return {key: noise_word(each, name) for key, each in by_name(text.split(","), name).items()}


def compared_noises(text: str, name: str) -> Any:
    """Return the words of noises to compare, or that of each of several matrices, given as NAME=WORD."""
    return (noises if "=" in text else listed(word_of(DRAWN_NOISES)))(text, name)


def weights(text: str, name: str) -> dict[str, float]:
    """Return how often the counts of matrices count, given as NAME=NUMBER."""
    try:
        return {key: float(each) for key, each in by_name(text.split(","), name).items()}
    except ValueError as error:
        raise ValueError(f"{name} must be NAME=NUMBER, as id=2,dbs=0.5: found {shown(text)}") from error


def ranks(text: str, name: str) -> list[int]:
    """Return the numbers in a list such as 2,4,8 or 2-8 or 2-6,10."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        low = whole()(first, name)
        high = whole()(last, name) if dash else low
        if high - low >= MOST_RANKS:
            raise ValueError(
                f"{name} must have at most {MOST_RANKS:,} numbers: found {shown(part)}; give a smaller range"
            )
        found += range(low, high + 1)
    if not found:
        raise ValueError(f"{name} must name at least one: found {shown(text)}; give some, such as 2-8 or 4,8,12")
    return found


def height_and_width(text: str, name: str) -> tuple[int, ...]:
    """Return two whole numbers with a comma between them."""
    if text.count(",") != 1:
        raise ValueError(f"{name} must be two whole numbers, such as 8,8: found {shown(text)}")
    return tuple(listed(whole())(text, name))


def prior(text: str, name: str) -> Any:
    """Return the prior written as in Python, such as Gamma(0.3, 1.0), or the word parameter."""
    if text == "parameter":
        return text
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, LookupError, TypeError, ValueError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ValueError(
            f"{name} must be a prior such as 'Gamma(0.3, 1.0)', 'Dirichlet(0.1)' or parameter: found {shown(text)} "
            f"({reason}); the families are {', '.join(FAMILIES)}"
        ) from error


def _value(node: ast.expr) -> Any:
    """Return the value of a call of a family of priors, or of a literal."""
    if not isinstance(node, ast.Call):
        try:
            return ast.literal_eval(node)
        except ValueError as error:  # whose words name objects of Python's parser
            raise ValueError(f"{ast.unparse(node)} is no number, word or list") from error
    from bayesnmf.priors.families import FAMILIES as CLASSES

    family: Callable[..., Any] = CLASSES[check_choice(getattr(node.func, "id", ""), "the family", FAMILIES)]
    given = [_value(each) for each in node.args]
    return family(*given, **{str(each.arg): _value(each.value) for each in node.keywords})


# --- the table ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Argument:
    """An argument of some commands.

    Attributes
    ----------
    name : str
        Such as "--rank", or "FILE" for one that is given by its place.
    commands : str
        Names of the commands that take it.
    help : str
        What --help says of it, before the default.
    default : str or None
        Text that is read if it is not given.
    metavar : str or None
        What stands for its value in --help.
    read : Read
        What its text is read as.
    source : bool
        Whether it may name a file, which no output replaces.
    suffixes : tuple of str
        Of a file to write, one of the ends that its name must have; "" is any.
    more : dict of str
        Other arguments of `argparse.ArgumentParser.add_argument`.
    """

    name: str
    commands: str
    help: str
    default: str | None = None
    metavar: str | None = None
    read: Read = as_text
    source: bool = False
    suffixes: tuple[str, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Name of its value."""
        return self.name.strip("-").replace("-", "_").lower()

    def add_to(self, group: Any) -> None:
        """Add it to a group of a parser."""
        more = {"help": self.help, "default": self.default, **self.more}
        if self.default is not None and "(default" not in self.help:
            more["help"] += " (default: %(default)s)"
        metavar = self.metavar or ("FILE" if self.source else "PATH" if self.suffixes else None)
        name = self.name if self.name.startswith("-") else self.key
        group.add_argument(name, **more, **({"metavar": metavar} if metavar else {}))


def table(name: str, commands: str, told: str) -> Argument:
    """Return an argument that names a table to write."""
    return Argument(name, commands, f"{told}: {TABLES}", suffixes=TABLE_SUFFIXES)


def flag(name: str, commands: str, told: str) -> Argument:
    """Return an argument without a value."""
    return Argument(name, commands, told, more={"action": "store_true", "default": False})


EVERY = "fit transform assign select modes compare equivalences report browse simulate"
COUNTING = "fit transform assign select modes compare equivalences"
FITTING = "fit select modes"
SEVERAL: Mapping[str, Any] = {"nargs": "+"}
KNOWN = "a fit, a table with one in each row, or one in each column if the rows are mutation types"
NB = "of the counts around their means: poisson; nb1 or nb2, negative binomial with linear or quadratic variance"
SHARE = number("a number from 0 to 1", "0.9", check_share)

# By their headings in --help, in its order.
ARGUMENTS: dict[str, tuple[Argument, ...]] = {
    "fit": (Argument("FIT", "transform report browse", "file of a fit, .nc or .zarr", metavar="FIT", source=True),),
    "counts": (
        Argument("FILE", "assign modes", FORMATS, source=True),
        Argument("FILE", "compare equivalences", f"{FORMATS} (default: 334 of scikit-learn's digits)", source=True,
                 more={"nargs": "?"}),
        Argument("FILE", "fit select", f"{FORMATS}; or NAME=FILE for each of several matrices of the same samples",
                 read=files, source=True, more=SEVERAL),
        Argument("FILE", "transform", f"{FORMATS}; or NAME=FILE of one or several matrices, if the fit is of several",
                 read=files, source=True, more=SEVERAL),
        flag("--transpose", COUNTING, "FILE has features in its rows"),
        Argument("--layer", COUNTING, "layer of an .h5ad file (default: counts, or X)", metavar="NAME"),
        Argument("--feature-labels", COUNTING,
                 "column of an .h5ad file's var with the names of the features, such as symbol", metavar="COLUMN"),
        Argument("--layout", COUNTING, "how to read a table whose names do not show it",
                 more={"choices": ("long", "wide")}),
        Argument("CATALOGUE", "assign", f"known components: {KNOWN}", metavar="CATALOGUE", source=True),
        Argument("--only", "assign", "components of CATALOGUE to take, such as those of a tissue: SBS1,SBS5,SBS40",
                 None, "LIST", listed(lambda text, _: text)),
        flag("--without-artefacts", "assign", "leave out signatures that COSMIC takes for artefacts of sequencing"),
        Argument("--missing", "fit assign", "missing entries: nan for empty ones and NA, zeros for all without a "
                 "count, or a table of 1 at them and 0 elsewhere, with the names of FILE", metavar="WORD or FILE",
                 source=True),
        Argument("--row-exposure", "fit select modes transform",
                 "table with the name and the exposure of each row: .csv, .tsv", source=True),
        Argument("--feature-exposure", FITTING, "table with the name and the exposure of each feature: .csv, .tsv",
                 source=True),
        Argument("--weights", "fit select", "how often the counts of matrices count, others once",
                 metavar="NAME=NUMBER,...", read=weights),
    ),
    "model": (
        Argument("--model", "fit modes compare simulate", f"one of {', '.join(MODELS)}", "gamma_poisson", read=model),
        Argument("--models", "select", f"comma-separated, of {', '.join(MODELS)}", "gamma_poisson", "LIST",
                 listed(model)),
        Argument("--rows", "simulate", "number of samples", "100", "N", whole()),
        Argument("--features", "simulate", "number of features", "50", "M", whole()),
        Argument("--rank", "fit", "number of components (default: 10, or that of --fixed-components)", None, "K",
                 whole()),
        Argument("--rank", "modes", "number of components", "10", "K", whole()),
        Argument("--rank", "compare", "number of components", "8", "K", whole()),
        Argument("--rank", "equivalences simulate", "number of components", "5", "K", whole()),
        Argument("--ranks", "select", "numbers of components, such as 2-8 or 4,8,12", "2-6,8,10", "LIST", ranks),
        Argument("--totals", "simulate", "counts of a row, on average (default: 200)", None, "N", whole()),
        Argument("--criterion", "select", f"one of {', '.join(get_args(CriterionWord))} (default: masked)",
                 read=criterion),
        Argument("--resample", "select", "with stability: halves (of the rows, the default) or counts (of all rows)"),
        Argument("--method", "fit", f"one of {', '.join(METHODS)}", "vi", read=word_of(METHODS)),
        Argument("--method", "modes", "one of map, vi, bld", "vi", read=word_of(("map", "vi", "bld"))),
        Argument("--method", "select", f"one of {', '.join(METHODS)} (default: vi; smc with the evidence)",
                 read=word_of(METHODS)),
        Argument("--methods", "compare", f"comma-separated, of {', '.join(METHODS)}", "map,vi,gibbs,nuts", "LIST",
                 listed(word_of(METHODS))),
        Argument("--prior-loadings", "fit select modes simulate",
                 "such as 'Gamma(0.3, 1.0)' (shape, rate) or 'Dirichlet(0.1)'", metavar="PRIOR", read=prior),
        Argument("--prior-components", "fit select modes simulate", "such as 'Dirichlet(0.1)', or parameter for none",
                 metavar="PRIOR", read=prior),
        Argument("--restarts", FITTING, "number of starts, of which the best fit is kept (map, vi, bld)",
                 metavar="N", read=whole()),
        Argument("--start", FITTING, "svd, descent, random, random_descent, or the file of a fit to continue",
                 metavar="START", source=True),
        Argument("--set", FITTING, "any other option of the method, as in Python: max_iter=500, dtype=float32, "
                 "draws=2000; may be repeated", metavar="NAME=VALUE", more={"action": "append"}),
        Argument("--fixed-components", "fit", f"known components, the first of all K: {KNOWN}", source=True),
        Argument("--extra", "assign", "components to look for that CATALOGUE lacks", "0", "N", whole(0)),
        Argument("--drift", "fit", "let known components move, with a prior that weighs as many counts: a number, or "
                 "learned (they stay)", None, "NUMBER", DRIFT),
        Argument("--drift", "assign", "how many counts the known components weigh, which move towards what all "
                 "samples show: a number, learned, or inf (they stay)", "learned", "NUMBER", DRIFT),
        Argument("--seeds", "fit select modes compare", "sets of features that the first components are to have: a "
                 ".gmt file, with name, description and features in each line", source=True),
        Argument("--formula", FITTING, "what loadings depend on, as '~ age + treatment': columns of --covariates, or "
                 "of an .h5ad file's obs", metavar="TEXT"),
        Argument("--covariates", FITTING, "table with the name of each row and its covariates: .csv, .tsv",
                 source=True),
        Argument("--covariates", "transform",
                 "table with the name and the covariates of each row, if the fit had some", source=True),
        Argument("--batch", "fit select modes transform", "batch of each sample: a table with name and label, or a "
                 "column of an .h5ad file's obs; features get a factor in each batch", metavar="FILE or COLUMN",
                 source=True),
        Argument("--noise", "fit modes", f"{NB}; zip, with more zeros; or quasi, for wide intervals", "poisson",
                 "WORD", noises),
        Argument("--noise", "assign", NB, "poisson", "WORD", word_of(DRAWN_NOISES)),
        Argument("--noise", "simulate", f"one of {', '.join(DRAWN_NOISES)}", "poisson", "WORD", word_of(DRAWN_NOISES)),
        Argument("--noise", "select", f"noises to compare, comma-separated: {', '.join(DRAWN_NOISES)}", "poisson",
                 "LIST", compared_noises),
        Argument("--dispersion", "fit modes", "of nb1 and nb2: a number, or row or feature for one of each (learned)",
                 None, "NUMBER or WORD", number("a number of at least 0, row or feature", "0.5", check_nonnegative,
                                                ("row", "feature"))),
        Argument("--dispersion", "assign", "of nb1 and nb2, or feature for one of each (learned)", None, "NUMBER",
                 number("a number of at least 0, or feature", "0.5", check_nonnegative, ("feature",))),
        Argument("--dispersion", "simulate", "of nb1, variance over mean, less 1; of nb2, variance less mean, over "
                 "mean²", None, "NUMBER", number("a number of at least 0", "0.5", check_nonnegative)),
        Argument("--starts", "modes", "number of runs", "20", "N", whole()),
        Argument("--jobs", "modes", "number of runs side by side (default: one for each core)", None, "N", whole()),
        Argument("--iterations", "equivalences", "updates of each sequence of iterates", "20", "N", whole()),
        Argument("--chains", "assign", "chains, which are compared", "2", "N", whole()),
        Argument("--draws", "assign", "kept rounds of each", "100", "N", whole()),
        Argument("--warmup", "assign", "rounds of each before (default: 120, or 60 with --drift inf)", None, "N",
                 whole()),
        Argument("--interval", "assign", "probability of the intervals", "0.9", "P", SHARE),
        Argument("--seed", "fit", "seed of all random numbers (default: a new one, which is printed)", None, "N",
                 whole(0)),
        Argument("--seed", "transform assign select modes compare equivalences simulate", "seed of all random numbers",
                 "0", "N", whole(0)),
    ),
    "page": (
        Argument("--groups", "report", "table with name and group of each sample: .csv, .tsv", source=True),
        Argument("--texts", "browse", "table with name and text of each sample: .csv, .tsv", source=True),
        Argument("--names", "report browse", "table with number and name of each component: .csv, .tsv", source=True),
        Argument("--catalogue", "report", "known components, such as a table of COSMIC: shown where the cosine is at "
                 f"least {LEAST_COSINE}", source=True),
        Argument("--title", "report browse", "heading of the page", metavar="TEXT"),
        Argument("--image-shape", "report", "height and width, if the features are pixels", None, "H,W",
                 height_and_width),
    ),
    "output": (
        Argument("--checkpoint", "fit assign select modes compare",
                 "keep the work here: after a crash, the same call goes on", metavar="DIR"),
        Argument("--out", "fit", "the fit: .nc, or .zarr for large ones", "fit.nc", suffixes=FIT_SUFFIXES),
        Argument("--out", "transform", f"table of the loadings, {TABLES}, or .nc or .zarr for a fit with its posterior",
                 "loadings.csv", suffixes=(*TABLE_SUFFIXES, *FIT_SUFFIXES)),
        Argument("--out", "assign", f"the table: {TABLES}", "assignment.csv", suffixes=TABLE_SUFFIXES),
        Argument("--out", "modes", "the fit of the best mode: .nc or .zarr", suffixes=FIT_SUFFIXES),
        Argument("--out", "compare", "folder to write to", "results", "DIR"),
        Argument("--out", "report", "the page", "report.html", suffixes=PAGE_SUFFIXES),
        Argument("--out", "browse", "the page", "browse.html", suffixes=PAGE_SUFFIXES),
        Argument("--out", "simulate", f"the counts: .npz (and names in .json), {TABLES}", "counts.npz",
                 suffixes=(".npz", *TABLE_SUFFIXES)),
        table("--table", "select", "the table of scores"),
        table("--table", "modes", "the table of the modes"),
        table("--runs", "modes", "the table of the runs"),
        Argument("--csv", "equivalences", "also write the table to this file, in a folder that exists", suffixes=("",)),
        table("--loadings", "fit simulate", "table of the loadings"),
        table("--components", "fit simulate", "table of the components"),
        table("--components", "modes", "how often each component comes back"),
        table("--markers", "fit", "table of what sets each component apart"),
        table("--effects", "fit", "table of the effects of covariates"),
        Argument("--anndata", "fit", "the .h5ad FILE, or the counts, with the fit in it: .h5ad", suffixes=(".h5ad",)),
        Argument("--least", "assign", "smallest chance of presence that the table lists", "0.05", "P", SHARE),
        Argument("--save", "assign", "all of the result, for bayesnmf.load: .nc or .zarr", suffixes=FIT_SUFFIXES),
        Argument("--html", "compare", "where to write the page for a browser (default: report.html in --out)",
                 suffixes=PAGE_SUFFIXES),
        Argument("--plot", "assign", "figure of the chances and exposures: .png, .pdf or .svg", suffixes=("",)),
        Argument("--plot", "select", "figure of the scores: .png, .pdf or .svg", suffixes=("",)),
        Argument("--plot", "modes", "figure of the modes: .png, .pdf or .svg", suffixes=("",)),
        Argument("--draws", "compare", "thinned or all: which draws of gibbs and nuts to write (default: thinned, at "
                 "most 2.5 MB a method)", "thinned", read=word_of(("thinned", "all"))),
    ),
    "printing": (
        flag("--json", EVERY, "print one JSON object instead of text"),
        flag("--quiet", EVERY, "no progress on standard error (without it: in a terminal, after two seconds)"),
        flag("--verbose", "compare", "print all measures, and how they were made"),
    ),
}  # fmt: skip


def add_arguments(parser: ArgumentParser, command: str) -> None:
    """Add the arguments of a command to its parser."""
    for heading, arguments in ARGUMENTS.items():
        group = parser.add_argument_group(heading)
        for each in arguments:
            if command in each.commands.split():
                each.add_to(group)


def read_arguments(options: Namespace) -> Namespace:
    """Return the values of all arguments by name, None for those that are not given, and `outputs`.

    These are the paths of the files to write, by argument; what cannot be written is refused here, before the work.
    """
    every = [each for arguments in ARGUMENTS.values() for each in arguments]
    taken = [each for each in every if options.command in each.commands.split()]
    args = Namespace(**{each.key: None for each in every}, outputs={})
    for each in taken:
        text = getattr(options, each.key)
        setattr(args, each.key, text if text is None else each.read(text, each.name))
    named = [getattr(args, each.key) for each in taken if each.source]
    paths = [path for each in named if each for path in ([each] if isinstance(each, str) else each.values())]
    sources = {Path(path).resolve() for path in paths}
    for each in taken:
        if each.suffixes and getattr(args, each.key) is not None:
            args.outputs[each.name] = _check_output(each, getattr(args, each.key), args.outputs, sources)
    return args


def _check_output(argument: Argument, text: str, others: Mapping[str, Path], sources: set[Path]) -> Path:
    """Return the path of a file to write; refuse one that cannot be written, or would replace another."""
    name, suffixes, path = argument.name, argument.suffixes, Path(text)
    if not path.name.lower().endswith(suffixes):
        raise ValueError(f"{name} must end in one of {', '.join(suffixes)}: found {text}; change the file name")
    if path.suffix.lower() != ".zarr":
        check_file_to_write(path, name)
    if name == "--plot":
        check_plots_can_be_drawn()
    if path in others.values():
        raise ValueError(f"{name} must be a file of its own: found {text} twice; change one of the names")
    if path.exists() and {path.resolve(), path.resolve().parent} & sources:
        raise ValueError(f"{name} would replace {text}, which is read; change the name of the output")
    return path


# --- how arguments go together ------------------------------------------------------------------------


def noise_of(args: Namespace) -> Any:
    """Return the noise, with its dispersion if that is given, or the word of each of several matrices."""
    if args.dispersion is None:
        return args.noise
    if not isinstance(args.noise, str):
        raise ValueError("--dispersion must be that of one --noise: found several by name; leave it out")
    from bayesnmf.noise.abilities import Dispersed
    from bayesnmf.noise.words import NOISES

    noise = NOISES[args.noise]
    if not isinstance(noise, Dispersed):
        raise ValueError(f"--dispersion needs --noise nb1 or nb2: found --noise {args.noise}; leave it out")
    return noise.with_dispersion(args.dispersion)


def noise_to_draw(args: Namespace) -> Any:
    """Return the noise that counts are drawn with, whose dispersion must be given."""
    if args.noise != "poisson" and args.dispersion is None:
        raise ValueError(f"--noise {args.noise} needs --dispersion, a number of at least 0, such as --dispersion 0.5")
    return noise_of(args)


def priors_of(args: Namespace) -> Any:
    """Return the priors of both sides."""
    from bayesnmf.priors import Priors

    sides = {"loadings": args.prior_loadings, "components": args.prior_components}
    return Priors(**{side: each for side, each in sides.items() if each is not None})


def options_of(args: Namespace, method: str) -> Any:
    """Return the options of the method from priors, restarts, start and other settings."""
    from bayesnmf.options import METHODS as RECORDS

    kind = RECORDS[method].options
    settings = {"priors": priors_of(args), **read_settings(args.set or (), kind)}
    for name in ("restarts", "start"):
        value = getattr(args, name)
        if value is not None and name not in {each.name for each in fields(kind)}:
            raise ValueError(
                f"--{name} is no option of bayesnmf.{kind.__name__}; leave it out, or choose another --method"
            )
        if value is not None:
            settings[name] = value
    if Path(str(args.start)).suffix.lower() in FIT_SUFFIXES:
        from bayesnmf.fitting.loading import load_fit

        settings["start"] = load_fit(args.start)
    return kind(**settings)


def read_settings(texts: Sequence[str], kind: type[Any]) -> dict[str, Any]:
    """Return the options of a method that are given as NAME=VALUE; values are read as in Python, else as words."""
    names = [each.name for each in fields(kind) if each.name not in OWN_ARGUMENTS]
    found = {}
    for text in texts:
        name, equals, value = (each.strip() for each in text.partition("="))
        if name in OWN_ARGUMENTS:
            raise ValueError(f"--set cannot give {name}; use {OWN_ARGUMENTS[name]}")
        if not equals:
            raise ValueError(f"--set must be NAME=VALUE: found {shown(text)}; write for instance --set max_iter=500")
        setting = check_choice(name, f"--set of bayesnmf.{kind.__name__}", names)
        if setting in found:
            raise ValueError(f"--set must give each name once: found {setting} twice; leave one of them out")
        try:
            found[setting] = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            found[setting] = value
    return found


def check_fit_arguments(args: Namespace) -> None:
    """Refuse arguments of `bayesnmf fit` that need others: one file, or covariates."""
    table = args.missing not in (None, "nan", "zeros")
    for name, asked in (("--anndata", args.anndata), ("--missing with a table", table)):
        if asked and not isinstance(args.file, str):
            raise ValueError(
                f"{name} needs one FILE: found {len(args.file)} by name; leave it out, or ask for it in Python"
            )
    if args.effects and args.formula is None and args.covariates is None:
        raise ValueError("--effects needs covariates: give --formula and --covariates, or --covariates of numbers")
    check_markers_of_rank(args, args.rank)


def check_markers_of_rank(args: Namespace, rank: int | None) -> None:
    """Refuse markers of a single component; the rank is None if it is not known yet."""
    if args.markers and rank is not None and rank < 2:
        raise ValueError("--markers needs at least two components to compare: raise --rank, or leave --markers out")
