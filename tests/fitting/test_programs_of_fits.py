"""Fits as NumPyro programs: the same log joint, the same bound, and NumPyro's own functions take them."""

import re
from pathlib import Path

import jax
import numpy as np
import numpyro
import pytest
from bayesnmf.models import gamma_poisson
from numpyro.handlers import seed, substitute, trace
from numpyro.infer import SVI, Predictive, TraceMeanField_ELBO
from numpyro.infer.util import log_density

import bayesnmf
from bayesnmf.fitting.nuts_and_svi import log_joints
from bayesnmf.priors.specification import MODELS
from bayesnmf.priors.values import attach_scale

X = np.random.default_rng(0).poisson(3.0, (8, 6))
OBSERVED = np.random.default_rng(1).random(X.shape) < 0.9
CASES = {
    "gamma_poisson": {},
    "by map": {"method": "map"},
    "known components": {"fixed_components": np.full((1, 6), 1 / 6)},
    "missing entries": {"observed": OBSERVED},
    "exposures": {"row_exposure": np.arange(1.0, 9.0)},
    "dirichlet_gamma": {"model": "dirichlet_gamma"},
    "nb1": {"noise": bayesnmf.NegativeBinomial("linear", 0.5)},
    "nb2 by feature": {"noise": bayesnmf.NegativeBinomial("quadratic", np.linspace(0.1, 0.6, 6), by="feature")},
}


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def fitted(name):
    return bayesnmf.fit(X, rank=2, seed=0, **CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_the_program_of_a_fit_has_its_log_joint(name):
    fit = fitted(name)
    program = fit.program()
    found, _ = log_density(program.model, (), program.arguments, program.start)
    model = substitute(seed(program.model, 0), program.start)
    sites = trace(model).get_trace(**program.arguments)
    product = sites["counts"]["fn"]
    scale = program.start["scale"][None, None] if "scale" in program.start else None
    loadings = attach_scale(program.start["loadings"][None, None], scale)
    components = np.asarray(product.components)[None, None]
    ours = log_joints(fit.counts, fit.priors, loadings, components, fit.noise)[0, 0]
    assert float(found) == pytest.approx(ours, rel=1e-9)


def test_the_guide_at_the_parameters_of_a_fit_has_its_bound():
    fit = fitted("gamma_poisson")
    program = fit.program()
    bound = TraceMeanField_ELBO(num_particles=1000)
    svi = SVI(program.model, program.guide, numpyro.optim.Adam(1e-3), bound)
    state = svi.init(jax.random.key(0), init_params=program.parameters, **program.arguments)
    estimate = bayesnmf.elbo_marginal(fit)
    assert -float(svi.evaluate(state, **program.arguments)) == pytest.approx(estimate.mean, abs=8 * estimate.se)


@pytest.mark.parametrize("given", [{"noise": "quasi"}, {"noise": "zip"}, {"batch": list("aabbaabb")}])
def test_fits_without_a_program_are_refused(given):
    fit = bayesnmf.fit(X, rank=2, seed=0, **given)
    with pytest.raises(ValueError, match=r"fit\.program\(\) needs what method='svi' needs"):
        fit.program()


def test_programs_take_priors_and_counts_of_the_library():
    priors = {"loadings": bayesnmf.Gamma(0.5, 0.1), "components": bayesnmf.Dirichlet(0.3)}
    plain = {"loadings": {"shape": 0.5, "rate": 0.1}, "components": {"concentration": 0.3}}
    values = {"loadings": np.full((8, 2), 0.7), "components": np.full((2, 6), 1 / 6)}
    ours, _ = log_density(gamma_poisson.program, (bayesnmf.as_counts(X),), {"rank": 2, **priors}, values)
    theirs, _ = log_density(gamma_poisson.program, (X,), {"rank": 2, "size": X.shape, **plain}, values)
    assert float(ours) == pytest.approx(float(theirs), rel=1e-12)
    with pytest.raises(ValueError, match=r"give size=\(n, m\)"):
        Predictive(gamma_poisson.program, num_samples=1)(jax.random.key(0), rank=2, **priors)


def test_the_programs_are_named():
    assert dir(bayesnmf.models) == [
        "dirichlet_gamma", "dirichlet_poisson", "gamma_poisson", "hierarchical_poisson", "poisson"
    ]  # fmt: skip


PAGES = ["programs.md", *(f"models/{name}.md" for name in MODELS)]


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES)
def test_pages_of_programs_run_as_printed(page, monkeypatch):
    path = Path(__file__).parents[2] / "docs" / page
    blocks = re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    code = "\n".join(each for each in blocks if page == "programs.md" or "bayesnmf.models" in each)
    assert "bayesnmf.models" in code
    monkeypatch.setattr(jax.config, "update", lambda *_: None)  # as the fixture does
    exec(compile(code, str(path), "exec"), {"__name__": "guide"})
