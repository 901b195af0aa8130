"""Prompts without slots, what a question's prompt is called, and edits of a run's prompts.

A text without slots is asked as it stands, or as an f-string made it; see ``_run_prompts``.
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
"""What the place of a prompt without slots ends in; after it may come one text's digest."""
_SIGNS = ("{{", "{%", "{#")


def is_file_name(text: str) -> bool:
    """Return True for a text that names a prompt's file: one word that ends in ``.md``."""
    return text.endswith(".md") and len(text.split()) == 1


@lru_cache(maxsize=256)
def dedented(text: str) -> str:
    """Return a text of source code without its indentation and blank ends."""
    # The first line stands behind the quotes, the others where the source is indented to.
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
    """Return what a question's prompt is called: after its tag, else after what is asked for."""
    if tag:
        return re.sub(r"[#@\s]+", "_", tag)
    # PublicOffer is public_offer.
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", getattr(reply, "__name__", "")).lower()


def is_as_written(prompt: Prompt) -> bool:
    """Return True for a prompt without slots that is noted as it was asked first, not edited."""
    return prompt.parent == prompt.digest


class _SentAsItIs(Prompt):
    """A text that is sent as it is, below a system message that is a template."""

    def __init__(
        self,
        text: str,
        *,
        system: str,
        name: str,
    ) -> None:
        # The text itself may hold braces, which a template would fill in.
        super().__init__("the text", system=system, name=name)
        self._sent = text

    def sharing(self, values: Mapping[str, object]) -> Callable[..., RenderedPrompt]:
        """Return what renders the system message above the text."""
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
    """Return a text without slots as it is sent: below its system message, if there is one."""
    if not system:
        return text
    return _SentAsItIs(text, system=system, name=name)


def as_prompt(
    text: str,
    name: str,
    system: str,
) -> Prompt | None:
    """Return a text as a prompt that is noted as written; None where a prompt cannot hold it."""
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
    # What is_as_written knows it by.
    prompt.parent = prompt.digest
    return prompt


def with_edits(
    prompts: Mapping[str, Prompt],
    edits: Sequence[Prompt],
) -> dict[str, Prompt]:
    """Return a run's prompts by place, some of them edited.

    Args:
        prompts: by place.
        edits: each takes the place of the prompt that it was edited from, else of those of its
            name.

    Raises:
        ConfigError: the run uses no prompt of that name, or two edits are of one prompt.
    """
    edited = dict(prompts)
    taken: dict[str, Prompt] = {}
    for edit in edits:
        named = {place: prompt for place, prompt in prompts.items() if prompt.name == edit.name}
        if not named:
            raise _no_such_prompt(edit.name, {prompt.name for prompt in prompts.values()})
        # By the digest first: of two prompts of one name only the edited one is meant.
        origins = [place for place, prompt in named.items() if prompt.digest == edit.parent]
        # An edit that knows no origin here, as one of another run, is of all of its name.
        for place in origins or named:
            if place in taken and taken[place] != edit:
                raise ConfigError(
                    f"two edits of the prompt {edit.name!r}: a fork takes one; make two forks"
                )
            taken[place] = edit
            edited[place] = edit
            if not place.endswith(PLAIN):
                continue
            # What a study made of single texts goes with the prompt that they were asked for.
            for other in named:
                if other.startswith(f"{place}:") and other not in origins:
                    del edited[other]
    return edited


def _no_such_prompt(name: str, known: set[str]) -> ConfigError:
    if not known:
        return ConfigError(
            f"the run uses no prompt named {name}; its prompts are: none, or none yet: what a "
            "world's turn asks with is known once it was asked"
        )
    return ConfigError(
        f"the run uses no prompt named {name}; its prompts are: {', '.join(sorted(known))}"
    )
