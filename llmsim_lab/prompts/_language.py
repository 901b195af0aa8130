"""The language of prompts: text with ``{{ values }}``, ``{% if %}`` and ``{% for %}``, and no more.

Jinja2 parses the syntax and does nothing else: it folds no constants and compiles nothing. What a
template may hold is listed here, and an interpreter of these few things fills it and records where
each value is. There are no calls and no arithmetic; length, nesting, loops and output have limits.
So an untrusted template, such as a tape's, takes neither long nor much memory, and reads nothing
but the fields of the values that it is given.

Only this module imports Jinja2; ``_prompt`` imports it when the first prompt is made.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import jinja2
from jinja2 import nodes
from pydantic import BaseModel

from llmsim_lab._spans import Form
from llmsim_lab._util.text import DIGITS, clip, closest, rounded

MAX_LENGTH = 250_000
"""Of a template, in characters."""
MAX_TOKENS = 10_000
"""Of a template: words, signs and spaces in braces, and the texts between."""
MAX_NESTING = 40
"""Of brackets, blocks and expressions in one another."""
MAX_OUTPUT = 1_000_000
"""Of a filled template, in characters."""
MAX_STEPS = 200_000
"""Of filling a template; a loop takes as many for each value as its body has parts."""

_SHORT = DIGITS + 1
"""Characters of a number that has no more digits than that: they and the point."""
_STEP_CHARACTERS = 64
"""How much text a filter or a comparison handles in a step."""


class TemplateFault(ValueError):  # noqa: N818 - a finding, which becomes a PromptError
    """What is wrong with a template or its filling."""


class _MissingItem(TemplateFault):
    """A value lacks what a template looks up in it."""


class _Filling:
    """A template that is being filled."""

    __slots__ = ("end", "form", "length", "lengths", "names", "parts", "steps")

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.names = dict(values)
        self.parts: list[str] = []
        self.form: list[tuple[int, str]] = []
        self.lengths: list[int] = []
        self.length = 0
        self.end = 0
        """Of the last value."""
        self.steps = 0

    def put(self, text: str) -> None:
        self.length += len(text)
        # Before it is kept, since the next piece may be as long again.
        if self.length > MAX_OUTPUT:
            raise _too_long()
        self.parts.append(text)

    def put_value(self, text: str, slots: str) -> None:
        self.form.append((self.length - self.end, slots))
        self.lengths.append(len(text))
        self.put(text)
        self.end = self.length

    def charge(self, steps: int) -> None:
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise TemplateFault(
                f"filling it takes more than {MAX_STEPS:,} steps (a loop takes as many for each "
                "value as its body has parts); loop over fewer values"
            )

    def charge_for(self, *values: object) -> None:
        # Else a filter over a long text, in a loop, would take long in few steps.
        for value in values:
            if isinstance(value, str | Sequence | Mapping):
                self.charge(len(value) // _STEP_CHARACTERS)


_Expression = Callable[[_Filling], Any]
_Statement = Callable[[_Filling], None]


def _too_long() -> TemplateFault:
    return TemplateFault(
        f"the filled text is longer than {MAX_OUTPUT:,} characters; give it shorter values"
    )


# --- values --------------------------------------------------------------------------------------


def written(value: object) -> str:
    """Return a value as a prompt shows it: numbers have at most 10 significant digits."""
    if type(value) is str:
        return value
    if isinstance(value, float):
        # Its own ``repr`` would say np.float64(1.5) for NumPy's floats, which are floats too.
        text = float.__repr__(value)
        return text if len(text) <= _SHORT else repr(rounded(value))
    if isinstance(value, Mapping | list | tuple | frozenset):
        return _listed(value)
    return str(value)


def _listed(value: Any) -> str:
    """Return several values as readers expect them: ``Ann: 5, Bob: 7``."""
    parts: list[str] = []
    length = 0
    items = value.items() if isinstance(value, Mapping) else enumerate(value)
    if isinstance(value, frozenset):
        # A set's own order differs between processes, and the prompt with it.
        items = enumerate(sorted(value, key=str))
    for key, item in items:
        text = written(item)
        if isinstance(item, Mapping | list | tuple | frozenset) and item:
            text = f"({text})"
        parts.append(f"{written(key)}: {text}" if isinstance(value, Mapping) else text)
        length += len(parts[-1]) + 2
        if length > MAX_OUTPUT:
            raise _too_long()
    return ", ".join(parts) or "none"


def _item(value: Any, key: Any) -> Any:
    """Return a mapping's value, a sequence's item, or the field of a model or a dataclass."""
    # Never getattr by itself: from any object's attributes a template could get at all of Python.
    if isinstance(value, Mapping):
        if key in value:
            return value[key]
    elif isinstance(key, str):
        if key in _fields(value):
            return getattr(value, key)
    elif isinstance(value, Sequence) and type(key) is int and -len(value) <= key < len(value):
        return value[key]
    names = [*value] if isinstance(value, Mapping) else [*_fields(value)]
    like = closest(str(key), map(str, names[:1000]))
    if isinstance(value, Mapping):  # ``x[y] or 'none'``, which users try, fails in ``x[y]``
        like += "; where that may be, write x[y] | default('none')"
    raise _MissingItem(f"{clip(repr(value), 60)} has no item {clip(repr(key), 60)}{like}")


def _fields(value: object) -> frozenset[str]:
    """Return the names of a value's fields, which never begin with an underscore."""
    its_type: Any = type(value)
    names = _fields_of(its_type)
    if isinstance(value, BaseModel) and value.model_extra:
        return names | {name for name in value.model_extra if not name.startswith("_")}
    return names


