"""``llmsim-lab run``, ``lint``, ``replay``, ``resume``, ``rerun`` and ``fork``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from llmsim_lab import run as operations
from llmsim_lab._util.config import read_config, yaml_value
from llmsim_lab._util.text import counted
from llmsim_lab.cli import _playing
from llmsim_lab.cli._output import open_folder, report, say
from llmsim_lab.cli._playing import Host, ImportFiles, Out
from llmsim_lab.errors import ConfigError
from llmsim_lab.prompts import Prompt
from llmsim_lab.run._config import PlayerWord
from llmsim_lab.run._records import check_manifest, config_of, llm_config_of, prompts_of
from llmsim_lab.run._registry import class_and_config
from llmsim_lab.run._run import existing_tape
from llmsim_lab.simulation import Simulation, SimulationConfig
from llmsim_lab.tape import RunInfo, Tape

_PLAYERS_WITHOUT_MODEL = frozenset(get_args(PlayerWord)) - {"model"}

TapeFile = Annotated[Path, typer.Argument(metavar="FILE", help="A tape.")]
RunNumber = Annotated[int | None, typer.Option(help="The run's number; the latest if not given.")]
_LiveTurns = Annotated[int | None, typer.Option(min=1, help="How many to play; else what is left.")]
_Model = Annotated[str | None, typer.Option(help=f"Instead of the file's: {_playing.MODEL_HELP}")]
_Other = Annotated[
    str | None, typer.Option(help=f"Instead of the recorded one: {_playing.OTHER_MODEL_HELP}")
]


def run(
    described: Annotated[
        str,
        typer.Argument(metavar="FILE", help="A run, YAML; or FILE.py:CLASS, a world of your own."),
    ],
    parameters: Annotated[
        Path | None, typer.Option("--config", help="The parameters of a world of your own, YAML.")
    ] = None,
    turns: Annotated[int | None, typer.Option(min=0, help="Instead of the file's.")] = None,
    model: _Model = None,
    tape: Annotated[Path | None, typer.Option(help="Record the run on this tape.")] = None,
    out: Out = Path("out/run"),
    host: Host = None,
) -> None:
    """Play the run that a file describes.

    A Python file is run as code, since it is named here: llmsim-lab run pot.py:PublicGoods.
    """
    run_class, config = _described(described, parameters)
    if model is not None:
        config = _played_by(model, config)
    if turns is not None:
        config = config.model_copy(update={"turns": turns})
    out = open_folder(out)  # before a model is connected, which may have to be fetched
    client = _playing.client_for(config, host=host)
    simulation = run_class(config, llm_client=client, tape=tape)
    _playing.play(simulation, config.turns, out)


def lint(
    described: Annotated[
        Path, typer.Argument(metavar="FILE", help="An economic run's configuration, YAML.")
    ],
) -> None:
    """Look for mistakes that published economic simulations have made; no model is asked.

    The status is 1 if there are findings.
    """
    cls, config = class_and_config(described, kind=Simulation.kind)
    if not isinstance(config, SimulationConfig):
        what = f"{described} describes a run of kind {cls.kind!r}"
        raise ConfigError(f"{what}, and this takes an economic run's configuration")
    found = Simulation(config).lint()
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
        what = f"--config {parameters} is for a world in a Python file, such as pot.py"
        raise ConfigError(f"{what}; {named} is a configuration itself")
    return class_and_config(named, kind=Simulation.kind)


def _played_by(model: str, config: Any) -> Any:
    """Return a configuration with another model, or with what ``--model`` names in its place."""
    if model not in _PLAYERS_WITHOUT_MODEL:
        return _playing.with_model(config, model)
    # The word stands for the model; players that are rules or people already stay what they are
    players = {who: word for who, word in config.players.items() if word != "model"}
    return config.model_copy(update={"players": {**players, "*": model}})


# --- recorded runs -------------------------------------------------------------------------------


def valid_run(tape: Tape, run: int | None) -> RunInfo:
    """Return one run, the latest if none is named, whose manifest has all it needs.

    Raises:
        TapeError: there is no such run, or its manifest is damaged.
    """
    info = tape.run(run)
    check_manifest(info)
    return info


def replay(
    file: TapeFile,
    run: RunNumber = None,
    import_: ImportFiles = None,
    out: Out = Path("out/replay"),
) -> None:
    """Play a recorded run again from its tape alone: no model, the same numbers."""
    with Tape(file, read_only=True) as tape:
        info = valid_run(tape, run)
        simulation = operations.replay(tape, info.id)
        report(simulation, open_folder(out))
        which = f"All {counted(simulation.turn_number, 'turn')} are from run {info.id} of {file}"
        say(f"{which}, replayed. No model was asked.")


def _continuing(verb: str, about: str) -> Any:
    """Return the command that plays live turns of a recorded run by this operation."""

    def command(
        file: TapeFile,
        run: RunNumber = None,
        turns: _LiveTurns = None,
        model: _Other = None,
        import_: ImportFiles = None,
        out: Out = Path(f"out/{verb}"),
        host: Host = None,
    ) -> None:
        with existing_tape(file) as tape:
            info = valid_run(tape, run)
            taped = info.turns if verb == "resume" else 0
            wanted, client = _prepared(info, taped, turns, model, host)
            begun = getattr(operations, verb)(tape, info.id, llm_client=client)
            _playing.play(begun, wanted, open_folder(out))

    command.__name__, command.__doc__ = verb, about
    return command


resume = _continuing("resume", "Continue a recorded run where it stopped, on the same tape.")
rerun = _continuing(
    "rerun", "Play a recorded run's configuration anew, with fresh calls, beside it on the tape."
)


def fork(
    file: TapeFile,
    run: RunNumber = None,
    turn: Annotated[
        int | None, typer.Option(min=0, help="The turn to continue from; the last if not given.")
    ] = None,
    prompt: Annotated[
        list[Path] | None,
        typer.Option(help="NAME.md in place of the prompt of that name; repeatable."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="inflation=9, coins.Ann=5: at that turn; repeatable."),
    ] = None,
    turns: _LiveTurns = None,
    model: _Other = None,
    import_: ImportFiles = None,
    out: Out = Path("out/fork"),
    host: Host = None,
) -> None:
    """Continue live from a turn of a recorded run, with something changed."""
    with existing_tape(file) as tape:
        info = valid_run(tape, run)
        at = info.turns if turn is None else turn
        changes = [{"turn": at, "set": _named_values(set_)}] if set_ else []
        known = {one.name: one for one in prompts_of(info.manifest).values()}
        prompts = []
        for one in map(Prompt.load, prompt or ()):
            recorded = known.get(one.name, one)
            parent = None if recorded == one else recorded.digest
            prompts.append(Prompt(one.user, system=one.system, name=one.name, parent=parent))
        wanted, client = _prepared(info, at, turns, model, host)
        begun = operations.fork(
            tape, info.id, turn=at, prompt=prompts, intervene=changes, llm_client=client
        )
        _playing.play(begun, wanted, open_folder(out))


def _named_values(texts: Iterable[str]) -> dict[str, Any]:
    """Return the values of ``NAME=VALUE`` texts by name, each read as a value in YAML.

    Raises:
        ConfigError: one is not of that form.
    """
    values = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise ConfigError(f"{text!r} is not a name and a value, like --set inflation=9")
        try:
            values[name.strip()] = yaml_value(value)
        except ValueError:  # a text such as "[draft" need not be quoted as in YAML
            values[name.strip()] = value
    return values


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
        what = f"run {info.id} has {info.turns} turns of {config.turns}, and none after {after}"
        way_out = "say how many more: --turns N" if after <= info.turns else "name one that it has"
        raise ConfigError(f"{what}; {way_out}")
    if model is not None and not config.needs_model:
        raise ConfigError(f"run {info.id} asks no model, so leave out --model {model}")
    # The client may have had other settings than those in the configuration.
    llm = llm_config_of(info.manifest) or config.llm
    if model is None and config.needs_model and (recorded := info.manifest["model"]):
        model = f"{recorded.get('backend')}:{recorded.get('name')}"
    llm = llm.model_copy(update={"model": model or config.llm.model})
    return wanted, _playing.client_for(config.model_copy(update={"llm": llm}), host=host)
