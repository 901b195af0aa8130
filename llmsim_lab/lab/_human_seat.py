"""A seat at the table, where a person answers in a model's place, and the score of such runs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from llmsim_lab._util.html import join, pre, visible
from llmsim_lab._util.text import clip
from llmsim_lab.economy import QuadraticLoss, load_us_macro
from llmsim_lab.errors import ConfigError, LabError
from llmsim_lab.lab import _static
from llmsim_lab.lab._lab import Lab
from llmsim_lab.lab.figures import rate_figure
from llmsim_lab.lab.window import NO_LONGER, Message
from llmsim_lab.llm import Tape
from llmsim_lab.llm.human import OpenQuestion
from llmsim_lab.run import Run
from llmsim_lab.run.guided import plays_a_turn
from llmsim_lab.run.people import People, people_of
from llmsim_lab.run.seating import SeatQuestion, put
from llmsim_lab.run.told import told_in
from llmsim_lab.simulation import Simulation
from llmsim_lab.simulation.chair import advice_for
from llmsim_lab.simulation.scores import AFTER, Losses, Rival, advice_asked, of_class
from llmsim_lab.simulation.world import TOLD, Nation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LATEST = 16
"""Turns whose answers stay in the notebook."""
_NEWS = {
    "inflation": 0.5,
    "unemployment": 0.4,
    "gdp_growth": 2.0,
}
"""What makes headlines, each with its usual change in a quarter, percentage points. The rate is
no news to the one who sets it."""
_PARTS = ("loss", "inflation", "output_gap", "rate_change", "term")
"""Of a score what the window shows, the loss first."""
# Between two looks of code that waits for a question or for the end of a turn.
_WAIT_S = 0.02
# Between two looks of the seat itself while others are asked.
_LATER_S = 0.2


class Leaderboard(Losses):
    """Runs of one world by their loss, as a table and a chart."""

    @property
    def figure(self) -> Figure:
        """The runs' rates and what became of the economy, with history where there is one."""
        first = next(iter(self.runs.values()))
        period = first["period"].iloc[0]
        past = None
        if isinstance(period, str):  # a run from the steady state has no history beside it
            past = load_us_macro().loc[period:].head(len(first))
        title = "The same quarters, by who decided"
        if self.after:
            title += f" (the last {self.after} by the rule for all)"
        return rate_figure(
            self.runs,
            history=past,
            title=title,
        )


def leaderboard(
    simulation: Simulation | str | Path,
    *,
    model: Rival = None,
    loss: QuadraticLoss | None = None,
    after: int = AFTER,
) -> Any:
    """Compare a run with people in it with the same run decided by others; or a class's runs.

    The Taylor rule, as it is and with inertia, and a rate that is never moved are played at once,
    in every seat that a person had: same start, same shocks, same interventions. The model's row
    needs a model, or a recorded run. A loss of the term alone would reward those who leave
    inflation to the next chair, since a rate takes three quarters to reach prices; so quarters
    after it count too, in which the Taylor rule decides for all and there are no shocks.

    Args:
        simulation: the people's run; at least one turn played. Or a folder of tapes.
        model: a client, which plays as many turns as the people did; or a run of a model's from
            the same start, such as ``load("model.tape")``.
        loss: how runs are judged; Rudebusch and Svensson's benchmark with the inflation target of
            the first person's nation if not given.
        after: how many quarters after the term count; 0 for the term alone.

    Returns:
        The table, a ``Leaderboard``; a row without a run has a note that says why, such as a model
        that failed. Of a folder a frame, a row for each run with people: ``name``; ``seed``;
        ``turns`` played;
        ``loss``; ``against_rule_pct``, how much more than the rule's in the same economy, negative
        for less, by which it is sorted; ``advice_asked``, in how many quarters; ``date``; ``tape``;
        ``note``, why there is no loss.

    Raises:
        ConfigError: there are no people in the run, no turn was played, or the recorded run had
            another start or other shocks; or there are no tapes in the folder.
    """
    if isinstance(simulation, str | Path):
        return of_class(
            Path(simulation),
            loss,
            after=after,
        )
    return Leaderboard(simulation, model, loss, after=after)


# --- the seat ------------------------------------------------------------------------------------


class TurnState(Enum):
    """Where the run's next turn is, for those who sit here."""

    BETWEEN_TURNS = "between turns"
    """A click on a form begins the turn and answers in it."""
    ASKING = "asking"
    """The turn waits for somebody here."""
    PLAYING = "playing"
    """Others are asked, or the turn comes to its end."""


