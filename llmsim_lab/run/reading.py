"""Runs as an append-only log of JSON records: what the page, the window and static views read.

A record may bring lines, texts and forms of slots, and then what uses them: a ``run``, a ``turn``,
``calls``, or a ``part`` of a further view. A text is the numbers of its lines, each as the step
from the one before, and each line is kept once, since prompts share most of theirs. A later record
of a run says what is new of it, and one of a turn takes the earlier one's place, so that a reader
only ever asks for what comes after those it has.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from llmsim_lab._util.jsontext import dumps
from llmsim_lab._util.tables import is_reasonable
from llmsim_lab._util.text import clip, listed, whole
from llmsim_lab.errors import TapeError
from llmsim_lab.people.figures import charted_people
from llmsim_lab.run.charts import (
    ChartedColumns,
    charted_columns,
    hidden_fields,
    series_of,
    tables_in,
    without_fields,
)
from llmsim_lab.run.outside import outside_in_words
from llmsim_lab.run.registry import how_to_import
from llmsim_lab.run.series import Series, own_numbers, plain_series
from llmsim_lab.run.session import load_turns
from llmsim_lab.run.state import COMMON_COLUMNS
from llmsim_lab.run.turn import Turn, result_in_words, with_outcomes
from llmsim_lab.tape import RunInfo, Tape
from llmsim_lab.tape.prompts_read import Anew, PromptsRead
from llmsim_lab.types import Attempt, CallSite, ChatReply, ChatRequest, Message

Record = dict[str, Any]
Requests = Iterable[tuple[Attempt, bool]]
"""Each with whether its call was made again."""

SETTINGS = ("model", "options", "think", "schema", "tools", "top_logprobs")
"""Of a request, beside its messages."""
_LARGE = ("think", "schema", "tools", "top_logprobs")
"""Those that are the same object in requests that come from one question."""
_LEFT_OUT = "Some columns are left out here: its turns name too many, nearly all of them empty."


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
        """Return the recorded columns of the world itself."""
        return {name: value for name, value in self._row.items() if name not in COMMON_COLUMNS}


class TurnRange(NamedTuple):
    """The first and the last of some turns; infinite where there is no bound."""

    first: float = -math.inf
    last: float = math.inf


ALL_TURNS = TurnRange()


class _Settings(NamedTuple):
    """The settings of a request, and the number of their text."""

    request: ChatRequest
    options: Mapping[str, Any]
    text: int


class RecordedRun:
    """Turns of a run whose class is not known here, as far as every tape tells of them.

    Args:
        tape: the tape.
        info: the run.
        turns: which of them.
        why: why its class is not used, in words; empty where it is not known.
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
            self.note = (
                f"Run {info.id} is shown as it was recorded, since its class, {kind}, cannot read "
                f"it: {why}"
            )
        self.last_planned = info.turns
        lines = tape.turn_lines(
            info.id,
            turns.first,
            turns.last,
        )
        rows = {number: whole(line["row"]) for number, line in lines.items()}
        names = chain.from_iterable(map(own_numbers, rows.values()))
        self.series = plain_series(names)
        self.turns: list[Turn] = []
        records = [line["record"] for line in lines.values()]
        for turn in load_turns(RecordedRun, tape, info.id, records):
            state = RowState(turn.state, rows[turn.number])
            self.turns.append(
                replace(
                    turn,
                    state=state,
                    noted={},
                )
            )

    def prediction(self) -> Mapping[str, float]:
        """Return nothing: what theory says, only the class knows."""
        return {}


