"""Build what an agent reads, from the state, the events and what the others did.

A prompt is a pure function of its arguments and of the builder's settings: same input, same bytes,
in any process.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from llmsim_lab._spans import Span
from llmsim_lab._util.config import Settings
from llmsim_lab._util.text import estimate_tokens
from llmsim_lab.context._modules import ComposedModules
from llmsim_lab.context._variables import Variable, Variables, humanise, value_text
from llmsim_lab.prompts import Prompt
from llmsim_lab.prompts._prompt import RenderedPrompt
from llmsim_lab.types import Role

CORE = "context builder"
"""The source of sections that are not a module's."""

_Line = Annotated[str, Field(min_length=1)]
_ROLES: tuple[Literal["system", "user"], ...] = ("system", "user")
_SPEECH = re.compile(r""":[*_]*\s*["\u201c\u201d\u201e\u00ab]""")
"""A colon and an opening quotation mark, however a model sets them."""


class Briefing(Settings):
    """The wording around the state: what all prompts of a scenario say in the same words.

    Attributes:
        moment: the situation's heading; ``{step}`` is the turn's number.
        question: what the agent is to decide.
        considerations: what to think of, one line each.
        response_format: the parts of an answer, numbered in the prompt.
    """

    moment: _Line = "Day {step} of crisis"
    question: _Line = "Based on this situation, what actions do you take?"
    considerations: tuple[_Line, ...] = (
        "Military posture adjustments",
        "Diplomatic communications (to whom? saying what?)",
        "Public statements",
        "Requests to allies",
    )
    response_format: tuple[_Line, ...] = (
        "ASSESSMENT: Your read of the current situation (2-3 sentences)",
        "ACTIONS: Specific decisions this turn",
        "COMMUNICATIONS: Any messages to other parties",
    )


def event_line(event: Mapping[str, Any]) -> str:
    """Return an event on one line, so that its words cannot pass for a section; empty for none."""
    words = event.get("description") or humanise(str(event.get("type") or ""))
    return " ".join(str(words).split())


def section(title: str, text: str) -> str:
    """Return a text under a heading."""
    return f"=== {title} ===\n{text}"


def quote(speaker: str, words: str, names: Collection[str] = ()) -> str:
    """Return somebody's words in the form ``Speaker: "words"``.

    The words are a model's, so they are untrusted. Lines that could pass for a section's heading,
    or for another speaker's, are marked with ``> ``, so that nobody speaks for others or for the
    simulation.

    Args:
        speaker: whose words.
        words: the words.
        names: of all who could speak, in ``casefold``.
    """
    words = words.strip()
    # The first line follows the speaker's name, so it cannot pass for anything else.
    first, *rest = words.splitlines() or [""]
    if any(_fakes(line, names) for line in rest):
        words = "\n".join([first, *(f"> {it}" if _fakes(it, names) else it for it in rest)])
    return f'{speaker}: "{words}"' if words else f"{speaker}: (said nothing)"


def _fakes(line: str, names: Collection[str]) -> bool:
    """Return True if a line could pass for a section's heading, or for a speaker's words."""
    found = _SPEECH.search(line)
    # Without what models set around a name: "**Bo**:", "- Bo:", "> Bo:".
    return line.lstrip().startswith("===") or (
        found is not None and line[: found.start()].strip(" \t*_#>-").casefold() in names
    )


class Part(NamedTuple):
    """A section on its way into a prompt.

    Attributes:
        name: its title.
        source: who contributes it.
        role: of the message it goes into.
        text: the section with its heading.
    """

    name: str
    source: str
    role: Role
    text: str


def _core(title: str, text: str, role: Role = "user") -> Part:
    """Return a section of the builder's own."""
    return Part(title, CORE, role, section(title, text))


def _state_lines(known: Mapping[str, Variable], state: Mapping[str, Any]) -> list[str]:
    """Return variables with label and unit: the defined ones in their order, then any others."""
    lines = [
        f"{variable.label or humanise(name)}: {variable.text(state[name])}"
        for name, variable in known.items()
        if variable.shown and name in state
    ]
    return lines + [
        f"{humanise(name)}: {value_text(value)}"
        for name, value in state.items()
        if name not in known
    ]


# The sections are put together by code; recordings name this template in a prompt file's place.
@cache
def _template() -> Prompt:
    return Prompt("{{ user }}", system="{{ system }}", name="agent_context")


