"""What an agent answers: the parts that a scenario's response format names, one text each."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated, Any, ClassVar

from pydantic import Field, create_model

from llmsim_lab.errors import ConfigError
from llmsim_lab.values import Decision

__all__ = ["PRIVATE", "AgentReply", "reply_model"]

PRIVATE = "ASSESSMENT"
"""The part that is the agent's own view: why it acts, not something that others hear."""

_LABEL = re.compile(r"\s*([^:]{1,60}):\s*(.*)", re.DOTALL)


class AgentReply(Decision):
    """An agent's answer; ``reply_model`` derives one with a field for each part asked for.

    Attributes:
        labels: the parts' names by field, in the order asked for.
    """

    labels: ClassVar[dict[str, str]] = {}

    @property
    def parts(self) -> dict[str, str]:
        """What was said under each label, spaces around it taken off."""
        return {label: getattr(self, field).strip() for field, label in self.labels.items()}

    @property
    def public(self) -> str:
        """What others hear: all but the assessment, each part under its label."""
        parts = self.parts
        heard = {label: text for label, text in parts.items() if label != PRIVATE} or parts
        return "\n".join(f"{label}: {text}" for label, text in heard.items() if text)

    @property
    def reasoning(self) -> str:
        """Why: the assessment, or all that was said where none was asked for."""
        return self.parts.get(PRIVATE) or self.public

    @property
    def confidence(self) -> float | None:
        """None: nobody asks for it."""
        return None

    def problem(self) -> str | None:
        """Say what is wrong with the answer, or None: one that nobody would hear is none."""
        if self.public:
            return None
        wanted = [field for field, label in self.labels.items() if label != PRIVATE]
        return f"it says nothing in {' or '.join(wanted or self.labels)}"


@lru_cache(maxsize=64)
def reply_model(response_format: tuple[str, ...]) -> type[AgentReply]:
    """Return the model of an answer, for ``LLMClient.call_with_retry``; one for each format.

    Args:
        response_format: a briefing's, such as ``ACTIONS: What you do``. An empty one asks for one
            text.

    Raises:
        ConfigError: two parts have the same label.
    """
    labels: dict[str, str] = {}
    fields: dict[str, Any] = {}
    for place, line in enumerate(response_format or ("RESPONSE: What you say and do",), 1):
        found = _LABEL.fullmatch(line)
        label, what = (found[1].strip(), found[2]) if found else (f"PART {place}", line)
        name = re.sub(r"\W+", "_", label.lower()).strip("_") or f"part_{place}"
        if name[0].isdigit() or hasattr(AgentReply, name):
            name = f"part_{name}"
        if name in labels:
            raise ConfigError(f"response_format: two parts are called {label!r}; rename one")
        labels[name] = label
        fields[name] = (Annotated[str, Field(description=what.strip() or label)], ...)
    model: type[AgentReply] = create_model("AgentReply", __base__=AgentReply, **fields)
    model.labels = labels
    return model
