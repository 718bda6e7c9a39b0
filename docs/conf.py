"""Sphinx configuration."""

import roann

project = "roann"
author = "The roann authors"
copyright = "2026, the roann authors"
release = version = roann.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx.ext.napoleon"]
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_custom_sections = ["Shape", ("Reference", "notes_style")]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "roann"
default_role = "code"
