"""A seat at the table, where a person answers in a model's place, and the score of such runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload
from weakref import WeakKeyDictionary, WeakSet

import ipywidgets as w
from markupsafe import Markup

from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.html import badge, details, flow, join, pre, safe, styled, table, visible
from llmsim_lab._util.text import clip, number
from llmsim_lab.agents._agents import rule_proposal
from llmsim_lab.economy import QuadraticLoss, TaylorRule, history
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab._fields import AnswerForm
from llmsim_lab.lab._lab import RateChart
from llmsim_lab.lab._picture import figure_html
from llmsim_lab.lab._widget import LabWidget, block, button, flex, noted, row, sideways
from llmsim_lab.lab.figures import rate_figure
from llmsim_lab.llm import LLMClient, Person, Tape
from llmsim_lab.llm._human import OpenQuestion, check_answer
from llmsim_lab.run import Run
from llmsim_lab.run._run import foreseen
from llmsim_lab.run._turn import Turn
from llmsim_lab.simulation import Simulation
from llmsim_lab.simulation._headlines import headlines
from llmsim_lab.simulation._scores import Losses, advice_asked, compared, of_class
from llmsim_lab.simulation._simulation import Nation

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_LATEST = 16
"""Turns whose answers are shown."""

_INDICATORS = (
    ("GDP growth", "gdp_growth", "at an annual rate"),
    ("Inflation", "inflation", "over four quarters"),
    ("Unemployment", "unemployment", ""),
    ("Interest rate", "interest_rate", "per year"),
)
"""What the shipped prompt names, and no more: a person knows what a model knows."""

_ROLES = {"system": "Who you are", "user": "What you are asked", "assistant": "Your first answer"}


_CELL_WAITS = (
    " A cell waits for this turn, and clicks may not be heard until it ends: interrupt it, and "
    "start the turn with Step."
)
_OTHERS = "everybody else"
_LEFT_OPEN: Mapping[str, Any] = {"reasoning": "No reason given.", "confidence": 0.5}
"""What stands for what a member of the committee leaves open."""


@dataclass(frozen=True, eq=False)
class Player:
    """A person among the players of a run.

    Attributes:
        name: in ``players``; or ``*``, for all who have no seat of their own.
        person: asks, and waits for the answers.
        not_for: who else has a seat, where the person answers for all others; else None.
    """

    name: str
    person: Person
    not_for: frozenset[str] | None = None

    def answers(self, player: str, component: str) -> bool:
        """Return True if what a player is asked, or what was asked as this, is theirs to answer."""
        named = {player, component}
        return self.name in named if self.not_for is None else not named & self.not_for

    def first(self, questions: Iterable[OpenQuestion]) -> OpenQuestion | None:
        """Return the first question that is theirs."""
        return next((it for it in questions if self.answers(it.agent, it.component)), None)

    @property
    def question(self) -> OpenQuestion | None:
        """What the person is asked just now, if anything."""
        return self.first(self.person.questions)


def chosen_people(simulation: Run, agent: str | None) -> list[Player]:
    """Return the people of a run, or one of them.

    Raises:
        ConfigError: there is no person, or none of that name.
    """
    if not isinstance(simulation, Run):
        raise ConfigError(
            f"{type(simulation).__name__} is not a simulation; pass one, as in "
            "HumanSeat(Simulation(players={'Ann': 'person'})), or a recorded one: "
            "HumanSeat(load('x.tape'))"
        )
    seats = simulation.players
    people = [
        Player(_OTHERS, who.backend, frozenset(seats)) if name == "*" else Player(name, who.backend)
        for name, who in seats.items()
        if isinstance(who, LLMClient) and isinstance(who.backend, Person)
    ]
    if not people:
        raise ConfigError(
            f"{simulation!r:.120} has no people in it; name one: "
            f'{type(simulation).__name__}(players={{"Bob": Person()}})'
        )
    chosen = [person for person in people if agent in (None, person.name)]
    if not chosen:
        raise ConfigError(
            f"agent={agent!r} is not a person in this run; the people are "
            f"{', '.join(person.name for person in people)}"
        )
    return chosen


def rates_of(simulation: Run) -> dict[float, dict[str, Any]]:
    """Return the rates on offer, percent per year, each with the part of a reply that states it.

    They are those that the moves on offer lead to. Where actions are in words and the run has
    no player to judge them, they are the quarter points that an engine's model would be offered.
    """
    if not isinstance(simulation, Simulation):
        return {}
    here, limits = simulation.state.interest_rate, simulation.engine.limits
    if simulation.moves_bp is None:
        judged = simulation.llm_client is not None or {"engine", "*"} & simulation.players.keys()
        return {} if judged else {it: {"proposed_rate": it} for it in limits.choices(here)}
    # Of moves that end at the same bound the smallest one counts.
    moves = sorted(simulation.moves_bp, key=abs, reverse=True)
    rates = {round(limits.inside(here + it / 100), 2): {"rate_change_bp": it} for it in moves}
    return dict(sorted(rates.items()))


def _policy_words(simulation: Run, rate: Any) -> str:
    """Return a new rate as an action in words; empty without one."""
    if not isinstance(simulation, Simulation) or not isinstance(rate, int | float):
        return ""
    by = round(rate - simulation.state.interest_rate, 2)
    verb = "Raise" if by > 0 else "Lower"
    return f"{verb} the rate to {number(rate)} %" if by else f"Hold the rate at {number(rate)} %"


def title(simulation: Run, agents: Mapping[str, Player]) -> str:
    """Return who sits at a seat, where the run is, and whether it waits for them."""
    where = rate = ""
    if isinstance(simulation, Simulation):
        state = simulation.state
        where = f" ({state.period})" if state.period else ""
        rate = f", rate {state.interest_rate:.2f}%"
    asked = [name for name, agent in agents.items() if agent.question is not None]
    waits = f", waits for {', '.join(asked)}" if asked else ""
    names = clip(", ".join(agents), 200)
    return f"Seat of {names}: turn {simulation.turn_number}{where}{rate}{waits}"


def state_html(name: str, turns: Sequence[Turn], *, target: float) -> Markup:
    """Return the quarter's headlines and its indicators.

    Args:
        name: whose seat it is.
        turns: all so far, oldest first.
        target: of inflation, percent.
    """
    state, before = turns[-1].state, turns[-2].state if len(turns) > 1 else None
    where = f"turn {turns[-1].number}"
    where = f"{state.period}, {where}" if state.period else where
    first, *more = headlines([turn.state.global_state for turn in turns], target=target)
    tiles = []
    for label, field, unit in _INDICATORS:
        now = getattr(state, field)
        by = round(now - getattr(before, field), 2) if before else 0
        change = f"{'▲' if by > 0 else '▼'} {abs(by):.2f}" if by else "as before" if before else ""
        value = styled(f"{number(now)} %", "font-size:22px;font-weight:600")
        lines = join(map(styled, (label, value, unit, change)))
        tiles.append(styled(lines, "font-variant-numeric:tabular-nums"))
    about = styled(f"{name}: the economy in {where}")
    below = styled(" · ".join(more), "font:italic 15px/1.4 Georgia,serif;margin-bottom:8px")
    return block(about, _headline(first), below, flow(tiles, basis="8em", gap="8px 16px"))


def _headline(text: str) -> Markup:
    css = "font:700 22px/1.25 Georgia,serif;margin:4px 0"
    return styled(text, css, role="heading", aria_level=3)


def prompt_html(question: OpenQuestion, *, folded: bool) -> Markup:
    """Return what a model would be sent, by role and text."""
    parts = [
        styled(styled(f"{_ROLES.get(it.role, it.role)} ({it.role} message)", tag="strong"), tag="p")
        + pre(it.content)
        for it in question.request.messages
    ]
    return details(
        "The prompt: what a model in your seat would be sent", join(parts), open=not folded
    )


def latest_answers(simulation: Run, players: Iterable[Player]) -> list[dict[str, Any]]:
    """Return what people answered in the latest turns, by column."""
    rows, seats = [], [*players]
    for turn in simulation.turns[-_LATEST:]:
        economic = isinstance(simulation, Simulation)
        after = f"rate {turn.state.interest_rate:.2f}%" if economic else ""
        for made in turn.answers:
            by_person = made.call is not None and made.call.request.model == "human"
            if by_person and any(it.answers(made.player, made.component) for it in seats):
                said = {"answer": made.fields.get("action", str(made)), "reasoning": made.reasoning}
                sure = "" if made.confidence is None else f"{made.confidence:g}"
                more = {"confidence": sure, "status": made.status, "led to": after}
                rows.append({"turn": turn.number, "who": made.player, **said, **more})
    return rows


def answers_text(answers: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return answers, a line each."""
    return [
        f"turn {it['turn']}: {it['who']} ({it['status']}): {clip(it['answer'], 100)}"
        f"{'; ' if it['led to'] else ''}{it['led to']}"
        for it in answers
    ] or ["no answer yet"]


