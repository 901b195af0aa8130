"""Step through a run in a notebook: play, pause, stop, look back, fork.

First comes what plays turns, then what one turn looks like, as HTML and as plain text, then the
list of a run and its forks, and last the widget. Its static view holds nothing that differs from
one run of the same tape to the next, such as seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import ipywidgets as w
from anywidget import AnyWidget
from markupsafe import Markup
from traitlets import Int

from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.html import badge, details, join, pre, safe, styled, table
from llmsim_lab._util.text import clip, listed, number, printable
from llmsim_lab.errors import ConfigError, LabError
from llmsim_lab.lab._run_reading import (
    Decisions,
    Fact,
    Source,
    change_text,
    decisions_of,
    facts_of,
    simulation_of,
    turn_name,
    value_text,
)
from llmsim_lab.lab._widget import (
    LabWidget,
    TurnBrowser,
    button,
    dropdown,
    number_box,
    row,
    settled,
)
from llmsim_lab.llm import LLMClient
from llmsim_lab.llm._scope import InFlight, scoped

if TYPE_CHECKING:
    from llmsim_lab.run._run import Run
    from llmsim_lab.run._turn import RunTurn


_MOST_NAMED = 3
_LOOK_S = 0.25
"""How often growing text is shown at most."""
_WRITTEN_CHARS = 400
"""How much is shown of each text that is being written."""


@dataclass(eq=False)
class Playing:
    """Plays some turns of a run, one after the other; called again, it continues with those left.

    Attributes:
        simulation: the run.
        turns: how many.
        on_tick: called as each turn begins, at every tick, and four times a second while replies
            are seen to grow, with this object.
        on_turn: called with each whole turn.
        tick_s: how often, seconds.
        played: the whole turns, in order.
        calls: the model calls of the turn under way.
        pausing: set to True, it stops after the turn under way.
    """

    simulation: Run
    turns: int
    _: KW_ONLY
    on_tick: Callable[[Playing], None]
    on_turn: Callable[[RunTurn], None]
    tick_s: float = 1.0
    played: list[RunTurn] = field(default_factory=list)
    calls: InFlight = field(default_factory=InFlight)
    pausing: bool = False

    def __post_init__(self) -> None:
        self._began = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Since it was last called."""
        return time.perf_counter() - self._began

    async def __call__(self) -> None:
        """Play the turns that are left."""
        self._began = time.perf_counter()
        self.pausing = False
        # Shows whom the run waits for while a call takes minutes.
        ticker = asyncio.create_task(self._tick())
        try:
            while len(self.played) < self.turns and not self.pausing:
                # Anew for each turn: what a failed attempt left behind does not count.
                self.calls = InFlight()
                self.on_tick(self)
                with scoped(watch=self.calls):
                    turn = await self.simulation.step()
                self.played.append(turn)
                self.on_turn(turn)
                # Turns that never wait, as replayed ones, would keep clicks from being handled.
                await asyncio.sleep(0)
        finally:
            ticker.cancel()
            # Awaited, so that no task is left pending where the loop ends with the last turn.
            with suppress(asyncio.CancelledError):
                await ticker

    async def _tick(self) -> None:
        ticked, seen = time.monotonic(), 0
        while True:
            await asyncio.sleep(min(self.tick_s, _LOOK_S))
            now, pieces = time.monotonic(), self.calls.pieces
            if pieces != seen or now - ticked >= self.tick_s:
                ticked, seen = now, pieces
                self.on_tick(self)


def waiting_text(calls: InFlight) -> str:
    """Return whose calls the run waits for, for how long, and what has been answered so far."""
    waiting = calls.waiting
    parts = []
    if waiting:
        names = [
            clip(printable(str(call)), 60) + (" (second attempt)" if call.attempt > 1 else "")
            for call in waiting
        ]
        parts.append(f"waiting {waiting[0].seconds:.0f} s for {listed(names, _MOST_NAMED)}")
    if calls.finished:
        taped = f" ({calls.taped} from the tape)" if calls.taped else ""
        faulty = f", {calls.faulty} failed" if calls.faulty else ""
        parts.append(f"{calls.finished} answered{taped}{faulty}, {calls.tokens:,} tokens")
    return " · ".join(parts)


