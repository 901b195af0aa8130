"""Runs as one HTML page to mail: it loads nothing, and what a model said stays text.

The page is a fixed shell (``page/``: its HTML, style and script) around three blocks of data, which
the script reads when they are needed: what the runs are, all texts, and all decisions. Each is
JSON, compressed. A text is kept as the numbers of its lines, and each line once: prompts share most
of theirs, and a search looks at each line once. Nothing in it depends on when it is written, so
that the same runs give the same file.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from markupsafe import Markup
from pydantic import ValidationError

from llmsim_lab._util.files import write_file
from llmsim_lab._util.html import join, safe, styled
from llmsim_lab._util.jsontext import dumps, flat
from llmsim_lab._util.text import clip
from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.run._registry import kind_name
from llmsim_lab.run._turn import (
    RunTurn,
    Series,
    calls_behind,
    decided,
    decisions_frame,
    every_chain,
)
from llmsim_lab.tape import Tape
from llmsim_lab.tape._changes import TextTree
from llmsim_lab.tape._lines import RunInfo
from llmsim_lab.types import Attempt, CallRecord, ChatRequest, LLMReasoningChain, Status

_ASSETS = Path(__file__).parent / "page"
_MOST_STATIC_DECISIONS = 300
_MOST_STATIC_RUNS = 20
"""Decisions, and runs with their settings, in the part that is read where scripts do not run."""
_LONGEST_STATIC = 400
_STATIC_COLUMNS = ("turn", "player", "component", "status", "confidence", "reasoning")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRun:
    """A run for the page, and how to read it.

    Attributes:
        info: what the tape says of it.
        turns: those that it played itself; of one that came from no other, with the first state.
        rows: of its frame, by turn, those of its parents included.
        series: the columns to chart first.
        calls: the requests it made itself, with whether their calls were made again; those of
            ``turns`` if not given.
        source: its ``own_columns`` and ``outcomes``: the run itself, or ``Recorded``.
        changes: what it changed, in words.
        note: why it is shown with less than its class would show.
    """

    info: RunInfo
    turns: Sequence[RunTurn]
    rows: Mapping[int, Mapping[str, Any]]
    series: Sequence[Series]
    source: Any
    calls: Iterable[tuple[Attempt, bool]] | None = None
    changes: Sequence[str] = ()
    note: str = ""


class Recorded:
    """Turns of a run whose class is not known here, as far as every tape tells of them.

    Args:
        tape: the tape.
        info: the run.
    """

    def __init__(self, tape: Tape, info: RunInfo) -> None:
        self.rows: dict[int, Any] = tape.frame_rows(info.id)
        known = {call.id: call.attempt for call in tape.calls(info.id, forgotten=True)}

        def attempt(number: int) -> Attempt:
            # One of an earlier turn may be a parent's.
            return known[number] if number in known else tape.attempt(number)

        try:
            turns = [self._turn(record, attempt) for record in tape.turn_records(info.id)]
        except (KeyError, IndexError, TypeError, ValueError, ValidationError) as error:
            what = f"a turn of run {info.id} is damaged: {clip(str(error), 200)}"
            raise TapeError(what) from error
        self.turns = own_turns(info, turns)

    def _turn(self, record: Mapping[str, Any], attempt: Callable[[int], Attempt]) -> RunTurn:
        def call(status: Status, numbers: Sequence[int]) -> CallRecord:
            return CallRecord(history=tuple(map(attempt, numbers)), status=status)

        calls = tuple(call(*named) for named in record["calls"])
        chains = []
        for fields in record["chains"]:
            at = fields.get("call")
            asked = None if at is None else calls[at] if isinstance(at, int) else call(*at)
            chains.append(LLMReasoningChain(**{**fields, "call": asked}))
        done = self.rows.get(record["turn"], {}).get("interventions")
        return RunTurn(
            number=record["turn"],
            state=record["state"],
            interventions=(done,) if done else (),
            seconds=record["seconds"],
            calls=calls,
            chains=tuple(chains),
        )

    def own_columns(self, turn: RunTurn) -> Mapping[str, Any]:
        """Return the turn's row of the frame."""
        row = self.rows.get(turn.number)
        return row if isinstance(row, dict) else {}

    def outcomes(
        self, _turn: RunTurn, chains: Sequence[LLMReasoningChain]
    ) -> Sequence[Mapping[str, Any]]:
        """Return nothing: what became of a decision, only the class knows."""
        return [{} for _ in chains]


