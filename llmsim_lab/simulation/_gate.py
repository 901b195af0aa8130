"""The economic gate: a player is asked about situations and their mirror images, and judged.

A player (a model, or a rule) is shown economies, and each one's mirror image, in which everything
is as far on the other side of the steady state; half of them again with a name and dates. From its
moves ``economy.response_of`` tells whether it responds to the economy. 24 pairs are asked first,
and 24 more if they do not decide. Each card has situations of its own, which follow from its seed.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import secrets
import threading
import time
import zlib
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, lru_cache, partial
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self, cast

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from llmsim_lab._util.files import economics_folder
from llmsim_lab._util.html import join, safe, table
from llmsim_lab._util.tables import plain_frame
from llmsim_lab._util.text import clip
from llmsim_lab.agents._agents import moves_to_choose
from llmsim_lab.agents._briefing import SHOWN
from llmsim_lab.economy import RudebuschSvensson, TaylorRule, response_of
from llmsim_lab.economy._data import next_quarter
from llmsim_lab.economy._macro import STEADY_STATE, Shocks, mirrored
from llmsim_lab.economy._response import Criterion, PolicyResponse, Verdict
from llmsim_lab.errors import ConfigError, EconomyError, LLMFailureException
from llmsim_lab.llm import Person
from llmsim_lab.llm._chains import LASTING
from llmsim_lab.models import GlobalState
from llmsim_lab.run import Ask

if TYPE_CHECKING:
    import pandas as pd

VERSION = 2
"""Cards of another version are measured anew. Raise it with any change of what the gate asks."""
GATE_MOVES_BP = (-200, -75, -25, 0, 25, 75, 200)
"""The moves on offer, basis points: seven, since each costs a call a question."""
PAIRS, NAMED = 24, 12
"""Pairs of a stage, and how many of them are asked again with names."""
NAMES = {"United States": "1979Q3", "Japan": "1999Q1"}
"""What is told of an economy that is asked about again: a name, and its last quarter."""
DRAWS = 10
"""Answers of a player that draws, to each question; their mean is judged."""
_SILENT = 0.1
"""Share of questions without an answer from which on a player fails."""

_QUARTERS = 20
_SLIP, _SLIP_STD = 0.85, 0.4
"""The rate of the past differs from a rule's by an AR(1): else it would hardly ever be far off."""

Told = Literal["economist", "thin"]
Path_ = tuple[GlobalState, ...]


# --- situations -----------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def situations(seed: int) -> tuple[Path_, ...]:
    """Return a card's situations, each the last quarters of a run of the macro model.

    A run begins in the steady state and has random shocks and a policy that makes lasting mistakes.
    It is taken if it and its mirror image have usual figures, and if a Taylor rule would ask for a
    rate that the lower bound does not touch.
    """
    rng, found = random.Random(f"economic gate, seed {seed}"), list[Path_]()
    while len(found) < 2 * PAIRS:
        with suppress(EconomyError):
            path = _played(rng)
            if all(map(_usual, path)) and 0 <= _asked(path[-1]) <= 2 * STEADY_STATE.interest_rate:
                found.append(path)
    return tuple(found)


def _played(rng: random.Random) -> Path_:
    model, state, slip, path = RudebuschSvensson(), STEADY_STATE, 0.0, [STEADY_STATE]
    for _ in range(_QUARTERS):
        slip = _SLIP * slip + rng.gauss(0, _SLIP_STD)
        # Inertia of 0.8, half of the slip; the shocks vary as ``ShockGenerator``'s do.
        rate = 0.8 * state.interest_rate + 0.2 * _asked(state) + 0.5 * slip
        shocks = Shocks(supply=rng.gauss(0, 1.009), demand=rng.gauss(0, 0.819))
        state = model.advance(state, interest_rate=rate, shocks=shocks)
        path.append(state)
    return tuple(path[-SHOWN:])


def _asked(state: GlobalState) -> float:
    rule = TaylorRule(lower_bound=float("-inf"))
    return rule.rate(inflation=state.inflation, output_gap=state.output_gap, previous_rate=0)


def _usual(state: GlobalState) -> bool:
    """Return True if a quarter, and so its mirror image, has figures that are often seen."""
    rate, rest = abs(state.interest_rate - STEADY_STATE.interest_rate), STEADY_STATE
    usual = abs(state.inflation - rest.inflation) < 3.5 and abs(state.unemployment - 5) < 4
    return usual and rate <= 3.75


class _Put(NamedTuple):
    """A question: about which pair, its mirror image or not, with which of ``NAMES`` or without."""

    pair: int
    mirrored: bool
    name: str = ""

    @property
    def key(self) -> str:
        """``07``, ``07 mirrored``, ``07 Japan mirrored``."""
        return f"{self.pair + 1:02} {self.name}{' mirrored' * self.mirrored}".strip()


