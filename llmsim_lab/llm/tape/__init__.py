"""Recording runs: the tape, and what writes to it and answers from it."""

from llmsim_lab.llm.tape.changes import Changes
from llmsim_lab.llm.tape.codec import RecordedCall, RunInfo, Verb
from llmsim_lab.llm.tape.recorder import LiveRecorder, ReplayRecorder
from llmsim_lab.llm.tape.tape import Tape
from llmsim_lab.llm.tape.tree import RunTree
from llmsim_lab.llm.tape.verify import Finding, verify

__all__ = [
    "Changes",
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
