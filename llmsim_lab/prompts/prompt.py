"""Prompts: two templates, for the system and the user message; and the text when they are filled.

A prompt file is Markdown: an optional first paragraph about the prompt, then the headings
``## System`` and ``## User``, each followed by a template. What never changes in a run belongs
under ``## System``, which servers read once and keep; what changes each turn belongs under
``## User``.
Templates use a small part of Jinja2's language (see ``language``): a prompt file that is not
trusted can print the values of its slots, but cannot take much time or memory.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence, Set
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from llmsim_lab._util.checks import text_argument
from llmsim_lab._util.files import bounded_text
from llmsim_lab._util.frozen import SetOnce
from llmsim_lab._util.text import brief, estimate_tokens
from llmsim_lab.errors import PromptError
from llmsim_lab.spans import (
    MAX_SPANS,
    ROLES,
    Filled,
    Origin,
    Part,
    Provenance,
    Role,
    Span,
    form_of,
    laid_out,
    relative,
    shared_origin,
)
from llmsim_lab.types import CallSite

if TYPE_CHECKING:
    from llmsim_lab.prompts.language import Template

_FEW_PAIRS = 250_000
"""With more pairs of pieces in two texts, pieces that occur everywhere begin no match."""
_MOST_PAIRS = 40_000_000
"""With more pairs, larger pieces are compared."""
_MOST_BYTES = 4_000_000
"""Of a file: a million characters, which a template may have, of up to four bytes."""
_SIZES = (r"\s+|\S+", r".*\n|.+", r"(?s).+")
"""The pieces of a text: words and the spaces between them, lines, or the whole text."""
_HEADING = re.compile(r"^## (System|User)[ \t]*$", re.MULTILINE)
_OTHER_SYSTEM = re.compile(r"(?s)## System\n\n(.*?)\n\n## User\n\n")


def word_diff(
    before: str,
    after: str,
    *,
    around: int = 1_000_000_000,
) -> str:
    """Return the differences of a second text: ``[-gone-]`` and ``{+new+}``.

    Texts are compared word by word, with the spaces between words; line by line if they are so long
    that this would take seconds; and as a whole if there are too many lines, as on a hostile tape.
    ``around`` characters of unchanged text are shown beside each change.
    """
    for pattern in _SIZES:
        old = re.findall(pattern, before)
        new = re.findall(pattern, after)
        pairs = len(old) * len(new)
        if pairs <= _MOST_PAIRS:
            break
    matcher = difflib.SequenceMatcher(
        a=old,
        b=new,
        autojunk=pairs > _FEW_PAIRS,
    )
    parts = []
    for kind, old_from, old_to, new_from, new_to in matcher.get_opcodes():
        removed = "".join(old[old_from:old_to])
        added = "".join(new[new_from:new_to])
        if kind != "equal":
            if removed:
                parts.append(f"[-{removed}-]")
            if added:
                parts.append(f"{{+{added}+}}")
        # Cut at blanks, so that no word is cut.
        elif len(removed) > 2 * around:
            beginning = removed[:around].rpartition(" ")[0]
            end = removed[-around:].partition(" ")[2]
            parts.append(f"{beginning}\n…\n{end}")
        else:
            parts.append(removed)
    return "".join(parts)


def is_file_name(text: str) -> bool:
    """Return True for the name of a prompt's file: one word that ends in ``.md``."""
    return text.endswith(".md") and len(text.split()) == 1


class _Templates(NamedTuple):
    """A prompt's templates as they were read, and the slots of both."""

    system: Template
    user: Template
    slots: tuple[str, ...]


