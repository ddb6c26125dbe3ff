"""`report`: one HTML file about a fit or a comparison, for readers without Python."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

import bayesnmf
from bayesnmf.assessment.matching import Match
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.job import ProgressReport, progress_context
from bayesnmf.needs import needed_for
from bayesnmf.pages.checks import check_page, check_source, check_title
from bayesnmf.pages.of_fit import sections_of_fit
from bayesnmf.pages.parts import Section, Table, drawn
from bayesnmf.pages.references import references_of
from bayesnmf.pages.words import METHODS, MODELS
from bayesnmf.results.checks import check_groups
from bayesnmf.studies.comparison.finding import finding
from bayesnmf.studies.comparison.measures import reference_of
from bayesnmf.studies.comparison.report import Comparison, figures_of, measured, notes
from bayesnmf.writing import write_text

CONTROLS = {code: "\ufffd" for code in [*range(32), *range(127, 160)] if chr(code) not in "\t\n\r"}


def report(
    source: Fit | Comparison,
    path: str | os.PathLike[str],
    *,
    groups: Any = None,
    title: str | None = None,
    image_shape: tuple[int, int] | None = None,
    known: Match | None = None,
    progress: ProgressReport | bool = False,
) -> Path:
    """Write one HTML file about a fit or a comparison, and return its path.

    The file needs no other file and no network. It shows what was fitted, cautions, the composition of every sample,
    the components with intervals and what sets each apart, convergence, uncertainty, predictive checks by 50
    replicates, the settings, and what to cite. Names of samples, features and components are shown as text, whatever
    characters they have.

    Parameters
    ----------
    source : Fit or Comparison
        Result of `bayesnmf.fit`, `bayesnmf.load` or `bayesnmf.compare`.
    path : path
        File to write, ``.html``; an older one is replaced.
    groups : array-like (n,), mapping or Series, optional
        Group of each sample, as for `bayesnmf.plots.structure`; fits only. Samples with None or NaN are left out of
        what is shown by group; a DataWarning and the page say how many.
    title : str, optional
        Heading of the page.
    image_shape : tuple of int, optional
        Height and width, if the features are pixels.
    known : Match, optional
        ``bayesnmf.match(fit, catalogue)``: a table of the known components and their cosines, and their names in the
        panels of signatures; fits only.
    progress : bool or callable
        Progress report, as for `bayesnmf.fit`.

    Returns
    -------
    Path

    Raises
    ------
    TypeError, ValueError
        Neither a fit nor a comparison, groups or a match that do not belong to it, or a path that cannot be written.

    See Also
    --------
    browse : one page to look through many components.

    Examples
    --------
    >>> import bayesnmf, tempfile, pathlib
    >>> fit = bayesnmf.fit([[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]], rank=2, seed=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = bayesnmf.report(fit, pathlib.Path(folder) / "report.html")
    ...     "component 0" in page.read_text(encoding="utf-8")
    True
    """
    target = check_page(path)
    check_source(source, (Fit, Comparison), groups, known)
    heading = check_title(title)
    if isinstance(source, Fit) and groups is not None:
        groups = check_groups(groups, source.row_names)
    with progress_context(progress) as told:
        if isinstance(source, Fit):
            default, sections = sections_of_fit(source, groups, image_shape, known, told)
        else:
            default, sections = sections_of_comparison(source, image_shape, told)
    write_text(target, render(heading or default, sections))
    return target


def render(title: str, sections: list[Section], template: str = "page.html", **more: Any) -> str:
    """Return the page, by default of a fit; every text that it is given is escaped."""
    with needed_for("a page"):
        from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("bayesnmf.pages", ""), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        finalize=_without_controls,
    )  # fmt: skip
    made = f"bayesnmf {bayesnmf.__version__}, Python {platform.python_version()}, {date.today().isoformat()}"
    return environment.get_template(template).render(title=title, sections=sections, made=made, **more)


def _without_controls(value: Any) -> Any:
    """Return text with signs in place of control characters, which no page may have; names may contain some."""
    return type(value)(value.translate(CONTROLS)) if isinstance(value, str) else value


DESCRIPTIONS = {
    "components": "The components of every method, matched.",
    "objectives": "The objective of each method by iteration.",
    "agreement": "Cosines and correlations between the methods.",
    "loadings_intervals": "Posterior medians and intervals of the loadings of some samples, by method.",
}
CHAINS = "Traces and rank histograms of the chains of a sampler."


def sections_of_comparison(
    comparison: Comparison, image_shape: tuple[int, int] | None, told: ProgressReport
) -> tuple[str, list[Section]]:
    """Return the heading and the sections."""
    fits = comparison.fits
    first = next(iter(fits.values()))
    n, m = comparison.split.train.shape
    pictures: dict[str, Callable[[], Any]] = figures_of(comparison, image_shape)
    made = []
    for done, (name, draw) in enumerate(pictures.items()):
        told("report", done, len(pictures), np.nan)
        made.append(drawn(draw, DESCRIPTIONS.get(name, CHAINS)))
    told("report", len(pictures), len(pictures), np.nan)
    rows = [
        ["counts", f"{n:,} samples × {m:,} features to train on"],
        ["model", MODELS[first.model]],
        ["components", str(first.rank)],
        *([name, METHODS[fit.method]] for name, fit in fits.items()),
    ]
    found = finding(comparison.table, reference_of(comparison.fits))
    plain = [*found, *(line for line in notes(comparison) if not line.startswith("CAUTION "))]
    sections = [
        Section("What was compared", cautions=comparison.cautions, tables=[Table(["", ""], rows, numeric=False)]),
        Section("The methods side by side", plain, tables=[Table(["", *fits], measured(comparison))]),
        Section("Figures", figures=made),
        Section("How to cite", references=references_of(first.model, [fit.method for fit in fits.values()])),
    ]
    return f"{', '.join(fits)}: {first.rank} components of {n:,} samples", sections
