"""The card: designs, what they take, and what a player says when asked which study it is."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from people_kit import OFFERS

from llmsim_lab import LLMClient, LLMConfig, ScriptedBackend
from llmsim_lab.cli import main
from llmsim_lab.errors import ConfigError
from llmsim_lab.run.chance import chance_reply
from llmsim_lab.simulation.people import (
    DESIGNS,
    CardPlan,
    PeopleCard,
    enough_groups,
    people_designs,
    plan_designs,
    play_design,
    recall_study,
    told_in,
)
from llmsim_lab.study import PeopleComparison
from llmsim_lab.study.estimates.people import groups_for
from llmsim_lab.tape.prompts_read import prompts_read
from llmsim_lab.types import Attempt


def test_each_design_is_laws_or_a_study_of_its_conditions_and_twins() -> None:
    designs = people_designs(players="random")
    assert {name: len(getattr(one, "arms", one)) for name, one in designs.items()} == {
        "framing": 6,
        "disjunction": 2,
        "splitting": 8,
        "investing": 2,
        "contributing": 2,
        "guessing_above_1": 2,
        "guessing": 4,
    }
    laws = {name: one for name, one in designs.items() if isinstance(one, list)}
    twins = [(law.run_of.config.twin, law.turns) for law in laws["investing"]]
    assert twins == [(False, 1), (True, 1)]
    # Runs and turns. Published figures of guessing are means, so that more groups show nothing,
    # and of factors above 1 those of the first period.
    plans = {name: one.plan() for name, one in designs.items() if name not in laws}
    assert {name: (plan.left, plan.turns) for name, plan in plans.items()} == {
        "contributing": (10, 100),
        "guessing_above_1": (2, 2),
        "guessing": (4, 16),
    }
    written = people_designs(["splitting", "guessing"], written=True, groups=6, players="random")
    assert [one.plan().left for one in written.values()] == [48, 4]
    assert list(written["guessing"].arms)[1:3] == [
        "twin=False · factor=0.5",
        "twin=True · factor=0.666667",
    ]
    written["splitting"].run(only=[("twin=True · dictator · stake=5", 3)], progress=False)
    label = PeopleCard.of({"mine": written["splitting"]}, player="x").compared.label
    assert label.startswith("mine: 47 of 48 runs failed or were not played; verdicts adjusted")
    assert len(people_designs(["investing"], written=True, players="rule")["investing"].units) == 30
    with pytest.raises(ConfigError, match="chess"):
        people_designs(["chess"], players="random")


def test_a_plan_says_beforehand_what_a_design_takes(capsys: pytest.CaptureFixture[str]) -> None:
    plan = plan_designs(["disjunction"])["disjunction"]
    # Two orders of three questions, and of their twins; the answer is a letter.
    assert (plan.questions, plan.written) == (12, 12)
    attempts: list[Attempt] = []

    def answer(request: Any) -> Any:
        reply = chance_reply(request, Random(1))
        attempts.append(Attempt(request=request, reply=reply, seconds=0.0))
        return reply

    client = LLMClient(LLMConfig(), ScriptedBackend(answer))
    play_design(people_designs(["disjunction"], llm_client=client)["disjunction"])
    assert plan.read == prompts_read(attempts).one_slot // 4
    plan = CardPlan(questions=1200, read=67_000, written=2_000)
    assert plan.seconds == 1000 + 100
    assert str(plan) == (
        "1,200 questions, about 67,000 tokens read and 2,000 written: 18 min at the 67 and 20 "
        "tokens a second of the embedded 1.5B on two cores"
    )
    # Five groups are played, as many as all take that are asked for.
    for groups in (5, 5_000):
        plans = plan_designs(["disjunction"], written=True, groups=groups)
        assert plans["disjunction"].questions == 6 * groups
    assert capsys.readouterr() == ("", "")


def test_enough_groups_are_said_before_anything_is_played() -> None:
    table = enough_groups()
    last = table[["design", "condition", "measure", "people"]].to_numpy().tolist()[-2:]
    assert last == [
        ["investing", "no history", name, 32] for name in ("sends_nothing", "sends_all")
    ]
    assert table["design"].unique().tolist() == ["framing", "disjunction", "splitting", "investing"]
    groups = table.set_index("condition")["groups"]
    figures = DESIGNS["framing"].load()(players="rule").people()
    assert groups["lives saved"] == groups_for(figures["safe_of_saved"], 0.15) == 155
    assert groups["dictator $5"] == groups_for(OFFERS, 0.15) == 30
    assert groups["no history"].isna().tolist() == [True, True, False, True]
    assert enough_groups(0.3).set_index("condition")["groups"]["lives saved"] < 40


def test_a_player_that_names_the_study_recalls_it() -> None:
    def answer(request: Any) -> dict[str, object]:
        knows = "600 people" in request.prompt
        result = "as KAHNEMAN found" if knows else "unknown"
        return {"reasoning": "", "study": "unknown", "result": result, "confidence": 1}

    client = LLMClient(LLMConfig(model="script"), ScriptedBackend(answer))
    recall = recall_study(["framing", "splitting"], llm_client=client)
    recall.run(progress=False)
    named = recall.simulation(recall.reference, 0).state.named
    assert dict(named) == {"framing": 1, "splitting": 0}
    assert recall.simulation(recall.reference, 0).turn_number == 1
    # The first player's prompt of the first condition, with what all are told.
    assert told_in(DESIGNS["disjunction"]) == (
        "You and somebody whom you do not know each choose to cooperate or to compete. If both\n"
        "cooperate, each gets 75 points. If both compete, each gets 30. If one competes and the "
        "other\ncooperates, the one who competes gets 85 and the other 25. Points are worth money."
        "\n\nYou learn that the other has chosen to compete. What do you choose?"
    )
    assert "B has no say" in told_in(DESIGNS["splitting"])
    assert "600 people" in told_in(DESIGNS["framing"])
    assert recall.units == [0]
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


def test_a_card_of_studies_counts_verdicts(tmp_path: Path) -> None:
    designs = people_designs(["splitting"], players={"*": "rule"})
    for played in designs.values():
        play_design(played)
    card = PeopleCard.of(designs, player="the textbook")
    assert card.headline == (
        "the textbook: of 4 judged measures 0 like people, 4 unlike, 0 undecided; 0 recited; 0 not "
        "judged"
    )
    assert (card.compared.label, card.recalled) == ("verdicts adjusted for 8 measures (Holm)", {})
    assert "which study it is" not in str(card)
    # Each with its twin, which is no measure of its own.
    pairs = ["like unlike", "like like", "undecided unlike", "not-judged unlike"]
    verdicts = [verdict for pair in pairs for verdict in pair.split()]
    names = {"like": "like people", "unlike": "unlike people", "not-judged": "not judged"}
    changed = PeopleComparison(
        replace(one, parts=replace(one.parts, verdict=names.get(verdict, verdict)))
        for one, verdict in zip(card.compared, verdicts, strict=True)
    )
    recalled = {
        "splitting": {"study": "Forsythe", "result": "most give", "named": True},
        "framing": {"study": "unknown", "result": "x" * 300, "named": False},
    }
    card = PeopleCard(player="someone", compared=changed, recalled=recalled)
    assert card.headline == (
        "someone: of 3 judged measures 2 like people, 0 unlike, 1 undecided; 1 recited; 1 not "
        "judged"
    )
    words = " ".join(str(card).split())
    assert words.startswith(" ".join(f"{card.headline} {changed}".split()))
    asked = words.partition("Asked which study it is ")[2]
    assert asked == (
        "splitting: names the study (Forsythe: most give) framing: does not name it (unknown: "
        f"{'x' * 190}\N{HORIZONTAL ELLIPSIS})"
    )
    page = card.page(tmp_path / "card.html").read_text(encoding="utf-8")
    assert "<title>someone beside people" in page
    tables = re.findall("<table.*?</table>", page, re.DOTALL)
    rows = [
        [re.sub("<.*?>", "", cell) for cell in re.findall("<t[dh].*?</t[dh]>", row)]
        for row in re.findall("<tr.*?</tr>", tables[-1], re.DOTALL)
    ]
    assert rows[:2] == [
        ["design", "an author is named", "study", "result"],
        ["splitting", "True", "Forsythe", "most give"],
    ]
    conditions = re.findall("<td[^>]*>((?:dictator|ultimatum) .*?)</td>", tables[-2])
    assert conditions == ["dictator $10", "dictator $5", "ultimatum $10", "ultimatum $5"]


def test_a_recorded_card_needs_no_model(tmp_path: Path) -> None:
    def answer(request: Any) -> Any:
        return chance_reply(request, Random(len(request.prompt)))

    client = LLMClient(LLMConfig(model="script"), ScriptedBackend(answer))
    names = ["disjunction", "guessing_above_1"]
    folder = tmp_path / "out" / "runs"
    designs = people_designs(names, folder=folder, llm_client=client, rationale=False)
    for played in designs.values():
        play_design(played)
    recall = recall_study(names, folder=folder, llm_client=client)
    recall.run(progress=False)
    asked = recall.simulation(recall.reference, 0)
    card = PeopleCard.of(designs, player="script", recall=asked)
    (folder / "disjunction" / "original.tape.lock").touch()
    recorded = PeopleCard.recorded(folder)
    assert recorded.headline == card.headline
    assert card.player == recorded.player == "script"
    assert card.compared[-1].people.condition == "factor 4/3"
    assert people_designs(names, folder=folder, llm_client=client).keys() == designs.keys()
    assert recorded.recalled["disjunction"]["named"] is False
    tapes = sorted(path.name for path in (folder / "disjunction").glob("*.tape"))
    assert tapes == ["original.tape", "twin.tape"]
    wide = PeopleCard.recorded(folder, margin=0.5)
    assert {one.margins.mean for one in wide.compared} == {0.5}
    verdicts = [(one.measure, one.twin, one.mean, one.verdict) for one in card.compared]
    assert sorted(verdicts) == sorted(
        (one.measure, one.twin, one.mean, one.verdict) for one in recorded.compared
    )
    assert recorded.recalled == card.recalled
    with pytest.raises(ConfigError, match="has no tapes of published designs"):
        PeopleCard.recorded(tmp_path / "nowhere")
