"""Numbers as frames have them, numpy's, wherever a number is taken; True is none of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import make_client, played
from worlds import PublicGoods

from llmsim_lab import Budget, LLMConfig, Run, Tape, fork, load, replay, rerun, resume
from llmsim_lab.errors import LabError
from llmsim_lab.lab import Lab
from llmsim_lab.study import Study

REPLY = {"reasoning": "r", "amount": 1, "confidence": 1}


def client() -> Any:
    return make_client(REPLY)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("numbers") / "x.tape"
    played(PublicGoods(llm_client=client(), tape=path), 2).close()
    return path


@pytest.fixture(scope="module")
def study() -> Study:
    return Study(
        PublicGoods, {"factor": [1, 2]}, seeds=2, turns=1, players="random", outcome="coins.Ann"
    ).run(progress=False)


class Sized(PublicGoods):
    size: int = 1
    ratio: float | None = None


def plain(**more: Any) -> Run[Any]:
    return Sized(players="random", **more)


def small_study(**more: Any) -> Study:
    settings: dict[str, Any] = {"players": "random", "seeds": 2, "turns": 1}
    return Study(PublicGoods, **{**settings, "outcome": "coins.Ann", **more})


def asked_again(path: Path, **more: Any) -> Study:
    settings: dict[str, Any] = {"samples": 1, "outcome": "coins.Ann", "llm_client": client()}
    return Study.again(path, **{**settings, **more})


ON_TAPE: dict[str, Callable[[Path, Any], Any]] = {
    "replay": lambda path, n: replay(path, n).turns,
    "replay turns": lambda path, n: replay(path, turns=n).turns,
    "load": lambda path, n: load(path, n).turns,
    "resume": lambda path, n: resume(path, n, llm_client=client()).close(),
    "rerun": lambda path, n: rerun(path, n, llm_client=client()).close(),
    "fork": lambda path, n: fork(path, n, llm_client=client()).close(),
    "fork turn": lambda path, n: fork(path, 1, turn=n, llm_client=client()).close(),
    "page": lambda path, n: load(path, n).page(path.with_suffix(".html")),
    "calls": lambda path, n: len(Tape(path).calls(n, turn=n)),
    "call": lambda path, n: Tape(path).call(n).id,
    "outside": lambda path, n: Tape(path).outside(n, n),
    "frame": lambda path, n: len(Tape(path).calls_frame(n)),
    "compare": lambda path, n: len(Tape(path).compare(n, n)),
    "again": lambda path, n: asked_again(path, run=n).units,
    "again runs": lambda path, n: asked_again(path, run=np.array([n])).units,
    "again turns": lambda path, n: asked_again(path, turns=[n]).units,
    "again samples": lambda path, n: asked_again(path, samples=n).units,
    "window": lambda path, n: Lab(path, run=n).show(n, run=n),
    "window fork": lambda path, n: Lab(path, llm_client=client()).fork(n, run=n).turn_number,
    "seed": lambda _, n: plain(seed=n).config,
    "turns": lambda _, n: plain(turns=n).run(n).shape,
    "replicate": lambda _, n: plain(replicate=n).config,
    "parameters": lambda _, n: plain(size=n, ratio=n, factor=n).config,
    "interventions": lambda _, n: plain(interventions=[{"turn": n, "note": "n"}]).config,
    "budget": lambda _, n: Budget(calls=n),
    "settings": lambda _, n: LLMConfig(seed=n, temperature=n, retry_wait_s=n, max_tokens=n),
    "seeds": lambda _, n: small_study(seeds=n).units,
    "list of seeds": lambda _, n: small_study(seeds=np.array([n])).units,
    "levels": lambda _, n: [*small_study(vary={"factor": np.array([n, 2])}).arms],
}


@pytest.mark.parametrize("way", ON_TAPE)
def test_a_number_of_numpys_is_a_number_and_true_is_not(
    way: str, recorded: Path, tmp_path: Path
) -> None:
    def given(number: Any, name: str) -> Any:
        path = tmp_path / f"{name}.tape"
        path.write_bytes(recorded.read_bytes())
        return ON_TAPE[way](path, number)

    assert repr(given(np.int64(1), "a")).replace("/a.", "/b.") == repr(given(1, "b"))
    if way != "levels":  # of which True may be one
        for wrong in (True, np.bool_(True)):
            with pytest.raises(LabError):
                given(wrong, "c")


def test_runs_of_a_study_are_named_by_numpys_numbers_too(study: Study) -> None:
    arm = study.reference
    assert study.tape_of(arm, np.int64(1)) == study.tape_of(arm, 1)  # type: ignore[arg-type]
    assert study.simulation(arm, np.int64(1), replicate=np.int8(1)).turn_number == 1  # type: ignore[arg-type]
    with pytest.raises(LabError, match="no arm 'factor=1' with a unit 'True'"):
        study.tape_of(arm, True)


def test_a_run_that_takes_the_number_of_a_pruned_one_is_known_by_every_object(path: Path) -> None:
    played(PublicGoods(players="random", tape=path, name="old"), 1).close()
    other = Tape(path)
    assert other.run(1).name == "old"
    Tape(path).prune([1])
    played(PublicGoods(players="random", tape=path, name="new"), 1).close()
    assert (other.run(1).name, other.run(1).manifest["config"]["name"]) == ("new", "new")
