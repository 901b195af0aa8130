"""Engines: actions in order, limits held, nothing changed by a failure."""

from __future__ import annotations

import logging
import re
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from builders import make_action, make_client, make_config, make_state, rate_update, requests_of

from llmsim_lab.economy import RudebuschSvensson
from llmsim_lab.economy._macro import EngineConfig
from llmsim_lab.engines import EconLLMEngine, EconomicEngine, LLMEngine
from llmsim_lab.errors import ConfigError, LLMFailureException, PromptError
from llmsim_lab.llm import LLMClient
from llmsim_lab.models import GlobalState, SimulationState
from llmsim_lab.prompts import Prompt
from llmsim_lab.types import ChatRequest


def engine_at(
    rate: float, client: LLMClient | None = None, config: EngineConfig | None = None, **fields: Any
) -> EconomicEngine:
    engine = EconomicEngine(config and make_config(engine=config), client, **fields)
    engine.current_state = make_state(interest_rate=rate)
    return engine


def rates_shown(client: LLMClient) -> list[str]:
    return [
        found[1]
        for request in requests_of(client)
        if (found := re.search(r"- Interest Rate: (\S+)%", request.messages[1].content))
    ]


def offered(request: ChatRequest) -> list[float]:
    assert request.schema is not None
    rates = request.schema["properties"]["new_interest_rate"]["enum"]
    assert isinstance(rates, list)
    return rates


# Order


async def test_each_action_sees_the_rate_that_the_one_before_left() -> None:
    client = make_client([rate_update(4.5), rate_update(4.25), rate_update(5.0)])
    state = await engine_at(4, client).run_turn(
        [make_action(name="A"), make_action(name="B"), make_action(name="C")]
    )
    assert rates_shown(client) == ["4", "4.5", "4.25"]
    assert state.global_state.interest_rate == 5.0
    assert [chain.agent for chain in state.reasoning_chains] == ["A", "B", "C"]


async def test_a_skipped_action_leaves_the_rate_to_the_next_as_it_was() -> None:
    client = make_client([rate_update(4.5), rate_update(4.75)])
    actions = [make_action(), make_action("Sing", validated=False), make_action()]
    await engine_at(4, client).run_turn(actions)
    assert rates_shown(client) == ["4", "4.5"]


async def test_skipping_is_said_at_info_in_the_contracts_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    await EconomicEngine().run_turn([make_action("Sing", name="Aland", validated=False)])
    assert [r.getMessage() for r in caplog.records] == [
        "SKIPPED Agent [Aland] due to unvalidated Action"
    ]


async def test_a_turn_without_actions_still_passes() -> None:
    state = await EconomicEngine().run_turn([])
    assert state.turn == 1
    assert state.global_state.interest_rate == 4
    assert state.global_state.total_economic_value > 1000
    assert state.reasoning_chains == ()


async def test_who_runs_the_engine_makes_the_next_state_the_current_one() -> None:
    engine = engine_at(4, make_client(rate_update(4.5)))
    before = engine.current_state
    after = await engine.run_turn([make_action()])
    assert engine.current_state is before
    assert after.global_state.interest_rate == 4.5


# Limits


async def test_the_schema_offers_the_grid_within_one_move_of_the_current_rate() -> None:
    client = make_client(rate_update(4))
    await engine_at(4, client, EngineConfig(max_move=0.5)).run_turn([make_action()])
    assert offered(requests_of(client)[0]) == [3.5, 3.75, 4.0, 4.25, 4.5]


async def test_a_current_rate_off_the_grid_is_offered_too() -> None:
    client = make_client(rate_update(9.67))
    await engine_at(29.02 / 3, client, EngineConfig(max_move=0.5)).run_turn([make_action()])
    assert offered(requests_of(client)[0]) == [9.25, 9.5, 9.67, 9.75, 10.0]
    assert rates_shown(client) == ["9.67"]


async def test_at_the_lower_bound_nothing_below_it_is_offered() -> None:
    client = make_client(rate_update(0))
    await engine_at(0.25, client, EngineConfig(max_move=0.5)).run_turn([make_action()])
    assert offered(requests_of(client)[0]) == [0.0, 0.25, 0.5, 0.75]


