"""The language of prompts: text with ``{{ values }}``, ``{% if %}`` and ``{% for %}``, and no more.

Jinja2 parses and compiles. Between the two, the parsed tree is compared with the list of what a
template may hold, and each output gets a filter that notes its place. There are no calls, no
arithmetic and no globals; tags, nesting, loops and output have limits. So an untrusted template,
such as a tape's, takes neither long nor much memory, and reads nothing but the fields of the values
that it is given.
What nests too deeply ends in Python's own limits, in this module's words.

Only this module imports Jinja2; ``prompt`` imports it when the first prompt is made.
"""

from __future__ import annotations

import dataclasses
import inspect
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import lru_cache
from itertools import groupby, islice
from numbers import Real
from typing import Any, NamedTuple, TypeVar

import jinja2
from jinja2 import nodes, pass_context
from jinja2.filters import do_default, do_items
from jinja2.runtime import Context
from jinja2.visitor import NodeVisitor
from pydantic import BaseModel

from llmsim_lab._util.jsontext import SCALARS
from llmsim_lab._util.text import DIGITS, brief, rounded
from llmsim_lab.errors import PromptError
from llmsim_lab.spans import Filled, Part, Role, laid_out

T = TypeVar("T")

MAX_TOKENS = 10_000
"""Of a template: words, signs and spaces in braces, and the texts between."""
MAX_OUTPUT = 1_000_000
"""Of a filled template, in characters."""
MAX_STEPS = 200_000
"""Of filling a template; a loop takes as many for each value as its body has parts."""

_CHARGED = 6
"""How many characters or items a filter and a comparison handle in a step."""
_FAULTS = (RecursionError, jinja2.UndefinedError, TypeError, ValueError, ArithmeticError)
"""What filling a template may raise where a value is not what the template takes it for."""


def _too_long() -> PromptError:
    return PromptError(
        f"the filled text is longer than {MAX_OUTPUT:,} characters; give it shorter values"
    )


