"""Look at any prompt of a run as the model got it, slot by slot, and at what came back."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice, zip_longest

import ipywidgets as w
from markupsafe import Markup

from llmsim_lab._spans import Provenance
from llmsim_lab._util.checks import plain_text, whole_number
from llmsim_lab._util.html import LARGE, STRONG, details, join, pre, safe, styled, visible
from llmsim_lab._util.text import clip
from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.lab._html import (
    CopyBoxes,
    block,
    facts_html,
    legend_html,
    messages_html,
    part_of,
    reply_html,
    slots_of,
    word_diff,
)
from llmsim_lab.lab._run_reading import (
    FAILED_ATTEMPTS,
    Attempts,
    Hit,
    Seen,
    Source,
    fits,
    simulation_of,
)
from llmsim_lab.lab._widget import (
    Choices,
    TurnBrowser,
    checkbox,
    dropdown,
    flex,
    row,
    status_filter,
    text_box,
)
from llmsim_lab.types import Attempt

_MOST_HITS = 5_000
_LISTED = 100


class SearchBar(w.VBox):
    """Searches a run, upper and lower case alike; the hits are listed a hundred at a time.

    Args:
        attempts: what is searched.
        choices: registers the callbacks for what the user does.
        on_found: called with the hit to show, or None to take the marks away, and a line about it.

    Attributes:
        search_box, find_button: what to look for.
        hit_box, previous_hit_button, next_hit_button: what was found.
        hits: the same, as values.
        wanted: what they are of; empty where nothing was found.
    """

    def __init__(
        self, attempts: Attempts, *, choices: Choices, on_found: Callable[[Hit | None, str], object]
    ) -> None:
        self._attempts, self._choices, self._on_found = attempts, choices, on_found
        self.hits: list[Hit] = []
        self.wanted = ""
        all_texts = "all prompts and replies of the run"
        box = text_box("Search", placeholder=f"in {all_texts}")
        self.search_box = choices.on_choice(box, self._find)
        self.find_button = choices.button("Find", f"Search {all_texts}", self._find)
        self.hit_box = choices.on_choice(dropdown("Hits", width="40em"), lambda: self._move(0))
        self._found = row(
            self.hit_box,
            choices.button("Previous hit", "Show the hit before", lambda: self._move(-1)),
            choices.button("Next hit", "Show the hit after", lambda: self._move(1)),
        )
        _, self.previous_hit_button, self.next_hit_button = self._found.children
        self._found.layout.display = "none"
        super().__init__((row(self.search_box, self.find_button), self._found))

    def find(self, text: str) -> list[Hit]:
        """Search for a text and show the first place; returns the places, up to 5,000."""
        self._choices.set(self.search_box, text)
        found = list(islice(self._attempts.search(text), _MOST_HITS + 1)) if text else []
        self.hits = found[:_MOST_HITS]
        self.wanted = text if self.hits else ""
        self._more = "+" if len(found) > _MOST_HITS else ""
        self._found.layout.display = "" if self.hits else "none"
        if self.hits:
            self._show(0)
        else:
            self._on_found(None, "Not found." if text else "")
        return self.hits

    def _find(self) -> None:
        self.find(self.search_box.value)

    def _move(self, by: int) -> None:
        if self.hits:
            self._show((int(self.hit_box.value) + by) % len(self.hits))

    def _show(self, place: int) -> None:
        first = place - place % _LISTED
        labels = [
            (f"{at + 1}. {hit.where}: {hit.line}", at)
            for at, hit in enumerate(self.hits[first : first + _LISTED], start=first)
        ]
        self._choices.options(self.hit_box, labels, place)
        hit, count = self.hits[place], f"{len(self.hits):,}{self._more}"
        self._on_found(hit, f"Hit {place + 1:,} of {count}, in the {hit.part}: {hit.line}")


_MOST_STATIC_CHARS = 600


class PromptViewer(TurnBrowser):
    """Shows a run's prompts, by turn, component, agent and attempt, and searches them.

    Calls that failed for good, and those of a turn that is not whole, are there too where the run
    is on a tape.

    Args:
        source: a simulation, a tape, or a tape's file.
        run: for a tape, the run's number; the latest if not given.

    Attributes:
        simulation: the run.
        seen: the request shown, or None.
        provenance: where its prompt's parts came from.
        search: finds texts in all prompts and replies of the run.
        previous_button, turn_box, next_button, latest_button: choose the turn.
        status_box: show only requests of that status; back and forth then skip other turns.
        component_box, agent_box, attempt_box: choose the request.
        compare_box, copy_button: what changed since the turn before; the texts to copy.
        heading, prompt, legend, reply, facts, changes, copies: what is shown.

    Example:
        >>> viewer = PromptViewer("data/tapes/first_run.tape")  # doctest: +SKIP
        >>> viewer.show(turn=3, component="engine")  # doctest: +SKIP
    """

    def __init__(self, source: Source, *, run: int | None = None) -> None:
        super().__init__(simulation_of(source, run=run))
        self._attempts = Attempts(self.simulation)
        self._of_turn: list[Seen] = []
        self._listed: list[Seen] = []
        self.seen: Seen | None = None
        self._lay_out()
        self._follow_turns()
        self._go(self._attempts.last)

    def _lay_out(self) -> None:
        chosen = self._choices.on_choice
        self.status_box = chosen(status_filter(FAILED_ATTEMPTS), self._go_to_status)
        self.component_box = chosen(dropdown("Component", width="16em"), self._fill)
        self.agent_box = chosen(dropdown("Agent", width="18em"), self._fill)
        self.attempt_box = chosen(dropdown("Attempt", width="24em"), self._show_chosen)
        self.compare_box = chosen(checkbox("Compare with the turn before"), self._show_changes)
        copied, copies = "Show prompt and reply as texts to copy", CopyBoxes("Prompt", "Reply")
        self.copy_button = self._choices.button(
            "Copy", copied, lambda: self._copy(not copies.shown)
        )
        self.heading, self.facts, self.changes = (w.HTML() for _ in range(3))
        self.copies = copies
        self.legend, self.reply = w.HTML(), w.HTML()
        self.prompt = w.HTML(layout=flex(3, "24em"))
        beside_prompt = w.VBox((self.reply, self.facts), layout=flex(2, "18em"))
        self.search = SearchBar(self._attempts, choices=self._choices, on_found=self._show_found)
        self.children = (
            self.heading,
            self.navigation,
            row(self.status_box, self.component_box, self.agent_box, self.attempt_box),
            self.search,
            self.status,
            self.error,
            row(self.prompt, beside_prompt, gap="12px"),
            self.legend,
            row(self.compare_box, self.copy_button),
            self.changes,
            self.copies,
        )

    @property
    def _attempt(self) -> Attempt | None:
        return self.seen.attempt if self.seen else None

    @property
    def provenance(self) -> Provenance:
        """Where the parts of the prompt shown came from."""
        if self._attempt is None:
            return Provenance(why="there is no prompt")
        try:
            return self._attempt.request.provenance
        except TapeError as error:  # a damaged tape
            return Provenance(why=str(error))

    def _span(self) -> tuple[int, int]:
        return self._attempts.first, self._attempts.last

    # --- choosing ----------------------------------------------------------------------------

    def show(
        self,
        *,
        turn: int | None = None,
        component: str | None = None,
        agent: str | None = None,
        attempt: int = 1,
    ) -> None:
        """Show a request, as choosing it in the lists does.

        Args:
            turn: its turn; the one shown if not given.
            component: the first one if not given.
            agent: the first one if not given.
            attempt: which of those of that component, agent and turn, 1 for the first.

        Raises:
            ConfigError: there is no such request.
        """
        number = self._number(turn)
        attempt = whole_number("attempt", attempt, least=1)
        there = self._attempts.of(number)
        wanted = [s for s in there if fits(s, component=component or "", agent=agent or "")]
        if wanted:  # several components or agents may fit: the first one's attempts count
            first = wanted[0]
            wanted = [s for s in wanted if (s.component, s.agent) == (first.component, first.agent)]
        if attempt > len(wanted):
            names = dict.fromkeys(f"{seen.component} of {seen.agent}" for seen in there)
            raise ConfigError(
                f"turn {number} has no attempt {attempt} of "
                f"{component or 'any component'} for {agent or 'any agent'}; it has: "
                f"{clip(', '.join(names), 300) or 'nothing'}"
            )
        with self._view:
            self._choices.set(self.status_box, "")
            self._go(number, wanted[attempt - 1])

    def _go_to_status(self) -> None:
        """Stay in a turn that has something of the status chosen, else go to the nearest."""
        here = self.turn_box.value
        first, last = self._span()
        by_distance = sorted(range(first, last + 1), key=lambda number: abs(number - here))
        self._go(next(filter(self._has_wanted, by_distance), here))

    def _has_wanted(self, number: int) -> bool:
        status = self.status_box.value
        return any(fits(seen, status=status) for seen in self._attempts.of(number))

    def _go(self, number: int, seen: Seen | None = None) -> None:
        """Show a turn: the request given, or the one that matches the one shown before."""
        status = self.status_box.value
        self._of_turn = [one for one in self._attempts.of(number) if fits(one, status=status)]
        self._set_turn(number)
        self._fill(seen)

    def _fill(self, wanted: Seen | None = None) -> None:
        """Offer what there is, from left to right; what was chosen stays where it can."""
        there = self._of_turn
        for box, part in ((self.component_box, "component"), (self.agent_box, "agent")):
            names = dict.fromkeys(getattr(one, part) for one in there)
            chosen = getattr(wanted, part) if wanted else box.value
            self._choices.options(box, [(name, name) for name in names], chosen)
            there = [one for one in there if getattr(one, part) == box.value]
        self._listed, seen = there, wanted or self.seen
        # By place, not by name: two attempts may be called the same.
        places = [(one.name, place) for place, one in enumerate(there)]
        self._choices.options(self.attempt_box, places, there.index(seen) if seen in there else 0)
        self._show_chosen()

    # --- showing -----------------------------------------------------------------------------

    def _show_chosen(self) -> None:
        self.seen = self._listed[self.attempt_box.value] if self._listed else None
        self.say("")
        self._draw()

    def _draw(self) -> None:
        self.heading.value = str(self._heading())
        parts = (self.prompt, self.legend, self.reply, self.facts)
        for part, content in zip(parts, self._panes(seconds=True), strict=True):
            part.value = str(content)
        self._show_changes()
        self._copy(self.copies.shown)

    def _panes(self, *, seconds: bool) -> list[Markup]:
        """Return the prompt, the slots, the reply and the facts."""
        seen, attempt, wanted = self.seen, self._attempt, self.search.wanted
        if seen is None or attempt is None:
            return [self._without_prompt(), Markup(), Markup(), Markup()]
        provenance = self.provenance
        return [
            messages_html(attempt, provenance, wanted=wanted),
            part_of("Slots and their sources", legend_html(attempt, provenance)),
            reply_html(attempt, wanted=wanted),
            facts_html(attempt, status=seen.status, seconds=seconds, wanted=wanted),
        ]

    def _heading(self) -> Markup:
        number, seen = self.turn_box.value, self.seen
        title = f"Turn {number}"
        if seen is not None:
            title += f" · {seen.component} · {seen.agent} · {seen.name}"
        return styled(safe(title, limit=300), LARGE)

    def _without_prompt(self) -> Markup:
        if self.seen is not None and (chain := self.seen.chain) is not None:
            asked = "No model was asked. The reason given:"
            if not chain.by_rule:
                asked = "A choice by the chances that other calls of this turn measured:"
            prompt = details("prompt", pre(chain.prompt)) if chain.prompt else ""
            return join([asked, pre(chain.reasoning), prompt])
        return safe(
            "Nothing in this run has that status."
            if self.status_box.value
            else "Nobody has decided anything in this turn."
        )

    def _show_changes(self) -> None:
        self.changes.value = str(self._changes()) if self.compare_box.value else ""

    def _changes(self) -> Markup:
        seen = self.seen
        if seen is None or seen.attempt is None:
            return safe("There is no prompt to compare.")
        number = seen.attempt.request.attempt
        before = [
            one.attempt
            for one in self._attempts.of(seen.turn - 1)
            if fits(one, component=seen.component, agent=seen.agent)
            and one.attempt is not None
            and one.attempt.request.attempt == number
        ]
        if not before:
            return safe(f"Turn {seen.turn - 1} has no such prompt to compare with.")
        was, now = before[0].request.messages, seen.attempt.request.messages
        parts = [styled(f"From turn {seen.turn - 1} to turn {seen.turn}", STRONG)]
        for then, message in zip_longest(was, now):
            texts = [one.content if one else "" for one in (then, message)]
            parts += [safe(f"{(message or then).role}: "), word_diff(*texts)]
        return block(*map(styled, parts))

    # --- searching ---------------------------------------------------------------------------

    def find(self, text: str) -> list[Hit]:
        """Search all prompts, replies and faults of the run; upper and lower case are alike.

        Args:
            text: what to look for.

        Returns:
            Where it was found, up to 5,000 places; the first is shown.
        """
        plain_text("text", text)
        with self._view:
            return self.search.find(text)

    def _show_found(self, hit: Hit | None, words: str) -> None:
        if hit is None:
            self._draw()
        else:
            # All texts were searched: the hit may be of another status than the one chosen.
            self._choices.set(self.status_box, "")
            self._go(hit.seen.turn, hit.seen)
        self.say(words)

    # --- copying -----------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """The prompt shown, all its messages; empty if there is none."""
        messages = self._attempt.request.messages if self._attempt else ()
        return "\n\n".join(f"[{message.role}]\n{message.content}" for message in messages)

    def _copy(self, shown: bool) -> None:
        """Show prompt and reply as texts to copy, or take these away."""
        reply = self._attempt.reply if self._attempt else None
        self.copies.show(*([self.text, reply.text if reply else ""] if shown else []))

    # --- the static view ----------------------------------------------------------------------

    def static_text(self) -> str:
        """Return which request is shown, its slots, where they came from, and the reply."""
        seen = self.seen
        title = f"Prompt viewer of {self.simulation.config.name!r}, turn {self.turn_box.value}"
        if seen is None:
            return visible(f"{title}: nothing to show")
        lines = [f"{title}, {seen.component} of {seen.agent}, {seen.name}"]
        if seen.attempt is None:
            reason = seen.chain.reasoning if seen.chain else ""
            return visible(f"{lines[0]}\n  reason: {clip(reason, _MOST_STATIC_CHARS)}")
        lines += [
            f"  {name} = {clip(value, 80)}  ({source})"
            for _, name, value, source in slots_of(seen.attempt, self.provenance)
        ]
        lines.append(f"  where the values are: {self.provenance}")
        if seen.fault:
            lines.append(f"  {clip(f'fault: {seen.attempt.detail}', _MOST_STATIC_CHARS)}")
        if seen.attempt.reply:
            lines.append(f"  {clip(f'reply: {seen.attempt.reply.text}', _MOST_STATIC_CHARS)}")
        return visible("\n".join(lines))

    def static_html(self) -> Markup:
        """Return the prompt with its slots marked, their sources and the reply."""
        return join([self._heading(), *self._panes(seconds=False)])
