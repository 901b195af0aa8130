"""``llmsim-lab room``: a class in one world, from their own phones; and forgetting who it was."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from llmsim_lab._util.config import yaml_value
from llmsim_lab._util.text import counted
from llmsim_lab._util.waiting import run_sync
from llmsim_lab.cli._output import say
from llmsim_lab.cli._playing import world_from
from llmsim_lab.cli._study import study_from
from llmsim_lab.errors import ConfigError
from llmsim_lab.room import Room, forget_names
from llmsim_lab.run import Run
from llmsim_lab.study import Study

_LOOK_S = 0.2
_MOST_TURNS_ON_TRIAL = 3


class _OpenByDefault(TyperGroup):
    """``room WORLD`` opens one, ``room forget FOLDER`` is a command of its own."""

    # The type of a context is of a package that typer brings, or of its own copy, by its version.
    def parse_args(
        self,
        ctx: Any,
        args: list[str],
    ) -> list[str]:
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["open", *args]
        return super().parse_args(ctx, args)


room_app = typer.Typer(
    cls=_OpenByDefault,
    no_args_is_help=True,
    help="Let people play a world together, each from a phone or laptop of their own.",
)


@room_app.command("open")
def open_room(
    world: Annotated[
        str | None, typer.Argument(metavar="FILE.py:CLASS", help="A world of your own.")
    ] = None,
    study: Annotated[
        Path | None, typer.Option(help="A study's YAML, in place of a world; it names its people.")
    ] = None,
    seats: Annotated[
        int | None, typer.Option(min=1, help="For how many people; one group if not given.")
    ] = None,
    take: Annotated[
        str | None, typer.Option(help="Which seats of a group: Ann,Bob; else all that are asked.")
    ] = None,
    turns: Annotated[int | None, typer.Option(min=1, help="Instead of the world's.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="factor=1.8: a parameter of the world; repeatable."),
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(help="factor=1.2,1.8: groups differ in it, by chance; repeatable."),
    ] = None,
    fill: Annotated[str, typer.Option(help="Who answers in empty seats: random, rule, model.")] = (
        "random"
    ),
    model: Annotated[str | None, typer.Option(help="The model of seats that people leave.")] = None,
    timeout: Annotated[
        float | None, typer.Option(min=1, help="Seconds until a question is filled in.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Where it is kept; the same again continues it.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Who can come: 0.0.0.0 for the local network, over plain HTTP.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Any free one if not given.")] = 0,
    url: Annotated[str, typer.Option(help="What people open, behind a tunnel or proxy.")] = "",
    welcome: Annotated[
        Path | None, typer.Option(help="A file: what people read and agree to first.")
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="A file: a label a line, a link each.")
    ] = None,
    words: Annotated[Path | None, typer.Option(help="The pages' sentences, JSON.")] = None,
    try_out: Annotated[int, typer.Option(help="So many links that are so many people here.")] = 0,
) -> None:
    """Open a room for a world, or for a study whose players are people.

    Groups are runs of a study, each recorded on a tape in the folder. Ctrl-C ends the room; the
    same command opens it again with the same link, seats and answers.
    """
    # One of the two, and not both.
    if (world is None) == (study is None):
        raise ConfigError(
            "name a world, llmsim-lab room pot.py:PublicGoods --seats 24, or a study: "
            "llmsim-lab room --study study.yaml"
        )
    # The folder names the room: the same again finds its seats and tapes.
    if study is not None:
        played = study_from(study, tape=folder)
    else:
        assert world is not None
        played = _study_of_world(
            world,
            seats=seats,
            take=take,
            turns=turns,
            parameters=_named_values(set_ or ()),
            vary={name: _listed(values) for name, values in _split(vary or ())},
            fill=fill,
            model=model,
            folder=folder,
        )
    room = Room(
        played,
        timeout_s=timeout,
        welcome=welcome or "",
        labels=labels,
        words=words,
        host=host,
        port=port,
        url=url,
    )
    # Before anything is played: a port that is taken is said at once.
    room.open()
    say(f"People join at {room.link}\n  or open the address without what follows # and type")
    say(f"  the code {room.code}")
    for label, link in room.label_links.items():
        say(f"  {label}: {link}")
    trials = room.try_out(try_out) if try_out else []
    for number, link in enumerate(trials, start=1):
        say(f"  person {number}: {link}")
    say(f"The wall: {room.projector_link}\nYours, keep it to yourself: {room.teacher_link}")
    say(f"Kept in {played.tape}. Ctrl-C ends the room; the same command opens it again.")
    # Ctrl-C is how it ends: everything is in the folder by then.
    try:
        run_sync(_play_rounds(room))
    finally:
        room.close()


async def _play_rounds(room: Room) -> None:
    """Play one round after the other, until the command is ended."""
    while True:
        played = await room.play()
        say(f"Round {room.round} is over.\n{played}")
        # The pages stay: people see how it ended, and answer the closing questions. The teacher's
        # page begins another round, which is noticed here.
        while room.phase == "over":  # noqa: ASYNC110 - changed by the server's thread
            await asyncio.sleep(_LOOK_S)


def _study_of_world(
    named: str,
    *,
    seats: int | None,
    take: str | None,
    turns: int | None,
    parameters: Mapping[str, Any],
    vary: Mapping[str, Any],
    fill: str,
    model: str | None,
    folder: Path | None,
) -> Study:
    """Return a study with a run for each group, as many as there are people for."""
    world = world_from(named)
    names = [name.strip() for name in (take or "").split(",")]
    if not take:
        names = _seats_asked(world, parameters)
    # Rounded up: everybody has a seat, and something fills the last group.
    groups = max(1, math.ceil((seats or 1) / len(names)))
    arms = 1
    for levels in vary.values():
        arms *= len(levels)
    return Study(
        world,
        vary=vary,
        # A seed has a group in each arm.
        seeds=math.ceil(groups / arms),
        turns=turns,
        tape=folder or Path("out") / f"room {world.__name__}",
        llm_client=model,
        players=dict.fromkeys(names, f"person, else {fill}"),
        **parameters,
    )


def _seats_asked(
    world: type[Run],
    parameters: Mapping[str, Any],
) -> list[str]:
    """Return the players that a world asks, as a few turns by chance show."""
    # By chance and not by the first turn alone: some worlds ask others later.
    trial = world(players={"*": "random"}, **parameters)
    trial.run(_MOST_TURNS_ON_TRIAL, progress=False)
    # A dict in place of a set, which would have another order each time.
    names: dict[str, None] = {}
    for turn in trial.turns:
        names |= dict.fromkeys(answer.player for answer in turn.answers)
    if not names:
        raise ConfigError(
            f"{world.__name__} asked nobody in {_MOST_TURNS_ON_TRIAL} turns; say which seats "
            "people take: --take Ann,Bob"
        )
    return list(names)


def _split(texts: Sequence[str]) -> list[tuple[str, str]]:
    pairs = []
    for argument in texts:
        name, equals, value = argument.partition("=")
        if not equals:
            raise ConfigError(f"{argument!r} names no value; write NAME=VALUE, such as factor=1.8")
        pairs.append((name.strip(), value))
    return pairs


def _named_values(texts: Sequence[str]) -> dict[str, Any]:
    return {name: yaml_value(value) for name, value in _split(texts)}


def _listed(values: str) -> list[Any]:
    return [yaml_value(value) for value in values.split(",")]


@room_app.command()
def forget(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the room is kept.")],
) -> None:
    """Delete the names and labels of a room's participants; answers and seats stay."""
    count = forget_names(folder)
    say(f"{counted(count, 'name')} deleted from {folder}.")
