"""``llmsim-lab doctor --tools``: does a model use tools as it should."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from rich.table import Table

from llmsim_lab.cli.output import console, literal
from llmsim_lab.concurrency import run_sync
from llmsim_lab.errors import ConfigError
from llmsim_lab.llm import LLMClient, LLMConfig, connect

if TYPE_CHECKING:
    from llmsim_lab.assistant.evaluation import Evaluation, Scored

__all__ = ["check_tools"]

_MAX_TOKENS = 200
_TIMEOUT_S = 300.0
_SETTINGS = LLMConfig(
    temperature=0, seed=1, num_ctx=4096, max_tokens=_MAX_TOKENS, timeout_s=_TIMEOUT_S
)


def check_tools(model: str | None, host: str | None, *, whole: bool = False) -> int:
    """Have a model decide about some messages and print how it did.

    Returns 0 if it answered all and all was safe, right or not; else 1.

    Args:
        model: as ``connect`` names it; the one it chooses if not given.
        host: Ollama's address.
        whole: all messages instead of one of each kind.

    Raises:
        ConfigError: the library for tools is not installed, or there is no model.
    """
    if find_spec("mcp") is None:
        raise ConfigError("tools need the mcp library: pip install 'llmsim-lab[tools]'")
    client = connect(model or "auto", host=host, config=_SETTINGS, quiet=True)
    evaluation = run_sync(_evaluate(client, whole=whole))
    console.print(_table(evaluation))
    console.print(repr(evaluation), markup=False, highlight=False, soft_wrap=True)
    return 1 if any(row.failed or row.safe is False for row in evaluation.rows) else 0


async def _evaluate(client: LLMClient, *, whole: bool) -> Evaluation:
    from llmsim_lab.assistant import evaluate
    from llmsim_lab.assistant.evaluation import load_cases
    from llmsim_lab.assistant.types import AgentEngineConfig

    cases = load_cases()
    chosen = cases if whole else cases.one_of_each_kind()
    config = AgentEngineConfig(timeout_seconds=_TIMEOUT_S, max_tokens=_MAX_TOKENS)
    count = len(chosen.messages)
    console.print(f"{count} messages to the task assistant, one after another ...", markup=False)
    async with client:
        return await evaluate(client, cases=chosen, config=config)


def _table(evaluation: Evaluation) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("message", "expected", "decided", "tools", "right", "safe", "seconds"):
        table.add_column(heading, overflow="fold")
    for row in evaluation.rows:
        right = _is_right(row)
        safe = {True: "yes", False: "NO", None: ""}[row.safe]
        table.add_row(
            literal(row.id),
            row.expected.value,
            "no answer" if row.failed else row.decided.value,
            literal(", ".join(row.tools)),
            "yes" if right else "no",
            safe,
            f"{row.seconds:.1f}",
            style="red" if row.failed else "" if right and row.safe else "yellow",
        )
    return table


def _is_right(row: Scored) -> bool:
    return row.decision and row.tool is not False and row.arguments is not False
