"""Records: opaque bodies under keys of several parts, for data that a framework reads and writes by itself."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from engrain.core.errors import BadText, InvalidInput, TooLarge
from engrain.core.validation import check_key, check_list, check_sized_text

RecordKey = tuple[str, ...]
Expected = tuple[RecordKey, str | None]  # the key, and the hash of the body that it must have; None for no record
ScanOrder = Literal["ascending", "descending", "newest"]
MAX_BODY = 16_000_000  # bytes
MAX_WRITE = 64_000_000  # bytes of all bodies of one call
MAX_KEY = 2_000  # bytes of all parts; a page of an index in Postgres holds no more than 2,704
MAX_SPACE = 100
MAX_SCAN = 100_000
# Records of this space go with the item whose id is the first part of their key.
ATTACHMENTS = "attachments"
# It ends each part of a stored key, so that keys sort part by part. No part may contain it.
_END = "\x01"
_AFTER_END = "\x02"


@dataclass(frozen=True, slots=True)
class Record:
    """A stored body. `hash` is for a later write that expects this body."""

    key: RecordKey
    body: bytes
    written_at: datetime
    expires_at: datetime | None = None

    @property
    def hash(self) -> str:
        return hash_body(self.body)


@dataclass(frozen=True, slots=True)
class RecordDraft:
    """A body to write. With `keep`, a record that exists stays as it is. After `expires_at` nobody finds it."""

    key: RecordKey
    body: bytes
    keep: bool = False
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class RecordWrite:
    """One transaction: what to drop, then what to put, if the expected records are there."""

    space: str
    puts: Sequence[RecordDraft] = ()
    drops: Sequence[RecordKey] = ()
    expect: Sequence[Expected] = ()


@dataclass(frozen=True, slots=True)
class RecordScan:
    """Records under a prefix by key, or with "newest" in the order of writing; those behind `after`, if it is given."""

    space: str
    prefix: RecordKey = ()
    limit: int = MAX_SCAN
    order: ScanOrder = "ascending"
    after: RecordKey | None = None


def hash_body(body: bytes) -> str:
    """Return the SHA-256 of a body as hexadecimal digits."""
    return hashlib.sha256(body).hexdigest()


def encode_key(key: RecordKey) -> str:
    """Return the stored form of a key. Stored forms order as the keys do, by code point and part by part."""
    return _END + "".join(part + _END for part in key)


def decode_key(text: str) -> RecordKey:
    return tuple(text[1:].split(_END)[:-1])


def find_range(prefix: RecordKey, order: ScanOrder = "ascending", after: RecordKey | None = None) -> tuple[str, str]:
    """Return the first stored key under a prefix, and the first one beyond it; with `after`, of the rest of a scan."""
    low = encode_key(prefix)
    high = low[:-1] + _AFTER_END
    if after is None or order == "newest":
        return low, high
    # The next stored key may be that of an empty part.
    return (max(low, encode_key(after) + _END), high) if order == "ascending" else (low, min(high, encode_key(after)))


def check_record_key(key: object, what: str = "key") -> RecordKey:
    """Return a key of at least one part."""
    found = check_prefix(key, what)
    if not found:
        raise InvalidInput(f"a {what} needs at least one part.")
    return found


def check_prefix(key: object, what: str = "prefix") -> RecordKey:
    """Return the first parts of a key; () is the prefix of every key."""
    parts = tuple(check_list(key, what))
    for part in parts:
        check_sized_text(part, f"a part of a {what}", MAX_KEY)
        if _END in part:
            raise BadText(f"a part of a {what} has the control character U+0001. Encode it, for example as hex digits.")
    size = len(encode_key(parts).encode())
    if size > MAX_KEY:
        raise TooLarge(f"a {what} has {size:,} bytes; the limit is {MAX_KEY:,}. Use a hash of the long part.")
    return parts


def check_space(space: object) -> str:
    """Return the name of a space, such as "langgraph"."""
    return check_sized_text(check_key(space, "space"), "space", MAX_SPACE)


def check_drafts(drafts: object) -> list[RecordDraft]:
    """Return the drafts with the last one of each key, because it replaces those before it."""
    found: dict[RecordKey, RecordDraft] = {}
    for draft in check_list(drafts, "puts"):
        if not isinstance(draft, RecordDraft):
            raise InvalidInput(f"puts takes RecordDrafts, not {type(draft).__name__}.")
        _check_body(draft.body)
        key = check_record_key(draft.key)
        if not (draft.keep and key in found):
            found[key] = draft
    size = sum(len(draft.body) for draft in found.values())
    if size > MAX_WRITE:
        raise TooLarge(f"one write has {size:,} bytes; the limit is {MAX_WRITE:,}. Write in several calls.")
    return list(found.values())


def _check_body(body: object) -> None:
    if not isinstance(body, bytes):
        raise InvalidInput(f"a body must be bytes, not {type(body).__name__}. Serialise it first.")
    if len(body) > MAX_BODY:
        raise TooLarge(f"a body has {len(body):,} bytes; the limit is {MAX_BODY:,}. Store it in parts.")


def check_expected(expect: object) -> list[Expected]:
    """Return pairs of a key and the hash of its body."""
    found: list[Expected] = []
    for pair in check_list(expect, "expect"):
        if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
            raise InvalidInput("expect takes pairs of a key and a hash, or None for no record.")
        key, digest = pair
        if digest is not None and not (isinstance(digest, str) and len(digest) == 64):
            raise InvalidInput("a hash must be the 64 hexadecimal digits of Record.hash, or None for no record.")
        found.append((check_record_key(key), digest))
    return found


def describe_conflict(space: str, key: RecordKey, expected: str | None) -> str:
    name = "/".join(key)
    if expected is None:
        return f"the record {name!r} of {space!r} exists already. Read it, then write again."
    return f"the record {name!r} of {space!r} was changed or dropped since it was read. Read it, then write again."
