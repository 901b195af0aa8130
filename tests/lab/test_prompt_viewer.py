"""The prompt viewer, driven as a user does."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from builders import answer, in_words, make_client, make_simulation
from tape_text import rewrite
from viewer_kit import HOSTILE, bumpy, hostile_run, played, taped

from llmsim_lab._spans import Provenance, Span
from llmsim_lab.agents import EconLLMAgent
from llmsim_lab.errors import BackendError, ConfigError
from llmsim_lab.lab import PromptViewer
from llmsim_lab.lab._html import (
    copyable,
    facts_html,
    legend_html,
    lit,
    messages_html,
    reply_html,
    word_diff,
)
from llmsim_lab.lab._run_reading import Attempts
from llmsim_lab.llm import Tape
from llmsim_lab.models import SimulationState
from llmsim_lab.run import load, replay
from llmsim_lab.simulation import Simulation
from llmsim_lab.types import Attempt, ChatReply, ChatRequest, Message, ToolCall

FIRST_RUN = Path(__file__).parents[2] / "data" / "tapes" / "first_run.tape"


def options(box: Any) -> list[str]:
    return [label for label, _ in box.options]


def choose(box: Any, label: str) -> None:
    box.value = dict(box.options)[label]


def panes(viewer: PromptViewer) -> str:
    """Everything that is shown as HTML."""
    parts = ("heading", "prompt", "legend", "reply", "facts", "changes", "status")
    return "".join(getattr(viewer, part).value for part in parts)


class Tags(HTMLParser):
    """The elements of a page, and the attributes that would run something."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.handlers: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]


# Choosing


def test_it_opens_on_the_latest_turn() -> None:
    viewer = PromptViewer(played())
    assert viewer.turn_box.value == 2
    assert options(viewer.component_box) == ["agent", "validator", "engine"]
    assert options(viewer.agent_box) == ["Aland", "Borduria"]
    assert options(viewer.attempt_box) == ["attempt 1: answered"]
    assert "Turn 2 · agent · Aland · attempt 1: answered" in viewer.heading.value


def test_the_prompt_is_shown_by_role_with_its_slots_marked() -> None:
    viewer = PromptViewer(played())
    assert ">system</span></summary>" in viewer.prompt.value
    assert ">user</span></summary>" in viewer.prompt.value
    plain = re.sub("<[^>]+>", "", viewer.prompt.value)
    assert re.search(r"Inflation: \[\d\] 2%", plain)
    assert re.search(r"\[\d\] inflation<", viewer.legend.value)
    assert "state.global_state.inflation, turn 1" in viewer.legend.value
    assert "noted as the prompt was rendered" in viewer.legend.value


def test_reply_tokens_and_options_are_shown() -> None:
    simulation = Simulation(
        in_words(nations=("Aland",)), llm_client=make_client(temperature=0.3, seed=7)
    )
    simulation.run(1)
    viewer = PromptViewer(simulation)
    assert "Raise the interest rate by 0.25" in viewer.reply.value
    assert "seed 7, temperature 0.3" in viewer.facts.value
    assert "num_ctx 4096" in viewer.facts.value
    assert "schema the reply is held to" in viewer.facts.value


def test_back_and_forth_keep_component_and_agent() -> None:
    viewer = PromptViewer(played(turns=3))
    viewer.component_box.value = "engine"
    viewer.agent_box.value = "Borduria"
    for click, turn in ((viewer.previous_button, 2), (viewer.previous_button, 1)):
        click.click()
        assert viewer.turn_box.value == turn
        assert f"Turn {turn} · engine · Borduria" in viewer.heading.value
    viewer.next_button.click()
    assert viewer.turn_box.value == 2
    viewer.latest_button.click()
    assert viewer.turn_box.value == 3


def test_back_and_forth_end_where_the_run_does() -> None:
    viewer = PromptViewer(played())
    viewer.next_button.click()
    assert "nothing to show after turn 2" in viewer.status.value
    viewer.turn_box.value = 0
    assert "Nobody has decided anything" in viewer.prompt.value
    viewer.previous_button.click()
    assert "nothing to show before turn 0" in viewer.status.value


def test_show_goes_to_a_request_by_its_place() -> None:
    viewer = PromptViewer(str(FIRST_RUN), run=1)
    viewer.show(turn=3, component="engine")
    assert "Turn 3 · engine · United States" in viewer.heading.value
    assert viewer.text.startswith("[system]\nYou are an economic simulation engine.")


