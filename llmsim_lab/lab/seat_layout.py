"""The parts of a seat and where they stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ipywidgets as w

from llmsim_lab.agents import HumanAgent
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab.answer_form import AnswerForm, RateForm
from llmsim_lab.lab.inputs import row
from llmsim_lab.lab.widget import LabWidget, button
from llmsim_lab.llm import LLMClient, OpenQuestion, Person
from llmsim_lab.runs import Run
from llmsim_lab.simulation import Simulation
from llmsim_lab.simulation._counterfactual import people_in

__all__ = ["Player", "SeatLayout", "chosen_people", "people_of"]

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
    not_for: frozenset[str] = field(default=frozenset())

    @property
    def question(self) -> OpenQuestion | None:
        """What the person is asked just now, if anything."""
        return next((it for it in self.person.questions if self._is_for_me(it.agent)), None)

    def _is_for_me(self, agent: str) -> bool:
        return agent not in self.not_for if self.name == _OTHERS else agent == self.name

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
            said = "; ".join(f"{name} {fault}" for name, fault in wrong.items())
            raise ConfigError(f"the answer of {question.agent} was not sent: {said}")
        self.person.answer(question, values)


def people_of(simulation: Run) -> Sequence[HumanAgent | Player]:
    """Return the people who are asked in a run of any kind."""
    if isinstance(simulation, Simulation):
        return people_in(simulation)
    seated = {
        name: who.backend
        for name, who in simulation.players.items()
        if isinstance(who, LLMClient) and isinstance(who.backend, Person)
    }
    named = frozenset(simulation.players)
    return [
        Player(_OTHERS, person, named) if name == "*" else Player(name, person)
        for name, person in seated.items()
    ]


class SeatLayout(LabWidget):
    """What a seat is made of; ``HumanSeat`` lets it do something.

    Args:
        agents: who answers here.

    Attributes:
        agents: the people who answer here, by name.
        forms: their forms, by name.
        seat_box: whose form is shown.
        step_button: starts a turn.
        stop_button: stops the turn that was started here.
        score_button: shows the leaderboard.
        facts: the state, as far as a model would be shown it.
        prompt: what a model would be sent.
        form_box: the form shown.
        score: the leaderboard.
    """

    def __init__(self, agents: Sequence[HumanAgent | Player]) -> None:
        super().__init__()
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
            f"agent={agent!r} is no person in this run; the people are "
            f"{', '.join(person.name for person in people)}"
        )
    return chosen
