"""Noises by their words and by the names of their classes."""

from __future__ import annotations

from bayesnmf.noise.abilities import Noise
from bayesnmf.noise.negative_binomial import NegativeBinomial
from bayesnmf.noise.poisson import POISSON
from bayesnmf.noise.quasi import Quasi
from bayesnmf.noise.zero_inflated import ZeroInflated

NOISES: dict[str, Noise] = {
    noise.word: noise
    for noise in (POISSON, NegativeBinomial("linear"), NegativeBinomial("quadratic"), Quasi(), ZeroInflated())
}
OTHERS = dict.fromkeys(
    ("negative_binomial", "negativebinomial", "negbin", "nb", "neg_binomial"),
    "'nb1', with a variance of (1 + s) times the mean, or 'nb2', mean + α mean²",
) | dict.fromkeys(("quasi_poisson", "quasipoisson", "overdispersed"), "'quasi'")
OTHERS |= dict.fromkeys(("zero_inflated", "zeroinflated", "zero_inflated_poisson", "zi"), "'zip'")


def kinds() -> dict[str, type[Noise]]:
    """Return the classes of noises by their names, as files have them."""
    return {type(noise).__name__: type(noise) for noise in NOISES.values()}
