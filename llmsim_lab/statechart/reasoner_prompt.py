"""What a reasoner asks and how its answer is read. Wording: the reasoner contract's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from llmsim_lab.prompts import Prompt, RenderedPrompt
from llmsim_lab.statechart.posts import Post
from llmsim_lab.statechart.states import STATE_DESCRIPTIONS, AgentState

__all__ = [
    "build_reasoner_prompt",
    "fill_reasoner_prompt",
    "format_context",
    "legal_option",
    "parse_reasoner_response",
]


def build_reasoner_prompt(
    agent_name: str,
    agent_interests: Sequence[str],
    agent_personality: str,
    current_state: AgentState,
    trigger: str,
    options: Sequence[AgentState],
    context: Any,
) -> str:
    """Return the shipped prompt for a decision, its options in the order given."""
    return fill_reasoner_prompt(
        Prompt.load("social_reasoner"),
        agent_name,
        agent_interests,
        agent_personality,
        current_state,
        trigger,
        options,
        context,
    )


def fill_reasoner_prompt(
    prompt: Prompt,
    agent_name: str,
    agent_interests: Sequence[str],
    agent_personality: str,
    current_state: AgentState,
    trigger: str,
    options: Sequence[AgentState],
    context: Any,
    *,
    rationale: bool = False,
) -> RenderedPrompt:
    """Return a prompt for a decision.

    Args:
        prompt: one with the slots of the shipped ``social_reasoner``.
        agent_name: who decides.
        agent_interests: its topics.
        agent_personality: how it is.
        current_state: what it is doing.
        trigger: the event.
        options: the legal states, as they are to be shown.
        context: what it is about; see ``format_context``.
        rationale: whether the answer is to say why.
    """
    reason = '"rationale": "<one sentence>", ' if rationale else ""
    return prompt.render(
        agent_name=agent_name,
        agent_interests=", ".join(agent_interests),
        agent_personality=agent_personality,
        current_state=current_state.value,
        trigger=trigger,
        context=format_context(context),
        options="\n".join(f"- {option.value}: {STATE_DESCRIPTIONS[option]}" for option in options),
        answer_form=f'{{{reason}"next_state": "<state_value>"}}',
    )


def format_context(context: Any) -> str:
    """Return what a decision is about, as the model reads it; empty for None.

    A post is quoted, so that what somebody wrote in it is seen to be a quotation.
    """
    if context is None:
        return ""
    if isinstance(context, Post):
        kind = {"original": "post", "reply": "reply", "reshare": "reshared post"}[context.kind]
        about = f" (about {', '.join(context.topics)})" if context.topics else ""
        quoted = json.dumps(context.text, ensure_ascii=False)
        return f"You see a {kind} by {context.author}{about}:\n{quoted}"
    if isinstance(context, Mapping):
        return "\n".join(f"{name}: {value}" for name, value in context.items())
    return str(context)


def parse_reasoner_response(response_text: str, options: Sequence[AgentState]) -> AgentState:
    """Return the option that a reply names.

    Raises:
        ValueError: the reply is no JSON object with ``next_state``, or names none of the options.
    """
    try:
        data = json.loads(response_text)
    except json.JSONDecodeError as error:
        raise ValueError(f"Failed to parse Reasoner response: {error}") from error
    if not isinstance(data, dict) or not isinstance(data.get("next_state"), str):
        raise ValueError(
            "Failed to parse Reasoner response: it must be an object with a text 'next_state'"
        )
    return legal_option(data["next_state"], options)


def legal_option(value: str, options: Sequence[AgentState]) -> AgentState:
    """Return the option of that value, whatever its letters' case.

    Raises:
        ValueError: it is none of the options; the message lists them.
    """
    wanted = value.strip().lower()
    for option in options:
        if option.value == wanted:
            return option
    there = ", ".join(option.value for option in options)
    raise ValueError(f"Invalid state: {value}; the options are {there}")
