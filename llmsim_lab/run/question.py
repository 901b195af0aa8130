"""A question to a player: its text, what may be answered, and who is asked.

``Batch`` is what the questions of one ``ask.each`` have in common. ``AskedQuestion`` is one of
these questions on its way to an answer. ``Question`` is what a rule is given of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from inspect import isawaitable, iscoroutine
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeVar

from llmsim_lab._util.text import brief, clip, closest, error_text
from llmsim_lab.errors import ConfigError, LabError, PromptError
from llmsim_lab.llm import LLMClient, Person
from llmsim_lab.llm.bounds import EVERYTHING, Allowed, Limits, allowed_of, own_limits
from llmsim_lab.llm.choice import Decide
from llmsim_lab.llm.client import checked_client
from llmsim_lab.llm.scope import scoped
from llmsim_lab.prompts import Prompt
from llmsim_lab.prompts.prompt import RenderedPrompt
from llmsim_lab.run._personas import ending_of, persona_slots, persona_text
from llmsim_lab.run._run_prompts import PromptsInUse, UsedPrompt
from llmsim_lab.run.config import OnError, WorldConfig, players_seed
from llmsim_lab.run.plain_prompts import dedented, has_slots
from llmsim_lab.run.turn import Answer
from llmsim_lab.types import CallSite, Decision, Number, Reply

Source = str | Path | Prompt | Callable[[str], str]
"""A prompt as a question names it; a function of the player's name returns the text itself."""
ForPeople = str | Callable[[str], str]
"""A text for people, with the slots of a prompt; or a function of the player's name."""
OfPlayer = Callable[[str], object]
"""A function of a player's name."""
ReplyT = TypeVar("ReplyT", bound=Decision)
ByModel = Callable[["Question", LLMClient], Awaitable[ReplyT]]
"""Asks a model in a conversation: a function of the question, and of the client in the seat."""

SLOTS_OF_ALL = ("name", "state", "run", "turn", "turns")
"""The slots that every prompt may have: the run gives their values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedTurn:
    """What all questions of a turn have in common.

    Attributes:
        number: the number of the turn that is being played.
        state: the state before the turn, as players read it.
        config: the run's configuration.
        prompts: the prompts that the run asks with.
        is_replay: True if the turn was played before, so that no warning is logged again.
    """

    number: int
    state: Any
    config: WorldConfig
    prompts: PromptsInUse
    is_replay: bool


class _SlotValues(NamedTuple):
    """What fills a prompt's slots: functions of the player's name, and values shared by all."""

    by_player: Mapping[str, OfPlayer]
    shared: Mapping[str, object]


class _BatchPrompt:
    """A question's prompt, to be filled in for one player after another."""

    __slots__ = ("_fill", "_prompt", "values")

    def __init__(self, prompt: Prompt | str, values: _SlotValues) -> None:
        self._prompt = prompt
        self._fill: Callable[..., RenderedPrompt] | None = None
        self.values = values

    def text(self, values_of_player: Mapping[str, object]) -> str:
        """Return the text with a player's own values; shared values are filled in only once."""
        if isinstance(self._prompt, str):
            return self._prompt
        # Made on first use, since rules need no text. Shared values are written out once here: a
        # dict of all players would otherwise be written out again for each of them.
        if self._fill is None:
            self._fill = self._prompt.sharing(self.values.shared)
        return self._fill(values_of_player)


