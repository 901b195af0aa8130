"""The whole story as a class lives it: the command, 24 people, absences, kill -9, the tapes."""

from __future__ import annotations

import asyncio
import importlib
import io
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pandas as pd
import pytest
from room_kit import Visitor

from llmsim_lab.tape import Tape

pytestmark = pytest.mark.process

TEMPLATES = Path(__file__).parents[2] / "data" / "templates"
PATIENCE_S = 60


@asynccontextmanager
async def command(folder: Path, *arguments: str) -> AsyncIterator[list[str]]:
    """Run the command; give the links that it prints, the people's, the wall's, the teacher's."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from llmsim_lab.cli import main; main()",
        "room",
        *arguments,
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    links: list[str] = []
    try:
        async with asyncio.timeout(PATIENCE_S):
            while len(links) < 3:
                line = (await process.stdout.readline()).decode()
                assert line, "the command ended"
                links += re.findall(r"http://\S+", line)
        yield links
    finally:
        process.send_signal(signal.SIGKILL)
        await process.wait()


async def test_a_class_plays_is_killed_and_plays_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pot.py").write_text((TEMPLATES / "public_goods.py").read_text())
    arguments = ("pot.py:PublicGoods", "--seats", "24", "--turns", "10", "--folder", "class")
    arguments += ("--vary", "factor=1.2,1.8")
    async with command(tmp_path, *arguments) as links:
        base, _, secret = links[0].partition("#")
        people = [Visitor(base) for _ in range(24)]
        for number, person in enumerate(people):
            reply = await person.post("join", {"name": f"Guest {number}", "secret": secret})
            assert reply.status_code == 200
            person.watch()
        teacher = Visitor(f"{base}teacher/")
        await teacher.enter(links[2])
        await teacher.press("start")
        for _ in range(3):
            await asyncio.gather(*[person.answer(3) for person in people])
        view = await teacher.get()
        assert (view["groups"], view["asked"]) == (6, 24)
        # One reloads with half an answer typed, one never comes back.
        asked = await people[0].asked()
        await people[0].look_away()
        people[0].watch()
        assert await people[0].asked() == asked
        await people[1].look_away()
        lost = people.pop(1)
        await teacher.press("fill", guest="p002")
        await people[0].answer(4)
    for person in people:  # the server is gone; pages try again by themselves
        await person.look_away()
    async with command(tmp_path, *arguments) as again:
        assert again == links
        for person in people:
            person.watch()
        last = await asyncio.gather(*[person.play(5) for person in people])
        assert [view["step"] for view in last] == ["done"] * 23
        view = await teacher.get()
        assert view["phase"] == "over"
        filled = [seat for row in view["rows"] for seat in row["seats"] if seat["filled"]]
        assert [(seat["guest"], seat["answered"]) for seat in filled] == [("p002", 3)]
        csv = (await teacher.client.get(f"{teacher.base}otree")).text
        table = pd.read_csv(io.StringIO(csv))
        assert len(table) == 24 * 10
        assert table["group.id_in_subsession"].unique().tolist() == [1, 2, 3, 4, 5, 6]
        for visitor in (*people, teacher, lost):
            await visitor.close()
    tapes = sorted((tmp_path / "class").glob("*.tape"))
    assert len(tapes) == 6
    monkeypatch.syspath_prepend(tmp_path)
    world = importlib.import_module("pot").PublicGoods
    statuses = []
    for path in tapes:
        tape = Tape(path, read_only=True)
        assert "Guest" not in path.read_text()
        run = world.load(tape)
        assert run.turn_number == 10
        replayed = world.replay(tape)
        assert replayed.state == run.state
        decisions = run.decisions()
        assert replayed.decisions().equals(decisions)
        statuses += decisions["status"].tolist()
    assert statuses.count("fallback") == 7
    assert statuses.count("ok") == 233
