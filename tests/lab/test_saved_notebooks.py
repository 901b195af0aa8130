"""A notebook that was run, as a page: no widget lives there, and the chart is a picture."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
from nbconvert import HTMLExporter

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "03_stepping_and_charts.ipynb"
VIEW, STATE = (f"application/vnd.jupyter.widget-{kind}+json" for kind in ("view", "state"))


def test_a_notebook_as_a_page_has_charts_as_pictures_and_says_their_values() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    views = [output.data[VIEW]["model_id"] for output in outputs if VIEW in output.get("data", ())]
    # As `nbconvert --execute` keeps it: the page then asks the network for widgets.
    state = {"version_major": 2, "version_minor": 0, "state": {key: {} for key in views}}
    notebook.metadata.widgets = {STATE: state}
    page, _ = HTMLExporter().from_notebook_node(notebook)
    # nbconvert's own template leaves out a picture's text, so the words are folded below it.
    [words] = re.findall(
        r"The picture in words</summary><pre[^>]*>(Chart: recorded, hawk[^<]*)", page
    )
    assert "recorded, turns 0 to 8: Policy rate 9.67 → 16.75" in words
    assert len(re.findall(r'<img [^>]*src="data:image/png;base64,\w', page)) == len(views) - 1
    assert page.count('<div class="llmsim-static">') == len(views)
    assert page.count(f'<script type="{VIEW}">') == len(views)


def test_what_committed_notebooks_keep_of_a_window_is_a_picture_and_a_short_text() -> None:
    pictures = 0
    for path in sorted(NOTEBOOK.parent.glob("*.ipynb")):
        for cell in nbformat.read(path, as_version=4).cells:
            data = [output.get("data", {}) for output in cell.get("outputs", ())]
            for place, output in enumerate(data):
                if VIEW in output:
                    picture, text = data[place + 1 : place + 3]
                    assert picture == {"text/html": ""} or "image/png" in picture
                    assert text["text/plain"].count("\n") < 40
                    pictures += "image/png" in picture
    assert pictures >= 8
