"""Prompts that say too late what is the same for all players are named, once a run, and by lint."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import make_client, played

from llmsim_lab import Ask, LLMClient, LLMConfig, Prompt, Reply, Run, State, data_path
from llmsim_lab.cli import main
from llmsim_lab.run.prompt_lint import prompt_orders
from llmsim_lab.types import ChatReply, ChatRequest

RULES = (
    "The pot is multiplied and shared. All give at the same time. Nobody sees what others give. "
    "Coins that you keep stay yours. Give a whole number of coins, and say why in one sentence. "
    "There are four rounds."
)
NAME_FIRST = "You are {{ name }}. " + RULES
NAME_LAST = RULES + " You are {{ name }}."


class Gift(Reply):
    amount: int


class Round(State):
    number: int = 0


class Giving(Run[Round]):
    names: tuple[str, ...] = ("Ann", "Bob", "Cy")
    _prompt: Any = NAME_FIRST

    async def turn(self, state: Round, ask: Ask) -> Round:
        await ask.each(self.names, Gift, self._prompt)
        return state


class Giver:
    """A model that always gives 1; a script would read no prompts."""

    async def chat(self, request: ChatRequest) -> ChatReply:
        return ChatReply(text='{"amount": 1, "reasoning": "So.", "confidence": 1}')


def warnings_of(caplog: pytest.LogCaptureFixture, **options: Any) -> list[str]:
    options.setdefault("llm_client", LLMClient(LLMConfig(model="giver"), Giver()))
    prompt = options.pop("prompt_to", NAME_FIRST)
    run = Giving(**options)
    run._prompt = prompt
    with caplog.at_level(logging.WARNING):
        played(run, 2)
    return [text for text in caplog.messages if text.startswith("PROMPT_ORDER")]


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        (NAME_FIRST, "turn 1, Gift: the prompts share 8 characters from their start and 9"),
        (NAME_FIRST, "the first slot that differs is {{ name }}. A server reads anew what follows"),
        (lambda name: f"You are {name}. {RULES}", "they first differ at 'Ann. The pot"),
        (Prompt(RULES, system="You are {{ name }}."), "the first slot that differs is {{ name }}"),
    ],
)
def test_one_warning_a_run_names_the_first_slot_that_differs(
    caplog: pytest.LogCaptureFixture, prompt: Any, words: str
) -> None:
    [warning] = warnings_of(caplog, prompt_to=prompt)
    assert words in warning


@pytest.mark.parametrize(
    "options",
    [
        {"prompt_to": NAME_LAST},
        {"prompt_to": "You are {{ name }}. The pot is shared. What do you give?"},
        {
            "prompt_to": lambda name: "\n".join(
                f"{name} {n} is a line of its own" for n in range(20)
            )
        },
        {"names": ("Ann",)},
        {"llm_client": None, "players": "random"},
        {"llm_client": make_client(lambda _: {"amount": 1, "reasoning": "", "confidence": 1})},
    ],
    ids=["shared first", "short", "nothing shared", "one player", "no model", "a script"],
)
def test_nothing_is_said_where_another_order_would_save_nothing(
    caplog: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    assert warnings_of(caplog, **options) == []


@pytest.fixture
def lint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[Path], tuple[object, str]]:
    """Run ``llmsim-lab lint`` on a file; returns its status and what it prints."""

    def run(file: Path) -> tuple[object, str]:
        monkeypatch.setattr("sys.path", [*sys.path])
        # A template copied by another test may be imported under the same name.
        monkeypatch.delitem(sys.modules, file.stem, raising=False)
        monkeypatch.setattr("sys.argv", ["llmsim-lab", "lint", str(file)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, capsys.readouterr().out

    return run


TWO = "turn 5, Gift: 2 prompts of about"
RULES_AND_HISTORY = """await ask.each(
            ["Ann", "Bob"], Gift, "You are {{ name }}. {{ history }}", system="Give. " * 200,
            history="\\n".join(f"Round {past} of the game" for past in range(self.turn_number)),
        )"""
FAILS = f"await ask.each(['Ann', 'Bob'], Gift, {NAME_LAST!r}); 1 / (2 - self.turn_number)"


@pytest.mark.parametrize(
    ("asks", "findings", "words"),
    [
        (f"await ask.each(['Ann', 'Bob'], Gift, {NAME_FIRST!r})", "1 finding", TWO),
        (f"await ask.each(['Ann', 'Bob'], Gift, {NAME_LAST!r})", "0 findings", TWO),
        (RULES_AND_HISTORY, "1 finding", "turn 5, Gift: the prompts share 1"),
        (FAILS, "0 findings", "turn 3, Gift: 2 prompts"),
        (
            "await self.llm_client.call_with_retry(prompt='Ready?', response_model=Gift)",
            "0 findings",
            "In its first turns no model answers for a player.",
        ),
    ],
)
def test_lint_plays_turns_of_any_world_by_chance_and_judges_the_last(
    tmp_path: Path, lint: Any, asks: str, findings: str, words: str
) -> None:
    file = tmp_path / f"giving_{len(asks)}_{findings[0]}.py"
    file.write_text(
        "from llmsim_lab import Ask, Reply, Run, State\n"
        "class Round(State):\n    number: int = 0\n"
        "class Gift(Reply):\n    amount: int\n"
        "class Giving(Run[Round]):\n"
        "    async def turn(self, state: Round, ask: Ask) -> Round:\n"
        f"        {asks}\n"
        "        return state\n"
    )
    status, said = lint(file)
    assert status == int(findings[0])
    assert words in said
    assert ("prompt order: turn 5, Gift: the prompts share " in said) is (findings[0] == "1")
    assert f"{file}: {findings}" in said.replace("\n", "")


SHIPPED = [*data_path("templates").glob("*.py"), *data_path("scenarios").glob("*.yaml")]


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_lint_finds_nothing_in_what_is_shipped(lint: Any, file: Path) -> None:
    status, said = lint(file)
    assert (status, said.count("turn ") > 0) == (0, True)


def test_lint_says_in_which_turn_a_world_failed_and_keeps_what_it_found(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Empty(State):
        pass

    class Late(Run[Empty]):
        async def turn(self, state: Empty, ask: Ask) -> Empty:
            await ask.each(["Ann", "Bob"], Reply, "You are {{ name }} in turn {{ turn }}. Why?")
            if ask.turn == 2:
                raise KeyError("Ann")
            return state

    orders = prompt_orders(Late, Late.config_type())
    assert [order.prompts for order in orders] == [2]
    assert "Turn 2 failed when chance answered, and lint looked no further: KeyError" in caplog.text