async def test_each_action_is_offered_rates_around_the_one_before() -> None:
    client = make_client([rate_update(4.5), rate_update(4.5)])
    await engine_at(4, client, EngineConfig(max_move=0.5)).run_turn([make_action()] * 2)
    assert [offered(r)[-1] for r in requests_of(client)] == [4.5, 5.0]


async def test_a_rate_between_the_grids_points_is_accepted() -> None:
    state = await engine_at(4, make_client([rate_update(4.1)])).run_turn([make_action()])
    assert state.global_state.interest_rate == 4.1
    assert state.reasoning_chains[0].status == "ok"


@pytest.mark.parametrize(
    ("start", "reply", "complaint"),
    [
        (4.0, 6.5, "6.5% is 2.5 percentage points from the current 4%; one action may move it by"),
        (1.0, -0.5, "-0.5% is outside the bounds 0% to 25%"),
        (24.5, 25.25, "25.25% is outside the bounds 0% to 25%"),
    ],
)
async def test_a_rate_beyond_the_limits_is_shown_back_with_the_complaint(
    start: float, reply: float, complaint: str
) -> None:
    client = make_client([rate_update(reply), rate_update(start)])
    state = await engine_at(start, client).run_turn([make_action()])
    assert complaint in requests_of(client)[1].messages[-1].content
    assert state.global_state.interest_rate == start
    assert state.reasoning_chains[0].status == "repaired"


async def test_a_rate_beyond_the_limits_twice_is_an_invalid_response_and_no_clamp() -> None:
    engine = engine_at(4, make_client(rate_update(30)))
    before = engine.current_state
    with pytest.raises(LLMFailureException, match="outside the bounds 0% to 25%") as caught:
        await engine.run_turn([make_action()])
    assert (caught.value.reason, caught.value.attempts) == ("invalid_response", 2)
    assert engine.current_state is before


async def test_the_limits_hold_for_a_client_that_does_not_check_them() -> None:
    client = Mock()
    client.call_with_retry = AsyncMock(return_value=rate_update(9))
    with pytest.raises(LLMFailureException, match="5 percentage points") as caught:
        await engine_at(4, client).run_turn([make_action()])
    assert caught.value.reason == "invalid_response"


async def test_the_limits_stand_in_the_prompt() -> None:
    client = make_client(rate_update(4))
    config = EngineConfig(rate_bounds=(-0.5, 18), max_move=1, rate_step=0.5)
    await engine_at(4, client, config).run_turn([make_action()])
    assert (
        "The new rate lies between -0.5% and 18%, at most 1 percentage points from the current "
        "rate, in steps of 0.5."
    ) in requests_of(client)[0].messages[0].content


async def test_a_rate_put_outside_the_bounds_from_outside_can_be_brought_back() -> None:
    client = make_client(lambda request: rate_update(offered(request)[0]))
    state = await engine_at(30, client).run_turn([make_action()])
    assert state.global_state.interest_rate == 23.0
    assert state.reasoning_chains[0].status == "ok"


# Actions that name their rate


async def test_an_action_that_names_its_rate_needs_no_model() -> None:
    state = await engine_at(4).run_turn([make_action("Set it to 5%", proposed_rate=5)])
    assert state.global_state.interest_rate == 5
    (chain,) = state.reasoning_chains
    assert (chain.call, chain.status) == (None, "ok")
    assert "5%" in chain.reasoning


async def test_an_action_that_names_none_needs_a_model_and_says_so() -> None:
    with pytest.raises(
        ConfigError, match=r"'Raise taxes', names no rate and no change of it; give .* an llm"
    ):
        await engine_at(4).run_turn([make_action("Raise taxes")])


@pytest.mark.parametrize(("rate", "why"), [(6.5, "2.5 percentage points"), (26, "outside")])
async def test_a_named_rate_out_of_reach_from_the_start_is_an_error_with_a_way_out(
    rate: float, why: str
) -> None:
    with pytest.raises(ConfigError, match=f"'Aland'.*{why}.*widen the engine's"):
        await engine_at(4).run_turn([make_action(proposed_rate=rate)])


