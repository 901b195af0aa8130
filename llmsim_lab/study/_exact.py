"""The exact law of a small simulation: all of its histories, each with its probability.

Where players choose among options, ``client.choose`` gives the probability of each option. A turn
is played once for each combination of choices in it, and the probability of a history is the
product of its choices' probabilities. No run is drawn, so that nothing has a standard error. A
turn's code cannot be stopped and copied where it asks, so that each combination is played from the
turn's start, with the choices made so far given (as in enumeration for probabilistic programs,
Goodman and Stuhlmüller 2014, "The Design and Implementation of Probabilistic Programming
Languages").
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
from collections import Counter, UserList, defaultdict
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias

from pydantic import Field

from llmsim_lab._util.checks import known_names, real_number, whole_number
from llmsim_lab._util.files import as_path, is_there
from llmsim_lab._util.jsontext import plain, text_of_model
from llmsim_lab._util.text import brief, clip, counted
from llmsim_lab._util.waiting import run_sync
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.llm.choice import Choice, Decide
from llmsim_lab.run import Ask, Question, Run, State
from llmsim_lab.run.answers import NOTHING_ELSE, options_to_choose, why_chosen
from llmsim_lab.run.chance import BY_CHANCE
from llmsim_lab.run.config import WorldConfig
from llmsim_lab.run.recorded import imagined, load
from llmsim_lab.run.registry import find_class
from llmsim_lab.run.turn import Answer, Turn
from llmsim_lab.types import CallSite

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Options: TypeAlias = Mapping[object, str]
"""The options of a choice, each with the text that a model sees."""
Shares: TypeAlias = list[float]
"""The probabilities of the options in order; last, the share of answers that are options."""
AskModel: TypeAlias = Callable[
    [LLMClient, str, Options, CallSite],
    Coroutine[Any, Any, Shares],
]
"""Asks a model to choose among options, from a place in a run."""
Game: TypeAlias = Run | Tape | str | Path
"""A run, or a tape, whose latest run counts."""
Outcome: TypeAlias = str | Callable[[Any], object]
"""A column of the turn's row, or a function of the run so far."""


# --- one way through a turn -----------------------------------------------------------------------


class _Draw(NamedTuple):
    """One choice in a turn.

    Attributes:
        player: the player who is asked.
        component: the part of the world that asks.
        field: the field of the reply that holds the choice.
        question: the question's key; empty where chance answers.
        number: counts the draws of a turn that are equal in all else.
    """

    player: str
    component: str
    field: str
    question: str
    number: int = 0


class _EnumeratedWay:
    """One way through a turn: it takes given choices, then the likeliest, and notes other ways.

    Args:
        drawn: the given choices.
        least: other ways are followed only if their probability is at least this.
    """

    def __init__(
        self,
        drawn: Mapping[_Draw, object],
        least: float,
    ) -> None:
        self.probability = 1.0
        self.lost = 0.0
        self.others: list[Mapping[_Draw, object]] = []
        self.unmet = set(drawn)
        """Given choices that the turn has not asked for; none are left if it asks as before."""
        self.drawn = dict(drawn)
        self._least = least
        self._times: Counter[_Draw] = Counter()

    def draw(
        self,
        draw: _Draw,
        choice: Choice[object],
        decide: Decide,
    ) -> object:
        """Return the given choice; in a draw without one, the likeliest option."""
        # The other ways to decide, such as the likeliest option, are no draws and have one result.
        if decide != "sample":
            return choice.decided(decide, Random())
        # Numbered, since a player may be asked the same twice, as by two judges.
        self._times[draw] += 1
        draw = draw._replace(number=self._times[draw])
        self.unmet.discard(draw)
        if draw not in self.drawn:
            self._branch(draw, choice)
            self.drawn[draw] = choice.mode
        value = self.drawn[draw]
        self.probability *= choice.probabilities[value]
        return value

    def _branch(self, draw: _Draw, choice: Choice[object]) -> None:
        """Note the ways that take the other options here."""
        for value, share in choice.probabilities.items():
            if value == choice.mode or share == 0:
                continue
            probability = self.probability * share
            if probability < self._least:
                self.lost += probability
            else:
                self.others.append({**self.drawn, draw: value})


