"""Wide and long tables in text and in Parquet."""

import gzip
import re
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import bayesnmf
from bayesnmf.cli.arguments import read_arguments
from bayesnmf.cli.entry import build_parser
from bayesnmf.cli.reading import read_counts_of
from bayesnmf.data.conversion import as_counts
from bayesnmf.data.files import read_counts
from bayesnmf.data.layouts import NAMES_OF_COUNTS, NAMES_OF_FEATURES, NAMES_OF_ROWS


def written(tmp_path, text, name="x.csv"):
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def check(counts, values, row_names, feature_names):
    np.testing.assert_array_equal(counts.dense, values)
    assert counts.row_names.tolist() == row_names
    assert counts.feature_names.tolist() == feature_names


# --- long tables ------------------------------------------------------------------------------------------

LONG = [("d2", "the", 3), ("d1", "cat", 1), ("d2", "the", 2), ("d1", "NA", 0), ("d3", "the", 0.5)]
DENSE = [[5, 0, 0], [0, 1, 0], [0.5, 0, 0]]  # rows and features in the order of first appearance
LONG_NAMES = (["d2", "d1", "d3"], ["the", "cat", "NA"])


@pytest.mark.parametrize("header", ["document,word,n", "Doc_ID,Term,Count", "a,b,c", "sample,gene,value"])
@pytest.mark.parametrize("name", ["x.csv", "x.tsv", "x.txt.gz", "x.all", "x.parquet"])
def test_long_tables_are_read(tmp_path, header, name):
    frame = pd.DataFrame(LONG, columns=header.split(","))
    if name == "x.parquet":
        frame.to_parquet(tmp_path / name)
    else:
        written(tmp_path, frame.to_csv(index=False, sep="," if name == "x.csv" else "\t"), name)
    check(read_counts(tmp_path / name), DENSE, *LONG_NAMES)
    check(read_counts(tmp_path / name, transpose=True), np.transpose(DENSE), *LONG_NAMES[::-1])


def test_a_long_table_of_r_has_names_of_lines_as_well(tmp_path):
    text = '"doc" "word" "n"\n"1" "d2" "the" 3\n"2" "d1" "cat" 1\n'
    check(read_counts(written(tmp_path, text, "x.txt")), [[3, 0], [0, 1]], ["d2", "d1"], ["the", "cat"])


def test_an_index_of_pairs_makes_a_long_table(tmp_path):
    pairs = pd.MultiIndex.from_tuples([("d2", 7), ("d1", 8)], names=["doc", "item"])
    pd.DataFrame({"count": [3, 1]}, pairs).to_parquet(tmp_path / "x.parquet")
    check(read_counts(tmp_path / "x.parquet"), [[3, 0], [0, 1]], ["d2", "d1"], ["7", "8"])


@pytest.mark.parametrize("name", ["x.csv", "x.parquet"])
def test_numbers_become_names_if_the_header_says_so(tmp_path, name):
    text = "userId,itemId,value\n007,40,3\n7,9,1\n7,40,2\n"
    path = written(tmp_path, text, "x.csv")
    names = (["007", "7"], ["40", "9"])
    if name == "x.parquet":
        path, names = tmp_path / name, (["7"], ["40", "9"])
        pd.read_csv(tmp_path / "x.csv").to_parquet(path)
    values = [[3, 0], [2, 1]] if name == "x.csv" else [[5, 1]]
    check(read_counts(path), values, *names)


def test_some_words_may_be_numbers(tmp_path):
    check(
        read_counts(written(tmp_path, "a,b,c\n1,x,3\n1,10,1\n2,y,4\n")),
        [[3, 1, 0], [0, 0, 4]],
        ["1", "2"],
        ["x", "10", "y"],
    )


