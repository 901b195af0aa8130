"""Provenance of prompts: where each slot's value landed, and where it came from."""

from __future__ import annotations

from typing import Any

import pytest

from llmsim_lab.prompts import Prompt
from llmsim_lab.prompts._prompt import RenderedPrompt

ADVICE = Prompt(
    "Inflation is {{ inflation }}%.\nRate: {{ rate }}%. Again: {{ inflation }}",
    system="You advise {{ name }}.",
    name="advice",
)


def shown(prompt: RenderedPrompt) -> list[tuple[str, str, str]]:
    """Role, name and text of each span."""
    return [(s.role, s.name, getattr(prompt, s.role)[s.start : s.end]) for s in prompt.spans]


def pairs(prompt: Prompt, **values: Any) -> list[tuple[str, str]]:
    return [(name, text) for _, name, text in shown(prompt.render(**values))]


# Exact


def test_spans_are_where_the_values_landed_system_first() -> None:
    prompt = ADVICE.render(inflation="9.4", rate=4, name="Aland")
    assert shown(prompt) == [
        ("system", "name", "Aland"),
        ("user", "inflation", "9.4"),
        ("user", "rate", "4"),
        ("user", "inflation", "9.4"),
    ]
    assert prompt.provenance.why == ""


@pytest.mark.parametrize(
    "value",
    ["", "%. Again: ", "{{ rate }}", "{% if x %}", "%s %(rate)s", "\U000f0000\U000f0001\U000f0002"],
)
def test_spans_are_exact_whatever_a_value_looks_like(value: str) -> None:
    prompt = ADVICE.render(inflation=value, rate=value, name=value)
    assert [text for _, _, text in shown(prompt)] == [value] * 4
    assert prompt.provenance.why == ""


def test_an_expression_belongs_to_the_slots_it_mentions() -> None:
    prompt = Prompt("{{ name | upper }}, {{ a or b }}{{ 'fixed' }}")
    assert pairs(prompt, name="Ada", a=0, b=2) == [("name", "ADA"), ("a, b", "2")]


def test_what_a_loop_prints_belongs_to_what_it_goes_over() -> None:
    prompt = Prompt("{% for x in people %}- {{ x.name }} of {{ place }}\n{% endfor %}")
    found = pairs(prompt, people=[{"name": "A"}, {"name": "B"}], place="P")
    assert found == [("people", "A"), ("place", "P"), ("people", "B"), ("place", "P")]


def test_text_that_a_slot_only_switches_on_has_no_span() -> None:
    prompt = Prompt("{% if late %}Hurry. {% endif %}Hello {{ name }}")
    assert pairs(prompt, late=True, name="Ada") == [("name", "Ada")]


# Sources


def test_whoever_renders_can_say_where_values_came_from() -> None:
    sources = {"inflation": "state.inflation, turn {turn}", "other": "nothing"}
    prompt = ADVICE.render(inflation=1, rate=2, name="x").sourced(sources, turn="{agent}")
    told = "state.inflation, turn {agent}"  # braces in a fact are no template
    assert [span.source for span in prompt.spans] == ["", told, "", told]
