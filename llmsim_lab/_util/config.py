"""What users configure: the base of configurations, and YAML files whose faults have lines.

A wrong value is a ``ConfigError`` that names it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from decimal import Decimal
from io import StringIO
from itertools import islice
from pathlib import Path
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    NamedTuple,
    Self,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import CoreSchema, ErrorDetails, InitErrorDetails, PydanticCustomError
from typing_extensions import TypeAliasType

from llmsim_lab._util.checks import check_array, item_count, plain_number
from llmsim_lab._util.files import as_path, bounded_bytes
from llmsim_lab._util.frozen import frozen
from llmsim_lab._util.jsontext import MOST_LEVELS, SCALARS, dumps
from llmsim_lab._util.text import brief, clip, each_fault, fault_text, faults
from llmsim_lab.errors import ConfigError

if TYPE_CHECKING:
    from ruamel.yaml import YAML, Node

    Checked = BaseModel
else:

    class _Checked(type(BaseModel)):
        # Not in ``__init__``: pydantic calls an overridden one from ``model_validate`` as well.
        def __call__(cls, *args: object, **values: object) -> object:
            try:
                return super().__call__(*args, **values)
            except ValidationError as error:
                names = [field.alias or name for name, field in cls.model_fields.items()]
                removed: Mapping[str, str] = getattr(cls, "gone", {})
                message = faults(error, names)
                for name in values:
                    if name in removed:
                        message = f"{name}: {removed[name]}"
                        break
            # Here, so that it has no cause or context, whose texts have a wrong value: maybe a key.
            # A world's own configuration is made of its fields, and has a name that no user wrote.
            raise ConfigError(f"{getattr(cls, 'shown_as', '') or cls.__name__}: {message}")

    class Checked(BaseModel, metaclass=_Checked):
        """Base of models whose wrong values are a ``ConfigError``, where code makes one."""


_LISTS = ("list", "tuple", "set", "frozenset")


def with_first_faults(schema: CoreSchema, handler: GetCoreSchemaHandler) -> CoreSchema:
    """Return a model's schema by which only the first wrong item of each list is told.

    Pydantic takes 400 bytes for each fault, and a file of four megabytes may have two million.

    Args:
        schema: pydantic's.
        handler: that made it.
    """
    todo: list[object] = [handler.resolve_ref_schema(schema)]
    while todo:
        part = todo.pop()
        if isinstance(part, dict):
            if part.get("type") in _LISTS:
                part["fail_fast"] = True
            # Values of users, which only look like schemas.
            todo += [value for name, value in part.items() if name not in ("default", "metadata")]
        elif isinstance(part, list):
            todo += part
    return schema


class Settings(Checked):
    """Immutable settings; unknown ones are errors.

    ``Settings(name=value)`` raises ``ConfigError``. ``Settings.model_validate(...)``, which files
    are read with, raises pydantic's ``ValidationError``, which knows each fault's place.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
    )

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[BaseModel], handler: GetCoreSchemaHandler, /
    ) -> CoreSchema:
        return with_first_faults(handler(source), handler)

    @model_validator(mode="before")
    @classmethod
    def _numbers(cls, values: object) -> object:
        """Take numpy's numbers, as frames have them, as Python's; True is not a number."""
        if not isinstance(values, Mapping):
            # Not a mapping: pydantic says what is wrong with it.
            return values
        plain = {name: _bounded(name, plain_number(value)) for name, value in values.items()}
        faults: list[InitErrorDetails] = []
        for name, value in plain.items():
            # pydantic takes True for 1, so that "seeds: true" in a file would be one seed.
            if isinstance(value, bool) and name in cls.model_fields:
                types = _types_in(cls.model_fields[name].annotation)
                takes_number = bool(types & {int, float})
                takes_more = bool(types & {bool, str, Any})
                if takes_number and not takes_more:
                    wanted = "a whole number" if int in types else "a number"
                    fault = PydanticCustomError(
                        "value_error",
                        "{name}={value} must be {wanted}",
                        {"name": name, "value": str(value), "wanted": wanted},
                    )
                    faults.append({"type": fault, "loc": (name,), "input": value})
        if faults:
            raise ValidationError.from_exception_data(cls.__name__, faults)
        return plain

    def model_post_init(self, _context: object, /) -> None:
        """Freeze lists and dicts: a change in place would be in no record of the settings."""
        for name, value in self.__dict__.items():
            self.__dict__[name] = _frozen_setting(name, value)

    def model_copy(
        self,
        *,
        update: Mapping[str, object] | None = None,
        deep: bool = False,
    ) -> Self:
        """Return a copy with some values changed, which are not checked."""
        if not isinstance(update, Mapping | None):
            raise ConfigError(f"update={brief(update)} must be new values by name, in a dict")
        changes = {name: _frozen_setting(name, value) for name, value in (update or {}).items()}
        return super().model_copy(update=changes, deep=deep)


