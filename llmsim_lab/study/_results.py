"""What an experiment says: its samples as a frame, its differences in words, the answers given."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import combinations, product
from statistics import fmean
from typing import TYPE_CHECKING, Any

from llmsim_lab._util.text import number
from llmsim_lab.experiments._bench import Bench, Sample
from llmsim_lab.experiments._statistics import Difference, Noise
from llmsim_lab.llm._extract import InvalidReply, parse_reply
from llmsim_lab.models import Action, StateUpdateDecision
from llmsim_lab.simulation._simulation import Turn
from llmsim_lab.types import LLMReasoningChain

if TYPE_CHECKING:
    import pandas as pd

UNITS: dict[str, tuple[str, str]] = {
    "interest_rate": ("resulting interest rate", "points"),
    "confidence": ("confidence", "of 1"),
    "accepted": ("acceptance", "of 1"),
}
"""Each outcome's name for people, and the unit of its differences."""

_SMALLEST_MOVE = 0.005
"""Percentage points; a smaller change is not a move, since rates are on a grid of hundredths."""

_ALPHA = 0.05
"""The limit of p-values: 1 minus the intervals' level."""

_WORST_FIRST = ("failed", "fallback", "repaired", "ok")

Place = tuple[str, int, int]
"""Of a sample: variant, turn, and number."""

COLUMNS = (
    "variant",
    "turn",
    "sample",
    "seed",
    "agent",
    "decision",
    "reasoning",
    "confidence",
    "status",
    "accepted",
    "rate_before",
    "interest_rate",
    "move",
    "calls",
    "tokens",
    "seconds",
    "completed",
    "detail",
)


def verdict(difference: Difference, reference: Noise, variant: Noise) -> str:
    """Return a difference in words: interval, p-value, number of pairs, noise floors.

    Args:
        difference: of the two variants.
        reference: the noise of the reference.
        variant: the noise of the other one.
    """
    name, unit = UNITS[difference.outcome]
    what = f"{name}, {difference.variant} minus {difference.reference}"
    pairs = "1 pair" if difference.pairs == 1 else f"{difference.pairs} pairs"
    turns = "1 turn" if difference.turns == 1 else f"{difference.turns} turns"
    used = f"{pairs} of {turns} used, {difference.failed} failed"
    if difference.estimate is None or difference.low is None or difference.high is None:
        return f"{what}: no number ({difference.note}); {used}."
    low, high = difference.low, difference.high
    p_values = ""
    if difference.p_value is not None and low != high:
        p_values = f", p {_p(difference.p_value)}"
        if difference.p_holm not in (None, difference.p_value):
            p_values += f", for several variants (Holm) p {_p(difference.p_holm)}"
    text = (
        f"{what}: {difference.estimate:+.2f} {unit}, 95 % interval {low:+.2f} to {high:+.2f}"
        f"{p_values} ({difference.method}); {used}."
    )
    if low == high:
        text += " There is no variation at all between the pairs."
    elif low <= 0 <= high:
        text += " No evidence of a difference."
    elif difference.p_holm is not None and difference.p_holm >= _ALPHA:
        text += (
            " Evidence of a difference by itself, but not once adjusted for the number of variants "
            "compared."
        )
    else:
        text += " Evidence of a difference."
    if reference.floor is None or variant.floor is None:
        text += " The noise floor is not known: it takes two samples a turn."
    else:
        text += (
            f" Two single samples of one prompt at one state differ by {number(reference.floor)} "
            f"and {number(variant.floor)} {unit} on average; that is about one answer, not about "
            "this mean."
        )
    return f"{text} Note: {difference.note}." if difference.note else text


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"= {value:.3f}"


def came_off(sample: Sample, played: Turn) -> bool:
    """Return True if a sample was played to its end; after a failure the turn is not made."""
    return played.state.turn == sample.turn


