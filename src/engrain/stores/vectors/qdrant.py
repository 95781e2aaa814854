"""Vectors in Qdrant: a server, or a folder that one process has for itself."""

from __future__ import annotations

import os
import re
import secrets
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
from qdrant_client import QdrantClient
from qdrant_client import models as q
from qdrant_client.http.exceptions import ApiException, UnexpectedResponse

from engrain.core.errors import ConfigError, NotFound, StoreBusy, StoreClosed, StoreError, StoreUnavailable
from engrain.core.model.queries import FoundPoints, PointQuery, VectorPoint
from engrain.stores.urls import VectorAddress, read_address
from engrain.stores.vectors.clients import Folder

PORT = 6333
EXACT = 20_000  # points of a scope that are all compared; beyond, the graph is asked
PAUSE = 0.5
_BATCH = 500
_NAMESPACE = uuid.UUID("6b0d5e0e-5d5c-4c0a-9d0f-0c5f6a3f7f11")
_PLAIN = re.compile(r"[^A-Za-z0-9._-]")
_ESCAPED = re.compile(r"~([0-9a-f]+)~")
T = TypeVar("T")


class QdrantServer:
    """The collection of a model is named COLLECTION--MODEL--MARK; the mark is new whenever it is made."""

    def __init__(self, url: str, api_key: str | None = None) -> None:
        self._address = read_address(url, PORT)
        folder = self._address.folder
        self._folder = Folder(folder) if folder else None
        self._pid = os.getpid()
        # The embedded form is a plain Python object; the server's client is safe for threads.
        self._turn = threading.RLock()
        self._names: dict[str, str] = {}
        self._client: QdrantClient | None = None
        try:
            self._client = _client(self._address, api_key)
        except BaseException:
            self.close()
            raise

    @property
    def where(self) -> str:
        return str(self._address)

    # Collections

    def models(self) -> list[str]:
        return sorted({model for model, _ in self._collections()})

    def target(self, model: str, dimension: int) -> str:
        with self._turn:
            if model not in self._names:
                known = self._known(model)
                if known is None and not dimension:
                    raise NotFound(f"{self.where} has no collection for {model}.")
                self._names[model] = known or self._made(model, dimension)
            return f"qdrant/{self._names[model]}"

    def remove(self, model: str) -> None:
        for one, name in self._collections():
            if one == model:
                self._ask("delete_collection", name)
        self._names.pop(model, None)

    def clear(self) -> None:
        for _, name in self._collections():
            self._ask("delete_collection", name)
        self._names.clear()

    def _collections(self) -> list[tuple[str, str]]:
        """(model, name), those of this memory."""
        found = self._ask("get_collections").collections
        split = [(one.name, one.name.split("--")) for one in found]
        mine = [(name, parts) for name, parts in split if len(parts) >= 3 and parts[0] == self._address.collection]
        return sorted((_model("--".join(parts[1:-1])), name) for name, parts in mine)

    def _known(self, model: str) -> str | None:
        name = next((name for one, name in self._collections() if one == model), None)
        if name:
            self._index(name)
        return name

    def _made(self, model: str, dimension: int) -> str:
        name = f"{self._address.collection}--{_escaped(model)}--{secrets.token_hex(6)}"
        # Every question is asked within one scope: a graph for each, and none over all.
        graphs = q.HnswConfigDiff(m=0, payload_m=32, ef_construct=200)
        space = q.VectorParams(size=dimension, distance=q.Distance.COSINE)
        self._ask("create_collection", name, vectors_config=space, hnsw_config=graphs)
        self._index(name)
        # Two processes may have made one each at the same moment: both take the first by name.
        return self._known(model) or name

    def _index(self, name: str) -> None:
        if self._folder:
            return
        schemas: dict[str, Any] = {
            "scope": q.KeywordIndexParams(type=q.KeywordIndexType.KEYWORD, is_tenant=True),
            "item": q.PayloadSchemaType.KEYWORD,
            "begins": q.PayloadSchemaType.INTEGER,
            "ends": q.PayloadSchemaType.INTEGER,
        }
        known = self._ask("get_collection", name).payload_schema
        for field, schema in schemas.items():
            if field not in known:
                self._ask("create_payload_index", name, field, schema, wait=True)

    # Points

    def put(self, model: str, points: Sequence[VectorPoint]) -> None:
        name = self._name(model)
        for batch in _batches(points):
            self._ask("upsert", name, [_struct(one) for one in batch], wait=True)
        items = list(dict.fromkeys(one.item for one in points))
        kept: list[int | str | uuid.UUID] = [_id(one) for one in points]
        # What an item had more windows of before.
        rest = q.Filter(must=[_of(items)], must_not=[q.HasIdCondition(has_id=kept)])
        self._ask("delete", name, q.FilterSelector(filter=rest), wait=True)

    def drop(self, model: str, items: Sequence[str]) -> None:
        name = self._name(model)
        for batch in _batches(items):
            self._ask("delete", name, q.FilterSelector(filter=q.Filter(must=[_of(batch)])), wait=True)
        left = self.count(model, items)
        if left:
            raise StoreError(f"{self.where} still has {left} points of items that were removed from it.")

    def count(self, model: str, items: Sequence[str] | None = None) -> int:
        name = self._name(model)
        if items is None:
            return int(self._ask("count", name, exact=True).count)
        wanted = [q.Filter(must=[_of(batch)]) for batch in _batches(items)]
        return sum(self._ask("count", name, one, exact=True).count for one in wanted)

    def nearest(self, query: PointQuery) -> FoundPoints:
        name = self._name(query.model)
        held = _held(query)
        exact = self._folder is not None or self._few(name, query.scope)
        # The embedded form compares all, and says so when it is told how to search.
        how = None if self._folder else q.SearchParams(exact=exact, hnsw_ef=None if exact else max(256, query.limit))
        found = self._ask(
            "query_points",
            name,
            query=np.asarray(query.vector, dtype=np.float32).ravel().tolist(),
            query_filter=held,
            search_params=how,
            limit=query.limit,
            with_payload=["item"],
        ).points
        return FoundPoints([(one.payload or {})["item"] for one in found], [float(one.score) for one in found], exact)

    def _few(self, name: str, scope: str) -> bool:
        return bool(self._ask("count", name, q.Filter(must=[_within(scope)]), exact=False).count <= EXACT)

    # The server

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()
        if self._folder:
            self._folder.leave()

    def _name(self, model: str) -> str:
        if model not in self._names:
            raise NotFound(f"{self.where} has no collection for {model}.")
        return self._names[model]

    def _ask(self, verb: str, *args: Any, **options: Any) -> Any:
        """A call of the client. All of them can be repeated without harm."""
        ends = time.monotonic() + self._address.timeout
        while True:
            try:
                with self._using() as client:
                    return getattr(client, verb)(*args, **options)
            except UnexpectedResponse as exc:
                raise self._refused(exc) from exc
            except (ApiException, OSError) as exc:
                # A server that has just been started anew refuses at once.
                if time.monotonic() + PAUSE > ends:
                    why = f"did not answer within {self._address.timeout:g} s: {str(exc) or type(exc).__name__}."
                    raise StoreUnavailable(f"{self.where} {why}") from exc
                time.sleep(PAUSE)
            except ValueError as exc:
                if "not found" not in str(exc):
                    raise StoreError(f"{self.where} gave no answer of a Qdrant server: {str(exc)[:200]}") from exc
                self._names.clear()
                raise NotFound(f"a collection is no longer in {self.where}.") from exc

    @contextmanager
    def _using(self) -> Iterator[QdrantClient]:
        if self._client is None:
            raise StoreClosed("this store was closed. Open it again.")
        if not self._folder:
            yield self._client
            return
        if os.getpid() != self._pid:
            raise StoreBusy(f"{self.where} serves the process that opened it, not one that was forked from it.")
        with self._turn:
            yield self._client

    def _refused(self, exc: UnexpectedResponse) -> Exception:
        if exc.status_code == 404:
            self._names.clear()
            return NotFound(f"a collection is no longer in {self.where}.")
        if exc.status_code in (401, 403):
            return ConfigError(f"{self.where} refused the key: set QDRANT_API_KEY.")
        if exc.status_code is not None and exc.status_code >= 500:
            return StoreUnavailable(f"{self.where} cannot do this now: {exc.status_code} {exc.reason_phrase}.")
        return StoreError(f"{self.where} refused: {exc.status_code} {exc.content.decode(errors='replace')[:200]}")


