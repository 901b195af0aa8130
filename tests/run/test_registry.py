"""How a tape's run finds the class that plays it."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from builders import config_in, make_config
from counter_kit import CounterSimulation
from tape_text import changed_manifest

from llmsim_lab.errors import ConfigError, TapeError
from llmsim_lab.run import load, registry
from llmsim_lab.run.registry import find_class
from llmsim_lab.simulation import Simulation
from llmsim_lab.tape import verify


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The known kinds; what a test does to them is undone."""
    kinds = dict(registry._known)
    monkeypatch.setattr(registry, "_known", kinds)
    return kinds


def announce(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    entry = EntryPoint(name=name, value=value, group=registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "_announced", lambda _folders: {name: entry})


def test_a_kind_that_another_class_has_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"Thief cannot be the kind 'counter': .*Simulation is"):

        class Thief(CounterSimulation):
            kind = "counter"


@pytest.mark.usefixtures("known")
def test_the_same_class_defined_again_takes_over() -> None:
    def cell() -> type[CounterSimulation]:
        class Mine(CounterSimulation):
            kind = "mine"

        return Mine

    cell()
    again = cell()
    assert find_class("mine") is again


def test_an_unknown_kind_is_named_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"called 'weather'; known are: .*counter, .*economic"):
        find_class("weather")


@pytest.mark.parametrize("text", ["", "# turns: 8\n", "---\n", "null\n", "{}\n"])
def test_an_empty_file_describes_no_run(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"run\.yaml is empty; it needs .* 'kind: economic'"):
        config_in(path, kind="economic")


def test_a_kind_that_a_package_announces_is_imported_when_needed(
    monkeypatch: pytest.MonkeyPatch, known: dict[str, Any]
) -> None:
    del known["counter"]
    announce(monkeypatch, "counter", "counter_kit:CounterSimulation")
    monkeypatch.setattr(EntryPoint, "load", lambda _: known.update(counter=CounterSimulation))
    assert find_class("counter") is CounterSimulation


@pytest.mark.parametrize(
    ("part", "fault"),
    [
        ({"kind": ...}, "kind: Field required"),
        ({"given_state": []}, "given_state: Input should be"),
    ],
)
def test_a_manifest_of_wrong_parts_is_a_fault_of_the_tape(
    path: Path, part: dict[str, Any], fault: str
) -> None:
    Simulation(make_config(), tape=path).close()
    changed_manifest(path, 1, **part)
    with pytest.raises(TapeError, match=rf"run 1 on .*x\.tape is damaged: .*{fault}"):
        load(path)
    assert f"run 1: its manifest: {fault}" in str(verify(path)[0])
