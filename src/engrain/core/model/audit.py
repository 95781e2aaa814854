"""The audit log as values: each entry carries the hash of the one before, and the head is sealed apart."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from engrain.core.clock import from_micros, to_micros
from engrain.core.errors import InvalidInput

FIRST_PREVIOUS = "0" * 32
BROKEN = "f" * 32  # what an entry follows when the end before it was not to be trusted: no entry has this hash
# Codes and numbers, never a sentence: what was removed must not stand in the record of its removal.
_CODE = re.compile(r"[A-Za-z0-9_.:+-]{1,64}")
_NOBODY = "-"
# `json.dumps` with options makes one anew each time.
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_KEPT = re.compile(r"(\d{1,18}):([0-9a-f]{32})")


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One thing that was done. `subject` is a keyed hash of what it concerned; `details` are counts and codes."""

    n: int
    at: datetime
    what: str
    subject: str | None
    details: Mapping[str, Any]
    previous: str
    hash: str


@dataclass(frozen=True, slots=True)
class AuditHead:
    """How many entries there are and the hash of the last, sealed with the store's key: it shows that some are missing
    at the end."""

    n: int = 0
    hash: str = FIRST_PREVIOUS
    seal: str = ""


@dataclass(frozen=True, slots=True)
class AuditResult:
    """What a look through the log found: nothing, in one that nobody touched."""

    entries: int
    head: str
    faults: tuple[str, ...] = field(default=())

    def __bool__(self) -> bool:
        return not self.faults

    @property
    def kept(self) -> str:
        """Number and hash of the last entry in a line: kept elsewhere, it shows later that the log was put back."""
        return f"{self.entries}:{self.head}"


def row_to_entry(row: Sequence[Any]) -> AuditEntry:
    """As a store holds it, in this order. One in a form that is not ours has not the hash of what it then says."""
    n, at, what, subject, details, previous, hash = row
    try:
        moment, values = from_micros(at), json.loads(details)
        ours = _written(values) == details and subject not in ("", _NOBODY)
    except (ValueError, OverflowError, TypeError, RecursionError):
        moment, values, ours = from_micros(0), {}, False
    return AuditEntry(n, moment, what, subject, values if ours else {"unreadable": True}, previous, hash)


def read_head(text: object) -> AuditHead:
    """As a store holds it; what nobody can have sealed for one that cannot be read."""
    try:
        n, hash, seal = json.loads(str(text))
        return AuditHead(int(n), str(hash), str(seal))
    except (ValueError, TypeError, RecursionError):
        return AuditHead(-1, BROKEN, "")


def write_head(head: AuditHead) -> str:
    return json.dumps([head.n, head.hash, head.seal])


def find_end(key: bytes, head: AuditHead, last: int) -> AuditHead:
    """What the next entry follows. If the seal is not ours, or entries stand after it, it follows nothing, for ever to
    be seen: a log that was cut must not be whole again with the next entry."""
    if _genuine(key, head) and last <= head.n:
        return head
    return AuditHead(max(head.n, last, 0), BROKEN)


def make_entry(
    key: bytes, head: AuditHead, at: datetime, what: str, subject: str | None, details: Mapping[str, Any]
) -> AuditEntry:
    """The entry that comes next."""
    entry = AuditEntry(head.n + 1, at, _code(what), subject, json.loads(encode_details(details)), head.hash, "")
    return replace(entry, hash=_hash(key, entry))


def seal_head(key: bytes, n: int, hash: str) -> AuditHead:
    return AuditHead(n, hash, _digest(key, "head", str(n), hash))


def encode_details(details: Mapping[str, Any]) -> str:
    """The same for equal details. InvalidInput if there is anything but numbers and codes in it."""
    _check(details)
    return _written(details)


def verify_log(key: bytes, entries: Iterable[AuditEntry], head: AuditHead, begun: bool = False) -> AuditResult:
    """Every entry in the order of its number, from the first. `begun`: the store has something that comes with one, the
    mark of an erasure or a hold, so that a log that was removed with its seal is missed."""
    found: list[str] = []
    last, previous = 0, FIRST_PREVIOUS
    for one in entries:
        if one.n != last + 1:
            found.append(f"after entry {last} comes {one.n}: {one.n - last - 1} are missing.")
        elif one.previous != previous:
            found.append(f"entry {one.n} does not follow entry {last}: one of them was changed or moved.")
        if one.hash != _hash(key, one):
            found.append(f"entry {one.n} was changed.")
        last, previous = one.n, one.hash
    if begun and not last and not head.n:
        found.append("the log is empty, and something was erased or is held here: all entries are missing.")
    if not _genuine(key, head):
        found.append("the seal of the log's end was changed.")
    elif last < head.n:
        found.append(f"the log ends at entry {last}, and had {head.n}: {head.n - last} are missing.")
    elif (last, previous) != (head.n, head.hash):
        found.append(f"the log ends with entry {last}, and its seal names entry {head.n}: the end was changed.")
    return AuditResult(last, previous, tuple(found))


def parse_kept_head(text: str) -> tuple[int, str]:
    """A head that was kept elsewhere, in the form in which `Audited.kept` gives it."""
    match = _KEPT.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise InvalidInput("the head of an audit log is N:HASH, as engrain audit verify prints it: 12:3c939b28….")
    return int(match[1]), match[2]


def compare_with_kept(found: AuditResult, n: int, hash: str, entry: AuditEntry | None) -> AuditResult:
    """With the head that was kept elsewhere, and the entry that has its number now: finds what seal and chain cannot, a
    log that was put back or written anew as a whole."""
    if n == 0 or (entry is not None and (entry.n, entry.hash) == (n, hash)):
        return found
    why = f"entry {n} is not the one that was kept: the log was put back or written anew since."
    if found.entries < n:
        why = f"entry {n} was kept, and the log ends at entry {found.entries}: it was put back to an earlier moment."
    return replace(found, faults=(*found.faults, why))


def _genuine(key: bytes, head: AuditHead) -> bool:
    return head == (seal_head(key, head.n, head.hash) if head.n > 0 else AuditHead())


def _hash(key: bytes, one: AuditEntry) -> str:
    text = _written(one.details)
    return _digest(
        key, "entry", str(one.n), str(to_micros(one.at)), one.what, one.subject or _NOBODY, text, one.previous
    )


def _written(details: Any) -> str:
    return _ENCODER.encode(details)


def _digest(key: bytes, *parts: str) -> str:
    digest = hashlib.blake2b(key=key, digest_size=16)
    for part in parts:
        raw = part.encode()
        digest.update(b"%d:" % len(raw) + raw)
    return digest.hexdigest()


def is_code(value: object) -> bool:
    return isinstance(value, str) and bool(_CODE.fullmatch(value))


def _check(value: Any) -> None:
    if isinstance(value, Mapping):
        for name, one in value.items():
            _code(name)
            _check(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            _check(one)
    elif value is not None and not isinstance(value, (bool, int, float)):
        _code(value)


def _code(value: object) -> str:
    if not is_code(value):
        raise InvalidInput("an audit entry holds counts and code words, and no content.")
    return str(value)
