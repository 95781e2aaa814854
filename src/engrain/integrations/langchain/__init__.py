"""LangChain: a retriever, a vector store, a cache of a model's answers and a store of bytes, all in a memory."""

from engrain.core.errors import BackendMissing

try:
    import langchain_core.vectorstores  # noqa: F401
except ImportError as exc:
    raise BackendMissing("the LangChain integration", "langchain") from exc

from engrain.integrations.langchain.byte_store import EngrainByteStore
from engrain.integrations.langchain.cache import EngrainCache
from engrain.integrations.langchain.retriever import EngrainRetriever
from engrain.integrations.langchain.vector_store import EngrainVectorStore

__all__ = ["EngrainByteStore", "EngrainCache", "EngrainRetriever", "EngrainVectorStore"]
