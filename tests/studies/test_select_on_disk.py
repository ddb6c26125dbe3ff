"""`select` with counts on disk: the same splits, fits and scores as in memory."""

import anndata
import numpy as np
import pytest
from scipy.sparse import csr_matrix
from suites import mostly_long

import bayesnmf
from bayesnmf import VI, Blocks, Gibbs
from bayesnmf.data.splitting import split_counts
from bayesnmf.studies.selection import masked

pytestmark = [
    pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.* did not converge:bayesnmf.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:.*:bayesnmf.DataWarning"),
]
X = bayesnmf.simulate(size=(103, 30), rank=3, totals=90, seed=1).counts.matrix.toarray().astype(int)
X[[5, 100]] = 0
CHAIN = Gibbs(algorithm="allocations", start="random", chains=1, warmup=1, draws=4)
EXPOSURE = np.linspace(0.5, 2, len(X))


@pytest.fixture(scope="module")
def blocks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("selected")
    anndata.AnnData(csr_matrix(X.astype(np.float32))).write_h5ad(folder / "cells.h5ad")
    return Blocks(folder / "cells.h5ad", nonzeros=450, scratch=folder / "scratch")


@pytest.mark.parametrize(
    ("model", "method", "options", "exposure", "ranks"),
    mostly_long(
        [
            ("dirichlet_poisson", "gibbs", CHAIN, None, [2, 3]),
            ("gamma_poisson", "vi", VI(algorithm="coordinate", start="svd", max_iter=3), EXPOSURE, [2]),
        ]
    ),
)
def test_selections_are_those_in_memory(blocks, model, method, options, exposure, ranks):
    """A row that is thinned with other random numbers, or predicted twice, would move a score by 1e-4."""
    given = {"options": options, "seed": 1, "splits": len(ranks), "row_exposure": exposure, "criterion": "heldout"}
    one, two = (bayesnmf.select(counts, [model], ranks, method, **given) for counts in (blocks, X))
    np.testing.assert_allclose(one.table.to_numpy(float), two.table.to_numpy(float), rtol=1e-9, atol=1e-12)
    assert one.best == two.best
    np.testing.assert_allclose(one.checks.table.to_numpy(float), two.checks.table.to_numpy(float), rtol=1e-9)
    assert len(list(blocks.scratch.glob("counts-*"))) == 1, "the stores of the splits are removed"


@pytest.mark.parametrize("withhold", [0.0, 0.3])
def test_splits_are_those_in_memory(blocks, withhold):
    counts = bayesnmf.fit(blocks, rank=1, options=VI(max_iter=0, start="random")).counts
    splits = (split_counts(given, 0.7, withhold, np.random.default_rng(4)) for given in (counts, bayesnmf.as_counts(X)))
    one, two = splits
    for name in ("train", "thinned", *(("seen", "withheld") if withhold else ())):
        ours, theirs = (getattr(split, name) for split in (one, two))
        np.testing.assert_array_equal(ours.rows(range(ours.shape[0])).matrix.toarray(), theirs.matrix.toarray())
    np.testing.assert_array_equal(one.rows, two.rows)
    np.testing.assert_array_equal(one.withheld_rows, two.withheld_rows)


@pytest.mark.parametrize("rows", [[3, 4, 5, 70, 102], [5, 3, 3], range(103), [102], [], range(0, 103, 24)])
def test_chosen_rows(blocks, rows):
    counts = bayesnmf.fit(blocks, rank=1, options=VI(max_iter=0, start="random")).counts
    np.testing.assert_array_equal(counts.rows(rows).matrix.toarray(), X[np.array(rows, int)])


@pytest.mark.parametrize(
    ("given", "small"),
    mostly_long(
        [
            ({"splits": 1}, masked.SMALL),
            ({"splits": 1}, 0),
            ({"criterion": "stability", "halves": 5, "ranks": [2]}, 0),
            ({"noise": ("poisson", "nb1")}, 0),
        ],
        3,
    ),
)
def test_other_criteria_are_those_in_memory(blocks, monkeypatch, given, small):
    """Masked entries by default: single ones, and groups, of which every block has a part; and halves of the rows."""
    monkeypatch.setattr(masked, "SMALL", small)
    given = {"ranks": [2, 3], "options": VI(algorithm="coordinate", start="svd", max_iter=2), "check": False, **given}
    one, two = (bayesnmf.select(counts, **given) for counts in (blocks, X))
    assert one.criterion == two.criterion == given.get("criterion", "masked")
    np.testing.assert_allclose(one.table.to_numpy(float), two.table.to_numpy(float), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(one.scores.to_numpy(float), two.scores.to_numpy(float), rtol=1e-9)
    assert one.best == two.best
    assert len(list(blocks.scratch.glob("counts-*"))) == 1, "the stores of the halves are removed"


def test_the_evidence_needs_counts_in_memory(blocks):
    with pytest.raises(ValueError, match=r"counts on disk need method='map', 'vi' or 'gibbs'.*found 'smc'"):
        bayesnmf.select(blocks, ranks=[2, 3], criterion="evidence")