class _RecordedWay:
    """The way of a recorded turn; adds up the log-likelihood of its answers."""

    def __init__(self, turn: Turn) -> None:
        self.log_likelihood = 0.0
        self._answers: dict[tuple[str, str], list[Answer]] = defaultdict(list)
        for answer in turn.answers:
            self._answers[answer.player, answer.component].append(answer)

    def draw(
        self,
        draw: _Draw,
        choice: Choice[object],
        decide: Decide,
    ) -> object:
        """Return the recorded choice."""
        # Several answers of one player and component are in the order in which they were asked.
        answer = self._answers[draw.player, draw.component].pop(0)
        # As JSON, since a tape has an enum member's value.
        by_value = {plain(value): value for value in choice.probabilities}
        value = by_value[answer.fields[draw.field]]
        # Answers by chance, by a rule, or in place of a person tell nothing about the model.
        if draw.question and answer.status != "fallback":
            share = choice.probabilities[value]
            if share > 0:
                self.log_likelihood += math.log(share)
            else:  # Python has no logarithm of 0
                self.log_likelihood = -math.inf
        return value


class _Past(UserList[Turn]):
    """A run's turns; notes whether a turn before the latest was read."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._turns = list(turns)
        self.was_read = False

    @property
    def data(self) -> list[Turn]:  # type: ignore[override]
        """All turns; the inherited methods of a list read them here."""
        self.was_read = True
        return self._turns

    def __len__(self) -> int:
        return len(self._turns)

    def __getitem__(self, index: Any) -> Any:
        # The next turn starts from the latest state, so that reading the latest turn does not
        # count.
        if index in (-1, len(self._turns) - 1):
            return self._turns[index]
        return self.data[index]

    def append(self, turn: Turn) -> None:
        """Add a turn; this does not count as reading."""
        self._turns.append(turn)


# --- all histories --------------------------------------------------------------------------------


class _Node(NamedTuple):
    """A history, or several merged ones, with their probability and the turns of the first."""

    probability: float
    turns: tuple[Turn, ...]


class _Histories:
    """The histories of a run, level by level, each turn played in every way.

    Args:
        run: the histories begin from its latest turn.
        client: the model of players that have no other.
        ask: asks a model.
        least: histories are followed only if their probability is at least this.
        most_questions: how many different questions may be asked.
        keeps_past: whether histories that come to the same state stay apart.
    """

    def __init__(
        self,
        run: Run,
        client: LLMClient | None,
        ask: AskModel,
        *,
        least: float,
        most_questions: int,
        keeps_past: bool,
    ) -> None:
        self.ask = ask
        self.levels = [[_Node(1.0, tuple(run.turns))]]
        self.lost = [0.0]
        self.answers: dict[str, Shares] = {}
        """The answer of each question, by key."""
        self.questions: set[str] = set()
        """The questions that these histories asked; a tape may have answers to others."""
        self.questions_of_law: frozenset[str] = frozenset()
        """The questions of the whole law; a recorded game may ask others."""
        self.keeps_past = keeps_past
        self._least = least
        self._most_questions = most_questions
        self._asking: dict[str, asyncio.Task[Shares]] = {}
        self._context = copy_context()
        self._way: _EnumeratedWay | _RecordedWay = _EnumeratedWay({}, least)
        self._refusal: Exception | None = None
        players: dict[str, object] = {}
        for name, player in {"*": "model", **run.players}.items():
            answers_by = client if player == "model" else player
            if isinstance(answers_by, LLMClient) and answers_by.backend.is_model:
                players[name] = partial(self._answer, answers_by)
            elif player == "random":
                players[name] = partial(self._answer, None)
            elif player == "rule":
                players[name] = player
            # If a model is asked and there is none, the run itself raises.
            elif player != "model":
                raise ConfigError(
                    f"players[{name!r}] is {brief(player)}: what it answers has no probabilities "
                    "that could be enumerated; seat a model, 'rule' or 'random'"
                )
        self.walker = imagined(run, client, players)

    async def grow(self, levels: int) -> None:
        """Play until there are so many levels; each level is a turn."""
        while len(self.levels) <= levels:
            merges = not self.keeps_past
            await self._add_level()
            if merges and self.keeps_past:
                # Something read the past, so that merged histories were not the same after all.
                self.levels = self.levels[:1]
                self.lost = self.lost[:1]

    async def _add_level(self) -> None:
        """Play one more turn of each history, in every way."""
        nodes: list[_Node] = []
        is_first = True
        lost = self.lost[-1]
        # Breadth first, since only histories of the same turn can be merged.
        for node in self.levels[-1]:
            # A history that is over stays as it is.
            if self.walker.done(node.turns[-1].state):
                nodes.append(node)
                continue
            # The bound is for whole histories; this is what it leaves for the turn.
            least = self._least / node.probability
            ways: list[Mapping[_Draw, object]] = [{}]
            while ways:
                way = _EnumeratedWay(ways.pop(), least)
                past = await self.play(node.turns, way)
                turn: Turn = past[-1]
                self.keeps_past = self.keeps_past or past.was_read
                # The same choices must lead to the same questions and the same state. Questions are
                # compared in every way; states only in the first way of a level, which is played
                # twice for that.
                is_same = not way.unmet
                if is_first:
                    is_first = False
                    repeated = await self.play(node.turns, _EnumeratedWay(way.drawn, least))
                    is_same = is_same and repeated[-1].state == turn.state
                if not is_same:
                    raise _depends_on_more(turn, self.walker)
                ways += way.others
                lost += node.probability * way.lost
                probability = node.probability * way.probability
                nodes.append(_Node(probability, (*node.turns, turn)))
        if not self.keeps_past:
            nodes = _merged(nodes)
        self.levels.append(nodes)
        self.lost.append(lost)

    async def play(
        self,
        turns: Sequence[Turn],
        way: _EnumeratedWay | _RecordedWay,
    ) -> _Past:
        """Play the turn that follows ``turns`` in one way, and return all turns."""
        past = _Past(turns)
        # A UserList, since a subclass of list has methods that would not pass through ``data``.
        self.walker.turns = past  # type: ignore[assignment]
        self._way = way
        self._refusal = None
        # Questions are asked in this context, since the walker's own context records no calls.
        self._context = copy_context()
        try:
            await self.walker.step()
        except Exception:
            if self._refusal is None:
                raise
        # Raised in any case: a stand-in may have answered, or another error may hide the refusal.
        if self._refusal is not None:
            raise self._refusal
        return past

    async def _answer(self, client: LLMClient | None, question: Question) -> dict[str, object]:
        """Return the current way's answer for a model, or for chance where there is none."""
        try:
            if client is not None and question.decide is None:
                raise ConfigError(
                    f"{question.player} of turn {question.turn} is asked for an answer, which has "
                    "no probability that could be enumerated; ask for a choice, with one field of "
                    "few values: ask(..., decide='sample')"
                )
            options = options_to_choose(question)
            key = ""
            shares = _even(options.texts)
            # With one option no model is asked, as in a run.
            if client is not None and len(options.texts) > 1:
                key = _key_of(client, question.prompt, options.texts)
                shares = await self._shares(key, client, question, options.texts)
            probabilities = dict(zip(options.texts, shares[:-1], strict=True))
            choice = Choice(
                probabilities=probabilities,
                mass=shares[-1],
                method="logprobs",
            )
            draw = _Draw(question.player, question.site.component, options.name, key)
            value = self._way.draw(draw, choice, options.decide)
            reasoning = NOTHING_ELSE
            if client is None:
                reasoning = BY_CHANCE
            elif key:
                reasoning = why_chosen(choice, options, value)
            fields = {options.name: value}
            # As in a run, since a state or a prompt may quote the reasoning.
            if "reasoning" in question.reply.model_fields:
                fields["reasoning"] = reasoning
            return fields
        except asyncio.CancelledError:
            # If another question has failed already, that error is the one to raise.
            self._refusal = self._refusal or ConfigError(
                f"turn {question.turn} gives up waiting for {question.player}, and how long an "
                "answer takes has no probability; wait for it without a time limit"
            )
            raise
        except Exception as error:
            self._refusal = error
            raise

    async def _shares(
        self,
        key: str,
        client: LLMClient,
        question: Question,
        options: Options,
    ) -> Shares:
        """Return the answer to a question; each question is asked once."""
        self.questions.add(key)
        if key not in self.answers:
            if len(self.questions) > self._most_questions:
                raise ConfigError(
                    f"more than most_questions={self._most_questions:,} questions would be asked; "
                    "take fewer turns, options or players, a larger prune, or say "
                    f"most_questions={10 * self._most_questions}"
                )
            # Players who are asked at the same time may have the same question.
            if key not in self._asking:
                # A turn of the recording is a level here.
                site = replace(question.site, turn=len(self.levels))
                asking = self.ask(client, question.prompt, options, site)
                self._asking[key] = asyncio.create_task(asking, context=self._context)
            self.answers[key] = await self._asking[key]
        return self.answers[key]