def test_a_long_table_is_never_dense(tmp_path):
    """A dense array of these counts would take 29 GB."""
    number = 60_000
    lines = "".join(f"d{place},w{place},1\n" for place in range(number))
    counts = read_counts(written(tmp_path, "doc,word,n\n" + lines))
    assert counts.shape == (number, number)
    assert counts.total == counts.nnz == number


WIDE = {
    "names and two features": ("sample,a,b\ns1,1,2\ns2,3,4\n", [[1, 2], [3, 4]], ["s1", "s2"], ["a", "b"]),
    "three features": ("x,y,z\n1,2,3\n", [[1, 2, 3]], [0], ["x", "y", "z"]),
    "spaces and one feature": ('"a"\n"s 1" 1\n', [[1]], ["s 1"], ["a"]),
    "spaces": ('"a" "b"\n"s 1" 1 2\n', [[1, 2]], ["s 1"], ["a", "b"]),
    "commas in a .txt": ("x,s 1,s 2\nA,1,2\nC,3,4\n", [[1, 2], [3, 4]], ["A", "C"], ["s 1", "s 2"]),
    "a header with spaces": ("\ta 1\tb 2\ns 1\t1\t2\n", [[1, 2]], ["s 1"], ["a 1", "b 2"]),
    "empty columns at the end": ("\ta\tb\t\t\ns1\t1\t2\t\t\n", [[1, 2]], ["s1"], ["a", "b"]),
}


@pytest.mark.parametrize("case", WIDE)
def test_wide_tables_are_read_as_such(tmp_path, case):
    text, *expected = WIDE[case]
    check(read_counts(written(tmp_path, text, "x.csv" if "," in text and "txt" not in case else "x.txt")), *expected)


def test_the_three_lists_of_headers_have_nothing_in_common():
    assert not NAMES_OF_ROWS & NAMES_OF_FEATURES
    assert not NAMES_OF_FEATURES & NAMES_OF_COUNTS
    assert not NAMES_OF_ROWS & NAMES_OF_COUNTS


counts_and_names = hnp.arrays(
    np.int64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=5), elements=st.integers(0, 2**40)
)


@settings(max_examples=25)
@given(x=counts_and_names, seed=st.integers(0, 2**32 - 1))
def test_wide_and_long_tables_are_the_same_counts(tmp_path_factory, x, seed):
    x = x[x.any(axis=1)][:, x.any(axis=0)]  # a long table has no rows and columns without counts
    if not x.size:
        return
    frame = pd.DataFrame(x, [f"s{i}" for i in range(len(x))], [f"f{j}" for j in range(x.shape[1])])
    long = frame.rename_axis("sample").reset_index().melt("sample", var_name="feature", value_name="count")
    long = long[long["count"] > 0].sample(frac=1.0, random_state=seed)
    folder = tmp_path_factory.mktemp("tables")
    frame.to_csv(folder / "wide.csv")
    long.to_csv(folder / "long.csv", index=False)
    wide, sparse = read_counts(folder / "wide.csv"), read_counts(folder / "long.csv")
    for counts in (wide, sparse):
        found = pd.DataFrame(counts.dense, counts.row_names, counts.feature_names)
        pd.testing.assert_frame_equal(
            found.loc[frame.index, frame.columns], frame.astype(float), check_index_type=False
        )
        assert found.shape == frame.shape


