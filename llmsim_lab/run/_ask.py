"""Asking players: models, rules and people, all in the same words.

A world's ``turn`` is given an ``Ask``. A question names a player, what the reply must be and a
prompt; who answers it is decided where the run is made. A model's or a person's answer is a call
on the tape. A rule's is computed again in a replay.
"""

from __future__ import annotations

import asyncio
import logging
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
from dataclasses import replace
from functools import partial
from inspect import CORO_CLOSED, CORO_CREATED, getcoroutinestate, isawaitable, signature
from random import Random
from typing import Any, NamedTuple, TypeVar, get_args

from llmsim_lab._util.jsontext import (
    MOST_LEVELS,
    SCALARS,
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
    log_event,
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
from llmsim_lab.llm._choose import Decide
from llmsim_lab.llm._scope import caller, scope
from llmsim_lab.llm.bounds import (
    Limits,
)
from llmsim_lab.llm.calls.recorded import until_cancelled
from llmsim_lab.prompts import Prompt, RenderedPrompt
from llmsim_lab.run._any_run import AnyRun
from llmsim_lab.run._chance import random_reply
from llmsim_lab.run._config import OnError
from llmsim_lab.run._plain_prompts import has_slots, kind_of, plain_prompt
from llmsim_lab.run._prompt_order import prompt_order
from llmsim_lab.run._question import (
    Batch,
    ByModel,
    Question,
    Source,
    answer_by_code,
    as_reply,
    close_unawaited,
    fallback_of,
    options_of,
    rule_of,
)
from llmsim_lab.run._run_prompts import dedented, is_file_name, prompt_for
from llmsim_lab.run._state import COMMON_COLUMNS
from llmsim_lab.run._turn import DECISION_COLUMNS, Answer, Columns
from llmsim_lab.tape.recorder import Outside
from llmsim_lab.types import CallRecord, Decision, Rationale, Reply

ReplyT = TypeVar("ReplyT", bound=Decision)

_warn = partial(log_event, logging.getLogger(__name__), logging.WARNING)

GIVEN = ("name", "state", "run", "turn", "turns")
"""What every prompt may use without being given it."""


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
        self._name = name
        self._owner: asyncio.Task[Any] | None = None
        super().__init__(seed)

    def _check(self) -> None:
        task = _current_task()
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

    def __init__(self, run: AnyRun, state: Any, turn: int) -> None:
        self._run, self._state = run, state
        self.turn = turn
        """The number of the turn being played."""
        self._asked: set[tuple[object, ...]] = set()
        self._rngs: dict[str, _GuardedRandom] = {}
        self._places: dict[tuple[str, tuple[str, str]], tuple[object, int]] = {}
        self._positions: dict[tuple[str, str], int] = {}
        self._answers: list[Answer] = []
        self._stood_in = Counter[str]()
        self._noted: dict[str, Any] = {}
        self._became: dict[tuple[str, str], Columns] = {}
        self._story: list[str] = []
        self._led_to = ""
        self._open: list[tuple[Sequence[str], Coroutine[Any, Any, Any]]] = []
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
        batch = Batch(
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
        batch = Batch(
            reply, prompt, by, tag, limits, decide, fallback, on_error, values, self.turn, system
        )
        return self._asked_of(batch, names)

    def converse(
        self,
        player: str,
        reply: type[ReplyT],
        prompt: Callable[[str], str],
        /,
        *,
        by_model: ByModel[ReplyT],
    ) -> Coroutine[Any, Any, ReplyT]:
        """Ask a player who may take several calls to answer, as with tools; await it.

        For worlds of this package: people, rules and functions are asked as by ``ask(...)``. Who
        has the seat is decided here in any case.

        Args:
            player: its name.
            reply: see ``__call__``.
            prompt: what people are shown and functions are given; a model is not sent it.
            by_model: how a model answers: of the question, and of the client in the player's seat.

        Raises:
            ConfigError: see ``__call__``.
            LLMFailureException: ``by_model`` raised it.
        """
        batch = Batch(reply, prompt, "", "", None, None, None, None, {}, self.turn)
        batch.by_model = by_model
        return self._asked_of(batch, [player], alone=True)

    def outside(
        self,
        what: str,
        key: object,
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
        texts = (player, component, text, led_to)
        has_texts = all(isinstance(it, str) for it in texts)
        if not has_texts or not (text or led_to or columns):
            raise ConfigError(
                f"{_noting(player, columns)} notes nothing: ask.note('Ann', text='...', "
                "accepted=True)"
            )
        if component and not (player and columns):
            raise ConfigError(
                f"component={component!r:.40} says to which decision of a player columns belong: "
                f"ask.note('Ann', component={component!r:.40}, accepted=True)"
            )
        if taken := (DECISION_COLUMNS if player else COMMON_COLUMNS).intersection(columns):
            what = f"ask.note({min(taken)}=...): every frame has a column of that name"
            raise ConfigError(f"{what}; note it under another name")
        if not all(map(_stays, (*columns, *columns.values()))):
            columns = _json_ready(_noting(player, columns), columns)
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
        if left := [
            names for names, asking in self._open if getcoroutinestate(asking) != CORO_CLOSED
        ]:
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
        return {
            "by_code": tuple(self._answers),
            "noted": self._noted,
            "became": self._became,
            "story": tuple(self._story),
            "led_to": self._led_to,
        }

    # --- how it is done ----------------------------------------------------------------------

    def _asked_of(
        self, batch: Batch, names: Sequence[str], *, alone: bool = False
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

    def _name_of(self, batch: Batch, names: Sequence[str]) -> str:
        """Return the name of a prompt without slots: of the second such question, ``gift@2``."""
        kind = kind_of(batch.reply, batch.tag)
        position = 1
        for name in names:
            asked = self._positions.get((str(name), kind), 0) + 1
            self._positions[str(name), kind] = asked
            position = max(position, asked)
        return kind if position == 1 else f"{kind}@{position}"

    async def _all(
        self, batch: Batch, names: Sequence[str], numbers: Sequence[int], alone: bool
    ) -> Any:
        self._begin(batch, names)
        questions = list(map(partial(Question, self, batch), names, numbers))
        awaited: list[Awaitable[object]] = []
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
                close_unawaited(answer)
        self._answers += batch.answers
        return questions[0]._decision if alone else {it.player: it._decision for it in questions}

    def _work_for(
        self, batch: Batch, questions: Sequence[Question], awaited: list[Awaitable[object]]
    ) -> list[_Work]:
        """Return what has to be waited for; what functions answer at once is taken.

        Args:
            batch: what the questions have in common.
            questions: the questions.
            awaited: takes what functions returned to be awaited.
        """
        # Begun once all are known: a prompt that cannot be built would leave the others unawaited.
        work: list[_Work] = []
        measured: dict[tuple[object, ...], list[Question]] = {}
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
            is_person = isinstance(getattr(who, "backend", None), Person)
            if batch.by_model is not None and not is_person:
                work.append(partial(self._conversed, batch.by_model, who, question))
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
            if batch.decide is None or is_person:  # who gives one answer
                work.append(_ToModel(who, question, text))
            else:
                name, texts = options_of(question)
                key = (id(who), text, name, *texts.items())
                if key not in measured:
                    those = measured[key] = []
                    work.append(partial(self._choose, who, text, name, texts, those))
                measured[key].append(question)
        self._tell_of_order(batch, sent)
        return work

    def _tell_of_order(self, batch: Batch, sent: Sequence[str]) -> None:
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

    def _begin(self, batch: Batch, names: Sequence[str]) -> None:
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

    def _prepare(self, batch: Batch, whom: str) -> None:
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

    def _text(self, batch: Batch, player: str) -> Any:
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
        self, batch: Batch, whom: str, prompt: Prompt | str, edited: bool
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

    async def _conversed(
        self, by_model: ByModel[Decision], client: LLMClient, question: Question
    ) -> None:
        """Wait for a model that answers by a conversation."""
        with self._answering(question):
            # The tape has its calls and no answer besides: a replay works it out from them again.
            question._decision = await by_model(question, client)

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

    async def _waited(self, awaited: Awaitable[object], question: Question) -> None:
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

    def _take_answer(self, answer: object, question: Question) -> None:
        """Take an answer; one that no call says by itself is recorded."""
        batch = question._batch
        if batch.fault is not None:
            raise batch.fault
        try:
            decision = as_reply(answer, question, rule_of)
            # Of a player that asks a model by itself, the call says it.
            record = answer_by_code(decision, question) if decision.call is None else None
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
            fault = ConfigError(f"{rule_of(question)} failed: {error_text(error)}")
            self._code_failed(fault, question)
            return
        world = type(self._run).__name__
        raise ConfigError(
            f"{rule_of(question)} failed: {error_text(error)}; repair it, or let a stand-in "
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
        question._decision = decision = as_reply(answer, question, fallback_of)
        self._stood_in[question.by or name] += 1
        record = answer_by_code(decision, question, f"stands in: {error}", calls=calls)
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
            batch.answers.append(answer_by_code(question._decision, question, why, calls=calls))
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


def _first(names: Sequence[str]) -> str:
    return ", ".join(map(str, names[:3])) or "no player"


async def from_outside(
    what: str,
    key: object,
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
        came = work()
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


def _noting(player: object, columns: Mapping[str, object]) -> str:
    return f"ask.note({brief(player or columns, 80)})"


def _stays(value: Any) -> bool:
    """Return True if JSON gives a value back as it is, as far as that is quickly seen."""
    if type(value) is str:
        return value.isascii()
    return value is None or (type(value) in SCALARS and -1e300 < value < 1e300)


def _json_ready(what: str, value: object) -> Any:
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
