"""Covariates of estimators: given to fit and transform, and routed as metadata."""

import numpy as np
import pandas as pd
import pytest
from plain import plain_vi
from sklearn import config_context
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import bayesnmf
from bayesnmf import BayesLDA, BayesNMF

N = 40
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"age": RNG.uniform(20, 80, N), "arm": RNG.choice(["a", "b"], N)})
COUNTS = RNG.poisson(4, (N, 6))
pytestmark = pytest.mark.filterwarnings("ignore::bayesnmf.inference.status.ConvergenceWarning")
OPTIONS = plain_vi(max_iter=5)


@pytest.mark.parametrize("kind", [BayesNMF, BayesLDA])
def test_covariates_are_those_of_a_fit(kind):
    estimator = kind(2, formula="~ age + arm", options=OPTIONS, random_state=0).fit(COUNTS, covariates=FRAME)
    assert estimator.fit_.effects().index.get_level_values("term")[:3].tolist() == ["Intercept", "age", "arm[T.b]"]
    found = estimator.transform(COUNTS, FRAME)
    assert found == pytest.approx(estimator.fit_.transform(COUNTS, covariates=FRAME))
    assert found == pytest.approx(
        kind(2, formula="~ age + arm", options=OPTIONS, random_state=0).fit_transform(COUNTS, covariates=FRAME)
    )
    assert np.isfinite(estimator.score(COUNTS, covariates=FRAME))
    with pytest.raises(ValueError, match="needs those of its rows"):
        estimator.transform(COUNTS)
    with pytest.raises(ValueError, match="partial_fit takes no covariates"):
        estimator.partial_fit(COUNTS)


def test_pipelines_route_them():
    """With scikit-learn's metadata routing, a pipeline hands covariates to the steps that ask for them."""
    with config_context(enable_metadata_routing=True):
        estimator = BayesNMF(2, formula="~ arm", options=OPTIONS, random_state=0)
        estimator = estimator.set_fit_request(covariates=True).set_transform_request(covariates=True)
        pipeline = make_pipeline(FunctionTransformer(), estimator).fit(COUNTS, covariates=FRAME)
        routed = pipeline.transform(COUNTS, covariates=FRAME)
    seed = pipeline[-1].fit_.seed
    plain = bayesnmf.fit(COUNTS, rank=2, seed=seed, formula="~ arm", covariates=FRAME, options=OPTIONS)
    assert routed == pytest.approx(plain.transform(COUNTS, covariates=FRAME))
