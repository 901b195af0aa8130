"""How the questions of one turn get to their answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from inspect import isawaitable
from typing import Any, NamedTuple, TypeVar

from llmsim_lab._util.text import brief, log_event
from llmsim_lab._util.waiting import gather_all
from llmsim_lab.errors import ConfigError, LLMFailureException
from llmsim_lab.llm import LLMClient, Person, ScriptedBackend
from llmsim_lab.llm.choice import Choice
from llmsim_lab.run._any_run import AnyRun, Warnings
from llmsim_lab.run._guarded_random import current_task
from llmsim_lab.run._personas import check_rows
from llmsim_lab.run._question_checks import check_arguments, check_names, check_reply
from llmsim_lab.run._stand_ins import StandIns, ToModel, failed_calls
from llmsim_lab.run.answers import (
    NOTHING_ELSE,
    Options,
    answer_by_code,
    options_of,
    why_chosen,
)
from llmsim_lab.run.chance import random_reply
from llmsim_lab.run.plain_prompts import dedented, has_slots, kind_of
from llmsim_lab.run.prompt_order import prompt_order
from llmsim_lab.run.question import (
    AskedQuestion,
    AskedTurn,
    Batch,
    ByModel,
    Question,
    close_unawaited,
)
from llmsim_lab.run.turn import Answer
from llmsim_lab.types import CallRecord, Decision

T = TypeVar("T")

_warn = partial(log_event, logging.getLogger(__name__), logging.WARNING)


class _ToMeasure(NamedTuple):
    """Questions whose answers are drawn from the probabilities that one model gives."""

    client: LLMClient
    text: str
    options: Options
    questions: list[AskedQuestion]


class _ToConverse(NamedTuple):
    """A question that a model answers in a conversation of several calls."""

    client: LLMClient
    question: AskedQuestion
    by_model: ByModel[Decision]


class _Returned(NamedTuple):
    """What a function returned to be awaited, and the question that it answers."""

    answer: Awaitable[object]
    question: AskedQuestion


_Work = ToModel | _ToMeasure | _ToConverse | _Returned
"""What a turn has to wait for."""


class _Numbering(NamedTuple):
    """The task that asked a player this kind of question first, and how often it did so far."""

    task: asyncio.Task[Any] | None
    times: int


class TurnQuestions:
    """Asks the players of one turn, and keeps what its record needs of their answers.

    Attributes:
        answers: the answers that no call on the tape has by itself.
        stand_ins: the answers that stand in for others.
        is_over: whether the turn has ended, so that nothing may be asked in it.
    """

    def __init__(
        self,
        run: AnyRun,
        turn: AskedTurn,
        warnings: Warnings,
    ) -> None:
        self.answers: list[Answer] = []
        self.stand_ins = StandIns(run, turn, warnings)
        self.is_over = False
        self._run = run
        self._turn = turn
        self._warnings = warnings
        # What a replay tells questions apart by: asking the same twice is an error.
        self._sent: set[tuple[object, ...]] = set()
        """The questions that models and people were sent."""
        self._numbering: dict[tuple[str, str, str], _Numbering] = {}
        """By player, tag and ``by``."""
        self._positions: dict[tuple[str, str], int] = {}
        """How often each player was asked each kind of question without slots."""

    # --- what is asked -----------------------------------------------------------------------

    def number_questions(
        self,
        batch: Batch,
        names: Sequence[str],
    ) -> list[int | None]:
        """Return how often each player was asked such a question, this time included.

        One task asks its questions in the order of its code, in a replay too. A question of a
        second task has no such order, and None in place of a number.
        """
        task = current_task()
        # As texts: names are checked when the question is awaited, so here they may be anything.
        tag = str(batch.tag)
        by = str(batch.by)
        numbers: list[int | None] = []
        for name in names:
            key = (str(name), tag, by)
            before = self._numbering.get(key)
            if before is not None and before.task is not task:
                numbers.append(None)
                continue
            times = 1 if before is None else before.times + 1
            self._numbering[key] = _Numbering(task, times)
            numbers.append(times)
        return numbers

    def set_name(self, batch: Batch, names: Sequence[str]) -> None:
        """Name a prompt without slots; the second such prompt of a turn is ``gift@2``.

        A prompt with slots needs no such name: its own name and digest identify it.
        """
        source = batch.prompt
        if not callable(source) and not (isinstance(source, str) and not has_slots(source)):
            return
        kind = kind_of(batch.reply, batch.tag)
        # The highest position among the players: they share one prompt, and so one name.
        position = 1
        for name in names:
            key = (str(name), kind)
            self._positions[key] = self._positions.get(key, 0) + 1
            position = max(position, self._positions[key])
        batch.name = kind if position == 1 else f"{kind}@{position}"

    def _prepare(self, batch: Batch, names: Sequence[str]) -> None:
        """Check what all players are asked, and read its prompt once for all of them."""
        first_name = first_names(names[:1])
        if self.is_over:
            raise ConfigError(
                f"turn {self._turn.number} is over, and {first_name} is asked in it: await every "
                "question in the turn that asks it"
            )
        check_reply(batch.reply, first_name, self._turn.config.rationale)
        check_names(names)
        check_arguments(batch, first_name)
        # Not for ``by=``, which names a judge and no player. Not in a replay either: what was
        # recorded stays as it was played.
        if not batch.by and not self._turn.is_replay:
            check_rows(self._turn.config, names)
        if batch.system:
            # Treated as prompts are: source code indents what stands between triple quotes.
            batch.system = dedented(batch.system)
        if isinstance(batch.for_people, str) and batch.for_people:
            # Read now, so that a fault in the text shows even where no person plays.
            batch.prepared_for_people(first_name)
        if not callable(batch.prompt):
            # Read now although rules need no prompt: a fault in it shows in every run, and a study
            # finds a world's prompts in a turn that random players answer.
            batch.prepared(first_name)
            return
        edits = self._turn.prompts.edit
        # A study that edits prompts has to see each of them once. The text of a function is known
        # only when the function is called, which a turn of rules never does.
        if edits is not None and edits.missing and names:
            batch.text_for(first_name)

    def _check_new(self, question: AskedQuestion, text: str) -> None:
        """Raise ConfigError for a question that a replay could not tell from another one."""
        batch = question.batch
        key = (question.player, batch.tag, batch.by, batch.reply, text)
        if key in self._sent:
            raise ConfigError(
                f"{question.player} is asked the same {batch.reply.__name__} twice in turn "
                f"{self._turn.number}, so that a replay could not tell the answers apart; number "
                "them: ask(..., tag='second')"
            )
        # Before the first await, so that an equal question asked at the same time is noticed.
        self._sent.add(key)

    def _warn_of_order(self, batch: Batch, work: Sequence[_Work]) -> None:
        """Warn, once in a run, of prompts whose common text comes after what differs.

        Args:
            batch: what the questions have in common.
            work: the questions that models are sent.
        """
        warnings = self._warnings
        key = (batch.reply, batch.tag, batch.by, batch.name or batch.prompt)
        # A single prompt has nothing in common with another.
        if len(work) < 2 or warnings.has_order or key in warnings.compared:
            return
        texts = _texts_for_servers(work)
        if len(texts) < 2:
            return
        warnings.compared.add(key)  # the same question has the same order in later turns
        if warnings.are_left_out or self._turn.is_replay:
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

    # --- asking ------------------------------------------------------------------------------

    async def ask_all(
        self,
        batch: Batch,
        names: Sequence[str],
        numbers: Sequence[int | None],
        as_result: Callable[[Sequence[AskedQuestion]], T],
    ) -> T:
        """Ask all players of a batch, and wait for their answers.

        Args:
            batch: what they are asked.
            names: the players.
            numbers: see ``number_questions``.
            as_result: makes what the turn gets of the answered questions.
        """
        self._prepare(batch, names)
        questions = [
            AskedQuestion(batch, name, number) for name, number in zip(names, numbers, strict=True)
        ]
        work = self._work_for(batch, questions)
        only = work[0] if len(work) == 1 else None
        try:
            if isinstance(only, ToModel):
                # Copied from _wait_for: most batches have one model question, and a further
                # coroutine would slow each streamed piece.
                try:
                    only.question.decision = await only.question.send(only.client, only.text)
                except Exception as error:  # noqa: BLE001 - a script, a person, one's own backend
                    await self.stand_ins.answer_failed(error, only)
            elif only is not None:
                await self._wait_for(only)
            elif work:
                # Each in its own task. One that fails ends the others, and its error is raised.
                await gather_all([self._wait_for(item) for item in work])
        finally:
            _close_returned(work)
        # Only now: after a failure the turn is played again, and would record them twice.
        self.answers += batch.answers
        return as_result(questions)

    def _work_for(
        self,
        batch: Batch,
        questions: Sequence[AskedQuestion],
    ) -> list[_Work]:
        """Return what has to be waited for, and take the answers that functions give at once."""
        # No work begins before all of it is known: a prompt that cannot be filled would leave the
        # questions before it unawaited.
        work: list[_Work] = []
        try:
            for question in questions:
                item = self._work_of(question)
                if item is not None:
                    work.append(item)
        except BaseException:
            _close_returned(work)
            raise
        self._warn_of_order(batch, work)
        if batch.decide is not None:
            return _measured_together(work)
        return work

    def _work_of(self, question: AskedQuestion) -> _Work | None:
        """Return what one question has to wait for; None if it is answered at once."""
        batch = question.batch
        # Looked up for each question, since the run notes which players its questions name.
        seated = self._run.seat(
            question.player,
            by=batch.by,
            tag=batch.tag,
        )
        # Recognised by its method and not by its class: a client may wrap another one.
        if not hasattr(seated, "call_with_retry"):
            return self._ask_code(seated, question)
        client: LLMClient = seated
        is_person = isinstance(getattr(client, "backend", None), Person)
        if batch.by_model is not None and not is_person:
            return _ToConverse(client, question, batch.by_model)
        text = question.text()
        self._check_new(question, text)
        if batch.decide is None or is_person:  # a person gives one answer in any case
            return ToModel(client, question, text)
        # Options of each question, since ``limits`` may leave each player others.
        return _ToMeasure(
            client,
            text,
            options_of(question),
            [question],
        )

    def _ask_code(self, seated: object, question: AskedQuestion) -> _Returned | None:
        """Ask a function, or draw a random answer; return what has to be awaited for it."""
        # By its name: a seat that is no player at all must not play at random.
        if isinstance(seated, str) and seated == "random":
            self.stand_ins.take_answer(random_reply(question, question.rng), question)
            return None
        if not callable(seated):
            raise ConfigError(
                f"the seat of {question.player} has {brief(seated)}, which is no player; a player "
                "is 'model', 'rule', 'random', a function of the question, a Person() or a client"
            )
        try:
            answer = seated(Question(question))
        except Exception as error:  # noqa: BLE001 - a player's own code raises anything
            self.stand_ins.code_raised(error, question)
            return None
        if isawaitable(answer):
            return _Returned(answer, question)
        self.stand_ins.take_answer(answer, question)
        return None

    # --- waiting for answers -----------------------------------------------------------------

    async def _wait_for(self, work: _Work) -> None:
        """Wait for one of several answers."""
        match work:
            case ToModel(client, question, text):
                try:
                    question.decision = await question.send(client, text)
                except Exception as error:  # noqa: BLE001 - a script, a person, one's own backend
                    await self.stand_ins.answer_failed(error, work)
            case _ToConverse(client, question, by_model):
                try:
                    # Only the conversation's calls are on the tape. A replay asks by_model again,
                    # which makes the decision from them.
                    question.decision = await by_model(Question(question), client)
                except Exception as error:  # noqa: BLE001 - as above
                    self.stand_ins.asking_failed(error, question)
            case _ToMeasure():
                await self._choose(work)
            case _Returned():
                await self._wait_for_function(work)

    async def _wait_for_function(self, returned: _Returned) -> None:
        question = returned.question
        try:
            answer = await returned.answer
        except asyncio.CancelledError as error:
            # If the turn itself is being cancelled, as by Ctrl-C, the cancellation goes on. Else
            # the function let its own task be cancelled, which is a fault in its code.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            self.stand_ins.code_raised(error, question)
        except Exception as error:  # noqa: BLE001 - a player's own code raises anything
            self.stand_ins.code_raised(error, question)
        else:
            self.stand_ins.take_answer(answer, question)

    async def _choose(self, work: _ToMeasure) -> None:
        """Measure the probability of each option once, and take an answer for each question."""
        first = work.questions[0]
        options = work.options
        choice: Choice[object] | None = None
        calls: tuple[CallRecord, ...] = ()
        # With a single option no model is asked.
        if len(options.texts) > 1:
            site = first.site
            if len(work.questions) > 1:
                # A call that measures for several players is not one player's.
                site = replace(site, agent=None)
            try:
                choice = await work.client.choose(
                    work.text,
                    options.texts,
                    site=site,
                )
            except LLMFailureException as failure:
                # The first question's record has the failed call, so that it counts once.
                calls = failed_calls(failure)
                for question in work.questions:
                    self.stand_ins.model_failed(failure, question, calls)
                    calls = ()
                return
            calls = choice.calls
        reply = first.batch.reply
        for question in work.questions:
            value = next(iter(options.texts))
            reasoning = NOTHING_ELSE
            if choice is not None:
                value = choice.decided(options.decide, question.random("draw"))
                reasoning = why_chosen(choice, options, value)
            fields = {options.name: value}
            # The model was asked for a letter alone; these words say what was measured.
            if "reasoning" in reply.model_fields:
                fields["reasoning"] = reasoning
            question.decision = reply.model_validate(fields)
            question.batch.answers.append(
                answer_by_code(
                    question.decision,
                    question,
                    reasoning,
                    calls=calls,
                )
            )
            # The first record has the calls, so that none counts twice.
            calls = ()


def _close_returned(work: Sequence[_Work]) -> None:
    """Close the coroutines of functions that will not be awaited: Python would warn of them."""
    for item in work:
        if isinstance(item, _Returned):
            close_unawaited(item.answer)


def _texts_for_servers(work: Sequence[_Work]) -> list[str]:
    """Return the prompts that servers are sent, without those of people and scripts."""
    texts: list[str] = []
    for item in work:
        # Tuples, since this runs for each question, and a union would be made anew each time.
        if isinstance(item, (ToModel, _ToMeasure)):
            backend = getattr(item.client, "backend", None)
            if not isinstance(backend, (ScriptedBackend, Person)):
                texts.append(item.text)
    return texts


def _measured_together(work: Sequence[_Work]) -> list[_Work]:
    """Return the work with a single measurement for players with the same model and prompt.

    The model gives the same probabilities for all of them.
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


def first_names(names: Sequence[str]) -> str:
    """Return the first three names, for messages."""
    return ", ".join(map(str, names[:3])) or "no player"
