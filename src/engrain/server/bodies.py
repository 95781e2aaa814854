"""Read bodies within bounds, and send files and streams."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import ExitStack, aclosing
from typing import IO, Any, BinaryIO, NamedTuple

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from engrain.server.answers import JSON_TYPE
from engrain.server.openapi import LOAD_TYPES
from engrain.server.problems import Problem

BODY_SECONDS = 30.0
LOAD_SECONDS = 600.0
CHUNK = 1 << 16
Headers = Mapping[str, str]


class Bounds(NamedTuple):
    """The most bytes of a body, and the seconds in which it must arrive."""

    size: int
    seconds: float


async def read_body(receive: Receive, headers: Headers, limit: int) -> bytes:
    """Return the body; Problem 413 as soon as it is known to be larger, 408 if it comes too slowly."""
    parts: list[bytes] = []

    async def keep(part: bytes) -> None:
        parts.append(part)

    await _receive_parts(receive, headers, Bounds(limit, BODY_SECONDS), keep)
    return b"".join(parts)


async def spool_body(receive: Receive, headers: Headers, limit: int) -> IO[bytes]:
    """Return the body as a temporary file, in memory while it is small."""
    file: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=1 << 20)  # noqa: SIM115  # the caller closes it

    async def keep(part: bytes) -> None:
        await asyncio.to_thread(file.write, part)

    try:
        await _receive_parts(receive, headers, Bounds(limit, LOAD_SECONDS), keep)
    except BaseException:
        file.close()
        raise
    return file


def check_json_type(headers: Headers) -> None:
    """Problem 415 for a body that does not say that it is JSON."""
    kind = headers.get("content-type", "")
    if kind != JSON_TYPE and (kind := _drop_parameters(kind)) != JSON_TYPE:
        raise Problem(415, f"the body must be application/json, not {kind or 'without a type'}.")


def check_load_type(headers: Headers) -> None:
    kind = _drop_parameters(headers.get("content-type", ""))
    if kind not in LOAD_TYPES:
        raise Problem(415, f"a file to load is one of {', '.join(LOAD_TYPES)}, not {kind or 'without a type'}.")


class StreamResponse(StreamingResponse):
    """A stream whose source is closed when the client goes away."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self.body_iterator):  # type: ignore[type-var]
            await super().__call__(scope, receive, send)


class FileResponse(StreamResponse):
    """A file that is removed when it was sent, or when the client goes away."""

    def __init__(self, file: BinaryIO, stack: ExitStack, **options: Any) -> None:
        super().__init__(_read_chunks(file, stack), **options)


async def _read_chunks(file: BinaryIO, stack: ExitStack) -> AsyncIterator[bytes]:
    with stack:
        while chunk := await asyncio.to_thread(file.read, CHUNK):
            yield chunk


async def _receive_parts(
    receive: Receive, headers: Headers, bounds: Bounds, keep: Callable[[bytes], Awaitable[object]]
) -> None:
    length = headers.get("content-length", "0")
    if length.isdigit() and int(length) > bounds.size:
        raise _too_large(bounds.size)
    total, more = 0, True
    try:
        async with asyncio.timeout(bounds.seconds):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Problem(400, "the client went away.")
                part, more = message.get("body", b""), message.get("more_body", False)
                total += len(part)
                if total > bounds.size:
                    raise _too_large(bounds.size)
                await keep(part)
    except TimeoutError as exc:
        raise Problem(408, f"the body did not arrive within {bounds.seconds:g} seconds.") from exc


def _too_large(limit: int) -> Problem:
    return Problem(413, f"the body has more than {limit:,} bytes, which is the most.", "TooLarge")


def _drop_parameters(kind: str) -> str:
    return kind.partition(";")[0].strip().lower()
