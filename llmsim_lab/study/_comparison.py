"""Prompts compared on the same recorded states, with the same seeds, n samples each."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from inspect import isawaitable
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, get_args

from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.text import log_event
from llmsim_lab._util.waiting import run_sync
from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.experiments import _keeping
from llmsim_lab.experiments._bench import (
    Bench,
    Sample,
    Stage,
    Variant,
    check_rendering,
    config_of,
    prompts_of,
    run_on,
    seed_of,
    source_of,
    turns_of,
)
from llmsim_lab.experiments._results import (
    agreement,
    came_off,
    common_answers,
    directions,
    samples_frame,
    verdict,
)
from llmsim_lab.experiments._statistics import Difference, Noise, Outcome, differences, noise
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.llm._scope import Recorder
from llmsim_lab.run import load
from llmsim_lab.run._progress import progress_line
from llmsim_lab.run._run import NoModel
from llmsim_lab.run._session import Recording
from llmsim_lab.simulation import Simulation
from llmsim_lab.simulation._simulation import Turn

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)

_STAGES: tuple[Stage, ...] = get_args(Stage)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many samples are left to play, and an estimate of their cost.

    Attributes:
        samples: how many are to be played.
        done: how many were played before.
        calls: model calls, retries not counted; fewer where the validator rejects an action.
        tokens: prompt and reply tokens; None where the run recorded none.
        seconds: time in the model; likewise.
        recorded_calls: how many recorded calls the estimate is based on.
        model: the model that answered those.
        storage: where the results will be kept, in words.
    """

    samples: int
    done: int
    calls: int
    tokens: float | None
    seconds: float | None
    recorded_calls: int
    model: str
    storage: str = ""

    def __str__(self) -> str:
        already = f" ({self.done} done already)" if self.done else ""
        work = f"{self.samples} samples to play{already}: {self.calls} model calls"
        if not self.samples:
            return f"Nothing left to play{already}."
        if self.seconds is None:
            cost = "; the run has no recorded calls of these kinds to estimate the time from"
        else:
            tokens = f"{_rounded(self.tokens):,} tokens and " if self.tokens is not None else ""
            cost = (
                f", about {tokens}{duration(self.seconds)}. An "
                f"estimate: the mean of this run's {self.recorded_calls} recorded calls "
                f"({self.model}), retries extra"
            )
        where = f" {self.storage}" if self.storage else ""
        return f"{work}{cost}.{where}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far an experiment is.

    Attributes:
        done: samples played, those that failed included.
        total: samples in all.
        failed: samples that failed.
        latest: the one just played.
        seconds: how long it took.
    """

    done: int
    total: int
    failed: int
    latest: Sample
    seconds: float


class PromptExperiment:
    """Plays chosen turns of a run again with two or more variants of one component's prompt.

    All variants get the same recorded states with the same seeds: sample k at a turn has one seed
    for all of them, counted up from ``seed``. What comes before the component in the turn is taken
    from the recording; the component and what follows it are asked. The other variants are compared
    with the first.

    On the run's own tape the experiment is recorded sample by sample and continues where it
    stopped; without a tape, or on one that is read-only, the results are kept in memory only, which
    ``plan()`` says.

    Args:
        source: the run: a simulation, a tape, or a tape's file, which is opened for reading only.
        run: for a tape, the run's number; needed where the tape holds several.
        variants: prompts by name, two or more; a text is an edited prompt, None stands for the
            prompt as the run used it.
        component: ``agent`` (all that read prompts), ``agent:NAME``, ``validator`` or ``engine``.
        turns: the turns to play again; if not given, all in which the component was asked.
        samples: of each variant at each turn.
        llm_client: the model; the run's own if not given.
        seed: the samples' seeds follow it; the client's if not given, else 0.
        temperature: of the model; as recorded if not given.
        only_component: whether to ask the component alone: cheaper, but without the resulting rate.
        shared_seeds: whether sample k has the seed ``seed + k`` at every turn; if not, each turn
            has seeds of its own. Shared seeds make samples of different turns alike, so that the
            same number of samples says less; the intervals take that into account.

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
        if isinstance(source, Simulation):
            if run is not None:
                raise ConfigError(f"run={run} is for a tape; a simulation is one run already")
            self.simulation: Simulation = source
        else:
            tape = source if isinstance(source, Tape) else Tape(source, read_only=True)
            self.simulation = load(tape, run_on(tape, run))
        self.bench = Bench(self.simulation, component, only_component=only_component)
        self.variants = prompts_of(variants, self.bench)
        self.turns = turns_of(turns, self.bench)
        self.samples = whole_number("samples", samples, least=1)
        client = llm_client or self.simulation.llm_client
        self.config = config_of(self.simulation, client, temperature)
        self.seed = seed_of(seed, self.config)
        self.llm_client = None if _keeping.has_no_model(client) else client
        check_rendering(self.variants, self.turns, self.bench)
        self.played: list[tuple[Sample, Turn]] = []
        self.run_id: int | None = None
        self._loaded = 0
        self._running = False
        self._known: tuple[pd.DataFrame, list[Difference], list[Noise]] | None = None

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
        """The variants' names; the others are compared with the first."""
        return list(self.variants)

    @property
    def outcomes(self) -> list[Outcome]:
        """What is measured: only what depends on the components that are asked."""
        stage, alone = self.bench.stage, self.only_component
        found: list[Outcome] = []
        # Where the engine is not asked, the rate does not move.
        if not alone or stage == "engine":
            found.append("interest_rate")
        found.append("confidence")
        if stage == "validator" or (stage == "agent" and not alone):
            found.append("accepted")
        return found

    @property
    def schedule(self) -> list[Sample]:
        """Every sample in the order of playing: variants in turn, so that a stop leaves pairs."""
        schedule: list[Sample] = []
        for sample in range(1, self.samples + 1):
            for place, turn in enumerate(self.turns):
                # All samples 1 come before all samples 2, so that more samples extend the seeds.
                own = sample if self.shared_seeds else (sample - 1) * len(self.turns) + place + 1
                schedule += [
                    Sample(
                        number=len(schedule) + number,
                        variant=variant,
                        turn=turn,
                        sample=sample,
                        seed=self.seed + own,
                    )
                    for number, variant in enumerate(self.variants, 1)
                ]
        return schedule

    @property
    def tape(self) -> Tape | None:
        """The tape that samples are recorded on, if any."""
        tape = self.simulation.tape
        return None if tape is None or tape.read_only else tape

    @property
    def storage(self) -> str:
        """Where the results are kept, in words."""
        loaded = self._loaded if self.run_id is not None else None
        return _keeping.storage_of(self.simulation.tape, loaded, total=len(self.schedule))

    def plan(self) -> Plan:
        """Return what is still to be played, and an estimate of what it takes."""
        left = self.schedule[len(self.played) :]
        return plan_of(self.bench, left, done=len(self.played), storage=self.storage)

    def run(
        self, *, on_progress: Callable[[Progress], object] | None = None, progress: bool = True
    ) -> pd.DataFrame:
        """Call ``arun`` from code that is not async: a script, or a notebook cell."""
        return run_sync(self.arun(on_progress=on_progress, progress=progress))

    async def arun(
        self, *, on_progress: Callable[[Progress], object] | None = None, progress: bool = True
    ) -> pd.DataFrame:
        """Play the samples that are left, and return all results as ``frame`` does.

        Cancel it to stop: the samples played so far are kept, and the next call continues.

        Args:
            on_progress: called after each sample; may be async.
            progress: whether to show a line of progress, as while a simulation runs.

        Raises:
            ConfigError: there is no model, or this experiment is running already.
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
                "sample", number=len(self.played) + 1, last=len(schedule), enabled=progress
            ) as advance:
                await self._play_rest(schedule, self.llm_client, on_progress, advance)
        finally:
            self._running = False
        return self.frame

    async def _play_rest(
        self,
        schedule: Sequence[Sample],
        client: LLMClient,
        on_progress: Callable[[Progress], object] | None,
        advance: Callable[[], object],
    ) -> None:
        """Play what is left of a schedule, and record on the tape how that ended."""
        session = self._begin()
        recorder = None if session is None else session.recorder
        outcome = "interrupted"
        try:
            if session is not None:
                await session.before_turn(client)
            for sample in schedule[len(self.played) :]:
                try:
                    turn = await self._play(sample, recorder, client=client)
                except BaseException as error:  # a cancellation too: its answers are kept
                    if session is not None:
                        session.failed(error)
                    raise
                if session is not None:
                    turn = session.done(turn, {})  # as a load from the tape would return it
                self.played.append((sample, turn))
                advance()
                if on_progress is not None:
                    progress = Progress(
                        done=len(self.played),
                        total=len(schedule),
                        failed=sum(not came_off(*result) for result in self.played),
                        latest=sample,
                        seconds=turn.seconds,
                    )
                    if isawaitable(returned := on_progress(progress)):
                        await returned
            outcome = "done"
        except Exception as error:
            outcome = f"failed: {error}"
            raise
        finally:
            if session is not None:
                try:
                    session.ended(outcome)
                finally:
                    session.close()

    def _begin(self) -> Recording | None:
        tape = self.tape
        if tape is None:
            log_event(logger, logging.WARNING, "experiment_not_recorded", why=self.storage)
            return None
        if self.run_id is None:
            settings = {name: getattr(self, name) for name in _keeping.SETTINGS}
            settings |= {"variants": _keeping.entries_of(self.variants), "turns": list(self.turns)}
            session = _keeping.begin(self.simulation, tape, settings=settings, config=self.config)
            self.run_id = session.run
            return session
        return Recording(type(self.simulation), tape, self.run_id)

    async def _play(self, sample: Sample, recorder: Recorder | None, *, client: LLMClient) -> Turn:
        config = self.config.model_copy(update={"seed": sample.seed})
        # A client of its own, since the seed is a setting of the client; the backend is shared.
        asked = client.with_config(config)
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
            llm_client: a model, to continue an experiment that was stopped.

        Raises:
            TapeError: there is no such experiment, or the tape is damaged.
        """
        tape = tape if isinstance(tape, Tape) else Tape(tape, read_only=True)
        info = _keeping.experiment_on(tape, run)
        variants, settings = _keeping.variants_of(info), _keeping.recorded_settings(info)
        simulation = load(tape, info.parent)
        experiment = cls(
            simulation,
            variants=variants,
            llm_client=llm_client,
            temperature=_keeping.recorded_config(info).temperature,
            **settings,
        )
        if llm_client is None:
            # The experiment may have been asked with other settings than its run.
            experiment.config = _keeping.recorded_config(info)
        experiment.run_id = info.id
        experiment.played = _keeping.played_on(simulation, tape, info.id, experiment.schedule)
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
        silent = LLMClient(self.config, NoModel())
        self.played = run_sync(
            _keeping.replayed(
                self.simulation,
                tape,
                self.run_id,
                self.played,
                play=partial(self._play, client=silent),
            )
        )
        return self.frame

    def sample(self, variant: str, turn: int, sample: int = 1) -> Simulation:
        """Return the run up to a sample, with the sample as its last turn: to look at, not to play.

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
        """All results so far, one row a decision of the component; failed samples have rows too.

        Columns: ``variant``, ``turn``, ``sample``, ``seed``; ``agent``, who decided, or whose
        action was judged; ``decision``, ``reasoning``, ``confidence``; ``status``, ``failed`` where
        the model gave no usable answer; ``accepted``, whether the validator accepted the action,
        None where it was not asked; ``rate_before``, ``interest_rate``, percent per year, and
        ``move``, percentage points, of the turn as a whole; ``calls``, ``tokens``, ``seconds`` of
        that agent's part of the turn, retries included; ``completed``, whether the sample was
        played to its end; ``detail``, what went wrong.
        """
        return samples_frame(self.bench, self.played)

    def __repr__(self) -> str:
        names = " / ".join(self.variants)
        done, total = len(self.played), len(self.schedule)
        return (
            f"<PromptExperiment on {self.component} of {self.source}: {names}, {done} of {total} "
            "samples played>"
        )

    # --- statistics --------------------------------------------------------------------------

    @property
    def differences(self) -> list[Difference]:
        """How each variant differs from the first, by outcome."""
        return list(self._statistics()[0])

    @property
    def noise(self) -> list[Noise]:
        """Each variant's noise floor, by outcome."""
        return list(self._statistics()[1])

    def _statistics(self) -> tuple[list[Difference], list[Noise]]:
        # Tables, sentences and charts each ask, and the answer takes some 60 ms.
        frame, known = self.frame, self._known
        if known is None or not known[0].equals(frame):  # new samples change the frame
            found = [d for name in self.outcomes for d in differences(frame, name, self.names)]
            floors = [n for name in self.outcomes for n in noise(frame, name, self.names)]
            self._known = known = frame, found, floors
        return known[1:]

    @property
    def summary(self) -> pd.DataFrame:
        """One row an outcome and variant: the difference from the first, and the noise floor.

        Columns: those of ``Difference``, and ``noise_floor``, the larger of the two variants' or
        None where one is not known. The floor is about two single samples, the estimate about a
        mean.
        """
        import pandas as pd

        floors = {(n.outcome, n.variant): n.floor for n in self.noise}
        rows = []
        for difference in self.differences:
            names = (difference.reference, difference.variant)
            known = [floors[difference.outcome, name] for name in names]
            floor = max((value for value in known if value is not None), default=None)
            rows.append(asdict(difference) | {"noise_floor": None if None in known else floor})
        order = ["outcome", "variant", "reference", "estimate", "low", "high", "noise_floor"]
        frame = pd.DataFrame(rows)
        return frame[[*order, *(name for name in frame.columns if name not in order)]]

    @property
    def noise_frame(self) -> pd.DataFrame:
        """The noise floors, one row an outcome and variant; ``Noise`` names the columns."""
        import pandas as pd

        return pd.DataFrame([asdict(item) for item in self.noise])

    @property
    def directions(self) -> pd.DataFrame:
        """Each variant's shares of raising, holding and lowering the rate."""
        return directions(self.frame, self.names)

    @property
    def agreement(self) -> pd.DataFrame:
        """How often samples agree: between variants, of one seed or two, and within each."""
        return agreement(self.frame, self.names)

    @property
    def answers(self) -> pd.DataFrame:
        """Each variant's commonest answers."""
        return common_answers(self.frame)

    @property
    def verdicts(self) -> list[str]:
        """Each difference in words: interval and p-value, how many pairs, noise floors."""
        floors = {(n.outcome, n.variant): n for n in self.noise}
        return [
            verdict(d, floors[d.outcome, d.reference], floors[d.outcome, d.variant])
            for d in self.differences
        ]


