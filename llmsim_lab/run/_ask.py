"""Asking players: models, rules and people, all in the same words.

A world's ``turn`` is given an ``Ask``. A question names a player, what the reply must be and a
prompt; who answers it is decided by whoever makes the run. A model's or a person's answer is a call
on the tape. A rule's is computed again in a replay.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import textwrap
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from inspect import isawaitable
from numbers import Integral, Real
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeVar, get_args

from pydantic import ValidationError

from llmsim_lab._util.text import clip, closest, faults
from llmsim_lab._util.waiting import gather_all
from llmsim_lab.errors import ConfigError, PromptError
from llmsim_lab.llm import LLMClient, Person
from llmsim_lab.llm._choose import Decide, numeric, text_of
from llmsim_lab.llm._extract import allowed_words
from llmsim_lab.prompts import Prompt
from llmsim_lab.run._config import RunConfig
from llmsim_lab.run._turn import RuleAnswer
from llmsim_lab.types import CallSite, LLMReasoningChain, Reply, reply_schema

T = TypeVar("T")
ReplyT = TypeVar("ReplyT", bound=Reply)

Limits = Mapping[str, Sequence[Any]]
"""By field: ``(lowest, highest)``, or a list of the values allowed."""

_MOST_VALUES = 101
"""In a grid of numbers. Servers enforce a list of values, and bounds of floats they do not."""
_NUMBERS = ("integer", "number")
"""The types that a JSON schema has for numbers."""
_GIVEN = ("name", "state", "run", "turn", "turns")
"""What every prompt may use without being given it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a rule is asked.

    Attributes:
        player: who is asked.
        reply: the class of the answer.
        state: the state before the turn.
        run: the world's parameters, as ``question.run.factor``.
        turn: the number of the turn that is being played.
        limits: what is allowed, by field: ``(lowest, highest)``, or a list of values; the
            question's, or else the field's own.
        values: what the prompt was given besides.
        tag: which of several questions of the turn, where the world says.
        rng: random numbers of this player's own, the same in a replay.
    """

    player: str
    reply: type[Reply]
    state: Any
    run: Any
    turn: int
    limits: Mapping[str, tuple[float, float] | list[Any]]
    values: Mapping[str, Any]
    tag: str = ""
    rng: Random = field(repr=False)


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


class _Asked(NamedTuple):
    """A question as ``turn`` puts it; a named tuple, which is made faster than a dataclass."""

    player: str
    reply: type[Reply]
    prompt: str | Path | Prompt
    limits: Limits | None
    step: Mapping[str, float] | None
    tag: str
    decide: Decide | None
    values: Mapping[str, Any]
    place: _Place


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
        state: Any,
        turn: int,
        *,
        config: RunConfig,
        player: Callable[[str], Any],
        prompt_for: Callable[[str | Path | Prompt, type[Reply]], Prompt | str],
    ) -> None:
        self._state = state
        self._config = config
        self._player = player
        self._prompt_for = prompt_for
        self.turn = turn
        """The number of the turn being played."""
        self._asked: set[tuple[Any, ...]] = set()
        self._rngs: dict[str, _GuardedRandom] = {}
        self._places: dict[tuple[str, str], tuple[object, int]] = {}
        self._ruled: list[tuple[LLMReasoningChain, RuleAnswer]] = []
        self._open: dict[object, tuple[str, tuple[Coroutine[Any, Any, Any], ...]]] = {}
        self._over = False

    def __call__(
        self,
        player: str,
        reply: type[ReplyT],
        prompt: str | Path | Prompt,
        /,
        *,
        limits: Limits | None = None,
        step: Mapping[str, float] | None = None,
        tag: str = "",
        decide: Decide | None = None,
        **values: Any,
    ) -> Coroutine[Any, Any, ReplyT]:
        """Ask one player; await it.

        Args:
            player: its name.
            reply: what it is asked for, a class derived from ``Reply``.
            prompt: a text with slots such as ``{{ name }}``; a ``Path``, or one word that ends in
                ``.md``, for a file beside the world's own; or a ``Prompt``.
            limits: narrower bounds of some fields: ``{"amount": (0, 5)}``, or the values allowed:
                ``{"who": ["Ann", "Bob"]}``.
            step: the grid of some number fields within their bounds: ``{"rate": 0.25}``.
            tag: tells apart questions of one turn that are otherwise equal.
            decide: asks a model for the probability of each answer, where the reply has one field
                of its own with few values, and takes a draw (``sample``), the likeliest (``mode``)
                or the number nearest to the mean (``expected``). None asks for one answer, and
                rules give one in any case.
            values: of the prompt's other slots.

        Raises:
            ConfigError: nobody answers for this player, the limits leave nothing, the same was
                asked twice, or a rule's answer is not allowed.
            PromptError: a slot has no value, or the other way round.
            LLMFailureException: a model failed to answer.
        """
        place = self._place(player, tag)
        asked = _Asked(player, reply, prompt, limits, step, tag, decide, values, place)
        return self._awaited(self._answer(asked), player)

    def each(
        self,
        players: Iterable[str],
        reply: type[ReplyT],
        prompt: str | Path | Prompt,
        /,
        *,
        limits: Limits | Callable[[str], Limits] | None = None,
        step: Mapping[str, float] | None = None,
        tag: str = "",
        decide: Decide | None = None,
        **values: Any,
    ) -> Coroutine[Any, Any, dict[str, ReplyT]]:
        """Ask several players at once; await their replies by name, in the order given.

        Args:
            players: their names; of a dict, its keys.
            reply: see ``__call__``.
            prompt: see ``__call__``.
            limits: see ``__call__``, or a function of the name that returns them.
            step: see ``__call__``.
            tag: see ``__call__``.
            decide: see ``__call__``.
            values: of the prompt's other slots; a function is called with each name.

        Raises:
            ConfigError: see ``__call__``; or a player is named twice.
        """
        names = [players] if isinstance(players, str) else list(players)
        # At once, while the task that puts the questions is the current one.
        places = [self._place(name, tag) for name in names]

        async def asking() -> dict[str, ReplyT]:
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise ConfigError(
                    f"{twice!r} is asked twice by one ask.each; name each player once"
                )
            for key, value in (*values.items(), ("limits", limits)):
                if callable(value):
                    _check_takes_a_name(key, value)
            work = []
            for name, place in zip(names, places, strict=True):
                own = {key: each(name) if callable(each) else each for key, each in values.items()}
                bounds = limits(name) if callable(limits) else limits
                asked = _Asked(name, reply, prompt, bounds, step, tag, decide, own, place)
                work.append(self._answer(asked))
            return dict(zip(names, await gather_all(work), strict=True))

        return self._awaited(asking(), ", ".join(map(str, names[:3])) or "nobody")

    def _awaited(self, asking: Coroutine[Any, Any, T], whom: str) -> Coroutine[Any, Any, T]:
        """Return a question that ``forgotten`` finds at the end of the turn if nobody awaits it.

        A question begins when it is awaited, as everywhere in Python, so that one without an await
        would never be asked, and nobody would know.
        """
        key = object()

        async def ask() -> T:
            del self._open[key]
            return await asking

        started = ask()
        self._open[key] = (whom, (started, asking))
        return started

    def _place(self, player: Any, tag: Any) -> _Place:
        """Return which of a player's questions with a tag is being asked, and whether in order.

        Those that one task asks come in the order of its code, also in a replay.
        """
        try:
            task = asyncio.current_task()
        except RuntimeError:  # on a thread without a loop
            task = None
        key = (str(player), str(tag))
        first, asked = self._places.get(key, (task, 0))
        if first is not task:
            return _Place(0, elsewhere=True)
        self._places[key] = (first, asked + 1)
        return _Place(asked + 1, elsewhere=False)

    def forgotten(self) -> str:
        """Return whom the turn asked without waiting for the answer; empty if nobody."""
        first = next((whom for whom, _ in self._open.values()), "")
        for _, coroutines in self._open.values():
            for coroutine in coroutines:
                coroutine.close()  # else Python warns of it as well
        self._open.clear()
        return first

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
            seed = f"{self._config.seed}/{self.turn}/{name}"
            self._rngs[called] = _GuardedRandom(seed, called)
        return self._rngs[called]

    # --- how it is done ----------------------------------------------------------------------

    def close(self) -> tuple[tuple[LLMReasoningChain, ...], tuple[RuleAnswer, ...]]:
        """End the turn; returns what rules decided, in an order that any replay has too."""
        self._over = True
        # Rules that await something finish in any order; a replay has to find them in one.
        self._ruled.sort(key=lambda ruled: (ruled[1].tag, ruled[1].player, repr(ruled[1].fields)))
        return tuple(chain for chain, _ in self._ruled), tuple(answer for _, answer in self._ruled)

    async def _answer(self, asked: _Asked) -> Any:
        self._check(asked.player, asked.reply, asked.tag, asked.values)
        player, reply, tag = asked.player, asked.reply, asked.tag
        allowed = _allowed(player, reply, asked.limits, asked.step)
        text = self._rendered(asked)
        same = (player, tag, reply, str(text))
        if same in self._asked:
            raise ConfigError(
                f"{player} is asked the same {reply.__name__} twice in turn {self.turn}, so that a "
                "replay could not tell the answers apart; number them: ask(..., tag='second')"
            )
        self._asked.add(same)  # before the first await, so that equal questions at once meet it
        who = self._player(player)
        # Not by its class: a client that wraps another would be a player who answers by chance.
        if not hasattr(who, "call_with_retry"):
            return await self._by_rule(who, asked, allowed)
        if asked.decide is not None:
            return await self._by_chances(who, asked, allowed, text)
        return await who.call_with_retry(
            prompt=text,
            response_model=reply,
            choices=allowed.choices or None,
            limits=allowed.ranges or None,
            check=allowed.complaint if allowed.choices or allowed.ranges else None,
            site=CallSite(component=tag or "player", agent=player, turn=self.turn),
        )

    def _check(self, player: Any, reply: Any, tag: Any, values: Mapping[str, Any]) -> None:
        if self._over:
            raise ConfigError(
                f"turn {self.turn} is over, and {player} is asked in it: await every question in "
                "the turn that asks it"
            )
        if not isinstance(player, str) or not player.strip():
            raise ConfigError(f"{player!r:.60} is not the name of a player; a name is a text")
        if not (isinstance(reply, type) and issubclass(reply, Reply)):
            raise ConfigError(
                f"{player} is asked for {reply!r:.60}; ask for a class derived from Reply: "
                "class Gift(Reply): amount: int"
            )
        if not isinstance(tag, str):
            raise ConfigError(f"tag={tag!r:.40} must be a text")
        if taken := [name for name in values if name in _GIVEN]:
            raise ConfigError(
                f"{taken[0]!r} has a value in every prompt already ({', '.join(_GIVEN)}); call "
                "yours something else"
            )

    def _rendered(self, asked: _Asked) -> str:
        player, values = asked.player, asked.values
        prompt = self._prompt_for(asked.prompt, asked.reply)
        if isinstance(prompt, str):
            if values:
                raise ConfigError(
                    f"the prompt to {player} has no slot for {', '.join(values)}; write "
                    f"{{{{ {next(iter(values))} }}}} where the value belongs"
                )
            return prompt
        common = {
            "name": player,
            "state": self._state,
            "run": self._config,
            "turn": self.turn,
            "turns": self._config.turns,
        }
        for slot in prompt.slots:
            if slot not in common and slot not in values:
                known = {**common, **values}
                raise PromptError(
                    f"the prompt to {player} has the slot {{{{ {slot} }}}}, which nothing fills"
                    f"{closest(slot, known)}; it may use {', '.join(known)}, and what it is given: "
                    f"ask(..., {slot}=...)"
                )
        wanted = {name: common[name] for name in prompt.slots if name in common}
        return prompt.render(**wanted, **values)

    async def _by_rule(
        self, rule: Callable[[Question], Any] | str, asked: _Asked, allowed: _Allowed
    ) -> Reply:
        player, reply, tag = asked.player, asked.reply, asked.tag
        rng = self._rng_of(asked, "rule")
        answer: Any
        if callable(rule):
            answer = rule(
                Question(
                    player=player,
                    reply=reply,
                    state=self._state,
                    run=self._config,
                    turn=self.turn,
                    limits={
                        **_own_limits(reply),
                        **allowed.ranges,
                        **{name: list(values) for name, values in allowed.choices.items()},
                    },
                    values=asked.values,
                    tag=tag,
                    rng=rng,
                )
            )
            if isawaitable(answer):
                answer = await answer
        else:  # "random"
            answer = _random_reply(reply, allowed, rng)
        decision = _as_reply(answer, player, reply)
        if complaint := allowed.complaint(decision):
            raise ConfigError(
                f"the rule of {player} answered {reply.__name__}, {complaint}; question.limits has "
                "what is allowed"
            )
        self._note(asked, decision)
        return decision

    async def _by_chances(
        self, client: LLMClient, asked: _Asked, allowed: _Allowed, prompt: str
    ) -> Reply:
        """Return the reply that follows from a model's probabilities of each answer."""
        player, reply, how = asked.player, asked.reply, asked.decide
        if how is None or how not in get_args(Decide):
            raise ConfigError(
                f"decide={how!r:.40} of {player} must be one of {', '.join(get_args(Decide))}"
            )
        if isinstance(client.backend, Person):
            raise ConfigError(
                f"{player} is a person, who gives one answer and no probabilities; leave out decide"
            )
        field, texts = _one_field(player, reply, allowed)
        if how == "expected" and not numeric(list(texts)):
            raise ConfigError(
                f"decide='expected' of {player} needs numbers, and {reply.__name__}.{field} has "
                f"{clip(', '.join(texts.values()), 80)}; take 'sample' or 'mode'"
            )
        if len(texts) == 1:
            [value] = texts
            why = "there was nothing else to choose"
        else:
            site = CallSite(component=asked.tag or "player", agent=player, turn=self.turn)
            choice = await client.choose(prompt, texts, site=site)
            value = choice.decided(how, self._rng_of(asked, "draw"))
            near = f", nearest to the mean {choice.expectation:.4g}" if how == "expected" else ""
            why = (
                f"{how}: {field} {texts[value]} has {choice.probabilities[value]:.1%}{near}; "
                f"{choice.mass:.1%} of all answers are options"
            )
        decision = reply.model_validate({field: value, "reasoning": why})
        self._note(asked, decision)
        return decision

    def _rng_of(self, asked: _Asked, what: str) -> Random:
        """Return the random numbers of one question, for its rule or its draw.

        A generator for each: each may be answered in a task of its own, and a generator serves one
        task only.
        """
        player, tag, place = asked.player, asked.tag, asked.place
        name = f"{player}, {tag}" if tag else player
        if place.number > 1:
            name = f"{name}, question {place.number}"
        if place.elsewhere:
            return _NoRandom("", player)
        return self._rng(f"the random numbers of {name}'s {what}", f"{what} of {name}")

    def _note(self, asked: _Asked, decision: Reply) -> None:
        """Record a decision that no call says by itself."""
        chain = LLMReasoningChain(
            component=asked.tag or "player",
            agent=asked.player,
            turn=self.turn,
            reasoning=decision.reasoning,
            confidence=decision.confidence,
        )
        fields = decision.model_dump(mode="json")
        self._ruled.append((chain, RuleAnswer(player=asked.player, tag=asked.tag, fields=fields)))


