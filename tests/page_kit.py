"""Pages of runs: read back, and runs to make them of, a long one and one of hostile texts."""

from __future__ import annotations

import base64
import gzip
import json
import random
import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from worlds import Pot, PublicGoods

from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend
from llmsim_lab.room._pages import read_words, room_page
from llmsim_lab.run import Series, Turn
from llmsim_lab.run.reading import Reading, RowState
from llmsim_lab.tape import RunInfo
from llmsim_lab.types import Attempt, CallRecord, CallSite, ChatReply, ChatRequest, Message

__all__ = [
    "HOSTILE",
    "Log",
    "PageData",
    "add_odd_run",
    "hostile_game",
    "long_run",
    "script_of_room",
]

HOSTILE = (
    "<script>window.hacked=1</script><img src=x onerror='window.hacked=2'></noscript></title>"
    "<style>body{display:none}</style><!-- \x1b[31m \u202ereversed {{ script }} --> "
    "http://example.invalid/x.js"
)
WORDS = ("bank", "rate", "price", "harbour", "council", "vote", "trust", "season", "river", "debt")


def script_of_room(page: str) -> str:
    """Return the script of a room's page, its modules joined."""
    return gzip.decompress(room_page(page, "", read_words(None)).script.content).decode()


class Log:
    """A log of records as its reader knows it.

    Args:
        records: all of them.
    """

    def __init__(self, records: Sequence[Mapping[str, Any]]) -> None:
        self.records = records
        self.lines, self._texts, self._forms = (
            [item for record in self.records for item in record.get(name, ())]
            for name in ("lines", "texts", "forms")
        )
        self.runs: dict[int, dict[str, Any]] = {}
        self.turns: dict[tuple[int, int], dict[str, Any]] = {}
        self.calls: dict[int, dict[str, Any]] = {}
        for record in self.records:
            if run := record.get("run"):
                self.runs[run["id"]] = {**self.runs.get(run["id"], {}), **run}
            if turn := record.get("turn"):
                self.turns[turn["run"], turn["n"]] = turn
            self.calls |= {call["k"]: call for call in record.get("calls", ())}

    def text(self, number: int) -> str:
        return "\n".join(self.lines[line] for line in accumulate(self._texts[number]))

    def slots(self, tried: Mapping[str, Any]) -> dict[str, str]:
        """Return what stands in a request's slots, cut out as a browser does: by UTF-16 units."""
        form, *places = tried["slots"]
        found = {}
        for (message, name, _, _), start, length in zip(
            self._forms[form], places[::2], places[1::2], strict=True
        ):
            units = self.text(tried["messages"][message][1]).encode("utf-16-le")
            found[name] = units[2 * start : 2 * (start + length)].decode("utf-16-le")
        return found


class PageData(Log):
    """What a page's script reads.

    Args:
        path: the page.
    """

    def __init__(self, path: Path) -> None:
        self.html = path.read_text("utf-8")
        [coded] = re.findall(r'<script type="[^"]+" id="reading">([^<]*)</script>', self.html)
        data = json.loads(gzip.decompress(base64.b64decode(coded)))
        self.title, self.start = data["title"], data["start"]
        super().__init__(data["records"])


def hostile_game(**more: Any) -> PublicGoods:
    """Return a game, two turns played, whose names, prompts and replies a page might obey."""
    names = ["Ann", HOSTILE[:60], "علي", "李雷"]
    said = {"reasoning": f"{HOSTILE}\nسلم, 你好 \N{CLOUD}", "amount": 3, "confidence": 0.5}
    client = LLMClient(
        LLMConfig(model=HOSTILE[:40], num_ctx=50_000), backend=ScriptedBackend(lambda _: said)
    )
    game = PublicGoods(
        llm_client=client, state=Pot(coins=dict.fromkeys(names, 20.0)), name=HOSTILE, **more
    )
    game.run(2)
    return game


class FakeRun:
    """A run made of turns, with no class behind it."""

    tape = None

    def __init__(self, turns: Sequence[Turn], columns: Sequence[str]) -> None:
        self.turns = turns
        self.series = [Series(column=name, label=name) for name in columns]
        self.last_planned = turns[-1].number

    def prediction(self) -> Mapping[str, float]:
        return {}


def fake_turn(number: int, row: Mapping[str, Any], calls: Sequence[CallRecord] = ()) -> Turn:
    return Turn(number=number, state=RowState({}, row), calls=tuple(calls))


def answered(request: ChatRequest, reply: ChatReply) -> CallRecord:
    return CallRecord(history=(Attempt(request=request, reply=reply, seconds=1.0),), status="ok")


def run_info(number: int, name: str, **more: Any) -> RunInfo:
    origin: dict[str, Any] = dict.fromkeys(("parent", "fork_turn", "ended"))
    return RunInfo(id=number, name=name, verb="run", started="", **origin, **more)


def add_odd_run(reading: Reading, number: int, names: Sequence[str], texts: Sequence[str]) -> None:
    """Add a run of one turn in which each name is a player, a column and a setting.

    Args:
        reading: the log.
        number: the run's.
        names: the first run has all of them, another none as settings.
        texts: what is asked and answered, a call each.
    """
    calls = []
    for at, text in enumerate(texts):
        site = CallSite(component="player", agent=names[at % len(names)], turn=1)
        asked = (Message("user", f"{number} {text}"),)
        request = ChatRequest(model="scripted", messages=asked, options={}, site=site)
        calls.append(answered(request, ChatReply(text=text)))
    nested = {name: {name: name} for name in names} if number == 1 else {}
    manifest = {"kind": "odd", "seed": 1, **nested, "prompts": nested}
    info = run_info(
        number, names[0], outcome=names[-1], turns=1, calls=len(calls), manifest=manifest
    )
    turns = [fake_turn(at, dict.fromkeys(names, at + 0.5), calls * at) for at in range(2)]
    reading.add(info, FakeRun(turns, names))


def long_run(*, turns: int = 250, players: int = 40) -> Reading:
    """Return a run of turns times players calls, each with a prompt of about 3 kB, as a log."""
    rng = random.Random(1)

    def say(count: int) -> str:
        return " ".join(rng.choice(WORDS) for _ in range(count))

    system = "\n".join(["You live in a town.", *(f"Rule {rule}: {say(30)}" for rule in range(8))])
    played = [fake_turn(0, {"given": rng.random()})]
    for number in range(1, turns + 1):
        news = f"News of turn {number}: {say(60)}"
        calls = []
        for player in range(players):
            heard = "\n".join(f"- {say(12)}" for _ in range(10))
            prompt = f"You are player {player}. It is turn {number}.\n{news}\n{heard}\nYour gift?"
            gift = {"reasoning": say(40), "amount": rng.randint(0, 20), "confidence": 0.5}
            request = ChatRequest(
                model="scripted",
                messages=(Message("system", system), Message("user", prompt)),
                options={"temperature": 0.7, "seed": rng.randint(0, 10**9)},
                site=CallSite(component="player", agent=f"player {player}", turn=number),
            )
            reply = ChatReply(text=json.dumps(gift), prompt_tokens=700, reply_tokens=60)
            calls.append(answered(request, reply))
        played.append(fake_turn(number, {"given": rng.random()}, calls))
    played_by = {"outcome": "done", "turns": turns, "calls": turns * players}
    info = run_info(1, "a long run", **played_by, manifest={"kind": "town", "seed": 1})
    reading = Reading("a long run")
    reading.add(info, FakeRun(played, ["given"]))
    return reading
