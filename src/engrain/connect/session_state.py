"""Keep what a running session was shown and which commands failed in it, also when the resident process restarts."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from engrain.connect.connect_home import read_json, write_file
from engrain.core.errors import ConfigError

MAX_SESSIONS = 256
MAX_SHOWN = 2_000
MAX_PENDING_FAILURES = 5


def digest_words(text: str) -> str:
    """Return the same for texts that differ in case and spaces alone."""
    return hashlib.sha256(" ".join(text.casefold().split()).encode("utf-8", "replace")).hexdigest()[:16]


@dataclass(frozen=True)
class Failure:
    """A failed command: the id of its error, and its output."""

    id: str
    command: str
    output: str


@dataclass
class SessionState:
    """A session in progress: items that it was shown or said itself, and commands that failed in it.

    `shown` has the digest of each item's words: others may have said the same.
    """

    shown: dict[str, str] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note_shown(self, texts: Mapping[str, str]) -> None:
        """Note items by id and text."""
        self.shown |= {id: digest_words(text) for id, text in texts.items()}
        while len(self.shown) > MAX_SHOWN:
            del self.shown[next(iter(self.shown))]

    def note_failure(self, failure: Failure) -> None:
        self.failures = [*self.failures, failure][-MAX_PENDING_FAILURES:]


class SessionStates:
    """The states of the newest sessions. `save` writes them to a file, from which the next process reads them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._states: OrderedDict[str, SessionState] = OrderedDict()
        self._saved = ""
        try:
            known = read_json(path)
        except ConfigError:
            known = {}  # damaged: these sessions may see something twice
        for key, value in known.items():
            failures = [Failure(**failure) for failure in value["failures"]]
            self._states[key] = SessionState(value["shown"], failures)

    def get(self, key: str) -> SessionState:
        with self._lock:
            state = self._states.setdefault(key, SessionState())
            self._states.move_to_end(key)
            if len(self._states) > MAX_SESSIONS:
                self._states.popitem(last=False)
        return state

    def save(self) -> None:
        """Write the states if they changed since the last call."""
        with self._lock:
            states = list(self._states.items())
        plain: dict[str, Any] = {
            key: {"shown": {**state.shown}, "failures": list(map(asdict, state.failures))} for key, state in states
        }
        text = json.dumps(plain)
        if text != self._saved:
            write_file(self._path, text.encode())
            self._saved = text
