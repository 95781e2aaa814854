"""EngrainRetriever: what a memory recalls, as documents of LangChain."""

from __future__ import annotations

from typing import Annotated, Any

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import BeforeValidator, ConfigDict

from engrain.core.model.items import RESERVED_KEY
from engrain.core.model.recall import Hit
from engrain.integrations.chat_log import clean_query
from engrain.integrations.memory_owners import open_memory
from engrain.memory.memory import Memory


class EngrainRetriever(BaseRetriever):
    """Recalls from a memory: facts, messages and procedures of all kinds.

        retriever = EngrainRetriever(memory=store.memory(user="ana"), k=5)

    A document has the text as it was said, and its source, date, relevance and trust as metadata. There may be fewer
    than `k`: what is not relevant is not recalled. `min_relevance` replaces the floor of the embedder.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    memory: Annotated[Memory, BeforeValidator(open_memory)]
    k: int = 5
    min_relevance: float | None = None
    where: dict[str, Any] | None = None

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[Document]:
        if not (asked := clean_query(query)):
            return []
        n = self.k if k is None else k
        found = self.memory.recall(asked, n=n, min_relevance=self.min_relevance, where=self.where)
        return [make_document(hit) for hit in found.hits]


def make_document(hit: Hit) -> Document:
    item = hit.item
    said = item.occurred_at or item.recorded_at
    metadata = {
        **{name: value for name, value in item.metadata.items() if name != RESERVED_KEY},
        "source": item.source,
        "role": item.role,
        "date": said.isoformat(),
        "relevance": hit.relevance,
        "trust": item.trust,
    }
    return Document(id=item.id, page_content=hit.text, metadata=metadata)
