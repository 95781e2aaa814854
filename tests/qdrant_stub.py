"""Qdrant's REST interface on loopback, answered by the client's own local mode.

It is not a Qdrant server: it shows that what we send over the wire is what the client's models say a server takes, and
that we read what comes back, also when it is an error.
"""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from qdrant_client import QdrantClient
from qdrant_client import models as q
from qdrant_client.http import models as rest


class Stub:
    def __init__(self, key: str | None = None) -> None:
        self.local = QdrantClient(":memory:")
        self.key = key
        self.fails = 0  # so many answers to come are a 503
        self.indexes: dict[str, dict[str, Any]] = {}
        self.params: list[dict[str, Any]] = []  # how searches were asked for
        self._turn = threading.Lock()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 1 << 16  # head and body in one piece

            def answer(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else {}
                status, result = stub.answered(self.command, self.path.partition("?")[0], body, self.headers)
                sent = json.dumps({"result": result, "status": "ok", "time": 0.0}).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent)

            do_GET = do_PUT = do_POST = do_DELETE = do_PATCH = answer  # noqa: N815

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"qdrant://127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def answered(self, verb: str, path: str, body: dict[str, Any], headers: Any) -> tuple[int, Any]:
        if self.key is not None and headers.get("api-key") != self.key:
            return 401, None
        if self.fails:
            self.fails -= 1
            return 503, None
        found = re.fullmatch(r"/collections(?:/([^/]+)(/.+)?)?", path)
        assert found, path
        name, rest_of_path = found[1], found[2] or ""
        with self._turn:
            if name is None:
                return 200, {"collections": [{"name": one} for one in self.indexes]}
            if verb == "PUT" and not rest_of_path:
                return 200, self._create(name, body)
            if name not in self.indexes:
                return 404, None
            return 200, getattr(self, f"_{verb.lower()}{rest_of_path.replace('/', '_')}")(name, body)

    def _create(self, name: str, body: dict[str, Any]) -> bool:
        asked = rest.CreateCollection(**body)
        assert asked.hnsw_config
        assert (asked.hnsw_config.m, asked.hnsw_config.payload_m) == (0, 32)
        self.indexes[name] = {}
        return self.local.create_collection(name, vectors_config=asked.vectors)

    def _get(self, name: str, body: dict[str, Any]) -> Any:
        info = self.local.get_collection(name)
        return {**info.model_dump(mode="json"), "payload_schema": self.indexes[name]}

    def _delete(self, name: str, body: dict[str, Any]) -> bool:
        del self.indexes[name]
        return self.local.delete_collection(name)

    def _put_index(self, name: str, body: dict[str, Any]) -> Any:
        asked = rest.CreateFieldIndex(**body)
        schema = asked.field_schema
        kind = schema.value if isinstance(schema, rest.PayloadSchemaType) else schema.type.value  # type: ignore[union-attr]
        self.indexes[name][asked.field_name] = {"data_type": kind, "points": 0}
        return _DONE

    def _put_points(self, name: str, body: dict[str, Any]) -> Any:
        self.local.upsert(name, rest.PointsList(**body).points)
        return _DONE

    def _post_points_delete(self, name: str, body: dict[str, Any]) -> Any:
        self.local.delete(name, rest.FilterSelector(**body))
        return _DONE

    def _post_points_count(self, name: str, body: dict[str, Any]) -> Any:
        asked = rest.CountRequest(**body)
        return {"count": self.local.count(name, asked.filter, exact=True).count}

    def _post_points_query(self, name: str, body: dict[str, Any]) -> Any:
        asked = rest.QueryRequest(**body)
        assert asked.params
        self.params.append(asked.params.model_dump(exclude_none=True))
        found = self.local.query_points(
            name, query=asked.query, query_filter=asked.filter, limit=asked.limit or 10, with_payload=asked.with_payload
        )
        return {"points": [one.model_dump(mode="json") for one in found.points]}


_DONE = {"operation_id": 1, "status": q.UpdateStatus.COMPLETED.value}
