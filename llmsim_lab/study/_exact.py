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
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Hashable, Mapping
from contextvars import Context, copy_context
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
from llmsim_lab.run.answers import options_of
from llmsim_lab.run.config import WorldConfig
from llmsim_lab.run.recorded import load, unrecorded_fork
from llmsim_lab.run.registry import find_class
from llmsim_lab.run.turn import Answer, Turn
from llmsim_lab.types import CallSite

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Options: TypeAlias = Mapping[Hashable, str]
"""What can be chosen, each with the text that a model sees."""
Outcome: TypeAlias = str | Callable[[Any], object]
"""A column of the turn's row, or a function of the run so far."""


class _Draw(NamedTuple):
    """One draw of a turn: of which question, and which of those that were asked alike."""

    question: str
    number: int


class _Node(NamedTuple):
    """A history, or all that came to the same: its probability, and the turns that led there."""

    probability: float
    turns: tuple[Turn, ...]


class _Past(list[Turn]):
    """A run's turns; notes whether anything reads an earlier one than the latest."""

    was_read = False

    def __getitem__(self, index: Any) -> Any:
        if index not in (-1, len(self) - 1):
            self.was_read = True
        return super().__getitem__(index)

    def __iter__(self) -> Any:
        self.was_read = True
        return super().__iter__()

    # A list answers these by itself, without the two above.

    def __reversed__(self) -> Any:
        self.was_read = True
        return super().__reversed__()

    def __add__(self, turns: Any) -> Any:
        self.was_read = True
        return super().__add__(turns)

    def copy(self) -> list[Turn]:
        """Return a list of the turns."""
        return list(self)


class _Path:
    """One way through a turn: what was drawn, and which other ways begin at its draws.

    Args:
        drawn: what is drawn, as far as it was decided before.
        least: the probability below which no other way is followed.
    """

    def __init__(
        self,
        drawn: Mapping[_Draw, Hashable],
        least: float,
    ) -> None:
        self.drawn = dict(drawn)
        self.probability = 1.0
        self.others: list[Mapping[_Draw, Hashable]] = []
        self.lost = 0.0
        self.met: set[_Draw] = set()
        self._least = least
        self._asked: Counter[str] = Counter()

    def draw(
        self,
        question: str,
        probabilities: Mapping[Any, float],
    ) -> Hashable:
        """Return what is drawn at a question; where that is new, its likeliest option."""
        self._asked[question] += 1
        draw = _Draw(question, self._asked[question])
        self.met.add(draw)
        if draw not in self.drawn:
            first = max(probabilities, key=probabilities.__getitem__)
            for value, share in probabilities.items():
                if value == first or share == 0:
                    continue
                if self.probability * share < self._least:
                    self.lost += self.probability * share
                else:
                    self.others.append({**self.drawn, draw: value})
            self.drawn[draw] = first
        self.probability *= probabilities[self.drawn[draw]]
        return self.drawn[draw]


class _Branching:
    """A client whose answers are not drawn: each is taken in a way of its own.

    Args:
        client: gives the probabilities.
        tree: takes the ways.
    """

    def __init__(self, client: LLMClient, tree: _Tree) -> None:
        self._client = client
        self._tree = tree

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def choose(
        self,
        prompt: str,
        options: Options,
        *,
        site: CallSite,
    ) -> _Branch:
        """Return the choice, of which the tree draws."""
        question = self._tree.key_of(self._client, prompt, options)
        self._tree.met.add(question)
        choice = await self._tree.choice(
            self._client,
            prompt,
            options,
            site,
        )
        return _Branch(choice, question, self._tree)

    async def call_with_retry(self, *, site: CallSite, **request: object) -> NoReturn:
        """Raise ConfigError: what is answered has no probability."""
        raise ConfigError(
            f"{site.agent or site.component} of turn {site.turn} is asked for an answer, which has "
            "no probability that could be enumerated; ask for a choice, with one field of few "
            "values: ask(..., decide='sample')"
        )

    async def converse(self, *request: object, **settings: object) -> NoReturn:
        """Raise ConfigError: a conversation has no probabilities."""
        raise ConfigError(
            "a conversation has no probabilities that could be enumerated; sample it with a Study"
        )


