"""What results show of themselves in a notebook: what they print, escaped, with what may be called next."""

from dataclasses import replace
from html import unescape

import pytest
from smallfits import COUNTS

import bayesnmf
from bayesnmf.cards import DOUBTFUL, GOOD, Card, Shown
from bayesnmf.noise.negative_binomial import NegativeBinomial
from bayesnmf.priors.checks import check_noise
from bayesnmf.results.describing import card_of
from bayesnmf.text import WIDTH, as_lines, table_of

RESULTS = {
    "predictive_checks": lambda: bayesnmf.predictive_checks(small_fit(), draws=20, refits=10),
    "linear_response": lambda: bayesnmf.linear_response(small_fit()),
    "posterior_agreement": lambda: bayesnmf.posterior_agreement({"vi": small_fit(), "gibbs": small_chains()}),
    "loo": lambda: bayesnmf.loo(small_chains()),
    "modes": lambda: bayesnmf.modes(COUNTS, rank=2, starts=2, scored=0, seed=0),
    "match": lambda: bayesnmf.match(small_chains(), small_fit()),
    "calibrate": lambda: bayesnmf.calibrate("gamma_poisson", "vi", simulations=12, size=(4, 3)),
    "select": lambda: bayesnmf.select(COUNTS, ranks=[1, 2], splits=2, seed=0),
}


def small_fit():
    return bayesnmf.fit(COUNTS, rank=2, seed=0)


def small_chains():
    with pytest.warns(bayesnmf.ConvergenceWarning):
        return bayesnmf.fit(COUNTS, rank=2, method="gibbs", seed=0, options=bayesnmf.Gibbs(warmup=20, draws=30))


class Told(Shown):
    """A result with text of a user in every place."""

    def __init__(self, note="<b>note</b>"):
        self.note = note

    def card(self):
        script = "<script>alert(1)</script>"
        return Card(script, ["name", "share & more"], [[script, "1"]], [self.note], [f"call({script!r})"], [script])


def test_text_of_users_is_escaped():
    html = Told()._repr_html_()
    assert "<script" not in html
    assert "<b>note" not in html
    assert html.count("&lt;script&gt;") == 4
    assert "share &amp; more" in html


def test_a_caution_colours_the_card():
    assert GOOD in Told()._repr_html_()
    assert DOUBTFUL not in Told()._repr_html_()
    html = Told("CAUTION too few draws")._repr_html_()
    assert DOUBTFUL in html
    assert "caution: too few draws" in html


@pytest.mark.parametrize("methods", [3, 12])
def test_a_table_fits_a_page_if_its_numbers_do_and_none_is_cut(methods):
    numbers = [f"-29,487.{place:02d}" for place in range(methods)]
    lines = as_lines(["title"], table_of(["a long name of what is measured", *map(str, range(methods))],
                              [["a name that is also rather long", *numbers]])).splitlines()  # fmt: skip
    assert all(number in " ".join(lines) for number in numbers)
    assert methods == 12 or max(map(len, lines)) <= WIDTH


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_shows_in_a_notebook_what_it_prints(name):
    found = RESULTS[name]()
    card, html, text = found.card(), unescape(found._repr_html_()), " ".join(repr(found).split())
    for each in (card.title, *card.headings, *(entry for line in card.lines for entry in line)):
        assert each in html
        assert all(word in text for word in each.split())  # of a heading that may be folded
    assert all(len(line) <= WIDTH for line in repr(found).splitlines())
    for note in card.notes:
        assert note.removeprefix("CAUTION ") in html
        assert note in text
    assert all(call in html for call in card.calls)
    assert card.calls


def test_a_fit_shows_what_it_prints_and_its_leading_features():
    found = small_fit().rename({0: "<i>first</i>"})
    html = found._repr_html_()
    assert "<i>" not in html
    for line in repr(found).removeprefix("<bayesnmf.Fit ").splitlines():
        assert line.strip().rstrip(">").removeprefix("caution: ") in unescape(html)
    for names in found.top_features(6).to_numpy().T:
        assert ", ".join(names) in unescape(html)


def test_the_card_of_a_selection_fits_the_best_with_its_noise():
    found = RESULTS["select"]()
    assert found.card().calls[1] == f"bayesnmf.fit(counts, 'gamma_poisson', rank={found.best.rank})"
    calls = {
        noise: replace(found, noise=check_noise(noise)).card().calls[1]
        for noise in ("nb2", NegativeBinomial("quadratic", 0.1))
    }
    assert [call.rpartition(", ")[2] for call in calls.values()] == ["noise='nb2')", "noise=found.noise)"]


@pytest.mark.parametrize("method", ["map", pytest.param("vi", marks=pytest.mark.long)])
@pytest.mark.parametrize("rank", [1, 2])
def test_every_call_that_the_card_of_a_fit_names_can_be_made(method, rank, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bayesnmf, "report", lambda fit, path: None)
    monkeypatch.setattr(bayesnmf.Fit, "with_intervals", lambda fit, kind: fit.method == "map" or 1 / 0)
    fit = bayesnmf.fit(COUNTS, rank=rank, method=method, seed=0)
    calls = card_of(fit).calls
    assert len(calls) == 2 + rank
    for call in calls:
        eval(call.split("  #")[0], {"bayesnmf": bayesnmf, "fit": fit})
