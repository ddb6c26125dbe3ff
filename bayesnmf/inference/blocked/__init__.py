"""Loadings of counts on disk: kept in files, updated block by block, by tasks that depend on nothing else."""
