"""Variables: the types that they have, and how their values are checked and written.

A value from a model or from module code is accepted as it is or refused with a reason; it is never
moved into its bounds, and no text is read as a number.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, FiniteFloat, model_validator

from llmsim_lab._util.config import Settings
from llmsim_lab._util.text import brief, number
from llmsim_lab.errors import ConfigError

Scalar: TypeAlias = bool | int | float | str
"""What a variable holds."""
VariableSchema: TypeAlias = dict[str, Any]
"""The JSON schema of a variable's values."""

_Step = Annotated[FiniteFloat, Field(gt=0)]
_Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]

_LARGEST = 1e15
"""Beyond it, floats no longer hold cents."""


class BaseVariable(Settings):
    """What all types of variables have.

    Attributes:
        label: how prompts name it; made of the variable's name where empty.
        description: what it means, for people and for the engine's model.
        shown: whether prompts list it; module code sees it in any case.
        engine_may_set: whether the engine's model may change it; if not, it is for modules' code.
    """

    label: str = ""
    description: str = ""
    shown: bool = True
    engine_may_set: bool = True

    @abstractmethod
    def accept(self, value: object) -> Scalar:
        """Return the value as the variable takes it: 65 for 65.0, a text on one line.

        Raises:
            ValueError: it is of the wrong type or out of bounds; the message has value and limit.
        """

    def text(self, value: object) -> str:
        """Return a value as prompts show it, with its unit or scale."""
        return value_text(value)

    @model_validator(mode="after")
    def _default_is_possible(self) -> Self:
        # Each type declares its own default, since each has another type of value.
        default = getattr(self, "default", None)
        if default is not None:
            self.accept(default)
        return self


class NumericVariable(BaseVariable):
    """Bounded numbers.

    Attributes:
        min: the least value, or None.
        max: the greatest value, or None.
        step: values are whole multiples of it; None allows any number.
        default: the value at the start.
    """

    min: FiniteFloat | None = None
    max: FiniteFloat | None = None
    step: _Step | None = None
    default: FiniteFloat | None = None

    @property
    def suffix(self) -> str:
        """What follows the number, with the space before it."""
        return ""

    @property
    def whole(self) -> bool:
        """True if only whole numbers are values."""
        return self.step is not None and self.step.is_integer()

    def accept(self, value: object) -> float:
        # True is an int for Python.
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{brief(value)} is {type(value).__name__}, not a number")
        # "not <" rather than ">=": NaN has to end up here too.
        if not abs(value) < _LARGEST:
            raise ValueError(f"{brief(value)} is not a number below {_LARGEST:g}")
        if self.min is not None and value < self.min:
            raise ValueError(f"{value:g} is below the least value, {self.min:g}")
        if self.max is not None and value > self.max:
            raise ValueError(f"{value:g} is above the greatest value, {self.max:g}")
        if self.step:
            # Not value % step: 0.3 % 0.1 is 0.09999999999999998.
            steps = value / self.step
            distance = abs(steps - round(steps))
            if distance >= 1e-9:
                raise ValueError(f"{value:g} is not a multiple of {self.step:g}")
        if self.whole:
            # 65, not 65.0, in prompts and frames.
            return round(value)
        return value

    def text(self, value: object) -> str:
        if type(value) not in (int, float):
            return value_text(value)
        return value_text(value) + self.suffix

    def json_schema(self) -> VariableSchema:
        schema: VariableSchema = {"type": "integer" if self.whole else "number"}
        if self.min is not None:
            schema["minimum"] = self._as_bound(self.min)
        if self.max is not None:
            schema["maximum"] = self._as_bound(self.max)
        return schema

    def _as_bound(self, bound: float) -> float:
        # 0, not 0.0, beside values that are integers.
        if self.whole and bound.is_integer():
            return int(bound)
        return bound

    @model_validator(mode="after")
    def _bounds_are_in_order(self) -> Self:
        # Equal bounds would leave one value, and a scale without a length.
        if self.min is not None and self.max is not None and self.min >= self.max:
            raise ValueError(f"min {self.min:g} is not below max {self.max:g}")
        return self


