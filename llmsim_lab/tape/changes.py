"""How a tape's runs came from each other, as a tree, and what each changed, in a few words.

All of it comes from the manifests and the turns' records, which are untrusted: what is returned
is one printable line a change, cut to a length.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from llmsim_lab._util.jsontext import as_mapping, differing, dumps
from llmsim_lab._util.text import clip, few, printable
from llmsim_lab.errors import TapeError
from llmsim_lab.prompts.prompt import word_diff
from llmsim_lab.tape.lines import Record, RunInfo
from llmsim_lab.tape.plans import planned_in_text, texts_named_in

_MAX_TEXT = 60
"""Of a value or a name, in characters."""
_MAX_CHANGE = 160
"""Of a change, in characters."""
_MAX_FIELDS = 4
"""Changes of one kind that are named; of the others how many there are."""
_MAX_PIECES = 3
"""Likewise of changed words in a prompt."""
_MAX_COMPARED = 10_000
"""Of a prompt whose words are compared, in characters."""
_MAX_DEPTH = 30
"""Levels by which a run is indented; deeper ones would leave the screen."""
_MOST_LINES = 1_000
PATIENCE = (
    "timeout_s",
    "first_piece_s",
    "total_timeout_s",
    "retry_wait_s",
    "wait_for_server_s",
    "max_concurrency",
    "keep_alive",
)
"""Settings of the model's client that say how patiently to ask, not what."""
_CHANGED_WORDS = re.compile(r"(?s)(?:\[-.*?-\]|\{\+.*?\+\})+")
_COST_OF_A_RUN = 20_000
"""Of a run that is compared, beside its texts: about as long as so many bytes take to read."""
_COST_OF_WORDS = 200
"""Of an intervention that is compared: about as long as so many bytes take to read."""
_COST_OF_A_PAIR = 20
"""Likewise of a word that two prompts have."""

Done: TypeAlias = tuple[str, ...]
"""What was done from outside, in words."""


class PlannedInTurn(NamedTuple):
    """What a turn's line says is planned.

    Attributes:
        words: what the line has itself, in words.
        texts: the digests of the texts that it names.
    """

    words: Done
    texts: Sequence[str]


class PlannedInWords(NamedTuple):
    """An intervention that is planned, with the turn that it is for, as the tape has it."""

    turn: Any
    words: str


@dataclass(frozen=True, slots=True)
class RunChanged:
    """A run as it is compared with another one.

    Attributes:
        info: what the tape says of it.
        interventions: what was done in it from outside.
        start: of a fork and its parent, the record of the turn that the fork starts from.
    """

    info: RunInfo
    interventions: Counter[str]
    start: Record | None = None


class CostsTooMuch(TapeError):  # noqa: N818 - not a fault of the tape
    """What each of many runs changed takes too long to find out."""


class Allowance:
    """How much may be compared to say what each run of a tape changed, in bytes.

    A file that was made for it names the same long text in thousands of runs. What is compared
    is more than the file, but no more than some times as much.

    Args:
        size: of the file, bytes.
    """

    def __init__(self, size: int) -> None:
        # At least 64 MiB, so that small tapes are told in full.
        self._left = 2**26 + 8 * size

    def take(self, cost: int) -> None:
        """Spend some of it.

        Raises:
            CostsTooMuch: there is not as much left.
        """
        self._left -= cost
        if self._left < 0:
            raise CostsTooMuch(
                "what it changed is not shown, since that of so many runs takes too long to find "
                "out (llmsim-lab tape diff shows it of two)"
            )

    def take_run(self) -> None:
        """Spend what it costs to compare a run, as short as it is."""
        self.take(_COST_OF_A_RUN)

    def take_words(self, done: Sequence[str]) -> None:
        """Spend what it costs to compare interventions."""
        self.take(_COST_OF_WORDS * len(done))


def changes_of(
    run: RunChanged,
    parent: RunChanged,
    allowance: Allowance,
) -> list[str]:
    """Return what a run changed of the one that it came from, a line each.

    Args:
        run: the run.
        parent: the one that it came from.
        allowance: what this may cost.

    Raises:
        TapeError: it costs too much.
    """
    changed = _settings(parent.info, run.info, allowance)
    changed += _prompts(parent.info, run.info, allowance)
    added = (run.interventions - parent.interventions).elements()
    absent = (parent.interventions - run.interventions).elements()
    changed += _few([*added, *(f"without {words}" for words in absent)])
    changed += _state(parent.start, run.start)
    return changed


def _state(
    before: Record | None,
    after: Record | None,
) -> list[str]:
    """Return how a fork's first state differs from its parent's, where no intervention set it."""
    # What an intervention set is told as an intervention.
    if before is None or after is None or before["interventions"] != after["interventions"]:
        return []
    fields = differences(
        before["state"],
        after["state"],
        most=_MAX_TEXT,
        lines=_MAX_FIELDS,
    )
    if not fields:
        return []
    return [_line(f"state: {', '.join(map(_line, fields))}")]


