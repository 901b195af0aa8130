"""All types of variables; YAML has them as ``{type: scale, label: Trust level, default: 50}``."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from llmsim_lab.context.quantities import NumberVariable, PercentVariable, ScaleVariable
from llmsim_lab.context.variable import Accepted, BaseVariable
from llmsim_lab.context.wording import value_text
from llmsim_lab.text import clip

__all__ = ["ChoiceVariable", "FlagVariable", "TextVariable", "Variable", "inferred"]

_FLAGS = {"true": True, "yes": True, "false": False, "no": False}


class TextVariable(BaseVariable):
    """A few words, on one line."""

    type: Literal["text"] = "text"
    max_chars: Annotated[int, Field(ge=1)] = 200
    default: str | None = None

    def accept(self, value: Any) -> Accepted:
        """Return the value as the variable takes it, or raise ``ValueError``."""
        if not isinstance(value, str):
            raise ValueError(f"{clip(repr(value), 60)} is {type(value).__name__}, not a text")
        line = " ".join(value.split())
        if len(line) > self.max_chars:
            raise ValueError(f"the text has {len(line)} characters, more than {self.max_chars}")
        return Accepted(line, "" if line == value else "spaces and line breaks were made single")

    def text(self, value: Any) -> str:
        """Write a value; an empty one as ``none``."""
        return value_text(value) or "none"

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON schema that a model's value is held to."""
        return {"type": "string", "maxLength": self.max_chars}


class FlagVariable(BaseVariable):
    """Yes or no."""

    type: Literal["flag"] = "flag"
    default: bool | None = None

    def accept(self, value: Any) -> Accepted:
        """Return the value as the variable takes it, or raise ``ValueError``."""
        if isinstance(value, bool):
            return Accepted(value)
        if isinstance(value, str) and (known := value.strip().lower()) in _FLAGS:
            return Accepted(_FLAGS[known], f"the text {value!r} was read as yes or no")
        raise ValueError(f"{clip(repr(value), 60)} is neither true nor false")

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON schema that a model's value is held to."""
        return {"type": "boolean"}


class ChoiceVariable(BaseVariable):
    """One of a few words."""

    type: Literal["choice"] = "choice"
    options: Annotated[tuple[str, ...], Field(min_length=2)]
    default: str | None = None

    def accept(self, value: Any) -> Accepted:
        """Return the value as the variable takes it, or raise ``ValueError``."""
        if value in self.options:
            return Accepted(value)
        if isinstance(value, str):
            for option in self.options:
                if option.lower() == value.strip().lower():
                    return Accepted(option, f"{value!r} was read as {option!r}")
        raise ValueError(f"{clip(repr(value), 60)} is not one of {', '.join(self.options)}")

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON schema that a model's value is held to."""
        return {"enum": list(self.options)}

    @model_validator(mode="after")
    def _options_differ(self) -> Self:
        if len({option.strip().lower() for option in self.options}) < len(self.options):
            raise ValueError("options: two of them differ in nothing but case or spaces")
        return self


Variable: TypeAlias = Annotated[
    ScaleVariable | PercentVariable | NumberVariable | TextVariable | FlagVariable | ChoiceVariable,
    Field(discriminator="type"),
]
"""A definition, as YAML has it: ``{type: scale, label: Trust level, default: 50}``."""


def inferred(value: Any) -> Variable:
    """Return a definition without bounds for a value that has none.

    Raises:
        ValueError: it is not a number, a text or a flag.
    """
    if isinstance(value, bool):
        return FlagVariable()
    if isinstance(value, int | float):
        return NumberVariable()
    if isinstance(value, str):
        return TextVariable()
    raise ValueError(
        f"{clip(repr(value), 60)} is {type(value).__name__}; a variable holds a number, a text or "
        "true or false"
    )
