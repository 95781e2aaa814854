"""Checkpoints of LangGraph as records: their keys and bodies."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata, CheckpointTuple, PendingWrite, writes_sort_key
from langgraph.checkpoint.serde.base import SerializerProtocol

from engrain.core.model.records import MAX_SCAN, Record, RecordKey
from engrain.integrations.record_decoding import check_object, decoding
from engrain.tiers.records import ScopedRecords

SPACE = "langgraph"
# The first part of a key. A thread, a namespace and the rest follow.
CHECKPOINT, BLOB, WRITE, DELETED = "checkpoint", "blob", "write", "deleted"
EMPTY = "empty"  # the type of a channel without a value
_PAGE = 50


class Place(NamedTuple):
    """The key of a checkpoint."""

    thread: str
    namespace: str
    id: str
    run: str = ""

    def under(self, kind: str) -> RecordKey:
        return kind, self.thread, self.namespace, self.id

    def config(self) -> RunnableConfig:
        names = {"thread_id": self.thread, "checkpoint_ns": self.namespace, "checkpoint_id": self.id}
        return {"configurable": names}


class Stored(NamedTuple):
    place: Place
    parent: str | None
    checkpoint: Checkpoint
    metadata: CheckpointMetadata


class CheckpointBodies:
    """Writes and reads the bodies with the serializer of a saver."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self._serde = serde

    def pack_checkpoint(self, parent: str | None, checkpoint: object, metadata: object) -> bytes:
        """Write a checkpoint without its values, and its metadata."""
        head, first = self._serde.dumps_typed(checkpoint)
        kind, second = self._serde.dumps_typed(metadata)
        return pack([parent, head, kind, len(first)], first + second)

    def pack_empty(self) -> bytes:
        """Write a channel without a value."""
        return pack([EMPTY], b"")

    def pack_value(self, head: list[str], value: Any) -> bytes:
        kind, data = self._serde.dumps_typed(value)
        return pack([*head, kind], data)

    def read_checkpoint(self, record: Record) -> Stored:
        place = read_place(record.key)
        with decoding(record.key):
            (parent, head, kind, size), data = _unpack(record.body)
            checkpoint = check_object(self._serde.loads_typed((head, data[:size])), record.key)
            metadata = check_object(self._serde.loads_typed((kind, data[size:])), record.key)
            check_object(checkpoint["channel_versions"], record.key)
            if not isinstance(parent, str | None):
                raise TypeError("an id that is no text")
            return Stored(place, parent, cast(Checkpoint, checkpoint), cast(CheckpointMetadata, metadata))

    def read_checkpoints(self, records: ScopedRecords, places: Sequence[Place]) -> Iterator[Stored]:
        for start in range(0, len(places), _PAGE):
            keys = [(*place.under(CHECKPOINT), place.run) for place in places[start : start + _PAGE]]
            yield from map(self.read_checkpoint, records.read(SPACE, keys))

    def load(self, records: ScopedRecords, stored: Stored) -> CheckpointTuple | None:
        """Add the values and the pending writes; None if the checkpoint was removed meanwhile."""
        place, versions = stored.place, stored.checkpoint["channel_versions"]
        channels = {blob_key(place, *one): one[0] for one in versions.items()}
        values: dict[str, Any] = {}
        blobs = records.read(SPACE, list(channels))
        for one in blobs:
            with decoding(one.key):
                (kind,), data = _unpack(one.body)
                if kind != EMPTY:
                    values[channels[one.key]] = self._serde.loads_typed((kind, data))
        writes = self._load_writes(records, place)
        if len(blobs) < len(channels) and not records.keys(SPACE, place.under(CHECKPOINT), limit=1):
            return None
        checkpoint: Checkpoint = {**stored.checkpoint, "channel_values": values}
        parent = place._replace(id=stored.parent).config() if stored.parent else None
        return CheckpointTuple(place.config(), checkpoint, stored.metadata, parent, writes)

    def _load_writes(self, records: ScopedRecords, place: Place) -> list[PendingWrite]:
        found: list[tuple[tuple[str, str, int], PendingWrite]] = []
        for one in records.scan(SPACE, place.under(WRITE), limit=MAX_SCAN):
            with decoding(one.key):
                (channel, path, kind), data = _unpack(one.body)
                task, index = one.key[4:]
                value = self._serde.loads_typed((kind, data))
                found.append((writes_sort_key(path, task, int(index)), (task, channel, value)))
        return [write for _, write in sorted(found, key=lambda pair: pair[0])]


def read_place(key: RecordKey) -> Place:
    with decoding(key):
        _, thread, namespace, id, run = key
        return Place(thread, namespace, id, run)


def blob_key(place: Place, channel: str, version: object) -> RecordKey:
    return BLOB, place.thread, place.namespace, channel, str(version)


def pack(head: Sequence[Any], data: bytes) -> bytes:
    """Write a line of JSON and the data behind it."""
    return json.dumps(head, separators=(",", ":")).encode() + b"\n" + data


def _unpack(body: bytes) -> tuple[Sequence[Any], bytes]:
    head, _, data = body.partition(b"\n")
    return json.loads(head), data
