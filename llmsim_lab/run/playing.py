"""Playing a world: its turns one by one, interventions, and budgets.

A turn is kept whole or not at all. The run's session (``run/session.py``) records each turn, or
compares it with its recording. A budget stops a run after its last whole turn.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from pydantic import ValidationError

from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.text import brief, closest, error_text, faults, log_event
from llmsim_lab._util.waiting import explain, run_sync
from llmsim_lab.errors import BudgetReached, ConfigError, LLMFailureException, TapeError
from llmsim_lab.llm.scope import Budget, CallLog, Purse, scope, scoped
from llmsim_lab.run._ask import Ask, TurnNotes
from llmsim_lab.run._kept import kept_state
from llmsim_lab.run.config import StateChange
from llmsim_lab.run.progress import progress_line
from llmsim_lab.run.question import AskedTurn
from llmsim_lab.run.terminal import ask_people_here
from llmsim_lab.run.turn import Turn
from llmsim_lab.run.world import BaseWorld, StateT, checked_state, own_state, run_lock
from llmsim_lab.tape.recorder import Known, Rehearsal, Unrecorded
from llmsim_lab.types import CallRecord

if TYPE_CHECKING:
    import pandas as pd

_warn = partial(log_event, logging.getLogger(__name__), logging.WARNING)


class _Played(NamedTuple, Generic[StateT]):
    """The result of a world's own turn, before interventions.

    Attributes:
        state: the state that the turn returned.
        notes: what the turn noted, and the answers of code.
        calls: the model calls of the turn.
    """

    state: StateT
    notes: TurnNotes
    calls: tuple[CallRecord, ...]


class PlayedWorld(BaseWorld[StateT]):
    """A world that is played, turn by turn; see ``Run``."""

    def listen(self, callback: Callable[[Turn], object]) -> Callable[[], object]:
        """Register a callback for each turn played from now on.

        Args:
            callback: called with each turn after it is kept, on the loop that plays the run. An
                error that it raises is raised by the step.

        Returns:
            A function that removes the callback; harmless if called again.
        """
        return self._listeners.add(callback)

    def intervene(
        self,
        turn: int,
        values: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> StateChange:
        """Change the state of a turn from outside, now or when the run reaches that turn.

        A WARNING says if ``run()`` would not reach the turn; the intervention is kept all the same.

        Args:
            turn: the number of the state that is changed: the latest one, or one to come.
            values: new values by name, ``{"coins.Ann": 5}``; the same as ``set=``.
            more: ``note="a tax"``, the reason, for the record. With a note alone nothing is set.

        Raises:
            ConfigError: the turn has passed or is being played, a name or value is wrong, or
                neither values nor a note are given.
        """
        with run_lock:
            return self._intervene(turn, values, more)

    def _intervene(
        self,
        turn: int,
        values: Mapping[str, Any] | None,
        more: Mapping[str, Any],
    ) -> StateChange:
        if values is not None and "set" in more:
            raise ConfigError(
                f"intervene({brief(turn, 40)}, ...) has its values twice, the second time as set=; "
                "write one of them: intervene(3, {'coins.Ann': 5})"
            )
        if values is not None and not isinstance(values, Mapping):
            raise ConfigError(
                f"intervene({brief(turn, 40)}, {brief(values)}) must have new values by name: "
                "intervene(3, {'coins.Ann': 5})"
            )
        if values is not None:
            item = StateChange(
                turn=turn,
                set=dict(values),
                **more,
            )
        else:
            item = StateChange(turn=turn, **more)
        # A control of a study may change nothing, and says so.
        if not item.set and not item.note:
            raise ConfigError(
                f"the intervention at turn {item.turn} sets nothing; give it new values, "
                "set={'coins.Ann': 5}, or a note that says why it has none"
            )
        now = self.turn_number
        first_open = now
        if self._stepping:
            # Turn now + 1 is being played, and read its planned interventions when it began.
            first_open = now + 2
        if item.turn < first_open:
            raise ConfigError(
                f"turn {item.turn} has been played or is being played (the run is at turn {now}); "
                f"intervene at turn {first_open} or later"
            )
        # Tried on the latest state, so that a wrong name or value raises now.
        latest = self.turns[-1]
        state = checked_state(
            self,
            self.changed(latest.state, item.set),
            "changed returned",
        )
        if item.turn == now:
            changed = replace(
                latest,
                state=state,
                interventions=(*latest.interventions, item),
            )
            self._change(changed, self.planned)
        else:
            self._change(latest, [*self.planned, item])
        if now == 0:
            self._set_first.append(item)
        end = now + self.config.turns
        if self.config.turns and item.turn >= end:  # a run of 0 turns is stepped by hand
            reason = f"run() called now ends at turn {end}; what is set acts on the way to the next"
            _warn("INTERVENTION_NOT_REACHED", planned=item, reason=reason)
        return item

    async def step(self) -> Turn:
        """Play one turn and return its record.

        Raises:
            LLMFailureException: a model call failed; the run is where it was before.
            TapeError: the turn came out differently from its recording.
            ConfigError: a turn is being played already.
        """
        # True in a step of run(), which is the driver already.
        if self._driver is not None and self._driver is scope().driver:
            return await self._step()
        with sole_driver(self):
            return await self._step()

    async def _step(self) -> Turn:
        if self._stepping:  # a turn's own code called step()
            raise ConfigError("a step of this run is under way; wait for it before the next")
        if not self._session.is_replay:  # a replay has people's answers on the tape
            ask_people_here(self)
        with run_lock:
            self._stepping = True
        try:
            with self._session.playing():
                turn = await self._play_next_turn()
        except BaseException as error:  # after a cancellation, too, the answers so far are kept
            self._session.fail_turn(error)
            # A traceback would not help with a failed model or Ctrl-C: a cell shows words alone.
            if isinstance(error, LLMFailureException | asyncio.CancelledError):
                explain(error, self._how_to_continue())
            elif isinstance(error, Exception) and not self._session.is_replay:
                error.add_note(self._how_to_continue())
            raise
        finally:
            self._stepping = False
        # After the step has ended, so that a callback may intervene, or play the next turn.
        if self._listeners:
            self._listeners(turn)
        return turn

    async def arun(
        self,
        turns: int | None = None,
        *,
        budget: Budget | None = None,
        progress: bool = True,
    ) -> pd.DataFrame:
        """Play turns and return the whole run as a frame, as ``to_frame`` does.

        If this takes long, a progress line on the terminal or under the cell says what the run
        waits for and how much time is left. It is gone at the end. Files and pipes get no line.

        Args:
            turns: how many more turns to play; the configuration's number if not given.
            budget: what may be spent on calls. When it is spent, the run stops after its last whole
                turn, and a WARNING says so. ``resume`` continues from there, without making calls
                again that were answered.
            progress: False for no progress line. ``LLMSIM_PROGRESS=0`` in the environment does the
                same.

        Raises:
            ConfigError: the number of turns is negative; or the run is being played already, and
                continues undisturbed.
            LLMFailureException: a model call failed; the turns before it are kept.
        """
        with sole_driver(self):
            self._purse = None if budget is None else Purse(budget)
            try:
                await self._play_turns(turns, progress=progress)
            finally:
                self._purse = None
        return self.to_frame()

    def run(
        self,
        turns: int | None = None,
        *,
        budget: Budget | None = None,
        progress: bool = True,
    ) -> pd.DataFrame:
        """Do what ``arun`` does, from code that is not async: in a script, or in a notebook cell.

        In a script, people are asked on the terminal.
        """
        try:
            return run_sync(
                self.arun(
                    turns,
                    budget=budget,
                    progress=progress,
                )
            )
        except KeyboardInterrupt as error:
            explain(error, self._how_to_continue())
            raise

    async def _play_turns(
        self,
        turns: int | None,
        *,
        progress: bool,
        beyond_done: bool = False,
    ) -> None:
        """Do what ``play_turns`` does, for a caller that is the run's driver already."""
        if not self._session.is_replay:
            # Before the progress line: its task would count as a task that may answer.
            ask_people_here(self)
        wanted = self.config.turns if turns is None else turns
        count = whole_number("turns", wanted, least=0)
        first = self.turn_number + 1
        last = self.turn_number + count
        # Held for all turns together, so that no other process writes to the run in between.
        with self._session.playing():
            self._target_turn = last
            # Stays so after Ctrl-C, or if the task is cancelled.
            outcome = "interrupted"
            is_failing = True
            try:
                line = progress_line(
                    "turn",
                    number=first,
                    last=last,
                    enabled=progress,
                )
                async with line as advance:
                    while self.turn_number < last and (beyond_done or not self.done(self.state)):
                        if self._purse is not None:
                            # Checked here too, so that no turn begins without money left.
                            self._purse.check()
                        turn = await self.step()
                        requests = sum(call.attempts for call in turn.calls)
                        advance(requests)
                        # Rules never wait, so other tasks get their chance here.
                        await asyncio.sleep(0)
                outcome = "done"
                is_failing = False
            except BudgetReached as error:
                outcome = f"stopped: {error}"
                is_failing = False
                _warn(
                    "BUDGET_REACHED",
                    run=self.name,
                    turn=self.turn_number,
                    reason=error,
                )
            except Exception as error:
                outcome = f"failed: {error_text(error)}"
                raise
            finally:
                # While another error is being raised, an error of the tape must not replace it.
                with suppress(TapeError) if is_failing else nullcontext():
                    self._session.end_run(outcome)
        if self._warns:
            self._warn_of_stand_ins()
            if outcome == "done":  # else the run may have stopped before a player was asked
                self._warn_of_unasked()
        self._warnings.stand_ins.clear()

    def _warn_of_stand_ins(self) -> None:
        """Warn of stand-ins, with how often each player needed one."""
        stand_ins = self._warnings.stand_ins
        if stand_ins:
            times = ", ".join(f"{player} {count}" for player, count in stand_ins.most_common())
            _warn(
                "STAND_INS",
                words=(
                    f"Run {self.name!r}: answers that are stand-ins: {times}; decisions() says why."
                ),
                run=self.name,
                turn=self.turn_number,
                players=times,
            )

    def _warn_of_unasked(self) -> None:
        """Warn of a player whom no question named: the name may be misspelt."""
        unasked = [name for name in self.players if name != "*" and name not in self._asked_seats]
        # A run without any question, such as one of 0 turns, shows nothing about names.
        if unasked and self._asked_seats:
            name = unasked[0]
            reason = f"no question of this run named it{closest(name, self._asked_seats)}"
            _warn(
                "PLAYER_NEVER_ASKED",
                run=self.config.name,
                player=name,
                reason=reason,
            )

    async def _play_next_turn(self) -> Turn:
        """Play one turn, and keep it."""
        session = self._session
        # The replay of a fork takes its first turns from the parent, which played them.
        if session.turns_of_parent:
            turn, *session.turns_of_parent = session.turns_of_parent
            self.turns.append(turn)
            return turn
        before = self.turns[-1]
        number = before.number + 1
        planned = await session.begin_turn(self, number)
        # Before the first question, since questions cost time or money.
        if len(self.turns) == 1 and self._warns:
            for doubt in self._doubts():
                _warn("LINT", **doubt)
        began = time.perf_counter()
        # If the turn fails, the log stays, and says what the turn cost.
        self._log = self._log_of(number)
        played = await self._asked_and_answered(before.state, number, self._log)
        after = played.state
        # At the turn's end: an intervention at turn 3 acts on the way to turn 4.
        for item in planned:
            try:
                changed = self.changed(after, item.set)
            except ConfigError as error:
                # Its names and values were right when it was planned, in the state of then.
                raise ConfigError(
                    f"what is planned for turn {number} cannot be set: {error}. To continue "
                    "without it: run.planned = [item for item in run.planned if item.turn != "
                    f"{number}]"
                ) from error
            after = own_state(
                self,
                changed,
                "changed returned",
            )
        # The run continues with the state as the tape would give it back.
        kept = kept_state(
            after,
            self.state_type,
            played.calls,
            on_tape=session.tape is not None,
        )
        notes = played.notes
        turn = Turn(
            number=number,
            state=kept.state,
            interventions=tuple(planned),
            seconds=time.perf_counter() - began,
            calls=played.calls,
            by_code=notes.by_code,
            noted=notes.noted,
            became=notes.became,
            story=notes.story,
            led_to=notes.led_to,
        )
        # A recording was checked when it was made, perhaps by older rules.
        if turn.became and not session.is_replay:
            _check_noted(turn)
        with run_lock:
            # Recorded first: an error here leaves the run as it was before the turn.
            turn = session.finish_turn(self, turn, kept.json)
            session.done_outside = {}
            self.turns.append(turn)
        self._log = None
        # Counted only now: a failed turn is played again, and would count its stand-ins twice.
        self._warnings.stand_ins += notes.stand_ins
        return turn

    def _log_of(self, turn: int) -> CallLog:
        """Return the log of a turn's calls, which also gives each call its sampling seed."""
        replicate = self.config.replicate
        sampling = None
        # Without a replicate, servers choose their own seeds.
        if replicate is not None:
            sampling = (self.seed, replicate)
        return CallLog(
            self.name,
            turn,
            self._purse,
            sampling=sampling,
        )

    async def _asked_and_answered(
        self,
        state: StateT,
        number: int,
        log: CallLog,
    ) -> _Played[StateT]:
        """Call the world's ``turn``, which asks its players.

        Args:
            state: the state before the turn.
            number: the turn's number.
            log: the log of the turn's calls.
        """
        session = self._session
        ask = self._asking(state, number)
        # A copy, which this try adds to; if it fails, the next try finds what was done outside.
        session.done_outside = {**session.done_outside}
        recorder = session.recorder
        if recorder is None:  # the run is on no tape
            recorder = Unrecorded(Known(outcomes=session.done_outside))
        # Some players are not given the run, such as Agent.decide_action(state). Their client finds
        # this turn's log and recorder in the context variable that ``scoped`` sets.
        with scoped(recorder=recorder, log=log):
            try:
                after = await self.turn(state, ask)
            except Exception as error:
                ask.check_awaited()  # a missing await is often why the turn failed
                if isinstance(error, ValidationError):
                    raise ConfigError(
                        f"{type(self).__name__}, turn {number}: {error.title}: {faults(error)}"
                    ) from error
                raise
            # Before the state is checked: a missing await may be why the state is wrong.
            notes = ask.close()
            after = own_state(self, after)
            calls = log.close()
        # A player may have caught the budget's error, and decided without an answer.
        if self._purse is not None and self._purse.refusal is not None:
            raise self._purse.refusal
        return _Played(after, notes, calls)

    def _asking(self, state: StateT, turn: int) -> Ask:
        """Return the ``Ask`` of a turn.

        Args:
            state: the state before the turn.
            turn: the turn's number.
        """
        asked_turn = AskedTurn(
            number=turn,
            state=self._as_read(state),
            config=self.config,
            prompts=self._prompts,
            is_replay=self._session.is_replay,
        )
        return Ask(self, asked_turn, self._warnings)

    @property
    def _warns(self) -> bool:
        """False in a replay, and in a study's later runs, whose warnings would be repetitions."""
        return not self._warnings.are_left_out and not self._session.is_replay

    def _how_to_continue(self) -> str:
        """Return which turns of a stopped run are kept, and how to continue it, in words."""
        at = self.turn_number
        left = max(1, self._target_turn - at)
        kept = (
            f"Turn {at + 1} was not finished: the run is kept up to turn {at}, and .run({left}) "
            "continues it"
        )
        if self.tape is None or self._session.is_replay:
            return f"{kept}."
        return (
            f"{kept}; in another session, resume({str(self.tape.path)!r}, {self.run_id}, ...) does."
        )

    async def _rehearse_turn(self, within_s: float) -> None:
        """Begin the next turn on trial, and stop before it fetches anything from outside.

        Only for a copy of a run, with players that cost nothing.

        Args:
            within_s: how long the turn may take.
        """
        ask = self._asking(self.state, self.turn_number + 1)
        # Errors are ignored here: they show when the turn is played.
        with suppress(Exception), scoped(recorder=Rehearsal()):
            await asyncio.wait_for(self.turn(self.state, ask), within_s)
        # Called to close questions that the turn never awaited: Python would warn of them.
        with suppress(ConfigError):
            ask.check_awaited()


