"""Tables of mutation types, written here in the layouts that the programs document."""

import re

import anndata
import numpy as np
import pandas as pd
import pytest
from realdata import real_counts
from test_io import pytestmark

import bayesnmf
from bayesnmf.data.files import read_counts
from bayesnmf.data.mutations import (
    STRANDS,
    cn48_types,
    dbs78_types,
    id83_types,
    read_types,
    sbs96_types,
    sbs1536_types,
    sv32_types,
)

__all__ = ["pytestmark"]  # the same warnings are expected

KINDS = {"SBS96": sbs96_types(), "DBS78": dbs78_types(), "ID83": id83_types(), "SBS1536": sbs1536_types()}
KINDS |= {"CN48": cn48_types(), "SV32": sv32_types()}
KINDS |= {
    f"SBS{96 * len(strands)}": tuple(f"{strand}:{name}" for strand in strands for name in sbs96_types())
    for strands in STRANDS
}
SAMPLES = ["S1", "S 2", "007"]


# --- the types --------------------------------------------------------------------------------------------


def test_substitutions_are_in_the_order_of_cosmic():
    types = sbs96_types()
    assert len(set(types)) == len(types) == 96
    assert types[:5] == ("A[C>A]A", "A[C>A]C", "A[C>A]G", "A[C>A]T", "C[C>A]A")
    assert [types[place][2:5] for place in range(0, 96, 16)] == ["C>A", "C>G", "C>T", "T>A", "T>C", "T>G"]
    assert types[-1] == "T[T>G]T"


def complement(doublet):
    return doublet.translate(str.maketrans("ACGT", "TGCA"))[::-1]


def test_doublets_are_those_of_cosmic():
    types = dbs78_types()
    assert len(set(types)) == len(types) == 78
    assert list(types) == sorted(types)
    assert {"AC>CA", "AT>TA", "CC>TT", "CG>TT", "GC>AA", "TA>GT", "TC>AA", "TT>GG"} <= set(types)
    every = {f"{a}{b}>{c}{d}" for a in "ACGT" for b in "ACGT" for c in set("ACGT") - {a} for d in set("ACGT") - {b}}
    both = [{name, ">".join(map(complement, name.split(">")))} & set(types) for name in every]
    assert [len(found) for found in both] == [1] * 144  # of every doublet and its reverse complement exactly one


def test_indels_are_those_of_cosmic():
    types = id83_types()
    assert len(set(types)) == len(types) == 83
    numbers = pd.Series([name[2:7] for name in types]).value_counts().to_dict()
    assert numbers == {"Del:C": 6, "Del:T": 6, "Ins:C": 6, "Ins:T": 6, "Del:R": 24, "Ins:R": 24, "Del:M": 11}
    assert types[0] == "1:Del:C:0"
    assert types[24] == "2:Del:R:0"
    homology = {"2": "1", "3": "12", "4": "123", "5": "12345"}
    assert types[-11:] == tuple(f"{size}:Del:M:{number}" for size, numbers in homology.items() for number in numbers)


