"""Settings of the documentation site, which ``make docs`` builds."""

from __future__ import annotations

import inspect
from importlib.metadata import version as version_of
from typing import Any

from pydantic import BaseModel

project = "llmsim_lab"
author = "The llmsim_lab developers"
release = version_of("llmsim-lab")
html_show_copyright = False  # an empty one is shown otherwise
html_title = "llmsim_lab"

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "index"
# These explain the folder that they stand in, which the site shows as part of other pages.
exclude_patterns = ["docs/site"]

# Notebooks are shown with their saved outputs, which `make check-notebooks` compares.
nb_execution_mode = "off"
nb_merge_streams = True
# Live widgets and diagrams would need scripts from elsewhere; both have a still picture or a text.
nb_mime_priority_overrides = [
    ("html", "application/vnd.jupyter.widget-view+json", None),
    ("html", "text/vnd.mermaid", None),
]
suppress_warnings = ["mystnb.unknown_mime_type"]
nb_ipywidgets_js: dict[str, dict[str, str]] = {}
myst_heading_anchors = 4
myst_links_external_new_tab = False

autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
# Attributes are listed in the docstring of their class.
napoleon_use_ivar = True
napoleon_numpy_docstring = False
python_use_unqualified_type_names = True
maximum_signature_line_length = 88
default_role = "code"

html_theme = "furo"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_last_updated_fmt = None
pygments_style = "friendly"
pygments_dark_style = "monokai"


def _shorter_signature(
    _app: object,
    _kind: str,
    _name: str,
    documented: object,
    _options: object,
    signature: str | None,
    returns: str | None,
) -> tuple[str | None, str | None] | None:
    """Leave out what pydantic makes of fields, which the table of settings has."""
    if inspect.isclass(documented) and issubclass(documented, BaseModel):
        return "(**fields)", None
    return signature, returns


def _without_bases(
    _app: object, _name: str, _class: type, _options: object, bases: list[type]
) -> None:
    """Show the bases that a reader can look up."""
    bases[:] = [
        base for base in bases if getattr(base, "__module__", "").startswith("llmsim_lab")
    ] or [object]


def _is_skipped(
    _app: object, _kind: str, name: str, _member: object, skip: bool, _options: object
) -> bool | None:
    """Leave out pydantic's own attributes."""
    if name in ("model_config", "model_post_init"):
        return True
    return None if not skip else True


def setup(app: Any) -> None:
    """Register what changes the reference."""
    app.connect("autodoc-process-signature", _shorter_signature)
    app.connect("autodoc-process-bases", _without_bases)
    app.connect("autodoc-skip-member", _is_skipped)
