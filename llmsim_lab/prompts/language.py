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
from itertools import groupby, islice, pairwise
from numbers import Real
from typing import Any

import jinja2
from jinja2 import nodes, pass_context
from jinja2.filters import do_default, do_items
from jinja2.runtime import Context
from jinja2.visitor import NodeVisitor
from pydantic import BaseModel

from llmsim_lab._spans import Filled, Part, Role, laid_out
from llmsim_lab._util.jsontext import SCALARS
from llmsim_lab._util.text import DIGITS, brief, rounded
from llmsim_lab.errors import PromptError

MAX_TOKENS = 10_000
"""Of a template: words, signs and spaces in braces, and the texts between."""
MAX_OUTPUT = 1_000_000
"""Of a filled template, in characters."""
MAX_STEPS = 200_000
"""Of filling a template; a loop takes as many for each value as its body has parts."""

_Text = tuple[str, list[Part]]
"""A text, and where its values stand."""
_CHARGED = 6
"""How many characters or items a filter and a comparison handle in a step."""
_NESTED = "it is nested too deeply; use fewer brackets, blocks and operators in one another"
_FAULTS = (RecursionError, jinja2.UndefinedError, TypeError, ValueError, ArithmeticError)
_TOO_LONG = f"the filled text is longer than {MAX_OUTPUT:,} characters; give it shorter values"


