"""Numbers as text."""

from __future__ import annotations

import pytest

from bayesnmf.text import p_value


@pytest.mark.parametrize(("value", "shown"), [(0.0, "< 0.001"), (0.0009, "< 0.001"), (0.0346, "0.035"), (1.0, "1.000")])
def test_p_values_are_never_zero(value, shown):
    assert p_value(value) == shown
