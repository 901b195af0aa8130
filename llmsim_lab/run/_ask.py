"""Asking players: models, rules and people, all in the same words.

A world's ``turn`` is given an ``Ask``. A question names a player, what the reply must be and a
prompt; who answers it is decided where the run is made. A model's or a person's answer is a call
on the tape. A rule's is computed again in a replay.
"""

from __future__ import annotations

import asyncio
import logging
import textwrap
import time
from collections import Counter
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import lru_cache, partial
from inspect import CORO_CREATED, getcoroutinestate, isawaitable, iscoroutine, signature
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeVar, get_args

from pydantic import ValidationError

from llmsim_lab._util.jsontext import (
    ALWAYS_FINITE,
    MOST_LEVELS,
    SCALARS,
    all_finite,
    encode,
    is_too_deep,
    loads_strictly,
    plain,
)
from llmsim_lab._util.text import (
    brief,
    clip,
    closest,
    error_text,
    faults,
    log_event,
    text_of,
    whole_text,
)
from llmsim_lab._util.waiting import gather_all
from llmsim_lab.errors import (
    BudgetReached,
    ConfigError,
    LabError,
    LLMFailureException,
    PromptError,
    TapeError,
)
from llmsim_lab.llm import LLMClient, Person, ScriptedBackend
from llmsim_lab.llm._chains import FORGIVEN
from llmsim_lab.llm._choose import Decide, numeric
from llmsim_lab.llm._client import checked_client
from llmsim_lab.llm._scope import caller, scope
from llmsim_lab.llm.bounds import (
    EVERYTHING,
    Allowed,
    Limits,
    allowed_of,
    fields_of,
    json_number,
    own_limits,
)
from llmsim_lab.llm.calls.recorded import until_cancelled
from llmsim_lab.prompts import Prompt
from llmsim_lab.prompts._prompt import RenderedPrompt
from llmsim_lab.run._chance import random_reply
from llmsim_lab.run._config import OnError, players_seed
from llmsim_lab.run._kept import defined_again, reply_as_json
from llmsim_lab.run._plain_prompts import PLAIN, has_slots, kind_of, plain_prompt
from llmsim_lab.run._prompt_order import prompt_order
from llmsim_lab.run._registry import file_of
from llmsim_lab.run._state import COMMON_COLUMNS
from llmsim_lab.run._turn import DECISION_COLUMNS, Answer, as_confidence, as_reasoning
from llmsim_lab.tape.recorder import Outside
from llmsim_lab.types import CallRecord, CallSite, Decision, Number, Rationale, Reply

ReplyT = TypeVar("ReplyT", bound=Decision)

Source = str | Path | Prompt | Callable[[str], str]
"""A prompt as a question names it; a function of the player's name returns the text itself."""

_warn = partial(log_event, logging.getLogger(__name__), logging.WARNING)

_MOST_VALUES = 101
"""In a grid of numbers. Servers enforce a list of values, and bounds of floats they do not."""
_MOST_PROMPTS = 64
GIVEN = ("name", "state", "run", "turn", "turns")
"""What every prompt may use without being given it."""


@dataclass(slots=True)
class _Batch:
    """What the questions of one ``each`` have in common, and what is made of it once for all."""

    reply: type[Decision]
    prompt: Source
    by: str
    tag: str
    limits: Limits | Callable[[str], Limits] | None
    decide: Decide | None
    fallback: Any
    on_error: OnError | None
    values: Mapping[str, Any]
    turn: int
    system: str = ""
    name: str = ""
    """What a prompt without slots is called: its kind of question, and its position in the turn."""
    shared: Callable[[], Callable[[Mapping[str, Any]], Any]] = field(init=False)
    """Fills in what all share, and returns what fills in the rest."""
    own: Mapping[str, Callable[[str], Any]] = field(default_factory=dict)
    """Functions of the name, by the slots of the prompt that they fill."""
    rest: Callable[[Mapping[str, Any]], Any] | None = None
    component: str = field(init=False)
    known: dict[str, Allowed] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)
    fault: LabError | None = None
    """What the world's own code raised: an error, whatever a player that met it made of it."""

    @property
    def place(self) -> str:
        """Which question it is, for messages: ``turn 3, Gift (tag 'second')``."""
        tag = f" (tag {self.tag!r})" if self.tag else ""
        return f"turn {self.turn}, {self.reply.__name__}{tag}"

    def of_world(self, name: str, function: Callable[[str], Any], player: str) -> Any:
        """Return what a function that the world gave says for a player.

        Args:
            name: what it was given as, such as ``limits``.
            function: takes the player's name.
            player: the player's name.

        Raises:
            ConfigError: it raised, or is async.
            LabError: it raised this itself.
        """
        try:
            value = function(player)
        except LabError as error:  # which says what is wrong, and may be of a class of its own
            error.add_note(f"{self.place}: the function {name}= raised this for {player}.")
            self.fault = error
            raise
        except Exception as error:
            self.fault = ConfigError(
                f"{self.place}: the function {name}= failed for {player}: {error_text(error)}"
            )
            raise self.fault from error
        if isawaitable(value):
            _close(value)
            self.fault = ConfigError(
                f"{self.place}: the function {name}= is async, and a question does not wait for "
                f"it; await it before: found = await ..., {name}=lambda name: found[name]"
            )
            raise self.fault
        return value

    def text(self, player: str) -> Any:
        """Return the prompt, filled for a player."""
        # A batch holds no method of its own: it would be kept, and the run with it, until Python
        # looks for garbage, and the run's tape could not be continued by another one.
        if self.rest is None:
            self.rest = self.shared()  # not before, since rules need no text
        return self.rest({slot: self.of_world(slot, it, player) for slot, it in self.own.items()})

    def allowed(self, player: str) -> Allowed:
        """Return what a player may answer; equal limits are worked out once."""
        if not callable(self.limits) and self.known:
            return self.known["those of all"]
        limits = self.limits
        if callable(limits):
            limits = self.of_world("limits", limits, player)
        if not limits:
            return EVERYTHING
        if type(limits) is not dict and not isinstance(limits, Mapping):
            way_out = "by field, (lowest, highest) or a list: limits={'amount': (0, 5)}"
            what = f"limits of {player} are {limits!r:.80}"
            raise ConfigError(f"{what}; write what is allowed {way_out}")
        for name, its in limits.items():
            if isinstance(its, range) or hasattr(its, "tolist"):
                limits = {**limits, name: list(its) if isinstance(its, range) else its.tolist()}
        # As a text, since 1, 1.0 and True are equal.
        key = repr(limits) if callable(self.limits) else "those of all"
        if key not in self.known:
            self.known[key] = allowed_of(player, self.reply, limits)
        return self.known[key]


