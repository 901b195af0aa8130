"""A world of one's own: what it can do with nothing but its twenty lines."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import suppress
from enum import Enum
from pathlib import Path
from types import new_class
from typing import Any, Generic, Literal, TypeVar, cast

import numpy as np
import pytest
from builders import make_client, played, recorded, requests_of
from pydantic import Field
from tape_text import changed_manifest
from worlds import Gift, Pot, PublicGoods

from llmsim_lab import Ask, Budget, LLMClient, LLMConfig, Prompt, Question, Reply, Run, State
from llmsim_lab.errors import ConfigError, LLMFailureException, PromptError, TapeError
from llmsim_lab.llm import Person, ScriptedBackend, Tape
from llmsim_lab.run import WorldConfig, fork, load, replay
from llmsim_lab.types import ChatReply, ChatRequest, ModelInfo


def gift(request: ChatRequest) -> dict[str, Any]:
    """Give as much as the prompt's length says, within the limits."""
    assert request.schema is not None
    most = request.schema["properties"]["amount"]["maximum"]
    return {
        "reasoning": "Why not.",
        "amount": min(most, len(request.prompt) % 7),
        "confidence": 0.5,
    }


def pot(**options: Any) -> PublicGoods:
    return PublicGoods(**{"llm_client": make_client(gift), **options})


def one() -> LLMClient:
    return make_client({"reasoning": "r", "amount": 1, "confidence": 1})


def free_rider(question: Question) -> int:
    return 0


# --- playing --------------------------------------------------------------------------------------


def test_a_turn_leads_to_the_state_that_it_returns_and_a_row_for_each_decision() -> None:
    run = played(pot(players={"Di": free_rider}), 1)
    given = {"Ann": 5, "Bob": 5, "Cy": 4, "Di": 0}
    coins = {name: 20 - amount + 1.6 * 14 / 4 for name, amount in given.items()}
    assert run.state == Pot(coins=coins, given=given)
    frame = run.decisions().set_index("player")
    assert frame["amount"].to_dict() == given
    assert frame["model"].isna().to_dict() == {"Ann": False, "Bob": False, "Cy": False, "Di": True}


def test_a_prompt_has_no_indentation_of_the_source_and_numbers_for_readers() -> None:
    run = played(pot(state=Pot(coins={"Ann": 29.799999999999997})), 1)
    assert run.calls[0].request.prompt == (
        "You are Ann and have 29.8 coins.\nLast gifts: none yet. The pot grows 1.6-fold and is\n"
        "shared. What do you give?"
    )


def test_a_model_is_asked_for_reasoning_first_then_the_fields_then_confidence() -> None:
    run = played(pot(), 1)
    schema = run.calls[0].request.schema
    assert schema is not None
    assert list(schema["properties"]) == ["reasoning", "amount", "confidence"]
    assert schema["required"] == ["reasoning", "amount", "confidence"]


def test_a_model_that_leaves_a_field_out_is_told_so_also_where_it_has_a_default() -> None:
    class Bid(Reply):
        price: int = 5

    whole = {"reasoning": "r", "price": 3, "confidence": 1}
    client = make_client([{"reasoning": "r", "confidence": 1}, whole])
    run = played(asking(lambda ask: ask("Ann", Bid, "Bid."))(llm_client=client), 1)
    assert run.turns[1].answers[0].fields["price"] == 3
    assert "it lacks price" in run.calls[0].request.prompt


def test_limits_narrow_the_schema_inwards_and_are_checked() -> None:
    answers = [{"reasoning": "r", "amount": 8, "confidence": 1}] * 2
    client = make_client(answers)
    with pytest.raises(LLMFailureException, match=r"amount must be from 0 to 7, and it is 8"):
        pot(state=Pot(coins={"Ann": 7.9}), llm_client=client).run(1)
    assert (requests_of(client)[0].schema or {})["properties"]["amount"]["maximum"] == 7


def test_a_reply_that_breaks_the_fields_bound_as_well_is_told_the_questions_limit() -> None:
    replies = [{"reasoning": "r", "confidence": 1, "amount": amount} for amount in (30, 2)]
    run = asking(lambda ask: ask("Ann", Gift, "Give.", limits={"amount": (0, 5)}))(
        llm_client=make_client(replies)
    )
    run.run(1)
    told = run.calls[0].history[1].request.messages[-1].content
    assert "amount: must be from 0 to 5 (it is 30)" in told


