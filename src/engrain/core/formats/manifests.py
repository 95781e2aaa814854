"""The first line of an export: what it is, whose, and how to tell that nothing is missing."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from engrain.core.errors import InvalidInput, NewerStore, StoreCorrupt
from engrain.core.formats.jsonl import EXPORTED_KINDS, ROW_TAG
from engrain.core.identity import Scope

FORMAT = "engrain-export"
VERSION = 1


class LineSums:
    """Counts and hashes of lines as they go by, by kind and of all."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self._all = _hash()
        self._by: dict[str, Any] = {}

    def add(self, kind: str, raw: bytes) -> None:
        self.rows[kind] = self.rows.get(kind, 0) + 1
        for one in (self._all, self._by.setdefault(kind, _hash())):
            one.update(raw)

    @property
    def hash(self) -> str:
        return str(self._all.hexdigest())

    @property
    def hashes(self) -> dict[str, str]:
        return {kind: one.hexdigest() for kind, one in self._by.items()}


@dataclass(frozen=True, slots=True)
class Manifest:
    """`rows` counts the lines of each kind, `hashes` are theirs and `hash` is that of them all: BLAKE2b of 16 bytes
    over the lines as they stand, line ends included."""

    engrain: str
    scope: Scope
    rows: Mapping[str, int] = field(default_factory=dict)
    hashes: Mapping[str, str] = field(default_factory=dict)
    hash: str = ""

    @property
    def line(self) -> dict[str, Any]:
        parts = {"tenant": self.scope.tenant, "agent": self.scope.agent, "user": self.scope.user}
        return {
            ROW_TAG: "manifest",
            "format": FORMAT,
            "version": VERSION,
            "engrain": self.engrain,
            "scope": {name: value for name, value in parts.items() if value is not None},
            "rows": dict(self.rows),
            "hashes": dict(self.hashes),
            "hash": self.hash,
        }


def is_manifest(line: object) -> bool:
    return isinstance(line, dict) and line.get(ROW_TAG) == "manifest" and line.get("format") == FORMAT


def read_manifest(line: Mapping[str, Any]) -> Manifest:
    version = line.get("version")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise InvalidInput(f"version must be a whole number, not {version!r:.80}.")
    if version > VERSION:
        raise NewerStore(f"the export has version {version}; this engrain knows {VERSION}. pip install -U engrain.")
    known = set(Manifest("", Scope()).line)
    if wrong := sorted(set(line) ^ known):
        raise InvalidInput(f"the manifest lacks or does not know {', '.join(wrong)[:200]}.")
    scope = line["scope"]
    if not isinstance(scope, dict) or not set(scope) <= {"tenant", "agent", "user"}:
        raise InvalidInput("scope must be an object with tenant, agent and user.")
    if not all(isinstance(line[name], str) for name in ("engrain", "hash")):
        raise InvalidInput("engrain and hash must be texts.")
    _by_kind(line["rows"], "rows", int)
    _by_kind(line["hashes"], "hashes", str)
    return Manifest(line["engrain"], Scope(**scope), line["rows"], line["hashes"], line["hash"])


def _by_kind(given: object, what: str, wanted: type) -> None:
    if not isinstance(given, dict) or not set(given) <= set(EXPORTED_KINDS):
        raise InvalidInput(f"{what} must be an object with kinds of rows: {', '.join(EXPORTED_KINDS)}.")
    if not all(type(one) is wanted for one in given.values()):
        raise InvalidInput(f"{what} must be {'numbers' if wanted is int else 'texts'}.")


def _hash() -> Any:
    return hashlib.blake2b(digest_size=16)


BACKUP_FORMAT = 2
SERVER_BACKUP_ADVICE = (
    "backed up and restored by its own tools: pg_dump and pg_restore for Postgres, BGSAVE and its file for Redis. "
    "docs/lifecycle.md says how."
)
MANIFEST_SUFFIX = ".json"  # after the whole name of the backup
_STAMP = "%Y%m%dT%H%M%S%fZ"
_STAMPED = re.compile(r"\d{8}T\d{12}Z")


@dataclass(frozen=True, slots=True)
class BackupManifest:
    """`rows` counts the rows of each table; `sha256` is of the file, byte by byte. `store` is the code of the store
    that it was taken of; one of an earlier engrain has none."""

    taken_at: datetime
    schema: int
    items: int
    bytes: int
    sha256: str
    encrypted: bool = False
    engrain: str = ""
    rows: Mapping[str, int] = field(default_factory=dict)
    store: str = ""


