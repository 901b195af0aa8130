"""The language of prompts: text with ``{{ values }}``, ``{% if %}`` and ``{% for %}``, and no more.

Jinja2 parses and compiles. Between the two, the parsed tree is compared with the list of what a
template may hold, and each output gets a filter that notes its place. There are no calls, no
arithmetic and no globals; length, nesting, loops and output have limits. So an untrusted template,
such as a tape's, takes neither long nor much memory, and reads nothing but the fields of the values
that it is given.

Only this module imports Jinja2; ``_prompt`` imports it when the first prompt is made.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

import jinja2
from jinja2 import nodes, pass_context
from jinja2.runtime import Context, LoopContext
from jinja2.visitor import NodeTransformer
from pydantic import BaseModel

from llmsim_lab._spans import Layout
from llmsim_lab._util.text import DIGITS, clip, closest, rounded
from llmsim_lab.errors import PromptError

MAX_LENGTH = 250_000
"""Of a template, in characters."""
MAX_TOKENS = 10_000
"""Of a template: words, signs and spaces in braces, and the texts between."""
MAX_NESTING = 40
"""Of brackets, blocks and expressions in one another; a loop counts twice."""
MAX_OUTPUT = 1_000_000
"""Of a filled template, in characters."""
MAX_STEPS = 200_000
"""Of filling a template; a loop takes as many for each value as its body has parts."""

_MAX_NUMBER = 1e300
"""In a template; Python cannot write longer ones than some thousands of digits, nor infinity."""
_FILTERED, _COMPARED = 6, 32
"""How many characters or items a filter and a comparison handle in a step."""


class _Filling:
    """What a template has put out so far."""

    def __init__(self) -> None:
        self.form: list[tuple[int, str, str]] = []
        self.lengths: list[int] = []
        self.length = self.end = self.steps = 0

    def value(self, value: object, slots: str) -> str:
        """Return a value as text, after noting that it comes next."""
        text = written(value)
        self.form.append((self.length - self.end, slots, ""))
        self.lengths.append(len(text))
        self.end = self.length + len(text)
        return text

    def charge(self, steps: int) -> None:
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise PromptError(
                f"filling it takes more than {MAX_STEPS:,} steps (a loop takes as many for each "
                "value as its body has parts); loop over fewer values"
            )


def _too_long() -> PromptError:
    return PromptError(
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
        return text if len(text) <= DIGITS + 1 else repr(rounded(value))
    if isinstance(value, Mapping | list | tuple | frozenset):
        return _listed(value)
    return str(value)


def _listed(value: Any) -> str:
    """Return several values as readers expect them: ``Ann: 5, Bob: 7``."""
    parts: list[str] = []
    length = 0
    # A set's own order differs between processes, and the prompt with it.
    for key in sorted(value, key=str) if isinstance(value, frozenset) else value:
        item = value[key] if isinstance(value, Mapping) else key
        text = written(item)
        if isinstance(item, Mapping | list | tuple | frozenset) and item:
            text = f"({text})"
        parts.append(f"{written(key)}: {text}" if isinstance(value, Mapping) else text)
        length += len(parts[-1]) + 2
        if length > MAX_OUTPUT:
            raise _too_long()
    return ", ".join(parts) or "none"


class _Missing(jinja2.StrictUndefined):
    """What a template looks up and a value lacks: an error in any use but ``default``."""

    __slots__ = ()

    @property
    def _undefined_message(self) -> str:
        value, key = self._undefined_obj, self._undefined_name
        if self._undefined_hint:
            return self._undefined_hint
        names = value if isinstance(value, Mapping) else _fields(value)
        like = closest(str(key), [str(name) for name in islice(names, 1000)])
        if isinstance(value, Mapping):  # ``x[y] or 'none'``, which users try, fails in ``x[y]``
            like += "; where that may be, write x[y] | default('none')"
        return f"{clip(repr(value), 60)} has no item {clip(repr(key), 60)}{like}"


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
            if argument in _fields(obj):
                return getattr(obj, argument)
        elif (
            isinstance(obj, Sequence) and type(argument) is int and -len(obj) <= argument < len(obj)
        ):
            return obj[argument]
        return _Missing(obj=obj, name=argument)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return the same: ``a.b`` is ``a["b"]``."""
        return self.getitem(obj, attribute)


def _fields(value: object) -> list[str]:
    """Return the names of a value's fields, which never begin with an underscore."""
    its_type: Any = type(value)
    names: Iterable[str] = ()
    if isinstance(value, BaseModel):
        names = {**its_type.model_fields, **(value.model_extra or {})}
    elif dataclasses.is_dataclass(its_type):
        names = [field.name for field in dataclasses.fields(its_type)]
    return [name for name in names if not name.startswith("_")]


