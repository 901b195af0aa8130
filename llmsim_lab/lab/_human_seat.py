"""A seat at the table: a person sees what a model would see, and answers in its place."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import ipywidgets as w
from markupsafe import Markup

from llmsim_lab._util.checks import plain_text, real_number
from llmsim_lab._util.html import STATUS_COLOURS, badge, details, join, pairs, pre, safe, table
from llmsim_lab._util.text import clip, number
from llmsim_lab._util.waiting import background_loop
from llmsim_lab.agents._human import HumanAgent
from llmsim_lab.economy import QuadraticLoss
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab._run_reading import decisions_of
from llmsim_lab.lab._scores import Leaderboard, leaderboard
from llmsim_lab.lab._widget import LabWidget, button, row, settled
from llmsim_lab.llm import LLMClient, Person, Tape
from llmsim_lab.llm._human import OpenQuestion, same_choice, schema_words
from llmsim_lab.models import PolicyDecision, SimulationState
from llmsim_lab.run import Run
from llmsim_lab.run._turn import RunTurn
from llmsim_lab.simulation import Simulation
from llmsim_lab.simulation._counterfactual import people_in
from llmsim_lab.simulation._simulation import Turn
from llmsim_lab.types import reply_schema

_OPEN = float("-inf")  # None as an option's value would show as an empty line
_CHOOSE = ("choose", _OPEN)
_CONFIDENCE = reply_schema(PolicyDecision)["properties"]["confidence"]["enum"]
_WIDE = {"description_width": "7em"}


def _text(label: str, *, hint: str, rows: int) -> w.Textarea:
    return w.Textarea(
        description=label,
        placeholder=hint,
        rows=rows,
        style=_WIDE,
        layout=w.Layout(width="auto", max_width="48em"),
    )


def _choice(label: str) -> w.Dropdown:
    return w.Dropdown(
        options=[_CHOOSE], description=label, style=_WIDE, layout=w.Layout(width="20em")
    )


class AnswerForm(w.VBox):
    """One person's answer, as far as it is written; nothing is preselected.

    Its fields are those of the latest question, unless it is made with some.

    Args:
        inputs: by name, where they are known before anything is asked.

    Attributes:
        inputs: what the person fills in, by the names that the answer has for it.
        answer_button: sends it.
        hint: what would be wrong with it, shown while it is being written.
        complaint: what was wrong with it when it was sent.
    """

    def __init__(self, inputs: Mapping[str, w.ValueWidget] | None = None) -> None:
        self.inputs = dict(inputs or {})
        self.answer_button = button(
            "Answer", tooltip="Send this answer; the turn continues", button_style="primary"
        )
        self.hint = w.HTML()
        self.complaint = w.HTML()
        self._sent: tuple[int, Mapping[str, Any]] | None = None
        self._fixed = bool(inputs)
        self._schemas: Mapping[str, Any] = {}
        self._question: OpenQuestion | None = None
        # Set by the seat, which knows the question; a form by itself tells nobody.
        self._on_change: Callable[[], object] = lambda: None
        super().__init__(self._parts())
        self._observe()

    def _parts(self) -> list[w.Widget]:
        return [*self.inputs.values(), self.hint, self.complaint, self.answer_button]

    def _observe(self) -> None:
        for field in self.inputs.values():
            # A bound method, so that observing a kept field a second time adds nothing.
            field.observe(self._on_input, names="value")

    def _on_input(self, _: object) -> None:
        self._on_change()

    def on_change(self, callback: Callable[[], object]) -> None:
        """Register a callback for whenever something is written or chosen."""
        self._on_change = callback

    @property
    def values(self) -> dict[str, Any]:
        """What is filled in, by name; None where nothing is chosen, or written for a number."""
        return {name: self._value(name, field) for name, field in self.inputs.items()}

    def _value(self, name: str, field: w.ValueWidget) -> Any:
        if isinstance(field, w.Dropdown):
            return _chosen(field)
        written = field.value.strip()
        if self._question is None or self._schemas.get(name, {}).get("type") in (None, "string"):
            return written
        return self._question.value(name, written) if written else None

    def fill(self, **values: Any) -> None:
        """Write an answer into the form, as a person would; a choice not on offer stays open.

        Raises:
            ConfigError: there is no such field; nothing was written then.
        """
        for name in values:
            if name not in self.inputs:
                raise ConfigError(
                    f"{name!r} is not asked for; the fields of the answer are "
                    f"{', '.join(self.inputs) or 'not known before the question'}"
                )
        for name, value in values.items():
            field = self.inputs[name]
            if isinstance(field, w.Dropdown):
                _choose(field, value)
            else:
                field.value = value if isinstance(value, str) else json.dumps(value)

    def ask(self, question: OpenQuestion | None, *, turn: int) -> None:
        """Show a question's fields; clear what was sent once its turn is played, keep what is new.

        Args:
            question: what waits for an answer; None while nothing does.
            turn: the latest turn that was played.
        """
        self.answer_button.disabled = question is None
        # Only now: an answer to a turn that failed is asked again and need not be written again.
        if self._sent is not None and turn >= self._sent[0]:
            if self.values == self._sent[1]:
                for field in self.inputs.values():
                    field.value = _OPEN if isinstance(field, w.Dropdown) else ""
                self.complain("")
            self._sent = None
        if question is None:
            return
        if not self._fixed:
            self._show_fields_of(question)
        if question.complaint:
            self.complain(f"{question.complaint} This is the second try, and the last.")

    def _show_fields_of(self, question: OpenQuestion) -> None:
        """Show a field for each value asked for; those that are the same keep what is in them."""
        self._question = question
        if question.fields != self._schemas:
            self.inputs = {
                name: self.inputs[name]
                if schema == self._schemas.get(name)
                else _input(name, schema)
                for name, schema in question.fields.items()
            }
            self._schemas = question.fields
            self._observe()
            self.children = tuple(self._parts())

    def send(self, question: OpenQuestion | None, answer: Callable[[], None]) -> None:
        """Send what stands in the form.

        What is sent is remembered first, since the next question may come before this returns.

        Args:
            question: what it answers.
            answer: does it.

        Raises:
            ConfigError: it was not sent.
        """
        self.complain("")
        self._sent = None if question is None else (question.turn, self.values)
        try:
            answer()
        except ConfigError:
            self._sent = None
            raise

    def complain(self, text: str) -> None:
        """Show what was wrong, in place, so that screen readers read it out; nothing if empty."""
        self.complaint.value = str(_marked("alert", STATUS_COLOURS["failed"], text)) if text else ""

    def suggest(self, text: str) -> None:
        """Show what would be wrong if it were sent like this; nothing if empty."""
        value = str(_marked("status", STATUS_COLOURS["repaired"], text)) if text else ""
        if self.hint.value != value:
            self.hint.value = value


class RateForm(AnswerForm):
    """The answer of a nation's advisor, whose fields are known before anything is asked.

    Args:
        names_rate: True if the person chooses the new rate, too.

    Attributes:
        action: one policy action, in words.
        rate: the new interest rate, one of those on offer.
        reasoning: why.
        confidence: 0 to 1.
    """

    def __init__(self, *, names_rate: bool) -> None:
        self.action = _text("Action", hint="one policy action, such as: raise the rate", rows=2)
        self.rate = _choice("New rate")
        self.reasoning = _text("Reasoning", hint="why, in a sentence or two", rows=3)
        self.confidence = _choice("Confidence")
        self.confidence.options = [_CHOOSE, *((f"{value:.2f}", value) for value in _CONFIDENCE)]
        rate = {"rate": self.rate} if names_rate else {}
        super().__init__(
            {
                "action": self.action,
                **rate,
                "reasoning": self.reasoning,
                "confidence": self.confidence,
            }
        )

    def fill(self, **values: Any) -> None:
        """Write an answer into the form, as a person would; a choice not on offer stays open.

        Raises:
            ConfigError: one of them is of the wrong type; nothing was written then.
        """
        for name in ("action", "reasoning"):
            plain_text(name, values.get(name))
        for name in ("confidence", "rate"):
            if values.get(name) is not None:
                real_number(name, values[name])
        super().fill(**{name: value for name, value in values.items() if name in self.inputs})

    def offer(self, rates: Sequence[float], *, now: float) -> None:
        """Offer these rates; a choice that is still among them stays.

        Args:
            rates: percent per year.
            now: the rate in force.
        """
        # The nearest, not the equal one, since rates on offer are rounded.
        same = min(rates, key=lambda rate: abs(rate - now))
        options = [
            (f"{number(rate)} %{' (as it is)' if rate == same else ''}", rate) for rate in rates
        ]
        # Setting the same options again would reset the choice.
        if list(self.rate.options) != [_CHOOSE, *options]:
            chosen = _chosen(self.rate)
            self.rate.options = [_CHOOSE, *options]
            _choose(self.rate, chosen)


def _input(name: str, schema: Mapping[str, Any]) -> w.ValueWidget:
    """Return what one field of a question is filled in with."""
    label = name.replace("_", " ").capitalize()
    choices = schema.get("enum") or ([True, False] if schema.get("type") == "boolean" else None)
    if choices is not None:
        field = _choice(label)
        field.options = [_CHOOSE, *((_option(choice), choice) for choice in choices)]
        return field
    hint = "; ".join(filter(None, (schema.get("description"), schema_words(schema))))
    if schema.get("type") in ("integer", "number"):
        return w.Text(
            description=label, placeholder=hint, style=_WIDE, layout=w.Layout(width="28em")
        )
    return _text(label, hint=hint or "in your own words", rows=3)


def _option(choice: Any) -> str:
    if isinstance(choice, bool):
        return "yes" if choice else "no"
    return number(choice) if isinstance(choice, int | float) else str(choice)


def _choose(choice: w.Dropdown, value: Any) -> None:
    """Choose the offered value nearest to the wanted one, up to rounding; else leave it open."""
    offered = [option for _, option in choice.options if option != _OPEN]
    close = [option for option in offered if value is not None and same_choice(option, value)]
    choice.value = close[0] if close else _OPEN


def _chosen(choice: w.Dropdown) -> Any:
    """Return what is chosen, or None while nothing is."""
    return None if choice.value == _OPEN else choice.value


def _marked(role: str, colour: str, text: str) -> Markup:
    return Markup(
        '<div role="{}" style="border-left:4px solid {};padding:4px 8px">{}</div>'
    ).format(role, colour, safe(text, limit=2_000))


_LONGEST_WAIT_S = 2.0
_PATIENCE_S = 600.0

_LATEST = 8
"""Turns whose answers are shown."""

_INDICATORS = (
    ("GDP growth", "gdp_growth", "% at an annual rate"),
    ("Inflation", "inflation", "% over four quarters"),
    ("Unemployment", "unemployment", "%"),
    ("Interest rate", "interest_rate", "% per year"),
)
"""What the shipped prompt names, and no more: a person knows what a model knows."""

_ROLES = {"system": "Who you are", "user": "What you are asked", "assistant": "Your first answer"}


_CELL_WAITS = (
    " A cell waits for this turn, and clicks may not be heard until it ends: interrupt it, and "
    "start the turn with Step."
)


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


def state_html(name: str, state: SimulationState) -> Markup:
    """Return the indicators as a table.

    Args:
        name: whose seat it is.
        state: what the person decides on.
    """
    economy = state.global_state
    where = f"{state.period}, turn {state.turn}" if state.period else f"turn {state.turn}"
    rows = [
        (label, f"{number(getattr(economy, field))} {unit}") for label, field, unit in _INDICATORS
    ]
    return pairs(rows, caption=f"{name}: the economy in {where}")


def prompt_html(question: OpenQuestion, *, open: bool = False) -> Markup:  # noqa: A002
    """Return what a model would be sent, message by message, folded unless ``open``."""
    parts = [
        Markup("<p><strong>{}</strong></p>{}").format(
            safe(f"{_ROLES.get(message.role, message.role)} ({message.role} message)"),
            pre(message.content),
        )
        for message in question.request.messages
    ]
    return details("The prompt: what a model in your seat would be sent", join(parts), open=open)


def _policy_answers(turn: Turn, names: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield the answers of an economic turn, by column."""
    for action in turn.actions:
        if action.agent_name in names:
            decision, asked = action.policy_decision, ""
            if action.rate_change_bp is not None:
                asked = f"{action.rate_change_bp:+d} bp"
            elif action.proposed_rate is not None:
                asked = f"{number(action.proposed_rate)} %"
            yield {
                "turn": turn.number,
                "who": action.agent_name,
                "action": action.action_string,
                "asks for": asked,
                "reasoning": decision.reasoning if decision else "",
                "confidence": f"{decision.confidence:g}" if decision else "",
                "status": action.status,
                "rate": f"{turn.state.global_state.interest_rate:.2f} %",
            }


