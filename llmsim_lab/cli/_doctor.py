"""``llmsim-lab model`` and ``doctor``: which models are here, if they answer, what they can do."""

from __future__ import annotations

import json
import logging
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Annotated

import psutil
import typer
from rich.table import Column

from llmsim_lab._util.files import write_file
from llmsim_lab._util.text import clip, listed
from llmsim_lab._util.waiting import run_sync
from llmsim_lab.cli._output import console, errors, literal, plain_table, say
from llmsim_lab.cli._playing import Host
from llmsim_lab.errors import BackendError, LabError, LLMFailureException
from llmsim_lab.llm import LLMClient, LLMConfig, connect
from llmsim_lab.llm._embedded.backend import runtime_installed
from llmsim_lab.llm._embedded.weights import (
    CATALOGUE,
    default_model,
    get_model,
    installed_models,
    remove_model,
)
from llmsim_lab.llm._ollama import SUGGESTED_MODEL, look, parse_host
from llmsim_lab.llm._openai import HOSTED, OpenAIBackend
from llmsim_lab.models import PolicyDecision
from llmsim_lab.prompts import Prompt
from llmsim_lab.simulation._gate import EconomicsCard, Told, kept_economics_cards
from llmsim_lab.study import economics_card
from llmsim_lab.study._checks import ModelCheck, check_model

model_app = typer.Typer(help="List, fetch and remove embedded models.", no_args_is_help=True)


@model_app.command("ls")
def ls() -> None:
    """List the models of the catalogue, and which of them are here."""
    table = plain_table("name", "size", "licence", "here", "good for")
    names = installed_models()
    for model in CATALOGUE:
        here = str(model.path) if model.name in names else "no"
        size = f"{model.size_bytes / 1e6:,.0f} MB"
        table.add_row(*map(literal, (model.name, size, model.licence, here, model.note)))
    console.print(table)
    name, why = default_model()
    say(f"This machine's default: {name} ({why})")
    for card in kept_economics_cards():
        if any(card.model == row.name for row in CATALOGUE):
            say(f"{card.heading}: {card.verdict}")
    say(
        "None of them is for findings; for those take a larger model: 'ollama pull "
        f"{SUGGESTED_MODEL}', then --model ollama:{SUGGESTED_MODEL}."
    )


@model_app.command("get")
def get(
    name: Annotated[str | None, typer.Argument(help="A name from 'model ls'.")] = None,
    file: Annotated[Path | None, typer.Option(help="The weights' file, if you have it.")] = None,
) -> None:
    """Fetch a model's weights, verify and keep them; the default model if none is named."""
    if name is None:
        name, why = default_model()
        say(f"{name}: {why}")
    path = get_model(name, file=file)
    say(f"{name} is at {path}")


@model_app.command("rm")
def rm(name: Annotated[str, typer.Argument(help="A name from 'model ls'.")]) -> None:
    """Remove a model's weights from this machine."""
    freed = remove_model(name)
    say(f"{name}: removed, {freed / 1e6:,.0f} MB freed")


# --- doctor ---------------------------------------------------------------------------------------

_SETTINGS = LLMConfig(
    temperature=0, seed=1, num_ctx=2048, max_tokens=200, max_text_chars=120, timeout_s=120
)
_NOT_ASKED = "(not asked)"
_CARD_SETTINGS = LLMConfig(timeout_s=120)
_GATE_LINE_S = 30.0
_HOW_MUCH = (
    "72 questions, each in 7 calls of one token (504 in all), and as many again if they do not "
    "decide; twice the calls where a backend tells no probabilities"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finding:
    """One row of the report."""

    backend: str
    model: str = ""
    context: str = ""
    answer: str = ""
    speed: str = ""
    works: bool = False


def doctor(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL]...", help="Check what it can do."),
    ] = None,
    host: Host = None,
    economics: Annotated[
        bool,
        typer.Option("--economics", help="Ask about economies whose direction is beyond doubt."),
    ] = False,
    thin: Annotated[
        bool, typer.Option("--thin", help="With --economics: tell it four indicators only.")
    ] = False,
    json_to: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE", help="Write the results as JSON; - prints them."),
    ] = None,
) -> None:
    """Show which models are there, whether they answer as they must, and what they can do."""
    if not models:
        if economics or json_to:
            raise typer.BadParameter(
                "--economics and --json go with a model: llmsim-lab doctor ollama:NAME --json -"
            )
        raise typer.Exit(0 if _report(host) else 1)
    if thin and not economics:
        raise typer.BadParameter("--thin goes with --economics")
    results: list[ModelCheck] | list[EconomicsCard]
    if economics:
        results = [_gated(name, host, told="thin" if thin else "economist") for name in models]
    else:
        results = [_checked(name, host) for name in models]
    if json_to is not None:
        whole = [json.loads(one.to_json()) for one in results]
        text = json.dumps(whole[0] if len(whole) == 1 else whole, indent=2)
        if json_to == "-":
            typer.echo(text)
            return
        write_file(Path(json_to), text.encode())
    for one in results:
        if isinstance(one, ModelCheck):
            say(one.heading)
            _show_check(one)
        else:
            typer.echo(str(one))
    if json_to is not None:
        say(f"Written: {json_to}")


