"""Sphinx configuration."""

import sys
from pathlib import Path

import roann

sys.path.insert(0, str(Path(__file__).parent))  # for mathml

project = "roann"
author = "The roann authors"
copyright = "2026, the roann authors"
release = version = roann.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "mathml"]
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["formulas.css"]
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
