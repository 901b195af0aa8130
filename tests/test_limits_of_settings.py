"""The limits of settings: the last value is taken, the next one is an error that names the setting.

Defaults are here too: a run that leaves a setting out is another run when its default changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from llmsim_lab import (
    LLMClient,
    LLMConfig,
    Person,
    Prompt,
    ScriptedBackend,
    TaylorRuleAgent,
    connect,
    initial_state,
    rate_figure,
)
from llmsim_lab.assistant import (
    AgentEngineConfig,
    Chat,
    DecisionContext,
    DecisionLog,
    FunctionTools,
    LLMAgentEngine,
    MCPToolExecutor,
    OllamaAdapter,
    load_constitution,
)
from llmsim_lab.context import (
    AgentContextBuilder,
    ComposedModules,
    CrisisSimulation,
    GameEngine,
    ModuleLoader,
    SimulatorAgent,
)
from llmsim_lab.context.scenario import CrisisScenario
from llmsim_lab.economy import QuadraticLoss, RudebuschSvensson, TaylorRule, closed_loop
from llmsim_lab.errors import ConfigError, LabError
from llmsim_lab.lessons import grade
from llmsim_lab.llm import OllamaBackend, OpenAIBackend
from llmsim_lab.llm.client import checked_client
from llmsim_lab.room import forget_names
from llmsim_lab.run import Memory
from llmsim_lab.simulation import Simulation
from llmsim_lab.statechart import SocialSimulation
from llmsim_lab.study import exact
from llmsim_lab.tape import digest

Values = dict[str, Any]
STORY: Values = {"author": "Press", "text": "Tea.", "topics": ["tea"]}


def user(**more: Any) -> Values:
    return {"population": [{"name": "Ann", "interests": ["tea"], **more}]}


def story(**more: Any) -> Values:
    return {"seed_posts": [{**STORY, **more}]}


def feed(name: str, *values: object) -> list[Values]:
    return [{"feed": {name: value}} for value in values]


def chair(tolerance_bp: float) -> Values:
    people = {"chair": "United States", "tolerance_bp": tolerance_bp}
    return {"committee": {"rule": "chair", **people}}


WEIGHTS = ("interest", "recency", "popularity", "noise")
LIMITS: list[tuple[Any, list[Values], list[Values]]] = [
    (
        SocialSimulation,
        [user(activity=0), user(activity=1), user(engagement_threshold=1)],
        [user(activity=-0.01), user(activity=1.01), user(engagement_threshold=1.01)],
    ),
    (
        SocialSimulation,
        [user(timeout_threshold=2), user(timeout_threshold=1000), user(name="A" * 100)],
        [user(timeout_threshold=1), user(timeout_threshold=1001), user(name="A" * 101)],
    ),
    (
        SocialSimulation,
        [user(interests=["t" * 60]), story(text="t" * 5000), {"seed_posts": 25}],
        [user(interests=["t" * 61]), story(text="t" * 5001), {"seed_posts": 26}, story(topics=[])],
    ),
    (
        SocialSimulation,
        [user(interests=["t"] * 200), story(topics=["t"] * 200), {"population": 10_000}],
        [user(interests=["t"] * 201), story(topics=["t"] * 201), {"population": 10_001}],
    ),
    (
        SocialSimulation,
        [feed(name, 0, 100)[at] for name in WEIGHTS for at in (0, 1)],
        [feed(name, -0.1, 100.1)[at] for name in WEIGHTS for at in (0, 1)],
    ),
    (
        SocialSimulation,
        [*feed("half_life", 1e-9, 1000), *feed("max_age", 1, 1000), *feed("max_posts", 1, 10_000)],
        [*feed("half_life", 0, 1001), *feed("max_age", 0, 1001), *feed("max_posts", 0, 10_001)],
    ),
    (
        Simulation,
        [{"gap_noise": 0}, {"gap_noise": 10}, {"economy": {"shock_scale": 10}}],
        [{"gap_noise": -0.1}, {"gap_noise": 10.1}, {"economy": {"shock_scale": 10.1}}],
    ),
    (
        Simulation,
        [{"nations": [{"name": "A", "inflation_target": target}]} for target in (-5, 50)],
        [{"nations": [{"name": "A", "inflation_target": target}]} for target in (-5.1, 50.1)],
    ),
    (
        Simulation,
        [{"engine": {"max_move": 100, "rate_step": 0.1}}, chair(0)],
        [{"engine": {"max_move": 100.1, "rate_step": 0.1}}, chair(-1)],
    ),
    (
        Simulation,
        [{"moves_bp": [*range(-50, 51)]}, {"moves_bp": [0, 25]}, {"nations": [{"name": "A"}]}],
        [{"moves_bp": [*range(-50, 52)]}, {"moves_bp": [25]}, {"nations": []}, {"moves_bp": [0]}],
    ),
    (
        CrisisSimulation,
        [{"scenario": "strait", "max_events": number} for number in (0, 20)],
        [{"scenario": "strait", "max_events": number} for number in (-1, 21)],
    ),
]


@pytest.mark.parametrize(("world", "taken", "refused"), LIMITS)
def test_a_setting_takes_its_limit_and_nothing_beyond(
    world: Any, taken: list[Values], refused: list[Values]
) -> None:
    for values in taken:
        world.config_type(**values)
    for values in refused:
        [name] = (name for name in values if name != "scenario")
        with pytest.raises(ConfigError, match=name):
            world.config_type(**values)


@pytest.mark.parametrize(
    ("name", "least"),
    [
        *((name, 1) for name in ("max_iterations", "max_tokens", "max_calls", "max_result_chars")),
        ("include_history_messages", 0),
        ("temperature", 0),
        ("timeout_seconds", 0.01),
    ],
)
def test_an_assistants_setting_takes_its_least_value_and_no_lower(name: str, least: float) -> None:
    settings: Values = {name: least}
    assert getattr(AgentEngineConfig(**settings), name) == least
    lower: Values = {name: least - (1 if isinstance(least, int) else 0.001)}
    with pytest.raises(ConfigError, match=f"{name}=.* must be"):
        AgentEngineConfig(**lower)


def defaults_of(world: Any, names: str, **given: Any) -> Values:
    values: Values = world.config_type(**given).model_dump()
    return {name: values[name] for name in names.split()}


def test_the_defaults_of_each_world_are_those_that_its_recorded_runs_had() -> None:
    sizes = (25, 50, 75, 100, 150, 200, 300, 450)
    names = "turns moves_bp masked permissive engine economy gap_noise committee"
    assert defaults_of(Simulation, names) == {
        "turns": 8,
        "moves_bp": (*(-size for size in reversed(sizes)), 0, *sizes),
        "masked": True,
        "permissive": True,
        "engine": {"rate_bounds": (0.0, 25.0), "max_move": 2.0, "rate_step": 0.25},
        "economy": {"shock_scale": 1.0, "fiscal_backstop": False, "mirrored": False},
        "gap_noise": 0.0,
        "committee": {"rule": "median", "chair": None, "tolerance_bp": 25.0},
    }
    social = defaults_of(SocialSimulation, "turns feed shuffle population seed_posts")
    assert (len(social.pop("population")), len(social.pop("seed_posts"))) == (12, 8)
    weights = {"interest": 2.0, "recency": 1.0, "popularity": 1.0, "noise": 0.3}
    limits = {"half_life": 3.0, "max_age": 10, "max_posts": 200}
    assert social == {"turns": 8, "shuffle": True, "feed": {**weights, **limits}}
    [ann] = SocialSimulation.config_type(**user()).population
    assert (ann.activity, ann.engagement_threshold, ann.timeout_threshold) == (0.5, 0.5, 5)
    crisis = defaults_of(CrisisSimulation, "turns max_events stable_first llm", scenario="strait")
    assert [crisis["llm"][name] for name in ("max_tokens", "max_text_chars", "timeout_s")] == [
        600,
        300,
        180.0,
    ]
    assert (crisis["turns"], crisis["max_events"], crisis["stable_first"]) == (6, 3, True)
    assert defaults_of(Chat, "turns", user_id="ann") == {"turns": 1000}


def test_a_wait_may_be_without_end_and_0_is_the_settings_wait() -> None:
    settings = AgentEngineConfig()
    for given, wait_s in ((0, settings.timeout_seconds), (math.inf, math.inf)):
        assert LLMAgentEngine(ADAPTER, None, "x", call_timeout_s=given).call_timeout_s == wait_s
    MCPToolExecutor(["server"], start_timeout_s=math.inf)


class Unprintable:
    """A value whose own code raises."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


