"""Each layout of the table in docs/input.md, in a file as its tool writes it."""

import io
import json
import re
import warnings
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse as sp
import test_mutation_tables as types
import test_tenx as tenx
from test_io import pytestmark

from bayesnmf.data.files import read_counts

__all__ = ["pytestmark"]  # the same warnings are expected

GUIDE = Path(__file__).parents[2] / "docs" / "input.md"
COUNTS = pd.DataFrame([[3, 0, 1], [0, 2, 4]], ["s1", "s2"], ["f1", "f2", "f3"])


def turned(path, text, frame=COUNTS.T):
    """Write text with features in rows; return the counts that are expected."""
    path.write_text(text)
    return frame.T


def named(path):
    path.with_suffix(".json").write_text(json.dumps({"rows": [*COUNTS.index], "cols": [*COUNTS]}))
    return COUNTS


def npz_of_scipy(path):
    sp.save_npz(path, sp.csr_array(COUNTS.to_numpy()))
    return named(path)


def npz_of_numpy(path):
    np.savez(path, COUNTS.to_numpy())
    return named(path)


def matrix_market(path):
    scipy.io.mmwrite(path, sp.coo_array(COUNTS.to_numpy()))
    return named(path)


def cells(write, path):
    write(path)
    return pd.DataFrame(tenx.CELLS, tenx.BARCODES, tenx.NAMES)


def annotated(path):
    anndata.AnnData(COUNTS.astype(float)).write_h5ad(path)
    return COUNTS


def parquet(path):
    COUNTS.to_parquet(path)
    return COUNTS


def wide(path, header, sep):
    COUNTS.to_csv(path, index_label=header, sep=sep)
    return COUNTS


def of_r(path):
    path.write_text(types.write_table(COUNTS, " "))
    return COUNTS


def long(path, header):
    frame = COUNTS.stack().rename_axis(header[:2]).rename(header[2]).reset_index()
    frame[frame[header[2]] > 0].assign(**dict.fromkeys(header[3:], 97)).to_csv(path, index=False)
    return COUNTS.loc[:, ["f1", "f3", "f2"]]


def biom(path, end=""):
    lines = ["# Constructed from biom file", "\t".join(["#OTU ID", *COUNTS.index, *["taxonomy"] * bool(end)])]
    lines += ["\t".join([name, *map(str, map(float, row)), *[end] * bool(end)]) for name, row in COUNTS.items()]
    return turned(path, "\n".join(lines))


def feature_counts(path):
    about = pd.DataFrame({"Chr": "1;1", "Start": "5;40", "End": "9;50", "Strand": "+;+", "Length": 16}, COUNTS.columns)
    table = pd.concat([about, COUNTS.T], axis=1).to_csv(sep="\t", index_label="Geneid")
    return turned(path, f'# Program:featureCounts v2.0.1; Command:"featureCounts" "-a" "genes.gtf"\n{table}')


def beside(path, matrix, files):
    scipy.io.mmwrite(path, sp.coo_array(matrix.to_numpy()))
    for name, names in files.items():
        path.with_name(name).write_text("".join(f"{each}\n" for each in names))
    return COUNTS


def with_counters(path, counters):
    counted = pd.concat([COUNTS.T, pd.DataFrame(97, counters, COUNTS.index)])
    return turned(path, counted.to_csv(sep="\t", index_label="gene"))


def of_one_sample(path, header, name, count):
    """Write a table of one sample, whose other columns have 97.5."""
    columns = dict.fromkeys(header, 97.5) | {name: COUNTS.columns, count: COUNTS.iloc[0].to_numpy()}
    return turned(path, pd.DataFrame(columns).to_csv(sep="\t", index=False), COUNTS.T[["s1"]].set_axis([count], axis=1))


def matrices_of_tximport(path):
    of_counts = COUNTS.T.add_prefix("counts.")
    others = [COUNTS.T.add_prefix(f"{kind}.") + 97.5 for kind in ("abundance", "length")]
    pd.concat([others[0], of_counts, others[1]], axis=1).assign(countsFromAbundance="no").to_csv(path)
    return of_counts.T


