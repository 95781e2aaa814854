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
        self._fixed: dict[str, list[Endpoint]] = {}
        self._patterns: list[Endpoint] = []
        for one in endpoints:
            if one.route.path_names:
                self._patterns.append(one)
            else:
                self._fixed.setdefault(one.route.path, []).append(one)

    def find(self, method: str, path: str) -> tuple[Endpoint, dict[str, str]]:
        """Return the endpoint and the values in the percent-encoded path; Problem 404, or 405 with Allow."""
        found: list[tuple[Endpoint, tuple[str, ...]]] = [(one, ()) for one in self._fixed.get(path, ())]
        chosen = next((one for one in found if one[0].route.method == method), None)
        if chosen is None:
            matches = ((one, one.route.pattern.fullmatch(path)) for one in self._patterns)
            found += [(one, match.groups()) for one, match in matches if match]
            chosen = next((one for one in found if one[0].route.method == method), None)
        if not found:
            raise Problem(404, "there is nothing at this path. GET /openapi.json lists every path.")
        if chosen is None:
            allowed = ", ".join(sorted({one.route.method for one, _ in found}))
            raise Problem(405, f"this path takes {allowed}.", headers={"Allow": allowed})
        endpoint, groups = chosen
        return endpoint, dict(zip(endpoint.route.path_names, map(_decode, groups), strict=True))


def _decode(part: str) -> str:
    try:
        return unquote_to_bytes(part).decode("utf-8")
    except UnicodeDecodeError as exc:
        raise Problem(400, "the path is not percent-encoded UTF-8.") from exc
