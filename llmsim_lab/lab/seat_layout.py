"""The parts of a seat and where they stand."""

from __future__ import annotations

from collections.abc import Sequence

import ipywidgets as w

from llmsim_lab.agents import HumanAgent
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab.answer_form import AnswerForm
from llmsim_lab.lab.inputs import row
from llmsim_lab.lab.widget import LabWidget, button
from llmsim_lab.simulation import Simulation
from llmsim_lab.simulation.counterfactual import people_in

__all__ = ["SeatLayout", "chosen_people"]


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

    def __init__(self, agents: Sequence[HumanAgent]) -> None:
        super().__init__()
        self.agents = {agent.name: agent for agent in agents}
        self.forms = {agent.name: AnswerForm(names_rate=agent.names_rate) for agent in agents}
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
    def shown(self) -> HumanAgent:
        """The person whose form is shown."""
        return self.agents[self.seat_box.value]

    def named(self, agent: str | None) -> HumanAgent:
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


def chosen_people(simulation: Simulation, agent: str | None) -> list[HumanAgent]:
    """Return the people of a run, or one of them.

    Raises:
        ConfigError: there is nobody, or nobody of that name.
    """
    if not isinstance(simulation, Simulation):
        raise ConfigError(
            f"{type(simulation).__name__} is no economic simulation; pass a Simulation, as in "
            "HumanSeat(Simulation(config)), or a recorded one: HumanSeat(load('x.tape'))"
        )
    people = people_in(simulation)
    if not people:
        raise ConfigError(
            f"{simulation!r:.120} has no people in it; make a nation kind: human, as in "
            'SimulationConfig(nations=[{"name": "Aland", "kind": "human"}])'
        )
    chosen = [person for person in people if agent in (None, person.name)]
    if not chosen:
        raise ConfigError(
            f"agent={agent!r} is no person in this run; the people are "
            f"{', '.join(person.name for person in people)}"
        )
    return chosen