def own_turns(info: RunInfo, turns: Iterable[RunTurn]) -> list[RunTurn]:
    """Return the turns that a run did not take over from the one it was forked from."""
    fork = info.fork_turn
    return [turn for turn in turns if fork is None or turn.number > fork]


def write_page(path: str | Path, runs: Sequence[PageRun], *, title: str, start: int) -> Path:
    """Write runs as one page, and return its path.

    Args:
        path: the file, which ends in ``.html``; one that is there is replaced.
        runs: those to show, parents before their forks.
        title: what stands above them.
        start: the number of the run that is shown first.

    Raises:
        ConfigError: the file cannot be written.
    """
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"a page is HTML, and {path.name!r} does not end in .html")
    # Whole before the file is opened, so that an error leaves what is there.
    page = page_html(runs, title=title, start=start).encode(errors="replace")
    return write_file(path, page)


def page_html(runs: Sequence[PageRun], *, title: str, start: int) -> str:
    """Return the page as ``write_page`` writes it."""
    blocks = _Data(runs, title=title, start=start).blocks()
    style, script = ((_ASSETS / f"page.{kind}").read_text("utf-8") for kind in ("css", "js"))
    parts = {
        "title": safe(clip(title, 120)),
        "style": Markup(style),
        "script": Markup(script),
        "style_hash": _hash(style),
        "script_hash": _hash(script),
        "static": _static(runs, title),
        "version": version("llmsim-lab"),
        **blocks,
    }
    shell = (_ASSETS / "page.html").read_text("utf-8")
    # In one go, since a text may hold what looks like another's place.
    return re.sub(r"{{ (\w+) }}", lambda place: str(parts[place[1]]), shell)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


# --- the data ------------------------------------------------------------------------------------


class _Texts:
    """Texts as numbers of lines; each line, and each text, is kept once."""

    def __init__(self) -> None:
        self._lines: dict[str, int] = {}
        self._texts: dict[str, int] = {}
        self.steps: list[list[int]] = []
        """Of each text: the numbers of its lines, each as the difference from the one before.

        Most are 1, which compresses to next to nothing.
        """

    def add(self, text: str) -> int:
        """Return a text's number."""
        if (known := self._texts.get(text)) is not None:
            return known
        at, steps = 0, []
        for line in text.split("\n"):
            place = self._lines.setdefault(line, len(self._lines))
            steps.append(place - at)
            at = place
        self.steps.append(steps)
        return self._texts.setdefault(text, len(self._texts))

    @property
    def lines(self) -> list[str]:
        return list(self._lines)


