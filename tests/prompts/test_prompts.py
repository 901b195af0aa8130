"""Prompts: files with slots, loud about every mismatch, safe with untrusted text."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest

from llmsim_lab.errors import PromptError
from llmsim_lab.prompts import Prompt

GREETING = Prompt("Greet {{ name }}.", system="You are {{ mood }}.", name="greeting")


# Loading


def test_the_shipped_prompts_are_listed_and_load() -> None:
    assert {"agent_policy", "engine_interest_rate", "validator_economic"} <= set(Prompt.shipped())
    for name in Prompt.shipped():
        prompt = Prompt.load(name)
        assert prompt.name == name
        assert prompt.edit(prompt.text) == prompt


IN_ANOTHER_ORDER = {
    *("agent_policy", "engine_interest_rate", "reasoner"),  # their contracts'
    "tool_lookup",  # tapes do not hold it, so with another order they could not be replayed
}


@pytest.mark.parametrize("name", sorted({*Prompt.shipped()} - IN_ANOTHER_ORDER))
def test_nothing_that_stays_the_same_follows_what_changes(name: str) -> None:
    assert "{{" in Prompt.load(name).user.splitlines()[-1]


@pytest.mark.parametrize("name", ["agent_polcy", "../models", "", "a b"])
def test_an_unknown_prompt_names_those_there_are(name: str) -> None:
    with pytest.raises(PromptError, match=r"shipped are .*agent_policy, .*ending in \.md"):
        Prompt.load(name)


def test_a_file_of_ones_own_is_loaded_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.md"
    path.write_text("Why.\n\n## System\n\nBe {{ mood }}.\n\n## User\n\nHi {{ name }}!\n")
    for given in (path, str(path)):
        prompt = Prompt.load(given)
        assert (prompt.name, prompt.system, prompt.user) == (
            "mine",
            "Be {{ mood }}.",
            "Hi {{ name }}!",
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("## System\n\nHi\n", "no line '## User'"),
        ("Hi {{ name }}", "no line '## User'"),
        ("## User\nA\n## User\nB\n", "twice"),
        ("## User\n\n   \n", "empty user message; give it some text"),
        ("## User\nA\nB {{ name }\n", "user message, line 2"),
        ("## System\n{% if x %}\n## User\nA", "system message, line"),
    ],
)
def test_a_faulty_file_says_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "faulty.md"
    path.write_text(text)
    with pytest.raises(PromptError, match=message) as caught:
        Prompt.load(path)
    assert "'faulty'" in str(caught.value)


def test_a_missing_or_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match=r"cannot read the prompt file .*none\.md"):
        Prompt.load(tmp_path / "none.md")
    (tmp_path / "latin.md").write_bytes(b"## User\n\xff")
    with pytest.raises(PromptError, match=r"cannot read the prompt file .*latin\.md"):
        Prompt.load(tmp_path / "latin.md")


# Slots and rendering


def test_a_rendered_prompt_is_its_parts_and_their_sum() -> None:
    rendered = GREETING.render(name="Ada", mood="kind")
    assert (rendered.system, rendered.user) == ("You are kind.", "Greet Ada.")
    assert rendered == "You are kind.\n\nGreet Ada."
    assert rendered.template is GREETING


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "Ada"}, r"'greeting': no value for mood; its slots are: mood, name"),
        ({"name": "Ada", "mood": "kind", "age": 3}, r"no slot for age"),
        ({"nmae": "Ada", "mood": "kind"}, r"no value for name; no slot for nmae"),
    ],
)
def test_values_and_slots_must_match(values: dict[str, object], message: str) -> None:
    with pytest.raises(PromptError, match=message):
        GREETING.render(**values)


def test_a_value_with_template_marks_goes_in_as_it_is() -> None:
    rendered = GREETING.render(name="{{ mood }}{% for x in y %}{# no #}", mood="{{ 6 * 7 }}")
    assert rendered.system == "You are {{ 6 * 7 }}."
    assert rendered.user == "Greet {{ mood }}{% for x in y %}{# no #}."


# Changing


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (str.upper, r"edited with its new text.*vary=\{'prompt'"),
        ("kind.md", r"'kind.md' is a file's name.*Path\('kind.md'\).read_text"),
    ],
)
def test_a_function_or_a_files_name_is_not_the_new_text_of_a_prompt(
    text: Any, message: str
) -> None:
    with pytest.raises(PromptError, match=message):
        Prompt("Give?", name="gift").edit(text)


def test_an_edited_prompt_knows_its_parent() -> None:
    edited = GREETING.edit("Hello {{ name }}")
    assert (edited.user, edited.system) == ("Hello {{ name }}", GREETING.system)
    assert (edited.parent, edited.name) == (GREETING.digest, "greeting")
    assert edited.render(name="Ann", mood="", pet="").user == "Hello Ann"  # slots may go
    assert GREETING.parent is None


def test_what_cannot_be_changed_so_is_refused() -> None:
    for old in ("nowhere", ""):
        with pytest.raises(PromptError, match=r"does not contain .*see prompt\.text"):
            GREETING.replace(old, "new")
    with pytest.raises(PromptError, match="empty user message"):
        GREETING.edit("  \n")


def test_a_diff_marks_words_gone_and_new() -> None:
    diff = GREETING.diff(GREETING.replace("Greet", "Salute"))
    assert "[-Greet-]{+Salute+} {{ name }}." in diff


# Identity and looks


def test_prompts_survive_pickle_and_copy() -> None:
    for again in (pickle.loads(pickle.dumps(GREETING)), copy.deepcopy(GREETING)):
        assert again == GREETING
        assert again.render(name="Bob", mood="calm").user == "Greet Bob."
