"""Designs of studies: what is varied, the arms that come of it, and how an arm's run is made.

A *factor* is something that is varied, a *level* one of its values, an *arm* a level of each. What
a factor's name means is found out once, before anything is played: a parameter of the world, also a
nested one (``llm.temperature``, ``nations.0.temperament``), the ``model``, the ``prompt``, the
``players``, the ``state`` to start from, or a part such as ``agents``. Every arm is made once on
trial, so that a wrong name or level raises here.
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
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.jsontext import dumps
from llmsim_lab._util.text import among, closest, faults
from llmsim_lab._util.waiting import run_sync
from llmsim_lab.errors import ConfigError, LabError
from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend, connect
from llmsim_lab.prompts import Prompt
from llmsim_lab.run import Run
from llmsim_lab.run._config import WorldConfig
from llmsim_lab.run._registry import class_of_config

AnyRun = Any
"""A run of any class."""
AnyStudy = Any
"""A ``Study``, for modules that it imports."""
Factors = Mapping[str, Mapping[str, Any]]
"""Labels and their levels, by factor."""

AA = "A/A"
"""The name of the arm that is the reference once more, with other call seeds."""
LAST = "@last"
"""What the name of an outcome ends in that is the last value of a column."""
_FULL, _ONE_AT_A_TIME = "full", "one at a time"
_MOST_ARMS = 10_000
_SHOWN = 8

Target = tuple[str, Any]
"""What a factor's name stands for: ``config``, ``model``, ``prompt``, ``players``, ``state``,
``part`` or ``argument``; and which of them, for ``config`` the path of the field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One of the variants that a study compares.

    Attributes:
        name: as charts and effects have it; empty for runs that keep the name of their world.
        levels: labels of the levels, by factor.
        values: the levels themselves, by factor.
        further: how many samples of the model's answers came before; 1 for the A/A arm.
    """

    name: str
    levels: Mapping[str, str]
    values: Mapping[str, Any] = field(repr=False)
    further: int = 0


ALL_ALIKE = Arm(name="", levels={}, values={})
"""The one arm where nothing is varied."""


# --- factors and arms ----------------------------------------------------------------------------


def factors_of(vary: Mapping[str, Any]) -> Factors:
    """Return what is varied, every level with a label.

    Raises:
        ConfigError: something is not a list or mapping of levels.
    """
    if not isinstance(vary, Mapping):
        raise ConfigError(
            f"vary={vary!r:.60} is not a mapping; say vary={{'temperament': ['cautious', 'hawkish']"
            "}"
        )
    return {name: _labelled(name, levels) for name, levels in vary.items()}


def _labelled(name: str, levels: Any) -> dict[str, Any]:
    if isinstance(levels, Mapping):
        labelled = [(str(label), level) for label, level in levels.items()]
    elif isinstance(levels, Sequence) and not isinstance(levels, str):
        labelled = [(_label_of(level), level) for level in levels]
    else:
        raise ConfigError(
            f"vary[{name!r}] = {levels!r:.60} is neither a list of levels nor a mapping of labels "
            f"to levels; write [{levels!r:.40}] for a single one"
        )
    if not labelled:
        raise ConfigError(f"vary[{name!r}] is empty; name at least one level")
    [(label, count)] = Counter(label for label, _ in labelled).most_common(1)
    if count > 1:
        raise ConfigError(
            f"vary[{name!r}] has two levels called {label!r}; give them other labels: "
            f"vary={{{name!r}: {{'one': ..., 'other': ...}}}}"
        )
    return dict(labelled)


def _label_of(level: Any) -> str:
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
        if isinstance(level, bool | int | float | None) and levels[name] == _label_of(level)
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


class WrongFunctionError(ConfigError):
    """A function that makes runs does not return what it must: wrong for all seeds, not for one."""


class World:
    """What a study or an impulse response plays: makes a run of an arm and a seed.

    Args:
        source: a ``Run`` class, a configuration or its class, or a function that takes the levels
            by keyword and returns a run.
        fixed: what is the same in all arms, by the names that can also be varied.
        factors: what is varied.
        turns: of each run; the configuration's if not given.

    Attributes:
        cls: the class of the runs.
        turns: of each run.

    Raises:
        ConfigError: the source is none of these, or a name stands for nothing.
    """

    def __init__(
        self, source: Any, *, fixed: Mapping[str, Any], factors: Factors, turns: int | None
    ) -> None:
        self.fixed = dict(fixed)
        self._turns = None if turns is None else whole_number("turns", turns, least=1)
        self._code: dict[str, Any] = {}
        self._edited: dict[str, dict[str, Prompt]] = {}
        self.make: Callable[..., AnyRun] | None = None
        self.base: Any = None
        if twice := fixed.keys() & factors.keys():
            raise ConfigError(f"{', '.join(sorted(twice))} cannot be both fixed and varied")
        if isinstance(source, type) and issubclass(source, Run):
            self.cls: type[AnyRun] = source
        elif isinstance(source, WorldConfig):
            self.cls, self.base = class_of_config(source), source
        elif isinstance(source, type) and issubclass(source, WorldConfig):
            self.base = _first_config(source, fixed)
            self.cls = class_of_config(self.base)
        elif isinstance(source, Run):
            raise ConfigError(
                f"a study makes its runs itself: give the class or the configuration, Study("
                f"{type(source).__name__}, ...), not a run"
            )
        elif callable(source):
            self.make = source
        else:
            raise ConfigError(
                f"{source!r:.60} is not something to play; give a Run class, a configuration, or a "
                "function that takes the levels by keyword and returns a run"
            )
        names = [*fixed, *factors]
        if self.make is not None:
            self._targets = {name: self._argument(name) for name in names}
            takes, any_name = self._taken
            if "seed" not in takes and not any_name:
                raise ConfigError(
                    f"{_called(source)} takes no seed, so that all its runs would be one: def "
                    f"{_called(source)}(..., seed): return MyWorld(..., seed=seed)"
                )
        else:
            self.base = self.base or _first_config(self.cls.config_type, fixed)
            self._targets = {name: self._target(name) for name in names}
            for name, (kind, path) in self._targets.items():
                if kind == "config" and path in (("seed",), ("turns",), ("name",), ("replicate",)):
                    hint = {"replicate": "aa=True", "name": "name="}.get(name, f"{path[0]}=")
                    raise ConfigError(
                        f"{name!r} is the study's own, not a factor; say Study(..., {hint})"
                    )

    @property
    def turns(self) -> int:
        """How many turns each run has."""
        if self._turns is not None:
            return self._turns
        if self.make is None and self.base.turns:
            return int(self.base.turns)
        raise ConfigError("say how many turns each run has: Study(..., turns=20)")

    def _target(self, name: str) -> Target:
        fields = self.cls.config_type.model_fields
        if name in fields and name != "players":
            return "config", (name,)
        if name in ("model", "prompt", "players", "state", "start"):
            return name.replace("start", "state"), None
        if name in self.cls.part_names:
            return "part", name
        known = dict.fromkeys(_paths(self.base))
        if "." in name:
            path = tuple(int(part) if part.isdecimal() else part for part in name.split("."))
            if path in known or _may_be_new(self.base, path):
                return "config", path
        else:
            # A field of several nations is one place: its levels are for all of them.
            places = dict.fromkeys(
                tuple("*" if isinstance(part, int) else part for part in path)
                for path in known
                if path[-1] == name
            )
            if len(places) == 1:
                return "config", next(iter(places))
            if places:
                said = " or ".join(repr(".".join(path)) for path in places)
                raise ConfigError(f"{name!r} may be several things; say which: {said}")
        names = [".".join(map(str, path)) for path in known]
        last = [path[-1] for path in known if isinstance(path[-1], str)]
        specials = ["model", "prompt", "players", "state", *self.cls.part_names]
        own = [field for field in fields if field not in WorldConfig.model_fields]
        raise ConfigError(
            f"{self.cls.__name__} has nothing called {name!r} to vary"
            f"{closest(name, [*names, *last, *specials])}; there are "
            f"{', '.join(dict.fromkeys([*own[:_SHOWN], 'llm.temperature', *specials]))}"
        )

    def _argument(self, name: str) -> Target:
        """Return what a name stands for where a function makes the runs: its own argument."""
        takes, any_name = self._taken
        if name in takes or (any_name and name != "model"):
            return "argument", name
        if name == "model" and ("llm_client" in takes or any_name):
            return "model", None
        raise ConfigError(
            f"{_called(self.make)} takes no {name!r}{closest(name, takes)}; it takes "
            f"{', '.join(takes) or 'nothing'}"
        )

    @cached_property
    def _taken(self) -> tuple[list[str], bool]:
        assert self.make is not None
        parameters = inspect.signature(self.make).parameters.values()
        named = [
            one.name for one in parameters if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
        ]
        return named, any(one.kind is one.VAR_KEYWORD for one in parameters)

    # --- making runs -------------------------------------------------------------------------

    def run(self, arm: Arm, seed: int, client: LLMClient | None) -> AnyRun:
        """Return a new run of an arm with a seed, on no tape.

        Raises:
            ConfigError: a level is wrong.
        """
        if self.make is not None:
            return self._called_for(arm, seed, client)
        config = self.config(arm, seed)
        given = self._given(arm)
        if edited := self._prompts(arm, seed):
            given["prompts"] = edited
        return self._constructed(config, given, client)

    def _constructed(
        self, config: Any, given: Mapping[str, Any], client: LLMClient | None
    ) -> AnyRun:
        rest = {name: value for name, value in given.items() if value is not None}
        if "players" in rest and "players" not in self.cls.config_type.model_fields:
            config = self._decided_by(rest.pop("players"), config)
        parts = {name: rest[name] for name in self.cls.part_names if name in rest}
        parts.pop("players", None)  # which are given as they are, and not made of a client
        for name, part in parts.items():
            if not callable(part):
                raise ConfigError(
                    f"{name}={part!r:.60}: runs that are played at once cannot share a part; give "
                    f"what makes it of a client, {name}=lambda client: ..."
                )
        make: Callable[..., AnyRun] = self.cls
        return make(config, llm_client=client, **{**rest, **parts})

    def _decided_by(self, players: Mapping[str, Any], config: Any) -> Any:
        """Return the configuration of a world whose players are not given by name."""
        if players == {"*": "rule"} and hasattr(config, "by_rules"):
            return config.by_rules()
        if players not in ({}, {"*": "model"}):
            raise ConfigError(
                f"players={dict(players)!r:.60}: {self.cls.__name__} takes 'rule' or 'model' here; "
                "vary what it is configured with instead, such as nations.0.kind"
            )
        return config

    def config(self, arm: Arm, seed: int) -> Any:
        """Return an arm's configuration.

        Raises:
            ConfigError: a level is wrong; the message names the arm.
        """
        values: Any = self.base
        for path, value in self._levels(arm, "config"):
            values = _with(values, path, value)
        if isinstance(values, BaseModel):  # no level has made a dict of it yet, to be validated
            values = _with(values, ("seed",), seed)
        # None stays None: the server draws anew then, and nothing is to be counted on.
        before = self.base.replicate if "replicate" in self.base.model_fields_set else 0
        values |= {"seed": seed, **self._own(arm, seed)}
        if arm.further and before is not None:
            values["replicate"] = before + arm.further
        try:
            return self.cls.config_type.model_validate(values)
        except ValidationError as error:
            raise ConfigError(f"{self.cls.__name__}: {faults(error)}") from error

    def _own(self, arm: Arm, seed: int) -> dict[str, Any]:
        """Return what a study says of its runs; one without a name keeps that of its world."""
        turns = {} if self._turns is None else {"turns": self._turns}
        return {**turns, "name": f"{arm.name}, seed {seed}"} if arm.name else turns

    def values(self, arm: Arm) -> dict[str, Any]:
        """Return what an arm varies and what is fixed, by name."""
        return {**self.fixed, **arm.values}

    def kind_of(self, name: str) -> str:
        """Return what a factor's name stands for."""
        return self._targets[name][0]

    def _levels(self, arm: Arm, kind: str) -> Iterator[tuple[Any, Any]]:
        """Yield the levels of one kind of target, each with which of them it is for."""
        for name, value in self.values(arm).items():
            if self.kind_of(name) == kind:
                yield self._targets[name][1], value

    def _given(self, arm: Arm) -> dict[str, Any]:
        """Return what the run is given beside its configuration: players, state, parts."""
        given = dict(self._levels(arm, "part"))
        for _, value in self._levels(arm, "players"):
            who = {"*": value} if not isinstance(value, Mapping | None) else value or {}
            given["players"] = {**given.get("players", {}), **who}
        for _, value in self._levels(arm, "state"):
            if value is not None:
                made = not isinstance(value, BaseModel) and callable(value)
                given["state"] = value() if made else value
        return given

    def llm_settings(self, arm: Arm) -> dict[str, Any]:
        """Return the settings of the model's client that the arm says, such as its temperature."""
        found: dict[str, Any] = {}
        for path, value in self._levels(arm, "config"):
            if path == ("llm",):
                is_model = isinstance(value, BaseModel)
                found |= value.model_dump(exclude_unset=True) if is_model else value
            elif path[0] == "llm":
                found[path[1]] = value
        return found

    def model(self, arm: Arm) -> Any:
        """Return the model that the arm names; None where it names none."""
        return next((value for _, value in self._levels(arm, "model")), None)

    @property
    def llm(self) -> Any:
        """The settings that the configuration has for a model."""
        return None if self.base is None else self.base.llm

    def _called_for(self, arm: Arm, seed: int, client: LLMClient | None) -> AnyRun:
        assert self.make is not None
        takes, any_name = self._taken
        values = dict(self._levels(arm, "argument"))
        own = {"seed": seed, "llm_client": client, "turns": self._turns}
        for name, value in own.items():
            wanted = name in takes or (any_name and name == "seed")
            if wanted and name not in values and value is not None:
                values[name] = value
        run = self.make(**values)
        if not isinstance(run, Run):
            raise WrongFunctionError(
                f"{_called(self.make)} returned {run!r:.60}; it must return a run: return MyWorld("
                "..., seed=seed)"
            )
        if run.config.seed != seed:
            raise WrongFunctionError(
                f"{_called(self.make)}(seed={seed}) returned a run with the seed {run.config.seed};"
                " hand the seed on: MyWorld(..., seed=seed)"
            )
        if run.tape is not None:
            raise WrongFunctionError(
                f"{_called(self.make)} gave its run a tape; leave it out, and give it to what "
                "plays the runs: Study(..., tape='study/')"
            )
        changes = self._own(arm, seed)
        if arm.further and run.config.replicate is not None:
            changes["replicate"] = run.config.replicate + arm.further
        run.config = run.config.model_copy(update=changes)
        return run

    # --- prompts -----------------------------------------------------------------------------

    def unedited(self, arm: Arm, run: AnyRun) -> list[str]:
        """Return places of prompts that a played run used as they were, though the arm edits them.

        A world of one's own says its prompts only as it asks; one that the trial never came to is
        not edited, and then the run is not one of its arm.
        """
        edited = self._edited.get(arm.name)
        if not edited:
            return []
        names = {prompt.name for prompt in edited.values()}
        return [at for at, it in run.prompts.items() if it.name in names and at not in edited]

    def _prompts(self, arm: Arm, seed: int) -> dict[str, Prompt]:
        level = next((it for _, it in self._levels(arm, "prompt")), None)
        if level is None or level == {}:
            return {}
        if arm.name not in self._edited:
            self._edited[arm.name] = _edits(level, self._prompts_there(arm, seed))
        return self._edited[arm.name]

    def _prompts_there(self, arm: Arm, seed: int) -> dict[str, Prompt]:
        """Return the prompts of an arm's run, by their places; a world's own after a trial."""
        given, config = self._given(arm), self.config(arm, seed)
        # What a turn asks with is known once it was asked: chance answers, on no tape.
        config = config.model_copy(update={"players": {}})
        trial = self._constructed(config, {**given, "players": {"*": "random"}}, None)
        try:
            run_sync(trial.play_on(progress=False))
        except LabError as error:
            if not trial.prompts:
                raise ConfigError(
                    f"the prompts of {self.cls.__name__} cannot be found out: a trial with random "
                    f"answers failed: {error}"
                ) from error
        return dict(trial.prompts)

    # --- what identifies it ------------------------------------------------------------------

    def known(self, arm: Arm, run: AnyRun) -> dict[str, Any]:
        """Return what the manifests of an arm's runs share, found out once for all of them."""
        if arm.name not in self._code:
            self._code[arm.name] = run.code_digests
        return {"code": self._code[arm.name]}

    def trial(self, arm: Arm, seed: int) -> AnyRun:
        """Return a run of an arm that is made and not played."""
        return self.run(arm, seed, _nobody(self.llm, **self.llm_settings(arm)))

    def checked(self, arms: Sequence[Arm], seed: int) -> type[AnyRun]:
        """Make a run of each arm on trial; returns their class.

        Raises:
            ConfigError: a level is wrong.
        """
        classes = set()
        for arm in arms:
            try:
                run = self.trial(arm, seed)
            except LabError as error:
                where = f"arm {arm.name!r}: " if len(arms) > 1 else ""
                raise ConfigError(f"{where}{error}") from error
            classes.add(type(run))
            if self._turns is None and self.make is not None:
                self._turns = run.config.turns or None
        if len(classes) > 1:
            names = ", ".join(sorted(cls.__name__ for cls in classes))
            raise ConfigError(f"the arms are of several classes ({names}); one study is of one")
        [cls] = classes
        return cls


