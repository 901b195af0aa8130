"""Values that cannot be changed: what others hold too stays as it was checked and sent."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

from llmsim_lab._util.text import brief
from llmsim_lab.errors import ConfigError


def _never_in_place(*_: object, **__: object) -> NoReturn:
    raise ConfigError(
        "a setting, a state or a parameter is never changed in place; make a new value and put it "
        "into the next state, or into other settings: "
        "state.replace(coins={**state.coins, 'Ann': 3}), state.replace(bids=[*state.bids, 3]), "
        "client.with_config(LLMConfig(options={**client.config.options, 'top_p': 0.5}))"
    )


class FrozenDict(dict[str, Any]):
    """A dict that cannot be changed: states are shared by all turns that they are part of."""

    __setitem__ = __delitem__ = __ior__ = _never_in_place
    clear = pop = popitem = setdefault = update = _never_in_place

    def __reduce__(self) -> tuple[object, ...]:
        # Unpickling a subclass of dict sets its items one by one, which is not allowed here.
        return type(self), (dict(self),)


class FrozenList(list[Any]):
    """A list that cannot be changed, as states hold."""

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _never_in_place
    append = extend = insert = pop = remove = clear = sort = reverse = _never_in_place

    def __reduce__(self) -> tuple[object, ...]:
        # As of FrozenDict: unpickling appends.
        return type(self), (list(self),)


class SetOnce:
    """Base of classes with attributes that stay as they were given and checked.

    Otherwise another host of a backend, or another text of a prompt, would be taken without a check
    and have no effect, or one that no tape tells of.

    Attributes:
        set_once: the names of these attributes.
    """

    set_once: ClassVar[tuple[str, ...]] = ()

    def __setattr__(self, name: str, value: Any) -> None:
        is_worked_out = isinstance(getattr(type(self), name, None), property)
        if name in self.set_once and (is_worked_out or name in vars(self)):
            cls = type(self).__name__
            raise ConfigError(
                f"{name} of this {cls} is set to {brief(value, 40)}, and it stays as it was given; "
                f"make another {cls}"
            )
        super().__setattr__(name, value)


_LARGEST = 10**4_300
"""Python writes no whole number of more digits, and so no tape or message has one."""
_SMALLEST = -_LARGEST
_NEVER_CHANGED = frozenset((str, float, bool, type(None)))
"""Types of most values: a population may have a million of them."""


def frozen(value: Any) -> Any:
    """Return a value with all dicts and lists in it frozen, as deep as they are.

    Raises:
        ConfigError: there is a whole number in it that has too many digits.
    """
    if type(value) in _NEVER_CHANGED:
        return value
    if isinstance(value, int) and not _SMALLEST < value < _LARGEST:
        raise ConfigError("a number of more than 4,300 digits, which no tape can hold")
    if isinstance(value, dict):
        return FrozenDict({key: frozen(item) for key, item in value.items()})
    if isinstance(value, list):
        return FrozenList([frozen(item) for item in value])
    # Not a subclass, such as a named tuple, which is made in other ways.
    if type(value) is tuple:
        return tuple([frozen(item) for item in value])
    return value


def thawed(value: Any) -> Any:
    """Return a copy of a value of JSON in which dicts and lists may be changed."""
    if isinstance(value, dict):
        return {key: thawed(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [thawed(item) for item in value]
    return value
