"""Edit variants of a prompt, run them on the same recorded states, and compare what came of it."""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import ipywidgets as w
from markupsafe import Markup

from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.html import LARGE, QUIET, details, join, pre, safe, styled, table, visible
from llmsim_lab._util.text import clip, duration, number
from llmsim_lab.errors import ConfigError, LabError
from llmsim_lab.lab._lab import Source
from llmsim_lab.lab._picture import figure_html
from llmsim_lab.lab._widget import (
    Choices,
    LabWidget,
    block,
    button,
    checkbox,
    dropdown,
    flex,
    labelled,
    noted,
    number_box,
    row,
    settled,
    shows,
    sideways,
)
from llmsim_lab.lab.figures import difference_figure
from llmsim_lab.llm import LLMClient, Tape
from llmsim_lab.prompts import Prompt
from llmsim_lab.prompts._prompt import PromptDiff
from llmsim_lab.run import Run
from llmsim_lab.run._run import load
from llmsim_lab.simulation import Simulation
from llmsim_lab.study import Comparison, _bench
from llmsim_lab.study._bench import Bench, Sample, Variant
from llmsim_lab.study._comparison import Progress, plan_of
from llmsim_lab.study._keeping import has_no_model
from llmsim_lab.study._results import Outcome, name_of

if TYPE_CHECKING:
    import pandas as pd


_MOST_CHARS = 200


def _said(value: Any, form: str | Callable[[Any], object]) -> object:
    if not isinstance(form, str):
        return form(value)
    return "none" if _missing(value) else form.format(value)


def _missing(value: Any) -> bool:
    # Pandas writes NaN, which differs from itself, where a column holds both.
    return value is None or bool(value != value)


_SIGNED, _SHARE = "{:+.2f}", "{:.0%}"
_COLUMNS: dict[str, tuple[str, str | Callable[[Any], object]]] = {
    "outcome": ("outcome", lambda it: "{} ({})".format(*name_of(it))),
    "estimate": ("difference", _SIGNED),
    "low": ("from", _SIGNED),
    "high": ("to (95 %)", _SIGNED),
    "noise_floor": ("noise floor", lambda it: "not known" if _missing(it) else number(it)),
    "p_family": ("p (all compared)", "{:.3f}"),
    "pairs": ("pairs used", "{}"),
    "used": ("samples used", "{}"),
    "of": ("samples of", "{}"),
    "same_direction": ("same direction", _SHARE),
    "same_answer": ("same answer", _SHARE),
    "decision": ("answer", lambda it: styled(safe(it, limit=_MOST_CHARS), dir="auto")),
    "count": ("times", "{}"),
    **{name: (name, _SHARE) for name in ("raise", "hold", "lower", "share")},
}
"""Columns of the frames: what they are called in tables, and how their values are written."""


def _table(frame: pd.DataFrame, caption: str) -> Markup:
    shown = [(*_COLUMNS.get(name, (name, "{}")), frame[name]) for name in frame.columns]
    cells = ([_said(value, form) for value in values] for _, form, values in shown)
    return table([title for title, _, _ in shown], zip(*cells, strict=True), caption=caption)


def _done(comparison: Comparison) -> str:
    return f"{len(comparison.played)} of {len(comparison.schedule)} samples"


def headline_html(comparison: Comparison) -> Markup:
    """Return the differences in the first outcome, a line a variant, and what they amount to."""
    effects, reference = comparison.effects(), comparison.names[0]
    first = effects[0].outcome
    name, unit = name_of(first)
    lines = []
    for effect, verdict in zip(effects, comparison.verdicts, strict=True):
        if effect.outcome != first:
            continue
        variant = effect.contrast.removesuffix(f" \u2212 {reference}")
        said = f"{variant} {_said(effect.estimate, _SIGNED)}"
        if effect.low is not None:
            said += f" [{effect.low:.2f}, {effect.high:.2f}]"
        if (p := effect.p_family) is not None:
            said += f", p {'< 0.001' if p < 0.001 else '> .99' if p > 0.99 else f'= {p:.3f}'}"
        # Of the verdict the sentence on evidence: the line above has its numbers.
        found = re.search(r"(No e|E)vidence[^.]*\.", verdict)
        said = said.replace(" -", " \u2212").replace("[-", "[\u2212")
        lines.append(styled(said, LARGE) + styled(found.group() if found else verdict))
    about = f"{name} ({unit}) against {reference}, p for all that is compared"
    return join([*lines, styled(about, QUIET)])


