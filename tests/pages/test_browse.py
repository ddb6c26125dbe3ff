"""The page to browse components: its numbers, its order at every relevance, and that no name or text is markup."""

import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import smallfits
from browsing import Reader, browse, in_a_browser, probe
from plain import even_priors, plain_map, plain_vi

import bayesnmf
from bayesnmf.pages import browse as browsing
from bayesnmf.pages.browse import LEVELS, SHOWN, UNIT, leading, pattern_of, snippets

MARKUP = [
    "<script>console.error('run')</script>",
    "</script><img src=x onerror=console.error('shown')>",
    "a&b",
    "\x07é'\"",
]
NAMES = [*MARKUP, *(f"gene {j}" for j in range(46))]
ROWS = [f"<i>sample {i}</i>" for i in range(30)]
TEXTS = [
    f"</script><script>console.error('text {i}')</script> of GENE 7 and\n{MARKUP[0]} <b>gene 12</b>" for i in range(30)
]
DRAWN = bayesnmf.simulate(size=(30, 50), rank=3, priors=even_priors(total=400), seed=1)
in_node = pytest.mark.skipif(shutil.which("node") is None, reason="no node here; install the package nodejs")


@cache
def fitted(method="vi"):
    options = {"vi": plain_vi(tol=1e-5), "map": plain_map(tol=0, max_iter=100)}[method]
    return bayesnmf.fit(DRAWN.counts, rank=3, method=method, seed=0, options=options, row_names=ROWS,
                        feature_names=NAMES)  # fmt: skip


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    fit = fitted().rename(["<b>B cells</b>", "T & cells", "</script>"])
    return bayesnmf.browse(fit, tmp_path_factory.mktemp("pages") / "page.html", texts=TEXTS, title="Blood <b>")


def contents(page):
    """Return the numbers and names in a page."""
    text = page.read_text(encoding="utf-8")
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


def shown_at(component, level):
    """Return the places of the features that the page shows, by the order that `browse.js` states."""
    score = [level * w + (LEVELS - level) * x for w, x in zip(component["weight"], component["lift"], strict=True)]
    return sorted(range(len(score)), key=lambda i: (-score[i], i))[:SHOWN]


