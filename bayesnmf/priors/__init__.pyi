"""What type checkers see of this group (`bayesnmf.groups`): a test compares it with the names that it has."""

from bayesnmf.data.batches import Batch as Batch
from bayesnmf.data.seeds import Seeds as Seeds
from bayesnmf.noise.negative_binomial import NegativeBinomial as NegativeBinomial
from bayesnmf.noise.quasi import Quasi as Quasi
from bayesnmf.noise.zero_inflated import ZeroInflated as ZeroInflated
from bayesnmf.priors.dirichlet import Dirichlet as Dirichlet
from bayesnmf.priors.distribution import Distribution as Distribution
from bayesnmf.priors.gamma import Gamma as Gamma
from bayesnmf.priors.hierarchical_gamma import HierarchicalGamma as HierarchicalGamma
from bayesnmf.priors.pair import Priors as Priors
from bayesnmf.priors.scaled_dirichlet import ScaledDirichlet as ScaledDirichlet
from bayesnmf.priors.values import ScaledProportions as ScaledProportions
from bayesnmf.priors.values import matrix as matrix
