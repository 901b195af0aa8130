"""Widgets for the social simulation: all users' states turn by turn, and one user's story."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import ipywidgets as w
from markupsafe import Markup

from llmsim_lab._util.html import badge, details, join, pairs, pre, safe, table, visible
from llmsim_lab._util.text import clip, printable
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab._html import block, sideways
from llmsim_lab.lab._run_reading import Source, simulation_of
from llmsim_lab.lab._widget import Choices, LabWidget, Pace, button, dropdown, number_box, row
from llmsim_lab.lab.charts._export import figure_html
from llmsim_lab.lab.figures import state_figure
from llmsim_lab.statechart import AgentState, Post, SocialSimulation
from llmsim_lab.statechart._state import Move, SocialTurn

if TYPE_CHECKING:
    from llmsim_lab.types import LLMReasoningChain


def counts_of(turn: SocialTurn) -> dict[AgentState, int]:
    """Return how many users are in each state after a turn."""
    counts = dict.fromkeys(AgentState, 0)
    for person in turn.state.people:
        counts[person.state] += 1
    return counts


def chart_html(simulation: SocialSimulation, **options: Any) -> Markup:
    """Return the chart's picture; ``current`` and ``counts`` as in ``Statechart.to_svg``."""
    return Markup(simulation.chart.to_svg(**options))


def wide_chart_html(simulation: SocialSimulation, **options: Any) -> Markup:
    """Return the same as wide as its words need, with a bar of its own on a narrow page."""
    return sideways(chart_html(simulation, **options), name="Chart of states", least="640px")


class SocialWidget(LabWidget):
    """Base of the widgets that show a social simulation and follow it as it is played.

    Args:
        source: a social simulation, a tape, or a tape's file.
        run: for a tape, the run's number; the latest if not given.

    Raises:
        ConfigError: it is not a social simulation.
    """

    def __init__(self, source: Source | SocialSimulation, *, run: int | None = None) -> None:
        super().__init__()
        simulation: Any = simulation_of(cast("Source", source), run=run)
        if not isinstance(simulation, SocialSimulation):
            raise ConfigError(
                f"{type(self).__name__} shows social simulations; this one is of the kind "
                f"{getattr(simulation, 'kind', type(simulation).__name__)!r}"
            )
        self.simulation = simulation
        self._view = threading.RLock()
        self._choices = Choices(self._view, show_error=self.show_error)
        self._pace = Pace(self._redraw, self.worker.call)
        self.follow(simulation, self._pace.ask)

    def refresh(self) -> None:
        """Show the run as it is now."""
        raise NotImplementedError

    def _redraw(self) -> None:
        with self._view:
            self.refresh()


_MOST_TURNS = 200
"""Turns drawn, the latest ones: so drawing costs the same however long a run is."""


