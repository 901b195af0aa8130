"""A conversation with the assistant: a run whose turns are messages.

What the user says comes from outside, like an intervention in other runs. So a tape holds it, and a
conversation is replayed, resumed, forked and run again like any run. Shown as text and HTML, all
that people, models and tools say is escaped.
"""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NoReturn, Self

from markupsafe import Markup
from pydantic import Field, field_validator

from llmsim_lab._util.html import (
    ADDED,
    AS_WRITTEN,
    BUBBLE,
    INK,
    QUIET,
    STRONG,
    details,
    join,
    pairs,
    pre,
    safe,
    styled,
    visible,
)
from llmsim_lab._util.text import clip
from llmsim_lab.assistant._adapter import OllamaAdapter
from llmsim_lab.assistant._engine import LLMAgentEngine
from llmsim_lab.assistant._function_tools import FunctionTools
from llmsim_lab.assistant._recorded_tools import RecordedTools
from llmsim_lab.assistant._toolbox import json_text
from llmsim_lab.assistant._types import (
    AgentDecision,
    AgentEngineConfig,
    DecisionContext,
    Message,
    PendingAction,
    ToolCall,
    ToolDeclaration,
    ToolExecutor,
    ToolResult,
)
from llmsim_lab.errors import ConfigError, TapeMiss
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.prompts import Prompt
from llmsim_lab.run import Run, State
from llmsim_lab.run._config import GONE_SETTINGS, RunConfig, RunIntervention
from llmsim_lab.run._session import Replaying
from llmsim_lab.run._turn import RunTurn
from llmsim_lab.types import Value

_TOOL_SHARE = 0.8
"""A tool times out before the engine gives it up, since the tape would lack its result then."""
_CONSTITUTION = "constitution"
_MAX_CHARS = 4_000
_MAX_SHOWN = 50
"""How many of the latest messages are shown, so that a long conversation is displayed quickly."""


class UserMessage(RunIntervention):
    """What the user says at a turn.

    Attributes:
        message: the text.
    """

    message: str

    @field_validator("message")
    @classmethod
    def _some(cls, message: str) -> str:
        if not message.strip():
            raise ValueError("the message is empty")
        return message

    def check(self, run: Any) -> None:
        """Raise ConfigError if the turn has been answered."""
        if self.turn <= run.turn_number:
            raise ConfigError(
                f"turn {self.turn} has been answered; say it at turn {run.turn_number + 1}"
            )

    def applied(self, state: Any, run: Any) -> Any:
        """Return the state as it is: the turn has answered what was said."""
        return state

    def __str__(self) -> str:
        return f"turn {self.turn}: {clip(self.message, 200)}"


class ChatConfig(RunConfig):
    """What a conversation is configured with.

    Attributes:
        name: the conversation's.
        turns: most messages that ``run()`` answers; it ends when none is known any more.
        user_id: who writes, as authenticated.
        constitution: the system prompt; ``load_constitution()`` has the shipped one.
        engine: the engine's settings.
        interventions: what the user says, and when, as far as it is known before.
    """

    name: Annotated[str, Field(min_length=1)] = "chat"
    turns: Annotated[int, Field(ge=0, le=100_000)] = 1000
    user_id: Annotated[str, Field(min_length=1)]
    constitution: str = ""
    engine: AgentEngineConfig = Field(default_factory=AgentEngineConfig)
    interventions: tuple[UserMessage, ...] = ()

    @classmethod
    def recorded(cls, values: Mapping[str, Any]) -> Self:
        """Return the configuration that a tape holds.

        Raises:
            ValidationError: it is not such a configuration.
        """
        engine = dict(values.get("engine", {}))
        kept = {name: engine[name] for name in engine if name not in GONE_SETTINGS}
        return super().recorded({**values, "engine": kept})