def spectra_of_maxquant(path):
    of_counts = COUNTS.T.add_prefix("MS/MS count ")
    others = pd.DataFrame({"Gene names": "G", "Peptides": 97, "Mol. weight [kDa]": 97.5}, COUNTS.columns)
    pd.concat([others, of_counts], axis=1).to_csv(path, sep="\t", index_label="Protein IDs")
    return of_counts.T


def with_columns(path, sep, before, frame=COUNTS, names=None, first=""):
    """Write a table with columns before the counts, of which one has the names of its lines."""
    columns = pd.DataFrame({each: frame.index if each == names else 1 for each in before})
    table = pd.concat([columns, frame.reset_index(drop=True)], axis=1)
    path.write_text(first + table.to_csv(sep=sep, index=False))
    return COUNTS


def of_types(path, kind, name):
    frame = types.frame_of(kind)
    return turned(path, types.LAYOUTS[kind, name](frame), frame)


def other_types(path):
    frame = types.frame_of("ID83")
    frame.loc["complex"] = 1
    return turned(path, types.sigprofiler(frame), frame)


def sigfit(path):
    frame = types.frame_of("SBS96")
    spelled = types.spelled(frame, lambda name: f"{types.trinucleotide(name)}>{name[0]}{name[4]}{name[6]}").T
    stream = io.StringIO()
    spelled.to_csv(stream, quoting=2)
    path.write_text(stream.getvalue())
    return frame.T


def part_of_types(path):
    frame = types.frame_of("SBS96").iloc[:90]
    return turned(path, types.sigprofiler(frame, "Type"), frame)


def by_name(program, function=of_types):
    """Return a writer for each table of mutation types of a program."""
    return [
        (name, lambda path, kind=kind, name=name: function(path, kind, name))
        for kind, name in types.LAYOUTS
        if program in name
    ]


