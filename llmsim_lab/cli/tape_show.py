"""``llmsim-lab tape show``: a recorded run, one of its turns, or one call, as text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from rich.table import Table

from llmsim_lab.calls import Attempt
from llmsim_lab.cli.output import console, literal, say
from llmsim_lab.errors import TapeError
from llmsim_lab.llm import Tape
from llmsim_lab.llm.tape import RecordedCall, RunInfo
from llmsim_lab.models import LLMReasoningChain
from llmsim_lab.simulation import Turn
from llmsim_lab.simulation.taping import load_turns
from llmsim_lab.text import clip

__all__ = ["show_call", "show_run", "show_turn"]

_STATUSES = ("ok", "repaired", "fallback", "failed")


def show_run(tape: Tape, info: RunInfo) -> None:
    """Print what defines a run and where it led."""
    source = "" if info.parent is None else f" of run {info.parent}"
    if info.fork_turn is not None:
        source += f" at turn {info.fork_turn}"
    say(f"Run {info.id}, {info.name}: {info.verb}{source}", style="bold")
    manifest = info.manifest
    facts = {
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
    console.print(_turns(tape.turns_frame(info.id).to_dict("records")))
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


def _turns(rows: Iterable[Mapping[Any, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("turn", "quarter", "rate", "infl.", "unem."):
        table.add_column(heading, justify="right", min_width=5)
    for heading in ("accepted", "model decisions", "from outside"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        figures = ("turn", "period", "interest_rate", "inflation", "unemployment")
        counts = [f"{row.get(name)} {name}" for name in _STATUSES if row.get(name)]
        cells = [_figure(row.get(name)) for name in figures]
        cells += [f"{row.get('accepted')} of {row.get('actions')}" if row.get("actions") else ""]
        cells += [", ".join(counts), _figure(row.get("interventions"))]
        table.add_row(*map(literal, cells))
    return table


def _figure(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def show_turn(tape: Tape, run: int, turn: int) -> None:
    """Print a turn's decisions, with prompts and replies.

    Raises:
        TapeError: the run has no such turn, nor calls of it.
    """
    turns = {record.number: record for record in load_turns(tape, run, up_to=max(turn, 0))}
    if turn in turns:
        _show_whole_turn(turns[turn], run)
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


def _show_whole_turn(turn: Turn, run: int) -> None:
    period = f", {turn.state.period}" if turn.state.period else ""
    say(f"Turn {turn.number}{period} of run {run}", style="bold")
    for intervention in turn.interventions:
        say(f"from outside: {intervention}")
    economy = turn.state.global_state
    say(
        f"it led to: interest rate {economy.interest_rate:.2f}, inflation {economy.inflation:.2f}, "
        f"unemployment {economy.unemployment:.2f}, output gap {economy.output_gap:.2f}"
    )
    for action in turn.actions:
        accepted = "accepted" if action.validated else "REJECTED"
        say(f"{action.agent_name} proposed ({accepted}): {action.action_string}")
    for chain in turn.chains:
        console.print()
        _show_chain(chain)


def _show_chain(chain: LLMReasoningChain) -> None:
    who = f"{chain.component} of {chain.agent}" if chain.agent else chain.component
    if chain.call is None:
        say(f"{who}, without a model: {chain.reasoning}", style="bold")
        return
    say(f"{who}: {chain.call.status}, confidence {chain.confidence}", style="bold")
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
