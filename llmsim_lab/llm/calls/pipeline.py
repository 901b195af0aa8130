"""The layers of a call, in their order."""

from __future__ import annotations

from llmsim_lab.llm._limits import Limits
from llmsim_lab.llm.calls.budgeted import Budgeted
from llmsim_lab.llm.calls.queued import Queued
from llmsim_lab.llm.calls.recorded import Recorded
from llmsim_lab.llm.calls.retried import Retried
from llmsim_lab.llm.calls.stood_in import StoodIn
from llmsim_lab.types import ChatBackend


def pipeline(
    backend: ChatBackend,
    backend_name: str,
    limits: Limits,
    advised: set[str] | None,
) -> Retried:
    """Return what a client's calls pass through.

    Args:
        backend: answers.
        backend_name: the class that the user made the backend of, for messages.
        limits: how many requests are under way at once.
        advised: the models that were said to need the form of a reply in words; None
            where that is not said.
    """
    # From the bottom up, since each takes the one below it.
    queued = Queued(backend, backend_name, limits)
    budgeted = Budgeted(queued)
    recorded = Recorded(budgeted)
    stood_in = StoodIn(recorded, backend)
    # On top, so that a second attempt is recorded, paid for and queued as the first was.
    return Retried(stood_in, advised)
