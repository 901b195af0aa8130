"""A Ctrl-C at any line of the tape's code loses nothing, repeats nothing and keeps no lock."""

from __future__ import annotations

from pathlib import Path

import pytest
from journal_kit import run_program


@pytest.mark.process
def test_a_ctrl_c_at_any_line_loses_and_repeats_nothing(tmp_path: Path) -> None:
    # In a process of its own: an error raised by a trace function may spoil CPython 3.11's parser.
    code = """
        from pathlib import Path
        from interrupt_kit import interrupt_a_plan, interrupt_often
        interrupt_a_plan(Path(sys.argv[1]) / "plan.tape")
        interrupt_often(Path(sys.argv[1]))
    """
    run_program(code, tmp_path)