@dataclass(frozen=True, eq=False)
class _Driver:
    """Code that plays a run.

    Attributes:
        task: in which it does so; None outside of any.
    """

    task: asyncio.Task[Any] | None

    @property
    def has_ended(self) -> bool:
        """Whether the code cannot play on."""
        if self.task is None:
            return False
        return self.task.done() or self.task.get_loop().is_closed()

    def end(self) -> None:
        """End a task whose loop was closed around it; it gives the tape back, and ends its turn."""
        if self.task is not None and not self.task.done():
            coroutine = self.task.get_coro()
            # It wants to cancel what it waits for, which its loop no longer takes.
            with suppress(RuntimeError):
                coroutine.close()


def is_played_elsewhere(run: PlayedWorld) -> bool:
    """Return True if other code than the caller plays the run now."""
    driver: Any = run._driver
    if driver is None or driver is scope().driver:
        return False
    return not driver.has_ended


@contextmanager
def sole_driver(run: PlayedWorld) -> Iterator[None]:
    """Make the code inside the run's only driver: no other code can play the run meanwhile.

    Raises:
        ConfigError: the run is being played already, here or by another task or thread, which is
            not disturbed.
    """
    driver = _Driver(asyncio.current_task())
    attributes = vars(run)
    with run_lock:  # of two threads, one becomes the driver
        current: _Driver | None = attributes.get("_driver")
        if current is not None and not current.has_ended:
            raise ConfigError(
                f"{run.name} is being played already, by another run(), arun(), step() or window; "
                "wait until that has ended, or stop it"
            )
        if current is not None:
            current.end()
        attributes["_driver"] = driver
        # Ctrl-C at the end of an earlier step may have left this set, as it may the driver.
        attributes["_stepping"] = False
    try:
        with scoped(driver=driver):
            yield
    finally:
        # Another one may have taken its place, where a loop was closed around this one.
        if attributes.get("_driver") is driver:
            del attributes["_driver"]


