"""A seat at the table, where a person answers in a model's place, and the score of such runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload
from weakref import WeakKeyDictionary, WeakSet

import ipywidgets as w
from markupsafe import Markup

from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.html import badge, details, flow, join, pre, safe, styled, table, visible
from llmsim_lab._util.text import clip, number
from llmsim_lab._util.waiting import run_sync
from llmsim_lab.agents._human import HumanAgent
from llmsim_lab.economy import QuadraticLoss, history
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab._fields import AnswerForm
from llmsim_lab.lab._lab import RateChart
from llmsim_lab.lab._picture import figure_html
from llmsim_lab.lab._widget import LabWidget, block, button, flex, noted, row, sideways
from llmsim_lab.lab.figures import rate_figure
from llmsim_lab.llm import LLMClient, Person, Tape
from llmsim_lab.llm._human import OpenQuestion, checked_answer, same_choice
from llmsim_lab.models import SimulationState
from llmsim_lab.run import Run
from llmsim_lab.run._turn import answer_in_words, decided, reply_of
from llmsim_lab.simulation import Simulation, SimulationConfig
from llmsim_lab.simulation._counterfactual import people_in, rule_for
from llmsim_lab.simulation._headlines import headlines
from llmsim_lab.simulation._scores import Losses, advice_asked, compared, of_class
from llmsim_lab.simulation._simulation import EconomicTurn

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


def _optional(agent: HumanAgent) -> tuple[str, ...]:
    """Return what an advisor may leave empty: a rate says what to do, words alone say it too."""
    return ("action", "reasoning", "confidence")[0 if agent.names_rate else 1 :]


def _policy_words(rate: float | None, here: float) -> str:
    """Return a new rate as an action in words; empty without one."""
    if not isinstance(rate, int | float):
        return ""
    verb = "Hold" if same_choice(rate, here) else "Raise" if rate > here else "Lower"
    return f"{verb} the rate {'at' if verb == 'Hold' else 'to'} {number(float(rate))} %"


def title(simulation: Run, agents: Mapping[str, HumanAgent | Player]) -> str:
    """Return who sits at a seat, where the run is, and whether it waits for them."""
    where = rate = ""
    if isinstance(simulation, Simulation):
        state = simulation.state
        where = f" ({state.period})" if state.period else ""
        rate = f", rate {state.global_state.interest_rate:.2f}%"
    asked = [name for name, agent in agents.items() if agent.question is not None]
    waits = f", waits for {', '.join(asked)}" if asked else ""
    names = clip(", ".join(agents), 200)
    return f"Seat of {names}: turn {simulation.turn_number}{where}{rate}{waits}"


def state_html(name: str, states: Sequence[SimulationState], *, target: float) -> Markup:
    """Return the quarter's headlines and its indicators.

    Args:
        name: whose seat it is.
        states: all so far, oldest first.
        target: of inflation, percent.
    """
    state, before = states[-1], states[-2] if len(states) > 1 else None
    where = f"{state.period}, turn {state.turn}" if state.period else f"turn {state.turn}"
    first, *more = headlines([each.global_state for each in states], target=target)
    tiles = []
    for label, field, unit in _INDICATORS:
        now = getattr(state.global_state, field)
        by = round(now - getattr(before.global_state, field), 2) if before else 0
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


def latest_answers(simulation: Run, names: Collection[str]) -> list[dict[str, Any]]:
    """Return the answers of the latest turns, by column; those of all people without names."""
    rows = []
    for turn in simulation.turns[-_LATEST:]:
        for made in decided(turn):
            by_person = made.call is not None and made.call.request.model == "human"
            if not by_person or (names and made.agent not in names):
                continue
            said, after = {"answer": answer_in_words(reply_of(made.call))}, {}
            if isinstance(turn, EconomicTurn):
                action = next(one for one in turn.actions if one.agent_name == made.agent)
                points, named = action.rate_change_bp, action.proposed_rate
                rate = "" if named is None else f"{number(named)} %"
                change = rate if points is None else f"{points:+d} bp"
                said = {"action": action.action_string, "asks for": change}
                after = {"rate": f"{turn.state.global_state.interest_rate:.2f} %"}
            reasons = {
                "reasoning": made.reasoning,
                "confidence": "" if made.confidence is None else f"{made.confidence:g}",
                "status": made.status,
            }
            rows.append({"turn": turn.number, "who": made.agent, **said, **reasons, **after})
    return rows


def answers_text(answers: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return answers, a line each."""
    lines = []
    for item in answers:
        words = clip(item["action"] if "action" in item else item["answer"], 100)
        rate = f"; rate {item['rate'].replace(' ', '')}" if "rate" in item else ""
        lines.append(f"turn {item['turn']}: {item['who']} ({item['status']}): {words}{rate}")
    return lines or ["no answer yet"]


def answers_html(answers: Sequence[Mapping[str, Any]]) -> Markup:
    """Return answers as a table."""
    if not answers:
        return Markup("<p>No answer yet.</p>")
    as_said = partial(styled, dir="auto")
    shown = {"status": badge} | dict.fromkeys(("action", "answer", "reasoning"), as_said)
    rows = [[shown.get(name, safe)(cell) for name, cell in item.items()] for item in answers]
    return table(list(answers[0]), rows, caption=f"The answers of the latest {_LATEST} turns")


