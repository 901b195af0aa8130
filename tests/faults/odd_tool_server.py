"""A tool server that speaks MCP by hand and has one fault, which its first argument names."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

MB = 2**20


def write(value: object) -> None:
    sys.stdout.write(f"{json.dumps(value)}\n")
    sys.stdout.flush()


def write_raw(text: str, times: int = 1) -> None:
    for _ in range(times):
        sys.stdout.write(text)
    sys.stdout.flush()


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"x": schema}}
    return schema


def branching(keyword: str, levels: int = 25) -> dict[str, Any]:
    """Return a schema in which each level is looked at twice by the one above."""
    schemas: dict[str, Any] = {f"d{levels}": {"type": "null"}}
    for level in range(levels):
        below = {"$ref": f"#/$defs/d{level + 1}"}
        schemas[f"d{level}"] = {keyword: [below, below]}
    return {"type": "object", "properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": schemas}


def of_x(schema: object) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": schema}}


SCHEMAS: dict[str, Any] = {
    "anyOf that branches": branching("anyOf"),
    "allOf that branches": branching("allOf"),
    "oneOf that branches": branching("oneOf"),
    "80 levels": nested(80),
    "450 levels": nested(450),
    "unique items": of_x({"type": "array", "uniqueItems": True}),
    "a pattern that backtracks": of_x({"type": "string", "pattern": "^(a+)+$"}),
    "a reference to itself": of_x({"$ref": "#/properties/x"}),
    "a reference to a file": of_x({"$ref": "file:///etc/passwd"}),
    "a reference to a server": of_x({"$ref": "http://127.0.0.1:9/schema"}),
    "1,400 alternatives": {
        "type": "object",
        "properties": {f"k{at}": {"then": {"unevaluatedItems": {}}} for at in range(1_400)},
    },
    "100,000 values": of_x({"enum": list(range(100_000))}),
    "100,000 arguments": {"type": "object", "properties": {f"k{at}": {} for at in range(100_000)}},
    "20,000 alternatives": of_x({"anyOf": [{"type": "array"}] * 20_000}),
    "200 wide tools": of_x({"anyOf": [{"type": "array"}] * 1_000}),
    "a schema that is none": {"type": 17, "properties": ["x"]},
    "a number that divides nothing": of_x({"type": "number", "multipleOf": 0}),
}
"""Of the tool's arguments."""
OUTPUTS: dict[str, Any] = {
    "a result's pattern that backtracks": of_x({"type": "string", "pattern": "^(a+)+$"}),
    "a result's schema that branches": branching("anyOf"),
    "a result's schema on a server": of_x({"$ref": "http://127.0.0.1:9/schema"}),
}
"""Schemas of the tool's result."""
NAMES = {
    "names": ["a\x1b[31m", "a\u202eb", "__proto__", "x" * 10_000, "", "a b", "f"],
    "100 equal names": ["f"] * 100,
    "20,000 tools": [f"f{number}" for number in range(20_000)] + ["f"],
    "200 wide tools": [f"f{number}" for number in range(200)] + ["f"],
}


def text(words: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}]}


