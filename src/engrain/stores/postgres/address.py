"""Read a Postgres URL: where the server is, which schema is ours, and how long we wait."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from engrain.core.errors import ConfigError

_OWN = ("schema", "pool", "timeout", "patience", "prepare")
_SECRET = ("password", "sslpassword", "passfile")
_LONGEST_NAME = 63


@dataclass(frozen=True, slots=True)
class Address:
    """`timeout` is in seconds: to connect, to get a connection from the pool, for a lock, for a statement.
    `patience` is how long one that does not answer, or is still starting, is tried again when the store is opened, but
    no longer than the time-out.

    `prepare` is False behind a pooler that does not keep prepared statements apart.
    """

    url: str = field(repr=False)  # it may hold a password
    shown: str
    schema: str = "engrain"
    pool: int = 10
    timeout: float = 30.0
    patience: float = 5.0
    prepare: bool = True


def read_url(url: str) -> Address:
    """postgresql://user:password@host:5432/database?schema=engrain&pool=10&timeout=30&patience=5&prepare=off

    Every other parameter is libpq's own (sslmode, target_session_attrs, …).
    """
    parts = urlsplit(url)
    try:
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        _ = parts.port
    except ValueError as exc:
        raise ConfigError(f"{_shown(url)} is not a Postgres URL: {exc}.") from exc
    own: dict[str, Any] = {name: _value(name, value) for name, value in given if name in _OWN}
    rest = urlencode([(name, value) for name, value in given if name not in _OWN])
    return Address(urlunsplit(parts._replace(query=rest)), _shown(url), **own)


def _value(name: str, value: str) -> object:
    try:
        if name == "pool" and 1 <= int(value) <= 1_000:
            return int(value)
        if name == "timeout" and 0 < float(value) <= 3_600:
            return float(value)
        if name == "patience" and 0 <= float(value) <= 3_600:
            return float(value)
    except ValueError:
        pass
    if name == "prepare" and value in ("on", "off"):
        return value == "on"
    if name == "schema" and value and "\x00" not in value and len(value.encode()) <= _LONGEST_NAME:
        return value
    wanted = {
        "pool": "a number from 1 to 1,000",
        "timeout": "seconds, up to 3,600",
        "patience": "seconds, from 0 to 3,600",
        "prepare": "on or off",
        "schema": f"a name of at most {_LONGEST_NAME} bytes",
    }[name]
    raise ConfigError(f"{name} in the URL of a Postgres store must be {wanted}, not {value!r}.")


def _shown(url: str) -> str:
    """The URL without what must not stand in a message."""
    parts = urlsplit(url)
    who, _, where = parts.netloc.rpartition("@")
    netloc = f"{who.partition(':')[0]}@{where}" if who else where
    query = [(name, value) for name, value in parse_qsl(parts.query) if name not in _SECRET]
    return urlunsplit(parts._replace(netloc=netloc, query=urlencode(query)))
