"""A server that echoes the key in every place of HTTP: none of it reaches a room, Lab or a tape.

What a client alone keeps of it, also in the local variables of errors: ``test_servers`` and
``llm/test_keys``.
"""

from __future__ import annotations

import asyncio
import copy
import io
import json
import logging
import os
import pickle
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from builders import until
from faults_kit import Attack, Case, Plan, serving
from lab_kit import Browser
from pydantic import Field
from room_kit import Visitor, open_room
from verbs_kit import command
from wire_kit import KEY, KEY_FAULTS, answer_chats_with, backend_at

from llmsim_lab import Ask, LLMClient, LLMConfig, Reply, Run, State, data_path
from llmsim_lab._util.text import errors_behind
from llmsim_lab.errors import LabError
from llmsim_lab.lab import Lab, PromptViewer, RunTree
from llmsim_lab.run.recorded import page

pytestmark = pytest.mark.process

PATIENCE_S = 30.0


class Words(State):
    last: dict[str, str] = Field(default_factory=dict)


class Word(Reply):
    action: str


class Talk(Run[Words]):
    """A person and a model each say a word, which all are told."""

    async def turn(self, state: Words, ask: Ask) -> Words:
        replies = await ask.each(("Ann", "Bob"), Word, "So far {{ state.last }}. And you?")
        for name, reply in replies.items():
            ask.note(name, said=reply.action, why=reply.reasoning)
        return Words(last={name: reply.action for name, reply in replies.items()})

    def told(self, state: Words, player: str) -> dict[str, Any]:
        return dict(state.last)

    def payoff(self, player: str) -> float:
        return 1.0


def client_at(port: int, kind: str) -> LLMClient:
    settings = LLMConfig(model="m", timeout_s=2, first_piece_s=2, retry_wait_s=0)
    return LLMClient(settings, backend_at(port, kind))


class Shown:
    """All that somebody could see; a key in it is a fault."""

    def __init__(self) -> None:
        self.places: dict[str, str] = {}

    def add(self, place: str, thing: object) -> None:
        text = thing if isinstance(thing, str) else repr(thing)
        self.places[f"{place} {len(self.places)}"] = text

    def add_object(self, place: str, thing: object) -> None:
        """Add what a debugger, a copy and a pickle show of an object."""
        self.add(place, thing)
        self.add(f"parts of {place}", getattr(thing, "__dict__", ""))
        # Not everything can be copied; other libraries' errors cannot.
        with suppress(TypeError, AttributeError, pickle.PicklingError, LabError):
            self.add(f"a copy of {place}", getattr(copy.copy(thing), "__dict__", ""))
            self.add(f"a pickle of {place}", pickle.dumps(thing).decode("latin-1"))

    def add_error(self, error: BaseException) -> None:
        """Add an error with those behind it, and the variables of its frames."""
        report = traceback.TracebackException.from_exception(error, capture_locals=True)
        self.add("a traceback", "".join(report.format()))
        for cause in errors_behind(error):
            self.add_object(f"a {type(cause).__name__}", cause)

    def add_files(self, folder: Path) -> None:
        for path in folder.rglob("*"):
            if path.is_file():
                self.add(path.name, path.read_bytes().decode("utf-8", "replace"))

    def check(self) -> None:
        assert len(self.places) > 3, "nothing was looked at"
        # Half of a key would be enough for somebody who tries the rest.
        places = [place for place, text in self.places.items() if KEY[8:] in text]
        assert not places, f"the key is in {places}"


@contextmanager
def echoing(fault: str, folder: Path) -> Iterator[tuple[int, Shown]]:
    """Serve with a fault; yields the port, and what is looked through, with log and files, after.

    Args:
        fault: echoes the key.
        folder: where files are written meanwhile.
    """
    shown = Shown()
    log = io.StringIO()
    logging.basicConfig(stream=log, level=logging.DEBUG, force=True)
    with serving(partial(answer_chats_with, fault)) as port:
        yield port, shown
    logging.basicConfig(handlers=[logging.NullHandler()], force=True)
    shown.add("log", log.getvalue())
    shown.add_files(folder)
    shown.check()


# --- places ---------------------------------------------------------------------------------------


