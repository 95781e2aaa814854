"""Read a Postgres URL: where the server is, which schema is ours, and how long we wait."""

from __future__ import annotations

from dataclasses import dataclass, field

from engrain.core.errors import ConfigError
from engrain.stores.urls import COMMON_OPTIONS, parse_common_option, shown, split_url

_LONGEST_NAME = 63
_WANTED = {**COMMON_OPTIONS, "prepare": "on or off", "schema": f"a name of at most {_LONGEST_NAME} bytes"}


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
    safe = shown(url)
    rest, own = split_url(url, f"{safe} is not a Postgres URL", _WANTED, _value)
    return Address(rest, safe, **own)


def _value(name: str, value: str) -> object:
    if (found := parse_common_option(name, value)) is not None:
        return found
    if name == "prepare" and value in ("on", "off"):
        return value == "on"
    if name == "schema" and value and "\x00" not in value and len(value.encode()) <= _LONGEST_NAME:
        return value
    raise ConfigError(f"{name} in the URL of a Postgres store must be {_WANTED[name]}, not {value!r}.")
