"""A study's registration: what it claims before it is played, and which parts were kept.

The file is readable JSON. It states the hash of its own content, so that a change shows. If
somebody changes the file and computes the hash anew, only a reader who had the file or its hash
before can tell: send it to somebody, or put it where it gets a date.
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

from llmsim_lab._util.files import bounded_bytes, write_file
from llmsim_lab._util.jsontext import as_mapping, dumps, loads
from llmsim_lab._util.text import MINUS, brief, clip, counted, listed
from llmsim_lab.errors import ConfigError
from llmsim_lab.tape.changes import PATIENCE

_FORMAT = 1
_HASH = "sha256"
MODEL = "the model"
"""The seat of the run's own model, beside the seats of players that ask another model."""
_MOST_BYTES = 2**26
_LONGEST = 300
"""Characters of a registered or played value in a comparison."""

Kept = Literal["kept", "changed", "not known yet"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """What decides the runs of a study.

    Attributes:
        world: the name that the world's class has on tapes.
        reference: the arm that others are compared with.
        arms: by arm and factor, the level itself, not its label.
        fixed: what is the same in all arms.
        unit: ``seed`` or ``situation``.
        units: the seeds, or the recorded situations.
        turns: how many turns a run has.
        samples: how often each situation is asked in each arm.
        outcomes: columns, measures and functions by label; for a function the digest of its code.
        models: by arm and seat: name, backend, digest of the weights, settings that change replies.
        prompts: by arm and name, the digests of the first wording.
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
    """The effects that are claimed; together they are one family.

    Attributes:
        formula: the main effects and interactions; None for ``contrasts``.
        contrasts: pairs of arms; the second is subtracted from the first.
        outcomes: the labels of the outcomes that the effects are claimed for.
        level: of the intervals.
        sesoi: the smallest effect of interest, one number or one by outcome; None if not named.
        paired: whether runs with the same seed are pairs.
        typical: whether the claims are typical differences, not differences of means.
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
        """The comparisons that p-values are adjusted for, in words."""
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
    """Models and prompts by arm, and digests of code, as tapes have them."""

    models: Mapping[str, Any]
    prompts: Mapping[str, Any]
    code: Mapping[str, Any]
    started: Sequence[str] = ()
    """When each run was begun."""


@dataclass(frozen=True, slots=True)
class RegisteredPart:
    """One part of the registration, beside the same part of what was played.

    Attributes:
        name: the part's name, such as "models".
        registered: what the file states.
        played: what the tapes of the study's runs state.
        status: whether the two are the same.
    """

    name: str
    registered: str
    played: str
    status: Kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A study's plan, as its file states it.

    Attributes:
        path: the file.
        registered_at: when the file was written, in UTC.
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
        # A plan written after the first runs may have been made with their results in mind.
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
        """The arms that the claims compare; for a formula all registered arms."""
        # A formula's effects are means over all arms.
        if self.claims.formula is not None:
            return list(self.design.arms)
        # A dict as an ordered set, since the reference is in many contrasts.
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
        """Return each part of the registration beside what was played.

        Args:
            design: the study's design now, with models, prompts and code from its tapes.
            started: when each run was begun; if none was, models and prompts are not known yet.
        """
        then = self.design
        outcomes = _of_same_names(design.outcomes, then.outcomes)
        # In the order of a reader's questions: what, on what, how long, which claims, since when.
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
        # Only situations have several samples; a seed is played once.
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
        """Compare the seeds or situations; with further ones the study is not the planned one."""
        name = f"{self.design.unit}s"
        then = f"{len(self.design.units)}: {_worded(self.design.units)}"
        if list(self.design.units) == list(design.units):
            return RegisteredPart(name, then, "the same", "kept")
        now = f"{len(design.units)}: {_worded(design.units)}"
        return RegisteredPart(name, then, now, "changed")

    def _order(self, started: Sequence[str]) -> RegisteredPart:
        """Return how many runs were begun before the plan, by the file and by the tapes."""
        times = map(datetime.fromisoformat, started)
        on_tapes = sum(time < self.registered_at for time in times)
        # The file counted tapes that may have been deleted since.
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
        """Compare the family; it is kept if the study still has all its arms and outcomes."""
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
    """Return the entries with registered names: an outcome that was added later changes nothing."""
    return {name: value for name, value in now.items() if name in then}


def _not_known(name: str, then: Any) -> RegisteredPart:
    """Return a part that only runs can tell, where no run was begun."""
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
    """Compare a registered value with the value now; of mappings only the differing entries."""
    # As JSON, since the file has lists where the study has tuples.
    if _hash_of(then) == _hash_of(now):
        return RegisteredPart(name, _worded(then), "the same", "kept")
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        then_differing = {}
        now_differing = {}
        # A reader would not find the one differing arm among forty.
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
    """Compare models or prompts; those of arms without a run are not known yet."""
    # Half of the runs may be left, which is not a change.
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
    """Return a value in words."""
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
    # What UTF-8 cannot encode, as half a character in a level, is written as an escape.
    has_halves = dumps(signed).isascii()
    text = json.dumps(
        signed,
        indent=1,
        ensure_ascii=has_halves,
    )
    write_file(path, f"{text}\n".encode())
    # Read back, so that the caller has what a later session will read.
    return read_registration(path)


def read_registration(path: Path) -> Registration:
    """Return a study's plan as a file states it.

    Raises:
        ConfigError: the file cannot be read, or is not one that ``Study.register`` wrote.
    """
    try:
        content = dict(as_mapping(loads(bounded_bytes(path, _MOST_BYTES))))
        stated = str(content.pop(_HASH))
        if content["registration"] != _FORMAT:
            raise ConfigError(
                f"{path} is of format {brief(content['registration'], 40)}, not {_FORMAT}"
            )
        claims = {**content["claims"]}
        # The family in words is for readers of the file; the other claims imply it.
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
    except ConfigError:
        # It is a ValueError too, and says what is wrong.
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{path} is not a registration that Study.register wrote ({brief(error, 100)}); choose "
            "another name for the new one"
        ) from error