class SocialBoard(SocialWidget):
    """Shows how many users are in each state: over the turns, and on the chart for one turn.

    It follows the run, whoever plays it: a cell, a TurnStepper, another widget.

    Args:
        source: a social simulation, a tape, or a tape's file.
        run: for a tape, the run's number; the latest if not given.

    Attributes:
        simulation: the run.
        previous_button, turn_box, next_button, latest_button: choose the turn.
        heading, picture, chart: what is shown.

    Example:
        >>> board = SocialBoard("data/tapes/social.tape")  # doctest: +SKIP
    """

    def __init__(self, source: Source | SocialSimulation, *, run: int | None = None) -> None:
        super().__init__(source, run=run)
        self._counts: dict[int, dict[AgentState, int]] = {}
        self._drawn: tuple[int, int] | None = None
        self.previous_button = button("Previous", tooltip="Show the turn before")
        self.turn_box = number_box("Turn shown", value=0, least=0, most=0)
        self.next_button = button("Next", tooltip="Show the turn after")
        self.latest_button = button("Latest", tooltip="Show the latest turn")
        self.heading, self.picture, self.chart = w.HTML(), w.HTML(), w.HTML()
        self.children = (
            self.heading,
            row(self.previous_button, self.turn_box, self.next_button, self.latest_button),
            self.status,
            self.error,
            self.picture,
            self.chart,
        )
        box, clicked = self.turn_box, self._choices.on_click
        clicked(self.previous_button, lambda: self._go(max(box.min, box.value - 1)))
        clicked(self.next_button, lambda: self._go(min(box.max, box.value + 1)))
        clicked(self.latest_button, lambda: self._go(box.max))
        self._choices.on_choice(box, lambda: self._go(box.value))
        self.show(self.simulation.turn_number)

    def show(self, turn: int) -> None:
        """Show a turn.

        Raises:
            ConfigError: the run has no such turn.
        """
        first, last = self.simulation.turns[0].number, self.simulation.turn_number
        if not first <= turn <= last:
            raise ConfigError(f"turn {turn} is not there to show; the run has {first} to {last}")
        with self._view:
            self._go(turn)

    def refresh(self) -> None:
        """Show the run as it is now; follows the latest turn if that one was shown."""
        with self._view:
            latest = self.turn_box.value >= self.turn_box.max
            self._go(self.simulation.turn_number if latest else self.turn_box.value)

    def _go(self, number: int) -> None:
        turns = self.simulation.turns
        self._choices.number(self.turn_box, number, least=turns[0].number, most=turns[-1].number)
        shown = turns[number - turns[0].number]
        self.heading.value = str(Markup("<strong>{}</strong>").format(self._title(shown)))
        self.chart.value = str(wide_chart_html(self.simulation, counts=self._count(shown)))
        span = (turns[max(0, len(turns) - _MOST_TURNS)].number, turns[-1].number)
        if span != self._drawn:
            self._drawn = span
            self.picture.value = str(self._draw(turns[-_MOST_TURNS:]))

    def _title(self, turn: SocialTurn) -> str:
        name = clip(visible(self.simulation.config.name), 80)
        users = len(turn.state.people)
        return f"{name}, turn {turn.number}: {users:,} users; choices left open: {turn.asked:,}"

    def _count(self, turn: SocialTurn) -> dict[AgentState, int]:
        if turn.number not in self._counts:
            self._counts[turn.number] = counts_of(turn)
        return self._counts[turn.number]

    def _draw(self, turns: list[SocialTurn]) -> Markup:
        import pandas as pd

        frame = pd.DataFrame(
            [{state.value: n for state, n in self._count(turn).items()} for turn in turns],
            index=pd.Index([turn.number for turn in turns], name="turn"),
        )
        return figure_html(state_figure(frame))

    # --- the static view ----------------------------------------------------------------------

    @property
    def _place(self) -> int:
        """The shown turn's, in the list of turns."""
        return int(self.turn_box.value) - self.simulation.turns[0].number

    def _counts_and_changes(self) -> list[tuple[str, int, int]]:
        turns, place = self.simulation.turns, self._place
        now, before = (self._count(turns[at]) for at in (place, max(0, place - 1)))
        return [(state.value, now[state], now[state] - before[state]) for state in AgentState]

    def static_text(self) -> str:
        """Return the shown turn's counts, and the change since the turn before."""
        with self._view:
            shown = self.simulation.turns[self._place]
            lines = [f"SocialBoard of {self._title(shown)}"]
            lines += [
                f"  {name}: {count} ({change:+})"
                for name, count, change in self._counts_and_changes()
            ]
            return "\n".join(lines)

    def static_html(self) -> Markup:
        """Return the same as a table, with the chart."""
        with self._view:
            shown = self.simulation.turns[self._place]
            title = Markup("<p><strong>{}</strong></p>").format(self._title(shown))
            rows = [
                (name, count, f"{change:+}") for name, count, change in self._counts_and_changes()
            ]
            counts = table(("state", "users", "change"), rows, caption="Users by state")
            return join([title, counts, chart_html(self.simulation, counts=self._count(shown))])


_ROW = (
    '<div role="listitem" style="display:flex;flex-wrap:wrap;gap:0 16px;padding:4px 0;'
    'border-top:1px solid var(--jp-border-color2, #ccc)">'
    '<div style="flex:3 1 240px;min-width:0"><strong>{number}</strong> {trigger}: {move}</div>'
    '<div style="flex:4 1 240px;min-width:0">{about}</div>'
    '<div style="flex:4 1 240px;min-width:0">{why}</div></div>'
)
_MOVES_A_PAGE = 20
_BRIEF = 90
_MOST_CHARS = 4_000


