"""What a notebook shows where a cell ends in a run, a turn or a tape."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from builders import make_config, make_simulation, policy

from llmsim_lab.simulation import Simulation

BAD = "<script>alert(1)</script>\x1b[31m\u202e Raise the interest rate <img src=x onerror=y>"


def hostile(request: Any) -> Any:
    if request.site.component == "agent":
        return policy(BAD, reasoning=BAD)
    if request.site.component == "validator":
        return {"is_valid": True, "reasoning": BAD, "confidence": 0.5}
    return {"new_interest_rate": 4.0, "reasoning": BAD, "confidence": 0.5}


def test_a_run_shows_its_turns_and_where_it_is_recorded(tmp_path: Path) -> None:
    config = make_config(name="one rule", interventions=[{"turn": 2, "set": {"inflation": 9}}])
    simulation = Simulation(config, tape=tmp_path / "a.tape")
    simulation.run(7)
    html = simulation._repr_html_()
    assert "Simulation &#39;one rule&#39;" in html
    assert "a.tape, run 1" in html
    assert str(tmp_path) not in html
    assert "no model was asked" in html
    assert re.findall(r'<tr><th scope="row"[^>]*>(\d)<', html) == ["3", "4", "5", "6", "7"]
    simulation.close()


def test_a_fork_that_is_not_recorded_says_so(tmp_path: Path) -> None:
    simulation = make_simulation()
    simulation.unrecorded = "the tape <x> is open for reading only"
    assert "not recorded: the tape &lt;x&gt; is open for reading only" in simulation._repr_html_()
