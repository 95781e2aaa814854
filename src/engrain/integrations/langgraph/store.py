"""EngrainStore: LangGraph's long-term store in a memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import orjson
from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    get_text_at_path,
    tokenize_path,
)

from engrain.core.errors import InvalidInput
from engrain.core.identity import Scope
from engrain.core.model.items import Note, Source
from engrain.core.model.records import RecordKey
from engrain.integrations.chat_log import clean_query
from engrain.integrations.langgraph.filters import fits_namespace, matches_filter
from engrain.integrations.memory_owners import AnyMemory, AnyStore, Owners, UserOf
from engrain.integrations.record_decoding import check_object, decoding
from engrain.integrations.record_reader import iterate_keys
from engrain.memory.memory import MAX_HITS, Memory
from engrain.tiers.records import IndexedDraft, IndexedRecord

SPACE = "langgraph store"
# It ends the namespace in a record's key: no label of a namespace is empty.
_END = ""
# Metadata of an item: the prefixes of its namespace, and the whole of it with the key.
_UNDER, _NAME = "langgraph_under", "langgraph_key"
Namespace = tuple[str, ...]


class _Stored(NamedTuple):
    namespace: Namespace
    key: str
    value: dict[str, Any]
    created_at: datetime
    index: Any
    ttl: float | None  # minutes
    record: IndexedRecord

    def item(self) -> Item:
        return Item(
            value=self.value, key=self.key, namespace=self.namespace, created_at=self.created_at,
            updated_at=self.record.written_at,
        )  # fmt: skip

    def found(self, score: float | None) -> SearchItem:
        return SearchItem(self.namespace, self.key, self.value, self.created_at, self.record.written_at, score)


class EngrainStore(BaseStore):
    """A store for graph.compile(store=…), sync and async. Values are JSON.

        store = EngrainStore(engrain_store, user_of=lambda namespace: namespace[1])

    With a Memory, everything belongs to it. With a Store, `user_of` names the user of a namespace. The texts at
    `fields` of a value are remembered as well, so that `search` and `Memory.recall` find them by meaning and words; ()
    indexes nothing. The score of a result is its relevance from 0 to 1.
    """

    supports_ttl = True

    def __init__(
        self,
        memory: AnyMemory | AnyStore,
        *,
        user_of: UserOf | None = None,
        tenant: str | None = None,
        agent: str | None = None,
        fields: Sequence[str] = ("$",),
        ttl: TTLConfig | None = None,
    ) -> None:
        self._owners = Owners(memory, user_of, tenant, agent)
        self._fields = tuple(fields)
        self.ttl_config = ttl

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Answer all reads, then write in one transaction for each memory; of two writes of one key the last counts."""
        answers: list[Result] = []
        puts: dict[tuple[Namespace, str], PutOp] = {}
        for op in ops:
            answer: Result = None
            if isinstance(op, GetOp):
                answer = self._get(op)
            elif isinstance(op, SearchOp):
                answer = self._search(op)
            elif isinstance(op, ListNamespacesOp):
                answer = self._list_namespaces(op)
            elif isinstance(op, PutOp):
                puts[op.namespace, op.key] = op
            else:
                raise InvalidInput(f"unknown operation {type(op).__name__}.")
            answers.append(answer)
        for memory, some in self._group_by_owner(puts.values()):
            self._write(memory, some)
        return answers

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return await asyncio.to_thread(self.batch, list(ops))

    # Read

    def _get(self, op: GetOp) -> Item | None:
        memory = self._owners.find(op.namespace)
        stored = _load(memory, op.namespace, op.key)
        if stored is None:
            return None
        if op.refresh_ttl:
            self._refresh(memory, stored)
        return stored.item()

    def _search(self, op: SearchOp) -> list[SearchItem]:
        found: list[SearchItem] = []
        wanted = op.offset + op.limit
        for memory in self._list_memories(op.namespace_prefix):
            scored = list(_find_by_text(memory, op, wanted))
            seen = {stored.record.key for stored, _ in scored}
            rest = (one for one in memory.records.indexed(SPACE).iterate(op.namespace_prefix) if one.key not in seen)
            others = ((one, None) for one in map(_read, rest) if matches_filter(one.value, op.filter))
            for stored, score in (*scored, *_take(others, max(0, wanted - len(scored)))):
                found.append(stored.found(score))
                if op.refresh_ttl:
                    self._refresh(memory, stored)
        # Those that were found by their text come first, the best at the top.
        found.sort(key=lambda one: (one.score is None, -(one.score or 0.0)))
        return found[op.offset : wanted]

    def _list_namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        conditions = op.match_conditions or ()
        found: set[Namespace] = set()
        for memory in self._list_memories(()):
            spaces = {_read_namespace(key) for key in iterate_keys(memory.records, SPACE)}
            found |= {one[: op.max_depth] for one in spaces if all(fits_namespace(each, one) for each in conditions)}
        return sorted(found)[op.offset : op.offset + op.limit]

    def _list_memories(self, prefix: Namespace) -> list[Memory]:
        user = self._owners.find_user(prefix) if prefix else None
        return [self._owners.find(prefix)] if user else self._owners.list_all(SPACE, prefix)

    # Write

    def _group_by_owner(self, puts: Iterable[PutOp]) -> list[tuple[Memory, list[PutOp]]]:
        found: dict[Scope, tuple[Memory, list[PutOp]]] = {}
        for op in puts:
            memory = self._owners.find(op.namespace)
            found.setdefault(memory.scope, (memory, []))[1].append(op)
        return list(found.values())

    def _write(self, memory: Memory, puts: Sequence[PutOp]) -> None:
        now = memory.records.now()
        named = {_record_key(op.namespace, op.key): op for op in puts}

        def make_drafts(before: Mapping[RecordKey, IndexedRecord]) -> list[IndexedDraft]:
            return [
                self._make_draft(key, op, now, _read(before[key]).created_at if key in before else now)
                for key, op in named.items()
                if op.value is not None
            ]

        memory.records.indexed(SPACE).update(list(named), make_drafts)

    def _make_draft(self, key: RecordKey, op: PutOp, now: datetime, created: datetime) -> IndexedDraft:
        ends = None if op.ttl is None else now + timedelta(minutes=op.ttl)
        head = {"created_at": created.isoformat(), "index": op.index, "ttl": op.ttl}
        under = [json.dumps(op.namespace[:n]) for n in range(1, len(op.namespace) + 1)]
        metadata = {_UNDER: under, _NAME: [*op.namespace, op.key]}
        source = Source("langgraph store", "agent")
        notes = [Note(text, metadata=metadata, source=source, expires_at=ends) for text in self._list_texts(op)]
        return IndexedDraft(key, _encode(head, op.value), notes, ends)

    def _refresh(self, memory: Memory, stored: _Stored) -> None:
        """Give a value its whole time again, once half of it has passed."""
        ends = stored.record.expires_at
        if stored.ttl and ends and ends - memory.records.now() < timedelta(minutes=stored.ttl) / 2:
            self._write(memory, [PutOp(stored.namespace, stored.key, stored.value, stored.index, stored.ttl)])

    def _list_texts(self, op: PutOp) -> list[str]:
        paths = self._fields if op.index is None else op.index or ()
        tokens = [path if path == "$" else tokenize_path(path) for path in paths]
        texts = [text for path in tokens for text in get_text_at_path(op.value, path) or ()]
        return [text for text in dict.fromkeys(texts) if text.strip()]


