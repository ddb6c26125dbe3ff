"""What an editor offers after a call."""

import pytest


@pytest.mark.parametrize(
    ("call", "offered"),
    [("fit([[1]])", "summary"), ("select([[1]])", "best"), ("modes([[1]])", "best"), ("load('fit.nc')", "transform")],
)
def test_an_editor_completes_what_a_call_returns(call, offered):
    jedi = pytest.importorskip("jedi")
    code = f"import bayesnmf\nfound = bayesnmf.{call}\nfound.{offered[:3]}"
    assert offered in {each.name for each in jedi.Script(code).complete(3, 9)}
