"""A prompt: two templates, for the system and the user message; and what it is once filled.

A prompt file is Markdown: an optional first paragraph about the prompt, then the headings
``## System`` and ``## User``, each followed by a template. What a run never changes belongs under
``## System``, which servers read once and keep; what changes each turn belongs under ``## User``.
Templates are written in a small part of Jinja2's language (see ``language``): an untrusted prompt
file can print the values of its slots, and takes neither long nor much memory.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, Self

from llmsim_lab import _spans
from llmsim_lab._spans import MAX_SPANS, ROLES, Filled, Origin, Part, Provenance, Span
from llmsim_lab._util.text import estimate_tokens
from llmsim_lab.errors import PromptError
from llmsim_lab.types import CallSite

_FEW_PAIRS, _MOST_PAIRS = 250_000, 40_000_000
_HEADING = re.compile(r"^## (System|User)[ \t]*$", re.MULTILINE)


def word_diff(before: str, after: str, *, around: int = 1_000_000_000) -> str:
    """Return what is different in a second text: ``[-gone-]`` and ``{+new+}``.

    Word by word, the spaces between them too; line by line where texts are so long that it would
    take seconds, and as a whole where lines are too many, as in a hostile tape. Of what did not
    change, so many characters beside each change are shown.
    """
    for piece in (r"\s+|\S+", r".*\n|.+", r"(?s).+"):
        old, new = (re.findall(piece, text) for text in (before, after))
        if (pairs := len(old) * len(new)) <= _MOST_PAIRS:
            break
    # In larger ones, pieces that are everywhere begin no match.
    matcher = difflib.SequenceMatcher(a=old, b=new, autojunk=pairs > _FEW_PAIRS)
    parts = []
    for kind, old_from, old_to, new_from, new_to in matcher.get_opcodes():
        gone, come = "".join(old[old_from:old_to]), "".join(new[new_from:new_to])
        changed = (f"[-{gone}-]" if gone else "") + (f"{{+{come}+}}" if come else "")
        if kind == "equal" and len(gone) > 2 * around:
            gone = f"{gone[:around].rpartition(' ')[0]}\n…\n{gone[-around:].partition(' ')[2]}"
        parts.append(gone if kind == "equal" else changed)
    return "".join(parts)


class Prompt:
    """A prompt's templates. Immutable: ``edit`` returns a new one that knows its parent.

    ``ask`` and the economic world fill them by ``sharing``, and do not call ``render``.

    Attributes:
        name: what it is called in recordings.
        system: the system message's template, may be empty.
        user: the user message's template.
        parent: digest of the prompt it was edited from, else None.

    Example:
        >>> prompt = Prompt("Greet {{ name }}.", name="greeting")
        >>> str(prompt.render(name="Ada"))
        'Greet Ada.'
    """

    def __init__(
        self, user: str, *, system: str = "", name: str = "unnamed", parent: str | None = None
    ) -> None:
        if not user.strip():
            raise PromptError(f"prompt {name!r} has an empty user message; give it some text")
        self.name, self.system, self.user, self.parent = name, system, user, parent
        # Here, since Jinja2 takes a while to import and many programs make no prompt.
        from llmsim_lab.prompts.language import template_of

        self._templates = [
            template_of(text, name, role) for role, text in zip(ROLES, (system, user), strict=True)
        ]
        slots = dict.fromkeys(slot for template in self._templates for slot in template.slots)
        self.slots: tuple[str, ...] = tuple(slots)
        """Names of the values that ``render`` takes, in order of first use."""
        self._slots = {*slots}

    def __reduce__(self) -> tuple[object, ...]:
        rebuilt = partial(Prompt, self.user, system=self.system, name=self.name, parent=self.parent)
        return rebuilt, ()

    @cached_property
    def digest(self) -> str:
        """SHA-256 of both templates, hexadecimal."""
        return digest_of(self.system, self.user)

    @classmethod
    def load(cls, name: str | Path) -> Prompt:
        """Return the prompt in a file: one shipped with the package, by name, or another, by path.

        Raises:
            PromptError: there is no such file, or it has no ``## User``.
        """
        if isinstance(name, str) and not name.endswith(".md"):
            return _load_shipped(name)
        path = Path(name)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PromptError(f"cannot read the prompt file {path}: {error}") from error
        return cls.parse(text, name=path.stem)

    @classmethod
    def shipped(cls) -> list[str]:
        """Return the names of the prompts that come with the package."""
        return sorted(file.stem for file in Path(__file__).parent.glob("*.md"))

    @classmethod
    def parse(cls, text: str, *, name: str, parent: str | None = None) -> Prompt:
        """Return the prompt that a file's text holds.

        Args:
            text: the file's text, with ``## User`` and, if it has one, ``## System``.
            name: what the prompt is called in recordings.
            parent: digest of the prompt it was edited from.

        Raises:
            PromptError: it has no ``## User``, or a template is wrong.
        """
        parts = _HEADING.split(text)
        found = dict(zip(parts[1::2], parts[2::2], strict=True))
        if len(found) * 2 != len(parts) - 1:
            raise PromptError(f"prompt {name!r} has one of '## System', '## User' twice")
        if "User" not in found:
            raise PromptError(f"prompt {name!r} has no line '## User'; its template goes below one")
        system = found.get("System", "").strip()
        return cls(found["User"].strip(), system=system, name=name, parent=parent)

    @classmethod
    def of_text(cls, text: str, *, system: str, name: str, parent: str | None = None) -> Prompt:
        """Return the prompt that has this ``text``, to the last blank.

        A file's text is parsed instead: its blank ends do not count, and neither message can hold a
        line such as ``## User``.

        Args:
            text: the prompt's ``text``.
            system: its system message.
            name: what it is called in recordings.
            parent: digest of the prompt it was edited from.

        Raises:
            PromptError: it is not the text of such a prompt.
        """
        beginning = _beginning(system)
        if not text.startswith(beginning):
            raise PromptError(f"the text of prompt {name!r} does not begin with its system message")
        user = text.removeprefix(beginning).removesuffix("\n")
        return cls(user, system=system, name=name, parent=parent)

    @property
    def text(self) -> str:
        """The prompt as a file's text; ``edit`` takes it back."""
        return f"{_beginning(self.system)}{self.user}\n"

    @property
    def _is_parsed(self) -> bool:
        """Whether its text, parsed as a file, gives just this prompt."""
        messages = (self.system, self.user)
        return all(it == it.strip() and not _HEADING.search(it) for it in messages)

    def edit(self, text: str) -> Prompt:
        """Return a prompt with another text, which knows that it came from this one.

        Args:
            text: a whole prompt with ``## System`` and ``## User``, or only a user message. Blank
                ends do not count, unless this prompt has some.

        Raises:
            PromptError: it is not a text, has a syntax error, or nothing is left.
        """
        if not isinstance(text, str):
            raise PromptError(
                f"prompt {self.name!r} is edited with its new text, not with {text!r:.60}; a "
                "function of the old text goes into a study, vary={'prompt': ...}, or is called "
                "here: prompt.edit(change(prompt.user))"
            )
        # An editor hands back the whole file's text or just the user message.
        if self._is_parsed:
            if _HEADING.search(text):
                return self.parse(text, name=self.name, parent=self.digest)
            return Prompt(text.strip(), system=self.system, name=self.name, parent=self.digest)
        # What a file would take for a heading may be a line of a message here.
        system = self.system
        other = re.match(r"(?s)## System\n\n(.*?)\n\n## User\n\n", text)
        if system and other and not text.startswith(_beginning(system)):
            system = other[1]
        if text.startswith(_beginning(system)):
            return self.of_text(text, system=system, name=self.name, parent=self.digest)
        return Prompt(text, system=system, name=self.name, parent=self.digest)

    def replace(self, old: str, new: str) -> Prompt:
        """Return a prompt in which another text stands for a piece of this one's.

        Raises:
            PromptError: the prompt does not contain ``old``.
        """
        if not old or old not in self.text:
            raise PromptError(f"prompt {self.name!r} does not contain {old!r}; see prompt.text")
        return self.edit(self.text.replace(old, new))

    def render(self, **values: object) -> RenderedPrompt:
        """Fill the slots; texts go in as they are, never as templates.

        Numbers are written for readers, with at most ten significant digits: 29.8, not
        29.799999999999997.

        Raises:
            PromptError: a value is missing, one was given that no slot uses (an edited prompt may
                do without), or a value does not have what the template looks up in it.
        """
        return self._render(values)

    @cached_property
    def _render(self) -> Callable[..., RenderedPrompt]:
        return self.sharing({})

    def sharing(self, values: Mapping[str, object]) -> Callable[..., RenderedPrompt]:
        """Return what renders the prompt with the values of its other slots, any number of times.

        It takes them as one mapping.

        Args:
            values: of the slots that all share, which are filled in once.

        Raises:
            PromptError: a value does not have what the template looks up in it.
        """
        fill_system, fill_user = [template.sharing(values) for template in self._templates]

        def render(mine: Mapping[str, object]) -> RenderedPrompt:
            # Exactly these: a value too many is a misspelt slot more often than not, unless the
            # prompt was edited, by which slots may go.
            given = mine.keys() | values.keys() if values else mine.keys()
            if given != self._slots and not (self.parent and given > self._slots):
                raise PromptError(self._mismatch({**values, **mine}))
            return RenderedPrompt.of(fill_system(mine), fill_user(mine), self)

        return render

    def _mismatch(self, values: dict[str, object]) -> str:
        faults = []
        if missing := sorted(self._slots - values.keys()):
            faults.append(f"no value for {', '.join(missing)}")
        if unused := sorted(values.keys() - self._slots):
            faults.append(f"no slot for {', '.join(unused)}")
        slots = ", ".join(self.slots) or "none"
        return f"prompt {self.name!r}: {'; '.join(faults)}; its slots are: {slots}"

    def diff(self, other: Prompt) -> str:
        """Return what is different in the other prompt: ``[-gone-]`` and ``{+new+}``."""
        return word_diff(self.text, other.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Prompt) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Prompt({self.name!r}, slots={list(self.slots)}, digest={self.digest[:12]!r})"