class _Branch:
    """A choice of which each option is taken, one way after the other."""

    def __init__(
        self,
        choice: Choice[Hashable],
        question: str,
        tree: _Tree,
    ) -> None:
        self._choice = choice
        self._question = question
        self._tree = tree

    def __getattr__(self, name: str) -> Any:
        return getattr(self._choice, name)

    def decided(self, decide: Decide, rng: Random) -> Hashable:
        """Return what this way takes."""
        if decide != "sample":  # which is decided, and no draw
            return self._choice.decided(decide, rng)
        return self._tree.path.draw(self._question, self._choice.probabilities)


class _NothingElse:
    """Stands where a recorder would: nothing is asked or done but what the tree asks itself."""

    tape: Tape | None = None
    is_replay = False

    def find(self, request: object, first: object = None) -> NoReturn:
        """Raise ConfigError: a model was asked past the players."""
        raise ConfigError(
            "the turn asks a model by itself, and its answer has no probability that could be "
            "enumerated; ask a player: await ask(name, Reply, prompt, decide='sample')"
        )

    def find_outside(self, kind: str, key: object) -> NoReturn:
        """Raise ConfigError: something from outside has no probability."""
        raise ConfigError(
            f"ask.outside({kind!r}, ...) brings something from outside, whose probabilities are "
            "not known; put it into the state before the first turn"
        )