# --- filters -------------------------------------------------------------------------------------


def _join(value: Any, between: object = "") -> str:
    texts = []
    gap = written(between)
    length = -len(gap)
    for item in value:
        texts.append(written(item))
        # Checked while it grows: a long separator between many items can be gigabytes.
        length += len(texts[-1]) + len(gap)
        if length > MAX_OUTPUT:
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
        raise PromptError(f"items is for a mapping, not for {clip(repr(value), 60)}")
    return list(value.items())


def _first(value: Any) -> Any:
    for item in value:
        return item
    return _Missing(hint=f"{clip(repr(value), 60)} has no first item")


def _default(value: Any, instead: Any = "", also_if_empty: Any = False) -> Any:
    return instead if isinstance(value, _Missing) or (also_if_empty and not value) else value


_FILTERS: Mapping[str, tuple[Callable[..., Any], int]] = {
    "capitalize": (lambda value: written(value).capitalize(), 0),
    "default": (_default, 2),
    "first": (_first, 0),
    "items": (_items, 0),
    "join": (_join, 1),
    "last": (lambda value: _ENVIRONMENT.getitem(list(value), -1), 0),
    "length": (len, 0),
    "lower": (lambda value: written(value).lower(), 0),
    "round": (_round, 1),
    "title": (lambda value: written(value).title(), 0),
    "trim": (lambda value: written(value).strip(), 0),
    "upper": (lambda value: written(value).upper(), 0),
}
"""By name: what it does, and how many arguments it takes at most."""


