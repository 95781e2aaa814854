"""Change the settings of clients, and take the change back: byte for byte where nobody else changed the file."""

from __future__ import annotations

import copy
import difflib
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engrain.connect.connect_home import MAX_STATE_BYTES, ConnectHome, write_file
from engrain.core.errors import ConfigError, InvalidInput, NotFound
from engrain.ports.plain_files import read_plain

# Only an entry that `connect` wrote has one of these.
OUR_MARKS = (b"engrain/connect/hook.py", b"engrain/connect/mcp_front.py")
TextEdit = Callable[[str], str]


@dataclass(frozen=True)
class FileEdit:
    """How our entries get into a file and out of it, and whether they are there. Without them our own file is empty."""

    path: Path
    add: TextEdit
    remove: TextEdit
    holds: Callable[[str], bool]


@dataclass(frozen=True)
class FileChange:
    """A file before and after; None means that there is no file."""

    path: Path
    before: bytes | None
    after: bytes | None

    @property
    def changes(self) -> bool:
        return self.before != self.after

    def diff(self) -> Iterator[str]:
        """The lines of a unified diff."""
        texts = [(side or b"").decode("utf-8", "replace").splitlines() for side in (self.before, self.after)]
        names = [str(self.path) if side is not None else "/dev/null" for side in (self.before, self.after)]
        return difflib.unified_diff(texts[0], texts[1], names[0], names[1], lineterm="")


class ChangeLedger:
    """The files that were changed for each client, with a backup of each and the digest of what was written."""

    def __init__(self, home: ConnectHome) -> None:
        self._home = home
        self._state = home.read_state()

    def list_files(self, client: str) -> list[Path]:
        return [Path(path) for path in self._records(client)]

    def list_clients(self) -> list[str]:
        """The connected clients, in the order in which they were connected."""
        return [client for client, records in self._state.get("clients", {}).items() if records]

    def plan_connect(self, client: str, edits: Iterable[FileEdit]) -> list[FileChange]:
        """The changes that connect a client. Connecting twice is connecting once."""
        return [self._plan(edit, lambda edit: self._add(client, edit)) for edit in edits]

    def plan_disconnect(self, client: str, edits: Iterable[FileEdit]) -> list[FileChange]:
        """The changes that disconnect a client: the backup if our text is still there, else our entries leave."""
        return [self._plan(edit, lambda edit: self._base(client, edit)) for edit in edits]

    def _plan(self, edit: FileEdit, change: Callable[[FileEdit], bytes | None]) -> FileChange:
        try:
            return FileChange(edit.path, _read(edit.path), change(edit))
        except ConfigError as exc:
            known = str(edit.path) in str(exc)
            raise exc if known else ConfigError(f"{edit.path}: {exc} Nothing was changed.") from exc

    def connect(self, client: str, edits: Iterable[FileEdit]) -> list[FileChange]:
        """Write the entries; the original of each file is saved first."""
        self._state, edits = self._home.read_state(), list(edits)
        changes = self.plan_connect(client, edits)
        bases = [self._choose_backup(client, edit, change.before) for edit, change in zip(edits, changes, strict=True)]
        before = copy.deepcopy(self._state)
        for change, base in zip(changes, bases, strict=True):
            if not change.changes and str(change.path) in self._records(client):
                continue
            self._state["made"] = [*self._state.get("made", []), *_list_missing_folders(change.path)]
            self._records(client)[str(change.path)] = {
                "digest": _digest(change.after), "backup": self._save_backup(base),
            }  # fmt: skip
        _check_writable(changes)
        # Recorded before it is written: after a crash between the two a file is merely found unchanged.
        self._home.write_state(self._state)
        try:
            _write_all(changes)
        except ConfigError:
            self._state = before
            self._home.write_state(before)
            raise
        return changes

    def disconnect(self, client: str, edits: Iterable[FileEdit]) -> list[FileChange]:
        """Take the entries out again."""
        self._state = self._home.read_state()
        changes = self.plan_disconnect(client, edits)
        _check_writable(changes)
        _write_all(changes)
        for change in changes:
            self._records(client).pop(str(change.path), None)
        self._state["clients"] = {name: records for name, records in self._state["clients"].items() if records}
        self._state["made"] = _remove_empty_folders(self._state.get("made", []))
        self._home.write_state(self._state)
        self._remove_unused_backups()
        return changes

    def _add(self, client: str, edit: FileEdit) -> bytes:
        current = _read(edit.path)
        if current is not None and edit.holds(_decode(edit.path, current)):
            return current  # also if the client wrote its file anew, in its own order
        base = self._base(client, edit)
        return _encode(edit.add(_decode(edit.path, base or b"")))

    def _base(self, client: str, edit: FileEdit) -> bytes | None:
        """The file without our entries."""
        current, record = _read(edit.path), self._records(client).get(str(edit.path))
        if record and record["digest"] == _digest(current):
            return self._read_backup(record["backup"])
        if current is None:
            return None
        text = _decode(edit.path, current)
        left = edit.remove(text)
        made_by_us = record is not None and record["backup"] is None
        return None if not left.strip() and (made_by_us or left != text) else _encode(left)

    def _choose_backup(self, client: str, edit: FileEdit, current: bytes | None) -> bytes | None:
        """The file as `disconnect` restores it: as it was found, unless entries of ours were in it already."""
        known = str(edit.path) in self._records(client) or any(mark in (current or b"") for mark in OUR_MARKS)
        return self._base(client, edit) if known else current

    def _records(self, client: str) -> dict[str, Any]:
        found: dict[str, Any] = self._state.setdefault("clients", {}).setdefault(client, {})
        return found

    def _save_backup(self, content: bytes | None) -> str | None:
        if content is None:
            return None
        name = _digest(content)
        path = self._home.backups / name
        if not path.exists():
            self._home.backups.mkdir(mode=0o700, exist_ok=True)
            write_file(path, content)
        return name

    def _read_backup(self, name: str | None) -> bytes | None:
        if name is None:
            return None
        content = read_plain(self._home.backups / name, MAX_STATE_BYTES)
        if _digest(content) != name:
            raise ConfigError(f"the backup {self._home.backups / name} was changed: restore the file by hand.")
        return content

    def _remove_unused_backups(self) -> None:
        used = {record["backup"] for records in self._state["clients"].values() for record in records.values()}
        for path in self._home.backups.glob("*"):
            if path.name not in used:
                path.unlink()


