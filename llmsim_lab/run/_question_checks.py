"""Checks of what a turn asks, made before any player is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from llmsim_lab._util.text import brief
from llmsim_lab.errors import ConfigError
from llmsim_lab.prompts.prompt import is_file_name
from llmsim_lab.run.config import OnError
from llmsim_lab.run.question import SLOTS_OF_ALL, Batch
from llmsim_lab.types import Decision, Rationale, Reply


def check_arguments(batch: Batch, player: str) -> None:
    """Raise ConfigError if an argument of the question is one that no question takes.

    Args:
        batch: the question.
        player: the first player who is asked, for messages.
    """
    for name in batch.values:
        # A slot of this name would have two values.
        if name in SLOTS_OF_ALL:
            raise ConfigError(
                f"{name!r} has a value in every prompt already ({', '.join(SLOTS_OF_ALL)}); "
                "call yours something else"
            )
    # Checked now, because a misspelt word would silently count as "raise" when something fails.
    if batch.on_error is not None and batch.on_error not in get_args(OnError):
        raise ConfigError(
            f"on_error={brief(batch.on_error, 40)} must be one of {', '.join(get_args(OnError))}"
        )
    if not isinstance(batch.for_people, str) and not callable(batch.for_people):
        raise ConfigError(
            f"for_people={brief(batch.for_people)} of the question to {player} must be a text, or "
            "a function of the name that returns one"
        )
    if not isinstance(batch.system, str) or is_file_name(batch.system):
        raise ConfigError(
            f"system={brief(batch.system)} of the question to {player} must be the text of the "
            "system message itself; a prompt's file has it below '## System', without system="
        )


def check_reply(
    reply: object,
    player: str,
    rationale: Rationale,
) -> None:
    """Raise ConfigError if the reply is not a class of replies, or cannot follow ``rationale``.

    Args:
        reply: the class that the player is asked for.
        player: the first player who is asked, for messages.
        rationale: where in a reply the run wants the reasoning.
    """
    if not (isinstance(reply, type) and issubclass(reply, Decision)):
        raise ConfigError(
            f"{player} is asked for {brief(reply)}; ask for a class derived from Reply: class "
            "Gift(Reply): amount: int"
        )
    if rationale == "before":  # every class can do that
        return
    if "reasoning" in reply.model_fields and not issubclass(reply, Reply):
        raise ConfigError(
            f"rationale={rationale!r} does not reach {reply.__name__}, which {player} is asked "
            "for: its class has a fixed form. Leave rationale= out, or ask for a class derived "
            "from Reply"
        )


def check_names(names: Sequence[object]) -> None:
    """Raise ConfigError if a player's name is not a text, is blank, or comes twice."""
    seen: set[str] = set()
    for name in names:
        # In a note, a blank name stands for the whole turn.
        if not isinstance(name, str) or not name.strip():
            raise ConfigError(f"{brief(name)} is not the name of a player; a name is a text")
        if name in seen:
            raise ConfigError(f"{name!r} is asked twice by one ask.each; name each player once")
        seen.add(name)
