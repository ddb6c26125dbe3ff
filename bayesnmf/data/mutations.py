"""Names of mutation types: the classes of COSMIC v3, from substitutions to copy numbers, and how programs spell them.

Every list is in the order of COSMIC and SigProfiler, and in their spelling. Types may be told apart by strand as well:
``T:A[C>A]A`` is on the transcribed strand, U on the untranscribed one, N on neither, and B on both.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import cache
from itertools import product
from typing import Any, NamedTuple

BASES = "ACGT"
ARTEFACTS = frozenset(
    {27, 43, *range(45, 61), 95}
)  # numbers of signatures that COSMIC takes for artefacts of sequencing
# A doublet and its reverse complement are one type. Of a doublet that is its own reverse complement, COSMIC lists six
# replacements, one of each pair.
PALINDROMES = {
    "AT": ("CA", "CC", "CG", "GA", "GC", "TA"),
    "CG": ("AT", "GC", "GT", "TA", "TC", "TT"),
    "GC": ("AA", "AG", "AT", "CA", "CG", "TA"),
    "TA": ("AT", "CG", "CT", "GC", "GG", "GT"),
}
STRANDS = ("TU", "TUN", "TUBN")  # of SBS192, SBS288 and SBS384
_PLACES = {"R": "repeats", "M": "MH"}  # of indels, in PCAWG and ICAMS
DOUBLETS = ("AC", "AT", "CC", "CG", "CT", "GC", "TA", "TC", "TG", "TT")


type Spellings = dict[str, tuple[str, tuple[str, ...]]]  # a name, its spelling in COSMIC, and all types of its kind


class MutationTypes(NamedTuple):
    """Mutation types of one kind as names of rows or features, and all types of this kind."""

    names: list[str]
    kind: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        """Whether every type of the kind occurs exactly once."""
        return sorted(self.names) == sorted(self.kind)

    @property
    def repeated(self) -> str | None:
        """The first type that occurs more than once, or None."""
        return next((name for name, times in Counter(self.names).items() if times > 1), None)


@cache
def sbs96_types() -> tuple[str, ...]:
    """Return the 96 types of single base substitutions, by substitution, then by the base before and the base after."""
    return tuple(f"{before}[{change}]{after}" for change, before, after in _substitutions())


@cache
def sbs1536_types() -> tuple[str, ...]:
    """Return the 1536 types of single base substitutions with two bases on each side."""
    outer = [*product(BASES, BASES)]
    return tuple(
        f"{left}{before}[{change}]{after}{right}" for change, before, after in _substitutions() for left, right in outer
    )


@cache
def dbs78_types() -> tuple[str, ...]:
    """Return the 78 types of doublet base substitutions, in alphabetical order."""
    return tuple(f"{doublet}>{other}" for doublet in DOUBLETS for other in _replacements(doublet))


@cache
def id83_types() -> tuple[str, ...]:
    """Return the 83 types of insertions and deletions: of one base, in repeats, and with microhomology."""
    return tuple(f"{size}:{change}:{where}:{number}" for change, where, size, number in _indels())


@cache
def cn48_types() -> tuple[str, ...]:
    """Return the 48 types of segments: by heterozygosity, copy number and length."""
    lengths = ("0-100kb", "100kb-1Mb", "1Mb-10Mb", "10Mb-40Mb", ">40Mb")
    numbers = {"LOH": ("1", "2", "3-4", "5-8", "9+"), "het": ("2", "3-4", "5-8", "9+")}
    others = [(number, state, size) for state in numbers for number in numbers[state] for size in lengths]
    return tuple(map(":".join, [*product(("0",), ("homdel",), ("0-100kb", "100kb-1Mb", ">1Mb")), *others]))


@cache
def sv32_types() -> tuple[str, ...]:
    """Return the 32 types of structural variants: in clusters or not, by kind and length."""
    lengths = ("1-10Kb", "10-100Kb", "100Kb-1Mb", "1Mb-10Mb", ">10Mb")
    kinds = [*map("_".join, product(("del", "tds", "inv"), lengths)), "trans"]
    return tuple(map("_".join, product(("clustered", "non-clustered"), kinds)))


def read_types(names: Iterable[Any]) -> MutationTypes | None:
    """Return mutation types in the spelling of COSMIC, or None unless all names are types of one kind.

    Besides the spelling of COSMIC (``A[C>A]A``, ``AC>CA``, ``1:Del:C:0``), names may be spelled as by sigfit
    (``ACA>AAA``), musicatk (``C>A_ACA``), signeR (``C>A:ACA``), SomaticSignatures (``CA A.A``), MutationalPatterns
    (``AC_CA``, ``C_deletion_1``), PCAWG (``DEL_C_1_0``) and ICAMS (``DEL:C:1:0``, ``ACAA``, ``ACCA``), and
    substitutions in small letters. Strands are given as by SigProfiler (``T:A[C>A]A``), ICAMS (``T_C>A_ACA``) or
    MutationalPatterns (``A[C>A]A-transcribed``). All of them may be as R's make.names changes them in headers:
    ``A.C.A.A``, ``X1.Del.C.0``. Deletions may be counted from 1 to 6+, with the repeat that is deleted, as ICAMS does
    in figures.
    """
    listed = [*names]
    if (found := _read_as(_spellings(), listed)) is not None:
        return found
    others = (_read_as(spellings, listed) for spellings in _other_spellings())
    return next((each for each in others if each is not None and each.is_complete), None)


def _read_as(spellings: Spellings, names: list[Any]) -> MutationTypes | None:
    """Return mutation types in the spelling of COSMIC, or None unless all names are types of one kind so spelled."""
    types, kinds, strands = [], set(), set()
    for name in names:
        strand, spelled = strand_of(str(name))
        own, kind = spellings.get(spelled, ("", ()))
        if not own:
            return None
        types.append(f"{strand}:{own}" if strand else own)
        kinds.add(kind)
        strands.add(strand)
    if len(kinds) != 1 or ("" in strands and len(strands) > 1):
        return None
    kind = kinds.pop()
    listed = next((each for each in STRANDS if strands <= {*each}), "")
    return MutationTypes(types, tuple(f"{strand}:{own}" for strand in listed for own in kind) if listed else kind)


def is_artefact(name: Any) -> bool:
    """Return whether a signature of substitutions, as COSMIC names it, is one of the artefacts of sequencing."""
    number = re.match(r"SBS(\d+)(?![0-9A-Za-z])", str(name))
    return number is not None and int(number[1]) in ARTEFACTS


def strand_of(name: str) -> tuple[str, str]:
    """Return the letter of the strand in the name of a type, or "", and the rest of the name."""
    if name in _spellings():  # T_deletion_1 has no strand
        return "", name
    rest, _, strand = name.rpartition("-" if "-" in name else ".")  # as R writes it
    if letter := {"transcribed": "T", "untranscribed": "U"}.get(strand, ""):
        return letter, rest
    return (name[0], name[2:]) if name[1:2] in (":", "_", ".") and name[0] in STRANDS[-1] else ("", name)


@cache
def _spellings() -> Spellings:
    """Return the spelling of COSMIC and the kind for every known spelling of a type."""
    found: Spellings = {}
    unclear: Spellings = {}  # those that make.names would make equal to others
    for kind in (sbs96_types(), sbs1536_types()):
        for name in kind:
            before, old, new, after = re.split(r"[\[>\]]", name)
            change, whole = f"{old}>{new}", f"{before}{old}{after}"
            found |= dict.fromkeys(
                (
                    name, name.lower(), f"{before}({change}){after}", f"{before}[{old}->{new}]{after}",
                    f"{whole}>{before}{new}{after}", f"{change}_{whole}", f"{change}:{whole}", f"{whole}:{change}",
                    f"{old}{new} {before}.{after}",
                ),
                (name, kind),
            )  # fmt: skip
            unclear[f"{change} {before}.{after}"] = name, kind
    for name in dbs78_types():
        found |= dict.fromkeys((name, name.replace(">", "_")), (name, dbs78_types()))
    for kind in (cn48_types(), sv32_types()):
        found |= {name: (name, kind) for name in kind}
    for name, indel in zip(id83_types(), _indels(), strict=True):
        change, where, size, number = indel
        labels = (change.upper(), _PLACES.get(where, where), _open(size), _open(number))
        found |= dict.fromkeys((name, "_".join(labels), ":".join(labels), _plainly(*indel)), (name, id83_types()))
    return _as_in_r(found) | unclear | found


def _as_in_r(spellings: Spellings) -> Spellings:
    """Return spellings as R's make.names writes them in headers: ``A.C.A.A``, ``X1.Del.C.0``."""
    dotted = ((re.sub(r"[^A-Za-z0-9._]", ".", spelled), own) for spelled, own in spellings.items())
    return {(spelled if spelled[0].isalpha() else f"X{spelled}"): own for spelled, own in dotted}


