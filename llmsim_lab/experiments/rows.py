"""What came of samples as a tidy data frame."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from llmsim_lab.experiments.bench import Bench, Sample
from llmsim_lab.models import Action, LLMReasoningChain
from llmsim_lab.simulation import Turn
from llmsim_lab.text import number

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COLUMNS", "came_off", "samples_frame"]

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


def came_off(sample: Sample, played: Turn) -> bool:
    """Say whether a sample was played to its end: a model that failed leaves the turn undone."""
    return played.state.turn == sample.turn


def samples_frame(bench: Bench, results: Iterable[tuple[Sample, Turn]]) -> pd.DataFrame:
    """Return one row a decision of the component under test; a sample that failed has rows too.

    Columns: ``variant``, ``turn``, ``sample``, ``seed``; ``agent``, who decided, or whose action
    was judged; ``decision``, ``reasoning``, ``confidence``; ``status``, ``failed`` where the model
    gave no usable answer; ``accepted``, whether the validator took the action, None where
    nobody asked it; ``rate_before``, ``interest_rate``, percent per year, and ``move``, percentage
    points, of the turn as a whole; ``calls``, ``tokens``, ``seconds`` of that agent's part of the
    turn, retries included; ``completed``, whether the sample was played to its end; ``detail``,
    what went wrong.
    """
    import pandas as pd

    rows = [row for sample, played in results for row in _rows(bench, sample, played)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _rows(bench: Bench, sample: Sample, played: Turn) -> list[dict[str, Any]]:
    done = came_off(sample, played)
    before = bench.before(sample.turn).global_state.interest_rate
    rate = math.nan
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
    faults = [chain for chain in played.chains if chain.status == "failed"]
    detail = "; ".join(dict.fromkeys(map(_what_failed, faults)))
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
        | _cost(chains)
        for name, chains, action in parts
    ]


def _what_failed(chain: LLMReasoningChain) -> str:
    named = chain.reasoning.startswith(f"{chain.component}:")
    return chain.reasoning if named else f"{chain.component}: {chain.reasoning}"


def _decision(
    bench: Bench, chains: list[LLMReasoningChain], action: Action | None, *, done: bool
) -> dict[str, Any]:
    """Return what the component said, as far as it said something."""
    own = [chain for chain in chains if chain.component == bench.stage]
    # A call that failed has no decision; a decision that its agent refused is one all the same.
    said = [chain for chain in own if done or chain.status != "failed"]
    sure = [chain.confidence for chain in said if chain.confidence is not None]
    judged = action is not None and action.validation_result is not None
    values: dict[str, Any] = {
        "decision": "",
        "reasoning": " ".join(chain.reasoning for chain in said),
        "confidence": math.fsum(sure) / len(sure) if sure else math.nan,
        "status": _worst([chain.status for chain in own]) if done else "failed",
        "accepted": action.validated if action is not None and judged and done else None,
    }
    if said and bench.stage == "agent" and action is not None:
        values["decision"] = action.action_string
    elif said and bench.stage == "validator" and action is not None:
        values["decision"] = "accept" if action.validated else "reject"
    elif said:
        values["decision"] = ", ".join(_named_rate(chain) for chain in said)
    return values


def _named_rate(chain: LLMReasoningChain) -> str:
    """Return the rate that an engine's reply names, as far as it can be read."""
    from llmsim_lab.llm._extract import InvalidReply, parse_reply
    from llmsim_lab.models import StateUpdateDecision

    reply = chain.call.reply if chain.call else None
    if reply is None:
        return chain.reasoning
    try:
        decision = parse_reply(reply.text, StateUpdateDecision, None)
    except InvalidReply:
        return chain.reasoning
    return f"{number(decision.new_interest_rate)}%"


def _worst(statuses: list[str]) -> str:
    order = ("failed", "fallback", "repaired", "ok")
    return min(statuses, key=order.index, default="ok")


def _cost(chains: list[LLMReasoningChain]) -> dict[str, Any]:
    calls = [chain.call for chain in chains if chain.call]
    return {
        "calls": sum(call.attempts for call in calls),
        "tokens": sum(call.tokens for call in calls),
        "seconds": sum(call.seconds for call in calls),
    }