def results_html(comparison: Comparison) -> Markup:
    """Return what the differences amount to, how much was played, and, folded, the numbers."""
    failed = len(_failed_samples(comparison))
    played = f"{_done(comparison)} played, {failed} of them failed. {comparison.storage}"
    columns = ["outcome", "variant", "estimate", "low", "high", "noise_floor", "p_family"]
    differences = _table(
        comparison.summary[[*columns, "pairs", "failed"]],
        f"Differences from {comparison.names[0]!r} in {comparison.source}, over pairs of the same "
        "turn and seed. Noise floor: by how much two single samples of one prompt differ; a mean "
        "over pairs is known better than that, as its interval says.",
    )
    verdicts = styled(join(styled(it, tag="li") for it in comparison.verdicts), tag="ul")
    return block(
        headline_html(comparison),
        styled(played, QUIET, tag="p"),
        details("All differences", sideways(differences, name="All differences", least="40em")),
        details("All differences in words", verdicts),
    )


def _failed_samples(comparison: Comparison) -> pd.DataFrame:
    frame = comparison.frame
    failed = frame.loc[~frame["completed"].astype(bool)]
    return failed.drop_duplicates(["variant", "turn", "sample"])


def chart_html(results: Comparison, outcome: Outcome) -> Markup:
    """Return the differences in one outcome as an image with its numbers as alternative text."""
    return figure_html(difference_figure(results, outcome), dpi=96)


def charts_html(comparison: Comparison) -> Markup:
    """Return a chart for each outcome, the first unfolded."""
    return join(
        details(f"Chart: {name_of(outcome)[0]}", chart_html(comparison, outcome), open=place == 0)
        for place, outcome in enumerate(comparison.outcomes)
    )


def answers_html(comparison: Comparison) -> Markup:
    """Return what was decided, folded: directions, agreement and the commonest answers."""
    same = _table(
        comparison.agreement,
        "How often two samples at the same turn agree. A variant with itself is the floor, for "
        "pairs of different seeds; a shared seed makes samples alike, whatever the prompts.",
    )
    parts = [same, _table(comparison.answers, "Most common answers")]
    if "interest_rate" in comparison.outcomes:
        parts = [_table(comparison.directions, "Which way the rate went"), *parts]
    return details("What was answered", sideways(join(parts), name="Answers", least="36em"))


_PART = re.compile(r"(\d{1,9})(?:\s*-\s*(\d{1,9}))?")


def read_turns(text: str, there: Sequence[int]) -> list[int]:
    """Return the turns that a text names, such as ``1, 3, 5-8``.

    Args:
        text: numbers and ranges with commas or spaces between them; ``all`` for all.
        there: the turns to choose from.

    Raises:
        ConfigError: it is not understood, or a turn is not there.
    """
    if text.strip().lower() == "all":
        return list(there)
    found: dict[int, None] = {}
    for part in re.split(r"[,;\s]+", re.sub(r"\s*-\s*", "-", text.strip())):
        match = _PART.fullmatch(part)
        if match is None:
            raise ConfigError(f"turns {text!r:.60}: write numbers and ranges, as in 1, 3, 5-8")
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last or not {first, last} <= set(there):
            raise ConfigError(
                f"turns {text!r:.60}: the run asked this component in the turns "
                f"{turns_text(there)}, not in {part}"
            )
        found |= dict.fromkeys(turn for turn in there if first <= turn <= last)
    return list(found)


def turns_text(turns: Sequence[int]) -> str:
    """Write turns short: ``1-3, 7``."""
    groups = itertools.groupby(enumerate(turns), key=lambda it: it[1] - it[0])
    runs = [[turn for _, turn in group] for _, group in groups]
    return ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in runs)


