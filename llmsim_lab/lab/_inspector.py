"""The decisions behind a turn, agent by agent: what each component decided, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

import ipywidgets as w
from markupsafe import Markup

from llmsim_lab._util.checks import plain_text
from llmsim_lab._util.html import (
    CARD,
    NO_STATUS,
    QUIET,
    SERIES_COLOURS,
    STATUS_COLOURS,
    badge,
    details,
    flow,
    join,
    safe,
    short,
    styled,
    visible,
)
from llmsim_lab._util.text import clip, number
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab._html import as_text, block, bold, prose, word_diff
from llmsim_lab.lab._run_reading import Source, decisions_of, simulation_of, turn_name
from llmsim_lab.lab._widget import (
    Choices,
    TurnBrowser,
    checkbox,
    dropdown,
    number_box,
    row,
    status_filter,
    text_box,
)
from llmsim_lab.run._turn import decided, decision_columns, every_chain, reply_of
from llmsim_lab.types import LLMReasoningChain, Status

if TYPE_CHECKING:
    import pandas as pd

    from llmsim_lab.run._turn import RunTurn


COLUMNS = (
    *("turn", "component", "agent", "status", "confidence", "decided", "reasoning", "model"),
    *("attempts", "prompt_tokens", "reply_tokens", "seconds"),
)
"""The columns of ``to_frame``."""

_SHOWN_ELSEWHERE = ("reasoning", "confidence")
_MOST_CHARS = 4_000
_MOST_COMPARED_CHARS = 1_000
_FOLDED_FROM = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedDecision:
    """One decision of a turn, with its reasons.

    Attributes:
        chain: the decision's reasoning.
        decided: what was decided, in words; empty where a rule's record does not say.
    """

    chain: LLMReasoningChain
    decided: str

    @property
    def confidence(self) -> str:
        """How sure it was, in words."""
        sure = self.chain.confidence
        return "not asked" if sure is None else number(sure)


ByAgent = dict[str, list[InspectedDecision]]
"""A turn's decisions, by the agent's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which decisions are wanted; what is empty lets all pass.

    Attributes:
        agent: its name.
        component: its name.
        status: of the decision.
        text: in what was decided or why, upper and lower case alike.
    """

    agent: str = ""
    component: str = ""
    status: str = ""
    text: str = ""

    def __bool__(self) -> bool:
        return any((self.agent, self.component, self.status, self.text))

    def fits(self, decision: InspectedDecision) -> bool:
        """Return True if a decision passes."""
        return (
            self.covers(decision)
            and self.status in ("", decision.chain.status)
            and self.text.lower() in f"{decision.decided}\n{decision.chain.reasoning}".lower()
        )

    def covers(self, decision: InspectedDecision) -> bool:
        """Return True if a decision is of the agent and the component wanted."""
        chain = decision.chain
        return self.agent in ("", chain.agent) and self.component in ("", chain.component)


def decisions_by_agent(turn: RunTurn) -> ByAgent:
    """Return a turn's decisions by agent, in the order in which they followed."""
    _, agents = decisions_of(turn)
    found: ByAgent = {}
    for who in agents:
        chains = [chain for its in who.chains.values() for chain in its]
        # What a rule proposed is not in its chain, but with the turn's actions or answers.
        proposed = who.proposed
        if len(proposed) != len(chains):
            proposed = ("; ".join(proposed), *[""] * len(chains))
        found[who.agent] = [
            InspectedDecision(chain=chain, decided=_decided(chain) or words)
            for chain, words in zip(chains, proposed, strict=False)
        ]
    return found


def _decided(chain: LLMReasoningChain) -> str:
    return "\n".join(
        f"{name}: {as_text(value)}"
        for name, value in reply_of(chain.call).items()
        if name not in _SHOWN_ELSEWHERE
    )


