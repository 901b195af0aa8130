"""The economic gate: a player is asked about situations and their mirror images, and judged.

A player (a model, or a rule) is shown economies, and each one's mirror image, in which everything
is as far on the other side of the steady state; half of them again with a name and dates. The
steady state is at the player's own inflation target. From its moves ``economy.response_of`` tells
whether it responds to the economy. 24 pairs are asked first, and 24 more if they do not decide.
Each card has situations of its own, which follow from its seed.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import secrets
import time
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from itertools import product
from math import inf
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from llmsim_lab._util.files import kept_folder
from llmsim_lab._util.tables import frame_of
from llmsim_lab._util.text import duration
from llmsim_lab.agents.agents import moves_to_choose
from llmsim_lab.agents.briefing import SHOWN
from llmsim_lab.economy import RudebuschSvensson, TaylorRule, response_of
from llmsim_lab.economy.data import next_quarter
from llmsim_lab.economy.macro import (
    DEMAND_STD,
    STATE,
    STEADY_STATE,
    SUPPLY_STD,
    EngineConfig,
    Shocks,
    mirrored,
    rate_by,
    shifted,
)
from llmsim_lab.economy.response import Criterion, PolicyResponse, Verdict
from llmsim_lab.errors import ConfigError, EconomyError, LLMFailureException
from llmsim_lab.llm import Person
from llmsim_lab.llm.chains import LASTING
from llmsim_lab.models import GlobalState
from llmsim_lab.run import Ask
from llmsim_lab.run._progress import progress_line

if TYPE_CHECKING:
    import pandas as pd

VERSION = 3
"""Cards of another version are measured anew. Raise it with any change of what the gate asks."""
GATE_MOVES_BP = (-200, -75, -25, 0, 25, 75, 200)
"""The moves on offer, basis points: seven, since each costs a call a question."""
PAIRS, NAMED = 24, 12
"""Pairs of a stage, and how many of them are asked again with names."""
NAMES = {"United States": "1979Q3", "Japan": "1999Q1"}
"""What is told of an economy that is asked about again: a name, and its last quarter."""
DRAWS = 10
"""Answers of a player that draws, to each question; their mean is judged."""
LEAST_ROOM = 2.0
"""Percentage points: with less, slow rules can hardly be told from none."""
QUARTERS, SLIP, SLIP_STD = 20, 0.85, 0.4
"""The rate of the past differs from a rule's by an AR(1): else it would hardly ever be far off."""

Told = Literal["economist", "thin"]
Quarters = tuple[GlobalState, ...]
Put = tuple[int, bool, str]
"""A question: about which pair, its mirror image or not, with which of ``NAMES`` or without."""


def _key(pair: int, turned: bool, name: str) -> str:
    """Return ``07``, ``07 mirrored``, ``07 Japan mirrored``."""
    return " ".join(filter(None, (f"{pair + 1:02}", name, "mirrored" * turned)))


_PLANNED = [
    (first + pair, turned, name)
    for first in (0, PAIRS)
    for start, name in ((0, ""), *enumerate(NAMES))
    for pair, turned in product(
        range(start, NAMED, len(NAMES)) if name else range(PAIRS), (False, True)
    )
]
QUESTIONS: Mapping[str, Put] = {_key(*put): put for put in _PLANNED}
"""Those with the same name together, for the prefix cache; the second half is the second stage."""


# --- what is asked --------------------------------------------------------------------------------


def rest_at(target: float) -> GlobalState:
    """Return the steady state with an inflation target: the rate is as far above it as ever."""
    return shifted(STEADY_STATE, target - STEADY_STATE.inflation)


def room_at(target: float) -> float:
    """Return how far from the steady state rates may be for no bound to touch them.

    Raises:
        ConfigError: it is too little to tell how somebody responds.
    """
    lowest, highest = EngineConfig().rate_bounds
    rate = rest_at(target).interest_rate
    room = min(STEADY_STATE.interest_rate, rate - lowest, highest - rate)
    if room < LEAST_ROOM:
        above = STEADY_STATE.interest_rate - STEADY_STATE.inflation
        raise ConfigError(
            f"an inflation target of {target:g}% goes with a rate of {rate:g}%, which leaves less "
            f"than {LEAST_ROOM:g} points to the bounds of {lowest:g}% and {highest:g}%; the "
            f"economic gate can judge targets from {lowest + LEAST_ROOM - above:g}% to "
            f"{highest - LEAST_ROOM - above:g}%"
        )
    return room


