"""Recorded situations asked again: with another prompt or model, the same seeds, n samples each."""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from inspect import isawaitable
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.tables import frame_of
from llmsim_lab._util.text import duration, log_event, roughly
from llmsim_lab._util.waiting import run_sync
from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.llm import LLMClient, LLMConfig, Tape
from llmsim_lab.llm._choose import Choice
from llmsim_lab.run import Run, load
from llmsim_lab.run._progress import progress_line
from llmsim_lab.run._run import AnyRun, NoModel
from llmsim_lab.run._session import Recording, Session
from llmsim_lab.study import _bench, _keeping, _results
from llmsim_lab.study._bench import Bench, Sample, Turn, Variant, Wordings
from llmsim_lab.study._playing import one_at_a_time
from llmsim_lab.study._study import Effects
from llmsim_lab.types import CallRecord

if TYPE_CHECKING:
    import pandas as pd

    from llmsim_lab.study._statistics import Effect

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many samples are left to play, and an estimate of their cost.

    Attributes:
        samples: how many are to be played.
        done: how many were played before.
        calls: model calls, retries not counted; as many as the recorded turns made.
        tokens: prompt and reply tokens; None where the run recorded none.
        seconds: time in the model.
        recorded_calls: how many recorded calls the estimate is based on.
        model: the model that answered those.
        storage: where the results will be kept, in words.
    """

    samples: int
    done: int
    calls: int
    tokens: float | None
    seconds: float
    recorded_calls: int
    model: str
    storage: str = ""

    def __str__(self) -> str:
        already = f" ({self.done} done already)" if self.done else ""
        if not self.samples:
            return f"Nothing left to play{already}."
        tokens = f"{roughly(self.tokens):,} tokens and " if self.tokens is not None else ""
        return (
            f"{self.samples} samples to play{already}: {self.calls} model calls, about {tokens}"
            f"{duration(self.seconds)}. An estimate: the mean of this run's {self.recorded_calls} "
            f"recorded calls ({self.model}), retries extra. {self.storage}"
        ).rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a comparison is.

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


@dataclass(slots=True, kw_only=True)
class _Part:
    """One of the runs whose turns are asked again.

    Attributes:
        run: its number where there are several.
        run_id: of the comparison's samples on the tape, once it is on it.
    """

    run: int | None
    bench: Bench
    variants: dict[str, Variant]
    turns: tuple[int, ...]
    config: LLMConfig
    run_id: int | None = None


class Comparison:
    """Recorded turns of a run asked again with another prompt or model, in any world.

    All variants get the same recorded states with the same seeds: sample k at a turn has one seed
    for all of them. What was asked before the component in a turn, and of others beside it, is
    answered from the recording; the component and what follows are asked. Where the model itself is
    varied, the whole turn is. The other variants are compared with the first. Turns of one run
    depend on each other: what is found speaks of these situations, and not of new ones, which takes
    several runs. It speaks of new wordings of a prompt where there are several, else of this one.

    On the run's own tape it is recorded sample by sample and continues where it stopped; without a
    tape, or on one that is read-only, the results are in memory only, which ``plan()`` says. A
    model that uses tools uses them again.

    Args:
        source: a run, a tape, or a tape's file, which is opened for reading only.
        run: for a tape, the run's number; needed where the tape holds several. Of several runs with
            seeds of their own, ``[1, 2, 3]`` or "all", each turn is a situation.
        prompt: prompts by name: a ``Prompt``, a text, a function of the prompt's text, or None for
            the prompt as the run used it, with which one alone is compared. Where the component has
            no template of its own, a function gets the message that the model would. A sequence or
            a mapping of such, ``{"hawk": [one, other, third]}``, are wordings of one idea, each
            with seeds of its own.
        model: clients by name, instead of prompts; None is the run's own, or ``llm_client``.
        component: who is asked otherwise, as ``run.decisions()`` names it: ``agent``,
            ``agent:NAME``, ``engine``, ``player``, ...; ``agent``, or else the first one asked.
        turns: the turns to play again; if not given, all in which the component was asked.
        samples: of each variant at each turn.
        llm_client: the model; the run's own if not given.
        seed: the samples' seeds follow it; the client's if not given, else 0. If the run's client
            has a seed, a sample's calls all have the sample's; else each has one that follows from
            it, as a run's replicates have.
        temperature: of the model; as recorded if not given.
        only_component: whether to ask the component alone: cheaper, but without what the turn leads
            to.
        shared_seeds: whether sample k has the seed ``seed + k`` at every turn; if not, each turn
            has seeds of its own. Shared seeds make samples of different turns alike, so that the
            same number of samples says less; the intervals take that into account.
        outcome: what is compared: columns of ``run.to_frame()``, or a function of the turn; of the
            economic world rate, confidence and acceptance if not given, of others the first three
            columns. ``answers``, what was said, is compared in any case.

    Raises:
        ConfigError: a variant's slots are not the component's, an argument is wrong, or the tape
            holds several runs and none is named; the message lists them.
    """

    def __init__(
        self,
        source: Run | Tape | str | Path,
        run: int | Literal["all"] | Sequence[int] | None = None,
        *,
        prompt: Mapping[str, Wordings] | None = None,
        model: Mapping[str, LLMClient | None] | None = None,
        component: str = "",
        turns: Sequence[int] | None = None,
        samples: int = 5,
        llm_client: LLMClient | None = None,
        seed: int | None = None,
        temperature: float | None = None,
        only_component: bool = False,
        shared_seeds: bool = False,
        outcome: str | Sequence[str] | Callable[[Any], float] | None = None,
    ) -> None:
        self.shared_seeds = shared_seeds
        if isinstance(source, Run):
            if run is not None:
                raise ConfigError(f"run={run} is for a tape; a simulation is one run already")
            simulations: list[AnyRun] = [source]
        else:
            tape = source if isinstance(source, Tape) else Tape(source, read_only=True)
            chosen = _bench.runs_on(tape, run)
            for each in chosen:
                _keeping.check_is_run(tape.run(each))
            simulations = [load(tape, each) for each in chosen]
            _bench.check_independent(simulations)
        self.simulation = simulations[0]
        self.bench = Bench(self.simulation, component, only_component=only_component)
        self.component, self.only_component = self.bench.component, only_component
        if (prompt is None) == (model is None):
            raise ConfigError(
                "give prompts or models to compare, one of both: "
                "prompt={'hawk': lambda text: text + 'You are an inflation hawk.'}, or "
                "model={'larger': connect('ollama:...')}"
            )
        models = None if model is None else _models_of(model)
        of_models = {name: {name: None} for name in models or ()}
        arms = _bench.wordings_of(prompt) if models is None else of_models
        self.arms = {arm: list(wordings) for arm, wordings in arms.items()}
        self.samples = whole_number("samples", samples, least=1)
        self._outcomes = _results.outcomes_of(self.bench, outcome)
        client = llm_client or self.simulation.llm_client
        self._temperature = temperature
        self._parts: dict[int | None, _Part] = {}
        for simulation in simulations:
            bench = self.bench
            number = simulation.run_id if len(simulations) > 1 else None
            try:
                if simulation is not self.simulation:
                    bench = Bench(simulation, bench.component, only_component=only_component)
                self._parts[number] = part = _Part(
                    run=number,
                    bench=bench,
                    variants=dict(models)
                    if models is not None
                    else _bench.variants_of(arms, bench),
                    turns=_bench.turns_of(turns, bench),
                    config=_bench.config_of(simulation, client, temperature),
                )
                _bench.check_rendering(part.variants, part.turns, bench)
            except ConfigError as error:
                if number is None:
                    raise
                raise ConfigError(f"in run {number}: {error}") from error
        self.seed = _bench.seed_of(seed, self.config)
        self.by_replicate = self.config.seed is None
        self.llm_client = None if _keeping.has_no_model(client) else client
        self.played: list[tuple[Sample, Turn]] = []
        self._chances: dict[Sample, Mapping[str, Choice[Any]]] = {}
        self._loaded = 0
        self._playing = False
        self._shown: tuple[list[tuple[Sample, Turn]], int, pd.DataFrame] | None = None
        self._known: tuple[list[Effect], list[_results.Noise]] | None = None

    @property
    def _of_models(self) -> bool:
        return any(isinstance(variant, LLMClient) for variant in self.variants.values())

    @property
    def _first(self) -> _Part:
        return next(iter(self._parts.values()))

    @property
    def source(self) -> str:
        """The run whose turns are played again, in words: its number, its name, its tape."""
        first = _bench.source_of(self.simulation)
        runs = [str(number) for number in self._parts]
        return first if len(runs) == 1 else f"runs {', '.join(runs)}, the first of them {first}"

    @property
    def run_id(self) -> int | None:
        """The comparison's own number on the tape; of the first run's samples, if of several."""
        return self._first.run_id

    @property
    def variants(self) -> dict[str, Variant]:
        """What is asked, by name; an arm's wordings have names of their own (``arms``)."""
        return self._first.variants

    @property
    def turns(self) -> tuple[int, ...]:
        """The turns that are played again, in whichever run."""
        return tuple(dict.fromkeys(turn for part in self._parts.values() for turn in part.turns))

    @property
    def config(self) -> LLMConfig:
        """The settings that the model is asked with; of several runs, those of the first."""
        return self._first.config

    @property
    def names(self) -> list[str]:
        """The variants' names; the others are compared with the first."""
        return list(self.arms)

    @property
    def outcomes(self) -> list[str]:
        """The numbers that are compared: only what depends on the components that are asked."""
        return list(self._outcomes)

    @property
    def schedule(self) -> list[Sample]:
        """Every sample in the order of playing: variants in turn, so that a stop leaves pairs.

        One run comes after the other.
        """
        # A seed is used once by each arm: wordings with one seed would seem more alike than new
        # ones are. All samples 1 have seeds below all samples 2, so that more samples extend them.
        lines = [(n, label) for labels in self.arms.values() for n, label in enumerate(labels)]
        widest = max(map(len, self.arms.values()))
        places = sum(len(part.turns) for part in self._parts.values())
        schedule: list[Sample] = []
        before = 0
        for part in self._parts.values():
            draws = product(range(self.samples), enumerate(part.turns, before + 1), lines)
            for number, (sample, (place, turn), (wording, label)) in enumerate(draws, 1):
                draw = sample * widest + wording
                seed = self.seed + (draw + 1 if self.shared_seeds else draw * places + place)
                schedule.append(Sample(number, label, turn, sample + 1, seed, part.run))
            before += len(part.turns)
        return schedule

    @property
    def tape(self) -> Tape | None:
        """The tape that samples are recorded on, if any."""
        tape: Tape | None = self.simulation.tape
        return None if tape is None or tape.read_only else tape

    @property
    def storage(self) -> str:
        """Where the results are kept, in words."""
        loaded = self._loaded if self.run_id is not None else None
        return _keeping.storage_of(self.simulation.tape, loaded, total=len(self.schedule))

    def plan(self) -> Plan:
        """Return what is still to be played, and an estimate of what it takes."""
        left = self.schedule[len(self.played) :]
        parts = [
            (part.bench, [sample for sample in left if sample.run == part.run])
            for part in self._parts.values()
        ]
        return plan_of(parts, done=len(self.played), storage=self.storage, whole=self._of_models)

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
            ConfigError: there is no model, or this comparison is running already.
            LLMFailureException: the server failed; the sample will be played again.
            TapeError: another model answers than the one recorded, or the disk fails.
        """
        for name, variant in self.variants.items():
            if _keeping.has_no_model(self._client_of(variant)):
                raise ConfigError(
                    "a comparison needs a model, and a recorded run has none: "
                    f"Comparison(..., llm_client=connect('auto')), or model={{{name!r}: ...}}"
                )
        begun, total = len(self.played) + 1, len(self.schedule)
        line = progress_line("sample", number=begun, last=total, enabled=progress)
        with one_at_a_time(self, "comparison"):
            async with line as advance:

                async def done(sample: Sample, turn: Turn) -> None:
                    self.played.append((sample, turn))
                    advance()
                    if on_progress is not None:
                        progress = Progress(
                            done=len(self.played),
                            total=total,
                            failed=sum(not self._came_off(*result) for result in self.played),
                            latest=sample,
                            seconds=turn.seconds,
                        )
                        if isawaitable(returned := on_progress(progress)):
                            await returned

                self._begin()
                left = self.schedule[len(self.played) :]
                for part in self._parts.values():
                    if mine := [sample for sample in left if sample.run == part.run]:
                        await self._play_part(part, mine, done)
        return self.frame

    async def _play_part(
        self,
        part: _Part,
        samples: Sequence[Sample],
        done: Callable[[Sample, Turn], Awaitable[None]],
    ) -> None:
        """Play samples of one run, and record on the tape how that ended."""
        if self.tape is None or part.run_id is None:
            await self._play_samples(samples, None, done)
            return
        session = Recording(type(self.simulation), self.tape, part.run_id)
        outcome = "interrupted"
        with closing(session), session.playing():
            try:
                models = {n: v for n, v in self.variants.items() if isinstance(v, LLMClient)}
                unchanged = len(models) < len(self.variants)
                await session.before_turn(self.llm_client if unchanged else None, models)
                await self._play_samples(samples, session, done)
                outcome = "done"
            except Exception as error:
                outcome = f"failed: {error}"
                raise
            finally:
                session.ended(outcome)

    async def _play_samples(
        self,
        samples: Sequence[Sample],
        session: Session | None,
        done: Callable[[Sample, Turn], Awaitable[None]],
    ) -> None:
        for sample in samples:
            try:
                turn = await self._play(sample, session)
            except BaseException as error:  # a cancellation too: its answers are kept
                if session is not None:
                    session.failed(error)
                raise
            await done(sample, turn)

    def _came_off(self, sample: Sample, turn: Turn) -> bool:
        return _results.came_off(self._parts[sample.run].bench, sample, turn)

    def _begin(self) -> None:
        """Put the comparison on the tape, where it is not there yet: an entry below each run."""
        tape = self.tape
        if tape is None:
            log_event(logger, logging.WARNING, "comparison_not_recorded", why=self.storage)
            return
        # No numbers of runs, which differ on a tape that this one is imported to.
        group, total = secrets.token_hex(8), len(self._parts)
        for place, part in enumerate(self._parts.values(), 1):
            if part.run_id is not None:
                continue
            settings = {name: getattr(self, name) for name in _keeping.SETTINGS}
            settings |= {"variants": _keeping.entries_of(part.variants, self.arms)}
            settings |= {"turns": list(part.turns), "by_replicate": self.by_replicate}
            settings |= {"group": group, "part": place, "parts": total} if total > 1 else {}
            settings["outcomes"] = [name for name, of in self._outcomes.items() if of is None]
            settings["models"] = {
                name: self._config_of(part, variant).model_dump(mode="json")
                for name, variant in part.variants.items()
                if isinstance(variant, LLMClient)
            }
            simulation = part.bench.simulation
            part.run_id = _keeping.begin(simulation, tape, settings=settings, config=part.config)
            if total > 1:
                tape.end_run(part.run_id, "interrupted")  # until it is its turn

    def _client_of(self, variant: Variant) -> LLMClient | None:
        return variant if isinstance(variant, LLMClient) else self.llm_client

    def _config_of(self, part: _Part, variant: Variant) -> LLMConfig:
        if not isinstance(variant, LLMClient):
            return part.config
        return _bench.config_of(part.bench.simulation, variant, self._temperature)

    async def _play(
        self, sample: Sample, session: Session | None, *, silent: LLMClient | None = None
    ) -> Turn:
        part = self._parts[sample.run]
        variant = part.variants[sample.variant]
        client = silent or self._client_of(variant)
        assert client is not None
        # A client of its own, since the seed is a setting of the client; the backend is shared.
        asked = client.with_config(self._config_of(part, variant))
        turn, self._chances[sample] = await part.bench.play(
            sample, variant, asked, session, by_replicate=self.by_replicate
        )
        return turn

    @classmethod
    def load(
        cls,
        tape: Tape | str | Path,
        run: int | None = None,
        *,
        prompt: Mapping[str, Wordings] | None = None,
        model: Mapping[str, LLMClient] | None = None,
        llm_client: LLMClient | None = None,
        outcome: str | Sequence[str] | Callable[[Any], float] | None = None,
    ) -> Comparison:
        """Return a recorded comparison with its results; nothing is asked.

        Args:
            tape: the tape, or its file, which is opened for reading only.
            run: the comparison's number; the latest if not given. One that is about several runs
                has a number below each of them, of which any will do.
            prompt: its functions of a text by name, which no tape holds.
            model: its models by name, to continue a comparison of models that was stopped.
            llm_client: a model, to continue a comparison that was stopped.
            outcome: what is compared; as recorded if not given.

        Raises:
            TapeError: there is no such comparison, or the tape is damaged.
        """
        tape = tape if isinstance(tape, Tape) else Tape(tape, read_only=True)
        info = _keeping.comparison_on(tape, run)
        settings = _keeping.recorded_settings(info)
        wordings = _bench.wordings_of(prompt) if prompt else {}
        given = {name: it for arm in wordings.values() for name, it in arm.items()}
        infos = _keeping.parts_of(tape, info)
        each = [_keeping.variants_on(part, {**given, **(model or {})}) for part in infos]
        extra = info.manifest["experiment"]
        recorded = _keeping.recorded_config(info)
        varied: dict[str, Any] = {"model" if extra.get("models") else "prompt": each[0]}
        if len(infos) > 1:
            settings["turns"] = None  # each run has its own, which are put in below
        runs = [part.parent for part in infos if part.parent is not None]
        found = cls(
            tape,
            runs if len(runs) > 1 else info.parent,
            **varied,
            llm_client=llm_client,
            temperature=recorded.temperature,
            outcome=extra.get("outcomes") or None if outcome is None else outcome,
            **settings,
        )
        found.arms = _keeping.arms_on(info)
        found.by_replicate = bool(extra.get("by_replicate"))
        for part, own, variants in zip(found._parts.values(), infos, each, strict=True):
            part.run_id, part.variants = own.id, variants
            part.turns = tuple(_keeping.recorded_settings(own)["turns"])
            if llm_client is None:
                # The comparison may have been asked with other settings than its run.
                part.config = _keeping.recorded_config(own)
        for part in found._parts.values():
            assert part.run_id is not None
            mine = [sample for sample in found.schedule if sample.run == part.run]
            found.played += _keeping.played_on(found.simulation, tape, part.run_id, mine)
        found._loaded = len(found.played)
        return found

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
            raise TapeError("this comparison is on no tape; there is nothing to replay")
        played: list[tuple[Sample, Turn]] = []
        for part in self._parts.values():
            assert part.run_id is not None
            play = partial(self._play, silent=LLMClient(part.config, NoModel()))
            mine = [result for result in self.played if result[0].run == part.run]
            again = _keeping.replayed(self.simulation, tape, part.run_id, mine, play=play)
            played += run_sync(again)
        self.played = played
        return self.frame

    def sample(self, variant: str, turn: int, sample: int = 1, *, run: int | None = None) -> AnyRun:
        """Return the run up to a sample, with the sample as its last turn: to look at, not to play.

        Args:
            variant: the variant's name; of several wordings, that of one.
            turn: the turn that was played again.
            sample: which, from 1.
            run: of which run; the first if not given.

        Raises:
            ConfigError: that sample was not played.
        """
        wanted = (variant, turn, sample, self._first.run if run is None else run)
        for found, played in self.played:
            if (found.variant, found.turn, found.sample, found.run) == wanted:
                part = self._parts[found.run]
                last = replace(played, number=turn)
                return part.bench.view(turn, last, part.variants[variant])
        raise ConfigError(
            f"there is no sample {sample} of {variant!r} at turn {turn}; played are "
            f"{len(self.played)} of {len(self.schedule)}: variants {', '.join(self.variants)}, "
            f"turns {', '.join(map(str, self.turns))}, samples 1 to {self.samples}"
        )

    @property
    def frame(self) -> pd.DataFrame:
        """All results so far, one row a decision of the component; failed samples have rows too.

        Columns: ``variant``; ``wording`` where a variant has several; ``run`` where there are
        several; ``turn``, ``sample``, ``seed``; ``agent``, who decided, or whose
        action was judged; ``decision``, ``reasoning``, ``confidence``; ``status``, ``failed`` where
        the model gave no usable answer; of the economic world ``accepted``, whether the validator
        accepted the action, None where it was not asked; the outcomes of the turn as a whole, of
        the first one also ``before`` it and its ``move``; ``calls``, ``tokens``, ``seconds`` of
        that agent's part of the turn, retries included; ``completed``, whether the sample was
        played to its end; ``detail``, what went wrong.
        """
        shown = self._shown
        if shown is None or shown[0] is not self.played or shown[1] != len(self.played):
            benches = {run: part.bench for run, part in self._parts.items()}
            made = _results.samples_frame(benches, self.played, self._outcomes, self.arms)
            self._shown = shown = self.played, len(self.played), made
            self._known = None
        return shown[2].copy()

    def __repr__(self) -> str:
        names = " / ".join(
            f"{arm} ({len(labels)} wordings)" if len(labels) > 1 else arm
            for arm, labels in self.arms.items()
        )
        done, total = len(self.played), len(self.schedule)
        return (
            f"<Comparison on {self.component} of {self.source}: {names}, {done} of {total} "
            "samples played>"
        )

    def _repr_html_(self) -> str:
        return Effects(self.effects(), label=repr(self))._repr_html_()

    # --- statistics --------------------------------------------------------------------------

    def effects(self) -> Effects:
        """How each variant differs from the first, by outcome and in what was answered.

        All are one family: ``p_family`` is adjusted for all of them. The unit is the situation, a
        recorded state; ``speaks_of`` says whether these or new ones are meant, and which wordings.
        """
        return Effects(self._statistics()[0])

    @property
    def exact(self) -> list[Effect]:
        """The same where answers were taken from their probabilities, as with ``decide=``.

        There the contrast at these situations is known exactly, of numbers the difference of their
        means. Of a loaded comparison the probabilities are known once it was replayed.
        """
        return _results.exact_effects(self._chances, self.arms, only=self._only())

    @property
    def noise(self) -> list[_results.Noise]:
        """Each variant's noise floor, by outcome."""
        return list(self._statistics()[1])

    def _only(self) -> str:
        return "" if self._of_models else _results.these_wordings(self.frame)

    def _statistics(self) -> tuple[list[Effect], list[_results.Noise]]:
        # Tables, sentences and charts each ask, and the answer takes some 60 ms.
        frame = self.frame  # of which nothing is known any more if it is a new one
        if self._known is None:
            names = self.outcomes
            of_prompts = bool(self._only())
            found = _results.effects_of(frame, names, self.names, of_prompts=of_prompts)
            floors = [n for name in names for n in _results.noise(frame, name, self.names)]
            self._known = found, floors
        return self._known

    @property
    def summary(self) -> pd.DataFrame:
        """One row an outcome and variant: the difference from the first, and the noise floor.

        Columns: ``variant`` and ``reference``; those of ``Effect``; ``noise_floor``, the larger of
        the two variants' or None where one is not known, which is about two single samples, while
        the estimate is about a mean; ``pairs`` of samples that were used, and ``failed``.
        """
        rows = [
            asdict(effect)
            | {"variant": variant, "reference": self.names[0], "pairs": pairs, "failed": failed}
            | {"noise_floor": None if None in floors else max(floors, key=lambda it: it or 0)}
            for effect, variant, floors, (pairs, failed) in self._compared()
        ]
        order = ["outcome", "variant", "reference", "estimate", "low", "high", "noise_floor"]
        order += ["p", "p_family", "pairs", "failed"]
        frame = frame_of(rows)
        return frame[[*order, *(name for name in frame.columns if name not in order)]]

    def _compared(self) -> Iterator[tuple[Effect, str, list[float | None], tuple[int, int]]]:
        """Yield each effect with its variant, the noise floors of both, and its pairs."""
        floors = {(n.outcome, n.variant): n.floor for n in self.noise}
        counts, first = self._pairs(), self.names[0]
        for effect in self.effects():
            name = next(n for n in self.names if effect.contrast == f"{n} \u2212 {first}")
            both = [floors.get((effect.outcome, it)) for it in (first, name)]
            yield effect, name, both, counts[name]

    def _pairs(self) -> dict[str, tuple[int, int]]:
        """Return by variant how many pairs with the first were played whole, and how many not.

        Where one has more wordings than the other, a sample of that one is in several pairs.
        """
        came: dict[str, dict[tuple[Any, ...], bool]] = {label: {} for label in self.variants}
        for it, turn in self.played:
            came[it.variant][it.run, it.turn, it.sample] = self._came_off(it, turn)
        counts = {}
        first, *others = self.arms.values()
        for name, mine in zip(self.names[1:], others, strict=True):
            whole = [
                one[place] and other[place]
                for n in range(max(len(first), len(mine)))
                for one, other in [(came[first[n % len(first)]], came[mine[n % len(mine)]])]
                for place in one.keys() & other.keys()
            ]
            counts[name] = sum(whole), len(whole) - sum(whole)
        return counts

    @property
    def noise_frame(self) -> pd.DataFrame:
        """The noise floors, one row an outcome and variant; ``Noise`` names the columns."""
        return frame_of([asdict(item) for item in self.noise])

    @property
    def directions(self) -> pd.DataFrame:
        """Each variant's shares of raising, holding and lowering the first outcome."""
        return _results.directions(self.frame, self.names)

    @property
    def agreement(self) -> pd.DataFrame:
        """How often samples agree: between variants, of one seed or two, and within each."""
        return _results.agreement(self.frame, self.names)

    @property
    def answers(self) -> pd.DataFrame:
        """Each variant's commonest answers."""
        return _results.common_answers(self.frame)

    @property
    def verdicts(self) -> list[str]:
        """Each effect in words: interval and p-values, how many pairs, noise floors."""
        return [
            _results.verdict(effect, floors, pairs=pairs, failed=failed)
            for effect, _, floors, (pairs, failed) in self._compared()
        ]