def test_a_failed_turn_says_what_is_kept_and_how_another_session_continues_it(path: Path) -> None:
    def reply(request: ChatRequest) -> Any:
        return ConnectionError("gone") if request.site and request.site.turn == 2 else gift(request)

    with pytest.raises(LLMFailureException) as caught:
        pot(llm_client=make_client(reply), tape=path).run(5)
    assert caught.value.__notes__ == [
        "Turn 2 was not finished: the run is kept up to turn 1, and .run(4) continues it; "
        f"in another session, resume({str(path)!r}, 1, ...) does."
    ]


# --- players --------------------------------------------------------------------------------------


@pytest.mark.parametrize("player", ["random", free_rider, one()])
def test_one_player_without_a_name_stands_for_all(player: Any) -> None:
    alone, named = PublicGoods(players=player), PublicGoods(players={"*": player})
    assert alone.config == named.config
    assert alone.run(2)["given.Ann"].tolist()[1:] == named.run(2)["given.Ann"].tolist()[1:]


# --- on a tape ------------------------------------------------------------------------------------


@pytest.fixture
def taped(tmp_path: Path) -> Path:
    recorded(pot(tape=tmp_path / "pot.tape", factor=2, players={"Di": free_rider}), 3)
    return tmp_path / "pot.tape"


def test_the_tape_says_what_was_a_rule_of_ones_own(taped: Path) -> None:
    with pytest.raises(ConfigError, match=r"pass the same again: players=\{'Di': \.\.\.\}"):
        PublicGoods.replay(taped)


def test_another_rule_is_told_from_the_recorded_one(taped: Path) -> None:
    with pytest.raises(TapeError, match=r"state\.coins\.Ann was 22\.0 and is 22\.5"):
        PublicGoods.replay(taped, players={"Di": lambda question: 1})


def test_an_edited_prompt_is_what_a_fork_asks_with_and_its_replay_ends_at_any_turn(
    taped: Path,
) -> None:
    [prompt] = PublicGoods.load(taped, players={"Di": free_rider}).prompts.values()
    edited = prompt.replace("What do you give?", "Be generous. What do you give?")
    forked = recorded(
        fork(
            taped, turn=1, prompt=edited, llm_client=make_client(gift), players={"Di": free_rider}
        ),
        1,
    )
    assert "Be generous." in forked.calls[-1].request.prompt
    for turns in (None, 2, 1, 0):
        again = replay(taped, turns=turns, players={"Di": free_rider})
        assert again.turns == forked.turns[: 3 if turns is None else turns + 1]
        again.run(2 - again.turn_number)
        assert again.turns == forked.turns
    with pytest.raises(ConfigError, match="turns=3 must be a whole number, 0 to 2"):
        replay(taped, turns=3, players={"Di": free_rider})


HALVES = "nice \ud83d"
"""As a model writes it that is stopped in the middle of an emoji."""


class Sayings(State):
    said: str = ""
    more: tuple[str, ...] = ()


class Said(Reply):
    words: str


class Echo(Run[Sayings]):
    async def turn(self, state: Sayings, ask: Ask) -> Sayings:
        said = (await ask("Ann", Said, "Say something.")).words
        return state.replace(said=said, more=[said, "\ud83d\ude00"])


def test_half_a_character_in_a_reply_fails_no_turn_no_tape_and_no_frame(path: Path) -> None:
    values = {"reasoning": "r", "words": HALVES}
    reply = json.dumps({**values, "confidence": 0.5})
    # What is wrong with this one is told with the half character's escape in it, as a text.
    lacking = json.dumps(values, ensure_ascii=False)
    run = played(Echo(llm_client=make_client([lacking, reply]), turns=1, tape=path))
    assert replay(path).turns == run.turns
    assert run.state == Sayings(said="nice \ufffd", more=("nice \ufffd", "\N{GRINNING FACE}"))
    assert load(path).state == run.state
    assert list(run.to_frame()["said"]) == ["", "nice \ufffd"]
    run.intervene(1, {"said": HALVES})
    assert run.state.said == "nice \ufffd"
    assert "nice \ufffd" in run.to_frame()["interventions"][1]


