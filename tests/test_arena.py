"""The arena: one judge for all tools, tables of gaps, and a run of two tools that goes on where it was stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from benchmarks.arena import judging, matrices, running, tables
from benchmarks.arena.__main__ import main, planned, read_rows
from benchmarks.arena.matrices import Matrix


def toy(task: str = "texts", rows: int = 60) -> Matrix:
    """Counts of three groups of rows, each with features of its own."""
    rng = np.random.default_rng(0)
    components = np.kron(np.eye(3), np.ones(8)) + 0.05
    labels = rng.integers(0, 3, rows)
    loadings = np.eye(3)[labels] * 60 + 2.0
    counts = csr_array(rng.poisson(loadings @ components / components.sum(axis=1)[0]).astype(float))
    return Matrix("toy", task, counts, 3, labels, loadings, components)


def write(folder: Path, matrix: Matrix) -> None:
    (folder / matrix.task).mkdir(parents=True)
    counts, path = matrix.counts, folder / matrix.task / f"{matrix.name}.npz"
    np.savez(path, data=counts.data, indices=counts.indices, indptr=counts.indptr, shape=counts.shape,
             labels=matrix.labels, usage=matrix.loadings, components=matrix.components)  # fmt: skip


@pytest.fixture
def given() -> judging.Split:
    return judging.split(toy(), 0)


def test_counts_are_split_and_none_is_lost() -> None:
    matrix = toy()
    one, two = judging.split(matrix, 1)
    assert np.array_equal((one + two).toarray(), matrix.counts.toarray())
    assert one.sum() / matrix.counts.sum() == pytest.approx(judging.KEEP, abs=0.02)
    assert not np.array_equal(judging.split(matrix, 2).train.toarray(), one.toarray())


def test_held_out_counts_are_scored_by_their_probabilities(given: judging.Split) -> None:
    matrix = toy()
    U, V = matrix.loadings, matrix.components
    assert U is not None
    assert V is not None
    p, test = U @ V, given.test.toarray()
    p /= p.sum(axis=1, keepdims=True)
    frequencies = given.train.sum(axis=0) + 0.5
    mixed = (1 - judging.MIXED) * p + judging.MIXED * frequencies / frequencies.sum()
    assert judging.held_out(U, V, given) == pytest.approx((test * np.log(mixed)).sum() / test.sum(), rel=1e-12)
    assert judging.held_out(7 * U, V * 3, given) == pytest.approx(judging.held_out(U, V, given), rel=1e-12)


def test_a_row_without_loadings_is_scored_by_frequencies(given: judging.Split) -> None:
    test, frequencies = given.test.toarray(), given.train.sum(axis=0) + 0.5
    expected = (test * np.log(frequencies / frequencies.sum())).sum() / test.sum()
    nothing = np.zeros((test.shape[0], 2))
    assert judging.held_out(nothing, np.ones((2, test.shape[1])), given) == pytest.approx(expected, rel=1e-12)


def test_the_truth_has_the_best_figures(given: judging.Split) -> None:
    matrix, rng = toy("cells"), np.random.default_rng(1)
    assert matrix.loadings is not None
    assert matrix.components is not None
    truth = {"loadings": matrix.loadings[:, [2, 0, 1]], "components": matrix.components[[2, 0, 1]]}
    wrong = {"loadings": rng.uniform(size=(60, 3)), "components": rng.uniform(size=(3, 24))}
    best, other = (judging.judged(matrix, given, found) for found in (truth, wrong))
    for name in (judging.TRUTH, judging.USAGE, judging.NMI):
        assert best[name] == pytest.approx(1.0)
        assert other[name] < 0.8
    assert best[judging.HELD_OUT] > other[judging.HELD_OUT] + 0.1


def test_leading_words_of_one_document_are_coherent() -> None:
    documents = csr_array(np.kron(np.eye(2), np.ones((5, 10))))
    topics = np.kron(np.eye(2), np.ones(10))
    assert judging.coherence(np.ones((10, 2)), topics, documents) == pytest.approx(1.0)
    mixed = np.tile(np.eye(2), 10)  # half of the words of a topic are of the other documents
    assert judging.coherence(np.ones((10, 2)), mixed, documents) < 0.2


def test_presence_is_judged_by_f1() -> None:
    assert judging.f1(np.array([[1, 0], [1, 1]]), np.array([[3.0, 0.0], [0.0, 2.0]])) == pytest.approx(0.8)


def row(way: str, split: int, value: float, tool: str = "bayesnmf") -> dict[str, Any]:
    figures = {judging.HELD_OUT: value, judging.SECONDS: 1.0 + split}
    return {"tool": tool, "way": way, "split": split, "seed": split, "figures": figures, "version": "1", "lines": 3}


def test_gaps_are_paired_by_splits() -> None:
    ours = [row("plain call", s, -3.0 - s) for s in range(3)]
    theirs = [row("LDA", s, -3.1 - s + 0.01 * s, "other") for s in range(3)]
    gap = tables.gap_between(theirs, ours, judging.HELD_OUT)
    assert gap is not None
    assert gap.mean == pytest.approx(-0.09)
    assert gap.half == pytest.approx(2.9200 * 0.01 / np.sqrt(3), rel=1e-3)  # t quantile with 2 degrees of freedom
    lines = tables.lines_of([*theirs, *ours], "texts")
    assert [line.name for line in lines] == ["bayesnmf: plain call", "other: LDA"]
    (standing,) = tables.standings({("texts", "toy"): lines})
    assert (standing.place, standing.ahead) == (1, "other: LDA")
    assert standing.gap == pytest.approx(-0.09)


def test_a_tool_without_a_result_is_named() -> None:
    rows = [row("plain call", 0, -3.0), {**row("LDA", 0, 0.0, "other"), "missing": "not installed: no wheel"}]
    del rows[1]["figures"]
    lines = {("texts", "toy"): tables.lines_of(rows, "texts")}
    for made in (tables.markdown(lines, "About."), tables.page(lines, "About.")):
        assert "not installed: no wheel" in made


def test_every_tool_says_what_it_needs_and_its_tasks() -> None:
    every = running.find_tools()
    assert every[0].name == "bayesnmf"
    assert len(every) >= 11
    for tool in every:
        assert all("==" in each or each in ("scanpy", "pandas") for each in tool.requirements), tool.name
        for way in tool.ways.values():
            assert set(way.tasks) <= set(matrices.RANKS)


def test_tools_take_turns() -> None:
    every = [tool for tool in running.find_tools() if tool.name in ("bayesnmf", "scikit-learn")]
    runs = list(planned([toy("images")], every, 3))
    ways = [[(tool.name, way) for r, _, tool, way in runs if r == repeat] for repeat in range(3)]
    assert len({each[0] for each in ways}) == 3
    assert all(set(each) == set(ways[0]) for each in ways)


def test_a_tool_that_cannot_be_installed_is_refused_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = running.Tool("nothing", "nothing", ("no-such-distribution==0.0.1",), {})
    made = running.Environments(tmp_path)
    monkeypatch.setattr(running.venv, "create", lambda home, **_: home.mkdir(parents=True))

    class Failed:
        returncode, stderr = 1, "ERROR: No matching distribution found for no-such-distribution==0.0.1\n"

    monkeypatch.setattr(running.subprocess, "run", lambda *_, **__: Failed)
    assert made.python(tool) is None
    assert "No matching distribution" in made.refused["nothing"]


def test_files_say_their_task(tmp_path: Path) -> None:
    write(tmp_path, toy())
    (found,) = matrices.of_folder(tmp_path, None)
    assert (found.task, found.rank) == ("texts", 3)
    assert np.array_equal(found.counts.toarray(), toy().counts.toarray())
    with pytest.raises(SystemExit, match="needs a task"):
        matrices.read_matrix(tmp_path / "texts" / "toy.npz")


@pytest.mark.long
def test_two_tools_run_and_a_stopped_run_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of scikit-learn, as it is in this environment; a truncated last line is run again."""
    write(tmp_path / "counts", toy("images"))
    out = tmp_path / "out"
    given = ["--folder", str(tmp_path / "counts"), "--tools", "bayesnmf", "--repeats", "1", "--out", str(out)]
    main([*given, "--threads", "1"])
    rows = read_rows(out / "rows.jsonl")
    assert [row["way"] for row in rows] == ["plain call", "concentrations learned", "noise='nb1'"]
    assert all(row["figures"][judging.TRUTH] > 0.95 for row in rows)
    text = (out / "rows.jsonl").read_text()
    (out / "rows.jsonl").write_text(text[:-20])
    main(given)
    again = read_rows(out / "rows.jsonl")
    assert json.dumps(again[:2]) == json.dumps(rows[:2])
    assert again[2]["figures"][judging.HELD_OUT] == rows[2]["figures"][judging.HELD_OUT]
    assert "plain call" in (out / "table.md").read_text()
    assert "<table>" in (out / "arena.html").read_text()
