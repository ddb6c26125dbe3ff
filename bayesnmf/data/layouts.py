"""What in a table is no count of a feature: columns about its lines, and counters of programs.

Two things are known: the tables of some tools, by their first headers (`TOOLS`); and what headers say in any table,
together with the values below them, their place and the other headers. Columns about lines stand before or after the
counts, so that a gene or a word called ``batch``, ``x`` or ``year`` among others of its kind stays a feature.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bayesnmf.checks import is_counted
from bayesnmf.data.counts import Counts
from bayesnmf.data.labels import listed
from bayesnmf.data.suspicions import warn_of_data
from bayesnmf.types import Array

# --- headers ---------------------------------------------------------------------------------------

NO_NAME = "Unnamed: 0"  # pandas' name for a first column without a header
# Headers of columns: in small letters, without punctuation and without an ending such as "id" or "s".
NAMES_OF_LINES = frozenset(("id", "ids", "idx", "index", "row"))  # name rows if no other column does
NAMES_OF_ROWS = NAMES_OF_LINES | frozenset((
    "sample", "cell", "barcode", "doc", "document", "user", "customer", "patient", "reader", "visitor", "client",
    "tumorsamplebarcode", "spot", "invoice", "invoiceno", "basket", "transaction",
))  # fmt: skip
NAMES_OF_FEATURES = frozenset((
    "feature", "word", "term", "token", "gene", "item", "type", "mutationtype", "movie", "book", "song", "track",
    "artist", "product", "species", "taxon", "otu", "asv", "genesymbol", "quad", "transcript", "isoform", "protein",
    "peptide", "clade", "ensembl", "ensemblgene", "hugosymbol", "pathway",
    "genefamily", "sku", "stockcode", "isbn", "asin",
))  # fmt: skip
NAMES_OF_COUNTS = frozenset((
    "count", "n", "value", "freq", "frequency", "rating", "score", "play", "quantity", "qty", "tf", "cover",
    "abundance", "umi", "read", "weight", "times", "purchase", "click", "view", "listen",
))  # fmt: skip
_ENDING = re.compile(r"(?:ids?|idx|index|names?|s)$")


def stem(header: Any) -> str:
    """Return a header in small letters, without punctuation and without an ending such as "id" or "s"."""
    plain = "".join(letter for letter in str(header).lower() if letter.isalnum())
    known = (NAMES_OF_ROWS, NAMES_OF_FEATURES, NAMES_OF_COUNTS)
    if any(plain in names for names in known):
        return plain
    return "count" if plain.endswith(("count", "counts")) else _ENDING.sub("", plain) or plain


def floats_of(column: Any) -> Array:
    """Return a column as numbers, NaN in place of other entries."""
    import pandas as pd

    return pd.to_numeric(pd.Series(column), errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)


def numbers_lines(head: str, column: Any) -> bool:
    """Return whether a column without a header is 0, 1, 2, … or 1, 2, 3, …, as pandas and R number lines."""
    if head not in ("", NO_NAME):
        return False
    values = floats_of(column)
    return bool(np.all(values == values[:1] + np.arange(len(values))))


# --- tables of tools ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """The table of a tool: a record is all that reading it takes.

    Attributes
    ----------
    tool : str
    header : tuple of str
        First headers, by which it is known; without `names`, the first of them names the lines.
    left : str
        Pattern of headers whose columns are no counts.
    names : tuple of str
        Headers of the columns that name the lines together.
    features_in_rows : bool
    counts : str
        Header of the only column with counts, of one sample: it and two others of `header` tell the tool, in any order.
    cure : str
        What to do, of a table that has no counts.
    outside : str
        Last name of lines that are a counter.
    holds : str
        Entry of the first column that every such table has.
    suffixes : tuple of str
        Ends of the names of its files, but for those that any table has.
    """

    tool: str
    header: tuple[str, ...] = ()
    left: str = ""
    names: tuple[str, ...] = ()
    features_in_rows: bool = True
    counts: str = ""
    cure: str = ""
    outside: str = ""
    holds: str = ""
    suffixes: tuple[str, ...] = ()

    def made(self, header: Sequence[str]) -> bool:
        """Return whether a table with these headers is of the tool, and has counts or is refused."""
        if self.counts:
            return self.counts in header and len({*self.header[1:]} & {*header} - {self.counts}) > 1
        known = bool(self.header) and tuple(header[: len(self.header)]) == self.header
        return known and (bool(self.cure) or any(map(self.has_counts, header)))

    def has_counts(self, head: str) -> bool:
        """Return whether a header is that of counts."""
        named = head in (self.names or self.header[:1])
        return not named and (not self.counts or head == self.counts) and not re.fullmatch(self.left, head)


_TAXA = "metaphlan -t rel_ab_w_read_stats estimates numbers of reads; join those of all samples in one table"
_RSEM = ("length", "effective_length", "expected_count")
_MOLECULES = "count them, as pd.crosstab(frame[{cell!r}], frame[{gene!r}]) does, and write the table that it makes"
TOOLS = [
    Layout("SigProfiler", suffixes=(".all", ".exome", ".region")),  # known by its types of mutations
    Layout("featureCounts", ("Geneid", "Chr", "Start", "End", "Strand", "Length"), "Chr|Start|End|Strand|Length"),
    Layout("featureCounts", ("Status",), holds="Assigned", suffixes=(".summary",), cure="its lines, as "
           "Assigned and Unassigned_Unmapped, say how many reads were assigned; read the table beside it, whose name "
           "has no .summary"),
    Layout("salmon", ("Name", "Length", "EffectiveLength", "TPM", "NumReads"), counts="NumReads", suffixes=(".sf",)),
    Layout("kallisto", ("target_id", "length", "eff_length", "est_counts", "tpm"), counts="est_counts"),
    Layout("RSEM", ("gene_id", "transcript_id(s)", *_RSEM), counts="expected_count", suffixes=(".results",)),
    Layout("RSEM", ("transcript_id", "gene_id", *_RSEM), counts="expected_count"),
    Layout("Bracken", ("name", "taxonomy_id", "taxonomy_lvl", "kraken_assigned_reads"), counts="new_est_reads"),
    Layout("Bracken", ("name", "taxonomy_id", "taxonomy_lvl"), r"taxonomy_id|taxonomy_lvl|.*_frac"),
    Layout("GCT", ("Name", "Description"), "Description", suffixes=(".gct",)),
    Layout("mothur", ("Representative_Sequence", "total"), "total", suffixes=(".count_table",)),
    Layout("mothur", ("label", "Group", "numOtus"), "label|numOtus", ("Group",), False, suffixes=(".shared",)),
    Layout("PLINK", ("FID", "IID", "PAT", "MAT", "SEX", "PHENOTYPE"), "FID|PAT|MAT|SEX|PHENOTYPE", ("IID",), False,
           suffixes=(".raw",)),
    Layout("CosMx", ("fov", "cell_ID"), names=("fov", "cell_ID"), features_in_rows=False, outside="0"),
    Layout("Stereo-seq", ("geneID", "x", "y"), cure="its lines are genes of spots: name the spots, as "
           "frame['x'].astype(str) + '_' + frame['y'].astype(str) does, in a table of sample, gene and count"),
    Layout("StringTie", ("Gene ID", "Gene Name", "Reference"), cure="prepDE.py of StringTie makes a table of counts"),
    Layout("Cufflinks", ("tracking_id", "class_code"), cure="count the reads with featureCounts or HTSeq"),
    Layout("MetaPhlAn", ("#clade_name", "NCBI_tax_id", "relative_abundance"), cure=_TAXA),
    Layout("MetaPhlAn", ("clade_name", "NCBI_tax_id", "relative_abundance"), cure=_TAXA),
    Layout("MaxQuant", ("Protein IDs",), r"(?!(?i:MS/MS count) .).*"),
    Layout("MaxQuant", ("Protein IDs", "Majority protein IDs"), cure="intensities are no counts; write numbers of "
           "spectra, 'MS/MS count ...' of each sample, which are read"),
    Layout("Xenium", ("transcript_id", "cell_id"), cure="it lists molecules: "
           + _MOLECULES.format(cell="cell_id", gene="feature_name")),
]  # fmt: skip
TXIMPORT = ("abundance", "counts", "length")


def read_as_its_tool_says(frame: Any, path: Path) -> Any:
    """Return the table of a known tool as a frame with the names of its lines as index, and a warning; else None.

    Raises
    ------
    ValueError
        A table of a tool that has no counts.
    """
    header = [str(each) for each in frame.columns]
    first = frame.iloc[:, 0].to_numpy() if header else ()
    known = next((each for each in TOOLS if each.made(header) and (not each.holds or each.holds in first)), None)
    known = known or _tximport(header)
    if header and header[0].startswith("#") and stem(header[0]) == "otu":
        known = _biom(frame, header)
    if known is None:
        return None
    if known.cure:
        raise ValueError(f"it is a table of {known.tool} without counts of features: {known.cure}")
    names = known.names or header[:1]
    counted = [each for each in header if known.has_counts(each)]
    found = frame[counted].set_axis(names_of_lines(frame, names), axis="index").rename_axis(index=names[-1])
    told = [f"{path} is read as a table of {known.tool}"]
    if left := [each for each in header if each not in (*names, *counted)]:
        told.append(f"left out: {', '.join(left)}")
    if known.outside and (lost := (frame[names[-1]].astype(str) == known.outside).to_numpy()).any():
        found, told = found[~lost], [*told, f"left out: {lost.sum()} lines of what is in no cell ({names[-1]} 0)"]
    if known.counts:
        told.append("it is one sample: write the counts of all in one table, as tximport does in R")
    if len(told) > 1:
        warn_of_data("; ".join(told))
    if known.features_in_rows:
        found.attrs["features of"] = known.tool
    return found


def _tximport(header: list[str]) -> Layout | None:
    """Return the layout of the three matrices of tximport in R side by side, as its as.data.frame writes them."""
    parts = [each.partition(".") for each in header[1:] if each != "countsFromAbundance"]
    samples = {kind: [sample for each, _, sample in parts if each == kind] for kind in TXIMPORT}
    alike = samples["counts"] and all(each == samples["counts"] for each in samples.values())
    if not alike or len(parts) > len(samples) * len(samples["counts"]):
        return None
    return Layout("tximport", (header[0],), r"(abundance|length)\..*|countsFromAbundance")


def _biom(frame: Any, header: list[str]) -> Layout | None:
    """Return the layout of a table of BIOM if it ends in columns of text, as of taxonomy, or about the features."""
    after = takewhile(lambda each: holds_text(frame[each]) or each.lower() in OF_FEATURES, header[:0:-1])
    left = "|".join(map(re.escape, after))
    return Layout("BIOM", (header[0],), left) if left else None


def names_of_lines(frame: Any, names: Sequence[str], as_they_are: bool = False) -> Any:
    """Return the names of lines from one column or several as text, with white space around them if `as_they_are`."""
    import pandas as pd

    texts = [frame[each].astype(object).where(frame[each].notna(), "").astype(str) for each in names]
    if not as_they_are:
        texts = [each.str.strip() for each in texts]
    return pd.Index(texts[0] if len(texts) < 2 else texts[0].str.cat(texts[1:], sep="_"))


# --- columns about lines --------------------------------------------------------------------------

# Headers that no feature has, wherever they stand. What scanpy, Seurat and spatial platforms compute for each cell:
METRICS = re.compile(
    r"n_?(count|feature|umi|gene|read|transcript)s?([_.]\w+)?|(pct|percent|perc)[_.].+|(log1?p|log10)[_.].+"
    r"|(total|sum|mean)[_.](of[_.])?(n_|log\w*_)?(count|umi|gene|read|feature|transcript|expression|signal|molecule)\w*"
    r"|(center|centroid|global|local|array|pxl|pixel|image|img|spatial|tissue|umap|tsne|pca?|coord|pos)_?"
    r"(x|y|z|row|col)([_.].*)?|[xyz][_. ]?(centroid|coord.*|pos.*|loc.*|global.*|slide.*|fov.*|px|um|mm)"
    r"|(min|max)_[xyz]|(\w+_)?res\.[0-9.]+|seurat_clusters|orig\.ident|(leiden|louvain)([_.].*)?|doublet_?scores?"
    r"|predicted_doublets?|(s|g2m)[._]score|(cell|nucleus|spot)[_.](area|volume|size|type|count)s?|in_tissue"
    r"|lib(rary)?[_.]?size|size[_.]?factors?|(transcript|umi|(control|unassigned|deprecated|genomic)_\w+)_counts?"
    r"|entrez(_?gene)?(_?id)?|(ncbi_)?tax(onomy|on)?_?id|taxonomy_lvl|latitude|longitude"
    r"|gene_?(bio)?type|biotype|unnamed: 0\.\d+|level_\d"  # the last two are what pandas calls an index
)
# The two axes of a plane, if there is no third of this name, as of samples and pixels that are numbered.
AXES = re.compile(
    r"(center|centroid|global|local|array|pxl|pixel|image|img|spatial|tissue|umap|tsne|pca?|coord|pos)_?[12]"
)
# Those that a feature may have, too: words, and a few genes. Lines of features have others than those of samples.
OF_FEATURES = frozenset((
    "chr", "chrom", "chromosome", "start", "end", "strand", "length", "width", "gc", "class", "size", "symbol",
    "description", "taxonomy", "lineage", "consensus lineage", "confidence", "sequence",
))  # fmt: skip
PLACES = frozenset((  # also names of single samples, whose numbers differ in most lines
    "condition", "treatment", "site", "station", "plot", "section", "population", "cohort", "study", "tissue", "stage",
    "donor", "subject", "target", "outcome", "run",
))  # fmt: skip
OF_SAMPLES = OF_FEATURES | PLACES | frozenset((
    "x", "y", "z", "row", "col", "column", "fov", "batch", "group", "label", "cluster", "replicate", "rep", "plate",
    "well", "lane", "slide", "quadrat", "year", "month", "week", "day", "date", "hour", "time", "timestamp", "season",
    "age", "sex", "gender", "phenotype", "status", "area", "volume", "weight", "depth", "lat", "lon", "elevation",
    "altitude", "temperature", "ph", "pseudotime", "phase", "diagnosis", "dose", "timepoint", "passage", "bmi",
    "smoker", "rating", "stars", "survival",
))  # fmt: skip
IDENTIFIER = re.compile(r".*[_. -](id|ID|Id|ids)|.*[a-z](ID|Id|IDs)|[FI]ID|.*[_. -][bB]arcodes?")
YEARS = (1500, 2100)
MOST_ABOUT = 60  # columns before the first count, and after the last
LOOKED_AT = 50  # columns of counts beside them
ROWS_LOOKED_AT = 2000  # of counts in memory
MOST_DOUBTFUL = 5  # at each end
FEWEST_HEADS, USUAL = 12, 0.8  # headers, and the share of them that are written alike
ALIKE = 0.6  # of the other headers that look alike


class About(NamedTuple):
    """Places of the columns about the lines of a table: those that name them, and others that are no counts.

    Doubtful ones are counts by their headers, and not by their values; unlike ones have headers unlike all others.
    """

    names: list[int]
    left: list[int]
    doubtful: Sequence[int] = ()
    unlike: Sequence[int] = ()


def about_lines(frame: Any, typed: bool = False) -> About:
    """Return which columns of a table are about its lines, by their headers, values and places.

    Columns of text are found before the first column of counts, and under known headers anywhere. If all columns might
    be about the lines, those of numbers are counts. Numbers that are written as text are text in a `typed` table.
    """
    return _Table(frame, typed).about()


class _Table:
    """A table whose columns are asked whether they are about its lines."""

    def __init__(self, frame: Any, typed: bool) -> None:
        self.frame, self.typed = frame, typed
        self.heads = [str(each).strip() for each in frame.columns]
        self.read: dict[int, Array | None] = {}
        self.words = OF_FEATURES if self.heads and stem(self.heads[0]) in NAMES_OF_FEATURES else OF_SAMPLES
        self.parts = Counter(part for head in self.heads for part in _parts(head) if part in self.words)
        self.certain = certain_among(self.heads)  # that no feature has the header
        self.unlike = unlike_among(self.heads)

    def about(self) -> About:
        size = len(self.heads)
        before = [*takewhile(self.may_be_first, range(size)[:MOST_ABOUT])]
        after = [*takewhile(self.may_be_last, range(size - 1, len(before) - 1, -1)[:MOST_ABOUT])]
        unlike = [place for place in (*before, *after) if self.is_unlike(place) and self.numbers(place) is not None]
        inner = range(len(before), size - len(after))
        known = [place for place in inner if self.certain[place]]
        others = [place for place in inner if place not in {*known}]
        names = self.naming(before)
        asked = [place for place in (*before, *known, *after) if place not in names and place not in unlike]
        if not others:  # they are the features
            others = [place for place in asked if self.numbers(place) is not None and not self.certain[place]]
            return About(names, sorted({*asked} - {*others}))
        certain = [place for place in asked if self.certain[place] or self.numbers(place) is None]
        company = bool(certain) or (bool(names) and names[0] > 0 and not self.counts_lines(0))
        leading = {*before}
        left = [
            place for place in asked if place in certain or self.is_about(place, others, company, place in leading)
        ]  # fmt: skip
        words = [place for place in before if place in asked and place not in left]
        likely = [place for place in words if self.may_be_about(place, others)]
        if 2 * len(likely) > len(words):  # where most of such words are counts, so are the others
            left = [*left, *likely]
        counted = sorted({*range(size)} - {*names, *left, *unlike})
        return About(names, sorted(left), self.doubtful(counted), [place for place in unlike if place not in names])

    def doubtful(self, counted: list[int]) -> list[int]:
        """Return columns with fractions before or after columns of whole numbers, of which there are more."""
        ends = [
            [*takewhile(lambda place: not _are_whole(self.numbers(place)), run[:MOST_DOUBTFUL])]
            for run in (counted, counted[::-1])
        ]  # fmt: skip
        found = sorted({*ends[0], *ends[1]})
        rest = [place for place in counted if place not in found]
        if not found or len(rest) < max(2 * len(found), 3) or len(self.frame) < 2:
            return []
        return found if all(_are_whole(self.numbers(place)) for place in rest) else []

    def numbers(self, place: int) -> Array | None:
        """Return the numbers of a column, NaN in place of other entries; None for a column of text alone."""
        if place not in self.read:
            self.read[place] = _numbers(self.frame.iloc[:, place], self.typed)
        return self.read[place]

    def is_unlike(self, place: int) -> bool:
        """Return whether an unknown header at an end is written as hardly any other: ``OS_months`` beside genes."""
        return self.unlike[place] and not self.is_known(place)

    def is_known(self, place: int) -> bool:
        return self.is_word(place) or self.certain[place]

    def is_word(self, place: int) -> bool:
        """Return whether a header is one of the words, or the only one that has one of them beside others."""
        head, parts = self.heads[place].lower(), _parts(self.heads[place])
        inside = [part for part in parts if self.parts[part] == 1 and len(part) > 1]
        return head in self.words or (bool(inside) and not any(part.isdigit() for part in parts))

    def may_be_first(self, place: int) -> bool:
        return self.may_be_last(place) or self.numbers(place) is None or self.names_lines(place)

    def may_be_last(self, place: int) -> bool:
        return self.is_known(place) or self.is_unlike(place)

    def names_lines(self, place: int) -> bool:
        """Return whether numbers under a header of samples or features, or none, differ in all lines."""
        if place == 0 and (self.heads[0] in ("", NO_NAME) or self.heads[0].startswith("#")):
            return True
        values: Any = self.numbers(place)
        known = stem(self.heads[place]) in NAMES_OF_ROWS | NAMES_OF_FEATURES and len(values) > 2
        return known and _are_whole(values) and len(np.unique(values)) == len(values)

    def counts_lines(self, place: int) -> bool:
        """Return whether a column without a header is 0, 1, 2, … or 1, 2, 3, …, as pandas and R number lines."""
        return self.numbers(place) is not None and numbers_lines(self.heads[place], self.numbers(place))

    def naming(self, run: list[int]) -> list[int]:
        """Return the columns of a run that name the lines: the first whose entries differ, else several together."""
        words = [place for place in run if self.is_word(place)]
        able = [
            place for place in run
            if self.numbers(place) is None
            or not (place in words or METRICS.fullmatch(self.heads[place].lower()) or self.is_unlike(place))
        ]  # fmt: skip
        named = [place for place in able if not self.counts_lines(place)] or able
        different = next((place for place in named if self.frame.iloc[:, place].is_unique), None)
        if different is not None:
            return [different]
        for chosen in (named, sorted({*named, *words})) if named else ():
            if len(chosen) > 1 and not self.frame.iloc[:, chosen].duplicated().any():
                return chosen
        return named[:1]

    def is_about(self, place: int, others: list[int], company: bool, leads: bool) -> bool:
        """Return whether numbers under a word are about the lines, and not the counts of this word."""
        values: Any = self.numbers(place)
        head, beside = self.heads[place], [self.heads[each] for each in others]
        if not leads and head.lower() in PLACES and len(np.unique(values)) > max(len(values) / 2, 2):
            return False
        usual, times = Counter(map(form, beside)).most_common(1)[0]
        if (form(head) != usual or times < ALIKE * len(beside)) and (leads or len(beside) > 1):
            return True
        if "year" in head.lower() and np.all((values >= YEARS[0]) & (values <= YEARS[1])):
            return True
        if not _are_whole(values):
            return all(_are_whole(self.numbers(each)) for each in others[:LOOKED_AT])
        return company

    def may_be_about(self, place: int, others: list[int]) -> bool:
        """Return whether whole numbers under a word before the counts are never 0, and headers in no order."""
        values: Any = self.numbers(place)
        beside = [self.heads[each] for each in others]
        in_order = [self.heads[each] for each in sorted([*others, place])]
        never_zero = len(values) > 2 and bool(np.all(values > 0)) and max(map(len, beside)) > 1
        return never_zero and sorted(in_order) != in_order


def _parts(head: str) -> list[str]:
    return re.split(r"[_. -]+", head.lower())


def certain_among(heads: Sequence[str]) -> list[bool]:
    """Return which headers no feature has."""
    lower = [head.lower() for head in heads]
    every = {*lower}

    def is_axis(head: str) -> bool:
        return bool(AXES.fullmatch(head)) and not {head[:-1] + other for other in "03"} & every

    return [
        bool(METRICS.fullmatch(low) or IDENTIFIER.fullmatch(head) or is_axis(low) or (head == NO_NAME and place > 0))
        for place, (head, low) in enumerate(zip(heads, lower, strict=True))
    ]


def unlike_among(heads: Sequence[str]) -> list[bool]:
    """Return which headers at an end are written as hardly any other."""
    kinds = [_kind(head) for head in heads]
    (usual, times), *_ = Counter(kinds).most_common(1) or [((), 0)]
    if len(heads) < FEWEST_HEADS or times < USUAL * len(heads) or usual[-1]:  # types of mutations have separators
        return [False] * len(heads)
    ends = {*range(MOST_DOUBTFUL), *range(len(heads) - MOST_DOUBTFUL, len(heads))}
    return [
        place in ends and kind != usual and head not in ("", NO_NAME)
        for place, (head, kind) in enumerate(zip(heads, kinds, strict=True))
    ]


def _kind(head: str) -> tuple[bool, ...]:
    """Return how a header is written: with small letters, capitals, separators."""
    return (head != head.upper(), head != head.lower(), bool(re.search(r"[_ .:>]", head)))


def _numbers(column: Any, typed: bool) -> Array | None:
    import pandas as pd

    is_text = pd.api.types.is_string_dtype(column)
    if not pd.api.types.is_numeric_dtype(column) and (
        (typed and is_text) or not (is_text or column.dtype == object)  # the last are dates and categories
    ):
        return None
    found = floats_of(column)
    return None if is_text and len(found) and np.isnan(found).all() else found


def holds_text(column: Any, typed: bool = False) -> bool:
    """Return whether a column has no number in it; in a `typed` table, those that are written as text are none."""
    return _numbers(column, typed) is None


def _are_whole(values: Any) -> bool:
    return values is None or bool(np.all((values >= 0) & (values == np.floor(values))))


def form(entry: str = "") -> str:
    """Return the form of a name: ``A9`` for ``ENSG00000186092``, ``a9`` for ``s12``."""
    for letters, one in (("[A-Z]+", "A"), ("[a-z]+", "a"), (r"\d+", "9")):
        entry = re.sub(letters, one, entry)
    return entry


def warn_of_columns(counts: Counts) -> None:
    """Warn of features that are about the rows, as identifiers, coordinates and measures of each."""
    heads, most = [str(each) for each in counts.feature_names], counts.shape[1]
    for tool in TOOLS:
        if tool.counts and tool.made(heads):
            warn_of_data(
                f"counts look like a table of {tool.tool}, of one sample, and {tool.counts!r} alone has counts: join "
                f"those of all samples, as pd.concat([table[{tool.counts!r}] for table in tables], axis=1).T does"
            )
            return
    ends = {*range(min(MOST_ABOUT, most)), *range(max(most - MOST_ABOUT, 0), most)}
    certain, unlike = certain_among(heads), unlike_among(heads)
    chosen = sorted(ends | {*np.flatnonzero(certain)})
    known = stem(heads[0]) in NAMES_OF_ROWS or heads[0] == NO_NAME or any(
        certain[place] or unlike[place] or not OF_SAMPLES.isdisjoint(_parts(heads[place])) for place in chosen
    )  # fmt: skip
    if not known and counts.is_integer:
        return
    import pandas as pd

    frame = pd.DataFrame(
        counts.matrix[:ROWS_LOOKED_AT][:, chosen].toarray(), columns=[heads[place] for place in chosen]
    )
    about = about_lines(frame)
    found = [heads[chosen[place]] for place in sorted({*about.names, *about.left, *about.doubtful, *about.unlike})]
    if found and len(found) < most:
        warn_of_data(
            f"counts have columns that look as if they were about the rows, and no counts: {listed(found)}; each is "
            f"taken as a feature; leave them out, as counts.drop(columns={found[:MOST_SHOWN]}) does"
        )


# --- counters of programs -------------------------------------------------------------------------

# Reads, or transcripts, that programs could not count for any feature.
COUNTERS = re.compile(
    r"_*(no_feature|too_low_aQual|not_aligned|alignment_not_unique)|__ambiguous"  # HTSeq
    r"|N_(unmapped|multimapping|noFeature|ambiguous)"  # STAR
    r"|Unassigned_\w+"  # featureCounts
    r"|(UNMAPPED|UNINTEGRATED|UNGROUPED|UNCLASSIFIED)(\|.*)?"  # HUMAnN, MetaPhlAn
)
COUNTERS_OR_WORDS = frozenset(("unmapped", "ambiguous", "unclassified", "no_match", "nomatch"))
MOST_SHOWN = 8


def counters_among(names: Sequence[Any] | Array) -> Array:
    """Return which names are those of counters: of programs, or words that look unlike the other names."""
    texts = [str(each) for each in names]
    found = np.array([bool(COUNTERS.fullmatch(each)) for each in texts], dtype=bool)
    words = [place for place, each in enumerate(texts) if each.lower() in COUNTERS_OR_WORDS]
    if words and not found.all():
        others = Counter(form(each) for place, each in enumerate(texts) if place not in words and not found[place])
        for place in words:
            found[place] = bool(found.any()) or others[form(texts[place])] < ALIKE * sum(others.values())
    return found if not found.all() else np.zeros(len(texts), dtype=bool)


def without_counters(counts: Counts, path: Path) -> Counts:
    """Return the counts of a file without counters of programs among its rows and features, with a warning."""
    for side, names in (("row", counts.row_names), ("feature", counts.feature_names)):
        if is_counted(names) or not (found := counters_among(names)).any():
            continue
        warn_of_data(
            f"counts in {path} have what a program could not count for any feature, left out: "
            f"{listed([str(each) for each in names[found]])}"
        )
        kept = np.flatnonzero(~found)
        counts = counts.rows(kept) if side == "row" else counts.columns(kept)
    return counts


def warn_of_counters(counts: Counts) -> None:
    """Warn of counters of programs among rows and features, which are taken as data."""
    for side, names in (("rows", counts.row_names), ("features", counts.feature_names)):
        if not is_counted(names) and (found := counters_among(names)).any():
            shown = [str(each) for each in names[found]]
            warn_of_data(
                f"counts have {side} that are counters of a program, of what it could not count for any feature: "
                f"{listed(shown)}; leave them out"
            )
