"""Answer with the replies of earlier tapes, where only what stands beside a run has changed.

A tape names the code that it was recorded with. After a change of a template that asks nothing
else, a new recording may have the old one's replies: ``record_templates.py --own-replies`` and
``record_people.py --own-replies`` record with them, and no model is asked. A question that is not
on an earlier tape, or a reply that is left over, is an error: then the model has to be asked anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from llmsim_lab import LLMClient, LLMConfig, ScriptedBackend
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import ChatReply, ChatRequest, Tape
from llmsim_lab.llm.asked_again import sampling_seeds
from llmsim_lab.types import ModelInfo


class OwnReplies(ScriptedBackend):
    """Stands for the model of earlier tapes and gives each of its replies once."""

    def __init__(self, tapes: Iterable[Path]) -> None:
        super().__init__(self._reply_to)
        self.left: list[tuple[ChatRequest, ChatReply]] = []
        for path in tapes:
            tape = Tape(path, read_only=True)
            [info] = tape.runs()
            self.config = LLMConfig.model_validate(info.manifest["llm"])
            self._info = ModelInfo(**info.manifest["model"])
            calls = tape.calls(info.id)
            # A tape leaves out the seeds that follow from the run's.
            seeds = sampling_seeds(info, calls)
            for call in calls:
                request = call.attempt.request
                options = {**request.options, "seed": seeds[call.id]}
                if call.attempt.reply is not None:
                    self.left.append((replace(request, options=options), call.attempt.reply))

    def _reply_to(self, request: ChatRequest) -> ChatReply:
        for number, (recorded, reply) in enumerate(self.left):
            if recorded == request:
                del self.left[number]
                return reply
        raise ConfigError(f"{request.site} asks what is on no earlier tape: ask the model anew")

    async def model_info(self) -> ModelInfo:
        """Return what the tapes say of their model."""
        return self._info

    def client(self) -> LLMClient:
        """Return a client with the settings of the tapes."""
        return LLMClient(self.config, self)

    def check_all_used(self) -> None:
        """Raise ConfigError if replies are left over."""
        if self.left:
            raise ConfigError(f"{len(self.left)} recorded replies were not asked for")
