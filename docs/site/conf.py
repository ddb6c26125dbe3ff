"""Settings of Sphinx, which builds the site from the folder that `staging.py` fills; `.ci/docs` runs both."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))  # docs/, where the gallery's examples are

from numpydoc.xref import DEFAULT_LINKS

import bayesnmf

DEFAULT_LINKS.clear()  # they lead to documentation on other sites, which the build does not read

project = "bayesnmf"
version = release = bayesnmf.__version__
author = "The bayesnmf developers"
project_copyright = ""
language = "en"
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_nb",
    "sphinx_design",
    "sphinx_copybutton",
    "formulas",
    "docstrings",
]
exclude_patterns: list[str] = []
suppress_warnings = ["myst.header"]  # pages of results begin with a second heading

# Pages: what GitHub shows, and cards and menus of the pages that are made here.
myst_enable_extensions = ["dollarmath", "colon_fence", "attrs_inline"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
nb_execution_mode = "off"
nb_merge_streams = True
html_math_renderer = "mathml"

# Docstrings: one page an object, types that link to the package's own.
add_module_names = False
autosummary_generate = False
autodoc_typehints = "none"
default_role = "py:obj"
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
numpydoc_xref_param_type = True
numpydoc_xref_ignore = "all"
numpydoc_xref_aliases = {
    name: f"bayesnmf.{name}" for name in bayesnmf.__all__ if name[0].isupper() and not name.startswith("_")
}

html_theme = "pydata_sphinx_theme"
html_title = "bayesnmf"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_use_index = False
html_sidebars = {name: [] for name in ("index", "get_started", "gallery", "glossary")}  # no pages stand below them
html_theme_options = {
    "logo": {"text": f"bayesnmf {version}"},
    "header_links_before_dropdown": 8,
    "navbar_align": "left",
    "show_prev_next": True,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": [],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
