"""Decode the records of a framework: one that is damaged or forged is StoreCorrupt, whatever its decoder raises."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from engrain.core.errors import EngrainError, StoreCorrupt
from engrain.core.model.records import Record, RecordKey
from engrain.tiers.records import IndexedRecord

_SHOWN = 200  # characters of a key


@contextmanager
def decoding(key: RecordKey) -> Iterator[None]:
    """Raise StoreCorrupt for whatever goes wrong while the record of this key is decoded.

    Every Exception: a framework's decoder may raise what it likes, such as NotImplementedError for an unknown type.
    """
    try:
        yield
    except (EngrainError, MemoryError):
        raise
    except Exception as exc:
        raise corrupt_record(key, type(exc).__name__) from exc


def corrupt_record(key: RecordKey, reason: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"the record {'/'.join(key)[:_SHOWN]!r} is not what its integration writes ({reason}). "
        "Run: engrain doctor. Restore a backup."
    )


def read_json(record: Record | IndexedRecord) -> Any:
    with decoding(record.key):
        return json.loads(record.body)


def read_object(record: Record | IndexedRecord) -> dict[str, Any]:
    return check_object(read_json(record), record.key)


def check_object(value: Any, key: RecordKey) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise corrupt_record(key, f"{type(value).__name__} instead of an object")
    return value


def read_text(record: Record) -> str:
    with decoding(record.key):
        return record.body.decode()


def read_number(key: RecordKey, digits: int) -> int:
    """Return the number at the end of a key, which has this many digits: others would not order as the numbers do."""
    number = key[-1]
    if not (len(number) == digits and number.isascii() and number.isdigit()):
        raise corrupt_record(key, f"it does not end in a number of {digits} digits")
    return int(number)


def find_next_number(latest: RecordKey | None, digits: int) -> int:
    """Return the number behind the latest key. Behind the last one, a writer would find its place taken for ever."""
    following = 0 if latest is None else read_number(latest, digits) + 1
    if latest is not None and following >= 10**digits:
        raise corrupt_record(latest, "no number follows it")
    return following
