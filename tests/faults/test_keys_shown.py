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
from faults_kit import Attack, Case, Plan, serving
from lab_kit import Browser, eventually
from pydantic import Field
from room_kit import Visitor, open_room
from verbs_kit import command
from wire_kit import FAULTS, KEY, answer_chats_with

from llmsim_lab import Ask, LLMClient, LLMConfig, Reply, Run, State, data_path
from llmsim_lab.errors import LabError
from llmsim_lab.lab import Lab, PromptViewer, RunTree
from llmsim_lab.llm import OllamaBackend, OpenAIBackend
from llmsim_lab.llm.calls.faults import errors_behind
from llmsim_lab.run.recorded import page

pytestmark = pytest.mark.process

PATIENCE_S = 30.0


class Told(State):
    words: dict[str, str] = Field(default_factory=dict)


class Word(Reply):
    action: str


class Talk(Run[Told]):
    """A person and a model each say a word, which all are told."""

    async def turn(self, state: Told, ask: Ask) -> Told:
        said = await ask.each(("Ann", "Bob"), Word, "So far {{ state.words }}. And you?")
        for name, word in said.items():
            ask.note(name, said=word.action, why=word.reasoning)
        return Told(words={name: word.action for name, word in said.items()})

    def told(self, state: Told, player: str) -> dict[str, Any]:
        return dict(state.words)

    def payoff(self, player: str) -> float:
        return 1.0


def client_at(port: int, kind: str) -> LLMClient:
    url = f"http://127.0.0.1:{port}"
    backend: Any = OpenAIBackend("m", base_url=f"{url}/v1", api_key=KEY)
    if kind == "Ollama":
        backend = OllamaBackend("m", host=url, key=KEY)
    settings = LLMConfig(model="m", timeout_s=2, first_piece_s=2, retry_wait_s=0)
    return LLMClient(settings, backend)


@contextmanager
def log_kept() -> Iterator[io.StringIO]:
    log = io.StringIO()
    logging.basicConfig(stream=log, level=logging.DEBUG, force=True)
    yield log
    logging.basicConfig(handlers=[logging.NullHandler()], force=True)


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
        with suppress(TypeError, AttributeError, pickle.PicklingError):
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
        # A half would do for who tries the rest.
        found = [place for place, text in self.places.items() if KEY[8:] in text]
        assert not found, f"the key is in {found}"


async def in_a_room(folder: Path, *, fault: str, kind: str) -> None:
    """Play with a guest, look at all that the room sends, and at its files."""
    shown = Shown()
    with serving(partial(answer_chats_with, fault)) as port, log_kept() as log:
        run = Talk(
            llm_client=client_at(port, kind),
            players={"Ann": "person, else random"},
            turns=1,
            tape=folder / "talk.tape",
        )
        async with open_room(run) as here:
            playing = asyncio.create_task(here.room.play())
            [guest] = await here.guests(1)
            teacher, wall = await here.teacher(), here.visitor("projector/")
            await wall.enter(here.room.projector_link)
            teacher.watch()
            wall.watch()
            here.room.start()
            answering = asyncio.create_task(answered(guest))
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
    shown.add("log", log.getvalue())
    shown.add_files(folder)
    shown.check()


async def answered(guest: Visitor) -> None:
    view = await guest.asked()
    values = {"action": "hold", "reasoning": "so"}
    await guest.post("do", {"do": "answer", "id": view["id"], "values": values})


def in_lab(folder: Path, *, fault: str, kind: str) -> None:
    """Step in the window, and show the tape everywhere."""
    shown = Shown()
    with serving(partial(answer_chats_with, fault)) as port, log_kept() as log:
        run = Talk(
            llm_client=client_at(port, kind), players={"Ann": "random"}, tape=folder / "x.tape"
        )
        window = Lab(run)
        browser = Browser(window)
        try:
            run.run(1, progress=False)
        except LabError as error:
            shown.add_error(error)
        try:
            asyncio.run(run.llm_client.backend.model_info())
        except LabError as error:
            shown.add_error(error)
        for thing in (run.llm_client, run.llm_client.backend, run.llm_client.config):
            shown.add_object(type(thing).__name__, thing)
        asyncio.run(stepped(window, browser))
        shown.add("messages", json.dumps(browser.heard))
        views: dict[str, Callable[[], object]] = {
            "Lab": window.static_html,
            "Lab's text": window.static_text,
            "prompts": PromptViewer(run).static_html,
            "tree": RunTree(run).static_html,
            "page": lambda: page(folder / "x.tape", folder / "x.html"),
            "frames": lambda: run.tape.calls_frame().to_csv(),
            "show": lambda: command("tape", "show", folder / "x.tape", "--turn", 1),
            "repr": lambda: (run, run.manifest()),
        }
        for name, show in views.items():
            with suppress(LabError):
                shown.add(name, show())
        window.close()
        run.close()
    shown.add("log", log.getvalue())
    shown.add_files(folder)
    shown.check()


def on_the_command_line(folder: Path, *, fault: str, kind: str) -> None:
    """Ask for the models, and play, with a password in the address and a key in the environment."""
    shown = Shown()
    with serving(partial(answer_chats_with, fault)) as port, log_kept() as log:
        address = f"http://somebody:{KEY}@127.0.0.1:{port}"
        model = "ollama:m"
        if kind == "OpenAI":
            model = "openai:m"
            address = f"{address}/v1"
        os.environ["OPENAI_API_KEY"] = KEY
        world = data_path("templates") / "public_goods.py"
        out = folder / "out"
        play = ("--turns", 1, "--out", out, "--tape", folder / "x.tape")
        address_option = ("--base-url", address)
        shown.add("doctor", command("doctor", model, *address_option))
        shown.add(
            "a run",
            command("run", f"{world}:PublicGoods", "--model", model, *address_option, *play),
        )
        for wrong in (f"{address}?key={KEY}", f"ftp://me:{KEY}@box", f"http://me:{KEY}@no host"):
            shown.add("a wrong address", command("doctor", "--host", wrong))
    shown.add("log", log.getvalue())
    shown.add_files(folder)
    shown.check()


async def stepped(window: Lab, browser: Browser) -> None:
    """Press Step, and wait for what comes of it."""
    browser.send("play", run=1, turns=1)
    await asyncio.sleep(0)
    await eventually(lambda: not browser.latest("live")["busy"], wait_s=PATIENCE_S)


PLACES: dict[str, Callable[..., object]] = {
    "a room": in_a_room,
    "Lab": in_lab,
    "the command line": on_the_command_line,
}


def keys_shown(plan: Plan) -> Iterator[Case]:
    echoes = {name: None for name in FAULTS if name.startswith("key")}
    for number, (name, _) in enumerate(plan.chosen(echoes, 3)):
        kind = ("OpenAI", "Ollama")[(plan.seed + number) % 2]
        for place, step in PLACES.items():
            steps = {place: partial(step, fault=name, kind=kind)}
            yield Case(f"{name}, {kind}, {place}", steps, may_raise=False, wall_s=120)


def test_a_key_that_a_server_echoes_is_in_no_byte_of_a_room_a_window_or_a_tape(
    attack: Attack,
) -> None:
    attack("words: keys echoed", keys_shown)
