"""Variants of a prompt, edited side by side and asked at recorded situations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from markupsafe import Markup

from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.html import details, join, pre, safe, visible
from llmsim_lab._util.text import clip
from llmsim_lab.errors import ConfigError, LabError, PromptError
from llmsim_lab.lab._lab import Lab, prompts_by_name, turn_of
from llmsim_lab.lab._study_board import StudyBoard
from llmsim_lab.llm import LLMClient, ScriptedBackend
from llmsim_lab.prompts import Prompt, RenderedPrompt
from llmsim_lab.run import Run, load
from llmsim_lab.run._question import GIVEN
from llmsim_lab.run.recorded import live_client, unrecorded_fork
from llmsim_lab.study import Study
from llmsim_lab.tape import Tape
from llmsim_lab.types import Attempt

VIEW = "prompts"
_MOST_SAMPLES = 1_000
_FIRST = "as it was"
_NO_MODEL = "a recorded run has no model to ask; attach one: llm_client=connect('auto')"


class _Traced(Prompt):
    """A prompt that keeps the first message that is made of it."""

    first: RenderedPrompt | None = None

    def sharing(self, values: Mapping[str, object]) -> Callable[..., RenderedPrompt]:
        """Return what renders the prompt, and keeps what it made first."""
        render = super().sharing(values)

        def traced(mine: Mapping[str, object]) -> RenderedPrompt:
            made = render(mine)
            self.first = self.first or made
            return made

        return traced


class PromptComparer(StudyBoard):
    """Compares variants of a prompt at the situations of a recorded run, by ``Study.again``.

    Args:
        run: a run on a tape, or the tape.
        variants: texts, prompts, or functions of the recorded text, by name; they can be edited.
        prompt: the prompt's name, where the run used several.
        samples: of each situation in each variant.
        llm_client: the model; the run's own if not given.
        more: what else ``Study.again`` takes: ``turns``, ``outcome``, ``to``.

    Attributes:
        texts: the variants as they stand, by name; the first as it was recorded.
        study: what was asked last, or None.

    Example:
        >>> PromptComparer(run, {"hawk": lambda text: text + " You fear inflation."}
        ...                )  # doctest: +SKIP
    """

    parts = (VIEW, *StudyBoard.parts)
    _parallel = None

    def __init__(
        self,
        run: Run | Tape | str,
        variants: Mapping[str, Any] | None = None,
        *,
        prompt: str = "",
        samples: int = 5,
        llm_client: LLMClient | None = None,
        **more: Any,
    ) -> None:
        source = self._source = run if isinstance(run, Run) else load(run)
        if source.tape is None:
            world = type(source).__name__
            raise ConfigError(
                f"the run is on no tape: make it with one: {world}(..., tape='my.tape')"
            )
        self._client = live_client(source, llm_client)
        self.prompt, self._options = _prompt_of(source, prompt), more
        self._samples = whole_number("samples", samples, least=1, most=_MOST_SAMPLES)
        self._filling: dict[int, asyncio.Task[None]] = {}
        self.texts: dict[str, str] = {}
        self._functions: dict[str, tuple[Any, str]] = {}
        """Variants that are functions, and what they made of the prompt as it is shown."""
        self._variants = {_FIRST: None, **(variants or {})}
        Lab.__init__(self, source, llm_client=llm_client)
        for place in range(len(self.texts)):
            self._fill(place, min(more.get("turns") or [source.turns[0].number]))

    def _open(self, source: Any, run: int | None) -> None:
        about = {"name": self.prompt.name, "slots": [*self.prompt.slots], "samples": self._samples}
        turns = [turn.number for turn in source.turns[:-1]]
        fault = _NO_MODEL if self._client is None else ""
        self.reading.put(VIEW, "about", {**about, "turns": turns, "fault": fault})
        old = self.prompt.text if self.prompt.system else self.prompt.user  # as a study has it
        for name, variant in self._variants.items():
            text = variant(old) if callable(variant) else variant
            text = getattr(text, "text", text) or old
            with suppress(PromptError):  # else it is shown as it is, with its fault
                made = self.prompt.edit(text)
                text = made.text if made.system else made.user
            self._show_variant(name, text)
            if callable(variant):
                self._functions[name] = variant, self.texts[name]

    def _show_variant(self, name: str, text: str) -> None:
        """Show a variant: its text, and what is wrong with it."""
        self.texts[name], fault = text, ""
        try:
            self._read(name)
        except LabError as error:
            fault = str(error)
        shown = {"name": name, "text": self.reading.keep_text(text), "fault": fault}
        self.reading.put(VIEW, [*self.texts].index(name), shown)

    def _read(self, name: str) -> Prompt:
        """Return a variant as it stands.

        Raises:
            PromptError: it is no prompt, or has a slot that the recorded one lacks.
        """
        made = self.prompt.edit(self.texts[name])
        known = self.prompt.slots
        # One without slots is asked as a text, and each text may use these.
        if not Prompt(self.prompt.user).slots:
            known = tuple(dict.fromkeys([*known, *GIVEN]))
        if more := sorted(set(made.slots) - set(known)):
            what = f"{{{{ {more[0]} }}}}: the run gives this prompt no such value"
            raise PromptError(f"{what}; it has {', '.join(known)}")
        return made

    def _edit(self, name: str) -> Any:
        """Return what a study edits the prompt with: a function, unless its text was edited."""
        made = self._read(name)
        function, text = self._functions.get(name, (None, ""))
        return made if function is None or self.texts[name] != text else function

    # --- commands -----------------------------------------------------------------------------

    def _do_write(self, place: int, text: str, turn: int) -> None:
        """Take what was typed, and fill it from a recorded situation."""
        whole_number("place", place, least=0, most=len(self.texts) - 1)
        self._show_variant([*self.texts][place], text if place else self.texts[_FIRST])
        self._send_new()
        self._fill(place, turn)

    def _fill(self, place: int, turn: int) -> None:
        if (before := self._filling.get(place)) is not None:
            before.cancel()
        self._filling[place] = self._start(self._preview(place, turn))

    def _do_add(self) -> None:
        self._show_variant(f"variant {len(self.texts)}", self.texts[_FIRST])
        self._send_new()

    async def _preview(self, place: int, turn: int) -> None:
        """Show what a variant says at a turn, which is begun with the recorded replies."""
        with suppress(LabError):  # which is shown beside it
            made = self._read([*self.texts][place])
            traced = _Traced(made.user, system=made.system, name=made.name)
            calls = turn_of(self._source, turn + 1).calls
            known = {call.request.site: call.reply for call in calls}
            backend = ScriptedBackend(lambda asked: known.get(asked.site) or ConnectionError("end"))
            trial = unrecorded_fork(self._source, turn, LLMClient(backend=backend), [traced])
            with suppress(LabError):
                await trial.step()
            said = traced.first.user if traced.first else None
            for asked in (it for it in backend.requests if it.messages[-1].content == said):
                shown = self.reading.attempt(Attempt(request=asked, reply=None, seconds=0.0))
                self.put(VIEW, f"filled {place}", {**shown, "turn": turn})
                return

    def _do_run(self, samples: int = 0) -> None:
        """Ask the recorded situations again, with each variant."""
        whole_number("samples", samples, least=0, most=_MOST_SAMPLES)
        if self._client is None:
            raise ConfigError(_NO_MODEL)
        edited = {name: {self.prompt.name: self._edit(name)} for name in self.texts}
        more = {"samples": samples or self._samples, "llm_client": self._client, **self._options}
        self._follow(Study.again(self._source, {"prompt": edited | {_FIRST: None}}, **more))
        super()._do_run()

    # --- what stays ---------------------------------------------------------------------------

    def static_text(self) -> str:
        """Return the variants and what came of them, as plain text."""
        head = f"PromptComparer of {self.prompt.name}: {', '.join(self.texts)}"
        return visible("\n".join([head, *([str(self.study)] if self.study else [])]))

    def static_html(self) -> Markup:
        """Return the same as simple HTML."""
        texts = [details(name, pre(clip(text, 4_000))) for name, text in self.texts.items()]
        head = self.static_text().partition("\n")[0]
        return join([safe(head), *texts, *([super().static_html()] if self.study else [])])


def _prompt_of(run: Run, name: str) -> Prompt:
    """Return the recorded prompt of a name.

    Raises:
        ConfigError: there is none, or several and no name.
    """
    found = prompts_by_name(run)
    name = name or (next(iter(found)) if len(found) == 1 else "")
    if name not in found:
        what = f"prompt={name!r}: the run asked with {', '.join(found) or 'no prompt'}"
        raise ConfigError(f"{what}; name one of them: PromptComparer(run, prompt='...')")
    return found[name]
