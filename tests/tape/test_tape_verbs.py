"""Resuming, forking and running again; what a run's manifest says; untrusted tapes."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from builders import in_words, make_client, played, policy, recorded, verdict
from tape_kit import HashBackend, asked, content, hash_client, make_recorded, steady_config
from worlds import PublicGoods

import llmsim_lab
from llmsim_lab.errors import BackendError, ConfigError, LLMFailureException, TapeError
from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend, Tape
from llmsim_lab.prompts import Prompt
from llmsim_lab.run import Question, fork, load, replay, rerun, resume
from llmsim_lab.simulation import Simulation, SimulationConfig
from llmsim_lab.types import ChatRequest

# --- the manifest ------------------------------------------------------------------------------


def test_a_manifest_says_all_that_a_run_depends_on(path: Path) -> None:
    simulation = make_recorded(path, turns=1)
    info = Tape(path).run()
    manifest = dict(info.manifest)
    own = {"package": version("llmsim-lab"), "python": platform.python_version()}
    own |= {"platform": platform.platform(), "seed": 11, "given": []}
    assert {name: manifest[name] for name in own} == own
    assert SimulationConfig.model_validate(manifest["config"]) == steady_config()
    assert LLMConfig(**manifest["llm"]) == hash_client().config
    known = {"name": "hash", "backend": "hash", "digest": "d1", "version": "1.0"}
    assert manifest["model"] == known
    entries = {place.partition("#")[0]: entry for place, entry in manifest["prompts"].items()}
    assert set(entries) == {"agent_policy", "validator_economic", "engine_interest_rate"}
    assert entries["agent_policy"]["digest"] == Prompt.load("agent_policy").digest
    assert "Propose ONE specific economic policy action." in entries["agent_policy"]["text"]
    assert datetime.fromisoformat(info.started) <= datetime.fromisoformat(str(info.ended))
    assert (info.name, info.verb, info.parent, info.outcome) == ("steady", "run", None, "done")
    assert (info.turns, info.calls) == (1, len(asked(simulation)))


# --- run and resume ----------------------------------------------------------------------------


@pytest.mark.parametrize(("other", "what"), [({"name": "b"}, "name"), ({"digest": None}, "digest")])
def test_another_model_does_not_go_on_with_a_run_and_leaves_no_mark_on_it(
    path: Path, other: dict[str, Any], what: str
) -> None:
    make_recorded(path, turns=1).close()
    backend = HashBackend(**other)
    resumed = resume(path, llm_client=hash_client(backend))
    with pytest.raises(TapeError, match=rf"another model: its {what} is.*fork the run"):
        resumed.run(1)
    assert (backend.requests, resumed.turn_number) == ([], 1)
    assert Tape(path).run().outcome == "done"
    resumed.close()
    branch = played(fork(path, llm_client=hash_client(backend)), 1)
    assert branch.turn_number == 2


WAYS: dict[str, Callable[..., Any]] = {
    "resume": resume,
    "rerun": rerun,
    "fork": fork,
    "fork of a loaded run": lambda path, **client: load(path).fork(
        **client, to=path.with_stem("y")
    ),
    "fork of a replay": lambda path, **client: replay(path).fork(**client, to=path.with_stem("y")),
    "counterfactual": lambda path, llm_client: load(path).counterfactual(
        {}, llm_client=llm_client, tape=path
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_all_settings_of_the_client_that_is_given_count_and_a_line_names_them(
    path: Path, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = hash_client(temperature=0.2, options={"top_k": 5}, max_text_chars=300)
    recorded(Simulation(steady_config(), llm_client=client, tape=path), 1)
    now = hash_client(num_ctx=16384, think=True, keep_alive="9m", timeout_s=7)
    run = WAYS[way](path, llm_client=now)
    [line] = [it.getMessage() for it in caplog.records if "SETTINGS_CHANGED" in it.getMessage()]
    assert "temperature 0.2 → 0.7, num_ctx 4096 → 16384, max_text_chars 300 → 400" in line
    assert 'timeout_s 60 → 7, keep_alive null → \\"9m\\", think false → true' in line
    assert "options.top_k 5 → none" in line
    played(run, 1)
    request = asked(run)[-1]
    assert {**request.options, "seed": 0} == {**now.config.sampling, "seed": 0}
    assert (request.think, request.keep_alive, request.timeout_s) == (True, "9m", 7)
    assert request.schema is not None
    assert request.schema["properties"]["reasoning"]["maxLength"] == 400
    assert LLMConfig(**run.manifest()["llm"]) == now.config
    assert content(replay(run.tape, run.run_id)) == content(run)


class Asks:
    """A player that asks a model by itself, as a validator does."""

    def __init__(self, llm_client: LLMClient) -> None:
        self.llm_client = llm_client

    async def __call__(self, question: Question) -> Any:
        return await question.put_to(self.llm_client)


def test_a_replay_asks_each_turn_with_its_own_settings_where_resumes_changed_them(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reply = {"amount": 1, "reasoning": "r", "confidence": 1}

    def clients(degree: float, *replies: Any) -> dict[str, Any]:
        model = make_client([*replies] or reply, temperature=degree)
        bob, cy = (make_client(reply, temperature=degree + more) for more in (1, 2))
        return {"llm_client": model, "players": {"Bob": bob, "Cy": Asks(cy)}}

    played(PublicGoods(**clients(0.1), tape=path), 2).close()
    run = resume(path, **clients(0.2, reply, BackendError("full", reason="context_overflow")))
    with pytest.raises(LLMFailureException, match="context_overflow"):
        run.run(1)
    run.close()
    caplog.clear()
    played(resume(path, **clients(0.3)), 1).close()
    words = [record.getMessage() for record in caplog.records]
    changes = [re.findall("temperature .* → [0-9.]+", line) for line in words if "CHANGED" in line]
    assert changes == [[f"temperature {n}.2 → {n}.3"] for n in (0, 1, 2)]
    assert any(line.startswith("ASKED_ANEW run=1 turn=3") for line in words)
    run = played(resume(path, **clients(0.3)), 1)
    run.close()
    sent = [{it.request.options["temperature"] for it in turn.calls} for turn in run.turns[1:]]
    assert sent == [{0.1, 1.1, 2.1}] * 2 + [{0.3, 1.3, 2.3}] * 2
    others = clients(0.5)
    again = replay(path, players=others["players"])
    assert again.turns == run.turns
    branch = played(again.fork(1, llm_client=others["llm_client"]), 1)
    assert any("the fork" in line and "temperature 0.1 → 0.5" in line for line in caplog.messages)
    assert {it.request.options["temperature"] for it in branch.turns[2].calls} == {0.5, 1.5, 2.5}


# --- forks -------------------------------------------------------------------------------------


def test_a_run_forks_into_another_file_with_a_copy_of_what_it_came_from(tmp_path: Path) -> None:
    root = make_recorded(tmp_path / "x.tape")
    before = (tmp_path / "x.tape").read_bytes()
    branch = played(root.fork(1, llm_client=hash_client(HashBackend()), to=tmp_path / "y.tape"), 1)
    branch.close()
    assert (tmp_path / "x.tape").read_bytes() == before
    recorded = (tmp_path / "y.tape").read_bytes()
    for again in (fork, rerun):
        with pytest.raises(TapeError, match=r"y\.tape is there already: fork its runs, or n"):
            again(tmp_path / "x.tape", llm_client=hash_client(), to=tmp_path / "y.tape")
    assert (tmp_path / "y.tape").read_bytes() == recorded
    runs = Tape(tmp_path / "y.tape", read_only=True).runs()
    came = [(info.parent, info.fork_turn, info.turns) for info in runs]
    assert came == [(None, None, 1), (1, 1, 2)]
    assert content(replay(tmp_path / "y.tape")) == content(branch)
    unrecorded = Simulation(root.config, llm_client=hash_client(HashBackend()))
    with pytest.raises(ConfigError, match="to= copies the run's tape, and it has none"):
        unrecorded.fork(to=tmp_path / "z.tape")
    assert not (tmp_path / "z.tape").exists()


def test_a_turn_that_was_not_played_cannot_be_forked_from(path: Path) -> None:
    make_recorded(path, turns=2).close()
    for turn in (-1, 3):
        with pytest.raises(ConfigError, match=f"turn={turn} must be a whole number, 0 to 2"):
            fork(path, turn=turn)
    assert len(Tape(path, read_only=True)) == 1


# --- untrusted tapes ---------------------------------------------------------------------------

HOSTILE = ("{{ 7 * 7 }} {% raw %} {{ ''.__class__ }}", "\x1b[2JA\u202eB\x00C\r\n\tD", "é" * 50_000)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_is_text_and_comes_back_as_it_was(path: Path, text: str) -> None:
    def reply(request: ChatRequest) -> Any:
        assert request.site is not None
        if request.site.component == "agent":
            return policy(f"Raise the tax: {text}", reasoning=text)
        return verdict(False, reasoning=text)

    backend = ScriptedBackend(reply, name=text)
    client = LLMClient(LLMConfig(retry_wait_s=0, max_text_chars=None, num_ctx=100_000), backend)
    config = in_words(name=text, nations=[f"N {text[:99]}".strip()])
    simulation = played(Simulation(config, llm_client=client, tape=path), 2)
    replayed = replay(path)
    assert replayed.turns == simulation.turns
    assert replayed.turns[1].answers[0].reasoning == text.strip()
    with Tape(path, read_only=True) as tape:
        assert (tape.run().name, tape.run().manifest["model"]["name"]) == (text, text)
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202e]", str(tape.tree()))


@pytest.mark.parametrize("part", ["tape", "run", "simulation"])
def test_reading_a_tape_needs_nothing_that_executes_data(part: str) -> None:
    modules = "pickle|marshal|shelve|dill|cloudpickle|joblib|runpy|code"
    executes = rf"^\s*(import|from) ({modules})\b|(?<![\w.])(eval|exec|compile|__import__)\("
    files = [*(Path(llmsim_lab.__file__).parent / part).glob("*.py")]
    assert files
    texts = {path.name: path.read_text(encoding="utf-8") for path in files}
    assert [name for name, text in texts.items() if re.search(executes, text, re.MULTILINE)] == []