def written_html(calls: InFlight) -> Markup:
    """Return the ends of the replies that are being written, as far as they are streamed."""
    parts = []
    for call in [call for call in calls.waiting if call.text][:_MOST_NAMED]:
        end = ("…" if len(call.text) > _WRITTEN_CHARS else "") + call.text[-_WRITTEN_CHARS:]
        parts.append(styled(safe(str(call), limit=60) + pre(end)))
    return join(parts)


AGENTS_A_PAGE = 10
_MOST_FACTS = 12
_MOST_FOLDED = 100
_MOST_CHARS = 4_000
_BRIEF = 80


def cost_text(turn: RunTurn, *, still: bool = False) -> str:
    """Return a turn's model decisions by status, tokens and seconds in words.

    Args:
        turn: the turn.
        still: True to leave out seconds, which differ each time, for the static view.
    """
    counts = [f"{count} {status}" for status, count in turn.statuses.items() if count]
    parts = [f"model decisions: {', '.join(counts)}" if counts else "no model was asked"]
    if turn.tokens:
        parts.append(f"{turn.tokens:,} tokens")
    if turn.number and not still:
        parts.append(f"{turn.seconds:.2f} s")
    return " · ".join(parts)


def state_html(simulation: Run, turn: RunTurn, before: RunTurn | None) -> Markup:
    """Return a turn's state as a table, with the change from the turn before.

    Args:
        simulation: the run.
        turn: the turn.
        before: the one before it, if there is one.
    """
    main, rest = _facts_and_changes(simulation, turn, before)
    folded = _facts_table(rest[:_MOST_FOLDED], "The rest")
    more = details(f"{len(rest)} more", folded) if rest else ""
    return join([_facts_table(main, "State"), more])


def _facts_and_changes(
    simulation: Run, turn: RunTurn, before: RunTurn | None
) -> tuple[list[tuple[Fact, str]], list[tuple[Fact, str]]]:
    """Return the dozen facts to show first and the others, each with its change."""
    was = {fact.name: fact.value for fact in facts_of(simulation, before)} if before else {}
    changes = [
        (fact, change_text(was[fact.name], fact.value) if fact.name in was else "")
        for fact in facts_of(simulation, turn)
    ]
    main = ([entry for entry in changes if entry[0].main] or changes)[:_MOST_FACTS]
    return main, [entry for entry in changes if entry not in main]


def _facts_table(changes: Sequence[tuple[Fact, str]], caption: str) -> Markup:
    def cell(text: str, value: object) -> object:
        # A number as it is, so that its column is one of numbers; words in their own direction.
        plain = isinstance(value, int | float) and not text.startswith("was ")
        return text if plain else styled(safe(text, limit=200), tag="span", dir="auto")

    rows = [
        (fact.label, cell(value_text(fact.value), fact.value), cell(change, fact.value))
        for fact, change in changes
    ]
    facts = table(("variable", "value", "change"), rows, caption=caption)
    return styled(facts, "font-variant-numeric:tabular-nums")


def decisions_html(turn: RunTurn, *, page: int = 0) -> Markup:
    """Return a turn's decisions, an agent a row, from left to right as they followed.

    Args:
        turn: the turn.
        page: which ten agents, 0 for the first.
    """
    components, agents = decisions_of(turn)
    if not agents:
        return safe("Nobody has decided anything yet." if turn.number == 0 else "No decisions.")
    shown = agents[page * AGENTS_A_PAGE : (page + 1) * AGENTS_A_PAGE]
    rows = [[who.agent, *(_decision(who, component) for component in components)] for who in shown]
    caption = "Decisions"
    if len(agents) > len(shown):
        first = page * AGENTS_A_PAGE + 1
        caption = f"Decisions of agents {first} to {first + len(shown) - 1} of {len(agents)}"
    return table(("who", *components), rows, caption=caption)


