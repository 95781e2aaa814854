"""EngrainMemoryService: what was said in sessions of Google ADK, remembered and searched."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.genai import types

from engrain.core.errors import NotFound
from engrain.core.model.records import RecordDraft
from engrain.integrations.chat_log import clean_query, keep_words
from engrain.integrations.memory_owners import AnyStore, open_store
from engrain.memory.memory import Memory

SPACE = "google adk memory"
MAX_RESULTS = 10


class EngrainMemoryService(BaseMemoryService):
    """A memory service for Runner(memory_service=…). Each user of an app has a memory, with the app as its agent.

    The texts of events go to the log of their session, each event once, and lasting statements of the user become
    facts. `search_memory` recalls by meaning and words.
    """

    def __init__(self, store: AnyStore, *, tenant: str | None = None, results: int = MAX_RESULTS) -> None:
        self._store, self._tenant, self._results = open_store(store), tenant, results

    async def add_session_to_memory(self, session: Any) -> None:
        memory = self._open(session.app_name, session.user_id)
        await asyncio.to_thread(self._add_events, memory, session.id, session.events)

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Any],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        memory = self._open(app_name, user_id)
        await asyncio.to_thread(self._add_events, memory, session_id or "events", events)

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        memory = self._open(app_name, user_id)
        texts = [text for one in memories if (text := _read_text(one.content))]
        await asyncio.to_thread(memory.remember_many, texts)

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        memory = self._open(app_name, user_id)
        if not (cleaned := clean_query(query)):
            return SearchMemoryResponse()
        recalled = await asyncio.to_thread(memory.recall, cleaned, n=self._results)
        return SearchMemoryResponse(memories=[_make_entry(hit) for hit in recalled.hits])

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        """Forget what `search_memory` found under this id. Adding its session again does not bring it back."""
        memory = self._open(app_name, user_id)
        if memory_id is None or await asyncio.to_thread(memory.get, memory_id) is None:
            raise NotFound(f"there is no memory {memory_id!r} of this user.")
        await asyncio.to_thread(memory.forget, memory_id)

    def _open(self, app_name: str, user_id: str) -> Memory:
        return self._store.memory(user=user_id, agent=app_name, tenant=self._tenant)

    def _add_events(self, memory: Memory, session: str, events: Iterable[Any]) -> None:
        for event in events:
            text, key = _read_text(event.content), (session, event.id)
            if not text or event.partial or memory.records.read(SPACE, [key]):
                continue
            role = "user" if event.author == "user" else "assistant"
            said = datetime.fromtimestamp(event.timestamp, UTC)
            # Repeated after a kill between the two writes, it returns the first answer.
            named = {"session": session, "request_id": f"adk-{session}-{event.id}"}
            keep_words(memory, role, text, occurred_at=said, **named)
            memory.records.write(SPACE, [RecordDraft(key, b"")])


def _read_text(content: Any) -> str:
    parts = content.parts or [] if content else []
    return "\n".join(part.text for part in parts if part.text and not part.thought).strip()


def _make_entry(hit: Any) -> MemoryEntry:
    role = "model" if hit.item.role == "assistant" else "user"
    at = hit.item.occurred_at or hit.item.recorded_at
    content = types.Content(role=role, parts=[types.Part(text=hit.text)])
    metadata = {"relevance": hit.relevance, "trust": hit.item.trust}
    return MemoryEntry(id=hit.item.id, content=content, author=role, timestamp=at.isoformat(), custom_metadata=metadata)
