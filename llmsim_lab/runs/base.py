"""A run of any kind of simulation: its turns, its tape, its forks, what is done from outside."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from inspect import isawaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from llmsim_lab.concurrency import run_sync
from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.llm.scope import CallLog, recording
from llmsim_lab.logs import log_event
from llmsim_lab.prompts import Prompt
from llmsim_lab.runs.faces import run_html
from llmsim_lab.runs.forks import fork_of
from llmsim_lab.runs.frames import decisions_frame
from llmsim_lab.runs.garbage import rare_collections
from llmsim_lab.runs.history import History
from llmsim_lab.runs.kind import ConfigT, InterventionT, StateT, TurnT
from llmsim_lab.runs.manifest import config_of, make_manifest
from llmsim_lab.runs.progress import progress_line
from llmsim_lab.runs.records import tape_turn
from llmsim_lab.runs.registry import register
from llmsim_lab.runs.series import Series
from llmsim_lab.runs.settings import checked, idle_seeds, say_if_unreached
from llmsim_lab.runs.taping import Recording, Taping

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Run"]

logger = logging.getLogger(__name__)


class Run(History[StateT, TurnT, ConfigT, InterventionT]):
    """The base of all simulations: a kind derives from it and says how a turn is played.

    What a turn leads to must follow from the turn before, the configuration's seed, what is done
    from outside and the model's answers, and from nothing else: so write no clock, and no state of
    your own that is not in the turns. Then replay, fork and resume come by themselves. A turn that
    fails changes nothing: the turns before it stay, and ``step`` may be called again.

    A kind's constructor takes ``config``, and by keyword ``llm_client``, ``state`` (to start from),
    ``tape``, ``prompts`` and its ``part_names``; it sets its parts, then calls this one. One that
    takes something else overrides ``rebuilt``.

    Args:
        config: what to run.
        first: the turn to start from, usually of number 0.
        llm_client: the model, where the configuration calls for one.
        given: which parts the user gave instead of those the configuration describes.
        tape: where to record the run: a tape, or a file that becomes or is one.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__dict__.get("kind"):
            register(cls.kind, cls)

    def __init__(
        self,
        config: ConfigT,
        *,
        first: TurnT,
        llm_client: LLMClient | None = None,
        given: Iterable[str] = (),
        tape: Tape | str | Path | None = None,
    ) -> None:
        super().__init__([first])
        self.config = config
        self.llm_client = llm_client
        self.given = frozenset(given)
        self.unrecorded = ""
        """Why a run that one would expect to be recorded is not; empty if it is as asked."""
        self._planned: dict[int, list[InterventionT]] = {}
        self._stepping = False
        self._taping: Taping | None = None
        for intervention in config.interventions:
            self._plan(intervention)
            say_if_unreached(intervention, run=config.name, reaches=self.run_reaches)
        if tape is not None:
            self._record(tape if isinstance(tape, Tape) else Tape(tape))

    def _record(self, tape: Tape) -> None:
        """Begin a run on a tape; the state it begins from comes without another run's chains."""
        self.turns[0] = self.without_chains(self.turns[0])
        kind = type(self)
        first = tape_turn(kind, self.turns[0], self._planned)
        self._say_if_seeds_are_idle(tape)
        run = tape.add_run(make_manifest(self), name=self.config.name, first=first)
        self._taping = Recording(kind, tape, run)

    def _say_if_seeds_are_idle(self, tape: Tape) -> None:
        """Log a WARNING where the tape has a run that this one cannot but repeat."""
        config = self.config
        if self.given or not getattr(config, "seed_idle", ""):
            return
        client = self.llm_client.config.model_dump(mode="json") if self.llm_client else None
        for info in tape.runs():
            there = info.manifest
            if there.get("kind") != self.kind or there.get("given") or there.get("llm") != client:
                continue
            try:
                both = [config_of(info), config]
            except TapeError:
                continue  # of a version that cannot be read: nothing is known of it
            if why := idle_seeds(both, model_seed=client["seed"] if client else None):
                log_event(
                    logger,
                    logging.WARNING,
                    "SEEDS_CHANGE_NOTHING",
                    run=config.name,
                    same_as=f"run {info.id} of {tape.path.name}",
                    reason=why,
                )
                return

    @property
    def series(self) -> Sequence[Series]:
        """The columns of ``to_frame()`` that can be charted, the most telling first."""
        return self.series_of(self.config)

    @property
    def planned(self) -> Mapping[int, Sequence[InterventionT]]:
        """What was or is to be done from outside, by turn."""
        return self._planned

    @property
    def run_reaches(self) -> int | None:
        """The turn at which ``run()`` without a number, called now, would end.

        That is the configuration's ``turns`` after the latest one, however many were played. None
        where the configuration has 0 turns: such a run is stepped by hand.
        """
        return self.turn + self.config.turns if self.config.turns else None

    @property
    def tape(self) -> Tape | None:
        """The tape that the run is recorded on or replayed from, if any."""
        return self._taping.tape if self._taping else None

    @property
    def run_id(self) -> int | None:
        """The run's number on its tape."""
        return self._taping.run if self._taping else None

    def take_over(
        self, turns: Sequence[TurnT], planned: Sequence[InterventionT], taping: Taping | None
    ) -> Self:
        """Go on with another run's turns, what was planned for later ones, and a tape."""
        self.turns = list(turns)
        self._planned = {}
        for intervention in planned:
            self._planned.setdefault(intervention.turn, []).append(intervention)
        self._taping = taping
        self._recount()
        return self

    def note_unrecorded(self, reason: str) -> Self:
        """Note why this run is not recorded, for its ``repr``; empty if there is nothing to say."""
        self.unrecorded = reason
        return self

    def intervene(self, turn: int, **values: Any) -> InterventionT:
        """Change the state of a turn from outside, now or when the run gets there.

        One planned for a turn after ``run_reaches`` is kept, and a WARNING says that ``run()``
        does not get there.

        Args:
            turn: the number of the state that is changed: the latest one, or one to come.
            values: what is done, as the kind's ``intervention_type`` takes it.

        Raises:
            ConfigError: the turn has passed or is being played, or a name or value is wrong.
        """
        return self.add_intervention(
            checked(type(self).intervention_type, {"turn": turn, **values})
        )

    def add_intervention(self, intervention: Any) -> InterventionT:
        """Do what ``intervene`` does with an intervention that was made before."""
        if self._stepping and intervention.turn <= self.turn + 1:
            raise ConfigError(
                f"turn {intervention.turn} cannot be changed while turn {self.turn + 1} is being "
                f"played; wait until it is done, or intervene at turn {self.turn + 2} or later"
            )
        turns, planned = list(self.turns), {at: list(its) for at, its in self._planned.items()}
        self._plan(intervention)
        if self._taping is not None:
            try:
                self._taping.changed(self.turns[-1], self._planned)
            except TapeError:
                self.turns, self._planned = turns, planned
                raise
        say_if_unreached(intervention, run=self.config.name, reaches=self.run_reaches)
        added: InterventionT = intervention
        return added

    def _plan(self, intervention: InterventionT) -> None:
        at, now = intervention.turn, self.turn
        if at < now:
            raise ConfigError(
                f"turn {at} has been played (the run is at turn {now}); intervene at turn {now} or "
                "later, or start a new run"
            )
        self._check_possible(intervention)
        if at == now:
            latest = self.turns[-1]
            self.turns[-1] = replace(
                latest,
                state=self._intervened(latest.state, [intervention]),
                interventions=(*latest.interventions, intervention),
            )
        else:
            self._planned.setdefault(at, []).append(intervention)

    async def step(self, *, progress: bool = True) -> TurnT:
        """Play one turn and return its record.

        Args:
            progress: whether a line says what is waited for, if it takes long; see ``arun``.

        Raises:
            LLMFailureException: a model call failed; the run is where it was before.
            ConfigError: a step is already under way.
        """
        if self._stepping:
            raise ConfigError("a step of this run is under way; wait for it before the next")
        self._stepping = True
        try:
            async with progress_line("turn", number=self.turn + 1, last=None, shown=progress):
                with rare_collections():
                    turn = await self._step()
        except BaseException as error:
            self._recount()
            if self._taping is not None:
                self._taping.failed(error)
            raise
        finally:
            self._stepping = False
        self._tell(turn)
        return turn

    def _clients(self) -> list[LLMClient]:
        """Return the clients that this run's parts ask with."""
        parts = [
            part
            for its in self.parts.values()
            for part in (its if isinstance(its, Sequence) else [its])
        ]
        found = [self.llm_client, *(getattr(part, "llm_client", None) for part in parts)]
        return list({id(one): one for one in found if isinstance(one, LLMClient)}.values())

    async def _step(self) -> TurnT:
        before = self.turns[-1]
        planned: Sequence[InterventionT] = self._planned.get(before.number + 1, [])
        if self._taping is not None:
            await self._taping.before_turn(self.llm_client)
            planned = self._taping.planned(before.number + 1, planned)
        began = time.perf_counter()
        log = CallLog(self.config.name, before.number + 1)
        recorder = self._taping.recorder if self._taping else None
        with ExitStack() as playing, recording(recorder, log):
            for client in self._clients():
                playing.enter_context(client.playing(log))
            turn = await self._play(before, planned)
            calls = log.close()
        if turn.number != before.number + 1:
            raise ConfigError(
                f"{type(self).__name__} played turn {turn.number} after turn {before.number}; what "
                f"comes next is turn {before.number + 1}"
            )
        turn = replace(
            turn,
            state=self._intervened(turn.state, planned),
            interventions=tuple(planned),
            seconds=time.perf_counter() - began,
            calls=calls,
        )
        self._arrived(turn)
        if self._taping is not None:
            turn = self._taping.done(turn, self._planned)
        self.turns.append(turn)
        return turn

    async def arun(
        self,
        turns: int | None = None,
        *,
        on_turn: Callable[[TurnT], object] | None = None,
        progress: bool = True,
    ) -> pd.DataFrame:
        """Play turns and return the whole run as a frame, as ``to_frame`` does.

        While it takes long, a line on the terminal or under the cell says what is waited for and
        how much time is left; it is gone in the end. Where nobody looks there is none.

        Args:
            turns: how many more; the configuration's number if not given.
            on_turn: called with each turn's record as it is done; may be async.
            progress: False for no such line; so does ``LLMSIM_PROGRESS=0`` in the environment.

        Raises:
            ConfigError: a negative number of turns.
            LLMFailureException: a model call failed; the turns before it are kept.
        """
        await self.play_on(turns, on_turn=on_turn, progress=progress)
        return self.to_frame()

    async def play_on(
        self,
        turns: int | None = None,
        *,
        on_turn: Callable[[TurnT], object] | None = None,
        progress: bool = True,
    ) -> None:
        """Do what ``arun`` does without making a frame, which needs pandas."""
        try:
            count, before = self._how_many(turns), self.turn
            async with progress_line(
                "turn", number=before + 1, last=before + count, shown=progress
            ) as advance:
                for _ in range(count):
                    turn = await self.step()
                    advance()
                    heard = on_turn(turn) if on_turn is not None else None
                    if isawaitable(heard):
                        await heard
                    await asyncio.sleep(0)
        except Exception as error:
            self._ended(f"failed: {error}")
            raise
        except BaseException:
            self._ended("interrupted")
            raise
        self._ended("done")

    def _ended(self, outcome: str) -> None:
        """Note the outcome on the tape; an earlier failure weighs more than one to note it."""
        if self._taping is not None:
            with suppress(TapeError) if outcome != "done" else nullcontext():
                self._taping.ended(outcome)

    def run(
        self,
        turns: int | None = None,
        *,
        on_turn: Callable[[TurnT], object] | None = None,
        progress: bool = True,
    ) -> pd.DataFrame:
        """Do what ``arun`` does from plain code: in a script, or in a notebook cell."""
        self._how_many(turns)
        return run_sync(self.arun(turns, on_turn=on_turn, progress=progress))

    def _how_many(self, turns: int | None) -> int:
        number = self.config.turns if turns is None else turns
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise ConfigError(f"turns={number!r} must be a whole number, 0 or more")
        return number

    def fork(
        self,
        turn: int | None = None,
        *,
        prompt: Prompt | Sequence[Prompt] = (),
        state: Any = None,
        intervene: Iterable[Mapping[str, Any]] = (),
        llm_client: LLMClient | None = None,
    ) -> Self:
        """Return a run that goes on from one of this run's turns, with something changed.

        The turns up to there are this run's, at no cost; those after are live. On a tape the fork
        is a run of its own that knows where it came from. Where the tape is open for reading only
        the fork lives in memory and is not recorded; a WARNING and its ``repr`` say so.

        Args:
            turn: the turn to go on from; the latest if not given.
            prompt: an edited prompt, or several; each takes the place of those of its name.
            state: the state instead of that turn's.
            intervene: interventions as dicts, as ``intervene`` takes them: ``{"turn": 3, ...}``.
            llm_client: another model; a replay's fork needs one.

        Raises:
            ConfigError: there is no such turn, or no part uses a prompt of that name.
        """
        return fork_of(
            self, turn, prompt=prompt, state=state, intervene=intervene, llm_client=llm_client
        )

    def decisions(self) -> pd.DataFrame:
        """Return the run's decisions as a frame, one row each: what was said, what became of it.

        Columns: ``run``, its number on the tape; ``seed``; ``period``; ``turn``; ``player``;
        ``component``; the fields of the replies, each under its own name, or as ``reply_NAME``
        where that is taken; ``reasoning``; ``confidence``; what the kind says became of it, see
        ``outcomes``; ``status``; ``interventions`` of the turn, in words; ``attempts``;
        ``prompt_tokens``, ``reply_tokens`` and ``tokens``, both together; ``seconds``; ``model``.

        Where a rule decided, ``attempts``, tokens and seconds are 0 and there is no model.
        """
        return decisions_frame(self)

    def close(self) -> None:
        """Let others write to this run on its tape; the run can still be looked at."""
        if self._taping is not None:
            self._taping.close()

    def __repr__(self) -> str:
        lost = f", NOT RECORDED: {self.unrecorded}" if self.unrecorded else ""
        return (
            f"<{type(self).__name__} {self.config.name!r}: turn {self.turn}{self._about()}{lost}>"
        )

    def _repr_html_(self) -> str:
        return str(run_html(self))
