"""Does a player behave like people? Published designs, each with its altered twin, and a probe.

The designs are the templates that have ``people()``. Where each person decides once among a few
options, a model tells the probability of each: such a design is played as exact laws, one for each
condition, in a handful of short questions. Games of several rounds are studies, whose conditions
and twin are factors and whose groups are seeds. ``PeopleCard`` sets what was played beside what
people did, and beside what the player says when it is asked which study it is.
"""

from __future__ import annotations

import importlib
import itertools
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from markupsafe import Markup
from pydantic import AfterValidator, Field

from llmsim_lab._util.checks import known_names, whole_number
from llmsim_lab._util.files import as_path, data_path, make_folder
from llmsim_lab._util.html import join, scrolling, styled, table
from llmsim_lab._util.text import brief, clip, counted, duration, estimate_tokens, roughly, wrapped
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMClient, LLMConfig, ScriptedBackend
from llmsim_lab.people.figures import MARGIN, check_margin
from llmsim_lab.run import Ask, Question, Run, State, load
from llmsim_lab.run.chance import chance_reply
from llmsim_lab.run.page import write_page
from llmsim_lab.study import Exact, Study
from llmsim_lab.tape.prompts_read import prompts_read
from llmsim_lab.types import Attempt, ChatReply, ChatRequest, Reply

if TYPE_CHECKING:
    import pandas as pd

    from llmsim_lab.study import PeopleComparison