def matching(decisions: ByAgent, wanted: Filter) -> ByAgent:
    """Return the agents with a decision that passes, and those of their decisions to show."""
    return {
        agent: [decision for decision in its if wanted.covers(decision)]
        for agent, its in decisions.items()
        if any(wanted.fits(decision) for decision in its)
    }


# --- as HTML ---------------------------------------------------------------------------------


def _facts(decision: InspectedDecision, *, seconds: bool) -> Markup:
    chain, call = decision.chain, decision.chain.call
    parts = [f"confidence {decision.confidence}"]
    if call is not None:
        parts.append(f"{call.prompt_tokens:,} + {call.reply_tokens:,} tokens")
        parts += [f"{call.attempts} attempts"] if call.attempts > 1 else []
        parts += [f"{call.seconds:.2f} s"] if seconds else []
    facts = styled(join(parts, between=" · "), QUIET, tag="span")
    return styled(join(["by rule" if chain.by_rule else badge(chain.status), facts], between=" · "))


def _said(decision: InspectedDecision) -> Markup:
    parts = [bold(prose(decision.decided, limit=_MOST_CHARS))] if decision.decided else []
    reasoning = decision.chain.reasoning
    shown = prose(reasoning, limit=_MOST_CHARS)
    if len(reasoning) > _FOLDED_FROM:
        shown = details(f"reasoning, {len(reasoning):,} characters", shown)
    return join([*parts, shown])


def _changes(decision: InspectedDecision, before: list[InspectedDecision]) -> Markup:
    """Return what differs from the same component's decision of the turn before."""
    now = decision.chain
    then = next((one for one in before if one.chain.component == now.component), None)
    if then is None:
        changes = [styled("decision: there was none in the turn before")]
    else:
        values = (
            ("confidence", then.confidence, decision.confidence),
            ("status", then.chain.status, now.status),
            ("decided", then.decided, decision.decided),
            ("reasoning", then.chain.reasoning, now.reasoning),
        )
        changes = [
            styled(f"{name}: {was} → {becomes}")
            if name in ("confidence", "status")
            else join([f"{name}:", word_diff(was, becomes, limit=_MOST_COMPARED_CHARS)])
            for name, was, becomes in values
            if was != becomes
        ]
    return join([Markup("<div><em>Changes</em></div>"), *(changes or [safe("none")])])


_AGENTS_A_PAGE = 10
_MOST_TURNS = 20
"""Turns of the matrix, about the one shown: each cell is a button."""
_MOST_STATIC_CHARS = 160


class Matrix(w.VBox):
    """Agents by turns as buttons: how each decision came about, by colour and in the tooltip.

    Args:
        choices: registers the callbacks for clicks.
        on_cell: called with the turn and the agent that were clicked.
    """

    def __init__(self, choices: Choices, on_cell: Callable[[int, str], object]) -> None:
        self._choices, self._on_cell = choices, on_cell
        # Buttons are used again, since making one costs more than all else here.
        self._cells: dict[tuple[int, int], w.Button] = defaultdict(self._button)
        self._lines: dict[int, w.HBox] = defaultdict(lambda: row(w.HTML(), gap="2px"))
        self._where: dict[str, tuple[int, str]] = {}
        super().__init__()

    def draw(self, turns: Sequence[RunTurn], agents: Sequence[str], shown: int) -> None:
        """Show turns of agents, one of the turns marked."""
        chains = {
            (turn.number, chain.agent): chain
            # The worst one last, so that it is the one that is kept.
            for turn in turns
            for chain in sorted(every_chain(turn), key=lambda one: _STATUSES.index(one.status))
        }
        for place, agent in enumerate(agents):
            line = self._lines[place]
            name = line.children[0]
            name.value = str(styled(short(agent, 24), "width:9em;overflow-wrap:anywhere"))
            for at, turn in enumerate(turns):
                chain = chains.get((turn.number, agent))
                self._fill(self._cells[place, at], turn.number, agent, chain, shown)
            line.children = (name, *(self._cells[place, at] for at in range(len(turns))))
        self.children = [self._lines[place] for place in range(len(agents))]

    def _button(self) -> w.Button:
        cell = w.Button(layout=w.Layout(width="2.6em", padding="0"))
        show = self._choices.attempt
        cell.on_click(lambda _: show(lambda: self._on_cell(*self._where[cell.model_id])))
        return cell

    def _fill(
        self, cell: w.Button, turn: int, agent: str, chain: LLMReasoningChain | None, shown: int
    ) -> None:
        how = "nothing decided" if chain is None else _how(chain)
        self._where[cell.model_id] = turn, agent
        cell.description = f"{turn}{_SIGNS.get(how, '')}"
        reason = clip(visible(chain.reasoning), 120) if chain else ""
        cell.tooltip = f"{clip(visible(agent), 80)}, turn {turn}: {how}. {reason}"
        cell.style.button_color = STATUS_COLOURS.get(how, NO_STATUS)
        cell.style.text_color = "#fff"
        cell.style.font_weight = "bold" if turn == shown else "normal"
        cell.layout.border = f"2px solid {SERIES_COLOURS[5] if turn == shown else 'transparent'}"


