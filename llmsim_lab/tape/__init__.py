"""The tape: one text file that is log, cache, checkpoint and teaching material.

``Tape`` opens the file, lists and compares its runs, and prunes them; ``verify`` finds out whether
anything was changed since it was recorded.
"""

from llmsim_lab.tape._changes import TextTree, edited_prompts, shared_start
from llmsim_lab.tape._lines import RecordedCall, RunInfo, Verb, call_numbers
from llmsim_lab.tape._recorder import LiveRecorder, ReplayRecorder
from llmsim_lab.tape._tape import Tape, parting
from llmsim_lab.tape._verify import Finding, digest, repair, replayable, verify

__all__ = [
    "Finding",
    "LiveRecorder",
    "RecordedCall",
    "ReplayRecorder",
    "RunInfo",
    "Tape",
    "TextTree",
    "Verb",
    "call_numbers",
    "digest",
    "edited_prompts",
    "parting",
    "repair",
    "replayable",
    "shared_start",
    "verify",
]
