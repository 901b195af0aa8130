"""Runs as an append-only log of JSON records, which pages, the window and static views read.

A record may bring new lines, texts and forms of slots, and then a part that uses them: a ``run``, a
``turn``, ``calls``, or a ``part`` of a further view. Prompts share most of their lines, so each
line is stored once, and a text is a list of the numbers of its lines, each as the step from the one
before. A later record of a run has only what is new; a later record of a turn replaces the earlier
one. So a reader only ever asks for the records after those it has.
"""

from __future__ import annotations

import json
import math
import re
import sys
import threading
from array import array
from bisect import bisect_left
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from llmsim_lab._util.jsontext import dumps
from llmsim_lab._util.tables import is_reasonable
from llmsim_lab._util.text import clip, listed, whole
from llmsim_lab.errors import TapeError
from llmsim_lab.people.figures import charted_people
from llmsim_lab.run.charts import (
    MOST_COLUMNS,
    ChartedColumns,
    charted_columns,
    hidden_fields,
    series_of,
    tables_in,
    without_fields,
)
from llmsim_lab.run.outside import outside_in_words
from llmsim_lab.run.registry import how_to_import
from llmsim_lab.run.series import MOST_SERIES, Series, own_numbers, plain_series
from llmsim_lab.run.session import load_turns
from llmsim_lab.run.state import COMMON_COLUMNS
from llmsim_lab.run.turn import Turn, result_in_words, with_outcomes
from llmsim_lab.tape import RunInfo, Tape
from llmsim_lab.tape.lines import Manifest as RecordedManifest
from llmsim_lab.tape.prompts_read import Anew, PromptsRead
from llmsim_lab.types import Attempt, CallSite, ChatReply, ChatRequest, Message

Record = dict[str, Any]
Requests = Iterable[tuple[Attempt, bool]]
"""Attempts, each with True if its call was made again."""

SETTINGS = ("model", "options", "think", "schema", "tools", "top_logprobs")
"""The settings of a request, without its messages."""
_LARGE = ("think", "schema", "tools", "top_logprobs")
"""The settings that are one and the same object in all requests of a question."""
_TWO_UNITS = re.compile("[\U00010000-\U0010ffff]")
_TEXT_ROOM = 2**27
"""Of the texts of a reading, in bytes as Python holds them: beside an emoji a letter takes four."""
_LEFT_OUT = (
    f"(Left out here: the texts of a page or window take no more than {_TEXT_ROOM // 2**20} MB of "
    "memory. The run has it: run.turns, or Tape(path).calls(run, turn=n).)"
)
_LEFT_OUT_AS_JSON = dumps({"left out": _LEFT_OUT})
_SPAN_ROOM = 2**19
"""Of the values in all prompts, beyond what each call may have."""
_SPANS_OF_A_CALL = 50
"""Of values in the system message, which take nothing in a call's own line on a tape."""
_TOO_MANY_SPANS = (
    "The values in this prompt are not marked here: those of all prompts are too many. "
    "Tape(path).call(number).attempt.request.provenance has them."
)
_STEP_WEIGHT = 8
"""Of a line of a text that is in the log already, in bytes."""
_LONG = 10_000
"""Of a text that is not gone through anew for each call that has it, in characters."""
_KEPT_FROM = 1_000
"""From how many characters on the JSON of settings is not written anew for each call."""
_TOO_EMPTY = (
    "Some columns are left out here, since nearly all of them are empty in each turn; the tape's "
    "frame_rows() has all."
)
_TOO_WIDE = (
    f"The columns after the first {MOST_COLUMNS:,} are left out here; the tape's frame_rows() has "
    "all."
)


class RowState(dict[str, Any]):
    """A state as its record has it, with its columns of the frame."""

    def __init__(
        self,
        values: Mapping[str, Any],
        row: Mapping[str, Any],
    ) -> None:
        super().__init__(values)
        self._row = row

    def columns(self) -> dict[str, Any]:
        """Return the recorded columns, without those of every run."""
        row = self._row
        return {name: row[name] for name in row if name not in COMMON_COLUMNS}


class TurnRange(NamedTuple):
    """The first and last of some turns; infinite without a bound."""

    first: float = -math.inf
    last: float = math.inf


ALL_TURNS = TurnRange()


class _Settings(NamedTuple):
    """The settings of a request, and the number of their text in the log."""

    request: ChatRequest
    options: Mapping[str, Any]
    text: int


