"""EngrainSession: the history of an OpenAI Agents session in a memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from engrain.core.errors import BackendMissing, Conflict, TooLarge
from engrain.core.model.records import MAX_SCAN, Record, RecordDraft, RecordKey
from engrain.core.validation import check_key
from engrain.memory.memory import Memory

try:
    from agents.memory.session import SessionABC
    from agents.memory.session_settings import SessionSettings, resolve_session_limit
except ImportError as exc:
    raise BackendMissing("the OpenAI Agents integration", "openai-agents") from exc

SPACE = "openai agents"
_LOGGED_ROLES = ("user", "assistant")
_DIGITS = 12  # of an item's number, so that keys order as the numbers do


class EngrainSession(SessionABC):
    """A session for Runner.run(agent, text, session=…).

        session = EngrainSession("monday", store.memory(user="ana"))

    Items come back as they were. The words of user and assistant also go to the log of the session with this name, so
    that `recall` finds them in later sessions, and lasting statements become facts; `log=False` leaves that out.
    """

    def __init__(
        self,
        session_id: str,
        memory: Memory,
        *,
        session_settings: SessionSettings | None = None,
        log: bool = True,
    ) -> None:
        self.session_id = check_key(session_id, "session_id")
        self.session_settings = session_settings or SessionSettings()
        self._memory, self._log = memory, log

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
        if limit is not None and limit >= 0:
            return [_decode(one)["item"] for one in self._scan_latest(limit)][::-1]
        return [_decode(one)["item"] for one in self._iterate()]

    def _add_items(self, items: Sequence[Any]) -> None:
        if not items:
            return None
        encoded = [json.dumps(item) for item in items]  # before anything is written
        ids = [self._add_to_log(item) for item in items]
        bodies = [f'{{"log":{json.dumps(id)},"item":{item}}}'.encode() for id, item in zip(ids, encoded, strict=True)]
        while True:
            latest = self._scan_latest(1)
            first = int(latest[0].key[1]) + 1 if latest else 0
            drafts = [RecordDraft(self._key(first + n), body) for n, body in enumerate(bodies)]
            try:
                return self._memory.records.write(SPACE, drafts, expect=[(drafts[0].key, None)])
            except Conflict:  # somebody else added items just now
                continue

    def _pop_item(self) -> Any | None:
        while latest := self._scan_latest(1):
            last = latest[0]
            try:
                self._memory.records.write(SPACE, drops=[last.key], expect=[(last.key, last.hash)])
            except Conflict:  # somebody else popped it just now
                continue
            self._forget(last)
            return _decode(last)["item"]
        return None

    def _clear(self) -> None:
        stored = list(self._iterate())
        self._memory.records.drop(SPACE, (self.session_id,))
        for one in stored:
            self._forget(one)

    def _add_to_log(self, item: Any) -> str | None:
        """Keep the words of a message, and return the id in the log; None if it has none."""
        role = item.get("role") if isinstance(item, Mapping) else None
        text = "\n".join(_list_texts(item)) if role in _LOGGED_ROLES else ""
        if not self._log or not text.strip():
            return None
        try:
            return self._memory.add_message(str(role), text, session=self.session_id).id
        except TooLarge:  # the item is kept nevertheless
            return None

    def _forget(self, record: Record) -> None:
        """Forget the words of a removed item, so that recall does not find them."""
        id = _decode(record)["log"]
        if id is not None and self._memory.get(id) is not None:
            self._memory.forget(id)

    def _scan_latest(self, limit: int) -> list[Record]:
        if limit == 0:
            return []
        limit = min(limit, MAX_SCAN)
        return self._memory.records.scan(SPACE, (self.session_id,), limit=limit, order="descending")

    def _iterate(self) -> Iterator[Record]:
        after: RecordKey | None = None
        while page := self._memory.records.scan(SPACE, (self.session_id,), after=after):
            yield from page
            after = page[-1].key

    def _key(self, number: int) -> RecordKey:
        return self.session_id, f"{number:0{_DIGITS}}"


def _decode(record: Record) -> Any:
    return json.loads(record.body)


def _list_texts(item: Mapping[str, Any]) -> list[str]:
    """Return the texts of a message. Images and files have none."""
    content = item.get("content")
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else []
    return [part["text"] for part in parts if isinstance(part, Mapping) and isinstance(part.get("text"), str)]