class ScaleVariable(NumericVariable):
    """A position on a scale, by default whole numbers from 0 to 100: ``65/100``."""

    type: Literal["scale"] = "scale"
    # A scale always has both ends: prompts write a position against the upper one.
    min: FiniteFloat = 0.0
    max: FiniteFloat = 100.0
    step: _Step = 1.0

    @property
    def suffix(self) -> str:
        if self.min == 0:
            return f"/{number(self.max)}"
        return f" on a scale from {number(self.min)} to {number(self.max)}"


class PercentVariable(NumericVariable):
    """A share, by default whole percent from 0 to 100: ``55%``."""

    type: Literal["percent"] = "percent"
    min: FiniteFloat | None = 0.0
    max: FiniteFloat | None = 100.0
    step: _Step | None = 1.0

    @property
    def suffix(self) -> str:
        return "%"


class NumberVariable(NumericVariable):
    """Any amount, with a unit: ``12.5 bn EUR``."""

    type: Literal["number"] = "number"
    unit: str = ""

    @property
    def suffix(self) -> str:
        return f" {self.unit}" if self.unit else ""


class TextVariable(BaseVariable):
    """A few words, on one line."""

    type: Literal["text"] = "text"
    max_chars: Annotated[int, Field(ge=1)] = 200
    default: str | None = None

    def accept(self, value: object) -> str:
        if not isinstance(value, str):
            raise ValueError(f"{brief(value)} is {type(value).__name__}, not a text")
        # On one line: a model wrote it, and it must not pass for a section of the next prompts.
        line = " ".join(value.split())
        if len(line) > self.max_chars:
            raise ValueError(f"the text has {len(line)} characters, more than {self.max_chars}")
        return line

    def text(self, value: object) -> str:
        return value_text(value) or "none"

    def json_schema(self) -> VariableSchema:
        return {"type": "string", "maxLength": self.max_chars}


class FlagVariable(BaseVariable):
    """Yes or no."""

    type: Literal["flag"] = "flag"
    default: bool | None = None

    def accept(self, value: object) -> bool:
        # Not 0, 1 or "yes" either: a reply that has these was not made by the schema.
        if not isinstance(value, bool):
            raise ValueError(f"{brief(value)} is neither true nor false")
        return value

    def json_schema(self) -> VariableSchema:
        return {"type": "boolean"}


class ChoiceVariable(BaseVariable):
    """One of a few words."""

    type: Literal["choice"] = "choice"
    options: Annotated[tuple[str, ...], Field(min_length=2)]
    default: str | None = None

    def accept(self, value: object) -> str:
        if value not in self.options:
            raise ValueError(f"{brief(value)} is not one of {', '.join(self.options)}")
        return str(value)

    def json_schema(self) -> VariableSchema:
        return {"enum": [*self.options]}


ANY = NumberVariable()
"""Shows values of variables that are not defined, and takes any number."""

Variable: TypeAlias = Annotated[
    ScaleVariable | PercentVariable | NumberVariable | TextVariable | FlagVariable | ChoiceVariable,
    Field(discriminator="type"),
]
"""A definition, as YAML has it: ``{type: scale, label: Trust level, default: 50}``."""


def inferred(name: str, value: object) -> Variable:
    """Return a definition without bounds for a value that has none.

    Raises:
        ConfigError: it is not a number, a text or a flag.
    """
    # First, since True is an int for Python.
    if isinstance(value, bool):
        return FlagVariable()
    if isinstance(value, int | float):
        return ANY
    if isinstance(value, str):
        return TextVariable()
    raise ConfigError(
        f"{name}: {brief(value)} is {type(value).__name__}; a variable holds a number, a text or "
        "true or false"
    )


class Variables(Settings):
    """Definitions by name; their order is the order in which prompts list the variables.

    Attributes:
        global_vars: of the world.
        agent_vars: of every agent.
    """

    global_vars: dict[_Name, Variable] = Field(default_factory=dict)
    agent_vars: dict[_Name, Variable] = Field(default_factory=dict)


def humanise(name: str) -> str:
    """Return a name as a label: ``crisis_level`` becomes ``Crisis level``."""
    words = name.replace("_", " ").strip()
    return words[:1].upper() + words[1:]


def value_text(value: object) -> str:
    """Return a value as prompts show it without a definition, on one line."""
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "Yes" if value else "No"
    if isinstance(value, int | float):
        return number(value)
    return " ".join(str(value).split())