class RecordedRun:
    """Turns of a run whose class is not known here: all that a tape tells without the class.

    Args:
        tape: the tape.
        info: the run.
        turns: the turns to read.
        why: why its class is not used, in words; empty if it is not known.
    """

    state_type = dict[str, Any]

    def __init__(
        self,
        tape: Tape,
        info: RunInfo,
        turns: TurnRange,
        *,
        why: str = "",
    ) -> None:
        self.tape = tape
        self.run_id = info.id
        self.name = info.name
        kind = str(info.manifest.get("kind"))
        self.note = (
            f"Run {info.id} is shown as it was recorded, without its class, {kind}; to see more, "
            f"{how_to_import(kind)}."
        )
        if why:
            self.note = f"Run {info.id} is shown as it was recorded, since {why}"
        self.last_planned = info.turns
        rows: dict[int, dict[str, Any]] = {}
        names: dict[str, None] = {}

        def next_records() -> Iterator[Record]:
            # One by one, since each turn is made anew from its line: all would be there twice.
            for number, line in tape.each_turn_line(info.id, turns.first, turns.last):
                # Half characters are replaced: a page cannot hold them.
                row = whole(line["row"])
                rows[number] = row
                if len(names) < MOST_SERIES:
                    names.update(dict.fromkeys(own_numbers(row)))
                yield line["record"]

        self.turns: list[Turn] = []
        turns_without_rows = load_turns(
            RecordedRun,
            tape,
            info.id,
            next_records(),
        )
        self.series = plain_series(names)
        for turn in turns_without_rows:
            state = RowState(turn.state, rows[turn.number])
            self.turns.append(
                replace(
                    turn,
                    state=state,
                    noted={},
                )
            )

    def prediction(self) -> Mapping[str, float]:
        """Return nothing, since only the class knows what theory predicts."""
        return {}


