"""Studies that are killed, and studies whose runs are played by other processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import study_kit
from study_kit import KILL, check_folder, deadly_client, instant_client, timeless

from llmsim_lab.errors import ConfigError
from llmsim_lab.study import Study

pytestmark = pytest.mark.process


def study_of(tape: Path | None = None, model: Any = instant_client, *, seeds: int = 4) -> Study:
    vary = {"factor": [1.0, 2.0, 3.0]}
    return study_kit.study_of(vary=vary, seeds=seeds, tape=tape, llm_client=model)


@pytest.fixture(scope="module")
def serial() -> pd.DataFrame:
    """What an undisturbed study in one process gives."""
    return timeless(study_of().run(progress=False))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "study"


@pytest.fixture
def kit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let other processes import the tests' kit."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))


@pytest.fixture
def pool(kit: None) -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        yield executor


@pytest.fixture
def one_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the first process that comes to its seventh question of a deadly client die there."""
    file = tmp_path / "kill"
    file.touch()
    monkeypatch.setenv(KILL, str(file))
    return file


# --- a study that is killed ----------------------------------------------------------------------

SCRIPT = """
import sys
from study_kit import check_folder, Water, deadly_client
from llmsim_lab.study import Study

study = Study(Water, {"factor": [1.0, 2.0, 3.0]}, tape=sys.argv[1], seeds=4, turns=4,
              outcome="level", llm_client=deadly_client)
study.run(progress=False, parallel=3)
"""


def test_a_killed_study_continues_and_gives_what_an_undisturbed_one_gives(
    path: Path, kit: None, one_kill: Path, serial: pd.DataFrame
) -> None:
    command = [sys.executable, "-c", SCRIPT, str(path)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert not one_kill.exists()
    broken = study_of(path, deadly_client)
    assert broken.counts["stopped"] == 3
    assert broken.counts["done"] == 0
    subprocess.run(command, check=True)
    whole = study_of(path, deadly_client)
    pd.testing.assert_frame_equal(timeless(whole), serial)
    check_folder(path, 12)


NAMES = """
from functools import partial
from study_kit import check_folder, Water
from llmsim_lab.study import Study

def edit(text, *, words=frozenset({"kind", "calm", "brief"})):
    return text + " ".join(sorted(words)) * (text in {"a", "b", "c", "d"})

vary = {"prompt": {"old": None, "new": edit, "by": partial(edit, words=frozenset("abc"))},
        "players": {"one": {"Ann": lambda it: it in {"e", "f", "g", "h"}}}}
study = Study(Water, vary, seeds=2, turns=2)
print(sorted(job.file_name for job in study._setup.files.jobs.values()))
"""


def test_files_have_the_same_names_in_every_process(under_two_hash_seeds: Any) -> None:
    one, other = under_two_hash_seeds(NAMES)
    assert one == other
    assert one.count(".tape") == 6


# --- other processes -----------------------------------------------------------------------------


def test_a_pool_that_lost_a_process_ends_the_call_and_another_pool_continues(
    path: Path, pool: ProcessPoolExecutor, one_kill: Path, serial: pd.DataFrame
) -> None:
    study = study_of(path, deadly_client)
    with pytest.raises(ConfigError, match=r"lost a process.* with another pool continues"):
        study.run(executor=pool, progress=False)
    assert not one_kill.exists()
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as other:
        study.run(executor=other, progress=False)
    assert study.counts == {"done": 12}
    pd.testing.assert_frame_equal(timeless(study), serial)
    check_folder(path, 12)


NOTEBOOK = """
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from llmsim_lab import Ask, Run, State, Tape
from llmsim_lab.study import Study

class Sum(State):
    total: int = 0

class Adding(Run[Sum]):
    by: int = 1

    async def turn(self, state: Sum, ask: Ask) -> Sum:
        return state.replace(total=state.total + self.by)

if __name__ == "__main__":
    study = Study(Adding, {"by": [1, 3]}, seeds=2, turns=3, players="random",
                  outcome="total@last", tape=sys.argv[1])
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        study.run(executor=pool, progress=False)
    print(study.results["value"].tolist())
    own = Adding(players="random").manifest()["code"]
    tapes = [Tape(file, read_only=True) for file in study.tape.glob("*.tape")]
    print(len(tapes), all(tape.run().manifest["code"] == own for tape in tapes))
"""


def test_a_class_from_a_notebooks_cell_travels_and_keeps_its_digests(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NOTEBOOK, str(path)], capture_output=True, text=True, check=True
    )
    outcomes, same = done.stdout.splitlines()
    assert (outcomes, same) == ("[3.0, 3.0, 9.0, 9.0]", "4 True")


# --- Dask ----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")  # of a worker that is gone Dask warns in several ways
def test_a_dask_cluster_with_a_killed_worker_gives_what_one_process_gives(
    path: Path, one_kill: Path, kit: None, serial: pd.DataFrame, tmp_path: Path
) -> None:
    from distributed import Client, LocalCluster

    settings = {"n_workers": 2, "threads_per_worker": 1, "processes": True}
    settings |= {"dashboard_address": None, "local_directory": str(tmp_path / "dask")}
    with LocalCluster(**settings) as cluster, Client(cluster) as client:
        study = study_of(path, deadly_client)
        study.run(executor=client.get_executor(), progress=False)
    assert not one_kill.exists()
    assert study.counts == {"done": 12}
    pd.testing.assert_frame_equal(timeless(study), serial)
    check_folder(path, 12)
