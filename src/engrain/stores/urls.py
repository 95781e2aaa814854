"""Parse the URLs of servers, and hide their secrets in messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from engrain.core.errors import ConfigError


def split_url(
    url: str, named: str, own: Collection[str], value: Callable[[str, str], object]
) -> tuple[str, dict[str, Any]]:
    """Split a URL into the one for the client and our own parameters, each parsed by `value`.

    Error messages start with `named`.
    """
    parts = urlsplit(url)
    try:
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        _ = parts.port
    except ValueError as exc:
        raise ConfigError(f"{named}: {exc}.") from exc
    rest = urlencode([(name, one) for name, one in given if name not in own], quote_via=quote)
    return urlunsplit(parts._replace(query=rest)), {name: value(name, one) for name, one in given if name in own}


def parse_common_option(name: str, value: str) -> float | None:
    """Parse a parameter that all servers share; None if it is another one, or its value is not valid."""
    try:
        if name == "pool" and 1 <= int(value) <= 1_000:
            return int(value)
        if name == "timeout" and 0 < float(value) <= 3_600:
            return float(value)
        if name == "patience" and 0 <= float(value) <= 3_600:
            return float(value)
    except ValueError:
        pass
    return None


COMMON_OPTIONS = {
    "timeout": "seconds, up to 3,600",
    "patience": "seconds, from 0 to 3,600",
    "pool": "a number from 1 to 1,000",
}


SECRET_OPTIONS = ("password", "sslpassword", "ssl_password", "passfile")


def shown(url: str) -> str:
    """Return the URL without its secrets, for messages. A path is returned unchanged."""
    if "://" not in url:
        return url
    parts = urlsplit(url)
    who, _, where = parts.netloc.rpartition("@")
    netloc = f"{who.partition(':')[0]}@{where}" if who else where
    query = [(name, value) for name, value in parse_qsl(parts.query) if name not in SECRET_OPTIONS]
    return urlunsplit(parts._replace(netloc=netloc, query=urlencode(query, quote_via=quote)))


DEFAULT_TIMEOUT_SECONDS = 5.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,38}[A-Za-z0-9]")
_VECTOR_OPTIONS = {
    "collection": "3 to 40 letters, digits, dots, dashes or underscores",
    "timeout": "seconds, up to 600",
    "tls": "true or false",
}


@dataclass(frozen=True, slots=True)
class VectorAddress:
    """The address of a vector server: a host, or a folder."""

    scheme: str
    host: str = ""
    port: int = 0
    folder: Path | None = None
    collection: str = "engrain"
    timeout: float = DEFAULT_TIMEOUT_SECONDS
    tls: bool = False
    options: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        """Return the address without key and options."""
        return f"{self.scheme}://{self.folder or f'{self.host}:{self.port}'}"


def parse_vector_url(url: str, port: int, options: tuple[str, ...] = ()) -> VectorAddress:
    """Parse scheme://host:port/?collection=… or scheme:///folder. `options` are those of this kind of server."""
    parts = urlsplit(url)
    scheme, known = parts.scheme, (*_VECTOR_OPTIONS, *options)
    rest, own = split_url(url, f"{shown(url)} is not a {scheme} URL", known, _parse_vector_option)
    if unknown := [name for name, _ in parse_qsl(urlsplit(rest).query, keep_blank_values=True)]:
        raise ConfigError(
            f"unknown option {unknown[0]!r} in the URL of a {scheme} server. Use one of: {', '.join(known)}."
        )
    if parts.username or parts.password:
        raise ConfigError(f"a {scheme} URL takes no user or password: set {scheme.upper()}_API_KEY instead.")
    folder = unquote(parts.path) if not parts.hostname else ""
    if not parts.hostname and folder in ("", "/"):
        raise ConfigError(f"a {scheme} URL needs a host, {scheme}://host:{port}, or a folder after ///.")
    if parts.hostname and parts.path not in ("", "/"):
        raise ConfigError(f"a {scheme} URL names a host or a folder, not both: {scheme}:///folder has three slashes.")
    extra = tuple((name, own.pop(name)) for name in options if name in own)
    path = Path(folder) if folder else None
    return VectorAddress(scheme, parts.hostname or "", parts.port or port, path, options=extra, **own)


def _parse_vector_option(name: str, value: str) -> object:
    if name not in _VECTOR_OPTIONS or (name == "collection" and _NAME.fullmatch(value)):
        return value
    if name == "timeout" and 0 < (parse_common_option(name, value) or 0) <= 600:
        return float(value)
    if name == "tls" and value.lower() in ("true", "false", "1", "0"):
        return value.lower() in ("true", "1")
    raise ConfigError(f"{name} in the URL of a vector server must be {_VECTOR_OPTIONS[name]}, not {value!r}.")


Durability = Literal["strict", "relaxed"]
_REDIS_OPTIONS = {**COMMON_OPTIONS, "durability": "strict or relaxed", "cluster": "on or off"}


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """The address of a Redis server. `timeout` covers one call with all its retries, in seconds.

    `patience` is how long opening a journal waits for a starting server, at most as long as the timeout.
    """

    url: str = field(repr=False)  # it may hold a password
    shown: str
    durability: Durability = "strict"
    timeout: float = 10.0
    patience: float = 5.0
    pool: int = 32
    cluster: bool = False


def parse_redis_url(url: str) -> RedisAddress:
    """Parse redis://user:password@host:6379/0?durability=relaxed&timeout=10&patience=5&pool=32&cluster=on

    Every other parameter is the client's own (ssl_ca_certs, client_name, …).
    """
    safe = shown(url)
    rest, own = split_url(url, f"{safe} is not a Redis URL", _REDIS_OPTIONS, _parse_redis_option)
    return RedisAddress(rest, safe, **own)


def _parse_redis_option(name: str, value: str) -> object:
    if (found := parse_common_option(name, value)) is not None:
        return found
    if name == "durability" and value in ("strict", "relaxed"):
        return value
    if name == "cluster" and value in ("on", "off"):
        return value == "on"
    raise ConfigError(f"{name} in the URL of a Redis store must be {_REDIS_OPTIONS[name]}, not {value!r}.")
