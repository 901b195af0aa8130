"""A run continues with the state that its tape gives back, on a tape and on none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from functools import cached_property, reduce
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from builders import make_client, played, recorded
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PrivateAttr,
    SecretStr,
    SerializeAsAny,
    computed_field,
    field_serializer,
    field_validator,
)

from llmsim_lab import Ask, LLMClient, Reply, Run, State
from llmsim_lab.errors import ConfigError
from llmsim_lab.run import fork, load, replay, resume
from llmsim_lab.tape import verify
from llmsim_lab.types import LLMReasoningChain

BERLIN = ZoneInfo("Europe/Berlin")
Item = TypeVar("Item")


class Colour(Enum):
    RED = "red"
    PAIR = (1, 2)


class Size(IntEnum):
    LARGE = 3


class Word(str):
    __slots__ = ()


class Base(State):
    x: int = 0


class Sub(Base):
    y: int = 0


class Twin(State):
    x: int = 0


class Car(State):
    kind: Literal["car"] = "car"


class Van(State):
    kind: Literal["van"] = "van"


class Box(State, Generic[Item]):
    item: Item


class Frozen(BaseModel):
    """A model that is no State: nothing in it is checked when it is made."""

    model_config = ConfigDict(frozen=True)

    it: Any = None
    by_number: dict[int, float] = {}
    names: frozenset[str] = frozenset()
    times: frozenset[datetime] = frozenset()
    share: float = 0.0


class Left(NamedTuple):
    a: int
    b: str = "b"


@dataclass(frozen=True)
class Point:
    x: int = 0
    text: str = ""


@dataclass(frozen=True)
class Named(Point):
    name: str = ""


class Computed(State):
    n: int = Field(1, alias="N")
    more: int = Field(1, validation_alias="More", serialization_alias="MORE")

    @computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        return 2 * self.n

    @cached_property
    def thrice(self) -> int:
        return 3 * self.n


class Secret(State):
    word: str = Field("", exclude=True)


class Private(BaseModel):
    model_config = ConfigDict(frozen=True)
    _seen: int = PrivateAttr(default=0)


class Loose(State):
    model_config = ConfigDict(extra="allow")


class Counting(State):
    n: int = 0

    @field_validator("n")
    @classmethod
    def _one_more(cls, n: int) -> int:
        return n + 1


class Rounded(State):
    n: float = 0

    @field_serializer("n")
    def _tenth(self, n: float) -> float:
        return round(n, 1)


def of_enum(value: Any) -> Any:
    assert value.name
    return value


Member = Annotated[Any, BeforeValidator(of_enum)]


class Array(State):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    items: Annotated[
        np.ndarray[Any, Any], BeforeValidator(np.asarray), PlainSerializer(lambda it: it.tolist())
    ] = Field(default_factory=lambda: np.arange(2))


class Money:
    """A class of one's own that pydantic is told to write and read; it equals only itself."""

    def __init__(self, cents: int) -> None:
        self.cents = cents

    def __repr__(self) -> str:
        return f"Money({self.cents})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(
            lambda value: value if isinstance(value, cls) else cls(value),
            serialization=core_schema.plain_serializer_function_ser_schema(lambda it: it.cents),
        )


def private() -> Private:
    made = Private()
    made._seen = 1
    return made


def used(made: Computed) -> Computed:
    assert made.thrice
    return made


def nested(levels: int) -> Any:
    return reduce(lambda it, _: [it], range(levels), 0)


def holding(hint: Any, value: Callable[[], Any]) -> type[Run[Any]]:
    """Return a world whose second turn puts a value into its state."""
    members = {"__annotations__": {"it": hint | None, "n": int}, "it": None, "n": 0}
    held: Any = type(State)("Held", (State,), members)

    class Holding(Run[held]):
        async def turn(self, state: Any, ask: Ask) -> Any:
            if state.n == 1:
                state = state.replace(it=value())
            return state.replace(n=state.n + 1)

    return Holding


