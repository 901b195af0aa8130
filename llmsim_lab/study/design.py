"""Designs of studies: factors, the arms that their levels make, and how an arm's run is made.

A *factor* is something that is varied, a *level* is one of its values, and an *arm* has one level
of each factor. A wrong name or level raises before anything is played, since the names are resolved
and one run of every arm is made when the study is made.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import linecache
import logging
import math
import re
import types
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from textwrap import dedent
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from llmsim_lab._util.checks import (
    as_whole_number,
    item_count,
    items_of,
    plain_number,
    plain_numbers,
    text_argument,
    whole_number,
)
from llmsim_lab._util.jsontext import dumps, text_of_model
from llmsim_lab._util.text import (
    among,
    brief,
    clip,
    closest,
    error_text,
    faults,
    log_event,
    plain_text,
)
from llmsim_lab.errors import ConfigError, LabError, PromptError
from llmsim_lab.llm import LLMClient, LLMConfig, Tape, connect
from llmsim_lab.llm.client import run_client
from llmsim_lab.prompts import Prompt
from llmsim_lab.run import Run
from llmsim_lab.run.config import StateChange, WorldConfig
from llmsim_lab.run.guided import ask_anew, edit_prompts, edits_of
from llmsim_lab.run.plain_prompts import is_as_written
from llmsim_lab.run.recorded import (
    listed_interventions,
    live_client,
    recorded_run,
    warn_of_settings,
)
from llmsim_lab.run.records import config_of
from llmsim_lab.run.world import checked_state
from llmsim_lab.tape import RunInfo
from llmsim_lab.tape.changes import PATIENCE

logger = logging.getLogger(__name__)

LAST = "@last"
"""The ending of an outcome's name that stands for the last value of a column."""
_LAMBDA = "<lambda>"
_MILLION = 1_000_000
_LONGEST_LABEL = 40
"""Characters of a label that is made from a level."""
MOST_SAMPLES = 10_000
"""Most samples of a situation; also the distance between the draws of two wordings in ``begin``."""
MOST_RUNS = 50_000
"""Of a study: each has a file, which is looked for when the study is made."""
_LARGEST_SEED = 2**64 - 1
_MOST_ARMS = 1_000
_MOST_SETTINGS = 10_000_000
"""Characters in the settings of the runs that are made before anything is played, one for each arm
and wording: four of 10,000 users."""
_SHORT_SETTINGS = 10_000
"""A run with few settings takes as long to make as one with so many characters."""
_SPECIAL = ("model", "prompt", "players", "state", "interventions")
"""Factors that every world has beside its parameters."""
_SET_BY_STUDY = {
    "seeds": "seeds=",
    "turns": "turns=",
    "name": "name=",
    "outcome": "outcome=",
    "tape": "tape=",
    "seed": "seeds=",
    # A former argument, which compared two equal arms.
    "aa": "vary={'replicate': [0, 1]}",
}
"""Names that are not factors, with the argument of ``Study`` that sets them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One of the variants that a study compares.

    Attributes:
        name: its name in charts and effects.
        levels: the labels of its levels, by factor.
        values: the levels themselves, by factor.
    """

    name: str
    levels: Mapping[str, str]
    values: Mapping[str, Any] = field(repr=False)


# --- factors and arms ----------------------------------------------------------------------------


def labelled(argument: str, levels: object) -> dict[str, Any]:
    """Return a list or a mapping of levels as a dict by label.

    Args:
        argument: the argument that has the levels, for the error.
        levels: as a user gives them.

    Raises:
        ConfigError: there are none, or two have the same label.
    """
    # Also numbers of numpy and pandas: vary={"rate": np.linspace(0, 1, 3)}.
    levels = plain_numbers(levels)
    labels: list[str] = []
    values: list[Any] = []
    if isinstance(levels, Mapping):
        labels = [plain_text(label) for label in levels]
        values = list(levels.values())
    elif isinstance(levels, Sequence) and not isinstance(levels, str):
        if item_count(levels) > _MOST_ARMS:
            raise ConfigError(
                f"{argument}={brief(levels)} has more than {_MOST_ARMS:,} levels, and a study has "
                "at most so many arms"
            )
        values = list(map(plain_number, levels))
        labels = list(map(label_of, values))
        counts = Counter(labels)
        for place, level in enumerate(values):
            # In six digits two numbers may be alike that are not.
            if isinstance(level, float) and counts[labels[place]] > 1:
                labels[place] = _in_all_digits(level)
    elif levels is not None:
        raise ConfigError(
            f"{argument}={brief(levels, 40)} is not a list; write [{brief(levels, 40)}] for one"
        )
    if not labels:
        raise ConfigError(f"{argument} is empty; name at least one")
    # Such as 1 and 1.0, which would be one arm.
    [(label, count)] = Counter(labels).most_common(1)
    if count > 1:
        raise ConfigError(
            f"{argument} has two called {label!r}; label them: {{'{label}': ..., 'another': ...}}"
        )
    return dict(
        zip(
            labels,
            map(plain_number, values),
            strict=True,
        )
    )


