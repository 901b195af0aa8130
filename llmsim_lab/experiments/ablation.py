"""What a part of a prompt does to the answer: n samples with it and n without, and the noise.

Texts have no number, so their words are compared. Two answers to one and the same prompt differ
too: a change counts only as far as it exceeds that noise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, model_validator

from llmsim_lab.concurrency import gather_all
from llmsim_lab.context import LLMCrisisAgent
from llmsim_lab.errors import ConfigError
from llmsim_lab.experiments.arms import Pieces, arms_frame, budget_note
from llmsim_lab.experiments.intervals import Interval, Pair, mean_of, paired_interval
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.prompts import Prompt, RenderedPrompt
from llmsim_lab.runs import Run, RunTurn
from llmsim_lab.runs._config import RunConfig, RunIntervention
from llmsim_lab.runs._turn import Series
from llmsim_lab.settings import Settings
from llmsim_lab.values import FrozenDict

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Ablation",
    "AblationConfig",
    "AblationTurn",
    "Answers",
    "PromptText",
    "word_distance",
]

AGAIN = " (again)"
_OTHER_SEEDS = 100_000
"""What the second answers' seeds are apart from the first ones'."""


def word_distance(one: str, other: str) -> float:
    """Return how much two texts' words differ: 0 for the same words, 1 for none in common.

    One less the Jaccard index of the sets of words (Jaccard 1912, "The distribution of the flora in
    the alpine zone", New Phytologist 11); case and order do not count.
    """
    a, b = (set(re.findall(r"\w+", text.casefold())) for text in (one, other))
    return 1 - len(a & b) / len(a | b) if a | b else 0.0


class PromptText(Settings):
    """A prompt's two messages."""

    system: str = ""
    user: Annotated[str, Field(min_length=1)]

    @classmethod
    def of(cls, prompt: str) -> PromptText:
        """Return the messages of a prompt."""
        if isinstance(prompt, RenderedPrompt):
            return cls(system=prompt.system, user=prompt.user)
        return cls(user=prompt)

    @property
    def prompt(self) -> RenderedPrompt:
        """The prompt, as a client takes it."""
        template = Prompt("{{ user }}", system="{{ system }}", name="ablation")
        return template.render(user=self.user, system=self.system)


class AblationConfig(RunConfig):
    """Two prompts to compare.

    Attributes:
        turns: how many samples.
        prompts: two by name: the reference, then the other.
        response_format: the parts of an answer, as a briefing has them.
        about: whose prompt of which turn, for people.
        arms: by prompt, its sections and what was cut from it, where that is known.
        silenced: what was left out on purpose, as the sections' sources name it.
    """

    name: Annotated[str, Field(min_length=1)] = "ablation"
    turns: Annotated[int, Field(ge=0, le=1_000)] = 5
    prompts: dict[str, PromptText]
    response_format: tuple[str, ...] = ()
    about: str = ""
    arms: dict[str, Pieces] = Field(default_factory=dict)
    silenced: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _two(self) -> Self:
        if len(self.prompts) != 2:
            raise ValueError(f"prompts: {len(self.prompts)} are given; two are compared")
        if self.arms and list(self.arms) != list(self.prompts):
            raise ValueError(
                f"arms are of {', '.join(self.arms)}; the prompts are {', '.join(self.prompts)}"
            )
        return self

    @property
    def series(self) -> Sequence[Series]:
        """The distances."""
        return (
            Series(column="change", label="Change of the answer's words", short="change"),
            Series(column="noise", label="Noise", short="noise"),
            Series(column="excess", label="Change beyond noise", short="excess"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What a sample's three calls gave: words by prompt; empty where a call failed."""

    words: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", FrozenDict(self.words))


class _Nothing(RunIntervention):
    """Nothing can be done to an ablation from outside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationTurn(RunTurn[Answers, _Nothing]):
    """A sample."""

    def own_columns(self) -> dict[str, Any]:
        """Return the sample's distances, 0 to 1; None where a call of it failed.

        Columns: ``change``, between the two prompts' answers, given with different seeds;
        ``noise``, between two answers to the reference, likewise; ``excess``, the one less the
        other.
        """
        words = self.state.words
        nothing = {"change": None, "noise": None, "excess": None}
        if not words or not all(words.values()):
            return nothing
        first, other, again = words.values()
        change, noise = word_distance(again, other), word_distance(again, first)
        return {"change": change, "noise": noise, "excess": change - noise}


class Ablation(Run[Answers, AblationTurn, AblationConfig, _Nothing]):
    """Asks a model with two prompts, sample by sample; a run, so it is recorded and goes on.

    A sample is three calls: the reference and the other prompt with one seed, and the reference
    again with another seed. Both of the former are held against the latter: if the prompts make no
    difference, neither do their distances, and the seed they share keeps the comparison's own noise
    low. Samples are independent of each other.

    Args:
        config: what to compare.
        llm_client: the model.
        state: for the tape.
        tape: where to record it.
        prompts: none; for the tape.

    Attributes:
        names: of the two prompts.
    """

    kind = "ablation"

    def __init__(
        self,
        config: AblationConfig,
        *,
        llm_client: LLMClient | None = None,
        state: Answers | None = None,
        tape: Tape | str | Path | None = None,
        prompts: Mapping[str, Prompt] | None = None,
    ) -> None:
        if prompts:
            raise ConfigError(f"an ablation has no prompts to replace: {', '.join(prompts)}")
        if llm_client is None:
            raise ConfigError("an ablation asks a model: llm_client=connect('auto')")
        self.reference, self.other = config.prompts
        first = AblationTurn(number=0, state=state or Answers())
        super().__init__(config, first=first, llm_client=llm_client, tape=tape)

    async def _play(self, before: AblationTurn, planned: Sequence[_Nothing]) -> AblationTurn:
        del planned
        number = before.number + 1
        asked = [
            (self.reference, self.reference, 0),
            (self.other, self.other, 0),
            (f"{self.reference}{AGAIN}", self.reference, _OTHER_SEEDS),
        ]
        deeds = await gather_all(
            [
                self._agent(name, number + apart).respond(
                    self.config.prompts[prompt].prompt, step_number=number
                )
                for name, prompt, apart in asked
            ]
        )
        return AblationTurn(
            number=number,
            state=Answers(words={d.action.agent_name: d.action.action_string for d in deeds}),
            chains=tuple(deed.chain for deed in deeds),
        )

    def _agent(self, name: str, more: int) -> LLMCrisisAgent:
        assert self.llm_client is not None
        config = self.llm_client.config
        seeded = config.model_copy(update={"seed": (config.seed or 0) + self.config.seed + more})
        client = LLMClient(seeded, self.llm_client.backend)
        return LLMCrisisAgent(name, client, response_format=self.config.response_format)

    # --- what came of it ---------------------------------------------------------------------

    @property
    def effect(self) -> Interval:
        """By how much more the answers change than by noise, with a 95 % interval.

        Of each sample the distance between the other prompt's answer and the reference's second
        one, less the distance between the reference's two answers; the interval is Student's over
        the samples. Samples that failed are left out.
        """
        pairs = [
            Pair(turn=0, seed=turn.number, value=row["excess"])
            for turn in self.turns[1:]
            if (row := turn.own_columns())["excess"] is not None
        ]
        return paired_interval(pairs, failed=len(self.turns) - 1 - len(pairs))

    @property
    def answers(self) -> pd.DataFrame:
        """One row an answer: ``sample``, ``prompt``, ``status``, ``words``, ``prompt_tokens``."""
        import pandas as pd

        rows = [
            {
                "sample": turn.number,
                "prompt": chain.agent,
                "status": chain.status,
                "words": turn.state.words[chain.agent],
                "prompt_tokens": chain.call.prompt_tokens if chain.call else 0,
            }
            for turn in self.turns[1:]
            for chain in turn.chains
        ]
        columns = ["sample", "prompt", "status", "words", "prompt_tokens"]
        return pd.DataFrame(rows, columns=columns)

    @property
    def arms(self) -> pd.DataFrame:
        """Each prompt's sections and what was cut from it, one row a section.

        Columns: ``prompt``; ``section``, its title; ``source``, who contributes it; ``there``,
        whether it stands in the prompt, whole or shortened; ``cut``, why it was left out or
        shortened, empty where it is whole; ``tokens``, those it takes, or would have taken if it
        was left out. Empty where the prompts came without their sections.
        """
        return arms_frame(self.config.arms)

    @property
    def budget_note(self) -> str:
        """What a token budget made different beside what was silenced; empty if nothing."""
        return budget_note(self.config.arms, but=self.config.silenced)

    def verdict(self) -> str:
        """Say in a few sentences what was found, how sure that is, and what else differed."""
        return " ".join(filter(None, (self._found(), self.budget_note)))

    def _found(self) -> str:
        rows = [turn.own_columns() for turn in self.turns[1:]]
        whole = [row for row in rows if row["excess"] is not None]
        lost = len(rows) - len(whole)
        failed = f" Samples that failed: {lost}." if lost else ""
        if not whole:
            return f"No sample {'came off' if lost else 'so far'}.{failed}"
        said = (
            f"{self.other} against {self.reference}, samples: {len(whole)}. The answers' words "
            f"differ by {mean_of([row['change'] for row in whole]):.2f}; two answers to the same "
            f"prompt differ by {mean_of([row['noise'] for row in whole]):.2f}."
        )
        effect = self.effect
        if effect.low is None or effect.high is None or effect.estimate is None:
            return f"{said} No interval: {effect.note}.{failed}"
        beyond = "more than noise" if effect.low > 0 else "no more than noise may do"
        return (
            f"{said} The excess is {effect.estimate:+.2f}, 95 % interval {effect.low:+.2f} to "
            f"{effect.high:+.2f}: {beyond}.{failed}"
        )
