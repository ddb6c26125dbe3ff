"""A file that is not what its suffix promises is a ValueError that names it; nothing is unpickled."""

import gzip
import io
import os
import pickle

import h5py
import numpy as np
import pytest
from test_io import WRITERS, X, pytestmark

import bayesnmf
from bayesnmf import cli
from bayesnmf.data.files import read_counts

__all__ = ["pytestmark"]  # the same warnings are expected


@pytest.mark.parametrize("suffix", sorted(set(WRITERS) - {".csv", ".tsv", ".txt", ".all"}))
@pytest.mark.parametrize("kept", [0, 0.5, 0.9])
def test_truncated_files_are_refused(tmp_path, suffix, kept):
    path = tmp_path / f"x{suffix}"
    WRITERS[suffix](path, np.arange(400).reshape(20, 20))
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(ValueError, match=f"x{suffix} must be .*; mend or rewrite the file"):
        read_counts(path)


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_png_with_another_suffix_is_refused(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    path.write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(range(256)))
    with pytest.raises(ValueError, match=f"x{suffix} must be .*; mend or rewrite the file"):
        read_counts(path)


def npz(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def mtx(field, entry):
    return f"%%MatrixMarket matrix coordinate {field} general\n2 3 1\n{entry}\n".encode()


CSR = {"format": np.array(b"csr"), "data": np.ones(1), "indices": np.array([7]), "indptr": np.array([0, 1])}
WRONG = {
    "two arrays.npz": (npz(a=X, b=X), r"must be .* it holds 2 arrays: a, b"),
    "no array.npz": (npz(), "must be .* it holds 0 arrays"),
    "halves.npz": (
        npz(**CSR | {"indices": np.array([0.5])}, shape=np.array([1, 8])),
        "indices must be whole numbers: ",
    ),
    "halves of coo.npz": (
        npz(format=np.array(b"coo"), data=np.ones(1), row=np.zeros(1), col=np.array([0.5]), shape=np.array([1, 8])),
        "(row|col) must be whole numbers: found dtype float64",
    ),
    "vector.npz": (npz(a=X[0]), "must be two-dimensional"),
    "half.npz": (npz(format=np.array(b"csr")), "must be a SciPy sparse matrix .* KeyError"),
    "corrupt.npz": (npz(**CSR, shape=np.array([1, 3])), "must be a valid sparse matrix: indices must be < 3"),
    "array.npz": (X.tobytes(), "must be .* not a complete zip archive"),
    "complex.mtx": (mtx("complex", "1 1 2 3"), "must be real numbers: found dtype complex128"),
    "fraction.mtx": (
        mtx("integer", "1 1 5.7"),
        "line 3 must be a row, a column and a whole number, as its entries are declared integer: found '1 1 5.7'",
    ),
    "junk.mtx": (mtx("integer", "1 1 5 x"), "line 3 must be .* declared integer: found '1 1 5 x'"),
    "minus.mtx": (mtx("integer", "1 1 5-3"), "line 3 must be .* found '1 1 5-3'"),
    "four.mtx": (mtx("integer", "1 1 7 3"), "line 3 must be .* found '1 1 7 3'"),
    "four of real.mtx": (mtx("real", "1 1 7 3"), "line 3 must be a row, a column and a number, .* found '1 1 7 3'"),
    "junk of real.mtx": (mtx("real", "1 1 5.7x").replace(b" general\n", b" general\n%\n\n"), "line 5 must"),
    "Fortran.mtx": (mtx("real", "1 1 1.5D2"), "line 3 must be .* found '1 1 1.5D2'"),
    "dots.mtx": (mtx("real", "1 1 5.7.3"), "line 3 must be"),
    "comma.mtx": (mtx("real", "1 1 5,3"), "line 3 must be"),
    "pattern.mtx": (mtx("pattern", "1 1 9"), "line 3 must be a row, a column and no value, as .* found '1 1 9'"),
    "dense.mtx": (
        b"%%MatrixMarket matrix array real general\n2 1\n1 8\n2\n",
        "line 3 must be a number, as its entries are declared real: found '1 8'",
    ),
    "outside.mtx": (mtx("integer", "7 1 2"), "must be a Matrix Market file: .* out of bounds"),
    "negative.mtx": (mtx("integer", "2 1 -2"), "must be nonnegative: found -2.0 at row 1, column 0"),
    "middle.csv": (
        b"a,b\n1,2\n3,x\n5,6\n",
        "must be a comma-separated .* column 'b': Unable to parse string 'x'",
    ),
    "first.csv": (b"a,b\n1,2\nx,3\n", "must be a comma-separated .* column 'a': Unable to parse string 'x'"),
    "missing.csv": (b"a,b\n1,2\nNA,3\n", "column 'a': Unable to parse string 'NA'"),
    "longer.csv": (b"a,b\n1,2\n3,4,5\n", "must be a comma-separated .* Expected 2 fields in line 3, saw 3"),
    "shorter.csv": (b"a,b\n1,2\n3\n", "must be finite as float64: found nan at row 1, column 1"),
    "wide.csv": (b"a,b\n1,2,3,4\n5,6,7,8\n", "more entries than its header"),
    "semicolons.csv": (b"a;b\n1;2\n", "no column of numbers; are its entries separated by ','"),
    "commas.tsv": (b"a,b\n1,2\n", r"no column of numbers; are its entries separated by '\\t'"),
    "negative.csv": (b"a,b\n1,2\n3,-4\n", "must be nonnegative: found -4.0 at row 1, column 1, .*; pass the raw"),
    "infinite.csv": (b"a,b\n1,inf\n", "must be finite as float64: found inf"),
    "header.csv": (b"a,b\n", "must .*; (mend|check)"),
    "latin.csv": ("é,b\n1,2\n".encode("latin1"), "must be a comma-separated .* UnicodeDecodeError"),
    "plain.csv.gz": (b"a,b\n1,2\n", "must be a comma-separated .* BadGzipFile"),
    "plain.mtx.gz": (mtx("integer", "1 1 2"), "must be a Matrix Market file: BadGzipFile"),
}


@pytest.mark.parametrize("name", WRONG)
def test_files_of_wrong_content_are_refused(tmp_path, name):
    content, rule = WRONG[name]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"{name} .*{rule}"):
        read_counts(path)