def interventions_alone(done: Counter[str]) -> list[str]:
    """Return what was done from outside in a run that came from no other, a line each."""
    return _few(done.elements())


def done_in(record: Record) -> Done:
    """Return what was done from outside in a turn, in words."""
    return tuple(map(_words, record["interventions"]))


def planned_in(record: Record) -> PlannedInTurn:
    """Return what the line of a turn says is planned.

    Raises:
        ValueError: it names a text twice.
    """
    planned = [change for change in record["planned"] if not isinstance(change, str)]
    return PlannedInTurn(
        words=tuple(map(_words, planned)),
        texts=texts_named_in(record["planned"]),
    )


def planned_in_words(text: str) -> list[PlannedInWords]:
    """Return the interventions of a text of a plan, in words, each with its turn."""
    return [
        PlannedInWords(as_mapping(change).get("turn"), _words(change))
        for change in planned_in_text(text)
    ]


def differences(
    was: Mapping[str, Any],
    now: Mapping[str, Any],
    *,
    most: int,
    lines: int = _MOST_LINES,
) -> list[str]:
    """Return which parts of nested values differ, a line each: ``llm.seed 1 → 2``.

    Args:
        was: the values before.
        now: those after.
        most: characters of each value.
        lines: how many; one more says how many are left out.
    """
    changed = differing(was, now, missing="none")
    texts = []
    for name, old, new in changed[:lines]:
        texts.append(f"{name} {_short(old, most)} → {_short(new, most)}")
    if len(changed) > lines:
        texts.append(f"and {len(changed) - lines:,} more")
    return texts


def _settings(
    before: RunInfo,
    after: RunInfo,
    allowance: Allowance,
) -> list[str]:
    """Return how a run's model and its settings differ from those of the run that it came from."""
    allowance.take(before.weight("model") + after.weight("model"))
    old_model = as_mapping(before.manifest.get("model"))
    new_model = as_mapping(after.manifest.get("model"))
    old: dict[str, object] = {}
    new: dict[str, object] = {}
    # A run that was not played yet may not know its model.
    if old_model and new_model:
        old["model"] = _named_model(old_model)
        new["model"] = _named_model(new_model)
    if not after.has_same("llm", before):
        allowance.take(before.weight("llm") + after.weight("llm"))
        allowance.take(before.weight("settings_before"))
        old["llm"] = _without_patience(settings_shared(before, after))
        new["llm"] = _without_patience(after.manifest.get("llm"))
    return [
        _line(text)
        for text in differences(
            old,
            new,
            most=_MAX_TEXT,
            lines=_MAX_FIELDS,
        )
    ]


def _named_model(model: Mapping[str, object]) -> dict[str, object]:
    return {"name": model.get("name"), "digest": model.get("digest")}


def settings_shared(parent: RunInfo, run: RunInfo) -> object:
    """Return the model's settings of a run that another came from, as they were at that time.

    The parent may have been resumed with others since. Nothing says when the run was made; but if
    it has settings that the parent had from the fork's turn on, it changed none.
    """
    own = _without_patience(run.manifest.get("llm"))
    for earlier in parent.manifest.get("settings_before", ()):
        if earlier["last_turn"] < (run.fork_turn or 0):
            continue
        if _without_patience(earlier["llm"]) == own:
            return earlier["llm"]
    return parent.manifest.get("llm")


def _without_patience(settings: object) -> dict[str, object]:
    named = as_mapping(settings)
    return {name: value for name, value in named.items() if name not in PATIENCE}


def edited_prompts(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
) -> dict[tuple[str, str], list[str]]:
    """Return which of the prompts that two manifests both have differ: their places, by the texts.

    Args:
        before: a manifest.
        after: another.
    """
    old_prompts = as_mapping(before.get("prompts"))
    new_prompts = as_mapping(after.get("prompts"))
    edits: dict[tuple[str, str], list[str]] = {}
    for place, prompt in new_prompts.items():
        if place not in old_prompts:
            continue
        old = as_mapping(old_prompts[place])
        new = as_mapping(prompt)
        # A prompt without slots may be another text each time; only an edit of it is a change.
        if _has_no_slots(old) and _has_no_slots(new):
            continue
        was = str(old.get("text", ""))
        now = str(new.get("text", ""))
        if was != now:
            places = edits.setdefault((was, now), [])
            places.append(place)
    return edits


def _has_no_slots(prompt: Mapping[str, object]) -> bool:
    # Such a prompt is recorded as its own parent.
    return prompt.get("parent") == prompt.get("digest")


