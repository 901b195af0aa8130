"""One window over a run: play it, look at its turns, chart and prompts, change it and continue."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

import ipywidgets as w
from markupsafe import Markup
from pydantic import ValidationError

from llmsim_lab._util.html import LARGE, LINE, join, styled
from llmsim_lab._util.text import faults
from llmsim_lab.errors import ConfigError
from llmsim_lab.lab._fields import Field
from llmsim_lab.lab._human_seat import HumanSeat
from llmsim_lab.lab._prompt_viewer import PromptViewer
from llmsim_lab.lab._rate_chart import RateChart
from llmsim_lab.lab._stepper import TurnStepper
from llmsim_lab.lab._widget import close_all, dropdown, flex, row, settled
from llmsim_lab.llm._human import field_fault, resolved
from llmsim_lab.prompts import Prompt
from llmsim_lab.run import Run
from llmsim_lab.run._config import made_intervention
from llmsim_lab.run._run import NoModel, belongs_to, copied
from llmsim_lab.run._turn import own_numbers

Place = tuple[str, ...]
"""Of a value among others: ``("economy", "shock_scale")``."""

_MOST_FIELDS = 60
_KINDS = ("integer", "number", "boolean", "string")
_NOT_HERE = ("llm", "name", "interventions", "players", "turn")
"""Fields of configurations and interventions that the form has no control for."""


class Form(w.VBox):
    """Controls for what a JSON schema describes, numbers, choices and texts, with its limits.

    Args:
        schema: of an object, as pydantic makes it.
        values: what is there now.
        settable: names and values of what an intervention may set.

    Attributes:
        fields: by their places.
        boxes: the fields' controls.
    """

    def __init__(
        self,
        schema: Mapping[str, Any],
        values: Mapping[str, Any],
        *,
        settable: Mapping[str, float] | None = None,
    ) -> None:
        self._settable = settable
        self._known = schema.get("$defs", {})
        self.fields = dict(islice(self._made((), schema, values), _MOST_FIELDS))
        self._before = {place: field.value for place, field in self.fields.items()}
        columns = "repeat(auto-fill, minmax(min(21em, 100%), 1fr))"
        grid = w.Layout(grid_template_columns=columns, grid_gap="0 16px")
        self.boxes = [field.box for field in self.fields.values()]
        super().__init__([w.GridBox(self.boxes, layout=grid)])

    def _made(
        self, place: Place, schema: Mapping[str, Any], value: Any
    ) -> Iterator[tuple[Place, Field]]:
        part = {**resolved(schema, self._known)}
        if place == ("set",):
            value = self._settable
        given = value if isinstance(value, Mapping) else {}
        inner = dict(part.get("properties", {}))
        if value is None and place and self._settable is None:
            inner = {}  # a part of the configuration that is not there
        elif part.get("type") == "object" and not inner:
            each = part.get("additionalProperties")
            names = part.get("propertyNames", {}).get("enum", given)
            inner = {name: each if isinstance(each, dict) else {"type": "number"} for name in names}
        for name, schema_of_it in inner.items():
            if place or name not in _NOT_HERE:
                yield from self._made((*place, name), schema_of_it, given.get(name))
        part["items"] = resolved(part.get("items", {}), self._known)
        value = _shown(value)
        if _fits(part, value):
            # Without the word "set", with which all of what can be set would begin.
            label = " · ".join(place[place[0] == "set" :]).replace("_", " ")
            field = Field(label, part, compact=True)
            field.value = value
            yield place, field

    def renew(self, settable: Mapping[str, float]) -> bool:
        """Show other values of what may be set, but for those changed; False if they are others."""
        boxes = {place[1]: place for place in self.fields if place[0] == "set"}
        if boxes.keys() != settable.keys():
            return False
        for name, place in boxes.items():
            field, value = self.fields[place], _shown(settable[name])
            if field.value == self._before[place]:
                field.value = value
            self._before[place] = value
        return True

    @property
    def changed(self) -> dict[str, Any]:
        """What was changed, nested as the schema is.

        Raises:
            ConfigError: a value is wrong.
        """
        found: dict[str, Any] = {}
        for place, field in self.fields.items():
            if (value := field.value) != self._before[place]:
                if fault := field.fault:
                    raise ConfigError(f"{field.box.description} {fault}")
                at = found
                for name in place[:-1]:
                    at = at.setdefault(name, {})
                empty = field.schema.get("type") == "array" and not field.schema.get("optional")
                at[place[-1]] = [] if value is None and empty else value
        return found


def _shown(value: Any) -> Any:
    """Return a value as its field reads it back; None for NaN and infinities, which it lacks."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.15g}") if math.isfinite(value) else None


