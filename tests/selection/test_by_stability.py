"""The rank by stability: components that come back in halves of the rows."""

import itertools

import matplotlib.pyplot as plt
import numpy as np

import bayesnmf
from bayesnmf import VI, Dirichlet, Gamma, Priors, plots
from bayesnmf.data.conversion import as_counts
from bayesnmf.inference.alignment import cosine
from bayesnmf.selection.by_stability import split_rows
from bayesnmf.stability.running import seed_of


def test_stability_matches_fits_of_halves_of_the_rows():
    priors = Priors(Gamma(1.0, 0.02), Dirichlet(0.3))
    counts = as_counts(bayesnmf.simulate("gamma_poisson", (60, 15), 3, priors=priors, seed=2).counts)
    found = bayesnmf.select(counts, ranks=(2, 3, 6), criterion="stability", halves=6, seed=3)
    parts = split_rows(counts, 6, 3)
    for first, second in zip(parts[::2], parts[1::2], strict=True):
        both = np.concatenate([first.row_names, second.row_names])
        assert sorted(both) == sorted(counts.row_names)  # no row in both, none left out
    for rank in (2, 6):
        whole = bayesnmf.fit(counts, rank=rank, seed=3)
        cosines = np.empty((6, rank))
        for number, part in enumerate(parts):
            options = VI(start="random", threads=1)
            half = bayesnmf.fit(part, rank=rank, seed=seed_of(3, number), options=options)
            similarity = cosine(half.components, whole.components)
            cosines[number] = max(  # over all ways to match them
                (similarity[list(order), np.arange(rank)] for order in itertools.permutations(range(rank))),
                key=lambda matched: matched.sum(),
            )
        line = found.table.loc[("gamma_poisson", rank)]
        assert line["least"] == (cosines > 0.85).mean(axis=0).min()
        np.testing.assert_allclose(line["closeness"], cosines.mean(axis=0).min(), rtol=1e-9)
        np.testing.assert_allclose(found.scores[("gamma_poisson", rank)], cosines.min(axis=1), rtol=1e-9)
    assert found.best.rank == 3
    assert found.one_standard_error == found.best
    assert "6 halves of the rows" in repr(found)
    plots.selection(found)
    plt.close("all")


def test_noise_of_cells_is_no_stable_component():
    """Thinned counts prefer more components in each of these sets, as both parts of a cell share its excess."""
    chosen = []
    for seed in range(4):
        rng = np.random.default_rng([7, seed])
        means = rng.gamma(0.7, 150, (40, 3)) @ rng.dirichlet(np.full(12, 0.4), 3)
        noisy = rng.poisson(means * rng.gamma(5.0, 0.2, means.shape))
        chosen.append(
            [
                bayesnmf.select(noisy, ranks=(2, 3, 5, 7), criterion=criterion, seed=seed, check=False).best.rank
                for criterion in ("heldout", "stability")
            ]
        )
    held_out, stable = np.transpose(chosen)
    assert min(held_out) > 3
    assert np.sum(stable == 3) >= 3


def test_ranks_without_stable_components_have_no_best():
    noise = np.random.default_rng(0).poisson(20.0, (30, 10))
    found = bayesnmf.select(noise, ranks=(3, 5), criterion="stability", halves=4, check=False)
    assert found.best is None
    assert "come back in at least 80 % of the halves of the rows" in found.cautions[0]
