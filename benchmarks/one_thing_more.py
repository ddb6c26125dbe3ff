"""Do programs with one thing more keep the speed of closed forms, and the posterior that NUTS has?

    python -m benchmarks.one_thing_more [--examples NAME …] [--draws 2000] [--of-nuts 1500] [--out FOLDER]

Each example is a NumPyro program, and counts that are drawn from it at fixed parameters. One thing more, the log of the
mean of the loadings, is a function of further sites:

- `regression`: what saturates with a covariate, base + effect · (1 − exp(−age / tau)), for each component; 200 × 100
  counts, K = 5;
- `process`: a Gaussian process over ordered rows for each component, of one length, by 15 sines (Hilbert space); 60 ×
  40 counts, K = 3;
- `correlated`: a normal of each row whose components are correlated; 60 × 40 counts, K = 3.

A row of the table is a sampler: NUTS of the whole program, or `bayesnmf.conjugate_block` of loadings and components
beside NUTS of the other sites. Both have four chains from the same values. Seconds are those of the processor, of draws
after 500 steps of warm-up. "Least a second" is the least effective sample size a second of any entry of loadings, of
components, and of any number of the further sites; "apart" is how far the means of the two samplers are apart, in Monte
Carlo standard errors: the root of the mean square over all entries, which is 1 where both have the same posterior, and
the largest. Results that are in the folder are not run again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.distributions import biject_to
from numpyro.infer import MCMC, NUTS, CustomGibbs, Gibbs

import bayesnmf

Array = np.ndarray[Any, Any]
Program = Callable[[Any], None]
CHAINS, WARMUP = 4, 500
EDGE, SINES = 1.5, np.arange(1, 16)  # of the Hilbert space


class Example(NamedTuple):
    """A program, and values of further sites at which counts are drawn; others are drawn from their priors."""

    program: Program
    truth: dict[str, Any]


def normal(name: str, mean: float, deviation: float, *size: int) -> Any:
    """Sample normal numbers."""
    return numpyro.sample(name, dist.Normal(mean, deviation).expand(size).to_event(len(size)))


def with_counts(x: Any, features: int, shape: float, eta: Any) -> None:
    """Sample loadings whose means are exp(eta), (n, K), and components; observe the counts."""
    topics = numpyro.sample("topics", dist.Dirichlet(0.3 * jnp.ones((eta.shape[1], features))).to_event(1))
    amounts = numpyro.sample("amounts", dist.Gamma(shape, shape * jnp.exp(-eta)).to_event(2))
    numpyro.sample("x", dist.Poisson(amounts @ topics).to_event(2), obs=x)


def level(rank: int) -> dict[str, Array]:
    """Return the true logs of the means of components, some 30 to 90 counts a row."""
    return {"base": np.random.default_rng(2).uniform(3.5, 4.5, rank)}


def regression(rows: int = 200, features: int = 100, rank: int = 5) -> Example:
    """Loadings rise or fall with age, and level off."""
    age = np.random.default_rng(1).uniform(0.0, 3.0, rows)

    def program(x: Any) -> None:
        base, effect = normal("base", 3.0, 2.0, rank), normal("effect", 0.0, 1.0, rank)
        tau = numpyro.sample("tau", dist.LogNormal(0.0, 0.5))
        with_counts(x, features, 0.8, base + effect * (1.0 - jnp.exp(-age / tau))[:, None])

    return Example(program, {"effect": np.array([1.5, -1.0, 0.0, 0.8, -0.5])[:rank], "tau": 1.0} | level(rank))


def process(rows: int = 60, features: int = 40, rank: int = 3) -> Example:
    """Loadings follow smooth functions of time."""
    frequencies, times = np.pi * SINES / (2 * EDGE), np.linspace(-1.0, 1.0, rows)
    waves = np.sin(frequencies * (times[:, None] + EDGE)) / np.sqrt(EDGE)

    def program(x: Any) -> None:
        base, weights = normal("base", 3.0, 2.0, rank), normal("weights", 0.0, 1.0, len(SINES), rank)
        length = numpyro.sample("length", dist.InverseGamma(5.0, 2.0))
        size = numpyro.sample("size", dist.HalfNormal(1.0))
        density = size * jnp.sqrt(jnp.sqrt(2 * jnp.pi) * length) * jnp.exp(-0.25 * (length * frequencies) ** 2)
        with_counts(x, features, 0.8, base + waves @ (density[:, None] * weights))

    return Example(program, {"length": 0.4, "size": 1.0} | level(rank))


def correlated(rows: int = 60, features: int = 40, rank: int = 3) -> Example:
    """Components come together, or avoid each other."""
    signs = np.array([1.0, 1.0, -1.0])

    def program(x: Any) -> None:
        base, each = normal("base", 3.0, 2.0, rank), normal("each", 0.0, 1.0, rows, rank)
        spread = numpyro.sample("spread", dist.HalfNormal(jnp.ones(rank)).to_event(1))
        root = numpyro.sample("root", dist.LKJCholesky(rank, 2.0))
        with_counts(x, features, 2.0, base + each @ (spread[:, None] * root).T)

    root = np.linalg.cholesky(0.3 * np.eye(rank) + 0.7 * np.outer(signs, signs))
    return Example(program, {"spread": np.ones(rank), "root": root} | level(rank))


EXAMPLES = {each.__name__: each for each in (regression, process, correlated)}


def counts_of(example: Example) -> Array:
    """Return counts drawn from an example."""
    fixed = {name: jnp.asarray(value) for name, value in example.truth.items()}
    model = handlers.seed(handlers.substitute(example.program, fixed), 0)
    return np.asarray(handlers.trace(model).get_trace(None)["x"]["value"])


class Run(NamedTuple):
    """Draws of all sites, (chains, draws, …), and seconds of warm-up and draws."""

    draws: dict[str, Array]
    warmup: float
    seconds: float


def run(kernel: Any, draws: int, x: Array, start: dict[str, Array]) -> Run:
    """Run four chains from given values."""
    mcmc = MCMC(kernel, num_warmup=WARMUP, num_samples=draws, num_chains=CHAINS, chain_method="sequential",
                progress_bar=False)  # fmt: skip
    began = time.process_time()
    mcmc.warmup(jax.random.key(1), x, init_params=start)
    warm = time.process_time()
    mcmc.run(jax.random.key(2), x)
    found = {name: np.asarray(each) for name, each in mcmc.get_samples(group_by_chain=True).items()}
    return Run(found, warm - began, time.process_time() - warm)


def by_block(program: Program, x: Array, draws: int, sweeps: int) -> Run:
    """Run the block beside NUTS; the seconds of warm-up have those of recognition and of the start."""
    began = time.process_time()
    block = bayesnmf.conjugate_block(x, program, sweeps=sweeps)
    start = block.start(CHAINS)
    made = time.process_time() - began
    found = run(Gibbs([(CustomGibbs(block), block.sites), (NUTS(block.rest), None)]), draws, x, start)
    return found._replace(warmup=found.warmup + made)


def by_nuts(program: Program, x: Array, draws: int) -> Run:
    """Run NUTS of the whole program from the same values, in its unconstrained space."""
    block = bayesnmf.conjugate_block(x, program)
    start = block.start(CHAINS)
    sites = handlers.trace(handlers.seed(program, 0)).get_trace(x)
    for name in block.sites:
        start[name] = np.asarray(biject_to(sites[name]["fn"].support).inv(jnp.asarray(start[name])))
    return run(NUTS(program), draws, x, start)


def figures(found: Run) -> dict[str, Any]:
    """Return means, their Monte Carlo errors, R-hat and effective sample sizes of a run."""
    parts: dict[str, Any] = {"warmup": found.warmup, "seconds": found.seconds, "means": {}, "errors": {}, "least": {}}
    rhat = []
    for name, values in found.draws.items():
        moving = values.reshape(*values.shape[:2], -1)
        moving = moving[..., moving.std(axis=(0, 1)) > 0]  # not the upper triangle of a Cholesky factor
        size = effective_sample_size(moving)
        rhat.append(split_gelman_rubin(moving).max())
        parts["means"][name] = moving.mean(axis=(0, 1)).tolist()
        parts["errors"][name] = (moving.std(axis=(0, 1)) / np.sqrt(size)).tolist()
        parts["least"][name] = float(size.min())
    return parts | {"rhat": float(max(rhat)), "draws": found.draws["amounts"].shape[1]}


def apart(one: dict[str, Any], two: dict[str, Any]) -> tuple[float, float]:
    """Return root mean square and largest difference of the means of two samplers, in standard errors."""
    scores = np.concatenate([
        (np.array(one["means"][name]) - two["means"][name]) / np.hypot(one["errors"][name], two["errors"][name])
        for name in one["means"]
    ])  # fmt: skip
    return float(np.sqrt((scores**2).mean())), float(np.abs(scores).max())


def row(example: str, sampler: str, found: dict[str, Any], other: dict[str, Any] | None) -> str:
    """Return a line of the table."""
    least = found["least"]
    further = min(value for name, value in least.items() if name not in ("amounts", "topics"))
    rates = [f"{each / found['seconds']:.1f}" for each in (least["amounts"], least["topics"], further)]
    mean, largest = ("", "") if other is None else map("{:.2f}".format, apart(found, other))
    parts = [example, sampler, f"4 × {found['draws']:,}", f"{found['warmup']:.0f}", f"{found['seconds']:.0f}",
             f"{found['rhat']:.3f}", *rates, mean, largest]  # fmt: skip
    return f"| {' | '.join(parts)} |"


def main(given: list[str] | None = None) -> None:
    """Run what is not in the folder yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", nargs="+", default=list(EXAMPLES), choices=list(EXAMPLES))
    parser.add_argument("--draws", type=int, default=2000, help="draws of each chain beside the block")
    parser.add_argument("--of-nuts", type=int, default=1500, help="draws of each chain of NUTS alone")
    parser.add_argument("--sweeps", type=int, nargs="*", default=[5], help="sweeps of the block for each step of NUTS")
    parser.add_argument("--out", type=Path, default=Path("results") / "one_thing_more", help="folder of results")
    options = parser.parse_args(given)
    jax.config.update("jax_enable_x64", True)
    options.out.mkdir(parents=True, exist_ok=True)
    head = ["example", "sampler", "draws", "warm-up s", "draws s", "R-hat", "loadings", "components", "further",
            "apart", "largest"]  # fmt: skip
    print(f"| {' | '.join(head)} |\n|---|---|{'--:|' * (len(head) - 2)}")
    for example in options.examples:
        made, other = EXAMPLES[example](), None
        program, x = made.program, counts_of(made)
        for sampler in ("NUTS", *(f"block, {sweeps} sweeps" for sweeps in options.sweeps)):
            path = options.out / f"{example}_{sampler.replace(', ', '_').replace(' ', '_')}.json"
            if not path.exists():
                found = (by_nuts(program, x, options.of_nuts) if sampler == "NUTS"
                         else by_block(program, x, options.draws, int(sampler.split()[1])))  # fmt: skip
                path.write_text(json.dumps(figures(found)))
            figure = json.loads(path.read_text())
            print(row(example, sampler, figure, other), flush=True)
            other = figure if other is None else other


if __name__ == "__main__":
    main()
