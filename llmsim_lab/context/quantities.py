"""Variables that are numbers: scales, percentages, and amounts with a unit."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from llmsim_lab.context.variable import Accepted, BaseVariable, Scalar
from llmsim_lab.context.wording import value_text
from llmsim_lab.text import clip, number

__all__ = ["NumberVariable", "PercentVariable", "ScaleVariable"]

Finite = Annotated[float, Field(allow_inf_nan=False)]

_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?")
_MOST_IN_AN_ENUM = 200
_LARGEST = 1e15
"""Beyond it, floats no longer hold cents."""


class _Numeric(BaseVariable):
    """Bounded numbers.

    Attributes:
        min: the least value, or None.
        max: the greatest value, or None.
        step: values are whole multiples of it; None allows any number.
        default: the value at the start.
    """

    min: Finite | None = None
    max: Finite | None = None
    step: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    default: Finite | None = None

    @property
    def initial(self) -> Scalar | None:
        return None if self.default is None else self._tidy(self.default)

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are values."""
        return self.step is not None and self.step.is_integer()

    def _tidy(self, value: float) -> int | float:
        return int(value) if self.whole and float(value).is_integer() else value

    def accept(self, value: Any) -> Accepted:
        repair = ""
        if isinstance(value, str):
            bare = value.strip().removesuffix(self._suffix.strip()).strip()
            if not _NUMBER.fullmatch(bare):
                raise ValueError(f"{clip(repr(value), 60)} is not a number")
            repair = f"the text {value!r} was read as a number"
            value = float(bare) if "." in bare else int(bare)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{clip(repr(value), 60)} is {type(value).__name__}, not a number")
        if not abs(value) < _LARGEST:
            finite = isinstance(value, int) or math.isfinite(value)
            what = f"larger than {_LARGEST:g}" if finite else "not a finite number"
            raise ValueError(f"{clip(repr(value), 60)} is {what}")
        if self.min is not None and value < self.min:
            raise ValueError(f"{value:g} is below the least value, {self.min:g}")
        if self.max is not None and value > self.max:
            raise ValueError(f"{value:g} is above the greatest value, {self.max:g}")
        if self.step is not None and not _is_multiple(value, self.step):
            raise ValueError(f"{value:g} is not a multiple of {self.step:g}")
        tidy = self._tidy(value)
        if type(tidy) is not type(value):
            repair = repair or f"{value!r} was read as the whole number {tidy}"
        return Accepted(tidy, repair)

    @property
    @abstractmethod
    def _suffix(self) -> str:
        """What follows the number, with the space before it."""

    def text(self, value: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return value_text(value)
        return number(value) + self._suffix

    def json_schema(self) -> dict[str, Any]:
        if grid := self._grid():
            return {"enum": grid}
        schema: dict[str, Any] = {"type": "integer" if self.whole else "number"}
        if self.min is not None:
            schema["minimum"] = self._tidy(self.min)
        if self.max is not None:
            schema["maximum"] = self._tidy(self.max)
        return schema

    def _grid(self) -> list[int | float]:
        """List the values, where they are few and servers would not hold a model to them else."""
        if self.min is None or self.max is None or self.step is None or self.step == 1:
            return []
        first, last = math.ceil(self.min / self.step), math.floor(self.max / self.step)
        if last - first > _MOST_IN_AN_ENUM:
            return []
        return [self._tidy(round(place * self.step, 10)) for place in range(first, last + 1)]

    @model_validator(mode="after")
    def _bounds_are_in_order(self) -> Self:
        if self.min is not None and self.max is not None and self.min >= self.max:
            raise ValueError(f"min {self.min:g} is not below max {self.max:g}")
        return self


class ScaleVariable(_Numeric):
    """A position on a scale, whole numbers from 0 to 100 unless said otherwise: ``65/100``."""

    type: Literal["scale"] = "scale"
    min: Finite = 0.0
    max: Finite = 100.0
    step: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0

    @property
    def _suffix(self) -> str:
        return (
            f"/{number(self.max)}"
            if self.min == 0
            else f" on a scale from {self.min:g} to {self.max:g}"
        )


class PercentVariable(_Numeric):
    """A share, whole percent from 0 to 100 unless said otherwise: ``55%``."""

    type: Literal["percent"] = "percent"
    min: Finite | None = 0.0
    max: Finite | None = 100.0
    step: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = 1.0

    @property
    def _suffix(self) -> str:
        return "%"


class NumberVariable(_Numeric):
    """Any amount, with a unit: ``12.5 bn EUR``."""

    type: Literal["number"] = "number"
    unit: str = ""

    @property
    def _suffix(self) -> str:
        return f" {self.unit}" if self.unit else ""


def _is_multiple(value: float, step: float) -> bool:
    ratio = value / step
    return abs(ratio - round(ratio)) < 1e-9
