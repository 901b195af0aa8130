"""Build what an agent reads, from the state, the events and what the others did.

A prompt is a pure function of its arguments and of the builder's settings: same input, same bytes,
in any process. Where each section came from is worked out when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Literal

from llmsim_lab.calls import Role
from llmsim_lab.context.briefing import Briefing
from llmsim_lab.context.budget import (
    CORE,
    CountTokens,
    Part,
    estimate_tokens,
    fit,
    keep_to_allowance,
    module_source,
)
from llmsim_lab.context.composed import ComposedModules
from llmsim_lab.context.modules import BehaviorModule, ShownState, read_only
from llmsim_lab.context.others import Others
from llmsim_lab.context.sections import DataSection, StateLines, data_sections
from llmsim_lab.context.table import Variables
from llmsim_lab.context.wording import event_line, section
from llmsim_lab.errors import ConfigError
from llmsim_lab.prompts import Prompt, RenderedPrompt
from llmsim_lab.spans import Cut, Provenance, Span
from llmsim_lab.text import clip

__all__ = ["AgentContextBuilder"]


@cache
def _template() -> Prompt:
    return Prompt("{{ user }}", system="{{ system }}", name="agent_context")


class AgentContextBuilder:
    """Builds the prompts of a scenario's agents.

    Args:
        time_step_duration: how long a step is, in words: ``3 days``. Every prompt says so beside
            the step's number.
        simulator_awareness: whether agents are told that they take part in a simulation. If not,
            nothing in the builder's own words says so.
        composed_modules: what modules add to prompts, and their variables' definitions.
        variables: the scenario's own definitions; they are listed before the modules'.
        briefing: the wording around the state.
        roles: by agent, who they are and what they want; goes into the system message.
        agent_order: in which order the others' words are listed; agents that it does not name
            follow in the order given.
        stable_first: whether what does not change in a run stands first, in the system message, so
            that a server's prefix cache saves reading it again: role, modules' fixed texts,
            decision and response format. Else the sections come in their usual order.
        budget_tokens: the most a prompt may take, by ``count_tokens``: modules' sections are left
            out, lowest priority first, then the others' words are shortened. None: no limit.
        count_tokens: counts or estimates tokens; the default knows no tokenizer.
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
        agent_order: Sequence[str] = (),
        stable_first: bool = False,
        budget_tokens: int | None = None,
        count_tokens: CountTokens = estimate_tokens,
    ) -> None:
        if budget_tokens is not None and budget_tokens < 1:
            raise ConfigError(f"budget_tokens={budget_tokens} must be at least 1, or None")
        self.time_step_duration = time_step_duration
        self.simulator_awareness = simulator_awareness
        self.composed_modules = composed_modules
        self.briefing = briefing or Briefing()
        self.roles = dict(roles or {})
        self.agent_order = tuple(agent_order)
        self.stable_first = stable_first
        self.budget_tokens = budget_tokens
        self.count_tokens = count_tokens
        parts = [("the scenario", variables)] if variables else []
        parts += composed_modules.owned if composed_modules else ()
        self.variables = Variables.together(parts)
        self._others = Others(self.agent_order, count_tokens)
        self._modules = composed_modules.modules if composed_modules else ()
        self._global_lines = StateLines(self.variables, "global_vars")
        self._agent_lines = StateLines(self.variables, "agent_vars")
        self._sections = {
            module.name: data_sections(module, self.variables) for module in self._modules
        }
        decision = section("YOUR DECISION", self.briefing.decision)
        form = section("RESPONSE FORMAT", self.briefing.form) if self.briefing.form else ""
        closing: Role = "system" if stable_first else "user"
        self._closing = [Part("YOUR DECISION", CORE, closing, decision)]
        self._closing += [Part("RESPONSE FORMAT", CORE, closing, form)] if form else []

    def build_prompt(
        self,
        agent_name: str,
        step_number: int,
        agent_state: Mapping[str, Any],
        global_state: Mapping[str, Any],
        other_responses: Mapping[str, str],
        events: Sequence[Mapping[str, Any]],
    ) -> RenderedPrompt:
        """Return what an agent reads at a step.

        Args:
            agent_name: whose prompt it is.
            step_number: the number of the step.
            agent_state: the agent's variables by name.
            global_state: the world's.
            other_responses: what each agent said in the step before; the agent's own is left out.
            events: what has happened since, dicts with a ``description``.

        Returns:
            A string that has ``.system`` (empty unless there are roles or the stable parts stand
            first), ``.user`` and ``.provenance``: a span for each section with its module and its
            estimated tokens, and what was cut.

        Raises:
            ModuleError: a module's code failed.
            ConfigError: an event says nothing, or what cannot be cut is longer than the budget.
        """
        modules, cuts = self._module_parts(agent_name, agent_state, global_state)
        parts = [
            *self._role(agent_name),
            Part(
                "SITUATION",
                CORE,
                "user",
                self._situation(agent_name, step_number, global_state, events),
            ),
            Part("YOUR CURRENT STATE", CORE, "user", self._your_state(agent_state)),
            self._others.part(agent_name, step_number, other_responses),
            *modules,
            *self._closing,
        ]
        if self.budget_tokens is not None:
            parts, more = fit(parts, self.budget_tokens, self.count_tokens)
            cuts += more
        texts: dict[Role, str] = {
            role: "\n\n".join([part.text for part in parts if part.role == role]) for role in _ROLES
        }
        places = [(part.name, part.source, part.role, len(part.text)) for part in parts]
        return RenderedPrompt(
            system=texts["system"],
            user=texts["user"],
            template=_template(),
            provenance=_tracing(places, tuple(cuts), texts, self.count_tokens),
        )

    def _role(self, agent_name: str) -> list[Part]:
        parts = []
        if role := self.roles.get(agent_name):
            parts.append(Part("YOUR ROLE", CORE, "system", section("YOUR ROLE", role)))
        if self.stable_first and self.simulator_awareness:
            text = section("SIMULATION", _awareness(agent_name))
            parts.append(Part("SIMULATION", CORE, "system", text))
        return parts

    def _situation(
        self,
        agent_name: str,
        step_number: int,
        global_state: Mapping[str, Any],
        events: Sequence[Mapping[str, Any]],
    ) -> str:
        moment = self.briefing.moment.replace("{step}", str(step_number))
        lines = [
            f"=== SITUATION ({moment}) ===",
            f"Time: Step {step_number} (each step = {self.time_step_duration})",
        ]
        if self.simulator_awareness and not self.stable_first:
            lines.append(_awareness(agent_name))
        lines += self._global_lines.of(global_state)
        if events:
            lines += ["", "Recent events:", *[f"- {_description(event)}" for event in events]]
        return "\n".join(lines)

    def _your_state(self, agent_state: Mapping[str, Any]) -> str:
        lines = self._agent_lines.of(agent_state) or ["Nothing is recorded."]
        return section("YOUR CURRENT STATE", "\n".join(lines))

    def _module_parts(
        self, agent_name: str, agent_state: Mapping[str, Any], global_state: Mapping[str, Any]
    ) -> tuple[list[Part], list[Cut]]:
        parts: list[Part] = []
        cuts: list[Cut] = []
        own: ShownState | None = None
        for module in self._modules:
            source = module_source(module.name)
            found = [
                self._data_part(
                    item, source, module.priority, agent_name, agent_state, global_state
                )
                for item in self._sections[module.name]
            ]
            if module.builds_context:
                if own is None:
                    own, world = read_only(agent_state), read_only(global_state)
                text = module.context_for(agent_name, own, world)
                if text and (text := text.strip()):
                    _add(found, text, module, source)
            if module.max_tokens is not None and found:
                found, more = keep_to_allowance(found, module.max_tokens, self.count_tokens)
                cuts += more
            parts += found
        return parts, cuts

    def _data_part(
        self,
        item: DataSection,
        source: str,
        priority: int,
        agent_name: str,
        agent_state: Mapping[str, Any],
        global_state: Mapping[str, Any],
    ) -> Part:
        role: Role = "system" if self.stable_first and not item.template.slots else "user"
        text = item.fill(agent_name, agent_state, global_state)
        return Part(item.title, source, role, text, priority)


