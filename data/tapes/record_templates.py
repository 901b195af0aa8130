"""Record the tapes of the templates anew, with a real model: ``data/templates/*.tape``.

``python data/tapes/record_templates.py`` takes some minutes on two cores with the embedded model.
What the model says differs from one recording to the next. A tape names the code that it was
recorded with, so after any change of a template record its tape again: name it to record it alone.
Where nothing else is asked, ``--own-replies`` takes the replies of the old tape, and asks no model.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from own_replies import OwnReplies

from llmsim_lab import LLMClient, LLMConfig, connect
from llmsim_lab.llm import Tape
from llmsim_lab.run import Run

TEMPLATES = Path(__file__).parents[1] / "templates"
NAMES = sorted(path.stem for path in TEMPLATES.glob("*.py"))
TURNS = 3
SETTINGS = {
    # As in their card (``llmsim-lab people``), which plays a published design.
    "contributing": {"turns": 10, "rationale": False},
    "disjunction": {"turns": 1, "decide": "sample"},
    "framing": {"turns": 1, "decide": "sample"},
    "guessing": {"turns": 4, "rationale": False},
    "investing": {"turns": 1, "decide": "sample"},
    "splitting": {"turns": 1, "decide": "sample"},
}
MODEL = LLMConfig(seed=7, num_ctx=2048, max_tokens=160, timeout_s=600)


def record(name: str, client: LLMClient) -> None:
    """Play a template's world onto a new tape; an old one goes."""
    path = TEMPLATES / f"{name}.tape"
    path.unlink(missing_ok=True)
    [world] = [kind for kind in vars(importlib.import_module(name)).values() if _is_world(kind)]
    with Tape(path) as tape:
        settings = {"turns": TURNS, **SETTINGS.get(name, {})}
        run = world(llm_client=client, tape=tape, **settings)
        run.run()
        run.close()


def _is_world(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Run) and value is not Run


def main() -> None:
    """Record what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], help="all if none is named")
    parser.add_argument("--model", default="embedded:qwen2.5-coder-1.5b")
    parser.add_argument("--own-replies", action="store_true", help="of the tapes that are there")
    arguments = parser.parse_args()
    sys.path.insert(0, str(TEMPLATES))
    names = arguments.names or NAMES
    if arguments.own_replies:
        for name in names:
            importlib.import_module(name)
            replies = OwnReplies([TEMPLATES / f"{name}.tape"])
            record(name, replies.client())
            replies.check_all_used()
        return
    client = connect(arguments.model, config=MODEL, download=True)
    for name in names:
        record(name, client)


if __name__ == "__main__":
    main()