def _decision(who: Decisions, component: str) -> Markup:
    parts = []
    # What an agent did stands with the first component, its own.
    if who.proposed and component == next(iter(who.chains), component):
        words = (safe(text, limit=300) for text in who.proposed)
        parts.append(styled(join(words, between="; "), dir="auto"))
    for chain in who.chains.get(component, ()):
        how = "by rule" if chain.by_rule else badge(chain.status)
        sure = "not asked" if chain.confidence is None else number(chain.confidence)
        parts.append(styled(join([how, f" confidence {sure}"])))
        if chain.reasoning:
            brief = styled(clip(chain.reasoning, _BRIEF), tag="span", dir="auto")
            parts.append(details(brief, pre(chain.reasoning, limit=_MOST_CHARS)))
    return join(parts)


def interventions_html(turn: RunTurn) -> Markup:
    """Return what was done from outside, or nothing."""
    if not turn.interventions:
        return Markup()
    done = join((safe(str(item), limit=300) for item in turn.interventions), between="; ")
    return styled(join([styled("From outside:", tag="strong"), " ", done]), tag="p")


def turn_html(simulation: Run, turn: RunTurn, before: RunTurn | None) -> Markup:
    """Return a whole turn as simple HTML without seconds, for the static view."""
    cost = cost_text(turn, still=True)
    heading = Markup("<p><strong>{}</strong> · {}</p>").format(turn_name(turn), cost)
    parts = [interventions_html(turn), state_html(simulation, turn, before), decisions_html(turn)]
    return join([heading, *parts])


def turn_text(simulation: Run, turn: RunTurn, before: RunTurn | None) -> str:
    """Return a turn as a few lines of plain text without seconds."""
    lines = [f"{turn_name(turn)} · {cost_text(turn, still=True)}"]
    lines += [f"from outside: {clip(printable(str(item)), 200)}" for item in turn.interventions]
    for fact, change in _facts_and_changes(simulation, turn, before)[0]:
        value = clip(printable(value_text(fact.value)), 60)
        lines.append(f"  {fact.label}: {value}" + (f" ({clip(change, 60)})" if change else ""))
    _, agents = decisions_of(turn)
    for who in agents[:AGENTS_A_PAGE]:
        words = "; ".join(who.proposed) or next(
            (chain.reasoning for chains in who.chains.values() for chain in chains), ""
        )
        lines.append(f"  {printable(who.agent)}: {clip(printable(words, keep=' '), 100)}")
    if len(agents) > AGENTS_A_PAGE:
        lines.append(f"  … and {len(agents) - AGENTS_A_PAGE} more agents")
    return "\n".join(lines)


def turn_and_before(simulation: Run, number: int) -> tuple[RunTurn, RunTurn | None]:
    """Return a turn by its number, and the one before it, if there is one."""
    turns = simulation.turns
    place = number - turns[0].number
    return turns[place], turns[place - 1] if place else None


_LONGEST_NAME = 40


class TurnSlider(AnyWidget):
    """A slider of turns, which also brings keys to the widget that it is in.

    There the arrow keys move it, Space and Enter are sent as the messages ``play`` and ``step``,
    and what is disabled while work is under way has the focus again afterwards.

    Attributes:
        value, min, max: the turn shown, the first and the last.
    """

    # Its text, since anywidget watches a path with a callback that keeps each slider for ever.
    _esm = Path(__file__).with_name("_turn_slider.js").read_text(encoding="utf-8")
    value, min, max = (Int(0).tag(sync=True) for _ in range(3))


MOST_TURNS = 100_000
"""As many as a configuration may ask for."""


