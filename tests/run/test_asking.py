"""What a turn may ask besides: in place of others, by kind, with what stands in, and outside."""

from __future__ import annotations

import asyncio
import copy
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from builders import make_client, played, recorded
from pydantic import Field
from worlds import Gift, Pot, PublicGoods

from llmsim_lab import Ask, Prompt, Question, Reply, Run, State
from llmsim_lab.errors import ConfigError, LLMFailureException, TapeMiss
from llmsim_lab.run import StateChange, fork
from llmsim_lab.types import ChatReply, ChatRequest

NAMES = ["Ann", "Bob", "Cy"]


class Verdict(Reply):
    """A judgement of one gift."""

    fair: bool


class Village(State):
    coins: dict[str, float] = dict.fromkeys(NAMES, 20.0)


def world(turn: Callable[[Run[Village], Village, Ask], Awaitable[Any]]) -> type[Run[Village]]:
    class Own(Run[Village]):
        factor: float = 2.0

        async def turn(self, state: Village, ask: Ask) -> Village:
            found = await turn(self, state, ask)
            return found if isinstance(found, Village) else state

        def rule(self, question: Question) -> Any:
            return {"amount": 1} if question.reply is Gift else {"fair": question.player != "Bob"}

    return Own


def asking(*questions: Callable[[Ask], Any]) -> type[Run[Village]]:
    """A world whose turn asks these, one after the other."""

    async def turn(run: Run[Village], state: Village, ask: Ask) -> None:
        for question in questions:
            answer = question(ask)
            if isinstance(answer, Awaitable):
                await answer

    return world(turn)


def assert_replays(run: Run[Any], path: Path) -> None:
    """Close a run's tape, and check that a replay gives the same turns."""
    run.close()
    assert type(run).replay(path).turns == run.turns


def by_schema(request: ChatRequest) -> dict[str, Any]:
    assert request.schema is not None
    fields = {"reasoning": "r", "confidence": 0.5, "amount": 3, "fair": True}
    return {name: fields[name] for name in request.schema["properties"]}


# --- who answers ---------------------------------------------------------------------------------


async def judged(run: Run[Village], state: Village, ask: Ask) -> None:
    gifts = await ask.each(state.coins, Gift, "Give.")
    await ask.each(
        gifts, Verdict, lambda name: f"{name} gave {gifts[name].amount}.", by="judge", tag="verdict"
    )


@pytest.mark.parametrize("seat", ["judge", "verdict"])
def test_one_player_answers_about_each_and_has_a_seat_by_name_or_by_kind(seat: str) -> None:
    asked: list[tuple[str, str, str]] = []

    def judge(question: Question) -> bool:
        asked.append((question.player, question.by, question.prompt))
        return question.player != "Bob"

    run = played(world(judged)(players={"*": "rule", seat: judge, "Ann": lambda _: 5}), 1)
    assert asked == [
        ("Ann", "judge", "Ann gave 5."),
        ("Bob", "judge", "Bob gave 1."),
        ("Cy", "judge", "Cy gave 1."),
    ]
    frame = run.decisions()
    told = frame[frame.component == "judge"].set_index("player")["fair"]
    assert told.to_dict() == {"Ann": True, "Bob": False, "Cy": True}


def test_the_name_comes_before_the_kind_and_the_kind_before_all_others() -> None:
    players = {"Ann": lambda _: 1, "gift": lambda _: 2, "*": lambda _: 3}
    run = played(asking(lambda ask: ask.each(NAMES, Gift, "Give.", tag="gift"))(players=players), 1)
    assert [answer.fields["amount"] for answer in run.turns[1].answers] == [1, 2, 2]


# --- prompts -------------------------------------------------------------------------------------


def test_a_function_gives_the_text_itself_which_is_no_template() -> None:
    text = "{name}: {{{{ state }}}} {{% nonsense"
    run = asking(lambda ask: ask("Ann", Gift, lambda name: text.format(name=name)))(
        llm_client=make_client(by_schema)
    )
    run.run(1)
    assert run.calls[0].request.prompt == "Ann: {{ state }} {% nonsense"