def _in_all_digits(level: float) -> str:
    return repr(float(level)).removesuffix(".0")


def label_of(level: Any) -> str:
    """Return a label for a level that a user gave without one."""
    level = plain_number(level)
    if isinstance(level, str):
        return level
    # Truth values are ints in Python, and are labelled "True" and "False" below.
    is_number = isinstance(level, int | float) and not isinstance(level, bool)
    if is_number and abs(level) < _MILLION:
        # In six digits: names of arms stand on tapes, so that this stays.
        return f"{level:g}"
    if isinstance(level, float):
        return _in_all_digits(level)
    if is_number:
        return plain_text(int(level))
    if isinstance(level, LLMClient):
        return level.config.model
    # A prompt has a name, a function a __name__.
    function_name = getattr(level, "__name__", None)
    name = getattr(level, "name", function_name)
    if name == _LAMBDA:
        return _body_of(level) or "function"
    if isinstance(name, str) and callable(level):
        return name or plain_text(level)
    if not isinstance(name, str):
        # Without its address, which differs in each session.
        name = re.sub(r" at 0x[0-9a-fA-F]+", "", plain_text(level))
    if len(name) <= _LONGEST_LABEL:
        return name
    return f"{name[: _LONGEST_LABEL - 1]}…"


def _body_of(function: Any) -> str:
    """Return the source of a lambda's body; empty where the source is not known."""
    # Python does not keep where a lambda begins and ends, and a line may hold several of them. The
    # places of its instructions tell.
    code = function.__code__
    starts = []
    ends = []
    for first_line, last_line, first_column, last_column in code.co_positions():
        has_place = None not in (first_line, last_line, first_column, last_column)
        # Instructions that Python adds have no place, or no width.
        if has_place and first_column != last_column:
            starts.append((first_line, first_column))
            ends.append((last_line, last_column))
    if not starts:
        return ""
    first_line, start = min(starts)
    last_line, end = max(ends)
    lines = []
    for number in range(first_line, last_line + 1):
        line = linecache.getline(code.co_filename, number)
        # Columns are counted in bytes.
        lines.append(line.encode())
    # The end first: in a single line, cutting the beginning would move the end.
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    body = b" ".join(lines)
    return clip(body.decode(errors="replace"), _LONGEST_LABEL)


def _arm(
    factors: Mapping[str, Mapping[str, Any]],
    labels: Iterable[str],
) -> Arm:
    levels = dict(
        zip(
            factors,
            labels,
            strict=True,
        )
    )
    values = {name: factors[name][label] for name, label in levels.items()}
    words = []
    # A factor with one level does not distinguish arms.
    varied = [name for name in levels if len(factors[name]) > 1]
    for name in varied or levels:
        label = levels[name]
        value = values[name]
        is_number_or_none = isinstance(value, int | float | None)
        # A number alone says nothing; a word such as "hawkish" does.
        if is_number_or_none and label == label_of(value):
            words.append(f"{name}={label}")
        else:
            words.append(label)
    return Arm(
        name=" · ".join(words) or "all",
        levels=levels,
        values=values,
    )


def seeds_of(seeds: int | Sequence[int]) -> list[int]:
    """Return a list of seeds; a number stands for 0, 1, ….

    Raises:
        ConfigError: the list is empty, or has a seed twice.
    """
    seeds = plain_numbers(seeds)
    if as_whole_number(seeds) is not None:
        number = whole_number(
            "seeds",
            seeds,
            least=1,
            most=MOST_RUNS,
        )
        return list(range(number))
    if not isinstance(seeds, Sequence) or item_count(seeds) == 0:
        raise ConfigError(f"seeds={brief(seeds)} must be a number of seeds, or a list of them")
    if item_count(seeds) > MOST_RUNS:
        raise ConfigError(f"seeds={brief(seeds)} are more than {MOST_RUNS:,}, the most of a study")
    numbers = [whole_number("a seed", seed, most=_LARGEST_SEED) for seed in seeds]
    [(seed, count)] = Counter(numbers).most_common(1)
    if count > 1:
        raise ConfigError(f"seeds={brief(seeds)} names seed {seed} twice, which is no further run")
    return numbers


# --- the world -----------------------------------------------------------------------------------


class Play(NamedTuple):
    """The wording and the sample, which identify an arm's run in a unit.

    Attributes:
        wording: the number of the arm's wording, from 0.
        sample: the number of the situation's sample, from 1.
    """

    wording: int = 0
    sample: int = 1


FIRST_PLAY = Play()


