"""Refused inputs at a glance: what is passed, the error, and what its message says.

Counts themselves stand in `test_checks.BAD`, files in `test_io_errors.WRONG`, hyperparameters and options against
the model in `test_checks_fit.py`.
"""

import numpy as np
import pytest
import scipy.sparse as sp

import bayesnmf

COUNTS = np.arange(35).reshape(7, 5) % 4


def refuse(call, error, rule):
    with pytest.raises(error, match=rule) as caught:
        call()
    assert "\n" not in str(caught.value)


# --- sparse matrices whose parts do not fit together: some ended the interpreter, some lost counts ----------


def altered(form, **parts):
    """Return a sparse matrix with other parts than SciPy gave it."""
    matrix = getattr(sp, f"{form}_array")(COUNTS)
    for part, change in parts.items():
        setattr(matrix, part, change(getattr(matrix, part)))
    return matrix


def moved(axis, to):
    """Return a COO matrix with one entry at another place."""
    coords = [positions.copy() for positions in sp.coo_array(COUNTS).coords]
    coords[axis][1] = to
    return altered("coo", coords=lambda _: tuple(coords))


def lil(row, indices=None, data=None):
    matrix = sp.lil_array(COUNTS)
    matrix.rows[row] = matrix.rows[row] if indices is None else indices
    matrix.data[row] = matrix.data[row] if data is None else data
    return matrix


def dok(key, value=3):
    matrix = sp.dok_array(COUNTS)
    matrix._dict[key] = value
    return matrix


def halves(positions):
    return positions + 0.5


SPARSE = {
    "coo, row too large": (moved(0, 99), "row indices must be from 0 to 6: found 99"),
    "coo, row negative": (moved(0, -3), "row indices must be from 0 to 6: found -3"),
    "coo, column too large": (moved(1, 77), "column indices must be from 0 to 4: found 77"),
    "coo, halves": (
        altered("coo", coords=lambda c: (halves(c[0]), c[1])),
        "row indices must be an array of whole numbers, but is of dtype float64",
    ),
    "coo, values missing": (altered("coo", data=lambda d: d[:-1]), "row indices must be as many as the values"),
    "coo, no values": (altered("coo", data=lambda _: None), "data must be an array, but is of NoneType"),
    "coo, one axis": (altered("coo", coords=lambda c: c[:1]), "coords must be 2 arrays: found 1"),
    "coo, masked": (altered("coo", data=np.ma.masked_array), "data must be an array, but is of MaskedArray"),
    "csr, no values": (altered("csr", data=lambda _: None), "data must be an array, but is of NoneType"),
    "csr, halves": (altered("csr", indices=halves), "indices must be an array of whole numbers, but is of dtype float"),
    "csr, list": (altered("csr", indices=list), "indices must be an array of whole numbers, but is of list"),
    "csc, halves of rows": (altered("csc", indptr=halves), "indptr must be an array of whole numbers"),
    "bsr, booleans": (altered("bsr", indices=lambda i: i > 0), "indices must be an array of whole numbers"),
    "bsr, out of range": (altered("bsr", indices=lambda i: i + 9), "column index values must be < 5"),
    "lil, column too large": (lil(2, [99], [1]), "indices must be < 5"),
    "lil, column negative": (lil(2, [-1], [1]), "indices must be >= 0"),
    "lil, half": (lil(2, [0.5], [1]), "column indices must be an array of whole numbers"),
    "lil, values missing": (lil(2, [1, 2], [1]), "rows and data must hold one list for each row, of the same lengths"),
    "lil, text": (lil(2, [1], ["a"]), "invalid literal"),
    "dok, row too large": (dok((99, 0)), "row indices must be from 0 to 6: found 99"),
    "dok, half": (dok((0.5, 0)), "row indices must be an array of whole numbers"),
    "dok, one number": (dok(3), "inhomogeneous"),
    "dia, too far": (sp.dia_array((np.ones((1, 5)), [99]), shape=(7, 5)), "offsets must be from -6 to 4: found 99"),
    "dia, list": (altered("dia", offsets=list), "offsets must be an array of whole numbers, but is of list"),
}


@pytest.mark.parametrize("case", SPARSE)
def test_corrupt_sparse_matrix(case):
    x, rule = SPARSE[case]
    refuse(lambda: bayesnmf.fit(x, rank=2), ValueError, f"counts must be a valid sparse matrix: .*{rule}.*; rebuild it")


@pytest.mark.parametrize("form", ["csr", "csc", "bsr", "coo", "lil", "dok", "dia"])
@pytest.mark.parametrize("kind", ["array", "matrix"])
def test_sound_sparse_matrix_passes(form, kind):
    matrix = getattr(sp, f"{form}_{kind}")(COUNTS)
    np.testing.assert_array_equal(bayesnmf.checks.as_counts(matrix).dense, COUNTS)
