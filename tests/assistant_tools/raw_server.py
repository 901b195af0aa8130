"""An MCP server of an older protocol without any library, which misbehaves when asked to.

How it does is either a tool's name, or an option at its start.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

held: list[Any] = []
"""Calls whose answers are kept back until the next call."""
calls = itertools.count(1)


def write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def answer(number: Any, result: Any) -> None:
    write(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}))


def refuse(number: Any, code: int, message: str) -> None:
    error = {"code": code, "message": message}
    write(json.dumps({"jsonrpc": "2.0", "id": number, "error": error}))


def text(said: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}]}


def chatter() -> None:
    sys.stderr.write("nothing to see here\n" * 50_000 + "the very last words\n")
    sys.stderr.flush()


def noise() -> None:
    write("a library's banner")
    params = {"level": "info", "data": "a word by the way"}
    write(json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": params}))


def die() -> None:
    sys.stderr.write("I cannot go on\n")
    sys.stderr.flush()
    os._exit(3)


def stay() -> None:
    """Run on when the input ends and when told to end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=time.sleep, args=[600]).start()


BEFORE = {"chatter": chatter, "mute": lambda: os.close(1), "noise": noise, "die": die, "stay": stay}
"""What is done before a call is answered."""
RESULTS: dict[str, Any] = {
    "noise": text('{"good": true}'),
    "picture": {"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]},
}
UNANSWERED = ("hold", "mute", "refuse", "never")
OTHERS = ("count", "no_json", "spawn", "how_many_wait", "whoami")
TOOLS = [*dict.fromkeys([*BEFORE, *RESULTS, *UNANSWERED, *OTHERS])]


waiting: list[Any] = []
"""Calls that are never answered."""


def call(number: Any, tool: str, arguments: dict[str, Any]) -> None:
    while held:
        answer(held.pop(), text("an old answer"))
    if tool in BEFORE:
        BEFORE[tool]()
    if tool == "hold":
        held.append(number)
    elif tool == "never":
        waiting.append(number)
    elif tool == "refuse":
        refuse(number, -32602, "the arguments do not please")
    elif tool == "spawn":  # what holds the server's output open as long as it runs
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        answer(number, text(json.dumps([os.getpid(), child.pid])))
    elif tool == "count":
        answer(number, text(str(next(calls))))
    elif tool == "how_many_wait":
        answer(number, text(str(len(waiting))))
    elif tool == "whoami":
        answer(number, text(json.dumps(arguments["user_id"])))
    elif tool not in UNANSWERED:
        answer(number, RESULTS.get(tool, text("just a text")))


def tools_page() -> dict[str, Any]:
    tools: list[dict[str, Any]] = [
        {"name": name, "inputSchema": {"type": "object"}} for name in TOOLS
    ]
    tools[TOOLS.index("whoami")]["inputSchema"]["properties"] = {"user_id": {"type": "string"}}
    return {"tools": tools}


def reply(number: Any, method: str, params: Any) -> None:
    if method == "initialize":
        about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "raw", "version": "0"}}
        answer(number, {"protocolVersion": params["protocolVersion"], **about})
    elif method == "tools/list":
        if "--die-at-list" in sys.argv:
            raise SystemExit("no list of mine")
        answer(number, tools_page())
    elif method == "tools/call":
        call(number, params["name"], params.get("arguments") or {})
    else:
        refuse(number, -32601, "Method not found")


def main() -> None:
    if "--broken" in sys.argv:
        raise SystemExit("no database here")
    if "--silent" in sys.argv:
        sys.stdin.read()
    while "--when" in sys.argv and not Path(sys.argv[-1]).exists():
        time.sleep(0.01)
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("id") is not None:
            reply(message["id"], message.get("method"), message.get("params"))


if __name__ == "__main__":
    main()