@dataclass(frozen=True, slots=True)
class BackupInfo:
    """A backup that was read again and found whole."""

    path: str
    manifest: BackupManifest

    def __str__(self) -> str:
        sealed = ", encrypted" if self.manifest.encrypted else ""
        items = "1 item" if self.manifest.items == 1 else f"{self.manifest.items:,} items"
        return f"{self.path}: {items}, {self.manifest.bytes:,} bytes{sealed}, checked"


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """`items` are there now, in all scopes and with their history. `kept_out` counts rows of the backup that were
    forgotten or erased since, by kind; None if nobody could be asked. `asked`: a present store was. If that was
    `damaged`, what was told anew or cut in it since is not put back. Of `receipts` that were asked in its place or
    beside it: how many rows of the backup each says were erased, by its id."""

    path: str
    manifest: BackupManifest
    items: int
    kept_out: Mapping[str, int] | None = None
    damaged: bool = False
    receipts: Mapping[str, int] = field(default_factory=dict)
    asked: bool = True

    def __str__(self) -> str:
        there = self.manifest.items
        whole = {0: "no item", 1: "the only item"}.get(there, f"all {there:,} items")
        found = f"{whole if self.items == there else f'{self.items:,} of the {there:,} items'} in the backup"
        told = f"{self.path}: {found} of {self.manifest.taken_at:%Y-%m-%d %H:%M} UTC"
        if self.kept_out is None:
            return f"{told}; no present store was there to say what has been forgotten since"
        rows = sum(self.kept_out.values())
        out = "1 row" if rows == 1 else f"{rows:,} rows" if rows else "nothing"
        by = "1 receipt" if len(self.receipts) == 1 else f"{len(self.receipts):,} receipts"
        if not self.asked:
            return f"{told}; erased since by {by}, and kept out: {out}"
        read = ", as far as the damaged store can say" if self.damaged else ""
        beside = f", or by {by}" if self.receipts else ""
        return f"{told}; forgotten or erased since{read}{beside}, and kept out: {out}"


def write_backup_manifest(manifest: BackupManifest) -> bytes:
    values = {name: getattr(manifest, name) for name in manifest.__slots__}
    values["taken_at"] = manifest.taken_at.astimezone(UTC).isoformat()
    return json.dumps({"engrain_backup": BACKUP_FORMAT, **values}, indent=1, sort_keys=True).encode() + b"\n"


def read_backup_manifest(raw: bytes, name: str) -> BackupManifest:
    try:
        values: dict[str, Any] = json.loads(raw)
        found = values.pop("engrain_backup")
        if not isinstance(found, int) or found <= BACKUP_FORMAT:
            return _typed(BackupManifest(**{**values, "taken_at": datetime.fromisoformat(values["taken_at"])}))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as exc:
        raise StoreCorrupt(f"{name} is not the manifest of an engrain backup, or is damaged.") from exc
    raise NewerStore(f"{name} was written by a newer engrain. Upgrade: pip install -U engrain.")


def _typed(made: BackupManifest) -> BackupManifest:
    numbers = (made.schema, made.items, made.bytes)
    fits = all(type(one) is int for one in numbers) and isinstance(made.rows, dict)
    if not fits or not all(isinstance(one, str) for one in (made.sha256, made.engrain, made.store)):
        raise TypeError("a value is of another type")
    return made


def make_backup_name(stem: str, at: datetime) -> str:
    """Sorts by time."""
    return f"{stem}-{at.astimezone(UTC).strftime(_STAMP)}.db"


def parse_backup_time(stem: str, name: str) -> datetime | None:
    """When a backup of this name was taken; None for any other file."""
    stamp = name.removeprefix(f"{stem}-").removesuffix(".db")
    if name != f"{stem}-{stamp}.db" or not _STAMPED.fullmatch(stamp):
        return None
    try:
        return datetime.strptime(stamp, _STAMP).replace(tzinfo=UTC)
    except ValueError:
        return None


def is_backup_due(times: Iterable[datetime], now: datetime, every: timedelta) -> bool:
    """Backups that seem to be of a later moment, after a clock was set back, count as of now; those far ahead do not:
    a clock was wrong when they were taken."""
    return not any(-every <= now - at < every for at in times)


def find_surplus_backups(stem: str, names: Iterable[str], keep: int, latest: datetime) -> list[str]:
    """The oldest beyond so many; files of other names are never among them. One that seems to be of a moment after the
    `latest` was taken before the others, by a clock that was wrong."""
    ours = [(at <= latest, name) for name in names if (at := parse_backup_time(stem, name))]
    return [name for _, name in sorted(ours)[: max(0, len(ours) - keep)]]
