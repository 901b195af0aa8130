"""``llmsim-lab tape``: look into tapes, check them, carry runs from one to another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from llmsim_lab import run as operations
from llmsim_lab._util.jsontext import as_mapping, dumps, flat, plain
from llmsim_lab._util.tables import frame_of
from llmsim_lab._util.text import clip, counted, listed, number, whole
from llmsim_lab._util.waiting import run_sync
from llmsim_lab.cli._output import decision_in_words, errors, say, say_turns
from llmsim_lab.cli._playing import OTHER_MODEL_HELP, Host, ImportFiles
from llmsim_lab.cli._run import RunNumber, TapeFile, valid_run
from llmsim_lab.errors import LabError, TapeError
from llmsim_lab.llm import Tape, connect
from llmsim_lab.llm.asked_again import CANNOT_SHOW, Audit, ask_again, recorded_model
from llmsim_lab.llm.scope import caller
from llmsim_lab.prompts.prompt import word_diff
from llmsim_lab.run.charts import series_of
from llmsim_lab.run.outside import outside_in_words
from llmsim_lab.run.plain_prompts import PLAIN
from llmsim_lab.run.reading import SETTINGS, RecordedRun, spoken, tool_lines
from llmsim_lab.run.recorded import existing_tape, run_on_tape
from llmsim_lab.run.series import own_numbers, plain_series
from llmsim_lab.run.turn import Answer
from llmsim_lab.tape import Finding, RecordedCall, RunInfo, digest
from llmsim_lab.tape import repair as repair_tape
from llmsim_lab.tape import verify as verify_tape
from llmsim_lab.tape.changes import differences, edited_prompts, settings_shared
from llmsim_lab.tape.prompts_read import PromptsRead
from llmsim_lab.types import Attempt, ChatReply, Status

app = typer.Typer(help="Look into tapes of recorded runs.", no_args_is_help=True)

_Runs = Annotated[list[int], typer.Option("--run", help="A run's number; may be repeated.")]

_COMPARED = ("kind", "config", "llm", "model", "seed", "given", "package", "python", "platform")
"""Parts of a manifest that are shown and compared value by value; prompts are texts."""
_MOST_SERIES = 4
_MOST_OF_A_VALUE = 200
_MOST_SHOWN = 2_000
"""Answers of a turn, or calls, or messages in calls."""
_MOST_LETTERS = 4 * 10**6
"""Of calls: thousands may share a system message, or a form of replies, of megabytes."""
_MOST_LINES = 1_000
"""Of what defines a run, or tells two apart."""


@app.command("ls")
def ls(file: TapeFile) -> None:
    """List a tape's runs: which came from which, what each changed, how it ended."""
    # Read only, here and below: looking at a tape neither changes nor locks it.
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
        first = valid_run(tape, a)
        second = valid_run(tape, b)
        say(f"Run {first.id} ({first.name}) and run {second.id} ({second.name})", style="bold")
        changed = differences(
            _defining(first, second),
            _defining(second, first),
            most=_MOST_OF_A_VALUE,
        )
        changed += _changed_prompts(first, second)
        for line in changed or ["Configuration, model, versions and prompts are the same."]:
            say(line)
        for run in (first, second):
            for line in _resumes(run):
                say(f"Run {run.id}: {line}")
        is_family = first.parent is not None or second.parent is not None
        for run in (first, second):
            # What a first run began with, those that come from it have too, or say is gone.
            if run.parent is None and is_family:
                continue
            for line in tape.changes(run.id):
                say(f"Run {run.id} changed: {line}")
        _show_trajectories(tape, first, second)


@app.command("prune")
def prune(file: TapeFile, run: _Runs) -> None:
    """Remove runs from a tape."""
    with existing_tape(file) as tape:
        tape.prune(run)
    say(f"Removed from {file}: {', '.join(f'run {number}' for number in run)}")


_ASK = "Ask so many of the recorded calls again, and compare the replies."
_ASKED_MODEL = f"The model to ask, else the recorded one: {OTHER_MODEL_HELP}"


