"""Names that are given beside the counts."""

import numpy as np
import pandas as pd
import pytest

import bayesnmf

COUNTS = np.random.default_rng(0).poisson(4.0, (5, 3))
QUICK = bayesnmf.VI(start="svd")
ROWS, FEATURES = [f"s{i}" for i in range(5)], ["a", "b", "c"]


def test_given_names_are_those_of_the_fit_and_of_what_is_matched_by_name():
    exposure = pd.Series([3.0, 1.0, 2.0, 1.0, 5.0], index=ROWS[::-1])
    known = pd.DataFrame([[0.2, 0.3, 0.5]], columns=["c", "a", "b"])
    given = bayesnmf.fit(
        COUNTS, rank=2, seed=0, options=QUICK, row_names=ROWS, feature_names=np.array(FEATURES),
        row_exposure=exposure, fixed_components=known,
    )  # fmt: skip
    frame = pd.DataFrame(COUNTS, index=ROWS, columns=FEATURES)
    alone = bayesnmf.fit(frame, rank=2, seed=0, options=QUICK, row_exposure=exposure, fixed_components=known)
    np.testing.assert_array_equal(given.loadings, alone.loadings)
    assert given.row_names.tolist() == ROWS
    assert given.feature_names.tolist() == FEATURES
    assert given.top_features(1).iloc[0, 0] == "b"
    renamed = bayesnmf.fit(frame, rank=2, seed=0, options=QUICK, feature_names=["x", "y", "z"])
    assert (renamed.feature_names.tolist(), renamed.row_names.tolist()) == (["x", "y", "z"], ROWS)


@pytest.mark.parametrize(
    ("error", "message", "names"),
    [
        (ValueError, r"feature_names must have .* 3 features: found shape \(5,\)", {"feature_names": ROWS}),
        (ValueError, r"row_names must have one name for each of the 5 rows", {"row_names": [["a"] * 5]}),
        (TypeError, "row_names must be a list or array of names: found 'abcde'", {"row_names": "abcde"}),
        (TypeError, "feature_names must be a list or array of names: found 3", {"feature_names": 3}),
    ],
)  # fmt: skip
def test_names_of_other_numbers_are_refused(error, message, names):
    with pytest.raises(error, match=message):
        bayesnmf.fit(COUNTS, rank=2, **names)
