"""A chat service on loopback that speaks both wire formats, follows a script and refuses what the real ones refuse."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

from wire_rules import Rejected, check_anthropic_request, check_openai_request

Body = dict[str, Any]


@dataclass(frozen=True)
class Says:
    """A reply of the model. `stop` is the service's own word, if not the usual one."""

    text: str = ""
    calls: Sequence[tuple[str, dict[str, Any]]] = ()
    stop: str | None = None
    delay: float = 0.0


@dataclass(frozen=True)
class Sends:
    """An answer byte for byte; a header of None is left out. `drip` is the pause in seconds before each byte."""

    status: int = 200
    content: bytes = b""
    headers: Mapping[str, str | None] = field(default_factory=dict)
    delay: float = 0.0
    drip: float = 0.0


Step = Says | Sends | Callable[[Body], "Says | Sends"]


def fails(status: int, message: str = "no", headers: dict[str, str] | None = None) -> Sends:
    """An error in the shape that both services use."""
    error = {"type": "error", "error": {"type": "some_error", "message": message}}
    return Sends(status, json.dumps(error).encode(), headers or {})


def streams(*events: Body, done: bool = False, drip: float = 0.0) -> Sends:
    """An answer as server-sent events, one for each of these."""
    lines = [f"event: {event.get('type', 'message')}\ndata: {json.dumps(event)}\n\n" for event in events]
    content = "".join([": a comment\n\n", *lines, "data: [DONE]\n\n" if done else ""]).encode()
    return Sends(200, content, {"Content-Type": "text/event-stream", "Content-Length": None}, drip=drip)


def stream_anthropic(whole: Body) -> list[Body]:
    """The events of a message, its texts and arguments in pieces of three characters."""
    start = {**whole, "content": [], "stop_reason": None, "usage": {**whole["usage"], "output_tokens": 1}}
    events: list[Body] = [{"type": "message_start", "message": start}, {"type": "ping"}]
    for index, block in enumerate(whole["content"]):
        text = block["type"] == "text"
        empty = {"type": "text", "text": ""} if text else {**block, "input": {}}
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        for piece in cut(block["text"] if text else json.dumps(block["input"])):
            part = (
                {"type": "text_delta", "text": piece} if text else {"type": "input_json_delta", "partial_json": piece}
            )
            events.append({"type": "content_block_delta", "index": index, "delta": part})
        events.append({"type": "content_block_stop", "index": index})
    end = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    used = {"output_tokens": whole["usage"]["output_tokens"]}
    return [*events, {"type": "message_delta", "delta": end, "usage": used}, {"type": "message_stop"}]