def test_every_line_of_a_matrix_market_file_is_checked(tmp_path, monkeypatch):
    monkeypatch.setattr("bayesnmf.data.matrix_files.BLOCK", 7)  # within the second line
    lines = ["1 1 1", "", " 1 2\t1 \r", "2 1 1"]
    for last, wrong in (("2 2 -3", "nonnegative"), ("2 2 3 4", "line 8 must be"), ("2 2 3", None)):
        path = tmp_path / "x.mtx"
        body = "\n".join([*lines, last])  # without an end of the last line
        path.write_text(f"%%MatrixMarket matrix coordinate integer general\n%\n2 2 4\n{body}")
        if wrong is None:
            np.testing.assert_array_equal(read_counts(path).dense, [[1, 1], [1, 3]])
        else:
            with pytest.raises(ValueError, match=wrong):
                read_counts(path)


def test_other_hdf5_is_not_anndata(tmp_path):
    with h5py.File(tmp_path / "x.h5ad", "w") as file:
        file["heights"] = X
    with pytest.raises(ValueError, match=r"x.h5ad (must be an AnnData file|has neither X)"):
        read_counts(tmp_path / "x.h5ad")


class Bomb:
    """Unpickling this creates a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_nothing_is_unpickled(tmp_path):
    bomb = Bomb(tmp_path / "exploded")
    np.savez(tmp_path / "object.npz", np.array([[bomb]], dtype=object))
    np.savez(tmp_path / "member.npz", **CSR | {"data": np.array([bomb]), "shape": np.array([1, 8])})
    (tmp_path / "pickle.npz").write_bytes(pickle.dumps(bomb))
    for name in ("object", "member", "pickle"):
        with pytest.raises(ValueError, match=f"{name}.npz must be a SciPy sparse matrix"):
            read_counts(tmp_path / f"{name}.npz")
    assert not (tmp_path / "exploded").exists()


def test_missing_directory_and_unknown_suffix(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*gone.npz; check the path"):
        read_counts(tmp_path / "gone.npz")
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(ValueError, match=r"folder.npz must be a file, not a directory; name one file in it"):
        read_counts(tmp_path / "folder.npz")
    (tmp_path / "x.xlsx").write_bytes(b"")
    with pytest.raises(ValueError, match=r"x.xlsx must end in one of \.npz, \.mtx, .*\.h5ad, \.h5; convert"):
        read_counts(tmp_path / "x.xlsx")


def test_a_deeply_nested_list_of_names(tmp_path):
    np.savez(tmp_path / "x.npz", X)
    (tmp_path / "x.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"x\.json must be JSON: .*; mend it or move it away"):
        read_counts(tmp_path / "x.npz")


@pytest.mark.parametrize("suffix", sorted(WRITERS))
def test_a_file_that_may_not_be_read(tmp_path, suffix, monkeypatch):
    """Nothing is damaged: it is a PermissionError."""
    path = tmp_path / f"x{suffix}"
    WRITERS[suffix](path, X)

    def refused(self, *_, **__):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr("pathlib.Path.open", refused)  # as root, tests may read everything
    with pytest.raises(PermissionError):
        read_counts(path)


def test_a_pipe_is_refused(tmp_path):
    """It was waited on for ever."""
    os.mkfifo(tmp_path / "x.csv")
    with pytest.raises(ValueError, match=r"x\.csv must be a file that can be read twice, not a pipe"):
        read_counts(tmp_path / "x.csv")


VCF = """##fileformat=VCFv4.2
##contig=<ID=1,length=249250621>
#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO
1\t14653\t.\tC\tT\t50\tPASS\t.
"""
MAF = """#version 2.4
Hugo_Symbol\tEntrez_Gene_Id\tChromosome\tStart_Position\tReference_Allele\tTumor_Seq_Allele2\tTumor_Sample_Barcode
TP53\t7157\t17\t7577120\tC\tT\tTCGA-A1-A0SB-01
"""
LISTS = {
    "x.vcf": (VCF, "MutationalPatterns"),
    "x.VCF.gz": (VCF, "MutationalPatterns"),
    "x.vcf.bgz": (VCF, "MutationalPatterns"),
    "x.maf": (MAF, "maftools"),
    "x.maf.gz": (MAF, "maftools"),
    "data_mutations.txt": (MAF, "maftools"),  # its name at cBioPortal
    "mutations.tsv.gz": (MAF.partition("\n")[2], "maftools"),
    "vcf.txt": (VCF.partition("\n")[2], "MutationalPatterns"),
}


@pytest.mark.parametrize("name", LISTS)
def test_lists_of_mutations_are_refused_with_what_makes_a_table(tmp_path, name, capsys):
    content, maker = LISTS[name]
    path = tmp_path / name
    path.write_bytes(gzip.compress(content.encode()) if name.endswith("gz") else content.encode())
    rule = f"{name} must be a table of counts, not a list of mutations .* by SigProfilerMatrixGenerator, or .* {maker}"
    for read in (
        read_counts,
        lambda given: bayesnmf.fit(given, rank=2),
        lambda given: bayesnmf.fit({"a": given}, rank=2),
    ):
        with pytest.raises(ValueError, match=rule):
            read(path)
    assert cli.main(["fit", str(path), "--rank", "2", "--loadings", str(tmp_path / "a.csv")]) == 2
    assert "make the table by SigProfilerMatrixGenerator" in capsys.readouterr().err


def test_a_table_that_looks_like_a_list_of_mutations_is_read(tmp_path):
    path = tmp_path / "x.tsv"
    path.write_text("Hugo_Symbol\tA\tB\nTP53\t1\t2\nKRAS\t3\t4\n")
    assert read_counts(path, transpose=True).feature_names.tolist() == ["TP53", "KRAS"]