@app.command("verify")
def verify(
    file: TapeFile,
    replay: Annotated[bool, typer.Option("--replay", help="Replay each run as well.")] = False,
    ask: Annotated[int | None, typer.Option("--ask", min=1, help=_ASK)] = None,
    model: Annotated[str | None, typer.Option("--model", help=_ASKED_MODEL)] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Draws the calls to ask.")] = None,
    host: Host = None,
    import_: ImportFiles = None,
) -> None:
    """Check that a tape is whole and holds what was recorded; status 1 if not.

    With --replay each run is also played again from the tape; no model is asked. The file of a
    world of your own is named by --import. With --ask 20 a model is asked twenty of the recorded
    calls again, with their settings and seeds: so an edited reply shows, or another model's.
    """
    is_of_asking = model is not None or seed is not None or host is not None
    if ask is None and is_of_asking:
        raise typer.BadParameter("--model, --seed and --host go with --ask 20, which asks a model")
    with Tape(file, read_only=True) as tape:
        # The sums first: of a line that was damaged nothing can be asked.
        findings = verify_tape(tape)
        # A damaged tape would say the same again, in other words.
        if replay and not findings:
            for info in tape.runs():
                findings += _replayed(tape, info)
        for finding in findings:
            say(finding, style="red")
        if findings:
            raise typer.Exit(1)
        runs = tape.runs()
        calls = sum(info.calls for info in runs)
        words = f"{file} is sound: {counted(len(runs), 'run')}, {calls:,} calls"
        if replay:
            words += "; each was replayed to the same turns"
        say(words)
        # To be published: sums can be computed again after an edit, and this cannot be.
        say(f"sha256 {digest(file)}", style="dim")
        if ask is not None and not _is_answered_alike(tape, ask, model, seed, host):
            raise typer.Exit(1)


def _is_answered_alike(
    tape: Tape,
    number: int,
    model: str | None,
    seed: int | None,
    host: str | None,
) -> bool:
    """Ask recorded calls again and say what that shows; return True if all replies are equal."""
    # Quiet, since the model's name is part of what is said here. Five minutes a request: to read a
    # full window takes long, and a server that hangs must not be waited for without an end.
    client = connect(
        model or recorded_model(tape),
        host=host,
        quiet=True,
        timeout_s=300,
    )
    say(client.chosen)

    async def ask_calls() -> Audit:
        async with client:
            return await ask_again(
                tape,
                client,
                number=number,
                seed=seed,
                progress=partial(say, style="dim", to=errors),
            )

    audit = run_sync(ask_calls())
    say(
        f"{len(audit.answers)} of {counted(audit.eligible, 'call')}, drawn with --seed {audit.seed}"
    )
    for reason, count in audit.left_out.items():
        say(f"left out: {counted(count, 'call')} {reason}")
    # Other weights, which explain what follows.
    for note in audit.notes:
        say(note, style="red")
    for answer in audit.answers:
        if answer.verdict == "within reach":
            say(answer)
        elif answer.verdict != "equal":
            say(answer, style="red")
    say(audit, style="bold" if audit.ok else "red")
    say(CANNOT_SHOW, style="dim")
    return audit.ok


def _replayed(tape: Tape, info: RunInfo) -> list[Finding]:
    """Play a run again from its tape; returns why that cannot be done, if it cannot."""
    try:
        operations.replay(tape, info.id)
    except LabError as error:
        return [Finding(what=f"it cannot be replayed: {error}", run=info.id)]
    return []


@app.command("repair")
def repair(
    file: TapeFile,
    target: Annotated[Path, typer.Argument(help="The new tape.")],
) -> None:
    """Write the intact part of a damaged tape to a new one."""
    last_turns = repair_tape(file, target)
    for run, (before, kept) in last_turns.items():
        if kept < 0:  # not even the turn that it starts from
            say(
                f"Run {run} is left out: its beginning, a text, or a run that it came from is "
                "damaged."
            )
        else:
            say(f"Run {run} is whole up to turn {kept} of {before}.")
    if all(kept < 0 for _, kept in last_turns.values()):
        say(f"No run is whole: {target} is a tape without runs.")
    say(f"Written: {target}")


def _defining(run: RunInfo, beside: RunInfo | None = None) -> dict[str, Any]:
    """Return what defines a run; beside one that came from it, with the settings of that time."""
    defining = {name: run.manifest.get(name) for name in _COMPARED}
    if beside is not None and beside.parent == run.id:
        defining["llm"] = settings_shared(run, beside)
    return defining


def _resumes(run: RunInfo) -> list[str]:
    """Return after which turns a run was resumed with other settings, a line each."""
    earlier = run.manifest.get("settings_before", ())
    llms = [as_mapping(settings["llm"]) for settings in earlier]
    llms.append(as_mapping(run.manifest["llm"]))
    lines = []
    for settings, (before, after) in zip(earlier, pairwise(llms), strict=True):
        changed = differences(before, after, most=_MOST_OF_A_VALUE)
        if changed:
            turn = settings["last_turn"]
            lines.append(f"after turn {turn} with other settings: {', '.join(changed)}")
    return lines