async def play_turns(
    run: PlayedWorld,
    turns: int | None = None,
    *,
    progress: bool = True,
    beyond_done: bool = False,
) -> None:
    """Do what ``Run.arun`` does without making a frame, which needs pandas.

    Args:
        run: the run.
        turns: how many more turns to play; the configuration's number if not given.
        progress: False for no progress line.
        beyond_done: True to play all these turns even if ``done`` returns True before.
    """
    with sole_driver(run):
        await run._play_turns(
            turns,
            progress=progress,
            beyond_done=beyond_done,
        )


def _check_noted(turn: Turn) -> None:
    """Raise ConfigError for a note on a decision that the turn does not have."""
    # Collected here, since ``turn.answers`` takes long.
    components: dict[str, set[str]] = {}
    for answer in turn.by_code:
        components.setdefault(answer.player, set()).add(answer.component)
    for call in turn.calls:
        site = call.request.site
        if site is not None:
            components.setdefault(site.agent or "", set()).add(site.component)
    for player, component in turn.became:
        if player not in components:
            raise ConfigError(
                f"ask.note({player!r}, ...): turn {turn.number} has no decision of {player} "
                "(by= decides about a player); note it without a name"
            )
        if component and component not in components[player]:
            raise ConfigError(
                f"ask.note({player!r}, component={component!r}, ...): in turn {turn.number} "
                f"{player} decided as {', '.join(sorted(components[player]))}"
            )
