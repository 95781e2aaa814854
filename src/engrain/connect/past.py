"""Load the past: the transcripts that clients keep."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

from engrain.connect.home import ConnectHome, read_json, write_file
from engrain.connect.recorder import EventRecorder
from engrain.connect.repository import find_repository, make_scopes
from engrain.connect.transcripts import list_transcripts, read_transcript
from engrain.core.model.results import Progress
from engrain.memory import Store

LOADED_FILE = "loaded.json"
SAVE_SECONDS = 1.0
# Their hooks and transcripts share no ids: a session that hooks recorded is not loaded again.
_WITHOUT_IDS = ("gemini", "copilot")


@dataclass(frozen=True)
class PastResult:
    """Counts of a load: transcripts read and unchanged, and the events in them."""

    transcripts: int
    unchanged: int
    events: int


def load_transcripts(
    store: Store, home: ConnectHome, client: str, progress: Progress | None = None, user_folder: Path | None = None
) -> PastResult:
    """Load every transcript of a client. An interrupted load continues, and a second one reads only what changed."""
    paths = list_transcripts(client, user_folder or Path.home())
    known, recorder = read_json(home.folder / LOADED_FILE), EventRecorder(store, home)
    read = unchanged = events = 0
    saved = time.monotonic()
    try:
        for done, path in enumerate(paths):
            if progress is not None:
                progress("transcripts", done, len(paths))
            about = path.stat()
            mark = f"{about.st_size}-{about.st_mtime_ns}"
            if known.get(str(path)) == mark:
                unchanged += 1
                continue
            if str(path) in known or client not in _WITHOUT_IDS or not _was_recorded(store, client, path):
                events += recorder.load(read_transcript(client, path))
            read += 1
            known[str(path)] = mark
            if time.monotonic() - saved > SAVE_SECONDS:
                _save(home, known)
                saved = time.monotonic()
    finally:
        if read:
            _save(home, known)
    return PastResult(read, unchanged, events)


def _save(home: ConnectHome, known: dict[str, str]) -> None:
    write_file(home.folder / LOADED_FILE, json.dumps(known).encode())


def _was_recorded(store: Store, client: str, path: Path) -> bool:
    event = next(read_transcript(client, path), None)
    if event is None:
        return False
    own, _ = make_scopes(find_repository(event.folder))
    return bool(store.memory(agent=own.agent, user=own.user).session(event.session).messages(1))