def _prompts(
    before: RunInfo,
    after: RunInfo,
    allowance: Allowance,
) -> list[str]:
    """Return which words of which prompts differ."""
    if after.has_same("prompts", before):
        return []
    allowance.take(before.weight("prompts") + after.weight("prompts"))
    changed: list[str] = []
    edits = edited_prompts(before.manifest, after.manifest)
    for (was, now), places in edits.items():
        if len(changed) == _MAX_FIELDS:
            changed.append(f"and {len(edits) - _MAX_FIELDS:,} more")
            break
        # One prompt may stand at several places; it is named once.
        prompt_names: dict[str, None] = {}
        for place in places:
            name, _, _ = place.partition("#")
            prompt_names[name] = None
        names = ", ".join(prompt_names)
        change = _word_change(was, now, allowance)
        changed.append(_line(f"prompt {_line(names, _MAX_TEXT)}: {change}"))
    return changed


def _word_change(
    was: str,
    now: str,
    allowance: Allowance,
) -> str:
    if max(len(was), len(now)) > _MAX_COMPARED:
        return f"{len(was):,} characters became {len(now):,}"
    # Comparing takes long if the same words come often in both texts.
    old_words = Counter(was.split())
    new_words = Counter(now.split())
    pairs = 0
    for word, count in old_words.items():
        pairs += count * new_words[word]
    allowance.take(_COST_OF_A_PAIR * pairs)
    pieces = _CHANGED_WORDS.findall(word_diff(was, now))
    each_once = dict.fromkeys(pieces)
    texts = [_line(piece, _MAX_TEXT) for piece in each_once]
    return ", ".join(few(texts, _MAX_PIECES))


def _words(intervention: object) -> str:
    """Return an intervention of any class in words, as its record has it."""
    values = dict(as_mapping(intervention))
    turn = _plain(values.pop("turn", None))
    note = values.pop("note", "")
    parts: list[str] = []
    for name, value in values.items():
        if isinstance(value, dict):
            # Most interventions only set values, so the word "set" is left out.
            prefix = "" if name == "set" else f"{name} "
            for key, leaf in _leaves(value).items():
                parts.append(f"{prefix}{key} = {_plain(leaf)}")
        elif value not in (None, False, "", []):
            parts.append(f"{name} = {_plain(value)}")
    words = f"turn {turn}: {', '.join(parts)}"
    if note:
        words += f" ({_plain(note)})"
    return _line(words)


def _leaves(values: Mapping[str, object]) -> dict[str, object]:
    """Return the values in nested dicts, by names such as ``post.author``."""
    leaves: dict[str, object] = {}
    for name, value in values.items():
        if isinstance(value, dict) and value:
            for key, leaf in _leaves(value).items():
                leaves[f"{name}.{key}"] = leaf
        else:
            leaves[name] = value
    return leaves


def _plain(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return _short(dumps(value))
    except ValueError:
        # NaN or infinity, which no run writes; Python's JSON has words for them.
        return _short(json.dumps(value))


def _short(value: str, most: int = _MAX_TEXT) -> str:
    """Return JSON as a few words, a number with a fraction with six digits."""
    if "." in value:
        with suppress(ValueError):
            value = f"{float(value):g}"
    return _line(value, most)


def _line(text: str, most: int = _MAX_CHANGE) -> str:
    return clip(printable(text, keep="\n\t"), most)


def _few(changes: Iterable[str]) -> list[str]:
    return [_line(change) for change in few([*changes], _MAX_FIELDS)]


# --- as a tree -----------------------------------------------------------------------------------


def indented(runs: Iterable[tuple[int, int | None, str]]) -> list[str]:
    """Return runs (number, parent, words) a line each, indented below what they came from."""
    below: dict[int | None, list[tuple[int, str]]] = {None: []}
    for run, parent, words in runs:
        # A parent came first; else the tape is damaged, and the run stands by itself.
        below.get(parent, below[None]).append((run, words))
        below[run] = []
    # A stack, not recursion: forks of forks may be deeper than Python's stack.
    stack = [(0, run, words) for run, words in reversed(below[None])]
    lines = []
    while stack:
        depth, run, words = stack.pop()
        indent = "   " * min(depth, _MAX_DEPTH)
        lines.append(f"{indent}{run} {words}")
        for child, child_words in reversed(below[run]):
            stack.append((depth + 1, child, child_words))
    return lines


def run_line(info: RunInfo, changed: Sequence[str]) -> str:
    """Return a run in a line: its name, how it came about, what it changed, how it ended."""
    verb: str = info.verb
    first = 1
    if info.fork_turn is not None:
        verb = f"{verb} at turn {info.fork_turn}"
        first = info.fork_turn + 1
    if info.turns > first:
        played = f"turns {first} to {info.turns}"
    elif info.turns == first:
        played = f"turn {first}"
    else:
        played = "no turn yet"
    outcome = info.outcome or "open"
    model = info.model or "no model"
    parts = [info.name, verb, played, outcome, model]
    texts = [_line(part, _MAX_TEXT) for part in parts]
    if changed:
        texts.insert(2, _line("; ".join(changed)))  # after how it came about
    return " · ".join(texts)
