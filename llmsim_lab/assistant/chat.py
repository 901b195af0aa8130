"""A conversation with the assistant: a run whose turns are messages.

What the user says comes from outside, as whatever is set in a run: ``{"inbox": "Hi"}``. So a tape
holds it, and a conversation is replayed, resumed, forked and run again like any run. In its text
all that people, models and tools say is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import Field

from llmsim_lab._util.html import visible
from llmsim_lab._util.text import brief, clip, counted
from llmsim_lab.assistant._adapter import OllamaAdapter
from llmsim_lab.assistant._engine import LLMAgentEngine, context_of
from llmsim_lab.assistant._function_tools import FunctionTools
from llmsim_lab.assistant._toolbox import in_words, json_text
from llmsim_lab.assistant.types import (
    AgentDecision,
    AgentEngineConfig,
    Message,
    PendingAction,
    Said,
    ToolCall,
    ToolExecutor,
)
from llmsim_lab.errors import ConfigError, TapeMiss
from llmsim_lab.llm import LLMClient, LLMConfig
from llmsim_lab.prompts import Prompt
from llmsim_lab.run import Ask, Question, Run, State
from llmsim_lab.run.playing import is_played_elsewhere
from llmsim_lab.types import CallSite

_MAX_CHARS = 4_000


class ChatState(State):
    """What a conversation continues from.

    Attributes:
        said: the messages of both, oldest first: the latest ones, as many as the model is shown.
        pending: what waits for a yes.
        inbox: what the user says next; the next turn answers it.
        message: what the latest turn answered.
        decision: what was decided about it.
    """

    said: tuple[Message, ...] = ()
    pending: PendingAction | None = None
    inbox: str = ""
    message: str = ""
    decision: AgentDecision | None = None

    def columns(self) -> dict[str, Any]:
        """Return the message, the kind of decision, the tools that ran, and the answer."""
        if self.decision is None:
            return {}
        return {
            "message": self.message,
            "decision": str(self.decision.decision_type),
            "tools": ", ".join(call.tool_name for call in self.decision.tool_calls or ()),
            "answer": self.decision.text,
        }


class Exchange(NamedTuple):
    """A message and what was decided about it.

    Attributes:
        number: its place in the conversation, from 1.
        message: what the user wrote.
        decision: what was decided.
    """

    number: int
    message: str
    decision: AgentDecision


class Chat(Run[ChatState]):
    """A conversation: keeps what was said, which the engine itself does not, one message a turn.

    ``send`` says the next message. ``run`` answers what is known already: recorded messages, and
    those planned with ``intervene(turn, {"inbox": "..."})``, which the turn after that one answers;
    a fork knows the one that its turn was sent. A replay answers the recorded messages only, in
    their order: ``replay(tape, turns=0)`` is at its beginning, to be sent them. What the tools
    answer is on the tape like the model's replies, so a replay runs no tool; a conversation
    that continues live needs ``tools`` again.

    Who answers has the seat ``assistant``: the model, with these tools; or, as
    ``players={"assistant": ...}``, an ``LLMAgentEngine``, a person, or a function of the question,
    which returns a text.

    Args:
        config: parameters from a file; made of the others if not given.
        tools: runs the model's tools; none if not given.
        parameters: ``user_id``, who writes, as authenticated; ``constitution``, the model's system
            prompt, of which ``load_constitution()`` has the shipped one; ``engine``, the settings
            of what decides (a model call may take longer than its ``timeout_seconds`` of 30 where
            limits of the model's client were changed, twice as long as those); ``state``, what was
            said before; ``name``, ``turns``, ``llm_client``, ``tape``, as for every run.

    Raises:
        ConfigError: there is no ``user_id``; or, at the first message, no player has the seat.

    Example:
        >>> chat = Chat(user_id="ann", constitution=load_constitution(), llm_client=client)
        >>> decision = await chat.send("Add milk to my list")
    """

    kind: ClassVar[str] = "assistant"
    defaults: ClassVar[Mapping[str, Any]] = {"turns": 1000}

    user_id: Annotated[str, Field(min_length=1)]
    constitution: str = ""
    engine: AgentEngineConfig = AgentEngineConfig()

    def __init__(
        self,
        config: Any = None,
        *,
        tools: ToolExecutor | None = None,
        **parameters: Any,
    ) -> None:
        if isinstance(parameters.get("engine", config), LLMAgentEngine):
            raise ConfigError("an engine takes the seat: Chat(players={'assistant': engine})")
        # One that continues must not do so without its tools: no tape can hold those.
        begins = parameters.get("state") is None
        self.tools: Any = FunctionTools() if tools is None and begins else tools
        super().__init__(config, **parameters)

    def ready(self) -> None:
        """Make the system prompt."""
        text = f"## System\n\n{self.constitution}\n\n## User\n\n{{{{ message }}}}\n"
        self._prompt = Prompt.parse(text, name="constitution")
        self.prompt(self._prompt)  # so that it can be edited before the first message
        self._is_closed = False

    async def turn(self, state: ChatState, ask: Ask) -> ChatState:
        """Answer the message in the inbox."""
        if not state.inbox:
            raise ConfigError(f"turn {ask.turn} has no message; send(message) sends one")
        reply = await ask.converse(
            "assistant",
            Said,
            lambda _: self._sheet(state),
            by_model=self._by_model,
        )
        decision = _as_replayed(reply.decision, state.pending, ask.turn)
        for line in _exchange_lines(state.inbox, decision):
            ask.note(text=line)
        return self._answered(state, decision)

    async def _by_model(self, question: Question, client: LLMClient) -> Said:
        """Return what a model decides, with the tools and the conversation's settings."""
        state: ChatState = question.state
        worded = self.prompt(self._prompt).render(message=state.inbox)
        engine = LLMAgentEngine(
            # Its calls are the conversation's own: no agent is named besides the seat.
            OllamaAdapter(client, site=CallSite(component=question.player, turn=question.turn)),
            self.tools,
            worded.system,
            config=self.engine,
            call_timeout_s=_call_timeout_s(self.engine, client.config),
        )
        context = context_of(self.config, state)
        if state.pending is None:  # else code reads it
            context = context.model_copy(update={"message": worded.user})
        return Said.by(await engine.process_message(context))

    def _answered(self, state: ChatState, decision: AgentDecision) -> ChatState:
        """Return the conversation after a decision, with as much of it as the next one is shown."""
        player = self.seat("assistant")
        settings = player.config if isinstance(player, LLMAgentEngine) else self.engine
        messages = (
            *state.said,
            Message(role="user", content=state.inbox),
            Message(role="assistant", content=decision.text),
        )
        # Not messages[-n:], which with 0 would be all of them.
        first = max(0, len(messages) - settings.include_history_messages)
        return ChatState(
            said=messages[first:],
            pending=decision.pending_action,
            message=state.inbox,
            decision=decision,
        )

    def changed(
        self,
        state: ChatState,
        values: Mapping[str, Any],
    ) -> ChatState:
        """Return a state with what is set from outside, such as the next message."""
        # An empty inbox is how a conversation says that it waits for a message.
        if not str(values.get("inbox", "any")).strip():
            raise ConfigError("the message is empty")
        return super().changed(state, values)

    def done(self, state: ChatState) -> bool:
        """Return True if no further message is known."""
        return not state.inbox

    def _sheet(self, state: ChatState) -> str:
        """Return what a person in the assistant's seat is shown."""
        messages = [*state.said, Message(role="user", content=state.inbox)]
        parts = [f"{message.role.title()}: {message.content}" for message in messages]
        if self.constitution:
            # A person is shown what a model would be.
            parts.insert(0, self.constitution)
        return "\n\n".join(parts)

    # --- what was said ------------------------------------------------------------------------

    @property
    def pending(self) -> PendingAction | None:
        """What waits for a yes."""
        return self.state.pending

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """The messages so far and what was decided, oldest first."""
        return tuple(
            Exchange(turn.number, turn.state.message, turn.state.decision)
            for turn in self.turns[1:]
        )

    @property
    def recorded(self) -> tuple[str, ...]:
        """The messages that were answered on the tape, also those that a replay has yet to reach.

        Empty if there is no tape.
        """
        if self.tape is None or self.run_id is None:
            return ()
        records = self.tape.turn_records(self.run_id)[1:]
        return tuple(record["state"]["message"] for record in records)

    # --- a message ---------------------------------------------------------------------------

    async def send(self, message: str) -> AgentDecision:
        """Send a message and wait for the decision.

        A message that failed, or was stopped, stays in the inbox: the next one replaces it, and
        ``run(1)`` asks it again.

        Raises:
            ConfigError: the message is empty, or another one is under way.
            TapeMiss: it is a replay, and this is not what was sent next.
        """
        if is_played_elsewhere(self):  # before it is in the inbox
            raise ConfigError("another message is under way; wait for its answer, or stop it")
        inbox = self.state.inbox
        if not self._session.is_replay:
            if message != inbox or not message:
                self.intervene(self.turn_number, {"inbox": message})
        # A replay shows what was recorded, so it cannot be asked anything else.
        elif inbox and message != inbox:
            raise TapeMiss(
                f"a replay answers what was recorded: message {self.turn_number + 1} of run "
                f"{self.run_id} is {brief(inbox, 200)}, not {brief(message, 200)}; fork the run to "
                "say something else"
            )
        turn = await self.step()
        decision: AgentDecision = turn.state.decision
        return decision

    def close(self) -> None:
        """End a recording; afterwards only the file holds it. Closing it again does nothing."""
        if self._is_closed:
            return
        # Else a tape would say that the conversation was broken off.
        try:
            self._session.end_run("done")
        finally:
            # Also where the tape is another file by now, so that somebody can resume the run.
            super().close()
        self._is_closed = True

    def __repr__(self) -> str:
        heading = f"A conversation of {self.user_id}, {counted(len(self.exchanges), 'message')}"
        if self.unrecorded:
            heading += f", NOT RECORDED: {self.unrecorded}"
        lines = [heading]
        for exchange in self.exchanges:
            lines += _exchange_lines(exchange.message, exchange.decision)
        return "\n".join(lines)


def _call_timeout_s(engine: AgentEngineConfig, client: LLMConfig) -> float:
    """Return how long a model call and its retry may take.

    The engine's own setting counts if it was changed, else the limits of the client that were.
    """
    # A default is not a choice: where it stands, limits that were set for the client count.
    usual_s = AgentEngineConfig().timeout_seconds
    if engine.timeout_seconds != usual_s:
        return engine.timeout_seconds
    usual = LLMConfig()
    request_s = 0.0
    if client.timeout_s != usual.timeout_s:
        request_s = client.timeout_s
    if client.first_piece_s != usual.first_piece_s:
        request_s = max(request_s, client.first_piece_s)
    if client.total_timeout_s is not None:
        request_s = client.total_timeout_s
    return max(usual_s, 2 * request_s + client.retry_wait_s[1])


def _as_replayed(
    decision: AgentDecision,
    pending_before: PendingAction | None,
    number: int,
) -> AgentDecision:
    """Return a decision that a replay can equal: without clocks, with ids of its own."""
    calls = [call.model_copy(update={"duration_ms": 0.0}) for call in decision.tool_calls or ()]
    pending = decision.pending_action
    if pending is not None:
        # What is asked again keeps its id; the engine's is random.
        is_asked_again = pending_before is not None and pending.call_id == pending_before.call_id
        if not is_asked_again:
            pending = pending.model_copy(update={"call_id": str(number)})
    return decision.model_copy(update={"tool_calls": calls or None, "pending_action": pending})


# --- as text -------------------------------------------------------------------------------------


def call_facts(call: ToolCall) -> tuple[str, list[tuple[str, str]]]:
    """Return a tool call in words: its name with how it ended, then what went in and came out."""
    facts = [("asked for", json_text(call.parameters, indent=1))]
    result = call.result
    if result is not None and result.success:
        facts.append(("result", json_text(result.data, indent=1)))
    elif result is not None:
        facts.append(("result", f"{result.error_code}: {result.error}"))
    return f"{call.tool_name}: {_mark(call)}", facts


def _exchange_lines(message: str, decision: AgentDecision) -> list[str]:
    """Return one exchange as plain lines."""
    lines = [f"You: {_line(message)}"]
    for call in decision.tool_calls or ():
        arguments = ", ".join(f"{name}={value!r}" for name, value in call.parameters.items())
        lines.append(f"  [{_line(call.tool_name)}({_line(arguments)}): {_mark(call)}]")
    kind = in_words(decision.decision_type.lower())
    lines.append(f"Assistant ({kind}): {_line(decision.text)}")
    return lines


def _mark(call: ToolCall) -> str:
    return "done" if call.worked else "failed"


def _line(text: str) -> str:
    return visible(clip(text, _MAX_CHARS))