@cache
def _plan(stage: int) -> tuple[_Put, ...]:
    """Return a stage's questions, those with the same name together, for the prefix cache."""
    first = PAIRS * (stage - 1)
    pairs = {"": range(first, first + PAIRS)}
    for start, name in enumerate(NAMES):
        pairs[name] = range(first + start, first + NAMED, len(NAMES))
    return tuple(
        _Put(pair, mirror, name)
        for name, of_name in pairs.items()
        for pair in of_name
        for mirror in (False, True)
    )


def what_it_takes() -> str:
    """Return how much is asked, in words."""
    whole, moves = len(_plan(1)), len(GATE_MOVES_BP)
    return (
        f"{whole} questions, each in {moves} calls of one token ({whole * moves:,} in all), and as "
        "many again if they do not decide; twice the calls where a backend tells no probabilities"
    )


# --- the card -------------------------------------------------------------------------------------


class GateAnswer(BaseModel):
    """What a player would do in one situation.

    Attributes:
        move: percentage points: the mean of its probabilities or draws; None without an answer.
        chances: a model's probability of each move, by basis points.
        mass: how much of a model's answers were moves at all.
        method: as ``Choice`` has it, or ``one answer``, or ``10 draws`` of a player that draws.
        calls: how many it took.
        seconds: how long it took.
        fault: why there was no answer.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    move: float | None = None
    chances: dict[int, float] = {}
    mass: float = 0.0
    method: str = ""
    calls: int = 0
    seconds: float = 0.0
    fault: str = ""


class EconomicsCard(BaseModel):
    """Whether a player responds to the economy; ``verdict`` says it in words.

    Attributes:
        model: the model's name as its backend knows it; of a rule what it is called.
        backend: ``ollama``, ``embedded`` …; ``rule`` for a player that is not a model.
        version: of the server or runtime, where known.
        digest: of the model's weights; None where it is not known: the card is kept by name then.
        told: ``economist`` for a briefing, ``thin`` for four indicators.
        prompt: digest of the prompt.
        seed: its situations follow from it.
        measured_at: when it was begun.
        version_of_gate: a kept card of another one is not read.
        answers: by question.
        outcome: ``pass``, ``fail`` or ``undecided``; None where not all was asked.
        sentence: what was found, in a sentence.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    model: str
    backend: str
    version: str | None = None
    digest: str | None = None
    told: Told
    prompt: str
    seed: int
    measured_at: AwareDatetime
    version_of_gate: Annotated[int, Field(ge=VERSION, le=VERSION)] = VERSION
    answers: dict[str, GateAnswer] = Field(default_factory=dict)
    outcome: Verdict | None = None
    sentence: str = ""

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Return a kept card, or None where none can be read: it is measured anew."""
        with suppress(OSError, ValidationError):
            return cls.model_validate_json(path.read_bytes())
        return None

    @property
    def response(self) -> PolicyResponse | None:
        """What the regression found, of the pairs that were asked and answered."""
        moves = {key: one.move for key, one in self.answers.items() if one.move is not None}
        rows, changes = list[tuple[float, ...]](), dict[str, dict[int, list[float]]]()
        for put in (*_plan(1), *_plan(2)):
            without = put._replace(name="").key
            if put.name and put.key in moves and without in moves:
                by_pair = changes.setdefault(f"{put.name}, {NAMES[put.name]}", {})
                by_pair.setdefault(put.pair, []).append(moves[put.key] - moves[without])
            elif put.key in moves and put._replace(mirrored=not put.mirrored).key in moves:
                now, sign = situations(self.seed)[put.pair][-1], -1 if put.mirrored else 1
                rate = now.interest_rate - STEADY_STATE.interest_rate
                away = (now.inflation - STEADY_STATE.inflation, now.output_gap, rate)
                rows.append((put.pair, moves[put.key], *(sign * it for it in away)))
        if len(rows) < PAIRS:
            return None
        groups, moved, *deviations = zip(*rows, strict=True)
        names = {name: [fmean(it) for it in by.values()] for name, by in changes.items()}
        away_by_row = list(zip(*deviations, strict=True))
        return response_of(away_by_row, moved, groups=groups, names=names)

    def judged(self) -> Self:
        """Return the card with its outcome, of what was asked so far."""
        silent, whole, response = self.silent, len(self.answers), self.response
        if silent > _SILENT * whole or response is None:
            said: dict[str, Any] = {
                "outcome": "fail",
                "sentence": f"It gave no answer to {silent} of {whole} questions.",
            }
        else:
            said = {"outcome": response.outcome, "sentence": response.sentence}
        return self.model_copy(update=said)

    @property
    def silent(self) -> int:
        """How many questions have no answer."""
        return sum(one.move is None for one in self.answers.values())

    @property
    def criteria(self) -> tuple[Criterion, ...]:
        """What was measured, each with its interval and what it takes to pass."""
        return self.response.criteria if self.response else ()

    @property
    def verdict(self) -> str:
        """Whether the player passes, and why, in words."""
        said = {"pass": "Passes the", "fail": "Fails the", "undecided": "Undecided at the"}
        if self.outcome is None:
            return f"Not finished: {len(self.answers)} questions were asked."
        return f"{said[self.outcome]} economic gate. {self.sentence}"

    @property
    def heading(self) -> str:
        """Which player this is, and how it was asked."""
        known = f", digest {self.digest[:12]}" if self.digest else ""
        told = "an economist's briefing" if self.told == "economist" else "four indicators"
        answers = self.answers.values()
        calls, seconds = sum(it.calls for it in answers), sum(it.seconds for it in answers)
        methods = ", ".join(sorted({it.method for it in answers if it.method})) or "nothing"
        return (
            f"{self.model} ({self.backend}{known}), {told}, {len(answers)} questions (seed "
            f"{self.seed}) by {methods}, {calls:,} calls, {self.measured_at:%Y-%m-%d}, "
            f"{seconds:.0f} s"
        )

    def to_frame(self) -> pd.DataFrame:
        """Return the criteria, a row each."""
        columns = ["criterion", "value", "low", "high", "needs", "verdict"]
        rows = [
            dict(
                zip(
                    columns, (it.name, it.value, it.low, it.high, it.needs, it.verdict), strict=True
                )
            )
            for it in self.criteria
        ]
        return plain_frame(rows, columns)

    def to_json(self) -> str:
        """Return all answers and the verdict."""
        return json.dumps(self.model_dump(mode="json") | {"verdict": self.verdict}, indent=1)

    def rows(self) -> list[tuple[str, ...]]:
        """Return the criteria as rows of a table."""
        return [(it.name, it.interval, it.needs, it.verdict or "") for it in self.criteria]

    def __str__(self) -> str:
        lines = (": ".join(filter(None, row)) for row in self.rows())
        return "\n".join([self.heading, *lines, self.verdict])

    def __repr__(self) -> str:
        return f"<EconomicsCard {self.model!r}: {self.verdict}>"

    def _repr_html_(self) -> str:
        return str(join([table(HEADER, self.rows(), caption=self.heading), safe(self.verdict)]))


HEADER = ("criterion", "points a quarter, 95 % interval", "takes", "verdict")


# --- asking ---------------------------------------------------------------------------------------

_Asks = Callable[[_Put], Awaitable[GateAnswer]]


async def card_of(
    run: Any,
    member: str,
    *,
    seed: int | None,
    again: bool,
    folder: Path | None,
    progress: Callable[[str], None] | None,
) -> EconomicsCard:
    """Return the card of who decides in a run; see ``Simulation.responds``."""
    if run.moves_bp is None:
        raise ConfigError(
            "moves_bp=None lets members put an action into words, which has no size to judge; give "
            f"the run moves: moves_bp={list(GATE_MOVES_BP)}"
        )
    who, prompt = run.seat(member, tag="agent"), run._prompt_of(member)
    if isinstance(getattr(who, "backend", None), Person):
        raise ConfigError(
            f"a person answers for {member}, who gives neither probabilities nor {DRAWS} answers "
            "to one question, which it takes to judge a player; name a model or a rule"
        )
    card = EconomicsCard(
        model=getattr(who, "name", None) or getattr(who, "__name__", str(who)),
        backend="rule",
        told="economist" if "history" in prompt.slots else "thin",
        prompt=prompt.digest,
        seed=secrets.randbelow(10**6) if seed is None else seed,
        measured_at=datetime.now(UTC),
    )

    def states(path: Path_, put: _Put) -> list[Any]:
        last = NAMES.get(put.name)
        return [
            run.state_type().with_economy(
                mirrored(state) if put.mirrored else state,
                period=last and next_quarter(last, steps=at - len(path) + 1),
            )
            for at, state in enumerate(path)
        ]

    async def drawn(put: _Put, *, draws: int) -> GateAnswer:
        seen, answers = states(situations(card.seed)[put.pair], put), []
        for draw in range(draws):
            # Random numbers follow from the turn's number.
            ask = Ask(run, seen[-1], DRAWS * zlib.crc32(put.key.encode()) + draw)
            made = (await run._decided(ask, [member], seen, put.name))[member]
            answers.append(made.rate_change_bp / 100)
        method = "one answer" if len(set(answers)) == 1 else f"{draws} draws"
        return GateAnswer(move=fmean(answers), mass=1.0, method=method)

    if not hasattr(who, "call_with_retry"):
        found = await _measured(card, partial(drawn, draws=2), None, progress)
        if any(answer.method == "2 draws" for answer in found.answers.values()):
            found = await _measured(card, partial(drawn, draws=DRAWS), None, progress)
        return found

    def text(path: Path_, put: _Put) -> str:
        return cast("str", run._prompt_to(member, states(path, put), 1, put.name))

    moves, how = moves_to_choose(run.moves_bp), run.decide

    async def chosen(put: _Put) -> GateAnswer:
        asked = text(situations(card.seed)[put.pair], put)
        choice = await who.choose(asked, moves, samples=DRAWS, seed=1)
        fixed = how in ("mode", "expected")
        move = choice.decided(how, random.Random()) if fixed else choice.expectation
        return GateAnswer(
            move=move / 100,
            chances=dict(choice.probabilities),
            mass=choice.mass,
            method=choice.method,
            calls=len(choice.calls),
        )

    info = await who.model_info()
    its = {name: getattr(info, name) for name in ("backend", "version", "digest")}
    card = card.model_copy(update={"model": info.name, **its})
    rest = (STEADY_STATE,) * SHOWN
    texts = [text(rest, _Put(0, mirrored=False, name=name)) for name in ("", *NAMES)]
    # The name of a model alone may be that of other weights, and servers have options of their own.
    which = [*texts, list(moves.values()), how, VERSION, info.digest or info.name, its]
    which += [str(getattr(who.backend, name, "")) for name in ("host", "base_url")]
    which += [who.config.num_ctx, who.config.options]
    key = hashlib.sha256(json.dumps(which, sort_keys=True, default=str).encode()).hexdigest()
    plain = re.sub(r"[^\w.-]+", "-", info.name.rpartition("/")[2], flags=re.ASCII)[:60]
    path = economics_folder(folder) / f"{plain}-{key[:16]}.json"
    kept = None if again else EconomicsCard.read(path)
    if kept is not None and seed in (None, kept.seed):
        card = kept
    return card if card.outcome else await _measured(card, chosen, path, progress)


async def _measured(
    card: EconomicsCard, asks: _Asks, path: Path | None, progress: Callable[[str], None] | None
) -> EconomicsCard:
    """Ask what is left of a card, keep each answer where there is a path, and judge."""
    for stage in (1, 2):
        todo = [put for put in _plan(stage) if put.key not in card.answers]
        whole, began = len(_plan(1)) * stage, time.perf_counter()
        for done, put in enumerate(todo):
            asked_at = time.perf_counter()
            if progress is not None:
                left = (asked_at - began) / done * (len(todo) - done) if done else 0.0
                about = f", about {left / 60:.0f} min left" if done else ""
                progress(f"question {whole - len(todo) + done + 1} of {whole}{about}")
            try:
                answer = await asks(put)
            except LLMFailureException as failure:
                if failure.reason in LASTING:
                    raise  # the card can be continued
                answer = GateAnswer(fault=clip(str(failure), 200))
            seconds = time.perf_counter() - asked_at
            answer = answer.model_copy(update={"seconds": seconds})
            card = card.model_copy(update={"answers": {**card.answers, put.key: answer}})
            _write_card(path, card)
        judged = card.judged()
        if judged.outcome != "undecided":
            break
    _write_card(path, judged)
    return judged


def kept_economics_cards() -> list[EconomicsCard]:
    """Return the finished cards that are kept, the newest first."""
    found = map(EconomicsCard.read, economics_folder().glob("*.json"))
    done = [card for card in found if card is not None and card.outcome]
    return sorted(done, key=attrgetter("measured_at"), reverse=True)


def gate_notes(model: Mapping[str, Any], prompts: Collection[str]) -> list[str]:
    """Return a sentence on a model that did not pass the economic gate; none if it did.

    There is none either where no card is kept.

    Args:
        model: its ``name`` and ``digest``, as a manifest has them.
        prompts: digests of a run's prompts; a card is that of one of them.
    """
    who = model.get("digest") or model.get("name")
    for card in kept_economics_cards():
        if (card.digest or card.model) == who and card.prompt in prompts:
            name = clip(str(model.get("name")), 80) + ", told four indicators," * (
                card.told == "thin"
            )
            match card.outcome:
                case "fail":
                    return [f"{name} failed the economic gate. {clip(card.sentence, 300)}"]
                case "undecided":
                    return [f"{name} is undecided at the economic gate."]
            return []
    return []


def _write_card(path: Path | None, card: EconomicsCard) -> None:
    """Write a card aside and move it into place: a stopped program leaves the old one or the new.

    Raises:
        ConfigError: the folder cannot be written to.
    """
    if path is None:
        return
    aside = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(card.model_dump_json(), encoding="utf-8")
        aside.replace(path)
    except OSError as error:
        raise ConfigError(
            f"cannot keep the card in {path.parent}: {error.strerror}; name another folder in "
            "$LLMSIM_CARDS"
        ) from error
