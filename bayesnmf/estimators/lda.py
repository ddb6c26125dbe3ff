"""The estimator `BayesLDA`, with the interface of scikit-learn."""

from __future__ import annotations

from typing import Any

from bayesnmf.estimators.nmf import BayesNMF
from bayesnmf.priors import Priors
from bayesnmf.types import MethodName


class BayesLDA(BayesNMF):
    """Latent Dirichlet allocation, as a scikit-learn transformer: `BayesNMF` with ``model="dirichlet_poisson"``.

    ``transform`` returns the proportions of the components in each row, and the rows of ``components_`` sum to 1.
    Parameters and attributes are those of `BayesNMF`.

    See Also
    --------
    BayesNMF : for any model.
    to_topic_model : a fit of any model as a topic model.

    Examples
    --------
    >>> import bayesnmf
    >>> shares = bayesnmf.BayesLDA(2, random_state=0).fit_transform([[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]])
    >>> shares.shape
    (4, 2)
    """

    def __init__(
        self,
        n_components: int = 10,
        *,
        method: MethodName = "vi",
        priors: Priors | None = None,
        tol: float | None = None,
        max_iter: int | None = None,
        restarts: int | None = None,
        options: Any = None,
        noise: Any = "poisson",
        missing: Any = None,
        seeds: Any = None,
        formula: Any = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            n_components, model="dirichlet_poisson", method=method, priors=priors, tol=tol, max_iter=max_iter,
            restarts=restarts, options=options, noise=noise, missing=missing, seeds=seeds, formula=formula,
            random_state=random_state,
        )  # fmt: skip
