"""The section of known components on the page of a fit: which of a catalogue its components are."""

from __future__ import annotations

from bayesnmf.assessment.matching import Match
from bayesnmf.fitting.fitted import Fit
from bayesnmf.pages.parts import Number, Section, Table

COSINES = (
    "A cosine of 1 is the same profile. Flat profiles have large cosines with each other, whatever made them, so look "
    "at the profiles, too."
)
ENDS = "In brackets: 90 % of the draws, whose cosines are mostly below that of their mean, since each varies by itself."


def known_components(fit: Fit, known: Match) -> Section:
    """Return the known component that each component matches, with their cosines."""
    titles, rows = fit.component_titles, []
    for each in known.table.to_dict("records"):
        ends = [each["low"], each["high"]] if "low" in each else []
        told = f"{each['cosine']:.2f}{' [{:.2f}, {:.2f}]'.format(*ends) if ends else ''}"
        other = "" if each["closest"] == each["reference"] else f"{each['closest']} ({each['closest cosine']:.2f})"
        rows.append([titles[each["component"]], str(each["reference"]), Number(told, each["cosine"], *ends), other])
    text = [
        f"Components are matched one to one to those of the catalogue. {COSINES}",
        *([ENDS] if "low" in known.table else []),
        *([f"Without a match: {', '.join(titles[k] for k in known.unmatched)}."] if len(known.unmatched) else []),
        f"{len(known.leftover):,} of the catalogue are left over.",
    ]
    return Section(
        "Known components", text, tables=[Table(["component", "known as", "cosine", "closest, if another"], rows)]
    )
