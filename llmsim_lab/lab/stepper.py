"""Step through a run in a notebook: play, pause, stop, look back, fork."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from llmsim_lab.checks import whole_number
from llmsim_lab.errors import ConfigError, LabError
from llmsim_lab.lab.playing import Playing, waiting_text
from llmsim_lab.lab.source import Source, simulation_of
from llmsim_lab.lab.stepper_layout import MOST_TURNS
from llmsim_lab.lab.stepper_view import StepperView
from llmsim_lab.lab.widget import settled
from llmsim_lab.llm import LLMClient
from llmsim_lab.markup import join

if TYPE_CHECKING:
    from llmsim_lab.runs._run import Run
    from llmsim_lab.runs._turn import RunTurn

__all__ = ["TurnStepper"]


class TurnStepper(StepperView):
    """Plays a run turn by turn and shows each turn: its state, what was decided and why.

    A turn that fails, or is stopped, changes nothing: the run stays at its last whole turn.

    Args:
        source: a simulation; or a tape or its file, whose run is then looked at.
        run: for a tape, the run's number; the latest if not given.
        llm_client: the model for forks of a recorded run, which has none of its own.

    Attributes:
        simulation: the run shown: the one given, or a fork made here.
        forks: the forks made here, in order.
        shown: the number of the turn shown.

    Example:
        ``await stepper.step()`` and ``await stepper.play(3)`` do in a cell what the buttons do.
    """

    def __init__(
        self, source: Source, *, run: int | None = None, llm_client: LLMClient | None = None
    ) -> None:
        super().__init__(simulation_of(source, run=run))
        self.llm_client = llm_client
        self.tick_s = 1.0
        self._playing: Playing | None = None
        self._turn_hooks: list[Callable[[Any], object]] = []
        self._wire()
        self._set_busy(False)
        self.refresh()

    def _wire(self) -> None:
        self.step_button.on_click(lambda _: self._begin_playing(1))
        self.play_button.on_click(lambda _: self._begin_playing())
        self.pause_button.on_click(lambda _: self.pause())
        self.stop_button.on_click(lambda _: self.stop())
        self.fork_button.on_click(lambda _: self.start(self._fork_shown))

    # --- playing ------------------------------------------------------------------------------

    async def step(self) -> RunTurn:
        """Play one turn; returns it.

        Raises:
            LabError: it failed or was stopped; the run is where it was before.
        """
        played = await self.play(1)
        if not played:
            raise LabError(
                f"the step was stopped; the run is at turn {self.simulation.turn_number}"
            )
        return played[0]

    async def play(self, turns: int | None = None) -> list[RunTurn]:
        """Play turns; returns those played, fewer than asked for if it was paused or stopped.

        Interrupting the cell that waits for it breaks off the turn under way.

        Args:
            turns: how many; as many as the box says if not given.

        Raises:
            ConfigError: turns are being played already, or the number is no whole one above 0.
            LabError: a turn failed; those before it are kept.
        """
        playing = self._new_playing(self.turns_box.value if turns is None else turns)
        await self.do(self._as_work(playing))
        return playing.played

    def pause(self) -> None:
        """Stop after the turn under way."""
        if self._playing is not None and self.worker.busy:
            self._playing.pause()
            self.say("Pausing: the turn under way is finished first.")

    def stop(self) -> None:
        """Break off the turn under way; the last whole turn stays."""
        self.worker.stop()

    def _begin_playing(self, turns: int | None = None) -> None:
        """Play as a click wants it; tried again after a failure, it goes on with what is left."""
        begun: list[Playing] = []

        async def work() -> None:
            if not begun:
                await settled(self.turns_box, self.run_box)
                begun.append(self._new_playing(self.turns_box.value if turns is None else turns))
            await self._as_work(begun[0])()

        self.start(work)

    def _new_playing(self, turns: int) -> Playing:
        return Playing(
            self.simulation,
            whole_number("turns", turns, least=1, most=MOST_TURNS),
            on_tick=self._show_progress,
            on_turn=self._arrived,
            tick_s=self.tick_s,
        )

    def _as_work(self, playing: Playing) -> Callable[[], Any]:
        async def work() -> None:
            self._playing = playing
            await playing()
            self.say(self._said_at_the_end(playing))

        return work

    @staticmethod
    def _said_at_the_end(playing: Playing) -> str:
        last = playing.simulation.turn_number
        if len(playing.played) < playing.turns:
            left = playing.turns - len(playing.played)
            return f"Paused after turn {last}; {left} of {playing.turns} turns were not played."
        return f"Turn {last} is played."

    def _arrived(self, turn: RunTurn) -> None:
        """Show a turn that has just been played, unless an earlier one is being looked at."""
        with self._view:
            if self.shown == turn.number - 1:
                self.shown = turn.number
            self.refresh()
        for hook in list(self._turn_hooks):
            hook(turn)

    def _show_progress(self, playing: Playing) -> None:
        now, of = len(playing.played) + 1, playing.turns
        number = playing.simulation.turn_number + 1
        if not playing.pausing:
            self.say(f"Playing turn {number}" + (f", {now} of {of}." if of > 1 else "."))
        bar = Markup('<progress value="{}" max="{}" aria-label="Turns played"></progress>')
        said = " · ".join(filter(None, (f"{playing.seconds:.0f} s", waiting_text(playing.calls))))
        self.progress.value = str(join([bar.format(now - 1, of), " ", said]))

    def stopped(self) -> None:
        """Say where the run is now."""
        self.say(f"Stopped. The run is at turn {self.simulation.turn_number}, its last whole one.")

    def ended(self) -> None:
        """Take the progress away."""
        if not self.worker.busy:
            self._playing = None
            self.progress.value = ""

    # --- forks --------------------------------------------------------------------------------

    def fork(self, turn: int | None = None, **changes: Any) -> Run:
        """Make a run that goes on from a turn, and show it; its parent stays in the list of runs.

        Args:
            turn: the turn to go on from; the one shown if not given.
            changes: what the run's own ``fork`` takes, such as ``intervene``.

        Raises:
            ConfigError: turns are being played, or the run cannot be forked like this.
        """
        if self.worker.busy:
            raise ConfigError("a fork has to wait until the turns under way are played, or stopped")
        return self._fork(self.shown if turn is None else whole_number("turn", turn), changes)

    def _fork(self, turn: int, changes: dict[str, Any]) -> Run:
        if self.llm_client is not None:
            changes = {"llm_client": self.llm_client} | changes
        new: Run
        try:
            new = self.simulation.fork(turn, **changes)
        except ConfigError as error:
            if self.llm_client is None and "llm_client" in str(error):
                raise ConfigError(
                    f"{error}; for the button: TurnStepper(..., llm_client=connect('auto'))"
                ) from error
            raise
        with self._view:
            self._runs.add(new, turn)
            self._look_at(turn)
        unrecorded = getattr(new, "unrecorded", "")
        self.say(
            f"This is {self._runs.name_of(new)}. Step or Play goes on from there."
            + (f" It is not recorded: {unrecorded}." if unrecorded else "")
        )
        return new

    async def _fork_shown(self) -> None:
        await settled(self.turn_box, self.run_box)
        self._fork(self.shown, {})

    # --- for others ---------------------------------------------------------------------------

    def on_turn(self, callback: Callable[[RunTurn], object]) -> None:
        """Have something called with each whole turn that is played here.

        What it raises is shown in place; the turn is kept.
        """
        self._turn_hooks.append(callback)