class HumanSeat(Lab):
    """Lets one or several people decide in a run: what they see, their form, who is waited for.

    The form has the fields of whatever is asked. Where a turn begins with the question, it is known
    before, and one click plays the turn; else Step asks first. In an economic run the form has the
    rates on offer in place of moves, and what is left empty of its words the seat fills in; the
    tape says which fields. Where a run has no moves and no player to judge words, a person names
    the rate, in quarter points. The turn can be started by another widget or in a cell, too: the
    seat asks whenever the run waits for one of its people. Where several people share a notebook,
    each may have a seat of their own, or all use one and choose whose form is shown.

    Args:
        simulation: a run with people among its players: ``Simulation(players={"Ann": "person"})``.
        agent: whose seat it is; the seat of all people in the run if not given.
        model: for the score: a client, or a recorded run of a model's; see ``leaderboard``.

    Attributes:
        simulation: the run.
        people: who answers here.
        waiting_for: the people whose answers the turn waits for, whichever seat they have.

    Raises:
        ConfigError: the run has no people, or none of that name.

    Example:
        ``await seat.take_turn("Hold the rate", rate=4, reasoning="All is calm.", confidence=0.8)``
        does in a cell what people do with the form and the buttons.
    """

    parts = ("seat",)

    def __init__(
        self,
        simulation: Run,
        *,
        agent: str | None = None,
        model: Rival = None,
    ) -> None:
        self.people = People(simulation, agent)
        self.simulation = simulation
        self.economic = simulation if isinstance(simulation, Simulation) else None
        self.model = model
        self._answered_form = ""
        self._advice: dict[str, tuple[int, str]] = {}
        self._board: Leaderboard | None = None
        self._score: Message | None = None
        super().__init__(simulation)
        self._asked()

    @classmethod
    def game(
        cls,
        name: str = "You",
        *,
        seed: int = 1,
        tape: Tape | str | Path | None = None,
        model: Rival = None,
    ) -> HumanSeat:
        """Return a seat at a game worth winning: four years in a boom, from 1973Q1 on.

        Demand is above potential and the rate below what the Taylor rule asks for; shocks have
        their estimated spread, so history does not repeat itself. The rate moves in quarter
        points, two points a quarter at most. Good policy pays: measured over the seeds 0 to 999,
        the Taylor rule has a loss of 26.9 in the mean and a rate held 77.5; the rule wins in 94 %.

        Args:
            name: who plays; the tape and a class's leaderboard have it.
            seed: of the shocks; the same for all who are to be compared.
            tape: keeps the game; a class's go into one folder, a tape each.
            model: for the score; see ``leaderboard``.
        """
        simulation = Simulation(
            name="game",
            seed=seed,
            turns=16,
            tape=tape,
            nations=(Nation(name=name),),
            players={name: "person"},
            start_at="1973Q1",
            moves_bp=None,
            validator="none",
        )
        return cls(simulation, model=model)

    # --- who is asked what --------------------------------------------------------------------

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """The people whose answers the turn waits for, whichever seat they have."""
        people = people_of(self.simulation)  # one may answer for several players
        return tuple(question.agent for person in people for question in person.questions)

    @property
    def turn_state(self) -> TurnState:
        """Where the next turn is; it may be played here or in a cell."""
        is_begun = self._task is not None and not self._task.done()
        if not (is_begun or self._busy or plays_a_turn(self.simulation)):
            return TurnState.BETWEEN_TURNS
        if self.people.waiting():
            return TurnState.ASKING
        return TurnState.PLAYING

    @property
    def _under_way(self) -> bool:
        return self.turn_state is not TurnState.BETWEEN_TURNS

    # --- what is shown ------------------------------------------------------------------------

    def _asked(self) -> None:
        """Show where the run is and who is asked what."""
        played = self.simulation.turn_number
        if self._score is not None and self._score["turn"] != played:
            # It was of the term so far.
            self._score = None
            self._board = None
        asks = [self._as_shown(question) for question in self._put_questions().values()]
        shown: Message = {
            "people": [*self.people.seats],
            "asks": asks,
            "told": told_in(self.simulation, self.people.seats),
            "over": self.people.over,
            "waiting": [*self.waiting_for],
            "stepping": plays_a_turn(self.simulation),
        }
        # What players of other worlds may know is in their prompts alone.
        if self.economic is not None:
            shown["columns"] = [*TOLD]
            shown["advice"] = {
                name: advice for name, (turn, advice) in self._advice.items() if turn == played
            }
            shown["score"] = self._score
            shown["news"] = _headlines(self.economic)
        self.put("seat", "now", shown)
        if plays_a_turn(self.simulation) and not asks:
            # The turn may end without being one, and nothing says so.
            self._later(self._asked, _LATER_S)

    def _put_questions(self) -> dict[str, SeatQuestion]:
        """Return what the people here can answer, by seat."""
        return {
            name: put(self.simulation, known.question, name)
            for name, known in self.people.next().items()
        }

    def _tell_people(self) -> None:
        """Say nothing apart: the seat shows what its people are told."""

    _more = _asked

    def _do_advise(self, who: str) -> None:
        """Show what the rule would do about this quarter, and remember that it was asked."""
        if self.economic is not None:
            self._advice[who] = (self.economic.turn_number, advice_for(self.economic, who))
            self._asked()

    # --- answers ------------------------------------------------------------------------------

    def _do_answer(self, id: str, values: Any) -> None:  # noqa: A002 - the message's name
        """Take what was filled in, and play the turn with it if it was not begun."""
        by_number = {question.number: question for question in self._put_questions().values()}
        if id == self._answered_form and (self._under_way or id not in by_number):
            return  # a second click
        if id not in by_number:
            raise ConfigError(NO_LONGER)
        question = by_number[id]
        answer: dict[str, Any] = {}
        with self._marking(question):
            answer = question.read(values)
            question.taken(answer)  # before the turn begins
        if self._faults:
            return
        self._answered_form = id
        if question.seat in self.people.waiting():
            # At once, since a cell may keep the loop busy.
            self._reply(question.seat, answer)
            turn = self._rest_of_turn()
        else:
            turn = self._turn_with(question.seat, answer)
        self._loop.call_soon_threadsafe(self._finish, turn)

    def _finish(self, turn: Coroutine[Any, Any, None]) -> None:
        """Wait for a turn that a click has answered, and show the score after the last one."""

        async def finish() -> None:
            await turn
            if self.people.over and self.economic is not None:
                await self._show_score()

        self._ending = self._start(finish())

    def _do_score(self) -> None:
        self._ending = self._start(self._show_score())

    def _reply(
        self,
        name: str,
        values: Mapping[str, Any],
    ) -> None:
        """Send an answer, with what the tape keeps besides; raise ConfigError if it is wrong."""
        waiting = self.people.waiting()
        if name not in waiting:
            raise ConfigError(
                f"there is no question for {name} now; start the turn, then: await seat.asked()"
            )
        person, question = waiting[name]
        reply = put(self.simulation, question, name).taken(values)
        if name in self._advice:
            turn, _ = self._advice[name]
            if turn == self.simulation.turn_number:
                reply["advice_asked"] = True
        person.answer(question, reply)

    async def _turn_with(
        self,
        agent: str | None,
        values: Mapping[str, Any],
    ) -> None:
        """Begin a turn if none is under way, answer in it, and wait for its end."""
        # Where a cell plays the run, its next turn will ask.
        if not self._under_way and self.simulation._driver is None:
            self._task = asyncio.ensure_future(self.play())
        task = self._task if self._under_way else None
        try:
            await self.asked(agent)
            self._reply(self.people.named(agent), values)
            await self._end_of_turn()
        finally:
            _raise_fault_of(task)

    async def _rest_of_turn(self) -> None:
        """Wait for the end of a turn that was answered."""
        task = self._task if self._under_way else None
        try:
            await self._end_of_turn()
        finally:
            _raise_fault_of(task)

    async def _end_of_turn(self) -> None:
        while self._under_way:  # noqa: ASYNC110 - on whichever loop
            await asyncio.sleep(_WAIT_S)

    # --- from code ----------------------------------------------------------------------------

    async def asked(self, agent: str | None = None) -> OpenQuestion:
        """Wait until a person is asked, and return the question.

        Args:
            agent: who; the first who is asked if not given.

        Raises:
            ConfigError: the turn under way ended without a question.
        """
        was_under_way = False
        while True:
            name = self.people.named(agent)
            waiting = self.people.waiting()
            if name in waiting:
                _, question = waiting[name]
                return question
            if was_under_way and not self._under_way:
                raise ConfigError(
                    f"the turn ended and {name} was not asked: it was stopped, or the answer came "
                    "from the tape"
                )
            was_under_way = self._under_way
            await asyncio.sleep(_WAIT_S)

    def answer(
        self,
        action: str | None = None,
        /,
        *,
        agent: str | None = None,
        **values: Any,
    ) -> None:
        """Answer what a person is asked.

        Args:
            action: one policy action, in words; only in an economic run.
            values: the fields of the reply, such as ``amount=5``, with ``reasoning`` and
                ``confidence``; in an economic run ``rate``, the new interest rate, percent per
                year, one of those on offer, where the form has it.
            agent: who; the first who is asked if not given.

        Raises:
            ConfigError: no question waits, or a field is wrong; nothing was sent then.
        """
        self._reply(self.people.named(agent), _with_action(action, values))

    async def take_turn(
        self,
        action: str | None = None,
        /,
        *,
        agent: str | None = None,
        **values: Any,
    ) -> None:
        """Start a turn if none is under way, wait for the question, answer, wait for the end.

        Where others are waited for too, let all do so at once, with ``asyncio.gather``. Arguments
        as for ``answer``.

        Raises:
            ConfigError: a field is wrong; the question waits on.
            LabError: the turn failed; the run is at its last whole turn.
        """
        await self._turn_with(agent, _with_action(action, values))

    # --- the score ----------------------------------------------------------------------------

    async def _show_score(self) -> None:
        self._tell({"busy": False, "says": "Playing the same quarters with others in your seat."})
        fault = ""
        run: Any = self.simulation  # one of another kind raises
        try:
            # In a thread, since it plays whole runs, which would hold up the loop.
            board = await asyncio.to_thread(
                leaderboard,
                run,
                model=self.model,
            )
            self._score = self._as_score(board)
            self._board = board
        except LabError as error:
            fault = str(error)
        self._tell({"busy": False, "says": "", "fault": fault})
        self._asked()

    def _as_score(self, board: Leaderboard) -> Message:
        """Return a leaderboard as the window shows it, with its runs beside the people's."""
        losses = board.frame.dropna(subset="loss").set_index("who")[[*_PARTS]].astype(float)
        numbers: dict[str, int] = {}
        rows = []
        for player, *cells in losses.itertuples():
            # A run here, so that its path can be drawn beside the people's.
            numbers[player] = self._add_frame(board.runs[player], player)
            rows.append([player, numbers[player], *cells])
        people = next(iter(board.runs))  # a leaderboard has their run first
        return {
            "verdict": board.verdict,
            "caption": board.caption,
            "notes": board.notes,
            "turn": self.simulation.turn_number,
            "asked": advice_asked(self.simulation),
            "rows": rows,
            "mine": numbers[people],
        }

    # --- the static view ----------------------------------------------------------------------

    def static_text(self) -> str:
        """Return who sits here, where the run is, how they did, and the latest answers."""
        names = clip(", ".join(self.people.seats), 200)
        lines = [f"Seat of {names}: {_static.turn_name(self.simulation.turns[-1])}"]
        if self._board is not None:
            lines.append(self._board.verdict)
        for turn in self.simulation.turns[-_LATEST:]:
            for answer in turn.answers:
                # What others decided stands in the run's own window.
                if answer.call is None or answer.call.request.model != "human":
                    continue
                fields = answer.fields
                if "action" in fields:  # which says in words what the others are
                    fields = {"action": fields["action"]}
                decided = _static.decision_words(fields, 100)
                player = answer.player
                if answer.status != "ok":
                    player += f" ({answer.status})"
                line = f"turn {turn.number}: {player}: {decided}"
                if self.economic is not None:
                    line += f"; rate {turn.state.interest_rate:.2f}%"
                lines.append(line)
        return visible("\n".join(lines))

    def static_html(self) -> Markup:
        """Return the same, with the score's table if there is one."""
        parts = [pre(self.static_text())]
        if self._board is not None:
            parts.append(pre(repr(self._board)))
        return join(parts)

    def static_picture(self) -> Figure | None:
        """Return the score's chart; until there is one, the run's."""
        if self._board is not None:
            return self._board.figure
        return super().static_picture()


