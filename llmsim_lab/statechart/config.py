"""What a social simulation is configured with, and what may be done to one from outside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from llmsim_lab.errors import ConfigError
from llmsim_lab.runs._config import RunConfig, RunIntervention
from llmsim_lab.runs._turn import Series
from llmsim_lab.settings import Settings
from llmsim_lab.statechart.chart_file import ChartTable, read_table
from llmsim_lab.statechart.population import population, seed_posts
from llmsim_lab.statechart.profiles import Name, PostConfig, ProfileConfig
from llmsim_lab.statechart.states import AgentState
from llmsim_lab.text import clip
from llmsim_lab.yaml_file import read_config

__all__ = [
    "FeedConfig",
    "ReasonerConfig",
    "SocialConfig",
    "SocialIntervention",
    "WriterConfig",
]

_SERIES: tuple[Series, ...] = tuple(
    Series(column=name, label=name.capitalize(), unit="a round", short=name)
    for name in ("likes", "replies", "reshares", "posts")
) + tuple(
    Series(column=state.value, label=state.value.replace("_", " ").capitalize(), unit="users")
    for state in AgentState
)

Weight = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]


class FeedConfig(Settings):
    """How the post that a user sees next is chosen.

    A post's score is the weighted sum of its match with the user's interests (0 to 1), its recency
    (1 when new, halved every ``half_life`` rounds), its popularity (0 to 1, logarithmic), and a
    draw from the Gumbel distribution, which makes the choice a random utility model (a logit).

    Attributes:
        interest: weight of the match.
        recency: weight of the recency.
        popularity: weight of the popularity.
        noise: weight of the draw.
        half_life: rounds.
        max_age: rounds after which a post is out of everybody's feed.
        max_posts: how many posts are in circulation at most; those of least recency and
            popularity go first.
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
        rationale: whether the model is to say why; only for ``llm``.
        shuffle: whether the options are shown in a seeded random order; only for ``llm``.
        prompt: a prompt file instead of the shipped one; only for ``llm``.
    """

    kind: Literal["llm", "rule"] = "llm"
    rationale: bool = False
    shuffle: bool = True
    prompt: Path | None = None

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if self.kind == "rule" and (self.rationale or self.prompt or not self.shuffle):
            raise ValueError(
                "rationale, shuffle and prompt would have no effect: a rule reads no prompt"
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
    """Something done to the network from outside; users act on it from the next round on.

    Attributes:
        turn: the number of the round whose state is changed.
        post: a post to inject.
        ban: users who may not act any more; their posts are out of the feeds, others' reshares of
            them are not.
        unban: users who may again.
        note: why, for the record.
    """

    post: PostConfig | None = None
    ban: tuple[Name, ...] = ()
    unban: tuple[Name, ...] = ()
    note: str = ""

    @field_validator("ban", "unban", mode="before")
    @classmethod
    def _one_name_is_a_list(cls, names: Any) -> Any:
        return (names,) if isinstance(names, str) else names

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
        return f"round {self.turn}: {', '.join(parts)}{note}"


class SocialConfig(RunConfig):
    """Everything that defines a social simulation, apart from the model's own whims.

    ``population: 500`` instead of ``agents`` makes so many users from the shipped profiles, and
    ``seed_posts: 8`` instead of ``posts`` takes so many of the shipped posts.

    Attributes:
        kind: ``social``, by which a file says what it describes.
        agents: the users.
        posts: what the feeds begin with.
        chart: a statechart instead of the shipped ``social_feed``: a file, or what one holds. A
            run's configuration has the latter, so that its tape needs no other file.
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
        """Whether a language model reasons or writes."""
        return "llm" in (self.reasoner.kind, self.writer.kind)

    @property
    def series(self) -> Sequence[Series]:
        """Engagement, then the users by state."""
        return _SERIES

    def by_rules(self) -> SocialConfig:
        """Return the same with a rule for a reasoner and set phrases, so that it needs no model."""
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

        def found(part: Path | None) -> Path | None:
            return None if part is None else folder / part

        chart = config.chart
        if isinstance(chart, Path):
            chart = read_table(folder / chart)
        return config.model_copy(
            update={
                "chart": chart,
                "reasoner": config.reasoner.model_copy(
                    update={"prompt": found(config.reasoner.prompt)}
                ),
                "writer": config.writer.model_copy(update={"prompt": found(config.writer.prompt)}),
            }
        )
