"""A seat in which a person decides instead of a model, and the score of such runs."""

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
from llmsim_lab.run.playing import is_played_elsewhere
from llmsim_lab.run.seating import SeatQuestion, put
from llmsim_lab.run.told import told_in
from llmsim_lab.simulation import Simulation
from llmsim_lab.simulation.chair import advice_for
from llmsim_lab.simulation.scores import AFTER, Losses, Rival, advice_asked, of_class
from llmsim_lab.simulation.world import TOLD, Nation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LATEST = 16
"""The number of latest turns whose answers stay in the notebook."""
_NEWS = {
    "inflation": 0.5,
    "unemployment": 0.4,
    "gdp_growth": 2.0,
}
"""The columns that make headlines, each with its usual change in a quarter, percentage points. The
rate is missing, since it is no news to the person who sets it."""
_PARTS = ("loss", "inflation", "output_gap", "rate_change", "term")
"""The parts of a score that the window shows, the loss first."""
# Between two looks of code that waits for a question, or for the end of a turn.
_WAIT_S = 0.02
# Between two looks of the seat itself, while others are asked.
_LATER_S = 0.2


class Leaderboard(Losses):
    """The runs of one world, ranked by their loss, as a table and a chart."""

    @property
    def figure(self) -> Figure:
        """The runs' rates and the paths of the economy, beside its history if there is one."""
        first = next(iter(self.runs.values()))
        period = first["period"].iloc[0]
        past = None
        if isinstance(period, str):  # a run from the steady state has no history
            history = load_us_macro()
            past = history.loc[period:].head(len(first))
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
    """Compare a run of people with the same run decided by others; or rank a class's runs.

    The Taylor rule, plain and with inertia, and a rate that never moves are played in every seat
    that a person had: with the same start, shocks and interventions. The row of the model needs a
    model, or a recorded run. A rate takes three quarters to reach prices, so a loss over the term
    alone would reward people who leave inflation to their successors. Therefore quarters after the
    term count too; in them the Taylor rule decides for all, and there are no shocks.

    Args:
        simulation: the people's run, with at least one turn played. Or a folder of tapes.
        model: a client, which plays as many turns as the people did; or a recorded run of a model
            from the same start, such as ``load("model.tape")``.
        loss: how runs are judged. If not given, Rudebusch and Svensson's benchmark with the
            inflation target of the first person's nation.
        after: how many quarters after the term count; 0 for the term alone.

    Returns:
        The table, a ``Leaderboard``. A row without a run has a note that says why, such as a model
        that failed. For a folder, a frame with a row for each run of people, sorted by
        ``against_rule_pct``: ``name``; ``seed``; ``turns`` played; ``loss``; ``against_rule_pct``,
        the loss above that of the rule in the same economy, negative if it is lower;
        ``advice_asked``, the number of quarters with advice; ``date``; ``tape``; ``note``, which
        says why there is no loss.

    Raises:
        ConfigError: there are no people in the run, no turn was played, the recorded run had
            another start or other shocks, or there are no tapes in the folder.
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
    """The state of the run's next turn, for the people in this seat."""

    BETWEEN_TURNS = "between turns"
    """A click on a form begins the turn and answers in it."""
    ASKING = "asking"
    """The turn waits for somebody here."""
    PLAYING = "playing"
    """Others are asked, or the turn is ending."""


