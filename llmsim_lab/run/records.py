"""A run as a tape holds it: each turn as JSON, and the manifest of what defines the run.

A turn's calls are not written again: the turn names them by their numbers on the tape, and what in
it refers to a call of the turn says its place among them. The manifest is enough to play the run
again, and to tell two runs apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NotRequired, get_type_hints

from pydantic import ConfigDict, TypeAdapter, with_config
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
from llmsim_lab.run._any_run import AnyRun
from llmsim_lab.run._kept import decoded, encoded, kept_values
from llmsim_lab.run.config import StateChange
from llmsim_lab.run.frames import turn_row
from llmsim_lab.run.registry import RunClass, class_of_manifest
from llmsim_lab.run.turn import Turn
from llmsim_lab.tape import RunInfo
from llmsim_lab.tape.changes import differences
from llmsim_lab.types import Attempt, CallRecord, Places

Record = Mapping[str, Any]
"""A turn's record as a tape has it, JSON."""
Manifest = Mapping[str, Any]
"""What defines a run, as a tape has it, JSON."""

# Made once: an adapter takes milliseconds to make.
_CALLS: TypeAdapter[Any] = TypeAdapter(tuple[CallRecord, ...])
_MOST_OF_A_SETTING = 60


# --- turns ---------------------------------------------------------------------------------------


def tape_turn(
    run: AnyRun,
    turn: Turn,
    state: bytes = b"",
) -> tuple[int, bytes]:
    """Return a turn as the tape takes it: its number, and its record and row as parts of a line.

    Args:
        run: the run.
        turn: the turn, its calls recorded.
        state: its state as JSON, where it is known.

    Raises:
        ConfigError: a column of its row is not ready for JSON.
        TapeError: a call was not recorded, so that the turn could not be replayed.
    """
    # Those of past turns are in their turns' own records.
    planned = [change for change in run.planned if change.turn > turn.number]
    planned.sort(key=lambda change: change.turn)
    cls = type(run)
    # A step has it already, from reading the state back.
    state = state or encoded(turn.state, cls.state_type, Places(turn.calls))
    rest = dumps(_rest_of_record(turn, planned)).encode()
    row = dumps(row_on_tape(cls, turn)).encode()
    # Put together by bytes: the state is written once, however large it is. ``rest`` begins with a
    # brace, in whose place the state stands.
    return turn.number, b',"record":{"state":%b,%b,"row":%b' % (state, rest[1:], row)


def row_on_tape(cls: RunClass, turn: Turn) -> JSONObject:
    """Return a turn's row of the run's frame as a tape has it, JSON-ready.

    Raises:
        ConfigError: a column is not ready for JSON; says which.
    """
    row = turn_row(turn)
    # As most rows are; else each value goes through JSON and back.
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
    planned: Sequence[StateChange] = (),
) -> JSONObject:
    """Return a turn's record but for its state, JSON-ready."""
    values: dict[str, object] = {
        "turn": turn.number,
        "seconds": turn.seconds,
        "interventions": turn.interventions,
        "planned": tuple(planned),
        "by_code": turn.by_code,
        "noted": turn.noted,
        "became": turn.became,
        "story": turn.story,
    }
    if turn.led_to:  # a turn without one is written as before there were any
        values["led_to"] = turn.led_to
    try:
        record: JSONObject = _rest().dump_python(
            values,
            mode="json",
            by_alias=True,
            context=Places(turn.calls),
        )
    except PydanticSerializationError as error:
        raise TapeError(f"a turn cannot be written: {error}") from error
    # By their numbers on the tape, which has each attempt on a line of its own.
    record["calls"] = [[call.status, list(call.numbers)] for call in turn.calls]
    return record


@cache
def _rest() -> TypeAdapter[Any]:
    """Return what writes and reads a record but for its state and its calls."""
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
    """Return the turn that a record holds; its values must be of their types exactly.

    Args:
        cls: the run's class.
        record: the parsed JSON.
        attempts: gives the attempt of a number on the tape.

    Raises:
        TapeError: the record does not hold what it should; the tape is damaged.
    """
    rest = dict(record)
    with checked(f"turn {record.get('turn')} on the tape is damaged"):
        # Calls first: the rest names them by their places. Of a text, since of values strict
        # pydantic takes no list for a tuple.
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
        values = read(_rest(), dumps(rest), places)
        # What a run plans is the run's; see planned_in.
        del values["planned"]
        return Turn(
            number=values.pop("turn"),
            calls=calls,
            state=state,
            **values,
        )


def changed_values(before: Record, after: Record) -> str:
    """Return which values of two records, or rows of the frame, differ; at most three of them."""
    changes = []
    for path, then, now in differing(before, after, missing="not there")[:3]:
        changes.append(f"{clip(path, 80)} was {clip(then, 80)} and is {clip(now, 80)}")
    return "; ".join(changes)


def planned_in(records: Sequence[Record]) -> list[StateChange]:
    """Return what a run had planned: for turns that were played since, and for later ones.

    Args:
        records: of its turns, oldest first.
    """
    # Each record has what was planned when it was written, so that of each turn the record before
    # it says what was meant for it.
    played = []
    for record, after in pairwise(records):
        planned = interventions_of(record, "planned")
        played += [change for change in planned if change.turn == after["turn"]]
    return played + interventions_of(records[-1], "planned")