def _client(address: VectorAddress, api_key: str | None) -> QdrantClient:
    if address.folder:
        return QdrantClient(path=str(address.folder), force_disable_check_same_thread=True)
    return QdrantClient(
        host=address.host,
        port=address.port,
        https=address.tls,
        api_key=api_key,
        timeout=max(1, round(address.timeout)),
        check_compatibility=False,
    )


def _struct(point: VectorPoint) -> q.PointStruct:
    payload = {name: getattr(point, name) for name in ("item", "window", "scope", "begins", "ends")}
    return q.PointStruct(id=_id(point), vector=np.frombuffer(point.row, dtype="<f4").tolist(), payload=payload)


def _id(point: VectorPoint) -> str:
    """The same for the same window of the same item."""
    return str(uuid.uuid5(_NAMESPACE, f"{point.item}/{point.window}"))


def _of(items: Sequence[str]) -> q.FieldCondition:
    return q.FieldCondition(key="item", match=q.MatchAny(any=list(items)))


def _within(scope: str) -> q.FieldCondition:
    return q.FieldCondition(key="scope", match=q.MatchValue(value=scope))


def _held(query: PointQuery) -> q.Filter:
    begun = [] if query.at_least else [q.FieldCondition(key="begins", range=q.Range(lte=query.at))]
    return q.Filter(must=[_within(query.scope), *begun, q.FieldCondition(key="ends", range=q.Range(gt=query.at))])


def _batches(many: Sequence[T]) -> Iterator[Sequence[T]]:
    return (many[start : start + _BATCH] for start in range(0, len(many), _BATCH))


def _escaped(model: str) -> str:
    return _PLAIN.sub(lambda found: f"~{ord(found[0]):x}~", model)


def _model(escaped: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), escaped)
