"""Prompts without slots: a text as it stands, or what an f-string made.

Such a prompt may be another text for each player and turn, so a run knows it by its kind of
question and position in the turn: ``gift`` at the place ``gift#text``, the next ``gift@2``. An edit
there stands in for whatever text is asked; what a function made of one text, for that text alone.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial

from llmsim_lab._util.text import clip, log_event
from llmsim_lab.errors import ConfigError, PromptError
from llmsim_lab.prompts import Prompt, RenderedPrompt
from llmsim_lab.prompts.prompt import digest_of
from llmsim_lab.run._any_run import AnyRun
from llmsim_lab.types import Decision

PLAIN = "#text"
"""What the place of a prompt without slots ends in; after it may come one text's digest."""
_SIGNS = ("{{", "{%", "{#")
_warn = partial(log_event, logging.getLogger(__name__), logging.WARNING)


def has_slots(text: str) -> bool:
    """Return True for a text that is a template."""
    return any(sign in text for sign in _SIGNS)


@lru_cache(maxsize=1024)
def kind_of(reply: type[Decision] | None, tag: str = "") -> str:
    """Return what a question's prompt is called: after its tag, else after what is asked for."""
    if tag:
        return re.sub(r"[#@\s]+", "_", tag)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", getattr(reply, "__name__", "")).lower()


def is_as_written(prompt: Prompt) -> bool:
    """Return True for a prompt without slots that is noted as it was asked first, not edited."""
    return prompt.parent == prompt.digest


class _SentAsItIs(Prompt):
    """A text that is sent as it is, below a system message that is a template."""

    def __init__(self, text: str, *, system: str, name: str) -> None:
        super().__init__("the text", system=system, name=name)  # which is no template
        self._sent = text

    def sharing(self, values: Mapping[str, object]) -> Callable[..., RenderedPrompt]:
        """Return what renders the system message above the text."""
        fill = super().sharing(values)

        def render(mine: Mapping[str, object]) -> RenderedPrompt:
            filled = fill(mine)
            return RenderedPrompt(
                system=filled.system, user=self._sent, template=self, spans=filled.spans
            )

        return render


def plain_prompt(run: AnyRun, text: str, name: str, system: str = "") -> tuple[Prompt | str, bool]:
    """Return what is asked where code gives a text without slots, and whether it was edited.

    Args:
        run: the run, which keeps its prompts by their places.
        text: the text.
        name: of the question's kind and position.
        system: the template of the system message.

    Raises:
        PromptError: it is to be edited, and cannot be.
    """
    as_written: Prompt | str = text
    if system:
        as_written = _SentAsItIs(text, system=system, name=name)
    known, place = run._prompts, f"{name}{PLAIN}"
    here = known.get(place)
    if here is not None and not is_as_written(here):
        _tell_varied(run, here, digest_of(system, text), place)
        return here, True
    edits = run._edit
    if here is not None and edits is None and not run._text_edits:
        return as_written, False
    of_this_text = f"{place}:{digest_of(system, text)[:8]}"
    if of_this_text in known:
        return known[of_this_text], True
    prompt = _as_prompt(text, name, system)
    if prompt is None:
        if edits is not None:
            raise PromptError(
                f"the prompt {name!r} cannot be edited: {clip(text, 60)!r} is empty, too long, or "
                "has '{{' in a text that is no template"
            )
        return as_written, False
    edited = prompt if edits is None else edits(prompt)
    if edited.digest == prompt.digest:
        known.setdefault(place, prompt)
        return as_written, False
    if edits.is_fixed(name):
        known[place] = edited
    else:
        known.setdefault(place, prompt)
        known[of_this_text] = edited
        run._text_edits = True
    return edited, True


def _as_prompt(text: str, name: str, system: str) -> Prompt | None:
    """Return a text as a prompt that is noted as written; None where a prompt cannot hold it."""
    if has_slots(text):
        return None
    try:
        prompt = Prompt(text, system=system, name=name)
    except PromptError:
        return None
    prompt.parent = prompt.digest
    return prompt


def _tell_varied(run: AnyRun, edited: Prompt, digest: str, place: str) -> None:
    """Warn once where one text stands in for several, of which only one was edited."""
    is_same = edited.parent in (None, digest)
    if is_same or Prompt(edited.user).slots or place in run._varied or run._session.is_replay:
        return
    run._varied.add(place)
    words = (
        f"The edited prompt {edited.name!r} says the same to all and at every turn; the world "
        "writes it anew each time, as an f-string does. Write what changes as slots: '... You are "
        "{{ name }}.', with {{ state }}, {{ run }} and {{ turn }}; in the world, ask(name, ..., "
        "'... You are {{ name }}.') in place of f'... You are {name}.'."
    )
    _warn("PROMPT_VARIES", words=words, prompt=edited.name, reason=words)


def with_edits(prompts: Mapping[str, Prompt], edits: Sequence[Prompt]) -> dict[str, Prompt]:
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
            none = "none, or none yet: what a world's turn asks with is known once it was asked"
            known = ", ".join(sorted({prompt.name for prompt in prompts.values()})) or none
            raise ConfigError(f"the run uses no prompt named {edit.name}; its prompts are: {known}")
        origins = [place for place, prompt in named.items() if prompt.digest == edit.parent]
        for place in origins or named:
            if place in taken and taken[place] != edit:
                raise ConfigError(
                    f"two edits of the prompt {edit.name!r}: a fork takes one; make two forks"
                )
            taken[place] = edited[place] = edit
            # What a study made of single texts goes with the prompt that they were asked for.
            for other in named if place.endswith(PLAIN) else ():
                if other.startswith(f"{place}:") and other not in origins:
                    del edited[other]
    return edited
