"""Asking players: models, rules and people, all in the same words.

A world's ``turn`` is given an ``Ask``. A question names a player, what the reply must be and a
prompt; who answers it is decided where the run is made. A model's or a person's answer is a call
on the tape. A rule's is computed again in a replay.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import CORO_CLOSED, CORO_CREATED, getcoroutinestate, isawaitable
from random import Random
from typing import Any, NamedTuple, TypeVar, get_args

from llmsim_lab._util.jsontext import SCALARS
from llmsim_lab._util.text import brief, error_text, log_event, whole_text
from llmsim_lab._util.waiting import gather_all
from llmsim_lab.errors import (
    BudgetReached,
    ConfigError,
    LabError,
    LLMFailureException,
    TapeError,
)
from llmsim_lab.llm import LLMClient, Person, ScriptedBackend
from llmsim_lab.llm.bounds import Limits
from llmsim_lab.llm.chains import FORGIVEN
from llmsim_lab.llm.choice import Choice, Decide
from llmsim_lab.llm.human import StandIn
from llmsim_lab.llm.scope import caller
from llmsim_lab.run._any_run import AnyRun, Warnings
from llmsim_lab.run._personas import check_rows
from llmsim_lab.run.answers import (
    NOTHING_ELSE,
    Options,
    answer_by_code,
    as_reply,
    fallback_of,
    options_of,
    rule_of,
    why_chosen,
)
from llmsim_lab.run.chance import random_reply
from llmsim_lab.run.config import OnError
from llmsim_lab.run.frames import DECISION_COLUMNS
from llmsim_lab.run.outside import from_outside, json_ready
from llmsim_lab.run.plain_prompts import dedented, has_slots, is_file_name, kind_of
from llmsim_lab.run.prompt_order import prompt_order
from llmsim_lab.run.question import (
    SLOTS_OF_ALL,
    AskedQuestion,
    AskedTurn,
    Batch,
    ByModel,
    ForPeople,
    Question,
    Source,
    close_unawaited,
)
from llmsim_lab.run.state import COMMON_COLUMNS, Columns
from llmsim_lab.run.turn import Answer
from llmsim_lab.types import CallRecord, Decision, Rationale, Reply

T = TypeVar("T")
ReplyT = TypeVar("ReplyT", bound=Decision)
Pending = Coroutine[Any, Any, T]
"""What a turn awaits."""

_warn = partial(log_event, logging.getLogger(__name__), logging.WARNING)


class _ToModel(NamedTuple):
    """A question that a model or a person is to answer."""

    client: LLMClient
    question: AskedQuestion
    text: str


class _ToMeasure(NamedTuple):
    """Questions whose answers are drawn from the probabilities that one model gives."""

    client: LLMClient
    text: str
    options: Options
    questions: list[AskedQuestion]


class _Returned(NamedTuple):
    """What a function returned to be awaited, and what it was asked."""

    answer: Awaitable[object]
    question: AskedQuestion


class _ToConverse(NamedTuple):
    """A question that a model answers by a conversation."""

    client: LLMClient
    question: AskedQuestion
    by_model: ByModel[Decision]


_Work = _ToModel | _ToMeasure | _ToConverse | _Returned
"""What a turn waits for."""


class _Promised(NamedTuple):
    """What a turn was given to await, and whom or what it asked with it."""

    names: Sequence[str]
    coroutine: Coroutine[Any, Any, object]


class _Numbering(NamedTuple):
    """The task that first asked a player this kind of question, and how often it did so far."""

    task: asyncio.Task[Any] | None
    times: int


class _FailedOutside(NamedTuple):
    """What from outside failed, and its error."""

    kind: str
    error: Exception


class TurnNotes(NamedTuple):
    """What a turn's record has of its ``Ask``."""

    by_code: tuple[Answer, ...]
    noted: Columns
    became: dict[tuple[str, str], Columns]
    story: tuple[str, ...]
    led_to: str
    stand_ins: Counter[str]
    """How often a stand-in answered, by who did not."""


