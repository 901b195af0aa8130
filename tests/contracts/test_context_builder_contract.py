"""The context builder contract: its example as printed, its module interface, its step."""

from __future__ import annotations

import inspect
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from pydantic import ValidationError

from llmsim_lab.context import (
    AgentContextBuilder,
    EngineOutput,
    GameEngine,
    ModuleLoader,
    apply_deterministic_updates,
)
from llmsim_lab.context.scenario import CrisisScenario

EXAMPLE = """\
=== SITUATION (Day 3 of crisis) ===
Time: Step 3 (each step = 3 days)
Crisis level: 65/100
Blockade effectiveness: 55%
Diplomatic channels: Open

Recent events:
- Chinese vessel intercepted cargo ship bound for Kaohsiung
- US announced carrier group repositioning

=== YOUR CURRENT STATE ===
Military readiness: 70/100
Domestic pressure: 65/100
Escalation readiness: 40/100
Trust level: 68/100

=== WHAT OTHERS DID (Step 2) ===
China: "We are enforcing legitimate security measures. Foreign interference
will be met with resolve. Naval patrols expanded to cover southern approaches."

United States: "We urge restraint from all parties. The USS Reagan carrier
group is conducting routine repositioning. We remain committed to regional stability."

Japan: "We have activated maritime observation protocols and are coordinating
closely with US allies. Calling for diplomatic resolution."

=== TRUST DYNAMICS ===
Your trust is stable (68/100). Recent US support has maintained confidence
in alliance commitments.

=== YOUR DECISION ===
Based on this situation, what actions do you take?

Consider:
- Military posture adjustments
- Diplomatic communications (to whom? saying what?)
- Public statements
- Requests to allies

=== RESPONSE FORMAT ===
Structure your response as:
1. ASSESSMENT: Your read of the current situation (2-3 sentences)
2. ACTIONS: Specific decisions this turn
3. COMMUNICATIONS: Any messages to other parties"""

