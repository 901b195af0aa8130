"""The card: designs, what they take, and what a player says when asked which study it is."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any

import pytest

from llmsim_lab import LLMClient, LLMConfig, ScriptedBackend
from llmsim_lab.cli import main
from llmsim_lab.errors import ConfigError
from llmsim_lab.run.chance import chance_reply
from llmsim_lab.simulation.people import (
    DESIGNS,
    PeopleCard,
    enough_groups,
    people_designs,
    plan_designs,
    play_design,
    recall_study,
    told_in,
)


def test_each_design_is_laws_or_a_study_of_its_conditions_and_twins() -> None:
    designs = people_designs(groups_of_many=5, players="random")
    assert {name: len(getattr(one, "arms", one)) for name, one in designs.items()} == {
        "framing": 6,
        "disjunction": 2,
        "splitting": 8,
        "investing": 2,
        "contributing": 2,
        "guessing_above_1": 2,
        "guessing": 4,
    }
    # Its published figures are means, so that more groups would show nothing.
    assert designs["guessing"].plan().left == 4
    written = people_designs(["splitting"], written=True, groups=6, players="random")
    assert written["splitting"].plan().left == 48
    with pytest.raises(ConfigError, match="chess"):
        people_designs(["chess"], players="random")


def test_a_plan_says_beforehand_what_a_design_takes() -> None:
    plan = plan_designs(["disjunction"])["disjunction"]
    assert plan.questions == 12  # two orders of three questions, and of their twins
    assert 200 < plan.read < 1000
    assert "12 questions" in str(plan)
    assert plan_designs(["disjunction"], written=True, groups=5)["disjunction"].questions == 30


def test_enough_groups_are_said_before_anything_is_played() -> None:
    groups = enough_groups(0.15).set_index("condition")["groups"]
    assert 30 <= groups["dictator $5"] < 40
    assert groups.isna()["no history"].any()
    assert enough_groups(0.3).set_index("condition")["groups"]["lives saved"] < 40


def test_a_player_that_names_the_study_recalls_it() -> None:
    def answer(request: Any) -> dict[str, object]:
        knows = "600 people" in request.prompt
        study = "Tversky and Kahneman 1981" if knows else "unknown"
        return {"reasoning": "", "study": study, "result": "unknown", "confidence": 1}

    client = LLMClient(LLMConfig(model="script"), ScriptedBackend(answer))
    recall = recall_study(["framing", "splitting"], llm_client=client)
    recall.run(progress=False)
    named = recall.simulation(recall.reference, 0).state.named
    assert dict(named) == {"framing": 1, "splitting": 0}
    assert "B has no say" in told_in(DESIGNS["splitting"])
    assert not any(
        name in told_in(design) for design in DESIGNS.values() for name in design.authors
    )


def test_the_command_prints_the_card_and_continues_where_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["llmsim-lab", "people", "--only", "disjunction", "--written", "--groups", "6"]
    monkeypatch.setattr("sys.argv", [*command, "--model", "rule"])
    main_ends_well()
    printed = capsys.readouterr().out
    assert re.search(r"rule: of 3 judged measures 0 like people", " ".join(printed.split()))
    assert "does not name it" in printed
    page = Path("out/people/people.html").read_text(encoding="utf-8")
    assert "doi.org/10.1016/0010-0285" in page
    assert "80 people with some six decisions" in Path("out/people/people.csv").read_text()
    main_ends_well()
    assert capsys.readouterr().out == printed
    assert len(list(Path("out/people/runs/disjunction").glob("*.tape"))) == 12


def test_a_wrong_margin_is_an_error_before_anything_is_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["llmsim-lab", "people", "--model", "rule", "--margin", "nan"])
    with pytest.raises(SystemExit):
        main()
    printed = capsys.readouterr()
    assert "margin=nan must be a finite number" in printed.err
    assert "Playing" not in printed.out


def main_ends_well() -> None:
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code


def test_a_card_of_studies_counts_verdicts() -> None:
    designs = people_designs(["splitting"], players={"*": "rule"})
    for played in designs.values():
        play_design(played)
    card = PeopleCard.of(designs, player="the textbook")
    assert card.headline.startswith("the textbook: of 4 judged measures 0 like people, 4 unlike")
    assert "adjusted for 8 measures" in str(card)


def test_a_recorded_card_needs_no_model(tmp_path: Path) -> None:
    def answer(request: Any) -> Any:
        return chance_reply(request, Random(len(request.prompt)))

    client = LLMClient(LLMConfig(model="script"), ScriptedBackend(answer))
    names = ["disjunction", "guessing_above_1"]
    designs = people_designs(names, folder=tmp_path, llm_client=client, rationale=False)
    for played in designs.values():
        play_design(played)
    recall = recall_study(names, folder=tmp_path, llm_client=client)
    recall.run(progress=False)
    asked = recall.simulation(recall.reference, 0)
    card = PeopleCard.of(designs, player="script", recall=asked)
    recorded = PeopleCard.recorded(tmp_path)
    assert recorded.headline == card.headline
    verdicts = [(one.measure, one.twin, one.mean, one.verdict) for one in card.compared]
    assert sorted(verdicts) == sorted(
        (one.measure, one.twin, one.mean, one.verdict) for one in recorded.compared
    )
    assert recorded.recalled == card.recalled
    with pytest.raises(ConfigError, match="has no tapes of published designs"):
        PeopleCard.recorded(tmp_path / "nowhere")
