"""The widgets on a crisis, and an agent's prompt by module."""

from __future__ import annotations

import re
from pathlib import Path

from crisis_kit import make_crisis, talking

from llmsim_lab.lab import PromptViewer, RateChart, RunTree, TurnStepper

HOSTILE = "<script>alert(1)</script> \x1b[31m</style><img src=x onerror=y>"


def test_an_agents_prompt_shows_the_tokens_of_each_module() -> None:
    crisis = make_crisis(modules=[talking("mud", "Mud everywhere."), talking("fog", HOSTILE)])
    crisis.run(1)
    html = crisis.context_of("Ada")._repr_html_()
    words = re.sub("<[^>]+>", " ", html)
    assert re.search(r"mud +7 \(\d+%\)", words)
    assert re.search(r"context builder +\d+ \(\d+%\)", words)
    assert "Mud everywhere." in words
    assert "<script" not in html
    assert "<img" not in html
    assert "\x1b" not in html


def test_the_other_widgets_need_no_special_case(tmp_path: Path) -> None:
    simulation = make_crisis(tmp_path / "a.tape", scenario="strait")
    simulation.run(2)
    viewer = PromptViewer(simulation)
    viewer.show(turn=2, component="agent", agent="Japan")
    assert viewer.provenance == simulation.context_of("Japan", 2).provenance
    assert "TRUST DYNAMICS = " in viewer.static_text() or "TRUST DYNAMICS" in viewer.legend.value
    assert "module trust_dynamics" in viewer.legend.value
    viewer.show(turn=2, component="engine")
    assert "events before turn 2" in viewer.legend.value
    assert "Crisis level" in TurnStepper(simulation).static_text()
    assert "Crisis level" in str(RateChart(simulation).static_html())
    assert "crisis" in RunTree(tmp_path / "a.tape").static_text()