def samples_frame(bench: Bench, results: Iterable[tuple[Sample, Turn]]) -> pd.DataFrame:
    """Return one row a decision of the component; ``PromptExperiment.frame`` has the columns."""
    import pandas as pd

    rows = [row for sample, played in results for row in _sample_rows(bench, sample, played)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _sample_rows(bench: Bench, sample: Sample, played: Turn) -> list[dict[str, Any]]:
    done = came_off(sample, played)
    before = bench.before(sample.turn).global_state.interest_rate
    rate = math.nan  # not the old rate, which would count as a decision to hold
    if done and not (bench.only_component and bench.stage != "engine"):
        rate = played.state.global_state.interest_rate
    common = {
        "variant": sample.variant,
        "turn": sample.turn,
        "sample": sample.sample,
        "seed": sample.seed,
        "rate_before": before,
        "interest_rate": rate,
        "move": rate - before,
        "completed": done,
    }
    failures = (
        # A failure of the client's begins with the component already.
        chain.reasoning
        if chain.reasoning.startswith(f"{chain.component}:")
        else f"{chain.component}: {chain.reasoning}"
        for chain in played.chains
        if chain.status == "failed"
    )
    detail = "; ".join(dict.fromkeys(failures))
    # An engine's sample has all of a turn's actions in one row, others have a row an agent.
    if bench.stage == "engine":
        names = ", ".join(bench.subjects(sample.turn))
        parts: list[tuple[str, list[LLMReasoningChain], Action | None]] = [
            (names, list(played.chains), None)
        ]
    else:
        actions = {action.agent_name: action for action in played.actions}
        parts = [
            (name, [chain for chain in played.chains if chain.agent == name], actions[name])
            for name in bench.subjects(sample.turn)
        ]
    return [
        common
        | {"agent": name, "detail": detail}
        | _decision(bench, chains, action, done=done)
        | {
            "calls": sum(chain.call.attempts for chain in chains if chain.call),
            "tokens": sum(chain.call.tokens for chain in chains if chain.call),
            "seconds": sum(chain.call.seconds for chain in chains if chain.call),
        }
        for name, chains, action in parts
    ]


def _decision(
    bench: Bench, chains: list[LLMReasoningChain], action: Action | None, *, done: bool
) -> dict[str, Any]:
    """Return what the component decided, as far as there is something."""
    own = [chain for chain in chains if chain.component == bench.stage]
    # A call that failed has no decision; one that the agent's own check rejected is a decision.
    decided = [chain for chain in own if done or chain.status != "failed"]
    confidences = [chain.confidence for chain in decided if chain.confidence is not None]
    statuses = [chain.status for chain in own]
    worst = min(statuses, key=_WORST_FIRST.index, default="ok")
    judged = action is not None and action.validation_result is not None
    decision = ""
    if decided and bench.stage == "agent" and action is not None:
        decision = action.action_string
    elif decided and bench.stage == "validator" and action is not None:
        decision = "accept" if action.validated else "reject"
    elif decided:
        decision = ", ".join(_named_rate(chain) for chain in decided)
    return {
        "decision": decision,
        "reasoning": " ".join(chain.reasoning for chain in decided),
        "confidence": fmean(confidences) if confidences else math.nan,
        "status": worst if done else "failed",
        "accepted": action.validated if action is not None and judged and done else None,
    }


def _named_rate(chain: LLMReasoningChain) -> str:
    """Return the rate that an engine's reply names, as far as it can be read."""
    if chain.call and chain.call.reply:
        with suppress(InvalidReply):
            decision = parse_reply(chain.call.reply.text, StateUpdateDecision, None)
            return f"{number(decision.new_interest_rate)}%"
    return chain.reasoning


def direction(move: float) -> str | None:
    """Return which way a rate went: ``raise``, ``hold`` or ``lower``; None where it is NaN."""
    if math.isnan(move):
        return None
    if abs(move) < _SMALLEST_MOVE:
        return "hold"
    return "raise" if move > 0 else "lower"


def directions(frame: pd.DataFrame, variants: Sequence[str]) -> pd.DataFrame:
    """Return each variant's shares of moves: ``raise``, ``hold``, ``lower``; ``used``, ``failed``.

    One row a variant. Shares are of the samples used; failed ones are only counted.
    """
    import pandas as pd

    moves = _moves(frame)
    rows = []
    for variant in variants:
        known = [move for (name, _, _), move in moves.items() if name == variant and move]
        counts = Counter(known)
        shares = {
            name: counts[name] / len(known) if known else math.nan
            for name in ("raise", "hold", "lower")
        }
        failed = frame[(frame["variant"] == variant) & ~frame["completed"].astype(bool)]
        # A sample has a row an agent, and fails once.
        count = len(failed[["turn", "sample"]].drop_duplicates())
        rows.append({"variant": variant, **shares, "used": len(known), "failed": count})
    return pd.DataFrame(rows)


def agreement(frame: pd.DataFrame, variants: Sequence[str]) -> pd.DataFrame:
    """Return how often two samples at the same turn go the same way, and say the same.

    One row a comparison. Each variant is compared with the first twice: over the pairs of the same
    seed, and over the pairs of different seeds. Each is also compared with itself, over all pairs
    of its samples at a turn, which have different seeds: the floor. Compare the floor only with
    rows of different seeds, since a shared seed makes samples alike, whatever the prompts;
    agreement below the floor may be due to the prompt.

    Columns: ``of``; ``seeds``, ``same`` or ``different``; ``same_direction`` and ``same_answer``
    (shares); ``pairs``, how many were used, and ``failed``, how many had a failed sample.
    """
    import pandas as pd

    moves, texts = _moves(frame), _texts(frame)
    there: dict[tuple[str, int], list[Place]] = {}
    for place in texts:
        there.setdefault(place[:2], []).append(place)
    turns = dict.fromkeys(turn for _, turn in there)
    rows = []
    for variant in variants[1:]:
        both = [
            pair
            for turn in turns
            for pair in product(there.get((variants[0], turn), []), there.get((variant, turn), []))
        ]
        of = f"{variants[0]} and {variant}"
        same = [(a, b) for a, b in both if a[2] == b[2]]
        other = [(a, b) for a, b in both if a[2] != b[2]]
        rows.append({"of": of, "seeds": "same", **_shares(same, moves, texts)})
        rows.append({"of": of, "seeds": "different", **_shares(other, moves, texts)})
    for variant in variants:
        pairs = [p for turn in turns for p in combinations(there.get((variant, turn), []), 2)]
        of = f"{variant} and itself"
        rows.append({"of": of, "seeds": "different", **_shares(pairs, moves, texts)})
    return pd.DataFrame(rows)


def _shares(
    pairs: Sequence[tuple[Place, Place]],
    moves: dict[Place, str | None],
    texts: dict[Place, str | None],
) -> dict[str, float | int]:
    def share(of: dict[Place, str | None]) -> float:
        known = [(of[a], of[b]) for a, b in pairs if of[a] is not None and of[b] is not None]
        return sum(a == b for a, b in known) / len(known) if known else math.nan

    whole = sum(texts[a] is not None and texts[b] is not None for a, b in pairs)
    return {
        "same_direction": share(moves),
        "same_answer": share(texts),
        "pairs": whole,
        "failed": len(pairs) - whole,
    }


def common_answers(frame: pd.DataFrame, *, most: int = 5) -> pd.DataFrame:
    """Return each variant's commonest decisions: ``variant``, ``decision``, ``count``, ``share``.

    Answers that differ only in spaces or in capital letters count as the same. Shares are of the
    decisions that the variant gave; failed ones are in a row with the decision ``(failed)``.

    Args:
        frame: the results.
        most: of each variant.
    """
    import pandas as pd

    rows = []
    for variant in dict.fromkeys(frame["variant"]):
        own = frame[frame["variant"] == variant]
        counts = Counter(_plain(text) for text in own["decision"] if text)
        total = counts.total()
        rows += [
            {"variant": variant, "decision": text, "count": count, "share": count / total}
            for text, count in counts.most_common(most)
        ]
        if silent := len(own) - total:
            failed = {"decision": "(failed)", "count": silent, "share": math.nan}
            rows.append({"variant": variant, **failed})
    return pd.DataFrame(rows, columns=["variant", "decision", "count", "share"])


def _plain(text: str) -> str:
    return " ".join(text.split()).lower()


def _moves(frame: pd.DataFrame) -> dict[Place, str | None]:
    keys = zip(frame["variant"], frame["turn"], frame["sample"], strict=True)
    return {key: direction(move) for key, move in zip(keys, frame["move"], strict=True)}


def _texts(frame: pd.DataFrame) -> dict[Place, str | None]:
    """Return what was decided in each sample, all agents together; None where one failed."""
    texts: dict[Place, str | None] = {}
    keys = zip(frame["variant"], frame["turn"], frame["sample"], strict=True)
    for key, text in zip(keys, frame["decision"], strict=True):
        before = texts.get(key, "")
        texts[key] = f"{before}\n{_plain(text)}" if text and before is not None else None
    return texts
