"""What a part of a prompt does to the answer: n samples with it and n without, and the noise.

Texts are not numbers, so their words are compared. Two answers to the same prompt differ too: a
change counts only as far as it is larger than that noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, model_validator

from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.config import Settings
from llmsim_lab._util.tables import frame_of
from llmsim_lab._util.waiting import gather_all
from llmsim_lab.context import CrisisSimulation, LLMCrisisAgent
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.prompts import Prompt
from llmsim_lab.prompts._prompt import RenderedPrompt
from llmsim_lab.run import Run
from llmsim_lab.run._config import RunConfig, RunIntervention
from llmsim_lab.run._turn import RunTurn, Series
from llmsim_lab.study._results import ANSWERS, answers_apart
from llmsim_lab.types import FrozenDict

if TYPE_CHECKING:
    import pandas as pd

    from llmsim_lab.study._statistics import Effect

AGAIN = " (again)"
"""What is added to the reference's name for its second answer."""
_OTHER_SEEDS = 100_000
"""The distance of the second answers' seeds from the first ones'."""


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
        response_format: the parts of an answer, as in a briefing.
        about: whose prompt of which turn, for people.
    """

    name: Annotated[str, Field(min_length=1)] = "ablation"
    turns: Annotated[int, Field(ge=0, le=1_000)] = 5
    prompts: dict[str, PromptText]
    response_format: tuple[str, ...] = ()
    about: str = ""

    @model_validator(mode="after")
    def _two(self) -> Self:
        if len(self.prompts) != 2:
            raise ValueError(f"prompts: {len(self.prompts)} are given; two are compared")
        return self

    @property
    def series(self) -> Sequence[Series]:
        """The distances between answers."""
        labels = ("Change of the answer's words", "Noise", "Change beyond noise")
        named = zip(("change", "noise", "excess"), labels, strict=True)
        return tuple(Series(column=name, label=label, short=name) for name, label in named)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """The answers to a sample's three calls, by prompt; empty where a call failed."""

    words: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", FrozenDict(self.words))


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationTurn(RunTurn[Answers, RunIntervention]):
    """A sample."""

    @property
    def is_whole(self) -> bool:
        """True if none of the sample's calls failed."""
        return bool(self.state.words) and all(self.state.words.values())

    def own_columns(self) -> dict[str, Any]:
        """Return the sample's distances, 0 to 1; None where a call of it failed.

        Columns: ``change``, between the two prompts' answers, given with different seeds;
        ``noise``, between two answers to the reference, likewise; ``excess``, change minus noise.
        """
        if not self.is_whole:
            return dict.fromkeys(("change", "noise", "excess"))
        from llmsim_lab.study._statistics import word_distance  # here, since it imports numpy

        first, other, again = self.state.words.values()
        change, noise = word_distance(again, other), word_distance(again, first)
        return {"change": change, "noise": noise, "excess": change - noise}