def _check_takes_a_name(key: str, function: Callable[..., Any]) -> None:
    try:
        inspect.signature(function).bind("Ann")
    except TypeError as error:
        raise ConfigError(
            f"{key}={function!r:.60} cannot be called with a player's name ({error}); ask.each "
            f"calls it for each: {key}=lambda name: ..."
        ) from error
    except ValueError:  # a function of C's, which does not say what it takes
        return


def _as_reply(answer: Any, player: str, reply: type[ReplyT]) -> ReplyT:
    """Return a rule's answer as the reply that was asked for."""
    if isinstance(answer, reply):
        return answer
    fields = reply.model_fields
    own = [name for name in fields if name not in Reply.model_fields]
    form = f"return {reply.__name__}({', '.join(f'{name}=...' for name in own)})"
    if answer is None:
        raise ConfigError(f"the rule of {player} returned None; {form}")
    if not isinstance(answer, Mapping) and len(own) == 1:
        answer = {own[0]: answer}  # a number alone will do where only one is asked for
    if isinstance(answer, Mapping) and (unknown := [it for it in answer if it not in fields]):
        raise ConfigError(
            f"the rule of {player} answered {unknown[0]!r}{closest(str(unknown[0]), fields)}, "
            f"which a {reply.__name__} has no field for; {form}"
        )
    try:
        return reply.model_validate(answer)
    except ValidationError as error:
        raise ConfigError(f"the rule of {player} answered {faults(error)}; {form}") from error


