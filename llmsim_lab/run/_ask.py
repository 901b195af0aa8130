"""Asking players: models, rules and people, all in the same words.

A world's ``turn`` is given an ``Ask``. A question names a player, what the reply must be and a
prompt; who answers it is decided by whoever makes the run. A model's or a person's answer is a call
on the tape. A rule's is computed again in a replay.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import textwrap
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache, lru_cache, partial
from inspect import isawaitable
from numbers import Integral, Real
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, get_args

from pydantic import ValidationError

from llmsim_lab._util.jsontext import dumps, loads
from llmsim_lab._util.text import clip, closest, faults, log_event, whole, whole_text
from llmsim_lab._util.waiting import gather_all
from llmsim_lab.errors import ConfigError, LLMFailureException, PromptError
from llmsim_lab.llm import LLMClient, Person
from llmsim_lab.llm._chains import FORGIVEN
from llmsim_lab.llm._choose import Decide, numeric, text_of
from llmsim_lab.llm._extract import allowed_words
from llmsim_lab.llm._scope import scope
from llmsim_lab.prompts import Prompt
from llmsim_lab.run._state import COMMON_COLUMNS
from llmsim_lab.run._turn import DECISION_COLUMNS, Answer
from llmsim_lab.types import (
    Attempt,
    CallRecord,
    CallSite,
    ChatReply,
    ChatRequest,
    Decision,
    Reply,
    Status,
    reply_schema,
)

if TYPE_CHECKING:
    from llmsim_lab.run._config import WorldConfig

T = TypeVar("T")
ReplyT = TypeVar("ReplyT", bound=Decision)

Limits = Mapping[str, Any]
"""By field: ``(lowest, highest)``, a list of the values allowed, or a dict of values and words."""
Source = str | Path | Prompt | Callable[[str], str]
"""A prompt as a question names it; a function of the player's name returns the text itself."""

_warn = partial(log_event, logging.getLogger(__name__), logging.WARNING)

_MOST_VALUES = 101
"""In a grid of numbers. Servers enforce a list of values, and bounds of floats they do not."""
_NUMBERS = ("integer", "number")
"""The types that a JSON schema has for numbers."""
_GIVEN = ("name", "state", "run", "turn", "turns")
"""What every prompt may use without being given it."""


class Asking(Protocol):
    """What ``Ask`` needs of the run."""

    @property
    def config(self) -> WorldConfig:
        """Its parameters."""
        ...

    def seat(self, name: str, *, by: str = "", tag: str = "") -> Any:
        """Return who answers."""
        ...

    def prompt_for(self, source: Any, reply: type[Decision]) -> tuple[Prompt | str, bool]:
        """Return the prompt that a question names, and whether it is an edited one."""
        ...


class Question:
    """What a rule is asked.

    Attributes:
        player: the one that is asked; with ``by=`` the one that the question is about.
        reply: the class of the answer.
        state: the state before the turn.
        run: the world's parameters, as ``question.run.factor``.
        turn: the number of the turn that is being played.
        tag: which of several questions of the turn, where the world says.
        by: who answers, where that is not the player.
    """

    __slots__ = ("_allowed", "_ask", "_batch", "_place", "player", "reply", "state", "turn")

    def __init__(
        self, ask: Ask, batch: _Batch, player: str, place: _Place, allowed: _Allowed
    ) -> None:
        self._ask, self._batch, self._place, self._allowed = ask, batch, place, allowed
        self.player = player
        self.reply = batch.reply
        self.state = ask._state
        self.turn = ask.turn

    @property
    def run(self) -> Any:
        """The world's parameters."""
        return self._ask._run.config

    @property
    def tag(self) -> str:
        """Which of several questions of the turn."""
        return self._batch.tag

    @property
    def by(self) -> str:
        """Who answers, where that is not the player."""
        return self._batch.by

    @property
    def values(self) -> Mapping[str, Any]:
        """What the prompt was given besides; of functions of the name, what they return."""
        return {
            name: each(self.player) if callable(each) else each
            for name, each in self._batch.values.items()
        }

    @property
    def limits(self) -> Mapping[str, tuple[float, float] | list[Any]]:
        """What is allowed, by field: ``(lowest, highest)``, or a list of values.

        The question's, or else the field's own.
        """
        chosen = {name: list(values) for name, values in self._allowed.choices.items()}
        return {**_own_limits(self.reply), **self._allowed.ranges, **chosen}

    @property
    def rng(self) -> Random:
        """Random numbers of this player's own, the same in a replay."""
        return self._ask._rng_of(self._batch, self.player, self._place, "rule")

    @property
    def prompt(self) -> str:
        """The question as a model would be sent it."""
        return self._ask._rendered(self._batch, self.player)

    async def put_to(self, client: LLMClient, prompt: str = "") -> Any:
        """Ask a model, as the run asks its own; for a player who prepares the prompt first.

        Args:
            client: the model.
            prompt: the whole prompt, instead of the question's own.

        Raises:
            LLMFailureException: the model failed to answer.
        """
        text = prompt or self.prompt
        return await self._ask._put(client, self._batch, self.player, self._allowed, text)

    @property
    def site(self) -> CallSite:
        """Where in the run it is asked."""
        return self._ask._site(self._batch, self.player)

    def __repr__(self) -> str:
        return f"<Question to {self.player}: {self.reply.__name__}, turn {self.turn}>"


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
        try:
            task = asyncio.current_task()
        except RuntimeError as error:
            raise ConfigError(
                f"{self._name} is drawn from on another thread; draw in the turn, and hand over "
                "what was drawn"
            ) from error
        if self._owner is None:
            self._owner = task
        elif self._owner is not task:
            raise ConfigError(
                f"{self._name} is drawn from by two tasks, which would draw in another order in a "
                "replay; draw before the await, or give each player its own: ask.rng_for(name)"
            )

    def random(self) -> float:
        self._check()
        return super().random()

    def getrandbits(self, k: int, /) -> int:
        self._check()
        return super().getrandbits(k)


class _NoRandom(_GuardedRandom):
    """Takes the place of a player's random numbers where its questions have no order."""

    def _check(self) -> None:
        raise ConfigError(
            f"{self._name} is asked by two tasks and answers by chance: a replay may ask in "
            "another order; tell the questions apart: ask(..., tag='second')"
        )


