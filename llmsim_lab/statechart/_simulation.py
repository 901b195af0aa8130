"""The social simulation: a chart fixes what is legal, a reasoner chooses, posts travel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.waiting import gather_all
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.prompts import Prompt
from llmsim_lab.run import Run
from llmsim_lab.statechart import _analysis
from llmsim_lab.statechart._agent import (
    Post,
    SocialAgent,
    interested,
)
from llmsim_lab.statechart._analysis import Cascade
from llmsim_lab.statechart._chart import AgentState, Guard, Statechart, read_table
from llmsim_lab.statechart._config import (
    ReasonerConfig,
    SocialConfig,
    SocialIntervention,
    WriterConfig,
)
from llmsim_lab.statechart._reasoner import MoveChoice, MoveQuestion, Reasoner, RuleReasoner
from llmsim_lab.statechart._state import (
    FeedEntry,
    SocialState,
    SocialTurn,
    UserState,
    check_history,
    check_state,
)
from llmsim_lab.statechart._turn import (
    FeedSelector,
    MovePlan,
    circulate,
    make_moves,
    next_state,
    plan_turn,
    triggers_in,
)
from llmsim_lab.statechart._writer import LLMWriter, PhraseWriter
from llmsim_lab.types import LLMReasoningChain

if TYPE_CHECKING:
    import pandas as pd


class _Chooses(Protocol):
    async def choose_all(
        self, questions: Sequence[MoveQuestion]
    ) -> Sequence[MoveChoice | AgentState]: ...


class _Writes(Protocol):
    async def write(
        self, agent: SocialAgent, post: Post, about: Post | None
    ) -> tuple[Post, LLMReasoningChain | None]: ...


class SocialSimulation(Run[SocialState, SocialTurn, SocialConfig, SocialIntervention]):
    """A run of the social simulation.

    A turn, for each user: a tick; if time is up the trigger is ``timeout``, else one that follows
    from the state; the chart says where it may lead; where there are several ways the reasoner
    chooses, all such users' choices at once; then the moves are made.

    Args:
        config: what to run.
        llm_client: the model, where the configuration calls for one.
        reasoner: replaces the configured one: an object with ``async choose_all(questions)``, which
            returns a state for each question.
        writer: replaces the configured one: an object with ``async write(agent, post, about)``,
            which returns the post with its text, and a reasoning chain or None.
        guards: functions that the chart may name beside the shipped ``interested``, by those names.
            A guard is called more than once for a move, and again on replay, so its answer must
            follow from the agent (without its history) and the post alone.
        state: the state to start from; if not given, everybody idle and the configured posts.
        tape: where to record the run: a tape, or a file that becomes or is one.
        prompts: replace the configured ones: ``reasoner``, ``writer``.

    Attributes:
        chart: what is legal.
    """

    kind = "social"
    part_names = ("reasoner", "writer", "guards")

    def __init__(
        self,
        config: SocialConfig,
        *,
        llm_client: LLMClient | None = None,
        reasoner: _Chooses | None = None,
        writer: _Writes | None = None,
        guards: Mapping[str, Guard] | None = None,
        state: SocialState | None = None,
        tape: Tape | str | Path | None = None,
        prompts: Mapping[str, Prompt] | None = None,
    ) -> None:
        # Recorded: the configuration does not describe them, so a replay must be given them again.
        parts = {"reasoner": reasoner, "writer": writer, "guards": guards}
        given = {name for name, part in parts.items() if part}
        prompts = prompts or {}
        # The file's content becomes part of the configuration, so that a tape needs no other file.
        if isinstance(config.chart, Path):
            config = config.model_copy(update={"chart": read_table(config.chart)})
        self.guards = dict(guards or {})
        self.chart: Statechart[AgentState] = _chart_of(config, self.guards)
        # A class with the contract's ``decide`` alone would fail in the middle of the first turn.
        if reasoner is not None and not hasattr(reasoner, "choose_all"):
            raise ConfigError(
                f"{type(reasoner).__name__} has no choose_all, which a turn needs: "
                "async def choose_all(self, questions) -> list[AgentState]"
            )
        self.reasoner = reasoner or _reasoner_of(config, llm_client, prompts.get("reasoner"))
        self.writer = writer or _writer_of(config, llm_client, prompts.get("writer"))
        self._agents: tuple[SocialAgent, ...] = ()
        self._followed: Sequence[SocialTurn] = ()
        self._selector = FeedSelector(config.feed, config.agents, seed=config.seed)
        if state is None:
            state = _first_state(config, self.chart)
        self._check(state, config)
        first = SocialTurn(number=state.turn, state=state)
        super().__init__(config, first=first, llm_client=llm_client, given=given, tape=tape)

    # --- a turn ------------------------------------------------------------------------------

    async def _play(self, before: SocialTurn, planned: Sequence[SocialIntervention]) -> SocialTurn:
        state, seed = before.state, self.config.seed
        # Copies, so that a failed turn leaves the agents' ticks as they were.
        agents = [copy(agent) for agent in self.agents]
        plan = self._plan_of(state, agents)
        chains = await self._decide(plan)
        outcome = make_moves(plan, state, self.chart, seed)
        # All at once, as the choices before: nobody's post depends on another of the same turn.
        written = await gather_all(
            [self._write(agent, post, about) for agent, post, about in outcome.drafts]
        )
        chains += [chain for _, chain in written if chain is not None]
        posts = [post for post, _ in written]
        return SocialTurn(
            number=plan.number,
            state=next_state(state, plan, outcome, posts, agents, self.config.feed),
            chains=tuple(chains),
            moves=tuple(outcome.moves),
            likes=tuple(outcome.likes),
            asked=len(plan.ambiguous),
        )

    def _plan_of(self, state: SocialState, agents: Sequence[SocialAgent]) -> MovePlan:
        _place_agents(agents, state)
        return plan_turn(
            state,
            agents,
            self.config.agents,
            chart=self.chart,
            selector=self._selector,
            seed=self.config.seed,
        )

    def questions(self, turn: int | None = None) -> list[MoveQuestion]:
        """Return what the chart leaves open in a turn, which is what the reasoner is asked.

        Another reasoner can be asked the same: ``await other.reasoner.decide(questions)``.

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
        # New agents, since a plan counts their ticks up.
        return _questions(self._plan_of(self.turns[at - first - 1].state, self._new_agents()))

    async def _decide(self, plan: MovePlan) -> list[LLMReasoningChain]:
        moves = plan.ambiguous
        if not moves:
            return []
        answers = await self.reasoner.choose_all(_questions(plan))
        choices = [MoveChoice(it, "ok") if isinstance(it, str) else it for it in answers]
        if len(choices) != len(moves):
            raise ConfigError(
                f"{type(self.reasoner).__name__} gave {len(choices)} answers to {len(moves)} "
                "questions; choose_all must return one for each, in order"
            )
        for move, choice in zip(moves, choices, strict=True):
            if choice.state not in move.options:
                raise ConfigError(
                    f"{type(self.reasoner).__name__} sent {move.agent.name} to {choice.state!s}; "
                    f"its options are {', '.join(move.options)}"
                )
            # A user's own reasoner may answer "idle", which equals AgentState.IDLE but is a text.
            move.target = move.options[move.options.index(choice.state)]
            move.status, move.decided_by = choice.status, "reasoner"
        return [choice.chain for choice in choices if choice.chain is not None]

    async def _write(
        self, agent: SocialAgent, post: Post, about: Post | None
    ) -> tuple[Post, LLMReasoningChain | None]:
        if post.kind == "reshare":
            return post, None
        written, chain = await self.writer.write(agent, post, about)
        # A user's writer may return anything; another author or id would break cascades later.
        if written != replace(post, text=written.text) or not written.text.strip():
            raise ConfigError(
                f"{type(self.writer).__name__} made {written!r:.200} of {post!r:.200}; a writer "
                "gives a post its text, and changes nothing else"
            )
        return written, chain

    # --- what is done from outside -----------------------------------------------------------

    def _intervened(
        self, state: SocialState, interventions: Sequence[SocialIntervention]
    ) -> SocialState:
        return reduce(self._changed, interventions, state)

    def _changed(self, state: SocialState, item: SocialIntervention) -> SocialState:
        names = {person.name for person in state.people}
        for name in (*item.ban, *item.unban):
            if name not in names:
                raise ConfigError(
                    f"there is no user {name!r} to ban or unban; the users are "
                    f"{', '.join(sorted(names)[:10])}{' ...' if len(names) > 10 else ''}"
                )
        new, feed, number = state.new_posts, state.feed, state.next_post
        injected: Post | None = None
        if item.post is not None:
            injected = Post(**dict(item.post), id=number, turn=state.turn, root=number)
            new, number = (*new, injected), number + 1
            feed = circulate(
                feed, [FeedEntry(injected)], number=state.turn, config=self.config.feed
            )
        people = tuple(_person_changed(person, item, injected) for person in state.people)
        return replace(state, people=people, feed=feed, new_posts=new, next_post=number)

    # --- views -------------------------------------------------------------------------------

    @property
    def agents(self) -> tuple[SocialAgent, ...]:
        """The users as they are after the latest turn, with their histories."""
        # Only new turns are followed; after a change to the turns (a fork, say) all are, from the
        # first one on.
        known = len(self._followed)
        if not 0 < known <= len(self.turns) or self.turns[known - 1] is not self._followed[-1]:
            self._agents, known = self._new_agents(), 0
            _place_agents(self._agents, self.turns[0].state)
        by_name = {agent.name: agent for agent in self._agents}
        for turn in self.turns[known:]:
            for move in turn.moves:
                by_name[move.agent].transition_to(
                    move.target,
                    move.trigger,
                    turn=turn.number,
                    decided_by=move.decided_by,
                    status=move.status,
                    post=move.post,
                )
            # Also for what no move records: ticks, and what an intervention or a fork changed.
            _place_agents(self._agents, turn.state)
        self._followed = tuple(self.turns)
        return self._agents

    def _new_agents(self) -> tuple[SocialAgent, ...]:
        return tuple(
            SocialAgent(
                profile.name,
                profile.interests,
                profile.personality,
                engagement_threshold=profile.engagement_threshold,
                timeout_threshold=profile.timeout_threshold,
                history_depth=self.config.history_depth,
            )
            for profile in self.config.agents
        )

    def state_distribution(self) -> dict[AgentState, int]:
        """Return how many users are in each state after the latest turn; 0 for none."""
        counts = dict.fromkeys(AgentState, 0)
        for agent in self.agents:
            counts[agent.state] += 1
        return counts

    @property
    def posts(self) -> dict[int, Post]:
        """All posts of the run so far, by id, those it began with included."""
        return _analysis.all_posts(self.turns)

    def state_frame(self) -> pd.DataFrame:
        """Return how many users are in each state: a row a turn, a column a state."""
        return _analysis.state_frame(self.turns)

    def moves_frame(self) -> pd.DataFrame:
        """Return one row a transition.

        Columns: ``turn``, ``agent``, ``trigger``, ``source``, ``target``, ``decided_by``,
        ``status``, ``post``, the id of what it was about or missing.
        """
        return _analysis.moves_frame(self.turns)

    def transition_matrix(self, *, shares: bool = True) -> pd.DataFrame:
        """Return how often users went from one state (rows) to another (columns).

        Args:
            shares: of the moves out of a state, which add up to 1 in a row (a state that nobody
                left has zeros), instead of counts.
        """
        return _analysis.transition_matrix(self.turns, shares=shares)

    def post_frame(self) -> pd.DataFrame:
        """Return one row a post and how it was received; the index is its id.

        Columns: ``author``, ``turn``, ``kind``, ``topics``, ``text``, ``likes``, ``replies``,
        ``reshares``, ``engagement`` (the three together), ``root``. What answers a reshare counts
        for the reshare. A run that began from a state continues that state's counts.
        """
        return _analysis.post_frame(self.turns)

    def agent_frame(self) -> pd.DataFrame:
        """Return one row a user; the index is the name.

        Columns: ``moves``; ``decided``, of those the ones a reasoner decided; ``fallbacks``, of
        those the ones that fell back; ``posts``, ``replies``, ``reshares``, ``likes``, made;
        ``received``, likes, replies and reshares that the user's posts got; ``state``, the latest.
        """
        return _analysis.agent_frame(self.turns)

    def cascades(self) -> list[Cascade]:
        """Return the run's cascades (a post with all that answered or reshared it), largest first.

        Of two of one size the older comes first.
        """
        return _analysis.cascades(self.turns)

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
        return _analysis.cascade_frame(self.turns)

    @property
    def fallback_rate(self) -> float | None:
        """Share of the reasoner's decisions that fell back to the first option; None if none."""
        asked = [
            move for turn in self.turns for move in turn.moves if move.decided_by == "reasoner"
        ]
        if not asked:
            return None
        return sum(move.status == "fallback" for move in asked) / len(asked)

    def _about(self) -> str:
        rate = self.fallback_rate
        lost = f", {rate:.1%} of decisions fell back" if rate else ""
        state = self.state
        return f", {len(state.people)} users, {len(state.feed)} posts in circulation{lost}"

    def state_at(self, turn: SocialTurn, state: Any) -> SocialState:
        """Return another state in a turn's place, for a fork; it must be of the same turn.

        Raises:
            ConfigError: it is not a state, or not valid: a user is in no state of the chart, a post
                refers to one that cannot be, or is not as the turns before left it.
        """
        own = super().state_at(turn, state)
        self._check(own, self.config)
        if own.turn != turn.number:
            raise ConfigError(
                f"the state is that of turn {own.turn}, not of {turn.number}; "
                "dataclasses.replace(state, turn=...) makes it one"
            )
        before = self.turns[: turn.number - self.turns[0].number]
        if before:
            check_history(own, _analysis.all_posts(before))
        return own

    def _check(self, state: SocialState, config: SocialConfig) -> None:
        check_state(state, users=[profile.name for profile in config.agents], chart=self.chart)


