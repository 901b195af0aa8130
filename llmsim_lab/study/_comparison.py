"""Recorded situations asked again: with another prompt or model, the same seeds, n samples each."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from inspect import isawaitable
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.html import safe, table
from llmsim_lab._util.text import log_event
from llmsim_lab._util.waiting import run_sync
from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.llm import LLMClient, LLMConfig, Tape
from llmsim_lab.llm._choose import Choice
from llmsim_lab.run import Run, load
from llmsim_lab.run._progress import progress_line
from llmsim_lab.run._run import AnyRun, NoModel
from llmsim_lab.run._session import Recording, Session
from llmsim_lab.simulation import Simulation
from llmsim_lab.study import _keeping
from llmsim_lab.study._bench import (
    Bench,
    Sample,
    Turn,
    Variant,
    check_name,
    check_rendering,
    config_of,
    run_on,
    seed_of,
    source_of,
    turns_of,
    variants_of,
)
from llmsim_lab.study._results import (
    Noise,
    agreement,
    came_off,
    common_answers,
    directions,
    effects_of,
    exact_effects,
    noise,
    outcomes_of,
    samples_frame,
    verdict,
)
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
        work = f"{self.samples} samples to play{already}: {self.calls} model calls"
        if not self.samples:
            return f"Nothing left to play{already}."
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


class Comparison:
    """Recorded turns of a run asked again with another prompt or model, in any world.

    All variants get the same recorded states with the same seeds: sample k at a turn has one seed
    for all of them. What was asked before the component in a turn, and of others beside it, is
    answered from the recording; the component and what follows are asked. Where the model itself is
    varied, the whole turn is. The other variants are compared with the first. Turns of one run
    depend on each other: what is found speaks of these situations, and not of new ones.

    On the run's own tape it is recorded sample by sample and continues where it stopped; without a
    tape, or on one that is read-only, the results are in memory only, which ``plan()`` says. A
    model that uses tools uses them again.

    Args:
        source: a run, a tape, or a tape's file, which is opened for reading only.
        run: for a tape, the run's number; needed where the tape holds several.
        prompt: prompts by name: a ``Prompt``, a text, a function of the prompt's text, or None for
            the prompt as the run used it, with which one alone is compared. Where the component has
            no template of its own, a function gets the message that the model would.
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
        run: int | None = None,
        *,
        prompt: Mapping[str, Variant] | None = None,
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
            self.simulation: AnyRun = source
        else:
            tape = source if isinstance(source, Tape) else Tape(source, read_only=True)
            self.simulation = load(tape, run_on(tape, run))
        self.bench = Bench(self.simulation, component, only_component=only_component)
        if (prompt is None) == (model is None):
            raise ConfigError(
                "give prompts or models to compare, one of both: "
                "prompt={'hawk': lambda text: text + 'You are an inflation hawk.'}, or "
                "model={'larger': connect('ollama:...')}"
            )
        self.variants: dict[str, Variant] = (
            _models_of(model) if model is not None else variants_of(prompt, self.bench)
        )
        self.turns = turns_of(turns, self.bench)
        self.samples = whole_number("samples", samples, least=1)
        self._outcomes = outcomes_of(self.bench, outcome)
        client = llm_client or self.simulation.llm_client
        self.config = config_of(self.simulation, client, temperature)
        self._temperature = temperature
        self.seed = seed_of(seed, self.config)
        self.by_replicate = self.config.seed is None
        self.llm_client = None if _keeping.has_no_model(client) else client
        check_rendering(self.variants, self.turns, self.bench)
        self.played: list[tuple[Sample, Turn]] = []
        self.run_id: int | None = None
        self._chances: dict[Sample, Mapping[str, Choice[Any]]] = {}
        self._loaded = 0
        self._running = False
        self._shown: tuple[list[tuple[Sample, Turn]], int, pd.DataFrame] | None = None
        self._known: tuple[pd.DataFrame, list[Effect], list[Noise]] | None = None

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
    def outcomes(self) -> list[str]:
        """The numbers that are compared: only what depends on the components that are asked."""
        return list(self._outcomes)

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
        whole = any(isinstance(variant, LLMClient) for variant in self.variants.values())
        done = len(self.played)
        return plan_of(self.bench, left, done=done, storage=self.storage, whole=whole)

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
        if self._running:
            raise ConfigError("this comparison is running; wait for it, or cancel it")
        self._running = True
        schedule = self.schedule
        try:
            async with progress_line(
                "sample", number=len(self.played) + 1, last=len(schedule), enabled=progress
            ) as advance:
                await self._play_rest(schedule, on_progress, advance)
        finally:
            self._running = False
        return self.frame

    async def _play_rest(
        self,
        schedule: Sequence[Sample],
        on_progress: Callable[[Progress], object] | None,
        advance: Callable[[], object],
    ) -> None:
        """Play what is left of a schedule, and record on the tape how that ended."""
        session = self._begin()
        outcome = "interrupted"
        try:
            if session is not None:
                models = {n: v for n, v in self.variants.items() if isinstance(v, LLMClient)}
                unchanged = len(models) < len(self.variants)
                await session.before_turn(self.llm_client if unchanged else None, models)
            for sample in schedule[len(self.played) :]:
                try:
                    turn = await self._play(sample, session)
                except BaseException as error:  # a cancellation too: its answers are kept
                    if session is not None:
                        session.failed(error)
                    raise
                self.played.append((sample, turn))
                advance()
                if on_progress is not None:
                    progress = Progress(
                        done=len(self.played),
                        total=len(schedule),
                        failed=sum(not came_off(self.bench, *result) for result in self.played),
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
            log_event(logger, logging.WARNING, "comparison_not_recorded", why=self.storage)
            return None
        if self.run_id is None:
            settings = {name: getattr(self, name) for name in _keeping.SETTINGS}
            settings |= {"variants": _keeping.entries_of(self.variants), "turns": list(self.turns)}
            settings["by_replicate"] = self.by_replicate
            settings["outcomes"] = [name for name, of in self._outcomes.items() if of is None]
            settings["models"] = {
                name: self._config_of(variant).model_dump(mode="json")
                for name, variant in self.variants.items()
                if isinstance(variant, LLMClient)
            }
            session = _keeping.begin(self.simulation, tape, settings=settings, config=self.config)
            self.run_id = session.run
            return session
        return Recording(type(self.simulation), tape, self.run_id)

    def _client_of(self, variant: Variant) -> LLMClient | None:
        return variant if isinstance(variant, LLMClient) else self.llm_client

    def _config_of(self, variant: Variant) -> LLMConfig:
        if not isinstance(variant, LLMClient):
            return self.config
        return config_of(self.simulation, variant, self._temperature)

    async def _play(
        self, sample: Sample, session: Session | None, *, silent: LLMClient | None = None
    ) -> Turn:
        variant = self.variants[sample.variant]
        client = silent or self._client_of(variant)
        assert client is not None
        # A client of its own, since the seed is a setting of the client; the backend is shared.
        asked = client.with_config(self._config_of(variant))
        turn, self._chances[sample] = await self.bench.play(
            sample, variant, asked, session, by_replicate=self.by_replicate
        )
        return turn

    @classmethod
    def load(
        cls,
        tape: Tape | str | Path,
        run: int | None = None,
        *,
        prompt: Mapping[str, Variant] | None = None,
        model: Mapping[str, LLMClient] | None = None,
        llm_client: LLMClient | None = None,
        outcome: str | Sequence[str] | Callable[[Any], float] | None = None,
    ) -> Comparison:
        """Return a recorded comparison with its results; nothing is asked.

        Args:
            tape: the tape, or its file, which is opened for reading only.
            run: the comparison's number; the latest if not given.
            prompt: its functions of a text by name, which no tape holds.
            model: its models by name, to continue a comparison of models that was stopped.
            llm_client: a model, to continue a comparison that was stopped.
            outcome: what is compared; as recorded if not given.

        Raises:
            TapeError: there is no such comparison, or the tape is damaged.
        """
        tape = tape if isinstance(tape, Tape) else Tape(tape, read_only=True)
        info = _keeping.experiment_on(tape, run)
        settings = _keeping.recorded_settings(info)
        variants = _keeping.variants_on(info, {**(prompt or {}), **(model or {})})
        extra = info.manifest["experiment"]
        simulation = load(tape, info.parent)
        recorded = _keeping.recorded_config(info)
        varied: dict[str, Any] = {"model" if extra.get("models") else "prompt": variants}
        found = cls(
            simulation,
            **varied,
            llm_client=llm_client,
            temperature=recorded.temperature,
            outcome=extra.get("outcomes") or None if outcome is None else outcome,
            **settings,
        )
        if llm_client is None:
            # The comparison may have been asked with other settings than its run.
            found.config = recorded
        found.by_replicate = bool(extra.get("by_replicate"))
        found.run_id = info.id
        found.played = _keeping.played_on(simulation, tape, info.id, found.schedule)
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
        silent = LLMClient(self.config, NoModel())
        self.played = run_sync(
            _keeping.replayed(
                self.simulation,
                tape,
                self.run_id,
                self.played,
                play=partial(self._play, silent=silent),
            )
        )
        return self.frame

    def sample(self, variant: str, turn: int, sample: int = 1) -> AnyRun:
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
                last = replace(played, number=turn)
                return self.bench.view(turn, last, self.variants[variant])
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
        the model gave no usable answer; of the economic world ``accepted``, whether the validator
        accepted the action, None where it was not asked; the outcomes of the turn as a whole, of
        the first one also ``before`` it and its ``move``; ``calls``, ``tokens``, ``seconds`` of
        that agent's part of the turn, retries included; ``completed``, whether the sample was
        played to its end; ``detail``, what went wrong.
        """
        shown = self._shown
        if shown is None or shown[0] is not self.played or shown[1] != len(self.played):
            made = samples_frame(self.bench, self.played, self._outcomes)
            self._shown = shown = self.played, len(self.played), made
        return shown[2].copy()

    def __repr__(self) -> str:
        names = " / ".join(self.variants)
        done, total = len(self.played), len(self.schedule)
        return (
            f"<Comparison on {self.component} of {self.source}: {names}, {done} of {total} "
            "samples played>"
        )

    def _repr_html_(self) -> str:
        rows = [
            (effect.contrast, effect.outcome, str(effect), effect.speaks_of, effect.note)
            for effect in self.effects
        ]
        header = ("contrast", "outcome", "effect", "speaks of", "note")
        return str(table(header, rows, caption=safe(repr(self))))

    # --- statistics --------------------------------------------------------------------------

    @property
    def effects(self) -> list[Effect]:
        """How each variant differs from the first, by outcome and in what was answered.

        All are one family: ``p_family`` is adjusted for all of them. The unit is the situation, a
        recorded state; what is found speaks of these.
        """
        return list(self._statistics()[0])

    @property
    def exact(self) -> list[Effect]:
        """The same where answers were taken from their probabilities, as with ``decide=``.

        There the contrast at these situations is known exactly, of numbers the difference of their
        means. Of a loaded comparison the probabilities are known once it was replayed.
        """
        return exact_effects(self._chances, self.names)

    @property
    def noise(self) -> list[Noise]:
        """Each variant's noise floor, by outcome."""
        return list(self._statistics()[1])

    def _statistics(self) -> tuple[list[Effect], list[Noise]]:
        # Tables, sentences and charts each ask, and the answer takes some 60 ms.
        frame, known = self.frame, self._known
        if known is None or not known[0].equals(frame):  # new samples change the frame
            names = self.outcomes
            economic = isinstance(self.simulation, Simulation)
            limits = getattr(self.simulation.engine, "limits", None) if economic else None
            grid = getattr(limits, "step", None)
            found = effects_of(frame, names, self.names, grid=grid)
            floors = [n for name in names for n in noise(frame, name, self.names)]
            self._known = known = frame, found, floors
        return known[1:]

    @property
    def summary(self) -> pd.DataFrame:
        """One row an outcome and variant: the difference from the first, and the noise floor.

        Columns: ``variant`` and ``reference``; those of ``Effect``; ``noise_floor``, the larger of
        the two variants' or None where one is not known, which is about two single samples, while
        the estimate is about a mean; ``pairs`` of samples that were used, and ``failed``.
        """
        import pandas as pd

        floors = {(n.outcome, n.variant): n.floor for n in self.noise}
        counts = self._pairs()
        rows = []
        for effect in self.effects:
            reference, variant = self.names[0], self._variant_of(effect)
            known = [floors.get((effect.outcome, name)) for name in (reference, variant)]
            floor = max((value for value in known if value is not None), default=None)
            pairs, failed = counts[variant]
            rows.append(
                asdict(effect)
                | {"variant": variant, "reference": reference, "pairs": pairs, "failed": failed}
                | {"noise_floor": None if None in known else floor}
            )
        order = ["outcome", "variant", "reference", "estimate", "low", "high", "noise_floor"]
        order += ["p", "p_family", "pairs", "failed"]
        frame = pd.DataFrame(rows)
        return frame[[*order, *(name for name in frame.columns if name not in order)]]

    def _variant_of(self, effect: Effect) -> str:
        return next(n for n in self.names if effect.contrast == f"{n} \u2212 {self.names[0]}")

    def _pairs(self) -> dict[str, tuple[int, int]]:
        """Return by variant how many pairs with the first were played whole, and how many not."""
        came = {
            (sample.variant, sample.turn, sample.sample): came_off(self.bench, sample, turn)
            for sample, turn in self.played
        }
        counts = {}
        for name in self.names[1:]:
            both = [
                whole and came[name, turn, sample]
                for (variant, turn, sample), whole in came.items()
                if variant == self.names[0] and (name, turn, sample) in came
            ]
            counts[name] = sum(both), len(both) - sum(both)
        return counts

    @property
    def noise_frame(self) -> pd.DataFrame:
        """The noise floors, one row an outcome and variant; ``Noise`` names the columns."""
        import pandas as pd

        return pd.DataFrame([asdict(item) for item in self.noise])

    @property
    def directions(self) -> pd.DataFrame:
        """Each variant's shares of raising, holding and lowering the first outcome."""
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
        """Each effect in words: interval and p-values, how many pairs, noise floors."""
        floors = {(n.outcome, n.variant): n.floor for n in self.noise}
        counts, found = self._pairs(), []
        for effect in self.effects:
            variant = self._variant_of(effect)
            known = [floors.get((effect.outcome, name)) for name in (self.names[0], variant)]
            pairs, failed = counts[variant]
            found.append(verdict(effect, known, pairs=pairs, failed=failed))
        return found


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
        check_name(name)
        if client is not None and not isinstance(client, LLMClient):
            raise ConfigError(
                f"model {name!r} is {client!r:.60}, not a client; connect('auto') is one"
            )
    return {"as it was": None, **models} if len(models) == 1 else dict(models)


def plan_of(
    bench: Bench, samples: Iterable[Sample], *, done: int, storage: str = "", whole: bool = False
) -> Plan:
    """Return an estimate of what samples cost, based on the run's own recorded calls.

    It is, per component, the mean tokens and seconds of the run's calls (first and second attempts
    together) times the number of calls that the recorded turns made.
    """
    samples = list(samples)
    recorded: dict[str, list[CallRecord]] = {}
    for call in bench.simulation.calls:
        recorded.setdefault(call.request.site.component if call.request.site else "", []).append(
            call
        )
    counts: Counter[str] = Counter()
    for turn, times in Counter(sample.turn for sample in samples).items():
        for stage, calls in bench.calls_of(turn, whole=whole).items():
            counts[stage] += calls * times
    needed = [stage for stage in counts if counts[stage]]
    used = [call for stage in needed for call in recorded[stage]]
    tokens = sum(counts[s] * fmean(c.tokens for c in recorded[s]) for s in needed) or None
    return Plan(
        samples=len(samples),
        done=done,
        calls=counts.total(),
        tokens=tokens if needed else None,
        seconds=sum(counts[s] * fmean(c.seconds for c in recorded[s]) for s in needed),
        recorded_calls=len(used),
        model=", ".join(dict.fromkeys(call.request.model for call in used)),
        storage=storage,
    )


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
