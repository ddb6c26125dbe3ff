"""The optional parts of a family of distributions, with their descriptions for messages."""

OPTIONAL = {
    "learned": "hyperparameters that can be learned",
    "gradient": "gradients of the ELBO",
    "settled": "rows that a compiled loop can settle",
    "regression": "modes that coordinate descent can find",
    "log_basis": "the mean as the mode in the log basis",
    "merged": "sums of features in the same family",
    "marginal": "allocations whose factors integrate out",
    "entries": "densities of single entries with allocations summed out",
    "program": "a NumPyro program",
    "response": "linear response",
    "device": "updates on a GPU",
}
