"""How a mean field responds to a small change of the log joint."""
