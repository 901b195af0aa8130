"""``llmsim-lab model`` and ``doctor``: which models are here, if they answer, what they can do."""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from llmsim_lab._util.text import clip, listed
from llmsim_lab._util.waiting import run_sync
from llmsim_lab.cli._checks import findings
from llmsim_lab.cli._output import errors, say
from llmsim_lab.cli._playing import Host
from llmsim_lab.errors import BackendError, LabError
from llmsim_lab.llm import LLMClient, LLMConfig, connect
from llmsim_lab.llm.embedded import weights
from llmsim_lab.llm.embedded.backend import runtime_installed
from llmsim_lab.llm.ollama import look, parse_host
from llmsim_lab.simulation import economics_card
from llmsim_lab.simulation.gate import kept_economics_cards

model_app = typer.Typer(help="List and fetch embedded models.", no_args_is_help=True)


@model_app.command("ls")
def ls() -> None:
    """List the models of the catalogue, and which of them are here."""
    names = weights.installed_models()
    for model in weights.CATALOGUE:
        place = "not here"
        if model.name in names:
            place = str(model.path)
        size = f"{model.size_bytes / 1e6:,.0f} MB"
        say(f"{model.name}: {size}, {model.licence}, {place}; {model.note}")
    name, reason = weights.default_model()
    say(f"This machine's default: {name} ({reason})")
    say("Do not use these for findings; take a larger model: 'ollama pull llama3.1:8b'.")


@model_app.command("get")
def get(
    name: Annotated[str | None, typer.Argument(help="A name from 'model ls'.")] = None,
    file: Annotated[Path | None, typer.Option(help="The weights' file, if you have it.")] = None,
) -> None:
    """Fetch a model's weights, verify and keep them; the default model if none is named."""
    if name is None:
        name, reason = weights.default_model()
        say(f"{name}: {reason}")
    # A file of the user's own is compared with the official one as well.
    path = weights.get_model(name, file=file)
    say(f"{name} is at {path}")


# --- doctor ---------------------------------------------------------------------------------------

_SETTINGS = LLMConfig(timeout_s=120)
_HOW_MUCH = (
    "504 calls of one token: 72 questions, each in 7 calls (15 where a server tells no "
    "probabilities), at most twice. After the first question it says how long the rest takes; "
    "what is stopped is continued later."
)


def doctor(
    models: Annotated[
        list[str] | None, typer.Argument(help="Models whose abilities are checked.")
    ] = None,
    host: Host = None,
    economics: Annotated[
        bool, typer.Option("--economics", help="Ask it about economies: the economic gate.")
    ] = False,
    install: Annotated[
        bool, typer.Option("--install", help="Check this installation instead; asks no model.")
    ] = False,
) -> None:
    """Show which models are there, whether they answer as they must, and what they can do."""
    if install:
        # Here, since it reads the lists of all packages.
        from llmsim_lab.cli._installation import report_installation

        if models or economics:
            raise typer.BadParameter("--install checks no model; leave the others out")
        if not report_installation():
            raise typer.Exit(1)
    elif models:
        for name in models:
            if economics:
                _show_gate(name, host)
            else:
                _show_checks(name, host)
    elif economics:
        raise typer.BadParameter("--economics goes with a model: ollama:NAME --economics")
    elif not _report(host):
        raise typer.Exit(1)


def _report(host: str | None) -> bool:
    """Print what this machine has and what each model answers; return True if one works."""
    free = weights.available_memory_bytes() / 1e9
    here = f"llmsim-lab {version('llmsim-lab')}, Python {platform.python_version()}"
    say(f"{here}, {os.cpu_count()} cores, {free:.1f} GB memory free")
    # Each is asked, also after one has answered: the list says what is there to choose from.
    works = [_answers(model, host) for model in _models_here(host)]
    # What a script without a model's name would get.
    try:
        client = connect(
            "auto",
            host=host,
            quiet=True,
        )
        run_sync(client.aclose())
        say(f"connect('auto') says: {client.chosen}")
    except LabError as error:
        say(f"connect('auto') finds nothing: {error}")
    # What was asked on this machine before, for hours perhaps.
    for gate in kept_economics_cards():
        say(f"{gate.heading}: {gate.verdict}")
    return any(works)


def _models_here(host: str | None) -> list[str]:
    """Return the models to ask: Ollama's own choice, and all embedded ones."""
    models = []
    if runtime_installed():
        models = [f"embedded:{name}" for name in weights.installed_models()]
    else:
        say("embedded: no runtime: pip install 'llmsim-lab[embedded]'", style="yellow")
    try:
        server = look(host)
    except BackendError as error:
        say(f"Ollama at {parse_host(host)}: {clip(str(error), 300)}", style="yellow")
        return models
    say(f"Ollama {server.version} at {parse_host(host)} has {listed(server.models) or 'no model'}")
    # Ollama's own choice alone: each model has to be loaded before it answers.
    if server.model:
        models.insert(0, f"ollama:{server.model}")
    return models


def _answers(model: str, host: str | None) -> bool:
    """Say whether a model answers, and in the form asked for; return True if it does."""
    if not model.startswith("ollama:"):
        host = None  # an address is an error for other models
    try:
        with _asking(model, host) as client:
            # The first checks say whether it can be used; all of them take minutes.
            abilities = run_sync(findings(client, first=4))
    except LabError as error:
        say(f"{model}: {clip(str(error), 300)}", style="yellow")
        return False
    parts = []
    for ability in abilities:
        words = f"{ability.check}: {ability.result}"
        if ability.note:
            words += f" ({ability.note})"
        parts.append(words)
    works = all(ability.ok for ability in abilities)
    say(f"{model}: {'; '.join(parts)}", style="" if works else "yellow")
    return works


@contextmanager
def _asking(model: str, host: str | None) -> Iterator[LLMClient]:
    client = connect(
        model,
        host=host,
        config=_SETTINGS,
        quiet=True,
    )
    log = logging.getLogger("llmsim_lab.llm")
    before = log.level
    # An invalid answer is a finding, not an error.
    log.setLevel(logging.CRITICAL)
    try:
        yield client
    finally:
        log.setLevel(before)
        run_sync(client.aclose())


def _show_checks(model: str, host: str | None) -> None:
    with _asking(model, host) as client:
        # On the error stream, so that the table alone can be kept.
        progress = partial(_say_progress, model)
        abilities = run_sync(findings(client, progress))
        info = run_sync(client.model_info())
    # Servers of OpenAI's protocol tell no version, and no digest.
    server = " ".join(filter(None, (info.backend, info.version)))
    digest = (info.digest or "not known")[:12]
    say(f"{info.name} ({server}, digest {digest}), a context of {_SETTINGS.num_ctx:,} tokens")
    for ability in abilities:
        line = f"{ability.check:<30}{ability.result:<14}{ability.note}".rstrip()
        say(line, style="" if ability.ok else "yellow")


def _say_progress(model: str, name: str) -> None:
    """Say what a model is asked now."""
    say(f"{model}: {name} ...", to=errors)


def _show_gate(model: str, host: str | None) -> None:
    with _asking(model, host) as client:
        say(f"{model}: {_HOW_MUCH}", to=errors)
        card = economics_card(client, progress=partial(_say_progress, model))
    say(card)
