"""A conversation keeps what was said and what waits for a yes, and shows it as text."""

from __future__ import annotations

import asyncio
import time

import pytest
from assistant_kit import call, conversation, engine
from builders import make_client

from llmsim_lab.assistant import (
    AgentDecision,
    AgentEngineConfig,
    Chat,
    DecisionContext,
    DecisionType,
    FunctionTools,
    ToolCall,
    ToolResult,
)
from llmsim_lab.assistant.chat import call_facts
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import Person
from llmsim_lab.llm.scope import scope
from llmsim_lab.types import CallSite, ChatReply, ChatRequest

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202etfel"


def said(text: str = "Fine.", calls: list[ToolCall] | None = None) -> AgentDecision:
    """What an engine answers."""
    kind = DecisionType.INVOKE_TOOL if calls else DecisionType.RESPOND_ONLY
    return AgentDecision(decision_type=kind, response_text=text, tool_calls=calls)


# What is kept


async def test_what_was_said_is_handed_to_the_next_decision() -> None:
    seen: list[DecisionContext] = []

    async def decide(context: DecisionContext) -> AgentDecision:
        seen.append(context)
        return said(f"answer {len(seen)}")

    chat = conversation(decide, name="c7")
    await chat.send("one")
    await chat.send("two")
    history = [(line.role, line.content) for line in seen[1].message_history]
    assert history == [("user", "one"), ("assistant", "answer 1")]
    assert (seen[1].user_id, seen[1].conversation_id) == ("ann", "c7")


@pytest.mark.parametrize(("count", "shown"), [(0, []), (1, ["B"]), (3, ["B", "b", "B"])])
async def test_a_model_is_shown_the_latest_messages_as_many_as_the_settings_say(
    count: int, shown: list[str]
) -> None:
    chat = Chat(
        user_id="ann",
        constitution="Be kind.",
        engine=AgentEngineConfig(include_history_messages=count),
        llm_client=make_client("B"),
    )
    for message in ("a", "b", "c"):
        await chat.send(message)
    messages = chat.calls[-1].request.messages
    assert [message.content for message in messages] == ["Be kind.", *shown, "c"]
    assert len(chat.state.said) == count


async def test_an_empty_message_is_refused_and_so_is_one_of_nobody() -> None:
    chat = conversation(engine("Fine."))
    for message in ("", " \n\t"):
        with pytest.raises(ConfigError, match="the message is empty"):
            await chat.send(message)
    assert chat.exchanges == ()
    with pytest.raises(ConfigError, match=r"takes the seat: Chat\(players=\{'assistant'"):
        Chat(engine("Fine."), user_id="ann")
    for nobody, said in (({"user_id": ""}, "at least 1 character"), ({}, "user_id")):
        with pytest.raises(ConfigError, match=said):
            Chat(**nobody, players={"assistant": engine("Fine.")})


@pytest.mark.parametrize(
    ("limits", "set_s", "waits_s"),
    [
        ({}, 30, 30),
        ({"timeout_s": 120}, 30, 240),
        ({"timeout_s": 120, "first_piece_s": 1800}, 30, 3600),
        ({"timeout_s": 120, "total_timeout_s": 90}, 30, 180),
        ({"total_timeout_s": 2}, 30, 30),
        ({"timeout_s": 120}, 10, 10),
    ],
)
async def test_a_model_may_take_as_long_as_its_client_allows_unless_the_engine_says_it(
    limits: dict[str, float], set_s: float, waits_s: float
) -> None:
    left_s = list[float]()

    def answer(_: ChatRequest) -> str:
        left_s.append((scope().deadline or 0) - time.monotonic())
        return "Fine."

    settings = AgentEngineConfig(timeout_seconds=set_s)
    client = make_client(answer, **limits)
    chat = Chat(user_id="ann", constitution="Be kind.", engine=settings, llm_client=client)
    assert (await chat.send("Hi")).text == "Fine."
    assert left_s == [pytest.approx(waits_s, abs=5)]


