"""A seat at the table: a person sees what a model would see, and answers in its place."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from markupsafe import Markup

from llmsim_lab.agents import HumanAgent
from llmsim_lab.economy import QuadraticLoss
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab.answer_form import RateForm
from llmsim_lab.lab.following import Following, thread_of_loop
from llmsim_lab.lab.scores import Leaderboard, leaderboard
from llmsim_lab.lab.seat_layout import Player, SeatLayout, chosen_people, people_of
from llmsim_lab.lab.seat_views import (
    answers_html,
    answers_text,
    news,
    prompt_html,
    state_html,
    title,
)
from llmsim_lab.lab.sending import Sendings
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.llm._human import OpenQuestion
from llmsim_lab.markup import safe
from llmsim_lab.runs import Run
from llmsim_lab.simulation import Simulation

__all__ = ["HumanSeat"]

_seats: WeakKeyDictionary[Run, WeakSet[HumanSeat]] = WeakKeyDictionary()
"""Who sits at which run, so that one seat's turn shows at the others."""


class HumanSeat(SeatLayout):
    """Lets one or several people decide in a run: what they see, their form, whom the run awaits.

    The turn can be started here, by another widget or by ``simulation.step()`` in a cell; the seat
    asks whenever the run waits for one of its people. A form keeps what is written in it until the
    answer was taken. Where several people share a notebook, each may have a seat of their own, or
    all use one and choose whose form is shown.

    Args:
        simulation: an economic run with nations of kind ``human``; or one of a world of one's own
            with people among its players: ``PublicGoods(players={"Bob": Person()})``.
        agent: whose seat it is; the seat of all people in the run if not given.
        model: for the score: a client, or a recorded run of a model's; see ``leaderboard``.
        loss: for the score: how runs are judged.

    Attributes:
        simulation: the run.
        stop_button: stops the turn that was started here; what was answered in it is lost, unless
            the run has a tape.
        waiting_for: the people whose answers the turn waits for, whichever seat they have.

    Raises:
        ConfigError: nobody of that name, or nobody at all, is a person in it.

    Example:
        ``await seat.take_turn("Hold the rate", rate=4, reasoning="All is calm.", confidence=0.8)``
        does in a cell what people do with the form and the buttons.
    """

    _deaf: Sequence[Callable[[], None]] = ()

    def __init__(
        self,
        simulation: Run,
        *,
        agent: str | None = None,
        model: LLMClient | Simulation | Tape | str | Path | None = None,
        loss: QuadraticLoss | None = None,
    ) -> None:
        self._following = Following()
        self.simulation = simulation
        super().__init__(chosen_people(simulation, agent))
        self.model = model
        self.loss = loss
        self._refreshing = threading.RLock()
        self._thread = thread_of_loop()
        self._stepping = False
        self._failure: Exception | None = None
        self.sendings = Sendings()
        self._wire()
        _seats.setdefault(simulation, WeakSet()).add(self)
        self._set_busy(False)
        self.refresh()

    def _wire(self) -> None:
        self.step_button.on_click(lambda _: self._begin_turn())
        self.stop_button.on_click(lambda _: self.worker.stop())
        self.score_button.on_click(lambda _: self.start(self._show_score))
        self.seat_box.observe(lambda _: self._in_order(self.refresh), names="value")
        for name, form in self.forms.items():
            form.answer_button.on_click(lambda _, name=name: self._send_soon(name))
            form.on_change(partial(self._check, name))
        people = {id(it.person): it.person for it in people_of(self.simulation)}
        self._deaf = [person.listen(self._heard) for person in people.values()]

    # --- what is shown ------------------------------------------------------------------------

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """The people whose answers the turn waits for, whichever seat they have."""
        asked = ((it.name, it.question) for it in people_of(self.simulation))
        return tuple(question.agent or name for name, question in asked if question is not None)

    def refresh(self) -> None:
        """Show the run as it is now; called whenever a question comes or goes, from any thread."""
        with self._refreshing:
            agent, form = self.shown, self.forms[self.shown.name]
            state = self.simulation.state
            question, own = agent.question, isinstance(agent, Player)
            # What a player of a world may know is in the prompt, and nowhere else.
            self.facts.value = "" if own else str(state_html(agent.name, state))
            asked = "" if question is None else prompt_html(question, open=own)
            self.prompt.value = str(asked)
            for name, each in self.forms.items():
                who = self.agents[name]
                if isinstance(each, RateForm) and isinstance(who, HumanAgent):
                    rate = state.global_state.interest_rate
                    each.offer(who.limits.choices(rate), now=rate)
                each.ask(self.agents[name].question, turn=self.simulation.turn_number)
            if self.form_box.children != (form,):
                self.form_box.children = (form,)
            self.step_button.disabled = (
                self.worker.busy or bool(self.waiting_for) or self._playing()
            )
            self.say(self._news())

    def _news(self) -> str:
        return news(
            self.simulation,
            self.waiting_for,
            mine=self.shown.question is not None,
            playing=self._playing(),
            elsewhere=self._elsewhere,
        )

    def _playing(self) -> bool:
        return any(seat.worker.busy and seat._stepping for seat in self._fellows())

    def _fellows(self) -> list[HumanSeat]:
        return list(_seats.get(self.simulation, ()))

    # --- a turn -------------------------------------------------------------------------------

    def _begin_turn(self) -> None:
        if not self.waiting_for and not self._playing() and not self.worker.busy:
            self._stepping = True
            self.start(self._step)

    async def _step(self) -> None:
        self._stepping, self._failure = True, None
        self.say(self._news())
        try:
            await self.simulation.step()
        except Exception as error:
            self._failure = error
            raise
        finally:
            self._stepping = False

    def _raise_failure(self) -> None:
        for seat in self._fellows():
            if seat._failure is not None:
                raise seat._failure

    def stopped(self) -> None:
        """Leave what was written where it is; the run is at its last whole turn."""

    def ended(self) -> None:
        """Show where the run is now, at every seat."""
        for seat in self._fellows():
            seat.worker.call(seat._following.stop)
            seat.refresh()

    def _check(self, name: str) -> None:
        """Say what would be wrong with the answer so far, while it is being written."""
        agent, form = self.agents[name], self.forms[name]
        written = form.values.items()
        said = {key: value for key, value in written if value not in ("", None)}
        if isinstance(agent, HumanAgent):
            said = {key: said[key] for key in ("action", "reasoning") if key in said}
        faults = {} if agent.question is None else agent.question.faults(said)
        notes = [f"{key} {faults[key]}" for key in said if key in faults]
        if isinstance(agent, HumanAgent) and "action" in said:
            notes.append(agent.complaint_about(said["action"]))
        form.suggest(". ".join(filter(None, notes)))

    def _send_soon(self, name: str) -> None:
        self.sendings.send_soon(
            name, self.forms[name].fields, lambda: self._in_order(self._submit, name)
        )

    def _submit(self, name: str) -> None:
        agent, form = self.agents[name], self.forms[name]
        try:
            form.send(agent.question, lambda: agent.answer(**form.values))
        except ConfigError as error:
            form.complain(str(error))

    def _heard(self) -> None:
        """A question came or went, in whichever thread."""
        self._in_order(self.refresh)
        if not self.waiting_for:
            self.worker.call(self._follow, self.simulation.turn_number + 1)

    def _in_order(self, action: Callable[..., object], *args: object) -> None:
        """Do something on the seat's own loop, since what other threads show may arrive late.

        It is done at once where that loop is here, or is held up by a cell that waits for the turn.
        """
        if self._elsewhere or threading.get_ident() == self._thread:
            action(*args)
        else:
            self.worker.call(action, *args)

    @property
    def _elsewhere(self) -> bool:
        """Whether another thread's loop plays the turn, as that of ``run()`` in a cell does."""
        asked = [person.question for person in people_of(self.simulation)]
        return self._thread is not None and any(q and q.thread != self._thread for q in asked)

    def _follow(self, turn: int) -> None:
        """Look, on the loop, for the end of a turn that somebody else started."""
        self._following.follow(
            lambda: self.simulation.turn_number >= turn or self._playing(), self.refresh
        )

    # --- the same from code -------------------------------------------------------------------

    async def asked(self, agent: str | None = None) -> OpenQuestion:
        """Wait until somebody is asked, and return the question.

        Args:
            agent: who; the person whose form is shown if not given.

        Raises:
            ConfigError: the turn that was started here ended without a question.
        """
        person = self.named(agent)
        asked = asyncio.ensure_future(person.person.asked())
        ended = asyncio.ensure_future(self.idle()) if self._playing() else None
        try:
            waited = [asked, ended] if ended else [asked]
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                return asked.result()
        finally:
            asked.cancel()
            if ended is not None:
                ended.cancel()
        self._raise_failure()
        raise ConfigError(
            f"the turn ended and {person.name} was not asked: it was stopped, or the answer came "
            "from the tape"
        )

    def answer(
        self, action: str | None = None, /, *, agent: str | None = None, **values: Any
    ) -> None:
        """Fill in a form and send it.

        Args:
            action: one policy action, in words; only in an economic run.
            values: the fields of the reply, such as ``amount=5``, with ``reasoning`` and
                ``confidence``; in an economic run ``rate`` besides, the new interest rate, percent
                per year, one of those on offer, where the person names rates.
            agent: who; the person whose form is shown if not given.

        Raises:
            ConfigError: no question waits, or a field is wrong; nothing was sent then.
        """
        person = self.named(agent)
        form = self.forms[person.name]
        if action is not None:
            values["action"] = action
        form.fill(**values)
        form.send(person.question, lambda: person.answer(**values))

    async def take_turn(
        self, action: str | None = None, /, *, agent: str | None = None, **values: Any
    ) -> None:
        """Start a turn if none is under way, wait for the question, answer, wait for the end.

        Where others are waited for too, let all do so at once, with ``asyncio.gather``. Arguments
        as for ``answer``.

        Raises:
            ConfigError: a field is wrong; the question waits on.
            LabError: the turn failed; the run is at its last whole turn.
        """
        self._begin_turn()
        await self.asked(agent)
        self.answer(action, agent=agent, **values)
        await self.idle()
        self._raise_failure()

    async def idle(self) -> None:
        """Wait until the turn, or whatever else a seat of this run is at, has ended."""
        for seat in self._fellows():
            await seat.sendings.idle()
            await seat.worker.idle()

    # --- the score ----------------------------------------------------------------------------

    def leaderboard(self) -> Leaderboard:
        """Return the score: the people against the Taylor rule and the model."""
        if not isinstance(self.simulation, Simulation):
            raise ConfigError(
                f"{type(self.simulation).__name__} has no score to compare; a leaderboard is of "
                "economic runs"
            )
        return leaderboard(self.simulation, model=self.model, loss=self.loss)

    async def _show_score(self) -> None:
        self.say("Playing the same quarters with others in your seat.")
        board = await asyncio.to_thread(self.leaderboard)
        self.score.value = str(board.html)

    # --- faces --------------------------------------------------------------------------------

    def _answering(self) -> list[str]:
        """Return whose answers are shown; nobody's name where one answers for all others."""
        open_ended = any(isinstance(it, Player) and it.not_for for it in self.agents.values())
        return [] if open_ended else list(self.agents)

    def face_text(self) -> str:
        """Return who sits here, where the run is, and the latest answers."""
        names = self._answering()
        lines = [title(self.simulation, self.agents), *answers_text(self.simulation, names)]
        return "\n".join(lines)

    def face_html(self) -> Markup:
        """Return the same as a heading and a table."""
        heading = Markup("<p><strong>{}</strong></p>").format(
            safe(title(self.simulation, self.agents))
        )
        return heading + answers_html(self.simulation, self._answering())

    def close(self) -> None:
        """Take the seat away and stop a turn started here; any other waits for another seat."""
        if self._deaf:
            self.worker.call(self._following.stop)
            _seats.get(self.simulation, WeakSet()).discard(self)
        for stop in self._deaf:
            stop()
        self._deaf = ()
        super().close()