class SharedTurns(NamedTuple):
    """The turns that the runs of two arms have in common.

    Attributes:
        turn: the last turn that both share.
        changes: how many of the arm's interventions are made up to that turn.
    """

    turn: int
    changes: int


class _Parameter(NamedTuple):
    """A path into a world's configuration, and the value that an arm has there."""

    path: tuple[str, ...]
    value: Any


def check_world(source: object) -> None:
    """Raise ConfigError for what is not a Run class."""
    if isinstance(source, type) and issubclass(source, Run):
        return
    if isinstance(source, Run):
        raise ConfigError(
            f"a study makes its runs itself: give the class, {type(source).__name__}, not a run of "
            "it"
        )
    raise ConfigError(f"{brief(source)} is not something to play; give a Run class")


class World:
    """Makes the runs of a study: new runs of an arm and a seed, or recorded runs continued.

    Args:
        source: a ``Run`` class.
        fixed: what is the same in all arms, by the names that can also be varied.
        vary: levels by factor.
        turns: how many turns a run has; the configuration's number if None.
        recorded: the configuration of a recorded run whose situations are asked again, or None.
        recorded_llm: the settings that this run's model was asked with.

    Raises:
        ConfigError: ``source`` is not a Run class, or a name stands for nothing.
    """

    def __init__(
        self,
        source: Any,
        fixed: dict[str, Any],
        vary: Any,
        *,
        turns: int | None = None,
        recorded: Any = None,
        recorded_llm: LLMConfig | None = None,
    ) -> None:
        if not isinstance(vary, Mapping | None):
            raise ConfigError(f"vary={brief(vary)} is not a mapping, such as {{'factor': [1, 2]}}")
        self.factors: dict[str, dict[str, Any]] = {}
        for name, levels in (vary or {}).items():
            text_argument("a factor in vary", name)
            self.factors[name] = labelled(f"vary[{brief(name)}]", levels)
        check_world(source)
        # Which of the two values counts would be a guess.
        in_both = fixed.keys() & self.factors.keys()
        if in_both:
            raise ConfigError(f"{', '.join(sorted(in_both))} cannot be both fixed and varied")
        self.cls: type[Run] = source
        self.fixed = fixed
        self.asks_again = recorded is not None
        self.code: dict[str, str] = {}
        self.base = recorded or _first_config(source.config_type, fixed)
        self.recorded_llm = recorded_llm
        self.turns = 0
        if not self.asks_again:
            end = self.base.turns if turns is None else turns
            self.turns = whole_number(
                "turns",
                end,
                least=1,
            )
        names = [name for name in (*fixed, *self.factors) if name not in _SPECIAL]
        self._paths = {name: self._path(name) for name in names}
        _check_model(fixed.get("model"), "model 'fixed'")
        for label, model in self.factors.get("model", {}).items():
            _check_model(model, f"model {label!r}")

    def _path(self, name: str) -> tuple[str, ...]:
        """Return the path into the configuration that a name stands for."""
        fields = self.cls.config_type.model_fields
        arguments = dict(_SET_BY_STUDY)
        if self.asks_again:
            arguments["replicate"] = "samples="
        # A world may have a parameter of its own that is called ``outcome`` or ``tape``.
        is_of_world = name in fields and name not in WorldConfig.model_fields
        if name in arguments and not is_of_world:
            raise ConfigError(f"{brief(name)} is not a factor; a study takes {arguments[name]}")
        path = tuple(name.split("."))
        first = path[0]
        # "llm.model" is not a factor, since "model" is.
        settings = [setting for setting in LLMConfig.model_fields if setting != "model"]
        is_setting = len(path) == 1 or path[1] in settings
        if first in fields and (first != "llm" or is_setting):
            return path
        not_listed = {*WorldConfig.model_fields, *_SPECIAL}
        known_names = [field for field in fields if field not in not_listed]
        known_names += [*_SPECIAL, "rationale"]
        if not self.asks_again:
            known_names.append("replicate")
        known_names += [f"llm.{setting}" for setting in settings]
        meant = name if first == "llm" else first
        suggestion = among(meant, known_names)
        # "sede" is close to no name of the world, but to an argument of Study.
        if not closest(meant, known_names):
            suggestion = closest(name, _SET_BY_STUDY) or suggestion
        raise ConfigError(
            f"{self.cls.__name__} has nothing called {brief(name)} to vary{suggestion}"
        )

    def arms(self) -> list[Arm]:
        """Return an arm for each combination of levels, the reference first.

        Raises:
            ConfigError: there are too many, or two have the same name.
        """
        count = math.prod(map(len, self.factors.values()))
        if count > _MOST_ARMS:
            words = " x ".join(f"{len(levels):,}" for levels in self.factors.values())
            raise ConfigError(
                f"vary= makes {words} = {count:,} arms, and a study has at most {_MOST_ARMS:,}; "
                "leave out levels or a factor"
            )
        combinations = product(*self.factors.values())
        arms = [_arm(self.factors, labels) for labels in combinations]
        names = Counter(arm.name for arm in arms)
        [(name, count)] = names.most_common(1)
        if count > 1:
            factor = next(iter(self.factors))
            raise ConfigError(
                f"two arms are called {name!r}; label the levels: "
                f"vary={{{factor!r}: {{'one': ..., 'other': ...}}}}"
            )
        return arms

    def name_without(self, arm: Arm, factor: str) -> str:
        """Return the name that an arm would have without a factor."""
        factors = {name: levels for name, levels in self.factors.items() if name != factor}
        labels = [arm.levels[name] for name in factors]
        return _arm(factors, labels).name

    def level(self, arm: Arm, name: str) -> Any:
        """Return an arm's level of ``model``, ``prompt``, ...; None where the arm has none."""
        if name in arm.values:
            return arm.values[name]
        return self.fixed.get(name)

    def _parameters(self, arm: Arm) -> Iterator[_Parameter]:
        """Yield the parameters that an arm varies, and those that are fixed."""
        levels = {**self.fixed, **arm.values}
        for name, path in self._paths.items():
            if name in levels:
                yield _Parameter(path, levels[name])

    def wordings(self, arm: Arm) -> dict[str, Any]:
        """Return the edits of an arm's prompts by label; several are wordings of one idea."""
        level = self.level(arm, "prompt")
        _check_edit(level)
        if isinstance(level, str) or not isinstance(level, Sequence):
            return {"": level}
        numbered = {}
        named = {}
        for number, wording in enumerate(level, 1):
            label = f"wording {number}"
            numbered[label] = wording
            # The body of a lambda is code, and no label for a wording.
            if getattr(wording, "__name__", "") != _LAMBDA:
                label = label_of(wording)
            named[label] = wording
        # Two wordings with the same label would be one.
        are_all_named = len(named) == len(level)
        return labelled("prompt", named if are_all_named else numbered)

    def interventions(
        self,
        arm: Arm,
        turn: int = 0,
    ) -> list[StateChange]:
        """Return what an arm sets from outside, in order; ``turn`` counts where none is named."""
        level = self.level(arm, "interventions")
        if level is None:
            level = ()
        if not isinstance(level, Mapping):
            level = items_of(
                "interventions", level, Mapping, "new values by name, or a list of them"
            )
        listed = listed_interventions(level, turn)
        # A turn in ``change`` takes the place of ``turn``.
        changes = [StateChange(**{"turn": turn, **change}) for change in listed]
        return sorted(changes, key=lambda change: change.turn)

    def shared_turns(self, arm: Arm, leader: Arm) -> SharedTurns | None:
        """Return what two arms share whose other levels are equal; None if nothing."""
        changes = self.interventions(arm)
        changes_of_leader = self.interventions(leader)
        # The leader itself, or an arm that differs in another factor.
        if changes == changes_of_leader:
            return None
        same = 0
        for change, leaders_change in zip(changes, changes_of_leader, strict=False):
            if change != leaders_change:
                break
            same += 1
        turns_of_arm = [change.turn for change in changes[same:]]
        turns_of_leader = [change.turn for change in changes_of_leader[same:]]
        # A change after the last turn has no effect.
        last_shared = min(self.turns, *turns_of_arm, *turns_of_leader)
        if last_shared in turns_of_leader:
            # The leader's change is in that turn's state already.
            last_shared -= 1
            same = sum(change.turn <= last_shared for change in changes)
        if last_shared < 0:
            return None
        return SharedTurns(last_shared, same)

    # --- making runs -------------------------------------------------------------------------

    def begin(
        self,
        arm: Arm,
        client: LLMClient | None,
        number: int,
        play: Play = FIRST_PLAY,
        source: Tape | None = None,
        changes_done: int = 0,
    ) -> Run:
        """Return a run of an arm that is on no tape yet, new or continuing a recorded run.

        Args:
            arm: the arm.
            client: the model.
            number: the seed, or the recorded run's number.
            play: which of the arm's wordings, and which sample.
            source: the tape of the recorded run, which is continued from its last turn.
            changes_done: how many of the arm's interventions the recorded run has had already.

        Raises:
            ConfigError: a level is wrong.
        """
        if source is None:
            run = self._new_run(arm, client, number, play)
        else:
            run = self._continued(
                arm,
                client,
                source.run(number),
                play,
                source,
            )
        self.edit(run, arm, play.wording)
        self._intervene(run, arm, changes_done)
        return run

    def _new_run(
        self,
        arm: Arm,
        client: LLMClient | None,
        seed: int,
        play: Play,
    ) -> Run:
        """Return a new run with an arm's levels."""
        config = self.config(
            arm,
            {"seed": seed, "turns": self.turns},
            self.base,
        )
        run = self.cls(
            config,
            llm_client=client,
            state=self.level(arm, "state"),
            players=self.level(arm, "players"),
        )
        # Each wording has its own sampling seeds: with the same seeds, wordings would be more alike
        # than new ones are. Without a replicate the server draws the seeds.
        first_draw = run.config.replicate
        if first_draw is not None:
            draw = first_draw + MOST_SAMPLES * play.wording
            run.config = run.config.model_copy(update={"replicate": draw})
        return run

    def _intervene(
        self,
        run: Run,
        arm: Arm,
        changes_done: int,
    ) -> None:
        """Plan an arm's interventions in a run, without those that it has had already.

        Raises:
            ConfigError: the run does not reach an intervention's turn.
        """
        changes = self.interventions(arm, run.turn_number)
        for change in changes[changes_done:]:
            if self.asks_again and change.turn != run.turn_number:
                raise ConfigError(
                    f"turn {change.turn} is not the situation's: leave out the turn, and "
                    f"{change.set} is set in each"
                )
            if not self.asks_again and change.turn > self.turns:
                raise ConfigError(
                    f"turn {change.turn} is never reached, since runs end at turn {self.turns}"
                )
            run.intervene(
                change.turn,
                change.set,
                note=change.note,
            )

    def _continued(
        self,
        arm: Arm,
        client: LLMClient | None,
        info: RunInfo,
        play: Play,
        tape: Tape,
    ) -> Run:
        """Return a recorded run with an arm's levels that asks the model and is on no tape yet."""
        if self.asks_again:
            recorded = config_of(info, self.cls)
            # Each sample and wording has its own sampling seed; none has the recorded one.
            first_draw = (recorded.replicate or 0) + play.sample
            draw = first_draw + MOST_SAMPLES * play.wording
            config = self.config(arm, {"replicate": draw}, recorded)
            as_json = config.model_dump(
                mode="json",
                by_alias=True,
            )
            info = replace(info, manifest={**info.manifest, "config": as_json})
        run: Run = recorded_run(
            tape,
            info,
            self.cls,
            llm_client=client,
            arguments={"players": self.level(arm, "players")},
        )
        # A recorded run answers from its tape; this run asks the model.
        run.llm_client = live_client(run, None)
        ask_anew(run)
        if not self.asks_again:
            # The recorded run is a leader's, whose interventions are not this arm's.
            run.planned = ()
        state = self.level(arm, "state")
        # This state replaces the recorded one, which all arms continue otherwise.
        if self.asks_again and state is not None:
            checked = checked_state(run, state, "starts from")
            run.turns[-1] = replace(
                run.turns[-1],
                state=checked,
            )
        return run

    def config(
        self,
        arm: Arm,
        changes: Mapping[str, Any],
        base: Any,
    ) -> Any:
        """Return a configuration, the world's own or a recorded one, changed to an arm's levels.

        Raises:
            ConfigError: a level is wrong.
        """
        # Only fields that were set: others may be computed from those that an arm changes.
        values = {name: getattr(base, name) for name in base.model_fields_set}
        for path, value in self._parameters(arm):
            field, *rest = path
            default = getattr(base, field, None)
            old = values.get(field, default)
            values[field] = with_value(
                old,
                rest,
                value,
            )
        values.update(changes)
        try:
            return self.cls.config_type.model_validate(values)
        except ValidationError as error:
            raise ConfigError(f"{self.cls.__name__}: {faults(error)}") from error

    def llm_settings(self, arm: Arm) -> dict[str, Any]:
        """Return the client's settings that an arm varies or fixes, such as the temperature."""
        settings: dict[str, Any] = {}
        for path, value in self._parameters(arm):
            if path[0] != "llm":
                continue
            if len(path) > 1:
                settings[path[1]] = value
            else:
                settings |= dict(value)
        # The client has its own model.
        settings.pop("model", None)
        return settings

    def edit(
        self,
        run: Run,
        arm: Arm,
        wording: int,
        *,
        resumed: bool = False,
    ) -> None:
        """Edit a run's prompts: those that it has now, and others when they are first asked."""
        wordings = list(self.wordings(arm).values())
        level = wordings[wording]
        if level is None:
            return
        names: set[str] = set()
        if resumed:
            # The prompts of a resumed run were edited before.
            names = {place.partition("#")[0] for place in run.prompts}
        edits = PromptEdits(level, names)
        edit_prompts(run, edits)
        if resumed:
            return
        before = run.prompts
        edited = {place: edits(prompt) for place, prompt in before.items()}
        # A prompt without slots may have another text in each turn, and the run has the text that
        # was asked first. A function edits each text when it is asked, so the first one stays here.
        noted = {
            place: prompt
            for place, prompt in before.items()
            if is_as_written(prompt) and not edits.is_fixed(prompt.name)
        }
        run.prompts = edited | noted

    def checked(
        self,
        arms: Sequence[Arm],
        seed: int,
        source: Tape | None,
    ) -> Run:
        """Make a trial run of each arm, and return that of the first.

        Args:
            arms: the arms.
            seed: the seed, or the number of the recorded run on ``source``.
            source: the tape of the recorded run that the arms would continue.

        Raises:
            ConfigError: a level is wrong.
        """
        made = 0
        settings = 0
        first: Run | None = None
        for arm in arms:
            try:
                for wording in range(len(self.wordings(arm))):
                    run = self.begin(
                        arm,
                        None,
                        seed,
                        Play(wording),
                        source,
                    )
                    if first is None:
                        first = run
                    made += 1
                    settings += max(len(text_of_model(run.config)), _SHORT_SETTINGS)
                    if settings > _MOST_SETTINGS:
                        raise ConfigError(
                            f"with it {made:,} arms and wordings are tried, and with settings as "
                            "long as these a study has no more; take fewer, or a smaller population"
                        )
                    edits = edits_of(run)
                    # A recorded run has its prompts; a new run has them only when it asks.
                    if source is not None and isinstance(edits, PromptEdits):
                        edits.check()
            except LabError as error:
                raise ConfigError(f"arm {brief(arm.name, 200)}: {error}") from error
        assert first is not None  # a study has an arm
        # Computed here, since a worker on another machine has no source files.
        self.code = first.code_digests
        return first


