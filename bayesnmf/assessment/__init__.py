"""How good fits are: bounds, evidence, held-out scores, predictive checks, agreement of methods."""
