"""Build what an agent reads, from the state, the events and what the others did.

A prompt is a pure function of its arguments and of the builder's settings: same input, same bytes,
in any process.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from llmsim_lab._util.checks import instance_of, items_of, text_argument, whole_number
from llmsim_lab._util.config import Settings
from llmsim_lab._util.text import estimate_tokens
from llmsim_lab.context._modules import ComposedModules
from llmsim_lab.context._variables import ANY, Variable, Variables, humanise
from llmsim_lab.prompts import Prompt, RenderedPrompt
from llmsim_lab.spans import Span

CORE = "context builder"
"""The source of sections that are not a module's."""

_Role = Literal["system", "user"]
_Line = Annotated[str, Field(min_length=1)]
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


def event_line(event: Mapping[str, object]) -> str:
    """Return an event on one line, so that its words cannot pass for a section; empty for none."""
    # The contract's callers hand in plain dicts, in which a part may be missing.
    words = event.get("description")
    if not words:
        words = humanise(str(event.get("type") or ""))
    return " ".join(str(words).split())


def quoted(
    words: Mapping[str, str],
    names: Iterable[str],
) -> str:
    """Return what each has said, in the form ``Speaker: "words"``.

    The words are a model's, so they are untrusted. Lines that could pass for a section's heading,
    or for another speaker's, are marked with ``> ``, so that none of them speaks for others or
    for the simulation.

    Args:
        words: the words, by speaker.
        names: of all who could speak.
    """
    # Models write names in capitals as often as not.
    speakers = {name.casefold() for name in names}
    parts = []
    for speaker, text in words.items():
        text = _marked(text_argument(f"{speaker}'s words", text).strip(), speakers)
        if text:
            parts.append(f'{speaker}: "{text}"')
        else:
            parts.append(f"{speaker}: (said nothing)")
    return "\n\n".join(parts) or "Nobody has acted yet."


def _marked(text: str, speakers: Set[str]) -> str:
    """Return a text whose lines that could pass for a heading or for a speaker's are marked."""
    lines = text.splitlines()
    marked = lines[:1]  # which follows the speaker's name, so it cannot pass for anything else
    for line in lines[1:]:
        is_heading = line.lstrip().startswith("===")
        marked.append(f"> {line}" if is_heading or _speaker_in(line) in speakers else line)
    # Where nothing is marked, the text keeps its own line ends.
    return text if marked == lines else "\n".join(marked)


def _speaker_in(line: str) -> str | None:
    """Return the speaker that a line such as ``Bo: "words"`` quotes; None if it quotes none."""
    speech = _SPEECH.search(line)
    if speech is None:
        return None
    # Without what models set around a name: "**Bo**:", "- Bo:", "> Bo:".
    return line[: speech.start()].strip(" \t*_#>-").casefold()


def bullets(
    heading: str,
    lines: Iterable[str],
) -> list[str]:
    """Return lines as a list below a heading, with an empty line above; nothing for none."""
    listed = [f"- {line}" for line in lines]
    return ["", heading, *listed] if listed else []


def _state_lines(
    variables: Mapping[str, Variable],
    state: Mapping[str, object],
) -> list[str]:
    """Return variables with label and unit: the defined ones in their order, then any others."""
    lines = []
    for name in dict.fromkeys([*variables, *state]):
        # The builder also works alone, with values that no scenario defines.
        variable = variables.get(name, ANY)
        if variable.shown and name in state:
            lines.append(f"{variable.label or humanise(name)}: {variable.text(state[name])}")
    return lines


def shared_order(
    reader: str,
    speakers: Sequence[str],
) -> list[str]:
    """Return the speakers but the reader, so that readers' lists begin alike for as long as can be.

    The half without the reader comes first, which all in the reader's half read too; then the same
    within that half. Of four speakers' words a server reads 8 instead of 12, of twelve 44 instead
    of 132.

    Example:
        >>> [shared_order(reader, ["Ada", "Bo", "Cleo", "Dan"]) for reader in ("Ada", "Bo")]
        [['Cleo', 'Dan', 'Bo'], ['Cleo', 'Dan', 'Ada']]
    """
    if reader not in speakers:
        return [*speakers]
    if len(speakers) == 1:
        return []
    middle = len(speakers) // 2
    first_half = speakers[:middle]
    second_half = speakers[middle:]
    if reader in first_half:
        return [*second_half, *shared_order(reader, first_half)]
    return [*first_half, *shared_order(reader, second_half)]


class _Section(NamedTuple):
    """One part of a prompt; without text it is left out."""

    title: str
    text: str
    when: str = ""
    source: str = CORE


class _JoinedSections(NamedTuple):
    """A message of sections, and where they are in it."""

    text: str
    spans: list[Span]


def _joined(
    sections: Iterable[_Section],
    role: _Role,
) -> _JoinedSections:
    """Return sections as a message."""
    message = ""
    spans = []
    for section in sections:
        if not section.text:
            continue
        if message:
            message += "\n\n"
        written = f"=== {section.title}{section.when} ===\n{section.text}"
        start = len(message)
        message += written
        # An estimate: only the server has its model's tokenizer.
        tokens = estimate_tokens(written)
        spans.append(
            Span(
                section.title,
                role,
                start,
                len(message),
                section.source,
                tokens,
            )
        )
    return _JoinedSections(message, spans)