class _Place(NamedTuple):
    """Which of a player's questions with one tag, from 1; ``elsewhere``: another task asks it."""

    number: int
    elsewhere: bool


@dataclass(slots=True)
class _Batch:
    """What the questions of one ``each`` have in common, and what is made of it once for all."""

    reply: type[Decision]
    prompt: Source
    by: str
    tag: str
    limits: Limits | Callable[[str], Limits] | None
    step: Mapping[str, float] | None
    decide: Decide | None
    otherwise: Any
    values: Mapping[str, Any]
    alone: bool = True
    filled: Callable[[], Callable[[str], str]] = field(init=False)
    bounds: dict[Any, _Allowed] = field(default_factory=dict)

    @property
    def component(self) -> str:
        return self.by or self.tag or "player"


_Outcome = tuple[Any, Answer | None]
"""A decision, and the record of it where no call says it by itself."""


class Ask:
    """How a turn asks its players; ``turn`` gets one.

    ``await ask("Ann", Gift, "...")`` asks one and returns a ``Gift``; ``await ask.each(names, Gift,
    "...")`` asks all of them at once and returns a dict.

    In a prompt, ``name`` is the player, ``state`` the state before the turn, ``run`` the world's
    parameters, ``turn`` the number of the turn being played and ``turns`` how many the run's
    configuration names; other values are given by keyword.
    """

    def __init__(self, run: Asking, state: Any, turn: int) -> None:
        self._run = run
        self._state = state
        self.turn = turn
        """The number of the turn being played."""
        self._asked: set[tuple[Any, ...]] = set()
        self._rngs: dict[str, _GuardedRandom] = {}
        self._places: dict[tuple[str, str, str], tuple[object, int]] = {}
        self._answers: list[Answer] = []
        self._noted: dict[str, Any] = {}
        self._became: dict[str, dict[str, Any]] = {}
        self._story: list[str] = []
        self._open: list[tuple[str, Coroutine[Any, Any, Any]]] = []
        self._under_way: list[str] = []
        self._over = False

    def __call__(
        self,
        player: str,
        reply: type[ReplyT],
        prompt: Source,
        /,
        *,
        by: str = "",
        tag: str = "",
        limits: Limits | None = None,
        step: Mapping[str, float] | None = None,
        decide: Decide | None = None,
        otherwise: Any = None,
        **values: Any,
    ) -> Coroutine[Any, Any, ReplyT]:
        """Ask one player; await it.

        Args:
            player: its name.
            reply: what it is asked for, a class derived from ``Reply``.
            prompt: a text with slots such as ``{{ name }}``; a ``Path``, or one word that ends in
                ``.md``, for a file beside the world's own; a ``Prompt``; or a function of the name,
                whose text is sent as it is and is no template.
            by: who answers, where that is not the player: one ``engine`` that judges what each
                player did. The player is then the one that it answers about.
            tag: what kind of question it is: tells apart questions of one turn that are otherwise
                equal, and ``players={tag: ...}`` answers all that have it.
            limits: narrower bounds of some fields: ``{"amount": (0, 5)}``; or the values allowed:
                ``{"who": ["Ann", "Bob"]}``, with ``decide`` also in words: ``{"move": {25: "raise
                by 25 points"}}``.
            step: the grid of some number fields within their bounds: ``{"rate": 0.25}``.
            decide: asks a model for the probability of each answer, where the reply has one field
                of its own with few values, and takes a draw (``sample``), the likeliest (``mode``)
                or the number nearest to the mean (``expected``). None asks for one answer, and
                rules give one in any case.
            otherwise: what stands in, with the status ``fallback``, where the answer stays invalid
                or does not come in time: a reply, its fields, or a function of the name. Without it
                the turn fails; so it does in any case where the model cannot be reached.
            values: of the prompt's other slots; a function is called with the name. Rules find them
                in ``question.values``; where the prompt is a function, they are for rules alone.

        Raises:
            ConfigError: nobody answers for this player, the limits leave nothing, the same was
                asked twice, or a rule's answer is not allowed.
            PromptError: a slot has no value, or the other way round.
            LLMFailureException: a model failed to answer.
        """
        batch = _Batch(reply, prompt, by, tag, limits, step, decide, otherwise, values)
        places = self._placed(batch, [player])

        async def asking() -> ReplyT:
            found: list[ReplyT] = await self._all(batch, [player], places)
            return found[0]

        return self._opened(asking(), str(player))

    def each(
        self,
        players: Iterable[str],
        reply: type[ReplyT],
        prompt: Source,
        /,
        *,
        by: str = "",
        tag: str = "",
        limits: Limits | Callable[[str], Limits] | None = None,
        step: Mapping[str, float] | None = None,
        decide: Decide | None = None,
        otherwise: Any = None,
        **values: Any,
    ) -> Coroutine[Any, Any, dict[str, ReplyT]]:
        """Ask several players at once; await their replies by name, in the order given.

        Args:
            players: their names; of a dict, its keys.
            reply: see ``__call__``.
            prompt: see ``__call__``.
            by: see ``__call__``.
            tag: see ``__call__``.
            limits: see ``__call__``, or a function of the name that returns them.
            step: see ``__call__``.
            decide: see ``__call__``; the chances are measured once for all who are asked the same.
            otherwise: see ``__call__``.
            values: see ``__call__``; those that are no functions are filled in once for all.

        Raises:
            ConfigError: see ``__call__``; or a player is named twice.
        """
        names = [players] if isinstance(players, str) else list(players)
        batch = _Batch(reply, prompt, by, tag, limits, step, decide, otherwise, values, alone=False)
        # At once, while the task that puts the questions is the current one.
        places = self._placed(batch, names)

        async def asking() -> dict[str, ReplyT]:
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise ConfigError(
                    f"{twice!r} is asked twice by one ask.each; name each player once"
                )
            return dict(zip(names, await self._all(batch, names, places), strict=True))

        return self._opened(asking(), ", ".join(map(str, names[:3])) or "no player")

    def outside(
        self,
        what: str,
        key: Any,
        work: Callable[[], Awaitable[Any]],
        /,
        *,
        once: bool = False,
        otherwise: Any = None,
    ) -> Coroutine[Any, Any, Any]:
        """Return what came from outside: a tool's answer, a file, a clock; await it.

        It is recorded like a reply. A replay takes it from the tape and does nothing outside; so
        does a run that is resumed in the middle of the turn.

        Args:
            what: what kind of thing, such as ``weather``.
            key: which one, JSON-ready: with the kind, it tells what is asked.
            work: does it, and returns something JSON-ready: ``lambda: fetch(city)``.
            once: whether it must never be done twice, as a deletion: broken off halfway, or failed,
                it counts as done.
            otherwise: what is returned where it was broken off or failed.

        Raises:
            ConfigError: the turn is over, or the key or the result is not ready for JSON.
            TapeMiss: a replay has no such thing.
        """

        async def coming() -> Any:
            if self._over:
                raise ConfigError(f"turn {self.turn} is over; await {what} in the turn that asks")
            self._under_way.append(what)
            try:
                return await from_outside(what, key, work, once=once, otherwise=otherwise)
            finally:
                self._under_way.remove(what)

        return self._opened(coming(), what)

    def note(self, player: str = "", /, *, text: str = "", **columns: Any) -> None:
        """Record what became of a player's decisions, or of the turn.

        Args:
            player: whose decisions; without a name, the turn's.
            text: a line of the turn's story.
            columns: by name: of the player's rows in ``decisions()``, or of the turn's in
                ``to_frame()``. Numbers, texts, truth values, None, and lists and dicts of them.

        Raises:
            ConfigError: the turn is over, nothing is noted, every frame has a column of that name,
                or a value is not ready for JSON.
        """
        called = f"ask.note({clip(repr(player or columns), 80)})"
        if self._over:
            raise ConfigError(f"{called}: turn {self.turn} is over")
        if not isinstance(player, str) or not isinstance(text, str) or not (text or columns):
            raise ConfigError(
                f"{called} notes nothing: ask.note(text='a line of the story'), ask.note(rain=3), "
                "or with a player's name first, ask.note('Ann', accepted=True)"
            )
        if taken := (DECISION_COLUMNS if player else COMMON_COLUMNS) & columns.keys():
            raise ConfigError(
                f"ask.note({min(taken)}=...): every frame has a column of that name; note it under "
                "another name"
            )
        try:
            kept = whole(loads(dumps(columns))) if columns else {}
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{called}: {error}") from error
        if text:
            self._story.append(whole_text(text))
        (self._became.setdefault(player, {}) if player else self._noted).update(kept)

    @property
    def rng(self) -> Random:
        """Random numbers of this turn, which follow from the run's seed; for one task only."""
        return self._rng("ask.rng", "")

    def rng_for(self, name: str) -> Random:
        """Return random numbers of one player in this turn, which follow from the run's seed.

        The same generator each time: it continues where it was left.
        """
        return self._rng(f"ask.rng_for({name!r})", name)

    def _rng(self, called: str, name: str) -> Random:
        if called not in self._rngs:
            # From the turn and the name alone, so that neither the order in which players are
            # asked nor a resume after this turn changes what is drawn.
            seed = f"{self._run.config.seed}/{self.turn}/{name}"
            self._rngs[called] = _GuardedRandom(seed, called)
        return self._rngs[called]

    # --- the turn's end ----------------------------------------------------------------------

    def forgotten(self) -> str:
        """Return the player that was asked without waiting for the answer; empty if none was."""
        # A question begins when it is awaited, as everywhere in Python: one without an await would
        # never be asked, without a word.
        left = [
            (whom, asking)
            for whom, asking in self._open
            if inspect.getcoroutinestate(asking) == inspect.CORO_CREATED
        ]
        for _, asking in left:
            asking.close()  # else Python warns of it as well
        self._open.clear()
        return left[0][0] if left else ""

    def close(self) -> dict[str, Any]:
        """End the turn; return what its record has of it, in an order that any replay has too.

        Raises:
            ConfigError: something from outside is still under way.
        """
        self._over = True
        if self._under_way:
            raise ConfigError(
                f"turn {self.turn} is over, and {self._under_way[0]} from outside is still under "
                "way: await every ask.outside in the turn that asks"
            )
        # Rules that await something finish in any order.
        self._answers.sort(key=lambda it: (it.component, it.player, repr(it.given)))
        return {
            "by_code": tuple(self._answers),
            "noted": self._noted,
            "became": self._became,
            "story": tuple(self._story),
        }

    # --- how it is done ----------------------------------------------------------------------

    def _opened(self, asking: Coroutine[Any, Any, T], whom: str) -> Coroutine[Any, Any, T]:
        self._open.append((whom, asking))
        return asking

    def _placed(self, batch: _Batch, names: Sequence[Any]) -> list[_Place]:
        """Return which of each player's questions of a kind is being asked, and whether in order.

        Those that one task asks come in the order of its code, also in a replay.
        """
        try:
            task = asyncio.current_task()
        except RuntimeError:  # on a thread without a loop
            task = None
        places, known = [], self._places
        for name in names:
            key = (str(name), str(batch.tag), str(batch.by))
            first, asked = known.get(key, (task, 0))
            if first is task:
                known[key] = (task, asked + 1)
                places.append(_Place(asked + 1, elsewhere=False))
            else:
                places.append(_Place(0, elsewhere=True))
        return places

    async def _all(self, batch: _Batch, names: Sequence[str], places: Sequence[_Place]) -> Any:
        """Ask all, and return their decisions in order."""
        self._check(batch, names)
        if not names:
            return []
        batch.filled = cache(self._prepared(batch, names[0]))
        found: list[Any] = [None] * len(names)
        # Begun once all are known: a prompt that cannot be built would leave the others unawaited.
        work: list[Callable[[], Coroutine[Any, Any, Sequence[_Outcome]]]] = []
        those: list[list[int]] = []
        measured: dict[Any, list[int]] = {}
        answers: list[Answer | None] = [None] * len(names)
        for at, (name, place) in enumerate(zip(names, places, strict=True)):
            who = self._run.seat(name, by=batch.by, tag=batch.tag)
            allowed = self._bounds(batch, name)
            # Not by its class: a client that wraps another would be a player who answers by chance.
            if not hasattr(who, "call_with_retry"):
                question = Question(self, batch, name, place, allowed)
                answer = who(question) if callable(who) else self._by_chance(question)
                if isawaitable(answer):
                    work.append(partial(self._waited, answer, question))
                    those.append([at])
                else:
                    found[at], answers[at] = self._settled(answer, question)
                continue
            text = self._rendered(batch, name)
            same = (name, batch.tag, batch.by, batch.reply, text)
            if same in self._asked:
                raise ConfigError(
                    f"{name} is asked the same {batch.reply.__name__} twice in turn {self.turn}, "
                    "so that a replay could not tell the answers apart; number them: ask(..., "
                    "tag='second')"
                )
            self._asked.add(same)  # before the first await, so that equal questions at once meet it
            if batch.decide is None:
                work.append(partial(self._called, who, batch, name, allowed, text))
                those.append([at])
            else:
                field_name, texts = _options(who, batch, name, allowed)
                measured.setdefault((id(who), text, field_name, *texts.items()), []).append(at)
        for (_, text, field_name, *options), ats in measured.items():
            who = self._run.seat(names[ats[0]], by=batch.by, tag=batch.tag)
            asked = [(names[at], places[at]) for at in ats]
            work.append(partial(self._chosen, who, batch, text, field_name, dict(options), asked))
            those.append(ats)
        begun = [begin() for begin in work]
        done = await gather_all(begun) if len(begun) > 1 else [await one for one in begun]
        for ats, outcomes in zip(those, done, strict=True):
            for at, (decision, record) in zip(ats, outcomes, strict=True):
                found[at], answers[at] = decision, record
        self._answers += [answer for answer in answers if answer is not None]
        return found

    def _check(self, batch: _Batch, names: Sequence[Any]) -> None:
        whom = names[0] if names else "nobody"
        if self._over:
            raise ConfigError(
                f"turn {self.turn} is over, and {whom} is asked in it: await every question in the "
                "turn that asks it"
            )
        for name in names:
            if not isinstance(name, str) or not name.strip():
                raise ConfigError(f"{name!r:.60} is not the name of a player; a name is a text")
        reply = batch.reply
        if not (isinstance(reply, type) and issubclass(reply, Decision)):
            raise ConfigError(
                f"{whom} is asked for {reply!r:.60}; ask for a class derived from Reply: "
                "class Gift(Reply): amount: int"
            )
        for key in ("tag", "by"):
            if not isinstance(value := getattr(batch, key), str):
                raise ConfigError(f"{key}={value!r:.40} must be a text")
        if taken := [name for name in batch.values if name in _GIVEN]:
            raise ConfigError(
                f"{taken[0]!r} has a value in every prompt already ({', '.join(_GIVEN)}); call "
                "yours something else"
            )
        made = {"prompt": batch.prompt, "limits": batch.limits, "otherwise": batch.otherwise}
        for key, value in {**batch.values, **made}.items():
            if callable(value):
                _check_takes_a_name(key, value)

    def _bounds(self, batch: _Batch, name: str) -> _Allowed:
        limits = batch.limits(name) if callable(batch.limits) else batch.limits
        if not limits and not batch.step:
            return _ALL
        if not isinstance(limits, Mapping):
            return _allowed(name, batch.reply, limits, batch.step)
        try:  # the values of the same kind, since 1, 1.0 and True are equal
            key = tuple([(it, type(given), *map(_typed, given)) for it, given in limits.items()])
            known = batch.bounds.get(key)
        except TypeError:  # values that have no hash, or limits that are wrong
            return _allowed(name, batch.reply, limits, batch.step)
        if known is None:
            known = batch.bounds[key] = _allowed(name, batch.reply, limits, batch.step)
        return known

    def _rendered(self, batch: _Batch, name: str) -> str:
        text = batch.filled()(name)
        if not isinstance(text, str):
            raise ConfigError(
                f"the prompt to {name} is {text!r:.60}; a function of the name returns the text: "
                "self.prompt(...).render(...)"
            )
        return text

    def _prepared(self, batch: _Batch, first: str) -> Callable[[], Callable[[str], str]]:
        """Return what makes what fills the prompt for a player, once it is needed for one.

        A rule needs none; yet what is wrong with the prompt is said to it too, and a study finds
        the prompts of a world by a turn of chance.
        """
        source, values = batch.prompt, batch.values
        if callable(source):
            function = source
            return lambda: function
        prompt, edited = self._run.prompt_for(source, batch.reply)
        if isinstance(prompt, str):
            if values:
                raise ConfigError(
                    f"the prompt to {first} has no slot for {', '.join(values)}; write "
                    f"{{{{ {next(iter(values))} }}}} where the value belongs"
                )
            text = prompt
            return lambda: lambda _: text
        config = self._run.config
        known = {
            "name": lambda name: name,
            "state": self._state,
            "run": config,
            "turn": self.turn,
            "turns": config.turns,
            **values,
        }
        for slot in prompt.slots:
            if slot not in known:
                raise PromptError(
                    f"the prompt to {first} has the slot {{{{ {slot} }}}}, which nothing fills"
                    f"{closest(slot, known)}; it may use {', '.join(known)}, and what it is given: "
                    f"ask(..., {slot}=...)"
                )
        wanted = {slot: known[slot] for slot in prompt.slots}
        if unused := [name for name in values if name not in wanted and not edited]:
            raise PromptError(
                f"the prompt to {first} has no slot for {', '.join(unused)}; write "
                f"{{{{ {unused[0]} }}}} where the value belongs"
            )
        own = {slot: each for slot, each in wanted.items() if callable(each)}
        shared = {slot: value for slot, value in wanted.items() if slot not in own}

        def made() -> Callable[[str], str]:
            render = partial(prompt.render, **shared) if batch.alone else prompt.sharing(shared)
            return lambda name: render(**{slot: each(name) for slot, each in own.items()})

        return made

    # --- who answers -------------------------------------------------------------------------

    async def _called(
        self, client: LLMClient, batch: _Batch, name: str, allowed: _Allowed, text: str
    ) -> Sequence[_Outcome]:
        try:
            return [(await self._put(client, batch, name, allowed, text), None)]
        except LLMFailureException as failure:
            return [self._stand_in(failure, batch, name)]

    async def _put(
        self, client: LLMClient, batch: _Batch, name: str, allowed: _Allowed, text: str
    ) -> Any:
        """Ask a model and return its decision."""
        limited = allowed.choices or allowed.ranges
        return await client.call_with_retry(
            prompt=text,
            response_model=batch.reply,
            choices=allowed.choices or None,
            limits=allowed.ranges or None,
            check=allowed.complaint if limited else None,
            site=self._site(batch, name),
        )

    def _site(self, batch: _Batch, name: str) -> CallSite:
        return CallSite(component=batch.component, agent=name, turn=self.turn)

    def _stand_in(self, failure: LLMFailureException, batch: _Batch, name: str) -> _Outcome:
        """Return what stands in for an answer; raise where nothing may, or no model is there."""
        if batch.otherwise is None or failure.reason not in FORGIVEN:
            raise failure
        otherwise = batch.otherwise
        given = otherwise(name) if callable(otherwise) else otherwise
        decision = _as_reply(given, f"otherwise= of {name}", batch.reply)
        if complaint := self._bounds(batch, name).complaint(decision):
            raise ConfigError(f"otherwise= of {name}: {complaint}") from failure
        whom = name if batch.component == "player" else f"{batch.component} of {name}"
        _warn(
            "FALLBACK",
            words=f"Turn {self.turn}, {whom}: no valid answer, so another stands in: {failure}",
            agent=name,
            component=batch.component,
            turn=self.turn,
            reason=failure.reason,
            detail=failure.detail,
        )
        answer = self._said(decision, batch, name, why=f"stands in: {failure}", status="fallback")
        calls = (failure.call,) if failure.call is not None else ()
        return decision, replace(answer, calls=calls, sure=None)

    def _by_chance(self, question: Question) -> Any:
        return _random_reply(question.reply, question._allowed, question.rng)

    async def _waited(self, answer: Awaitable[Any], question: Question) -> Sequence[_Outcome]:
        try:
            return [self._settled(await answer, question)]
        except LLMFailureException as failure:  # of a player that asks a model by itself
            return [self._stand_in(failure, question._batch, question.player)]

    def _settled(self, answer: Any, question: Question) -> _Outcome:
        player, reply, allowed = question.player, question.reply, question._allowed
        whose = f"the rule of {question.by}, about {player}," if question.by else ""
        whose = whose or f"the rule of {player}"
        decision = _as_reply(answer, whose, reply)
        if complaint := allowed.complaint(decision):
            raise ConfigError(
                f"{whose} answered {reply.__name__}, {complaint}; question.limits has "
                "what is allowed"
            )
        if decision.call is not None:  # of a player that asks a model by itself
            return decision, None
        return decision, self._said(decision, question._batch, player)

    async def _chosen(
        self,
        client: LLMClient,
        batch: _Batch,
        prompt: str,
        field_name: str,
        texts: dict[Any, str],
        asked: Sequence[tuple[str, _Place]],
    ) -> Sequence[_Outcome]:
        """Measure the probability of each answer once, and decide for each who is asked."""
        how, choice = batch.decide, None
        calls: tuple[CallRecord, ...] = ()
        assert how is not None
        if len(texts) > 1:
            agent = asked[0][0] if len(asked) == 1 else None
            site = CallSite(component=batch.component, agent=agent, turn=self.turn)
            try:
                choice = await client.choose(prompt, texts, site=site)
            except LLMFailureException as failure:
                stand_ins = [self._stand_in(failure, batch, name) for name, _ in asked]
                # The call is the first one's: none counts twice.
                rest = [(made, it and replace(it, calls=())) for made, it in stand_ins[1:]]
                return [stand_ins[0], *rest]
            calls = choice.calls
        found: list[_Outcome] = []
        for name, place in asked:
            [value, *_], why = texts, "there was nothing else to choose"
            if choice is not None:
                value = choice.decided(how, self._rng_of(batch, name, place, "draw"))
                mean = (
                    f", nearest to the mean {choice.expectation:.4g}" if how == "expected" else ""
                )
                why = (
                    f"{how}: {field_name} {texts[value]} has {choice.probabilities[value]:.1%}"
                    f"{mean}; {choice.mass:.1%} of all answers are options"
                )
            fields = {field_name: value} | ({"reasoning": why} if _reasons(batch.reply) else {})
            decision = batch.reply.model_validate(fields)
            # Of several who were asked the same the first has the calls: none counts twice.
            answer = replace(self._said(decision, batch, name, why=why), calls=calls)
            calls = ()
            found.append((decision, answer))
        return found

    def _rng_of(self, batch: _Batch, player: str, place: _Place, what: str) -> Random:
        """Return the random numbers of one question, for its rule or its draw.

        A generator for each: each may be answered in a task of its own, and a generator serves one
        task only.
        """
        kind = batch.tag or batch.by
        name = f"{player}, {kind}" if kind else player
        if place.number > 1:
            name = f"{name}, question {place.number}"
        if place.elsewhere:
            return _NoRandom("", player)
        return self._rng(f"the random numbers of {name}'s {what}", f"{what} of {name}")

    def _said(
        self, decision: Any, batch: _Batch, player: str, *, why: str = "", status: Status = "ok"
    ) -> Answer:
        """Return the record of a decision that no call says by itself."""
        return Answer(
            player=player,
            component=batch.component,
            status=status,
            why=why or getattr(decision, "reasoning", ""),
            sure=getattr(decision, "confidence", None),
            given=decision.model_dump(mode="json"),
        )


