"""A box to search a run's prompts and replies with, and the list of what was found."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import ipywidgets as w

from llmsim_lab.lab.attempts import Attempts, Hit
from llmsim_lab.lab.choices import Choices, text_box
from llmsim_lab.lab.inputs import dropdown, row
from llmsim_lab.lab.widget import button
from llmsim_lab.text import clip

__all__ = ["SearchBar"]

_MOST_HITS = 5_000
_LISTED = 100


class SearchBar(w.VBox):
    """Searches a run, upper and lower case alike; the hits are listed a hundred at a time.

    Args:
        attempts: what is searched.
        choices: hears what the user does.
        on_hit: called with the hit to show and what to say of it.
        say: called with what else there is to say.

    Attributes:
        search_box, find_button: what to look for.
        hit_box, previous_hit_button, next_hit_button: what was found.
        hits: the same, as values.
    """

    def __init__(
        self,
        attempts: Attempts,
        *,
        choices: Choices,
        on_hit: Callable[[Hit, str], object],
        say: Callable[[str], object],
    ) -> None:
        self._attempts = attempts
        self._on_hit = on_hit
        self._say = say
        self._choices = choices
        self.hits: list[Hit] = []
        self.search_box = text_box("Search", placeholder="in all prompts and replies of the run")
        self.find_button = button("Find", tooltip="Search all prompts and replies of the run")
        self.hit_box = dropdown("Hits", width="40em")
        self.previous_hit_button = button("Previous hit", tooltip="Show the hit before")
        self.next_hit_button = button("Next hit", tooltip="Show the hit after")
        self._found = row(self.hit_box, self.previous_hit_button, self.next_hit_button)
        self._found.layout.display = "none"
        self._choices.on_choice(self.search_box, self._find)
        self._choices.on_click(self.find_button, self._find)
        self._choices.on_choice(self.hit_box, lambda: self._show(self.hit_box.value))
        self._choices.on_click(self.previous_hit_button, lambda: self._step(-1))
        self._choices.on_click(self.next_hit_button, lambda: self._step(1))
        super().__init__((row(self.search_box, self.find_button), self._found))

    def find(self, text: str) -> list[Hit]:
        """Search for a text and show the first place; returns the places, up to 5,000."""
        self._choices.set(self.search_box, text)
        found = list(islice(self._attempts.search(text), _MOST_HITS + 1)) if text else []
        self.hits = found[:_MOST_HITS]
        self._more = "+" if len(found) > _MOST_HITS else ""
        self._found.layout.display = "" if self.hits else "none"
        if self.hits:
            self._show(0)
        else:
            self._say("Not found." if text else "")
        return self.hits

    def _find(self) -> None:
        self.find(self.search_box.value)

    def _step(self, step: int) -> None:
        if self.hits:
            self._show((int(self.hit_box.value) + step) % len(self.hits))

    def _show(self, place: int) -> None:
        hit = self.hits[place]
        first = place - place % _LISTED
        listed = enumerate(self.hits[first : first + _LISTED], start=first)
        self._choices.options(self.hit_box, [(_label(one, at), at) for at, one in listed], place)
        count = f"{len(self.hits):,}{self._more}"
        self._on_hit(hit, f"Hit {place + 1:,} of {count}, in the {hit.part}: {hit.line}")


def _label(hit: Hit, place: int) -> str:
    seen = hit.seen
    where = clip(f"turn {seen.turn} · {seen.component} · {seen.agent} · {hit.part}", 80)
    return f"{place + 1}. {where}: {hit.line}"
