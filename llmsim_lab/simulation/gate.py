"""The economic gate: a player is asked about situations and their mirror images, and judged.

A player (a model, or a rule) is shown economies and their mirror images, in which every figure is
equally far on the other side of the steady state. Half of them are shown again with a name and
dates. The steady state is at the player's own inflation target. ``economy.response_of`` judges by
the player's moves whether it responds to the economy. 24 pairs are asked first, and 24 more if
these do not decide. Each card has its own situations, which follow from its seed.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import secrets
import time
import zlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from math import inf
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from llmsim_lab._util.files import bounded_bytes, kept_folder
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
from llmsim_lab.llm.choice import Decide
from llmsim_lab.models import GlobalState
from llmsim_lab.prompts import Prompt, RenderedPrompt
from llmsim_lab.run.progress import progress_line
from llmsim_lab.types import ModelInfo

if TYPE_CHECKING:
    import pandas as pd

VERSION = 3
"""Cards of another version are measured anew. Raise it when the gate's questions change."""
GATE_MOVES_BP = (-200, -75, -25, 0, 25, 75, 200)
"""The moves on offer, basis points: only seven, since each costs a call for each question."""
PAIRS = 24
"""The number of pairs in a stage."""
NAMED = 12
"""How many pairs of a stage are asked again with names."""
NAMES = {"United States": "1979Q3", "Japan": "1999Q1"}
"""The names of economies that are asked about again, each with its last quarter."""
DRAWS = 10
"""How often a player whose answers differ is asked each question; the mean is judged."""
LEAST_ROOM = 2.0
"""Percentage points; with less room a slow rule hardly differs from no rule."""
QUARTERS = 20
"""How many quarters lead to a situation."""
SLIP = 0.85
"""Persistence, in a quarter, of the AR(1) by which the past rate differs from a rule's; without it
the rate would hardly ever be far off."""
SLIP_STD = 0.4
"""Standard deviation of the AR(1)'s innovation in a quarter, percentage points."""

Told = Literal["economist", "thin"]
"""The prompt of a player: an economist's briefing, or four indicators."""
Quarters = tuple[GlobalState, ...]


class GateQuestion(NamedTuple):
    """A question about one economy.

    Attributes:
        pair: the number of the pair of economies.
        is_mirrored: whether the question is about the mirror image.
        name: one of ``NAMES``; empty for an economy without a name.
    """

    pair: int
    is_mirrored: bool
    name: str = ""

    @property
    def key(self) -> str:
        """The question's name on a card: ``07``, ``07 mirrored``, ``07 Japan mirrored``."""
        words = [f"{self.pair + 1:02}"]
        if self.name:
            words.append(self.name)
        if self.is_mirrored:
            words.append("mirrored")
        return " ".join(words)


def _planned() -> Iterator[GateQuestion]:
    """Yield all questions; those with the same name are together, for the prefix cache."""
    # In two stages, since the first decides a clear case at half the price.
    for first in (0, PAIRS):
        for pair in range(first, first + PAIRS):
            yield GateQuestion(pair, is_mirrored=False)
            yield GateQuestion(pair, is_mirrored=True)
        for place, name in enumerate(NAMES):
            # The first pairs are asked again, with alternating names.
            for pair in range(first + place, first + NAMED, len(NAMES)):
                yield GateQuestion(pair, is_mirrored=False, name=name)
                yield GateQuestion(pair, is_mirrored=True, name=name)


QUESTIONS = {question.key: question for question in _planned()}
"""The questions by key; the second half is the second stage."""


class DatedEconomy(NamedTuple):
    """A quarter of a question, with its date; None for no date."""

    economy: GlobalState
    period: str | None


class Measured(NamedTuple):
    """The answer to a question.

    Attributes:
        move_bp: the mean move, basis points.
        method: how it was measured, in words.
        calls: how many model calls it took.
    """

    move_bp: float
    method: str
    calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Examinee:
    """A player that is examined, and how the run asks it for decisions.

    Attributes:
        name: the name of the committee's member.
        player: who decides for the member, such as a client or a rule.
        prompt: the prompt that it is asked with.
        inflation_target: its own inflation target, percent.
        moves_bp: the moves on offer; None where actions are in words.
        decide: how a move is taken from probabilities; None where the move is written.
        write: returns the prompt's text about quarters of an economy with a name.
        answer: returns the move about quarters of an economy with a name, basis points; random
            numbers are those of a turn.
    """

    name: str
    player: Any
    prompt: Prompt
    inflation_target: float
    moves_bp: Sequence[int] | None
    decide: Decide | None
    write: Callable[[Sequence[DatedEconomy], str], RenderedPrompt]
    answer: Callable[[Sequence[DatedEconomy], int, str], Awaitable[float]]


