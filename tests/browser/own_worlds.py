"""Worlds that are not ours, as users write them: a rumour in a class, a jury, a market of forty."""

from __future__ import annotations

import re
from statistics import median
from typing import Any

from pydantic import Field

from llmsim_lab import Ask, Reply, Run, State
from llmsim_lab.run import Question

__all__ = ["Gossip", "Jury", "Market", "own_runs"]

WORDS = "Ada Ben Cem Dea Eli Fay Gus Hal Ida Jon Kim Lea Mia Noa Ole Pia Quy Rob Sue Tom"
NAMES = re.findall(r"\w+", WORDS)


class Klass(State):
    ties: dict[str, list[str]] = {}
    belief: dict[str, float] = {}
    left: list[str] = []
    believers: float = 0.0


class Chat(Reply):
    tell: str = Field(description="the classmate you tell, or nobody")
    belief: float = Field(ge=0, le=1, description="how sure you are that the rumour is true")


class Gossip(Run[Klass]):
    """Twelve pupils pass a rumour on; some leave the class, new ones come."""

    turnover: float = 0.3
    pupils: int = 12

    def start(self) -> Klass:
        names = NAMES[: self.pupils]
        ties = {}
        for place, name in enumerate(names):
            near = [names[(place + step) % len(names)] for step in (-2, -1, 1, 2)]
            ties[name] = sorted(near)
        belief = {**dict.fromkeys(names, 0.0), "Ada": 1.0}
        return Klass(ties=ties, belief=belief, believers=1 / len(names))

    async def turn(self, state: Klass, ask: Ask) -> Klass:
        chats = await ask.each(
            state.ties,
            Chat,
            """You are {{ name }}, a pupil. Your friends: {{ state.ties[name] | join(", ") }}.
            You believe the rumour at {{ state.belief[name] }}. Whom do you tell?""",
            limits=lambda name: {"tell": [*state.ties[name], "nobody"]},
        )
        belief = {name: chat.belief for name, chat in chats.items()}
        for name, chat in chats.items():
            if chat.tell in belief and belief[name] > 0.5:
                belief[chat.tell] = max(belief[chat.tell], 0.8 * belief[name])
                ask.note(name, text=f"{name} tells {chat.tell}.", told=chat.tell)
        ties = {name: list(friends) for name, friends in state.ties.items()}
        left = list(state.left)
        if ask.rng.random() < self.turnover:
            gone = ask.rng.choice(sorted(ties))
            new = next(name for name in NAMES if name not in ties and name not in left)
            friends = ask.rng.sample(sorted(set(ties) - {gone}), 3)
            del ties[gone], belief[gone]
            ties = {name: [one for one in known if one != gone] for name, known in ties.items()}
            for friend in friends:
                ties[friend].append(new)
            ties[new] = friends
            belief[new] = 0.0
            left.append(gone)
        believers = sum(share > 0.5 for share in belief.values()) / len(belief)
        return state.replace(ties=ties, belief=belief, left=left, believers=believers)


JURORS = ["Alma", "Bert", "Cleo", "Dora", "Emil", "Finn"]


class Room(State):
    unanimous: bool = False
    guilty: int = 0
    votes_guilty: dict[str, bool] = {}
    note: dict[str, str] = {}
    letters: list[tuple[str, str]] = []


class Vote(Reply):
    guilty: bool = Field(description="whether you hold the accused guilty")
    to: str = Field(description="the juror whom you write to in private")
    letter: str = Field("", max_length=200, description="what you write, which nobody else reads")


class Jury(Run[Room]):
    """Six jurors vote, and write to one another in private between the votes."""

    charts = ("guilty", "votes_guilty", "unanimous", "letters")

    async def turn(self, state: Room, ask: Ask) -> Room:
        votes = await ask.each(
            JURORS,
            Vote,
            """You are {{ name }}, one of six jurors. {{ state.guilty }} voted guilty last time.
            You were written: {{ state.note[name] | default("nothing") }}""",
            limits=lambda name: {"to": [juror for juror in JURORS if juror != name]},
        )
        notes = {vote.to: f"{name}: {vote.letter}" for name, vote in votes.items()}
        guilty = sum(vote.guilty for vote in votes.values())
        return state.replace(
            guilty=guilty,
            unanimous=guilty in (0, len(votes)),
            votes_guilty={name: vote.guilty for name, vote in votes.items()},
            note=notes,
            letters=[(name, vote.to) for name, vote in votes.items()],
        )

    def rule(self, question: Question) -> dict[str, object]:
        """A juror who leans to what most voted, and writes so."""
        state, name = question.state, question.player
        place = JURORS.index(name)
        leans = state.guilty / 6 + (place - 2.5) / 12
        is_guilty = question.rng.random() < 0.25 + leans / 2
        word = "The alibi does not hold" if is_guilty else "I still doubt the only witness"
        return {
            "guilty": is_guilty,
            "to": JURORS[(place + 1 + question.rng.randrange(5)) % 6] if place else "Bert",
            "letter": f"{word}, {['and time is short', 'think of the map', 'be fair'][place % 3]}.",
            "reasoning": f"{word}: what {name} heard on day {state.guilty + 1} weighs most.",
            "confidence": 0.5 + place / 20,
        }


TRADERS = [f"Trader {number:02}" for number in range(1, 41)]


class Stalls(State):
    price_eur: float = 10.0
    traded: int = 0
    cash: dict[str, float] = dict.fromkeys(TRADERS, 100.0)
    goods: dict[str, int] = dict.fromkeys(TRADERS, 5)


class Order(Reply):
    amount: int = Field(ge=-3, le=3, description="goods to buy, or to sell if below zero")


class Market(Run[Stalls]):
    """Forty traders buy and sell one good; the price follows what they want."""

    slope: float = 0.05

    async def turn(self, state: Stalls, ask: Ask) -> Stalls:
        orders = await ask.each(
            TRADERS,
            Order,
            """A good costs {{ state.price_eur }} euros. You are {{ name }}, with
            {{ state.cash[name] }} euros and {{ state.goods[name] }} goods. Buy or sell?""",
        )
        wanted = {name: order.amount for name, order in orders.items()}
        cash, goods = dict(state.cash), dict(state.goods)
        for name, amount in wanted.items():
            cost = amount * state.price_eur
            if cost <= cash[name] and goods[name] + amount >= 0:
                cash[name] -= cost
                goods[name] += amount
        price = max(0.5, state.price_eur * (1 + self.slope * median(wanted.values())))
        traded = sum(max(0, amount) for amount in wanted.values())
        return state.replace(price_eur=price, traded=traded, cash=cash, goods=goods)


def own_runs(folder: str) -> dict[str, Run[Any]]:
    """Play each world, the first with a fork, on tapes in a folder; return the runs by name."""
    gossip = Gossip(players="random", tape=f"{folder}/gossip.tape", seed=3)
    gossip.run(8)
    gossip.fork(3, intervene={"belief.Ada": 0.0}).run(4)
    jury = Jury(players="rule", tape=f"{folder}/jury.tape")
    jury.run(7)
    market = Market(players="random", tape=f"{folder}/market.tape")
    market.run(12)
    start = Gossip(players="random", tape=f"{folder}/start.tape")
    return {"gossip": gossip, "jury": jury, "market": market, "start": start}
