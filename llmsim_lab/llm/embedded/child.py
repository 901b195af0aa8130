"""The process that runs the model: started as a script, reads its settings from standard input.

It writes one line to standard output, the address where it is ready, and ends when its standard
input does, which is when its parent ends, for whatever reason. Only the standard library and the
runtime are imported here: a crash of native code ends this process and nothing else.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
from typing import NoReturn


def main() -> NoReturn:  # pragma: no cover - only ever runs in a process of its own
    """Load the model, serve it, and end with the parent."""
    model, num_ctx, threads, startup_s, api_key = json.loads(sys.stdin.readline())
    # Standard output is for the one line; what native code prints goes to standard error.
    out = os.fdopen(
        os.dup(1),
        "w",
        buffering=1,
        encoding="utf-8",
    )
    os.dup2(2, 1)
    sys.tracebacklimit = 0  # the parent shows the last lines, which are the runtime's own then
    faulthandler.dump_traceback_later(startup_s, exit=True)
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = model
    parameters.n_ctx = num_ctx
    # More slots gain nothing on the larger model, and only with one a seed repeats its reply.
    parameters.n_parallel = 1
    # Between batches the runtime checks whether the request was given up.
    parameters.n_batch = parameters.n_ubatch = 256
    parameters.cpuparams.n_threads = threads  # for batches too
    # Prompts that were read before; its own default is 8 GiB.
    parameters.cache_ram_mib = 512
    # It looks there only if the prompt before shares less of the new one than this. With its own
    # default of a tenth, a short question that begins as a long one does cost the long one's start.
    parameters.slot_prompt_similarity = 0.8
    parameters.fit_params = False  # else the runtime may change settings to fit into memory
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.api_keys = [api_key]
    parameters.ui = False
    parameters.verbosity = 2  # warnings and errors
    server = xllamacpp.Server(parameters)
    faulthandler.cancel_dump_traceback_later()
    out.write(f"{server.listening_address}\n")
    sys.stdin.read()  # returns when the parent has ended or closed it
    os._exit(0)  # a destructor would wait for a generation that is no longer wanted


if __name__ == "__main__":  # pragma: no cover - as main
    main()