def _depends_on_more(turn: Turn, world: Run) -> ConfigError:
    """Return the error for a turn that differs when it is played again."""
    return ConfigError(
        f"turn {turn.number} of {type(world).__name__} asked or did something else when it was "
        "played again from the same state with the same answers: it depends on something that is "
        "not in the state, such as an attribute, a clock or chance of its own; put it into the "
        "state, and draw from ask.rng"
    )


def _key_of(client: LLMClient, prompt: str, options: Options) -> str:
    """Return a digest of the model, the text and the options, which identifies a question."""
    # Tapes have this digest: in another order their answers would not be found.
    asked = [
        text_of_model(client.config),
        # A filled prompt may have a system message, a plain text has none.
        getattr(prompt, "system", ""),
        str(prompt),
        [[repr(value), text] for value, text in options.items()],
    ]
    digest = hashlib.sha256(json.dumps(asked).encode())
    return digest.hexdigest()[:24]


def _merged(nodes: Sequence[_Node]) -> list[_Node]:
    """Return the histories; of several with the same future one, with the sum of probabilities."""
    merged: dict[object, _Node] = {}
    for node in nodes:
        latest = node.turns[-1]
        state = text_of_model(latest.state)
        # Notes are columns, which an outcome may name. The number keeps histories that are over
        # apart from those that continue.
        notes = json.dumps(plain(latest.noted))
        key = (latest.number, state, notes)
        before = merged.get(key, _Node(0.0, node.turns))
        probability = before.probability + node.probability
        merged[key] = _Node(probability, before.turns)
    return list(merged.values())


