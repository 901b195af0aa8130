"""``system=``: what never changes goes out as the system message, whatever the prompt is."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from builders import make_client, played

from llmsim_lab import Ask, Prompt, Reply, Run, State, fork, replay
from llmsim_lab.errors import LabError
from llmsim_lab.study import Study
from llmsim_lab.tape.prompts_read import prompts_read
from llmsim_lab.types import ChatRequest

REPLY = {"reasoning": "r", "amount": 1, "confidence": 1}
RULES = """Each coin grows {{ run.factor }}-fold.
            Think of {{ hint }}."""
SENT = "Each coin grows 2-fold.\nThink of all."


class Pot(State):
    coins: int = 5


class Gift(Reply):
    amount: int


class Game(Run[Pot]):
    """Asks Ann, in one of the ways to write a prompt."""

    written: str
    factor: int = 2
    file: Path = Path("gift.md")

    async def turn(self, state: Pot, ask: Ask) -> Pot:
        prompts: dict[str, Any] = {
            "template": "You have {{ state.coins }} coins.",
            "text": "You have some coins.",
            "f-string": f"You have {state.coins} coins.",
            "prompt": Prompt("You have {{ state.coins }} coins.", name="gift"),
            "file": self.file,
            "function": lambda name: f"You have {state.coins} coins.",
            "function with braces": lambda name: "You have {{ coins }}.",
        }
        await ask("Ann", Gift, prompts[self.written], system=RULES, hint="all")
        return state.replace(coins=state.coins + 1)


WRITTEN = ["template", "text", "f-string", "prompt", "file", "function", "function with braces"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    prompt = tmp_path / "gift.md"
    prompt.write_text("## User\n\nYou have {{ state.coins }} coins.\n", encoding="utf-8")
    return prompt


def messages(run: Any, turn: int = -1) -> list[tuple[str, str]]:
    [call] = run.turns[turn].calls
    return [(message.role, message.content) for message in call.request.messages]


@pytest.mark.parametrize("written", WRITTEN)
def test_what_never_changes_goes_out_as_the_system_message(
    written: str, path: Path, file: Path
) -> None:
    run = played(Game(written=written, file=file, llm_client=make_client(REPLY), tape=path), 2)
    assert messages(run)[0] == ("system", SENT)
    assert messages(run)[1][1].startswith("You have ")
    [call] = run.turns[1].calls
    spans = [span.name for span in call.provenance.spans if span.role == "system"]
    assert spans == ["run", "hint"]
    run.close()
    assert replay(path).turns == run.turns
    assert messages(replay(path)) == messages(run)


@pytest.mark.parametrize("written", WRITTEN[:-1])
def test_forks_and_studies_edit_the_system_message_with_its_prompt(
    written: str, path: Path, file: Path, tmp_path: Path
) -> None:
    client = make_client(REPLY)
    run = played(Game(written=written, file=file, llm_client=client, tape=path), 1)
    [prompt] = run.prompts.values()
    run.close()
    other = fork(path, prompt=prompt.replace("{{ hint }}", "Bob"), llm_client=client)
    played(other, 1)
    assert messages(other)[0] == ("system", "Each coin grows 2-fold.\nThink of Bob.")
    assert messages(other)[1][0] == "user"
    study = Study(
        Game,
        {"prompt": {"kind": lambda text: text.replace("Think of", "Be kind to")}},
        seeds=2,
        turns=1,
        outcome="coins",
        tape=tmp_path / "study",
        llm_client=client,
        written=written,
        file=file,
    )
    tape = study.run(progress=False).tape_of("kind", 0)
    assert messages(replay(tape))[0] == ("system", "Each coin grows 2-fold.\nBe kind to all.")


class Told(State):
    rounds: tuple[dict[str, int], ...] = ()


class Club(Run[Told]):
    """Twelve players with long rules who all see the rounds so far."""

    names: tuple[str, ...] = tuple(f"{first}{last}" for first in "ABC" for last in "adio")
    rules: str = "Whoever gives a coin to the club gets half of one back. " * 36

    async def turn(self, state: Told, ask: Ask) -> Told:
        gifts = await ask.each(
            self.names,
            Gift,
            """{% for gifts in state.rounds %}A round: {{ gifts }}.
            {% endfor %}You are {{ name }}. What do you give?""",
            system="{{ run.rules }}",
        )
        given = {name: gift.amount for name, gift in gifts.items()}
        return state.replace(rounds=(*state.rounds, given))


def test_long_rules_and_a_history_are_read_hardly_more_often_than_they_must() -> None:
    def answer(request: ChatRequest) -> dict[str, Any]:
        return {**REPLY, "amount": Random(request.prompt).randrange(20)}

    run = played(Club(llm_client=make_client(answer)), 11)
    read = prompts_read([attempt for call in run.calls for attempt in call.history])
    assert read.requests == 12 * 11
    assert read.characters > 12 * 11 * 2000
    assert read.one_slot <= 1.1 * read.at_best
    assert read.at_best < 0.06 * read.characters


class Wrong(Run[Pot]):
    """Asks with a prompt and a system message that do not go together."""

    async def turn(self, state: Pot, ask: Ask) -> Pot:
        prompt, system = _WRONG[self.name]
        await ask("Ann", Gift, prompt, system=system)
        return state


_PROMPT = Prompt("Give?", system="Play fair.", name="gift")
_WRONG: dict[str, tuple[Any, Any]] = {
    "the prompt 'gift' has a system message, 'Play fair.', and the question gives another": (
        _PROMPT,
        "Win.",
    ),
    "system='Win.' goes with a function that returns a plain text, and this one returns the": (
        lambda name: Prompt("Give?", name="gift").render(),
        "Win.",
    ),
    "system=3 of the question to Ann must be the text of the system message": ("Give?", 3),
    "system='rules.md' of the question to Ann must be the text": ("Give?", "rules.md"),
    "nothing fills {{ hintt }}": ("Give?", "Think of {{ hintt }}."),
    "system message, line 1": ("Give?", "Think of {{ hint."),
    "has the slot {{ system }}, and system= is a parameter of ask itself": ("{{ system }}?", "x"),
}


@pytest.mark.parametrize("words", _WRONG)
def test_a_system_message_that_cannot_go_out_is_an_error(words: str) -> None:
    with pytest.raises(LabError) as error:
        played(Wrong(name=words, llm_client=make_client(REPLY)), 1)
    assert words in str(error.value)
