"""Catalogues as files, in the layouts of COSMIC, written here by hand; and what a catalogue lacks, found beside it."""

import numpy as np
import pandas as pd
import pytest
from realdata import find_data

import bayesnmf
from bayesnmf.data.mutations import cn48_types, dbs78_types, id83_types, sbs96_types, sbs1536_types, sv32_types

KINDS = {
    "SBS96": sbs96_types(), "DBS78": dbs78_types(), "ID83": id83_types(), "CN48": cn48_types(), "SV32": sv32_types(),
    "SBS288": tuple(f"{strand}:{name}" for strand in "TUN" for name in sbs96_types()), "SBS1536": sbs1536_types(),
}  # fmt: skip
WRITTEN = {
    ".txt": {"sep": "\t", "lineterminator": "\n"},
    ".csv": {"sep": ",", "lineterminator": "\r\n"},
}


def signatures(kind, names):
    """Return signatures in columns, types in rows in an order that is not that of COSMIC."""
    rng = np.random.default_rng(0)
    types = rng.permutation(KINDS[kind])
    return pd.DataFrame(rng.dirichlet(np.full(len(types), 0.1), len(names)).T, types, names).rename_axis("Type")


@pytest.mark.parametrize("suffix", WRITTEN)
@pytest.mark.parametrize("kind", KINDS)
def test_types_in_rows_are_read_and_matched_by_name(tmp_path, kind, suffix):
    table, path = signatures(kind, ["A1", "B2", "C3a"]), tmp_path / f"COSMIC{suffix}"
    table.to_csv(path, **WRITTEN[suffix])
    known = bayesnmf.read_catalogue(path)
    assert list(known.index) == ["A1", "B2", "C3a"]
    np.testing.assert_allclose(known[table.index].T, table)
    shares = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.4, 0.6]]
    rate = pd.DataFrame(np.array(shares) @ table.T.to_numpy() * 3000, columns=table.index)[[*KINDS[kind]]]
    counts = rate.round().astype(int)
    found = bayesnmf.fit(counts, fixed_components=path, method="map", seed=0)
    assert found.rank == 3
    np.testing.assert_allclose(found.loadings / found.loadings.sum(axis=1, keepdims=True), shares, atol=0.02)
    chances = bayesnmf.assign(counts, path, chains=1, draws=5, warmup=10)
    assert list(chances.component_names) == ["A1", "B2", "C3a"]
    assert ((chances.presence > 0.5) == (np.array(shares) > 0)).all()


def test_a_signature_of_several_genomes_is_a_component_for_each(tmp_path):
    """As in COSMIC's file of one signature; the user takes that of one genome by its name."""
    table, path = signatures("DBS78", ["DBS1_GRCh37", "DBS1_GRCh38", "DBS1_mm10"]), tmp_path / "v3.4_DBS1_PROFILE.txt"
    table.to_csv(path, sep="\t")
    known = bayesnmf.read_catalogue(path).filter(like="GRCh38", axis="index")
    assert list(known.index) == ["DBS1_GRCh38"]
    np.testing.assert_allclose(known[table.index].iloc[0], table["DBS1_GRCh38"])


def cosine_of_return(known, lost, seed):
    """Remove a signature from those of 60 samples, 3 to 5 each; return its cosine with the free component of a fit."""
    rng = np.random.default_rng(seed)
    share = np.zeros((60, len(known)))
    for row in share:
        chosen = rng.choice(len(known), rng.integers(3, 6), replace=False)
        row[chosen] = rng.dirichlet(np.full(len(chosen), 2.0))
    counts = pd.DataFrame(rng.poisson(5000 * share @ known.to_numpy()), columns=known.columns)
    rest = known.drop(known.index[lost])
    back = bayesnmf.fit(counts, fixed_components=rest, rank=len(rest) + 1, seed=0).components[-1]
    own = known.to_numpy()[lost]
    return own @ back / np.linalg.norm(own) / np.linalg.norm(back)


def test_a_removed_component_comes_back():
    known = np.random.default_rng(3).dirichlet(np.full(40, 0.2), 20)
    assert cosine_of_return(pd.DataFrame(known), 4, 0) > 0.95