# --- questions ------------------------------------------------------------------------------------


def rest_at(target: float) -> GlobalState:
    """Return the steady state with an inflation target; the real rate stays the same."""
    return shifted(STEADY_STATE, target - STEADY_STATE.inflation)


def room_at(target: float) -> float:
    """Return how far from the steady state a rate may be without touching a bound.

    Raises:
        ConfigError: that is too little to judge how a player responds.
    """
    lowest, highest = EngineConfig().rate_bounds
    rate = rest_at(target).interest_rate
    # On both sides, since each situation has a mirror image.
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
def situations(
    seed: int,
    room: float = STEADY_STATE.interest_rate,
) -> tuple[Quarters, ...]:
    """Return a card's situations, each the last quarters of a run of the macro model.

    A run begins in the steady state, with random shocks and a policy that makes lasting mistakes.
    A run is used if its figures and those of its mirror image are usual, and if a Taylor rule would
    ask for a rate that no bound touches.

    Args:
        seed: decides the situations.
        room: how far from the steady state a rate may be, percentage points.
    """
    # For both stages at once, so that a second stage has the same situations if it begins later.
    rng = random.Random(f"economic gate, seed {seed}")
    usual: list[Quarters] = []
    while len(usual) < 2 * PAIRS:
        with suppress(EconomyError):  # the run left the model's range
            quarters = _past(rng)
            if _is_usual(quarters, room):
                usual.append(quarters)
    return tuple(usual)


def _past(rng: random.Random) -> Quarters:
    """Return the last quarters of a run whose rate drifts away from a rule's."""
    model = RudebuschSvensson()
    # Without a bound, where a path and its mirror image would differ.
    rule = TaylorRule(lower_bound=-inf)
    path = [STEADY_STATE]
    slip = 0.0
    for _ in range(QUARTERS):
        now = path[-1]
        slip = SLIP * slip + rng.gauss(0, SLIP_STD)
        # Inertia of 0.8, plus half of the slip.
        rate = 0.8 * now.interest_rate + 0.2 * rate_by(rule, now) + 0.5 * slip
        shocks = Shocks(
            supply=rng.gauss(0, SUPPLY_STD),
            demand=rng.gauss(0, DEMAND_STD),
        )
        after = model.advance(
            now,
            interest_rate=rate,
            shocks=shocks,
        )
        path.append(after)
    return tuple(path[-SHOWN:])


def _is_usual(quarters: Quarters, room: float) -> bool:
    """Return True if the figures are usual ones, and a rule's rate touches no bound."""
    rest = STEADY_STATE
    asked_for = rate_by(TaylorRule(lower_bound=-inf), quarters[-1])
    # At a bound no response to inflation can be seen.
    if abs(asked_for - rest.interest_rate) > room:
        return False
    for quarter in quarters:
        has_usual_rate = abs(quarter.interest_rate - rest.interest_rate) <= room - 0.25
        has_usual_inflation = abs(quarter.inflation - rest.inflation) < 3.5
        has_usual_unemployment = abs(quarter.unemployment - rest.unemployment) < 4
        if not (has_usual_rate and has_usual_inflation and has_usual_unemployment):
            return False
    return True


def _shown(
    question: GateQuestion,
    quarters: Quarters,
    target: float,
) -> list[DatedEconomy]:
    """Return a situation in the form of a question: around a target, mirrored, dated."""
    economies = []
    last = NAMES.get(question.name)
    for number, quarter in enumerate(quarters, start=1):
        period = None
        # The dates end with the named quarter.
        if last is not None:
            period = next_quarter(last, steps=number - len(quarters))
        # Mirrored around the model's steady state first; then the target shifts it.
        economy = mirrored(quarter) if question.is_mirrored else quarter
        around_target = shifted(economy, target - STEADY_STATE.inflation)
        economies.append(DatedEconomy(around_target, period))
    return economies


# --- the card -------------------------------------------------------------------------------------