def _fits(part: Mapping[str, Any], value: Any) -> bool:
    """Return True if there is a field for a value: number, text, choice or list of texts."""
    kind, choices = part.get("type"), part.get("enum", ())
    texts = kind == "array" and part["items"].get("type") == "string"
    if len(choices) == 1 or not (choices or texts or kind in _KINDS or "anyOf" in part):
        return False
    # Of a list or an object beside other types the schema is the first's, maybe not the value's.
    return value in (None, "") or not field_fault(value, _without_limits(part))


def _without_limits(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a value is, not how large: what is there may be outside, and then be changed."""
    kept = {name: it for name, it in part.items() if name in ("type", "enum")}
    several = [_without_limits(one) for one in part.get("anyOf", ())]
    return kept | ({"anyOf": several} if several else {})


def merged(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested values with some of them changed."""
    inner = {
        name: merged(values.get(name) or {}, value) if isinstance(value, Mapping) else value
        for name, value in changes.items()
    }
    return {**values, **inner}


def words_of(changes: object, name: str = "") -> str:
    """Return nested changes as words: ``factor 2; set coins.Ann 5``."""
    if not isinstance(changes, Mapping):
        return f"{name} {', '.join(changes) if isinstance(changes, list) else changes}"
    return "; ".join(words_of(value, f"{name} {key}".strip()) for key, value in changes.items())


def settable(run: Run, number: int) -> dict[str, float]:
    """Return the numbers of a turn's state that its world lets others set, by their names."""
    turn = run.turns[number - run.turns[0].number]
    columns = run.own_columns(turn)
    found = {}
    for name in own_numbers(columns):
        with suppress(ConfigError):  # derived from others, or an agent's own
            done = {"turn": number, "set": {name: columns[name]}}
            made_intervention(run.intervention_type, done).applied(turn.state, run)
            found[name] = round(float(columns[name]), 4)
    return found


def _title(text: str) -> str:
    return str(styled(text, f"{LARGE};margin-top:8px", role="heading", aria_level=3))


class Lab(TurnStepper):
    """One window over a run: play it, look at any turn's chart, decisions and prompts, change it.

    All parts show the same turn of the same run. What can be changed comes from the run itself: the
    parameters of its configuration (*Restart*), and what its state, its interventions and its
    prompts allow from the turn shown (*Fork*). Keys are those of the stepper.

    Args:
        source: a simulation; or a tape or its file, whose run is then looked at.
        run: for a tape, the run's number; the latest if not given.
        llm_client: the model for forks and restarts of a recorded run, which has none of its own.

    Attributes:
        chart: the run and those made of it here; None where it has no numbers.
        prompts: the calls of the turn shown, what each was asked and answered.
        seat: the form for people in the run; None where there are none.
        change_button: shows what can be changed.
        parameters, outside: the controls, while they are shown.
        restart_button, apply_button: make a run with what was changed.
    """

    chart: RateChart | None = None
    prompts: PromptViewer | None = None
    seat: HumanSeat | None = None

    def _lay_out(self) -> None:
        super()._lay_out()
        layout, tooltip = w.Layout(width="auto"), "Show what can be changed of this run"
        change = w.ToggleButton(description="Change …", tooltip=tooltip, layout=layout)
        self.change_button = self._choices.on_choice(change, self._show_changes)
        self.restart_button = self.starter(
            "Restart with this", "Begin anew with these parameters", self._restart
        )
        self.apply_button = self.starter(
            "Fork from here with this", "Continue with these changes", self._fork_changed
        )
        self.fork_row.children = [self.fork_button, self.change_button, self.run_box]
        self.parameters, self.outside = Form({}, {}), Form({}, {})
        self._texts: dict[str, w.Textarea] = {}
        self._prompts_now: dict[str, Prompt] = {}
        self._changed_run: Run | None = None
        self._from_turn = w.HTML()
        self._outside, self._parameters = w.VBox([self.outside]), w.VBox([self.parameters])
        self._chart, self._seat = w.VBox(layout=flex(3, "26em")), w.VBox()
        old, self.body.layout = self.body.layout, flex(2, "26em")
        old.close()
        self._prompts = w.VBox([w.HTML(_title("Prompts and replies"))])
        border = f"1px solid {LINE}"
        self._changes = w.VBox(
            [
                self._from_turn,
                self._outside,
                self.apply_button,
                w.HTML(_title("Parameters, from the beginning")),
                self._parameters,
                self.restart_button,
            ],
            layout=w.Layout(display="none", padding="8px 16px", margin="8px 0", border=border),
        )
        both = row(self._chart, self.body, gap="8px 24px")
        self.children = [self.toolbar, self._changes, self._seat, both, self._prompts]

    # --- one selection for all parts ----------------------------------------------------------

    def refresh(self) -> None:
        """Look at the run again, in all parts."""
        with self._view:
            super().refresh()
            if self.prompts is None or self.prompts.simulation is not self.simulation:
                self._open_parts()
            assert self.prompts is not None
            # What the part itself says while it is led is no choice of its user's.
            with self._choices.quietly():
                self.prompts.go(self.shown)
            self._show_changes()

    def _open_parts(self) -> None:
        """Make the parts for the run that is now shown, where the old ones are of another."""
        shown, runs = self.simulation, self._runs
        for old in (self.prompts, self.seat):
            if old is not None:
                old.close()
        was = self.prompts.seen if self.prompts is not None else None
        self.prompts = PromptViewer(shown)
        self.prompts.navigation.layout.display = "none"
        if was is not None:
            with suppress(ConfigError):  # the player is not asked in this run
                self.prompts.show(component=was.component, agent=was.agent)
        self.prompts.turn_box.observe(self._follow_part, names="value")
        self._prompts.children = (self._prompts.children[0], self.prompts)
        self.seat = HumanSeat(shown) if getattr(shown, "people", ()) else None
        self._seat.children = (self.seat,) if self.seat is not None else ()
        # A chart keeps to the runs that it was made of, so that a further run takes a new one.
        if self.chart is None or len(runs) > 1:
            names = ["original", *(f"{run.name} {at}" for at, run in enumerate(runs[1:], start=1))]
            with suppress(ConfigError):  # nothing of it is a number
                chart = RateChart(*runs, names=names)
                before, self.chart = self.chart, chart
                self._chart.children = (chart,)
                if before is not None:
                    before.close()

    def _follow_part(self, change: Any) -> None:
        """Show the turn that was chosen in a part, as by a search."""
        turn, part = change["new"], self.prompts

        def follow() -> None:
            first, last = self._span()
            # A turn that is not whole is shown by the part alone.
            if part is self.prompts and first <= turn <= last:
                self.show(turn)

        if not self._choices.filling:
            # Posted, since this thread holds the part's lock and would wait here for the window's.
            self.worker.call(follow)

    # --- changing -----------------------------------------------------------------------------

    def _show_changes(self) -> None:
        """Offer what can be changed from the turn shown on, if that is wanted."""
        open_now, run = self.change_button.value, self.simulation
        self._changes.layout.display = "" if open_now else "none"
        if not open_now:
            return
        numbers = settable(run, self.shown)
        if self._changed_run is not run or not self.outside.renew(numbers):
            self._changed_run = run
            self._offer_changes(run, numbers)
        self._from_turn.value = _title(f"From turn {self.shown} on")

    def _offer_changes(self, run: Run, numbers: Mapping[str, float]) -> None:
        """Make the controls anew."""
        values = run.config.model_dump(mode="json", by_alias=True)
        self.parameters = Form(type(run.config).model_json_schema(), values)
        self.outside = Form(run.intervention_type.model_json_schema(), {}, settable=numbers)
        self._prompts_now = {prompt.name: prompt for prompt in run.prompts.values()}
        self._texts = {
            name: w.Textarea(prompt.text, rows=10, layout=w.Layout(width="100%"))
            for name, prompt in self._prompts_now.items()
        }
        box = dropdown("Prompt", width="30em")
        box.options = list(self._texts)
        stack = w.Stack(list(self._texts.values()), selected_index=0 if self._texts else None)
        w.dlink((box, "index"), (stack, "selected_index"))
        old = [*self._outside.children, *self._parameters.children]
        self._outside.children = (self.outside, *((box, stack) if self._texts else ()))
        self._parameters.children = (self.parameters,)
        for part in old:
            close_all(part)

    async def _fork_changed(self) -> None:
        await settled(*self.outside.boxes, *self._texts.values())
        changes, turn = self.outside.changed, self.shown
        edited = [
            prompt.edit(self._texts[name].value)
            for name, prompt in self._prompts_now.items()
            if self._texts[name].value != prompt.text
        ]
        words = words_of(changes | {f"prompt {prompt.name}": "edited" for prompt in edited})
        self._fork(turn, {"intervene": self._planned(turn, changes), "prompt": edited}, words)

    def _planned(self, turn: int, changes: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return interventions at the turn where that can be, else on the way to the next."""
        trial, planned = self.simulation.branch(turn, None), []
        note = {name: value for name, value in changes.items() if name == "note"}
        for name in changes.keys() - note:
            entry, at = {name: changes[name], **note}, turn
            try:
                trial.intervene(turn, **entry)
            except ConfigError:  # what is wrong with it otherwise, the fork says
                at = turn + 1
            planned.append({"turn": at, **entry})
        return planned

    async def _restart(self) -> None:
        await settled(*self.parameters.boxes)
        self.restart(**self.parameters.changed)

    def restart(self, **changes: Any) -> Run:
        """Make a run that begins anew with other parameters, and show it; the one shown stays.

        It is recorded on the same tape, if that is open for writing.

        Args:
            changes: parameters, and in mappings parts of them: ``economy={"shock_scale": 2}``.

        Raises:
            ConfigError: a value is wrong, or there is no model to ask.
        """
        run = self.simulation
        before = run.config.model_dump(mode="json", by_alias=True, exclude_unset=True)
        try:
            config = type(run.config).model_validate(merged(before, changes))
        except ValidationError as error:
            raise ConfigError(faults(error)) from error
        client = self.llm_client or run.llm_client
        if client is not None and isinstance(client.backend, NoModel):
            client = None
            if config.needs_model:
                raise ConfigError(
                    "a restart is live: give it a model, Lab(..., llm_client=connect('auto'))"
                )
        parts = copied({name: getattr(run, name) for name in run.given}, client, {})
        prompts = {at: it for at, it in run.prompts.items() if not belongs_to(at, parts)}
        new: Run = type(run).rebuilt(
            config, llm_client=client, state=None, prompts=prompts, parts=parts
        )
        if run.tape is not None and run.tape.read_only:
            new.note_unrecorded(f"the tape {run.tape.path} is open for reading only")
        elif run.tape is not None:
            new._record(run.tape)
        self._add(new, "restart", f"with {words_of(changes)}" if changes else "as it was")
        return new

    # --- the static view ----------------------------------------------------------------------

    def static_text(self) -> str:
        """Return the turn shown and what is charted as plain text, the same for the same run."""
        charted = f"\n{self.chart.static_text()}" if self.chart is not None else ""
        return super().static_text() + charted

    def static_html(self) -> Markup:
        """Return the chart and the turn shown as simple HTML, the same for the same run."""
        charted = self.chart.static_html() if self.chart is not None else Markup()
        return join([charted, super().static_html()])
