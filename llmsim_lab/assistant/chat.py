"""A conversation with the assistant: a run whose turns are messages.

What the user says is done from outside, as an intervention is elsewhere: so a tape holds it, and a
conversation is replayed, resumed, forked and run again like any run.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NoReturn, Self

from markupsafe import Markup
from pydantic import Field, field_validator

from llmsim_lab.assistant.adapter import OllamaAdapter
from llmsim_lab.assistant.chat_html import chat_html, exchange_text
from llmsim_lab.assistant.engine import LLMAgentEngine
from llmsim_lab.assistant.function_tools import FunctionTools
from llmsim_lab.assistant.protocols import ToolDeclaration, ToolExecutor
from llmsim_lab.assistant.recorded_tools import RecordedTools
from llmsim_lab.assistant.types import (
    AgentDecision,
    AgentEngineConfig,
    DecisionContext,
    Message,
    PendingAction,
    ToolResult,
)
from llmsim_lab.errors import ConfigError, TapeMiss
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.prompts import Prompt
from llmsim_lab.runs import Run, RunTurn, State
from llmsim_lab.runs._config import RunConfig, RunIntervention
from llmsim_lab.runs._session import Replaying
from llmsim_lab.text import clip
from llmsim_lab.values import Value

__all__ = [
    "Chat",
    "ChatConfig",
    "ChatState",
    "ChatTurn",
    "Exchange",
    "Said",
    "record_chat",
    "replay_chat",
]

_TOOL_SHARE = 0.8
"""A tool is given up before the engine does so, since the tape would lack its result then."""
_CONSTITUTION = "constitution"


class Said(RunIntervention):
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
        del run
        return state

    def __str__(self) -> str:
        return f"turn {self.turn}: {clip(self.message, 200)}"


class ChatConfig(RunConfig):
    """What a conversation is configured with.

    Attributes:
        name: the conversation's.
        turns: most messages that ``run()`` answers; it ends where nothing more is to be said.
        user_id: who writes, as authenticated.
        constitution: the system prompt; ``load_constitution()`` has the shipped one.
        engine: the engine's settings.
        interventions: what is said, and when, as far as it is known before.
    """

    name: Annotated[str, Field(min_length=1)] = "chat"
    turns: Annotated[int, Field(ge=0, le=100_000)] = 1000
    user_id: Annotated[str, Field(min_length=1)]
    constitution: str = ""
    engine: AgentEngineConfig = Field(default_factory=AgentEngineConfig)
    interventions: tuple[Said, ...] = ()


class ChatState(State):
    """What a conversation goes on from.

    Attributes:
        said: the messages of both, oldest first: the latest ones, as many as the configured engine
            shows its model; all of them where an engine was given.
        pending: what waits for a yes.
    """

    said: tuple[Message, ...] = ()
    pending: PendingAction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTurn(RunTurn[ChatState, Said]):
    """A message and what the assistant made of it.

    Attributes:
        decision: what was decided; None in the first turn. What of it decides how things go on is
            in the state and the row of the frame, by which turns are compared.
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
        return exchange_text(self.message, self.decision).splitlines()


class Exchange(Value):
    """A message and what the assistant made of it.

    Attributes:
        number: its place in the conversation, from 1.
        message: what the user wrote.
        decision: what was decided.
    """

    number: int
    message: str
    decision: AgentDecision


