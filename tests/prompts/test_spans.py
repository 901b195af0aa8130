"""Where each slot's value landed and came from: in a prompt, as a call keeps it, on a tape."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llmsim_lab.errors import TapeError
from llmsim_lab.prompts import Prompt, RenderedPrompt
from llmsim_lab.spans import MAX_SPANS, MAX_WORDS, Origin, Provenance, Span
from llmsim_lab.types import CallSite, ChatRequest, Message

ADVICE = Prompt(
    "Inflation is {{ inflation }}%.\nRate: {{ rate }}%.{% if late %} Hurry, {{ name }}!{% endif %}",
    system="You advise {{ name }}.",
    name="advice",
)
SOURCES = {"inflation": "state.inflation, turn {turn}", "name": "the name of {agent} ({mood})"}


def advice(name: str, turn: int, *, late: bool = False, mood: object = "{turn}") -> RenderedPrompt:
    prompt = ADVICE.render(inflation=9.5 + turn, rate="4", late=late, name=name)
    return prompt.sourced(SOURCES, agent=name, turn=turn - 1, mood=mood)


def shown(prompt: RenderedPrompt) -> list[tuple[str, str, str]]:
    """Role, name and text of each span."""
    return [(s.role, s.name, getattr(prompt, s.role)[s.start : s.end]) for s in prompt.spans]


def pairs(prompt: Prompt, **values: Any) -> list[tuple[str, str]]:
    return [(name, text) for _, name, text in shown(prompt.render(**values))]


# Where


def test_spans_are_where_the_values_landed_system_first() -> None:
    prompt = ADVICE.render(inflation="9.4", rate=4, name="Aland", late=True)
    assert shown(prompt) == [
        ("system", "name", "Aland"),
        ("user", "inflation", "9.4"),
        ("user", "rate", "4"),
        ("user", "name", "Aland"),
    ]
    assert prompt.provenance.why == ""


@pytest.mark.parametrize(
    "value",
    ["", "%. Again: ", "{{ rate }}", "{% if x %}", "%s %(rate)s", "\U000f0000\U000f0001\U000f0002"],
)
def test_spans_are_exact_whatever_a_value_looks_like(value: str) -> None:
    prompt = ADVICE.render(inflation=value, rate=value, name=value, late=True)
    assert [text for _, _, text in shown(prompt)] == [value] * 4


def test_an_expression_belongs_to_the_slots_it_mentions() -> None:
    prompt = Prompt("{{ name | upper }}, {{ a or b }}{{ 'fixed' }}")
    assert pairs(prompt, name="Ada", a=0, b=2) == [("name", "ADA"), ("a, b", "2")]


def test_what_a_loop_prints_belongs_to_what_it_goes_over() -> None:
    prompt = Prompt("{% for x in people %}- {{ x.name }} of {{ place }}\n{% endfor %}")
    found = pairs(prompt, people=[{"name": "A"}, {"name": "B"}], place="P")
    assert found == [("people", "A"), ("place", "P"), ("people", "B"), ("place", "P")]


# Whence


def site(name: str, turn: int) -> CallSite:
    return CallSite(component="agent", agent=name, turn=turn)


def asked(prompt: RenderedPrompt, place: CallSite | None) -> ChatRequest:
    texts = {"system": prompt.system, "user": prompt.user}
    messages = tuple(Message(role, text) for role, text in texts.items() if text)
    return ChatRequest(model="m", messages=messages, site=place, origin=prompt.origin(place))


@pytest.mark.parametrize("place", [site("Aland", 3), site("Borduria", 9), None])
@pytest.mark.parametrize("late", [True, False])
def test_a_call_keeps_what_its_prompt_knows(place: CallSite | None, late: bool) -> None:
    prompt = advice("Aland", 3, late=late)
    assert asked(prompt, place).provenance == prompt.provenance
    sources = [span.source for span in prompt.spans]
    # Braces in a fact are no template.
    assert sources[:3] == ["the name of Aland ({turn})", "state.inflation, turn 2", ""]


def test_prompts_of_one_template_share_their_form_whoever_is_asked_and_when() -> None:
    kept = [
        advice(name, turn).origin(site(name, turn))
        for name, turn in (("Aland", 1), ("Dland", 7), ("Aland", 12))
    ]
    assert len({origin.form for origin in kept if origin}) == 1
    assert [origin.spans for origin in kept if origin] == [(4, 1)] * 3


def test_sections_keep_their_tokens() -> None:
    own = Provenance(
        spans=(
            Span("ROLE", "system", 2, 4, "the {role}", tokens=1),
            Span("SITUATION", "user", 0, 4, "module a"),
            Span("EVENTS", "user", 6, 10, "module b", tokens=3),
        )
    )
    template = Prompt("{{ sections }}")
    prompt = RenderedPrompt(system="0123", user="SITU, EVEN", template=template, spans=own.spans)
    assert asked(prompt, site("Aland", 3)).provenance == own


def test_a_prompt_of_too_many_values_is_kept_without_them() -> None:
    many = Prompt("{% for x in xs %}{{ x }},{% endfor %}").render(xs=[1] * (MAX_SPANS + 1))
    for known in (many.provenance, asked(many, None).provenance):
        assert known.spans == ()
        assert "more than 2,000 values" in known.why


def test_long_words_are_kept_shortened_and_half_characters_as_question_marks() -> None:
    prompt = (
        Prompt("{{ a }}").render(a=1).sourced({"a": "{x}\ud800 " + "é" * 2 * MAX_WORDS}, x="yes")
    )
    [span] = asked(prompt, None).provenance.spans
    assert span.source.startswith("yes? éé")
    assert len(span.source) == MAX_WORDS


GOOD: dict[str, Any] = {
    "system": [[1, 1, "s", ""]],
    "user": [[0, None, "a", "of {agent}"], [1, None, "b", ""]],
    "facts": {"agent": None},
}


@pytest.mark.parametrize(
    ("changed", "spans", "why"),
    [
        ({}, [2], "2 values of the user message have 1 lengths"),
        ({}, [[2, 2], [1], []], "3 of both have 1 tokens"),
        ({}, [2, 4], "'b' ends at 7, and the user message has 6 characters"),
        ({}, [2, -1], "greater than or equal to 0"),
        ({}, [[2, 2], 1], "valid list"),
        ({}, [2, 99999999999999999999], "less than or equal to"),
        ({"system": [[3, 9, "s", ""]]}, [2, 2], "'s' ends at 12, and the system message has 4"),
        ({"user": [[-1, None, "a", ""]] * 2}, [2, 2], "greater than or equal to 0"),
        ({"user": [[0, None, "a" * 1_001, ""]] * 2}, [2, 2], "at most 1000 characters"),
        ({"user": [[0, None, "a", ""]] * (MAX_SPANS + 1)}, [2, 2], "at most 2000 items"),
        ({"facts": {"turn": 2}}, [2, 2], "less than or equal to 0"),
    ],
)
def test_what_is_not_so_written_is_damaged(
    changed: dict[str, Any], spans: list[Any], why: str
) -> None:
    texts = {"system": "0123", "user": "012345"}
    assert Origin(json.dumps(GOOD), [2, 2]).read(texts, agent="A", turn=1).spans[1].end == 2
    with pytest.raises(TapeError, match="where its values came from is damaged: ") as error:
        Origin(json.dumps(GOOD | changed), spans).read(texts, agent="A", turn=1)
    assert why in str(error.value)


def test_words_of_a_tape_are_filled_in_and_do_nothing_else() -> None:
    words = "{turn.__class__} {turn:>99} {turn} {agent} {unknown} {long}" + "{long}" * 100
    form = GOOD | {"user": [[0, None, "a", words]], "facts": {"turn": 0, "long": "x" * 1_000}}
    known = Origin(json.dumps(form), [6]).read(
        {"system": "0123", "user": "012345"}, agent=None, turn=None
    )
    source = known.spans[1].source
    assert source.startswith("{turn.__class__} {turn:>99} 0 {agent} {unknown} xxx")
    assert len(source) == MAX_WORDS
