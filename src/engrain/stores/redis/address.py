"""Read a Redis URL: where the server is, how long we wait, and what it must promise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from engrain.core.errors import ConfigError
from engrain.stores.server_url import COMMON, common, shown, split

Durability = Literal["strict", "relaxed"]
_WANTED = {**COMMON, "durability": "strict or relaxed", "cluster": "on or off"}


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
    safe = shown(url)
    rest, own = split(url, f"{safe} is not a Redis URL", _WANTED, _value)
    return Address(rest, safe, **own)


def _value(name: str, value: str) -> object:
    if (found := common(name, value)) is not None:
        return found
    if name == "durability" and value in ("strict", "relaxed"):
        return value
    if name == "cluster" and value in ("on", "off"):
        return value == "on"
    raise ConfigError(f"{name} in the URL of a Redis store must be {_WANTED[name]}, not {value!r}.")
