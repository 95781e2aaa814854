"""EngrainConversationStore: conversations of Pydantic AI in a memory."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pydantic
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)
from pydantic_ai.messages import ModelMessagesTypeAdapter

from engrain.core.errors import Conflict, NotFound
from engrain.core.model.records import Expected, Record, RecordDraft, RecordKey
from engrain.integrations.memory_owners import AnyMemory, open_memory
from engrain.integrations.record_decoding import corrupt_record, decoding
from engrain.integrations.record_reader import iterate_keys, iterate_records

SPACE = "pydantic ai"
CONVERSATION, ENTRY = "conversation", "entry"
# It changes with every write, so that a delete sees whether an entry may have come into use meanwhile.
_GENERATION: RecordKey = ("generation",)
_RECORD = pydantic.TypeAdapter(ConversationRecord)


class EntryNotFound(NotFound, KeyError):
    """There is no such entry. Pydantic AI expects a KeyError."""


class EngrainConversationStore(ConversationStore):
    """A conversation store over the memory of one user.

        store = EngrainConversationStore(engrain_store.memory(user="ana"))

    A save, its check of the revision and its new messages are one transaction. `delete` also removes the messages that
    no other conversation uses.
    """

    def __init__(self, memory: AnyMemory) -> None:
        self._records = open_memory(memory).records

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        stored = await asyncio.to_thread(self._find, (CONVERSATION, conversation_id))
        return _read_conversation(stored) if stored else None

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        found = await asyncio.to_thread(lambda: list(self._iterate_conversations()))
        chosen = [one for one in found if scope in (None, one.scope)]
        return sorted(chosen, key=lambda one: one.updated_at, reverse=True)[:limit]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        await asyncio.to_thread(self._write, record, new_entries, expected_revision)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        await asyncio.to_thread(self._delete, conversation_id, expected_revision)

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        return await asyncio.to_thread(self._load_entry, entry_id)

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        return await asyncio.to_thread(self._load_history, head_id, limit)

    def _write(
        self, record: ConversationRecord, new_entries: Sequence[ConversationEntry], expected_revision: str | None
    ) -> None:
        expected = [self._expect(record.conversation_id, expected_revision)]
        if record.head_id is not None and record.head_id not in {entry.id for entry in new_entries}:
            head = self._find((ENTRY, record.head_id))
            if head is None:
                raise ConversationConflict(record.conversation_id)
            expected.append((head.key, head.hash))
        drafts = [
            *(RecordDraft((ENTRY, entry.id), _encode_entry(entry)) for entry in new_entries),
            RecordDraft((CONVERSATION, record.conversation_id), _RECORD.dump_json(record)),
            RecordDraft(_GENERATION, secrets.token_bytes(8)),
        ]
        self._commit(record.conversation_id, drafts, (), expected)

    def _delete(self, conversation_id: str, expected_revision: str) -> None:
        expected = self._expect(conversation_id, expected_revision)
        self._commit(conversation_id, (), [expected[0]], [expected])
        while True:
            generation = self._find(_GENERATION)
            used = self._find_used(self._iterate_conversations())
            unused = [key for key in iterate_keys(self._records, SPACE, (ENTRY,)) if _read_entry_id(key) not in used]
            try:
                return self._records.write(
                    SPACE, drops=unused, expect=[(_GENERATION, generation.hash if generation else None)]
                )
            except Conflict:  # somebody saved a conversation meanwhile
                continue

    def _expect(self, conversation_id: str, revision: str | None) -> Expected:
        """Return what the record must be for a write to succeed."""
        stored = self._find((CONVERSATION, conversation_id))
        if (_read_conversation(stored).revision if stored else None) != revision:
            raise ConversationConflict(conversation_id)
        return (CONVERSATION, conversation_id), stored.hash if stored else None

    def _commit(
        self,
        conversation_id: str,
        drafts: Sequence[RecordDraft],
        drops: Sequence[RecordKey],
        expected: Sequence[Expected],
    ) -> None:
        try:
            self._records.write(SPACE, drafts, drops=drops, expect=expected)
        except Conflict as exc:
            raise ConversationConflict(conversation_id) from exc

    def _find_used(self, records: Iterable[ConversationRecord]) -> set[str]:
        used: set[str] = set()
        for record in records:
            for tip in (record.head_id, *record.branches):
                following = tip
                while following is not None and following not in used:
                    used.add(following)
                    following = self._load_entry(following).parent_id
        return used

    def _load_history(self, head_id: str | None, limit: int | None) -> list[ConversationEntry]:
        entries: dict[str, ConversationEntry] = {}
        while head_id is not None and (limit is None or len(entries) < limit):
            if head_id in entries:
                raise corrupt_record((ENTRY, head_id), "it follows itself")
            entries[head_id] = self._load_entry(head_id)
            head_id = entries[head_id].parent_id
        return list(entries.values())[::-1]

    def _load_entry(self, entry_id: str) -> ConversationEntry:
        stored = self._find((ENTRY, entry_id))
        if stored is None:
            raise EntryNotFound(entry_id)
        return _read_entry(stored)

    def _iterate_conversations(self) -> Iterator[ConversationRecord]:
        return (_read_conversation(one) for one in iterate_records(self._records, SPACE, (CONVERSATION,)))

    def _find(self, key: RecordKey) -> Record | None:
        found = self._records.read(SPACE, [key])
        return found[0] if found else None


def _read_conversation(record: Record) -> ConversationRecord:
    with decoding(record.key):
        return _RECORD.validate_json(record.body)


def _read_entry_id(key: RecordKey) -> str:
    with decoding(key):
        _, id = key  # a shorter key would be the prefix of other entries, which a drop would take along
        return id


def _read_entry(record: Record) -> ConversationEntry:
    head, _, message = record.body.partition(b"\n")
    with decoding(record.key):
        (parsed,) = ModelMessagesTypeAdapter.validate_json(message)
        values: dict[str, Any] = json.loads(head)
        parent, kind = values["parent_id"], values["kind"]
        if not isinstance(parent, str | None) or not isinstance(kind, str):
            raise TypeError("an id or a kind that is no text")
        return ConversationEntry(id=_read_entry_id(record.key), parent_id=parent, kind=kind, message=parsed)


def _encode_entry(entry: ConversationEntry) -> bytes:
    head = {"parent_id": entry.parent_id, "kind": entry.kind}
    message: bytes = ModelMessagesTypeAdapter.dump_json([entry.message])
    return json.dumps(head).encode() + b"\n" + message
