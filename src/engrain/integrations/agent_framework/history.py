"""EngrainHistoryProvider: the messages of sessions of Microsoft Agent Framework in a memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from agent_framework import HistoryProvider, Message

from engrain.core.errors import Conflict, InvalidInput
from engrain.core.model.records import Record, RecordDraft
from engrain.core.validation import check_key
from engrain.integrations.memory_owners import AnyMemory, open_memory
from engrain.integrations.record_decoding import decoding, find_next_number, read_object
from engrain.integrations.record_reader import iterate_records

SPACE = "agent framework"
_WITHOUT_SESSION = "default"
_DIGITS = 12  # of a message's number, so that keys order as the numbers do


class EngrainHistoryProvider(HistoryProvider):
    """A history provider for Agent(context_providers=[…]): messages come back as they were, in another process too.

        history = EngrainHistoryProvider(store.memory(user="ana"))

    Messages that are handed over again are stored once. Those of two programs that save at once are all kept.
    """

    def __init__(self, memory: AnyMemory, source_id: str = "engrain_history", **options: Any) -> None:
        super().__init__(source_id, **options)
        self._records = open_memory(memory).records

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[Message]:
        return await asyncio.to_thread(self._load, _name(session_id))

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if messages:
            await asyncio.to_thread(self._save, _name(session_id), messages)

    async def clear(self, session_id: str | None) -> None:
        """Drop the messages of a session, down to the bytes."""
        await asyncio.to_thread(self._records.drop, SPACE, (_name(session_id),))

    def _load(self, session: str) -> list[Message]:
        return [_read(one) for one in iterate_records(self._records, SPACE, (session,))]

    def _save(self, session: str, messages: Sequence[Message]) -> None:
        while True:
            # One more than are given tells whether the stored ones are fewer.
            latest = self._records.scan(SPACE, (session,), limit=len(messages) + 1, order="descending")
            first = find_next_number(latest[0].key if latest else None, _DIGITS)
            new = _find_new([_read(one) for one in latest[::-1]], messages)
            drafts = [RecordDraft((session, f"{first + n:0{_DIGITS}}"), _encode(one)) for n, one in enumerate(new)]
            try:
                return self._records.write(SPACE, drafts, expect=[(draft.key, None) for draft in drafts[:1]])
            except Conflict:  # somebody else saved messages just now
                continue


def _find_new(stored: Sequence[Message], given: Sequence[Message]) -> list[Message]:
    """Return the messages behind those that are stored: a caller may hand over the history again.

    A single question without an id that repeats the last one is new, because people ask twice.
    """
    if not stored:
        return list(given)
    old, new = [_identify(one) for one in stored], [_identify(one) for one in given]
    asked_twice = stored[-1].role == "user" and old[-1][0] != "id"
    for start in range(len(new) - len(old) + 1):
        if new[start : start + len(old)] == old and not (len(old) == 1 and start == 0 and asked_twice):
            return list(given[start + len(old) :])
        if len(old) == 1 and new[start] == old[0]:
            break
    for size in range(min(len(old), len(new)), 0, -1):
        if old[-size:] == new[:size] and not (size == 1 and asked_twice):
            return list(given[size:])
    return list(given)


def _identify(message: Message) -> tuple[str, ...]:
    if message.message_id is not None:
        return "id", str(message.message_id)
    contents = [one.to_dict() for one in message.contents or ()]
    return "content", str(message.role), json.dumps(contents, sort_keys=True, default=str)


def _name(session_id: str | None) -> str:
    return _WITHOUT_SESSION if session_id is None else check_key(session_id, "session_id")


def _encode(message: Message) -> bytes:
    try:
        return json.dumps(message.to_dict(), ensure_ascii=False).encode("utf-8", "replace")
    except TypeError as exc:
        raise InvalidInput(f"a message must be plain JSON: {exc}.") from exc


def _read(record: Record) -> Message:
    values = read_object(record)
    with decoding(record.key):
        message = Message.from_dict(values)
        _identify(message)  # so that its contents are messages' contents too
        return message
