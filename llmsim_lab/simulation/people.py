"""Does a player behave like people? Published designs, each with its altered twin, and a probe.

The designs are the templates that have ``people()``. Each is a study: its conditions and the twin
are factors, the groups its seeds. ``PeopleCard`` sets what was played beside what people did, and
beside what the player says when it is asked which study it is.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from pydantic import Field

from llmsim_lab._util.checks import known_names
from llmsim_lab._util.files import data_path
from llmsim_lab._util.html import join, styled, table
from llmsim_lab._util.text import clip, counted
from llmsim_lab.errors import ConfigError
from llmsim_lab.people.figures import MARGIN
from llmsim_lab.run import Ask, Question, Run, State
from llmsim_lab.run._page import write_page
from llmsim_lab.study import Study
from llmsim_lab.types import Reply

if TYPE_CHECKING:
    import pandas as pd

    from llmsim_lab.study import PeopleComparison

GROUPS = 30
"""Runs of a design in which each person decides once."""
GROUPS_OF_MANY = 5
"""Runs of a design with groups and rounds, each of which has many decisions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedDesign:
    """A template that matches a published design.

    Attributes:
        template: its file's name.
        world: its class's name.
        vary: its conditions, levels by parameter.
        has_rounds: whether a group plays several rounds, so that fewer runs do.
        authors: who published it: what names the study in an answer.
    """

    template: str
    world: str
    vary: Mapping[str, Sequence[object]]
    has_rounds: bool = False
    authors: tuple[str, ...]

    def load(self) -> type[Run]:
        """Return the world's class, from the package's own templates.

        Raises:
            ConfigError: another module has the template's name.
        """
        folder = data_path("templates")
        if str(folder) not in sys.path:
            sys.path.append(str(folder))
        module = importlib.import_module(self.template)
        if Path(str(module.__file__)).parent != folder:
            raise ConfigError(
                f"{self.template} is the name of {module.__file__} too, which is imported before "
                f"the template {folder / self.template}.py; rename it"
            )
        world: type[Run] = getattr(module, self.world)
        return world


DESIGNS: Mapping[str, PublishedDesign] = {
    design.template: design
    for design in (
        PublishedDesign(
            template="splitting",
            world="Splitting",
            vary={"game": ["dictator", "ultimatum"], "stake": [5.0, 10.0]},
            authors=("Forsythe", "Horowitz", "Savin", "Sefton"),
        ),
        PublishedDesign(
            template="framing",
            world="Framing",
            vary={"pair": ["lives", "seat", "bargain"]},
            authors=("Tversky", "Kahneman"),
        ),
        PublishedDesign(
            template="disjunction",
            world="Disjunction",
            vary={},
            authors=("Shafir", "Tversky"),
        ),
        PublishedDesign(
            template="investing",
            world="Investing",
            vary={},
            authors=("Berg", "Dickhaut", "McCabe"),
        ),
        PublishedDesign(
            template="guessing",
            world="Guessing",
            vary={"factor": [1 / 2, 2 / 3, 4 / 3]},
            has_rounds=True,
            authors=("Nagel",),
        ),
        PublishedDesign(
            template="contributing",
            world="Contributing",
            vary={},
            has_rounds=True,
            authors=("Engel", "Kurschilgen", "Diedrich"),
        ),
    )
}


def people_studies(
    designs: Sequence[str] | None = None,
    *,
    groups: int = GROUPS,
    groups_of_many: int = GROUPS_OF_MANY,
    folder: str | Path | None = None,
    **who: Any,
) -> dict[str, Study]:
    """Return a study of each design, with its altered twin; nothing is played yet.

    Args:
        designs: names of ``DESIGNS``; all if not given.
        groups: runs of each condition of a design in which each person decides once.
        groups_of_many: runs of each condition of one with groups and rounds.
        folder: for the runs' tapes, a folder for each design; without one they are gone with the
            studies.
        who: ``llm_client=``, ``players=``, ``population=`` and others that a study takes.

    Raises:
        ConfigError: there is no such design.
    """
    names = known_names("designs", list(DESIGNS) if designs is None else designs, DESIGNS)
    studies = {}
    for name in names:
        design = DESIGNS[name]
        studies[name] = Study(
            design.load(),
            {"twin": [False, True], **design.vary},
            seeds=groups_of_many if design.has_rounds else groups,
            tape=None if folder is None else Path(folder) / name,
            name=name,
            **who,
        )
    return studies


def enough_groups(margin: float = MARGIN) -> pd.DataFrame:
    """Return how many runs show likeness with power .8, by condition, if a player is like people.

    ``groups`` is blank where no number does: the people are too few, or their spread is unknown.
    """
    import pandas as pd

    from llmsim_lab.study.estimates.people import groups_for

    rows = []
    for name, design in DESIGNS.items():
        if design.has_rounds:
            continue
        world = design.load()
        for parameters in _conditions(design.vary):
            for measure, figure in world(players="rule", **parameters).people().items():
                rows.append(
                    {
                        "design": name,
                        "condition": figure.condition,
                        "measure": measure,
                        "people": figure.n,
                        "groups": groups_for(figure, margin),
                    }
                )
    return pd.DataFrame(rows).astype({"groups": "Int64"})


def _conditions(vary: Mapping[str, Sequence[object]]) -> list[dict[str, Any]]:
    """Return all combinations of levels."""
    conditions: list[dict[str, Any]] = [{}]
    for name, levels in vary.items():
        conditions = [{**known, name: level} for known in conditions for level in levels]
    return conditions