@cache
def _load_shipped(name: str) -> Prompt:
    # Only one of these, since slashes or dots could lead out of the folder.
    if name not in (shipped := Prompt.shipped()):
        raise PromptError(
            f"there is no prompt {name!r}; shipped are {', '.join(shipped)}; "
            "a file of your own is named by its path, ending in .md"
        )
    return Prompt.parse(Path(__file__).with_name(f"{name}.md").read_text("utf-8"), name=name)


class RenderedPrompt(str):
    """A prompt with its slots filled: a string that knows its parts and where they came from.

    Args:
        system: the system message, empty if there is none.
        user: the user message.
        template: the prompt it was rendered from.
        spans: where the parts came from: system first, in the order of the text.
    """

    __slots__ = ("_sources", "_values", "system", "template", "user")

    system: str
    user: str
    template: Prompt
    _values: tuple[Filled, Filled, Sequence[int | None]]
    _sources: tuple[Mapping[str, str], Mapping[str, object]]

    def __new__(cls, *, system: str, user: str, template: Prompt, spans: Sequence[Part]) -> Self:
        """Join the parts with an empty line."""
        first, rest = [[part for part in spans if part[1] == role] for role in ROLES]
        messages = _spans.laid_out(system, first), _spans.laid_out(user, rest)
        return cls.of(*messages, template, tuple([part[5] for part in spans]))

    @classmethod
    def of(cls, system: Filled, user: Filled, template: Prompt, tokens: Sequence[Any] = ()) -> Self:
        """Return the prompt of two messages, with the tokens of their values where known."""
        new = str.__new__(cls, f"{system[0]}\n\n{user[0]}" if system[0] else user[0])
        new.system, new.user, new.template = system[0], user[0], template
        new._values, new._sources = (system, user, tokens), ({}, {})
        return new

    def sourced(self, sources: Mapping[str, str], /, **facts: object) -> Self:
        """Record where the slots' values came from; returns the prompt itself.

        Args:
            sources: by slot, in words: ``{"inflation": "state.global_state.inflation, turn
                {turn}"}``; a fact's name in braces is all that is filled in.
            facts: what ``{turn}`` and the like in the words stand for.
        """
        self._sources = sources, facts
        return self

    @property
    def provenance(self) -> Provenance:
        """Where the parts came from."""
        if (origin := self.origin(None)) is None:
            return Provenance(why=f"it has more than {MAX_SPANS:,} values")
        return origin.read({"system": self.system, "user": self.user}, agent=None, turn=None)

    def origin(self, site: CallSite | None) -> Origin | None:
        """Return what a call keeps of where the parts came from; None of too many."""
        (_, first, fixed), (_, rest, lengths), tokens = self._values
        if len(first) + len(rest) > MAX_SPANS:
            return None
        agent, turn = (site.agent, site.turn) if site else (None, None)
        sources, facts = self._sources
        related = [(name, _spans.relative(fact, agent, turn)) for name, fact in facts.items()]
        form = _spans.form_of(first, fixed, rest, tuple(sources.items()), tuple(related))
        # In the lengths alone calls of one form differ.
        return _spans.shared_origin(form, (lengths, tokens) if {*tokens} - {None} else lengths)

    @property
    def spans(self) -> tuple[Span, ...]:
        """Where each slot's value is in the messages: system first, then user."""
        return self.provenance.spans

    def __repr__(self) -> str:
        total = estimate_tokens(str(self))
        return f"<RenderedPrompt {self.template.name!r}: about {total:,} tokens>"


def _beginning(system: str) -> str:
    """Return what stands before the user message in a prompt's text."""
    return f"## System\n\n{system}\n\n## User\n\n" if system else "## User\n\n"


def digest_of(*parts: str) -> str:
    """Return the SHA-256 of texts, hexadecimal."""
    # NUL is in no source, so that no two lists of texts join to the same one. A text may hold half
    # a character (a surrogate), which UTF-8 alone cannot encode.
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
