"""The HTTP API as an ASGI application over one opened store."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from engrain.core.errors import EngrainError, LeaseLost
from engrain.core.http_routes import EXPORT_HEADER, IDEMPOTENCY_HEADER, VIEW_HEADER
from engrain.core.identity import Scope
from engrain.core.validation import to_plain
from engrain.ingest.write import capture_error
from engrain.memory.store import Store
from engrain.server.access import Access, check_rights, decode_header, refuse_other_origin
from engrain.server.answers import JSON_TYPE, encode_answer, to_json
from engrain.server.bodies import (
    FileResponse,
    Headers,
    StreamResponse,
    check_json_type,
    check_load_type,
    read_body,
    spool_body,
)
from engrain.server.events import EVENTS_TYPE, EventStreams
from engrain.server.json_body import parse_json_body
from engrain.server.key_trust import bound_voice
from engrain.server.keys import KeyLimits
from engrain.server.limits import Limiter
from engrain.server.metrics import METRICS_TYPE, Metrics
from engrain.server.models import parse_query, validate
from engrain.server.openapi import EXPORT_TYPES, build_openapi
from engrain.server.problems import PROBLEM_TYPE, Problem, to_problem
from engrain.server.router import Endpoint, Router, build_endpoints
from engrain.server.serve import answer_lifespan
from engrain.server.thread_pool import DEFAULT_QUEUE, DEFAULT_THREADS, HEAVY_QUEUE, HEAVY_THREADS, Batches, VerbPool
from engrain.server.verbs import Caller, Target, export_to_file
from engrain.server.views import Views
from engrain.tiers.semantic import RememberCall, remember_each

DEFAULT_MAX_BODY = 8 << 20
DEFAULT_MAX_LOAD = 256 << 20
MAX_HEADER_CHARACTERS = 512
UNKNOWN_ROUTE = "(none)"
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
_HEADERS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_CUT_OFF = "the server stopped before the answer: repeat a write with the same Idempotency-Key."
Query = list[tuple[str, str]]  # of a URL
_log = logging.getLogger("engrain")
_access_log = logging.getLogger("engrain.access")


@dataclass(frozen=True)
class ApiOptions:
    """Bounds of the server: bytes of a body and of a loaded file, threads, and waiting requests."""

    max_body: int = DEFAULT_MAX_BODY
    max_load: int = DEFAULT_MAX_LOAD
    threads: int = DEFAULT_THREADS
    queue: int = DEFAULT_QUEUE


@dataclass
class Call:
    """One request for a verb, as far as it is known before its body is read."""

    endpoint: Endpoint
    path: Mapping[str, str]
    caller: Caller
    limits: KeyLimits
    view: str = ""
    request_id: str | None = None


@dataclass
class Trace:
    """Parts of a request that the access log and the metrics show: nothing of its content."""

    route: str = UNKNOWN_ROUTE
    key: str = "-"
    began: float = field(default_factory=time.perf_counter)


class HttpApi:
    """Answer requests with the verbs of one store."""

    def __init__(self, store: Store, access: Access, options: ApiOptions | None = None) -> None:
        self.options = options or ApiOptions()
        self.draining = asyncio.Event()
        self.metrics = Metrics()
        self.pool = VerbPool(self.options.threads, self.options.queue)
        self.heavy_pool = VerbPool(HEAVY_THREADS, HEAVY_QUEUE)
        self._remembering = Batches(self.pool, self._remember_each)
        self.streams = EventStreams(store, self.pool, self.draining)
        self._store = store
        self._access = access
        self._views = Views(store)
        self._limiter = Limiter()
        self._router = Router(build_endpoints())
        self._own_pages: Mapping[str, Callable[[Request], Any]] = {
            "/healthz": self._answer_health,
            "/readyz": self._answer_readiness,
            "/metrics": self._answer_metrics,
            "/openapi.json": self._answer_openapi,
        }

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await answer_lifespan(receive, send)
        elif scope["type"] == "http":
            await self._answer(Request(scope, receive), scope, receive, send)

    def close(self, seconds: float) -> bool:
        """Wait this long for running verbs, and start no other. False if some are still running."""
        end = time.monotonic() + seconds
        for pool in (self.pool, self.heavy_pool):
            pool.close()
            pool.wait(end - time.monotonic())
        return not (self.pool.running or self.heavy_pool.running)

    async def _answer(self, request: Request, scope: AsgiScope, receive: Receive, send: Send) -> None:
        trace = Trace()
        response = await self._make_response(request, trace)
        response.raw_headers.extend(_HEADERS)
        try:
            await response(scope, receive, send)
        finally:
            seconds = time.perf_counter() - trace.began
            method = request.method if request.method in _METHODS else "other"
            self.metrics.count(method, trace.route, response.status_code, seconds)
            log_access(request.method, trace, response.status_code)

    async def _make_response(self, request: Request, trace: Trace) -> Response:
        """Return the answer to a request; every error becomes a problem document."""
        try:
            return await self._dispatch(request, trace)
        except Problem as problem:
            return _make_problem_response(problem)
        except (EngrainError, LeaseLost) as exc:
            return _make_problem_response(to_problem(exc))
        except asyncio.CancelledError:
            if not self.draining.is_set():
                raise
            return _make_problem_response(Problem(503, _CUT_OFF, "OutcomeUnknown", headers={"Retry-After": "1"}))
        except Exception:  # noqa: BLE001  # the rim: every defect is logged and answered
            _log.exception("%s %s failed", request.method, trace.route)
            return _make_problem_response(Problem(500, "this is a defect of the server; its log has more."))

    async def _dispatch(self, request: Request, trace: Trace) -> Response:
        path = _read_raw_path(request)
        page = self._own_pages.get(path)
        if page is not None:
            trace.route = path
            if request.method != "GET":
                raise Problem(405, "this path takes GET.", headers={"Allow": "GET"})
            found: Response = await page(request)
            return found
        endpoint, values = self._router.find(request.method, path)
        trace.route = endpoint.route.path
        headers = _read_headers(request)
        refuse_other_origin(headers)
        caller, limits = self._access.identify(headers)
        trace.key = caller.key or "-"
        check_rights(caller, endpoint.route)
        call = Call(endpoint, values, caller, limits)
        call.view = _read_view(headers)
        call.request_id = _read_request_id(headers, endpoint)
        with self._limiter.admit(caller.key, limits):
            return await self._answer_call(request, headers, call)

    async def _answer_call(self, request: Request, headers: Headers, call: Call) -> Response:
        verb = call.endpoint.route.verb
        query = request.query_params.multi_items() if request.scope["query_string"] else []
        if verb == "server.events":
            return await self._answer_events(headers, call.caller.scope)
        if verb == "export":
            return await self._answer_export(query, call)
        if verb == "load":
            return await self._answer_load(request, headers, query, call)
        body = b""
        if not call.endpoint.route.in_query:
            body = await read_body(request.receive, headers, self.options.max_body)
            if body:
                check_json_type(headers)
        pool = self.heavy_pool if call.endpoint.route.heavy else self.pool
        if verb == "remember":
            answer: bytes | None = await self._remembering.run((call, query, body))
        else:
            answer = await pool.run(lambda: self._run_verb(call, query, body))
        return Response(status_code=204) if answer is None else Response(answer, media_type=JSON_TYPE)

    def _run_verb(self, call: Call, query: Query, body: bytes) -> bytes | None:
        """Read the arguments, call the verb and encode its value; on a thread."""
        return encode_answer(call.endpoint.route, self._call_verb(call, self._read_arguments(call, query, body)))

    def _remember_each(self, calls: Sequence[tuple[Call, Query, bytes]]) -> list[bytes | Exception | None]:
        """Do the same for several calls of `remember` at once: the answer or the error of each."""

        def read(call: Call, query: Query, body: bytes) -> RememberCall:
            arguments = self._read_arguments(call, query, body)
            if call.request_id is not None:
                arguments["request_id"] = call.request_id
            return RememberCall(call.caller.scope, arguments)

        read_calls = [capture_error(read, *call) for call in calls]
        ids = iter(remember_each([call for call in read_calls if isinstance(call, RememberCall)], self._store.services))
        found = [next(ids) if isinstance(call, RememberCall) else call for call in read_calls]
        route = calls[0][0].endpoint.route
        return [answer if isinstance(answer, Exception) else encode_answer(route, answer) for answer in found]

    def _read_arguments(self, call: Call, query: Query, body: bytes) -> dict[str, Any]:
        """Check the values of a request, and count them against the limits of its key."""
        model, route = call.endpoint.model, call.endpoint.route
        if route.in_query:
            arguments = validate(model, parse_query(model, query))
        elif query:
            raise Problem(422, f"{query[0][0]!r} is in the query; this route takes its values in the body.")
        else:
            arguments = validate(model, parse_json_body(body) if body else {})
        if route.right == "write":
            items = len(arguments.get("notes", arguments.get("messages", ("one",))))
            self._limiter.charge(call.caller.key, call.limits, items=items, size=len(body))
        return bound_voice(call.caller.voice, route.verb, arguments)

    def _call_verb(self, call: Call, arguments: dict[str, Any]) -> Any:
        verb = call.endpoint.verb
        for name, parameter in verb.path_parameters.items():
            arguments[parameter or name] = call.path[name]
        if call.request_id is not None and verb.takes_request_id:
            arguments["request_id"] = call.request_id
        memory = self._views.get(call.caller.scope, call.view, verb.route.verb, call.caller.reads)
        return verb.call(Target(self._store, memory, call.caller), arguments)

    async def _answer_events(self, headers: Headers, scope: Scope) -> Response:
        stream = await self.streams.open(scope, headers.get("last-event-id"))
        return StreamResponse(stream, media_type=EVENTS_TYPE)

    async def _answer_export(self, query: Query, call: Call) -> Response:
        options = validate(call.endpoint.model, parse_query(call.endpoint.model, query))
        memory = self._views.get(call.caller.scope, call.view, "export")
        stack = ExitStack()
        file, exported = await self.heavy_pool.run(lambda: stack.enter_context(export_to_file(memory, **options)))
        headers = {EXPORT_HEADER: to_json(to_plain(exported)).decode()}
        return FileResponse(file, stack, media_type=EXPORT_TYPES[options.get("format", "jsonl")], headers=headers)

    async def _answer_load(self, request: Request, headers: Headers, query: Query, call: Call) -> Response:
        options = validate(call.endpoint.model, parse_query(call.endpoint.model, query))
        bound_voice(call.caller.voice, "load", options)
        check_load_type(headers)
        with await spool_body(request.receive, headers, self.options.max_load) as file:
            size = file.seek(0, 2)
            file.seek(0)
            self._limiter.charge(call.caller.key, call.limits, size=size)
            answer = await self.heavy_pool.run(
                lambda: encode_answer(call.endpoint.route, self._call_verb(call, {"path": file, **options}))
            )
        return Response(answer, media_type=JSON_TYPE)

    async def _answer_health(self, request: Request) -> Response:
        return Response(to_json({"status": "alive"}), media_type=JSON_TYPE)

    async def _answer_readiness(self, request: Request) -> Response:
        """Ready if the store answers and the server is not stopping."""
        if self.draining.is_set():
            raise Problem(503, "the server is stopping.", headers={"Retry-After": "5"})
        await self.pool.run(lambda: self._store.services.items.newest(Scope()))
        return Response(to_json({"status": "ready"}), media_type=JSON_TYPE)

    async def _answer_metrics(self, request: Request) -> Response:
        caller, _ = self._access.identify(request.headers)
        if "operate" not in caller.rights:
            raise Problem(403, "this needs the right 'operate'.")
        gauges = {
            "requests_in_progress": self.pool.running + self.heavy_pool.running,
            "streams": self.streams.count,
            "scopes_in_use": len(self._views),
        }
        return Response(self.metrics.render(gauges), media_type=METRICS_TYPE)

    async def _answer_openapi(self, request: Request) -> Response:
        return Response(await asyncio.to_thread(_write_openapi), media_type=JSON_TYPE)


@cache
def _write_openapi() -> bytes:
    """Write the document when it is first asked for: most servers start without a reader of it."""
    return to_json(build_openapi(build_endpoints()))


def log_access(method: str, trace: Trace, status: int) -> None:
    """Write the line of a request: nothing of its content, and no name."""
    shown, seconds = method if method in _METHODS else "other", time.perf_counter() - trace.began
    _access_log.info("%s %s %d %.1f ms key=%s", shown, trace.route, status, seconds * 1000, trace.key)


def _make_problem_response(problem: Problem) -> Response:
    body = to_json(problem.to_document())
    return Response(body, problem.status, headers=dict(problem.headers), media_type=PROBLEM_TYPE)


def _read_raw_path(request: Request) -> str:
    """The percent-encoded path: only so a name may contain a slash."""
    raw: bytes | None = request.scope.get("raw_path")
    try:
        return raw.decode("ascii") if raw else str(request.scope["path"])
    except UnicodeDecodeError as exc:
        raise Problem(400, "the path is not percent-encoded.") from exc


def _read_headers(request: Request) -> Headers:
    """The headers by their names in small letters; of two with one name, the first. Starlette searches for each."""
    # A parser may leave white space around a value, which is not part of it (RFC 9110, 5.5).
    found = reversed(request.scope["headers"])
    return {name.decode("latin-1"): value.strip(b" \t").decode("latin-1") for name, value in found}


def _read_view(headers: Headers) -> str:
    raw = headers.get(VIEW_HEADER.lower())
    if raw is None:
        return ""
    name = decode_header(raw, VIEW_HEADER)
    if not 0 < len(name) <= MAX_HEADER_CHARACTERS:
        raise Problem(400, f"{VIEW_HEADER} takes 1 to {MAX_HEADER_CHARACTERS} characters.")
    return name


def _read_request_id(headers: Headers, endpoint: Endpoint) -> str | None:
    """Return the id of the request. A write that could not honour it is refused: repeating it would not be safe."""
    raw = headers.get(IDEMPOTENCY_HEADER.lower())
    if raw is None:
        return None
    if not 0 < len(raw) <= MAX_HEADER_CHARACTERS or not raw.isprintable():
        raise Problem(400, f"{IDEMPOTENCY_HEADER} takes 1 to {MAX_HEADER_CHARACTERS} printable characters.")
    if endpoint.route.right != "read" and not endpoint.verb.takes_request_id:
        raise Problem(400, f"{endpoint.route.verb} takes no {IDEMPOTENCY_HEADER}: leave it out.")
    return raw