class _Filling:
    """How far a template is filled, where the values stand, and what is left of its steps."""

    def __init__(self, role: Role, steps: int = 0, most: int = MAX_OUTPUT) -> None:
        self.places: list[Part] = []
        self.length, self.steps, self.most, self._role = 0, steps, most, role

    def value(self, value: object, slots: str) -> str:
        """Return a value as text, after noting that it comes next."""
        text = written(value)
        self.places.append((slots, self._role, self.length, self.length + len(text), "", None))
        return text

    def charge_for(self, value: object) -> None:
        """Charge for a value that is about to be walked."""
        most = (MAX_STEPS - self.steps) * _CHARGED
        self.charge(_size(value, most=most + _CHARGED) // _CHARGED)

    def charge(self, steps: int) -> None:
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
        return text if len(text) <= DIGITS + 1 else repr(rounded(value))
    if not isinstance(value, _SEVERAL):
        # A model of the user's may hold the same list a million times.
        if type(value) not in SCALARS and _size(value, most=MAX_OUTPUT) > MAX_OUTPUT:
            raise PromptError(_TOO_LONG)
        return str(value)
    if isinstance(value, Mapping):
        parts = [f"{written(key)}: {written(item, listed=True)}" for key, item in value.items()]
    else:
        parts = [written(item, listed=True) for item in _ordered(value)]
    text = _joined(parts, ", ") or "none"
    return f"({text})" if listed and value else text


def _ordered(values: Any) -> Any:
    """Return values in an order that is the same in any process, which that of a set is not."""
    if not isinstance(values, set | frozenset):
        return values
    # Numbers by their size, before texts.
    sizes = {it: it for it in values if isinstance(it, Real) and it == it}  # NaN has none
    return sorted(values, key=lambda it: (sizes.get(it, float("inf")), written(it)))


def _joined(texts: Iterable[str], between: str) -> str:
    parts, length = [], -len(between)
    for text in texts:
        parts.append(text)
        # While it grows: a long separator between many can be gigabytes.
        if (length := length + len(text) + len(between)) > MAX_OUTPUT:
            raise PromptError(_TOO_LONG)
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
    its_type: Any = type(value)
    if isinstance(value, BaseModel):
        return {**its_type.model_fields, **(value.model_extra or {})}
    is_one = dataclasses.is_dataclass(its_type)
    return [field.name for field in dataclasses.fields(its_type)] if is_one else ()


# --- filters -------------------------------------------------------------------------------------


def _round(value: float, digits: int = 0) -> float:
    # As a float: to round a whole number to minus a billion digits would take forever.
    return value if digits >= 0 and isinstance(value, int) else round(float(value), digits)


_FILTERS: Mapping[str, Callable[..., Any]] = {
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


def _charged(apply: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that charges for its work, and hands on what is missing."""

    @pass_context
    def run(context: Context, value: Any, *arguments: Any) -> Any:
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
        if type(item) in SCALARS:  # most are, and the other questions take long
            size += len(item) if type(item) is str else 0
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
def _operand(context: Context, value: Any) -> Any:
    """Return a side of a comparison, for a charge."""
    if isinstance(value, _Missing):
        bool(value)  # an error, which ``in`` would not be
    context.parent[_FILLING].charge_for(value)
    return value


@pass_context
def _note(context: Context, value: Any, slots: str) -> Any:
    return context.parent[_FILLING].value(value, slots) if slots else written(value)


@pass_context
def _each(context: Context, values: Any, steps: int) -> Iterator[Any]:
    """Yield a loop's values, each for a charge."""
    if isinstance(values, Set):
        context.parent[_FILLING].charge_for(values)
    for value in _ordered(values):
        context.parent[_FILLING].charge(steps)
        yield value


_FILLING = " filling"
"""The name of what a template fills; none that a template could use."""
_ENVIRONMENT: _Environment = _Environment(autoescape=False, optimized=False, undefined=_Missing)
_ENVIRONMENT.globals.clear()
_ENVIRONMENT.tests.clear()
_ENVIRONMENT.filters = {name: _charged(apply) for name, apply in _FILTERS.items()} | {
    # A template cannot name these.
    " operand": _operand,
    " note": _note,
    " each": _each,
}


# --- reading -------------------------------------------------------------------------------------

_CALLED = {"Concat": "'~'", "CondExpr": "'x if y else z'", "For": "'recursive'", "Test": "'is'"}
"""Nodes that are not called as their classes are."""
_JINJAS_OWN = ("loop", "self", "super")
"""Names that mean something else where Jinja2 compiles them."""


def _not_allowed(node: nodes.Node, what: str) -> PromptError:
    return PromptError(
        f"line {node.lineno}: {what} is not allowed in a prompt; work it out before rendering and "
        'give it a slot. Allowed are names, a.b, a["b"], a[0], comparisons, and, or, not, '
        f"{{% if %}}, {{% for %}} and the filters {', '.join(_FILTERS)}"
    )


def _filtered(node: Any, name: str, *arguments: Any) -> nodes.Filter:
    constants = [nodes.Const(argument) for argument in arguments]
    return nodes.Filter(node, f" {name}", constants, [], None, None, lineno=node.lineno)


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

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> None:
        """Check and change a node, with those in it."""
        self._parts += 1
        match node:
            case nodes.Output():
                self._output(node)
            case nodes.For(recursive=False):
                self._for(node)
            case nodes.Name():
                name = self._named(node)
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
                raise _not_allowed(node, f"arithmetic ({sign})")
            case _:
                kind = type(node).__name__
                raise _not_allowed(node, _CALLED.get(kind, f"a {kind.lower()}"))

    def _output(self, node: nodes.Output) -> None:
        for place, part in enumerate(node.nodes):
            if not isinstance(part, nodes.TemplateData):
                self._mentioned = {}
                self.visit(part)
                node.nodes[place] = _filtered(part, "note", ", ".join(self._mentioned))

    def _for(self, node: nodes.For) -> None:
        self._mentioned = {}
        self.visit(node.iter)
        slots, outer, before = self._mentioned, self._local, self._parts
        for target in getattr(node.target, "items", [node.target]):
            if not isinstance(target, nodes.Name):
                raise _not_allowed(target, "a loop over pairs in pairs")
            self._local = {**self._local, self._named(target): slots}
        for part in [node.test, *node.body] if node.test else node.body:
            self.visit(part)
        self._local = outer
        node.iter = _filtered(node.iter, "each", 1 + self._parts - before)
        for part in node.else_:
            self.visit(part)

    def _named(self, node: nodes.Name) -> str:
        # As Python does, for which some names are the same.
        node.name = unicodedata.normalize("NFKC", node.name)
        if node.name in _JINJAS_OWN:
            raise _not_allowed(node, f"the name {node.name!r}")
        return node.name

    def _filter(self, node: nodes.Filter) -> None:
        if node.name not in _FILTERS:
            what = f"there is no filter {brief(node.name)}"
            raise PromptError(f"line {node.lineno}: {what}; there are {', '.join(_FILTERS)}")
        try:
            inspect.signature(_FILTERS[node.name]).bind(node.node, *node.args)
        except TypeError as error:
            what = f"the filter {node.name!r} got {error}"
            raise PromptError(f"line {node.lineno}: {what}") from error
        self.generic_visit(node)


_Part = _Text | str | Callable[[Context], Iterator[str]]
"""Text, maybe with values in it that are known already; a slot; or what Jinja2 compiled."""


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

    def __init__(self, text: str, name: str, role: Role) -> None:
        self._where = where = f"prompt {name!r}, {role} message"
        self._role = role
        try:
            text.encode()  # no file holds half a character
            if len(text) > MAX_OUTPUT:
                what = f"the template is longer than {MAX_OUTPUT:,} characters"
                raise PromptError(f"{what}; give long texts a slot")
            # Else the parser takes long.
            if further := next(islice(_ENVIRONMENT.lex(text), MAX_TOKENS, None), None):
                raise PromptError(
                    f"line {further[0]}: the template has more than {MAX_TOKENS:,} words and signs "
                    "in braces; loop over values, or give long texts a slot"
                )
            tree = _ENVIRONMENT.parse(text)
            self.slots = tuple(_CheckedTree(tree).slots)
            self._parts = [*_parts_of(tree, {*self.slots})]
        except jinja2.TemplateSyntaxError as error:
            raise PromptError(f"{where}, line {error.lineno}: {error.message}") from error
        except (RecursionError, SyntaxError, MemoryError) as error:
            raise PromptError(f"{where}, {_NESTED}") from error
        except ValueError as error:
            raise PromptError(f"{where}, {error}") from error

    def sharing(self, values: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], Filled]:
        """Return what fills the other slots, any number of times; these are filled once.

        Both give the text and where its values are, and raise the same. Values that have no slot
        are left out.

        Raises:
            PromptError: a value lacks what is looked up in it, a filter or a comparison cannot take
                it, or a limit was reached.
        """
        parts: list[_Part] = []
        filling = _Filling(self._role)
        for is_known, some in groupby(self._parts, lambda part: part[1] <= values.keys()):
            group = [part for part, _ in some]
            if is_known:
                # The limits are those of the whole.
                filling = _Filling(self._role, filling.steps, filling.most - filling.length)
                group = [self._fill(group, values, filling)]
            parts += group

        def fill_any(mine: Mapping[str, Any]) -> Filled:
            again = _Filling(self._role, filling.steps)
            return laid_out(*self._fill(parts, {**values, **mine}, again))

        if any(map(callable, parts)):
            return fill_any
        # Only bare slots are left: the texts between values are known, and the places but for
        # their lengths.
        bare = dict.fromkeys({*self.slots} - values.keys(), "")
        known, places = self._fill(parts, {**values, **bare}, _Filling(self._role))
        cuts = [0, *[cut for place in places for cut in place[2:4]], len(known)]
        texts = [known[start:end] for start, end in pairwise(cuts)]
        blanks = [(2 * n + 1, place[0]) for n, place in enumerate(places) if place[0] in bare]
        filled = laid_out(known, places)

        def fill(mine: Mapping[str, Any]) -> Filled:
            pieces, length = texts.copy(), len(known)
            try:
                for at, slot in blanks:
                    value = mine[slot]
                    pieces[at] = text = value if type(value) is str else written(value)
                    if (length := length + len(text)) > MAX_OUTPUT:
                        raise PromptError(_TOO_LONG)
            except _FAULTS:
                fill_any({**mine, **values})  # which says what is wrong, and where
                raise
            return "".join(pieces), filled[1], tuple(map(len, pieces[1::2]))

        return fill if blanks else lambda _: filled

    def _fill(self, parts: Iterable[_Part], values: Mapping[str, Any], filling: _Filling) -> _Text:
        texts: list[str] = []
        context = None
        try:
            for part in parts:
                if isinstance(part, str):
                    pieces: Iterable[str] = (filling.value(values[part], part),)
                elif isinstance(part, tuple):
                    text, places = part
                    pieces, at = (text,), filling.length
                    for slots, role, start, end, _, _ in places:
                        filling.places.append((slots, role, at + start, at + end, "", None))
                else:
                    if context is None:
                        context = Context(_ENVIRONMENT, {**values, _FILLING: filling}, None, {})
                    pieces = part(context)
                # Piece by piece: where one goes is known once those before it are counted.
                for piece in pieces:
                    texts.append(piece)
                    filling.length += len(piece)
                    if filling.length > filling.most:
                        raise PromptError(_TOO_LONG)
        except _FAULTS as error:
            why = f"{_NESTED}, or simpler values" if isinstance(error, RecursionError) else error
            raise PromptError(f"{self._where}: {why}") from error
        return "".join(texts), filling.places


def _parts_of(tree: nodes.Template, slots: set[str]) -> Iterator[tuple[_Part, set[str]]]:
    """Yield the parts of a checked tree, each with its slots."""
    for node in tree.body:
        for item in getattr(node, "nodes", [node]):
            match item:
                case nodes.TemplateData():
                    part: _Part = item.data, []
                case nodes.Filter(node=nodes.Name(name=slot)):
                    part = slot
                case _:
                    body = nodes.Output([item]) if isinstance(item, nodes.Expr) else item
                    alone = nodes.Template([body], lineno=1)
                    part = _ENVIRONMENT.from_string(alone).root_render_func
            yield part, slots & {name.name for name in item.find_all(nodes.Name)}


template_of = lru_cache(maxsize=1024)(Template)
"""A text's template, which is read only once."""
