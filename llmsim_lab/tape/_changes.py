"""How a tape's runs came from each other, as a tree, and what each changed, in a few words.

All of it comes from the manifests and the turns' records, which are untrusted: what is returned
is one printable line a change, cut to a length, and a damaged tape raises nothing here.
"""

from __future__ import annotations

import html
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import SequenceMatcher
from functools import cached_property
from typing import Any

from llmsim_lab._util.jsontext import as_mapping, flat
from llmsim_lab._util.text import clip, few, printable
from llmsim_lab.errors import TapeError
from llmsim_lab.tape._lines import RunInfo

_MAX_TEXT = 60
_MAX_CHANGE = 160
_MAX_FIELDS = 4
_MAX_PIECES = 3
_MAX_WORDS = 2_000
_NO_INTERVENTION = b',"interventions":[],"planned":'
"""In the record of a turn without interventions, and in no text, where quotes are escaped."""
_SHOWN_ELSEWHERE = ("name", "interventions")
_WAITING = ("timeout_s", "retry_wait_s", "wait_for_server_s", "max_concurrency", "keep_alive")
"""Settings of the model's client that say how patiently to ask, not what."""


Records = Callable[[int, int, int, bytes], Mapping[int, Any]]


class Changes:
    """What each of a tape's runs changed.

    Args:
        runs: the tape's.
        records: returns the records that a run has itself, by turn, from a turn to another, but
            for those before the last whose lines hold some bytes.
    """

    def __init__(self, runs: Iterable[RunInfo], records: Records) -> None:
        self._own_records = records
        self._runs = {info.id: info for info in runs}

    def of(self, run: int) -> list[str]:
        """Return what a run changed, a line each: compared with the run that it came from, if any.

        A run that came from no other names the settings in which it differs from others of its name
        on the tape, its prompts where they are not the first one's, and its interventions.
        """
        info = self._runs[run]
        parent = self._runs.get(info.parent) if info.parent is not None else None
        try:
            if parent is None or parent.id >= info.id:
                return self._own(info)
            undone = self.outside(parent.id, info.id, since=info.fork_turn)
            return [
                *_settings(parent.manifest, info.manifest),
                *_prompts(parent.manifest, info.manifest),
                *self.outside(info.id, parent.id, since=info.fork_turn),
                *(f"without {words}" for words in undone),
                *self.state(info.id),
            ]
        except RecursionError:
            return ["what it changed is nested too deeply to be told"]

    def outside(self, run: int, other: int, *, since: int | None = None) -> list[str]:
        """Return the interventions, done or planned, of one run that another does not have.

        Args:
            run: the run.
            other: the one that it is compared with.
            since: the first turn that counts; all if not given.
        """
        return _each(Counter(self._done(run, since)) - Counter(self._done(other, since)))

    def _own(self, info: RunInfo) -> list[str]:
        first, varied = self._alike.get(_likeness(info), (info, ()))
        fields = _fields(info.manifest) if varied else {}
        settings = [f"{name} {_short(fields.get(name, 'none'))}" for name in varied]
        prompts = _prompts(first.manifest, info.manifest) if first is not info else []
        return [*_few(settings), *prompts, *_each(Counter(self._done(info.id, None)))]

    @cached_property
    def _alike(self) -> dict[object, tuple[RunInfo, Sequence[str]]]:
        """For runs that came from no other: the first of their name, and in what they differ."""
        groups: dict[object, list[RunInfo]] = {}
        for info in self._runs.values():
            if info.parent not in self._runs:
                groups.setdefault(_likeness(info), []).append(info)
        found: dict[object, tuple[RunInfo, Sequence[str]]] = {}
        for likeness, (first, *others) in groups.items():
            varied: dict[str, None] = {}
            for other in others:
                # Nearly all are equal, which is found out faster than their fields are listed.
                if _defining(other.manifest) != _defining(first.manifest):
                    was, now = _fields(first.manifest), _fields(other.manifest)
                    varied |= dict.fromkeys(_different(was, now))
            found[likeness] = first, tuple(varied)
        return found

    def state(self, run: int) -> list[str]:
        """Return how the state that a fork starts from differs from its parent's.

        Nothing where an intervention at that turn says so already.
        """
        at, parent = self._runs[run].fork_turn, self._runs[run].parent
        if at is None or parent is None:
            return []
        old, own = (self._records(number, at, at) for number in (parent, run))
        done = [_listed(records, "interventions") for records in (old, own)]
        if not old or not own or done[0] != done[1]:
            return []
        was, now = (flat(as_mapping(records[at].get("state"))) for records in (old, own))
        fields = [
            f"{name} {_from_to(_rounded(was.get(name)), _rounded(now.get(name)))}"
            for name in _different(was, now)
        ]
        return [clip(f"state: {', '.join(_few(fields))}", _MAX_CHANGE)] if fields else []

    def _done(self, run: int, since: int | None) -> Iterator[str]:
        """Return a run's interventions, and those that were planned in the end, in words."""
        records = self._records(run, since, None)
        last = {turn: records[turn] for turn in sorted(records)[-1:]}
        return map(_words, [*_listed(records, "interventions"), *_listed(last, "planned")])

    def _records(self, run: int, first: int | None, last: int | None) -> dict[int, Any]:
        """Return the records with interventions, and the last one, by turn; with the parents'."""
        found: dict[int, Any] = {}
        info: RunInfo | None = self._runs.get(run)
        least = -1 if first is None else first
        bound = last
        while info is not None:
            most = info.turns if bound is None else min(bound, info.turns)
            # Most lines are passed over, so that they need not be parsed; of a damaged one
            # ``verify`` says what is wrong with it.
            with suppress(TapeError):
                own = self._own_records(info.id, least, most, _NO_INTERVENTION)
                found = {**own, **found}
            # A parent has a smaller number; on a damaged tape this loop would not end otherwise.
            start, parent = info.fork_turn, info.parent
            if start is None or parent is None or parent >= info.id or start <= least:
                break
            bound = start if bound is None else min(bound, start)
            info = self._runs.get(parent)
        return found