def stream_openai(whole: Body) -> list[Body]:
    choice = whole["choices"][0]
    deltas: list[Body] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in cut(choice["message"]["content"] or "")]
    for index, call in enumerate(choice["message"].get("tool_calls", ())):
        function = {"name": call["function"]["name"], "arguments": ""}
        deltas.append({"tool_calls": [{"index": index, "id": call["id"], "type": "function", "function": function}]})
        for piece in cut(call["function"]["arguments"]):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    base = {"id": whole["id"], "object": "chat.completion.chunk", "model": whole["model"]}
    chunks = [{**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    end = {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    return [*chunks, end, {**base, "choices": [], "usage": whole["usage"]}]


def cut(text: str) -> list[str]:
    return [text[at : at + 3] for at in range(0, len(text), 3)]


@dataclass(frozen=True)
class Asked:
    path: str
    headers: dict[str, str]
    body: Body
    at: float


class WireServer:
    """Give it what to answer in `script`; with nothing left it says "ok". What it was asked is in `asked`.

    A request that the real service would refuse gets a 400 and takes nothing from the script; `refused` has the
    reasons. With a `key`, a request must bring it; with a `certificate`, it is served over TLS.
    """

    def __init__(self, key: str = "", certificate: Path | None = None) -> None:
        self.key = key
        self.certificate = certificate
        self.script: list[Step] = []
        self.asked: list[Asked] = []
        self.refused: list[str] = []
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._ids = 0

    def __enter__(self) -> WireServer:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        if self.certificate:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(self.certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._stopped.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def anthropic_url(self) -> str:
        return f"{'https' if self.certificate else 'http'}://127.0.0.1:{self._server.server_port}"

    @property
    def openai_url(self) -> str:
        return f"{self.anthropic_url}/v1"

    def answer(self, path: str, headers: dict[str, str], body: Body) -> Sends:
        with self._lock:
            self.asked.append(Asked(path, headers, body, time.monotonic()))
            refusal = self._refusal(path, headers, body)
            if refusal is not None:
                return refusal
            step = self.script.pop(0) if self.script else Says("ok")
            said = step(body) if callable(step) else step
            if isinstance(said, Sends):
                return said
            anthropic = path == "/v1/messages"
            whole = self._anthropic(said, body) if anthropic else self._openai(said, body)
            if not body.get("stream"):
                return Sends(200, json.dumps(whole).encode(), delay=said.delay)
            events = stream_anthropic(whole) if anthropic else stream_openai(whole)
            return replace(streams(*events, done=not anthropic), delay=said.delay)

    def _refusal(self, path: str, headers: dict[str, str], body: Body) -> Sends | None:
        key = headers.get("x-api-key") if path == "/v1/messages" else headers.get("authorization")
        try:
            if path == "/v1/messages":
                if headers.get("anthropic-version") != "2023-06-01":
                    raise Rejected("anthropic-version: header is required")
                check_anthropic_request(body)
            elif path == "/v1/chat/completions":
                check_openai_request(body)
            else:
                return fails(404, "not found")
            if headers.get("content-type") != "application/json":
                raise Rejected("content-type must be application/json")
        except Rejected as exc:
            self.refused.append(str(exc))
            return fails(400, str(exc))
        wanted = self.key if path == "/v1/messages" else f"Bearer {self.key}"
        return fails(401, "invalid key") if self.key and key != wanted else None

    def _id(self) -> str:
        self._ids += 1
        return f"toolu_{self._ids:04}"

    def _anthropic(self, said: Says, body: Body) -> Body:
        content: list[Body] = [{"type": "text", "text": said.text}] if said.text else []
        content += [{"type": "tool_use", "id": self._id(), "name": name, "input": given} for name, given in said.calls]
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": content,
            "stop_reason": said.stop or ("tool_use" if said.calls else "end_turn"),
            "stop_sequence": None,
            "usage": {"input_tokens": 11, "output_tokens": 7, "cache_read_input_tokens": 2},
        }

    def _openai(self, said: Says, body: Body) -> Body:
        message: Body = {"role": "assistant", "content": said.text or None}
        if said.calls:
            message["tool_calls"] = [
                {"id": self._id(), "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
                for name, given in said.calls
            ]
        finish = said.stop or ("tool_calls" if said.calls else "stop")
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "model": body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": {"prompt_tokens": 13, "completion_tokens": 7, "total_tokens": 20},
        }

    def _handler(server) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                headers = {name.lower(): value for name, value in self.headers.items()}
                said = server.answer(self.path, headers, body)
                server._stopped.wait(said.delay)
                self.send_response(said.status)
                for name, value in {"Content-Length": str(len(said.content)), **said.headers}.items():
                    if value is not None:
                        self.send_header(name, value)
                self.end_headers()
                self._write(said)

            def _write(self, said: Sends) -> None:
                if not said.drip:
                    self.wfile.write(said.content)
                for byte in said.content if said.drip else b"":
                    if server._stopped.wait(said.drip):
                        break
                    self.wfile.write(bytes([byte]))

            def log_message(self, *_: Any) -> None:
                pass

            def handle(self) -> None:
                with contextlib.suppress(OSError):  # the client stopped waiting
                    super().handle()

        return Handler
