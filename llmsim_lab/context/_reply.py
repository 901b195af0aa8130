"""What an agent answers, in the parts that a scenario's briefing asks for."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, create_model, model_validator

from llmsim_lab.errors import ConfigError
from llmsim_lab.types import Decision

PRIVATE = "ASSESSMENT"
"""The part that is the agent's own view: why it acts, which the others do not read."""

# At most 60 characters: what stands before a later colon is the beginning of a sentence.
_LABEL = re.compile(r"\s*([^:]{1,60}):\s*(.*)", re.DOTALL)


class AgentReply(Decision):
    """An agent's answer; ``reply_model`` derives one with a field for each part asked for.

    Attributes:
        labels: the parts' names by field, in the order asked for.
    """

    labels: ClassVar[dict[str, str]] = {}

    @classmethod
    def read_by_others(cls) -> list[str]:
        """Return the fields that the others read: all but the assessment."""
        public = [name for name, label in cls.labels.items() if label != PRIVATE]
        # A format that asks for an assessment only: then that is public.
        return public or list(cls.labels)

    @property
    def public(self) -> str:
        """What the others read, each part under its label, without spaces around it."""
        lines = []
        for name in self.read_by_others():
            text = getattr(self, name).strip()
            if text:
                lines.append(f"{self.labels[name]}: {text}")
        return "\n".join(lines)

    @property
    def reasoning(self) -> str:
        """The assessment; where none was asked for, the whole answer."""
        for name, label in self.labels.items():
            if label == PRIVATE:
                assessment: str = getattr(self, name).strip()
                return assessment or self.public
        return self.public

    confidence: ClassVar[None] = None
    """Not asked for."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        # Silence is for muted agents and failed answers; a model that answers it is asked again.
        if not self.public:
            raise ValueError(f"it says nothing in {' or '.join(self.read_by_others())}")
        return self

    @classmethod
    def saying(cls, words: str) -> AgentReply:
        """Return an answer of these public words, in the first part that is public.

        Without words it is silence, which no model may answer.
        """
        values: dict[str, Any] = dict.fromkeys(cls.labels, "")
        values[cls.read_by_others()[0]] = words
        # Unchecked: silence, the fallback of a failed answer, would not pass.
        return cls.model_construct(None, **values)


# Cached, since clients cache schema and validator by class: a class made for each call would cost
# more than the prompt.
@lru_cache(maxsize=64)
def reply_model(response_format: tuple[str, ...]) -> type[AgentReply]:
    """Return the model of an answer; one for each format.

    Args:
        response_format: a briefing's, such as ``ACTIONS: What you do``. An empty one asks for one
            text.

    Raises:
        ConfigError: two parts have the same label.
    """
    labels: dict[str, str] = {}
    fields: dict[str, Any] = {}
    if not response_format:
        response_format = ("RESPONSE: What you say and do",)
    for place, line in enumerate(response_format, start=1):
        # A line without a colon is all description.
        label = f"PART {place}"
        description = line
        labelled = _LABEL.fullmatch(line)
        if labelled:
            label = labelled[1].strip()
            description = labelled[2]
        words = re.sub(r"\W+", "_", label.lower())
        # A label of signs alone leaves nothing.
        name = words.strip("_") or f"part_{place}"
        # A label such as "Copy" or "Public" would hide what every reply has.
        if name[0].isdigit() or hasattr(AgentReply, name):
            name = f"part_{name}"
        if name in labels:
            raise ConfigError(f"response_format: two parts are called {label!r}; rename one")
        # A label with other characters than letters and digits is not an identifier, so the field
        # has a name made of it, and the class keeps the label.
        labels[name] = label
        field = Field(description=description.strip() or label)
        fields[name] = (Annotated[str, field], ...)
    model: type[AgentReply] = create_model(
        "AgentReply",
        __base__=AgentReply,
        **fields,
    )
    model.labels = labels
    return model
