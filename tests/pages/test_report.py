"""Pages for a browser: what they say, that nothing in them is taken for markup, and that a real browser shows them."""

import base64
import html
import io
import json
import re
from dataclasses import replace
from functools import cache

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from browsing import Reader, in_a_browser, pages_of_print, probe
from matplotlib.figure import Figure
from plain import even_priors
from realdata import find_data, real_counts
from suites import mostly_long

import bayesnmf
from bayesnmf import MAP, VI, Gibbs, Settings, plots
from bayesnmf.pages import parts
from bayesnmf.pages import report as pages
from bayesnmf.pages.of_fit import methods
from bayesnmf.pages.parts import Number, Page, Section, Table, share
from bayesnmf.pages.reading import Given, read
from bayesnmf.studies.comparison import measures

mpl.use("Agg")
MARKUP = [
    "<script>console.error('run')</script>",
    "<img src=x onerror=console.error('shown')>",
    "a&b",
    "\"'><b>",
    "$x_$",
]
NAMES = [*MARKUP, *(f"gene {j}" for j in range(7))]
ROWS = [f"<i>sample {i}</i> & $co$" for i in range(30)]
GROUPS = ["<u>one</u>" if i % 2 else "$two$" for i in range(30)]
DRAWN = bayesnmf.simulate(size=(30, len(NAMES)), rank=3, priors=even_priors(total=400), seed=1)


QUICK = VI(start="random", tol=1e-3, intervals="mean_field")


@cache
def fitted(method="vi", **settings):
    kind = {"vi": VI, "gibbs": Gibbs, "map": MAP}[method]
    settings = settings or {"vi": {"tol": 1e-5}}.get(method, {})
    return bayesnmf.fit(DRAWN.counts, rank=3, method=method, seed=0, options=kind(start="random", **settings),
                        row_names=ROWS, feature_names=NAMES)  # fmt: skip


def write(folder):
    fit = fitted().rename(["<b>B cells</b>", "T & cells", "$rest_$"])
    return bayesnmf.report(fit, folder / "report.html", groups=GROUPS, title="Blood <b>")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Return a page whose pictures are empty."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", lambda _, file, **__: file.write(bytes(24)))
        return write(tmp_path_factory.mktemp("pages"))


@pytest.fixture(scope="module")
def drawn_page(tmp_path_factory):
    return write(tmp_path_factory.mktemp("pages"))


def test_the_page_needs_no_other_file_and_every_name_is_text(page):
    found = Reader(page)
    assert {*found.tags} & {"iframe", "object", "embed", "i", "u", "b"} == set()
    assert found.tags.count("script") == 1  # whose digest is in the policy of the page
    assert all(each.startswith(("data:", "#section-")) for each in found.addresses)
    assert {"Blood <b>", "<b>B cells</b>", "T & cells", *MARKUP} <= {*found.texts}
    assert "url(" not in page.read_text(encoding="utf-8")
    assert "@import" not in page.read_text(encoding="utf-8")


def test_the_page_has_every_section_and_its_numbers(page):
    fit = fitted()
    texts = Reader(page).texts
    joined = " ".join(texts)
    for heading in ("What the samples consist of", "Components", "Convergence", "Uncertainty", "How to repeat it",
                    "Could the model have made these counts?", "Methods, for a paper", "How to cite",
                    "Glossary"):  # fmt: skip
        assert texts.count(heading) == 2  # in the list of contents, and above the section
    assert "30 × 12" in joined
    assert f"{fit.trace[-1]:,.3f}" in joined
    shares = fit.expected_sizes / fit.expected_sizes.sum()
    assert {f"{share:.1%}" for share in shares} <= {*texts}
    table = bayesnmf.markers(fit, 10)
    assert f"{table['lfc_next'].iloc[0]:.1f} [{table['lfc_next_low'].iloc[0]:.1f}, " in joined
    assert "Cemgil" in joined
    assert repr(fit.options) in joined
    assert "too narrow" in joined