@dataclass(slots=True, kw_only=True)
class Batch:
    """What the questions of one ``ask.each`` have in common, and what is made from it once for all.

    The first fields are the arguments of ``ask``.
    """

    turn: AskedTurn
    reply: type[Decision]
    prompt: Source
    system: str = ""
    by: str = ""
    tag: str = ""
    limits: Limits | Callable[[str], Limits] | None = None
    decide: Decide | None = None
    fallback: object = None
    on_error: OnError | None = None
    values: Mapping[str, object] = field(default_factory=dict)
    for_people: ForPeople = ""
    """What people are shown instead of the prompt; empty for the prompt itself."""
    by_model: ByModel[Decision] | None = None
    """Asks a model in a conversation, instead of sending it the prompt in one call."""
    name: str = field(default="", init=False)
    """The name of a prompt without slots: its kind of question, and its position in the turn."""
    answers: list[Answer] = field(default_factory=list, init=False)
    """The answers that no call on the tape has by itself."""
    fault: LabError | None = field(default=None, init=False)
    """The error of the world's own code, such as that of ``limits=``. It ends the turn, even if a
    player that met it by reading the question caught it, and answered all the same."""
    _prepared: _BatchPrompt | None = field(default=None, init=False)
    _for_people: _BatchPrompt | None = field(default=None, init=False)
    _allowed_to_all: Allowed | None = field(default=None, init=False)
    _allowed_by_limits: dict[str, Allowed] = field(default_factory=dict, init=False)

    @property
    def component(self) -> str:
        """The role in which the players are asked: ``by``, the tag, or ``player``."""
        return self.by or self.tag or "player"

    @property
    def place(self) -> str:
        """The question in words, for messages."""
        return place_of(self.turn.number, self.reply, self.tag)

    def value_for(
        self,
        name: str,
        function: OfPlayer,
        player: str,
    ) -> Any:
        """Call a function that the world gave, and return its value for a player.

        Args:
            name: the argument that the function was given as, such as ``limits``.
            function: the function, which takes the player's name.
            player: the player's name.

        Raises:
            ConfigError: the function raised, or is async.
            LabError: the function itself raised this.
        """
        try:
            value = function(player)
        except LabError as error:  # it says what is wrong, and its class may be a user's own
            # The place goes into a note, so that class and message stay as they are.
            error.add_note(f"{self.place}: the function {name}= raised this for {player}.")
            self.fault = error
            raise
        except Exception as error:
            self.fault = ConfigError(
                f"{self.place}: the function {name}= failed for {player}: {error_text(error)}"
            )
            raise self.fault from error
        # Most values are texts. They need no isawaitable, which is slow.
        if not isinstance(value, str) and isawaitable(value):
            # Closed, since Python would also warn of it after this error.
            close_unawaited(value)
            self.fault = ConfigError(
                f"{self.place}: the function {name}= is async, and a question does not wait for "
                f"it; await it before: found = await ..., {name}=lambda name: found[name]"
            )
            raise self.fault
        return value

    # --- the text ----------------------------------------------------------------------------

    def prepared(self, whom: str) -> _BatchPrompt:
        """Return the prompt, ready to be filled in; only for a prompt that is not a function.

        Args:
            whom: the first player who is asked, for messages.
        """
        if self._prepared is None:
            used = self.turn.prompts.named(
                self.prompt,
                self.reply,
                self.name,
                self.system,
                is_replay=self.turn.is_replay,
                # ``by=`` names a judge, who is not a player and has no persona.
                ending=None if self.by else partial(ending_of, self.turn.config),
            )
            self._prepared = _BatchPrompt(used.prompt, self._slot_values(whom, used))
        return self._prepared

    def text_for(self, player: str) -> object:
        """Return the prompt filled in for a player; a function may have returned something else."""
        if callable(self.prompt):
            return self._text_of_function(self.prompt, player)
        prompt = self.prepared(player)
        return prompt.text(self._values_for(prompt.values, player))

    def prepared_for_people(self, whom: str) -> _BatchPrompt:
        """Return the text for people, which is read once and is not one of the run's prompts.

        Raises:
            PromptError: a slot has no value.
        """
        if self._for_people is None:
            text = dedented(str(self.for_people))
            prompt = Prompt(text) if has_slots(text) else text
            # Marked as edited, so that it need not have a slot for each of the prompt's values.
            values = self._slot_values(whom, UsedPrompt(prompt, is_edited=True))
            self._for_people = _BatchPrompt(prompt, values)
        return self._for_people

    def text_for_people(self, player: str) -> str:
        """Return the text for a player who is a person; empty if the prompt itself is shown."""
        if callable(self.for_people):
            return str(self.value_for("for_people", self.for_people, player))
        if not self.for_people:
            return ""
        prompt = self.prepared_for_people(player)
        return str(prompt.text(self._values_for(prompt.values, player)))

    def _text_of_function(
        self,
        function: Callable[[str], str],
        player: str,
    ) -> object:
        """Return the text that a function returns, or the edit that a fork put in its place."""
        text = self.value_for("prompt", function, player)
        # ``by=`` names a judge, who is not a player and has no persona.
        if not self.by:
            text = persona_text(
                text,
                self.turn.config,
                player,
                self.place,
            )
        if type(text) is not str:  # such as a filled prompt, which needs no name of its own
            if isinstance(text, RenderedPrompt) and self.system:
                raise PromptError(
                    f"system={clip(self.system, 40)!r} goes with a function that returns a plain "
                    f"text, and this one returns the filled prompt {text.template.name!r}; give "
                    "that the system message: Prompt(..., system=...)"
                )
            return text
        used = self.turn.prompts.plain(
            text,
            self.name,
            self.system,
            is_replay=self.turn.is_replay,
        )
        if isinstance(used.prompt, str):
            return used.prompt
        # A fork or a study edited the text, and may have given it slots. Values without a slot are
        # allowed, since rules read them.
        values = self._slot_values(player, UsedPrompt(used.prompt, is_edited=True))
        return _BatchPrompt(used.prompt, values).text(self._values_for(values, player))

    def _values_for(
        self,
        values: _SlotValues,
        player: str,
    ) -> dict[str, object]:
        return {
            slot: self.value_for(slot, function, player)
            for slot, function in values.by_player.items()
        }

    def _slot_values(self, whom: str, used: UsedPrompt) -> _SlotValues:
        """Return what fills a prompt's slots.

        Raises:
            PromptError: a slot has no value, or a value has no slot.
        """
        turn = self.turn
        values_by_slot: dict[str, object] = {
            **persona_slots(turn.config),
            # A function is called with each player's name; ``str`` returns the name itself.
            "name": str,
            "state": turn.state,
            "run": turn.config,
            "turn": turn.number,
            "turns": turn.config.turns,
            **self.values,
        }
        # A text without slots takes no values. Any values given are for rules.
        slots = used.prompt.slots if isinstance(used.prompt, Prompt) else ()
        unfilled = {*slots} - values_by_slot.keys()
        unused = self.values.keys() - {*slots}
        # An edited prompt may leave out what the question gives. In the world's own prompt that is
        # a mistake.
        if unfilled or (unused and not used.is_edited):
            raise _slots_differ(
                whom,
                unfilled,
                unused,
                list(values_by_slot),
            )
        by_player: dict[str, OfPlayer] = {}
        shared: dict[str, object] = {}
        for slot in slots:
            value = values_by_slot[slot]
            if callable(value):
                # Called only for players who are sent the prompt.
                by_player[slot] = value
            else:
                shared[slot] = value
        return _SlotValues(by_player, shared)

    # --- what is allowed ---------------------------------------------------------------------

    def allowed(self, player: str) -> Allowed:
        """Return what a player may answer; equal limits are compiled once."""
        if self.limits is None:
            return EVERYTHING
        # Kept, since compiling limits takes longer than checking an answer.
        if not callable(self.limits):
            if self._allowed_to_all is None:
                self._allowed_to_all = self._allowed_by(player, _by_field(player, self.limits))
            return self._allowed_to_all
        # Each player may have its own limits; many have the same.
        limits = _by_field(player, self.value_for("limits", self.limits, player))
        key = repr(limits)  # as a text, since 1, 1.0 and True are equal
        if key not in self._allowed_by_limits:
            self._allowed_by_limits[key] = self._allowed_by(player, limits)
        return self._allowed_by_limits[key]

    def _allowed_by(self, player: str, limits: Limits) -> Allowed:
        return allowed_of(player, self.reply, limits) if limits else EVERYTHING