def _players_answers(turn: RunTurn, names: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield the answers of people in a turn of a world of one's own, by column."""
    for who in decisions_of(turn)[1]:
        chains = [chain for its in who.chains.values() for chain in its]
        for words, chain in zip(who.proposed, chains, strict=True):
            by_person = chain.call is not None and chain.call.request.model == "human"
            if by_person and (who.agent in names or not names):
                yield {
                    "turn": turn.number,
                    "who": who.agent,
                    "answer": words,
                    "reasoning": chain.reasoning,
                    "confidence": "" if chain.confidence is None else f"{chain.confidence:g}",
                    "status": chain.status,
                }


def latest_answers(simulation: Run, names: Collection[str]) -> list[dict[str, Any]]:
    """Return the answers of the latest turns, by column; those of all people without names."""
    answers_of = _policy_answers if isinstance(simulation, Simulation) else _players_answers
    return [row for turn in simulation.turns[-_LATEST:] for row in answers_of(turn, names)]


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
    rows = [[*{**item, "status": badge(item["status"])}.values()] for item in answers]
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

    def answer(self, **values: Any) -> None:
        """Answer the question that is waiting; from any thread.

        Args:
            values: the fields of the reply.

        Raises:
            ConfigError: no question waits, or a field is wrong; nothing was sent then.
        """
        question = self.question
        if question is None:
            raise ConfigError(f"{self.name} is asked nothing just now; start the turn first")
        if wrong := question.faults(values):
            faults = "; ".join(f"{name} {fault}" for name, fault in wrong.items())
            raise ConfigError(f"the answer of {question.agent} was not sent: {faults}")
        self.person.answer(question, values)


def people_of(simulation: Run) -> Sequence[HumanAgent | Player]:
    """Return the people who are asked in a run of any kind."""
    if isinstance(simulation, Simulation):
        return people_in(simulation)
    named = frozenset(simulation.players)
    return [
        Player(_OTHERS, who.backend, named) if name == "*" else Player(name, who.backend)
        for name, who in simulation.players.items()
        if isinstance(who, LLMClient) and isinstance(who.backend, Person)
    ]


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
    people = people_of(simulation)
    if not people:
        way = (
            'make a nation kind: human, as in SimulationConfig(nations=[{"name": "Aland", "kind": '
            '"human"}])'
            if isinstance(simulation, Simulation)
            else f'name one: {type(simulation).__name__}(players={{"Bob": Person()}})'
        )
        raise ConfigError(f"{simulation!r:.120} has no people in it; {way}")
    chosen = [person for person in people if agent in (None, person.name)]
    if not chosen:
        raise ConfigError(
            f"agent={agent!r} is not a person in this run; the people are "
            f"{', '.join(person.name for person in people)}"
        )
    return chosen


_seats: WeakKeyDictionary[Run, WeakSet[HumanSeat]] = WeakKeyDictionary()
"""The seats at each run, so that one seat's turn shows at the others; weak, so that they can go."""


class HumanSeat(LabWidget):
    """Lets one or several people decide in a run: what they see, their form, who is waited for.

    The turn can be started here, by another widget or by ``simulation.step()`` in a cell; the seat
    asks whenever the run waits for one of its people. A form keeps what is written in it until the
    answer was taken. Where several people share a notebook, each may have a seat of their own, or
    all use one and choose whose form is shown.

    Args:
        simulation: an economic run with nations of kind ``human``; or one of a world of one's own
            with people among its players: ``PublicGoods(players={"Bob": Person()})``.
        agent: whose seat it is; the seat of all people in the run if not given.
        model: for the score: a client, or a recorded run of a model's; see ``leaderboard``.
        loss: for the score: how runs are judged.

    Attributes:
        simulation: the run.
        agents: the people who answer here, by name.
        forms: their forms, by name.
        seat_box: whose form is shown.
        step_button: starts a turn.
        stop_button: stops the turn that was started here; what was answered in it is lost, unless
            the run has a tape.
        score_button: shows the leaderboard.
        facts: the state, as far as a model would be shown it.
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

    _stop_listening: Sequence[Callable[[], None]] = ()

    def __init__(
        self,
        simulation: Run,
        *,
        agent: str | None = None,
        model: LLMClient | Simulation | Tape | str | Path | None = None,
        loss: QuadraticLoss | None = None,
    ) -> None:
        agents = chosen_people(simulation, agent)
        super().__init__()
        self._following: asyncio.Task[None] | None = None
        self.simulation = simulation
        self._lay_out(agents)
        self.model = model
        self.loss = loss
        # Questions come and go on any thread, so two may call refresh at once.
        self._refreshing = threading.RLock()
        # A question asked on another thread than this is asked by a loop that a cell has started.
        self._thread: int | None = None
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            self._thread = threading.get_ident()
        self._stepping = False
        self._failure: Exception | None = None
        self._sending_lock = threading.Lock()
        self._sending: dict[str, Future[None]] = {}
        self._wire()
        _seats.setdefault(simulation, WeakSet()).add(self)
        self._set_busy(False)
        self.refresh()

    def _lay_out(self, agents: Sequence[HumanAgent | Player]) -> None:
        self.agents = {agent.name: agent for agent in agents}
        self.forms = {
            agent.name: RateForm(names_rate=agent.names_rate)
            if isinstance(agent, HumanAgent)
            else AnswerForm()
            for agent in agents
        }
        names = list(self.agents)
        self.seat_box = w.Dropdown(
            options=names,
            value=names[0],
            description="Seat",
            layout=w.Layout(display="" if len(names) > 1 else "none"),
        )
        self.step_button = button("Step", tooltip="Start a turn; it waits for all answers")
        self.stop_button = button("Stop", tooltip="Stop the turn that was started here")
        self.score_button = button("Score", tooltip="Compare with the Taylor rule and the model")
        self.facts = w.HTML()
        self.prompt = w.HTML()
        self.form_box = w.VBox()
        self.score = w.HTML()
        if not any(isinstance(agent, HumanAgent) for agent in agents):
            self.score_button.layout.display = "none"
        self.controls = (self.step_button, self.score_button)
        self.stoppers = (self.stop_button,)
        self.children = (
            row(self.seat_box, self.step_button, self.stop_button, self.score_button),
            self.status,
            self.error,
            self.retry,
            self.facts,
            self.prompt,
            self.form_box,
            self.score,
        )

    def _wire(self) -> None:
        self.step_button.on_click(lambda _: self._begin_turn())
        self.stop_button.on_click(lambda _: self.worker.stop())
        self.score_button.on_click(lambda _: self.start(self._show_score))
        self.seat_box.observe(lambda _: self._in_order(self.refresh), names="value")
        for name, form in self.forms.items():
            form.answer_button.on_click(lambda _, name=name: self._send_soon(name))
            form.on_change(partial(self._check, name))
        people = {id(it.person): it.person for it in people_of(self.simulation)}
        self._stop_listening = [person.listen(self._on_question) for person in people.values()]

    @property
    def shown(self) -> HumanAgent | Player:
        """The person whose form is shown."""
        return self.agents[self.seat_box.value]

    def named(self, agent: str | None) -> HumanAgent | Player:
        """Return a person who answers here; the one shown if no name is given.

        Raises:
            ConfigError: nobody of that name does.
        """
        if agent is None:
            return self.shown
        if agent not in self.agents:
            raise ConfigError(
                f"agent={agent!r} has no seat here; those who have: {', '.join(self.agents)}"
            )
        return self.agents[agent]

    # --- what is shown ------------------------------------------------------------------------

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """The people whose answers the turn waits for, whichever seat they have."""
        asked = ((it.name, it.question) for it in people_of(self.simulation))
        return tuple(question.agent or name for name, question in asked if question is not None)

    def refresh(self) -> None:
        """Show the run as it is now; called whenever a question comes or goes, from any thread."""
        with self._refreshing:
            agent, form = self.shown, self.forms[self.shown.name]
            state = self.simulation.state
            question, own = agent.question, isinstance(agent, Player)
            # What a player of a world may know is in the prompt, and nowhere else.
            self.facts.value = "" if own else str(state_html(agent.name, state))
            asked = "" if question is None else prompt_html(question, open=own)
            self.prompt.value = str(asked)
            for name, each in self.forms.items():
                who = self.agents[name]
                if isinstance(each, RateForm) and isinstance(who, HumanAgent):
                    rate = state.global_state.interest_rate
                    each.offer(who.rates_on_offer(rate), now=rate)
                each.ask(self.agents[name].question, turn=self.simulation.turn_number)
            if self.form_box.children != (form,):
                self.form_box.children = (form,)
            self.step_button.disabled = (
                self.worker.busy or bool(self.waiting_for) or self._playing()
            )
            self.say(self._news())

    def _news(self) -> str:
        """Return one line on what is happening, and what to do about it."""
        turn, planned = self.simulation.turn_number, self.simulation.config.turns
        if waiting := self.waiting_for:
            mine = "" if self.shown.question is None else "It is your turn to answer. "
            hint = _CELL_WAITS if self._elsewhere else ""
            return f"{mine}Turn {turn + 1} waits for: {', '.join(waiting)}.{hint}"
        if self._playing():
            return f"Turn {turn + 1} is being played."
        if turn >= planned > 0:
            played = "The one turn is played" if planned == 1 else f"All {planned} turns are played"
            score = " Score shows how you did." if isinstance(self.simulation, Simulation) else ""
            return f"{played}.{score}"
        return f"{turn} of {planned} turns are played. Step starts turn {turn + 1}."

    def _playing(self) -> bool:
        return any(seat.worker.busy and seat._stepping for seat in self._fellows())

    def _fellows(self) -> list[HumanSeat]:
        return list(_seats.get(self.simulation, ()))

    # --- a turn -------------------------------------------------------------------------------

    def _begin_turn(self) -> None:
        if not self.waiting_for and not self._playing() and not self.worker.busy:
            # Set before the loop gets to it, so that a click at another seat starts no second turn.
            self._stepping = True
            self.start(self._step)

    async def _step(self) -> None:
        self._stepping, self._failure = True, None
        self.say(self._news())
        try:
            await self.simulation.step()
        except Exception as error:
            self._failure = error
            raise
        finally:
            self._stepping = False

    def _raise_failure(self) -> None:
        for seat in self._fellows():
            if seat._failure is not None:
                raise seat._failure

    def stopped(self) -> None:
        """Leave the forms as they are; the run is at its last whole turn."""

    def ended(self) -> None:
        """Show where the run is now, at every seat."""
        # The turn shows at every seat of the run, whichever started it.
        for seat in self._fellows():
            seat.worker.call(seat._stop_following)
            seat.refresh()

    def _check(self, name: str) -> None:
        """Show what would be wrong with the answer so far, while it is being written."""
        agent, form = self.agents[name], self.forms[name]
        written = {key: value for key, value in form.values.items() if value not in ("", None)}
        if isinstance(agent, HumanAgent):
            written = {key: written[key] for key in ("action", "reasoning") if key in written}
        faults = {} if agent.question is None else agent.question.faults(written)
        notes = [f"{key} {faults[key]}" for key in written if key in faults]
        if isinstance(agent, HumanAgent) and "action" in written:
            notes.append(agent.complaint_about(written["action"]))
        form.suggest(". ".join(filter(None, notes)))

    def _send_soon(self, name: str) -> None:
        """Send a form, once for however many clicks, when what was written has arrived."""

        async def send() -> None:
            await settled(*self.forms[name].inputs.values())
            self._in_order(self._submit, name)

        with self._sending_lock:
            before = self._sending.get(name)
            if before is None or before.done():
                # On the background loop, since the notebook's own may be blocked by a cell.
                self._sending[name] = asyncio.run_coroutine_threadsafe(send(), background_loop())

    def _submit(self, name: str) -> None:
        agent, form = self.agents[name], self.forms[name]
        try:
            form.send(agent.question, lambda: agent.answer(**form.values))
        except ConfigError as error:
            form.complain(str(error))

    def _on_question(self) -> None:
        """A question came or went, in whichever thread."""
        self._in_order(self.refresh)
        if not self.waiting_for:
            self.worker.call(self._follow, self.simulation.turn_number + 1)

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
        asked = [person.question for person in people_of(self.simulation)]
        return self._thread is not None and any(q and q.thread != self._thread for q in asked)

    def _follow(self, turn: int) -> None:
        """Look, on the loop, for the end of a turn that a cell or another widget plays."""
        self._stop_following()
        self._following = asyncio.get_running_loop().create_task(self._refresh_after(turn))

    def _stop_following(self) -> None:
        if self._following is not None:
            self._following.cancel()
            self._following = None

    async def _refresh_after(self, turn: int) -> None:
        wait_s = 0.05
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                # A turn that fails elsewhere is not announced, so look again, ever less often.
                while self.simulation.turn_number < turn and not self._playing():
                    await asyncio.sleep(wait_s)
                    wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
        self.refresh()

    # --- from code ----------------------------------------------------------------------------

    async def asked(self, agent: str | None = None) -> OpenQuestion:
        """Wait until somebody is asked, and return the question.

        Args:
            agent: who; the person whose form is shown if not given.

        Raises:
            ConfigError: the turn that was started here ended without a question.
        """
        person = self.named(agent)
        # The turn may also end without a question: answered from the tape, stopped or failed.
        asked = asyncio.ensure_future(person.person.asked())
        ended = asyncio.ensure_future(self.idle()) if self._playing() else None
        try:
            waited = [asked, ended] if ended else [asked]
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                return asked.result()
        finally:
            asked.cancel()
            if ended is not None:
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
        for sending in list(self._sending.values()):
            await asyncio.wrap_future(sending)

    # --- the score ----------------------------------------------------------------------------

    def leaderboard(self) -> Leaderboard:
        """Return the score: the people compared with the Taylor rule and the model."""
        if not isinstance(self.simulation, Simulation):
            raise ConfigError(
                f"{type(self.simulation).__name__} has no score to compare; a leaderboard is of "
                "economic runs"
            )
        return leaderboard(self.simulation, model=self.model, loss=self.loss)

    async def _show_score(self) -> None:
        self.say("Playing the same quarters with others in your seat.")
        # In a thread, since it plays whole runs, which would hold up the loop.
        board = await asyncio.to_thread(self.leaderboard)
        self.score.value = str(board.html)

    # --- the static view ----------------------------------------------------------------------

    def _answering(self) -> list[str]:
        """Return whose answers are shown; nobody's name, for all, where one answers for others."""
        open_ended = any(isinstance(it, Player) and it.not_for for it in self.agents.values())
        return [] if open_ended else list(self.agents)

    def static_text(self) -> str:
        """Return who sits here, where the run is, and the latest answers."""
        answers = latest_answers(self.simulation, self._answering())
        return "\n".join([title(self.simulation, self.agents), *answers_text(answers)])

    def static_html(self) -> Markup:
        """Return the same as a heading and a table."""
        heading = Markup("<p><strong>{}</strong></p>").format(
            safe(title(self.simulation, self.agents))
        )
        return heading + answers_html(latest_answers(self.simulation, self._answering()))

    def close(self) -> None:
        """Remove the seat and stop a turn started here; any other turn waits for another seat."""
        # Empty where __init__ raised, and there is nothing to stop.
        if self._stop_listening:
            self.worker.call(self._stop_following)
            _seats.get(self.simulation, WeakSet()).discard(self)
        for stop in self._stop_listening:
            stop()
        self._stop_listening = ()
        super().close()
