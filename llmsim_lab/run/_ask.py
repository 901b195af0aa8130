"""``Ask``: what a world's ``turn`` asks its players with, and notes their outcomes with.

A question names a player, the class of the reply, and a prompt. Who answers it is decided where the
run is made. The answer of a model or a person is a call on the tape; a replay computes the answer
of a rule again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from inspect import CORO_CLOSED, CORO_CREATED, getcoroutinestate
from random import Random
from typing import Any, NamedTuple, TypeVar

from llmsim_lab._util.jsontext import SCALARS
from llmsim_lab._util.text import brief, whole_text
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm.bounds import Limits
from llmsim_lab.llm.choice import Decide
from llmsim_lab.run._any_run import AnyRun, Warnings
from llmsim_lab.run._guarded_random import GuardedRandom
from llmsim_lab.run._turn_questions import TurnQuestions, first_names
from llmsim_lab.run.config import OnError
from llmsim_lab.run.frames import DECISION_COLUMNS
from llmsim_lab.run.outside import from_outside, json_ready
from llmsim_lab.run.question import (
    AskedQuestion,
    AskedTurn,
    Batch,
    ByModel,
    ForPeople,
    Source,
)
from llmsim_lab.run.state import COMMON_COLUMNS, Columns
from llmsim_lab.run.turn import Answer
from llmsim_lab.types import Decision

T = TypeVar("T")
ReplyT = TypeVar("ReplyT", bound=Decision)
Pending = Coroutine[Any, Any, T]
"""What a turn awaits."""


class _Promised(NamedTuple):
    """A coroutine that a turn was given to await, and the players or things that it asks."""

    names: Sequence[str]
    coroutine: Coroutine[Any, Any, object]


class _FailedOutside(NamedTuple):
    """A call of ``ask.outside`` that failed: its ``kind`` and its error."""

    kind: str
    error: Exception


class TurnNotes(NamedTuple):
    """What a turn's record takes from its ``Ask``; the fields are those of ``Turn``."""

    by_code: tuple[Answer, ...]
    noted: Columns
    became: dict[tuple[str, str], Columns]
    story: tuple[str, ...]
    led_to: str
    stand_ins: Counter[str]
    """How often a stand-in answered, by the player whose answer failed."""


