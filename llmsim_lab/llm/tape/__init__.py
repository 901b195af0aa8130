"""Recording runs: the tape, and what writes to it and answers from it."""

from llmsim_lab.llm.tape.info import RunInfo, Verb
from llmsim_lab.llm.tape.rows import RecordedCall
from llmsim_lab.llm.tape.run_recorder import LiveRecorder, ReplayRecorder
from llmsim_lab.llm.tape.tape import Tape
from llmsim_lab.llm.tape.tree import RunTree
from llmsim_lab.llm.tape.verify import Finding, verify

__all__ = [
    "Finding",
    "LiveRecorder",
    "RecordedCall",
    "ReplayRecorder",
    "RunInfo",
    "RunTree",
    "Tape",
    "Verb",
    "verify",
]
