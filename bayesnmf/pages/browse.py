"""`browse`: one HTML file in which a reader chooses components, and sees their features and samples."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from matplotlib.colors import to_hex

from bayesnmf.fitting.fitted import Fit
from bayesnmf.pages.checks import check_page, check_texts, check_title
from bayesnmf.pages.parts import Page, Table
from bayesnmf.pages.report import CONTROLS, render
from bayesnmf.pages.words import counted, model_in_words
from bayesnmf.plots.style import colours_of
from bayesnmf.results.checks import check_fit
from bayesnmf.results.intervals import for_intervals, told_of_intervals
from bayesnmf.results.shares import leading_rows, shares_of
from bayesnmf.results.topic_model import TopicModel, to_topic_model
from bayesnmf.types import Array
from bayesnmf.writing import write_text

ROWS, OTHERS, LEAST_OTHER = 10, 3, 0.02  # samples of a component; other components of a sample, and their least share
SEARCHED, KEPT, LEAST_KEPT = 60_000, 4, 0.05  # features to search for, and the components that each is shown in
TINY = np.finfo(float).tiny
BEFORE, WIDTH = 60, 200  # characters of a part, before its first word and in all
MOST = 2000  # words that are looked at in one text
LEVELS = 20  # settings of λ above 0
SHOWN = 30
UNIT = 10_000
PRINTED, MARKED = 15, 12  # features of a component in print, and the level of λ, 0.6, that print and snippets show


class Browsed(NamedTuple):
    """What a page is made of: the fit, its topic model, sizes and leading features of components, shares of rows."""

    fit: Fit
    model: TopicModel
    sizes: Array
    frequency: Array
    leading: list[Leading]
    shares: dict[str, Array]


def browse(fit: Fit, path: str | os.PathLike[str], *, texts: Any = None, title: str | None = None) -> Path:
    """Write one HTML file to browse the components of a fit, and return its path.

    The file needs no other file and no network. It lists the components by size. A chosen one shows its 30 leading
    features, by share, by lift or between (relevance; Sievert & Shirley 2014, *LDAvis: A Method for Visualizing and
    Interpreting Topics*) with a slider; the part of each feature's counts that is its own; and the samples that show
    it best (`Fit.top_rows`), with intervals, their other components, and features in context where `texts` are given.
    A search finds the components of a feature. Printed, or without JavaScript, it is a table of all components. Names
    and texts are shown as text, whatever characters they have.

    Parameters
    ----------
    fit : Fit
    path : path
        File to write, ``.html``; an older one is replaced.
    texts : list, mapping or Series of str, optional
        Text of each sample, in the order of the fit or by row name; None where there is none. Names of features are
        marked where they stand in it as whole words, in capital or small letters. The file has parts of the samples
        that it shows alone.
    title : str, optional
        Heading of the page.

    Returns
    -------
    Path

    Raises
    ------
    TypeError, ValueError
        Not a fit, texts that do not match, or a path that cannot be written.

    See Also
    --------
    report : A page about what was fitted, how well, and how to repeat it.
    to_pyldavis : The arguments of another browser, pyLDAvis.

    Examples
    --------
    >>> import bayesnmf, tempfile, pathlib
    >>> fit = bayesnmf.fit([[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]], rank=2, seed=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = bayesnmf.browse(fit, pathlib.Path(folder) / "components.html")
    ...     "component 0" in page.read_text(encoding="utf-8")
    True
    """
    check_fit(fit)
    target = check_page(path)
    heading = check_title(title)
    given = check_texts(texts, fit.row_names)
    write_text(target, _page(_read(fit), given, heading))
    return target


def _page(read: Browsed, texts: list[str | None] | None, title: str | None) -> str:
    fit, (n, m) = read.fit, read.fit.counts.shape
    number = f"{counted(fit.rank, 'component')} of {counted(n, 'sample')}"
    return render(
        Page(title or number, []),
        "browse",
        about=f"{number} and {counted(m, 'feature')}. {model_in_words(fit)}.",
        intervals=told_of_intervals(for_intervals(fit)).removeprefix("intervals: "),
        printed=_printed(read),
        data=_as_json(contents(read, texts)),
    )


def _read(fit: Fit) -> Browsed:
    model, sizes = to_topic_model(fit), fit.expected_sizes
    frequency = frequencies(model, sizes)
    found = [leading(shares, frequency) for shares in model.components]
    return Browsed(fit, model, sizes, frequency, found, shares_of(fit, np.arange(fit.counts.shape[0]), 0.9))


def contents(read: Browsed, texts: list[str | None] | None) -> dict[str, Any]:
    """Return the numbers and names of the page, as `browse.js` reads them."""
    fit, totals = read.fit, read.fit.counts.feature_totals
    most = np.argsort(-totals, kind="stable")[:SEARCHED]
    features = np.unique(np.concatenate([most, *(own.features for own in read.leading)]))
    rows = leading_rows(read.shares, fit.counts.row_totals, ROWS)
    return {
        "levels": LEVELS,
        "shown": SHOWN,
        "components": [
            _component(read, k, np.searchsorted(features, read.leading[k].features), rows[:, k], texts)
            for k in np.argsort(-read.sizes, kind="stable").tolist()
        ],
        "names": [_readable(str(name)) for name in fit.feature_names[features]],
        "counts": [_short(each) for each in totals[features].tolist()],
        "where": _where(read, features),
    }


def _component(read: Browsed, k: int, places: Array, rows: Array, texts: list[str | None] | None) -> dict[str, Any]:
    """Return one component, whose leading features have these places among the names of the page."""
    fit, own = read.fit, read.leading[k]
    marked = pattern_of(map(str, fit.feature_names[own.features[own.order(MARKED)]]))
    return {
        "number": k,
        "title": _readable(fit.component_titles[k]),
        "colour": to_hex(colours_of(fit.rank)[k]),
        "size": float(f"{read.sizes[k] / max(read.sizes.sum(), TINY):.6g}"),
        "features": places.tolist(),
        "weight": own.weight.tolist(),
        "lift": own.lift.tolist(),
        "rows": [
            _row(read, row, k) | {"parts": [] if texts is None else snippets(_readable(texts[row] or ""), marked)}
            for row in rows.tolist()
        ],
    }


def _row(read: Browsed, row: int, k: int) -> dict[str, Any]:
    """Return a sample: its name, counts, share of a component with limits, and its other leading components."""
    share, fit = read.shares["share"][row], read.fit
    others = [each for each in np.argsort(-share, kind="stable").tolist() if each != k and share[each] >= LEAST_OTHER]
    limits = {each: [_rounded(read.shares[name][row, each]) for name in read.shares] for each in [k, *others[:OTHERS]]}
    name, counts = _readable(str(fit.row_names[row])), _short(float(fit.counts.row_totals[row]))
    return {"name": name, "counts": counts, "share": limits.pop(k), "others": list(limits.items())}


def _where(read: Browsed, features: Array) -> list[list[int]]:
    """Return for each feature the components with most of its expected counts, and their percentages of these, in turn.

    They are up to `KEPT` components with at least 5 %.
    """
    sizes = read.sizes / max(read.sizes.sum(), TINY)
    parts = sizes[:, None] * read.model.components[:, features]
    parts /= np.maximum(read.frequency[features], TINY)
    leading_ones = np.argsort(-parts, axis=0, kind="stable")[:KEPT].T
    return [
        [number for k in own if part[k] >= LEAST_KEPT for number in (k, round(100 * part[k]))]
        for own, part in zip(leading_ones.tolist(), parts.T.tolist(), strict=True)
    ]


def _printed(read: Browsed) -> Table:
    """Return the table that is printed, and shown where no script runs."""
    rows = []
    for k in np.argsort(-read.sizes, kind="stable"):
        own, title = read.leading[k], read.fit.component_titles[k]
        names = (
            ", ".join(map(str, read.fit.feature_names[own.features[own.order(level)[:PRINTED]]]))
            for level in (LEVELS, MARKED)
        )
        rows.append([title, f"{read.sizes[k] / max(read.sizes.sum(), TINY):.1%}", *names])
    headings = ["component", "share of all counts", "largest shares", "more of their own (λ = 0.6)"]
    return Table(headings, rows, numeric=False)


def _readable(text: str) -> str:
    return text.translate(CONTROLS)


def _rounded(value: float) -> float | None:
    """Return a share with four decimals; None for NaN, which JSON does not have."""
    return None if np.isnan(value) else round(float(value), 4)


def _short(value: float) -> float:
    """Return a count: a whole number as it is, others with four digits."""
    return int(value) if value == int(value) else float(f"{value:.4g}")


def _as_json(values: dict[str, Any]) -> Markup:
    """Return JSON in which no character can end the element of the page that holds it."""
    return Markup(json.dumps(values, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"))


# --- features that lead a component at every relevance ------------------------------------------------
#
# The relevance of feature j in component k is λ log p_kj + (1 − λ) log(p_kj / p_j), where p_kj is the share of the
# feature in the expected counts of the component and p_j that in all expected counts (Sievert & Shirley 2014). Both
# logarithms are rounded to 10⁻⁴ and multiplied by 10⁴, and λ is l / 20. Relevances times 20 are then whole numbers,
# which are the same in Python and in a browser, and so is the order; features of one relevance are in the order of
# their share.


class Leading(NamedTuple):
    """Features that lead a component at some setting of λ, by share, and their logarithms of share and lift."""

    features: Array
    weight: Array
    lift: Array

    def order(self, level: int) -> Array:
        """Return the places of the `SHOWN` leading ones at λ = level / 20, as the page orders them."""
        score = level * self.weight + (LEVELS - level) * self.lift
        if len(score) > SHOWN:  # only those at or above the last that is shown are put in order
            chosen = np.flatnonzero(score >= np.partition(score, -SHOWN)[-SHOWN])
            return chosen[np.argsort(-score[chosen], kind="stable")][:SHOWN]
        return np.argsort(-score, kind="stable")


def frequencies(model: TopicModel, sizes: Array) -> Array:
    """Return the share of each feature in all expected counts, (m,), given those of each component, (K,)."""
    weights = sizes / sizes.sum() if sizes.sum() > 0 else np.full(len(sizes), 1 / len(sizes))
    return np.asarray(weights @ model.components)


def leading(shares: Array, frequency: Array) -> Leading:
    """Return the features that are among the first `SHOWN` of a component, with shares (m,), at any setting of λ."""
    order = np.argsort(-shares, kind="stable")
    order = order[(shares[order] > 0) & (frequency[order] > 0)]  # none of a component without counts
    weight = np.log(shares[order])
    both = (weight, weight - np.log(frequency[order]))
    whole = Leading(order, *(np.rint(UNIT * each).astype(np.int64) for each in both))
    places = np.unique(np.concatenate([whole.order(level) for level in range(LEVELS + 1)]))
    return Leading(*(each[places] for each in whole))


# --- words in context ---------------------------------------------------------------------------------


def pattern_of(words: Iterable[str]) -> re.Pattern[str]:
    """Return what finds any of some words, whole and in capital or small letters, with any white space within."""
    longest_first = sorted({word for word in words if word.strip()}, key=lambda word: -len(word))
    either = "|".join(r"\s+".join(map(re.escape, word.split())) for word in longest_first)
    return re.compile(rf"(?<!\w)(?:{either})(?!\w)" if either else r"(?!)", re.IGNORECASE)


def snippets(text: str, marked: re.Pattern[str], number: int = 3) -> list[list[str]]:
    """Return parts of a text with most different marked words, in the order of the text.

    Each is a list of pieces: plain and marked ones in turn, beginning with a plain one, which may be empty.
    """
    found = [each for each, _ in zip(marked.finditer(text), range(MOST), strict=False)]
    windows = []
    for place, first in enumerate(found):
        inside = [first]
        for other in found[place + 1 :]:
            if other.end() > first.start() + WIDTH - BEFORE:
                break
            inside.append(other)
        windows.append((-len({each.group().casefold() for each in inside}), first.start(), inside))
    chosen: list[list[re.Match[str]]] = []
    for _, _, inside in sorted(windows, key=lambda each: each[:2]):
        if len(chosen) == number:
            break
        if all(abs(inside[0].start() - other[0].start()) >= WIDTH for other in chosen):
            chosen.append(inside)
    return [_pieces(text, inside) for inside in sorted(chosen, key=lambda each: each[0].start())]


def _pieces(text: str, inside: list[re.Match[str]]) -> list[str]:
    first = max(inside[0].start() - BEFORE, 0)
    last = min(max(inside[-1].end(), first + WIDTH), len(text))
    first = first if first == 0 else text.find(" ", first, inside[0].start()) + 1 or inside[0].start()
    last = last if last == len(text) else max(text.rfind(" ", inside[-1].end(), last), inside[-1].end())
    pieces = []
    for each in inside:
        pieces += [text[first : each.start()], each.group()]
        first = each.end()
    return [_plain(piece) for piece in [*pieces, text[first:last]]]


def _plain(piece: str) -> str:
    """Return a piece with single spaces in place of line ends and other white space."""
    return re.sub(r"\s+", " ", piece)