class Ask:
    """How a turn asks its players; ``turn`` gets one.

    ``await ask("Ann", Gift, "...")`` asks one player and returns a ``Gift``. ``await
    ask.each(names, Gift, "...")`` asks several at once and returns a dict.

    Five slots of a prompt have values in any case: ``name`` is the player, ``state`` the state
    before the turn, ``run`` the world's parameters, ``turn`` the number of the turn being played,
    and ``turns`` the number of turns in the run's configuration. Values of other slots are given by
    keyword.
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
        self._questions = TurnQuestions(run, turn, warnings)
        self._rngs: dict[str, GuardedRandom] = {}
        """By player; those of the turn itself under the empty name."""
        self._noted: Columns = {}
        self._became: dict[tuple[str, str], Columns] = {}
        self._story: list[str] = []
        self._led_to = ""
        self._promised: list[_Promised] = []
        self._failed_outside: _FailedOutside | None = None
        """The first call of ``ask.outside`` that failed."""

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
            player: the player's name.
            reply: the class of the answer, derived from ``Reply``.
            prompt: a text with slots such as ``{{ name }}``; a ``Path``, or one word that ends in
                ``.md``, for a file beside the world's own; a ``Prompt``; or a function of the name.
                The text that a function returns is sent as it is: it is not a template.
            system: the system message, a text with the same slots. It is for what never changes,
                such as the rules of a game: a server reads it only once. It becomes the prompt's
                ``## System``, so the prompt must have none.
            by: who answers, if it is not the player: for instance one ``engine`` that judges what
                each player did. The player is then the one whom the answer is about.
            tag: the kind of question. It tells apart questions of one turn that are otherwise
                equal, and ``players={tag: ...}`` seats who answers all questions with this tag.
            limits: narrower bounds of some fields, ``{"amount": (0, 5)}``, or the values allowed,
                ``{"who": ["Ann", "Bob"]}``. With ``decide`` values may have words: ``{"move": {25:
                "raise by 25 points"}}``.
            decide: asks a model for the probability of each answer, if the reply has one field of
                its own with few values. Then takes a draw (``sample``), the likeliest value
                (``mode``) or the number nearest to the mean (``expected``). None asks for one
                answer. Rules and people give one answer in any case.
            fallback: the answer to use, with the status ``fallback``, if the player's answer stays
                invalid or does not come in time: a reply, its fields, or a function of the name.
                Without it the turn fails. The turn also fails if the model cannot be reached.
            on_error: what happens if a function or rule raises, or answers what is not allowed:
                ``raise``, or ``fallback``, which uses ``fallback``, or a random allowed answer if
                there is none. None for the run's ``on_error``.
            for_people: what a person is shown instead of the prompt, such as a shorter text: a text
                with the same slots, or a function of the name. Models are not sent it, and a
                person's recording has the prompt.
            values: values of the prompt's other slots; a function is called with the name. Rules
                find them in ``question.values``. If the prompt is a function, only rules use them.

        Raises:
            ConfigError: no one answers for this player, the limits leave nothing, the same was
                asked twice, or a rule raised or answered what is not allowed.
            PromptError: a slot has no value, or a value has no slot.
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
        return self._promise(batch, [player], _only_decision)

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
            decide: see ``__call__``. Players with the same prompt share one measurement.
            fallback: see ``__call__``.
            on_error: see ``__call__``.
            for_people: see ``__call__``.
            values: see ``__call__``. Values that are not functions are filled in once for all.

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
        return self._promise(batch, names, _decisions_by_name)

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
        """Ask a player whose model may take several calls to answer, as with tools; await it.

        This is for the worlds of this package. People, rules and functions are asked as by
        ``ask(...)``.

        Args:
            player: the player's name.
            reply: see ``__call__``.
            prompt: the text for people and functions; a model is not sent it.
            by_model: asks a model: a function of the question and of the client in the player's
                seat.
            for_people: see ``__call__``.

        Raises:
            ConfigError: see ``__call__``.
            LLMFailureException: ``by_model`` raised it.
        """
        batch = Batch(
            turn=self._asked_turn,
            reply=reply,
            prompt=prompt,
            by_model=by_model,
            for_people=for_people,
        )
        return self._promise(batch, [player], _only_decision)

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

        The result is recorded like a reply. A replay takes it from the tape and does nothing
        outside. So does a run that is resumed in the middle of the turn.

        Args:
            kind: the kind of thing, such as ``weather``.
            key: which one, JSON-ready. A replay finds the result by kind and key.
            work: does the work, and returns something JSON-ready: ``lambda: fetch(city)``. An error
                that it raises ends the turn, even if the turn's code catches the error: a tape
                holds no exceptions.
            once: True for work that must never be done twice, such as a deletion. Work that was
                broken off halfway, or failed, then counts as done.
            fallback: with ``once``, what is returned if the work was broken off or failed. Without
                ``once`` an error ends the turn, so the work has to catch what may happen.

        Raises:
            ConfigError: the turn is over, or the key or the result is not ready for JSON.
            TapeMiss: a replay has no such thing.
        """
        if self._questions.is_over:
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
            # The turn's code may catch the error and continue; close() raises then.
            if self._failed_outside is None:
                self._failed_outside = _FailedOutside(kind, error)
            raise

    async def count_tokens(self, texts: Sequence[str], /) -> list[int] | None:
        """Return how many tokens each text has for the run's model; await it.

        Returns None if the model's backend cannot tell, or if no model plays. The counts are
        recorded as by ``outside``, and a replay takes them from the tape.

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
            player: the player whose decision the note is about, which has to decide in this turn.
                Without a name, the note is about the turn. ``text`` and ``led_to`` are the turn's
                in any case: beside them alone, a name is neither checked nor kept.
            component: which of the player's decisions, as ``decisions()`` calls it: the question's
                ``by`` or ``tag``, else ``player``. The player's first of the turn if not given.
            text: a line of the turn's story.
            led_to: the turn's result in words, shown where there is no table; the last one counts.
            columns: values by column name, for the decision's row in ``decisions()``, or for the
                turn's row in ``to_frame()``. Numbers, texts, booleans, None, and lists and dicts of
                them.

        Raises:
            ConfigError: the turn is over, nothing is noted, every frame has a column of that name,
                or a value is not ready for JSON.
        """
        if self._questions.is_over:
            raise ConfigError(f"{_noting(player, columns)}: turn {self.turn} is over")
        # Else ask.note(5) would pass as a note about a player.
        are_texts = [isinstance(value, str) for value in (player, component, text, led_to)]
        if not all(are_texts) or not (text or led_to or columns):
            raise ConfigError(
                f"{_noting(player, columns)} notes nothing: ask.note('Ann', text='...', "
                "accepted=True)"
            )
        if component and not (player and columns):
            raise ConfigError(
                f"component={brief(component, 40)} says to which decision of a player columns "
                f"belong: ask.note('Ann', component={brief(component, 40)}, accepted=True)"
            )
        if columns:
            self._note_columns(player, component, columns)
        if text:
            self._story.append(whole_text(text))
        if led_to:
            self._led_to = whole_text(led_to)

    def _note_columns(
        self,
        player: str,
        component: str,
        columns: Mapping[str, Any],
    ) -> None:
        """Record values by column name, of a player's decision or of the turn."""
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
        if player:
            self._became.setdefault((player, component), {}).update(columns)
        else:
            self._noted.update(columns)

    @property
    def rng(self) -> Random:
        """The turn's random numbers, which follow from the run's seed; for one task only.

        Use them for the world's shocks: they are the same in every replicate, sample and wording.
        """
        return self.rng_for("")

    def rng_for(self, name: str) -> Random:
        """Return one player's random numbers in this turn, which follow from the run's seed.

        A second call returns the same generator, which continues where it was left.
        """
        if name not in self._rngs:
            # Seeded by turn and name alone: neither the order in which players are asked nor a
            # resume after this turn changes what is drawn.
            seed = f"{self._run.config.seed}/{self.turn}/{name}"
            call = f"ask.rng_for({name!r})" if name else "ask.rng"
            self._rngs[name] = GuardedRandom(seed, call)
        return self._rngs[name]

    # --- the turn's end ----------------------------------------------------------------------

    def check_awaited(self) -> None:
        """Raise ConfigError for a question that was not awaited."""
        # A coroutine begins when it is awaited, so such a question would silently never be asked.
        unawaited = [
            pending
            for pending in self._promised
            if getcoroutinestate(pending.coroutine) == CORO_CREATED
        ]
        for pending in unawaited:
            pending.coroutine.close()  # else Python warns of it as well
        if unawaited:
            raise ConfigError(
                f"{type(self._run).__name__}.turn asked {first_names(unawaited[0].names)} and did "
                "not wait for the answer; write await before it: gift = await ask(...), gifts = "
                "await ask.each(...)"
            )

    def close(self) -> TurnNotes:
        """End the turn; return what its record takes from it, in an order that replays repeat.

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
            self._questions.is_over = True
            raise ConfigError(
                f"turn {self.turn} is over, and what it asked {first_names(unfinished[0].names)} "
                "is still under way: await every question in the turn that asks it"
            )
        self._questions.is_over = True
        if self._failed_outside is not None:
            kind, error = self._failed_outside
            raise ConfigError(
                f"ask.outside({kind!r}, ...) failed with {type(error).__name__}: {error}, and "
                f"turn {self.turn} went on; a replay could not. Catch it in the work itself, and "
                "return something in its place"
            ) from error
        # Sorted, since rules that await something finish in any order.
        try:
            self._questions.answers.sort(
                key=lambda answer: (answer.component, answer.player, repr(answer.given))
            )
        except ValueError as error:  # a number has more digits than Python writes
            raise ConfigError(f"turn {self.turn}: an answer cannot be kept: {error}") from error
        return TurnNotes(
            by_code=tuple(self._questions.answers),
            noted=self._noted,
            became=self._became,
            story=tuple(self._story),
            led_to=self._led_to,
            stand_ins=self._questions.stand_ins.counts,
        )

    def _promise(
        self,
        batch: Batch,
        names: Sequence[str],
        as_result: Callable[[Sequence[AskedQuestion]], Any],
    ) -> Pending[Any]:
        """Return a coroutine that asks the players; ``close`` checks that it was awaited.

        Args:
            batch: what the players are asked.
            names: the players.
            as_result: makes what the turn gets of the answered questions.
        """
        # Numbered now, in the order of the turn's code. The coroutine may be awaited in a task that
        # gathers several.
        numbers = self._questions.number_questions(batch, names)
        self._questions.set_name(batch, names)
        pending = self._questions.ask_all(
            batch,
            names,
            numbers,
            as_result,
        )
        self._promised.append(_Promised(names, pending))
        return pending


def _only_decision(questions: Sequence[AskedQuestion]) -> Decision | None:
    return questions[0].decision


def _decisions_by_name(questions: Sequence[AskedQuestion]) -> dict[str, Decision | None]:
    return {question.player: question.decision for question in questions}


def _noting(player: object, columns: Mapping[str, object]) -> str:
    return f"ask.note({brief(player or columns, 80)})"


def _is_kept_by_json(value: object) -> bool:
    """Return True for plain values that JSON surely gives back unchanged."""
    if isinstance(value, str):
        # Beyond ASCII it may hold half a character.
        return type(value) is str and value.isascii()
    if value is None:
        return True
    # NaN is within no bounds, and an integer of any length is too long for a float.
    return type(value) in SCALARS and -1e300 < value < 1e300  # type: ignore[operator]
