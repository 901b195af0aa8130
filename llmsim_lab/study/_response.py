"""What a shock does to a run: impulse responses, from pairs of forks that differ in nothing else.

A run is played up to the shock and forked twice, once with it and once without. Both forks have the
same seeds, of what is random in the world and of the calls' sampling, so that their difference is
what the shock did. That is repeated with other seeds; the mean over the pairs is the generalised
impulse response (Koop, Pesaran and Potter 1996, "Impulse response analysis in nonlinear
multivariate models", Journal of Econometrics 74), which unlike a linear one may depend on the
shock's size and sign, and on when it comes. Differs from the source: what happened before the shock
follows from the seeds as well, instead of being drawn from data.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmsim_lab._util.checks import real_number, whole_number
from llmsim_lab._util.html import join, pairs, table
from llmsim_lab._util.text import among, closest
from llmsim_lab._util.waiting import gather_all, run_sync
from llmsim_lab.agents import NationAgent, TaylorRuleAgent
from llmsim_lab.economy import TaylorRule, closed_loop
from llmsim_lab.economy._macro import Shocks
from llmsim_lab.engines import EconLLMEngine, EconomicEngine
from llmsim_lab.engines._committee import Committee
from llmsim_lab.errors import ConfigError, EconomyError, LabError, LLMFailureException
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.run import Run
from llmsim_lab.run._config import RunConfig, made_intervention
from llmsim_lab.run._progress import progress_line
from llmsim_lab.run._records import config_of
from llmsim_lab.run._run import CLIENT_SETTINGS, AnyRun, NoModel, _load, belongs_to, copied, resume
from llmsim_lab.run._turn import Series
from llmsim_lab.simulation import Simulation
from llmsim_lab.study._charts import response_chart
from llmsim_lab.study._design import ALL_ALIKE, Models, World, WrongFunctionError, seeds_of
from llmsim_lab.study._playing import one_at_a_time
from llmsim_lab.tape._lines import RunInfo
from llmsim_lab.validators import AlwaysValid

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Curves = dict[str, "pd.DataFrame"]
"""By column: what the shock did in each pair; a row a seed, a column a horizon."""

_SHOCKS = tuple(one.name for one in fields(Shocks))
_BOUND = 1e-9
_OF_A_PAIR = (LLMFailureException, EconomyError)
"""What may go wrong in one pair and not in the next."""
_DUST = 1e-12
"""Differences that are smaller, relative to the response, are rounding."""


def impulse_response(
    subject: Any,
    *,
    shock: Mapping[str, Any],
    at: int = 4,
    horizon: int = 16,
    seeds: int | Iterable[int] = 20,
    columns: str | Sequence[str] | None = None,
    against: Any = None,
    level: float = 0.95,
    parallel: int = 8,
    tape: Tape | str | Path | None = None,
    llm_client: LLMClient | None = None,
    name: str = "",
    play: bool = True,
    progress: bool = True,
    **parameters: Any,
) -> ImpulseResponse:
    """Return what a shock does to a run, turn by turn, with a band over pairs of forks.

    On a tape each pair is a run and two forks of it. The same call continues there: what was played
    is not played again.

    Args:
        subject: a run, whose start, players and parts all pairs have; or a class of runs, a
            configuration, or a function that takes ``seed`` and returns a run.
        shock: in the economy ``{"supply": 1}`` or ``{"demand": -1}``, points. In any world, numbers
            that are added to columns of the state: ``{"coins.Ann": -10}``. Or what ``intervene``
            takes in that world, without the turn: ``{"set": {"coins.Ann": 0}}``,
            ``{"set": {"events": "..."}}``, ``{"post": {...}}``, ``{"ban": "Ann"}``.
        at: the turn whose state has the shock.
        horizon: how many turns after it are played.
        seeds: how many pairs, which have the run's seed and those after it; or the seeds.
        columns: of the run's frame; those that its charts show if not given.
        against: who plays the same seeds for comparison: in the economy a ``TaylorRule`` or a
            function with its arguments; ``"rule"`` for the rule that comes with a world; in a world
            of your own also its ``players``.
        level: of the bands, which hold for all turns of a column at once.
        parallel: how many pairs are played at a time.
        tape: where to record the pairs; that of a run that has one, if not given.
        llm_client: the model, where one is needed and a run does not have it already.
        name: of the runs on the tape. Runs with players or parts that no tape can hold, such as
            functions, are continued there only if they have one.
        play: False returns it unplayed, for ``await response.arun()``.
        progress: whether a line says how far it is, if it takes long.
        parameters: of the class of runs, by the names that ``Study`` varies, or of the function.

    Raises:
        ConfigError: an argument is wrong, or the shock has no place in such a run.

    Example:
        >>> from llmsim_lab.economy import TaylorRule
        >>> from llmsim_lab.simulation import Simulation, SimulationConfig
        >>> config = SimulationConfig(
        ...     nations=[{"name": "Rule", "kind": "taylor", "exact": True}],
        ...     validator={"kind": "always_valid"},
        ... )
        >>> response = impulse_response(
        ...     config, shock={"supply": 1}, horizon=8, seeds=2, against=TaylorRule()
        ... )
        >>> response.frame().query("column == 'interest_rate' and horizon == 1")["mean"].item()
        0.375
    """
    if tape is None and isinstance(subject, Run) and subject.tape and not subject.tape.read_only:
        tape = subject.tape
    if not isinstance(shock, Mapping) or not shock:
        raise ConfigError(
            f"shock={shock!r:.80} must be a dict, such as {{'supply': 1}} or {{'coins.Ann': -10}}"
        )
    response = ImpulseResponse(
        _make=_maker(subject, llm_client, name, parameters),
        _shock=dict(shock),
        at=whole_number("at", at, least=0),
        horizon=whole_number("horizon", horizon, least=1),
        _end=at + horizon,
        _seeds=_seeds(seeds, subject, parameters),
        _columns=[columns] if isinstance(columns, str) else columns,
        _against=against,
        _parallel=whole_number("parallel", parallel, least=1),
        _tape=Tape(tape) if isinstance(tape, str | Path) else tape,
        _named=bool(name),
        _played_by_hand=subject.run_id if isinstance(subject, Run) else None,
        _progress=progress,
        level=real_number("level", level, least=0.5, most=0.999),
    )
    return response.run() if play else response


def _seeds(seeds: Any, subject: Any, parameters: Mapping[str, Any]) -> tuple[int, ...]:
    if isinstance(seeds, Iterable):
        listed: Any = seeds if isinstance(seeds, str) else list(seeds)
        return tuple(seeds_of(listed))
    config = subject if isinstance(subject, RunConfig) else getattr(subject, "config", None)
    first = config.seed if isinstance(config, RunConfig) else parameters.get("seed", 0)
    return tuple(range(first, first + whole_number("seeds", seeds, least=1)))


# --- the runs -------------------------------------------------------------------------------------


def _maker(
    subject: Any, client: LLMClient | None, name: str, parameters: Mapping[str, Any]
) -> Callable[[int], AnyRun]:
    """Return what makes the run of a seed, at its first turn and not recorded."""
    given = {key: value for key, value in parameters.items() if key != "seed"}
    if isinstance(subject, Run | RunConfig) and given:
        raise ConfigError(
            f"{', '.join(given)}: {type(subject).__name__} has its parameters already; give a "
            "class of runs or a function, which take some"
        )
    if isinstance(subject, Run):
        return lambda seed: _again(
            subject, client, {"seed": seed, **({"name": name} if name else {})}
        )
    turns = given.pop("turns", None)
    world, models = World(subject, fixed=given, factors={}, turns=turns), Models(client)

    def made(seed: int) -> AnyRun:
        asked = models.of(world, ALL_ALIKE)
        run = world.run(ALL_ALIKE, seed, asked)
        if name:
            run.config = run.config.model_copy(update={"name": name})
        # A function may make its run without a model, or with another.
        return run if asked in (None, run.llm_client) else _again(run, asked, {})

    return made


def _again(run: AnyRun, client: LLMClient | None, changes: Mapping[str, Any]) -> AnyRun:
    """Return a run like another, from its first state on, with another seed or model."""
    first = run.turns[0]
    # A run from a tape has a stand-in for its model, which answers nothing.
    if client is None and run.llm_client and not isinstance(run.llm_client.backend, NoModel):
        client = run.llm_client
    config = run.config.model_copy(update=dict(changes))
    done = [item for turn in run.turns[1:] for item in turn.interventions]
    done += [one for at, its in run.planned.items() if at > run.turn_number for one in its]
    parts = copied(_own(run), client, {})
    for part in parts.values():  # those of the user's own get the pair's seed
        for one in part if isinstance(part, Sequence) else (part,):
            if isinstance(one, EconomicEngine) and one.shocks is not None:
                one.shocks = replace(one.shocks, seed=config.seed)
            elif isinstance(one, NationAgent):
                one.seed = config.seed
    return type(run).rebuilt(
        # What was done to the first turn is in its state.
        config.model_copy(update={"interventions": tuple(done)}),
        llm_client=client,
        state=_without_chains(first.state),
        prompts={
            place: prompt
            for place, prompt in run.prompts.items()
            if not belongs_to(place, run.given)
        },
        parts=parts,
    )


def _without_chains(state: Any) -> Any:
    chains = getattr(state, "reasoning_chains", ())
    return state.model_copy(update={"reasoning_chains": ()}) if chains else state


def _by_rule(run: AnyRun, against: Any) -> AnyRun:
    """Return the run that is compared with: the same start and seeds, and a rule that decides."""
    if isinstance(run, Simulation) and against != "rule":
        if not (isinstance(against, TaylorRule) or callable(against)):
            raise ConfigError(
                f"against={against!r:.60} is not a policy rule: a TaylorRule(), or a function of "
                "inflation, output_gap and previous_rate"
            )
        config = run.config.by_rules().model_copy(update={"committee": Committee()})
        parts = copied({"engine": run.engine} if "engine" in run.given else {}, None, {})
        limits = getattr(run.engine, "limits", config.engine.limits)
        rule = TaylorRuleAgent(rule=against, limits=limits, exact=True)
        state = _without_chains(run.turns[0].state)
        return Simulation(
            config,
            agents=[rule],
            validator=AlwaysValid(),
            state=state.model_copy(update={"agents": {}}),
            **parts,
        )
    if against == "rule" and hasattr(run.config, "by_rules"):
        config, players = run.config.by_rules(), {}
    elif type(run)._is_own() and (isinstance(against, Mapping) or callable(against)):
        players = dict(against) if isinstance(against, Mapping) else {"*": against}
        config = run.config.model_copy(update={"players": {}})
    else:
        raise ConfigError(
            f"against={against!r:.60} plays no {type(run).__name__}; 'rule' is its own rule, where "
            "it has one, and players={...} may play a world of your own"
        )
    return type(run).rebuilt(
        config,
        llm_client=run.llm_client if players else None,
        state=run.turns[0].state,
        prompts={},
        parts={"players": players} if players else {},
    )


# --- pairs of forks -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Pair:
    """What the shock did in one seed's forks: numbers by column, of so many turns from it on."""

    moved: dict[str, list[float]]
    turns: int
    at_bound: bool


