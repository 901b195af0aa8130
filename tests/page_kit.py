"""Pages of runs: read back, and runs to make them of, a long one and one of hostile texts."""

from __future__ import annotations

import base64
import gzip
import json
import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from worlds import Pot, PublicGoods

from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend
from llmsim_lab.run._page import PageRun
from llmsim_lab.run._turn import RunTurn, Series
from llmsim_lab.tape._lines import RunInfo
from llmsim_lab.types import Attempt, CallRecord, CallSite, ChatReply, ChatRequest, Message

__all__ = ["HOSTILE", "PageData", "hostile_game", "long_run", "odd_run"]

HOSTILE = (
    "<script>window.hacked=1</script><img src=x onerror='window.hacked=2'></noscript></title>"
    "<style>body{display:none}</style><!-- \x1b[31m \u202ereversed {{ script }} --> "
    "http://example.invalid/x.js"
)
WORDS = ("bank", "rate", "price", "harbour", "council", "vote", "trust", "season", "river", "debt")


class PageData:
    """What a page's script reads.

    Args:
        path: the page.
    """

    def __init__(self, path: Path) -> None:
        self.html = path.read_text("utf-8")
        self.head, self._texts, self.decided = (
            json.loads(gzip.decompress(base64.b64decode(coded)))
            for coded in re.findall(
                r'<script type="[^"]+" id="data-\w+">([^<]*)</script>', self.html
            )
        )

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The requests, with their texts."""
        columns: Mapping[str, Sequence[Any]] = self.head["calls"]
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        for row in rows:
            row["prompt"] = [self.text(number) for _, number in row["messages"]]
            row["reply"] = None if row["reply"] is None else self.text(row["reply"])
            for name in ("player", "component", "status", "fault"):
                row[name] = self.head["words"][row[name]]
        return rows

    @property
    def decisions(self) -> list[dict[str, Any]]:
        names = [*self.decided["columns"], "call"]
        return [dict(zip(names, row, strict=True)) for row in self.decided["rows"]]

    @property
    def lines(self) -> list[str]:
        """Every line of the calls' texts, as it is kept."""
        return list(self._texts["lines"])

    def text(self, number: int) -> str:
        place, lines = 0, []
        for step in self._texts["texts"][number]:
            place += step
            lines.append(self._texts["lines"][place])
        return "\n".join(lines)

    def slots(self, call: Mapping[str, Any]) -> dict[str, str]:
        """Return what stands in a call's slots, cut out as a browser does: by UTF-16 units."""
        form, *places = self._texts["slots"][str(call["id"])]
        spans = self._texts["forms"][form]
        found = {}
        for (message, name, _, _), start, length in zip(
            spans, places[::2], places[1::2], strict=True
        ):
            units = call["prompt"][message].encode("utf-16-le")
            found[name] = units[2 * start : 2 * (start + length)].decode("utf-16-le")
        return found


def hostile_game(**more: Any) -> PublicGoods:
    """Return a game, two turns played, whose names, prompts and replies a page might obey."""
    names = ["Ann", HOSTILE[:60], "علي", "李雷"]
    said = {
        "reasoning": f"{HOSTILE}\nسلم, 你好 \N{CLOUD}",
        "amount": 3,
        "confidence": 0.5,
    }
    client = LLMClient(
        LLMConfig(model=HOSTILE[:40], num_ctx=50_000), backend=ScriptedBackend(lambda _: said)
    )
    game = PublicGoods(
        llm_client=client, state=Pot(coins=dict.fromkeys(names, 20.0)), name=HOSTILE, **more
    )
    game.run(2)
    return game


def odd_run(number: int, names: Sequence[str], texts: Sequence[str]) -> PageRun:
    """Return a run of one turn in which each name is a player, a column and a setting.

    Args:
        number: the run's.
        names: the first run has all of them, another none as settings.
        texts: what is asked and answered, a call each.
    """
    calls = []
    for at, text in enumerate(texts):
        site = CallSite(component="player", agent=names[at % len(names)], turn=1)
        asked = (Message("user", f"{number} {text}"),)
        request = ChatRequest(model="scripted", messages=asked, options={}, site=site)
        attempt = Attempt(request=request, reply=ChatReply(text=text), seconds=1.0)
        calls.append(CallRecord(history=(attempt,), status="ok"))
    rows: dict[int, dict[str, Any]] = {
        at: {"turn": at, **dict.fromkeys(names, at + 0.5)} for at in range(2)
    }
    nested = {name: {name: name} for name in names} if number == 1 else {}
    info = RunInfo(
        id=number,
        name=names[0],
        parent=None,
        fork_turn=None,
        verb="run",
        started="",
        ended=None,
        outcome=names[-1],
        turns=1,
        calls=len(calls),
        manifest={"kind": "odd", "seed": 1, **nested, "prompts": nested},
    )
    turns = [RunTurn(number=0, state=None), RunTurn(number=1, state=None, calls=tuple(calls))]
    series = [Series(column=name, label=name) for name in names]
    return PageRun(info=info, turns=turns, rows=rows, series=series, source=_Rows(rows))


class _Rows:
    def __init__(self, rows: Mapping[int, Mapping[str, Any]]) -> None:
        self._rows = rows

    def own_columns(self, turn: RunTurn) -> Mapping[str, Any]:
        return self._rows[turn.number]

    def outcomes(self, _turn: RunTurn, chains: Sequence[Any]) -> list[dict[str, Any]]:
        return [{} for _ in chains]


def long_run(*, turns: int = 250, players: int = 40) -> PageRun:
    """Return a run of as many calls as turns times players, each with a prompt of about 3 kB."""
    rng = random.Random(1)

    def say(count: int) -> str:
        return " ".join(rng.choice(WORDS) for _ in range(count))

    system = "\n".join(["You live in a town.", *(f"Rule {rule}: {say(30)}" for rule in range(8))])
    played = [RunTurn(number=0, state=None)]
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
            attempt = Attempt(request=request, reply=reply, seconds=1.0)
            calls.append(CallRecord(history=(attempt,), status="ok"))
        played.append(RunTurn(number=number, state=None, calls=tuple(calls)))
    rows = {turn.number: {"turn": turn.number, "given": rng.random()} for turn in played}
    info = RunInfo(
        id=1,
        name="a long run",
        parent=None,
        fork_turn=None,
        verb="run",
        started="",
        ended=None,
        outcome="done",
        turns=turns,
        calls=turns * players,
        manifest={"kind": "town", "seed": 1},
    )
    series = [Series(column="given", label="Given")]
    return PageRun(info=info, turns=played, rows=rows, series=series, source=_Rows(rows))
