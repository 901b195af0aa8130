"""The parts of a run: whose prompts are where, and copies of them for a fork.

A part is what a run keeps in an attribute of one of its kind's ``part_names``: one object, or a
sequence of objects with names. A prompt's place is ``engine`` for the part ``engine``, and
``agent:Ann`` for the one called Ann of the parts ``agents``.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Sized
from typing import Any

from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMClient
from llmsim_lab.prompts import Prompt

__all__ = [
    "belongs_to",
    "check_used",
    "code_changes",
    "copied",
    "counted",
    "digests_in",
    "made_of",
    "prompts_in",
]


def prompts_in(parts: Mapping[str, Any]) -> dict[str, Prompt]:
    """Return the prompts that parts use, by their places."""
    return {
        place: part.prompt
        for place, part in _placed(parts)
        if isinstance(getattr(part, "prompt", None), Prompt)
    }


def counted(parts: Mapping[str, Any]) -> str:
    """Return how many there are of each part that is several: ``, 3 agents, 2 modules``."""
    several = {
        name: part
        for name, part in parts.items()
        if isinstance(part, Sized) and not isinstance(part, Mapping)
    }
    return "".join(f", {len(part)} {name}" for name, part in several.items())


def digests_in(parts: Mapping[str, Any]) -> dict[str, Mapping[str, str]]:
    """Return the ``digests`` of those parts that have some, by their names."""
    found = {name: getattr(part, "digests", None) for name, part in parts.items()}
    return {name: digests for name, digests in found.items() if isinstance(digests, Mapping)}


def code_changes(what: str, recorded: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Say how code differs from what a run was recorded with; empty if it does not.

    Args:
        what: what the code is of, in the plural.
        recorded: its digests by name, as the manifest has them.
        now: the same of the code that is there.
    """
    found = [f"{name} is missing" for name in recorded if name not in now]
    found += [f"{name} is new" for name in now if name not in recorded]
    found += [
        f"{name} is {digest[:12]} and was {recorded[name][:12]}"
        for name, digest in now.items()
        if recorded.get(name, digest) != digest
    ]
    if not found:
        return ""
    return f"the {what} are not those that the run was recorded with: {', '.join(found)}"


def _placed(parts: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, part in parts.items():
        if isinstance(part, Sequence):
            yield from ((f"{_one_of(name)}:{item.name}", item) for item in part)
        else:
            yield name, part


def _one_of(name: str) -> str:
    return name.removesuffix("s")


def belongs_to(place: str, names: Collection[str]) -> bool:
    """Say whether a prompt's place is in one of the parts of these names."""
    one, colon, _ = place.partition(":")
    return place in names or (bool(colon) and any(_one_of(name) == one for name in names))


def made_of(client: LLMClient | None, parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return given parts; whatever of them can be called is called with the client to make one.

    Args:
        client: what the parts are to ask; None where there is no model.
        parts: by their names.

    Raises:
        ConfigError: one cannot be called with a client, or makes nothing.
    """
    return {
        name: _called(name, part, client) if callable(part) else part
        for name, part in parts.items()
    }


def _called(name: str, make: Callable[[LLMClient | None], Any], client: LLMClient | None) -> Any:
    forms = (
        f"give the part itself, {name}=..., or what makes it of a client, {name}=lambda client: "
        "...; a part that can itself be called needs the latter"
    )
    try:
        inspect.signature(make).bind(client)
    except ValueError:  # a callable of C's that does not say what it takes
        pass
    except TypeError as error:
        raise ConfigError(
            f"{name}={make!r:.120} cannot be called with the client alone: {error}; {forms}"
        ) from error
    made = make(client)
    if made is None:
        raise ConfigError(f"{name}={make!r:.120} returned None where a part is wanted; {forms}")
    return made


def copied(
    parts: Mapping[str, Any], client: LLMClient | None, prompts: Mapping[str, Prompt]
) -> dict[str, Any]:
    """Return copies of parts that ask another model, where one is given, with other prompts.

    Args:
        parts: by their names.
        client: the model instead of theirs.
        prompts: by the name of the prompt that each takes the place of.
    """

    def one(part: Any) -> Any:
        new = copy.copy(part)
        own = getattr(part, "own_client", False)  # a person's, who is no model to be exchanged
        if client is not None and hasattr(part, "llm_client") and not own:
            new.llm_client = client
        prompt = getattr(part, "prompt", None)
        if isinstance(prompt, Prompt) and prompt.name in prompts:
            new.prompt = prompts[prompt.name]
        return new

    return {
        name: [one(item) for item in part] if isinstance(part, Sequence) else one(part)
        for name, part in parts.items()
    }


_NONE_YET = "none, or none yet: what a world's turn asks with is known once it was asked"


def check_used(wanted: Collection[str], used: Collection[str]) -> None:
    """Refuse prompts that no part would use.

    Raises:
        ConfigError: it names them, and those there are.
    """
    if lost := set(wanted) - set(used):
        raise ConfigError(
            f"no part of the run uses a prompt named {', '.join(sorted(lost))}; "
            f"its prompts are: {', '.join(sorted(set(used))) or _NONE_YET}"
        )
