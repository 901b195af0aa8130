"""Designs of studies: what is varied, the arms that come of it, and how an arm's run is made.

A *factor* is something that is varied, a *level* one of its values, an *arm* a level of each. What
a factor's name means is found out once, before anything is played. Every arm is made once on trial,
so that a wrong name or level raises here.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import itertools
import math
import re
import types
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.jsontext import dumps
from llmsim_lab._util.text import among, closest, faults
from llmsim_lab.errors import ConfigError, LabError
from llmsim_lab.llm import LLMClient, LLMConfig, Tape, connect
from llmsim_lab.prompts import Prompt
from llmsim_lab.run import Run
from llmsim_lab.run._config import RunConfig, made_intervention
from llmsim_lab.run._records import config_of
from llmsim_lab.run._run import NoModel, _listed, _load
from llmsim_lab.tape._lines import RunInfo

AnyRun = Any
"""A run of any class."""
Factors = Mapping[str, Mapping[str, Any]]
"""Labels and their levels, by factor."""

AA = "A/A"
"""The name of the arm that is the reference once more, with other call seeds."""
LAST = "@last"
"""What the name of an outcome ends in that is the last value of a column."""
_FULL, _ONE_AT_A_TIME = "full", "one at a time"
_MOST_ARMS = 10_000
_MOST_SAMPLES = 10_000
_SPECIAL = ("model", "prompt", "players", "state", "interventions")
"""What can be varied of any world beside its parameters."""
_OWN = {"seed": "seed=", "turns": "turns=", "name": "name=", "replicate": "aa=True"}
"""Parameters that a study sets itself, with how it is told so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One of the variants that a study compares.

    Attributes:
        name: as charts and effects have it.
        levels: labels of the levels, by factor.
        values: the levels themselves, by factor.
        further: how many samples of the model's answers came before; 1 for the A/A arm.
    """

    name: str
    levels: Mapping[str, str]
    values: Mapping[str, Any] = field(repr=False)
    further: int = 0


# --- factors and arms ----------------------------------------------------------------------------


def factors_of(vary: Mapping[str, Any]) -> Factors:
    """Return what is varied, every level with a label.

    Raises:
        ConfigError: something is not a list or mapping of levels.
    """
    if not isinstance(vary, Mapping):
        raise ConfigError(
            f"vary={vary!r:.60} is not a mapping; say vary={{'temperature': [0.2, 0.8]}}"
        )
    return {name: labelled(f"vary[{name!r}]", levels) for name, levels in vary.items()}


def labelled(what: str, levels: Any) -> dict[str, Any]:
    """Return levels, or wordings, by their labels."""
    if isinstance(levels, Mapping):
        pairs = [(str(label), level) for label, level in levels.items()]
    elif isinstance(levels, Sequence) and not isinstance(levels, str):
        pairs = [(label_of(level), level) for level in levels]
    else:
        raise ConfigError(
            f"{what} = {levels!r:.60} is neither a list of levels nor a mapping of labels to "
            f"levels; write [{levels!r:.40}] for a single one"
        )
    if not pairs:
        raise ConfigError(f"{what} is empty; name at least one level")
    [(label, count)] = Counter(label for label, _ in pairs).most_common(1)
    if count > 1:
        raise ConfigError(
            f"{what} has two levels called {label!r}; give them other labels: "
            "{'one': ..., 'other': ...}"
        )
    return dict(pairs)


def label_of(level: Any) -> str:
    """Return what a level is called that has no label."""
    if isinstance(level, str):
        return level
    if isinstance(level, bool) or level is None:
        return str(level)
    if isinstance(level, int | float):
        return f"{level:g}"
    for attribute in ("name", "__name__"):
        if isinstance(found := getattr(level, attribute, None), str):
            return found
    if isinstance(level, LLMClient):
        return level.config.model
    text = repr(level)
    return text if len(text) <= 40 else f"{text[:39]}…"


def arms_of(factors: Factors, design: Any, *, aa: bool) -> list[Arm]:
    """Return a design's arms, the reference first, the A/A arm last.

    Raises:
        ConfigError: the design is not known, or there are too many arms.
    """
    if design == _ONE_AT_A_TIME and len(factors) > 1:
        arms = _one_at_a_time(factors)
    elif design in (_FULL, _ONE_AT_A_TIME):  # which are the same of one factor
        if (count := math.prod(map(len, factors.values()))) > _MOST_ARMS:
            raise ConfigError(
                f"a full design of these factors has {count:,} arms; vary less, or "
                "design='one at a time'"
            )
        arms = [_arm(factors, labels) for labels in itertools.product(*factors.values())]
    else:
        raise ConfigError(
            f"design={design!r:.60} is not known{closest(str(design), (_FULL, _ONE_AT_A_TIME))}; "
            "it is 'full' or 'one at a time'"
        )
    if len({arm.name for arm in arms}) < len(arms) or any(arm.name == AA for arm in arms):
        raise ConfigError(
            f"two arms have one name, or one is called {AA!r}; give the levels other labels: "
            "vary={'factor': {'label': level}}"
        )
    return [*arms, *([replace(arms[0], name=AA, further=1)] if aa else [])]


def _arm(factors: Factors, labels: Sequence[str]) -> Arm:
    levels = dict(zip(factors, labels, strict=True))
    # A number alone says nothing; a word such as "hawkish" speaks for itself. What all arms share
    # tells none of them apart.
    telling = [name for name in levels if len(factors[name]) > 1] or list(levels)
    values = {name: factors[name][label] for name, label in levels.items()}
    bare = {
        name
        for name, level in values.items()
        if isinstance(level, bool | int | float | None) and levels[name] == label_of(level)
    }
    told = [f"{name}={levels[name]}" if name in bare else levels[name] for name in telling]
    return Arm(name=" · ".join(told) or "all", levels=levels, values=values)


def _one_at_a_time(factors: Factors) -> list[Arm]:
    first = {name: next(iter(levels)) for name, levels in factors.items()}
    arms = [replace(_arm(factors, list(first.values())), name="reference")]
    for name, levels in factors.items():
        for label in list(levels)[1:]:
            changed = _arm(factors, list({**first, name: label}.values()))
            arms.append(replace(changed, name=f"{name}={label}"))
    return arms


def seeds_of(seeds: int | Sequence[int]) -> list[int]:
    """Return the seeds, which all arms share: 0, 1, … for a number of them.

    Raises:
        ConfigError: there are none, or one is there twice.
    """
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        return list(range(whole_number("seeds", seeds, least=1)))
    if isinstance(seeds, str | bool) or not isinstance(seeds, Sequence | range) or not seeds:
        raise ConfigError(f"seeds={seeds!r:.60} must be a number of seeds, or a list of them")
    found = [whole_number("a seed", seed) for seed in seeds]
    if len(set(found)) < len(found):
        raise ConfigError(f"seeds={seeds!r:.60} names a seed twice, which is no further run")
    return found


# --- what names stand for ------------------------------------------------------------------------


class World:
    """What a study plays: makes a run of an arm and a seed, or continues a recorded one as an arm.

    Args:
        source: a ``Run`` class, or a function that takes the levels by keyword, and ``seed``, and
            returns a run.
        fixed: what is the same in all arms, by the names that can also be varied.
        factors: what is varied.
        turns: of each run; the configuration's if not given.
        recorded: the configuration of a recorded run whose situations are asked again.

    Raises:
        ConfigError: the source is neither, or a name stands for nothing.
    """

    def __init__(
        self,
        source: Any,
        *,
        fixed: Mapping[str, Any],
        factors: Factors,
        turns: int | None = None,
        recorded: Any = None,
    ) -> None:
        self.fixed, self.again = dict(fixed), recorded is not None
        self._turns = None if turns is None else whole_number("turns", turns, least=1)
        self._code: dict[str, str] = {}
        self.make: Callable[..., AnyRun] | None = None
        self.base: Any = recorded
        names = [*fixed, *factors]
        if twice := fixed.keys() & factors.keys():
            raise ConfigError(f"{', '.join(sorted(twice))} cannot be both fixed and varied")
        if isinstance(source, type) and issubclass(source, Run):
            self.cls: type[AnyRun] = source
            self.base = recorded or _first_config(source.config_type, fixed)
            self._targets = {name: self._target(name) for name in names}
        elif callable(source) and not isinstance(source, type):
            self.make = source
            parameters = inspect.signature(source).parameters.values()
            self._takes = [it.name for it in parameters if it.kind is not it.VAR_KEYWORD]
            self._takes_any = len(self._takes) < len(parameters)
            self._targets = {name: self._argument(name) for name in names}
            if "seed" not in self._takes and not self._takes_any:
                raise ConfigError(
                    f"{_called(source)} takes no seed, so that all its runs would be one: def "
                    f"{_called(source)}(..., seed): return MyWorld(..., seed=seed)"
                )
        else:
            raise ConfigError(
                f"{source!r:.60} is not something to play; give a Run class, or a function that "
                "takes the levels and seed by keyword and returns a run: a study makes its runs "
                "itself"
            )

    @property
    def turns(self) -> int:
        """How many turns each run has."""
        if self._turns is None:
            raise ConfigError("say how many turns each run has: Study(..., turns=20)")
        return self._turns

    def _target(self, name: str) -> tuple[Any, ...]:
        """Return what a name stands for: one of ``_SPECIAL``, or ``config`` and a path in it."""
        fields = self.cls.config_type.model_fields
        if name in _OWN:
            raise ConfigError(f"{name!r} is not a factor; say Study(..., {_OWN[name]})")
        if name in _SPECIAL or name == "llm_client":
            return ("model" if name == "llm_client" else name,)
        path = tuple(int(part) if part.isdecimal() else part for part in name.split("."))
        if name in LLMConfig.model_fields and name not in fields:
            path = ("llm", name)
        if path[0] not in fields or (path[0] == "llm" and path[1:2] not in _LLM_PATHS):
            own = [it for it in fields if it not in RunConfig.model_fields and it not in _SPECIAL]
            known = [*own, *_SPECIAL]
            close = closest(name, [*known, *(f"llm.{it}" for it in LLMConfig.model_fields)])
            raise ConfigError(
                f"{self.cls.__name__} has nothing called {name!r} to vary{close}; there are "
                f"{', '.join([*known, 'llm.temperature'])}"
            )
        return "config", path

    def _argument(self, name: str) -> tuple[Any, ...]:
        """Return what a name stands for where a function makes the runs: mostly its argument."""
        if name in self._takes:
            return "argument", name
        if name in ("model", "llm_client"):
            if "llm_client" in self._takes or self._takes_any:
                return ("model",)
        elif name in ("prompt", "interventions"):
            return (name,)
        elif self._takes_any:
            return "argument", name
        raise ConfigError(
            f"{_called(self.make)} takes no {name!r}{closest(name, self._takes)}; it takes "
            f"{', '.join(self._takes) or 'nothing'}"
        )

    def values(self, arm: Arm) -> dict[str, Any]:
        """Return what an arm varies and what is fixed, by name."""
        return {**self.fixed, **arm.values}

    def levels(self, arm: Arm, kind: str) -> Iterator[tuple[Any, Any]]:
        """Yield the levels of one kind of target, each with which of them it is for."""
        for name, value in self.values(arm).items():
            if (target := self._targets[name])[0] == kind:
                yield target[-1], value

    def level(self, arm: Arm, kind: str) -> Any:
        """Return the level of ``model``, ``prompt``, ...; None where the arm names none."""
        return next((value for _, value in self.levels(arm, kind)), None)

    def wordings(self, arm: Arm) -> dict[str, Any]:
        """Return what an arm's prompts are edited with; several are wordings of one idea."""
        level = self.level(arm, "prompt")
        if not isinstance(level, Sequence) or isinstance(level, str):
            return {"": level}
        labels = [label_of(it) for it in level]
        if len(set(labels)) < len(labels):  # such as lambdas
            labels = [f"wording {number}" for number in range(1, len(labels) + 1)]
        return labelled(f"prompt of {arm.name!r}", dict(zip(labels, level, strict=True)))

    # --- making runs -------------------------------------------------------------------------

    def run(self, arm: Arm, seed: int, client: LLMClient | None, *, wording: int = 0) -> AnyRun:
        """Return a new run of an arm with a seed, on no tape.

        Raises:
            ConfigError: a level is wrong.
        """
        run = self._made(arm, seed, client)
        if wording and run.config.replicate is not None:
            run.config = run.config.model_copy(
                update={"replicate": run.config.replicate + _MOST_SAMPLES * wording}
            )
        self.edit(run, arm, wording)
        for item in self.interventions(arm):
            run.add_intervention(item)
        return run

    def _made(self, arm: Arm, seed: int, client: LLMClient | None) -> AnyRun:
        further = {"turns": self._turns} if self._turns else {}
        if self.make is None:
            given = {"players": self.level(arm, "players"), "state": self.level(arm, "state")}
            if _is_function(given["state"]):
                given["state"] = given["state"]()
            config = self.config(arm, {"seed": seed, **further})
            make: Callable[..., AnyRun] = self.cls
            return make(config, llm_client=client, **given)
        values = dict(self.levels(arm, "argument"))
        for name, value in {"seed": seed, "llm_client": client, **further}.items():
            wanted = name in self._takes or (self._takes_any and name == "seed")
            if wanted and name not in values and value is not None:
                values[name] = value
        run = self.make(**values)
        called = _called(self.make)
        if not isinstance(run, Run):
            raise ConfigError(
                f"{called} returned {run!r:.60}; it must return a run: return MyWorld(..., "
                "seed=seed)"
            )
        if run.config.seed != seed:
            raise ConfigError(
                f"{called}(seed={seed}) returned a run with the seed {run.config.seed}; hand the "
                "seed on: MyWorld(..., seed=seed)"
            )
        if run.tape is not None:
            raise ConfigError(
                f"{called} gave its run a tape; leave it out, and give it to what plays the runs: "
                "Study(..., tape='study/')"
            )
        if arm.further and run.config.replicate is not None:
            further["replicate"] = run.config.replicate + arm.further
        run.config = run.config.model_copy(update=further)
        return run

    def config(self, arm: Arm, changes: Mapping[str, Any], base: Any = None) -> Any:
        """Return a configuration with an arm's levels.

        Args:
            arm: the arm.
            changes: other fields.
            base: what is changed; the world's own if not given.

        Raises:
            ConfigError: a level is wrong.
        """
        values: Any = base or self.base
        for path, value in self.levels(arm, "config"):
            values = _with(values, path, value)
        if isinstance(values, BaseModel):
            values = {name: getattr(values, name) for name in values.model_fields_set}
        replicate = values.get("replicate", 0)  # None: the server draws, and nothing is shared
        if arm.further and replicate is not None:
            changes = {"replicate": replicate + arm.further, **changes}
        try:
            return self.cls.config_type.model_validate({**values, **changes})
        except ValidationError as error:
            raise ConfigError(f"{self.cls.__name__}: {faults(error)}") from error

    def llm_settings(self, arm: Arm) -> dict[str, Any]:
        """Return the settings of the model's client that the arm says, such as its temperature."""
        found: dict[str, Any] = {}
        for path, value in self.levels(arm, "config"):
            if path == ("llm",):
                is_model = isinstance(value, BaseModel)
                found |= value.model_dump(exclude_unset=True) if is_model else value
            elif path[0] == "llm":
                found[path[1]] = value
        return found

    def parts(self, arm: Arm, made: AnyRun, info: RunInfo) -> dict[str, Any]:
        """Return the players to give a recorded run again, which no tape can hold."""
        if made is not None:
            return {name: made.parts[name] for name in info.manifest["given"]}
        players = self.level(arm, "players")
        return {} if players is None else {"players": players}

    def forked(
        self,
        arm: Arm,
        tape: Tape,
        number: int,
        client: LLMClient | None,
        made: AnyRun,
        play: tuple[int, int],
        since: int,
    ) -> AnyRun:
        """Return a run that continues a recorded one from its last turn as an arm, on no tape yet.

        Args:
            arm: the arm.
            tape: where the run is.
            number: the run's.
            client: the model.
            made: a run of the arm that begins anew; None where a situation is asked again.
            play: which of the arm's wordings, and which sample.
            since: how many of the arm's interventions the run has had already.
        """
        info, (wording, sample) = tape.run(number), play
        if self.again:
            manifest, recorded = dict(info.manifest), config_of(info, self.cls)
            # Wordings have seeds of their own: with the same they would resemble each other more
            # than new ones do.
            draw = (recorded.replicate or 0) + sample + _MOST_SAMPLES * wording
            config = self.config(arm, {"replicate": draw}, recorded)
            manifest["config"] = config.model_dump(mode="json", by_alias=True)
            if manifest["llm"]:  # with a seed there, all samples would be one
                manifest["llm"] = {**manifest["llm"], "seed": None, **self.llm_settings(arm)}
            info = replace(info, manifest=manifest)
        run: AnyRun = _load(tape, info, client, self.parts(arm, made, info), self.cls)
        planned = [item for items in run.planned.values() for item in items]
        if run.llm_client is not None and isinstance(run.llm_client.backend, NoModel):
            run.llm_client = None  # what is asked again is live
        run.take_over(run.turns, planned if self.again else (), None)
        latest = run.turns[-1]
        if self.again and (state := self.level(arm, "state")) is not None:
            made_as = state(latest.state) if _is_function(state) else state
            run.turns[-1] = replace(latest, state=run.state_at(latest, made_as))
        self.edit(run, arm, wording)
        for item in self.interventions(arm, latest.number)[since:]:
            run.add_intervention(item)
        return run

    def interventions(self, arm: Arm, turn: int = 0) -> list[Any]:
        """Return what an arm sets from outside, in order of turns.

        Args:
            arm: the arm.
            turn: the one that values without a turn are set at.
        """
        level = self.level(arm, "interventions")
        if level is None or level in ((), [], {}):
            return []
        made_as = self.cls.intervention_type
        items = [
            it if isinstance(it, BaseModel) else made_intervention(made_as, it)
            for it in ([level] if isinstance(level, BaseModel) else _all(level, turn, made_as))
        ]
        return sorted(items, key=lambda item: item.turn)

    def shared(self, arm: Arm, leader: Arm) -> tuple[int, int] | None:
        """Return up to which turn two arms are one run, and how many interventions it has.

        None where they differ in more than what is set from outside, or from the start.
        """
        own, its = (
            {name: it for name, it in said(one.values).items() if name != "interventions"}
            for one in (arm, leader)
        )
        if own != its or arm.further != leader.further:
            return None
        if self._targets.get("interventions") != ("interventions",):
            return None
        mine, theirs = self.interventions(arm), self.interventions(leader)
        pairs = zip(mine, theirs, strict=False)
        same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
        left = [item.turn for item in (*mine[same:], *theirs[same:])]
        at = min([*left, self.turns])
        if any(item.turn == at for item in theirs[same:]):  # it is in that turn's state already
            at -= 1
            same = sum(item.turn <= at for item in mine)
        return None if at < 0 else (at, same)

    # --- prompts -----------------------------------------------------------------------------

    def edit(self, run: AnyRun, arm: Arm, wording: int, *, resumed: bool = False) -> None:
        """Have a run ask with edited prompts: those that it has, and others as they are asked."""
        level = list(self.wordings(arm).values())[wording]
        if level is None or level == {}:
            return
        edits = PromptEdits(level)
        if resumed:  # what it has, it has edited
            edits.names = names_in(run)
        else:
            run.put_prompts({at: edits(prompt) for at, prompt in run.prompts.items()})
        run._edit = edits

    # --- what identifies it ------------------------------------------------------------------

    def code(self, run: AnyRun) -> dict[str, str]:
        """Return the digests of the world's code, found out once, where its source is."""
        self._code = self._code or run.code_digests
        return self._code

    def checked(self, arms: Sequence[Arm], seed: int) -> AnyRun:
        """Make a run of each arm on trial; returns that of the first.

        Raises:
            ConfigError: a level is wrong.
        """
        runs: list[AnyRun] = []
        for arm in arms:
            try:
                runs.append(self._made(arm, seed, None))
                if self.make is not None:
                    self.cls = type(runs[0])
                for number in range(len(self.wordings(arm))):
                    self.edit(runs[-1], arm, number)
                for item in self.interventions(arm):
                    item.check(runs[-1])
                    runs[-1]._intervened(runs[-1].state, [item])
            except LabError as error:
                where = f"arm {arm.name!r}: " if len(arms) > 1 else ""
                raise ConfigError(f"{where}{error}") from error
        names = sorted({type(run).__name__ for run in runs})
        if len(names) > 1:
            raise ConfigError(
                f"the arms are of several classes ({', '.join(names)}); one study is of one"
            )
        self._turns = self._turns or runs[0].config.turns or None
        self.code(runs[0])
        return runs[0]


