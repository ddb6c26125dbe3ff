"""What type checkers see of this group (`bayesnmf.groups`): a test compares it with the names that it has."""

from bayesnmf.options.checkpoint import Checkpoint as Checkpoint
from bayesnmf.options.classes import BLD as BLD
from bayesnmf.options.classes import MAP as MAP
from bayesnmf.options.classes import NUTS as NUTS
from bayesnmf.options.classes import SMC as SMC
from bayesnmf.options.classes import SVI as SVI
from bayesnmf.options.classes import VI as VI
from bayesnmf.options.classes import Gibbs as Gibbs
from bayesnmf.options.methods import FOREIGN as FOREIGN
from bayesnmf.options.methods import METHODS as METHODS
from bayesnmf.options.methods import Method as Method
from bayesnmf.options.methods import Options as Options
from bayesnmf.options.methods import method_of as method_of
from bayesnmf.options.methods import methods_with as methods_with
from bayesnmf.options.methods import options_of as options_of
from bayesnmf.options.start import Start as Start
from bayesnmf.studies.comparison.comparing import Settings as Settings
from bayesnmf.theorems.study import Effort as Effort
