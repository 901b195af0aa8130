"""Variants of a prompt, edited side by side and asked at recorded situations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import ipywidgets as w
from markupsafe import Markup

from llmsim_lab._util.html import details, join, pre, safe, styled, visible
from llmsim_lab._util.text import clip
from llmsim_lab.errors import ConfigError, LabError, PromptError
from llmsim_lab.lab._picture import figure_html
from llmsim_lab.lab._widget import LabWidget, block, button, noted, number_box, row, sideways
from llmsim_lab.llm import LLMClient
from llmsim_lab.prompts import Prompt
from llmsim_lab.run import Run, load
from llmsim_lab.run._run import NoModel
from llmsim_lab.study import Study
from llmsim_lab.tape import Tape

if TYPE_CHECKING:
    from llmsim_lab.study._study import Outcomes

_FIRST = "as it was"


class PromptComparer(LabWidget):
    """Compares variants of a prompt at the situations of a recorded run, by ``Study.again``.

    Args:
        run: a run on a tape, or the tape.
        variants: texts, prompts, or functions of the recorded text, by name; they can be edited.
        prompt: the prompt's name, where the run used several.
        samples: of each situation in each variant.
        turns: the recorded turns that are continued; all if not given.
        outcome: what is compared; all fields of the replies if not given.
        llm_client: the model; the run's own if not given.
        to: the folder of what is asked; gone with the widget if not given.

    Attributes:
        variants: what was asked with, by name; the first as it was recorded.
        texts: the boxes of the variants, by name.
        samples_box: how many samples.
        run_button, stop_button: ask what is left; stop.
        study: what was asked last, or None.
        results: what came of it: one sentence first.

    Example:
        >>> PromptComparer(run, {"hawk": lambda text: text + " You fear inflation."}
        ...                )  # doctest: +SKIP
    """

    def __init__(
        self,
        run: Run | Tape | str,
        variants: Mapping[str, Any] | None = None,
        *,
        prompt: str = "",
        samples: int = 5,
        turns: Sequence[int] | None = None,
        outcome: Outcomes | None = None,
        llm_client: LLMClient | None = None,
        to: str | None = None,
    ) -> None:
        super().__init__()
        source = run if isinstance(run, Run) else load(run)
        if source.tape is None:
            raise ConfigError("the run is on no tape: make it with tape='my.tape'")
        self._source, self._turns, self._outcome, self._to = source, turns, outcome, to
        self._client = llm_client or source.llm_client
        if self._client is not None and isinstance(self._client.backend, NoModel):
            self._client = None
        self.prompt = _prompt_of(source, prompt)
        self.study: Study | None = None
        self.texts: dict[str, w.Textarea] = {}
        self._notes: dict[str, w.HTML] = {}
        self.samples_box = number_box("Samples", value=samples, least=1, most=1_000)
        asked = "Ask the recorded situations again, with each variant"
        self.run_button = self.starter("Run", asked, self._run, button_style="primary")
        self.stop_button = self.stopper("Stop", "Stop; what was answered is kept")
        add = button("Add a variant", "Add a copy of the first one, to edit", self._add)
        self.controls = (*self.controls, self.samples_box, add)
        self.results = w.HTML()
        layout = w.Layout(display="flex", flex_flow="row wrap", grid_gap="12px")
        self._variants = w.VBox(layout=layout)
        self.children = (
            self._variants,
            row(add, self.samples_box, self.run_button, self.stop_button, self.retry),
            self.status,
            self.error,
            self.results,
        )
        for name, variant in {_FIRST: None, **(variants or {})}.items():
            self._put(name, variant)

    def _add(self) -> None:
        self._put(f"variant {len(self.texts)}", None)

    def _put(self, name: str, variant: Any) -> None:
        """Add the box of a variant."""
        text = variant(self.prompt.text) if callable(variant) else variant
        text = getattr(text, "text", text) or self.prompt.text
        layout = w.Layout(width="100%", height="11em")
        box = w.Textarea(value=text, layout=layout, disabled=name == _FIRST)
        note = self._notes[name] = w.HTML()
        self.texts[name] = box
        box.observe(lambda _: self._check(name), names="value")
        title = w.HTML(str(styled(visible(name), tag="strong")))
        part = w.VBox([title, box, note], layout=w.Layout(flex="1 1 22em", min_width="0"))
        self._variants.children = (*self._variants.children, part)
        self._check(name)

    @property
    def variants(self) -> dict[str, Prompt | None]:
        """The variants as they stand.

        Raises:
            PromptError: one is no prompt, or has a slot that the recorded one lacks.
        """
        return {name: self._read(name) for name in self.texts}

    def _read(self, name: str) -> Prompt | None:
        if name == _FIRST:
            return None
        made = self.prompt.edit(self.texts[name].value)
        if more := sorted(set(made.slots) - set(self.prompt.slots)):
            raise PromptError(
                f"{{{{ {more[0]} }}}}: the run gives this prompt no such value; it has "
                f"{', '.join(self.prompt.slots) or 'none'}"
            )
        return made

    def _check(self, name: str) -> None:
        """Say what is wrong with a variant while it is typed, or what differs."""
        try:
            made = self._read(name)
        except LabError as error:
            self._notes[name].value = noted(error)
            return
        changed = "" if made is None else self.prompt.diff(made)._repr_html_()
        self._notes[name].value = str(details("What differs", Markup(changed))) if changed else ""

    async def _run(self) -> None:
        if self._client is None:
            raise ConfigError(
                "a recorded run has no model to ask: PromptComparer(run, ..., "
                "llm_client=connect('auto'))"
            )
        self.study = Study.again(
            self._source,
            {"prompt": {name: it and {self.prompt.name: it} for name, it in self.variants.items()}},
            turns=self._turns,
            samples=self.samples_box.value,
            outcome=self._outcome,
            llm_client=self._client,
            to=self._to,
        )
        unlisten = self.study.listen(self._say_how_far)
        try:
            await self.study.arun(progress=False)
        finally:
            unlisten()
        self.say(" ".join(["Finished.", *self.study.errors]))

    def _say_how_far(self) -> None:
        if self.study is not None:
            runs = self.study.progress()
            done = sum(it.status == "done" for it in runs)
            self.say(f"{done} of {len(runs)} situations were asked in a variant.")

    def ended(self) -> None:
        """Show what came of it."""
        self.results.value = str(self._results())

    def _results(self) -> Markup:
        if self.study is None or not self.study.counts["done"]:
            return Markup("")
        try:
            effects = self.study.effects()
        except LabError as error:
            return safe(f"No effects yet: {error}")
        first = next(iter(self.study.outcome), "")
        return block(
            *(styled(str(it), "font-size:1.1em") for it in effects if it.outcome == first),
            details("All differences", sideways(Markup(effects._repr_html_()), name="Effects")),
            details("Chart", figure_html(self.study.chart(first), dpi=96)),
        )

    def static_text(self) -> str:
        """Return the variants and what came of them, as plain text."""
        lines = [f"PromptComparer of {self.prompt.name}: {', '.join(self.texts)}"]
        if self.study is not None:
            lines.append(str(self.study))
        return visible("\n".join(lines))

    def static_html(self) -> Markup:
        """Return the same as simple HTML."""
        texts = (details(name, pre(clip(box.value, 4_000))) for name, box in self.texts.items())
        return join([safe(self.static_text()), *texts, self._results()])


def _prompt_of(run: Run, name: str) -> Prompt:
    """Return the recorded prompt of a name.

    Raises:
        ConfigError: there is none, or several and no name.
    """
    found = {prompt.name: prompt for prompt in run.prompts.values()}
    if not name and len(found) == 1:
        return next(iter(found.values()))
    if name not in found:
        raise ConfigError(
            f"prompt={name!r}: the run asked with {', '.join(found) or 'no prompt'}; name one of "
            "them: PromptComparer(run, prompt='...')"
        )
    return found[name]
