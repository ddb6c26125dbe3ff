"""A table of a tool is one record, and another kind of file is one: both stand here, outside the package."""

import json

import numpy as np
import pandas as pd
import pytest

import bayesnmf
from bayesnmf.data import files, layouts
from bayesnmf.data.files import Format
from bayesnmf.data.layouts import Layout
from bayesnmf.data.suspicions import DataWarning

COUNTS = pd.DataFrame([[3, 0, 1], [0, 2, 4]], ["s1", "s2"], ["f1", "f2", "f3"])


@pytest.fixture
def tool(monkeypatch):
    """A tool whose tables have features in their rows, a score beside the counts and a suffix of their own."""
    record = Layout("Counter 3", ("locus", "score"), "score", suffixes=(".cnt",))
    monkeypatch.setattr(layouts, "TOOLS", [*layouts.TOOLS, record])
    monkeypatch.setattr(files, "TOOLS", layouts.TOOLS)


@pytest.mark.parametrize("name", ["x.cnt", "x.cnt.gz", "x.tsv"])
def test_a_table_of_another_tool_is_read_by_its_record(tmp_path, tool, name):
    table = COUNTS.T.rename_axis("locus")
    table.insert(0, "score", [0.5, 1.5, 2.5])
    table.to_csv(tmp_path / name, sep="\t")
    with pytest.warns(DataWarning) as told:
        counts = bayesnmf.read_counts(tmp_path / name)
    said = [str(each.message) for each in told]
    assert said[0].endswith("is read as a table of Counter 3; left out: score")
    assert "features in their rows, as tables of Counter 3 have" in said[1]
    assert counts.row_names.tolist() == [*COUNTS.index]
    assert counts.feature_names.tolist() == [*COUNTS]
    np.testing.assert_array_equal(counts.dense, COUNTS)


def test_a_table_of_another_tool_without_counts_is_refused(tmp_path, monkeypatch):
    record = Layout("Counter 3", ("locus", "share"), cure="ask it for numbers, as counter --raw does")
    monkeypatch.setattr(layouts, "TOOLS", [*layouts.TOOLS, record])
    COUNTS.T.rename_axis("locus").rename(columns={"s1": "share"}).to_csv(tmp_path / "x.csv")
    with pytest.raises(ValueError, match="table of Counter 3 without counts of features: ask it for numbers, as"):
        bayesnmf.read_counts(tmp_path / "x.csv")


def test_another_kind_of_file_is_read_by_its_record(tmp_path, monkeypatch):
    """Its errors say what it must be, and it is among the suffixes of the others."""
    record = Format((".json",), "a list of rows, each with the counts of features", lambda path: read_json(path))
    monkeypatch.setattr(files, "FORMATS", [*files.FORMATS, record])
    (tmp_path / "x.json").write_text(json.dumps(COUNTS.T.to_dict()))
    counts = bayesnmf.read_counts(tmp_path / "x.json")
    assert counts.row_names.tolist() == [*COUNTS.index]
    np.testing.assert_array_equal(counts.dense, COUNTS)
    assert bayesnmf.fit(tmp_path / "x.json", rank=1, seed=0).counts.shape == COUNTS.shape
    (tmp_path / "x.json").write_text("[")
    with pytest.raises(
        ValueError, match=r"x\.json must be a list of rows, each with the counts of features: JSONDecode"
    ):
        bayesnmf.read_counts(tmp_path / "x.json")
    (tmp_path / "x.other").write_text("")
    with pytest.raises(ValueError, match=r"must end in one of \.npz, .*\.json"):
        bayesnmf.read_counts(tmp_path / "x.other")


def read_json(path):
    return pd.DataFrame(json.loads(path.read_text())).T