_OTHERS = "everybody else"


@dataclass(frozen=True, eq=False)
class Player:
    """A person among the players of a world of one's own.

    Attributes:
        name: in the run; or who answers for all that nobody else answers for.
        person: asks, and waits for the answers.
        not_for: players of the same person who have a seat of their own.
    """

    name: str
    person: Person
    not_for: frozenset[str] = frozenset()

    @property
    def question(self) -> OpenQuestion | None:
        """What the person is asked just now, if anything."""
        for question in self.person.questions:
            others = self.name == _OTHERS and question.agent not in self.not_for
            if others or question.agent == self.name:
                return question
        return None

    def expected(self, state: object) -> None:
        """Return None: what a world asks is known when it asks."""

    def answer(self, **values: Any) -> None:
        """Answer the question that is waiting; from any thread.

        Args:
            values: the fields of the reply.

        Raises:
            ConfigError: no question waits, or a field is wrong; nothing was sent then.
        """
        question = self.question
        checked_answer(
            self.person, question, values, name=question.agent if question else self.name
        )


def chosen_people(simulation: Run, agent: str | None) -> list[HumanAgent | Player]:
    """Return the people of a run, or one of them.

    Raises:
        ConfigError: there is nobody, or nobody of that name.
    """
    if not isinstance(simulation, Run):
        raise ConfigError(
            f"{type(simulation).__name__} is not a simulation; pass one, as in "
            "HumanSeat(Simulation(config)), or a recorded one: HumanSeat(load('x.tape'))"
        )
    people: Sequence[HumanAgent | Player]
    if isinstance(simulation, Simulation):
        people = people_in(simulation)
        way = (
            'make a nation kind: human, as in SimulationConfig(nations=[{"name": "Aland", "kind": '
            '"human"}])'
        )
    else:
        named = frozenset(simulation.players)
        people = [
            Player(_OTHERS, who.backend, named) if name == "*" else Player(name, who.backend)
            for name, who in simulation.players.items()
            if isinstance(who, LLMClient) and isinstance(who.backend, Person)
        ]
        way = f'name one: {type(simulation).__name__}(players={{"Bob": Person()}})'
    if not people:
        raise ConfigError(f"{simulation!r:.120} has no people in it; {way}")
    chosen = [person for person in people if agent in (None, person.name)]
    if not chosen:
        raise ConfigError(
            f"agent={agent!r} is not a person in this run; the people are "
            f"{', '.join(person.name for person in people)}"
        )
    return chosen


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

    An advisor of a nation plays a turn with one click, since the form is known before the question;
    what is left empty of it the seat fills in, and the tape says which fields. In a world of one's
    own Step asks first. The turn can be started by another widget or by ``simulation.step()`` in a
    cell, too; the seat asks whenever the run waits for one of its people. A form keeps what is
    written in it until the answer was taken. Where several people share a notebook, each may have a
    seat of their own, or all use one and choose whose form is shown.

    Args:
        simulation: an economic run with nations of kind ``human``; or one of a world of one's own
            with people among its players: ``PublicGoods(players={"Bob": Person()})``.
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
        config = SimulationConfig(
            name="game",
            seed=seed,
            turns=16,
            start="1973Q1",
            nations=[{"name": name, "kind": "human"}],
            validator={"kind": "always_valid"},
            moves_bp=None,
        )
        return cls(Simulation(config, tape=tape), model=model)

    def _lay_out(self, agents: Sequence[HumanAgent | Player]) -> None:
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
        economic = isinstance(self.simulation, Simulation)
        self.forms = {
            agent.name: AnswerForm(
                _optional(agent) if isinstance(agent, HumanAgent) else (),
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
        if not isinstance(self.simulation, Simulation):
            return w.VBox()
        *others, rate = [field for _, field, _ in _INDICATORS]
        return RateChart(
            {clip(", ".join(self.agents), 30): self.simulation}, columns=[rate, *others]
        )

    @property
    def shown(self) -> HumanAgent | Player:
        """The person whose form is shown."""
        return self.named(None)

    def named(self, agent: str | None) -> HumanAgent | Player:
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
            if isinstance(shown, HumanAgent):
                states = [turn.state for turn in self.simulation.turns]
                target = shown.profile.inflation_target
                # What a player of a world may know is in the prompt, and nowhere else.
                self.facts.value = str(state_html(shown.name, states, target=target))
                if self._advised.get(shown.name) != self.simulation.turn_number:
                    self.advice.value = ""
                self.form_box.layout.display = "none" if self._over else ""
            self.form_box.children = (self.forms[shown.name],)
            self.step_button.disabled = self.worker.busy or not self._may_begin
            self.say(self._news())
        # Not while the view is held, since an answer is shown at other seats too.
        for name in [name for name in self._queued if self.agents[name].question is not None]:
            self._queued.discard(name)
            self._submit(name)

    def _refresh_form(self, agent: HumanAgent | Player) -> None:
        form, asked = self.forms[agent.name], agent.question
        expected = agent.expected(self.simulation.state)
        known = asked or expected
        if (asks := expected or asked) is not None:
            fields = dict(asks.fields)
            if expected and "proposed_rate" in fields:
                fields = {"rate": fields.pop("proposed_rate")} | fields  # first, and called so
            form.show(fields)
        form.ask(asked, turn=self.simulation.turn_number)
        # To begin with, the rate stays as it is: the form says so, and the button too.
        if expected and "rate" in form.fields and form.values["rate"] is None:
            form.fill(rate=round(self.simulation.state.global_state.interest_rate, 2))
        may_begin = expected is not None and self._may_begin and not self._over
        form.answer_button.disabled = asked is None and not may_begin
        if agent is self.shown:
            self.prompt.value = (
                str(prompt_html(known, folded=expected is not None)) if known else ""
            )

    @property
    def _may_begin(self) -> bool:
        return not self.waiting_for and not self._playing()

    @property
    def _over(self) -> bool:
        planned: int = self.simulation.config.turns
        return self.simulation.turn_number >= planned > 0

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
            score = " Score shows how you did." if isinstance(self.simulation, Simulation) else ""
            return f"{played}.{score}"
        way = "Step starts" if isinstance(self.shown, Player) else "Your answer plays"
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
                if seat._over and isinstance(seat.simulation, Simulation):
                    seat.start(seat._show_score)
                seat.keep()

    def _check(self, name: str) -> None:
        """Show what would be wrong with the answer so far, while it is being written."""
        agent, form = self.agents[name], self.forms[name]
        notes, values = form.faults, form.values
        if isinstance(agent, HumanAgent):
            here = self.simulation.state.global_state.interest_rate
            form.answer_button.description = _policy_words(values.get("rate"), here) or "Answer"
            if values["action"]:
                notes.append(agent.complaint_about(values["action"]))
        words = ". ".join(filter(None, notes))
        form.hint.value = noted(words, like="repaired", role="status") if words else ""

    def _advise(self) -> None:
        """Show what the rule would do about this quarter, and remember that it was asked."""
        agent = self.shown
        if isinstance(agent, HumanAgent):
            self._advised[agent.name] = self.simulation.turn_number
            action = run_sync(rule_for(agent).decide_action(self.simulation.state))
            why = action.policy_decision.reasoning if action.policy_decision else ""
            said = f"The Taylor rule: {action.action_string}. {why}"
            self.advice.value = noted(said, like="ok", role="status")

    def _submit(self, name: str) -> None:
        agent, form = self.agents[name], self.forms[name]
        if agent.question is None and isinstance(agent, HumanAgent) and self._may_begin:
            self._queued.add(name)
            self._begin_turn()
            return
        try:
            form.send(agent.question, lambda: agent.answer(**self._completed(agent, form)))
            self._clicked = True
        except ConfigError as error:
            form.complain(str(error))

    def _completed(self, agent: HumanAgent | Player, form: AnswerForm) -> dict[str, Any]:
        """Return what a form says, with what may be left empty filled in, and a note of that."""
        values = form.values
        if isinstance(agent, HumanAgent):
            here = self.simulation.state.global_state.interest_rate
            words = _policy_words(values.get("rate"), here)
            filler = {"action": words, "reasoning": "No reason given.", "confidence": 0.5}
            left = [name for name in form.optional if values[name] in ("", None)]
            values |= {name: filler[name] for name in left}
            values["notes"] = self._notes(agent.name, left_open=left)
        return values

    def _notes(self, name: str, **notes: Any) -> dict[str, Any]:
        advised = self._advised.get(name) == self.simulation.turn_number
        return {key: value for key, value in {"advice_asked": advised, **notes}.items() if value}

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
                ``confidence``; in an economic run ``rate`` besides, the new interest rate, percent
                per year, one of those on offer, where the person names rates.
            agent: who; the person whose form is shown if not given.

        Raises:
            ConfigError: no question waits, or a field is wrong; nothing was sent then.
        """
        person = self.named(agent)
        form = self.forms[person.name]
        if action is not None:
            values["action"] = action
        form.fill(**values)
        if isinstance(person, HumanAgent):
            values["notes"] = self._notes(person.name)
        form.send(person.question, lambda: person.answer(**values))

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

    def _latest(self) -> list[dict[str, Any]]:
        """Return the latest answers here; those of all people where one answers for others."""
        open_ended = any(isinstance(it, Player) and it.not_for for it in self.agents.values())
        return latest_answers(self.simulation, [] if open_ended else list(self.agents))

    def static_text(self) -> str:
        """Return who sits here, where the run is, and the latest answers."""
        verdict = [self._board.verdict] if self._board else []
        lines = [title(self.simulation, self.agents), *verdict, *answers_text(self._latest())]
        return visible("\n".join(lines))

    def static_html(self) -> Markup:
        """Return the same as a heading and a table."""
        heading = styled(styled(title(self.simulation, self.agents), tag="strong"), tag="p")
        answers = answers_html(self._latest())
        if self._board is None:
            return heading + answers
        return heading + self._score_html(self._board) + figure_html(self._board.figure) + answers
