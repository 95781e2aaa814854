"""Load the past: transcripts of clients, and files with rules for agents."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engrain.connect.blocks import CODING
from engrain.connect.home import ConnectHome, read_json, write_file
from engrain.connect.recorder import EventRecorder
from engrain.connect.repository import Repository, find_repository, make_scopes
from engrain.connect.transcripts import list_transcripts, read_transcript
from engrain.core.model.items import Source
from engrain.core.model.results import Progress
from engrain.memory import Memory, Store
from engrain.ports.plain_files import open_plain

LOADED_FILE = "loaded.json"
RULE_FILES = (
    "CLAUDE.md",
    "AGENTS.md",
    "GEMINI.md",
    ".github/copilot-instructions.md",
    ".cursorrules",
    ".windsurfrules",
)
MAX_RULE_CHARACTERS = 20_000
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
        write_file(home.folder / LOADED_FILE, json.dumps(known).encode())
    return PastResult(read, unchanged, events)


def _was_recorded(store: Store, client: str, path: Path) -> bool:
    event = next(read_transcript(client, path), None)
    if event is None:
        return False
    own, _ = make_scopes(find_repository(event.folder))
    return bool(store.memory(agent=own.agent, user=own.user).session(event.session).messages(1))


def load_rule_files(memory: Memory, repository: Repository) -> list[Path]:
    """Keep files with rules as pinned items with path and hash, and return those that changed."""
    changed = []
    for path in _find_rule_files(repository.folder):
        with open_plain(path) as file:
            text = file.read(4 * MAX_RULE_CHARACTERS).decode("utf-8", "replace")[:MAX_RULE_CHARACTERS].strip()
        name = str(path.relative_to(repository.folder))
        digest = hashlib.sha256(text.encode()).hexdigest()
        slot = f"file.{name}"
        known = memory.slots.get(slot)
        if not text or (known is not None and known.metadata.get("sha256") == digest):
            continue
        metadata = {CODING: "rules-file", "path": name, "sha256": digest}
        id = memory.remember(text, slot=slot, source=Source(name, "document"), metadata=metadata, importance=0.8)
        memory.update(id, pinned=True)
        changed.append(path)
    return changed


def _find_rule_files(folder: Path) -> Iterator[Path]:
    rules = sorted((folder / ".cursor/rules").glob("*.md*"))
    found = (path for path in (*(folder / name for name in RULE_FILES), *rules) if path.is_file())
    # A link in a cloned repository may name any file of its reader, such as a key.
    yield from (path for path in found if path.resolve().is_relative_to(folder.resolve()))