@lru_cache(maxsize=256)
def _fields_of(its_type: Any) -> frozenset[str]:
    names: Any = ()
    if issubclass(its_type, BaseModel):
        names = its_type.model_fields
    elif dataclasses.is_dataclass(its_type):
        names = [field.name for field in dataclasses.fields(its_type)]
    return frozenset(name for name in names if not name.startswith("_"))


# --- filters -------------------------------------------------------------------------------------


def _join(value: Any, between: object = "") -> str:
    texts = []
    length, gap = 0, written(between)
    for item in value:
        texts.append(written(item))
        # Checked while it grows: a long separator between many items can be gigabytes.
        length += len(texts[-1]) + len(gap)
        if length > MAX_OUTPUT + len(gap):
            raise _too_long()
    return gap.join(texts)


def _round(value: Any, digits: Any = 0) -> float:
    places = operator.index(digits)
    if isinstance(value, int) and places >= 0:
        return value
    # As a float: to round a whole number to minus a billion digits would take forever.
    return round(float(value), places)


def _items(value: Any) -> list[tuple[Any, Any]]:
    if not isinstance(value, Mapping):
        raise TemplateFault(f"items is for a mapping, not for {clip(repr(value), 60)}")
    return list(value.items())


def _first(value: Any) -> Any:
    for item in value:
        return item
    raise _MissingItem(f"{clip(repr(value), 60)} has no first item")


def _last(value: Any) -> Any:
    return _item(list(value), -1)


def _default(value: Any, instead: Any = "", also_if_empty: Any = False) -> Any:
    return instead if also_if_empty and not value else value


_FILTERS: Mapping[str, tuple[Callable[..., Any], int]] = {
    "capitalize": (lambda value: written(value).capitalize(), 0),
    "default": (_default, 2),
    "first": (_first, 0),
    "items": (_items, 0),
    "join": (_join, 1),
    "last": (_last, 0),
    "length": (len, 0),
    "lower": (lambda value: written(value).lower(), 0),
    "round": (_round, 1),
    "title": (lambda value: written(value).title(), 0),
    "trim": (lambda value: written(value).strip(), 0),
    "upper": (lambda value: written(value).upper(), 0),
}
"""By name: what it does, and how many arguments it takes at most."""

_COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "lteq": operator.le,
    "gt": operator.gt,
    "gteq": operator.ge,
    "in": lambda value, values: value in values,
    "notin": lambda value, values: value not in values,
}