class Reading:
    """The log of some runs.

    Args:
        title: the title above the runs.

    Attributes:
        records: the records. They are only ever added to, so a reader's place is their number.
        runs: the latest record of each run, by its number.
        calls: the latest record of each call, by its number.
        parts: the latest value of each part of a further view, by the view's name and a key.
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self.records: list[Record] = []
        # One thread may play a turn while another serves a page; methods call each other.
        self._lock = threading.RLock()
        self._tables: dict[str, dict[Hashable, int]] = {
            "lines": {},
            "texts": {},
            "forms": {},
        }
        self._new: dict[str, list[Any]] = {}
        self.runs: dict[int, Record] = {}
        self.calls: dict[int, Record] = {}
        self.parts: dict[tuple[str, str | int], Any] = {}
        self._seen: dict[int, dict[int, Turn]] = {}
        self._charted: dict[int, ChartedColumns] = {}
        """The columns of numbers of each run."""
        self._hidden: dict[int, frozenset[str]] = {}
        """Fields of each run's state that are not shown."""
        self._columns: dict[int, dict[str, None]] = {}
        self._latest_settings: _Settings | None = None
        self._long_settings: dict[tuple[object, ...], _Settings] = {}
        """Those whose JSON is long, by the identity of their parts, which are kept alive here."""
        self._units: dict[str, _Units] = {}
        self._text_room = _TEXT_ROOM
        self._left_out: set[str] = set()
        """Texts for which there was no room: they are long, and are not looked at again."""
        self._span_room = _SPAN_ROOM
        self._defaults_of: dict[type, str] = {}
        """The defaults of parameters as JSON, by the class of the configuration."""
        self._values: dict[int, int] = {}
        """How many values each run's turns have in all."""
        self._narrowed: dict[int, str] = {}
        """Of runs with more columns than are shown, why."""
        self._shown_manifests: set[int] = set()
        self._shared_parts: dict[str, str] = {}
        """Parts of manifests as JSON, by what names them on a tape."""
        # Thousands of runs may share parts of megabytes, which took gigabytes when each was written
        # out.
        self._manifest_room = 2**26
        """How many bytes of parts that runs share may still be shown in manifests."""
        self._numbers: dict[tuple[Path | None, int], int] = {}
        self._taken: set[int] = set()
        self._highest = 0
        self._prompts_read: dict[int, PromptsRead] = {}
        """What each run's server read of its prompts."""
        self._anew: dict[tuple[int, int], Anew | None] = {}
        """What was read of each request's prompt, by run and ``_key_of``."""

    def since(self, at: int) -> list[Record]:
        """Return the records after the first ``at``."""
        with self._lock:
            return self.records[at:]

    def put(
        self,
        kind: str,
        key: str | int,
        value: Any,
    ) -> None:
        """Add a part of a further view, unless the same value is there already.

        Args:
            kind: the view's name.
            key: the part; a later value replaces an earlier one.
            value: the value, which JSON can hold.
        """
        with self._lock:
            if self.parts.get((kind, key)) != value:
                self.parts[kind, key] = value
                part = {"kind": kind, "key": key, "value": value}
                self._append({"part": part})

    # --- runs --------------------------------------------------------------------------------

    def add(
        self,
        info: RunInfo,
        source: Any,
        *,
        changes: Sequence[str] = (),
        calls: Requests = (),
    ) -> None:
        """Add a run, or what has changed in it since it was added.

        Args:
            info: what the run's tape says of it, or would say.
            source: the run itself, or a ``RecordedRun``.
            changes: what the run changed, in words.
            calls: the run's requests on the tape, each with True if its call was made again. They
                are shown even if no turn names them.
        """
        with self._lock:
            shown = self.runs.setdefault(info.id, {"columns": []})
            if "series" not in shown:
                state_type = getattr(source, "state_type", None)
                self._hidden[info.id] = hidden_fields(state_type)
                self._charted[info.id] = charted_columns(source)
                self._put_charts(info.id, source)
            self._put_run(
                info,
                source,
                shown,
                changes,
            )
            seen = self._seen.setdefault(info.id, {})
            new: list[Turn] = []
            # From the end, since only the latest turn can have changed.
            for turn in reversed(source.turns):
                if seen.get(turn.number) is turn:
                    break
                new.append(turn)
            played = []
            for turn in reversed(new):
                seen[turn.number] = turn
                if self._is_its_own(info, turn):
                    played.append(turn)
            rest = list(calls)
            self._count(info.id, played, rest)
            for turn in played:
                self._put_turn(info.id, source, turn)
            self._put_rest(info.id, source, rest)
            words = str(self._prompts_read[info.id])
            # Empty before a server has read any prompt.
            if words and words != shown.get("read"):
                shown["read"] = words
                self._append_run(info.id, read=words)

    def _count(
        self,
        run: int,
        turns: Sequence[Turn],
        rest: Sequence[tuple[Attempt, bool]],
    ) -> None:
        """Count what a server read of new prompts, in the order of the tape."""
        attempts = [attempt for attempt, _ in rest]
        for turn in turns:
            for call in turn.calls:
                attempts += call.history
        # Whether a server had read a prompt before depends on the order of the requests.
        attempts.sort(key=lambda attempt: attempt.number or 0)
        total = self._prompts_read.setdefault(run, PromptsRead())
        for attempt in attempts:
            key = run, _key_of(attempt)
            if key not in self._anew:
                self._anew[key] = total.add(attempt)

    def _is_its_own(self, info: RunInfo, turn: Turn) -> bool:
        """Return True for a turn that the run played itself, or changed when it was forked."""
        if info.fork_turn is None or turn.number > info.fork_turn:
            return True
        if turn.number < info.fork_turn:
            return False
        parents_turn = self._turn_of(info.parent or 0, turn.number)
        return parents_turn is not None and parents_turn.state != turn.state

    def _turn_of(self, run: int, number: int) -> Turn | None:
        """Return a turn played by a run or its parents; None if it is not in this log."""
        passed: list[dict[int, Turn]] = []
        seen = self._seen.get(run)
        while seen is not None and number not in seen:
            passed.append(seen)
            run = self.runs[run].get("parent") or 0
            seen = self._seen.get(run)
        if seen is None:
            return None
        turn = seen[number]
        for later in passed:  # kept, so that forks of forks need not search all their parents again
            later[number] = turn
        return turn

    def _put_run(
        self,
        info: RunInfo,
        source: Any,
        shown: Record,
        changes: Sequence[str],
    ) -> None:
        plays = not isinstance(source, RecordedRun)
        notes: list[str] = []
        if not plays:
            notes.append(source.note)
        if info.id in self._narrowed:
            notes.append(self._narrowed[info.id])
        charted = self._charted[info.id]
        notes += filter(None, [charted.missing(), charted.left_out()])
        without_effect = self._without_effect(info, source)
        if without_effect:
            notes.append(without_effect)
        manifest = self._manifest(info)
        facts: Record = {
            "id": info.id,
            "name": info.name,
            "verb": info.verb,
            "parent": info.parent,
            "started": info.started,
            "model": info.model,
            "kind": str(info.manifest.get("kind")),
            "seed": info.manifest.get("seed"),
            "fork": info.fork_turn,
            "outcome": info.outcome or "",
            "changes": list(changes),
            "planned": source.last_planned,
            "prediction": plain(source.prediction()),
            "people": _people(source),
            "plays": plays,
            "defaults": self._keep_json(self._defaults(source)),
            "notes": notes,
            "manifest": self._keep_json(manifest),
        }
        # A run is added again after each turn, and most facts stay the same.
        changed: Record = {}
        for name, value in facts.items():
            if shown.get(name) != value:
                changed[name] = value
        if not changed:
            return
        is_new = "id" not in shown
        shown |= facts
        if is_new:
            # With a copy of the columns: the list grows, but a record that was sent must not
            # change.
            columns = [*shown["columns"]]
            self._append({"run": {**shown, "columns": columns}})
        else:
            self._append_run(info.id, **changed)

    def _without_effect(self, info: RunInfo, source: Any) -> str:
        """Return a sentence if numbers that a fork set made no difference to its turns; else "".

        Whether a turn computes a number anew is not known before it is played. Only the author
        could say so, with a mark at the field.
        """
        if info.fork_turn is None:
            return ""
        names: list[str] = []
        compared = 0
        for turn in source.turns:
            if turn.number == info.fork_turn:
                for intervention in turn.interventions:
                    names += intervention.set
            if turn.number <= info.fork_turn:
                continue
            parents_turn = self._turn_of(info.parent or 0, turn.number)
            if parents_turn is None:
                break
            if parents_turn.state != turn.state:
                return ""
            compared += 1
        if not names or not compared:
            return ""
        return (
            f"Setting {listed(names)} made no difference: the turns after it end as those of run "
            f"{info.parent}. If each turn computes it anew, mark the field, and no form offers it: "
            "Field(frozen=True), or pydantic's computed_field."
        )

    def _defaults(self, source: Any) -> str:
        """Return the defaults of a run's parameters as JSON; empty if its class is not known."""
        config = getattr(source, "config", None)
        if not isinstance(config, BaseModel):
            return ""
        cls = type(config)
        # Once for each class, since a study's runs share one.
        if cls not in self._defaults_of:
            self._defaults_of[cls] = _defaults_as_json(cls)
        return self._defaults_of[cls]

    def _manifest(self, info: RunInfo) -> str:
        """Return a manifest to show, as JSON; a short one if too much was shown already."""
        if info.id not in self._shown_manifests:
            weight = sum(map(info.weight, info.manifest))
            if weight > self._manifest_room:
                command = f"llmsim-lab tape show --run {info.id}"
                left_out = {
                    "kind": str(info.manifest.get("kind")),
                    "left out": f"all manifests are too long: {command}",
                }
                return json.dumps(left_out, indent=1)
            self._manifest_room -= weight
            self._shown_manifests.add(info.id)
        parts = [
            f" {_encode(name)}: {self._part_of_manifest(info, name)}" for name in info.manifest
        ]
        lines = ",\n".join(parts)
        return f"{{\n{lines}\n}}"

    def _part_of_manifest(self, info: RunInfo, name: str) -> str:
        """Return a part of a manifest as JSON, written once for all runs that share its text."""
        digest = ""
        if isinstance(info.manifest, RecordedManifest):
            digest = info.manifest.digest(name) or ""
        if digest in self._shared_parts:
            return self._shared_parts[digest]
        text = json.dumps(plain(info.manifest[name]), indent=1).replace("\n", "\n ")
        if digest:
            self._shared_parts[digest] = text
        return text

    def _put_turn(
        self,
        run: int,
        source: Any,
        turn: Turn,
    ) -> None:
        row = without_fields(turn.columns(), self._hidden[run])
        self._put_columns(
            run,
            source,
            turn,
            row,
        )
        columns = self.runs[run]["columns"]
        decided = with_outcomes(turn)
        # In a study, calls of another turn may have measured an answer.
        all_calls = list(turn.calls)
        statuses: dict[int, str] = {}
        for answer, _ in decided:
            all_calls += answer.calls
            for call in answer.calls:
                statuses[id(call)] = answer.status
        numbers: dict[int, int] = {}
        for call in all_calls:
            numbers[id(call)] = self._number(source, call.history)
        decisions: list[Record] = []
        for answer, outcome in decided:
            decisions.append(
                {
                    "player": answer.player,
                    "component": answer.component,
                    "status": answer.status,
                    "confidence": answer.confidence,
                    "reasoning": self.keep_text(answer.reasoning),
                    "answer": plain(answer.fields),
                    "became": plain(outcome),
                    "calls": [numbers[id(call)] for call in answer.calls],
                }
            )
        calls: list[Record] = []
        for call in turn.calls:
            number = numbers[id(call)]
            status = statuses.get(id(call), call.status)
            # A comparison of prompts also names calls of the run that it asks again. Their records
            # are that run's. A made-up tape may name a thousand calls in each of a thousand turns.
            recorded_call = self.calls.get(number, {"run": run, "n": turn.number})
            if recorded_call["run"] == run and recorded_call.get("n") == turn.number:
                calls.append(
                    self._call(
                        number,
                        run,
                        turn.number,
                        call.history,
                        status,
                    )
                )
        story = _words(source, turn, columns)
        words = list(map(self.keep_text, story))
        tables: dict[str, int] = {}
        table_texts = tables_in(turn.state, self._hidden[run])
        for name, text in table_texts.items():
            tables[name] = self._keep_json(text)
        record: Record = {
            "run": run,
            "n": turn.number,
            "row": plain([row.get(name) for name in columns]),
            "words": words,
            "done": [str(intervention) for intervention in turn.interventions],
            "seconds": round(turn.seconds, 2),
            "tokens": turn.tokens,
            "decisions": decisions,
            "calls": [numbers[id(call)] for call in turn.calls],
        }
        if tables:
            record["tables"] = tables
        # One record for both, so that no reader sees a turn without its calls.
        self._append({"turn": record, "calls": calls})

    def _put_columns(
        self,
        run: int,
        source: Any,
        turn: Turn,
        row: Mapping[str, object],
    ) -> None:
        """Add the columns of a turn's row that are not in the run's record yet."""
        shown = self.runs[run]
        has_new_charts = self._charted[run].add(turn, row)
        if has_new_charts:  # only then, since the charts depend on all turns
            self._put_charts(run, source)
        columns = self._columns.setdefault(run, {})
        new_names = [name for name in row if name not in columns]
        self._values[run] = self._values.get(run, 0) + len(row)
        turns = range(len(self._seen[run]))
        width = len(columns) + len(new_names)
        room = MOST_COLUMNS - len(columns)
        reason = _TOO_WIDE
        if not is_reasonable(turns, width, values=self._values[run]):
            room = 0
            reason = _TOO_EMPTY
        if len(new_names) > room:
            new_names = new_names[:room]
            if run not in self._narrowed:
                self._narrowed[run] = reason
                shown["notes"] = [*shown["notes"], reason]
                self._append_run(run, notes=shown["notes"])
        if new_names or has_new_charts:
            shown["columns"] += new_names
            columns |= dict.fromkeys(new_names)
            self._append_run(
                run,
                columns=[*shown["columns"]],
                series=shown["series"],
                charts=shown["charts"],
                dicts=shown["dicts"],
            )

    def _put_charts(self, run: int, source: Any) -> None:
        """Update the columns and charts in a run's record."""
        shown = self.runs[run]
        charted = self._charted[run]
        series = series_of(source)
        shown["series"] = list(map(_series, series))
        shown["charts"] = list(map(_series, charted.charts(series)))
        shown["dicts"] = charted.dicts()
        # A class that names its charts gets no others.
        named_charts = getattr(type(source), "charts", ())
        shown["limited"] = bool(named_charts)

    # --- calls -------------------------------------------------------------------------------

    def _number(self, source: Any, history: Sequence[Attempt]) -> int:
        """Return a call's number: the one of its last request on the tape, if that is free."""
        number = history[-1].number
        owner: tuple[Path | None, int] = (None, id(history))
        if number:
            tape = getattr(source, "tape", None)
            owner = (getattr(tape, "path", None), number)
        if owner not in self._numbers:
            next_number = self._highest + 1
            if number and number not in self._taken:
                next_number = number
            self._numbers[owner] = next_number
            self._taken.add(next_number)
            self._highest = max(self._highest, next_number)
        return self._numbers[owner]

    def _put_rest(
        self,
        run: int,
        source: Any,
        calls: Sequence[tuple[Attempt, bool]],
    ) -> None:
        """Add requests that are in no turn: those of failed turns, and calls made again."""
        if not calls:
            return
        named: set[int | None] = set()
        for turn in source.turns:
            for call in turn.calls:
                named.update(call.numbers)
        rest = []
        for unnamed in _unnamed_calls(calls, named):
            number = self._number(source, unnamed.history)
            site = unnamed.history[0].request.site
            turn_number = None
            if site is not None:
                turn_number = site.turn
            rest.append(
                self._call(
                    number,
                    run,
                    turn_number,
                    unnamed.history,
                    unnamed.status,
                )
            )
        if rest:
            self._append({"calls": rest})

    def _call(
        self,
        number: int,
        run: int,
        turn: int | None,
        history: Sequence[Attempt],
        status: str,
    ) -> Record:
        site = history[-1].request.site or CallSite(component="call")
        tries = []
        for attempt in history:
            anew = self._anew.get((run, _key_of(attempt)))
            tries.append(self.attempt(attempt, anew))
        return _short(
            {
                "k": number,
                "run": run,
                "n": turn,
                "player": site.agent,
                "component": site.component,
                "replicate": site.replicate or None,
                "status": status,
                "tries": tries,
            }
        )

    def attempt(
        self,
        attempt: Attempt,
        anew: Anew | None = None,
    ) -> Record:
        """Return the record of an attempt, whose texts go out with the next record.

        Args:
            attempt: the attempt.
            anew: what a server read anew of its prompt, if that is known.
        """
        # The reply first: texts are numbered as they come, and the same runs must give the same
        # page.
        reply: Record = {}
        if attempt.reply is not None:
            reply = self._reply(attempt, attempt.reply)
        request = attempt.request
        messages = []
        for role, text in map(spoken, request.messages):
            messages.append([role, self.keep_text(text)])
        record: Record = {
            "messages": messages,
            "slots": None,
            "settings": self._settings_of(request),
            "seed": plain(request.options.get("seed")),
            "fault": attempt.reason,
            "detail": None,
            "seconds": round(attempt.seconds, 3),
            **reply,
        }
        if request.origin is not None:
            record["slots"] = self._slots(request)
        if attempt.detail:
            record["detail"] = self.keep_text(attempt.detail)
        if anew is not None:
            record["anew"] = anew.tokens
            record["counted"] = anew.is_counted
        return _short(record)

    def _settings_of(self, request: ChatRequest) -> int:
        """Return the number of a request's settings, which are the same for most of a run."""
        # Without the seed, which follows from the run's.
        options = dict(request.options)
        options.pop("seed", None)
        latest = self._latest_settings
        # Compared first, since writing a schema as JSON takes long.
        if latest is not None and latest.options == options and _is_alike(latest.request, request):
            return latest.text
        parts = [getattr(request, name) for name in (*_LARGE, "options")]
        key = (request.model, *map(id, parts))
        kept = self._long_settings.get(key)
        if kept is None:
            settings = {name: getattr(request, name) for name in SETTINGS}
            settings["options"] = options
            settings_as_json = dumps(plain(_short(settings)))
            kept = _Settings(request, options, self._keep_json(settings_as_json))
            if len(settings_as_json) > _KEPT_FROM:
                self._long_settings[key] = kept
        self._latest_settings = kept
        return kept.text

    def _reply(self, attempt: Attempt, reply: ChatReply) -> Record:
        """Return the parts of an attempt's record that come from its reply."""
        record = {"reply": self.keep_text(reply.text)}
        tools = "\n".join(tool_lines(reply))
        if reply.thinking:
            record["thinking"] = self.keep_text(reply.thinking)
        if tools:
            record["tools"] = self.keep_text(tools)
        return {
            **record,
            "read": reply.prompt_tokens,
            "written": reply.reply_tokens,
            "cut": reply.done_reason == "length",
            "cut_fields": list(attempt.cut),
        }

    def _slots(self, request: ChatRequest) -> Any:
        """Return the number of a form and the places of its spans; a text if there are none."""
        if self._span_room < 0:
            return _TOO_MANY_SPANS
        try:
            spans = request.provenance.spans
        except TapeError as error:
            return clip(str(error), 200)
        roles = [message.role for message in request.messages]
        units = [self._units_of(message.content) for message in request.messages]
        form: list[list[object]] = []
        places: list[int] = []
        for span in spans:
            # A damaged prompt may have spans of a message that is not there.
            if span.role not in roles:
                continue
            message = roles.index(span.role)
            start = units[message].units_before(span.start)
            end = units[message].units_before(span.end)
            places += [start, end - start]
            form.append([message, span.name, span.source, span.tokens])
        in_user_message = sum(span.role == "user" for span in spans)
        self._span_room -= max(0, len(spans) - in_user_message - _SPANS_OF_A_CALL)
        key = tuple(map(tuple, form))  # most prompts of a run have equal spans
        number = self._kept("forms", key, form)
        return [number, *places]

    def _units_of(self, text: str) -> _Units:
        """Return how JavaScript counts in a text; thousands of calls may share a long one."""
        if len(text) < _LONG or text.isascii():
            return _Units(text)
        if text not in self._units:
            self._units[text] = _Units(text)
        return self._units[text]

    # --- shared parts ------------------------------------------------------------------------

    def keep_text(self, text: str) -> int:
        """Return a text's number; a new one goes out with the next record.

        If there is no room left for it, this is the number of a sentence that says so.
        """
        return self._number_of(text, _LEFT_OUT)

    def _keep_json(self, text: str) -> int:
        """Do what ``keep_text`` does with a text of JSON, in whose place JSON stands too."""
        return self._number_of(text, _LEFT_OUT_AS_JSON)

    def _number_of(self, text: str, left_out: str) -> int:
        number = self._tables["texts"].get(text)
        if number is not None:
            return number
        if text in self._left_out:
            return self._number_of(left_out, left_out)
        lines = text.split("\n")
        known_lines = self._tables["lines"]
        weight = _STEP_WEIGHT * len(lines)
        weight += sum(sys.getsizeof(line) for line in lines if line not in known_lines)
        if weight > self._text_room and text != left_out:
            self._left_out.add(text)
            return self._number_of(left_out, left_out)
        self._text_room -= weight
        steps: list[int] = []
        before = 0
        for line in lines:
            number = self._kept("lines", line, line)
            # Most steps are 1, and compress to almost nothing.
            steps.append(number - before)
            before = number
        return self._kept("texts", text, steps)

    def _kept(
        self,
        name: str,
        key: Hashable,
        value: Any,
    ) -> int:
        """Return the number of an item in a table; a new item goes out with the next record."""
        table = self._tables[name]
        if key not in table:
            table[key] = len(table)
            new_items = self._new.setdefault(name, [])
            new_items.append(value)
        return table[key]

    def _append_run(self, number: int, **facts: object) -> None:
        """Add a record with what is new about a run."""
        self._append({"run": {"id": number, **facts}})

    def _append(self, record: Record) -> None:
        for call in record.get("calls", ()):
            self.calls[call["k"]] = call
        # The new lines and texts come first, since the record uses them.
        self.records.append({**self._new, **record})
        self._new = {}


