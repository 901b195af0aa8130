"""The people of a run, each in a seat by name, and what they are asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, cast

from llmsim_lab._util.checks import known_names
from llmsim_lab._util.text import brief
from llmsim_lab.errors import ConfigError, LLMFailureException
from llmsim_lab.llm import LLMClient, Person
from llmsim_lab.llm.human import OpenQuestion
from llmsim_lab.llm.scope import scope
from llmsim_lab.run.guided import plays_a_turn
from llmsim_lab.run.question import Question
from llmsim_lab.run.recorded import Run
from llmsim_lab.run.told import is_over
from llmsim_lab.run.turn import Turn
from llmsim_lab.types import CallSite, Decision, Number, Rationale


def people_of(run: Run) -> list[Person]:
    """Return the people who are asked in a run, in any seat, each once."""
    people: dict[Person, None] = {}
    for player in (run.llm_client, *run.players.values()):
        client = getattr(player, "llm_client", player)  # of a contract's class, its client
        backend = getattr(client, "backend", None)
        if isinstance(backend, Person):
            people[backend] = None
    return list(people)


class PersonAsked(NamedTuple):
    """A person, and what the person is asked."""

    person: Person
    question: OpenQuestion


_FORESIGHT_S = 1.0
"""How long a turn may take to its first question, for its form to be known before."""
OTHERS = "everybody else"
"""The name of the seat ``*``."""


class _Noting:
    """Stands where a person does and notes what the person would be asked.

    Args:
        client: the person's.
        asked: takes each person and question.
    """

    def __init__(self, client: LLMClient, asked: list[PersonAsked]) -> None:
        self._client = client
        self.backend = client.backend
        self._asked = asked

    async def call_with_retry(
        self,
        *,
        prompt: str,
        response_model: type[Decision],
        choices: Mapping[str, tuple[Any, ...]] | None,
        limits: Mapping[str, tuple[Number, Number]] | None,
        check: Callable[[Any], str | None],
        site: CallSite | None,
        rationale: Rationale = "before",
    ) -> None:
        """Note the question."""
        client = self._client
        request = client.request_of(
            prompt,
            response_model,
            choices,
            limits,
            site=site,
            rationale=rationale,
        )
        judge = client.reader_of(
            response_model,
            choices,
            limits,
            check,
            rationale=rationale,
        )
        question = OpenQuestion(
            request,
            judge,
            scope().for_people,
            scope().answerer,
        )
        self._asked.append(PersonAsked(cast("Person", client.backend), question))


def foreseen(run: Run) -> list[PersonAsked]:
    """Return what people will be asked first in the next turn, without asking anything.

    Empty where others come first: it is then known when it is asked.
    """
    questions: list[PersonAsked] = []

    async def note(question: Question) -> None:
        player = run._player_for(question.by or question.player, question.tag)
        if isinstance(getattr(player, "backend", None), Person):
            await question.put_to(cast("LLMClient", _Noting(player, questions)))
        raise LLMFailureException("connection_error")  # for which nothing ever stands in

    run._rehearse(note, within_s=_FORESIGHT_S)
    return questions


class People:
    """The people of a run, or one of them.

    Args:
        run: has people among its players.
        agent: whose seat alone counts; all if not given.

    Attributes:
        run: the run.
        seats: the people by the names of their seats.

    Raises:
        ConfigError: there is no person, or none of that name.
    """

    def __init__(
        self,
        run: Run,
        agent: str | None = None,
    ) -> None:
        if not isinstance(run, Run):
            world = run.__name__ if isinstance(run, type) else "Simulation"
            raise ConfigError(
                f"{brief(run, 80)} is not a simulation; pass one, as in "
                f"HumanSeat({world}(players={{'Ann': 'person'}})), or HumanSeat(load('x.tape'))"
            )
        people: dict[str, Person] = {}
        for name, player in run.players.items():
            if isinstance(player, LLMClient) and isinstance(player.backend, Person):
                people[OTHERS if name == "*" else name] = player.backend
        if not people:
            raise ConfigError(
                f"{brief(run, 120)} has no people in it; name one: "
                f'{type(run).__name__}(players={{"Bob": Person()}})'
            )
        self.run = run
        self._foreseen: list[PersonAsked] = []
        self._foreseen_after: Turn | None = None
        """The turn after which this was foreseen."""
        self.seats = people
        self._name_others()
        if agent is not None:
            self.seats = {name: people[name] for name in known_names("person", agent, people)}

    def _name_others(self) -> None:
        """Give the seats of ``*`` the names of those who will be asked, where that is known."""
        if OTHERS not in self.seats or self.over:
            return
        person = self.seats[OTHERS]
        if plays_a_turn(self.run):
            questions = [PersonAsked(person, question) for question in person.questions]
        else:
            questions = self._foresee()
        names: list[str] = []
        for answerer, question in questions:
            # Those with a seat of their own are named already.
            if answerer is person and question.agent and question.agent not in self.seats:
                names.append(question.answerer or question.agent)
        if names:
            del self.seats[OTHERS]
            self.seats |= dict.fromkeys(names, person)

    @property
    def over(self) -> bool:
        """True if no further turn is planned."""
        return is_over(self.run)

    def waiting(self) -> dict[str, PersonAsked]:
        """Return what waits for their answers, by seat."""
        waiting: list[PersonAsked] = []
        for person in dict.fromkeys(self.seats.values()):  # one may answer for several players
            waiting += [PersonAsked(person, question) for question in person.questions]
        return self._by_seat(waiting)

    def next(self) -> dict[str, PersonAsked]:
        """Return the same, or, between turns, what they will be asked first where that is known."""
        run = self.run
        # While a turn is played the questions themselves are there.
        if plays_a_turn(run) or self.over:
            return self.waiting()
        return self._by_seat(self._foresee())

    def _foresee(self) -> list[PersonAsked]:
        """Return what will be asked first in the next turn; worked out once a turn."""
        latest = self.run.turns[-1]  # another one, too, where its state was changed
        if self._foreseen_after is not latest:
            self._foreseen_after = latest
            self._foreseen = foreseen(self.run)
        return self._foreseen

    def _by_seat(self, questions: Iterable[PersonAsked]) -> dict[str, PersonAsked]:
        """Return the first question of each seat, in the order of the seats."""
        by_seat: dict[str, PersonAsked] = {}
        for question in questions:
            by_seat.setdefault(self._seat_of(question), question)
        return {seat: by_seat[seat] for seat in self.seats if seat in by_seat}

    def _seat_of(self, asked: PersonAsked) -> str:
        """Return the name of the seat in which a question is answered."""
        question = asked.question
        # With a tag that is a player's name, only the world's own word says who is meant.
        for name in (question.answerer, question.agent, question.component):
            if name in self.seats and self.seats[name] is asked.person:
                return name
        return OTHERS

    def named(self, agent: str | None) -> str:
        """Return the name of a seat; that of the first who is asked if not given."""
        if agent is not None:
            known_names("seat", agent, self.seats)
        if agent:
            return agent
        return next(iter(self.waiting() or self.seats))