class ChatState(State):
    """What a conversation continues from.

    Attributes:
        said: the messages of both, oldest first: the latest ones, as many as the configured engine
            shows its model; all of them if an engine was given.
        pending: what waits for a yes.
    """

    said: tuple[Message, ...] = ()
    pending: PendingAction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTurn(RunTurn[ChatState, UserMessage]):
    """A message and what was decided about it.

    Attributes:
        decision: the decision; None in the first turn. Turns are compared without it, by the state
            and the row of the frame, which have all of it that later turns depend on.
    """

    decision: AgentDecision | None = field(default=None, compare=False)

    @property
    def message(self) -> str:
        """What the user wrote."""
        return self.interventions[-1].message if self.interventions else ""

    def own_columns(self) -> dict[str, Any]:
        """Return the message, the kind of decision, the tools that ran, and the answer."""
        if self.decision is None:
            return {}
        return {
            "message": self.message,
            "decision": str(self.decision.decision_type),
            "tools": ", ".join(call.tool_name for call in self.decision.tool_calls or ()),
            "answer": self.decision.text,
        }

    def in_words(self) -> Sequence[str]:
        """Return what was said and done."""
        if self.decision is None:
            return ["nothing was said yet"]
        return _exchange_text(self.message, self.decision).splitlines()


class Exchange(Value):
    """A message and what was decided about it.

    Attributes:
        number: its place in the conversation, from 1.
        message: what the user wrote.
        decision: what was decided.
    """

    number: int
    message: str
    decision: AgentDecision


