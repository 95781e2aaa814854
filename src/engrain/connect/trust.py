"""Ask Codex which of our hooks its user trusts: it skips the others without a word."""

from __future__ import annotations

import json
import selectors
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

LIMIT_SECONDS = 10.0
_REQUESTS = (
    {"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "engrain", "version": "1"}}},
    {"method": "initialized"},
)


def are_hooks_trusted(mark: str, folder: Path, command: str = "codex") -> bool | None:
    """True if Codex runs every hook with this mark in its command; None if it is not installed or does not say."""
    program = shutil.which(command)
    if program is None:
        return None
    try:
        hooks = [one for one in list_hooks(program, folder) if mark in str(one.get("command"))]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return bool(hooks) and all(one.get("enabled") and one.get("trustStatus") == "trusted" for one in hooks)


def list_hooks(program: str, folder: Path) -> list[Mapping[str, Any]]:
    """Return what Codex knows of the hooks that hold in a folder, by a request to its app server."""
    asked = (*_REQUESTS, {"id": 2, "method": "hooks/list", "params": {"cwds": [str(folder)]}})
    with subprocess.Popen(
        [program, "app-server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder
    ) as server:
        try:
            assert server.stdin is not None, "a pipe was asked for"
            server.stdin.write(b"".join(json.dumps(one).encode() + b"\n" for one in asked))
            server.stdin.flush()
            for line in _read_lines(server):
                answer = json.loads(line)
                if answer.get("id") == 2:
                    return [hook for place in answer["result"]["data"] for hook in place["hooks"]]
        finally:
            server.kill()
    raise ValueError("no answer")


def _read_lines(server: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """Yield the lines of the server until it ends or the time is up."""
    assert server.stdout is not None, "a pipe was asked for"
    end, rest = time.monotonic() + LIMIT_SECONDS, b""
    with selectors.DefaultSelector() as selector:
        selector.register(server.stdout, selectors.EVENT_READ)
        while selector.select(max(0.0, end - time.monotonic())):
            part = server.stdout.read1(1 << 16)  # type: ignore[attr-defined]
            if not part:
                return
            *lines, rest = (rest + part).split(b"\n")
            yield from lines