class _Data:
    def __init__(self, runs: Sequence[PageRun], *, title: str, start: int) -> None:
        self.texts = _Texts()
        self._words: dict[str, int] = {"": 0}
        self._forms: dict[str, int] = {}
        self._calls: list[dict[str, Any]] = []
        self._slots: dict[int, Any] = {}
        self._decisions: list[Any] = []
        self._columns: dict[str, None] = {}
        self._stories: dict[int, dict[int, list[str]]] = {}
        # Calls that no tape has numbered come after all those that one has.
        self._next = 1 + max((0, *(it[0].number or 0 for run in runs for it in run.calls or ())))
        self.head = {"title": title, "start": start, "runs": [self._run(run) for run in runs]}

    def blocks(self) -> dict[str, str]:
        """Return the three blocks of data, as they stand in the page."""
        calls = self._calls
        names = list(calls[0]) if calls else []
        self.head |= {
            "words": list(self._words),
            "calls": {name: [call[name] for call in calls] for name in names},
        }
        texts = {
            "lines": self.texts.lines,
            "texts": self.texts.steps,
            "forms": [json.loads(form) for form in self._forms],
            "slots": self._slots,
        }
        columns = [*dict.fromkeys(("run", *self._columns))]
        decisions = {
            "columns": columns,
            "rows": [[row.get(name) for name in (*columns, "call")] for row in self._decisions],
            "stories": self._stories,
        }
        blocks = {"head": self.head, "texts": texts, "decisions": decisions}
        return {name: _packed(block) for name, block in blocks.items()}

    def _word(self, text: str) -> int:
        return self._words.setdefault(text, len(self._words))

    def _run(self, run: PageRun) -> dict[str, Any]:
        info = run.info
        self._decided(run, self._requests(run))
        columns = list(dict.fromkeys(name for row in run.rows.values() for name in row))
        return {
            "id": info.id,
            "name": info.name,
            "verb": info.verb,
            "parent": info.parent,
            "fork": info.fork_turn,
            "started": info.started,
            "outcome": info.outcome or "",
            "turns": info.turns,
            "model": info.model,
            "kind": kind_name(info.manifest),
            "changes": list(run.changes),
            "note": run.note,
            "manifest": self.texts.add(json.dumps(_plain(info.manifest), indent=1)),
            "series": [asdict(item) for item in run.series],
            "at": list(run.rows),
            "rows": {
                name: [_plain(row.get(name)) for row in run.rows.values()] for name in columns
            },
        }

    def _requests(self, run: PageRun) -> dict[int, list[int]]:
        """Keep a run's requests; returns the numbers of each call's, by the call's identity."""
        numbered: dict[int, list[int]] = {}
        every = [(it.number, it, forgotten) for it, forgotten in run.calls or ()]
        for call in (it for turn in run.turns for it in _calls_of(turn)):
            if run.calls is not None:
                numbered[id(call)] = call.numbers
            elif id(call) not in numbered:  # no tape has numbered them
                numbers = [*range(self._next, self._next + call.attempts)]
                numbered[id(call)] = numbers
                every += [(at, it, False) for at, it in zip(numbers, call.history, strict=True)]
                self._next += call.attempts
        statuses = {
            number: chain.status
            for turn in run.turns
            for chain in every_chain(turn)
            for number in (numbered[id(chain.call)] if chain.call else ())
        }
        for number, attempt, forgotten in every:
            assert number is not None
            status = "lost" if forgotten else statuses.get(number, "")
            self._request(run.info.id, number, attempt, status)
        return numbered

    def _request(self, run: int, number: int, attempt: Attempt, status: str) -> None:
        request, reply, site = attempt.request, attempt.reply, attempt.request.site
        options = dict(request.options)
        seed = options.pop("seed", None)
        settings = {
            "model": request.model,
            "options": options,
            "think": request.think,
            "schema": request.schema,
            "tools": list(request.tools),
            "top_logprobs": request.top_logprobs,
        }
        told = {name: it for name, it in settings.items() if it not in (None, [], {}, False)}
        self._calls.append(
            {
                "id": number,
                "run": run,
                "turn": site.turn if site else None,
                "player": self._word((site.agent if site else None) or ""),
                "component": self._word(site.component if site else ""),
                "status": self._word(status),
                "attempt": request.attempt,
                "replicate": site.replicate if site else 0,
                "fault": self._word(attempt.reason or ""),
                "read": reply.prompt_tokens if reply else None,
                "written": reply.reply_tokens if reply else None,
                "cut": bool(reply and reply.done_reason == "length"),
                "seconds": round(attempt.seconds, 3),
                "seed": _plain(seed),
                "settings": self.texts.add(_json(told)),
                "messages": [
                    [
                        self._word(f"{one.role}: {one.tool_name}" if one.tool_name else one.role),
                        self.texts.add("\n".join(filter(None, (one.content, *_asked(one))))),
                    ]
                    for one in request.messages
                ],
                "reply": self.texts.add(reply.text) if reply else None,
                "tools": self.texts.add("\n".join(_asked(reply))) if reply else None,
                "thinking": self.texts.add(reply.thinking) if reply and reply.thinking else None,
                "detail": self.texts.add(attempt.detail) if attempt.detail else None,
            }
        )
        if request.origin is not None:
            self._slots[number] = self._origin(request)

    def _origin(self, request: ChatRequest) -> Any:
        """Return a form's number and where its spans begin and end; a text for a damaged one."""
        try:
            known = request.provenance
        except TapeError as error:
            return clip(str(error), 200)
        roles = [message.role for message in request.messages]
        form, places = [], []
        for span in known.spans:
            if span.role not in roles:
                continue
            message = roles.index(span.role)
            text = request.messages[message].content
            start, end = _units(text, span.start), _units(text, span.end)
            form.append([message, span.name, span.source, span.tokens])
            places += [start, end - start]
        key = json.dumps(form, ensure_ascii=False)
        return [self._forms.setdefault(key, len(self._forms)), *places]

    def _decided(self, run: PageRun, numbered: Mapping[int, Sequence[int]]) -> None:
        frame = decisions_frame(
            run.turns,
            run=run.info.id,
            seed=run.info.manifest.get("seed", 0),
            own_columns=run.source.own_columns,
            outcomes=run.source.outcomes,
        )
        taken_from = [calls for turn in run.turns for calls in calls_behind(turn)]
        # By way of JSON, which is the short way to null for each kind of pandas' missing values.
        rows = json.loads(frame.to_json(orient="records", double_precision=10, force_ascii=False))
        for row, calls in zip(rows, taken_from, strict=True):
            asked = numbered[id(calls[-1])][-1] if calls else None
            self._decisions.append(row | {"call": asked})
        if rows:
            self._columns |= dict.fromkeys(map(str, frame.columns))
        words = getattr(run.source, "in_words", lambda _: ())
        stories = {
            turn.number: [str(it) for it in words(turn)] for turn in run.turns if turn.number
        }
        self._stories[run.info.id] = {at: its for at, its in stories.items() if its}


