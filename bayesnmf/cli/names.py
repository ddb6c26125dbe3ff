"""Names that --help lists; a test compares them with those of the library, which takes half a second to import."""

MODELS = ("poisson", "gamma_poisson", "dirichlet_poisson", "dirichlet_gamma", "hierarchical_poisson")
METHODS = ("map", "vi", "gibbs", "nuts", "smc", "svi", "bld")
FORMATS = ".npz .mtx[.gz] .csv[.gz] .tsv[.gz] .txt[.gz] .all .parquet .h5ad .h5, or a folder of 10x Genomics"
TABLES = ".csv[.gz], .tsv[.gz] or .parquet"
