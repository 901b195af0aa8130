"""Short texts: numbers and lines for people, what is wrong in words, and lines of the log.

Log lines have one format: an event's name, then ``key=value`` pairs (logfmt), through stdlib
logging. The package configures logging only where ``LLMSIM_LOG=debug`` asks for it;
``logging.basicConfig(level="DEBUG")`` shows all as well.
"""

from __future__ import annotations

import difflib
import json
import logging
import math
import os
import re
import reprlib
import textwrap
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from enum import Enum
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path, PurePath
from typing import Any, TextIO

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from llmsim_lab.errors import ConfigError, LabError

MINUS = "\N{MINUS SIGN}"
DIGITS = 10
"""Significant digits that numbers in prompts have at most."""

_TERMINAL = 80
_MOST_FAULTS = 20
_MOST_WRITTEN = 200_000
_MOST_ERROR = 300
"""Characters of another program's error in a message."""
_LIBRARIES = (
    str(Path(os.__file__).parent),
    str(Path(__file__).parents[1]),
    "<frozen ",
)
"""How the names of files begin that are Python's or this package's."""

_MOST_COMPARED = 2_000
"""Of names that may be meant by a wrong one."""
_LONGEST_NAME = 200
_MOST_LISTED = 100
"""Of the right names in a message: those of a configuration, of a table's columns."""
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")
_WITH_TEXT = (str, dict, list)
_BARE = re.compile(r"[^\s\"=\\]+")
"""A value that stands in a log line without quotes."""


def now() -> str:
    """Return the time, UTC, ISO 8601 to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@lru_cache(maxsize=1024)
def number(value: float) -> str:
    """Return a number with at most two decimals, no trailing zeros: 9.375 as 9.38, 2.0 as 2."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def contrast_name(upper: str, lower: str) -> str:
    """Return what a difference, of two arms or levels, is called; the second is subtracted."""
    return f"{upper} {MINUS} {lower}"


def text_of(option: object) -> str:
    """Return an option as models and readers see it: 25 for 25.0, an enum's value."""
    if isinstance(option, Enum):
        option = option.value
    if isinstance(option, float):
        return f"{option:.12g}"
    return str(option)


def roughly(count: float) -> int:
    """Return a count to two significant figures; an estimate has no more."""
    if count < 100:
        return round(count)
    return int(float(f"{count:.1e}"))


def duration(seconds: float) -> str:
    """Return a time for people: 42 s, 7 min, 2.5 h."""
    # Two digits of each unit: 100 s are 2 min, and 100 min are 1.7 h.
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    if seconds < 5_940:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.1f} h"


def rounded(value: Any) -> Any:
    """Return a value whose numbers, as deep as they are, have at most 10 significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    # Not of subclasses, such as a named tuple, which may be made in other ways.
    if type(value) is dict:
        return {key: rounded(item) for key, item in value.items()}
    if type(value) is list:
        return [rounded(item) for item in value]
    if type(value) is tuple:
        return tuple([rounded(item) for item in value])
    return value


def whole(value: Any) -> Any:
    """Return a value of JSON whose texts, as deep as they are, have no half characters."""
    if isinstance(value, str):
        return whole_text(value)
    # What has no text stays: a line may have a million empty lists, whose copies take memory.
    if isinstance(value, dict):
        return {
            whole_text(str(name)): whole(item) if item and isinstance(item, _WITH_TEXT) else item
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [whole(item) if item and isinstance(item, _WITH_TEXT) else item for item in value]
    return value


def clip(text: str, length: int) -> str:
    """Return a text as one line of at most so many characters, an ellipsis where it was cut."""
    line = " ".join(text.split())
    if len(line) <= length:
        return line
    return line[: length - 1].rstrip() + "…"


def wrapped(line: str) -> str:
    """Return a line as a terminal shows it, 80 characters wide, the next ones indented by two."""
    indent = " " * (len(line) - len(line.lstrip()))
    # Names, paths and numbers stay whole, as somebody may copy them.
    return textwrap.fill(
        line,
        _TERMINAL,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


class _Brief(reprlib.Repr):
    """Writes the beginning of a value: Python's own repr of megabytes takes seconds."""

    def repr_int(self, value: int, level: int) -> str:
        try:
            return super().repr_int(value, level)
        except ValueError:  # Python writes no number of more than 4,300 digits
            digits = int(value.bit_length() * math.log10(2)) + 1
            return f"<a number of {digits:,} digits>"


_brief = _Brief()
_brief.maxlevel = 3
_brief.maxstring = _brief.maxother = 400
_brief.maxlist = _brief.maxtuple = 20
_brief.maxdict = _brief.maxset = 20


def brief(value: object, length: int = 60) -> str:
    """Return a value as Python writes it, clipped to a length, however large it is."""
    try:
        return clip(_brief.repr(value), length)
    except Exception:  # noqa: BLE001 - a value's own code
        return f"<{type(value).__name__}>"


