"""The language of prompts: what it has, what it does not, and its limits."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from llmsim_lab.errors import PromptError
from llmsim_lab.prompts import Prompt


class Nation(BaseModel):
    model_config = ConfigDict(extra="allow")

    name: str = "Aland"
    rates: tuple[float, ...] = (4.0, 4.5)

    @property
    def secret(self) -> str:
        return "a property may compute anything"


@dataclasses.dataclass
class Town:
    name: str = "Mariehamn"
    _mayor: str = "nobody's business"

    def rename(self) -> str:
        return "a method"


def filled(text: str, **values: Any) -> str:
    return Prompt(text).render(**values).user


# What there is


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("{{ a.b }}", {"a": {"b": 1}}, "1"),
        ('{{ a["b"] }}{{ a[k] }}', {"a": {"b": 1}, "k": "b"}, "11"),
        ("{{ a[0] }} {{ a[-1] }}", {"a": [3, 4]}, "3 4"),
        ("{{ s }}{% for x in s %} {{ x }}{% endfor %}", {"s": {"b", "a", "c"}}, "a, b, c a b c"),
        ("{{ s | join }} {{ s | first }} {{ s | last }}", {"s": {10, "a", 9}}, "910a 9 a"),
        ("{{ n.name }} {{ n.rates[1] }} {{ n.more }}", {"n": Nation(more=1)}, "Aland 4.5 1"),
        ("{{ t.name }}", {"t": Town()}, "Mariehamn"),
        ("{% if a < b <= 3 %}yes{% endif %}", {"a": 1, "b": 3}, "yes"),
        ("{% if a != b and not a > b %}yes{% endif %}", {"a": 1, "b": 3}, "yes"),
        ("{% if a >= b or 'x' in c %}yes{% endif %}", {"a": 1, "b": 3, "c": "xy"}, "yes"),
        ("{% if x == none %}A{% elif x %}B{% else %}C{% endif %}", {"x": 0}, "C"),
        ("{% if x == none %}A{% elif x %}B{% else %}C{% endif %}", {"x": 7}, "B"),
        ("{{ a or 'nobody' }}{{ a and 'somebody' }}", {"a": ""}, "nobody"),
        ("{% for x in xs %}{{ x }}{% else %}none{% endfor %}", {"xs": []}, "none"),
        ("{% for x in xs if x > 1 %}{{ x }}{% endfor %}", {"xs": [1, 2, 3]}, "23"),
        ("{% for k, v in m | items %}{{ k }}={{ v }} {% endfor %}", {"m": {"a": 1}}, "a=1 "),
        ("{% for x in x %}{{ x }}{% endfor %}{{ x }}", {"x": "ab"}, "abab"),
        ("a {%- if x %} b{% endif %}{# c #}{% raw %}{{ c }}{% endraw %}", {"x": 1}, "a b{{ c }}"),
        ("{% if x < -1.5 %}low{% endif %}", {"x": -2}, "low"),
        ("{{ a | upper }}{{ a | lower }}", {"a": "x Y"}, "X Yx y"),
        ("{{ a | title }}{{ a | capitalize }}", {"a": "x Y"}, "X YX y"),
        ("<{{ a | trim }}>{{ a | length }}", {"a": " x "}, "<x>3"),
        ("{{ a | first }}{{ a | last }}{{ a | join('-') }}", {"a": [1, 2]}, "121-2"),
        ("{{ a | round(1) }} {{ a | round }} {{ b | round }}", {"a": 2.345, "b": 7}, "2.3 2.0 7"),
        ("{{ a.b | default('?') }}{{ a.b | default }}", {"a": {}}, "?"),
    ],
)
def test_a_prompt_has(text: str, values: dict[str, Any], expected: str) -> None:
    assert filled(text, **values) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (29.799999999999997, "29.8"),
        (0.1 + 0.2, "0.3"),
        (-1234567.891, "-1234567.891"),
        (12345678901.5, "12345678900.0"),
        (12345678901, "12345678901"),
        (float("inf"), "inf"),
        ([0.1 + 0.2, {"a": (29.799999999999997, True, None)}], "0.3, (a: (29.8, True, None))"),
    ],
)
def test_numbers_are_written_for_readers(value: object, expected: str) -> None:
    assert filled("{{ x }}", x=value) == expected
    assert filled("{% if true %}{{ x }}{% endif %}", x=value) == expected


def test_names_that_python_takes_for_one_another_are_one_slot() -> None:
    prompt = Prompt("{{ ﬁ }}{% if true %}{{ ﬁ }}{{ fi }}{{ caller }}{% endif %}")
    assert prompt.slots == ("fi", "caller")
    assert prompt.render(ﬁ=1, caller=2).user == "1112"


@pytest.mark.parametrize(
    "use",
    [
        *("{{ a.b.c }}", "{{ a[a.b] }}", "{{ a.b | upper }}", "{{ a | join(a.b) }}"),
        *("{% if a.b %}{% endif %}", "{% if a.b in a.none %}{% endif %}"),
        "{% for x in a.b %}{% endfor %}",
    ],
)
def test_a_lookup_that_fails_is_an_error_wherever_it_stands(use: str) -> None:
    with pytest.raises(PromptError, match="has no item 'b'"):
        filled(use, a={"none": []})
    assert filled("{{ a.b.c | upper | default('none') }}", a={}) == "none"


def test_slots_come_in_order_also_out_of_loops_and_conditions() -> None:
    text = "{% for b in d if b > c %}{{ b }}{{ a }}{% endfor %}{% if e %}{{ b }}{% endif %}{{ f }}"
    assert Prompt(text).slots == ("d", "c", "a", "e", "b", "f")


# What there is not


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{{ a() }}", "a call is not allowed in a prompt; work it out before"),
        (
            "{{ a + 1 }}",
            r"arithmetic \(\+\) is not .*; work it out before.* Allowed are names, a\.b",
        ),
        ("{{ -a }}", r"arithmetic \(-\)"),
        ("{{ a ~ b }}", "'~' is not allowed"),
        ("{{ 'x' if a else 'y' }}", "'x if y else z' is not allowed"),
        ("{{ a is defined }}", "'is' is not allowed"),
        ("{{ a[1:2] }}", "a slice is not allowed"),
        ("{{ [a] }}", "a list is not allowed"),
        ("{% set b = a %}", "a assign is not allowed"),
        ("{% macro b() %}x{% endmacro %}", "a macro is not allowed"),
        ("{% include 'b.md' %}", "a include is not allowed"),
        ("{% autoescape true %}x{% endautoescape %}", "a scopedevalcontextmodifier is not"),
        ("{% do a.b() %}", "unknown tag 'do'"),
        ("{% for (x, y), z in a %}x{% endfor %}", "a loop over pairs in pairs is not allowed"),
        ("{% for x in a recursive %}x{% endfor %}", "'recursive' is not allowed"),
        ("{{ a | random }}", "there is no filter 'random'; there are capitalize, default, first"),
        ("{{ a | upper(1) }}", "the filter 'upper' got too many positional"),
        ("{{ a | join(d=',') }}", "a keyword is not allowed"),
        ("{{ a | join(*b) }}", "a filter is not allowed"),
        ("{% for x in a %}{{ loop.index }}{% endfor %}", "the name 'loop' is not allowed"),
        ("{% for self in a %}x{% endfor %}", "the name 'self' is not allowed"),
    ],
)
def test_a_prompt_does_not_have(text: str, what: str) -> None:
    with pytest.raises(PromptError, match=rf"line 2: .*{what}"):
        Prompt(f"Hello\n{text}")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ x.secret }}", Nation()),
        ("{{ x.model_fields }}", Nation()),
        ("{{ x.__class__ }}", Nation()),
        ("{{ x.rename }}", Town()),
        ("{{ x['_mayor'] }}", Town()),
        ("{{ x.real }}", 1),
        ("{{ x[2] }}", [1]),
        ("{{ x[true] }}", [1, 2]),
        ("{{ x.keys }}", {"a": 1}),
        ("{{ x | first }}", []),
        ("{{ x | last }}", []),
    ],
)
def test_only_items_and_fields_are_looked_up(text: str, value: object) -> None:
    with pytest.raises(PromptError, match="has no item"):
        filled(text, x=value)


@pytest.mark.parametrize(
    ("text", "value", "message"),
    [
        ("{% if x < 'a' %}b{% endif %}", 1, "'<' not supported"),
        ("{% for y, z in x %}b{% endfor %}", [[1]], "not enough values to unpack"),
        ("{{ x | length }}", 1, "has no len"),
        ("{{ x | round }}", "a", "could not convert"),
        ("{{ x | items }}", [1], "Can only get item pairs from a mapping"),
        ("{{ x[y] }}", {}, "unhashable"),
    ],
)
def test_a_value_that_does_not_fit_is_a_prompt_error(
    text: str, value: object, message: str
) -> None:
    values = {"x": value} | ({"y": []} if "x[y]" in text else {})
    with pytest.raises(PromptError, match=message):
        filled(text, **values)


# Limits


def test_output_ends() -> None:
    long = "x" * 600_000
    for text in ("{{ a }}{{ a }}", "{{ a }}{% if true %}{{ a }}{% endif %}"):
        with pytest.raises(PromptError, match="longer than 1,000,000 characters; give it shorter"):
            filled(text, a=long)
    with pytest.raises(PromptError, match="longer than 1,000,000"):
        filled("{{ a | join(b) }}", a="ab" * 9, b=long)
    assert len(filled("{{ a }}", a=long)) == 600_000
