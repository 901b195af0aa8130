"""A study's report: one page that says what was done and what came of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from study_kit import Basin, Water, instant_client

from llmsim_lab import Ask
from llmsim_lab.errors import ConfigError
from llmsim_lab.study import Study


class Dry(Water):
    async def turn(self, state: Basin, ask: Ask) -> Basin:
        if self.factor > 2:
            raise RuntimeError("the <b>basin</b> is dry")
        return await super().turn(state, ask)


@pytest.fixture
def study() -> Study:
    vary = {"factor": [1.0, 2.0, 3.0]}
    settings = {"seeds": 3, "turns": 2, "outcome": "level", "name": "<i>pots</i>"}
    made = Study(Dry, vary, llm_client=instant_client(), **settings)
    return made.run(progress=False)


def test_a_report_has_design_effects_charts_failures_and_digests(
    study: Study, tmp_path: Path
) -> None:
    path = study.report(tmp_path / "out.html")
    page = path.read_text(encoding="utf-8")
    assert "&lt;i&gt;pots&lt;/i&gt;" in page
    assert "<i>pots" not in page
    assert study.effects()[0].contrast in page
    assert "3 failed: the &lt;b&gt;basin&lt;/b&gt; is dry" in page
    assert page.count("<img") == 3  # an outcome by arm, and two differences by turn
    begun = [run for run in study.progress() if run.status == "done"]
    assert len(begun) == 6
    assert all(run.tape.name in page for run in begun if run.tape)
    assert "<script" not in page
    assert study.report(path).read_text(encoding="utf-8") == page


def test_a_report_does_not_write_over_a_tape(study: Study) -> None:
    with pytest.raises(ConfigError, match="tape"):
        study.report(study.tape_of("factor=1", 0))