class Prompt(SetOnce):
    """A prompt's templates. Immutable: ``edit`` returns a new prompt that names its parent.

    ``ask`` and the economic world fill prompts with ``sharing``, and do not call ``render``.

    Attributes:
        name: the prompt's name in recordings.
        system: the template of the system message; may be empty.
        user: the template of the user message.
        parent: the digest of the prompt that it was edited from, else None.

    Example:
        >>> prompt = Prompt("Greet {{ name }}.", name="greeting")
        >>> str(prompt.render(name="Ada"))
        'Greet Ada.'
    """

    set_once = ("name", "system", "user", "slots")

    def __init__(
        self,
        user: str,
        *,
        system: str = "",
        name: str = "unnamed",
        parent: str | None = None,
    ) -> None:
        for argument, text in (("user", user), ("system", system), ("name", name)):
            text_argument(argument, text)
        if not user.strip():
            raise PromptError(f"prompt {name!r} has an empty user message; give it some text")
        self.name = name
        self.system = system
        self.user = user
        self.parent = parent
        self._check_templates()

    def _check_templates(self) -> None:
        """Read the templates, so that a mistake is an error where the prompt is made."""
        _ = self._templates

    @cached_property
    def _templates(self) -> _Templates:
        # Imported here: Jinja2 takes a while, and many programs make no prompt.
        from llmsim_lab.prompts.language import template_of

        system = template_of(self.system, self.name, "system")
        user = template_of(self.user, self.name, "user")
        return _Templates(system, user, tuple(dict.fromkeys([*system.slots, *user.slots])))

    @property
    def slots(self) -> tuple[str, ...]:
        """The names of the values that ``render`` takes, in the order of first use."""
        return self._templates.slots

    def __reduce__(self) -> tuple[object, ...]:
        # Compiled templates cannot be pickled, so a worker compiles the texts again.
        rebuild = partial(
            type(self),
            self.user,
            system=self.system,
            name=self.name,
            parent=self.parent,
        )
        return rebuild, ()

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of both templates, hexadecimal."""
        return digest_of(self.system, self.user)

    @classmethod
    def load(cls, name: str | Path) -> Prompt:
        """Return the prompt in a file: one of this package's by name, any other by path.

        Raises:
            PromptError: there is no such file, or it has no ``## User``.
        """
        if isinstance(name, str) and not name.endswith(".md"):
            return _load_shipped(name)
        path = Path(name)
        try:
            text = bounded_text(path, _MOST_BYTES)
        except (OSError, UnicodeDecodeError) as error:
            raise PromptError(f"cannot read the prompt file {path}: {error}") from error
        return cls.parse(text, name=path.stem)

    @classmethod
    def shipped(cls) -> list[str]:
        """Return the names of this package's prompts."""
        return sorted(file.stem for file in Path(__file__).parent.glob("*.md"))

    @classmethod
    def parse(
        cls,
        text: str,
        *,
        name: str,
        parent: str | None = None,
    ) -> Prompt:
        """Return the prompt in a file's text.

        Args:
            text: the file's text, with ``## User`` and, if it has one, ``## System``.
            name: the prompt's name in recordings.
            parent: the digest of the prompt that it was edited from.

        Raises:
            PromptError: there is no ``## User``, or a template is wrong.
        """
        # The parts: description, heading, text, heading, text.
        _, *parts = _HEADING.split(text)
        headings = parts[::2]
        # Text before the first heading is for readers of the file, and not for the model.
        messages = dict(
            zip(
                headings,
                parts[1::2],
                strict=True,
            )
        )
        if len(messages) < len(headings):
            raise PromptError(f"prompt {name!r} has one of '## System', '## User' twice")
        if "User" not in messages:
            raise PromptError(f"prompt {name!r} has no line '## User'; its template goes below one")
        system = messages.get("System", "").strip()
        return cls(
            messages["User"].strip(),
            system=system,
            name=name,
            parent=parent,
        )

    @classmethod
    def of_text(
        cls,
        text: str,
        *,
        system: str,
        name: str,
        parent: str | None = None,
    ) -> Prompt:
        """Return the prompt with exactly this ``text``.

        The text of a file is parsed instead: blanks at its ends do not count, and neither message
        can have a line such as ``## User``.

        Args:
            text: the prompt's ``text``.
            system: its system message.
            name: the prompt's name in recordings.
            parent: the digest of the prompt that it was edited from.

        Raises:
            PromptError: such a prompt cannot have this text.
        """
        return cls(
            user_in(text, system=system, name=name),
            system=system,
            name=name,
            parent=parent,
        )

    @property
    def text(self) -> str:
        """The prompt as a file's text, which ``edit`` accepts."""
        return f"{_beginning(self.system)}{self.user}\n"

    @property
    def _is_parsed(self) -> bool:
        """True if the prompt's text, parsed as a file, gives the same prompt."""
        return _is_as_parsed(self.system) and _is_as_parsed(self.user)

    def edit(self, text: str) -> Prompt:
        """Return a prompt with another text, which names this one as its parent.

        Args:
            text: a whole prompt with ``## System`` and ``## User``, or only a user message. Blanks
                at its ends do not count, unless this prompt has some.

        Raises:
            PromptError: it is not a text, has a syntax error, is empty, or is a file's name.
        """
        if not isinstance(text, str):
            raise PromptError(
                f"prompt {self.name!r} is edited with its new text, not with {brief(text)}; a "
                "function of the old text goes into a study, vary={'prompt': ...}, or is called "
                "here: prompt.edit(change(prompt.user))"
            )
        # A model would be asked the file's name.
        if is_file_name(text):
            raise PromptError(
                f"prompt {self.name!r} is edited with its new text, and {text!r} is a file's name; "
                f"give what is in it: Path({text!r}).read_text()"
            )
        # An editor may return the whole file's text, or just the user message.
        if self._is_parsed:
            if _HEADING.search(text):
                return Prompt.parse(
                    text,
                    name=self.name,
                    parent=self.digest,
                )
            return Prompt(
                text.strip(),
                system=self.system,
                name=self.name,
                parent=self.digest,
            )
        # A line of a message here may look like a file's heading.
        system = self.system
        other = _OTHER_SYSTEM.match(text)
        if system and other and not text.startswith(_beginning(system)):
            system = other[1]
        if text.startswith(_beginning(system)):
            return Prompt.of_text(
                text,
                system=system,
                name=self.name,
                parent=self.digest,
            )
        return Prompt(
            text,
            system=system,
            name=self.name,
            parent=self.digest,
        )

    def replace(self, old: str, new: str) -> Prompt:
        """Return a prompt in which one piece of the text is replaced by another.

        Raises:
            PromptError: the prompt does not contain ``old``.
        """
        # If nothing were replaced, a study would compare a prompt with itself.
        if not old or old not in self.text:
            raise PromptError(f"prompt {self.name!r} does not contain {old!r}; see prompt.text")
        return self.edit(self.text.replace(old, new))

    def render(self, **values: object) -> RenderedPrompt:
        """Fill the slots; texts are inserted as they are, never as templates.

        Numbers are written for readers, with at most ten significant digits: 29.8, not
        29.799999999999997.

        Raises:
            PromptError: a value is missing, a value has no slot (an edited prompt may leave out
                slots), or a value does not have what the template looks up in it.
        """
        return self._render(values)

    @cached_property
    def _render(self) -> Callable[..., RenderedPrompt]:
        return self.sharing({})

    def sharing(self, values: Mapping[str, object]) -> Callable[..., RenderedPrompt]:
        """Return a function that fills the other slots, any number of times, from one mapping.

        Args:
            values: the values that all these prompts share, which are filled in once.

        Raises:
            PromptError: a value does not have what the template looks up in it.
        """
        templates = self._templates
        fill_system = templates.system.sharing(values)
        fill_user = templates.user.sharing(values)
        slots = set(templates.slots)

        def render(mine: Mapping[str, object]) -> RenderedPrompt:
            names: Set[str] = mine.keys()
            if values:
                names = names | values.keys()
            # Exactly these names: a superfluous value is mostly a misspelt slot. Only an edited
            # prompt may have lost slots.
            if names != slots:
                is_edited_out = bool(self.parent) and names > slots
                if not is_edited_out:
                    raise self._mismatch(names)
            return RenderedPrompt.of(fill_system(mine), fill_user(mine), self)

        return render

    def _mismatch(self, names: Set[str]) -> PromptError:
        """Return the error for values that do not match the slots."""
        faults = []
        missing = sorted(set(self.slots) - names)
        unused = sorted(names - set(self.slots))
        if missing:
            faults.append(f"no value for {', '.join(missing)}")
        if unused:
            faults.append(f"no slot for {', '.join(unused)}")
        slots = ", ".join(self.slots) or "none"
        return PromptError(f"prompt {self.name!r}: {'; '.join(faults)}; its slots are: {slots}")

    def diff(self, other: Prompt) -> str:
        """Return the differences of the other prompt: ``[-gone-]`` and ``{+new+}``."""
        return word_diff(self.text, other.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Prompt) and self.digest == other.digest

    def __hash__(self) -> int:
        # By the templates alone, since a prompt with another name asks the same.
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Prompt({self.name!r}, slots={list(self.slots)}, digest={self.digest[:12]!r})"