def _find_by_text(memory: Memory, op: SearchOp, wanted: int) -> Iterator[tuple[_Stored, float]]:
    """Yield the values that recall finds, best first, each once."""
    if not (query := clean_query(op.query or "")):
        return
    where = {"exists": True} if not op.namespace_prefix else {"contains": json.dumps(op.namespace_prefix)}
    n = MAX_HITS if op.filter else min(MAX_HITS, 2 * wanted + 20)
    hits = memory.recall(query, n=n, where={f"metadata.{_UNDER}": where}, min_relevance=0).hits
    best: dict[RecordKey, float] = {}
    for hit in hits:
        if name := _read_name(hit.item.metadata.get(_NAME)):
            best.setdefault(name, hit.relevance)
    for record in memory.records.indexed(SPACE).read(sorted(best, key=lambda key: -best[key])):
        stored = _read(record)
        if matches_filter(stored.value, op.filter):
            yield stored, best[record.key]


def _load(memory: Memory, namespace: Namespace, key: str) -> _Stored | None:
    found = memory.records.indexed(SPACE).read([_record_key(namespace, key)])
    return _read(found[0]) if found else None


def _record_key(namespace: Namespace, key: str) -> RecordKey:
    if not namespace or not all(namespace):
        raise InvalidInput(f"a namespace needs labels that are not empty, not {namespace!r:.200}.")
    return *namespace, _END, key


def _encode(head: Mapping[str, Any], value: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps({**head, "value": value})
    except TypeError as exc:
        raise InvalidInput(f"a value must be plain JSON: {exc}.") from exc


def _read(record: IndexedRecord) -> _Stored:
    namespace, key = _read_namespace(record.key), record.key[-1]
    with decoding(record.key):
        found = orjson.loads(record.body)
        created = datetime.fromisoformat(found["created_at"]).astimezone(UTC)
        value, index, ttl = check_object(found["value"], record.key), found["index"], found["ttl"]
        if index and not all(isinstance(path, str) for path in index):
            raise TypeError("a path that is no text")
        if ttl is not None:
            _ = record.written_at + timedelta(minutes=ttl)  # a time that a date can have
        return _Stored(namespace, key, value, created, index, ttl, record)


def _read_namespace(key: RecordKey) -> Namespace:
    with decoding(key):
        return key[: key.index(_END)]


def _read_name(name: Any) -> RecordKey | None:
    """Return the key that an item names; None for one that another program gave such metadata."""
    if not (isinstance(name, list) and len(name) > 1 and all(isinstance(part, str) for part in name)):
        return None
    *namespace, key = name
    return _record_key(tuple(namespace), key) if all(namespace) else None


def _take(found: Iterator[Any], limit: int) -> list[Any]:
    return [one for one, _ in zip(found, range(limit), strict=False)]
