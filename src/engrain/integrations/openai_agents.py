"""EngrainSession: the history of an OpenAI Agents session in a memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from engrain.core.errors import BackendMissing, BadText, Conflict, TooLarge
from engrain.core.model.messages import Message
from engrain.core.model.records import RecordKey
from engrain.core.validation import check_key, check_text
from engrain.ingest.write_messages import RecordOptions
from engrain.integrations.chat_log import LOGGED_ROLES
from engrain.integrations.memory_owners import AnyMemory, open_memory
from engrain.integrations.record_decoding import find_next_number, read_json
from engrain.tiers.records import IndexedDraft, IndexedRecord, IndexedRecords, encode_draft

try:
    from agents.memory.session import SessionABC
    from agents.memory.session_settings import SessionSettings, resolve_session_limit
except ImportError as exc:
    raise BackendMissing("the OpenAI Agents integration", "openai-agents") from exc

SPACE = "openai agents"
_DIGITS = 12  # of an item's number, so that keys order as the numbers do
_CLEARED_AT_ONCE = 500


class EngrainSession(SessionABC):
    """A session for Runner.run(agent, text, session=…).

        session = EngrainSession("monday", store.memory(user="ana"))

    Items come back as they were. The words of user and assistant also go to the log of the session with this name, so
    that `recall` finds them in later sessions, and lasting statements become facts; `log=False` leaves that out.
    """

    def __init__(
        self,
        session_id: str,
        memory: AnyMemory,
        *,
        session_settings: SessionSettings | None = None,
        log: bool = True,
    ) -> None:
        self.session_id = check_key(session_id, "session_id")
        self.session_settings = session_settings or SessionSettings()
        self._memory, self._log = open_memory(memory), log

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return await asyncio.to_thread(self._read_items, resolve_session_limit(limit, self.session_settings))

    async def add_items(self, items: list[Any]) -> None:
        await asyncio.to_thread(self._add_items, items)

    async def pop_item(self) -> Any | None:
        return await asyncio.to_thread(self._pop_item)

    async def clear_session(self) -> None:
        await asyncio.to_thread(self._clear)

    def _read_items(self, limit: int | None) -> list[Any]:
        """Return the latest items in order. A negative limit means all, as in the SDK's own sessions."""
        if limit is None or limit < 0:
            return [read_json(one) for one in self._open_records.iterate((self.session_id,), "ascending")]
        latest = islice(self._open_records.iterate((self.session_id,), "descending"), limit)
        return [read_json(one) for one in latest][::-1]

    def _add_items(self, items: Sequence[Any]) -> None:
        """Write the items, and their words to the log, in one transaction."""
        if not items:
            return
        bodies = [json.dumps(item).encode() for item in items]  # before anything is written
        words = [self._make_message(item) for item in items]
        said = [message for message in words if message]

        def write_records(ids: Sequence[str]) -> None:
            left, latest = iter(ids), self._find_latest()
            first = find_next_number(latest.key if latest else None, _DIGITS)
            drafts = [IndexedDraft(self._key(first + n), body) for n, body in enumerate(bodies)]
            owned = [[next(left)] if message else [] for message in words]
            records = [encode_draft(draft, items) for draft, items in zip(drafts, owned, strict=True)]
            self._memory.records.write(SPACE, records, expect=[(drafts[0].key, None)])

        while True:
            try:
                if said:
                    conversation = self._memory.session(self.session_id).conversation
                    conversation.append(said, RecordOptions(write_along=write_records))
                else:
                    write_records(())
                return
            except Conflict:  # somebody else added items just now
                continue

    def _pop_item(self) -> Any | None:
        """Remove the latest item and forget its words, so that recall does not find them."""
        while latest := self._find_latest():
            if removed := self._remove([latest]):
                return read_json(removed[0])
        return None

    def _clear(self) -> None:
        while stored := list(islice(self._open_records.iterate((self.session_id,), "descending"), _CLEARED_AT_ONCE)):
            self._remove(stored)

    def _remove(self, records: Sequence[IndexedRecord]) -> list[IndexedRecord]:
        """Remove those that are still there, with their words, and return them."""
        removed: list[IndexedRecord] = []

        def drop_all(before: Mapping[RecordKey, IndexedRecord]) -> Sequence[IndexedDraft]:
            removed[:] = before.values()
            return ()

        self._open_records.update([one.key for one in records], drop_all)
        return removed

    def _make_message(self, item: Any) -> Message | None:
        """Return the words of an item for the log; None if it has none, or they are too long for it."""
        role = item.get("role") if isinstance(item, Mapping) else None
        text = "\n".join(_list_texts(item)) if role in LOGGED_ROLES else ""
        if not self._log or not text.strip():
            return None
        try:
            return Message(str(role), check_text(text))
        except (TooLarge, BadText):  # the item is kept nevertheless
            return None

    def _find_latest(self) -> IndexedRecord | None:
        return next(self._open_records.iterate((self.session_id,), "descending", 1), None)

    @property
    def _open_records(self) -> IndexedRecords:
        return self._memory.records.indexed(SPACE)

    def _key(self, number: int) -> RecordKey:
        return self.session_id, f"{number:0{_DIGITS}}"


def _list_texts(item: Mapping[str, Any]) -> list[str]:
    """Return the texts of a message. Images and files have none."""
    content = item.get("content")
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else []
    return [part["text"] for part in parts if isinstance(part, Mapping) and isinstance(part.get("text"), str)]