# --- who is asked ---------------------------------------------------------------------------------


def _even(options: Options) -> Shares:
    """Return the same probability for each option."""
    return [1 / len(options)] * len(options) + [1.0]


async def _ask_model(
    client: LLMClient,
    prompt: str,
    options: Options,
    site: CallSite,
) -> Shares:
    choice = await client.choose(prompt, options, site=site)
    # Without probabilities from the server, answers were drawn and counted, which is sampling.
    if choice.method == "samples":
        raise ConfigError(
            f"{client.config.model} tells no probabilities of tokens, so that its choices are "
            "estimates from samples, and no law that follows is exact; take a backend that "
            "reports them (Ollama, the embedded model), or sample runs with a Study"
        )
    return [*choice.probabilities.values(), choice.mass]


async def _suppose_even(
    client: LLMClient,
    prompt: str,
    options: Options,
    site: CallSite,
) -> Shares:
    return _even(options)


async def _ask_nobody(
    client: LLMClient,
    prompt: str,
    options: Options,
    site: CallSite,
) -> NoReturn:
    raise ConfigError(
        f"the tape has a whole law, and no answer to a question of turn {site.turn}: it is of "
        "another model, other settings, another prompt or another start than "
        f"{client.config.model} is asked here; give this law a tape of its own"
    )


class Asked(State):
    """The answers to the questions of an exact law.

    Attributes:
        probabilities: by question, those of the options in their order; last, the share of all
            answers that are options.
    """

    probabilities: dict[str, list[float]] = Field(default_factory=dict)


