"""API keys: a file of their hashes, each bound to a scope, rights and limits."""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from engrain.core.clock import Clock, system_clock
from engrain.core.errors import ConfigError, Conflict, InvalidInput, NotFound
from engrain.core.http_routes import RIGHTS, Right
from engrain.core.identity import Scope
from engrain.core.validation import check_key, parse_strict, suggest_name
from engrain.ports.plain_files import read_plain
from engrain.server.key_trust import VOICES, Voice

SCOPE_PARTS = ("tenant", "agent", "user")
FILE_SUFFIX = ".keys.json"
_PREFIX = "engrain"
_FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """Limits of one key: requests at a time and a second, items and bytes written a day. None means no limit."""

    requests_per_second: float | None = 100.0
    concurrent_requests: int | None = 64
    items_per_day: int | None = None
    bytes_per_day: int | None = None

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0):
                raise InvalidInput(f"the limit {limit.name} must be a number above 0, not {value!r}.")


NO_LIMITS = KeyLimits(None, None)


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key without its secret: the scope that it is bound to, its rights and its limits.

    `chooses` are the parts of the scope that its holder names in headers instead. `recall` also searches the scopes in
    `reads`. With the `voice` of the agent it never speaks for the user. `replaced` is the hash of the secret before the
    last rotation, which is accepted until `replaced_until`.
    """

    id: str
    name: str
    sha256: str
    rights: tuple[Right, ...]
    tenant: str | None = None
    agent: str | None = None
    user: str | None = None
    chooses: tuple[str, ...] = ()
    limits: KeyLimits = field(default_factory=KeyLimits)
    created_at: str = ""
    replaced: str | None = None
    replaced_until: str | None = None
    reads: tuple[Scope, ...] = ()
    voice: Voice = "user"

    def __post_init__(self) -> None:
        check_key(self.name, "name")
        if any(not isinstance(hash, str) or not hash.isascii() for hash in (self.id, self.sha256, self.replaced or "")):
            raise InvalidInput("the id and the hashes of a key must be ASCII text.")
        if self.replaced_until is not None and datetime.fromisoformat(self.replaced_until).tzinfo is None:
            raise InvalidInput(f"replaced_until needs a time zone: {self.replaced_until}.")
        Scope(self.tenant, self.agent, self.user)
        if not self.rights or any(right not in RIGHTS for right in self.rights):
            raise InvalidInput(f"a key needs rights, of {', '.join(RIGHTS)}, not {', '.join(self.rights) or 'none'}.")
        if self.voice not in VOICES:
            raise InvalidInput(f"a key has the voice of the {' or the '.join(VOICES)}, not {self.voice!r}.")
        for part in self.chooses:
            if part not in SCOPE_PARTS:
                raise InvalidInput(f"a key can choose {', '.join(SCOPE_PARTS)}, not {part!r}.")
            if getattr(self, part) is not None:
                raise InvalidInput(f"a key is bound to one {part}, or may choose it, not both.")

    @property
    def scope(self) -> Scope:
        return Scope(self.tenant, self.agent, self.user)

    @property
    def whole_store(self) -> bool:
        """True if the key may name every scope, and so use the verbs of the whole store."""
        return set(self.chooses) == set(SCOPE_PARTS)


class KeyFile:
    """The file of keys, readable by its owner only. A changed file is read again with the next request."""

    def __init__(self, path: Path, clock: Clock = system_clock) -> None:
        self.path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._keys: dict[str, ApiKey] = {}

    def find(self, text: str) -> ApiKey | None:
        """Return the key of this text; None if there is none. Hashes are compared in constant time."""
        prefix, _, rest = text.partition("_")
        id, _, _ = rest.partition("_")
        key = self._load().get(id)
        hashed = hash_secret(text)
        # Also without a key: the time tells nothing about which ids exist.
        fits = hmac.compare_digest(hashed, key.sha256 if key else hash_secret(""))
        fits_replaced = hmac.compare_digest(hashed, key.replaced or "" if key else "")
        if key is None or prefix != _PREFIX:
            return None
        return key if fits or (fits_replaced and self._is_before(key.replaced_until)) else None

    def list(self) -> Sequence[ApiKey]:
        return tuple(self._load().values())

    def get(self, name: str) -> ApiKey:
        """Return the key of this name; NotFound if there is none."""
        return _find_named(self._load(), name)

    def add(self, key: ApiKey) -> str:
        """Add a key and return its text, which is shown once and never stored."""
        text, made = _make_secret(key)
        with self._change() as keys:
            if any(other.name == key.name for other in keys.values()):
                raise Conflict(f"there is a key named {key.name!r}: rotate it, revoke it, or choose another name.")
            keys[made.id] = replace(made, created_at=self._clock().isoformat(timespec="seconds"))
        return text

    def rotate(self, name: str, keep: timedelta = timedelta()) -> str:
        """Give a key a new secret and return its text. The old secret stays valid for `keep`."""
        with self._change() as keys:
            old = _find_named(keys, name)
            text, made = _make_secret(old, id=old.id)
            until = (self._clock() + keep).isoformat(timespec="seconds") if keep else None
            keys[old.id] = replace(made, replaced=old.sha256 if keep else None, replaced_until=until)
        return text

    def revoke(self, name: str) -> ApiKey:
        """Remove a key. Running servers refuse it from the next request on."""
        with self._change() as keys:
            return keys.pop(_find_named(keys, name).id)

    def _is_before(self, until: str | None) -> bool:
        return until is not None and self._clock() < datetime.fromisoformat(until)

    def _load(self) -> dict[str, ApiKey]:
        """Return the keys, read again if the file was replaced."""
        try:
            state = self.path.stat()
        except FileNotFoundError:
            return {}
        except OSError as exc:
            raise ConfigError(f"the keys in {self.path} cannot be read: {exc.strerror}.") from exc
        seen = (state.st_mtime_ns, state.st_ino, state.st_size)
        with self._lock:
            if seen != self._seen:
                if state.st_mode & 0o077:
                    raise ConfigError(f"others can read the keys in {self.path}. Run: chmod 600 {self.path}")
                self._keys, self._seen = _read_keys(self.path), seen
            return self._keys

    @contextmanager
    def _change(self) -> Iterator[dict[str, ApiKey]]:
        """Yield the keys to change, then replace the file. Several processes take turns."""
        folder = self.path.parent
        if not folder.is_dir():
            raise NotFound(f"there is no folder {folder} for the keys.")
        lock = os.open(self.path.with_name(self.path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            keys = dict(self._load())
            yield keys
            _write_keys(self.path, keys.values())
        finally:
            os.close(lock)


def hash_secret(text: str) -> str:
    """Hash the text of a key. It has 256 random bits, so that a plain hash cannot be guessed."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def find_key_path(store: str, path: str | None = None) -> Path:
    """Return the file of keys of a store: the given one, or that next to the store's file."""
    if path is not None:
        return Path(path).expanduser().absolute()
    scheme, separator, rest = store.partition("://")
    file = rest if separator else scheme
    if (separator and scheme not in ("sqlite", "file")) or file in ("", ":memory:"):
        raise ConfigError("this store is not a file that keys could be next to: name their file with --keys PATH.")
    found = Path(file).expanduser().absolute()
    return found.with_name(found.name + FILE_SUFFIX)