def _interventions(
    run: AnyRun, shock: Mapping[str, Any], at: int, fork_at: int
) -> list[dict[str, Any]]:
    """Return a shock as this world's interventions, with numbers added to what is there."""
    known = _known(run)
    added = {name: by for name, by in shock.items() if name not in known}
    done = {"turn": at} | {name: value for name, value in shock.items() if name in known}
    if "shock" in known:
        hits = {name: added.pop(name) for name in _SHOCKS if name in added}
        if hits:
            done["shock"] = {**done.get("shock", {}), **hits}
    if not added:
        return [done]
    row = run.own_columns(run.turns[fork_at - run.turns[0].number])
    if "set" not in known:
        raise ConfigError(
            f"shock: {next(iter(added))!r} is nothing that can be done in a "
            f"{type(run).__name__}; it takes {', '.join(sorted(known - {'turn', 'note'}))}"
        )
    if at != fork_at:
        raise ConfigError(
            "a shock to the economy's equations and a change of its state are two shocks; give one"
        )
    values: dict[str, Any] = {}
    numbers = [key for key, it in row.items() if isinstance(it, int | float)]
    for name, by in added.items():
        if name not in numbers or isinstance(row[name], bool):
            raise ConfigError(
                f"shock: there is no number {name!r}{closest(name, numbers)} in the state of a "
                f"{type(run).__name__}; there are {', '.join(numbers[:12])}"
            )
        real_number(name, by)
        values[name] = row[name] + by
    done["set"] = {**done.get("set", {}), **values}
    return [done]