@pytest.mark.long
@pytest.mark.parametrize("seed", [0])
def test_signatures_that_are_removed_from_cosmic_come_back(seed):
    """Each of twenty chosen at random: of seeds 0 to 2, 53 of 60 have a cosine above 0.9, all with a type above 15 %.

    Flat ones (SBS3, SBS5) come back as a mixture with the others, and one of 60, SBS95, only with restarts.
    """
    there = find_data("pcawg_breast_sbs96")
    if there is None or not (path := there.with_name("COSMIC_v3.3.1_SBS_GRCh38.csv")).is_file():
        pytest.skip("COSMIC's table is not in $BAYESNMF_DATA")
    known = bayesnmf.read_catalogue(path)
    chosen = np.sort(np.random.default_rng(seed).choice(len(known), 20, replace=False))
    known = known.iloc[chosen].div(known.iloc[chosen].sum(axis=1), axis=0)
    peaked = (known > 0.15).any(axis=1).to_numpy()
    cosines = np.array([cosine_of_return(known, lost, seed) for lost in range(20)])
    assert cosines[peaked].min() > 0.9
    assert (cosines > 0.9).sum() >= 15


def test_features_that_the_counts_lack_are_left_out_of_a_catalogue():
    """Its components sum to 1 over the others, as if it had been made of these."""
    table = signatures("SBS96", ["one", "two"]).T
    counts = pd.DataFrame(np.random.default_rng(0).poisson(9, (8, 90)), columns=[*KINDS["SBS96"]][:90])
    kept = table[counts.columns]
    share = 1 - kept.sum(axis=1).min()
    message = (
        f"fixed_components have features beyond those of the counts, 6 left out: .*up to {share:.1%} of a component"
    )
    with pytest.warns(bayesnmf.DataWarning, match=message):
        found = bayesnmf.fit(counts, fixed_components=table, method="map", seed=0)
    np.testing.assert_allclose(found.components, kept.div(kept.sum(axis=1), axis=0), rtol=1e-12)
    gammas = bayesnmf.MAP(priors=bayesnmf.Priors(components=bayesnmf.Gamma(1.0, 1.0)))
    with pytest.warns(bayesnmf.DataWarning, match="6 left out"):
        cut = bayesnmf.fit(counts, fixed_components=5 * table, method="map", seed=0, options=gammas)
    np.testing.assert_allclose(cut.components, 5 * kept, rtol=1e-12)


def test_features_that_a_catalogue_lacks_are_refused():
    """Zeros would say that no known component has their counts."""
    table = signatures("SBS96", ["one", "two"]).T.iloc[:, 6:]
    counts = pd.DataFrame(np.random.default_rng(0).poisson(9, (8, 96)), columns=[*KINDS["SBS96"]])
    with pytest.raises(
        ValueError, match=r"fixed_components must have the 96 features of the counts .* 6 features missing"
    ):
        bayesnmf.fit(counts, fixed_components=table, method="map", seed=0)


def test_artefacts_and_other_tissues_are_left_out_by_one_argument(tmp_path):
    names = ["SBS1", "SBS27", "SBS45", "SBS4", "SBS60", "SBS95", "SBS7a", "SBS43_GRCh38", "SBS61"]
    pd.DataFrame(np.eye(9), names, sbs96_types()[:9]).rename_axis("Type").to_csv(tmp_path / "known.csv")
    path = tmp_path / "known.csv"
    left = bayesnmf.read_catalogue(path, artefacts=False)
    assert left.index.tolist() == ["SBS1", "SBS4", "SBS7a", "SBS61"]
    assert bayesnmf.read_catalogue(path, only=["SBS7a", "SBS1"]).index.tolist() == ["SBS7a", "SBS1"]
    column = pd.Series([1.0, np.nan, 0.0, 2.0], ["SBS1", "SBS4", "SBS27", "SBS45"])
    assert bayesnmf.read_catalogue(path, only=column, artefacts=False).index.tolist() == ["SBS1"]
    with pytest.raises(ValueError, match=r"only must name .*: it has no 'SBS7'; did you mean 'SBS7a'\?"):
        bayesnmf.read_catalogue(path, only=["SBS7"])
    with pytest.raises(ValueError, match="only must name at least one"):
        bayesnmf.read_catalogue(path, only=[])
    with pytest.raises(TypeError, match="artefacts must be"):
        bayesnmf.read_catalogue(path, artefacts="no")
