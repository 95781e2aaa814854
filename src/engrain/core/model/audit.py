"""The audit log as values: each entry has the hash of the previous one, and the head is sealed separately."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from engrain.core.clock import from_micros, to_micros
from engrain.core.errors import InvalidInput, StoreCorrupt
from engrain.core.identity import hash_keyed

FIRST_PREVIOUS = "0" * 32
BROKEN = "f" * 32  # the `previous` of an entry after an end that cannot be trusted; no entry has this hash
# Codes and numbers, never a sentence: the record of a removal must not contain what was removed.
_CODE = re.compile(r"[A-Za-z0-9_.:+-]{1,64}")
_NOBODY = "-"
_MAX_ENTRIES = 1 << 60  # no log has so many
# `json.dumps` with options creates an encoder on each call.
_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
_KEPT = re.compile(r"(\d{1,18}):([0-9a-f]{32})")


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One recorded action. `subject` is a keyed hash of its subject. `details` are counts and codes."""

    n: int
    at: datetime
    what: str
    subject: str | None
    details: Mapping[str, Any]
    previous: str
    hash: str


@dataclass(frozen=True, slots=True)
class AuditHead:
    """The number and hash of the last entry, sealed with the store's key: a log that was truncated is detected."""

    n: int = 0
    hash: str = FIRST_PREVIOUS
    seal: str = ""


@dataclass(frozen=True, slots=True)
class AuditResult:
    """The faults that a verification of the log found."""

    entries: int
    head: str
    faults: tuple[str, ...] = field(default=())

    def __bool__(self) -> bool:
        return not self.faults

    @property
    def checkpoint(self) -> str:
        """The number and hash of the last entry. Kept elsewhere, they show later that the log was set back."""
        return f"{self.entries}:{self.head}"


def row_to_entry(row: Sequence[Any]) -> AuditEntry:
    """Read an entry from a store's row. An entry in another form gets details that do not match its hash."""
    n, at, what, subject, details, previous, hash = row
    try:
        when, values = from_micros(at), json.loads(details)
        ours = _encode(values) == details and subject not in ("", _NOBODY)
    except (ValueError, StoreCorrupt, TypeError, RecursionError):
        when, values, ours = from_micros(0), {}, False
    return AuditEntry(n, when, what, subject, values if ours else {"unreadable": True}, previous, hash)


def read_head(text: object) -> AuditHead:
    """Read a stored head. An unreadable one gives a head that nobody can have sealed."""
    try:
        n, hash, seal = json.loads(str(text))
        return AuditHead(int(n), str(hash), str(seal))
    except (ValueError, OverflowError, TypeError, RecursionError):
        return AuditHead(-1, BROKEN, "")


def write_head(head: AuditHead) -> str:
    return json.dumps([head.n, head.hash, head.seal])


def find_end(key: bytes, head: AuditHead, last: int) -> AuditHead:
    """Return the head that the next entry follows.

    If the seal is invalid or entries follow it, the next entry follows BROKEN: a truncated log never looks whole again.
    StoreCorrupt if no entry can follow.
    """
    if max(head.n, last) >= _MAX_ENTRIES:
        raise StoreCorrupt("the audit log has an entry with an impossible number. Restore a backup.")
    if _is_genuine(key, head) and last <= head.n:
        return head
    return AuditHead(max(head.n, last, 0), BROKEN)


def make_entry(
    key: bytes, head: AuditHead, at: datetime, what: str, subject: str | None, details: Mapping[str, Any]
) -> AuditEntry:
    """Return the entry that follows the head."""
    entry = AuditEntry(head.n + 1, at, _check_code(what), subject, json.loads(encode_details(details)), head.hash, "")
    return replace(entry, hash=_hash_entry(key, entry))


def seal_head(key: bytes, n: int, hash: str) -> AuditHead:
    return AuditHead(n, hash, hash_keyed(key, "head", str(n), hash))


def encode_details(details: Mapping[str, Any]) -> str:
    """Return the same text for equal details. InvalidInput if they hold anything but numbers and codes."""
    _check_details(details)
    return _encode(details)


def verify_log(key: bytes, entries: Iterable[AuditEntry], head: AuditHead, begun: bool = False) -> AuditResult:
    """Verify all entries in order. `begun`: an erasure or a hold exists, so an empty log must have lost its entries."""
    found: list[str] = []
    last, previous = 0, FIRST_PREVIOUS
    for entry in entries:
        if entry.n != last + 1:
            found.append(f"after entry {last} comes {entry.n}: {entry.n - last - 1} are missing.")
        elif entry.previous != previous:
            found.append(f"entry {entry.n} does not follow entry {last}: one of them was changed or moved.")
        if entry.hash != _hash_entry(key, entry):
            found.append(f"entry {entry.n} was changed.")
        last, previous = entry.n, entry.hash
    if begun and not last and not head.n:
        found.append("the log is empty, and something was erased or is held here: all entries are missing.")
    if not _is_genuine(key, head):
        found.append("the seal of the log's end was changed.")
    elif last < head.n:
        found.append(f"the log ends at entry {last}, and had {head.n}: {head.n - last} are missing.")
    elif (last, previous) != (head.n, head.hash):
        found.append(f"the log ends with entry {last}, and its seal names entry {head.n}: the end was changed.")
    return AuditResult(last, previous, tuple(found))


def parse_checkpoint(text: str) -> tuple[int, str]:
    """Parse a head that was kept elsewhere, in the form of `AuditResult.checkpoint`."""
    match = _KEPT.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise InvalidInput("the head of an audit log is N:HASH, as engrain audit verify prints it: 12:3c939b28….")
    return int(match[1]), match[2]


def compare_with_checkpoint(found: AuditResult, n: int, hash: str, entry: AuditEntry | None) -> AuditResult:
    """Compare with a head that was kept elsewhere. `entry` is the present entry of that number.

    This detects a log that was set back or rewritten as a whole, which seal and chain cannot.
    """
    if n == 0 or (entry is not None and (entry.n, entry.hash) == (n, hash)):
        return found
    why = f"entry {n} is not the one that was kept: the log was put back or written anew since."
    if found.entries < n:
        why = f"entry {n} was kept, and the log ends at entry {found.entries}: it was put back to an earlier moment."
    return replace(found, faults=(*found.faults, why))


def _is_genuine(key: bytes, head: AuditHead) -> bool:
    return head == (seal_head(key, head.n, head.hash) if head.n > 0 else AuditHead())


def _hash_entry(key: bytes, entry: AuditEntry) -> str:
    values = (entry.what, entry.subject or _NOBODY, _encode(entry.details), entry.previous)
    return hash_keyed(key, "entry", str(entry.n), str(to_micros(entry.at)), *values)


def is_code(value: object) -> bool:
    return isinstance(value, str) and bool(_CODE.fullmatch(value))


def _check_details(value: Any) -> None:
    if isinstance(value, Mapping):
        for name, detail in value.items():
            _check_code(name)
            _check_details(detail)
    elif isinstance(value, (list, tuple)):
        for detail in value:
            _check_details(detail)
    elif value is not None and not isinstance(value, (bool, int, float)):
        _check_code(value)


def _check_code(value: object) -> str:
    if not is_code(value):
        raise InvalidInput("an audit entry holds counts and code words, and no content.")
    return str(value)
