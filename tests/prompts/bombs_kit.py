"""Templates that would take long, much memory or the interpreter's stack."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from llmsim_lab.prompts import Prompt

__all__ = ["BOMBS", "bomb_values", "filled"]

SIZES = (500, 3_000, 60_000)
MANY = 10**9

REPEATED = """
{{ «(»1«)» }}       {{ «a[»1«]» }}     {{ «not »1 }}      {{ «-»1 }}        {{ «a,» }}
{{ «a(»1«)» }}      {{ «[»«]» }}       {{ «{1:»1«}» }}    {{ a«.b» }}       {{ a«.__class__» }}
{{ a«|upper» }}     {{ a«[1:2]» }}     {{ a« and a» }}    {{ a« or a» }}    {{ a«~a» }}
{{ a« is a» }}      {{ a« if a else a» }}    {{ a«|join(a»«)» }}    {{ a«|default(a»«)» }}
«{% if a %}»«{% endif %}»              «{% if a %}{% else %}»«{% endif %}»
«{% for b in a %}»«{% endfor %}»       «{% for b in a %}{% else %}»«{% endfor %}»
«{% block a %}»«{% endblock %}»        «{% macro a() %}»«{{ a() }}{% endmacro %}»
«{% include 'a' %}»    «{% raw %}»     «{% set a = a ~ a %}»    «{{»    «{% »    «{#»
{{ 9«**9» }}    {{ 'x'«*9» }}          {{ '«''» }}        {{ 1e1«9» }}      {{ 9«9999999999» }}
{{ 0xf«ffffffffff» }}    {% for a in range(«9») %}{% endfor %}    {% if a < -1e1«9» %}{% endif %}
"""
"""Templates, with spaces between them; what is in «» is repeated."""


def repeated(size: int) -> Iterator[str]:
    """Yield templates in which something is repeated so often."""
    for template in re.split(r"\s\s+|\n", REPEATED.strip()):
        yield re.sub("«(.*?)»", lambda part: part[1] * size, template)


BODIES = {
    "upper": "{% if text|upper %}{% endif %}",
    "title": "{% if text|title %}{% endif %}",
    "trim": "{% if text|trim|lower|capitalize %}{% endif %}",
    "compare": "{% if text < text %}{% endif %}",
    "in text": "{% if 'x' in text %}{% endif %}",
    "in list": "{% if -1 in list %}{% endif %}",
    "nested lists": "{% if nested == again %}{% endif %}",
    "joined lists": "{% if nested|join %}{% endif %}",
    "first list": "{% if nested|first|join %}{% endif %}",
    "join": "{% if list|join(list) %}{% endif %}",
    "last": "{% if list|last %}{% endif %}",
    "items": "{% if dict|items %}{% endif %}",
    "pairs": "{% for k, v in dict|items %}{% endfor %}",
    "print": "{{ text }}",
    "print list": "{{ list }}",
    "print dict": "{{ dict }}",
    "loop": "{% for y in list %}{% endfor %}",
    "test": "{% for y in list if y < 0 %}{% endfor %}",
    "length": "{% for y in list %}{{ list|length }}{% endfor %}",
}
"""Inside a loop over many values."""

ONCE = {
    "text joined": "{{ text|join(text) }}",
    "joined twice": "{{ text|join(list)|join(text) }}",
    "text twice": "{{ text }}{{ text }}",
    "range": "{{ range }}{{ range|join }}",
    "last of range": "{{ range|last }}",
    "deep": "{{ deep }}",
    "deep joined": "{{ deep|join }}",
    "deep compared": "{% if deep == deeper %}{% endif %}",
    "itself": "{{ itself }}",
    "endless": "{% for x in endless %}{{ x }}{% endfor %}",
    "endless joined": "{{ endless|join }}",
    "endless test": "{% for x in endless if x < 0 %}{% endfor %}",
    "first of a set for each": "{% for x in list %}{{ set|first }}{% endfor %}",
    "a set in a loop in a loop": "{% for x in list %}{% for y in set %}{% endfor %}{% endfor %}",
    "shared": "{{ shared }}",
    "shared joined": "{{ shared|join|length }}",
    "shared compared": "{% if shared == model %}{% endif %}",
    "shared in a model": "{{ model }}",
    "shared in a dataclass": "{{ record|upper }}",
    "rounded down": "{{ text|length|round(-999999999999999) }}{{ text }}{{ text }}",
}


def deep(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


class Model(BaseModel):
    value: Any


@dataclass
class Record:
    value: Any


def sharing(depth: int) -> list[Any]:
    """Return a list that holds another twice, which holds another twice, and so on."""
    value: list[Any] = [""]
    for _ in range(depth):
        value = [value, value]
    return value


def bomb_values() -> dict[str, Any]:
    """Return the values of the bombs' slots."""
    itself: list[Any] = []
    itself.append(itself)
    return {
        "text": "ß" * 700_000,
        "list": [*range(250_000)],
        "dict": {str(number): number for number in range(50_000)},
        "nested": [[*range(1_000)] for _ in range(100)],
        "again": [[*range(1_000)] for _ in range(100)],
        "range": range(MANY),
        "deep": deep(5_000),
        "deeper": deep(5_000),
        "itself": itself,
        "endless": itertools.count(),
        "set": {("t", number) for number in range(20_000)},
        "shared": sharing(40),
        "model": Model.model_construct(value=sharing(40)),
        "record": Record(sharing(40)),
        "a": "ab",
    }


def bombs() -> Iterator[tuple[str, str]]:
    for size in SIZES:
        yield from ((f"{size} {text[:24]}…{text[-12:]}", text) for text in repeated(size))
    for text in ("{{ a.b }}", "{{ a }}", "{% if a %}{% endif %}", "{{ a < a }}", "{# #}{{ 1 }}"):
        yield f"many {text}", text * 9_000
    for depth, body in itertools.product((1, 2, 8), ("", "{{ x }}")):
        for values in ("range", "list", "text"):
            loops = f"{{% for x in {values} %}}" * depth
            yield f"{depth} loops over {values}: {body}", loops + body + "{% endfor %}" * depth
    for name, body in BODIES.items():
        yield f"{name} for each", f"{{% for x in range %}}{body}{{% endfor %}}"
    yield from ONCE.items()


BOMBS = dict(bombs())


def filled(text: str, values: dict[str, Any]) -> str:
    prompt = Prompt(text)
    return prompt.render(**{slot: values[slot] for slot in prompt.slots})
