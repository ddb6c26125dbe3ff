"""Files that were damaged before a call are refused or change nothing; `tests/damages.py` damages thousands of them."""

import warnings

import damages
import numpy as np
import pytest
from suites import mostly_long

pytestmark = pytest.mark.filterwarnings("ignore")
# By default few damages of few kinds: other tests of stores, of saved fits and of checkpoints flip many bits.
FEW, MANY = {"10x folder": 14, "checkpoint, map": 3, "fit.zarr": 3}, 40
CASES = [*FEW.items(), *((kind, MANY) for kind in damages.MAKERS)]


@pytest.mark.parametrize(("kind", "number"), mostly_long(CASES, len(FEW)))
def test_damaged_files_run_no_code_and_change_no_number_in_silence(kind, number, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        files, mark = damages.MAKERS[kind](tmp_path), tmp_path / "mark"
        expected = damages.undamaged(files, tmp_path)
        for seed in range(number):
            place = tmp_path / f"{seed}{files.one.suffix}"
            how = damages.damage(files, place, mark, np.random.default_rng(seed))
            assert damages.outcome(files, place, expected) in ("same", "refused"), how
            assert not mark.exists(), how