def test_the_settings_repeat_the_fit(page, tmp_path):
    fit = fitted()
    fit.save(tmp_path / "fit.nc")
    code = re.search(r"<code>(.*?)</code>", page.read_text(encoding="utf-8"), re.DOTALL)[1].replace("&#34;", '"')
    names = {}
    exec(code.replace("fit.nc", str(tmp_path / "fit.nc")), names)
    np.testing.assert_array_equal(names["again"].components, fit.components)


@pytest.mark.usefixtures("without_pictures")
@pytest.mark.parametrize("method", ["map", "gibbs"])
@pytest.mark.filterwarnings("ignore:gibbs did not converge:bayesnmf.ConvergenceWarning")
def test_pages_of_other_methods_say_what_their_intervals_are(method, tmp_path):
    fit = fitted(method, **({"chains": 2, "warmup": 10, "draws": 20} if method == "gibbs" else {}))
    joined = " ".join(Reader(bayesnmf.report(fit, tmp_path / "page.html")).texts)
    assert ("point estimate" in joined) == (method == "map")
    assert ("posterior draws" in joined) == (method == "gibbs")
    assert ("Cautions" in joined) == (method == "gibbs")  # the chains are far too short


@pytest.mark.usefixtures("without_pictures")
def test_a_component_without_features_of_its_own_says_so(tmp_path):
    shares = [[0.6, 0.2, 0.2], [0.2, 0.6, 0.2], [0.1, 0.2, 0.7], [0.3, 0.35, 0.35]]
    fit = bayesnmf.fit(np.full((6, 3), 50), rank=4, method="map", seed=0, fixed_components=shares,
                       options=MAP(start="random"))  # fmt: skip
    texts = Reader(bayesnmf.report(fit, tmp_path / "page.html")).texts
    assert texts.count("no feature has its largest share in this component") == 1


@pytest.mark.usefixtures("without_pictures")
@pytest.mark.parametrize("counts", [np.zeros((3, 4)), [[3, 0, 1, 2]]], ids=["rows of zeros", "a single row"])
def test_a_single_component_of_little(counts, tmp_path):
    fit = bayesnmf.fit(counts, rank=1, seed=0, options=QUICK)
    assert "1 component of" in bayesnmf.report(fit, tmp_path / "one.html").read_text(encoding="utf-8")


def test_a_picture_of_names_in_any_script_has_no_warnings():
    names = [f"基因{j}" for j in range(len(NAMES))]
    fit = bayesnmf.fit(DRAWN.counts, rank=2, seed=0, feature_names=names, options=QUICK)
    address = parts.drawn(lambda: plots.components(fit, n_features=2), "Components.").source
    assert base64.b64decode(address.removeprefix("data:image/png;base64,")).startswith(b"\x89PNG")


@pytest.mark.long
def test_names_in_any_script_are_text(tmp_path, monkeypatch):
    """Figures may have boxes, but no warning for every letter."""
    monkeypatch.setattr(parts, "DPI", 20)
    names = [f"基因{j}" for j in range(len(NAMES))]
    fit = bayesnmf.fit(DRAWN.counts, rank=2, seed=0, feature_names=names, options=QUICK)
    found = Reader(bayesnmf.report(fit, tmp_path / "page.html"))
    assert any(text.startswith("基因") for text in found.texts)
    pictures = [each for each in found.addresses if each.startswith("data:image/png;base64,")]
    assert len(pictures) == 5
    assert all(base64.b64decode(each.split(",")[1]).startswith(b"\x89PNG") for each in pictures)


@pytest.mark.usefixtures("without_pictures")
def test_pages_of_new_rows_say_so(tmp_path):
    whole = fitted(tol=1e-3)
    whole.save(tmp_path / "first.nc")
    new = whole.project(DRAWN.counts.rows(slice(4)))
    new.save(tmp_path / "fit.nc")
    with pytest.warns(bayesnmf.DataWarning, match="lifts are against the rows of this projection"):
        page = bayesnmf.report(bayesnmf.load(tmp_path / "fit.nc"), tmp_path / "new.html")
    assert "3 components, held from another fit, so that only the loadings were" in " ".join(Reader(page).texts)
    code = html.unescape(re.search(r"<code>(.*?)</code>", page.read_text(encoding="utf-8"), re.DOTALL)[1])
    names = {}
    for name in ("first.nc", "fit.nc"):
        code = code.replace(f'"{name}"', repr(str(tmp_path / name)))
    exec(code, names)
    np.testing.assert_array_equal(names["again"].loadings, new.loadings)


