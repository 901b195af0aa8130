"""Variants of a prompt, edited in place and checked at every key."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import ipywidgets as w

from llmsim_lab.errors import ConfigError
from llmsim_lab.experiments._bench import Bench, Variant, prompt_of
from llmsim_lab.lab.inputs import row
from llmsim_lab.lab.texts import word_diff
from llmsim_lab.lab.variant_preview import show
from llmsim_lab.lab.widget import button
from llmsim_lab.markup import join, safe
from llmsim_lab.prompts import Prompt

__all__ = ["VariantEditor", "VariantList"]

_MOST_CHARS = 100_000


class VariantEditor(w.VBox):
    """A variant's name and text, what is wrong with them, and what differs from the first one.

    Args:
        bench: what the prompt is for.
        name: the variant's.
        prompt: its text at first.
        on_change: called when name or text change.
        on_remove: called with this editor when it is to go; None for one that stays.

    Attributes:
        name_box: the variant's name.
        text_box: the prompt.
        remove_button: takes the variant away.
        note: what is wrong, or that nothing is.
        difference: word by word from the first variant.
    """

    def __init__(
        self,
        bench: Bench,
        name: str,
        prompt: Prompt,
        *,
        on_change: Callable[[], object],
        on_remove: Callable[[VariantEditor], object] | None = None,
    ) -> None:
        self._bench = bench
        self._base = prompt
        self.prompt: Prompt | None = None
        """What the text says, if nothing is wrong with it."""
        self.fault = ""
        """What is wrong, else empty."""
        self.name_box = w.Text(
            value=name,
            description="Variant",
            layout=w.Layout(width="18em"),
            style={"description_width": "initial"},
        )
        self.text_box = w.Textarea(
            value=prompt.text,
            description="Prompt",
            rows=10,
            layout=w.Layout(width="auto"),
            style={"description_width": "initial"},
        )
        self.remove_button = button("Remove", tooltip="Take this variant away")
        self.remove_button.layout.display = "" if on_remove is not None else "none"
        self.note = w.HTML()
        self.difference = w.HTML()
        self.check()
        for box in (self.name_box, self.text_box):
            box.observe(lambda _: on_change(), names="value")
        if on_remove is not None:
            self.remove_button.on_click(lambda _: on_remove(self))
        head = row(self.name_box, self.remove_button)
        super().__init__([head, self.text_box, self.note, self.difference])

    @property
    def name(self) -> str:
        """The variant's name."""
        return str(self.name_box.value).strip()

    def lock(self, locked: bool) -> None:
        """Let the variant be edited, or not."""
        for control in (self.name_box, self.text_box, self.remove_button):
            control.disabled = locked

    def check(self, taken: tuple[str, ...] = ()) -> None:
        """Read name and text, and say what is wrong with them under the editor.

        Args:
            taken: names of the variants before this one.
        """
        self.prompt, self.fault = None, ""
        try:
            self.prompt = self._read(taken)
        except ConfigError as error:
            self.fault = str(error)
        if self.fault:
            said = f'<div role="alert">⚠ {safe(self.fault, limit=1_000)}</div>'
        else:
            slots = ", ".join(self._bench.prompt.slots) or "none"
            said = f"<small>Slots filled: {safe(slots)}</small>"
        show(self.note, said)

    def _read(self, taken: tuple[str, ...]) -> Prompt:
        if not self.name:
            raise ConfigError("a variant needs a name that is not empty")
        if self.name in taken:
            raise ConfigError(f"two variants are called {self.name!r}; give one another name")
        text = str(self.text_box.value)
        if len(text) > _MOST_CHARS:
            raise ConfigError(
                f"the prompt has {len(text):,} characters, more than {_MOST_CHARS:,}; shorten it"
            )
        prompt = self._base if text == self._base.text else self._bench.prompt.edit(text)
        self._bench.check(prompt, name=self.name)
        return prompt

    def compare(self, reference: VariantEditor) -> None:
        """Show what differs from another variant, word by word."""
        if reference is self:
            show(self.difference, "<small>The others are held against this one.</small>")
            return
        diff = word_diff(str(reference.text_box.value), str(self.text_box.value))
        title = safe(f"What differs from {reference.name or 'the first'}, word by word:")
        show(self.difference, str(join([title, diff])))

    def show_difference(self, shown: bool) -> None:
        """Show what differs from the first variant, or keep it out of the way."""
        self.difference.layout.display = "" if shown else "none"


class VariantList(w.VBox):
    """All variants, the one that the others are held against first.

    Args:
        bench: what the prompts are for.
        variants: prompts by name, to begin with.
        on_change: called when anything is edited, added or taken away.

    Attributes:
        editors: one a variant.
    """

    def __init__(
        self, bench: Bench, variants: Mapping[str, Variant], *, on_change: Callable[[], object]
    ) -> None:
        self._bench = bench
        self._on_change = on_change
        self.editors: list[VariantEditor] = []
        self._differences = False
        self._locked = False
        super().__init__()
        for name, variant in variants.items():
            self._append(name, prompt_of(name, variant, bench))

    def _append(self, name: str, prompt: Prompt) -> VariantEditor:
        editor = VariantEditor(
            self._bench,
            name,
            prompt,
            on_change=self._on_change,
            on_remove=self.remove if self.editors else None,
        )
        self.editors.append(editor)
        editor.show_difference(self._differences)
        self.children = tuple(self.editors)
        return editor

    def add(self, name: str = "", prompt: Variant = None) -> VariantEditor:
        """Add a variant.

        Args:
            name: what it is called; a number of its own if empty.
            prompt: what it says at first; a copy of the last variant if not given.

        Raises:
            ConfigError: name or prompt is none, or a comparison is running.
        """
        if self._locked:
            raise ConfigError(
                "a comparison is running; stop it, or wait for it with `await widget.idle()`, "
                "before you add a variant"
            )
        taken = {editor.name for editor in self.editors}
        number = len(self.editors) + 1
        while name == "":
            name = f"variant {number}" if f"variant {number}" not in taken else ""
            number += 1
        last = self.editors[-1].prompt or self._bench.prompt
        editor = self._append(
            name, prompt_of(name, last if prompt is None else prompt, self._bench)
        )
        self._on_change()
        return editor

    def remove(self, editor: VariantEditor) -> None:
        """Take a variant away; the first one stays."""
        if editor in self.editors[1:] and not editor.remove_button.disabled:
            self.editors.remove(editor)
            self.children = tuple(self.editors)
            editor.close()
            self._on_change()

    def lock(self, locked: bool) -> None:
        """Let the variants be edited and added to, or not."""
        self._locked = locked
        for editor in self.editors:
            editor.lock(locked)

    def show_differences(self, shown: bool) -> None:
        """Show what differs from the first variant, or keep it out of the way."""
        self._differences = shown
        for editor in self.editors:
            editor.show_difference(shown)

    def check(self) -> None:
        """Check all variants and show what differs from the first."""
        taken: tuple[str, ...] = ()
        for editor in self.editors:
            editor.check(taken)
            editor.compare(self.editors[0])
            taken += (editor.name,)

    @property
    def prompts(self) -> dict[str, Prompt]:
        """The variants without a fault."""
        return {e.name: e.prompt for e in self.editors if e.prompt is not None}

    @property
    def fault(self) -> str:
        """What is wrong with the first variant that has a fault, or with their number."""
        for editor in self.editors:
            if editor.fault:
                name = repr(editor.name)
                return editor.fault if name in editor.fault else f"variant {name}: {editor.fault}"
        return "" if len(self.editors) > 1 else "there is only one variant; add another"