@dataclass(eq=False, repr=False)
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
        roles: by agent, who they are and what they want; without ``stable_first`` they stand in
            the system message.
        stable_first: whether what all agents read stands first, so that a server reads it once:
            decision and response format, which are the same in every turn, in the system message;
            then the situation and the others' words; then what is the agent's own. If false, the
            sections come in their usual order.
    """

    time_step_duration: str
    simulator_awareness: bool
    composed_modules: ComposedModules | None = None
    _: KW_ONLY
    variables: Variables | None = None
    briefing: Briefing = field(default_factory=Briefing)
    roles: Mapping[str, str] = field(default_factory=dict)
    stable_first: bool = False

    def __post_init__(self) -> None:
        # Code puts the sections together; recordings name this in a prompt file's place.
        self._template = Prompt(
            "{{ user }}",
            system="{{ system }}",
            name="agent_context",
        )
        instance_of(
            "composed_modules",
            self.composed_modules,
            ComposedModules | None,
            "ComposedModules, or None",
        )
        instance_of("briefing", self.briefing, Briefing, "a Briefing")
        instance_of("roles", self.roles, Mapping, "a dict of texts by agent")
        self._modules = self.composed_modules or ComposedModules()
        self._defined = self._modules.variables_with(self.variables)

    def build_prompt(
        self,
        agent_name: str,
        step_number: int,
        agent_state: Mapping[str, object],
        global_state: Mapping[str, object],
        other_responses: Mapping[str, str],
        events: Sequence[Mapping[str, object]],
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
        text_argument("agent_name", agent_name)
        whole_number("step_number", step_number)
        instance_of("agent_state", agent_state, Mapping, "a dict of values by name")
        instance_of("global_state", global_state, Mapping, "a dict of values by name")
        instance_of("other_responses", other_responses, Mapping, "a dict of texts by agent")
        events = items_of("events", events, Mapping, "a list of dicts that have a description")
        role = _Section("YOUR ROLE", self.roles.get(agent_name, ""))
        aware = ""
        if self.simulator_awareness:
            aware = f"This is a simulation, in which you play {agent_name}."
        # It names the reader: with ``stable_first`` it stands below what all readers share.
        aware_above = "" if self.stable_first else aware
        situation = self._situation(
            step_number,
            aware_above,
            global_state,
            events,
        )
        state = self._state(agent_state)
        said_before = self._others(agent_name, step_number, other_responses)
        added = self._of_modules(agent_name, agent_state, global_state)
        decision = self._decision()
        form = self._form()
        if self.stable_first:
            simulation = _Section("SIMULATION", aware)
            system = _joined([decision, form], "system")
            user = _joined(
                [
                    situation,
                    said_before,
                    role,
                    simulation,
                    state,
                    *added,
                ],
                "user",
            )
        else:
            # The order that the context builder's contract shows.
            system = _joined([role], "system")
            user = _joined(
                [
                    situation,
                    state,
                    said_before,
                    *added,
                    decision,
                    form,
                ],
                "user",
            )
        return RenderedPrompt(
            system=system.text,
            user=user.text,
            template=self._template,
            spans=[*system.spans, *user.spans],
        )

    def _situation(
        self,
        step_number: int,
        aware: str,
        global_state: Mapping[str, object],
        events: Iterable[Mapping[str, object]],
    ) -> _Section:
        lines = [f"Time: Step {step_number} (each step = {self.time_step_duration})"]
        if aware:
            lines.append(aware)
        lines += _state_lines(self._defined.global_vars, global_state)
        lines += bullets("Recent events:", map(event_line, events))
        # Not by format(): a scenario's author may write other braces.
        moment = self.briefing.moment.replace("{step}", str(step_number))
        return _Section("SITUATION", "\n".join(lines), f" ({moment})")

    def _state(self, agent_state: Mapping[str, object]) -> _Section:
        lines = _state_lines(self._defined.agent_vars, agent_state)
        return _Section("YOUR CURRENT STATE", "\n".join(lines) or "Nothing is recorded.")

    def _others(
        self,
        reader: str,
        step_number: int,
        responses: Mapping[str, str],
    ) -> _Section:
        speakers = list(responses)
        listed = [name for name in speakers if name != reader]
        if self.stable_first:
            listed = shared_order(reader, speakers)
        words = {name: responses[name] for name in listed}
        # With the reader's own name: no other speaker puts words into its mouth either.
        text = quoted(words, [reader, *speakers])
        # All agents answer at once, so what they read of each other is a turn old.
        return _Section("WHAT OTHERS DID", text, f" (Step {step_number - 1})")

    def _of_modules(
        self,
        agent_name: str,
        agent_state: Mapping[str, object],
        global_state: Mapping[str, object],
    ) -> list[_Section]:
        sections = []
        for module in self._modules:
            context = module.call(
                "build_agent_context",
                agent_name,
                agent_state,
                global_state,
            )
            # Code that returns None has nothing to say in this turn: the section is left out.
            text = (context or "").strip()
            section = _Section(
                module.title or humanise(module.name).upper(),
                text,
                source=f"module {module.name}",
            )
            sections.append(section)
        return sections

    def _decision(self) -> _Section:
        lines = [self.briefing.question]
        lines += bullets("Consider:", self.briefing.considerations)
        return _Section("YOUR DECISION", "\n".join(lines))

    def _form(self) -> _Section:
        parts = self.briefing.response_format
        lines = [f"{place}. {part}" for place, part in enumerate(parts, start=1)]
        # An empty format asks for no structure, so the section is left out.
        if lines:
            lines.insert(0, "Structure your response as:")
        return _Section("RESPONSE FORMAT", "\n".join(lines))
