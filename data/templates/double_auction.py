"""Double auction: buyers and sellers name prices, and trade where a bid meets an offer.

Sources: Smith (1962), "An experimental study of competitive market behavior", and Gode & Sunder
(1993), "Allocative efficiency of markets with zero-intelligence traders", Journal of Political
Economy 70 and 101. Textbook, for n sellers of a unit each: the price is between the n-th highest of
all values and costs and the next, here in the middle; all gains are the n highest minus the costs.
The rule is Gode and Sunder's, by chance any price without a loss: it comes near both on average.
"""

from pydantic import Field

from llmsim_lab import Ask, Question, Reply, Run, State


class Market(State):
    price: int | None = None  # of the latest trade
    gains: int = 0  # of all together
    traded: list[str] = []


class Quote(Reply):
    price: int


class DoubleAuction(Run[Market]):
    buyers: dict[str, int] = Field(  # what a unit is worth
        {"Ann": 90, "Bob": 75, "Cy": 60, "Di": 45}, min_length=1
    )
    sellers: dict[str, int] = Field(  # what it costs
        {"Ed": 10, "Flo": 25, "Gus": 40, "Hal": 55}, min_length=1
    )

    async def turn(self, state: Market, ask: Ask) -> Market:
        quotes = await ask.each(
            [name for name in (*self.buyers, *self.sellers) if name not in state.traded],
            Quote,
            """Buyers want to earn worth minus price, sellers price minus cost. Latest price:
            {{ state.price or "none yet" }}. You are {{ name }} and {% if name in run.buyers %}buy a
            unit worth {{ run.buyers[name] }}{% else %}sell a unit that costs
            {{ run.sellers[name] }}{% endif %}. What is your price?""",
            limits=lambda name: {"price": (self.sellers.get(name, 0), self.buyers.get(name, 100))},
        )
        price, traded, book = state.price, list(state.traded), dict[str, int]()
        for name in ask.rng.sample(list(quotes), len(quotes)):  # they come by chance
            book[name] = quotes[name].price
            bids = sorted((p, n) for n, p in book.items() if n in self.buyers)
            offers = sorted((p, n) for n, p in book.items() if n in self.sellers)
            if bids and offers and bids[-1][0] >= offers[0][0]:
                (_, buyer), (_, seller) = bids[-1], offers[0]
                price = book[seller if name == buyer else buyer]  # that of who came first
                traded += [buyer, seller]
                del book[buyer], book[seller]
        gains = sum(self.buyers.get(name, 0) - self.sellers.get(name, 0) for name in traded)
        return Market(price=price, gains=gains, traded=traded)

    def rule(self, question: Question) -> Quote:
        return Quote(price=question.rng.randint(*question.limits["price"]))

    def prediction(self) -> dict[str, float]:
        ranked, n = sorted((*self.buyers.values(), *self.sellers.values()))[::-1], len(self.sellers)
        gains = sum(ranked[:n]) - sum(self.sellers.values())
        return {"price": (ranked[n - 1] + ranked[n]) / 2, "gains": gains}


if __name__ == "__main__":
    print(DoubleAuction(players={"*": "rule"}).run(20)[["price", "gains"]])