# --- what is not in it ---------------------------------------------------------------------------

_ALLOWED = (
    'allowed are names, a.b, a["b"], a[0], comparisons, and, or, not, {% if %}, {% for %} and the '
    f"filters {', '.join(_FILTERS)}"
)
_BEFORE = "work it out before rendering and give it a slot"
_NOT_ALLOWED: Mapping[type[nodes.Node], tuple[str, str]] = {
    nodes.Call: ("a call", _BEFORE),
    nodes.Concat: ("'~'", "write {{ a }}{{ b }} one after the other"),
    nodes.CondExpr: ("'x if y else z'", "write {% if y %}x{% else %}z{% endif %}"),
    nodes.Test: ("'is'", "compare with ==, as in x == none"),
    nodes.Slice: ("a slice", _BEFORE),
    nodes.List: ("a list", _BEFORE),
    nodes.Tuple: ("a tuple", _BEFORE),
    nodes.Dict: ("a dict", _BEFORE),
    nodes.Assign: ("{% set %}", _BEFORE),
    nodes.AssignBlock: ("{% set %}", _BEFORE),
    nodes.With: ("{% with %}", _BEFORE),
    nodes.Macro: ("{% macro %}", "write the text out, or loop over values"),
    nodes.CallBlock: ("{% call %}", "write the text out, or loop over values"),
    nodes.FilterBlock: ("{% filter %}", "put the filter behind each value"),
    nodes.Include: ("{% include %}", "give the text a slot"),
    nodes.Import: ("{% import %}", "write the text out"),
    nodes.FromImport: ("{% from %}", "write the text out"),
    nodes.Extends: ("{% extends %}", "write the text out"),
    nodes.Block: ("{% block %}", "write the text out"),
    nodes.Scope: ("{% autoescape %}", "take it out; nothing is escaped"),
}


def _not_allowed(node: nodes.Node) -> TemplateFault:
    what, instead = f"{type(node).__name__.lower()!r}", _BEFORE
    if isinstance(node, nodes.BinExpr | nodes.Neg | nodes.Pos):
        what = f"arithmetic ({getattr(node, 'operator', '-')})"
    for its_type, words in _NOT_ALLOWED.items():
        if isinstance(node, its_type):
            what, instead = words
    if isinstance(node, nodes.Call):
        what = f"the call {getattr(node.node, 'name', getattr(node.node, 'attr', ''))}()"
    return _fault_at(node, f"{what} is not allowed in a prompt; {instead}. In all, {_ALLOWED}")


def _fault_at(node: nodes.Node, what: str) -> TemplateFault:
    line = node.lineno or next(child.lineno for child in node.iter_child_nodes())
    return TemplateFault(f"line {line}: {what}")


# --- compiling -----------------------------------------------------------------------------------


class Template:
    """A template, read and checked.

    Args:
        text: of the template.

    Raises:
        TemplateFault: it has a syntax error or something that is not allowed, or is too long or
            nested too deeply; the message names the line, and what to do.

    Attributes:
        slots: the names of the values that it takes, in order of first use.
    """

    def __init__(self, text: str) -> None:
        body = _parse(text).body
        compiler = _Compiler()
        with _nesting_limited():
            self._body = compiler.block(body)
        self.slots = tuple(compiler.slots)
        self._pieces = _pieces(body)

    def fill(self, values: Mapping[str, Any]) -> tuple[str, Form, list[int]]:
        """Fill the slots.

        Returns:
            The text; where its values are, of which templates filled in the same way share one
            object; and the values' lengths.

        Raises:
            TemplateFault: a value lacks what is looked up in it, or a limit was reached.
            TypeError, ValueError, ArithmeticError: a filter or a comparison cannot take a value.
        """
        try:
            if self._pieces is None:
                filling = _Filling(values)
                self._body(filling)
                return "".join(filling.parts), _same(tuple(filling.form)), filling.lengths
            # Nothing but text and slots, as most: without the interpreter.
            pieces, slots, form, length = self._pieces
            parts = pieces.copy()
            lengths: list[int] = []
            for place, slot in slots:
                value = values[slot]
                its_type = type(value)
                # Texts and short floats, nearly all values, without a call.
                if its_type is str:
                    text = value
                elif its_type is not float or len(text := repr(value)) > _SHORT:
                    text = written(value)
                length += len(text)
                if length > MAX_OUTPUT:
                    raise _too_long()
                parts[place] = text
                lengths.append(len(text))
        except RecursionError as error:
            raise TemplateFault(f"{_NESTED}, or simpler values") from error
        return "".join(parts), form, lengths


