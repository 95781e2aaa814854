"""Read the address of a vector server, or of the folder of an embedded one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from engrain.core.errors import ConfigError

TIMEOUT = 5.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,38}[A-Za-z0-9]")
_OPTIONS = ("collection", "timeout", "tls")


@dataclass(frozen=True, slots=True)
class Address:
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


def read_address(url: str, port: int, options: tuple[str, ...] = ()) -> Address:
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
    return Address(
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
