"""Is what a tape holds of the right types: a stranger's file may hold anything.

SQLite columns and JSON take any type; what is read from them is checked here once, so that the code
behind it need not expect a number where there should be a text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, get_args

from llmsim_lab.calls import Attempt, ChatReply, ChatRequest, Message, Role, Status, ToolCall
from llmsim_lab.errors import PromptError
from llmsim_lab.llm.tape.info import Verb
from llmsim_lab.prompts import Prompt

__all__ = ["call_numbers", "check_attempt", "manifest_faults", "run_faults"]

_TEXT = (str, type(None))
_NUMBER = (int, float)
_COUNT = (int, type(None))
_RUN_PARTS: Mapping[str, tuple[type, ...]] = {
    "package": (str,),
    "config": (dict,),
    "prompts": (dict,),
    "given": (list,),
    "llm": (dict, type(None)),
    "model": (dict, type(None)),
}


def check_attempt(attempt: Attempt) -> None:
    """Check a request and what became of it.

    Raises:
        ValueError: something is not of its type.
    """
    request = attempt.request
    _check_request(request)
    if attempt.reply is not None:
        _check_reply(attempt.reply)
    _expect(attempt.seconds, _NUMBER, "seconds")
    _expect(attempt.detail, (str,), "the fault's detail")
    _expect(attempt.status_code, _COUNT, "the fault's status code")


def _check_request(request: ChatRequest) -> None:
    _expect(request.model, (str,), "the model")
    _expect(request.attempt, (int,), "the attempt")
    _expect(request.schema, (dict, type(None)), "the schema")
    _expect(request.options, (dict,), "the options")
    _expect(request.think, (bool, str, type(None)), "think")
    _expect(request.keep_alive, (*_NUMBER, *_TEXT), "keep_alive")
    _expect(request.timeout_s, _NUMBER, "timeout_s")
    for tool in request.tools:
        _expect(tool, (dict,), "a tool")
    for message in request.messages:
        _check_message(message)
    if site := request.site:
        _expect(site.component, (str,), "the component")
        _expect(site.agent, _TEXT, "the agent")
        _expect(site.turn, _COUNT, "the turn")
        _expect(site.replicate, (int,), "the replicate")


def _check_message(message: Message) -> None:
    if message.role not in get_args(Role):
        raise ValueError(f"unknown role {message.role!r:.50}")
    _expect(message.content, (str,), "a message's content")
    _expect(message.tool_name, _TEXT, "a message's tool")
    _check_tool_calls(message.tool_calls)


def _check_tool_calls(calls: Iterable[ToolCall]) -> None:
    for call in calls:
        _expect(call.name, (str,), "a tool call's name")
        _expect(call.arguments, (dict,), "a tool call's arguments")
        _expect(call.id, _TEXT, "a tool call's id")


def _check_reply(reply: ChatReply) -> None:
    for name in ("text", "thinking", "done_reason"):
        _expect(getattr(reply, name), (str,), f"the reply's {name}")
    for name in ("prompt_tokens", "reply_tokens"):
        _expect(getattr(reply, name), _COUNT, f"the reply's {name}")
    for name in ("seconds", "load_seconds"):
        _expect(getattr(reply, name), _NUMBER, f"the reply's {name}")
    _check_tool_calls(reply.tool_calls)


def _expect(value: object, types: tuple[type, ...], what: str) -> None:
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise ValueError(f"{what} is {type(value).__name__}")


def call_numbers(record: Any) -> list[int]:
    """Return the numbers of the calls that a turn's record names.

    Raises:
        ValueError: the record does not have a record's form.
    """
    if not isinstance(record, dict) or not isinstance(record.get("turn"), int):
        raise ValueError("it is no record of a turn")
    if not isinstance(record.get("state"), dict):
        raise ValueError("it has no state")
    for part in ("chains", "actions", "interventions", "planned"):
        if not isinstance(record.get(part), list):
            raise ValueError(f"it has no {part}")
    numbers: list[int] = []
    for chain in record["chains"]:
        if not isinstance(chain, dict):
            raise ValueError("one of its chains is no object")
        if "call" in chain:
            numbers += _numbers_of(chain["call"])
    return numbers


def _numbers_of(call: Any) -> list[int]:
    match call:
        case [status, [_, *_] as numbers] if status in get_args(Status):
            if all(type(number) is int for number in numbers):
                return list(numbers)
    raise ValueError("one of its chains does not name its calls as status and numbers")


def manifest_faults(manifest: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a manifest, in words: parts missing, digests that do not fit."""
    faults = [
        f"the manifest has no {part}"
        for part, types in _RUN_PARTS.items()
        if part not in manifest or not isinstance(manifest[part], types)
    ]
    if not isinstance(manifest.get("kind", ""), str):
        faults.append("the manifest's kind is no text")
    prompts = manifest.get("prompts")
    if isinstance(prompts, dict):
        for place, entry in prompts.items():
            if fault := _prompt_fault(entry):
                faults.append(f"the prompt of {place}: {fault}")
    return faults


def _prompt_fault(entry: Any) -> str | None:
    match entry:
        case {"text": str(text), "name": str(name), "digest": str(digest), "parent": parent}:
            if not isinstance(parent, _TEXT):
                return "its parent is no digest"
        case _:
            return "it lacks its name, text, digest or parent"
    try:
        found = Prompt.parse(text, name=name).digest
    except (PromptError, UnicodeError, RecursionError) as error:
        return f"it cannot be read: {error}"
    return None if found == digest else "its text does not have the digest recorded for it"


def run_faults(
    number: int, *, verb: object, parent: object, fork_turn: object, parent_turns: range | None
) -> list[str]:
    """Return what is wrong with a run's place among the others, in words.

    Args:
        number: the run's.
        verb: how it came about, as recorded.
        parent: its parent's number, as recorded.
        fork_turn: the turn of its parent that it starts from, as recorded.
        parent_turns: the turns that the parent has, if there is such a run.
    """
    faults = []
    if verb not in get_args(Verb):
        faults.append(f"its verb is {verb!r:.50}")
    if parent is None:
        if fork_turn is not None:
            faults.append("it is a fork of no run")
    elif not isinstance(parent, int) or parent >= number or parent_turns is None:
        faults.append(f"its parent, run {parent!s:.20}, is not on the tape before it")
    elif fork_turn is not None and fork_turn not in parent_turns:
        faults.append(f"its parent has no turn {fork_turn!s:.20} to fork from")
    return faults
