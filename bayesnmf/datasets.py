"""Counts that need no download, and real data sets by name.

In images, a row is an image and a column is a pixel, so a fitted component can be shown as
``component.reshape(DIGITS_IMAGE)`` or ``component.reshape(SWIMMER_IMAGE)``.
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.checks import check_positive
from bayesnmf.data.conversion import as_counts
from bayesnmf.data.counts import Counts
from bayesnmf.data.files import read_counts
from bayesnmf.data.mutations import sbs96_types
from bayesnmf.data.real import RealCounts, real
from bayesnmf.needs import needed_for

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "DIGITS_IMAGE", "SWIMMER_IMAGE", "RealCounts", "cells", "digits", "mutation_spectra", "mutations", "real",
    "swimmer", "swimmer_parts", "texts",
]  # fmt: skip

SHIPPED = Path(__file__).parent / "data" / "shipped"  # `python -m benchmarks.shipped` writes it
DIGITS_IMAGE = (8, 8)
SWIMMER_IMAGE = (32, 32)


def cells() -> Counts:
    """Return 80 blood cells × 230 genes: pbmc_small of Seurat, real counts of single-cell RNA sequencing.

    They are a subset of 10x Genomics' PBMC 3k, of genes that differ between cells: large enough to see monocytes, T
    cells, NK cells, B cells and platelets, and too small for a finding.

    See Also
    --------
    datasets.real : larger data sets.

    References
    ----------
    .. [1] SeuratObject authors (2021). pbmc_small, in SeuratObject 5.4.0, under the MIT licence.

    Examples
    --------
    >>> import bayesnmf
    >>> counts = bayesnmf.datasets.cells()
    >>> counts.shape
    (80, 230)
    """
    return read_counts(SHIPPED / "cells.npz")


def mutations() -> Counts:
    """Return mutations of 60 simulated tumours by 96 types: Poisson counts of four invented spectra.

    Every tumour has mutations of "deamination" and "background", some have those of "smoke" and "editing". The spectra
    resemble signatures that are known of real tumours, and are none of them.

    See Also
    --------
    datasets.mutation_spectra : the spectra that the counts are drawn from.

    Examples
    --------
    >>> import bayesnmf
    >>> bayesnmf.datasets.mutations().shape
    (60, 96)
    """
    return read_counts(SHIPPED / "mutations.npz")


def mutation_spectra() -> pd.DataFrame:
    """Return the invented spectra of `datasets.mutations`, a row for each, which sums to 1, (4, 96).

    See Also
    --------
    match : which of them a fit has found. `assign` : refit them.

    Examples
    --------
    >>> import bayesnmf
    >>> bayesnmf.datasets.mutation_spectra().index.tolist()
    ['deamination', 'smoke', 'editing', 'background']
    """
    import pandas as pd

    told = json.loads((SHIPPED / "mutations.json").read_text(encoding="utf-8"))["spectra"]
    return pd.DataFrame.from_dict(told, orient="index", columns=list(sbs96_types()))


def texts() -> Counts:
    """Return the words of 120 simulated texts about a kitchen, a garden, the sea and music.

    Words and topics are invented. A text has one or two topics, and the first is in its name, as in
    ``"text 001 (sea)"``. Some words belong to two topics: sun, rain, herb and salt.

    See Also
    --------
    datasets.real : real texts, the newsgroups.

    Examples
    --------
    >>> import bayesnmf
    >>> bayesnmf.datasets.texts().shape
    (120, 114)
    """
    return read_counts(SHIPPED / "texts.npz")


def digits() -> Counts:
    """Return scikit-learn's handwritten digits: 1797 × 64 pixel counts from 0 to 16.

    Rows are named by their position and label, as in ``"0003 (digit 3)"``.

    See Also
    --------
    datasets.cells, datasets.texts, datasets.real, simulate

    Examples
    --------
    >>> import bayesnmf
    >>> bayesnmf.datasets.digits().shape
    (1797, 64)
    """
    with needed_for("datasets.digits"):
        from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    names = np.array([f"{i:04d} (digit {label})" for i, label in enumerate(labels)])
    return Counts(as_counts(images).matrix, names, _pixel_names(DIGITS_IMAGE))


# --- the Swimmer ----------------------------------------------------------------------------------

_TORSO = [(row, 16) for row in range(10, 22)]
_ARM = ((-1, 0), (-1, -1), (0, -1), (1, -1))  # steps (down, right) of a left arm: up, up-left, left, down-left
_LEG = ((1, 0), (1, -1), (0, -1), (-1, -1))  # the same for a left leg: down, down-left, left, up-left
_LIMBS = ((10, -1, _ARM), (10, 1, _ARM), (21, -1, _LEG), (21, 1, _LEG))  # joint's row, side, poses


def swimmer(ink: float = 1) -> Counts:
    """Return the Swimmer: 256 × 1024 images of a torso with 4 limbs, each limb in 4 poses.

    Every image is the sum of the torso and one pose of each limb. No two parts share a pixel, so the 17 parts
    (see `swimmer_parts`) are the only components that explain the images [1]_. The torso is in every image:
    without a prior, a fit may divide it among the poses of one limb.

    Parameters
    ----------
    ink : float
        Count of a pixel that belongs to a part.

    See Also
    --------
    datasets.swimmer_parts : the parts of which the images are made.

    References
    ----------
    .. [1] D. Donoho and V. Stodden (2003). When does non-negative matrix factorization give a correct
       decomposition into parts? NIPS 16.

    Examples
    --------
    >>> import bayesnmf
    >>> bayesnmf.datasets.swimmer().shape
    (256, 1024)
    """
    ink = check_positive(ink, "ink")
    poses = np.array(list(product(range(4), repeat=4)))  # left arm, right arm, left leg, right leg
    chosen = np.hstack([np.zeros((256, 1), int), 1 + 4 * np.arange(4) + poses])
    present = np.zeros((256, 17))
    np.put_along_axis(present, chosen, ink, axis=1)
    names = np.array(["pose " + "".join(map(str, pose)) for pose in poses])
    images = csr_array(present) @ csr_array(swimmer_parts())
    return Counts(as_counts(images).matrix, names, _pixel_names(SWIMMER_IMAGE))


def swimmer_parts() -> np.ndarray:
    """Return the Swimmer's parts, (17, 1024) zeros and ones: the torso, then the 4 poses of each limb.

    See Also
    --------
    datasets.swimmer : the images that are made of them.

    Examples
    --------
    >>> import bayesnmf
    >>> bayesnmf.datasets.swimmer_parts().shape
    (17, 1024)
    """
    strokes = [_TORSO]
    strokes += [_limb(row, side, step) for row, side, steps in _LIMBS for step in steps]
    parts = np.zeros((17, *SWIMMER_IMAGE))
    for part, stroke in zip(parts, strokes, strict=True):
        part[tuple(np.transpose(stroke))] = 1
    return parts.reshape(17, -1)


def _limb(row: int, side: int, step: tuple[int, int]) -> list[tuple[int, int]]:
    """Return the 6 pixels from the joint at the torso in one direction; the right side mirrors the left."""
    down, right = step
    return [(row + down * i, 16 + side * (1 - right * i)) for i in range(1, 7)]


def _pixel_names(shape: tuple[int, int]) -> np.ndarray:
    rows, columns = shape
    return np.array([f"r{row}c{column}" for row in range(rows) for column in range(columns)])
