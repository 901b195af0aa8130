"""Which prompt a question asks with: the one that it names, or the one that a fork put there."""

from __future__ import annotations

import textwrap
from functools import lru_cache
from pathlib import Path

from llmsim_lab._util.text import clip
from llmsim_lab.errors import ConfigError, PromptError
from llmsim_lab.prompts import Prompt
from llmsim_lab.run._any_run import AnyRun
from llmsim_lab.run._plain_prompts import PLAIN, has_slots, kind_of, plain_prompt
from llmsim_lab.run._registry import file_of
from llmsim_lab.types import Decision

_MOST_PROMPTS = 64


def is_file_name(text: str) -> bool:
    """Return True for a text that names a prompt's file: one word that ends in ``.md``."""
    return text.endswith(".md") and len(text.split()) == 1


@lru_cache(maxsize=256)
def dedented(text: str) -> str:
    """Return a text of source code without its indentation and blank ends."""
    # The first line stands behind the quotes, the others where the source is indented to.
    first, newline, rest = text.partition("\n")
    return f"{first.strip()}{newline}{textwrap.dedent(rest)}".strip()


def prompt_for(
    run: AnyRun, source: object, reply: type[Decision] | None, name: str = "", system: str = ""
) -> tuple[Prompt | str, bool]:
    """Return the prompt that a question names, or the one that a fork put in its place.

    Args:
        run: the run, which keeps its prompts by their places.
        source: as ``ask`` takes it: a text, a file, or a prompt.
        reply: what is asked for; a text's prompt is called after it.
        name: what the prompt is called if it has no slots.
        system: the system message, for a prompt that has none.

    Returns:
        The prompt, or a text without slots that was not edited; and whether it is another than the
        source names.

    Raises:
        PromptError: the file cannot be read, a template is wrong, or there are two system messages.
        ConfigError: it is not a prompt, or there are too many different ones.
    """
    # Two prompts of one text are equal, and yet have names of their own.
    key = source, getattr(source, "name", ""), reply, system
    try:
        return run._sources[key]
    except (KeyError, TypeError):  # new, or not hashable and so not a prompt: see below
        pass
    if not isinstance(source, str | Path | Prompt):
        what = f"{clip(repr(source), 60)} is not a prompt"
        raise ConfigError(f"{what}; give a text, a file that ends in .md, or a Prompt")
    if isinstance(source, Path) or (isinstance(source, str) and is_file_name(source)):
        world = file_of(type(run))
        prompt = Prompt.load(Path(source) if world is None else world.parent / source)
    elif isinstance(source, str):
        text = dedented(source)
        if not has_slots(text):
            return plain_prompt(run, text, name, system)
        prompt = Prompt(text, name=kind_of(reply))
    else:
        prompt = source
    if prompt.system and system:
        raise PromptError(
            f"the prompt {prompt.name!r} has a system message, {clip(prompt.system, 40)!r}, and "
            f"the question gives another one, system={clip(system, 40)!r}; leave out one of them"
        )
    if system:
        prompt = Prompt(prompt.user, system=system, name=prompt.name, parent=prompt.parent)
    # A fork keeps its edited prompt at the place of the one that the source still names.
    place = f"{prompt.name}#{prompt.digest[:8]}"
    if place not in run._prompts:
        templates = [known for known in run._prompts if PLAIN not in known]
        if len(templates) >= _MOST_PROMPTS:  # each is in the manifest
            what = f"{type(run).__name__} asks with more than {_MOST_PROMPTS} different prompts"
            why = "a template is put together anew each time. Give what changes a slot"
            raise ConfigError(f"{what}: {why}: ask(..., '... {{{{ offer }}}} ...', offer=offer)")
        run._prompts[place] = prompt if run._edit is None else run._edit(prompt)
    used: Prompt = run._prompts[place]
    run._sources[key] = found = used, used.digest != prompt.digest
    return found
