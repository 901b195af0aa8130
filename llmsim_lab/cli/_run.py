"""``llmsim-lab run``, ``lint``, ``replay``, ``resume``, ``rerun`` and ``fork``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from pydantic import ValidationError

from llmsim_lab import run as operations
from llmsim_lab._util.config import read_config, yaml_value
from llmsim_lab._util.text import counted, faults
from llmsim_lab.cli import _playing
from llmsim_lab.cli._output import end, open_folder, report, say
from llmsim_lab.cli._playing import Host, ImportFiles, Out
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMConfig, Tape
from llmsim_lab.prompts import Prompt
from llmsim_lab.run._config import PlayerWord, WorldConfig
from llmsim_lab.run._records import check_manifest, config_of, llm_config_of, prompts_of
from llmsim_lab.run._registry import class_of_config, config_from_file
from llmsim_lab.run._run import existing_tape
from llmsim_lab.simulation import lint as lint_economy
from llmsim_lab.tape._lines import RunInfo

_PLAYERS_WITHOUT_MODEL = frozenset(get_args(PlayerWord)) - {"model"}

TapeFile = Annotated[Path, typer.Argument(metavar="FILE", help="A tape.")]
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
    str | None,
    typer.Option("--model", help=f"Instead of the recorded one: {_playing.OTHER_MODEL_HELP}"),
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
            help=f"Instead of the file's: {_playing.MODEL_HELP}; for a world of your own also "
            "random, or person, who is asked here"
        ),
    ] = None,
    tape: Annotated[Path | None, typer.Option(help="Record the run on this tape.")] = None,
    out: Out = Path("out/run"),
    host: Host = None,
) -> None:
    """Play the run that a file describes.

    A Python file is run as code, since it is named here: llmsim-lab run pot.py:PublicGoods.
    """
    run_class, config = _described(described, parameters)
    config = _with_values(config, _named_values(settings, "--set turns=5"))
    if model is not None:
        config = _played_by(model, config)
    if turns is not None:
        config = config.model_copy(update={"turns": turns})
    out = open_folder(out)  # before a model is connected, which may have to be fetched
    client = _playing.client_for(config, host=host)
    simulation = run_class(config, llm_client=client, tape=tape)
    failure = _playing.play(simulation, config.turns)
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
    if named.endswith(".py") or ".py:" in named:
        world = _playing.world_from(named)
        its = world.config_type
        return world, its() if parameters is None else read_config(parameters, its)
    if parameters is not None:
        raise ConfigError(
            f"--config {parameters} is for a world in a Python file, such as pot.py; {named} is a "
            "configuration itself"
        )
    config = config_from_file(named, kind="economic")
    return class_of_config(config), config


def _played_by(model: str, config: Any) -> Any:
    """Return a configuration with another model, or with what ``--model`` names in its place."""
    if isinstance(config, WorldConfig) and model in _PLAYERS_WITHOUT_MODEL:
        # The word stands for the model; players that are rules or people already stay what they are
        players = {who: word for who, word in config.players.items() if word != "model"}
        return config.model_copy(update={"players": {**players, "*": model}})
    if model == "rule" and hasattr(config, "by_rules"):
        return config.by_rules()
    return _playing.with_model(config, model)


def _named_values(texts: Sequence[str] | None, example: str) -> dict[str, Any]:
    """Return the values of ``NAME=VALUE`` texts by name, each read as a value in YAML.

    Raises:
        ConfigError: one is not of that form.
    """
    values = {}
    for text in texts or ():
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
    whole = config.model_dump(mode="json", by_alias=True)
    for name, value in values.items():
        *path, last = name.split(".")
        inside = whole
        for part in path:
            if not isinstance(inside.get(part), dict):
                inside[part] = {}
            inside = inside[part]
        inside[last] = value
    try:
        # Validated at the end only: two values may be right together and wrong one by one.
        return type(config).model_validate(whole)
    except ValidationError as error:
        raise ConfigError(f"--set: {faults(error, dict(config))}") from error


# --- recorded runs -------------------------------------------------------------------------------


def valid_run(tape: Tape, run: int | None) -> RunInfo:
    """Return one run, the latest if none is named, whose manifest has all it needs.

    Raises:
        TapeError: there is no such run, or its manifest is damaged.
    """
    info = tape.run(run)
    check_manifest(info)
    llm_config_of(info.manifest)
    return info


def replay(
    file: TapeFile,
    run: RunNumber = None,
    import_: ImportFiles = None,
    out: Out = Path("out/replay"),
) -> None:
    """Play a recorded run again from its tape alone: no model, the same numbers."""
    _playing.import_files(import_)
    with Tape(file, read_only=True) as tape:
        info = valid_run(tape, run)
        simulation = operations.replay(tape, info.id)
        last = simulation.turn_number
        report(simulation, open_folder(out), taped=last)
        say(
            f"All turns to {last} are from the tape: run {info.id} of {file}, replayed. No model "
            "was asked."
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
    _playing.import_files(import_)
    with existing_tape(file) as tape:
        info = valid_run(tape, run)
        wanted, client = _prepared(info, info.turns, turns, model, host)
        _play_live(operations.resume(tape, info.id, llm_client=client), wanted, out)


def rerun(
    file: TapeFile,
    run: RunNumber = None,
    turns: _LiveTurns = None,
    model: _OtherModel = None,
    import_: ImportFiles = None,
    out: Out = Path("out/rerun"),
    host: Host = None,
) -> None:
    """Play a recorded run's configuration anew, with fresh calls, beside it on the tape."""
    _playing.import_files(import_)
    with existing_tape(file) as tape:
        info = valid_run(tape, run)
        wanted, client = _prepared(info, 0, turns, model, host)
        _play_live(operations.rerun(tape, info.id, llm_client=client), wanted, out)


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
        typer.Option("--set", help="inflation=9, coins.Ann=5, shock.supply=2: at that turn."),
    ] = None,
    turns: _LiveTurns = None,
    model: _OtherModel = None,
    import_: ImportFiles = None,
    out: Out = Path("out/fork"),
    host: Host = None,
) -> None:
    """Continue live from a turn of a recorded run, with something changed."""
    _playing.import_files(import_)
    with existing_tape(file) as tape:
        info = valid_run(tape, run)
        at = info.turns if turn is None else turn
        values = _named_values(set_, "--set inflation=9")
        changes = [{"turn": at, "set": values}] if values else []
        recorded = prompts_of(info.manifest).values()
        prompts = [_edited(path, recorded) for path in prompt or ()]
        wanted, client = _prepared(info, at, turns, model, host)
        begun = operations.fork(
            tape, info.id, turn=at, prompt=prompts, intervene=changes, llm_client=client
        )
        _play_live(begun, wanted, out)


