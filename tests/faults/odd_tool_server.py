"""A tool server that speaks MCP by hand and has one fault, which its first argument names."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Never

__all__ = ["FAULTS", "SAID_WITHOUT_END", "Fault", "reply_to"]

MB = 2**20
Object = dict[str, Any]
"""Of JSON."""


def write(value: object) -> None:
    sys.stdout.write(f"{json.dumps(value)}\n")
    sys.stdout.flush()


def write_raw(text: str, times: int = 1) -> None:
    for _ in range(times):
        sys.stdout.write(text)
    sys.stdout.flush()


# --- schemas --------------------------------------------------------------------------------------


def nested(levels: int) -> Object:
    schema: Object = {"type": "integer"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"x": schema}}
    return schema


def branching(keyword: str, levels: int = 25) -> Object:
    """Return a schema in which each level is looked at twice by the one above."""
    schemas: Object = {f"d{levels}": {"type": "null"}}
    for level in range(levels):
        below = {"$ref": f"#/$defs/d{level + 1}"}
        schemas[f"d{level}"] = {keyword: [below, below]}
    return {"type": "object", "properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": schemas}


def of_x(schema: object) -> Object:
    return {"type": "object", "properties": {"x": schema}}


# --- what happens when its tool is called ---------------------------------------------------------


def text(words: str) -> Object:
    return {"content": [{"type": "text", "text": words}]}


def structured(x: object) -> Object:
    return {**text(""), "structuredContent": {"x": x}}


def long_structure() -> Object:
    return structured("a" * 40 + "b")


def stay() -> Object:
    """Start a child that holds the output open and outlives its parent unless it is ended."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    return text(str(child.pid))


def without_end(line: object) -> Callable[[], Never]:
    """Return a call that says the same for ever."""

    def call() -> Never:
        while True:
            write_raw(f"{json.dumps(line)}\n", 1000)

    return call


def notice(method: str, **params: object) -> Object:
    return {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params}


def request(method: str, **params: object) -> Object:
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


def progress() -> Object:
    for step in range(2_400):
        write(notice("progress", progressToken=1, progress=step))
    return text("done")


def line_without_end() -> Never:
    while True:
        write_raw("x" * 100)


def errors_without_end() -> Never:
    while True:
        sys.stderr.write("x" * MB)


def garbage() -> Object:
    write_raw("\x00\xff{not JSON\n", 2000)
    write({"jsonrpc": "1.0", "id": None, "result": []})
    write({"jsonrpc": "2.0", "id": "nobody's", "result": {}})
    write([1, 2])
    return text("after garbage")


def large_line() -> Object:
    write_raw("x" * MB, 1000)
    return text("after a gigabyte")


def large_errors() -> Object:
    for _ in range(200):
        sys.stderr.write("x" * MB)
    return text("after its errors")


def silence() -> Object:
    time.sleep(600)
    return text("late")


def leave() -> Never:
    raise SystemExit("no database here")


