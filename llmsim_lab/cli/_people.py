"""``llmsim-lab people``: does a player behave like people in published experiments?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from llmsim_lab._util.files import write_file
from llmsim_lab._util.tables import csv_text
from llmsim_lab._util.text import counted, duration
from llmsim_lab.cli._output import errors, open_folder, say
from llmsim_lab.cli._playing import MODEL_HELP, Host, Out
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import connect
from llmsim_lab.people.figures import LEAST_GROUPS, MARGIN
from llmsim_lab.simulation.people import (
    DESIGNS,
    GROUPS,
    GROUPS_OF_MANY,
    PeopleCard,
    Recall,
    enough_groups,
    people_studies,
)

_ONLY = f"A design alone, repeatable: {', '.join(DESIGNS)}."
_WORDS = ("rule", "random")


def people(
    model: Annotated[str, typer.Option(help=MODEL_HELP)] = "auto",
    only: Annotated[list[str] | None, typer.Option(help=_ONLY)] = None,
    groups: Annotated[
        int, typer.Option(min=1, help="Runs of a condition in which each person decides once.")
    ] = GROUPS,
    groups_of_many: Annotated[
        int, typer.Option(min=1, help="Runs of a condition with groups and rounds.")
    ] = GROUPS_OF_MANY,
    margin: Annotated[float, typer.Option(help="The difference that still counts as near.")] = (
        MARGIN
    ),
    plan: Annotated[bool, typer.Option("--plan", help="Say what it takes, and play nothing.")] = (
        False
    ),
    out: Out = Path("out/people"),
    host: Host = None,
) -> None:
    """Play published experiments and their altered twins, and set what was done beside people.

    The runs are kept in the folder, so that a call with the same options continues where another
    one ended. The card is printed, and written there as a page and a table.
    """
    out = open_folder(out)
    who: dict[str, Any] = {"players": {"*": model}}
    client = None
    if model not in _WORDS:
        client = connect(model, host=host, download=not model.startswith("ollama"), quiet=True)
        say(client.chosen)
        who = {"llm_client": client}
    studies = people_studies(
        only or None,
        groups=groups,
        groups_of_many=groups_of_many,
        folder=out / "runs",
        **who,
    )
    if min(groups, groups_of_many) < LEAST_GROUPS:
        say(f"With fewer than {LEAST_GROUPS} groups a condition has no interval and no verdict.")
    hours = 0.0
    is_known = True
    for name, study in studies.items():
        planned = study.plan()
        say(f"{name}: {planned}")
        is_known = is_known and (planned.hours is not None or not planned.left)
        hours += planned.hours or 0.0
    if client is not None and is_known:
        say(f"In all about {duration(3600 * hours)}, one run after another.")
    if plan:
        say(f"Groups that show likeness with power .8, margin {margin:g}, if players are alike:")
        say(enough_groups(margin).to_string(index=False))
        return
    for name, study in studies.items():
        say(f"Playing {name}.")
        study.run()
        if study.counts["failed"]:
            failed = counted(study.counts["failed"], "run")
            say(f"{name}: {failed} failed; the same call tries again.", style="red", to=errors)
    probe = Recall(designs=tuple(studies), **who)
    probe.run()
    played = client.config.model if client is not None else model
    card = PeopleCard.of(studies, player=played, recall=probe, margin=margin)
    say(card)
    page = card.page(out / "people.html")
    measures = write_file(out / "people.csv", csv_text(card.compared.to_frame()).encode())
    say(f"Written: {page}, {measures}")
    if not card.compared:
        raise ConfigError("nothing was played")
