"""Draw the factors of a user's NumPyro program as a block of NumPyro's Gibbs sampler, beside NUTS for its other sites.

Given its further sites, a program whose factors have Gamma or Dirichlet priors is one of the models, with the
parameters of the priors that the program has there. The block draws its factors by sweeps over their entries with the
allocations summed out (`bayesnmf.inference.sampling.marginal_gibbs`). These are compiled code outside XLA, which calls
them back: of 200 × 100 counts with K = 5 a sweep takes 2 to 3 ms, and draws of allocations and both factors by XLA
itself 20 ms, by which entries move less.

Given the factors, the counts say nothing of the further sites, so NUTS samples these from the program without its
counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.infer import MCMC, NUTS, init_to_median

from bayesnmf.checks import check_count, check_seed, seed_or_new
from bayesnmf.data.conversion import as_counts
from bayesnmf.data.exposures import with_exposures
from bayesnmf.data.missing import with_missing
from bayesnmf.fitting.chains import chain_starts
from bayesnmf.fitting.job import Job, completed_options
from bayesnmf.fitting.known import NOTHING
from bayesnmf.fitting.problems import draws_problem
from bayesnmf.fitting.recognition import Conjugate, recognise_given
from bayesnmf.inference.sampling.marginal_gibbs import MOST_SHEARS, Factors
from bayesnmf.options import Gibbs
from bayesnmf.priors.values import Value, separate_scale
from bayesnmf.types import Array

WARMUP, APART = 200, 10  # steps by NUTS before the values of other sites that chains begin with, and between these
# With 42 counts for each entry (200 × 100, K = 5), the least effective sample size a second of components was 25 with 1
# to 23 shears of a component a sweep, and 12 with 46; with 900 (pcawg_breast_sbs96), it rises up to 60 shears.
COUNTS_OF_A_SHEAR = 16


@dataclass(frozen=True, eq=False)
class ConjugateBlock:
    """Loadings and components of a NumPyro program as a block of ``numpyro.infer.Gibbs``; `conjugate_block` returns it.

    It is the function that ``numpyro.infer.CustomGibbs`` takes: from values of all sites to new values of its own.

    Attributes
    ----------
    sites : list of str
        Names of its sites: those of loadings, components and, if there is one, of the scale.
    rest : callable
        The program without its counts, for the kernel of the other sites.

    See Also
    --------
    conjugate_block : which returns it.

    Examples
    --------
    >>> from numpyro.infer import NUTS, CustomGibbs, Gibbs
    >>> kernel = Gibbs([(CustomGibbs(block), block.sites), (NUTS(block.rest), None)])  # doctest: +SKIP
    """

    sites: list[str]
    rest: Callable[..., Any]
    _found: Conjugate
    _job: Job
    _sweeps: int

    def __call__(
        self, *, rng_key: jax.Array, gibbs_sites: Mapping[str, jax.Array], hmc_sites: Mapping[str, jax.Array]
    ) -> dict[str, jax.Array]:
        """Return new values of the block's sites, given these and those of the other sites; JAX can compile it."""
        values = {name: gibbs_sites[name] for name in self.sites}
        given = values, self._found.parameters({**hmc_sites, **values})
        dtype = np.dtype(jnp.result_type(*values.values()))

        def drawn(key: Any, bits: Any) -> dict[str, Array]:
            new = self._drawn(np.asarray(key), *jax.tree.map(lambda each: _of_bits(each, dtype), bits))
            least = np.finfo(dtype).tiny
            return {name: _bits_of(np.maximum(value, least).astype(dtype)) for name, value in new.items()}

        # JAX calls back in a thread that may have no float64, where it would round what it hands over
        bits = jax.tree.map(lambda each: jax.lax.bitcast_convert_type(jnp.asarray(each, dtype), jnp.uint32), given)
        like = {name: jax.ShapeDtypeStruct(each.shape, each.dtype) for name, each in bits[0].items()}
        key = jax.random.bits(rng_key, (4,), jnp.uint32)
        found = jax.pure_callback(drawn, like, key, bits, vmap_method="sequential")
        return {name: jax.lax.bitcast_convert_type(each, dtype) for name, each in found.items()}

    def start(self, chains: int = 1, *, seed: int | None = 0) -> dict[str, Array]:
        """Return values of all sites to begin chains with, in one mode: ``init_params`` of ``numpyro.infer.MCMC.run``.

        Parameters
        ----------
        chains : int
            Number of chains.
        seed : int, optional
            Seed of the fit and of the draws.

        Returns
        -------
        dict of ndarray
            Values by name, (chains, …), or of one chain without this axis. Those of the block's sites are draws from
            a variational fit with other sites at their medians. Those of other sites are draws by NUTS given the
            means of these, in NumPyro's unconstrained space.

        Examples
        --------
        >>> block.start(4)["usage"].shape  # doctest: +SKIP
        (4, 60, 5)
        """
        chains, seed = check_count(chains, "chains"), seed_or_new(check_seed(seed))
        job = replace(self._job, options=replace(self._job.options, chains=chains), seed=seed)
        states, _ = chain_starts(job)
        drawn = [self._values(state.loadings.value, state.components.matrix) for state in states]
        least = np.finfo(np.float64 if jax.config.jax_enable_x64 else np.float32).tiny
        stacked = {name: np.maximum(np.stack([each[name] for each in drawn]), least) for name in self.sites}
        means = {name: each.mean(axis=0) for name, each in stacked.items()}
        values = stacked | self._others_given(means, chains, seed)
        return values if chains > 1 else {name: value[0] for name, value in values.items()}

    def _others_given(self, values: dict[str, Array], chains: int, seed: int) -> dict[str, Array]:
        """Return draws of the other sites, (chains, …), in unconstrained space, given values of the block's sites."""
        given = handlers.condition(self.rest, {name: jnp.asarray(value) for name, value in values.items()})
        mcmc = MCMC(
            NUTS(given, init_strategy=init_to_median), num_warmup=WARMUP, num_samples=APART * chains, thinning=APART,
            progress_bar=False, postprocess_fn=lambda found: found,
        )  # fmt: skip
        mcmc.run(jax.random.key(seed % 2**32), jnp.asarray(self._found.traced.counts))
        return {name: np.asarray(value) for name, value in mcmc.get_samples().items()}

    def _drawn(self, key: Array, values: dict[str, Array], parameters: dict[str, dict[str, Array]]) -> dict[str, Array]:
        """Return new values of the sites, given these and the parameters of their priors."""
        rng = np.random.default_rng(key)
        roles = self._found.roles
        loadings, components = (
            values[name].T if turned else values[name]
            for name, turned in zip((roles.loadings, roles.components), roles.transposed, strict=True)
        )
        problem = draws_problem(self._job.counts, self._found.priors(parameters), rng)
        factors = Factors(problem, loadings[None], components[None], rng)
        factors.shears = shears_of(self._job)
        for _ in range(self._sweeps):
            factors.sweep(1)
        new = self._values(*factors.value())
        return {name: new[name].reshape(value.shape) for name, value in values.items()}

    def _values(self, value: Value, components: Array) -> dict[str, Array]:
        """Return values of both sides by site."""
        loadings, scale = separate_scale(value)
        roles = self._found.roles
        found = {
            roles.loadings: loadings.T if roles.transposed[0] else loadings,
            roles.components: components.T if roles.transposed[1] else components,
        }
        if roles.scale is not None:
            assert scale is not None
            found[roles.scale] = scale
        return found


