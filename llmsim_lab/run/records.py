"""A run as a tape holds it: each turn as JSON, and the manifest, which defines the run.

A turn's record does not repeat its calls. It names them by their numbers on the tape, and other
parts of the record name a call by its place in the turn. The manifest has all that is needed to
play the run again, and to tell two runs apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter, with_config
from pydantic_core import PydanticSerializationError
from typing_extensions import TypedDict

from llmsim_lab._util.jsontext import (
    SCALARS,
    JSONObject,
    all_finite,
    checked,
    differing,
    dumps,
    loads,
    plain,
    read,
)
from llmsim_lab._util.text import clip
from llmsim_lab.errors import ConfigError, PromptError, TapeError
from llmsim_lab.llm import LLMClient, LLMConfig, Person
from llmsim_lab.prompts import Prompt
from llmsim_lab.prompts.prompt import RecordedPrompt
from llmsim_lab.run._any_run import AnyRun
from llmsim_lab.run._kept import ctrl_c_unchanged, decoded, encoded, kept_values
from llmsim_lab.run.config import StateChange
from llmsim_lab.run.frames import turn_row
from llmsim_lab.run.registry import RunClass, class_of_manifest
from llmsim_lab.run.turn import Turn
from llmsim_lab.tape import RunInfo
from llmsim_lab.tape.changes import differences
from llmsim_lab.tape.lines import Manifest as RecordedManifest
from llmsim_lab.tape.plans import NOTHING_PLANNED, PlanOfLine, PlanReader, PlanWriter
from llmsim_lab.types import Attempt, CallRecord, Places

Record = Mapping[str, Any]
"""A turn's record as a tape has it, JSON."""
Manifest = Mapping[str, Any]
"""All that defines a run, as a tape has it, JSON."""

# Made once, since making an adapter takes milliseconds.
_CALLS: TypeAdapter[Any] = TypeAdapter(tuple[CallRecord, ...])
_CHANGES: TypeAdapter[Any] = TypeAdapter(tuple[StateChange, ...])
_MOST_OF_A_SETTING = 60


# --- turns ---------------------------------------------------------------------------------------


class TurnOnTape(NamedTuple):
    """A turn as a tape takes it.

    Attributes:
        number: the turn's number.
        body: the members of its line.
        texts: what the line names by its digest.
    """

    number: int
    body: bytes
    texts: Sequence[str]


def tape_turn(
    run: AnyRun,
    turn: Turn,
    plan: PlanWriter,
    state: bytes = b"",
) -> TurnOnTape:
    """Return a turn as the tape takes it.

    Args:
        run: the run.
        turn: the turn, whose calls are recorded.
        plan: says what is planned.
        state: the turn's state as JSON, if the caller has it.

    Raises:
        ConfigError: a column of the turn's row is not ready for JSON.
        TapeError: a call was not recorded, so that the turn could not be replayed.
    """
    # Interventions of past turns are in those turns' records.
    planned = plan.at(run.planned, turn.number)
    cls = type(run)
    # A step has the JSON already, from reading the state back.
    state = state or encoded(turn.state, cls.state_type, Places(turn.calls))
    rest = dumps(_rest_of_record(turn, planned)).encode()
    row = dumps(row_on_tape(cls, turn)).encode()
    # Joined as bytes, so that the state, which may be large, is written only once. The brace that
    # ``rest`` begins with is cut off, since the state comes first.
    body = b',"record":{"state":%b,%b,"row":%b' % (state, rest[1:], row)
    return TurnOnTape(turn.number, body, [*planned.texts.values()])


def plan_writer() -> PlanWriter:
    """Return what says in a run's lines what is planned."""
    return PlanWriter(_changes_as_json)


def _changes_as_json(changes: Sequence[StateChange]) -> object:
    return _as_json(_CHANGES, tuple(changes), Places())


def _as_json(
    adapter: TypeAdapter[Any],
    values: object,
    places: Places,
) -> Any:
    """Return values of an adapter's type JSON-ready.

    Raises:
        TapeError: JSON cannot hold them.
    """
    try:
        with ctrl_c_unchanged():
            return adapter.dump_python(
                values,
                mode="json",
                by_alias=True,
                context=places,
            )
    except PydanticSerializationError as error:
        raise TapeError(f"a turn cannot be written: {error}") from error