async def test_a_named_rate_put_out_of_reach_by_another_action_is_approached_and_marked() -> None:
    low, high = make_action(name="Dove", proposed_rate=2), make_action(name="Hawk", proposed_rate=6)
    state = await engine_at(4).run_turn([low, high])
    assert state.global_state.interest_rate == 4
    dove, hawk = state.reasoning_chains
    assert (dove.status, hawk.status) == ("ok", "fallback")
    assert hawk.reasoning == "From 2% the action leads to 6%. The limits of the rate end at 4%."


async def test_named_rates_and_a_models_decisions_mix_in_order() -> None:
    client = make_client([rate_update(5.25)])
    actions = [make_action(proposed_rate=5), make_action("Raise rates a little")]
    state = await engine_at(4, client).run_turn(actions)
    assert rates_shown(client) == ["5"]
    assert state.global_state.interest_rate == 5.25


# The economy behind the rate


async def test_the_macro_model_moves_the_economy_with_the_new_rate() -> None:
    engine = engine_at(4)
    start = engine.current_state
    state = await engine.run_turn([make_action(proposed_rate=5)])
    assert state.global_state == RudebuschSvensson().advance(start.global_state, interest_rate=5.0)


async def test_the_economy_starts_from_the_turns_start_whatever_happens_in_between() -> None:
    wild, calm = engine_at(4), engine_at(4)
    through = await wild.run_turn([make_action(proposed_rate=2), make_action(proposed_rate=4)])
    straight = await calm.run_turn([make_action(proposed_rate=4)])
    assert through.global_state == straight.global_state


async def test_the_quarter_moves_on() -> None:
    engine = EconomicEngine()
    engine.current_state = SimulationState(period="1979Q4")
    assert (await engine.run_turn([])).period == "1980Q1"


async def test_the_rate_only_engine_changes_nothing_else() -> None:
    engine = EconLLMEngine(llm_client=make_client(rate_update(5)))
    state = await engine.run_turn([make_action()])
    assert state.global_state.interest_rate == 5
    assert state.global_state.model_copy(update={"interest_rate": 4.0}) == GlobalState()
    assert state.turn == 1


# Making one


async def test_another_prompt_can_be_given() -> None:
    client = make_client(rate_update(4))
    prompt = Prompt.load("engine_interest_rate").replace("simulation engine", "oracle")
    await engine_at(4, client, prompt=prompt).run_turn([make_action()])
    assert requests_of(client)[0].prompt.startswith("You are an economic oracle.")


async def test_a_prompt_with_other_slots_says_which_it_lacks() -> None:
    engine = engine_at(4, make_client(rate_update(4)), prompt=Prompt("{{ rate }}?"))
    with pytest.raises(PromptError, match="no value for rate"):
        await engine.run_turn([make_action()])


async def test_an_action_with_template_marks_is_shown_as_it_is() -> None:
    client = make_client(rate_update(4))
    await engine_at(4, client).run_turn([make_action("Raise {{ rates }} {% now %}")])
    assert 'action: "Raise {{ rates }} {% now %}"' in requests_of(client)[0].prompt


def test_a_whole_runs_configuration_will_do() -> None:
    engine = EconomicEngine(make_config(engine={"max_move": 1.0}))
    assert engine.config.max_move == 1.0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rate_bounds": (5, 1)}, r"\(5.0, 1.0\) are empty; swap them"),
        ({"max_move": 0}, "max_move: .*greater than 0"),
        ({"rate_step": -0.25}, "rate_step: .*greater than 0"),
        ({"rate_step": 0.0001}, "raise rate_step"),
        ({"max_move": float("nan")}, "finite"),
        ({"max_moves": 1}, "max_moves"),
    ],
)
def test_limits_that_make_no_sense_are_errors(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EngineConfig(**fields)


async def test_an_engine_of_another_domain_needs_only_the_two_abstract_methods() -> None:
    class Thermostat(LLMEngine):
        def _construct_state_update_prompt(self, action: Any, current_state: Any) -> str:
            return f"{action.action_string} at {current_state.interest_rate}"

        def _apply_state_update(self, decision: Any, current_state: Any) -> Any:
            economy = GlobalState(interest_rate=decision.new_interest_rate)
            return current_state.model_copy(update={"global_state": economy})

    client = make_client([rate_update(90)])
    state = await Thermostat(llm_client=client).run_turn([make_action("Heat")])
    assert (state.turn, state.global_state.interest_rate) == (1, 90)
    assert requests_of(client)[0].prompt == "Heat at 4.0"
