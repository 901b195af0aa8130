"""The social simulation: a chart says what is legal, a reasoner chooses, posts travel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from llmsim_lab.checks import whole_number
from llmsim_lab.concurrency import gather_all
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.models import LLMReasoningChain
from llmsim_lab.prompts import Prompt
from llmsim_lab.runs import Run
from llmsim_lab.statechart.agent import SocialAgent, agents_in_state, state_distribution
from llmsim_lab.statechart.analysis import all_posts
from llmsim_lab.statechart.build import (
    initial_state,
    make_agents,
    make_chart,
    make_reasoner,
    make_writer,
    self_contained,
    with_intervention,
)
from llmsim_lab.statechart.chart import Statechart
from llmsim_lab.statechart.choices import Choice, Question
from llmsim_lab.statechart.config import SocialConfig, SocialIntervention
from llmsim_lab.statechart.feed import FeedSelector
from llmsim_lab.statechart.posts import Post
from llmsim_lab.statechart.rounds import Plan, make_moves, next_state, plan_round
from llmsim_lab.statechart.soundness import check_history, check_state
from llmsim_lab.statechart.state import SocialState, SocialTurn
from llmsim_lab.statechart.states import AgentState

__all__ = ["SocialSimulation"]


class _Chooses(Protocol):
    async def choose_all(self, questions: Sequence[Question]) -> list[Choice]: ...


class _Writes(Protocol):
    async def write(
        self, agent: SocialAgent, post: Post, about: Post | None
    ) -> tuple[Post, LLMReasoningChain | None]: ...


class SocialSimulation(Run[SocialState, SocialTurn, SocialConfig, SocialIntervention]):
    """A run of the social simulation, one round a turn.

    A round, for each user: a tick; if time is up the trigger is ``timeout``, else one that follows
    from the state; the chart says where it may lead; where there are several ways the reasoner
    chooses, all such users' choices at once; then the moves are made.

    Args:
        config: what to run.
        llm_client: the model, where the configuration calls for one.
        reasoner: instead of the configured one: an object with ``choose_all``.
        writer: likewise: an object with ``write``.
        state: the state to start from; if not given, everybody idle and the configured posts.
        tape: where to record the run: a tape, or a file that becomes or is one.
        prompts: prompts instead of the configured ones: ``reasoner``, ``writer``.

    Attributes:
        chart: what is legal.
    """

    kind = "social"
    part_names = ("reasoner", "writer")

    def __init__(
        self,
        config: SocialConfig,
        *,
        llm_client: LLMClient | None = None,
        reasoner: _Chooses | None = None,
        writer: _Writes | None = None,
        state: SocialState | None = None,
        tape: Tape | str | Path | None = None,
        prompts: Mapping[str, Prompt] | None = None,
    ) -> None:
        parts = {"reasoner": reasoner, "writer": writer}
        given = {name for name, part in parts.items() if part is not None}
        prompts = prompts or {}
        config = self_contained(config)
        self.chart: Statechart[AgentState] = make_chart(config)
        if reasoner is not None and not hasattr(reasoner, "choose_all"):
            raise ConfigError(
                f"{type(reasoner).__name__} has no choose_all, which a round needs; derive it from "
                "llmsim_lab.statechart.Chooser"
            )
        self.reasoner = reasoner or make_reasoner(config, llm_client, prompts.get("reasoner"))
        self.writer = writer or make_writer(config, llm_client, prompts.get("writer"))
        self._agents: tuple[SocialAgent, ...] = ()
        self._told: Sequence[SocialTurn] = ()
        self._selector = FeedSelector(config.feed, config.agents, seed=config.seed)
        if state is None:
            state = initial_state(config, self.chart)
        self._check_sound(state, config)
        first = SocialTurn(number=state.round, state=state)
        super().__init__(config, first=first, llm_client=llm_client, given=given, tape=tape)

    # --- a round -----------------------------------------------------------------------------

    async def _play(self, before: SocialTurn, planned: Sequence[SocialIntervention]) -> SocialTurn:
        del planned
        state, seed = before.state, self.config.seed
        # Copies: what a round counts up counts for nothing if it fails.
        agents = [copy(agent) for agent in self.agents]
        plan = self._plan_of(state, agents)
        chains = await self._decide(plan)
        outcome = make_moves(plan, state, self.chart, seed)
        written = await gather_all(
            [self._written(agent, post, about) for agent, post, about in outcome.drafts]
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

    def _plan_of(self, state: SocialState, agents: Sequence[SocialAgent]) -> Plan:
        _place(agents, state)
        return plan_round(
            state,
            agents,
            self.config.agents,
            chart=self.chart,
            selector=self._selector,
            seed=self.config.seed,
        )

    def questions(self, turn: int | None = None) -> list[Question]:
        """Return what the chart leaves open in a round: what the reasoner is asked there.

        So another reasoner can be asked the same: ``await RuleReasoner().decide(questions)``.

        Args:
            turn: a round that was played, or the next one, which is meant if none is given.

        Raises:
            ConfigError: the run has no such round.
        """
        at = self.turn_number + 1 if turn is None else whole_number("turn", turn)
        first = self.turns[0].number
        if not first < at <= self.turn_number + 1:
            raise ConfigError(
                f"round {at} has no questions here; ask for one from {first + 1} to "
                f"{self.turn_number + 1}"
            )
        return _questions(self._plan_of(self.turns[at - first - 1].state, make_agents(self.config)))

    async def _decide(self, plan: Plan) -> list[LLMReasoningChain]:
        moves = plan.ambiguous
        if not moves:
            return []
        choices = await self.reasoner.choose_all(_questions(plan))
        if len(choices) != len(moves):
            raise ConfigError(
                f"{type(self.reasoner).__name__} gave {len(choices)} answers to {len(moves)} "
                "questions; choose_all must return one Choice for each, in order"
            )
        for move, choice in zip(moves, choices, strict=True):
            if choice.state not in move.options:
                raise ConfigError(
                    f"{type(self.reasoner).__name__} sent {move.agent.name} to {choice.state!s}; "
                    f"its options are {', '.join(move.options)}"
                )
            move.target, move.status, move.decided_by = choice.state, choice.status, "reasoner"
        return [choice.chain for choice in choices if choice.chain is not None]

    async def _written(
        self, agent: SocialAgent, post: Post, about: Post | None
    ) -> tuple[Post, LLMReasoningChain | None]:
        if post.kind == "reshare":
            return post, None
        written, chain = await self.writer.write(agent, post, about)
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
        for item in interventions:
            state = with_intervention(state, item, self.config)
        return state

    # --- views -------------------------------------------------------------------------------

    @property
    def agents(self) -> tuple[SocialAgent, ...]:
        """The users as they are after the latest round, with their histories."""
        known = len(self._told)
        if not 0 < known <= len(self.turns) or self.turns[known - 1] is not self._told[-1]:
            self._agents, known = make_agents(self.config), 0
            _place(self._agents, self.turns[0].state)
        for turn in self.turns[known:]:
            _follow(self._agents, turn)
        self._told = tuple(self.turns)
        return self._agents

    def agents_in_state(self, state: AgentState) -> list[SocialAgent]:
        """Return the users that are in a state now."""
        return agents_in_state(self.agents, state)

    def state_distribution(self) -> dict[AgentState, int]:
        """Return how many users are in each state now."""
        return state_distribution(self.agents)

    @property
    def posts(self) -> dict[int, Post]:
        """All posts of the run so far, by id, those it began with included."""
        return all_posts(self.turns)

    @property
    def fallback_rate(self) -> float | None:
        """Share of the reasoner's decisions that the first option stood in for; None if none."""
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
        """Return another state in a turn's place, for a fork; it must be of the same round.

        Raises:
            ConfigError: it is none, or not sound: a user is in no state of the chart, a post refers
                to one that cannot be, or is not as the rounds before left it.
        """
        own = super().state_at(turn, state)
        self._check_sound(own, self.config)
        if own.round != turn.number:
            raise ConfigError(
                f"the state is that of round {own.round}, not of {turn.number}; "
                "dataclasses.replace(state, round=...) makes it one"
            )
        before = self.turns[: turn.number - self.turns[0].number]
        if before:
            check_history(own, all_posts(before))
        return own

    def _check_sound(self, state: SocialState, config: SocialConfig) -> None:
        check_state(state, users=[profile.name for profile in config.agents], chart=self.chart)


def _place(agents: Sequence[SocialAgent], state: SocialState) -> None:
    """Put the users where a state has them."""
    for agent, person in zip(agents, state.people, strict=True):
        agent.state, agent.ticks_in_state = person.state, person.ticks


def _follow(agents: Sequence[SocialAgent], turn: SocialTurn) -> None:
    """Let the users remember a round, and put them where it left them."""
    by_name = {agent.name: agent for agent in agents}
    for move in turn.moves:
        by_name[move.agent].transition_to(
            move.target,
            move.trigger,
            round=turn.number,
            decided_by=move.decided_by,
            status=move.status,
            post=move.post,
        )
    _place(agents, turn.state)


def _questions(plan: Plan) -> list[Question]:
    return [
        Question(move.agent, move.agent.state, move.trigger, move.options, move.post, plan.number)
        for move in plan.ambiguous
    ]
