"""The social simulation: a chart fixes what is legal, users choose, posts travel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import ValidationError

from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.text import faults
from llmsim_lab.errors import ConfigError
from llmsim_lab.prompts import Prompt
from llmsim_lab.run import Ask, Question, Run
from llmsim_lab.run._turn import Series
from llmsim_lab.statechart._agent import Post, interested
from llmsim_lab.statechart._analysis import (
    Cascade,
    all_posts,
    likes_of,
    moves_in,
    statuses_in,
    transition_matrix,
)
from llmsim_lab.statechart._chart import (
    STATE_DESCRIPTIONS,
    AgentState,
    ChartTable,
    Guard,
    Statechart,
)
from llmsim_lab.statechart._config import (
    Chart,
    FeedConfig,
    Population,
    PostConfig,
    SeedPosts,
    Wording,
)
from llmsim_lab.statechart._reasoner import (
    ExplainedNextState,
    MoveQuestion,
    NextState,
    choice_prompt,
    move_prompt,
)
from llmsim_lab.statechart._state import FeedEntry, SocialState, UserState
from llmsim_lab.statechart._turn import (
    FeedSelector,
    MoveEffects,
    MovePlan,
    circulate,
    make_moves,
    next_state,
    plan_turn,
    triggers_in,
)
from llmsim_lab.statechart._writer import Draft, phrase, post_prompt

if TYPE_CHECKING:
    import pandas as pd

_SERIES = tuple(
    Series(column=name, label=name.capitalize(), unit="a turn", short=name)
    for name in ("likes", "replies", "reshares", "posts")
) + tuple(
    Series(column=state.value, label=state.value.replace("_", " ").capitalize(), unit="users")
    for state in AgentState
)


class SocialSimulation(Run[SocialState]):
    """A run of the social simulation.

    A turn, for each user: a tick; if time is up the trigger is ``timeout``, else one that follows
    from the state; the chart says where it may lead; where there are several ways the user is
    asked, all such users at once; then the moves are made, and the authors of posts are asked for
    their words.

    Each user is a player. ``players={"reasoner": ...}`` answers for all where they go, ``"writer"``
    what they write: the rule draws by how well a post fits, and writes set phrases.

    Args:
        population: the users, or how many: they are then made from the shipped profiles.
        seed_posts: what the feeds begin with, or how many of the shipped posts.
        chart: a statechart instead of the shipped ``social_feed``: a file, or the content of one.
        feed: how the next post is chosen.
        rationale: whether users give a reason, in one sentence.
        shuffle: whether the options stand in a seeded random order.
        decide: ``sample`` or ``mode`` asks a model for the probability of each option, and draws,
            or takes the likeliest.
        wording: prompts of your own, by the name of the one whose place they take, such as
            ``social_reasoner``: a text, or a file that ends in ``.md``.

    Attributes:
        guards: what the chart may name as guards; a class derived from this one may have others. A
            guard is called more than once for a move, so that its answer must follow from the agent
            (without its history) and the post alone.
    """

    kind: ClassVar[str] = "social"
    guards: ClassVar[Mapping[str, Guard]] = {"interested": interested}

    population: Population = 12  # type: ignore[assignment]
    seed_posts: SeedPosts = 8  # type: ignore[assignment]
    chart: Chart = None
    feed: FeedConfig = FeedConfig()
    rationale: bool = False
    shuffle: bool = True
    decide: Literal["sample", "mode"] | None = None
    wording: Wording = {}  # noqa: RUF012 - a parameter's default, which is frozen

    def ready(self) -> None:
        """Make the chart, and what chooses posts."""
        if self.rationale and self.decide:
            raise ConfigError(
                f"rationale has no effect with decide={self.decide!r}, which asks for probabilities"
            )
        self._users = self.config.population
        self._chart = _chart_of(self.config.chart, self.guards)
        self._selector = FeedSelector(self.feed, self._users, seed=self.seed)

    def start(self) -> SocialState:
        """Return the network before the first turn: everybody in the chart's initial state."""
        posts = tuple(
            Post(**dict(post), id=number, root=number)
            for number, post in enumerate(self.config.seed_posts, start=1)
        )
        people = tuple(
            UserState(
                user.name,
                self._chart.initial,
                seen=tuple(post.id for post in posts if post.author == user.name),
            )
            for user in self._users
        )
        feed = circulate([], [FeedEntry(post) for post in posts], number=0, config=self.feed)
        return SocialState(people=people, feed=feed, new_posts=posts, next_post=len(posts) + 1)

    async def turn(self, state: SocialState, ask: Ask) -> SocialState:
        """Return the network after every user's move."""
        plan = self._due(state)
        moves = plan.ambiguous
        choices = await ask.each(
            moves,
            self._reply,
            lambda name: self._move_prompt(moves[name]),
            tag="reasoner",
            limits=lambda name: self._options(moves[name]),
            decide=self.decide,
            otherwise=lambda name: self._choice(moves[name].options[0], "no valid answer"),
            move=moves.get,
        )
        chosen = {name: AgentState(choice.next_state) for name, choice in choices.items()}
        effects = make_moves(plan, chosen, state.next_post, self.seed)
        for move in effects.moves:
            if move.decided_by == "reasoner":
                ask.note(move.agent, moved_to=move.target.value)
        posts = await self._written(ask, effects)
        return next_state(state, plan, effects, posts, self.feed)

    async def _written(self, ask: Ask, effects: MoveEffects) -> list[Post]:
        """Return the turn's new posts with their texts; a reshare has that of another."""
        drafts = {author.name: (author, post, about) for author, post, about in effects.drafts}
        texts = await ask.each(
            [name for name, (_, post, _) in drafts.items() if post.kind != "reshare"],
            Draft,
            lambda name: post_prompt(*drafts[name], self._worded("social_post")),
            tag="writer",
            otherwise=lambda name: phrase(drafts[name][1], seed=self.seed),
            post=lambda name: drafts[name][1],
        )
        return [
            replace(post, text=texts[name].text) if name in texts else post
            for name, (_, post, _) in drafts.items()
        ]

    def rule(self, question: Question) -> Any:
        """Return a draw by how well the post fits the user's interests; for writers a phrase."""
        if question.tag == "writer":
            return Draft(text=phrase(question.values["post"], seed=self.seed))
        return self._choice(question.values["move"].by_rule(self.seed), "drawn by the rule")

    def changed(self, state: SocialState, values: Mapping[str, Any]) -> SocialState:
        """Return the network with these users ``banned``, and no others, or with a ``post`` put in.

        A banned user may not act; the user's posts leave the feeds, others' reshares stay.
        """
        if unknown := values.keys() - {"banned", "post"}:
            raise ConfigError(
                f"{min(unknown)!r} is nothing that can be set in a {type(self).__name__}; it takes "
                "banned, a list of names, and post: {'author': ..., 'text': ..., 'topics': [...]}"
            )
        if "banned" in values:
            state = _with_banned(state, values["banned"])
        if "post" in values:
            state = _with_post(state, values["post"], self.feed)
        return state

    # --- what is asked -----------------------------------------------------------------------

    @property
    def _reply(self) -> type[Any]:
        return ExplainedNextState if self.rationale else NextState

    def _choice(self, state: AgentState, why: str) -> NextState | ExplainedNextState:
        if self.rationale:
            return ExplainedNextState(rationale=why, next_state=state)
        return NextState(next_state=state)

    def _worded(self, name: str) -> Prompt:
        own = self.config.wording.get(name)
        return self.prompt(name if own is None else Prompt.parse(own, name=name))

    def _ordered(self, move: MoveQuestion) -> list[AgentState]:
        # A rule reads none, and with ``decide`` a model is asked in several as it is.
        reads = not self.decide and self.seat(move.agent.name, tag="reasoner") != self.rule
        return move.ordered(self.seed if self.shuffle and reads else None)

    def _options(self, move: MoveQuestion) -> dict[str, Any]:
        ordered = self._ordered(move)
        if self.decide:
            return {"next_state": {it.value: f"{it} - {STATE_DESCRIPTIONS[it]}" for it in ordered}}
        return {"next_state": [option.value for option in ordered]}

    def _move_prompt(self, move: MoveQuestion) -> str:
        if self.decide:
            return choice_prompt(move, self._worded("social_choice"))
        prompt = self._worded("social_reasoner")
        return move_prompt(move, self._ordered(move), prompt, self.rationale)

    def questions(self, turn: int | None = None) -> list[MoveQuestion]:
        """Return what the chart leaves open in a turn, which is what users are asked.

        Others can be asked the same: ``await Reasoner(client).decide(questions)``.

        Args:
            turn: one that was played, or the next one, which is the default.

        Raises:
            ConfigError: the run has no such turn.
        """
        at = self.turn_number + 1 if turn is None else whole_number("turn", turn)
        first = self.turns[0].number
        if not first < at <= self.turn_number + 1:
            raise ConfigError(
                f"turn {at} has no questions here; ask for one from {first + 1} to "
                f"{self.turn_number + 1}"
            )
        return list(self._due(self.turns[at - first - 1].state).ambiguous.values())

    def _due(self, state: SocialState) -> MovePlan:
        return plan_turn(
            state, self._users, chart=self._chart, selector=self._selector, seed=self.seed
        )

    # --- views -------------------------------------------------------------------------------

    @property
    def statechart(self) -> Statechart[AgentState]:
        """What is legal."""
        return self._chart

    @property
    def series(self) -> Sequence[Series]:
        """Engagement, then the number of users in each state."""
        return _SERIES

    @property
    def posts(self) -> dict[int, Post]:
        """All posts of the run so far, by id, those it began with included."""
        return all_posts(self.turns)

    def moves_frame(self) -> pd.DataFrame:
        """Return one row a transition.

        Columns: ``turn``, ``agent``, ``trigger``, ``source``, ``target``, ``decided_by``,
        ``status``, ``post``, the id of what it was about or missing.
        """
        import pandas as pd

        statuses = {turn.number: statuses_in(turn) for turn in self.turns}
        rows = [
            {
                "turn": turn.number,
                **move._asdict(),
                "source": move.source.value,
                "target": move.target.value,
                "status": statuses[turn.number].get(move.agent, "ok"),
            }
            for turn, move in moves_in(self.turns)
        ]
        columns = ["turn", "agent", "trigger", "source", "target", "decided_by", "status", "post"]
        # pandas' own integers: with None in it, a column would become floats.
        return pd.DataFrame(rows, columns=columns).astype({"post": "Int64"})

    def transition_matrix(self, *, shares: bool = True) -> pd.DataFrame:
        """Return how often users went from one state (rows) to another (columns).

        Args:
            shares: of the moves out of a state, which add up to 1 in a row (a state that nobody
                left has zeros), instead of counts.
        """
        return transition_matrix(self.turns, shares=shares)

    def post_frame(self) -> pd.DataFrame:
        """Return one row a post and how it was received; the index is its id.

        Columns: ``author``, ``turn``, ``kind``, ``topics``, ``text``, ``likes``, ``replies``,
        ``reshares``, ``engagement`` (the three together), ``root``. What answers a reshare counts
        for the reshare. A run that began from a state continues that state's counts.
        """
        import pandas as pd

        posts = self.posts
        likes = likes_of(self.turns)
        first = {entry.post.id: entry for entry in self.turns[0].state.feed}
        old = all_posts(self.turns[:1]).keys()
        answers = Counter(
            (post.parent, post.kind)
            for post in posts.values()
            if post.id not in old or post.parent not in first  # the first state counted those
        )
        for number, entry in first.items():
            answers[number, "reply"] += entry.replies
            answers[number, "reshare"] += entry.reshares
        rows = []
        for number, post in sorted(posts.items()):
            about = number, post.author, post.turn, post.kind, ", ".join(post.topics), post.text
            received = likes[number], answers[number, "reply"], answers[number, "reshare"]
            rows.append((*about, *received, sum(received), post.root))
        columns = ["post", "author", "turn", "kind", "topics", "text", "likes", "replies"]
        frame = pd.DataFrame(rows, columns=[*columns, "reshares", "engagement", "root"])
        return frame.astype({"root": "Int64"}).set_index("post")

    def agent_frame(self) -> pd.DataFrame:
        """Return one row a user; the index is the name.

        Columns: ``moves``; ``decided``, of those the ones a reasoner decided; ``fallbacks``, of
        those the ones that fell back; ``posts``, ``replies``, ``reshares``, ``likes``, made;
        ``received``, likes, replies and reshares that the user's posts got; ``state``, the latest.
        """
        import pandas as pd

        moves, posts = self.moves_frame(), self.post_frame()
        decided, authors = moves.query("decided_by == 'reasoner'"), posts.groupby("author")
        made = posts.groupby(["kind", "author"]).size()
        likes = Counter(
            like.agent for turn in self.turns if turn.number for like in turn.state.likes
        )
        counts = {
            "moves": moves["agent"].value_counts(),
            "decided": decided["agent"].value_counts(),
            "fallbacks": decided.query("status == 'fallback'")["agent"].value_counts(),
            "posts": made.get("original"),
            "replies": made.get("reply"),
            "reshares": made.get("reshare"),
            "likes": pd.Series(likes),
            "received": authors["engagement"].sum(),
        }
        index = pd.Index([person.name for person in self.state.people], name="agent")
        frame = pd.DataFrame(counts, index=index).fillna(0).astype(int)
        return frame.assign(state=[person.state.value for person in self.state.people])

    def cascades(self) -> list[Cascade]:
        """Return the run's cascades (a post with all that answered or reshared it), largest first.

        Of two of one size the older comes first.
        """
        likes = likes_of(self.turns)
        together: dict[int, list[Post]] = {}
        # By id, so that a root, which is older, comes first in its cascade.
        for number, post in sorted(self.posts.items()):
            root = post.root if post.root is not None else number
            together.setdefault(root, []).append(post)
        found = [
            Cascade(tuple(members), sum(likes[post.id] for post in members))
            for members in together.values()
        ]
        return sorted(found, key=lambda cascade: (-cascade.size, cascade.root.id))

    def cascade_of(self, post: int) -> Cascade:
        """Return the cascade that a post is in.

        Raises:
            ConfigError: the run has no such post.
        """
        for cascade in self.cascades():
            if any(member.id == post for member in cascade.posts):
                return cascade
        raise ConfigError(f"the run has no post {post}; simulation.post_frame() lists them")

    def cascade_frame(self) -> pd.DataFrame:
        """Return one row a cascade, the largest first; the index is its first post's id.

        Columns: ``author``, ``turn``, ``text`` of the first post; ``size``, ``depth``, ``breadth``;
        ``replies``, ``reshares``, ``likes`` in all of it; ``users``, how many different authors.
        """
        import pandas as pd

        rows = []
        for cascade in self.cascades():
            first, kinds = cascade.root, Counter(post.kind for post in cascade.posts[1:])
            users = len({post.author for post in cascade.posts})
            about = first.id, first.author, first.turn, first.text
            form = cascade.size, cascade.depth, cascade.breadth
            rows.append((*about, *form, kinds["reply"], kinds["reshare"], cascade.likes, users))
        columns = ["root", "author", "turn", "text", "size", "depth", "breadth"]
        columns += ["replies", "reshares", "likes", "users"]
        return pd.DataFrame(rows, columns=columns).set_index("root")

    @property
    def fallback_rate(self) -> float | None:
        """Share of the users' decisions that fell back to the first option; None if none."""
        found = [it for turn in self.turns for it in statuses_in(turn).values()]
        return sum(status == "fallback" for status in found) / len(found) if found else None


