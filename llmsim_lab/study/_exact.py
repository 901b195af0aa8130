"""The exact law of a small simulation: every way in which it may go, with its probability.

Where players choose among options, ``client.choose`` gives the probability of each. A turn is
played once for each combination of what may be chosen in it, and a history has the product of its
probabilities: no run is drawn, so that nothing has a standard error. A turn's code cannot be
stopped and copied where it asks; so it is played again from its start for each combination, with
what is already known to be chosen (as in enumeration for probabilistic programs, Goodman and
Stuhlmüller 2014, "The Design and Implementation of Probabilistic Programming Languages").
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
from llmsim_lab._util.jsontext import plain
from llmsim_lab._util.text import clip, counted
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
"""What can be chosen, each with the text that a model sees."""
Shares: TypeAlias = list[float]
"""The probabilities of options, in their order, and last how much of all answers are options."""
AskModel: TypeAlias = Callable[
    [LLMClient, str, Options, CallSite],
    Coroutine[Any, Any, Shares],
]
"""Asks a model a prompt with options, from a place in a run."""
Game: TypeAlias = Run | Tape | str | Path
"""A run, or a tape, of which the latest run counts."""
Outcome: TypeAlias = str | Callable[[Any], object]
"""A column of the turn's row, or a function of the run so far."""


# --- one way through a turn -----------------------------------------------------------------------


class _Draw(NamedTuple):
    """What is drawn in a turn.

    Attributes:
        player: who is asked.
        component: as what.
        field: of the reply.
        question: its key; empty where chance answers.
        number: how often the same was drawn before.
    """

    player: str
    component: str
    field: str
    question: str
    number: int = 0


class _EnumeratedWay:
    """A way that takes what it is given, then the likeliest; notes which others begin there.

    Args:
        drawn: what it is given.
        least: the probability below which no other way is followed.
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
        """What is given and was not drawn: none, if the same was asked as before."""
        self.drawn = dict(drawn)
        self._least = least
        self._times: Counter[_Draw] = Counter()

    def draw(
        self,
        draw: _Draw,
        choice: Choice[object],
        decide: Decide,
    ) -> object:
        """Return what is drawn; where that is new, the likeliest option."""
        # The likeliest and the nearest to the mean are no draws: there is one way alone.
        if decide != "sample":
            return choice.decided(decide, Random())
        # By its number too: a player may be asked the same twice, as by two judges.
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
        """Note the ways that begin with the other options."""
        for value, share in choice.probabilities.items():
            if value == choice.mode or share == 0:
                continue
            probability = self.probability * share
            if probability < self._least:
                self.lost += probability
            else:
                self.others.append({**self.drawn, draw: value})


class _RecordedWay:
    """The way that a recorded turn went; adds up how likely its answers are."""

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
        """Return what was answered."""
        # Of several of one kind the first: they stand in the order in which they were asked.
        answer = self._answers[draw.player, draw.component].pop(0)
        # As JSON: an enum's member is its value on a tape.
        by_value = {plain(value): value for value in choice.probabilities}
        value = by_value[answer.fields[draw.field]]
        # What chance or a rule answers, or fills in for a person, says nothing of the model.
        if draw.question and answer.status != "fallback":
            share = choice.probabilities[value]
            if share > 0:
                self.log_likelihood += math.log(share)
            else:  # of which Python has no logarithm
                self.log_likelihood = -math.inf
        return value


class _Past(UserList[Turn]):
    """A run's turns; notes whether anything reads an earlier one than the latest."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._turns = list(turns)
        self.was_read = False

    @property
    def data(self) -> list[Turn]:  # type: ignore[override]
        """All turns; every method of a list reads them here."""
        self.was_read = True
        return self._turns

    def __len__(self) -> int:
        return len(self._turns)

    def __getitem__(self, index: Any) -> Any:
        # The state before the turn, which every turn has, is the latest one's.
        if index in (-1, len(self._turns) - 1):
            return self._turns[index]
        return self.data[index]

    def append(self, turn: Turn) -> None:
        """Add a turn, which reads none."""
        self._turns.append(turn)


# --- all histories --------------------------------------------------------------------------------


class _Node(NamedTuple):
    """A history, or all that came to the same: its probability, and the turns that led there."""

    probability: float
    turns: tuple[Turn, ...]