_PARAMETERS = {"player"} | {
    parameter.name
    for parameter in fields(Batch)
    if parameter.init and parameter.name not in ("turn", "by_model")
}
"""The names of the parameters of ``ask``, which cannot be given as values of slots."""


def _slots_differ(
    whom: str,
    unfilled: set[str],
    unused: set[str],
    slot_names: list[str],
) -> PromptError:
    """Return the error for a prompt with slots that have no value, or values that have no slot.

    Args:
        whom: the first player who is asked.
        unfilled: slots without a value.
        unused: values without a slot.
        slot_names: the slots that have values.
    """
    taken = unfilled & _PARAMETERS
    if taken:
        slot = min(taken)
        return PromptError(
            f"the prompt to {whom} has the slot {{{{ {slot} }}}}, and {slot}= is a parameter of "
            f"ask itself; call the slot something else: {{{{ the_{slot} }}}}, the_{slot}=..."
        )
    wrong = [
        f"nothing fills {{{{ {name} }}}}{closest(name, slot_names)}" for name in sorted(unfilled)
    ]
    wrong += [f"it has no slot {{{{ {name} }}}}" for name in sorted(unused)]
    lacking = min(unfilled | unused)
    return PromptError(
        f"the prompt to {whom}: {'; '.join(wrong)}; it may use {', '.join(slot_names)}, and what "
        f"the question gives: ask(..., {lacking}=...) fills {{{{ {lacking} }}}}"
    )


