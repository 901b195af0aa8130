"""``llmsim-lab tape``: look into tapes, check them, carry runs from one to another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from llmsim_lab import run as operations
from llmsim_lab._util.jsontext import as_mapping, dumps, flat, plain
from llmsim_lab._util.tables import frame_of
from llmsim_lab._util.text import clip, counted, listed, number, whole
from llmsim_lab.cli._output import decision_in_words, say, say_turns
from llmsim_lab.cli._playing import ImportFiles
from llmsim_lab.cli._run import RunNumber, TapeFile, valid_run
from llmsim_lab.errors import LabError, TapeError
from llmsim_lab.llm import Tape
from llmsim_lab.llm.scope import caller
from llmsim_lab.prompts.prompt import word_diff
from llmsim_lab.run._plain_prompts import PLAIN
from llmsim_lab.run._reading import SETTINGS, RecordedRun, spoken, tool_lines
from llmsim_lab.run._turn import outside_in_words, own_numbers, plain_series
from llmsim_lab.run.recorded import existing_tape, run_on_tape
from llmsim_lab.tape import Finding, RecordedCall, RunInfo, digest
from llmsim_lab.tape import repair as repair_tape
from llmsim_lab.tape import verify as verify_tape
from llmsim_lab.tape.changes import differences, edited_prompts
from llmsim_lab.tape.prompts_read import PromptsRead
from llmsim_lab.types import Status

app = typer.Typer(help="Look into tapes of recorded runs.", no_args_is_help=True)

_Runs = Annotated[list[int], typer.Option("--run", help="A run's number; may be repeated.")]

_COMPARED = ("kind", "config", "llm", "model", "seed", "given", "package", "python", "platform")
"""Parts of a manifest that are shown and compared value by value; prompts are texts."""
_MOST_SERIES = 4
_MOST_OF_A_VALUE = 200
_MOST_LINES = 1_000
"""Of what defines a run, or tells two apart."""


@app.command("ls")
def ls(file: TapeFile) -> None:
    """List a tape's runs: which came from which, what each changed, how it ended."""
    with Tape(file, read_only=True) as tape:
        say(tape.tree())


@app.command("show")
def show(
    file: TapeFile,
    run: RunNumber = None,
    turn: Annotated[int | None, typer.Option(help="One turn: what was asked and answered.")] = None,
    import_: ImportFiles = None,
) -> None:
    """Show a run: what defines it, its turns; or one turn with all its calls."""
    with Tape(file, read_only=True) as tape:
        if turn is not None:
            _show_turn(tape, tape.run(run), turn)
        else:
            _show_run(tape, valid_run(tape, run))


@app.command("diff")
def diff(
    file: TapeFile,
    a: Annotated[int, typer.Argument(help="A run's number.")],
    b: Annotated[int, typer.Argument(help="Another's.")],
) -> None:
    """Say how two runs differ: what defines them, their prompts, what was done, where they led."""
    with Tape(file, read_only=True) as tape:
        one, other = valid_run(tape, a), valid_run(tape, b)
        say(f"Run {one.id} ({one.name}) and run {other.id} ({other.name})", style="bold")
        changed = differences(_defining(one), _defining(other), most=_MOST_OF_A_VALUE)
        changed += _changed_prompts(one, other)
        for line in changed or ["Configuration, model, versions and prompts are the same."]:
            say(line)
        for run in (one, other):
            # What a first run began with, those that come from it have too, or say is gone.
            is_first = run.parent is None and (one.parent, other.parent) != (None, None)
            for line in () if is_first else tape.changes(run.id):
                say(f"Run {run.id} changed: {line}")
        _show_trajectories(tape, one, other)


@app.command("prune")
def prune(file: TapeFile, run: _Runs) -> None:
    """Remove runs from a tape."""
    with existing_tape(file) as tape:
        tape.prune(run)
    say(f"Removed from {file}: {', '.join(f'run {one}' for one in run)}")


