"""What every type of variable has: a label, a default, and how values are taken and written.

A value from a model or from module code is accepted as it is, accepted after a conversion that is
reported (``"65"`` for 65, ``open`` for ``Open``), or refused with a reason. It is never moved into
its bounds.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple, Self, TypeAlias

from pydantic import model_validator

from llmsim_lab.context.wording import value_text
from llmsim_lab.settings import Settings

__all__ = ["Accepted", "BaseVariable", "Scalar"]

Scalar: TypeAlias = bool | int | float | str
"""What a variable holds."""


class Accepted(NamedTuple):
    """A value that a variable takes, and what had to be converted for it, if anything."""

    value: Scalar
    repair: str = ""


class BaseVariable(Settings):
    """What all types have.

    Attributes:
        label: how prompts name it; made of the variable's name where empty.
        description: what it means, for people and for the engine's model.
        shown: whether prompts list it; module code sees it anyway.
        engine_may_set: whether the engine's model may change it; if not, it is for modules' code.
    """

    label: str = ""
    description: str = ""
    shown: bool = True
    engine_may_set: bool = True

    @property
    def initial(self) -> Scalar | None:
        """The default, or None if each run must say where it starts."""
        default: Scalar | None = getattr(self, "default", None)
        return default

    @abstractmethod
    def accept(self, value: Any) -> Accepted:
        """Return the value as the variable takes it.

        Raises:
            ValueError: it is of the wrong type or out of bounds; the message has value and limit.
        """

    def text(self, value: Any) -> str:
        """Write a value with its unit or scale."""
        return value_text(value)

    @abstractmethod
    def json_schema(self) -> dict[str, Any]:
        """Return the JSON schema that a model's value is held to."""

    @model_validator(mode="after")
    def _default_is_possible(self) -> Self:
        if self.initial is not None and self.accept(self.initial).repair:
            raise ValueError(f"default: {self.initial!r} is not of the variable's type")
        return self