def row_on_tape(cls: RunClass, turn: Turn) -> JSONObject:
    """Return a turn's row of the run's frame as a tape has it, JSON-ready.

    Raises:
        ConfigError: a column is not ready for JSON; the message names it.
    """
    row = turn_row(turn)
    # Most rows are plain; any other goes through JSON and back.
    if SCALARS.issuperset(map(type, row.values())) and all_finite(row):
        return row
    try:
        return kept_values(row)
    except ConfigError as error:
        raise ConfigError(f"{cls.__name__}, turn {turn.number}: the column {error}") from error


def record_of(cls: RunClass, turn: Turn) -> JSONObject:
    """Return a turn's record, JSON-ready.

    Args:
        cls: the run's class.
        turn: the turn.

    Raises:
        TapeError: a call was not recorded.
    """
    state = loads(
        encoded(
            turn.state,
            cls.state_type,
            Places(turn.calls),
        )
    )
    return {"state": state, **_rest_of_record(turn)}


def _rest_of_record(
    turn: Turn,
    planned: PlanOfLine = NOTHING_PLANNED,
) -> JSONObject:
    """Return a turn's record without its state, JSON-ready."""
    values: dict[str, object] = {
        "turn": turn.number,
        "seconds": turn.seconds,
        "interventions": turn.interventions,
        "planned": tuple(planned.rest),
        "by_code": turn.by_code,
        "noted": turn.noted,
        "became": turn.became,
        "story": turn.story,
    }
    if turn.led_to:  # left out if empty, so that older recordings, which lack it, stay equal
        values["led_to"] = turn.led_to
    record: dict[str, Any] = _as_json(_rest(), values, Places(turn.calls))
    if planned.texts:
        record["planned"] = [*planned.texts, *record["planned"]]
    # By their numbers on the tape, where each attempt has a line of its own.
    record["calls"] = [[call.status, list(call.numbers)] for call in turn.calls]
    return record


@cache
def _rest() -> TypeAdapter[Any]:
    """Return the adapter for a record without its state and calls."""
    hints = get_type_hints(Turn, include_extras=True)
    members = {
        "turn": int,
        "seconds": float,
        "interventions": tuple[StateChange, ...],
        "planned": tuple[StateChange, ...],
        "by_code": hints["by_code"],
        "noted": hints["noted"],
        "became": hints["became"],
        "story": hints["story"],
        "led_to": NotRequired[str],
    }
    record: Any = TypedDict("Record", members)  # type: ignore[misc]
    return TypeAdapter(with_config(ConfigDict(extra="forbid"))(record))


def decode_turn(
    cls: RunClass,
    record: Record,
    attempts: Callable[[int], Attempt],
) -> Turn:
    """Return the turn that a record holds; each value must have exactly its type.

    Args:
        cls: the run's class.
        record: the record, parsed from JSON.
        attempts: returns the attempt with a number on the tape.

    Raises:
        TapeError: the record holds something else; the tape is damaged.
    """
    rest = dict(record)
    with checked(f"turn {record.get('turn')} on the tape is damaged"):
        # Calls first, since the rest names them by their places. They are read from text: given
        # values, strict pydantic does not take a list for a tuple.
        calls = read(
            _CALLS,
            dumps(rest.pop("calls")),
            Places(attempts=attempts),
        )
        places = Places(calls, attempts)
        state = decoded(
            dumps(rest.pop("state")).encode(),
            cls.state_type,
            places,
        )
        # Planned interventions belong to the run and not to the turn; see planned_in.
        rest["planned"] = []
        values = read(_rest(), dumps(rest), places)
        del values["planned"]
        return Turn(
            number=values.pop("turn"),
            calls=calls,
            state=state,
            **values,
        )


def changed_values(before: Record, after: Record) -> str:
    """Return up to three differences between two records, or two rows of the frame, in words."""
    changes = []
    for path, then, now in differing(before, after, missing="not there")[:3]:
        changes.append(f"{clip(path, 80)} was {clip(then, 80)} and is {clip(now, 80)}")
    return "; ".join(changes)


