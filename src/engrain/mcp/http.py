"""The streamable HTTP transport behind keys, as an ASGI application."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from engrain.core.http_routes import RIGHTS
from engrain.mcp.memories import READ_ONLY_RIGHTS, HttpCall, KeyedMemories, StoreLoader
from engrain.mcp.server import MemoryServer
from engrain.server.access import Access, refuse_other_origin
from engrain.server.answers import JSON_TYPE, to_json
from engrain.server.app import UNKNOWN_ROUTE, Trace, log_access
from engrain.server.limits import Limiter
from engrain.server.problems import PROBLEM_TYPE, Problem

PATH, HEALTH_PATH = "/mcp", "/healthz"
MAX_BODY = 8 << 20
CALL_KEY = "engrain.call"


class McpApi:
    """The streamable HTTP transport behind keys: each request is answered from the memory of its key.

    No request depends on an earlier one, so that a restart of the server ends no agent's session.
    """

    def __init__(self, loader: StoreLoader, access: Access, tools: Collection[str], read_only: bool = False) -> None:
        self.draining = asyncio.Event()
        self._access = access
        self._limiter = Limiter()
        self._memories = KeyedMemories(loader, self._limiter, READ_ONLY_RIGHTS if read_only else RIGHTS)
        server = MemoryServer(self._memories, tools, middleware=[self._set_caller])
        # Hosts and origins are checked here, with the rules of `engrain serve`.
        self._transport = server.streamable_http_app(
            streamable_http_path=PATH, json_response=True, stateless_http=True, max_request_body_size=MAX_BODY,
            host="",
        )  # fmt: skip

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._transport(scope, receive, send)
            return
        # Some parsers leave white space around a value, which is not part of it (RFC 9110, 5.5).
        scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        trace = Trace(scope["path"] if scope["path"] in (PATH, HEALTH_PATH) else UNKNOWN_ROUTE)
        status = 0

        async def send_and_note(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            if scope["path"] == HEALTH_PATH:
                await Response(to_json({"status": "alive"}), media_type=JSON_TYPE)(scope, receive, send_and_note)
            else:
                await self._answer(scope, receive, send_and_note, trace)
        finally:
            log_access(scope["method"], trace, status)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, trace: Trace) -> None:
        try:
            request = Request(scope)
            refuse_other_origin(request.headers)
            caller, limits = self._access.identify(request.headers)
            trace.key = caller.key or "-"
            if "read" not in caller.rights:
                raise Problem(403, "a key for MCP needs the right 'read'.")
            with self._limiter.admit(caller.key, limits):
                scope[CALL_KEY] = HttpCall(caller, limits)
                await self._transport(scope, receive, send)
        except Problem as problem:
            body, headers = to_json(problem.to_document()), dict(problem.headers)
            await Response(body, problem.status, headers, PROBLEM_TYPE)(scope, receive, send)

    def close(self, seconds: float) -> bool:
        """Wait for nothing: a verb that outlives the drain is one transaction, which happens or does not."""
        return True

    async def _set_caller(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Name the caller of a message to its handler."""
        if isinstance(ctx.request, Request):
            self._memories.current.set(ctx.request.scope[CALL_KEY])
        return await call_next(ctx)
