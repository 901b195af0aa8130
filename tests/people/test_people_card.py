"""The card: designs, what they take, and what a player says when asked which study it is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from llmsim_lab import LLMClient, LLMConfig, ScriptedBackend
from llmsim_lab.cli import main
from llmsim_lab.errors import ConfigError
from llmsim_lab.simulation.people import (
    DESIGNS,
    PeopleCard,
    Recall,
    enough_groups,
    people_studies,
    told_in,
)


def test_each_design_is_a_study_with_its_twin_and_its_conditions() -> None:
    studies = people_studies(groups=6, groups_of_many=5, players="random")
    assert {name: len(study.arms) for name, study in studies.items()} == {
        "splitting": 8,
        "framing": 6,
        "disjunction": 2,
        "investing": 2,
        "guessing": 6,
        "contributing": 2,
    }
    assert studies["guessing"].plan().left == 30
    with pytest.raises(ConfigError, match="chess"):
        people_studies(["chess"], players="random")


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
    recall = Recall(llm_client=client, designs=("framing", "splitting"))
    recall.run()
    assert dict(recall.state.named) == {"framing": 1, "splitting": 0}
    assert not any(
        name in told_in(design) for design in DESIGNS.values() for name in design.authors
    )


def test_the_command_prints_the_card_and_continues_where_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["llmsim-lab", "people", "--only", "disjunction", "--groups", "6"]
    monkeypatch.setattr("sys.argv", [*command, "--model", "rule"])
    main_ends_well()
    printed = capsys.readouterr().out
    assert re.search(r"disjunction: 12 runs to play", printed)
    assert re.search(r"rule: of 3 judged measures 0 like people", " ".join(printed.split()))
    assert "does not name it" in printed
    page = Path("out/people/people.html").read_text(encoding="utf-8")
    assert "doi.org/10.1016/0010-0285" in page
    assert "80 people with some six decisions" in Path("out/people/people.csv").read_text()
    main_ends_well()
    assert "0 runs to play (12 done already)" in " ".join(capsys.readouterr().out.split())


def main_ends_well() -> None:
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code


def test_a_card_of_studies_counts_verdicts() -> None:
    studies = people_studies(["splitting"], groups=5, players={"*": "rule"})
    for study in studies.values():
        study.run(progress=False)
    card = PeopleCard.of(studies, player="the textbook")
    assert card.headline.startswith("the textbook: of 4 judged measures 0 like people, 4 unlike")
