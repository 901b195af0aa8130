"""Studies whose runs are handed to workers, here threads: how many, what is lost, what collides."""

from __future__ import annotations

from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import study_kit
from builders import recorded
from study_kit import check_folder, instant_client, played, timeless

from llmsim_lab import Budget, resume
from llmsim_lab.errors import ConfigError
from llmsim_lab.study import Study


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "study"


def study_of(tape: Path | None = None, model: Any = instant_client, *, seeds: int = 2) -> Study:
    vary = {"factor": [1.0, 2.0]}
    return study_kit.study_of(vary=vary, seeds=seeds, turns=2, tape=tape, llm_client=model)


@pytest.fixture(scope="module")
def serial() -> pd.DataFrame:
    """What a study gives that is played here."""
    return timeless(played(study_of()))


class Counting(ThreadPoolExecutor):
    """Counts how many jobs it has at once."""

    def __init__(self) -> None:
        super().__init__(8)
        self.left = self.most = 0

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.left += 1
        self.most = max(self.most, self.left)
        future = super().submit(fn, *args, **kwargs)
        future.add_done_callback(self._ended)
        return future

    def _ended(self, _: object) -> None:
        self.left -= 1


@pytest.mark.parametrize(("parallel", "most"), [(1, 1), (3, 3), (None, 4)])
def test_so_many_jobs_are_handed_out_at_once_and_all_if_nothing_is_said(
    path: Path, serial: pd.DataFrame, parallel: int | None, most: int
) -> None:
    path.mkdir()
    for job in study_of(path)._setup.files.jobs.values():
        # What a process left that was killed is no hindrance.
        (path / job.file_name).with_suffix(".part").write_text("half of a tape")
    with Counting() as executor:
        study = played(study_of(path), executor=executor, parallel=parallel)
    assert executor.most == most
    pd.testing.assert_frame_equal(timeless(study), serial)
    check_folder(path, 4)


class Losing(Executor):
    """Loses the first jobs of each run, as a worker does that is taken away."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.lost: dict[Any, int] = {}
        self.jobs: list[tuple[Any, ...]] = []
        self._pool = ThreadPoolExecutor(2)

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.jobs.append(args)
        key = args[1].key
        self.lost[key] = self.lost.get(key, 0) + 1
        if self.lost[key] <= self.times:
            future: Future[Any] = Future()
            future.set_exception(OSError("the worker is gone"))
            return future
        return self._pool.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._pool.shutdown(wait, cancel_futures=cancel_futures)


@pytest.mark.parametrize("times", [1, 2])
def test_a_lost_job_is_handed_out_again(path: Path, serial: pd.DataFrame, times: int) -> None:
    with Losing(times) as executor:
        study = played(study_of(path), executor=executor)
    # No two are equal: Dask would answer the second with the first one's loss.
    assert len(executor.jobs) == len(set(executor.jobs)) == 4 * (times + 1)
    pd.testing.assert_frame_equal(timeless(study), serial)


def test_a_job_that_is_lost_three_times_or_fails_is_a_failed_run(path: Path) -> None:
    def model() -> Any:
        raise OSError("no such server")

    with Losing(times=3) as executor:
        study = played(study_of(path, seeds=1), executor=executor)
    assert study.counts == {"failed": 2}
    assert set(study.runs["error"]) == {"its worker was lost: OSError: the worker is gone"}
    with ThreadPoolExecutor(1) as threads:
        study = played(study_of(None, model, seeds=1), executor=threads)
    [error] = set(study.runs["error"])
    assert error.startswith("OSError: no such server (")


def test_a_client_cannot_travel_and_the_way_out_is_named(path: Path) -> None:
    with ThreadPoolExecutor(1) as executor, pytest.raises(ConfigError, match="name the model"):
        played(study_of(path, instant_client()), executor=executor)
    with pytest.raises(ConfigError, match=r"executor=4 is not .*; give ProcessPoolExecutor\(\)"):
        played(study_of(path, instant_client()), executor=4)


class Meddling(ThreadPoolExecutor):
    """Continues a run, as by hand, while a worker plays it."""

    def __init__(self, path: Path) -> None:
        super().__init__(1)
        self.path = path

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        def both() -> Any:
            found = fn(*args, **kwargs)
            recorded(resume(self.path / args[1].file_name, llm_client=instant_client()), 1)
            return found

        return super().submit(both)


def test_a_run_that_was_continued_meanwhile_is_not_written_over(
    path: Path, serial: pd.DataFrame
) -> None:
    begun = played(study_of(path, instant_client()), budget=Budget(calls=7), parallel=4)
    assert begun.counts == {"stopped": 4}
    turns = begun.runs["turns"]
    with Meddling(path) as executor:
        study = played(study_of(path), executor=executor)
    assert study.counts == {"failed": 4}
    first = study.runs.iloc[0]
    assert first["error"].endswith(
        f"{first['tape']} was continued elsewhere meanwhile; run() takes up what is there"
    )
    assert list(path.glob("*.part")) == []
    assert study_of(path).runs["turns"].tolist() == (turns + 1).tolist()
    again = played(study_of(path))
    pd.testing.assert_frame_equal(timeless(again), serial)
    check_folder(path, 4)