@lru_cache(maxsize=1024)
def _same(form: Form) -> Form:
    """Return the first of the forms that equal this one, so that calls share one object."""
    return form


@lru_cache(maxsize=256)
def template_of(text: str) -> Template:
    """Return the template of a text, which is parsed only once.

    Raises:
        TemplateFault: see ``Template``.
    """
    return Template(text)


_ENVIRONMENT = jinja2.Environment(autoescape=False)  # used to parse, never to render


def _parse(text: str) -> nodes.Template:
    if len(text) > MAX_LENGTH:
        raise TemplateFault(
            f"the template has {len(text):,} characters, and {MAX_LENGTH:,} is the limit; give "
            "long texts a slot"
        )
    with _nesting_limited():
        try:
            # Before the parser, which is recursive: what is too long or deep does not get there.
            depth = 0
            for number, (line, kind, value) in enumerate(_ENVIRONMENT.lex(text)):
                if number == MAX_TOKENS:
                    raise TemplateFault(
                        f"line {line}: the template has more than {MAX_TOKENS:,} words and signs "
                        "in braces; loop over values, or give long texts a slot"
                    )
                if kind == "operator":
                    depth += (value in "([{") - (value in ")]}")
                    if depth > MAX_NESTING:
                        raise TemplateFault(f"line {line}: {_NESTED}")
            return _ENVIRONMENT.parse(text)
        except jinja2.TemplateSyntaxError as error:
            raise TemplateFault(f"line {error.lineno}: {error.message}") from error
        except TemplateFault:
            raise
        except (ValueError, SyntaxError) as error:
            raise TemplateFault(f"it holds a number that cannot be read: {error}") from error


_NESTED = (
    f"the template is nested more than {MAX_NESTING} levels deep; use fewer brackets, blocks and "
    "operators in one another"
)


@contextmanager
def _nesting_limited() -> Iterator[None]:
    try:
        yield
    except RecursionError as error:
        raise TemplateFault(f"{_NESTED}, or simpler values") from error


_Pieces = tuple[list[str], list[tuple[int, str]], Form, int]
"""The texts with an empty one for each slot, the slots with their places, the form, and the length
of the texts in it."""


def _pieces(body: Sequence[nodes.Node]) -> _Pieces | None:
    """Return a template's pieces, or None if it holds more than text and bare slots."""
    texts = [""]
    slots: list[tuple[int, str]] = []
    for output in body:
        if not isinstance(output, nodes.Output):
            return None
        for node in output.nodes:
            if isinstance(node, nodes.TemplateData):
                texts[-1] += node.data
            elif isinstance(node, nodes.Name):
                slots.append((len(texts), node.name))
                texts += ["", ""]
            else:
                return None
    form = tuple((len(texts[place - 1]), slot) for place, slot in slots)
    return texts, slots, form, sum(gap for gap, _ in form)


