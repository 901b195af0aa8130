"""``llmsim-lab tape show``: a recorded run, one of its turns, or one call, as text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from llmsim_lab.calls import Attempt
from llmsim_lab.cli.columns import rows_table
from llmsim_lab.cli.output import console, say
from llmsim_lab.errors import TapeError
from llmsim_lab.llm import Tape
from llmsim_lab.llm.tape import RecordedCall, RunInfo
from llmsim_lab.models import LLMReasoningChain
from llmsim_lab.runs._registry import class_of_manifest, kind_name
from llmsim_lab.runs._run import series_on, turns_of
from llmsim_lab.runs._turn import Answer, every_chain
from llmsim_lab.text import clip

__all__ = ["show_call", "show_run", "show_turn"]


def show_run(tape: Tape, info: RunInfo) -> None:
    """Print what defines a run and where it led."""
    source = "" if info.parent is None else f" of run {info.parent}"
    if info.fork_turn is not None:
        source += f" at turn {info.fork_turn}"
    say(f"Run {info.id}, {info.name}: {info.verb}{source}", style="bold")
    manifest = info.manifest
    facts = {
        "kind": kind_name(manifest),
        "turns": info.turns,
        "calls": info.calls,
        "started": info.started,
        "ended": info.ended or "not ended",
        "outcome": info.outcome or "",
        "model": _model(manifest),
        "seed": manifest.get("seed"),
        "recorded by": f"llmsim-lab {manifest['package']}, Python {manifest.get('python')}, "
        f"{manifest.get('platform')}",
        "git revision": manifest.get("git") or "",
        "given parts": ", ".join(map(str, manifest["given"])),
    }
    facts |= {
        f"prompt of {place}": f"{entry['name']} {entry['digest'][:12]}"
        + (f", edited from {entry['parent'][:12]}" if entry["parent"] else "")
        for place, entry in manifest["prompts"].items()
    }
    for name, value in facts.items():
        if value not in ("", None):
            say(f"{name + ':':<14} {value}")
    console.print(rows_table(tape.turns_frame(info.id).to_dict("records"), series_on(tape, info)))
    say(
        f"'--turn {info.turns}' shows what was asked and answered in that turn, '--call N' one "
        "call of it.",
        style="dim",
    )


def _model(manifest: Mapping[str, Any]) -> str:
    model = manifest["model"]
    if model is None:
        return ""
    parts = (model.get("name"), model.get("backend"), model.get("version"))
    digest = str(model.get("digest") or "")[:12]
    return " ".join(str(part) for part in (*parts, digest) if part)


def show_turn(tape: Tape, run: int, turn: int) -> None:
    """Print a turn's decisions, with prompts and replies.

    Raises:
        TapeError: the run has no such turn, nor calls of it.
    """
    info = tape.run(run)
    try:
        class_of_manifest(run, info.manifest)
    except TapeError as error:
        _show_as_recorded(tape, info, turn, why=error)
        return
    turns = {record.number: record for record in turns_of(tape, run, up_to=max(turn, 0))}
    if turn in turns:
        _show_whole_turn(tape.run(run), turns[turn])
        return
    calls = tape.calls(run, turn=turn, forgotten=True)
    if not calls:
        raise TapeError(
            f"run {run} has turns {min(turns)} to {max(turns)}, and none numbered {turn}"
        )
    say(f"Turn {turn} of run {run} was not finished; its calls:", style="bold")
    for call in calls:
        console.print()
        show_call(call)


def _show_as_recorded(tape: Tape, info: RunInfo, turn: int, *, why: TapeError) -> None:
    """Print a turn of a run whose class is not known here: its numbers, and what was asked.

    Raises:
        TapeError: the run has no such turn.
    """
    rows = tape.frame_rows(info.id)
    if turn not in rows:
        raise TapeError(
            f"run {info.id} has turns {min(rows)} to {max(rows)}, and none numbered {turn}"
        )
    say(f"Turn {turn} of run {info.id}", style="bold")
    say(f"Shown as it was recorded, since {why}", style="yellow")
    for name, value in rows[turn].items():
        if value not in ("", None):
            say(f"{name}: {value}")
    for call in tape.calls(info.id, turn=turn):
        console.print()
        show_call(call)


def _show_whole_turn(info: RunInfo, turn: Any) -> None:
    kind = class_of_manifest(info.id, info.manifest)
    period = kind.own_columns(turn).get("period")
    say(f"Turn {turn.number}{f', {period}' if period else ''} of run {info.id}", style="bold")
    for intervention in turn.interventions:
        say(f"from outside: {intervention}")
    for line in kind.in_words(turn):
        say(line)
    answers = getattr(turn, "answers", ())
    ruled = dict(zip(map(id, turn.chains), answers, strict=False))
    for chain in every_chain(turn):
        console.print()
        _show_chain(chain, ruled.get(id(chain)))


def _show_chain(chain: LLMReasoningChain, answer: Answer | None = None) -> None:
    who = f"{chain.component} of {chain.agent}" if chain.agent else chain.component
    if chain.call is None:
        said = "; ".join(filter(None, (str(answer or ""), chain.reasoning)))
        say(f"{who}, without a model: {said}", style="bold")
        return
    sure = "" if chain.confidence is None else f", confidence {chain.confidence}"
    say(f"{who}: {chain.call.status}{sure}", style="bold")
    for attempt in chain.call.history:
        _show_attempt(attempt)


def show_call(call: RecordedCall) -> None:
    """Print one request with its settings, and what became of it."""
    attempt = call.attempt
    request, site = attempt.request, attempt.request.site
    where = f"{site.component} of {site.agent}, turn {site.turn}" if site else "outside a turn"
    gone = "; its call failed for good and was made anew" if call.forgotten else ""
    say(f"Call {call.id} of run {call.run}: {where}, attempt {request.attempt}{gone}", style="bold")
    say(f"model: {request.model}, options: {_json(request.options)}")
    if request.schema is not None:
        say(f"schema: {_json(request.schema)}")
    for tool in request.tools:
        say(f"tool: {_json(tool)}")
    _show_attempt(attempt)


def _show_attempt(attempt: Attempt) -> None:
    say(f"--- asked (call {attempt.number})", style="cyan")
    for message in attempt.request.messages:
        say(f"[{message.role}]", style="dim")
        say(message.content)
    if attempt.reply is not None:
        tokens = attempt.reply.prompt_tokens, attempt.reply.reply_tokens
        counted = f", {tokens[0]} tokens read, {tokens[1]} written" if None not in tokens else ""
        say(f"--- answered ({attempt.seconds:.2f} s{counted})", style="cyan")
        if attempt.reply.thinking:
            say(attempt.reply.thinking, style="dim")
        say(attempt.reply.text)
        for call in attempt.reply.tool_calls:
            say(f"calls {call.name}({_json(call.arguments)})")
    if attempt.reason is not None:
        say(f"--- {attempt.reason}: {clip(attempt.detail, 500)}", style="red")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
