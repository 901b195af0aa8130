"""How a tape's runs came from each other, as a tree, and what each changed, in a few words.

All of it comes from the manifests and the turns' records, which are untrusted: what is returned
is one printable line a change, cut to a length.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from llmsim_lab._util.jsontext import as_mapping, differing, dumps
from llmsim_lab._util.text import clip, few, printable
from llmsim_lab.errors import TapeError
from llmsim_lab.prompts.prompt import word_diff
from llmsim_lab.tape.lines import RunInfo

_MAX_TEXT = 60
_MAX_CHANGE = 160
_MAX_FIELDS = 4
_MAX_PIECES = 3
_MAX_COMPARED = 10_000
_MAX_DEPTH = 30
_MOST_LINES = 1_000
PATIENCE = (
    *("timeout_s", "first_piece_s", "total_timeout_s", "retry_wait_s", "wait_for_server_s"),
    *("max_concurrency", "keep_alive"),
)
"""Settings of the model's client that say how patiently to ask, not what."""
_COST_OF_WORDS = 100
"""Of an intervention that is compared: about as long as so many bytes take to read."""
_COST_OF_A_PAIR = 20
"""Likewise of a word that two prompts have."""

Done = tuple[str, ...]
"""What was done from outside, in words."""


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

    def take_words(self, done: Done) -> None:
        """Spend what it costs to compare interventions."""
        self.take(_COST_OF_WORDS * len(done))


def changes_of(
    run: RunInfo,
    parent: RunInfo,
    done: tuple[Counter[str], Counter[str]],
    records: Sequence[Mapping[str, Any]],
    allowance: Allowance,
) -> list[str]:
    """Return what a run changed of the one that it came from, a line each.

    Args:
        run: the run.
        parent: the one that it came from.
        done: what was done from outside, in the run and in its parent.
        records: of a fork, the turn that it starts from, as the run has it and as its parent has.
        allowance: what this may cost.

    Raises:
        TapeError: it costs too much.
    """
    here, there = done
    lacks = (f"without {what}" for what in (there - here).elements())
    changed = [
        *_settings(parent, run, allowance),
        *_prompts(parent, run, allowance),
        *_few([*(here - there).elements(), *lacks]),
    ]
    if records and records[0]["interventions"] == records[1]["interventions"]:
        states = records[1]["state"], records[0]["state"]
        fields = differences(*states, most=_MAX_TEXT, lines=_MAX_FIELDS)
        if fields:
            changed.append(_line(f"state: {', '.join(map(_line, fields))}"))
    return changed


def interventions_alone(done: Counter[str]) -> list[str]:
    """Return what was done from outside in a run that came from no other, a line each."""
    return _few(done.elements())


def done_in(record: Mapping[str, Any]) -> tuple[Done, Done]:
    """Return the interventions of a turn, and those that are planned for later ones, in words."""
    interventions, planned = record["interventions"], record["planned"]
    return tuple(map(_words, interventions)), tuple(map(_words, planned))


def differences(
    was: Mapping[str, Any], now: Mapping[str, Any], *, most: int, lines: int = _MOST_LINES
) -> list[str]:
    """Return which parts of nested values differ, a line each: ``llm.seed 1 → 2``.

    Args:
        was: the values before.
        now: those after.
        most: characters of each value.
        lines: how many; one more says how many are left out.
    """
    found = differing(was, now, missing="none")
    first = found[:lines]
    said = [f"{name} {_short(old, most)} → {_short(new, most)}" for name, old, new in first]
    left = len(found) - len(first)
    return [*said, f"and {left:,} more"] if left else said


def _settings(before: RunInfo, after: RunInfo, allowance: Allowance) -> list[str]:
    """Return how a run's model and its settings differ from those of the run that it came from."""
    manifests = before.manifest, after.manifest
    allowance.take(before.weight("model") + after.weight("model"))
    models = [as_mapping(manifest.get("model")) for manifest in manifests]
    parts: list[dict[str, Any]] = []
    for model in models:
        # A run that was not played yet may not know its model.
        known = {name: model.get(name) for name in ("name", "digest")} if all(models) else {}
        parts.append({"model": known})
    if not after.has_same("llm", before):
        allowance.take(before.weight("llm") + after.weight("llm"))
        for manifest, part in zip(manifests, parts, strict=True):
            llm = as_mapping(manifest.get("llm"))
            part["llm"] = {name: value for name, value in llm.items() if name not in PATIENCE}
    return [*map(_line, differences(*parts, most=_MAX_TEXT, lines=_MAX_FIELDS))]


