"""The loop that is compiled as a whole against that of the host: iterates, and where it stops."""

import numpy as np
import pytest
from devices import FAMILIES, NASTY, SAME, ascents, compare_ascents
from registry import plain_counts
from suites import mostly_long

from bayesnmf import Dirichlet, Gamma, Priors

pytestmark = pytest.mark.usefixtures("quick_compilation")

# --- whole ascents ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "method", "schedule", "order"),
    mostly_long(
        [
            pytest.param(FAMILIES[0], "map", "joint", "loadings", id="map"),
            pytest.param(FAMILIES[3], "vi", "alternating", "components", id="vi"),
        ]
    ),
)
def test_iterates_are_those_of_the_host(entry, method, schedule, order, device):
    stated = {"schedule": schedule, "order": order, "compiled": True}
    compare_ascents(*ascents(NASTY, method, entry.priors(), device, **stated), SAME)


@pytest.mark.long
@pytest.mark.parametrize(
    ("method", "stated"),
    [
        ("vi", {"tol": 1e-6, "extrapolate": True}),
        ("map", {"kkt_tol": 0.5}),
    ],
    ids=["settled over a window", "stationary"],
)
def test_it_stops_where_the_host_does(method, stated, device):
    priors, stated = Priors(Gamma(1.3, 0.2), Dirichlet(1.2)), {"max_iter": 3000, **stated, "compiled": True}
    host, other = ascents(plain_counts(), method, priors, device, **stated)
    assert other.status == host.status
    np.testing.assert_allclose(other.trace, host.trace, rtol=1e-9)
