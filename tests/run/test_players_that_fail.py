"""A player's own code that raises or answers nonsense, and functions of the world that do."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from builders import make_client, played
from pydantic import Field

from llmsim_lab import Ask, Question, Reply, Run, State
from llmsim_lab.errors import ConfigError, LLMFailureException
from llmsim_lab.run import replay


class Move(Reply):
    move: int = Field(ge=0, le=5)


class Table(State):
    moves: dict[str, int] = Field(default_factory=dict)


def meeting(prompt: Any = "You are {{ name }}.", **more: Any) -> type[Run[Table]]:
    """A world in which Ann and Eve move; what its question is given besides."""

    class Meeting(Run[Table]):
        async def turn(self, state: Table, ask: Ask) -> Table:
            moves = await ask.each(["Ann", "Eve"], Move, prompt, **more)
            return state.replace(moves={name: one.move for name, one in moves.items()})

        def rule(self, question: Question) -> int:
            return raising(question)

    return Meeting


def raising(question: Any) -> int:
    return undefined  # type: ignore[name-defined, no-any-return]  # noqa: F821


async def late(question: Any) -> int:
    await asyncio.sleep(0)
    raise TimeoutError


async def cancelling(question: Any) -> int:
    task = asyncio.create_task(asyncio.sleep(9))
    task.cancel()
    await task
    return 1


async def two(question: Any) -> int:
    return 2


def in_a_thread(question: Any) -> Any:
    return asyncio.to_thread(raising, question)


def on_an_executor(question: Any) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return asyncio.wrap_future(pool.submit(raising, question))


class WordlessError(Exception):
    def __str__(self) -> str:
        raise ValueError

    __repr__ = __str__


def wordless(question: Any) -> int:
    raise WordlessError


NAME_ERROR = r"failed: NameError: name 'undefined' is not defined \(test_players_that_fail.py, line"
FAULTS: dict[str, tuple[Any, str, type[BaseException] | None]] = {
    "a function": (raising, NAME_ERROR, NameError),
    "the world's rule": ("rule", NAME_ERROR, NameError),
    "an async one": (late, r"failed: TimeoutError \(test_players", TimeoutError),
    "its task was cancelled": (cancelling, "failed: CancelledError", asyncio.CancelledError),
    "in a thread": (in_a_thread, NAME_ERROR, NameError),
    "on an executor": (on_an_executor, NAME_ERROR, NameError),
    "an error without text": (wordless, r"failed: WordlessError: \(its text cannot", WordlessError),
    "None": (lambda _: None, r"returned None; return Move\(move=\.\.\.\)", None),
    "beyond the field": (lambda _: 6, "answered move: Input should be less", None),
    "beyond the limits": (lambda _: 3, "answered Move, move must be from 0 to 2", None),
    "another type": (lambda _: [1], "answered move: Input should be a valid integer", None),
    "an unknown field": (lambda _: {"mover": 1}, r"answered 'mover' \(did you mean 'move'", None),
    "an odd key": (lambda _: {WordlessError(): 1}, r"failed: ValueError \(test_play", ValueError),
    "not a value": (lambda _: Future(), "answered move: Input should be a valid integer", None),
}
LIMITED = {"limits": {"move": (0, 2)}}


@pytest.mark.parametrize(("player", "says", "cause"), FAULTS.values(), ids=FAULTS)
def test_a_player_that_fails_ends_the_turn_with_its_name_turn_and_question(
    player: Any, says: str, cause: type[BaseException] | None
) -> None:
    run = meeting(tag="meet", **LIMITED)(players=two)
    played(run, 1)
    run.players = {"Ann": two, "Eve": player}
    with pytest.raises(ConfigError, match=says) as caught:
        run.run(2)
    assert str(caught.value).startswith("turn 2, Move (tag 'meet'): the rule of Eve ")
    assert cause is None or isinstance(caught.value.__cause__, cause)
    assert "the run is kept up to turn 1" in caught.value.__notes__[0]
    assert (run.turn_number, run.state.moves) == (1, {"Ann": 2, "Eve": 2})


@pytest.mark.parametrize("fallback", [None, 1, lambda _: 1], ids=["chance", "one", "function"])
@pytest.mark.parametrize(("player", "says", "_cause"), FAULTS.values(), ids=FAULTS)
def test_with_fallback_a_stand_in_answers_and_is_recorded_counted_and_replayed(
    player: Any, says: str, _cause: Any, fallback: Any, path: Path, caplog: Any
) -> None:
    players = {"Ann": two, "Eve": player}
    world = meeting(**LIMITED, fallback=fallback)
    run = world(players=players, on_error="fallback", tape=path)
    assert played(run, 3).to_frame()["fallback"].tolist() == [0, 1, 1, 1]
    assert {turn.state.moves["Ann"] for turn in run.turns[1:]} == {2}
    stood_in = [answer for turn in run.turns[1:] for answer in turn.answers if answer.reasoning]
    assert {answer.player for answer in stood_in} == {"Eve"}
    assert {answer.fields["move"] for answer in stood_in} <= (
        {0, 1, 2} if fallback is None else {1}
    )
    assert "stands in: turn 3, Move: the rule of Eve " in stood_in[-1].reasoning
    events = [record.getMessage().split()[0] for record in caplog.records]
    assert events == ["FALLBACK", "STAND_INS"]
    assert 'players="Eve 3"' in caplog.records[-1].getMessage()
    run.close()
    assert replay(path, players=players).turns == run.turns


def test_a_question_may_say_itself_what_follows_and_who_answers_for_others_is_named() -> None:
    world = meeting(by="judge", on_error="fallback", fallback=1)
    assert played(world(players={"judge": raising}), 1).state.moves == {"Ann": 1, "Eve": 1}
    strict = meeting(by="judge", on_error="raise", fallback=1)
    with pytest.raises(ConfigError, match="turn 1, Move: the rule of judge, about Ann, failed: N"):
        strict(players={"judge": raising}, on_error="fallback").run(1)
    with pytest.raises(ConfigError, match="on_error='skip' must be one of raise, fallback"):
        meeting(on_error="skip")(players=two).run(1)
    with pytest.raises(ConfigError, match="on_error: Input should be 'raise' or 'fallback'"):
        meeting()(players=two, on_error="skip")


@pytest.mark.parametrize("players", [{"*": "ruel"}, {"Ann": 3}, None], ids=str)
def test_players_are_checked_when_they_are_set_and_stay_as_they_are_on_a_tape(
    players: Any, path: Path
) -> None:
    run = meeting()(players=two)
    with pytest.raises(ConfigError, match="player"):
        run.players = players
    run.players = {"*": "random"}
    assert (run.config.players, run.given) == ({"*": "random"}, False)
    recorded = meeting()(players=two, tape=path)
    with pytest.raises(ConfigError, match=r"keeps its players .* run\.counterfactual"):
        recorded.players = {"*": "random"}
    with pytest.raises(ConfigError, match="config is set, and a run on a tape keeps"):
        recorded.config = run.config


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("is_async", [False, True])
def test_what_ends_a_program_ends_it_in_a_player_too(
    error: type[BaseException], is_async: bool
) -> None:
    def leaving(question: Question) -> int:
        raise error

    async def leaving_later(question: Question) -> int:
        raise error

    player = leaving_later if is_async else leaving
    run = meeting(fallback=1)(players=player, on_error="fallback")
    with pytest.raises(error):
        run.run(1)
    assert run.turn_number == 0


def test_a_player_whose_model_fails_is_stood_in_for_unless_no_model_is_there() -> None:
    def run_with(reply: Any) -> Run[Table]:
        client = make_client(reply)
        return meeting()(players=lambda question: question.put_to(client), on_error="fallback")

    assert played(run_with("no"), 1).to_frame()["fallback"].tolist() == [0, 2]
    with pytest.raises(LLMFailureException, match="connection_error"):
        run_with(ConnectionError("gone")).run(1)


@pytest.mark.parametrize("function", [raising, late])
@pytest.mark.parametrize("given", ["limits", "prompt", "mood", "fallback"])
def test_a_function_of_the_world_that_fails_is_an_error_whoever_answers(
    given: str, function: Any
) -> None:
    def reader(question: Question) -> int:
        return len(question.prompt) + len(question.values) + 9  # which is beyond the field

    slots = {"prompt": "{{ name }} {{ mood }}"} if given == "mood" else {}
    world = meeting(**slots, **{given: function})
    says = "failed for Ann: NameError: name" if function is raising else "is async, and a question"
    players = {"Ann": reader, "Eve": "random"}
    with pytest.raises(ConfigError, match=f"turn 1, Move: the function {given}= {says}") as caught:
        world(players=players, on_error="fallback").run(1)
    assert (type(caught.value.__cause__) is NameError) is (function is raising)


def test_a_prompt_that_cannot_be_filled_names_whom_it_was_for_and_when() -> None:
    world = meeting("{{ state.moves[name] }}")
    says = r"^turn 1, Move, to Ann: prompt 'move', user message: .*has no item 'Ann'"
    with pytest.raises(ConfigError, match=says):
        world(players=lambda question: len(question.prompt), on_error="fallback").run(1)


def test_the_words_of_an_error_may_be_others_in_a_replay(path: Path) -> None:
    def raising_an_object(question: Question) -> int:
        raise ValueError(object())

    players = {"Ann": two, "Eve": raising_an_object}
    run = played(meeting(fallback=1)(players=players, on_error="fallback", tape=path), 2)
    run.close()
    assert replay(path, players=players).turns == run.turns


def test_an_error_of_the_turn_itself_says_where_on_the_tape(path: Path) -> None:
    class Broken(Run[Table]):
        async def turn(self, state: Table, ask: Ask) -> Table:
            return state.replace(moves={"Ann": state.moves["Ann"]})

    run = Broken(tape=path)
    with pytest.raises(KeyError) as caught:
        run.run(1)
    assert caught.value.__notes__ == [
        "Turn 1 was not finished: the run is kept up to turn 0, and .run(1) continues it; "
        f"in another session, resume({str(path)!r}, 1, ...) does."
    ]
    assert run.tape is not None
    assert run.tape.run().outcome.startswith("failed: KeyError: 'Ann' (test_players_that_fail.py, ")


def test_errors_that_led_to_one_another_end_a_recorded_turn(path: Path) -> None:
    def circling(question: Any) -> int:
        first, second = ValueError("first"), ValueError("second")
        first.__cause__, second.__cause__ = second, first
        raise first

    with pytest.raises(ConfigError, match="failed: ValueError: first"):
        meeting()(players=circling, tape=path).run(1)
