"""The type of arrays, and the words of arguments, for annotations.

An editor offers the words, and `| str` allows those of models and methods that were added. A test compares the words
with the models, methods and noises that there are.
"""

from __future__ import annotations

from typing import Any, Literal

from numpy.typing import NDArray

Array = NDArray[Any]

ModelWord = Literal["poisson", "gamma_poisson", "dirichlet_poisson", "dirichlet_gamma", "hierarchical_poisson"]
MethodWord = Literal["map", "vi", "gibbs", "nuts", "smc", "svi", "bld"]
NoiseWord = Literal["poisson", "nb1", "nb2", "quasi", "zip"]
CriterionWord = Literal["masked", "heldout", "evidence", "stability"]
ModelName = ModelWord | str
MethodName = MethodWord | str
NoiseName = NoiseWord | str
CriterionName = CriterionWord | str