def _changed_prompts(a: RunInfo, b: RunInfo) -> Iterator[str]:
    before = a.manifest["prompts"]
    after = b.manifest["prompts"]
    for place in sorted(before.keys() ^ after.keys()):
        entry = before.get(place) or after[place]
        # A text without slots, as it was first asked: the run came so far and the other did not.
        if entry["parent"] == entry["digest"]:
            continue
        owner = a if place in before else b
        yield f"Only run {owner.id} has the prompt {place}"
    for (was, now), places in edited_prompts(a.manifest, b.manifest).items():
        yield f"The prompt {', '.join(places)} differs:\n{word_diff(was, now)}"


def _show_trajectories(
    tape: Tape,
    a: RunInfo,
    b: RunInfo,
) -> None:
    rows_of_a = tape.frame_rows(a.id)
    rows_of_b = tape.frame_rows(b.id)
    changed: dict[int, list[str]] = {}
    for turn in sorted(rows_of_a.keys() & rows_of_b.keys()):
        # How long a turn took always differs.
        first = {**rows_of_a[turn], "seconds": 0}
        second = {**rows_of_b[turn], "seconds": 0}
        # In the order of the first: a set would list them otherwise each time.
        columns = dict.fromkeys([*first, *second])
        changed[turn] = [name for name in columns if first.get(name) != second.get(name)]
    names = [*dict.fromkeys(chain(*changed.values()))]
    if not names:
        turns = f"turns {min(changed)} to {max(changed)}" if changed else "no turn"
        say(f"All columns are the same in {turns}; what was said may differ (show --turn).")
        return
    at = next(turn for turn, columns in changed.items() if columns)
    say(f"They diverge at turn {at}, in: {listed(names)}", style="bold")
    # There may be no number in both.
    with suppress(TapeError):
        frame = tape.compare(a.id, b.id)
        shown = [name for name in names if name in frame][:_MOST_SERIES]
        if shown:
            say(frame.loc[at:, shown].to_string(float_format=number))


def _show_run(tape: Tape, info: RunInfo) -> None:
    """Print what defines a run and where it led."""
    heading = f"Run {info.id}, {info.name}: {info.verb}"
    if info.parent is not None:
        heading += f" of run {info.parent}"
    say(heading, style="bold")
    # A run that is still played, or was killed, has no end.
    ended = f"ended {info.ended}: {info.outcome}" if info.ended else "not ended"
    say(f"{info.turns} turns, {info.calls} calls, begun {info.started}, {ended}")
    # Most parts of a manifest are None in most runs.
    values = flat(_defining(info))
    defining = [(name, value) for name, value in values.items() if value != "null"]
    for name, value in defining[:_MOST_LINES]:
        say(f"{name}: {clip(value, _MOST_OF_A_VALUE)}")
    if len(defining) > _MOST_LINES:
        say(f"and {len(defining) - _MOST_LINES:,} more values")
    for line in _resumes(info):
        say(line)
    texts = Counter[str]()
    prompts: list[str] = []
    for place, entry in info.manifest["prompts"].items():
        # A function of the name writes a text for each player: they are counted.
        if f"{PLAIN}:" in place:
            texts[entry["name"]] += 1
        else:
            prompts.append(f"prompt: {entry['name']} {entry['digest'][:12]}")
    for name, times in texts.items():
        prompts.append(f"prompt: {name}, {counted(times, 'text')} edited each by itself")
    for line in prompts[:_MOST_LINES]:
        say(line)
    _say_left_out(len(prompts) - _MOST_LINES, "prompts", "Tape(path).run(run).manifest")
    rows = [whole(row) for row in tape.frame_rows(info.id).values()]
    series = series_of(
        run_on_tape(
            tape,
            info,
            first=info.turns,
        )
    )
    charted = {item.column for item in series}
    uncharted: list[str] = []
    for row in rows:
        uncharted += [name for name in own_numbers(row) if name not in charted]
    shown = [*series, *plain_series(uncharted)]
    # Of rows with thousands of columns a table needs a few.
    wanted = {"turn", "period", "interventions", *get_args(Status)}
    wanted |= {item.column for item in shown}
    say_turns(frame_of([_only(row, wanted) for row in rows]), shown)


def _only(
    row: Mapping[str, object],
    names: Container[str],
) -> dict[str, object]:
    return {name: value for name, value in row.items() if name in names}


