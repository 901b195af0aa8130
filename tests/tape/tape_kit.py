"""For the tape's tests: a model whose answers follow from the requests, and comparisons."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from builders import in_words, played, policy, rate_update, verdict

from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend, Tape
from llmsim_lab.run import Answer
from llmsim_lab.simulation import Simulation, SimulationConfig
from llmsim_lab.types import Attempt, ChatReply, ChatRequest, ModelInfo

__all__ = ["HashBackend", "asked", "bytes_in", "content", "hash_client", "identity"]
__all__ += ["make_recorded", "repeated", "steady_config", "timeless"]


def identity(request: ChatRequest) -> str:
    """Return what tells a request from others, short; the same in any process.

    The seed that follows from the run's is not part of a request on a tape.
    """
    options = {name: value for name, value in request.options.items() if name != "seed"}
    values = [
        request.model,
        [[message.role, message.content] for message in request.messages],
        request.schema,
        options,
        repr(request.site),
        request.attempt,
    ]
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:16]


class HashBackend:
    """A model whose answer, delay and faults follow from the request alone.

    Args:
        delay_s: longest delay of an answer, seconds.
        faulty: whether some first attempts time out, are rejected or are answered with nonsense.
        before_answer: called with each request once its answer is fixed, right before it is given.
        answer: gives the answer to a request, and a number that follows from it; by default that
            of the economy's model.
        digest: of the weights it pretends to have.
        name: of the model.
    """

    def __init__(
        self,
        *,
        delay_s: float = 0.0,
        faulty: bool = False,
        before_answer: Callable[[ChatRequest], object] | None = None,
        answer: Callable[[ChatRequest, int], Any] | None = None,
        digest: str | None = "d1",
        name: str = "hash",
    ) -> None:
        self.requests: list[ChatRequest] = []
        self._delay_s = delay_s
        self._faulty = faulty
        self._before_answer = before_answer
        self._answer = answer or _answer
        self._info = ModelInfo(name=name, backend="hash", digest=digest, version="1.0")

    async def chat(self, request: ChatRequest) -> ChatReply:
        self.requests.append(request)
        drawn = f"{identity(request)} {request.options.get('seed')}"
        number = int(hashlib.sha256(drawn.encode()).hexdigest()[:16], 16)
        await asyncio.sleep(self._delay_s * (number % 97) / 97)
        if self._before_answer is not None:
            self._before_answer(request)
        if self._faulty and request.attempt == 1:
            if number % 7 == 0:
                raise TimeoutError
            if number % 7 == 1:
                return ChatReply(text=f"no JSON at all, {number}")
            if number % 7 == 2:
                raise ConnectionError("refused")
        said = self._answer(request, number)
        if isinstance(said, ChatReply):
            return said
        return ChatReply(
            text=json.dumps(said) if isinstance(said, dict) else said.model_dump_json(),
            prompt_tokens=100 + number % 50,
            reply_tokens=10 + number % 5,
        )

    async def model_info(self) -> ModelInfo:
        return self._info

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""


def _answer(request: ChatRequest, number: int) -> Any:
    assert request.site is not None
    confidence = (number % 21) / 20
    reasoning = f"Because of {number % 100_000}; “naïve”, <b>µ</b>."
    if request.site.component == "validator":
        return verdict(number % 5 != 0, reasoning=reasoning, confidence=confidence)
    if request.site.component == "engine":
        assert request.schema is not None
        offered = request.schema["properties"]["new_interest_rate"]["enum"]
        return rate_update(offered[number % len(offered)], reasoning=reasoning)
    return policy(
        f"Change the interest rate by {number % 9 / 4 - 1:g} points",
        reasoning=reasoning,
        confidence=confidence,
    )


def hash_client(backend: HashBackend | None = None, **config: Any) -> LLMClient:
    config.setdefault("retry_wait_s", 0)
    return LLMClient(LLMConfig(**{"model": "hash"} | config), backend or HashBackend())


def steady_config(**fields: Any) -> SimulationConfig:
    """Return a config: two nations on a model, one on a rule, seeded shocks, an intervention."""
    values: dict[str, Any] = {
        "name": "steady",
        "seed": 11,
        "start_at": "1979Q3",
        "nations": ["Aland", "Borduria", "Syldavia"],
        "players": {"Syldavia": "rule"},
        "economy": {"shock_scale": 1.0},
        "turns": 5,
        "interventions": [
            {"turn": 2, "set": {"inflation": 9.5}},
            {"turn": 2, "set": {"shock.supply": 1.25}, "note": "oil"},
        ],
    }
    return in_words(**(values | fields))


def make_recorded(path: Path, *, turns: int = 3, faulty: bool = False, **config: Any) -> Simulation:
    """Return a finished run on a new tape."""
    client = hash_client(HashBackend(faulty=faulty))
    return played(Simulation(steady_config(**config), llm_client=client, tape=path), turns)


def asked(simulation: Simulation) -> list[ChatRequest]:
    """Return what a run's own backend was asked."""
    assert simulation.llm_client is not None
    backend = simulation.llm_client.backend
    assert isinstance(backend, HashBackend | ScriptedBackend)
    return backend.requests


def content(simulation: Simulation) -> list[Any]:
    """Return all that a run led to, turn by turn, without the seconds it took."""
    return [
        (
            turn.number,
            turn.state,
            turn.interventions,
            (turn.became, turn.noted, sorted(turn.story)),
            sorted(map(_said, turn.answers), key=repr),
        )
        for turn in simulation.turns
    ]


def _said(answer: Answer) -> Any:
    attempts = [[timeless(one) for one in call.history] for call in answer.calls]
    return (answer.component, answer.player, replace(answer, calls=()), answer.fields, attempts)


def timeless(attempt: Attempt) -> Attempt:
    return replace(attempt, seconds=0.0)


def bytes_in(folder: Path) -> dict[str, str]:
    """Return each file of a folder with the digest of its bytes."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
        if path.is_file()
    }


def repeated(tape: Tape, run: int) -> list[str]:
    """Return the requests that were answered more than once in a run."""
    counts = Counter(
        identity(call.attempt.request)
        for call in tape.calls(run, forgotten=True)
        if call.attempt.reason != "cancelled"  # as those are that an interruption breaks off
    )
    return [request for request, count in counts.items() if count > 1]