def _first_config(
    config_type: type[Any],
    fixed: Mapping[str, Any],
) -> Any:
    """Return a configuration with the fixed values; parameters without a default may be missing."""
    parameters = config_type.model_fields.keys() - {*_SPECIAL}
    values = {name: fixed[name] for name in fixed if name in parameters}
    try:
        return config_type(**values)
    except ConfigError:
        # Arms may have the missing values; each is validated when its run is made.
        return config_type.model_construct(**values)


def with_value(
    node: Any,
    path: Sequence[str],
    value: Any,
) -> Any:
    """Return a configuration's values with one of them changed, to be validated anew.

    A number is a place in a list, ``nations.0.inflation_target``, and a key of a mapping.

    Fields that were not set are left out, since they may be computed from the changed one.
    """
    if not path:
        return value
    head, *rest = path
    if isinstance(node, Sequence) and not isinstance(node, str):
        place = int(head) if head.isdecimal() else len(node)
        if place >= len(node):
            raise ConfigError(f"there is no place {head} among {len(node)}: {brief(node)}")
        items = list(node)
        items[place] = with_value(node[place], rest, value)
        return items
    values: dict[Any, Any] = {}
    key: object = head
    if isinstance(node, BaseModel):
        old = getattr(node, head, None)
        for name in node.model_fields_set:
            values[name] = getattr(node, name)
    elif isinstance(node, Mapping):
        # Keys of the mapping itself may be numbers.
        key = next((known for known in node if str(known) == head), head)
        old = node.get(key)
        values.update(node)
    else:
        # The path leads into a value that was not set, which is made.
        old = None
    values[key] = with_value(old, rest, value)
    return values