class Foresight(Ask):
    """Asks as far as the turn's first questions, and puts them to no player.

    Attributes:
        requests: those that people would be asked, with who asks them.
    """

    def __init__(self, run: Asking, state: Any, turn: int) -> None:
        super().__init__(run, state, turn)
        self.requests: list[tuple[Person, ChatRequest]] = []

    async def _all(self, batch: _Batch, names: Sequence[str], places: Sequence[_Place]) -> Any:
        self._check(batch, names)
        batch.filled = cache(self._prepared(batch, names[0]))
        for name in names:
            who = self._run.seat(name, by=batch.by, tag=batch.tag)
            person = getattr(who, "backend", None)
            if isinstance(person, Person):
                allowed, text = self._bounds(batch, name), self._rendered(batch, name)
                narrowed = (allowed.choices or None, allowed.ranges or None)
                site = self._site(batch, name)
                request = who.request_of(text, batch.reply, *narrowed, site=site)
                self.requests.append((person, request))
        raise _ForeseenError

    def outside(self, what: str, *_: Any, **__: Any) -> Any:
        """Do nothing outside: the turn is not played."""
        raise _ForeseenError


class _ForeseenError(Exception):
    """The turn's first questions are known."""


def _typed(value: Any) -> tuple[type, Any]:
    return type(value), value


