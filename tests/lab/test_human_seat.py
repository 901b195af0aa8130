"""The seat as a person has it: what is asked, one click a quarter, several people, the score."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from lab_kit import Browser, eventually
from pydantic import Field
from worlds import PublicGoods

from llmsim_lab import Ask, Person, Reply, Run, State, data_path
from llmsim_lab.errors import ConfigError, EconomyError
from llmsim_lab.lab import HumanSeat, TurnStepper, leaderboard
from llmsim_lab.run import load, replay
from llmsim_lab.simulation import Simulation
from llmsim_lab.simulation.scores import advice_asked

pytestmark = pytest.mark.usefixtures("undrawn")
SAID = {"reasoning": "Prices rise.", "confidence": 0.8}
RAISE: dict[str, Any] = {"action": "Raise the policy rate", **SAID}
WAIT_S = 30.0
HOSTILE = "<script>alert(1)</script></style>\x1b[31m\u202etfel" + "x" * 1_000


def table_of(*names: str, **fields: Any) -> Simulation:
    """A run of people; one of Aland if no other is named."""
    nations = names or ("Aland",)
    players = dict.fromkeys(nations, "person")
    begins = {"start_at": "1979Q3", "turns": 3, "players": players}
    return Simulation(**begins | fields, nations=nations)


class Visitor:
    """A person at a seat, by what the window shows and sends."""

    def __init__(self, seat: HumanSeat) -> None:
        self.seat, self.browser = seat, Browser(seat)

    @property
    def now(self) -> dict[str, Any]:
        """What the view is made of."""
        shown: dict[str, Any] = self.seat.reading.parts["seat", "now"]
        return shown

    def ask(self, name: str | None = None) -> dict[str, Any]:
        """What is asked of a person, or first."""
        return next(it for it in self.now["asks"] if name in (None, it["seat"]))

    def fields(self, name: str | None = None) -> dict[str, Any]:
        return {field["place"][0]: field for field in self.ask(name)["fields"]}

    async def answer(self, name: str | None = None, **values: str) -> None:
        """Fill the form in, click, and wait until that is done."""
        answered = self.ask(name)["id"]
        self.browser.send("answer", id=answered, values=values)
        await self.taken(answered)

    async def taken(self, answered: str) -> None:
        """Wait until a turn has an answer, and has ended or asks for the next one."""
        await self.begun()
        # Until the turn has the answer, its question still waits.
        await eventually(lambda: self.has_taken(answered), wait_s=WAIT_S)
        await self.rest()

    def has_taken(self, answered: str) -> bool:
        """Return True if an answer is in its turn, or is not: it has faults, or the turn failed."""
        asks = [ask for ask in self.now["asks"] if ask["id"] == answered]
        return not asks or any(ask["faults"] for ask in asks) or not self.seat._under_way

    async def begun(self) -> None:
        """Let the loop begin what was sent."""
        for _ in range(3):
            await asyncio.sleep(0.01)

    async def rest(self) -> None:
        """Wait until a turn under way has ended, or asks."""
        await self.begun()
        await eventually(lambda: self.seat.waiting_for or not self.seat._under_way, wait_s=WAIT_S)
        await asyncio.sleep(0.02)


@asynccontextmanager
async def seated(run: Any, **more: Any) -> AsyncIterator[Visitor]:
    """A person at a seat that is taken away afterwards."""
    seat = HumanSeat(run, **more)
    try:
        yield Visitor(seat)
    finally:
        seat.close()
        await eventually(lambda: not seat._under_way)


# --- the central bank's game ----------------------------------------------------------------------


async def test_the_form_has_the_rates_that_moves_lead_to_and_begins_where_the_rate_is() -> None:
    async with seated(table_of()) as visitor:
        rate = visitor.fields()["rate"]
        rates, says = rate["schema"]["enum"], rate["schema"]["says"]
        assert (rate["value"], rates[0], rates[-1]) == (9.67, 5.17, 14.17)
        assert (says[rates.index(9.67)], says[rates.index(8.67)]) == (
            "Hold the rate at 9.67 %",
            "Lower the rate to 8.67 %",
        )
        optional = [it for it, field in visitor.fields().items() if field["schema"].get("optional")]
        assert sorted(optional) == ["action", "confidence", "reasoning"]
        assert "Mandate: stable prices" in visitor.ask()["text"]
        assert "output_gap" not in visitor.now["columns"]


async def test_one_click_plays_a_quarter_and_the_tape_says_what_was_left_open(path: Path) -> None:
    async with seated(table_of(tape=path)) as visitor:
        await visitor.answer(rate="11.67")
        [made] = visitor.seat.simulation.turns[1].answers
        assert (made.fields["action"], made.status) == ("Raise the rate to 11.67 %", "ok")
        assert made.fields["rate_change_bp"] == 200
        assert visitor.fields()["rate"]["value"] == 11.67
        visitor.seat.simulation.close()
    [call] = replay(path).calls
    assert call.reply is not None
    said = json.loads(call.reply.text)
    assert said == {
        "action": "Raise the rate to 11.67 %",
        "rate_change_bp": 200,
        "left_open": ["action"],
    }


async def test_headlines_are_the_quarters_numbers_the_most_striking_first() -> None:
    async with seated(table_of(turns=4, economy={"shock_scale": 0})) as visitor:
        assert visitor.now["news"] == []
        for _ in range(3):
            await visitor.answer(rate="9.67")
        first, *others = visitor.now["news"]
        assert first == "Unemployment falls to 5.6 %, its lowest of the term"
        assert sorted(it.split()[0] for it in others) == ["Inflation", "Real"]


@pytest.mark.parametrize(
    ("points", "verb"),
    [(0, "stays"), (0.8, "climbs"), (1.3, "jumps"), (-0.8, "falls"), (-1.3, "tumbles")],
)
async def test_a_headline_says_how_large_a_change_is(points: float, verb: str) -> None:
    before = round(table_of().to_frame()["inflation"].iloc[0], 1)
    change = {"turn": 1, "set": {"inflation": before + points}}
    calm = {"shock_scale": 0}
    async with seated(table_of(turns=3, economy=calm, interventions=[change])) as visitor:
        await visitor.answer(rate="9.67")
        [news] = [line for line in visitor.now["news"] if line.startswith("Inflation")]
        assert news.startswith(f"Inflation {verb} {'to' if points else 'at'} ")


async def test_a_second_click_on_the_same_answer_plays_no_second_quarter() -> None:
    async with seated(table_of()) as visitor:
        ask = visitor.ask()["id"]
        for _ in range(3):
            visitor.browser.send("answer", id=ask, values={"rate": "11.67"})
        await visitor.taken(ask)
        visitor.browser.send("answer", id=ask, values={})
        await visitor.rest()
        assert visitor.seat.simulation.turn_number == 1
        assert not any(it.get("fault") for it in visitor.browser.heard)
        visitor.browser.send("answer", id="another", values={})
        assert "question is closed" in visitor.browser.latest("fault")


async def test_the_rules_advice_is_shown_when_asked_for_and_counted() -> None:
    async with seated(table_of()) as visitor:
        visitor.browser.send("advise", who="Aland")
        await eventually(lambda: visitor.now["advice"])
        assert "The Taylor rule: Set the interest rate to 14.17%." in visitor.now["advice"]["Aland"]
        await visitor.answer()
        assert visitor.now["advice"] == {}
        await visitor.answer()
        assert advice_asked(visitor.seat.simulation) == 1


async def test_the_last_click_shows_the_ending_and_the_static_view_keeps_it() -> None:
    model = load(data_path("tapes/first_run.tape"))
    run = table_of(turns=2, seed=7, economy={"shock_scale": 0})
    async with seated(run, model=model) as visitor:
        await visitor.answer()
        await visitor.answer()
        await eventually(lambda: visitor.now["score"], wait_s=WAIT_S)
        score = visitor.now["score"]
        names = {row[0] for row in score["rows"]}
        assert names == {
            *("you (Aland)", "Taylor rule", "Taylor rule, inertia 0.5", "rate held"),
            "language model (qwen2.5-coder-1.5b)",
        }
        assert [row[2] for row in score["rows"]] == sorted(row[2] for row in score["rows"])
        assert len(visitor.seat.runs[score["mine"]].turns) == 1 + 2 + 12
        assert visitor.now["over"]
        assert visitor.now["asks"] == []
        assert "Holding the rate would have cost" in visitor.seat.static_text()
        picture = visitor.seat.static_picture()
        assert picture is not None
        assert "rate held" in picture.alt  # type: ignore[attr-defined]
        assert "<img" not in str(visitor.seat.static_html()), "a reader without styles sees it once"


async def test_a_score_before_the_first_turn_says_what_is_missing_and_one_of_so_far_goes() -> None:
    async with seated(table_of()) as visitor:
        visitor.browser.send("score")
        await eventually(
            lambda: "play a turn first" in visitor.browser.latest("live").get("fault", "")
        )
        for shown in (True, False):
            await visitor.answer()
            visitor.browser.send("score" if shown else "since")
            await eventually(lambda shown=shown: bool(visitor.now["score"]) is shown, wait_s=WAIT_S)


@pytest.mark.process
async def test_a_class_of_three_plays_a_game_each(tmp_path: Path) -> None:
    names = ["Ann", "Bob", "Cy"]

    async def play(number: int, name: str) -> None:
        visitor = Visitor(HumanSeat.game(name, seed=7, tape=tmp_path / f"{name}.tape"))
        if name == "Bob":
            visitor.browser.send("advise", who="Bob")
        for _ in range(16):
            here = visitor.fields()["rate"]
            rate = min(here["schema"]["enum"], key=lambda it: abs(it - 6 - number))
            await visitor.answer(rate=str(rate))
        await eventually(lambda: visitor.now["score"], wait_s=WAIT_S)
        visitor.seat.close()
        visitor.seat.simulation.close()

    await asyncio.gather(*(play(number, name) for number, name in enumerate(names)))
    board = leaderboard(tmp_path)
    assert sorted(board["name"]) == names
    assert board["turns"].tolist() == [16] * 3
    assert board["against_rule_pct"].is_monotonic_increasing
    assert board.set_index("name")["advice_asked"]["Bob"] == 1


async def test_without_moves_and_a_judge_a_person_names_a_quarter_point(path: Path) -> None:
    async with seated(table_of(moves_bp=None, validator="none", tape=path)) as visitor:
        await visitor.seat.take_turn(**RAISE, rate=11.5)
        assert visitor.seat.simulation.state.interest_rate == 11.5
        with pytest.raises(ConfigError, match=r"rate is 11\.6; it must be one of 9\.5, 9\.75"):
            await visitor.seat.take_turn(**RAISE, rate=11.6)
        visitor.seat.stop()
        await visitor.rest()
        visitor.seat.simulation.close()
    assert replay(path).state.interest_rate == 11.5


async def test_a_person_may_judge_what_others_propose() -> None:
    players = {"validator": "person", "*": "rule"}
    async with seated(table_of(players=players, validator="asked")) as visitor:
        assert visitor.now["asks"] == []  # it is not known before the turn
        await visitor.seat.take_turn(is_valid=False, reasoning="It is too much.", confidence=0.5)
        assert visitor.seat.simulation.turns[1].became["Aland", "agent"]["accepted"] is False
        assert "Aland: is not valid; rate 9.67%" in visitor.seat.static_text()


# --- answers --------------------------------------------------------------------------------------


async def test_what_is_wrong_is_said_and_nothing_is_played() -> None:
    async with seated(table_of()) as visitor:
        await visitor.answer(rate="30")
        assert visitor.ask()["faults"]["rate"].startswith("is 30; it must be one of 5.17")
        assert visitor.seat.simulation.turn_number == 0
        assert visitor.ask()["draft"] == "1 Aland agent"


async def test_a_turn_that_fails_is_said_raised_and_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(_: int, **how: Any) -> Any:
        raise EconomyError("off its range")

    async with seated(table_of()) as visitor:
        with monkeypatch.context() as patch:
            patch.setattr("llmsim_lab.simulation.world.shocks_at", broken)
            with pytest.raises(EconomyError, match="off its range"):
                await visitor.seat.take_turn(**RAISE, rate=11.67)
        assert "off its range" in visitor.browser.latest("live")["fault"]
        await visitor.answer(rate="11.67")
        assert visitor.seat.simulation.turn_number == 1


async def test_stop_leaves_the_run_at_its_last_whole_turn_and_the_form_open() -> None:
    async with seated(table_of()) as visitor:
        visitor.browser.send("play", run=1, turns=1)
        await visitor.seat.asked()
        visitor.browser.send("stop")
        await eventually(lambda: not visitor.seat._under_way, wait_s=WAIT_S)
        assert visitor.seat.waiting_for == ()
        assert visitor.seat.simulation.turn_number == 0
        await visitor.answer()
        assert visitor.seat.simulation.turn_number == 1


async def test_waiting_for_a_question_ends_with_the_turn_that_was_stopped() -> None:
    async with seated(table_of("Aland", "Borduria")) as visitor:
        visitor.browser.send("play", run=1, turns=1)
        await visitor.seat.asked("Aland")
        visitor.seat.answer(**RAISE, rate=11.67, agent="Aland")
        waiting = asyncio.ensure_future(visitor.seat.asked("Aland"))
        await asyncio.sleep(0.05)
        visitor.browser.send("stop")
        with pytest.raises(ConfigError, match="the turn ended and Aland was not asked"):
            await waiting


async def test_a_recorded_run_is_looked_at_without_being_asked(path: Path) -> None:
    async with seated(table_of(start_at=None, tape=path)) as visitor:
        await visitor.seat.take_turn(**RAISE, rate=5)
        visitor.seat.simulation.close()
    async with seated(load(path)) as visitor:
        assert visitor.seat.static_text().splitlines() == [
            "Seat of Aland: Turn 1",
            "turn 1: Aland: Raise the policy rate; rate 5.00%",
        ]
    async with seated(replay(path, turns=0)) as visitor:
        visitor.browser.send("play", run=1, turns=1)
        await eventually(lambda: visitor.seat.simulation.turn_number == 1)


# --- several people -------------------------------------------------------------------------------


async def test_all_may_answer_at_once_by_code_and_each_at_a_seat_of_their_own() -> None:
    run = table_of("Aland", "Borduria")
    async with seated(run) as both, seated(run, agent="Borduria") as other:
        each = both.seat.take_turn
        await asyncio.gather(
            each(**RAISE, rate=10.67, agent="Aland"), each(**RAISE, rate=11.17, agent="Borduria")
        )
        assert run.turn_number == 1
        await both.answer("Aland", rate=str(both.fields("Aland")["rate"]["value"]))
        assert [it["seat"] for it in other.now["asks"]] == ["Borduria"]
        await other.answer()
        assert run.turn_number == 2
        with pytest.raises(ConfigError, match="no seat 'Aland'; there are Borduria"):
            other.seat.answer(**RAISE, rate=10.67, agent="Aland")


@pytest.mark.parametrize("in_thread", [True, False])
async def test_a_turn_started_elsewhere_asks_and_shows_at_the_seat(in_thread: bool) -> None:
    run = table_of()
    async with seated(run) as visitor:
        begun: Any = asyncio.to_thread(run.run, 1) if in_thread else TurnStepper(run).play()
        task = asyncio.ensure_future(begun)
        await visitor.seat.asked()
        assert visitor.now["waiting"] == ["Aland"]
        visitor.browser.send("answer", id=visitor.ask()["id"], values={"rate": "11.67"})
        await task
        await eventually(lambda: visitor.ask()["turn"] == 2)


# --- other worlds ---------------------------------------------------------------------------------


class Wide(Reply):
    count: int = Field(ge=1, le=9)
    share: float = Field(gt=0, lt=1)
    rate: float
    sure: bool
    side: Literal["left", "right"]
    words: str


class Told(State):
    told: str = ""


class Wonders(Run[Told]):
    """Asks for everything that can be asked for."""

    async def turn(self, state: Told, ask: Ask) -> Told:
        said = await ask("Bob", Wide, "Well?", limits={"rate": [1, 1.25, 1.5]})
        return state.replace(told=said.model_dump_json())


async def test_every_type_of_field_can_be_filled_in_and_sent() -> None:
    typed = {"reasoning": "Well.", "confidence": "0.8", "count": "3", "share": "0.5"}
    typed |= {"rate": "1.25", "sure": "false", "side": "left", "words": "Hm."}
    async with seated(Wonders(players={"Bob": Person()}, turns=1)) as visitor:
        assert {field["value"] for field in visitor.fields().values()} == {None}
        await visitor.answer(**typed)
        said = Wide.model_validate_json(visitor.seat.simulation.state.told)
        assert (said.count, said.share, said.rate, said.sure) == (3, 0.5, 1.25, False)
        assert (said.side, said.words) == ("left", "Hm.")


def pot(**players: Any) -> PublicGoods:
    return PublicGoods(players={"*": "random", **players}, turns=2)


async def test_in_another_world_a_person_sees_what_a_model_sees_and_no_more() -> None:
    async with seated(pot(Bob=Person())) as visitor:
        assert "You are Bob and have 20" in visitor.ask()["text"]
        assert "columns" not in visitor.now
        amount = visitor.fields()["amount"]
        assert amount["help"] == "coins for the pot; a whole number from 0 to 20"
        await visitor.answer(reasoning="I like them.", confidence="0.8", amount="7")
        assert visitor.seat.simulation.state.given["Bob"] == 7
        with pytest.raises(ConfigError, match="amount is 21; it must be a whole number from 0"):
            await visitor.seat.take_turn(amount=21, **SAID)
        assert visitor.seat.waiting_for == ("Bob",)


class Telling(PublicGoods):
    def told(self, state: Any, player: str) -> dict[str, Any]:
        return {"you gave": state.given.get(player, 0)}


async def test_a_player_is_told_of_the_state_what_the_world_says() -> None:
    async with seated(Telling(players={"*": "random", "Bob": Person()}, turns=2)) as visitor:
        assert visitor.now["told"] == {}  # nothing came about yet
        await visitor.answer(amount="7")
        assert visitor.now["told"] == {"Bob": {"you gave": 7}}


async def test_one_seat_serves_all_that_a_person_answers_for() -> None:
    async with seated(PublicGoods(players={"*": "person", "Ann": "random"}, turns=1)) as visitor:
        for name in ("Bob", "Cy", "Di"):
            assert visitor.now["people"] == ["Bob", "Cy", "Di"]
            await visitor.answer(name, amount="1")
        assert visitor.seat.simulation.state.given["Di"] == 1
        assert "turn 1: Di: amount 1" in visitor.seat.static_text()


# --- who may sit, untrusted text, the saved notebook ----------------------------------------------


async def test_a_seat_that_is_closed_stops_the_turn_that_was_started_there() -> None:
    seat = HumanSeat(table_of())
    playing = asyncio.ensure_future(seat.play())
    await seat.asked()
    seat.close()
    await asyncio.wait_for(playing, 10)
    assert seat.simulation.turn_number == 0


def test_a_seat_without_a_person_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r'PublicGoods\(players={"Bob": Person\(\)}\)'):
        HumanSeat(pot())
    with pytest.raises(ConfigError, match="no person 'Syldavia'; there are Aland"):
        HumanSeat(table_of(), agent="Syldavia")


async def test_what_people_write_is_shown_and_obeyed_by_nothing() -> None:
    async with seated(table_of()) as visitor:
        said = {"action": "Raise the rate " + HOSTILE, "reasoning": HOSTILE, "confidence": 0.5}
        await visitor.seat.take_turn(**said, rate=9.67)
        html, text = str(visitor.seat.static_html()), visitor.seat.static_text()
        for live in ("<script", "</style", "\x1b", "\u202e"):
            assert live not in html
        assert "&lt;script&gt;" in html
        assert not {"\x1b", "\u202e"} & {*text}