def _in_words(run: AnyRun, shock: Mapping[str, Any], at: int) -> str:
    known = _known(run)
    done = {name: value for name, value in shock.items() if name in known}
    added = [
        f"{name}{' shock' if 'shock' in known and name in _SHOCKS else ''} {by:+g}"
        for name, by in shock.items()
        if name not in known
    ]
    if not done:
        return f"turn {at}: {', '.join(added)}"
    return ", ".join([str(made_intervention(run.intervention_type, {"turn": at, **done})), *added])


def _known(run: AnyRun) -> set[str]:
    """Return the names of what an intervention of this world can do."""
    named = run.intervention_type.model_fields.items()
    return {name for key, one in named for name in (key, one.alias) if name}


def _own(run: AnyRun) -> dict[str, Any]:
    """Return the parts of a run that no tape can hold."""
    return {name: getattr(run, name) for name in run.given}


def _run_on(tape: Tape, fresh: AnyRun, fork_at: int, *, besides: int | None) -> RunInfo | None:
    """Return the run on a tape that is the same as a new one, up to the fork.

    One that the user still holds, ``besides``, is not played on behind their back.
    """
    wanted = fresh._new_manifest()
    for info in tape.runs():
        there = info.manifest
        same = (
            info.verb == "run"
            and (info.id != besides or info.turns >= fork_at)
            and all(there.get(key) == wanted[key] for key in ("kind", "given"))
            and _settings(there) == _settings(wanted)
            # What an older tape has no digest of is taken to be the same.
            and {**wanted["code"], **(there.get("code") or {})} == dict(wanted["code"])
        )
        if not same or config_of(info) != fresh.config:
            continue
        recorded = _load(tape, info, fresh.llm_client, _own(fresh))
        done = [
            one for turn in recorded.turns if turn.number <= fork_at for one in turn.interventions
        ]
        upto = min(fork_at, recorded.turn_number)
        reached = [one for one in fresh.config.interventions if one.turn <= upto]
        if recorded.turns[0].state == fresh.turns[0].state and done == reached:
            return info
    return None


