"""The one table has every verb, and every part of the API follows from it."""

from __future__ import annotations

import inspect
from collections import Counter
from pathlib import Path

import pytest
from examples import for_each
from pydantic import BaseModel
from server_kit import run_server

from engrain import Memory, Store
from engrain.core.http_routes import NOT_SERVED, ROUTES, SAME_AS, Route
from engrain.memory.http_verbs import PARTS
from engrain.server.models import build_model
from engrain.server.router import Router, build_endpoints
from engrain.server.verbs import ServedVerb

ROUTER = Router(build_endpoints())


def list_verbs(owner: type, prefix: str = "") -> set[str]:
    found = set()
    for name in dir(owner):
        value = inspect.getattr_static(owner, name)
        doc = (inspect.getdoc(value) or "") if not isinstance(value, property) else "Internal: "
        if not name.startswith("_") and not doc.startswith("Internal: ") and callable(getattr(owner, name)):
            found.add(prefix + name)
    return found


def test_every_verb_of_memory_its_parts_and_the_store_is_served_or_has_a_reason_not_to_be() -> None:
    verbs = list_verbs(Memory) | list_verbs(Store, "store.")
    for name, part in PARTS.items():
        verbs |= list_verbs(part, f"{name}.")
    served = {route.verb for route in ROUTES}
    assert verbs - served - set(SAME_AS) - set(NOT_SERVED) == set()
    assert set(NOT_SERVED) <= verbs
    assert set(SAME_AS) <= verbs
    assert set(SAME_AS.values()) <= served
    assert not (set(SAME_AS) | set(NOT_SERVED)) & served


def test_a_method_and_path_is_there_once() -> None:
    assert Counter((route.method, route.path) for route in ROUTES).most_common(1)[0][1] == 1


@for_each("route", ROUTES)
def test_a_route_finds_itself_and_offers_the_parameters_of_its_verb(route: Route) -> None:
    path = route.path
    for name in route.path_names:
        path = path.replace(f"{{{name}}}", "a%2Fb")
    endpoint, values = ROUTER.find(route.method, path)
    assert endpoint.route is route
    assert set(values.values()) <= {"a/b"}
    verb = ServedVerb(route)
    offered = {*verb.parameters, *verb.from_scope, *verb.path_parameters.values(), *route.without}
    signature = inspect.signature(verb.function).parameters
    assert {*signature} - offered <= {"self", "progress", "request_id"}
    assert set(build_model(verb).model_fields) == set(verb.parameters)


def test_no_route_takes_a_path_of_the_server() -> None:
    for route in ROUTES:
        assert not {"path", "folder", "folders", "to", "location"} & set(ServedVerb(route).parameters), route.path


def test_the_scope_is_never_a_parameter_outside_of_the_whole_store() -> None:
    for route in ROUTES:
        if not route.whole_store:
            assert not {"user", "agent", "tenant", "scope", "reads"} & set(ServedVerb(route).parameters), route.path


def test_a_server_starts_without_its_openapi_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To make it takes longer than all the rest of the start."""
    monkeypatch.setattr("engrain.server.app.build_openapi", lambda _: pytest.fail("nobody has asked for it"))
    with run_server(tmp_path) as server:
        assert server.client().get("/healthz").is_success


def test_the_types_of_a_query_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with run_server(tmp_path) as server:
        client = server.client(server.add_key("ana", user="ana"))
        assert client.get("/v1/items?limit=1").is_success
        monkeypatch.setattr(BaseModel, "model_json_schema", lambda *_: pytest.fail("a schema for each request"))
        assert client.get("/v1/items?limit=1").is_success