def answers_html(answers: Sequence[Mapping[str, Any]]) -> Markup:
    """Return answers as a table."""
    if not answers:
        return Markup("<p>No answer yet.</p>")
    as_said = partial(styled, dir="auto")
    shown: dict[str, Any] = {"status": badge, "answer": as_said, "reasoning": as_said}
    header = [name for name in answers[0] if any(item[name] for item in answers)]
    rows = [[shown.get(name, safe)(item[name]) for name in header] for item in answers]
    return table(header, rows, caption=f"The answers of the latest {_LATEST} turns")


# --- the score -----------------------------------------------------------------------------------

AFTER = 12
"""Quarters after the term that count: a rate needs three to reach prices, and years to pay."""


class Leaderboard(Losses):
    """Runs of one world by their loss, as a table and a chart; arguments as for ``Losses``."""

    @property
    def figure(self) -> Figure:
        """The runs' rates and what became of the economy, with history where there is one."""
        first = next(iter(self.runs.values()))
        period = first["period"].iloc[0]
        past = history(period, len(first)) if isinstance(period, str) else None
        after = f" (the last {self.after} by the rule for all)" if self.after else ""
        return rate_figure(self.runs, history=past, title=f"The same quarters, decided by{after}")

    def _repr_html_(self) -> str:
        return str(self.html)

    @property
    def html(self) -> Markup:
        """The table, as a notebook shows it."""
        numbers = self.frame.dropna(subset="loss").drop(columns="note")
        rows = [
            [f"{cell:.2f}" if isinstance(cell, float) else safe(cell, limit=300) for cell in row]
            for row in numbers.itertuples(index=False)
        ]
        header = [str(name).replace("_", " ") for name in numbers]
        losses = sideways(table(header, rows, caption=self.caption), name="Losses")
        notes = (styled(safe(note, limit=300), tag="p", dir="auto") for note in self.notes)
        return join([losses, *notes])