def _check_edit(edit: Any) -> None:
    """Raise ConfigError for what is neither an edit of a prompt nor several wordings of one."""
    edits = [edit]
    if isinstance(edit, Sequence) and not isinstance(edit, str):
        if item_count(edit) > _MOST_ARMS:
            raise ConfigError(
                f"prompt={brief(edit)} has more than {_MOST_ARMS:,} wordings; give fewer"
            )
        edits = list(edit)
    for wording in edits:
        named = wording.values() if isinstance(wording, Mapping) else [wording]
        for item in named:
            if not (callable(item) or isinstance(item, str | Prompt | None)):
                raise ConfigError(
                    f"prompt={brief(item)} is not an edit; give a text, a Prompt, a function of "
                    "the old text, or these by a prompt's name"
                )


class PromptEdits:
    """Edits a run's prompts, each when the run first asks with it.

    Args:
        level: a prompt, a text, a function of the old text; or these by a prompt's name.
        names: the prompts that were edited before.

    Attributes:
        names: the prompts so far.
        changed: whether an edit has changed a prompt.
    """

    def __init__(
        self,
        level: Any,
        names: Iterable[str] = (),
    ) -> None:
        self.level = level
        if isinstance(level, Prompt):
            # A prompt replaces the one that has its name, and no other.
            self.level = {level.name: level}
        self.names = set(names)
        self.changed = False

    def __call__(self, prompt: Prompt) -> Prompt:
        """Return the edited prompt.

        Raises:
            PromptError: the edit names no prompt and there are several, or it gives no text.
        """
        self.names.add(prompt.name)
        edit = self._edit_of(prompt.name)
        kinds = self.names
        if callable(edit):
            # A function may edit all questions of a kind, such as ``offer`` and ``offer@2``.
            kinds = {name.partition("@")[0] for name in self.names}
        if self.is_of_all and len(kinds) > 1:
            raise PromptError(
                f"prompt: there are several, {', '.join(sorted(self.names))}, …; say which is "
                f"edited: {{{prompt.name!r}: ...}}"
            )
        try:
            edited = _edited(prompt, edit)
        except Exception as error:
            raise PromptError(
                f"prompt {prompt.name!r}: {brief(edit, 50)} gives none: {error_text(error)}. Write "
                "a Prompt, a text, or a function of the old text that returns the new one"
            ) from error
        self.changed |= edited.digest != prompt.digest
        return edited

    def _edit_of(self, name: str) -> Any:
        if isinstance(self.level, Mapping):
            return self.level.get(name)
        return self.level

    def is_fixed(self, name: str) -> bool:
        """Return True where the edited prompt does not depend on the old one."""
        return not callable(self._edit_of(name))

    @property
    def is_of_all(self) -> bool:
        """Whether the edit names no prompt, so that there must be one kind of question."""
        return not isinstance(self.level, Mapping)

    @property
    def missing(self) -> list[str]:
        """The names of edited prompts that the run has not asked with so far."""
        if isinstance(self.level, Mapping):
            return [name for name in self.level if name not in self.names]
        # An edit of all prompts misses one where nothing was asked at all.
        return [] if self.names else [""]

    def check(self) -> None:
        """Raise PromptError where the run has not asked with an edited prompt."""
        missing = self.missing
        if missing and not self.names:
            raise PromptError("prompt: the world asked nobody anything, so none can be edited")
        if missing:
            suggestion = among(missing[0], self.names)
            raise PromptError(f"prompt: no prompt is called {missing[0]!r}{suggestion}")