@pytest.mark.usefixtures("without_pictures")
def test_pages_of_given_components_say_so(tmp_path):
    given = bayesnmf.fit(DRAWN.counts, rank=3, seed=0, fixed_components=DRAWN.components[:2], options=QUICK)
    text = bayesnmf.report(given, tmp_path / "given.html").read_text(encoding="utf-8")
    assert "3 components, of which 2 were given" in text
    assert "array(" not in text


@pytest.mark.usefixtures("without_pictures")
def test_pages_of_covariates_have_their_effects(tmp_path):
    x = np.linspace(-1, 1, DRAWN.counts.shape[0])
    given = bayesnmf.fit(DRAWN.counts, rank=3, seed=0, covariates={"age": x}, options=QUICK)
    text = bayesnmf.report(given, tmp_path / "given.html").read_text(encoding="utf-8")
    assert "What the loadings depend on" in text
    row = given.effects().loc[(0, "age")]
    assert f"{row.effect:.3g} [{row.low:.3g}, {row.high:.3g}]" in text


@pytest.mark.usefixtures("without_pictures")
def test_groups_have_a_table_and_samples_without_one_are_left_out(tmp_path):
    fit = fitted()
    groups = ["one", None, "two"] * 10
    with pytest.warns(bayesnmf.DataWarning, match="10 of 30 rows, which are left out") as told:
        texts = Reader(bayesnmf.report(fit, tmp_path / "page.html", groups=groups)).texts
    assert len(told) == 1
    assert "10 samples without a group are left out." in " ".join(texts)
    shares = bayesnmf.to_topic_model(fit).proportions
    at = texts.index("mean share of")
    found = [text for text in texts[at + 1 :] if text]
    assert found[:2] == ["one (10)", "two (10)"]
    both = zip(shares[::3].mean(axis=0), shares[2::3].mean(axis=0), strict=True)
    assert found[2:11] == [
        each for k, (one, two) in enumerate(both) for each in (f"component {k}", f"{one:.1%}", f"{two:.1%}")
    ]


@pytest.mark.usefixtures("without_pictures")
def test_images_and_exposures(tmp_path):
    counts = bayesnmf.datasets.digits().rows(slice(60))
    fit = bayesnmf.fit(counts, rank=2, seed=0, row_exposure=np.linspace(1, 2, 60), options=QUICK)
    text = bayesnmf.report(fit, tmp_path / "digits.html", image_shape=(8, 8)).read_text(encoding="utf-8")
    assert "The components as images." in text
    assert "per unit of exposure" in text


@pytest.mark.usefixtures("without_pictures")
@pytest.mark.filterwarnings("ignore::bayesnmf.ConvergenceWarning")
def test_known_components_are_named_with_their_cosines(tmp_path):
    fit = fitted("gibbs", chains=1, draws=20, warmup=20)
    names = ["<b>SBS1</b>", "SBS5", "SBS3"]
    known = pd.DataFrame(DRAWN.components[[2, 0]], names[:2], NAMES)
    found = bayesnmf.match(fit, known, least=0.1)
    texts = Reader(bayesnmf.report(fit, tmp_path / "known.html", known=found)).texts
    assert "Known components" in texts
    for each in found.table.itertuples():
        at = texts.index(str(each.reference))
        assert texts[at - 1 : at + 2] == [
            f"component {each.component}", each.reference, f"{each.cosine:.2f} [{each.low:.2f}, {each.high:.2f}]"
        ]  # fmt: skip
    assert f"Without a match: component {found.unmatched[0]}." in texts
    assert "Known components" not in Reader(bayesnmf.report(fit, tmp_path / "plain.html")).texts