class Law(Run[Asked]):
    """The recording of an exact law: a run whose turn asks all questions of a turn of the world.

    ``exact`` makes and reads it. As for any run, its calls are on its tape, so that a law that was
    stopped continues where it was.
    """

    kind = "exact"
    world: str
    """The name of the world's class on tapes."""
    of: dict[str, Any]
    """The world's configuration."""
    _histories: _Histories | None = None

    def ask_for(self, histories: _Histories) -> None:
        """Ask the questions of these histories in the next turns."""
        self._histories = histories

    async def turn(self, state: Asked, ask: Ask) -> Asked:
        """Ask the questions that the next turn of all histories needs."""
        histories = self._histories
        if histories is None:
            raise ConfigError(
                f"the exact law of {self.world} is played by exact(run, turns=..., tape=...), "
                "which has the world"
            )
        await histories.grow(ask.turn)
        return state.replace(probabilities=dict(histories.answers))


# --- the law --------------------------------------------------------------------------------------


class ExactPlan(NamedTuple):
    """What an exact law takes at most, if all histories are followed.

    Attributes:
        questions: how many different questions.
        calls: how many calls to a model, one for each order of a question's options.
        histories: how many histories after the last turn; merged ones count once.
    """

    questions: int
    calls: int
    histories: int

    def __str__(self) -> str:
        return (
            f"at most {counted(self.questions, 'question')}, {counted(self.calls, 'call')}, "
            f"{self.histories} histories"
        )