def edited_prompts(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> dict[tuple[str, str], list[str]]:
    """Return which of the prompts that two manifests both have differ: their places, by the texts.

    Args:
        before: a manifest.
        after: another.
    """
    old, new = (as_mapping(manifest.get("prompts")) for manifest in (before, after))
    edits: dict[tuple[str, str], list[str]] = {}
    for place in filter(old.__contains__, new):
        # A prompt without slots may be another text each time; only an edit of it is a change.
        entries = [as_mapping(of[place]) for of in (old, new)]
        if all(entry.get("parent") == entry.get("digest") for entry in entries):
            continue
        was, now = (str(as_mapping(of[place]).get("text", "")) for of in (old, new))
        if was != now:
            edits.setdefault((was, now), []).append(place)
    return edits


def _prompts(before: RunInfo, after: RunInfo, allowance: Allowance) -> list[str]:
    """Return which words of which prompts differ."""
    if after.has_same("prompts", before):
        return []
    allowance.take(before.weight("prompts") + after.weight("prompts"))
    changed: list[str] = []
    edits = edited_prompts(before.manifest, after.manifest)
    for (was, now), places in [*edits.items()][:_MAX_FIELDS]:
        names = ", ".join(dict.fromkeys(place.partition("#")[0] for place in places))
        change = _word_change(was, now, allowance)
        changed.append(_line(f"prompt {_line(names, _MAX_TEXT)}: {change}"))
    left = len(edits) - len(changed)
    return [*changed, f"and {left:,} more"] if left else changed


def _word_change(was: str, now: str, allowance: Allowance) -> str:
    if max(len(was), len(now)) > _MAX_COMPARED:
        return f"{len(was):,} characters became {len(now):,}"
    # Words that stand often in both are what takes long.
    before, after = Counter(was.split()), Counter(now.split())
    pairs = sum(count * after[word] for word, count in before.items())
    allowance.take(_COST_OF_A_PAIR * pairs)
    pieces = re.findall(r"(?s)(?:\[-.*?-\]|\{\+.*?\+\})+", word_diff(was, now))
    return ", ".join(few([_line(piece, _MAX_TEXT) for piece in dict.fromkeys(pieces)], _MAX_PIECES))


def _words(intervention: Any) -> str:
    """Return an intervention of any class in words, as its record has it."""
    values = dict(as_mapping(intervention))
    turn, parts = values.pop("turn", None), []
    for name, value in values.items():
        if value not in (None, False, "", [], {}):
            items = value.items() if isinstance(value, dict) else [("", value)]
            parts += [" ".join(filter(None, (name, key, _plain(item)))) for key, item in items]
    return _line(f"turn {_plain(turn)}: {', '.join(parts)}")


def _plain(value: object) -> str:
    return value if isinstance(value, str) else _short(dumps(value))


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
    lines, todo = [], [(0, run, words) for run, words in reversed(below[None])]
    while todo:
        depth, run, words = todo.pop()
        lines.append(f"{'   ' * min(depth, _MAX_DEPTH)}{run} {words}")
        todo += [(depth + 1, *child) for child in reversed(below[run])]
    return lines


def run_line(info: RunInfo, changed: Sequence[str]) -> str:
    """Return a run in a line: its name, how it came about, what it changed, how it ended."""
    verb = info.verb if info.fork_turn is None else f"{info.verb} at turn {info.fork_turn}"
    first = 1 if info.fork_turn is None else info.fork_turn + 1
    turns = f"turns {first} to {info.turns}" if info.turns > first else f"turn {first}"
    played = turns if info.turns >= first else "no turn yet"
    parts = [info.name, verb, played, info.outcome or "open", info.model or "no model"]
    texts = [_line(part, _MAX_TEXT) for part in parts]
    if changed:
        texts.insert(2, _line("; ".join(changed)))
    return " · ".join(texts)