def _first_config(config_type: type[Any], fixed: Mapping[str, Any]) -> Any:
    """Return a configuration with what is fixed, to look names up in.

    A parameter that has no default and is varied is not in it.
    """
    fields = config_type.model_fields.keys() - {"players"}
    own = {name: value for name, value in fixed.items() if name in fields}
    try:
        return config_type(**own)
    except ConfigError:
        return config_type.model_construct(**own)


def _nobody(llm: Any, **settings: Any) -> LLMClient:
    """Return a client for runs that are made and not played."""
    config = LLMConfig(**{**(llm or LLMConfig()).model_dump(), **settings})
    return LLMClient(config, ScriptedBackend([]))


def _called(function: Any) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _paths(node: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of a configuration's fields, with those of the settings and lists in it."""
    if isinstance(node, BaseModel):
        items: list[tuple[Any, Any]] = [
            (name, getattr(node, name, None)) for name in type(node).model_fields
        ]
    elif isinstance(node, Mapping):
        items = list(node.items())
    elif isinstance(node, Sequence) and not isinstance(node, str):
        items = list(enumerate(node)) if any(isinstance(it, BaseModel) for it in node) else []
    else:
        return
    for name, value in items:
        yield (*before, name)
        yield from _paths(value, (*before, name))


def _may_be_new(node: Any, path: tuple[Any, ...]) -> bool:
    """Return True for a new key of a mapping, which is there in no configuration yet."""
    for part in path[:-1]:
        if isinstance(node, BaseModel):
            node = getattr(node, str(part), None)
        elif isinstance(node, Mapping):
            node = node.get(part)
        else:
            return False
    return isinstance(node, Mapping)


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
        items = list(node)
        for place in range(len(items)) if head == "*" else [head]:
            items[place] = _with(items[place], rest, value)
        return items
    there: Mapping[Any, Any] = node if isinstance(node, Mapping) else {}
    return {**there, head: _with(there.get(head), rest, value)}


def _edits(level: Any, there: Mapping[str, Prompt]) -> dict[str, Prompt]:
    """Return prompts with the edits of a level, by their places.

    Args:
        level: a prompt, a text, a function of the old text; or these by a prompt's name or place.
        there: the prompts as they are, by their places.
    """
    names = list(dict.fromkeys(prompt.name for prompt in there.values()))
    if isinstance(level, Prompt):
        level = {level.name: level}
    if not isinstance(level, Mapping):
        players = dict.fromkeys(it.name for at, it in there.items() if at.startswith("agent"))
        named = names if len(names) == 1 else list(players)
        if len(named) != 1:
            raise ConfigError(
                f"prompt: say which prompt is edited, {{name: {level!r:.30}}}; there are "
                f"{', '.join(names) or 'none'}"
            )
        level = {named[0]: level}
    found: dict[str, Prompt] = {}
    for name, edit in level.items():
        places = [at for at, it in there.items() if name in (it.name, at)]
        if not places:
            raise ConfigError(f"prompt: no prompt is called {name!r}{among(name, names)}")
        found |= {at: _edited(there[at], edit) for at in places}
    return found


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
        named = world.model(arm)
        model = self.given if named is None else named
        if model is None:
            return None
        client = self._client(model, world.llm)
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
