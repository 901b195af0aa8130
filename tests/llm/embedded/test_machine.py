"""What this machine can take is found out, limits of a container included."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from llmsim_lab.errors import ConfigError, ModelFileError
from llmsim_lab.llm._embedded.machine import (
    available_memory_bytes,
    check_memory,
    check_processor,
    usable_cores,
)


def test_too_little_memory_names_both_numbers_and_ways_out() -> None:
    with pytest.raises(ModelFileError, match=r"2\.0 GB of memory but 0\.5 GB is free; close"):
        check_memory(2_000_000_000, model="big", free_bytes=500_000_000)


def test_enough_memory_passes() -> None:
    check_memory(1, model="small")


def test_a_containers_memory_limit_counts(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("400\n")
    assert available_memory_bytes(cgroup=tmp_path) == 600


def test_without_a_limit_the_machines_memory_counts(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("400\n")
    assert 0 < available_memory_bytes(cgroup=tmp_path) <= psutil.virtual_memory().total


def test_a_containers_processor_limit_counts(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("100000 100000\n")
    assert usable_cores(cgroup=tmp_path) == 1


def test_half_a_core_is_still_one(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert usable_cores(cgroup=tmp_path) == 1


@pytest.mark.parametrize("content", ["max 100000\n", None])
def test_without_a_limit_all_physical_cores_count(tmp_path: Path, content: str | None) -> None:
    if content:
        (tmp_path / "cpu.max").write_text(content)
    assert 1 <= usable_cores(cgroup=tmp_path) <= (psutil.cpu_count() or 1)


def cpu(tmp_path: Path, flags: str) -> Path:
    path = tmp_path / "cpuinfo"
    path.write_text(f"processor : 0\n{flags}\n")
    return path


def test_an_x86_processor_without_avx2_is_rejected(tmp_path: Path, linux: None) -> None:
    with pytest.raises(ConfigError, match="needs a processor with AVX2"):
        check_processor(processors=cpu(tmp_path, "flags : sse2 avx"), machine="x86_64")


@pytest.mark.parametrize("machine", ["x86_64", "AMD64", "aarch64"])
def test_other_processors_pass(tmp_path: Path, linux: None, machine: str) -> None:
    flags = "flags : sse2" if machine == "aarch64" else "flags : avx avx2"
    check_processor(processors=cpu(tmp_path, flags), machine=machine)


def test_where_it_cannot_be_known_the_processor_passes(tmp_path: Path, linux: None) -> None:
    check_processor(processors=tmp_path / "none", machine="x86_64")
    check_processor(processors=cpu(tmp_path, "no such line"), machine="x86_64")


@pytest.fixture
def linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
