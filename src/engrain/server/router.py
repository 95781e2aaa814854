"""Find the endpoint of a method and a path."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from urllib.parse import unquote_to_bytes

from pydantic import BaseModel

from engrain.core.http_routes import ROUTES, Route
from engrain.server.models import build_model
from engrain.server.problems import Problem
from engrain.server.verbs import ServedVerb


@dataclass(frozen=True)
class Endpoint:
    """A route with its verb and the model of its parameters."""

    route: Route
    verb: ServedVerb
    model: type[BaseModel]


@cache
def build_endpoints() -> tuple[Endpoint, ...]:
    """Build the endpoint of every route, once for each process."""
    verbs = [ServedVerb(route) for route in ROUTES]
    return tuple(Endpoint(verb.route, verb, build_model(verb)) for verb in verbs)


class Router:
    """Endpoints by path: a fixed path first, then those with placeholders."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._endpoints = tuple(endpoints)
        self._fixed: dict[tuple[str, str], Endpoint] = {
            (endpoint.route.method, endpoint.route.path): endpoint
            for endpoint in self._endpoints
            if not endpoint.route.path_names
        }

    def find(self, method: str, path: str) -> tuple[Endpoint, dict[str, str]]:
        """Return the endpoint and the values in the percent-encoded path; Problem 404, or 405 with Allow."""
        fixed = self._fixed.get((method, path))
        if fixed is not None:
            return fixed, {}
        matches = ((endpoint, endpoint.route.pattern.fullmatch(path)) for endpoint in self._endpoints)
        found = {endpoint.route.method: (endpoint, match.groups()) for endpoint, match in matches if match}
        if not found:
            raise Problem(404, "there is nothing at this path. GET /openapi.json lists every path.")
        if method not in found:
            allowed = ", ".join(sorted(found))
            raise Problem(405, f"this path takes {allowed}.", headers={"Allow": allowed})
        endpoint, groups = found[method]
        return endpoint, dict(zip(endpoint.route.path_names, map(_decode, groups), strict=True))


def _decode(part: str) -> str:
    try:
        return unquote_to_bytes(part).decode("utf-8")
    except UnicodeDecodeError as exc:
        raise Problem(400, "the path is not percent-encoded UTF-8.") from exc