def _show_turn(
    tape: Tape,
    info: RunInfo,
    at: int,
) -> None:
    """Print a turn's decisions, with prompts and replies; of one that failed, its calls.

    Raises:
        TapeError: the run has no such turn, nor calls of it.
    """
    # Of a turn that is not there none is read, so that the run's class is known all the same.
    near = min(max(at, 0), info.turns)
    run = run_on_tape(
        tape,
        info,
        first=near,
        last=near,
    )
    turn = next((turn for turn in run.turns if turn.number == at), None)
    # A fork's first turns are its parent's.
    owner = tape.player(info.id, at)
    calls = tape.calls(
        owner,
        turn=at,
        forgotten=True,
    )
    outside = tape.outside(owner, at)
    if turn is None and not calls and not outside:
        raise TapeError(f"run {info.id} has no turn {at}; it has turns 0 to {info.turns}")
    # A turn that failed has its calls and nothing else.
    unfinished = "" if turn else " was not finished; its calls:"
    say(f"Turn {at} of run {info.id}{unfinished}", style="bold")
    # Of a world whose class is not known here; its numbers are shown all the same.
    if isinstance(run, RecordedRun):
        say(run.note, style="yellow")
    words = list(turn.in_words()) if turn is not None else []
    words += outside_in_words(outside)
    if words:
        say("\n".join(words))
    if turn is not None:
        for answer in turn.answers[:_MOST_SHOWN]:
            _show_answer(answer)
        _say_left_out(len(turn.answers) - _MOST_SHOWN, "answers", "load(tape, run).decisions()")
    shown = 0
    messages = 0
    letters = 0
    for call in calls:
        messages += len(call.attempt.request.messages)
        is_too_much = messages > _MOST_SHOWN or letters > _MOST_LETTERS
        if shown and (shown == _MOST_SHOWN or is_too_much):
            break
        letters += _show_call(call)
        shown += 1
    _say_left_out(len(calls) - shown, "calls", f"Tape(path).calls({owner}, turn={at})")


def _say_left_out(count: int, things: str, where: str) -> None:
    if count > 0:
        say(f"\nand {count:,} more {things}, which {where} has", style="bold")


def _show_answer(answer: Answer) -> None:
    """Print a decision, who made it, and from which calls."""
    heading = answer.component
    if answer.player:
        heading += f" of {answer.player}"
    heading += f": {answer.status}"
    # An answer that was taken from probabilities has a call for each order of the options.
    numbers = [str(number) for call in answer.calls for number in call.numbers]
    if numbers:
        heading += f", from call {', '.join(numbers)}"
    else:
        heading += ", without a model"
    if answer.confidence is not None:
        heading += f", confidence {answer.confidence}"
    say(f"\n{heading}", style="bold")
    say(decision_in_words(answer))


def _show_call(call: RecordedCall) -> int:
    """Print a call with its settings, and what became of it; return how many letters it has."""
    request = call.attempt.request
    reply = call.attempt.reply
    # Of a call outside of a turn no place is known.
    site = request.site
    where = f"{caller(site)}, turn {site.turn}" if site else "outside a turn"
    heading = f"Call {call.id} of run {call.run}: {where}"
    if request.attempt > 1:
        heading += ", second attempt"
    if call.forgotten:
        heading += "; its call failed for good and was made anew"
    say(f"\n{heading}", style="bold")
    letters = 0
    for name in SETTINGS:
        value = getattr(request, name)
        # What is not set is the server's default, and says nothing.
        if value in (None, False, ()):
            continue
        if not isinstance(value, str):
            value = dumps(plain(value))
        letters += len(value)
        say(f"{name}: {value}")
    for message in request.messages[:_MOST_SHOWN]:
        role, text = spoken(message)
        letters += len(text)
        say(f"[{role}]", style="cyan")
        say(text)
    _say_left_out(
        len(request.messages) - _MOST_SHOWN,
        "messages",
        f"Tape(path).call({call.id})",
    )
    if reply is not None:
        _show_reply(reply, call.attempt)
    if call.attempt.reason:
        say(f"--- {call.attempt.reason}: {clip(call.attempt.detail, 500)}", style="red")
    return letters


def _show_reply(reply: ChatReply, attempt: Attempt) -> None:
    """Print a reply, what it took and how it ended."""
    cost = f"{attempt.seconds:.2f} s"
    if reply.prompt_tokens is not None:
        cost += f" · prompt {counted(reply.prompt_tokens, 'token')}"
    # Some servers tell how much of a prompt they had kept.
    anew = PromptsRead().add(attempt)
    if anew is not None and anew.is_counted:
        cost += f", {anew.tokens:,} of them read anew"
    if reply.reply_tokens is not None:
        cost += f" · {reply.reply_tokens:,} written"
    ended = f"ended by: {reply.done_reason}"
    if attempt.cut:
        ended += f"; {', '.join(attempt.cut)} cut at the limit of texts"
    say(f"--- answered ({cost}; {ended})", style="cyan")
    if reply.thinking:
        say(reply.thinking, style="dim")
    # A reply of tool calls alone has no text.
    texts = [text for text in (reply.text, *tool_lines(reply)) if text]
    say("\n".join(texts))
