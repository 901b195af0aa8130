"""A chart's text for Mermaid, drawn by the Mermaid that JupyterLab has."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import unquote

from lab_page import LabPage
from playwright.sync_api import expect

ODD = [
    "end",
    'say "no"; %% :x --> [*] #quot; &amp; <img src=x onerror=alert(1)><script>hacked</script>',
    "s0",
]
TRIGGERS = [
    'go: "now"; ``` note left of s0 : x',
    "click s0 href 'javascript:alert(1)' {} #35; ~~~",
    "%%{init: {'theme': 'dark'}}%%",
]
SETUP = f"""
from enum import StrEnum
from llmsim_lab.statechart import Statechart, Transition

Odd = StrEnum("Odd", dict(zip("ABC", {ODD!r})))
moves = [Transition(*it) for it in zip({TRIGGERS!r}, Odd, [Odd.B, Odd.C, Odd.A])]
chart = Statechart(Odd, moves, Odd.A)
"""


def test_mermaid_shows_any_names_of_a_chart_and_obeys_none(lab: LabPage) -> None:
    notebook = lab.write("mermaid", [SETUP, "chart"])
    notebook.run_all()
    picture = notebook.outputs(1).first.locator("figure > img")
    expect(picture).to_have_accessible_name("Statechart of 3 states and 3 transitions")
    svg = unquote(picture.get_attribute("src") or "")
    words = "".join(unescape(re.sub("<[^>]*>", " ", svg.partition("<svg")[2])).split())
    for name in (*ODD, *TRIGGERS):
        assert "".join(name.split()) in words
    notebook.screenshot("mermaid", of=notebook.outputs(1).first)
