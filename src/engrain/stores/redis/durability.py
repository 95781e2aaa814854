"""What a server promises to keep, as far as it tells."""

from __future__ import annotations

from typing import NamedTuple

from engrain.core.errors import ConfigError, StoreError
from engrain.core.queries import Finding
from engrain.stores.redis.link import Link

_NEEDED = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}
_OLDEST = (6, 2)


class Promise(NamedTuple):
    """`lacks` are the settings that a journal needs and that are otherwise; None if the server does not tell."""

    version: str
    settings: dict[str, str] | None

    @property
    def lacks(self) -> dict[str, str] | None:
        if self.settings is None:
            return None
        return {name: value for name, value in self.settings.items() if value != _NEEDED[name]}


def promised(link: Link, patience: float = 0.0) -> Promise:
    """The least that any of the servers promises. ConfigError for one that is too old."""
    versions = [_version(told) for told in link.each_server("INFO", "server", patience=patience)]
    oldest = min(versions, key=_numbers)
    if _numbers(oldest) < _OLDEST:
        raise ConfigError(f"Redis at {link.address.shown} is {oldest}; engrain needs 6.2 or newer.")
    return Promise(oldest, _settings(link))


def proved(link: Link, promise: Promise) -> None:
    """ConfigError if a journal here could lose what was acknowledged and nobody has said that it may."""
    if link.address.durability == "relaxed" or promise.lacks == {}:
        return
    needs = ", ".join(f"{name} {value}" for name, value in _NEEDED.items())
    found = "does not let us look at its settings (CONFIG GET)" if promise.lacks is None else f"has {_told(promise)}"
    raise ConfigError(
        f"a task journal needs a Redis with {needs}; the one at {link.address.shown} {found}. Set it so, or accept "
        "that a crash may lose the last steps: add durability=relaxed to the URL."
    )


def findings(link: Link, promise: Promise, journal: bool) -> list[Finding]:
    """For `doctor`: what the server is, and what it keeps."""
    where = Finding("redis", "pass", f"Redis {promise.version} at {link.address.shown} answers.")
    if promise.lacks is None:
        kept = Finding("redis durability", "warn", "The server does not tell whether it keeps what it acknowledges.")
    elif promise.lacks and journal:
        mend = f"Set {', '.join(f'{name} {_NEEDED[name]}' for name in promise.lacks)}."
        why = f"Opened with durability=relaxed: with {_told(promise)} a crash may lose the last steps of tasks."
        kept = Finding("redis durability", "warn", why, mend)
    elif promise.lacks:
        why = f"{_told(promise)}: enough for episodes, whose words are in the log; not for tasks."
        kept = Finding("redis durability", "pass", why)
    else:
        kept = Finding("redis durability", "pass", "What it acknowledges is on disk, and nothing is evicted.")
    return [where, kept]


def _told(promise: Promise) -> str:
    return ", ".join(f"{name} {value or 'unknown'}" for name, value in (promise.lacks or {}).items())


def _settings(link: Link) -> dict[str, str] | None:
    found = {}
    try:
        for name, needed in _NEEDED.items():
            values = {str(told.get(name, "")) for told in link.each_server("CONFIG GET", name)}
            found[name] = needed if values == {needed} else ", ".join(sorted(values - {needed}))
    except (ConfigError, StoreError):
        return None
    return found


def _version(told: dict[str, object]) -> str:
    return str(told["redis_version"])


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])
