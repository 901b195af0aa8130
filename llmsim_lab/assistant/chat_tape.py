"""Conversations on a tape: every model call and every tool's result, replayed without either."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from llmsim_lab.assistant.adapter import OllamaAdapter
from llmsim_lab.assistant.chat import Chat, Exchange
from llmsim_lab.assistant.engine import LLMAgentEngine
from llmsim_lab.assistant.protocols import ToolDeclaration, ToolExecutor
from llmsim_lab.assistant.recorded_tools import RecordedTools
from llmsim_lab.assistant.types import AgentDecision, AgentEngineConfig, ToolResult
from llmsim_lab.calls import CallRecord
from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.llm import LLMClient, LLMConfig, Tape
from llmsim_lab.llm.scope import CallLog, recording
from llmsim_lab.llm.tape import LiveRecorder, ReplayRecorder
from llmsim_lab.prompts import Prompt
from llmsim_lab.runs.forks import NoModel

__all__ = ["TapedChat", "record_chat", "replay_chat"]

KIND = "assistant_chat"
"""What the manifest of a conversation calls itself."""

_TOOL_SHARE = 0.8
"""A tool is given up before the engine does so, since the tape would lack its result then."""


class TapedChat(Chat):
    """A conversation that is recorded, or answered from its recording.

    ``record_chat`` and ``replay_chat`` make them.

    Args:
        engine: decides.
        recorder: writes to a tape, or answers from one.
        user_id: who writes.
        conversation_id: the conversation's name.
        recorded: the messages on the tape.
    """

    def __init__(
        self,
        engine: LLMAgentEngine,
        recorder: LiveRecorder | ReplayRecorder,
        *,
        user_id: str,
        conversation_id: str,
        recorded: Sequence[str] = (),
    ) -> None:
        super().__init__(engine, user_id=user_id, conversation_id=conversation_id)
        self.recorded = tuple(recorded)
        self._recorder = recorder

    async def send(self, message: str) -> AgentDecision:
        """Send a message; a replay answers the recorded messages only, in their order.

        Raises:
            ConfigError: the message is empty, or another one is under way.
            TapeMiss: it is a replay, and this is not what was sent next.
        """
        recorder, log = self._recorder, CallLog(self.conversation_id, len(self.exchanges) + 1)
        if isinstance(recorder, ReplayRecorder):
            recorder.begin_turn(log.turn)
            with recording(recorder, log):
                return await super().send(message)
        try:
            with recording(recorder, log):
                decision = await super().send(message)
            calls = log.close()
        except BaseException as error:
            recorder.restart_turn(error)
            raise
        recorder.commit_turn(*_turn(self.exchanges[-1], calls))
        return decision

    def clear(self) -> None:
        """Go back to the beginning of a replay.

        Raises:
            ConfigError: it is a recording, whose run holds one conversation.
        """
        if isinstance(self._recorder, LiveRecorder) and self.exchanges:
            raise ConfigError(
                "a recording holds one conversation; begin another with record_chat()"
            )
        super().clear()

    async def play(self) -> TapedChat:
        """Send the recorded messages that were not sent yet."""
        for message in self.recorded[len(self.exchanges) :]:
            await self.send(message)
        return self

    def close(self) -> None:
        """End a recording; the file alone holds it then."""
        if isinstance(self._recorder, LiveRecorder):
            self._recorder.tape.end_run(self._recorder.run, "done")
            self._recorder.close()


async def record_chat(
    tape: Tape | str | Path,
    client: LLMClient,
    tools: ToolExecutor,
    constitution: str,
    *,
    user_id: str,
    conversation_id: str = "chat",
    config: AgentEngineConfig | None = None,
) -> TapedChat:
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
    tape = tape if isinstance(tape, Tape) else Tape(tape)
    config = config or AgentEngineConfig()
    prompt = Prompt("{{ message }}", system=constitution, name="constitution")
    manifest = {
        "kind": KIND,
        "package": version("llmsim-lab"),
        "config": {
            "user_id": user_id,
            "conversation_id": conversation_id,
            "engine": asdict(config),
            "constitution": constitution,
        },
        "prompts": {
            "constitution": {
                "name": prompt.name,
                "digest": prompt.digest,
                "parent": prompt.parent,
                "text": prompt.text,
            }
        },
        "given": ["tools"],
        "llm": client.config.model_dump(mode="json"),
        "model": asdict(await client.model_info()),
    }
    start = (0, json.dumps(_record(0)), json.dumps({"turn": 0}))
    run = tape.add_run(manifest, name=conversation_id, first=start)
    engine = LLMAgentEngine(
        OllamaAdapter(client),
        RecordedTools(tools, timeout_s=_TOOL_SHARE * config.timeout_seconds),
        constitution,
        config=config,
    )
    return TapedChat(
        engine, LiveRecorder(tape, run), user_id=user_id, conversation_id=conversation_id
    )


def replay_chat(tape: Tape | str | Path, run: int | None = None) -> TapedChat:
    """Return a recorded conversation, to be held again: no model is asked, no tool runs.

    Args:
        tape: the tape, or its file.
        run: which run on it; the latest if not given.

    Raises:
        TapeError: there is no such run, or it is no conversation.
    """
    tape = tape if isinstance(tape, Tape) else Tape(tape, read_only=True)
    info = tape.run(run)
    if info.manifest.get("kind") != KIND:
        raise TapeError(
            f"run {info.id} on {tape.path} is no conversation; llmsim_lab.runs plays the others"
        )
    settings: Mapping[str, Any] = info.manifest["config"]
    client = LLMClient(LLMConfig.model_validate(info.manifest["llm"]), NoModel())
    engine = LLMAgentEngine(
        OllamaAdapter(client),
        RecordedTools(_NoTools()),
        settings["constitution"],
        config=AgentEngineConfig(**settings["engine"]),
    )
    return TapedChat(
        engine,
        ReplayRecorder(tape, info.id),
        user_id=settings["user_id"],
        conversation_id=settings["conversation_id"],
        recorded=[record["message"] for record in tape.turn_records(info.id)[1:]],
    )


class _NoTools:  # pragma: no cover - it stands for what must not happen
    """In the place of a recorded conversation's tools, which a replay never runs."""

    def get_available_tools(self) -> list[str]:
        raise TapeError("a replay runs no tool")

    def get_tool_declarations(self, names: Sequence[str]) -> list[ToolDeclaration]:
        raise TapeError("a replay runs no tool")

    async def execute(self, tool_name: str, parameters: dict[str, Any], user_id: str) -> ToolResult:
        raise TapeError("a replay runs no tool")


def _turn(exchange: Exchange, calls: Sequence[CallRecord]) -> tuple[int, str, str]:
    """Return an exchange as a tape takes it: number, record, and row of the run's frame."""
    decision = exchange.decision
    row = {
        "turn": exchange.number,
        "message": exchange.message,
        "decision": str(decision.decision_type),
        "tools": ", ".join(call.tool_name for call in decision.tool_calls or ()),
        "answer": decision.text,
    }
    named = {"calls": [[call.status, call.numbers] for call in calls]}
    record = _record(exchange.number) | named | exchange.model_dump(mode="json", exclude={"number"})
    return exchange.number, json.dumps(record), json.dumps(row)


_PARTS = ("calls", "chains", "interventions", "planned")


def _record(number: int) -> dict[str, Any]:
    """Return what every turn on a tape has; a conversation leaves it empty."""
    empty: dict[str, Any] = {part: [] for part in _PARTS}
    return {"turn": number, "seconds": 0.0, "state": {}, **empty}
