"""The data that ships: shapes, names, and the Swimmer's known parts."""

import numpy as np
import pytest

from bayesnmf.datasets import DIGITS_IMAGE, SWIMMER_IMAGE, digits, swimmer, swimmer_parts


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
