"""The tapes in ``data/tapes`` hold what the scripts beside them would record."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from llmsim_lab import data_path
from llmsim_lab.llm import LLMClient, ScriptedBackend, Tape
from llmsim_lab.prompts import Prompt
from llmsim_lab.run import load, replay
from llmsim_lab.run.records import config_of, llm_config_of
from llmsim_lab.tape import verify

TAPES = data_path("tapes")
THE_CLIENTS_OWN = {"model", "max_concurrency", "keep_alive"}
"""Settings that come from where a model runs, not from what was recorded."""


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what imports a recording script; it records only when run."""
    monkeypatch.syspath_prepend(TAPES)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return importlib.import_module


def tape(name: str) -> Tape:
    return Tape(TAPES / name, read_only=True)


def settings(recorded: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in recorded.items() if key not in THE_CLIENTS_OWN}


def holds(name: str, run: int, config: Any, turns: int) -> None:
    """Check that a run has a configuration and was played so far with the model it names."""
    with tape(name) as opened:
        info = opened.run(run)
    recorded = config_of(info)
    # Some are from before each call had a sampling seed of its own.
    assert recorded == config.model_copy(update={"replicate": recorded.replicate})
    assert info.turns == turns
    assert settings(info.manifest["llm"]) == settings(config.llm.model_dump(mode="json"))


def test_every_tape_has_a_script_that_says_how_it_was_recorded() -> None:
    texts = "".join(path.read_text("utf-8") for path in TAPES.glob("record_*.py"))
    for path in TAPES.glob("*.tape"):
        assert f'"{path.name}"' in texts
    for path in filter(Path.is_dir, TAPES.iterdir()):
        assert path.name.startswith("__") or f'HERE / "{path.name}"' in texts


@pytest.mark.parametrize(
    ("name", "folder", "done", "answers"),
    [("prompt_experiment", "prompt_experiment", 12, 133), ("crisis", "crisis_asked_again", 4, 12)],
)
def test_situations_asked_again_are_found_whole_and_replay(
    name: str, folder: str, done: int, answers: int, script: Any
) -> None:
    """Their names have digests of the sources, so that another code would not find them."""
    study = script(f"record_{name}").asked_again()
    assert study.counts == {"done": done}
    files = {study.tape_of(arm, unit) for arm in study.arms for unit in study.units}
    assert files == set((TAPES / folder).iterdir())
    assert sum(file.stat().st_size for file in files) < 400_000
    asked = 0
    for file in files:
        with Tape(file) as opened:
            assert verify(opened) == []
            asked += sum(len(opened.calls(run.id)) for run in opened.runs() if run.parent)
    assert asked == answers
    for arm in study.arms:
        with Tape(study.tape_of(arm, study.units[-1])) as opened:
            last = opened.runs()[-1]
            players = study._setup.world.level(study._setup.arms[arm], "players")
            assert replay(opened, last.id, players=players).turn_number == last.turns


def test_the_first_run_and_its_forks_are_what_their_script_records(script: Any) -> None:
    made = script("record_tapes")
    for run in (1, 2, 3):
        holds("first_run.tape", run, made.ONE_NATION, made.ONE_NATION.turns)
    with tape("first_run.tape") as opened:
        root, oil, fearful = opened.runs()
        assert [oil.fork_turn, fearful.fork_turn] == [made.FORKED_AT, made.FORKED_AT]
    (shock,) = load(TAPES / "first_run.tape", 2).turns[made.OIL["turn"]].interventions
    assert shock.model_dump(exclude_defaults=True) == made.OIL
    place = f"agent_policy#{Prompt.load('agent_policy').digest[:8]}"
    prompts = [info.manifest["prompts"][place] for info in (root, fearful)]
    as_it_was = Prompt.parse(prompts[0]["text"], name="agent_policy")
    assert as_it_was.replace(made.ADVISOR, made.FEARFUL).digest == prompts[1]["digest"]


@pytest.mark.parametrize(
    ("name", "runs"),
    [("first_run.tape", 3), ("two_nations.tape", 1), ("social.tape", 2), ("crisis.tape", 1)],
)
def test_recorded_runs_replay_with_todays_code(name: str, runs: int) -> None:
    with tape(name) as opened:
        assert verify(opened) == []
        assert len(opened) == runs
        for run in range(1, runs + 1):
            assert replay(opened, run).turns == load(opened, run).turns


def test_single_runs_are_what_their_scripts_record(script: Any) -> None:
    crisis, two = script("record_crisis"), script("record_tapes").TWO_NATIONS
    holds("crisis.tape", 1, crisis.CONFIG, crisis.STEPS)
    holds("two_nations.tape", 1, two, two.turns)
    for run, (config, turns) in enumerate(script("record_social").runs(), 1):
        holds("social.tape", run, config, turns)


def test_the_demonstration_is_what_its_script_records(script: Any) -> None:
    made = script("record_demo")
    with tape("demo.tape.gz") as opened:
        found = made.demo_runs(opened)
        assert list(found) == list(made.SEEDS)[: len(found)]
        for seed, runs in found.items():
            assert {"plain", "mirrored"} <= runs.keys()
            for world, run in runs.items():
                info = opened.run(run.run_id)
                config = made.config_of(
                    model=info.manifest["config"]["llm"]["model"],
                    seed=seed,
                    mirrored=world == "mirrored",
                )
                assert config_of(info) == config
                # The last seed that was recorded need not be whole.
                least = config.turns // 2 if seed == max(found) > 1 else config.turns
                assert info.turns >= (made.OIL_END if world == "oil" else least)
                assert info.manifest["model"]["name"] == "qwen2.5-coder-1.5b"


def test_the_agent_that_looks_things_up_is_what_its_script_records(script: Any) -> None:
    made = script("record_lookup")
    holds("lookup.tape", 1, made.CONFIG, made.TURNS)
    config = llm_config_of(tape("lookup.tape").run(1).manifest)
    assert config is not None
    silent = LLMClient(config, ScriptedBackend([]))
    replayed = replay(TAPES / "lookup.tape", players=made.seats(silent))
    assert replayed.turn_number == made.TURNS


def test_the_conversation_is_what_its_script_records(script: Any) -> None:
    made = script("record_assistant")
    with tape("assistant.tape") as opened:
        (info,) = opened.runs()
        records = opened.turn_records(info.id)
    assert tuple(record["state"]["message"] for record in records[1:]) == made.MESSAGES
    assert config_of(info).engine == made.ENGINE
    assert settings(info.manifest["llm"]) == settings(made.MODEL.model_dump(mode="json"))
