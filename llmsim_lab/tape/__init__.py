"""The tape: one text file that is log, cache, checkpoint and teaching material.

``Tape`` opens the file, lists and compares its runs, and prunes them; ``verify`` finds out whether
anything was changed since it was recorded, and ``repair`` writes a tape of what was not.
"""

from llmsim_lab.tape._tape import Tape
from llmsim_lab.tape._verify import Finding, digest, repair, verify
from llmsim_lab.tape.lines import RecordedCall, RunInfo

__all__ = ["Finding", "RecordedCall", "RunInfo", "Tape", "digest", "repair", "verify"]
