"""Names that --help lists; a test compares them with those of the library, which takes half a second to import."""

from typing import get_args

from bayesnmf.types import MethodWord, ModelWord

MODELS: tuple[str, ...] = get_args(ModelWord)
METHODS: tuple[str, ...] = get_args(MethodWord)
WHICH = """which model and method:
  --model gamma_poisson, unless you want shares of each sample given its total,
  as topic models do (dirichlet_poisson, or dirichlet_gamma with totals that
  vary), or samples and features differ widely in scale (hierarchical_poisson).
  poisson has a flat prior of the loadings, as NMF does.
  --method vi: components with intervals, in seconds to minutes. map: the same
  without intervals. gibbs: chains, where intervals must be right and counts are
  not too many; nuts checks them on small counts. smc: the evidence of small
  counts. svi and bld: for comparison with other programs."""
FORMATS = (
    ".npz .mtx[.gz] .csv[.gz] .tsv[.gz] .txt[.gz] .all .dat .data .tab .parquet .h5ad .h5, tables of salmon, RSEM, "
    "mothur and PLINK, or a folder of 10x Genomics"
)
TABLES = ".csv[.gz], .tsv[.gz] or .parquet"
