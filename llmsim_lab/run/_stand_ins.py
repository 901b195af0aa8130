"""Answers of code, and the answers that stand in where a player fails.

A person who does not answer has a stand-in of their own: ``fill_in``. A model that fails has the
question's ``fallback=``: ``model_failed``. Code that raises, or answers what is not allowed, has
``fallback=`` or a random answer if ``on_error`` allows it: ``code_raised`` and ``_code_failed``.
Each of these takes a stand-in, or raises an error that names the question.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from functools import partial
from inspect import isawaitable
from typing import NamedTuple

from llmsim_lab._util.text import error_text, log_event
from llmsim_lab.errors import (
    BudgetReached,
    ConfigError,
    LabError,
    LLMFailureException,
    TapeError,
)
from llmsim_lab.llm import LLMClient, Person
from llmsim_lab.llm.chains import FORGIVEN
from llmsim_lab.llm.human import StandIn
from llmsim_lab.llm.scope import caller
from llmsim_lab.run._any_run import AnyRun, Warnings
from llmsim_lab.run.answers import answer_by_code, as_reply, fallback_of, rule_of
from llmsim_lab.run.chance import random_reply
from llmsim_lab.run.question import AskedQuestion, AskedTurn, Question
from llmsim_lab.run.turn import Answer
from llmsim_lab.types import CallRecord, Decision

_warn = partial(log_event, logging.getLogger(__name__), logging.WARNING)


class ToModel(NamedTuple):
    """A question that is sent to a model or a person."""

    client: LLMClient
    question: AskedQuestion
    text: str


class _Substitute(NamedTuple):
    """An answer given for a person who did not answer.

    Attributes:
        decision: the answer.
        filled_by: ``random``, ``rule``, or the name of the model that gave it.
        reason: why the person's own answer is missing.
        calls: the calls that were made for it, without the person's.
    """

    decision: Decision
    filled_by: str
    reason: str
    calls: tuple[CallRecord, ...] = ()


class StandIns:
    """Takes the answers of a turn's code, and finds a stand-in for each answer that fails.

    Attributes:
        counts: how often a stand-in answered in this turn, by the player whose answer failed.
    """

    def __init__(
        self,
        run: AnyRun,
        turn: AskedTurn,
        warnings: Warnings,
    ) -> None:
        self.counts = Counter[str]()
        self._run = run
        self._turn = turn
        self._warnings = warnings

    # --- code answers, or fails --------------------------------------------------------------

    def take_answer(self, answer: object, question: AskedQuestion) -> None:
        """Take what code answered, and record the answer unless a call on the tape has it."""
        batch = question.batch
        if batch.fault is not None:
            raise batch.fault
        record: Answer | None = None
        try:
            decision = as_reply(answer, question, rule_of)
            # A function may ask a model by itself; then the call on the tape has the answer.
            if decision.call is None:
                record = answer_by_code(decision, question)
        except ConfigError as fault:
            self._code_failed(fault, question)
        except Exception as error:  # noqa: BLE001 - code of the answer's class raises anything
            self.code_raised(error, question)
        else:
            question.decision = decision
            if record is not None:
                batch.answers.append(record)

    def code_raised(self, error: BaseException, question: AskedQuestion) -> None:
        """Take a stand-in for a function that raised, or raise an error that names the question."""
        if question.batch.fault is not None:
            raise question.batch.fault
        # These stop the whole run; they are not failures of the player.
        if isinstance(error, TapeError | BudgetReached):
            raise error
        falls_back = self._falls_back(question)
        # A function may have asked a model by itself, with Question.put_to.
        if isinstance(error, LLMFailureException):
            if not falls_back and question.batch.fallback is None:
                raise error
            self._stand_in_for_model(error, question, failed_calls(error))
            return
        if falls_back:
            fault = ConfigError(f"{rule_of(question)} failed: {error_text(error)}")
            self._code_failed(fault, question)
            return
        raise ConfigError(
            f"{rule_of(question)} failed: {error_text(error)}; repair it, or let a stand-in "
            f"answer: {type(self._run).__name__}(..., on_error='fallback')"
        ) from error

    def _code_failed(self, fault: ConfigError, question: AskedQuestion) -> None:
        """Take a stand-in for a function or rule if ``on_error`` allows it; else raise."""
        if not self._falls_back(question):
            raise fault
        answerer = question.answerer
        # One warning for each who fails: a wrong rule fails for every player in every turn.
        if not self.counts[answerer] and answerer not in self._warnings.stand_ins:
            _warn(
                "FALLBACK",
                words=f"{fault}. A stand-in answers, here and whenever {answerer} fails again.",
                agent=question.player,
                component=question.batch.component,
                turn=self._turn.number,
                detail=fault,
            )
        self._stand_in(fault, question)

    def _falls_back(self, question: AskedQuestion) -> bool:
        on_error = question.batch.on_error or self._turn.config.on_error
        return on_error == "fallback"

    # --- a model fails -----------------------------------------------------------------------

    def asking_failed(self, error: Exception, question: AskedQuestion) -> None:
        """Take a stand-in for a model that failed, or raise an error that names the question."""
        if isinstance(error, LLMFailureException):
            self.model_failed(error, question, failed_calls(error))
        elif isinstance(error, LabError):
            raise error
        else:
            raise ConfigError(
                f"{question.batch.place}: asking {caller(question.site)} failed: "
                f"{error_text(error)}"
            ) from error

    def model_failed(
        self,
        failure: LLMFailureException,
        question: AskedQuestion,
        calls: tuple[CallRecord, ...],
    ) -> None:
        """Take the question's ``fallback`` for a model that failed; raise if it has none.

        Args:
            failure: how the model failed.
            question: the question.
            calls: the failed calls that the question's record is to have.
        """
        if question.batch.fallback is None:
            raise failure
        self._stand_in_for_model(failure, question, calls)

    def _stand_in_for_model(
        self,
        failure: LLMFailureException,
        question: AskedQuestion,
        calls: tuple[CallRecord, ...],
    ) -> None:
        # No stand-in for a server that cannot be reached: all later turns would be stand-ins.
        if failure.reason not in FORGIVEN:
            raise failure
        site = question.site
        turn = self._turn.number
        _warn(
            "FALLBACK",
            words=f"Turn {turn}, {caller(site)}: no valid answer; another stands in: {failure}",
            agent=question.player,
            component=site.component,
            turn=turn,
            reason=failure.reason,
            detail=failure.detail,
        )
        self._stand_in(failure, question, calls)

    def _stand_in(
        self,
        error: LabError,
        question: AskedQuestion,
        calls: tuple[CallRecord, ...] = (),
    ) -> None:
        """Take and record the question's ``fallback``, or a random answer if it has none."""
        batch = question.batch
        answer = batch.fallback
        if callable(answer):
            answer = batch.value_for("fallback", answer, question.player)
        if batch.fallback is None:
            answer = random_reply(question, question.random("stand-in"))
        # Checked as a rule's answer is: a stand-in keeps to the limits too.
        question.decision = as_reply(answer, question, fallback_of)
        self.counts[question.answerer] += 1
        record = answer_by_code(
            question.decision,
            question,
            f"stands in: {error}",
            calls=calls,
        )
        # The confidence in a fallback's fields is not the player's.
        batch.answers.append(
            replace(
                record,
                status="fallback",
                confidence=None,
            )
        )

    # --- a person does not answer ------------------------------------------------------------

    async def answer_failed(self, error: Exception, sent: ToModel) -> None:
        """Take a stand-in for a person who does not answer; else do as ``asking_failed``."""
        backend = getattr(sent.client, "backend", None)
        stand_in = backend.stand_in if isinstance(backend, Person) else ""
        if stand_in and isinstance(error, LLMFailureException) and error.reason in FORGIVEN:
            await self._fill_in(stand_in, error, sent)
        else:
            self.asking_failed(error, sent.question)

    async def _fill_in(
        self,
        stand_in: StandIn,
        failure: LLMFailureException,
        sent: ToModel,
    ) -> None:
        """Take and record the answer of a person's stand-in.

        Args:
            stand_in: who answers for the person.
            failure: how asking the person failed.
            sent: the person's question.
        """
        question = sent.question
        model = self._run.llm_client
        if stand_in == "model" and model is not None:
            substitute = await self._ask_model_instead(model, failure, sent)
        elif stand_in == "rule":
            try:
                answer = await self._ask_rule(question)
            except Exception as error:  # noqa: BLE001 - a world's own code raises anything
                self.code_raised(error, question)
                return
            decision = as_reply(answer, question, rule_of)
            substitute = _Substitute(decision, stand_in, failure.detail)
        else:
            # A world without a model has a random answer in its place, and says "model" all the
            # same: recordings have it so.
            chance = random_reply(question, question.random("stand-in"))
            substitute = _Substitute(chance, stand_in, failure.detail)
        question.decision = substitute.decision
        self.counts[question.answerer] += 1
        record = answer_by_code(
            substitute.decision,
            question,
            f"{substitute.filled_by} answers for {caller(question.site)}: {substitute.reason}",
            # The person's call too, so that the tape shows why another one answers.
            calls=(*failed_calls(failure), *substitute.calls),
        )
        question.batch.answers.append(
            replace(
                record,
                status="fallback",
                confidence=None,
                filled_by=substitute.filled_by,
            )
        )

    async def _ask_model_instead(
        self,
        model: LLMClient,
        failure: LLMFailureException,
        sent: ToModel,
    ) -> _Substitute:
        """Return the model's answer to a person's question, or a random one if it fails too."""
        question = sent.question
        name = model.config.model
        try:
            decision = await question.send(model, sent.text)
        except LLMFailureException as error:
            # Random, since the other people of the group wait for this turn.
            return _Substitute(
                decision=random_reply(question, question.random("stand-in")),
                filled_by="random",
                reason=f"{failure.detail}; {name} failed: {error.detail}",
                calls=failed_calls(error),
            )
        calls = () if decision.call is None else (decision.call,)
        return _Substitute(
            decision,
            name,
            failure.detail,
            calls,
        )

    async def _ask_rule(self, question: AskedQuestion) -> object:
        rule = getattr(self._run, "rule")  # noqa: B009 - a world need not have one
        answer: object = rule(Question(question))
        if isawaitable(answer):
            answer = await answer
        return answer


def failed_calls(failure: LLMFailureException) -> tuple[CallRecord, ...]:
    """Return the call that failed, if one was made."""
    return () if failure.call is None else (failure.call,)