def test_show_says_what_there_is_instead() -> None:
    viewer = PromptViewer(played())
    with pytest.raises(ConfigError, match="turn 1 has no attempt 1 of judge for any agent; it has"):
        viewer.show(turn=1, component="judge")
    with pytest.raises(ConfigError, match="attempt 2 of any component for Aland"):
        viewer.show(agent="Aland", attempt=2)
    with pytest.raises(ConfigError, match="the run has no turn 99; it has turns 0 to 2"):
        viewer.show(turn=99)


def test_a_rules_decision_shows_its_reason() -> None:
    viewer = PromptViewer(played(names=({"name": "Rule", "kind": "taylor"}, "Aland")))
    viewer.show(agent="Rule", component="agent")
    assert "No model was asked" in viewer.prompt.value
    assert "the rule asks for" in viewer.prompt.value
    assert viewer.text == ""
    assert "the rule asks for" in viewer.static_text()


def test_turns_played_later_are_seen_by_who_looks_at_the_latest() -> None:
    simulation = make_simulation()
    viewer, behind = PromptViewer(simulation), PromptViewer(simulation)
    simulation.run(2)
    behind.turn_box.value = 1
    viewer._grew()
    behind._grew()
    assert (viewer.turn_box.value, behind.turn_box.value) == (2, 1)


async def test_a_running_simulation_is_followed() -> None:
    simulation = make_simulation()
    viewer = PromptViewer(simulation)
    assert "nothing to show" in viewer.static_text()
    await simulation.arun(2)
    assert viewer.turn_box.max == 2
    assert "Turn 2 · agent" in viewer.heading.value


async def test_a_replay_opens_at_its_own_turn_and_shows_what_it_has_played() -> None:
    simulation = await asyncio.to_thread(replay, FIRST_RUN, 1, turns=0)
    viewer = PromptViewer(simulation)
    assert (viewer.turn_box.value, viewer.turn_box.max) == (0, 0)
    assert viewer.static_text() == "Prompt viewer of 'one nation', turn 0: nothing to show"
    assert viewer.find("interest rate") == []
    await simulation.arun(2)
    await viewer.idle()
    assert (viewer.turn_box.value, viewer.turn_box.max) == (2, 2)
    assert "attempt 1: answered<" in viewer.heading.value


async def test_a_closed_viewer_follows_no_longer() -> None:
    simulation = make_simulation()
    viewer = PromptViewer(simulation)
    viewer.close()
    await simulation.arun(1)
    assert viewer.turn_box.max == 0


# Repairs and failures


def test_a_repair_shows_the_whole_conversation(tmp_path: Path) -> None:
    viewer = PromptViewer(bumpy(tmp_path / "x.tape"))
    viewer.show(turn=1, agent="Borduria", component="agent")
    assert options(viewer.attempt_box) == [
        "attempt 1: invalid_response",
        "attempt 2: answered",
    ]
    assert "no JSON at all" in viewer.reply.value
    assert "invalid_response: the reply is not valid JSON" in viewer.facts.value
    choose(viewer.attempt_box, "attempt 2: answered")
    assert "assistant: its answer to the attempt before" in viewer.prompt.value
    assert "user: what was wrong with that" in viewer.prompt.value
    assert "That reply was not valid" in viewer.prompt.value
    assert "repaired" in viewer.facts.value


def test_calls_that_were_lost_are_there_too(tmp_path: Path) -> None:
    viewer = PromptViewer(bumpy(tmp_path / "x.tape"))
    viewer.show(turn=2, component="engine", agent="Aland", attempt=2)
    assert options(viewer.attempt_box) == [
        "attempt 1: answered",
        "attempt 1: timeout, led to no decision",
        "attempt 2: timeout, led to no decision",
    ]
    assert "timeout: " in viewer.facts.value
    assert "none came" in viewer.reply.value
    assert "fault: " in viewer.static_text()