class _Histories:
    """The histories of a run, level by level, each turn played in every way.

    Args:
        run: from whose latest turn they begin.
        client: the model of players that are the run's.
        ask: asks it.
        least: the probability below which a history is not followed.
        most_questions: how many may be asked.
        keeps_past: whether histories that came to the same state stay apart.
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
        self.known: dict[str, Shares] = {}
        """What each question was answered."""
        self.met: set[str] = set()
        """The questions of these histories; a tape may know others, of another model."""
        self.of_law: frozenset[str] = frozenset()
        """Those of the whole law; a recorded game may meet others."""
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
            # Without a model the run says so itself, where one would be asked.
            elif player != "model":
                raise ConfigError(
                    f"players[{name!r}] is {player!r:.60}: what it answers has no probabilities "
                    "that could be enumerated; seat a model, 'rule' or 'random'"
                )
        self.walker = imagined(run, client, players)

    async def grow(self, levels: int) -> None:
        """Play on until there are as many levels, each a turn."""
        while len(self.levels) <= levels:
            merges = not self.keeps_past
            await self._add_level()
            if merges and self.keeps_past:
                # Something read the past, so that what was merged before was not the same.
                self.levels = self.levels[:1]
                self.lost = self.lost[:1]

    async def _add_level(self) -> None:
        """Play one more turn of each history, in every way."""
        nodes: list[_Node] = []
        is_first = True
        lost = self.lost[-1]
        # Breadth first, since only histories of the same turn can come to the same.
        for node in self.levels[-1]:
            # A history that is over stays as it is, beside those that go on.
            if self.walker.done(node.turns[-1].state):
                nodes.append(node)
                continue
            # Of the turn alone, while the bound is one of whole histories.
            least = self._least / node.probability
            ways: list[Mapping[_Draw, object]] = [{}]
            while ways:
                way = _EnumeratedWay(ways.pop(), least)
                past = await self.play(node.turns, way)
                turn: Turn = past[-1]
                self.keeps_past = self.keeps_past or past.was_read
                # The same draws lead to the same questions and the same state, unless something
                # else changed them. Questions are compared in every way; states only in the first
                # of a level, which is played twice for that.
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
        """Play the turn that follows others in one way; returns all turns with it."""
        past = _Past(turns)
        # It has the methods of a list, and is none, so that a list's cannot pass it by.
        self.walker.turns = past  # type: ignore[assignment]
        self._way = way
        self._refusal = None
        # Questions are asked in this context: the walker's own has no place for calls.
        self._context = copy_context()
        try:
            await self.walker.step()
        except Exception:
            if self._refusal is None:
                raise
        # A stand-in may have answered in its place, or the world's rule be blamed for it.
        if self._refusal is not None:
            raise self._refusal
        return past

    async def _answer(self, client: LLMClient | None, question: Question) -> dict[str, object]:
        """Answer for a model, or by chance where there is none, as the way goes."""
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
            # A world may leave a player one option; no model is asked then, as in a run.
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
            # As in a run: a state or a prompt may quote it.
            if "reasoning" in question.reply.model_fields:
                fields["reasoning"] = reasoning
            return fields
        except asyncio.CancelledError:
            # Also where another question failed, which is then what is said.
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
        """Return what a question is answered, which is asked once."""
        self.met.add(key)
        if key not in self.known:
            if len(self.met) > self._most_questions:
                raise ConfigError(
                    f"more than most_questions={self._most_questions:,} questions would be asked; "
                    "take fewer turns, options or players, a larger prune, or say "
                    f"most_questions={10 * self._most_questions}"
                )
            # Players who are asked at the same time may be asked the same.
            if key not in self._asking:
                # The turns of the run that records the calls are the levels.
                site = replace(question.site, turn=len(self.levels))
                asking = self.ask(client, question.prompt, options, site)
                self._asking[key] = asyncio.create_task(asking, context=self._context)
            self.known[key] = await self._asking[key]
        return self.known[key]


def _depends_on_more(turn: Turn, world: Run) -> ConfigError:
    """Return the error of a turn that is not the same when it is played again."""
    return ConfigError(
        f"turn {turn.number} of {type(world).__name__} asked or did something else when it was "
        "played again from the same state with the same answers: it depends on something that is "
        "not in the state, such as an attribute, a clock or chance of its own; put it into the "
        "state, and draw from ask.rng"
    )


def _key_of(client: LLMClient, prompt: str, options: Options) -> str:
    """Return what tells a question from others: the model, the text, the options."""
    # As it is hashed here it stands on tapes: another order would find none of their answers.
    asked = [
        client.config.model_dump_json(),
        # A plain text has no system message, a filled prompt may have one.
        getattr(prompt, "system", ""),
        str(prompt),
        [[repr(value), text] for value, text in options.items()],
    ]
    digest = hashlib.sha256(json.dumps(asked).encode())
    return digest.hexdigest()[:24]


def _merged(nodes: Sequence[_Node]) -> list[_Node]:
    """Return histories, of those that go on alike the first, with the probability of all."""
    merged: dict[object, _Node] = {}
    for node in nodes:
        latest = node.turns[-1]
        state = latest.state.model_dump_json()
        # Its notes are columns, which an outcome may name; of a history that is over the number is
        # another one than of those that go on.
        notes = json.dumps(plain(latest.noted))
        key = (latest.number, state, notes)
        before = merged.get(key, _Node(0.0, node.turns))
        probability = before.probability + node.probability
        merged[key] = _Node(probability, before.turns)
    return list(merged.values())


# --- who is asked ---------------------------------------------------------------------------------


def _even(options: Options) -> Shares:
    """Return what is answered evenly by chance."""
    return [1 / len(options)] * len(options) + [1.0]


async def _ask_model(
    client: LLMClient,
    prompt: str,
    options: Options,
    site: CallSite,
) -> Shares:
    choice = await client.choose(prompt, options, site=site)
    # Of a server that tells no probabilities answers were drawn and counted, which is sampling.
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
    """What the questions of an exact law were answered.

    Attributes:
        probabilities: by question, of its options in their order; last how much of all answers
            are options.
    """

    probabilities: dict[str, list[float]] = Field(default_factory=dict)


class Law(Run[Asked]):
    """Asks the questions of an exact law, a turn for all that come up in a turn of the world.

    ``exact`` makes it, and reads it: a run on a tape like any other, whose calls are kept, so that
    one that was stopped goes on where it was.
    """

    kind = "exact"
    world: str
    """The name of the world's class on tapes."""
    of: dict[str, Any]
    """The world's configuration."""
    _histories: _Histories | None = None

    def ask_for(self, histories: _Histories) -> None:
        """Ask what these histories need, in the turns to come."""
        self._histories = histories

    async def turn(self, state: Asked, ask: Ask) -> Asked:
        """Ask what comes up in the next turn of all histories."""
        histories = self._histories
        if histories is None:
            raise ConfigError(
                f"the exact law of {self.world} is played by exact(run, turns=..., tape=...), "
                "which has the world"
            )
        await histories.grow(ask.turn)
        return state.replace(probabilities=dict(histories.known))


