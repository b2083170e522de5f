"""How the documentation is built: `make docs`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from plain import as_rst

from metarnn import __version__

project = "metarnn"
author = "metarnn contributors"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns = ["_build"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = "metarnn"
html_static_path = ["static"]
html_css_files = ["metarnn.css"]
html_show_copyright = html_show_sphinx = False
copybutton_exclude = ".linenos, .gp, .go"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True}
python_maximum_signature_line_length = 88
# torch's own docstrings are not ours to repeat.
autodoc_inherit_docstrings = False


def plain_docstrings(app, what, name, obj, options, lines):
    lines[:] = as_rst(lines)


def setup(app):
    app.connect("autodoc-process-docstring", plain_docstrings)
