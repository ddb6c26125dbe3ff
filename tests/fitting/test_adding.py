"""A method is added in one file, outside the package: a class of options, a runner, and one record of `METHODS`."""

from dataclasses import dataclass, field
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from smallfits import COUNTS, QUICK, K, fit, quietly

import bayesnmf
from bayesnmf import MAP, Priors, plots
from bayesnmf.fitting.closed_form import fit_of_ascent
from bayesnmf.fitting.problems import point_or_mean_field, start_state
from bayesnmf.inference.ascent.coordinate_ascent import ascend
from bayesnmf.inference.ascent.course import Schedule
from bayesnmf.options import METHODS, Method
from bayesnmf.options.algorithms import SCHEDULES, UpdateOrder
from bayesnmf.studies.comparison import measures
from bayesnmf.studies.comparison.comparing import Settings


@dataclass(frozen=True, eq=False, kw_only=True)
class FewSteps:
    """Options of a method that takes a few steps of EM from a start, and calls that converged."""

    priors: Priors = field(default_factory=Priors)
    start: Any = "svd"
    steps: int = 3


def fit_few_steps(job):
    """Run the method."""
    problem = point_or_mean_field(job.counts, MAP(priors=job.options.priors))
    state = start_state(problem, job.options.start, job.rank, np.random.default_rng(job.seed))
    ascent = ascend(problem, state, Schedule(max_iter=job.options.steps, tol=0))
    return fit_of_ascent(job, ascent._replace(status=ascent.status._replace(converged=True)))


@pytest.fixture
def few_steps(monkeypatch):
    """Add the method."""
    record = Method(FewSteps, f"{__name__}:fit_few_steps", "point", "log joint", "raise steps", 6)
    monkeypatch.setitem(METHODS, "few_steps", record)
    return bayesnmf.fit(COUNTS, rank=K, method="few_steps", seed=0)


def test_an_added_method_fits(few_steps):
    plain = MAP(algorithm="em", start="svd", extrapolate=False, max_iter=3, tol=0)
    by_map = bayesnmf.fit(COUNTS, rank=K, method="map", seed=0, options=plain)
    np.testing.assert_array_equal(few_steps.components, by_map.components)
    assert repr(few_steps).startswith("<bayesnmf.Fit gamma_poisson by few_steps, rank")
    assert "log joint" in repr(few_steps)


def test_an_added_method_is_saved_and_transforms(few_steps, tmp_path):
    few_steps.save(tmp_path / "fit.nc")
    again = bayesnmf.load(tmp_path / "fit.nc")
    assert again.options.steps == 3
    np.testing.assert_array_equal(again.components, few_steps.components)
    np.testing.assert_array_equal(again.transform(COUNTS), few_steps.transform(COUNTS))


@quietly
def test_an_added_method_is_drawn(few_steps):
    axes = np.ravel(plots.objectives({"few_steps": few_steps, "vi": fit()}))
    titles = sorted(ax.get_title().split("\n")[0] for ax in axes)
    assert titles == ["evidence lower bound", "log joint"]  # never on one axis
    plt.close("all")


def test_an_added_method_is_compared(few_steps, monkeypatch):
    monkeypatch.setattr(measures, "MOST_SCORE_DRAWS", 200)
    settings = Settings(options={"vi": QUICK}, dispersed=False)
    result = bayesnmf.compare(COUNTS, rank=K, methods=("few_steps", "vi"), settings=settings)
    assert list(result.table.index) == ["few_steps", "vi"]
    assert np.isfinite(result.table.loc["few_steps", "heldout_thinned"])


def test_options_of_another_method_are_refused(few_steps):
    with pytest.raises(TypeError, match=r"options must be bayesnmf\.FewSteps"):
        bayesnmf.fit(COUNTS, rank=K, method=few_steps.method, options=MAP())


@pytest.mark.parametrize("one_side", [False, True])
def test_an_added_schedule_is_followed(one_side, monkeypatch):
    """The components first, then the loadings: what order="components" does under the alternating schedule."""
    monkeypatch.setitem(SCHEDULES, "reversed", UpdateOrder(lambda sweeps: [(1, False), (0, True)], one_side=one_side))
    plain = {"algorithm": "em", "start": "svd", "extrapolate": False, "max_iter": 5, "tol": 0}
    fits = [
        bayesnmf.fit(COUNTS, rank=K, method="map", seed=0, options=MAP(**plain, **stated))
        for stated in ({"schedule": "reversed"}, {"schedule": "alternating", "order": "components"})
    ]
    np.testing.assert_allclose(fits[0].trace, fits[1].trace, rtol=1e-12)
    np.testing.assert_allclose(fits[0].components, fits[1].components, rtol=1e-10)
