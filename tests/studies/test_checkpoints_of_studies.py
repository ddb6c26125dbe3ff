"""Studies of many fits skip what an earlier call has done, and end with the same numbers."""

import numpy as np
import pandas as pd
import pytest
from plain import plain_map, plain_vi
from suites import mostly_long

import bayesnmf
from bayesnmf import SMC, Checkpoint
from bayesnmf.inference.tempering import annealing as tempering
from bayesnmf.options.methods import Method
from bayesnmf.studies.calibration import calibrating as calibration
from bayesnmf.studies.comparison import comparing as comparison
from bayesnmf.studies.comparison import measures
from bayesnmf.studies.comparison.comparing import Settings
from bayesnmf.studies.selection import held_out
from bayesnmf.studies.stability import runs as stability

X = bayesnmf.simulate(size=(10, 6), rank=2, totals=60, seed=1).counts.matrix.toarray().astype(int)
QUICK = plain_vi(max_iter=3, threads=1)
SHORT = {"chains": 1, "warmup": 1, "draws": 5}


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    """Short runs from other starts, and scores that are means of few draws."""
    monkeypatch.setattr(comparison, "DISPERSED", {"gibbs": SHORT})
    for module in (measures, held_out):
        monkeypatch.setattr(module, "SCORE_DRAWS", 20)
        monkeypatch.setattr(module, "MOST_SCORE_DRAWS", 20)


DONE = 2  # fits, before a study is killed


class Killed(BaseException):
    """Ends a study as a signal that cannot be caught would."""


def compared(checkpoint=None):
    chains = bayesnmf.Gibbs(start="random", **SHORT, threads=1)
    settings = Settings(options={"map": plain_map(max_iter=3, threads=1), "gibbs": chains})
    return bayesnmf.compare(X, rank=2, methods=("map", "gibbs"), settings=settings, checkpoint=checkpoint)


def selected(checkpoint=None):
    return bayesnmf.select(X, ranks=(1, 2), withhold=0, splits=2, options=QUICK, check=False, checkpoint=checkpoint)


def stable(checkpoint=None):
    return bayesnmf.select(
        X, ranks=(2, 3), criterion="stability", halves=5, options=QUICK, check=False, checkpoint=checkpoint
    )


def weighed(checkpoint=None):
    options = SMC(runs=4, particles=3, efficiency=0.5, threads=1)
    return bayesnmf.select(
        X[:5], ranks=(1, 2), criterion="evidence", options=options, check=False, checkpoint=checkpoint
    )


def calibrated(checkpoint=None, draws=19):
    given = {"simulations": 3, "draws": draws, "seed": 1, "options": QUICK}
    return bayesnmf.calibrate("gamma_poisson", "vi", **given, checkpoint=checkpoint)


def moded(checkpoint=None):
    return bayesnmf.modes(X, rank=2, starts=3, jobs=1, scored=0, options=QUICK, checkpoint=checkpoint)


STUDIES = {
    "compare": (compared, comparison, "fit"), "select": (selected, held_out, "fit"),
    "stability": (stable, stability, "fit"), "evidence": (weighed, tempering, "climb_ladder"),
    "calibrate": (calibrated, calibration, "fit"), "modes": (moded, stability, "fit"),
}  # fmt: skip


def numbers(found):
    if isinstance(found, bayesnmf.Calibration):
        return pd.DataFrame(np.column_stack([found.ranks]))
    table = found.table.drop(columns=["seconds"], errors="ignore")
    return table.select_dtypes("number")


@pytest.mark.parametrize("name", mostly_long(STUDIES, (0, 1, 3, 4, 5)))
def test_what_is_done_is_skipped(name, monkeypatch, tmp_path):
    study, module, what = STUDIES[name]
    plain, calls = getattr(module, what), []

    def counted(*given, **more):
        calls.append(0)
        return plain(*given, **more)

    def killed(*given, **more):
        if len(calls) == DONE:
            raise Killed
        return counted(*given, **more)

    monkeypatch.setattr(module, what, counted)
    expected = numbers(study())
    needed = len(calls)
    assert needed > DONE
    calls.clear()
    monkeypatch.setattr(module, what, killed)
    with pytest.raises(Killed):
        study(Checkpoint(tmp_path / "kept", seconds=1e-9) if name == "evidence" else tmp_path / "kept")
    made = runs_made(monkeypatch)
    monkeypatch.setattr(module, what, counted)
    pd.testing.assert_frame_equal(numbers(study(tmp_path / "kept")), expected)
    first = len(made)
    pd.testing.assert_frame_equal(numbers(study(tmp_path / "kept")), expected)
    assert len(made) == first, "what had ended ran again"
    assert first >= (0 if name == "evidence" else needed - DONE)


def runs_made(monkeypatch):
    """Return a list that grows with every run of a method."""
    made, plain = [], Method.run

    def run(method, job):
        made.append(0)
        return plain(method, job)

    monkeypatch.setattr(Method, "run", run)
    return made


def test_other_studies_are_refused_or_kept_apart(tmp_path):
    calibrated(tmp_path / "calibration")
    with pytest.raises(
        ValueError, match=r"checkpoint must contain fits of the same .* differs in draws \(19 there, 29"
    ):
        bayesnmf.calibrate(
            "gamma_poisson", "vi", simulations=2, draws=29, seed=1, options=QUICK, checkpoint=tmp_path / "calibration"
        )
    selected(tmp_path / "selection")
    before = len(list((tmp_path / "selection").iterdir()))
    bayesnmf.select(
        X + 1, ranks=(1, 2), withhold=0, splits=2, options=QUICK, check=False, checkpoint=tmp_path / "selection"
    )
    assert len(list((tmp_path / "selection").iterdir())) == 2 * before
