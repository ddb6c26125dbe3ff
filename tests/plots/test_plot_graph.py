"""Plate diagrams are those of the NumPyro programs."""

import subprocess
import sys

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.patches import Circle, FancyBboxPatch, Rectangle
from registry import MODELS_AND_PRIORS, over

import bayesnmf
from bayesnmf import Dirichlet, Gamma, Priors, plots
from bayesnmf.plots.graph import COLOURS, RADIUS, Node, depths_of_sites, read_program

CASES = {entry.id: entry for entry in MODELS_AND_PRIORS}
DISTINCT = over([CASES[name] for name in ("poisson", "doubly_gamma", "dirichlet_poisson", "dirichlet_gamma")])
PLATES = {"loadings": {"row", "component"}, "components": {"component", "feature"}, "scale": {"row"}}
NAMES = {"Gamma": "Gamma", "Dirichlet": "Dirichlet", "ScaledDirichlet": "Dirichlet"}


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def label_of(prior):
    return "flat" if prior.flat else NAMES[type(prior).__name__]


@DISTINCT
def test_sites_are_those_of_the_model(entry):
    priors = entry.priors()
    nodes = read_program(entry.model, priors, augmented=False)
    scaled = {"scale"} if entry.model == "dirichlet_gamma" else set()
    assert set(nodes) == {"loadings", "components", "counts"} | scaled
    for name, node in nodes.items():
        assert set(node.plates) == PLATES.get(name, {"row", "feature"})
        assert node.observed == (name == "counts")
        assert node.random
    assert set(nodes["counts"].parents) == {"loadings", "components"} | scaled
    assert nodes["counts"].label == "Poisson"
    assert nodes["loadings"].label == label_of(priors.loadings)
    assert nodes["components"].label == label_of(priors.components)


@over([CASES[name] for name in ("poisson", "dirichlet_gamma")])
def test_allocations_stand_between_factors_and_counts(entry):
    nodes = read_program(entry.model, entry.priors(), augmented=True)
    scaled = {"scale"} if entry.model == "dirichlet_gamma" else set()
    assert set(nodes["allocations"].parents) == {"loadings", "components"} | scaled
    assert set(nodes["allocations"].plates) == {"row", "component", "feature"}
    assert nodes["counts"].parents == ("allocations",)
    assert set(nodes["counts"].plates) == {"row", "feature"}
    assert nodes["counts"].observed
    assert "zeros" not in nodes  # a factor of the density


def test_a_site_stands_below_all_its_parents():
    """Below the lowest of them, where one is itself the child of another."""
    parents = {"a": (), "b": ("a",), "c": ("b",), "d": ("c", "a"), "e": ("a", "d")}
    nodes = {name: Node("Gamma", (), of, observed=False, random=True) for name, of in parents.items()}
    assert depths_of_sites(nodes) == {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4}


def test_parameters_are_squares():
    ax = plots.model_graph("gamma_poisson", Priors(components="parameter"))
    assert sum(isinstance(patch, Circle) for patch in ax.patches) == 2
    assert sum(type(patch) is Rectangle for patch in ax.patches) == 1
    assert "simplex" in {text.get_text() for text in ax.texts}


def boxes_and_nodes(ax):
    boxes = {}
    for patch in ax.patches:
        if isinstance(patch, FancyBboxPatch):
            (plate,) = [name for name, colour in COLOURS.items() if np.allclose(patch.get_edgecolor()[:3],
                        plt.matplotlib.colors.to_rgb(colour))]  # fmt: skip
            boxes[plate] = patch.get_bbox()
    centres = {}
    circles = [patch.center for patch in ax.patches if isinstance(patch, Circle)]
    for text in ax.texts:
        x, y = text.get_position()
        for centre in circles if text.get_text() else []:  # arrows are texts without any
            if x == centre[0] and -2 * RADIUS < y - centre[1] < -RADIUS / 2:
                centres[text.get_text()] = centre
    return boxes, centres


@pytest.mark.parametrize("augmented", [False, True])
@pytest.mark.parametrize("model", ["gamma_poisson", "dirichlet_gamma"])  # without and with a scale
def test_boxes_hold_their_sites_and_no_others(model, augmented):
    ax = plots.model_graph(model, augmented=augmented)
    ax.figure.canvas.draw()
    boxes, centres = boxes_and_nodes(ax)
    nodes = read_program(model, Priors(), augmented)
    assert set(centres) == set(nodes)
    assert set(boxes) == {"row", "feature", "component"}
    for name, (x, y) in centres.items():
        for plate, box in boxes.items():
            inside = box.x0 < x - RADIUS and x + RADIUS < box.x1 and box.y0 < y - RADIUS and y + RADIUS < box.y1
            outside = box.x0 > x + RADIUS or x - RADIUS > box.x1 or box.y0 > y + RADIUS or y - RADIUS > box.y1
            assert inside if plate in nodes[name].plates else outside, (name, plate)
    shaded = [patch for patch in ax.patches if isinstance(patch, Circle) and patch.get_facecolor()[0] < 1]
    assert [patch.center for patch in shaded] == [centres["counts"]]
    arrows = sum(text.arrow_patch is not None for text in ax.texts if hasattr(text, "arrow_patch"))
    assert arrows == sum(len(node.parents) for node in nodes.values())


def test_a_fit_has_sizes_of_its_own():
    counts = np.random.default_rng(0).poisson(3, (7, 6))
    priors = Priors(Gamma(np.ones((7, 2)), 0.3), Dirichlet(np.full((2, 6), 1.5)))
    options = bayesnmf.MAP(priors=priors, start="random", threads=1)
    fit = bayesnmf.fit(counts, rank=2, method="map", seed=0, options=options)
    ax = plots.model_graph(fit, axes=plt.subplots()[1])
    assert {"rows: 7", "features: 6", "components: 2"} <= {text.get_text() for text in ax.texts}
    with pytest.raises(ValueError, match="priors must be left out"):
        plots.model_graph(fit, Priors())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": "lda"}, "model must be one of"),
        ({"model": "dirichlet_poisson", "priors": Priors(Gamma(1.0, 1.0))}, "priors.loadings must be Dirichlet"),
        ({"model": "poisson", "augmented": 1}, "augmented must be True or False"),
    ],
)
def test_nonsense_is_refused(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        plots.model_graph(**arguments)


@pytest.mark.long
def test_a_model_is_drawn_after_arviz_was_imported():
    """ArviZ leaves a stand-in for NumPyro among the modules, which an import of a part of it tears."""
    code = "import arviz_base; from bayesnmf.plots.graph import read_program; from bayesnmf import Priors;" + (
        "read_program('gamma_poisson', Priors(), False)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
