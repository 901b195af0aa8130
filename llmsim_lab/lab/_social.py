"""Widgets for the social simulation: all users' states turn by turn, and one user's story."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import ipywidgets as w
from markupsafe import Markup

from llmsim_lab._util.html import (
    ASIDE,
    BUBBLE,
    CARD,
    LARGE,
    QUIET,
    STRONG,
    badge,
    details,
    flow,
    join,
    pairs,
    pre,
    safe,
    short,
    styled,
    table,
    visible,
)
from llmsim_lab._util.text import clip, printable
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab._html import block, heading, lowered, part_of, prose, sideways
from llmsim_lab.lab._run_reading import Source, simulation_of
from llmsim_lab.lab._widget import LabWidget, Pace, TurnBrowser, dropdown, flex, number_box, row
from llmsim_lab.lab.charts._export import figure_html
from llmsim_lab.lab.figures import state_figure
from llmsim_lab.statechart import AgentState, Post, SocialSimulation
from llmsim_lab.statechart._analysis import Cascade, all_posts, cascades
from llmsim_lab.statechart._state import FeedEntry, Move, SocialTurn, UserState

if TYPE_CHECKING:
    from llmsim_lab.types import LLMReasoningChain


def chart_html(simulation: SocialSimulation) -> Markup:
    """Return the chart's transitions as a table."""
    arrows = [move.arrow for move in simulation.chart.transitions]
    rows = [(it.source, it.full_label, it.target) for it in arrows]
    listed = table(("from", "trigger", "to"), rows, caption="Chart of states")
    return sideways(listed, name="Chart of states")


def _social(source: Source, run: int | None, widget: object) -> SocialSimulation:
    simulation: Any = simulation_of(source, run=run)
    if not isinstance(simulation, SocialSimulation):
        raise ConfigError(
            f"{type(widget).__name__} shows social simulations; this one is of the kind "
            f"{getattr(simulation, 'kind', type(simulation).__name__)!r}"
        )
    return simulation


_MOST_CHARS = 4_000
_MOST_TURNS = 200
"""Turns drawn, the latest ones: so drawing costs the same however long a run is."""
_MOST_POSTS, _MOST_IN_TREE = 30, 60
_REACTIONS = {"like": "liked by", "reply": "replies by", "reshare": "reshared by"}
_SIGNS = {"original": "●", "reply": "↩", "reshare": "↻"}


