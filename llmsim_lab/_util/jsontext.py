"""JSON as tapes and pages have it: every text a model may write, and no number that JSON lacks."""

from __future__ import annotations

import cmath
import gc
import json
import math
import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from decimal import Decimal
from typing import Any, TypeAlias, TypeVar

from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError
from pydantic_core import from_json

from llmsim_lab._util.checks import plain_number
from llmsim_lab._util.text import faults
from llmsim_lab.errors import TapeError

T = TypeVar("T")

JSON: TypeAlias = JsonValue
"""A value of JSON: texts, numbers, truth values, None, and lists and dicts of these.

For what is read, or made anew: a function that only reads a value, from anywhere, takes ``object``,
since a ``dict[str, str]`` is not a ``dict[str, JSON]`` to a type checker.
"""
JSONObject: TypeAlias = dict[str, JSON]
Schema: TypeAlias = Mapping[str, Any]
"""A JSON schema, or a part of one: what its members hold depends on their names."""

# Not after an odd number of backslashes, which say a backslash and no character.
_HALF_CHARACTER = re.compile(r"\\(?<!\\\\)((?:\\\\)*)u[dD][89a-fA-F][0-9a-fA-F]{2}")
_MOST_NAMED = 20_000
_LONG = 2**18
"""Of a text that takes long to parse, in bytes."""
SCALARS = frozenset((str, int, float, bool, type(None)))
ALWAYS_FINITE = SCALARS - {float}
MOST_LEVELS = 190
"""Of lists and dicts in one another: readers take 200, and a line of a tape has some itself."""


def number_of(value: object) -> JSON:
    """Return a number of numpy's as one of Python's, which JSON can hold.

    Raises:
        TypeError: it is something else.
    """
    number: JSON = plain_number(value)
    if type(number) in SCALARS:  # of more digits than a float has, it is the same again
        return number
    raise TypeError(f"JSON has no {type(value).__name__}")


encode = json.JSONEncoder(
    separators=(",", ":"),
    ensure_ascii=False,
    allow_nan=False,
    default=number_of,
).encode


