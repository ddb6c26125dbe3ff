"""What a panel of mutation types looks like: the bars of each kind, in the order and the colours of COSMIC.

Orders and colours are those of SigProfilerPlotting 1.4.3, which draws the figures of COSMIC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any, NamedTuple

from bayesnmf.data.mutations import (
    cn48_types,
    dbs78_types,
    id83_types,
    number_with_the_deleted,
    sbs96_types,
    sbs1536_types,
    strand_of,
    sv32_types,
)


class Bar(NamedTuple):
    """What is written around one bar; neighbours with the same heading, strip or name share it."""

    heading: str
    strip: str
    name: str
    colour: str
    below: str = ""


class Kind(NamedTuple):
    """How bars of a kind of types are drawn. `every`: 2 if every second bar is named, from the last below a heading."""

    bar: Callable[[str], Bar]
    label: str
    every: int = 1
    turned: bool = False
    staggered: bool = False
    outlined: bool = False


class Layout(NamedTuple):
    """Bars of the features of a fit: what they show, and the positions of their features, by strand."""

    kind: Kind
    bars: list[Bar]
    members: dict[str, list[list[int]]]
    note: str


STRANDS = {
    "T": ("transcribed", "#014666"),
    "U": ("untranscribed", "#E42926"),
    "N": ("not transcribed", "#008000"),
    "B": ("both", "#999999"),
}
SUBSTITUTIONS = {"C>A": "#03BCEE", "C>G": "#010101", "C>T": "#E32926", "T>A": "#CAC9C9", "T>C": "#A1CE63",
                 "T>G": "#EBC6C4"}  # fmt: skip
DOUBLETS = {"AC": "#03BDEF", "AT": "#0366CC", "CC": "#A2CF63", "CG": "#016601", "CT": "#FF9999", "GC": "#E42926",
            "TA": "#FFB266", "TC": "#FF8001", "TG": "#CC99FF", "TT": "#4C0199"}  # fmt: skip
INDELS = {
    "DelC": "#FDBE6F", "DelT": "#FF8002", "InsC": "#B0DD8B", "InsT": "#36A12E",
    "DelR2": "#FDCAB5", "DelR3": "#FC8A6A", "DelR4": "#F14432", "DelR5": "#BC191A",
    "InsR2": "#D0E1F2", "InsR3": "#94C4DF", "InsR4": "#4A98C9", "InsR5": "#1764AB",
    "DelM2": "#E2E2EF", "DelM3": "#B6B6D8", "DelM4": "#8683BD", "DelM5": "#62409B",
}  # fmt: skip
SEGMENTS = {
    "0": ("#F0F8FF", "#787CE6", "#0000CD"),
    "1": ("#EBEBEB", "#C5C5C5", "#9F9F9F", "#797979", "#545454"),
    "2": ("#F5FFFA", "#C0E2C3", "#8BC48E", "#56A858", "#228B22"),
    "3-4": ("#FFF0F5", "#DEBDEB", "#BE8BE1", "#9D58D7", "#7D26CD"),
    "5-8": ("#FFFAF0", "#F2DCB3", "#E6BF78", "#D9A23C", "#CD8500"),
    "9+": ("#FFE4E1", "#E2ADBC", "#C47798", "#A84074", "#8B0A50"),
}
VARIANTS = {
    "del": ("#FFF0F5", "#FFB6C1", "#DB7093", "#FF69B4", "#FF1493"),
    "tds": ("#FAF0E6", "#F4A460", "#CD853F", "#A0522D", "#8B4513"),
    "inv": ("#D8BFD8", "#DDA0DD", "#BA55D3", "#8A2BE2", "#663399"),
    "trans": ("#696969",),
}
STATES = {"homdel": "deleted", "LOH": "LOH", "het": "heterozygous"}
LENGTHS = ("0-100kb", "100kb-1Mb", "1Mb-10Mb", "10Mb-40Mb", ">40Mb")
SPANS = ("1-10Kb", "10-100Kb", "100Kb-1Mb", "1Mb-10Mb", ">10Mb")


def _substitution(name: str) -> Bar:
    change = name[2:5]
    return Bar("", change, name[0], SUBSTITUTIONS[change])


def _doublet(name: str) -> Bar:
    return Bar("", f"{name[:2]}>NN", name[3:], DOUBLETS[name[:2]])


def _indel(name: str) -> Bar:
    size, change, where, number = name.split(":")
    word = {"Del": "deletion", "Ins": "insertion"}[change]
    longer = size if size != "5" else "5+"
    shown = number_with_the_deleted(change, where, int(number))
    if where == "M":
        return Bar("microhomology", longer, shown, INDELS[f"DelM{size}"], "its length")
    if where == "R":
        return Bar(f">1 bp {word} at repeats", longer, shown, INDELS[f"{change}R{size}"], "repeat units")
    return Bar(f"1 bp {word}", where, shown, INDELS[change + where], "homopolymer")


def _segment(name: str) -> Bar:
    number, state, length = name.split(":")
    place = 2 if length == ">1Mb" else LENGTHS.index(length)
    return Bar(STATES[state], number, length, SEGMENTS[number][place])


def _variant(name: str) -> Bar:
    clustered, kind, *length = name.split("_")
    place = SPANS.index(length[0]) if length else 0
    return Bar(clustered, kind if length else "", length[0] if length else "translocation", VARIANTS[kind][place])


KINDS = {
    sbs96_types: Kind(_substitution, "base before the mutated one; of its four bars, the base after it is A, C, G, T"),
    dbs78_types: Kind(_doublet, "doublet that replaces it", staggered=True),
    id83_types: Kind(_indel, "length of the homopolymer, number of repeat units, or length of microhomology; every "
                     "second bar is named", every=2),
    cn48_types: Kind(_segment, "length of the segment", turned=True, outlined=True),
    sv32_types: Kind(_variant, "length of the variant", turned=True, outlined=True),
}  # fmt: skip


def lay_out(names: Iterable[str]) -> Layout:
    """Return the bars of all mutation types of one kind, named as in COSMIC."""
    parts = [strand_of(name) for name in names]
    is_wider = {name for _, name in parts} == {*sbs1536_types()}
    own = [name[1:-1] if is_wider else name for _, name in parts]
    types, kind = next((types(), kind) for types, kind in KINDS.items() if {*types()} == {*own})
    found: dict[tuple[str, str], list[int]] = {}
    for position, ((strand, _), name) in enumerate(zip(parts, own, strict=True)):
        found.setdefault((strand, name), []).append(position)
    strands = [strand for strand in ("", *STRANDS) if (strand, types[0]) in found]
    members = {strand: [found[strand, name] for name in types] for strand in strands}
    note = "; summed over the outer bases" if is_wider else ""
    return Layout(kind, [*map(kind.bar, types)], members, note)


def runs(values: Iterable[Any]) -> list[tuple[int, int, Any]]:
    """Return where each run of equal values begins and ends, and its value."""
    found, start = [], 0
    for value, group in groupby(values):
        end = start + len([*group])
        found.append((start, end, value))
        start = end
    return found