class Exact:
    """The law of a small simulation, without sampling: the probability of each value of an outcome.

    The law is exact for this model and these options, in the mean over the orders of the options,
    and for the shocks of the run's seed. It tells nothing about other models or wordings.

    Args:
        run: the run whose turns after the latest are played. Its players are models that choose
            (``decide="sample"``), rules and chance. The run itself is not changed.
        turns: how many turns are played; if not given, the number in the world's configuration.
        outcome: a column of the turn's row, or a function of the run so far, for which histories
            stay apart. If not given, the first column that can be charted.
        tape: keeps the questions, so that a law that was stopped continues.
        prune: histories with a smaller probability are not followed; ``lost`` has their sum.
        most_questions: how many different questions may be asked.

    Attributes:
        lost: the probability of all histories that were not followed. The mean of an outcome is
            off by at most that times its range.
        mass: the smallest share of a model's answers that are options; where it is small, the
            model mostly says something else.
        questions: how many different questions were asked for the law.

    Raises:
        ConfigError: a player or the turn does something whose probabilities are not known.

    Example:
        >>> law = exact(Dilemma(llm_client=client), turns=4, outcome="cooperation")
        >>> law.mean(), law.distribution()
    """

    def __init__(
        self,
        run: Run,
        *,
        turns: int | None = None,
        outcome: Outcome | None = None,
        tape: Tape | str | Path | None = None,
        prune: float = 1e-6,
        most_questions: int = 2_000,
    ) -> None:
        if not isinstance(run, Run):
            raise ConfigError(
                f"{brief(run, 80)} is no run; give one that is not played yet: "
                "exact(PublicGoods(llm_client=client), turns=3)"
            )
        if outcome is None and run.series:
            outcome = run.series[0].column
        is_function = callable(outcome)
        if outcome is not None and not is_function and not isinstance(outcome, str):
            raise ConfigError(
                f"outcome={brief(outcome)} is neither a column nor a function of the run"
            )
        self.run_of = run
        if turns is None:
            turns = run.config.turns
        self.turns = whole_number("turns", turns, least=1)
        self.prune = real_number("prune", prune, least=0, most=1)
        self.most_questions = whole_number("most_questions", most_questions, least=1)
        self.outcome = outcome
        if tape is not None and not isinstance(tape, Tape):
            tape = as_path("tape", tape)
        self._tape = tape
        self._grown: _Histories | None = None

    def _new_histories(
        self,
        client: LLMClient | None,
        ask: AskModel,
        least: float,
    ) -> _Histories:
        return _Histories(
            self.run_of,
            client,
            ask,
            least=least,
            most_questions=self.most_questions,
            # After a single turn nothing more is asked, so that merging would save no question,
            # and would lose the decisions that ``compare_with_people`` reads.
            keeps_past=callable(self.outcome) or self.turns == 1,
        )

    def plan(self) -> ExactPlan:
        """Return what the law would take; no model is asked.

        Raises:
            ConfigError: more than ``most_questions`` would be asked.
        """
        # Without pruning, so that a model's law takes this or less.
        histories = self._new_histories(self.run_of.llm_client, _suppose_even, least=0.0)
        run_sync(histories.grow(self.turns))
        # A call for each option, since each option comes first in one call.
        options = [len(shares) - 1 for shares in histories.answers.values()]
        return ExactPlan(
            questions=len(options),
            calls=sum(options),
            histories=len(histories.levels[-1]),
        )

    async def arun(self) -> Exact:
        """Ask what is not on the tape yet, and return the law."""
        return await self._grown_by(self._recording())

    async def _grown_by(self, recording: Law) -> Exact:
        """Let a recording ask what is not on its tape yet, and return the law."""
        # A loaded recording has a client with the tape's settings, which answers nothing new.
        client = self.run_of.llm_client or recording.llm_client
        histories = self._new_histories(client, _ask_model, self.prune)
        histories.answers.update(recording.state.probabilities)
        recording.ask_for(histories)
        try:
            missing_turns = self.turns - recording.turn_number
            await recording.arun(missing_turns)
        finally:
            recording.close()
        # The recording may be another process's: its answers are here, its histories are not.
        # Growing them again asks nothing, since a new answer would be on no tape.
        histories.ask = _ask_nobody
        await histories.grow(self.turns)
        histories.ask = _ask_model  # loglik() asks the questions that only the game has
        histories.questions_of_law = frozenset(histories.questions)
        self._grown = histories
        return self

    def run(self) -> Exact:
        """Ask what is not on the tape yet, and return the law: ``arun`` for scripts."""
        return run_sync(self.arun())

    @classmethod
    def of_recording(cls, law: Run) -> Exact:
        """Return a recorded law from the answers on its tape; no model is asked.

        Args:
            law: the run that ``load("law.tape")`` returns. The world's class has to be imported, as
                for any recorded run.

        Raises:
            ConfigError: the run is not a recorded law, or no class has the world's name.
        """
        if not isinstance(law, Law):
            raise ConfigError(f"{brief(law, 120)} is the recording of a run, and of no law")
        world = find_class(law.world)
        config = world.config_type.model_validate(law.of)
        run = world(config, llm_client=law.llm_client)
        recorded = cls(run, turns=config.turns)
        return run_sync(recorded._grown_by(law))

    def _recording(self) -> Law:
        """Return the recording: a new one, or the one on the tape."""
        run = self.run_of
        config = run.config.model_copy(update={"turns": self.turns})
        of = plain(config.model_dump(mode="json"))
        tape = self._tape
        is_new = tape is None
        if isinstance(tape, Tape):
            is_new = not tape.runs()
        elif tape is not None:
            is_new = not is_there(tape)
        if tape is None or is_new:
            return Law(
                name=f"exact law of {run.name}",
                seed=run.config.seed,
                turns=self.turns,
                world=type(run).kind,
                of=of,
                llm_client=run.llm_client,
                tape=tape,
            )
        recording = load(tape)
        expected = (type(run).kind, of)
        if not isinstance(recording, Law) or (recording.world, plain(recording.of)) != expected:
            raise ConfigError(
                f"the tape {tape} has another run, {brief(recording, 120)}; give this law a tape "
                "of its own"
            )
        if recording.turn_number < self.turns:
            return Law.resume(tape, llm_client=run.llm_client)
        return recording

    # --- results ------------------------------------------------------------------------------

    @property
    def _followed(self) -> _Histories:
        if self._grown is None:
            raise ConfigError("nothing is known yet: law.run(), or await law.arun()")
        return self._grown

    @property
    def lost(self) -> float:
        """The probability of all histories that were not followed."""
        return self._followed.lost[-1]

    @property
    def questions(self) -> int:
        """How many different questions were asked."""
        return len(self._followed.questions_of_law)

    @property
    def mass(self) -> float:
        """The smallest share of a model's answers that are options; 1 where no model is asked."""
        histories = self._followed
        masses = [histories.answers[key][-1] for key in histories.questions_of_law]
        return min(masses, default=1.0)

    def distribution(
        self,
        outcome: Outcome | None = None,
        *,
        turn: int | None = None,
    ) -> pd.Series[float]:
        """Return the probability of each value of an outcome, in order; the sum is 1 - lost.

        Args:
            outcome: a column, in place of the law's own outcome.
            turn: the turn whose value is taken; the last if not given.

        Raises:
            ConfigError: there is no such column or turn.
        """
        import pandas as pd

        outcome = outcome or self.outcome
        if outcome is None:
            raise ConfigError(
                f"{type(self.run_of).__name__} has no column of numbers; name what is asked about: "
                "outcome='winner', or a function of the run"
            )
        first = self.run_of.turn_number
        last = first + self.turns
        counted_turn = last
        if turn is not None:
            counted_turn = whole_number("turn", turn, least=first, most=last)
        shares: dict[Hashable, float] = defaultdict(float)
        for node in self._followed.levels[counted_turn - first]:
            # Merged histories have the same value of each column.
            shares[self._value_of(node, outcome)] += node.probability
        values = sorted(shares, key=_in_order)
        return pd.Series(
            [shares[value] for value in values],
            # A tuple is one value here, not the levels of an index.
            index=pd.Index(values, name=_name_of(outcome), tupleize_cols=False),
            name="probability",
        )

    def _value_of(self, node: _Node, outcome: Outcome) -> Hashable:
        if isinstance(outcome, str):
            columns = node.turns[-1].columns()
            known_names("column", outcome, columns)
            value = columns[outcome]
        elif self._followed.keeps_past:
            walker = self._followed.walker
            walker.turns = [*node.turns]
            value = outcome(walker)
        else:
            raise ConfigError(
                "a function of the run needs histories that were kept apart: give it when the "
                "law is made, exact(run, outcome=function)"
            )
        # NaN does not equal NaN, and would be a separate value in each history.
        if isinstance(value, float) and math.isnan(value):
            return None
        if not isinstance(value, Hashable):
            raise ConfigError(
                f"outcome {_name_of(outcome)} is {brief(value)}; a law counts numbers and texts: "
                "give a column of them, or a function of the run"
            )
        return value

    def mean(self, outcome: Outcome | None = None, *, turn: int | None = None) -> float:
        """Return the expectation of an outcome after a turn, over all histories that were followed.

        Raises:
            ConfigError: the outcome's values are not numbers.
        """
        import pandas as pd

        shares = self.distribution(outcome, turn=turn)
        numbers = pd.to_numeric(shares.index.to_series(), errors="coerce").to_numpy()
        without_number = shares[pd.isna(numbers)]
        if len(without_number):
            raise ConfigError(
                f"outcome {shares.index.name} is {brief(without_number.index[0], 40)} in histories "
                f"of the probability {without_number.iloc[0]:.3g}, and so has no mean; see "
                "distribution()"
            )
        # Divided by the probability that was followed, since lost histories have no value.
        return math.fsum(numbers * shares) / math.fsum(shares)

    def effect(
        self,
        reference: Exact,
        outcome: Outcome | None = None,
        *,
        turn: int | None = None,
    ) -> float:
        """Return the mean minus the mean of another law.

        The difference has no interval, since both laws are exact for their model and options. Where
        histories were lost, it is off by at most both ``lost`` together times the outcome's range.

        Raises:
            ConfigError: the laws have different outcomes, or end with different turns.
        """
        if not isinstance(reference, Exact):
            raise ConfigError(f"effect({brief(reference)}): give another exact law to compare with")
        name = _name_of(outcome or self.outcome)
        reference_name = _name_of(outcome or reference.outcome)
        if name != reference_name:
            raise ConfigError(
                f"one law's outcome is {name}, the other's {reference_name}; say which both are "
                f"compared in: effect(other, {reference_name!r})"
            )
        last = self.run_of.turn_number + self.turns
        reference_last = reference.run_of.turn_number + reference.turns
        if turn is None and last != reference_last:
            raise ConfigError(
                f"one law ends with turn {last}, the other with turn {reference_last}; say after "
                f"which turn they are compared: effect(other, turn={min(last, reference_last)})"
            )
        return self.mean(outcome, turn=turn) - reference.mean(outcome, turn=turn)

    def to_frame(self) -> pd.DataFrame:
        """Return the law by turn: one row for each value, with its probability."""
        import pandas as pd

        first = self.run_of.turn_number
        turns = range(first, first + self.turns + 1)
        laws = [self.distribution(turn=turn) for turn in turns]
        return pd.concat(laws, keys=turns, names=["turn"]).reset_index()

    @property
    def figure(self) -> Figure:
        """The outcome by turn: a dot for each value, sized by its probability, and the mean."""
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator

        table = self.to_frame()
        name = table.columns[1]
        figure = Figure(figsize=(7, 3.6), layout="constrained")
        axes = figure.add_subplot()
        sizes = table["probability"] * 400
        axes.scatter(table["turn"], table[name], s=sizes, alpha=0.5, linewidths=0)
        turns = sorted(set(table["turn"]))
        means = [self.mean(turn=int(turn)) for turn in turns]
        axes.plot(turns, means, label="mean")
        axes.set_xlabel("turn")
        axes.set_ylabel(name)
        axes.set_title(f"Each history of {self.run_of.name} with its probability")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(frameon=False)
        return figure

    async def aloglik(self, game: Game) -> float:
        """Return the log-likelihood of a game: how likely it is that this model plays it.

        Answers that were filled in for a person who did not answer do not count.

        Args:
            game: a run, whose players may be people, such as one of a room; or a tape, whose latest
                run counts.

        Raises:
            ConfigError: the game has another initial state, other parameters or other shocks.
        """
        if not isinstance(game, Run):
            game = load(game)
        run = self.run_of
        first = run.turns[-1]
        if type(game) is not type(run) or _parameters_of(game) != _parameters_of(run):
            raise ConfigError(f"{brief(game, 120)} is not a game of {brief(run, 120)}")
        if game.turns[0].state != first.state:
            raise ConfigError(
                f"the game starts from {brief(game.turns[0].state, 200)}, the law from "
                f"{brief(first.state, 200)}; give exact() a run with that start: state=..."
            )
        log_likelihood = 0.0
        for place, after in enumerate(game.turns[1:], 1):
            way = _RecordedWay(after)
            # From the game's own turns, which the law may have pruned.
            past = await self._followed.play(game.turns[:place], way)
            if past[-1].state != after.state:
                raise ConfigError(
                    f"turn {after.number} leads elsewhere than in the recorded game: it has other "
                    "shocks, or something was done from outside"
                )
            log_likelihood += way.log_likelihood
        return log_likelihood

    def loglik(self, game: Game) -> float:
        """Return the log-likelihood of a game: ``aloglik`` for scripts and notebook cells."""
        return run_sync(self.aloglik(game))

    def __repr__(self) -> str:
        if self._grown is None:
            return f"<Exact law of {self.run_of.name}, {counted(self.turns, 'turn')}, not asked>"
        return (
            f"<Exact law of {self.run_of.name} after {counted(self.turns, 'turn')}: "
            f"{counted(self.questions, 'question')}, {self.lost:.2g} lost, mass {self.mass:.2f}>"
        )


def exact(
    run: Run,
    *,
    turns: int | None = None,
    outcome: Outcome | None = None,
    tape: Tape | str | Path | None = None,
    prune: float = 1e-6,
    most_questions: int = 2_000,
) -> Exact:
    """Return the exact law of a small simulation; see ``Exact`` for the arguments."""
    law = Exact(
        run,
        turns=turns,
        outcome=outcome,
        tape=tape,
        prune=prune,
        most_questions=most_questions,
    )
    return law.run()


def _parameters_of(run: Run) -> Mapping[str, object]:
    """Return the world's own parameters, without those that every run has."""
    # The game and the law may differ in seed, players and length.
    values: dict[str, object] = run.config.model_dump(mode="json")
    return {name: value for name, value in values.items() if name not in WorldConfig.model_fields}


def _in_order(value: object) -> tuple[bool, object]:
    """Return a key that sorts numbers by size, and texts after them."""
    is_text = not isinstance(value, int | float)
    return is_text, str(value) if is_text else value


def _name_of(outcome: Outcome | None) -> str:
    if isinstance(outcome, str):
        return outcome
    return clip(getattr(outcome, "__name__", "outcome"), 40)