class _Filling:
    """How far a template is filled, where the values stand, and what is left of its steps.

    Args:
        role: of the message.
        steps: how many were taken before.
        most: how many characters it may come to.
    """

    def __init__(
        self,
        role: Role,
        steps: int = 0,
        most: int = MAX_OUTPUT,
    ) -> None:
        self.places: list[Part] = []
        self.length = 0
        self.steps = steps
        self.most = most
        self._role = role

    def value(self, value: object, slots: str) -> str:
        """Return a value as text, after noting that it comes next."""
        text = written(value)
        self.place(
            slots,
            self.length,
            self.length + len(text),
        )
        return text

    def place(
        self,
        slots: str,
        start: int,
        end: int,
    ) -> None:
        """Note where a value stands."""
        self.places.append((slots, self._role, start, end, "", None))

    def add(self, text: str) -> None:
        """Count a text that was filled.

        Raises:
            PromptError: it is longer than it may be.
        """
        self.length += len(text)
        if self.length > self.most:
            raise _too_long()

    def charge_for(self, value: object) -> None:
        """Charge for a value that is about to be walked."""
        most = (MAX_STEPS - self.steps) * _CHARGED
        self.charge(_size(value, most=most + _CHARGED) // _CHARGED)

    def charge(self, steps: int) -> None:
        """Charge for some steps.

        Raises:
            PromptError: there are not as many left.
        """
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise PromptError(
                f"filling it takes more than {MAX_STEPS:,} steps (a loop takes as many for each "
                "value as its body has parts); loop over fewer values"
            )


# --- values --------------------------------------------------------------------------------------


_SEVERAL = (list, tuple, set, frozenset, Mapping)


def written(value: object, *, listed: bool = False) -> str:
    """Return a value as a prompt shows it: numbers have at most 10 significant digits.

    Several values are written as readers expect them: ``Ann: 5, Bob: 7``; in a list, in brackets.
    """
    if type(value) is str:
        return value
    if isinstance(value, float):
        # Its own ``repr`` would say np.float64(1.5) for NumPy's floats, which are floats too.
        text = float.__repr__(value)
        # Most numbers are short, and need not be rounded.
        return text if len(text) <= DIGITS + 1 else repr(rounded(value))
    if not isinstance(value, _SEVERAL):
        # A model of the user's may hold the same list a million times.
        if type(value) not in SCALARS and _size(value, most=MAX_OUTPUT) > MAX_OUTPUT:
            raise _too_long()
        return str(value)
    if isinstance(value, Mapping):
        # As a sentence lists them: JSON's braces and quotation marks are tokens that say nothing.
        parts = [f"{written(key)}: {written(item, listed=True)}" for key, item in value.items()]
    else:
        parts = [written(item, listed=True) for item in _ordered(value)]
    # An empty text would leave "Your allies: ." in the prompt.
    text = _joined(parts, ", ") or "none"
    return f"({text})" if listed and parts else text


def _ordered(values: Any) -> Any:
    """Return values in an order that is the same in any process, which that of a set is not."""
    if not isinstance(values, set | frozenset):
        return values
    # Numbers by their size, before texts; NaN, which is unlike itself, has none.
    sizes = {item: item for item in values if isinstance(item, Real) and item == item}
    return sorted(
        values,
        key=lambda item: (sizes.get(item, float("inf")), written(item)),
    )


def _joined(texts: Iterable[str], between: str) -> str:
    parts = []
    # There is one fewer between them than there are texts.
    length = -len(between)
    for text in texts:
        parts.append(text)
        length += len(between) + len(text)
        # While it grows: a long separator between many can be gigabytes.
        if length > MAX_OUTPUT:
            raise _too_long()
    return between.join(parts)


class _Missing(jinja2.StrictUndefined):
    """What a template looks up and a value lacks: an error in any use but ``default``."""

    __slots__ = ()

    @property
    def _undefined_message(self) -> str:
        # ``x[y] or 'none'``, which users try, fails in ``x[y]``.
        return (
            f"{brief(self._undefined_obj)} has no item {brief(self._undefined_name)}; where that "
            "may be, write x[y] | default('none')"
        )


class _Environment(jinja2.Environment):
    """What looks up names behind a point and in brackets."""

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Return a mapping's value, a sequence's item, or the field of a model or a dataclass."""
        for part in (obj, argument):
            if isinstance(part, _Missing):
                return part
        # Never getattr by itself: from any object's attributes a template could get at all of
        # Python.
        if isinstance(obj, Mapping):
            if argument in obj:
                return obj[argument]
        elif isinstance(argument, str):
            if not argument.startswith("_") and argument in _fields(obj):
                return getattr(obj, argument)
        elif isinstance(obj, Sequence) and type(argument) is int:
            with suppress(IndexError):
                return obj[argument]
        return _Missing(obj=obj, name=argument)

    getattr = getitem  # type: ignore[assignment]  # ``a.b`` is ``a["b"]``


def _fields(value: object) -> Iterable[str]:
    """Return the names of a value's fields; a template can name none with an underscore first."""
    if isinstance(value, BaseModel):
        return {**type(value).model_fields, **(value.model_extra or {})}
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    return ()


# --- filters -------------------------------------------------------------------------------------


def _round(value: float, digits: int = 0) -> float:
    if digits >= 0 and isinstance(value, int):
        return value
    # As a float: to round a whole number to minus a billion digits would take forever.
    return round(float(value), digits)


_Filter = Callable[..., Any]
_FILTERS: Mapping[str, _Filter] = {
    "capitalize": lambda value: written(value).capitalize(),
    "default": do_default,
    "first": lambda value: _ENVIRONMENT.getitem([*islice(_ordered(value), 1)], 0),
    "items": lambda value: list(do_items(value)),
    "join": lambda value, between="": _joined(map(written, _ordered(value)), written(between)),
    "last": lambda value: _ENVIRONMENT.getitem(list(_ordered(value)), -1),
    "length": lambda value: len(value),
    "lower": lambda value: written(value).lower(),
    "round": _round,
    "title": lambda value: written(value).title(),
    "trim": lambda value: written(value).strip(),
    "upper": lambda value: written(value).upper(),
}


def _charged(apply: _Filter) -> _Filter:
    """Return a filter that charges for its work, and hands on what is missing."""

    @pass_context
    def run(
        context: Context,
        value: Any,
        *arguments: Any,
    ) -> Any:
        if isinstance(value, _Missing) and apply is not do_default:
            return value
        # Else a filter over a long text, in a loop, would take long in few steps.
        filling = context.parent[_FILLING]
        filling.charge_for(value)
        result = apply(value, *arguments)
        filling.charge_for(result)
        return result

    return run


def _size(value: Any, *, most: int) -> int:
    """Return how many characters or items a value has, as deep as it goes.

    A set's count as several each, since it is sorted by their texts. Beyond ``most`` nothing is
    counted any more: lists that hold each other several times have more items than memory.
    """
    size = 0
    uncounted = [value]
    while uncounted and size <= most:
        item = uncounted.pop()
        if type(item) is str:
            size += len(item)
        elif type(item) in SCALARS:  # most are, and the other questions take long
            continue
        elif isinstance(item, Set):
            size += len(item) * _CHARGED
            uncounted += item
        elif isinstance(item, Mapping):
            size += len(item)
            uncounted += item.values()
        elif isinstance(item, str | Sequence):
            size += len(item)
            # Not the values of a range, which may be many.
            if isinstance(item, list | tuple):
                uncounted += item
        else:
            parts = [getattr(item, name, None) for name in _fields(item)]
            size += len(parts)
            uncounted += parts
    return size


@pass_context
def _operand(context: Context, value: T) -> T:
    """Return a side of a comparison, for a charge."""
    if isinstance(value, _Missing):
        bool(value)  # an error, which ``in`` would not be
    context.parent[_FILLING].charge_for(value)
    return value


@pass_context
def _note(
    context: Context,
    value: object,
    slots: str,
) -> str:
    """Return a value as text, after noting where it stands; a constant is not a value."""
    if not slots:
        return written(value)
    filling: _Filling = context.parent[_FILLING]
    return filling.value(value, slots)


@pass_context
def _each(
    context: Context,
    values: object,
    steps: int,
) -> Iterator[object]:
    """Yield a loop's values, each for a charge."""
    filling: _Filling = context.parent[_FILLING]
    if isinstance(values, Set):
        filling.charge_for(values)  # since it is sorted
    for value in _ordered(values):
        filling.charge(steps)
        yield value


_FILLING = " filling"
"""The name of what a template fills; none that a template could use."""
_ENVIRONMENT: _Environment = _Environment(
    autoescape=False,
    optimized=False,
    undefined=_Missing,
)
# Jinja2 brings range, lipsum and more, and tests such as "callable"; no template needs them.
_ENVIRONMENT.globals.clear()
_ENVIRONMENT.tests.clear()
_ENVIRONMENT.filters = {name: _charged(apply) for name, apply in _FILTERS.items()} | {
    # A template cannot name these.
    " operand": _operand,
    " note": _note,
    " each": _each,
}


# --- reading -------------------------------------------------------------------------------------

_CALLED = {
    "Concat": "'~'",
    "CondExpr": "'x if y else z'",
    "For": "'recursive'",
    "Test": "'is'",
}
"""Nodes that are not called as their classes are."""
_JINJAS_OWN = ("loop", "self", "super")
"""Names that mean something else where Jinja2 compiles them."""


def _not_allowed(construct: str, line: int) -> PromptError:
    return PromptError(
        f"line {line}: {construct} is not allowed in a prompt; work it out before rendering "
        'and give it a slot. Allowed are names, a.b, a["b"], a[0], comparisons, and, or, not, '
        f"{{% if %}}, {{% for %}} and the filters {', '.join(_FILTERS)}"
    )


def _filtered(
    node: nodes.Node,
    name: str,
    *arguments: object,
) -> nodes.Filter:
    """Return a node whose value goes through a filter of ours, which no template can name."""
    constants = [nodes.Const(argument) for argument in arguments]
    return nodes.Filter(
        node,
        f" {name}",
        constants,
        [],  # keywords
        None,  # *arguments
        None,  # **keywords
        lineno=node.lineno,
    )


class _CheckedTree(NodeVisitor):
    """A tree in which all is allowed, ready to be compiled.

    Args:
        tree: as parsed; it is changed.

    Attributes:
        slots: of the template, in order of first use.
    """

    def __init__(self, tree: nodes.Template) -> None:
        self.slots: dict[str, None] = {}
        self._parts = 0
        self._local: dict[str, dict[str, None]] = {}
        """Names that the loops around a node give, each with the slots of its values."""
        self._mentioned: dict[str, None] = {}
        """Slots that the expression at hand mentions."""
        self.generic_visit(tree)

    def visit(
        self,
        node: nodes.Node,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """Check and change a node, with those in it."""
        self._parts += 1
        match node:
            case nodes.Output():
                self._output(node)
            case nodes.For(recursive=False):
                self._for(node)
            case nodes.Name():
                name = self._name_of(node)
                slots = self._local.get(name, {name: None})
                self._mentioned |= slots
                self.slots |= slots
            case nodes.Filter(node=nodes.Expr(), dyn_args=None, dyn_kwargs=None):
                self._filter(node)
            case nodes.Compare() | nodes.Operand():
                self.generic_visit(node)
                node.expr = _filtered(node.expr, "operand")
            case nodes.Const(value=int() | float() as number) if abs(number) > 1e300:
                # Python cannot write longer ones than some thousands of digits, nor infinity.
                raise PromptError(f"line {node.lineno}: it holds a number that is too large")
            case (
                (nodes.Const() | nodes.Neg(node=nodes.Const(value=int() | float())))
                | (nodes.If() | nodes.Scope() | nodes.Getattr() | nodes.Getitem())
                | (nodes.And() | nodes.Or() | nodes.Not())
            ):
                self.generic_visit(node)
            case nodes.BinExpr(operator=sign) | nodes.UnaryExpr(operator=sign):
                raise _not_allowed(f"arithmetic ({sign})", node.lineno)
            case _:
                name = type(node).__name__
                raise _not_allowed(_CALLED.get(name, f"a {name.lower()}"), node.lineno)

    def _output(self, node: nodes.Output) -> None:
        for place, part in enumerate(node.nodes):
            if isinstance(part, nodes.TemplateData):
                continue
            self._mentioned = {}
            self.visit(part)
            node.nodes[place] = _filtered(
                part,
                "note",
                ", ".join(self._mentioned),
            )

    def _for(self, node: nodes.For) -> None:
        self._mentioned = {}
        self.visit(node.iter)
        # What the loop's names stand for came from the slots that its values mention.
        slots = self._mentioned
        outer = self._local
        before = self._parts
        for target in getattr(node.target, "items", [node.target]):
            if not isinstance(target, nodes.Name):
                raise _not_allowed("a loop over pairs in pairs", target.lineno)
            # Not a slot inside the loop: "name" in it is the loop's, whatever a slot is called.
            self._local = {**self._local, self._name_of(target): slots}
        if node.test:
            self.visit(node.test)
        for part in node.body:
            self.visit(part)
        self._local = outer
        # A step for each value and each part of the body: loops in loops multiply.
        node.iter = _filtered(
            node.iter,
            "each",
            1 + self._parts - before,
        )
        for part in node.else_:
            self.visit(part)

    def _name_of(self, node: nodes.Name) -> str:
        # As Python does, for which some names are the same.
        node.name = unicodedata.normalize("NFKC", node.name)
        if node.name in _JINJAS_OWN:
            raise _not_allowed(f"the name {node.name!r}", node.lineno)
        return node.name

    def _filter(self, node: nodes.Filter) -> None:
        if node.name not in _FILTERS:
            raise PromptError(
                f"line {node.lineno}: there is no filter {brief(node.name)}; "
                f"there are {', '.join(_FILTERS)}"
            )
        try:
            inspect.signature(_FILTERS[node.name]).bind(node.node, *node.args)
        except TypeError as error:
            raise PromptError(
                f"line {node.lineno}: the filter {node.name!r} got {error}"
            ) from error
        self.generic_visit(node)


@dataclasses.dataclass(frozen=True, slots=True)
class _Known:
    """A text whose values, if it has any, are filled in already."""

    text: str
    places: Sequence[Part] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class _Slot:
    """A value as it is: ``{{ name }}``."""

    name: str


_Compiled = Callable[[Context], Iterator[str]]
"""All else, which Jinja2 compiled."""
_Content = _Known | _Slot | _Compiled


class _TemplatePart(NamedTuple):
    """A part of a template, and the slots that it needs."""

    content: _Content
    slots: Set[str]


Fill = Callable[[Mapping[str, Any]], Filled]
"""Fills slots: returns the text, and where its values are."""


class Template:
    """A template, read and checked.

    Args:
        text: of the template.
        name: of its prompt, for errors.
        role: of the message.

    Raises:
        PromptError: it has a syntax error or something that is not allowed, or is too long or
            nested too deeply; the message names the line, and what to do.

    Attributes:
        slots: the names of the values that it takes, in order of first use.
    """

    def __init__(
        self,
        text: str,
        name: str,
        role: Role,
    ) -> None:
        self._name = f"prompt {name!r}, {role} message"
        self._role = role
        try:
            text.encode()  # no file holds half a character
            if len(text) > MAX_OUTPUT:
                raise PromptError(
                    f"the template is longer than {MAX_OUTPUT:,} characters; give long texts a slot"
                )
            # Else the parser takes long.
            too_many = next(islice(_ENVIRONMENT.lex(text), MAX_TOKENS, None), None)
            if too_many is not None:
                line, *_ = too_many
                raise PromptError(
                    f"line {line}: the template has more than {MAX_TOKENS:,} words and signs "
                    "in braces; loop over values, or give long texts a slot"
                )
            # Only parsed: nothing of an untrusted template runs before its tree was checked.
            tree = _ENVIRONMENT.parse(text)
            self.slots = tuple(_CheckedTree(tree).slots)
            self._parts = list(_parts_of(tree, set(self.slots)))
        except jinja2.TemplateSyntaxError as error:
            raise PromptError(f"{self._name}, line {error.lineno}: {error.message}") from error
        except (RecursionError, SyntaxError, MemoryError) as error:
            raise PromptError(
                f"{self._name}, it is nested too deeply; use fewer brackets, blocks and operators "
                "in one another"
            ) from error
        except ValueError as error:
            raise PromptError(f"{self._name}, {error}") from error

    def sharing(self, values: Mapping[str, Any]) -> Fill:
        """Return what fills the other slots, any number of times; these are filled once.

        Both raise the same. Values that have no slot are left out.

        Raises:
            PromptError: a value lacks what is looked up in it, a filter or a comparison cannot take
                it, or a limit was reached.
        """
        contents: list[_Content] = []
        filling = _Filling(self._role)
        stretches = groupby(self._parts, lambda part: part.slots <= values.keys())
        for is_known, stretch in stretches:
            parts = [part.content for part in stretch]
            if is_known:
                # The limits are those of the whole.
                filling = _Filling(
                    self._role,
                    filling.steps,
                    filling.most - filling.length,
                )
                parts = [self._fill(parts, values, filling)]
            # What all prompts of a turn share is filled once, not for each player.
            contents += parts

        def fill(mine: Mapping[str, Any]) -> Filled:
            rest = _Filling(self._role, filling.steps)
            message = self._fill(
                contents,
                {**values, **mine},
                rest,
            )
            return laid_out(message.text, message.places)

        if any(map(callable, contents)):
            return fill
        return self._fill_of_bare_slots(contents, values, fill)

    def _fill_of_bare_slots(
        self,
        contents: Sequence[_Content],
        values: Mapping[str, Any],
        fill: Fill,
    ) -> Fill:
        """Return what fills a template of which only bare slots are left, in one loop.

        The texts between values are known, and the places but for their lengths.

        Args:
            contents: of the template.
            values: that are filled in already.
            fill: does the same slowly, and says in which prompt a value is wrong.
        """
        # With nothing in the slots that are left: the draft has all else, and where they stand.
        empty = dict.fromkeys(set(self.slots) - values.keys(), "")
        draft = self._fill(
            contents,
            {**values, **empty},
            _Filling(self._role),
        )
        filled = laid_out(draft.text, draft.places)
        # Text, value, text, value … and text: a value has an odd place.
        pieces: list[str] = []
        blanks: list[tuple[int, str]] = []
        text_start = 0
        for slots, _, start, end, _, _ in draft.places:
            pieces.append(draft.text[text_start:start])
            if slots in empty:
                blanks.append((len(pieces), slots))
            pieces.append(draft.text[start:end])
            text_start = end
        pieces.append(draft.text[text_start:])
        # All slots were shared: each prompt is the same text.
        if not blanks:
            return lambda _: filled
        _, layout, _ = filled

        def fill_blanks(mine: Mapping[str, Any]) -> Filled:
            filled_pieces = pieces.copy()
            length = len(draft.text)
            try:
                for place, slot in blanks:
                    value = mine[slot]
                    # Most values are texts already; a call would cost more than the slot.
                    text = value if type(value) is str else written(value)
                    filled_pieces[place] = text
                    length += len(text)
                    if length > MAX_OUTPUT:
                        raise _too_long()
            except _FAULTS:
                # The quick loop does not know which message a value stands in.
                fill({**mine, **values})  # which says what is wrong, and where
                raise
            lengths = tuple(map(len, filled_pieces[1::2]))
            return "".join(filled_pieces), layout, lengths

        return fill_blanks

    def _fill(
        self,
        contents: Iterable[_Content],
        values: Mapping[str, Any],
        filling: _Filling,
    ) -> _Known:
        """Return parts of the template with their slots filled."""
        texts: list[str] = []
        context = None
        try:
            for content in contents:
                if isinstance(content, _Known):
                    start = filling.length
                    for slots, _, first, last, _, _ in content.places:
                        filling.place(slots, start + first, start + last)
                    texts.append(content.text)
                    filling.add(content.text)
                elif isinstance(content, _Slot):
                    text = filling.value(values[content.name], content.name)
                    texts.append(text)
                    filling.add(text)
                else:
                    if context is None:
                        context = Context(
                            _ENVIRONMENT,
                            {**values, _FILLING: filling},
                            None,
                            {},
                        )
                    # Piece by piece: where one goes is known once those before it are counted.
                    for text in content(context):
                        texts.append(text)
                        filling.add(text)
        except RecursionError as error:
            raise PromptError(
                f"{self._name}: it is nested too deeply; use fewer brackets, blocks and operators "
                "in one another, or simpler values"
            ) from error
        except _FAULTS as error:
            raise PromptError(f"{self._name}: {error}") from error
        return _Known("".join(texts), filling.places)


def _parts_of(
    tree: nodes.Template,
    slots: set[str],
) -> Iterator[_TemplatePart]:
    """Yield the parts of a checked tree, each with its slots."""
    for node in tree.body:
        for item in getattr(node, "nodes", [node]):
            names = {name.name for name in item.find_all(nodes.Name)}
            yield _TemplatePart(_content_of(item), slots & names)


def _content_of(node: nodes.Node) -> _Content:
    match node:
        case nodes.TemplateData():
            return _Known(node.data)
        case nodes.Filter(node=nodes.Name(name=slot)):  # ``{{ slot }}``, with our " note"
            return _Slot(slot)
        case nodes.Expr():
            body: nodes.Node = nodes.Output([node])
        case _:
            body = node
    # Each part by itself, so that parts can be filled at different times.
    alone = nodes.Template([body], lineno=1)
    return _ENVIRONMENT.from_string(alone).root_render_func


template_of = lru_cache(maxsize=1024)(Template)
"""A text's template, which is read only once."""
