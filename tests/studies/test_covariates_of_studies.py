"""Studies of many fits with covariates: modes, and ranks by held-out entries."""

import numpy as np
import pandas as pd
import pytest
from plain import plain_vi

import bayesnmf

N = 40
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"age": RNG.uniform(20, 80, N), "arm": RNG.choice(["a", "b"], N)})
COUNTS = RNG.poisson(RNG.gamma(2, 10, (N, 2)) @ np.array([[0.7, 0.3, 0, 0], [0, 0, 0.4, 0.6]]))
pytestmark = pytest.mark.filterwarnings("ignore::bayesnmf.inference.status.ConvergenceWarning")


def test_modes_have_effects():
    found = bayesnmf.modes(
        COUNTS, rank=2, starts=2, jobs=1, scored=0, formula="~ arm", covariates=FRAME, options=plain_vi(max_iter=20)
    )
    assert len(found.best.effects()) == 4


def test_calibration_is_refused():
    given = bayesnmf.simulate(size=(N, 5), rank=2, covariates=FRAME[["age"]], seed=0).priors
    with pytest.raises(ValueError, match="calibrate does not rank effects of covariates"):
        bayesnmf.calibrate(size=(N, 5), rank=2, priors=given, simulations=2)


def test_ranks_are_compared_with_covariates():
    given = {
        "ranks": [1, 2],
        "splits": 1,
        "check": False,
        "options": plain_vi(max_iter=20),
        "covariates": FRAME[["age"]],
    }
    found = bayesnmf.select(COUNTS, **given)
    assert found.best.rank == 2
    for criterion, words in (("heldout", "withhold="), ("stability", "'stability'"), ("evidence", "'evidence'")):
        more = {"criterion": criterion, "splits": None, "method": None, "options": None}
        with pytest.raises(ValueError, match=f"covariates need criterion='masked', or .*: found {words}"):
            bayesnmf.select(COUNTS, **given | more)