SPELLINGS = {
    "ACA>AAA": "A[C>A]A",
    "TTG>TGG": "T[T>G]G",
    "C>A_ACA": "A[C>A]A",
    **dict.fromkeys(["C>A:ACT", "ACT:C>A", "A(C>A)T", "a[c>a]t", "A[C->A]T", "CA A.T", "CA.A.T", "C>A A.T"], "A[C>A]T"),
    "C>T A.G": "A[C>T]G",
    "C.T.A.G": "C[T>A]G",
    "T>G_CTA": "C[T>G]A",
    "AC_CA": "AC>CA",
    "DEL_C_1_0": "1:Del:C:0",
    "DEL_T_1_5+": "1:Del:T:5",
    "INS_T_1_4": "1:Ins:T:4",
    "INS_repeats_2_5+": "2:Ins:R:5",
    "DEL_repeats_5+_0": "5:Del:R:0",
    "DEL_MH_2_1": "2:Del:M:1",
    "DEL_MH_5+_5+": "5:Del:M:5",
    "DEL:MH:4:3": "4:Del:M:3",
    "C_deletion_1": "1:Del:C:0",
    "T_deletion_6+": "1:Del:T:5",
    "T_insertion_0": "1:Ins:T:0",
    "5+bp_insertion_5+": "5:Ins:R:5",
    "2bp_deletion_6+": "2:Del:R:5",
    "5+bp_deletion_with_microhomology_5+": "5:Del:M:5",
    "C>A_AACAA": "AA[C>A]AA",
    "TTTTT>TTGTT": "TT[T>G]TT",
    "T_C>A_ACA": "T:A[C>A]A",
    "A[C>A]A-untranscribed": "U:A[C>A]A",
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings_of_other_programs(name):
    assert read_types([name]).names == [SPELLINGS[name]]


@pytest.mark.parametrize("names", [[], ["A[C>A]A", "AC>CA"], ["A[C>A]A", "total"], ["A[G>A]A"], ["2:Del:M:2"], [0, 1],
                                   ["T:A[C>A]A", "A[C>A]A"], ["Q:A[C>A]A"], ["A[C>A]A-right"], [""], ["ACAA"],
                                   ["ACCA"], ["DEL:C:1:6+"]])  # fmt: skip
def test_other_names_are_no_types(names):
    assert read_types(names) is None


# --- layouts: frame with canonical types in rows -> text --------------------------------------------------


def frame_of(kind, samples=SAMPLES):
    """Counts with types in rows, in an order of their own."""
    rng = np.random.default_rng(len(KINDS[kind]))
    types = rng.permutation(KINDS[kind])
    return pd.DataFrame(rng.poisson(3.0, (len(types), len(samples))), types, samples)


def trinucleotide(name):
    return name[0] + name[2] + name[6]


def spelled(frame, name_of):
    return frame.set_axis([name_of(name) for name in frame.index])


def sigprofiler(frame, header="MutationType"):
    return frame.to_csv(sep="\t", index_label=header)


def in_columns(frame, header, labels_of, sep=","):
    labels = pd.DataFrame([labels_of(name) for name in frame.index], frame.index, header)
    return pd.concat([labels, frame], axis=1).to_csv(index=False, sep=sep)


def pcawg_labels(name):
    """The four labels of an indel in PCAWG: DEL, C, 1, 0."""
    size, change, where, number = name.split(":")
    long = {"R": "repeats", "M": "MH"}.get(where, where)
    return change.upper(), long, size.replace("5", "5+"), number.replace("5", "5+")


def write_table(frame, sep):
    """Return what R's write.table writes: quoted names, and no header above the names of the rows."""
    lines = [[f'"{name}"' for name in frame.columns]]
    lines += [[f'"{name}"', *map(str, row)] for name, row in zip(frame.index, frame.to_numpy(), strict=True)]
    return "".join(sep.join(line) + "\n" for line in lines)


def with_the_deleted(name):
    """The number of an indel where repeats are counted with the one that is deleted."""
    _, change, where, number = name.split(":")
    if change == "Del" and where != "M":
        return {"5": "6+"}.get(number, str(int(number) + 1))
    return number.replace("5", "5+")


def mutational_patterns(name):
    """The name of an indel in MutationalPatterns."""
    size, change, where, _ = name.split(":")
    what = where if where in "CT" else size.replace("5", "5+") + "bp"
    word = {"Del": "deletion", "Ins": "insertion"}[change]
    return f"{what}_{word}{'_with_microhomology' * (where == 'M')}_{with_the_deleted(name)}"


def run_together(name):
    """The name of a substitution in the rows of ICAMS: its context, and the base that replaces the middle one."""
    (before, rest), after = name.split("["), name.split("]")[1]
    return before + rest[0] + after + rest[2]


LAYOUTS = {
    ("SBS96", "sigprofiler.all"): sigprofiler,
    ("SBS96", "sigprofiler.txt"): lambda frame: sigprofiler(frame, "Type"),
    ("DBS78", "sigprofiler.all"): sigprofiler,
    ("ID83", "sigprofiler.all"): sigprofiler,
    ("SBS96", "pcawg.csv"): lambda frame: in_columns(
        frame, ["Mutation type", "Trinucleotide"], lambda name: (name[2:5], trinucleotide(name))
    ),
    ("SBS96", "type and subtype.tsv"): lambda frame: in_columns(
        frame, ["Type", "SubType"], lambda name: (name[2:5], trinucleotide(name)), "\t"
    ),
    ("DBS78", "pcawg.csv"): lambda frame: in_columns(frame, ["Ref", "Var"], lambda name: name.split(">")),
    ("ID83", "pcawg.csv"): lambda frame: in_columns(
        frame, ["Type", "Subtype", "Indel_size", "Repeat_MH_size"], pcawg_labels
    ),
    ("ID83", "icams, counted from 1.csv"): lambda frame: in_columns(
        frame,
        ["Type", "Subtype", "Indel_size", "Repeat_MH_size"],
        lambda name: (*pcawg_labels(name)[:3], with_the_deleted(name)),
    ),
    ("ID83", "names of icams, counted from 1.csv"): lambda frame: spelled(
        frame, lambda name: ":".join((*pcawg_labels(name)[:3], with_the_deleted(name)))
    ).to_csv(),
    ("SBS96", "names of icams.csv"): lambda frame: spelled(frame, run_together).to_csv(),
    ("SBS1536", "names of icams.csv"): lambda frame: spelled(frame, run_together).to_csv(),
    ("DBS78", "names of icams.csv"): lambda frame: spelled(frame, lambda name: name.replace(">", "")).to_csv(),
    ("DBS78", "MutationalPatterns.txt"): lambda frame: write_table(
        spelled(frame, lambda name: name.replace(">", "_")), "\t"
    ),
    ("ID83", "pcawg in one column.csv"): lambda frame: spelled(frame, lambda name: "_".join(pcawg_labels(name))).to_csv(
        index_label="Mutation Type"
    ),
    ("ID83", "icams.csv"): lambda frame: spelled(frame, lambda name: ":".join(pcawg_labels(name))).to_csv(),
    ("SBS96", "cosmic 2.txt"): lambda frame: re.sub(  # its lines end in tabs
        "\n",
        "\t\t\n",
        in_columns(
            frame,
            ["Substitution Type", "Trinucleotide", "Somatic Mutation Type"],
            lambda name: (name[2:5], trinucleotide(name), name),
            "\t",
        ),
    ),
    ("SBS288", "sigprofiler.all"): sigprofiler,
    ("SBS384", "sigprofiler.all"): sigprofiler,
    ("SBS1536", "sigprofiler.all"): sigprofiler,
    ("CN48", "sigprofiler.all"): sigprofiler,
    ("SV32", "sigprofiler.all"): sigprofiler,
    ("CN48", "without a header.txt"): lambda frame: frame.to_csv(sep="\t"),
    ("SBS1536", "icams.csv"): lambda frame: in_columns(
        frame,
        ["Mutation type", "Pentanucleotide"],
        lambda name: (name[3:6], name[:2] + name[3] + name[7:]),
    ),
    ("SBS192", "icams.csv"): lambda frame: in_columns(
        frame,
        ["Strand", "Mutation type", "Trinucleotide"],
        lambda name: (name[0], name[4:7], trinucleotide(name[2:])),
    ),
    ("SBS192", "MutationalPatterns.txt"): lambda frame: write_table(
        spelled(frame, lambda name: name[2:] + {"T": "-transcribed", "U": "-untranscribed"}[name[0]]), " "
    ),
    ("ID83", "MutationalPatterns.txt"): lambda frame: write_table(spelled(frame, mutational_patterns), "\t"),
    ("SBS96", "write.table.txt"): lambda frame: write_table(frame, " "),
    ("ID83", "write.table.tsv"): lambda frame: write_table(frame, "\t"),
    ("SBS96", "sigfit.csv"): lambda frame: spelled(
        frame, lambda name: f"{trinucleotide(name)}>{name[0]}{name[4]}{name[6]}"
    ).to_csv(),
    ("SBS96", "musicatk.csv"): lambda frame: spelled(frame, lambda name: f"{name[2:5]}_{trinucleotide(name)}").to_csv(),
}


def check(counts, frame):
    np.testing.assert_array_equal(counts.dense, frame.to_numpy().T)
    assert counts.row_names.tolist() == frame.columns.tolist()
    assert counts.feature_names.tolist() == frame.index.tolist()


def test_segments_and_structural_variants_are_those_of_cosmic():
    segments, variants = cn48_types(), sv32_types()
    assert (len(set(segments)), len(set(variants))) == (48, 32)
    assert segments[:4] == ("0:homdel:0-100kb", "0:homdel:100kb-1Mb", "0:homdel:>1Mb", "1:LOH:0-100kb")
    assert segments[28:30] == ("2:het:0-100kb", "2:het:100kb-1Mb")
    assert segments[-1] == "9+:het:>40Mb"
    assert variants[:2] == ("clustered_del_1-10Kb", "clustered_del_10-100Kb")
    assert variants[15:17] == ("clustered_trans", "non-clustered_del_1-10Kb")
    assert variants[-1] == "non-clustered_trans"


@pytest.mark.parametrize("samples", [SAMPLES, ["S1"]], ids=["3 samples", "1 sample"])
@pytest.mark.parametrize(("kind", "name"), LAYOUTS)
def test_types_in_rows(tmp_path, kind, name, samples):
    frame, path = frame_of(kind, samples), tmp_path / name
    path.write_text(LAYOUTS[kind, name](frame))
    check(read_counts(path, transpose=True), frame)
    with pytest.warns(bayesnmf.DataWarning, match=f"have the {len(frame)} mutation types in their rows; they were tur"):
        check(read_counts(path), frame)


SPELLED = {
    "SBS96": str,
    "DBS78": lambda name: name.replace(">", "_"),
    "ID83": lambda name: "_".join(pcawg_labels(name)),
}


@pytest.mark.parametrize("kind", SPELLED)
@pytest.mark.parametrize("suffix", [".csv", ".txt.gz", ".parquet", ".h5ad"])
def test_types_in_columns_and_in_rows_of_every_format(tmp_path, kind, suffix):
    frame = frame_of(kind)
    for turned in (False, True):
        path = tmp_path / f"{turned}{suffix}"
        there = spelled(frame, SPELLED[kind]).T
        there = there.T if turned else there
        if suffix == ".parquet":
            there.to_parquet(path)
        elif suffix == ".h5ad":
            anndata.AnnData(there.astype(float)).write_h5ad(path)
        else:
            there.to_csv(path, sep="," if suffix == ".csv" else "\t")
        if turned:
            check(read_counts(path, transpose=True), frame)
            with pytest.warns(bayesnmf.DataWarning, match="mutation types in their rows; they were turned"):
                check(read_counts(path), frame)
        else:
            check(read_counts(path), frame)
            with pytest.raises(ValueError, match=f"must not be transposed: it has the {len(frame)} mutation types in"):
                read_counts(path, transpose=True)


def test_real_counts_in_the_layout_of_sigprofiler(tmp_path):
    counts = real_counts("pcawg_breast_sbs96")
    frame = pd.DataFrame(counts.dense.T.astype(int), counts.feature_names, counts.row_names)
    path = tmp_path / "Breast.SBS96.all"
    path.write_text(sigprofiler(frame))
    check(read_counts(path, transpose=True), frame)
    check(counts, frame)


# --- tables that are not as they should be ----------------------------------------------------------------


INCOMPLETE = {
    "x.all": (lambda frame: sigprofiler(frame), "SBS96", "A[C>A]A"),
    "without a header.csv": (lambda frame: frame.to_csv(), "ID83", "1:Del:C:0"),
    "pcawg.csv": (LAYOUTS["DBS78", "pcawg.csv"], "DBS78", "CC>TT"),
}


@pytest.mark.parametrize("name", INCOMPLETE)
def test_an_incomplete_set_is_turned_and_it_is_told_what_is_missing(tmp_path, name):
    write, kind, left = INCOMPLETE[name]
    frame, path, number = frame_of(kind, ["S1", "S 2"]).drop(left), tmp_path / name, len(KINDS[kind])
    path.write_text(write(frame))
    check(read_counts(path, transpose=True), frame)
    message = (
        rf"{number - 1} of the {number} mutation types in their rows \('{re.escape(left)}' is missing\); they were tu"
    )
    with pytest.warns(bayesnmf.DataWarning, match=message):
        check(read_counts(path), frame)
    path.write_text(frame.T.to_csv(sep="\t" if name == "x.all" else ",", index_label="MutationType"))
    check(read_counts(path), frame)  # types in the columns say more than the header
    with pytest.raises(ValueError, match=f"must not be transposed: it has {number - 1} of the {number} mutation types"):
        read_counts(path, transpose=True)


UNKNOWN = {
    "ID96": [*id83_types(), "complex", "non_matching"],
    "SBS6144": [f"{strand}:{name}" for strand in "TUBNQ" for name in ("AA[C>A]AA", "TT[T>G]TT")],
    "ID415": ["T:1:Del:C:0", "A:1:Del:T:5", "U:2:Ins:R:5"],
    "DBS186": ["T:AC>CA", "Q:AC>CA", "B:TT>GG"],
}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_unknown_sets_are_turned_by_their_header(tmp_path, kind):
    """They were taken as they lie, and types became samples."""
    path, types = tmp_path / f"x.{kind}.all", UNKNOWN[kind]
    frame = pd.DataFrame(np.arange(2 * len(types)).reshape(-1, 2), types, ["S1", "S2"])
    path.write_text(sigprofiler(frame))
    with pytest.warns(bayesnmf.DataWarning, match="the header 'MutationType' above them says .* they were turned"):
        check(read_counts(path), frame)
    check(read_counts(path, transpose=True), frame)
    path.write_text(frame.T.to_csv(sep="\t"))
    check(read_counts(path), frame)


@pytest.mark.parametrize("number", [96, 97])
def test_a_repeated_type_is_refused(tmp_path, number):
    frame, path = frame_of("SBS96"), tmp_path / "x.all"
    repeated = pd.concat([frame.iloc[: number - 1], frame.iloc[:1]])
    path.write_text(sigprofiler(repeated))
    message = (
        rf"x\.all must have each of the 96 mutation types once in its rows: found '{re.escape(frame.index[0])}' more"
    )
    for transpose in (False, True):
        with pytest.raises(ValueError, match=message):
            read_counts(path, transpose)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("-1", "x.csv must be nonnegative: found -1.0 at row 1, column 0"),
        ("", "x.csv must be finite as float64: found nan at row 1, column 0"),
        ("many", "column 'S1': Unable to parse string 'many'"),
    ],
)
def test_wrong_counts_are_refused(tmp_path, entry, message):
    path = tmp_path / "x.csv"
    lines = LAYOUTS["SBS96", "pcawg.csv"](frame_of("SBS96")).splitlines()
    lines[2] = re.sub(r"^(\S+?,\w+),\d+", rf"\1,{entry}", lines[2])
    path.write_text("\n".join(lines))
    with pytest.raises(ValueError, match=message):
        read_counts(path, transpose=True)


