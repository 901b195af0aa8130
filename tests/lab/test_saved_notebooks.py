"""A notebook that was run, as a page: no widget lives there, and the chart is a picture."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
from nbconvert import HTMLExporter

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "03_stepping_and_charts.ipynb"


def test_as_a_page_a_notebook_shows_the_chart_as_a_picture_with_its_values_as_text() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    page, _ = HTMLExporter().from_notebook_node(notebook)
    charts = re.findall(r'<img alt="(Chart of [^"]*)" src="data:image/png;base64,', page)
    assert [chart.split(" Latest values. ")[0] for chart in charts] == ["Chart of"]
    assert "Turn 4 (1980Q3)" in page
    assert "vnd.jupyter.widget-view" not in page
    assert "is not able to be represented" not in page