def _by_field(player: str, limits: object) -> Limits:
    """Return limits by field; ranges and the arrays of numpy and pandas become lists.

    Raises:
        ConfigError: the limits are not by field.
    """
    if not limits:
        return {}
    if not isinstance(limits, Mapping):
        raise ConfigError(
            f"limits of {player} are {brief(limits, 80)}; write what is allowed by field, (lowest, "
            "highest) or a list: limits={'amount': (0, 5)}"
        )
    as_lists = dict(limits)
    for name, values in limits.items():
        if isinstance(values, range):
            # A range lists the allowed values: it is not a lowest and a highest one.
            as_lists[name] = list(values)
        elif hasattr(values, "tolist"):
            as_lists[name] = values.tolist()
    return as_lists


class AskedQuestion:
    """One question to one player, on its way to an answer.

    Args:
        batch: what the question has in common with others.
        player: the player who is asked; with ``by=``, the player that the question is about.
        number: how often the player was asked this kind of question in the turn, this time
            included. None if a second task asks the player as well: then the questions have no
            order.

    Attributes:
        allowed: what the player may answer.
        decision: the answer, once there is one.
    """

    # Slots, since a turn of a thousand players makes a thousand of these.
    __slots__ = ("_number", "_rng", "_site", "allowed", "batch", "decision", "player")

    def __init__(
        self,
        batch: Batch,
        player: str,
        number: int | None,
    ) -> None:
        self.batch = batch
        self.player = player
        self._number = number
        self.allowed = batch.allowed(player)
        self.decision: Decision | None = None
        self._rng: Random | None = None
        self._site: CallSite | None = None

    @property
    def answerer(self) -> str:
        """Who answers: the player, or the name in ``by=``."""
        return self.batch.by or self.player

    @property
    def site(self) -> CallSite:
        """The question's place in the run."""
        if self._site is None:
            self._site = CallSite(
                component=self.batch.component,
                agent=self.player,
                turn=self.batch.turn.number,
            )
        return self._site

    @property
    def rng(self) -> Random:
        """The player's random numbers, for its answer."""
        if self._rng is None:
            self._rng = self.random("rule")
        return self._rng

    def random(self, purpose: str) -> Random:
        """Return the player's random numbers for one purpose; a replay draws the same.

        Raises:
            ConfigError: another task asks the player as well.
        """
        # In a replay the random numbers would go to another question.
        if self._number is None:
            raise ConfigError(
                f"{self.player} is asked by two tasks and answers by chance: a replay may ask in "
                "another order; tell the questions apart: ask(..., tag='second')"
            )
        kind = self.batch.tag or self.batch.by
        # The name that recordings have: another name would draw other numbers.
        name = f"{self.player}, {kind}" if kind else self.player
        if self._number > 1:
            name = f"{name}, question {self._number}"
        turn = self.batch.turn
        return Random(f"{players_seed(turn.config)}/{turn.number}/{purpose} of {name}")

    def text(self) -> str:
        """Return the question as a model would be sent it.

        Raises:
            PromptError: a slot cannot be filled.
            ConfigError: a function of the name did not return a text.
        """
        batch = self.batch
        try:
            text = batch.text_for(self.player)
        except PromptError as error:
            batch.fault = PromptError(f"{batch.place}, to {self.player}: {error}")
            raise batch.fault from error
        if not isinstance(text, str):
            batch.fault = ConfigError(
                f"{batch.place}: the prompt to {self.player} is {brief(text)}; a function of the "
                "name returns the text: self.prompt(...).render(...)"
            )
            raise batch.fault
        return text

    def send(self, client: LLMClient, prompt: str) -> Awaitable[Decision]:
        """Return an awaitable that asks a client; ``prompt`` is the whole text."""
        ask = client.call_with_retry
        is_person = isinstance(getattr(client, "backend", None), Person)
        rationale = self.batch.turn.config.rationale
        # Passed only where it matters: a client around another one need not know the argument, and
        # classes other than Reply have a fixed place for the reasoning.
        if rationale != "before" and issubclass(self.batch.reply, Reply):
            ask = partial(ask, rationale=rationale)
        asking = ask(
            prompt=prompt,
            response_model=self.batch.reply,
            choices=self.allowed.choices or None,
            limits=self.allowed.ranges or None,
            check=self.allowed.complaint,
            site=self.site,
        )
        return self._shown(asking) if is_person else asking

    async def _shown(self, asking: Awaitable[Decision]) -> Decision:
        """Wait for a person's answer; the person is shown the text for people, if there is one."""
        try:
            text = self.batch.text_for_people(self.player)
        except BaseException:
            close_unawaited(asking)
            raise
        with scoped(for_people=text, answerer=self.answerer):
            return await asking


