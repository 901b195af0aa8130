"""The people of a run, each in a seat by name, and what they are asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from llmsim_lab._util.checks import known_names
from llmsim_lab.errors import ConfigError, LLMFailureException
from llmsim_lab.llm import LLMClient, Person
from llmsim_lab.llm.human import OpenQuestion
from llmsim_lab.run._question import Question
from llmsim_lab.run.recorded import Run
from llmsim_lab.types import CallSite, ChatRequest, Decision, Number, Rationale


def people_of(run: Run) -> list[Person]:
    """Return the people who are asked in a run, in any seat."""
    players = (run.llm_client, *run.players.values())
    backends = (getattr(getattr(it, "llm_client", it), "backend", None) for it in players)
    return list(dict.fromkeys(one for one in backends if isinstance(one, Person)))


Asked = tuple[Person, OpenQuestion]
_FORESIGHT_S = 1.0
"""How long a turn may take to its first question, for its form to be known before."""
OTHERS = "everybody else"
"""The name of the seat ``*``."""


class _Noting:
    """Stands where a person does and notes what the person would be asked.

    Args:
        client: the person's.
        requests: takes each person and request.
    """

    def __init__(self, client: LLMClient, requests: list[tuple[Person, ChatRequest]]) -> None:
        self._client = client
        self._requests = requests

    async def call_with_retry(
        self,
        *,
        prompt: str,
        response_model: type[Decision],
        choices: Mapping[str, tuple[Any, ...]] | None,
        limits: Mapping[str, tuple[Number, Number]] | None,
        check: Callable[[Any], str | None],
        site: CallSite,
        rationale: Rationale = "before",
    ) -> None:
        """Note the request."""
        request = self._client.request_of(
            prompt,
            response_model,
            choices,
            limits,
            site=site,
            rationale=rationale,
        )
        self._requests.append((cast("Person", self._client.backend), request))


def foreseen(run: Run) -> list[tuple[Person, ChatRequest]]:
    """Return what people will be asked first in the next turn, without asking anything.

    Empty where others come first: it is then known when it is asked.
    """
    found: list[tuple[Person, ChatRequest]] = []

    async def put(question: Question) -> None:
        who = run._player_for(question.by or question.player, question.tag)
        if isinstance(getattr(who, "backend", None), Person):
            await question.put_to(cast("LLMClient", _Noting(who, found)))
        raise LLMFailureException("connection_error")  # for which nothing ever stands in

    run._rehearse(put, within_s=_FORESIGHT_S)
    return found


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

    def __init__(self, run: Run, agent: str | None = None) -> None:
        if not isinstance(run, Run):
            world = run.__name__ if isinstance(run, type) else "Simulation"
            raise ConfigError(
                f"{run!r:.80} is not a simulation; pass one, as in "
                f"HumanSeat({world}(players={{'Ann': 'person'}})), or HumanSeat(load('x.tape'))"
            )
        people = {
            OTHERS if name == "*" else name: who.backend
            for name, who in run.players.items()
            if isinstance(who, LLMClient) and isinstance(who.backend, Person)
        }
        if not people:
            way = f'{type(run).__name__}(players={{"Bob": Person()}})'
            raise ConfigError(f"{run!r:.120} has no people in it; name one: {way}")
        names = people if agent is None else known_names("person", agent, people)
        self.run, self.seats = run, {name: people[name] for name in names}
        self._foreseen: tuple[Any, list[Asked]] = (None, [])

    @property
    def over(self) -> bool:
        """True if no further turn is planned."""
        planned: int = self.run.config.turns
        return self.run.turn_number >= planned > 0 or self.run.done(self.run.state)

    def waiting(self) -> dict[str, Asked]:
        """Return what waits for their answers, by seat."""
        people = dict.fromkeys(self.seats.values())  # one may answer for several players
        return self._by_seat((person, it) for person in people for it in person.questions)

    def next(self) -> dict[str, Asked]:
        """Return the same, or, between turns, what they will be asked first where that is known."""
        run = self.run
        if run._stepping or self.over:
            return self.waiting()
        latest = run.turns[-1]  # another one, too, where its state was changed
        if self._foreseen[0] is not latest:
            first = foreseen(run)
            self._foreseen = latest, [(who, OpenQuestion(request)) for who, request in first]
        return self._by_seat(self._foreseen[1])

    def _by_seat(self, asked: Iterable[Asked]) -> dict[str, Asked]:
        found: dict[str, Asked] = {}
        for person, question in asked:
            own = [name for name, it in self.seats.items() if it is person]
            named = (name for name in (question.agent, question.component) if name in own)
            found.setdefault(next(named, OTHERS), (person, question))
        return {name: found[name] for name in self.seats if name in found}

    def named(self, agent: str | None) -> str:
        """Return the name of a seat; that of the first who is asked if not given."""
        if agent is not None:
            known_names("seat", agent, self.seats)
        return agent or next(iter([*self.waiting(), *self.seats]))