def _with_action(
    action: str | None,
    values: dict[str, Any],
) -> dict[str, Any]:
    if action is None:
        return values
    return {"action": action, **values}


def _raise_fault_of(task: asyncio.Future[Any] | None) -> None:
    """Raise what went wrong with a turn that has ended."""
    if task is not None and task.done():
        task.result()


def _headlines(run: Simulation) -> list[str]:
    """Return the quarter's news, the most striking first, of numbers that a model is told too."""
    news = []
    for series in run.series:
        if series.column not in _NEWS:
            continue
        *before, now = (round(turn.columns()[series.column], 1) for turn in run.turns)
        if not before:
            return []
        size = (now - before[-1]) / _NEWS[series.column]
        text = f"{series.label} {_verb_of(size)} {now:.1f} %"
        if len(before) > 2 and now > max(before):
            text += ", its highest of the term"
        if len(before) > 2 and now < min(before):
            text += ", its lowest of the term"
        news.append((abs(size), text))
    return [text for _, text in sorted(news, reverse=True)]


def _verb_of(size: float) -> str:
    """Return how a headline says a change, in usual quarterly changes."""
    if size == 0:
        return "stays at"
    if size > 2:
        return "jumps to"
    if size > 0:
        return "climbs to"
    return "tumbles to" if size < -2 else "falls to"
