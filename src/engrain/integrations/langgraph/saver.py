"""EngrainSaver: LangGraph's checkpoints in a memory."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.base import SerializerProtocol

from engrain.core.clock import check_duration
from engrain.core.errors import Conflict, InvalidInput
from engrain.core.model.records import RecordDraft, RecordKey
from engrain.integrations.langgraph.async_methods import ThreadedSaver
from engrain.integrations.langgraph.checkpoints import (
    BLOB,
    CHECKPOINT,
    DELETED,
    SPACE,
    WRITE,
    CheckpointBodies,
    Place,
    blob_key,
    read_place,
)  # fmt: skip
from engrain.integrations.memory_owners import AnyMemory, AnyStore, Owners, UserOf
from engrain.integrations.record_decoding import corrupt_record, decoding, read_text
from engrain.integrations.record_reader import iterate_keys
from engrain.tiers.records import ScopedRecords

_COPIED_BYTES = 32_000_000
# A run that was going on when its thread was deleted has ended by then.
_DELETED_FOR = timedelta(days=7)
_log = logging.getLogger("engrain")


class EngrainSaver(ThreadedSaver):
    """A checkpointer for graph.compile(checkpointer=…), sync and async.

        saver = EngrainSaver(store, user_of=lambda config: config["configurable"]["user_id"])

    With a Memory, all threads belong to it. With a Store, `user_of` names the user of a config, and the thread is kept
    in that user's memory: `store.erase(user=…)` then erases it. A channel's value is stored once per version. With
    `ttl`, a checkpoint expires so many seconds after it was written, and maintenance removes it.
    """

    def __init__(
        self,
        memory: AnyMemory | AnyStore,
        *,
        user_of: UserOf | None = None,
        tenant: str | None = None,
        agent: str | None = None,
        ttl: timedelta | float | None = None,
        serde: SerializerProtocol | None = None,
    ) -> None:
        super().__init__(serde=serde)
        self._owners = Owners(memory, user_of, tenant, agent)
        self._ttl = None if ttl is None else check_duration(ttl, "ttl")

    # Read

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        records, thread, namespace = self._locate(config)
        id = get_checkpoint_id(config)
        under = (CHECKPOINT, thread, namespace, *([id] if id else []))
        found = records.scan(SPACE, under, limit=1, order="descending")
        while found:
            loaded = self._bodies.load(records, self._bodies.read_checkpoint(found[0]))
            if loaded is not None:
                return loaded._replace(config=config) if id else loaded
            found = records.scan(SPACE, under, limit=1, order="descending")  # it was removed meanwhile
        return None

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        named = config["configurable"] if config else {}
        thread, namespace = named.get("thread_id"), named.get("checkpoint_ns")
        id, end = get_checkpoint_id(config) if config else None, get_checkpoint_id(before) if before else None
        under = (CHECKPOINT, *([str(thread)] if thread else []))
        left = -1 if limit is None else max(limit, 0)
        for memory in self._owners.list_all(SPACE, under) if config is None else [self._owners.find(config)]:
            records = memory.records
            places = [read_place(key) for key in iterate_keys(records, SPACE, under)]
            chosen = [
                place
                for place in sorted(places, key=lambda place: place.id, reverse=True)
                if namespace in (None, place.namespace) and id in (None, place.id) and not (end and place.id >= end)
            ]
            for stored in self._bodies.read_checkpoints(records, chosen):
                if left == 0:
                    return
                if filter and any(stored.metadata.get(name) != value for name, value in filter.items()):
                    continue
                if (loaded := self._bodies.load(records, stored)) is not None:
                    left -= 1
                    yield loaded

    # Write

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        records, thread, namespace = self._locate(config)
        merged = get_checkpoint_metadata(config, metadata)
        place = Place(thread, namespace, checkpoint["id"], str(merged.get("run_id") or ""))
        parent = get_checkpoint_id(config)
        plain: dict[str, Any] = {**checkpoint}
        values = plain.pop("channel_values")
        bodies = {
            blob_key(place, channel, version): self._bodies.pack_empty()
            if channel not in values
            else self._bodies.pack_value([], values[channel])
            for channel, version in new_versions.items()
        }
        kept = self._refresh(records, place, checkpoint["channel_versions"], bodies)
        bodies[*place.under(CHECKPOINT), place.run] = self._bodies.pack_checkpoint(parent, plain, merged)
        ends = self._find_expiry(records)
        drafts = [RecordDraft(key, body, expires_at=ends) for key, body in {**kept, **bodies}.items()]
        ancestors = [(namespace, parent), *(merged.get("parents") or {}).items()]
        # A checkpoint that is put again may have another run.
        self._write(records, thread, ancestors, drafts, [place.under(CHECKPOINT)])
        return place.config()

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        records, thread, namespace = self._locate(config)
        place = Place(thread, namespace, config["configurable"]["checkpoint_id"])
        drafts = []
        for n, (channel, value) in enumerate(writes):
            index = WRITES_IDX_MAP.get(channel, n)
            key = (*place.under(WRITE), task_id, str(index))
            # The first write of a task stands; that of a special channel, such as an error, is replaced.
            body = self._bodies.pack_value([channel, task_path], value)
            drafts.append(RecordDraft(key, body, index >= 0, self._find_expiry(records)))
        self._write(records, thread, [(namespace, place.id)], drafts)

    def _write(
        self,
        records: ScopedRecords,
        thread: str,
        ancestors: Iterable[tuple[str, str | None]],
        drafts: Sequence[RecordDraft],
        drops: Sequence[RecordKey] = (),
    ) -> None:
        """Write unless the thread was deleted since its run began: a late write must not bring it back."""
        known = [Place(thread, namespace, id) for namespace, id in ancestors if id]
        while True:
            marks = records.read(SPACE, [(DELETED, thread)])
            if marks and any(_is_gone(records, place, read_text(marks[0])) for place in known):
                _log.info("a checkpoint was not stored: its thread was deleted meanwhile.")
                return None
            expected = (DELETED, thread), marks[0].hash if marks else None
            try:
                return records.write(SPACE, drafts, drops=drops, expect=[expected])
            except Conflict:  # deleted just now
                continue

    # Remove and copy

    def delete_thread(self, thread_id: str) -> None:
        for memory in self._owners.list_all(SPACE, (CHECKPOINT, thread_id), (WRITE, thread_id)):
            records = memory.records
            mark = str(uuid6(clock_seq=-1)).encode()  # orders like the ids of checkpoints
            ends = records.now() + _DELETED_FOR
            drops = [(kind, thread_id) for kind in (CHECKPOINT, BLOB, WRITE)]
            records.write(SPACE, [RecordDraft((DELETED, thread_id), mark, expires_at=ends)], drops=drops)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        wanted = set(map(str, run_ids))
        for memory in self._owners.list_all(SPACE, (CHECKPOINT,)) if wanted else ():
            records = memory.records
            places = [read_place(key) for key in iterate_keys(records, SPACE, (CHECKPOINT,))]
            self._drop(records, [place for place in places if place.run in wanted])

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        for memory in self._owners.list_all(SPACE, (CHECKPOINT, source_thread_id)):
            records = memory.records
            for kind in (BLOB, WRITE, CHECKPOINT):  # whoever finds a checkpoint finds its values
                waiting, size = list[RecordDraft](), 0
                for key in iterate_keys(records, SPACE, (kind, source_thread_id)):
                    for one in records.read(SPACE, [key]):
                        target = (kind, target_thread_id, *one.key[2:])
                        waiting.append(RecordDraft(target, one.body, expires_at=one.expires_at))
                        size += len(one.body)
                    if size > _COPIED_BYTES:
                        records.write(SPACE, waiting)
                        waiting, size = [], 0
                records.write(SPACE, waiting)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        if strategy not in ("keep_latest", "delete"):
            raise InvalidInput(f'strategy must be "keep_latest" or "delete", not {strategy!r:.80}.')
        for thread in thread_ids:
            if strategy == "delete":
                self.delete_thread(thread)
                continue
            for memory in self._owners.list_all(SPACE, (CHECKPOINT, thread)):
                records = memory.records
                places = [read_place(key) for key in iterate_keys(records, SPACE, (CHECKPOINT, thread))]
                latest = {place.namespace: place for place in places}  # keys come in order
                kept = {place for one in latest.values() for place in self._find_chain(records, one)}
                self._drop(records, [place for place in places if place not in kept])

    def _find_chain(self, records: ScopedRecords, latest: Place) -> Iterator[Place]:
        """Yield a checkpoint, and those before it that its delta channels are rebuilt from."""
        missing: set[str] | None = None
        following: Place | None = latest
        seen: set[str] = set()
        while following is not None:
            if following.id in seen:
                raise corrupt_record(following.under(CHECKPOINT), "it follows itself")
            seen.add(following.id)
            found = records.scan(SPACE, following.under(CHECKPOINT), limit=1)
            loaded = self._bodies.load(records, self._bodies.read_checkpoint(found[0])) if found else None
            if not found or loaded is None:
                return
            yield read_place(found[0].key)
            if missing is None:
                with decoding(found[0].key):
                    missing = set(loaded.metadata.get("counters_since_delta_snapshot") or ())
            missing -= loaded.checkpoint["channel_values"].keys()
            parent = get_checkpoint_id(loaded.parent_config) if loaded.parent_config and missing else None
            following = following._replace(id=parent) if parent else None

    def _drop(self, records: ScopedRecords, places: Sequence[Place]) -> None:
        """Drop checkpoints with their writes, then the values that no other checkpoint has."""
        drops = [place.under(kind) for place in places for kind in (CHECKPOINT, WRITE)]
        if drops:
            records.write(SPACE, drops=drops)
        for thread, namespace in dict.fromkeys((place.thread, place.namespace) for place in places):
            # Before the checkpoints are read: a value that is written since is not among them.
            blobs = list(iterate_keys(records, SPACE, (BLOB, thread, namespace)))
            left = [read_place(key) for key in iterate_keys(records, SPACE, (CHECKPOINT, thread, namespace))]
            used = {
                blob_key(stored.place, channel, version)
                for stored in self._bodies.read_checkpoints(records, left)
                for channel, version in stored.checkpoint["channel_versions"].items()
            }
            records.write(SPACE, drops=[key for key in blobs if key not in used])

    # Bodies

    def _find_expiry(self, records: ScopedRecords) -> datetime | None:
        return None if self._ttl is None else records.now() + self._ttl

    def _refresh(
        self, records: ScopedRecords, place: Place, versions: ChannelVersions, new: Mapping[RecordKey, bytes]
    ) -> dict[RecordKey, bytes]:
        """Return the older values of a checkpoint that would expire long before it."""
        if self._ttl is None:
            return {}
        soon = records.now() + self._ttl / 2
        older = [key for one in versions.items() if (key := blob_key(place, *one)) not in new]
        return {one.key: one.body for one in records.read(SPACE, older) if one.expires_at and one.expires_at < soon}

    @property
    def _bodies(self) -> CheckpointBodies:
        return CheckpointBodies(self.serde)  # LangGraph copies a saver and gives the copy a stricter one

    def _locate(self, config: RunnableConfig) -> tuple[ScopedRecords, str, str]:
        named = config["configurable"]
        return self._owners.find(config).records, str(named["thread_id"]), named.get("checkpoint_ns", "")

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Two runs that fork from one checkpoint give their values different versions."""
        with decoding((CHECKPOINT, f"version of {channel}")):
            number = 0 if current is None else int(str(current).split(".")[0])
        return f"{number + 1:032}.{secrets.token_hex(8)}"


def _is_gone(records: ScopedRecords, place: Place, mark: str) -> bool:
    """Tell whether a checkpoint is older than the deletion of its thread, and was not copied back since."""
    return place.id < mark and not records.keys(SPACE, place.under(CHECKPOINT), limit=1)
