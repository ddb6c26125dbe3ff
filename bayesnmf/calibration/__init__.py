"""Simulation-based calibration: whether a method's posteriors are those of the model, seen on data drawn from it.

Draw parameters from the prior and counts given them, fit, and rank the true value of some quantity among posterior
draws of it. If the draws are of the posterior, the rank is uniform over 0 … L ([1]_, [2]_), whatever the model. Ranks
at both ends tell of posteriors that are too narrow; ranks in the middle, of too wide ones; ranks to one side, of bias.

References
----------
.. [1] S. Talts, M. Betancourt, D. Simpson, A. Vehtari and A. Gelman (2018). Validating Bayesian inference algorithms
   with simulation-based calibration. arXiv:1804.06788.
.. [2] M. Modrák, A. H. Moon, S. Kim, P. Bürkner, N. Huurre, K. Faltejsková, A. Gelman and A. Vehtari (2023).
   Simulation-based calibration checking for Bayesian computation: the choice of test quantities shapes sensitivity.
   Bayesian Analysis.
"""

from bayesnmf.calibration.quantities import QUANTITIES
from bayesnmf.calibration.result import Calibration
from bayesnmf.calibration.running import calibrate

__all__ = ["QUANTITIES", "Calibration", "calibrate"]