# --- what is allowed -----------------------------------------------------------------------------


class _Allowed(NamedTuple):
    """What of some fields is allowed.

    Attributes:
        choices: the only values, for the schema.
        ranges: the lowest and highest number.
    """

    choices: dict[str, tuple[Any, ...]]
    ranges: dict[str, tuple[float, float]]

    @property
    def words(self) -> Mapping[str, str]:
        """What each field must be."""
        return allowed_words(self.choices, self.ranges)

    def complaint(self, decision: Reply) -> str | None:
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


# Both are kept, since a schema takes much longer to make than an answer to validate.
_schema_of = lru_cache(maxsize=1024)(reply_schema)


def _one_field(player: str, reply: type[Reply], allowed: _Allowed) -> tuple[str, dict[Any, str]]:
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
    return name, {value: text_of(value) for value in values}


@lru_cache(maxsize=1024)
def _own_limits(reply: type[Reply]) -> Mapping[str, tuple[float, float] | list[Any]]:
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
    player: str, reply: type[Reply], limits: Limits | None, step: Mapping[str, float] | None
) -> _Allowed:
    """Return what is allowed: a reply's own bounds narrowed by a question's."""
    limits, step = limits or {}, step or {}
    if not limits and not step:
        return _Allowed({}, {})
    fields = _schema_of(reply).get("properties", {})
    choices: dict[str, tuple[Any, ...]] = {}
    ranges: dict[str, tuple[float, float]] = {}
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
    return _Allowed(choices, ranges)


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
    for name, part in schema["properties"].items():
        if name in Reply.model_fields:
            continue
        if name in allowed.choices:
            part = {"enum": allowed.choices[name]}
        elif name in allowed.ranges:
            lowest, highest = allowed.ranges[name]
            part = {"type": part.get("type"), "minimum": lowest, "maximum": highest}
        drawn[name] = _drawn(part, schema.get("$defs", {}), rng)
    try:
        return reply(reasoning="A random answer.", **drawn)
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