class EconomicsCard(BaseModel):
    """Whether a player responds to the economy; ``verdict`` says it in words.

    Attributes:
        model: the model's name in its backend, or the rule's name.
        backend: ``ollama``, ``embedded`` …; ``rule`` for a player that is not a model.
        digest: of the model's weights; None where it is not known, and the card is kept by name.
        told: ``economist`` for a briefing, ``thin`` for four indicators.
        prompt: the digest of the prompt.
        inflation_target: the player's inflation target, percent; the situations are around it.
        seed: decides the situations.
        measured_at: when the card was begun.
        version_of_gate: kept cards of another version are not read.
        moves: by question, the mean of the player's probabilities or draws, percentage points;
            None where it gave no answer.
        method: how answers were measured: ``Choice.method``, or ``10 answers to each``.
        calls: how many model calls it took.
        outcome: ``pass``, ``fail`` or ``undecided``; None where questions are left.
        sentence: the result, and whether the player stabilises this economy.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        allow_inf_nan=False,
    )

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
        """The regression's result; None where more than one question in 24 has no answer."""
        # Answers may be missing because of the economy shown, and would bias the rest.
        if self.unanswered * PAIRS > len(self.moves):
            return None
        deviations: list[list[float]] = []
        moves: list[float] = []
        pairs: list[int] = []
        changes: defaultdict[str, list[float]] = defaultdict(list)
        of_card = situations(self.seed, room_at(self.inflation_target))
        for pair, quarters in enumerate(of_card):
            plain = self._moves_of(pair, "")
            if plain is None:
                continue
            now = quarters[-1]
            away = [getattr(now, name) - getattr(STEADY_STATE, name) for name in STATE]
            mirror_image = [-value for value in away]
            deviations += [away, mirror_image]
            moves += plain
            pairs += [pair, pair]
            for name, last in NAMES.items():
                named = self._moves_of(pair, name)
                if named is not None:
                    # Summed over both mirror images, so that the response to the economy cancels.
                    change = (sum(named) - sum(plain)) / 2
                    changes[f"{name}, {last}"].append(change)
        return response_of(
            deviations,
            moves,
            groups=pairs,
            names=changes,
        )

    @property
    def unanswered(self) -> int:
        """How many questions have no answer."""
        return list(self.moves.values()).count(None)

    def _moves_of(
        self,
        pair: int,
        name: str,
    ) -> tuple[float, float] | None:
        """Return the moves in a situation and its mirror image; None if one is missing."""
        plain_question = GateQuestion(pair, is_mirrored=False, name=name)
        mirrored_question = GateQuestion(pair, is_mirrored=True, name=name)
        plain = self.moves.get(plain_question.key)
        in_mirror = self.moves.get(mirrored_question.key)
        if plain is None or in_mirror is None:
            return None
        return plain, in_mirror

    @property
    def verdict(self) -> str:
        """Whether the player passes, and why, in words."""
        if self.outcome is None:
            return f"Not finished: {len(self.moves)} questions were asked."
        words = {
            "pass": "Passes the",
            "fail": "Fails the",
            "undecided": "Undecided at the",
        }
        return f"{words[self.outcome]} economic gate. {self.sentence}"

    @property
    def heading(self) -> str:
        """The player, and how it was asked."""
        digest = f", digest {self.digest[:12]}" if self.digest else ""
        briefing = "an economist's briefing" if self.told == "economist" else "four indicators"
        if self.inflation_target != STEADY_STATE.inflation:
            briefing += f", target {self.inflation_target:g}%"
        return (
            f"{self.model} ({self.backend}{digest}), {briefing}, {len(self.moves)} questions (seed "
            f"{self.seed}) by {self.method or 'nothing'}, {self.calls:,} calls, "
            f"{self.measured_at:%Y-%m-%d}"
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each ``Criterion``; no rows without answers."""
        response = self.response
        criteria = () if response is None else response.criteria
        # With columns also without rows, since frames of several cards are concatenated.
        return frame_of(criteria, list(Criterion._fields))

    def __str__(self) -> str:
        table = self.to_frame().round(2).to_string(index=False, na_rep="")
        return f"{self.heading}\n{table}\n{self.verdict}"

    def __repr__(self) -> str:
        return f"<EconomicsCard {self.model!r}: {self.verdict}>"


# --- asking ---------------------------------------------------------------------------------------


async def card_of(
    examinee: Examinee,
    seed: int | None,
    progress: Callable[[str], None] | None,
) -> EconomicsCard:
    """Return the card of a run's player; see ``Simulation.responds``."""
    player = examinee.player
    if examinee.moves_bp is None:
        raise ConfigError(
            "moves_bp=None leaves words, without a size to judge; give the run moves: "
            f"moves_bp={list(GATE_MOVES_BP)}"
        )
    if isinstance(getattr(player, "backend", None), Person):
        raise ConfigError(
            f"a person answers for {examinee.name}, who gives neither probabilities nor {DRAWS} "
            "answers to one question; name a model or a rule"
        )
    # Called for its error, before anything is asked.
    room_at(examinee.inflation_target)
    info = None
    if hasattr(player, "call_with_retry"):
        info = await player.model_info()
    card = _new_card(examinee, info, seed)
    path = None
    if info is not None:  # a rule's card is not kept, since its answers cost nothing
        path = _path_of(examinee, info)
        kept = _read(path)
        # Another seed asks about other economies, and needs another card.
        if kept is not None and seed in (None, kept.seed):
            card = kept
    if card.outcome:
        return card
    return await _measured(card, _Asking(examinee, info), path, progress)


def _new_card(
    examinee: Examinee,
    info: ModelInfo | None,
    seed: int | None,
) -> EconomicsCard:
    """Return a card without answers."""
    # A new seed, so that each card has its own situations.
    if seed is None:
        seed = secrets.randbelow(10**6)
    player = examinee.player
    function_name = getattr(player, "__name__", str(player))
    card = EconomicsCard(
        model=getattr(player, "name", function_name),
        # By the prompt, since a nation may have its own, whatever the run's ``briefing`` is.
        told="economist" if "history" in examinee.prompt.slots else "thin",
        prompt=examinee.prompt.digest,
        inflation_target=examinee.inflation_target,
        seed=seed,
        measured_at=datetime.now(UTC),
    )
    if info is None:
        return card
    return card.model_copy(
        update={
            "model": info.name,
            "backend": info.backend,
            "digest": info.digest,
        }
    )


def _path_of(examinee: Examinee, info: ModelInfo) -> Path:
    """Return the path of a model's card, with a digest of all that its answers depend on."""
    client = examinee.player
    # The name alone may stand for other weights, and servers have their own options.
    parts: list[object] = []
    # The prompts as they are sent, with and without a name: any change of words counts.
    for name in ("", *NAMES):
        question = GateQuestion(
            0,
            is_mirrored=False,
            name=name,
        )
        quarters = _shown(question, (STEADY_STATE,) * SHOWN, examinee.inflation_target)
        parts.append(examinee.write(quarters, name))
    # In this order, since the keys of existing cards have it.
    parts += [
        list(_options(examinee).values()),
        examinee.decide,
        VERSION,
        info.backend,
        info.version,
        info.digest or info.name,
        client.config.num_ctx,
        client.config.options,
        str(getattr(client.backend, "host", "")),
        str(getattr(client.backend, "base_url", "")),
    ]
    if examinee.decide is None:
        # A written decision also depends on temperature and length.
        parts.append(client.config.model_dump(mode="json"))
    text = json.dumps(
        parts,
        sort_keys=True,
        default=str,
    )
    digest = hashlib.sha256(text.encode())
    key = digest.hexdigest()[:16]
    _, _, name = info.name.rpartition("/")
    # The name is for people who look into the folder; the key identifies the card.
    model = re.sub(
        r"[^\w.-]+",
        "-",
        name,
        flags=re.ASCII,
    )
    return kept_folder("cards") / "economics" / f"{model[:60]}-{key}.json"


def _options(examinee: Examinee) -> dict[int, str]:
    """Return the moves on offer, each with its words."""
    return moves_to_choose(examinee.moves_bp or ())


class _Asking:
    """Asks an examinee; if its answers differ, it is asked each question ten times."""

    def __init__(self, examinee: Examinee, info: ModelInfo | None) -> None:
        self._examinee = examinee
        self._is_model = info is not None
        # Two answers show whether a player always answers the same.
        self._draws = 2

    async def move(self, question: GateQuestion, quarters: Quarters) -> Measured:
        """Return the examinee's move, measured from probabilities or as a mean of answers."""
        examinee = self._examinee
        shown = _shown(question, quarters, examinee.inflation_target)
        if self._is_model and examinee.decide:
            return await self._by_probabilities(shown, question.name, examinee.decide)
        answers: list[float] = []
        # Random numbers follow from the turn's number, so that each answer gets its own.
        first_turn = DRAWS * zlib.crc32(question.key.encode())
        while len(answers) < self._draws:
            turn = first_turn + len(answers)
            answer = await examinee.answer(shown, turn, question.name)
            answers.append(answer)
            # The player draws, so that all later questions are asked ten times too.
            if len(set(answers)) > 1:
                self._draws = DRAWS
        calls = len(answers) if self._is_model else 0
        return Measured(
            fmean(answers),
            f"{self._draws} answers to each",
            calls,
        )

    async def _by_probabilities(
        self,
        shown: Sequence[DatedEconomy],
        name: str,
        decide: Decide,
    ) -> Measured:
        """Return a model's mean move, from the moves' probabilities in each order of the moves."""
        examinee = self._examinee
        text = examinee.write(shown, name)
        options = _options(examinee)
        choice = await examinee.player.choose(
            text,
            options,
            samples=DRAWS,
            seed=1,
        )
        calls = len(choice.calls)
        # For "sample" the mean of all draws, which is more precise than one draw.
        move = choice.expectation
        if decide != "sample":
            move = choice.decided(decide, random.Random())
        return Measured(
            move,
            choice.method,
            calls,
        )


async def _measured(
    card: EconomicsCard,
    asking: _Asking,
    path: Path | None,
    progress: Callable[[str], None] | None,
) -> EconomicsCard:
    """Ask the questions that are left of a card, keep each answer if there is a path, and judge."""
    half = len(QUESTIONS) // 2
    # Of this session only, since the card may have been begun on another machine.
    seconds: list[float] = []
    for last in (half, len(QUESTIONS)):
        stage = range(last - half, last)
        card = await _with_stage(card, asking, path, progress, stage, seconds)
        response = card.response
        if response is None or response.outcome != "undecided":
            break
    if response is None:
        return _kept(
            path,
            card,
            outcome="fail",
            sentence=f"It gave no answer to {card.unanswered} of {len(card.moves)} questions.",
        )
    return _kept(
        path,
        card,
        outcome=response.outcome,
        sentence=f"{response.sentence} {response.stability}",
    )


async def _with_stage(
    card: EconomicsCard,
    asking: _Asking,
    path: Path | None,
    progress: Callable[[str], None] | None,
    stage: range,
    seconds: list[float],
) -> EconomicsCard:
    """Return a card with a stage's answers; the time of each question is added to ``seconds``."""
    quarters_of = situations(card.seed, room_at(card.inflation_target))
    questions = list(QUESTIONS.values())
    # A continued card has some answers already.
    left = [place for place in stage if questions[place].key not in card.moves]
    first = left[0] + 1 if left else stage.stop
    # A progress line, unless the caller reports the progress.
    line = progress_line(
        "question",
        number=first,
        last=stage.stop,
        enabled=progress is None,
    )
    async with line as advance:
        for place in left:
            question = questions[place]
            if progress is not None:
                time_left = _time_left(seconds, stage.stop - place)
                progress(f"question {place + 1} of {stage.stop}{time_left}")
            began = time.monotonic()
            move: float | None = None
            method = card.method
            calls = 0
            try:
                measured = await asking.move(question, quarters_of[question.pair])
            except LLMFailureException as failure:
                # A single question may have no answer. If the server is gone no question has one,
                # and the card can be continued later.
                if failure.reason in LASTING:
                    raise
            else:
                move = measured.move_bp / 100
                method = measured.method
                calls = measured.calls
            seconds.append(time.monotonic() - began)
            # Kept after each answer, which may take a minute on a slow machine.
            card = _kept(
                path,
                card,
                moves={**card.moves, question.key: move},
                method=method,
                calls=card.calls + calls,
            )
            advance(calls)
    return card


def _time_left(seconds: Sequence[float], questions: int) -> str:
    """Return in words how long so many questions will take; empty before one was asked."""
    if not seconds:
        return ""
    # Without the first, which may have waited for the model to load.
    measured = seconds[1:] or seconds
    time_left = duration(fmean(measured) * questions)
    return f", about {time_left} left"


def kept_economics_cards() -> list[EconomicsCard]:
    """Return the finished cards that are kept, the newest first."""
    files = kept_folder("cards").glob("economics/*.json")
    cards = map(_read, files)
    # A stopped card is continued when the same player is asked again.
    finished = [card for card in cards if card is not None and card.outcome]
    return sorted(
        finished,
        key=attrgetter("measured_at"),
        reverse=True,
    )


def _read(path: Path) -> EconomicsCard | None:
    """Return a kept card; None if it cannot be read, and is then measured anew."""
    with suppress(OSError, ValidationError):
        return EconomicsCard.model_validate_json(bounded_bytes(path, 2**26))
    return None


def _kept(
    path: Path | None,
    card: EconomicsCard,
    **changes: object,
) -> EconomicsCard:
    """Return a card with changes, and write it if there is a path.

    The file is written beside the old one and moved into place, so that a stopped program leaves
    one of the two whole.

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
        raise ConfigError(
            f"cannot keep the card in {path.parent}: {error.strerror}; name another folder in "
            "$LLMSIM_CARDS"
        ) from error
    return card