def test_a_fork_replaces_the_prompt_that_a_function_asks_the_run_for() -> None:
    own = Prompt("{{ who }}, give.", name="own")

    async def turn(run: Run[Village], state: Village, ask: Ask) -> None:
        await ask("Ann", Gift, lambda name: run.prompt(own).render(who=name))

    run = played(world(turn)(llm_client=make_client(by_schema)), 1)
    again = played(run.fork(0, prompt=own.edit("Dear {{ who }}!")), 1)
    assert [run.calls[0].request.prompt, again.calls[0].request.prompt] == [
        "Ann, give.",
        "Dear Ann!",
    ]


def test_an_edited_prompt_may_leave_a_slot_out() -> None:
    own = asking(lambda ask: ask.each(NAMES, Gift, "Give {{ much }}.", much="a lot"))
    run = played(own(llm_client=make_client(by_schema)), 1)
    [prompt] = run.prompts.values()
    again = played(run.fork(0, prompt=prompt.edit("Give.")), 1)
    assert again.calls[0].request.prompt == "Give."


TEMPLATE = """{% if turn > 0 %}It is turn {{ turn }}. {% endif %}You are {{ name }}.
{{ state.coins | length }}: {% for who, coins in state.coins | items %}
{{ who }} has {{ coins }}, {{ name }}. {% endfor %}
{{ mine }} is yours, {{ state.coins[name] }} your coins, {{ run.factor }} the factor.{{ tail }}"""


@pytest.mark.parametrize("text", [TEMPLATE, "{{ turn }}{{ name }}, {{ mine }} {{ tail }}."])
def test_what_all_share_of_a_prompt_is_filled_once_and_nothing_comes_out_otherwise(
    text: str,
) -> None:
    values: dict[str, Any] = {"mine": len, "tail": " Decide."}

    async def together(run: Run[Village], state: Village, ask: Ask) -> None:
        await ask.each(state.coins, Gift, text, **values)

    async def alone(run: Run[Village], state: Village, ask: Ask) -> None:
        for name in state.coins:
            await ask(name, Gift, text, **values)

    calls = []
    for turn in (together, alone):
        run = played(world(turn)(llm_client=make_client(by_schema)), 1)
        calls.append([call.request for call in run.calls])
    assert [it.prompt for it in calls[0]] == [it.prompt for it in calls[1]]
    assert [it.provenance for it in calls[0]] == [it.provenance for it in calls[1]]
    spans = calls[0][1].provenance.spans
    assert {calls[0][1].messages[0].content[it.start : it.end] for it in spans} >= {
        "Bob",
        "3",
        " Decide.",
    }


# --- what stands in ------------------------------------------------------------------------------


@pytest.mark.parametrize("fallback", [Gift(amount=0), {"amount": 0}, 0, lambda name: 0])
def test_what_stands_in_for_an_invalid_answer_is_a_fallback(fallback: Any, path: Path) -> None:
    async def turn(run: Run[Village], state: Village, ask: Ask) -> Village:
        gifts = await ask.each(state.coins, Gift, "Give, {{ name }}.", fallback=fallback)
        return state.replace(coins={name: it.amount for name, it in gifts.items()})

    def replies(request: ChatRequest) -> Any:
        return "I will not." if "Bob" in request.messages[0].content else by_schema(request)

    run = played(world(turn)(llm_client=make_client(replies), tape=path), 1)
    assert run.state.coins == {"Ann": 3, "Bob": 0, "Cy": 3}
    assert run.turns[1].statuses == {"ok": 2, "fallback": 1}
    frame = run.decisions().set_index("player")
    assert frame["status"].to_dict() == {"Ann": "ok", "Bob": "fallback", "Cy": "ok"}
    assert frame["attempts"].to_dict() == {"Ann": 1, "Bob": 2, "Cy": 1}
    assert frame["reasoning"]["Bob"].startswith("stands in: ")
    assert_replays(run, path)


