"""``llmsim-lab run``, ``lint``, ``replay``, ``resume``, ``rerun`` and ``fork``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from pydantic import ValidationError

from llmsim_lab import run as operations
from llmsim_lab._util.config import YamlFile, read_config, yaml_value
from llmsim_lab._util.files import is_there
from llmsim_lab._util.text import brief, closest, counted, faults, listed
from llmsim_lab.cli import _playing
from llmsim_lab.cli._output import open_run_results, report, say
from llmsim_lab.cli._playing import Host, ImportFiles, Out
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMConfig
from llmsim_lab.llm.connecting import CONNECTED
from llmsim_lab.prompts import Prompt
from llmsim_lab.run.config import PlayerWord, StateChange, WorldConfig
from llmsim_lab.run.prompt_lint import prompt_orders
from llmsim_lab.run.recorded import existing_tape
from llmsim_lab.run.records import check_manifest, config_of, prompts_of, recorded_settings
from llmsim_lab.run.registry import class_and_config
from llmsim_lab.simulation import Simulation, SimulationConfig
from llmsim_lab.study.design import with_value
from llmsim_lab.tape import RunInfo, Tape

_PLAYERS_WITHOUT_MODEL = frozenset(get_args(PlayerWord)) - {"model"}

TapeFile = Annotated[Path, typer.Argument(metavar="FILE", help="A tape.")]
RunNumber = Annotated[int | None, typer.Option(help="The run's number; the latest if not given.")]
_Described = Annotated[
    str,
    typer.Argument(metavar="FILE", help="A run, YAML; or FILE.py:CLASS, a world of your own."),
]
_Parameters = Annotated[
    Path | None, typer.Option("--config", help="The parameters of a world of your own, YAML.")
]
_Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="llm.num_ctx=16384: a setting of the model; repeatable."),
]
_LiveTurns = Annotated[int | None, typer.Option(min=1, help="How many to play; else what is left.")]
_Model = Annotated[str | None, typer.Option(help=f"Instead of the file's: {_playing.MODEL_HELP}")]
_Other = Annotated[
    str | None, typer.Option(help=f"Instead of the recorded one: {_playing.OTHER_MODEL_HELP}")
]


def run(
    described: _Described,
    parameters: _Parameters = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="factor=2, llm.num_ctx=8192 or coins.Ann=5; repeatable."),
    ] = None,
    turns: Annotated[int | None, typer.Option(min=0, help="Instead of the file's.")] = None,
    model: _Model = None,
    tape: Annotated[Path | None, typer.Option(help="Record the run on this tape.")] = None,
    out: Out = Path("out/run"),
    host: Host = None,
) -> None:
    """Play the run that a file describes.

    A Python file is run as code, since it is named here: llmsim-lab run pot.py:PublicGoods. What
    --set names is a parameter of the world, or else a value of the state that the run starts from.
    """
    run_class, config = _described(described, parameters)
    config = _with_values(run_class, config, named_values(set_ or ()))
    if model is not None:
        config = _played_by(model, config)
    if turns is not None:
        config = config.model_copy(update={"turns": turns})
    # Before a model is connected, which may have to be fetched.
    results = open_run_results(out, parameters or Path(described))
    client = _playing.client_for(config, host=host)
    simulation = run_class(
        config,
        llm_client=client,
        tape=tape,
    )
    _playing.play(simulation, config.turns, results)


def lint(described: _Described, parameters: _Parameters = None) -> None:
    """Look for what makes a run slow or wrong; no model is asked.

    Up to five turns are played in which chance answers for the model. A line for each question says
    of its last turn how long its prompts are and how much of them is the same from their start; a
    finding, if they say too late what is the same for all. In economic runs it also looks for
    mistakes that published simulations have made. The status is 1 if there are findings.
    """
    world, config = _described(described, parameters)
    findings: list[object] = []
    if isinstance(config, SimulationConfig):
        findings += Simulation(config).lint()
    # A world of rules and people alone has no prompts that a server reads.
    orders = prompt_orders(world, config)
    if not orders:
        say("In its first turns no model answers for a player.")
    for order in orders:
        say(order)
        if order.is_late:
            findings.append(f"prompt order: {order.advice}")
    for finding in findings:
        say(finding)
    say(f"{described}: {counted(len(findings), 'finding')}")
    if findings:
        raise typer.Exit(1)


def _described(
    named: str,
    parameters: Path | None,
) -> tuple[Any, Any]:
    """Return the class and the configuration that the command line names.

    Raises:
        ConfigError: a file is missing, or something in it is wrong.
    """
    if named.endswith(".py") or ".py:" in named:
        world = _playing.world_from(named)
        config_type = world.config_type
        if parameters is None:
            return world, config_type()
        return world, read_config(parameters, config_type)
    file, _, name = named.rpartition(":")
    # A file's own name may have a colon in it.
    if file and not is_there(Path(named)) and is_there(Path(file)):
        raise ConfigError(f"{file} is not a Python file, so it has no world {name}")
    if parameters is not None:
        raise ConfigError(
            f"--config {parameters} is for a world in a Python file, such as pot.py; {named} is a "
            "configuration itself"
        )
    # Many try it; what is said of YAML in a tape's first line would help nobody.
    if named.endswith((".tape", ".tape.gz")):
        raise ConfigError(
            f"{named} is a tape, which is recorded; llmsim-lab run and lint take a run's YAML, or "
            f"FILE.py:CLASS. llmsim-lab tape show {named} says what is on it"
        )
    # Both are YAML: a study that is read as a run would be turned down for its first key.
    source = YamlFile.read(Path(named))
    if {"world", "vary"} <= source.values.keys():
        raise ConfigError(
            f"{named} describes a study; a run is described by YAML without vary, or by "
            f"FILE.py:CLASS. llmsim-lab study {named} run plays the study"
        )
    return class_and_config(source, kind=Simulation.kind)


def _with_values(
    world: Any,
    config: Any,
    values: Mapping[str, Any],
) -> Any:
    """Return a configuration with parameters set, and values of the state that it starts from.

    Raises:
        ConfigError: the world has neither of that name, or a value is wrong.
    """
    fields = type(config).model_fields
    changed = config
    state: dict[str, Any] = {}
    for name, value in values.items():
        first, *rest = name.split(".")
        if first not in fields:
            state[name] = value
            continue
        # Only what was set: other fields may follow from the changed one.
        kept = {field: getattr(changed, field) for field in changed.model_fields_set}
        kept[first] = with_value(
            getattr(changed, first),
            rest,
            value,
        )
        try:
            changed = type(config).model_validate(kept)
        except ValidationError as error:
            raise ConfigError(f"--set {name}={brief(value)}: {faults(error)}") from error
    if not state:
        return changed
    # The names of a state are known once there is one. No model is asked for it.
    trial = world(changed)
    try:
        trial.intervene(0, state)
    except ConfigError as error:
        # A misspelt parameter came as far as the state: what is said names both.
        parameters = [field for field in fields if field not in WorldConfig.model_fields]
        values_of_state = trial.turns[0].columns()
        for name, value in state.items():
            field = name.partition(".")[0]
            if field not in world.state_type.model_fields:
                near = closest(name, [*parameters, *values_of_state])
                raise ConfigError(
                    f"--set {name}={brief(value)}: {world.__name__} has no parameter "
                    f"{field!r}{near}; it has {', '.join(parameters) or 'none'}, and its state has "
                    f"{listed([*values_of_state])}"
                ) from error
        raise ConfigError(f"--set {', '.join(state)}: {error}") from error
    # As an intervention, so that the tape and config.yaml say that it was set.
    start = StateChange(turn=0, set=state)
    interventions = (start, *changed.interventions)
    return changed.model_copy(update={"interventions": interventions})


def _played_by(model: str, config: Any) -> Any:
    """Return a configuration with another model, or with what ``--model`` names in its place."""
    if model not in _PLAYERS_WITHOUT_MODEL:
        # A misspelt word would be looked for among models.
        near = closest(model, _PLAYERS_WITHOUT_MODEL)
        if near and ":" not in model:
            raise ConfigError(f"--model {model} is neither a model nor a player{near}")
        return _playing.with_model(config, model)
    # The word stands for the model; players that are rules or people already stay what they are.
    players = {name: word for name, word in config.players.items() if word != "model"}
    return config.model_copy(update={"players": {**players, "*": model}})


# --- recorded runs -------------------------------------------------------------------------------


def valid_run(tape: Tape, run: int | None) -> RunInfo:
    """Return one run, the latest if none is named, whose manifest has all it needs.

    Raises:
        TapeError: there is no such run, or its manifest is damaged.
    """
    info = tape.run(run)
    check_manifest(info, tape.path)
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
        report(simulation, open_run_results(out))
        turns = counted(simulation.turn_number, "turn")
        say(f"All {turns} are from run {info.id} of {file}, replayed. No model was asked.")


def _continuing(verb: str, about: str) -> Any:
    """Return the command that plays live turns of a recorded run by this operation."""

    def command(
        file: TapeFile,
        run: RunNumber = None,
        turns: _LiveTurns = None,
        model: _Other = None,
        set_: _Settings = None,
        import_: ImportFiles = None,
        out: Out = Path(f"out/{verb}"),
        host: Host = None,
    ) -> None:
        settings, values = _settings_in(named_values(set_ or ()))
        with existing_tape(file) as tape:
            info = valid_run(tape, run)
            # The first one is said: each of them is wrong, and has a way out of its own.
            for name, value in values.items():
                if name.partition(".")[0] in type(config_of(info)).model_fields:
                    raise ConfigError(
                        f"--set {name}={brief(value)}: {verb} keeps parameters and state; it takes "
                        f"settings of the model, --set llm.num_ctx=16384. {name} is a parameter: "
                        f"llmsim-lab run ... --set {name}={value!s:.60} starts a new run with "
                        "another one"
                    )
                raise ConfigError(
                    f"--set {name}={brief(value)}: {verb} keeps parameters and state; it takes "
                    f"settings of the model, --set llm.num_ctx=16384. llmsim-lab fork {file} --set "
                    f"{name}=... sets a value of the state"
                )
            # A rerun plays all turns anew.
            taped = 0
            if verb == "resume":
                taped = info.turns
            wanted, client = _prepared(
                info,
                taped,
                turns,
                model,
                host,
                settings,
            )
            # First, since a rerun is on the tape as soon as it is made.
            results = open_run_results(out)
            begun = getattr(operations, verb)(
                tape,
                info.id,
                llm_client=client,
            )
            _playing.play(begun, wanted, results)

    # One function for both, which differ in a word: typer makes name and help of these.
    command.__name__ = verb
    command.__doc__ = about
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
        typer.Option("--set", help="coins.Ann=5, at that turn; llm.num_ctx=16384; repeatable."),
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
        at = info.turns
        if turn is not None:
            at = turn
        # Here and not in fork(), so that the way out is an option of the command line.
        if at > info.turns:
            raise ConfigError(
                f"run {info.id} on {file} has turns 0 to {info.turns}, and no turn {at} to fork; "
                f"--turn {info.turns} continues from its last one"
            )
        settings, values = _settings_in(named_values(set_ or ()))
        changes = []
        if values:
            changes.append({"turn": at, "set": values})
        prompts = _edits(prompt or (), info)
        wanted, client = _prepared(
            info,
            at,
            turns,
            model,
            host,
            settings,
        )
        # First, since the fork is on the tape as soon as it is made.
        results = open_run_results(out)
        begun = operations.fork(
            tape,
            info.id,
            turn=at,
            prompt=prompts,
            intervene=changes,
            llm_client=client,
        )
        _playing.play(begun, wanted, results)


def _edits(
    files: Iterable[Path],
    info: RunInfo,
) -> list[Prompt]:
    """Return the prompts of files, each as an edit of the recorded one of its name."""
    recorded = {prompt.name: prompt for prompt in prompts_of(info.manifest).values()}
    edits = []
    for file in files:
        # Called after its file, by which it finds the prompt that it edits.
        new = Prompt.load(file)
        old = recorded.get(new.name, new)
        # So that a tape says which prompt it is an edit of. A file like the recorded one edits
        # nothing.
        parent = None if old == new else old.digest
        edits.append(
            Prompt(
                new.user,
                system=new.system,
                name=new.name,
                parent=parent,
            )
        )
    return edits


def named_values(texts: Iterable[str]) -> dict[str, Any]:
    """Return the values of ``NAME=VALUE`` texts by name, each read as a value in YAML.

    Raises:
        ConfigError: one is not of that form.
    """
    values = {}
    for argument in texts:
        name, sign, value = argument.partition("=")
        if not sign or not name.strip():
            raise ConfigError(f"{argument!r} is not a name and a value, like --set inflation=9")
        name = name.strip()
        if name in values:
            raise ConfigError(f"--set {name} is there twice; leave out one of them")
        try:
            values[name] = yaml_value(value)
        except ValueError:  # a text such as "[draft" need not be quoted as in YAML
            values[name] = value
    return values


def _settings_in(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return settings of the model's client by their own names, ``llm.`` left out; and the rest."""
    prefix = "llm."
    settings: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for name, value in values.items():
        if name.startswith(prefix):
            settings[name.removeprefix(prefix)] = value
        else:
            rest[name] = value
    return settings, rest