# --- relevance ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_at_every_setting_the_first_thirty_of_all_features_are_among_the_candidates(seed):
    """With a few features of each kind that break such orders: shares of 0, ties, and features of one component."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(3000, 0.05), 4)
    shares[:, :40] = shares[:, 40:80]  # each twice
    shares[0, 100:300] = 0
    shares[1:, 300:320] = 0
    shares /= shares.sum(axis=1, keepdims=True)
    frequency = np.array([0.4, 0.3, 0.2, 0.1]) @ shares
    for own in shares:
        found = leading(own, frequency)
        assert len(found.features) < 800
        positive = np.flatnonzero(own > 0)
        logs = np.log(own[positive]), np.log(own[positive] / frequency[positive])
        rounded = [np.rint(UNIT * each).astype(int) for each in logs]
        for level in range(LEVELS + 1):
            whole = level * rounded[0] + (LEVELS - level) * rounded[1]
            order = positive[np.lexsort((positive, -own[positive], -whole))][:SHOWN]
            np.testing.assert_array_equal(found.features[found.order(level)], order)
            exact = (level * logs[0] + (LEVELS - level) * logs[1]) / LEVELS
            least = np.sort(exact)[-SHOWN]  # of the thirtieth, without rounding
            assert exact[np.isin(positive, order)].min() >= least - 1 / UNIT


def test_fewer_features_than_are_shown_are_all_candidates():
    found = leading(np.array([0.5, 0.0, 0.5]), np.array([0.2, 0.3, 0.5]))
    assert found.features.tolist() == [0, 2]
    assert found.features[found.order(0)].tolist() == [0, 2]


def test_features_of_a_component_without_counts_alone_are_left_out():
    found = leading(np.array([0.5, 0.25, 0.25]), np.array([0.0, 0.5, 0.5]))
    assert found.features.tolist() == [1, 2]
    assert found.lift.tolist() == [round(UNIT * np.log(0.5))] * 2
    assert leading(np.array([1.0, 0.0]), np.array([0.0, 1.0])).order(LEVELS).tolist() == []


@smallfits.quietly
def test_frequencies_are_those_of_expected_counts():
    fit = smallfits.fit(method="map")
    found = browsing.frequencies(bayesnmf.to_topic_model(fit), fit.expected_sizes)
    means = fit.mean_factors[0] @ fit.mean_factors[1]
    np.testing.assert_allclose(found, means.sum(axis=0) / means.sum(), rtol=1e-10)


# --- the numbers of the page ----------------------------------------------------------------------------------


def test_the_numbers_are_those_of_the_fit(page):
    fit, given = fitted(), contents(page)
    means = fit.expected_loadings.sum(axis=0)[:, None] * fit.exposed_components
    sizes = means.sum(axis=1)
    order = np.argsort(-sizes)
    assert [each["number"] for each in given["components"]] == order.tolist()
    assert given["counts"] == fit.counts.feature_totals.tolist()
    for k, each in zip(order, given["components"], strict=True):
        assert abs(each["size"] - sizes[k] / sizes.sum()) < 1e-6
        own = each["features"]
        np.testing.assert_allclose(np.exp(np.array(each["weight"]) / UNIT), means[k, own] / sizes[k], rtol=1e-4)
        parts = sizes[k] / sizes.sum() * np.exp(np.array(each["lift"]) / UNIT)
        np.testing.assert_allclose(parts, (means[k] / means.sum(axis=0))[own], rtol=1e-4)
    for j, where in enumerate(given["where"]):
        shares = means[:, j] / means[:, j].sum()
        assert where[::2] == [k for k in np.argsort(-shares) if shares[k] >= 0.05]
        np.testing.assert_allclose(where[1::2], 100 * shares[where[::2]], atol=0.5001)


def test_the_samples_are_those_of_top_rows_with_the_components_beside(page):
    fit, (first, *_) = fitted(), contents(page)["components"]
    table, shares = fit.top_rows(10), fit.shares()
    own = table[table["component"] == first["number"]]
    assert [row["name"] for row in first["rows"]] == own["row"].tolist()
    np.testing.assert_allclose([row["share"] for row in first["rows"]], own[["share", "low", "high"]], atol=6e-5)
    assert [row["counts"] for row in first["rows"]] == own["counts"].tolist()
    for row in first["rows"]:
        beside = shares.loc[row["name"]].drop(first["number"])
        beside = beside[beside["share"] >= 0.02].sort_values("share", ascending=False)
        assert [k for k, _ in row["others"]] == beside.index.tolist()
        np.testing.assert_allclose([limits for _, limits in row["others"]], beside, atol=6e-5)


def test_a_point_estimate_has_no_limits(tmp_path):
    given = contents(bayesnmf.browse(fitted("map"), tmp_path / "page.html"))
    share, *limits = given["components"][0]["rows"][0]["share"]
    assert 0 < share <= 1
    assert limits == [None, None]
    assert "no intervals: a point estimate" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_without_names_and_with_little(tmp_path):
    """One component, a row and a feature without counts; the numbers of rows and features are their names."""
    fit = bayesnmf.fit([[3, 0, 1], [0, 0, 0]], rank=1, seed=0, options=plain_vi(tol=1e-3))
    given = contents(bayesnmf.browse(fit, tmp_path / "page.html"))
    assert given["names"] == ["0", "1", "2"]
    assert [row["name"] for row in given["components"][0]["rows"]] == ["0", "1"]
    assert "1 component of 2 samples and 3 features" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_many_features_are_searched_by_the_most_frequent_and_all_that_lead(tmp_path, monkeypatch):
    monkeypatch.setattr("bayesnmf.pages.browse.SEARCHED", 5)
    monkeypatch.setattr(browsing, "SHOWN", 4)
    fit, given = fitted(), contents(bayesnmf.browse(fitted(), tmp_path / "page.html"))
    most = np.argsort(-fit.counts.feature_totals, kind="stable")[:5]
    assert {NAMES[j].replace("\x07", "\ufffd") for j in most} <= {*given["names"]}
    assert len(given["names"]) < 50
    shares = bayesnmf.to_topic_model(fit).components
    for each in given["components"]:
        first = given["names"][each["features"][shown_at(each, LEVELS)[0]]]
        assert first == NAMES[shares[each["number"]].argmax()].replace("\x07", "\ufffd")


def test_several_matrices_and_counts_with_exposures(tmp_path):
    X = np.random.default_rng(0).poisson(4, (8, 10))
    fit = bayesnmf.fit({"words": X[:, :6], "links": X[:, 6:]}, rank=2, seed=0, method="map")
    assert len(contents(bayesnmf.browse(fit, tmp_path / "all.html"))["names"]) == 10
    assert len(contents(bayesnmf.browse(fit.matrix("links"), tmp_path / "one.html"))["names"]) == 4


# --- names and texts ------------------------------------------------------------------------------------------


def test_no_name_and_no_text_is_markup(page):
    found, given = Reader(page), contents(page)
    assert found.tags.count("script") == 2
    assert {*found.tags} & {"img", "iframe", "object", "embed", "i", "u", "b"} == set()
    assert all(each.startswith("data:") for each in found.addresses)
    assert {"Blood <b>", "<b>B cells</b>"} <= {*found.texts}
    assert [*MARKUP[:3], "\ufffdé'\""] == given["names"][:4]
    assert given["components"][0]["rows"][0]["name"] in ROWS
    parts = [part for each in given["components"] for row in each["rows"] for part in row["parts"]]
    assert any("</script>" in "".join(part) for part in parts)
    assert {"GENE 7", "gene 12"} & {piece for part in parts for piece in part[1::2]}


def test_only_parts_of_the_texts_of_samples_that_are_shown_are_in_the_page(tmp_path):
    fit = fitted()
    shown = {*fit.top_rows(10)["row"]}
    assert 0 < len(shown) < 30
    texts = {name: f"{'far away ' * 60} of gene {j % 46} text{j}." for j, name in enumerate(ROWS)}
    text = bayesnmf.browse(fit, tmp_path / "page.html", texts=texts).read_text(encoding="utf-8")
    for j, name in enumerate(ROWS):
        assert name in shown or f"text{j}." not in text
    assert text.count("far away") < 30 * len(shown) * 3


@pytest.mark.parametrize(
    "given",
    [
        lambda texts: texts.iloc[::-1],
        lambda texts: texts.iloc[::-1].to_dict(),
        lambda texts: pd.concat([texts, pd.Series({"another": "gene 1"})]),
        lambda texts: texts.tolist(),
    ],
    ids=["series", "mapping", "more", "list"],
)
def test_texts_go_by_their_labels(given, tmp_path):
    texts = pd.Series([f"gene {i}" for i in range(30)], ROWS)
    texts.iloc[3] = None
    for each in contents(bayesnmf.browse(fitted(), tmp_path / "page.html", texts=given(texts)))["components"]:
        marked = {each["features"][i] for i in shown_at(each, 12)}
        for row in each["rows"]:
            i = ROWS.index(row["name"])
            known = i != 3 and NAMES.index(f"gene {i}") in marked
            assert row["parts"] == ([["", f"gene {i}", ""]] if known else [])


@pytest.mark.parametrize(
    ("texts", "error", "rule"),
    [
        (["one"], ValueError, "texts must have one entry for each of 30 rows: found 1"),
        ("one", TypeError, "texts must be a list, a mapping or a Series of strings"),
        ([["one", "two"]] * 30, TypeError, "texts must be strings: found"),
        ({"<i>sample 0</i>": "one"}, ValueError, "texts must have the 30 rows of the fit as labels"),
    ],
)
def test_texts_that_do_not_match_are_refused(texts, error, rule, tmp_path):
    with pytest.raises(error, match=rule):
        bayesnmf.browse(fitted(), tmp_path / "page.html", texts=texts)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("source", "path", "more", "error", "rule"),
    [
        ("fit.nc", "a.html", {}, TypeError, "fit must be a result of"),
        (None, "a.pdf", {}, ValueError, r"path must end in \.html"),
        (None, "deep/a.html", {}, ValueError, "path must be in a folder that exists"),
        (None, "a.html", {"title": 3}, TypeError, "title must be text"),
    ],
)
def test_what_cannot_be_a_page_is_refused(source, path, more, error, rule, tmp_path):
    with pytest.raises(error, match=rule):
        bayesnmf.browse(source or fitted(), tmp_path / path, **more)
    assert not list(tmp_path.iterdir())


def test_parts_have_most_different_words_and_do_not_overlap():
    text = f"alpha alpha alpha. {'filler ' * 50}Alpha met BETA\nat c++ {'filler ' * 50}new   york, beta {'end ' * 90}"
    found = snippets(text, pattern_of(["alpha", "beta", "new york", "c++", ""]), 2)
    assert [part[1::2] for part in found] == [["Alpha", "BETA", "c++"], ["new york", "beta"]]
    flat = " ".join(text.split())
    for part in found:
        assert "".join(part) in flat
        assert len("".join(part)) <= 220
    assert len(snippets(text, pattern_of(["alpha", "beta", "new york", "c++"]))) == 3


def test_only_whole_words_are_marked():
    assert snippets("alphabet betas, a.b", pattern_of(["alpha", "beta", "a+b", "(", "a.b"])) == [
        ["alphabet betas, ", "a.b", ""]
    ]
    assert snippets("anything", pattern_of([])) == []
    assert snippets("", pattern_of(["a"])) == []


# --- the script -----------------------------------------------------------------------------------------------


@in_node
def test_the_script_shows_the_first_thirty_at_every_setting(page):
    """In Node.js, with as much of a document as the script needs."""
    fit, given = fitted(), contents(page)
    folder = Path(bayesnmf.__file__).parent / "pages"
    script = "".join((folder / f"{name}.js").read_text(encoding="utf-8") for name in ("made", "browse"))
    program = Path(__file__).parent / "page_in_node.js"
    done = subprocess.run(["node", program], input=f"{script}\0{json.dumps(given)}", capture_output=True, text=True,
                          check=True)  # fmt: skip
    found = json.loads(done.stdout)
    shares = bayesnmf.to_topic_model(fit).components
    for each, state in zip(given["components"], found["states"], strict=True):
        assert state["title"] == each["title"]
        for level, rows in enumerate(state["shown"]):
            assert [row[0] for row in rows] == [given["names"][each["features"][i]] for i in shown_at(each, level)]
        by_share = np.argsort(-shares[each["number"]], kind="stable")[:SHOWN]
        assert [row[3] for row in state["shown"][LEVELS]] == [
            f"{100 * shares[each['number'], j]:.2f} %" for j in by_share
        ]
        row = each["rows"][0]
        share, low, high = (f"{100 * value:.1f}" for value in row["share"])
        assert state["rows"].startswith(f"{row['name']} {share} % [{low} %, {high} %]; ")
    assert (found["first"], found["level"]) == ("0.60", "0.30")
    assert found["searches"][""] == []
    assert found["searches"]["nothing like it"] == ["no such feature"]
    lines = found["searches"]["GENE 1"]
    assert lines[0].startswith("gene 1 ")
    assert lines[-1] == "and 3 more"  # of gene 1 and gene 10 to 19
    k = given["where"][NAMES.index("gene 1")][0]
    assert found["after"] == next(each["title"] for each in given["components"] if each["number"] == k)


@in_a_browser
@pytest.mark.parametrize("width", [390, 1280], ids=["phone", "laptop"])
def test_a_browser_shows_it_whole(page, tmp_path, width):
    found, errors = probe(page.read_text(encoding="utf-8"), tmp_path, width)
    assert (found["cut"], found["squeezed"], found["page"] <= width) == ([], 0, True)
    assert "CONSOLE" not in errors


@in_a_browser
def test_its_own_script_runs_and_no_other(page, tmp_path):
    done = browse(page, "--dump-dom", "--virtual-time-budget=5000")
    assert done.stdout.count('type="radio"') == 3
    assert "CONSOLE" not in done.stderr
    foul = tmp_path / "foul.html"
    foul.write_text(page.read_text(encoding="utf-8").replace("</main>", f"{MARKUP[0]}{MARKUP[1][9:]}</main>"))
    refused = browse(foul, "--dump-dom", "--virtual-time-budget=5000").stderr
    assert "Content Security Policy" in refused
    assert '"run"' not in refused
    assert '"shown"' not in refused