class Reading:
    """The log.

    Args:
        title: what stands above the runs.

    Attributes:
        records: they only grow in number, so that their count says what a reader has seen.
        runs: the latest record of each run, by its number.
        calls: the latest record of each call, by its number.
        parts: the latest value of each part of a further view, by the view's name and a key.
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self.records: list[Record] = []
        # A turn may be played on one thread while a page asks on another; parts call each other.
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
        self._defaults_of: dict[type, str] = {}
        """The defaults of parameters by the class of their configuration, JSON."""
        self._values: dict[int, int] = {}
        """How many values a run's turns have in all."""
        self._narrowed: set[int] = set()
        """Runs of which columns are left out."""
        self._shown_manifests: set[int] = set()
        # Thousands of runs may share one of megabytes: written out for each, it took gigabytes.
        self._manifest_room = 2**26
        """How much of what runs share may still be shown as parts of manifests, bytes."""
        self._numbers: dict[tuple[Path | None, int], int] = {}
        self._highest = 0
        self._prompts_read: dict[int, PromptsRead] = {}
        """Of each run, what its server read of its prompts."""
        self._anew: dict[tuple[int, int], Anew | None] = {}
        """The same of each request, by run and ``_key_of``."""

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
        """Add what a view beyond those of runs is made of, where it is not known already.

        Args:
            kind: the view's name.
            key: which part of it; a later value takes an earlier one's place.
            value: as JSON can hold it.
        """
        with self._lock:
            if self.parts.get((kind, key)) != value:
                self.parts[kind, key] = value
                self._append({"part": {"kind": kind, "key": key, "value": value}})

    # --- runs --------------------------------------------------------------------------------

    def add(
        self,
        info: RunInfo,
        source: Any,
        *,
        changes: Sequence[str] = (),
        calls: Requests = (),
    ) -> None:
        """Add a run, or what has changed of it since it was added.

        Args:
            info: what the tape says of it, or would.
            source: the run itself, or ``RecordedRun``.
            changes: what it changed, in words.
            calls: its requests on the tape, each with whether its call was made again: those that
                no turn names are shown too.
        """
        with self._lock:
            shown = self.runs.setdefault(info.id, {"columns": []})
            if "series" not in shown:
                self._hidden[info.id] = hidden_fields(
                    getattr(
                        source,
                        "state_type",
                        None,
                    )
                )
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
            # From the end, since only the latest turn can have been changed.
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
            if words and words != shown.get("read"):
                shown["read"] = words
                self._append({"run": {"id": info.id, "read": words}})

    def _count(
        self,
        run: int,
        turns: Sequence[Turn],
        rest: Sequence[tuple[Attempt, bool]],
    ) -> None:
        """Count what a server read of prompts that are new here, in the order of a tape."""
        attempts = [attempt for attempt, _ in rest]
        for turn in turns:
            for call in turn.calls:
                attempts += call.history
        total = self._prompts_read.setdefault(run, PromptsRead())
        for attempt in sorted(attempts, key=lambda attempt: attempt.number or 0):
            key = run, _key_of(attempt)
            if key not in self._anew:
                self._anew[key] = total.add(attempt)

    def _is_its_own(self, info: RunInfo, turn: Turn) -> bool:
        """Return True for a turn that a run played itself, or that it was forked at and changed."""
        if info.fork_turn is None or turn.number > info.fork_turn:
            return True
        if turn.number < info.fork_turn:
            return False
        parents_turn = self._turn_of(info.parent or 0, turn.number)
        return parents_turn is not None and parents_turn.state != turn.state

    def _turn_of(self, run: int, number: int) -> Turn | None:
        """Return a turn of a run that it or a run before it played; None if it is not here."""
        passed: list[dict[int, Turn]] = []
        seen = self._seen.get(run)
        while seen is not None and number not in seen:
            passed.append(seen)
            run = self.runs[run].get("parent") or 0
            seen = self._seen.get(run)
        if seen is None:
            return None
        turn = seen[number]
        for later in passed:  # else each fork of a long line would go all the way back
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
        notes = []
        if not plays:
            notes.append(source.note)
        if info.id in self._narrowed:
            notes.append(_LEFT_OUT)
        notes += filter(
            None, [self._charted[info.id].missing(), self._without_effect(info, source)]
        )
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
            "defaults": self.keep_text(self._defaults(source)),
            "notes": notes,
            "manifest": self.keep_text(json.dumps(self._manifest(info), indent=1)),
        }
        # A run is added anew after each turn; what it was made of hardly ever changes.
        changed = {name: value for name, value in facts.items() if shown.get(name) != value}
        if not changed:
            return
        is_new = "id" not in shown
        shown |= facts
        if is_new:
            # A copy of the columns: the list grows, and what was sent stays as it was.
            self._append({"run": {**shown, "columns": [*shown["columns"]]}})
        else:
            self._append({"run": {"id": info.id, **changed}})

    def _without_effect(self, info: RunInfo, source: Any) -> str:
        """Return a sentence on numbers set at a fork whose later turns are its parent's; else "".

        Which numbers a turn computes anew cannot be known before it is played: only its author
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
        """Return the defaults of a run's parameters as JSON; nothing where its class is unknown."""
        config = getattr(source, "config", None)
        if not isinstance(config, BaseModel):
            return ""
        cls = type(config)
        if cls not in self._defaults_of:
            defaults: Record = {}
            for name, field in cls.model_fields.items():
                if not field.is_required():
                    value = field.get_default(call_default_factory=True)
                    if isinstance(value, BaseModel):
                        value = value.model_dump(mode="json")
                    defaults[name] = value
            self._defaults_of[cls] = dumps(plain(defaults))
        return self._defaults_of[cls]

    def _manifest(self, info: RunInfo) -> Any:
        """Return a manifest as it is shown: thousands of runs may share a text of megabytes."""
        if info.id not in self._shown_manifests:
            weight = sum(map(info.weight, info.manifest))
            if weight > self._manifest_room:
                return {
                    "kind": str(info.manifest.get("kind")),
                    "left out": (
                        f"all manifests are too long: llmsim-lab tape show --run {info.id}"
                    ),
                }
            self._manifest_room -= weight
            self._shown_manifests.add(info.id)
        return plain(dict(info.manifest))

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
        # A study's answers may be measured by calls of another turn.
        behind = list(turn.calls)
        statuses: dict[int, str] = {}
        for answer, _ in decided:
            behind += answer.calls
            for call in answer.calls:
                statuses[id(call)] = answer.status
        numbers = {id(call): self._number(source, call.history) for call in behind}
        decisions: list[Record] = []
        for answer, became in decided:
            decisions.append(
                {
                    "player": answer.player,
                    "component": answer.component,
                    "status": answer.status,
                    "confidence": answer.confidence,
                    "reasoning": self.keep_text(answer.reasoning),
                    "answer": plain(answer.fields),
                    "became": plain(became),
                    "calls": [numbers[id(call)] for call in answer.calls],
                }
            )
        calls = []
        for call in turn.calls:
            number = numbers[id(call)]
            status = statuses.get(id(call), call.status)
            # A comparison of prompts names the calls of the run that it asks again.
            if self.calls.get(number, {}).get("run", run) == run:
                calls.append(
                    self._call(
                        number,
                        run,
                        turn.number,
                        call.history,
                        status,
                    )
                )
        words = [self.keep_text(text) for text in _words(source, turn, columns)]
        tables: dict[str, int] = {}
        for name, lines in tables_in(turn.state, self._hidden[run]).items():
            tables[name] = self.keep_text(lines)
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
        # In one record, so that no reader sees a turn without its calls.
        self._append({"turn": record, "calls": calls})

    def _put_columns(
        self,
        run: int,
        source: Any,
        turn: Turn,
        row: Mapping[str, object],
    ) -> None:
        """Add the columns of a turn's row that the run's record does not name yet."""
        shown = self.runs[run]
        numeric = self._charted[run].add(turn, row)
        if numeric:  # asked only then, since it depends on all turns
            self._put_charts(run, source)
        columns = self._columns.setdefault(run, {})
        new = [name for name in row if name not in columns]
        values = self._values.get(run, 0) + len(row)
        self._values[run] = values
        turns = range(len(self._seen[run]))
        if new and not is_reasonable(turns, len(columns) + len(new), values=values):
            new = []
            if run not in self._narrowed:
                self._narrowed.add(run)
                shown["notes"] = [*shown["notes"], _LEFT_OUT]
                self._append({"run": {"id": run, "notes": shown["notes"]}})
        if new or numeric:
            shown["columns"] += new
            columns |= dict.fromkeys(new)
            self._append(
                {
                    "run": {
                        "id": run,
                        "columns": [*shown["columns"]],
                        "series": shown["series"],
                        "charts": shown["charts"],
                        "dicts": shown["dicts"],
                    }
                }
            )

    def _put_charts(self, run: int, source: Any) -> None:
        """Set what a run's record says of its columns and its charts."""
        shown = self.runs[run]
        series = series_of(source)
        shown["series"] = [_series(item) for item in series]
        shown["charts"] = [_series(item) for item in self._charted[run].charts(series)]
        shown["dicts"] = self._charted[run].dicts()
        shown["limited"] = bool(
            getattr(
                type(source),
                "charts",
                (),
            )
        )

    # --- calls -------------------------------------------------------------------------------

    def _number(self, source: Any, history: Sequence[Attempt]) -> int:
        """Return a call's number: its last request's on the tape, where no other call has that."""
        number = history[-1].number
        owner: tuple[Path | None, int] = (None, id(history))
        if number:
            owner = (getattr(getattr(source, "tape", None), "path", None), number)
        if owner not in self._numbers:
            next_number = self._highest + 1
            # Most rise; the others are looked for among those that are taken.
            if number and (number > self._highest or number not in self._numbers.values()):
                next_number = number
            self._numbers[owner] = next_number
            self._highest = max(self._highest, next_number)
        return self._numbers[owner]

    def _put_rest(
        self,
        run: int,
        source: Any,
        calls: Sequence[tuple[Attempt, bool]],
    ) -> None:
        """Add requests that no turn names: of turns that failed, and those that were made again."""
        if not calls:
            return
        named: set[int | None] = set()
        for turn in source.turns:
            for call in turn.calls:
                named.update(call.numbers)
        groups: list[tuple[list[Attempt], str]] = []
        latest: dict[CallSite | None, list[Attempt]] = {}
        for attempt, forgotten in calls:
            site = attempt.request.site
            if attempt.number in named:
                continue
            if attempt.request.attempt == 1 or site not in latest:
                status = ""
                if forgotten:
                    status = "lost"
                latest[site] = []
                groups.append((latest[site], status))
            latest[site].append(attempt)
        rest = []
        for history, status in groups:
            number = self._number(source, history)
            site = history[0].request.site
            turn_number = None
            if site is not None:
                turn_number = site.turn
            rest.append(
                self._call(
                    number,
                    run,
                    turn_number,
                    history,
                    status,
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
            anew: what of its prompt a server read anew, where that is known.
        """
        # First, since texts are numbered as they come, and the same runs give the same page.
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
        """Return the number of a request's settings, which are one text for most of a run."""
        # The seed follows from the run's.
        options = {name: value for name, value in request.options.items() if name != "seed"}
        latest = self._latest_settings
        if latest is not None:
            is_same = all(
                getattr(latest.request, name) is getattr(request, name) for name in _LARGE
            )
            if is_same and latest.request.model == request.model and latest.options == options:
                return latest.text
        settings = {name: getattr(request, name) for name in SETTINGS}
        settings["options"] = options
        text = self.keep_text(dumps(plain(_short(settings))))
        self._latest_settings = _Settings(request, options, text)
        return text

    def _reply(self, attempt: Attempt, reply: ChatReply) -> Record:
        """Return what an attempt's record has of its reply."""
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
        """Return a form's number and where its spans begin and end; a text for a damaged one."""
        try:
            spans = request.provenance.spans
        except TapeError as error:
            return clip(str(error), 200)
        roles = [message.role for message in request.messages]
        form = []
        places: list[int] = []
        for span in spans:
            if span.role not in roles:
                continue
            message = roles.index(span.role)
            text = request.messages[message].content
            start = _units(text, span.start)
            end = _units(text, span.end)
            form.append([message, span.name, span.source, span.tokens])
            places += [start, end - start]
        key = tuple(map(tuple, form))  # most prompts of a run have the same spans
        return [self._kept("forms", key, form), *places]

    # --- shared parts ------------------------------------------------------------------------

    def keep_text(self, text: str) -> int:
        """Return a text's number; a new one goes out with the next record."""
        number = self._tables["texts"].get(text)
        if number is not None:
            return number
        lines = [self._kept("lines", line, line) for line in text.split("\n")]
        # Most steps are 1, which compresses to next to nothing.
        steps = [now - before for before, now in pairwise([0, *lines])]
        return self._kept("texts", text, steps)

    def _kept(
        self,
        name: str,
        key: Hashable,
        value: Any,
    ) -> int:
        """Return a thing's number in a table; a new one goes out with the next record."""
        table = self._tables[name]
        if key not in table:
            table[key] = len(table)
            self._new.setdefault(name, []).append(value)
        return table[key]

    def _append(self, record: Record) -> None:
        self.calls |= {call["k"]: call for call in record.get("calls", ())}
        self.records.append({**self._new, **record})
        self._new = {}


def _key_of(attempt: Attempt) -> int:
    """Return what tells a request from others of its run, which keeps those without a number."""
    return attempt.number or -id(attempt)


def _words(
    source: Any,
    turn: Turn,
    columns: Sequence[str],
) -> list[str]:
    """Return a turn's story, and what came to it from outside, as its tape has that.

    What it led to stands in a table beside it: that is left out, also of recordings which have it
    as a line of their story.
    """
    if turn.number == 0:  # nothing led to the start
        return []
    starts = [result_in_words(f"{name} ") for name in columns]
    starts += [result_in_words(f"{name.replace('_', ' ')} ") for name in columns]
    story = [line for line in turn.story if not line.startswith(tuple(starts))]
    outside = []
    tape = getattr(source, "tape", None)
    if tape is not None:
        # A fork's first turns are its parent's.
        player = tape.player(source.run_id, turn.number)
        outside = tape.outside(player, turn.number)
    return [*story, *outside_in_words(outside)]


def _people(source: Any) -> list[Record]:
    """Return what people did in the study that a world's design matches, a value each."""
    if not hasattr(source, "people"):  # a recorded run whose class is not known
        return []
    values = []
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
    """Return who says a message, and its text with the calls of tools in it."""
    role: str = message.role
    if message.tool_name:
        role = f"{role}: {message.tool_name}"
    return role, "\n".join(filter(None, (message.content, *tool_lines(message))))


def tool_lines(message: Message | ChatReply) -> list[str]:
    """Return the calls of tools in a message or reply, a line each."""
    return [f"→ {call.name}({dumps(plain(call.arguments))})" for call in message.tool_calls]


def _short(values: Mapping[str, object]) -> Record:
    """Return what says something: no None, nothing empty, no False."""
    short: Record = {}
    for name, value in values.items():
        # 0 says something, and is equal to False.
        if value not in (None, "", [], (), {}) and value is not False:
            short[name] = value
    return short


def _units(text: str, place: int) -> int:
    """Return a place in a text as JavaScript counts, which takes some letters for two."""
    return len(text[:place].encode("utf-16-le", "surrogatepass")) // 2


_encode = json.JSONEncoder(default=str).encode
_decode = json.JSONDecoder(
    parse_float=lambda text: float(f"{float(text):.10g}"), parse_constant=str
).decode


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it; fractions with ten digits."""
    if value is None or type(value) is int or (type(value) is dict and not value):  # as most are
        return value
    return _decode(_encode(value))
