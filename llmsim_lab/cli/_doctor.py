"""``llmsim-lab model`` and ``doctor``: which models are here, if they answer, what they can do."""

from __future__ import annotations

import logging
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Annotated

import psutil
import typer
from rich.table import Column

from llmsim_lab._util.text import clip, listed
from llmsim_lab._util.waiting import run_sync
from llmsim_lab.cli._checks import findings
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
from llmsim_lab.simulation._gate import kept_economics_cards
from llmsim_lab.study import economics_card

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

_SETTINGS = LLMConfig(timeout_s=120)
_FIRST_CHECKS = ("answers", "valid JSON: one of a list")
_GATE_LINE_S = 30.0
_HOW_MUCH = (
    "72 questions, each in 7 calls of one token (504 in all), and as many again if they do not "
    "decide; twice the calls where a backend tells no probabilities"
)


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
) -> None:
    """Show which models are there, whether they answer as they must, and what they can do."""
    if models:
        for name in models:
            (_show_gate if economics else _show_checks)(name, host)
    elif economics:
        raise typer.BadParameter(
            "--economics goes with a model: llmsim-lab doctor ollama:NAME --economics"
        )
    elif not _report(host):
        raise typer.Exit(1)


def _report(host: str | None) -> bool:
    """Print what this machine has and what each model answers; return True if one works."""
    memory = psutil.virtual_memory()
    wish = os.environ.get("LLMSIM_MODEL")
    say(
        f"Python {platform.python_version()} on {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} cores, {memory.available / 1e9:.1f} of {memory.total / 1e9:.1f} GB "
        f"memory free" + (f", LLMSIM_MODEL={wish}" if wish else "")
    )
    works = [_answers(model, host) for model in (*_ollama(host), *_embedded())]
    _say_openai()
    try:
        client = connect("auto", host=host, quiet=True)
        run_sync(client.aclose())
        say(f"connect('auto') says: {client.chosen}")
    except LabError as error:
        say(f"connect('auto') finds nothing: {error}")
    for gate in kept_economics_cards():
        say(f"{gate.heading}: {gate.verdict}")
    return any(works)


def _ollama(host: str | None) -> Iterator[str]:
    """Say what Ollama has; return the model to ask."""
    where = parse_host(host)
    try:
        found = look(host)
    except BackendError as error:
        say(f"Ollama at {where}: {clip(str(error), 300)}", style="yellow")
        return
    if found.model is None:
        get = f"'ollama pull {SUGGESTED_MODEL}'"
        say(f"Ollama {found.version} at {where} has no model that can chat: {get}", style="yellow")
        return
    others = listed([name for name in found.models if name != found.model])
    say(f"Ollama {found.version} at {where}" + (f"; not asked: {others}" if others else ""))
    yield f"ollama:{found.model}"


def _say_openai() -> None:
    """Say what the environment names; no model is asked, since that may cost money."""
    if not any(os.environ.get(name) for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY")):
        return
    try:
        backend = OpenAIBackend()
        # Nor is a service on the internet looked at unasked.
        names = [] if backend.base_url == HOSTED else backend.look()
    except LabError as error:
        say(f"openai: {clip(str(error), 300)}", style="yellow")
        return
    known = listed(names) if names else "NAME, with --model openai:NAME"
    say(f"openai at {backend.base_url}; not asked: {known}")


def _embedded() -> Iterator[str]:
    """Return the embedded models that are here, or say how to get one."""
    if not runtime_installed():
        say("embedded: no runtime: pip install 'llmsim-lab[embedded]'", style="yellow")
    elif names := installed_models():
        yield from (f"embedded:{name}" for name in names)
    else:
        say("embedded: no weights here: 'llmsim-lab model get'", style="yellow")


def _answers(model: str, host: str | None) -> bool:
    """Say whether a model answers, and in the form asked for; return True if it does."""
    try:
        with _asking(model, host) as client:
            found = run_sync(findings(client, only=_FIRST_CHECKS))
    except LabError as error:
        say(f"{model}: {clip(str(error), 300)}", style="yellow")
        return False
    words = (f"{one.check}: {one.result}" + (f" ({one.note})" if one.note else "") for one in found)
    works = all(one.ok for one in found)
    say(f"{model}: {'; '.join(words)}", style="" if works else "yellow")
    return works


@contextmanager
def _asking(model: str, host: str | None) -> Iterator[LLMClient]:
    client = connect(model, host=host, config=_SETTINGS, quiet=True)
    log = logging.getLogger("llmsim_lab.llm")
    before = log.level
    log.setLevel(logging.CRITICAL)  # an invalid answer is a finding, not an error
    try:
        yield client
    finally:
        log.setLevel(before)
        run_sync(client.aclose())


def _show_checks(model: str, host: str | None) -> None:
    with _asking(model, host) as client:
        found = run_sync(findings(client, lambda what: say(f"{model}: {what} ...", to=errors)))
        info = run_sync(client.model_info())
    digest = f"digest {info.digest[:12]}" if info.digest else "no digest is known"
    server = " ".join(filter(None, (info.backend, info.version)))
    say(f"{info.name} ({server}, {digest})")
    table = plain_table("check", Column("result", no_wrap=True), "note")
    for one in found:
        style = "yellow" if one.ok is False else ""
        table.add_row(*map(literal, (one.check, one.result, one.note)), style=style)
    console.print(table)


def _show_gate(model: str, host: str | None) -> None:
    said_at = -inf

    def progress(what: str) -> None:
        nonlocal said_at
        if time.monotonic() >= said_at + _GATE_LINE_S:
            said_at = time.monotonic()
            say(f"{model}: {what} ...", to=errors)

    with _asking(model, host) as client:
        say(f"{model}: {_HOW_MUCH}; stopped, it is continued.", to=errors)
        try:
            card = economics_card(client, progress=progress)
        except LLMFailureException:
            say("What was measured is kept; the same command continues.", to=errors)
            raise
    say(card)