def test_nothing_stands_in_for_a_model_that_cannot_be_reached() -> None:
    own = asking(lambda ask: ask("Ann", Gift, "Give.", fallback=0))
    with pytest.raises(LLMFailureException) as caught:
        own(llm_client=make_client(ConnectionError("refused"))).run(1)
    assert caught.value.reason == "connection_error"


# --- choices -------------------------------------------------------------------------------------


class Pick(Reply):
    points: int = Field(ge=-50, le=50)


WORDS = {25: "raise by 25 points", 0: "do nothing"}


def moving(**asked: Any) -> Any:
    """Return a turn that asks all for one of two moves."""

    async def turn(run: Run[Village], state: Village, ask: Ask) -> Village:
        picks = await ask.each(state.coins, Pick, "Move.", limits={"points": WORDS}, **asked)
        return state.replace(coins={name: it.points for name, it in picks.items()})

    return turn


def test_equal_questions_are_measured_once_and_each_value_has_its_words(path: Path) -> None:
    turn = moving(decide="sample", tag="move")

    def drawn(request: ChatRequest) -> ChatReply:
        assert "raise by 25 points" in request.prompt
        return ChatReply(text="A", top_logprobs=(("A", math.log(0.6)), ("B", math.log(0.3))))

    run = played(world(turn)(llm_client=make_client(drawn), tape=path, seed=3), 2)
    first, second = (len(turn.calls) for turn in run.turns[1:])
    alone = world(turn)(llm_client=make_client(drawn), state=Village(coins={"Ann": 1.0}), seed=3)
    alone.run(1)
    assert first == second == len(alone.calls)
    frame = run.decisions()
    assert frame["attempts"].tolist() == [first, 0, 0] * 2
    assert "raise by 25 points" in frame["reasoning"][0] or "do nothing" in frame["reasoning"][0]
    assert alone.state.coins["Ann"] == run.turns[1].state.coins["Ann"]
    assert_replays(run, path)


# --- notes ---------------------------------------------------------------------------------------


def test_what_is_noted_is_in_the_frames_and_in_the_story_and_in_a_replay(path: Path) -> None:
    noting = asking(
        lambda ask: ask.each(NAMES, Gift, "Give."),
        lambda ask: ask.note("Bob", text="Bob kept it all.", kept=(1, 2)),
        lambda ask: ask.note(rainy=True, total=60),
    )
    run = noting(players="rule", tape=path)
    frame = run.run(1)
    assert frame.loc[1, ["rainy", "total"]].tolist() == [True, 60]
    assert run.turns[1].in_words() == ("Bob kept it all.",)
    assert run.decisions().set_index("player")["kept"]["Bob"] == "[1, 2]"
    assert_replays(run, path)


