"""The language of prompts: text with ``{{ values }}``, ``{% if %}`` and ``{% for %}``, and no more.

Jinja2 parses and compiles. Between the two, the parsed tree is compared with the list of what a
template may hold, and each output gets a filter that notes its place. There are no calls, no
arithmetic and no globals; length, nesting, loops and output have limits. So an untrusted template,
such as a tape's, takes neither long nor much memory, and reads nothing but the fields of the values
that it is given.
What nests too deeply ends in Python's own limits, in this module's words.

Only this module imports Jinja2; ``_prompt`` imports it when the first prompt is made.
"""

from __future__ import annotations

import dataclasses
import inspect
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby, islice
from typing import Any

import jinja2
from jinja2 import nodes, pass_context
from jinja2.filters import do_items
from jinja2.runtime import Context
from jinja2.visitor import NodeTransformer
from pydantic import BaseModel

from llmsim_lab._util.text import DIGITS, brief, rounded
from llmsim_lab.errors import PromptError

MAX_LENGTH = 250_000
"""Of a template, in characters."""
MAX_TOKENS = 10_000
"""Of a template: words, signs and spaces in braces, and the texts between."""
MAX_OUTPUT = 1_000_000
"""Of a filled template, in characters."""
MAX_STEPS = 200_000
"""Of filling a template; a loop takes as many for each value as its body has parts."""

Values = Mapping[str, Any]
"""Of slots, by name."""
Place = tuple[int, int, str]
"""Where a value begins and ends in the text, and its slots."""
Filled = tuple[str, list[Place]]
_CHARGED = 6
"""How many characters or items a filter and a comparison handle in a step."""
_NESTED = "it is nested too deeply; use fewer brackets, blocks and operators in one another"
_TOO_LONG = f"the filled text is longer than {MAX_OUTPUT:,} characters; give it shorter values"


class _Filling:
    """Text that is put out piece by piece, and where its values stand."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._places: list[Place] = []
        self._length = self._steps = 0

    def add(self, text: str, places: Iterable[Place] = ()) -> None:
        """Put out text, with values in it."""
        at = self._length
        for start, end, slots in places:
            self._places.append((at + start, at + end, slots))
        self._pieces.append(text)
        self._length += len(text)
        if self._length > MAX_OUTPUT:
            raise PromptError(_TOO_LONG)

    def value(self, value: object, slots: str) -> str:
        """Return a value as text, after noting that it comes next."""
        text = written(value)
        self._places.append((self._length, self._length + len(text), slots))
        return text

    def charge(self, steps: int) -> None:
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise PromptError(
                f"filling it takes more than {MAX_STEPS:,} steps (a loop takes as many for each "
                "value as its body has parts); loop over fewer values"
            )

    def done(self) -> Filled:
        """Return the text, and where its values are."""
        return "".join(self._pieces), self._places


# --- values --------------------------------------------------------------------------------------


_SEVERAL = (list, tuple, frozenset, Mapping)


def written(value: object) -> str:
    """Return a value as a prompt shows it: numbers have at most 10 significant digits."""
    if type(value) is str:
        return value
    if isinstance(value, float):
        # Its own ``repr`` would say np.float64(1.5) for NumPy's floats, which are floats too.
        text = float.__repr__(value)
        return text if len(text) <= DIGITS + 1 else repr(rounded(value))
    return _listed(value) if isinstance(value, _SEVERAL) else str(value)


def _listed(value: Any) -> str:
    """Return several values as readers expect them: ``Ann: 5, Bob: 7``."""

    def part(key: Any) -> str:
        item = value[key] if isinstance(value, Mapping) else key
        text = written(item)
        if isinstance(item, _SEVERAL) and item:
            text = f"({text})"
        return f"{written(key)}: {text}" if isinstance(value, Mapping) else text

    # A set's own order differs between processes, and the prompt with it.
    keys = sorted(value, key=str) if isinstance(value, frozenset) else value
    return _joined(map(part, keys), ", ") or "none"


def _joined(texts: Iterable[str], between: str) -> str:
    parts, length = [], -len(between)
    for text in texts:
        parts.append(text)
        length += len(text) + len(between)
        if length > MAX_OUTPUT:  # while it grows: a long separator between many can be gigabytes
            raise PromptError(_TOO_LONG)
    return between.join(parts)


class _Missing(jinja2.StrictUndefined):
    """What a template looks up and a value lacks: an error in any use but ``default``."""

    __slots__ = ()

    @property
    def _undefined_message(self) -> str:
        # ``x[y] or 'none'``, which users try, fails in ``x[y]``.
        return self._undefined_hint or (
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
        elif (
            isinstance(obj, Sequence) and type(argument) is int and -len(obj) <= argument < len(obj)
        ):
            return obj[argument]
        return _Missing(obj=obj, name=argument)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return the same: ``a.b`` is ``a["b"]``."""
        return self.getitem(obj, attribute)