class _Tree:
    """The histories of a run, level by level, each turn played in every way.

    Args:
        run: from whose latest turn they begin.
        client: the model of players that are the run's.
        least: the probability below which a history is not followed.
        most_questions: how many may be asked.
        keeps_past: whether histories that came to the same state stay apart.
    """

    def __init__(
        self,
        run: Run,
        client: LLMClient | None,
        *,
        least: float,
        most_questions: int,
        keeps_past: bool,
    ) -> None:
        self.client = client
        self.levels = [[_Node(1.0, tuple(run.turns))]]
        self.lost = [0.0]
        self.known: dict[str, list[float]] = {}
        """Of each question the probabilities of its options, and last how much of all answers
        are options."""
        self.met: set[str] = set()
        """The questions of these histories; a tape may know others, of another model."""
        self.is_complete = False
        """Whether all was asked, so that another question is none of this law."""
        self.keeps_past = keeps_past
        self.is_uniform = False
        """Whether all options count alike, and no model is asked."""
        self.path = _Path({}, least)
        self.walker = unrecorded_fork(run, run.turn_number, client)
        self._least = least
        self._most_questions = most_questions
        self._asking: dict[str, asyncio.Task[Choice[Hashable]]] = {}
        self._outer: Context | None = None
        self._outer_turn = 0
        self._be_seated(run)

    def _be_seated(self, run: Run) -> None:
        """Put what branches in the places of models and chance; rules stay."""
        seated: dict[str, object] = {}
        for name, player in {"*": "model", **run.players}.items():
            client = self.client if player == "model" else player
            if player == "random":
                seated[name] = self._by_chance
            elif player == "rule":
                seated[name] = player
            elif isinstance(client, LLMClient) and client.backend.is_model:
                seated[name] = _Branching(client, self)
            elif player == "model":
                seated[name] = player  # which says itself that there is none, if it is asked
            else:
                raise ConfigError(
                    f"players[{name!r}] is {player!r:.60}: what it answers has no probabilities "
                    "that could be enumerated; seat a model, 'rule' or 'random'"
                )
        self.walker.players = seated
        self.walker._session.recorder = _NothingElse()  # type: ignore[assignment]

    def _by_chance(self, question: Question) -> dict[str, object]:
        """Answer for a player who answers evenly by chance, each value in a way of its own."""
        options = options_of(question._asked, "sample")
        values = list(options.texts)
        even = dict.fromkeys(values, 1 / len(values))
        key = f"{question.site.component}, {question.player}, by chance"
        return {options.name: self.path.draw(key, even)}

    # --- questions ----------------------------------------------------------------------------

    def key_of(
        self,
        client: LLMClient,
        prompt: str,
        options: Options,
    ) -> str:
        """Return what tells a question from others: the model, the text, the options."""
        asked = [
            client.config.model_dump_json(),
            getattr(prompt, "system", ""),
            str(prompt),
            [[repr(value), text] for value, text in options.items()],
        ]
        return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:24]

    async def choice(
        self,
        client: LLMClient,
        prompt: str,
        options: Options,
        site: CallSite,
    ) -> Choice[Hashable]:
        """Return the probabilities of a question, which is asked once."""
        key = self.key_of(client, prompt, options)
        if key not in self.known and key not in self._asking:
            if self.is_complete:
                raise ConfigError(
                    f"the tape has a whole law, and no answer to a question of turn {site.turn}: "
                    "it is of another model, other settings, another prompt or another start than "
                    f"{client.config.model} is asked here; give this law a tape of its own"
                )
            if len(self.known) + len(self._asking) >= self._most_questions:
                raise ConfigError(
                    f"more than most_questions={self._most_questions:,} questions would be asked; "
                    "take fewer turns, options or players, a larger prune, or say "
                    f"most_questions={10 * self._most_questions}"
                )
            # In the context of the run that records: here the walker's own would take the calls.
            work = self._asked(client, prompt, options, site)
            self._asking[key] = asyncio.create_task(work, context=self._outer)
        if key in self._asking:  # by this player or, at the same time, by another one
            choice = await self._asking[key]
            self.known[key] = [*choice.probabilities.values(), choice.mass]
            self._asking.pop(key, None)
        *shares, mass = self.known[key]
        probabilities = dict(
            zip(
                options,
                shares,
                strict=True,
            )
        )
        return Choice(
            probabilities=probabilities,
            mass=mass,
            method="logprobs",
        )

    async def _asked(
        self,
        client: LLMClient,
        prompt: str,
        options: Options,
        site: CallSite,
    ) -> Choice[Hashable]:
        if self.is_uniform:
            even = dict.fromkeys(options, 1 / len(options))
            return Choice(
                probabilities=even,
                mass=1.0,
                method="logprobs",
            )
        # Of the run that records the calls, whose turns are the levels.
        here = CallSite(
            component=site.component,
            agent=site.agent,
            turn=self._outer_turn,
        )
        choice = await client.choose(
            prompt,
            options,
            site=here,
        )
        if choice.method == "samples":
            raise ConfigError(
                f"{client.config.model} tells no probabilities of tokens, so that its choices are "
                "estimates from samples, and no law that follows is exact; take a backend that "
                "reports them (Ollama, the embedded model), or sample runs with a Study"
            )
        return choice

    # --- levels -------------------------------------------------------------------------------

    async def grow(self, levels: int, turn: int = 0) -> None:
        """Play on until there are as many levels.

        Args:
            levels: how many turns from the start.
            turn: of the run that records the questions.
        """
        self._outer = copy_context()
        self._outer_turn = turn
        while len(self.levels) <= levels:
            if not await self._play_level():
                # Something read the past, so that what was merged before was not the same.
                self.keeps_past = True
                self.levels = self.levels[:1]
                self.lost = self.lost[:1]

    async def _play_level(self) -> bool:
        """Play one more turn of each history; returns whether those that were merged are alike."""
        probabilities: dict[object, float] = defaultdict(float)
        turns: dict[object, tuple[Turn, ...]] = {}
        lost = self.lost[-1]
        for node in self.levels[-1]:
            if self.walker.done(node.turns[-1].state):
                ended = self._same(node.turns)
                probabilities[ended] += node.probability
                turns.setdefault(ended, node.turns)
                continue
            ways: list[Mapping[_Draw, Hashable]] = [{}]
            while ways:
                path = _Path(ways.pop(), self._least / node.probability)
                past = await self._played(node, path)
                if past.was_read and not self.keeps_past:
                    return False
                ways += path.others
                lost += node.probability * path.lost
                after = (*node.turns, list.__getitem__(past, -1))
                key = self._same(after)
                probabilities[key] += node.probability * path.probability
                turns.setdefault(key, after)
        self.levels.append([_Node(probabilities[key], turns[key]) for key in turns])
        self.lost.append(lost)
        return True

    def _same(self, turns: tuple[Turn, ...]) -> object:
        """Return what is equal for histories that go on alike."""
        if self.keeps_past:
            return tuple(id(turn) for turn in turns)
        latest = turns[-1]
        return latest.number, latest.state.model_dump_json(), json.dumps(plain(latest.noted))

    async def _played(self, node: _Node, path: _Path) -> _Past:
        """Play a turn in one way; returns the turns with it."""
        self.path = path
        past = _Past(node.turns)
        self.walker.turns = past
        await self.walker.step()
        missing = path.drawn.keys() - path.met
        if missing:
            raise ConfigError(
                f"turn {node.turns[-1].number + 1} of {type(self.walker).__name__} asked something "
                "else when it was played again from the same state: its prompts depend on "
                "something that is not in the state, such as an attribute, a clock or chance of "
                "its own; put it into the state"
            )
        return past


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
    _tree: _Tree | None = None

    async def turn(self, state: Asked, ask: Ask) -> Asked:
        """Ask what comes up in the next turn of all histories."""
        tree = self._tree
        if tree is None:
            raise ConfigError(
                f"the exact law of {self.world} is played by exact(run, turns=..., tape=...), "
                "which has the world"
            )
        await tree.grow(ask.turn, ask.turn)
        return state.replace(probabilities=dict(tree.known))


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
        turns: how many are played.
        outcome: what is asked about: a column of the turn's row, or a function of the run so far,
            for which histories stay apart. If not given, the first column that can be charted; of
            one turn of a world with ``people()``, what is decided in words.
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
        turns: int,
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
        self.run_of = run
        self.turns = whole_number(
            "turns",
            turns,
            least=1,
        )
        self.prune = real_number(
            "prune",
            prune,
            least=0,
            most=1,
        )
        self.most_questions = whole_number(
            "most_questions",
            most_questions,
            least=1,
        )
        self.outcome = self._first_outcome() if outcome is None else outcome
        if not isinstance(self.outcome, str) and not callable(self.outcome):
            raise ConfigError(
                f"outcome={outcome!r:.60} is neither a column nor a function of the run"
            )
        self._tape = tape
        self._tree: _Tree | None = None

    def _first_outcome(self) -> Outcome:
        columns = [series.column for series in self.run_of.series]
        if self.turns == 1 and self.run_of.people():
            return decided_in_words  # compare_with_people reads the decisions themselves
        if not columns:
            raise ConfigError(
                f"{type(self.run_of).__name__} has no column of numbers; name what is asked about: "
                "outcome='winner', or a function of the run"
            )
        return columns[0]

    def _new_tree(self, client: LLMClient | None, least: float) -> _Tree:
        return _Tree(
            self.run_of,
            client,
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
        tree = self._new_tree(self.run_of.llm_client, least=0.0)
        tree.is_uniform = True
        run_sync(tree.grow(self.turns))
        calls = sum(len(shares) - 1 for shares in tree.known.values())
        return ExactPlan(
            len(tree.known),
            calls,
            len(tree.levels[-1]),
        )

    async def arun(self) -> Exact:
        """Ask what has to be asked; returns the law."""
        law = self._law()
        # Without one, that of the tape's settings, which asks nothing.
        tree = self._new_tree(self.run_of.llm_client or law.llm_client, self.prune)
        tree.known.update(law.state.probabilities)
        law._tree = tree
        try:
            await law.arun(
                max(0, self.turns - law.turn_number),
                progress=True,
            )
            # What another process asked is known, and what came of it is not. Nothing else is
            # asked now: it would stand on no tape.
            tree.is_complete = law.turn_number >= self.turns
            await tree.grow(self.turns)
            tree.is_complete = False  # loglik asks what a game met besides
        finally:
            law.close()
        self._tree = tree
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
        run = world(
            world.config_type.model_validate(law.of),
            llm_client=law.llm_client,
        )
        exact_law = cls(run, turns=run.config.turns)
        tree = exact_law._new_tree(law.llm_client, exact_law.prune)
        tree.known.update(law.state.probabilities)
        run_sync(tree.grow(exact_law.turns))
        exact_law._tree = tree
        return exact_law

    def _law(self) -> Law:
        """Return the run that asks: a new one, or the one on the tape."""
        world = type(self.run_of)
        of = self.run_of.config.model_dump(mode="json")
        of["turns"] = self.turns
        if self._tape is not None and _has_runs(self._tape):
            law = load(self._tape)
            if not isinstance(law, Law) or (law.world, plain(law.of)) != (world.kind, plain(of)):
                raise ConfigError(
                    f"the tape {self._tape} has another run, {law!r:.120}; give this law a tape of "
                    "its own"
                )
            if law.turn_number < self.turns:
                law = Law.resume(self._tape, llm_client=self.run_of.llm_client)
            return law
        return Law(
            name=f"exact law of {self.run_of.name}",
            seed=self.run_of.config.seed,
            turns=self.turns,
            world=world.kind,
            of=of,
            llm_client=self.run_of.llm_client,
            tape=self._tape,
        )

    # --- what came out ------------------------------------------------------------------------

    @property
    def _grown(self) -> _Tree:
        if self._tree is None:
            raise ConfigError("nothing is known yet: law.run(), or await law.arun()")
        return self._tree

    @property
    def lost(self) -> float:
        """The probability of all histories that were not followed."""
        return self._grown.lost[-1]

    @property
    def questions(self) -> int:
        """How many different questions were asked."""
        return len(self._grown.met)

    @property
    def mass(self) -> float:
        """The least share of the model's answers that are options; 1 where no model is asked."""
        tree = self._grown
        return min(
            (tree.known[question][-1] for question in tree.met),
            default=1.0,
        )

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

        tree = self._grown
        first = self.run_of.turn_number
        last = first + self.turns
        at = last if turn is None else whole_number("turn", turn, least=first, most=last)
        shares: dict[Hashable, float] = defaultdict(float)
        for node in tree.levels[at - first]:
            shares[self._value_of(node, self.outcome if outcome is None else outcome)] += (
                node.probability
            )
        values = sorted(shares, key=_in_order)
        return pd.Series(
            [shares[value] for value in values],
            index=pd.Index(values, name=_name_of(outcome or self.outcome), tupleize_cols=False),
            name="probability",
        )

    def _value_of(self, node: _Node, outcome: Outcome) -> Hashable:
        if isinstance(outcome, str):
            columns = node.turns[-1].columns()
            known_names("column", outcome, columns)
            value = columns[outcome]
        else:
            if not self._grown.keeps_past:
                raise ConfigError(
                    "a function of the run needs histories that were kept apart: give it when the "
                    "law is made, exact(run, outcome=function)"
                )
            walker = self._grown.walker
            walker.turns = [*node.turns]
            value = outcome(walker)
        # NaN is like no other NaN, and would be a value of its own in each history.
        if isinstance(value, float) and math.isnan(value):
            value = None
        if not isinstance(value, Hashable):
            raise ConfigError(
                f"outcome {_name_of(outcome)} is {value!r:.60}; a law counts numbers and texts: "
                "give a column of them, or a function of the run"
            )
        return value

    def mean(
        self,
        outcome: Outcome | None = None,
        *,
        turn: int | None = None,
    ) -> float:
        """Return the expectation of an outcome after a turn, of all histories that were followed.

        Raises:
            ConfigError: its values are not numbers.
        """
        shares = self.distribution(outcome, turn=turn)
        without_value = math.fsum(shares[shares.index.isna()])
        if without_value:
            raise ConfigError(
                f"outcome {shares.index.name} has no value in histories of the probability "
                f"{without_value:.3g}, so that it has no mean; see distribution()"
            )
        try:
            numbers = shares.index.astype(float)
        except (TypeError, ValueError):
            raise ConfigError(
                f"outcome {shares.index.name} has values such as {shares.index[0]!r:.40}, which "
                "have no mean; see distribution()"
            ) from None
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
        """
        if not isinstance(reference, Exact):
            raise ConfigError(f"effect({reference!r:.60}): give another exact law to compare with")
        return self.mean(outcome, turn=turn) - reference.mean(outcome, turn=turn)

    def to_frame(self) -> pd.DataFrame:
        """Return the law by turn: a row for each value, with its probability."""
        import pandas as pd

        first = self.run_of.turn_number
        parts = []
        for turn in range(first, first + self.turns + 1):
            part = self.distribution(turn=turn).reset_index()
            part.insert(0, "turn", turn)
            parts.append(part)
        return pd.concat(parts, ignore_index=True)

    @property
    def figure(self) -> Figure:
        """The outcome by turn: a dot for each value, as large as it is likely, and the mean."""
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator

        table = self.to_frame()
        name = table.columns[1]
        figure = Figure(figsize=(7, 3.6), layout="constrained")
        axes = figure.add_subplot()
        axes.scatter(
            table["turn"],
            table[name],
            s=table["probability"] * 400,
            alpha=0.5,
            linewidths=0,
        )
        turns = sorted(set(table["turn"]))
        axes.plot(
            turns,
            [self.mean(turn=int(turn)) for turn in turns],
            label="mean",
        )
        axes.set_xlabel("turn")
        axes.set_ylabel(name)
        axes.set_title(f"Each history of {self.run_of.name} with its probability")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(frameon=False)
        return figure

    # --- recorded games -----------------------------------------------------------------------

    async def aloglik(self, game: Run | Tape | str | Path) -> float:
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
        first = self.run_of.turns[-1]
        parameters = _parameters_of(self.run_of)
        if type(game) is not type(self.run_of) or _parameters_of(game) != parameters:
            raise ConfigError(f"{game!r:.120} is not a game of {self.run_of!r:.120}")
        if game.turns[0].state != first.state:
            raise ConfigError(
                f"the game starts from {game.turns[0].state!r:.200}, the law from "
                f"{first.state!r:.200}; give exact() a run with that start: state=..."
            )
        reader = _Reader(self._grown, self.run_of)
        for before, after in zip(game.turns, game.turns[1:], strict=False):
            await reader.read(before, after)
        return reader.log_likelihood

    def loglik(self, game: Run | Tape | str | Path) -> float:
        """Do what ``aloglik`` does, from plain code."""
        return run_sync(self.aloglik(game))

    def __repr__(self) -> str:
        if self._tree is None:
            return f"<Exact law of {self.run_of.name}, {counted(self.turns, 'turn')}, not asked>"
        return (
            f"<Exact law of {self.run_of.name} after {counted(self.turns, 'turn')}: "
            f"{counted(self.questions, 'question')}, {self.lost:.2g} lost, mass {self.mass:.2f}>"
        )


class _Reader:
    """Plays recorded turns again and adds up how likely their answers are.

    Args:
        tree: knows the probabilities.
        run: whose models are asked.
    """

    def __init__(self, tree: _Tree, run: Run) -> None:
        self.log_likelihood = 0.0
        self._tree = tree
        self._answers: dict[tuple[str, str], list[Answer]] = {}
        self._walker = unrecorded_fork(run, run.turn_number, tree.client)
        seated: dict[str, object] = {}
        for name, player in {"*": "model", **run.players}.items():
            if player == "rule":
                seated[name] = player
            elif player == "random":
                seated[name] = self._fields
            else:
                seated[name] = self._judged_by(tree.client if player == "model" else player)
        self._walker.players = seated

    async def read(self, before: Turn, after: Turn) -> None:
        """Add a turn's answers.

        Raises:
            ConfigError: the turn leads elsewhere than it did.
        """
        self._answers = defaultdict(list)
        for answer in after.answers:
            self._answers[answer.player, answer.component].append(answer)
        self._walker.turns = [*self._walker.turns[:-1], before]
        turn = await self._walker.step()
        if turn.state != after.state:
            raise ConfigError(
                f"turn {after.number} leads elsewhere than in the recorded game: it has other "
                "shocks, or something was done from outside"
            )

    def _judged_by(self, client: Any) -> Callable[[Question], Coroutine[Any, Any, object]]:
        """Return a player who answers as recorded, of which the client says how likely it is."""

        async def answer(question: Question) -> object:
            options = options_of(question._asked, "sample")
            choice = await self._tree.choice(
                client,
                question.prompt,
                options.texts,
                question.site,
            )
            recorded = self._next(question)
            # As JSON: an enum's member is its value on a tape.
            by_value = {plain(value): value for value in options.texts}
            share = choice.probabilities[by_value[recorded.fields[options.name]]]
            # What chance or a rule filled in for a person says nothing of the person.
            if recorded.status != "fallback":
                self.log_likelihood += math.log(share) if share else -math.inf
            return recorded.fields

        return answer

    def _next(self, question: Question) -> Answer:
        return self._answers[question.player, question.site.component].pop(0)

    def _fields(self, question: Question) -> Mapping[str, Any]:
        return self._next(question).fields


def exact(
    run: Run,
    *,
    turns: int,
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


def _has_runs(tape: Tape | str | Path) -> bool:
    if isinstance(tape, Tape):
        return bool(tape.runs())
    return Path(tape).exists()


def decided_in_words(run: Run) -> str:
    """Return what the latest turn's players decided."""
    return "; ".join(f"{answer.player} {answer}" for answer in run.turns[-1].answers)


def _parameters_of(run: Run) -> Mapping[str, object]:
    """Return the world's own parameters, without those of every run."""
    values: dict[str, object] = run.config.model_dump(mode="json")
    return {name: value for name, value in values.items() if name not in WorldConfig.model_fields}


def _in_order(value: object) -> tuple[bool, object]:
    """Return what sorts numbers by size, and texts after them."""
    is_text = not isinstance(value, int | float)
    return is_text, str(value) if is_text else value


def _name_of(outcome: Outcome) -> str:
    if isinstance(outcome, str):
        return outcome
    return clip(getattr(outcome, "__name__", "outcome"), 40)