def _with_banned(state: SocialState, names: str | Iterable[str]) -> SocialState:
    banned = {names} if isinstance(names, str) else set(names)
    there = [person.name for person in state.people]
    if unknown := banned - set(there):
        raise ConfigError(
            f"there is no user {min(unknown)!r} to ban; the users are {', '.join(there[:10])}"
            f"{' ...' if there[10:] else ''}"
        )
    people = tuple(person._replace(banned=person.name in banned) for person in state.people)
    return state.replace(people=people)


def _with_post(state: SocialState, given: Any, config: FeedConfig) -> SocialState:
    try:
        words = PostConfig.model_validate(given)
    except ValidationError as error:
        raise ConfigError(f"post.{faults(error)}") from error
    number = state.next_post
    post = Post(**dict(words), id=number, turn=state.at, root=number)
    # Users do not see their own posts, nor one that is put in in their name.
    people = tuple(
        person._replace(seen=(*person.seen, number)) if person.name == post.author else person
        for person in state.people
    )
    return state.replace(
        people=people,
        feed=circulate(state.feed, [FeedEntry(post)], number=state.at, config=config),
        new_posts=(*state.new_posts, post),
        next_post=number + 1,
    )


def _chart_of(table: ChartTable | None, guards: Mapping[str, Guard]) -> Statechart[AgentState]:
    """Return the chart of a run.

    Raises:
        ConfigError: it is not valid, or has triggers that no turn fires.
    """
    chart = Statechart.load(table, guards=guards)
    for move in chart.transitions:
        if move.trigger not in (fired := triggers_in(move.source)):
            raise ConfigError(
                f"chart: {move}: no turn fires {move.trigger!r} in the state {move.source!s}; "
                f"what is fired there: {', '.join(fired)}"
            )
    return chart