class RecordedPrompt(Prompt):
    """A prompt of a tape, which may have thousands: its templates are read when they are used.

    A mistake in one is an error only then.
    """

    def _check_templates(self) -> None:
        """Read nothing yet."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, digest={self.digest[:12]!r})"


@cache
def _load_shipped(name: str) -> Prompt:
    shipped = Prompt.shipped()
    # Checked against the list, since slashes or dots could lead out of the folder.
    if name not in shipped:
        raise PromptError(
            f"there is no prompt {name!r}; shipped are {', '.join(shipped)}; "
            "a file of your own is named by its path, ending in .md"
        )
    return Prompt.parse(
        Path(__file__).with_name(f"{name}.md").read_text("utf-8"),
        name=name,
    )


class RenderedPrompt(str):
    """A prompt with its slots filled: a string that knows its parts and where they came from.

    Args:
        system: the system message; empty if there is none.
        user: the user message.
        template: the prompt that it was made from.
        spans: the places of the values: system message first, in the order of the text.
    """

    __slots__ = ("_facts", "_sources", "_system", "_tokens", "_user", "system", "template", "user")

    system: str
    user: str
    template: Prompt
    _system: Filled
    _user: Filled
    _tokens: Sequence[int | None]
    _sources: Mapping[str, str]
    _facts: Mapping[str, object]

    def __new__(
        cls,
        *,
        system: str,
        user: str,
        template: Prompt,
        spans: Sequence[Part],
    ) -> Self:
        """Join the parts with an empty line."""
        parts: dict[Role, list[Part]] = {role: [] for role in ROLES}
        tokens: list[int | None] = []
        for part in spans:
            _, role, _, _, _, count = part
            parts[role].append(part)
            tokens.append(count)
        return cls.of(
            laid_out(system, parts["system"]),
            laid_out(user, parts["user"]),
            template,
            tuple(tokens),
        )

    @classmethod
    def of(
        cls,
        system: Filled,
        user: Filled,
        template: Prompt,
        tokens: Sequence[int | None] = (),
    ) -> Self:
        """Return the prompt of two messages, with the tokens of their values if these are known."""
        system_text, _, _ = system
        user_text, _, _ = user
        whole = user_text
        if system_text:
            whole = f"{system_text}\n\n{user_text}"
        # A string, so that it can be passed wherever a prompt's text is expected.
        new = str.__new__(cls, whole)
        new.system = system_text
        new.user = user_text
        new.template = template
        new._keep(system, user, tokens)
        return new

    def _keep(
        self,
        system: Filled,
        user: Filled,
        tokens: Sequence[int | None],
    ) -> None:
        """Keep the places of the values in both messages, and their tokens if these are known."""
        self._system = system
        self._user = user
        self._tokens = tokens
        # Only the economic world says more about its values than their slots: see ``sourced``.
        self._sources = {}
        self._facts = {}

    def sourced(
        self,
        sources: Mapping[str, str],
        /,
        **facts: object,
    ) -> Self:
        """Record where the slots' values came from; returns the prompt itself.

        Args:
            sources: the sources by slot, in words: ``{"inflation": "state.global_state.inflation,
                turn {turn}"}``. Only names of facts in braces are filled in.
            facts: the values for ``{turn}`` and the like.
        """
        self._sources = sources
        self._facts = facts
        return self

    def followed_by(
        self,
        name: str,
        words: str,
        source: str,
    ) -> Self:
        """Return the prompt with one more part at the end of its user message.

        Args:
            name: the part's name, as that of a slot.
            words: the part's text.
            source: where the text came from, in words.
        """
        text, layout, lengths = self._user
        # Each gap begins at the end of the value before.
        last_end = sum(lengths)
        for _, _, gap, _ in layout:
            last_end += gap
        added = f"{text}\n\n"
        gap = len(added) - last_end
        role: Role = "user"
        user = (added + words, (*layout, (name, role, gap, source)), (*lengths, len(words)))
        tokens = (*self._tokens, None) if self._tokens else ()
        longer = type(self).of(self._system, user, self.template, tokens)
        return longer.sourced(self._sources, **self._facts)

    @property
    def provenance(self) -> Provenance:
        """The places of the parts, and where they came from."""
        origin = self.origin(None)
        if origin is None:
            return Provenance(why=f"it has more than {MAX_SPANS:,} values")
        return origin.read(
            {"system": self.system, "user": self.user},
            agent=None,
            turn=None,
        )

    def origin(self, site: CallSite | None) -> Origin | None:
        """Return what a call records of the parts' sources; None if there are too many."""
        _, system_layout, system_lengths = self._system
        _, user_layout, user_lengths = self._user
        if len(system_layout) + len(user_layout) > MAX_SPANS:
            return None
        # Relative to agent and turn, so that the prompts of a thousand players have one form.
        agent = site.agent if site else None
        turn = site.turn if site else None
        facts = [(name, relative(fact, agent, turn)) for name, fact in self._facts.items()]
        form = form_of(
            system_layout,
            system_lengths,
            user_layout,
            tuple(self._sources.items()),
            tuple(facts),
        )
        # Calls of one form differ only in the lengths.
        if self._tokens and set(self._tokens) != {None}:
            return shared_origin(form, (user_lengths, self._tokens))
        return shared_origin(form, user_lengths)

    @property
    def spans(self) -> tuple[Span, ...]:
        """The place of each slot's value in the messages: system message first, then user."""
        return self.provenance.spans

    def __repr__(self) -> str:
        total = estimate_tokens(str(self))
        return f"<RenderedPrompt {self.template.name!r}: about {total:,} tokens>"


def user_in(
    text: str,
    *,
    system: str,
    name: str,
) -> str:
    """Return the template of the user message in a prompt's text; see ``Prompt.of_text``.

    Raises:
        PromptError: a prompt with this system message cannot have this text.
    """
    beginning = _beginning(system)
    if not text.startswith(beginning):
        raise PromptError(f"the text of prompt {name!r} does not begin with its system message")
    return text.removeprefix(beginning).removesuffix("\n")


def _beginning(system: str) -> str:
    """Return the text before the user message in a prompt's text."""
    if not system:
        return "## User\n\n"
    return f"## System\n\n{system}\n\n## User\n\n"


def _is_as_parsed(message: str) -> bool:
    return message == message.strip() and not _HEADING.search(message)


def digest_of(*parts: str) -> str:
    """Return the SHA-256 of texts, hexadecimal."""
    # No source contains NUL, so different lists of texts never join to the same text. A text may
    # contain half a character (a surrogate), which UTF-8 alone cannot encode.
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