def test_setting_what_is_not_there_names_what_is() -> None:
    run = pot()
    with pytest.raises(ConfigError, match=r"nothing called 'coins.An' \(did you mean 'coins.Ann'"):
        run.intervene(0, {"coins.An": 5})
    with pytest.raises(ConfigError, match=r"coins.Ann: Input should be a valid number"):
        run.intervene(0, {"coins.Ann": "much"})
    for both in ({"coins.Ann": 5, "coins": {"Ann": 1}}, {"coins": {"Ann": 1}, "coins.Ann": 5}):
        with pytest.raises(ConfigError, match=r"coins and coins.Ann are both set.*'Ann': 5, "):
            run.intervene(0, both)


def test_a_tape_of_a_world_that_is_not_here_says_how_to_bring_it(tmp_path: Path) -> None:
    class Strange(PublicGoods):
        kind = "elsewhere:Strange"

    recorded(Strange(llm_client=make_client(gift), tape=tmp_path / "x"), 1)
    from llmsim_lab.run.registry import _known

    del _known["elsewhere:Strange"]
    with pytest.raises(
        TapeError,
        match=r"elsewhere:Strange.*from elsewhere import Strange; .* --import elsewhere.py",
    ):
        load(tmp_path / "x")
    assert Strange.load(tmp_path / "x").turn_number == 1
    with pytest.raises(TapeError, match=r"is one of elsewhere:Strange, and PublicGoods is"):
        PublicGoods.load(tmp_path / "x")


def test_code_that_changed_is_told_on_resuming_and_where_a_replay_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(pot(tape=tmp_path / "x"), 1)

    monkeypatch.setattr(PublicGoods, "turn", stay)
    changed_manifest(tmp_path / "x", 1, code={"file": "0" * 64})
    with pytest.raises(TapeError, match=r"worlds:PublicGoods has changed since .* its file"):
        PublicGoods.replay(tmp_path / "x")
    PublicGoods.resume(tmp_path / "x", llm_client=make_client(gift)).close()
    assert "CODE_CHANGED" in caplog.text


# --- budgets --------------------------------------------------------------------------------------


def test_a_budget_stops_a_run_which_is_resumed_without_asking_again(tmp_path: Path) -> None:
    client = make_client(gift)
    run = pot(llm_client=client, tape=tmp_path / "x")
    assert len(run.run(5, budget=Budget(calls=6))) == 2
    run.close()
    assert len(requests_of(client)) == 6
    assert (Tape(tmp_path / "x").run(1).outcome or "").startswith("stopped: the budget of 6 calls")
    resumed = recorded(PublicGoods.resume(tmp_path / "x", llm_client=client), 1)
    assert (resumed.turn_number, len(requests_of(client))) == (2, 8)


def test_tokens_can_be_limited() -> None:
    def answer(request: ChatRequest) -> ChatReply:
        return ChatReply(text=json.dumps(gift(request)), prompt_tokens=90, reply_tokens=10)

    assert pot(llm_client=make_client(answer)).run(9, budget=Budget(tokens=800))["turn"].max() == 2
    with pytest.raises(ConfigError, match=r"limits something: Budget\(calls=500\)"):
        Budget()


# --- misuse ---------------------------------------------------------------------------------------


def world(turn: Any, **more: Any) -> type[Run[Pot]]:
    made: type[Run[Pot]] = new_class(
        "World", (Run[Pot],), exec_body=lambda names: names.update(turn=turn, **more)
    )
    return made


def test_a_turn_that_is_not_async_is_an_error_when_the_class_is_made() -> None:
    with pytest.raises(ConfigError, match=r"World.turn is a plain function.* write async def turn"):
        world(lambda self, state, ask: state)


def test_a_state_of_a_class_that_was_defined_again_is_told_from_its_twin() -> None:
    class Pot(State):
        pass

    async def turn(self: Any, state: Any, ask: Ask) -> Any:
        return Pot()

    with pytest.raises(ConfigError, match=r"since World was made. Define World again"):
        world(turn)().run(1)


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.coins.update(Ann=1),
        lambda state: state.coins.__setitem__("Ann", 1),
        lambda state: setattr(state, "coins", {}),
    ],
)
def test_a_state_cannot_be_changed_in_place(change: Any) -> None:
    async def turn(self: Any, state: Pot, ask: Ask) -> Pot:
        change(state)
        return state

    with pytest.raises(ConfigError, match=r"never changed in place.*state.replace\("):
        world(turn)().run(1)