class Reactions:
    """Who liked, replied to and reshared what, up to a turn.

    Args:
        turns: a run's, up to that one.

    Attributes:
        posts: all of them, by id.
        by_post: who reacted to each, by the kind of reaction.
        pairs: how often each user reacted to each other one.
    """

    def __init__(self, turns: Sequence[SocialTurn]) -> None:
        self.posts = all_posts(turns)
        self.by_post: dict[int, dict[str, list[str]]] = {}
        self.pairs: Counter[tuple[str, str]] = Counter()
        likes = [(like.agent, "like", like.post) for turn in turns for like in turn.likes]
        answers = [(post.author, post.kind, post.parent) for post in self.posts.values()]
        for who, kind, number in (*likes, *answers):
            if number in self.posts:
                self.by_post.setdefault(number, {}).setdefault(kind, []).append(who)
                self.pairs[who, self.posts[number].author] += 1

    def feed_html(self, entries: Sequence[FeedEntry]) -> Markup:
        """Return posts in circulation, the latest first, with who reacted."""
        latest = sorted(entries, key=lambda entry: -entry.post.id)
        cards = [
            styled(
                join([self.post_html(entry.post), styled(self._reactions(entry), QUIET)]),
                f"{CARD};margin-bottom:4px",
                role="listitem",
            )
            for entry in latest[:_MOST_POSTS]
        ]
        more = len(latest) - _MOST_POSTS
        cards += [safe(f"… and {more} older posts")] if more > 0 else []
        return styled(join(cards), role="list") if cards else safe("No post is in circulation.")

    def post_html(self, post: Post, *, css: str = "") -> Markup:
        """Return a post with its author, and whom it answers."""
        to = self.posts.get(post.parent or 0)  # posts are numbered from 1
        how = {"reply": "replied to", "reshare": "reshared"}.get(post.kind, "")
        whom = f" {how} {to.author}" if to else ""
        head = [
            f"{_SIGNS[post.kind]} ",
            styled(safe(post.author, limit=80), STRONG, tag="span"),
            styled(f"{whom} · turn {post.turn}", QUIET, tag="span"),
        ]
        # A reshare's words are those of the post above it.
        text = prose(post.text, limit=_MOST_CHARS) if post.kind != "reshare" else ""
        return styled(join([*head, text]), css)

    def _reactions(self, entry: FeedEntry) -> Markup:
        by = self.by_post.get(entry.post.id, {})
        told = [f"{_REACTIONS[kind]} {', '.join(names)}" for kind, names in by.items()]
        # What came before the run began has counts and no names.
        lost = entry.engagement - sum(map(len, by.values()))
        told += [f"{lost} earlier reactions"] if lost > 0 else []
        return short("; ".join(told) or "no reactions yet", 200)

    def tree_html(self, cascade: Cascade) -> Markup:
        """Return a cascade as a tree, each post below what it answers."""
        rows = [
            self.post_html(post, css=f"margin-left:{16 * min(level, 12)}px;{ASIDE};margin-top:4px")
            for post, level in islice(cascade.walk(), _MOST_IN_TREE)
        ]
        more = cascade.size - _MOST_IN_TREE
        return join([*rows, f"… and {more} more" if more > 0 else ""])

    def pairs_html(self) -> Markup:
        """Return who reacted to whom most often as a table."""
        rows = [(who, whom, times) for (who, whom), times in self.pairs.most_common(10)]
        if not rows:
            return safe("Nobody has reacted to anybody yet.")
        return table(("who", "reacted to", "times"), rows, caption="Who reacts to whom")