def spread(turns: Sequence[int], most: int) -> list[int]:
    """Return some of the turns, evenly spread from the first to the last."""
    if len(turns) <= most:
        return list(turns)
    step = (len(turns) - 1) / (most - 1)
    return [turns[round(place * step)] for place in range(most)]


def done_text(comparison: Comparison) -> str:
    """Return what can be done next with a completed comparison, and what failed in it.

    Failed samples cannot be played again by themselves: only those that succeed the second time
    would be added, which is not a fair sample of either variant.
    """
    failed = _failed_samples(comparison)
    count, total = len(failed), len(comparison.played)
    ways_on = (
        "all samples are played; change a variant, the turns or the samples for more, or play all "
        "of it again with other seeds"
    )
    if not count:
        return ways_on
    how_many = f"All {total} failed" if count == total else f"{count} of {total} failed"
    why = clip(str(failed["detail"].iloc[0]), 200)
    return (
        f"{ways_on}. {how_many}, the first with: {why}. Failures count as results. Once their "
        "cause is fixed, play all again: playing only the failed ones again would favour whatever "
        "came off."
    )


class VariantPreview(w.VBox):
    """Shows one variant, rendered for one agent in one turn.

    Args:
        bench: what renders it.

    Attributes:
        open_box: ticked to show it at all.
        variant_choice, turn_choice, agent_choice: what is shown.
        view: the prompt, by role.
    """

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._prompts: Mapping[str, Prompt] = {}
        self.open_box = checkbox("Show a variant as the model would get it")
        self.view = w.HTML()
        # What is wrong with a variant is shown in the view.
        self._choices = Choices()
        boxes = [
            self._choices.on_choice(dropdown(label, width="16em"), self._show)
            for label in ("Variant", "Turn", "Agent")
        ]
        self.variant_choice, self.turn_choice, self.agent_choice = boxes
        inside = w.VBox([row(*boxes), self.view])
        shows(self.open_box, inside)
        super().__init__([self.open_box, inside])

    def offer(self, bench: Bench, prompts: Mapping[str, Prompt]) -> None:
        """Offer variants, and the turns there are.

        Args:
            bench: what renders them.
            prompts: the variants without a fault, by name.
        """
        self._bench, self._prompts = bench, prompts
        self._offer(self.variant_choice, prompts)
        self._offer(self.turn_choice, bench.turns)
        self._show()

    def _offer(self, box: w.Dropdown, values: Iterable[str | int]) -> None:
        """Offer values; what was chosen stays, if it is still there."""
        self._choices.options(box, [(str(value), value) for value in values], box.value)

    def _show(self) -> None:
        turn, name = self.turn_choice.value, self.variant_choice.value
        self._offer(self.agent_choice, [] if turn is None else self._bench.subjects(turn))
        if turn is None or name not in self._prompts:
            self.view.value = "<em>Nothing to show: no turn, or no variant without a fault.</em>"
            return
        try:
            text = self._bench.render(self._prompts[name], turn, agent=self.agent_choice.value)
        except LabError as error:
            self.view.value = noted(error)
            return
        parts = pre(f"[system]\n{text.system}\n\n[user]\n{text.user}")
        self.view.value = str(join([safe(f"{name} at turn {turn}:"), parts]))


_MOST_PROMPT_CHARS = 100_000


