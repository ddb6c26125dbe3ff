"""What can be set: priors, a start, and one frozen class of options for each method."""

from bayesnmf.options.closed_form import BLD, MAP, VI
from bayesnmf.options.sampled import NUTS, SVI, Gibbs
from bayesnmf.options.shared import Priors, Start

__all__ = ["BLD", "MAP", "METHODS", "NUTS", "SVI", "VI", "Gibbs", "Options", "Priors", "Start"]

Options = MAP | VI | BLD | Gibbs | NUTS | SVI
METHODS: dict[str, type[Options]] = {"map": MAP, "vi": VI, "gibbs": Gibbs, "nuts": NUTS, "svi": SVI, "bld": BLD}
