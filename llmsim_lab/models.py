"""The values a simulation is made of: decisions, actions, states, reasoning chains.

All of them are immutable. Rates are percent per year, confidence runs from 0 to 1, turns count from
0 (the initial state).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from llmsim_lab._util.frozen import FrozenDict
from llmsim_lab.types import (
    Confidence,
    Decision,
    LLMReasoningChain,
    Rate,
    Status,
    Text,
    Value,
)

__all__ = [
    "Action",
    "AgentState",
    "GlobalState",
    "LLMReasoningChain",
    "PolicyDecision",
    "SimulationState",
    "StateUpdateDecision",
    "ValidationResult",
]


class PolicyDecision(Decision):
    """What an agent proposes: any one policy action, in its own words."""

    action: Text
    reasoning: Text
    confidence: Confidence


class ValidationDecision(Decision):
    """What a validator's model says of one action."""

    is_valid: bool
    reasoning: Text
    confidence: Confidence


class StateUpdateDecision(Decision):
    """What an engine's model makes of one action: the new interest rate, percent per year."""

    new_interest_rate: Rate
    reasoning: Text
    confidence: Confidence
    action_applied: SkipJsonSchema[str] = ""


class ValidationResult(Value):
    """A validator's verdict on one action."""

    is_valid: bool
    reasoning: str = ""
    confidence: Confidence = 1.0
    action_evaluated: str = ""
    status: Status = "ok"
    chain: LLMReasoningChain | None = Field(default=None, repr=False)


class Action(Value):
    """A policy action an agent proposes; validators return a marked copy.

    Attributes:
        agent_name: who proposes it.
        action_string: the action in free words.
        policy_decision: the decision behind it, None for hand-made actions.
        validated: True once a validator accepted it.
        validation_result: the verdict, None before validation.
        rate_change_bp: the change of the interest rate in force that it asks for, basis points;
            code applies exactly that, within the bounds of the rate. A whole number is a move on
            offer; a rule that is held to none may ask for any change.
        proposed_rate: the interest rate it asks for instead, percent per year. Of an action that
            names neither, an engine's model judges the words.
        reasoning_chain_id: ``turn/component/agent`` of the chain below.
        chain: why the agent proposes it.
    """

    agent_name: Text
    action_string: Text
    policy_decision: PolicyDecision | None = None
    validated: bool = False
    validation_result: ValidationResult | None = None
    rate_change_bp: int | float | None = None
    proposed_rate: Rate | None = None
    status: Status = "ok"
    reasoning_chain_id: str | None = None
    chain: LLMReasoningChain | None = Field(default=None, repr=False)

    @model_validator(mode="after")
    def _one_size_and_call(self) -> Self:
        if self.rate_change_bp is not None and self.proposed_rate is not None:
            raise ValueError(
                f"rate_change_bp={self.rate_change_bp} and proposed_rate={self.proposed_rate:g} "
                "both say where the rate goes; give one of them"
            )
        # A decision's call is not a field, so one read from a tape comes without it.
        decision = self.policy_decision
        if decision is None or decision.call is not None or self.chain is None:
            return self
        if self.chain.call is not None:
            decision.with_call(self.chain.call)
        return self


class AgentState(Value):
    """What the simulation knows of one nation."""

    name: Text
    economic_strength: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 100.0
    """An index, 100 at the start."""


@dataclass(frozen=True, slots=True)
class MacroLags:
    """The recent past that a macro model with lags needs; the latest quarter first.

    Attributes:
        inflation: quarter-on-quarter inflation at annual rates, percent, four quarters.
        output_gap: percent of potential output, two quarters.
        interest_rate: policy rate, percent per year, four quarters.
    """

    inflation: tuple[float, float, float, float]
    output_gap: tuple[float, float]
    interest_rate: tuple[float, float, float, float]


class GlobalState(Value):
    """The economy at the end of a quarter. The defaults are the macro model's steady state.

    Attributes:
        interest_rate: the policy rate in force in the quarter, percent per year.
        total_economic_value: real output, an index (1000 at the start of a default run).
        gdp_growth: real growth on the quarter before, at an annual rate, percent.
        inflation: over four quarters, percent.
        unemployment: percent of the labour force.
        output_gap: output's distance from potential, percent of potential.
        lags: the recent past; filled with constants at the levels above where not given.
    """

    interest_rate: Rate = 4.0
    total_economic_value: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1000.0
    gdp_growth: Rate = 2.2
    inflation: Rate = 2.0
    unemployment: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = 5.0
    output_gap: Rate = 0.0
    lags: MacroLags = Field(default=None, repr=False)  # type: ignore[assignment]

    @model_validator(mode="after")
    def _fill_lags(self) -> Self:
        # After, since only then all levels are floats, whatever they were given as.
        if self.lags is None:
            # A past in which nothing moved.
            lags = MacroLags(
                (self.inflation,) * 4, (self.output_gap,) * 2, (self.interest_rate,) * 4
            )
            object.__setattr__(self, "lags", lags)
        return self


class SimulationState(Value):
    """Everything an agent may look at, at one turn.

    Attributes:
        turn: 0 for the initial state.
        agents: by name.
        global_state: the economy.
        reasoning_chains: of the turn that led here, not of earlier ones.
        period: the quarter, such as ``1979Q3``, or None in an undated run.
    """

    turn: Annotated[int, Field(ge=0)] = 0
    agents: Annotated[dict[str, AgentState], AfterValidator(FrozenDict)] = Field(
        default_factory=FrozenDict
    )
    global_state: GlobalState = Field(default_factory=GlobalState)
    reasoning_chains: tuple[LLMReasoningChain, ...] = ()
    period: Annotated[str, Field(pattern=r"^\d{4}Q[1-4]$")] | None = None