def test_what_a_stopped_model_had_said_is_shown_with_the_reason(tmp_path: Path) -> None:
    reply = ChatReply(text='{"action": "ha ha ha', done_reason="aborted")
    stopped = BackendError("it said ha", reason="generation_stopped", retry=True, reply=reply)

    def replies(request: ChatRequest) -> Any:
        assert request.site is not None
        first = (request.site.component, request.attempt) == ("agent", 1)
        return stopped if first else answer(request)

    config = in_words(nations=("Aland",))
    simulation = Simulation(config, llm_client=make_client(replies), tape=tmp_path / "x.tape")
    simulation.run(1)
    viewer = PromptViewer(replay(tmp_path / "x.tape"))
    choose(viewer.status_box, "failed attempts")
    assert options(viewer.attempt_box) == ["attempt 1: generation_stopped"]
    assert "{&#34;action&#34;: &#34;ha ha ha" in viewer.reply.value
    assert "generation_stopped: it said ha" in viewer.facts.value
    assert "aborted" in viewer.facts.value
    assert viewer.static_text().splitlines()[-2:] == [
        "  fault: it said ha",
        '  reply: {"action": "ha ha ha',
    ]


def test_a_turn_that_is_not_whole_can_be_looked_at(tmp_path: Path) -> None:
    simulation = bumpy(tmp_path / "x.tape", repaired=False)
    viewer = PromptViewer(simulation)
    assert simulation.turn_number == 1
    assert viewer.turn_box.value == 2
    assert "attempt 1: answered, led to no decision" in viewer.heading.value
    viewer.show(component="engine")
    assert "timeout" in viewer.heading.value
    assert "engine_interest_rate" not in viewer.legend.value
    assert "state.global_state.interest_rate, turn 1" in viewer.legend.value


def test_failed_attempts_can_be_filtered(tmp_path: Path) -> None:
    viewer = PromptViewer(bumpy(tmp_path / "x.tape"))
    choose(viewer.status_box, "failed attempts")
    viewer.turn_box.value = 1
    assert options(viewer.component_box) == ["agent"]
    assert options(viewer.attempt_box) == ["attempt 1: invalid_response"]
    viewer.next_button.click()
    assert options(viewer.component_box) == ["agent", "engine"]
    viewer.component_box.value = "engine"
    assert options(viewer.attempt_box) == [
        "attempt 1: timeout, led to no decision",
        "attempt 2: timeout, led to no decision",
    ]


def test_choosing_a_status_goes_to_the_nearest_turn_that_has_it() -> None:
    def reply(request: ChatRequest) -> Any:
        site = request.site
        assert site is not None
        if (site.turn, site.component, request.attempt) == (2, "engine", 1):
            return "no JSON"
        return answer(request)

    viewer = PromptViewer(played(reply, turns=5))
    choose(viewer.status_box, "repaired")
    assert viewer.turn_box.value == 2
    assert "engine" in viewer.heading.value


def test_a_filter_skips_turns_and_says_when_there_are_none(tmp_path: Path) -> None:
    viewer = PromptViewer(taped(tmp_path / "x.tape"))
    choose(viewer.status_box, "repaired")
    assert "Nothing in this run has that status" in viewer.prompt.value
    assert viewer.seen is None
    viewer.previous_button.click()
    assert "nothing to show before turn 3" in viewer.status.value
    assert "nothing to show" in viewer.static_text()
    assert "Nothing in this run" in viewer.static_html()


def test_a_tape_that_was_replaced_is_told_in_place(tmp_path: Path) -> None:
    simulation = bumpy(tmp_path / "x.tape")
    viewer = PromptViewer(simulation)
    assert simulation.tape is not None
    rewrite(tmp_path / "x.tape", lambda line: line | {"seconds": -1} if line.get("no") else line)
    viewer.turn_box.value = 2
    assert 'role="alert"' in viewer.error.value
    assert "is another file by now" in viewer.error.value


class Plain(EconLLMAgent):
    """Writes its prompt without a template."""

    def _construct_prompt(self, state: SimulationState) -> str:
        return f"Inflation is {state.global_state.inflation}. What now?"


def test_a_prompt_given_as_plain_text_is_shown_and_said_to_be_so() -> None:
    client = make_client()
    simulation = Simulation(in_words(), llm_client=client, agents=[Plain("Aland", client)])
    simulation.run(1)
    viewer = PromptViewer(simulation)
    assert "Inflation is 2.0. What now?" in viewer.prompt.value
    assert "<mark" not in viewer.prompt.value
    assert (
        "Where the values are: not known (the call keeps none: its prompt came as plain text"
        in (viewer.legend.value)
    )