def _reasons(reply: type[Decision]) -> bool:
    return "reasoning" in reply.model_fields


def _options(
    client: LLMClient, batch: _Batch, player: str, allowed: _Allowed
) -> tuple[str, dict[Any, str]]:
    """Return the field that is to be decided by probabilities, and its values with their texts.

    Raises:
        ConfigError: that cannot be done.
    """
    how, reply = batch.decide, batch.reply
    if how not in get_args(Decide):
        raise ConfigError(
            f"decide={how!r:.40} of {player} must be one of {', '.join(get_args(Decide))}"
        )
    if isinstance(client.backend, Person):
        raise ConfigError(
            f"{player} is a person, who gives one answer and no probabilities; leave out decide"
        )
    field_name, texts = _one_field(player, reply, allowed)
    if how == "expected" and not numeric(list(texts)):
        raise ConfigError(
            f"decide='expected' of {player} needs numbers, and {reply.__name__}.{field_name} has "
            f"{clip(', '.join(texts.values()), 80)}; take 'sample' or 'mode'"
        )
    return field_name, texts


def _check_takes_a_name(key: str, function: Callable[..., Any]) -> None:
    if inspect.iscoroutinefunction(function):
        raise ConfigError(
            f"{key}={function!r:.60} is async, and a question does not wait for it; work it out "
            f"before the question, and give what came: {key}=lambda name: found[name]"
        )
    try:
        inspect.signature(function).bind("Ann")
    except TypeError as error:
        raise ConfigError(
            f"{key}={function!r:.60} cannot be called with a player's name ({error}); ask.each "
            f"calls it for each: {key}=lambda name: ..."
        ) from error
    except ValueError:  # a function of C's, which does not say what it takes
        return


