"""`report`: one HTML file about a fit or a comparison, for readers without Python."""

from __future__ import annotations

import os
import platform
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

import bayesnmf
from bayesnmf.assessment.matching import Match
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.job import ProgressReport, progress_context
from bayesnmf.needs import needed_for
from bayesnmf.pages.checks import check_page, check_source, check_title
from bayesnmf.pages.of_fit import page_of_fit
from bayesnmf.pages.parts import Page, Section, Table, as_number, picture_of, png_of
from bayesnmf.pages.reading import Given
from bayesnmf.pages.words import WORDS, model_in_words, references_of, say, terms_in
from bayesnmf.studies.comparison.comparing import SHORT, Comparison, figures_of, finding, measured, notes
from bayesnmf.studies.comparison.measures import MEASURES, reference_of
from bayesnmf.studies.selection.selecting import Selection
from bayesnmf.studies.stability.modes import Modes
from bayesnmf.writing import write_text

SCRIPTS = {"page": ("tables", "pictures"), "browse": ("browse",)}
CONTROLS = {code: "\ufffd" for code in [*range(32), *range(127, 160)] if chr(code) not in "\t\n\r"}


def report(
    source: Fit | Comparison,
    path: str | os.PathLike[str],
    *,
    groups: Any = None,
    title: str | None = None,
    image_shape: tuple[int, int] | None = None,
    known: Match | None = None,
    selection: Selection | None = None,
    modes: Modes | None = None,
    progress: ProgressReport | bool | None = None,
) -> Path:
    """Write one HTML file about a fit or a comparison, and return its path.

    The file needs no other file and no network. Of a fit, it first says what was found, what failed and what may be
    trusted. It shows the composition of every sample, the components with intervals and what sets each apart,
    convergence, uncertainty, predictive checks by 50 replicates, methods for a paper, settings, what to cite, and a
    glossary. Tables can be sorted, filtered and downloaded. Names are shown as text, whatever characters they have.

    Parameters
    ----------
    source : Fit or Comparison
        Result of `bayesnmf.fit`, `bayesnmf.load` or `bayesnmf.compare`.
    path : path
        File to write, ``.html``; an older one is replaced.
    groups : array-like (n,), mapping or Series, optional
        Group of each sample, as for `bayesnmf.plots.structure`; fits only. A DataWarning and the page say how many
        samples have none.
    title : str, optional
        Heading of the page.
    image_shape : tuple of int, optional
        Height and width, if the features are pixels.
    known : Match, optional
        ``bayesnmf.match(fit, catalogue)``: names and cosines of known components; fits only.
    selection : Selection, optional
        Result of `bayesnmf.select`: what it prefers, and its scores; fits only.
    modes : Modes, optional
        Result of `bayesnmf.modes`: in how many fits from other starts each component comes back; fits only.
    progress : bool or callable, optional
        Progress report, as for `bayesnmf.fit`.

    Returns
    -------
    Path

    Raises
    ------
    TypeError, ValueError
        Neither a fit nor a comparison, something of another fit, or a path that cannot be written.

    See Also
    --------
    browse : A page to look through components, their features and samples.

    Examples
    --------
    >>> import bayesnmf, tempfile
    >>> fit = bayesnmf.fit([[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]], rank=2, seed=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bayesnmf.report(fit, f"{folder}/report.html").name
    'report.html'
    """
    target = check_page(path)
    given, heading = Given(groups, image_shape, known, selection, modes), check_title(title)
    check_source(source, (Fit, Comparison), given)
    with progress_context(progress) as told:
        if isinstance(source, Fit):
            page = page_of_fit(source, given, told)
        else:
            page = page_of_comparison(source, image_shape, told)
    write_text(target, render(with_glossary(replace(page, title=heading or page.title))))
    return target


def render(page: Page, name: str = "page", **more: Any) -> str:
    """Return a page, by default of a fit; every text that it is given is escaped.

    A browser runs no script but that of the page.
    """
    with needed_for("a page"):
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("bayesnmf.pages", ""), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        finalize=_without_controls,
    )  # fmt: skip
    own = files("bayesnmf.pages")
    script = "".join(own.joinpath(f"{each}.js").read_text(encoding="utf-8") for each in ("made", *SCRIPTS[name]))
    return environment.get_template(f"{name}.html").render(
        title=page.title,
        page=page,
        made=f"bayesnmf {bayesnmf.__version__}, Python {platform.python_version()}, {date.today().isoformat()}",
        style=Markup(own.joinpath("page.css").read_text(encoding="utf-8")),
        script=Markup(script),
        digest=b64encode(sha256(script.encode()).digest()).decode(),
        **more,
    )


def with_glossary(page: Page) -> Page:
    """Return the page with the terms that it uses, explained."""
    said = [*(each for pair in page.sentences for each in pair), *page.cautions, *(s.words for s in page.sections)]
    terms = terms_in("\n".join([*said, *(each for tile in page.tiles for each in tile)]))
    return replace(page, sections=[*page.sections, Section("Glossary", terms=terms)])


def _without_controls(value: Any) -> Any:
    """Return text with signs in place of control characters, which no page may have; names may contain some."""
    return type(value)(value.translate(CONTROLS)) if isinstance(value, str) else value


def report_of_files(comparison: Comparison, path: Path, written: Sequence[Path]) -> Path:
    """Write the page of a comparison with the figures that have been written to files, so that none is drawn again."""
    kept = {each.stem: each.read_bytes() for each in written if each.suffix == ".png"}
    write_text(path, render(with_glossary(page_of_comparison(comparison, None, lambda *_: None, kept))))
    return path


def page_of_comparison(
    comparison: Comparison,
    image_shape: tuple[int, int] | None,
    told: ProgressReport,
    kept: Mapping[str, bytes] = MappingProxyType({}),
) -> Page:
    """Return the page; figures that are kept are not drawn."""
    fits = comparison.fits
    first = next(iter(fits.values()))
    n, m = comparison.split.train.shape
    pictures: dict[str, Callable[[], Any]] = figures_of(comparison, image_shape)
    made = []
    for done, (name, draw) in enumerate(pictures.items()):
        told("report", done, len(pictures), np.nan)
        content = kept[name] if name in kept else png_of(draw)
        made.append(picture_of(content, say(f"pictures.{name if name in WORDS['pictures'] else 'chains'}")))
    told("report", len(pictures), len(pictures), np.nan)
    rows = [
        ["counts", f"{n:,} samples × {m:,} features to train on"],
        ["model", model_in_words(first)],
        ["components", str(first.rank)],
        *([name, say(f"methods.{fit.method}.told")] for name, fit in fits.items()),
    ]
    plain = [line for line in notes(comparison) if not line.startswith("CAUTION ")]
    short, every = (
        Table(["", *fits], [[name, *map(as_number, values)] for name, *values in measured(comparison, chosen)])
        for chosen in (SHORT, tuple(MEASURES))
    )
    sections = [
        Section("The methods side by side", tables=[short]),
        Section("What was compared", tables=[Table(["", ""], rows, numeric=False)]),
        Section("Figures", figures=made),
        Section("All measures", plain, tables=[every]),
        Section("How to cite", references=references_of(first.model, [fit.method for fit in fits.values()])),
    ]
    title = f"{', '.join(fits)}: {first.rank} components of {n:,} samples"
    found = " ".join(finding(comparison.table, reference_of(comparison.fits)))
    return Page(title, sections, [("Found", found)] if found else [], cautions=comparison.cautions)