def test_every_kind_of_run_shows_where_its_values_came_from(tmp_path: Path) -> None:
    live = bumpy(tmp_path / "x.tape")
    replayed, loaded = replay(tmp_path / "x.tape"), load(tmp_path / "x.tape")
    seen = [
        [one.attempt.request.provenance for one in Attempts(run).of(2) if one.attempt]
        for run in (live, replayed, loaded)
    ]
    assert seen[0] == seen[1] == seen[2]
    assert len(seen[0]) == 9
    assert all(span.source for known in seen[0] for span in known.spans)
    assert {known.how for known in seen[0]} == {"rendered"}


@pytest.mark.parametrize(
    ("spans", "why"),
    [
        ([3, 1, 1], "have 3 lengths"),
        ([3, 1, 1, 999999], "ends at"),
        ([3, 1, 1, -1], "greater than or equal to 0"),
        ([3, 1, 1, 1.5], "int"),
        (["<img src=x onerror=alert(1)>"], "int"),
    ],
)
def test_damaged_spans_leave_the_prompt_plain_and_are_told(
    tmp_path: Path, spans: list[Any], why: str
) -> None:
    taped(tmp_path / "x.tape", turns=1)

    def edit(line: dict[str, Any]) -> dict[str, Any]:
        is_agents = line.get("component") == "agent"
        return line | {"origin": [line["origin"][0], spans]} if is_agents else line

    rewrite(tmp_path / "x.tape", edit)
    viewer = PromptViewer(load(tmp_path / "x.tape"))
    assert "Propose ONE specific economic policy action." in viewer.prompt.value
    assert "<mark" not in viewer.prompt.value
    assert "where its values came from is damaged: " in viewer.legend.value
    assert why in viewer.legend.value
    assert "<img" not in viewer.legend.value + str(viewer.static_html())
    assert viewer.error.value == ""


# Searching


def test_search_finds_prompts_and_replies_and_steps_through_them() -> None:
    viewer = PromptViewer(played())
    viewer.search.search_box.value = "borduria SEES"
    assert [(hit.seen.turn, hit.part) for hit in viewer.search.hits] == [(1, "reply"), (2, "reply")]
    assert "Turn 1 · agent · Borduria" in viewer.heading.value
    assert "Hit 1 of 2, in the reply: " in viewer.status.value
    assert options(viewer.search.hit_box)[0].startswith("1. turn 1 · agent · Borduria · reply: ")
    viewer.search.next_hit_button.click()
    assert "Turn 2 · agent · Borduria" in viewer.heading.value
    viewer.search.next_hit_button.click()
    assert "Hit 1 of 2" in viewer.status.value
    viewer.search.previous_hit_button.click()
    assert "Hit 2 of 2" in viewer.status.value
    choose(viewer.search.hit_box, options(viewer.search.hit_box)[0])
    assert "Turn 1 · agent · Borduria" in viewer.heading.value


def test_search_shows_the_line_that_has_the_text() -> None:
    viewer = PromptViewer(FIRST_RUN, run=1)
    [hit, *_] = viewer.find("inflation: ")
    assert hit.line == "- Inflation: 11.09%"
    assert hit.part == "prompt"


def test_search_finds_faults_rules_and_lost_calls(tmp_path: Path) -> None:
    viewer = PromptViewer(bumpy(tmp_path / "x.tape"))
    hits = viewer.find("no reply within")
    assert {hit.part for hit in hits} == {"fault"}
    assert len(hits) == 2
    rule = PromptViewer(played(names=({"name": "Rule", "kind": "taylor"}, "Aland")))
    assert {hit.part for hit in rule.find("the rule asks")} == {"reasoning"}


def test_a_search_without_hits_says_so() -> None:
    viewer = PromptViewer(played())
    viewer.search.search_box.value = "no such text"
    assert "Not found" in viewer.status.value
    viewer.search.next_hit_button.click()
    assert viewer.find("") == []
    viewer.search.search_box.value = "Inflation"
    viewer.search.find_button.click()
    assert "Hit 1 of" in viewer.status.value


def test_the_list_of_hits_does_nothing_once_a_later_search_found_nothing() -> None:
    viewer = PromptViewer(played())
    viewer.find("sees turn")
    viewer.find("no such text")
    before = viewer.heading.value
    choose(viewer.search.hit_box, options(viewer.search.hit_box)[1])
    assert viewer.heading.value == before
    assert "Not found" in viewer.status.value


