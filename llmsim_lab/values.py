"""What the values of any simulation are made of: immutable models, decisions, reply schemas."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, NoReturn, Self

from markupsafe import Markup
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    StringConstraints,
    ValidationInfo,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from llmsim_lab.calls import CallRecord
from llmsim_lab.errors import ConfigError
from llmsim_lab.faces import call_html, fields_html

__all__ = [
    "WIRE",
    "Confidence",
    "Decision",
    "FrozenDict",
    "FrozenList",
    "Immutable",
    "Rate",
    "Reply",
    "Text",
    "Value",
    "reply_schema",
]

_CONFIDENCE_GRID = [round(0.05 * step, 2) for step in range(21)]

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Rate = Annotated[float, Field(allow_inf_nan=False)]
Confidence = Annotated[
    float, Field(ge=0, le=1, allow_inf_nan=False, json_schema_extra={"enum": _CONFIDENCE_GRID})
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
        if self.__pydantic_extra__ is None and self.__pydantic_private__ is None:
            copied = type(self).__new__(type(self))
            object.__setattr__(copied, "__dict__", self.__dict__.copy())
            object.__setattr__(copied, "__pydantic_extra__", None)
            object.__setattr__(copied, "__pydantic_private__", None)
        else:
            copied = super().__copy__()
        object.__setattr__(copied, "__pydantic_fields_set__", self._every_field)
        return copied

    def _face(self) -> Markup:
        """Return the HTML that shows the value in a notebook."""
        return fields_html(self)

    def _repr_html_(self) -> str:
        return str(self._face())


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

    def _face(self) -> Markup:
        return fields_html(self, more=[("call", call_html(self.call))] if self.call else [])

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and dict(self) == dict(other)

    def __hash__(self) -> int:
        return hash((type(self), *dict(self).values()))


WIRE: dict[str, Any] = {"wire": True}
"""The context in which pydantic reads what a model said, where no field may be left out."""


class Reply(Decision):
    """The base of what a world's players are asked for: derive from it and annotate fields.

    A model is asked for ``reasoning`` first, then for the fields of the class in their order, then
    for ``confidence``, and must give them all. Rules and people may leave out what has a default.

    Attributes:
        reasoning: why, in the player's own words.
        confidence: 0 to 1; None where nobody said.

    Example:
        >>> class Gift(Reply):
        ...     amount: int = Field(ge=0, le=20, description="coins for the pot")
        >>> Gift(amount=5).confidence is None
        True
    """

    reasoning: str = ""
    confidence: Confidence | SkipJsonSchema[None] = None

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        for name in cls.model_fields:
            if name not in Reply.model_fields and hasattr(Reply, name):
                raise ConfigError(
                    f"{cls.__name__}.{name}: every Reply has something else of that name; call the "
                    f"field something else, such as {name}_"
                )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: Any, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        schema = handler.resolve_ref_schema(handler(core_schema))
        fields = dict(schema["properties"])
        last = fields.pop("confidence")
        schema["properties"] = {"reasoning": fields.pop("reasoning"), **fields, "confidence": last}
        return schema

    @model_validator(mode="before")
    @classmethod
    def _nothing_left_out(cls, values: Any, info: ValidationInfo) -> Any:
        if info.context is WIRE and isinstance(values, dict):
            gone = [name for name in cls.model_fields if name not in values]
            if "confidence" in values and values["confidence"] is None:
                gone.append("confidence")
            if gone:
                raise PydanticCustomError("lacking", "it lacks {gone}", {"gone": ", ".join(gone)})
        return values


def reply_schema(model: type[BaseModel], *, max_text: int | None = None) -> dict[str, Any]:
    """Return the JSON schema that a language model's reply is held to.

    It is the pydantic model's own schema without what only people read, with every field required
    (or those that an object names as ``x-required``) and no other allowed.

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
            node["required"] = node.pop("x-required", list(node["properties"]))
            node["additionalProperties"] = False
        for key in ("properties", "$defs"):
            for child in node.get(key, {}).values():
                visit(child)
        for child in (node.get("items"), *node.get("anyOf", ())):
            if isinstance(child, dict):
                visit(child)

    visit(schema)
    return schema


def _never_in_place(*_: Any, **__: Any) -> NoReturn:
    raise ConfigError(
        "a state or a parameter is never changed in place; make a new value and put it into the "
        "next state: "
        "state.replace(coins={**state.coins, 'Ann': 3}), state.replace(bids=[*state.bids, 3])"
    )


class FrozenDict(dict[str, Any]):
    """A dict that cannot be changed: states are shared by all turns that they are part of."""

    __setitem__ = __delitem__ = __ior__ = _never_in_place
    clear = pop = popitem = setdefault = update = _never_in_place

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (dict(self),)


class FrozenList(list[Any]):
    """A list that cannot be changed, as states hold."""

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _never_in_place
    append = extend = insert = pop = remove = clear = sort = reverse = _never_in_place

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (list(self),)
