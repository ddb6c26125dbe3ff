"""Files of 10x Genomics, written here in the layouts that Cell Ranger documents."""

import gzip

import h5py
import numpy as np
import pytest
import scipy.io
from scipy.sparse import coo_array, csc_array

import bayesnmf

CELLS = np.array([[0, 3, 0, 1], [2, 0, 0, 0], [0, 0, 5, 0]])  # cells × genes
BARCODES = ["AAAC-1", "AAAG-1", "AACT-1"]
GENES = [("ENSG1", "CD3D"), ("ENSG2", "LYZ"), ("ENSG3", "LYZ"), ("ENSG4", "ACTB")]
NAMES = ["CD3D", "LYZ (ENSG2)", "LYZ (ENSG3)", "ACTB"]


def write_folder(folder, zipped=True, features="features.tsv", leave_out=()):
    folder.mkdir()
    rows = [f"{one}\t{name}" + "\tGene Expression" * (features == "features.tsv") for one, name in GENES]
    scipy.io.mmwrite(folder / "plain.mtx", coo_array(CELLS.T), field="integer")
    texts = {
        "matrix.mtx": (folder / "plain.mtx").read_text(), "barcodes.tsv": "\n".join(BARCODES) + "\n",
        features: "\n".join(rows) + "\n",
    }  # fmt: skip
    (folder / "plain.mtx").unlink()
    for name, text in texts.items():
        if name not in leave_out:
            path = folder / (name + ".gz" * zipped)
            path.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())


def write_h5(path, version=3, **changes):
    matrix = csc_array(CELLS.T)
    with h5py.File(path, "w") as file:
        group = file.create_group("matrix" if version == 3 else "GRCh38")
        for name in ("data", "indices", "indptr"):
            group[name] = getattr(matrix, name)
        group["shape"] = changes.get("shape", matrix.shape)
        group["barcodes"] = np.array(BARCODES, "S")
        identifiers, symbols = (np.array(each, "S") for each in zip(*GENES, strict=True))
        if version == 3:
            features = group.create_group("features")
            features["id"], features["name"] = identifiers, symbols
            features["feature_type"] = np.array(["Gene Expression"] * 4, "S20")
        else:
            group["genes"], group["gene_names"] = identifiers, symbols


def write_changed_folder(folder, changes, _):
    """Write a 10x folder in which text of some features, by their number, is replaced; return its path."""
    write_folder(folder / "filtered", zipped=False)
    file = folder / "filtered" / "features.tsv"
    lines = file.read_text().splitlines()
    for feature, (old, new) in changes.items():
        lines[feature] = lines[feature].replace(old, new)
    file.write_text("\n".join(lines) + "\n")
    return folder / "filtered"


def write_changed_h5(folder, changes, part):
    """Write an HDF5 file of 10x Genomics in which a part of some features is replaced; return its path."""
    write_h5(folder / "cells.h5")
    with h5py.File(folder / "cells.h5", "a") as file:
        for feature, (_, new) in changes.items():
            file[f"matrix/features/{part}"][feature] = new.encode()
    return folder / "cells.h5"


def check(counts):
    np.testing.assert_array_equal(counts.matrix.toarray(), CELLS)
    assert counts.row_names.tolist() == BARCODES
    assert counts.feature_names.tolist() == NAMES


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("features", ["features.tsv", "genes.tsv"])
def test_folders_are_read_with_cells_in_rows(tmp_path, zipped, features):
    write_folder(tmp_path / "filtered", zipped, features)
    check(bayesnmf.read_counts(tmp_path / "filtered"))


AS_WRITTEN = {
    "blank lines at the end": lambda text: text + "\n\n",
    "spaces at the end": lambda text: text + "\t\t\n",
    "quotes": lambda text: "".join(
        "\t".join(f'"{each}"' for each in line.split("\t")) + "\n" for line in text.splitlines()
    ),
    "a byte order mark": lambda text: "\ufeff" + text,
    "ends of lines of Windows": lambda text: text.replace("\n", "\r\n"),
    "no end of the last line": lambda text: text.removesuffix("\n"),
}


@pytest.mark.parametrize("case", AS_WRITTEN)
@pytest.mark.parametrize("zipped", [True, False])
def test_names_are_read_as_other_tools_write_them(tmp_path, case, zipped):
    write_folder(tmp_path / "filtered", zipped=False)
    for name in ("barcodes.tsv", "features.tsv"):
        path = tmp_path / "filtered" / name
        text = AS_WRITTEN[case](path.read_text()).encode()
        path.unlink()
        path.with_name(name + ".gz" * zipped).write_bytes(gzip.compress(text) if zipped else text)
    check(bayesnmf.read_counts(tmp_path / "filtered"))


