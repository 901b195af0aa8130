"""The turn loop: agents propose at once, the validator marks, the engine applies in order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from inspect import isawaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from llmsim_lab.agents import Agent
from llmsim_lab.concurrency import gather_all, run_sync
from llmsim_lab.economy.shocks import NO_SHOCKS
from llmsim_lab.engines import EconomicEngine, Engine
from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.llm.recorder import recording
from llmsim_lab.models import (
    GlobalState,
    SimulationState,
)
from llmsim_lab.prompts import Prompt
from llmsim_lab.simulation import build
from llmsim_lab.simulation.config import SimulationConfig
from llmsim_lab.simulation.forks import fork_of
from llmsim_lab.simulation.history import History
from llmsim_lab.simulation.interventions import (
    Intervention,
    ShockName,
    Variable,
    check_possible,
    checked,
)
from llmsim_lab.simulation.manifest import make_manifest
from llmsim_lab.simulation.taping import Recording, Taping, tape_turn
from llmsim_lab.simulation.turn import Turn
from llmsim_lab.validators import Validator

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Simulation"]


class Simulation(History):
    """A run of the economic simulation, one quarter a turn.

    A turn that fails changes nothing: the turns before it stay, and ``step`` may be called again.

    Args:
        config: what to run; the defaults need a model.
        llm_client: the model, where the configuration calls for one.
        agents: instead of those the configuration describes.
        validator: instead of the configured one.
        engine: likewise.
        tape: where to record the run: a tape, or a file that becomes or is one.
        prompts: prompts instead of the configured ones, by the part that uses them:
            ``agent:NAME``, ``validator``, ``engine``.
        state: the initial state; if not given, the one ``config.start`` names, else that of the
            engine given.

    Example:
        >>> from llmsim_lab.simulation import Simulation, SimulationConfig
        >>> config = SimulationConfig(
        ...     nations=[{"name": "Rule", "kind": "taylor"}], validator={"kind": "always_valid"}
        ... )
        >>> Simulation(config).run(4).interest_rate.tolist()
        [4.0, 4.0, 4.0, 4.0, 4.0]
    """

    def __init__(
        self,
        config: SimulationConfig | None = None,
        *,
        llm_client: LLMClient | None = None,
        agents: Sequence[Agent] | None = None,
        validator: Validator | None = None,
        engine: Engine | None = None,
        state: SimulationState | None = None,
        tape: Tape | str | Path | None = None,
        prompts: Mapping[str, Prompt] | None = None,
    ) -> None:
        self.config = config or SimulationConfig()
        self.llm_client = llm_client
        parts = {"agents": agents, "validator": validator, "engine": engine}
        self.given = frozenset(name for name, part in parts.items() if part is not None)
        prompts = prompts or {}
        build.check_prompts(prompts, self.config, self.given)
        if agents is None:
            agents = build.agents(self.config, llm_client, prompts)
        self.agents = tuple(agents)
        build.check_names(agent.name for agent in self.agents)
        self.validator = validator or build.validator(self.config, llm_client, prompts)
        self.engine = engine or build.engine(self.config, llm_client, prompts)
        if state is None and engine is not None and self.config.start is None:
            state = engine.current_state
        elif state is None:
            state = build.initial_state(self.config)
        state = build.with_agents(state, self.agents)
        super().__init__([Turn(number=state.turn, state=state)])
        self._planned: dict[int, list[Intervention]] = {}
        self._stepping = False
        self._taping: Taping | None = None
        for intervention in self.config.interventions:
            self._plan(intervention)
        if tape is not None:
            self._record(tape if isinstance(tape, Tape) else Tape(tape))

    def _record(self, tape: Tape) -> None:
        """Begin a run on a tape; the state it begins from comes without another run's chains."""
        state = self.turns[0].state.model_copy(update={"reasoning_chains": ()})
        self.turns[0] = replace(self.turns[0], state=state)
        first = tape_turn(self.turns[0], self._planned)
        run = tape.add_run(make_manifest(self), name=self.config.name, first=first)
        self._taping = Recording(tape, run)

    def take_over(
        self, turns: Sequence[Turn], planned: Sequence[Intervention], taping: Taping | None
    ) -> Self:
        """Go on with another run's turns, what was planned for later ones, and a tape."""
        self.turns = list(turns)
        self._planned = {}
        for intervention in planned:
            self._planned.setdefault(intervention.turn, []).append(intervention)
        self._taping = taping
        self._recount()
        return self

    def _recount(self) -> None:
        """Let the validator's counts be those of the whole turns."""
        self.validator.recount(action for turn in self.turns for action in turn.actions)

    @property
    def planned(self) -> Mapping[int, Sequence[Intervention]]:
        """What was or is to be done from outside, by turn."""
        return self._planned

    @property
    def tape(self) -> Tape | None:
        """The tape that the run is recorded on or replayed from, if any."""
        return self._taping.tape if self._taping else None

    @property
    def run_id(self) -> int | None:
        """The run's number on its tape."""
        return self._taping.run if self._taping else None

    def intervene(
        self,
        turn: int,
        *,
        set: Mapping[Variable, float] | None = None,  # noqa: A002 - the word of the YAML files
        shock: Mapping[ShockName, float] | None = None,
        note: str = "",
    ) -> Intervention:
        """Change the state of a turn from outside, now or when the run gets there.

        Args:
            turn: the number of the state that is changed: the latest one, or one to come.
            set: variables and their new values, in their own units.
            shock: percentage points on inflation (``supply``) or the output gap (``demand``) of a
                turn to come.
            note: why, for the record.

        Raises:
            ConfigError: the turn has passed, or a name or value is wrong.
        """
        intervention = checked(
            {"turn": turn, "set": dict(set or {}), "shock": dict(shock or {}), "note": note}
        )
        turns, planned = list(self.turns), {at: list(its) for at, its in self._planned.items()}
        self._plan(intervention)
        if self._taping is not None:
            try:
                self._taping.changed(self.turns[-1], self._planned)
            except TapeError:
                self.turns, self._planned = turns, planned
                raise
        return intervention

    def _plan(self, intervention: Intervention) -> None:
        at, now = intervention.turn, self.turn
        check_possible(intervention, now=now, engine=self.engine)
        if at == now:
            latest = self.turns[-1]
            self.turns[-1] = replace(
                latest,
                state=self._intervened(latest.state, [intervention]),
                interventions=(*latest.interventions, intervention),
            )
        else:
            self._planned.setdefault(at, []).append(intervention)

    @staticmethod
    def _intervened(
        state: SimulationState, interventions: Sequence[Intervention]
    ) -> SimulationState:
        economy = state.global_state
        for intervention in interventions:
            economy = intervention.apply(economy)
        return state.model_copy(update={"global_state": economy})

    async def step(self) -> Turn:
        """Play one turn and return its record.

        Raises:
            LLMFailureException: a model call failed; the run is where it was before.
            ConfigError: a step is already under way.
        """
        if self._stepping:
            raise ConfigError("a step of this run is under way; wait for it before the next")
        self._stepping = True
        try:
            with recording(self._taping.recorder if self._taping else None):
                return await self._step()
        except BaseException as error:
            self._recount()
            if self._taping is not None:
                self._taping.failed(error)
            raise
        finally:
            self._stepping = False

    async def _step(self) -> Turn:
        before = self.state
        planned: Sequence[Intervention] = self._planned.get(before.turn + 1, [])
        if self._taping is not None:
            await self._taping.before_turn(self.llm_client)
            planned = self._taping.planned(before.turn + 1, planned)
        if isinstance(self.engine, EconomicEngine):
            shocks = sum((item.shocks for item in planned), start=NO_SHOCKS)
            self.engine.extra_shocks = {before.turn + 1: shocks}
        began = time.perf_counter()
        proposed = await gather_all([agent.decide_action(before) for agent in self.agents])
        actions = await self.validator.validate_actions(proposed, before)
        self.engine.current_state = before
        state = await self.engine.run_turn(actions)
        chains = [action.chain for action in actions if action.chain]
        verdicts = [action.validation_result for action in actions if action.validation_result]
        chains += [verdict.chain for verdict in verdicts if verdict.chain]
        state = self._intervened(state, planned).model_copy(
            update={"reasoning_chains": (*chains, *state.reasoning_chains)}
        )
        self.engine.current_state = state
        turn = Turn(
            number=state.turn,
            state=state,
            actions=tuple(actions),
            interventions=tuple(planned),
            seconds=time.perf_counter() - began,
        )
        if self._taping is not None:
            turn = self._taping.done(turn, self._planned)
        self.turns.append(turn)
        return turn

    async def arun(
        self, turns: int | None = None, *, on_turn: Callable[[Turn], object] | None = None
    ) -> pd.DataFrame:
        """Play turns and return the whole run as a frame, as ``to_frame`` does.

        Args:
            turns: how many more; the configuration's number if not given.
            on_turn: called with each turn's record as it is done; may be async.

        Raises:
            ConfigError: a negative number of turns.
            LLMFailureException: a model call failed; the turns before it are kept.
        """
        try:
            for _ in range(self._how_many(turns)):
                turn = await self.step()
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
        return self.to_frame()

    def _ended(self, outcome: str) -> None:
        """Note the outcome on the tape; an earlier failure weighs more than one to note it."""
        if self._taping is not None:
            with suppress(TapeError) if outcome != "done" else nullcontext():
                self._taping.ended(outcome)

    def fork(
        self,
        turn: int | None = None,
        *,
        prompt: Prompt | Sequence[Prompt] = (),
        state: GlobalState | SimulationState | None = None,
        intervene: Sequence[Mapping[str, Any]] = (),
        llm_client: LLMClient | None = None,
    ) -> Simulation:
        """Return a simulation that goes on from one of this run's turns, with something changed.

        The turns up to there are this run's, at no cost; those after are live. On a tape the fork
        is a run of its own that knows where it came from.

        Args:
            turn: the turn to go on from; the latest if not given.
            prompt: an edited prompt, or several; each takes the place of those of its name.
            state: the state instead of that turn's.
            intervene: interventions as dicts, as ``intervene`` takes them: ``{"turn": 3, "set":
                {"inflation": 9}}``.
            llm_client: another model; a replay's fork needs one.

        Raises:
            ConfigError: there is no such turn, or no part uses a prompt of that name.
        """
        return fork_of(
            self, turn, prompt=prompt, state=state, intervene=intervene, llm_client=llm_client
        )

    def close(self) -> None:
        """Let others write to this run on its tape; the simulation can still be looked at."""
        if self._taping is not None:
            self._taping.close()

    def run(
        self, turns: int | None = None, *, on_turn: Callable[[Turn], object] | None = None
    ) -> pd.DataFrame:
        """Do what ``arun`` does from plain code: in a script, or in a notebook cell."""
        self._how_many(turns)
        return run_sync(self.arun(turns, on_turn=on_turn))

    def _how_many(self, turns: int | None) -> int:
        number = self.config.turns if turns is None else turns
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise ConfigError(f"turns={number!r} must be a whole number, 0 or more")
        return number

    def __repr__(self) -> str:
        names = ", ".join(agent.name for agent in self.agents[:3])
        more = f" and {len(self.agents) - 3} more" if len(self.agents) > 3 else ""
        where = f" ({self.state.period})" if self.state.period else ""
        rate = self.state.global_state.interest_rate
        return (
            f"<Simulation {self.config.name!r}: turn {self.turn}{where}, rate {rate:.2f}%, "
            f"agents {names}{more}>"
        )