def make_names(name):
    """Return a name as R's make.names changes it."""
    dotted = re.sub("[^A-Za-z0-9._]", ".", name)
    return dotted if dotted[0].isalpha() else f"X{dotted}"


@pytest.mark.parametrize("kind", KINDS)
def test_types_as_r_changes_headers_are_known(tmp_path, kind):
    """``A.C.A.A`` and ``X1.Del.C.0``, as of read.csv and data.frame in R."""
    names = [*KINDS[kind]]
    pd.DataFrame([range(1, len(names) + 1)], ["s1"], [make_names(each) for each in names]).to_csv(tmp_path / "x.csv")
    counts = read_counts(tmp_path / "x.csv")
    assert counts.feature_names.tolist() == names
    assert counts.row_totals.tolist() == [len(names) * (len(names) + 1) / 2]


def test_spellings_of_programs_as_r_changes_them_are_known():
    for spelled in (
        [f"{name}-{strand}" for strand in ("transcribed", "untranscribed") for name in sbs96_types()],
        [name.replace(">", "_") for name in dbs78_types()],
        [f"{name[2:5]}_{name[0]}{name[2]}{name[6]}" for name in sbs96_types()],
    ):
        found = read_types(map(make_names, spelled))
        assert found.is_complete
        assert found.names == read_types(spelled).names