# --- what the player recalls ----------------------------------------------------------------------


class Recalled(State):
    """What was recalled."""

    named: dict[str, int] = Field(default_factory=dict)  # by design, 1 if an author was named


class Recollection(Reply):
    """What a player says of a description."""

    study: str = Field(max_length=200, description="authors and year, or unknown")
    result: str = Field(max_length=300, description="what most people did, or unknown")


class Recall(Run[Recalled]):
    """Asks which published study a description is of: who can name it may recite it."""

    defaults = {"turns": 1}  # noqa: RUF012 - as every world has it
    designs: tuple[str, ...] = tuple(DESIGNS)

    def ready(self) -> None:
        """Find out what the people of each design are told."""
        self._told = {name: told_in(DESIGNS[name]) for name in self.config.designs}

    async def turn(self, state: Recalled, ask: Ask) -> Recalled:
        """Ask of each design once."""
        replies = await ask.each(
            self.config.designs,
            Recollection,
            "Below is what the people in an experiment were told. If you know a published study "
            "with this design, name its authors and year, and what most people did; otherwise "
            "write unknown.\n\n{{ told }}",
            told=self._told.__getitem__,
        )
        named = {}
        for name, reply in replies.items():
            words = f"{reply.study} {reply.result}".casefold()
            is_named = any(author.casefold() in words for author in DESIGNS[name].authors)
            named[name] = int(is_named)
        return Recalled(named=named)

    def rule(self, question: Question) -> Recollection:
        """A rule recalls nothing."""
        return Recollection(study="unknown", result="unknown")


def told_in(design: PublishedDesign) -> str:
    """Return what the first player of a design is told, in its original."""
    told: list[str] = []

    def listen(question: Question) -> object:
        told.append(str(question.prompt))
        return run.rule(question)  # type: ignore[attr-defined]

    run = design.load()(players={"*": listen})
    run.run(1)
    return told[0]


# --- the card -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PeopleCard:
    """A player beside people, in all designs that were played.

    Attributes:
        player: who it is.
        compared: each measure beside people.
        recalled: what was said of each design when asked which study it is; empty if not asked.
    """

    player: str
    compared: PeopleComparison
    recalled: Mapping[str, Mapping[str, object]]

    @classmethod
    def of(
        cls,
        studies: Mapping[str, Study],
        *,
        player: str,
        recall: Recall | None = None,
        margin: float = MARGIN,
    ) -> PeopleCard:
        """Return the card of studies that were played.

        Args:
            studies: as ``people_studies`` gives them.
            player: who played.
            recall: a played run of the probe.
            margin: the difference that still counts as near.
        """
        # Not before, since the command line is started where numpy is not installed yet.
        from llmsim_lab.study import PeopleComparison, compare_with_people

        compared = PeopleComparison()
        for study in studies.values():
            part = compare_with_people(study, margin=margin)
            compared.extend(part)
            if part.label:
                compared.label = f"{compared.label}; {study.name}: {part.label}".lstrip("; ")
        recalled = {}
        if recall is not None:
            for answer in recall.turns[-1].answers:
                named = recall.state.named[answer.player]
                recalled[answer.player] = {**answer.fields, "named": bool(named)}
        return cls(player=player, compared=compared, recalled=recalled)

    @property
    def headline(self) -> str:
        """How many measures came out how, in one sentence."""
        originals = [one for one in self.compared if not one.twin]
        judged = [one for one in originals if one.verdict != "not judged"]
        verdicts = [one.verdict for one in judged]
        recited = [one for one in judged if self.compared.recital(one) == "recites"]
        like = verdicts.count("like people")
        unlike = verdicts.count("unlike people")
        return (
            f"{self.player}: of {counted(len(judged), 'judged measure')} {like} like people, "
            f"{unlike} unlike, {verdicts.count('undecided')} undecided; {len(recited)} recited; "
            f"{len(originals) - len(judged)} not judged"
        )

    def __str__(self) -> str:
        lines = [self.headline, str(self.compared)]
        for design, answer in self.recalled.items():
            named = "names the study" if answer["named"] else "does not name it"
            words = f"{answer.get('study', '')}: {answer.get('result', '')}"
            lines.append(f"asked which study {design} is: {named} ({clip(words, 200)})")
        return "\n".join(lines)

    __repr__ = __str__

    def page(self, path: str | Path) -> Path:
        """Write the card as one HTML page that opens in any browser; returns its path.

        Raises:
            ConfigError: the file cannot be written, or is a tape.
        """
        sources = {
            (one.people.study, one.people.condition, one.people.source, one.people.place)
            for one in self.compared
        }
        parts = [
            styled(f"{self.player} beside people", tag="h1"),
            styled(self.headline, tag="p"),
            Markup(self.compared._repr_html_()),
            table(
                ("study", "condition", "source", "place"),
                sorted(sources),
                caption="where people's figures were read",
            ),
        ]
        if self.recalled:
            rows = [
                (design, str(answer["named"]), answer.get("study"), answer.get("result"))
                for design, answer in self.recalled.items()
            ]
            header = ("design", "an author is named", "study", "result")
            parts.append(table(header, rows, caption="asked which study it is"))
        view = join(parts, between="\n")
        return write_page(path, None, title=f"{self.player} beside people", print_view=view)