def _edited(prompt: Prompt, edit: Any) -> Prompt:
    """Return an edited prompt; the edit is a function of its text, a text, a prompt, or None."""
    if edit is None:
        return prompt
    if callable(edit):
        # Only a text with a system message has the marks of the two messages.
        old_text = prompt.text if prompt.system else prompt.user
        edit = edit(old_text)
    if isinstance(edit, Prompt):
        return edit
    return prompt.edit(edit)


class _MadeClient(NamedTuple):
    """The client of a model, and whether the user gave only the model's name, without settings."""

    client: LLMClient
    is_named: bool


class Models:
    """The clients that a study's runs ask: one for each model, made when it is first needed.

    Args:
        given: the client of arms that name no model: a client, a text as ``connect`` takes it, or
            a function that makes a client.
        samples: how often each situation is asked.
    """

    def __init__(self, given: Any, samples: int = 1) -> None:
        self.given = given
        self.samples = samples
        _check_model(given, "llm_client")
        self._clients: dict[Any, _MadeClient] = {}

    def of(
        self,
        world: World,
        arm: Arm,
        recorded: LLMConfig | None = None,
    ) -> LLMClient | None:
        """Return the client of an arm's runs; None where there is no model.

        Args:
            world: the study's.
            arm: the arm; its settings replace those of the client.
            recorded: the settings of the recorded run. A model that is given as a text, such as
                ``ollama:llama3.2``, is asked with them; a client has its own settings.

        Raises:
            ConfigError: the model cannot be reached, or one of its settings is wrong.
        """
        named = world.level(arm, "model")
        model = self.given if named is None else named
        if model is None:
            return None
        # One client for each model, since a client limits its requests in flight.
        key = model if isinstance(model, str) else id(model)
        if key not in self._clients:
            self._clients[key] = self._made(world, model)
        client, is_named = self._clients[key]
        if is_named and recorded is not None:
            # Timeouts and retries suit this machine's server, not that of the recorded run.
            patience = {name: getattr(client.config, name) for name in ("model", *PATIENCE)}
            client = client.with_config(recorded.model_copy(update=patience))
        settings = world.llm_settings(arm)
        if settings:
            values = client.config.model_dump()
            values.update(settings)
            # Validated anew, since model_copy takes any value.
            config = type(client.config)(**values)
            client = client.with_config(config)
        if "replicate" in arm.values and client.config.seed is not None:
            raise ConfigError(
                "replicates need different sampling seeds, and llm.seed fixes them: leave it out"
            )
        return client

    def _made(self, world: World, model: Any) -> _MadeClient:
        """Return the client of a model."""
        chosen = model() if callable(model) else model
        if isinstance(chosen, str):
            settings = world.recorded_llm
            if settings is None:
                # A world's own, where it has such a parameter.
                settings = getattr(world.base, "llm", None)
            return _MadeClient(
                connect(
                    chosen,
                    config=settings,
                    quiet=True,
                ),
                is_named=True,
            )
        client = run_client(chosen)
        if client is None:
            raise ConfigError(f"{brief(model)} made no client; return connect('auto')")
        if world.recorded_llm is not None:
            warn_of_settings(world.recorded_llm, client.config, "each situation")
        seed = client.config.seed
        if self.samples > 1 and seed is not None:
            without_seed = client.config.model_copy(update={"seed": None})
            client = client.with_config(without_seed)
            log_event(
                logger,
                logging.WARNING,
                "SEED_LEFT_OUT",
                words=f"seed={seed} is left out: with it all {self.samples} samples would be one",
                seed=seed,
            )
        return _MadeClient(client, is_named=False)


