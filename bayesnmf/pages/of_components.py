"""The sections of the components on the page of a fit: their pictures, and what sets each apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.colors import to_hex

from bayesnmf import plots
from bayesnmf.assessment.markers import markers
from bayesnmf.assessment.matching import Match
from bayesnmf.data.mutations import read_types
from bayesnmf.data.several import SeveralCounts
from bayesnmf.fitting.fitted import Fit
from bayesnmf.pages.of_matrices import shared_among_matrices
from bayesnmf.pages.parts import Card, Figure, Section, Table, drawn
from bayesnmf.pages.words import MARKERS
from bayesnmf.plots.style import colours_of_leading, leading

DRAWS, MARKED = 200, 10


def components_of_matrices(fit: Fit, image_shape: tuple[int, int] | None, known: Match | None) -> list[Section]:
    """Return the components: of several matrices, a section for each, after how counts are shared among them."""
    if not isinstance(fit.counts, SeveralCounts):
        return [components(fit, image_shape, known)]
    own = ((name, components(fit.matrix(name), image_shape, known)) for name in fit.counts.matrices.names)
    return [
        shared_among_matrices(fit),
        *(replace(section, heading=f"{section.heading}: {name}") for name, section in own),
    ]


def components(fit: Fit, image_shape: tuple[int, int] | None, known: Match | None = None) -> Section:
    """Return the leading features of each component, with intervals, and what sets each apart."""
    text = [
        "Each component is a distribution over the features. Bars are shares of the component; lines are intervals."
    ]
    picture = _picture(fit, image_shape, known)
    if fit.rank == 1:
        return Section("Components", text, figures=[picture])
    table = markers(fit, MARKED, draws=DRAWS)
    cards = []
    colours = colours_of_leading(fit.rank, leading(fit.expected_sizes, None))  # as in the structure plot
    for label, title, colour in zip(fit.component_labels, fit.component_titles, colours, strict=True):
        part = table[table["component"] == label]
        higher = part[part["lfc_next"] > 0]
        if not len(part):
            cards.append(Card(title, to_hex(colour), "carries nothing of its own"))
        elif len(higher):
            cards.append(Card(title, to_hex(colour), "features that set it apart most surely", _marker_table(higher)))
        else:
            cards.append(Card(title, to_hex(colour), "no feature has its largest share in this component"))
    return Section("Components", [*text, MARKERS], cautions=table.attrs["cautions"], cards=cards, figures=[picture])


def _picture(fit: Fit, image_shape: tuple[int, int] | None, known: Match | None) -> Figure:
    if image_shape is not None:
        return drawn(lambda: plots.components(fit, image_shape=image_shape), "The components as images.")
    types = read_types(fit.feature_names)
    if types is not None and types.is_complete:
        return drawn(lambda: plots.signatures(fit, known), "The shares of all mutation types in each component.")
    return drawn(
        lambda: plots.components(fit), "The leading features of each component: common in it and rarer in the others."
    )


def _marker_table(part: Any) -> Table:
    rows = []
    for each in part.itertuples():
        change = f"{each.lfc_next:.1f}"
        if not np.isnan(each.lfc_next_low):
            change += f" [{each.lfc_next_low:.1f}, {each.lfc_next_high:.1f}]"
        rate = "–" if np.isnan(each.lfsr_next) else f"{each.lfsr_next:.3f}" if each.lfsr_next else f"< {1 / DRAWS:.3f}"
        rows.append([str(each.feature), f"{each.weight:.2%}", f"{each.lift:.3g}", change, rate])
    return Table(["feature", "share", "lift", "log2 change", "lfsr"], rows)
