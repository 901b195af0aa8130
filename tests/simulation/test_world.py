"""The economic world as a turn: equal to what is recorded, and every seat can be taken."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from llmsim_lab.assistant import FunctionTools, ToolUsingNationAgent
from llmsim_lab.economy import load_us_macro
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.prompts import Prompt
from llmsim_lab.run._records import llm_config_of, prompts_of
from llmsim_lab.simulation import SimulationConfig
from llmsim_lab.simulation._world import Economics
from llmsim_lab.types import ChatReply, ChatRequest

TAPES = Path(__file__).parents[2] / "data" / "tapes"
FIGURES = (
    *("interest_rate", "inflation", "output_gap", "unemployment", "gdp_growth"),
    *("total_economic_value", "lags"),
)


# --- answers from what is recorded ----------------------------------------------------------------


@dataclass
class Recorded:
    """Answers as a run on a tape: by turn, attempt and the text of every message."""

    name: str
    run: int
    max_top_logprobs: int = 100
    schemas: int = 0
    known: dict[Any, list[Any]] = field(default_factory=lambda: defaultdict(list))
    asked: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tape = Tape(TAPES / self.name, read_only=True)
        self.info = self.tape.run(self.run)
        for part, last in self.tape.line(self.run):
            for call in self.tape.calls(part):
                request = call.attempt.request
                assert request.site is not None
                if request.site.component != "tool" and (request.site.turn or 0) <= last:
                    self.known[self._key(request)].append(call.attempt)

    def _key(self, request: ChatRequest) -> Any:
        site = request.site
        assert site is not None
        said = tuple((message.role, message.content) for message in request.messages)
        return site.turn, request.attempt, said, request.top_logprobs

    async def chat(self, request: ChatRequest) -> ChatReply:
        key = self._key(request)
        assert key in self.known, f"{request.site}: {request.prompt}"
        self.asked.append(key)
        [attempt, *later] = self.known[key]
        if later:
            del self.known[key][0]
        self.schemas += dict(attempt.request.schema or {}) == dict(request.schema or {})
        if attempt.reply is None:
            raise TimeoutError
        return attempt.reply

    @property
    def client(self) -> LLMClient:
        config = llm_config_of(self.info.manifest, retry_wait_s=0, timeout_s=60)
        assert config is not None
        return LLMClient(config, self)

    @property
    def prompts(self) -> dict[str, Prompt]:
        """The recorded prompts, by the name of the shipped one whose place they take."""
        shipped = {"validator": "validator_economic", "engine": "engine_interest_rate"}
        recorded = prompts_of(self.info.manifest).items()
        return {shipped.get(place, it.name): it for place, it in recorded}

    def states(self) -> dict[int, Any]:
        return {it["turn"]: it["state"] for it in self.tape.turn_records(self.run)}


def world_of(recorded: Recorded, **more: Any) -> Economics:
    """The world with the parameters of a recorded run."""
    config = SimulationConfig.recorded(recorded.info.manifest["config"])
    profile = {"name", "mandate", "inflation_target", "temperament"}
    same = ("committee", "moves_bp", "briefing", "masked", "decide", "engine", "economy")
    placed = {
        f"{name}#{Prompt.load(name).digest[:8]}": prompt
        for name, prompt in recorded.prompts.items()
    }
    return Economics(
        start_at=config.start,
        nations=[nation.model_dump(include=profile) for nation in config.nations],
        validator="asked" if config.validator.kind == "llm" else "none",
        domain=config.validator.domain,
        permissive=config.validator.permissive,
        **{name: getattr(config, name) for name in same},
        **{name: getattr(config, name) for name in ("seed", "turns", "replicate")},
        prompts=placed,
        **{"llm_client": recorded.client, **more},
    )


def check_states(recorded: Recorded, world: Economics) -> int:
    """Compare every state, exactly; returns how many."""
    states = recorded.states()
    for turn in world.turns:
        theirs, ours = states[turn.number], turn.state.model_dump(mode="json")
        assert ours["period"] == theirs["period"]
        for name in FIGURES:
            assert ours[name] == theirs["global_state"][name], (turn.number, name)
    return len(world.turns)


def played(recorded: Recorded, **more: Any) -> Economics:
    """Play a recorded run with its answers; compare prompts, schemas and states."""
    world = world_of(recorded, **more)
    last = max(recorded.states())
    if recorded.info.fork_turn is None:
        world.run(last, progress=False)
    else:
        parent = Recorded(recorded.name, recorded.info.parent or 0)
        before = world_of(parent)
        before.run(at := recorded.info.fork_turn, progress=False)
        recorded.asked += parent.asked
        recorded.schemas += parent.schemas
        edited = [it for name, it in recorded.prompts.items() if it != parent.prompts[name]]
        # What hit the way to a turn is now set at the one before.
        shocks = [
            (item["turn"] - 1, {f"shock.{name}": by for name, by in item["shock"].items()})
            for record in recorded.tape.turn_records(recorded.run)
            for item in record["interventions"]
        ]
        set_then = [{"turn": turn, "set": values} for turn, values in shocks]
        world = before.fork(at, prompt=edited, intervene=set_then, llm_client=recorded.client)
        world.run(last - at, progress=False)
    assert check_states(recorded, world) == last + 1
    assert recorded.schemas == len(recorded.asked)
    assert set(recorded.asked) == set(recorded.known)
    return world


@pytest.mark.parametrize(
    ("name", "run"),
    [
        *(("first_run.tape", run) for run in (1, 2, 3)),
        ("two_nations.tape", 1),
        ("prompt_experiment.tape", 1),
        *(("demo.tape.gz", run) for run in (1, 2, 3)),
    ],
)
def test_prompts_schemas_and_states_are_those_of_the_recorded_runs(name: str, run: int) -> None:
    played(Recorded(name, run))
