"""Features named beforehand: a prior that favours them, a start that has them, and names of components."""

import numpy as np
import pandas as pd
import pytest
import smallfits
from plain import plain_map, plain_vi

import bayesnmf
from bayesnmf import VI, Dirichlet, Gamma, Gibbs, Priors, Seeds
from bayesnmf.priors.pair import favoured, movable_components

NAMES = [f"word{j}" for j in range(20)]
SETS = {"late": ["word15", "word17"], "early": ["word1", "word3"]}
pytestmark = smallfits.quietly


def topics():
    """Three topics of which the first prefers early words and the last prefers late ones."""
    weights = np.full((3, 20), 0.3)
    weights[0, :6] += 4
    weights[1, 6:14] += 4
    weights[2, 14:] += 4
    return weights / weights.sum(axis=1, keepdims=True)


RNG = np.random.default_rng(0)
LOADINGS = RNG.gamma(0.4, 60, (80, 3))
COUNTS = pd.DataFrame(RNG.poisson(LOADINGS @ topics()), columns=NAMES)
OPTIONS = {
    "map": plain_map(start="svd", max_iter=60),
    "vi": plain_vi(start=None, max_iter=60),
    "gibbs": Gibbs(start="fit", chains=2, warmup=20, draws=30),
}


@pytest.mark.parametrize("model", ["gamma_poisson", "dirichlet_poisson"])
@pytest.mark.parametrize("method", OPTIONS)
def test_named_components_are_those_of_their_features(method, model):
    for seed in range(2):
        fit = bayesnmf.fit(COUNTS, model, 3, method, seed=seed, options=OPTIONS[method], seeds=SETS)
        assert fit.component_titles == ["late", "early", "component 2"]
        cosines = fit.components @ topics().T / np.linalg.norm(fit.components, axis=1)[:, None]
        assert cosines.argmax(axis=1).tolist() == [2, 0, 1]
        assert fit.loadings[LOADINGS.argmax(axis=1) == 0].mean(axis=0).argmax() == 1


def test_seeds_are_counts_of_the_prior():
    fit = bayesnmf.fit(COUNTS, rank=3, seed=0, options=OPTIONS["vi"], seeds=Seeds(SETS, strength=30))
    given = np.full((3, 20), 0.3)
    given[0, [15, 17]] += 15
    given[1, [1, 3]] += 15
    np.testing.assert_allclose(fit.priors.components.concentration, given)
    priors = Priors(components=Gamma(2.0, 0.5))
    fit = bayesnmf.fit(COUNTS, rank=3, seed=0, options=plain_vi(priors=priors), seeds=Seeds(SETS, strength=30))
    np.testing.assert_allclose(fit.priors.components.shape, given + 1.7)
    assert fit.priors.components.rate == 0.5


def test_strong_seeds_hold_a_component_and_weak_ones_do_not():
    shares = []
    for strength in (1e-3, 1e5):
        fit = bayesnmf.fit(COUNTS, rank=3, seed=0, options=OPTIONS["vi"], seeds=Seeds(SETS, strength=strength))
        shares.append(fit.components[0, [15, 17]].sum())
    assert shares[0] == pytest.approx(topics()[2, [15, 17]].sum(), abs=0.05)
    assert shares[1] > 0.95


def test_a_start_has_the_features_whatever_its_word():
    for word in ("svd", "descent", "random", "random_descent"):
        fit = bayesnmf.fit(COUNTS, rank=3, seed=1, options=VI(start=word, max_iter=1, extrapolate=False), seeds=SETS)
        assert fit.components.argmax(axis=1)[0] >= 14
        assert fit.components.argmax(axis=1)[1] < 6


def test_free_components_beside_named_ones_may_change_places():
    weights = np.ones((5, 4))
    weights[1, 2], weights[3, 0] = 9, 5
    prior = Dirichlet(weights)
    np.testing.assert_array_equal(favoured(prior), weights - 1)
    assert movable_components(Priors(Gamma(1.0, 1.0), prior), 5).tolist() == [0, 2, 4]
    assert not len(favoured(Dirichlet(weights[:1])))
    assert not len(favoured(Dirichlet(np.arange(1, 9).reshape(2, 4))))


def test_what_all_components_have_favours_none():
    """Else all of them would start from the same features, and stay the same."""
    base = np.full(20, 0.3)
    base[[2, 9]] = 2
    prior = Dirichlet(np.tile(base, (3, 1)))
    assert not len(favoured(prior))
    fits = [
        bayesnmf.fit(COUNTS, rank=3, seed=0, options=plain_vi(priors=Priors(components=each), max_iter=5))
        for each in (prior, Dirichlet(base))
    ]
    np.testing.assert_allclose(fits[0].components, fits[1].components, rtol=1e-9)
    seeded = bayesnmf.fit(
        COUNTS, rank=3, seed=0, options=plain_vi(priors=Priors(components=Dirichlet(base))), seeds=SETS
    )
    assert favoured(seeded.priors.components).any(axis=1).tolist() == [True, True, False]


