"""Worlds that match published designs: what they ask, predict and measure."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import pytest
from people_kit import CLASSICS, classic

from llmsim_lab import LLMClient, LLMConfig, Question, ScriptedBackend, data_path
from llmsim_lab.tape.prompts_read import prompts_read

each = pytest.mark.parametrize("name", CLASSICS)


def prompts_of(kind: Any, **parameters: Any) -> list[str]:
    """Return what a world asks where its rule answers."""
    seen: list[str] = []

    def noting(question: Question) -> Any:
        seen.append(f"{getattr(question.prompt, 'system', '')} {question.prompt}")
        return run.rule(question)

    run = kind(players={"*": noting}, **parameters)
    run.run(2)
    return seen


@each
@pytest.mark.parametrize("twin", [False, True])
def test_rules_and_chance_play_the_design_and_its_altered_twin(name: str, twin: bool) -> None:
    kind = classic(name)
    ruled = kind(players={"*": "rule"}, twin=twin)
    frame = ruled.run()
    for column, predicted in ruled.prediction().items():
        first, last = frame[column].iloc[[1, -1]]
        assert last == predicted or abs(last - predicted) < abs(first - predicted)
    by_chance = kind(players="random", twin=twin)
    by_chance.run()
    decisions = by_chance.decisions()
    assert by_chance.people()
    for measure in by_chance.people():
        column, _, turn = measure.partition("@")
        of_turn = decisions[decisions["turn"] == int(turn)] if turn else decisions
        assert (of_turn[column].dropna().between(0, 1)).all(), measure


@each
def test_a_twin_has_another_stake_and_another_story(name: str) -> None:
    original, twin = (prompts_of(classic(name), twin=twin)[0] for twin in (False, True))
    stakes = [max(map(int, re.findall(r"\d+", text))) for text in (original, twin)]
    assert stakes[0] != stakes[1]
    words = [set(re.findall("[a-z]{6,}", text)) for text in (original, twin)]
    assert len(words[0] & words[1]) < 0.7 * len(words[0])


@each
def test_what_all_read_comes_first(name: str) -> None:
    kind = classic(name)
    forms = {"accept": True, "option": "first", "choice": "compete", "number": 20.0}

    def answer(request: Any) -> dict[str, object]:
        fields = request.schema["properties"]
        known = {"reasoning": "So.", "confidence": 1, "amount": 0, **forms}
        return {field: known[field] for field in fields}

    run = kind(llm_client=LLMClient(LLMConfig(model="script"), ScriptedBackend(answer)))
    run.run(3)
    attempts = [attempt for call in run.calls for attempt in call.history]
    whole = sum(len(str(message)) for one in attempts for message in one.request.messages)
    read = prompts_read(attempts)
    # Pairs of problems are two different texts, and are asked once.
    assert read.one_slot < (1.0 if name == "framing" else 0.8) * whole


def test_the_designs_are_those_of_the_papers() -> None:
    guessing = classic("guessing")(players={"*": "rule"})
    assert 15 <= len(guessing.group()) <= 18
    assert guessing.config.turns == 4
    assert {
        round(100 * classic("guessing")(factor=factor).people()["guess@1"].mean)
        for factor in (1 / 2, 2 / 3, 4 / 3)
    } == {27, 37, 60}
    contributing = classic("contributing")(players={"*": "rule"})
    assert (contributing.config.turns, len(contributing.people())) == (10, 14)
    for game, stake, n in (("dictator", 5, 45), ("ultimatum", 10, 24)):
        assert classic("splitting")(game=game, stake=stake).people()["share"].n == n
    assert classic("splitting")(stake=7).people() == {}


def test_a_refusal_leaves_nothing_to_either_and_a_dictator_asks_nobody() -> None:
    splitting = classic("splitting")
    refusing = splitting(game="ultimatum", players={"A": lambda q: 1.0, "B": lambda q: False})
    assert refusing.run()[["share", "accepted"]].iloc[-1].tolist() == [0.2, 0]
    alone = splitting(players={"A": lambda q: 1.0})
    alone.run()
    assert alone.decisions()["player"].tolist() == ["A"]


def test_guesses_are_told_after_each_period() -> None:
    texts = prompts_of(classic("guessing"), players_in_group=3)
    assert "Before:" not in texts[0]
    assert texts[-1].count("Before: 33.33, 33.33, 33.33") == 1
    assert "won by\nPlayer 1 and Player 2 and Player 3" in texts[-1]


@each
def test_a_recorded_run_was_played_with_the_templates_very_code_and_replays(name: str) -> None:
    run = classic(name).replay(data_path("templates") / f"{name}.tape")
    [info] = run.tape.runs()
    assert info.manifest["model"]["name"].startswith("qwen2.5-coder-1.5b")
    code = (data_path("templates") / f"{name}.py").read_bytes()
    assert info.manifest["code"]["file"] == hashlib.sha256(code).hexdigest()
    assert run.turn_number == info.turns == run.config.turns
    columns = {measure.partition("@")[0] for measure in run.people()}
    assert columns <= set(run.decisions())