def _fields(value: object) -> Iterable[str]:
    """Return the names of a value's fields; a template can name none with an underscore first."""
    its_type: Any = type(value)
    if isinstance(value, BaseModel):
        return {**its_type.model_fields, **(value.model_extra or {})}
    is_one = dataclasses.is_dataclass(its_type)
    return [field.name for field in dataclasses.fields(its_type)] if is_one else ()


# --- filters -------------------------------------------------------------------------------------


def _round(value: Any, digits: Any = 0) -> float:
    places = operator.index(digits)
    if isinstance(value, int) and places >= 0:
        return value
    # As a float: to round a whole number to minus a billion digits would take forever.
    return round(float(value), places)


def _first(value: Any) -> Any:
    return next(iter(value), _Missing(hint=f"{brief(value)} has no first item"))


def _default(value: Any, instead: Any = "", also_if_empty: Any = False) -> Any:
    return instead if isinstance(value, _Missing) or (also_if_empty and not value) else value


_FILTERS: Mapping[str, Callable[..., Any]] = {
    "capitalize": lambda value: written(value).capitalize(),
    "default": _default,
    "first": _first,
    "items": lambda value: list(do_items(value)),
    "join": lambda value, between="": _joined(map(written, value), written(between)),
    "last": lambda value: _ENVIRONMENT.getitem(list(value), -1),
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
        for part in arguments if apply is _default else (value, *arguments):
            if isinstance(part, _Missing):
                return part
        # Else a filter over a long text, in a loop, would take long in few steps.
        charge = context.parent[_FILLING].charge
        charge(_size(value) // _CHARGED)
        result = apply(value, *arguments)
        charge(_size(result) // _CHARGED)
        return result

    return run


def _size(value: Any) -> int:
    """Return how many characters or items a value has, as deep as it goes."""
    size = len(value) if isinstance(value, str | Sequence | Mapping) else 0
    # Not the values of a range, which may be many.
    if isinstance(value, list | tuple | Mapping):
        items = value.values() if isinstance(value, Mapping) else value
        size += sum(_size(item) for item in items if type(item) not in (int, float, bool))
    return size


@pass_context
def _operand(context: Context, value: Any) -> Any:
    """Return a side of a comparison, for a charge."""
    if isinstance(value, _Missing):
        bool(value)  # an error, which ``in`` would not be
    context.parent[_FILLING].charge(_size(value) // _CHARGED)
    return value


@pass_context
def _note(context: Context, value: Any, slots: str) -> Any:
    return context.parent[_FILLING].value(value, slots) if slots else written(value)


@pass_context
def _each(context: Context, values: Any, steps: int) -> Iterator[Any]:
    """Yield a loop's values, each for a charge."""
    for value in values:
        context.parent[_FILLING].charge(steps)
        yield value


_FILLING = "filling"
"""The name of what a template fills; those of its slots are numbered."""
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

_CALLED = {"Concat": "'~'", "CondExpr": "'x if y else z'", "Test": "'is'"}
"""Nodes that are not called as their classes are."""


def _fault_at(node: nodes.Node, what: str) -> PromptError:
    line = node.lineno or next(child.lineno for child in node.iter_child_nodes())
    return PromptError(f"line {line}: {what}")


def _not_allowed(what: str) -> str:
    return (
        f"{what} is not allowed in a prompt; work it out before rendering and give it a slot. "
        'Allowed are names, a.b, a["b"], a[0], comparisons, and, or, not, {% if %}, {% for %} and '
        f"the filters {', '.join(_FILTERS)}"
    )


def _parse(text: str) -> nodes.Template:
    if len(text) > MAX_LENGTH:
        raise PromptError(
            f"the template has {len(text):,} characters, and {MAX_LENGTH:,} is the limit; give "
            "long texts a slot"
        )
    try:
        further = next(islice(_ENVIRONMENT.lex(text), MAX_TOKENS, None), None)
        if not further:  # else the parser takes long
            return _ENVIRONMENT.parse(text)
    except jinja2.TemplateSyntaxError as error:
        raise PromptError(f"line {error.lineno}: {error.message}") from error
    except (ValueError, SyntaxError) as error:
        raise PromptError(f"it holds a number that cannot be read: {error}") from error
    raise PromptError(
        f"line {further[0]}: the template has more than {MAX_TOKENS:,} words and signs in braces; "
        "loop over values, or give long texts a slot"
    )


def _filtered(node: nodes.Expr, name: str, *arguments: Any) -> nodes.Filter:
    constants = [nodes.Const(argument) for argument in arguments]
    return nodes.Filter(node, f" {name}", constants, [], None, None, lineno=node.lineno)


class _CheckedTree(NodeTransformer):
    """A tree in which all is allowed, ready to be compiled.

    Args:
        tree: as parsed; it is changed.

    Attributes:
        slots: of the template, each with its name in the tree: Python takes some names for one
            another, and Jinja2 gives some a meaning.
    """

    def __init__(self, tree: nodes.Template) -> None:
        self.slots: dict[str, str] = {}
        self._parts = 0
        self._local: dict[str, tuple[str, dict[str, None]]] = {}
        """Names that the loops around a node give: those in the tree, and their values' slots."""
        self._mentioned: dict[str, None] = {}
        """Slots that the expression at hand mentions."""
        tree.body = self._block(tree.body)

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        """Return a node checked and changed, with those in it."""
        self._parts += 1
        match node:
            case nodes.Output():
                self._output(node)
            case nodes.For(recursive=True):
                raise _fault_at(node, _not_allowed("'recursive'"))
            case nodes.For():
                self._for(node)
            case nodes.Name():
                self._name(node)
            case nodes.Filter(node=nodes.Expr(), dyn_args=None, dyn_kwargs=None):
                self._filter(node)
            case nodes.Compare():
                self.generic_visit(node)
                sides: list[Any] = [node, *node.ops]
                for side in sides:
                    side.expr = _filtered(side.expr, "operand")
            case nodes.Getattr(attr=attribute) if attribute.startswith("_"):
                raise _fault_at(node, _not_allowed(repr(attribute)))
            case nodes.Const(value=int() | float() as number) if abs(number) > 1e300:
                # Python cannot write longer ones than some thousands of digits, nor infinity.
                raise _fault_at(node, "it holds a number that cannot be read: it is too large")
            case (
                (nodes.Const() | nodes.Neg(node=nodes.Const(value=int() | float())))
                | (nodes.If() | nodes.Getattr() | nodes.Getitem() | nodes.Operand())
                | (nodes.And() | nodes.Or() | nodes.Not())
            ):
                self.generic_visit(node)
            case nodes.BinExpr(operator=sign) | nodes.UnaryExpr(operator=sign):
                raise _fault_at(node, _not_allowed(f"arithmetic ({sign})"))
            case _:
                kind = type(node).__name__
                raise _fault_at(node, _not_allowed(_CALLED.get(kind, f"a {kind.lower()}")))
        return node

    def _block(self, body: Sequence[nodes.Node]) -> list[nodes.Node]:
        return [self.visit(node) for node in body]

    def _output(self, node: nodes.Output) -> None:
        for place, part in enumerate(node.nodes):
            if not isinstance(part, nodes.TemplateData):
                self._mentioned = {}
                value = self.visit(part)
                node.nodes[place] = _filtered(value, "note", ", ".join(self._mentioned))

    def _for(self, node: nodes.For) -> None:
        self._mentioned = {}
        values, slots = self.visit(node.iter), self._mentioned
        names: dict[str, tuple[str, dict[str, None]]] = {}
        outer, before = self._local, self._parts
        for target in getattr(node.target, "items", [node.target]):
            if not isinstance(target, nodes.Name):
                raise _fault_at(target, _not_allowed("a loop over pairs in pairs"))
            names[target.name] = f"l{before}_{len(names)}", slots
            target.name = names[target.name][0]
        self._local = {**outer, **names}
        if node.test:
            node.test = self.visit(node.test)
        node.body = self._block(node.body)
        self._local = outer
        node.iter = _filtered(values, "each", 1 + self._parts - before)
        node.else_ = self._block(node.else_)

    def _name(self, node: nodes.Name) -> None:
        if (local := self._local.get(node.name)) is None:
            local = self.slots.setdefault(node.name, f"s{len(self.slots)}"), {node.name: None}
        node.name, mentioned = local
        self._mentioned |= mentioned

    def _filter(self, node: nodes.Filter) -> None:
        if node.name not in _FILTERS:
            what = f"there is no filter {brief(node.name)}"
            raise _fault_at(node, f"{what}; there are {', '.join(_FILTERS)}")
        try:
            inspect.signature(_FILTERS[node.name]).bind(node.node, *node.args)
        except TypeError as error:
            raise _fault_at(node, f"the filter {node.name!r} got {error}") from error
        self.generic_visit(node)


_Part = Filled | str | Callable[[Context], Iterator[str]]
"""Text, maybe with values in it that are known already; a slot; or what Jinja2 compiled."""


class Template:
    """A template, read and checked.

    Args:
        text: of the template.

    Raises:
        PromptError: it has a syntax error or something that is not allowed, or is too long or
            nested too deeply; the message names the line, and what to do.

    Attributes:
        slots: the names of the values that it takes, in order of first use.
    """

    def __init__(self, text: str) -> None:
        try:
            tree = _parse(text)
            self._names = _CheckedTree(tree).slots
            self._parts = _parts_of(tree, self._names)
        except (RecursionError, SyntaxError, MemoryError) as error:
            raise PromptError(_NESTED) from error
        self.slots = tuple(self._names)

    def sharing(self, values: Values) -> Callable[[Values], Filled]:
        """Return what fills the other slots, any number of times; these are filled once.

        Both give the text and where its values are, and raise the same.

        Raises:
            PromptError: a value lacks what is looked up in it, a filter or a comparison cannot take
                it, or a limit was reached.
        """
        if values.keys() >= self._names.keys():
            filled = self._fill(self._parts, values)
            return lambda _: filled
        if not values:  # the limits are those of the whole
            return lambda mine: self._fill(self._parts, mine)
        parts: list[tuple[_Part, set[str]]] = []
        for is_known, some in groupby(self._parts, lambda part: part[1] <= values.keys()):
            group = [*some]
            parts += [(self._fill(group, values), set())] if is_known else group
        return lambda mine: self._fill(parts, {**values, **mine})

    def _fill(self, parts: Iterable[tuple[_Part, set[str]]], values: Values) -> Filled:
        filling, context = _Filling(), None
        try:
            for part, _ in parts:
                if isinstance(part, tuple):
                    filling.add(*part)
                elif isinstance(part, str):
                    filling.add(filling.value(values[part], part))
                else:
                    context = context or self._context(values, filling)
                    # Piece by piece: where one goes is known once those before it are counted.
                    for piece in part(context):
                        filling.add(piece)
        except RecursionError as error:
            raise PromptError(f"{_NESTED}, or simpler values") from error
        except (jinja2.UndefinedError, TypeError, ValueError, ArithmeticError) as error:
            raise PromptError(str(error)) from error
        return filling.done()

    def _context(self, values: Values, filling: _Filling) -> Context:
        """Return what compiled parts see."""
        known = {name: values[slot] for slot, name in self._names.items() if slot in values}
        return _NO_TEMPLATE.new_context({**known, _FILLING: filling}, shared=True)


_NO_TEMPLATE = _ENVIRONMENT.from_string("")
"""Makes contexts."""


def _parts_of(tree: nodes.Template, names: Mapping[str, str]) -> list[tuple[_Part, set[str]]]:
    """Return the parts of a checked tree, whose slots have these names in it, with their slots."""
    items: list[Any] = [item for node in tree.body for item in getattr(node, "nodes", [node])]
    # Each a block, so that one compilation gives a function for each.
    blocks: list[nodes.Node] = []
    parts: list[tuple[Any, set[str]]] = []
    for item in items:
        taken = {it.name for it in item.find_all(nodes.Name)}
        parts.append((_plain(item), {slot for slot, name in names.items() if name in taken}))
        if parts[-1][0] is None:
            body = [nodes.Output([item]) if isinstance(item, nodes.Expr) else item]
            blocks.append(nodes.Block(f"b{len(blocks)}", body, False, False, lineno=1))
    if not blocks:
        return parts
    whole = nodes.Template(blocks, lineno=1)
    whole.set_environment(_ENVIRONMENT)
    compiled = jinja2.Template.from_code(_ENVIRONMENT, _ENVIRONMENT.compile(whole), {})
    functions = iter(compiled.blocks.values())
    return [(part or next(functions), taken) for part, taken in parts]


def _plain(item: Any) -> Filled | str | None:
    """Return a part that takes no compiling: text, or a bare slot."""
    if isinstance(item, nodes.TemplateData):
        return item.data, []
    return item.args[0].value if isinstance(getattr(item, "node", None), nodes.Name) else None


template_of = lru_cache(maxsize=1024)(Template)
"""A text's template, which is read only once."""