def stay() -> dict[str, Any]:
    """Start a child that holds the output open and outlives its parent unless it is ended."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    return text(str(child.pid))


def without_end(line: object) -> Callable[[], dict[str, Any]]:
    """Return a call that says the same for ever."""

    def call() -> dict[str, Any]:
        while True:
            write_raw(f"{json.dumps(line)}\n", 1000)

    return call


def notice(method: str, **params: object) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params}


def request(method: str, **params: object) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}


SAID_WITHOUT_END: dict[str, object] = {
    "progress": notice("progress", progressToken=1, progress=0.5),
    "log messages": notice("message", level="info", data="x"),
    "changes of its list": notice("tools/list_changed"),
    "cancellations": notice("cancelled", requestId=1),
    "answers to nobody": {"jsonrpc": "2.0", "id": "nobody's", "result": {}},
    "pings": request("ping"),
    "questions for roots": request("roots/list"),
    "questions for a model": request("sampling/createMessage", messages=[], maxTokens=1),
    "questions for a user": request("elicitation/create", message="?", requestedSchema={}),
    "no JSON": "\x00{",
    "batches": [notice("message", level="info", data="x")] * 10,
}


def progress() -> dict[str, Any]:
    for step in range(2_400):
        write(notice("progress", progressToken=1, progress=step))
    return text("done")


def line_without_end() -> dict[str, Any]:
    while True:
        write_raw("x" * 100)


def errors_without_end() -> dict[str, Any]:
    while True:
        sys.stderr.write("x" * MB)


def garbage() -> dict[str, Any]:
    write_raw("\x00\xff{not JSON\n", 2000)
    write({"jsonrpc": "1.0", "id": None, "result": []})
    write({"jsonrpc": "2.0", "id": "nobody's", "result": {}})
    write([1, 2])
    return text("after garbage")


def large_line() -> dict[str, Any]:
    write_raw("x" * MB, 1000)
    return text("after a gigabyte")


def large_errors() -> dict[str, Any]:
    for _ in range(200):
        sys.stderr.write("x" * MB)
    return text("after its errors")


def silence() -> dict[str, Any]:
    time.sleep(600)
    return text("late")


def deep_text() -> dict[str, Any]:
    return text("[" * 100_000 + "]" * 100_000)


CALLS: dict[str, Callable[[], dict[str, Any]]] = {
    **dict.fromkeys(OUTPUTS, lambda: {**text(""), "structuredContent": {"x": "a" * 40 + "b"}}),
    "a child that stays": stay,
    "garbage": garbage,
    "a gigabyte in one line": large_line,
    "a line without end": line_without_end,
    "errors without end": errors_without_end,
    **{f"{name} without end": without_end(line) for name, line in SAID_WITHOUT_END.items()},
    "4 MB of lists": lambda: text(f"[{'[],' * MB}0]"),
    "16 MB of lists": lambda: {**text(""), "structuredContent": {"x": [[]] * 4 * MB}},
    "200 MB of errors": large_errors,
    "silence": silence,
    "a result of 200,000 levels": deep_text,
    "no result": lambda: {"content": 17},
    "2,400 steps of progress": progress,
    "a table as text": lambda: text(f"{'1,' * 12}\n" * 100_000),
    "a picture": lambda: text("x" * 15 * MB),
    "a result of 20 MB": lambda: text("x" * 20 * MB),
    "half a character": lambda: text("\ud800"),
    "a number beyond all": lambda: text("1e999"),
}
"""What happens when its tool is called."""
AT_START = [
    "no list",
    "a list without end",
    "pages without end",
    "a line without end at the start",
    "silence at the start",
    "an end at the start",
]
NEVER_START = [*AT_START, "450 levels"]
"""JSON is read up to 200 levels, of which a schema's property makes two."""
FAULTS = [*SCHEMAS, *NAMES, *CALLS, *AT_START]


def tools(fault: str) -> dict[str, Any]:
    schema = SCHEMAS.get(fault, {"type": "object"})
    names = NAMES.get(fault, ["f"])
    page: dict[str, Any] = {"tools": [{"name": name, "inputSchema": schema} for name in names]}
    if fault in OUTPUTS:
        page["tools"][0]["outputSchema"] = OUTPUTS[fault]
    if fault in ("a list without end", "pages without end"):
        page["nextCursor"] = "more"
    if fault == "pages without end":
        page["tools"] = []
    return page


def answer(fault: str, method: str, params: Any) -> dict[str, Any] | None:
    """Return the result of a request; None for a method that there is not."""
    if method == "initialize":
        about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "odd", "version": "0"}}
        return {"protocolVersion": params["protocolVersion"], **about}
    if method == "tools/list":
        return {} if fault == "no list" else tools(fault)
    if method == "tools/call":
        return CALLS.get(fault, lambda: text("done"))()
    return None


def main() -> None:
    fault = sys.argv[1]
    if fault == "silence at the start":
        time.sleep(600)
    if fault == "a line without end at the start":
        line_without_end()
    if fault == "an end at the start":
        raise SystemExit("no database here")
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("id") is not None:
            result = answer(fault, message["method"], message.get("params"))
            error = {"code": -32601, "message": "Method not found"}
            ending = {"error": error} if result is None else {"result": result}
            write({"jsonrpc": "2.0", "id": message["id"], **ending})


if __name__ == "__main__":
    main()