class VariantEditor(w.VBox):
    """A variant's name and text, what is wrong with them, and what differs from the first one.

    Args:
        bench: what the prompt is for.
        name: the variant's.
        prompt: its text at first.
        on_change: called when name or text change.
        on_remove: called with this editor to remove it; None for one that stays.
        differing: ticked to show what differs from the first variant.

    Attributes:
        name_box: the variant's name.
        text_box: the prompt.
        remove_button: takes the variant away.
        controls: these three, which are disabled while a comparison runs.
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
        on_remove: Callable[[VariantEditor], object] | None,
        differing: w.Checkbox,
    ) -> None:
        self._bench = bench
        self._base = prompt
        self.prompt: Prompt | None = None
        """What the text says, if nothing is wrong with it."""
        self.fault = ""
        """What is wrong, else empty."""
        self.name_box = labelled(w.Text, "Variant", width="18em", value=name)
        self.text_box = labelled(w.Textarea, "Prompt", width="auto", value=prompt.text, rows=14)
        self.remove_button = button(
            "Remove", "Take this variant away", lambda: on_remove is not None and on_remove(self)
        )
        self.remove_button.layout.display = "" if on_remove is not None else "none"
        self.controls = (self.name_box, self.text_box, self.remove_button)
        self.note, self.difference = w.HTML(), w.HTML()
        shows(differing, self.difference)
        for box in (self.name_box, self.text_box):
            box.observe(lambda _: on_change(), names="value")
        head = row(self.name_box, self.remove_button)
        parts = [head, self.text_box, self.note, self.difference]
        super().__init__(parts, layout=flex(1, "24em"))

    @property
    def name(self) -> str:
        """The variant's name."""
        return str(self.name_box.value).strip()

    def check(self, taken: tuple[str, ...] = ()) -> None:
        """Read name and text, and show what is wrong with them under the editor.

        Args:
            taken: names of the variants before this one.
        """
        # Cleared first, so that a wrong text is never run as the one before it.
        self.prompt, self.fault = None, ""
        try:
            self.prompt = self._read(taken)
        except ConfigError as error:
            self.fault = str(error)
            self.note.value = noted(self.fault)
        else:
            slots = f"Slots filled: {', '.join(self.prompt.slots) or 'none'}"
            self.note.value = str(block(styled(slots, QUIET)))

    def _read(self, taken: tuple[str, ...]) -> Prompt:
        if not self.name:
            raise ConfigError("a variant needs a name that is not empty")
        if self.name in taken:
            raise ConfigError(f"two variants are called {self.name!r}; give one another name")
        text = str(self.text_box.value)
        if len(text) > _MOST_PROMPT_CHARS:
            raise ConfigError(
                f"the prompt has {len(text):,} characters, more than {_MOST_PROMPT_CHARS:,}; "
                "shorten it"
            )
        # A text that nobody edited is still the prompt it was, not one made from the run's.
        own = self._bench.prompt or self._base
        prompt = self._base if text == self._base.text else own.edit(text)
        self._bench.check(prompt, name=self.name)
        return prompt

    def compare(self, reference: VariantEditor) -> None:
        """Show what differs from another variant, word by word."""
        if reference is self:
            self.difference.value = str(styled("The others are compared with this one.", QUIET))
            return
        diff = _word_diff(str(reference.text_box.value), str(self.text_box.value))
        title = safe(f"What differs from {reference.name or 'the first'}, word by word:")
        self.difference.value = str(join([title, diff]))


def _word_diff(before: str, after: str) -> Markup:
    """Return what changed from one text to another, word by word; a line where nothing did."""
    if before == after:
        return safe("no change")
    # The time grows with the square of the length.
    limit = _MOST_COMPARED_CHARS
    parts = [Markup(PromptDiff(before[:limit], after[:limit])._repr_html_())]
    if max(len(before), len(after)) > limit:
        parts.append(safe(f"Only the first {limit:,} characters were compared."))
    return join(parts)


_MOST_COMPARED_CHARS = 4_000
MOST_SAMPLES = 1_000
"""More is taken for a typing error; a recorded comparison may still have more."""


_TICK_S = 1.0
_MOST_TURNS_AT_FIRST = 4


def _simulation_of(source: Source, run: int | None) -> Run:
    """Return the simulation whose prompts are compared; a tape's run is loaded, not played."""
    if isinstance(source, Tape | str | Path):
        loaded: Run = load(source, run)
        return loaded
    if not isinstance(source, Run):
        raise ConfigError(
            f"{type(source).__name__} is neither a simulation nor a tape; pass a Simulation, a "
            "Tape, or a tape's file"
        )
    if run is not None:
        raise ConfigError(f"run={run} goes with a tape; a simulation is one run already")
    return source


