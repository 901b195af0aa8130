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
from llmsim_lab.prompts._prompt import word_diff
from llmsim_lab.tape._lines import RunInfo

_MAX_TEXT = 60
_MAX_CHANGE = 160
_MAX_FIELDS = 4
_MAX_PIECES = 3
_MAX_COMPARED = 10_000
_MAX_DEPTH = 30
PATIENCE = (
    *("timeout_s", "first_piece_s", "total_timeout_s", "retry_wait_s", "wait_for_server_s"),
    *("max_concurrency", "keep_alive"),
)
"""Settings of the model's client that say how patiently to ask, not what."""


def changes_of(runs: Sequence[RunInfo], turns: Sequence[Sequence[Any]]) -> list[str]:
    """Return what a run changed, a line each.

    Args:
        runs: the run, and the one that it came from; without that only interventions are named.
        turns: the records of their turns, from the one on that the run was forked at.
    """
    if len(runs) == 1:
        return _few(_done(turns[0]).elements())
    (info, parent), (records, before) = runs, turns
    its, theirs, own = _done(records), _done(before), list[str]()
    lacks = (f"without {what}" for what in (theirs - its).elements())
    done = _few([*(its - theirs).elements(), *lacks])
    if info.fork_turn is not None and before[0]["interventions"] == records[0]["interventions"]:
        fields = _few(differences(before[0]["state"], records[0]["state"], most=_MAX_TEXT))
        own = [_line(f"state: {', '.join(fields)}")] if fields else []
    return [*_settings(parent, info), *_prompts(parent, info), *done, *own]


def _done(records: Sequence[Any]) -> Counter[str]:
    """Return the interventions of turns, and those that are planned in the end, in words."""
    parts = [*(record["interventions"] for record in records), records[-1]["planned"]]
    return Counter(_words(one) for part in parts for one in part)


def differences(was: Mapping[str, Any], now: Mapping[str, Any], *, most: int) -> list[str]:
    """Return which parts of nested values differ, a line each: ``llm.seed 1 → 2``.

    Args:
        was: the values before.
        now: those after.
        most: characters of each value.
    """
    found = differing(was, now, missing="none")
    return [f"{it} {_short(old, most)} → {_short(new, most)}" for it, old, new in found]


def _settings(before: RunInfo, after: RunInfo) -> list[str]:
    """Return how a run's model and its settings differ from those of the run that it came from."""
    manifests = before.manifest, after.manifest
    models = [as_mapping(manifest.get("model")) for manifest in manifests]
    parts: list[dict[str, Any]] = []
    for manifest, model in zip(manifests, models, strict=True):
        llm = as_mapping(manifest.get("llm"))
        # A run that was not played yet may not know its model.
        known = {name: model.get(name) for name in ("name", "digest")} if all(models) else {}
        asked = {name: it for name, it in llm.items() if name not in PATIENCE}
        parts.append({"model": known, "llm": asked})
    return _few(differences(*parts, most=_MAX_TEXT))


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


def _prompts(before: RunInfo, after: RunInfo) -> list[str]:
    """Return which words of which prompts differ."""
    changed = []
    for (was, now), places in edited_prompts(before.manifest, after.manifest).items():
        names = ", ".join(dict.fromkeys(place.partition("#")[0] for place in places))
        changed.append(f"prompt {_line(names, _MAX_TEXT)}: {_word_change(was, now)}")
    return _few(changed)


def _word_change(was: str, now: str) -> str:
    if max(len(was), len(now)) > _MAX_COMPARED:
        return f"{len(was):,} characters became {len(now):,}"
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
    return few([_line(change) for change in changes], _MAX_FIELDS)


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
