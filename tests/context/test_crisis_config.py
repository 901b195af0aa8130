"""What a crisis is configured with, from Python and from a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import config_in

from llmsim_lab.context import CrisisSimulation
from llmsim_lab.errors import ConfigError

RIVER = "title: The river\ntime_step_duration: 1 week\nagents: {Ada: {role: You farm.}}\n"


def test_a_file_configures_a_run_and_a_scenarios_file_is_one(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "river.yaml").write_text(f"kind: crisis\n{RIVER}")
    (tmp_path / "run.yaml").write_text(
        "{kind: crisis, scenario: river.yaml, module_folders: [mine], turns: 2, players: rule,"
        "interventions: [{turn: 1, set: {events: Rain}}]}"
    )
    config = config_in(tmp_path / "run.yaml")
    assert config.module_folders == (tmp_path / "mine",)
    assert (config.name, config.turns, config.llm.max_tokens) == ("run", 2, 600)
    assert config.scenario == config_in(tmp_path / "river.yaml").scenario
    values = config.model_dump(mode="json", by_alias=True)
    assert CrisisSimulation.config_type.model_validate(values) == config
    assert CrisisSimulation(config).run().shape[0] == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("scenario: nowhere", "no scenario 'nowhere' ships"),
        (f"scenario: {'x' * 5000}", "no scenario 'xxx.* ships"),
        ("scenario: nowhere.yaml", "cannot read the configuration"),
        ("scenario: strait\nagents: rule", "line 3: agents: .*players={'agent': 'rule'"),
        ("scenario: strait\nengine: rule", "players={'engine': 'rule'}"),
        ("title: x", "time_step_duration"),
        (RIVER.replace("Ada", '"A: b"'), "line 4: .*should match pattern"),
    ],
)
def test_a_fault_in_a_file_is_named_with_the_file(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(f"kind: crisis\n{text}")
    with pytest.raises(ConfigError, match=message):
        config_in(path)
