"""Parse the URLs of servers, and hide their secrets in messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from engrain.core.errors import ConfigError
from engrain.core.secrets.urls import hide_secrets


class UrlOption(NamedTuple):
    """A parameter of our own in a URL. `parse` returns None or raises ValueError if the text is not as wanted."""

    wanted: str
    parse: Callable[[str], object]


def number_option(wanted: str, accept: Callable[[float], bool], kind: type[float] = float) -> UrlOption:
    return UrlOption(wanted, lambda text: number if accept(number := kind(text)) else None)


COMMON_OPTIONS = {
    "timeout": number_option("seconds, up to 3,600", lambda number: 0 < number <= 3_600),
    "patience": number_option("seconds, from 0 to 3,600", lambda number: 0 <= number <= 3_600),
    "pool": number_option("a number from 1 to 1,000", lambda number: 1 <= number <= 1_000, int),
}
SWITCH = UrlOption("on or off", {"on": True, "off": False}.get)


def split_url(url: str, kind: str, options: Mapping[str, UrlOption]) -> tuple[str, dict[str, Any]]:
    """Split a URL into the one for the client and our own parameters. `kind` names it in messages."""
    try:
        parts = urlsplit(url)
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        _ = parts.port
        if parts.netloc.count("@") > 1:
            raise ValueError("an @ in the password")  # a driver would take the rest of it for the host
    except ValueError:
        # Without the cause, whose message may hold a part of the password.
        raise make_url_error(url, kind) from None
    rest = urlencode([pair for pair in pairs if pair[0] not in options], quote_via=quote)
    own = {name: _parse_option(kind, name, text, options[name]) for name, text in pairs if name in options}
    return urlunsplit(parts._replace(query=rest)), own


def _parse_option(kind: str, name: str, text: str, option: UrlOption) -> object:
    with suppress(ValueError):
        if (value := option.parse(text)) is not None:
            return value
    raise ConfigError(f"{name} in a {kind} URL must be {option.wanted}, not {text!r}.")


def make_url_error(url: str, kind: str) -> ConfigError:
    return ConfigError(
        f"{hide_secrets(url)} is not a {kind} URL. Check its port and options, and write special characters in user "
        "and password as %XX, such as %2F for a slash."
    )


DEFAULT_TIMEOUT_SECONDS = 5.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,38}[A-Za-z0-9]")
_TLS = {"true": True, "1": True, "false": False, "0": False}
_VECTOR_OPTIONS = {
    "collection": UrlOption(
        "3 to 40 letters, digits, dots, dashes or underscores", lambda text: text if _NAME.fullmatch(text) else None
    ),
    "timeout": number_option("seconds, up to 600", lambda number: 0 < number <= 600),
    "tls": UrlOption("true or false", lambda text: _TLS.get(text.lower())),
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
    scheme, known = url.partition("://")[0], {**_VECTOR_OPTIONS, **dict.fromkeys(options, UrlOption("a text", str))}
    rest, own = split_url(url, scheme, known)
    parts = urlsplit(url)
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


Durability = Literal["strict", "relaxed"]
_DURABILITY = UrlOption("strict or relaxed", {"strict": "strict", "relaxed": "relaxed"}.get)
_REDIS_OPTIONS = {**COMMON_OPTIONS, "durability": _DURABILITY, "cluster": SWITCH}


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
    rest, own = split_url(url, "Redis", _REDIS_OPTIONS)
    return RedisAddress(rest, hide_secrets(url), **own)