@overload
def leaderboard(
    simulation: Simulation,
    *,
    model: LLMClient | Simulation | Tape | str | Path | None = None,
    loss: QuadraticLoss | None = None,
    after: int = AFTER,
) -> Leaderboard: ...
@overload
def leaderboard(
    simulation: str | Path, *, loss: QuadraticLoss | None = None, after: int = AFTER
) -> pd.DataFrame: ...
def leaderboard(
    simulation: Simulation | str | Path,
    *,
    model: LLMClient | Simulation | Tape | str | Path | None = None,
    loss: QuadraticLoss | None = None,
    after: int = AFTER,
) -> Leaderboard | pd.DataFrame:
    """Compare a run with people in it with the same run decided by others; or a class's runs.

    The Taylor rule and a rate that is never moved are played at once, in every seat that a person
    had: same start, same shocks, same interventions. The model's row needs a model, or a recorded
    run. A loss of the term alone would reward those who leave inflation to the next chair, since a
    rate takes three quarters to reach prices; so quarters after it count too, in which the Taylor
    rule decides for all and there are no shocks.

    Args:
        simulation: the people's run; at least one turn played. Or a folder of tapes.
        model: a client, which plays as many turns as the people did; or a run of a model's from
            the same start: a simulation, or a tape or its file, whose latest run is taken.
        loss: how runs are judged; Rudebusch and Svensson's benchmark with the inflation target of
            the first person's nation if not given.
        after: how many quarters after the term count; 0 for the term alone.

    Returns:
        The table; a row without a run has a note that says why, such as a model that failed. Of a
        folder a frame, a row for each run with people: ``name``; ``seed``; ``turns`` played;
        ``loss``; ``against_rule_pct``, how much more than the rule's in the same economy, negative
        for less, by which it is sorted; ``advice_asked``, in how many quarters; ``date``; ``tape``;
        ``note``, why there is no loss.

    Raises:
        ConfigError: there are no people in the run, no turn was played, or the recorded run had
            another start or other shocks; or there are no tapes in the folder.
    """
    if loss is not None and not isinstance(loss, QuadraticLoss):
        raise ConfigError(f"loss={loss!r:.80} is not a loss; pass QuadraticLoss(gap_weight=0.5)")
    whole_number("after", after, least=0)
    if isinstance(simulation, str | Path):
        return of_class(Path(simulation), loss, after=after)
    if not isinstance(simulation, Simulation):
        raise ConfigError(
            f"{type(simulation).__name__} is not an economic simulation and has no score to "
            "compare; pass the people's run, a Simulation, or a recorded one: "
            "leaderboard(load('x.tape'))"
        )
    return Leaderboard(*compared(simulation, model, loss, after=after), after=after)