def _as_reply(answer: Any, whose: str, reply: type[ReplyT]) -> ReplyT:
    """Return an answer that code gave as the reply that was asked for."""
    if isinstance(answer, reply):
        return answer
    fields = reply.model_fields
    own = [
        name for name, it in fields.items() if name not in Reply.model_fields or it.is_required()
    ]
    form = f"return {reply.__name__}({', '.join(f'{name}=...' for name in own)})"
    if answer is None:
        raise ConfigError(f"{whose} returned None; {form}")
    if not isinstance(answer, Mapping) and len(own) == 1:
        answer = {own[0]: answer}  # a number alone will do where only one is asked for
    if isinstance(answer, Mapping) and (unknown := [it for it in answer if it not in fields]):
        raise ConfigError(
            f"{whose} answered {unknown[0]!r}{closest(str(unknown[0]), fields)}, "
            f"which a {reply.__name__} has no field for; {form}"
        )
    try:
        return reply.model_validate(answer)
    except ValidationError as error:
        raise ConfigError(f"{whose} answered {faults(error)}; {form}") from error


async def from_outside(
    what: str,
    key: Any,
    work: Callable[[], Awaitable[Any]],
    *,
    once: bool = False,
    otherwise: Any = None,
) -> Any:
    """Do what ``Ask.outside`` does, for the run that is being played, if there is one.

    For what takes part in a turn and is handed no ``Ask``, such as an executor of tools.
    """
    recorder: Any = scope().recorder
    try:
        dumps(key)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"the key of {what}, {key!r:.80}, is not ready for JSON: {error}"
        ) from error

    async def done() -> Any:
        came: Any = work()
        return await came if isawaitable(came) else came

    if recorder is None:
        return _json_ready(what, await done())
    found = recorder.find_outside(what, key)
    if found.is_done:
        return otherwise if found.stopped else found.result
    record = partial(recorder.outside, what, key, nth=found.nth)
    if once:
        record(once=True)
    watch, came = scope().watch, None
    waiting = ChatRequest(model=what, messages=(), site=CallSite(component=what))
    if watch is not None:
        watch.began(waiting)
    try:
        result = await done()
        came = Attempt(request=waiting, reply=ChatReply(text=""), seconds=0.0)
    except BaseException:
        if once:
            record(once=True, stopped=True)
        raise
    finally:
        if watch is not None:
            watch.ended(waiting, came)
    result = _json_ready(what, result)  # as a replay will have it
    record(result=result, **({"once": True} if once else {}))
    return result