@dataclass(frozen=True, slots=True)
class _Event:
    turn: SocialTurn
    move: Move


class AgentStory(SocialWidget):
    """Shows one user's transitions, the posts they were about, and what the reasoner said.

    Args:
        source: a social simulation, a tape, or a tape's file.
        run: for a tape, the run's number; the latest if not given.
        agent: whose story; the first user's if not given.

    Attributes:
        simulation: the run.
        agent_box: chooses the user.
        page_box: which twenty transitions are shown, 1 for the latest.
        heading, chart, body: what is shown.

    Example:
        >>> AgentStory("data/tapes/social.tape", agent="Liam Byrne")  # doctest: +SKIP
    """

    def __init__(
        self, source: Source | SocialSimulation, *, run: int | None = None, agent: str | None = None
    ) -> None:
        super().__init__(source, run=run)
        self._events: dict[str, list[_Event]] = {}
        self._posts: dict[int, Post] = {}
        self._read = 0
        self.agent_box = dropdown("User", width="24em")
        self.page_box = number_box("Page (1 is the latest)", value=1, least=1, most=1)
        self.page_box.layout.width = "16em"
        self.heading, self.chart, self.body = w.HTML(), w.HTML(), w.HTML()
        self.children = (
            row(self.agent_box, self.page_box),
            self.status,
            self.error,
            self.heading,
            self.body,
            self.chart,
        )
        names = [agent.name for agent in self.simulation.agents]
        self._choices.options(self.agent_box, [(name, name) for name in names], names[0])
        self._choices.on_choice(self.agent_box, lambda: self._go(page=1))
        self._choices.on_choice(self.page_box, lambda: self._go(page=self.page_box.value))
        self.show(names[0] if agent is None else agent)

    def show(self, agent: str, *, page: int = 1) -> None:
        """Show a user.

        Args:
            agent: the user's name.
            page: which twenty transitions, 1 for the latest.

        Raises:
            ConfigError: there is no such user, or no such page.
        """
        names = [agent.name for agent in self.simulation.agents]
        if agent not in names:
            raise ConfigError(
                f"there is no user {agent!r}; there are {clip(', '.join(names), 300)}"
            )
        with self._view:
            self._read_new_turns()
            if not 1 <= page <= self._pages(agent):
                raise ConfigError(f"page {page} is not there; {agent} has {self._pages(agent)}")
            self._choices.set(self.agent_box, agent)
            self._go(page=page)

    def refresh(self) -> None:
        """Show the run as it is now."""
        with self._view:
            self._go(page=self.page_box.value)

    def _read_new_turns(self) -> None:
        """Record the posts and moves of the turns that came since the last time."""
        turns = self.simulation.turns
        if self._read == 0:
            first = turns[0].state
            self._posts |= {entry.post.id: entry.post for entry in first.feed}
            self._posts |= {post.id: post for post in first.kept}
        # What was injected into the latest turn may have come after it was read.
        for turn in turns[max(0, self._read - 1) :]:
            self._posts |= {post.id: post for post in turn.state.new_posts}
        # Each turn once: a move that is read twice would be listed twice.
        for turn in turns[self._read :]:
            for move in turn.moves:
                self._events.setdefault(move.agent, []).append(_Event(turn, move))
        self._read = len(turns)

    def _pages(self, agent: str) -> int:
        return max(1, -(-len(self._events.get(agent, ())) // _MOVES_A_PAGE))

    def _go(self, *, page: int) -> None:
        self._read_new_turns()
        agent = self.agent_box.value
        pages = self._pages(agent)
        self._choices.number(self.page_box, min(page, pages), least=1, most=pages)
        place = self._place
        current = self.simulation.state.people[place].state
        self.heading.value = str(self._who(place))
        self.chart.value = str(wide_chart_html(self.simulation, current=current))
        self.body.value = str(self._list(self._page()))

    @property
    def _place(self) -> int:
        """The user's, in the configuration."""
        return [one.name for one in self.simulation.agents].index(self.agent_box.value)

    def _page(self) -> Sequence[_Event]:
        events = self._events.get(self.agent_box.value, [])
        end = len(events) - (self.page_box.value - 1) * _MOVES_A_PAGE
        return events[max(0, end - _MOVES_A_PAGE) : end]

    def _who(self, place: int) -> Markup:
        profile = self.simulation.config.agents[place]
        person = self.simulation.state.people[place]
        now = f"{person.state.value}, for {person.ticks} turns" + (
            "; banned" if person.banned else ""
        )
        known = [
            ("Interests", ", ".join(profile.interests)),
            ("Personality", profile.personality),
            ("Now", now),
        ]
        return pairs([(name, value) for name, value in known if value], caption=profile.name)

    def _list(self, events: Sequence[_Event]) -> Markup:
        """Return moves beside what they were about and why, below each other on a narrow page."""
        if not events:
            return safe("Nothing has happened yet.")
        rows = join(
            Markup(_ROW).format(
                number=event.turn.number,
                trigger=event.move.trigger,
                move=Markup("{} → {}").format(*map(_word, (event.move.source, event.move.target))),
                about=self._about(event.move),
                why=_why(event),
            )
            for event in events
        )
        title = Markup("<div>What {} did</div>").format(safe(self.agent_box.value))
        return block(title, Markup('<div role="list">{}</div>').format(rows))

    def _table(self, events: Sequence[_Event]) -> Markup:
        if not events:
            return safe("Nothing has happened yet.")
        rows = [
            (
                event.turn.number,
                _word(event.move.trigger),
                Markup("{} → {}").format(*map(_word, (event.move.source, event.move.target))),
                self._about(event.move),
                _why(event),
            )
            for event in events
        ]
        header = ("turn", "trigger", "move", "about", "decided by")
        return block(table(header, rows, caption=f"What {visible(self.agent_box.value)} did"))

    def _about(self, move: Move) -> Markup:
        post = self._posts.get(move.post) if move.post is not None else None
        if post is None:
            return Markup()
        brief = f"{post.author}: {clip(post.text, _BRIEF)}"
        if len(post.text) <= _BRIEF:
            return safe(brief)
        return details(brief, pre(post.text, limit=_MOST_CHARS))

    # --- the static view ----------------------------------------------------------------------

    def static_text(self) -> str:
        """Return the user's shown transitions, a line each."""
        with self._view:
            name = printable(self.agent_box.value, keep=" ")
            lines = [f"Story of {name}, up to turn {self.simulation.turn_number}"]
            for event in self._page():
                move = event.move
                post = self._posts.get(move.post) if move.post is not None else None
                about = f" | {post.author}: {clip(post.text, 60)}" if post else ""
                chain = _chain(event)
                why = f" | {move.status}: {clip(chain.reasoning, 120)}" if chain else ""
                text = f"{move.trigger}: {move.source.value} → {move.target.value}{about}{why}"
                lines.append(f"  {event.turn.number}  {printable(text, keep=' ')}")
            return "\n".join(lines if len(lines) > 1 else [*lines, "  nothing has happened yet"])

    def static_html(self) -> Markup:
        """Return the same as a table, with the chart."""
        with self._view:
            place = self._place
            current = self.simulation.state.people[place].state
            chart = chart_html(self.simulation, current=current)
            return join([self._who(place), self._table(self._page()), chart])


def _word(text: str) -> Markup:
    """Return a name that is not broken across lines."""
    return Markup('<span style="white-space:nowrap">{}</span>').format(safe(str(text)))


def _chain(event: _Event) -> LLMReasoningChain | None:
    if event.move.decided_by != "reasoner":
        return None
    found = (
        chain
        for chain in event.turn.chains
        if chain.agent == event.move.agent and chain.component == "reasoner"
    )
    return next(found, None)


def _why(event: _Event) -> Markup:
    chain = _chain(event)
    if chain is None:
        by = {"chart": "chart: one way only", "reasoner": "rule", "timeout": "chart: time was up"}
        return safe(by[event.move.decided_by])
    reason = details(clip(chain.reasoning, _BRIEF), pre(chain.reasoning, limit=_MOST_CHARS))
    return join([badge(chain.status), reason])
