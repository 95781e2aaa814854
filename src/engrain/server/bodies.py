"""Read bodies within bounds, and send files and streams."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack, aclosing
from typing import IO, Any, BinaryIO

from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from engrain.server.openapi import LOAD_TYPES
from engrain.server.problems import Problem

BODY_SECONDS = 30.0
LOAD_SECONDS = 600.0
CHUNK = 1 << 16


async def read_body(request: Request, limit: int) -> bytes:
    """Return the body; Problem 413 as soon as it is known to be larger, 408 if it comes too slowly."""
    parts: list[bytes] = []
    async for part in _receive(request, limit, BODY_SECONDS):
        parts.append(part)
    return b"".join(parts)


async def spool_body(request: Request, limit: int) -> IO[bytes]:
    """Return the body as a temporary file, in memory while it is small."""
    file: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=1 << 20)  # noqa: SIM115  # the caller closes it
    try:
        async for part in _receive(request, limit, LOAD_SECONDS):
            await asyncio.to_thread(file.write, part)
    except BaseException:
        file.close()
        raise
    return file


def check_json_type(request: Request, body: bytes) -> None:
    """Problem 415 for a body that does not say that it is JSON."""
    kind = _read_type(request)
    if body and kind != "application/json":
        raise Problem(415, f"the body must be application/json, not {kind or 'without a type'}.")


def check_load_type(request: Request) -> None:
    kind = _read_type(request)
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


async def _receive(request: Request, limit: int, seconds: float) -> AsyncIterator[bytes]:
    length = request.headers.get("content-length", "0")
    if length.isdigit() and int(length) > limit:
        raise _too_large(limit)
    total = 0
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                total += len(part)
                if total > limit:
                    raise _too_large(limit)
                yield part
    except TimeoutError as exc:
        raise Problem(408, f"the body did not arrive within {seconds:g} seconds.") from exc
    except ClientDisconnect as exc:
        raise Problem(400, "the client went away.") from exc


def _too_large(limit: int) -> Problem:
    return Problem(413, f"the body has more than {limit:,} bytes, which is the most.", "TooLarge")


def _read_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()
