"""What a tape says of one of its runs: what defined it, how it went, what its fork changed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from markupsafe import Markup

from llmsim_lab.llm import Tape
from llmsim_lab.llm.tape import RunInfo
from llmsim_lab.markup import details, join, pairs, pre, safe, table, visible
from llmsim_lab.prompts import PromptDiff
from llmsim_lab.text import clip

__all__ = ["facts", "prompt_changes", "run_html"]

_MAX_COMPARED_CHARS = 50_000
_MOST = 20
"""Prompts and interventions that are shown."""


def run_html(tape: Tape, info: RunInfo) -> Markup:
    """Return a run's facts, interventions and prompts.

    Args:
        tape: the tape.
        info: the run.
    """
    started = [("started (UTC)", info.started), ("ended (UTC)", info.ended or "not ended")]
    return join(
        [
            pairs([*facts(info), *started], caption=f"Run {info.id}"),
            _interventions(tape, info),
            _prompts(tape, info),
            details("Configuration", pre(_json(info.manifest.get("config")))),
        ]
    )


def facts(info: RunInfo) -> list[tuple[str, str]]:
    """Return names and values of what a run was; without dates, so the same for the same tape."""
    manifest = info.manifest
    first = 1 if info.fork_turn is None else info.fork_turn + 1
    config, llm = _mapping(manifest.get("config")), _mapping(manifest.get("llm"))
    found: list[tuple[str, object]] = [
        ("name", info.name),
        ("how it came about", _origin(info)),
        ("its own turns", f"{first} to {info.turns}" if info.turns >= first else "none yet"),
        ("requests recorded", f"{info.calls:,}"),
        ("outcome", info.outcome or "open: no end was noted, and it may go on"),
        ("model", _model(info)),
        ("temperature", llm.get("temperature")),
        ("seed", manifest.get("seed")),
        ("kind of simulation", manifest.get("kind")),
        ("agents", _agents(config)),
        ("parts given by the user", ", ".join(map(str, manifest.get("given") or ()))),
        ("recorded by llmsim-lab", manifest.get("package")),
    ]
    return [(name, str(value)) for name, value in found if value not in (None, "")]


def _origin(info: RunInfo) -> str:
    if info.fork_turn is not None:
        return f"{info.verb} of run {info.parent} at turn {info.fork_turn}"
    return info.verb if info.parent is None else f"{info.verb} of run {info.parent}"


def _model(info: RunInfo) -> str:
    model = _mapping(info.manifest.get("model"))
    parts = [info.model or "none", *(str(model[key]) for key in ("backend",) if model.get(key))]
    if digest := model.get("digest"):
        parts.append(f"digest {str(digest)[:12]}")
    return ", ".join(parts)


def _agents(config: Mapping[str, Any]) -> str:
    for key in ("nations", "agents"):
        entries = config.get(key)
        if isinstance(entries, list):
            names = [str(_mapping(entry).get("name", entry)) for entry in entries]
            more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
            return clip(", ".join(names[:_MOST]), 300) + more
    return ""


def _interventions(tape: Tape, info: RunInfo) -> Markup:
    frame = tape.turns_frame(info.id)
    if "interventions" not in frame:
        return Markup()
    done = [str(text) for text in frame["interventions"] if text]
    if not done:
        return Markup()
    more = f" … and {len(done) - _MOST} more" if len(done) > _MOST else ""
    words = join((clip(text, 300) for text in done[:_MOST]), between="; ")
    return Markup("<p><strong>From outside:</strong> {}{}</p>").format(words, more)


def _prompts(tape: Tape, info: RunInfo) -> Markup:
    prompts = _mapping(info.manifest.get("prompts"))
    if not prompts:
        return Markup("<p>No part of it has a prompt.</p>")
    rows = [
        (place, _mapping(entry).get("name"), str(_mapping(entry).get("digest"))[:12])
        for place, entry in list(prompts.items())[:_MOST]
    ]
    listed = details("Prompts", table(("part", "prompt", "digest"), rows))
    if info.parent is None:
        return listed
    changes = list(prompt_changes(tape.run(info.parent), info))
    if not changes:
        return join([safe(f"Its prompts are those of run {info.parent}."), listed])
    shown = (
        details(f"The prompt of {places} is another than in run {info.parent}", diff, open=True)
        for places, diff in changes[:_MOST]
    )
    return join([*shown, listed])


def prompt_changes(before: RunInfo, after: RunInfo) -> Iterator[tuple[str, Markup]]:
    """Yield the parts whose prompts differ between two runs, with a word diff of the prompts.

    Parts whose prompts changed alike come together; a part that only one run has is left out.
    """
    old, new = (_mapping(info.manifest.get("prompts")) for info in (before, after))
    changed: dict[tuple[str, str], list[str]] = {}
    for place in new:
        if place in old:
            texts = tuple(str(_mapping(of[place]).get("text", "")) for of in (old, new))
            if texts[0] != texts[1]:
                changed.setdefault((texts[0], texts[1]), []).append(place)
    for (was, now), places in changed.items():
        yield ", ".join(places), _word_diff(was, now)


def _word_diff(was: str, now: str) -> Markup:
    if max(len(was), len(now)) > _MAX_COMPARED_CHARS:
        return safe(f"too long to compare word by word: over {_MAX_COMPARED_CHARS:,} characters")
    # It escapes what it is given; what is hidden in it is made visible first.
    return Markup(PromptDiff(visible(was), visible(now))._repr_html_())


def _mapping(value: object) -> Mapping[str, Any]:
    """A tape may hold anything; what is no mapping has nothing in it."""
    return value if isinstance(value, Mapping) else {}


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
