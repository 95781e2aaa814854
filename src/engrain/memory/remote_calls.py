"""Call a verb on a server: bind its arguments, choose its route, send it, and read the answer."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import orjson

from engrain.client.connection import Connection, WireRequest
from engrain.client.values import encode_json, from_wire, to_query
from engrain.core.errors import ConfigError, InvalidInput, NotFound
from engrain.core.http_routes import NO_OWNER, NOT_SERVED, READS_HEADER, ROUTES, SCOPE_HEADERS, VIEW_HEADER, Route
from engrain.core.identity import Scope
from engrain.core.validation import check_key, check_optional_key
from engrain.memory.verbs import Verb

Remote = TypeVar("Remote", bound=type)
_EMPTY = inspect.Parameter.empty
# A server embeds every text of these before it answers.
_MANY_TEXTS = ("remember_many", "add_messages", "conversation.add_many", "conversation.load")


@dataclass(frozen=True)
class Channel:
    """A connection, and the memory that its requests are about."""

    connection: Connection
    headers: Mapping[str, str] = field(default_factory=dict)

    def call(self, routes: Sequence[Verb], args: Sequence[Any], named: Mapping[str, Any], **path: str) -> Any:
        """Call the verb that these routes are of. `path` has values of the path that are not arguments."""
        verb = routes[0]
        given = dict(inspect.signature(verb.function).bind(None, *args, **named).arguments)
        given.pop("self")
        given.pop("progress", None)
        request_id = check_optional_key(given.pop("request_id", None), "request_id")
        verb = _choose_route(routes, given)
        channel = self._name_owner(verb, given)
        request = channel.make_request(verb.route, {**path, **_drop_none(verb, given)}, request_id)
        return self._decode(verb, request)

    def ask(self, verb: str, kind: Any, **values: Any) -> Any:
        """Call a verb that only the server has, and read its answer as this type."""
        route = find_route(verb)
        body = self.connection.send(self.make_request(route, values))
        plain = None if body is None else orjson.loads(body)
        return from_wire(kind, plain[route.answer] if route.answer and plain else plain)

    def make_request(self, route: Route, values: Mapping[str, Any], request_id: str | None = None) -> WireRequest:
        """Put each value where the route has it: in the path, the query or the body."""
        left, path = dict(values), route.path
        for name in route.path_names:
            value = left.pop(route.renamed.get(name, name))
            path = path.replace(f"{{{name}}}", quote(check_key(value, name), safe=""))
        if request_id is not None and not (request_id.isascii() and request_id.isprintable()):
            raise InvalidInput("over HTTP a request_id has printable ASCII characters only.")
        return WireRequest(
            route.method,
            path,
            self.headers,
            query=to_query(left) if route.in_query else (),
            body=None if route.in_query else encode_json(left),
            reads=route.right == "read" or route.method == "GET",
            heavy=route.heavy or route.verb in _MANY_TEXTS,
            request_id=request_id,
        )

    def with_scope(self, scope: Scope) -> Channel:
        """Return the channel to another memory."""
        others = {name: value for name, value in self.headers.items() if name not in SCOPE_HEADERS.values()}
        return replace(self, headers={**others, **_encode_scope(scope)})

    def _name_owner(self, verb: Verb, given: dict[str, Any]) -> Channel:
        """Move the owner from the arguments of a store's verb to the headers."""
        if not verb.from_scope:
            return self
        owner = {part: check_optional_key(given.pop(part, None), part) for part in verb.from_scope}
        return self.with_scope(Scope(**owner))

    def _decode(self, verb: Verb, request: WireRequest) -> Any:
        try:
            body = self.connection.send(request)
        except NotFound:
            if verb.route.missing:
                return None
            raise
        if body is None:
            return None
        plain = orjson.loads(body)
        return from_wire(verb.returns, plain[verb.route.answer] if verb.route.answer else plain)


def find_route(verb: str) -> Route:
    return next(route for route in ROUTES if route.verb == verb)


def make_headers(scope: Scope, reads: Sequence[Scope], view: str) -> dict[str, str]:
    """Return the headers that name a memory, what it reads, and the view that holds its default session."""
    headers = {VIEW_HEADER: view, **_encode_scope(scope)}
    if reads:
        named = (urlencode(_list_parts(one), quote_via=quote, safe="") for one in reads)
        headers[READS_HEADER] = ", ".join(name or NO_OWNER for name in named)
    return headers


def serve_verbs(part: str) -> Callable[[Remote], Remote]:
    """Give a class the verbs of the route table that it does not define itself. Others raise an error."""

    def decorate(cls: Remote) -> Remote:
        for name, routes in _group_routes(part).items():
            if name not in vars(cls):
                call = _make_verb(routes)
                setattr(cls, name, property(call) if routes[0].is_property else call)
        for verb, reason in NOT_SERVED.items():
            owner, _, name = verb.rpartition(".")
            if owner == part and name not in vars(cls):
                setattr(cls, name, _refuse_verb(verb, reason))
        return cls

    return decorate


def _group_routes(part: str) -> dict[str, list[Verb]]:
    """Return the routes of each verb, those with the most parameters first."""
    found: dict[str, list[Verb]] = {}
    for route in ROUTES:
        if route.verb.rpartition(".")[0] == part:
            verb = Verb(route)
            found.setdefault(verb.name, []).append(verb)
    return {name: sorted(routes, key=lambda verb: -len(verb.parameters)) for name, routes in found.items()}


def _make_verb(routes: Sequence[Verb]) -> Callable[..., Any]:
    @functools.wraps(routes[0].function)
    def call(self: Any, *args: Any, **named: Any) -> Any:
        return self.channel.call(routes, args, named, **self.path_values)

    return call


def _refuse_verb(verb: str, reason: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise ConfigError(f"{verb} does not work over HTTP: {reason}. Open the store itself for it.")

    refuse.__doc__ = f"Not over HTTP: {reason}."
    return refuse


def _choose_route(routes: Sequence[Verb], given: Mapping[str, Any]) -> Verb:
    """Choose the route that takes these arguments. A verb about one user needs no key of the whole store."""
    for verb in routes:
        if verb.from_scope and given.get("user") is not None:
            return verb
    verb = routes[0]
    for name in verb.route.without:
        if given.get(name):
            raise InvalidInput(f"{name} is about files of this machine, which the server does not see: leave it out.")
    return verb


def _drop_none(verb: Verb, given: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is None by default: the server has the same default."""
    defaults = {name: one.default for name, one in verb.signature.items()}
    hidden = verb.route.without
    return {
        name: value
        for name, value in given.items()
        if name not in hidden and not (value is None and defaults.get(name, _EMPTY) is None)
    }


def _encode_scope(scope: Scope) -> dict[str, str]:
    return {SCOPE_HEADERS[part]: quote(value, safe="") for part, value in _list_parts(scope)}


def _list_parts(scope: Scope) -> list[tuple[str, str]]:
    return [(part, value) for part in SCOPE_HEADERS if (value := getattr(scope, part)) is not None]
