"""Labels of rows and features: the one rule by which labelled arguments are put in the order of the counts.

Labels decide, and never positions in silence:

- labels that are the names of the counts in the same order go by position, so that names may repeat;
- else every name is looked up among the labels, as text, where mutation types are equal in any known spelling. A name
  that is missing, or there twice, is refused; labels beyond the names are left out where the caller allows it;
- what has no labels, such as an array or a list, goes by position, and so does everything for counts without names
  (0 … n − 1), unless the labels are the same numbers in another order.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from bayesnmf.checks import is_counted
from bayesnmf.data.mutations import read_types
from bayesnmf.text import readable
from bayesnmf.types import Array

MISSING = ("None", "nan", "NaT", "<NA>", "--")  # as the values that are no text are written; the last is a masked one
NO_LABEL = "a missing value"
LISTED = 3  # labels that a message shows


class Labelled(NamedTuple):
    """Values of a container without its labels, and the labels of its axes; None for an axis without labels.

    A table of columns becomes a pandas DataFrame, as its columns may have different types.
    """

    values: Any
    rows: Array | None = None
    columns: Array | None = None


class Order(NamedTuple):
    """What is put in order: the argument, the sides whose names decide, and what has these names.

    With `more`, labels beyond the names are left out. With `keyed`, what has labels goes by them even if the counts
    have no names. `cure` is what to give without labels, in the order of the counts, where that is no array.
    """

    argument: str
    side: str = "row"
    of: str = "counts"
    more: bool = False
    keyed: bool = False
    cure: str = ""


def split_labels(x: Any) -> Labelled:
    """Return values and labels of a container of pandas, polars, pyarrow or xarray; of others, the container.

    Containers are recognised by their attributes, so that none of these packages is imported for others.
    """
    if all(hasattr(x, each) for each in ("dims", "coords", "indexes", "values")) and hasattr(x, "ndim"):  # xarray
        axes = [np.array(x.indexes[dim]) if dim in x.indexes else None for dim in x.dims]
        return Labelled(x.data, *axes) if len(axes) <= 2 else Labelled(x.data)
    if hasattr(x, "to_scipy_sparse"):  # of the package sparse
        return Labelled(x.to_scipy_sparse())
    if (frame := _as_frame(x)) is not None:  # without names of rows, unless pandas has stored them
        return Labelled(frame, None if is_counted(frame.index) else np.array(frame.index), np.array(frame.columns))
    if is_frame(x):
        return Labelled(x, np.array(x.index), np.array(x.columns))
    if hasattr(x, "to_numpy") and not callable(getattr(x, "index", len)):  # a Series; arrays of pyarrow have a method
        return Labelled(x.to_numpy(), np.array(x.index))
    return Labelled(x.to_pylist() if hasattr(x, "to_pylist") else x)  # an array of pyarrow


def is_frame(x: Any) -> bool:
    """Return whether an object is a DataFrame of pandas, or like one."""
    return all(hasattr(x, attribute) for attribute in ("index", "columns", "dtypes"))


def _as_frame(x: Any) -> Any:
    """Return a table of pyarrow, polars or Dask as a DataFrame, with the index that pandas has stored; else None."""
    if hasattr(x, "dask") and is_frame(x):
        return x.compute()
    if hasattr(x, "collect") and hasattr(x, "collect_schema"):  # lazy
        x = x.collect()
    if hasattr(x, "column_names") and hasattr(x, "to_pandas"):
        return x.to_pandas()
    if hasattr(x, "get_column") and hasattr(x, "columns") and hasattr(x, "to_numpy"):
        import pandas as pd

        return pd.DataFrame({name: x.get_column(name).to_numpy() for name in x.columns})
    return None


def _as_names(labels: Iterable[Any]) -> Array:
    """Return labels as an array with one axis, tuples too."""
    found = list(labels)
    names = np.empty(len(found), dtype=object)
    names[:] = found
    return names


def is_missing(label: Any) -> bool:
    """Return whether a label is a missing value, such as None or NaN; text never is."""
    return not isinstance(label, str) and str(label) in MISSING


def says_place(label: Any) -> bool:
    """Return whether a label of a component is no name: missing, a number, or the number of a place in another list."""
    if is_missing(label) or isinstance(label, bool | np.bool_) or re.fullmatch(r"component \d+", str(label)):
        return True
    try:
        float(label)
    except (TypeError, ValueError):
        return False
    return True


def order_of(labels: Any, names: Any, order: Order) -> Array | None:
    """Return the position of each name among the labels, or None if values are in order already.

    Parameters
    ----------
    labels : array (r,) or None
        Labels of the values; None if they have none.
    names : array (n,)
        Names of the rows or features, in the order wanted.
    order : Order

    Raises
    ------
    ValueError
        Names that are missing or ambiguous, or labels without a name.
    """
    if labels is None:
        return None
    given, own = _keys(labels), _keys(names)
    if given == own:
        return None
    times, unnamed = Counter(given), is_counted(names) and not order.keyed
    found = all(times[key] == 1 for key in own) and len({*own}) == len(own) and NO_LABEL not in own
    if found and (len(given) == len(own) or (order.more and not unnamed)):
        places = {key: place for place, key in enumerate(given)}
        return np.array([places[key] for key in own], dtype=np.intp)
    if not unnamed:
        _refuse(given, own, order)
    return None


def places_among(labels: Any, names: Any, order: Order) -> tuple[Array, list[str]]:
    """Return the position of each name among the labels, -1 for names that are missing, and labels beyond the names.

    Raises
    ------
    ValueError
        Names or labels that repeat or are missing values, or no label that is a name.
    """
    given, own = _keys(labels), _keys(names)
    places, known = {key: place for place, key in enumerate(given)}, set(own)
    unclear = len(places) < len(given) or len(known) < len(own) or NO_LABEL in places or NO_LABEL in known
    if unclear or known.isdisjoint(places):
        _refuse(given, own, order)
    return np.array([places.get(key, -1) for key in own], dtype=np.intp), [key for key in given if key not in known]


def same_labels(one: Any, other: Any) -> bool:
    """Return whether two lists of labels have the same ones, in any order."""
    return one is not None and Counter(_keys(one)) == Counter(_keys(other))


def in_order(given: Any, names: Any, order: Order) -> Any:
    """Return the values of a vector with a value for each name, in the order of the names (`order_of`)."""
    keyed = isinstance(given, Mapping) and not hasattr(given, "dims")  # of xarray, a Dataset
    found = Labelled(list(given.values()), _as_names(given)) if keyed else split_labels(given)
    places = order_of(found.rows, names, order._replace(keyed=keyed))
    if places is None:
        return found.values
    if isinstance(found.values, list):
        return [found.values[place] for place in places]
    return np.asarray(found.values)[places]


def _keys(names: Any) -> list[str]:
    types = read_types(names)
    return [NO_LABEL if is_missing(name) else readable(name) for name in names] if types is None else types.names


def _refuse(given: list[str], own: list[str], order: Order) -> None:
    """Raise the error that says which labels do not fit, and what to do."""
    side, there, known = f"{order.side}s", Counter(given), Counter(own)
    faults = [
        _counted([key for key in known if key not in there], "missing", side),
        "" if order.more else _counted([key for key in there if key not in known], f"not in the {order.of}", side),
        _counted([key for key, times in there.items() if times > 1 and key in known], "there more than once", "labels"),
        _counted([key for key, times in known.items() if times > 1], f"repeated in the {order.of}", "names"),
    ]
    cure = f"give these labels, or {order.cure or f'an array in the order of the {order.of}'}"
    if order.side == "feature" and not set(own) & set(given):
        cure += "; symbols instead of identifiers, or the reverse, are in a column of var that feature_labels names"
    if {key.strip() for key in given} >= {key.strip() for key in own} and not set(own) <= set(given):
        cure = "remove the white space around names, as with labels.str.strip()"
    elif any(times > 1 for times in known.values()):
        cure = f"make names different, or give an array in the order of the {order.of}"
    raise ValueError(
        f"{order.argument} must have the {len(own)} {side} of the {order.of} as labels, in any order: found "
        f"{len(given)}; {'; '.join(fault for fault in faults if fault)}; {cure}"
    )


def _counted(keys: list[str], what: str, things: str) -> str:
    """Return how many of something there are, and the first of them; empty if none."""
    return f"{len(keys):,} {things if len(keys) > 1 else things[:-1]} {what}: {listed(keys)}" if keys else ""


def listed(keys: list[str]) -> str:
    """Return the first of some labels, as text."""
    first = ", ".join(repr(key if len(key) < 40 else f"{key[:37]}...") for key in keys[:LISTED])
    return first + ", …" * (len(keys) > LISTED)