# --- the law --------------------------------------------------------------------------------------


class ExactPlan(NamedTuple):
    """What an exact law would take, if no history were too unlikely to follow.

    Attributes:
        questions: how many different ones.
        calls: to a model, one for each order of the options.
        histories: after the last turn, those that come to the same counted once.
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
    """The law of a small simulation, without sampling: of each outcome each value's probability.

    It is exact about this model, these options in the mean over their orders, and where the world
    draws shocks, those of the run's seed. It says nothing of other models or other wordings.

    Args:
        run: what is played, from its latest turn; its players are models that choose
            (``decide="sample"``), rules and chance. It is left as it is.
        turns: how many are played; if not given, as many as the world's configuration says.
        outcome: what is asked about: a column of the turn's row, or a function of the run so far,
            for which histories stay apart. If not given, the first column that can be charted.
        tape: keeps the questions; an exact law that was stopped goes on there.
        prune: a history with a smaller probability is not followed; ``lost`` has their sum.
        most_questions: how many may be asked.

    Attributes:
        lost: the probability of all that was not followed. The mean of an outcome is off by at
            most that times its range.
        mass: the least share of a model's answers that are options at all; with little, the model
            mostly says something else.
        questions: how many different ones the law rests on.

    Raises:
        ConfigError: a player or the turn does something without known probabilities.

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
                f"{run!r:.80} is no run; give one that is not played yet: "
                "exact(PublicGoods(llm_client=client), turns=3)"
            )
        if outcome is None and run.series:
            outcome = run.series[0].column
        is_function = callable(outcome)
        if outcome is not None and not is_function and not isinstance(outcome, str):
            raise ConfigError(
                f"outcome={outcome!r:.60} is neither a column nor a function of the run"
            )
        self.run_of = run
        if turns is None:
            turns = run.config.turns
        self.turns = whole_number("turns", turns, least=1)
        self.prune = real_number("prune", prune, least=0, most=1)
        self.most_questions = whole_number("most_questions", most_questions, least=1)
        self.outcome = outcome
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
            # After the last turn nothing more is asked, so that merging saves nothing; what became
            # of the decisions, which ``compare_with_people`` reads, would be lost by it.
            keeps_past=callable(self.outcome) or self.turns == 1,
        )

    def plan(self) -> ExactPlan:
        """Return what it would take; no model is asked.

        Raises:
            ConfigError: more than ``most_questions`` would be asked.
        """
        # With nothing pruned: a model's law takes this or less.
        histories = self._new_histories(self.run_of.llm_client, _suppose_even, least=0.0)
        run_sync(histories.grow(self.turns))
        # A question has a call for each option, since each stands first once.
        options = [len(shares) - 1 for shares in histories.known.values()]
        return ExactPlan(
            questions=len(options),
            calls=sum(options),
            histories=len(histories.levels[-1]),
        )

    async def arun(self) -> Exact:
        """Ask what has to be asked; returns the law."""
        return await self._grown_by(self._law())

    async def _grown_by(self, law: Law) -> Exact:
        """Let a run ask what it has not on its tape; returns the law."""
        # Without one, that of the tape's settings, which asks nothing.
        client = self.run_of.llm_client or law.llm_client
        histories = self._new_histories(client, _ask_model, self.prune)
        histories.known.update(law.state.probabilities)
        law.ask_for(histories)
        try:
            missing_turns = self.turns - law.turn_number
            await law.arun(missing_turns)
        finally:
            law.close()
        # What another process asked is known, and what came of it is not. Nothing else is asked
        # now: it would stand on no tape.
        histories.ask = _ask_nobody
        await histories.grow(self.turns)
        histories.ask = _ask_model  # loglik asks what a game met besides
        histories.of_law = frozenset(histories.met)
        self._grown = histories
        return self

    def run(self) -> Exact:
        """Do what ``arun`` does, from plain code."""
        return run_sync(self.arun())

    @classmethod
    def of_recording(cls, law: Run) -> Exact:
        """Return the law that was recorded, from the answers on its tape: nothing is asked.

        Args:
            law: as ``load("law.tape")`` gives it; the world's class has to be known, as for any
                recorded run.

        Raises:
            ConfigError: it is no law, or no class has the world's name.
        """
        if not isinstance(law, Law):
            raise ConfigError(f"{law!r:.120} is the recording of a run, and of no law")
        world = find_class(law.world)
        config = world.config_type.model_validate(law.of)
        run = world(config, llm_client=law.llm_client)
        recorded = cls(run, turns=config.turns)
        return run_sync(recorded._grown_by(law))

    def _law(self) -> Law:
        """Return the run that asks: a new one, or the one on the tape."""
        run = self.run_of
        config = run.config.model_copy(update={"turns": self.turns})
        of = plain(config.model_dump(mode="json"))
        tape = self._tape
        is_new = tape is None
        if isinstance(tape, Tape):
            is_new = not tape.runs()
        elif tape is not None:
            is_new = not Path(tape).exists()
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
        law = load(tape)
        if not isinstance(law, Law) or (law.world, plain(law.of)) != (type(run).kind, of):
            raise ConfigError(
                f"the tape {tape} has another run, {law!r:.120}; give this law a tape of its own"
            )
        if law.turn_number < self.turns:
            return Law.resume(tape, llm_client=run.llm_client)
        return law

    # --- what came out ------------------------------------------------------------------------

    @property
    def _known(self) -> _Histories:
        if self._grown is None:
            raise ConfigError("nothing is known yet: law.run(), or await law.arun()")
        return self._grown

    @property
    def lost(self) -> float:
        """The probability of all histories that were not followed."""
        return self._known.lost[-1]

    @property
    def questions(self) -> int:
        """How many different questions were asked."""
        return len(self._known.of_law)

    @property
    def mass(self) -> float:
        """The least share of the model's answers that are options; 1 where no model is asked."""
        histories = self._known
        masses = [histories.known[key][-1] for key in histories.of_law]
        return min(masses, default=1.0)

    def distribution(
        self,
        outcome: Outcome | None = None,
        *,
        turn: int | None = None,
    ) -> pd.Series[float]:
        """Return each value of an outcome with its probability, in order; they add to 1 - lost.

        Args:
            outcome: another one than the law's own: a column.
            turn: after which turn; the last if not given.

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
        at = last
        if turn is not None:
            at = whole_number("turn", turn, least=first, most=last)
        shares: dict[Hashable, float] = defaultdict(float)
        for node in self._known.levels[at - first]:
            # A history that was merged with others has one value of each column, as they have.
            shares[self._value_of(node, outcome)] += node.probability
        values = sorted(shares, key=_in_order)
        return pd.Series(
            [shares[value] for value in values],
            # Tuples are values here, and no levels of an index.
            index=pd.Index(values, name=_name_of(outcome), tupleize_cols=False),
            name="probability",
        )

    def _value_of(self, node: _Node, outcome: Outcome) -> Hashable:
        if isinstance(outcome, str):
            columns = node.turns[-1].columns()
            known_names("column", outcome, columns)
            value = columns[outcome]
        elif self._known.keeps_past:
            walker = self._known.walker
            walker.turns = [*node.turns]
            value = outcome(walker)
        else:
            raise ConfigError(
                "a function of the run needs histories that were kept apart: give it when the "
                "law is made, exact(run, outcome=function)"
            )
        # NaN is like no other NaN, and would be a value of its own in each history.
        if isinstance(value, float) and math.isnan(value):
            return None
        if not isinstance(value, Hashable):
            raise ConfigError(
                f"outcome {_name_of(outcome)} is {value!r:.60}; a law counts numbers and texts: "
                "give a column of them, or a function of the run"
            )
        return value

    def mean(self, outcome: Outcome | None = None, *, turn: int | None = None) -> float:
        """Return the expectation of an outcome after a turn, of all histories that were followed.

        Raises:
            ConfigError: its values are not numbers.
        """
        import pandas as pd

        shares = self.distribution(outcome, turn=turn)
        numbers = pd.to_numeric(shares.index.to_series(), errors="coerce").to_numpy()
        without_number = shares[pd.isna(numbers)]
        if len(without_number):
            raise ConfigError(
                f"outcome {shares.index.name} is {without_number.index[0]!r:.40} in histories of "
                f"the probability {without_number.iloc[0]:.3g}, and so has no mean; see "
                "distribution()"
            )
        # Of what was followed: what was lost has no value.
        return math.fsum(numbers * shares) / math.fsum(shares)

    def effect(
        self,
        reference: Exact,
        outcome: Outcome | None = None,
        *,
        turn: int | None = None,
    ) -> float:
        """Return how much larger the mean is than in another law.

        A difference of two laws has no interval: it is what this model with these options does.
        Where histories were lost, it is off by at most both ``lost`` times the outcome's range.

        Raises:
            ConfigError: the laws have different outcomes, or end with different turns.
        """
        if not isinstance(reference, Exact):
            raise ConfigError(f"effect({reference!r:.60}): give another exact law to compare with")
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
        """Return the law by turn: a row for each value, with its probability."""
        import pandas as pd

        first = self.run_of.turn_number
        turns = range(first, first + self.turns + 1)
        laws = [self.distribution(turn=turn) for turn in turns]
        return pd.concat(laws, keys=turns, names=["turn"]).reset_index()

    @property
    def figure(self) -> Figure:
        """The outcome by turn: a dot for each value, as large as it is likely, and the mean."""
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
        """Return the log-likelihood of a game: how likely this model plays it.

        What was filled in for a person who did not answer does not count.

        Args:
            game: a run whose players may be people, as those of a room, or a tape, of which the
                latest run counts.

        Raises:
            ConfigError: the game has another start, other parameters or shocks.
        """
        if not isinstance(game, Run):
            game = load(game)
        run = self.run_of
        first = run.turns[-1]
        if type(game) is not type(run) or _parameters_of(game) != _parameters_of(run):
            raise ConfigError(f"{game!r:.120} is not a game of {run!r:.120}")
        if game.turns[0].state != first.state:
            raise ConfigError(
                f"the game starts from {game.turns[0].state!r:.200}, the law from "
                f"{first.state!r:.200}; give exact() a run with that start: state=..."
            )
        log_likelihood = 0.0
        for place, after in enumerate(game.turns[1:], 1):
            way = _RecordedWay(after)
            # After the game's own turns, which the law need not have met: it may have pruned them.
            past = await self._known.play(game.turns[:place], way)
            if past[-1].state != after.state:
                raise ConfigError(
                    f"turn {after.number} leads elsewhere than in the recorded game: it has other "
                    "shocks, or something was done from outside"
                )
            log_likelihood += way.log_likelihood
        return log_likelihood

    def loglik(self, game: Game) -> float:
        """Do what ``aloglik`` does, from plain code."""
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
    """Return the exact law of a small simulation; see ``Exact`` for what it takes."""
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
    """Return the world's own parameters, without those of every run."""
    # A game may have another seed, other players and another length than the law.
    values: dict[str, object] = run.config.model_dump(mode="json")
    return {name: value for name, value in values.items() if name not in WorldConfig.model_fields}


def _in_order(value: object) -> tuple[bool, object]:
    """Return what sorts numbers by size, and texts after them."""
    is_text = not isinstance(value, int | float)
    return is_text, str(value) if is_text else value


def _name_of(outcome: Outcome | None) -> str:
    if isinstance(outcome, str):
        return outcome
    return clip(getattr(outcome, "__name__", "outcome"), 40)
