"""Models on this machine: listed, verified once, chosen, removed."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs
import pytest

from llmsim_lab._util.files import kept_folder
from llmsim_lab.errors import ConfigError, ModelFileError
from llmsim_lab.llm._embedded import backend, store
from llmsim_lab.llm._embedded.backend import EmbeddedBackend
from llmsim_lab.llm._embedded.store import (
    default_model,
    file_sha256,
    installed_models,
    is_verified,
    note_verified,
    remove_model,
    verified_path,
)

from .conftest import CONTENT, MakeModel

GB = 10**9


@pytest.fixture
def catalogue(
    models: Path, make_model: MakeModel, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, str]:
    """A catalogue of a better and a small model, and the folder for them."""
    best = make_model(name="best", file_name="best.gguf", memory_bytes=2 * GB)
    small = make_model(name="small", file_name="small.gguf", note="plumbing")
    monkeypatch.setattr(store, "CATALOGUE", (best, small))
    models.mkdir()
    return best.name, small.name


def install(models: Path, name: str) -> Path:
    path = models / f"{name}.gguf"
    path.write_bytes(CONTENT)
    note_verified(next(model for model in store.CATALOGUE if model.name == name))
    return path


def machine(monkeypatch: pytest.MonkeyPatch, *, memory: float, disk: float) -> None:
    monkeypatch.setattr(store, "available_memory_bytes", lambda: memory)
    monkeypatch.setattr(store, "free_space_bytes", lambda _: disk)


def test_the_folder_is_the_users_cache_unless_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLMSIM_MODELS", raising=False)
    assert kept_folder("models") == platformdirs.user_cache_path("llmsim_lab") / "models"


def test_what_is_here_is_known(models: Path, catalogue: tuple[str, str]) -> None:
    assert install(models, "small") == store.CATALOGUE[1].path
    assert installed_models() == ["small"]


def test_a_verified_file_is_not_read_again(
    models: Path, make_model: MakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    models.mkdir()
    (models / "tiny.gguf").write_bytes(CONTENT)
    assert verified_path(make_model()) == models / "tiny.gguf"

    def refuse(_: Path) -> str:
        raise AssertionError("the file was read again")

    monkeypatch.setattr(store, "file_sha256", refuse)
    assert verified_path(make_model()) == models / "tiny.gguf"


def test_a_file_that_changed_is_read_again_and_rejected(
    models: Path, make_model: MakeModel
) -> None:
    models.mkdir()
    path = models / "tiny.gguf"
    path.write_bytes(CONTENT)
    verified_path(make_model())
    path.write_bytes(CONTENT[::-1])
    os.utime(path, ns=(1, 1))
    assert not is_verified(make_model())
    with pytest.raises(ModelFileError, match=r"sha256 is \w{64} but should be \w{64}.*get tiny"):
        verified_path(make_model())


@pytest.mark.parametrize("way", ["written over", "replaced"])
def test_a_file_of_the_same_size_and_time_is_read_again_and_rejected(
    models: Path, make_model: MakeModel, way: str
) -> None:
    models.mkdir()
    path, other = models / "tiny.gguf", models / "other"
    path.write_bytes(CONTENT)
    verified_path(make_model())
    before = path.stat()
    (path if way == "written over" else other).write_bytes(CONTENT[::-1])
    if way == "replaced":
        other.replace(path)
    while (
        path.stat().st_ctime_ns == before.st_ctime_ns
        or path.stat().st_mtime_ns != before.st_mtime_ns
    ):
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ModelFileError, match=r"tiny\.gguf is damaged"):
        verified_path(make_model())


def test_a_right_file_that_was_moved_here_is_here(models: Path, catalogue: tuple[str, str]) -> None:
    copy = models / "copy"
    copy.write_bytes(install(models, "small").read_bytes())
    copy.replace(models / "small.gguf")
    (models / "best.gguf").write_bytes(CONTENT[::-1])
    assert installed_models() == ["small"]


def test_a_damaged_note_counts_as_none(models: Path, make_model: MakeModel) -> None:
    models.mkdir()
    (models / "tiny.gguf").write_bytes(CONTENT)
    (models / "tiny.gguf.ok").write_text("{")
    assert not is_verified(make_model())


def test_a_model_that_is_not_here_has_no_path(models: Path, make_model: MakeModel) -> None:
    assert verified_path(make_model()) is None


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="cannot read the model file"):
        file_sha256(tmp_path)


def test_the_better_model_is_the_default_where_it_fits(
    catalogue: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(monkeypatch, memory=4 * GB, disk=4 * GB)
    assert default_model() == ("best", "it fits into this machine's memory and disk")


def test_the_better_model_is_the_default_where_it_is_here(
    models: Path, catalogue: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    install(models, "best")
    machine(monkeypatch, memory=4 * GB, disk=0)
    assert default_model()[0] == "best"


@pytest.mark.parametrize(("memory", "disk"), [(1 * GB, 4 * GB), (4 * GB, 1000)])
def test_a_small_machine_gets_the_small_model_and_a_warning(
    catalogue: tuple[str, str], monkeypatch: pytest.MonkeyPatch, memory: float, disk: float
) -> None:
    machine(monkeypatch, memory=memory, disk=disk)
    name, why = default_model()
    assert name == "small"
    assert "note that small is for plumbing" in why


def test_removing_a_model_frees_its_bytes(models: Path, catalogue: tuple[str, str]) -> None:
    path = install(models, "small")
    assert remove_model("small") > len(CONTENT)
    assert not path.exists()
    assert installed_models() == []


def test_removing_what_is_not_here_is_an_error(models: Path, catalogue: tuple[str, str]) -> None:
    with pytest.raises(ModelFileError, match="small is not on this machine"):
        remove_model("small")
    with pytest.raises(ConfigError, match="no embedded model 'other'"):
        remove_model("other")


def test_a_file_that_cannot_be_removed_is_named(models: Path, catalogue: tuple[str, str]) -> None:
    (models / "small.gguf").mkdir()
    with pytest.raises(ModelFileError, match=r"cannot remove .*small\.gguf"):
        remove_model("small")


@pytest.mark.parametrize("name", [None, "", "auto", "embedded"])
def test_without_a_name_a_backend_takes_the_model_that_suits_this_machine(
    models: Path, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    monkeypatch.setattr(backend, "default_model", lambda: ("smollm2-135m", "it is small"))
    with pytest.raises(ModelFileError, match=r"^the weights of 'smollm2-135m' are not on "):
        EmbeddedBackend(name)