def _place_agents(agents: Sequence[SocialAgent], state: SocialState) -> None:
    """Put the users where a state has them."""
    for agent, person in zip(agents, state.people, strict=True):
        agent.state, agent.ticks_in_state = person.state, person.ticks


def _questions(plan: MovePlan) -> list[MoveQuestion]:
    return [
        MoveQuestion(
            move.agent, move.agent.state, move.trigger, move.options, move.post, plan.number
        )
        for move in plan.ambiguous
    ]


def _chart_of(config: SocialConfig, guards: Mapping[str, Guard]) -> Statechart[AgentState]:
    """Return the chart of a run.

    Raises:
        ConfigError: a guard has the name of the shipped one; the chart is not valid, or has states,
            actions or triggers that the simulation does not know.
    """
    if interested.__name__ in guards:
        raise ConfigError(f"the guard {interested.__name__!r} is shipped; give yours another name")
    shipped = {interested.__name__: interested}
    chart = Statechart.load(config.chart or "social_feed", guards={**shipped, **guards})
    if foreign := [state for state in chart.states if not isinstance(state, AgentState)]:
        raise ConfigError(
            f"chart: the social simulation knows the states {', '.join(AgentState)}; it does not "
            f"know {', '.join(map(str, foreign))}"
        )
    for move in chart.transitions:
        if move.trigger not in (fired := triggers_in(move.source)):
            raise ConfigError(
                f"chart: {move}: no turn fires {move.trigger!r} in the state {move.source!s}; "
                f"what is fired there: {', '.join(fired)}"
            )
    return chart


