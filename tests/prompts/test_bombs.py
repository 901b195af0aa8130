"""Templates that would take long, much memory or the interpreter's stack end in a PromptError."""

from __future__ import annotations

from typing import Any

import pytest
from bombs_kit import BOMBS, bomb_values, filled

from llmsim_lab.errors import PromptError
from llmsim_lab.prompts import Prompt, language

values = pytest.fixture(scope="module", name="values")(bomb_values)


@pytest.fixture
def low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count as always, to a fiftieth: what is not counted has no end, however few are allowed."""
    monkeypatch.setattr(language, "MAX_STEPS", language.MAX_STEPS // 50)
    monkeypatch.setattr(language, "MAX_OUTPUT", language.MAX_OUTPUT // 50)


def test_what_all_share_is_bounded_as_a_whole() -> None:
    loop, shared = (
        "{% for x in xs %}{% endfor %}{{ name }}",
        {"xs": range(language.MAX_STEPS // 3)},
    )
    Prompt(loop).sharing(shared)({"name": "Ann"})
    with pytest.raises(PromptError, match="more than 200,000 steps"):
        Prompt(loop * 4).sharing(shared)
    text, shared = "{{ xs }}{{ name }}", {"xs": "x" * (language.MAX_OUTPUT // 3)}
    with pytest.raises(PromptError, match="longer than 1,000,000 characters"):
        Prompt(text * 4).sharing(shared)


@pytest.mark.usefixtures("low_limits")
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_ends_in_an_error(name: str, values: dict[str, Any]) -> None:
    with pytest.raises(PromptError, match=r"prompt 'unnamed', user message"):
        filled(BOMBS[name], values)