class _GuardedRandom(Random):
    """Random numbers for one task, since several would draw in another order in a replay.

    How long an answer takes decides which task goes first, and a replay takes no time at all.
    All of Random's methods draw through the two that are overridden here.
    """

    def __init__(self, seed: str, name: str) -> None:
        self._name = name
        self._owner: asyncio.Task[Any] | None = None
        super().__init__(seed)

    def _check(self) -> None:
        task = _current_task()
        # The first task that draws has the generator.
        self._owner = self._owner or task
        if task is None or self._owner is not task:
            raise ConfigError(
                f"{self._name} is used by two tasks or threads, whose order may change; draw "
                "before the await, or give each player its own: ask.rng_for(name)"
            )

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

    def __init__(
        self,
        run: AnyRun,
        turn: AskedTurn,
        warnings: Warnings,
    ) -> None:
        self.turn = turn.number
        """The number of the turn being played."""
        self._run = run
        self._asked_turn = turn
        self._warnings = warnings
        # What a replay tells questions apart by; the same one twice is an error.
        self._sent: set[tuple[object, ...]] = set()
        """The questions that models and people were sent."""
        self._rngs: dict[str, _GuardedRandom] = {}
        self._numbering: dict[tuple[str, str, str], _Numbering] = {}
        """By player, tag and ``by``."""
        self._positions: dict[tuple[str, str], int] = {}
        """How often each player was asked each kind of question without slots."""
        self._answers: list[Answer] = []
        self._stand_ins = Counter[str]()
        """How often a stand-in answered in the turn, by who did not."""
        self._noted: Columns = {}
        self._became: dict[tuple[str, str], Columns] = {}
        self._story: list[str] = []
        self._led_to = ""
        self._promised: list[_Promised] = []
        self._failed_outside: _FailedOutside | None = None
        """What from outside failed first."""
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
        for_people: ForPeople = "",
        **values: Any,
    ) -> Pending[ReplyT]:
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
            for_people: what a person is shown in place of the prompt, such as a shorter text: with
                the same slots, or a function of the name. Models are not sent it, and a person's
                recording has the prompt.
            values: of the prompt's other slots; a function is called with the name. Rules find them
                in ``question.values``; where the prompt is a function, they are for rules alone.

        Raises:
            ConfigError: no one answers for this player, the limits leave nothing, the same was
                asked twice, or a rule raised or answered what is not allowed.
            PromptError: a slot has no value, or the other way round.
            LLMFailureException: a model failed to answer.
        """
        batch = Batch(
            turn=self._asked_turn,
            reply=reply,
            prompt=prompt,
            system=system,
            by=by,
            tag=tag,
            limits=limits,
            decide=decide,
            fallback=fallback,
            on_error=on_error,
            values=values,
            for_people=for_people,
        )
        return self._promise(
            batch,
            [player],
            is_alone=True,
        )

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
        for_people: ForPeople = "",
        **values: Any,
    ) -> Pending[dict[str, ReplyT]]:
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
            for_people: see ``__call__``.
            values: see ``__call__``; those that are no functions are filled in once for all.

        Raises:
            ConfigError: see ``__call__``; or a player is named twice.
        """
        names = [players] if isinstance(players, str) else list(players)
        batch = Batch(
            turn=self._asked_turn,
            reply=reply,
            prompt=prompt,
            system=system,
            by=by,
            tag=tag,
            limits=limits,
            decide=decide,
            fallback=fallback,
            on_error=on_error,
            values=values,
            for_people=for_people,
        )
        return self._promise(batch, names)

    def converse(
        self,
        player: str,
        reply: type[ReplyT],
        prompt: Callable[[str], str],
        /,
        *,
        by_model: ByModel[ReplyT],
        for_people: ForPeople = "",
    ) -> Pending[ReplyT]:
        """Ask a player who may take several calls to answer, as with tools; await it.

        For worlds of this package: people, rules and functions are asked as by ``ask(...)``. Who
        has the seat is decided here in any case.

        Args:
            player: its name.
            reply: see ``__call__``.
            prompt: what people are shown and functions are given; a model is not sent it.
            by_model: how a model answers: of the question, and of the client in the player's seat.
            for_people: see ``__call__``.

        Raises:
            ConfigError: see ``__call__``.
            LLMFailureException: ``by_model`` raised it.
        """
        batch = Batch(
            turn=self._asked_turn,
            reply=reply,
            prompt=prompt,
            system="",
            by="",
            tag="",
            limits=None,
            decide=None,
            fallback=None,
            on_error=None,
            values={},
            by_model=by_model,
            for_people=for_people,
        )
        return self._promise(
            batch,
            [player],
            is_alone=True,
        )

    def outside(
        self,
        kind: str,
        key: object,
        work: Callable[[], Awaitable[Any]],
        /,
        *,
        once: bool = False,
        fallback: Any = None,
    ) -> Pending[Any]:
        """Return what came from outside: a tool's answer, a file, a clock; await it.

        It is recorded like a reply. A replay takes it from the tape and does nothing outside; so
        does a run that is resumed in the middle of the turn.

        Args:
            kind: what kind of thing, such as ``weather``.
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
            raise ConfigError(f"turn {self.turn} is over; await {kind} in the turn that asks")
        bring = partial(
            from_outside,
            kind,
            key,
            work,
            once=once,
            fallback=fallback,
        )
        pending = self._outside(kind, bring)
        self._promised.append(_Promised([kind], pending))
        return pending

    async def _outside(
        self,
        kind: str,
        bring: Callable[[], Awaitable[T]],
    ) -> T:
        try:
            return await bring()
        except Exception as error:
            # The turn's code may catch it and go on; close() raises it then.
            if self._failed_outside is None:
                self._failed_outside = _FailedOutside(kind, error)
            raise

    async def count_tokens(self, texts: Sequence[str], /) -> list[int] | None:
        """Return how many tokens each text has for the run's model; await it.

        None where the model's backend cannot tell, or no model plays. What was counted is on the
        tape, as from ``outside``, and a replay takes it from there.

        Raises:
            ConfigError: see ``outside``.
        """
        client = self._run.llm_client

        async def count() -> list[int] | None:
            return None if client is None else await client.count_tokens(texts)

        counts: list[int] | None = await self.outside(
            "tokens",
            list(texts),
            count,
        )
        return counts

    def note(
        self,
        player: str = "",
        /,
        *,
        component: str = "",
        text: str = "",
        led_to: str = "",
        **columns: Any,
    ) -> None:
        """Record what became of a player's decision, or of the turn.

        Args:
            player: whose decision, of which the turn has to have one; without a name, the turn's.
            component: which of the player's decisions, as ``decisions()`` calls it: a question's
                ``by`` or ``tag``, else ``player``. Its first row of the turn if not given.
            text: a line of the turn's story.
            led_to: the turn's result in words, for where no table shows it; the last one counts.
            columns: by name: of the decision's row in ``decisions()``, or of the turn's in
                ``to_frame()``. Numbers, texts, truth values, None, and lists and dicts of them.

        Raises:
            ConfigError: the turn is over, nothing is noted, every frame has a column of that name,
                or a value is not ready for JSON.
        """
        if self._over:
            raise ConfigError(f"{_noting(player, columns)}: turn {self.turn} is over")
        # ask.note(5) would be a note of no one.
        are_texts = [isinstance(value, str) for value in (player, component, text, led_to)]
        if not all(are_texts) or not (text or led_to or columns):
            raise ConfigError(
                f"{_noting(player, columns)} notes nothing: ask.note('Ann', text='...', "
                "accepted=True)"
            )
        if component and not (player and columns):
            raise ConfigError(
                f"component={component!r:.40} says to which decision of a player columns belong: "
                f"ask.note('Ann', component={component!r:.40}, accepted=True)"
            )
        columns_of_all = DECISION_COLUMNS if player else COMMON_COLUMNS
        taken = columns_of_all.intersection(columns)
        if taken:
            raise ConfigError(
                f"ask.note({min(taken)}=...): every frame has a column of that name; note it under "
                "another name"
            )
        # Most notes are plain numbers and texts, which need not go through JSON and back.
        if not all(map(_is_kept_by_json, (*columns, *columns.values()))):
            columns = json_ready(_noting(player, columns), columns)
        if text:
            self._story.append(whole_text(text))
        if led_to:
            self._led_to = whole_text(led_to)
        if not player:
            self._noted.update(columns)
        elif columns:
            self._became.setdefault((player, component), {}).update(columns)

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
            call = f"ask.rng_for({name!r})" if name else "ask.rng"
            self._rngs[name] = _GuardedRandom(seed, call)
        return self._rngs[name]

    # --- the turn's end ----------------------------------------------------------------------

    def check_awaited(self) -> None:
        """Raise ConfigError for a question that was asked without waiting for the answer."""
        # A question begins when it is awaited, as everywhere in Python: one without an await would
        # never be asked, without a word.
        unawaited = [
            pending
            for pending in self._promised
            if getcoroutinestate(pending.coroutine) == CORO_CREATED
        ]
        for pending in unawaited:
            pending.coroutine.close()  # else Python warns of it as well
        if unawaited:
            raise ConfigError(
                f"{type(self._run).__name__}.turn asked {_first_names(unawaited[0].names)} and did "
                "not wait for the answer; write await before it: gift = await ask(...), gifts = "
                "await ask.each(...)"
            )

    def close(self) -> TurnNotes:
        """End the turn; return what its record has of it, in an order that any replay has too.

        Raises:
            ConfigError: a question was not awaited, or its answer is still to come.
        """
        unfinished = [
            pending
            for pending in self._promised
            if getcoroutinestate(pending.coroutine) != CORO_CLOSED
        ]
        if unfinished:
            self.check_awaited()
            self._over = True
            raise ConfigError(
                f"turn {self.turn} is over, and what it asked {_first_names(unfinished[0].names)} "
                "is still under way: await every question in the turn that asks it"
            )
        self._over = True
        if self._failed_outside is not None:
            kind, error = self._failed_outside
            raise ConfigError(
                f"ask.outside({kind!r}, ...) failed with {type(error).__name__}: {error}, and "
                f"turn {self.turn} went on; a replay could not. Catch it in the work itself, and "
                "return something in its place"
            ) from error
        # Rules that await something finish in any order.
        try:
            self._answers.sort(
                key=lambda answer: (answer.component, answer.player, repr(answer.given))
            )
        except ValueError as error:  # of a number of more digits than Python writes
            raise ConfigError(f"turn {self.turn}: an answer cannot be kept: {error}") from error
        return TurnNotes(
            by_code=tuple(self._answers),
            noted=self._noted,
            became=self._became,
            story=tuple(self._story),
            led_to=self._led_to,
            stand_ins=self._stand_ins,
        )

    # --- how it is done ----------------------------------------------------------------------

    def _promise(
        self,
        batch: Batch,
        names: Sequence[str],
        *,
        is_alone: bool = False,
    ) -> Pending[Any]:
        """Return what asks all; that it has ended is checked when the turn is over."""
        # At once, and not when it is awaited, which may be in a task that gathers several.
        numbers = self._numbers(batch, names)
        source = batch.prompt
        if callable(source) or (isinstance(source, str) and not has_slots(source)):
            # Only of prompts without slots: those with slots are known by name and digest.
            batch.name = self._name_of(batch, names)
        pending = self._ask_all(
            batch,
            names,
            numbers,
            is_alone=is_alone,
        )
        self._promised.append(_Promised(names, pending))
        return pending

    def _numbers(
        self,
        batch: Batch,
        names: Sequence[str],
    ) -> list[int]:
        """Return how often each player was asked such a question, this time included.

        Those that one task asks come in the order of its code, also in a replay; 0 stands for one
        of another task.
        """
        task = _current_task()
        # As texts: names are checked when the question is awaited, and anything may stand here.
        tag = str(batch.tag)
        by = str(batch.by)
        numbers = []
        for name in names:
            # What a replay can tell apart by itself needs no number.
            key = (str(name), tag, by)
            before = self._numbering.get(key)
            if before is not None and before.task is not task:
                numbers.append(0)
                continue
            times = 1 if before is None else before.times + 1
            self._numbering[key] = _Numbering(task, times)
            numbers.append(times)
        return numbers

    def _name_of(self, batch: Batch, names: Sequence[str]) -> str:
        """Return the name of a prompt without slots: of the second such question, ``gift@2``."""
        kind = kind_of(batch.reply, batch.tag)
        # Of all who are asked the latest: they share one prompt, and so one name.
        position = 1
        for name in names:
            key = (str(name), kind)
            self._positions[key] = self._positions.get(key, 0) + 1
            position = max(position, self._positions[key])
        return kind if position == 1 else f"{kind}@{position}"

    async def _ask_all(
        self,
        batch: Batch,
        names: Sequence[str],
        numbers: Sequence[int],
        *,
        is_alone: bool,
    ) -> Any:
        """Return the decisions of all who are asked, by name; of one alone, its decision."""
        self._prepare(batch, names)
        questions = [
            AskedQuestion(batch, name, number) for name, number in zip(names, numbers, strict=True)
        ]
        work = self._work_for(batch, questions)
        only = work[0] if len(work) == 1 else None
        try:
            if isinstance(only, _ToModel):
                # As _wait_for does, and not by it: most questions are such a one, and each piece of
                # a streamed reply passes every coroutine between the server and here.
                try:
                    only.question.decision = await only.question.send(only.client, only.text)
                except Exception as error:  # noqa: BLE001 - a script, a person, one's own backend
                    await self._answer_failed(error, only)
            elif only is not None:
                await self._wait_for(only)
            elif work:
                # Each in a task of its own. One that fails ends the others, and is what is raised.
                await gather_all([self._wait_for(item) for item in work])
        finally:
            _close_returned(work)
        # Only now: where one failed the turn is played again, and would record them twice.
        self._answers += batch.answers
        if is_alone:
            return questions[0].decision
        return {question.player: question.decision for question in questions}

    def _work_for(
        self,
        batch: Batch,
        questions: Sequence[AskedQuestion],
    ) -> list[_Work]:
        """Return what has to be waited for; what functions answer at once is taken.

        Args:
            batch: what the questions have in common.
            questions: the questions.
        """
        # Begun once all are known: a prompt that cannot be built would leave the others unawaited.
        work: list[_Work] = []
        try:
            for question in questions:
                item = self._work_of(question)
                if item is not None:
                    work.append(item)
        except BaseException:
            # What functions returned before it is not awaited now.
            _close_returned(work)
            raise
        self._warn_of_order(batch, work)
        if batch.decide is not None:
            return _measured_together(work)
        return work

    def _work_of(self, question: AskedQuestion) -> _Work | None:
        """Return what has to be waited for until a question is answered; None if it was at once."""
        batch = question.batch
        # Asked for each, since the run notes whom its questions name.
        seated = self._run.seat(
            question.player,
            by=batch.by,
            tag=batch.tag,
        )
        # Not by its class: a client that wraps another would be a player who answers by chance.
        if not hasattr(seated, "call_with_retry"):
            return self._answer_of_code(seated, question)
        client: LLMClient = seated
        is_person = isinstance(getattr(client, "backend", None), Person)
        if batch.by_model is not None and not is_person:
            return _ToConverse(client, question, batch.by_model)
        text = question.text()
        self._check_new(question, text)
        if batch.decide is None or is_person:  # who gives one answer
            return _ToModel(client, question, text)
        # Per question, since limits may leave each player other options.
        return _ToMeasure(
            client,
            text,
            options_of(question),
            [question],
        )

    def _answer_of_code(self, seated: object, question: AskedQuestion) -> _Returned | None:
        """Take what chance or a function answers; returns what has to be awaited for it."""
        # The word "random", which is the only seat that cannot be called.
        if not callable(seated):
            self._take_answer(random_reply(question, question.rng), question)
            return None
        try:
            answer = seated(Question(question))
        except Exception as error:  # noqa: BLE001 - a player's own code raises anything
            self._code_raised(error, question)
            return None
        if isawaitable(answer):
            return _Returned(answer, question)
        self._take_answer(answer, question)
        return None

    def _check_new(self, question: AskedQuestion, text: str) -> None:
        """Raise ConfigError for a question that a replay could not tell from another one."""
        batch = question.batch
        key = (question.player, batch.tag, batch.by, batch.reply, text)
        if key in self._sent:
            raise ConfigError(
                f"{question.player} is asked the same {batch.reply.__name__} twice in turn "
                f"{self.turn}, so that a replay could not tell the answers apart; number them: "
                "ask(..., tag='second')"
            )
        self._sent.add(key)  # before the first await, so that equal questions at once meet it

    def _warn_of_order(self, batch: Batch, work: Sequence[_Work]) -> None:
        """Warn once a run of prompts that say too late what is the same for all.

        Args:
            batch: what the questions have in common.
            work: what models are sent of them.
        """
        warnings = self._warnings
        key = (batch.reply, batch.tag, batch.by, batch.name or batch.prompt)
        # One prompt has nothing to share.
        if len(work) < 2 or warnings.has_order or key in warnings.compared:
            return
        texts = _texts_for_servers(work)
        if len(texts) < 2:
            return
        warnings.compared.add(key)  # what it is asked in later turns is put in the same order
        if warnings.are_left_out or self._asked_turn.is_replay:
            return
        order = prompt_order(batch.place, texts)
        if order.is_late:
            warnings.has_order = True
            _warn(
                "PROMPT_ORDER",
                words=order.advice,
                run=self._run.name,
                reason=order.advice,
            )

    def _prepare(self, batch: Batch, names: Sequence[str]) -> None:
        """Check what all are asked, and have it ready to be filled in for each."""
        first_name = _first_names(names[:1])
        if self._over:
            raise ConfigError(
                f"turn {self.turn} is over, and {first_name} is asked in it: await every question "
                "in the turn that asks it"
            )
        _check_reply(batch.reply, first_name, self._asked_turn.config.rationale)
        _check_names(names)
        _check_arguments(batch, first_name)
        # Who judges the players is none of them. What is recorded stays as it was played.
        if not batch.by and not self._asked_turn.is_replay:
            check_rows(self._asked_turn.config, names)
        if batch.system:
            # As prompts are: source code indents what stands between three quotes.
            batch.system = dedented(batch.system)
        if isinstance(batch.for_people, str) and batch.for_people:
            # Here, so that what is wrong with it raises also where no person plays.
            batch.prepared_for_people(first_name)
        if not callable(batch.prompt):
            # A rule reads no prompt; yet what is wrong with it raises here too, and a study finds
            # the prompts of a world in a turn that chance answers.
            batch.prepared(first_name)
            return
        edits = self._asked_turn.prompts.edit
        # A function's text is known when it is called, which a turn of rules would never do.
        if edits is not None and edits.missing and names:
            batch.text_for(first_name)  # a study has yet to see the prompt that it edits

    # --- who answers -------------------------------------------------------------------------

    async def _wait_for(self, work: _Work) -> None:
        """Wait for one of several answers."""
        match work:
            case _ToModel(client, question, text):
                try:
                    question.decision = await question.send(client, text)
                except Exception as error:  # noqa: BLE001 - a script, a person, one's own backend
                    await self._answer_failed(error, work)
            case _ToConverse(client, question, by_model):
                try:
                    # The tape has its calls and no answer besides: a replay works it out again.
                    question.decision = await by_model(Question(question), client)
                except Exception as error:  # noqa: BLE001 - as above
                    self._asking_failed(error, question)
            case _ToMeasure():
                await self._choose(work)
            case _Returned():
                await self._wait_for_function(work)

    async def _answer_failed(self, error: Exception, sent: _ToModel) -> None:
        """Let another one answer for a person who does not, or do what ``_asking_failed`` does."""
        backend = getattr(sent.client, "backend", None)
        stand_in = backend.stand_in if isinstance(backend, Person) else ""
        if stand_in and isinstance(error, LLMFailureException) and error.reason in FORGIVEN:
            await self._fill_in(stand_in, error, sent)
        else:
            self._asking_failed(error, sent.question)

    async def _fill_in(
        self,
        stand_in: StandIn,
        failure: LLMFailureException,
        sent: _ToModel,
    ) -> None:
        """Take and record what another one answers for a person.

        Args:
            stand_in: who it is.
            failure: how asking the person failed.
            sent: what the person was asked.
        """
        question = sent.question
        # The person's call is kept with the answer, so that a tape shows why another one answers.
        calls = [failure.call]
        filled_by: str = stand_in
        reason = failure.detail
        model = self._run.llm_client
        if stand_in == "model" and model is not None:
            filled_by = model.config.model
            try:
                question.decision = await question.send(model, sent.text)
                calls.append(question.decision.call)
            except LLMFailureException as error:
                # The people of the group wait for this turn: chance answers where even this fails.
                calls.append(error.call)
                reason = f"{reason}; {filled_by} failed: {error.detail}"
                filled_by = "random"
                question.decision = random_reply(question, question.random("stand-in"))
        elif stand_in == "rule":
            rule = getattr(self._run, "rule")  # noqa: B009 - a world need not have one
            try:
                answer = rule(Question(question))
                if isawaitable(answer):
                    answer = await answer
            except Exception as error:  # noqa: BLE001 - a world's own code raises anything
                self._code_raised(error, question)
                return
            question.decision = as_reply(answer, question, rule_of)
        else:
            question.decision = random_reply(question, question.random("stand-in"))
        self._stand_ins[question.answerer] += 1
        record = answer_by_code(
            question.decision,
            question,
            f"{filled_by} answers for {caller(question.site)}: {reason}",
            calls=tuple(call for call in calls if call is not None),
        )
        question.batch.answers.append(
            replace(
                record,
                status="fallback",
                confidence=None,
                filled_by=filled_by,
            )
        )

    def _asking_failed(self, error: Exception, question: AskedQuestion) -> None:
        """Let a stand-in answer for a model that failed, or raise what names the question."""
        if isinstance(error, LLMFailureException):
            self._model_failed(error, question)
        elif isinstance(error, LabError):
            raise error
        else:
            raise ConfigError(
                f"{question.batch.place}: asking {caller(question.site)} failed: "
                f"{error_text(error)}"
            ) from error

    async def _wait_for_function(self, returned: _Returned) -> None:
        question = returned.question
        try:
            answer = await returned.answer
        except asyncio.CancelledError as error:
            # A player's own task was cancelled, and it did not catch that: a fault of its code.
            # Where the turn itself is cancelled, as by Ctrl-C, it goes on upwards.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            self._code_raised(error, question)
        except Exception as error:  # noqa: BLE001 - a player's own code raises anything
            self._code_raised(error, question)
        else:
            self._take_answer(answer, question)

    def _take_answer(self, answer: object, question: AskedQuestion) -> None:
        """Take an answer; one that no call says by itself is recorded."""
        batch = question.batch
        if batch.fault is not None:
            raise batch.fault
        record: Answer | None = None
        try:
            decision = as_reply(answer, question, rule_of)
            if decision.call is None:  # of a player that asks a model by itself, the call says it
                record = answer_by_code(decision, question)
        except ConfigError as fault:
            self._code_failed(fault, question)
        except Exception as error:  # noqa: BLE001 - what is odd about an answer is its class's code
            self._code_raised(error, question)
        else:
            question.decision = decision
            if record is not None:
                batch.answers.append(record)

    # --- who stands in -----------------------------------------------------------------------
    #
    # A person who does not answer has a stand-in of their own: _fill_in. A model that fails has the
    # question's fallback=: _model_failed. Code that raises, or answers what is not allowed, has
    # fallback= or chance where on_error says so: _code_raised, _code_failed. Each takes a stand-in
    # or raises an error that names the question.

    def _code_raised(self, error: BaseException, question: AskedQuestion) -> None:
        """Let a stand-in answer for a function that raised, or raise what names the question."""
        if question.batch.fault is not None:
            raise question.batch.fault
        if isinstance(error, TapeError | BudgetReached):  # the run's, not the player's
            raise error
        # A player of code may ask a model by itself, as Question.put_to does.
        if isinstance(error, LLMFailureException):
            self._model_failed(
                error,
                question,
                stands_in=self._falls_back(question),
            )
            return
        if self._falls_back(question):
            fault = ConfigError(f"{rule_of(question)} failed: {error_text(error)}")
            self._code_failed(fault, question)
            return
        raise ConfigError(
            f"{rule_of(question)} failed: {error_text(error)}; repair it, or let a stand-in "
            f"answer: {type(self._run).__name__}(..., on_error='fallback')"
        ) from error

    def _code_failed(self, fault: ConfigError, question: AskedQuestion) -> None:
        """Let a stand-in answer for a function or rule, if the question or the run says so."""
        if not self._falls_back(question):
            raise fault
        answerer = question.answerer
        # Once for each who fails: a rule that is wrong fails for every player in every turn.
        if not self._stand_ins[answerer] and answerer not in self._warnings.stand_ins:
            _warn(
                "FALLBACK",
                words=f"{fault}. A stand-in answers, here and whenever {answerer} fails again.",
                agent=question.player,
                component=question.batch.component,
                turn=self.turn,
                detail=fault,
            )
        self._stand_in(fault, question)

    def _falls_back(self, question: AskedQuestion) -> bool:
        on_error = question.batch.on_error or self._asked_turn.config.on_error
        return on_error == "fallback"

    def _model_failed(
        self,
        failure: LLMFailureException,
        question: AskedQuestion,
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
        has_stand_in = stands_in or question.batch.fallback is not None
        # A server that is away is never stood in for: all later turns would be stand-ins.
        if failure.reason not in FORGIVEN or not has_stand_in:
            raise failure
        site = question.site
        _warn(
            "FALLBACK",
            words=(
                f"Turn {self.turn}, {caller(site)}: no valid answer; another stands in: {failure}"
            ),
            agent=question.player,
            component=site.component,
            turn=self.turn,
            reason=failure.reason,
            detail=failure.detail,
        )
        calls = (failure.call,) if counts and failure.call is not None else ()
        self._stand_in(failure, question, calls)

    def _stand_in(
        self,
        error: LabError,
        question: AskedQuestion,
        calls: tuple[CallRecord, ...] = (),
    ) -> None:
        """Take and record what stands in for an answer."""
        batch = question.batch
        answer = batch.fallback
        if callable(answer):
            answer = batch.value_for("fallback", answer, question.player)
        if batch.fallback is None:
            answer = random_reply(question, question.random("stand-in"))
        # Checked as a rule's answer is: what stands in keeps to the limits too.
        question.decision = as_reply(answer, question, fallback_of)
        self._stand_ins[question.answerer] += 1
        record = answer_by_code(
            question.decision,
            question,
            f"stands in: {error}",
            calls=calls,
        )
        # A stand-in is nobody's conviction, whatever confidence its fields have.
        batch.answers.append(
            replace(
                record,
                status="fallback",
                confidence=None,
            )
        )

    async def _choose(self, work: _ToMeasure) -> None:
        """Measure the probability of each answer once, and decide for each who is asked."""
        first = work.questions[0]
        options = work.options
        choice: Choice[object] | None = None
        calls: tuple[CallRecord, ...] = ()
        if len(options.texts) > 1:
            site = first.site
            if len(work.questions) > 1:
                # Measured for several, the call is of none of them.
                site = replace(site, agent=None)
            try:
                choice = await work.client.choose(
                    work.text,
                    options.texts,
                    site=site,
                )
            except LLMFailureException as failure:
                # The call is the first one's, so that it counts once.
                for question in work.questions:
                    self._model_failed(
                        failure,
                        question,
                        counts=question is first,
                    )
                return
            calls = choice.calls
        reply = first.batch.reply
        for question in work.questions:
            # The only option, where there is but one: then no model is asked.
            value = next(iter(options.texts))
            reasoning = NOTHING_ELSE
            if choice is not None:
                value = choice.decided(options.decide, question.random("draw"))
                reasoning = why_chosen(choice, options, value)
            fields = {options.name: value}
            # Not a model's words: it was asked for a letter, and these say what was measured.
            if "reasoning" in reply.model_fields:
                fields["reasoning"] = reasoning
            question.decision = reply.model_validate(fields)
            # Of several who were asked the same the first has the calls: none counts twice.
            question.batch.answers.append(
                answer_by_code(
                    question.decision,
                    question,
                    reasoning,
                    calls=calls,
                )
            )
            calls = ()


def _close_returned(work: Sequence[_Work]) -> None:
    """Close what functions returned to be awaited and nothing awaits: Python would warn of it."""
    for item in work:
        if isinstance(item, _Returned):
            close_unawaited(item.answer)


def _texts_for_servers(work: Sequence[_Work]) -> list[str]:
    """Return the prompts that servers are sent; no server reads those of people and scripts."""
    texts: list[str] = []
    for item in work:
        # By tuples, since this is asked of each question: a union is made anew each time.
        if isinstance(item, (_ToModel, _ToMeasure)):
            backend = getattr(item.client, "backend", None)
            if not isinstance(backend, (ScriptedBackend, Person)):
                texts.append(item.text)
    return texts


def _measured_together(work: Sequence[_Work]) -> list[_Work]:
    """Return the work with one measurement for all players who are sent the same by one model.

    They have the same probabilities.
    """
    together: list[_Work] = []
    measured: dict[tuple[object, ...], _ToMeasure] = {}
    for item in work:
        if not isinstance(item, _ToMeasure):
            together.append(item)
            continue
        options = item.options
        key = (id(item.client), item.text, options.name, *options.texts.items())
        if key in measured:
            measured[key].questions.extend(item.questions)
        else:
            measured[key] = item
            together.append(item)
    return together


def _check_arguments(batch: Batch, whom: str) -> None:
    """Raise ConfigError for arguments that no question takes.

    Args:
        batch: what all are asked.
        whom: who is asked first, for messages.
    """
    for name in batch.values:
        # A slot of this name would have two values.
        if name in SLOTS_OF_ALL:
            raise ConfigError(
                f"{name!r} has a value in every prompt already ({', '.join(SLOTS_OF_ALL)}); "
                "call yours something else"
            )
    # Checked when it is asked: a misspelt word would count as "raise".
    if batch.on_error is not None and batch.on_error not in get_args(OnError):
        raise ConfigError(
            f"on_error={batch.on_error!r:.40} must be one of {', '.join(get_args(OnError))}"
        )
    if not isinstance(batch.for_people, str) and not callable(batch.for_people):
        raise ConfigError(
            f"for_people={batch.for_people!r:.60} of the question to {whom} must be a text, or a "
            "function of the name that returns one"
        )
    if not isinstance(batch.system, str) or is_file_name(batch.system):
        raise ConfigError(
            f"system={batch.system!r:.60} of the question to {whom} must be the text of the system "
            "message itself; a prompt's file has it below '## System', without system="
        )


def _check_reply(
    reply: object,
    whom: str,
    rationale: Rationale,
) -> None:
    """Raise ConfigError for what is no reply, or has its reasoning elsewhere than the run says.

    Args:
        reply: what is asked for.
        whom: who is asked, for messages.
        rationale: where the run's replies have their reasoning.
    """
    if not (isinstance(reply, type) and issubclass(reply, Decision)):
        raise ConfigError(
            f"{whom} is asked for {reply!r:.60}; ask for a class derived from Reply: "
            "class Gift(Reply): amount: int"
        )
    if rationale == "before":  # as every class has it
        return
    if "reasoning" in reply.model_fields and not issubclass(reply, Reply):
        raise ConfigError(
            f"rationale={rationale!r} does not reach {reply.__name__}, which {whom} is asked for: "
            "its class has a fixed form. Leave rationale= out, or ask for a class derived from "
            "Reply"
        )


def _check_names(names: Sequence[object]) -> None:
    """Raise ConfigError for names of players that are no names, or the same twice."""
    seen: set[str] = set()
    for name in names:
        # A blank name would be that of the whole turn in a note.
        if not isinstance(name, str) or not name.strip():
            raise ConfigError(f"{name!r:.60} is not the name of a player; a name is a text")
        if name in seen:
            raise ConfigError(f"{name!r} is asked twice by one ask.each; name each player once")
        seen.add(name)


def _first_names(names: Sequence[str]) -> str:
    return ", ".join(map(str, names[:3])) or "no player"


def _noting(player: object, columns: Mapping[str, object]) -> str:
    return f"ask.note({brief(player or columns, 80)})"


def _is_kept_by_json(value: object) -> bool:
    """Return True if JSON gives a value back as it is, as far as that is quickly seen."""
    if isinstance(value, str):
        # Beyond ASCII it may hold half a character.
        return type(value) is str and value.isascii()
    if value is None:
        return True
    # NaN is within no bounds, and an integer of any length is too long for a float.
    return type(value) in SCALARS and -1e300 < value < 1e300  # type: ignore[operator]
