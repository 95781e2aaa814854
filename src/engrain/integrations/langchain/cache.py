"""EngrainCache: the answers of a model by prompt, in a memory."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from langchain_core.caches import BaseCache
from langchain_core.load import dumps, loads
from langchain_core.messages import AIMessage, AIMessageChunk, ChatMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, Generation, GenerationChunk

from engrain.core.clock import check_duration
from engrain.core.errors import StoreCorrupt
from engrain.core.model.records import Record, RecordDraft, RecordKey
from engrain.integrations.memory_owners import AnyMemory, open_memory
from engrain.integrations.record_decoding import decoding

SPACE = "langchain cache"
# A stored answer cannot make any other object.
_ALLOWED = [
    Generation, GenerationChunk, ChatGeneration, ChatGenerationChunk, AIMessage, AIMessageChunk, ChatMessage,
]  # fmt: skip


class EngrainCache(BaseCache):
    """A cache for set_llm_cache(…), in the memory of one user. With `ttl`, an answer expires after so many seconds.

    set_llm_cache(EngrainCache(store.memory(user="ana"), ttl=3600))
    """

    def __init__(self, memory: AnyMemory, *, ttl: timedelta | float | None = None) -> None:
        self._records = open_memory(memory).records
        self._ttl = None if ttl is None else check_duration(ttl, "ttl")

    def lookup(self, prompt: str, llm_string: str) -> Sequence[Generation] | None:
        found = self._records.read(SPACE, [_make_key(prompt, llm_string)])
        with suppress(StoreCorrupt):  # of another class, or damaged: the model answers again
            return _read(found[0]) if found else None
        return None

    def update(self, prompt: str, llm_string: str, return_val: Sequence[Generation]) -> None:
        ends = None if self._ttl is None else self._records.now() + self._ttl
        body = dumps(list(return_val)).encode()
        self._records.write(SPACE, [RecordDraft(_make_key(prompt, llm_string), body, expires_at=ends)])

    def clear(self, **kwargs: Any) -> None:
        self._records.drop(SPACE)


def _read(record: Record) -> Sequence[Generation]:
    with decoding(record.key):
        answers = loads(record.body.decode(), allowed_objects=_ALLOWED)
        if not (isinstance(answers, list) and all(isinstance(one, Generation) for one in answers)):
            raise TypeError("not a list of answers")
        return answers


def _make_key(prompt: str, llm_string: str) -> RecordKey:
    """Return hashes: a prompt may be longer than a key."""
    return tuple(hashlib.sha256(part.encode()).hexdigest() for part in (llm_string, prompt))
