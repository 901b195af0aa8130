"""``llmsim-lab people``: does a player behave like people in published experiments?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from llmsim_lab._util.tables import csv_text
from llmsim_lab._util.text import counted, duration
from llmsim_lab.cli._output import errors, open_results, say
from llmsim_lab.cli._playing import MODEL_HELP, Host, Out
from llmsim_lab.llm import connect
from llmsim_lab.people.figures import LEAST_GROUPS, MARGIN, check_margin
from llmsim_lab.simulation.people import (
    DESIGNS,
    GROUPS,
    GROUPS_OF_MANY,
    PeopleCard,
    enough_groups,
    people_designs,
    plan_designs,
    play_design,
    recall_study,
)
from llmsim_lab.study import Study

_ONLY = f"A design alone, repeatable: {', '.join(DESIGNS)}."
_WRITTEN = "Sample written answers where probabilities of options could be asked for."
_REASONS = "Let players give reasons before they decide, where answers are written."
_WORDS = ("rule", "random")


def people(
    model: Annotated[str, typer.Option(help=MODEL_HELP)] = "auto",
    only: Annotated[list[str] | None, typer.Option(help=_ONLY)] = None,
    written: Annotated[bool, typer.Option("--written", help=_WRITTEN)] = False,
    reasons: Annotated[bool, typer.Option("--reasons", help=_REASONS)] = False,
    groups: Annotated[
        int, typer.Option(min=1, help="With --written, runs of a condition with one decision each.")
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

    Where each person chooses once among a few options, the model's probability of each is asked
    for. All is kept in the folder, so that a call with the same options continues where another
    one ended. The card is printed, and written there as a page and a table.
    """
    settings: dict[str, Any] = {
        "written": written,
        "groups": groups,
        "groups_of_many": groups_of_many,
        "rationale": "before" if reasons else False,
    }
    # Each design's measures are shares of what was at stake.
    check_margin(margin, of_shares=True)
    # Before anything is asked, since an hour later it is too late to choose more.
    if groups_of_many < LEAST_GROUPS or (written and groups < LEAST_GROUPS):
        say(f"With fewer than {LEAST_GROUPS} groups a condition has no interval and no verdict.")
    # Rules and chance take seconds, and no tokens.
    if model not in _WORDS:
        seconds = 0.0
        for name, planned in plan_designs(only or None, **settings).items():
            say(f"{name}: {planned}")
            seconds += planned.seconds
        say(f"In all about {duration(seconds)}, on a busy machine several times that.")
    if plan:
        if written:
            say(f"Groups that show likeness with power .8, margin {margin:g}, if players differ")
            say("as people do:")
            say(enough_groups(margin).to_string(index=False))
        return
    # Not before: a plan leaves no folder behind.
    results = open_results(out, "people", "people.html", "people.csv")
    runs = out / "runs"
    # Continued, and not replaced: the folder may be there.
    results.check_no_links(runs)
    answerer: dict[str, Any] = {"players": {"*": model}}
    client = None
    if model not in _WORDS:
        # Not from Ollama, where a misspelt name may be gigabytes.
        client = connect(
            model,
            host=host,
            download=not model.startswith("ollama"),
            quiet=True,
        )
        say(client.chosen)
        answerer = {"llm_client": client}
    designs = people_designs(
        only or None,
        folder=runs,
        **settings,
        **answerer,
    )
    recall = recall_study(
        list(designs),
        folder=runs,
        **answerer,
    )
    try:
        # The cheapest first, so that a card that is stopped has most of its measures.
        for name, played in designs.items():
            say(f"Playing {name}.")
            play_design(played)
            # A law that fails raises; of a study the other runs are played, and count.
            if isinstance(played, Study) and played.counts["failed"]:
                failed = counted(played.counts["failed"], "run")
                say(f"{name}: {failed} failed; the same call tries again.", style="red", to=errors)
        recall.run()
    except KeyboardInterrupt:
        say("Stopped. What is done is kept; run it again.", style="red", to=errors)
        raise
    player = client.config.model if client is not None else model
    probe = recall.simulation(recall.reference, recall.units[0])
    card = PeopleCard.of(
        designs,
        player=player,
        recall=probe,
        margin=margin,
    )
    try:
        say(card)
    finally:
        results.note("people.html")
        page = card.page(out / "people.html")
        measures = results.write("people.csv", csv_text(card.compared.to_frame()).encode())
    say(f"Written: {page}, {measures}")