@pytest.mark.parametrize(
    "name",
    ["turns", "fork", "state", "tape", "players", "llm_client", "prompts", "given", "config"],
)
def test_a_reserved_name_is_an_error_when_the_class_is_made(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"PublicGoods2.{name}: the name '{name}' is taken"):
        type("PublicGoods2", (PublicGoods,), {"__annotations__": {name: int}, name: 1})


def asking(question: Any) -> type[Run[Pot]]:
    async def turn(self: Any, state: Pot, ask: Ask) -> Pot:
        await question(ask)
        return state

    return world(turn)


def test_a_slot_that_nothing_fills_is_told_with_the_likely_name() -> None:
    with pytest.raises(PromptError, match=r"nothing fills {{ nmae }} \(did you mean 'name'\?\)"):
        asking(lambda ask: ask("Ann", Gift, "{{ nmae }}"))(llm_client=one()).run(1)
    with pytest.raises(PromptError, match="has no item 'coin'"):
        asking(lambda ask: ask("Ann", Gift, "{{ state.coin }}"))(llm_client=one()).run(1)
    with pytest.raises(
        PromptError, match=r"it has no slot \{\{ offer \}\};.* ask\(\.\.\., offer=\.\.\.\) fills"
    ):
        asking(lambda ask: ask("Ann", Gift, "Hello", offer=1))(llm_client=make_client(gift)).run(1)


async def forgets_one(ask: Ask) -> Any:
    return ask("Ann", Gift, "Give.").amount  # type: ignore[attr-defined]


async def forgets_all(ask: Ask) -> None:
    ask.each(["Ann", "Bob"], Gift, "Give.")


@pytest.mark.parametrize("forgets", [forgets_one, forgets_all])
def test_a_question_that_is_not_awaited_is_an_error_that_shows_await(forgets: Any) -> None:
    with pytest.raises(ConfigError, match=r"asked Ann.* write await before it: gift = await ask"):
        asking(forgets)(llm_client=one()).run(1)


def test_a_player_that_was_never_asked_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    async def tagged(ask: Ask) -> None:
        await ask("Ann", Gift, "Give.", tag="offer")

    PublicGoods(players={"*": "random", "Bobb": "random"}).run(1)
    assert "did you mean 'Bob'?" in caplog.text
    asking(tagged)(players={"Ann": lambda _: 1, "offer": lambda _: 2}).run(1)
    assert "PLAYER_NEVER_ASKED run=World player=offer" in caplog.text


def test_an_answer_that_is_longer_than_any_prompt_is_still_told() -> None:
    class Many(Reply):
        xs: list[float]

    run = asking(lambda ask: ask("Ann", Many, "Give."))(players={"Ann": lambda _: [1 / 3] * 90_000})
    run.run(1)
    assert str(run.turns[1].answers[0]).startswith("xs [0.333")


def test_chance_that_does_not_follow_from_the_seed_is_named_where_a_replay_fails(
    tmp_path: Path,
) -> None:
    drawn = iter(range(9))

    async def turn(self: Any, state: Pot, ask: Ask) -> Pot:
        return state.replace(given={"Ann": next(drawn)})

    cls = world(turn)
    recorded(cls(tape=tmp_path / "x"), 1)
    with pytest.raises(TapeError, match=r"chance or a clock, which .* as with ask.rng"):
        cls.replay(tmp_path / "x")


async def stay(self: Any, state: Any, ask: Ask) -> Any:
    return state


def test_two_equal_questions_need_a_tag() -> None:
    async def twice(ask: Ask, **tags: str) -> None:
        await ask("Ann", Gift, "Give.")
        await ask("Ann", Gift, "Give.", **tags)

    with pytest.raises(ConfigError, match=r"asked the same Gift twice in turn 1.*tag='second'"):
        asking(twice)(llm_client=one()).run(1)
    run = played(asking(lambda ask: twice(ask, tag="second"))(llm_client=one()), 1)
    assert [answer.component for answer in run.turns[1].answers] == ["player", "second"]


