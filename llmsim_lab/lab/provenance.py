"""Where the parts of a recorded prompt came from.

A tape holds the messages, not what went into them. So the run's own part is asked to write the
prompt again; only if the text is identical do its spans count. Otherwise the template's fixed text
is looked for in the messages, and the provenance says so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from llmsim_lab.errors import LabError
from llmsim_lab.lab.attempts import Attempts, Seen, opening_messages
from llmsim_lab.lab.source import simulation_of
from llmsim_lab.prompts import Prompt, Provenance, RenderedPrompt, trace_prompt

if TYPE_CHECKING:
    from llmsim_lab.runs.base import Run

__all__ = ["Tracer"]


class Tracer:
    """Finds out where the parts of a run's prompts came from.

    A kind of simulation helps with a method ``rebuilt_prompt(turn, component, agent)``, which
    returns the prompt that its part would write, or None.

    Args:
        attempts: the run's.
    """

    def __init__(self, attempts: Attempts) -> None:
        self.attempts = attempts
        self._parents: dict[int, Run | None] = {}

    def of(self, seen: Seen) -> Provenance:
        """Return where a request's prompt came from, and how sure that is."""
        if seen.attempt is None:
            return Provenance(how="unknown", why="no prompt was recorded")
        system, user = opening_messages(seen.attempt)
        whys = []
        for simulation in self._candidates(seen.turn):
            prompt, why = _rebuilt(simulation, seen)
            if prompt is not None and _is_the_same(prompt, system, user):
                return _as_rebuilt(prompt)
            whys.append(why or "built again, the prompt comes out differently")
        why = whys[0]
        for simulation in self._candidates(seen.turn):
            template = _template_of(simulation, seen)
            if template is not None:
                found = trace_prompt(template, system=system, user=user)
                why = whys[0] if found.spans else f"{whys[0]}; {found.why}"
                if found.spans:
                    return replace(found, why=why)
        return Provenance(how="unknown", why=why)

    def _candidates(self, turn: int) -> list[Run]:
        """Return the run and, for a turn that a fork shares with its parent, that run too."""
        run = self.attempts.simulation
        parent = self._parent(run, self.attempts.player(turn))
        return [run] if parent is None else [run, parent]

    def _parent(self, run: Run, player: int | None) -> Run | None:
        if run.tape is None or player is None or player == run.run_id:
            return None
        if player not in self._parents:
            try:
                self._parents[player] = simulation_of(run.tape, run=player)
            except LabError:  # it was given parts of its own, which no tape can hold
                self._parents[player] = None
        return self._parents[player]


def _rebuilt(simulation: Run, seen: Seen) -> tuple[str | None, str]:
    """Return the prompt written again, or None and why there is none."""
    rebuild = getattr(simulation, "rebuilt_prompt", None)
    if rebuild is None:
        return None, "this kind of simulation cannot build its prompts again"
    try:
        prompt: str | None = rebuild(seen.turn, seen.component, seen.agent)
    except Exception as error:  # noqa: BLE001 - a part may be anybody's code; it is told, not lost
        return None, f"building it again failed: {type(error).__name__}: {error}"
    return prompt, "" if prompt is not None else "it cannot be built again from the turns"


def _is_the_same(prompt: str, system: str, user: str) -> bool:
    if isinstance(prompt, RenderedPrompt):
        return (prompt.system, prompt.user) == (system, user)
    return not system and prompt == user


def _as_rebuilt(prompt: str) -> Provenance:
    if not isinstance(prompt, RenderedPrompt):
        return Provenance(how="rebuilt", why="it was written without a template")
    known = prompt.provenance
    return replace(known, how="rebuilt") if known.how == "rendered" else known


def _template_of(simulation: Any, seen: Seen) -> Prompt | None:
    """Return the template that a component of a run writes with, if it has one."""
    part = getattr(simulation, seen.component, None)
    if part is None:
        several = getattr(simulation, f"{seen.component}s", ())
        part = next((one for one in several if getattr(one, "name", None) == seen.agent), None)
    template = getattr(part, "prompt", None)
    return template if isinstance(template, Prompt) else None
