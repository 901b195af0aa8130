"""Playing a world: its turns one by one, what is done to it from outside, and what it may cost.

A turn is kept whole or not at all. The run's session (``run/session.py``) records it or compares
it; a budget stops it at its last whole turn.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.text import closest, error_text, log_event
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
from llmsim_lab.run.world import BaseWorld, StateT, checked_state, own_state
from llmsim_lab.tape.recorder import Known, Rehearsal, Unrecorded
from llmsim_lab.types import CallRecord

if TYPE_CHECKING:
    import pandas as pd

_warn = partial(log_event, logging.getLogger(__name__), logging.WARNING)


class _Played(NamedTuple, Generic[StateT]):
    """What a world's own turn came to, before anything is set from outside.

    Attributes:
        state: what the turn returned.
        notes: what it noted, and what code answered.
        calls: the model calls that it made.
    """

    state: StateT
    notes: TurnNotes
    calls: tuple[CallRecord, ...]


class PlayedWorld(BaseWorld[StateT]):
    """A world that is played, turn by turn; see ``Run``."""

    def listen(self, callback: Callable[[Turn], object]) -> Callable[[], object]:
        """Register a callback for each turn played from now on, by a step or a run.

        Args:
            callback: called with the turn, on the loop that it was played on, when it is kept; what
                it raises, the step raises.

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
        """Change the state of a turn from outside, now or when the run gets there.

        One planned for a turn that ``run()`` does not get to is kept, with a WARNING.

        Args:
            turn: the number of the state that is changed: the latest one, or one to come.
            values: new values by name, ``{"coins.Ann": 5}``; the same as ``set=``.
            more: ``note="a tax"``, why, for the record.

        Raises:
            ConfigError: the turn has passed or is being played, or a name or value is wrong.
        """
        if values is not None:
            item = StateChange(
                turn=turn,
                set=dict(values),
                **more,
            )
        else:
            item = StateChange(turn=turn, **more)
        now = self.turn_number
        first_open = now
        if self._stepping:
            # The turn under way, now + 1, read what is planned for it when it began.
            first_open = now + 2
        if item.turn < first_open:
            raise ConfigError(
                f"turn {item.turn} has been played or is being played (the run is at turn {now}); "
                f"intervene at turn {first_open} or later"
            )
        # Done to the latest state on trial: what this run has no place for raises now.
        latest = self.turns[-1]
        state = checked_state(
            self,
            self.changed(latest.state, item.set),
            "changed returned",
        )
        planned_before = self.planned
        place = len(self.turns) - 1
        if item.turn == now:
            interventions = (*latest.interventions, item)
            self.turns[place] = replace(
                latest,
                state=state,
                interventions=interventions,
            )
        else:
            self.planned = [*self.planned, item]
        try:
            # At once, not with the next turn: a process may end before that.
            self._session.keep_change(self)
        except BaseException as error:
            # Undone, so that the run stays what its tape says. Ctrl-C may be noticed when the tape
            # has it: then it is undone there as well.
            self.turns[place] = latest
            self.planned = planned_before
            if not isinstance(error, TapeError):
                self._session.keep_change(self)
            raise
        end = now + self.config.turns
        if self.config.turns and item.turn >= end:  # with 0 turns it is stepped by hand
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
        # A step within run() is part of what plays the run already.
        if self._driver is not None and self._driver is scope().driver:
            return await self._step()
        with sole_driver(self):
            return await self._step()

    async def _step(self) -> Turn:
        if self._stepping:  # by a turn's own code
            raise ConfigError("a step of this run is under way; wait for it before the next")
        if not self._session.is_replay:  # whose answers are on the tape
            ask_people_here(self)
        self._stepping = True
        try:
            with self._session.playing():
                turn = await self._play_next_turn()
        except BaseException as error:  # also a cancellation: what was answered is kept either way
            self._session.fail_turn(error)
            # Frames say nothing of a model that failed, or of Ctrl-C: a cell shows words alone.
            if isinstance(error, LLMFailureException | asyncio.CancelledError):
                explain(error, self._how_to_continue())
            elif isinstance(error, Exception) and not self._session.is_replay:
                error.add_note(self._how_to_continue())
            raise
        finally:
            self._stepping = False
        # After the step has ended, so that a callback may intervene, or play the next one.
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

        While it takes long, a line on the terminal or under the cell says what is waited for and
        how much time is left; it is gone in the end. In files and pipes there is none.

        Args:
            turns: how many more; the configuration's number if not given.
            budget: what may be spent on calls. When it is, the run stops at its last whole turn
                and a WARNING says so; ``resume`` continues from there, and makes no call again
                that was answered.
            progress: False for no such line; so does ``LLMSIM_PROGRESS=0`` in the environment.

        Raises:
            ConfigError: a negative number of turns; or the run is being played already, which then
                continues as if nothing had happened.
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
        """Do what ``arun`` does from plain code: in a script, or in a notebook cell.

        In a plain script people are asked on the terminal.
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
        """Do what ``play_turns`` does, as what plays this run."""
        if not self._session.is_replay:
            # Before the progress line, whose task would count as one that may answer.
            ask_people_here(self)
        wanted = self.config.turns if turns is None else turns
        count = whole_number("turns", wanted, least=0)
        first = self.turn_number + 1
        last = self.turn_number + count
        # Held over all turns, so that no other process writes to the run in between.
        with self._session.playing():
            self._target_turn = last
            # What the tape says if nothing below sets it otherwise.
            outcome = "interrupted"  # by Ctrl-C, or the task was cancelled
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
                            # Between turns, so that none is begun that cannot be paid for.
                            self._purse.check()
                        turn = await self.step()
                        requests = sum(call.attempts for call in turn.calls)
                        advance(requests)
                        # Where nothing waits, as for rules: let others run too.
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
                # A failure under way is what has to be raised, not another of the tape's.
                with suppress(TapeError) if is_failing else nullcontext():
                    self._session.end_run(outcome)
        if self._warns:
            self._warn_of_stand_ins()
            if outcome == "done":  # a budget may have stopped the run before a player's turn
                self._warn_of_unasked()
        self._warnings.stand_ins.clear()

    def _warn_of_stand_ins(self) -> None:
        """Warn of answers that stand in for others."""
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
        """Warn of a player whom no question named, as where a name is misspelt."""
        unasked = [name for name in self.players if name != "*" and name not in self._asked_seats]
        # A run that asked no one at all, as one of 0 turns, says nothing of names.
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
        # A fork that is replayed has its first turns from its parent, which played them.
        if session.turns_of_parent:
            turn, *session.turns_of_parent = session.turns_of_parent
            self.turns.append(turn)
            return turn
        before = self.turns[-1]
        number = before.number + 1
        planned = await session.begin_turn(self, number)
        # Before anything is asked, since what is asked costs time or money.
        if len(self.turns) == 1 and self._warns:
            for doubt in self._doubts():
                _warn("LINT", **doubt)
        began = time.perf_counter()
        # Of a turn that fails it stays, for who asks what the turn cost.
        self._log = self._log_of(number)
        played = await self._asked_and_answered(before.state, number, self._log)
        after = played.state
        # At the turn's end: what is set at turn 3 acts on the way to turn 4.
        for item in planned:
            after = own_state(
                self,
                self.changed(after, item.set),
                "changed returned",
            )
        # What the tape would give back is what the run continues with.
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
        # A recording was checked when it was made, by rules that may have been others.
        if turn.became and not session.is_replay:
            _check_noted(turn)
        # On the tape first. What is raised here leaves the run where it was before.
        turn = session.finish_turn(self, turn, kept.json)
        session.done_outside = {}
        self.turns.append(turn)
        self._log = None
        # Now that the turn counts: a turn that failed is played again, and would count them twice.
        self._warnings.stand_ins += notes.stand_ins
        return turn

    def _log_of(self, turn: int) -> CallLog:
        """Return what lists the calls of a turn, and gives each the seed of its sampling."""
        replicate = self.config.replicate
        sampling = None
        # Without a replicate a server draws by a seed of its own.
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
        """Have the world play its turn, with players who answer.

        Args:
            state: the state before the turn.
            number: the turn's number.
            log: lists its calls.
        """
        session = self._session
        ask = self._asking(state, number)
        # A copy, which this try adds to: should it fail, the next one finds what was done outside.
        session.done_outside = {**session.done_outside}
        recorder = session.recorder
        if recorder is None:  # the run is on no tape
            recorder = Unrecorded(Known(outcomes=session.done_outside))
        # A contract's class such as Agent.decide_action(state) is handed no run: its client finds
        # this turn's log and recorder in the context variable that ``scoped`` sets.
        with scoped(recorder=recorder, log=log):
            try:
                after = await self.turn(state, ask)
            except Exception:
                ask.check_awaited()  # what was not waited for is often what the turn failed on
                raise
            # Before the state is judged: a question that was not awaited is the first cause.
            notes = ask.close()
            after = own_state(self, after)
            calls = log.close()
        # An agent may have caught the failed call and decided without an answer.
        if self._purse is not None and self._purse.refusal is not None:
            raise self._purse.refusal
        return _Played(after, notes, calls)

    def _asking(self, state: StateT, turn: int) -> Ask:
        """Return what asks the players in a turn.

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
        """Whether what there is to warn of is news: not in a replay, nor in a study's next run."""
        return not self._warnings.are_left_out and not self._session.is_replay

    def _how_to_continue(self) -> str:
        """Return which turn a run that was stopped is at, and how it continues."""
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
        """Begin the next turn, until it comes to what only a turn that counts may do.

        For a run that was made for it, with players that cost nothing.

        Args:
            within_s: how long it may take.
        """
        ask = self._asking(self.state, self.turn_number + 1)
        # A turn that cannot be played says so when it is played; nothing is fetched from outside.
        with suppress(Exception), scoped(recorder=Rehearsal()):
            await asyncio.wait_for(self.turn(self.state, ask), within_s)
        # For what it closes: Python would warn of a question that the broken turn never awaited.
        with suppress(ConfigError):
            ask.check_awaited()


