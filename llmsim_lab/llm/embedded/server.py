"""One running model per file and process, whoever uses it: started, watched, ended.

Backends of any thread and event loop share it. It starts when first needed, again when it has
died, and ends with the last backend that uses it, or with this process.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from llmsim_lab.errors import ConfigError
from llmsim_lab.llm.embedded.catalogue import CATALOGUE
from llmsim_lab.llm.embedded.gate import Gate
from llmsim_lab.llm.embedded.gguf import read_header
from llmsim_lab.llm.embedded.machine import check_memory, check_processor
from llmsim_lab.llm.embedded.process import ChildProcess, ChildSettings
from llmsim_lab.logs import log_event

__all__ = ["ModelServer", "lease", "memory_needed_bytes", "release"]

logger = logging.getLogger(__name__)

_MEASURED_NUM_CTX = 4096
_RUNTIME_BYTES = 150_000_000


class ModelServer:
    """A model's child process, if it runs, and what is known of it.

    Attributes:
        gate: whoever talks to the child holds it.
        understood: shapes of schemas that the child's runtime was seen to understand.
        suspect_since: when a request was given up of which it is open whether the child noticed,
            by ``time.monotonic``; None if there is none.
    """

    def __init__(self, settings: ChildSettings, *, command: Sequence[str] | None = None) -> None:
        self.settings = settings
        self.gate = Gate()
        self.understood: set[str] = set()
        self.suspect_since: float | None = None
        self._command = command
        self._lock = threading.Lock()
        self._child: ChildProcess | None = None
        self._closed = False

    def running(self, num_ctx: int) -> ChildProcess | None:
        """Return the child if it runs and its context window is large enough."""
        child = self._child
        if child is not None and child.alive and child.settings.num_ctx >= num_ctx:
            return child
        return None

    def start(self, num_ctx: int) -> ChildProcess:
        """Return a child with a context window that large; blocks while it starts.

        Raises:
            ConfigError: the runtime is missing or does not run here, or the model was not trained
                for such a window.
            ModelFileError: the file is not a model, or does not fit into memory.
            BackendError: it was not ready in time.
        """
        with self._lock:
            child = self.running(num_ctx)
            if child is not None:
                return child
            num_ctx = max(num_ctx, self.settings.num_ctx)
            path = self.settings.model
            trained = read_header(path).context_length
            if trained is not None and num_ctx > trained:
                raise ConfigError(
                    f"num_ctx={num_ctx} but {path.name} was trained for at most {trained} tokens "
                    f"of context; take num_ctx={trained} or a model with a longer one"
                )
            check_processor()
            self._end_child(num_ctx)
            check_memory(memory_needed_bytes(path, num_ctx), model=path.name)
            self.settings = replace(self.settings, num_ctx=num_ctx)
            self.suspect_since = None
            self._child = child = ChildProcess(self.settings, command=self._command)
            log_event(
                logger,
                logging.INFO,
                "EMBEDDED_READY",
                model=path.name,
                pid=child.pid,
                num_ctx=num_ctx,
                threads=self.settings.threads,
                seconds=round(child.load_seconds, 2),
            )
            if self._closed:  # while it was starting, the last user left
                self._end_child(num_ctx)
            return child

    def discard(self, child: ChildProcess, cause: str) -> None:
        """End a child that does not answer any more."""
        with self._lock:
            if child is self._child:
                self._child = None
            child.stop()
        self.suspect_since = None
        log_event(
            logger,
            logging.WARNING,
            "EMBEDDED_ENDED",
            model=self.settings.model.name,
            pid=child.pid,
            cause=cause,
            then="the next request starts it again",
        )

    def stop(self) -> None:
        """End the child for good."""
        self._closed = True
        with self._lock:
            child, self._child = self._child, None
            if child is not None:
                child.stop()

    def _end_child(self, num_ctx: int) -> None:
        """End a child that is dead or too small."""
        child, self._child = self._child, None
        if child is None:
            return
        if child.alive:
            log_event(
                logger,
                logging.INFO,
                "EMBEDDED_RELOAD",
                model=self.settings.model.name,
                num_ctx=child.settings.num_ctx,
                wanted=num_ctx,
            )
        else:
            log_event(
                logger,
                logging.WARNING,
                "EMBEDDED_ENDED",
                model=self.settings.model.name,
                pid=child.pid,
                cause=child.ending(),
                then="starting it again",
            )
        child.stop()


def memory_needed_bytes(path: Path, num_ctx: int) -> int:
    """Estimate what a model takes: measured for those of the catalogue, else from its file."""
    per_token = read_header(path).cache_bytes_per_token or 0
    for model in CATALOGUE:
        if path.name == model.file_name:
            more = max(0, num_ctx - _MEASURED_NUM_CTX) * per_token
            return model.memory_bytes + more
    return int(path.stat().st_size * 1.1) + num_ctx * per_token + _RUNTIME_BYTES


@dataclass(slots=True)
class _Entry:
    server: ModelServer
    users: int = 0


_entries: dict[Path, _Entry] = {}
_entries_lock = threading.Lock()
_owner = 0


def lease(settings: ChildSettings, *, command: Sequence[str] | None = None) -> ModelServer:
    """Return the server of a model, made by its first user with that one's settings.

    Args:
        settings: a later user's larger ``num_ctx`` is heeded, another number of threads is not.
        command: runs instead of our child; for tests.
    """
    global _owner
    with _entries_lock:
        if _owner != os.getpid():
            _entries.clear()  # children of the process that we were forked from are not ours
            _owner = os.getpid()
            atexit.register(_stop_all, _owner)
        entry = _entries.get(settings.model)
        if entry is None:
            entry = _entries[settings.model] = _Entry(ModelServer(settings, command=command))
        elif entry.server.settings.threads != settings.threads:
            log_event(
                logger,
                logging.WARNING,
                "EMBEDDED_THREADS",
                model=settings.model.name,
                asked=settings.threads,
                using=entry.server.settings.threads,
                why="the model is in use with that number",
            )
        entry.users += 1
        return entry.server


def release(server: ModelServer) -> None:
    """Let go of a server; the last user's going ends it."""
    with _entries_lock:
        entry = _entries.get(server.settings.model)
        if entry is None or entry.server is not server:
            return
        entry.users -= 1
        if entry.users > 0:
            return
        del _entries[server.settings.model]
    server.stop()


def _stop_all(owner: int) -> None:
    if owner != os.getpid():
        return
    for entry in list(_entries.values()):
        entry.server.stop()
