"""Keep events for which no resident process answered, redacted, until one takes them."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from engrain.connect.connect_home import REDACTED, ConnectHome, write_file
from engrain.core.errors import EngrainError
from engrain.core.secrets.redact import make_redactor, redact_json

MAX_FILES = 2_000
MAX_EVENT_BYTES = 64 << 20  # the hook takes 4 MB, and JSON may write six bytes for one
MAX_AGE_SECONDS = 7 * 86_400
_PRIVATE = re.compile(r"<private>.*?(?:</private>|\Z)", re.DOTALL | re.IGNORECASE)


def clean(message: dict[str, Any]) -> dict[str, Any]:
    """Return an event without private parts, keys and card numbers."""
    redact = make_redactor(REDACTED)
    assert redact is not None, "some kinds are named"
    cleaned: dict[str, Any] = redact_json(message, lambda text: redact(remove_private(text)))
    return cleaned


def remove_private(text: str) -> str:
    """Remove `<private>…</private>`. An open tag counts to the end."""
    return _PRIVATE.sub("", text)


def put_event(home: ConnectHome, message: dict[str, Any]) -> None:
    """Write a redacted event. A full spool takes no more: the oldest are worth as much as the newest."""
    if len(os.listdir(home.spool)) >= MAX_FILES:
        return
    name = f"{time.time_ns():020d}-{os.getpid()}.json"
    write_file(home.spool / name, json.dumps(clean(message)).encode())


def take_events(home: ConnectHome) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the spooled events, oldest first. The caller removes each file when its event is stored."""
    from engrain.ports.plain_files import read_plain  # it loads every port: writing an event does without

    for path in sorted(home.spool.glob("*.json")):
        try:
            message = json.loads(read_plain(path, MAX_EVENT_BYTES))
            fresh = time.time() - path.stat().st_mtime < MAX_AGE_SECONDS
        except (OSError, ValueError, RecursionError, EngrainError):
            message, fresh = None, False
        if isinstance(message, dict) and fresh:
            yield path, message
        else:
            with suppress(OSError):  # a folder is nobody's event, and stays
                path.unlink()


if __name__ == "__main__":
    put_event(ConnectHome(Path(sys.argv[1])), json.loads(sys.stdin.buffer.read()))