GROUPS = 30
"""Runs of a design in which each person decides once, where answers are sampled."""
GROUPS_OF_MANY = 5
"""Runs of a design with groups and rounds, each of which has many decisions."""
_MOST_GROUPS = 5_000
"""Of a condition: a study has at most 50,000 runs."""
_GROUPS_IN_PLAN = 5
READ_PER_S = 67
WRITTEN_PER_S = 20
"""Tokens a second of the embedded 1.5B on two cores that do nothing else; see docs/models.md."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedDesign:
    """A template that matches a published design.

    Attributes:
        name: what the card calls it.
        template: its file's name.
        world: its class's name.
        vary: its conditions, levels by parameter.
        turns: how many are played; None for the world's own number.
        has_rounds: whether a group plays several rounds: no law of it can be enumerated.
        most_groups: of each condition; None for as many as are wanted. More would show nothing
            where the study gives means alone.
        authors: who published it: what names the study in an answer.
    """

    name: str
    template: str
    world: str
    vary: Mapping[str, Sequence[object]]
    turns: int | None = None
    has_rounds: bool = False
    most_groups: int | None = None
    authors: tuple[str, ...]

    def load(self) -> type[Run]:
        """Return the world's class, from the package's own templates.

        Raises:
            ConfigError: another module has the template's name.
        """
        folder = data_path("templates")
        # At the end: a user's own module of that name goes first, and the check below says so.
        if str(folder) not in sys.path:
            sys.path.append(str(folder))
        # By its plain name, as a user's program imports it: tapes know the class as that.
        module = importlib.import_module(self.template)
        if Path(str(module.__file__)).parent != folder:
            raise ConfigError(
                f"{self.template} is the name of {module.__file__} too, which is imported before "
                f"the template {folder / self.template}.py; rename it"
            )
        world: type[Run] = getattr(module, self.world)
        return world

    def groups(self, wanted: int, wanted_of_many: int) -> int:
        """Return how many runs a condition has.

        Args:
            wanted: if each person decides once.
            wanted_of_many: if there are rounds.
        """
        number = wanted_of_many if self.has_rounds else wanted
        return min(number, self.most_groups or number)

    def conditions(self) -> list[dict[str, Any]]:
        """Return all combinations of levels."""
        combinations = itertools.product(*self.vary.values())
        return [dict(zip(self.vary, levels, strict=True)) for levels in combinations]


# The cheapest first: a card that is stopped has most of its measures.
DESIGNS: Mapping[str, PublishedDesign] = {
    design.name: design
    for design in (
        PublishedDesign(
            name="framing",
            template="framing",
            world="Framing",
            vary={"pair": ["lives", "seat", "bargain"]},
            authors=("Tversky", "Kahneman"),
        ),
        PublishedDesign(
            name="disjunction",
            template="disjunction",
            world="Disjunction",
            vary={},
            authors=("Shafir", "Tversky"),
        ),
        PublishedDesign(
            name="splitting",
            template="splitting",
            world="Splitting",
            vary={"game": ["dictator", "ultimatum"], "stake": [5.0, 10.0]},
            authors=("Forsythe", "Horowitz", "Savin", "Sefton"),
        ),
        PublishedDesign(
            name="investing",
            template="investing",
            world="Investing",
            vary={},
            authors=("Berg", "Dickhaut", "McCabe"),
        ),
        PublishedDesign(
            name="contributing",
            template="contributing",
            world="Contributing",
            vary={},
            has_rounds=True,
            authors=("Engel", "Kurschilgen", "Diedrich"),
        ),
        PublishedDesign(
            name="guessing_above_1",
            template="guessing",
            world="Guessing",
            vary={"factor": [4 / 3]},
            turns=1,  # no later period is published
            has_rounds=True,
            most_groups=1,
            authors=("Nagel",),
        ),
        PublishedDesign(
            name="guessing",
            template="guessing",
            world="Guessing",
            vary={"factor": [2 / 3, 1 / 2]},
            has_rounds=True,
            most_groups=1,
            authors=("Nagel",),
        ),
    )
}

Played = Study | Sequence[Run | Exact]
"""A design: a study of it, the law of each of its conditions, or what was recorded of either."""


def people_designs(
    designs: Sequence[str] | None = None,
    *,
    written: bool = False,
    groups: int = GROUPS,
    groups_of_many: int = GROUPS_OF_MANY,
    folder: str | Path | None = None,
    **who: Any,
) -> dict[str, Played]:
    """Return each design with its altered twin, to be played; nothing is asked yet.

    Args:
        designs: names of ``DESIGNS``; all if not given.
        written: whether answers are written and sampled where the probabilities of the options
            could be asked for.
        groups: runs of each condition of a design in which each person decides once, if sampled.
        groups_of_many: runs of each condition of one with groups and rounds.
        folder: for the runs' tapes, a folder for each design; without one they are gone with the
            studies.
        who: ``llm_client=``, ``players=``, ``population=`` and others that a world takes.

    Raises:
        ConfigError: there is no such design, or an argument is of the wrong kind.
    """
    _check_groups(groups, groups_of_many)
    played: dict[str, Played] = {}
    for name in _design_names(designs):
        design = DESIGNS[name]
        tapes = None
        if folder is not None:
            tapes = as_path("folder", folder) / name
        # Of rounds that depend on one another, and of a hundred guesses, there are too many ways.
        if design.has_rounds or written:
            # A group of rounds has dozens of decisions, and takes as many calls.
            played[name] = Study(
                design.load(),
                {"twin": [False, True], **design.vary},
                seeds=design.groups(groups, groups_of_many),
                turns=design.turns,
                tape=tapes,
                name=name,
                **who,
            )
        else:
            played[name] = _laws_of(design, tapes, who)
    return played


def _check_groups(groups: int, groups_of_many: int) -> None:
    whole_number("groups", groups, least=1, most=_MOST_GROUPS)
    whole_number("groups_of_many", groups_of_many, least=1, most=_MOST_GROUPS)


def _design_names(designs: Sequence[str] | None) -> tuple[str, ...]:
    return known_names("design", list(DESIGNS) if designs is None else designs, DESIGNS)


def _laws_of(
    design: PublishedDesign,
    folder: Path | None,
    who: Mapping[str, Any],
) -> list[Exact]:
    """Return the law of each condition and of its twin."""
    world = design.load()
    if folder is not None:
        make_folder(folder)
    laws = []
    for condition in design.conditions():
        for twin in (False, True):
            # Of a player that is no model the law is exact too, and needs no question.
            run = world(
                decide="sample",
                twin=twin,
                **condition,
                **who,
            )
            tape = None
            # One tape each: a law that was stopped is looked for by its own.
            if folder is not None:
                tape = folder / f"{_file_name(condition, twin=twin)}.tape"
            laws.append(
                Exact(
                    run,
                    turns=1,
                    tape=tape,
                )
            )
    return laws


def _file_name(
    condition: Mapping[str, object],
    *,
    twin: bool,
) -> str:
    words = [*map(str, condition.values()), "twin" if twin else "original"]
    # Levels may have signs that no file's name has.
    return re.sub(r"[^\w.]+", "-", "-".join(words))


def play_design(played: Played) -> None:
    """Play what is left of a design.

    Args:
        played: one of ``people_designs``.

    Raises:
        ConfigError: it is not.
    """
    # A study plays what its folder lacks; a law asks what its tape lacks.
    if isinstance(played, Study):
        played.run()
        return
    is_list = isinstance(played, Sequence)
    if not is_list or not all(isinstance(law, Run | Exact) for law in played):
        raise ConfigError(
            f"{brief(played)} is not a design; play those of people_designs(): "
            "for design in people_designs().values(): play_design(design)"
        )
    for law in played:
        law.run()


def recorded_designs(folder: str | Path) -> dict[str, list[Run | Exact]]:
    """Return the designs that were played into a folder, as ``people_designs`` has them; no model.

    Args:
        folder: with a folder of tapes for each design, packed (``.tape.gz``) or not.

    Raises:
        ConfigError: there is none.
    """
    folder = as_path("folder", folder)
    designs: dict[str, list[Run | Exact]] = {}
    for name, design in DESIGNS.items():
        design.load()  # a tape never makes code run: the class is known from here on
        recorded = [recorded_run(tape) for tape in _tapes_in(folder / name)]
        if recorded:
            designs[name] = recorded
    if not designs:
        raise ConfigError(
            f"{folder} has no tapes of published designs; llmsim-lab people plays them, into "
            "out/people/runs"
        )
    return designs


def _tapes_in(folder: Path) -> list[Path]:
    """Return a folder's tapes, packed or not, without the files that lock them."""
    return sorted(path for path in folder.glob("*.tape*") if path.suffix != ".lock")


