"""``llmsim-lab tape``: look into tapes, check them, carry runs from one to another."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from llmsim_lab import run as operations
from llmsim_lab._util.jsontext import flat
from llmsim_lab._util.text import clip, counted, listed, number
from llmsim_lab.cli._output import console, frame_table, say
from llmsim_lab.cli._playing import ImportFiles, errors_located, import_files
from llmsim_lab.cli._run import RunNumber, TapeFile, valid_run
from llmsim_lab.errors import LabError, TapeError
from llmsim_lab.llm import Tape
from llmsim_lab.prompts._prompt import PromptDiff
from llmsim_lab.run._reading import Reading, Record
from llmsim_lab.run._registry import kind_name
from llmsim_lab.run._run import existing_tape, read_into
from llmsim_lab.run._turn import answer_in_words, outside_in_words
from llmsim_lab.tape import repair as repair_tape
from llmsim_lab.tape import verify as verify_tape
from llmsim_lab.tape._changes import edited_prompts
from llmsim_lab.tape._lines import RunInfo
from llmsim_lab.tape._tape import parting
from llmsim_lab.tape._verify import Finding, digest

app = typer.Typer(help="Look into tapes of recorded runs.", no_args_is_help=True)

_Runs = Annotated[list[int], typer.Option("--run", help="A run's number; may be repeated.")]

_COMPARED = ("config", "llm", "model", "seed", "given", "package", "python", "platform")
"""Parts of a manifest that ``diff`` compares value by value; prompts are compared as texts."""
_MOST_SERIES = 4


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
    call: Annotated[int | None, typer.Option(help="One call, by its number, whole.")] = None,
    import_: ImportFiles = None,
) -> None:
    """Show a run: what defines it, its turns; or one turn; or one call."""
    import_files(import_)
    with Tape(file, read_only=True) as tape:
        if call is not None:
            reading = Reading(tape.path.name)
            _show_call(reading, reading.call_of(tape.call(call)))
        elif turn is not None:
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
        _show_differences(tape, valid_run(tape, a), valid_run(tape, b))


@app.command("prune")
def prune(file: TapeFile, run: _Runs) -> None:
    """Take runs off a tape for good."""
    with existing_tape(file) as tape:
        tape.prune(run)
    say(f"Taken off {file}: {', '.join(f'run {one}' for one in run)}")


@app.command("verify")
def verify(
    file: TapeFile,
    replay: Annotated[bool, typer.Option("--replay", help="Replay each run as well.")] = False,
    import_: ImportFiles = None,
) -> None:
    """Check that a tape is whole and holds what was recorded; status 1 if not."""
    import_files(import_)
    with Tape(file, read_only=True) as tape:
        findings = verify_tape(tape)
        played = 0
        if replay and not findings:
            for run in (info.id for info in tape.runs()):
                try:
                    with errors_located():
                        operations.replay(tape, valid_run(tape, run).id)
                except LabError as error:
                    findings.append(Finding(what=f"it cannot be replayed: {error}", run=run))
                played += 1
        for finding in findings:
            say(finding, style="red")
        if findings:
            raise typer.Exit(1)
        runs = tape.runs()
        calls = sum(info.calls for info in runs)
        say(
            f"{file} is sound: {counted(len(runs), 'run')}, {calls:,} calls"
            + (f"; {played} replayed to the same turns." if replay else ".")
        )
        say(f"sha256 {digest(file)}", style="dim")


@app.command("repair")
def repair(
    file: TapeFile,
    target: Annotated[Path, typer.Argument(help="The new tape.")],
) -> None:
    """Write a tape of what is whole of a damaged one, which stays as it is."""
    for run, (before, kept) in repair_tape(file, target).items():
        what = "is left out" if kept < 0 else f"is whole up to turn {kept} of {before}"
        say(f"Run {run} {what}.")
    say(f"Written: {target}")


def _show_differences(tape: Tape, a: RunInfo, b: RunInfo) -> None:
    """Print how two runs differ: what defines them, their prompts, where they led."""
    say(f"Run {a.id} ({a.name}) and run {b.id} ({b.name})", style="bold")
    kinds = kind_name(a.manifest), kind_name(b.manifest)
    if kinds[0] != kinds[1]:
        say(f"They are of different kinds: {kinds[0]} and {kinds[1]}")
    changed = list(_changes(a.manifest, b.manifest))
    for line in changed or ["Configuration, model and versions are the same."]:
        say(line)
    _show_prompts(a, b)
    changes = tape.changes()
    for run, other in ((a, b), (b, a)):
        for line in changes.outside(run.id, other.id):
            say(f"From outside, run {run.id} only: {line}")
        # What a run began with is told as a change from its parent, and from nothing else.
        for line in changes.state(run.id) if run.parent == other.id else ():
            say(f"Run {run.id} began from another {line}")
    _show_trajectories(tape, a, b)


def _changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[str]:
    before, after = (flat({name: run.get(name) for name in _COMPARED}) for run in (a, b))
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name, "(none)"), after.get(name, "(none)")
        if was != now:
            yield f"{name}: {clip(was, 200)} -> {clip(now, 200)}"


def _show_prompts(a: RunInfo, b: RunInfo) -> None:
    """Print word diffs of the prompts."""
    before, after = a.manifest["prompts"], b.manifest["prompts"]
    for place in sorted(before.keys() ^ after.keys()):
        say(f"Only run {a.id if place in before else b.id} has the prompt {place}")
    changed = edited_prompts(a.manifest, b.manifest)
    for (was, now), places in changed.items():
        say(f"The prompt {', '.join(places)} differs:", style="bold")
        say(PromptDiff(was, now))
    if not changed:
        say("The prompts that both have are the same.")


def _show_trajectories(tape: Tape, a: RunInfo, b: RunInfo) -> None:
    try:
        frame = tape.compare(a.id, b.id)
    except TapeError as error:  # such as of two kinds without a column in common
        say(error)
        return
    apart = parting(frame)
    names = list(dict.fromkeys(map(str, apart.columns.get_level_values(0))))
    if not names:
        say(f"Turns {frame.index.min()} to {frame.index.max()}, which both have, led to the same.")
        return
    say(f"Their trajectories part at turn {apart.index[0]}, in: {', '.join(names)}", style="bold")
    say(apart[names[:_MOST_SERIES]].to_string(float_format=number))


def _show_run(tape: Tape, info: RunInfo) -> None:
    """Print what defines a run and where it led."""
    source = "" if info.parent is None else f" of run {info.parent}"
    if info.fork_turn is not None:
        source += f" at turn {info.fork_turn}"
    say(f"Run {info.id}, {info.name}: {info.verb}{source}", style="bold")
    manifest = info.manifest
    # What is indexed here ``valid_run`` has checked; the rest a tape may lack.
    facts = {
        "kind": kind_name(manifest),
        "turns": f"{info.turns}, in {counted(info.calls, 'call')}",
        "started": info.started,
        "ended": " ".join(filter(None, (info.ended or "not ended", info.outcome))),
        "model": _model(manifest),
        "seed": manifest.get("seed"),
        "recorded by": f"llmsim-lab {manifest['package']}, Python {manifest.get('python')}, "
        f"{manifest.get('platform')}",
    }
    for name, value in facts.items():
        if value not in ("", None):
            say(f"{name + ':':<14} {value}")
    for entry in manifest["prompts"].values():
        edited = f", edited from {entry['parent'][:12]}" if entry["parent"] else ""
        say(f"{'prompt:':<14} {entry['name']} {entry['digest'][:12]}{edited}")
    source = read_into(Reading(tape.path.name), tape, info, ())
    console.print(frame_table(tape.turns_frame(info.id), source.series))
    say(
        f"'--turn {info.turns}' shows what was asked and answered in that turn, '--call N' one "
        "call of it.",
        style="dim",
    )


def _model(manifest: Mapping[str, Any]) -> str:
    model = manifest["model"] or {}
    parts = (model.get(name) for name in ("name", "backend", "version", "digest"))
    return " ".join(str(part) for part in parts if part)


def _show_turn(tape: Tape, info: RunInfo, at: int) -> None:
    """Print a turn's decisions, with prompts and replies.

    Raises:
        TapeError: the run has no such turn, nor calls of it.
    """
    reading = Reading(tape.path.name)
    for run, _ in tape.line(info.id):  # a fork's first turns are its parent's
        read_into(reading, tape, tape.run(run), ())
    known, turn = reading.runs[info.id], reading.turn(info.id, at)
    if turn is None:
        _show_unfinished(tape, info, at, reading)
        return
    say(f"Turn {at} of run {info.id}", style="bold")
    for done in turn["done"]:
        say(f"from outside: {done}")
    if not known["plays"]:
        say(known["notes"][0], style="yellow")
    for words in turn["words"]:
        say(reading.text(words))
    for made in turn["decisions"]:
        console.print()
        who = f"{made['component']} of {made['player']}" if made["player"] else made["component"]
        calls = [reading.calls[number] for number in made["calls"]]
        how = "" if calls else ", without a model"
        if len(calls) > 1:  # a choice was measured
            how = f", from calls {listed([str(call['k']) for call in calls])}"
        sure = "" if made["sure"] is None else f", confidence {made['sure']}"
        say(f"{who}: {made['status']}{how}{sure}", style="bold")
        if len(calls) == 1:
            _show_tries(reading, calls[0])
        if len(calls) != 1 or made["status"] == "fallback":  # which no call shows
            say(
                "; ".join(
                    filter(None, (answer_in_words(made["answer"]), reading.text(made["why"])))
                )
            )


def _show_unfinished(tape: Tape, info: RunInfo, at: int, reading: Reading) -> None:
    """Print what was asked in a turn that failed, which has no state that it led to."""
    calls = [it for it in reading.calls.values() if it["run"] == info.id and it.get("n") == at]
    outside = tape.outside(info.id, at)
    if not calls and not outside:
        first = min(number for _, number in reading.turns)
        raise TapeError(f"run {info.id} has turns {first} to {info.turns}, and none numbered {at}")
    say(f"Turn {at} of run {info.id} was not finished; its calls:", style="bold")
    for words in outside_in_words(outside):
        say(words)
    for call in calls:
        _show_call(reading, call)


def _show_call(reading: Reading, call: Record) -> None:
    """Print a call with its settings, and what became of it."""
    whose = f" of {call['player']}" if call.get("player") else ""
    site = call["component"] != "call" or call.get("n") is not None
    where = f"{call['component']}{whose}, turn {call.get('n')}" if site else "outside a turn"
    gone = "; its call failed for good and was made anew" if call.get("status") == "lost" else ""
    console.print()
    say(f"Call {call['k']} of run {call['run']}: {where}{gone}", style="bold")
    for name, value in json.loads(reading.text(call["tries"][-1]["settings"])).items():
        say(f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}")
    _show_tries(reading, call)


def _show_tries(reading: Reading, call: Record) -> None:
    for place, tried in enumerate(call["tries"], 1):
        which = "first attempt" if place < len(call["tries"]) else f"call {call['k']}"
        say(f"--- asked ({which})", style="cyan")
        for role, text in tried["messages"]:
            say(f"[{role}]", style="dim")
            say(reading.text(text))
        if (reply := tried.get("reply")) is not None:
            tokens = tried.get("read"), tried.get("written")
            counted = (
                f", {tokens[0]} tokens read, {tokens[1]} written" if None not in tokens else ""
            )
            cut = ", cut at its length" if tried.get("cut") else ""
            say(f"--- answered ({tried.get('seconds', 0):.2f} s{counted}{cut})", style="cyan")
            if (thinking := tried.get("thinking")) is not None:
                say(reading.text(thinking), style="dim")
            say(reading.text(reply))
            if (tools := tried.get("tools")) is not None:
                say(reading.text(tools))
        if "fault" in tried:
            detail = reading.text(tried["detail"]) if "detail" in tried else ""
            say(f"--- {tried['fault']}: {clip(detail, 500)}", style="red")