def _hash_of(content: object) -> str:
    # Sorted and without spaces, so that the hash depends on the content, not on the layout.
    text = json.dumps(
        content,
        sort_keys=True,
        ensure_ascii=False,
        separators=(",", ":"),
    )
    # A label may have half of a surrogate pair, which UTF-8 cannot encode.
    content_bytes = text.encode(errors="surrogatepass")
    return hashlib.sha256(content_bytes).hexdigest()


# --- what a run's manifest says -------------------------------------------------------------------


def models_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the models that a run asks, by seat, with the settings that change their replies."""
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
    """Return what identifies a model and decides its replies; timeouts and retries are left out.

    Args:
        info: the model's ``ModelInfo``, as a mapping.
        settings: the settings of the model's client, as JSON.
    """
    # The name may stand for another model tomorrow; the digest is that of the weights.
    facts = {name: info.get(name) for name in ("name", "backend", "digest")}
    # The name is among the facts already.
    left_out = {"model", *PATIENCE}
    for name, value in as_mapping(settings).items():
        if name in left_out:
            continue
        facts[name] = value
    return facts


def prompts_of(entries: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the digests of prompts by name.

    Args:
        entries: a manifest's prompts by place: each prompt's name, and the beginning of its digest.
    """
    digests: defaultdict[str, set[str]] = defaultdict(set)
    for place, entry in entries.items():
        # "offer#2" is a second text of the prompt "offer".
        name, _, _ = place.partition("#")
        digests[name].add(entry["digest"])
    return {name: sorted(of_name) for name, of_name in digests.items()}


def together(facts_of_runs: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the facts that an arm's runs share; where they differ, a list of all values."""
    values_by_name: defaultdict[str, list[Any]] = defaultdict(list)
    for facts in facts_of_runs:
        for name, value in facts.items():
            # A list, since values may be lists of digests, which a set cannot hold.
            if value not in values_by_name[name]:
                values_by_name[name].append(value)
    shared: dict[str, Any] = {}
    for name, values in values_by_name.items():
        shared[name] = values[0] if len(values) == 1 else values
    return shared
