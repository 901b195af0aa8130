"""The prompts that a run asks with, and how a fork or a study replaces them.

A prompt with slots is identified by its name and digest. The text of a prompt without slots may
differ for each player and turn, so such a prompt is identified by its kind of question and its
position in the turn: ``gift`` at the place ``gift#text``, then ``gift@2``. An edited prompt at such
a place replaces any text that is asked there. A study's function edits each text by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol, cast

from llmsim_lab._util.text import brief, clip, log_event
from llmsim_lab.errors import ConfigError, PromptError
from llmsim_lab.prompts import Prompt
from llmsim_lab.prompts.prompt import digest_of, is_file_name
from llmsim_lab.run.plain_prompts import (
    PLAIN,
    as_prompt,
    as_sent,
    dedented,
    has_slots,
    is_as_written,
    kind_of,
)
from llmsim_lab.run.registry import file_of
from llmsim_lab.types import Decision

_MOST_PROMPTS = 64
"""No world needs as many. More come from code that puts its templates together anew each turn."""
_warn = partial(log_event, logging.getLogger(__name__), logging.WARNING)


class Edits(Protocol):
    """A study's edits of a run's prompts; each is made when its prompt is first asked."""

    @property
    def missing(self) -> list[str]:
        """The names of edited prompts that were not asked so far."""
        ...

    def __call__(self, prompt: Prompt) -> Prompt:
        """Return the prompt to ask instead."""
        ...

    def is_fixed(self, name: str) -> bool:
        """Return True if an edit replaces a prompt by one fixed text, whatever it was."""
        ...


class UsedPrompt(NamedTuple):
    """The prompt that a question is asked with.

    Attributes:
        prompt: the prompt; or a text, if it has no slots and was not edited.
        is_edited: True if it is not the prompt that the question names.
    """

    prompt: Prompt | str
    is_edited: bool


class PromptsInUse:
    """The prompts that a run asks with, by their places.

    Args:
        world: the run's class. Files of prompts are looked for beside its file.
        by_place: the prompts that are in use from the start.

    Attributes:
        by_place: the prompts, by their places.
        edit: a study's edits; None outside a study.
    """

    def __init__(
        self,
        world: type,
        by_place: Mapping[str, Prompt],
    ) -> None:
        self._world = world
        self.edit: Edits | None = None
        self._varied: set[str] = set()
        """Places whose edit replaces several texts, and that a warning has named."""
        self.put(by_place)

    def put(self, by_place: Mapping[str, Prompt]) -> None:
        """Use these prompts from now on.

        Raises:
            ConfigError: they are not prompts by place.
        """
        is_by_place = isinstance(by_place, Mapping) and all(
            isinstance(place, str) and isinstance(prompt, Prompt)
            for place, prompt in by_place.items()
        )
        if not is_by_place:
            raise ConfigError(
                f"prompts={brief(by_place)} must be prompts by their places, as run.prompts has "
                "them: {'gift': Prompt('...')}"
            )
        self.by_place = dict(by_place)
        self._has_edited_texts = any(f"{PLAIN}:" in place for place in self.by_place)
        # Emptied, since another prompt may be at a place now.
        self._used: dict[Hashable, UsedPrompt] = {}

    def shipped(self, name: str) -> Prompt:
        """Return a prompt of this package, or the edited prompt that a fork put in its place.

        Args:
            name: the prompt's name.

        Raises:
            PromptError: there is no prompt of that name.
        """
        key = ("shipped", name)
        if key not in self._used:
            # A recorded run keeps its prompts, even if the package's files have changed since.
            kept: list[Prompt] = []
            for place, prompt in self.by_place.items():
                if place.partition("#")[0] == name:
                    kept.append(prompt)
            if kept:
                self._used[key] = UsedPrompt(kept[0], is_edited=False)
            else:
                self._used[key] = self.named(Prompt.load(name), None)
        return cast("Prompt", self._used[key].prompt)

    def named(
        self,
        source: object,
        reply: type[Decision] | None,
        name: str = "",
        system: str = "",
        *,
        is_replay: bool = False,
        ending: Callable[[tuple[str, ...]], str] | None = None,
    ) -> UsedPrompt:
        """Return the prompt that a question names, or the edited prompt in its place.

        Args:
            source: a text, a file, or a prompt, as ``ask`` takes it.
            reply: the class of the reply; the prompt of a text is named after it.
            name: the prompt's name if it has no slots.
            system: the system message, for a prompt without one.
            is_replay: True if the run was played before, so that no warning is logged again.
            ending: a function of the prompt's slots that returns a text to add to the user message.

        Raises:
            PromptError: the file cannot be read, a template is wrong, or there are two system
                messages.
            ConfigError: the source is not a prompt, or there are too many different prompts.
        """
        # With the name, since two prompts with the same text are equal but have their own names.
        key = (source, getattr(source, "name", ""), reply, system)
        # Looked up first, since this is called for each question in each turn.
        try:
            return self._used[key]
        except (KeyError, TypeError):  # new; or not hashable, and so not a prompt: see below
            pass
        if isinstance(source, str) and not is_file_name(source):
            text = dedented(source)
            if not has_slots(text) and not (ending and ending(())):
                return self.plain(
                    text,
                    name,
                    system,
                    is_replay=is_replay,
                )
            # Named without the tag: one text is one prompt, whatever it is asked about.
            source = Prompt(text, name=kind_of(reply))
        prompt = self._with_system(self._prompt_of(source), system)
        added = ending(prompt.slots) if ending else ""
        if added:
            prompt = Prompt(
                f"{prompt.user}{added}",
                system=prompt.system,
                name=prompt.name,
            )
        # A fork keeps its edited prompt at the place of the original, which the source still names.
        place = f"{prompt.name}#{prompt.digest[:8]}"
        # Set only once, since the manifest names the prompt of a place.
        if place not in self.by_place:
            self._check_number()
            if self.edit is not None:
                self.by_place[place] = self.edit(prompt)
            else:
                self.by_place[place] = prompt
        used = self.by_place[place]
        self._used[key] = UsedPrompt(
            used,
            is_edited=used.digest != prompt.digest,
        )
        return self._used[key]

    def _prompt_of(self, source: object) -> Prompt:
        """Return a prompt; a file is read, and looked for beside the world's own file."""
        if isinstance(source, Prompt):
            return source
        if not isinstance(source, str | Path):
            raise ConfigError(
                f"{clip(repr(source), 60)} is not a prompt; give a text, a file that ends in .md, "
                "or a Prompt"
            )
        world_file = file_of(self._world)
        # A world from a notebook has no file; then paths are relative to the working folder.
        path = Path(source)
        if world_file is not None:
            path = world_file.parent / source
        return Prompt.load(path)

    def _with_system(self, prompt: Prompt, system: str) -> Prompt:
        if not system:
            return prompt
        if prompt.system:
            raise PromptError(
                f"the prompt {prompt.name!r} has a system message, {clip(prompt.system, 40)!r}, "
                f"and the question gives another one, system={clip(system, 40)!r}; leave out one "
                "of them"
            )
        return Prompt(
            prompt.user,
            system=system,
            name=prompt.name,
            parent=prompt.parent,
        )

    def _check_number(self) -> None:
        """Raise ConfigError if there would be too many prompts."""
        # Counted, since the manifest holds all of them.
        templates = [place for place in self.by_place if PLAIN not in place]
        if len(templates) >= _MOST_PROMPTS:
            raise ConfigError(
                f"{self._world.__name__} asks with more than {_MOST_PROMPTS} different prompts: a "
                "template is put together anew each time. Give what changes a slot: "
                "ask(..., '... {{ offer }} ...', offer=offer)"
            )

    # --- prompts without slots ---------------------------------------------------------------

    def plain(
        self,
        text: str,
        name: str,
        system: str = "",
        *,
        is_replay: bool,
    ) -> UsedPrompt:
        """Return the prompt for a text without slots.

        Args:
            text: the text.
            name: the name of the question's kind and position.
            system: the template of the system message.
            is_replay: see ``named``.

        Raises:
            PromptError: a study edits the prompt, and the text cannot be edited.
        """
        place = f"{name}{PLAIN}"
        at_place = self.by_place.get(place)
        # A fork's edit, which replaces any text that the code gives here.
        if at_place is not None and not is_as_written(at_place):
            if not is_replay:
                self._warn_if_varied(at_place, digest_of(system, text), place)
            return UsedPrompt(at_place, is_edited=True)
        as_written = UsedPrompt(
            as_sent(text, system=system, name=name),
            is_edited=False,
        )
        # Nothing at this place was edited, and nothing will be.
        if at_place is not None and self.edit is None and not self._has_edited_texts:
            return as_written
        # A study's edit of exactly this text.
        place_of_text = f"{place}:{digest_of(system, text)[:8]}"
        if place_of_text in self.by_place:
            return UsedPrompt(self.by_place[place_of_text], is_edited=True)
        prompt = as_prompt(text, name, system)
        if prompt is None and self.edit is not None:
            raise PromptError(
                f"the prompt {name!r} cannot be edited: {clip(text, 60)!r} is empty, too long, or "
                "has '{{' in a text that is no template"
            )
        if prompt is None:
            return as_written
        # The first text that was asked is kept, so that a fork can edit it.
        if self.edit is None:
            self.by_place.setdefault(place, prompt)
            return as_written
        edited = self.edit(prompt)
        # The study edits other prompts only.
        if edited.digest == prompt.digest:
            self.by_place.setdefault(place, prompt)
            return as_written
        # A fixed text replaces any text that is asked here; a function edits each text by itself.
        if self.edit.is_fixed(name):
            self.by_place[place] = edited
        else:
            self.by_place.setdefault(place, prompt)
            self.by_place[place_of_text] = edited
            self._has_edited_texts = True
        return UsedPrompt(edited, is_edited=True)

    def _warn_if_varied(
        self,
        edited: Prompt,
        digest: str,
        place: str,
    ) -> None:
        """Warn once if the edit of one text replaces other texts, too."""
        is_same = edited.parent in (None, digest)
        # An edit with slots gives each player a text of its own.
        if is_same or place in self._varied or Prompt(edited.user).slots:
            return
        self._varied.add(place)
        words = (
            f"The edited prompt {edited.name!r} says the same to all and at every turn; the world "
            "writes it anew each time, as an f-string does. Write what changes as slots: '... You "
            "are {{ name }}.', with {{ state }}, {{ run }} and {{ turn }}; in the world, ask(name, "
            "..., '... You are {{ name }}.') in place of f'... You are {name}.'."
        )
        _warn(
            "PROMPT_VARIES",
            words=words,
            prompt=edited.name,
            reason=words,
        )
