"""The start and the options that are chosen where they are left out, and what sparse priors gain by their start."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from plain import plain_vi
from registry import plain_counts
from smallfits import quietly

import bayesnmf
from bayesnmf import MAP, VI, Dirichlet, Gamma, Priors
from bayesnmf.inference.ascent.coordinate_ascent import ascend
from bayesnmf.inference.status import INTERRUPTED

COUNTS = plain_counts(size=(12, 9))
EVEN, SPARSE = Priors(Gamma(1.0, 0.1), Dirichlet(1.0)), Priors(Gamma(0.3, 0.1), Dirichlet(0.2))
TOPICS = SimpleNamespace(
    drawn=Priors(Dirichlet(0.1), Dirichlet(0.1)),
    fitted=Priors(Dirichlet(0.05), Dirichlet(0.05)),
)


def heights_of_topics(counts, rank, options, seeds):
    """The bounds at which LDA ends from each of some seeds."""
    fits = (bayesnmf.fit(counts, "dirichlet_poisson", rank, "vi", seed=seed, options=options) for seed in seeds)
    return [fit.trace[-1] for fit in fits]


def test_sparse_priors_end_higher_than_from_random_starts():
    """By 50 to 150 nats, on 40 rows of 60 counts."""
    drawn = bayesnmf.simulate("dirichlet_poisson", (40, 16), 3, priors=TOPICS.drawn, totals=60, seed=0)
    [ours] = heights_of_topics(drawn.counts, 3, VI(priors=TOPICS.fitted), [0])
    assert ours > max(heights_of_topics(drawn.counts, 3, plain_vi(priors=TOPICS.fitted), range(3))) + 20


@pytest.mark.long
def test_sparse_priors_end_higher_than_from_a_random_start_on_digits():
    """On 300 digits, LDA with concentrations of 1/20: by 2,500 nats of the 17,000 gained over one component."""
    from bayesnmf.datasets import digits

    counts = digits().rows(slice(300))
    [ours] = heights_of_topics(counts, 10, VI(priors=TOPICS.fitted), [0])
    [random] = heights_of_topics(counts, 10, plain_vi(priors=TOPICS.fitted), [0])
    assert ours > random + 1000


# --- what is chosen for a call ---------------------------------------------------------------------

CHOSEN = [
    ("map", MAP(), ("svd", "scd", True)),
    ("vi", VI(priors=SPARSE, algorithm="minibatch"), ("descent", "minibatch", False)),
    ("map", MAP(schedule="joint"), ("svd", "em", True)),
    ("map", MAP(basis="log"), ("svd", "em", True)),
    ("map", MAP(priors=SPARSE), ("descent", "em", True)),
    ("map", MAP(priors=Priors(loadings=Gamma(2.0, 0.1))), ("svd", "em", True)),
    ("map", MAP(algorithm="em", extrapolate=False, start="random"), ("random", "em", False)),
    ("vi", VI(), ("descent", "coordinate", True)),
    ("vi", VI(priors=EVEN), ("descent", "coordinate", True)),
    ("vi", VI(priors=EVEN, algorithm="gradient"), ("descent", "gradient", False)),
    ("vi", VI(algorithm="minibatch"), ("descent", "minibatch", False)),
    ("vi", VI(start="random", extrapolate=False), ("random", "coordinate", False)),
]


@quietly  # so few iterations do not converge
@pytest.mark.parametrize(("method", "options", "chosen"), CHOSEN)
def test_options_left_out_are_resolved_and_shown(method, options, chosen):
    given = bayesnmf.fit(COUNTS, rank=2, method=method, seed=0, options=replace(options, max_iter=2)).options
    assert (given.start, given.algorithm, given.extrapolate) == chosen
    assert given.tol == {"minibatch": 1e-4, "scd": 1e-9}.get(given.algorithm, 1e-7)


@pytest.mark.parametrize("algorithm", ["coordinate", "gradient", "minibatch"])
def test_restarts_after_a_start_from_the_counts_are_random(algorithm):
    options = VI(algorithm=algorithm, restarts=3, max_iter=5, tol=0)
    fit = bayesnmf.fit(COUNTS, rank=3, seed=0, options=options)
    assert fit.options.start == "descent"
    assert fit.diagnostics["restarts"] == 3
    assert fit.diagnostics["worst_restart"] < fit.trace[-1]


def test_ctrl_c_while_a_start_is_led_up_to_is_heard(monkeypatch):
    """It was taken for the end of the way there, and the fit went on."""

    def interrupted(*given, **named):
        ascent = ascend(*given, **named)
        return ascent._replace(status=ascent.status._replace(reason=INTERRUPTED))

    monkeypatch.setattr("bayesnmf.inference.starts.states.ascend", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bayesnmf.fit(COUNTS, rank=3, seed=0, options=VI(priors=SPARSE))
