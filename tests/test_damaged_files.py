"""Whatever is changed in a saved fit is refused, or changes nothing; and files of earlier versions still load."""

import zipfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import smallfits
from smallfits import COUNTS, K, quietly
from test_storage import same

import bayesnmf
from bayesnmf import BLD, VI, Gamma, Priors, bounds

pytestmark = quietly

GOLDEN = Path(__file__).parent / "golden"
FLIPS = 25  # of single bits in each file


@cache
def fitted(kind):
    """Return a small fit: by q, by draws, with learned priors, and of the best decomposition."""
    if kind == "learned":
        priors = Priors(Gamma(np.array(1.0), np.array(1.0)), None)
        return bayesnmf.fit(
            COUNTS, rank=K, seed=0, options=VI(max_iter=5, threads=1, learn=("loadings",), priors=priors)
        )
    if kind == "bld":
        return bayesnmf.fit(COUNTS, "dirichlet_gamma", K, "bld", seed=0, options=BLD(max_iter=5, threads=1))
    fit = smallfits.fit("dirichlet_gamma", kind)
    if kind == "gibbs":  # few draws, so that bits of all parts are flipped
        return replace(fit, _posterior=type(fit.posterior)(*(part[:, :3] for part in vars(fit.posterior).values())))
    return fit


KINDS = ("vi", "gibbs", "learned", "bld")
kinds = pytest.mark.parametrize("kind", KINDS)


def assert_refused_or_equal(path, fit):
    """Return whether a file is refused; it must be by ValueError, or give the fit that was saved."""
    try:
        loaded = bayesnmf.load(path)
    except ValueError:
        return True
    assert same(loaded, fit)
    return False


@kinds
def test_flipped_bits_of_netcdf(kind, tmp_path):
    path = tmp_path / "fit.nc"
    fitted(kind).save(path)
    content = path.read_bytes()
    fit = bayesnmf.load(path)
    rng = np.random.default_rng(KINDS.index(kind))
    refused = 0
    for place in rng.integers(len(content), size=FLIPS):
        changed = bytearray(content)
        changed[place] ^= 1 << rng.integers(8)
        path.write_bytes(changed)
        refused += assert_refused_or_equal(path, fit)
    assert refused > 0


def test_files_of_version_1_load(tmp_path):
    fit = bayesnmf.load(GOLDEN / "version_1_vi.nc")
    np.testing.assert_array_equal(fit.counts.matrix.toarray(), COUNTS)
    assert fit.row_names.tolist() == COUNTS.index.tolist()
    assert (fit.model, fit.method, fit.rank) == ("gamma_poisson", "vi", K)
    assert [*fit.options.learn] == ["loadings", "components"]
    assert np.shape(fit.priors.components.shape) == (K, 1)
    # The bound is a sum of some hundred terms, computed anew in another order.
    assert bounds.elbo_augmented(fit) == pytest.approx(fit.trace[-1], rel=1e-11)
    with zipfile.ZipFile(GOLDEN / "version_1_bld.zarr.zip") as archive:
        archive.extractall(tmp_path / "fit.zarr")
    fit = bayesnmf.load(tmp_path / "fit.zarr")
    assert (fit.model, fit.method, fit.rank) == ("dirichlet_gamma", "bld", K)
    np.testing.assert_allclose(fit.allocations().sum(axis=1), COUNTS, rtol=1e-12)
    for path in (tmp_path / "again.nc", tmp_path / "again.zarr"):
        fit.save(path)
        assert same(bayesnmf.load(path), fit)


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
def test_learned_priors_of_one_number_keep_their_type(suffix, tmp_path):
    fit = fitted("learned")
    assert isinstance(fit.priors.loadings.shape, np.ndarray)
    fit.save(tmp_path / f"fit{suffix}")
    assert same(bayesnmf.load(tmp_path / f"fit{suffix}").priors, fit.priors)
