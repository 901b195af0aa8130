"""The tape: one file that is log, cache, checkpoint and teaching material.

``Tape`` opens the file, lists and compares its runs, and exports, imports and trims them;
``verify`` finds out whether anything was changed since it was recorded.
"""

from llmsim_lab.tape._tape import Tape
from llmsim_lab.tape._verify import verify

__all__ = ["Tape", "verify"]
