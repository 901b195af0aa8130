"""What ``copy`` and ``pickle`` make of objects that hold a server, a port or a window."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn, Self, SupportsIndex

from llmsim_lab.errors import ConfigError


class Shared:
    """Base of classes whose copies are the object itself, also in a copy of what holds it.

    A second client or backend would have a limit of requests of its own, and no key: pickles, which
    copies are made of, have none.
    """

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: dict[int, Any]) -> Self:
        return self


class Sole:
    """Base of classes whose objects cannot be copied or pickled.

    Attributes:
        no_copy: the message: why there is only one, and what to do in place of a copy.
    """

    no_copy: ClassVar[str]

    def __copy__(self) -> NoReturn:
        raise ConfigError(self.no_copy)

    def __deepcopy__(self, _memo: dict[int, Any]) -> NoReturn:
        raise ConfigError(self.no_copy)

    def __reduce_ex__(self, _protocol: SupportsIndex, /) -> NoReturn:
        raise ConfigError(self.no_copy)