class _UnnamedCall(NamedTuple):
    """The attempts of a call that no turn names, and its status: ``lost``, or empty."""

    history: list[Attempt]
    status: str


def _unnamed_calls(
    calls: Sequence[tuple[Attempt, bool]],
    named: Container[int | None],
) -> list[_UnnamedCall]:
    """Return the calls made by requests that no turn names.

    Args:
        calls: requests, each with True if its call was made again.
        named: the numbers of the requests that turns name.
    """
    unnamed: list[_UnnamedCall] = []
    latest: dict[CallSite | None, _UnnamedCall] = {}
    for attempt, forgotten in calls:
        if attempt.number in named:
            continue
        site = attempt.request.site
        # A later attempt belongs to the latest call at its place.
        if attempt.request.attempt == 1 or site not in latest:
            latest[site] = _UnnamedCall([], "lost" if forgotten else "")
            unnamed.append(latest[site])
        latest[site].history.append(attempt)
    return unnamed


def _is_alike(one: ChatRequest, other: ChatRequest) -> bool:
    """Return True if two requests surely have the same settings beside their options."""
    # By identity, which is fast: requests of one question share these objects.
    for name in _LARGE:
        if getattr(one, name) is not getattr(other, name):
            return False
    return one.model == other.model


def _defaults_as_json(cls: type[BaseModel]) -> str:
    """Return the defaults of a configuration's parameters."""
    defaults: Record = {}
    for name, field in cls.model_fields.items():
        if field.is_required():
            continue
        value = field.get_default(call_default_factory=True)
        if isinstance(value, BaseModel):
            value = value.model_dump(mode="json")
        defaults[name] = value
    return dumps(plain(defaults))