class AgentContextBuilder:
    """Builds the prompts of a scenario's agents.

    Args:
        time_step_duration: how long a turn is, in words: ``3 days``. Every prompt says so beside
            the turn's number.
        simulator_awareness: whether agents are told that they take part in a simulation. If not,
            the builder's own words do not say so.
        composed_modules: what modules add to prompts, and their variables' definitions.
        variables: the scenario's own definitions; they are listed before the modules'.
        briefing: the wording around the state.
        roles: by agent, who they are and what they want; goes into the system message.
        stable_first: whether what does not change in a run stands first, in the system message, so
            that a server's prefix cache saves reading it again: role, decision and response format.
            If false, the sections come in their usual order.
    """

    def __init__(
        self,
        time_step_duration: str,
        simulator_awareness: bool,
        composed_modules: ComposedModules | None = None,
        *,
        variables: Variables | None = None,
        briefing: Briefing | None = None,
        roles: Mapping[str, str] | None = None,
        stable_first: bool = False,
    ) -> None:
        self.time_step_duration = time_step_duration
        self.simulator_awareness = simulator_awareness
        self.composed_modules = composed_modules
        self.briefing = briefing or Briefing()
        self.roles = dict(roles or {})
        self.stable_first = stable_first
        self.variables = (composed_modules or ComposedModules()).variables_with(variables)
        self._modules = composed_modules.modules if composed_modules else ()
        closing: Role = "system" if stable_first else "user"
        decision = [self.briefing.question]
        if considerations := self.briefing.considerations:
            decision += ["", "Consider:", *[f"- {line}" for line in considerations]]
        self._closing = [_core("YOUR DECISION", "\n".join(decision), closing)]
        if parts := self.briefing.response_format:
            form = [f"{place}. {line}" for place, line in enumerate(parts, 1)]
            text = "\n".join(["Structure your response as:", *form])
            self._closing.append(_core("RESPONSE FORMAT", text, closing))

    def build_prompt(
        self,
        agent_name: str,
        step_number: int,
        agent_state: Mapping[str, Any],
        global_state: Mapping[str, Any],
        other_responses: Mapping[str, str],
        events: Sequence[Mapping[str, Any]],
    ) -> RenderedPrompt:
        """Return what an agent reads in a turn.

        Args:
            agent_name: whose prompt it is.
            step_number: the turn's number.
            agent_state: the agent's variables by name.
            global_state: the world's.
            other_responses: each agent's words of the turn before; the reader's own are left out.
            events: what has happened since, dicts with a ``description``.

        Returns:
            A string that has ``.system`` (empty unless there are roles or the stable parts stand
            first), ``.user`` and ``.provenance``: a span for each section with its module and its
            estimated tokens.

        Raises:
            ModuleError: a module's code failed.
        """
        own = "\n".join(_state_lines(self.variables.agent_vars, agent_state))
        parts = [
            *self._role(agent_name),
            self._situation(agent_name, step_number, global_state, events),
            _core("YOUR CURRENT STATE", own or "Nothing is recorded."),
            self._others_part(agent_name, step_number, other_responses),
            *self._module_parts(agent_name, agent_state, global_state),
            *self._closing,
        ]
        texts: dict[Role, str] = {
            role: "\n\n".join([part.text for part in parts if part.role == role]) for role in _ROLES
        }
        return RenderedPrompt(**texts, template=_template(), spans=_spans(parts))

    def _role(self, agent_name: str) -> list[Part]:
        parts = []
        if role := self.roles.get(agent_name):
            parts.append(_core("YOUR ROLE", role, "system"))
        if self.stable_first and self.simulator_awareness:
            parts.append(_core("SIMULATION", _awareness(agent_name), "system"))
        return parts

    def _situation(
        self,
        agent_name: str,
        step_number: int,
        global_state: Mapping[str, Any],
        events: Sequence[Mapping[str, Any]],
    ) -> Part:
        lines = [f"Time: Step {step_number} (each step = {self.time_step_duration})"]
        if self.simulator_awareness and not self.stable_first:
            lines.append(_awareness(agent_name))
        lines += _state_lines(self.variables.global_vars, global_state)
        if events:
            lines += ["", "Recent events:", *[f"- {event_line(event)}" for event in events]]
        title = f"SITUATION ({self.briefing.moment.replace('{step}', str(step_number))})"
        return Part("SITUATION", CORE, "user", section(title, "\n".join(lines)))

    def _others_part(self, agent_name: str, step_number: int, responses: Mapping[str, str]) -> Part:
        """Return the section on what the others did, in a fixed order and in their own words.

        Args:
            agent_name: who reads it.
            step_number: the turn that begins; the words are of the one before.
            responses: each agent's words.
        """
        # With the reader's own name: no other speaker puts words into its mouth either.
        names = frozenset(map(str.casefold, {agent_name, *responses}))
        quoted = "\n\n".join(
            quote(name, words, names) for name, words in responses.items() if name != agent_name
        )
        title = f"WHAT OTHERS DID (Step {step_number - 1})"
        return Part(
            "WHAT OTHERS DID", CORE, "user", section(title, quoted or "Nobody has acted yet.")
        )

    def _module_parts(
        self, agent_name: str, agent_state: Mapping[str, Any], global_state: Mapping[str, Any]
    ) -> list[Part]:
        parts: list[Part] = []
        for module in self._modules:
            words = (module.context_for(agent_name, agent_state, global_state) or "").strip()
            if words:
                text = section(module.heading, words)
                parts.append(Part(module.heading, f"module {module.name}", "user", text))
        return parts


def _awareness(agent_name: str) -> str:
    return f"This is a simulation, in which you play {agent_name}."


def _spans(parts: Sequence[Part]) -> list[Span]:
    """Return where each section stands."""
    spans = []
    for role in _ROLES:
        start = 0
        for part in parts:
            if part.role == role:
                end = start + len(part.text)
                tokens = estimate_tokens(part.text)
                spans.append(Span(part.name, role, start, end, part.source, tokens))
                # The sections of a message have an empty line between them.
                start = end + len("\n\n")
    return spans