def plan_of(bench: Bench, samples: Iterable[Sample], *, done: int, storage: str = "") -> Plan:
    """Return an estimate of what samples cost, based on the run's own recorded calls.

    It is, per component, the mean tokens and seconds of the run's calls (first and second attempts
    together) times the number of calls, which are counted as if every action were accepted.
    """
    samples = list(samples)
    recorded = {
        stage: [
            chain.call
            for chain in bench.simulation.chains
            if chain.component == stage and chain.call is not None
        ]
        for stage in _STAGES
    }
    counts = dict.fromkeys(_STAGES, 0)
    for turn, times in Counter(sample.turn for sample in samples).items():
        for stage, calls in calls_of(bench, turn).items():
            counts[stage] += calls * times
    needed = [stage for stage in _STAGES if counts[stage]]
    tokens = seconds = None
    if all(recorded[stage] for stage in needed):
        tokens = sum(counts[s] * fmean(c.tokens for c in recorded[s]) for s in needed) or None
        seconds = sum(counts[s] * fmean(c.seconds for c in recorded[s]) for s in needed)
    used = [call for stage in needed for call in recorded[stage]]
    return Plan(
        samples=len(samples),
        done=done,
        calls=sum(counts.values()),
        tokens=tokens,
        seconds=seconds,
        recorded_calls=len(used),
        model=", ".join(dict.fromkeys(call.request.model for call in used)),
        storage=storage,
    )


def calls_of(bench: Bench, turn: int) -> dict[Stage, int]:
    """Return how many calls a sample of a turn makes at most, by component."""
    subjects = len(bench.subjects(turn))
    counts: dict[Stage, int] = dict.fromkeys(_STAGES, 0)
    counts[bench.stage] = subjects
    if bench.only_component:
        return counts
    if bench.stage == "agent" and hasattr(bench.simulation.validator, "llm_client"):
        counts["validator"] = subjects
    if bench.stage != "engine":
        actions = bench.turn(turn).actions
        played = set(bench.subjects(turn))
        # No model is asked about an action that states its size. Agents that are not under test
        # keep their recorded marks; the others' actions may be accepted.
        counts["engine"] = sum(
            action.proposed_rate is None
            and action.rate_change_bp is None
            and (action.agent_name in played or action.validated)
            for action in actions
        )
    return counts


def _rounded(count: float) -> int:
    """Return a count to two significant figures; an estimate has no more."""
    return int(float(f"{count:.1e}")) if count >= 100 else round(count)


def duration(seconds: float) -> str:
    """Return a time for people: 42 s, 7 min, 2.5 h."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    if seconds < 5_940:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.1f} h"