def test_draws_by_two_tasks_are_errors_and_a_players_own_are_not() -> None:
    async def draws(ask: Ask, own: bool) -> None:
        taken = ask.rng

        async def draw(name: str) -> float:
            await asyncio.sleep(0)
            return (ask.rng_for(name) if own else taken).random()

        await asyncio.gather(draw("Ann"), draw("Bob"))

    asking(lambda ask: draws(ask, True))().run(1)
    with pytest.raises(ConfigError, match=r"ask.rng is used by two tasks.*ask.rng_for\(name"):
        asking(lambda ask: draws(ask, False))().run(1)


def test_a_template_put_together_anew_each_time_is_told_to_use_a_slot() -> None:
    async def many(ask: Ask) -> None:
        for number in range(70):
            await ask("Ann", Gift, f"{number} of {{{{ turns }}}}")

    with pytest.raises(ConfigError, match=r"more than 64 different prompts.*Give what"):
        asking(many)(llm_client=one()).run(1)


def test_what_is_drawn_follows_from_seed_turn_and_name() -> None:
    drawn: list[float] = []

    async def draw(ask: Ask) -> None:
        drawn.extend([ask.rng.random(), ask.rng_for("Ann").random(), ask.rng_for("Ann").random()])

    asking(draw)(seed=1).run(2)
    asking(draw)(seed=1).run(2)
    asking(draw)(seed=2).run(1)
    assert drawn[:6] == drawn[6:12]
    assert len(set(drawn)) == 9


def test_a_prompt_may_be_a_file_beside_the_world_or_a_prompt(tmp_path: Path) -> None:
    (tmp_path / "give.md").write_text("## User\n\nGive, {{ name }}.\n")
    run = played(asking(lambda ask: ask("Ann", Gift, tmp_path / "give.md"))(llm_client=one()), 1)
    assert run.calls[0].request.prompt == "Give, Ann."
    prompt = Prompt("Give, {{ name }}!", name="loud")
    run = played(asking(lambda ask: ask("Ann", Gift, prompt))(llm_client=one()), 1)
    assert [prompt.name for prompt in run.prompts.values()] == ["loud"]


# --- what a replay, a resumed run and another process must not differ in -------------------------


def test_a_default_is_of_its_fields_type_at_once_as_it_is_on_the_tape(tmp_path: Path) -> None:
    class Purse(State):
        coins: dict[str, float] = dict.fromkeys(["Ann"], 20)

    class Shop(Run[Purse]):
        factor: float = 2

        async def turn(self, state: Purse, ask: Ask) -> Purse:
            await ask("Ann", Gift, f"You have {state.coins['Ann']} times {self.factor}.")
            return state

    Shop(llm_client=one(), tape=tmp_path / "t").run(1)
    prompt = Shop.replay(tmp_path / "t").calls[0].request.prompt
    assert prompt == "You have 20.0 times 2.0."


def test_a_player_by_chance_may_be_asked_twice_in_a_turn_and_draws_anew() -> None:
    drawn: list[tuple[int, ...]] = []

    async def twice(ask: Ask) -> None:
        names = ["Ann", "Bob", "Cy", "Di"]
        first = await ask.each(names, Gift, "First, {{ name }}?")
        second = await ask.each(names, Gift, "Second, {{ name }}?")
        both = await asyncio.gather(ask("Ann", Gift, "Third?"), ask("Ann", Gift, "Fourth?"))
        drawn.append(tuple(g.amount for g in (*first.values(), *second.values(), *both)))

    for _ in range(2):
        asking(twice)(players="random").run(1)
    assert drawn[0] == drawn[1]
    assert drawn[0][:4] != drawn[0][4:8]


def test_a_player_by_chance_whom_two_tasks_ask_needs_a_tag() -> None:
    async def pair(ask: Ask, *tags: str) -> None:
        async def one_of(number: int) -> None:
            await ask("Ann", Gift, f"Pair {number}?", tag=tags[number])

        await asyncio.gather(one_of(0), one_of(1))

    asking(lambda ask: pair(ask, "0", "1"))(players="random").run(1)
    with pytest.raises(ConfigError, match=r"Ann is asked by two tasks.*tag='second'"):
        asking(lambda ask: pair(ask, "", ""))(players="random").run(1)