@pytest.mark.usefixtures("without_pictures")
def test_a_page_of_a_comparison(tmp_path, monkeypatch):
    monkeypatch.setattr(measures, "MOST_SCORE_DRAWS", 200)
    settings = Settings(options={"map": MAP(start="svd"), "vi": VI(start="svd", tol=1e-3)}, dispersed=False)
    found = bayesnmf.compare(DRAWN.counts, rank=2, methods=["map", "vi"], seed=0, settings=settings)
    page = bayesnmf.report(found, tmp_path / "compare.html")
    texts = Reader(page).texts
    assert "log-likelihood at Eθ·Eβ" in texts
    assert f"{found.table.loc['vi', 'elbo_marginal']:,.1f}" in texts
    assert "The methods side by side" in texts


@pytest.mark.parametrize(
    ("source", "path", "more", "error", "rule"),
    [
        (
            "fit.nc",
            "a.html",
            {},
            TypeError,
            "source must be a result of bayesnmf.fit or bayesnmf.compare: found 'fit.nc'",
        ),
        (None, "a.pdf", {}, ValueError, "path must end in .html"),
        (None, "deep/a.html", {}, ValueError, "path must be in a folder that exists"),
        (None, "a.html", {"title": 3}, TypeError, "title must be text"),
        (None, "a.html", {"groups": ["x"]}, ValueError, "groups must have one entry for each of 30 rows"),
        (None, "a.html", {"image_shape": (2, 2)}, ValueError, "image_shape"),
        (None, "a.html", {"known": [[1.0] * 12]}, TypeError, "known must be"),
        (None, "a.html", {"selection": 3}, TypeError, r"selection must be a result of bayesnmf\.select"),
        (None, "a.html", {"modes": 3}, TypeError, r"modes must be a result of bayesnmf\.modes"),
    ],
)
def test_what_cannot_be_a_page_is_refused_and_leaves_no_file(source, path, more, error, rule, tmp_path):
    with pytest.raises(error, match=rule):
        bayesnmf.report(source or fitted(), tmp_path / path, **more)
    assert not list(tmp_path.iterdir())


# --- in a browser ---------------------------------------------------------------------------------------------


@in_a_browser
@pytest.mark.parametrize(
    "width",
    mostly_long([pytest.param(390, id="phone"), pytest.param(2560, id="wide"), pytest.param(1280, id="laptop")], 2),
)
def test_a_browser_shows_it_whole(drawn_page, tmp_path, width):
    found, errors = probe(drawn_page.read_text(encoding="utf-8"), tmp_path, width)
    assert found["images"] == [True] * 5
    assert found["scripts"] == 2  # its own, and the probe
    assert found["width"] == width
    assert found["page"] <= width
    assert found["cut"] == []
    assert found["beyond"] == 0
    assert found["squeezed"] == 0
    assert "CONSOLE" not in errors


OPENED = """
  const fits = each => each.getBoundingClientRect().right <= innerWidth;
  const whole = document.querySelector("dialog");
  return [...document.querySelectorAll(".picture img")].map(each => {
    const before = fits(each) && !whole.open;
    each.click();
    const large = whole.querySelector("img");
    const same = whole.open && large.src === each.src && large.alt === each.alt && large.width === each.naturalWidth;
    const reached = whole.scrollWidth >= large.width && whole.scrollHeight >= large.height;
    large.click();
    return before && same && reached && !whole.open;
  });
"""


@in_a_browser
@pytest.mark.parametrize("width", mostly_long([pytest.param(1280, id="laptop"), pytest.param(390, id="phone")]))
def test_pictures_fit_the_page_and_open_in_full_size(drawn_page, tmp_path, width):
    found, errors = probe(drawn_page.read_text(encoding="utf-8"), tmp_path, width, OPENED)
    assert found["more"] == [True] * 5
    assert "CONSOLE" not in errors