class Question:
    """What a rule is asked.

    Attributes:
        player: the one that is asked; with ``by=`` the one that the question is about.
        reply: the class of the answer.
        state: the state before the turn, as players read it.
        run: the world's parameters, as ``question.run.factor``.
        turn: the number of the turn that is being played.
        tag: which of several questions of the turn, where the world says.
        by: who answers, where that is not the player.
    """

    __slots__ = ("_allowed", "_ask", "_batch", "_decision", "_number", "_rng", "player")

    def __init__(self, ask: Ask, batch: _Batch, player: str, number: int) -> None:
        self._ask, self._batch, self.player, self._number = ask, batch, player, number
        self._allowed = EVERYTHING if batch.limits is None else batch.allowed(player)
        self._decision: Any = None
        self._rng: Random | None = None

    reply = property(lambda self: self._batch.reply)
    state = property(lambda self: self._ask._state)
    turn = property(lambda self: self._ask.turn)
    run = property(lambda self: self._ask._run.config)
    tag = property(lambda self: self._batch.tag)
    by = property(lambda self: self._batch.by)

    @property
    def values(self) -> Mapping[str, Any]:
        """What the prompt was given besides; of functions of the name, what they return."""
        values = dict(self._batch.values)
        for name, value in values.items():
            if callable(value):
                values[name] = self._batch.of_world(name, value, self.player)
        return values

    @property
    def limits(self) -> Mapping[str, tuple[Number, Number] | list[Any]]:
        """What is allowed, by field: ``(lowest, highest)``, or a list of values.

        The question's, or else the field's own.
        """
        chosen = {name: list(values) for name, values in self._allowed.choices.items()}
        return {**own_limits(self._batch.reply), **self._allowed.ranges, **chosen}

    @property
    def rng(self) -> Random:
        """Random numbers of this player's own, the same in a replay.

        They follow from the run's seed and replicate: another sample has others.

        Raises:
            ConfigError: another task asks the player as well, so that they have no order.
        """
        if self._rng is None:
            self._rng = self._random("rule")
        return self._rng

    def _random(self, what: str) -> Random:
        if not self._number:
            what = f"{self.player} is asked by two tasks and answers by chance"
            way_out = "tell the questions apart: ask(..., tag='second')"
            raise ConfigError(f"{what}: a replay may ask in another order; {way_out}")
        kind = self._batch.tag or self._batch.by
        name = f"{self.player}, {kind}" if kind else self.player
        if self._number > 1:
            name = f"{name}, question {self._number}"
        seed = players_seed(self._ask._run.config)
        return Random(f"{seed}/{self._ask.turn}/{what} of {name}")

    @property
    def prompt(self) -> str:
        """The question as a model would be sent it."""
        batch = self._batch
        try:
            text = self._ask._text(batch, self.player)
        except PromptError as error:
            batch.fault = PromptError(f"{batch.place}, to {self.player}: {error}")
            raise batch.fault from error
        if not isinstance(text, str):
            batch.fault = ConfigError(
                f"{batch.place}: the prompt to {self.player} is {text!r:.60}; a function of the "
                "name returns the text: self.prompt(...).render(...)"
            )
            raise batch.fault
        return text

    async def put_to(self, client: LLMClient, prompt: str = "") -> Any:
        """Ask a model, as the run asks its own; for a player who prepares the prompt first.

        Args:
            client: the model.
            prompt: the whole prompt, instead of the question's own.

        Raises:
            ConfigError: it is not a client.
            LLMFailureException: the model failed to answer.
        """
        checked_client(client, "client", ("call_with_retry",))
        return await self._sent(client, prompt or self.prompt)

    def _sent(self, client: LLMClient, prompt: str) -> Coroutine[Any, Any, Any]:
        allowed = self._allowed
        ask: Callable[..., Coroutine[Any, Any, Any]] = client.call_with_retry
        if self._rationale != "before":
            ask = partial(ask, rationale=self._rationale)  # no client around another need know it
        return ask(
            prompt=prompt,
            response_model=self._batch.reply,
            choices=allowed.choices or None,
            limits=allowed.ranges or None,
            check=allowed.complaint,
            site=self.site,
        )

    @property
    def _rationale(self) -> Rationale:
        """Where the answer has its reasoning; other classes than ``Reply`` have their own form."""
        rationale: Rationale = self._ask._run.config.rationale
        return rationale if issubclass(self._batch.reply, Reply) else "before"

    @property
    def site(self) -> CallSite:
        """Where in the run it is asked."""
        return CallSite(component=self._batch.component, agent=self.player, turn=self._ask.turn)


class _ToModel(NamedTuple):
    """A question that a model or a person is to answer."""

    client: LLMClient
    question: Question
    text: str


_Work = _ToModel | Callable[[], Coroutine[Any, Any, None]]
"""What a turn waits for: a model's answer, or whatever else a coroutine does."""


class _GuardedRandom(Random):
    """Random numbers for one task, since several would draw in another order in a replay.

    How long an answer takes decides which task goes first, and a replay takes no time at all.
    All of Random's methods draw through the two that are overridden here.
    """

    def __init__(self, seed: str, name: str) -> None:
        self._name, self._owner = name, None
        super().__init__(seed)

    def _check(self) -> None:
        task: Any = _current_task()
        self._owner = self._owner or task
        if task is None or self._owner is not task:
            what = f"{self._name} is used by two tasks or threads, whose order may change"
            way_out = "draw before the await, or give each player its own: ask.rng_for(name)"
            raise ConfigError(f"{what}; {way_out}")

    def random(self) -> float:
        self._check()
        return super().random()

    def getrandbits(self, k: int, /) -> int:
        self._check()
        return super().getrandbits(k)


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # on a thread without a loop
        return None


