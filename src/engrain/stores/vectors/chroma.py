"""Keep vectors in Chroma: on a server, or in a folder that serves one process."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import chromadb
import httpx
import numpy as np
from chromadb.api.client import Client
from chromadb.config import DEFAULT_DATABASE, DEFAULT_TENANT, Settings
from chromadb.errors import AuthorizationError, ChromaAuthError, ChromaError, NotFoundError

from engrain.core.errors import (
    ConfigError,
    EngrainError,
    NotFound,
    StoreBusy,
    StoreClosed,
    StoreError,
    StoreUnavailable,
)
from engrain.core.model.queries import FoundPoints, PointQuery, VectorPoint
from engrain.stores.urls import parse_vector_url
from engrain.stores.vectors.clients import LockedFolder, split_batches

DEFAULT_PORT = 8000
RETRY_PAUSE_SECONDS = 0.5
# Measured on 10,000 × 384: the 100 nearest of 400 are all found in scopes of 1 %, 19 % and 100 %.
_HNSW = {"space": "cosine", "ef_construction": 200, "ef_search": 400, "max_neighbors": 32}


class ChromaServer:
    """A VectorServer over Chroma. Its search is approximate.

    It does not filter by validity: each condition costs Chroma as much as the search.
    """

    def __init__(self, url: str, api_key: str | None = None) -> None:
        self._address = parse_vector_url(url, DEFAULT_PORT, ("tenant", "database"))
        self._key = api_key
        folder = self._address.folder
        self._folder = LockedFolder(folder) if folder else None
        self._pid = os.getpid()
        self._turn = threading.RLock()
        self._client: Any = None
        self._collections: dict[str, Any] = {}
        self._closed = False
        if self._folder:
            try:
                self._connect()
            except BaseException:
                self.close()
                raise

    @property
    def where(self) -> str:
        return str(self._address)

    # Collections

    def models(self) -> list[str]:
        return sorted(one.metadata["model"] for one in self._list_own_collections())

    def target(self, model: str, dimension: int) -> str:
        with self._turn:
            if model not in self._collections and not dimension:
                self._collections[model] = self._call_client(
                    "get_collection", self._collection_name(model), embedding_function=None
                )
            elif model not in self._collections:
                self._collections[model] = self._call_client(
                    "get_or_create_collection",
                    self._collection_name(model),
                    embedding_function=None,
                    metadata={"model": model, "engrain": self._address.collection},
                    configuration={"hnsw": _HNSW},
                )
            return f"chroma/{self._collections[model].id}"

    def remove(self, model: str) -> None:
        self._call_client("delete_collection", self._collection_name(model))
        self._collections.pop(model, None)

    def clear(self) -> None:
        for one in self._list_own_collections():
            self._call_client("delete_collection", one.name)
        self._collections.clear()

    def _list_own_collections(self) -> list[Any]:
        found = self._call_client("list_collections")
        return [one for one in found if (one.metadata or {}).get("engrain") == self._address.collection]

    def _collection_name(self, model: str) -> str:
        return f"{self._address.collection}-{hashlib.blake2b(model.encode(), digest_size=8).hexdigest()}"

    # Points

    def put(self, model: str, points: Sequence[VectorPoint]) -> None:
        for batch in split_batches(points):
            self._call_collection(
                model,
                "upsert",
                ids=[_point_id(one) for one in batch],
                embeddings=np.frombuffer(b"".join(one.row for one in batch), dtype="<f4").reshape(len(batch), -1),
                metadatas=[{"item": one.item, "window": one.window, "scope": one.scope} for one in batch],
            )
        kept = {_point_id(one) for one in points}
        there = self._find_point_ids(model, list(dict.fromkeys(one.item for one in points)))
        # Remove the windows of items that had more of them before.
        self._delete(model, [id for id in there if id not in kept])

    def drop(self, model: str, items: Sequence[str]) -> None:
        self._delete(model, self._find_point_ids(model, items))
        left = self.count(model, items)
        if left:
            raise StoreError(f"{self.where} still has {left} points of items that were removed from it.")

    def count(self, model: str, items: Sequence[str] | None = None) -> int:
        if items is None:
            return int(self._call_collection(model, "count"))
        return len(self._find_point_ids(model, items))

    def nearest(self, query: PointQuery) -> FoundPoints:
        vector = np.asarray(query.vector, dtype=np.float32).reshape(1, -1)
        found = self._call_collection(
            query.model,
            "query",
            query_embeddings=vector,
            n_results=query.limit,
            where={"scope": query.scope},
            include=["distances"],
        )
        items = [id.rpartition(":")[0] for id in found["ids"][0]]
        return FoundPoints(items, [1.0 - float(one) for one in found["distances"][0]], exact=False)

    def _find_point_ids(self, model: str, items: Sequence[str]) -> list[str]:
        found: list[str] = []
        for batch in split_batches(items):
            found += self._call_collection(model, "get", where={"item": {"$in": list(batch)}}, include=[])["ids"]
        return found

    def _delete(self, model: str, ids: Sequence[str]) -> None:
        for batch in split_batches(ids):
            self._call_collection(model, "delete", ids=list(batch))

    # The server

    def close(self) -> None:
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            client.close()
        if self._folder:
            self._folder.leave()

    def _call_collection(self, model: str, verb: str, **options: Any) -> Any:
        """Call a method of the model's collection."""
        collection = self._collections.get(model)
        if collection is None:
            raise NotFound(f"{self.where} has no collection for {model}.")
        return self._retry(lambda _: getattr(collection, verb)(**options))

    def _call_client(self, verb: str, *args: Any, **options: Any) -> Any:
        return self._retry(lambda client: getattr(client, verb)(*args, **options))

    def _retry(self, call: Callable[[Any], Any]) -> Any:
        """Retry a call until the timeout. All calls can be repeated without harm."""
        ends = time.monotonic() + self._address.timeout
        while True:
            try:
                return call(self._connect())
            except EngrainError:
                raise
            except NotFoundError as exc:
                self._collections.clear()
                raise NotFound(f"a collection is no longer in {self.where}.") from exc
            except (AuthorizationError, ChromaAuthError) as exc:
                raise ConfigError(f"{self.where} refused the key: set CHROMA_API_KEY.") from exc
            except (httpx.HTTPError, OSError, ChromaError, ValueError) as exc:
                if not _is_unanswered(exc):
                    raise StoreError(f"{self.where} refused: {str(exc)[:200]}") from exc
                # A restarting server refuses at once.
                if time.monotonic() + RETRY_PAUSE_SECONDS > ends:
                    raise self._build_unavailable(exc) from exc
                time.sleep(RETRY_PAUSE_SECONDS)

    def _build_unavailable(self, exc: Exception) -> StoreUnavailable:
        why = str(exc) or type(exc).__name__
        return StoreUnavailable(f"{self.where} did not answer within {self._address.timeout:g} s: {why}.")

    def _connect(self) -> Any:
        if self._closed:
            raise StoreClosed("this store was closed. Open it again.")
        if self._folder and os.getpid() != self._pid:
            raise StoreBusy(f"{self.where} serves the process that opened it, not one that was forked from it.")
        with self._turn:
            if self._client is None:
                self._client = self._open_folder() if self._folder else self._connect_remote()
            return self._client

    def _open_folder(self) -> Any:
        return chromadb.PersistentClient(str(self._address.folder), Settings(anonymized_telemetry=False))

    def _connect_remote(self) -> Any:
        address, timeout = self._address, self._address.timeout
        headers = {"x-chroma-token": self._key} if self._key else {}
        scheme = "https" if address.tls else "http"
        # Ask ourselves first: Chroma's client reports a missing server as a wrong value. A refusal comes again below.
        httpx.get(f"{scheme}://{address.host}:{address.port}/api/v2/heartbeat", headers=headers, timeout=timeout)
        options = dict(address.options)
        settings = Settings(
            chroma_api_impl="chromadb.api.fastapi.FastAPI",
            chroma_server_host=address.host,
            chroma_server_http_port=address.port,
            chroma_server_ssl_enabled=address.tls,
            chroma_server_headers=headers,
            anonymized_telemetry=False,
        )
        where = options.get("tenant", DEFAULT_TENANT), options.get("database", DEFAULT_DATABASE)
        return _Client(timeout, *where, settings)


class _Client(Client):
    """Chroma's client with a timeout. The original has none, and none for its first requests either."""

    def __init__(self, seconds: float, tenant: str, database: str, settings: Settings) -> None:
        self._seconds = seconds
        super().__init__(tenant, database, settings)

    def get_user_identity(self) -> Any:
        self._limit(self)
        return super().get_user_identity()

    def _validate_tenant_database(self, tenant: str, database: str) -> None:
        self._limit(self._admin_client)
        super()._validate_tenant_database(tenant, database)

    def _limit(self, client: Any) -> None:
        client._server._session.timeout = httpx.Timeout(self._seconds)


def _is_unanswered(exc: Exception) -> bool:
    """Check the cause too, because Chroma's client raises other errors about it."""
    return any(isinstance(one, (httpx.HTTPError, OSError)) for one in (exc, exc.__context__))


def _point_id(point: VectorPoint) -> str:
    return f"{point.item}:{point.window}"
