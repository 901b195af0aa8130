"""What a study still takes: turns, calls, tokens and time, and what the figures are made from."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from study_kit import Basin, Water, kind, study_of

from llmsim_lab import Ask, LLMClient, LLMConfig, Person, ScriptedBackend, Tape
from llmsim_lab.run.chance import chance_reply
from llmsim_lab.study import Study
from llmsim_lab.study.cost import Costs, Count, any_client, cost_of_call
from llmsim_lab.study.estimates.power import Detectable
from llmsim_lab.types import Attempt, ChatReply, ChatRequest

NAN = math.nan


@pytest.mark.parametrize(
    ("row", "asked_s", "costs"),
    [
        ({"calls": 2, "tokens": 30, "seconds": 5.0}, 3.0, (2, 30, 3.0)),  # it waited for others
        ({"calls": 2, "tokens": 30, "seconds": 5.0}, 9.0, (2, 30, 5.0)),  # asked at once
        ({"calls": 0, "tokens": 0, "seconds": 5.0}, 0.0, (0, 0, 5.0)),  # of rules alone
        ({"calls": None, "tokens": None, "seconds": None}, 0.0, (0, 0, 0)),
    ],
)
def test_a_turn_takes_no_longer_than_itself_and_than_its_requests(
    row: dict[str, Any], asked_s: float, costs: tuple[float, ...]
) -> None:
    assert Costs.of_turn(row, asked_s) == Costs(*costs)


REQUEST = ChatRequest(model="m", messages=())


@pytest.mark.parametrize(
    ("reply", "first", "costs"),
    [
        (ChatReply(text="", prompt_tokens=90, reply_tokens=10), None, (1, 100)),
        (ChatReply(text="", prompt_tokens=90, reply_tokens=10), 7, (0, 100)),
        (ChatReply(text="", prompt_tokens=90), None, (1, 90)),
        (ChatReply(text="", reply_tokens=10), None, (1, 10)),
        (None, None, (1, 0)),
    ],
)
def test_a_second_attempt_is_no_further_call_and_takes_tokens_and_time(
    reply: ChatReply | None, first: int | None, costs: tuple[int, int]
) -> None:
    attempt = Attempt(request=REQUEST, reply=reply, seconds=0.5, first=first)
    assert Costs.of_attempt(attempt) == Costs(*costs, 0.5)


def test_costs_are_added_up_and_a_call_takes_their_mean() -> None:
    several = [Costs(3, 300, 6.0), Costs(1, 100, 0.0)]
    assert Costs.total(several) == Costs(4, 400, 6.0)
    assert cost_of_call(several) == Costs(1, 100, 1.5)
    assert Costs(3, 300, 6.0).times(0.5) == Costs(1.5, 150, 3.0)
    unknown = Costs.total([*several, Costs(calls=2)])
    assert unknown.calls == 6
    assert math.isnan(unknown.tokens)
    # Of turns of rules alone nothing is known but that a call is one.
    for none in ([], [Costs(0, 0, 5.0)]):
        call = cost_of_call(none)
        assert (call.calls, math.isnan(call.tokens), math.isnan(call.seconds)) == (1, True, True)


@pytest.mark.parametrize(
    ("arms", "turns", "calls", "is_enough"),
    [
        (1, 0, 0, False),
        (1, 9, 999, False),
        (1, 10, 0, True),
        (1, 1, 1000, True),
        (10, 9, 999, False),
        (10, 10, 0, True),
        # Of twenty arms each is played half as long.
        (20, 4, 499, False),
        (20, 5, 0, True),
        (20, 1, 500, True),
    ],
)
def test_chance_plays_ten_turns_or_a_thousand_calls_of_an_arm_and_less_of_many_arms(
    arms: int, turns: int, calls: int, is_enough: bool
) -> None:
    count = Count(arms)
    assert (count.turns, count.calls, count.chooses, count.attempts) == (0, 0, False, [])
    assert not count.each
    count.turns = turns
    count.calls = calls
    assert count.is_enough is is_enough
    assert count.each == (calls / turns if turns else 0)


async def test_a_turn_that_chance_plays_counts_a_models_calls_and_no_persons() -> None:
    count = Count()
    run = Water(llm_client=any_client(), players={"Ann": Person(ask=lambda question: None)})
    await count.play(run)
    assert (count.turns, count.calls, len(count.attempts)) == (1, 1, 1)
    await count.play(run)
    assert (count.turns, count.calls, count.each, run.turn_number) == (2, 2, 1, 2)
    assert any_client().config.model == "chance"


SEEN = {"level": Detectable(value=0.5, n=8), "rate": Detectable(note="not yet known")}


@pytest.mark.parametrize(
    ("known", "text"),
    [
        (
            {"calls": 1234.0, "tokens": 56_789.0, "hours": 2.5, "based_on": "so far"},
            "6 runs to play (2 done already), 1,234 turns in all: about 1,200 calls, 57,000 tokens,"
            " 2.5 h one run after another (so far).",
        ),
        ({"done": 0, "based_on": "it failed"}, "6 runs to play, 1,234 turns in all (it failed)."),
        (
            {"done": 0, "calls": 12.0, "based_on": "x"},
            "6 runs to play, 1,234 turns in all: about 12 calls (x).",
        ),
        (
            {"left": 0, "calls": 0.0, "based_on": "so far"},
            "0 runs to play (2 done already), 1,234 turns in all.",
        ),
    ],
)
def test_a_plan_says_what_is_left_what_it_takes_and_what_it_sees(
    known: dict[str, Any], text: str
) -> None:
    settings = {"left": 6, "done": 2, "turns": 1234, "calls": None, "detectable": SEEN, **known}
    plan = replace(study_of(seeds=1, turns=1).plan(), **settings)
    assert str(plan) == repr(plan)
    assert str(plan).splitlines() == [
        text,
        "Smallest detectable difference in level: 0.5, with 8 runs and power .8.",
        "Smallest detectable difference in rate: not yet known.",
    ]
    assert plan.smallest == {"level": 0.5, "rate": None}


def with_tokens(times: int = 1) -> LLMClient:
    async def answers(request: ChatRequest) -> ChatReply:
        reply = chance_reply(request, Random(1))
        return replace(reply, prompt_tokens=90 * times, reply_tokens=10 * times)

    return LLMClient(LLMConfig(model="m"), ScriptedBackend(answers))


def test_a_plan_is_made_from_the_turns_so_far_and_else_from_chance(tmp_path: Path) -> None:
    study = study_of(turns=12, llm_client=with_tokens(), tape=tmp_path)
    plan = study.plan()
    # Two arms of three runs of twelve turns of two calls; chance plays ten turns.
    assert (plan.left, plan.done, plan.turns, plan.units, plan.calls) == (6, 0, 72, 3, 144)
    assert (plan.tokens, plan.hours) == (None, None)
    assert plan.based_on == "counted in 10 turns that chance answered"
    study.run(only=[("factor=1", 0)], progress=False)
    plan = study.plan()
    assert (plan.left, plan.done, plan.turns) == (5, 1, 60)
    assert (plan.calls, plan.tokens) == (120, 12_000)
    assert plan.based_on == (
        "the mean of the turns so far; counted in 10 turns that chance answered; calls like those "
        "of the turns so far"
    )
    assert plan.hours is not None
    assert 0 < plan.hours < 1
    study.run(only=[("factor=2", 0)], progress=False)
    assert study.plan().based_on == "the mean of the turns so far"
    rules = study_of(players="rule", llm_client=None)
    rules.run(only=[("factor=1", 0)], progress=False)
    assert rules.plan().based_on == (
        "the mean of the turns so far; counted in 4 turns that chance answered"
    )
    assert (rules.plan().calls, rules.plan().tokens) == (0, None)


def test_recorded_situations_are_priced_by_their_tape_and_arms_that_continue_by_their_own_turns(
    tmp_path: Path,
) -> None:
    # Calls of the second run take twice as much.
    for seed, turns in ((1, 4), (2, 2)):
        run = Water(llm_client=with_tokens(seed), tape=tmp_path / "a.tape", seed=seed)
        run.run(turns, progress=False)
        run.close()
    vary = {"prompt": {"as it is": None, "kind": kind}}
    for recorded, units, tokens in ((1, 4, 100), (2, 2, 200), ("all", 6, 800 / 6)):
        study = Study.again(
            tmp_path / "a.tape", vary, run=recorded, samples=2, llm_client=with_tokens()
        )
        plan = study.plan()
        # Two arms, two samples, two calls a turn.
        assert (plan.left, plan.turns, plan.calls) == (2 * units, 4 * units, 8 * units)
        assert plan.tokens == pytest.approx(8 * units * tokens)
        assert plan.based_on == (
            f"counted in {units} turns that chance answered; calls like those on the tape"
        )
    shocks = [{"turn": 2, "set": {"level": 90.0}}]
    vary = {"interventions": {"none": [], "shock": shocks}}
    study = study_of(vary=vary, seeds=2, turns=4, llm_client=with_tokens(), tape=tmp_path / "b")
    assert (study.plan().turns, study.plan().calls) == (2 * (4 + 2), 24)
    study.run(only=[("none", 0), ("shock", 0)], progress=False)
    plan = study.plan()
    assert (plan.left, plan.turns, plan.calls, plan.tokens) == (2, 6, 12, 1200)
    assert plan.based_on == "the mean of the turns so far"


def test_a_plan_is_made_while_the_files_are_being_written(tmp_path: Path) -> None:
    async def answers_once(request: ChatRequest) -> ChatReply:
        if len(backend.requests) > 1:
            raise KeyError("it is unplugged")
        return replace(chance_reply(request, Random(1)), prompt_tokens=90, reply_tokens=10)

    vary = {"interventions": {"none": [], "shock": [{"turn": 2, "set": {"level": 90.0}}]}}
    study = study_of(vary=vary, seeds=1, turns=4, llm_client=with_tokens(), tape=tmp_path / "a")
    study.run(progress=False)
    backend = ScriptedBackend(answers_once)
    client = LLMClient(LLMConfig(model="m", retry_wait_s=0), backend)
    begun = study_of(seeds=1, llm_client=client, tape=tmp_path / "b")
    begun.run(progress=False, parallel=1)
    plans = [str(study.plan()), str(begun.plan())]
    assert "calls like those answered so far" in plans[1]
    # Of the one question that was answered.
    assert (begun.plan().calls, begun.plan().tokens) == (16, 1600)
    with ExitStack() as stack:
        for path in tmp_path.glob("*/*.tape"):
            stack.enter_context(Tape(path))
        assert [str(study.plan()), str(begun.plan())] == plans


class Short(Water):
    """Is over after two turns with a large factor."""

    async def turn(self, state: Basin, ask: Ask) -> Basin:
        after = await super().turn(state, ask)
        return after.replace(level=0.0 if ask.turn == 2 and self.factor > 1 else after.level)

    def done(self, state: Basin) -> bool:
        return state.level == 0


def test_chance_plays_a_run_to_its_end_and_no_further() -> None:
    plan = study_of(Short, seeds=1, turns=12).plan()
    assert plan.based_on == "counted in 10 turns that chance answered"
    short = study_of(Short, {"factor": [2.0]}, seeds=1, turns=12).plan()
    assert short.based_on == "counted in 2 turns that chance answered"
