"""Which prompt a question asks with: the one that it names, or the one that a fork put there.

A prompt with slots is known by its name and digest. One without slots may be another text for each
player and turn, so it is known by its kind of question and position in the turn: ``gift`` at the
place ``gift#text``, the next ``gift@2``. An edit there stands in for whatever text is asked; what a
function made of one text, for that text alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol, cast

from llmsim_lab._util.text import clip, log_event
from llmsim_lab.errors import ConfigError, PromptError
from llmsim_lab.prompts import Prompt
from llmsim_lab.prompts.prompt import digest_of
from llmsim_lab.run.plain_prompts import (
    PLAIN,
    as_prompt,
    as_sent,
    dedented,
    has_slots,
    is_as_written,
    is_file_name,
    kind_of,
)
from llmsim_lab.run.registry import file_of
from llmsim_lab.types import Decision

_MOST_PROMPTS = 64
"""More than any world has: one that puts templates together by code has a new one each turn."""
_warn = partial(log_event, logging.getLogger(__name__), logging.WARNING)


class Edits(Protocol):
    """What a study makes of a run's prompts, each when it is first asked with."""

    @property
    def missing(self) -> list[str]:
        """The names of prompts that are edited and were not asked with so far."""
        ...

    def __call__(self, prompt: Prompt) -> Prompt:
        """Return the prompt as it is to be asked with."""
        ...

    def is_fixed(self, name: str) -> bool:
        """Return True where a prompt becomes one text, whatever it was."""
        ...


class UsedPrompt(NamedTuple):
    """What a question asks with.

    Attributes:
        prompt: the prompt; or a text without slots that was not edited.
        is_edited: whether it is another than the question names.
    """

    prompt: Prompt | str
    is_edited: bool


class PromptsInUse:
    """The prompts that a run asks with, by their places.

    Args:
        world: the run's class, beside whose file its prompts' files are.
        by_place: those that are known already.

    Attributes:
        by_place: the prompts, by their places.
        edit: a study's edits of what is first asked; None outside a study.
    """

    def __init__(
        self,
        world: type,
        by_place: Mapping[str, Prompt],
    ) -> None:
        self._world = world
        self.edit: Edits | None = None
        self._varied: set[str] = set()
        """Places of prompts whose edit stands in for several texts, which was warned of."""
        self.put(by_place)

    def put(self, by_place: Mapping[str, Prompt]) -> None:
        """Ask with these prompts from now on."""
        self.by_place = dict(by_place)
        self._has_edited_texts = any(f"{PLAIN}:" in place for place in self.by_place)
        # Found anew, since a place may have another prompt now.
        self._used: dict[Hashable, UsedPrompt] = {}

    def shipped(self, name: str) -> Prompt:
        """Return a prompt that comes with the package, or the one that a fork put in its place.

        Args:
            name: of the prompt.

        Raises:
            PromptError: there is no prompt of that name.
        """
        key = ("shipped", name)
        if key not in self._used:
            # A recorded run keeps the prompts that it had, whatever the package's files say today.
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
        """Return the prompt that a question names, or the one that a fork put in its place.

        Args:
            source: as ``ask`` takes it: a text, a file, or a prompt.
            reply: what is asked for; a text's prompt is called after it.
            name: what the prompt is called if it has no slots.
            system: the system message, for a prompt that has none.
            is_replay: whether the run was played before, so that nothing is warned of.
            ending: returns what the user message ends with besides, of the prompt's slots.

        Raises:
            PromptError: the file cannot be read, a template is wrong, or there are two system
                messages.
            ConfigError: it is not a prompt, or there are too many different ones.
        """
        # Two prompts of one text are equal, and yet have names of their own.
        key = (source, getattr(source, "name", ""), reply, system)
        # Asked of each question in each turn: what a template is, is found once.
        try:
            return self._used[key]
        except (KeyError, TypeError):  # new, or not hashable and so not a prompt: see below
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
            # Without the tag: one text is one prompt, whatever it is asked about.
            source = Prompt(text, name=kind_of(reply))
        prompt = self._with_system(self._prompt_of(source), system)
        added = ending(prompt.slots) if ending else ""
        if added:
            prompt = Prompt(
                f"{prompt.user}{added}",
                system=prompt.system,
                name=prompt.name,
            )
        # A fork keeps its edited prompt at the place of the one that the source still names.
        place = f"{prompt.name}#{prompt.digest[:8]}"
        # Once a place has a prompt, it stays: the manifest names it.
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
        """Return a prompt, read from its file if need be, which lies beside the world's own."""
        if isinstance(source, Prompt):
            return source
        if not isinstance(source, str | Path):
            raise ConfigError(
                f"{clip(repr(source), 60)} is not a prompt; give a text, a file that ends in .md, "
                "or a Prompt"
            )
        world_file = file_of(self._world)
        # A world from a notebook's cell has no file: then it is the working folder.
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
        """Raise ConfigError for a further prompt where there are too many."""
        # Each is in the manifest.
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
        """Return what is asked where code gives a text without slots.

        Args:
            text: the text.
            name: of the question's kind and position.
            system: the template of the system message.
            is_replay: see ``named``.

        Raises:
            PromptError: it is to be edited, and cannot be.
        """
        place = f"{name}{PLAIN}"
        at_place = self.by_place.get(place)
        # A fork's edit, which stands in for whatever text the code gives there.
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
        # What a study's function made of just this text.
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
        # Noted as it was asked first, so that a fork can say what it edits.
        if self.edit is None:
            self.by_place.setdefault(place, prompt)
            return as_written
        edited = self.edit(prompt)
        # The study's edit is of another prompt.
        if edited.digest == prompt.digest:
            self.by_place.setdefault(place, prompt)
            return as_written
        # One text stands in for whatever text is asked; a function edits each by itself.
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
        """Warn once where one text stands in for several, of which only one was edited."""
        is_same = edited.parent in (None, digest)
        # An edit with slots of its own says something else to each player.
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