def _check_writable(changes: Iterable[FileChange]) -> None:
    """Raise before anything is written. A file without the right to write was made so on purpose."""
    for path in (Path(os.path.realpath(change.path)) for change in changes if change.changes):
        folder = next(parent for parent in path.parents if parent.exists())
        protected = path.exists() and not path.stat().st_mode & stat.S_IWUSR
        if protected or not os.access(folder, os.W_OK | os.X_OK):
            raise ConfigError(f"{path} is read-only: nothing was changed.")


def _write_all(changes: Iterable[FileChange]) -> None:
    """Write each file, or none: what was written is taken back when one fails."""
    done: list[FileChange] = []
    try:
        for change in changes:
            if change.changes:
                _write(change.path, change.after)
                done.append(change)
    except OSError as exc:
        for change in done:
            _write(change.path, change.before)
        raise ConfigError(f"{change.path} cannot be written: {exc.strerror}. Nothing was changed.") from exc


def _write(path: Path, content: bytes | None) -> None:
    if content is None:
        Path(os.path.realpath(path)).unlink(missing_ok=True)  # a link to it stays
    else:
        write_file(path, content)


def _read(path: Path) -> bytes | None:
    try:
        return read_plain(path, 16 << 20)
    except NotFound:
        return None
    except InvalidInput as exc:
        raise ConfigError(str(exc)) from exc


def _decode(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{path} is not UTF-8: correct it first.") from exc


def _encode(text: str) -> bytes:
    return text.encode("utf-8")


def _digest(content: bytes | None) -> str:
    return "" if content is None else hashlib.sha256(content).hexdigest()


def _list_missing_folders(path: Path) -> list[str]:
    return [str(folder) for folder in path.parents if not folder.exists()]


def _remove_empty_folders(folders: Iterable[str]) -> list[str]:
    """Remove folders that we made and that are empty again, inner ones first. Return those that stay."""
    for folder in sorted(folders, key=len, reverse=True):
        with suppress(OSError):
            Path(folder).rmdir()
    return [folder for folder in folders if Path(folder).exists()]