def _calls_of(turn: RunTurn) -> Iterator[CallRecord]:
    yield from turn.calls
    # A chain may be of a call that was made in an earlier turn.
    yield from (chain.call for chain in turn.chains if chain.call is not None)


def _asked(said: Any) -> list[str]:
    """Return the calls of tools in a message or reply, a line each."""
    return [f"→ {call.name}({dumps(_plain(call.arguments))})" for call in said.tool_calls]


def _units(text: str, place: int) -> int:
    """Return a place in a text as JavaScript counts, which takes some letters for two."""
    head = text[:place]
    if head.isascii() or max(head) <= "\uffff":
        return place
    return place + sum(letter > "\uffff" for letter in head)


def _plain(value: Any) -> Any:
    """Return a value as JSON can hold it."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value)


def _json(value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False, default=_plain)
    except ValueError:  # a NaN, which browsers do not read
        return json.dumps(_plain(value))


def _packed(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # Half a character fits no encoding.
    return base64.b64encode(gzip.compress(text.encode(errors="replace"), 9, mtime=0)).decode()


# --- where scripts do not run --------------------------------------------------------------------


def _static(runs: Sequence[PageRun], title: str) -> Markup:
    """Return what is essential as plain HTML: the tree, what defines the runs, their decisions."""
    changed = {run.info.id: run.changes for run in runs}
    tree = TextTree([run.info for run in runs], title=title, changed=changed)
    parts = [
        styled(clip(title, 120), tag="h1"),
        styled("Runs", tag="h2"),
        styled("\n".join(tree.lines[1:]), tag="pre", dir="auto"),
    ]
    left = _MOST_STATIC_DECISIONS
    for run in runs[:_MOST_STATIC_RUNS]:
        rows = list(_static_decisions(run, left))
        left -= len(rows)
        heading = styled(f"Run {run.info.id}, {run.info.name}", tag="h2")
        facts = flat({name: it for name, it in run.info.manifest.items() if name != "prompts"})
        parts += [
            heading,
            _table("What defines it", ("name", "value"), facts.items()),
            _table("Decisions", _STATIC_COLUMNS, rows),
        ]
    if left <= 0 or len(runs) > _MOST_STATIC_RUNS:
        parts.append(styled("There is more; it is shown where scripts run.", tag="p"))
    return join(parts, between="\n")


def _static_decisions(run: PageRun, most: int) -> Iterator[Sequence[object]]:
    for turn in run.turns:
        for chain in decided(turn):
            if most <= 0:
                return
            most -= 1
            sure = "" if chain.confidence is None else f"{chain.confidence:g}"
            who = (chain.agent, chain.component, chain.status, sure)
            yield (turn.number, *who, clip(chain.reasoning, _LONGEST_STATIC))


def _table(caption: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> Markup:
    head = join(styled(name, tag="th") for name in header)
    body = join(
        styled(
            join(styled(clip(str(it), _LONGEST_STATIC), tag="td", dir="auto") for it in row),
            tag="tr",
        )
        for row in rows
    )
    parts = [("caption", caption), ("thead", styled(head, tag="tr")), ("tbody", body)]
    return styled(join(styled(content, tag=tag) for tag, content in parts), tag="table")