@pytest.mark.parametrize(
    ("hint", "value", "back"),
    [
        # As the field's annotation says.
        (datetime, pd.Timestamp("2026-01-02"), "datetime.datetime(2026, 1, 2, 0, 0)"),
        (datetime, datetime(2026, 1, 2, tzinfo=ZoneInfo("UTC")), None),
        (datetime, datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=5, minutes=30))), None),
        (timedelta, timedelta(days=-3, microseconds=7), None),
        (Decimal, Decimal("1.10"), None),
        (Decimal, Decimal("1E+500"), None),
        (Fraction, Fraction(1, 3), None),
        (Fraction, Fraction(10**500), None),
        (complex, 1 - 2j, None),
        (bytes, b"ab", None),
        (float, -0.0, None),
        (int, 10**400, None),
        (int | float, 1, None),
        (Path, Path("a/b"), None),
        (Colour, Colour.RED, None),
        (str, "a\ud800\u2028\0", repr("a\ufffd\u2028\0")),
        (dict[str, int], {"\ud800": 1}, repr({"\ufffd": 1})),
        (list[Base], [Base(x=3)], None),
        (Annotated[Car | Van, Field(discriminator="kind")], Van(), None),
        (Box[int], Box[int](item=3), None),
        (Left, Left(1), None),
        (Point, Point(2, "\ud800"), None),
        (Frozen, Frozen(it="\ud800", by_number={1: 2.0}, names=frozenset("a")), None),
        (Frozen, Frozen(it=[{1: (2,)}]), "Frozen(it=[{'1': [2]}], by_number={}, names=froz"),
        (Computed, used(Computed(N=2, More=3)), None),
        (Secret, Secret(), None),
        (Loose, Loose(a=1, b=(2, [3])), "Loose(a=1, b=[2, [3]])"),
        (Money, Money(3), None),
        # As JSON has them, where it does not say.
        (Any, (1, [(2,)]), "[1, [[2]]]"),
        (Any, {"a": np.int64(3), "b": [np.float32(0.5), np.bool_(True)]}, "{'a': 3, 'b': [0.5, T"),
        (Any, [Colour.RED, Colour.PAIR, Size.LARGE, Word("w")], "['red', [1, 2], 3, 'w']"),
        (Any, [date(2026, 1, 2), Decimal("1.10"), b"ab"], "['2026-01-02', '1.10', 'ab']"),
        (Any, {"a": Sub(y=1), "b": Point(1)}, "{'a': {'x': 0, 'y': 1}, 'b': {'x': 1, 'text': ''}}"),
        (Any, {np.str_("k"): 1}, "{'k': 1}"),
        (Any, [pd.Timestamp("2026-01-02"), Left(1)], "['2026-01-02T00:00:00', [1, 'b']]"),
        (list | tuple, (1,), "[1]"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_state_continues_as_its_tape_gives_it_back(
    tmp_path: Path, hint: Any, value: Any, back: str | None
) -> None:
    world, path = holding(hint, lambda: value), tmp_path / "x.tape"
    live, kept = played(world(), 3), recorded(world(tape=path), 3)
    kept.close()
    again = resume(path)
    branch = fork(path, turn=1)
    branch.run(2)
    for run in (live, kept, again, branch, load(path, 1), replay(path, 1), replay(path)):
        said = repr(run.state.it)
        expected = repr(value) if back is None else back
        # Pydantic's own class of zones with one offset.
        assert (
            said.replace("TzInfo(0)", "zoneinfo.ZoneInfo(key='UTC')")
            .replace("TzInfo(19800)", "datetime.timezone(datetime.timedelta(seconds=19800))")
            .startswith(expected)
        )
        assert run.to_frame().n.tolist() == [0, 1, 2, 3]
    assert verify(path) == []
    assert again.page(tmp_path / "x.html").exists()


@pytest.mark.parametrize(
    ("hint", "value", "why"),
    [
        (dict[str, Base], {"a": Sub(y=7)}, r"Held.it.a is Sub\(x=0, y=7\), .* annotate just what"),
        (list[Point], [Named(name="n")], r"Held.it.0 is Named\(.* give Point\("),
        (dict[str, SerializeAsAny[Base]], {"a": Sub()}, r"give Held back: .*it.a.y: Extra"),
        (Twin | Base, Base(), r"Held.it is Base\(x=0\), .*kind: Literal\['car'\] = 'car'"),
        (date | str, "2026-01-02", r"Held.it is '2026-01-02', .* give datetime.date\(2026, 1, 2\)"),
        (
            datetime,
            datetime(2026, 3, 28, tzinfo=BERLIN),
            r"Held.it is a time in .*Europe/Berlin.*UTC",
        ),
        (
            Frozen,
            Frozen(times={datetime(2026, 3, 28, tzinfo=BERLIN)}),
            "Held.it.times is a time in",
        ),
        (Array, Array(), r"Held.it.items is array\(\[0, 1\]\), which does not compare as one v"),
        (
            Member,
            Colour.RED,
            r"give Held back: AttributeError: 'str' object has no attribute 'name'",
        ),
        (
            Any,
            [{"at": time(1, tzinfo=BERLIN)}],
            r"Held.it.0.at is a time in the zone Europe/Berlin",
        ),
        (
            datetime,
            datetime(2026, 10, 25, 2, fold=1),  # noqa: DTZ001 - a clock that is put back
            r"Held.it is .*fold=1.*astimezone\(datetime.U",
        ),
        (
            Any,
            pd.Timestamp(1),
            r"Held.it is Timestamp\('1970-.*001'\), .* give '1970-01-01T00:00:0",
        ),
        (Any, pd.Timedelta(1), r"Held.it is Timedelta\(.*give 'PT0S' back"),
        (datetime, pd.NaT, r"Held.it is NaT, which is not a time: write None"),
        (date, pd.NaT, r"Held.replace\(it=NaT\): "),
        (
            Any,
            [1, {"a": float("inf")}],
            r"Held.it.1.a is inf, and a tape holds finite numb",
        ),
        (Any, np.float32("nan"), r"Held.it is nan, and a tape holds finite numbers alone"),
        (Frozen, Frozen(share=float("nan")), r"Held.it.share is nan, and a tape holds finite"),
        (
            int,
            10**5000,
            r"Held.it is <a number of 5,001 digits>, which a tape cannot hold: .*4300 digits",
        ),
        (Any, {"a": [b"\xff"]}, r"Held.it.a.0 is b'\\xff', which a tape cannot .*value.hex\(\)"),
        (
            Any,
            np.arange(2),
            r"Held.it is array\(\[0, 1\]\), which a tape .*value.tolist\(\)",
        ),
        (Any, pd.NA, r"Held.it is <NA>, which a tape cannot hold"),
        (Any, [np.longdouble("0.1")], r"Held.it.0 is .*longdouble.*, which a tape cannot hold"),
        (Any, nested(199), r"Held.it is nested too deeply"),
        (Any, nested(1500), r"Held.it is nested too deeply"),
        (Any, Decimal("NaN"), r"Held.it is NaN, and a tape holds finite numbers alone"),
        (complex, complex("nan"), r"Held.it is \(nan\+0j\), and a tape holds finite numbers"),
        (
            Frozen,
            Frozen(it={1: 2, "1": 3}),
            r"Held.it.it is \{1: 2, '1': 3\}, .* give \{'1': 3\} back",
        ),
        (Frozen, Frozen(it={"a"}), r"Held.it.it is \{'a'\}, .* give \['a'\] back"),
        (Any, iter([1]), r"Held.it holds a list_iterator.*hold it as a tuple"),
        (SecretStr, SecretStr("key"), r"Held.it is SecretStr.* exclude="),
        (Secret, Secret(word="key"), r"Held.it.word is 'key', and its tape would give '' back"),
        (Private, private(), r"Held.it has the private attributes _seen, which are on no tape"),
        (Counting, Counting(n=1), r"Held.it.n is 2, and its tape would give 3 back: .* validator"),
        (Rounded, Rounded(n=1.25), r"Held.it.n is 1.25, and its tape would give 1.2 back"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_turn_fails_that_leads_to_a_state_of_which_a_tape_would_lose_something(
    tmp_path: Path, hint: Any, value: Any, why: str
) -> None:
    world, path = holding(hint, lambda: value), tmp_path / "x.tape"
    for run in (world(), world(tape=path)):
        with pytest.raises(ConfigError, match=why):
            run.run(3)
        assert run.turn_number == 1
    assert verify(path) == []
    assert replay(path).turn_number == 1
    with pytest.raises(ConfigError, match=why):
        world(state=world().state.replace(it=value))


def test_a_parameter_is_what_a_tape_gives_back_or_an_error(tmp_path: Path) -> None:
    class Counter(State):
        n: int = 0

    class World(Run[Counter]):
        sizes: Any = ()
        day: date = date(2026, 1, 2)

        async def turn(self, state: Counter, ask: Ask) -> Counter:
            return state.replace(n=state.n + isinstance(self.sizes, list))

    given = {"sizes": ((1, Colour.RED), np.int64(2), Decimal("1.5"))}
    live, kept = played(World(**given), 1), recorded(World(**given, tape=tmp_path / "x.tape"), 1)
    for run in (live, kept, load(kept.tape), replay(kept.tape)):
        assert run.sizes == run.config.sizes == [[1, "red"], 2, "1.5"]
        assert (run.state.n, run.day) == (1, date(2026, 1, 2))
    assert live.config.model_fields_set == {"sizes"}
    with pytest.raises(ConfigError, match=r"World.sizes.0 is a time in the zone Europe/Berlin"):
        World(sizes=[datetime(2026, 3, 28, tzinfo=BERLIN)])
    with pytest.raises(ConfigError, match=r"World.sizes is array\(\[0, 1\]\), which a tape cannot"):
        World(sizes=np.arange(2))


def test_what_is_set_from_outside_is_set_as_a_replay_sets_it(tmp_path: Path) -> None:
    seen: list[Any] = []

    class Held(State):
        it: Any = None

    class World(Run[Held]):
        async def turn(self, state: Held, ask: Ask) -> Held:
            return state

        def changed(self, state: Held, values: Any) -> Held:
            seen.append(values["it"])
            return super().changed(state, values)

    run = World(tape=tmp_path / "x.tape")
    run.intervene(1, {"it": (Colour.RED, date(2026, 1, 2), Sub(y=1), np.float64(0.5))})
    recorded(run, 2)
    replay(run.tape)
    assert all(repr(it) == "['red', '2026-01-02', {'x': 0, 'y': 1}, 0.5]" for it in seen)
    assert len(seen) == 3  # on trial, in the turn, in the replay
    with pytest.raises(ConfigError, match=r"set: it.0 is nan, and a tape holds finite numbers"):
        World().intervene(0, {"it": [float("nan")]})


class Deep(Reply):
    it: Any = None


@pytest.mark.parametrize("levels", [191, 250, 1500])
@pytest.mark.parametrize("place", ["parameter", "intervention", "reply", "note", "key", "result"])
def test_what_a_line_of_a_tape_cannot_hold_so_deep_is_an_error(
    tmp_path: Path, place: str, levels: int
) -> None:
    value, path = nested(levels), tmp_path / "x.tape"

    class Held(State):
        it: Any = None

    class World(Run[Held]):
        sizes: Any = ()

        async def turn(self, state: Held, ask: Ask) -> Held:
            async def work() -> Any:
                return value

            match place:
                case "reply":
                    await ask("Ann", Deep, "Well?")
                case "note":
                    ask.note(it=value)
                case "key":
                    await ask.outside("tool", value, work)
                case "result":
                    await ask.outside("tool", "key", work)
            return state

    def play() -> None:
        sizes = value if place == "parameter" else ()
        run = World(sizes=sizes, players=lambda question: {"it": value}, tape=path)
        if place == "intervention":
            run.intervene(1, {"it": value})
        run.run(1)

    with pytest.raises(ConfigError, match="nested too deeply for a tape: more than 190"):
        play()
    assert not path.exists() or verify(path) == []


def test_what_is_noted_and_what_comes_from_outside_is_as_on_the_tape(tmp_path: Path) -> None:
    class Held(State):
        it: Any = None

    class World(Run[Held]):
        async def turn(self, state: Held, ask: Ask) -> Held:
            async def work() -> Any:
                return {"a": (1, Size.LARGE), 3: np.int64(4)}

            came = await ask.outside("tool", ("k", np.int64(1)), work)
            ask.note(pair=(1, 2), count=np.int64(3))
            return state.replace(it=repr(came))

    live, kept = played(World(), 1), recorded(World(tape=tmp_path / "x.tape"), 1)
    for run in (live, kept, load(kept.tape), replay(kept.tape)):
        assert run.state.it == "{'a': [1, 3], '3': 4}"
        assert run.to_frame()[["pair", "count"]].iloc[1].tolist() == [[1, 2], 3]


@pytest.mark.parametrize("value", [np.int64(3), date(2026, 1, 2), (1, 2)])
def test_a_column_of_ones_own_may_be_of_any_type_that_json_can_say(
    tmp_path: Path, value: Any
) -> None:
    class Held(State):
        def columns(self) -> dict[str, Any]:
            return {"mine": value}

    class World(Run[Held]):
        async def turn(self, state: Held, ask: Ask) -> Held:
            return state

    kept = recorded(World(tape=tmp_path / "x.tape"), 1)
    assert replay(kept.tape).to_frame().mine.tolist() == [value, value]


def test_a_time_in_utc_keeps_its_hour_over_the_change_to_summer_time(tmp_path: Path) -> None:
    class Clock(State):
        at: datetime = datetime(2026, 3, 28, 12, tzinfo=UTC)

    class Days(Run[Clock]):
        async def turn(self, state: Clock, ask: Ask) -> Clock:
            return state.replace(at=state.at + timedelta(days=1))

    kept = recorded(Days(tape=tmp_path / "x.tape"), 3)
    assert kept.state == replay(kept.tape).state == Clock(at=datetime(2026, 3, 31, 12, tzinfo=UTC))


class Said(Reply):
    it: Any = None


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ((1, np.int64(2)), "[1, 2]"),
        ({"b", "a", "c"}, "['a', 'b', 'c']"),
        ([{(1, 2)}, Colour.RED], "[[[1, 2]], 'red']"),
        (date(2026, 1, 2), "'2026-01-02'"),
        (b"\xff", r"turn 1, Said: the rule of Ann answered .* Said.it is b'\\xff'"),
        (np.arange(2), r"Said.it is array\(\[0, 1\]\), which a tape cannot hold"),
        (float("nan"), r"answered it=nan, which holds a number that is not finite"),
        (10**5000, r"turn 1: an answer cannot be kept: .*4300 digits"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_rule_answers_is_recorded_as_json_or_is_an_error(
    tmp_path: Path, value: Any, kept: str
) -> None:
    class Held(State):
        said: str = ""

    class World(Run[Held]):
        async def turn(self, state: Held, ask: Ask) -> Held:
            said = await ask("Ann", Said, "What?")
            return state.replace(said=type(said.it).__name__)

    players = {"Ann": lambda question: Said(it=value)}
    if not kept.startswith(("[", "'")):
        with pytest.raises(ConfigError, match=kept):
            World(players=players).run(1)
        return
    run = recorded(World(players=players, tape=tmp_path / "x.tape"), 1)
    for again in (run, replay(run.tape, players=players)):
        assert again.state.said == type(value).__name__  # a rule answers in a replay too
        assert repr(again.turns[1].answers[0].fields["it"]) == kept


def test_the_record_of_a_call_is_with_its_turn_and_not_with_a_reply_in_a_state(
    tmp_path: Path,
) -> None:
    class Held(State):
        last: Said | None = None
        chains: tuple[LLMReasoningChain, ...] = ()
        seen: tuple[bool, ...] = ()

    class World(Run[Held]):
        async def turn(self, state: Held, ask: Ask) -> Held:
            said = await ask("Ann", Said, f"What, {ask.turn}?")
            chain = LLMReasoningChain(
                component="a", agent="Ann", turn=ask.turn, reasoning="", call=said.call
            )
            seen = (*state.seen, state.last is not None and state.last.call is not None)
            return state.replace(last=said, chains=(*state.chains, chain), seen=seen)

    def client() -> LLMClient:
        return make_client({"reasoning": "r", "it": 1, "confidence": 1})

    path = tmp_path / "x.tape"
    live = played(World(llm_client=client()), 3)
    kept = recorded(World(llm_client=client(), tape=path), 2)
    kept.close()
    more = recorded(resume(path, llm_client=client()), 1)
    for run in (live, more, replay(path)):
        assert run.state.seen == (False, False, False)
        assert [chain.call for chain in run.state.chains] == run.calls


WORLD = """
from llmsim_lab import Reply, Run, State

class Pot(State):
    coins: int = 0

class Gift(Reply):
    amount: int

class World(Run[Pot]):
    async def turn(self, state, ask):
        gift = await ask("Ann", Gift, "Give?")
        return state.replace(coins=state.coins + gift.amount)
"""


def reloaded(old: type, new: type) -> None:
    """Put a new class's attributes into the old one, as IPython's %autoreload does."""
    for name, value in vars(new).items():
        if not isinstance(value, type) and name not in ("__dict__", "__weakref__"):
            setattr(old, name, value)


def test_a_world_that_autoreload_changed_says_what_happened_and_what_to_do() -> None:
    modules = []
    for _ in range(2):
        modules.append({"__name__": "pot"})
        exec(WORLD, modules[-1])
    old, new = modules
    rule = {"*": lambda question: old["Gift"](amount=1)}
    with pytest.raises(ConfigError, match=r"^Gift was defined again .*from pot import"):
        new["World"](players=rule).run(1)
    reloaded(old["Pot"], new["Pot"])
    with pytest.raises(ConfigError, match=r"^Pot was defined again .*%autoreload.*from pot import"):
        old["World"]()
    reloaded(old["World"].config_type, new["World"].config_type)
    with pytest.raises(ConfigError, match=r"^World was defined again .*%autoreload"):
        old["World"]()


class Stopped(State):
    """Meets a Ctrl-C where a state, or a note on it, is written as JSON, once."""

    x: int = 0

    @field_serializer("x")
    def _written(self, x: int) -> int:
        if STRIKES:
            STRIKES.pop()
            raise KeyboardInterrupt
        return x


STRIKES: list[int] = []


class Counting(Run[Stopped]):
    async def turn(self, state: Stopped, ask: Ask) -> Stopped:
        return state.replace(x=state.x + 1)


def test_a_ctrl_c_while_a_state_is_written_is_one_and_the_run_is_played_on(
    tmp_path: Path,
) -> None:
    run = Counting(tape=tmp_path / "x.tape")
    STRIKES.append(1)
    with pytest.raises(KeyboardInterrupt):
        run.run(1, progress=False)
    run.run(1, progress=False)
    assert (run.turn_number, run.state.x) == (1, 1)
    assert verify(tmp_path / "x.tape") == []