def test_what_became_of_a_decision_stands_on_the_row_of_its_component(path: Path) -> None:
    noting = asking(
        lambda ask: ask.each(NAMES, Gift, "Give.", tag="first"),
        lambda ask: ask.each(NAMES, Gift, "Give again.", tag="second"),
        lambda ask: ask.note("Bob", component="second", kept=2, led_to="Bob kept 2."),
        lambda ask: ask.note("Ann", kept=1),
    )
    run = noting(players="rule", tape=path)
    run.run(1)
    kept = run.decisions().set_index(["player", "component"])["kept"].dropna()
    assert kept.to_dict() == {("Ann", "first"): 1, ("Bob", "second"): 2}
    assert run.turns[1].in_words() == ("it led to: Bob kept 2.",)
    assert_replays(run, path)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"tokens": 1}, r"ask.note\(tokens=...\): every frame has a column of that name"),
        ({}, r"ask.note\(\{\}\) notes nothing: ask.note\('Ann'"),
        ({"at": {1, 2}}, r"ask.note\(.*JSON has no set"),
        ({"share": float("nan")}, r"ask.note\(.*nan"),
        ({"coins.Ann": 1}, r"the state has a column of that name already"),
    ],
)
def test_what_cannot_be_noted_is_an_error_where_it_is_noted(
    columns: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        asking(lambda ask: ask.note(**columns))(players="rule").run(1)


# --- outside -------------------------------------------------------------------------------------


def with_weather(work: Callable[[], Awaitable[Any]], **how: Any) -> type[Run[Village]]:
    async def turn(run: Run[Village], state: Village, ask: Ask) -> Village:
        found = await ask.outside("weather", {"city": "Oslo"}, work, **how)
        await ask("Ann", Gift, "It is {{ degrees }}.", degrees=found)
        return state.replace(coins={"Ann": found})

    return world(turn)


def test_what_came_from_outside_is_on_the_tape_and_a_replay_does_nothing(path: Path) -> None:
    done: list[float] = []

    async def work() -> float:
        done.append(21.5)
        return done[-1]

    kind = with_weather(work)
    run = recorded(kind(players="rule", tape=path), 2)
    assert len(done) == 2
    assert kind.replay(path).turns == run.turns
    assert len(done) == 2
    recorded(run.fork(1), 1)
    assert len(done) == 3

    more = asking(lambda ask: ask.outside("clock", None, work))
    more.kind = kind.kind
    with pytest.raises(TapeMiss, match=r"nothing recorded for clock null in turn 1"):
        more.replay(path, 1)
    assert len(done) == 3


@pytest.mark.parametrize("taped", [True, False])
def test_what_may_not_be_done_twice_counts_as_done_where_it_was_broken_off(
    path: Path, *, taped: bool
) -> None:
    done: list[str] = []
    begun = asyncio.Event()

    async def work() -> float:
        done.append("begun")
        begun.set()
        await asyncio.sleep(30)
        return 0

    kind = with_weather(work, once=True, fallback=-1)
    run = kind(players="rule", tape=path if taped else None)

    async def cancelled() -> None:
        step = asyncio.ensure_future(run.step())
        await begun.wait()
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step

    asyncio.run(cancelled())
    if taped:
        run.close()
        run = kind.resume(path)
    assert taped or copy.deepcopy(run).turn_number == 0
    run.run(1)
    run.close()
    assert done == ["begun"]
    assert run.state.coins == {"Ann": -1}
    assert not taped or kind.replay(path).turns == run.turns


# --- what a world may define ---------------------------------------------------------------------


class Taxed(PublicGoods):
    """A world that makes a table of its parameters, and knows what follows from a setting."""

    rate: float = 0.5

    def ready(self) -> None:
        self._table = {"tax": self.rate}

    def start(self) -> Pot:
        return Pot(coins=dict.fromkeys(NAMES, 10 * self._table["tax"]))

    def changed(self, state: Pot, values: Any) -> Pot:
        rest = dict(values)
        everyone = rest.pop("everyone", None)
        if everyone == 0:
            return None  # type: ignore[return-value]
        if everyone is not None:
            state = state.replace(coins=dict.fromkeys(state.coins, everyone))
        return super().changed(state, rest) if rest else state


def test_ready_comes_before_the_start_also_of_a_fork_and_a_replay(path: Path) -> None:
    run = Taxed(players="random", rate=2, tape=path)
    assert run.state.coins == dict.fromkeys(NAMES, 20)
    run.run(2)
    assert_replays(run, path)
    assert run.fork(1)._table == {"tax": 2}


def test_what_is_set_from_outside_goes_through_the_worlds_own_changed(path: Path) -> None:
    run = Taxed(players="random", interventions=[{"turn": 1, "set": {"everyone": 7}}], tape=path)
    run.run(2)
    assert run.turns[1].state.coins == dict.fromkeys(NAMES, 7)
    run.intervene(2, {"everyone": 9, "coins.Ann": 1})
    assert run.state.coins == {"Ann": 1, "Bob": 9, "Cy": 9}
    with pytest.raises(ConfigError, match="the state has nothing called 'anyone'"):
        run.intervene(2, {"anyone": 9})
    with pytest.raises(ConfigError, match="Taxed changed returned None; it must be a Pot"):
        run.intervene(2, {"everyone": 0})
    assert_replays(run, path)


def test_a_choice_without_an_option_stands_in_for_all_and_the_tape_is_read_again(
    path: Path,
) -> None:
    run = world(moving(decide="mode", fallback=0))(
        llm_client=make_client("none of these"), tape=path
    )
    frame = run.run(2)
    assert run.decisions()["status"].tolist() == ["fallback"] * 6
    assert frame["fallback"].tolist() == [0, 3, 3]
    assert_replays(run, path)


def test_what_stands_in_keeps_to_the_limits() -> None:
    limits = {"amount": (0, 5)}
    own = asking(lambda ask: ask("Ann", Gift, "Give.", limits=limits, fallback=9))
    with pytest.raises(ConfigError, match=r"fallback= of Ann .*, amount must be .*from 0 to 5"):
        own(llm_client=make_client("no")).run(1)


HALF = "a \ud83d b"


def test_half_a_character_from_outside_or_in_a_note_is_whole_on_the_tape(path: Path) -> None:
    noting = asking(lambda ask: ask.note(word=HALF, words={HALF: [HALF]}))
    run = played(noting(players="rule", tape=path), 1)
    item = run.intervene(1, {"coins.Ann": 5}, note=HALF)
    assert run.turns[1].noted["word"] == "a \ufffd b"
    assert item.set == {"coins.Ann": 5}
    assert StateChange(turn=1, set={"event": [HALF]}).set == {"event": ["a \ufffd b"]}
    assert_replays(run, path)


@pytest.mark.parametrize(
    ("question", "says"),
    [
        (lambda ask: ask("Ann", Gift, lambda _: 3), r"the prompt to Ann is 3; a function of"),
        (lambda ask: ask.outside("die", {1, 2}, later), r"the key of die, \{1, 2\}, is not ready"),
        (lambda ask: ask.outside("die", 6, lambda: {1}), r"what die gave, \{1\}, is not ready"),
    ],
)
def test_what_cannot_be_asked_is_an_error_that_names_it(
    question: Callable[[Ask], Awaitable[Any]], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        asking(question)(llm_client=make_client(by_schema)).run(1)


async def later(name: str = "") -> str:
    return name


def test_what_is_noted_or_fetched_past_the_turns_end_is_an_error() -> None:
    asks: list[Ask] = []
    asking(asks.append)(players="rule").run(1)
    with pytest.raises(ConfigError, match="turn 1 is over"):
        asks[0].note(rain=3)
    with pytest.raises(ConfigError, match="turn 1 has no decision of Bob"):
        asking(lambda ask: ask.note("Bob", luck=3))(players="rule").run(1)
    judged = asking(
        lambda ask: ask("Bob", Gift, "Give."),
        lambda ask: ask.note("Bob", component="judge", luck=3),
    )
    with pytest.raises(ConfigError, match=r"component='judge'.*in turn 1 Bob decided as player"):
        judged(players="rule").run(1)
    with pytest.raises(ConfigError, match="component='judge' says to which decision"):
        asking(lambda ask: ask.note(component="judge", luck=3))(players="rule").run(1)

    async def leaving(run: Run[Village], state: Village, ask: Ask) -> None:
        asyncio.ensure_future(ask.outside("clock", None, lambda: asyncio.sleep(1)))  # noqa: RUF006
        await asyncio.sleep(0)

    with pytest.raises(ConfigError, match="what it asked clock is still under way"):
        world(leaving)(players="rule").run(1)

    forgetting = asking(lambda ask: [ask.outside("clock", None, later)])
    with pytest.raises(ConfigError, match="asked clock and did not wait for the answer"):
        forgetting(players="rule").run(1)


def test_a_fork_with_another_player_is_recorded_with_that_player(path: Path) -> None:
    first = PublicGoods(players={"*": "random", "Bob": "person"}, tape=path, turns=2)
    first.close()
    other = played(fork(path, turn=0, players={"Bob": "random"}), 1)
    assert other.config.players == {"*": "random", "Bob": "random"}
    other.close()
    assert PublicGoods.replay(path).turns == other.turns
    for players in ({"Bob": "person"}, {"Ann": lambda _: 1}):
        with pytest.raises(ConfigError, match=r"run 2 on .* keeps its players, .* for '[AB]"):
            PublicGoods.resume(path, players=players)
    PublicGoods.resume(path, players={"Bob": "random"}).close()
