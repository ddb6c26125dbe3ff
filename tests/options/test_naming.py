"""Names of other libraries are refused with those that are meant."""

import inspect

import pytest

import bayesnmf
from bayesnmf.options.methods import MEANT, METHODS

COUNTS = [[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]]


@pytest.mark.parametrize(
    ("message", "keywords"),
    [
        ("fit has no argument 'n_components': give rank$", {"n_components": 2}),
        ("fit has no argument 'random_state': give seed$", {"random_state": 0}),
        (r"give options=bayesnmf.VI\(restarts=\.\.\.\); VI, MAP and BLD have it", {"restarts": 3}),
        (r"give options=bayesnmf.MAP\(restarts=\.\.\.\); MAP, VI and BLD have it", {"n_init": 3, "method": "map"}),
        (r"give options=bayesnmf.Gibbs\(thin=\.\.\.\)", {"thin": 2, "method": "gibbs"}),
        (r"'colour': its arguments are counts, model, rank, method", {"colour": 1}),
    ],
)
def test_unknown_arguments_are_refused_with_the_name_that_is_meant(message, keywords):
    with pytest.raises(TypeError, match=message):
        bayesnmf.fit(COUNTS, **keywords)


def test_other_functions_explain_names_too():
    with pytest.raises(TypeError, match="modes has no argument 'n_components': give rank"):
        bayesnmf.modes(COUNTS, n_components=2)
    with pytest.raises(TypeError, match="select has no argument 'random_state': give seed"):
        bayesnmf.select(COUNTS, random_state=2)


def test_the_signature_is_that_of_the_function():
    assert list(inspect.signature(bayesnmf.fit).parameters)[:4] == ["counts", "model", "rank", "method"]


def test_what_is_meant_exists():
    options = {field for each in METHODS.values() for field in each.options.__dataclass_fields__}
    assert set(MEANT.values()) <= options | set(inspect.signature(bayesnmf.fit).parameters)
    assert not set(MEANT) & options


@pytest.mark.parametrize(
    ("typed", "meant"), [("lda", "dirichlet_poisson"), ("LDA", "dirichlet_poisson"), ("NMF", "poisson")]
)
def test_models_of_other_libraries_are_refused_with_ours(typed, meant):
    for function in (bayesnmf.fit, bayesnmf.modes):
        with pytest.raises(ValueError, match=f"found '{typed}'; did you mean '{meant}'"):
            function(COUNTS, typed)


def test_warnings_point_at_the_line_of_the_user():
    with pytest.warns(bayesnmf.ConvergenceWarning) as caught:
        bayesnmf.fit(COUNTS, rank=2, options=bayesnmf.VI(max_iter=1, start="random"), seed=0)
    assert caught[0].filename == __file__
