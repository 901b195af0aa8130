"""Comparisons on tapes: a run of the kind ``prompt experiment``, whose turns are the samples.

It is a child of the run whose turns it plays again, one run however many samples there are. Each
sample is committed whole, like a turn; answers to one that was interrupted are not asked for again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NoReturn

from llmsim_lab.errors import ConfigError, PromptError, TapeError, TapeMiss
from llmsim_lab.llm import LLMClient, LLMConfig, Tape
from llmsim_lab.prompts import Prompt
from llmsim_lab.run._records import tape_turn
from llmsim_lab.run._run import AnyRun, NoModel
from llmsim_lab.run._session import Replaying, Session, load_turns
from llmsim_lab.simulation import Simulation
from llmsim_lab.study._bench import Sample, Variant
from llmsim_lab.study._results import Played
from llmsim_lab.tape._lines import RunInfo

SETTINGS: Mapping[str, type] = {
    "component": str,
    "turns": list,
    "samples": int,
    "seed": int,
    "only_component": bool,
    "shared_seeds": bool,
}
"""A comparison's settings in a manifest, apart from its variants, with their types."""


class Samples(Simulation):
    """The class of a comparison on a tape: its turns are samples, which no operation plays."""

    kind = "prompt experiment"

    @classmethod
    def rebuilt(cls, config: Any, **_: Any) -> NoReturn:
        """Raise TapeError, since samples do not make a run."""
        del config
        raise TapeError(
            "this is a comparison of prompts, whose turns are samples; Comparison.load(tape, "
            "run) shows it"
        )


def check_is_run(info: RunInfo) -> None:
    """Raise TapeError if a run is a comparison of prompts; the message says what shows it."""
    if info.verb == "experiment":
        raise TapeError(
            f"run {info.id} is a comparison of prompts, whose turns are samples; "
            f"Comparison.load(tape, {info.id}) shows it"
        )


def begin(simulation: AnyRun, tape: Tape, *, settings: Mapping[str, Any], config: LLMConfig) -> int:
    """Begin a comparison on the tape that the run is on, and return its number there.

    Args:
        simulation: the run, which is on this tape.
        tape: the tape.
        settings: what defines the comparison.
        config: of the model's client.
    """
    parent = tape.run(simulation.run_id)
    manifest = {
        **parent.manifest,
        "kind": Samples.kind,
        "llm": config.model_dump(mode="json"),
        "model": None,  # written when the model first answers
        "experiment": dict(settings),
    }
    # Every run on a tape starts with a turn 0; the samples follow it as turns 1, 2, ...
    cls, start = type(simulation), simulation.turns[0]
    return tape.add_run(
        manifest,
        name=f"prompts of {settings['component']}",
        first=tape_turn(cls, cls.turn_type(number=0, state=start.state), {}),
        verb="experiment",
        parent=parent.id,
    )


def played_on(simulation: AnyRun, tape: Tape, run: int, schedule: Sequence[Sample]) -> list[Played]:
    """Return a comparison's samples as they were played.

    Raises:
        TapeError: the tape is damaged.
    """
    turns = load_turns(type(simulation), tape, run, tape.turn_records(run))[1:]
    if len(turns) > len(schedule):
        raise TapeError(
            f"comparison {run} on {tape.path} is damaged: it has {len(turns)} samples where "
            f"{len(schedule)} were planned"
        )
    # One that was interrupted has fewer turns than samples.
    return list(zip(schedule, turns, strict=False))


async def replayed(
    simulation: AnyRun,
    tape: Tape,
    run: int,
    played: Sequence[Played],
    *,
    play: Callable[[Sample, Session], Awaitable[Any]],
) -> list[Played]:
    """Return recorded samples played again, each compared with its record.

    Args:
        simulation: the run that the samples are of.
        tape: the tape.
        run: the comparison.
        played: its samples.
        play: plays one, with its calls answered from the recorder.

    Raises:
        TapeMiss: a call differs from the recorded ones.
        TapeError: a sample came out differently.
    """
    session = Replaying(type(simulation), tape, run, tape.turn_lines(run))
    again = []
    for sample, recorded in played:
        try:
            turn = await play(sample, session)
        except TapeMiss:
            if not any(chain.status == "failed" for chain in recorded.chains):
                raise
            turn = recorded  # calls cancelled when another one failed have no answer to replay
        again.append((sample, turn))
    return again


def has_no_model(client: LLMClient | None) -> bool:
    """Return True if there is no model: none given, or only the stand-in for a recorded one."""
    return client is None or isinstance(client.backend, NoModel)


def comparison_on(tape: Tape, run: int | None) -> RunInfo:
    """Return a comparison on a tape, the latest if none is named.

    Raises:
        TapeError: there is no comparison, or the run is not one.
    """
    there = [info for info in tape.runs() if info.verb == "experiment"]
    if run is not None:
        info = tape.run(run)
        if info.verb != "experiment":
            raise TapeError(
                f"run {run} on {tape.path} is not a comparison of prompts; comparisons there: "
                f"{', '.join(str(it.id) for it in there) or 'none'}"
            )
        return info
    if not there:
        raise TapeError(
            f"the tape {tape.path} holds no comparison of prompts; Comparison(...).run() records "
            "one"
        )
    return there[-1]