@contextmanager
def sole_driver(run: PlayedWorld) -> Iterator[None]:
    """Be what plays a run; steps inside are part of it.

    Raises:
        ConfigError: the run is being played already, here or by another task or thread; what plays
            it does not notice.
    """
    driver = object()
    # Looked up and set at once: of two threads one gets it.
    if vars(run).setdefault("_driver", driver) is not driver:
        raise ConfigError(
            f"{run.name} is being played already, by another run(), arun(), step() or window; wait "
            "until that has ended, or stop it"
        )
    try:
        with scoped(driver=driver):
            yield
    finally:
        del vars(run)["_driver"]


async def play_turns(
    run: PlayedWorld,
    turns: int | None = None,
    *,
    progress: bool = True,
    beyond_done: bool = False,
) -> None:
    """Do what ``Run.arun`` does without making a frame, which needs pandas.

    ``beyond_done`` plays as many turns as it is told, whatever ``done`` says: a run may have been
    stepped on by hand.
    """
    with sole_driver(run):
        await run._play_turns(
            turns,
            progress=progress,
            beyond_done=beyond_done,
        )


def _check_noted(turn: Turn) -> None:
    """Raise ConfigError for a note on no decision of the turn: no frame would have it."""
    # Not by ``answers``, which take long to make.
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