def _make_secret(key: ApiKey, id: str | None = None) -> tuple[str, ApiKey]:
    id = id or secrets.token_hex(4)
    text = f"{_PREFIX}_{id}_{secrets.token_urlsafe(32)}"
    return text, replace(key, id=id, sha256=hash_secret(text))


def _find_named(keys: Mapping[str, ApiKey], name: str) -> ApiKey:
    for key in keys.values():
        if name in (key.name, key.id):
            return key
    raise NotFound(f"there is no key {name!r}.{suggest_name(name, [key.name for key in keys.values()])}")


def _read_keys(path: Path) -> dict[str, ApiKey]:
    try:
        document = parse_strict(read_plain(path))
        if document["version"] != _FORMAT_VERSION:
            raise ConfigError(f"{path} was written by a newer engrain. Upgrade: pip install -U engrain.")
        found = [_parse_key(values) for values in document["keys"]]
    except (ValueError, LookupError, TypeError) as exc:
        raise ConfigError(f"the keys in {path} cannot be read: {str(exc).rstrip('.')}.") from exc
    return {key.id: key for key in found}


def _parse_key(values: Mapping[str, Any]) -> ApiKey:
    return ApiKey(
        **{
            **values,
            "rights": tuple(values["rights"]),
            "chooses": tuple(values.get("chooses", ())),
            "limits": KeyLimits(**values.get("limits", {})),
            "reads": tuple(Scope(**scope) for scope in values.get("reads", ())),
        }
    )


def _write_keys(path: Path, keys: Iterator[ApiKey] | Any) -> None:
    document = {"version": _FORMAT_VERSION, "keys": [asdict(key) for key in keys]}
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=2, ensure_ascii=False)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as exc:
        raise ConfigError(f"the keys cannot be written to {path}: {exc.strerror}.") from exc
    finally:
        temporary.unlink(missing_ok=True)
