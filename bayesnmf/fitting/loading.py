"""How a fit is loaded from a file."""

from __future__ import annotations

import os

from bayesnmf.fitting.fitted import Fit


def load(path: str | os.PathLike[str]) -> Fit:
    """Return the fit in a file that `Fit.save` wrote.

    Parameters
    ----------
    path : str or path
        NetCDF file (`.nc`) or Zarr store (`.zarr`).

    Raises
    ------
    FileNotFoundError
        The file does not exist.
    ValueError
        The file is not a fit, is damaged, or was written by a later version.
    """
    from bayesnmf.results.storage import read_fit

    return Fit.of(read_fit(path))