_ROLES: tuple[Literal["system", "user"], ...] = ("system", "user")


def _awareness(agent_name: str) -> str:
    return f"This is a simulation, in which you play {agent_name}."


def _description(event: Mapping[str, Any]) -> str:
    line = event_line(event)
    if not line:
        raise ConfigError(
            f"event {clip(repr(dict(event)), 80)} says nothing; give it a 'description'"
        )
    return line


def _add(parts: list[Part], text: str, module: BehaviorModule, source: str) -> None:
    """Add what a module's code says, under the heading before it if that is the same."""
    last = parts[-1] if parts else None
    if last and last.role == "user" and last.name == module.heading and not text.startswith("==="):
        parts[-1] = last._replace(text=f"{last.text}\n{text}")
        return
    text = section(module.heading, text)
    parts.append(Part(_title(text), source, "user", text, module.priority))


def _title(text: str) -> str:
    return text.partition("\n")[0].strip("= ")


def _tracing(
    places: Sequence[tuple[str, str, Role, int]],
    cuts: tuple[Cut, ...],
    texts: Mapping[Role, str],
    count: CountTokens,
) -> Callable[[], Provenance]:
    """Return a function that says where each section stands; nothing is done until then."""

    def trace() -> Provenance:
        spans = []
        for role in _ROLES:
            start = 0
            for name, source, own_role, length in places:
                if own_role == role:
                    tokens = count(texts[role][start : start + length])
                    spans.append(Span(name, role, start, start + length, source, tokens))
                    start += length + len("\n\n")
        return Provenance(spans=tuple(spans), how="rendered", cuts=cuts)

    return trace