class Chat(Run[ChatState, ChatTurn, ChatConfig, UserMessage]):
    """A conversation: keeps what was said, which the engine itself does not, one message a turn.

    A replay answers the recorded messages only, in their order. ``send`` says the next one;
    ``run`` answers those that are known already: recorded ones, those of a fork's origin, and those
    planned with ``intervene(turn, message="...")``. The tools' results are on the tape like the
    model's replies, so a replay runs no tool; a conversation that continues live needs ``tools``
    again.

    Args:
        config: what to run; or what decides, an engine or its ``process_message``, for a
            conversation of ``user_id``.
        user_id: who writes, as authenticated, if an engine is given.
        conversation_id: the conversation's name, if an engine is given.
        llm_client: the model, for an engine made from the configuration.
        tools: runs the tools of that engine; none if not given.
        engine: decides, instead of the configured one. No tape can hold it, nor what its tools
            return, unless it runs them through ``RecordedTools``.
        state: what was said before.
        tape: where to record the conversation: a tape, or a file that becomes or is one.
        prompts: recorded ones: ``constitution``.

    Raises:
        ConfigError: there is no ``user_id``, or neither a model nor an engine.

    Example:
        >>> chat = Chat(engine, user_id="ann")
        >>> decision = await chat.send("Add milk to my list")
    """

    kind = "assistant"
    part_names = ("engine", "tools")
    repeats_interventions = True

    def __init__(
        self,
        config: ChatConfig | Any,
        *,
        user_id: str = "",
        conversation_id: str = "chat",
        llm_client: LLMClient | None = None,
        tools: ToolExecutor | None = None,
        engine: Any = None,
        state: ChatState | None = None,
        tape: Tape | str | Path | None = None,
        prompts: Mapping[str, Prompt] | None = None,
    ) -> None:
        if not isinstance(config, ChatConfig):
            if not user_id:
                raise ConfigError("user_id is empty; say who writes, such as user_id='ann'")
            engine, config = config, ChatConfig(user_id=user_id, name=conversation_id)
        self.engine = engine
        self.tools = (
            tools
            if isinstance(tools, RecordedTools)
            else RecordedTools(
                FunctionTools() if tools is None else tools,
                timeout_s=_TOOL_SHARE * config.engine.timeout_seconds,
            )
        )
        self._constitution: Prompt | None = None
        if engine is None:
            engine, self._constitution = self._made(config, llm_client, prompts or {})
        self._decide = getattr(engine, "process_message", engine)
        self._lock = threading.Lock()
        self._token = uuid.uuid4().hex  # one engine may serve several conversations of a name
        super().__init__(
            config,
            first=ChatTurn(number=0, state=state or ChatState()),
            llm_client=llm_client,
            given=["engine"] if self.engine is not None else [],
            tape=tape,
        )

    def _made(
        self, config: ChatConfig, client: LLMClient | None, prompts: Mapping[str, Prompt]
    ) -> tuple[LLMAgentEngine, Prompt]:
        if client is None:
            raise ConfigError(
                "there is no model and no engine: give the conversation a model, Chat(config, "
                "llm_client=connect('auto')), or an engine, Chat(engine, user_id='ann')"
            )
        text = f"## System\n\n{config.constitution}\n\n## User\n\n{{{{ message }}}}\n"
        own = Prompt.parse(text, name=_CONSTITUTION)
        prompt = prompts.get(_CONSTITUTION, own)
        # A prompt strips the space around its text: the configuration's own is sent as it is.
        system = config.constitution if prompt.digest == own.digest else prompt.system
        adapter = OllamaAdapter(client)
        return LLMAgentEngine(adapter, self.tools, system, config=config.engine), prompt

    @classmethod
    def rebuilt(cls, config: ChatConfig, *, parts: Mapping[str, Any], **recorded: Any) -> Self:
        """Return a conversation made of recorded things; without ``tools`` it can be replayed."""
        return super().rebuilt(config, parts={"tools": _MissingTools(), **parts}, **recorded)

    @property
    def prompts(self) -> dict[str, Prompt]:
        """The constitution; of an engine that was given, whatever prompt it names."""
        own = {} if self._constitution is None else {_CONSTITUTION: self._constitution}
        return {**super().prompts, **own}

    # --- what was said ------------------------------------------------------------------------

    @property
    def user_id(self) -> str:
        """Who writes."""
        return self.config.user_id

    @property
    def conversation_id(self) -> str:
        """The conversation's name."""
        return self.config.name

    @property
    def pending(self) -> PendingAction | None:
        """What waits for a yes."""
        return self.state.pending

    @property
    def history(self) -> list[Message]:
        """What was said so far, oldest first."""
        return [
            *self.turns[0].state.said,
            *(each for x in self.exchanges for each in _messages(x.message, x.decision)),
        ]

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """The messages so far and what was decided, oldest first."""
        return tuple(
            Exchange(number=turn.number, message=turn.message, decision=turn.decision)
            for turn in self.turns
            if turn.decision is not None
        )

    @property
    def recorded(self) -> tuple[str, ...]:
        """The messages that were answered on the tape, also those that a replay has yet to reach.

        Empty if there is no tape.
        """
        tape, run = self.tape, self.run_id
        if tape is None or run is None:
            return ()
        records = tape.turn_records(run)
        return tuple(
            record["interventions"][-1]["message"] for record in records if record["interventions"]
        )

    # --- a message ---------------------------------------------------------------------------

    async def send(self, message: str) -> AgentDecision:
        """Send a message and wait for the decision.

        A message that failed, or was stopped, stays planned: the next one replaces it, and
        ``run(1)`` asks it again.

        Raises:
            ConfigError: the message is empty, or another one is under way.
            TapeMiss: it is a replay, and this is not what was sent next.
        """
        if not message.strip():
            raise ConfigError("the message is empty")
        with self._alone("another message is under way; wait for its answer, or stop it"):
            self._plan_next(message)
            turn = await self.step(progress=False)
        assert turn.decision is not None  # only the first turn, which nobody plays, has none
        return turn.decision

    @contextmanager
    def _alone(self, complaint: str) -> Iterator[None]:
        # A widget and a cell may send at the same time, from different threads; step() only sees
        # the second one when it plays, after its message was planned.
        if self._stepping or not self._lock.acquire(blocking=False):
            raise ConfigError(complaint)
        try:
            yield
        finally:
            self._lock.release()

    def _plan_next(self, message: str) -> None:
        number = self.turn_number + 1
        known = [planned.message for planned in self._planned.get(number, ())][-1:]
        if known == [message]:  # as in a replay, or where a failed message is sent again
            return
        if isinstance(self._session, Replaying):
            if known:
                raise TapeMiss(
                    f"a replay answers what was recorded: message {number} of run {self.run_id} is "
                    f"{known[0]!r:.200}, not {message!r:.200}; fork the run to say something else"
                )
            return  # the end of the tape, where the step raises by itself
        before = self._planned.pop(number, None)
        try:
            self.intervene(number, message=message)
        except BaseException:
            if before is not None:  # a failed message stays planned
                self._planned[number] = before
            raise

    async def _play(self, before: ChatTurn, planned: Sequence[UserMessage]) -> ChatTurn:
        number, state = before.number + 1, before.state
        if not planned:
            raise ConfigError(f"turn {number} has no message; send(message) sends one")
        is_live = self._session is None or not self._session.is_replay
        if is_live and self.engine is None and isinstance(self.tools.executor, _MissingTools):
            self.tools.executor.fail()
        message = planned[-1].message
        asked = state.pending
        if asked is not None:
            asked = asked.model_copy(update={"call_id": f"{self._token}-{asked.call_id}"})
        decision: AgentDecision = await self._decide(
            DecisionContext(
                user_id=self.user_id,
                message=message,
                conversation_id=self.conversation_id,
                message_history=list(state.said),
                pending_confirmation=asked,
            )
        )
        if self.tape is not None:
            # As the tape gives it back, since a live turn must equal its replay: a tool may have
            # returned NaN, or any object.
            text = decision.model_dump_json(fallback=str)
            decision = AgentDecision.model_validate_json(text)
        decision = _numbered(decision, number, self._token)
        messages = (*state.said, *_messages(message, decision))
        if self.engine is None:  # or each turn on the tape would hold the whole conversation
            messages = messages[
                max(0, len(messages) - self.config.engine.include_history_messages) :
            ]
        after = ChatState(said=messages, pending=decision.pending_action)
        return ChatTurn(number=number, state=after, decision=decision)

    def done(self, state: ChatState) -> bool:
        """Return True if no further message is known."""
        return self.turn_number + 1 not in self._planned

    def clear(self) -> None:
        """Start again; what was said before is forgotten, and nothing waits for a yes.

        A replay goes back to its beginning.

        Raises:
            ConfigError: a message is under way; or this is a recording, which holds one
                conversation.
        """
        with self._alone("a message is under way; wait for its answer, or stop it, first"):
            if isinstance(self._session, Replaying):
                fresh = _at_start(
                    type(self),
                    self._session.tape,
                    self.run_id,
                    tools=self.tools,
                    engine=None if self.engine is None else lambda _: self.engine,
                )
                planned = itertools.chain.from_iterable(fresh.planned.values())
                self.take_over(fresh.turns, list(planned), fresh._session)
                return
            if self.tape is not None and self.exchanges:
                raise ConfigError(
                    "a recording holds one conversation; begin another: Chat(config, tape=...)"
                )
            self._token = uuid.uuid4().hex
            self.turns, self._planned = self.turns[:1], {}  # the first has what was given as state

    def close(self) -> None:
        """End a recording; afterwards only the file holds it."""
        self._ended("done")
        super().close()

    def __repr__(self) -> str:
        lost = f", NOT RECORDED: {self.unrecorded}" if self.unrecorded else ""
        lines = [f"A conversation of {self.user_id}, {len(self.exchanges)} messages{lost}"]
        lines += [_exchange_text(x.message, x.decision) for x in self.exchanges]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return str(self.html())

    def html(self) -> Markup:
        """Return the latest part of the conversation, tool calls folded below each answer."""
        exchanges = self.exchanges
        if not exchanges:
            return Markup("<p>Nothing was said yet.</p>")
        shown = join(map(_exchange_html, exchanges[-_MAX_SHOWN:]))
        if (left_out := len(exchanges) - _MAX_SHOWN) <= 0:
            return shown
        head = Markup("<p><em>{} earlier messages are not shown.</em></p>").format(left_out)
        return head + shown


