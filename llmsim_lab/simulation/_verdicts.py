"""What the economic gate said of a run's model, from the cards that it keeps.

``study`` measures the cards. Of a finished one only the verdicts at its end are read here, so that
a run can say what is known of its model without the gate's situations and statistics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from llmsim_lab._util.files import economics_folder
from llmsim_lab._util.text import clip
from llmsim_lab.llm._choose import Decide

GATE_VERSION = 1
"""Cards of another version are measured anew. Raise it with any change of what the gate asks."""

Told = Literal["economist", "thin"]
Verdict = Literal["pass", "fail", "undecided"]


class GateVerdict(BaseModel):
    """Whether a model passed, in one way of deciding, and why."""

    model_config = ConfigDict(frozen=True)

    outcome: Verdict
    words: str


class KeptVerdicts(BaseModel):
    """What is read of a finished card."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    model: str
    digest: str | None = None
    told: Told
    measured_at: AwareDatetime
    version_of_gate: int
    verdicts: dict[Decide, GateVerdict]


def kept_verdicts() -> list[KeptVerdicts]:
    """Return the verdicts of finished cards, the newest first."""
    found = []
    for path in economics_folder().glob("*.json"):
        try:
            card = KeptVerdicts.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            continue  # not finished
        if card.version_of_gate == GATE_VERSION:
            found.append(card)
    return sorted(found, key=lambda card: card.measured_at, reverse=True)


def gate_notes(model: Mapping[str, Any], told: Told, decide: Decide | None) -> list[str]:
    """Return a sentence on a model that did not pass the economic gate; none if it did.

    There is none either where no card is kept.

    Args:
        model: its ``name`` and ``digest``, as a manifest has them.
        told: what a run tells it.
        decide: how its answer is taken; None where it writes its decision.
    """
    how, who = decide or "sample", model.get("digest") or model.get("name")
    for card in kept_verdicts():
        if card.told == told and (card.digest or card.model) == who and how in card.verdicts:
            verdict = card.verdicts[how]
            name = clip(str(model.get("name")), 80) + ", told four indicators," * (told == "thin")
            if verdict.outcome == "fail":
                return [f"{name} failed the economic gate: {clip(verdict.words, 200)}."]
            undecided = verdict.outcome == "undecided"
            return [f"{name} is undecided at the economic gate."] if undecided else []
    return []
