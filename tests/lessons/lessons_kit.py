"""Hand-ins and players for the tests of lessons."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from llmsim_lab import LLMClient, LLMConfig, ScriptedBackend, data_path
from llmsim_lab.study import Study

WORLD = data_path("templates/contract_net.py")
CONDITIONS = ["baseline", "homogeneous", "overconfident"]


def cell(source: str, kind: str = "code", tags: tuple[str, ...] = ()) -> dict[str, Any]:
    made: dict[str, Any] = {"cell_type": kind, "source": source, "metadata": {}}
    if tags:
        made["metadata"] = {"tags": list(tags)}
    return made | ({"outputs": [], "execution_count": None} if kind == "code" else {})


def write_notebook(path: Path, *cells: dict[str, Any]) -> None:
    content = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    path.write_text(json.dumps(content))


def model(name: str) -> LLMClient:
    reply = {"reasoning": "so", "confidence": 0.5, "bid": True, "sure": 70}
    return LLMClient(LLMConfig(model=name), ScriptedBackend(lambda request: reply))


def play_class_exercise(world: Any, folder: Path, *, name: str = "small") -> None:
    """Play three conditions with two seeds; another model's runs lie beside, in ``other``."""
    for part, conditions, model_name in (
        ("study", CONDITIONS, name),
        ("other", CONDITIONS[2:], "large"),
    ):
        study = Study(
            world,
            vary={"condition": conditions},
            seeds=2,
            turns=2,
            outcome="share_right@last",
            llm_client=model(model_name),
            tape=folder / part,
        )
        study.run(progress=False)


def hand_in(folder: Path, played: Path, answer: str, *, more: str = "") -> Path:
    """Write a hand-in: the runs, their world, and a notebook with an answer."""
    folder.mkdir(parents=True)
    shutil.copytree(played / "study", folder / "study")
    shutil.copy(WORLD, folder)
    write_notebook(
        folder / "bids.ipynb",
        cell("%matplotlib inline\nfrom llmsim_lab.lessons import grade_answer"),
        cell(f"{more}\ngrade_answer(1, {answer})"),
    )
    return folder