def test_components_with_the_same_features_become_different_ones():
    sets = {"one": ["word1", "word3"], "other": ["word3", "word1"]}
    fit = bayesnmf.fit(COUNTS, rank=3, seed=0, options=OPTIONS["vi"], seeds=sets)
    assert np.abs(fit.components[0] - fit.components[1]).max() > 0.05


@pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated:DeprecationWarning")
@pytest.mark.parametrize("sets", [SETS, {**SETS, "middle": ["word8"]}])
def test_seeds_of_counts_on_disk_are_those_in_memory(sets, tmp_path):
    anndata = pytest.importorskip("anndata")
    made = anndata.AnnData(COUNTS.to_numpy(np.float32), var=pd.DataFrame(index=NAMES))
    made.write_h5ad(tmp_path / "counts.h5ad")
    blocks = bayesnmf.Blocks(tmp_path / "counts.h5ad", nonzeros=300, scratch=tmp_path / "scratch")
    options = plain_vi(start="svd", max_iter=3)
    one, two = (bayesnmf.fit(counts, rank=3, seed=0, options=options, seeds=sets) for counts in (COUNTS, blocks))
    np.testing.assert_allclose(one.loadings, two.loadings, rtol=1e-10)


def test_what_is_no_feature_is_told_and_a_set_without_any_is_refused():
    for sets, told in (
        ({"a": ["word1", "verb"], "b": ["word2", "verb"]}, "a name that is no feature of the counts: 'verb'"),
        ({"a": ["word1", "verb", "noun"]}, "2 names that are no features of the counts: 'verb', 'noun'"),
    ):
        with pytest.warns(bayesnmf.DataWarning, match=f"seeds have {told}"):
            bayesnmf.fit(COUNTS, rank=2, seed=0, options=OPTIONS["vi"], seeds=sets)
    with pytest.raises(ValueError, match=r"seeds\['b'\] must have a feature of the counts: found none"):
        bayesnmf.fit(COUNTS, rank=2, seeds={"a": ["word1"], "b": ["verb"]})


def test_seeds_in_studies_are_those_of_a_fit():
    """Select scores what fits with these seeds score; modes and compare name the components in every fit."""
    fit = bayesnmf.fit(COUNTS, rank=3, seed=0, options=OPTIONS["vi"], seeds=SETS)
    given = {"options": OPTIONS["vi"], "seeds": SETS, "check": False, "seed": 1, "splits": 1}
    found = bayesnmf.select(COUNTS, ranks=(2, 3), **given)
    plain = bayesnmf.select(COUNTS, ranks=(2, 3), **{**given, "seeds": None})
    assert (found.table["mean"] != plain.table["mean"]).all()
    with pytest.raises(ValueError, match="rank must be at least the number of seeds, 2: found 1"):
        bayesnmf.select(COUNTS, ranks=(1, 3), **given)
    modes = bayesnmf.modes(COUNTS, rank=3, starts=2, options=plain_vi(max_iter=40), seeds=SETS, scored=1, jobs=1)
    assert [each.component_titles for each in modes.fits] == [["late", "early", "component 2"]] * len(modes.fits)
    np.testing.assert_array_equal(
        modes.best.priors.components.concentration, fit.priors.components.concentration, strict=True
    )
    settings = bayesnmf.Settings(options={"map": OPTIONS["map"], "vi": plain_vi(max_iter=20)}, dispersed=False)
    compared = bayesnmf.compare(COUNTS, rank=3, methods=("map", "vi"), seeds=SETS, settings=settings)
    assert [each.component_titles for each in compared.fits.values()] == [["late", "early", "component 2"]] * 2


def test_estimators_name_what_seeds_name():
    estimator = bayesnmf.BayesNMF(3, seeds=SETS, options=plain_vi(max_iter=3), random_state=0).fit(COUNTS)
    assert estimator.get_feature_names_out().tolist() == ["late", "early", "bayesnmf2"]
    with pytest.raises(ValueError, match=r"learn needs .* and no seeds"):
        bayesnmf.fit(COUNTS, rank=3, options=VI(learn=("components",)), seeds=SETS)


@pytest.mark.parametrize(
    ("seeds", "error", "message"),
    [
        ({}, ValueError, "seeds must have sets"),
        ({"a": []}, ValueError, "a feature each"),
        ({1: ["word1"], "1": ["word2"]}, ValueError, "different names"),
        ({"a": "word1"}, TypeError, r"seeds\['a'\] must be a list of features"),
        (["word1"], TypeError, "seeds must map names of components to lists"),
    ],
)
def test_other_seeds_are_refused(seeds, error, message):
    with pytest.raises(error, match=message):
        bayesnmf.fit(COUNTS, rank=2, seeds=seeds)


