"""See what each module put into an agent's prompt, and what the prompt is without it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import ipywidgets as w
from markupsafe import Markup

from llmsim_lab._util.html import STRONG, bars, flow, join, safe, styled, table
from llmsim_lab._util.text import clip
from llmsim_lab.context import CrisisSimulation
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab._html import block, heading, messages_html, sideways, word_diff
from llmsim_lab.lab._run_reading import Source, simulation_of
from llmsim_lab.lab._widget import TurnBrowser, checkbox, dropdown, flex, row
from llmsim_lab.prompts._prompt import RenderedPrompt
from llmsim_lab.run import Run
from llmsim_lab.run._registry import kind_name
from llmsim_lab.tape._changes import shared_start
from llmsim_lab.types import Attempt, ChatRequest, Message, Role


def section_rows(whole: RenderedPrompt, shown: RenderedPrompt) -> list[tuple[str, ...]]:
    """Return each section: name, source, message, tokens, and ``yes`` or ``no``.

    Args:
        whole: the prompt.
        shown: the same without some modules' words.
    """
    before, after = texts_of(whole), texts_of(shown)
    there = {(span.name, span.source, span.of(after.get(span.role, ""))) for span in shown.spans}
    rows: list[tuple[str, ...]] = []
    for span in whole.spans:
        text = span.of(before.get(span.role, ""))
        left = "yes" if (span.name, span.source, text) in there else "no"
        rows.append((span.name, span.source, span.role, f"{span.tokens or 0}", left))
    return rows


def modules_bars(whole: RenderedPrompt, silenced: Sequence[str]) -> Markup:
    """Return the tokens of each module, and of what no module said, as bars.

    Args:
        whole: the prompt.
        silenced: modules whose words are left out.
    """
    tokens: Counter[str] = Counter()
    for span in whole.spans:
        tokens[span.source.removeprefix("module ")] += span.tokens or 0
    total = sum(tokens.values()) or 1

    def words(name: str, count: int) -> str:
        return f"{count:,} tokens, " + ("left out" if name in silenced else f"{count / total:.0%}")

    rows = [(name, count, words(name, count)) for name, count in tokens.most_common()]
    # As a table's caption is, to stand level with that of the sections.
    return join([styled("Tokens by module, estimated", f"{STRONG};padding:4px 0"), bars(rows)])


def texts_of(prompt: RenderedPrompt) -> dict[Role, str]:
    """Return a prompt's messages by role, without empty ones."""
    texts: dict[Role, str] = {"system": prompt.system, "user": prompt.user}
    return {role: text for role, text in texts.items() if text}


def tokens_of(prompt: RenderedPrompt) -> int:
    """Return about how many tokens a prompt has."""
    return sum(span.tokens or 0 for span in prompt.spans)


def changed(whole: RenderedPrompt, shown: RenderedPrompt) -> list[Markup]:
    """Return what differs, by message, without the lines before and after that are the same."""
    before, after = texts_of(whole), texts_of(shown)
    found = [
        join([f"{role}: ", _difference(before.get(role, ""), after.get(role, ""))])
        for role in before | after
        if before.get(role) != after.get(role)
    ]
    return found or [safe("Nothing: those modules had nothing to say to this agent.")]


def _difference(before: str, after: str) -> Markup:
    old, new = before.split("\n"), after.split("\n")
    head = shared_start(old, new)
    old, new = old[head:], new[head:]
    tail = shared_start(old[::-1], new[::-1])
    changes = word_diff(*("\n".join(lines[: len(lines) - tail]) for lines in (old, new)))
    ahead = f"{head} lines before it stay. " if head else ""
    return join([ahead, changes, f"{tail} lines after it stay." if tail else ""])


def as_attempt(prompt: RenderedPrompt) -> Attempt:
    """Return a prompt as a request, which was never made, to show it like one."""
    messages = tuple(Message(role, text) for role, text in texts_of(prompt).items())
    return Attempt(request=ChatRequest(model="", messages=messages), reply=None, seconds=0.0)


