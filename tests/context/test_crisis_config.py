"""What a crisis is configured with, from Python, from a file, from the command line."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from llmsim_lab.context import CrisisSimulation
from llmsim_lab.errors import ConfigError
from llmsim_lab.run._registry import class_and_config


def write(folder: Path, text: str) -> Path:
    path = folder / "run.yaml"
    path.write_text(dedent(text))
    return path


def test_a_configuration_comes_back_from_json_as_it_was() -> None:
    config = CrisisSimulation.config_type(
        scenario="strait",
        module_folders=["mine"],
        interventions=[{"turn": 2, "set": {"events": ["Rain"]}, "note": "why"}],
    )
    values = config.model_dump(mode="json", by_alias=True)
    assert CrisisSimulation.config_type.model_validate(values) == config
    assert (config.name, config.turns, config.llm.max_tokens) == ("crisis", 6, 600)


def test_a_file_may_configure_a_run(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "river.yaml").write_text(
        "kind: crisis\ntitle: The river\ntime_step_duration: 1 week\n"
        "agents: {Ada: {role: You farm.}}\n"
    )
    path = write(
        tmp_path,
        """
        kind: crisis
        scenario: river.yaml
        module_folders: [mine]
        turns: 2
        players: rule
        interventions: [{turn: 1, set: {events: Rain}}]
        """,
    )
    config = class_and_config(path)[1]
    assert config.scenario.title == "The river"
    assert config.module_folders == (tmp_path / "mine",)
    assert (config.name, config.turns, config.needs_model) == ("run", 2, False)
    assert CrisisSimulation(config).run().shape[0] == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: crisis\nscenario: nowhere", "no scenario 'nowhere' ships"),
        ("kind: crisis\nscenario: nowhere.yaml", "cannot read the configuration"),
        (
            "kind: crisis\nscenario: strait\nagents: rule",
            "line 3: agents: .*players={'agent': 'rule'",
        ),
        ("kind: crisis\nscenario: strait\nengine: rule", "players={'engine': 'rule'}"),
        ("kind: crisis\ntitle: x", "time_step_duration"),
    ],
)
def test_a_fault_in_a_file_is_named_with_the_file(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError, match=message):
        class_and_config(path)