def test_what_seeds_cannot_go_with_is_refused():
    with pytest.raises(ValueError, match="strength must be"):
        Seeds(SETS, strength=0)
    with pytest.raises(ValueError, match="rank must be at least the number of seeds, 2: found 1"):
        bayesnmf.fit(COUNTS, rank=1, seeds=SETS)
    with pytest.raises(ValueError, match=r"seeds must have different names: found .*'component 2', 'component 1', "):
        bayesnmf.fit(COUNTS, rank=3, seeds={"component 2": ["word1"]})
    with pytest.raises(ValueError, match="found HierarchicalGamma; use model='gamma_poisson'"):
        bayesnmf.fit(COUNTS, "hierarchical_poisson", 3, seeds=SETS)
    with pytest.raises(ValueError, match="prior: found known ones; leave fixed_components out"):
        bayesnmf.fit(COUNTS, rank=3, seeds=SETS, fixed_components=topics()[:1])


def test_a_fit_as_start_has_the_names():
    """Else names would be those of whatever components it has."""
    given = {"rank": 3, "seed": 0}
    fit = bayesnmf.fit(COUNTS, **given, options=OPTIONS["vi"])
    with pytest.raises(ValueError, match=r"names of the seeds, \['late', 'early'\], in this order: found"):
        bayesnmf.fit(COUNTS, **given, options=VI(start=fit), seeds=SETS)
    seeded = bayesnmf.fit(COUNTS, **given, options=OPTIONS["vi"], seeds=SETS)
    again = bayesnmf.fit(COUNTS, **given, options=plain_vi(start=seeded, max_iter=1), seeds=SETS)
    np.testing.assert_allclose(again.components, seeded.components, atol=1e-3)


def test_files_of_gene_sets_are_read_and_names_are_saved(tmp_path):
    lines = [f"{name}\thttps://example.org\t" + "\t".join(features) for name, features in SETS.items()]
    (tmp_path / "sets.gmt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = bayesnmf.fit(COUNTS, rank=3, seed=0, options=OPTIONS["vi"], seeds=tmp_path / "sets.gmt")
    (tmp_path / "twice.gmt").write_text("\n".join([*lines, lines[0]]), encoding="utf-8")
    with pytest.raises(ValueError, match=r"sets of features in .*twice\.gmt must have different names"):
        bayesnmf.fit(COUNTS, rank=3, seeds=tmp_path / "twice.gmt")
    fit = bayesnmf.fit(COUNTS, rank=3, seed=0, options=OPTIONS["vi"], seeds=SETS)
    np.testing.assert_array_equal(found.loadings, fit.loadings)
    fit.save(tmp_path / "fit.nc")
    loaded = bayesnmf.load(tmp_path / "fit.nc")
    assert loaded.component_titles == ["late", "early", "component 2"]
    np.testing.assert_array_equal(loaded.priors.components.concentration, fit.priors.components.concentration)
    assert loaded.transform(COUNTS[:5]).shape == (5, 3)


def test_files_of_gene_sets_without_descriptions_keep_their_first_features(tmp_path):
    """They were taken for descriptions, and lost in silence."""
    (tmp_path / "sets.gmt").write_text("".join(f"{name}\t" + "\t".join(SETS[name]) + "\n" for name in SETS))
    with pytest.warns(bayesnmf.DataWarning, match="seeds have features of the counts where descriptions .* into their"):
        found = bayesnmf.fit(COUNTS, rank=3, seed=0, options=OPTIONS["vi"], seeds=tmp_path / "sets.gmt")
    fit = bayesnmf.fit(COUNTS, rank=3, seed=0, options=OPTIONS["vi"], seeds=SETS)
    np.testing.assert_array_equal(found.loadings, fit.loadings)


def test_a_description_that_is_a_feature_by_chance_is_told_and_left(tmp_path):
    lines = [f"{name}\tna\t" + "\t".join(SETS[name]) for name in SETS] + [f"more\t{NAMES[3]}\t{NAMES[9]}"]
    (tmp_path / "sets.gmt").write_text("\n".join(lines))
    with pytest.warns(bayesnmf.DataWarning, match=f"descriptions that are features of the counts, '{NAMES[3]}'"):
        found = bayesnmf.fit(COUNTS, rank=3, seed=0, options=OPTIONS["vi"], seeds=tmp_path / "sets.gmt")
    sets = {**SETS, "more": [NAMES[9]]}
    fit = bayesnmf.fit(COUNTS, rank=3, seed=0, options=OPTIONS["vi"], seeds=sets)
    np.testing.assert_array_equal(found.loadings, fit.loadings)