# --- the table ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What is odd about a tool server; by default nothing is.

    Attributes:
        names: of its tools.
        schema: of their arguments.
        output: the schema of the first one's result.
        call: returns what a tool returns, or never ends.
        cursor: says that its list of tools has more pages, all alike.
        has_list: whether it knows its tools.
        begin: comes before it reads anything.
        starts: whether a client ever gets a list of its tools.
    """

    names: Sequence[str] = ("f",)
    schema: object = field(default_factory=lambda: {"type": "object"})
    output: object = None
    call: Callable[[], Object] = lambda: text("done")
    cursor: str | None = None
    has_list: bool = True
    begin: Callable[[], object] = lambda: None
    starts: bool = True


FAULTS: dict[str, Fault] = {
    # schemas of its tool's arguments
    "anyOf that branches": Fault(schema=branching("anyOf")),
    "allOf that branches": Fault(schema=branching("allOf")),
    "oneOf that branches": Fault(schema=branching("oneOf")),
    "80 levels": Fault(schema=nested(80)),
    # JSON is read up to 200 levels, of which a schema's property makes two.
    "450 levels": Fault(schema=nested(450), starts=False),
    "unique items": Fault(schema=of_x({"type": "array", "uniqueItems": True})),
    "a pattern that backtracks": Fault(schema=of_x({"type": "string", "pattern": "^(a+)+$"})),
    "a reference to itself": Fault(schema=of_x({"$ref": "#/properties/x"})),
    "a reference to a file": Fault(schema=of_x({"$ref": "file:///etc/passwd"})),
    "a reference to a server": Fault(schema=of_x({"$ref": "http://127.0.0.1:9/schema"})),
    "1,400 alternatives": Fault(
        schema={
            "type": "object",
            "properties": {f"k{at}": {"then": {"unevaluatedItems": {}}} for at in range(1_400)},
        }
    ),
    "100,000 values": Fault(schema=of_x({"enum": list(range(100_000))})),
    "100,000 arguments": Fault(
        schema={"type": "object", "properties": {f"k{at}": {} for at in range(100_000)}}
    ),
    "20,000 alternatives": Fault(schema=of_x({"anyOf": [{"type": "array"}] * 20_000})),
    "200 wide tools": Fault(
        schema=of_x({"anyOf": [{"type": "array"}] * 1_000}),
        names=[*(f"f{number}" for number in range(200)), "f"],
    ),
    "a schema that is none": Fault(schema={"type": 17, "properties": ["x"]}),
    "a number that divides nothing": Fault(schema=of_x({"type": "number", "multipleOf": 0})),
    # names of its tools
    "names": Fault(names=["a\x1b[31m", "a\u202eb", "__proto__", "x" * 10_000, "", "a b", "f"]),
    "100 equal names": Fault(names=["f"] * 100),
    "20,000 tools": Fault(names=[*(f"f{number}" for number in range(20_000)), "f"]),
    # schemas of its tool's result
    "a result's pattern that backtracks": Fault(
        output=of_x({"type": "string", "pattern": "^(a+)+$"}), call=long_structure
    ),
    "a result's schema that branches": Fault(output=branching("anyOf"), call=long_structure),
    "a result's schema on a server": Fault(
        output=of_x({"$ref": "http://127.0.0.1:9/schema"}), call=long_structure
    ),
    # calls of its tool
    "a child that stays": Fault(call=stay),
    "garbage": Fault(call=garbage),
    "a gigabyte in one line": Fault(call=large_line),
    "a line without end": Fault(call=line_without_end),
    "errors without end": Fault(call=errors_without_end),
    **{
        f"{name} without end": Fault(call=without_end(line))
        for name, line in SAID_WITHOUT_END.items()
    },
    "4 MB of lists": Fault(call=lambda: text(f"[{'[],' * MB}0]")),
    "16 MB of lists": Fault(call=lambda: structured([[]] * 4 * MB)),
    "200 MB of errors": Fault(call=large_errors),
    "silence": Fault(call=silence),
    "a result of 200,000 levels": Fault(call=lambda: text("[" * 100_000 + "]" * 100_000)),
    "no result": Fault(call=lambda: {"content": 17}),
    "2,400 steps of progress": Fault(call=progress),
    "a table as text": Fault(call=lambda: text(f"{'1,' * 12}\n" * 100_000)),
    "a picture": Fault(call=lambda: text("x" * 15 * MB)),
    "a result of 20 MB": Fault(call=lambda: text("x" * 20 * MB)),
    "half a character": Fault(call=lambda: text("\ud800")),
    "a number beyond all": Fault(call=lambda: text("1e999")),
    # before its tool can be called
    "no list": Fault(has_list=False, starts=False),
    "a list without end": Fault(cursor="more", starts=False),
    "pages without end": Fault(names=[], cursor="more", starts=False),
    "a line without end at the start": Fault(begin=line_without_end, starts=False),
    "silence at the start": Fault(begin=silence, starts=False),
    "an end at the start": Fault(begin=leave, starts=False),
}


# --- the server -----------------------------------------------------------------------------------


def tools(fault: Fault) -> Object:
    """Return a page of the list of tools."""
    page: Object = {"tools": [{"name": name, "inputSchema": fault.schema} for name in fault.names]}
    if fault.output is not None:
        page["tools"][0]["outputSchema"] = fault.output
    if fault.cursor is not None:
        page["nextCursor"] = fault.cursor
    return page


def reply_to(message: Object, fault: Fault) -> Object:
    """Return the answer to a request."""
    reply: Object = {"jsonrpc": "2.0", "id": message["id"]}
    match message["method"]:
        case "initialize":
            reply["result"] = {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "odd", "version": "0"},
            }
        case "tools/list":
            reply["result"] = tools(fault) if fault.has_list else {}
        case "tools/call":
            reply["result"] = fault.call()
        case _:
            reply["error"] = {"code": -32601, "message": "Method not found"}
    return reply


def main() -> None:
    fault = FAULTS[sys.argv[1]]
    fault.begin()
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("id") is not None:
            write(reply_to(message, fault))


if __name__ == "__main__":
    main()