def _filter_of(apply: Callable[..., Any], *, of_missing: bool) -> Callable[..., Any]:
    """Return a filter that charges for its work, and hands on what is missing."""

    @pass_context
    def run(context: Context, value: Any, *arguments: Any) -> Any:
        for part in arguments if of_missing else (value, *arguments):
            if isinstance(part, _Missing):
                return part
        # Else a filter over a long text, in a loop, would take long in few steps.
        charge, before = context.parent[_FILLING].charge, _size(value)
        charge(before // _FILTERED)
        result = apply(value, *arguments)
        charge(max(0, _size(result) - before) // _FILTERED)
        return result

    return run


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str | Sequence | Mapping) else 0


def _deep_size(value: Any) -> int:
    size = _size(value)
    # Not the values of a range, which may be many.
    if isinstance(value, list | tuple | Mapping):
        items = value.values() if isinstance(value, Mapping) else value
        size += sum(_deep_size(item) for item in items if type(item) not in (int, float, bool))
    return size


@pass_context
def _operand(context: Context, value: Any) -> Any:
    """Return a side of a comparison, for a charge."""
    if isinstance(value, _Missing):
        bool(value)  # an error, which ``in`` would not be
    context.parent[_FILLING].charge(_deep_size(value) // _COMPARED)
    return value


def _loop(loop: LoopContext) -> dict[str, Any]:
    return {name: getattr(loop, name) for name in ("index", "length", "first", "last")}


@pass_context
def _note(context: Context, value: Any, slots: str) -> Any:
    return context.parent[_FILLING].value(value, slots) if slots else written(value)


@pass_context
def _each(context: Context, values: Any, steps: int, names: Sequence[str]) -> Iterator[Any]:
    """Yield a loop's values, each for a charge; for several names, as many items each."""
    filling: _Filling = context.parent[_FILLING]
    for value in values:
        filling.charge(steps)
        if not names:
            yield value
            continue
        filling.charge(_size(value) // _FILTERED)
        items = list(value)
        if len(items) != len(names):
            raise PromptError(
                f"a loop over {len(names)} names ({', '.join(names)}) met "
                f"{clip(repr(value), 60)}, which has {len(items)} items"
            )
        yield items


_FILLING = "filling"
"""The name of what a template fills; those of its slots are numbered."""
_ENVIRONMENT: _Environment = _Environment(autoescape=False, optimized=False, undefined=_Missing)
_ENVIRONMENT.globals.clear()
_ENVIRONMENT.tests.clear()
_ENVIRONMENT.filters = {
    name: _filter_of(apply, of_missing=name == "default") for name, (apply, _) in _FILTERS.items()
} | {
    # A template cannot name these.
    " operand": _operand,
    " loop": _loop,
    " note": _note,
    " each": _each,
}


# --- what is not in it ---------------------------------------------------------------------------

_ALLOWED = (
    'allowed are names, a.b, a["b"], a[0], comparisons, and, or, not, {% if %}, {% for %} and the '
    f"filters {', '.join(_FILTERS)}"
)
_GIVE_IT = "work it out before rendering and give it a slot"
_WRITE_IT = "write the text out, or give it a slot"
_NOT_ALLOWED: Mapping[str, tuple[str, str]] = {
    "Concat": ("'~'", "write {{ a }}{{ b }} one after the other"),
    "CondExpr": ("'x if y else z'", "write {% if y %}x{% else %}z{% endif %}"),
    "Test": ("'is'", "compare with ==, as in x == none"),
    "Assign": ("{% set %}", _GIVE_IT),
    "AssignBlock": ("{% set %}", _GIVE_IT),
    "With": ("{% with %}", _GIVE_IT),
    "CallBlock": ("{% call %}", _WRITE_IT),
    "FilterBlock": ("{% filter %}", "put the filter behind each value"),
    "FromImport": ("{% from %}", _WRITE_IT),
    "Scope": ("{% autoescape %}", "take it out; nothing is escaped"),
}
"""By node, what it is called and what to do instead, unless its own name says it."""


def _not_allowed(node: nodes.Node) -> PromptError:
    kind = type(node).__name__
    what, instead = f"a {kind.lower()}", _GIVE_IT
    if kind in _NOT_ALLOWED:
        what, instead = _NOT_ALLOWED[kind]
    elif isinstance(node, nodes.BinExpr | nodes.UnaryExpr):
        what = f"arithmetic ({node.operator})"
    elif isinstance(node, nodes.Call):
        what = f"the call {getattr(node.node, 'name', getattr(node.node, 'attr', ''))}()"
    elif isinstance(node, nodes.Stmt):
        what, instead = f"{{% {kind.lower()} %}}", _WRITE_IT
    return _fault_at(node, f"{what} is not allowed in a prompt; {instead}. In all, {_ALLOWED}")


def _fault_at(node: nodes.Node, what: str) -> PromptError:
    line = node.lineno or next(child.lineno for child in node.iter_child_nodes())
    return PromptError(f"line {line}: {what}")


_NESTED = (
    f"the template is nested more than {MAX_NESTING} levels deep; use fewer brackets, blocks and "
    "operators in one another"
)

# --- reading -------------------------------------------------------------------------------------


def _parse(text: str) -> nodes.Template:
    if len(text) > MAX_LENGTH:
        raise PromptError(
            f"the template has {len(text):,} characters, and {MAX_LENGTH:,} is the limit; give "
            "long texts a slot"
        )
    try:
        # Before the parser, which is recursive: what is too long or deep does not get there.
        depth = 0
        for number, (line, kind, value) in enumerate(_ENVIRONMENT.lex(text)):
            if number == MAX_TOKENS:
                raise PromptError(
                    f"line {line}: the template has more than {MAX_TOKENS:,} words and signs in "
                    "braces; loop over values, or give long texts a slot"
                )
            if kind == "operator":
                depth += (value in "([{") - (value in ")]}")
                if depth > MAX_NESTING:
                    raise PromptError(f"line {line}: {_NESTED}")
        return _ENVIRONMENT.parse(text)
    except jinja2.TemplateSyntaxError as error:
        raise PromptError(f"line {error.lineno}: {error.message}") from error
    except PromptError:
        raise
    except (ValueError, SyntaxError) as error:
        raise PromptError(f"it holds a number that cannot be read: {error}") from error


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
        self._depth = self._parts = 0
        self._local: dict[str, tuple[str, dict[str, None]]] = {}
        """Names that the loops around a node give: those in the tree, and their values' slots."""
        self._mentioned: dict[str, None] = {}
        """Slots that the expression at hand mentions."""
        tree.body = self._block(tree.body)

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        """Return a node checked and changed, with those in it."""
        self._parts += 1
        # Python has a limit of its own for loops in one another.
        deeper = 1 + isinstance(node, nodes.For)
        self._depth += deeper
        if self._depth > MAX_NESTING:
            raise _fault_at(node, _NESTED)
        match node:
            case nodes.Output():
                self._output(node)
            case nodes.For():
                self._for(node)
            case nodes.Name():
                node = self._name(node)
            case nodes.Filter(node=nodes.Expr()):
                self._filter(node)
            case nodes.Compare():
                self.generic_visit(node)
                node.expr = _filtered(node.expr, "operand")
                for other in node.ops:
                    other.expr = _filtered(other.expr, "operand")
            case nodes.Getattr(attr=attribute) if attribute.startswith("_"):
                self.generic_visit(node)
                what = "is not allowed in a prompt: names after a point begin with a letter"
                raise _fault_at(node, f"{attribute!r} {what}")
            case nodes.Const(value=int() | float() as number) if abs(number) > _MAX_NUMBER:
                raise _fault_at(node, "it holds a number that cannot be read: it is too large")
            case (
                (nodes.Const() | nodes.Neg(node=nodes.Const(value=int() | float())))
                | (nodes.If() | nodes.Getattr() | nodes.Getitem() | nodes.Operand())
                | (nodes.And() | nodes.Or() | nodes.Not())
            ):
                self.generic_visit(node)
            case _:
                raise _not_allowed(node)
        self._depth -= deeper
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
        if node.recursive:
            raise _fault_at(node, "'recursive' is not allowed in a prompt; write a loop in a loop")
        self._mentioned = {}
        values, slots = self.visit(node.iter), self._mentioned
        targets: list[Any] = getattr(node.target, "items", [node.target])
        names = [getattr(target, "name", "loop") for target in targets]
        if "loop" in names:
            what = "a loop has one name, or several with commas between, and none of them is 'loop'"
            raise _fault_at(node.target, what)
        outer, before = self._local, self._parts
        self._local = {**outer}
        for number, target in enumerate(targets):
            target.name = f"l{before}_{number}"
            self._local[names[number]] = target.name, slots
        if node.test:
            node.test = self.visit(node.test)
        # After the test, which chooses the values: before that there is no number to ask for.
        self._local["loop"] = "loop", {}
        node.body = self._block(node.body)
        self._local = outer
        steps = 1 + self._parts - before
        node.iter = _filtered(
            values, "each", steps, tuple(names) if isinstance(node.target, nodes.Tuple) else ()
        )
        node.else_ = self._block(node.else_)

    def _name(self, node: nodes.Name) -> nodes.Expr:
        name, mentioned = self._local.get(node.name) or (
            self.slots.setdefault(node.name, f"s{len(self.slots)}"),
            {node.name: None},
        )
        self._mentioned |= mentioned
        node.name = name
        return _filtered(node, "loop") if name == "loop" else node

    def _filter(self, node: nodes.Filter) -> None:
        if node.name not in _FILTERS:
            what = f"there is no filter {clip(repr(node.name), 60)}"
            raise _fault_at(node, f"{what}; there are {', '.join(_FILTERS)}")
        most = _FILTERS[node.name][1]
        if node.kwargs or node.dyn_args or node.dyn_kwargs or len(node.args) > most:
            many = f"{most} arguments at most" if most else "no arguments"
            raise _fault_at(node, f"the filter {node.name!r} takes {many}, none of them by name")
        self.generic_visit(node)


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
        self._bare = False
        """Whether it is nothing but text and slots, as most are."""
        self._pieces, form = [""], []
        try:
            tree = _parse(text)
            parts: list[Any] = [
                part for node in tree.body for part in getattr(node, "nodes", [node])
            ]
            self._bare = all(isinstance(part, nodes.TemplateData | nodes.Name) for part in parts)
            for part in parts if self._bare else ():
                if isinstance(part, nodes.TemplateData):
                    self._pieces[-1] += part.data
                else:
                    form.append((len(self._pieces[-1]), part.name, ""))
                    self._pieces += ["", ""]  # the value's place, and the text behind it
            self._form = tuple(form)
            self._names = _CheckedTree(tree).slots
            if not self._bare:
                code = _ENVIRONMENT.compile(tree)
                self._compiled = jinja2.Template.from_code(_ENVIRONMENT, code, {})
        except (RecursionError, SyntaxError, MemoryError) as error:
            raise PromptError(_NESTED) from error
        self.slots = tuple(self._names)

    def fill(self, values: Mapping[str, Any]) -> tuple[str, Layout]:
        """Fill the slots; return the text and where its values are.

        Raises:
            PromptError: a value lacks what is looked up in it, or a limit was reached.
            TypeError, ValueError, ArithmeticError: a filter or a comparison cannot take a value.
        """
        try:
            if self._bare:
                pieces = self._pieces.copy()
                pieces[1::2] = texts = [written(values[slot]) for _, slot, _ in self._form]
                text = "".join(pieces)
                if len(text) > MAX_OUTPUT:
                    raise _too_long()
                return text, Layout(self._form, tuple(map(len, texts)))
            filling, pieces = _Filling(), []
            names = {name: values[slot] for slot, name in self._names.items()}
            context = self._compiled.new_context({**names, _FILLING: filling}, shared=True)
            # One after the other: where a piece goes is known once those before it are counted.
            for piece in self._compiled.root_render_func(context):
                pieces.append(piece)
                filling.length += len(piece)
                if filling.length > MAX_OUTPUT:
                    raise _too_long()
        except jinja2.UndefinedError as error:
            raise PromptError(str(error)) from error
        except RecursionError as error:
            raise PromptError(f"{_NESTED}, or simpler values") from error
        return "".join(pieces), Layout(tuple(filling.form), tuple(filling.lengths))


@lru_cache(maxsize=1024)
def template_of(text: str) -> Template:
    """Return the template of a text, which is read only once.

    Raises:
        PromptError: see ``Template``.
    """
    return Template(text)