@app.command("verify")
def verify(
    file: TapeFile,
    replay: Annotated[bool, typer.Option("--replay", help="Replay each run as well.")] = False,
    import_: ImportFiles = None,
) -> None:
    """Check that a tape is whole and holds what was recorded; status 1 if not.

    With --replay each run is also played again from the tape; no model is asked. The file of a
    world of your own is named by --import.
    """
    with Tape(file, read_only=True) as tape:
        findings = verify_tape(tape)
        if replay and not findings:
            findings = [finding for info in tape.runs() for finding in _replayed(tape, info)]
        for finding in findings:
            say(finding, style="red")
        if findings:
            raise typer.Exit(1)
        runs, calls = counted(len(tape.runs()), "run"), sum(it.calls for it in tape.runs())
        played = "; each was replayed to the same turns" if replay else ""
        say(f"{file} is sound: {runs}, {calls:,} calls{played}")
        say(f"sha256 {digest(file)}", style="dim")


def _replayed(tape: Tape, info: RunInfo) -> list[Finding]:
    """Play a run again from its tape; returns why that cannot be done, if it cannot."""
    try:
        operations.replay(tape, info.id)
    except LabError as error:
        return [Finding(what=f"it cannot be replayed: {error}", run=info.id)]
    return []


@app.command("repair")
def repair(file: TapeFile, target: Annotated[Path, typer.Argument(help="The new tape.")]) -> None:
    """Write the intact part of a damaged tape to a new one."""
    for run, (before, kept) in repair_tape(file, target).items():
        lost = "is left out: its beginning, a text, or a run that it came from is damaged"
        say(f"Run {run} {lost if kept < 0 else f'is whole up to turn {kept} of {before}'}.")
    say(f"Written: {target}")


def _defining(run: RunInfo) -> dict[str, Any]:
    return {name: run.manifest.get(name) for name in _COMPARED}


def _changed_prompts(a: RunInfo, b: RunInfo) -> Iterator[str]:
    before, after = a.manifest["prompts"], b.manifest["prompts"]
    for place in sorted(before.keys() ^ after.keys()):
        entry = before.get(place) or after[place]
        if entry["parent"] == entry["digest"]:  # a text without slots, as it was first asked
            continue
        yield f"Only run {a.id if place in before else b.id} has the prompt {place}"
    for (was, now), places in edited_prompts(a.manifest, b.manifest).items():
        yield f"The prompt {', '.join(places)} differs:\n{word_diff(was, now)}"


def _show_trajectories(tape: Tape, a: RunInfo, b: RunInfo) -> None:
    rows, changed = [tape.frame_rows(run.id) for run in (a, b)], dict[int, list[str]]()
    for turn in sorted(rows[0].keys() & rows[1].keys()):
        one, other = ({**its[turn], "seconds": 0} for its in rows)  # which always differ
        changed[turn] = [name for name in one | other if one.get(name) != other.get(name)]
    names = [*dict.fromkeys(chain(*changed.values()))]
    if not names:
        turns = f"turns {min(changed)} to {max(changed)}" if changed else "no turn"
        say(f"All columns are the same in {turns}; what was said may differ (show --turn).")
        return
    at = next(turn for turn, its in changed.items() if its)
    say(f"They diverge at turn {at}, in: {listed(names)}", style="bold")
    with suppress(TapeError):  # there is no number in both
        frame = tape.compare(a.id, b.id)
        shown = [name for name in names if name in frame][:_MOST_SERIES]
        say(frame.loc[at:, shown].to_string(float_format=number) if shown else "")


def _show_run(tape: Tape, info: RunInfo) -> None:
    """Print what defines a run and where it led."""
    source = "" if info.parent is None else f" of run {info.parent}"
    say(f"Run {info.id}, {info.name}: {info.verb}{source}", style="bold")
    ended = f"ended {info.ended}: {info.outcome}" if info.ended else "not ended"
    say(f"{info.turns} turns, {info.calls} calls, begun {info.started}, {ended}")
    defining = [(name, value) for name, value in flat(_defining(info)).items() if value != "null"]
    for name, value in defining[:_MOST_LINES]:
        say(f"{name}: {clip(value, _MOST_OF_A_VALUE)}")
    if len(defining) > _MOST_LINES:
        say(f"and {len(defining) - _MOST_LINES:,} more values")
    for earlier in info.manifest.get("settings_before", ()):
        llm = as_mapping(info.manifest["llm"])
        changed = differences(as_mapping(earlier["llm"]), llm, most=_MOST_OF_A_VALUE)
        if changed:
            say(f"after turn {earlier['last_turn']} with other settings: {', '.join(changed)}")
    texts = Counter[str]()
    for place, entry in info.manifest["prompts"].items():
        if f"{PLAIN}:" in place:
            texts[entry["name"]] += 1
        else:
            say(f"prompt: {entry['name']} {entry['digest'][:12]}")
    for name, times in texts.items():
        say(f"prompt: {name}, {counted(times, 'text')} edited each by itself")
    rows = [whole(row) for row in tape.frame_rows(info.id).values()]
    series = run_on_tape(tape, info, first=info.turns).series
    known = {item.column for item in series}
    more = (name for row in rows for name in own_numbers(row) if name not in known)
    shown = [*series, *plain_series(more)]
    # Of rows with thousands of columns a table needs a few.
    wanted = {"turn", "period", "interventions", *get_args(Status), *(it.column for it in shown)}
    frame = frame_of([{name: row[name] for name in row if name in wanted} for row in rows])
    say_turns(frame, shown)