def _json_ready(what: str, result: Any) -> Any:
    try:
        return loads(dumps(result))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"what {what} gave is not ready for JSON: {error}") from error


# --- what is allowed -----------------------------------------------------------------------------


class _Allowed(NamedTuple):
    """What of some fields is allowed.

    Attributes:
        choices: the only values, for the schema.
        ranges: the lowest and highest number.
        wording: what each value is called where it is chosen by probabilities.
    """

    choices: dict[str, tuple[Any, ...]]
    ranges: dict[str, tuple[float, float]]
    wording: dict[str, Mapping[Any, str]] = {}  # noqa: RUF012 - never changed

    @property
    def words(self) -> Mapping[str, str]:
        """What each field must be."""
        return allowed_words(self.choices, self.ranges)

    def complaint(self, decision: Any) -> str | None:
        """Return what is wrong with a reply's content, for whoever gave it; None if nothing is."""
        for name, (lowest, highest) in self.ranges.items():
            value = getattr(decision, name)
            if value is None and name == "confidence":
                continue  # a rule need not give its confidence
            if not lowest <= value <= highest:
                return f"{name} must be {self.words[name]}, and it is {value:g}"
        for name, values in self.choices.items():
            value = _plain(getattr(decision, name))
            if value is None and name == "confidence":
                continue
            # A model writes 0.1 + 0.2 as 0.3, which is not the float that a grid was computed to.
            near = isinstance(value, int | float) and any(
                isinstance(allowed, int | float) and math.isclose(value, allowed, abs_tol=1e-9)
                for allowed in values
            )
            if not near and value not in values:
                return f"{name} must be {self.words[name]}, and it is {value!s:.60}"
        return None


