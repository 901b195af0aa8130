"""Make the parts and the first state of a social simulation, and do to a state what is planned."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMClient
from llmsim_lab.prompts import Prompt
from llmsim_lab.statechart.agent import SocialAgent
from llmsim_lab.statechart.chart import Statechart
from llmsim_lab.statechart.chart_file import load_chart, read_table
from llmsim_lab.statechart.config import SocialConfig, SocialIntervention
from llmsim_lab.statechart.feed import circulate
from llmsim_lab.statechart.guards import GUARDS
from llmsim_lab.statechart.posts import Post
from llmsim_lab.statechart.profiles import ProfileConfig
from llmsim_lab.statechart.reasoner import Reasoner
from llmsim_lab.statechart.rounds import fired_in
from llmsim_lab.statechart.rules import RuleReasoner
from llmsim_lab.statechart.state import FeedEntry, Person, SocialState
from llmsim_lab.statechart.states import AgentState
from llmsim_lab.statechart.writers import LLMWriter, PhraseWriter

__all__ = [
    "initial_state",
    "make_agents",
    "make_chart",
    "make_reasoner",
    "make_writer",
    "self_contained",
    "with_intervention",
]


def self_contained(config: SocialConfig) -> SocialConfig:
    """Return a configuration that holds its chart instead of naming the chart's file."""
    if isinstance(config.chart, Path):
        return config.model_copy(update={"chart": read_table(config.chart)})
    return config


def make_chart(config: SocialConfig) -> Statechart[AgentState]:
    """Return the chart of a run.

    Raises:
        ConfigError: it is not sound, or has states, actions or triggers that the simulation does
            not know.
    """
    chart = load_chart(config.chart or "social_feed", guards=GUARDS)
    if foreign := [state for state in chart.states if not isinstance(state, AgentState)]:
        raise ConfigError(
            f"chart: the social simulation knows the states {', '.join(AgentState)}; it does not "
            f"know {', '.join(map(str, foreign))}"
        )
    for move in chart.transitions:
        if move.trigger not in (fired := fired_in(move.source)):
            raise ConfigError(
                f"chart: {move}: no round fires {move.trigger!r} in the state {move.source!s}; "
                f"what is fired there: {', '.join(fired)}"
            )
    return chart


def make_agents(config: SocialConfig) -> tuple[SocialAgent, ...]:
    """Return the users of a run, without a history."""
    return tuple(_agent(profile, config.history_depth) for profile in config.agents)


def _agent(profile: ProfileConfig, history_depth: int | None) -> SocialAgent:
    return SocialAgent(
        profile.name,
        profile.interests,
        profile.personality,
        engagement_threshold=profile.engagement_threshold,
        timeout_threshold=profile.timeout_threshold,
        history_depth=history_depth,
    )


def make_reasoner(
    config: SocialConfig, client: LLMClient | None, prompt: Prompt | None
) -> Reasoner | RuleReasoner:
    """Return who chooses among legal moves.

    Raises:
        ConfigError: a model is called for, and there is none.
    """
    chosen = config.reasoner
    if chosen.kind == "rule":
        return RuleReasoner(seed=config.seed)
    return Reasoner(
        _needed(client, "reasoner"),
        seed=config.seed if chosen.shuffle else None,
        rationale=chosen.rationale,
        prompt=prompt or (Prompt.load(chosen.prompt) if chosen.prompt else None),
    )


def make_writer(
    config: SocialConfig, client: LLMClient | None, prompt: Prompt | None
) -> LLMWriter | PhraseWriter:
    """Return who writes the posts.

    Raises:
        ConfigError: a model is called for, and there is none.
    """
    chosen = config.writer
    if chosen.kind == "rule":
        return PhraseWriter(seed=config.seed)
    return LLMWriter(
        _needed(client, "writer"),
        seed=config.seed,
        prompt=prompt or (Prompt.load(chosen.prompt) if chosen.prompt else None),
    )


def _needed(client: LLMClient | None, who: str) -> LLMClient:
    if client is None:
        raise ConfigError(
            f"the {who} is of kind llm and needs a model: SocialSimulation(config, "
            f"llm_client=connect('auto')); or do without: SocialConfig({who}={{'kind': 'rule'}}, "
            "...)"
        )
    return client


def initial_state(config: SocialConfig, chart: Statechart[AgentState]) -> SocialState:
    """Return the network before the first round: everybody at the chart's initial state."""
    posts = tuple(
        Post(id=number, author=post.author, text=post.text, topics=post.topics, root=number)
        for number, post in enumerate(config.posts, start=1)
    )
    entries = [FeedEntry(post) for post in posts]
    return SocialState(
        round=0,
        people=tuple(
            Person(
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


def with_intervention(
    state: SocialState, item: SocialIntervention, config: SocialConfig
) -> SocialState:
    """Return a state with what is done from outside.

    Raises:
        ConfigError: there is no such user.
    """
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
        injected = Post(
            id=number,
            author=item.post.author,
            text=item.post.text,
            topics=item.post.topics,
            round=state.round,
            root=number,
        )
        new, number = (*new, injected), number + 1
        feed = circulate(feed, [FeedEntry(injected)], number=state.round, config=config.feed)
    return SocialState(
        round=state.round,
        people=tuple(_touched(person, item, injected) for person in state.people),
        feed=feed,
        new_posts=new,
        kept=state.kept,
        next_post=number,
    )


def _touched(person: Person, item: SocialIntervention, injected: Post | None) -> Person:
    banned = person.name in item.ban or (person.banned and person.name not in item.unban)
    own: Sequence[int] = ()
    if injected is not None and injected.author == person.name:
        own = (injected.id,)
    if not own and banned == person.banned:
        return person
    return person._replace(banned=banned, seen=(*person.seen, *own))
