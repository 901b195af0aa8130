"""What a study claims, written down before it is played, and what of that was kept.

The file is JSON that everybody can read. Its hash is of its own content, so that a change shows.
Whoever changes the file and computes the hash anew is found out only by a reader who had the file
or its hash before: send it to somebody, or put it where it gets a date.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, NamedTuple

from llmsim_lab._util.files import write_file
from llmsim_lab._util.jsontext import as_mapping, loads
from llmsim_lab._util.text import MINUS, clip, counted, listed
from llmsim_lab.errors import ConfigError
from llmsim_lab.tape.changes import PATIENCE

_FORMAT = 1
_HASH = "sha256"
MODEL = "the model"
"""The seat of the model that a run is given, beside those of players that ask one of their own."""
_LONGEST = 300
"""Characters of a registered or played value in a comparison."""

Kept = Literal["kept", "changed", "not known yet"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """What decides the runs of a study.

    Attributes:
        world: the name of its class on tapes.
        reference: the arm that others are compared with.
        arms: levels by factor, by arm: what they are, not what they are called.
        fixed: what is the same in all arms.
        unit: ``seed`` or ``situation``.
        units: the seeds, or the recorded situations.
        turns: of each run.
        samples: of each situation in each arm.
        outcomes: columns, measures and functions by label; a function by its code's digest.
        models: by arm and seat: name, backend, digest of the weights, settings that change replies.
        prompts: digests by arm and name, of the first wording.
        code: digests of the world's code, and the package's version.
    """

    world: str
    reference: str
    arms: Mapping[str, Any]
    fixed: Mapping[str, Any]
    unit: str
    units: Sequence[int | str]
    turns: int
    samples: int
    outcomes: Mapping[str, Any]
    models: Mapping[str, Any]
    prompts: Mapping[str, Any]
    code: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """Which effects are claimed, all of them together one family.

    Attributes:
        formula: of main effects and interactions; None for ``contrasts``.
        contrasts: pairs of arms, the second is subtracted from the first.
        outcomes: the labels of those they are claimed for.
        level: of the intervals.
        sesoi: the smallest effect of interest, one or by outcome; None if none was named.
        paired: whether runs with one seed are pairs.
        typical: whether typical differences are claimed, not means.
    """

    formula: str | None
    contrasts: Sequence[Sequence[str]]
    outcomes: Sequence[str]
    level: float
    sesoi: float | Mapping[str, float] | None
    paired: bool = True
    typical: bool = False

    @property
    def family(self) -> str:
        """Which comparisons p-values are adjusted for, in words."""
        if self.formula is not None:
            family = f"every effect of {self.formula} in each of {listed(self.outcomes)}"
        else:
            count = len(self.contrasts) * len(self.outcomes)
            pairs = [f"{upper} {MINUS} {lower}" for upper, lower in self.contrasts]
            size = counted(count, "comparison")
            family = f"{size}: {listed(pairs)}, in {listed(self.outcomes)}"
        if self.typical:
            family = f"{family}, by typical differences"
        if not self.paired:
            family = f"{family}, of runs that are not paired"
        return family


class RunFacts(NamedTuple):
    """What tapes say of runs: models and prompts by arm, and digests of code."""

    models: Mapping[str, Any]
    prompts: Mapping[str, Any]
    code: Mapping[str, Any]
    started: Sequence[str] = ()
    """When each run was begun."""


@dataclass(frozen=True, slots=True)
class RegisteredPart:
    """One thing that was registered, beside what was played.

    Attributes:
        name: what it is.
        registered: what the file says.
        played: what the study's runs say.
        status: whether the two are the same.
    """

    name: str
    registered: str
    played: str
    status: Kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A study's plan, as its file has it.

    Attributes:
        path: the file.
        registered_at: when it was written, in UTC.
        runs_before: how many of the study's runs had begun by then.
        design: what decides the runs.
        claims: which effects are claimed.
        sha256: the hash that the file states.
        is_unchanged: whether the file's content still has that hash.
    """

    path: Path
    registered_at: datetime
    runs_before: int
    design: Design
    claims: Claims
    sha256: str
    is_unchanged: bool

    def __str__(self) -> str:
        words = f"{self.path}, registered {self.registered_at:%Y-%m-%d %H:%M} UTC"
        # A plan that was written after the first results is no plan of them.
        if self.runs_before:
            words += f" after {counted(self.runs_before, 'run')} had begun"
        else:
            words += " before any run"
        words += f"; SHA-256 {self.sha256}"
        if not self.is_unchanged:
            words += ". THE FILE WAS CHANGED SINCE: its content has another hash"
        return words

    __repr__ = __str__

    @property
    def claimed_arms(self) -> list[str]:
        """The arms that the claims compare: of a formula, all that were registered."""
        # Effects of a formula are means over all arms.
        if self.claims.formula is not None:
            return list(self.design.arms)
        # A dict as an ordered set: the reference is in many contrasts.
        arms: dict[str, None] = {}
        for upper, lower in self.claims.contrasts:
            arms[upper] = None
            arms[lower] = None
        return list(arms)

    def compared(
        self,
        design: Design,
        started: Sequence[str],
    ) -> list[RegisteredPart]:
        """Return what was registered, each part beside what was played.

        Args:
            design: of the study as it is, with models, prompts and code as its tapes have them.
            started: when each run was begun; without any, models and prompts are not known yet.
        """
        then = self.design
        outcomes = _of_same_names(design.outcomes, then.outcomes)
        # In the order in which a reader asks: what, on what, how long, which claims, since when.
        parts = [
            _part("arms and their levels", then.arms, design.arms),
            _part("reference", then.reference, design.reference),
            _part("the same in all arms", then.fixed, design.fixed),
            self._units(design),
            _part("turns of a run", then.turns, design.turns),
            _part("outcomes", then.outcomes, outcomes),
            self._contrasts(design),
            self._order(started),
        ]
        # A seed is played once; only situations are asked several times.
        if design.unit != "seed":
            samples = _part("samples of a situation", then.samples, design.samples)
            parts.append(samples)
        if not started:
            parts += [
                _not_known("models", then.models),
                _not_known("prompts", then.prompts),
                _not_known("code", then.code),
            ]
        else:
            arms = list(design.arms)
            parts += [
                _by_arm("models", then.models, design.models, arms),
                _by_arm("prompts", then.prompts, design.prompts, arms),
                _part("code", then.code, design.code),
            ]
        return parts

    def _units(self, design: Design) -> RegisteredPart:
        """Return the seeds or situations; more of them are another study than the one planned."""
        name = f"{self.design.unit}s"
        then = f"{len(self.design.units)}: {_worded(self.design.units)}"
        if list(self.design.units) == list(design.units):
            return RegisteredPart(name, then, "the same", "kept")
        now = f"{len(design.units)}: {_worded(design.units)}"
        return RegisteredPart(name, then, now, "changed")

    def _order(self, started: Sequence[str]) -> RegisteredPart:
        """Return how many runs were there before the plan, as the file and the tapes say."""
        times = map(datetime.fromisoformat, started)
        on_tapes = sum(time < self.registered_at for time in times)
        # Tapes may have been deleted since; the file counted those that there were.
        before = max(on_tapes, self.runs_before)
        status: Kept = "changed" if before else "kept"
        played = counted(len(started), "run")
        return RegisteredPart(
            "runs begun before it",
            str(before),
            f"of {played}",
            status,
        )

    def _contrasts(self, design: Design) -> RegisteredPart:
        """Return the family; it is kept as long as all that it compares is in the study."""
        missing = [arm for arm in self.claimed_arms if arm not in design.arms]
        missing += [name for name in self.claims.outcomes if name not in design.outcomes]
        if missing:
            words = f"not in the study: {listed(missing)}"
            return RegisteredPart(
                "family of comparisons",
                self.claims.family,
                words,
                "changed",
            )
        return RegisteredPart(
            "family of comparisons",
            self.claims.family,
            "as registered",
            "kept",
        )


