"""A model behind the wire formats of five coding agents: it answers with a fixed text, and keeps every request."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ANSWER = "FAKE-ANSWER: noted."
FAILING, WORKING = "python3 -c 'import no_such_module_xyz'", "python3 -c 'print(\"tests passed: 3\")'"


class ModelServer:
    """The requests that came, and scripts of tool calls for prompts that ask for one."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.url = ""

    def take(self) -> list[str]:
        """Return the requests since the last call, as texts."""
        taken, self.requests = self.requests, []
        return [json.dumps(one, ensure_ascii=False) for one in taken]

    def choose_command(self, body: dict[str, Any]) -> str | None:
        """The command that a scripted prompt asks for next; None when it is time to answer."""
        text = json.dumps(body)
        if "[[fail]]" not in text:
            return None
        return [FAILING, WORKING, None][min(2, count_results(body))]


def count_results(body: dict[str, Any]) -> int:
    """How many results of tools a request has, in any of the formats."""
    messages = body.get("messages") or body.get("input") or body.get("contents") or []
    text = json.dumps(messages)
    return (
        text.count('"type": "tool_result"')
        + text.count('"role": "tool"')
        + text.count('"type": "function_call_output"')
        + text.count('"functionResponse"')
    )


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model: ModelServer

    def log_message(self, *_: object) -> None:
        """Stay silent."""

    def do_GET(self) -> None:
        self._send(b'{"object": "list", "data": [{"id": "fake", "object": "model"}], "models": []}', "application/json")

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            body = json.loads(raw or b"{}")
        except ValueError:
            body = {}
        path = self.path.partition("?")[0]
        if path.endswith("/count_tokens"):
            self._send(b'{"input_tokens": 10}', "application/json")
            return
        answers = {"/messages": answer_messages, "/responses": answer_responses, "/chat/completions": answer_chat}
        for ending, answer in answers.items():
            if path.endswith(ending):
                self._answer(body, answer(body, self.model.choose_command(body)))
                return
        if "generateContent" in path or "GenerateContent" in path:
            events = list(answer_gemini(body, self.model.choose_command(body)))
            if "stream" in path:
                self._answer(body, events)
            else:
                self.model.requests.append(body)
                self._send(json.dumps(events[-1][1]).encode(), "application/json")
            return
        self._send(b"{}", "application/json")

    def _answer(self, body: dict[str, Any], events: Any) -> None:
        self.model.requests.append(body)
        parts = []
        for name, event in events:
            head = f"event: {name}\n" if name else ""
            parts.append(f"{head}data: {event if isinstance(event, str) else json.dumps(event)}\n\n")
        self._send("".join(parts).encode(), "text/event-stream")

    def _send(self, content: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


Events = Iterator[tuple[str, Any]]


def answer_messages(body: dict[str, Any], command: str | None) -> Events:
    """The Messages API, as Claude Code reads it."""
    usage = {"input_tokens": 10, "output_tokens": 5}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "fake", "content": [], "usage": usage}
    yield "message_start", {"type": "message_start", "message": message | {"stop_reason": None, "stop_sequence": None}}
    if command is None:
        block: dict[str, Any] = {"type": "text", "text": ""}
        delta: dict[str, Any] = {"type": "text_delta", "text": ANSWER}
    else:
        block = {"type": "tool_use", "id": f"toolu_{count_results(body)}", "name": "Bash", "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps({"command": command, "description": "run"})}
    yield "content_block_start", {"type": "content_block_start", "index": 0, "content_block": block}
    yield "content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta}
    yield "content_block_stop", {"type": "content_block_stop", "index": 0}
    reason = "end_turn" if command is None else "tool_use"
    ended = {"stop_reason": reason, "stop_sequence": None}
    yield "message_delta", {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 5}}
    yield "message_stop", {"type": "message_stop"}


def answer_responses(body: dict[str, Any], command: str | None) -> Events:
    """The Responses API, as Codex reads it."""
    response = {"id": "resp_1", "object": "response", "status": "in_progress", "output": []}
    yield "response.created", {"type": "response.created", "response": response}
    if command is None:
        content = [{"type": "output_text", "text": ANSWER, "annotations": []}]
        item: dict[str, Any] = {"type": "message", "id": "m1", "role": "assistant", "status": "completed"}
        item["content"] = content
    else:
        name, arguments = choose_codex_tool(body, command)
        call = f"call_{count_results(body)}"
        item = {"type": "function_call", "id": f"f{call}", "call_id": call, "name": name, "status": "completed"}
        item["arguments"] = json.dumps(arguments)
    yield "response.output_item.added", {"type": "response.output_item.added", "output_index": 0, "item": item}
    yield "response.output_item.done", {"type": "response.output_item.done", "output_index": 0, "item": item}
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    done = response | {"status": "completed", "output": [item], "usage": usage | details}
    yield "response.completed", {"type": "response.completed", "response": done}


def choose_codex_tool(body: dict[str, Any], command: str) -> tuple[str, dict[str, Any]]:
    names = [tool.get("name", "") for tool in body.get("tools", [])]
    if "exec_command" in names:
        return "exec_command", {"cmd": command}
    if "shell_command" in names:
        return "shell_command", {"command": command}
    return "shell", {"command": ["bash", "-lc", command]}


def answer_chat(body: dict[str, Any], command: str | None) -> Events:
    """Chat completions, as Copilot CLI and opencode read them."""

    def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "fake", "choices": [choice]}

    if command is None:
        yield "", chunk({"role": "assistant", "content": ANSWER})
    else:
        function = {"name": "bash", "arguments": json.dumps({"command": command, "description": "run"})}
        call = {"index": 0, "id": f"call_{count_results(body)}", "type": "function", "function": function}
        yield "", chunk({"role": "assistant", "tool_calls": [call]})
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    yield "", chunk({}, "stop" if command is None else "tool_calls") | {"usage": usage}
    yield "", "[DONE]"


def answer_gemini(body: dict[str, Any], command: str | None) -> Events:
    """generateContent, as Gemini CLI reads it."""
    part: dict[str, Any] = {"text": ANSWER}
    if body.get("generationConfig", {}).get("responseMimeType") == "application/json":
        # Its router asks which model to use, and tries ten times, for 90 seconds, to get JSON.
        part = {"text": '{"complexity_reasoning": "short", "complexity_score": 1}'}
    elif command is not None:
        part = {"functionCall": {"name": "run_shell_command", "args": {"command": command, "description": "run"}}}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    yield "", {"candidates": [candidate], "usageMetadata": usage}


@contextmanager
def serve_model() -> Iterator[ModelServer]:
    """Serve the model on a free port while the block runs."""
    model = ModelServer()
    handler = type("Handler", (_Handler,), {"model": model})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    model.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield model
    finally:
        server.shutdown()
        server.server_close()