# --- the seat ------------------------------------------------------------------------------------

_seats: WeakKeyDictionary[Run, WeakSet[HumanSeat]] = WeakKeyDictionary()
"""The seats at each run, so that one seat's turn shows at the others; weak, so that they can go."""


class HumanSeat(LabWidget):
    """Lets one or several people decide in a run: what they see, their form, who is waited for.

    The form has the fields of whatever is asked. Where a turn begins with the question, it is known
    before, and one click plays the turn; else Step asks first. In an economic run the form has the
    rates on offer in place of moves, and what is left empty of its words the seat fills in; the
    tape says which fields. Where a run has no moves and no player to judge words, a person names
    the rate, in quarter points. The turn can be started by another widget or by
    ``simulation.step()`` in a cell, too; the seat asks whenever the run waits for one of its
    people. A form keeps what is written in it until the answer was taken. Where several people
    share a notebook, each may have a seat of their own, or all use one and choose whose form is
    shown.

    Args:
        simulation: a run with people among its players: ``Simulation(players={"Ann": "person"})``.
        agent: whose seat it is; the seat of all people in the run if not given.
        model: for the score: a client, or a recorded run of a model's; see ``leaderboard``.
        loss: for the score: how runs are judged.
        after: for the score: quarters after the term that count; see ``leaderboard``.

    Attributes:
        simulation: the run.
        agents: the people who answer here, by name.
        forms: their forms, by name.
        seat_box: whose form is shown.
        step_button: starts a turn.
        stop_button: stops the turn that was started here; what was answered in it is lost, unless
            the run has a tape.
        score_button: shows the leaderboard, which comes by itself after the last turn.
        advice_button: shows what the Taylor rule would do; the tape keeps with the answer that it
            was asked for.
        advice: what it said.
        facts: the quarter's headlines, and the state, as far as a model would be shown it.
        chart: the path so far.
        prompt: what a model would be sent.
        form_box: the form shown.
        score: the leaderboard.
        waiting_for: the people whose answers the turn waits for, whichever seat they have.

    Raises:
        ConfigError: nobody of that name, or nobody at all, is a person in it.

    Example:
        ``await seat.take_turn("Hold the rate", rate=4, reasoning="All is calm.", confidence=0.8)``
        does in a cell what people do with the form and the buttons.
    """

    def __init__(
        self,
        simulation: Run,
        *,
        agent: str | None = None,
        model: LLMClient | Simulation | Tape | str | Path | None = None,
        loss: QuadraticLoss | None = None,
        after: int = AFTER,
    ) -> None:
        agents = chosen_people(simulation, agent)
        super().__init__()
        self.simulation = simulation
        self.economic = simulation if isinstance(simulation, Simulation) else None
        self._foreseen: tuple[Any, list[tuple[Person, OpenQuestion]]] = (None, [])
        self.model, self.loss, self.after = model, loss, after
        self._lay_out(agents)
        self._queued: set[str] = set()
        self._advised: dict[str, int] = {}
        self._clicked = False
        self._board: Leaderboard | None = None
        # A question asked on another thread than this is asked by a loop that a cell has started.
        self._thread: int | None = None
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            self._thread = threading.get_ident()
        self._failure: Exception | None = None
        self.follow(simulation, self._refresh_soon)
        seats = _seats.setdefault(simulation, WeakSet())
        seats.add(self)
        self._following.callback(seats.discard, self)
        # Each person once, who may answer for several players.
        for person in set(simulation.people):
            self._following.callback(person.listen(self._refresh_soon))
        self.refresh()

    @classmethod
    def game(
        cls,
        name: str = "You",
        *,
        seed: int = 1,
        tape: Tape | str | Path | None = None,
        model: LLMClient | Simulation | Tape | str | Path | None = None,
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
            start_at="1973Q1",
            nations=(Nation(name=name),),
            players={name: "person"},
            moves_bp=None,
            validator="none",
            tape=tape,
        )
        return cls(simulation, model=model)

    def _lay_out(self, agents: Sequence[Player]) -> None:
        self.agents = {agent.name: agent for agent in agents}
        names = list(self.agents)
        self.seat_box = w.Dropdown(options=names, value=names[0], description="Seat")
        self.seat_box.layout.display = "" if len(names) > 1 else "none"
        self.seat_box.observe(lambda _: self._refresh_soon(), names="value")
        self.step_button = button(
            "Step", "Start a turn; it waits for all answers", self._begin_turn
        )
        self.stop_button = self.stopper("Stop", "Stop the turn that was started here")
        self.score_button = self.starter(
            "Score", "Compare with the Taylor rule and the model", self._show_score
        )
        self.advice_button = button(
            "Ask the rule",
            "See its rate; that you asked is kept",
            lambda: self._in_order(self._advise),
        )
        self.advice, self.facts, self.prompt, self.score = (w.HTML() for _ in range(4))
        self.form_box = w.VBox()
        run, economic = self.economic, self.economic is not None
        # A rate says what to do; words alone say it too.
        optional = () if run is None else ("action", *_LEFT_OPEN)[not rates_of(run) :]
        self.forms = {
            agent.name: AnswerForm(
                optional,
                on_change=partial(self._check, agent.name),
                send=partial(self._in_order, self._submit, agent.name),
                more=(self.advice_button, self.advice) if economic else (),
            )
            for agent in agents
        }
        self.score_button.layout.display = "" if economic else "none"
        self.chart = self._path()
        self.controls = (self.step_button, self.score_button)
        for part in (self.facts, self.form_box, self.chart):
            part.layout.max_width = "100%"
        left = w.VBox((self.facts, self.form_box), layout=flex(1, "22em"))
        right = w.VBox((self.chart,), layout=flex(1, "22em"))
        self.children = (
            row(self.seat_box, self.step_button, self.stop_button, self.score_button),
            *self.messages,
            self.score,
            row(left, right, gap="8px 24px"),
            self.prompt,
        )

    def _path(self) -> w.DOMWidget:
        """Return the chart of the path so far; an empty box for a world of one's own."""
        if self.economic is None:
            return w.VBox()
        *others, rate = [field for _, field, _ in _INDICATORS]
        return RateChart({clip(", ".join(self.agents), 30): self.economic}, columns=[rate, *others])

    @property
    def shown(self) -> Player:
        """The person whose form is shown."""
        return self.named(None)

    def named(self, agent: str | None) -> Player:
        """Return a person who answers here; the one shown if no name is given.

        Raises:
            ConfigError: nobody of that name does.
        """
        name = self.seat_box.value if agent is None else agent
        if name not in self.agents:
            raise ConfigError(
                f"agent={name!r} has no seat here; those who have: {', '.join(self.agents)}"
            )
        return self.agents[name]

    # --- what is shown ------------------------------------------------------------------------

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """The people whose answers the turn waits for, whichever seat they have."""
        return tuple(question.agent for question in self._questions())

    def _questions(self) -> list[OpenQuestion]:
        people = dict.fromkeys(self.simulation.people)  # one may answer for several players
        return [question for person in people for question in person.questions]

    def refresh(self) -> None:
        """Show the run as it is now; called whenever a question comes or goes, from any thread."""
        with self._view:
            shown = self.shown
            for agent in self.agents.values():
                self._refresh_form(agent)
            # What a player of another world may know is in the prompt, and nowhere else.
            if self.economic is not None:
                target = self._target(shown.name)
                self.facts.value = str(state_html(shown.name, self.economic.turns, target=target))
            if self._advised.get(shown.name) != self.simulation.turn_number:
                self.advice.value = ""
            over = self._over and shown.question is None
            self.form_box.layout.display = "none" if over else ""
            self.form_box.children = (self.forms[shown.name],)
            self.step_button.disabled = self.worker.busy or not self._may_begin
            self.say(self._news())
        # Not while the view is held, since an answer is shown at other seats too.
        for name in [name for name in self._queued if self.agents[name].question is not None]:
            self._queued.discard(name)
            self._submit(name)

    def _refresh_form(self, agent: Player) -> None:
        form, asked = self.forms[agent.name], agent.question
        known = asked or self._next(agent)
        if known is not None:
            form.show(self._in_rates(known).fields)
        form.ask(asked, turn=self.simulation.turn_number)
        # To begin with, the rate stays as it is: the form says so, and the button too.
        if self.economic is not None and form.values.get("rate", "") is None:
            form.fill(rate=round(self.economic.state.interest_rate, 2))
        form.answer_button.disabled = known is None
        if agent is self.shown:
            folded = self.economic is not None
            self.prompt.value = str(prompt_html(known, folded=folded)) if known else ""

    def _next(self, agent: Player) -> OpenQuestion | None:
        """Return what a player will be asked in the next turn, where it is known before it."""
        if self._over or not self._may_begin:
            return None
        latest = self.simulation.turns[-1]  # another one, too, where its state was changed
        if self._foreseen[0] is not latest:
            first = foreseen(self.simulation)
            self._foreseen = latest, [(who, OpenQuestion(request)) for who, request in first]
        return agent.first(it for who, it in self._foreseen[1] if who is agent.person)

    def _in_rates(self, question: OpenQuestion) -> OpenQuestion:
        """Return a question about policy as one about the rate, where there are rates on offer."""
        rates = rates_of(self.simulation) if question.component == "agent" else {}
        if not rates:
            return question
        schema = question.request.schema or {}
        fields = {it: part for it, part in schema["properties"].items() if it != "rate_change_bp"}
        shown = {**schema, "properties": {"rate": {"enum": [*rates]}, **fields}}
        # The same answer is waited for.
        return replace(question, request=replace(question.request, schema=shown))

    def _target(self, name: str) -> float:
        """Return the inflation target of a nation, or of the first one, percent."""
        assert self.economic is not None
        nations = {nation.name: nation for nation in self.economic.nations}
        return nations.get(name, self.economic.nations[0]).inflation_target

    @property
    def _may_begin(self) -> bool:
        return not self.waiting_for and not self._playing()

    @property
    def _over(self) -> bool:
        planned: int = self.simulation.config.turns
        run = self.simulation
        return run.turn_number >= planned > 0 or run.done(run.state)

    def _news(self) -> str:
        """Return one line on what is happening, and what to do about it."""
        turn, planned = self.simulation.turn_number, self.simulation.config.turns
        if waiting := self.waiting_for:
            mine = "" if self.shown.question is None else "It is your turn to answer. "
            hint = _CELL_WAITS if self._elsewhere else ""
            return f"{mine}Turn {turn + 1} waits for: {', '.join(waiting)}.{hint}"
        if self._playing():
            return f"Turn {turn + 1} is being played."
        if self._over:
            played = "The one turn is played" if planned == 1 else f"All {planned} turns are played"
            score = " Score shows how you did." if self.economic is not None else ""
            return f"{played}.{score}"
        way = "Step starts" if self._next(self.shown) is None else "Your answer plays"
        return f"{turn} of {planned} turns are played. {way} turn {turn + 1}."

    def _playing(self) -> bool:
        seats = self._fellows()
        return any(seat.worker.busy and seat.worker.latest == seat._step for seat in seats)

    def _fellows(self) -> list[HumanSeat]:
        return list(_seats.get(self.simulation, ()))

    # --- a turn -------------------------------------------------------------------------------

    def _begin_turn(self) -> None:
        if self._may_begin:
            self.start(self._step)  # not while the score is being played

    async def _step(self) -> None:
        self._failure = None
        self.say(self._news())
        try:
            await self.simulation.step()
        except Exception as error:
            self._failure = error  # kept, since other work of the seat may begin and end well
            raise

    def _raise_failure(self) -> None:
        for seat in self._fellows():
            if seat._failure is not None:
                raise seat._failure

    def ended(self) -> None:
        """Show where the run is now, at every seat."""
        # The turn shows at every seat of the run, whichever started it.
        for seat in self._fellows():
            seat._queued.clear()
            seat.refresh()
            # A turn that a click played is kept in the notebook, and the last one has an ending.
            if seat._clicked and not seat._playing():
                seat._clicked = False
                if seat._over and seat.economic is not None:
                    seat.start(seat._show_score)
                seat.keep()

    def _check(self, name: str) -> None:
        """Show what would be wrong with the answer so far, while it is being written."""
        form = self.forms[name]
        form.answer_button.description = (
            _policy_words(self.simulation, form.values.get("rate")) or "Answer"
        )
        words = ". ".join(form.faults)
        form.hint.value = noted(words, like="repaired", role="status") if words else ""

    def _advise(self) -> None:
        """Show what the rule would do about this quarter, and remember that it was asked."""
        run, name = self.economic, self.shown.name
        if run is None:
            return
        self._advised[name] = run.turn_number
        rule = TaylorRule(inflation_target=self._target(name))
        advice = rule_proposal(
            rule, run.state.global_state, run.engine.limits, moves_bp=run.moves_bp
        )
        said = f"The Taylor rule: {advice.action}. {advice.reasoning}"
        self.advice.value = noted(said, like="ok", role="status")

    def _submit(self, name: str) -> None:
        agent, form = self.agents[name], self.forms[name]
        if agent.question is None and self._next(agent) is not None:
            self._queued.add(name)
            self._begin_turn()
            return
        values = form.values
        filler = {"action": _policy_words(self.simulation, values.get("rate")), **_LEFT_OPEN}
        left = [it for it in form.optional if it in values and values[it] in ("", None)]
        try:
            self._reply(agent, values | {it: filler[it] for it in left}, left_open=left)
            self._clicked = True
        except ConfigError as error:
            form.complain(str(error))

    def _reply(self, agent: Player, values: Mapping[str, Any], **notes: Any) -> None:
        """Send an answer, with what the tape keeps besides; raise ConfigError if it is wrong."""
        asked = agent.question
        notes["advice_asked"] = self._advised.get(agent.name) == self.simulation.turn_number

        def send() -> None:
            shown = self._in_rates(asked) if asked else None
            check_answer(shown, values, name=asked.agent if asked else agent.name)
            assert asked is not None
            reply = {**values, **{it: note for it, note in notes.items() if note}}
            if shown is not asked:
                rate, rates = reply.pop("rate"), rates_of(self.simulation)
                reply |= rates[min(rates, key=lambda it: abs(it - rate))]
            agent.person.answer(asked, reply)

        self.forms[agent.name].send(asked, send)

    def _refresh_soon(self) -> None:
        self._in_order(self.refresh)

    def _in_order(self, action: Callable[..., object], *args: object) -> None:
        """Call something on the seat's own loop, since what other threads show may arrive late.

        It is called directly where this is that loop, or where that loop is blocked by a cell that
        waits for the turn.
        """
        # A blocked loop would take the call only after the turn that waits for it.
        if self._elsewhere or threading.get_ident() == self._thread:
            action(*args)
        else:
            self.worker.call(action, *args)

    @property
    def _elsewhere(self) -> bool:
        """Whether another thread's loop plays the turn, as that of ``run()`` in a cell does."""
        here = self._thread
        return here is not None and any(asked.thread != here for asked in self._questions())

    # --- from code ----------------------------------------------------------------------------

    async def asked(self, agent: str | None = None) -> OpenQuestion:
        """Wait until somebody is asked, and return the question.

        Args:
            agent: who; the person whose form is shown if not given.

        Raises:
            ConfigError: the turn that was started here ended without a question.
        """
        person = self.named(agent)
        # One person may answer for several players.
        its = person.person.asked(lambda question: question is person.question)
        asked = asyncio.ensure_future(its)
        # The turn may also end without a question: answered from the tape, stopped or failed.
        ended = asyncio.ensure_future(self.idle() if self._playing() else asyncio.Event().wait())
        try:
            await asyncio.wait((asked, ended), return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                return asked.result()
        finally:
            asked.cancel()
            ended.cancel()
        self._raise_failure()
        raise ConfigError(
            f"the turn ended and {person.name} was not asked: it was stopped, or the answer came "
            "from the tape"
        )

    def answer(
        self, action: str | None = None, /, *, agent: str | None = None, **values: Any
    ) -> None:
        """Fill in a form and send it.

        Args:
            action: one policy action, in words; only in an economic run.
            values: the fields of the reply, such as ``amount=5``, with ``reasoning`` and
                ``confidence``; in an economic run ``rate``, the new interest rate, percent per
                year, one of those on offer, where the form has it.
            agent: who; the person whose form is shown if not given.

        Raises:
            ConfigError: no question waits, or a field is wrong; nothing was sent then.
        """
        person = self.named(agent)
        if action is not None:
            values["action"] = action
        self.forms[person.name].fill(**values)
        self._reply(person, values)

    async def take_turn(
        self, action: str | None = None, /, *, agent: str | None = None, **values: Any
    ) -> None:
        """Start a turn if none is under way, wait for the question, answer, wait for the end.

        Where others are waited for too, let all do so at once, with ``asyncio.gather``. Arguments
        as for ``answer``.

        Raises:
            ConfigError: a field is wrong; the question waits on.
            LabError: the turn failed; the run is at its last whole turn.
        """
        self._begin_turn()
        await self.asked(agent)
        self.answer(action, agent=agent, **values)
        await self.idle()
        self._raise_failure()

    async def idle(self) -> None:
        """Wait until the turn, or whatever else a seat of this run is at, has ended."""
        for seat in self._fellows():
            await seat.sent()
            await seat.worker.idle()

    async def sent(self) -> None:
        """Wait until the forms whose button was clicked are sent."""
        for form in self.forms.values():
            await form.sender.idle()

    # --- the score ----------------------------------------------------------------------------

    def leaderboard(self) -> Leaderboard:
        """Return the score: the people compared with the Taylor rule and the model."""
        run: Any = self.simulation  # of another kind it raises
        return leaderboard(run, model=self.model, loss=self.loss, after=self.after)

    async def _show_score(self) -> None:
        self.say("Playing the same quarters with others in your seat.")
        # In a thread, since it plays whole runs, which would hold up the loop.
        self._board = await asyncio.to_thread(self.leaderboard)
        self.score.value = str(self._score_html(self._board))
        self.keep()

    def _score_html(self, board: Leaderboard) -> Markup:
        asked = advice_asked(self.simulation)
        times = "once" if asked == 1 else f"{asked} times"
        counted = f" The rule was asked {times}." if asked else ""
        return _headline(board.verdict) + styled(counted, tag="p") + board.html

    # --- the static view ----------------------------------------------------------------------

    def static_text(self) -> str:
        """Return who sits here, where the run is, and the latest answers."""
        verdict = [self._board.verdict] if self._board else []
        lines = [
            title(self.simulation, self.agents),
            *verdict,
            *answers_text(latest_answers(self.simulation, self.agents.values())),
        ]
        return visible("\n".join(lines))

    def static_html(self) -> Markup:
        """Return the same as a heading and a table."""
        heading = styled(styled(title(self.simulation, self.agents), tag="strong"), tag="p")
        answers = answers_html(latest_answers(self.simulation, self.agents.values()))
        if self._board is None:
            return heading + answers
        return heading + self._score_html(self._board) + figure_html(self._board.figure) + answers