def _model_of(recorded: Run | Exact) -> str:
    """Return the name of the model that was asked; ``rules`` if none was."""
    if isinstance(recorded, Exact):
        client = recorded.run_of.llm_client
        return "rules" if client is None else client.config.model
    return recorded.calls[0].request.model if recorded.calls else "rules"


def recorded_run(tape: Path) -> Run | Exact:
    """Return the run on a tape, or the law where that is what was asked."""
    run: Run = load(tape)
    return Exact.of_recording(run) if run.kind == "exact" else run


class CardPlan(NamedTuple):
    """What a card takes, if no design was begun.

    Attributes:
        questions: to the model; a choice counts one for each order of its options.
        read: tokens that a server reads anew, as it keeps the prompt before.
        written: tokens that it writes.
    """

    questions: int
    read: int
    written: int

    @property
    def seconds(self) -> float:
        """On two cores that do nothing else, with the embedded 1.5B."""
        return self.read / READ_PER_S + self.written / WRITTEN_PER_S

    def __str__(self) -> str:
        return (
            f"{self.questions:,} questions, about {roughly(self.read):,} tokens read and "
            f"{roughly(self.written):,} written: {duration(self.seconds)} at the {READ_PER_S} and "
            f"{WRITTEN_PER_S} tokens a second of the embedded 1.5B on two cores"
        )


def plan_designs(
    designs: Sequence[str] | None = None,
    *,
    groups: int = GROUPS,
    groups_of_many: int = GROUPS_OF_MANY,
    **settings: Any,
) -> dict[str, CardPlan]:
    """Return what each design takes; chance plays it once in the model's place, and is not asked.

    Of many groups a few are played, and the others counted like these.

    Args:
        designs: names of ``DESIGNS``; all if not given.
        groups: as for ``people_designs``.
        groups_of_many: as for ``people_designs``.
        settings: as for ``people_designs``, without a client and players.

    Raises:
        ConfigError: there is no such design, or a player is named.
    """
    for setting in ("llm_client", "players"):
        if setting in settings:
            raise ConfigError(
                f"{setting}={brief(settings[setting])}: leave it out, since a plan plays by "
                "chance in the model's place"
            )
    _check_groups(groups, groups_of_many)
    plans = {}
    for name in _design_names(designs):
        attempts: list[Attempt] = []
        # A client of its own: a plan is made where no model is connected yet.
        client = LLMClient(LLMConfig(), ScriptedBackend(partial(_by_chance, attempts=attempts)))
        [played] = people_designs(
            [name],
            groups=min(groups, _GROUPS_IN_PLAN),
            groups_of_many=min(groups_of_many, _GROUPS_IN_PLAN),
            llm_client=client,
            **settings,
        ).values()
        times = 1.0
        if isinstance(played, Study):
            times = DESIGNS[name].groups(groups, groups_of_many) / len(played.units)
            played.run(progress=False)
        else:
            play_design(played)
        plans[name] = _plan_of(attempts, times)
    return plans


def _by_chance(request: ChatRequest, attempts: list[Attempt]) -> ChatReply:
    """Answer by chance, and note what was asked."""
    # Seeded by how many came before, so that the same card has the same plan.
    reply = chance_reply(request, Random(len(attempts)))
    attempts.append(
        Attempt(
            request=request,
            reply=reply,
            seconds=0.0,
        )
    )
    return reply


