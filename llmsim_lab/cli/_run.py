"""``llmsim-lab run``, ``lint``, ``replay``, ``resume``, ``rerun`` and ``fork``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from pydantic import BaseModel, ValidationError

from llmsim_lab import run as operations
from llmsim_lab._util.config import read_config, yaml_value
from llmsim_lab._util.text import counted, faults
from llmsim_lab.cli._output import end, open_folder, report, say
from llmsim_lab.cli._playing import (
    MODEL_HELP,
    OTHER_MODEL_HELP,
    Host,
    ImportFiles,
    Out,
    client_for,
    errors_located,
    import_files,
    play,
    with_model,
    world_from,
)
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMConfig, Tape
from llmsim_lab.prompts import Prompt
from llmsim_lab.run import Run
from llmsim_lab.run._config import PlayerWord, WorldConfig
from llmsim_lab.run._records import check_manifest, config_of, llm_config_of, prompts_of
from llmsim_lab.run._registry import class_of_config, config_from_file
from llmsim_lab.run._run import existing_tape
from llmsim_lab.simulation import lint as lint_economy
from llmsim_lab.tape._lines import RunInfo

_PLAYERS_WITHOUT_MODEL = frozenset(get_args(PlayerWord)) - {"model"}

TapeFile = Annotated[Path, typer.Argument(metavar="FILE", help="A tape.")]
_OtherTape = Annotated[
    Path | None,
    typer.Option("--to", help="Record on this tape, with a copy of what the run comes from."),
]
RunNumber = Annotated[
    int | None, typer.Option("--run", help="The run's number; the latest if not given.")
]
_Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="factor=2 or llm.seed=3: instead of the file's; repeatable."),
]
_LiveTurns = Annotated[
    int | None,
    typer.Option("--turns", min=1, help="How many to play; what the configuration has left."),
]
_OtherModel = Annotated[
    str | None, typer.Option("--model", help=f"Instead of the recorded one: {OTHER_MODEL_HELP}")
]


def run(
    described: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="A run's configuration, YAML; or FILE.py:CLASS, a world of your own. That file is "
            "run as code.",
        ),
    ],
    parameters: Annotated[
        Path | None, typer.Option("--config", help="The parameters of a world of your own, YAML.")
    ] = None,
    settings: _Settings = None,
    turns: Annotated[int | None, typer.Option(min=0, help="Instead of the file's.")] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help=f"Instead of the file's: {MODEL_HELP}; for a world of your own also random, or "
            "person, who is asked here"
        ),
    ] = None,
    tape: Annotated[
        Path | None, typer.Option(help="Record the run on this tape; made if it is not there.")
    ] = None,
    out: Out = Path("out/run"),
    host: Host = None,
) -> None:
    """Play the run that a file describes.

    A Python file is run as code, since it is named here: llmsim-lab run pot.py:PublicGoods.
    """
    run_class, config = _described(described, parameters)
    config = _with_values(config, named_values(settings or (), "--set turns=5"))
    if model is not None:
        config = _played_by(model, config)
    if turns is not None:
        config = config.model_copy(update={"turns": turns})
    out = open_folder(out)  # before a model is connected, which may have to be fetched
    if model not in {None, "rule", *_PLAYERS_WITHOUT_MODEL} and not config.needs_model:
        say(f"--model {model} is not asked: rules, chance or people play everybody", style="yellow")
    client = client_for(config, host=host)
    with errors_located():
        simulation = run_class(config, llm_client=client, tape=tape)
    failure = play(simulation, config.turns)
    report(simulation, out)
    if tape is not None:
        say(f"All of it is recorded as run {simulation.run_id} of {tape}.")
    simulation.close()
    end(simulation, config.turns, failure)


def lint(
    described: Annotated[
        Path, typer.Argument(metavar="FILE", help="An economic run's configuration, YAML.")
    ],
) -> None:
    """Look for mistakes that published economic simulations have made; no model is asked.

    The status is 1 if there are findings.
    """
    found = lint_economy(described)
    for finding in found:
        say(finding)
    say(f"{described}: {counted(len(found), 'finding')}")
    if found:
        raise typer.Exit(1)


def _described(named: str, parameters: Path | None) -> tuple[Any, Any]:
    """Return the class and the configuration that the command line names.

    Raises:
        ConfigError: a file is missing, or something in it is wrong.
    """
    if not (named.endswith(".py") or ".py:" in named):
        if parameters is not None:
            raise ConfigError(
                f"--config {parameters} is for a world in a Python file, such as pot.py; {named} "
                "is a configuration itself"
            )
        config = config_from_file(named, kind="economic")
        return class_of_config(config), config
    world = world_from(named)
    with errors_located():
        if parameters is None:
            return world, world.config_type()
        return world, read_config(parameters, world.config_type)


def _played_by(model: str, config: Any) -> Any:
    """Return a configuration with another model, or with what ``--model`` names in its place."""
    if isinstance(config, WorldConfig) and model in _PLAYERS_WITHOUT_MODEL:
        # The word stands for the model; players that are rules or people already stay what they are
        players = {who: word for who, word in config.players.items() if word != "model"}
        return config.model_copy(update={"players": {**players, "*": model}})
    if model == "rule" and hasattr(config, "by_rules"):
        return config.by_rules()
    return with_model(config, model)


def named_values(texts: Sequence[str], example: str) -> dict[str, Any]:
    """Return the values of ``NAME=VALUE`` texts by name, each read as a value in YAML.

    Raises:
        ConfigError: one is not of that form.
    """
    values = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise ConfigError(f"{text!r} is not a name and a value; write it like {example}")
        try:
            values[name.strip()] = yaml_value(value)
        except ValueError:  # a text such as "[draft" need not be quoted as in YAML
            values[name.strip()] = value
    return values


def _with_values(config: Any, values: Mapping[str, Any]) -> Any:
    """Return a configuration with other values, those inside others named like ``llm.seed``.

    Raises:
        ConfigError: there is no such name, or a value is wrong.
    """
    if not values:
        return config
    whole = dict(config)
    for name, value in values.items():
        first, *path = name.split(".")
        whole[first] = _with_value(whole.get(first), path, value)
    try:
        # Validated at the end only: two values may be right together and wrong one by one.
        return type(config).model_validate(whole)
    except ValidationError as error:
        raise ConfigError(f"--set: {faults(error, dict(config))}") from error


def _with_value(inside: Any, path: Sequence[str], value: Any) -> Any:
    if not path:
        return value
    found = inside.model_dump() if isinstance(inside, BaseModel) else inside
    found = dict(found) if isinstance(found, Mapping) else {}
    return {**found, path[0]: _with_value(found.get(path[0]), path[1:], value)}


def valid_run(tape: Tape, run: int | None) -> RunInfo:
    """Return one run, the latest if none is named, whose manifest has all it needs.

    Raises:
        TapeError: there is no such run, or its manifest is damaged.
    """
    info = tape.run(run)
    check_manifest(info)
    llm_config_of(info.manifest)
    return info


def model_text(info: RunInfo) -> str:
    """Return the text by which ``connect`` finds the model that a run was recorded with.

    Raises:
        ConfigError: no text does, since it was a script or a backend of the user's.
    """
    recorded = info.manifest["model"]
    if recorded is None:
        return str(config_of(info).llm.model)
    backend, name = recorded.get("backend"), recorded.get("name")
    if backend not in ("ollama", "embedded"):
        raise ConfigError(
            f"run {info.id} was recorded with the model {name!r} of the backend {backend!r}, which "
            "the command line cannot reach; name another with --model, for example --model auto"
        )
    return f"{backend}:{name}"


def replay(
    file: TapeFile,
    run: RunNumber = None,
    turns: Annotated[
        int | None, typer.Option(min=0, help="The last turn to replay; all if not given.")
    ] = None,
    import_: ImportFiles = None,
    out: Out = Path("out/replay"),
) -> None:
    """Play a recorded run again from its tape alone: no model, the same numbers."""
    import_files(import_)
    with Tape(file, read_only=True) as tape:
        info = valid_run(tape, run)
        open_folder(out)
        with errors_located():
            simulation = operations.replay(tape, info.id, turns=turns)
        report(simulation, out, taped=simulation.turn_number)
        say(
            f"All turns to {simulation.turn_number} are from the tape: run {info.id} of {file}, "
            "replayed. No model was asked."
        )


def resume(
    file: TapeFile,
    run: RunNumber = None,
    turns: _LiveTurns = None,
    model: _OtherModel = None,
    import_: ImportFiles = None,
    out: Out = Path("out/resume"),
    host: Host = None,
) -> None:
    """Continue a recorded run where it stopped, on the same tape."""
    import_files(import_)
    with existing_tape(file) as tape:
        info = valid_run(tape, run)
        begin = partial(operations.resume, tape, info.id)
        _play_live(begin, info, after=info.turns, turns=turns, model=model, host=host, out=out)


def _source(file: Path, to: Path | None) -> Tape:
    return existing_tape(file) if to is None else Tape(file, read_only=True)


def rerun(
    file: TapeFile,
    run: RunNumber = None,
    turns: _LiveTurns = None,
    model: _OtherModel = None,
    to: _OtherTape = None,
    import_: ImportFiles = None,
    out: Out = Path("out/rerun"),
    host: Host = None,
) -> None:
    """Play a recorded run's configuration anew, with fresh calls, beside it on the tape."""
    import_files(import_)
    with _source(file, to) as tape:
        info = valid_run(tape, run)
        begin = partial(operations.rerun, tape, info.id, to=to)
        _play_live(begin, info, after=0, turns=turns, model=model, host=host, out=out)


