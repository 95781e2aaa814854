"""What is known of a backup: its manifest, its name among others, and which ones are kept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from engrain.core.errors import NewerStore, StoreCorrupt

FORMAT = 2
TOOLS = (
    "backed up and restored by its own tools: pg_dump and pg_restore for Postgres, BGSAVE and its file for Redis. "
    "docs/lifecycle.md says how."
)
MANIFEST = ".json"  # after the whole name of the backup
_STAMP = "%Y%m%dT%H%M%S%fZ"
_STAMPED = re.compile(r"\d{8}T\d{12}Z")


@dataclass(frozen=True, slots=True)
class Manifest:
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
class BackedUp:
    """A backup that was read again and found whole."""

    path: str
    manifest: Manifest

    def __str__(self) -> str:
        sealed = ", encrypted" if self.manifest.encrypted else ""
        items = "1 item" if self.manifest.items == 1 else f"{self.manifest.items:,} items"
        return f"{self.path}: {items}, {self.manifest.bytes:,} bytes{sealed}, checked"


@dataclass(frozen=True, slots=True)
class Restored:
    """`items` counts the items of the restored store, in all scopes and with their history. `kept_out` counts the rows
    of the backup that were forgotten or erased since, by kind. `receipts` counts the rows that each receipt names, by
    its id. If it `may_hold_forgotten` items, no readable store said what was forgotten since the backup."""

    path: str
    manifest: Manifest
    items: int
    kept_out: Mapping[str, int] = field(default_factory=dict)
    receipts: Mapping[str, int] = field(default_factory=dict)
    may_hold_forgotten: bool = False

    def __str__(self) -> str:
        there = self.manifest.items
        whole = {0: "no item", 1: "the only item"}.get(there, f"all {there:,} items")
        found = f"{whole if self.items == there else f'{self.items:,} of the {there:,} items'} in the backup"
        rows = sum(self.kept_out.values())
        out = "1 row" if rows == 1 else f"{rows:,} rows" if rows else "nothing"
        unknown = "; items that were forgotten since may be back" if self.may_hold_forgotten else ""
        restored = f"{self.path}: {found} of {self.manifest.taken_at:%Y-%m-%d %H:%M} UTC"
        return f"{restored}; forgotten or erased since, and kept out: {out}{unknown}"


def written(manifest: Manifest) -> bytes:
    values = {name: getattr(manifest, name) for name in manifest.__slots__}
    values["taken_at"] = manifest.taken_at.astimezone(UTC).isoformat()
    return json.dumps({"engrain_backup": FORMAT, **values}, indent=1, sort_keys=True).encode() + b"\n"


def read(raw: bytes, name: str) -> Manifest:
    try:
        values: dict[str, Any] = json.loads(raw)
        found = values.pop("engrain_backup")
        if not isinstance(found, int) or found <= FORMAT:
            return _typed(Manifest(**{**values, "taken_at": datetime.fromisoformat(values["taken_at"])}))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as exc:
        raise StoreCorrupt(f"{name} is not the manifest of an engrain backup, or is damaged.") from exc
    raise NewerStore(f"{name} was written by a newer engrain. Upgrade: pip install -U engrain.")


def _typed(made: Manifest) -> Manifest:
    numbers = (made.schema, made.items, made.bytes)
    fits = all(type(one) is int for one in numbers) and isinstance(made.rows, dict)
    if not fits or not all(isinstance(one, str) for one in (made.sha256, made.engrain, made.store)):
        raise TypeError("a value is of another type")
    return made


def backup_name(stem: str, at: datetime) -> str:
    """Sorts by time."""
    return f"{stem}-{at.astimezone(UTC).strftime(_STAMP)}.db"


def taken_at(stem: str, name: str) -> datetime | None:
    """When a backup of this name was taken; None for any other file."""
    stamp = name.removeprefix(f"{stem}-").removesuffix(".db")
    if name != f"{stem}-{stamp}.db" or not _STAMPED.fullmatch(stamp):
        return None
    try:
        return datetime.strptime(stamp, _STAMP).replace(tzinfo=UTC)
    except ValueError:
        return None


def due(times: Iterable[datetime], now: datetime, every: timedelta) -> bool:
    """Backups that seem to be of a later moment, after a clock was set back, count as of now; those far ahead do not:
    a clock was wrong when they were taken."""
    return not any(-every <= now - at < every for at in times)


def surplus(stem: str, names: Iterable[str], keep: int, latest: datetime) -> list[str]:
    """The oldest beyond so many; files of other names are never among them. One that seems to be of a moment after the
    `latest` was taken before the others, by a clock that was wrong."""
    ours = [(at <= latest, name) for name in names if (at := taken_at(stem, name))]
    return [name for _, name in sorted(ours)[: max(0, len(ours) - keep)]]