def replay_chat(tape: Tape | str | Path, run: int | None = None) -> Chat:
    """Return a recorded conversation at its beginning, to be replayed message by message.

    No model is asked, no tool runs. ``Chat.replay`` replays all of it.

    Args:
        tape: the tape, or its file.
        run: which run on it; the latest if not given.

    Raises:
        TapeError: there is no such run, or it is not a conversation.
    """
    return _at_start(Chat, tape if isinstance(tape, Tape) else Tape(tape, read_only=True), run)


def _at_start(chat_class: type[Chat], tape: Tape, run: int | None, **parts: Any) -> Chat:
    # A fork begins with the turns that it shares with its origin: those are not said again.
    return chat_class.replay(tape, run, turns=tape.run(run).fork_turn or 0, **parts)


class _MissingTools:
    """Stands for a recorded conversation's tools, which no tape can hold."""

    def fail(self) -> NoReturn:
        raise ConfigError(
            "what comes after the tape is live, and no tape can hold tools: give them, "
            "fork(tape, ..., tools=...) or resume(tape, ..., tools=...); tools=FunctionTools() "
            "has none"
        )

    def get_available_tools(self) -> list[str]:
        self.fail()

    def get_tool_declarations(self, names: Sequence[str]) -> list[ToolDeclaration]:
        self.fail()

    async def execute(self, tool_name: str, parameters: dict[str, Any], user_id: str) -> ToolResult:
        self.fail()


