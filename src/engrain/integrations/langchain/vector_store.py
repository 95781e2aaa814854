"""EngrainVectorStore: documents of LangChain in a memory, found by meaning and words."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import orjson
from langchain_core.documents import Document
from langchain_core.vectorstores import VectorStore

from engrain.core.errors import InvalidInput
from engrain.core.model.items import Note, Source
from engrain.core.model.records import RecordKey
from engrain.core.validation import check_key
from engrain.integrations.chat_log import clean_query
from engrain.integrations.memory_owners import AnyMemory, open_memory
from engrain.integrations.record_decoding import decoding, read_object
from engrain.memory.memory import MAX_HITS
from engrain.tiers.records import IndexedDraft, IndexedRecord, IndexedRecords

SPACE = "langchain documents"
# Metadata of an item: the name of its collection and the id of its document.
_COLLECTION, _DOCUMENT = "langchain_collection", "langchain_document"
Scored = tuple[Document, float]


class EngrainVectorStore(VectorStore):
    """A vector store over the memory of one user.

        store = EngrainVectorStore(engrain_store.memory(user="ana"), collection="handbook")

    The memory embeds the texts itself. A score is the relevance of `recall`, from 0 to 1. Documents that recall leaves
    out follow with 0, the newest first. `filter` is a function of a document, or the metadata that it must have.
    """

    def __init__(self, memory: AnyMemory, *, collection: str = "documents") -> None:
        self._memory, self._collection = open_memory(memory), check_key(collection, "collection")

    @classmethod
    def from_texts(  # the memory embeds the texts
        cls,
        texts: list[str],
        embedding: Any = None,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        memory: AnyMemory,
        ids: list[str] | None = None,
        collection: str = "documents",
    ) -> EngrainVectorStore:
        store = cls(memory, collection=collection)
        store.add_texts(texts, metadatas, ids=ids)
        return store

    def add_documents(self, documents: list[Document], ids: list[str] | None = None, **kwargs: Any) -> list[str]:
        """Write the documents in one transaction, each in place of the one with its id."""
        names = [document.id for document in documents] if ids is None else ids
        if len(names) != len(documents):
            raise InvalidInput(f"{len(documents)} documents need as many ids, not {len(names)}.")
        named = {id or str(uuid.uuid4()): one for id, one in zip(names, documents, strict=True)}
        keys = {self._key(id): (id, document) for id, document in named.items()}
        self._records.update(list(keys), lambda before: [self._make_draft(key, *one) for key, one in keys.items()])
        return list(named)

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> bool:
        """Delete these documents down to the bytes; without ids, the whole collection."""
        found = (record.key for record in self._records.iterate((self._collection,)))
        keys = list(found) if ids is None else [self._key(id) for id in ids]
        self._records.update(keys, lambda before: [])
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        return [_read(one) for one in self._records.read([self._key(id) for id in ids])]

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        return [document for document, _ in self.similarity_search_with_score(query, k, **kwargs)]

    def similarity_search_with_score(
        self,
        query: str,
        k: int = 4,
        *,
        filter: Any = None,  # noqa: A002
        **kwargs: Any,
    ) -> list[Scored]:
        fits = _make_filter(filter)
        scored = [pair for pair in self._find(query, MAX_HITS if filter else 2 * k + 20) if fits(pair[0])][:k]
        seen = {document.id for document, _ in scored}
        others = (_read(one) for one in self._records.iterate((self._collection,)))
        rest = ((one, 0.0) for one in others if one.id not in seen and fits(one))
        return [*scored, *islice(rest, k - len(scored))]

    def _similarity_search_with_relevance_scores(self, query: str, k: int = 4, **kwargs: Any) -> list[Scored]:
        return self.similarity_search_with_score(query, k, **kwargs)

    def _find(self, query: str, n: int) -> Iterator[Scored]:
        """Yield the documents that recall finds, best first."""
        if not (asked := clean_query(query)):
            return
        where = {f"metadata.{_COLLECTION}": self._collection}
        hits = self._memory.recall(asked, n=min(n, MAX_HITS), where=where, min_relevance=0).hits
        # An item that only has the name of a collection was not written by this store.
        named = [(hit.item.metadata.get(_DOCUMENT), hit.relevance) for hit in hits]
        relevance = {id: found for id, found in named if isinstance(id, str)}
        for document in self.get_by_ids(sorted(relevance, key=lambda id: -relevance[id])):
            yield document, relevance[document.id]

    def _make_draft(self, key: RecordKey, id: str, document: Document) -> IndexedDraft:
        try:
            body = orjson.dumps({"text": document.page_content, "metadata": document.metadata})
        except TypeError as exc:
            raise InvalidInput(f"the metadata of a document must be plain JSON: {exc}.") from exc
        names = {_COLLECTION: self._collection, _DOCUMENT: id}
        # A source of its own: one source cannot fill the results, and here every document may.
        source = Source(f"{self._collection}/{id}", "document")
        text = document.page_content
        return IndexedDraft(key, body, [Note(text, metadata=names, source=source)] if text.strip() else [])

    def _key(self, id: str) -> RecordKey:
        return self._collection, id

    @property
    def _records(self) -> IndexedRecords:
        return self._memory.records.indexed(SPACE)


def _make_filter(wanted: Any) -> Callable[[Document], bool]:
    if wanted is None:
        return lambda document: True
    if callable(wanted):
        return wanted  # type: ignore[no-any-return]
    if not isinstance(wanted, Mapping):
        raise InvalidInput(f"filter must be a function of a document or metadata, not {type(wanted).__name__}.")
    return lambda document: all(document.metadata.get(name) == value for name, value in wanted.items())


def _read(record: IndexedRecord) -> Document:
    found = read_object(record)
    with decoding(record.key):
        return Document(id=record.key[-1], page_content=found["text"], metadata=found["metadata"])
