"""What a part of a prompt does to the answer: n samples with it and n without, and the noise.

Texts are not numbers, so their words are compared. Two answers to the same prompt differ too: a
change counts only as far as it is larger than that noise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, model_validator

from llmsim_lab._spans import Cut
from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.config import Settings
from llmsim_lab._util.tables import frame_of
from llmsim_lab._util.waiting import gather_all
from llmsim_lab.context import CrisisSimulation, LLMCrisisAgent
from llmsim_lab.context._builder import module_source
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


class Piece(Settings):
    """A section of a prompt, or one that was cut from it.

    Attributes:
        name: of the section.
        source: who contributes it, such as ``module trust_dynamics``.
        there: whether it stands in the prompt, whole or shortened.
        cut: why it was left out or shortened; empty where it is whole.
        tokens: how many it takes, or would have taken if it was left out; None if not known.
    """

    name: str
    source: str = ""
    there: bool = True
    cut: str = ""
    tokens: int | None = None

    def __str__(self) -> str:
        return f"{self.name} ({self.source})" if self.source else self.name


Pieces = tuple[Piece, ...]


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
        arms: by prompt, its sections and what was cut from it, where that is known.
        silenced: what was left out on purpose, by the sections' sources.
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

        No model is asked until it is run. Under a token budget another module may come in where one
        is left out: the ``verdict`` says so, and ``arms`` lists both prompts' sections.

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
        sources = tuple(map(module_source, names))
        if (whole.system, whole.user) == (without.system, without.user):
            cuts = [cut for cut in whole.provenance.cuts if cut.source in sources]
            why = "; ".join(f"{cut.name} was {cut.reason}" for cut in cuts)
            raise ConfigError(
                f"without {', '.join(names)} the prompt of {agent}, turn {at}, is the same: "
                f"{why or 'they said nothing there'}; name a module that has a section in it"
            )
        config = AblationConfig(
            name=f"without {', '.join(names)}",
            turns=whole_number("samples", samples, least=1),
            seed=simulation.config.seed,
            prompts={name: PromptText.of(prompt) for name, prompt in arms.items()},
            response_format=simulation.config.scenario.briefing.response_format,
            about=f"{agent}, turn {at}",
            arms={name: pieces_of(prompt) for name, prompt in arms.items()},
            silenced=sources,
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

    @property
    def arms(self) -> pd.DataFrame:
        """Each prompt's sections and what was cut from it, one row a section.

        Columns: ``prompt``; ``section``, its title; ``source``, who contributes it; ``there``,
        whether it stands in the prompt, whole or shortened; ``cut``, why it was left out or
        shortened, empty where it is whole; ``tokens``, those it takes, or would have taken if it
        was left out. Empty where the prompts came without their sections.
        """
        rows = [
            (prompt, piece.name, piece.source, piece.there, piece.cut, piece.tokens)
            for prompt, pieces in self.config.arms.items()
            for piece in pieces
        ]
        return frame_of(rows, columns=["prompt", "section", "source", "there", "cut", "tokens"])

    @property
    def budget_note(self) -> str:
        """What else differs because of a token budget; empty if nothing does."""
        return budget_note(self.config.arms, but=self.config.silenced)

    def verdict(self) -> str:
        """Return in a few sentences the effect, its interval, and what else differed."""
        return " ".join(filter(None, (self._evidence(), self.budget_note)))

    def _evidence(self) -> str:
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


def pieces_of(prompt: RenderedPrompt) -> Pieces:
    """Return a prompt's sections in their order, then those that were left out."""
    known = prompt.provenance
    shortened: list[Cut] = [cut for cut in known.cuts if cut.shortened]
    pieces = []
    for span in known.spans:
        cut = next((c for c in shortened if (c.name, c.source) == (span.name, span.source)), None)
        if cut is not None:
            shortened.remove(cut)  # names may repeat: each cut belongs to one section
        reason = cut.reason if cut else ""
        pieces.append(Piece(name=span.name, source=span.source, cut=reason, tokens=span.tokens))
    # A section that was shortened and later left out is listed once, as left out.
    pieces += [
        Piece(name=cut.name, source=cut.source, there=False, cut=cut.reason, tokens=cut.tokens)
        for cut in known.cuts
        if not cut.shortened
    ]
    return tuple(pieces)


def budget_note(arms: Mapping[str, Pieces], *, but: Iterable[str]) -> str:
    """Return how two prompts differ in more than what was meant to differ; empty if in nothing.

    Leaving one part out of a prompt makes room: under a token budget another may come in, or be cut
    less.

    Args:
        arms: two prompts' sections by the prompts' names, the reference first.
        but: the sources that were meant to differ.
    """
    if len(arms) != 2:
        return ""
    (one, before), (other, after) = arms.items()
    meant = set(but)
    here, there = (
        _numbered(piece for piece in pieces if piece.source not in meant)
        for pieces in (before, after)
    )
    otherwise = [here[key] for key in here if key in there and here[key].cut != there[key].cut]
    changes = {
        "came in": [piece for key, piece in there.items() if key not in here],
        "left out": [piece for key, piece in here.items() if key not in there],
        "otherwise cut": otherwise,
    }
    listed = [f"{what}: {', '.join(map(str, of))}" for what, of in changes.items() if of]
    lines = []
    if listed:
        lines.append(
            f"Mind the token budget: in {other}, {'; '.join(listed)}. So the prompts differ in "
            "more than what was silenced, and the change cannot be attributed to that alone. "
            f"Cut for want of tokens in {one}: {_cut(before)}; in {other}: {_cut(after)}."
        )
    if cut := [piece for piece in before if piece.source in meant and piece.cut]:
        names = ", ".join(f"{piece}: {piece.cut}" for piece in cut)
        lines.append(f"In {one} the budget had cut what was to be silenced: {names}.")
    return " ".join(lines)


def _numbered(pieces: Iterable[Piece]) -> dict[tuple[str, str, int], Piece]:
    """Return the sections that are there by name, source and count of both, which may repeat."""
    found: dict[tuple[str, str, int], Piece] = {}
    seen: Counter[tuple[str, str]] = Counter()
    for piece in pieces:
        if piece.there:
            name = (piece.name, piece.source)
            found[(*name, seen[name])] = piece
            seen[name] += 1
    return found


def _cut(pieces: Iterable[Piece]) -> str:
    return "; ".join(f"{piece}, {piece.cut}" for piece in pieces if piece.cut) or "nothing"