def fork(
    file: TapeFile,
    run: RunNumber = None,
    turn: Annotated[
        int | None, typer.Option(min=0, help="The turn to continue from; the last if not given.")
    ] = None,
    prompt: Annotated[
        list[Path] | None,
        typer.Option(help="NAME.md in the place of the recorded prompt of that name; repeatable."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="inflation=9 or coins.Ann=5: set it in that turn's state; repeatable."
        ),
    ] = None,
    shock: Annotated[
        list[str] | None,
        typer.Option(help="supply=2 or demand=-1: points, on the way to the next turn."),
    ] = None,
    turns: _LiveTurns = None,
    model: _OtherModel = None,
    to: _OtherTape = None,
    import_: ImportFiles = None,
    out: Out = Path("out/fork"),
    host: Host = None,
) -> None:
    """Continue live from a turn of a recorded run, with something changed."""
    import_files(import_)
    with _source(file, to) as tape:
        info = valid_run(tape, run)
        at = info.turns if turn is None else turn
        values = named_values(set_ or (), "--set inflation=9")
        by_name = named_values(shock or (), "--shock supply=2")
        values |= {f"shock.{name}": points for name, points in by_name.items()}
        changes = [{"turn": at, "set": values}] if values else []
        recorded = prompts_of(info.manifest).values()
        edited = [_edited(path, recorded) for path in prompt or ()]
        begin = partial(
            operations.fork, tape, info.id, to=to, turn=at, prompt=edited, intervene=changes
        )
        _play_live(begin, info, after=at, turns=turns, model=model, host=host, out=out)


