"""Variants of a prompt, edited side by side and asked at recorded situations."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from markupsafe import Markup

from llmsim_lab._util.checks import whole_number
from llmsim_lab._util.html import details, join, pre, visible
from llmsim_lab._util.text import clip
from llmsim_lab.errors import ConfigError, LabError, PromptError
from llmsim_lab.lab._lab import Lab
from llmsim_lab.lab._study_board import StudyBoard
from llmsim_lab.llm import LLMClient, ScriptedBackend
from llmsim_lab.prompts import Prompt
from llmsim_lab.prompts._prompt import RenderedPrompt
from llmsim_lab.run import Run, load
from llmsim_lab.run._run import NoModel
from llmsim_lab.study import Study
from llmsim_lab.tape import Tape
from llmsim_lab.types import Attempt, CallSite, ChatRequest, Message

if TYPE_CHECKING:
    from llmsim_lab.study._study import Outcomes

VIEW = "prompts"
_FIRST = "as it was"


class _Traced(Prompt):
    """A prompt that keeps the first message that is made of it."""

    first: RenderedPrompt | None = None

    def _filled(self, *how: Any) -> RenderedPrompt:
        made = super()._filled(*how)
        self.first = self.first or made
        return made


class PromptComparer(StudyBoard):
    """Compares variants of a prompt at the situations of a recorded run, by ``Study.again``.

    Args:
        run: a run on a tape, or the tape.
        variants: texts, prompts, or functions of the recorded text, by name; they can be edited.
        prompt: the prompt's name, where the run used several.
        samples: of each situation in each variant.
        turns: the recorded turns that are continued; all if not given.
        outcome: what is compared; all fields of the replies if not given.
        llm_client: the model; the run's own if not given.
        to: the folder of what is asked; gone with the window if not given.

    Attributes:
        texts: the variants as they stand, by name; the first as it was recorded.
        study: what was asked last, or None.

    Example:
        >>> PromptComparer(run, {"hawk": lambda text: text + " You fear inflation."}
        ...                )  # doctest: +SKIP
    """

    parts = (VIEW, *StudyBoard.parts)
    commands: ClassVar[Mapping[str, str]] = {
        **StudyBoard.commands,
        "write": "_write",
        "add": "_add_variant",
    }

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
        self._source = source = run if isinstance(run, Run) else load(run)
        if source.tape is None:
            raise ConfigError("the run is on no tape: make it with tape='my.tape'")
        self._how: dict[str, Any] = {"turns": turns, "outcome": outcome, "to": to}
        self._client = llm_client or source.llm_client
        if self._client is not None and isinstance(self._client.backend, NoModel):
            self._client = None
        self.prompt, self._samples = _prompt_of(source, prompt), samples
        self.texts: dict[str, str] = {}
        self._filling: dict[int, asyncio.Task[None]] = {}
        self._at = min(turns or [source.turns[0].number])
        self._given, self._parallel = {_FIRST: None, **(variants or {})}, None
        Lab.__init__(self, source, llm_client=llm_client)

    def _open(self, source: Any, run: int | None) -> None:
        about = {
            "name": self.prompt.name,
            "slots": [*self.prompt.slots],
            "samples": whole_number("samples", self._samples, least=1, most=1_000),
            "turns": [turn.number for turn in source.turns[:-1]],
            "model": "" if self._client is None else self._client.config.model,
        }
        self.reading.put(VIEW, "about", about)
        for name, variant in self._given.items():
            text = variant(self.prompt.text) if callable(variant) else variant
            self._put(name, _shown(self.prompt, getattr(text, "text", text) or self.prompt.text))

    def _put(self, name: str, text: str) -> None:
        """Show a variant: its text, and what is wrong with it."""
        self.texts[name] = text
        fault = ""
        try:
            self._read(name)
        except LabError as error:
            fault = str(error)
        place = [*self.texts].index(name)
        self.reading.put(
            VIEW, place, {"name": name, "text": self.reading.keep_text(text), "fault": fault}
        )

    def _read(self, name: str) -> Prompt | None:
        if name == _FIRST:
            return None
        made = self.prompt.edit(self.texts[name])
        if more := sorted(set(made.slots) - set(self.prompt.slots)):
            raise PromptError(
                f"{{{{ {more[0]} }}}}: the run gives this prompt no such value; it has "
                f"{', '.join(self.prompt.slots) or 'none'}"
            )
        return made

    @property
    def variants(self) -> dict[str, Prompt | None]:
        """The variants as they stand.

        Raises:
            PromptError: one is no prompt, or has a slot that the recorded one lacks.
        """
        return {name: self._read(name) for name in self.texts}

    # --- commands -----------------------------------------------------------------------------

    def _write(self, place: int, text: str, turn: int) -> None:
        """Take what was typed, and fill it from a recorded situation."""
        name = [*self.texts][place]
        self._put(name, text if name != _FIRST else self.texts[name])
        if (before := self._filling.get(place)) is not None:
            before.cancel()
        self._filling[place] = self._begin(self._preview(place, name, turn))
        self._soon()

    def _add_variant(self) -> None:
        self._put(f"variant {len(self.texts)}", self.texts[_FIRST])
        self._soon()

    async def _preview(self, place: int, name: str, turn: int) -> None:
        """Show what a variant says at a turn: the turn is begun, with the recorded replies."""
        with suppress(LabError):  # its fault is shown beside it
            made = self._read(name) or self.prompt
            traced = _Traced(made.user, system=made.system, name=made.name)
            after = self._source.turns[turn + 1 - self._source.turns[0].number]
            known = {call.history[-1].request.site: call.history[-1].reply for call in after.calls}
            backend = ScriptedBackend(lambda asked: known.get(asked.site) or ConnectionError("end"))
            trial = self._source.branch(turn, LLMClient(backend=backend), [traced])
            with suppress(LabError):
                await trial.step(progress=False)
            if (first := traced.first) is not None:
                system = (Message("system", first.system),) if first.system else ()
                asked = ChatRequest(
                    model="",
                    messages=(*system, Message("user", first.user)),
                    origin=first.origin(CallSite(component="", turn=turn + 1)),
                )
                shown = self.reading.attempt(Attempt(request=asked, reply=None, seconds=0.0))
                self.put(VIEW, f"filled {place}", {**shown, "turn": turn})

    def _run_all(self, samples: int | None = None) -> None:
        """Ask the recorded situations again, with each variant."""
        if self._client is None:
            raise ConfigError(
                "a recorded run has no model to ask: PromptComparer(run, ..., "
                "llm_client=connect('auto'))"
            )
        if self.study is not None and self.study.running:
            return
        made = {name: it and {self.prompt.name: it} for name, it in self.variants.items()}
        samples, client = samples or self._samples, self._client
        self._follow(
            Study.again(
                self._source, {"prompt": made}, samples=samples, llm_client=client, **self._how
            )
        )
        super()._run_all()

    # --- what stays ---------------------------------------------------------------------------

    def static_text(self) -> str:
        """Return the variants and what came of them, as plain text."""
        lines = [f"PromptComparer of {self.prompt.name}: {', '.join(self.texts)}"]
        return visible("\n".join([*lines, *([] if self.study is None else [str(self.study)])]))

    def static_html(self) -> Markup:
        """Return the same as simple HTML."""
        texts = (details(name, pre(clip(text, 4_000))) for name, text in self.texts.items())
        return join([visible(self.static_text()), *texts, super().static_html()])


def _shown(prompt: Prompt, text: str) -> str:
    """Return a variant's text as it is edited: without headings, where there is one message."""
    with suppress(PromptError):  # is shown as it is, with its fault
        made = prompt.edit(text)
        return made.text if made.system else made.user
    return text


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