USED = """
  const table = [...document.querySelectorAll(".wide > table")].find(each => each.tHead.innerText.includes("lfsr"));
  const texts = column => [...table.tBodies[0].rows].filter(row => !row.hidden).map(row => row.cells[column].innerText);
  const press = column => table.tHead.rows[0].cells[column].querySelector("button").click();
  const filter = table.parentElement.previousElementSibling.querySelector("input");
  const csv = csvOf(table);
  press(3); const up = texts(3); press(3); const down = texts(3);
  filter.value = "CELLS gene"; filter.dispatchEvent(new Event("input")); const filtered = texts(1);
  return { up, down, filtered, csv, part: csvOf(table) };
"""


@pytest.mark.long
@in_a_browser
def test_tables_are_sorted_filtered_and_downloaded(page, tmp_path):
    found, errors = probe(page.read_text(encoding="utf-8"), tmp_path, 1280, USED)
    used = found["more"]
    assert "CONSOLE" not in errors
    assert [float(each) for each in used["up"]] == sorted(float(each) for each in used["up"])
    assert used["down"] == sorted(used["down"], key=float, reverse=True)
    assert used["filtered"]
    assert all(each.startswith("gene ") for each in used["filtered"])
    assert pd.read_csv(io.StringIO(used["part"]))["feature"].tolist() == used["filtered"]  # what is shown
    table = pd.read_csv(io.StringIO(used["csv"]))
    own = bayesnmf.markers(fitted(), 10, draws=200)
    own = own[own["lfc_next"] > 0].set_index("feature")
    assert {*MARKUP} & {*own.index} == {*MARKUP} & {*table["feature"]}  # quotes and commas are kept
    assert [*table.columns] == ["component", "feature", "share", "lift", "log2 change", "log2 change low",
                                "log2 change high", "lfsr"]  # fmt: skip
    for row in table.itertuples():
        assert row.share == pytest.approx(own.loc[row.feature, "share"])
        assert row[7] == pytest.approx(own.loc[row.feature, "lfc_next_high"])


DOWNLOADED = """
  const table = document.querySelector(".wide > table");
  if (table.tBodies[0].rows.length > 12) table.tBodies[0].rows[12].hidden = true;
  return csvOf(table);
"""


@in_a_browser
def test_a_download_has_names_as_they_are_and_numbers_before_they_were_rounded(tmp_path):
    names = ["a [b, c]", "1,234", "50%", "=cmd|' /C calc'!A0", "@SUM(1)", "-3", *"ghijkl", "hidden"]
    rate = Number("< 0.005", 0.0)
    rows = [[name, name, Number("1,234", 1234), share(1 / 3), Number("0.5 [0.1, 0.9]", 0.5, 0.1, 0.9), rate]
            for name in names]  # fmt: skip
    headings = ["sample", "=feature", "counts", "share", "change", "lfsr"]
    shown = pages.render(Page("title", [Section("Table", tables=[Table(headings, rows)])]))
    found, errors = probe(shown, tmp_path, 1280, DOWNLOADED)
    assert "CONSOLE" not in errors
    table = pd.read_csv(io.StringIO(found["more"]))
    assert [*table.columns] == ["sample", "'=feature", "counts", "share", "change", "change low", "change high", "lfsr"]
    guarded = [f"'{name}" if name[0] in "=@" else name for name in names[:-1]]  # -3 is a number
    assert table["sample"].tolist() == table["'=feature"].tolist() == guarded
    assert table.iloc[0, 2:].tolist() == [1234, pytest.approx(1 / 3, rel=1e-15), 0.5, 0.1, 0.9, 0.0]


@in_a_browser
def test_the_probe_would_find_faults(drawn_page, tmp_path):
    """A picture that is missing, a word too long for the page, and an error of a script."""
    fault = "<img src='missing.png'><p style='white-space: nowrap'>" + "word " * 200 + "</p><script>nothing()</script>"
    found, errors = probe(drawn_page.read_text(encoding="utf-8").replace("</main>", fault + "</main>"), tmp_path, 390)
    assert found["images"].count(False) == 1
    assert found["cut"]
    assert found["page"] > 390
    assert "CONSOLE" in errors