async def in_a_room(fault: str, kind: str, folder: Path) -> None:
    """Play with a guest, and look at all that the room sends."""
    with echoing(fault, folder) as (port, shown):
        run = Talk(
            llm_client=client_at(port, kind),
            players={"Ann": "person, else random"},
            turns=1,
            tape=folder / "talk.tape",
        )
        async with open_room(run) as here:
            playing = asyncio.create_task(here.room.play())
            [guest] = await here.guests(1)
            teacher = await here.teacher()
            wall = here.visitor("projector/")
            await wall.enter(here.room.projector_link)
            teacher.watch()
            wall.watch()
            here.room.start()
            answering = asyncio.create_task(answer_as(guest))
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await playing
            except (LabError, TimeoutError) as error:
                shown.add_error(error)
            answering.cancel()
            for visitor in (guest, teacher, wall):
                shown.add("views", json.dumps(visitor.views))
                shown.add("now", json.dumps(await visitor.get()))
            shown.add("people", (await teacher.client.get(teacher.base + "people")).text)
            shown.add("the cell", here.room)
            for show in ("_repr_html_", "_repr_markdown_"):
                shown.add(show, getattr(here.room, show, str)())
        run.close()


async def answer_as(guest: Visitor) -> None:
    view = await guest.asked()
    values = {"action": "hold", "reasoning": "so"}
    await guest.post("do", {"do": "answer", "id": view["id"], "values": values})


def in_lab(fault: str, kind: str, folder: Path) -> None:
    """Step in the window, and show the tape everywhere."""
    path = folder / "x.tape"
    with echoing(fault, folder) as (port, shown):
        client = client_at(port, kind)
        run = Talk(llm_client=client, players={"Ann": "random"}, tape=path)
        window = Lab(run)
        browser = Browser(window)
        try:
            run.run(1, progress=False)
        except LabError as error:
            shown.add_error(error)
        try:
            asyncio.run(client.backend.model_info())
        except LabError as error:
            shown.add_error(error)
        for thing in (client, client.backend, client.config):
            shown.add_object(type(thing).__name__, thing)
        asyncio.run(press_step(browser))
        shown.add("messages", json.dumps(browser.heard))
        views: dict[str, Callable[[], object]] = {
            "Lab": window.static_html,
            "Lab's text": window.static_text,
            "prompts": PromptViewer(run).static_html,
            "tree": RunTree(run).static_html,
            "page": lambda: page(path, folder / "x.html"),
            "frames": lambda: run.tape.calls_frame().to_csv(),
            "show": lambda: command("tape", "show", path, "--turn", 1),
            "repr": lambda: (run, run.manifest()),
        }
        for name, show in views.items():
            with suppress(LabError):
                shown.add(name, show())
        window.close()
        run.close()


async def press_step(browser: Browser) -> None:
    """Press Step, and wait for what comes of it."""
    browser.send("play", run=1, turns=1)
    await asyncio.sleep(0)
    await until(lambda: not browser.latest("live")["busy"])


def on_the_command_line(fault: str, kind: str, folder: Path) -> None:
    """Ask for the models, and play, with a password in the address and a key in the environment."""
    with echoing(fault, folder) as (port, shown):
        address = f"http://somebody:{KEY}@127.0.0.1:{port}"
        model = "ollama:m"
        if kind == "OpenAI":
            model = "openai:m"
            address = f"{address}/v1"
        os.environ["OPENAI_API_KEY"] = KEY
        world = f"{data_path('templates') / 'public_goods.py'}:PublicGoods"
        server = ("--base-url", address)
        files = ("--out", folder / "out", "--tape", folder / "x.tape")
        shown.add("doctor", command("doctor", model, *server))
        shown.add("a run", command("run", world, "--model", model, *server, "--turns", 1, *files))
        for wrong in (f"{address}?key={KEY}", f"ftp://me:{KEY}@box", f"http://me:{KEY}@no host"):
            shown.add("a wrong address", command("doctor", "--host", wrong))


PLACES: dict[str, Callable[[str, str, Path], object]] = {
    "a room": in_a_room,
    "Lab": in_lab,
    "the command line": on_the_command_line,
}
KINDS = ("OpenAI", "Ollama")


def keys_shown(plan: Plan) -> Iterator[Case]:
    for number, (fault, _) in enumerate(plan.chosen(KEY_FAULTS, 3)):
        kind = KINDS[(plan.seed + number) % 2]
        for place, look in PLACES.items():
            steps = {place: partial(look, fault, kind)}
            yield Case(f"{fault}, {kind}, {place}", steps, may_raise=False, wall_s=120)


def test_a_key_that_a_server_echoes_is_in_no_byte_of_a_room_a_window_or_a_tape(
    attack: Attack,
) -> None:
    attack("words: keys echoed", keys_shown)
