"""An extension of Sphinx: links from code in the text to the API, and from docstrings to the guides."""

from __future__ import annotations

import re
from typing import Any

import reference
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

GUIDE = re.compile(r"`{0,2}docs/([\w/]+)\.md`{0,2}")
OBJECTS = {name for group in reference.GROUPS.values() for name, _ in reference.entries(group)}
HOMES = {home: name for group in reference.GROUPS.values() for name, home in reference.entries(group)}


def target_of(code: str) -> str | None:
    """Return the public object that code such as ``bayesnmf.select(counts)`` or ``plots.modes`` names, if any."""
    name = re.match(r"[\w.]*", code)[0]  # type: ignore[index]
    if name.startswith("fit."):
        name = f"bayesnmf.Fit.{name.removeprefix('fit.')}"
    inside = name.removeprefix("bayesnmf.Fit.")
    if name != inside:
        return name if inside in MEMBERS_OF_FIT else None
    if code != name and not re.fullmatch(r"[\w.]+\(.*\)", code, re.DOTALL):
        return None  # more than a name or one call
    for each in (name, HOMES.get(name, ""), f"bayesnmf.{name}" if "." in name or name[:1].isupper() else ""):
        if each in OBJECTS:
            return each
    return None


MEMBERS_OF_FIT = set(reference.members_of(reference.bayesnmf.Fit))


class LinkCode(SphinxTransform):
    """Make links of code in the text that is the name, or a call, of a public object."""

    default_priority = 600

    def apply(self, **kwargs: Any) -> None:
        """Wrap each literal in a reference, which Sphinx resolves."""
        for node in list(self.document.findall(nodes.literal)):
            target = target_of(node.astext())
            inside = node.parent
            while inside is not None and not isinstance(inside, nodes.reference | nodes.title | addnodes.pending_xref):
                inside = inside.parent
            if target and inside is None:
                link = addnodes.pending_xref(
                    "", refdomain="py", reftype="obj", reftarget=target, refexplicit=True, refdoc=self.env.docname
                )
                node.replace_self(link)
                link += node


def show_inside(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Put what an inner function says in the place of a pointer to it, before numpydoc reads the docstring."""
    lines[:] = reference.without_inside("\n".join(lines)).split("\n")


def link_guides(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Replace paths of guides in a docstring by their titles, which link to them."""
    lines[:] = [GUIDE.sub(r":doc:`/\1`", line) for line in lines]


def resolve_home(app: Sphinx, env: Any, node: Any, content: Any) -> Any:
    """Link the name under which an object is defined, or a call of it, to the page of its public name."""
    target = target_of(node.get("reftarget", ""))
    if target is None or node.get("refdomain") != "py":
        return None
    return env.domains["py"].resolve_xref(env, node["refdoc"], app.builder, "obj", target, node, content)


def hide_signature(app: Sphinx, what: str, name: str, *rest: Any) -> tuple[str, None] | None:
    """Leave out how an object is made that functions return."""
    return ("", None) if name.removeprefix("bayesnmf.") in reference.RESULTS else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect all of it."""
    app.add_transform(LinkCode)
    app.connect("autodoc-process-docstring", show_inside, priority=400)
    app.connect("autodoc-process-docstring", link_guides, priority=600)
    app.connect("autodoc-process-signature", hide_signature)
    app.connect("missing-reference", resolve_home)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