def _settings(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a model is asked with, without how patiently."""
    patience = set(CLIENT_SETTINGS) - {"model"}
    return {k: v for k, v in (manifest.get("llm") or {}).items() if k not in patience}


def _fork_on(
    tape: Tape, base: AnyRun, fork_at: int, items: Sequence[Mapping[str, Any]]
) -> AnyRun | None:
    """Return the fork on a tape that has these interventions and no other change."""
    made = [made_intervention(base.intervention_type, item) for item in items]
    now = [one for one in made if one.turn == fork_at]
    place = fork_at - base.turns[0].number
    turn = base.turns[place]
    state, done = base._intervened(turn.state, now), [*turn.interventions, *now]
    planned = [one for at, its in base.planned.items() if at > fork_at for one in its]
    planned += [one for one in made if one.turn > fork_at]
    found = []
    for info in tape.runs():
        if (info.verb, info.parent, info.fork_turn) != ("fork", base.run_id, fork_at):
            continue
        fork = _load(tape, info, base.llm_client, _own(base))
        there = [one for at, its in fork.planned.items() if at > fork_at for one in its]
        there_too = fork.prompts.keys() & base.prompts.keys()
        if (
            fork.turns[place].state == state
            and list(fork.turns[place].interventions) == done
            and there == planned
            and all(fork.prompts[at].digest == base.prompts[at].digest for at in there_too)
        ):
            found.append(fork)
    # An interrupted call may have left several; the one that was played farthest is continued.
    return max(found, key=lambda fork: int(fork.turn_number), default=None)


# --- the economy ----------------------------------------------------------------------------------


def _linear(
    run: AnyRun, shock: Mapping[str, Any], against: Any, horizon: int
) -> dict[str, list[float]]:
    """Return the rule's response by the linear closed loop, where there is one."""
    hits = dict(shock["shock"]) if set(shock) <= {"shock", "note"} and "shock" in shock else shock
    if (
        not isinstance(run, Simulation)
        or not isinstance(run.engine, EconomicEngine)
        or not (isinstance(against, TaylorRule) or callable(against))
        or not set(hits) <= set(_SHOCKS)
    ):
        return {}
    loop = closed_loop(against, model=run.engine.macro)
    response = loop.response(**hits, quarters=horizon + 1)
    # Its quarter 0 is the one before the shock, horizon 0 the one that has it.
    return {name: response[name].tolist()[1:] for name in response.columns}


def _touches_bound(turns: Sequence[Any], run: AnyRun, at: int) -> bool:
    """Return True if the rate was at one of its bounds, where an economy is not linear."""
    if not isinstance(run, Simulation) or not isinstance(run.engine, EconLLMEngine):
        return False
    limits = run.engine.limits
    rules = [agent.rule for agent in run.agents if isinstance(agent, TaylorRuleAgent)]
    own = [rule.lower_bound for rule in rules if isinstance(rule, TaylorRule)]
    lower = max(limits.lower, *own) if own else limits.lower
    rates = [turn.state.global_state.interest_rate for turn in turns if turn.number >= at]
    return any(rate <= lower + _BOUND or rate >= limits.upper - _BOUND for rate in rates)


# --- what came out --------------------------------------------------------------------------------


@dataclass(kw_only=True, eq=False, repr=False)
class ImpulseResponse:
    """What a shock does, turn by turn: a mean over pairs of forks, and a band.

    The band is simultaneous: in ``level`` of all studies like this one the whole curve of a column
    lies in it, not each of its points. It speaks of new seeds of this run, and widens with what the
    seeds change, the model's answers included.

    Attributes:
        shock: what was done, in words.
        at: the turn that has the shock, horizon 0.
        horizon: the last turn after it.
        level: of the bands.
        seeds: of the pairs that were played to their end.
        curves: by column, what the shock did in each pair: a row a seed, a column a horizon.
        rule_curves: the same of what it is compared with; empty if it is with nothing.
        linear: by column, the rule's response by the linear solution; empty where there is none.
        notes: what one should know of it, such as pairs that failed.
    """

    at: int
    horizon: int
    level: float
    _make: Callable[[int], AnyRun]
    _shock: Mapping[str, Any]
    _end: int
    _seeds: tuple[int, ...]
    _columns: Sequence[str] | None
    _against: Any
    _parallel: int
    _tape: Tape | None
    _named: bool
    _played_by_hand: int | None
    _progress: bool
    shock: str = ""
    seeds: tuple[int, ...] = ()
    curves: Curves = field(default_factory=dict)
    rule_curves: Curves = field(default_factory=dict)
    linear: Mapping[str, Sequence[float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    _series: Mapping[str, Series] = field(default_factory=dict)
    _whole_linear: Mapping[str, Sequence[float]] = field(default_factory=dict)
    _failed: dict[int, Exception] = field(default_factory=dict)
    _less: str = ""
    _playing: bool = False

    def run(self) -> ImpulseResponse:
        """Do what ``arun`` does from plain code."""
        return run_sync(self.arun())

    async def arun(self) -> ImpulseResponse:
        """Play all pairs, or those that are missing on the tape, and return this response.

        A pair in which the model, the economy or the world failed is left out, and ``notes`` says
        so.

        Raises:
            ConfigError: the shock has no place in such a run, no pair could be played, or the
                response is being played already.
        """
        with one_at_a_time(self, "response"):
            done = await self._pairs()
        rule = {seed: pair for seed, (_, pair) in done.items() if pair is not None}
        own = {seed: pair for seed, (pair, _) in done.items()}
        self.seeds = tuple(done)
        shortest = min(pair.turns for pair in [*own.values(), *rule.values()])
        self.horizon = shortest - 1
        notes = [f"seed {seed} failed: {_fault(error)}" for seed, error in self._failed.items()]
        if self.at + self.horizon < self._end:
            notes.append(
                f"the horizon ends at {self.horizon}, not {self._end - self.at}: a run was over by "
                "then"
            )
        self.curves, self.rule_curves = (_curves(it, shortest) for it in (own, rule))
        self.linear = {name: line[:shortest] for name, line in self._whole_linear.items()}
        for whose, found in (("", own), ("the rule's ", rule)):
            if at_bound := sum(pair.at_bound for pair in found.values()):
                notes.append(
                    f"in {at_bound} of {whose}{len(found)} pairs the rate was at one of its "
                    "bounds, where the economy is not linear"
                )
        if len(done) == 1:
            notes.append("one pair: no interval; give more seeds")
        elif all(_same(curve) for curve in self.curves.values()):
            notes.append(
                "all pairs came out the same, so that there is nothing for a band to say: neither "
                "the seeds nor the state before the shock matter here"
            )
        self.notes = tuple(notes)
        return self

    async def _pairs(self) -> dict[int, tuple[_Pair, _Pair | None]]:
        """Return by seed what came of the run, and of what it is compared with."""
        self._failed.clear()
        room, last = asyncio.Semaphore(self._parallel), len(self._seeds)
        async with progress_line("pair", number=1, last=last, enabled=self._progress) as advance:

            async def one(seed: int) -> tuple[_Pair, _Pair | None] | None:
                async with room:
                    try:
                        return await self._of_seed(seed)
                    except Exception as error:
                        # An argument that is wrong, or a tape, is not a pair's own fault.
                        of_pair = not isinstance(error, LabError) or isinstance(error, _OF_A_PAIR)
                        if not of_pair and self._failed.get(seed) is not error:
                            raise
                        self._failed[seed] = error
                        return None
                    finally:
                        advance()

            found = await gather_all([one(seed) for seed in self._seeds])
        done = {seed: both for seed, both in zip(self._seeds, found, strict=True) if both}
        if not done:
            seed, error = next(iter(self._failed.items()))
            if isinstance(error, ConfigError):
                raise error
            raise ConfigError(
                f"no pair could be played to its end; seed {seed}: {_fault(error)}"
            ) from error
        return done

    async def _of_seed(self, seed: int) -> tuple[_Pair, _Pair | None]:
        with self._by_the_world(seed):
            fresh = self._make(seed)
        if not self._series:
            self._look_at(fresh)
        rule = None
        if self._against is not None:
            rule = await self._pair(_by_rule(fresh, self._against))
        return await self._pair(fresh, self._tape), rule

    @contextmanager
    def _by_the_world(self, seed: int) -> Iterator[None]:
        """Keep a ConfigError that the world raises, which may be about this seed alone."""
        try:
            yield
        except WrongFunctionError:
            raise
        except ConfigError as error:
            self._failed[seed] = error
            raise

    def _look_at(self, run: AnyRun) -> None:
        """Take from the first run what all share: the columns, and the linear solution."""
        known = {one.column: one for one in run.series}
        columns = known if self._columns is None else self._columns
        self._series = {it: known.get(it, Series(column=it, label=it)) for it in columns}
        if not self._series:
            raise ConfigError(
                f"a {type(run).__name__} charts no numbers, so that no response can be seen; name "
                "some: impulse_response(..., columns=['NAME'])"
            )
        self._whole_linear = _linear(run, self._shock, self._against, self._end - self.at)

    async def _pair(self, fresh: AnyRun, tape: Tape | None = None) -> _Pair:
        # A shock to the economy's equations hits on the way to a turn, so before it is over.
        on_the_way = {"shock", *_SHOCKS} & self._shock.keys()
        fork_at = self.at - 1 if on_the_way else self.at
        if fork_at < fresh.turns[0].number:
            raise ConfigError(
                f"at={self.at}: a shock hits on the way to a turn; the first is "
                f"{fresh.turns[0].number + 1}"
            )
        base = fresh if tape is None else self._base(fresh, tape, fork_at)
        try:
            await self._play_to(base, fork_at)
            if base.turn_number < fork_at:
                with self._by_the_world(base.config.seed):
                    raise ConfigError(
                        f"the run of seed {base.config.seed} is over at turn {base.turn_number}, "
                        f"before it can be forked at turn {fork_at}; choose a smaller at"
                    )
            items = _interventions(base, self._shock, self.at, fork_at)
            self.shock = self.shock or _in_words(base, self._shock, self.at)
            shocked, unshocked = await gather_all(
                [self._arm(base, fork_at, its, tape) for its in (items, [])]
            )
        finally:
            base.close()
        here, there = self._values(shocked), self._values(unshocked)
        return _Pair(
            {
                name: [after - before for after, before in zip(values, there[name], strict=False)]
                for name, values in here.items()
                if name in there
            },
            turns=min(self._end, shocked.turn_number, unshocked.turn_number) - self.at + 1,
            at_bound=_touches_bound([*shocked.turns, *unshocked.turns], base, self.at),
        )

    async def _arm(
        self, base: AnyRun, fork_at: int, items: Sequence[Mapping[str, Any]], tape: Tape | None
    ) -> AnyRun:
        arm = None if tape is None else _fork_on(tape, base, fork_at, items)
        if arm is None:
            arm = base.fork(fork_at, intervene=items)
        elif tape is not None and arm.turn_number < self._end and not arm.done(arm.state):
            client, cls = base.llm_client, type(base)
            arm = resume(tape, arm.run_id, llm_client=client, kind=cls, **_own(base))
        try:
            await self._play_to(arm, self._end)
        finally:
            arm.close()
        return arm

    async def _play_to(self, run: AnyRun, turn: int) -> None:
        if run.turn_number < turn:
            with self._by_the_world(run.config.seed):
                await run.play_on(turn - run.turn_number, progress=self._progress)

    def _base(self, fresh: AnyRun, tape: Tape, fork_at: int) -> AnyRun:
        """Return the seed's run as it is on the tape; it begins there if it is not."""
        info = None
        # Parts that no tape holds may have been others; a name says that they are the same.
        if self._named or not fresh.given:
            info = _run_on(tape, fresh, fork_at, besides=self._played_by_hand)
        if info is None:
            fresh._record(tape)
            return fresh
        own = _own(fresh)
        if info.turns >= fork_at:
            return _load(tape, info, fresh.llm_client, own)
        return resume(tape, info.id, llm_client=fresh.llm_client, kind=type(fresh), **own)

    def _values(self, run: AnyRun) -> dict[str, list[float]]:
        turns = [turn for turn in run.turns if self.at <= turn.number <= self._end]
        rows = [
            {name: it for name, it in run.own_columns(turn).items() if isinstance(it, int | float)}
            for turn in turns
        ]
        found: dict[str, list[float]] = {}
        for column in self._series:
            if all(column in row for row in rows):
                found[column] = [float(row[column]) for row in rows]
            elif self._columns is not None:
                there = set().union(*rows)
                raise ConfigError(
                    f"{column!r} is not a number at each turn from {self.at} on"
                    f"{closest(column, there)}; the numbers are {', '.join(sorted(there))}"
                )
        return found

    def minus_rule(self) -> ImpulseResponse:
        """Return how much more or less it is than what it was compared with, on the same seeds.

        Raises:
            ConfigError: it was compared with nothing.
        """
        self._check_played()
        if not self.rule_curves:
            raise ConfigError(
                "there is nothing to subtract: impulse_response(..., against=TaylorRule())"
            )
        rule = self.rule_curves
        apart = {name: it - rule[name] for name, it in self.curves.items() if name in rule}
        return replace(self, curves=apart, rule_curves={}, linear={}, _less=", minus the rule's")

    def _check_played(self) -> None:
        if not self.curves:
            raise ConfigError(
                "this response is not played yet: response.run(), or await response.arun()"
            )

    def frame(self) -> pd.DataFrame:
        """Return a row for each column and turn.

        Columns: ``column``; ``horizon``, turns after the shock; ``mean``, ``low`` and ``high``,
        missing where there is one pair; ``n``, pairs; ``rule``, the mean of what it is compared
        with, and ``linear``, missing where there is none.
        """
        import pandas as pd

        from llmsim_lab.study._statistics import sup_t_band  # here, since it imports numpy

        self._check_played()
        frames = {}
        for name, curve in self.curves.items():
            mean, low, high = sup_t_band(curve.to_numpy(), level=self.level)
            rule = self.rule_curves.get(name)
            frames[name] = pd.DataFrame({"mean": mean, "low": low, "high": high})
            frames[name]["n"] = len(self.seeds)
            frames[name]["rule"] = float("nan") if rule is None else rule.mean().to_numpy()
            frames[name]["linear"] = self.linear.get(name, float("nan"))
        return pd.concat(frames, names=["column", "horizon"]).reset_index()

    def chart(self, column: str | None = None) -> Figure:
        """Return a figure of a column: mean and band, the rule's line and the linear solution.

        Args:
            column: the first one if not given.

        Raises:
            ConfigError: there is no such column.
        """
        self._check_played()
        column = next(iter(self.curves)) if column is None else column
        if column not in self.curves:
            raise ConfigError(f"there is no column {column!r}{among(column, self.curves)}")
        part = self.frame().query("column == @column")
        one = self._series[column]
        title = f"Response of {one.label[:1].lower() + one.label[1:]}{self._less}"
        return response_chart(part, one, title=title, shock=self.shock, level=self.level)

    def _peaks(self) -> Iterator[Any]:
        """Return the frame's row of each column's largest response."""
        frame = self.frame()
        largest = frame["mean"].abs().groupby(frame["column"], sort=False).idxmax()
        return frame.loc[largest].itertuples()

    def __str__(self) -> str:
        if not self.curves:
            return f"impulse response, not played yet ({len(self._seeds)} pairs)"
        lines = [f"response to {self.shock}{self._less}, n = {len(self.seeds)} pairs"]
        for it in self._peaks():
            band = f" [{it.low:.3g}, {it.high:.3g}]" if it.n > 1 else ""
            lines.append(f"{it.column}: largest {it.horizon} turns after, {it.mean:+.3g}{band}")
        return "\n".join([*lines, *self.notes])

    def __repr__(self) -> str:
        return f"<ImpulseResponse: {str(self).partition(chr(10))[0]}>"

    def _repr_html_(self) -> str:
        if not self.curves:
            return str(pairs([("pairs", len(self._seeds))], caption=str(self)))
        rows = []
        for it in self._peaks():
            band = f"{it.low:.3g} to {it.high:.3g}" if it.n > 1 else "none"
            rule = f"{it.rule:+.3g}" if it.column in self.rule_curves else ""
            rows.append([it.column, it.horizon, f"{it.mean:+.3g}", band, rule])
        header = ["", "turns after", "largest response", f"{self.level:.0%} band", "rule"]
        caption = f"Response to {self.shock}{self._less}, {len(self.seeds)} pairs of forks"
        notes = (pairs([("note", note)]) for note in self.notes)
        return str(join([table(header, rows, caption=caption), *notes]))


def _fault(error: Exception) -> str:
    said = str(error)
    return said if isinstance(error, LabError) and said else f"{type(error).__name__}: {said}"


def _same(curve: pd.DataFrame) -> bool:
    values = curve.to_numpy()
    return bool((abs(values - values[0]) <= _DUST * abs(values).max()).all())


def _curves(found: Mapping[int, _Pair], turns: int) -> Curves:
    import pandas as pd

    if not found:
        return {}
    first, *others = (pair.moved for pair in found.values())
    index, columns = pd.Index(found, name="seed"), pd.RangeIndex(turns, name="horizon")
    return {
        name: pd.DataFrame(
            [pair.moved[name][:turns] for pair in found.values()], index=index, columns=columns
        )
        for name in first
        if all(name in other for other in others)
    }
