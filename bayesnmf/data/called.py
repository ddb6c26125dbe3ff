"""Lists of mutations, which are no counts yet: how VCF and MAF files are known, and what makes tables of them."""

from __future__ import annotations

import gzip
import itertools
import zlib
from pathlib import Path

MAKERS = {
    "VCF": "SigProfilerMatrixGenerator, or mut_matrix of MutationalPatterns in R",
    "MAF": "SigProfilerMatrixGenerator, or trinucleotideMatrix of maftools in R",
}
PACKED = (".gz", ".bgz")
LINES = 1000  # of comments before the header
COLUMNS = {b"Hugo_Symbol", b"Tumor_Sample_Barcode"}  # of every MAF


def mutations_listed_in(path: Path, is_text: bool) -> str | None:
    """Return "VCF" or "MAF" if a file is one by its suffix or, as a text file, by its first lines; else None."""
    name = path.with_suffix("") if path.suffix.lower() in PACKED else path
    kind = name.suffix.upper().removeprefix(".")
    if kind in MAKERS:
        return kind
    return _kind_of_lines(path) if is_text else None


def _kind_of_lines(path: Path) -> str | None:
    try:
        with (gzip.open if path.suffix.lower() in PACKED else open)(path, "rb") as lines:
            for line in itertools.islice(lines, LINES):
                if line.startswith((b"##fileformat=VCF", b"#CHROM\t")):
                    return "VCF"
                if line.strip() and not line.startswith(b"#"):
                    return "MAF" if {*line.rstrip().split(b"\t")} >= COLUMNS else None
    except (EOFError, OSError, zlib.error):
        return None  # its reader says what is wrong with it
    return None