class PromptComparer(LabWidget):
    """Edit two or more variants of a prompt, run them on the same recorded states, and compare.

    Slots are checked as you type; what the comparison will cost stands beside the button before it
    runs. The results are in ``frame`` and ``summary``, and on the run's own tape, if it has one
    that can be written to.

    Args:
        source: a simulation, a tape, or a tape's file, which is opened for reading only.
        component: ``agent``, ``agent:NAME``, ``validator`` or ``engine``.
        run: for a tape, the run's number; needed where the tape holds several.
        variants: prompts by name, to begin with: a ``Prompt``, a text, or None for the prompt as
            the run used it; that one and a copy of it if not given.
        turns: the turns to play again; at most four, spread over the run, if not given.
        samples: of each variant at each turn.
        llm_client: the model; the simulation's own if not given.
        seed: the samples' seeds follow it; the client's if not given, else 0.
        temperature: of the model; as recorded if not given.

    Raises:
        ConfigError: an argument is not one of these, the run has no such component, or the tape
            holds several runs and none is named; the message lists them.

    Attributes:
        comparison: the one that was run last or loaded, if any.
        comparisons: all of them, in order.
        editors: one a variant; the first is the one that the others are compared with.
        editor_box: has them side by side where the page is wide.
        difference_box: ticked to show what differs from the first variant.
        preview: a variant as the model would get it.
        turns_box, samples_box, only_box: what is played.
        plan_line: what it costs, or why it cannot be done.
        run_button, again_button, stop_button, add_button: as labelled.
        results, chart, answers: the results.

    Example:
        ``PromptComparer(simulation, component="agent")`` at the end of a cell shows it.
    """

    def __init__(
        self,
        source: Source,
        component: str = "agent",
        *,
        run: int | None = None,
        variants: Mapping[str, Variant] | None = None,
        turns: Sequence[int] | None = None,
        samples: int = 5,
        llm_client: LLMClient | None = None,
        seed: int | None = None,
        temperature: float | None = None,
    ) -> None:
        if isinstance(source, str | Path):
            source = Tape(source, read_only=True)
        if isinstance(source, Tape):
            run = _bench.run_on(source, run, kind=Simulation.kind)
        simulation = _simulation_of(source, run)
        if not isinstance(simulation, Simulation):
            raise ConfigError(
                f"{type(simulation).__name__} is not an economic simulation; PromptComparer "
                "compares prompts of those only, PromptViewer shows the prompts of any"
            )
        bench = Bench(simulation, component)
        there = bench.turns
        first = spread(there, _MOST_TURNS_AT_FIRST) if turns is None else _bench.turn_numbers(turns)
        samples = whole_number("samples", samples, least=1, most=MOST_SAMPLES)
        config = _bench.config_of(simulation, llm_client or simulation.llm_client, temperature)
        seed = seed if seed is None else _bench.seed_of(seed, config)
        if variants is None:
            variants = {"as it was": None, "variant 2": None}
        _bench.check_variants(variants, called="variants")
        super().__init__()
        self.simulation, self.bench = simulation, bench
        self.llm_client = llm_client
        self.comparison: Comparison | None = None
        self.comparisons: list[Comparison] = []
        self._seed, self._temperature = seed, temperature
        self._set_up_as: tuple[object, ...] | None = None
        self._lay_out(turns=turns_text(first), samples=samples)
        for name, variant in variants.items():
            self._append(name, variant)
        self.refresh()

    def _lay_out(self, *, turns: str, samples: int) -> None:
        title = styled(f"Compare prompts of: {self.bench.component}", LARGE)
        heading = w.HTML(str(title + styled(f"On {_bench.source_of(self.simulation)}", QUIET)))
        self.editors: list[VariantEditor] = []
        self.editor_box = row(gap="16px")
        copied = "Add a copy of the last variant"
        self.add_button = self._choices.button("Add variant", copied, self.add_variant)
        self.difference_box = checkbox("Show what differs, word by word")
        self.preview = VariantPreview(self.bench)
        self.turns_box = labelled(w.Text, "Turns", width="16em", value=turns)
        self.samples_box = number_box("Samples", value=samples, least=1, most=MOST_SAMPLES)
        self.only_box = checkbox(f"Ask the {self.bench.stage} alone (cheaper, no resulting rate)")
        set_up = (self.turns_box, self.samples_box, self.only_box)
        for box in set_up:
            box.observe(lambda _: self.refresh(), names="value")
        self.run_button = self.starter(
            "Run", "Play all samples of all variants", self._run, button_style="primary"
        )
        other_seeds = "Play the whole comparison again with other seeds"
        self.again_button = self.starter("Play again", other_seeds, partial(self._run, again=True))
        self.stop_button = self.stopper("Stop", "Stop; what was played is kept")
        self.plan_line, self.results, self.chart, self.answers = (w.HTML() for _ in range(4))
        self._buttons = [self.add_button, *set_up, self.run_button, self.again_button]
        self.children = [
            heading,
            self.editor_box,
            row(self.add_button, self.difference_box),
            self.preview,
            row(*set_up),
            self.plan_line,
            row(self.run_button, self.again_button, self.stop_button, self.retry),
            self.status,
            self.error,
            self.results,
            self.chart,
            self.answers,
        ]

    @classmethod
    def from_results(
        cls,
        tape: Tape | str | Path,
        run: int | None = None,
        *,
        llm_client: LLMClient | None = None,
    ) -> Self:
        """Show a recorded comparison with its results; no model is needed for that.

        Args:
            tape: as for ``Comparison.load``.
            run: as there.
            llm_client: as there; with it the comparison can be varied, too.

        Raises:
            TapeError: there is no such comparison.
        """
        comparison = Comparison.load(tape, run, llm_client=llm_client)
        widget = cls(
            comparison.simulation,
            comparison.component,
            variants=comparison.variants,
            turns=comparison.turns,
            llm_client=llm_client,
            seed=comparison.seed,
            temperature=comparison.config.temperature,
        )
        widget.samples_box.max = max(MOST_SAMPLES, comparison.samples)
        widget.samples_box.value = comparison.samples
        widget.only_box.value = comparison.only_component
        widget._take(comparison)
        widget.ended()
        return widget

    def _append(self, name: str, variant: Variant) -> VariantEditor:
        prompt = _bench.variant_of(name, variant, self.bench)
        if not isinstance(prompt, Prompt):
            raise ConfigError(f"the {self.bench.component} reads no prompt that could be edited")
        editor = VariantEditor(
            self.bench,
            name,
            prompt,
            on_change=self.refresh,
            on_remove=self._remove if self.editors else None,
            differing=self.difference_box,
        )
        self._set_editors([*self.editors, editor])
        return editor

    def _set_editors(self, editors: list[VariantEditor]) -> None:
        self.editors = self.editor_box.children = editors
        self.controls = [*self._buttons, *(part for each in editors for part in each.controls)]

    def add_variant(self, name: str = "", prompt: Variant = None) -> VariantEditor:
        """Add a variant.

        Args:
            name: what it is called; a number of its own if empty.
            prompt: what it says at first; a copy of the last variant if not given.

        Raises:
            ConfigError: name or prompt is not one, or a comparison is running.
        """
        if self.worker.busy:
            raise ConfigError(
                "a comparison is running; stop it, or wait for it with `await widget.idle()`, "
                "before you add a variant"
            )
        taken = {editor.name for editor in self.editors}
        places = itertools.count(len(self.editors) + 1)
        name = name or next(new for n in places if (new := f"variant {n}") not in taken)
        last = self.editors[-1].prompt or self.bench.prompt
        editor = self._append(name, last if prompt is None else prompt)
        self.refresh()
        return editor

    def _remove(self, editor: VariantEditor) -> None:
        """Take a variant away; the first one stays."""
        # A click may have been on its way as a comparison began, which disables the button.
        if editor in self.editors[1:] and not editor.remove_button.disabled:
            self._set_editors([each for each in self.editors if each is not editor])
            editor.close()
            self.refresh()

    @property
    def prompts(self) -> dict[str, Prompt]:
        """The variants without a fault, by name."""
        return {e.name: e.prompt for e in self.editors if e.prompt is not None}

    @property
    def _turns(self) -> tuple[list[int], str]:
        """The turns to play; and what is wrong with how they are written, if anything."""
        try:
            return read_turns(self.turns_box.value, self.bench.turns), ""
        except ConfigError as error:
            return [], str(error)

    # --- what is shown before a run -----------------------------------------------------------

    def refresh(self) -> None:
        """Check and show everything again, as after the simulation was stepped from a cell."""
        taken: tuple[str, ...] = ()
        for editor in self.editors:
            editor.check(taken)
            editor.compare(self.editors[0])
            taken += (editor.name,)
        self.bench = Bench(
            self.simulation, self.bench.component, only_component=bool(self.only_box.value)
        )
        self.preview.offer(self.bench, self.prompts)
        fault, plan = self.fault, self.plan
        # Turns that are wrong are both the fault and in place of the plan.
        parts = [] if plan == fault else [plan]
        if fault:
            parts.append(f"Cannot run: {fault}")
        line = safe(" ".join(parts), limit=2_000)
        live = styled(line, "line-height:1.4", role="status", aria_live="polite")
        self.plan_line.value = str(live)
        if not self.worker.busy:
            self.run_button.disabled = bool(fault)
            self.again_button.disabled = not self._all_played or self._has_no_model

    @property
    def fault(self) -> str:
        """Why there can be no run now; empty if there can."""
        return next(filter(None, self._faults()), "")

    def _faults(self) -> Iterator[str]:
        for editor in self.editors:
            named = repr(editor.name) in editor.fault or not editor.fault
            yield editor.fault if named else f"variant {editor.name!r}: {editor.fault}"
        if len(self.editors) == 1:
            yield "there is only one variant; add another"
        yield self._turns[1]
        if self._has_no_model:
            yield (
                "there is no model, for a recorded run has none; everything else works. To run: "
                "PromptComparer(..., llm_client=connect('auto'))"
            )
        if self._all_played:
            assert self.comparison is not None
            yield done_text(self.comparison)

    @property
    def _has_no_model(self) -> bool:
        return has_no_model(self.llm_client or self.simulation.llm_client)

    @property
    def plan(self) -> str:
        """What a run would cost, or what is wrong with its turns."""
        turns, wrong = self._turns
        if wrong:
            return wrong
        if self._unchanged is not None:
            return str(self._unchanged.plan())
        variants, samples = len(self.editors), self.samples_box.value
        # Of no variant: the cost follows from how many there would be at each turn.
        draft = [
            Sample(number=place, variant="", turn=turn, sample=place, seed=0)
            for turn in turns
            for place in range(1, variants * samples + 1)
        ]
        planned = plan_of([(self.bench, draft)], done=0)
        return f"{variants} variants, {len(turns)} turns, {samples} samples: {planned}"

    @property
    def _all_played(self) -> bool:
        comparison = self._unchanged
        return comparison is not None and len(comparison.played) == len(comparison.schedule)

    # --- running ------------------------------------------------------------------------------

    def _settings(self) -> tuple[object, ...]:
        prompts = [(each.name, each.prompt.digest if each.prompt else "") for each in self.editors]
        return prompts, self._turns[0], self.samples_box.value, self.only_box.value

    @property
    def _unchanged(self) -> Comparison | None:
        """The comparison, if the set-up is still what it was made with."""
        return self.comparison if self._set_up_as == self._settings() else None

    def _take(self, comparison: Comparison) -> None:
        self.comparison = comparison
        self.comparisons.append(comparison)
        self._set_up_as = self._settings()

    async def _run(self, *, again: bool = False) -> None:
        """Play what is left, or all again with the seeds that follow; earlier results are kept."""
        texts = [box for each in self.editors for box in (each.name_box, each.text_box)]
        # The last changes may arrive after the click on Run.
        await settled(self.turns_box, self.samples_box, self.only_box, *texts)
        self.refresh()
        comparison = self._unchanged
        if again and comparison is None:
            raise ConfigError("the set-up was changed since it was played; click Run")
        # Of a set-up that was played nothing is wrong but that all of it is, which *again* is for.
        if not again and (fault := self.fault):
            raise ConfigError(fault)
        if comparison is None:
            comparison = self._set_up(self._seed)
        elif again and self._all_played:
            # After the last seed used, so that no sample is the same as an earlier one.
            comparison = self._set_up(max(sample.seed for sample in comparison.schedule))
        # A sample may take minutes; the clock shows that it is still being played.
        clock = asyncio.ensure_future(self._tick(comparison))
        try:
            await comparison.arun(on_progress=self._on_progress)
        finally:
            clock.cancel()

    def _set_up(self, seed: int | None) -> Comparison:
        comparison = Comparison(
            self.simulation,
            prompt=self.prompts,
            component=self.bench.component,
            turns=self._turns[0],
            samples=self.samples_box.value,
            llm_client=self.llm_client,
            seed=seed,
            temperature=self._temperature,
            only_component=bool(self.only_box.value),
        )
        self._take(comparison)
        return comparison

    async def _tick(self, comparison: Comparison) -> None:
        began = time.monotonic()
        while True:
            done = len(comparison.played)
            if done < len(comparison.schedule):
                now = comparison.schedule[done]
                self.say(
                    f"{_done(comparison)} played, {duration(time.monotonic() - began)}; "
                    f"playing {now.variant!r} at turn {now.turn}, sample {now.sample}"
                )
            await asyncio.sleep(_TICK_S)

    def _on_progress(self, progress: Progress) -> None:
        failed = f", {progress.failed} failed" if progress.failed else ""
        self.say(f"{progress.done} of {progress.total} samples played{failed}")

    def stopped(self) -> None:
        """Show how far it got."""
        if self.comparison is not None:
            self.say(f"Stopped after {_done(self.comparison)}; Run continues with the next.")

    def ended(self) -> None:
        """Show the results so far."""
        self.refresh()
        if (comparison := self._played) is not None:
            self.results.value = str(results_html(comparison))
            self.chart.value = str(charts_html(comparison))
            self.answers.value = str(answers_html(comparison))

    # --- results ------------------------------------------------------------------------------

    @property
    def frame(self) -> pd.DataFrame:
        """All results so far, one row a decision.

        Raises:
            ConfigError: nothing was played.
        """
        return self._results().frame

    @property
    def summary(self) -> pd.DataFrame:
        """The differences with their intervals and noise floors.

        Raises:
            ConfigError: nothing was played.
        """
        return self._results().summary

    @property
    def _played(self) -> Comparison | None:
        """The comparison, if something of it was played."""
        return self.comparison if self.comparison is not None and self.comparison.played else None

    def _results(self) -> Comparison:
        if self._played is None:
            raise ConfigError("nothing was played yet; click Run, or load a recorded comparison")
        return self._played

    # --- the static view ----------------------------------------------------------------------

    @property
    def _heading(self) -> str:
        return f"Prompts of {self.bench.component} compared, on {_bench.source_of(self.simulation)}"

    def static_text(self) -> str:
        """Return variants, set-up and results as plain text."""
        lines = [visible(self._heading)]
        for editor in self.editors:
            base = "the reference" if editor is self.editors[0] else "a variant"
            fault = f"; wrong: {editor.fault}" if editor.fault else ""
            lines.append(f"  {visible(editor.name)}: {base}{visible(fault)}")
        lines.append(f"  turns {self.turns_box.value}; samples {self.samples_box.value}")
        if (played := self._played) is None:
            return "\n".join([*lines, "  nothing played yet"])
        lines += [f"  {text}" for text in (_done(played), *map(visible, played.verdicts))]
        for one in played.answers.to_dict("records"):
            decision = clip(visible(one["decision"]), 70)
            lines.append(f"  {visible(one['variant'])}: {one['count']} times: {decision}")
        return "\n".join(lines)

    def static_html(self) -> Markup:
        """Return the same as simple HTML; with results, their tables."""
        if (played := self._played) is None:
            return super().static_html()
        return join([styled(self._heading, tag="p"), results_html(played), answers_html(played)])