class TurnStepper(TurnBrowser):
    """Plays a run turn by turn and shows each turn: its state, what was decided and why.

    A turn that fails, or is stopped, changes nothing: the run stays at its last whole turn. Where
    the focus is in the widget but not in a field, the arrow keys go from turn to turn, Space plays
    and pauses, and Enter plays one turn.

    Args:
        source: a simulation; or a tape or its file, whose run is then looked at.
        run: for a tape, the run's number; the latest if not given.
        llm_client: the model for forks of a recorded run, which has none of its own.

    Attributes:
        simulation: the run shown: the one given, or a fork made here.
        forks: the runs made here, in order.
        shown: the number of the turn shown.
        step_button, play_button, turns_box, pause_button, stop_button: play turns.
        slider, previous_button, turn_box, next_button, latest_button: look back and forth.
        fork_button, run_box: make runs and choose among them.
        heading: which turn of which run, and what it cost.
        interventions: what was done from outside.
        state: the values and how they changed.
        decisions: who decided what and why.
        agents_box: which ten agents' decisions; there from eleven agents on.
        progress: how far the turns under way are, and what is being written.

    Example:
        ``await stepper.step()`` and ``await stepper.play(3)`` do in a cell what the buttons do.
    """

    def __init__(
        self, source: Source, *, run: int | None = None, llm_client: LLMClient | None = None
    ) -> None:
        simulation = simulation_of(source, run=run)
        if not isinstance(llm_client, LLMClient | None):
            raise ConfigError(
                f"llm_client is a {type(llm_client).__name__}, not a client; pass connect('auto')"
            )
        super().__init__(simulation)
        self.llm_client = llm_client
        self.tick_s = 1.0
        self._runs, self._origins = [simulation], ["the original"]
        self._playing: Playing | None = None
        self._turn_hooks: list[Callable[[RunTurn], object]] = []
        self._change_hooks: list[Callable[[Self], object]] = []
        self._lay_out()
        self._look_at(simulation)

    def _lay_out(self) -> None:
        self.step_button = button(
            "Step", "Play one turn", lambda: self._begin_playing(1), button_style="primary"
        )
        playing = (
            self.step_button,
            button("Play", "Play as many turns as the box says", self._begin_playing),
            number_box("Turns to play", value=4, least=1, most=MOST_TURNS),
            self.stopper("Pause", "Finish the turn under way, then stop", self.pause),
            self.stopper("Stop", "Break off the turn under way"),
        )
        _, self.play_button, self.turns_box, self.pause_button, self.stop_button = playing
        self.slider = TurnSlider(layout=w.Layout(flex="1 1 8em", min_width="6em"))
        self.slider.on_msg(lambda _, key, __: self._press(key))
        for trait in ("max", "min", "value"):
            w.link((self.turn_box, trait), (self.slider, trait))
        self.fork_button = self.starter(
            "Fork here", "Make a run that continues from this turn", self._fork_shown
        )
        chosen, runs = self._choices.on_choice, dropdown("Run shown", width="34em")
        self.run_box = chosen(runs, lambda: self._look_at(self._runs[runs.value]))
        self.agents_box = chosen(dropdown("Agents shown", width="16em"), self._show_decisions)
        self.heading, self.interventions, self.progress = w.HTML(), w.HTML(), w.HTML()
        # A table too wide for a narrow page has a bar of its own.
        self.state, self.decisions = (
            w.HTML(layout=w.Layout(overflow="auto", max_width="100%")) for _ in range(2)
        )
        self.controls = (*playing[:3], self.fork_button, self.run_box)
        before, turn_box, *after = self.navigation.children
        self.navigation.children = (before, self.slider, after[0], turn_box, after[1])
        # Beside each other where there is room for both; then the slider takes what is left.
        self.navigation.layout.flex = "1 1 36em"
        self.fork_row = row(self.fork_button, self.run_box)
        lines = (
            self.heading,
            row(row(*playing), self.navigation, gap="4px 16px"),
            self.fork_row,
            self.status,
        )
        self.toolbar = w.VBox((*lines, self.progress, self.error, self.retry))
        # Beside the state where there is room, below it where the page is narrow.
        side = w.VBox([self.agents_box, self.decisions], layout=w.Layout(flex="1 1 28em"))
        self.body = w.VBox([self.interventions, row(self.state, side, gap="24px")])
        self.children = [self.toolbar, self.body]

    def _press(self, key: object) -> None:
        """Do what a key says."""
        if self.worker.busy:
            if key == "play":
                self.pause()
        else:
            self._begin_playing(1 if key == "step" else None)

    # --- looking ------------------------------------------------------------------------------

    @property
    def shown(self) -> int:
        """The number of the turn shown."""
        return int(self.turn_box.value)

    @property
    def forks(self) -> list[Run]:
        """The runs made here, in order."""
        return self._runs[1:]

    @property
    def _place(self) -> int:
        """Which of the runs is shown, 0 for the one given."""
        return next(place for place, run in enumerate(self._runs) if run is self.simulation)

    def _name_of(self, place: int) -> str:
        """Return a run's name with where it came from and its number on the tape."""
        run = self._runs[place]
        parts = [clip(printable(run.config.name, keep="\n"), _LONGEST_NAME)]
        parts += [self._origins[place]] if place else []
        parts += [f"run {run.run_id} on its tape"] if run.run_id is not None else []
        return ", ".join(parts)

    def show(self, turn: int) -> None:
        """Show a turn that has been played.

        Args:
            turn: its number.

        Raises:
            ConfigError: the run has no such turn.
        """
        self.go(self._number(turn))

    def _go(self, number: int) -> None:
        self._set_turn(number)
        self.refresh()

    def refresh(self) -> None:
        """Look at the run again: it may have been stepped from a cell."""
        with self._view:
            self._set_turn(self.shown)
            names = [(self._name_of(place), place) for place in range(len(self._runs))]
            self._choices.options(self.run_box, names, self._place)
            self._show_turn()
        for hook in list(self._change_hooks):
            try:
                hook(self)
            except Exception as error:  # noqa: BLE001 - the user's code; what it raises is shown
                self.show_error(error)

    def _show_turn(self) -> None:
        last = self.turn_box.max
        turn, before = turn_and_before(self.simulation, self.shown)
        of = f" of {last}" if turn.number else f", {last} turns played" if last else ""
        heading = Markup("<strong>{}</strong>{} · {} · {}{}").format(
            turn_name(turn),
            of,
            safe(self._name_of(self._place), limit=200),
            cost_text(turn),
            "" if self.simulation.tape is not None else " · not recorded",
        )
        self.heading.value = str(heading)
        self.interventions.value = str(interventions_html(turn))
        self.state.value = str(state_html(self.simulation, turn, before))
        count, size = len(decisions_of(turn)[1]), AGENTS_A_PAGE
        pages = [(f"{at + 1} to {at + size}", at // size) for at in range(0, count or 1, size)]
        self._choices.options(self.agents_box, pages, self.agents_box.value)
        self.agents_box.layout.display = "" if len(pages) > 1 else "none"
        self._show_decisions()

    def _show_decisions(self) -> None:
        turn, _ = turn_and_before(self.simulation, self.shown)
        self.decisions.value = str(decisions_html(turn, page=self.agents_box.value))

    def _grew(self) -> None:
        """Show what was played elsewhere; turns played here have been shown already."""
        with self._view:
            if self.turn_box.max == self.simulation.turn_number:
                return
            if self.shown == self.turn_box.max:
                self._set_turn(self.simulation.turn_number)
            self.refresh()
            if not self.worker.busy:
                self.say(
                    f"The run is at turn {self.simulation.turn_number}; it was played elsewhere."
                )

    def _look_at(self, run: Run) -> None:
        """Show the latest turn of a run that has just been chosen or made."""
        self.simulation = run
        self._follow_turns()
        self._set_turn(run.turn_number)
        self.refresh()

    # --- playing ------------------------------------------------------------------------------

    async def step(self) -> RunTurn:
        """Play one turn; returns it.

        Raises:
            LabError: it failed or was stopped; the run is where it was before.
        """
        played = await self.play(1)
        if not played:
            raise LabError(
                f"the step was stopped; the run is at turn {self.simulation.turn_number}"
            )
        return played[0]

    async def play(self, turns: int | None = None) -> list[RunTurn]:
        """Play turns; returns those played, fewer than asked for if it was paused or stopped.

        Interrupting the cell that waits for it cancels the turn under way.

        Args:
            turns: how many; as many as the box says if not given.

        Raises:
            ConfigError: turns are being played already, or the number is not a whole one above 0.
            LabError: a turn failed; those before it are kept.
        """
        playing = self._new_playing(turns)
        await self.do(lambda: self._play(playing))
        return playing.played

    def pause(self) -> None:
        """Stop after the turn under way."""
        if self._playing is not None and self.worker.busy:
            self._playing.pausing = True
            self.say("Pausing: the turn under way is finished first.")

    def stop(self) -> None:
        """Cancel the turn under way; the run stays at its last whole turn."""
        self.worker.stop()

    def _begin_playing(self, turns: int | None = None) -> None:
        """Play, as a click asks; *Try again* after a failure continues with the turns left."""
        # Kept, since *Try again* calls ``work`` again, which then plays what is left.
        begun: list[Playing] = []

        async def work() -> None:
            if not begun:
                # The boxes' last changes may arrive after the click on Play.
                await settled(self.turns_box, self.run_box)
                begun.append(self._new_playing(turns))
            await self._play(begun[0])

        self.start(work)

    def _new_playing(self, turns: int | None) -> Playing:
        wanted = self.turns_box.value if turns is None else turns
        return Playing(
            self.simulation,
            whole_number("turns", wanted, least=1, most=MOST_TURNS),
            on_tick=self._show_progress,
            on_turn=self._arrived,
            tick_s=self.tick_s,
        )

    async def _play(self, playing: Playing) -> None:
        self._playing = playing
        await playing()
        last, turns = playing.simulation.turn_number, playing.turns
        if left := turns - len(playing.played):
            self.say(f"Paused after turn {last}; {left} of {turns} turns were not played.")
        else:
            self.say(f"Turn {last} is played.")

    def _arrived(self, turn: RunTurn) -> None:
        """Show a turn that has just been played, unless an earlier one is being looked at."""
        with self._view:
            # Whoever looks at an earlier turn is left there.
            if self.shown == turn.number - 1:
                self._set_turn(turn.number)
            self.refresh()
        # What they raise stops playing, unlike what the callbacks of a look raise.
        for hook in list(self._turn_hooks):
            hook(turn)

    def _show_progress(self, playing: Playing) -> None:
        now, of = len(playing.played) + 1, playing.turns
        number = playing.simulation.turn_number + 1
        if not playing.pausing:
            self.say(f"Playing turn {number}" + (f", {now} of {of}." if of > 1 else "."))
        bar = Markup('<progress value="{}" max="{}" aria-label="Turns played"></progress>')
        parts = [bar.format(now - 1, of), f" {playing.seconds:.0f} s"]
        if waiting := waiting_text(playing.calls):
            parts += [" · ", waiting, written_html(playing.calls)]
        self.progress.value = str(join(parts))

    def stopped(self) -> None:
        """Show where the run is now."""
        self.say(f"Stopped. The run is at turn {self.simulation.turn_number}, its last whole one.")

    def ended(self) -> None:
        """Remove the progress bar."""
        if not self.worker.busy:
            self._playing = None
            self.progress.value = ""

    # --- forks --------------------------------------------------------------------------------

    def fork(self, turn: int | None = None, **changes: Any) -> Run:
        """Make a run that continues from a turn, and show it; its parent stays in the list of runs.

        Args:
            turn: the turn to continue from; the one shown if not given.
            changes: what the run's own ``fork`` takes, such as ``intervene``.

        Raises:
            ConfigError: turns are being played, or the run cannot be forked like this.
        """
        if self.worker.busy:
            raise ConfigError("a fork has to wait until the turns under way are played, or stopped")
        return self._fork(self.shown if turn is None else whole_number("turn", turn), changes)

    def _fork(self, turn: int, changes: dict[str, Any], words: str = "") -> Run:
        if self.llm_client is not None:
            # What the caller names comes last, and wins.
            changes = {"llm_client": self.llm_client} | changes
        new: Run
        try:
            new = self.simulation.fork(turn, **changes)
        except ConfigError as error:
            if self.llm_client is None and "llm_client" in str(error):
                raise ConfigError(
                    f"{error}; for the button: "
                    f"{type(self).__name__}(..., llm_client=connect('auto'))"
                ) from error
            raise
        self._add(new, "fork", f"at turn {turn}" + (f" with {words}" if words else ""))
        return new

    def _add(self, new: Run, how: str, change: str) -> None:
        """Show a run that was made of the one shown."""
        with self._view:
            # Of "fork 2 of fork 1 at turn 3" only "fork 2", else each fork's name would be longer.
            parent = self._origins[self._place].partition(" of ")[0]
            self._origins.append(f"{how} {len(self._runs)} of {parent} {change}")
            self._runs.append(new)
            self._look_at(new)
        self.say(
            f"This is {self._name_of(self._place)}. Step or Play continues from there."
            + (f" It is not recorded: {new.unrecorded}." if new.unrecorded else "")
        )

    async def _fork_shown(self) -> None:
        await settled(self.turn_box, self.run_box)
        self._fork(self.shown, {})

    # --- callbacks ----------------------------------------------------------------------------

    def on_turn(self, callback: Callable[[RunTurn], object]) -> None:
        """Register a callback for each whole turn that is played here.

        What it raises is shown in place; the turn is kept.
        """
        self._turn_hooks.append(callback)

    def on_change(self, callback: Callable[[Self], object]) -> None:
        """Register a callback, called with this stepper whenever another turn or run is shown."""
        self._change_hooks.append(callback)

    # --- the static view ----------------------------------------------------------------------

    def static_text(self) -> str:
        """Return the turn shown as plain text, the same for the same run."""
        turn, before = turn_and_before(self.simulation, self.shown)
        at = self.simulation.turn_number
        of = f"{type(self).__name__} of {self._name_of(self._place)}, at turn {at}"
        return f"{of}\n{turn_text(self.simulation, turn, before)}"

    def static_html(self) -> Markup:
        """Return the turn shown as simple HTML, the same for the same run."""
        turn, before = turn_and_before(self.simulation, self.shown)
        return turn_html(self.simulation, turn, before)


class RunOpener(LabWidget):
    """Base of the widgets that open one run at a time below, in a ``TurnStepper``.

    Attributes:
        opened: where the run is.
        close_button: closes it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.opened = w.VBox()
        self.close_button = button("Close", "Take the opened run away", self.close_run)

    @property
    def stepper(self) -> TurnStepper | None:
        """What the run was opened in, or None."""
        return self.opened.children[0] if self.opened.children else None

    def _open_below(self, stepper: TurnStepper) -> None:
        """Show a run in place of the one before.

        The new one comes as a stepper, so that a run that cannot be opened leaves that in place.
        """
        self.close_run()
        self.opened.children = (stepper,)

    def close_run(self) -> None:
        """Close the opened run; a turn under way there is stopped."""
        stepper, self.opened.children = self.stepper, ()
        if stepper is not None:
            stepper.close()

    def close(self) -> None:
        """Remove the widget from the page, with the opened run; their work is stopped."""
        if self._built:
            self.close_run()
        super().close()
