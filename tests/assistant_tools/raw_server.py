"""An MCP server of an older protocol without any library, which writes garbage when asked to."""

from __future__ import annotations

import json
import sys
from typing import Any

TOOLS = ["garbage", "noise", "nonsense", "wrong_schema", "no_json", "picture", "grow"]


def write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def answer(number: Any, result: Any) -> None:
    write(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}))


def text(said: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}]}


def call(number: Any, tool: str) -> None:
    if tool == "garbage":
        write("Segmentation fault (core dumped)")
        write("\u202e{not json")
    elif tool == "noise":
        write("a library's banner")
        answer(number, text('{"good": true}'))
    elif tool == "nonsense":
        answer(number, {"content": 17})
    elif tool == "wrong_schema":
        answer(number, {**text("seven"), "structuredContent": {"number": "seven"}})
    elif tool == "picture":
        answer(number, {"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]})
    elif tool == "grow":
        TOOLS.append("late")
        write(json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))
        answer(number, text("grown"))
    else:
        answer(number, text("just a text"))


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        number, method = message.get("id"), message.get("method")
        if number is None:
            continue
        if method == "initialize":
            version = message["params"]["protocolVersion"]
            about = {"name": "raw", "version": "0"}
            answer(
                number,
                {
                    "protocolVersion": version,
                    "capabilities": {"tools": {}},
                    "serverInfo": about,
                },
            )
        elif method == "tools/list":
            tools: list[dict[str, Any]] = [
                {"name": name, "inputSchema": {"type": "object"}} for name in TOOLS
            ]
            tools[3]["outputSchema"] = {
                "type": "object",
                "properties": {"number": {"type": "integer"}},
            }
            answer(number, {"tools": tools})
        elif method == "tools/call":
            call(number, message["params"]["name"])
        else:
            error = {"code": -32601, "message": "Method not found"}
            write(json.dumps({"jsonrpc": "2.0", "id": number, "error": error}))


if __name__ == "__main__":
    main()
