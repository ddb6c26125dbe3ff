"""Iterations that climb: EM, variational inference, coordinate descent, gradients, minibatches."""