def plain_text(value: object) -> str:
    """Return ``str`` of a value, in its place what ``brief`` says where its own code raises."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - a value's own code, or a number of over 4,300 digits
        return brief(value)


def counted(number: int, noun: str) -> str:
    """Return how many of a thing there are: ``1 seed``, ``8 seeds``."""
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"


def few(
    texts: Sequence[str],
    most: int,
) -> list[str]:
    """Return the first of several texts, and how many more there are as one more."""
    first = list(texts[:most])
    if len(texts) > most:
        first.append(f"and {len(texts) - most:,} more")
    return first


def listed(names: Sequence[str], most: int = 12) -> str:
    """Return names on one line, at most so many, long ones cut: ``A, B and 3 more``."""
    first = ", ".join(clip(name, _LONGEST_NAME) for name in names[:most])
    if len(names) > most:
        return f"{first} and {len(names) - most:,} more"
    return first


def whole_text(text: str) -> str:
    """Return a text with U+FFFD for each half of a character, which no file or table can hold.

    Models that are stopped in the middle of an emoji write such halves (surrogates).
    """
    if text.isascii() or not _HALF_CHARACTER.search(text):
        return text  # and no copy, since it may have megabytes
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def printable(text: str, *, keep: str = "") -> str:
    """Return a text without what a terminal or a page might obey: control codes, direction marks.

    Spaces of other kinds become plain ones: French has one that does not break before a colon.

    Args:
        text: an untrusted text, such as a model's or a file's.
        keep: characters to leave in all the same, such as line breaks.
    """
    if text.isprintable():
        return text

    def shown(match: re.Match[str]) -> str:
        character = match[0]
        if character.isprintable():
            return character
        # Past the control codes, so that a line break is left out and a wide space is not.
        if character > "\x9f" and character.isspace():
            return " "
        return ""

    return _characters_to_check(keep).sub(shown, text)


@cache
def _characters_to_check(keep: str) -> re.Pattern[str]:
    """Return what finds the characters that may not be printable, and are not to be kept."""
    # Most are ASCII, and need not be looked at one by one: a reply may have millions.
    return re.compile(f"[^ -~{re.escape(keep)}]")


def faults(
    error: ValidationError,
    top_names: Iterable[str] = (),
    *,
    within: int = 0,
) -> str:
    """Return what pydantic found wrong as one line: each place, and its fault.

    Args:
        error: pydantic's error.
        top_names: the names allowed at the top, to suggest one for a wrong name.
        within: how many levels are around the value that is meant; places leave them out.
    """
    # A list, since the first fault would use up an iterator.
    names = list(top_names)

    def say(fault: ErrorDetails) -> str:
        return fault_text({**fault, "loc": fault["loc"][within:]}, names)

    return "; ".join(each_fault(error, say))


def each_fault(
    error: ValidationError,
    say: Callable[[ErrorDetails], str],
) -> list[str]:
    """Return what is said of the first faults that pydantic found, and how many more there are.

    A file may have a hundred thousand; of more, which pydantic would write out in a gigabyte, only
    their number is said.
    """
    count = error.error_count()
    if count > _MOST_WRITTEN:
        return [f"{count:,} of its values are wrong"]
    faults = error.errors(include_url=False)
    lines = [say(fault) for fault in faults[:_MOST_FAULTS]]
    if len(faults) > _MOST_FAULTS:
        lines.append(f"and {len(faults) - _MOST_FAULTS:,} more")
    return lines


def fault_text(
    fault: ErrorDetails,
    names: Sequence[str] = (),
) -> str:
    """Return one fault that pydantic found: the place, what is wrong there, and the value.

    Args:
        fault: pydantic's.
        names: those that may stand at the top.
    """
    # pydantic's mark of a mapping's key, which no user wrote.
    place = ".".join(str(part) for part in fault["loc"] if part != "[key]")
    words = fault["msg"].removeprefix("Value error, ")
    # Messages of our own name the value already; the others have no value to show.
    if not fault["type"].startswith(("value_error", "missing", "extra_forbidden")):
        words += f" (it is {brief(fault['input'])})"
    if fault["type"] == "extra_forbidden" and len(fault["loc"]) == 1:
        meant = closest(place, names)
        if meant:
            words += meant
        elif names:
            words += f"; there are {', '.join(names)}"
    return f"{clip(place, 200)}: {words}" if place else words


def error_text(error: BaseException) -> str:
    """Return an error in words; one of other code with its class, and the file and line.

    ``KeyError: 'Ann' (pot.py, line 12)``: the text of a KeyError alone says nothing.
    """
    try:
        text = faults(error) if isinstance(error, ValidationError) else str(error)
    except Exception:  # noqa: BLE001 - the text of an exception is made by its class's own code
        text = "(its text cannot be shown)"
    if isinstance(error, LabError) and text:
        return text
    words = type(error).__name__
    if text.strip():
        words += f": {clip(whole_text(text), _MOST_ERROR)}"
    return words + _raised_at(error)


def errors_behind(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those that led to it, each once.

    ``raise first from second``, where the second was raised from the first, makes a circle.
    """
    todo = [error]
    seen: set[int] = set()
    while todo:
        cause = todo.pop()
        if cause is None or id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        todo.append(cause.__cause__ or cause.__context__)
        # As of a connection, one for each address that the name has.
        if isinstance(cause, BaseExceptionGroup):
            todo += reversed(cause.exceptions)