LAYOUTS = {
    "`.npz` of SciPy": [("x.npz", npz_of_scipy)],
    "`.npz` of NumPy": [("x.npz", npz_of_numpy)],
    "Matrix Market": [("x.mtx", matrix_market)],
    "Matrix Market of STARsolo": [
        ("spliced.mtx", lambda path: beside(path, COUNTS.T, {"barcodes.tsv": COUNTS.index, "features.tsv": COUNTS})),
    ],
    "Matrix Market of kallisto": [
        (
            "cells_x_genes.mtx",
            lambda path: beside(
                path, COUNTS, {"cells_x_genes.barcodes.txt": COUNTS.index, "cells_x_genes.genes.txt": COUNTS}
            ),
        ),
    ],
    "Matrix Market of the Expression Atlas": [
        (
            "x.mtx",
            lambda path: beside(
                path, COUNTS.T, {"x.mtx_rows": [f"{each}\t{each}" for each in COUNTS], "x.mtx_cols": COUNTS.index}
            ),
        ),
    ],
    "Matrix Market of alevin": [
        ("x.mtx", lambda path: beside(path, COUNTS, {"x_rows.txt": COUNTS.index, "x_cols.txt": COUNTS})),
    ],
    "10x Genomics, folder": [
        ("filtered", lambda path: cells(tenx.write_folder, path)),
        ("v2", lambda path: cells(lambda path: tenx.write_folder(path, False, "genes.tsv"), path)),
    ],
    "10x Genomics, `.h5`": [
        ("x.h5", lambda path: cells(tenx.write_h5, path)),
        ("v2.h5", lambda path: cells(lambda path: tenx.write_h5(path, 2), path)),
    ],
    "AnnData": [("x.h5ad", annotated)],
    "wide table": [
        ("x.csv", lambda path: wide(path, None, ",")),
        ("x.tsv", lambda path: wide(path, "sample", "\t")),
        ("x.parquet", parquet),
    ],
    "wide table of R": [("x.txt", of_r)],
    "wide table with features in its rows": [
        ("x.csv", lambda path: turned(path, COUNTS.T.to_csv(index_label="Gene Symbol")))
    ],
    "long table": [
        ("tidytext.csv", lambda path: long(path, ["document", "term", "n"])),
        ("ratings.csv", lambda path: long(path, ["userId", "movieId", "rating", "timestamp"])),
    ],
    "BIOM as text": [("x.txt", biom), ("x.tsv", lambda path: biom(path, "k__Bacteria; p__Firmicutes"))],
    "featureCounts": [("x.txt", feature_counts)],
    "HTSeq, STAR, CITE-seq-Count, HUMAnN": [
        ("htseq.tsv", lambda path: with_counters(path, ["__no_feature", "__ambiguous"])),
        ("star.tsv", lambda path: with_counters(path, ["N_unmapped", "N_multimapping"])),
        ("tags.tsv", lambda path: with_counters(path, ["unmapped"])),
        ("humann.tsv", lambda path: with_counters(path, ["UNMAPPED", "UNINTEGRATED"])),
    ],
    "salmon, kallisto, RSEM, Bracken": [
        (
            "quant.sf",
            lambda path: of_one_sample(
                path, ["Name", "Length", "EffectiveLength", "TPM", "NumReads"], "Name", "NumReads"
            ),
        ),
        (
            "abundance.tsv",
            lambda path: of_one_sample(
                path, ["target_id", "length", "eff_length", "est_counts", "tpm"], "target_id", "est_counts"
            ),
        ),
    ],
    "tximport, MaxQuant": [
        ("txi.csv", matrices_of_tximport),
        ("proteinGroups.txt", spectra_of_maxquant),
    ],
    "mothur, `.shared`": [
        ("x.shared", lambda path: with_columns(path, "\t", ["label", "Group", "numOtus"], COUNTS, "Group")),
    ],
    "mothur, `.count_table`; GCT": [
        (
            "x.count_table",
            lambda path: with_columns(
                path, "\t", ["Representative_Sequence", "total"], COUNTS.T, "Representative_Sequence"
            ),
        ),
        ("x.gct", lambda path: with_columns(path, "\t", ["Name", "Description"], COUNTS.T, "Name", "#1.2\n3\t2\n")),
    ],
    "PLINK": [
        (
            "x.raw",
            lambda path: with_columns(path, " ", ["FID", "IID", "PAT", "MAT", "SEX", "PHENOTYPE"], COUNTS, "IID"),
        ),
    ],
    "CosMx": [
        (
            "exprMat.csv",
            lambda path: with_columns(
                path, ",", ["fov", "cell_ID"], COUNTS.rename(index=lambda name: name[1:]), "cell_ID"
            ).rename(index=lambda name: f"1_{name[1:]}"),
        ),
    ],
    "SigProfiler": by_name("sigprofiler.all"),
    "SigProfiler, other types": [("x.ID96.all", other_types)],
    "COSMIC": [*by_name("cosmic"), *by_name("sigprofiler.txt")],
    "PCAWG": by_name("pcawg"),
    "ICAMS": by_name("icams"),
    "MutationalPatterns": [*by_name("MutationalPatterns"), *by_name("write.table.txt")],
    "sigfit": [("x.csv", sigfit)],
    "musicatk": by_name("musicatk"),
    "part of a set of mutation types": [("x.all", part_of_types)],
}


@pytest.mark.parametrize(
    ("layout", "name", "write"), [(layout, *each) for layout, written in LAYOUTS.items() for each in written]
)
def test_a_file_as_its_tool_writes_it(tmp_path, layout, name, write):
    expected = write(tmp_path / name)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        counts = read_counts(tmp_path / name)
    np.testing.assert_array_equal(counts.dense, expected.to_numpy())
    assert counts.row_names.tolist() == [*expected.index]
    assert counts.feature_names.tolist() == [*expected]
    said = " ".join(str(each.message) for each in caught)
    done = rows_of_guide()[layout]
    assert ("they were turned" in said) == (done.startswith("turned"))
    assert "left out" not in said or "left out" in done


def rows_of_guide():
    """What is done with each layout, by the table of the guide."""
    table = GUIDE.read_text(encoding="utf-8").split("| Layout |")[1].split("\n\n")[0]
    rows = [re.split(r"\s\|\s", line.strip("| ")) for line in table.splitlines()[2:]]
    return {row[0]: row[2] for row in rows}


def test_every_layout_of_the_guide_has_its_files():
    assert [*rows_of_guide()] == [*LAYOUTS]
    assert all(LAYOUTS.values())
