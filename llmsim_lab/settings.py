"""The base of what users configure: a wrong value is a ``ConfigError`` that names it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from llmsim_lab.errors import ConfigError
from llmsim_lab.text import faults

__all__ = ["Settings"]

if TYPE_CHECKING:
    _Base = BaseModel
else:

    class _Checked(type(BaseModel)):
        """Makes instances that were called for by name; pydantic's own way in stays as it is."""

        def __call__(cls, *args: Any, **values: Any) -> Any:
            try:
                return super().__call__(*args, **values)
            except ValidationError as error:
                raise ConfigError(f"{cls.__name__}: {faults(error)}") from error

    class _Base(BaseModel, metaclass=_Checked):
        pass


class Settings(_Base):
    """Immutable settings; unknown ones are errors.

    ``Settings(name=value)`` raises ``ConfigError``. ``Settings.model_validate(...)``, which files
    are read with, raises pydantic's ``ValidationError``, which knows each fault's place.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
