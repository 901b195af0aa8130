"""What the economic gate said of a run's model, from the cards that it keeps.

``study`` measures the cards. Of a finished one only the verdicts at its end are read here, so that
a run can say what is known of its model without the gate's situations and statistics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from llmsim_lab._util.files import economics_folder
from llmsim_lab._util.text import clip
from llmsim_lab.llm._choose import Decide

GATE_VERSION = 1
"""Cards of another version are measured anew. Raise it with any change of what the gate asks."""

Told = Literal["economist", "thin"]
Verdict = Literal["pass", "fail", "undecided"]
AskedHow = tuple[Told, Decide]
"""What a model is told, and how its answer is taken; ``sample`` where it writes its decision."""


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


def kept_verdicts(told: Iterable[Told]) -> list[KeptVerdicts]:
    """Return the verdicts of finished cards, the newest first.

    Args:
        told: only of models that were told this.
    """
    wanted, found = set(told), []
    for path in economics_folder().glob("*.json"):
        try:
            card = KeptVerdicts.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            continue  # not finished
        if card.told in wanted and card.version_of_gate == GATE_VERSION:
            found.append(card)
    return sorted(found, key=lambda card: card.measured_at, reverse=True)


def gate_notes(model: Mapping[str, Any], asked: Iterable[AskedHow]) -> list[str]:
    """Return a sentence on a model that did not pass the economic gate; none if it did.

    There is none either where no card is kept.

    Args:
        model: its ``name`` and ``digest``, as a manifest has them.
        asked: how a run asks it.
    """
    asked = sorted(set(asked))
    name, who = clip(str(model.get("name")), 80), model.get("digest") or model.get("name")
    kept = [card for card in kept_verdicts(told for told, _ in asked) if _who(card) == who]
    notes = []
    for told, decide in asked:
        card = next((one for one in kept if one.told == told and decide in one.verdicts), None)
        if card is None or card.verdicts[decide].outcome == "pass":
            continue
        how = ", told four indicators," if told == "thin" else ""
        verdict = card.verdicts[decide]
        notes.append(
            f"{name}{how} failed the economic gate: {clip(verdict.words, 200)}."
            if verdict.outcome == "fail"
            else f"{name}{how} is undecided at the economic gate."
        )
    return notes


def _who(card: KeptVerdicts) -> str:
    return card.digest or card.model