def _prepared(
    info: RunInfo,
    after: int,
    turns: int | None,
    model: str | None,
    host: str | None,
    settings: Mapping[str, Any],
) -> tuple[int, Any]:
    """Return how many turns to play after one, and the client, connected to the run's model.

    Raises:
        ConfigError: no turn is left, or the model cannot be reached from here.
    """
    config = config_of(info)
    # What can be wrong with the arguments is found before a model is loaded.
    wanted = turns
    if wanted is None:
        wanted = config.turns - after
    if wanted < 1:
        raise ConfigError(
            f"turn {after} is the last that run {info.id}'s configuration has (turns: "
            f"{config.turns}); say how many more to play: --turns 4"
        )
    if model is not None and not config.needs_model:
        raise ConfigError(f"run {info.id} asks no model, so leave out --model {model}")
    # Loud, since settings of a model that no one asks would change nothing.
    if settings and not config.needs_model:
        named = " ".join(f"--set llm.{name}=..." for name in settings)
        raise ConfigError(f"run {info.id} asks no model, so leave out {named}")
    if model in _PLAYERS_WITHOUT_MODEL:
        raise ConfigError(
            f"--model {model} is not a model, and the players of a recorded run stay what they "
            "are: leave it out for the recorded model, or name another, --model auto. Without a "
            f"model: llmsim-lab run ... --model {model}"
        )
    # The client may have had other settings than those in the configuration.
    recorded_llm = recorded_settings(info.manifest, max(1, after)).get("")
    llm = recorded_llm or config.llm
    recorded = info.manifest["model"]
    # The configuration may name none: the model was given as a client, or by --model.
    if model is None and config.needs_model and recorded:
        backend = recorded.get("backend")
        name = recorded.get("name")
        model = f"{backend}:{name}"
        if backend not in CONNECTED:
            raise ConfigError(
                f"run {info.id} was recorded with the model {name!r} of the backend {backend!r}, "
                "which the command line cannot reach; name another: --model auto"
            )
    values = {**llm.model_dump(), **settings}
    values["model"] = model or config.llm.model
    # All of them anew, since model_copy checks nothing.
    try:
        llm = LLMConfig(**values)
    except ConfigError as error:
        named = ", ".join(f"llm.{name}" for name in settings)
        raise ConfigError(f"--set {named}: {error}") from error
    config = config.model_copy(update={"llm": llm})
    return wanted, _playing.client_for(config, host=host)
