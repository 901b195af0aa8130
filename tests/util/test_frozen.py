"""Frozen dataclasses that are quick to make: all but the time is as Python's own."""

from __future__ import annotations

import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace

import pytest

from llmsim_lab._util.frozen import quick_init
from llmsim_lab.types import Attempt, CallSite, ChatReply, ChatRequest, Message


@dataclass(frozen=True, slots=True)
class Plain:
    """With all that a field can have."""

    name: str
    size: int = 3
    seen: dict[str, int] = field(default_factory=dict, kw_only=True)
    note: str = field(default="none", kw_only=True, compare=False)


@quick_init
@dataclass(frozen=True, slots=True)
class Quick:
    """The same."""

    name: str
    size: int = 3
    seen: dict[str, int] = field(default_factory=dict, kw_only=True)
    note: str = field(default="none", kw_only=True, compare=False)


def test_it_takes_the_same_arguments() -> None:
    assert inspect.signature(Quick) == inspect.signature(Plain)
    assert Quick("a", 4, note="n") == Quick(name="a", size=4, seen={})
    assert repr(Quick("a", seen={"b": 1})) == repr(Plain("a", seen={"b": 1})).replace(
        "Plain", "Quick"
    )


@pytest.mark.parametrize("arguments", [{}, {"name": "a", "nmae": "b"}])
def test_wrong_arguments_raise_the_same(arguments: dict[str, str]) -> None:
    said = []
    for each in (Plain, Quick):
        with pytest.raises(TypeError) as caught:
            each(**arguments)  # type: ignore[arg-type]
        said.append(str(caught.value).replace("Plain", "Quick"))
    assert said[0] == said[1]


def test_each_gets_a_default_of_its_own() -> None:
    one, other = Quick("a"), Quick("b")
    one.seen["x"] = 1
    assert other.seen == {}


def test_it_is_frozen_and_can_be_copied_and_pickled() -> None:
    quick = Quick("a", seen={"b": 1})
    with pytest.raises(FrozenInstanceError):
        quick.size = 5  # type: ignore[misc]
    assert replace(quick, size=5) == Quick("a", 5, seen={"b": 1})
    assert pickle.loads(pickle.dumps(quick)) == quick


@pytest.mark.parametrize("cls", [Attempt, CallSite, ChatReply, ChatRequest, Message])
def test_what_a_call_is_made_of_can_be_made_so(cls: type) -> None:
    assert not hasattr(cls, "__post_init__")
    assert list(inspect.signature(cls).parameters) == [part.name for part in fields(cls)]