def _frozen_setting(name: str, value: object) -> object:
    try:
        return frozen(value)
    except ConfigError as error:
        raise ConfigError(f"{name} has {error}") from None
    except RecursionError:
        raise ConfigError(
            f"{name} is nested too deeply for a tape: more than {MOST_LEVELS} lists and dicts in "
            "one another"
        ) from None


def _bounded(name: object, value: object) -> object:
    """Return a value, of an iterator the list of its items; it may be neither too long nor large.

    pydantic would write out each number of ``range(10**12)``, and read an iterator without an end.

    Raises:
        ValueError: it has too many items or digits.
    """
    check_array(value)
    read = value
    if isinstance(value, Iterator):
        read = list(islice(value, _MOST_VALUES + 1))
    # Of what is in memory already there may be more.
    is_lazy = isinstance(value, Iterator | range)
    if is_lazy and isinstance(read, Sized) and item_count(read) > _MOST_VALUES:
        raise ValueError(f"{name}={brief(value)} has more than {_MOST_VALUES:,} items")
    _check_no_iterator(name, read)
    is_too_large = isinstance(value, int) and abs(value) > _LARGEST
    # Of Decimal("NaN") no size can be told; pydantic says that it is not a number.
    if isinstance(value, Decimal) and value.is_finite():
        is_too_large = value.adjusted() > _MOST_DIGITS
    if is_too_large:
        raise ValueError(f"{name} has a number of more than {_MOST_DIGITS:,} digits")
    return read


def _check_no_iterator(name: object, value: object) -> None:
    """Raise ValueError for an iterator in a list or dict, which pydantic would read to its end."""
    unread: list[Any] = [[value]]
    seen: set[int] = set()
    while unread:
        holder = unread.pop()
        for item in holder.values() if isinstance(holder, dict) else holder:
            if type(item) in SCALARS:
                continue
            if isinstance(item, dict | list | tuple):
                # A list may hold itself.
                if id(item) not in seen:
                    seen.add(id(item))
                    unread.append(item)
            elif isinstance(item, Iterator):
                raise ValueError(f"{name} has {brief(item)} in it; make a list of it")