def _key_of(attempt: Attempt) -> int:
    """Return a key for a request of a run, also for requests that have no number on a tape."""
    return attempt.number or -id(attempt)


def _words(
    source: Any,
    turn: Turn,
    columns: Sequence[str],
) -> list[str]:
    """Return a turn's story, and what came to it from outside, which is on its tape.

    The turn's result is left out, since a table beside it shows it. Older recordings have it as a
    line of their story.
    """
    if turn.number == 0:  # the initial state is not the result of a turn
        return []
    story = list(turn.story)
    beginning = result_in_words("")
    results = [place for place, line in enumerate(story) if line.startswith(beginning)]
    # A turn has one. Both a story and the columns may be long: not each is compared with each.
    if results and _begins_with_column(story[results[-1]].removeprefix(beginning), columns):
        del story[results[-1]]
    outside = []
    tape = getattr(source, "tape", None)
    if tape is not None:
        # The parent of a fork has played its first turns.
        player = tape.player(source.run_id, turn.number)
        outside = tape.outside(player, turn.number)
    return [*story, *outside_in_words(outside)]


def _begins_with_column(figures: str, columns: Iterable[str]) -> bool:
    """Return True if figures in words begin with one of a column."""
    for name in columns:
        words = name.replace("_", " ")
        if figures.startswith((f"{name} ", f"{words} ")):
            return True
    return False


