"""What type checkers see of this group (`bayesnmf.groups`): a test compares it with the names that it has."""

from bayesnmf.assessment.agreement import Agreement as Agreement
from bayesnmf.assessment.assignment import Assignment as Assignment
from bayesnmf.assessment.leave_one_out import LeaveOneOut as LeaveOneOut
from bayesnmf.assessment.linear_response import LinearResponse as LinearResponse
from bayesnmf.assessment.matching import Match as Match
from bayesnmf.assessment.predictive_checks import PredictiveChecks as PredictiveChecks
from bayesnmf.data.counts import Counts as Counts
from bayesnmf.data.simulation import Simulation as Simulation
from bayesnmf.data.suspicions import DataWarning as DataWarning
from bayesnmf.fitting.fitted import Fit as Fit
from bayesnmf.inference.status import ConvergenceWarning as ConvergenceWarning
from bayesnmf.results.topic_model import TopicModel as TopicModel
from bayesnmf.studies.calibration import Calibration as Calibration
from bayesnmf.studies.selection.selecting import Selection as Selection
from bayesnmf.studies.stability.consensus import Consensus as Consensus
from bayesnmf.studies.stability.mode_evidence import ModeEvidence as ModeEvidence
from bayesnmf.studies.stability.modes import Modes as Modes
from bayesnmf.theorems.table import Equivalences as Equivalences