class SocialBoard(TurnBrowser):
    """Shows a network turn by turn: the feed, who reacts to whom, cascades, what users are doing.

    It follows the run, whoever plays it: a cell, a TurnStepper, another widget.

    Args:
        source: a social simulation, a tape, or a tape's file.
        run: for a tape, the run's number; the latest if not given.

    Attributes:
        simulation: the run.
        previous_button, turn_box, next_button, latest_button: choose the turn.
        cascade_box: chooses the cascade, the largest first.
        heading, feed, network, tree, picture, chart: what is shown.

    Example:
        >>> board = SocialBoard("data/tapes/social.tape")  # doctest: +SKIP
    """

    def __init__(self, source: Source, *, run: int | None = None) -> None:
        self.simulation: SocialSimulation
        super().__init__(_social(source, run, self))
        self._drawn: tuple[int, int] | None = None
        box = dropdown("Cascade", width="32em")
        self.cascade_box = self._choices.on_choice(box, lambda: self._go(self.turn_box.value))
        self.heading, *parts = (w.HTML() for _ in range(6))
        self.feed, self.network, self.tree, self.picture, self.chart = parts
        left = w.VBox((self.feed, self.picture), layout=flex(1, "24em"))
        right = w.VBox((self.network, self.cascade_box, self.tree), layout=flex(1, "24em"))
        self.children = (
            self.heading,
            self.navigation,
            self.status,
            self.error,
            row(left, right, gap="16px"),
            self.chart,
        )
        self._pace = Pace(self._grew, self.worker.call)
        self.follow(self.simulation, self._pace.ask)
        self.show(self.simulation.turn_number)

    def show(self, turn: int) -> None:
        """Show a turn.

        Raises:
            ConfigError: the run has no such turn.
        """
        self.go(self._number(turn))

    def refresh(self) -> None:
        """Show the run as it is now; follows the latest turn if that one was shown."""
        self._grew()

    def _go(self, number: int) -> None:
        self._set_turn(number)
        turns = self.simulation.turns
        trees = cascades(self._shown)[:_MOST_POSTS]
        # As short as the list is wide, which would cut off how many posts there are.
        offered = [(f"{clip(str(one.root), 36)} ({one.size} posts)", one.root.id) for one in trees]
        self._choices.options(self.cascade_box, offered, self.cascade_box.value)
        self.cascade_box.layout.display = "" if trees else "none"
        self.heading.value = str(styled(self._title, LARGE, tag="strong"))
        feed, network, tree = self._parts()
        self.feed.value = str(part_of("Feed", lowered(feed, name="Feed")))
        self.network.value = str(part_of("Who reacts to whom", network))
        self.tree.value = str(lowered(tree, name="Cascade", most="18em"))
        self.chart.value = str(chart_html(self.simulation))
        span = (turns[max(0, len(turns) - _MOST_TURNS)].number, turns[-1].number)
        if span != self._drawn:
            self._drawn = span
            self.picture.value = str(figure_html(state_figure(turns[-_MOST_TURNS:])))

    @property
    def _shown(self) -> list[SocialTurn]:
        """The turns up to the one shown."""
        turns = self.simulation.turns
        return turns[: int(self.turn_box.value) - turns[0].number + 1]

    @property
    def _title(self) -> str:
        turn = self._shown[-1]
        name = clip(visible(self.simulation.config.name), 80)
        users = len(turn.state.people)
        return f"{name}, turn {turn.number}: {users:,} users; choices left open: {turn.asked:,}"

    def _parts(self) -> tuple[Markup, Markup, Markup]:
        """Return the feed, the network and the cascade chosen."""
        turns = self._shown
        reactions = Reactions(turns)
        chosen = (one for one in cascades(turns) if one.root.id == self.cascade_box.value)
        tree = next(map(reactions.tree_html, chosen), Markup())
        return reactions.feed_html(turns[-1].state.feed), reactions.pairs_html(), tree

    def _counts(self, place: int) -> Counter[AgentState]:
        """Return how many users are in each state, after the turn shown or one before it."""
        turns = self._shown
        # Before the first turn there is none; compared with itself, nothing has changed in it.
        return Counter(one.state for one in turns[max(place, -len(turns))].state.people)

    # --- the static view ----------------------------------------------------------------------

    def _counts_and_changes(self) -> list[tuple[str, int, str]]:
        now, before = self._counts(-1), self._counts(-2)
        return [(s.value, now[s], f"{now[s] - before[s]:+}") for s in AgentState]

    def static_text(self) -> str:
        """Return the shown turn's counts, and the change since the turn before."""
        with self._view:
            counts = [f"  {name}: {n} ({by})" for name, n, by in self._counts_and_changes()]
            return "\n".join([f"SocialBoard of {self._title}", *counts])

    def static_html(self) -> Markup:
        """Return the same as a table, with the feed, the network, the cascade and the chart."""
        with self._view:
            feed, network, tree = self._parts()
            counts = table(
                ("state", "users", "change"), self._counts_and_changes(), caption="Users by state"
            )
            left = [counts, part_of("Feed", feed)]
            right = [network, part_of("Cascade", tree)]
            chart = chart_html(self.simulation)
            both = flow([join(left), join(right)], basis="24em")
            return block(styled(self._title, STRONG, tag="p"), both, chart)


