"""The OpenAPI 3.1 document, made from the route table, the signatures of the verbs and their docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any

from engrain import __version__
from engrain.core.http_routes import (
    GROUPS,
    IDEMPOTENCY_HEADER,
    NO_OWNER,
    READS_HEADER,
    SCOPE_HEADERS,
    VIEW_HEADER,
    Route,
)
from engrain.server.answers import AnswerSchemas
from engrain.server.problems import PROBLEM_TYPE, TITLES
from engrain.server.router import Endpoint
from engrain.server.wire_types import JSON_MARKER, JSON_SCHEMA

Schema = dict[str, Any]
LOAD_TYPES = (
    "application/x-ndjson",
    "application/jsonl",
    "application/json",
    "application/octet-stream",
    "application/zip",
)
EXPORT_TYPES: Mapping[str, str] = {"jsonl": "application/x-ndjson", "markdown": "text/markdown"}
_REF = "#/components/schemas/"
_COMMON_STATUSES = (400, 401, 403, 404, 409, 413, 415, 422, 429, 501, 503)
_NAME = {"type": "string", "minLength": 1, "pattern": r"^[^\x00]*[^\s\x00][^\x00]*$"}
# ASCII without white space at an end. Other characters are percent-encoded, so that % stands for itself as %25.
_LETTER = r"([!-$&-~]|%[2-6][0-9A-Fa-f]|%7[0-9A-Ea-e])"
_ENCODED_HEADER = {"type": "string", "minLength": 1, "pattern": rf"^{_LETTER}([ ]*{_LETTER})*$"}
_PLAIN_HEADER = {"type": "string", "minLength": 1, "pattern": r"^[!-~]([ -~]*[!-~])?$"}
_PART = rf"({NO_OWNER}|(tenant|agent|user)=[0-9A-Za-z]+)"
_READS = {"type": "string", "pattern": rf"^{_PART}(, {_PART})*$"}
_PROBLEM: Schema = {
    "title": "Problem",
    "type": "object",
    "description": "RFC 9457. `error` is the name of engrain's error class.",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "error": {"type": "string"},
    },
    "required": ["type", "title", "status", "detail"],
}


def build_openapi(endpoints: Iterable[Endpoint]) -> Schema:
    answers = AnswerSchemas()
    paths: dict[str, Schema] = {}
    components: dict[str, Schema] = {"Problem": _PROBLEM, "Json": dict(JSON_SCHEMA)}
    for endpoint in endpoints:
        operation = _describe_operation(endpoint, answers, components)
        paths.setdefault(endpoint.route.path, {})[endpoint.route.method.lower()] = operation
    document = {
        "openapi": "3.1.0",
        "info": {
            "title": "engrain",
            "version": __version__,
            "description": "A memory for AI agents over HTTP. The paths use the words of the Python API.",
        },
        "paths": paths,
        "components": {
            "schemas": {**components, **answers.components},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}],
    }
    return _refer_to_json(document)  # type: ignore[no-any-return]


def first_paragraph(function: Any) -> str:
    return " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())


def _describe_operation(endpoint: Endpoint, answers: AnswerSchemas, components: dict[str, Schema]) -> Schema:
    route = endpoint.route
    schema = endpoint.model.model_json_schema(ref_template=_REF + "{model}")
    components |= schema.pop("$defs", {})
    operation: Schema = {
        "operationId": re.sub(r"\W+", "_", f"{route.method.lower()} {route.path.removeprefix('/v1/')}").strip("_"),
        "summary": first_paragraph(endpoint.verb.function),
        "tags": [next(title for title, routes in GROUPS.items() if route in routes)],
        "description": f"Python: `{route.verb}`. Right: `{route.right}`.",
        "parameters": [*_describe_path(route), *_describe_headers(endpoint)],
        "responses": _describe_responses(endpoint, answers),
    }
    if route.in_query or route.verb == "load":
        operation["parameters"] += _describe_query(schema)
    if route.verb == "load":
        binary = {"schema": {"type": "string", "format": "binary"}}
        operation["requestBody"] = {"required": True, "content": dict.fromkeys(LOAD_TYPES, binary)}
    elif not route.in_query and endpoint.model.model_fields:
        required = "minProperties" in schema or any(
            field.is_required() for field in endpoint.model.model_fields.values()
        )
        operation["requestBody"] = {"required": required, "content": {"application/json": {"schema": schema}}}
    return operation


def _describe_path(route: Route) -> list[Schema]:
    return [{"name": name, "in": "path", "required": True, "schema": _NAME} for name in route.path_names]


def _describe_query(schema: Schema) -> list[Schema]:
    required = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _drop_null(found)}
        for name, found in schema.get("properties", {}).items()
    ]


def _drop_null(schema: Schema) -> Schema:
    """A query has no null: a parameter is left out instead."""
    options = [option for option in schema.get("anyOf", ()) if option.get("type") != "null"]
    found = {**schema, **options[0]} if len(options) == 1 else dict(schema)
    if len(options) == 1:
        found.pop("anyOf")
    if found.get("default", ...) is None:
        found.pop("default")
    return found


def _describe_headers(endpoint: Endpoint) -> list[Schema]:
    names = {VIEW_HEADER: "The view: its default session and working memory."}
    names |= {header: f"The {part}, if the key may choose it." for part, header in SCOPE_HEADERS.items()}
    if endpoint.route.verb in ("recall", "prompt", "get", "explain"):
        names[READS_HEADER] = "Scopes that are searched as well, if the key may read them: agent=team&tenant=acme, none"
    if endpoint.verb.takes_request_id:
        names[IDEMPOTENCY_HEADER] = "Repeating a request with the same key returns the first answer."
    return [
        {"name": name, "in": "header", "required": False, "description": text, "schema": _choose_header(name)}
        for name, text in names.items()
    ]


def _choose_header(name: str) -> Schema:
    if name == READS_HEADER:
        return _READS
    return _PLAIN_HEADER if name == IDEMPOTENCY_HEADER else _ENCODED_HEADER


def _describe_responses(endpoint: Endpoint, answers: AnswerSchemas) -> Schema:
    return {
        **_describe_success(endpoint, answers),
        **{str(status): _describe_problem(status) for status in _COMMON_STATUSES},
    }


def _describe_success(endpoint: Endpoint, answers: AnswerSchemas) -> Schema:
    if endpoint.route.verb == "server.events":
        return {"200": {"description": "A stream of changes.", "content": {"text/event-stream": {}}}}
    if endpoint.route.verb == "export":
        return {"200": {"description": "The file.", "content": {kind: {} for kind in EXPORT_TYPES.values()}}}
    schema = answers.describe(endpoint.verb)
    if schema is None:
        return {"204": {"description": "Done."}}
    return {"200": {"description": "Done.", "content": {"application/json": {"schema": schema}}}}


def _describe_problem(status: int) -> Schema:
    answer: Schema = {
        "description": f"{TITLES[status]}.",
        "content": {PROBLEM_TYPE: {"schema": {"$ref": _REF + "Problem"}}},
    }
    if status in (429, 503):
        answer["headers"] = {"Retry-After": {"schema": {"type": "string"}, "description": "Seconds to wait."}}
    return answer


def _refer_to_json(value: Any) -> Any:
    """Replace the marker of plain JSON by a reference to its component."""
    if isinstance(value, dict):
        if JSON_MARKER in value:
            rest = {name: element for name, element in value.items() if name not in (JSON_MARKER, "title")}
            return {**rest, "$ref": _REF + "Json"}
        return {name: _refer_to_json(element) for name, element in value.items()}
    return [_refer_to_json(element) for element in value] if isinstance(value, list) else value