def _raised_at(error: BaseException) -> str:
    """Return where an error was raised, `` (pot.py, line 12)``; empty where no frame says."""
    frames = traceback.extract_tb(error.__traceback__)
    # What a reader can change is the line that called a library, not the library's.
    for frame in reversed(frames):
        if not _is_library(frame.filename):
            return f" ({PurePath(frame.filename).name}, line {frame.lineno})"
    return ""


def _is_library(filename: str) -> bool:
    """Return True for a file of Python's, of an installed package or of this one."""
    return filename.startswith(_LIBRARIES) or "site-packages" in filename


def closest(name: object, right_names: Iterable[str]) -> str:
    """Return `` (did you mean X?)`` if a right name is similar to a wrong one; else nothing."""
    # Each comparison takes as long as both names are: a file may have names by the megabyte.
    likely = [right for right in islice(right_names, _MOST_COMPARED) if len(right) <= _LONGEST_NAME]
    text = name if isinstance(name, str) else brief(name)
    similar_names = difflib.get_close_matches(
        text[:_LONGEST_NAME],
        likely,
        n=1,
    )
    if not similar_names:
        return ""
    return f" (did you mean {similar_names[0]!r}?)"


def among(name: object, right_names: Iterable[str]) -> str:
    """Return the end of a message on a wrong name: a similar right name, and all right names."""
    names = list(dict.fromkeys(right_names))
    return f"{closest(name, names)}; there are {listed(names, _MOST_LISTED) or 'none'}"


# --- log lines -----------------------------------------------------------------------------------


def _format(value: object) -> str:
    text = str(value)
    if not text.isprintable():
        return json.dumps(text)  # with escapes, which do nothing to a terminal
    if _BARE.fullmatch(text):
        return text
    return json.dumps(text, ensure_ascii=False)


def logfmt(**fields: object) -> str:
    """Return ``key=value`` pairs on one line; fields that are None are left out."""
    pairs = [f"{key}={_format(value)}" for key, value in fields.items() if value is not None]
    return " ".join(pairs)


def log_event(
    logger: logging.Logger,
    level: int,
    event: str,
    *,
    words: str | None = None,
    **fields: object,
) -> None:
    """Log one event; costs next to nothing where the level is off.

    Where no logging is set up Python shows warnings on the screen, and people get words there.

    Args:
        logger: the module's.
        level: the event's.
        event: its name.
        words: for people, in place of the line; empty if they hear of it otherwise.
        fields: what the line says, as ``key=value``.
    """
    if not logger.isEnabledFor(level):
        return
    if words is not None and level >= logging.WARNING and not logger.hasHandlers():
        if words:
            logger.log(
                level,
                "%s",
                printable(words, keep="\n"),
                stacklevel=2,
            )
        return
    line = f"{event} {logfmt(**fields)}".rstrip()
    logger.log(
        level,
        "%s",
        line,
        stacklevel=2,
    )


def log_as_asked() -> None:
    """Show log lines on the screen from the level on that ``LLMSIM_LOG`` names, if it does.

    Raises:
        ConfigError: it names no level.
    """
    name = os.environ.get("LLMSIM_LOG", "").strip().upper()
    if not name:
        return
    level = logging.getLevelNamesMapping().get(name)
    # NOTSET is 0, and would show nothing.
    if not level:
        raise ConfigError(
            f"LLMSIM_LOG={name.lower()!r} is not a level of logging: write debug, info, warning or "
            "error"
        )
    package = logging.getLogger("llmsim_lab")
    package.setLevel(level)
    # A second handler would write each line twice.
    if not package.hasHandlers():
        shown = logging.StreamHandler()
        shown.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
        package.addHandler(shown)


def estimate_tokens(text: str) -> int:
    """Return a text's estimated tokens without a tokenizer: four UTF-8 bytes each, rounded up.

    English prose has between 4 and 5 characters a token on current models; figures, names and other
    scripts have fewer.
    """
    size = len(text)
    if not text.isascii():
        # A text of a tape may have half a character, which UTF-8 cannot write.
        size = len(text.encode(errors="surrogatepass"))
    return -(-size // 4)  # rounded up


def estimate_prompt_tokens(text: str) -> float:
    """Return a prompt's estimated tokens, which may have many figures: each digit is a token."""
    digits = sum(map(str.isdigit, text))
    return estimate_tokens(text) + 0.75 * digits


def is_open(stream: TextIO | None) -> bool:
    """Return True if a standard stream can be used.

    A program without a terminal has None in its place, and a daemon may have closed it.
    """
    return stream is not None and not stream.closed
