"""How a fit, or another result, is loaded from a file."""

from __future__ import annotations

import os
from typing import Any

from bayesnmf.fitting.fitted import Fit
from bayesnmf.results.record import FitRecord


def load(path: str | os.PathLike[str]) -> Fit:
    """Return the fit in a file that `Fit.save` wrote, or the result that `Assignment.save` wrote.

    Parameters
    ----------
    path : str or path
        NetCDF file (`.nc`) or Zarr store (`.zarr`).

    Raises
    ------
    FileNotFoundError
        The file does not exist.
    ValueError
        The file is neither, is damaged, or was written by a later version.

    See Also
    --------
    Fit.save, Assignment.save : write the file.
    read_catalogue : components of a fit, or of a file, as a catalogue.

    Examples
    --------
    >>> import bayesnmf
    >>> fit = bayesnmf.fit([[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]], rank=2, seed=0)
    >>> fit.save("fit.nc")
    >>> bool((bayesnmf.load("fit.nc").components == fit.components).all())
    True
    """
    from bayesnmf.results.storage import read_saved

    found: Any = read_saved(path)
    return Fit.of(found) if isinstance(found, FitRecord) else found


def load_fit(path: str | os.PathLike[str]) -> Fit:
    """Return the fit in a file; refuse one of another result."""
    from bayesnmf.results.storage import read_fit

    return Fit.of(read_fit(path))