def test_many_hits_are_listed_a_hundred_at_a_time() -> None:
    names = tuple(f"N{number}" for number in range(30))
    viewer = PromptViewer(played(names=names))
    hits = viewer.find("confidence")
    assert len(hits) > 200
    assert len(viewer.search.hit_box.options) == 100
    viewer.search.previous_hit_button.click()
    assert options(viewer.search.hit_box)[-1].startswith(f"{len(hits)}. turn 2")


def test_more_hits_than_can_be_kept_are_counted_as_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmsim_lab.lab._prompt_viewer._MOST_HITS", 3)
    viewer = PromptViewer(played())
    assert len(viewer.find("confidence")) == 3
    assert "Hit 1 of 3+" in viewer.status.value


def test_a_prompt_that_was_kept_without_a_call_is_shown() -> None:
    simulation = played()
    turn = simulation.turns[-1]
    chain = replace(turn.chains[0], call=None, prompt_text="<what now?>")
    simulation.turns[-1] = replace(turn, chains=(chain,))
    assert "&lt;what now?&gt;" in PromptViewer(simulation).prompt.value


def test_a_text_whose_small_letters_are_longer_is_searched_too() -> None:
    def reply(request: ChatRequest) -> Any:
        given = answer(request)
        return given.model_copy(update={"reasoning": "İİİ needle"})

    assert (
        PromptViewer(played(reply, turns=1))
        .find("NEEDLE")[0]
        .line.endswith('needle","confidence":0.8}')
    )


# Comparing and copying


def test_the_same_prompt_of_the_turn_before_is_compared() -> None:
    viewer = PromptViewer(played())
    viewer.compare_box.value = True
    assert "From turn 1 to turn 2" in viewer.changes.value
    assert "<del " in viewer.changes.value
    viewer.previous_button.click()
    assert "Turn 0 has no such prompt" in viewer.changes.value
    viewer.turn_box.value = 0
    assert "no prompt to compare" in viewer.changes.value
    viewer.compare_box.value = False
    assert viewer.changes.value == ""


def test_texts_can_be_copied_and_follow_what_is_shown() -> None:
    viewer = PromptViewer(played())
    assert viewer.copies.layout.display == "none"
    viewer.copy_button.click()
    boxes = viewer.copies.boxes
    assert viewer.copies.layout.display == ""
    assert boxes["Prompt"].value == viewer.text
    assert "Aland sees turn 2." in boxes["Reply"].value
    viewer.previous_button.click()
    assert "Aland sees turn 1." in boxes["Reply"].value
    viewer.copy_button.click()
    assert viewer.copies.layout.display == "none"


def test_a_copied_text_is_harmless_and_says_what_it_lacks() -> None:
    assert copyable("a\r\nb") == "a\nb"
    assert copyable("\x1b[31m") == "␛[31m\n[hidden characters are written out]"
    assert copyable("a" * 600_000).endswith("a\n[100,000 characters are left out]")


def test_long_texts_are_compared_by_their_beginnings() -> None:
    assert word_diff("same", "same") == "no change"
    assert "Only the first 10 characters" in word_diff("a " * 10, "b " * 10, limit=10)


# Untrusted text


def test_hostile_text_is_shown_and_does_nothing() -> None:
    viewer = PromptViewer(hostile_run())
    viewer.compare_box.value = True
    viewer.copy_button.click()
    viewer.find("alert(1)")
    for component in ("agent", "validator", "engine"):
        viewer.component_box.value = component
        for page in (panes(viewer), str(viewer.static_html())):
            tags = Tags(page)
            assert not tags.names & {"script", "img", "style", "b"}
            assert tags.handlers == []
            assert "\x1b" not in page
            assert "\u202e" not in page
    assert "\u202e" not in viewer.static_text()
    assert "\x1b" not in "".join(options(viewer.search.hit_box))


def test_a_hostile_reply_stays_small_on_the_page() -> None:
    viewer = PromptViewer(hostile_run())
    assert len(HOSTILE) > 100_000
    assert "more characters" in viewer.reply.value
    assert f"<summary>{len(HOSTILE.strip()):,} characters<" in viewer.reply.value
    assert len(viewer.reply.value) < 80_000


def request_of(*messages: Message, **more: Any) -> ChatRequest:
    return ChatRequest(model="<m>", messages=messages, **more)