def _of_same_names(
    now: Mapping[str, Any],
    then: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the outcomes that were registered: one that came later changes none of them."""
    return {name: value for name, value in now.items() if name in then}


def _not_known(name: str, then: Any) -> RegisteredPart:
    """Return what only runs tell, where none was begun."""
    return RegisteredPart(
        name,
        _worded(then),
        "no run was begun",
        "not known yet",
    )


def _part(
    name: str,
    then: Any,
    now: Any,
) -> RegisteredPart:
    """Return one thing that was registered beside what it is now; in a mapping, what differs."""
    # By what JSON makes of both: what was read back has lists where there were tuples.
    if _hash_of(then) == _hash_of(now):
        return RegisteredPart(name, _worded(then), "the same", "kept")
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        then_differing = {}
        now_differing = {}
        # Only what differs: of forty arms a reader would not find the one.
        for key in {**then, **now}:
            is_in_both = key in then and key in now
            if is_in_both and _hash_of(then[key]) == _hash_of(now[key]):
                continue
            then_differing[key] = then.get(key, "not registered")
            now_differing[key] = now.get(key, "not in the study")
        then = then_differing
        now = now_differing
    return RegisteredPart(
        name,
        _worded(then),
        _worded(now),
        "changed",
    )


def _by_arm(
    name: str,
    then: Mapping[str, Any],
    now: Mapping[str, Any],
    arms: Sequence[str],
) -> RegisteredPart:
    """Return models or prompts; those of arms without a run are not known yet."""
    # A study whose runs are half played is not a changed one.
    not_begun = [arm for arm in arms if arm not in now]
    registered = {arm: facts for arm, facts in then.items() if arm not in not_begun}
    part = _part(name, registered, now)
    if name == "prompts":
        part = _prompts(registered, now)
    if not_begun and part.status == "kept":
        words = f"no run was begun of {listed(not_begun)}; else the same"
        return RegisteredPart(name, _worded(then), words, "not known yet")
    return part


def _prompts(
    then: Mapping[str, Any],
    now: Mapping[str, Any],
) -> RegisteredPart:
    """Return the prompts; those that no turn on trial asked with are named, and change none."""
    asked_with: dict[str, Any] = {}
    later: set[str] = set()
    for arm, prompts in now.items():
        if arm in then:
            # Turns on trial may end before a late question is asked.
            asked_with[arm] = _of_same_names(prompts, then[arm])
            later |= prompts.keys() - then[arm].keys()
    part = _part("prompts", then, asked_with)
    if later:
        words = f"{part.played}; not asked with in the turns on trial: {listed(sorted(later))}"
        part = replace(part, played=words)
    return part


def _worded(value: Any) -> str:
    """Return a value as a reader takes it in."""
    if isinstance(value, Mapping):
        entries = [f"{name}: {_worded(item)}" for name, item in value.items()]
        words = "; ".join(entries)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        words = ", ".join(map(_worded, value))
    else:
        words = str(value)
    # "none" where nothing is fixed, or no prompt was asked with.
    return clip(words or "none", _LONGEST)


# --- the file -------------------------------------------------------------------------------------


def write_registration(
    path: Path,
    design: Design,
    claims: Claims,
    *,
    runs_before: int,
) -> Registration:
    """Write a study's plan to a file, with its hash.

    Raises:
        ConfigError: the file cannot be written.
    """
    now = datetime.now(UTC)
    content = {
        "registration": _FORMAT,
        "package": f"llmsim-lab {version('llmsim-lab')}",
        "registered_at": now.isoformat(timespec="seconds"),
        "runs_before": runs_before,
        "design": asdict(design),
        "claims": {**asdict(claims), "family": claims.family},
    }
    signed = {**content, _HASH: _hash_of(content)}
    text = json.dumps(
        signed,
        indent=1,
        ensure_ascii=False,
    )
    write_file(path, f"{text}\n".encode())
    # Read back, so that it is what a later session finds.
    return read_registration(path)


def read_registration(path: Path) -> Registration:
    """Return a study's plan as a file has it.

    Raises:
        ConfigError: the file cannot be read, or is not one that ``Study.register`` wrote.
    """
    try:
        content = dict(as_mapping(loads(path.read_bytes())))
        stated = str(content.pop(_HASH))
        if content["registration"] != _FORMAT:
            raise ConfigError(f"{path} is of format {content['registration']!r:.40}, not {_FORMAT}")
        claims = {**content["claims"]}
        # In words for readers of the file; it follows from the rest.
        claims.pop("family")
        return Registration(
            path=path,
            registered_at=datetime.fromisoformat(content["registered_at"]),
            runs_before=int(content["runs_before"]),
            design=Design(**content["design"]),
            claims=Claims(**claims),
            sha256=stated,
            is_unchanged=_hash_of(content) == stated,
        )
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{path} is not a registration that Study.register wrote ({error!r:.100}); choose "
            "another name for the new one"
        ) from error


def _hash_of(content: object) -> str:
    # Sorted and without spaces: the hash is of the content, not of how it is laid out.
    text = json.dumps(
        content,
        sort_keys=True,
        ensure_ascii=False,
        separators=(",", ":"),
    )
    # A label may hold half of a surrogate pair, which UTF-8 has no bytes for.
    content_bytes = text.encode(errors="surrogatepass")
    return hashlib.sha256(content_bytes).hexdigest()


# --- what a run's manifest says -------------------------------------------------------------------


def models_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return which models a run asks, by seat, with the settings that change their replies."""
    infos = {**as_mapping(manifest.get("players"))}
    settings = {**as_mapping(manifest.get("seats"))}
    if manifest.get("model"):
        infos[MODEL] = manifest["model"]
        settings[MODEL] = manifest.get("llm")
    facts = {}
    for seat, info in infos.items():
        facts[seat] = model_facts(info, settings.get(seat))
    return facts


def model_facts(
    info: Mapping[str, Any],
    settings: object,
) -> dict[str, Any]:
    """Return what identifies a model and decides how it replies, without how patiently it is asked.

    Args:
        info: of the model, as ``ModelInfo`` has it.
        settings: of its client, as JSON.
    """
    # A name alone may be another model tomorrow; the digest is of the weights.
    facts = {name: info.get(name) for name in ("name", "backend", "digest")}
    # The model is named already.
    left_out = {"model", *PATIENCE}
    for name, value in as_mapping(settings).items():
        if name in left_out:
            continue
        facts[name] = value
    return facts


def prompts_of(entries: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the digests of prompts by name.

    Args:
        entries: of a manifest, by place: a prompt's name, and the beginning of its digest.
    """
    digests: defaultdict[str, set[str]] = defaultdict(set)
    for place, entry in entries.items():
        # "offer#2" is a second text of the prompt "offer".
        name, _, _ = place.partition("#")
        digests[name].add(entry["digest"])
    return {name: sorted(of_name) for name, of_name in digests.items()}


def together(facts_of_runs: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what runs of an arm share; where they differ, what each of them has."""
    values_by_name: defaultdict[str, list[Any]] = defaultdict(list)
    for facts in facts_of_runs:
        for name, value in facts.items():
            # Not a set: values may be lists of digests.
            if value not in values_by_name[name]:
                values_by_name[name].append(value)
    shared: dict[str, Any] = {}
    for name, values in values_by_name.items():
        shared[name] = values[0] if len(values) == 1 else values
    return shared