class ContextXRay(TurnBrowser):
    """Shows an agent's prompt section by section: whose it is, what it costs, what it does.

    Untick a module and the prompt is built again without its words; what the module changed of the
    state stays.

    Args:
        source: a crisis simulation, a tape, or a tape's file.
        run: for a tape, the run's number; the latest if not given.
        agent: whose prompt at first; the first agent's if not given.
        turn: of which turn at first; the latest if not given.

    Attributes:
        simulation: the run.
        agent_box: chooses whose prompt.
        previous_button, turn_box, next_button, latest_button: choose the turn.
        module_boxes: by module, ticked while its words are in.
        sections, prompt, changes: what is shown.

    Example:
        >>> xray = ContextXRay("data/tapes/crisis.tape", run=1)  # doctest: +SKIP
        >>> xray.silence("trust_dynamics")  # doctest: +SKIP
    """

    def __init__(
        self,
        source: Source,
        *,
        run: int | None = None,
        agent: str | None = None,
        turn: int | None = None,
    ) -> None:
        simulation: Any = simulation_of(source, run=run)
        if not isinstance(simulation, CrisisSimulation):
            tape = None if isinstance(source, Run) else simulation.tape
            kind = CrisisSimulation.kind
            there = [it.id for it in tape.runs() if kind_name(it.manifest) == kind] if tape else ()
            hint = f"; on this tape run {there[-1]} is one: run={there[-1]}" if there else ""
            raise ConfigError(
                f"{type(simulation).__name__} has no context modules; ContextXRay shows crisis "
                f"simulations, PromptViewer shows any{hint}"
            )
        self.simulation: CrisisSimulation
        super().__init__(simulation)
        names = list(simulation.config.scenario.agents)
        self.agent_box = dropdown("Agent")
        self._choices.options(self.agent_box, [(name, name) for name in names], agent or names[0])
        if agent is not None and agent not in names:
            raise ConfigError(f"there is no agent {agent!r}; there are: {', '.join(names)}")
        self.module_boxes = {name: checkbox(name, value=True) for name in simulation.modules.names}
        self._lay_out()
        self._follow_turns()
        self._go(self._span()[1] if turn is None else self._number(turn))

    def _lay_out(self) -> None:
        self.heading, self.changes = (w.HTML() for _ in range(2))
        # The prompt beside its table where there is room, below it where the page is narrow.
        self.sections, self.prompt = (w.HTML(layout=flex(grow, "24em")) for grow in (2, 3))
        choosing = (self.agent_box, *self.module_boxes.values())
        for box in choosing:
            self._choices.on_choice(box, self._chosen)
        self.controls = (*choosing, *self.navigation.children)
        self.children = (
            self.heading,
            row(self.agent_box, self.navigation),
            row(w.HTML("Modules that speak:"), *self.module_boxes.values(), gap="12px"),
            row(self.sections, self.prompt, gap="24px"),
            self.changes,
            *self.messages,
        )

    # --- which prompt ------------------------------------------------------------------------

    def _span(self) -> tuple[int, int]:
        """Return the first and the last turn; the first one to come where none was played."""
        first = self.simulation.turns[0].number + 1
        return first, max(self.simulation.turn_number, first)

    @property
    def silenced(self) -> tuple[str, ...]:
        """The modules that are unticked."""
        return tuple(name for name, box in self.module_boxes.items() if not box.value)

    def silence(self, *names: str) -> None:
        """Let only the other modules speak, as unticking these does.

        Raises:
            ConfigError: there is no such module.
        """
        if unknown := [name for name in names if name not in self.module_boxes]:
            there = ", ".join(self.module_boxes) or "none"
            raise ConfigError(f"no module {unknown[0]!r}; there are: {there}")
        for name, box in self.module_boxes.items():
            self._choices.set(box, name not in names)
        self._chosen()

    def _go(self, number: int) -> None:
        self._set_turn(number)
        self._draw()

    def _chosen(self) -> None:
        self._go(self.turn_box.value)

    @property
    def whole(self) -> RenderedPrompt:
        """The prompt as it was, or, where nothing was played, as it would be."""
        return self.simulation.context_of(self.agent_box.value, self.turn_box.value)

    @property
    def shown(self) -> RenderedPrompt:
        """The prompt without the words of what is unticked."""
        return self.simulation.context_of(
            self.agent_box.value, self.turn_box.value, silenced=self.silenced
        )

    # --- showing -----------------------------------------------------------------------------

    def _draw(self) -> None:
        whole, shown = self.whole, self.shown
        self.heading.value = str(heading(self._title(whole, shown)))
        header = ("section", "from", "message", "tokens", "in the prompt")
        sections = table(header, section_rows(whole, shown), caption="Sections, tokens estimated")
        beside = [modules_bars(whole, self.silenced), sideways(sections, name="Sections")]
        self.sections.value = str(block(flow(beside, basis="24em", gap="24px")))
        self.prompt.value = str(messages_html(as_attempt(shown), shown.provenance))
        changes = [heading("What unticking changes"), *changed(whole, shown)]
        self.changes.value = str(block(*changes)) if self.silenced else ""

    def _title(self, whole: RenderedPrompt, shown: RenderedPrompt) -> str:
        turn = self.turn_box.value
        played = turn <= self.simulation.turn_number
        preview = "" if played else " (a preview: it has not been played)"
        tokens = f"about {tokens_of(whole)} tokens"
        if self.silenced:
            change = tokens_of(shown) - tokens_of(whole)
            tokens += f", {tokens_of(shown)} without {', '.join(self.silenced)} ({change:+d})"
        return f"{self.agent_box.value}, turn {turn}{preview}: {tokens}"

    # --- the static view ----------------------------------------------------------------------

    def static_text(self) -> str:
        """Return the sections with their sources and tokens."""
        whole, shown = self.whole, self.shown
        lines = [clip(self._title(whole, shown), 300)]
        for name, source, role, tokens, left in section_rows(whole, shown):
            gone = {"yes": "", "no": " (left out)"}.get(left, f" ({left})")
            line = f"{name}: {source}, {role or 'not sent'}, {tokens} tokens{gone}"
            lines.append(f"  {clip(line, 298)}")
        return "\n".join(lines)

    def static_html(self) -> Markup:
        """Return the same as tables, with the changes."""
        parts = (self.heading, self.sections, self.changes)
        return block(*(Markup(part.value) for part in parts))