def _of_bits(bits: Any, dtype: Any) -> Array:
    """Return the numbers, in float64, of which these are the bits, as JAX has them in whole numbers of 32 bits."""
    found = np.ascontiguousarray(bits).view(dtype).astype(np.float64)
    return found if dtype.itemsize == 4 else found[..., 0]


def _bits_of(values: Array) -> Array:
    """Return the bits of numbers."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    return bits if values.itemsize == 4 else bits.reshape(*values.shape, 2)


def shears_of(job: Job) -> int:
    """Return the number of shears of each component a sweep, which pay where counts are many for each entry."""
    entries = job.rank * sum(job.counts.shape)
    return int(np.clip(job.counts.total / (COUNTS_OF_A_SHEAR * entries), 1, MOST_SHEARS))


def conjugate_block(counts: Any, program: Callable[..., Any], *, sweeps: int = 5) -> ConjugateBlock:
    """Make the block of ``numpyro.infer.Gibbs`` that draws loadings and components of a program by closed forms.

    The program has two factors whose product is the mean of the counts, as those that `fit` takes, and further sites on
    which the parameters of the factors' priors may depend, as effects on the rate of a Gamma prior of loadings. What
    the parameters are given the further sites is read off the program.

    Parameters
    ----------
    counts : array, SciPy sparse matrix, pandas DataFrame, AnnData or `Counts`, (n, m)
        Whole counts in memory.
    program : callable
        NumPyro program of the counts.
    sweeps : int
        Number of sweeps over all entries for each step of the other sites: fewer where that step is quick, and the
        other sites change slowly.

    Returns
    -------
    ConjugateBlock

    Raises
    ------
    ValueError
        A program without two conjugate factors given its other sites, or that observes other counts; by site.

    See Also
    --------
    fit : which fits a program without further sites.
    Fit.program : the program of a fit.

    Examples
    --------
    >>> import bayesnmf, jax.numpy as jnp, numpy as np, numpyro
    >>> import numpyro.distributions as dist
    >>> x = np.random.default_rng(0).poisson(3.0, (20, 10))
    >>> def program(x):
    ...     level = numpyro.sample("level", dist.Normal(jnp.zeros(2), 1.0).to_event(1))
    ...     usage = numpyro.sample("usage", dist.Gamma(0.5, jnp.exp(-level) * jnp.ones((20, 2))).to_event(2))
    ...     topics = numpyro.sample("topics", dist.Dirichlet(0.5 * jnp.ones((2, 10))).to_event(1))
    ...     numpyro.sample("x", dist.Poisson(usage @ topics).to_event(2), obs=x)
    >>> block = bayesnmf.conjugate_block(x, program)
    >>> block.sites
    ['usage', 'topics']
    """
    data = as_counts(counts)
    found = recognise_given(program, data)
    stated = found.stated
    if stated.row_exposure is not None or stated.feature_exposure is not None:
        data = with_exposures(data, stated.row_exposure, stated.feature_exposure)
    if stated.observed is not None:
        data = with_missing(data, None, stated.observed)
    given = Gibbs(priors=stated.priors, algorithm="marginal")
    options = completed_options(given, stated.model, "gibbs", data, stated.rank, NOTHING, stated.noise)
    job = Job(data, stated.model, stated.rank, "gibbs", 0, options, lambda *_: None, stated.noise)
    rest = handlers.block(program, hide=[found.seen])
    return ConjugateBlock(found.sites, rest, found, job, check_count(sweeps, "sweeps"))