@in_a_browser
def test_it_prints_on_few_pages(drawn_page, tmp_path):
    assert pages_of_print(drawn_page, tmp_path) <= 5
    assert len(re.findall(rb"/Subtype\s*/Image", (tmp_path / "page.pdf").read_bytes())) >= 5


def test_the_template_refuses_what_it_does_not_know():
    with pytest.raises(Exception, match="has no attribute"):
        pages.render(Page("title", [object()]))


def test_there_are_words_for_every_model_and_method():
    from bayesnmf.options import FOREIGN, METHODS
    from bayesnmf.pages.words import WORDS
    from bayesnmf.priors.specification import MODELS

    assert {*WORDS["models"]} == {*MODELS}
    assert all("cite" in each for each in WORDS["models"].values())
    assert {*WORDS["methods"]} == {*METHODS, *FOREIGN}


@pytest.mark.long
@in_a_browser
def test_a_whole_real_matrix(tmp_path):
    """All counts of pbmc_facs: a page that can be sent by mail, and is whole at each width."""
    counts = real_counts("pbmc_facs")
    about = json.loads(find_data("pbmc_facs").with_suffix(".json").read_text(encoding="utf-8"))
    fit = bayesnmf.fit(counts, rank=6, seed=0)
    page = bayesnmf.report(fit, tmp_path / "pbmc.html", groups=about["row_meta"]["celltype"])
    assert page.stat().st_size < 5e6
    for width in (390, 1280):
        found, errors = probe(page.read_text(encoding="utf-8"), tmp_path, width)
        assert (found["cut"], found["page"] <= width, all(found["images"])) == ([], True, True)
        assert "CONSOLE" not in errors
    assert pages_of_print(page, tmp_path) <= 5
    assert "checks of the model failed" in " ".join(Reader(page).texts)


@pytest.mark.long
@in_a_browser
def test_many_components_are_no_smear(tmp_path):
    """79 components, as the catalogue of COSMIC has: twelve have colours, tables have all, and the page stays short."""
    made = bayesnmf.simulate(size=(200, 96), rank=79, totals=3000, seed=0)
    fit = bayesnmf.fit(made.counts, rank=79, seed=0, fixed_components=made.components, options=QUICK)
    page = bayesnmf.report(fit, tmp_path / "page.html")
    texts = Reader(page).texts
    assert "others (67)" in texts
    assert {f"component {k}" for k in range(79)} <= {*texts}
    for width in (390, 1280):
        found, errors = probe(page.read_text(encoding="utf-8"), tmp_path, width)
        assert (found["cut"], found["page"] <= width, all(found["images"])) == ([], True, True)
        assert "CONSOLE" not in errors
    assert pages_of_print(page, tmp_path) <= 10


@pytest.mark.usefixtures("without_pictures")
def test_the_page_of_several_matrices_has_a_section_for_each(tmp_path):
    X = np.random.default_rng(0).poisson(4, (8, 10))
    fit = bayesnmf.fit({"words": X[:, :6], "links": X[:, 6:]}, rank=2, seed=0, method="map", noise={"links": "nb1"})
    text = bayesnmf.report(fit, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<h2>Components: words</h2>" in text
    assert "<h2>Components: links</h2>" in text
    assert "noise=fit.noise.with_dispersion(None)" in text
    own = bayesnmf.report(fit.matrix("links"), tmp_path / "own.html").read_text(encoding="utf-8")
    assert "Replicated counts are made of all matrices of a fit together" in own


def test_the_noise_is_told_with_the_model():
    fit = fitted("map")
    noisy = replace(fit, noise=bayesnmf.NegativeBinomial("quadratic", 0.1))
    told = "negative binomial noise: variance mean + 0.1 × mean², in place of the Poisson distribution"
    assert [told in methods(read(each, Given())).text[0] for each in (fit, noisy)] == [False, True]
