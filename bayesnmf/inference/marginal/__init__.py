"""The allocation model: the model of allocations with loadings and components integrated out."""