def _messages(message: str, decision: AgentDecision) -> tuple[Message, Message]:
    return Message(role="user", content=message), Message(role="assistant", content=decision.text)


def _numbered(decision: AgentDecision, number: int, token: str) -> AgentDecision:
    """Return a decision that a replay can equal: the pending action's id is its turn's number."""
    pending = decision.pending_action
    if pending is None:
        return decision
    known = pending.call_id.removeprefix(f"{token}-")  # what is asked again keeps its number
    call_id = str(number) if known == pending.call_id else known  # the engine's is random
    named = pending.model_copy(update={"call_id": call_id})
    return decision.model_copy(update={"pending_action": named})


# --- text and HTML --------------------------------------------------------------------------------


def _exchange_html(exchange: Exchange) -> Markup:
    """Return one message, its answer, and below them what was done."""
    decision = exchange.decision
    said = (
        ("You", exchange.message, f"{BUBBLE};margin:8px 0 8px auto;background:{ADDED};color:{INK}"),
        ("Assistant", decision.text, f"{BUBBLE};margin:8px 0"),
    )
    speech = join(
        styled(
            styled(who, STRONG, tag="strong")
            + styled(safe(text, limit=_MAX_CHARS), AS_WRITTEN, dir="auto"),
            css,
        )
        for who, text, css in said
    )
    how = styled(_decision_type(decision), QUIET)
    calls = join(map(_call_html, decision.tool_calls or ()))
    return styled(join([speech, styled(how + calls, "padding-left:12px")]), "line-height:1.4")


def _call_html(call: ToolCall) -> Markup:
    facts = [("asked for", json_text(call.parameters, indent=1))]
    if (result := call.result) is not None:
        failure = f"{result.error_code}: {result.error}"
        facts.append(("result", json_text(result.data, indent=1) if result.success else failure))
    body = pairs((name, pre(text, limit=_MAX_CHARS)) for name, text in facts)
    return details(f"{call.tool_name}: {_mark(call)}", body)


def _exchange_text(message: str, decision: AgentDecision) -> str:
    """Return one exchange as plain lines."""
    lines = [f"You: {_line(message)}"]
    for call in decision.tool_calls or ():
        arguments = ", ".join(f"{name}={value!r}" for name, value in call.parameters.items())
        lines.append(f"  [{_line(call.tool_name)}({_line(arguments)}): {_mark(call)}]")
    lines.append(f"Assistant ({_decision_type(decision)}): {_line(decision.text)}")
    return "\n".join(lines)


def _decision_type(decision: AgentDecision) -> str:
    return str(decision.decision_type).replace("_", " ").lower()


def _mark(call: ToolCall) -> str:
    return "done" if call.worked else "failed"


def _line(text: str) -> str:
    return visible(clip(text, _MAX_CHARS))