def _reasoner_of(
    config: SocialConfig, client: LLMClient | None, prompt: Prompt | None
) -> Reasoner | RuleReasoner:
    """Return who chooses among legal moves.

    Raises:
        ConfigError: it needs a model, and there is none.
    """
    chosen = config.reasoner
    if chosen.kind == "rule":
        return RuleReasoner(seed=config.seed)
    return Reasoner(
        _needed(client, "reasoner"),
        seed=config.seed if chosen.shuffle else None,
        rationale=chosen.rationale,
        decide=chosen.decide,
        draws=config.seed,
        prompt=_prompt_of(chosen, prompt),
    )


def _writer_of(
    config: SocialConfig, client: LLMClient | None, prompt: Prompt | None
) -> LLMWriter | PhraseWriter:
    """Return who writes the posts; it may need a model, as in ``_reasoner_of``."""
    if config.writer.kind == "rule":
        return PhraseWriter(seed=config.seed)
    asked = _needed(client, "writer")
    return LLMWriter(asked, seed=config.seed, prompt=_prompt_of(config.writer, prompt))


def _prompt_of(config: ReasonerConfig | WriterConfig, given: Prompt | None) -> Prompt | None:
    """Return the prompt given, else the one that the configuration names, if any."""
    return given or (Prompt.load(config.prompt) if config.prompt else None)