class Chat(Run[ChatState, ChatTurn, ChatConfig, Said]):
    """A conversation: keeps what was said, which the engine itself does not, one message a turn.

    A replay answers the recorded messages only, in their order. ``send`` says the next one;
    ``run`` goes through those that are known already: recorded ones, those of a fork's origin, and
    those planned with ``intervene(turn, message="...")``. The tools' results are on the tape like
    the model's replies, so a replay runs none; what goes on live is given ``tools`` again.

    Args:
        config: what to run; or who decides, an engine or its ``process_message``, for a
            conversation of ``user_id``.
        user_id: who writes, as authenticated, where an engine is given.
        conversation_id: the conversation's name, likewise.
        llm_client: the model, for an engine of the configuration's own.
        tools: runs the tools of that engine; none if not given.
        engine: decides, instead of the configured one. No tape can hold it, nor what its tools
            return, unless it runs them through ``RecordedTools``.
        state: what was said before.
        tape: where to record the conversation: a tape, or a file that becomes or is one.
        prompts: recorded ones: ``constitution``.

    Raises:
        ConfigError: nobody writes, or nobody decides.

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
        self._answered_as = uuid.uuid4().hex
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
                "nobody decides: give the conversation a model, Chat(config, "
                "llm_client=connect('auto')), or an engine, Chat(engine, user_id='ann')"
            )
        text = f"## System\n\n{config.constitution}\n\n## User\n\n{{{{ message }}}}\n"
        own = Prompt.parse(text, name=_CONSTITUTION)
        prompt = prompts.get(_CONSTITUTION, own)
        # The configuration's own goes out as it is; a prompt's text is without the space around it.
        system = config.constitution if prompt.digest == own.digest else prompt.system
        adapter = OllamaAdapter(client)
        return LLMAgentEngine(adapter, self.tools, system, config=config.engine), prompt

    @classmethod
    def rebuilt(
        cls,
        config: ChatConfig,
        *,
        llm_client: LLMClient | None,
        state: ChatState,
        prompts: Mapping[str, Prompt],
        parts: Mapping[str, Any],
    ) -> Self:
        """Return a conversation made of recorded things; without ``tools`` it can be replayed."""
        parts = {"tools": _NotHere(), **parts}
        return cls(config, llm_client=llm_client, state=state, prompts=prompts, **parts)

    @property
    def prompts(self) -> dict[str, Prompt]:
        """The constitution; of an engine that was given, whatever prompt it names."""
        own = {} if self._constitution is None else {_CONSTITUTION: self._constitution}
        return {**super().prompts, **own}

    # --- what was said -----------------------------------------------------------------------

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
            *(said for x in self.exchanges for said in _said(x.message, x.decision)),
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
        """Send a message and wait for what is decided.

        One that failed, or was stopped, stays planned: the next one takes its place, and
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
        assert turn.decision is not None
        return turn.decision

    @contextmanager
    def _alone(self, complaint: str) -> Iterator[None]:
        if self._stepping or not self._lock.acquire(blocking=False):
            raise ConfigError(complaint)
        try:
            yield
        finally:
            self._lock.release()

    def _plan_next(self, message: str) -> None:
        number = self.turn_number + 1
        known = [said.message for said in self._planned.get(number, ())][-1:]
        if known == [message]:
            return
        if isinstance(self._session, Replaying):
            if known:
                raise TapeMiss(
                    f"a replay answers what was recorded: message {number} of run {self.run_id} is "
                    f"{known[0]!r:.200}, not {message!r:.200}; fork the run to say something else"
                )
            return  # the end of the tape, which says so itself
        before = self._planned.pop(number, None)
        try:
            self.intervene(number, message=message)
        except BaseException:
            if before is not None:
                self._planned[number] = before
            raise

    async def _play(self, before: ChatTurn, planned: Sequence[Said]) -> ChatTurn:
        number, state = before.number + 1, before.state
        if not planned:
            raise ConfigError(f"nothing is said at turn {number}; send(message) says something")
        is_live = not isinstance(self._session, Replaying)
        if is_live and self.engine is None and isinstance(self.tools.executor, _NotHere):
            self.tools.executor.refuse()
        message, asked = planned[-1].message, state.pending
        if asked is not None:  # what one run has answered is open in another
            asked = asked.model_copy(update={"call_id": f"{self._answered_as}-{asked.call_id}"})
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
            decision = _as_json(decision)
        decision = _numbered(decision, number, asked, state.pending)
        said = (*state.said, *_said(message, decision))
        if self.engine is None:  # else a tape would grow by the whole conversation each turn
            said = said[max(0, len(said) - self.config.engine.include_history_messages) :]
        after = ChatState(said=said, pending=decision.pending_action)
        return ChatTurn(number=number, state=after, decision=decision)

    def done(self, state: ChatState) -> bool:
        """Return True if nothing more is known that is to be said."""
        del state
        return self.turn_number + 1 not in self._planned

    def _recount(self) -> None:
        """Let what was answered in a failed turn be open again, where the tape knows what ran."""
        if self.tape is not None:
            self._answered_as = uuid.uuid4().hex

    def clear(self) -> None:
        """Begin anew; what was said before is forgotten, and nothing waits for a yes.

        A replay goes back to its beginning.

        Raises:
            ConfigError: a message is under way; or it is a recording, which holds one conversation.
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
                planned = [said for its in fresh.planned.values() for said in its]
                self.take_over(fresh.turns, planned, fresh._session)
                return
            if self.tape is not None and self.exchanges:
                raise ConfigError(
                    "a recording holds one conversation; begin another with record_chat()"
                )
            self.turns, self._planned = self.turns[:1], {}

    def close(self) -> None:
        """End a recording; the file alone holds it then."""
        self._ended("done")
        super().close()

    def __repr__(self) -> str:
        lost = f", NOT RECORDED: {self.unrecorded}" if self.unrecorded else ""
        lines = [f"A conversation of {self.user_id}, {len(self.exchanges)} messages{lost}"]
        lines += [exchange_text(x.message, x.decision) for x in self.exchanges]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return str(self.html())

    def html(self) -> Markup:
        """Return the conversation, with the tool calls folded beside it."""
        return chat_html([(x.message, x.decision) for x in self.exchanges])


async def record_chat(
    tape: Tape | str | Path,
    client: LLMClient,
    tools: ToolExecutor,
    constitution: str,
    *,
    user_id: str,
    conversation_id: str = "chat",
    config: AgentEngineConfig | None = None,
) -> Chat:
    """Return a conversation that is recorded as a new run on a tape.

    Args:
        tape: the tape, or the file of one, made if it is not there.
        client: the model.
        tools: runs the tools.
        constitution: the system prompt.
        user_id: who writes.
        conversation_id: the conversation's name.
        config: the engine's settings; ``confirm`` is recorded too.

    Raises:
        TapeError: the tape cannot be written to.
    """
    settings = ChatConfig(
        name=conversation_id,
        user_id=user_id,
        constitution=constitution,
        engine=config or AgentEngineConfig(),
    )
    return Chat(settings, llm_client=client, tools=tools, tape=tape)


def replay_chat(tape: Tape | str | Path, run: int | None = None) -> Chat:
    """Return a recorded conversation at its beginning, to be held again message by message.

    No model is asked, no tool runs. ``Chat.replay`` goes through all of it.

    Args:
        tape: the tape, or its file.
        run: which run on it; the latest if not given.

    Raises:
        TapeError: there is no such run, or it is no conversation.
    """
    return _at_start(Chat, tape if isinstance(tape, Tape) else Tape(tape, read_only=True), run)


def _at_start(kind: type[Chat], tape: Tape, run: int | None, **parts: Any) -> Chat:
    return kind.replay(tape, run, turns=tape.run(run).fork_turn or 0, **parts)


class _NotHere:
    """In the place of a recorded conversation's tools."""

    def refuse(self) -> NoReturn:
        raise ConfigError(
            "what comes after the tape is live, and no tape can hold tools: give them, "
            "fork(tape, ..., tools=...) or resume(tape, ..., tools=...); tools=FunctionTools() is "
            "none"
        )

    def get_available_tools(self) -> list[str]:
        self.refuse()

    def get_tool_declarations(self, names: Sequence[str]) -> list[ToolDeclaration]:
        self.refuse()

    async def execute(self, tool_name: str, parameters: dict[str, Any], user_id: str) -> ToolResult:
        self.refuse()


def _said(message: str, decision: AgentDecision) -> tuple[Message, Message]:
    return Message(role="user", content=message), Message(role="assistant", content=decision.text)


def _as_json(decision: AgentDecision) -> AgentDecision:
    """Return a decision as a tape gives it back: a tool may have returned NaN, or an object."""
    text = decision.model_dump_json(fallback=str)
    return AgentDecision.model_validate_json(text)


def _numbered(
    decision: AgentDecision, number: int, asked: PendingAction | None, was: PendingAction | None
) -> AgentDecision:
    """Return a decision that a replay can equal: what waits for a yes is named after its turn."""
    pending = decision.pending_action
    if pending is None:
        return decision
    same = asked is not None and was is not None and pending.call_id == asked.call_id
    call_id = was.call_id if same and was is not None else str(number)
    named = pending.model_copy(update={"call_id": call_id})
    return decision.model_copy(update={"pending_action": named})