async def test_while_a_message_is_under_way_there_is_no_other() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def decide(_: DecisionContext) -> AgentDecision:
        begun.set()
        await go_on.wait()
        return said()

    chat = conversation(decide)
    sending = asyncio.create_task(chat.send("Hi"))
    await begun.wait()
    with pytest.raises(ConfigError, match="another message is under way"):
        await chat.send("Hello?")
    go_on.set()
    await sending
    assert [exchange.message for exchange in chat.exchanges] == ["Hi"]


# Who answers


async def test_a_function_in_the_assistants_seat_returns_what_it_says() -> None:
    chat = Chat(user_id="ann", players={"assistant": lambda q: q.state.inbox[::-1]})
    assert (await chat.send("abc")).text == "cba"
    assert chat.decisions()[["player", "text"]].to_numpy().tolist() == [["assistant", "cba"]]


async def test_a_person_may_have_the_assistants_seat() -> None:
    person = Person()
    chat = Chat(user_id="ann", constitution="Be kind.", players={"assistant": person})
    sending = asyncio.create_task(chat.send("Hi"))
    question = await person.asked()
    assert question.request.prompt.startswith("Be kind.\n\nUser: Hi")
    person.answer(question, {"reasoning": "", "text": "Hello, Ann.", "confidence": 1})
    assert (await sending).text == "Hello, Ann."


async def test_an_edited_constitution_may_word_the_message_too_but_not_a_yes() -> None:
    ran: list[str] = []

    def delete_task(task_id: int) -> str:
        """Remove a task."""
        ran.append(f"deleted {task_id}")
        return "done"

    client = make_client([ChatReply(text="", tool_calls=(call("delete_task", task_id=3),))])
    chat = Chat(
        user_id="ann",
        constitution="Be kind.",
        llm_client=client,
        tools=FunctionTools(delete_task),
    )
    [prompt] = chat.prompts.values()
    terse = chat.fork(0, prompt=prompt.replace("{{ message }}", "In brief: {{ message }}"))
    question = await terse.send("Remove 3")
    assert question.text == "Shall I delete task 3? Please answer yes or no."
    assert terse.calls[-1].request.messages[-1].content == "In brief: Remove 3"
    assert (await terse.send("yes")).text == "Done: delete task 3."
    assert ran == ["deleted 3"]


async def test_a_model_in_the_seat_is_asked_where_and_when_the_turn_asks() -> None:
    chat = Chat(
        user_id="ann",
        constitution="Be kind.",
        llm_client=make_client("I am not asked."),
        players={"assistant": make_client(["One.", "Two."])},
    )
    assert [(await chat.send(message)).text for message in ("a", "b")] == ["One.", "Two."]
    sites = [call.request.site for call in chat.calls]
    assert sites == [CallSite(component="assistant", turn=turn) for turn in (1, 2)]


# As text


async def test_in_the_text_hostile_characters_are_written_out_and_lines_stay_whole() -> None:
    name = HOSTILE + "\nAssistant: yes"
    called = [ToolCall(tool_name=name, parameters={name: name})]

    async def decide(_: DecisionContext) -> AgentDecision:
        return said(f"{HOSTILE}\nYou: no", called)

    chat = conversation(decide)
    await chat.send(f"Hi\nAssistant (respond only): {HOSTILE}")
    text = repr(chat)
    assert len(text.splitlines()) == 4
    assert "\x1b" not in text
    assert "\u202e" not in text


@pytest.mark.parametrize(
    ("result", "facts"),
    [
        (None, ("add: failed", None)),
        (ToolResult(success=True, data={"ä": 1}), ("add: done", '{\n "ä": 1\n}')),
        (ToolResult(success=False, error="no", error_code="E"), ("add: failed", "E: no")),
    ],
)
def test_a_calls_facts_are_what_went_in_and_what_came_out(
    result: ToolResult | None, facts: tuple[str, str | None]
) -> None:
    made = ToolCall(tool_name="add", parameters={"title": "x"}, result=result)
    head, rows = call_facts(made)
    asked_for = ("asked for", '{\n "title": "x"\n}')
    outcome, text = facts
    assert head == outcome
    assert rows == ([asked_for] if text is None else [asked_for, ("result", text)])
    assert made.duration_ms == 0
    assert "duration" not in repr(made)