def _turns_to_play(info: RunInfo, at: int, turns: int | None) -> int:
    """Return how many turns to play: as asked, or as many as the configuration has left."""
    if turns is not None:
        return turns
    configured: int = config_of(info).turns
    if configured <= at:
        raise ConfigError(
            f"run {info.id} has {info.turns} turns of the {configured} of its configuration, so "
            f"none is left to play after turn {at}; say how many more: --turns 4"
        )
    return configured - at


def _edited(file: Path, recorded: Iterable[Prompt]) -> Prompt:
    """Return a file's prompt as an edit of the recorded prompt of its name, if there is one."""
    prompt = Prompt.load(file)
    for old in recorded:
        if old.name == prompt.name and old != prompt:
            return old.edit(prompt.text)
    return prompt


def _play_live(
    begin: Callable[..., Run],
    info: RunInfo,
    *,
    after: int,
    turns: int | None,
    model: str | None,
    host: str | None,
    out: Path,
) -> None:
    """Begin a run from the tape, play its live turns, and say which turns are which.

    Raises:
        LabError: it cannot begin, or a model call failed; what was played until then is written.
    """
    # What can be wrong with the arguments is found before a model is loaded.
    wanted = _turns_to_play(info, after, turns)
    out = open_folder(out)
    config, client = config_of(info), None
    if config.needs_model:
        # The client may have had other settings than those in the configuration.
        settings = LLMConfig.model_validate(info.manifest["llm"] or config.llm)
        llm = settings.model_copy(update={"model": model or model_text(info)})
        client = client_for(config.model_copy(update={"llm": llm}), host=host)
    with errors_located():
        simulation = begin(llm_client=client)
    taped = simulation.turn_number
    failure = play(simulation, wanted)
    report(simulation, out, taped=taped)
    assert simulation.tape is not None
    where = f"recorded on {simulation.tape.path} as run {simulation.run_id}"
    last = simulation.turn_number
    played = f"turns {taped + 1} to {last} are live" if last > taped else "no turn was played live"
    say(f"Turns up to {taped} are from the tape; {played}, {where}.")
    simulation.close()
    end(simulation, taped + wanted, failure)
