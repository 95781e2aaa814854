"""Keep vectors in Chroma: on a server, or in a folder that serves one process."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import chromadb
import httpx
import numpy as np
from chromadb.api.client import Client
from chromadb.config import DEFAULT_DATABASE, DEFAULT_TENANT, Settings
from chromadb.errors import AuthorizationError, ChromaAuthError, ChromaError, NotFoundError

from engrain.core.errors import ConfigError, EngrainError, StoreError
from engrain.core.model.queries import FoundPoints, PointQuery, VectorPoint
from engrain.stores.urls import parse_vector_url
from engrain.stores.vectors.clients import VectorClient, split_batches

DEFAULT_PORT = 8000
# Measured on 10,000 × 384: the 100 nearest of 400 are all found in scopes of 1 %, 19 % and 100 %.
_HNSW = {"space": "cosine", "ef_construction": 200, "ef_search": 400, "max_neighbors": 32}


class ChromaServer(VectorClient):
    """A VectorServer over Chroma. Its search is approximate.

    It does not filter by validity: each condition costs Chroma as much as the search.
    """

    driver_errors = (httpx.HTTPError, OSError, ChromaError, ValueError)

    def __init__(self, url: str, api_key: str | None = None) -> None:
        self._key = api_key
        super().__init__(parse_vector_url(url, DEFAULT_PORT, ("tenant", "database")))

    # Collections

    def target(self, model: str, dimension: int) -> str:
        with self._turn:
            if model not in self._collections:
                self._collections[model] = self._open_collection(model, create=dimension > 0)
            return f"chroma/{self._collections[model].id}"

    def _open_collection(self, model: str, create: bool) -> Any:
        name, options = self._collection_name(model), {"embedding_function": None}
        if not create:
            return self._call("get_collection", name, **options)
        metadata = {"model": model, "engrain": self._address.collection}
        configuration = {"hnsw": _HNSW}
        return self._call("get_or_create_collection", name, metadata=metadata, configuration=configuration, **options)

    def _list_collections(self) -> list[tuple[str, str]]:
        found = [(collection.metadata or {}, collection.name) for collection in self._call("list_collections")]
        return [(data["model"], name) for data, name in found if data.get("engrain") == self._address.collection]

    def _collection_name(self, model: str) -> str:
        return f"{self._address.collection}-{hashlib.blake2b(model.encode(), digest_size=8).hexdigest()}"

    # Points

    def put(self, model: str, points: Sequence[VectorPoint]) -> None:
        for batch in split_batches(points):
            self._call_collection(
                model,
                "upsert",
                ids=[_point_id(point) for point in batch],
                embeddings=np.frombuffer(b"".join(point.row for point in batch), dtype="<f4").reshape(len(batch), -1),
                metadatas=[{"item": point.item, "window": point.window, "scope": point.scope} for point in batch],
            )
        put = {_point_id(point) for point in points}
        there = self._find_point_ids(model, list(dict.fromkeys(point.item for point in points)))
        # Remove the windows of items that had more of them before.
        self._delete(model, [id for id in there if id not in put])

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
        return FoundPoints(items, [1.0 - float(distance) for distance in found["distances"][0]], exact=False)

    def _find_point_ids(self, model: str, items: Sequence[str]) -> list[str]:
        found: list[str] = []
        for batch in split_batches(items):
            found += self._call_collection(model, "get", where={"item": {"$in": list(batch)}}, include=[])["ids"]
        return found

    def _delete(self, model: str, ids: Sequence[str]) -> None:
        for batch in split_batches(ids):
            self._call_collection(model, "delete", ids=list(batch))

    def _delete_items(self, model: str, items: Sequence[str]) -> None:
        self._delete(model, self._find_point_ids(model, items))

    # The server

    def _call_collection(self, model: str, verb: str, **options: Any) -> Any:
        """Call a method of the model's collection."""
        collection = self._get_collection(model)
        return self._repeat(lambda _: getattr(collection, verb)(**options))

    def _translate(self, exc: Exception) -> EngrainError | None:
        if isinstance(exc, NotFoundError):
            return self._forget_collections()
        if isinstance(exc, (AuthorizationError, ChromaAuthError)):
            return ConfigError(f"{self.where} refused the key: set CHROMA_API_KEY.")
        # Check the cause too, because Chroma's client raises other errors about it.
        if any(isinstance(error, (httpx.HTTPError, OSError)) for error in (exc, exc.__context__)):
            return None
        return StoreError(f"{self.where} refused: {str(exc)[:200]}")

    def _open_client(self) -> Any:
        if self._folder:
            return chromadb.PersistentClient(str(self._address.folder), Settings(anonymized_telemetry=False))
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


def _point_id(point: VectorPoint) -> str:
    return f"{point.item}:{point.window}"