def _check_model(model: Any, argument: str) -> None:
    """Raise ConfigError for a model that is neither a client, a text nor a function."""
    is_client = hasattr(model, "call_with_retry") and not isinstance(model, type)
    # A name or a function is tried when the model is first needed.
    is_made_later = model is None or isinstance(model, str) or callable(model)
    if is_client or not is_made_later:
        run_client(model, argument)


# --- what identifies a design --------------------------------------------------------------------

_UNCHANGING = (
    bool,
    int,
    float,
    str,
    bytes,
    tuple,
    frozenset,
    Prompt,
    BaseModel,
    types.NoneType,
)
"""Types whose values identify a level; values of other types may change as runs are played."""


def stable_json(value: Any) -> Any:
    """Return JSON that identifies a level; it is the same in every process."""
    # JSON has no infinity.
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Prompt):
        return f"prompt {value.name} {value.digest[:12]}"
    if isinstance(value, LLMClient):
        return f"client {value.config.model} on {type(value.backend).__name__}"
    if isinstance(value, BaseModel):
        return stable_json(value.model_dump(mode="json"))
    if isinstance(value, Mapping):
        return {str(name): stable_json(item) for name, item in value.items()}
    if isinstance(value, set | frozenset):
        items = [stable_json(item) for item in value]
        # The order of a set differs between processes.
        return sorted(items, key=dumps)
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [stable_json(item) for item in value]
    if isinstance(value, types.CodeType):
        # Without line numbers: a comment above a function does not change what it does.
        constants = [stable_json(constant) for constant in value.co_consts]
        return [
            value.co_code.hex(),
            list(value.co_names),
            constants,
        ]
    if isinstance(value, functools.partial):
        return [
            "partial",
            stable_json(value.func),
            stable_json(value.args),
            stable_json(value.keywords),
        ]
    if hasattr(value, "__code__"):
        text = dumps(_of_function(value))
        digest = hashlib.sha256(text.encode()).hexdigest()
        name = getattr(value, "__name__", type(value).__name__)
        return f"function {name} {digest[:12]}"
    return f"{type(value).__name__} {_described(value)}".strip()