def _report(host: str | None) -> bool:
    """Print what this machine has and what each model answers; return True if one works."""
    memory = psutil.virtual_memory()
    wish = os.environ.get("LLMSIM_MODEL")
    say(
        f"Python {platform.python_version()} on {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} cores, {memory.available / 1e9:.1f} of {memory.total / 1e9:.1f} GB "
        f"memory free" + (f", LLMSIM_MODEL={wish}" if wish else "")
    )
    findings = [*_ollama(host), *_openai(), *_embedded()]
    context, speed = (Column(title, no_wrap=True) for title in ("context", "speed"))
    table = plain_table("backend", "model", context, "answer held to a schema", speed)
    for row in findings:
        style = "" if row.works or row.answer == _NOT_ASKED else "yellow"
        cells = (row.backend, row.model, row.context, row.answer, row.speed)
        table.add_row(*map(literal, cells), style=style)
    console.print(table)
    say(_choice(host))
    for gate in kept_economics_cards():
        say(f"{gate.heading}: {gate.verdict}")
    return any(finding.works for finding in findings)


def _choice(host: str | None) -> str:
    try:
        client = connect("auto", host=host, quiet=True)
    except LabError as error:
        return f"connect('auto') finds nothing: {error}"
    run_sync(client.aclose())
    return f"connect('auto') says: {client.chosen}"


def _ollama(host: str | None) -> list[_Finding]:
    where = parse_host(host)
    try:
        found = look(host)
    except BackendError as error:
        return [_Finding(backend=f"Ollama at {where}", answer=clip(str(error), 300))]
    if found.model is None:
        return [
            _Finding(
                backend=f"Ollama {found.version} at {where}",
                answer=f"has no model that can chat: 'ollama pull {SUGGESTED_MODEL}'",
            )
        ]
    others = listed([name for name in found.models if name != found.model])
    more = [_Finding(backend="", model=others, answer=_NOT_ASKED)] if others else []
    return [_check(f"ollama:{found.model}", host), *more]


def _openai() -> list[_Finding]:
    """Return what the environment names; no model is asked, since that may cost money."""
    if not any(os.environ.get(name) for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY")):
        return []
    kind = "openai"
    try:
        backend = OpenAIBackend()
        kind += f" at {backend.base_url}"
        # Nor is a service on the internet looked at unasked.
        names = None if backend.base_url == HOSTED else backend.look()
    except LabError as error:
        return [_Finding(backend=kind, answer=clip(str(error), 300))]
    known = listed(names) if names else "NAME, with --model openai:NAME"
    return [_Finding(backend=kind, model=known, answer=_NOT_ASKED)]


def _embedded() -> list[_Finding]:
    if not runtime_installed():
        return [
            _Finding(backend="embedded", answer="no runtime: pip install 'llmsim-lab[embedded]'")
        ]
    names = installed_models()
    if not names:
        return [_Finding(backend="embedded", answer="no weights here: 'llmsim-lab model get'")]
    return [_check(f"embedded:{name}", None) for name in names]


def _check(model: str, host: str | None) -> _Finding:
    """Ask one model for one structured answer."""
    backend, _, name = model.partition(":")
    try:
        client = connect(model, host=host, config=_SETTINGS, quiet=True)
        return run_sync(_examine(client, backend))
    except LabError as error:
        return _Finding(backend=backend, model=name, answer=clip(str(error), 300))


async def _examine(client: LLMClient, backend: str) -> _Finding:
    prompt = Prompt.load("agent_policy").render(
        profile="You advise Atlantis.",
        gdp_growth=2.2,
        inflation=6.5,
        unemployment=5,
        interest_rate=2.5,
    )
    async with client:
        info = await client.model_info()
        # The first call also loads the model and reads the prompt; the second shows the speed.
        await client.call_with_retry(prompt=prompt, response_model=PolicyDecision)
        decision = await client.call_with_retry(prompt=prompt, response_model=PolicyDecision)
    call = decision.call
    speed = f"{call.reply_tokens / call.seconds:.0f} tokens/s" if call and call.seconds else ""
    context = f"{client.config.num_ctx:,}"
    if info.context_length:
        context += f" of {info.context_length:,}"
    return _Finding(
        backend=f"{backend} {info.version or ''}".strip(),
        model=info.name,
        context=context,
        answer=f"yes: {clip(decision.action, 60)}",
        speed=speed,
        works=True,
    )


def _progress(model: str, *, every_s: float = 0.0) -> Callable[[str], None]:
    """Return what says what is being asked, a line at most in so many seconds."""
    said_at = -inf

    def line(what: str) -> None:
        nonlocal said_at
        if time.monotonic() >= said_at + every_s:
            said_at = time.monotonic()
            say(f"{model}: {what} ...", to=errors)

    return line


@contextmanager
def _asking(model: str, host: str | None) -> Iterator[LLMClient]:
    client = connect(model, host=host, config=_CARD_SETTINGS, quiet=True)
    log = logging.getLogger("llmsim_lab.llm")
    before = log.level
    log.setLevel(logging.CRITICAL)  # an invalid answer is a finding, not an error
    try:
        yield client
    finally:
        log.setLevel(before)
        run_sync(client.aclose())


def _checked(model: str, host: str | None) -> ModelCheck:
    with _asking(model, host) as client:
        return run_sync(check_model(client, _progress(model)))


def _gated(model: str, host: str | None, *, told: Told) -> EconomicsCard:
    with _asking(model, host) as client:
        say(f"{model}: {_HOW_MUCH}; stopped, it is continued.", to=errors)
        progress = _progress(model, every_s=_GATE_LINE_S)
        try:
            return economics_card(client, told=told, progress=progress)
        except LLMFailureException:
            say("What was measured is kept; the same command continues.", to=errors)
            raise


def _show_check(check: ModelCheck) -> None:
    table = plain_table("check", Column("result", no_wrap=True), "note")
    for one in check.findings:
        style = "yellow" if one.ok is False else ""
        table.add_row(*map(literal, (one.check, one.result, one.note)), style=style)
    console.print(table)
