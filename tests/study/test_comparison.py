"""Comparisons of prompts: what is played, what comes of it, what it costs."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders import make_config, requests_of, second_by_second, verdict
from comparison_kit import (
    HAWK,
    SEED,
    hawk_of,
    make_comparison,
    make_run,
    opinions,
    seeded_client,
)

from llmsim_lab.errors import BackendError, ConfigError, LLMFailureException
from llmsim_lab.llm import Tape
from llmsim_lab.run import _progress, load
from llmsim_lab.simulation import Simulation
from llmsim_lab.study import Comparison
from llmsim_lab.study._comparison import Progress
from llmsim_lab.types import ChatRequest


def asked_since(experiment: Comparison, before: int) -> list[ChatRequest]:
    assert experiment.llm_client is not None
    return requests_of(experiment.llm_client)[before:]


def failing(component: str, *, seed: int, times: int = 2) -> Any:
    """A model that answers nonsense, at one seed and for one component."""
    left = [times]

    def reply(request: ChatRequest) -> Any:
        assert request.site is not None
        if request.options.get("seed") == seed and request.site.component == component and left[0]:
            left[0] -= 1
            return "no idea"
        return opinions(request)

    return reply


# Which run


def test_it_names_the_run_that_it_plays_again(tmp_path: Path) -> None:
    make_run(tape=tmp_path / "x.tape")
    taped = make_comparison(load(tmp_path / "x.tape"))
    assert taped.source == "run 1 'run' of x.tape"
    assert repr(taped) == (
        "<Comparison on agent of run 1 'run' of x.tape: as it was / hawk, 0 of 12 samples played>"
    )
    assert make_comparison().source == "'run', which is on no tape"


def test_a_tape_with_one_run_needs_no_number_and_one_with_several_asks_which(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.tape"
    first = make_run(tape=path, turns=2)
    variants = {"as it was": None, "hawk": hawk_of(first)}
    assert Comparison(path, prompt=variants).simulation.run_id == 1
    first.fork(1, prompt=hawk_of(first)).run(1)
    with pytest.raises(ConfigError) as caught:
        Comparison(path, prompt=variants)
    assert str(caught.value) == (
        f"{path} holds 2 runs, and a comparison of prompts is about one: "
        "run=1 ('run', turns to 2); run=2 ('run', turns to 2, a fork of run 1 at turn 1 "
        "with another prompt of agent:Aland)"
    )
    chosen = Comparison(path, run=1, prompt=variants)
    assert (chosen.simulation.run_id, chosen.variants["as it was"]) == (1, first.agents[0].prompt)  # type: ignore[attr-defined]
    other = Comparison(path, run=2, prompt=variants)
    assert HAWK in other.variants["as it was"].text


def test_what_is_on_the_tape_beside_economic_runs_is_not_asked_about(tmp_path: Path) -> None:
    tape = Tape(tmp_path / "x.tape")
    make_comparison(make_run(tape=tape), samples=1, turns=(1,)).run()
    experiment = Comparison(tape, prompt={"as it was": None, "again": None})
    assert experiment.simulation.run_id == 1


def test_a_run_number_goes_with_a_tape() -> None:
    assert "run=2 is for a tape" in error_of(run=2)


def test_run_is_plain_and_shows_what_it_played() -> None:
    experiment = make_comparison(samples=1, turns=(1,))
    assert len(experiment.run()) == 2


def test_a_line_counts_the_samples_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    run = make_run(turns=1)
    monkeypatch.setattr(_progress, "_PATIENCE_S", 0)
    monkeypatch.setattr(_progress, "_TICK_S", 0)
    monkeypatch.setattr(_progress, "_screen", lambda: shown.append)

    async def reply(request: ChatRequest) -> Any:
        here = len(shown)
        while len(shown) == here:  # noqa: ASYNC110 - a list has no event to wait for
            await asyncio.sleep(0)
        return opinions(request)

    make_comparison(run, llm_client=seeded_client(reply), samples=1).run()
    assert shown[0] == "sample 1 of 2 · waiting for agent of Aland · 0:00 so far"
    assert [text[:13] for text in shown[-2:]] == ["sample 2 of 2", ""]


# What is played


async def test_all_variants_meet_the_same_states_with_the_same_seeds() -> None:
    experiment = make_comparison(turns=(1, 3))
    frame = await experiment.arun()
    places = ["turn", "sample", "seed", "before"]
    mine, other = (frame[frame["variant"] == name][places] for name in experiment.names)
    assert mine.to_numpy().tolist() == other.to_numpy().tolist()
    seeds = [SEED + number for number in (1, 1, 2, 2, 3, 3, 4, 4)]
    assert frame["seed"].tolist() == seeds
    assert frame["turn"].tolist() == [1, 1, 3, 3] * 2


def test_seeds_can_be_shared_by_all_turns() -> None:
    schedule = make_comparison(turns=(1, 3), shared_seeds=True).schedule
    assert [sample.seed - SEED for sample in schedule] == [1] * 4 + [2] * 4


async def test_each_sample_asks_with_its_own_seed_and_its_variants_prompt() -> None:
    simulation = make_run()
    assert simulation.llm_client is not None
    before = len(requests_of(simulation.llm_client))
    experiment = make_comparison(simulation, turns=(2,), samples=2)
    await experiment.arun()
    asked = [r for r in asked_since(experiment, before) if r.site and r.site.component == "agent"]
    assert [r.options["seed"] for r in asked] == [SEED + 1, SEED + 1, SEED + 2, SEED + 2]
    assert [HAWK in r.prompt for r in asked] == [False, True] * 2
    assert {r.options["temperature"] for r in asked} == {0.7}


async def test_the_difference_that_a_prompt_makes_is_found_beside_the_noise() -> None:
    experiment = make_comparison(samples=4)
    await experiment.arun()
    summary = experiment.summary.set_index("outcome")
    assert summary.loc["interest_rate", "estimate"] == pytest.approx(1.0)
    assert summary.loc["interest_rate", "unit"] == "situations"
    assert summary.loc["interest_rate", "speaks_of"] == experiment.effects()[0].speaks_of
    assert "these 3 situations" in experiment.effects()[0].speaks_of
    # Of four seeds two are odd: of six pairs four differ, by half a point.
    assert summary.loc["interest_rate", "noise_floor"] == pytest.approx(4 / 6 * 0.5)
    assert summary.loc["confidence", "estimate"] == 0


async def test_the_run_itself_stays_as_it_is() -> None:
    simulation = make_run()
    turns, stats = list(simulation.turns), simulation.validator.get_stats()
    await make_comparison(simulation).arun()
    assert simulation.turns == turns
    assert simulation.validator.get_stats() == stats
    assert HAWK not in simulation.agents[0].prompt.text  # type: ignore[attr-defined]


async def test_for_one_agent_the_others_proposals_are_the_recorded_ones() -> None:
    simulation = make_run(nations=["Aland", "Borduria"])
    assert simulation.llm_client is not None
    before = len(requests_of(simulation.llm_client))
    experiment = make_comparison(simulation, component="agent:Borduria", turns=(2,), samples=1)
    frame = await experiment.arun()
    counts = Counter(
        (r.site.component, r.site.agent) for r in asked_since(experiment, before) if r.site
    )
    assert counts == {
        ("agent", "Borduria"): 2,
        ("validator", "Aland"): 2,
        ("validator", "Borduria"): 2,
        ("engine", "Aland"): 2,
        ("engine", "Borduria"): 2,
    }
    assert frame["agent"].tolist() == ["Borduria"] * 2
    assert experiment.plan().calls == 0


async def test_for_the_validator_the_proposals_are_the_recorded_ones() -> None:
    simulation = make_run()
    before = len(requests_of(simulation.llm_client))  # type: ignore[arg-type]
    strict = simulation.validator.prompt.replace("You are", "You are strict. You are")  # type: ignore[attr-defined]
    experiment = make_comparison(
        simulation, component="validator", prompt={"lenient": None, "strict": strict}
    )
    frame = await experiment.arun()
    assert frame["decision"].tolist() == ["accept", "reject"] * 6
    rejected = frame[frame["variant"] == "strict"]
    assert (rejected["interest_rate"] == rejected["before"]).all()
    assert not rejected["accepted"].any()
    asked = {r.site.component for r in requests_of(simulation.llm_client)[before:] if r.site}  # type: ignore[arg-type]
    assert asked == {"validator", "engine"}
    assert experiment.directions.set_index("variant").loc["strict", "hold"] == 1
    view = experiment.sample("strict", 1)
    assert view.validator.prompt == strict  # type: ignore[attr-defined]
    assert simulation.validator.prompt != strict  # type: ignore[attr-defined]


async def test_the_validator_gets_the_proposals_as_the_run_had_them_before_it_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simulation = make_run()
    marked = [action.validated for turn in simulation.turns for action in turn.actions]
    assert marked == [True] * 3
    got: list[tuple[bool, object]] = []
    validate = type(simulation.validator).validate_actions

    async def watched(self: Any, actions: Any, state: Any) -> Any:
        got.extend((action.validated, action.validation_result) for action in actions)
        return await validate(self, actions, state)

    monkeypatch.setattr(type(simulation.validator), "validate_actions", watched)
    both = {"a": None, "b": None}
    await make_comparison(simulation, component="validator", prompt=both).arun()
    assert got == [(False, None)] * 12


async def test_for_the_engine_only_the_engine_is_asked() -> None:
    simulation = make_run()
    bold = simulation.engine.prompt.replace("Calculate", "Boldly calculate")  # type: ignore[attr-defined]
    experiment = make_comparison(
        simulation, component="engine", prompt={"plain": None, "bold": bold}, turns=[1]
    )
    assert experiment.plan().calls == 4
    frame = await experiment.arun()
    assert experiment.outcomes == ["interest_rate", "confidence"]
    assert set(frame["decision"]) == {f"{rate:g}" for rate in frame["interest_rate"]}


async def test_an_engine_has_a_row_for_each_action_that_it_took() -> None:
    simulation = make_run(nations=["Aland", "Borduria"])
    both = {"plain": None, "same": None}
    experiment = make_comparison(simulation, component="engine", prompt=both, turns=[1])
    assert (await experiment.arun())["agent"].tolist() == ["Aland", "Borduria"] * 4


async def test_asking_the_component_alone_is_cheaper_and_leaves_the_rate_open() -> None:
    experiment = make_comparison(only_component=True)
    assert experiment.plan().calls == 12
    frame = await experiment.arun()
    assert "interest_rate" not in frame
    assert frame["completed"].all()
    assert experiment.outcomes == ["confidence"]
    assert set(experiment.summary["outcome"]) == {"confidence", "answers"}
    assert "interest rate by 1.25" in " ".join(experiment.answers["decision"])


async def test_what_was_done_from_outside_at_the_turn_is_done_again() -> None:
    simulation = make_run(interventions=[{"turn": 2, "shock": {"supply": 3}}])
    experiment = make_comparison(simulation, turns=(2,), prompt={"a": None, "b": None})
    await experiment.arun()
    recorded = simulation.turns[2].state.global_state
    assert recorded in [turn.state.global_state for _, turn in experiment.played]


# Failures


async def test_a_sample_without_a_usable_answer_is_a_failed_row_and_is_counted() -> None:
    client = seeded_client(failing("agent", seed=SEED + 1))
    experiment = make_comparison(llm_client=client, turns=(1, 2))
    seen: list[Progress] = []
    frame = await experiment.arun(on_progress=seen.append)
    assert frame["status"].tolist() == ["failed", *["ok"] * 7]
    failed = frame.iloc[0]
    assert not failed["completed"]
    assert failed[["interest_rate", "confidence"]].isna().all()
    assert failed["calls"] == 2
    assert "invalid_response" in failed["detail"]
    assert seen[-1].failed == 1
    assert experiment.summary["failed"].tolist() == [1, 1, 1, 1]
    assert "3 pairs used, 1 failed" in experiment.verdicts[0]
    assert experiment.answers["decision"].tolist().count("(failed)") == 1
    assert experiment.directions["failed"].tolist() == [1, 0]
    # Pairs of one seed, of different seeds, of the reference's own, of the hawk's own.
    assert experiment.agreement["failed"].tolist() == [1, 1, 1, 0]


@pytest.mark.parametrize("component", ["validator", "engine"])
async def test_a_later_failure_keeps_what_the_agent_said(component: str) -> None:
    client = seeded_client(failing(component, seed=SEED + 1))
    frame = await make_comparison(llm_client=client, turns=(1,), samples=1).arun()
    failed = frame.iloc[0]
    assert failed["status"] == "failed"
    assert failed["decision"] == "Raise the interest rate by 0.75"
    assert failed["confidence"] == pytest.approx(0.6)
    assert failed["detail"].startswith(component)


async def test_a_call_that_another_ones_failure_made_useless_is_counted_too() -> None:
    client = seeded_client(failing("agent", seed=SEED + 1))
    simulation = make_run(nations=["Aland", "Borduria"])
    experiment = make_comparison(simulation, llm_client=client, turns=(1,), samples=1)
    frame = await experiment.arun()
    assert frame["status"].tolist() == ["failed", "failed", "ok", "ok"]
    _, turn = experiment.played[0]
    assert {chain.agent for chain in turn.chains} == {"Aland", "Borduria"}
    assert {chain.status for chain in turn.chains} == {"failed"}


async def test_an_action_outside_the_domain_is_a_result_not_a_lost_sample() -> None:
    def reply(request: ChatRequest) -> Any:
        assert request.site is not None
        if request.site.component == "agent":
            return {"action": "Sing a song", "reasoning": "Why not.", "confidence": 0.5}
        return opinions(request)

    frame = await make_comparison(llm_client=seeded_client(reply), turns=(1,), samples=1).arun()
    assert frame["status"].tolist() == ["failed", "failed"]
    assert frame["completed"].all()
    assert frame["accepted"].tolist() == [False, False]
    assert (frame["move"] == 0).all()


async def test_a_server_that_fails_stops_the_comparison_and_is_not_a_sample() -> None:
    down = [BackendError("gone", reason="connection_error")]

    def reply(request: ChatRequest) -> Any:
        if request.options.get("seed") == SEED + 2 and down:
            raise down.pop()
        return opinions(request)

    experiment = make_comparison(llm_client=seeded_client(reply), turns=(1,))
    with pytest.raises(LLMFailureException, match="connection_error"):
        await experiment.arun()
    assert len(experiment.played) == 2
    assert experiment.plan().samples == 2
    assert (await experiment.arun())["completed"].all()


async def test_a_custom_agents_failure_without_a_call_is_a_failed_sample() -> None:
    simulation = make_run()

    class Quitter(type(simulation.agents[0])):  # type: ignore[misc]
        async def decide_action(self, state: Any) -> Any:
            raise LLMFailureException("invalid_response", 0, None, "agent", detail="no mood")

    simulation.agents[0].__class__ = Quitter
    frame = await make_comparison(simulation, turns=(1,), samples=1).arun()
    assert frame["detail"].tolist() == ["agent: invalid_response after 0 attempts: no mood"] * 2


# Stopping


async def test_cancelling_keeps_what_was_played_and_run_continues() -> None:
    experiment = make_comparison()

    def stop(progress: Progress) -> None:
        if progress.done == 5:
            task.cancel()

    async def pausing(progress: Progress) -> None:
        stop(progress)
        await asyncio.sleep(0)

    task = asyncio.ensure_future(experiment.arun(on_progress=pausing))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(experiment.played) == len(experiment.frame) == 5
    assert experiment.plan().samples == 7
    assert "5 done already" in str(experiment.plan())
    await experiment.arun()
    assert repr(experiment).endswith("as it was / hawk, 12 of 12 samples played>")
    whole = await make_comparison().arun()
    same = ["variant", "turn", "sample", "seed", "decision", "confidence", "interest_rate"]
    assert experiment.frame[same].equals(whole[same])


async def test_a_comparison_runs_once_at_a_time() -> None:
    experiment = make_comparison(llm_client=seeded_client())
    first = asyncio.ensure_future(experiment.arun())
    await asyncio.sleep(0)
    with pytest.raises(ConfigError, match="is being played"):
        await experiment.arun()
    await first


async def test_a_sample_takes_as_long_as_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count(100, 2.5)
    monkeypatch.setattr(
        "llmsim_lab.run._run.time", SimpleNamespace(perf_counter=lambda: next(ticks))
    )
    experiment = make_comparison(llm_client=seeded_client())
    await experiment.arun()
    assert {turn.seconds for _, turn in experiment.played} == {2.5}


# The plan


def test_the_plan_is_an_estimate_from_the_runs_own_calls_and_says_so() -> None:
    simulation = make_run()
    plan = make_comparison(simulation).plan()
    assert (plan.samples, plan.calls, plan.recorded_calls) == (12, 36, 9)
    mean = sum(c.call.seconds for c in simulation.chains if c.call) / 9
    assert plan.seconds == pytest.approx(36 * mean)
    assert "An estimate: the mean of this run's 9 recorded calls (opinions)" in str(plan)
    assert "in memory only: the run is on no tape" in plan.storage
    assert str(plan).endswith(f"(opinions), retries extra. {plan.storage}")


async def test_when_all_is_played_the_plan_says_so() -> None:
    experiment = make_comparison(turns=(1,), samples=1)
    await experiment.arun()
    assert str(experiment.plan()) == "Nothing left to play (2 done already)."


def test_a_rule_based_validator_costs_no_calls() -> None:
    simulation = make_run(validator={"kind": "always_valid"})
    assert make_comparison(simulation, turns=(1,), samples=1).plan().calls == 4


# Errors


def error_of(simulation: Simulation | None = None, **arguments: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        make_comparison(simulation, **arguments)
    return str(caught.value)


def test_wrong_slots_are_named_before_anything_is_asked() -> None:
    variants = {"a": None, "b": "## User\n\nInflation {{ inflaton }}, act."}
    message = error_of(prompt=variants)
    assert "variant 'b': unknown slots inflaton; missing slots" in message
    assert "the agent fills exactly: profile, gdp_growth" in message


def test_a_prompt_that_cannot_be_rendered_on_a_state_is_named_with_the_turn() -> None:
    simulation = make_run()
    text = hawk_of(simulation).text.replace("{{ inflation }}", "{{ inflation.core }}")
    message = error_of(simulation, prompt={"a": None, "b": text})
    assert message.startswith("variant 'b' at turn 1: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"prompt": {"alone": None}},
            "prompt={'alone': None} is the prompt as it was; give another to compare it with",
        ),
        ({"prompt": {"a": None, " ": None}}, "name that is not empty"),
        ({"prompt": {"a": None, "b": 7}}, "variant 'b' is int"),
        (
            {"component": "treasury"},
            "it has: agent, validator, engine, agent:Aland, validator:Aland, engine:Aland",
        ),
        ({"component": "agent:Nowhere"}, "is not a part of this run"),
        ({"turns": ()}, "turns is empty; choose from 1, 2, 3"),
        ({"turns": (2, 9)}, "was not asked in turn 9; choose from 1, 2, 3"),
        ({"turns": 5}, "turns=5 must be the turns' numbers, such as turns=(1, 3)"),
        ({"turns": "12"}, "turns='12' must be the turns' numbers"),
        ({"turns": (1.5,)}, "turn=1.5 must be a whole number"),
        ({"prompt": ["a", "b"]}, "prompt=['a', 'b'] must be prompts by name"),
        ({"prompt": {5: None, "b": None}}, "name that is not empty, not 5"),
        ({"component": 5}, "component=5 must be a text"),
        ({"samples": 0}, "samples=0 must be a whole number"),
        ({"samples": True}, "samples=True must be a whole number"),
        ({"seed": "a"}, "seed='a' must be a whole number"),
        ({"seed": 1.5}, "seed=1.5 must be a whole number"),
        ({"seed": -2}, "seed=-2 must be a whole number from 0 on"),
        ({"temperature": -1}, "temperature=-1"),
        ({"temperature": "a"}, "temperature='a' must be a finite number"),
        ({"temperature": float("nan")}, "temperature=nan must be a finite number"),
        ({"llm_client": 5}, "llm_client=5 is not an LLMClient"),
    ],
)
def test_wrong_arguments_are_errors_with_the_way_out(
    arguments: dict[str, Any], message: str
) -> None:
    assert message in error_of(**arguments)


def test_a_component_without_a_prompt_is_an_error() -> None:
    simulation = Simulation(make_config())
    simulation.run(1)
    with pytest.raises(ConfigError, match="reads no prompt"):
        Comparison(simulation, prompt={"a": None, "b": None})
    with pytest.raises(
        ConfigError, match="not a part of this run that reads a prompt; it has: engin"
    ):
        Comparison(simulation, prompt={"a": None, "b": None}, component="validator")


def test_agents_with_different_prompts_are_compared_one_at_a_time() -> None:
    simulation = make_run(nations=["Aland", "Borduria"])
    simulation.agents[1].prompt = hawk_of(simulation)  # type: ignore[attr-defined]
    assert "component='agent:Aland'" in error_of(simulation, prompt={"a": None, "b": None})


def test_a_run_without_turns_has_nothing_to_play_again() -> None:
    assert "play some turns first" in error_of(make_run(turns=0))


def test_an_engine_that_was_never_asked_cannot_be_tested() -> None:
    simulation = make_run(client=seeded_client(_rejecting), turns=1)
    assert "no turn in which the engine was asked" in error_of(
        simulation, component="engine", prompt={"a": None, "b": None}
    )


def _rejecting(request: ChatRequest) -> Any:
    assert request.site is not None
    return verdict(False) if request.site.component == "validator" else opinions(request)


# Looking at prompts and samples


def test_a_variant_is_rendered_as_the_component_would_render_it() -> None:
    simulation = make_run()
    for component in ("agent", "validator", "engine"):
        experiment = make_comparison(simulation, component=component, prompt={"a": None, "b": None})
        text = experiment.bench.render(experiment.variants["a"], 2)
        prompts = [c.prompt for c in simulation.turns[2].chains if c.component == component]
        assert [str(text)] == prompts


def test_a_prompt_is_not_rendered_for_whom_the_component_was_not_asked() -> None:
    experiment = make_comparison()
    with pytest.raises(ConfigError, match="was not asked for 'Nowhere' in turn 1, but for: Aland"):
        experiment.bench.render(experiment.bench.prompt, 1, agent="Nowhere")


def test_a_prompt_that_is_made_by_hand_cannot_be_shown() -> None:
    simulation = make_run()

    class Handmade(type(simulation.agents[0])):  # type: ignore[misc]
        def _construct_prompt(self, state: Any) -> str:
            return "Do something."

    simulation.agents[0].__class__ = Handmade
    assert "does not render its prompt" in error_of(simulation, prompt={"a": None, "b": None})


async def test_a_sample_can_be_looked_at_as_a_run() -> None:
    experiment = make_comparison()
    await experiment.arun()
    view = experiment.sample("hawk", 3, 2)
    assert [turn.number for turn in view.turns] == [0, 1, 2, 3]
    assert view.tape is None
    assert HAWK in view.turns[-1].chains[0].prompt
    assert HAWK in view.agents[0].prompt.text  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="there is no sample 7 of 'hawk' at turn 3"):
        experiment.sample("hawk", 3, 7)


async def test_a_samples_seconds_are_those_between_its_start_and_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    experiment = make_comparison()
    second_by_second(monkeypatch)
    await experiment.arun()
    assert experiment.sample("hawk", 3, 2).turns[-1].seconds == 1


def test_the_plan_names_each_model_that_was_asked() -> None:
    simulation = make_run(turns=1)
    (turn,) = simulation.turns[1:]
    for chain in turn.chains:
        if chain.component == "engine" and chain.call:
            [attempt] = chain.call.history
            other = replace(attempt, request=replace(attempt.request, model="another"))
            object.__setattr__(chain.call, "history", (other,))
    assert make_comparison(simulation).plan().model == "opinions, another"