def planned_in(
    records: Sequence[Record],
    plans: PlanReader,
) -> list[StateChange]:
    """Return a run's planned interventions: of turns played since, and of later turns.

    Args:
        records: the records of the run's turns, oldest first.
        plans: reads what they say is planned.

    Raises:
        TapeError: a record cannot be read; the tape is damaged.
    """
    # A record has the interventions that were planned when it was written. So the record before a
    # turn has those for the turn.
    played = []
    for record, after in pairwise(records):
        if not record["planned"]:  # as in most turns
            continue
        with _reading(record):
            played += _changes(plans.for_turn(record, after["turn"]))
    return played + planned_after(records[-1], plans)


def planned_after(record: Record, plans: PlanReader) -> list[StateChange]:
    """Return the interventions that a record says are planned, in the order of their turns.

    Raises:
        TapeError: the record cannot be read; the tape is damaged.
    """
    with _reading(record):
        planned = _changes(plans.after(record))
    planned.sort(key=lambda change: change.turn)
    return planned


def interventions_of(record: Record) -> list[StateChange]:
    """Return the interventions made at a record's turn.

    Raises:
        TapeError: the record cannot be read; the tape is damaged.
    """
    with _reading(record):
        return _changes(record["interventions"])


def _reading(record: Record) -> AbstractContextManager[None]:
    return checked(f"turn {record['turn']} on the tape is damaged")


def _changes(recorded: Iterable[object]) -> list[StateChange]:
    return [StateChange.model_validate(values) for values in recorded]


# --- the manifest --------------------------------------------------------------------------------


def entries_of(prompts: Mapping[str, Prompt]) -> dict[str, dict[str, str | None]]:
    """Return prompts in the form of a manifest, by their places.

    The system message is there separately too, since it may have a line such as ``## User``.
    """
    return {
        place: {
            "name": prompt.name,
            "digest": prompt.digest,
            "parent": prompt.parent,
            "system": prompt.system,
            "text": prompt.text,
        }
        for place, prompt in prompts.items()
    }


def config_of(info: RunInfo, cls: RunClass | None = None) -> Any:
    """Return the recorded configuration of a run, as its class's own type.

    Args:
        info: the run.
        cls: its class; found by its name if not given.

    Raises:
        TapeError: this version of the package cannot read the configuration.
    """
    if cls is None:
        cls = class_of_manifest(info.id, info.manifest)
    made_by = info.manifest.get("package")
    with checked(
        f"the run's configuration, recorded by llmsim-lab {made_by}, is not understood by this "
        "version"
    ):
        manifest = info.manifest
        if isinstance(manifest, RecordedManifest):
            return manifest.read("config", _config_form(cls.config_type))
        return cls.config_type.model_validate(manifest["config"])


@lru_cache(maxsize=64)  # one function for each class, by which a tape knows what it has read
def _config_form(config_type: type[BaseModel]) -> Callable[[str], Any]:
    return lambda text: config_type.model_validate(loads(text))


def check_manifest(info: RunInfo, path: Path) -> None:
    """Raise TapeError for a manifest that lacks something a run needs; the tape is damaged.

    Args:
        info: the run.
        path: the path of the tape.
    """
    if info.faults:
        raise TapeError(f"run {info.id} on {path} is damaged: {'; '.join(info.faults[:3])}")


def llm_config_of(manifest: Manifest, **changes: object) -> LLMConfig | None:
    """Return the recorded settings of the run's model, with changes; None if there was no model.

    Raises:
        TapeError: this version of the package cannot read the settings.
    """
    settings = manifest["llm"]
    with checked("the settings of the model are not understood"):
        if settings is None:
            return None
        return LLMConfig.model_validate({**settings, **changes})


def clients_of(run: AnyRun) -> dict[str, LLMClient]:
    """Return the clients that a run asks, by seat; the run's own model has the empty name.

    A player such as a validator has its client as ``llm_client``.
    """
    clients: dict[str, LLMClient] = {}
    # The model first, since a manifest names it apart from the seats.
    for seat, player in {"": run.llm_client, **run.players}.items():
        client = getattr(player, "llm_client", player)
        # Recognised by its method and not by its class: a client may wrap another one.
        if hasattr(client, "model_info"):
            clients[seat] = client
    return clients


