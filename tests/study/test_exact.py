"""The exact law of a small simulation, against what follows by hand."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import math
import random
import time
from pathlib import Path
from typing import Any, Literal

import pytest

from llmsim_lab import (
    Ask,
    LLMClient,
    LLMConfig,
    Person,
    Question,
    Reply,
    Run,
    ScriptedBackend,
    State,
)
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import OpenQuestion
from llmsim_lab.run import load
from llmsim_lab.run.people import people_of
from llmsim_lab.study import Exact, exact
from llmsim_lab.types import ChatReply, ChatRequest

WORDS = {"C": "cooperate", "D": "defect"}


class Played(State):
    past: str = ""
    """Pairs of letters, oldest first."""

    def columns(self) -> dict[str, object]:
        return {"cooperation": self.past.count("C"), "past": self.past}


class Move(Reply):
    move: Literal["C", "D"]


class Dilemma(Run[Played]):
    """Two players who see what was played."""

    other: str = "opponent"

    def seen(self, name: str) -> str:
        pairs = [self.state.past[at : at + 2] for at in range(0, len(self.state.past), 2)]
        own_first = [pair if name == "Ann" else pair[::-1] for pair in pairs]
        return f"You play with an {self.other}. Past: {' '.join(own_first)}"

    async def turn(self, state: Played, ask: Ask) -> Played:
        limits = {"move": WORDS}
        moves = await ask.each(["Ann", "Bob"], Move, self.seen, limits=limits, decide="sample")
        return Played(past=state.past + moves["Ann"].move + moves["Bob"].move)

    def rule(self, question: Question) -> Move:
        return Move(move="C")


def probability(past: str, other: str) -> float:
    """How likely the model cooperates: more with a partner, and after the other did."""
    share = 0.6 if other == "partner" else 0.4
    return share + {"C": 0.2, "D": -0.15, "": 0.0}[past[-1:]]


class Model:
    """Answers with the probabilities, and counts its calls; fails at one of them."""

    def __init__(self) -> None:
        self.calls = 0
        self.fails_at = 0

    def __call__(self, request: ChatRequest) -> ChatReply:
        self.calls += 1
        if self.calls == self.fails_at:
            raise RuntimeError("the machine went down")
        text = request.prompt
        other = "partner" if "partner" in text else "opponent"
        past = text.split("Past: ")[1].split("\n")[0]
        share = probability(past, other)
        of_a = share if "A: cooperate" in text else 1 - share
        return ChatReply(text="A", top_logprobs=(("A", math.log(of_a)), ("B", math.log(1 - of_a))))


def client_of(model: Model) -> LLMClient:
    return LLMClient(LLMConfig(model="scripted"), ScriptedBackend(model))


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def client(model: Model) -> LLMClient:
    return client_of(model)


def by_hand(turns: int, other: str) -> dict[str, float]:
    """The probability of each history, by its letters."""
    shares = {}
    for letters in itertools.product("CD", repeat=2 * turns):
        past = "".join(letters)
        share = 1.0
        for at in range(0, len(past), 2):
            before = past[:at]
            for move, seen in ((past[at], before[-1:]), (past[at + 1], before[-2:-1])):
                of_c = probability(seen, other)
                share *= of_c if move == "C" else 1 - of_c
        shares[past] = share
    return shares


def test_each_history_has_the_product_of_its_probabilities(client: LLMClient, model: Model) -> None:
    law = exact(Dilemma(llm_client=client), turns=3, outcome="past")
    assert law.distribution().to_dict() == pytest.approx(by_hand(3, "opponent"))
    # Both players are asked alike where the same was played: 1 + 4 + 16 texts, in two orders.
    assert (law.questions, model.calls) == (21, 42)
    counts = law.distribution("cooperation")
    assert list(counts.index) == [0, 1, 2, 3, 4, 5, 6]
    assert law.mean("cooperation") == pytest.approx(sum(counts * counts.index))
    after_one = sum(share * past.count("C") for past, share in by_hand(1, "opponent").items())
    assert law.mean("cooperation", turn=1) == pytest.approx(after_one)
    assert law.distribution("cooperation", turn=0).to_dict() == {0: 1}
    assert (law.lost, law.mass, law.distribution().name) == (0, pytest.approx(1), "probability")
    for turn in (-1, 4):
        with pytest.raises(ConfigError, match=f"turn={turn} must be a whole number, 0 to 3"):
            law.distribution(turn=turn)
    with pytest.raises(ConfigError, match="'coins'"):
        law.distribution("coins")
    with pytest.raises(ConfigError, match="outcome past is 'CCCCCC' in histories"):
        law.mean()


def test_a_law_is_a_frame_and_a_figure_by_turn(client: LLMClient) -> None:
    law = exact(Dilemma(llm_client=client), turns=2, outcome="cooperation")
    frame = law.to_frame()
    assert list(frame.columns) == ["turn", "cooperation", "probability"]
    assert frame["turn"].tolist() == [0] + [1] * 3 + [2] * 5
    assert frame["probability"].tolist()[4:] == pytest.approx(law.distribution().tolist())
    figure: Any = law.figure
    [axes] = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("turn", "cooperation")
    assert axes.get_title() == "Each history of Dilemma with its probability"
    [dots] = axes.collections
    assert dots.get_offsets().tolist() == frame[["turn", "cooperation"]].to_numpy().tolist()
    assert dots.get_sizes() / frame["probability"].to_numpy() == pytest.approx([400] * 9)
    [line] = axes.lines
    assert list(line.get_xdata()) == [0, 1, 2]
    assert list(line.get_ydata()) == pytest.approx([law.mean(turn=turn) for turn in range(3)])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["mean"]
    assert all(float(tick).is_integer() for tick in axes.get_xticks())
    assert repr(law) == "<Exact law of Dilemma after 2 turns: 5 questions, 0 lost, mass 1.00>"
    assert repr(Exact(Dilemma(), turns=1)) == "<Exact law of Dilemma, 1 turn, not asked>"


def test_a_law_begins_where_its_run_is(client: LLMClient) -> None:
    run = Dilemma(players="rule")
    run.run(2, progress=False)
    law = exact(run, turns=1, outcome="past")
    assert (law.distribution().to_dict(), law.run_of.turn_number) == ({"CCCCCC": 1}, 2)
    assert law.to_frame()["turn"].tolist() == [2, 3]
    assert (law.questions, law.mass) == (0, 1)
    with pytest.raises(ConfigError, match="turn=1 must be a whole number, 2 to 3"):
        law.mean(turn=1)
    short = exact(Dilemma(llm_client=client, turns=1), outcome="past")
    assert short.distribution().to_dict() == pytest.approx(by_hand(1, "opponent"))


def test_numbers_stand_in_order_and_texts_after_them() -> None:
    def mixed(run: Dilemma) -> object:
        return {"CC": 10, "CD": 9.5, "DC": "none", "DD": "a few"}[run.state.past]

    law = exact(Dilemma(players="random"), turns=1, outcome=mixed)
    assert law.distribution().index.tolist() == [9.5, 10, "a few", "none"]
    with pytest.raises(ConfigError, match="mixed is 'a few' in histories"):
        law.mean()


def test_only_where_a_value_is_drawn_there_are_several_ways(client: LLMClient) -> None:
    class Likeliest(Dilemma):
        async def turn(self, state: Played, ask: Ask) -> Played:
            limits = {"move": WORDS}
            ann = await ask("Ann", Move, "Past: D", limits=limits, decide="mode")
            only = {"move": {"D": "defect"}}
            bob = await ask("Bob", Move, "Past: D", limits=only, decide="sample")
            return Played(past=ann.move + bob.move)

    law = exact(Likeliest(llm_client=client), turns=1, outcome="past")
    assert (law.distribution().to_dict(), law.questions) == ({"DD": 1}, 1)
    # One option is no question, so that its answer has no share of a model's answers either.
    other = exact(Likeliest(llm_client=client, players={"Ann": "rule"}), turns=1, outcome="past")
    assert (other.distribution().to_dict(), other.questions, other.mass) == ({"CD": 1}, 0, 1)


@pytest.mark.parametrize(
    ("prune", "ways", "lost"),
    [
        (0.1, ["CC", "CD", "DC", "DD"], 0),
        (0.25, ["CC", "CD", "DC", "DD"], 0),
        (0.26, ["CC", "DC"], 0.5),  # where Ann's D begins there is as much as .5 left
        (0.51, ["CC"], 0.75),
        (1, ["CC"], 0.75),  # the likeliest way is always followed
    ],
)
def test_ways_below_the_bound_are_lost_and_those_at_it_followed(
    prune: float, ways: list[str], lost: float
) -> None:
    law = exact(Dilemma(players="random"), turns=1, outcome="past", prune=prune)
    assert (law.distribution().index.tolist(), law.lost) == (ways, lost)
    # Over two turns the bound is one of whole histories.
    two = exact(Dilemma(players="random"), turns=2, outcome="past", prune=prune / 4)
    assert two.lost == pytest.approx(1 - two.distribution().sum())
    assert len(two.distribution()) == {0: 16, 0.5: 8, 0.75: 4}[lost]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"turns": 0}, "turns=0 must be"),
        ({"prune": -0.1}, r"prune=-0.1 must be"),
        ({"prune": 1.1}, r"prune=1.1 must be"),
        ({"most_questions": 0}, "most_questions=0 must be"),
    ],
)
def test_a_law_takes_turns_a_bound_and_questions(settings: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Exact(Dilemma(players="random"), **settings)
    assert exact(Dilemma(players="random"), turns=1, prune=1, most_questions=1).questions == 0


def test_the_effect_of_a_word_is_a_difference_of_two_laws(client: LLMClient) -> None:
    laws = [
        exact(Dilemma(llm_client=client, other=other), turns=2, outcome="cooperation")
        for other in ("opponent", "partner")
    ]
    means = [
        sum(share * past.count("C") for past, share in by_hand(2, other).items())
        for other in ("opponent", "partner")
    ]
    assert laws[1].effect(laws[0]) == pytest.approx(means[1] - means[0])
    assert laws[1].effect(laws[0], turn=1) == pytest.approx(0.4)
    shorter = exact(Dilemma(llm_client=client, turns=1), outcome="cooperation")
    assert laws[1].effect(shorter, turn=1) == pytest.approx(0.4)
    with pytest.raises(ConfigError, match=r"ends with turn 2, the other with turn 1; .*turn=1"):
        laws[1].effect(shorter)
    other = exact(Dilemma(llm_client=client), turns=2, outcome=lambda run: 1.0)
    with pytest.raises(ConfigError, match="outcome is cooperation, the other's <lambda>"):
        laws[1].effect(other)


def test_chance_is_enumerated_and_rules_answer_as_they_do(client: LLMClient) -> None:
    law = exact(Dilemma(players={"Ann": "random", "Bob": "rule"}), turns=2, outcome="past")
    assert law.distribution().to_dict() == dict.fromkeys(("CCCC", "CCDC", "DCCC", "DCDC"), 0.25)
    beside_a_model = Dilemma(llm_client=client, players={"Ann": "random"})
    shares = exact(beside_a_model, turns=1, outcome="past").distribution()
    assert shares.to_dict() == pytest.approx({"CC": 0.2, "CD": 0.3, "DC": 0.2, "DD": 0.3})


class Level(State):
    level: int = 0


class Vote(Reply):
    up: bool


class Walk(Run[Level]):
    """Goes up or down by a vote; the prompt knows the level alone, or the way too."""

    tells: bool = False

    async def turn(self, state: Level, ask: Ask) -> Level:
        way = [turn.state.level for turn in self.turns] if self.tells else state.level
        vote = await ask("Ann", Vote, f"Past: {way}", decide="sample")
        return Level(level=state.level + (1 if vote.up else -1))

    def done(self, state: Level) -> bool:
        return state.level == 2


class Even(Model):
    def __call__(self, request: ChatRequest) -> ChatReply:
        self.calls += 1
        return ChatReply(text="A", top_logprobs=(("A", math.log(0.5)), ("B", math.log(0.5))))


def test_histories_that_come_to_the_same_are_asked_once_unless_something_reads_the_past() -> None:
    law = exact(Walk(llm_client=client_of(Even())), turns=4)
    assert law.questions == 5  # at 0, 1, -1, -2 and -3; 2 is the end
    assert law.distribution().to_dict() == {-4: 1 / 16, -2: 4 / 16, 0: 5 / 16, 2: 6 / 16}
    told = exact(Walk(llm_client=client_of(Even()), tells=True), turns=4)
    assert told.questions == 1 + 2 + 3 + 6
    assert told.distribution().equals(law.distribution())
    # After four turns: 2 after two turns or four, 0, -2 and -4; of all ways those from 2 on end.
    plans = [Exact(Walk(players="random", tells=tells), turns=4).plan() for tells in (False, True)]
    assert [plan.histories for plan in plans] == [5, 13]


def test_a_past_that_is_read_late_keeps_all_histories_apart_from_the_start() -> None:
    class Late(Walk):
        async def turn(self, state: Level, ask: Ask) -> Level:
            first = self.turns[1].state.level if ask.turn == 3 else 0
            after = await super().turn(state, ask)
            return Level(level=after.level + 10 * first)

        def done(self, state: Level) -> bool:
            return False

    law = exact(Late(players="random"), turns=3)
    # The first step tenfold, and three steps: 1 and two more, or -1 and two more.
    expected = {first * 10 + first + more: 0.125 for first in (-1, 1) for more in (-2, 2)}
    assert law.distribution().to_dict() == expected | {-11: 0.25, 11: 0.25}


class Twice(Dilemma):
    """Asks Ann the same twice."""

    async def turn(self, state: Played, ask: Ask) -> Played:
        limits = {"move": WORDS}
        moves = [await ask("Ann", Move, "Past: D", limits=limits, decide="sample")]
        moves.append(await ask("Ann", Move, "Past: D", limits=limits, decide="sample"))
        return Played(past=state.past + "".join(reply.move for reply in moves))


def test_who_is_asked_the_same_twice_answers_twice(client: LLMClient) -> None:
    law = exact(Twice(llm_client=client), turns=1, outcome="past")
    assert law.questions == 1
    shares = {"CC": 0.0625, "CD": 0.1875, "DC": 0.1875, "DD": 0.5625}  # .25 after a D
    assert law.distribution().to_dict() == pytest.approx(shares)
    moves = iter("CD")
    game = Twice(players={"Ann": lambda question: Move(move=next(moves))})
    game.run(1, progress=False)
    assert law.loglik(game) == pytest.approx(math.log(0.1875))


def test_an_outcome_may_be_a_function_of_the_whole_run() -> None:
    def peak(run: Walk) -> int:
        return max(turn.state.level for turn in run.turns)

    law = exact(Walk(llm_client=client_of(Even())), turns=2, outcome=peak)
    assert law.distribution().to_dict() == {0: 0.5, 1: 0.25, 2: 0.25}
    assert law.distribution().index.name == "peak"


def test_a_law_that_was_stopped_goes_on_where_it_was(
    client: LLMClient, model: Model, tmp_path: Path
) -> None:
    tape = tmp_path / "law.tape"
    model.fails_at = 23  # within the third turn, of 42 calls
    with pytest.raises(RuntimeError, match="went down"):
        exact(Dilemma(llm_client=client), turns=3, tape=tape)
    model.fails_at, model.calls = 0, 0
    law = exact(Dilemma(llm_client=client), turns=3, tape=tape, outcome="past")
    assert 19 <= model.calls <= 20
    assert law.distribution().to_dict() == pytest.approx(by_hand(3, "opponent"))
    model.calls = 0
    again = exact(Dilemma(llm_client=client), turns=3, tape=tape)
    assert (model.calls, again.questions) == (0, 21)
    with pytest.raises(ConfigError, match="give this law a tape of its own"):
        exact(Dilemma(llm_client=client, other="partner"), turns=3, tape=tape)


def test_a_plan_counts_the_questions_and_asks_none(client: LLMClient, model: Model) -> None:
    law = Exact(Dilemma(llm_client=client), turns=3)
    assert str(law.plan()) == "at most 21 questions, 42 calls, 64 histories"
    assert model.calls == 0
    assert exact(Dilemma(llm_client=client), turns=3, most_questions=21).questions == 21
    message = "more than most_questions=20 questions would be asked; .* most_questions=200"
    with pytest.raises(ConfigError, match=message):
        exact(Dilemma(llm_client=client), turns=3, most_questions=20)


def test_the_likelihood_of_a_recorded_game_is_the_product_of_its_answers(
    client: LLMClient, tmp_path: Path
) -> None:
    law = exact(Dilemma(llm_client=client), turns=2, outcome="past")
    moves = iter("CDDD")

    def answer(question: OpenQuestion) -> dict[str, object]:
        return {"move": next(moves), "reasoning": "so", "confidence": 1}

    people = {name: Person(ask=answer) for name in ("Ann", "Bob")}
    tape = tmp_path / "game.tape"
    game = Dilemma(players=people, tape=tape)
    game.run(2, progress=False)
    game.close()
    played = game.state.past
    assert law.loglik(tape) == pytest.approx(math.log(by_hand(2, "opponent")[played]))
    longer = Dilemma(players="random")
    longer.run(3, progress=False)
    expected = by_hand(3, "opponent")[longer.state.past]
    assert law.loglik(longer) == pytest.approx(math.log(expected))
    assert law.questions == 5  # as before: what the game met besides is not the law's
    other = Dilemma(players="random", other="partner")
    other.run(1, progress=False)
    with pytest.raises(ConfigError, match="is not a game of"):
        law.loglik(other)
    elsewhere = Dilemma(players="random", state=Played(past="CC"))
    elsewhere.run(1, progress=False)
    with pytest.raises(ConfigError, match=r"the game starts from .*CC.*, the law from"):
        law.loglik(elsewhere)


def test_a_law_on_a_tape_needs_no_model(client: LLMClient, tmp_path: Path) -> None:
    tape = tmp_path / "law.tape"
    exact(Dilemma(llm_client=client), turns=2, tape=tape)
    packed = tmp_path / "law.tape.gz"
    packed.write_bytes(gzip.compress(tape.read_bytes()))
    # As it stands on tapes, where another key would find no answer.
    assert {len(key) for key in load(tape).state.probabilities} == {24}
    law = exact(Dilemma(), turns=2, tape=packed, outcome="past")
    assert law.distribution().to_dict() == pytest.approx(by_hand(2, "opponent"))
    game = Dilemma(players="random")
    game.run(2, progress=False)
    expected = by_hand(2, "opponent")[game.state.past]
    assert law.loglik(game) == pytest.approx(math.log(expected))


async def test_the_likelihood_of_a_class_leaves_out_what_was_filled_in(client: LLMClient) -> None:
    law = await Exact(Dilemma(llm_client=client), turns=1).arun()
    game = Dilemma(players=dict.fromkeys(("Ann", "Bob"), "person, else rule"))
    ann, bob = people_of(game)
    task = asyncio.create_task(game.step())
    ann.answer(await ann.asked(), {"move": "D"})
    bob.give_up(await bob.asked(), "Bob has left")
    await task
    assert game.state.past == "DC"
    assert await law.aloglik(game) == pytest.approx(math.log(0.6))  # Ann's D alone


class FreeText(Dilemma):
    async def turn(self, state: Played, ask: Ask) -> Played:
        await ask("Ann", Move, "Past: ")
        return state


class ByTheClock(Dilemma):
    def seen(self, name: str) -> str:
        return f"Past: {time.perf_counter_ns()}"


class ByChance(Dilemma):
    async def turn(self, state: Played, ask: Ask) -> Played:
        after = await super().turn(state, ask)
        return Played(past=f"{after.past}{random.random()}")


class Quoting(Dilemma):
    async def turn(self, state: Played, ask: Ask) -> Played:
        said = await ask.each(["Ann", "Bob"], Move, self.seen, decide="sample")
        return Played(past=f"{said['Ann'].reasoning} {said['Bob'].reasoning}")


@pytest.mark.parametrize("players", [{}, {"Ann": "random"}])
def test_a_reasoning_that_a_state_quotes_is_that_of_a_run(
    players: dict[str, str], client: LLMClient, model: Model
) -> None:
    model.__class__ = Even
    run = Quoting(llm_client=client, players=players)
    run.run(1, progress=False)
    law = exact(Quoting(llm_client=client, players=players), turns=1, outcome="past")
    assert run.state.past in law.distribution().index


class Impatient(Dilemma):
    async def turn(self, state: Played, ask: Ask) -> Played:
        asking = asyncio.create_task(super().turn(state, ask))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        return state


class FromOutside(Dilemma):
    async def turn(self, state: Played, ask: Ask) -> Played:
        async def rain() -> int:
            return 1

        await ask.outside("rain", "here", rain)
        return state


@pytest.mark.parametrize(
    ("world", "message"),
    [
        (FreeText, r"Ann of turn 1 is asked for an answer.*decide='sample'"),
        (ByTheClock, r"turn 1 of ByTheClock asked or did something else when it was played again"),
        (ByChance, r"turn 1 of ByChance asked or did something else .* draw from ask.rng"),
        (Impatient, r"turn 1 gives up waiting for Ann, and how long an answer takes has no"),
        (FromOutside, r"ask.outside\('rain', ...\) brings something from outside"),
    ],
)
def test_what_has_no_known_probability_is_refused(
    world: type[Dilemma], message: str, client: LLMClient, model: Model
) -> None:
    model.__class__ = Even
    with pytest.raises(ConfigError, match=message):
        exact(world(llm_client=client), turns=2)


class Patched(Dilemma):
    """Names a stand-in for what fails."""

    async def turn(self, state: Played, ask: Ask) -> Played:
        await ask("Ann", Move, "Past: ", decide="sample", fallback={"move": "C"})
        return state


def test_a_stand_in_hides_no_failure(client: LLMClient, model: Model) -> None:
    model.fails_at = 1
    world = Patched(llm_client=client, on_error="fallback")
    with pytest.raises(RuntimeError, match="went down"):
        exact(world, turns=1)


def test_people_functions_and_models_without_probabilities_are_refused(client: LLMClient) -> None:
    with pytest.raises(ConfigError, match=r"players\['Ann'\].*no probabilities"):
        exact(Dilemma(llm_client=client, players={"Ann": "person"}), turns=1)
    wordy = LLMClient(LLMConfig(model="scripted"), ScriptedBackend("A"))
    with pytest.raises(ConfigError, match="scripted tells no probabilities of tokens"):
        exact(Dilemma(llm_client=wordy), turns=1)


@pytest.mark.parametrize(
    "first_states",
    [
        lambda turns: [turn.state.past for turn in reversed(turns)][-1:],
        lambda turns: [turn.state.past for turn in turns.copy()][1:2],
        lambda turns: [turn.state.past for turn in turns.__add__([])][1:2],
    ],
)
def test_a_turn_that_reads_the_past_in_any_way_keeps_histories_apart(first_states: Any) -> None:
    class Forgetful(Dilemma):
        async def turn(self, state: Played, ask: Ask) -> Played:
            first_states(self.turns)
            return Played(past=(await super().turn(Played(), ask)).past)

    plan = Exact(Forgetful(players="random"), turns=2, outcome="past").plan()
    assert plan.histories == 16  # and not 4, of the last turn alone


def test_a_whole_law_on_a_tape_is_not_mixed_with_another_models(
    model: Model, client: LLMClient, tmp_path: Path
) -> None:
    tape = tmp_path / "law.tape"
    exact(Dilemma(llm_client=client), turns=1, tape=tape)
    calls = model.calls
    other = LLMClient(LLMConfig(model="other"), ScriptedBackend(model))
    with pytest.raises(ConfigError, match="no answer to a question of turn 1"):
        exact(Dilemma(llm_client=other), turns=1, tape=tape)
    with pytest.raises(ConfigError, match="another start"):
        exact(Dilemma(llm_client=client, state=Played(past="CC")), turns=1, tape=tape)
    assert model.calls == calls


def test_an_outcome_may_be_a_tuple_and_is_named_by_its_function() -> None:
    def what_was_played_by_ann_and_by_bob_in_the_end(run: Dilemma) -> tuple[str, str]:
        return run.state.past[0], run.state.past[1]

    outcome = what_was_played_by_ann_and_by_bob_in_the_end
    index = exact(Dilemma(players="rule"), turns=1, outcome=outcome).distribution().index
    assert (index.tolist(), index.nlevels) == ([("C", "C")], 1)
    assert index.name == "what_was_played_by_ann_and_by_bob_in_th\N{HORIZONTAL ELLIPSIS}"
    law = exact(Dilemma(players="rule"), turns=1, outcome=lambda run: [1])
    with pytest.raises(ConfigError, match=r"outcome <lambda> is \[1\]; a law counts numbers"):
        law.distribution()
    with pytest.raises(ConfigError, match=r"histories that were kept apart: give it when the law"):
        exact(Dilemma(players="rule"), turns=2).mean(lambda run: 1.0)
    # The first column of numbers, and as many turns as the world has.
    assert (Exact(Dilemma(turns=7)).outcome, Exact(Dilemma(turns=7)).turns) == ("cooperation", 7)


def test_an_outcome_without_a_value_has_no_mean() -> None:
    law = exact(Dilemma(players="random"), turns=1, outcome=lambda run: float("nan"))
    assert law.distribution().tolist() == [1.0]
    with pytest.raises(ConfigError, match="is None in histories of the probability 1"):
        law.mean()
    with pytest.raises(ConfigError, match="neither a column nor a function"):
        Exact(Dilemma(players="random"), turns=1, outcome=3)  # type: ignore[arg-type]