_ALL = _Allowed({}, {})

# Both are kept, since a schema takes much longer to make than an answer to validate.
_schema_of = lru_cache(maxsize=1024)(reply_schema)


def _one_field(player: str, reply: type[Decision], allowed: _Allowed) -> tuple[str, dict[Any, str]]:
    """Return the one field that a reply has of its own, and its values, each with its text.

    Raises:
        ConfigError: there are more fields, or the values cannot be listed.
    """
    fields = [name for name in reply.model_fields if name not in Reply.model_fields]
    if len(fields) != 1:
        raise ConfigError(
            f"decide needs one thing to choose, and {reply.__name__} of {player} has "
            f"{', '.join(fields) or 'nothing'}; ask for each in a reply of its own"
        )
    [name] = fields
    whole = _schema_of(reply)
    part = whole["properties"][name]
    if "$ref" in part:
        part = whole["$defs"][part["$ref"].rpartition("/")[2]]
    values = list(allowed.choices.get(name, part.get("enum", ())))
    if part.get("type") == "boolean":
        return name, {True: "yes", False: "no"}
    if not values and part.get("type") == "integer":
        lowest, highest = allowed.ranges.get(name) or _own_range(part)
        if highest - lowest < _MOST_VALUES:
            values = list(range(int(lowest), int(highest) + 1))
    if not values:
        raise ConfigError(
            f"decide needs the values of {reply.__name__}.{name} for {player}, at most "
            f"{_MOST_VALUES}: annotate it as Literal or an enum, give bounds of whole numbers, or "
            f"ask(..., limits={{{name!r}: (lowest, highest)}}, step={{{name!r}: 0.25}})"
        )
    words = allowed.wording.get(name, {})
    return name, {value: words[value] if value in words else text_of(value) for value in values}


@lru_cache(maxsize=1024)
def _own_limits(reply: type[Decision]) -> Mapping[str, tuple[float, float] | list[Any]]:
    """Return what a reply's fields allow by themselves, as far as they say."""
    found: dict[str, tuple[float, float] | list[Any]] = {}
    for name, schema in _schema_of(reply).get("properties", {}).items():
        if name in Reply.model_fields:
            continue
        if "enum" in schema:
            found[name] = list(schema["enum"])
        elif schema.get("type") in _NUMBERS:
            lowest, highest = _own_range(schema)
            if not (math.isinf(lowest) or math.isinf(highest)):
                found[name] = (lowest, highest)
    return found


def _allowed(
    player: str, reply: type[Decision], limits: Limits | None, step: Mapping[str, float] | None
) -> _Allowed:
    """Return what is allowed: a reply's own bounds narrowed by a question's."""
    limits, step = limits or {}, step or {}
    if not limits and not step:
        return _Allowed({}, {})
    fields = _schema_of(reply).get("properties", {})
    choices: dict[str, tuple[Any, ...]] = {}
    ranges: dict[str, tuple[float, float]] = {}
    wording = {name: it for name, it in limits.items() if isinstance(it, Mapping)}
    for name in {**limits, **step}:
        if name not in fields:
            raise ConfigError(
                f"limits name {name!r}{closest(name, fields)}, which {reply.__name__} lacks; its "
                f"fields are {', '.join(fields)}"
            )
        schema = fields[name]
        given, grid = limits.get(name), step.get(name)
        is_number, whole = schema.get("type") in _NUMBERS, schema.get("type") == "integer"
        if given is not None and not _is_range(given):
            choices[name] = _listed(name, player, schema, given)
        elif given is not None and is_number and "enum" in schema:
            lowest, highest = given
            within = [value for value in schema["enum"] if lowest <= value <= highest]
            choices[name] = _listed(name, player, schema, within)
        elif not is_number:
            raise ConfigError(
                f"limits of {name}: it is not a number; give the values allowed, as a list"
            )
        else:
            lowest, highest = _range(player, name, schema, given, whole=whole)
            if grid is None:
                ranges[name] = (lowest, highest)
            else:
                choices[name] = _grid(name, lowest, highest, grid, whole=whole)
    return _Allowed(choices, ranges, wording)


def _listed(name: str, player: str, schema: Mapping[str, Any], given: Any) -> tuple[Any, ...]:
    """Return the values allowed, as JSON has them."""
    if isinstance(given, str) or not list(given):
        raise ConfigError(
            f"limits of {name} for {player} are {given!r:.60}; give (lowest, highest) or a "
            "list of at least one value"
        )
    if schema.get("type") in ("array", "object"):
        raise ConfigError(
            f"limits of {name}: it holds several values, which no question can limit; ask for one, "
            "or name the values in its annotation: list[Literal['Ann', 'Bob']]"
        )
    values = tuple(_plain(value) for value in given)
    if schema.get("type") in _NUMBERS:
        lowest, highest = _own_range(schema)
        for value in values:
            if isinstance(value, int | float) and not lowest <= value <= highest:
                raise ConfigError(
                    f"limits of {name} for {player} allow {value:g}, and the field itself is from "
                    f"{lowest:g} to {highest:g}"
                )
    return values


def _plain(value: Any) -> Any:
    """Return an enumeration's value, and a number of numpy's as one of Python's."""
    if type(value) in (int, float, str):  # most are; asking what is a Real takes long
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def _is_range(given: Any) -> bool:
    return (
        isinstance(given, tuple)
        and len(given) == 2
        and all(isinstance(end, Real) and not isinstance(end, bool) for end in given)
    )


def _own_range(schema: Mapping[str, Any]) -> tuple[float, float]:
    """Return a field's own bounds; infinite where it has none."""
    whole = schema.get("type") == "integer"
    lowest = schema.get("minimum", schema.get("exclusiveMinimum", -math.inf))
    highest = schema.get("maximum", schema.get("exclusiveMaximum", math.inf))
    if "exclusiveMinimum" in schema:
        lowest = lowest + 1 if whole else math.nextafter(lowest, math.inf)
    if "exclusiveMaximum" in schema:
        highest = highest - 1 if whole else math.nextafter(highest, -math.inf)
    return lowest, highest


