"""The estimators `BayesNMF` and `BayesLDA`, with the interface of scikit-learn.

They call `bayesnmf.fit`, and can stand in pipelines, grid searches and wherever scikit-learn takes a transformer. What
`transform` returns for a row depends on this row and the components alone, so that ``fit_transform(X)`` is
``fit(X).transform(X)``, as scikit-learn asks; the loadings of the fit itself are in ``fit_.loadings``.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from bayesnmf.assessment.scoring import MOST_SCORE_DRAWS, SCORE_DRAWS, background, for_thinned, score
from bayesnmf.checks import check_choice
from bayesnmf.data.annotated import counts_within, is_annotated
from bayesnmf.data.blocks.opening import as_table, features_of, may_be_on_disk, open_counts
from bayesnmf.data.checks import check_complete, check_missing_word
from bayesnmf.data.conversion import check_in_memory, check_no_texts, check_unmasked, convert, warn_of_all
from bayesnmf.data.counts import Counts
from bayesnmf.data.labels import Order, order_of, split_labels
from bayesnmf.data.missing import with_missing, without_missing
from bayesnmf.data.naming import check_distinct, in_feature_order, with_names
from bayesnmf.data.seeds import seeds_of
from bayesnmf.data.splitting import halves_of_rows
from bayesnmf.data.suspicions import warn_of_data, warn_of_empty_rows
from bayesnmf.estimators.checks import (
    check_no_generator,
    check_not_negative,
    check_one_matrix,
    check_options_given,
    check_streamed,
)
from bayesnmf.fitting.fit import fit
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.streaming import MinibatchVI
from bayesnmf.options import METHODS, VI
from bayesnmf.priors import Priors
from bayesnmf.types import Array, MethodName, ModelName

LARGEST_SEED = 2**31 - 1
SINGLE = ("priors", "tol", "max_iter", "restarts")  # settings that may stand in place of options
OF_STREAMS = ("priors", "start", "batch_size", "forgetting", "delay", "sweeps", "learn", "dtype", "threads", "device")


def options_of(estimator: Any, dtype: str) -> Any:
    """Return the options of the method: those given as a whole, or of single settings and the type of the counts."""
    known = METHODS[check_choice(estimator.method, "method", METHODS)].options
    given = {name: getattr(estimator, name) for name in SINGLE if getattr(estimator, name) is not None}
    check_options_given(given, estimator.options, known, estimator.method)
    if estimator.options is not None:
        return estimator.options
    return known(**given, **({"dtype": dtype} if "dtype" in known.__dataclass_fields__ else {}))


def options_of_stream(estimator: Any, dtype: str) -> VI:
    """Return the options of a stream, which has no stopping rule, one start and an algorithm of its own."""
    given = options_of(estimator, dtype)
    return VI(algorithm="minibatch", **{name: getattr(given, name) for name in OF_STREAMS})


def seed_of(estimator: Any) -> int:
    """Return the seed of a fit."""
    return int(check_random_state(check_no_generator(estimator.random_state)).randint(LARGEST_SEED))


TYPES = [np.float64, np.float32]


class BayesNMF(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Bayesian non-negative matrix factorisation of counts, as a scikit-learn transformer.

    Parameters
    ----------
    n_components : int
        Number of components, K.
    model : str
        Model, as for `bayesnmf.fit`.
    method : str
        Method, as for `bayesnmf.fit`.
    priors : Priors, optional
        Priors, by default those of the model.
    tol, max_iter : float and int, optional
        Stopping rule, where the method has it; by default that of the method.
    restarts : int, optional
        Number of starts, where the method has it; by default that of the method.
    options : MAP, VI, Gibbs, NUTS, SMC, SVI or BLD, optional
        All options of the method, in place of `priors`, `tol`, `max_iter` and `restarts`.
    noise, missing : optional
        Noise of the counts, and "nan" or "zeros" for what is missing, in all methods, as for `bayesnmf.fit`.
    seeds : mapping or Seeds, optional
        Features that named components are to have, as for `bayesnmf.fit`; not in `partial_fit`.
    formula : str, optional
        What loadings depend on, as for `bayesnmf.fit`: columns of the `covariates` given to `fit` and `transform`.
    random_state : int, RandomState or None
        Seed of the fit, as in scikit-learn. With None, every fit has another.

    Attributes
    ----------
    components_ : ndarray (K, m)
        Components: the mode, or the posterior mean.
    posterior_ : VariationalPosterior or Draws
        Posterior of the fit, under all methods but map and bld.
    fit_ : Fit
        Fit, with everything that `bayesnmf` can do with it; that of the last rows after `partial_fit`.
    n_components_ : int
    n_iter_ : int
    converged_ : bool
    n_features_in_ : int
    feature_names_in_ : ndarray (m,)
        Names of the features, if they are all strings.

    See Also
    --------
    BayesLDA : its proportions of topics.
    fit : the same, with all options.

    Examples
    --------
    >>> import bayesnmf
    >>> counts = [[3, 0, 1], [0, 2, 4], [5, 1, 0], [0, 3, 6]]
    >>> estimator = bayesnmf.BayesNMF(2, random_state=0).fit(counts)
    >>> estimator.transform(counts).shape, estimator.components_.shape
    ((4, 2), (2, 3))
    """

    def __init__(
        self,
        n_components: int = 10,
        *,
        model: ModelName = "gamma_poisson",
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
        self.n_components = n_components
        self.model = model
        self.method = method
        self.priors = priors
        self.tol = tol
        self.max_iter = max_iter
        self.restarts = restarts
        self.options = options
        self.noise, self.missing, self.seeds, self.formula = noise, missing, seeds, formula
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, covariates: Any = None, batch: Any = None) -> Self:
        """Fit the model to counts X, (n, m), which may be a path or `Blocks`; y is ignored.

        `covariates` and `batch` of the rows are those of `bayesnmf.fit`, and can be routed as metadata; so are errors.
        """
        counts = self._counts(X, reset=True)
        options = options_of(self, counts.dtype.name)
        for name in ("_stream", "_block"):
            self.__dict__.pop(name, None)
        given: Any = {"seed": seed_of(self), "options": options, "noise": self.noise, "seeds": self.seeds}
        given |= {"formula": self.formula, "covariates": covariates, "batch": batch}
        found = fit(counts, self.model, self.n_components, self.method, **given)
        self._fit: Fit | None = found
        self.components_, self.n_components_, self.n_iter_ = found.components, found.rank, found.status.iterations
        return self

    def fit_transform(self, X: Any, y: Any = None, covariates: Any = None, batch: Any = None) -> Array:
        """Fit the model to counts X, and return ``transform(X)``; y is ignored."""
        given = {name: value for name, value in (("covariates", covariates), ("batch", batch)) if value is not None}
        self._converted: list[Any] = [X]  # once, since what is warned of should be told once
        try:
            return self.fit(X, *([] if y is None else [y]), **given).transform(X, **given)
        finally:
            del self._converted

    @available_if(lambda self: self.method == "vi")
    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Learn from one more block of rows, by minibatch VI (`bayesnmf.MinibatchVI`); y is ignored.

        The first call after `fit` starts a new fit. Only ``method="vi"`` has this method. It takes one step for each
        batch of rows: priors, batches, step sizes and types of the options are used, and `tol`, `max_iter`, `restarts`
        and the algorithm are those of `fit` alone.
        """
        check_streamed(self)
        first = "_stream" not in self.__dict__
        check_in_memory(X, "X")
        counts = self._counts(X, reset=first)
        if first:
            given: Any = {"options": options_of_stream(self, counts.dtype.name), "seed": seed_of(self)}
            self._stream = MinibatchVI(self.model, self.n_components, noise=self.noise, **given)
        self._stream.partial_fit(counts)
        self._fit, self._block = None, counts  # the fit of the block is made when it is asked for
        self.components_, self.n_components_ = self._stream.components, self._stream.rank
        self.n_iter_ = self._stream.steps
        return self

    def transform(self, X: Any, covariates: Any = None, batch: Any = None) -> Array:
        """Return the loadings of rows X, (n, K), given the components: proportions under LDA, counts otherwise.

        After a fit with covariates or batches, those of these rows are needed.
        """
        found = self._projected(self._counts(X), covariates=covariates, batch=batch)
        warn_of_empty_rows(found.counts)
        return found.loadings

    def inverse_transform(self, X: Any) -> Array:
        """Return loadings X, (n, K), times the components, (n, m): expected counts, or their shares under LDA.

        Columns with names are those of ``get_feature_names_out()``, in any order.
        """
        check_is_fitted(self)
        found, names = split_labels(X), self.get_feature_names_out()
        places = order_of(found.columns, names, Order("X", "component", "estimator"))
        values = np.asarray(found.values)
        return (values if places is None else values[:, places]) @ self.components_

    def score(self, X: Any, y: Any = None, covariates: Any = None, batch: Any = None) -> float:
        """Return the mean log-probability, in nats, of one half of each row's counts given the other half.

        Every count of a row falls in one of the halves by chance; the split depends on the counts of the row alone. So
        the score of many rows is the mean of those of single rows, weighted by their held-out counts: exactly under map
        and bld, else up to the error of averaging over posterior draws, about 0.0005 nats. It is NaN if no count was
        held out. Parts of counts that are no whole numbers never are, and a DataWarning says that there are such.
        """
        counts = check_complete(self._counts(X), "score")
        if not counts.is_integer:
            warn_of_data("X must be whole numbers for a score: parts of counts are never held out; round them")
        seen, held_out = halves_of_rows(counts)
        projected = self._projected(seen, 0.5, covariates=covariates, batch=batch)
        return score(projected, held_out, background(self.fit_.counts), SCORE_DRAWS, 0, MOST_SCORE_DRAWS).per_count

    def perplexity(self, X: Any, covariates: Any = None) -> float:
        """Return exp(−score(X)): the number of equally probable features among which the model would have to guess."""
        return float(np.exp(-self.score(X, covariates=covariates)))

    @property
    def fit_(self) -> Fit:
        """Fit, of the last block after `partial_fit`."""
        check_is_fitted(self)
        if self._fit is None:
            self._fit = self._stream.result(self._block)
        return self._fit

    @property
    def converged_(self) -> bool:
        """Whether the fit converged; after `partial_fit`, whether all rows of the last block settled."""
        return self.fit_.status.converged

    @property
    def posterior_(self) -> Any:
        """Posterior of the fit."""
        return self.fit_.posterior

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the components, (K,): those of `seeds`, and the class with a number for the others."""
        names: Any = super().get_feature_names_out(input_features)
        named = seeds_of(self.seeds)
        return names if named is None else np.array([*named.sets, *names[len(named.sets) :]], dtype=object)

    def top_features(self, n: int = 10, feature_names: Any = None, order: str = "distinct") -> Any:
        """Return the names of the `n` leading features of each component, as `Fit.top_features`.

        `feature_names` are names for features that came without, or the transformers that made them: in a Pipeline,
        ``pipeline[-1].top_features(10, pipeline[:-1])`` has the words of the topics.
        """
        return self.fit_.rename(features=feature_names).top_features(n, order)

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def _counts(self, X: Any, reset: bool = False) -> Counts:
        """Return the counts of X; inside `fit_transform`, those of its own X are converted once."""
        is_own = "_converted" in vars(self) and X is self._converted[0]
        if is_own and not reset and len(self._converted) > 1:
            return self._converted[1]
        counts = self._read(X, reset)
        if is_own:
            self._converted = [X, counts]
        return counts

    def _read(self, X: Any, reset: bool) -> Counts:
        if not reset:
            check_is_fitted(self)
        is_made = isinstance(counts_within(X, "X"), Counts)
        check_one_matrix(X)
        check_unmasked(X, "X")
        check_no_texts(X, "X")
        is_told = is_annotated(X)  # by what makes a table of it
        X, lost = without_missing(as_table(X, check_missing_word(self.missing)), self.missing)
        if is_made or may_be_on_disk(X):
            counts = open_counts(X, X.dtype if is_made else "float64", missing=self.missing)
            validate_data(self, features_of(counts), reset=reset, skip_check_array=True)
            return self._in_order(with_missing(counts, None, missing=self.missing), reset)
        labels = split_labels(X)
        if labels.columns is not None:
            check_distinct(labels.columns.astype(object), "X")
        values = validate_data(self, X, accept_sparse="csr", dtype=TYPES, reset=reset, ensure_all_finite=True)
        counts = convert(check_not_negative(values), "X", values.dtype, False)
        counts = with_names(counts, labels.rows, labels.columns)
        if not is_told:
            warn_of_all(counts)
        return self._in_order(with_missing(counts, lost, missing=self.missing), reset)

    def _in_order(self, counts: Counts, reset: bool) -> Counts:
        if reset:
            self._feature_labels = counts.feature_names
        return in_feature_order(counts, self._feature_labels, "X", "estimator")

    def _projected(self, counts: Counts, keep: float = 1.0, **of_rows: Any) -> Fit:
        if "_stream" in vars(self):
            return self._stream.result(counts)
        return for_thinned(self.fit_, keep).project(counts, **of_rows)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse, tags.input_tags.allow_nan = True, self.missing == "nan"
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


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
