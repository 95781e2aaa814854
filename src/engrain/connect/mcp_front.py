"""A front of the MCP server that costs a session almost nothing. It imports only the standard library.

Most sessions greet the server, list its tools and call none: hooks bring the context. The front answers such requests
as the server answered them before. Any other request starts the server, and every message then passes through.

Run by a client: python -I -S mcp_front.py FOLDER, with JSON-RPC lines on stdin and stdout.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from subprocess import DEVNULL, PIPE, Popen
from typing import Any

ANSWERS_FILE = "mcp-answers.json"
MAX_ANSWERS_BYTES = 4 << 20
LISTS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
SAME_FOR_ALL = frozenset(("initialize", "server/discover", "ping", *LISTS))
MAX_LEARNING_SECONDS, LEARNING_POLL_SECONDS = 120, 0.05
Message = dict[str, Any]


class Front:
    """Answers from a file while it can; then starts the server, which also teaches it new answers."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._build = read_build()
        self._answers = self._read_answers()
        self._session = ""
        self._greetings: list[bytes] = []
        self._answered: set[str] = set()
        self._asked: dict[str, str] = {}
        self._server: Popen[bytes] | None = None
        self._reader: threading.Thread | None = None

    def run(self) -> int:
        for line in sys.stdin.buffer:
            message = read_message(line)
            answer = self._find_answer(message)
            if self._server is None and answer is not None:
                self._greet(line, message)
                write_line(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer}).encode() + b"\n")
            elif self._server is None and "id" not in message and message:
                self._greetings.append(line)
            else:
                self._pass_on(line)
        return self._close()

    def _find_answer(self, message: Message) -> Any:
        """Return the known answer; None if there is none, which is noted as a question to learn from."""
        if message.get("method") not in SAME_FOR_ALL or "id" not in message:
            return None
        key = self._name(message)
        if self._server is not None or key not in self._answers:
            self._asked[repr(message["id"])] = key
            return None
        return self._answers[key]

    def _name(self, message: Message) -> str:
        """Name a request by all that its answer depends on: the protocol, and the page of a list."""
        params = message.get("params") or {}
        asked = {**(params.get("_meta") or {}), **params}
        kept = {key: value for key, value in asked.items() if key == "cursor" or key.endswith("protocolVersion")}
        if message["method"] == "initialize":
            self._session = str(params.get("protocolVersion"))
        return json.dumps([message["method"], kept, self._session], sort_keys=True)

    def _greet(self, line: bytes, message: Message) -> None:
        if message["method"] == "initialize":
            self._greetings.append(line)
            self._answered.add(repr(message["id"]))

    def _pass_on(self, line: bytes) -> None:
        if self._server is None:
            if read_message(line).get("method") == "initialize":
                learn_later(self._folder, self._session)
            command = [sys.executable, "-P", "-m", "engrain", "mcp", "--repository", "--home", self._folder]
            self._server = Popen(command, stdin=PIPE, stdout=PIPE)
            self._reader = threading.Thread(target=self._read_server, args=(self._server,))
            self._reader.start()
            line = b"".join([*self._greetings, line])
        assert self._server.stdin is not None
        self._server.stdin.write(line)
        self._server.stdin.flush()

    def learn(self, version: str) -> None:
        """Ask the server what clients of this version ask it."""
        about = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "engrain", "version": "1"}}
        requests = [("initialize", about), *((method, {}) for method in LISTS)]
        self._session = version
        for number, (method, params) in enumerate(requests):
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            self._find_answer(message)
            self._greetings.append(json.dumps(message).encode() + b"\n")
            if number == 0:
                self._greetings.append(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        self._pass_on(b"")
        while self._asked and self._reader is not None and self._reader.is_alive():
            time.sleep(LEARNING_POLL_SECONDS)
        self._close()

    def _read_server(self, server: Popen[bytes]) -> None:
        assert server.stdout is not None
        for line in server.stdout:
            message = read_message(line)
            id = repr(message.get("id"))
            if "method" not in message and id in self._answered:
                self._answered.discard(id)  # the greeting was answered by the front
                continue
            write_line(line)
            if "result" in message and id in self._asked:
                self._answers[self._asked.pop(id)] = message["result"]
                self._save_answers()

    def _close(self) -> int:
        if self._server is None:
            return 0
        assert self._server.stdin is not None
        assert self._reader is not None
        self._server.stdin.close()
        self._reader.join()
        return self._server.wait()

    def _read_answers(self) -> dict[str, Any]:
        try:
            with open(os.path.join(self._folder, ANSWERS_FILE), "rb") as file:
                found = json.loads(file.read(MAX_ANSWERS_BYTES))
            answers = found["answers"] if found["build"] == self._build else {}
            return dict(answers)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return {}

    def _save_answers(self) -> None:
        self._answers = {**self._read_answers(), **self._answers}  # other sessions learn, too
        content = json.dumps({"build": self._build, "answers": self._answers})
        path = os.path.join(self._folder, ANSWERS_FILE)
        try:
            with open(f"{path}.{os.getpid()}", "w") as file:
                file.write(content)
            os.replace(f"{path}.{os.getpid()}", path)
        except OSError:
            return  # a full disk: the next session starts the server again


def learn_later(folder: str, version: str) -> None:
    """Learn the answers in a process of its own: many a session ends before the server has started."""
    command = [sys.executable, "-I", "-S", os.path.abspath(__file__), folder, version]
    Popen(command, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True)


def read_build() -> str:
    """Name the installed version: an upgrade of engrain, or of a package next to it, makes new answers."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    watched = (os.path.dirname(package), os.path.join(package, "mcp", "tools.py"), os.path.abspath(__file__))
    return "-".join(str(os.stat(path).st_mtime_ns) for path in watched)


def read_message(line: bytes) -> Message:
    """Return a message; an empty one for a line that the server must judge."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def write_line(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        signal.alarm(MAX_LEARNING_SECONDS)
        Front(sys.argv[1]).learn(sys.argv[2])
    else:
        sys.exit(Front(sys.argv[1]).run())
