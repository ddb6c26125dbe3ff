"""Files of every earlier format version hold what they held when they were written, number by number."""

import json
import zipfile
from pathlib import Path

import anndata
import numpy as np
import pytest
from golden.saved_fits import COUNTS, plain
from sameness import same
from scipy.sparse import csr_matrix

import bayesnmf
from bayesnmf.data.blocks.opening import open_counts

GOLDEN = Path(__file__).parents[1] / "golden" / "saved_fits.zip"
with zipfile.ZipFile(GOLDEN) as files:
    NAMES = sorted(name.removesuffix(".nc") for name in files.namelist() if name.endswith(".nc"))
SINCE = {
    "Fit": {"sites": None},
    "Assignment": {"known": None},
}  # what results have had since it was written down what these files hold


@pytest.fixture
def of_earlier(tmp_path):
    """Return a function of the name of a file, which returns its path and what it held."""

    def read(name):
        with zipfile.ZipFile(GOLDEN) as files:
            return Path(files.extract(f"{name}.nc", tmp_path)), json.loads(files.read(f"{name}.json"), **no_number)

    no_number = {"parse_constant": str}  # NaN is not equal to itself
    return read


def text_of(value):
    return json.loads(json.dumps(plain(value)), parse_constant=str)


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith("_on_disk")])
def test_a_file_holds_what_it_held_and_is_saved_again(name, of_earlier, tmp_path):
    path, held = of_earlier(name)
    loaded = bayesnmf.load(path)
    if held.get("intervals"):  # replicates of rows came later
        held["intervals"] = {"variation": "counts", **held["intervals"]}
    assert text_of(loaded) == {**SINCE.get(held["kind"], {}), **held}
    loaded.save(tmp_path / "again.nc")
    assert same(bayesnmf.load(tmp_path / "again.nc"), loaded)


def test_every_version_is_here():
    assert {name.split("_")[1] for name in NAMES} == set("23456789")  # files of version 1 are in test_damaged_files.py


@pytest.mark.filterwarnings("ignore:The 'future.infer_string' option:Warning")  # of anndata
def test_counts_on_disk_of_version_5_are_known_by_their_sums(of_earlier, tmp_path):
    path, held = of_earlier("version_5_on_disk")
    with pytest.raises(ValueError, match="which is missing; move their folder there or beside the file"):
        bayesnmf.load(path)
    source = tmp_path / "counts.h5ad"
    anndata.AnnData(csr_matrix(np.array(COUNTS, np.float32))).write_h5ad(source)
    counts = open_counts(bayesnmf.Blocks(source, scratch=tmp_path), "float64")
    with pytest.warns(UserWarning, match=r"on_disk\.nc is unchecked in part: .* a digest of the sums"):
        loaded = bayesnmf.load(path)
    del held["counts"]["matrix"]["keeps"]  # what a process holds, and no file
    assert text_of(loaded) == {**SINCE.get(held["kind"], {}), **held}
    assert loaded.counts.store.folder == counts.store.folder
    loaded.save(tmp_path / "again.nc")
    np.testing.assert_array_equal(bayesnmf.load(tmp_path / "again.nc").loadings, loaded.loadings)
