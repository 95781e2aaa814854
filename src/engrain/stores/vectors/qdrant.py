"""Keep vectors in Qdrant: on a server, or in a folder that serves one process."""

from __future__ import annotations

import re
import secrets
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
from qdrant_client import QdrantClient
from qdrant_client import models as q
from qdrant_client.http.exceptions import ApiException, UnexpectedResponse

from engrain.core.errors import ConfigError, EngrainError, NotFound, StoreError, StoreUnavailable
from engrain.core.model.queries import FoundPoints, PointQuery, VectorPoint
from engrain.stores.urls import parse_vector_url
from engrain.stores.vectors.clients import VectorClient, split_batches

DEFAULT_PORT = 6333
MAX_EXACT_POINTS = 20_000  # of a scope: up to this many are all compared, more are searched by the graph
_NAMESPACE = uuid.UUID("6b0d5e0e-5d5c-4c0a-9d0f-0c5f6a3f7f11")
_PLAIN = re.compile(r"[^A-Za-z0-9._-]")
_ESCAPED = re.compile(r"~([0-9a-f]+)~")


class QdrantServer(VectorClient):
    """A VectorServer over Qdrant.

    A model's collection is named COLLECTION--MODEL--MARK, with a new mark whenever it is created.
    """

    driver_errors = (ApiException, OSError, ValueError)
    # The embedded form is a plain Python object; the server's client is safe for threads.
    one_call_at_a_time = True

    def __init__(self, url: str, api_key: str | None = None) -> None:
        self._key = api_key
        super().__init__(parse_vector_url(url, DEFAULT_PORT))
        self._connect()  # sends nothing yet, but warns about a key without TLS

    # Collections

    def target(self, model: str, dimension: int) -> str:
        with self._turn:
            if model not in self._collections:
                known = self._find_collection(model)
                if known is None and not dimension:
                    raise NotFound(f"{self.where} has no collection for {model}.")
                self._collections[model] = known or self._create_collection(model, dimension)
            return f"qdrant/{self._collections[model]}"

    def _list_collections(self) -> list[tuple[str, str]]:
        split = [
            (collection.name, collection.name.split("--")) for collection in self._call("get_collections").collections
        ]
        own = [(name, parts) for name, parts in split if len(parts) >= 3 and parts[0] == self._address.collection]
        return sorted((_unescape_model("--".join(parts[1:-1])), name) for name, parts in own)

    def _find_collection(self, model: str) -> str | None:
        name = next((name for owner, name in self._list_collections() if owner == model), None)
        if name:
            self._create_indexes(name)
        return name

    def _create_collection(self, model: str, dimension: int) -> str:
        name = f"{self._address.collection}--{_escape_model(model)}--{secrets.token_hex(6)}"
        # Every search is within one scope: a graph for each, and none over all.
        graphs = q.HnswConfigDiff(m=0, payload_m=32, ef_construct=200)
        space = q.VectorParams(size=dimension, distance=q.Distance.COSINE)
        self._call("create_collection", name, vectors_config=space, hnsw_config=graphs)
        self._create_indexes(name)
        # Two processes may create one each at the same moment: both use the first by name.
        return self._find_collection(model) or name

    def _create_indexes(self, name: str) -> None:
        if self._folder:
            return
        schemas: dict[str, Any] = {
            "scope": q.KeywordIndexParams(type=q.KeywordIndexType.KEYWORD, is_tenant=True),
            "item": q.PayloadSchemaType.KEYWORD,
            "begins": q.PayloadSchemaType.INTEGER,
            "ends": q.PayloadSchemaType.INTEGER,
        }
        known = self._call("get_collection", name).payload_schema
        for field, schema in schemas.items():
            if field not in known:
                self._call("create_payload_index", name, field, schema, wait=True)

    # Points

    def put(self, model: str, points: Sequence[VectorPoint]) -> None:
        name = self._get_collection(model)
        for batch in split_batches(points):
            self._call("upsert", name, [_build_point(point) for point in batch], wait=True)
        items = list(dict.fromkeys(point.item for point in points))
        put: list[int | str | uuid.UUID] = [_point_id(point) for point in points]
        # Remove the windows of items that had more of them before.
        rest = q.Filter(must=[_match_items(items)], must_not=[q.HasIdCondition(has_id=put)])
        self._call("delete", name, q.FilterSelector(filter=rest), wait=True)

    def _delete_items(self, model: str, items: Sequence[str]) -> None:
        found = q.FilterSelector(filter=q.Filter(must=[_match_items(items)]))
        self._call("delete", self._get_collection(model), found, wait=True)

    def count(self, model: str, items: Sequence[str] | None = None) -> int:
        name = self._get_collection(model)
        if items is None:
            return int(self._call("count", name, exact=True).count)
        wanted = [q.Filter(must=[_match_items(batch)]) for batch in split_batches(items)]
        return sum(self._call("count", name, condition, exact=True).count for condition in wanted)

    def nearest(self, query: PointQuery) -> FoundPoints:
        name = self._get_collection(query.model)
        in_scope = q.FieldCondition(key="scope", match=q.MatchValue(value=query.scope))
        begun = [] if query.at_least else [q.FieldCondition(key="begins", range=q.Range(lte=query.at))]
        valid = q.Filter(must=[in_scope, *begun, q.FieldCondition(key="ends", range=q.Range(gt=query.at))])
        exact = self._folder is not None or (
            self._call("count", name, q.Filter(must=[in_scope]), exact=False).count <= MAX_EXACT_POINTS
        )
        # The embedded form compares everything, and warns if it gets search parameters.
        how = None if self._folder else q.SearchParams(exact=exact, hnsw_ef=None if exact else max(256, query.limit))
        found = self._call(
            "query_points",
            name,
            query=np.asarray(query.vector, dtype=np.float32).ravel().tolist(),
            query_filter=valid,
            search_params=how,
            limit=query.limit,
            with_payload=["item"],
        ).points
        return FoundPoints(
            [(point.payload or {})["item"] for point in found], [float(point.score) for point in found], exact
        )

    # The server

    def _translate(self, exc: Exception) -> EngrainError | None:
        if isinstance(exc, ValueError):
            if "not found" in str(exc):
                return self._forget_collections()
            return StoreError(f"{self.where} gave no answer of a Qdrant server: {str(exc)[:200]}")
        if not isinstance(exc, UnexpectedResponse):
            return None
        if exc.status_code == 404:
            return self._forget_collections()
        if exc.status_code in (401, 403):
            return ConfigError(f"{self.where} refused the key: set QDRANT_API_KEY.")
        if exc.status_code is not None and exc.status_code >= 500:
            return StoreUnavailable(f"{self.where} cannot do this now: {exc.status_code} {exc.reason_phrase}.")
        return StoreError(f"{self.where} refused: {exc.status_code} {exc.content.decode(errors='replace')[:200]}")

    def _open_client(self) -> QdrantClient:
        address = self._address
        if address.folder:
            return QdrantClient(path=str(address.folder), force_disable_check_same_thread=True)
        return QdrantClient(
            host=address.host,
            port=address.port,
            https=address.tls,
            api_key=self._key,
            timeout=max(1, round(address.timeout)),
            check_compatibility=False,
        )


def _build_point(point: VectorPoint) -> q.PointStruct:
    payload = {name: getattr(point, name) for name in ("item", "window", "scope", "begins", "ends")}
    return q.PointStruct(id=_point_id(point), vector=np.frombuffer(point.row, dtype="<f4").tolist(), payload=payload)


def _point_id(point: VectorPoint) -> str:
    """Return the same id for the same window of the same item."""
    return str(uuid.uuid5(_NAMESPACE, f"{point.item}/{point.window}"))


def _match_items(items: Sequence[str]) -> q.FieldCondition:
    return q.FieldCondition(key="item", match=q.MatchAny(any=list(items)))


def _escape_model(model: str) -> str:
    return _PLAIN.sub(lambda found: f"~{ord(found[0]):x}~", model)


def _unescape_model(escaped: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), escaped)