def parts_of(tape: Tape, info: RunInfo) -> list[RunInfo]:
    """Return a comparison of turns of several runs: one entry below each run, in their order.

    Raises:
        TapeError: not all of them are on the tape.
    """
    group, total = (info.manifest["experiment"].get(name) for name in ("group", "parts"))
    if group is None:
        return [info]
    there = {
        other.manifest["experiment"].get("part"): other
        for other in tape.runs()
        if other.verb == "experiment" and other.manifest["experiment"].get("group") == group
    }
    if sorted(there) != list(range(1, total + 1)):
        raise TapeError(
            f"comparison {info.id} is about {total} runs, and {tape.path} holds its samples of "
            f"{len(there)}: import the others too"
        )
    return [there[number] for number in sorted(there)]


def entries_of(
    variants: Mapping[str, Variant], arms: Mapping[str, Sequence[str]]
) -> list[dict[str, Any]]:
    """Return variants as a manifest has them: prompts with their texts, others by name alone."""
    arm_of = {name: arm for arm, names in arms.items() if len(names) > 1 for name in names}
    entries = []
    for name, variant in variants.items():
        entry: dict[str, Any] = {"variant": name}
        if name in arm_of:
            entry["arm"] = arm_of[name]
        if isinstance(variant, Prompt):
            entry |= {key: getattr(variant, key) for key in ("name", "text", "parent", "digest")}
        elif variant is None:
            entry["as"] = "recorded"
        else:
            entry["as"] = "model" if isinstance(variant, LLMClient) else "function"
        entries.append(entry)
    return entries


def arms_on(info: RunInfo) -> dict[str, list[str]]:
    """Return the names of each arm's wordings, which ``variants_on`` has read."""
    arms: dict[str, list[str]] = {}
    for entry in info.manifest["experiment"]["variants"]:
        arms.setdefault(str(entry.get("arm", entry["variant"])), []).append(str(entry["variant"]))
    return arms


def variants_on(info: RunInfo, given: Mapping[str, Any]) -> dict[str, Variant]:
    """Return a comparison's variants by name.

    Args:
        info: the comparison.
        given: functions and models by variant, which no tape holds.

    Raises:
        TapeError: the tape is damaged.
        ConfigError: a function or a model is not given again.
    """
    variants: dict[str, Variant] = {}
    try:
        for entry in info.manifest["experiment"]["variants"]:
            name = str(entry["variant"])
            if "as" in entry:
                if entry["as"] == "function" and name not in given:
                    again = f"{entry['arm']!r}: [...]" if "arm" in entry else f"{name!r}: ..."
                    raise ConfigError(
                        f"variant {name!r} of comparison {info.id} is a function, which no tape "
                        f"holds; give it again: load(..., prompt={{{again}}})"
                    )
                variants[name] = given.get(name)
                if entry["as"] == "model" and variants[name] is None:
                    variants[name] = LLMClient(recorded_config(info, name), NoModel())
                continue
            prompt = Prompt.parse(entry["text"], name=entry["name"], parent=entry["parent"])
            if prompt.digest != entry["digest"]:  # somebody edited the text on the tape
                raise TapeError(
                    f"comparison {info.id} on the tape is damaged: the prompt of variant "
                    f"{entry['variant']!r:.80} does not have its recorded digest"
                )
            variants[name] = prompt
    except (KeyError, TypeError, PromptError) as error:
        raise TapeError(f"comparison {info.id} on the tape is damaged: {error!r}") from error
    return variants


def recorded_settings(info: RunInfo) -> dict[str, Any]:
    """Return how a comparison was set up, as ``Comparison`` takes it.

    Raises:
        TapeError: the tape is damaged.
    """
    settings = info.manifest["experiment"]
    for name, expected in SETTINGS.items():
        if not isinstance(settings.get(name), expected):
            raise TapeError(
                f"comparison {info.id} on the tape is damaged: {name} is {settings.get(name)!r:.50}"
            )
    return {name: settings[name] for name in SETTINGS}


def recorded_config(info: RunInfo, variant: str = "") -> LLMConfig:
    """Return the settings that a comparison's model was asked with, or a variant's own model.

    Raises:
        TapeError: the tape is damaged.
    """
    try:
        models = info.manifest["experiment"].get("models") or {}
        return LLMConfig(**models.get(variant, info.manifest["llm"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TapeError(f"comparison {info.id} on the tape is damaged: {error}") from error


def storage_of(tape: Tape | None, loaded: int | None, *, total: int) -> str:
    """Return in words where a comparison's results are kept.

    Args:
        tape: the one that the run is on, if any.
        loaded: how many samples came from it; None where the comparison is not on it yet.
        total: how many samples there are to be.
    """
    if tape is None:
        return "Results are kept in memory only: the run is on no tape."
    name, remedy = tape.path.name, "open for reading only (pass Tape(path) to record them)."
    if not tape.read_only:
        return f"Results are recorded on {name}."
    if loaded is None:
        return f"Results are kept in memory only: {name} is {remedy}"
    there = f"{loaded} samples are recorded on {name}"
    if loaded == total:
        return f"All {there}."
    return f"{there}; further ones are kept in memory only, since it is {remedy}"