def _types_in(annotation: object) -> set[object]:
    """Return the types that an annotation names at its top, of a union each."""
    if isinstance(annotation, TypeAliasType):
        return _types_in(annotation.__value__)
    if get_origin(annotation) is Annotated:
        return _types_in(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return set().union(*map(_types_in, get_args(annotation)))
    return {annotation}


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("it says nothing; give it words, or leave it out")
    return text


Words = Annotated[str, AfterValidator(_not_blank)]
"""A text with more than spaces in it."""


# --- files ---------------------------------------------------------------------------------------

ModelT = TypeVar("ModelT", bound=BaseModel)

_MOST_DIGITS = 1_000
"""Of a whole number in a file, whatever its base."""
_LARGEST = 10**_MOST_DIGITS
_MOST_VALUES = 50_000
"""Keys, values, lists and mappings of a file: they are read in some three seconds."""
_MOST_BYTES = 2**20
"""Of a file: prompts and roles are texts of some kilobytes. Of words and line ends alone, so much
is read in a second and a half."""
_LONG_YAML = 200_000
"""Characters of a configuration of some 1,000 users, which takes half a second to write."""
_MOST_TAG = 200
"""Letters of a type, such as ``!!set``: ruamel takes as long as the square of them."""


@dataclass(frozen=True, slots=True)
class YamlFile:
    """A YAML file of keys and values, which knows the line of each."""

    path: Path
    values: Mapping[str, Any]
    _tree: Node | None = field(repr=False)  # None if the file is empty

    @classmethod
    def read(
        cls,
        path: Path,
        *,
        example: str = "turns: 8",
    ) -> YamlFile:
        """Read a file; an empty one has no keys.

        Args:
            path: the file.
            example: what such a file may hold, for the error message.

        Raises:
            ConfigError: it cannot be read, or is not YAML of keys and values, each once.
        """
        path = as_path("the configuration", path)
        try:
            text = bounded_bytes(path, _MOST_BYTES).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"cannot read the configuration {path}: {error}; name a YAML file of keys and "
                "values"
            ) from error
        try:
            values, tree = _read(text)
        except ValueError as error:
            raise ConfigError(f"{path} is not valid YAML: {error}") from error
        if not isinstance(values, dict | None):
            raise ConfigError(
                f"{path} must hold keys and values, such as {example!r}, not "
                f"{type(values).__name__}"
            )
        return cls(path, values or {}, tree)

    def parse(self, model: type[ModelT]) -> ModelT:
        """Return the content as an instance of the model.

        Raises:
            ConfigError: something in it is wrong; the message names file, line and key.
        """
        try:
            # Files named in it are relative to its folder.
            return model.model_validate(
                self.values,
                context={"folder": self.path.parent},
            )
        except ValidationError as error:
            lines = each_fault(error, lambda fault: self._explain(fault, model))
            raise ConfigError("\n".join(lines)) from None

    def fault(
        self,
        location: Sequence[str | int],
        message: str,
    ) -> str:
        """Return a message with its place: file, line and key, then what is wrong there."""
        # A key may be as long as the file.
        key = clip(".".join(str(part) for part in location), 200) or "the file"
        return f"{self.place(location)}: {key}: {message}"

    def place(self, location: Sequence[str | int]) -> str:
        """Return file and line of a key, or of the closest thing around it."""
        return f"{self.path}, line {_line_of(self._tree, location)}"

    def _explain(self, fault: ErrorDetails, model: type[BaseModel]) -> str:
        location = fault["loc"]
        if fault["type"] != "extra_forbidden":
            return f"{self.place(location)}: {fault_text(fault)}"
        removed: Mapping[str, str] = getattr(model, "gone", {})
        key = ".".join(map(str, location))
        if key in removed:
            return self.fault(location, removed[key])
        if len(location) > 1 or not model.model_fields:
            # Of an inner model the fields are not known here.
            return self.fault(location, "unknown key")
        names = sorted(field.alias or name for name, field in model.model_fields.items())
        return self.fault(location, f"unknown key; known here are {', '.join(names)}")


def beside(path: Path, info: ValidationInfo) -> Path:
    """Return a path that a file names, relative to the file's folder; a validator."""
    folder: Path = (info.context or {}).get("folder", Path())
    return folder / path


def read_config(path: Path, model: type[ModelT]) -> ModelT:
    """Return a file's content as an instance of the model.

    Raises:
        ConfigError: the file cannot be read, or something in it is wrong; the message names file,
            line and key.
    """
    return YamlFile.read(path).parse(model)


class _Document(NamedTuple):
    """What a YAML text says, and where; no tree of an empty one."""

    values: Any
    tree: Node | None


def yaml_value(text: str) -> Any:
    """Return what a YAML text says, in plain Python types; YAML 1.2, so ``no`` is a text.

    Raises:
        ValueError: it is not YAML, says one key twice, names a type of Python, or has an alias.
    """
    return _read(text).values