_STATUSES = get_args(Status)
_SIGNS = {"repaired": "r", "fallback": "f", "failed": "!", "by rule": "·", "nothing decided": "-"}
"""Beside the turn in a cell, so that colour is not all that says how a decision came about."""


class ReasoningInspector(TurnBrowser):
    """Shows a turn's decisions agent by agent, in the order in which components followed.

    Above them is a matrix of agents and turns; a click shows that agent in that turn, and a second
    one all agents again. With a filter, back and forth skip the turns in which nothing passes it.

    Args:
        source: a simulation, a tape, or a tape's file.
        run: for a tape, the run's number; the latest if not given.

    Attributes:
        simulation: the run.
        previous_button, turn_box, next_button, latest_button: choose the turn.
        agent_box, component_box, status_box, text_box: the filter.
        matrix: agents by turns, to click.
        changes_box: show what changed since the turn before.
        page_box: which ten agents are shown; there only where there are more.
        heading, body: what is shown.

    Example:
        >>> inspector = ReasoningInspector("data/tapes/first_run.tape")  # doctest: +SKIP
        >>> inspector.to_frame().groupby("component").confidence.mean()  # doctest: +SKIP
    """

    def __init__(self, source: Source, *, run: int | None = None) -> None:
        super().__init__(simulation_of(source, run=run))
        self.agent_box = dropdown("Agent", width="18em")
        self.component_box = dropdown("Component", width="16em")
        self.status_box = status_filter()
        self.text_box = text_box("Text", placeholder="in decision or reasoning")
        self.changes_box = checkbox("Show what changed since the turn before")
        self.page_box = number_box("Page of agents", value=1, least=1, most=1)
        self.heading, self.body = w.HTML(), w.HTML()
        self.matrix = Matrix(self._choices, self._on_cell)
        self.children = (
            self.heading,
            self.matrix,
            self.navigation,
            row(self.agent_box, self.component_box, self.status_box, self.text_box),
            row(self.changes_box, self.page_box),
            self.status,
            self.error,
            self.body,
        )
        for box in (self.agent_box, self.component_box, self.status_box, self.text_box):
            self._choices.on_choice(box, lambda: self._go(self.turn_box.value))
        for box in (self.page_box, self.changes_box):
            self._choices.on_choice(box, self._draw)
        self._follow_turns()
        self._go(self.simulation.turns[-1].number)

    # --- choosing ----------------------------------------------------------------------------

    @property
    def wanted(self) -> Filter:
        """The filter, from the boxes."""
        return Filter(
            agent=self.agent_box.value or "",
            component=self.component_box.value or "",
            status=self.status_box.value,
            text=self.text_box.value,
        )

    def show(
        self,
        *,
        turn: int | None = None,
        agent: str = "",
        component: str = "",
        status: str = "",
        text: str = "",
    ) -> None:
        """Show a turn and set the filter, as choosing it in the boxes does.

        Args:
            turn: its number; the one shown if not given.
            agent: only this one's decisions; all if empty.
            component: only this one's; all if empty.
            status: only decisions of this status; all if empty.
            text: only those that have this text; all if empty.

        Raises:
            ConfigError: the run has no such turn, or the turn no such agent or component.
        """
        shown = self._named(turn)
        plain_text("text", text)
        chains = decided(shown)
        filters = {
            "agent": (agent, [chain.agent for chain in chains]),
            "component": (component, [chain.component for chain in chains]),
            "status": (status, _STATUSES),
        }
        for name, (given, there) in filters.items():
            if given and given not in there:
                has = clip(", ".join(dict.fromkeys(there)), 300) or "none"
                raise ConfigError(f"turn {shown.number} has no {name} {given!r}; it has: {has}")
        with self._view:
            self._offer(shown, agent=agent, component=component)
            self._choices.set(self.status_box, status)
            self._choices.set(self.text_box, text)
            self._go(shown.number)

    def _on_cell(self, turn: int, agent: str) -> None:
        again = (turn, agent) == (self.turn_box.value, self.agent_box.value)
        self._offer(self._named(turn), agent="" if again else agent)
        self._go(turn)

    def _named(self, turn: int | None = None) -> RunTurn:
        """Return a turn by its number; the one shown if none is given."""
        shown: RunTurn = self.simulation.turns[self._number(turn) - self._span()[0]]
        return shown

    def _has_wanted(self, number: int) -> bool:
        wanted = self.wanted
        return not wanted or bool(matching(decisions_by_agent(self._named(number)), wanted))

    def _go(self, number: int) -> None:
        self._set_turn(number)
        self._offer(self._named())
        self.say("")
        # Back to the first page; how many there are is known when it is drawn.
        self._choices.number(self.page_box, 1, least=1, most=1)
        self._draw()

    def _offer(
        self, turn: RunTurn, *, agent: str | None = None, component: str | None = None
    ) -> None:
        """Offer the turn's agents and components, and choose; what is chosen stays without that."""
        chains = every_chain(turn)
        for box, names, given in (
            (self.agent_box, [chain.agent for chain in chains], agent),
            (self.component_box, [chain.component for chain in chains], component),
        ):
            chosen = (box.value or "") if given is None else given
            # A filter stays while turns without its agent are passed.
            offered = dict.fromkeys(filter(None, [*names, chosen]))
            choices = [("all", ""), *((name, name) for name in offered)]
            self._choices.options(box, choices, chosen)

    # --- showing -----------------------------------------------------------------------------

    def _matching(self) -> tuple[ByAgent, ByAgent]:
        """Return the shown turn's decisions that match, and all of the turn before."""
        shown, (first, _) = self._named(), self._span()
        before = decisions_by_agent(self._named(shown.number - 1)) if shown.number > first else {}
        return matching(decisions_by_agent(shown), self.wanted), before

    def _draw(self) -> None:
        found, before = self._matching()
        page = self._choices.page(self.page_box, len(found), _AGENTS_A_PAGE)
        first, last = self._span()
        begin = max(first, min(self.turn_box.value - _MOST_TURNS // 2, last - _MOST_TURNS + 1))
        turns = self.simulation.turns[begin - first :][:_MOST_TURNS]
        agents = list(dict.fromkeys(c.agent for turn in turns for c in every_chain(turn)))
        # The initial state, in which nobody decides, has no column.
        columns = [turn for turn in turns if turn.number > first]
        self.matrix.draw(columns, agents[page], self.turn_box.value)
        self.heading.value = str(self._heading(len(found)))
        self.body.value = str(self._html(found, before, page=page, seconds=True))

    def _heading(self, agents: int) -> Markup:
        title = turn_name(self._named())
        if agents > _AGENTS_A_PAGE:
            title += f" · {agents} agents"
        return bold(title)

    def _html(self, found: ByAgent, before: ByAgent, *, page: slice, seconds: bool) -> Markup:
        if not found:
            passes = "passes the filter" if self.wanted else "was decided"
            return safe(f"Nothing {passes} in this turn.")
        return join(
            self._cards(agent, decisions, before.get(agent, []), seconds=seconds)
            for agent, decisions in list(found.items())[page]
        )

    def _cards(
        self,
        agent: str,
        decisions: list[InspectedDecision],
        before: list[InspectedDecision],
        *,
        seconds: bool,
    ) -> Markup:
        """Return an agent's decisions side by side, on further lines where the page is narrow."""
        wanted = self.wanted
        cards = []
        for place, decision in enumerate(decisions):
            found = bool(wanted.status or wanted.text) and wanted.fits(decision)
            arrow = "→ " if place else ""
            title = f"{arrow}{decision.chain.component}{' (found)' if found else ''}"
            parts = [bold(title), _facts(decision, seconds=seconds), _said(decision)]
            if self.changes_box.value:
                parts.append(_changes(decision, before))
            cards.append(styled(join(parts), CARD))
        # In an element of its own, so that also a name read from the right stands above its cards.
        name = styled(safe(agent, limit=200), tag="span")
        return block(bold(name), flow(cards), styled("", "height:8px"))

    def to_frame(self, turn: int | None = None) -> pd.DataFrame:
        """Return the decisions that pass the filter as a frame, one row each.

        Columns: ``turn``, ``component``, ``agent``, ``status``, ``confidence``, ``decided``,
        ``reasoning``, ``model``, ``attempts``, ``prompt_tokens``, ``reply_tokens``, ``seconds``.

        Args:
            turn: only this one's; the whole run's if not given.

        Raises:
            ConfigError: the run has no such turn.
        """
        import pandas as pd

        turns = tuple(self.simulation.turns) if turn is None else (self._named(turn),)
        wanted = self.wanted
        rows = [
            {
                "turn": decision.chain.turn,
                "agent": decision.chain.agent,
                "decided": decision.decided,
                **decision_columns(decision.chain, [*filter(None, [decision.chain.call])]),
            }
            for one in turns
            for decisions in decisions_by_agent(one).values()
            for decision in decisions
            if wanted.fits(decision)
        ]
        return pd.DataFrame(rows, columns=list(COLUMNS))

    # --- the static view ----------------------------------------------------------------------

    def static_text(self) -> str:
        """Return the turn's decisions, a line each."""
        found, _ = self._matching()
        lines = [f"Reasoning of {self.simulation.config.name!r}, {turn_name(self._named())}"]
        for agent, decisions in list(found.items())[:_AGENTS_A_PAGE]:
            lines.append(f"  {agent}")
            lines += [f"    {_line(decision)}" for decision in decisions]
        if len(found) > _AGENTS_A_PAGE:
            lines.append(f"  … and {len(found) - _AGENTS_A_PAGE} more agents")
        return visible("\n".join(lines if found else [*lines, "  nothing to show"]))

    def static_html(self) -> Markup:
        """Return the turn's decisions side by side, without seconds."""
        found, before = self._matching()
        cards = self._html(found, before, page=slice(_AGENTS_A_PAGE), seconds=False)
        return self._heading(len(found)) + cards


def _how(chain: LLMReasoningChain) -> str:
    return "by rule" if chain.by_rule else chain.status


def _line(decision: InspectedDecision) -> str:
    chain = decision.chain
    words = clip("; ".join(filter(None, (decision.decided, chain.reasoning))), _MOST_STATIC_CHARS)
    return f"{chain.component} ({_how(chain)}, confidence {decision.confidence}): {words}"
