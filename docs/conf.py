"""How Sphinx builds this documentation: `make docs`. Nothing in the pages comes from elsewhere."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import bayesmf

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent / "tests" / "helpers")]

from public_members import public_members  # noqa: E402  (found by the line above)

project = "bayesmf"
author = "bayesmf contributors"
copyright = author
version = release = bayesmf.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_design",
    "site_roles",
]
exclude_patterns = ["_build", "_ext", "_templates"]
templates_path = ["_templates"]
highlight_language = "none"  # a block without a language is a command or a formula
default_role = "public"
nitpicky = True
suppress_warnings = ["misc.highlighting_failure"]  # dialects of SQL: shown without colours

# Anchors as GitHub makes them, so that links work there and here.
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "deflist"]

autosummary_generate = True
autosummary_context = {"members_of": public_members()}
autodoc_typehints = "none"
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

html_theme = "pydata_sphinx_theme"
html_title = "bayesmf"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_show_sphinx = False
html_sidebars = {"index": [], "coming-from": [], "changelog": [], "cite": []}
html_theme_options = {
    "logo": {"text": f"bayesmf {re.sub(r'[.]0$', '', release)}"},
    "header_links_before_dropdown": 6,
    "navbar_end": ["theme-switcher"],
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
}
