"""A large file of a known size from an HTTP server, continued where a connection broke.

The server is not trusted: what it sends is neither decompressed nor read beyond the file's size,
and one that is slower than a modem is given up. Whether the bytes are the right ones is for the
caller to see.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import BinaryIO

import httpx

from llmsim_lab._util.text import clip, printable
from llmsim_lab.errors import ModelFileError
from llmsim_lab.llm._access import without_password
from llmsim_lab.llm.wire_limits import bound, proxy_url, reading_head

_ANSWER_S = 20.0
"""Longest wait for an answer's head, redirects included."""
_SLOWEST_BYTES = 2**16
"""Within ``_SLOWEST_S``; a slower server is given up, and what it sent is kept."""
_SLOWEST_S = 30.0
_CONNECTIONS = 6
"""How many are made for one file, if each brings some of it."""


async def download(url: str, path: Path, size_bytes: int) -> None:
    """Fetch a file; what is at the path already is its beginning, and is not fetched again.

    Args:
        url: where the file is; redirects are followed, without secrets.
        path: where it is written; after a failure it has what came.
        size_bytes: of the whole file.

    Raises:
        ModelFileError: the server has no such file, or one of another size, or is too slow.
        httpx.TransportError: there is no connection, or it broke.
        TooMuchSentError: the server sent too much before its answer.
    """
    transport = httpx.AsyncHTTPTransport(proxy=proxy_url(url))
    # The file itself is counted as it comes.
    bound(transport, most_bytes=None)
    async with httpx.AsyncClient(
        transport=transport,
        follow_redirects=True,
        headers={"User-Agent": "llmsim-lab", "Accept-Encoding": "identity"},
    ) as client:
        with path.open("ab") as file:
            if file.tell() > size_bytes:
                _empty(file)
            for number in range(1, _CONNECTIONS + 1):
                begun_bytes = file.tell()
                if begun_bytes == size_bytes:
                    return
                try:
                    await _continued(client, url, file, size_bytes)
                except httpx.TransportError:
                    # A place that is out of reach is not asked again: there is another one.
                    if number == _CONNECTIONS or file.tell() == begun_bytes:
                        raise
                else:
                    return


async def _continued(
    client: httpx.AsyncClient,
    url: str,
    file: BinaryIO,
    size_bytes: int,
) -> None:
    """Fetch what a file lacks, over one connection."""
    begun_bytes = file.tell()
    request = client.build_request("GET", url)
    if begun_bytes:
        request.headers["Range"] = f"bytes={begun_bytes}-"
    try:
        with reading_head():
            async with asyncio.timeout(_ANSWER_S):
                response = await client.send(request, stream=True)
    except TimeoutError as error:
        raise ModelFileError(f"the server sent no answer in {_ANSWER_S:g} s") from error
    try:
        if not response.is_success:
            words = clip(printable(response.reason_phrase), 100)
            raise ModelFileError(
                f"{without_password(url)} is not there: the server says {response.status_code} "
                f"{words}"
            )
        part = response.headers.get("Content-Range", "")
        if response.status_code != 206 or not part.startswith(f"bytes {begun_bytes}-"):
            # The whole file: not every server can send a part.
            _empty(file)
        rest_bytes = size_bytes - file.tell()
        announced_bytes = int(response.headers.get("Content-Length", rest_bytes))
        if announced_bytes != rest_bytes:
            kind = clip(printable(response.headers.get("Content-Type", "no type")), 100)
            raise ModelFileError(
                f"the server sends {announced_bytes:,} bytes of {kind} where {rest_bytes:,} of "
                "weights should be"
            )
        await _write(response, file, size_bytes)
    finally:
        await response.aclose()


async def _write(
    response: httpx.Response,
    file: BinaryIO,
    size_bytes: int,
) -> None:
    """Write an answer's body to the file's end, and how far it has come to standard error."""
    name = Path(file.name).name
    clock = asyncio.get_running_loop().time
    due_bytes = file.tell() + _SLOWEST_BYTES
    shown_pct = -1
    try:
        async with asyncio.timeout(_SLOWEST_S) as limit:
            async for piece in response.aiter_raw():
                if file.tell() + len(piece) > size_bytes:
                    _empty(file)
                    raise ModelFileError(
                        f"the server sends more than the {size_bytes:,} bytes of the weights"
                    )
                file.write(piece)
                if file.tell() >= due_bytes:
                    due_bytes = file.tell() + _SLOWEST_BYTES
                    limit.reschedule(clock() + _SLOWEST_S)
                pct = file.tell() * 100 // size_bytes
                if pct > shown_pct:
                    sys.stderr.write(f"\rfetching {name}: {pct} %")
                    shown_pct = pct
    except TimeoutError as error:
        raise ModelFileError(
            f"the server sent less than {_SLOWEST_BYTES:,} bytes in {_SLOWEST_S:g} s; what came is "
            "kept"
        ) from error
    finally:
        sys.stderr.write("\n")


def _empty(file: BinaryIO) -> None:
    file.seek(0)
    file.truncate()
