"""The doctor: what is here, what a model can do, what it makes of economies."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from cli_kit import Run, succeeds
from fake_ollama import FakeOllama, Fault
from fake_ollama._fake_ollama import example

from llmsim_lab.cli._checks import Ability, findings
from llmsim_lab.errors import BackendError
from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend
from llmsim_lab.llm.embedded.weights import CATALOGUE
from llmsim_lab.types import ChatReply, ChatRequest, ToolCall

# --- what is here --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [(None, 0, "valid JSON: one of a list: 4 of 4"), ("No.", 1, "4 invalid_response")],
)
def test_the_doctor_asks_the_model_and_says_how_it_did(
    llmsim_lab: Run, monkeypatch: pytest.MonkeyPatch, answer: Any, status: int, said: str
) -> None:
    monkeypatch.setattr("llmsim_lab.cli._doctor.runtime_installed", lambda: False)
    with FakeOllama(models=["llama3.2", "other"], reply=answer) as server:
        ended, out, _ = llmsim_lab("doctor", "--host", server.host)
        host = server.host
    assert (ended, said in out) == (status, True)
    assert f"Ollama 0.32.15 at {host} has llama3.2:latest, other:latest" in out
    assert "pip install 'llmsim-lab[embedded]'" in out
    assert out.startswith("llmsim-lab 0.")
    assert f"connect('auto') says: Using llama3.2:latest on Ollama 0.32.15 at {host}" in out


def test_the_catalogue_is_listed_with_what_its_models_cannot_do(
    llmsim_lab: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = replace(CATALOGUE[0], note="small [embedded]", licence="[bold]MIT")
    monkeypatch.setattr("llmsim_lab.llm.embedded.weights.CATALOGUE", (odd, *CATALOGUE))
    out = succeeds(llmsim_lab, "model", "ls")
    assert all(model.name in out for model in CATALOGUE)
    assert "MB, [bold]MIT, " in out
    assert "; small [embedded]\n" in out
    assert "Do not use these for findings" in out


CHOICE = "valid JSON: one of a list"
UNTOLD = "valid JSON: form not told"

# --- what a model can do -------------------------------------------------------------------------


def obeys(request: ChatRequest) -> Any:
    """Answer as a model does that understands and obeys."""
    prompt = request.messages[-1].content
    if request.tools:
        name, key, value = "greet", "name", prompt.rstrip(".").split()[-1]
        if "timer" in prompt:
            name, key, value = "set_timer", "minutes", int(prompt.split()[-2])
        return ChatReply(text="", tool_calls=(ToolCall(name=name, arguments={key: value}),))
    return f"An answer to: {prompt}" if request.schema is None else example(request.schema)


def always_the_same(request: ChatRequest) -> Any:
    """Answer with the first that the form allows, whatever is asked."""
    return "Yes." if request.tools or request.schema is None else example(request.schema)


def every_second(request: ChatRequest) -> Any:
    """Obey, half of the forms only when shown what is wrong."""
    if request.schema and request.attempt == 1 and request.options.get("seed", 0) % 2:
        return "I would rather not."
    return obeys(request)


def unheld(request: ChatRequest) -> Any:
    """Obey, and give JSON only where a message names the field."""
    names = request.schema.get("properties", {}) if request.schema else {}
    return obeys(request) if all(f'"{name}"' in request.prompt for name in names) else "Blue."


def without_tools(request: ChatRequest) -> Any:
    """Obey, but call a tool only where a schema asks for it."""
    if request.tools:
        raise BackendError("'small' does not support tools", reason="client_error")
    if request.schema and "anyOf" in request.schema:
        [call] = obeys(replace(request, tools=({},))).tool_calls
        return {"name": call.name, "arguments": dict(call.arguments)}
    return obeys(request)


def found_of(answer: Callable[[ChatRequest], Any]) -> dict[str, Ability]:
    backend = ScriptedBackend(answer, name="scripted")
    client = LLMClient(LLMConfig(model="scripted"), backend)
    return {one.check: one for one in asyncio.run(findings(client))}


@pytest.mark.parametrize(
    ("answer", "results"),
    [
        (obeys, {CHOICE: "4 of 4", "tools": "4 of 4"}),
        (always_the_same, {CHOICE: "4 of 4", "tools": "0 of 4"}),
        (every_second, {CHOICE: "2 of 4"}),
        (lambda _: "I would rather not.", {CHOICE: "0 of 4"}),
        (without_tools, {"tools": "4 of 4"}),
        (obeys, {UNTOLD: "yes"}),
        (unheld, {UNTOLD: "when told", CHOICE: "4 of 4"}),
        (lambda _: "I would rather not.", {UNTOLD: "failed"}),
    ],
)
def test_what_a_model_can_do_is_counted(
    answer: Callable[[ChatRequest], Any], results: dict[str, str]
) -> None:
    found = {name: one.result for name, one in found_of(answer).items()}
    assert results.items() <= found.items()


SAME = "same seed, same words"


def test_whether_a_model_repeats_itself_is_counted_with_and_without_its_prompt_cache() -> None:
    before = ""

    def cached(request: ChatRequest) -> str:
        """Answer three topics otherwise where the prompt is kept from the time before."""
        nonlocal before
        is_kept = request.prompt == before and request.options.get("cache_prompt", True)
        before = request.prompt
        is_sensitive = request.prompt.endswith(("a boat.", "a picnic.", "bread."))
        return "Well." if is_kept and is_sensitive else f"Of {request.prompt}"

    ability = found_of(cached)[SAME]
    assert (ability.result, ability.note) == ("no, 5 of 8", "8 of 8 with repeatable=True")
    assert found_of(obeys)[SAME].result == "yes, 8 of 8"


@pytest.mark.parametrize(
    ("counts", "probabilities", "is_known", "note"),
    [
        ({"prompt_tokens": 240, "reply_tokens": 1}, 100, True, "17 calls, which write"),
        ({"prompt_tokens": 240, "reply_tokens": 1}, 0, True, "103 calls, which write"),
        ({"prompt_tokens": 240}, 100, True, "with a new prompt of 240 tokens"),
        ({"prompt_tokens": 240, "cached_tokens": 90}, 100, True, "a new prompt of 150 tokens"),
        ({}, 100, False, "the server does not count tokens"),
        ({"prompt_tokens": 240, "load_seconds": 90.0}, 100, False, "tells no time"),
    ],
)
def test_how_fast_a_model_reads_is_measured_with_a_prompt_that_is_new(
    counts: Any, probabilities: int, is_known: bool, note: str
) -> None:
    prompts: list[str] = []

    def answer(request: ChatRequest) -> Any:
        prompts.append(request.prompt)
        return ChatReply(text="1", **counts)

    backend = ScriptedBackend(answer)
    backend.max_top_logprobs = probabilities
    client = LLMClient(LLMConfig(model="scripted"), backend)
    found = [asyncio.run(findings(client, first=2))[1] for _ in range(2)]
    assert (found[0].result != "not known") == is_known
    assert note in found[0].note
    assert len(prompts) == 4, "nothing is asked of the economy"
    assert prompts[1] != prompts[3]


def test_a_model_that_needs_to_be_told_the_form_is_named_with_the_setting() -> None:
    assert "use tell_form=True" in found_of(unheld)[UNTOLD].note


def test_what_was_repaired_and_how_much_is_on_the_options_is_said_in_a_note() -> None:
    assert found_of(every_second)["valid JSON: number in bounds"].note == "2 repaired"

    def answer(request: ChatRequest) -> Any:
        if request.top_logprobs:
            return ChatReply(text="A", top_logprobs=(("A", -0.5), ("B", -1.5), ("C", -2.0)))
        return obeys(request)

    found = found_of(answer)["log-probabilities"]
    assert found.result == "yes"
    assert found.note == "96 % of its answers were one of the letters offered"


@pytest.mark.odd_requests  # Ollama has no such name as the second, but other servers may
def test_a_server_is_checked_over_the_wire_each_model_with_lines_of_progress(
    llmsim_lab: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(body: dict[str, Any]) -> Any:
        return "I would rather not." if body["model"].startswith("[/red]") else None

    with FakeOllama(["polite", "[/red]"], reply=answer) as server:
        monkeypatch.setenv("OLLAMA_HOST", server.host)
        level = logging.getLogger("llmsim_lab.llm").level
        status, out, err = llmsim_lab("doctor", "ollama:polite", "ollama:[/red]")
        server.fail_next(Fault.status(429), times=2)
        failed = llmsim_lab("doctor", "ollama:polite")
    assert status == 0
    assert err.splitlines()[:2] == [
        "ollama:polite: answers ...",
        "ollama:polite: tokens read a second ...",
    ]
    assert "ollama:[/red]: answers ..." in err  # a name is no markup
    assert "polite (ollama 0.32.15, digest " in out
    polite, rude = [line for line in out.splitlines() if line.startswith(CHOICE)]
    assert polite == f"{CHOICE}     4 of 4"
    assert rude == f"{CHOICE}     0 of 4        4 invalid_response"
    assert (failed[0], "rate_limited" in failed[2]) == (1, True)
    assert logging.getLogger("llmsim_lab.llm").level == level


# --- what it makes of economies ------------------------------------------------------------------


def test_the_doctor_asks_about_economies_and_says_the_verdict(
    llmsim_lab: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def card(client: LLMClient, progress: Callable[[str], object]) -> str:
        progress("question 1 of 72")
        return f"{client.config.model}: Fails the economic gate."

    monkeypatch.setattr("llmsim_lab.cli._doctor.economics_card", card)
    with FakeOllama(["tiny"]) as server:
        monkeypatch.setenv("OLLAMA_HOST", server.host)
        status, out, err = llmsim_lab("doctor", "ollama:tiny", "--economics")
    assert (status, out) == (0, "tiny: Fails the economic gate.\n")
    assert "504 calls of one token: 72 questions" in err
    assert err.endswith("ollama:tiny: question 1 of 72 ...\n")


def test_a_model_is_named_for_the_economies(llmsim_lab: Run) -> None:
    status, _, err = llmsim_lab("doctor", "--economics")
    assert (status, "--economics goes with a model" in " ".join(err.split())) == (2, True)