@pytest.mark.parametrize("write", [write_changed_folder, write_changed_h5])
def test_features_without_a_symbol_have_their_identifier(tmp_path, write):
    path = write(tmp_path, {0: ("CD3D", ""), 3: ("ACTB", "")}, "name")
    names = bayesnmf.read_counts(path).feature_names.tolist()
    assert names == ["ENSG1", *NAMES[1:3], "ENSG4"]


def test_a_folder_whose_files_have_a_prefix(tmp_path):
    folder = tmp_path / "filtered"
    write_folder(folder)
    for file in [*folder.iterdir()]:
        file.rename(folder / f"GSM1_{file.name}")
    check(bayesnmf.read_counts(folder))
    (folder / "GSM2_matrix.mtx").write_text("")
    with pytest.raises(ValueError, match=r"must have one matrix: found GSM1_matrix.mtx, GSM2_matrix.mtx; name one"):
        bayesnmf.read_counts(folder)
    (folder / "GSM2_matrix.mtx").unlink()
    (folder / "GSM1_barcodes.tsv.gz").unlink()
    with pytest.raises(ValueError, match=r"GSM1_barcodes.tsv is missing"):
        bayesnmf.read_counts(folder)


@pytest.mark.parametrize("version", [3, 2])
def test_hdf5_files_are_read_with_cells_in_rows(tmp_path, version):
    write_h5(tmp_path / "cells.h5", version)
    check(bayesnmf.read_counts(tmp_path / "cells.h5"))


@pytest.mark.parametrize("write", [write_changed_folder, write_changed_h5])
def test_features_of_other_types_than_genes_are_left_out_and_it_is_said(tmp_path, write):
    path = write(tmp_path, {1: ("Gene Expression", "Antibody Capture")}, "feature_type")
    with pytest.warns(bayesnmf.DataWarning, match=r"1 features of other types than genes \(Antibody Capture\)"):
        counts = bayesnmf.read_counts(path)
    np.testing.assert_array_equal(counts.matrix.toarray(), CELLS[:, [0, 2, 3]])
    assert counts.feature_names.tolist() == ["CD3D", "LYZ (ENSG3)", "ACTB"]


@pytest.mark.parametrize("part", ["matrix.mtx", "barcodes.tsv", "features.tsv"])
def test_a_folder_without_a_part_is_refused(tmp_path, part):
    write_folder(tmp_path / "filtered", leave_out=(part,))
    with pytest.raises(ValueError, match=rf"must have all files of a 10x Genomics folder.*: {part}.* is missing"):
        bayesnmf.read_counts(tmp_path / "filtered")


def test_what_says_its_rows_is_not_transposed(tmp_path):
    write_folder(tmp_path / "filtered")
    write_h5(tmp_path / "cells.h5")
    for name in ("filtered", "cells.h5"):
        with pytest.raises(ValueError, match="must not be transposed"):
            bayesnmf.read_counts(tmp_path / name, transpose=True)


def test_other_hdf5_files_are_refused(tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = [1, 2]
    write_h5(tmp_path / "short.h5", shape=(4, 7))
    (tmp_path / "text.h5").write_text("counts")
    for name, message in (
        ("other", "it holds 0 matrices of 10x Genomics"),
        ("short", r"shape \(4, 7\), but there are 4 features and 3 barcodes"),
        ("text", "must be an HDF5 file of 10x Genomics"),
    ):
        with pytest.raises(ValueError, match=message):
            bayesnmf.read_counts(tmp_path / f"{name}.h5")


def test_other_folders_are_refused(tmp_path):
    with pytest.raises(ValueError, match="must be a file, not a directory"):
        bayesnmf.read_counts(tmp_path)


def test_files_of_names_that_were_exchanged_are_refused(tmp_path):
    """Both are whole, and fit the counts when these are turned; but a barcode has one column."""
    write_folder(tmp_path / "cells")
    one, two = tmp_path / "cells" / "barcodes.tsv.gz", tmp_path / "cells" / "features.tsv.gz"
    content = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(content)
    with pytest.raises(ValueError, match=r"barcodes\.tsv\.gz must have one barcode in each line: found 3 columns"):
        bayesnmf.read_counts(tmp_path / "cells")


@pytest.mark.parametrize("name", ["matrix.mtx.gz", "barcodes.tsv.gz", "features.tsv.gz"])
def test_damaged_compressed_files_are_refused_or_change_nothing(tmp_path, name):
    """Wherever a bit is flipped: zlib, its header and its checksum each have their own exceptions."""
    write_folder(tmp_path / "cells")
    path, rng = tmp_path / "cells" / name, np.random.default_rng(0)
    content, refused = path.read_bytes(), 0
    for place in range(0, len(content), 2):
        changed = bytearray(content)
        changed[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(changed)
        try:
            check(bayesnmf.read_counts(tmp_path / "cells"))
        except (ValueError, OSError):
            refused += 1
    assert refused > len(content) // 4