def test_long_prompts_are_cut_where_it_is_said() -> None:
    text = "a" * 19_000 + "VALUE" + "b" * 5_000 + "LATE"
    spans = (Span("x", "user", 19_000, 19_005), Span("y", "user", 24_005, 24_009))
    attempt = Attempt(request=request_of(Message("user", text)), reply=None, seconds=0)
    page = messages_html(attempt, Provenance(spans=spans))
    assert "[1] </small>VALUE</mark>" in page
    assert "LATE" not in page
    assert "4,014 more characters" not in page
    assert "more characters" in page


def test_tools_thinking_and_odd_endings_are_shown() -> None:
    call = ToolCall(name="<add>", arguments={"a": 1})
    request = request_of(
        Message("user", "Do it"),
        Message("assistant", "", (call,)),
        Message("tool", "done", tool_name="<add>"),
        tools=({"type": "function", "function": {"name": "<add>"}},),
    )
    reply = ChatReply(text="{}", thinking="<hm>", tool_calls=(call,), done_reason="length")
    attempt = Attempt(request=request, reply=reply, seconds=1.5, status_code=500, reason="timeout")
    page = messages_html(attempt, Provenance()) + facts_html(attempt, status=None, seconds=True)
    page += reply_html(attempt)
    for shown in (
        "&lt;add&gt;",
        "&lt;hm&gt;",
        "&lt;m&gt;",
        "cut at its length",
        "1.50",
        "HTTP 500",
        "none",
    ):
        assert shown in page
    assert "not reported" in page
    assert ">the server&#39;s<" in page


def test_fields_that_were_not_asked_for_are_named_so() -> None:
    schema: dict[str, Any] = {"properties": {"a": {}}}
    reply = ChatReply(text=json.dumps({"a": "x", "b": [1, 2]}))
    attempt = Attempt(request=request_of(schema=schema), reply=reply, seconds=0)
    assert "b (not asked for)" in reply_html(attempt)
    assert "[1, 2]" in reply_html(attempt)


def test_sections_with_tokens_have_a_place_in_the_legend() -> None:
    attempt = Attempt(request=request_of(Message("user", "SITUATION")), reply=None, seconds=0)
    found = Provenance(
        spans=(Span("SITUATION", "user", 0, 9, "module diplomatic_base", tokens=3),),
    )
    page = legend_html(attempt, found)
    assert "module diplomatic_base (3 tokens)" in page


# The static view


def test_the_static_view_is_the_same_for_the_same_run() -> None:
    viewers = [PromptViewer(Tape(FIRST_RUN, read_only=True), run=1) for _ in range(2)]
    for viewer in viewers:
        viewer.show(turn=2, component="agent")
    [first, second] = [viewer._repr_mimebundle_() for viewer in viewers]
    for kind in ("text/plain", "text/html"):
        assert first[kind] == second[kind]
    assert "inflation = 11.76  (state.global_state.inflation, turn 1)" in first["text/plain"]
    assert "seconds" not in first["text/html"]
    assert str(FIRST_RUN.parent) not in first["text/html"]


def test_what_was_searched_is_marked_in_prompt_and_reply_until_nothing_is_found() -> None:
    viewer = PromptViewer(played())
    assert "text-decoration:underline" not in viewer.prompt.value
    viewer.find("INFLATION:")
    [hit] = re.findall(r'<mark style="[^"]*underline">([^<]*)</mark>', viewer.prompt.value)
    assert hit == "Inflation:"
    viewer.find("sees turn")
    assert ">sees turn</mark>" in viewer.reply.value
    viewer.find("no such words")
    assert "underline" not in viewer.prompt.value + viewer.reply.value


def test_a_hit_is_marked_across_a_slot_and_beside_itself() -> None:
    slot = Span(name="x", start=3, end=5, role="user", source="a test")
    html = str(lit("ab 12 cd", "B 1", slots=[(1, slot)]))
    found = re.findall(r'underline">([^<]*)</mark>', html)
    assert "".join(found) == "b 1"
    assert re.sub("<[^>]+>", "", html) == "ab [1] 12 cd"
    assert re.sub("<[^>]+>", "|", str(lit("aab", "a"))) == "|a||a|b"
    assert str(lit("<b>", "")) == "&lt;b&gt;"
    assert str(lit("abc", "", limit=2)) == "ab <em>… 1 more characters</em>"
