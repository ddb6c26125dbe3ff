"""The sections of the page of a comparison."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bayesnmf.fitting.progress import ProgressReport
from bayesnmf.pages.parts import Section, Table, drawn
from bayesnmf.pages.references import references_of
from bayesnmf.pages.words import METHODS, MODELS
from bayesnmf.studies.comparison.report import Comparison, figures_of, measured, notes

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
    plain = [line for line in notes(comparison) if not line.startswith("CAUTION ")]
    sections = [
        Section("What was compared", cautions=comparison.cautions, tables=[Table(["", ""], rows, numeric=False)]),
        Section("The methods side by side", plain, tables=[Table(["", *fits], measured(comparison))]),
        Section("Figures", figures=made),
        Section("How to cite", references=references_of(first.model, [fit.method for fit in fits.values()])),
    ]
    return f"{', '.join(fits)}: {first.rank} components of {n:,} samples", sections
