"""The data that ships: shapes, names, and the Swimmer's known parts."""

import json

import numpy as np
import pandas as pd
import pytest
from realdata import real_counts

import bayesnmf
from bayesnmf.data.real import digest_of
from bayesnmf.datasets import (
    DIGITS_IMAGE,
    SHIPPED,
    SWIMMER_IMAGE,
    cells,
    digits,
    mutation_spectra,
    mutations,
    swimmer,
    swimmer_parts,
    texts,
)


def test_digits_are_named_images_of_whole_numbers():
    counts = digits()
    assert counts.shape == (1797, 64)
    assert counts.is_integer
    assert counts.matrix.max() == 16
    assert counts.row_names[3] == "0003 (digit 3)"
    assert len(set(counts.row_names)) == 1797
    assert counts.feature_names.reshape(DIGITS_IMAGE)[2, 5] == "r2c5"


def test_swimmer_is_every_combination_of_its_parts():
    counts, parts = swimmer(), swimmer_parts()
    assert counts.shape == (256, 1024)
    assert len(np.unique(counts.matrix.toarray(), axis=0)) == 256
    assert len(set(counts.row_names)) == 256
    present = counts.matrix @ parts.T / parts.sum(axis=1)  # share of each part's pixels that are inked
    np.testing.assert_array_equal(present[:, 0], 1)
    np.testing.assert_array_equal(present[:, 1:].reshape(256, 4, 4).sum(axis=2), 1)
    np.testing.assert_array_equal(present @ parts, counts.matrix.toarray())


def test_swimmer_parts_share_no_pixel():
    parts = swimmer_parts()
    assert parts.shape == (17, 1024)
    np.testing.assert_array_equal(parts.sum(axis=1), [12] + [6] * 16)
    assert parts.sum(axis=0).max() == 1


def test_swimmer_is_mirrored_about_its_torso():
    torso, *limbs = swimmer_parts().reshape(17, *SWIMMER_IMAGE)
    assert set(np.nonzero(torso)[1]) == {16}
    left_arm, right_arm, left_leg, right_leg = np.array(limbs)[:, :, 1:].reshape(4, 4, 32, 31)
    np.testing.assert_array_equal(left_arm[..., ::-1], right_arm)
    np.testing.assert_array_equal(left_leg[..., ::-1], right_leg)


def test_ink_multiplies_the_counts():
    np.testing.assert_array_equal(swimmer(ink=3).matrix.toarray(), 3 * swimmer().matrix.toarray())
    with pytest.raises(ValueError, match="ink must be positive"):
        swimmer(ink=0)


@pytest.mark.parametrize("table", [cells, mutations, texts])
def test_shipped_tables_are_whole_numbers_with_names_that_differ(table):
    counts = table()
    assert counts.is_integer
    assert counts.row_totals.min() > 0
    assert counts.feature_totals.min() > 0
    assert len({*counts.row_names}) == counts.shape[0]
    assert len({*counts.feature_names}) == counts.shape[1]


def test_shipped_tables_are_small_and_say_where_they_come_from():
    files = {path.name: path for path in SHIPPED.iterdir()}
    assert sum(path.stat().st_size for path in files.values()) < 40_000
    for name in ("cells", "mutations", "texts"):
        assert json.loads(files[f"{name}.json"].read_text(encoding="utf-8"))["provenance"]
    assert "SeuratObject" in files["LICENSE.txt"].read_text(encoding="utf-8")


def test_cells_are_those_of_the_folder_of_real_data():
    assert digest_of(cells()) == digest_of(real_counts("pbmc_small"))


def test_a_fit_finds_the_spectra_of_the_mutations():
    fit = bayesnmf.fit(mutations(), rank=4, seed=0)
    found = bayesnmf.match(fit, mutation_spectra()).table
    assert found["cosine"].min() > 0.98


def test_a_fit_finds_the_topics_of_the_texts():
    counts = texts()
    fit = bayesnmf.fit(counts, "dirichlet_poisson", rank=4, seed=0)
    largest = bayesnmf.to_topic_model(fit).proportions.argmax(axis=1)
    named = [name.partition("(")[2] for name in counts.row_names]
    assert pd.crosstab(np.array(named), largest).max(axis=1).sum() >= 0.95 * len(counts)
