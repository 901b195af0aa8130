"""A notebook that was run, as a page: no widget lives there, and the chart is a picture."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
from nbconvert import HTMLExporter

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "03_stepping_and_charts.ipynb"
VIEW, STATE = (f"application/vnd.jupyter.widget-{kind}+json" for kind in ("view", "state"))


def test_a_notebook_as_a_page_has_the_chart_as_a_picture_that_says_its_values() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    views = [output.data[VIEW]["model_id"] for output in outputs if VIEW in output.get("data", ())]
    # As `nbconvert --execute` keeps it: the page then asks the network for widgets.
    state = {"version_major": 2, "version_minor": 0, "state": {key: {} for key in views}}
    notebook.metadata.widgets = {STATE: state}
    page, _ = HTMLExporter().from_notebook_node(notebook)
    [alt] = re.findall(
        r'<img alt="(Chart: recorded, hawk[^"]*)" [^<>]*src="data:image/png;base64,\w', page
    )
    assert "recorded, turns 0 to 8: Policy rate 9.67 → 16.75" in alt
    assert page.count('<div class="llmsim-static">') == len(views)
    assert page.count(f'<script type="{VIEW}">') == len(views)
