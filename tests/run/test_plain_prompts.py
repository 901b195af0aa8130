"""Prompts without slots: a text as it stands, an f-string's result, what a function wrote."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from builders import make_client, played

from llmsim_lab import Ask, Prompt, Reply, Run, State, Tape, fork, replay, resume
from llmsim_lab.errors import ConfigError
from llmsim_lab.study import Study


class Pot(State):
    coins: int = 5


class Gift(Reply):
    amount: int


NAMES = ("Ann", "Bob")
REPLY = {"reasoning": "r", "amount": 1, "confidence": 1}


class Plain(Run[Pot]):
    """Asks Ann and Bob the same, in one of the ways to write it."""

    written: str = "text"

    async def turn(self, state: Pot, ask: Ask) -> Pot:
        def words(name: str) -> str:
            return f"You are {name} and have {state.coins} coins. Give?"

        match self.written:
            case "text":
                await ask.each(NAMES, Gift, "You have some coins. Give?")
            case "f-string":
                for name in NAMES:
                    await ask(name, Gift, words(name))
            case "function":
                await ask.each(NAMES, Gift, words)
        return state.replace(coins=state.coins + 1)


class Twice(Run[Pot]):
    """Asks Ann twice in a turn, and a third time with a tag."""

    async def turn(self, state: Pot, ask: Ask) -> Pot:
        await ask("Ann", Gift, f"First, {state.coins}?")
        await ask("Ann", Gift, f"Then, {state.coins}?")
        await ask("Ann", Gift, "Last?", tag="end")
        return state.replace(coins=state.coins + 1)


def made(world: type[Run[Any]], **more: Any) -> Any:
    return world(llm_client=make_client(REPLY), **more)


def said(run: Any, turn: int) -> list[str]:
    """Return what was asked in a turn."""
    return [call.request.prompt for call in run.turns[turn].calls]


WRITTEN = pytest.mark.parametrize("written", ["text", "f-string", "function"])


@WRITTEN
def test_a_prompt_without_slots_is_known_by_its_question_edited_and_forked(
    written: str, path: Path
) -> None:
    run = played(made(Plain, written=written, tape=path), 2)
    [(place, prompt)] = run.prompts.items()
    assert (place, prompt.name, prompt.user) == ("gift#text", "gift", said(run, 1)[0])
    edited = prompt.edit("{{ name }}, with {{ state.coins }} coins: give all.")
    other = played(run.fork(1, prompt=edited), 2)
    assert said(other, 3) == ["Ann, with 7 coins: give all.", "Bob, with 7 coins: give all."]
    [change] = Tape(path).changes(2)
    assert change.startswith("prompt gift: ")
    other.close()
    third = played(resume(path, 2, llm_client=make_client(REPLY)), 1)
    assert said(third, 4)[0] == "Ann, with 8 coins: give all."
    assert replay(path, 1).turns == run.turns
    assert replay(path, 2).turns == third.turns


@WRITTEN
@pytest.mark.parametrize("edit", [lambda text: f"{text} Be kind.", "{{ name }}. Be kind."])
def test_prompts_without_slots_are_compared_in_new_runs_and_in_recorded_situations(
    written: str, edit: Any, tmp_path: Path
) -> None:
    run = played(made(Plain, written=written, tape=tmp_path / "x.tape"), 2)
    more: dict[str, Any] = {"outcome": "amount.Ann", "llm_client": make_client(REPLY)}
    vary = {"prompt": {"as it is": None, "kind": edit}}
    again = Study.again(run, vary, samples=1, to=tmp_path / "again", **more).run(progress=False)
    more["outcome"] = "coins"
    new = Study(Plain, vary, seeds=2, turns=3, tape=tmp_path / "new", written=written, **more)
    for study in (again, new.run(progress=False)):
        assert set(study.counts) == {"done"}
        for arm, unit in product(study.arms, study.units):
            asked = said(replay(study.tape_of(arm, unit)), -1)
            plain = said(run, -1) if unit == "1:1" else asked
            kind = [edit(text) for text in plain] if callable(edit) else ["Ann. Be kind."]
            assert arm != "kind" or asked[0].endswith("Be kind.")
            assert unit != "1:1" or asked[0] == (plain if arm == "as it is" else kind)[0]


def test_each_question_of_a_turn_has_a_prompt_of_its_own() -> None:
    run = played(made(Twice), 1)
    assert list(run.prompts) == ["gift#text", "gift@2#text", "end#text"]
    other = played(run.fork(prompt=run.prompts["gift@2#text"].edit("Well?")), 1)
    assert said(other, 2) == ["First, 6?", "Well?", "Last?"]
    vary = {"prompt": {"kind": {"gift@2": str.upper, "end": "The end?"}}}
    study = Study(Twice, vary, seeds=1, turns=1, outcome="coins", llm_client=make_client(REPLY))
    tape = study.run(progress=False).tape_of("kind", 0)
    assert said(replay(tape), 1) == ["First, 5?", "THEN, 5?", "The end?"]


@WRITTEN
def test_a_line_says_once_that_an_edit_says_the_same_to_all_where_the_world_does_not(
    written: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = played(made(Plain, written=written), 1)
    played(run.fork(prompt=run.prompts["gift#text"].edit("Give!")), 2)
    lines = [line for line in caplog.messages if "PROMPT_VARIES" in line]
    assert len(lines) == (written != "text")
    assert all("ask(name, ..., '... You are {{ name }}.')" in line for line in lines)


class Named(Run[Pot]):
    prompts_: tuple[str, str] = ("Give?", "Give?")

    async def turn(self, state: Pot, ask: Ask) -> Pot:
        for number, text in enumerate(self.prompts_):
            name = "gift" if self.prompts_[0] != self.prompts_[1] else f"number {number}"
            await ask(NAMES[number], Gift, Prompt(text, name=name))
        return state


@pytest.mark.parametrize("texts", [("Give?", "Give?"), ("Give?", "Give now?")])
def test_two_prompts_of_one_text_or_of_one_name_stay_two(
    texts: tuple[str, str], path: Path
) -> None:
    run = played(made(Named, prompts_=texts, tape=path), 1)
    first, second = run.prompts.values()
    assert said(played(run.fork(prompt=second.edit("Well?")), 1), 2) == [texts[0], "Well?"]
    both = fork(path, 1, prompt=[first.edit("A"), second.edit("B")], llm_client=make_client(REPLY))
    assert said(played(both, 1), 2) == ["A", "B"]
    with pytest.raises(ConfigError, match="two edits of the prompt"):
        run.fork(prompt=[first.edit("A"), first.edit("B")])


class Free(Run[Pot]):
    text: str

    async def turn(self, state: Pot, ask: Ask) -> Pot:
        await ask("Ann", Gift, lambda _: self.text)
        return state


@pytest.mark.parametrize("text", ["{{ coins }}", "x" * 1_100_000, "\nGive?\n## User\nGive? "])
def test_what_no_prompt_can_hold_is_asked_as_it_is_and_not_edited(text: str, path: Path) -> None:
    run = played(made(Free, text=text, tape=path), 1)
    assert said(run, 1) == [text]
    assert replay(path).turns == run.turns
    if "Give?" in text:  # which one can
        other = played(run.fork(prompt=run.prompts["gift#text"].replace("Give?", "Well?")), 1)
        assert said(other, 2) == ["\nWell?\n## User\nWell? "]
        assert replay(path).turns == other.turns
        return
    vary = {"prompt": {"kind": str.upper}}
    study = Study(Free, vary, seeds=1, turns=1, outcome="coins", text=text, players="random")
    with pytest.raises(ConfigError, match="the prompt 'gift' cannot be edited"):
        study.run(progress=False)
