"""An extension of Griffe: types in docstrings as they are written, and defaults from the signature."""

from __future__ import annotations

import re
from typing import Any

import griffe

FIELD = re.compile(r"^([\w*][\w*, ]*) : (.+?)(?:, optional)?$", re.MULTILINE)
SECTIONS = (griffe.DocstringSectionParameters, griffe.DocstringSectionAttributes)


class AsWritten(griffe.Extension):
    """Keep ``{"map", "vi"}`` and ``array (n, m)``, which Griffe takes for code, and the first choice for a default."""

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        """Mend the docstrings of a package."""
        self.mend(pkg)

    def mend(self, found: Any) -> None:
        """Mend the docstring of an object, and those of its members."""
        if found.docstring is not None:
            given = getattr(found, "parameters", []) or []
            signature = {parameter.name: parameter for parameter in given}
            fields = FIELD.findall(found.docstring.value)
            written = {name.strip().lstrip("*"): kind for names, kind in fields for name in names.split(",")}
            for section in found.docstring.parsed:
                if isinstance(section, SECTIONS):
                    for item in section.value:
                        self.mend_item(item, written, signature)
        for member in found.members.values():
            if not member.is_alias:
                self.mend(member)

    @staticmethod
    def mend_item(item: Any, written: dict[str, str], signature: dict[str, Any]) -> None:
        """Set the type of a parameter or attribute as written, and the default of a parameter from its signature."""
        name = item.name.lstrip("*")
        item.annotation = written.get(name, item.annotation)
        if name in signature:
            item.value = None if signature[name].required else str(signature[name].default)
