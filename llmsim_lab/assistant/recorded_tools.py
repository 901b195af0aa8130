"""Tools whose results go on a run's tape, like a model's replies, and are replayed from there."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary

from llmsim_lab.assistant.guard import run_tool
from llmsim_lab.assistant.protocols import (
    DeclaresTools,
    ToolDeclaration,
    ToolExecutor,
)
from llmsim_lab.assistant.toolbox import make_ready
from llmsim_lab.assistant.types import ToolResult
from llmsim_lab.calls import Attempt, CallSite, ChatReply, ChatRequest, Message
from llmsim_lab.errors import TapeError
from llmsim_lab.llm.scope import Recorder, scope, scoped
from llmsim_lab.llm.tape._recorder import ReplayRecorder

__all__ = ["RecordedTools", "asked_by"]

_COMPONENT = "tool"
_LIST = "(which tools are there)"
_NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


@contextmanager
def asked_by(agent: str | None) -> Iterator[None]:
    """Say who asks for the tools inside: agents of one run may have different ones."""
    with scoped(asker=agent):
        yield


@dataclass(frozen=True, slots=True)
class _Listing:
    """Which tools there are, and since which turn."""

    turn: int | None
    tools: dict[str, Any]


class RecordedTools:
    """Runs another executor's tools; within a recorded run, their results are on the tape.

    What a tool returns is an input from outside, as a model's reply is. So a live run keeps it, as
    a call of the component ``tool``; a replay answers from there and runs nothing, and neither
    does a resumed run for what its broken turn had done. Outside a run it only hands on. Which
    tools there are is kept once for each agent that asks, and again where a run was resumed.

    Args:
        executor: runs the tools; not asked for anything in a replay.
        timeout_s: longest wait for one tool, seconds; below that of whoever waits for this, since
            what is given up from outside leaves nothing on the tape.
    """

    def __init__(self, executor: ToolExecutor, *, timeout_s: float = 25.0) -> None:
        self.executor = executor
        self.timeout_s = timeout_s
        self._listed: WeakKeyDictionary[Recorder, dict[str | None, _Listing]] = WeakKeyDictionary()

    async def ready(self) -> None:
        """Make sure that the tools are known, which may take a start; never in a replay."""
        recorder = scope().recorder
        known = isinstance(recorder, ReplayRecorder) or (
            recorder is not None and scope().asker in self._listed.get(recorder, ())
        )
        if not known:
            await make_ready(self.executor)

    def get_available_tools(self) -> list[str]:
        """Return the tools' names; within a run, those at its start."""
        return list(self._listing()["names"])

    def get_tool_declarations(self, names: Sequence[str]) -> list[ToolDeclaration]:
        """Return the declarations of these tools, as far as the executor knows them."""
        declared = [ToolDeclaration(*fields[:4]) for fields in self._listing()["declared"]]
        return [tool for tool in declared if tool.name in names]

    async def execute(self, tool_name: str, parameters: dict[str, Any], user_id: str) -> ToolResult:
        """Run a tool, or take its result from the tape.

        Raises:
            TapeMiss: a replay has no such call.
        """

        async def run() -> dict[str, Any]:
            result = await run_tool(
                self.executor, tool_name, parameters, user_id, timeout_s=self.timeout_s
            )
            return result.model_dump()

        recorder = scope().recorder
        if recorder is None:
            return ToolResult.model_validate(await run())
        asked = f"{tool_name}({json.dumps(parameters, default=str)})"

        def deletes() -> bool:
            declared = self._ask_executor()["declared"]
            return any(tool[0] == tool_name and tool[3] for tool in declared)

        return ToolResult.model_validate(
            await _through(recorder, asked, user_id, run, once=deletes)
        )

    def _listing(self) -> dict[str, Any]:
        recorder = scope().recorder
        if recorder is None:
            return self._ask_executor()
        asker = scope().asker
        listings = self._listed.setdefault(recorder, {})
        request = recorder.place(_request(_LIST, asker))
        latest = listings.get(asker)
        if latest is None or _is_listed_anew(recorder, request, latest):
            known = recorder.find(request) or recorder.keep_now(self._listed_now(request))
            latest = listings[asker] = _Listing(_turn_of(request), _reply_of(known))
        return latest.tools

    def _listed_now(self, request: ChatRequest) -> Attempt:
        reply = ChatReply(text=_dumps(self._ask_executor()))
        return Attempt(request=request, reply=reply, seconds=0.0)

    def _ask_executor(self) -> dict[str, Any]:
        names = list(self.executor.get_available_tools())
        known: list[ToolDeclaration] = []
        if isinstance(self.executor, DeclaresTools):
            known = self.executor.get_tool_declarations(names)
        declared = [[t.name, t.description, dict(t.parameters), t.destructive] for t in known]
        return {"names": names, "declared": declared}

    def __repr__(self) -> str:
        return f"RecordedTools({self.executor!r})"


def _is_listed_anew(recorder: Recorder, request: ChatRequest, latest: _Listing) -> bool:
    """Say whether a run that is replayed was resumed in this turn, and listed its tools again."""
    if not isinstance(recorder, ReplayRecorder) or latest.turn == _turn_of(request):
        return False
    return recorder.knows(request)


def _turn_of(request: ChatRequest) -> int | None:
    return request.site.turn if request.site is not None else None


_STOPPED = {
    "success": False,
    "error": "it was stopped before it answered, so it may have been done or not; look before "
    "you ask for it again",
    "error_code": "STOPPED",
}


async def _through(
    recorder: Recorder,
    asked: str,
    user_id: str,
    run: Callable[[], Awaitable[dict[str, Any]]],
    *,
    once: Callable[[], bool],
) -> dict[str, Any]:
    """Answer from the tape, or run and keep what comes of it.

    What may be done but ``once``, which it says, is not done again after it was stopped halfway:
    nobody knows how far it came.
    """
    request = recorder.place(_request(asked, user_id))
    known, watch = recorder.find(request), scope().watch
    if known is not None:
        if watch is not None:
            watch.ended(request, known, taped=True)
        return _reply_of(known)
    if watch is not None:
        watch.began(request)
    attempt, began = None, time.perf_counter()
    try:
        reply = ChatReply(text=_dumps(await run()))
        attempt = Attempt(request=request, reply=reply, seconds=time.perf_counter() - began)
    except asyncio.CancelledError:
        if once():
            reply = ChatReply(text=_dumps(_STOPPED))
            seconds = time.perf_counter() - began
            recorder.keep_now(Attempt(request=request, reply=reply, seconds=seconds))
        raise
    finally:
        if watch is not None:
            watch.ended(request, attempt, taped=False)
    # Read back also where it was just made, so that a live run sees what its replay will see.
    return _reply_of(await recorder.keep(attempt))


def _request(asked: str, user_id: str | None) -> ChatRequest:
    return ChatRequest(
        model=_COMPONENT,
        messages=(Message("user", asked),),
        options=_NO_OPTIONS,
        site=CallSite(component=_COMPONENT, agent=user_id),
    )


def _reply_of(attempt: Attempt) -> dict[str, Any]:
    try:
        value = json.loads(attempt.reply.text if attempt.reply else "")
        if not isinstance(value, dict):
            raise TypeError("it is no object")
    except (ValueError, TypeError, RecursionError) as error:
        raise TapeError(
            f"call {attempt.number} on the tape is no tool's result: {error}"
        ) from error
    return value


def _dumps(value: Any) -> str:
    return json.dumps(value, default=str)
