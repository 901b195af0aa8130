"""Prompts without slots, the names of questions' prompts, and edits of a run's prompts.

A text without slots is asked as it is, even if an f-string made it; see ``_run_prompts``.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from llmsim_lab.errors import ConfigError, PromptError
from llmsim_lab.prompts import Prompt
from llmsim_lab.prompts.prompt import RenderedPrompt
from llmsim_lab.types import Decision

PLAIN = "#text"
"""The end of the place of a prompt without slots; the digest of a single text may follow it."""
_SIGNS = ("{{", "{%", "{#")


@lru_cache(maxsize=256)
def dedented(text: str) -> str:
    """Return a text from source code without its indentation and without blanks at its ends."""
    # The first line follows the quotes. Only the other lines are indented.
    first, newline, rest = text.partition("\n")
    return f"{first.strip()}{newline}{textwrap.dedent(rest)}".strip()


def has_slots(text: str) -> bool:
    """Return True for a text that is a template."""
    return any(sign in text for sign in _SIGNS)


@lru_cache(maxsize=1024)
def kind_of(
    reply: type[Decision] | None,
    tag: str = "",
) -> str:
    """Return the name of a question's prompt: the question's tag, else its reply's class."""
    if tag:
        return re.sub(r"[#@\s]+", "_", tag)
    # PublicOffer becomes public_offer.
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", getattr(reply, "__name__", "")).lower()


def is_as_written(prompt: Prompt) -> bool:
    """Return True for a prompt without slots that is kept as it was asked first, unedited."""
    return prompt.parent == prompt.digest


class _SentAsItIs(Prompt):
    """A text that is sent as it is, with a system message that is a template."""

    def __init__(
        self,
        text: str,
        *,
        system: str,
        name: str,
    ) -> None:
        # A stand-in for the text, whose braces a template would try to fill in.
        super().__init__("the text", system=system, name=name)
        self._sent = text

    def sharing(self, values: Mapping[str, object]) -> Callable[..., RenderedPrompt]:
        """Return a function that fills in the system message and puts the text below it."""
        fill = super().sharing(values)

        def render(other_values: Mapping[str, object]) -> RenderedPrompt:
            filled = fill(other_values)
            return RenderedPrompt(
                system=filled.system,
                user=self._sent,
                template=self,
                spans=filled.spans,
            )

        return render


def as_sent(
    text: str,
    *,
    system: str,
    name: str,
) -> Prompt | str:
    """Return a text without slots as it is sent: with its system message, if there is one."""
    if not system:
        return text
    return _SentAsItIs(text, system=system, name=name)


def as_prompt(
    text: str,
    name: str,
    system: str,
) -> Prompt | None:
    """Return a text as an unedited prompt; None if a prompt cannot hold the text."""
    if has_slots(text):
        return None
    try:
        prompt = Prompt(
            text,
            system=system,
            name=name,
        )
    except PromptError:
        return None
    # is_as_written recognises an unedited prompt by this.
    prompt.parent = prompt.digest
    return prompt


def with_edits(
    prompts: Mapping[str, Prompt],
    edits: Sequence[Prompt],
) -> dict[str, Prompt]:
    """Return a run's prompts by place, with some of them edited.

    Args:
        prompts: the run's prompts, by place.
        edits: edited prompts. Each replaces the prompt that it was edited from, or all prompts of
            its name if there is no such prompt.

    Raises:
        ConfigError: the run uses no prompt of that name, or two edits are of one prompt.
    """
    edited = dict(prompts)
    taken: dict[str, Prompt] = {}
    for edit in edits:
        named = {place: prompt for place, prompt in prompts.items() if prompt.name == edit.name}
        if not named:
            raise _no_such_prompt(edit.name, {prompt.name for prompt in prompts.values()})
        # The digest of the original tells which of several prompts with one name was edited.
        origins = [place for place, prompt in named.items() if prompt.digest == edit.parent]
        # An edit of another run's prompt has no original here, and replaces all prompts of its
        # name.
        for place in origins or named:
            if place in taken and taken[place] != edit:
                raise ConfigError(
                    f"two edits of the prompt {edit.name!r}: a fork takes one; make two forks"
                )
            taken[place] = edit
            edited[place] = edit
            if not place.endswith(PLAIN):
                continue
            # A study's edits of single texts go with the prompt that is replaced.
            for other in named:
                if other.startswith(f"{place}:") and other not in origins:
                    del edited[other]
    return edited


def _no_such_prompt(name: str, prompt_names: set[str]) -> ConfigError:
    if not prompt_names:
        return ConfigError(
            f"the run uses no prompt named {name}; its prompts are: none, or none yet: what a "
            "world's turn asks with is known once it was asked"
        )
    return ConfigError(
        f"the run uses no prompt named {name}; its prompts are: {', '.join(sorted(prompt_names))}"
    )
