"""A misspelt word is answered with the one that is meant; a whole number in place of a model is the rank."""

import numpy as np
import pytest
from smallfits import COUNTS, QUICK

import bayesnmf
from bayesnmf.checks import nearest

EMPTY = pytest.mark.filterwarnings("ignore::bayesnmf.inference.status.FitWarning")


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (lambda: bayesnmf.fit(COUNTS, rank=2, noise="NB1"), "did you mean 'nb1'"),
        (lambda: bayesnmf.fit(COUNTS, rank=2, noise="negative_binomial"), "did you mean 'nb1', .* or 'nb2'"),
        (lambda: bayesnmf.fit(COUNTS, rank=2, noise="Negative-Binomial"), "did you mean 'nb1', .* or 'nb2'"),
        (lambda: bayesnmf.fit(COUNTS, rank=2, missing="NaN"), "did you mean 'nan'"),
        (lambda: bayesnmf.modes(COUNTS, rank=2, missing="Zeros"), "did you mean 'zeros'"),
        (lambda: bayesnmf.MinibatchVI(rank=2).partial_fit(COUNTS, missing="NaN"), "did you mean 'nan'"),
        (lambda: bayesnmf.fit(COUNTS, rank=2, method="VI"), "did you mean 'vi'"),
        (lambda: bayesnmf.BayesNMF(2, method="Gibbs").fit(COUNTS), "did you mean 'gibbs'"),
        (lambda: bayesnmf.VI(algorithm="Settled"), "did you mean 'settled'"),
        (lambda: bayesnmf.select(COUNTS, criterion="mask"), "did you mean 'masked'"),
        (lambda: bayesnmf.fit(COUNTS, "nmf"), "did you mean 'poisson', whose method='map' is NMF"),
        (lambda: bayesnmf.fit(COUNTS, "LDA"), "did you mean 'dirichlet_poisson', which is latent Dirichlet"),
        (lambda: bayesnmf.fit(COUNTS, "Gamma-Poisson"), "did you mean 'gamma_poisson'"),
        (lambda: bayesnmf.fit(COUNTS, methd="vi"), r"did you mean method\?"),
        (lambda: bayesnmf.fit(COUNTS, max_itr=5), r"options=bayesnmf.VI\(max_iter="),
        (lambda: bayesnmf.datasets.real("newsgroup"), "did you mean 'newsgroups'"),
        (lambda: bayesnmf.plot, "did you mean 'plots'"),
        (lambda: bayesnmf.absence, r"call 1 - bayesnmf\.assign\(fit\.counts, fit\)\.presence"),
        (lambda: bayesnmf.plots.structures, "did you mean 'structure'"),
        (lambda: bayesnmf.Gibs, "did you mean 'Gibbs'"),
        (lambda: bayesnmf.simulate(10), r"did you mean rank=10\?"),
        (lambda: bayesnmf.fit(COUNTS, "10"), r"did you mean rank=10\?"),
    ],
)
def test_a_misspelt_word_is_answered_with_the_one_that_is_meant(call, meant):
    with pytest.raises((ValueError, TypeError, AttributeError, FileNotFoundError), match=meant):
        call()


def test_the_nearest_word():
    assert nearest("NB-1", ("poisson", "nb_1")) == "nb_1"
    assert nearest("gibs", ("gibbs", "vi")) == "gibbs"
    assert nearest("wholly other", ("gibbs", "vi")) is None
    assert nearest(3, ("gibbs",)) is None


@EMPTY
def test_a_whole_number_in_place_of_the_model_is_the_rank_at_every_front_door():
    assert bayesnmf.fit(COUNTS, 2, options=QUICK, seed=0).rank == 2
    assert bayesnmf.fit(COUNTS, np.int64(2), method="map", seed=0).rank == 2
    assert bayesnmf.BayesNMF(2, options=QUICK).fit(COUNTS).n_components_ == 2
    assert bayesnmf.modes(COUNTS, 2, starts=2, options=QUICK).best.rank == 2
    assert bayesnmf.MinibatchVI(3).rank == 3
    found = bayesnmf.select(COUNTS, [1, 2], splits=2, check=False, options=QUICK)
    assert found.table.index.get_level_values("rank").tolist() == [1, 2]
    assert bayesnmf.compare(COUNTS, 2, methods=("map",)).fits["map"].rank == 2
    assert bayesnmf.log_evidence(COUNTS, 1).method == "exact"


@EMPTY
def test_tl_fit_takes_the_rank_where_the_estimator_does():
    anndata = pytest.importorskip("anndata")
    cells = anndata.AnnData(COUNTS.to_numpy().astype(float))
    assert bayesnmf.tl.fit(cells, 2, options=QUICK, seed=0).rank == 2


@pytest.mark.parametrize(
    "call",
    [
        lambda: bayesnmf.fit(COUNTS, 2, 3),
        lambda: bayesnmf.fit(COUNTS, 2, rank=3),
        lambda: bayesnmf.select(COUNTS, 2, (2, 3)),
        lambda: bayesnmf.compare(COUNTS, 2, 3),
        lambda: bayesnmf.compare(COUNTS, 2, 8),  # as by default
        lambda: bayesnmf.MinibatchVI(2, rank=3),
    ],
)
def test_a_rank_that_is_given_twice_is_refused(call):
    with pytest.raises(ValueError, match=r"ranks? must be given once: found"):
        call()


def test_dir_has_every_public_name():
    assert {*bayesnmf.__all__} <= {*dir(bayesnmf)}
