"""Counts that need no download (scikit-learn's digits, the Swimmer images), and real data sets by name.

In the images, a row is an image and a column is a pixel, so a fitted component can be shown as
``component.reshape(DIGITS_IMAGE)`` or ``component.reshape(SWIMMER_IMAGE)``.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from scipy.sparse import csr_array

from bayesnmf.checks import check_positive
from bayesnmf.data.conversion import as_counts
from bayesnmf.data.counts import Counts
from bayesnmf.data.real import RealCounts, real
from bayesnmf.needs import needed_for

__all__ = ["DIGITS_IMAGE", "SWIMMER_IMAGE", "RealCounts", "digits", "real", "swimmer", "swimmer_parts"]

DIGITS_IMAGE = (8, 8)
SWIMMER_IMAGE = (32, 32)


def digits() -> Counts:
    """Return scikit-learn's handwritten digits: 1797 × 64 pixel counts from 0 to 16.

    Rows are named by their position and label, as in ``"0003 (digit 3)"``.

    See Also
    --------
    datasets.swimmer, datasets.real, simulate

    Examples
    --------
    >>> import bayesnmf
    >>> bayesnmf.datasets.digits()
    Counts(1,797 rows × 64 features, 58,736 nonzeros, total 561,718)
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
    >>> bayesnmf.datasets.swimmer()
    Counts(256 rows × 1,024 features, 9,216 nonzeros, total 9,216)
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