def _described(value: Any) -> str:
    """Return an object's own repr; without one, its public attributes that do not change."""
    plain: Any = object.__repr__
    if type(value).__repr__ is not plain:
        # Addresses differ between processes.
        return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))
    attributes = {
        name: attribute
        for name, attribute in getattr(value, "__dict__", {}).items()
        if name[0] != "_" and isinstance(attribute, _UNCHANGING)
    }
    return dumps(stable_json(attributes)) if attributes else ""


def _of_function(
    function: Any,
    above: tuple[int, ...] = (),
) -> Any:
    """Return a function's code, its defaults, and its variables from the function around it."""
    function = getattr(function, "__func__", function)
    if id(function) in above:
        # A recursive function has itself in a cell.
        return "itself"
    cells = []
    for cell in function.__closure__ or ():
        # A cell may be empty.
        with suppress(ValueError):
            cells.append(cell.cell_contents)
    defaults = list(function.__defaults__ or ())
    defaults += (function.__kwdefaults__ or {}).values()
    kept = []
    for item in (*defaults, *cells):
        if hasattr(item, "__code__"):
            kept.append(_of_function(item, (*above, id(function))))
        elif callable(item) or isinstance(item, _UNCHANGING):
            # Lists and objects are left out: a function may change them when it is called.
            kept.append(stable_json(item))
    code = function.__code__
    try:  # by the source, since compiled code differs between versions of Python
        if code.co_name == _LAMBDA:
            # By its code: the source of a lambda is its whole line, with other code in it.
            return [stable_json(code), kept]
        source = dedent(inspect.getsource(code))
        # Unparsed, so that comments and line breaks do not count.
        return [ast.unparse(ast.parse(source)) or stable_json(code), kept]
    except (OSError, SyntaxError):
        return [stable_json(code), kept]
