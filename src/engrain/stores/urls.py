"""Read the URL of a database server: what is ours in it, what is the client's, and what may be shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from engrain.core.errors import ConfigError


def split(
    url: str, named: str, own: Collection[str], value: Callable[[str, str], object]
) -> tuple[str, dict[str, Any]]:
    """The URL as the client takes it, and our own parameters, each as `value` reads it. `named` is what an error calls
    it."""
    parts = urlsplit(url)
    try:
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        _ = parts.port
    except ValueError as exc:
        raise ConfigError(f"{named}: {exc}.") from exc
    rest = urlencode([(name, one) for name, one in given if name not in own], quote_via=quote)
    return urlunsplit(parts._replace(query=rest)), {name: value(name, one) for name, one in given if name in own}


def common(name: str, value: str) -> float | None:
    """A parameter that servers have in common; None if it is not one, or not a value of it."""
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


COMMON = {"timeout": "seconds, up to 3,600", "patience": "seconds, from 0 to 3,600", "pool": "a number from 1 to 1,000"}


SECRET = ("password", "sslpassword", "ssl_password", "passfile")


def shown(url: str) -> str:
    """The URL without what must not stand in a message; a path as it is."""
    if "://" not in url:
        return url
    parts = urlsplit(url)
    who, _, where = parts.netloc.rpartition("@")
    netloc = f"{who.partition(':')[0]}@{where}" if who else where
    query = [(name, value) for name, value in parse_qsl(parts.query) if name not in SECRET]
    return urlunsplit(parts._replace(netloc=netloc, query=urlencode(query, quote_via=quote)))


TIMEOUT = 5.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,38}[A-Za-z0-9]")
_OPTIONS = ("collection", "timeout", "tls")


@dataclass(frozen=True, slots=True)
class VectorAddress:
    """A host, or with none a folder."""

    scheme: str
    host: str = ""
    port: int = 0
    folder: Path | None = None
    collection: str = "engrain"
    timeout: float = TIMEOUT
    tls: bool = False
    options: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        """With neither key nor options."""
        return f"{self.scheme}://{self.folder or f'{self.host}:{self.port}'}"


def read_address(url: str, port: int, options: tuple[str, ...] = ()) -> VectorAddress:
    """scheme://host:port/?collection=… or scheme:///folder; `options` are those of this kind of server alone."""
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in given:
        if name not in (*_OPTIONS, *options):
            known = ", ".join((*_OPTIONS, *options))
            raise ConfigError(f"unknown option {name!r} in the URL of a {parts.scheme} server. Known: {known}.")
    if parts.username or parts.password:
        raise ConfigError(
            f"a {parts.scheme} URL takes no user or password: set {parts.scheme.upper()}_API_KEY instead."
        )
    folder = unquote(parts.path) if not parts.hostname else ""
    if not parts.hostname and folder in ("", "/"):
        raise ConfigError(f"a {parts.scheme} URL needs a host, {parts.scheme}://host:{port}, or a folder after ///.")
    if parts.hostname and parts.path not in ("", "/"):
        raise ConfigError(
            f"a {parts.scheme} URL names a host or a folder, not both: {parts.scheme}:///folder has three slashes."
        )
    return VectorAddress(
        parts.scheme,
        parts.hostname or "",
        _port(parts.scheme, url) or port,
        Path(folder) if folder else None,
        _collection(given),
        _timeout(given),
        _flag(given, "tls"),
        tuple((name, given[name]) for name in options if name in given),
    )


def _port(scheme: str, url: str) -> int | None:
    try:
        return urlsplit(url).port
    except ValueError as exc:
        raise ConfigError(f"the port in the {scheme} URL is not a number up to 65535.") from exc


def _collection(given: Mapping[str, str]) -> str:
    name = given.get("collection", "engrain")
    if not _NAME.fullmatch(name):
        raise ConfigError(f"collection {name!r}: 3 to 40 letters, digits, dots, dashes or underscores.")
    return name


def _timeout(given: Mapping[str, str]) -> float:
    text = given.get("timeout", str(TIMEOUT))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 600:
        raise ConfigError(f"timeout={text!r}: a number of seconds up to 600.")
    return seconds


def _flag(given: Mapping[str, str], name: str) -> bool:
    text = given.get(name, "false").lower()
    if text not in ("true", "false", "1", "0"):
        raise ConfigError(f"{name}={text!r}: true or false.")
    return text in ("true", "1")


Durability = Literal["strict", "relaxed"]
_WANTED = {**COMMON, "durability": "strict or relaxed", "cluster": "on or off"}


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """`timeout` is for one call with all its tries, in seconds; `patience` for a server that is still starting when a
    journal is opened there, but no longer than the time-out."""

    url: str = field(repr=False)  # it may hold a password
    shown: str
    durability: Durability = "strict"
    timeout: float = 10.0
    patience: float = 5.0
    pool: int = 32
    cluster: bool = False


def read_url(url: str) -> RedisAddress:
    """redis://user:password@host:6379/0?durability=relaxed&timeout=10&patience=5&pool=32&cluster=on

    Every other parameter is the client's own (ssl_ca_certs, client_name, …).
    """
    safe = shown(url)
    rest, own = split(url, f"{safe} is not a Redis URL", _WANTED, _value)
    return RedisAddress(rest, safe, **own)


def _value(name: str, value: str) -> object:
    if (found := common(name, value)) is not None:
        return found
    if name == "durability" and value in ("strict", "relaxed"):
        return value
    if name == "cluster" and value in ("on", "off"):
        return value == "on"
    raise ConfigError(f"{name} in the URL of a Redis store must be {_WANTED[name]}, not {value!r}.")