def _edited(file: Path, recorded: Iterable[Prompt]) -> Prompt:
    """Return a file's prompt as an edit of the recorded prompt of its name, if there is one."""
    prompt = Prompt.load(file)
    for old in recorded:
        if old.name == prompt.name and old != prompt:
            return old.edit(prompt.text)
    return prompt


def _prepared(
    info: RunInfo, after: int, turns: int | None, model: str | None, host: str | None
) -> tuple[int, Any]:
    """Return how many turns to play after one, and the client, connected to the run's model.

    Raises:
        ConfigError: no turn is left, or the model cannot be reached from here.
    """
    config = config_of(info)
    # What can be wrong with the arguments is found before a model is loaded.
    wanted = config.turns - after if turns is None else turns
    if wanted < 1:
        raise ConfigError(
            f"run {info.id} has {info.turns} turns of the {config.turns} of its configuration, so "
            f"none is left to play after turn {after}; say how many more: --turns 4"
        )
    # The client may have had other settings than those in the configuration.
    llm = LLMConfig.model_validate(info.manifest["llm"] or config.llm)
    recorded = info.manifest["model"]
    if model is None and config.needs_model and recorded is not None:
        model = f"{recorded.get('backend')}:{recorded.get('name')}"
    llm = llm.model_copy(update={"model": model or config.llm.model})
    return wanted, _playing.client_for(config.model_copy(update={"llm": llm}), host=host)


def _play_live(simulation: Any, wanted: int, out: Path) -> None:
    """Play a recorded run's live turns, and say which turns are which.

    Raises:
        LabError: a model call failed; what was played until then is written.
    """
    out = open_folder(out)
    taped = simulation.turn_number
    failure = _playing.play(simulation, wanted)
    report(simulation, out, taped=taped)
    last = simulation.turn_number
    played = f"turns {taped + 1} to {last} are live" if last > taped else "no turn was played live"
    where = f"recorded on {simulation.tape.path} as run {simulation.run_id}"
    say(f"Turns up to {taped} are from the tape; {played}, {where}.")
    simulation.close()
    end(simulation, taped + wanted, failure)
