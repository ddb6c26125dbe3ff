"""Numbers as text."""

from __future__ import annotations

import pytest

from bayesnmf.text import p_value, rate


@pytest.mark.parametrize(("value", "shown"), [(0.0, "< 0.001"), (0.0009, "< 0.001"), (0.0346, "0.035"), (1.0, "1.000")])
def test_p_values_are_never_zero(value, shown):
    assert p_value(value) == shown


@pytest.mark.parametrize(
    ("value", "draws", "shown"),
    [
        (0.0, 3, "< 0.333"),
        (1 / 3, 3, "0.333"),
        (0.0, 20, "< 0.05"),
        (0.0, 200, "< 0.005"),
        (1 / 200, 200, "0.005"),
        (0.0, 4000, "< 0.001"),
        (1 / 4000, 4000, "< 0.001"),
    ],
)
def test_a_rate_is_not_below_what_its_draws_can_show(value, draws, shown):
    assert rate(value, draws) == shown