def _range(
    player: str, name: str, schema: Mapping[str, Any], given: Any, *, whole: bool
) -> tuple[float, float]:
    """Return the narrower of a field's own bounds and those given, rounded inwards."""
    lowest, highest = _own_range(schema)
    if given is not None:
        if any(map(math.isnan, given)):
            raise ConfigError(f"limits of {name} for {player} are {given}; NaN is not a bound")
        first, last = map(_plain, given)
        lowest, highest = max(lowest, first), min(highest, last)
    if math.isinf(lowest) or math.isinf(highest):
        raise ConfigError(
            f"{name} for {player} has no bound on one side: from {lowest:g} to {highest:g}; give "
            f"both, limits={{{name!r}: (lowest, highest)}}, or Field(ge=..., le=...)"
        )
    if whole:
        lowest, highest = math.ceil(lowest), math.floor(highest)
    if lowest > highest:
        raise ConfigError(
            f"limits of {name} leave {player} nothing: from {lowest:g} to {highest:g}"
            f"{' in whole numbers' if whole else ''}; do not ask a player who has no choice"
        )
    return lowest, highest


def _grid(
    name: str, lowest: float, highest: float, step: float, *, whole: bool
) -> tuple[float, ...]:
    if not isinstance(step, int | float) or not 0 < step < math.inf:
        raise ConfigError(f"step of {name} is {step!r:.40}; it must be a number above 0")
    # 0.3 / 0.1 is 2.9999999999999996: a bound that lies on the grid belongs to it.
    first, last = math.ceil(lowest / step - 1e-9), math.floor(highest / step + 1e-9)
    if not 0 <= last - first < _MOST_VALUES:
        raise ConfigError(
            f"step={step:g} of {name} makes {last - first + 1} values from {lowest:g} to "
            f"{highest:g}; 1 to {_MOST_VALUES} are possible: take another step or narrower limits"
        )
    # 3 * 0.1 is 0.30000000000000004, which no model would write.
    values = (round(place * step, 10) for place in range(first, last + 1))
    return tuple(int(value) if whole else value for value in values)


# --- answers by chance ---------------------------------------------------------------------------


def _random_reply(reply: type[ReplyT], allowed: _Allowed, rng: Random) -> ReplyT:
    """Return a reply drawn evenly from what is allowed."""
    schema = _schema_of(reply)
    drawn: dict[str, Any] = {}
    if _reasons(reply):
        drawn["reasoning"] = "A random answer."
    for name, part in schema["properties"].items():
        # A contract's reply must have a confidence; others may leave it out.
        if name in drawn or (
            name in Reply.model_fields and not reply.model_fields[name].is_required()
        ):
            continue
        if name in allowed.choices:
            part = {"enum": allowed.choices[name]}
        elif name in allowed.ranges:
            lowest, highest = allowed.ranges[name]
            part = {"type": part.get("type"), "minimum": lowest, "maximum": highest}
        drawn[name] = _drawn(part, schema.get("$defs", {}), rng)
    try:
        return reply(**drawn)
    except ValidationError as error:
        raise ConfigError(
            f"no random {reply.__name__} can be drawn: {faults(error)}; answer by a rule instead, "
            "players={'*': 'rule'}, or a function of the question"
        ) from error


def _drawn(part: Mapping[str, Any], known: Mapping[str, Any], rng: Random) -> Any:
    if "$ref" in part:
        part = known[part["$ref"].rpartition("/")[2]]
    if "const" in part:
        return part["const"]
    if "enum" in part:
        return rng.choice(part["enum"])
    if "anyOf" in part:  # of an optional field the first is its type, the second null
        return _drawn(part["anyOf"][0], known, rng)
    match part.get("type"):
        case "integer" | "number":
            return _drawn_number(part, rng)
        case "boolean":
            return rng.random() < 0.5
        case "array" if "prefixItems" in part:
            return [_drawn(inside, known, rng) for inside in part["prefixItems"]]
        case "array":
            least = part.get("minItems", 0)
            items = range(rng.randint(least, part.get("maxItems", least + 3)))
            return [_drawn(part.get("items", {"type": "string"}), known, rng) for _ in items]
        case "object":
            parts = part.get("properties", {})
            return {name: _drawn(inside, known, rng) for name, inside in parts.items()}
    return "random".ljust(part.get("minLength", 0), "m")[: part.get("maxLength")]


def _drawn_number(part: Mapping[str, Any], rng: Random) -> float:
    whole = part.get("type") == "integer"
    lowest, highest = _own_range(part)
    if math.isinf(lowest):
        lowest = 0 if highest >= 0 else highest - 100
    if math.isinf(highest):
        highest = lowest + (100 if whole else 1.0)
    if step := part.get("multipleOf"):
        drawn = rng.randint(math.ceil(lowest / step), math.floor(highest / step)) * step
        return int(drawn) if whole else drawn
    if whole:
        return rng.randint(math.ceil(lowest), math.floor(highest))
    return rng.uniform(lowest, highest)


# --- prompts -------------------------------------------------------------------------------------


def prompt_from(source: str | Path | Prompt, name: str, folder: Path | None) -> Prompt | str:
    """Return the prompt that a question names; a text without slots stays a text.

    Args:
        source: a text; a ``Path``, or one word that ends in ``.md``, for a file; or a prompt.
        name: what a text's prompt is called.
        folder: where files are looked for that are not named from the root.

    Raises:
        PromptError: the file cannot be read, or a template is wrong.
    """
    if isinstance(source, Prompt):
        return source
    if not isinstance(source, str | Path):
        raise ConfigError(
            f"{clip(repr(source), 60)} is not a prompt; give a text, a file that ends in .md, or a "
            "Prompt"
        )
    if isinstance(source, Path) or (source.endswith(".md") and len(source.split()) == 1):
        path = Path(source)
        return Prompt.load(path if path.is_absolute() or folder is None else folder / path)
    # The first line stands behind the quotes, the others where the source is indented to.
    first, newline, rest = source.partition("\n")
    text = f"{first.strip()}{newline}{textwrap.dedent(rest)}".strip()
    if any(sign in text for sign in ("{{", "{%", "{#")):
        return Prompt(text, name=name)
    return text
