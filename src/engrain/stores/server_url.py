"""Read the URL of a database server: what is ours in it, what is the client's, and what may be shown."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

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
