"""The window over a run, apart from where it is drawn: it does what a page asks for.

A message from the page is ``{"do": name, ...}``, and the method ``_do_name`` carries it out. The
page gets ``{"at", "records"}``, the new part of the log; ``{"live"}``, what is under way;
``{"form"}``, ``{"ask"}``, ``{"show"}`` and ``{"fault"}``. A notebook's widget and the playground's
page are such windows, and transport the messages.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, ValidationError, validate_call

from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.jsontext import JSON
from llmsim_lab._util.text import error_text, faults
from llmsim_lab.errors import ConfigError, LabError
from llmsim_lab.lab._change_form import (
    asking_with,
    change_fields,
    merged,
    parameter_fields,
    prompts_by_name,
    settable,
    words_of,
    words_of_fork,
)
from llmsim_lab.lab._shown_runs import RunsShown, ShownRun
from llmsim_lab.llm import LLMClient, Person
from llmsim_lab.llm.client import run_client
from llmsim_lab.llm.human import AnswerError
from llmsim_lab.llm.scope import InFlight, Waiting, scoped
from llmsim_lab.run import Run
from llmsim_lab.run.forms import Field, read_changes
from llmsim_lab.run.people import people_of
from llmsim_lab.run.playing import sole_driver
from llmsim_lab.run.reading import Reading, RecordedRun
from llmsim_lab.run.recorded import (
    RunOrigin,
    about,
    anew,
    live_client,
    read_into,
    run_on_tape,
    runs_to_show,
    title_of,
    warn_of_settings,
)
from llmsim_lab.run.registry import how_to_import
from llmsim_lab.run.seating import SeatQuestion, put
from llmsim_lab.run.told import seats_of_people, told_in
from llmsim_lab.tape import RunInfo, Tape
from llmsim_lab.types import Attempt

Source = Run | Tape | str | Path
"""A simulation, or a tape or its file."""
Message = dict[str, object]

ALL = ("head", "transport", "overview", "turn", "calls", "compare")
MOST_TURNS = 100_000
"""The most turns played at once: as many as a configuration may plan."""
_LOOK_S = 0.1
"""The time between two looks at a turn under way, and between two messages with news."""
NO_LONGER = "this question is closed"


# Cached, since each call would build the validator again.
@lru_cache(maxsize=64)
def _strictly(command: Callable[..., object]) -> Callable[..., object]:
    """Return a command that accepts only what its annotations say: a page may send anything."""
    return validate_call(config=ConfigDict(strict=True))(command)


class LiveWindow:
    """Some runs, what is shown of them, and the commands of a page.

    A host defines ``_say`` and ``_later``, and calls ``receive`` with the messages of its page.

    Args:
        source: a simulation; or a tape or its file, whose runs are shown.
        run: for a tape, the number of the run to show first; the latest if not given.
        llm_client: the model for forks and restarts of recorded runs, which have none of their own.

    Attributes:
        reading: the log that the page draws.
        runs: the runs of the window, by their numbers here.
        first: the run that is shown first, and its turn if that is not the latest.
    """

    first: dict[str, Any]
    parts: ClassVar[Sequence[str]] = ALL
    # A class attribute, since a host may be closed even if __init__ raised.
    _stop_listening: Sequence[Callable[[], object]] = ()
    _playing: asyncio.Future[None] | None = None
    _tape: Tape | None = None
    """The tape whose runs are shown."""
    _latest: tuple[tuple[object, int, int], Any] | None = None
    """Where the run that was read last is, and that run."""

    def __init__(
        self,
        source: Source,
        *,
        run: int | None = None,
        llm_client: LLMClient | None = None,
    ) -> None:
        self.llm_client = run_client(llm_client)
        self.reading = Reading(getattr(source, "name", ""))
        self.runs = RunsShown()
        self._infos: dict[int, RunInfo] = {}
        self._forms: dict[tuple[int, int], dict[str, list[Field]]] = {}
        self._live: Message = {"busy": False}
        self._task: asyncio.Task[None] | None = None
        self._busy = False
        self._pausing = False
        self._sent = 0
        self._sent_at = 0.0
        self._faults: dict[str, Mapping[str, str]] = {}
        """The faults of the last answer, by the question's number."""
        self._told: Message = {}
        self._lock = threading.RLock()
        self._loop = self._loop_to_play_on()
        first_run = self._open(source, run)
        self.first = {"run": first_run}
        # A view that was drawn asks for all records so far. From here on, only new ones are sent.
        self._sent = len(self.reading.records)

    # --- where it is drawn --------------------------------------------------------------------

    def _loop_to_play_on(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def _say(self, message: Message) -> None:
        """Send a message to the page, from any thread."""
        raise NotImplementedError

    def _later(
        self,
        act: Callable[[], None],
        wait_s: float,
    ) -> None:
        """Do something soon, once for all calls until then."""
        raise NotImplementedError

    def _save_soon(self) -> None:
        """Save what is shown, if the host does so; called when there is something new."""

    # --- runs ---------------------------------------------------------------------------------

    def _open(
        self,
        source: Source,
        run: int | None,
    ) -> int | None:
        """Read the source; returns the number of the run to show first, if there is one."""
        if isinstance(source, Run):
            if run is not None:
                raise ConfigError(f"run={run} goes with a tape; a simulation is one run already")
            return self._add(source)
        if not isinstance(source, Tape | str | Path):
            raise ConfigError(
                f"{type(source).__name__} is neither a simulation nor a tape; pass a Simulation, "
                "a Tape, or a tape's file"
            )
        tape = source
        if not isinstance(tape, Tape):
            tape = Tape(tape, read_only=True)  # a window alone must not keep others from writing
        self._tape = tape
        shown = tape.run(run)
        recorded = tape.runs()
        infos = runs_to_show(recorded, shown)
        self.reading.title = title_of(tape, infos, recorded)
        read_into(
            self.reading,
            tape,
            infos,
            read=self._read_run,
        )
        for info in infos:
            self._infos[info.id] = info
            read = partial(self._read_run, tape, info)
            self.runs.record(info.id, read)
        return shown.id

    def _read_run(self, tape: Tape, info: RunInfo) -> Any:
        """Return a run of a tape. The latest one is kept and not read again: it may be large."""
        # Of this file: at its path another one may be recorded, or it may be written anew.
        place = (tape.journal, tape.journal.generation, info.id)
        if self._latest is not None:
            latest_place, run = self._latest
            if latest_place == place and run.turns[-1].number == info.turns:
                return run
        run = run_on_tape(tape, info)
        self._latest = (place, run)
        return run

    def _number_for(self, run: ShownRun) -> int:
        """Return a new run's number here: that of its tape, unless another run has it."""
        # The same number as in `llmsim-lab tape show`.
        if run.run_id is None or run.run_id in self.runs:
            return max(self.runs, default=0) + 1
        return run.run_id

    def _add(
        self,
        run: Run | RecordedRun,
        *,
        name: str = "",
    ) -> int:
        """Show a run; returns its number here."""
        number = self._number_for(run)
        if isinstance(run, RecordedRun):
            # The run's parent is not shown in this window.
            info = replace(
                run.tape.run(run.run_id),
                id=number,
                parent=None,
                fork_turn=None,
            )
        else:
            info = about(run, number)
        if name:
            info = replace(info, name=name)
        self._keep(number, run, info)
        self.reading.add(info, run)
        return info.id

    def _keep(
        self,
        number: int,
        run: ShownRun,
        info: RunInfo,
    ) -> None:
        self.runs[number] = run
        self._infos[number] = info
        if isinstance(run, Run):
            turns = run.listen(lambda _: self._grew(number))  # cells play turns, too
            questions = [person.listen(self._asked) for person in people_of(run)]
            self._stop_listening = [*self._stop_listening, turns, *questions]

    def _look(self, number: int) -> None:
        """Read what is new in a run: its turns, and calls on its tape that are in no turn."""
        run = self.runs[number]
        calls: list[tuple[Attempt, bool]] = []
        # A run whose number was taken has another one here than on its tape.
        if isinstance(run, Run) and run.tape is not None and run.run_id == number:
            recorded = run.tape.run(number)
            self._infos[number] = replace(
                self._infos[number], outcome=recorded.outcome, manifest=recorded.manifest
            )
            # Failed or stopped turns leave calls on the tape that are in no turn.
            later = run.tape.calls(
                number,
                turn=run.turn_number + 1,
                forgotten=True,
            )
            calls = [(call.attempt, call.forgotten) for call in later]
        self._read_turns(number, calls)

    def _read_turns(
        self,
        number: int,
        calls: Sequence[tuple[Attempt, bool]] = (),
    ) -> None:
        # Given again, since a record of a run must have all that is known of it.
        record = self.reading.runs.get(number, {})
        words = record.get("changes", ())
        self.reading.add(
            self._infos[number],
            self.runs[number],
            changes=words,
            calls=calls,
        )

    def _grew(self, number: int) -> None:
        """Show a turn that was just played, on any thread."""
        self._read_turns(number)
        self._soon()
        self._more()
        self._tell_people()

    def _more(self) -> None:
        """Show what a view has beside the run; called after each turn, and when playing ends."""

    def _soon(self) -> None:
        """Send what is new, at most ten times a second."""
        wait_s = self._sent_at + _LOOK_S - time.monotonic()
        self._later(self._send_new, wait_s)

    def _send_new(self) -> None:
        with self._lock:  # held while sending, so that messages of another thread come after it
            self._sent_at = time.monotonic()
            at = self._sent
            self._sent = len(self.reading.records)
            if at == self._sent:
                return
            records = self.reading.since(at)
            self._say({"at": at, "records": records})
        self._save_soon()

    def put(
        self,
        kind: str,
        key: str | int,
        value: object,
    ) -> None:
        """Show a part of a further view, as ``Reading.put`` takes it."""
        self.reading.put(kind, key, value)
        self._soon()

    # --- commands -----------------------------------------------------------------------------

    def receive(self, message: object) -> None:
        """Take a command, on the thread that reads it."""
        if not isinstance(message, dict):
            return
        do = message.pop("do", None)
        act = getattr(self, f"_do_{do}", None)
        if act is None:  # a page of another version, or any program with the window's address
            return
        if do in ("since", "answer"):  # now: a cell that keeps the loop busy may wait for it
            self._guarded(act, message)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._guarded, act, message)

    def _do_since(self, at: int = 0) -> None:
        at = whole_number("at", at)
        self._say({"at": at, "records": self.reading.since(at)})
        self._say({"live": self._live, "told": self._told})
        self._asked()

    def _guarded(
        self,
        act: Callable[..., object],
        message: Message,
    ) -> None:
        do = act.__name__.removeprefix("_do_")
        try:
            _strictly(act.__func__)(self, **message)  # type: ignore[attr-defined]
        except ValidationError as error:
            self._say(
                {"fault": f"{do} cannot be done with what was sent: {faults(error)}", "of": do}
            )
        except Exception as error:  # shown in place; the kernel's log has the traceback
            self._say({"fault": error_text(error), "of": do})
            if not isinstance(error, LabError):
                raise

    def _run(self, number: int) -> Run:
        """Return a run that can be played or changed.

        Raises:
            ConfigError: there is no run with this number, or its class is not known here.
        """
        run = self.runs.get(number)
        if isinstance(run, Run):
            return run
        kind = ""
        if number in self._infos:
            manifest = self._infos[number].manifest
            kind = str(manifest.get("kind"))
        if ":" in kind:
            raise ConfigError(
                f"run {number} is read-only: its class is not known here; {how_to_import(kind)}"
            )
        raise ConfigError(f"run {number} is read-only: its class is not known here")

    def _number_of(self, run: int | None) -> int:
        """Return a run's number here; that of the run that is shown if none is given."""
        if run is None:
            return self.shown[0]
        return whole_number("run", run)

    @property
    def shown(self) -> tuple[int, int]:
        """The numbers of the run that is shown from Python, and of its turn."""
        run = self.first["run"]
        turn = self.first.get("turn")
        if turn is None:
            latest_turn = self.runs[run].turns[-1]
            turn = latest_turn.number
        return run, turn

    def show(
        self,
        turn: int | None = None,
        *,
        run: int | None = None,
        view: str | None = None,
    ) -> None:
        """Show a turn.

        Args:
            turn: the turn's number; the latest if not given.
            run: the run's number; the one that is shown if not given.
            view: the view, such as ``"calls"``; the present one if not given.

        Raises:
            ConfigError: there is no such run or turn.
        """
        number = self._number_of(run)
        if number not in self.runs:
            raise ConfigError(f"there is no run {number} here; there are {[*self.runs]}")
        turns = self.runs[number].turns
        if turn is not None:
            turn = whole_number(
                "turn",
                turn,
                least=turns[0].number,
                most=turns[-1].number,
            )
        place: Message = {"run": number, "turn": turn}
        if view is not None:
            place["view"] = view
        self.first = {name: value for name, value in place.items() if value is not None}
        self._say({"show": place})
        self._save_soon()

    # --- playing ------------------------------------------------------------------------------

    async def play(
        self,
        turns: int = 1,
        *,
        run: int | None = None,
    ) -> None:
        """Play some turns, as the button does.

        Args:
            turns: how many.
            run: the run's number; the one that is shown if not given.

        Raises:
            ConfigError: turns are being played already.
            LabError: a turn failed; those before it are kept.
        """
        number = self._number_of(run)
        # First, so that a wrong argument is reported even while turns are played.
        simulation, wanted = self._check_play(turns, number)
        if self._busy:
            raise ConfigError("turns are being played; wait for them, or stop them")
        self._busy = True
        self._pausing = False
        says = ""
        fault = ""
        try:
            with sole_driver(simulation):  # raises if a cell plays the run
                says = await self._turns(simulation, number, wanted)
        except asyncio.CancelledError:
            says = f"Stopped. The run is at turn {simulation.turn_number}, its last whole one."
            if self._playing is not None:  # not cancelled by Stop, but by the code that awaits this
                raise
        except Exception as error:
            fault = error_text(error)
            raise
        finally:  # also if a cell that awaits this is interrupted
            self._busy = False
            self._playing = None
            self._tell({"busy": False, "says": says, "fault": fault})
            self._look(number)
            self._send_new()
            self._more()

    async def _turns(
        self,
        simulation: Run,
        number: int,
        wanted: int,
    ) -> str:
        """Play turns; returns why playing ended early, in words."""
        for left in range(wanted, 0, -1):
            await self._turn(simulation, number, left)
            await asyncio.sleep(0)  # turns that never wait would keep clicks from being noticed
            if self._pausing:
                return f"Paused after turn {simulation.turn_number}."
            if simulation.done(simulation.state):
                return f"The run is over after turn {simulation.turn_number}."
        return ""

    def _check_play(
        self,
        turns: int,
        number: int,
    ) -> tuple[Run, int]:
        return self._run(number), whole_number("turns", turns, least=1, most=MOST_TURNS)

    async def _turn(
        self,
        simulation: Run,
        number: int,
        left: int,
    ) -> None:
        calls = InFlight()

        async def step() -> None:
            with scoped(watch=calls):
                await self._step(simulation)

        # A task of its own, so that Stop cancels the turn and not the cell that awaits it.
        playing = asyncio.ensure_future(step())
        self._playing = playing
        turn = simulation.turn_number + 1
        try:
            while not playing.done():
                live = {
                    "busy": True,
                    "run": number,
                    "turn": turn,
                    "left": left,
                    "waiting": [_waited_for(call) for call in calls.waiting],
                    "finished": calls.finished,
                }
                self._tell(live)
                await asyncio.wait([playing], timeout=_LOOK_S)
        except BaseException:  # KeyboardInterrupt, too: no turn may go on after the cell has ended
            playing.cancel()
            with suppress(Exception, asyncio.CancelledError):
                await playing
            raise
        if playing.cancelled():
            self._playing = None
        await playing

    async def _step(self, simulation: Run) -> None:
        await simulation.step()

    def pause(self) -> None:
        """Stop after the turn under way."""
        self._pausing = True

    # The button's command; the page and Python use the same method.
    _do_pause = pause

    def stop(self) -> None:
        """Cancel the turn under way; the run stays at its last whole turn."""
        if self._playing is not None:
            self._playing.cancel()

    _do_stop = stop

    def _do_play(self, run: int, turns: int = 1) -> None:
        self._check_play(turns, run)
        if self._task is None or self._task.done():  # a second click in the meantime does nothing
            playing = self.play(turns, run=run)
            self._task = self._start(playing)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin the work of a command, which shows its own errors."""
        task = self._loop.create_task(work)
        # Marks the exception as seen; asyncio would log it as one that was never retrieved.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    def _tell(self, live: Message) -> None:
        if live != self._live:
            self._live = live
            self._say({"live": live})

    # --- changing -----------------------------------------------------------------------------

    def _do_form(self, run: int, turn: int) -> None:
        """Send the form with what can be changed from a turn on, and the parameters."""
        simulation = self._run(run)
        numbers = settable(simulation, turn)
        changes = change_fields(simulation, numbers.values)
        parameters = parameter_fields(simulation)
        # The answer is read by the fields that were sent, whatever has happened since.
        self._forms[run, turn] = {"fork": changes, "restart": parameters}
        title = f"From turn {turn} on"
        if numbers.left_out:
            title += f"; {numbers.left_out:,} more numbers in code: fork(intervene=...)"
        parts = []
        if changes:
            parts.append({"do": "fork", "title": title, "fields": changes})
        if parameters:
            title = "Parameters, from the beginning"
            parts.append({"do": "restart", "title": title, "fields": parameters})
        form = {"run": run, "turn": turn, "parts": parts}
        self._say({"form": form})

    def fork(
        self,
        turn: int | None = None,
        *,
        run: int | None = None,
        **changes: Any,
    ) -> Run:
        """Make a run that continues from a turn, and show it; its parent stays.

        Args:
            turn: the turn to continue from; that of ``shown`` if not given.
            run: the number of the run to fork; that of ``shown`` if not given.
            changes: the arguments of the run's own ``fork``, such as ``intervene``.

        Raises:
            ConfigError: turns are being played, or the run cannot be forked in this way.
        """
        at = self.shown[1] if turn is None else whole_number("turn", turn)
        words = words_of_fork(changes, at)
        return self._forked(
            self._number_of(run),
            at,
            changes,
            words,
        )

    def _forked(
        self,
        number: int,
        at: int,
        changes: dict[str, Any],
        words: Sequence[str],
    ) -> Run:
        if self._busy:
            raise ConfigError("a fork has to wait until the turns under way are played, or stopped")
        simulation = self._run(number)
        if self.llm_client is not None:
            # The caller's arguments come last, and win.
            changes = {"llm_client": self.llm_client} | changes
        new: Run = simulation.fork(at, **changes)
        self._new(new, number, "fork", at, words)
        return new

    def _new(
        self,
        run: Run,
        parent: int,
        verb: Literal["fork", "restart"],
        at: int | None,
        words: Sequence[str],
    ) -> None:
        """Show a run that was made from another run here.

        Args:
            run: the run.
            parent: the number of the other run.
            verb: how the run was made.
            at: the turn that it continues from; None from the beginning.
            words: the changes, in words.
        """
        if run.unrecorded:
            words = [*words, f"not recorded: {run.unrecorded}"]
        number = self._number_for(run)
        info = about(
            run,
            number,
            RunOrigin(parent=parent, fork_turn=at),
        )
        info = replace(info, verb=verb)
        self._keep(number, run, info)
        self.reading.add(
            info,
            run,
            changes=words,
        )
        self._send_new()  # before the run is shown: a view needs its record
        self.show(run=number)

    def _do_fork(
        self,
        run: int,
        turn: int,
        changes: Any,
    ) -> None:
        simulation = self._run(run)
        # Without a form that was sent, nothing can be changed.
        form = self._forms.get((run, turn), {})
        fields = form.get("fork", [])
        changed = read_changes(fields, changes)
        prompts = prompts_by_name(simulation)
        texts = changed.pop("prompt", {})
        edited = [prompts[name].edit(text) for name, text in texts.items()]
        interventions = []
        words = []
        if changed:
            words.append(words_of(changed))
        # A note without new values is not an intervention.
        if "set" in changed:
            interventions.append({"turn": turn, **changed})
        words += [f"prompt {prompt.name} edited" for prompt in edited]
        self._forked(
            run,
            turn,
            {"intervene": interventions, "prompt": edited},
            words,
        )

    def _do_restart(self, run: int, changes: Any) -> None:
        # Parameters belong to the run, whichever turn the form was opened at.
        fields: list[Field] = []
        for (of_run, _), form in self._forms.items():
            if of_run == run:
                fields += form["restart"]
        changed = read_changes(fields, changes)
        self.restart(run=run, **changed)

    def restart(self, *, run: int | None = None, **changes: Any) -> Run:
        """Make a run that begins anew with other parameters, and show it; the old one stays.

        It is recorded on the same tape, if that is open for writing.

        Args:
            run: the number of the run; the one that is shown if not given.
            changes: parameters; mappings change parts of them: ``economy={"shock_scale": 2}``.

        Raises:
            ConfigError: a value is wrong, or there is no model to ask.
        """
        number = self._number_of(run)
        old = self._run(number)
        # Only values that were set: defaults stay defaults in the new configuration.
        before = old.config.model_dump(
            mode="json",
            by_alias=True,
            exclude_unset=True,
        )
        values = merged(before, changes)
        config = type(old.config)(**values)
        client = live_client(old, self.llm_client)
        if client is None and config.needs_model and old.llm_client is not None:
            raise ConfigError(
                "a restart is live; give it a model: Lab(..., llm_client=connect('auto'))"
            )
        if client is not None and "llm" in changes:
            client = asking_with(client, changes["llm"])
        if client is not None and old.llm_client is not None:
            warn_of_settings(old.llm_client.config, client.config, "the restart")
        new: Run = anew(old, config, client)
        self._new(
            new,
            number,
            "restart",
            None,
            [words_of(changes)] if changes else [],
        )
        return new

    # --- people -------------------------------------------------------------------------------

    def _put_question(self) -> tuple[Person, SeatQuestion] | None:
        """Return the oldest question that waits for a person, and the person."""
        # Only among runs that were read: looking for questions must not read a whole tape.
        for run in self.runs.read.values():
            if not isinstance(run, Run):
                continue
            for person in people_of(run):
                for question in person.questions:
                    return person, put(run, question)
        return None

    def _asked(self) -> None:
        """Show a person's question, on the thread on which it came or went."""
        waiting = self._put_question()
        shown: Message | None = None
        if waiting is not None:
            _, question = waiting
            shown = self._as_shown(question)
        # None removes the form.
        self._say({"ask": shown})

    def _tell_people(self) -> None:
        """Show what people are told of the latest turn, and their payoff at the end."""
        told: Message = {}
        for number, run in self.runs.read.items():
            lines: dict[str, dict[str, JSON]] = {}
            # Only a world's class knows what it tells people.
            if isinstance(run, Run):
                lines = told_in(run, seats_of_people(run))
            if lines:
                told[str(number)] = lines
        if told != self._told:
            self._told = told
            self._say({"told": told})

    def _as_shown(self, question: SeatQuestion) -> Message:
        """Return a question as its form is drawn, with the faults of the last answer."""
        faults = self._faults.get(question.number)
        return question.as_json(faults)

    def _do_answer(self, id: Any, values: Any) -> None:  # noqa: A002 - the message's name
        waiting = self._put_question()
        if waiting is None or waiting[1].number != id:
            raise ConfigError(NO_LONGER)
        person, question = waiting
        with self._marking(question):
            question.answer(person, question.read(values))

    @contextmanager
    def _marking(self, question: SeatQuestion) -> Iterator[None]:
        """Show the faults of an answer at its fields."""
        self._faults.clear()  # one answer at a time: the faults of an earlier one are gone
        try:
            yield
        except AnswerError as error:
            self._faults[question.number] = error.by_field
        self._asked()

    def answer(self, **values: Any) -> None:
        """Answer the question that waits for a person in the run; from any thread.

        Args:
            values: the fields of the reply.

        Raises:
            AnswerError: a field is wrong; then nothing was sent.
            ConfigError: no question waits.
        """
        waiting = self._put_question()
        if waiting is None:
            raise ConfigError("no question waits for a person in this run; play a turn first")
        person, question = waiting
        question.answer(person, values)


def _waited_for(call: Waiting) -> Message:
    player = ""
    if call.site:
        player = call.site.agent or call.site.component
    return {
        "who": player,
        "attempt": call.attempt,
        "seconds": int(call.seconds),
        "doing": call.doing,
        "text": call.text,
    }