def _plan_of(attempts: Sequence[Attempt], times: float) -> CardPlan:
    # A server keeps the prompt before, and the embedded model has one slot.
    read = prompts_read(attempts)
    written = 0
    for attempt in attempts:
        if attempt.reply is not None:
            written += estimate_tokens(attempt.reply.text)
    # Four characters a token, as everywhere.
    counts = (len(attempts), read.one_slot // 4, written)
    return CardPlan(*(round(times * count) for count in counts))


def enough_groups(margin: float = MARGIN) -> pd.DataFrame:
    """Return how many runs show likeness with power .8, by condition, if a player is like people.

    It is of answers that are sampled. ``groups`` is blank where no number does: the people are too
    few, or their spread is unknown.

    Args:
        margin: the difference of means that still counts as near.

    Raises:
        ConfigError: it is not a number above 0, to 1.
    """
    import pandas as pd

    check_margin(margin, of_shares=True)

    from llmsim_lab.study.estimates.people import groups_for

    rows = []
    for name, design in DESIGNS.items():
        # How alike the players of a group are is not known beforehand, and decides there.
        if design.has_rounds:
            continue
        world = design.load()
        for condition in design.conditions():
            for measure, figure in world(players="rule", **condition).people().items():
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


# --- what the player recalls ----------------------------------------------------------------------


class Recalled(State):
    """What was recalled."""

    named: dict[str, int] = Field(default_factory=dict)  # by design, 1 if an author was named


class Recollection(Reply):
    """What a player says of a description."""

    study: str = Field(max_length=200, description="authors and year, or unknown")
    result: str = Field(max_length=300, description="what most people did, or unknown")


def _of_known_designs(descriptions: dict[str, str]) -> dict[str, str]:
    # Before anything is asked: whether an author was named is known of these alone.
    if not descriptions:
        raise ValueError("describe at least one design")
    known_names("design", list(descriptions), DESIGNS)
    return descriptions


class Recall(Run[Recalled]):
    """Asks which published study a description is of: who can name it may recite it."""

    defaults = {"turns": 1}  # noqa: RUF012 - as every world has it
    # By design, what its people are told.
    descriptions: Annotated[dict[str, str], AfterValidator(_of_known_designs)]

    async def turn(self, state: Recalled, ask: Ask) -> Recalled:
        """Ask of each design once."""
        replies = await ask.each(
            self.config.descriptions,
            Recollection,
            "Below is what the people in an experiment were told. If you know a published study "
            "with this design, name its authors and year, and what most people did; otherwise "
            "write unknown.\n\n{{ told }}",
            told=self.config.descriptions.__getitem__,
        )
        # By authors alone: "a dictator game" is a guess that the description itself suggests.
        named = {}
        for name, reply in replies.items():
            words = f"{reply.study} {reply.result}".casefold()
            is_named = any(author.casefold() in words for author in DESIGNS[name].authors)
            named[name] = int(is_named)
        return Recalled(named=named)

    def rule(self, question: Question) -> Recollection:
        """A rule recalls nothing."""
        return Recollection(study="unknown", result="unknown")


def recall_study(
    designs: Sequence[str],
    *,
    folder: str | Path | None = None,
    **who: Any,
) -> Study:
    """Return a study of one run, in which a player is asked of each design which study it is.

    Args:
        designs: names of ``DESIGNS``.
        folder: for its tape, so that it is asked once.
        who: as for ``people_designs``.

    Raises:
        ConfigError: there is no such design, or the folder is not a path.
    """
    tape = None
    if folder is not None:
        tape = as_path("folder", folder) / "recall"
    names = _design_names(designs)
    return Study(
        Recall,
        seeds=1,
        tape=tape,
        name="recall",
        descriptions={name: told_in(DESIGNS[name]) for name in names},
        **who,
    )


def told_in(design: PublishedDesign) -> str:
    """Return what the first player of a design is told, in its original."""
    descriptions: list[str] = []

    def listen(question: Question) -> object:
        descriptions.append(str(question.prompt))
        return run.rule(question)  # type: ignore[attr-defined]

    # The first condition's: what is recalled of a study does not hang on its stake.
    run = design.load()(
        players={"*": listen},
        **design.conditions()[0],
    )
    run.run(1)
    # The first player's: those who decide later are told of the others' moves too.
    return descriptions[0]


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
        designs: Mapping[str, Played],
        *,
        player: str,
        recall: Recall | None = None,
        margin: float = MARGIN,
    ) -> PeopleCard:
        """Return the card of designs that were played, its verdicts adjusted for their number.

        Args:
            designs: as ``people_designs`` gives them.
            player: who played.
            recall: a run of the probe.
            margin: the difference that still counts as near.

        Raises:
            ConfigError: there are no designs, or they are not played; the probe is not played; or
                an argument is of the wrong kind.
        """
        # Not before, since the command line is started where numpy is not installed yet.
        from llmsim_lab.study import PeopleComparison, compare_with_people

        if not isinstance(designs, Mapping) or not designs:
            raise ConfigError(
                f"designs={brief(designs)} must be designs by name, as people_designs() has them"
            )
        if not isinstance(player, str):
            raise ConfigError(f"player={brief(player)} must be a text: what the card calls it")
        if recall is not None and not isinstance(recall, Recall):
            raise ConfigError(
                f"recall={brief(recall)} must be the run of a played recall_study([...]): "
                "study.simulation(study.reference, 0)"
            )
        if recall is not None and not recall.turn_number:
            raise ConfigError("recall was not played: recall.run()")
        compared = PeopleComparison()
        labels = []
        for name, played in designs.items():
            part = compare_with_people(played, margin=margin)
            compared.extend(part)
            if part.label:
                labels.append(f"{name}: {part.label}")
        compared.label = "; ".join(labels)
        # What it wrote stays beside the verdict, for a reader who doubts it.
        recalled = {}
        if recall is not None:
            for answer in recall.turns[-1].answers:
                named = recall.state.named[answer.player]
                recalled[answer.player] = {**answer.fields, "named": bool(named)}
        return cls(
            player=player,
            compared=compared.adjusted(),
            recalled=recalled,
        )

    @classmethod
    def recorded(
        cls,
        folder: str | Path,
        *,
        margin: float = MARGIN,
    ) -> PeopleCard:
        """Return the card of what was played into a folder; no model is needed.

        Args:
            folder: as ``recorded_designs`` takes it.
            margin: the difference that still counts as near.
        """
        designs = recorded_designs(folder)
        recalls: list[Any] = [
            load(tape) for tape in _tapes_in(as_path("folder", folder) / "recall")
        ]
        models: dict[str, None] = {}
        for played in designs.values():
            models.update(dict.fromkeys(map(_model_of, played)))
        return cls.of(
            designs,
            player=", ".join(models),
            recall=recalls[0] if recalls else None,
            margin=margin,
        )

    @property
    def headline(self) -> str:
        """How many measures came out how, in one sentence."""
        originals = [likeness for likeness in self.compared if not likeness.twin]
        # Twins are no measures of their own: they say what an original's likeness is worth.
        judged = [likeness for likeness in originals if likeness.verdict != "not judged"]
        verdicts = [likeness.verdict for likeness in judged]
        recitals = [self.compared.recital(likeness) for likeness in judged]
        like = verdicts.count("like people")
        unlike = verdicts.count("unlike people")
        recited = recitals.count("recites")
        return (
            f"{self.player}: of {counted(len(judged), 'judged measure')} {like} like people, "
            f"{unlike} unlike, {verdicts.count('undecided')} undecided; {recited} recited; "
            f"{len(originals) - len(judged)} not judged"
        )

    def __str__(self) -> str:
        lines = [wrapped(self.headline), str(self.compared)]
        if self.recalled:
            lines += ["", "Asked which study it is"]
        for design, answer in self.recalled.items():
            named = "names the study" if answer["named"] else "does not name it"
            words = f"{answer.get('study', '')}: {answer.get('result', '')}"
            lines.append(wrapped(f"  {design}: {named} ({clip(words, 200)})"))
        return "\n".join(lines)

    __repr__ = __str__

    def page(self, path: str | Path) -> Path:
        """Write the card as one HTML page that opens in any browser; returns its path.

        Args:
            path: the file, which ends in ``.html``; an existing one is replaced.

        Raises:
            ConfigError: the file cannot be written, or is a tape.
        """
        # Each once: a study has several measures, and original and twin the same people.
        sources = set()
        for likeness in self.compared:
            figure = likeness.people
            sources.add((figure.study, figure.condition, figure.source, figure.place))
        read = "where people's figures were read"
        header = ("study", "condition", "source", "place")
        where = table(header, sorted(sources), caption=read)
        parts = [
            styled(f"{self.player} beside people", tag="h1"),
            styled(self.headline, tag="p"),
            Markup(self.compared._repr_html_()),
            scrolling(where, read),
        ]
        if self.recalled:
            rows = []
            for design, answer in self.recalled.items():
                named = str(answer["named"])
                rows.append((design, named, answer.get("study"), answer.get("result")))
            caption = "asked which study it is"
            answers = table(
                ("design", "an author is named", "study", "result"), rows, caption=caption
            )
            parts.append(scrolling(answers, caption))
        view = join(parts, between="\n")
        return write_page(
            path,
            None,
            title=f"{self.player} beside people",
            print_view=view,
        )
