"""Fetch a model's official file over HTTP, going on where an earlier attempt stopped."""

from __future__ import annotations

import re

import httpx

from llmsim_lab.errors import ModelFileError
from llmsim_lab.llm.embedded.partial import PartialFile

__all__ = ["fetch_official"]

_TIMEOUT = httpx.Timeout(30.0, connect=3.0)
_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


def fetch_official(partial: PartialFile) -> None:
    """Append the bytes that are missing.

    A connection that breaks is taken up again as long as each one brings something.

    Raises:
        ModelFileError: the source cannot be reached or does not have the file.
    """
    partial.check_space()
    with httpx.Client(timeout=_TIMEOUT, follow_redirects=True) as client:
        while partial.missing:
            before = partial.size
            try:
                _fetch_rest(client, partial)
            except httpx.HTTPError as error:
                if partial.size > before:
                    continue
                raise ModelFileError(
                    f"{_host(partial)} cannot be reached: {str(error) or type(error).__name__}"
                ) from error
            if partial.missing and partial.size <= before:
                raise ModelFileError(
                    f"{_host(partial)} sends no more after {partial.size:,} of "
                    f"{partial.model.size_bytes:,} bytes"
                )


def _fetch_rest(client: httpx.Client, partial: PartialFile) -> None:
    headers = {"Accept-Encoding": "identity"}
    if partial.size:
        headers["Range"] = f"bytes={partial.size}-"
    with client.stream("GET", partial.model.url, headers=headers) as response:
        if response.status_code not in (200, 206):
            raise ModelFileError(
                f"{_host(partial)} answers {response.status_code} {response.reason_phrase} to "
                f"{partial.model.url}"
            )
        if partial.size and not _goes_on_at(response, partial.size):
            partial.restart()
        for chunk in response.iter_bytes():
            partial.write(chunk)


def _goes_on_at(response: httpx.Response, size: int) -> bool:
    """Say whether the response begins where the file ends; a plain 200 begins at the beginning."""
    if response.status_code == 200:
        return False
    found = _CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
    if not found or int(found[1]) != size:
        raise ModelFileError(
            f"{response.url.host} was asked for the bytes from {size:,} on and sent "
            f"{response.headers.get('Content-Range', 'something else')!r}"
        )
    return True


def _host(partial: PartialFile) -> str:
    return httpx.URL(partial.model.url).host