@cache
def _other_spellings() -> tuple[Spellings, ...]:
    """Return spellings whose names may also mean something else, and so are read only if all types are there."""
    substitutions: Spellings = {}
    for kind in (sbs96_types(), sbs1536_types()):
        for name in kind:
            before, old, new, after = re.split(r"[\[>\]]", name)
            substitutions[before + old + after + new] = name, kind
    doublets: Spellings = {name.replace(">", ""): (name, dbs78_types()) for name in dbs78_types()}
    counted_from_one: Spellings = {}
    for name, (change, where, size, number) in zip(id83_types(), _indels(), strict=True):
        shown = number_with_the_deleted(change, where, number)
        labels = (change.upper(), _PLACES.get(where, where), _open(size), shown)
        counted_from_one |= dict.fromkeys(("_".join(labels), ":".join(labels)), (name, id83_types()))
    return substitutions, doublets, _as_in_r(counted_from_one) | counted_from_one


def _plainly(change: str, where: str, size: int, number: int) -> str:
    """Return the name of an indel in MutationalPatterns, which counts the repeat that is deleted as well."""
    what = where if where in BASES else f"{_open(size)}bp"
    word = {"Del": "deletion", "Ins": "insertion"}[change] + "_with_microhomology" * (where == "M")
    return f"{what}_{word}_{number_with_the_deleted(change, where, number)}"


def number_with_the_deleted(change: str, where: str, number: int) -> str:
    """Return the number of an indel, in which repeats include the one that is deleted."""
    if change == "Ins" or where == "M":
        return _open(number)
    return "6+" if number == 5 else str(number + 1)


def _open(number: int) -> str:
    return "5+" if number == 5 else str(number)


def _substitutions() -> list[tuple[str, ...]]:
    return [*product(("C>A", "C>G", "C>T", "T>A", "T>C", "T>G"), BASES, BASES)]


def _replacements(doublet: str) -> Iterable[str]:
    if doublet in PALINDROMES:
        return PALINDROMES[doublet]
    first, second = ([base for base in BASES if base != old] for old in doublet)
    return map("".join, product(first, second))


def _indels() -> list[tuple[str, str, int, int]]:
    """Return change, place, size and number: of repeats beside the indel, or of bases of microhomology."""
    single = [(change, base, 1, number) for change, base, number in product(("Del", "Ins"), "CT", range(6))]
    longer = [(change, "R", size, number) for change, size, number in product(("Del", "Ins"), range(2, 6), range(6))]
    homology = [("Del", "M", size, number) for size in range(2, 6) for number in range(1, 6 if size == 5 else size)]
    return single + longer + homology