def _people(source: Any) -> list[Record]:
    """Return the published values of people who took part in a study with the world's design."""
    if not hasattr(source, "people"):  # a recorded run whose class is not known
        return []
    values: list[Record] = []
    for measured in charted_people(source):
        value: Record = {
            "column": measured.column,
            "mean": measured.figure.mean,
            "count": measured.figure.n,
        }
        if measured.turn is not None:
            value["n"] = measured.turn
        values.append(value)
    return values


def _series(item: Series) -> Record:
    return {
        "column": item.column,
        "label": item.label,
        "unit": item.unit,
        "low": item.low,
        "high": item.high,
    }


def spoken(message: Message) -> tuple[str, str]:
    """Return the speaker of a message, and its text with its calls of tools."""
    role: str = message.role
    if message.tool_name:
        role = f"{role}: {message.tool_name}"
    lines = tool_lines(message)
    if message.content:
        lines.insert(0, message.content)
    return role, "\n".join(lines)


def tool_lines(message: Message | ChatReply) -> list[str]:
    """Return the calls of tools in a message or reply, one line each."""
    lines: list[str] = []
    for call in message.tool_calls:
        arguments = dumps(plain(call.arguments))
        lines.append(f"→ {call.name}({arguments})")
    return lines


def _short(values: Mapping[str, object]) -> Record:
    """Return the values that say something: not None, not empty, not False."""
    short: Record = {}
    for name, value in values.items():
        # 0 says something, although it equals False.
        is_empty = value is False or value in (None, "", [], (), {})
        if not is_empty:
            short[name] = value
    return short


class _Units:
    """Places in a text as JavaScript counts, in units of two bytes: some characters are two.

    Args:
        text: the text; a prompt may have many places, so it is gone through once.
    """

    def __init__(self, text: str) -> None:
        self._length = len(text)
        self._long: Sequence[int] = ()
        """The places of the characters that are two units."""
        if not text.isascii():
            places = (match.start() for match in _TWO_UNITS.finditer(text))
            self._long = array("L", places)

    def units_before(self, place: int) -> int:
        """Return how many units are before a character."""
        within = min(place, self._length)
        return within + bisect_left(self._long, within)


_encode = json.JSONEncoder(default=str).encode
_decode = json.JSONDecoder(
    parse_float=lambda text: float(f"{float(text):.10g}"), parse_constant=str
).decode


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it; fractions have ten digits."""
    # Most values are such, and need not go through JSON.
    is_empty_dict = type(value) is dict and not value
    if value is None or type(value) is int or is_empty_dict:
        return value
    return _decode(_encode(value))
