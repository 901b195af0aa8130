"""A model's fitness card: how quick it is, what form it keeps, what it obeys, and fit for what.

A card is kept in a file, by the digest of the model's weights, as it grows: what is stopped is
continued from the last whole check, and what was measured is not measured again.

What a model is fit for follows from stated cut-offs (``LEVELS``). A level is reached if the whole
95 % interval of each of its shares is at or above the cut-off, missed if one is wholly below, and
undecided otherwise: more answers decide it. Whether a model is of use for an economy is another
question, which the economic gate asks (``_gate``).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, computed_field

from llmsim_lab._util.files import kept_folder
from llmsim_lab._util.html import join, safe, table
from llmsim_lab._util.tables import plain_frame
from llmsim_lab._util.text import clip
from llmsim_lab._util.waiting import run_sync
from llmsim_lab.errors import ConfigError, LLMFailureException
from llmsim_lab.llm import LLMClient, connect
from llmsim_lab.study import _checks
from llmsim_lab.types import ModelInfo

if TYPE_CHECKING:
    import pandas as pd


T = TypeVar("T")


class Level(NamedTuple):
    """What a model can be fit for.

    Attributes:
        name: in words.
        forms: least share of short replies that have the form asked for at the first attempt.
        obeyed: least share of pairs of an instruction and its reverse that are both obeyed.
    """

    name: str
    forms: float
    obeyed: float = 0.0


LEVELS = (
    Level("plumbing and tests", forms=0.5),
    Level("trying the tool", forms=0.8, obeyed=0.5),
    Level("structured decisions", forms=0.9, obeyed=0.8),
)
"""The least first. A model that takes one of three options at random obeys one pair in nine."""
_OTHER = 0.8
"""Least share for tools, and for each single form."""


class Check(BaseModel):
    """What a check found, and the answers that it rests on."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    measures: tuple[_checks.Measure, ...]
    seconds: float
    raw: tuple[Any, ...] = ()


class Card(BaseModel):
    """What was measured of a model, as it is kept in a file.

    Attributes:
        model: the model's name as its backend knows it.
        backend: ``ollama``, ``embedded`` …
        version: of the server or runtime, where known.
        digest: of the model's weights; None where it is not known: the card is kept by name then.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    model: str
    backend: str
    version: str | None = None
    digest: str | None = None

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Return a kept card, or None where none can be read: it is measured anew."""
        with suppress(OSError, ValidationError):
            return cls.model_validate_json(path.read_bytes())
        return None

    @classmethod
    def kept(cls, folder: Path) -> list[Self]:
        """Return the finished cards in a folder, the newest first."""
        found = map(cls.read, folder.glob("*.json"))
        done = [card for card in found if card is not None and card.finished]
        return sorted(done, key=attrgetter("measured_at"), reverse=True)

    @property
    def finished(self) -> bool:
        """Whether all was asked."""
        raise NotImplementedError


class FitnessCard(Card):
    """What was measured of a model; its last line, ``verdict``, says what it is fit for.

    Attributes:
        context_trained: longest context it was trained for, tokens, where known.
        context_used: the one that it was measured with, tokens.
        full: whether it is the long form, which asks more of each.
        measured_at: when it was begun.
        version_of_checks: a kept card of another one is not read.
        checks: by name, in the order in which they were made.
    """

    context_trained: int | None = None
    context_used: int
    full: bool = False
    measured_at: AwareDatetime
    # Bounds and not a Literal, which takes no constant: a card of another version is not valid.
    version_of_checks: Annotated[int, Field(ge=_checks.VERSION, le=_checks.VERSION)] = (
        _checks.VERSION
    )
    checks: dict[str, Check] = {}

    @property
    def finished(self) -> bool:
        """Whether all checks were made."""
        return self.checks.keys() >= _checks.CHECKS.keys()

    @property
    def measures(self) -> tuple[_checks.Measure, ...]:
        """All lines, in order."""
        return tuple(one for check in self.checks.values() for one in check.measures)

    @property
    def seconds(self) -> float:
        """How long the checks took."""
        return sum(check.seconds for check in self.checks.values())

    @computed_field  # type: ignore[prop-decorator]
    @property
    def verdict(self) -> str:
        """What the model is fit for, what is undecided, and by which numbers."""
        return _verdict({one.name: one for one in self.measures}, full=self.full)

    @property
    def heading(self) -> str:
        """Which model this is, and how the card was made."""
        known = f"digest {self.digest[:12]}" if self.digest else "no digest is known: kept by name"
        trained = f" of {self.context_trained:,}" if self.context_trained else ""
        form = "full" if self.full else "quick"
        server = f"{self.backend} {self.version}" if self.version else self.backend
        return (
            f"{self.model} ({server}, {known}), "
            f"context {self.context_used:,}{trained} tokens; {form}, "
            f"{self.measured_at:%Y-%m-%d}, {self.seconds:.0f} s"
        )

    def to_frame(self) -> pd.DataFrame:
        """Return the card as a table, a row a measure."""
        ends = ("low", "high")
        rows = [
            {"check": name, **one.model_dump(), **dict(zip(ends, one.interval or (), strict=False))}
            for name, check in self.checks.items()
            for one in check.measures
        ]
        columns = ["check", "name", "title", "value", "unit", "n", "hits", "low", "high"]
        return plain_frame(rows, [*columns, "note", "why_not"])

    def to_json(self) -> str:
        """Return all of the card, with the answers that it rests on."""
        return self.model_dump_json(indent=2)

    def compare(self, *others: FitnessCard) -> pd.DataFrame:
        """Return cards side by side, a column each, the last row what each is fit for."""
        named = dict(zip(column_names((self, *others)), (self, *others), strict=True))
        cells = {name: {it.title: _cell(it) for it in of.measures} for name, of in named.items()}
        titles = dict.fromkeys(title for of in cells.values() for title in of)
        rows = [
            {"measure": title} | {name: of.get(title, "") for name, of in cells.items()}
            for title in titles
        ]
        verdicts = {name: card.verdict for name, card in named.items()}
        return plain_frame([*rows, {"measure": "fit for"} | verdicts], ["measure", *named])

    def __str__(self) -> str:
        lines = [f"{one.title}: {_cell(one)}" for one in self.measures]
        return "\n".join([self.heading, *lines, self.verdict])

    def __repr__(self) -> str:
        return f"<FitnessCard {self.model!r}: {self.verdict}>"

    def _repr_html_(self) -> str:
        rows = [one.cells for one in self.measures]
        shown = table(_checks.COLUMNS, rows, caption=self.heading)
        return str(join([shown, safe(self.verdict)]))