def settings_entries(run: AnyRun) -> JSONObject:
    """Return the settings of a run's clients in the form of a manifest: ``llm``, and by seat."""
    entries: JSONObject = {"llm": None}
    seats: JSONObject = {}
    for seat, client in clients_of(run).items():
        settings = client.config.model_dump(mode="json")
        if not seat:
            entries["llm"] = settings
        elif not isinstance(client.backend, Person):  # a person has no settings
            seats[seat] = settings
    if seats:
        entries["seats"] = seats
    return entries


def recorded_settings(
    manifest: Manifest,
    turn: float = math.inf,
) -> dict[str, LLMConfig]:
    """Return the settings of a run's clients at a turn, by seat; the latest if no turn is given.

    The manifest of a run that was resumed with other settings has the earlier ones too.

    Raises:
        TapeError: this version of the package cannot read the settings.
    """
    entries = manifest
    for earlier in manifest.get("settings_before", ()):
        # They are in the order of the turns, so the first that reaches the turn is the right one.
        if turn <= earlier["last_turn"]:
            entries = earlier
            break
    by_seat = {"": entries["llm"], **entries.get("seats", {})}
    with checked("the settings of the model are not understood"):
        return {
            seat: LLMConfig.model_validate(settings)
            for seat, settings in by_seat.items()
            if settings is not None
        }


def changed_settings(
    before: LLMConfig,
    after: LLMConfig,
    *,
    leave_out: Container[str] = (),
) -> str:
    """Return which settings differ, apart from the model's name: ``num_ctx 1024 → 16384``."""
    then = _plain_settings(before, leave_out)
    now = _plain_settings(after, leave_out)
    return ", ".join(
        differences(
            then,
            now,
            most=_MOST_OF_A_SETTING,
        )
    )


def _plain_settings(config: LLMConfig, leave_out: Container[str]) -> JSONObject:
    """Return settings by name, with each option as ``options.NAME``, without the model's name."""
    settings: JSONObject = {}
    for name in LLMConfig.model_fields:
        if name not in ("model", "options") and name not in leave_out:
            settings[name] = plain(getattr(config, name))
    for name, value in config.options.items():
        settings[f"options.{name}"] = plain(value)
    return settings


def prompts_of(manifest: Manifest) -> dict[str, Prompt]:
    """Return the recorded prompts by place, such as ``engine`` or ``agent:Ann``.

    Raises:
        TapeError: a prompt's text does not have the digest recorded for it.
    """
    prompts = {}
    recorded_prompt = cache(
        _recorded_prompt
    )  # once for each prompt: a thousand agents may share one
    for place, entry in manifest.get("prompts", {}).items():
        with checked(f"the recorded prompt of {place} is damaged"):
            prompt = recorded_prompt(
                entry["text"],
                entry.get("system"),
                entry["name"],
                entry["parent"],
                entry["digest"],
            )
        # Else a prompt that was edited on the tape would pass for the recorded one.
        if prompt.digest != entry["digest"]:
            raise TapeError(f"the recorded prompt of {place} does not have its recorded digest")
        prompts[place] = prompt
    return prompts


def _recorded_prompt(
    text: str,
    system: str | None,
    name: str,
    parent: str | None,
    digest: str,
) -> Prompt:
    """Return a prompt from a manifest; its digest may differ from the recorded one.

    Args:
        text: the prompt's text.
        system: the system message; None on older tapes, which have it only in the text.
        name: the prompt's name.
        parent: the digest of the prompt that it was edited from.
        digest: the recorded digest.
    """
    # ``of_text`` does not parse headings: a system message may have a line such as ``## User``.
    if system is not None:
        return RecordedPrompt.of_text(
            text,
            system=system,
            name=name,
            parent=parent,
        )
    with suppress(PromptError):
        # If a text has headings, its digest shows whether they were parsed.
        prompt = RecordedPrompt.parse(
            text,
            name=name,
            parent=parent,
        )
        if prompt.digest == digest:
            return prompt
    return RecordedPrompt.of_text(
        text,
        system="",
        name=name,
        parent=parent,
    )
