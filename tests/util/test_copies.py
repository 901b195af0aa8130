"""What copies and pickles of objects that hold a server, a port or a window are."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from copy import copy, deepcopy
from pathlib import Path
from typing import Any

import pytest
from worlds import PublicGoods

from llmsim_lab import LLMClient, LLMConfig
from llmsim_lab.assistant import MCPToolExecutor
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab import Lab
from llmsim_lab.llm import OllamaBackend, OpenAIBackend
from llmsim_lab.room import Room
from llmsim_lab.study import Study


def goods(player: str) -> PublicGoods:
    return PublicGoods(players=player)


@pytest.mark.parametrize("copied", [copy, deepcopy, pickle.dumps], ids=["copy", "deep", "pickle"])
@pytest.mark.parametrize(
    ("make", "way_out"),
    [
        (lambda: Study(PublicGoods, seeds=1, outcome="coins.Ann"), r"give it a tape="),
        (lambda: Room(goods("person, else random")), r"Room\(run\.fork\(\)\)"),
        (lambda: Lab(goods("random")), r"such as Lab\(run\)"),
        (lambda: MCPToolExecutor(["tools"]), r"MCPToolExecutor\(server\)"),
    ],
    ids=["study", "room", "window", "tools"],
)
def test_what_there_is_one_of_cannot_be_copied_and_says_what_to_do(
    copied: Callable[[Any], object], make: Callable[[], Any], way_out: str
) -> None:
    with pytest.raises(ConfigError, match=f"cannot be copied or pickled.*{way_out}"):
        copied(make())


def test_a_copied_run_asks_the_same_client_and_a_client_is_not_pickled() -> None:
    run = PublicGoods(llm_client=LLMClient(LLMConfig(model="m"), OllamaBackend(key="s3cret")))
    assert deepcopy(run).llm_client is run.llm_client
    for held in (run, run.llm_client):
        with pytest.raises(ConfigError, match=r"an LLMClient cannot be pickled.*connect\("):
            pickle.dumps(held)


@pytest.mark.parametrize(
    "backend",
    [
        OllamaBackend("m", key="s3cret"),
        OpenAIBackend("m", base_url="http://127.0.0.1:9/v1", api_key="s3cret"),
    ],
    ids=["ollama", "openai"],
)
async def test_a_copied_backend_keeps_its_key_and_a_pickled_one_does_not(backend: Any) -> None:
    for other in (copy(backend), deepcopy([backend])[0]):
        assert await other.server.access.credential() is not None
    assert b"s3cret" not in pickle.dumps(backend)


@pytest.mark.parametrize(
    "copied", [copy, deepcopy, lambda study: pickle.loads(pickle.dumps(study))]
)
def test_a_copied_study_has_the_same_runs_on_the_same_tapes(tmp_path: Path, copied: Any) -> None:
    study = Study(PublicGoods, seeds=1, outcome="coins.Ann", players="random", tape=tmp_path)
    study.run(progress=False)
    assert copied(study).results.equals(study.results)
