"""One widget of each class, with something to show; all answers come from tapes and scripts."""

from __future__ import annotations

from assistant_kit import call, engine
from ipywidgets import DOMWidget
from study_kit import Water

from llmsim_lab import Simulation, data_path, lab
from llmsim_lab.run import load
from llmsim_lab.study import Study

__all__ = ["every_widget"]


async def every_widget() -> dict[str, DOMWidget]:
    """Return one widget of each class, by the class's name."""
    economy = load(data_path("tapes/first_run.tape"), 1)
    nations = load(data_path("tapes/two_nations.tape"), 1)
    made: list[DOMWidget] = [
        await _chat(),
        await _seat(),
        lab.Lab(economy),
        lab.PromptComparer(
            economy, {"bold": lambda text: text + " Be bold."}, prompt="agent_policy"
        ),
        lab.PromptViewer(nations),
        lab.RateChart(economy),
        lab.RunTree(data_path("tapes/first_run.tape")),
        await _study(),
        lab.TurnStepper(economy),
    ]
    return {type(widget).__name__: widget for widget in made}


async def _chat() -> lab.AssistantChat:
    script = engine(call("add_task", title="Water plants"), "I have added it.")
    chat = lab.AssistantChat(script, user_id="ann")
    await chat.ask("Add: water plants")
    return chat


async def _seat() -> lab.HumanSeat:
    people = {"Aland": "person"}
    run = Simulation(nations=["Aland"], players=people, start_at="1979Q3", turns=3, seed=7)
    seat = lab.HumanSeat(run)
    await seat.take_turn("Raise the rate", rate=11.67, reasoning="Prices rise.", confidence=0.9)
    return seat


async def _study() -> lab.StudyBoard:
    study = Study(Water, {"factor": [1.5, 3.0]}, seeds=4, turns=5, players={"*": "rule"})
    return lab.StudyBoard(await study.arun(progress=False))