_MOVES_A_PAGE = 20
_BRIEF = 90
_IN_WORDS = {
    ("opens_app", AgentState.SCROLLING): "opened the app",
    ("sees_post", AgentState.EVALUATING): "stopped at a post",
    ("feed_empty", AgentState.IDLE): "found nothing new and put the app away",
    ("decides", AgentState.SCROLLING): "scrolled on",
    ("decides", AgentState.ENGAGING_LIKE): "liked it",
    ("decides", AgentState.ENGAGING_REPLY): "replied",
    ("decides", AgentState.ENGAGING_RESHARE): "reshared it",
    ("decides", AgentState.COMPOSING): "began to write a post",
    ("decides", AgentState.RESTING): "took a rest",
    ("finishes", AgentState.SCROLLING): "was done and scrolled on",
    ("timeout", AgentState.RESTING): "had scrolled for long and took a rest",
    ("timeout", AgentState.IDLE): "had rested",
}
"""What a move was; those of other charts are told by their trigger."""


_Event = tuple[SocialTurn, Move]


class AgentStory(LabWidget):
    """Shows one user's transitions, the posts they were about, and what the reasoner said.

    Args:
        source: a social simulation, a tape, or a tape's file.
        run: for a tape, the run's number; the latest if not given.
        agent: whose story; the first user's if not given.

    Attributes:
        simulation: the run.
        agent_box: chooses the user.
        page_box: which twenty transitions are shown, 1 for the latest; there only where there are
            more.
        heading, chart, body: what is shown.

    Example:
        >>> AgentStory("data/tapes/social.tape", agent="Liam Byrne")  # doctest: +SKIP
    """

    def __init__(self, source: Source, *, run: int | None = None, agent: str | None = None) -> None:
        super().__init__()
        self.simulation = _social(source, run, self)
        self._pace = Pace(self.refresh, self.worker.call)
        self.follow(self.simulation, self._pace.ask)
        chosen = self._choices.on_choice
        user = dropdown("User", width="24em")
        self.agent_box = chosen(user, lambda: self.show(user.value))
        page = number_box("Page (1 is the latest)", value=1, least=1, most=1)
        self.page_box = chosen(page, self.refresh)
        self.page_box.layout.width = "16em"
        self.heading, self.chart, self.body = w.HTML(), w.HTML(), w.HTML()
        self.children = (
            row(self.agent_box, self.page_box),
            self.status,
            self.error,
            self.heading,
            self.body,
            self.chart,
        )
        names = [agent.name for agent in self.simulation.agents]
        self._choices.options(self.agent_box, [(name, name) for name in names])
        self.show(names[0] if agent is None else agent)

    def show(self, agent: str, *, page: int = 1) -> None:
        """Show a user.

        Args:
            agent: the user's name.
            page: which twenty transitions, 1 for the latest.

        Raises:
            ConfigError: there is no such user, or no such page.
        """
        names = [agent.name for agent in self.simulation.agents]
        if agent not in names:
            raise ConfigError(
                f"there is no user {agent!r}; there are {clip(', '.join(names), 300)}"
            )
        with self._view:
            pages = max(1, -(-len(self._moves(agent)) // _MOVES_A_PAGE))
            if not 1 <= page <= pages:
                raise ConfigError(f"page {page} is not there; {agent} has {pages}")
            self._choices.set(self.agent_box, agent)
            self._choices.number(self.page_box, page, least=1, most=pages)
            self.refresh()

    def refresh(self) -> None:
        """Show the run as it is now."""
        with self._view:
            self.heading.value = str(self._who())
            self.chart.value = str(chart_html(self.simulation))
            self.body.value = str(self._list(self._page()))

    def _moves(self, agent: str) -> list[_Event]:
        turns: Sequence[SocialTurn] = self.simulation.turns
        return [(turn, move) for turn in turns for move in turn.moves if move.agent == agent]

    @property
    def _person(self) -> UserState:
        """The user as it is now."""
        person: UserState = self.simulation.state.people[self.agent_box.index]
        return person

    def _page(self) -> Sequence[_Event]:
        # The first page has the latest, and each page is read from its oldest on.
        latest = self._moves(self.agent_box.value)[::-1]
        return latest[self._choices.page(self.page_box, len(latest), _MOVES_A_PAGE)][::-1]

    def _who(self) -> Markup:
        profile = self.simulation.config.agents[self.agent_box.index]
        person = self._person
        banned = "; banned" if person.banned else ""
        known = {
            "Interests": ", ".join(profile.interests),
            "Personality": profile.personality,
            "Now": f"{person.state.value}, for {person.ticks} turns{banned}",
        }
        name = styled(safe(profile.name, limit=200), LARGE)
        return join([name, pairs((what, value) for what, value in known.items() if value)])

    def _list(self, events: Sequence[_Event]) -> Markup:
        """Return moves as a timeline: what happened in plain words, the post, and who decided."""
        if not events:
            return safe("Nothing has happened yet.")
        items, posts = [], self.simulation.posts
        before: Move | None = None
        for turn, move in events:
            again = before is not None and before.post == move.post
            before = move
            words = _IN_WORDS.get((move.trigger, move.target), f"moved on: {move.trigger}")
            parts = [
                styled(turn.number, tag="strong"),
                f" {words} ",
                _why(turn, move),
                "" if again else _about(posts.get(move.post or 0)),
                *(
                    styled(prose(f"“{post.text}”", limit=_MOST_CHARS), BUBBLE)
                    for post in turn.state.new_posts
                    if post.author == move.agent and post.kind != "reshare"
                ),
            ]
            items.append(styled(join(parts), f"{ASIDE};padding-bottom:8px", role="listitem"))
        title = heading(f"What {visible(self.agent_box.value)} did, turn by turn")
        return block(title, styled(join(items), role="list"))

    # --- the static view ----------------------------------------------------------------------

    def static_text(self) -> str:
        """Return the user's shown transitions, a line each."""
        with self._view:
            name = printable(self.agent_box.value)
            lines = [f"Story of {name}, up to turn {self.simulation.turn_number}"]
            posts = self.simulation.posts
            for turn, move in self._page():
                post = posts.get(move.post or 0)
                about = f" | {post.author}: {clip(post.text, 60)}" if post else ""
                chain = _chain(turn, move)
                why = f" | {move.status}: {clip(chain.reasoning, 120)}" if chain else ""
                text = f"{move.trigger}: {move.source.value} → {move.target.value}{about}{why}"
                lines.append(f"  {turn.number}  {printable(text, keep=' ')}")
            return "\n".join(lines if len(lines) > 1 else [*lines, "  nothing has happened yet"])

    def static_html(self) -> Markup:
        """Return the same as a timeline, with the chart."""
        with self._view:
            chart = chart_html(self.simulation)
            return join([Markup(self.heading.value), Markup(self.body.value), chart])


def _about(post: Post | None) -> Markup:
    if post is None:
        return Markup()
    brief = f"{post.author}: {clip(post.text, _BRIEF)}"
    if len(post.text) <= _BRIEF:
        return styled(brief, QUIET, dir="auto")
    return details(brief, pre(post.text, limit=_MOST_CHARS))


def _chain(turn: SocialTurn, move: Move) -> LLMReasoningChain | None:
    if move.decided_by != "reasoner":
        return None
    who = (move.agent, "reasoner")
    return next((one for one in turn.chains if (one.agent, one.component) == who), None)


def _why(turn: SocialTurn, move: Move) -> Markup:
    """Return the move as the chart has it, who decided it, and why."""
    chain = _chain(turn, move)
    by = {"chart": "chart: one way only", "reasoner": "rule", "timeout": "chart: time was up"}
    names = styled(f"{move.trigger}: {move.source.value} → {move.target.value}", QUIET, tag="span")
    if chain is None:
        return join([names, styled(by[move.decided_by], QUIET, tag="span")], between=" · ")
    reason = pre(chain.reasoning, limit=_MOST_CHARS)
    because = details(f"because: {clip(chain.reasoning, _BRIEF)}", reason)
    return join([names, " ", badge(chain.status), because])