LISTS_IN_ONE_ANOTHER: list[object] = []
for _ in range(5_000):
    LISTS_IN_ONE_ANOTHER = [LISTS_IN_ONE_ANOTHER]
ODD_VALUES = [
    10**400,
    10**5_000,
    LISTS_IN_ONE_ANOTHER,
    np.arange(3.0),
    pd.NA,
    Unprintable(),
    b"\xff",
    range(10**12),
    "x" * 5_000,
]
CLIENT = LLMClient(LLMConfig(model="script"), ScriptedBackend([]))
ADAPTER = OllamaAdapter(CLIENT)
MESSAGE: Values = {"user_id": "ann", "message": "Hi", "conversation_id": "1"}
BUILDER = AgentContextBuilder("a day", simulator_awareness=False)
MAKERS: dict[str, Callable[[Any], object]] = {
    "a prompt": lambda odd: Prompt(odd),
    "a prompt's system": lambda odd: Prompt("x", system=odd),
    "a prompt's name": lambda odd: Prompt("x", name=odd),
    "prompts of a run": lambda odd: Simulation(prompts=odd),
    "a configuration": lambda odd: Simulation(odd),
    "players": lambda odd: Simulation(players=odd),
    "nations": lambda odd: Simulation(nations=odd),
    "interventions": lambda odd: Simulation(interventions=odd),
    "a context window": lambda odd: LLMConfig(num_ctx=odd),
    "how long to think": lambda odd: LLMConfig(think=odd),
    "how long to keep": lambda odd: LLMConfig(keep_alive=odd),
    "Ollama's address": lambda odd: OllamaBackend(host=odd),
    "a server's address": lambda odd: OpenAIBackend(base_url=odd),
    "a folder of hand-ins": lambda odd: grade(odd),
    "a room's folder": lambda odd: forget_names(odd),
    "a tape to publish": lambda odd: digest(odd),
    "a law's tape": lambda odd: exact(Simulation(), turns=1, tape=odd),
    "a client": lambda odd: checked_client(odd, "llm_client"),
    "a script": lambda odd: ScriptedBackend(odd),
    "a person": lambda odd: Person(stand_in=odd),
    "a model": lambda odd: connect(odd, quiet=True),
    "a rule": lambda odd: TaylorRule(neutral_real_rate=odd),
    "a quarter": lambda odd: initial_state(odd),
    "an agent's name": lambda odd: TaylorRuleAgent(odd),
    "an agent's limits": lambda odd: TaylorRuleAgent(limits=odd),
    "an agent's rule": lambda odd: TaylorRuleAgent(rule=odd),
    "an agent's moves": lambda odd: TaylorRuleAgent(moves_bp=[odd]),
    "a rule of an economy": lambda odd: closed_loop(odd),
    "a rule's answer": lambda odd: closed_loop(lambda **_: odd),
    "a rule's question": lambda odd: TaylorRule().rate(
        inflation=odd, output_gap=odd, previous_rate=odd
    ),
    "an economy": lambda odd: RudebuschSvensson().advance(odd, interest_rate=4),
    "a shock": lambda odd: closed_loop().response(supply=odd),
    "how long a response is": lambda odd: closed_loop().response(quarters=odd),
    "a run's quarters": lambda odd: QuadraticLoss().of(odd),
    "frames of runs": lambda odd: rate_figure(odd),
    "entries of a memory": lambda odd: Memory().replace(entries=odd),
    "a world's values": lambda odd: GameEngine(odd, {}),
    "values by agent": lambda odd: GameEngine({}, odd),
    "an agent's values": lambda odd: GameEngine({}, {"Ada": odd}),
    "modules of a world": lambda odd: GameEngine({}, {}, odd),
    "definitions": lambda odd: GameEngine({}, {}, variables=odd),
    "changes": lambda odd: GameEngine({}, {}).apply_state_updates(odd),
    "changes by agent": lambda odd: GameEngine({}, {}).apply_state_updates({"agent_vars": odd}),
    "modules": lambda odd: ComposedModules(odd),
    "a module": lambda odd: ComposedModules([odd]),
    "silenced modules": lambda odd: ComposedModules().silenced(odd),
    "a folder of modules": lambda odd: ModuleLoader(odd),
    "names of modules": lambda odd: ModuleLoader().load(odd),
    "a builder's modules": lambda odd: AgentContextBuilder("a day", False, odd),
    "a builder's briefing": lambda odd: AgentContextBuilder("a day", False, briefing=odd),
    "a builder's roles": lambda odd: AgentContextBuilder("a day", False, roles=odd),
    "a reader": lambda odd: BUILDER.build_prompt(odd, 1, {}, {}, {}, []),
    "a reader's values": lambda odd: BUILDER.build_prompt("Ada", 1, odd, {}, {}, []),
    "what others said": lambda odd: BUILDER.build_prompt("Ada", 1, {}, {}, odd, []),
    "another's words": lambda odd: BUILDER.build_prompt("Ada", 1, {}, {}, {"Bo": odd}, []),
    "events": lambda odd: BUILDER.build_prompt("Ada", 1, {}, {}, {}, odd),
    "a scenario": lambda odd: SimulatorAgent(odd, CLIENT),
    "a loader": lambda odd: CrisisScenario.load("strait").compose(odd),
    "an adapter": lambda odd: LLMAgentEngine(odd, None, "Be kind."),
    "a constitution": lambda odd: LLMAgentEngine(ADAPTER, None, odd),
    "an engine's settings": lambda odd: LLMAgentEngine(ADAPTER, None, "x", config=odd),
    "an engine's log": lambda odd: LLMAgentEngine(ADAPTER, None, "x", decision_log=odd),
    "a longest wait": lambda odd: LLMAgentEngine(ADAPTER, None, "x", call_timeout_s=odd),
    "a constitution's file": lambda odd: load_constitution(odd),
    "a log's file": lambda odd: DecisionLog(odd),
    "a tool": lambda odd: FunctionTools(odd),
    "tools that ask first": lambda odd: FunctionTools(destructive=odd),
    "a message": lambda odd: DecisionContext(**{**MESSAGE, "message": odd}),
    "earlier messages": lambda odd: DecisionContext(**MESSAGE, message_history=odd),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_value_of_whatever_kind_is_taken_or_is_an_error_that_can_be_read(
    make: Callable[[Any], object],
) -> None:
    messages: list[str] = []
    for odd in ODD_VALUES:
        try:
            repr(make(odd))
        except LabError as error:
            messages.append(str(error))
    assert max(map(len, messages)) < 2_000