def _needed(client: LLMClient | None, who: str) -> LLMClient:
    if client is None:
        raise ConfigError(
            f"the {who} is of kind llm and needs a model: SocialSimulation(config, "
            f"llm_client=connect('auto')); or do without: SocialConfig({who}={{'kind': 'rule'}}, "
            "...)"
        )
    return client


def _first_state(config: SocialConfig, chart: Statechart[AgentState]) -> SocialState:
    """Return the network before the first turn: everybody in the chart's initial state."""
    posts = tuple(
        Post(**dict(post), id=number, root=number)
        for number, post in enumerate(config.posts, start=1)
    )
    entries = [FeedEntry(post) for post in posts]
    return SocialState(
        turn=0,
        people=tuple(
            UserState(
                profile.name,
                chart.initial,
                seen=tuple(post.id for post in posts if post.author == profile.name),
            )
            for profile in config.agents
        ),
        feed=circulate([], entries, number=0, config=config.feed),
        new_posts=posts,
        next_post=len(posts) + 1,
    )


def _person_changed(
    person: UserState, item: SocialIntervention, injected: Post | None
) -> UserState:
    banned = person.name in item.ban or (person.banned and person.name not in item.unban)
    # Users do not see their own posts, nor one that is injected in their name.
    own = (injected.id,) if injected is not None and injected.author == person.name else ()
    return person._replace(banned=banned, seen=(*person.seen, *own))