GLOBAL_STATE: dict[str, Any] = {
    "crisis_level": 65,
    "blockade_effectiveness": 55,
    "diplomatic_channels": "Open",
}
TAIWAN: dict[str, Any] = {
    "military_readiness": 70,
    "domestic_pressure": 65,
    "escalation_readiness": 40,
    "trust_level": 68,
    "trust_note": "Recent US support has maintained confidence in alliance commitments.",
}
SAID = {
    "Taiwan": "Our ports stay open.",
    "China": "We are enforcing legitimate security measures. Foreign interference\n"
    "will be met with resolve. Naval patrols expanded to cover southern approaches.",
    "United States": "We urge restraint from all parties. The USS Reagan carrier\n"
    "group is conducting routine repositioning. We remain committed to regional stability.",
    "Japan": "We have activated maritime observation protocols and are coordinating\n"
    "closely with US allies. Calling for diplomatic resolution.",
}
EVENTS = [
    {
        "type": "naval_incident",
        "description": "Chinese vessel intercepted cargo ship bound for Kaohsiung",
    },
    {"type": "deployment", "description": "US announced carrier group repositioning"},
]
MODULE_CODE = '''\
from typing import Any, Dict, Optional

def build_agent_context(
    agent_name: str,
    agent_state: Dict[str, Any],
    global_state: Dict[str, Any],
) -> Optional[str]:
    """Return context section for this agent, or None to skip."""
    trust = agent_state.get("trust_level", 50)
    if trust < 30:
        return f"WARNING: Trust critically low ({trust}/100). Others view you with suspicion."
    elif trust > 70:
        return f"ADVANTAGE: High trust ({trust}/100). Others are receptive to your proposals."
    return None

def compute_state_updates(
    agent_name: str,
    agent_state: Dict[str, Any],
    global_state: Dict[str, Any],
    step_number: int,
) -> Dict[str, Any]:
    """Return deterministic state changes, or empty dict."""
    updates = {}
    if agent_state.get("had_positive_interaction") is False:
        updates["trust_level"] = max(0, agent_state.get("trust_level", 50) - 1)
    return updates
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The document's modules folder: data, and the document's own code for one of them."""
    (tmp_path / "agents_base.yaml").write_text("description: data only\n")
    (tmp_path / "trust_dynamics.yaml").write_text(
        dedent("""\
            requires: [agents_base]
            variables:
              agent_vars:
                trust_level: {type: scale, default: 50}
                had_positive_interaction: {type: flag, default: true, shown: false}
        """)
    )
    (tmp_path / "trust_dynamics.py").write_text(MODULE_CODE)
    return tmp_path


def test_the_example_comes_out_as_printed_from_the_strait_scenario() -> None:
    builder = CrisisScenario.load("strait").builder()
    prompt = builder.build_prompt("Taiwan", 3, TAIWAN, GLOBAL_STATE, SAID, EVENTS)
    assert prompt.user == EXAMPLE
    assert prompt == f"{prompt.system}\n\n{EXAMPLE}"


def test_the_example_comes_out_as_printed_from_a_builder_without_roles() -> None:
    scenario = CrisisScenario.load("strait")
    builder = AgentContextBuilder("3 days", False, scenario.compose(), variables=scenario.variables)
    assert builder.build_prompt("Taiwan", 3, TAIWAN, GLOBAL_STATE, SAID, EVENTS) == EXAMPLE


def test_the_constructor_and_the_method_take_what_the_document_says() -> None:
    constructor = list(inspect.signature(AgentContextBuilder).parameters.values())
    assert [p.name for p in constructor[:3]] == [
        "time_step_duration",
        "simulator_awareness",
        "composed_modules",
    ]
    assert {p.kind for p in constructor[3:]} == {inspect.Parameter.KEYWORD_ONLY}
    assert list(inspect.signature(AgentContextBuilder.build_prompt).parameters) == [
        "self",
        "agent_name",
        "step_number",
        "agent_state",
        "global_state",
        "other_responses",
        "events",
    ]


@pytest.mark.parametrize(
    ("trust", "words"),
    [
        (20, "WARNING: Trust critically low (20/100). Others view you with suspicion."),
        (80, "ADVANTAGE: High trust (80/100). Others are receptive to your proposals."),
    ],
)
def test_the_documents_module_adds_its_section(folder: Path, trust: int, words: str) -> None:
    modules = ModuleLoader(folder).load(["trust_dynamics"])
    builder = AgentContextBuilder("3 days", False, modules)
    prompt = builder.build_prompt("Taiwan", 3, {"trust_level": trust}, {}, {}, [])
    assert f"\n\n=== TRUST DYNAMICS ===\n{words}\n\n=== YOUR DECISION ===" in prompt


def test_the_documents_module_adds_nothing_where_it_returns_none(folder: Path) -> None:
    modules = ModuleLoader(folder).load(["trust_dynamics"])
    prompt = AgentContextBuilder("3 days", False, modules).build_prompt(
        "Taiwan", 3, {"trust_level": 50}, {}, {}, []
    )
    assert "TRUST DYNAMICS" not in prompt


def test_a_modules_code_is_beside_its_data(folder: Path) -> None:
    base, trust = ModuleLoader(folder).load(["trust_dynamics", "agents_base"]).modules
    assert (base.name, base.code) == ("agents_base", None)
    assert trust.code.build_agent_context("Taiwan", {}, {}) is None


def test_one_step_goes_as_the_document_has_it(folder: Path) -> None:
    modules = ModuleLoader(folder).load(["trust_dynamics"])
    engine = GameEngine(
        {"crisis_level": 60},
        {"Taiwan": {"had_positive_interaction": False}, "China": {"trust_level": 90}},
        modules,
    )
    output = EngineOutput.model_validate(
        {
            "state_updates": {
                "global_vars": {"crisis_level": 65},
                "agent_vars": {"China": {"trust_level": 71}},
            },
            "events": [
                {
                    "type": "naval_incident",
                    "description": "Chinese vessel intercepted cargo ship",
                }
            ],
            "reasoning": "Crisis escalating due to the blockade",
        }
    )
    apply_deterministic_updates(modules, engine, 3)
    engine.apply_state_updates(output.state_updates)
    current_state = engine.get_current_state()
    builder = AgentContextBuilder("3 days", False, modules)
    prompts = {
        agent_name: builder.build_prompt(
            agent_name=agent_name,
            step_number=3,
            agent_state=current_state["agent_vars"][agent_name],
            global_state=current_state["global_vars"],
            other_responses={"Taiwan": "Hold.", "China": "Advance."},
            events=output.events,
        )
        for agent_name in ("Taiwan", "China")
    }
    assert "Trust level: 49/100" in prompts["Taiwan"]
    assert "ADVANTAGE: High trust (71/100)" in prompts["China"]
    assert "Crisis level: 65\n" in prompts["China"]
    assert "- Chinese vessel intercepted cargo ship" in prompts["Taiwan"]
    assert 'China: "Advance."' in prompts["Taiwan"]
    assert 'Taiwan: "Hold."' not in prompts["Taiwan"]


def test_the_engines_answer_has_no_agent_messages() -> None:
    with pytest.raises(ValidationError, match="agent_messages"):
        EngineOutput.model_validate(
            {"state_updates": {}, "events": [], "reasoning": "", "agent_messages": {"Taiwan": "Hi"}}
        )


def test_building_a_prompt_changes_none_of_its_arguments() -> None:
    builder = CrisisScenario.load("strait").builder()
    arguments = [dict(TAIWAN), dict(GLOBAL_STATE), dict(SAID), [dict(event) for event in EVENTS]]
    first = builder.build_prompt("Taiwan", 3, *arguments)  # type: ignore[arg-type]
    assert arguments == [TAIWAN, GLOBAL_STATE, SAID, EVENTS]
    assert builder.build_prompt("Taiwan", 3, *arguments) == first  # type: ignore[arg-type]
