"""What all prompts of a scenario say in the same words: its clock, the question, the form asked."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from llmsim_lab.settings import Settings

__all__ = ["Briefing"]

Line = Annotated[str, Field(min_length=1)]


class Briefing(Settings):
    """The wording around the state.

    Attributes:
        moment: what stands in the situation's heading; ``{step}`` is the step's number.
        question: what the agent is to decide.
        considerations: what it should think of, one line each.
        response_format: the parts of an answer, numbered in the prompt.
    """

    moment: Line = "Day {step} of crisis"
    question: Line = "Based on this situation, what actions do you take?"
    considerations: tuple[Line, ...] = (
        "Military posture adjustments",
        "Diplomatic communications (to whom? saying what?)",
        "Public statements",
        "Requests to allies",
    )
    response_format: tuple[Line, ...] = (
        "ASSESSMENT: Your read of the current situation (2-3 sentences)",
        "ACTIONS: Specific decisions this turn",
        "COMMUNICATIONS: Any messages to other parties",
    )

    @field_validator("moment")
    @classmethod
    def _only_the_step(cls, moment: str) -> str:
        rest = moment.replace("{step}", "")
        if "{" in rest or "}" in rest:
            raise ValueError("moment has one slot, {step}, and no other braces")
        return moment

    @property
    def decision(self) -> str:
        """The question, and what to consider."""
        if not self.considerations:
            return self.question
        return "\n".join(
            [self.question, "", "Consider:", *[f"- {line}" for line in self.considerations]]
        )

    @property
    def form(self) -> str:
        """How to answer."""
        numbered = [f"{place}. {line}" for place, line in enumerate(self.response_format, 1)]
        return "\n".join(["Structure your response as:", *numbered]) if numbered else ""
