"""Read a Redis URL: where the server is, how long we wait, and what it must promise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from engrain.core.errors import ConfigError

Durability = Literal["strict", "relaxed"]
_SECRET = ("password", "ssl_password")
_WANTED = {
    "durability": "strict or relaxed",
    "timeout": "seconds, up to 3,600",
    "patience": "seconds, from 0 to 3,600",
    "pool": "a number from 1 to 1,000",
    "cluster": "on or off",
}


@dataclass(frozen=True, slots=True)
class Address:
    """`timeout` is for one call with all its tries, in seconds; `patience` for a server that is still starting when a
    journal is opened there, but no longer than the time-out."""

    url: str = field(repr=False)  # it may hold a password
    shown: str
    durability: Durability = "strict"
    timeout: float = 10.0
    patience: float = 5.0
    pool: int = 32
    cluster: bool = False


def read_url(url: str) -> Address:
    """redis://user:password@host:6379/0?durability=relaxed&timeout=10&patience=5&pool=32&cluster=on

    Every other parameter is the client's own (ssl_ca_certs, client_name, …).
    """
    parts = urlsplit(url)
    try:
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        _ = parts.port
    except ValueError as exc:
        raise ConfigError(f"{_shown(url)} is not a Redis URL: {exc}.") from exc
    own: dict[str, Any] = {name: _value(name, value) for name, value in given if name in _WANTED}
    rest = urlencode([(name, value) for name, value in given if name not in _WANTED])
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
    if name == "durability" and value in ("strict", "relaxed"):
        return value
    if name == "cluster" and value in ("on", "off"):
        return value == "on"
    raise ConfigError(f"{name} in the URL of a Redis store must be {_WANTED[name]}, not {value!r}.")


def _shown(url: str) -> str:
    """The URL without what must not stand in a message."""
    parts = urlsplit(url)
    who, _, where = parts.netloc.rpartition("@")
    netloc = f"{who.partition(':')[0]}@{where}" if who else where
    query = [(name, value) for name, value in parse_qsl(parts.query) if name not in _SECRET]
    return urlunsplit(parts._replace(netloc=netloc, query=urlencode(query)))
