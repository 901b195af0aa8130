"""What a social simulation is configured with, and what may be done to one from outside.

Users and first posts may be numbers instead of lists: ``population`` makes users from the profiles
in ``data/social``.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, StringConstraints, field_validator, model_validator

from llmsim_lab._util.config import Settings, Words, read_config
from llmsim_lab._util.files import data_path
from llmsim_lab._util.text import clip
from llmsim_lab.errors import ConfigError
from llmsim_lab.run._config import RunConfig, RunIntervention, one_or_more
from llmsim_lab.run._turn import Series
from llmsim_lab.statechart._chart import AgentState, ChartTable, read_table

_ONE_LINE = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]+$"
"""Names and topics stand in prompts outside quotation marks, so they must not begin new lines."""

Name = Annotated[str, StringConstraints(strip_whitespace=True, max_length=100, pattern=_ONE_LINE)]
Topic = Annotated[
    str,
    StringConstraints(strip_whitespace=True, to_lower=True, max_length=60, pattern=_ONE_LINE),
]
_Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class ProfileConfig(Settings):
    """Who a user is.

    Attributes:
        name: unique in the run.
        interests: topics.
        personality: a sentence or two, which the reasoner reads.
        activity: the chance that an idle user opens the app in a turn.
        engagement_threshold: the share of a post's topics that must be among the interests for
            the user to look closely.
        timeout_threshold: turns after which the user has been in a state too long; at least 2,
            since with 1 time is up before anybody decides anything.
    """

    name: Name
    interests: Annotated[tuple[Topic, ...], Field(min_length=1)]
    personality: str = ""
    activity: _Share = 0.5
    engagement_threshold: _Share = 0.5
    timeout_threshold: Annotated[int, Field(ge=2, le=1000)] = 5


class PostConfig(Settings):
    """A post that the run begins with, or that is injected.

    Attributes:
        author: a user's name, or that of somebody outside.
        text: its words.
        topics: what it is about.
    """

    author: Name
    text: Annotated[Words, Field(max_length=5_000)]
    topics: Annotated[tuple[Topic, ...], Field(min_length=1)]


class _Shipped(BaseModel):
    profiles: tuple[ProfileConfig, ...] = ()
    posts: tuple[PostConfig, ...] = ()


# Cached: a configuration is made for every run of a study.
@cache
def _shipped(name: str) -> _Shipped:
    return read_config(data_path(f"social/{name}.yaml"), _Shipped)


def population(size: int, *, seed: int = 0) -> tuple[ProfileConfig, ...]:
    """Return users with distinct names: the shipped profiles, then new ones put together from them.

    A new user has one profile's interests with one of them swapped for another's, the temper of a
    second (personality, activity, threshold), and first and family name of two others. A larger
    population of the same seed begins with the smaller one.

    Args:
        size: how many.
        seed: of what is put together; the shipped profiles come first whatever it is.

    Raises:
        ConfigError: ``size`` is negative.
    """
    shipped = _shipped("profiles").profiles
    if size < 0:
        raise ConfigError(f"a population of {size} is not possible; give 0 or more")
    # A stream of its own, apart from the run's other draws, which have the same seed. Users are
    # made one after the other, so that a larger population begins with the smaller one.
    rng = random.Random(f"population/{seed}")
    names = _new_names(shipped, rng)
    topics = sorted({topic for profile in shipped for topic in profile.interests})
    new = [_mixed(next(names), shipped, topics, rng) for _ in range(size - len(shipped))]
    return (*shipped[:size], *new)


def _mixed(
    name: str, shipped: tuple[ProfileConfig, ...], topics: list[str], rng: random.Random
) -> ProfileConfig:
    # Another number or order of draws would change every larger population of a seed.
    likes, temper = rng.choice(shipped), rng.choice(shipped)
    interests = list(likes.interests)
    fresh = rng.choice([topic for topic in topics if topic not in interests])
    interests[rng.randrange(len(interests))] = fresh
    return temper.model_copy(update={"name": name, "interests": tuple(interests)})


def _new_names(shipped: tuple[ProfileConfig, ...], rng: random.Random) -> Iterator[str]:
    """Yield names that no shipped profile has, and with a number once all pairs are used up."""
    taken = {profile.name for profile in shipped}
    firsts, lasts = zip(*(profile.name.split(" ", 1) for profile in shipped), strict=True)
    pairs = [f"{first} {last}" for first, last in product(firsts, lasts)]
    pairs = [name for name in pairs if name not in taken]
    rng.shuffle(pairs)
    yield from pairs
    number = 2
    while True:
        yield from (f"{name} {number}" for name in pairs)
        number += 1


def seed_posts(count: int | None = None) -> tuple[PostConfig, ...]:
    """Return the shipped posts, or the first ``count`` of them.

    Raises:
        ConfigError: there are fewer.
    """
    posts = _shipped("posts").posts
    if count is not None and not 0 <= count <= len(posts):
        raise ConfigError(f"count={count}: there are {len(posts)} posts to begin with")
    return posts[:count]


_SERIES: tuple[Series, ...] = tuple(
    Series(column=name, label=name.capitalize(), unit="a turn", short=name)
    for name in ("likes", "replies", "reshares", "posts")
) + tuple(
    Series(column=state.value, label=state.value.replace("_", " ").capitalize(), unit="users")
    for state in AgentState
)

Weight = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]


class FeedConfig(Settings):
    """How the post that a user sees next is chosen.

    A post's score is the weighted sum of its match with the user's interests (0 to 1), its recency
    (1 when new, halved every ``half_life`` turns), its popularity (0 to 1, logarithmic), and a
    draw from the Gumbel distribution, which makes the choice a random utility model (a logit).

    Attributes:
        interest: weight of the match.
        recency: weight of the recency.
        popularity: weight of the popularity.
        noise: weight of the draw.
        half_life: turns.
        max_age: turns after which a post is out of everybody's feed.
        max_posts: how many posts are in circulation at most; those of least recency and
            popularity leave first.
    """

    interest: Weight = 2.0
    recency: Weight = 1.0
    popularity: Weight = 1.0
    noise: Weight = 0.3
    half_life: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] = 3.0
    max_age: Annotated[int, Field(ge=1, le=1000)] = 10
    max_posts: Annotated[int, Field(ge=1, le=10_000)] = 200


class ReasonerConfig(Settings):
    """Who chooses where the chart leaves several moves.

    Attributes:
        kind: ``llm``, a language model, or ``rule``, a logit on how well the post fits the user.
        rationale: whether the model gives a reason; only for ``llm``.
        shuffle: whether the options stand in a seeded random order; only for ``llm``.
        decide: ``sample`` or ``mode`` asks for the probability of each option, in every order of
            them, and draws, or takes the likeliest; only for ``llm``. None asks for an answer.
        prompt: a prompt file instead of the shipped one; only for ``llm``.
    """

    kind: Literal["llm", "rule"] = "llm"
    rationale: bool = False
    shuffle: bool = True
    decide: Literal["sample", "mode"] | None = None
    prompt: Path | None = None

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        reads = self.rationale or self.prompt or self.decide or not self.shuffle
        if self.kind == "rule" and reads:
            raise ValueError(
                "rationale, shuffle, decide and prompt would have no effect: a rule reads no prompt"
            )
        return self


class WriterConfig(Settings):
    """Who writes the posts.

    Attributes:
        kind: ``rule``, set phrases, or ``llm``, a language model.
        prompt: a prompt file instead of the shipped one; only for ``llm``.
    """

    kind: Literal["llm", "rule"] = "rule"
    prompt: Path | None = None

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if self.kind == "rule" and self.prompt:
            raise ValueError("prompt would have no effect: a rule reads no prompt")
        return self


class SocialIntervention(RunIntervention):
    """Something done to the network from outside; users act on it from the next turn on.

    Attributes:
        turn: the number of the turn whose state is changed.
        post: a post to inject.
        ban: users who may not act any more; their posts leave the feeds, others' reshares of them
            stay.
        unban: users who may again.
        note: why, for the record.
    """

    post: PostConfig | None = None
    ban: tuple[Name, ...] = ()
    unban: tuple[Name, ...] = ()
    note: str = ""

    _names = field_validator("ban", "unban", mode="before")(one_or_more)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not (self.post or self.ban or self.unban):
            raise ValueError("an intervention needs 'post', 'ban' or 'unban'")
        if both := sorted(set(self.ban) & set(self.unban)):
            raise ValueError(f"{', '.join(both)}: either ban or unban, not both at once")
        return self

    def __str__(self) -> str:
        parts = [f'post by {self.post.author}: "{clip(self.post.text, 60)}"'] if self.post else []
        parts += [f"ban {name}" for name in self.ban] + [f"unban {name}" for name in self.unban]
        note = f" ({self.note})" if self.note else ""
        # "round": recorded tapes hold this text, and a replay compares it.
        return f"round {self.turn}: {', '.join(parts)}{note}"


class SocialConfig(RunConfig):
    """Everything that defines a social simulation, apart from the model's answers.

    ``population: 500`` instead of ``agents`` makes 500 users from the shipped profiles, and
    ``seed_posts: 8`` instead of ``posts`` takes the first 8 of the shipped posts.

    Attributes:
        kind: ``social``, by which a file says what it describes.
        agents: the users.
        posts: what the feeds begin with.
        chart: a statechart instead of the shipped ``social_feed``: a file, or the content of one. A
            run's configuration has the content, so that its tape needs no other file.
        reasoner: who chooses among legal moves.
        writer: who writes the posts.
        feed: how the next post is chosen.
        history_depth: how many transitions each user remembers; None for all.
        interventions: what is done from outside, and when.
    """

    kind: Literal["social"] = "social"
    name: Annotated[str, Field(min_length=1)] = "social"
    turns: Annotated[int, Field(ge=0, le=100_000)] = 10
    agents: Annotated[tuple[ProfileConfig, ...], Field(min_length=1)]
    posts: tuple[PostConfig, ...] = ()
    chart: ChartTable | Path | None = None
    reasoner: ReasonerConfig = Field(default_factory=ReasonerConfig)
    writer: WriterConfig = Field(default_factory=WriterConfig)
    feed: FeedConfig = Field(default_factory=FeedConfig)
    history_depth: Annotated[int, Field(ge=0)] | None = 50
    interventions: tuple[SocialIntervention, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _expand(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        values = dict(values)
        for short, full in (("population", "agents"), ("seed_posts", "posts")):
            if short not in values:
                continue
            if full in values:
                raise ValueError(f"give either {short} or {full}, not both")
            count, seed = values.pop(short), values.get("seed", 0)
            # Before pydantic sees it: no field has this name, and True is an int for Python.
            if isinstance(count, bool) or not isinstance(count, int):
                raise ValueError(f"{short} must be a whole number, not {count!r}")
            try:
                values[full] = (
                    population(count, seed=seed) if short == "population" else seed_posts(count)
                )
            except ConfigError as error:
                raise ValueError(f"{short}: {error}") from error
        return values

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        counts = Counter(agent.name for agent in self.agents)
        if twice := sorted(name for name, count in counts.items() if count > 1):
            raise ValueError(f"agents must have different names; twice: {', '.join(twice[:5])}")
        return self

    @property
    def needs_model(self) -> bool:
        """True if a language model reasons or writes."""
        return "llm" in (self.reasoner.kind, self.writer.kind)

    @property
    def series(self) -> Sequence[Series]:
        """Engagement, then the number of users in each state."""
        return _SERIES

    def by_rules(self) -> SocialConfig:
        """Return the configuration with a rule as reasoner and set phrases: it needs no model."""
        rules = {"reasoner": ReasonerConfig(kind="rule"), "writer": WriterConfig()}
        return self.model_copy(update=rules)

    @classmethod
    def from_yaml(cls, path: str | Path) -> SocialConfig:
        """Read a configuration from a YAML file; paths in it are relative to the file.

        Raises:
            ConfigError: the file cannot be read or something in it is wrong, with its line.
        """
        config = read_config(Path(path), cls)
        folder = Path(path).parent
        found: dict[str, Any] = {}
        if isinstance(config.chart, Path):
            found["chart"] = read_table(folder / config.chart)
        for name in ("reasoner", "writer"):
            part = getattr(config, name)
            if part.prompt is not None:
                found[name] = part.model_copy(update={"prompt": folder / part.prompt})
        return config.model_copy(update=found)
