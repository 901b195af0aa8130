"""The order of a world's prompts, found by playing some turns with random players."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from llmsim_lab._util.text import error_text, log_event
from llmsim_lab._util.waiting import run_sync
from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend
from llmsim_lab.llm.scope import scoped
from llmsim_lab.run.chance import chance_reply
from llmsim_lab.run.guided import leave_out_warnings
from llmsim_lab.run.prompt_order import PromptOrder, prompt_order
from llmsim_lab.run.question import Question, place_of
from llmsim_lab.types import ChatReply, ChatRequest, Message

_log = logging.getLogger(__name__)
_MOST_TURNS = 10
"""At most how many turns are played until something is asked."""
_ENOUGH_TURNS = 5
"""How many turns with questions are enough: by then a history has begun."""
_ENOUGH_PROMPTS = 1_000
"""How many prompts are enough."""
_LONGEST_SHUFFLED = 10_000
"""Characters of a prompt whose words are a reply."""


def prompt_orders(
    world: Callable[..., Any],
    config: Any,
) -> list[PromptOrder]:
    """Play turns of a world with random players instead of models; return its prompts' order.

    Each question is judged by the last turn that asks it, when its history is no longer empty.

    Args:
        world: the world's class.
        config: its configuration; players in it that are not models stay.
    """
    prompts_asked: dict[str, dict[str, list[str]]] = {}  # by question and turn
    turns_that_ask = set[str]()
    prompts = 0
    client = LLMClient(LLMConfig(model="chance"), ScriptedBackend([]))

    async def by_chance(question: Question) -> Any:
        nonlocal prompts
        place = place_of(question.turn, question.reply, question.tag)
        turn, _, kind = place.partition(", ")
        prompts_asked.setdefault(kind, {}).setdefault(place, []).append(question.prompt)
        turns_that_ask.add(turn)
        prompts += 1
        return await question.put_to(client)

    async def play(run: Any) -> None:
        # Texts are words of the prompt, since a class may accept only words of its subject.
        with scoped(stand_in=partial(_chance_reply, rng=Random(run.turn_number))):
            await run.step()

    # People are replaced too: they are shown what a model would be sent.
    models = [name for name, word in config.players.items() if word in ("model", "person")]
    if "*" not in config.players:  # the model answers for all others
        models.append("*")
    run = world(
        config,
        players=dict.fromkeys(models, by_chance),
        llm_client=client,
    )
    leave_out_warnings(run)
    # Where no model answers for anybody, one turn shows whether the world can be played.
    most_turns = _MOST_TURNS if models else 1
    for _ in range(most_turns):
        has_asked = bool(prompts_asked)
        is_enough = len(turns_that_ask) >= _ENOUGH_TURNS or prompts >= _ENOUGH_PROMPTS
        is_whole = has_asked and run.turn_number >= config.turns
        if is_enough or is_whole or run.done(run.state):
            break
        try:
            run_sync(play(run))
        except Exception as error:
            if not has_asked:
                raise
            # The orders found so far are returned: random answers may lead where no model would.
            words = (
                f"Turn {run.turn_number + 1} failed when chance answered, and lint looked no "
                f"further: {error_text(error)}"
            )
            log_event(
                _log,
                logging.WARNING,
                "LINT_ENDED",
                words=words,
                detail=words,
            )
            break
    return [_judged(by_place) for by_place in prompts_asked.values()]


def _chance_reply(request: ChatRequest, rng: Random) -> ChatReply:
    """Return a random reply with a text of its own for each player, as models give."""
    # Of a prompt that names 5,000 players the beginning is enough.
    words = request.prompt[:_LONGEST_SHUFFLED].split()
    rng.shuffle(words)
    shuffled = Message("user", " ".join(words))
    return chance_reply(replace(request, messages=(shuffled,)), rng)


def _judged(by_place: dict[str, list[str]]) -> PromptOrder:
    """Return a question's order in its last turn, with its first turn to compare."""
    first = next(iter(by_place))
    last = next(reversed(by_place))
    order = prompt_order(last, by_place[last])
    if last == first:
        return order
    return replace(order, begun=prompt_order(first, by_place[first]))
