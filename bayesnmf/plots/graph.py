"""Draw a model as a plate diagram, read from its NumPyro program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Unpack

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Circle, FancyBboxPatch, Rectangle

from bayesnmf.checks import check_flag
from bayesnmf.data.conversion import as_counts
from bayesnmf.fitting.fitted import Fit
from bayesnmf.fitting.job import resolve_priors
from bayesnmf.plots import style
from bayesnmf.plots.checks import check_no_priors
from bayesnmf.priors import Priors
from bayesnmf.priors.checks import check_family
from bayesnmf.priors.specification import PARAMETER, check_model
from bayesnmf.results.checks import check_knows_priors

# The program is traced with sizes that all differ, so that the length of an axis identifies it.
ROWS, FEATURES, RANK = 3, 5, 2
STAND_IN = np.pad(np.ones((1, FEATURES - 1)), ((0, ROWS - 1), (1, 0)))
STAND_IN[1, :3] = 1
AXES = {ROWS: ("row",), FEATURES: ("feature",), RANK: ("component",), int(STAND_IN.sum()): ("row", "feature")}
LETTERS = {"row": "n", "feature": "m", "component": "K"}
SHORT_LABELS = {"PoissonProduct": "Poisson", "ImproperUniform": "flat", "Delta": "sum", "Simplex()": "simplex"}
BESIDE = {"row": -1.0, "feature": 1.0, "component": 0.0}
COLOURS = {"row": "#0072B2", "feature": "#009E73", "component": "#D55E00"}
RADIUS, STEP, SPREAD = 0.33, 1.2, 1.3
MARGINS = {"row": (0.22, 0.45, 0.2, 0.12), "feature": (0.2, 0.53, 0.22, 0.2), "component": (0.34, 0.3, 0.34, 0.45)}
"""Left, below, right, above."""


class Node(NamedTuple):
    """A site: its distribution, its plates, its parents, and how it is drawn."""

    label: str
    plates: tuple[str, ...]
    parents: tuple[str, ...]
    observed: bool
    random: bool


@style.figure()
def model_graph(
    model: str | Fit, priors: Priors | None = None, *, augmented: bool = False, **panels: Unpack[style.Panel]
) -> Axes:
    """Draw a model as a plate diagram, read from its NumPyro program.

    Circles are random variables, the shaded one is observed, and a square is a parameter without a prior; each contains
    its distribution. A box contains the sites that are repeated for every row, feature or component. The sites, their
    distributions and their dependencies are found by `numpyro.infer.inspect.get_model_relations` in
    ``bayesnmf.models``; the boxes are the axes of the sites' values. Under dirichlet_poisson, the program's Poisson
    counts are multinomial given the row totals.

    Parameters
    ----------
    model : str or Fit
        Name of a model, or a fit, whose model, priors and sizes are drawn.
    priors : Priors, optional
        Priors whose families are drawn; by default those of the model. Not allowed together with a fit.
    augmented : bool
        Whether to draw the program with the allocations S_ijk of the counts to components. There is one for each
        component and nonzero entry, and they sum to the count.

    Returns
    -------
    Axes

    See Also
    --------
    bayesnmf.fit : takes the names of models.
    """
    check_flag(augmented, "augmented")
    sizes: dict[str, Any] = dict(LETTERS)
    if isinstance(model, Fit):
        check_no_priors(priors)
        check_knows_priors(model, "plots.model_graph")
        (n, m), priors = model.counts.shape, model.priors
        sizes = {"row": n, "feature": m, "component": model.rank}
        model = model.model
    check_model(model)
    nodes = read_program(model, Priors() if priors is None else priors, augmented)
    places = arrange(nodes)
    width, height = np.ptp(list(places.values()), axis=0)
    canvas = style.make_panel((0.95 * width + 1.9, 0.95 * height + 2.2), **panels)
    for plate in LETTERS:
        _box(canvas, plate, sizes[plate], [places[name] for name, node in nodes.items() if plate in node.plates])
    for name, node in nodes.items():
        for parent in node.parents:
            _arrow(canvas, places[parent], places[name])
        _node(canvas, name, node, places[name])
    canvas.set_aspect("equal")
    canvas.autoscale_view()
    canvas.axis("off")
    canvas.set_title(f"{model} with allocations" if augmented else model, fontsize=10)
    return canvas


# --- the program --------------------------------------------------------------------------------------


def read_program(model: str, priors: Priors, augmented: bool) -> dict[str, Node]:
    """Return the sites of a program in its own order, without factors, which are only terms of the density."""
    from bayesnmf.fitting.numpyro_bridge import hyperparameters, load_program
    from bayesnmf.models.entries import as_observation  # first: ArviZ may leave a partly loaded NumPyro

    module, observation = load_program(model), as_observation(STAND_IN)
    program = module.augmented if augmented else module.program
    from numpyro.handlers import seed, substitute, trace
    from numpyro.infer import init_to_uniform
    from numpyro.infer.inspect import get_model_relations

    sizes = {"loadings": (ROWS, RANK), "components": (RANK, FEATURES)}
    sides = {side: hyperparameters(prior, sizes[side]) for side, prior in scalar_priors(model, priors).items()}
    arguments = {"size": (ROWS, FEATURES), "rank": RANK, **sides}
    relations = get_model_relations(program, (observation,), arguments)
    started = substitute(seed(program, 0), substitute_fn=init_to_uniform)  # a flat prior cannot be sampled
    sites = trace(started).get_trace(observation, **arguments)
    nodes = {}
    for name, site in sites.items():
        if name in relations["param_constraint"]:
            label, random = relations["param_constraint"][name], False
        elif name in relations["sample_dist"] and relations["sample_dist"][name] != "Unit":
            label, random = relations["sample_dist"][name], True
        else:
            continue
        parents = relations["sample_sample"].get(name, []) + relations["sample_param"].get(name, [])
        plates = tuple(dict.fromkeys(plate for size in shape_of(site) for plate in AXES[size]))
        shown = SHORT_LABELS.get(label, label)
        nodes[name] = Node(shown, plates, tuple(parents), name in relations["observed"], random)
    return nodes


def scalar_priors(model: str, priors: Priors) -> dict[str, Any]:
    """Return priors of the same families with scalar hyperparameters, as the sizes here are arbitrary."""
    filled = resolve_priors(model, as_counts(STAND_IN), RANK, priors)
    sides: dict[str, Any] = {}
    for side, size in (("loadings", (ROWS, RANK)), ("components", (RANK, FEATURES))):
        prior: Any = getattr(filled, side)
        if prior != PARAMETER:
            prior = prior.free_prior.mapped(lambda value: np.ravel(value)[0])
        check_family(model, side, prior, size)
        sides[side] = prior
    return sides


def shape_of(site: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the shape of a site's value; for triplets, the shape of the distribution."""
    return tuple(np.shape(site["value"])) if site["type"] == "param" else tuple(site["fn"].shape())


