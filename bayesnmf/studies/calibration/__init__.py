"""Simulation-based calibration: test a method's posteriors on data drawn from the model.

Draw parameters from the prior and counts given them, fit, and rank the true value of a quantity among its posterior
draws. If these are draws of the posterior, the rank is uniform over 0 … L ([1]_, [2]_) for every model. Many ranks at
both ends mean posteriors that are too narrow; many in the middle, too wide; many on one side, biased.

References
----------
.. [1] S. Talts, M. Betancourt, D. Simpson, A. Vehtari and A. Gelman (2018). Validating Bayesian inference algorithms
   with simulation-based calibration. arXiv:1804.06788.
.. [2] M. Modrák, A. H. Moon, S. Kim, P. Bürkner, N. Huurre, K. Faltejsková, A. Gelman and A. Vehtari (2023).
   Simulation-based calibration checking for Bayesian computation: the choice of test quantities shapes sensitivity.
   Bayesian Analysis.
"""

from bayesnmf.studies.calibration.calibrating import QUANTITIES, Calibration, calibrate

__all__ = ["QUANTITIES", "Calibration", "calibrate"]