@lru_cache(maxsize=8)
def situations(seed: int, room: float = STEADY_STATE.interest_rate) -> tuple[Quarters, ...]:
    """Return a card's situations, each the last quarters of a run of the macro model.

    A run begins in the steady state and has random shocks and a policy that makes lasting mistakes.
    It is taken if it and its mirror image have usual figures, and if a Taylor rule would ask for a
    rate that no bound touches.

    Args:
        seed: they follow from it.
        room: how far from the steady state a rate may be, percentage points.
    """
    rng, found = random.Random(f"economic gate, seed {seed}"), list[Quarters]()
    while len(found) < 2 * PAIRS:
        with suppress(EconomyError):
            if quarters := _played(rng, room):
                found.append(quarters)
    return tuple(found)


def _played(rng: random.Random, room: float) -> Quarters | None:
    model, rule, rest = RudebuschSvensson(), TaylorRule(lower_bound=-inf), STEADY_STATE
    path, slip = [rest], 0.0
    for _ in range(QUARTERS):
        now, slip = path[-1], SLIP * slip + rng.gauss(0, SLIP_STD)
        # Inertia of 0.8, half of the slip.
        rate = 0.8 * now.interest_rate + 0.2 * rate_by(rule, now) + 0.5 * slip
        shocks = Shocks(supply=rng.gauss(0, SUPPLY_STD), demand=rng.gauss(0, DEMAND_STD))
        path.append(model.advance(now, interest_rate=rate, shocks=shocks))
    usual = abs(rate_by(rule, path[-1]) - rest.interest_rate) <= room and all(
        abs(it.interest_rate - rest.interest_rate) <= room - 0.25
        and abs(it.inflation - rest.inflation) < 3.5
        and abs(it.unemployment - rest.unemployment) < 4
        for it in path[-SHOWN:]
    )
    return tuple(path[-SHOWN:]) if usual else None


def _states(kind: Any, put: Put, quarters: Quarters, target: float) -> list[Any]:
    """Return a situation as states of a run, mirrored and dated as the question has it."""
    _, turned, name = put
    last = NAMES.get(name)
    states = []
    for at, quarter in enumerate(quarters):
        around_two = mirrored(quarter) if turned else quarter
        economy = shifted(around_two, target - STEADY_STATE.inflation)
        period = last and next_quarter(last, steps=at - len(quarters) + 1)
        states.append(kind().with_economy(economy, period=period))
    return states


# --- the card -------------------------------------------------------------------------------------


