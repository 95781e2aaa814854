"""Manifests of exports and backups: owner, counts and hashes, which prove that nothing is missing."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from engrain.core.errors import InvalidInput, NewerStore, StoreCorrupt
from engrain.core.formats.export_rows import EXPORTED_KINDS, ROW_TAG
from engrain.core.identity import Scope
from engrain.core.validation import count_noun, parse_strict

FORMAT = "engrain-export"
VERSION = 1


class LineSums:
    """Count and hash lines as they pass, by kind and in total."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self._all = _new_hash()
        self._by: dict[str, Any] = {}

    def add(self, kind: str, raw: bytes) -> None:
        self.rows[kind] = self.rows.get(kind, 0) + 1
        for digest in (self._all, self._by.setdefault(kind, _new_hash())):
            digest.update(raw)

    @property
    def hash(self) -> str:
        return str(self._all.hexdigest())

    @property
    def hashes(self) -> dict[str, str]:
        return {kind: digest.hexdigest() for kind, digest in self._by.items()}


@dataclass(frozen=True, slots=True)
class Manifest:
    """The first line of an export.

    `rows` counts the lines of each kind, `hashes` has their hashes, and `hash` covers all lines.
    A hash is a BLAKE2b of 16 bytes over the lines with their line ends.
    """

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
        raise NewerStore(
            f"the export has version {version}; this engrain knows {VERSION}. Upgrade: pip install -U engrain."
        )
    known = set(Manifest("", Scope()).line)
    if wrong := sorted(set(line) ^ known):
        raise InvalidInput(f"the manifest has missing or unknown keys: {', '.join(wrong)[:200]}.")
    scope = line["scope"]
    if not isinstance(scope, dict) or not set(scope) <= {"tenant", "agent", "user"}:
        raise InvalidInput("scope must be an object with tenant, agent and user.")
    if not all(isinstance(line[name], str) for name in ("engrain", "hash")):
        raise InvalidInput("engrain and hash must be texts.")
    _check_by_kind(line["rows"], "rows", int)
    _check_by_kind(line["hashes"], "hashes", str)
    return Manifest(line["engrain"], Scope(**scope), line["rows"], line["hashes"], line["hash"])


def _check_by_kind(counts: object, what: str, wanted: type) -> None:
    if not isinstance(counts, dict) or not set(counts) <= set(EXPORTED_KINDS):
        raise InvalidInput(f"{what} must be an object with kinds of rows: {', '.join(EXPORTED_KINDS)}.")
    if not all(type(entry) is wanted for entry in counts.values()):
        raise InvalidInput(f"{what} must be {'numbers' if wanted is int else 'texts'}.")


def _new_hash() -> Any:
    return hashlib.blake2b(digest_size=16)


BACKUP_FORMAT = 2
SERVER_BACKUP_ADVICE = (
    "backed up and restored by its own tools: pg_dump and pg_restore for Postgres, BGSAVE and its file for Redis. "
    "docs/how-to/back-up-and-restore.md says how."
)
MANIFEST_SUFFIX = ".json"  # after the whole name of the backup
_TIME_FORMAT = "%Y%m%dT%H%M%S%fZ"
_TIME_PATTERN = re.compile(r"\d{8}T\d{12}Z")


@dataclass(frozen=True, slots=True)
class BackupManifest:
    """The description of a backup.

    `rows` counts the rows of each table. `sha256` is the hash of the file.
    `store` is the code of the backed-up store.
    """

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
    """A backup that was read again and is complete."""

    path: str
    manifest: BackupManifest

    def __str__(self) -> str:
        sealed = ", encrypted" if self.manifest.encrypted else ""
        return f"{self.path}: {count_noun(self.manifest.items, 'item')}, {self.manifest.bytes:,} bytes{sealed}, checked"


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """The result of restoring a backup.

    - `items` counts the items of the restored store, in all scopes and with their history.
    - `kept_out` counts the backup's rows that were forgotten or erased since, by kind.
    - `receipts` counts the rows that each receipt names, by its id.
    - `may_hold_forgotten`: no readable store said what was forgotten since the backup.
    """

    path: str
    manifest: BackupManifest
    items: int
    kept_out: Mapping[str, int] = field(default_factory=dict)
    receipts: Mapping[str, int] = field(default_factory=dict)
    may_hold_forgotten: bool = False

    def __str__(self) -> str:
        there = self.manifest.items
        whole = {0: "no item", 1: "the only item"}.get(there, f"all {there:,} items")
        found = f"{whole if self.items == there else f'{self.items:,} of the {there:,} items'} in the backup"
        rows = sum(self.kept_out.values())
        out = count_noun(rows, "row") if rows else "nothing"
        unknown = "; items that were forgotten since may be back" if self.may_hold_forgotten else ""
        restored = f"{self.path}: {found} of {self.manifest.taken_at:%Y-%m-%d %H:%M} UTC"
        return f"{restored}; forgotten or erased since, and kept out: {out}{unknown}"


def write_backup_manifest(manifest: BackupManifest) -> bytes:
    values = {name: getattr(manifest, name) for name in manifest.__slots__}
    values["taken_at"] = manifest.taken_at.astimezone(UTC).isoformat()
    return json.dumps({"engrain_backup": BACKUP_FORMAT, **values}, indent=1, sort_keys=True).encode() + b"\n"


def read_backup_manifest(raw: bytes, name: str) -> BackupManifest:
    try:
        values: dict[str, Any] = parse_strict(raw)
        found = values.pop("engrain_backup")
        if not isinstance(found, int) or found <= BACKUP_FORMAT:
            return _check_types(BackupManifest(**{**values, "taken_at": datetime.fromisoformat(values["taken_at"])}))
    except (ValueError, TypeError, KeyError, AttributeError) as exc:
        raise StoreCorrupt(f"{name} is not the manifest of an engrain backup, or is damaged.") from exc
    raise NewerStore(f"{name} was written by a newer engrain. Upgrade: pip install -U engrain.")


def _check_types(made: BackupManifest) -> BackupManifest:
    numbers = (made.schema, made.items, made.bytes)
    fits = all(type(number) is int for number in numbers) and isinstance(made.rows, dict)
    if not fits or not all(isinstance(text, str) for text in (made.sha256, made.engrain, made.store)):
        raise TypeError("a value is of another type")
    return made


def make_backup_name(stem: str, at: datetime) -> str:
    """Name a backup so that names sort by time."""
    return f"{stem}-{at.astimezone(UTC).strftime(_TIME_FORMAT)}.db"


def parse_backup_time(stem: str, name: str) -> datetime | None:
    """Return the time at which a backup of this name was taken; None for any other file."""
    stamp = name.removeprefix(f"{stem}-").removesuffix(".db")
    if name != f"{stem}-{stamp}.db" or not _TIME_PATTERN.fullmatch(stamp):
        return None
    try:
        return datetime.strptime(stamp, _TIME_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None


def is_backup_due(times: Iterable[datetime], now: datetime, every: timedelta) -> bool:
    """Tell if the last backup is older than `every`.

    A backup slightly in the future, after a clock was set back, counts as of now.
    A backup far in the future does not count: its clock was wrong.
    """
    return not any(-every <= now - at < every for at in times)


def find_surplus_backups(stem: str, names: Iterable[str], keep: int, latest: datetime) -> list[str]:
    """Return the oldest backups beyond `keep`. Files with other names are never among them.

    A backup later than `latest` was taken by a wrong clock, and counts as the oldest.
    """
    ours = [(at <= latest, name) for name in names if (at := parse_backup_time(stem, name))]
    return [name for _, name in sorted(ours)[: max(0, len(ours) - keep)]]