# --- settings ------------------------------------------------------------------------------------


def _defining(manifest: Mapping[str, Any]) -> dict[str, Any]:
    config = as_mapping(manifest.get("config"))
    values = {name: value for name, value in config.items() if name not in _SHOWN_ELSEWHERE}
    llm = as_mapping(manifest.get("llm") or config.get("llm"))
    return values | {"llm": {name: it for name, it in llm.items() if name not in _WAITING}}


def _fields(manifest: Mapping[str, Any]) -> dict[str, str]:
    return flat(_defining(manifest))


def _different(was: dict[str, str], now: dict[str, str]) -> list[str]:
    return [name for name in now | was if was.get(name) != now.get(name)]


def _settings(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return how a run's model and its settings differ from those of the run that it came from."""
    changed: list[str] = []
    models = [as_mapping(manifest.get("model")) for manifest in (before, after)]
    names = [model.get("name") for model in models]
    if all(models) and names[0] != names[1]:
        changed.append(f"model {_from_to(*names)}")
    elif all(models) and models[0].get("digest") != models[1].get("digest"):
        digests = [str(model.get("digest"))[:12] for model in models]
        changed.append(f"model {_short(names[1])}, digest {_from_to(*digests)}")
    # The configuration is the parent's; a setting that one of them lacks is another version's.
    was, now = (
        {name: it for name, it in _fields(manifest).items() if name.startswith("llm.")}
        for manifest in (before, after)
    )
    for name in _different(was, now):
        lacking = name.count(".") == 1 and not (name in was and name in now)
        if not lacking and not (changed and name == "llm.model"):
            changed.append(f"{name} {_from_to(was.get(name), now.get(name))}")
    return _few(changed)


def _likeness(info: RunInfo) -> object:
    return info.name, str(info.manifest.get("kind")), info.verb == "experiment"


# --- prompts -------------------------------------------------------------------------------------


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
    for place in new:
        if place in old:
            was, now = (str(as_mapping(of[place]).get("text", "")) for of in (old, new))
            if was != now:
                edits.setdefault((was, now), []).append(place)
    return edits


def _prompts(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return which words of which prompts differ."""
    old, new = (as_mapping(manifest.get("prompts")) for manifest in (before, after))
    edits = edited_prompts(before, after)
    names = {place: str(as_mapping(entry).get("name")) for place, entry in new.items()}
    edited = {place for places in edits.values() for place in places}
    same = {name for place, name in names.items() if place in old and place not in edited}
    changed = []
    for (was, now), places in edits.items():
        theirs = {names[place] for place in places}
        # By its name, unless others still have the old text under that name.
        what = ", ".join(places if theirs & same else sorted(theirs))
        changed.append(f"prompt {_short(what)}: {_word_change(was, now)}")
    return _few(changed)


def shared_start(old: Sequence[str], new: Sequence[str]) -> int:
    """Return how many words or lines two texts have in common at their beginnings."""
    parts = (at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b)
    return next(parts, min(len(old), len(new)))


def _word_change(was: str, now: str) -> str:
    old, new = was.split(), now.split()
    # What both begin and end with first: comparing takes time by the square of the words left.
    start = shared_start(old, new)
    old, new = old[start:], new[start:]
    end = shared_start(old[::-1], new[::-1])
    old, new = old[: len(old) - end], new[: len(new) - end]
    if not old and not new:
        return "its white space"
    if max(len(old), len(new)) > _MAX_WORDS:
        return f"{len(old):,} words became {len(new):,}"
    pieces = []
    for tag, a, b, c, d in SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes():
        removed, added = (f'"{_short(" ".join(words))}"' for words in (old[a:b], new[c:d]))
        if tag == "insert":
            pieces.append(f"+ {added}")
        elif tag != "equal":
            pieces.append(f"- {removed}" if tag == "delete" else f"{removed} → {added}")
    return ", ".join(_few(list(dict.fromkeys(pieces)), _MAX_PIECES))


# --- words ---------------------------------------------------------------------------------------


def _listed(records: Mapping[int, Any], part: str) -> list[Any]:
    items = (record.get(part) for record in records.values())
    return [item for its in items if isinstance(its, list) for item in its]


def _words(intervention: Any) -> str:
    """Return an intervention of any class in words, as its record has it."""
    values = as_mapping(intervention)
    parts: list[str] = []
    for name, value in values.items():
        if name == "turn" or value is None or value is False or value in ("", [], {}):
            continue
        items = value.items() if isinstance(value, dict) else [("", value)]
        parts += [" ".join(filter(None, (name, key, _plain(item)))) for key, item in items]
    return _one_line(f"turn {_plain(values.get('turn'))}: {', '.join(parts)}")


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "" if value else "no"
    if isinstance(value, int | float):
        return f"{value:g}" if abs(value) < 1e15 else "a huge number"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _each(counted: Counter[str]) -> list[str]:
    return _few(list(counted.elements()))


def _few(changes: list[str], most: int = _MAX_FIELDS) -> list[str]:
    return few([_one_line(change) for change in changes], most)


def _rounded(value: str | None) -> str | None:
    """Return a number's JSON with four digits, and any other JSON as it is."""
    try:
        return value if value is None else f"{float(value):.4g}"
    except ValueError:
        return value


def _from_to(was: object, now: object) -> str:
    return f"{_short(was)} → {_short(now)}"


def _short(value: object) -> str:
    return clip(printable(str("none" if value is None else value), keep="\n\t"), _MAX_TEXT)


def _one_line(text: str) -> str:
    return clip(printable(text, keep="\n\t"), _MAX_CHANGE)


# --- as a tree -----------------------------------------------------------------------------------


class TextTree:
    """Runs, each with its forks and reruns below it, and what each changed.

    Args:
        runs: the tape's runs.
        title: what stands above them.
        changes: what each changed, by its number.

    Attributes:
        lines: the tree, a line each; texts from the tape without control characters.
        runs: the runs in the order of their lines, which begin after the title.
        below: the runs that came from a run, by its number; under None those that came from none.
        changed: what each run changed, by its number, in the words of its line.
    """

    def __init__(
        self, runs: Iterable[RunInfo], *, title: str, changes: Callable[[int], Sequence[str]]
    ) -> None:
        runs = list(runs)
        numbers = {info.id for info in runs}
        below: dict[int | None, list[RunInfo]] = {}
        for info in runs:
            # A parent came first; else the tape is damaged, and the run stands by itself.
            known = info.parent in numbers and info.parent is not None and info.parent < info.id
            below.setdefault(info.parent if known else None, []).append(info)
        self.below: Mapping[int | None, Sequence[RunInfo]] = below
        self.changed = {info.id: tuple(changes(info.id)) for info in runs}
        found = _tree_lines(below, self.changed.__getitem__)
        self.lines: tuple[str, ...] = (printable(title), *(line for _, line in found))
        self.runs: tuple[RunInfo, ...] = tuple(info for info, _ in found)

    def __repr__(self) -> str:
        return "\n".join(self.lines)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def _tree_lines(
    below: dict[int | None, list[RunInfo]], changes: Callable[[int], Sequence[str]]
) -> Sequence[tuple[RunInfo, str]]:
    lines = []
    # A stack, not recursion: forks of forks may be deeper than Python's stack. The next run is the
    # last, with its indent, whether it is its parent's last one, and whether it has no parent.
    todo = [(info, "", True, True) for info in reversed(below.get(None, []))]
    while todo:
        info, indent, last, top = todo.pop()
        branch, inside = ("", "") if top else ("└─ ", "   ") if last else ("├─ ", "│  ")
        lines.append((info, f"{indent}{branch}{_run_line(info, changes(info.id))}"))
        children = below.get(info.id, [])
        todo += [
            (child, indent + inside, place == 0, False)
            for place, child in enumerate(reversed(children))
        ]
    return lines


def _run_line(info: RunInfo, changed: Sequence[str]) -> str:
    verb = info.verb if info.fork_turn is None else f"{info.verb} at turn {info.fork_turn}"
    first = 1 if info.fork_turn is None else info.fork_turn + 1
    turns = f"turns {first} to {info.turns}" if info.turns >= first else "no turn yet"
    if info.verb == "experiment":
        turns = f"{info.turns} sample{'' if info.turns == 1 else 's'}"
    parts = [info.name, verb, turns, info.outcome or "open", info.model or "no model"]
    texts = [clip(printable(part), _MAX_TEXT) for part in parts]
    if changed:
        texts.insert(2, clip(printable("; ".join(changed)), _MAX_CHANGE))
    return f"{info.id} {' · '.join(texts)}"
