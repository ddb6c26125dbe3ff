"""Checks of what is given on the command line as text."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from bayesnmf.checks import check_choice, check_count, check_share, parse_int, shown
from bayesnmf.places import check_file_to_write, check_plots_can_be_drawn

FAMILIES = ("Gamma", "Dirichlet", "ScaledDirichlet", "HierarchicalGamma")
TABLE_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")
NOISES = ("poisson", "nb1", "nb2")  # that counts can be drawn with, and compared by
MOST_RANKS = 1000
OWN_SETTINGS = {"priors": "--prior-loadings and --prior-components", "start": "--start", "restarts": "--restarts"}


def check_whole(text: str | None, name: str, minimum: int = 1) -> int:
    """Return a whole number of at least `minimum`."""
    return check_count(parse_int(text or "", name), name, minimum=minimum)


def check_chance(text: str, name: str) -> float:
    """Return a number from 0 to 1."""
    try:
        return check_share(float(text), name)
    except ValueError as error:
        raise ValueError(f"{name} must be a number from 0 to 1: found {shown(text)}; write such as 0.9") from error


def check_drift(text: str | None) -> Any:
    """Return how many counts a catalogue weighs, or "learned", or None."""
    from bayesnmf.data.checks import check_drift

    try:
        return check_drift(text if text in (None, "learned") else float(text))
    except ValueError as error:
        raise ValueError(f"--drift must be learned, or a number of at least 1: found {shown(text)}") from error


def check_list(text: str, name: str, choices: Sequence[str]) -> list[str]:
    """Return the words of a list with commas between them."""
    return [check_choice(word.strip(), name, choices) for word in text.split(",")]


def check_ranks(text: str) -> list[int]:
    """Return the numbers in a list such as 2,4,8 or 2-8 or 2-6,10."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        low = check_whole(first, "--ranks")
        high = check_whole(last, "--ranks") if dash else low
        if high - low >= MOST_RANKS:
            raise ValueError(
                f"--ranks must have at most {MOST_RANKS:,} numbers: found {shown(part)}; give a smaller range"
            )
        found += range(low, high + 1)
    if not found:
        raise ValueError(f"--ranks must name at least one: found {shown(text)}; give some, such as 2-8 or 4,8,12")
    return found


def check_outputs(paths: dict[str, str | None], tables: Sequence[str], read: Sequence[str | None]) -> dict[str, Path]:
    """Return the paths of the files to write, by option; refuse those that cannot be written, before the work.

    Parameters
    ----------
    paths : dict of str
        Path of each option, or None.
    tables : sequence of str
        Options that write tables.
    read : sequence of str
        Files that the command reads, which must not be replaced.
    """
    found: dict[str, Path] = {}
    sources = {Path(each).resolve() for each in read if each is not None}
    for name, path in paths.items():
        if path is None:
            continue
        given = Path(path)
        if name in tables:
            check_suffix(given, name, TABLE_SUFFIXES)
        if given.suffix.lower() != ".zarr":
            check_file_to_write(given, name)
        if name == "--plot":
            check_plots_can_be_drawn()
        if given in found.values():
            raise ValueError(f"{name} must be a file of its own: found {path} twice; change one of the names")
        if given.exists() and {given.resolve(), given.resolve().parent} & sources:
            raise ValueError(f"{name} would replace {path}, which is read; change the name of the output")
        found[name] = given
    return found


def check_suffix(path: Path, name: str, suffixes: Sequence[str]) -> None:
    """Refuse a file name with another suffix."""
    if not path.name.lower().endswith(tuple(suffixes)):
        raise ValueError(f"{name} must end in one of {', '.join(suffixes)}: found {path}; change the file name")


def parse_prior(text: str | None, name: str) -> Any:
    """Return the prior written as in Python, such as Gamma(0.3, 1.0); None without one."""
    if text is None:
        return None
    if text == "parameter":
        return text
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, LookupError, TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be a prior such as 'Gamma(0.3, 1.0)', 'Dirichlet(0.1)' or parameter: found {shown(text)} "
            f"({_reason(error)}); the families are {', '.join(FAMILIES)}"
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


def _reason(error: Exception) -> str:
    return error.msg if isinstance(error, SyntaxError) else str(error)


def check_noise_of_simulation(word: str, dispersion: str | None) -> Any:
    """Return the noise with the dispersion that is given; refuse one without the other."""
    noise = check_noise_of_fit(word, dispersion, (), NOISES)
    if not noise.known:
        raise ValueError(f"--noise {word} needs --dispersion, a number of at least 0, such as --dispersion 0.5")
    return noise


def check_noise_of_fit(
    word: str, dispersion: str | None, words: Sequence[str] = ("row", "feature"), among: Sequence[str] = ()
) -> Any:
    """Return the noise, one of some or of all, with a dispersion that is a number or a word, if it is given."""
    from bayesnmf.noise.abilities import Dispersed
    from bayesnmf.noise.words import NOISES as CLASSES

    noise = CLASSES[check_choice(word, "--noise", tuple(among or CLASSES))]
    if dispersion is None:
        return noise
    if not isinstance(noise, Dispersed):
        raise ValueError(f"--dispersion needs --noise nb1 or nb2: found --noise {word}; leave it out")
    try:
        return noise.with_dispersion(dispersion if dispersion in words else float(dispersion))
    except ValueError as error:
        more = f", {' or '.join(words)}" if words else ""
        raise ValueError(f"--dispersion must be a number of at least 0{more}: found {shown(dispersion)}") from error


