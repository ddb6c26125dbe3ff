"""What a posterior says, and whether it can be believed: summaries, predictive checks, leave-one-out."""

from bayesnmf.diagnostics.leave_one_out import LeaveOneOut, loo
from bayesnmf.diagnostics.predictive import PredictiveChecks, predictive_checks
from bayesnmf.diagnostics.summaries import summary

__all__ = ["LeaveOneOut", "PredictiveChecks", "loo", "predictive_checks", "summary"]