class HumanSeat(Lab):
    """Lets one or several people decide in a run: shows their form, and who must answer.

    The form has the fields of the question. If the turn begins with the question, the question is
    known before, and one click plays the turn; else Step asks first. In an economic run, the form
    offers rates instead of moves, and the seat fills in texts that are left empty; the tape says
    which. If a run has no moves, and no player who judges words, a person names the rate in quarter
    points. Another widget or a cell can start the turn, too: the seat asks whenever the run waits
    for one of its people. Several people at one notebook may each have a seat, or share one and
    choose whose form is shown.

    Args:
        simulation: a run with people among its players: ``Simulation(players={"Ann": "person"})``.
        agent: the person in the seat; all people of the run if not given.
        model: a client, or a recorded run of a model, for the score; see ``leaderboard``.

    Attributes:
        simulation: the run.
        people: the people who answer here.
        waiting_for: the people whose answers the turn waits for, in this seat or another.

    Raises:
        ConfigError: the run has no people, or none with that name.

    Example:
        ``await seat.take_turn("Hold the rate", rate=4, reasoning="All is calm.", confidence=0.8)``
        does from a cell what people do with the form and the buttons.
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
        """Return a seat at a game worth winning: four years in a boom, beginning in 1973Q1.

        Demand is above potential, and the rate is below the Taylor rule's. Shocks have their
        estimated spread, so history does not repeat itself. The rate moves in quarter points, by at
        most two points a quarter. Good policy pays: over the seeds 0 to 999, the Taylor rule's mean
        loss is 26.9, that of a rate that never moves 77.5, and the rule wins in 94 % of the games.

        Args:
            name: the player's name, for the tape and for a class's leaderboard.
            seed: the seed of the shocks; the same for all players who are to be compared.
            tape: records the game. A class has one folder, with a tape for each player.
            model: see ``leaderboard``.
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
        """The people whose answers the turn waits for, in this seat or another."""
        names: list[str] = []
        for person in people_of(self.simulation):
            # A person may answer for several players.
            names += [question.agent for question in person.questions]
        return tuple(names)

    @property
    def turn_state(self) -> TurnState:
        """The state of the next turn, which may be played here or in a cell."""
        is_begun = self._task is not None and not self._task.done()
        is_played = self._busy or plays_a_turn(self.simulation)
        if not is_begun and not is_played:
            return TurnState.BETWEEN_TURNS
        if self.people.waiting():
            return TurnState.ASKING
        return TurnState.PLAYING

    @property
    def _under_way(self) -> bool:
        return self.turn_state is not TurnState.BETWEEN_TURNS

    # --- what is shown ------------------------------------------------------------------------

    def _asked(self) -> None:
        """Show where the run is, and the questions to its people."""
        played = self.simulation.turn_number
        if self._score is not None and self._score["turn"] != played:
            # The score was that of the turns before.
            self._score = None
            self._board = None
        questions = self._put_questions().values()
        asks = list(map(self._as_shown, questions))
        shown: Message = {
            "people": [*self.people.seats],
            "asks": asks,
            "told": told_in(self.simulation, self.people.seats),
            "over": self.people.over,
            "waiting": [*self.waiting_for],
            "stepping": plays_a_turn(self.simulation),
        }
        # In other worlds, all that a player may know is in the prompt.
        if self.economic is not None:
            advice_now: dict[str, str] = {}
            for name, (turn, advice) in self._advice.items():
                # Advice is for one quarter.
                if turn == played:
                    advice_now[name] = advice
            shown["columns"] = [*TOLD]
            shown["advice"] = advice_now
            shown["score"] = self._score
            shown["news"] = _headlines(self.economic)
        self.put("seat", "now", shown)
        if plays_a_turn(self.simulation) and not asks:
            # The turn may end without a question, and nothing would call this then.
            self._later(self._asked, _LATER_S)

    def _put_questions(self) -> dict[str, SeatQuestion]:
        """Return the questions that people here can answer, by seat."""
        questions: dict[str, SeatQuestion] = {}
        for name, upcoming in self.people.next().items():
            questions[name] = put(self.simulation, upcoming.question, name)
        return questions

    def _tell_people(self) -> None:
        """Show nothing extra: the seat shows what its people are told."""

    _more = _asked

    def _do_advise(self, who: str) -> None:
        """Show the rule's advice for this quarter, and record that it was asked for."""
        if self.economic is not None:
            advice = advice_for(self.economic, who)
            self._advice[who] = (self.economic.turn_number, advice)
            self._asked()

    # --- answers ------------------------------------------------------------------------------

    def _do_answer(self, id: str, values: Any) -> None:  # noqa: A002 - the message's name
        """Take the values of a form, and play the turn with them if it has not begun."""
        by_number: dict[str, SeatQuestion] = {}
        for question in self._put_questions().values():
            by_number[question.number] = question
        # A second click on a form that was answered does nothing.
        is_second_click = id == self._answered_form
        if is_second_click and (self._under_way or id not in by_number):
            return
        if id not in by_number:
            raise ConfigError(NO_LONGER)
        question = by_number[id]
        answer: dict[str, Any] = {}
        with self._marking(question):
            answer = question.read(values)
            question.taken(answer)  # checked before the turn begins
        if self._faults:
            return
        self._answered_form = id
        if question.seat in self.people.waiting():
            # Sent now, since a cell may keep the loop busy.
            self._reply(question.seat, answer)
            turn = self._rest_of_turn()
        else:
            turn = self._turn_with(question.seat, answer)
        self._loop.call_soon_threadsafe(self._finish, turn)

    def _finish(self, turn: Coroutine[Any, Any, None]) -> None:
        """Wait for the end of a turn that a click answered; show the score after the last turn."""

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
        """Send an answer, with what the tape records besides; raise ConfigError if it is wrong."""
        waiting = self.people.waiting()
        if name not in waiting:
            raise ConfigError(
                f"there is no question for {name} now; start the turn, then: await seat.asked()"
            )
        person, question = waiting[name]
        seat_question = put(self.simulation, question, name)
        reply = seat_question.taken(values)
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
        # If a cell plays the run, its next turn will ask.
        if not self._under_way and not is_played_elsewhere(self.simulation):
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
        while self._under_way:  # noqa: ASYNC110 - the turn may be played on any loop
            await asyncio.sleep(_WAIT_S)

    # --- from code ----------------------------------------------------------------------------

    async def asked(self, agent: str | None = None) -> OpenQuestion:
        """Wait until a person is asked, and return the question.

        Args:
            agent: the person; the first who is asked if not given.

        Raises:
            ConfigError: the turn ended without a question.
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
        """Answer a person's question.

        Args:
            action: one policy action, in words; only in an economic run.
            values: the fields of the reply, such as ``amount=5``, with ``reasoning`` and
                ``confidence``. In an economic run ``rate`` is the new interest rate, percent per
                year: one of those on offer, if the form lists them.
            agent: the person; the first who is asked if not given.

        Raises:
            ConfigError: no question waits, or a field is wrong; then nothing was sent.
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
        """Start a turn if none is under way, wait for the question, answer, and wait for the end.

        If others must answer too, let all do so at once, with ``asyncio.gather``. The arguments are
        those of ``answer``.

        Raises:
            ConfigError: a field is wrong; the question stays open.
            LabError: the turn failed; the run is at its last whole turn.
        """
        await self._turn_with(agent, _with_action(action, values))

    # --- the score ----------------------------------------------------------------------------

    async def _show_score(self) -> None:
        self._tell({"busy": False, "says": "Playing the same quarters with others in your seat."})
        fault = ""
        run: Any = self.simulation  # another kind of run raises below
        try:
            # In a thread, since it plays whole runs and would block the loop.
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
        """Return a leaderboard as the window shows it, with its runs beside the people's run."""
        with_loss = board.frame.dropna(subset="loss").set_index("who")
        losses = with_loss[[*_PARTS]].astype(float)
        numbers: dict[str, int] = {}
        rows = []
        for player, *cells in losses.itertuples():
            # Added as a run, so that its path can be drawn beside that of the people.
            number = self._add_frame(board.runs[player], player)
            numbers[player] = number
            rows.append([player, number, *cells])
        people = next(iter(board.runs))  # a leaderboard has the people's run first
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
        """Return who sits here, where the run is, the score, and the latest answers."""
        names = clip(", ".join(self.people.seats), 200)
        latest_turn = self.simulation.turns[-1]
        lines = [f"Seat of {names}: {_static.turn_name(latest_turn)}"]
        if self._board is not None:
            lines.append(self._board.verdict)
        for turn in self.simulation.turns[-_LATEST:]:
            for answer in turn.answers:
                # The run's own window shows what others decided.
                if answer.call is None or answer.call.request.model != "human":
                    continue
                fields = answer.fields
                if "action" in fields:  # the action says the other fields in words
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
        """Return the static text as HTML, with the score's table if there is one."""
        parts = [pre(self.static_text())]
        if self._board is not None:
            parts.append(pre(repr(self._board)))
        return join(parts)

    def static_picture(self) -> Figure | None:
        """Return the score's chart; before there is a score, the run's chart."""
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
    """Raise the error of a turn that has ended, if it failed."""
    if task is not None and task.done():
        task.result()


def _headlines(run: Simulation) -> list[str]:
    """Return the quarter's headlines, the most striking first, from numbers that models see too."""
    news: list[tuple[float, str]] = []
    for series in run.series:
        column = series.column
        if column not in _NEWS:
            continue
        # Rounded as they are shown, so that a headline never contradicts its numbers.
        values = [round(turn.columns()[column], 1) for turn in run.turns]
        *before, now = values
        if not before:
            return []
        size = (now - before[-1]) / _NEWS[column]
        text = f"{series.label} {_verb_of(size)} {now:.1f} %"
        if len(before) > 2 and now > max(before):
            text += ", its highest of the term"
        if len(before) > 2 and now < min(before):
            text += ", its lowest of the term"
        news.append((abs(size), text))
    news.sort(reverse=True)
    return [text for _, text in news]


def _verb_of(size: float) -> str:
    """Return the verb for a change, whose size is given in usual quarterly changes."""
    if size == 0:
        return "stays at"
    if size > 2:
        return "jumps to"
    if size > 0:
        return "climbs to"
    return "tumbles to" if size < -2 else "falls to"
