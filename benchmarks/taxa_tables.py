"""Write a table of phyloseq as an .npz of counts and labels, by the interpreter of an environment that has rdata.

rivals/bin/python -P benchmarks/taxa_tables.py FILE.RData LABEL RESULT.npz
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import rdata


def main(file: str, label: str, result: str) -> None:
    """Write counts (samples, taxa), and the labels of samples in a column of the sample data."""
    warnings.simplefilter("ignore")  # classes of R that rdata has no constructor for
    found = rdata.read_rda(file)[Path(file).stem]
    labels = np.asarray(found.sam_data[label]).astype(str)
    counts = np.asarray(found.otu_table)
    np.savez_compressed(result, counts=counts if len(counts) == len(labels) else counts.T, labels=labels)


if __name__ == "__main__":
    main(*sys.argv[1:])