def _show_turn(tape: Tape, info: RunInfo, at: int) -> None:
    """Print a turn's decisions, with prompts and replies; of one that failed, its calls.

    Raises:
        TapeError: the run has no such turn, nor calls of it.
    """
    # Of a turn that is not there none is read, so that the run's class is known all the same.
    near = min(max(at, 0), info.turns)
    run = run_on_tape(tape, info, first=near, last=near)
    turn = next((turn for turn in run.turns if turn.number == at), None)
    # A fork's first turns are its parent's.
    owner = tape.player(info.id, at)
    calls, outside = tape.calls(owner, turn=at, forgotten=True), tape.outside(owner, at)
    if turn is None and not calls and not outside:
        raise TapeError(f"run {info.id} has no turn {at}; it has turns 0 to {info.turns}")
    unfinished = "" if turn else " was not finished; its calls:"
    say(f"Turn {at} of run {info.id}{unfinished}", style="bold")
    if isinstance(run, RecordedRun):
        say(run.note, style="yellow")
    for words in [*(turn.in_words() if turn else ()), *outside_in_words(outside)]:
        say(words)
    for answer in turn.answers if turn else ():
        who = f"{answer.component} of {answer.player}" if answer.player else answer.component
        numbers = ", ".join(str(n) for call in answer.calls for n in call.numbers)
        how = f", from call {numbers}" if numbers else ", without a model"
        sure = "" if answer.confidence is None else f", confidence {answer.confidence}"
        say(f"\n{who}: {answer.status}{how}{sure}", style="bold")
        say(decision_in_words(answer))
    for call in calls:
        _show_call(call)


def _show_call(call: RecordedCall) -> None:
    """Print a call with its settings, and what became of it."""
    request, reply, site = call.attempt.request, call.attempt.reply, call.attempt.request.site
    where = f"{caller(site)}, turn {site.turn}" if site else "outside a turn"
    gone = "; its call failed for good and was made anew" if call.forgotten else ""
    which = ", second attempt" if request.attempt > 1 else ""
    say(f"\nCall {call.id} of run {call.run}: {where}{which}{gone}", style="bold")
    for name in SETTINGS:
        if (value := getattr(request, name)) not in (None, False, ()):
            say(f"{name}: {value if isinstance(value, str) else dumps(plain(value))}")
    for message in request.messages:
        role, text = spoken(message)
        say(f"[{role}]", style="cyan")
        say(text)
    if reply is not None:
        how = f"{call.attempt.seconds:.2f} s"
        if reply.prompt_tokens is not None:
            how += f" · prompt {counted(reply.prompt_tokens, 'token')}"
        anew = PromptsRead().add(call.attempt)
        if anew is not None and anew.is_counted:
            how += f", {anew.tokens:,} of them read anew"
        if reply.reply_tokens is not None:
            how += f" · {reply.reply_tokens:,} written"
        ended = f"ended by: {reply.done_reason}"
        if call.attempt.cut:
            ended += f"; {', '.join(call.attempt.cut)} cut at the limit of texts"
        say(f"--- answered ({how}; {ended})", style="cyan")
        if reply.thinking:
            say(reply.thinking, style="dim")
        say("\n".join(filter(None, (reply.text, *tool_lines(reply)))))
    if call.attempt.reason:
        say(f"--- {call.attempt.reason}: {clip(call.attempt.detail, 500)}", style="red")