WRONG = {
    "no row": ("doc,word,n\nd1,a,1\n,b,2\n", r"column 'doc' of a long table must have a name in every line: entry 1"),
    "no feature": (
        "x,y,z\nd1,a,1\nd2,b,1\nd2,,2\n",
        "column 'y' of a long table must have a name in every line: entry 2",
    ),
    "no count": (
        "doc,word,n\nd1,a,1\nd1,b,\n",
        "column 'n' of a long table must be counts of at least 0: found nan for 'd1'",
    ),
    "negative": ("doc,word,n\nd1,a,3\nd1,a,-1\n", "column 'n' of a long table must be .*: found -1.0 for 'd1' and 'a'"),
    "infinite": ("doc,word,n\nd1,a,inf\n", "column 'n' of a long table must be .*: found inf"),
    "no number": ("x,y,z\nd1,a,1\nd1,b,2\nd1,c,many\n", "column 'z': Unable to parse string 'many'"),
    "no number, by header": ("doc,word,n\nd1,a,x\n", "column 'n': Unable to parse"),
    "nothing": ("doc,word,n\n", "at least one row and one column"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_long_tables_are_refused(tmp_path, case):
    text, message = WRONG[case]
    with pytest.raises(ValueError, match=f"x.csv must .*{message}"):
        read_counts(written(tmp_path, text))


def test_a_file_that_is_cut_is_refused(tmp_path):
    path = written(tmp_path, "doc\tword\tn\n" + "".join(f"d{i}\tw{i * i}\t1\n" for i in range(500)), "x.txt.gz")
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ValueError, match=r"x\.txt\.gz must be a table of numbers .* EOFError.*; mend or rewrite"):
        read_counts(path)


# --- long or wide -----------------------------------------------------------------------------------------

RATINGS = pd.DataFrame({"a": np.repeat(np.arange(40), 20), "b": np.tile(np.arange(20), 40), "c": 3})  # all pairs once


@pytest.mark.parametrize(
    ("header", "left"),
    [
        ("sample,gene,count", None), ("gene,sample,count", None), ("n,gene_id,cell_name", None),
        (",user,song,plays", None), ("userId,movieId,rating,timestamp", "'timestamp'"),
        ("count,line,Barcode,title,Gene Name,chromosome", "'line', 'title', 'chromosome'"),
        ("row,document,species,score", "'row'"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["x.csv", "x.parquet"])
def test_columns_of_a_long_table_are_found_by_their_headers(tmp_path, header, left, name):
    """They were found by position, so that genes became samples, and four columns became four features."""
    kinds = {"s": ["07", "9", "07"], "f": ["5", "5", "4"], "c": [3, 1, 2], "": [8, 8, 9]}
    of = dict(zip(("sample", "cell_name", "user", "userId", "Barcode", "document"), "s" * 6, strict=True))
    of |= dict(zip(("gene", "gene_id", "song", "movieId", "Gene Name", "species"), "f" * 6, strict=True))
    of |= dict(zip(("count", "n", "plays", "rating", "score"), "c" * 5, strict=True))
    headers = header.split(",")
    frame = pd.DataFrame([kinds[of.get(each, "")] for each in headers]).T.set_axis(headers, axis=1)
    if name == "x.csv":
        frame.to_csv(tmp_path / name, index=False)
    else:
        frame.rename(columns={"": "Unnamed: 0"}).infer_objects().to_parquet(tmp_path / name)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        counts = read_counts(tmp_path / name)
    check(counts, [[3, 2], [1, 0]], ["07", "9"], ["5", "4"])
    assert len(caught) == (left is not None)
    assert left is None or f"left out: {left}; remove these columns" in str(caught[0].message)


def test_repeated_numbers_under_an_identifier_are_told(tmp_path):
    with pytest.warns(bayesnmf.DataWarning) as caught:
        counts = read_counts(written(tmp_path, "userId,a,b\n1,5,6\n1,0,3\n9,1,1\n"))
    assert re.search("the column 'userId' of .*x.csv contains numbers", str(caught[0].message))
    assert "names of rows repeat" in str(caught[1].message)
    check(counts, [[5, 6], [0, 3], [1, 1]], ["1", "1", "9"], ["a", "b"])


def test_the_command_line_takes_a_layout(tmp_path):
    path = tmp_path / "x.csv"
    RATINGS.to_csv(path, index=False)
    for layout, shape in (("long", (40, 20)), ("wide", (800, 3))):
        options = build_parser().parse(["equivalences", str(path), "--layout", layout])
        assert read_counts_of(read_arguments(options))[0].shape == shape


def test_columns_that_could_both_name_features_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"one of counts: found 'gene', 'term'; remove all but.*layout=\"wide\""):
        read_counts(written(tmp_path, "sample,gene,term,n\ns,a,b,1\n"))


@pytest.mark.parametrize("name", ["x.csv", "x.parquet"])
def test_numbers_that_never_repeat_in_pairs_are_refused_unless_the_layout_is_said(tmp_path, name):
    path = tmp_path / name
    RATINGS.to_parquet(path) if name == "x.parquet" else RATINGS.to_csv(path, index=False)
    with pytest.raises(ValueError, match=r"no two lines have the same 'a' and 'b'.*say layout=\"long\" or layout="):
        read_counts(path)
    assert read_counts(path, layout="long").shape == (40, 20)
    assert read_counts(path, layout="wide").shape == (800, 3)


def test_frames_and_arrays_that_are_long_are_told():
    for x in (RATINGS, RATINGS.to_numpy(), RATINGS.iloc[:9].set_axis(["userId", "itemId", "value"], axis=1)):
        with pytest.warns(bayesnmf.DataWarning, match="look like a long table, with a row, a feature and a count"):
            as_counts(x)


@pytest.mark.parametrize("m", [3, 6])
def test_counts_of_few_features_are_wide(tmp_path, m):
    """Warnings are errors here: pairs of counts repeat, and those that hardly can prove nothing."""
    rng = np.random.default_rng(0)
    for x in (rng.poisson(2.0, (300, m)), rng.poisson(1e5, (300, m)), np.arange(300)[:, None] + np.arange(m)):
        pd.DataFrame(x, columns=[f"f{j}" for j in range(m)]).to_csv(tmp_path / "x.csv", index=False)
        np.testing.assert_array_equal(read_counts(tmp_path / "x.csv").dense, as_counts(x).dense)


def test_a_layout_that_does_not_fit_is_refused(tmp_path):
    np.savez(tmp_path / "x.npz", np.eye(2))
    for path, layout, rule in (
        (tmp_path / "x.npz", "wide", "layout is for tables"),
        (written(tmp_path, "a,b,c,d\n1,2,3,4\n"), "long", "must name the columns of a long table, as in 'sample'"),
        (tmp_path / "x.csv", "tall", "layout must be"),
    ):
        with pytest.raises(ValueError, match=rule):
            read_counts(path, layout=layout)


def test_a_long_table_without_headers_is_refused(tmp_path):
    """Its first line was lost."""
    with pytest.raises(ValueError, match=r"first line must name the columns, but holds a count \(d1, the, 3\)"):
        read_counts(written(tmp_path, "d1,the,3\nd1,cat,1\nd2,the,2\n"))


HEADLESS = {
    "htseq-count": "ENSG00000000003\t0\nENSG00000000005\t5\n__no_feature\t7\n",
    "htseq-count of two files": "A1BG\t3\t0\nA1BG-AS1\t1\t2\nA2M\t4\t4\n",
    "STAR": "N_unmapped\t9\t8\t7\nN_multimapping\t1\t2\t2\nENSG1\t3\t0\t3\n",
    "cells": "cell1\t1\t2\ncell2\t0\t3\n",
}


@pytest.mark.parametrize("tool", HEADLESS)
def test_a_wide_table_without_headers_is_refused(tmp_path, tool):
    """Its first line was lost, and its counts became names of features."""
    with pytest.raises(ValueError, match=r"first line must name the columns, but holds counts .*; write a line of nam"):
        read_counts(written(tmp_path, HEADLESS[tool], "x.txt"))


@pytest.mark.parametrize("first", ["sample", "country", "", "x"])
def test_years_may_name_features(tmp_path, first):
    text = f"{first}\t1990\t1991\nFrance\t3\t1\nChad 2\t0\t2\n"
    check(read_counts(written(tmp_path, text, "x.txt")), [[3, 1], [0, 2]], ["France", "Chad 2"], ["1990", "1991"])


# --- headers as they are ----------------------------------------------------------------------------------

TOTAL = "x,a,b,c,d\ns1,1,2,3,4\ns2,0,2,0,1\ns3,5,0,1,7\ns4,2,2,9,1\nTotal,8,6,13,13\n"
BIOM = "# Constructed from biom file\n#OTU ID\ts1\ts2\n4479944\t3.0\t1.0\n4479945\t0.0\t2.0\n"
FEATURE_COUNTS = (
    '# Program:featureCounts v2.0.1; Command:"featureCounts" "-a" "genes.gtf"\n'
    "Geneid\tChr\tStart\tEnd\tStrand\tLength\ta.bam\tb.bam\n"
    "ENSG1\t1;1\t11;40\t20;50\t+;+\t21\t3\t1\nENSG2\t2\t1\t9\t-\t9\t0\t2\n"
)


def test_headers_that_repeat_are_kept_and_told(tmp_path):
    """The second one became `1-Mar.1`."""
    path = written(tmp_path, ",1-Mar,1-Mar,b\ns1,1,2,3\ns2,4,5,6\n")
    with pytest.warns(bayesnmf.DataWarning, match=r"names of features repeat: .*'1-Mar' \(2 times\)"):
        check(read_counts(path), [[1, 2, 3], [4, 5, 6]], ["s1", "s2"], ["1-Mar", "1-Mar", "b"])


def test_rows_that_repeat_and_totals_are_told(tmp_path):
    with pytest.warns(bayesnmf.DataWarning, match=r"names of rows repeat: .* such as 's1' \(2 times\)"):
        read_counts(written(tmp_path, ",a,b\ns1,1,2\ns1,3,4\n"))
    with pytest.warns(bayesnmf.DataWarning, match="a row that is the sum of all others, 'Total'"):
        read_counts(written(tmp_path, TOTAL))


def test_names_have_no_spaces_around_them(tmp_path):
    check(read_counts(written(tmp_path, ", a ,b\n s1,1,2\ns2 ,3,4\n")), [[1, 2], [3, 4]], ["s1", "s2"], ["a", "b"])


@pytest.mark.parametrize("separator", ["\t", ","])
@pytest.mark.parametrize("before", ["", "# a comment\n", "# one, with a comma\n#\n\n"])
def test_lines_of_comments_before_a_table_are_left_out(tmp_path, separator, before):
    text = before + "x\ta\tb\ns1\t1\t2\ns2\t3\t4\n".replace("\t", separator)
    path = written(tmp_path, text, "x.csv" if separator == "," else "x.tsv")
    check(read_counts(path), [[1, 2], [3, 4]], ["s1", "s2"], ["a", "b"])


def test_a_table_of_biom_has_a_header_behind_a_number_sign(tmp_path):
    for text in (BIOM, BIOM.split("\n", 1)[1]):
        counts = read_counts(written(tmp_path, text, "x.txt"), transpose=True)
        check(counts, [[3, 0], [1, 2]], ["s1", "s2"], ["4479944", "4479945"])


def test_a_table_of_biom_loses_its_taxonomy(tmp_path):
    text = re.sub(r"(\.0)\n", r"\1\tk__Bacteria; p__\n", BIOM.replace("s2\n", "s2\ttaxonomy\n"))
    with pytest.warns(bayesnmf.DataWarning, match="read as a table of BIOM; left out: taxonomy"):
        counts = read_counts(written(tmp_path, text, "x.txt"), transpose=True)
    check(counts, [[3, 0], [1, 2]], ["s1", "s2"], ["4479944", "4479945"])


@pytest.mark.parametrize("genes", [["ENSG1", "ENSG2"], ["7157", "672"]], ids=["Ensembl", "Entrez"])
def test_a_table_of_feature_counts_loses_its_annotation(tmp_path, genes):
    text = FEATURE_COUNTS
    for old, new in zip(["ENSG1", "ENSG2"], genes, strict=True):
        text = text.replace(old, new)
    path = written(tmp_path, text, "x.txt")
    with pytest.warns(bayesnmf.DataWarning, match="featureCounts; left out: Chr, Start, End, Strand, Length"):
        counts = read_counts(path, transpose=True)
    check(counts, [[3, 0], [1, 2]], ["a.bam", "b.bam"], genes)


# --- headers above the names of the rows ------------------------------------------------------------------

ABOVE_FEATURES = [
    "gene",
    "Gene Symbol",
    "GeneID",
    "#OTU ID",
    "Feature",
    "OTU",
    "MutationType",
    "Mutation Types",
    "Quad",
]


@pytest.mark.parametrize("header", ABOVE_FEATURES)
@pytest.mark.parametrize("name", ["x.tsv", "x.parquet"])
def test_a_header_that_names_features_turns_the_table(tmp_path, header, name):
    path, frame = tmp_path / name, pd.DataFrame({"s1": [1, 2], "s2": [3, 4]}, pd.Index(["u", "v"], name=header))
    frame.to_parquet(path) if name == "x.parquet" else frame.to_csv(path, sep="\t")
    with pytest.warns(bayesnmf.DataWarning, match=f"features in their rows, as the header '{header}' .* they were tur"):
        check(read_counts(path), [[1, 2], [3, 4]], ["s1", "s2"], ["u", "v"])
    check(read_counts(path, transpose=True), [[1, 2], [3, 4]], ["s1", "s2"], ["u", "v"])


@pytest.mark.parametrize("header", ["", "sample", "Sample ID", "#SampleID", "barcode", "x", "patient"])
def test_other_headers_leave_a_table_as_it_lies(tmp_path, header):
    text = f"{header}\ta\tb\nu\t1\t2\nv\t3\t4\n"
    check(read_counts(written(tmp_path, text, "x.tsv")), [[1, 2], [3, 4]], ["u", "v"], ["a", "b"])


def test_numbers_under_a_header_of_features_are_told(tmp_path):
    path = written(tmp_path, "gene_id,a,b\n1,5,6\n2,0,3\n9,1,1\n")
    with pytest.warns(bayesnmf.DataWarning, match="the column 'gene_id' of .*x.csv contains numbers"):
        check(read_counts(path, transpose=True), [[5, 0, 1], [6, 3, 1]], ["a", "b"], ["1", "2", "9"])


# --- large numbers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", ["4", "0.5"])
@pytest.mark.parametrize("count", [2**63 - 1, 2**63, 2**64, 10**40])
def test_whole_numbers_of_any_size_are_read(tmp_path, count, other):
    """Those above 2**64 became objects, which were refused with advice to convert them."""
    for text in (f",a,b\ns1,{count},1\ns2,{other},2\n", f"s,f,n\nu,a,{count}\nv,a,{other}\n"):
        np.testing.assert_allclose(
            read_counts(written(tmp_path, text)).dense[:, 0], [float(count), float(other)], rtol=1e-15
        )


def test_numbers_that_are_no_counts_are_refused_whatever_their_size(tmp_path):
    for entry, message in (
        (f"1{'0' * 400}", r"must be below 1\.8e\+308: .*; divide them"),
        (-(10**30), "found -1e\\+30"),
    ):
        for text in (f",a,b\ns1,{entry},1\ns2,3,2\n", f"s,f,n\nu,a,{entry}\nv,a,3\n"):
            with pytest.raises(ValueError, match=message):
                read_counts(written(tmp_path, text))
    for field in ("integer", "unsigned-integer"):
        text = f"%%MatrixMarket matrix coordinate {field} general\n1 1 1\n1 1 {2**64}\n"
        with pytest.raises(ValueError, match=r"must be below 2\*\*63 \(Line 3: .*\); declare its entries real"):
            read_counts(written(tmp_path, text, "x.mtx"))


# --- names of documents -----------------------------------------------------------------------------------


def test_numbers_under_document_are_told(tmp_path):
    with pytest.warns(bayesnmf.DataWarning, match="the column 'document' of .*x.csv contains numbers"):
        read_counts(written(tmp_path, "document,a,b\n1,5,6\n2,0,3\n9,1,1\n"))


# --- Parquet ----------------------------------------------------------------------------------------------

FRAME = pd.DataFrame({"a": [1, 0], "b": [2.5, 3.0]})


@pytest.mark.parametrize(
    ("frame", "row_names"),
    [
        (FRAME, [0, 1]),
        (FRAME.set_axis(["s1", "007"]), ["s1", "007"]),
        (FRAME.set_axis([5, 9]), [5, 9]),
        (FRAME.assign(sample=["s1", "007"])[["sample", "a", "b"]], ["s1", "007"]),
        (FRAME.assign(sample=["1", "007"])[["sample", "a", "b"]], ["1", "007"]),  # text, so no counts
        (FRAME.assign(sample=pd.Categorical(["s1", "s2"]))[["sample", "a", "b"]], ["s1", "s2"]),
        (FRAME.astype({"a": "Int64", "b": "float32"}), [0, 1]),
    ],
    ids=["no names", "index", "index of numbers", "column", "column of digits", "categories", "other types"],
)
def test_parquet_files_are_read(tmp_path, frame, row_names):
    folder = tmp_path / "year=2020"  # which pyarrow would make a column
    folder.mkdir()
    frame.to_parquet(folder / "x.parquet")
    check(read_counts(folder / "x.parquet"), FRAME.to_numpy(), row_names, ["a", "b"])


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (FRAME.assign(c=pd.to_datetime(["2020-01-01", "2020-01-02"])), "x.parquet must .*column 'c'"),
        (FRAME.assign(c=["x", "y"]), "x.parquet must .*column 'c': Unable to parse"),
        (FRAME.assign(c=[1.0, None]), "x.parquet must be finite as float64: found nan at row 1, column 2"),
        (FRAME.assign(c=[1, -1]), "x.parquet must be nonnegative: found -1.0 at row 1, column 2"),
        (FRAME[[]], "x.parquet must .* no column of numbers;"),
    ],
)
def test_parquet_files_without_counts_are_refused(tmp_path, frame, message):
    frame.to_parquet(tmp_path / "x.parquet")
    with pytest.raises(ValueError, match=message):
        read_counts(tmp_path / "x.parquet")


def test_a_long_table_of_categories(tmp_path):
    frame = pd.DataFrame(LONG, columns=["a", "b", "c"]).astype({"a": "category", "b": "category"})
    frame.to_parquet(tmp_path / "x.parquet")
    check(read_counts(tmp_path / "x.parquet"), DENSE, *LONG_NAMES)


def test_a_small_file_that_declares_many_rows_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("bayesnmf.places.FREE_AXES", 0)
    pd.DataFrame({"a": np.zeros(1_000_000, np.int8)}).to_parquet(tmp_path / "x.parquet")
    with pytest.raises(ValueError, match=r"x\.parquet must be .* found 1,000,000 rows and 1 columns"):
        read_counts(tmp_path / "x.parquet")


def test_a_file_that_is_not_parquet_is_refused(tmp_path):
    path = written(tmp_path, "a,b\n1,2\n", "x.parquet")
    with pytest.raises(ValueError, match=r"x\.parquet must be a Parquet file with a table of numbers: .*; mend or rew"):
        read_counts(path)


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    FRAME.to_parquet(tmp_path / "x.parquet")
    for module in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r"reading \.parquet files needs pyarrow: pip install 'bayesnmf\[files\]'"):
        read_counts(tmp_path / "x.parquet")
