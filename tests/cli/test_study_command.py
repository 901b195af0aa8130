"""Studies on the command line: played, stopped and continued, looked at, reported."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_kit import Run, fails, succeeds
from fake_ollama import FakeOllama

from llmsim_lab import Tape
from llmsim_lab.study import Study
from llmsim_lab.tape import RunInfo

REPO = Path(__file__).parents[2]
PLAN = """\
study: pot
world: pot.py:PublicGoods
fixed: {players: random}
vary:
  factor: [1.5, 3.0]
seeds: 3
turns: 2
outcome: coins.Ann
"""
RULES = """\
world: economic
fixed:
  nations: [Rule]
  players: rule
vary:
  economy.shock_scale: [1.0, 2.0]
seeds: 2
turns: 2
outcome: inflation
"""


@pytest.fixture(autouse=True)
def _plan(llmsim_lab: Run) -> None:
    Path("plan.yaml").write_text(PLAN)


def infos() -> list[RunInfo]:
    """What the tapes of the plan's folder say of their runs."""
    return [info for file in Path("plan").glob("*.tape") for info in Tape(file).runs()]


@pytest.mark.process
def test_the_example_is_played_in_seconds(llmsim_lab: Run, tmp_path: Path) -> None:
    plan = str(REPO / "data" / "studies" / "backstop.yaml")
    out = succeeds(llmsim_lab, "study", plan, "run", "--tape", "t")
    assert "32 runs to play" in out
    assert "backstop \N{MINUS SIGN} no backstop: \N{MINUS SIGN}" in out
    out = succeeds(llmsim_lab, "study", plan, "report", "--tape", "t", "-o", "r/s.html")
    page = (tmp_path / "r" / "s.html").read_text(encoding="utf-8")
    assert "backstop \N{MINUS SIGN} no backstop" in page


def test_an_own_world_is_played_by_chance_and_not_again(lab: Run) -> None:
    out = succeeds(lab, "study", "plan.yaml", "run", "--parallel", "2")
    assert "6 runs to play" in out
    assert {info.name for info in infos()} == {
        f"factor={factor}, seed {seed}" for factor in ("1.5", "3") for seed in range(3)
    }
    out = succeeds(lab, "study", "plan.yaml", "run")
    assert "0 runs to play (6 done already)" in out
    assert len(infos()) == 6


def test_a_file_registers_its_study_when_it_is_first_run(lab: Run) -> None:
    Path("plan.yaml").write_text(f"{PLAN}registration: claims.json\n")
    assert "before any run; SHA-256" in succeeds(lab, "study", "plan.yaml", "run")
    written = Path("claims.json").read_bytes()
    arguments = ("study", "plan.yaml", "report", "--import", "pot.py")
    assert "before any run; SHA-256" in succeeds(lab, *arguments)
    assert "registered: 1 comparison" in Path("plan.html").read_text("utf-8")
    assert Path("claims.json").read_bytes() == written


def test_more_seeds_continue_and_status_says_what_is_left(lab: Run) -> None:
    lab("study", "plan.yaml", "run")
    Path("plan.yaml").write_text(PLAN.replace("seeds: 3", "seeds: 4"))
    unnamed = " ".join(fails(lab, "study", "plan.yaml", "status").split())
    assert "runs no code that you do not name" in unnamed
    assert "llmsim-lab study plan.yaml status --import pot.py" in unnamed
    out = succeeds(lab, "study", "plan.yaml", "status", "--import", "pot.py")
    assert "pot: 2 arms, 4 seeds: 6 done, 2 left" in out


def test_ctrl_c_keeps_what_is_done_and_run_continues(
    lab: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Study.run

    def interrupted(self: Study, **settings: object) -> Study:
        def stop() -> None:
            if self.counts["done"]:
                raise KeyboardInterrupt

        self.listen(stop)
        return whole(self, **{**settings, "parallel": 1})  # type: ignore[arg-type]

    monkeypatch.setattr(Study, "run", interrupted)
    status, _, err = lab("study", "plan.yaml", "run")
    assert status == 130
    assert "Stopped. What is done is kept; run it again." in err
    monkeypatch.setattr(Study, "run", whole)
    out = succeeds(lab, "study", "plan.yaml", "run")
    assert "5 runs to play (1 done already)" in out


def test_the_model_is_asked_that_is_named(lab: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    named = "model: ollama:llama3.2\n"
    Path("plan.yaml").write_text(PLAN.replace("fixed: {players: random}\n", "") + named)
    with FakeOllama(reply={"amount": 2, "reasoning": "So.", "confidence": 0.5}) as server:
        monkeypatch.setenv("OLLAMA_HOST", server.host)
        status, _, err = lab("study", "plan.yaml", "run")
    assert (status, err) == (0, "")
    assert {info.model for info in infos()} == {"llama3.2"}
    assert sum(info.calls for info in infos()) == 2 * 3 * 2 * 4


def test_failed_runs_end_it_with_status_1_and_are_named(lab: Run) -> None:
    failing = (
        "\n\nclass Failing(PublicGoods):\n"
        "    async def turn(self, state, ask):\n"
        "        return 1 / (state.coins['Ann'] - 20)\n"
    )
    Path("pot.py").write_text(Path("pot.py").read_text() + failing)
    Path("plan.yaml").write_text(PLAN.replace(":PublicGoods", ":Failing"))
    status, out, err = lab("study", "plan.yaml", "run")
    assert status == 1
    assert "6 failed: " in out
    assert "'run' tries them again" in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (RULES.replace("shock_scale", "shock_scal"), "line 6: vary.economy.shock_scal: arm"),
        (RULES.replace("[Rule]", "[{nme: Rule}]"), "line 3: fixed.nations"),
        (RULES.replace("outcome: inflation", "outcome: inflatin"), "line 9: outcome: outcome"),
        (RULES.replace("outcome:", "outcom:"), "line 9: outcom: unknown key; known here are"),
        (RULES.replace("seeds: 2", "seeds: 0"), "line 7: seeds: seeds=0 must be"),
        (RULES.replace("seeds: 2", "seeds: 99000000000"), "a whole number, 1 to 50,000"),
        (RULES.replace("turns: 2", "turns: many"), "line 8: turns: Input should be a valid"),
        (RULES.replace("economic", "econmic"), "line 1: world: no kind of simulation"),
        (RULES.replace("economic", "nope.py:X"), "line 1: world: there is no file nope.py"),
        (RULES + "config: {turns: 2}\n", "config: write its parameters below fixed:"),
        (RULES.replace("  nations:", "  seeds: 3\n  nations:"), "line 3: fixed.seeds: stands at"),
        ("vary: {}\n", "world: Field required"),
    ],
)
def test_what_is_wrong_in_a_plan_is_said_with_its_line(lab: Run, text: str, message: str) -> None:
    Path("wrong.yaml").write_text(text)
    err = fails(lab, "study", "wrong.yaml", "run")
    assert message in " ".join(err.split())
    assert not Path("wrong").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("plan.yaml", "status"), "there is no folder plan, so nothing"),
        (("plan.yaml", "dance"), "'dance' is not one of 'run', 'status', 'report'"),
    ],
)
def test_what_cannot_be_done_is_said(lab: Run, arguments: tuple[str, ...], message: str) -> None:
    status, _, err = lab("study", *arguments)
    assert status
    assert message in " ".join(err.split())
