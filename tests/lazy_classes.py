"""Classes of heavy libraries, imported when a test first makes one: every worker imports every file of tests."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class LazyClass:
    """A class that is imported when it is called."""

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.__name__ = name

    def __call__(self, *args: Any, **options: Any) -> Any:
        return getattr(import_module(self.module), self.__name__)(*args, **options)


ChromaServer: Any = LazyClass("engrain.stores.vectors.chroma", "ChromaServer")
QdrantServer: Any = LazyClass("engrain.stores.vectors.qdrant", "QdrantServer")
Stub: Any = LazyClass("qdrant_stub", "Stub")
Client: Any = LazyClass("mcp", "Client")
StdioServerParameters: Any = LazyClass("mcp", "StdioServerParameters")
MemoryServer: Any = LazyClass("engrain.mcp.server", "MemoryServer")
StoreLoader: Any = LazyClass("engrain.mcp.memories", "StoreLoader")