def interventions_of(record: Record, part: str) -> list[StateChange]:
    """Return what a record says was done at its turn, or was ``planned`` for later ones.

    Raises:
        TapeError: it cannot be read; the tape is damaged.
    """
    with checked(f"turn {record['turn']} on the tape is damaged"):
        return [StateChange.model_validate(values) for values in record[part]]


# --- the manifest --------------------------------------------------------------------------------


def entries_of(prompts: Mapping[str, Prompt]) -> dict[str, dict[str, str | None]]:
    """Return prompts as a manifest has them, by their places.

    The system message stands by itself too, since a message may hold a line such as ``## User``.
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
    """Return the configuration that a run was recorded with, of its class's own type.

    Args:
        info: the run.
        cls: its class; found by its name if not given.

    Raises:
        TapeError: this version of the package does not understand it.
    """
    if cls is None:
        cls = class_of_manifest(info.id, info.manifest)
    made_by = info.manifest.get("package")
    with checked(
        f"the run's configuration, recorded by llmsim-lab {made_by}, is not understood by this "
        "version"
    ):
        return cls.config_type.model_validate(info.manifest["config"])


def check_manifest(info: RunInfo, path: Path) -> None:
    """Raise TapeError for a manifest that lacks what a run is rebuilt from; the tape is damaged.

    Args:
        info: the run.
        path: of its tape.
    """
    if info.faults:
        raise TapeError(f"run {info.id} on {path} is damaged: {'; '.join(info.faults[:3])}")


def llm_config_of(manifest: Manifest, **changes: object) -> LLMConfig | None:
    """Return the recorded settings of the model's client, with changes; None if it had none.

    Raises:
        TapeError: this version of the package does not understand them.
    """
    settings = manifest["llm"]
    with checked("the settings of the model are not understood"):
        if settings is None:
            return None
        return LLMConfig.model_validate({**settings, **changes})


def clients_of(run: AnyRun) -> dict[str, LLMClient]:
    """Return the clients that a run asks, by seat; the run's own model has the empty name.

    The client of a contract's class such as a validator is its ``llm_client``.
    """
    clients: dict[str, LLMClient] = {}
    # The model first: a manifest names it apart from the seats.
    for seat, player in {"": run.llm_client, **run.players}.items():
        client = getattr(player, "llm_client", player)
        # Not by its class: a client around another one counts as well.
        if hasattr(client, "model_info"):
            clients[seat] = client
    return clients


def settings_entries(run: AnyRun) -> JSONObject:
    """Return the settings of a run's clients as a manifest has them: ``llm``, and by seat."""
    entries: JSONObject = {"llm": None}
    seats: JSONObject = {}
    for seat, client in clients_of(run).items():
        settings = client.config.model_dump(mode="json")
        if not seat:
            entries["llm"] = settings
        elif not isinstance(client.backend, Person):  # who has none
            seats[seat] = settings
    if seats:
        entries["seats"] = seats
    return entries


def recorded_settings(
    manifest: Manifest,
    turn: float = math.inf,
) -> dict[str, LLMConfig]:
    """Return what a run's clients were asked with at a turn, by seat; the latest if none is named.

    A run that was resumed with other settings has those of the turns before in its manifest too.

    Raises:
        TapeError: this version of the package does not understand them.
    """
    entries = manifest
    for earlier in manifest.get("settings_before", ()):
        # They are in the order of the turns, so that the first that fits is the one.
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
    """Return which settings differ but for the model's name: ``num_ctx 1024 → 16384``."""
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
    """Return settings by name, each option as ``options.NAME``; without the model's name."""
    settings: JSONObject = {}
    for name in LLMConfig.model_fields:
        if name not in ("model", "options") and name not in leave_out:
            settings[name] = plain(getattr(config, name))
    for name, value in config.options.items():
        settings[f"options.{name}"] = plain(value)
    return settings


def prompts_of(manifest: Manifest) -> dict[str, Prompt]:
    """Return the recorded prompts by the part that used them, as ``engine`` or ``agent:Ann``.

    Raises:
        TapeError: a prompt's text does not have the digest recorded for it.
    """
    prompts = {}
    recorded_prompt = cache(_recorded_prompt)  # once each: a thousand agents may share one prompt
    for place, entry in manifest.get("prompts", {}).items():
        with checked(f"the recorded prompt of {place} is damaged"):
            prompt = recorded_prompt(
                entry["text"],
                entry.get("system"),
                entry["name"],
                entry["parent"],
                entry["digest"],
            )
        # A prompt that was changed on the tape would be taken for the recorded one.
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
    """Return a prompt of a manifest, which may have another digest.

    Args:
        text: its text.
        system: its system message; None in tapes from before manifests had it by itself.
        name: its name.
        parent: digest of the prompt it was edited from.
        digest: its own, as recorded.
    """
    # ``of_text`` parses no headings: a system message may hold a line such as ``## User``.
    if system is not None:
        return Prompt.of_text(
            text,
            system=system,
            name=name,
            parent=parent,
        )
    with suppress(PromptError):
        # A text with headings of its own says by its digest whether it was parsed.
        prompt = Prompt.parse(
            text,
            name=name,
            parent=parent,
        )
        if prompt.digest == digest:
            return prompt
    return Prompt.of_text(
        text,
        system="",
        name=name,
        parent=parent,
    )
