"""The verbs of the HTTP routes: their functions and parameters, and how to call them on a server."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, TypeVar
from urllib.parse import quote, urlencode

import orjson

from engrain.client.connection import Connection, WireRequest
from engrain.client.values import encode_json, from_wire, load_public_names, to_query
from engrain.core.errors import ConfigError, InvalidInput, NotFound
from engrain.core.http_routes import NO_OWNER, NOT_SERVED, READS_HEADER, ROUTES, SCOPE_HEADERS, VIEW_HEADER, Route
from engrain.core.identity import Scope
from engrain.core.validation import check_key, check_optional_key
from engrain.memory.memory import Memory
from engrain.memory.store import Store
from engrain.tasks.manage_tasks import Tasks
from engrain.tiers.conversation import ConversationMemory
from engrain.tiers.episodic import EpisodicMemory
from engrain.tiers.procedural import ProceduralMemory
from engrain.tiers.scoped_working import ScopedWorkingMemory
from engrain.tiers.semantic import Relations, SemanticMemory, Slots
from engrain.tiers.session_lifecycle import Sessions

PARTS: Mapping[str, type] = {
    "slots": Slots,
    "relations": Relations,
    "working": ScopedWorkingMemory,
    "conversation": ConversationMemory,
    "episodic": EpisodicMemory,
    "semantic": SemanticMemory,
    "procedural": ProceduralMemory,
    "sessions": Sessions,
    "tasks": Tasks,
    "store": Store,
}
# Parameters that a request cannot give: a callback, and the id that the header has.
_NOT_ON_THE_WIRE = ("self", "progress", "request_id")


class Verb:
    """The function of a route and its parameters."""

    owners: ClassVar[Mapping[str, type]] = {"": Memory, **PARTS}

    def __init__(self, route: Route) -> None:
        self.route = route
        self.part, _, self.name = route.verb.rpartition(".")
        found: Any = inspect.getattr_static(self.owners[self.part], self.name)
        self.is_property = isinstance(found, property)
        self.function: Callable[..., Any] = found.fget if self.is_property else found

    @cached_property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """The parameters that a request gives, by name: all but those of the path."""
        in_path = {self.route.renamed.get(name, name) for name in self.route.path_names}
        hidden = {*in_path, *_NOT_ON_THE_WIRE, *self.route.without, *self.from_scope}
        return {name: parameter for name, parameter in self.signature.items() if name not in hidden}

    @cached_property
    def from_scope(self) -> tuple[str, ...]:
        """The parameters that the caller's scope gives: those of a verb of the store about one owner."""
        if self.part != "store" or self.route.whole_store:
            return ()
        return tuple(part for part in SCOPE_HEADERS if part in self.signature)

    @property
    def takes_request_id(self) -> bool:
        return "request_id" in self.signature

    @cached_property
    def path_parameters(self) -> Mapping[str, str]:
        """The verb's parameter for each value in the path; "" for the session that a conversation is of."""
        renamed = {name: self.route.renamed.get(name, name) for name in self.route.path_names}
        return {name: parameter if parameter in self.signature else "" for name, parameter in renamed.items()}

    @cached_property
    def returns(self) -> Any:
        """The type of the value, for the schema of the answer."""
        module = vars(inspect.getmodule(inspect.unwrap(self.function)))
        names, found = load_public_names(), inspect.get_annotations(self.function).get("return")
        return eval(found, {**names, **module}) if isinstance(found, str) else found  # our own source

    @cached_property
    def signature(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.function).parameters


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
        arguments = dict(inspect.signature(verb.function).bind(None, *args, **named).arguments)
        arguments.pop("self")
        arguments.pop("progress", None)
        request_id = check_optional_key(arguments.pop("request_id", None), "request_id")
        verb = _choose_route(routes, arguments)
        channel = self._name_owner(verb, arguments)
        request = channel.make_request(verb.route, {**path, **_drop_none(verb, arguments)}, request_id)
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

    def _name_owner(self, verb: Verb, arguments: dict[str, Any]) -> Channel:
        """Move the owner from the arguments of a store's verb to the headers."""
        if not verb.from_scope:
            return self
        owner = {part: check_optional_key(arguments.pop(part, None), part) for part in verb.from_scope}
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
        named = (urlencode(_list_parts(scope), quote_via=quote, safe="") for scope in reads)
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


def _choose_route(routes: Sequence[Verb], arguments: Mapping[str, Any]) -> Verb:
    """Choose the route that takes these arguments. A verb about one user needs no key of the whole store."""
    for verb in routes:
        if verb.from_scope and arguments.get("user") is not None:
            return verb
    verb = routes[0]
    for name in verb.route.without:
        if arguments.get(name):
            raise InvalidInput(f"{name} is about files of this machine, which the server does not see: leave it out.")
    return verb


def _drop_none(verb: Verb, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is None by default: the server has the same default."""
    defaults = {name: parameter.default for name, parameter in verb.signature.items()}
    hidden = verb.route.without
    return {
        name: value
        for name, value in arguments.items()
        if name not in hidden and not (value is None and defaults.get(name, _EMPTY) is None)
    }


def _encode_scope(scope: Scope) -> dict[str, str]:
    return {SCOPE_HEADERS[part]: quote(value, safe="") for part, value in _list_parts(scope)}


def _list_parts(scope: Scope) -> list[tuple[str, str]]:
    return [(part, value) for part in SCOPE_HEADERS if (value := getattr(scope, part)) is not None]