def column_names(cards: Iterable[FitnessCard]) -> list[str]:
    """Return a name for each card: the model's, with what tells two of one model apart."""
    cards = list(cards)
    names = [card.model for card in cards]
    if len(set(names)) < len(names):
        names = [f"{card.model} ({'full' if card.full else 'quick'})" for card in cards]
    if len(set(names)) < len(names):
        names = [f"{place}: {name}" for place, name in enumerate(names, 1)]
    return names


def _cell(one: _checks.Measure) -> str:
    if one.value is None:
        return f"not measured: {one.why_not}"
    count = f" (n = {one.n}{f', {one.shown_interval}' if one.interval else ''})" if one.n else ""
    return one.shown + count


# --- fit for what ---------------------------------------------------------------------------------


def _verdict(known: Mapping[str, _checks.Measure], *, full: bool) -> str:
    forms = [known[name] for name in _checks.SHORT_FORMS if name in known and known[name].n]
    obeyed = known.get("obeyed")
    if len(forms) < len(_checks.SHORT_FORMS) or obeyed is None or not obeyed.n:
        why = {known[it].why_not for it in (*_checks.SHORT_FORMS, "obeyed") if it in known} - {""}
        return f"Undecided: {'; '.join(sorted(why)) or 'the card is not finished'}."
    whole = _checks.share("forms", sum(one.hits or 0 for one in forms), sum(one.n for one in forms))
    # Each level takes what the one before takes, so the first that is not reached ends it.
    reached, rest = "", ""
    for level in LEVELS:
        faults, open_ = [], []
        for words, one, least in (
            ("replies have the form asked for", whole, level.forms),
            ("pairs of an instruction and its reverse are obeyed", obeyed, level.obeyed),
        ):
            low, high = one.interval or (0.0, 1.0)
            takes = f"{one.shown_interval}; it takes {100 * least:.0f} %"
            text = f"{one.hits} of {one.n} {words} ({takes})"
            if high < least:
                faults.append(text)
            elif low < least:
                open_.append(text)
        if faults:
            rest = f"not for {level.name}: {', '.join(faults)}"
            break
        if open_:
            more = "" if full else "; the full card asks more"
            rest = f"undecided for {level.name}: {', '.join(open_)}{more}"
            break
        reached = level.name
    parts = []
    if reached:
        only = " only" if reached == LEVELS[0].name and rest.startswith("not") else ""
        parts.append(f"Fit for {reached}{only}")
    elif rest.startswith("not"):
        parts.append("Fit for nothing here")
    if rest:
        parts.append(rest if parts else rest[:1].upper() + rest[1:])
    if reached == LEVELS[-1].name:
        parts += _exceptions(known)
    parts.append("nothing is said of economics")
    return "; ".join(parts) + "."


def _exceptions(known: Mapping[str, _checks.Measure]) -> list[str]:
    """Return what a model that is fit for decisions cannot do, or may not."""
    found = []
    for one in (
        known[name] for name in (*_checks.SHORT_FORMS, "long_text", "tools") if name in known
    ):
        if one.interval is None:
            found.append(f"not measured for {_short(one)}")
        elif one.interval[1] < _OTHER:
            found.append(f"not for {_short(one)} ({one.hits} of {one.n})")
        elif one.interval[0] < _OTHER and one.name not in _checks.SHORT_FORMS:
            found.append(f"undecided for {_short(one)} ({one.hits} of {one.n})")
    return found


def _short(one: _checks.Measure) -> str:
    return "tools" if one.name == "tools" else one.title.removeprefix("valid: ")


