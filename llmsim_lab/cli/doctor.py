"""``llmsim-lab doctor``: which models are there, and do they answer as they must."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass

import psutil
from rich.table import Table

from llmsim_lab.cli.output import console, literal
from llmsim_lab.concurrency import run_sync
from llmsim_lab.errors import BackendError, LabError
from llmsim_lab.llm import LLMClient, LLMConfig, connect
from llmsim_lab.llm._embedded.backend import runtime_installed
from llmsim_lab.llm._embedded.store import installed_models
from llmsim_lab.llm._ollama.backend import SUGGESTED_MODEL, look
from llmsim_lab.llm._ollama.wire import parse_host
from llmsim_lab.models import PolicyDecision
from llmsim_lab.prompts import Prompt
from llmsim_lab.text import clip

__all__ = ["doctor"]

_SETTINGS = LLMConfig(
    temperature=0, seed=1, num_ctx=2048, max_tokens=200, max_text_chars=120, timeout_s=120
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finding:
    """One row of the report."""

    backend: str
    model: str = ""
    context: str = ""
    answer: str = ""
    speed: str = ""
    works: bool = False


def doctor(*, model: str | None, host: str | None) -> int:
    """Print the report; returns 0 if some model works, else 1."""
    console.print(_machine(), markup=False, highlight=False)
    findings = [_check(model, host)] if model else [*_ollama(host), *_embedded()]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("backend", "model", "context", "answer held to a schema", "speed"):
        table.add_column(heading, overflow="fold")
    for row in findings:
        table.add_row(
            *map(literal, (row.backend, row.model, row.context, row.answer, row.speed)),
            style="" if row.works or row.answer == "(not asked)" else "yellow",
        )
    console.print(table)
    console.print(_choice(host), markup=False, highlight=False, soft_wrap=True)
    return 0 if any(finding.works for finding in findings) else 1


def _machine() -> str:
    memory = psutil.virtual_memory()
    wish = os.environ.get("LLMSIM_MODEL")
    return (
        f"Python {platform.python_version()} on {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} cores, {memory.available / 1e9:.1f} of {memory.total / 1e9:.1f} GB "
        f"memory free" + (f", LLMSIM_MODEL={wish}" if wish else "")
    )


def _choice(host: str | None) -> str:
    try:
        client = connect("auto", host=host, quiet=True)
    except LabError as error:
        return f"connect('auto') finds nothing: {error}"
    run_sync(client.aclose())
    return f"connect('auto') says: {client.chosen}"


def _ollama(host: str | None) -> list[_Finding]:
    where = parse_host(host)
    try:
        found = look(host)
    except BackendError as error:
        return [_Finding(backend=f"Ollama at {where}", answer=clip(str(error), 300))]
    if found.model is None:
        return [
            _Finding(
                backend=f"Ollama {found.version} at {where}",
                answer=f"has no model that can chat: 'ollama pull {SUGGESTED_MODEL}'",
            )
        ]
    others = [
        _Finding(backend=f"Ollama {found.version}", model=name, answer="(not asked)")
        for name in found.models
        if name != found.model
    ]
    return [_check(f"ollama:{found.model}", host), *others]


def _embedded() -> list[_Finding]:
    if not runtime_installed():
        return [
            _Finding(backend="embedded", answer="no runtime: pip install 'llmsim-lab[embedded]'")
        ]
    names = installed_models()
    if not names:
        return [_Finding(backend="embedded", answer="no weights here: 'llmsim-lab model get'")]
    return [_check(f"embedded:{name}", None) for name in names]


def _check(model: str, host: str | None) -> _Finding:
    """Ask one model for one structured answer."""
    kind, _, name = model.partition(":")
    try:
        client = connect(model, host=host, config=_SETTINGS, quiet=True)
        return run_sync(_examine(client, kind))
    except LabError as error:
        return _Finding(backend=kind, model=name, answer=clip(str(error), 300))


async def _examine(client: LLMClient, kind: str) -> _Finding:
    prompt = Prompt.load("agent_policy").render(
        profile="You advise Atlantis.",
        gdp_growth=2.2,
        inflation=6.5,
        unemployment=5,
        interest_rate=2.5,
    )
    async with client:
        info = await client.model_info()
        # The first call also loads the model and reads the prompt; the second shows the speed.
        await client.call_with_retry(prompt=prompt, response_model=PolicyDecision)
        decision = await client.call_with_retry(prompt=prompt, response_model=PolicyDecision)
    call = decision.call
    speed = f"{call.reply_tokens / call.seconds:.0f} tokens/s" if call and call.seconds else ""
    context = f"{client.config.num_ctx:,}"
    if info.context_length:
        context += f" of {info.context_length:,}"
    return _Finding(
        backend=f"{kind} {info.version or ''}".strip(),
        model=info.name,
        context=context,
        answer=f"yes: {clip(decision.action, 60)}",
        speed=speed,
        works=True,
    )
