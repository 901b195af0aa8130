"""The social simulation: a chart fixes what is legal, users choose, posts travel."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from llmsim_lab._util.checks import known_names
from llmsim_lab._util.tables import frame_of
from llmsim_lab.errors import ConfigError
from llmsim_lab.prompts import RenderedPrompt
from llmsim_lab.run import Ask, Question, Run
from llmsim_lab.run.config import players_seed
from llmsim_lab.statechart._agent import Post, interested
from llmsim_lab.statechart._analysis import Cascade
from llmsim_lab.statechart._chart import AgentState, Guard, Statechart
from llmsim_lab.statechart._turn import (
    NewPost,
    check_state,
    circulate,
    kept_posts,
    make_moves,
    next_state,
    plan_turn,
    triggers_in,
)
from llmsim_lab.statechart._writer import Draft, phrase, post_prompt
from llmsim_lab.statechart.config import (
    MOST_SCORES,
    Chart,
    FeedConfig,
    Population,
    PostConfig,
    SeedPosts,
)
from llmsim_lab.statechart.reasoner import MoveQuestion, move_prompt, next_state_type
from llmsim_lab.statechart.state import FeedEntry, SocialState, UserState

if TYPE_CHECKING:
    import pandas as pd


class SocialSimulation(Run[SocialState]):
    """A run of the social simulation.

    In a turn, each user's tick is counted. If time is up the trigger is ``timeout``, else it
    follows from the state, and the chart says where it may lead. All users with several options
    are asked at once. Then the moves are made, and the authors of posts are asked for their words.

    Each user is a player. ``players={"reasoner": ...}`` answers for all where they go, ``"writer"``
    what they write: the rule draws by how well a post fits, and writes set phrases.

    Args:
        population: the users, or how many: they are then made from the shipped profiles.
        seed_posts: what the feeds begin with, or how many of the shipped posts.
        chart: a statechart instead of the shipped ``social_feed``: a file, or the content of one.
        feed: how the next post is chosen.
        rationale: whether users give a reason, in one sentence: ``before`` they choose, ``after``,
            or not, ``False``, which is the default here.
        shuffle: whether the options stand in a seeded random order, which begins at another place
            for each post and turn; if false, they stand in the chart's.

    Attributes:
        statechart: what is legal.
        guards: what the chart may name as guards; a class derived from this one may have others. A
            guard is called more than once for a move, so that its answer must follow from the agent
            (without its history) and the post alone.
    """

    kind: ClassVar[str] = "social"
    guards: ClassVar[Mapping[str, Guard]] = {"interested": interested}
    gone: ClassVar[Mapping[str, str]] = {
        name: f"say who answers by the seat: players={{'{name}': 'rule'}}"
        for name in ("reasoner", "writer")
    }

    defaults: ClassVar[Mapping[str, Any]] = {"rationale": False}

    population: Population = 12  # type: ignore[assignment]
    seed_posts: SeedPosts = 8  # type: ignore[assignment]
    chart: Chart = None
    feed: FeedConfig = FeedConfig()
    shuffle: bool = True

    def ready(self) -> None:
        """Make the chart; raise ConfigError if it has triggers that no turn fires."""
        scores = len(self.config.population) * self.feed.max_posts
        if scores > MOST_SCORES:
            raise ConfigError(
                f"{len(self.config.population):,} users and feed.max_posts={self.feed.max_posts:,} "
                f"are {scores:,} scores a turn, and at most {MOST_SCORES:,} are possible; take "
                "fewer of one of them"
            )
        self._reply: Any = next_state_type(self.config.rationale)
        self.statechart = Statechart.load(
            self.config.chart,
            guards=self.guards,
        )
        # A misspelt trigger would silently never fire.
        for transition in self.statechart.transitions:
            source = transition.source
            trigger = transition.trigger
            triggers = triggers_in(source)
            if trigger not in triggers:
                raise ConfigError(
                    f"chart: {transition}: no turn fires {trigger!r} in the state {source!s}; "
                    f"what is fired there: {', '.join(triggers)}"
                )

    def start(self) -> SocialState:
        """Return the network before the first turn, with all users in the chart's initial state."""
        initial = self.statechart.initial
        people = [UserState(user.name, initial) for user in self.config.population]
        empty = SocialState(people=tuple(people))
        return self._posted(empty, self.config.seed_posts)

    async def turn(self, state: SocialState, ask: Ask) -> SocialState:
        """Return the network after every user's move."""
        plan = plan_turn(
            state,
            self.config.population,
            chart=self.statechart,
            feed=self.feed,
            seed=self.seed,
        )
        # Of 10,000 users each part takes a quarter of a second, in which nothing else runs.
        await asyncio.sleep(0)
        chosen = await self._chosen(plan.ambiguous, ask)
        await asyncio.sleep(0)
        outcome = make_moves(
            plan.moves,
            chosen,
            state.next_post,
            self.seed,
        )
        posts = await self._written(outcome.new_posts, ask)
        await asyncio.sleep(0)
        return next_state(state, plan, outcome, posts, self.feed)

    async def _chosen(
        self,
        moves: Mapping[str, MoveQuestion],
        ask: Ask,
    ) -> dict[str, AgentState]:
        """Ask all users whose moves have several options, at once."""

        def prompt(name: str) -> RenderedPrompt:
            move = moves[name]
            return move_prompt(
                move,
                self._ordered(move),
                self.prompt("social_reasoner"),
                self.config.rationale,
            )

        def options(name: str) -> dict[str, list[str]]:
            # In the prompt's order, since some servers try the values of an enum in order.
            return {"next_state": [str(state) for state in self._ordered(moves[name])]}

        replies = await ask.each(
            moves,
            self._reply,
            prompt,
            tag="reasoner",
            limits=options,
            # The first in the chart's order, however the options were shuffled.
            fallback=lambda name: self._reply(
                rationale="no valid answer", next_state=moves[name].options[0]
            ),
            move=moves.get,
        )
        chosen = {name: AgentState(reply.next_state) for name, reply in replies.items()}
        for name, target in chosen.items():
            ask.note(
                name,
                component="reasoner",
                moved_to=target.value,
            )
        return chosen

    async def _written(
        self,
        new_posts: Sequence[NewPost],
        ask: Ask,
    ) -> list[Post]:
        """Ask the authors of posts for their words; return the posts with their texts."""
        # By name: a user makes one move a turn, and publishes at most one post.
        by_author = {new.author.name: new for new in new_posts}
        # A reshare has the text of another post.
        authors = [name for name, new in by_author.items() if new.post.kind != "reshare"]

        def prompt(name: str) -> RenderedPrompt:
            new = by_author[name]
            return post_prompt(
                new.author,
                new.post,
                new.about,
                self.prompt("social_post"),
            )

        replies = await ask.each(
            authors,
            Draft,
            prompt,
            tag="writer",
            fallback=lambda name: phrase(by_author[name].post, seed=players_seed(self.config)),
            post=lambda name: by_author[name].post,
        )
        posts = []
        for name, new in by_author.items():
            post = new.post
            if name in replies:
                post = replace(post, text=replies[name].text)
            posts.append(post)
        return posts

    def rule(self, question: Question) -> Any:
        """Return a draw by the post's match with the user's interests; for writers a phrase."""
        # Players may have a seed of their own, apart from the run's.
        seed = players_seed(self.config)
        if question.tag == "writer":
            text = phrase(question.values["post"], seed=seed)
            return Draft(text=text)
        drawn = question.values["move"].by_rule(seed)
        return self._reply(rationale="drawn by the rule", next_state=drawn)

    def changed(
        self,
        state: SocialState,
        values: Mapping[str, Any],
    ) -> SocialState:
        """Return the network with exactly these users ``banned``, or with a ``post`` injected.

        A banned user cannot act. The user's posts leave the feeds; reshares by others stay.
        """
        unknown = values.keys() - {"banned", "post"}
        if unknown:
            raise ConfigError(
                f"{min(unknown)!r} is nothing that can be set in a {type(self).__name__}; it takes "
                "banned, a list of names, and post: {'author': ..., 'text': ..., 'topics': [...]}"
            )
        if "banned" in values:
            # Names are looked up, so that a misspelt name is an error, not a ban without effect.
            names = [person.name for person in state.people]
            banned = known_names("user", values["banned"], names)
            # Exactly these: a user who is no longer named may act again.
            people = [person.with_ban(person.name in banned) for person in state.people]
            state = state.replace(people=tuple(people))
        if "post" not in values:
            return state
        check_state(
            state,
            self.config.population,
            self.statechart,
        )
        post = values["post"]
        # A text alone is not a post; the error then names the missing fields.
        fields = post if isinstance(post, Mapping) else {"text": post}
        return self._posted(state, [PostConfig(**fields)])

    def _posted(self, state: SocialState, new_posts: Sequence[PostConfig]) -> SocialState:
        """Return the network with injected posts."""
        posts = []
        # Users do not see their own posts, including posts injected under their name.
        ids_by_author: dict[str, list[int]] = {}
        for number, new in enumerate(new_posts, state.next_post):
            post = Post(
                id=number,
                author=new.author,
                text=new.text,
                topics=new.topics,
                turn=state.at,
                # An injected post answers nothing, and begins its own cascade.
                root=number,
            )
            posts.append(post)
            ids = ids_by_author.setdefault(new.author, [])
            ids.append(number)
        people = []
        for person in state.people:
            own_ids = ids_by_author.get(person.name, ())
            people.append(person.having_seen(own_ids))
        entries = [FeedEntry(post) for post in posts]
        feed = circulate(
            state.feed,
            entries,
            number=state.at,
            config=self.feed,
        )
        return state.replace(
            people=tuple(people),
            feed=feed,
            # A new post may push one out that a user is looking at.
            kept=kept_posts(people, feed, state.at_hand),
            new_posts=(*state.new_posts, *posts),
            next_post=state.next_post + len(posts),
        )

    def _ordered(self, move: MoveQuestion) -> list[AgentState]:
        """Return a user's options in the order of the question."""
        if not self.shuffle:
            return move.ordered(None)
        player = self.seat(move.agent.name, tag="reasoner")
        # The rule does not need an order, and drawing one takes time.
        if player == self.rule:
            return move.ordered(None)
        return move.rotated(self.seed)

    # --- views -------------------------------------------------------------------------------

    @property
    def posts(self) -> dict[int, Post]:
        """All posts of the run so far, by id, including those that it began with."""
        # A run may begin in the middle of another, with posts that none of its turns made.
        posts: dict[int, Post] = self.turns[0].state.at_hand
        for turn in self.turns:
            posts |= {post.id: post for post in turn.state.new_posts}
        return posts

    def cascades(self) -> list[Cascade]:
        """Return the run's cascades (a post with all that answered or reshared it), largest first.

        Of two cascades of the same size the older comes first.
        """
        # The initial state has the likes from before the run.
        first = self.turns[0].state
        likes = Counter({entry.post.id: entry.likes for entry in first.feed})
        for turn in self.turns[1:]:
            likes.update(like.post for like in turn.state.likes)
        by_root: defaultdict[int, list[Post]] = defaultdict(list)
        # By id, so that a root, which is older, comes first in its cascade.
        for number, post in sorted(self.posts.items()):
            # A post without a root begins its own cascade.
            root = number if post.root is None else post.root
            by_root[root].append(post)
        cascades = []
        for posts in by_root.values():
            likes_of_all = sum(likes[post.id] for post in posts)
            cascades.append(Cascade(tuple(posts), likes_of_all))
        # Sorting is stable, so that of equal sizes the older one, with the lower id, comes first.
        return sorted(cascades, key=lambda cascade: -cascade.size)

    def cascade_of(self, post: int) -> Cascade:
        """Return a post's cascade.

        Raises:
            ConfigError: the run has no such post.
        """
        for cascade in self.cascades():
            if post in cascade.levels:
                return cascade
        raise ConfigError(f"the run has no post {post}; simulation.posts has them")

    def cascade_frame(self) -> pd.DataFrame:
        """Return one row for each cascade, the largest first; the index is the first post's id.

        Columns: ``author``, ``turn``, ``text`` of the first post; ``size``, ``depth``, ``breadth``;
        ``replies``, ``reshares``, ``likes`` in the cascade; ``users``, the number of authors.
        """
        rows = [_cascade_row(cascade) for cascade in self.cascades()]
        # With columns also if there are no posts.
        frame = frame_of(rows, list(_CascadeRow._fields))
        return frame.set_index("root")


class _CascadeRow(NamedTuple):
    """A row of ``cascade_frame``."""

    root: int
    author: str
    turn: int
    text: str
    size: int
    depth: int
    breadth: int
    replies: int
    reshares: int
    likes: int
    users: int


def _cascade_row(cascade: Cascade) -> _CascadeRow:
    first = cascade.root
    kinds = Counter(post.kind for post in cascade.posts[1:])
    authors = {post.author for post in cascade.posts}
    return _CascadeRow(
        root=first.id,
        author=first.author,
        turn=first.turn,
        text=first.text,
        size=cascade.size,
        depth=cascade.depth,
        breadth=cascade.breadth,
        replies=kinds["reply"],
        reshares=kinds["reshare"],
        likes=cascade.likes,
        users=len(authors),
    )
