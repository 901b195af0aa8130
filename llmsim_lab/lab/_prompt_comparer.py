"""Variants of a prompt, edited side by side and asked again at recorded situations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from markupsafe import Markup

from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.html import details, join, pre, safe, visible
from llmsim_lab._util.text import clip
from llmsim_lab.errors import ConfigError, LabError, PromptError
from llmsim_lab.lab._change_form import prompts_by_name
from llmsim_lab.lab._lab import Lab
from llmsim_lab.lab._shown_runs import turn_of
from llmsim_lab.lab._study_board import StudyBoard
from llmsim_lab.llm import LLMClient, ScriptedBackend
from llmsim_lab.prompts import Prompt, RenderedPrompt
from llmsim_lab.run import Run, load
from llmsim_lab.run.question import SLOTS_OF_ALL
from llmsim_lab.run.recorded import live_client, unrecorded_fork
from llmsim_lab.study import Study
from llmsim_lab.tape import Tape
from llmsim_lab.types import Attempt, ChatRequest

VIEW = "prompts"
_MOST_SAMPLES = 1_000
_FIRST = "as it was"
_NO_MODEL = "a recorded run has no model to ask; attach one: llm_client=connect('auto')"


class _Traced(Prompt):
    """A prompt that keeps the first message made from it."""

    first: RenderedPrompt | None = None

    def sharing(self, values: Mapping[str, object]) -> Callable[..., RenderedPrompt]:
        """Return a function that fills in the prompt, and keeps its first result."""
        render = super().sharing(values)

        def render_and_keep(values_of_player: Mapping[str, object]) -> RenderedPrompt:
            message = render(values_of_player)
            self.first = self.first or message
            return message

        return render_and_keep


class PromptComparer(StudyBoard):
    """Compares variants of a prompt at the situations of a recorded run, with ``Study.again``.

    Args:
        run: a run on a tape, or the tape.
        variants: texts, prompts, or functions of the recorded text, by name; all can be edited.
        prompt: the prompt's name, if the run used several.
        samples: how often each situation is asked with each variant.
        llm_client: the model; the run's own if not given.
        more: further arguments of ``Study.again``: ``turns``, ``outcome``, ``to``.

    Attributes:
        texts: the variants' present texts, by name; the first is the recorded one.
        study: the study of the latest questions, or None.

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
        source = run if isinstance(run, Run) else load(run)
        self._source = source
        if source.tape is None:
            world = type(source).__name__
            raise ConfigError(
                f"the run is on no tape: make it with one: {world}(..., tape='my.tape')"
            )
        self._client = live_client(source, llm_client)
        self.prompt = _prompt_of(source, prompt)
        self._options = more
        self._samples = whole_number(
            "samples",
            samples,
            least=1,
            most=_MOST_SAMPLES,
        )
        self._filling: dict[int, asyncio.Task[None]] = {}
        self.texts: dict[str, str] = {}
        self._functions: dict[str, _FunctionVariant] = {}
        # The recorded prompt is the first variant, and what the others are compared with.
        self._variants = {_FIRST: None, **(variants or {})}
        Lab.__init__(self, source, llm_client=llm_client)
        turns = more.get("turns") or [source.turns[0].number]
        first_turn = min(turns)
        for place in range(len(self.texts)):
            self._fill(place, first_turn)

    def _open(self, source: Any, run: int | None) -> None:
        about = {
            "name": self.prompt.name,
            "slots": [*self.prompt.slots],
            "samples": self._samples,
            "turns": [turn.number for turn in source.turns[:-1]],
            "fault": _NO_MODEL if self._client is None else "",
        }
        self.reading.put(VIEW, "about", about)
        recorded = _text_of(self.prompt)
        for name, variant in self._variants.items():
            edited = variant
            if callable(variant):
                edited = variant(recorded)
            text = getattr(edited, "text", edited) or recorded
            with suppress(PromptError):  # with an error, the text is shown as it is, with its fault
                text = _text_of(self.prompt.edit(text))
            self._show_variant(name, text)
            # A study uses the function itself, which works on any prompt.
            if callable(variant):
                self._functions[name] = _FunctionVariant(variant, self.texts[name])

    def _show_variant(self, name: str, text: str) -> None:
        """Show a variant's text, and its fault if it has one."""
        self.texts[name] = text
        fault = ""
        try:
            self._read(name)
        except LabError as error:
            fault = str(error)
        shown = {
            "name": name,
            "text": self.reading.keep_text(text),
            "fault": fault,
        }
        self.reading.put(
            VIEW,
            [*self.texts].index(name),
            shown,
        )

    def _read(self, name: str) -> Prompt:
        """Return a variant as a prompt, with its present text.

        Raises:
            PromptError: the text is not a prompt, or has a slot that the recorded prompt lacks.
        """
        prompt = self.prompt.edit(self.texts[name])
        slots = self.prompt.slots
        # A prompt without slots is asked as a text, and its edits may use these.
        if not Prompt(self.prompt.user).slots:
            slots = tuple(dict.fromkeys([*slots, *SLOTS_OF_ALL]))
        unknown = sorted(set(prompt.slots) - set(slots))
        if unknown:
            raise PromptError(
                f"{{{{ {unknown[0]} }}}}: the run gives this prompt no such value; it has "
                f"{', '.join(slots)}"
            )
        return prompt

    def _edit(self, name: str) -> Prompt | Callable[[str], object]:
        """Return the edit for a study: the variant's function, unless its text was edited."""
        prompt = self._read(name)
        variant = self._functions.get(name)
        if variant is None or variant.text != self.texts[name]:
            return prompt
        return variant.function

    # --- commands -----------------------------------------------------------------------------

    def _do_write(
        self,
        place: int,
        text: str,
        turn: int,
    ) -> None:
        """Take what was typed, and fill it in for a recorded situation."""
        whole_number(
            "place",
            place,
            least=0,
            most=len(self.texts) - 1,
        )
        name = [*self.texts][place]
        # The recorded prompt stays as it is.
        if name == _FIRST:
            text = self.texts[_FIRST]
        self._show_variant(name, text)
        self._send_new()
        self._fill(place, turn)

    def _fill(self, place: int, turn: int) -> None:
        # Each typed key asks for a preview, but only the latest preview is worth playing a turn.
        if place in self._filling:
            self._filling[place].cancel()
        preview = self._preview(place, turn)
        self._filling[place] = self._start(preview)

    def _do_add(self) -> None:
        self._show_variant(f"variant {len(self.texts)}", self.texts[_FIRST])
        self._send_new()

    async def _preview(self, place: int, turn: int) -> None:
        """Show a variant's text at a turn, which is begun with the recorded replies."""
        with suppress(LabError):  # the fault is shown beside the text
            name = [*self.texts][place]
            prompt = self._read(name)
            request = await self._first_request(prompt, turn)
            if request is None:
                return
            shown = self.reading.attempt(
                Attempt(
                    request=request,
                    reply=None,
                    seconds=0.0,
                )
            )
            self.put(VIEW, f"filled {place}", {**shown, "turn": turn})

    async def _first_request(self, prompt: Prompt, turn: int) -> ChatRequest | None:
        """Return the first request that a turn makes with a prompt; None if it makes none."""
        traced = _Traced(
            prompt.user,
            system=prompt.system,
            name=prompt.name,
        )
        calls = turn_of(self._source, turn + 1).calls
        # With the recorded replies, so that later questions of the turn are reached as well.
        replies = {call.request.site: call.reply for call in calls}
        backend = ScriptedBackend(
            lambda request: replies.get(request.site) or ConnectionError("end")
        )
        trial = unrecorded_fork(
            self._source,
            turn,
            LLMClient(backend=backend),
            [traced],
        )
        with suppress(LabError):  # the turn ends at the first question that was not recorded
            await trial.step()
        if traced.first is None:
            return None
        for request in backend.requests:
            if request.messages[-1].content == traced.first.user:
                return request
        return None

    def _do_run(self, samples: int = 0) -> None:
        """Ask the recorded situations again, with each variant."""
        whole_number(
            "samples",
            samples,
            least=0,
            most=_MOST_SAMPLES,
        )
        if self._client is None:
            raise ConfigError(_NO_MODEL)
        prompts: dict[str, Any] = {}
        for name in self.texts:
            edit = self._edit(name)
            prompts[name] = {self.prompt.name: edit}
        prompts[_FIRST] = None  # asked exactly as recorded, to compare with
        study = Study.again(
            self._source,
            {"prompt": prompts},
            samples=samples or self._samples,
            llm_client=self._client,
            **self._options,
        )
        self._follow(study)
        super()._do_run()

    # --- what stays ---------------------------------------------------------------------------

    def static_text(self) -> str:
        """Return the variants and their results as plain text."""
        lines = [f"PromptComparer of {self.prompt.name}: {', '.join(self.texts)}"]
        if self.study is not None:
            lines.append(str(self.study))
        return visible("\n".join(lines))

    def static_html(self) -> Markup:
        """Return the static text as simple HTML."""
        first_line, _, _ = self.static_text().partition("\n")
        parts = [safe(first_line)]
        for name, text in self.texts.items():
            shortened = clip(text, 4_000)
            parts.append(details(name, pre(shortened)))
        if self.study is not None:
            parts.append(super().static_html())
        return join(parts)


class _FunctionVariant(NamedTuple):
    """A variant that is a function, and the text that it made of the prompt."""

    function: Callable[[str], object]
    text: str


def _text_of(prompt: Prompt) -> str:
    """Return a prompt's text in the form that a study's edits take."""
    return prompt.text if prompt.system else prompt.user


def _prompt_of(run: Run, name: str) -> Prompt:
    """Return the recorded prompt with a name.

    Raises:
        ConfigError: there is no such prompt; or there are several, and no name is given.
    """
    prompts = prompts_by_name(run)
    if not name and len(prompts) == 1:
        [name] = prompts
    if name not in prompts:
        raise ConfigError(
            f"prompt={name!r}: the run asked with {', '.join(prompts) or 'no prompt'}; name one "
            "of them: PromptComparer(run, prompt='...')"
        )
    return prompts[name]
