"""The values a simulation is made of: decisions, actions, states, reasoning chains.

All of them are immutable. Rates are percent per year, confidence runs from 0 to 1, turns count from
0 (the initial state).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from llmsim_lab.calls import CallRecord, Status
from llmsim_lab.logs import logfmt

__all__ = [
    "Action",
    "AgentState",
    "Confidence",
    "Decision",
    "FrozenDict",
    "GlobalState",
    "Immutable",
    "LLMReasoningChain",
    "MacroLags",
    "PolicyDecision",
    "SimulationState",
    "StateUpdateDecision",
    "ValidationDecision",
    "ValidationResult",
    "Value",
    "reply_schema",
]

CONFIDENCE_GRID = [round(0.05 * step, 2) for step in range(21)]

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Rate = Annotated[float, Field(allow_inf_nan=False)]
Confidence = Annotated[
    float, Field(ge=0, le=1, allow_inf_nan=False, json_schema_extra={"enum": CONFIDENCE_GRID})
]
"""0 to 1. The schema names a grid of 0.05, since servers do not hold numbers to a range."""


class Immutable(BaseModel):
    """Base of all models here.

    Which fields were given and which were left to their defaults is forgotten: all count as given.
    One set per instance for that would be a third of what a run keeps in memory.
    """

    model_config = ConfigDict(frozen=True)

    _every_field: ClassVar[set[str]] = set()

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        cls._every_field = set(cls.model_fields)

    def model_post_init(self, _context: Any, /) -> None:
        """Share the set of given fields among all instances of the class."""
        object.__setattr__(self, "__pydantic_fields_set__", self._every_field)

    def __copy__(self) -> Self:
        copied = super().__copy__()
        object.__setattr__(copied, "__pydantic_fields_set__", self._every_field)
        return copied


class Value(Immutable):
    """Base of the immutable values here: unknown fields are errors."""

    model_config = ConfigDict(extra="forbid")


class Decision(Immutable):
    """Base of what a model is asked for; carries the record of the call that produced it.

    Unknown fields in a reply are dropped, since small models add them; missing or wrong ones are
    errors. Two decisions are equal if the model said the same, whatever the call cost.
    """

    model_config = ConfigDict(extra="ignore")

    @property
    def call(self) -> CallRecord | None:
        """The request, reply, tokens, seconds, attempts and status; None if no model was called."""
        return self.__dict__.get("_call")

    def with_call(self, call: CallRecord) -> Self:
        """Attach the record of the call, which is no field; returns this same decision."""
        self.__dict__["_call"] = call
        return self

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and dict(self) == dict(other)

    def __hash__(self) -> int:
        return hash((type(self), *dict(self).values()))


def reply_schema(model: type[BaseModel], *, max_text: int | None = None) -> dict[str, Any]:
    """Return the JSON schema that a language model's reply is held to.

    It is the pydantic model's own schema without what only people read, with every field required
    and no other allowed.

    Args:
        model: what the reply must be.
        max_text: longest text field, characters; None leaves texts unbounded.
    """
    schema = model.model_json_schema()
    schema.pop("description", None)

    def visit(node: dict[str, Any]) -> None:
        node.pop("title", None)
        node.pop("default", None)
        if "enum" in node:
            node.pop("minimum", None)
            node.pop("maximum", None)
        elif node.get("type") == "string" and max_text is not None:
            node["maxLength"] = min(max_text, node.get("maxLength", max_text))
        if "properties" in node:
            node["required"] = list(node["properties"])
            node["additionalProperties"] = False
        for key in ("properties", "$defs"):
            for child in node.get(key, {}).values():
                visit(child)
        for child in (node.get("items"), *node.get("anyOf", ())):
            if isinstance(child, dict):
                visit(child)

    visit(schema)
    return schema


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


class LLMReasoningChain(Value):
    """Why a component did what it did in a turn; ``str`` gives it as one logfmt line.

    Attributes:
        component: ``agent``, ``validator`` or ``engine``.
        agent: the agent that decided, or whose action was judged or applied.
        turn: the turn being played: the number of the state it leads to.
        reasoning: the model's own explanation.
        confidence: 0 to 1.
        status: how the decision came about.
        call: the model call, or None where a rule decided.
    """

    model_config = ConfigDict(populate_by_name=True)

    component: str
    agent: str
    turn: int
    reasoning: str
    confidence: Confidence = 1.0
    status: Status = "ok"
    call: CallRecord | None = None
    prompt_text: str = Field(
        default="", validation_alias=AliasChoices("prompt", "prompt_text"), repr=False
    )

    @property
    def prompt(self) -> str:
        """The prompt as the model got it in its first attempt; empty where a rule decided."""
        return self.call.history[0].request.prompt if self.call else self.prompt_text

    def __str__(self) -> str:
        return logfmt(
            component=self.component,
            agent_id=self.agent,
            turn=self.turn,
            status=self.status,
            confidence=self.confidence,
            reasoning=self.reasoning,
        )


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
        proposed_rate: the interest rate it asks for, percent per year, where it names one; engines
            without a model need it.
        reasoning_chain_id: ``turn/component/agent`` of the chain below.
        chain: why the agent proposes it.
    """

    agent_name: Text
    action_string: Text
    policy_decision: PolicyDecision | None = None
    validated: bool = False
    validation_result: ValidationResult | None = None
    proposed_rate: Rate | None = None
    status: Status = "ok"
    reasoning_chain_id: str | None = None
    chain: LLMReasoningChain | None = Field(default=None, repr=False)


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

    @classmethod
    def constant(cls, *, inflation: float, output_gap: float, interest_rate: float) -> MacroLags:
        """Return a past in which nothing moved."""
        return cls((inflation,) * 4, (output_gap,) * 2, (interest_rate,) * 4)


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

    @model_validator(mode="before")
    @classmethod
    def _none_means_left_out(cls, values: Any) -> Any:
        if isinstance(values, dict) and "lags" in values and values["lags"] is None:
            return {key: value for key, value in values.items() if key != "lags"}
        return values

    @model_validator(mode="after")
    def _fill_lags(self) -> Self:
        # After, since only then all levels are floats, whatever they were given as.
        if self.lags is None:
            lags = MacroLags.constant(
                inflation=self.inflation,
                output_gap=self.output_gap,
                interest_rate=self.interest_rate,
            )
            object.__setattr__(self, "lags", lags)
        return self


class FrozenDict(dict[str, Any]):
    """A dict that cannot be changed: states are shared by all turns that they are part of."""

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError("states are immutable; state.model_copy(update={...}) makes another one")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (dict(self),)


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