class Question:
    """What a rule is given of a question."""

    __slots__ = ("_asked",)

    def __init__(self, question: AskedQuestion) -> None:
        self._asked = question

    @property
    def player(self) -> str:
        """The player who is asked; with ``by=``, the player that the question is about."""
        return self._asked.player

    @property
    def reply(self) -> type[Decision]:
        """The class of the answer."""
        return self._asked.batch.reply

    @property
    def state(self) -> Any:
        """The state before the turn, as players read it."""
        return self._asked.batch.turn.state

    @property
    def run(self) -> Any:
        """The world's parameters, such as ``question.run.factor``."""
        return self._asked.batch.turn.config

    @property
    def turn(self) -> int:
        """The number of the turn that is being played."""
        return self._asked.batch.turn.number

    @property
    def tag(self) -> str:
        """The question's tag, which tells apart several questions of a turn."""
        return self._asked.batch.tag

    @property
    def by(self) -> str:
        """Who answers, if it is not the player."""
        return self._asked.batch.by

    @property
    def decide(self) -> Decide | None:
        """How a model's answer is taken from its probabilities; None if it gives one answer."""
        return self._asked.batch.decide

    @property
    def values(self) -> Mapping[str, Any]:
        """The values given for the prompt's slots; for functions of the name, what they return."""
        batch = self._asked.batch
        values = dict(batch.values)
        for name, value in values.items():
            if callable(value):
                # A rule gets the value for its player, as a prompt would.
                values[name] = batch.value_for(name, value, self.player)
        return values

    @property
    def limits(self) -> Mapping[str, tuple[Number, Number] | list[Any]]:
        """What is allowed, by field: ``(lowest, highest)``, or a list of values.

        These are the question's limits; for other fields, the limits of the reply's class.
        """
        return limits_of(self._asked)

    @property
    def rng(self) -> Random:
        """The player's random numbers; a replay draws the same.

        They follow from the run's seed and replicate, so another sample draws others.

        Raises:
            ConfigError: a second task asks the player as well, so that the questions have no order.
        """
        return self._asked.rng

    @property
    def prompt(self) -> str:
        """The question as a model would be sent it."""
        return self._asked.text()

    @property
    def site(self) -> CallSite:
        """The question's place in the run."""
        return self._asked.site

    async def put_to(self, client: LLMClient, prompt: str = "") -> Any:
        """Ask a model, as the run asks its own; for players who prepare the prompt themselves.

        Args:
            client: the model.
            prompt: the whole prompt, instead of the question's own.

        Raises:
            ConfigError: ``client`` is not a client.
            LLMFailureException: the model failed to answer.
        """
        checked_client(client, "client", ("call_with_retry",))
        return await self._asked.send(client, prompt or self.prompt)


def place_of(
    turn: int,
    reply: type[Decision],
    tag: str,
) -> str:
    """Return the question in words: ``turn 3, Gift (tag 'second')``."""
    suffix = f" (tag {tag!r})" if tag else ""
    return f"turn {turn}, {reply.__name__}{suffix}"


def limits_of(question: AskedQuestion) -> dict[str, tuple[Number, Number] | list[Any]]:
    """Return what is allowed, by field; see ``Question.limits``."""
    chosen = {name: list(values) for name, values in question.allowed.choices.items()}
    # The question's limits come last: they are narrower.
    return {
        **own_limits(question.batch.reply),
        **question.allowed.ranges,
        **chosen,
    }


def close_unawaited(awaitable: object) -> None:
    """Close a coroutine that will not be awaited; Python would warn of it."""
    if iscoroutine(awaitable):
        awaitable.close()
