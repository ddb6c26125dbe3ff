"""Options of plain steps from a random start, all named: for statements about one algorithm, whatever defaults are."""

from bayesnmf import MAP, VI


def plain_map(**settings):
    """Return options of EM, with `settings` changed."""
    return MAP(**{"start": "random", "algorithm": "em", "extrapolate": False, **settings})


def plain_vi(**settings):
    """Return options of coordinate ascent, with `settings` changed."""
    return VI(**{"start": "random", "algorithm": "coordinate", "extrapolate": False, **settings})


PLAIN = {"map": plain_map, "vi": plain_vi}