class Ablation(Run[Answers, AblationTurn, AblationConfig, RunIntervention]):
    """Asks a model with two prompts, sample by sample; a run, so it can be recorded and resumed.

    A sample is three calls: the reference and the other prompt with one seed, and the reference
    again with another seed. The first two answers are both compared with the third: if the prompts
    make no difference, their distances differ only by chance, and little since they share a seed.
    Samples are independent of each other.

    Args:
        config: what to compare.
        llm_client: the model.
        state: the initial state, which a tape gives; leave it out.
        tape: where to record it.
        prompts: must be empty: every ``Run`` takes it, but here the configuration has the prompts.

    Attributes:
        reference: the name of the first prompt.
        other: the name of the prompt that is compared with it.
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

    @classmethod
    def without(
        cls,
        simulation: CrisisSimulation,
        agent: str,
        turn: int | None = None,
        *,
        silenced: Iterable[str] | str,
        samples: int = 5,
        llm_client: LLMClient | None = None,
        tape: Tape | str | Path | None = None,
    ) -> Ablation:
        """Return a comparison of an agent's prompt with and without some modules' words.

        No model is asked until it is run.

        Args:
            simulation: the run; it is left as it is.
            agent: whose prompt.
            turn: of which turn; the latest if not given.
            silenced: the modules whose words are left out; one may be given by its name alone.
            samples: how many.
            llm_client: the model; the run's own if not given.
            tape: where to record it.

        Raises:
            ConfigError: there is no such agent, turn or module, no module is named, or those named
                have no words in that prompt.
        """
        names = list(dict.fromkeys([silenced] if isinstance(silenced, str) else silenced))
        if not names:
            raise ConfigError("silenced is empty: name a module whose words are to be left out")
        whole = simulation.context_of(agent, turn)
        without = simulation.context_of(agent, turn, silenced=names)
        # Like ``context_of``, which before the first turn takes the one to come.
        at = max(simulation.turn_number, simulation.turns[0].number + 1) if turn is None else turn
        arms = {"as it was": whole, f"without {', '.join(names)}": without}
        if (whole.system, whole.user) == (without.system, without.user):
            raise ConfigError(
                f"without {', '.join(names)} the prompt of {agent}, turn {at}, is the same: "
                "they said nothing there; name a module that has a section in it"
            )
        config = AblationConfig(
            name=f"without {', '.join(names)}",
            turns=whole_number("samples", samples, least=1),
            seed=simulation.config.seed,
            prompts={name: PromptText.of(prompt) for name, prompt in arms.items()},
            response_format=simulation.config.scenario.briefing.response_format,
            about=f"{agent}, turn {at}",
        )
        return cls(config, llm_client=llm_client or simulation.llm_client, tape=tape)

    async def _play(self, before: AblationTurn, planned: Sequence[RunIntervention]) -> AblationTurn:
        del planned
        assert self.llm_client is not None
        client, number = self.llm_client, before.number + 1
        # Counted from the client's seed: runs with other seeds are new evidence.
        seed = (client.config.seed or 0) + self.config.seed + number
        # By the answer's name: the prompt, and its seed.
        asked = {
            self.reference: (self.reference, seed),
            self.other: (self.other, seed),
            f"{self.reference}{AGAIN}": (self.reference, seed + _OTHER_SEEDS),
        }
        answers = await gather_all(
            [
                LLMCrisisAgent(
                    name,
                    client.with_config(client.config.model_copy(update={"seed": own})),
                    response_format=self.config.response_format,
                ).respond(self.config.prompts[prompt].prompt, step_number=number)
                for name, (prompt, own) in asked.items()
            ]
        )
        return AblationTurn(
            number=number,
            state=Answers(words={a.action.agent_name: a.action.action_string for a in answers}),
            chains=tuple(answer.chain for answer in answers),
        )

    # --- results -----------------------------------------------------------------------------

    @property
    def effect(self) -> Effect:
        """How far apart the two prompts' answers are, and how often chance alone gives as much.

        It is the energy distance of the other prompt's answers from both of the reference's, by
        their words, or by whether they are the same where few different ones were given; the
        p-value is that of a permutation test. So it finds any change of what is answered, also of
        how often. Samples that failed are left out.
        """
        from llmsim_lab.study._statistics import Effect  # likewise

        whole = [turn.state.words for turn in self.turns[1:] if turn.is_whole]
        lost = len(self.turns) - 1 - len(whole)
        effect = Effect(
            contrast=f"{self.other} \u2212 {self.reference}",
            outcome=ANSWERS,
            unit="situations",
            n=1,
            speaks_of=f"this situation ({self.config.about or 'one prompt'})",
        )
        if len(whole) < 2:
            why = f"{lost} of {lost + len(whole)} samples failed" if lost else "play two or more"
            return replace(effect, note=f"too few samples for a test: {len(whole)}; {why}")
        first = [words[it] for words in whole for it in (self.reference, self.reference + AGAIN)]
        other = [words[self.other] for words in whole]
        lost_too = f"samples that failed: {lost}" if lost else ""
        return answers_apart(replace(effect, note=lost_too), other, first)

    @property
    def answers(self) -> pd.DataFrame:
        """One row an answer: ``sample``, ``prompt``, ``status``, ``words``, ``prompt_tokens``."""
        rows = [
            (
                *(turn.number, chain.agent, chain.status, turn.state.words[chain.agent]),
                chain.call.prompt_tokens if chain.call else 0,
            )
            for turn in self.turns[1:]
            for chain in turn.chains
        ]
        columns = ["sample", "prompt", "status", "words", "prompt_tokens"]
        return frame_of(rows, columns=columns)

    def verdict(self) -> str:
        """Return in a few sentences the effect and its interval."""
        rows = [turn.own_columns() for turn in self.turns[1:]]
        whole = [row for row in rows if row["excess"] is not None]
        lost = len(rows) - len(whole)
        failed = f" Samples that failed: {lost}." if lost else ""
        if not whole:
            return f"No sample {'succeeded' if lost else 'so far'}.{failed}"
        means = (
            f"{self.other} against {self.reference}, samples: {len(whole)}. The answers' words "
            f"differ by {fmean(row['change'] for row in whole):.2f}; two answers to the same "
            f"prompt differ by {fmean(row['noise'] for row in whole):.2f}."
        )
        effect = self.effect
        if effect.estimate is None or effect.p is None:
            return f"{means} No test: {effect.note}.{failed}"
        beyond = "evidence of a change" if effect.p < 0.05 else "no evidence of a change"
        return (
            f"{means} The energy distance of the answers is {effect.estimate:.2f}, p = "
            f"{effect.p:.3f}: {beyond} beyond noise.{failed}"
        )