def dumps(value: object) -> str:
    """Return JSON that UTF-8 can encode, also of a text with half a character (a surrogate).

    Models that are stopped in the middle of an emoji write such texts.

    Raises:
        ValueError: a number is not finite, which JSON cannot hold.
    """
    text = encode(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        # Escapes can say what UTF-8 cannot.
        return json.dumps(
            value,
            separators=(",", ":"),
            allow_nan=False,
            default=number_of,
        )
    return text


def _once(pairs: list[tuple[str, JSON]]) -> JSONObject:
    members = dict(pairs)
    # Python takes the last of two; another reader of the tape might take the first.
    if len(members) < len(pairs):
        raise ValueError("it names a member twice")
    return members


def _not_finite(constant: str) -> float:
    raise ValueError(f"it holds {constant}, which is not a number of JSON")


_strict = json.JSONDecoder(parse_constant=_not_finite, object_pairs_hook=_once)


def _parsed(
    parse: Callable[[], T],
    size: int,
) -> T:
    """Return what a text holds; Python does not look for garbage while a long one is parsed.

    Nothing becomes garbage meanwhile, and looking through all the lists again and again takes eight
    times as long as making them.
    """
    if size < _LONG or not gc.isenabled():
        return parse()
    gc.disable()
    try:
        return parse()
    finally:
        gc.enable()


def loads_strictly(line: bytes) -> Any:
    """Return what a line of JSON holds.

    Raises:
        ValueError: it is not JSON in UTF-8, names a member twice, is nested too deeply, or holds a
            number that is not finite or that Python does not read, of more than 4,300 digits.
    """
    try:
        return _parsed(lambda: _strict.decode(line.decode()), len(line))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def loads(text: str | bytes) -> Any:
    """Return what JSON holds that this package wrote, in half the time; also half characters.

    Raises:
        ValueError: it is not JSON, or holds a number that is not finite.
    """
    try:
        return _parsed(lambda: from_json(text, allow_inf_nan=False), len(text))
    except ValueError:
        # Slower, and it reads half characters.
        as_bytes = text if isinstance(text, bytes) else text.encode()
        return loads_strictly(as_bytes)


def read(
    adapter: TypeAdapter[T],
    text: str | bytes,
    context: object = None,
    *,
    within: int = 0,
) -> T:
    """Return what a JSON text holds, strictly of the adapter's type.

    Args:
        adapter: of the type.
        text: the JSON.
        context: what the type's own validators are handed, if any.
        within: how many levels stand around what is meant: places in messages begin below them.

    Raises:
        ValueError: it holds something else; says where, in words.
    """

    def validated(json_text: str | bytes) -> T:
        return adapter.validate_json(
            json_text,
            strict=True,
            context=context,
            by_alias=True,
            by_name=True,
        )

    try:
        try:
            return _parsed(lambda: validated(text), len(text))
        except ValidationError:
            whole = text if isinstance(text, str) else text.decode()
            if not _HALF_CHARACTER.search(whole):
                raise
            # Pydantic does not read half characters: it checks the types without them, and the
            # json module reads the texts.
            validated(_HALF_CHARACTER.sub(r"\1?", whole))
            return adapter.validate_python(
                json.loads(whole),
                context=context,
                by_alias=True,
                by_name=True,
            )
    except ValidationError as error:
        raise ValueError(faults(error, within=within)) from error
    except UnicodeError as error:
        raise ValueError(error) from error


@contextmanager
def checked(place: str) -> Iterator[None]:
    """Raise TapeError, with these words first, where what is read does not hold what it should."""
    try:
        yield
    except ValidationError as error:
        raise TapeError(f"{place}: {faults(error)}") from error
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise TapeError(f"{place}: {error}") from error


def write(adapter: TypeAdapter[Any], value: object) -> bytes:
    """Return a value of the adapter's type as JSON, without what has its default or is None."""
    try:
        return adapter.serializer.to_json(
            value,
            exclude_defaults=True,
            exclude_none=True,
        )
    except ValueError:  # half a character, which pydantic cannot write
        ready = adapter.dump_python(
            value,
            mode="json",
            exclude_defaults=True,
            exclude_none=True,
        )
        return dumps(ready).encode()


def text_of_model(model: BaseModel) -> str:
    """Return a pydantic model as JSON, as its ``model_dump_json`` does, also half characters."""
    try:
        return model.model_dump_json()
    except ValueError:
        return dumps(model.model_dump(mode="json"))


def all_finite(value: object) -> bool:
    """Return True if no number in a value, as deep as it is, is infinite or NaN."""
    if type(value) is float:  # most are, and this is asked of every answer
        return math.isfinite(value)
    todo = [value]
    # Not by recursion: a value may be nested deeper than Python's stack.
    while todo:
        item = todo.pop()
        # First what a large value is made of: lists, and in them texts and whole numbers.
        if type(item) is list:
            todo += [part for part in item if type(part) not in ALWAYS_FINITE]
        elif isinstance(item, Decimal):
            if not item.is_finite():
                return False
        elif isinstance(item, float | complex):
            if not cmath.isfinite(item):
                return False
        else:
            todo += _parts_of(item)
    return True


def is_too_deep(value: object) -> bool:
    """Return True if a value has more levels than a line of a tape can hold."""
    level = [value]
    for _ in range(MOST_LEVELS + 1):  # the last one is of numbers and texts
        inside: list[object] = []
        for item in level:
            if type(item) not in SCALARS:
                inside += _parts_of(item)
        if not inside:
            return False
        level = inside
    return True


def _parts_of(value: object) -> Collection[object]:
    """Return what is directly in a value; nothing where it is no collection, model or dataclass."""
    if isinstance(value, Mapping):
        return [*value, *value.values()]
    if isinstance(value, list | tuple | set | frozenset | deque):
        return value
    if isinstance(value, BaseModel):
        return [*value.__dict__.values(), value.model_extra]
    if is_dataclass(value):
        # A field with init=False may not have been set.
        return [getattr(value, field.name, None) for field in fields(value)]
    return ()


def plain(value: Any) -> Any:
    """Return JSON-ready copies of mappings and tuples, as deep as they go."""
    # Most are leaves; finding out that they are not mappings takes long.
    if type(value) in SCALARS or not isinstance(value, Mapping | list | tuple):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value]


_as_json = json.JSONEncoder(ensure_ascii=False).encode


def flat(values: Mapping[str, object]) -> dict[str, str]:
    """Return nested values as JSON, by names such as ``config.llm.temperature``.

    Of very many only the first are named one by one; the others stay in what they are in.
    """
    texts: dict[str, str] = {}
    # Not by recursion, since a tape's values may be nested deeper than Python's stack. Its top is
    # at the end, so each is put there in reverse.
    stack: list[tuple[str, object]] = [*values.items()]
    stack.reverse()
    while stack:
        name, value = stack.pop()
        size = 0
        if isinstance(value, dict | list):
            size = len(value)
        if len(texts) + len(stack) + size > _MOST_NAMED:
            texts[name] = _as_json(value)
        elif isinstance(value, dict) and value:
            stack += [(f"{name}.{key}", item) for key, item in reversed(value.items())]
        elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
            # A list of texts or numbers stays whole: one name for each of its items says less.
            places = reversed([*enumerate(value)])
            stack += [(f"{name}.{place}", item) for place, item in places]
        else:
            texts[name] = _as_json(value)
    return texts


def differing(
    before: Mapping[str, object],
    after: Mapping[str, object],
    *,
    missing: str,
) -> list[tuple[str, str, str]]:
    """Return which nested values differ: the name, and both as JSON.

    Args:
        before: nested values.
        after: others.
        missing: what stands for a value that only one of them has.
    """
    texts_before = flat(before)
    texts_after = flat(after)
    changes: list[tuple[str, str, str]] = []
    for name in texts_before | texts_after:
        old = texts_before.get(name, missing)
        new = texts_after.get(name, missing)
        if old != new:
            changes.append((name, old, new))
    return changes


def as_mapping(value: object) -> Mapping[str, Any]:
    """Return the value if it is a mapping, else an empty one: a tape may hold anything."""
    if isinstance(value, Mapping):
        return value
    return {}