def test_a_parameter_cannot_be_changed_in_place() -> None:
    class Friends(Run[Pot]):
        friends: list[str] = Field(default_factory=list)

        async def turn(self, state: Pot, ask: Ask) -> Pot:
            self.friends.append("Ann")
            return state

    with pytest.raises(ConfigError, match="a parameter is never changed in place"):
        Friends().run(1)


@pytest.mark.process
def test_a_script_may_import_itself_by_its_own_name(tmp_path: Path) -> None:
    script = tmp_path / "own_script.py"
    script.write_text(
        "from llmsim_lab import Run, State\n"
        "class Empty(State):\n    pass\n"
        "class World(Run[Empty]):\n    async def turn(self, state, ask):\n        return state\n"
        "if __name__ == '__main__':\n"
        "    import own_script\n"
        "    print(World.kind == own_script.World.kind)\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def asked_of(player: Any, reply: type[Reply], **limits: Any) -> Any:
    """Return what a player answers to one question with these limits."""
    replies: list[Any] = []

    async def say(ask: Ask) -> None:
        replies.append(await ask("Ann", reply, "Say.", limits=limits))

    asking(say)(players=player).run(1)
    return replies[0]


@pytest.mark.parametrize("limits", [range(3, 5), np.arange(3, 5)])
def test_limits_may_be_a_range_or_an_array(limits: Any) -> None:
    assert asked_of("random", Gift, amount=limits).amount in (3, 4)
    replies = [{"reasoning": "r", "confidence": 1, "amount": amount} for amount in (5, 4)]
    assert asked_of(make_client(replies), Gift, amount=limits).amount == 4


def test_an_annotation_that_cannot_be_read_is_named() -> None:
    with pytest.raises(ConfigError, match="annotation of Odd cannot be read: name 'Unknown' is"):

        class Odd(Run[Pot]):
            size: "Unknown" = 1  # type: ignore[name-defined]  # noqa: F821, UP037

            async def turn(self, state: Pot, ask: Ask) -> Pot:
                return state


class Mood(Enum):
    GOOD = "good"
    BAD = "bad"


class Wide(Reply):
    low: int = Field(le=-5)
    cold: float = Field(lt=-5)
    five: int = Field(ge=1, le=9, multiple_of=5)
    long: str = Field(min_length=10)
    odd: Literal[1, 3, 5]
    mood: Mood


def test_chance_keeps_to_whatever_bounds_a_reply_has() -> None:
    drawn = asked_of("random", Wide, odd=(2, 4), mood=["bad"])
    assert (drawn.five, drawn.odd, drawn.mood) == (5, 3, Mood.BAD)
    drawn = asked_of("random", Several)
    assert 0 < drawn.share < 1
    assert 3 <= drawn.count <= 4
    assert len(drawn.words) <= 3


def test_a_turn_that_continues_without_a_call_beyond_the_budget_does_not_count() -> None:
    async def careless(ask: Ask) -> None:
        for name in ("Ann", "Bob", "Cy", "Di"):
            with suppress(Exception):
                await ask(name, Gift, "Give.")

    run = asking(careless)(llm_client=one())
    run.run(3, budget=Budget(calls=6))
    assert run.turn_number == 1


def test_a_turn_cannot_keep_things_beside_the_state() -> None:
    async def turn(self: Any, state: Pot, ask: Ask) -> Pot:
        self.memory = 1
        return state

    with pytest.raises(ConfigError, match=r"sets self.memory, which is on no tape.*state.replace"):
        world(turn)().run(1)


AnyState = TypeVar("AnyState", bound=State)


class Still(Run[AnyState], Generic[AnyState]):
    factor: float = 2

    async def turn(self, state: AnyState, ask: Ask) -> AnyState:
        return state


def test_a_generic_base_with_a_turn_is_no_world_until_its_state_is_named() -> None:
    class StillPot(Still[Pot]):
        pass

    run = played(StillPot(factor=3), 1)
    assert isinstance(run.state, Pot)
    assert run.config.factor == 3


def test_a_player_with_a_model_of_its_own_keeps_it_when_the_run_is_resumed(tmp_path: Path) -> None:
    def with_model(name: str) -> dict[str, LLMClient]:
        class Named(ScriptedBackend):
            async def model_info(self) -> ModelInfo:
                return ModelInfo(name=name, backend="scripted")

        return {"Di": LLMClient(LLMConfig(model="scripted"), Named(gift))}

    def resumed(name: str) -> Run[Pot]:
        return PublicGoods.resume(
            tmp_path / "x", llm_client=make_client(gift), players=with_model(name)
        )

    run = recorded(pot(players=with_model("small"), tape=tmp_path / "x"), 1)
    assert run.manifest()["players"]["Di"]["name"] == "small"
    other = resumed("large")
    with pytest.raises(TapeError, match=r"another model for Di: its name is 'large'"):
        other.run(1)
    other.close()
    assert resumed("small").run(1)["turn"].max() == 2


def test_two_numbers_of_one_name_are_an_error_and_not_one_column() -> None:
    class Dotted(State):
        prices: dict[str, Any] = Field(default={"a.b": 1, "a": {"b": 2}})

    made = new_class("Market", (Run[Dotted],), exec_body=lambda names: names.update(turn=stay))
    with pytest.raises(ConfigError, match=r"two values of the state are called prices.a.b"):
        made().to_frame()


class Several(Reply):
    words: list[str] = Field(default_factory=list)
    share: float = Field(gt=0, lt=1)
    count: int = Field(gt=2, lt=5)
    free: float
    name: str = ""


@pytest.mark.parametrize(
    ("question", "says"),
    [
        (lambda ask: ask(" ", Gift, "Give."), "' ' is not the name of a player"),
        (lambda ask: ask("Ann", Pot, "Give."), "Ann is asked for .*ask for a class derived from R"),
        (lambda ask: ask("Ann", Gift, "{{ turn }}", turn=3), "'turn' has a value in every prompt"),
        (lambda ask: ask("Ann", Gift, 7), "7 is not a prompt; give a text"),
        (lambda ask: ask.each(["Ann", "Ann"], Gift, "Give."), "'Ann' is asked twice by one"),
    ],
)
def test_a_question_that_cannot_be_asked_says_why(question: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        asking(question)(llm_client=one()).run(1)


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({"shar": (0, 1)}, r"limits name 'shar' \(did you mean 'share'\?\), which Several lacks"),
        ({"words": ["a"]}, r"limits of words for Ann are \['a'\]; give"),
        ({"count": "3"}, "limits of count for Ann are '3'; give"),
        (
            {"count": (float("nan"), 3)},
            r"limits of count for Ann are \(nan, 3\); .* nan is not a number",
        ),
        ({"free": (0, float("inf"))}, "free for Ann has no bound on one side: from 0 to inf"),
    ],
)
def test_limits_that_say_nothing_are_errors_that_show_the_right_form(
    limits: Any, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        asked_of("random", Several, **limits)


# --- what a newcomer writes -----------------------------------------------------------------------


def by(player: Any, **limits: Any) -> Any:
    return lambda: asked_of(player, Gift, **limits)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: PublicGoods().run(1), r"no one answers for Ann: .*connect\('auto'\)"),
        (
            lambda: PublicGoods(WorldConfig()),
            r"not a PublicGoodsConfig; .*PublicGoods\(seed=1, players",
        ),
        (lambda: pot().fork(prompt=str), r"prompt=<class 'str'> is not an edited prompt; edit one"),
        (lambda: pot().fork(prompt=iter(int, 1)), "prompt=<callable_.* more than 100,000 items"),
        (
            lambda: PublicGoods(llm_client=make_client()).counterfactual({}, llm_client=5),
            "llm_client=5 ",
        ),
        (
            lambda: PublicGoods(factr=2),
            r"^PublicGoods has no parameter 'factr' \(did you mean 'factor'\?\); it takes fac",
        ),
        (lambda: PublicGoods(players="rule"), "PublicGoods has no rule; define def rule"),
        (
            lambda: PublicGoods(players="randm"),
            "^PublicGoods: players='randm' is not a player .did",
        ),
        (lambda: PublicGoods(players={"An": len}).run(1), r"Ann \(there are players for An\) .did"),
        (
            lambda: pot().intervene(0, {"factor": 3}),
            r"parameter of .*, PublicGoods\(factor=3\), or",
        ),
        (
            lambda: pot().fork(0, intervene={"factor": 3}),
            "factor is a parameter of PublicGoods, whic",
        ),
        (lambda: PublicGoods(players={"Ann": Person}), r"a function of the question, a Person\(\)"),
        (lambda: setattr(pot(), "factor", 3), r"make another run: PublicGoods\(factor=3\)"),
        (lambda: type("P", (PublicGoods,), {"factor": 3}), "default is annotated, factor: int = 3"),
        (
            lambda: type("Bad", (State,), {"__annotations__": {"turn": int}, "turn": 1}),
            "Bad.turn: the name 'turn' is taken",
        ),
        (by(lambda _: 8, amount=(0, 7.5)), "rule of Ann answered Gift, amount must be from 0 to 7"),
        (by(lambda _: 6, amount=[5, 15]), "amount must be one of 5, 15, and it is 6"),
    ],
)
def test_what_is_wrong_is_an_error_that_shows_the_way_out(wrong: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        wrong()


def test_a_fork_with_another_parameter_is_sent_to_a_new_run(path: Path) -> None:
    recorded(pot(tape=path), 1)
    with pytest.raises(
        ConfigError, match=r"factor: a recorded .* takes only .*PublicGoods\(factor="
    ):
        fork(path, turn=0, factor=3)


@pytest.mark.parametrize("given", ["You are {{ name }}.", ["You are {{ name }}."], [3]])
def test_a_fork_with_a_text_for_a_prompt_is_told_how_one_is_edited(given: Any) -> None:
    run = played(pot(), 1)
    place = next(iter(run.prompts))
    with pytest.raises(ConfigError, match="edit one of the run's: .*edit.*" + place):
        run.fork(prompt=given)
    assert run.fork(prompt=run.prompts[place].edit("You are {{ name }}.")).turn_number == 1


def test_settings_that_the_given_client_does_not_have_are_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = make_client(temperature=0.5)
    PublicGoods(llm={"temperature": 0.5}, llm_client=client).fork()
    assert caplog.messages == []
    PublicGoods(llm={"temperature": 1.5, "num_ctx": 8192}, llm_client=client).fork()
    [line] = caplog.messages
    assert line == 'SETTINGS_NOT_USED changed="temperature 1.5 → 0.5, num_ctx 8192 → 4096"'


# --- what is no client ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "right"),
    [
        ("ollama:llama3.2", r"make one: llm_client=connect\('ollama:llama3.2'\)"),
        (ScriptedBackend({}), r"LLMClient\(LLMConfig\(model='script'\), backend\)"),
        (LLMClient, r"is not a client; make one: llm_client=connect\('auto'\)"),
        (5, r"llm_client=5 is not a client; make one: llm_client=connect\('auto'\)"),
    ],
)
def test_a_model_that_is_no_client_never_answers_by_chance(
    given: Any, right: str, path: Path
) -> None:
    with pytest.raises(ConfigError, match=right):
        PublicGoods(llm_client=given)
    run = played(pot(tape=path), 1)
    with pytest.raises(ConfigError, match=right):
        run.fork(llm_client=given)
    run.close()
    with pytest.raises(ConfigError, match=right):
        PublicGoods.resume(path, llm_client=given)


def test_a_client_around_another_is_asked_and_no_player_by_chance() -> None:
    class Counting:
        def __init__(self) -> None:
            self.inner, self.asked = one(), 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        async def call_with_retry(self, **question: Any) -> Any:
            self.asked += 1
            return await self.inner.call_with_retry(**question)

    client = Counting()
    run = played(asking(lambda ask: ask("Ann", Gift, "Give."))(llm_client=cast("Any", client)), 1)
    assert client.asked == len(run.turns[1].calls) == 1
    assert run.decisions().amount.tolist() == [1]


@pytest.mark.parametrize("name", ["turn", "tokens"])
def test_a_state_cannot_have_a_field_of_the_name_of_a_column_of_every_run(name: str) -> None:
    body = {"__annotations__": {name: int}, name: 0, "__module__": __name__}
    with pytest.raises(ConfigError, match=f"Taken.{name}: the name '{name}' is taken"):
        new_class("Taken", (State,), exec_body=lambda names: names.update(body))