def files_of(words: Sequence[str]) -> str | dict[str, str]:
    """Return one FILE, or those of several matrices by name, given as NAME=FILE; a file may have a name with =."""
    if len(words) == 1 and ("=" not in words[0] or Path(words[0]).exists()):
        return words[0]
    return _by_name(words, "FILE")


def paths_of(files: str | dict[str, str]) -> list[str]:
    """Return the paths of files."""
    return [files] if isinstance(files, str) else list(files.values())


def parse_noise(word: str, dispersion: str | None) -> Any:
    """Return the noise, or that of each of several matrices, given as NAME=WORD with commas between them."""
    if "=" not in word:
        return check_noise_of_fit(word, dispersion)
    if dispersion is not None:
        raise ValueError("--dispersion must be that of one --noise: found several by name; leave it out")
    return {name: check_noise_of_fit(each, None) for name, each in _by_name(word.split(","), "--noise").items()}


def parse_weights(text: str | None) -> dict[str, float] | None:
    """Return how often the counts of matrices count, given as NAME=NUMBER with commas between them."""
    if text is None:
        return None
    try:
        return {name: float(each) for name, each in _by_name(text.split(","), "--weights").items()}
    except ValueError as error:
        raise ValueError(f"--weights must be NAME=NUMBER, as id=2,dbs=0.5: found {shown(text)}") from error


def check_one_file(file: str | dict[str, str], name: str, given: Any) -> None:
    """Refuse an option that goes with one FILE alone."""
    if not isinstance(file, str) and given is not None:
        raise ValueError(f"{name} needs one FILE: found {len(file)} by name; leave it out, or ask for it in Python")


def _by_name(words: Sequence[str], what: str) -> dict[str, str]:
    """Return what is given as NAME=VALUE."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.strip().partition("=")
        if not (name and equals and value) or name in found:
            raise ValueError(
                f"{what} must be one, or NAME={what.strip('-').upper()} for each of several matrices, with names that "
                f"differ: found {shown(word)}"
            )
        found[name] = value
    return found


def parse_settings(given: Sequence[str], kind: type[Any]) -> dict[str, Any]:
    """Return the options of a method that are given as NAME=VALUE; values are read as in Python, else as words."""
    names = [each.name for each in fields(kind) if each.name not in OWN_SETTINGS]
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if name.strip() in OWN_SETTINGS:
            raise ValueError(f"--set cannot give {name.strip()}; use {OWN_SETTINGS[name.strip()]}")
        if not equals:
            raise ValueError(f"--set must be NAME=VALUE: found {shown(text)}; write for instance --set max_iter=500")
        try:
            read = ast.literal_eval(value.strip())
        except (SyntaxError, ValueError):
            read = value.strip()
        setting = check_choice(name.strip(), f"--set of bayesnmf.{kind.__name__}", names)
        if setting in found:
            raise ValueError(f"--set must give each name once: found {setting} twice; leave one of them out")
        found[setting] = read
    return found


def check_has_option(name: str, kind: type[Any], given: Any) -> None:
    """Refuse an option that the method does not have."""
    if given is not None and name not in {each.name for each in fields(kind)}:
        raise ValueError(f"--{name} is no option of bayesnmf.{kind.__name__}; leave it out, or choose another --method")


def check_markers_of_rank(outputs: Iterable[str], rank: int | None) -> None:
    """Refuse markers of a single component; the rank is None if it is not known yet."""
    if rank is not None and rank < 2 and "--markers" in outputs:
        raise ValueError("--markers needs at least two components to compare: raise --rank, or leave --markers out")


def check_two_columns(table: Any, path: str, name: str) -> Any:
    """Return the second column of a table as a Series with the names in the first."""
    if table.shape[1] != 2:
        raise ValueError(
            f"{name} must be a table with a header line and two columns, of which the first has the names: found "
            f"{table.shape[1]} columns in {path}; rewrite the file"
        )
    return table.set_index(table.columns[0]).iloc[:, 0]


def check_effects_asked(asked: bool, options: Any) -> None:
    """Refuse a table of effects without covariates."""
    if asked and options.formula is None and options.covariates is None:
        raise ValueError("--effects needs covariates: give --formula and --covariates, or --covariates of numbers")


def check_has_columns(file: Any, name: str) -> None:
    """Refuse the name of a column of obs for a file that has none."""
    if not str(file).lower().endswith(".h5ad"):
        raise ValueError(f"{name} must be a table, .csv or .tsv, unless FILE is an .h5ad file with obs: found {file}")


def check_pair_of_numbers(text: str, name: str) -> tuple[int, int]:
    """Return two whole numbers with a comma between them."""
    one, comma, two = text.partition(",")
    if not comma:
        raise ValueError(f"{name} must be two whole numbers, such as 8,8: found {shown(text)}")
    return check_whole(one, name), check_whole(two, name)