class EconomicsCard(BaseModel):
    """Whether a player responds to the economy; ``verdict`` says it in words.

    Attributes:
        model: the model's name as its backend knows it; of a rule what it is called.
        backend: ``ollama``, ``embedded`` …; ``rule`` for a player that is not a model.
        digest: of the model's weights; None where it is not known: the card is kept by name then.
        told: ``economist`` for a briefing, ``thin`` for four indicators.
        prompt: digest of the prompt.
        inflation_target: the player's, percent, which its situations are around.
        seed: its situations follow from it.
        measured_at: when it was begun.
        version_of_gate: a kept card of another one is not read.
        moves: by question, percentage points: the mean of a player's probabilities or draws; None
            where it gave no answer.
        method: how answers were measured: as ``Choice`` has it, or ``10 answers to each``.
        calls: of a model, how many it took.
        outcome: ``pass``, ``fail`` or ``undecided``; None where not all was asked.
        sentence: what was found, and whether the player stabilises this economy.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    model: str
    backend: str = "rule"
    digest: str | None = None
    told: Told
    prompt: str
    inflation_target: float = STEADY_STATE.inflation
    seed: int
    measured_at: AwareDatetime
    version_of_gate: Annotated[int, Field(ge=VERSION, le=VERSION)] = VERSION
    moves: dict[str, float | None] = {}
    method: str = ""
    calls: int = 0
    outcome: Verdict | None = None
    sentence: str = ""

    @property
    def response(self) -> PolicyResponse | None:
        """What the regression found; None where more than one question of 24 has no answer."""
        if list(self.moves.values()).count(None) * PAIRS > len(self.moves):
            return None
        rows, names = list[tuple[float, ...]](), dict[str, list[float]]()
        for pair, quarters in enumerate(situations(self.seed, room_at(self.inflation_target))):
            now, plain = quarters[-1], self._answers(pair, "")
            away = [getattr(now, it) - getattr(STEADY_STATE, it) for it in STATE]
            for sign, move in zip((1, -1), plain, strict=False):
                rows.append((pair, move, *(sign * it for it in away)))
            for name, last in NAMES.items():
                if plain and (told := self._answers(pair, name)):
                    names.setdefault(f"{name}, {last}", []).append((sum(told) - sum(plain)) / 2)
        pairs, moved, *columns = zip(*rows, strict=True)
        return response_of(list(zip(*columns, strict=True)), moved, groups=pairs, names=names)

    def _answers(self, pair: int, name: str) -> list[Any]:
        """Return the moves in a situation and in its mirror image; none where one is missing."""
        moves = [self.moves.get(_key(pair, turned, name)) for turned in (False, True)]
        return [] if None in moves else moves

    @property
    def verdict(self) -> str:
        """Whether the player passes, and why, in words."""
        if self.outcome is None:
            return f"Not finished: {len(self.moves)} questions were asked."
        said = {"pass": "Passes the", "fail": "Fails the", "undecided": "Undecided at the"}
        return f"{said[self.outcome]} economic gate. {self.sentence}"

    @property
    def heading(self) -> str:
        """Which player this is, and how it was asked."""
        known = f", digest {self.digest[:12]}" if self.digest else ""
        told = "an economist's briefing" if self.told == "economist" else "four indicators"
        if self.inflation_target != STEADY_STATE.inflation:
            told += f", target {self.inflation_target:g}%"
        return (
            f"{self.model} ({self.backend}{known}), {told}, {len(self.moves)} questions (seed "
            f"{self.seed}) by {self.method or 'nothing'}, {self.calls:,} calls, "
            f"{self.measured_at:%Y-%m-%d}"
        )

    def to_frame(self) -> pd.DataFrame:
        """Return the criteria, a row each, as ``Criterion`` has them; none without answers."""
        found = self.response
        return frame_of(found.criteria if found else (), [*Criterion._fields])

    def __str__(self) -> str:
        shown = self.to_frame().round(2).fillna("").to_string(index=False)
        return f"{self.heading}\n{shown}\n{self.verdict}"

    def __repr__(self) -> str:
        return f"<EconomicsCard {self.model!r}: {self.verdict}>"


# --- asking ---------------------------------------------------------------------------------------


async def card_of(
    run: Any, member: str, seed: int | None, progress: Callable[[str], None] | None
) -> EconomicsCard:
    """Return the card of who decides in a run; see ``Simulation.responds``."""
    if run.moves_bp is None:
        way_out = f"give the run moves: moves_bp={list(GATE_MOVES_BP)}"
        raise ConfigError(f"moves_bp=None leaves words, without a size to judge; {way_out}")
    who, prompt = run.seat(member, tag="agent"), run._prompt_of(member)
    if isinstance(getattr(who, "backend", None), Person):
        what = f"a person answers for {member}, who gives neither probabilities nor {DRAWS} answers"
        raise ConfigError(f"{what} to one question; name a model or a rule")
    info = await who.model_info() if hasattr(who, "call_with_retry") else None
    how, draws, moves = run.decide, 2, moves_to_choose(run.moves_bp)
    target = run._nations[member].inflation_target
    room_at(target)  # raises where it cannot be judged

    def text(put: Put, quarters: Quarters) -> Any:
        states = _states(run.state_type, put, quarters, target)
        return run._prompts_to(states, 1, put[2])(member)

    async def asks(put: Put, quarters: Quarters) -> tuple[float, str, int]:
        nonlocal draws
        if info and how:
            choice = await who.choose(text(put, quarters), moves, samples=DRAWS, seed=1)
            mean = how == "sample"
            move = choice.expectation if mean else choice.decided(how, random.Random())
            return move, choice.method, len(choice.calls)
        states, answers = _states(run.state_type, put, quarters, target), list[float]()
        while len(answers) < draws:
            # Random numbers follow from the turn's number.
            ask = Ask(run, states[-1], DRAWS * zlib.crc32(_key(*put).encode()) + len(answers))
            made = (await run._decided(ask, [member], states, put[2]))[member]
            answers.append(made.rate_change_bp)
            draws = DRAWS if len(set(answers)) > 1 else draws
        return fmean(answers), f"{draws} answers to each", len(answers) if info else 0

    card = EconomicsCard(
        model=info.name if info else getattr(who, "name", getattr(who, "__name__", str(who))),
        backend=info.backend if info else "rule",
        digest=info and info.digest,
        told="economist" if "history" in prompt.slots else "thin",
        prompt=prompt.digest,
        inflation_target=target,
        seed=secrets.randbelow(10**6) if seed is None else seed,
        measured_at=datetime.now(UTC),
    )
    path = None
    if info is not None:
        # A model's name alone may be that of other weights, and servers have options of their own.
        which = [text((0, False, name), (STEADY_STATE,) * SHOWN) for name in ("", *NAMES)]
        which += [list(moves.values()), how, VERSION, info.backend, info.version]
        which += [info.digest or info.name, who.config.num_ctx, who.config.options]
        which += [str(getattr(who.backend, name, "")) for name in ("host", "base_url")]
        if how is None:  # what it writes depends on temperature and length as well
            which.append(who.config.model_dump(mode="json"))
        key = hashlib.sha256(json.dumps(which, sort_keys=True, default=str).encode()).hexdigest()
        plain = re.sub(r"[^\w.-]+", "-", info.name.rpartition("/")[2], flags=re.ASCII)[:60]
        path = kept_folder("cards") / "economics" / f"{plain}-{key[:16]}.json"
        if (kept := _read(path)) is not None and seed in (None, kept.seed):
            card = kept
    return card if card.outcome else await _measured(card, asks, path, progress)


async def _measured(
    card: EconomicsCard,
    asks: Callable[[Put, Quarters], Awaitable[tuple[float, str, int]]],
    path: Path | None,
    progress: Callable[[str], None] | None,
) -> EconomicsCard:
    """Ask what is left of a card, keep each answer where there is a path, and judge."""
    half = len(QUESTIONS) // 2
    took: list[float] = []
    asked_about = situations(card.seed, room_at(card.inflation_target))
    for last in (half, len(QUESTIONS)):
        stage = list(enumerate(QUESTIONS.items(), 1))[last - half : last]
        left = [one for one in stage if one[1][0] not in card.moves]
        first = left[0][0] if left else last
        line = progress_line("question", number=first, last=last, enabled=progress is None)
        async with line as advance:
            for number, (key, put) in left:
                if progress is not None:
                    progress(f"question {number} of {last}{_time_left(took, last - number + 1)}")
                bp, method, calls = None, card.method, 0
                began = time.monotonic()
                try:
                    bp, method, calls = await asks(put, asked_about[put[0]])
                except LLMFailureException as failure:
                    if failure.reason in LASTING:
                        raise  # the card can be continued
                took.append(time.monotonic() - began)
                moves = {**card.moves, key: None if bp is None else bp / 100}
                card = _kept(path, card, moves=moves, method=method, calls=card.calls + calls)
                advance(calls)
        response = card.response
        if response is None or response.outcome != "undecided":
            break
    found, silent = card.response, list(card.moves.values()).count(None)
    sentence = f"It gave no answer to {silent} of {len(card.moves)} questions."
    outcome: Verdict = "fail"
    if found is not None:
        outcome, sentence = found.outcome, f"{found.sentence} {found.stability}"
    return _kept(path, card, outcome=outcome, sentence=sentence)


def _time_left(took: Sequence[float], questions: int) -> str:
    """Return how long so many questions take, as those did that were asked; empty before one is."""
    if not took:
        return ""
    # The first may have waited for the model to be loaded.
    return f", about {duration(fmean(took[1:] or took) * questions)} left"


def kept_economics_cards() -> list[EconomicsCard]:
    """Return the finished cards that are kept, the newest first."""
    kept = map(_read, kept_folder("cards").glob("economics/*.json"))
    done = [it for it in kept if it and it.outcome]
    return sorted(done, key=attrgetter("measured_at"), reverse=True)


def _read(path: Path) -> EconomicsCard | None:
    """Return a kept card, or None where none can be read: it is measured anew."""
    with suppress(OSError, ValidationError):
        return EconomicsCard.model_validate_json(path.read_bytes())
    return None


def _kept(path: Path | None, card: EconomicsCard, **changes: Any) -> EconomicsCard:
    """Return a card with changes, and keep it where there is a path for it.

    It is written aside and moved into place: a stopped program leaves the old one or the new.

    Raises:
        ConfigError: the folder cannot be written to.
    """
    card = card.model_copy(update=changes)
    if path is None:
        return card
    aside = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(card.model_dump_json(), encoding="utf-8")
        aside.replace(path)
    except OSError as error:
        what = f"cannot keep the card in {path.parent}: {error.strerror}"
        raise ConfigError(f"{what}; name another folder in $LLMSIM_CARDS") from error
    return card
