"""Decide who asks and for which memory: a key and its headers, or the one scope of a server without keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from urllib.parse import parse_qsl, unquote

from engrain.core.errors import EngrainError
from engrain.core.http_routes import NO_OWNER, READS_HEADER, RIGHTS, SCOPE_HEADERS, Route
from engrain.core.identity import Scope, check_scope
from engrain.server.keys import NO_LIMITS, SCOPE_PARTS, KeyFile, KeyLimits
from engrain.server.problems import Problem, to_problem
from engrain.server.verbs import Caller

_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="engrain"'}
_PERCENT_ENCODED = re.compile(r"([ -$&-~]|%[0-9A-Fa-f]{2})*")
MAX_READS = 32
_SCOPE_HEADER_NAMES = tuple(header.lower() for header in SCOPE_HEADERS.values())
_READS_HEADER_NAME = READS_HEADER.lower()
_NO_NAMES = [None] * len(_SCOPE_HEADER_NAMES)
LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class OpenAccess:
    """Access without keys: one scope, or, if there is none, every scope that headers name."""

    scope: Scope | None = None

    @cached_property
    def caller(self) -> Caller:
        return Caller("", RIGHTS, self.scope or Scope(), () if self.scope else SCOPE_PARTS)


@dataclass(frozen=True)
class Access:
    """Check keys, or let everybody in if the server has none."""

    keys: KeyFile | None
    open_access: OpenAccess | None = None

    def identify(self, headers: Mapping[str, str]) -> tuple[Caller, KeyLimits]:
        """Return the caller of a request, with the limits of its key; Problem 401 without a valid key."""
        if self.open_access is not None:
            _refuse_foreign_host(headers.get("host", ""))
            return _choose_scope(self.open_access.caller, headers), NO_LIMITS
        kind, _, text = headers.get("authorization", "").partition(" ")
        text = text.strip()
        if kind.lower() != "bearer" or not text or self.keys is None:
            raise _refuse_key("send your key in a header: Authorization: Bearer engrain_….")
        try:
            key = self.keys.find(text)
        except EngrainError as exc:
            raise Problem(503, "the server cannot read its keys.", type(exc).__name__) from exc
        if key is None:
            raise _refuse_key("this key is not valid: it is unknown, was revoked or was rotated.")
        caller = Caller(key.id, key.rights, key.scope, key.chooses, key.reads, key.voice)
        return _choose_scope(caller, headers), key.limits


def refuse(detail: str) -> Problem:
    return Problem(403, detail, "AccessDenied")


def _refuse_key(detail: str) -> Problem:
    return Problem(401, detail, "AccessDenied", headers=_CHALLENGE)


def check_rights(caller: Caller, route: Route) -> None:
    """Problem 403 if the caller's key does not have the right of the route."""
    if route.right not in caller.rights:
        raise refuse(f"this needs the right {route.right!r}; the key has {', '.join(caller.rights)}.")
    if route.whole_store and not caller.whole_store:
        raise refuse("this is about the whole store; the key is bound to a part of it.")


def refuse_other_origin(headers: Mapping[str, str]) -> None:
    """Problem 403 for a request of another site's page: it must not act in the name of a browser's user."""
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2] != headers.get("host"):
        raise refuse("requests from pages of other origins are not answered.")


def _refuse_foreign_host(host: str) -> None:
    """A page may point its own name at this machine: without keys, only local names are answered."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    if name and name.lower() not in LOCAL_HOSTS:
        raise refuse("without keys the server answers only to the name localhost.")


def _choose_scope(caller: Caller, headers: Mapping[str, str]) -> Caller:
    """Set the scope and the shared scopes that headers name; Problem 403 if the key may not choose one."""
    named = [headers.get(header) for header in _SCOPE_HEADER_NAMES]
    reads = headers.get(_READS_HEADER_NAME)
    if reads is None and named == _NO_NAMES:
        return caller
    try:
        scope = _name_scope(caller.scope, caller.chooses, *named)
        return replace(caller, scope=scope, reads=caller.reads if reads is None else _parse_reads(caller, reads))
    except EngrainError as exc:
        raise to_problem(exc) from exc


@lru_cache(maxsize=4_096)  # every request of a user names the same scope
def _name_scope(bound: Scope, chooses: tuple[str, ...], *named: str | None) -> Scope:
    parts = {part: getattr(bound, part) for part in SCOPE_PARTS}
    for (part, header), raw in zip(SCOPE_HEADERS.items(), named, strict=True):
        if raw is None:
            continue
        value = decode_header(raw, header)
        if part not in chooses and value != parts[part]:
            raise refuse(f"{header} may name no other {part} than that of the key, or of a server without keys.")
        parts[part] = value
    return check_scope(**parts)


def _parse_reads(caller: Caller, raw: str) -> tuple[Scope, ...]:
    """Return the scopes that the header names, which recall searches as well."""
    found = tuple(_parse_scope(part.strip()) for part in raw.split(","))
    if len(found) > MAX_READS:
        raise Problem(400, f"{READS_HEADER} names more than {MAX_READS} scopes.")
    for scope in found:
        if scope not in caller.reads and not caller.may_name(scope):
            raise refuse(f"this key may not read {scope}.")
    return found


def _parse_scope(text: str) -> Scope:
    """Parse one scope of the header, such as tenant=acme&agent=team; "none" is the one without an owner."""
    if text == NO_OWNER:
        return Scope()
    try:
        parts = parse_qsl(text, keep_blank_values=True, strict_parsing=True, errors="strict")
        if not parts or len(dict(parts)) < len(parts) or not set(dict(parts)) <= set(SCOPE_PARTS):
            raise ValueError
        named = dict(parts)
    except ValueError as exc:
        raise Problem(400, f"{READS_HEADER} takes scopes such as agent=team&tenant=acme, with commas.") from exc
    return check_scope(named.get("tenant"), named.get("agent"), named.get("user"))


def decode_header(raw: str, header: str) -> str:
    """Decode a name in a header, which is percent-encoded UTF-8 where it is not plain ASCII."""
    try:
        if not _PERCENT_ENCODED.fullmatch(raw):
            raise ValueError
        return unquote(raw, errors="strict")
    except ValueError as exc:
        raise Problem(400, f"{header} must be ASCII, with other characters percent-encoded as UTF-8.") from exc