class _Compiler:
    """Makes functions of a template's nodes, one inside another.

    A function takes the filling: an expression's returns a value, a statement's puts out text.
    """

    def __init__(self) -> None:
        self.slots: dict[str, None] = {}
        self._depth = 0
        self._parts = 0
        self._local: dict[str, tuple[str, ...]] = {}
        """Names that the loops around the node at hand give, with the slots of their values."""
        self._numbered = False
        """Whether the innermost loop around the node at hand uses ``loop``."""
        self._mentioned: list[str] = []
        """Slots that the expression at hand mentions."""

    # --- statements

    def block(self, body: Sequence[nodes.Node]) -> _Statement:
        statements: list[_Statement] = []
        for node in body:
            with self._inside(node):
                match node:
                    case nodes.Output():
                        statements += map(self._output, node.nodes)
                    case nodes.If():
                        statements.append(self._if(node))
                    case nodes.For():
                        statements.append(self._for(node))
                    case _:
                        raise _not_allowed(node)
        if len(statements) == 1:
            return statements[0]

        def run(filling: _Filling) -> None:
            for statement in statements:
                statement(filling)

        return run

    @contextmanager
    def _inside(self, node: nodes.Node) -> Iterator[None]:
        # Depth is limited; the parts of a loop's body are what each pass through it costs.
        self._depth += 1
        self._parts += 1
        if self._depth > MAX_NESTING:
            raise _fault_at(node, _NESTED)
        yield
        self._depth -= 1

    def _output(self, node: nodes.Node) -> _Statement:
        if isinstance(node, nodes.TemplateData):
            text = node.data
            self._parts += 1
            return lambda filling: filling.put(text)
        value, slots = self._with_slots(node)
        if not slots:
            return lambda filling: filling.put(written(value(filling)))
        label = ", ".join(slots)

        def put(filling: _Filling) -> None:
            filling.put_value(written(value(filling)), label)

        return put

    def _if(self, node: nodes.If) -> _Statement:
        branches = [
            (self.expression(part.test), self.block(part.body)) for part in (node, *node.elif_)
        ]
        otherwise = self.block(node.else_)

        def run(filling: _Filling) -> None:
            for test, body in branches:
                if test(filling):
                    return body(filling)
            return otherwise(filling)

        return run

    def _for(self, node: nodes.For) -> _Statement:
        if node.recursive:
            raise _fault_at(node, "'recursive' is not allowed in a prompt; write a loop in a loop")
        values, slots = self._with_slots(node.iter)
        names = self._targets(node.target)
        outer, before = self._local, self._parts
        self._local = {**outer, **dict.fromkeys(names, slots)}
        test = self.expression(node.test) if node.test else None
        # After the test, which chooses the values: before that there is no number to ask for.
        self._local["loop"] = ()
        numbered_outside, self._numbered = self._numbered, False
        body = self.block(node.body)
        self._local = outer
        steps = 1 + self._parts - before
        numbered, self._numbered = self._numbered, numbered_outside
        otherwise = self.block(node.else_)
        several = isinstance(node.target, nodes.Tuple)

        def run(filling: _Filling) -> None:
            # A copy: what the loop names must be gone, or as it was, after it.
            around = filling.names
            found = values(filling)
            inside = filling.names = dict(around)
            if test is not None or numbered:
                # ``loop.length`` and ``loop.last`` are of the values that pass the test.
                found = list(chosen(filling, found))
            place = 0
            for value in found:
                place += 1
                filling.charge(steps)
                _assign(inside, names, value, several=several)
                if numbered:
                    count = len(found)
                    ends = {"first": place == 1, "last": place == count}
                    inside["loop"] = {"index": place, "length": count, **ends}
                body(filling)
            filling.names = around
            if not place:
                otherwise(filling)

        def chosen(filling: _Filling, found: Any) -> Iterator[Any]:
            for value in found:
                filling.charge(1)
                if test is not None:
                    _assign(filling.names, names, value, several=several)
                    if not test(filling):
                        continue
                yield value

        return run

    def _targets(self, target: nodes.Node) -> list[str]:
        parts = target.items if isinstance(target, nodes.Tuple) else [target]
        names = [part.name for part in parts if isinstance(part, nodes.Name)]
        if len(names) < len(parts) or "loop" in names:
            what = "a loop has one name, or several with commas between, and none of them is 'loop'"
            raise _fault_at(target, what)
        return names

    # --- expressions

    def _with_slots(self, node: nodes.Node) -> tuple[_Expression, tuple[str, ...]]:
        """Return an expression and the slots that it mentions."""
        before, self._mentioned = self._mentioned, []
        made = self.expression(node)
        slots = tuple(dict.fromkeys(self._mentioned))
        self._mentioned = before + self._mentioned
        return made, slots

    def expression(self, node: nodes.Node) -> _Expression:
        with self._inside(node):
            match node:
                case nodes.Name():
                    return self._name(node.name)
                case nodes.Const():
                    constant = node.value
                    return lambda _: constant
                case nodes.TemplateData():
                    data = node.data
                    return lambda _: data
                case nodes.Neg(node=nodes.Const(value=int() | float() as number)):
                    return lambda _: -number
                case nodes.Getattr():
                    return self._attribute(node)
                case nodes.Getitem() if node.arg is not None:
                    value, key = self.expression(node.node), self.expression(node.arg)
                    return lambda filling: _item(value(filling), key(filling))
                case nodes.Compare():
                    return self._compare(node)
                case nodes.And():
                    left, right = self.expression(node.left), self.expression(node.right)
                    return lambda filling: left(filling) and right(filling)
                case nodes.Or():
                    left, right = self.expression(node.left), self.expression(node.right)
                    return lambda filling: left(filling) or right(filling)
                case nodes.Not():
                    value = self.expression(node.node)
                    return lambda filling: not value(filling)
                case nodes.Filter() if node.node is not None:
                    return self._filter(node, node.node)
        raise _not_allowed(node)

    def _name(self, name: str) -> _Expression:
        if name in self._local:
            self._mentioned += self._local[name]
            self._numbered |= name == "loop"
        else:
            self.slots[name] = None
            self._mentioned.append(name)
        return lambda filling: filling.names[name]

    def _attribute(self, node: nodes.Getattr) -> _Expression:
        value, name = self.expression(node.node), node.attr
        if name.startswith("_"):
            what = f"{name!r} is not allowed in a prompt: names after a point begin with a letter"
            raise _fault_at(node, what)
        return lambda filling: _item(value(filling), name)

    def _compare(self, node: nodes.Compare) -> _Expression:
        first = self.expression(node.expr)
        rest = [(_COMPARISONS[one.op], self.expression(one.expr)) for one in node.ops]

        def run(filling: _Filling) -> bool:
            left = first(filling)
            for compare, other in rest:
                right = other(filling)
                filling.charge_for(left, right)
                if not compare(left, right):
                    return False
                left = right
            return True

        return run

    def _filter(self, node: nodes.Filter, filtered: nodes.Expr) -> _Expression:
        if node.name not in _FILTERS:
            raise _fault_at(
                node,
                f"there is no filter {clip(repr(node.name), 60)}; there are {', '.join(_FILTERS)}",
            )
        apply, most = _FILTERS[node.name]
        if node.kwargs or node.dyn_args or node.dyn_kwargs or len(node.args) > most:
            raise _fault_at(
                node,
                f"the filter {node.name!r} takes {most or 'no'} arguments{' at most' * (most > 0)}"
                ", none of them by name",
            )
        value = self.expression(filtered)
        arguments = [self.expression(argument) for argument in node.args]
        forgives = node.name == "default"

        def run(filling: _Filling) -> Any:
            try:
                found = value(filling)
            except _MissingItem:
                # {{ a.b|default("x") }} is for a value that has no b.
                if not forgives:
                    raise
                return arguments[0](filling) if arguments else ""
            filling.charge_for(found)
            made = apply(found, *[argument(filling) for argument in arguments])
            filling.charge_for(made)
            return made

        return run


def _assign(names: dict[str, Any], targets: Sequence[str], value: Any, *, several: bool) -> None:
    if not several:
        names[targets[0]] = value
        return
    values = list(value)
    if len(values) != len(targets):
        raise TemplateFault(
            f"a loop over {len(targets)} names ({', '.join(targets)}) met "
            f"{clip(repr(value), 60)}, which has {len(values)} items"
        )
    names.update(zip(targets, values, strict=True))