# --- layout -------------------------------------------------------------------------------------------


def depths_of_sites(nodes: Mapping[str, Node]) -> dict[str, int]:
    """Return the depth of each site: the number of steps from sites without parents."""
    found: dict[str, int] = {}
    while len(found) < len(nodes):
        for name, node in nodes.items():
            if name not in found and all(parent in found for parent in node.parents):
                found[name] = 1 + max((found[parent] for parent in node.parents), default=-1)
    return found


def arrange(nodes: Mapping[str, Node]) -> dict[str, tuple[float, float]]:
    """Return positions: rows on the left, features on the right, and each site below its parents.

    Then the box around the sites of an axis contains no other sites: sites of a row and a component are at the upper
    left, of a component and a feature at the upper right, of a row and a feature at the lower middle, and of a row
    only farther left.
    """
    places = {}
    for name, depth in depths_of_sites(nodes).items():
        side = sum(BESIDE[plate] for plate in nodes[name].plates)
        if side and "component" not in nodes[name].plates:
            places[name] = (1.85 * SPREAD * side, -STEP * (depth + 0.45))
        else:
            places[name] = (SPREAD * side, -STEP * depth)
    return places


# --- drawing ------------------------------------------------------------------------------------------


def _box(ax: Axes, plate: str, size: Any, places: list[tuple[float, float]]) -> None:
    """Draw a plate around some sites; margins differ, so that edges never coincide and each name has room."""
    left, below, right, above = np.array(MARGINS[plate]) + RADIUS
    x, y = np.min(places, axis=0) - np.array([left, below])
    right_most, top = np.max(places, axis=0) + np.array([right, above])
    width, height = right_most - x, top - y
    look: dict[str, Any] = {"fill": False, "edgecolor": COLOURS[plate], "linewidth": 1.2}
    ax.add_patch(FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0,rounding_size=0.12", **look))
    label = f"{plate}s: {size:,}" if isinstance(size, int) else f"{plate}s: {size}"
    text: dict[str, Any] = {"color": COLOURS[plate], "fontsize": style.SMALL}
    if plate == "component":
        ax.text(x + width / 2, top - 0.05, label, ha="center", va="top", **text)
    elif plate == "row":
        ax.text(x + 0.08, y + 0.05, label, ha="left", va="bottom", **text)
    else:
        ax.text(right_most - 0.08, y + 0.05, label, ha="right", va="bottom", **text)


def _node(ax: Axes, name: str, node: Node, place: tuple[float, float]) -> None:
    x, y = place
    ground = "0.82" if node.observed else "white"
    look: dict[str, Any] = {"facecolor": ground, "edgecolor": "black", "linewidth": 1.1, "zorder": 3}
    if node.random:
        ax.add_patch(Circle(place, RADIUS, **look))
    else:
        ax.add_patch(Rectangle((x - RADIUS, y - RADIUS), 2 * RADIUS, 2 * RADIUS, **look))
    ax.text(x, y, node.label, ha="center", va="center", fontsize=style.SMALL, zorder=4)
    behind = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}  # of the name, where an arrow may pass
    ax.text(x, y - RADIUS - 0.04, name.replace("rate_of_", "rate of\n"), ha="center", va="top", fontsize=style.SMALL,
            zorder=4, bbox=behind)  # fmt: skip


def _arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    direction = np.subtract(end, start)
    direction = direction / np.linalg.norm(direction)
    tip, tail = np.subtract(end, (RADIUS + 0.02) * direction), np.add(start, RADIUS * direction)
    look = {"arrowstyle": "-|>", "color": style.QUIET, "linewidth": 1.1, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", (tip[0], tip[1]), (tail[0], tail[1]), arrowprops=look, zorder=2)