_LLM_PATHS = {(), *((name,) for name in LLMConfig.model_fields)}


def _all(level: Any, turn: int, made_as: Any) -> list[Any]:
    """Return interventions as a list; some may be objects already."""
    if isinstance(level, Sequence) and any(isinstance(it, BaseModel) for it in level):
        return list(level)
    return _listed(level, turn, made_as)


def _is_function(value: Any) -> bool:
    return callable(value) and not isinstance(value, BaseModel)


def _first_config(config_type: type[Any], fixed: Mapping[str, Any]) -> Any:
    """Return a configuration with what is fixed, to look names up in.

    A parameter that has no default and is varied is not in it.
    """
    fields = config_type.model_fields.keys() - set(_SPECIAL) - set(_OWN)
    own = {name: value for name, value in fixed.items() if name in fields}
    try:
        return config_type(**own)
    except ConfigError:
        return config_type.model_construct(**own)


def _called(function: Any) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _with(node: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a configuration's values with one of them changed, to be validated anew.

    Only what was set is handed on, since other fields may follow from the changed one.
    """
    if not path:
        return value
    head, rest = path[0], path[1:]
    if isinstance(node, BaseModel):
        own = {name: getattr(node, name) for name in node.model_fields_set}
        return {**own, head: _with(getattr(node, head, None), rest, value)}
    if isinstance(node, Sequence) and not isinstance(node, str):
        if not (isinstance(head, int) and head < len(node)):
            raise ConfigError(f"there is no place {head!r} among {len(node)}: {node!r:.60}")
        return [*node[:head], _with(node[head], rest, value), *node[head + 1 :]]
    there: Mapping[Any, Any] = node if isinstance(node, Mapping) else {}
    return {**there, head: _with(there.get(head), rest, value)}


# --- prompts -------------------------------------------------------------------------------------


class PromptEdits:
    """Edits a run's prompts, each when it is first asked with.

    Args:
        level: a prompt, a text, a function of the old text; or these by a prompt's name.

    Attributes:
        names: of the prompts so far.
    """

    def __init__(self, level: Any) -> None:
        self.level = {level.name: level} if isinstance(level, Prompt) else level
        self.names: set[str] = set()

    def __call__(self, prompt: Prompt) -> Prompt:
        """Return the prompt as it is to be asked with.

        Raises:
            ConfigError: one is to be edited, and this is another.
        """
        self.names.add(prompt.name)
        if isinstance(self.level, Mapping):
            edit = self.level.get(prompt.name)
            return prompt if edit is None else _edited(prompt, edit)
        if len(self.names) > 1:
            raise ConfigError(
                f"prompt: say which prompt is edited, {{name: {self.level!r:.30}}}; there are "
                f"{', '.join(sorted(self.names))}"
            )
        return _edited(prompt, self.level)

    def check(self) -> None:
        """Raise ConfigError where a prompt that is edited was never asked with."""
        wanted = self.level if isinstance(self.level, Mapping) else [] if self.names else ["prompt"]
        if missing := [name for name in wanted if name not in self.names]:
            raise ConfigError(
                f"prompt: no prompt is called {missing[0]!r}{among(missing[0], self.names)}; what "
                "has no slots, or comes from a function, is a text and no prompt: "
                "run.prompt('NAME') makes one"
            )


def names_in(run: AnyRun) -> set[str]:
    """Return the names of the prompts that a run has asked with, also where they were edited."""
    return {place.partition("#")[0] for place in run.prompts}


def _edited(prompt: Prompt, edit: Any) -> Prompt:
    if isinstance(edit, Prompt):
        return edit
    if isinstance(edit, Path):
        return prompt.edit(edit.read_text(encoding="utf-8"))
    text = edit(prompt.text if prompt.system else prompt.user) if callable(edit) else edit
    if not isinstance(text, str):
        raise ConfigError(
            f"prompt {prompt.name!r}: {edit!r:.60} gives {text!r:.40}, not a text; write a Prompt, "
            "a text, or a function of the old text that returns the new one"
        )
    return prompt.edit(text)


# --- models --------------------------------------------------------------------------------------


class Models:
    """The clients that a study's runs ask: one for each model, made when first needed.

    Args:
        given: the client of arms that name no model: a client, a text as ``connect`` takes it, or
            a function that makes a client.
    """

    def __init__(self, given: Any) -> None:
        self.given = given
        self._clients: dict[Any, LLMClient] = {}

    def of(self, world: World, arm: Arm) -> LLMClient | None:
        """Return the client of an arm's runs; None where there is no model.

        Raises:
            ConfigError: the model cannot be reached, or a setting of it is wrong.
        """
        named = world.level(arm, "model")
        model = self.given if named is None else named
        if model is None:
            return None
        client = self._client(model, None if world.base is None else world.base.llm)
        settings = world.llm_settings(arm)
        if arm.further and (seed := settings.get("seed", client.config.seed)) is not None:
            raise ConfigError(
                f"aa=True draws the model's answers anew, and llm.seed={seed} gives the same ones "
                "again; leave llm.seed out, and the run's own seeds are sent"
            )
        if not settings:
            return client
        key = (id(client), dumps({name: str(value) for name, value in settings.items()}))
        if key not in self._clients:
            config = type(client.config)(**{**client.config.model_dump(), **settings})
            self._clients[key] = client.with_config(config)
        return self._clients[key]

    def _client(self, model: Any, llm: Any) -> LLMClient:
        if isinstance(model, LLMClient):
            return model
        key = model if isinstance(model, str) else id(model)
        if key in self._clients:
            return self._clients[key]
        if isinstance(model, str):
            made = connect(model, config=llm, quiet=True)
        elif callable(model):
            made = model()
            if not isinstance(made, LLMClient):
                raise ConfigError(
                    f"model={_called(model)} returned {made!r:.60}; it must return a client: "
                    "connect('ollama:llama3.2')"
                )
        else:
            raise ConfigError(
                f"model={model!r:.60} is not a model; write 'ollama:NAME' or what else connect() "
                "takes, a client, or a function that makes one"
            )
        self._clients[key] = made
        return made


# --- what identifies a design --------------------------------------------------------------------


def said(value: Any) -> Any:
    """Return a value as JSON can hold it, the same in every process: what identifies a level."""
    if value is None or isinstance(value, bool | int | float | str):
        is_json = not isinstance(value, float) or math.isfinite(value)
        return value if is_json else str(value)
    if isinstance(value, Prompt):
        return f"prompt {value.name} {value.digest[:12]}"
    if isinstance(value, LLMClient):
        return f"client {value.config.model} on {type(value.backend).__name__}"
    if isinstance(value, BaseModel):
        return said(value.model_dump(mode="json"))
    if isinstance(value, Mapping):
        return {str(name): said(it) for name, it in value.items()}
    if isinstance(value, set | frozenset):  # in no order that another process would have too
        return sorted((said(it) for it in value), key=dumps)
    if isinstance(value, Sequence):
        return [said(it) for it in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, functools.partial):
        return ["partial", said(value.func), said(value.args), said(value.keywords)]
    if isinstance(value, type):
        return f"class {value.__name__}"
    if hasattr(value, "__code__"):
        digest = hashlib.sha256(dumps(_of_function(value)).encode("utf-8", "surrogatepass"))
        return f"function {_called(value)} {digest.hexdigest()[:12]}"
    return _of_object(value)


def _of_function(function: Any, above: tuple[int, ...] = ()) -> Any:
    """Return a function's code, defaults, and what it takes from the function around it."""
    function = getattr(function, "__func__", function)
    if id(function) in above:  # it calls itself
        return "itself"
    cells = []
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # nothing is in it yet
            cells.append(cell.cell_contents)
    taken = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values(), *cells]
    # Lists and objects may be what a function keeps its notes in, which change as it is called.
    kept = [
        _of_function(it, (*above, id(function))) if hasattr(it, "__code__") else said(it)
        for it in taken
        if it is None or callable(it) or isinstance(it, _UNCHANGING)
    ]
    return [_of_code(function.__code__), kept]


_UNCHANGING = (bool, int, float, str, bytes, tuple, frozenset, Path, Prompt, BaseModel)


def _of_code(code: types.CodeType) -> Any:
    consts = [_of_code(it) if isinstance(it, types.CodeType) else said(it) for it in code.co_consts]
    return [code.co_code.hex(), list(code.co_names), consts]


def _of_object(value: Any) -> str:
    """Return an object's class and what tells it from others of it, without addresses."""
    plain: Any = object.__repr__
    if type(value).__repr__ is not plain:
        return f"{type(value).__name__} {re.sub(r' at 0x[0-9a-fA-F]+', '', repr(value))}"
    own = {
        name: it
        for name, it in getattr(value, "__dict__", {}).items()
        if not name.startswith("_") and (it is None or isinstance(it, _UNCHANGING))
    }
    return f"{type(value).__name__} {dumps(said(own)) if own else ''}".strip()