def _models_of(models: object) -> dict[str, Variant]:
    """Return models as variants; one alone is compared with the run's.

    Raises:
        ConfigError: one is wrong.
    """
    if not isinstance(models, Mapping) or not models:
        raise ConfigError(
            f"model={models!r:.80} must be clients by name: "
            "model={'larger': connect('ollama:...')}"
        )
    for name, client in models.items():
        _bench.check_name(name)
        if client is not None and not isinstance(client, LLMClient):
            raise ConfigError(
                f"model {name!r} is {client!r:.60}, not a client; connect('auto') is one"
            )
    return {"as it was": None, **models} if len(models) == 1 else dict(models)


def plan_of(
    parts: Sequence[tuple[Bench, Sequence[Sample]]],
    *,
    done: int,
    storage: str = "",
    whole: bool = False,
) -> Plan:
    """Return an estimate of what samples of runs cost, based on each run's own recorded calls.

    It is, per component, the mean tokens and seconds of the run's calls (first and second attempts
    together) times the number of calls that the recorded turns made.
    """
    calls, seconds, tokens, used = 0, 0.0, list[float](), list[CallRecord]()
    for bench, samples in parts:
        counts: Counter[str] = Counter()
        for turn, times in Counter(sample.turn for sample in samples).items():
            for stage, number in bench.calls_of(turn, whole=whole).items():
                counts[stage] += number * times
        recorded: dict[str, list[CallRecord]] = {stage: [] for stage in counts}
        for call in bench.simulation.calls:
            if (site := call.request.site) and site.component in recorded:
                recorded[site.component].append(call)
        calls += counts.total()
        seconds += sum(counts[s] * fmean(c.seconds for c in its) for s, its in recorded.items())
        if counts:
            tokens.append(sum(counts[s] * fmean(c.tokens for c in recorded[s]) for s in counts))
        used += [call for its in recorded.values() for call in its]
    return Plan(
        samples=sum(len(samples) for _, samples in parts),
        done=done,
        calls=calls,
        tokens=sum(tokens) if tokens and all(tokens) else None,
        seconds=seconds,
        recorded_calls=len(used),
        model=", ".join(dict.fromkeys(call.request.model for call in used)),
        storage=storage,
    )
