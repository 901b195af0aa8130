"""Prompts compared on the same recorded states, with the same seeds, n samples each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from llmsim_lab.checks import whole_number
from llmsim_lab.concurrency import run_sync
from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.experiments import keeping
from llmsim_lab.experiments.bench import Bench, Sample
from llmsim_lab.experiments.plan import Plan, Progress, plan_of, schedule_of
from llmsim_lab.experiments.playing import Played, play_all
from llmsim_lab.experiments.results import Results
from llmsim_lab.experiments.rows import samples_frame
from llmsim_lab.experiments.setup import (
    Variant,
    check_rendering,
    config_of,
    prompts_of,
    run_on,
    seed_of,
    source_of,
    turns_of,
)
from llmsim_lab.experiments.statistics import Outcome
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.llm.scope import Recorder
from llmsim_lab.logs import log_event
from llmsim_lab.runs._progress import progress_line
from llmsim_lab.simulation import Simulation, Turn, load

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PromptExperiment"]

logger = logging.getLogger(__name__)


class PromptExperiment(Results):
    """Plays chosen turns of a run again with two or more variants of one component's prompt.

    All variants meet the same recorded states with the same seeds: sample k at a turn is asked with
    one seed for all of them, numbered on from ``seed``. What comes before the component in the turn
    is taken from the recording; the component and what follows it are asked. The first variant is
    what the others are held against.

    On the run's own tape the experiment is recorded sample by sample and goes on where it stopped;
    without one, or on one that is read-only, the results are kept in memory only, which ``plan()``
    says.

    Args:
        source: the run: a simulation, a tape, or a tape's file, which is opened for reading only.
        run: for a tape, the run's number; needed where the tape holds several.
        variants: prompts by name, two or more; a text is an edited prompt, None stands for the
            prompt as the run used it.
        component: ``agent`` (all that read prompts), ``agent:NAME``, ``validator`` or ``engine``.
        turns: the turns to play again; all in which the component was asked, if not given.
        samples: of each variant at each turn.
        llm_client: the model; the run's own if not given.
        seed: the samples' seeds follow it; the client's if not given, else 0.
        temperature: of the model; as recorded if not given.
        only_component: whether to ask the component alone: cheaper, but nobody says what becomes of
            the rate.
        shared_seeds: whether sample k has the seed ``seed + k`` at every turn, rather than each
            turn seeds of its own. A seed that is shared makes samples of different turns alike, so
            that as many of them say less; the intervals take it into account.

    Raises:
        ConfigError: a variant's slots are not the component's, an argument is wrong, or the tape
            holds several runs and none is named; the message lists them.
    """

    def __init__(
        self,
        source: Simulation | Tape | str | Path,
        *,
        run: int | None = None,
        variants: Mapping[str, Variant],
        component: str = "agent",
        turns: Sequence[int] | None = None,
        samples: int = 5,
        llm_client: LLMClient | None = None,
        seed: int | None = None,
        temperature: float | None = None,
        only_component: bool = False,
        shared_seeds: bool = False,
    ) -> None:
        self.shared_seeds = shared_seeds
        self.simulation = _simulation_of(source, run)
        self.bench = Bench(self.simulation, component, only_component=only_component)
        self.variants = prompts_of(variants, self.bench)
        self.turns = turns_of(turns, self.bench)
        self.samples = whole_number("samples", samples, least=1)
        client = llm_client or self.simulation.llm_client
        self.config = config_of(self.simulation, client, temperature)
        self.seed = seed_of(seed, self.config)
        self.llm_client = None if keeping.asks_nobody(client) else client
        check_rendering(self.variants, self.turns, self.bench)
        self.played: list[Played] = []
        self.run_id: int | None = None
        self._loaded = 0
        self._running = False

    @property
    def source(self) -> str:
        """The run whose turns are played again, in words: its number, its name, its tape."""
        return source_of(self.simulation)

    @property
    def component(self) -> str:
        """The component under test."""
        return self.bench.component

    @property
    def only_component(self) -> bool:
        """Whether the component is asked alone."""
        return self.bench.only_component

    @property
    def names(self) -> list[str]:
        """The variants' names; the first is what the others are held against."""
        return list(self.variants)

    @property
    def outcomes(self) -> list[Outcome]:
        """What is measured: who is not asked has no say."""
        stage, alone = self.bench.stage, self.only_component
        found: list[Outcome] = []
        if not alone or stage == "engine":
            found.append("interest_rate")
        found.append("confidence")
        if stage == "validator" or (stage == "agent" and not alone):
            found.append("accepted")
        return found

    @property
    def schedule(self) -> list[Sample]:
        """Every sample in the order of playing: variants in turn, so that a stop leaves pairs."""
        return schedule_of(
            list(self.variants), self.turns, self.samples, seed=self.seed, shared=self.shared_seeds
        )

    @property
    def tape(self) -> Tape | None:
        """The tape that samples are recorded on, if any."""
        tape = self.simulation.tape
        return None if tape is None or tape.read_only else tape

    @property
    def storage(self) -> str:
        """Where the results are kept, in words."""
        loaded = self._loaded if self.run_id is not None else None
        return keeping.storage_of(self.simulation.tape, loaded, total=len(self.schedule))

    def plan(self) -> Plan:
        """Return what is still to be played, and an estimate of what it takes."""
        left = self.schedule[len(self.played) :]
        return plan_of(self.bench, left, done=len(self.played), storage=self.storage)

    def run(
        self, *, on_progress: Callable[[Progress], object] | None = None, progress: bool = True
    ) -> pd.DataFrame:
        """Do what ``arun`` does from plain code: in a script, or in a notebook cell."""
        return run_sync(self.arun(on_progress=on_progress, progress=progress))

    async def arun(
        self, *, on_progress: Callable[[Progress], object] | None = None, progress: bool = True
    ) -> pd.DataFrame:
        """Play what is left to be played, and return all results as ``frame`` does.

        Cancel it to stop: the samples played are kept, and the next call continues after them.

        Args:
            on_progress: called after each sample; may be async.
            progress: whether a line says how far it is, as it does while a simulation runs.

        Raises:
            ConfigError: there is no model, or a run of this experiment is under way.
            LLMFailureException: the server failed; the sample will be played again.
            TapeError: another model answers than the one recorded, or the disk fails.
        """
        if self.llm_client is None:
            raise ConfigError(
                "an experiment needs a model, and a recorded run has none: "
                "PromptExperiment(..., llm_client=connect('auto'))"
            )
        if self._running:
            raise ConfigError("this experiment is running; wait for it, or cancel it")
        self._running = True
        schedule = self.schedule
        try:
            async with progress_line(
                "sample", number=len(self.played) + 1, last=len(schedule), shown=progress
            ) as advance:
                await play_all(
                    schedule,
                    self.played,
                    play=partial(self._play, client=self.llm_client),
                    client=self.llm_client,
                    taping=self._begin(),
                    on_progress=on_progress,
                    advance=advance,
                )
        finally:
            self._running = False
        return self.frame

    def _begin(self) -> keeping.Recording | None:
        tape = self.tape
        if tape is None:
            log_event(logger, logging.WARNING, "experiment_not_recorded", why=self.storage)
            return None
        if self.run_id is None:
            settings = {name: getattr(self, name) for name in keeping.SETTINGS}
            settings |= {"variants": keeping.entries_of(self.variants), "turns": list(self.turns)}
            taping = keeping.begin(self.simulation, tape, settings=settings, config=self.config)
            self.run_id = taping.run
            return taping
        return keeping.go_on(self.simulation, tape, self.run_id)

    async def _play(self, sample: Sample, recorder: Recorder | None, *, client: LLMClient) -> Turn:
        config = self.config.model_copy(update={"seed": sample.seed})
        asked = LLMClient(config, client.backend, chosen=client.chosen)
        return await self.bench.play(sample, self.variants[sample.variant], asked, recorder)

    @classmethod
    def load(
        cls,
        tape: Tape | str | Path,
        run: int | None = None,
        *,
        llm_client: LLMClient | None = None,
    ) -> PromptExperiment:
        """Return a recorded experiment with its results; nothing is asked.

        Args:
            tape: the tape, or its file, which is opened for reading only.
            run: the experiment's number; the latest if not given.
            llm_client: a model, to go on with an experiment that was stopped.

        Raises:
            TapeError: there is no such experiment, or the tape is damaged.
        """
        tape = tape if isinstance(tape, Tape) else Tape(tape, read_only=True)
        info = keeping.experiment_on(tape, run)
        variants, settings = keeping.variants_of(info), keeping.recorded_settings(info)
        simulation = load(tape, info.parent)
        experiment = cls(
            simulation,
            variants=variants,
            llm_client=llm_client,
            temperature=keeping.recorded_temperature(info),
            **settings,
        )
        if llm_client is None:
            experiment.config = keeping.recorded_config(info)
        experiment.run_id = info.id
        experiment.played = keeping.played_on(simulation, tape, info.id, experiment.schedule)
        experiment._loaded = len(experiment.played)
        return experiment

    def replay(self) -> pd.DataFrame:
        """Play all recorded samples again from the tape alone, and compare each with its record.

        Returns:
            The results, as ``frame`` does.

        Raises:
            TapeMiss: a call differs from the recorded ones; the message shows how.
            TapeError: a sample came out differently, or nothing was recorded.
        """
        tape = self.simulation.tape
        if tape is None or self.run_id is None:
            raise TapeError("this experiment is on no tape; there is nothing to replay")
        nobody = LLMClient(self.config, keeping.NoModel())
        self.played = run_sync(
            keeping.replayed(
                self.simulation,
                tape,
                self.run_id,
                self.played,
                play=partial(self._play, client=nobody),
            )
        )
        return self.frame

    def sample(self, variant: str, turn: int, sample: int = 1) -> Simulation:
        """Return a sample as the run it is taken from would have gone: to look at, not to play.

        Args:
            variant: the variant's name.
            turn: the turn that was played again.
            sample: which, from 1.

        Raises:
            ConfigError: that sample was not played.
        """
        for found, played in self.played:
            if (found.variant, found.turn, found.sample) == (variant, turn, sample):
                first = self.simulation.turns[0].number
                turns = self.simulation.turns[: turn - first]
                state = played.state.model_copy(update={"turn": turn})
                last = replace(played, number=turn, state=state)
                return self.bench.view([*turns, last], self.variants[variant])
        raise ConfigError(
            f"there is no sample {sample} of {variant!r} at turn {turn}; played are "
            f"{len(self.played)} of {len(self.schedule)}: variants {', '.join(self.variants)}, "
            f"turns {', '.join(map(str, self.turns))}, samples 1 to {self.samples}"
        )

    @property
    def frame(self) -> pd.DataFrame:
        """All results so far; see ``rows.samples_frame`` for the columns."""
        return samples_frame(self.bench, self.played)

    def __repr__(self) -> str:
        names = " / ".join(self.variants)
        done, total = len(self.played), len(self.schedule)
        return (
            f"<PromptExperiment on {self.component} of {self.source}: {names}, {done} of {total} "
            "samples played>"
        )


def _simulation_of(source: Simulation | Tape | str | Path, run: int | None) -> Simulation:
    if isinstance(source, Simulation):
        if run is not None:
            raise ConfigError(f"run={run} goes with a tape; a simulation is one run already")
        return source
    tape = source if isinstance(source, Tape) else Tape(source, read_only=True)
    simulation: Simulation = load(tape, run_on(tape, run))
    return simulation