def _read(text: str) -> _Document:
    # Here, since it takes 50 ms, and many programs read no YAML.
    from ruamel.yaml.error import YAMLError
    from ruamel.yaml.events import AliasEvent

    try:
        yaml = _yaml()
        # With aliases, ten lines can stand for gigabytes. Looked for only where a star stands,
        # since that parses the text once more.
        has_alias = "*" in text and any(isinstance(event, AliasEvent) for event in yaml.parse(text))
        if has_alias:
            raise ValueError("aliases, such as *name, are not read; write out what they stand for")
        tree: Node | None = yaml.compose(text)
        if tree is None:
            return _Document(None, None)
        _check_numbers(tree)
        return _Document(yaml.constructor.construct_document(tree), tree)
    except (YAMLError, RecursionError, LookupError, TypeError, OverflowError) as error:
        # Not str(), which for a key that is there twice adds how to switch the check off.
        problem = clip(getattr(error, "problem", None) or str(error), 300)
        mark = getattr(error, "problem_mark", None)
        if mark is None:
            raise ValueError(problem) from error
        raise ValueError(f"line {mark.line + 1}, column {mark.column + 1}: {problem}") from error


def _check_numbers(tree: Node) -> None:
    """Raise ValueError for a whole number that Python takes long to read or cannot write."""
    from ruamel.yaml import MappingNode, SequenceNode

    # Not by recursion: a file may be nested deeper than Python's stack.
    nodes = [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, MappingNode):
            for key, value in node.value:
                nodes += (key, value)
        elif isinstance(node, SequenceNode):
            nodes += node.value
        elif node.tag == "tag:yaml.org,2002:int" and len(node.value) > _MOST_DIGITS:
            line = node.start_mark.line + 1
            raise ValueError(
                f"line {line}: the number {clip(node.value, 20)} has {len(node.value):,} digits; "
                f"give one of at most {_MOST_DIGITS}, or put a text in quotes"
            )


def yaml_text(values: Mapping[str, object]) -> str:
    """Return values as YAML, in their order."""
    as_json = dumps(values)
    # JSON is YAML too. Of 10,000 users it takes a tenth of a second, the other form six.
    if len(as_json) > _LONG_YAML:
        return as_json
    yaml = _yaml()
    yaml.default_flow_style = False
    # A value that stands twice is written twice: aliases are not read.
    yaml.representer.ignore_aliases = lambda _: True
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    text = StringIO()
    yaml.dump(values, text)
    return text.getvalue()


def _yaml() -> YAML:
    from ruamel.yaml import YAML
    from ruamel.yaml.composer import Composer
    from ruamel.yaml.scanner import Scanner

    class ShortTags(Scanner):
        """Stops at a type's name that takes long to read."""

        def scan_tag(self) -> Any:
            start: str = self.reader.prefix(_MOST_TAG)
            if len(start) == _MOST_TAG and len(start.split(maxsplit=1)[0]) == _MOST_TAG:
                raise ValueError(f"the type {clip(start, 20)} has {_MOST_TAG} letters or more")
            return super().scan_tag()

    class Bounded(Composer):
        """Stops at a number of values, before they are all in memory."""

        count = 0

        def compose_node(
            self,
            parent: Node | None,
            index: object,
        ) -> Node | None:
            self.count += 1
            if self.count > _MOST_VALUES:
                raise ValueError(
                    f"it has more than {_MOST_VALUES:,} keys and values; make what is so large in "
                    "Python, from a table"
                )
            # Aliases are not read, and ruamel would warn of each name that stands twice.
            self.anchors.clear()
            node: Node | None = super().compose_node(parent, index)
            return node

    # Safe: no tag makes a Python object. Pure: the one written in C has only YAML 1.1.
    yaml = YAML(typ="safe", pure=True)
    yaml.Scanner = ShortTags
    yaml.Composer = Bounded
    return yaml


# --- the place of a fault ------------------------------------------------------------------------


def _line_of(
    node: Node | None,
    location: Sequence[str | int],
) -> int:
    from ruamel.yaml import MappingNode, SequenceNode

    # An empty file has no node, and one line.
    line = node.start_mark.line + 1 if node else 1
    for part in location:
        if isinstance(node, MappingNode):
            for key, value in node.value:
                if key.value == str(part):
                    line = key.start_mark.line + 1
                    node = value
                    break
            # Else it is missing, or the tag by which pydantic names a member of a union.
        elif isinstance(node, SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
    return line
