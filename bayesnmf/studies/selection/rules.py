"""Limits by which selections are judged."""

CLOSE = 0.75  # cosine of deviations above which a component comes back
COMES_BACK = 0.8  # least share of the halves in which every component of a stable rank comes back
FEWEST_HALVES = 5  # fewer cannot show a share of 80 % that is not 100 %
FEWEST_RUNS = 4  # fewer do not show their spread: logs with sd 3 seem to agree in 26 % of pairs, and 5 % of fours
MISFIT = 0.01  # p-value of all predictive checks below which a caution is given
CLEAR = 2.0  # standard errors by which one rank predicts other rows worse than another beyond chance