# --- measuring ------------------------------------------------------------------------------------


def fitness_card(
    model: LLMClient | str = "auto",
    *,
    full: bool = False,
    again: bool = False,
    reload: bool = True,
    folder: Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> FitnessCard:
    """Return a model's card: the one that is kept, completed or measured where need be.

    Args:
        model: a client, whose context, time limit and further options hold; or what ``connect``
            takes.
        full: ask three times as much, which decides more.
        again: measure anew what is kept.
        reload: whether the model may be unloaded, for all that use it on its server, to see how
            long it takes to load and whether it answers the same then.
        folder: where cards are kept; ``$LLMSIM_CARDS``, else the user's cache.
        progress: called with the name of each check as it begins.

    Raises:
        ConfigError: there is no such model, or the folder cannot be written to.
        LLMFailureException: the server does not answer; what was measured until then is kept.
    """

    async def measured(client: LLMClient) -> FitnessCard:
        info, used = await client.model_info(), client.config.num_ctx
        # What a card leaves out without a reload is measured once it may be.
        settings = {"think": client.config.think, "reload": reload, "full": full}
        path = place_of(folder or kept_folder("cards"), _checks.VERSION, client, info, **settings)
        card = None if again else FitnessCard.read(path)
        # A file that was copied or edited may be another model's.
        if card is None or (card.model, card.digest, card.full) != (info.name, info.digest, full):
            card = FitnessCard(
                **of_model(info), context_trained=info.context_length, context_used=used, full=full
            )
        # Fixed, so that cards compare; without waits, since an invalid answer is a number here.
        changes = {"temperature": 0.7, "max_text_chars": 400, "retry_wait_s": (0.0, 0.0)}
        asker = _checks.Asker(
            client.with_config(client.config.model_copy(update=changes)), full=full, reload=reload
        )
        for name, group in _checks.CHECKS.items():
            if name in card.checks:
                continue
            if progress is not None:
                progress(name)
            asker.raw, began = [], time.perf_counter()
            try:
                measures = await group.check(asker)
            except LLMFailureException as failure:
                if failure.reason in _checks.LASTING:
                    raise  # the card can be continued
                measures = [_checks.missing(one, clip(str(failure), 200)) for one in group.names]
            done = Check(
                measures=tuple(measures),
                seconds=time.perf_counter() - began,
                raw=tuple(json.loads(json.dumps(asker.raw))),  # as they will be read again
            )
            card = card.model_copy(update={"checks": card.checks | {name: done}})
            write_card(path, card.to_json())
        return card

    return measured_of(model, measured, timeout_s=120)


def measured_of(
    model: LLMClient | str, measure: Callable[[LLMClient], Awaitable[T]], *, timeout_s: float
) -> T:
    """Return what is measured of a client, or of what ``connect`` takes, which is closed then."""

    async def closing() -> T:
        if isinstance(model, LLMClient):
            return await measure(model)
        async with connect(model, quiet=True, timeout_s=timeout_s) as client:
            return await measure(client)

    return run_sync(closing())


# --- keeping --------------------------------------------------------------------------------------


def kept_cards(folder: Path | None = None) -> list[FitnessCard]:
    """Return the finished cards that are kept, the newest first."""
    return FitnessCard.kept(folder or kept_folder("cards"))


def of_model(info: ModelInfo) -> dict[str, Any]:
    """Return what a new card says of a model, and that it is begun now."""
    known = {name: getattr(info, name) for name in ("backend", "version", "digest")}
    return {"model": info.name, **known, "measured_at": datetime.now(UTC)}


def place_of(
    folder: Path, version: int, client: LLMClient, info: ModelInfo, *what: str, **settings: object
) -> Path:
    """Return the file of a card, by a digest of all that tells it from others.

    Args:
        folder: where it is.
        version: of what is asked.
        client: who answers.
        info: what the server says of its model.
        what: further texts that are a part of what is asked.
        settings: likewise, by name.
    """
    which = [version, info.backend, info.digest or f"name {info.name}", info.version]
    # Two servers may have different weights by one name, and are not equally fast.
    which += [str(getattr(client.backend, name, "")) for name in ("host", "base_url")]
    own = {"num_ctx": client.config.num_ctx, "options": client.config.options}
    text = json.dumps([*which, *what, {**own, **settings}], sort_keys=True, default=str)
    key = hashlib.sha256(text.encode()).hexdigest()
    plain = re.sub(r"[^\w.-]+", "-", info.name.rpartition("/")[2], flags=re.ASCII)[:60]
    return folder / f"{plain}-{key[:16]}.json"


def write_card(path: Path, text: str) -> None:
    """Write a card aside and move it into place: whoever stops this finds the old one or the new.

    Raises:
        ConfigError: the folder cannot be written to.
    """
    aside = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(text, encoding="utf-8")
        aside.replace(path)
    except OSError as error:
        raise ConfigError(
            f"cannot keep the card in {path.parent}: {error.strerror}; name another folder in "
            "$LLMSIM_CARDS"
        ) from error