class Ask:
    """How a turn asks its players; ``turn`` gets one.

    ``await ask("Ann", Gift, "...")`` asks one and returns a ``Gift``; ``await ask.each(names, Gift,
    "...")`` asks all of them at once and returns a dict.

    In a prompt, ``name`` is the player, ``state`` the state before the turn, ``run`` the world's
    parameters, ``turn`` the number of the turn being played and ``turns`` how many the run's
    configuration names; other values are given by keyword.
    """

    def __init__(self, run: Any, state: Any, turn: int) -> None:
        self._run, self._state = run, state
        self.turn = turn
        """The number of the turn being played."""
        self._asked: set[tuple[Any, ...]] = set()
        self._rngs: dict[str, _GuardedRandom] = {}
        self._places: dict[tuple[str, tuple[str, str]], tuple[object, int]] = {}
        self._positions: dict[tuple[str, str], int] = {}
        self._answers: list[Answer] = []
        self._stood_in = Counter[str]()
        self._noted: dict[str, Any] = {}
        self._became: dict[str, dict[str, Any]] = {}
        self._story: list[str] = []
        self._open: list[tuple[Sequence[Any], Any]] = []
        self._lost: tuple[str, Exception] | None = None
        """What from outside failed first, and its error."""
        self._over = False

    def __call__(
        self,
        player: str,
        reply: type[ReplyT],
        prompt: Source,
        /,
        *,
        system: str = "",
        by: str = "",
        tag: str = "",
        limits: Limits | None = None,
        decide: Decide | None = None,
        fallback: Any = None,
        on_error: OnError | None = None,
        **values: Any,
    ) -> Coroutine[Any, Any, ReplyT]:
        """Ask one player; await it.

        Args:
            player: its name.
            reply: what it is asked for, a class derived from ``Reply``.
            prompt: a text with slots such as ``{{ name }}``; a ``Path``, or one word that ends in
                ``.md``, for a file beside the world's own; a ``Prompt``; or a function of the name,
                whose text is sent as it is and is no template.
            system: the system message, a text with the same slots: what never changes, such as the
                rules. A server reads it once. It is the prompt's ``## System``, and goes with a
                prompt that has none.
            by: who answers, where that is not the player: one ``engine`` that judges what each
                player did. The player is then the one that it answers about.
            tag: what kind of question it is: tells apart questions of one turn that are otherwise
                equal, and ``players={tag: ...}`` answers all that have it.
            limits: narrower bounds of some fields: ``{"amount": (0, 5)}``; or the values allowed:
                ``{"who": ["Ann", "Bob"]}``, with ``decide`` also in words: ``{"move": {25: "raise
                by 25 points"}}``.
            decide: asks a model for the probability of each answer, where the reply has one field
                of its own with few values, and takes a draw (``sample``), the likeliest (``mode``)
                or the number nearest to the mean (``expected``). None asks for one answer, and
                rules and people give one in any case.
            fallback: what stands in, with the status ``fallback``, where the answer stays invalid
                or does not come in time: a reply, its fields, or a function of the name. Without it
                the turn fails; so it does in any case where the model cannot be reached.
            on_error: whether what stands in also does for a function or rule that raises or answers
                what is not allowed: ``fallback``, or ``raise``. None for the run's ``on_error``.
                Where there is no ``fallback``, it is a random answer that is allowed.
            values: of the prompt's other slots; a function is called with the name. Rules find them
                in ``question.values``; where the prompt is a function, they are for rules alone.

        Raises:
            ConfigError: no one answers for this player, the limits leave nothing, the same was
                asked twice, or a rule raised or answered what is not allowed.
            PromptError: a slot has no value, or the other way round.
            LLMFailureException: a model failed to answer.
        """
        batch = _Batch(
            reply, prompt, by, tag, limits, decide, fallback, on_error, values, self.turn, system
        )
        return self._asked_of(batch, [player], alone=True)

    def each(
        self,
        players: Iterable[str],
        reply: type[ReplyT],
        prompt: Source,
        /,
        *,
        system: str = "",
        by: str = "",
        tag: str = "",
        limits: Limits | Callable[[str], Limits] | None = None,
        decide: Decide | None = None,
        fallback: Any = None,
        on_error: OnError | None = None,
        **values: Any,
    ) -> Coroutine[Any, Any, dict[str, ReplyT]]:
        """Ask several players at once; await their replies by name, in the order given.

        Args:
            players: their names; of a dict, its keys.
            reply: see ``__call__``.
            prompt: see ``__call__``.
            system: see ``__call__``.
            by: see ``__call__``.
            tag: see ``__call__``.
            limits: see ``__call__``, or a function of the name that returns them.
            decide: see ``__call__``; the chances are measured once for all who are asked the same.
            fallback: see ``__call__``.
            on_error: see ``__call__``.
            values: see ``__call__``; those that are no functions are filled in once for all.

        Raises:
            ConfigError: see ``__call__``; or a player is named twice.
        """
        names = [players] if isinstance(players, str) else list(players)
        batch = _Batch(
            reply, prompt, by, tag, limits, decide, fallback, on_error, values, self.turn, system
        )
        return self._asked_of(batch, names)

    def outside(
        self,
        what: str,
        key: Any,
        work: Callable[[], Awaitable[Any]],
        /,
        *,
        once: bool = False,
        fallback: Any = None,
    ) -> Coroutine[Any, Any, Any]:
        """Return what came from outside: a tool's answer, a file, a clock; await it.

        It is recorded like a reply. A replay takes it from the tape and does nothing outside; so
        does a run that is resumed in the middle of the turn.

        Args:
            what: what kind of thing, such as ``weather``.
            key: which one, JSON-ready: with the kind, it tells what is asked.
            work: does it, and returns something JSON-ready: ``lambda: fetch(city)``. What it raises
                ends the turn, also where the turn's code catches it: a tape holds no exceptions.
            once: whether it must never be done twice, as a deletion: broken off halfway, or failed,
                it counts as done.
            fallback: with ``once``, what is returned where it was broken off or failed. Without,
                an error ends the turn: the work itself has to catch what may happen.

        Raises:
            ConfigError: the turn is over, or the key or the result is not ready for JSON.
            TapeMiss: a replay has no such thing.
        """
        if self._over:
            raise ConfigError(f"turn {self.turn} is over; await {what} in the turn that asks")
        asking = self._outside(
            what, partial(from_outside, what, key, work, once=once, fallback=fallback)
        )
        self._open.append(([what], asking))
        return asking

    async def _outside(self, what: str, bring: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await bring()
        except Exception as error:
            self._lost = self._lost or (what, error)
            raise

    def note(self, player: str = "", /, *, text: str = "", **columns: Any) -> None:
        """Record what became of a player's decisions, or of the turn.

        Args:
            player: whose decisions, of which the turn has to have one; without a name, the turn's.
            text: a line of the turn's story.
            columns: by name: of the player's rows in ``decisions()``, or of the turn's in
                ``to_frame()``. Numbers, texts, truth values, None, and lists and dicts of them.

        Raises:
            ConfigError: the turn is over, nothing is noted, every frame has a column of that name,
                or a value is not ready for JSON.
        """
        if self._over:
            raise ConfigError(f"{_noting(player, columns)}: turn {self.turn} is over")
        if not isinstance(player, str) or not isinstance(text, str) or not (text or columns):
            way_out = "ask.note('Ann', text='...', accepted=True)"
            raise ConfigError(f"{_noting(player, columns)} notes nothing: {way_out}")
        if taken := (DECISION_COLUMNS if player else COMMON_COLUMNS).intersection(columns):
            what = f"ask.note({min(taken)}=...): every frame has a column of that name"
            raise ConfigError(f"{what}; note it under another name")
        if not all(map(_stays, (*columns, *columns.values()))):
            columns = _json_ready(_noting(player, columns), columns)
        if text:
            self._story.append(whole_text(text))
        (self._became.setdefault(player, {}) if player else self._noted).update(columns)

    @property
    def rng(self) -> Random:
        """Random numbers of this turn, which follow from the run's seed; for one task only.

        They are the world's shocks: the same in every replicate, sample and wording.
        """
        return self.rng_for("")

    def rng_for(self, name: str) -> Random:
        """Return random numbers of one player in this turn, which follow from the run's seed.

        The same generator each time: it continues where it was left.
        """
        if name not in self._rngs:
            # From the turn and the name alone, so that neither the order in which players are
            # asked nor a resume after this turn changes what is drawn.
            seed = f"{self._run.config.seed}/{self.turn}/{name}"
            self._rngs[name] = _GuardedRandom(seed, f"ask.rng_for({name!r})" if name else "ask.rng")
        return self._rngs[name]

    # --- the turn's end ----------------------------------------------------------------------

    def check_awaited(self) -> None:
        """Raise ConfigError for a question that was asked without waiting for the answer."""
        # A question begins when it is awaited, as everywhere in Python: one without an await would
        # never be asked, without a word.
        left = [it for it in self._open if getcoroutinestate(it[1]) == CORO_CREATED]
        for _, asking in left:
            asking.close()  # else Python warns of it as well
        if left:
            what = f"{type(self._run).__name__}.turn asked {_first(left[0][0])}"
            way_out = "write await before it: gift = await ask(...), gifts = await ask.each(...)"
            raise ConfigError(f"{what} and did not wait for the answer; {way_out}")

    def close(self) -> dict[str, Any]:
        """End the turn; return what its record has of it, in an order that any replay has too.

        Raises:
            ConfigError: a question was not awaited, or its answer is still to come.
        """
        if left := [names for names, asking in self._open if asking.cr_frame]:
            self.check_awaited()
            self._over, whom = True, _first(left[0])
            what = f"turn {self.turn} is over, and what it asked {whom} is still under way"
            raise ConfigError(f"{what}: await every question in the turn that asks it")
        self._over = True
        if self._lost is not None:
            what, error = self._lost
            raise ConfigError(
                f"ask.outside({what!r}, ...) failed with {type(error).__name__}: {error}, and turn "
                f"{self.turn} went on; a replay could not. Catch it in the work itself, and return "
                "something in its place"
            ) from error
        # Rules that await something finish in any order.
        try:
            self._answers.sort(key=lambda it: (it.component, it.player, repr(it.given)))
        except ValueError as error:  # of a number of more digits than Python writes
            raise ConfigError(f"turn {self.turn}: an answer cannot be kept: {error}") from error
        noted = {"noted": self._noted, "became": self._became, "story": tuple(self._story)}
        return {"by_code": tuple(self._answers), **noted}

    # --- how it is done ----------------------------------------------------------------------

    def _asked_of(
        self, batch: _Batch, names: Sequence[Any], *, alone: bool = False
    ) -> Coroutine[Any, Any, Any]:
        """Return what asks all, and gives their decisions by name, or that of one alone."""
        # Numbered at once, while the task that asks is the current one. Those that one task asks
        # come in the order of its code, also in a replay; 0 stands for one of another task.
        task, numbers, kind = _current_task(), [], (str(batch.tag), str(batch.by))
        for name in names:
            key = str(name), kind
            first, asked = self._places.get(key, (task, 0))
            if first is task:
                self._places[key] = (task, asked + 1)
            numbers.append(asked + 1 if first is task else 0)
        source = batch.prompt
        if callable(source) or (isinstance(source, str) and not has_slots(source)):
            batch.name = self._name_of(batch, names)
        asking = self._all(batch, names, numbers, alone)
        self._open.append((names, asking))
        return asking

    def _name_of(self, batch: _Batch, names: Sequence[Any]) -> str:
        """Return the name of a prompt without slots: of the second such question, ``gift@2``."""
        kind = kind_of(batch.reply, batch.tag)
        position = 1
        for name in names:
            asked = self._positions.get((str(name), kind), 0) + 1
            self._positions[str(name), kind] = asked
            position = max(position, asked)
        return kind if position == 1 else f"{kind}@{position}"

    async def _all(
        self, batch: _Batch, names: Sequence[str], numbers: Sequence[int], alone: bool
    ) -> Any:
        self._begin(batch, names)
        questions = list(map(partial(Question, self, batch), names, numbers))
        awaited: list[Awaitable[Any]] = []
        try:
            work = self._work_for(batch, questions, awaited)
            only = work[0] if len(work) == 1 else None
            if isinstance(only, _ToModel):
                # Here, since all that comes from a server passes each coroutine that waits for it.
                with self._answering(only.question):
                    only.question._decision = await only.question._sent(only.client, only.text)
            elif only is not None:
                await only()
            elif work:
                await gather_all([self._done(one) for one in work])
        finally:
            for answer in awaited:
                _close(answer)
        self._answers += batch.answers
        return questions[0]._decision if alone else {it.player: it._decision for it in questions}

    def _work_for(
        self, batch: _Batch, questions: Sequence[Question], awaited: list[Awaitable[Any]]
    ) -> list[_Work]:
        """Return what has to be waited for; what functions answer at once is taken.

        Args:
            batch: what the questions have in common.
            questions: the questions.
            awaited: takes what functions returned to be awaited.
        """
        # Begun once all are known: a prompt that cannot be built would leave the others unawaited.
        work: list[_Work] = []
        measured: dict[Any, list[Question]] = {}
        sent: list[str] = []
        for question in questions:
            who = self._run.seat(question.player, by=batch.by, tag=batch.tag)
            # Not by its class: a client that wraps another would be a player who answers by chance.
            if not hasattr(who, "call_with_retry"):
                if not callable(who):
                    self._take_answer(random_reply(question, question.rng), question)
                    continue
                try:
                    answer = who(question)
                except Exception as error:  # noqa: BLE001 - a player's own code raises anything
                    self._raised(error, question)
                    continue
                if isawaitable(answer):
                    awaited.append(answer)
                    work.append(partial(self._waited, answer, question))
                else:
                    self._take_answer(answer, question)
                continue
            text = question.prompt
            same = (question.player, batch.tag, batch.by, batch.reply, text)
            if same in self._asked:
                what = f"{question.player} is asked the same {batch.reply.__name__} twice"
                why = f"in turn {self.turn}, so that a replay could not tell the answers apart"
                raise ConfigError(f"{what} {why}; number them: ask(..., tag='second')")
            self._asked.add(same)  # before the first await, so that equal questions at once meet it
            if not isinstance(getattr(who, "backend", None), Person | ScriptedBackend):
                sent.append(text)
            if batch.decide is None or isinstance(who.backend, Person):  # who gives one answer
                work.append(_ToModel(who, question, text))
            else:
                name, texts = _options(question)
                key = (id(who), text, name, *texts.items())
                if key not in measured:
                    those = measured[key] = []
                    work.append(partial(self._choose, who, text, name, texts, those))
                measured[key].append(question)
        self._tell_of_order(batch, sent)
        return work

    def _tell_of_order(self, batch: _Batch, sent: Sequence[str]) -> None:
        """Warn once a run of prompts that say too late what is the same for all.

        Args:
            batch: what the questions have in common.
            sent: their prompts, as models are sent them.
        """
        run = self._run
        question = (batch.reply, batch.tag, batch.by, batch.name or batch.prompt)
        if len(sent) < 2 or run._order_told or question in run._compared:
            return
        run._compared.add(question)  # what it is asked in later turns is put in the same order
        if run._quiet or run._session.is_replay:
            return
        order = prompt_order(batch.place, sent)
        if order.is_late:
            run._order_told = True
            _warn("PROMPT_ORDER", words=order.advice, run=run.name, reason=order.advice)

    def _begin(self, batch: _Batch, names: Sequence[Any]) -> None:
        """Check what all are asked, and have it ready to be filled in for each."""
        reply, whom = batch.reply, names[0] if names else "no player"
        if self._over:
            what = f"turn {self.turn} is over, and {whom} is asked in it"
            raise ConfigError(f"{what}: await every question in the turn that asks it")
        if not (isinstance(reply, type) and issubclass(reply, Decision)):
            way = "ask for a class derived from Reply: class Gift(Reply): amount: int"
            raise ConfigError(f"{whom} is asked for {reply!r:.60}; {way}")
        _check_form(reply, whom, self._run.config.rationale)
        for name in names:
            if not isinstance(name, str) or not name.strip():
                raise ConfigError(f"{name!r:.60} is not the name of a player; a name is a text")
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ConfigError(f"{twice!r} is asked twice by one ask.each; name each player once")
        for name in batch.values:
            if name in GIVEN:
                taken = f"{name!r} has a value in every prompt already ({', '.join(GIVEN)})"
                raise ConfigError(f"{taken}; call yours something else")
        known = get_args(OnError)
        if batch.on_error not in (None, *known):
            raise ConfigError(f"on_error={batch.on_error!r:.40} must be one of {', '.join(known)}")
        batch.component = batch.by or batch.tag or "player"
        if not isinstance(batch.system, str) or is_file_name(batch.system):
            raise ConfigError(
                f"system={batch.system!r:.60} of the question to {whom} must be the text of the "
                "system message itself; a prompt's file has it below '## System', without system="
            )
        batch.system = dedented(batch.system)
        edits = self._run._edit
        if not callable(batch.prompt):
            self._prepare(batch, whom)
        elif edits is not None and edits.missing and names:
            self._text(batch, whom)  # a study has yet to see the prompt that it edits

    def _prepare(self, batch: _Batch, whom: str) -> None:
        """Have the prompt ready to be filled; what all share is filled in once.

        A rule needs no prompt; yet what is wrong with it is said to it too, and a study finds the
        prompts of a world by a turn of chance.
        """
        prompt, edited = prompt_for(self._run, batch.prompt, batch.reply, batch.name, batch.system)
        own, shared = self._values_of(batch, whom, prompt, edited)
        if isinstance(prompt, str):
            batch.rest = lambda _: prompt
            return
        batch.own = own
        batch.shared = partial(prompt.sharing, shared)

    def _text(self, batch: _Batch, player: str) -> Any:
        """Return what a question says to a player; of a function's text, a fork's edit of it."""
        if not callable(batch.prompt):
            return batch.text(player)
        text = batch.of_world("prompt", batch.prompt, player)
        if type(text) is not str:  # such as a filled prompt, which the run knows by itself
            if isinstance(text, RenderedPrompt) and batch.system:
                raise PromptError(
                    f"system={clip(batch.system, 40)!r} goes with a function that returns a plain "
                    f"text, and this one returns the filled prompt {text.template.name!r}; give "
                    "that the system message: Prompt(..., system=...)"
                )
            return text
        prompt, _ = plain_prompt(self._run, text, batch.name, batch.system)
        if isinstance(prompt, str):
            return prompt
        # Values that no slot takes are for rules.
        own, shared = self._values_of(batch, player, prompt, edited=True)
        values = {slot: batch.of_world(slot, it, player) for slot, it in own.items()}
        return prompt.sharing(shared)(values)

    def _values_of(
        self, batch: _Batch, whom: str, prompt: Prompt | str, edited: bool
    ) -> tuple[dict[str, Callable[[str], Any]], dict[str, Any]]:
        """Return what fills a prompt's slots: functions of the name, and what all share.

        Raises:
            PromptError: a slot has no value, or the other way round.
        """
        config = self._run.config
        given = (str, self._state, config, self.turn, config.turns)
        known = {**dict(zip(GIVEN, given, strict=True)), **batch.values}
        slots = prompt.slots if isinstance(prompt, Prompt) else ()
        unfilled, unused = {*slots} - known.keys(), batch.values.keys() - {*slots}
        if unfilled or (unused and not edited):
            wrong = [f"nothing fills {{{{ {it} }}}}{closest(it, known)}" for it in sorted(unfilled)]
            wrong += [f"it has no slot {{{{ {it} }}}}" for it in sorted(unused)]
            if taken := unfilled & signature(self.__call__).parameters.keys():
                slot = min(taken)
                raise PromptError(
                    f"the prompt to {whom} has the slot {{{{ {slot} }}}}, and {slot}= is a "
                    f"parameter of ask itself; call the slot something else: {{{{ the_{slot} }}}}, "
                    f"the_{slot}=..."
                )
            lacking = min(unfilled | unused)
            raise PromptError(
                f"the prompt to {whom}: {'; '.join(wrong)}; it may use {', '.join(known)}, and "
                f"what the question gives: ask(..., {lacking}=...) fills {{{{ {lacking} }}}}"
            )
        own = {slot: known[slot] for slot in slots if callable(known[slot])}
        return own, {slot: known[slot] for slot in slots if slot not in own}

    # --- who answers -------------------------------------------------------------------------

    async def _done(self, work: _Work) -> None:
        """Wait for one of several answers."""
        if isinstance(work, _ToModel):
            with self._answering(work.question):
                work.question._decision = await work.question._sent(work.client, work.text)
        else:
            await work()

    @contextmanager
    def _answering(self, question: Question) -> Iterator[None]:
        """Let a stand-in answer for a model that fails, or raise what names the question."""
        try:
            yield
        except LLMFailureException as failure:
            self._model_failed(failure, question)
        except LabError:
            raise
        except Exception as error:  # a script's function, a person's, or a backend of one's own
            raise ConfigError(
                f"{question._batch.place}: asking {caller(question.site)} failed: "
                f"{error_text(error)}"
            ) from error

    async def _waited(self, awaited: Awaitable[Any], question: Question) -> None:
        try:
            answer = await awaited
        except asyncio.CancelledError as error:
            # A task of the player's own was cancelled, unless it is the turn that is.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            self._raised(error, question)
        except Exception as error:  # noqa: BLE001 - a player's own code raises anything
            self._raised(error, question)
        else:
            self._take_answer(answer, question)

    def _take_answer(self, answer: Any, question: Question) -> None:
        """Take an answer; one that no call says by itself is recorded."""
        batch = question._batch
        if batch.fault is not None:
            raise batch.fault
        try:
            decision = _as_reply(answer, question, _rule_of)
            # Of a player that asks a model by itself, the call says it.
            record = _by_code(decision, question) if decision.call is None else None
        except ConfigError as fault:
            self._code_failed(fault, question)
        except Exception as error:  # noqa: BLE001 - what is odd about an answer is its class's code
            self._raised(error, question)
        else:
            question._decision = decision
            if record is not None:
                batch.answers.append(record)

    # --- who stands in -----------------------------------------------------------------------

    def _raised(self, error: BaseException, question: Question) -> None:
        """Let a stand-in answer for a function that raised, or raise what names the question."""
        batch = question._batch
        if batch.fault is not None:
            raise batch.fault
        if isinstance(error, TapeError | BudgetReached):  # the run's, not the player's
            raise error
        if isinstance(error, LLMFailureException):  # of a player that asks a model by itself
            self._model_failed(error, question, stands_in=self._falls_back(question))
            return
        if self._falls_back(question):
            fault = ConfigError(f"{_rule_of(question)} failed: {error_text(error)}")
            self._code_failed(fault, question)
            return
        world = type(self._run).__name__
        raise ConfigError(
            f"{_rule_of(question)} failed: {error_text(error)}; repair it, or let a stand-in "
            f"answer: {world}(..., on_error='fallback')"
        ) from error

    def _code_failed(self, fault: ConfigError, question: Question) -> None:
        """Let a stand-in answer for a function or rule, if the question or the run says so."""
        if not self._falls_back(question):
            raise fault
        who = question.by or question.player
        if not self._stood_in[who] and who not in self._run._stood_in:
            words = f"{fault}. A stand-in answers, here and whenever {who} fails again."
            where = {"agent": question.player, "component": question._batch.component}
            _warn("FALLBACK", words=words, **where, turn=self.turn, detail=fault)
        self._stand_in(fault, question)

    def _falls_back(self, question: Question) -> bool:
        said: OnError = question._batch.on_error or self._run.config.on_error
        return said == "fallback"

    def _model_failed(
        self,
        failure: LLMFailureException,
        question: Question,
        *,
        stands_in: bool = False,
        counts: bool = True,
    ) -> None:
        """Let a stand-in answer for a model; raise where none may, or no model is there.

        Args:
            failure: how it failed.
            question: what it was asked.
            stands_in: whether a random answer does where there is no ``fallback``.
            counts: whether the failed call is this question's.
        """
        may = stands_in or question._batch.fallback is not None
        if failure.reason not in FORGIVEN or not may:
            raise failure
        site = question.site
        words = f"Turn {self.turn}, {caller(site)}: no valid answer; another stands in: {failure}"
        where = {"agent": question.player, "component": site.component, "turn": self.turn}
        _warn("FALLBACK", words=words, **where, reason=failure.reason, detail=failure.detail)
        calls = (failure.call,) if counts and failure.call is not None else ()
        self._stand_in(failure, question, calls)

    def _stand_in(
        self, error: LabError, question: Question, calls: tuple[CallRecord, ...] = ()
    ) -> None:
        """Take and record what stands in for an answer."""
        batch, name = question._batch, question.player
        answer = batch.fallback
        if callable(answer):
            answer = batch.of_world("fallback", answer, name)
        if answer is None and batch.fallback is None:
            answer = random_reply(question, question._random("stand-in"))
        question._decision = decision = _as_reply(answer, question, _fallback_of)
        self._stood_in[question.by or name] += 1
        record = _by_code(decision, question, f"stands in: {error}", calls=calls)
        batch.answers.append(replace(record, status="fallback", confidence=None))

    async def _choose(
        self,
        client: LLMClient,
        prompt: str,
        name: str,
        texts: dict[Any, str],
        questions: Sequence[Question],
    ) -> None:
        """Measure the probability of each answer once, and decide for each who is asked."""
        batch, choice = questions[0]._batch, None
        calls: tuple[CallRecord, ...] = ()
        how: Any = batch.decide
        if len(texts) > 1:
            agent = questions[0].player if len(questions) == 1 else None
            site = replace(questions[0].site, agent=agent)
            try:
                choice = await client.choose(prompt, texts, site=site)
            except LLMFailureException as failure:
                for question in questions:  # the call is the first one's: none counts twice
                    self._model_failed(failure, question, counts=question is questions[0])
                return
            calls = choice.calls
        for question in questions:
            [value, *_], why = texts, "there was nothing else to choose"
            if choice is not None:
                value = choice.decided(how, question._random("draw"))
                why = f"{how}: {name} {texts[value]} has {choice.probabilities[value]:.1%}"
                if how == "expected":
                    why += f", nearest to the mean {choice.expectation:.4g}"
                why += f"; {choice.mass:.1%} of all answers are options"
            reasoned = "reasoning" in batch.reply.model_fields
            fields = {name: value} | ({"reasoning": why} if reasoned else {})
            question._decision = batch.reply.model_validate(fields)
            # Of several who were asked the same the first has the calls: none counts twice.
            batch.answers.append(_by_code(question._decision, question, why, calls=calls))
            calls = ()


def _check_form(reply: type[Decision], whom: str, rationale: Rationale) -> None:
    """Raise ConfigError if a reply has its reasoning elsewhere than the run's ``rationale`` says.

    Args:
        reply: what is asked for.
        whom: who is asked, for the message.
        rationale: of the run.
    """
    has_own_place = "reasoning" in reply.model_fields and not issubclass(reply, Reply)
    if has_own_place and rationale != "before":
        raise ConfigError(
            f"rationale={rationale!r} does not reach {reply.__name__}, which {whom} is asked for: "
            "its class has a fixed form. Leave rationale= out, or ask for a class derived from "
            "Reply"
        )


def _rule_of(question: Question) -> str:
    """Return whose rule is asked what, for messages."""
    by, player, place = question.by, question.player, question._batch.place
    if by:
        return f"{place}: the rule of {by}, about {player},"
    return f"{place}: the rule of {player}"


def _fallback_of(question: Question) -> str:
    """Return for whom which question names a stand-in, for messages."""
    return f"{question._batch.place}: fallback= of {question.player}"


def _close(awaitable: Any) -> None:
    """Close a coroutine that will not be awaited, of which Python would warn."""
    if iscoroutine(awaitable):
        awaitable.close()


def _first(names: Sequence[Any]) -> str:
    return ", ".join(map(str, names[:3])) or "no player"


def _by_code(
    decision: Any, question: Question, reasoning: str = "", calls: tuple[CallRecord, ...] = ()
) -> Answer:
    """Return the record of a decision that no call says by itself.

    Raises:
        ConfigError: a record cannot hold it.
    """
    try:
        given = _given(decision)
    except ConfigError as error:
        raise ConfigError(f"{_rule_of(question)} answered what cannot be kept: {error}") from error
    return Answer(
        player=question.player,
        component=question._batch.component,
        calls=calls,
        reasoning=reasoning or as_reasoning(getattr(decision, "reasoning", "")),
        confidence=as_confidence(getattr(decision, "confidence", None)),
        given=given,
    )


def _given(decision: Any) -> dict[str, Any]:
    """Return a decision's fields as JSON has them; a Decimal as a number, which a table adds up.

    Raises:
        ConfigError: JSON cannot hold one.
    """
    given = reply_as_json(decision)
    values = decision.__dict__  # of the model itself it takes long
    if Decimal in map(type, values.values()):
        given |= {name: json_number(it) for name, it in values.items() if type(it) is Decimal}
    return given


def _as_reply(answer: Any, question: Question, whose: Callable[[Question], str]) -> Any:
    """Return an answer that code gave as the reply that was asked for, within its limits.

    Args:
        answer: what the code gave.
        question: what it was asked.
        whose: names the code in a message.

    Raises:
        ConfigError: it is not such a reply, or not within the limits.
    """
    reply = question.reply
    if not isinstance(answer, reply):
        if isinstance(answer, Decision) and type(answer).__name__ == reply.__name__:
            raise defined_again(reply.__name__, reply.__module__)
        fields = reply.model_fields
        needed, form = _needed_of(reply)
        if answer is None:
            raise ConfigError(f"{whose(question)} returned None; {form}")
        if not isinstance(answer, Mapping) and len(needed) == 1:
            answer = {needed[0]: answer}  # a number alone will do where only one is asked for
        if isinstance(answer, Mapping) and (unknown := [it for it in answer if it not in fields]):
            raise ConfigError(
                f"{whose(question)} answered {unknown[0]!r}{closest(str(unknown[0]), fields)}, "
                f"which a {reply.__name__} has no field for; {form}"
            )
        try:
            answer = reply.model_validate(answer)
        except ValidationError as error:
            raise ConfigError(f"{whose(question)} answered {faults(error)}; {form}") from error
    if not ALWAYS_FINITE.issuperset(map(type, answer.__dict__.values())):
        _check_values(answer, question, whose)
    if complaint := question._allowed.complaint(answer):
        raise ConfigError(
            f"{whose(question)} answered {reply.__name__}, {complaint}; question.limits has what "
            "is allowed"
        )
    return answer


@lru_cache(maxsize=1024)
def _needed_of(reply: type[Decision]) -> tuple[list[str], str]:
    """Return the fields that code has to give of a reply, and how it gives them, in words."""
    fields = reply.model_fields
    needed = [it for it in fields if it not in Reply.model_fields or fields[it].is_required()]
    given = ", ".join(f"{name}=..." for name in needed)
    return needed, f"return {reply.__name__}({given})"


def _check_values(answer: Any, question: Question, whose: Callable[[Question], str]) -> None:
    """Raise ConfigError for values of a reply that no tape could hold."""
    for name, value in answer:
        if type(value) not in SCALARS and is_too_deep(value):
            raise ConfigError(
                f"{whose(question)} answered {name}= that is nested too deeply for a tape: more "
                f"than {MOST_LEVELS} lists and dicts in one another"
            )
        if type(value) not in ALWAYS_FINITE and not all_finite(value):
            raise ConfigError(
                f"{whose(question)} answered {name}={value!r:.200}, which holds a number that is "
                "not finite; JSON, and so a tape, has none: answer another number, or None for no "
                "number"
            )


async def from_outside(
    what: str,
    key: Any,
    work: Callable[[], Awaitable[Any]],
    *,
    once: bool = False,
    fallback: Any = None,
) -> Any:
    """Do what ``Ask.outside`` does, for the run that is being played, if there is one.

    For what takes part in a turn and is handed no ``Ask``, such as an executor of tools.
    """
    key = _json_ready(f"the key of {what}", key)
    keeper = scope().recorder
    found = keeper.find_outside(what, key)
    # The turn's code waited no longer; ``once``, unless it was played again and took ``fallback``.
    given_up = found.stopped and (not once or found.seconds > 0)
    if given_up and keeper.is_replay:
        await until_cancelled(f"ask.outside({what!r}, ...)", found.seconds)
    if given_up and not once:
        found = Outside(found.nth)  # where the turn is played again, it is done again
    if given_up and once:
        keeper.outside(what, key, nth=found.nth, once=True, stopped=True)  # for a replay
    if found.is_done:
        return fallback if found.stopped else plain(found.result)  # it may be changed in place
    record = partial(keeper.outside, what, key, nth=found.nth, **({"once": True} if once else {}))
    if once:
        record()
    began = time.monotonic()
    try:
        came: Any = work()
        result = _json_ready(f"what {what} gave", await came if isawaitable(came) else came)
    except asyncio.CancelledError:
        record(stopped=True, seconds=time.monotonic() - began)
        raise
    except BaseException:
        if once:
            record(stopped=True)
        raise
    record(result=result)
    return result


def _noting(player: Any, columns: Mapping[str, Any]) -> str:
    return f"ask.note({brief(player or columns, 80)})"


def _stays(value: Any) -> bool:
    """Return True if JSON gives a value back as it is, as far as that is quickly seen."""
    if type(value) is str:
        return value.isascii()
    return value is None or (type(value) in SCALARS and -1e300 < value < 1e300)


def _json_ready(what: str, value: Any) -> Any:
    """Return a value as a tape gives it back, with no half character in its texts."""
    if is_too_deep(value):
        raise ConfigError(
            f"{what} is nested too deeply for a tape: more than {MOST_LEVELS} lists and dicts in "
            "one another"
        )
    try:
        return loads_strictly(whole_text(encode(value)).encode())
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{what}, {brief(value, 80)}, is not ready for JSON: {error}") from error


# --- answers by probabilities --------------------------------------------------------------------


def _options(question: Question) -> tuple[str, dict[Any, str]]:
    """Return the field that is decided by probabilities, and its values, each with its text.

    Raises:
        ConfigError: that cannot be done.
    """
    how: Any = question._batch.decide
    player, reply = question.player, question._batch.reply
    if how not in get_args(Decide):
        known = ", ".join(get_args(Decide))
        raise ConfigError(f"decide={how!r:.40} of {player} must be one of {known}")
    fields = [name for name in reply.model_fields if name not in Reply.model_fields]
    if len(fields) != 1:
        has = f"{reply.__name__} of {player} has {', '.join(fields) or 'nothing'}"
        raise ConfigError(f"decide needs one thing to choose, and {has}; ask for each by itself")
    [name] = fields
    schema, its = fields_of(reply)[name], question.limits.get(name, [])
    if schema.get("type") == "boolean":
        return name, {True: "yes", False: "no"}
    values: Sequence[Any] = its if isinstance(its, list) else ()
    if isinstance(its, tuple) and schema.get("type") == "integer":
        whole_numbers = range(int(its[0]), int(its[1]) + 1)
        values = whole_numbers if len(whole_numbers) <= _MOST_VALUES else ()
    if not values or (how == "expected" and not numeric(values)):
        needed = "numbers" if values else f"the values, at most {_MOST_VALUES}"
        what = f"decide={how!r} needs {needed}, of {reply.__name__}.{name} for {player}"
        way_out = "annotate it as Literal or an enum, give bounds of whole numbers, or the values"
        raise ConfigError(f"{what}: {way_out}: ask(..., limits={{{name!r}: [0, 0.25, 0.5]}})")
    words = question._allowed.wording.get(name, {})
    return name, {value: words[value] if value in words else text_of(value) for value in values}


# --- prompts -------------------------------------------------------------------------------------


def is_file_name(text: str) -> bool:
    """Return True for a text that names a prompt's file: one word that ends in ``.md``."""
    return text.endswith(".md") and len(text.split()) == 1


@lru_cache(maxsize=256)
def dedented(text: str) -> str:
    """Return a text of source code without its indentation and blank ends."""
    # The first line stands behind the quotes, the others where the source is indented to.
    first, newline, rest = text.partition("\n")
    return f"{first.strip()}{newline}{textwrap.dedent(rest)}".strip()


def prompt_for(
    run: Any, source: Any, reply: type[Decision] | None, name: str = "", system: str = ""
) -> tuple[Prompt | str, bool]:
    """Return the prompt that a question names, or the one that a fork put in its place.

    Args:
        run: the run, which keeps its prompts by their places.
        source: as ``ask`` takes it: a text, a file, or a prompt.
        reply: what is asked for; a text's prompt is called after it.
        name: what the prompt is called if it has no slots.
        system: the system message, for a prompt that has none.

    Returns:
        The prompt, or a text without slots that was not edited; and whether it is another than the
        source names.

    Raises:
        PromptError: the file cannot be read, a template is wrong, or there are two system messages.
        ConfigError: it is not a prompt, or there are too many different ones.
    """
    # Two prompts of one text are equal, and yet have names of their own.
    key = source, getattr(source, "name", ""), reply, system
    try:
        return run._sources[key]  # type: ignore[no-any-return]
    except (KeyError, TypeError):  # new, or not hashable and so not a prompt: see below
        pass
    prompt = source
    if not isinstance(source, str | Path | Prompt):
        what = f"{clip(repr(source), 60)} is not a prompt"
        raise ConfigError(f"{what}; give a text, a file that ends in .md, or a Prompt")
    if isinstance(source, Path) or (isinstance(source, str) and is_file_name(source)):
        world = file_of(type(run))
        prompt = Prompt.load(Path(source) if world is None else world.parent / source)
    elif isinstance(source, str):
        text = dedented(source)
        if not has_slots(text):
            return plain_prompt(run, text, name, system)
        prompt = Prompt(text, name=kind_of(reply))
    if prompt.system and system:
        raise PromptError(
            f"the prompt {prompt.name!r} has a system message, {clip(prompt.system, 40)!r}, and "
            f"the question gives another one, system={clip(system, 40)!r}; leave out one of them"
        )
    if system:
        prompt = Prompt(prompt.user, system=system, name=prompt.name, parent=prompt.parent)
    # A fork keeps its edited prompt at the place of the one that the source still names.
    place = f"{prompt.name}#{prompt.digest[:8]}"
    if place not in run._prompts:
        templates = [known for known in run._prompts if PLAIN not in known]
        if len(templates) >= _MOST_PROMPTS:  # each is in the manifest
            what = f"{type(run).__name__} asks with more than {_MOST_PROMPTS} different prompts"
            why = "a template is put together anew each time. Give what changes a slot"
            raise ConfigError(f"{what}: {why}: ask(..., '... {{{{ offer }}}} ...', offer=offer)")
        run._prompts[place] = prompt if run._edit is None else run._edit(prompt)
    used: Prompt = run._prompts[place]
    run._sources[key] = found = used, used.digest != prompt.digest
    return found
